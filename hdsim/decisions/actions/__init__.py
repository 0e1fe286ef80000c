"""Kinds of actions that a learning agent chooses from."""
