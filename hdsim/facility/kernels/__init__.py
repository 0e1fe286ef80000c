"""Kernels of the power of shared nodes, which is split among the jobs there."""
