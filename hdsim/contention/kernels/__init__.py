"""Kernels of the contention models: speeds of jobs that share processors."""
