"""Run directories: manifest, results, lock. The formats are those of Batsim where Batsim has one."""
