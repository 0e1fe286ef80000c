"""Kernels of networks of many rows, with their gradients, and of the vertices of graphs."""
