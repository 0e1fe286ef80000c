"""The order ``learned``: a small network scores the queued jobs, see :mod:`hdsim.kernels.learned_scores`."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from hdsim.errors import ConfigError
from hdsim.kernels import counted_replay
from hdsim.kernels.learned_scores import WEIGHTS, learned_scores, past_sums
from hdsim.kernels.profiles import Releases

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster
    from hdsim.workload.model import Workload

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Rules of backfilling that the network tells apart; the others count as EASY.
RULES = {"none": counted_replay.NONE, "rlscheduler": counted_replay.RLSCHEDULER}


class Jobs(NamedTuple):
    """Columns of a workload that the network sees, and sums over them; see `learned_scores`."""

    submission: Floats
    requested: Floats
    size: Ints
    sums: Floats


_JOBS: WeakKeyDictionary[Workload, Jobs] = WeakKeyDictionary()


@cache
def read_weights(card: str) -> Floats:
    """Reads the weights of a model card.

    Raises:
        ConfigError: The file has no such weights.
    """
    try:
        weights = np.array(json.loads(Path(card).read_text())["weights"], float)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"expected a card with the weights of a network: {error}", where=card) from None
    if weights.shape != (WEIGHTS,) or not np.isfinite(weights).all():
        raise ConfigError(f"expected {WEIGHTS} finite weights, got {weights.shape}", where=card)
    return weights


def columns_of(workload: Workload) -> Jobs:
    """Returns what the network sees of all jobs."""
    if workload not in _JOBS:
        requested, size = workload.requested_time.copy(), workload.requested_cores.copy()
        _JOBS[workload] = Jobs(workload.submission_time.copy(), requested, size, past_sums(requested, size))
    return _JOBS[workload]


def scores(
    workload: Workload, queued: Ints, cluster: Cluster, network: str, backfill: str, commit_head: bool
) -> Floats:
    """Returns the (Q,) scores of the queued jobs."""
    jobs, running = columns_of(workload), cluster.running
    begins = [cluster.starting.get(job, cluster.starting_time[job]) for job in running]
    ends = np.array([t + cluster.estimate(job, running[job]) for t, job in zip(begins, running, strict=True)], float)
    held = np.fromiter(running, np.int64, len(running))
    order = np.lexsort((held, ends))
    cores = np.array([cluster.size[job] for job in running], float)
    releases = Releases(ends[order], held[order], cores[order], np.array([len(held)]))
    result = np.empty(len(queued))
    learned_scores(
        read_weights(network), float(cluster.platform.n_cpu_cores), RULES.get(backfill, counted_replay.EASY),
        commit_head, float(cluster.now), float(cluster.n_idle), queued, len(queued), *jobs, releases, result,
    )  # fmt: skip
    return result
