"""Platforms that several tests use."""

from __future__ import annotations

from typing import Any

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


def of_nodes(nodes: list[dict[str, Any]], kind: str = "cores") -> hdsim.Platform:
    """Nodes with `cores`, and where they have them `number`, `gflops` a core, `gpus`, `memory` in GB and `labels`."""
    gpu = {"type": "GPU", "cores": 1, "clock_rate": 1, "dpflops_per_cycle": 1, "power": 100}
    processors, types, listed = dict[str, Any](gpu=gpu), dict[str, Any](), []
    for place, node in enumerate(nodes):
        speed = node.get("gflops", 1)
        processors[f"p{place}"] = {"cores": node["cores"], "clock_rate": speed, "dpflops_per_cycle": 1, "power": 100}
        parts = [{"type": f"p{place}", "number": 1}]
        if "gpus" in node:
            parts.append({"type": "gpu", "number": node["gpus"]})
        types[f"n{place}"] = {"processors": parts}
        if "memory" in node:
            types[f"n{place}"]["memory"] = {"capacity": node["memory"]}
        labels = {"labels": node["labels"]} if "labels" in node else {}
        listed.append({"type": f"n{place}", "number": node.get("number", 1), **labels})
    return hdsim.Platform.from_dict(
        {
            "name": "machine",
            "kind": kind,
            "clusters": [{"id": "c", "nodes": listed}],
            "types": {"node": types, "processor": processors},
        }
    )
