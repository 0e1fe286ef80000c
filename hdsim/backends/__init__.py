"""What runs the jobs: the engine or an external system."""
