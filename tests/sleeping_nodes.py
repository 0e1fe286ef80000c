"""Nodes that sleep, and jobs between which they do."""

from __future__ import annotations

import numpy as np

import hdsim

STATES = {
    "on": {"watts": 60},
    "idle": {"watts": 40},
    "off": {"watts": 8},
    "going_down": {"watts": 52, "seconds": 30},
    "booting": {"watts": 120, "seconds": 180},
}


def sleeping(nodes: int = 4, processors: int = 1, cores: int = 4) -> hdsim.Platform:
    """A platform of nodes that sleep."""
    return hdsim.Platform.from_dict(
        {
            "name": "sleeping",
            "clusters": [{"id": "main", "nodes": [{"type": "thin", "number": nodes}]}],
            "types": {
                "node": {"thin": {"processors": [{"type": "cpu", "number": processors}], "states": STATES}},
                "processor": {"cpu": {"cores": cores, "clock_rate": 1, "dpflops_per_cycle": 1, "power": 100}},
            },
        },
        "sleeping",
    )


def spaced(seed: int, jobs: int) -> hdsim.Workload:
    """Jobs of whole seconds, the first at 0, with pauses in which nodes fall asleep."""
    rng = np.random.default_rng(seed)
    times = np.cumsum(rng.choice([0, 5, 60, 400, 1500], jobs)).astype(float)
    return hdsim.Workload.from_columns(
        submission_time=times - times[0],
        runtime=rng.integers(1, 900, jobs).astype(float),
        requested_cores=rng.integers(1, 13, jobs),
        requested_time=rng.integers(900, 2000, jobs).astype(float),
    )
