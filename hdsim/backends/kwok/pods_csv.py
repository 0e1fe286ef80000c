"""Records of the pods: pods.csv and the latencies in the manifest."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np

from hdsim.backends.kwok.members import Member
from hdsim.util.files import write_csv


class Record(NamedTuple):
    """A row of pods.csv: all that is kept of a pod that was deleted; see :class:`Member`."""

    namespace: str
    name: str
    node: str
    created: float
    decided: float
    bound: float
    running: float
    finished: float
    attempts: int

    @classmethod
    def of(cls, member: Member) -> Self:
        """Returns the record of a pod."""
        node = member.pod.node or (member.node if not math.isnan(member.bound) else "")
        times = member.created, member.decided, member.bound, member.running, member.finished
        return cls(member.pod.namespace, member.pod.name, node, *times, member.attempts)


def write_pods(path: Path, records: Iterable[Record]) -> None:
    """Writes pods.csv: a row for each pod in order of its creation, empty where something has not happened."""
    rows = sorted(records, key=lambda each: (each.created, f"{each.namespace}/{each.name}"))
    write_csv(path, Record._fields, (tuple(map(_shown, row)) for row in rows))


def _shown(value: object) -> object:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.6f}"
    return value


def latencies(records: Sequence[Record], time_scale: float) -> dict[str, dict[str, float]]:
    """Returns quantiles of the seconds from arrival to decision, and from decision to binding, of decided pods."""
    decided = [each for each in records if not math.isnan(each.decided)]
    samples = {
        "decision_latency_seconds": [each.decided - each.created for each in decided],
        "binding_latency_seconds": [each.bound - each.decided for each in decided if not math.isnan(each.bound)],
    }
    return {
        name: {f"p{share}": round(float(np.percentile(values, share)) / time_scale, 6) for share in (50, 99)}
        for name, values in samples.items()
        if values
    }
