"""Stores of idle cores."""
