"""Batsim's protocol from both sides: hdsim as the scheduler of a Batsim, and in the place of Batsim."""
