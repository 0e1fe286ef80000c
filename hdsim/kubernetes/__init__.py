"""Kubernetes: connection to an API server, its objects and their copies, control planes of Kwok."""
