"""Kernels of environments: episodes in batches."""
