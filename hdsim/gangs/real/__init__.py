"""Gangs in reality: tasks are processes that ZooKeeper synchronises."""
