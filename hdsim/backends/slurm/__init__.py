"""Backend that schedules the jobs of a slurmctld."""
