"""Kernels of generators: submissions that wait for the end of earlier jobs."""
