"""Run times that jobs may have, from the ended jobs of the same users in a log."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hdsim.site.beginning import Times
from hdsim.site.workload import names
from hdsim.util.arrays import Floats, Ints

if TYPE_CHECKING:
    from hdsim.workload.model import Workload

#: Fewest ended jobs from which run times are drawn, and most: the last ones.
_FEWEST, _MOST = 10, 200


class RunTimes:
    """Run times of the ended jobs of a log, by user, time limit and size.

    Args:
        log: The jobs.
        times: Their recorded times.
    """

    def __init__(self, log: Workload, times: Times) -> None:
        ended = np.flatnonzero(~np.isnan(times.start) & ~np.isnan(times.end))
        order = ended[np.argsort(times.end[ended], kind="stable")]
        self._end, self._runtime = times.end[order], np.asarray(log.runtime)[order]
        self._limit = np.maximum(np.asarray(log.requested_time)[order], 1.0)
        users, partitions = names(log, "user"), names(log, "partition")
        cpus = log.requested_cores.tolist()
        pools: dict[tuple[Any, ...], list[int]] = {(): list(range(len(order)))}
        for place, (row, limit) in enumerate(zip(order.tolist(), self._limit.tolist(), strict=True)):
            for key in _keys(users[row], partitions[row], limit, cpus[row])[:-1]:
                pools.setdefault(key, []).append(place)
        self._pools: dict[tuple[Any, ...], Ints] = {key: np.array(rows, np.int64) for key, rows in pools.items()}

    def of(self, at: float, user: Any, partition: Any, limit: float, cpus: int, elapsed: float = 0.0) -> Floats:
        """Returns possible run times of a job, in order of the ends of the jobs that they are from, in seconds.

        They are those of the last jobs of the user with the same time limit and size, or else with the same limit;
        or, as parts of the limit, those of the last jobs of the user, of the partition or of all users: the first of
        these with at least ten jobs that ran longer than `elapsed`. If there are none, all times from `elapsed` to the
        limit are equally likely.

        Args:
            at: Time in seconds since 1970 until which jobs have ended.
            user: Name of the user.
            partition: Name of the partition.
            limit: Time limit in seconds.
            cpus: Number of CPUs.
            elapsed: Seconds that the job has run.
        """
        for place, key in enumerate(_keys(user, partition, limit, cpus)):
            rows = self._pools.get(key)
            if rows is None:
                continue
            rows = rows[: np.searchsorted(self._end[rows], at, side="right")]
            runtimes = self._runtime[rows]
            if place > 1:
                runtimes = runtimes * (limit / self._limit[rows])
            runtimes = np.minimum(runtimes, limit)
            runtimes = runtimes[runtimes > elapsed] if elapsed else runtimes
            if len(runtimes) >= _FEWEST:
                return runtimes[-_MOST:]
        return np.linspace(elapsed, max(limit, elapsed + 1.0), _FEWEST + 1)[1:]


def _keys(user: Any, partition: Any, limit: float, cpus: int) -> list[tuple[Any, ...]]:
    """Groups of jobs, from those most like a job to all jobs."""
    return [(user, limit, cpus), (user, limit), (user, None), (None, partition), ()]


def remaining(
    runtimes: RunTimes, log: Workload, since: Floats, at: float, rng: np.random.Generator, rows: Sequence[int]
) -> Floats:
    """Returns a draw of the seconds that some jobs will still run.

    The run times of jobs that have not started are those of consecutive jobs of their user from a random one on, so
    that series of like jobs remain.

    Args:
        runtimes: Possible run times.
        log: The jobs.
        since: (J,) starts in seconds since 1970, NaN of jobs that have not started.
        at: Present time in seconds since 1970.
        rng: Random numbers.
        rows: The (k,) jobs.
    """
    users, partitions = names(log, "user"), names(log, "partition")
    series: dict[tuple[Any, ...], tuple[Floats, int]] = {}
    drawn = np.empty(len(rows))
    for place, row in enumerate(rows):
        limit, cpus = float(log.requested_time[row]), int(log.requested_cores[row])
        like = users[row], partitions[row], limit, cpus
        if not math.isnan(since[row]):
            elapsed = max(at - float(since[row]), 0.0)
            possible = runtimes.of(at, *like, elapsed)
            drawn[place] = possible[rng.integers(len(possible))] - elapsed
            continue
        if like not in series:
            possible = runtimes.of(at, *like)
            series[like] = possible, int(rng.integers(len(possible)))
        possible, position = series[like]
        drawn[place] = possible[position % len(possible)]
        series[like] = possible, position + 1
    return np.maximum(np.round(drawn), 1.0)
