"""Scheduling policies: agents, queue orders, backfilling."""
