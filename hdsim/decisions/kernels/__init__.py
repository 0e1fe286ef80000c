"""Kernels of observations: rows of jobs and nodes, and the remaining work of running jobs."""
