"""A run directory: what a replay leaves on disk, in the file formats of Batsim where Batsim has one."""
