"""The state of a cluster at one instant: queue, running jobs, idle cores."""
