"""Kernels of the schedulers of a site."""
