"""Kernels of agents that search: scenarios, play-outs and trees of choices."""
