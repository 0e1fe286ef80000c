"""Kernels of networks that are applied to each of many rows, with their gradients."""
