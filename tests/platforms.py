"""Platforms that several tests use."""

from __future__ import annotations

import hdsim


def two_speeds(cores: int, mem_bw: float) -> hdsim.Platform:
    """Two nodes of one processor each: 20 and 10 GFLOP/s a core, so that the reference is 15.

    Args:
        cores: Cores of each processor.
        mem_bw: Memory bandwidth of each processor, GB/s.
    """
    processor = {"type": "CPU", "cores": cores, "dpflops_per_cycle": 10, "mem_bw": mem_bw, "power": 20, "llc_size": 1}
    return hdsim.Platform.from_dict(
        {
            "clusters": [
                {
                    "id": "c",
                    "nodes": [{"type": "fast", "number": 1}, {"type": "slow", "number": 1}],
                    "local_links": {"type": "net", "latency": "0us"},
                }
            ],
            "global_links": {"type": "net", "latency": "0us"},
            "types": {
                "network": {"net": {"bandwidth": "1Gbps"}},
                "memory": {"ddr": {"latency": "100ns"}},
                "processor": {"f": {**processor, "clock_rate": 2}, "s": {**processor, "clock_rate": 1}},
                "node": {
                    name: {
                        "id": name,
                        "processors": [{"type": name[0], "number": 1}],
                        "memory": {"type": "ddr", "capacity": 16},
                    }
                    for name in ("fast", "slow")
                },
            },
        },
        where="test",
    )
