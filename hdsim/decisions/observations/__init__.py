"""Kinds of observations that a learning agent receives."""
