"""Classic scheduling policies: the order of the queue, and backfilling. Core policies are in :mod:`hdsim.cores`."""
