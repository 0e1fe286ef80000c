"""Sites that run Slurm: their partitions, QOS, accounts, reservations, priorities and recorded jobs."""
