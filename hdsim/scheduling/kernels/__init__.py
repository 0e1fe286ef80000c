"""Kernels of backfilling: expected releases, reservations and availability profiles."""
