"""Records of the pods: pods.csv and the latencies in the manifest."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from hdsim.backends.kwok.members import Member
from hdsim.util.files import write_csv

_TIMES = ("created", "decided", "bound", "running", "finished")


def write_pods(path: Path, members: Iterable[Member]) -> None:
    """Writes pods.csv: a row for each pod in order of its creation, empty where something has not happened."""
    rows = sorted(members, key=lambda member: (member.created, member.pod.key))
    write_csv(
        path,
        ("namespace", "name", "node", *_TIMES, "attempts"),
        (
            (
                member.pod.namespace,
                member.pod.name,
                member.pod.node or (member.node if not math.isnan(member.bound) else ""),
                *("" if math.isnan(time := getattr(member, name)) else f"{time:.6f}" for name in _TIMES),
                member.attempts,
            )
            for member in rows
        ),
    )


def latencies(members: Iterable[Member], time_scale: float) -> dict[str, dict[str, float]]:
    """Returns quantiles of the seconds from arrival to decision, and from decision to binding, of decided pods."""
    decided = [member for member in members if not math.isnan(member.decided)]
    samples = {
        "decision_latency_seconds": [member.decided - member.created for member in decided],
        "binding_latency_seconds": [
            member.bound - member.decided for member in decided if not math.isnan(member.bound)
        ],
    }
    return {
        name: {f"p{share}": round(float(np.percentile(values, share)) / time_scale, 6) for share in (50, 99)}
        for name, values in samples.items()
        if values
    }
