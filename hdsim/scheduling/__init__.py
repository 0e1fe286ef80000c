"""What decides: agents, orders of the queue, backfilling."""
