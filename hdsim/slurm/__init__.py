"""Slurm: clusters of emulated nodes on this machine, and clients of a slurmctld."""
