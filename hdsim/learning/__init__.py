"""Learning agents and their training."""
