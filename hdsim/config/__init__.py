"""Configurations of runs: composition by Hydra, checks of every key, and the platform and workload that they name."""
