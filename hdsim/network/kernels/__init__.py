"""Kernels of the network models: links, the flows that share them, and their rates."""
