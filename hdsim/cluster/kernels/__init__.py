"""Kernels of clusters: cores of nodes, core policies, chunks of jobs and placements."""
