"""Traces like a log: sessions of its users are drawn again, hour of the week by hour of the week.

The jobs of a session are kept together, with the gaps between them, their sizes, run times and requested times, as
in the resampling of D. G. Feitelson, "Resampling with Feedback: A New Paradigm of Using Workload Data for Performance
Evaluation", Euro-Par 2016, without its feedback. A session ends where its user submits nothing for an hour (N. Zakay
and D. G. Feitelson, "On Identifying User Session Boundaries in Parallel Workload Logs", JSSPP 2012).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hdsim.util.arrays import Ints
from hdsim.util.resources import resolve
from hdsim.util.rules import POSITIVE, ascends, integers_from, lists_of, numbers_between, require
from hdsim.workload.generators.base import SPLITS, Generator, require_split, seed_in
from hdsim.workload.load import load_workload
from hdsim.workload.model import Workload

if TYPE_CHECKING:
    from hdsim.platform.model import Platform

_HOUR = 3600
#: Periods in hours, and the least hours of a log in which they can be seen: a week, a day, none.
_PERIODS = ((168, 336), (24, 48), (1, 0))
_PART = lists_of(numbers_between(0, 1), "[low, high] with 0 <= low < high <= 1", 2, ascends)
_log = logging.getLogger(__name__)


class UserSessions(NamedTuple):
    """Sessions of a log, in order of their first jobs.

    Attributes:
        rows: (J,) jobs of the log, session by session, in order of submission.
        first: (V + 1,) the first entry of `rows` of each session.
        hour: (V,) hour of the clock of the log in which each session begins.
    """

    rows: Ints
    first: Ints
    hour: Ints


class Like(Generator):
    """Jobs like those of a log (`path`): sessions of its users, drawn again by the hour of the week.

    An hour has as many sessions as that hour of some week of the log, each drawn from all sessions that began in that
    hour of the week. Jobs without a user are sessions of their own.
    """

    def __init__(
        self,
        path: str | Path,
        jobs: int = 10_000,
        part: Sequence[float] = (0.0, 1.0),
        gap: float = 3600.0,
        split: str | None = None,
        status: str = "recorded",
    ) -> None:
        """Finds the log.

        Args:
            path: The log: a file or the name of a bundled trace.
            jobs: Number of jobs.
            part: Begin and end of the part of the log that is drawn from, as shares of its jobs.
            gap: Seconds without a submission after which a session of a user has ended.
            split: ``train``, ``validation`` or ``test``, whose traces have other seeds; None: those of ``train``.
            status: See :func:`hdsim.workload.load.load_workload`.
        """
        rules = {"jobs": integers_from(1), "part": _PART, "gap": POSITIVE}
        require("workload.generate", rules, {"jobs": jobs, "part": part, "gap": gap})
        self._path, self._status = resolve("workloads", path, where="workload.path"), status
        self._jobs, self._part, self._gap = int(jobs), (float(part[0]), float(part[1])), float(gap)
        self._split = require_split(split or SPLITS[0])

    def generate(self, platform: Platform | None, seed: int) -> Workload:
        path = self._path.resolve()
        log, found = _sessions(path, path.stat().st_mtime_ns, self._status, self._part, self._gap)
        rng = np.random.default_rng(seed_in(self._split, seed))
        rows, times = draw_sessions(log, found, self._jobs, rng)
        columns = log.columns_at(rows)
        columns |= {
            "job_id": np.argsort(np.argsort(times, kind="stable"), kind="stable") + 1,
            "submission_time": times,
            "original_submission_time": times,
        }
        told = f"like {self._path.name}, {self._split} {seed}"
        cores = {"MaxProcs": str(log.cluster_cores)}
        return Workload.from_columns(
            **columns,
            names=log.names,
            profiles=log.profiles,
            source=f"<{told}>",
            header={**log.header, **cores, "Note": told},
        )


def sessions(log: Workload, gap: float = 3600.0) -> UserSessions:
    """Returns the sessions of the users of a log, which end where the user submits nothing for `gap` seconds."""
    user, time = log.user, log.original_submission_time
    order = np.lexsort((np.arange(len(log)), time, user))
    same = (user[order][1:] == user[order][:-1]) & (user[order][1:] != -1)
    begins = np.flatnonzero(np.append(True, ~(same & (np.diff(time[order]) <= gap))))
    ends = np.append(begins[1:], len(log))
    by_time = np.argsort(order[begins], kind="stable")
    rows = np.concatenate([order[begins[each] : ends[each]] for each in by_time.tolist()])
    first = np.append(0, np.cumsum((ends - begins)[by_time]))
    return UserSessions(rows, first, (time[rows[first[:-1]]] // _HOUR).astype(np.int64))


def draw_sessions(log: Workload, found: UserSessions, jobs: int, rng: np.random.Generator) -> tuple[Ints, np.ndarray]:
    """Draws sessions until they have a number of jobs.

    Returns:
        (jobs,) rows of the log, and (jobs,) submission times in seconds on a clock on which hours of the week are those
        of the log. Sessions that would end after the last hour are under way in the first.
    """
    low, hours = int(found.hour[0]), int(found.hour[-1] - found.hour[0]) + 1
    period = next(length for length, least in _PERIODS if hours >= least)
    begun = np.bincount(found.hour - low, minlength=hours)
    # Hours of the log, and sessions, by the hour of the period.
    alike = [np.arange((slot - low) % period, hours, period) for slot in range(period)]
    starting = [np.flatnonzero(found.hour % period == slot) for slot in range(period)]
    start = int(rng.integers(period))
    time = log.original_submission_time
    rows: list[Ints] = []
    times: list[np.ndarray] = []
    total, hour = 0, start
    while total < jobs:
        slot = hour % period
        count = begun[alike[slot][rng.integers(len(alike[slot]))]]
        for each in starting[slot][rng.integers(len(starting[slot]), size=count)] if count else ():
            own = found.rows[found.first[each] : found.first[each + 1]]
            rows.append(own)
            times.append(time[own] + float(hour - found.hour[each]) * _HOUR)
            total += len(own)
        hour += 1
    span = float(hour - start) * _HOUR
    when = (np.concatenate(times)[:jobs] - start * _HOUR) % span + start * _HOUR
    return np.concatenate(rows)[:jobs], when


@lru_cache(maxsize=8)
def _sessions(
    path: Path, changed: int, status: str, part: tuple[float, float], gap: float
) -> tuple[Workload, UserSessions]:
    log = load_workload(path, memory_bandwidth="trace", status=status)
    low, high = (round(share * len(log)) for share in part)
    log = log[low:high]
    unknown = int((log.user == -1).sum())
    if unknown:
        _log.warning("%s: %d of %d jobs have no user; each is a session of its own", path, unknown, len(log))
    return log, sessions(log, gap)
