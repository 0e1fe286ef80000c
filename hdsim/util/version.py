"""Version of hdsim."""

__version__ = "0.1.0"
