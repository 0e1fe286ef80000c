"""Models that make workloads from a seed."""
