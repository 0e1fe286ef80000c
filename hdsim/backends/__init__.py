"""Backends, which execute jobs: the simulation engine and external systems."""
