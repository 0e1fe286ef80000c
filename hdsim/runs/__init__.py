"""Runs and sweeps: what a run does, the runs of a sweep and their directories, processes that execute them."""
