"""Run times that are expected of jobs after those of like jobs: of the same user, cores and requested time.

The jobs of a campaign are alike, and run much shorter than requested more often than not. A job is expected to take the
longer of the run times of the last two like jobs that have ended, at least 1 s and at most its requested time; in
Tsafrir, Etsion and Feitelson, IEEE TPDS 18(6), 2007, it is the mean of the last two jobs of the user.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from hdsim.kernels.compiling import kernel

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Columns of the last two jobs of a kind: finish, number and run time of the latest, and of the one before it.
FINISH, NUMBER, RUNTIME, LATEST = 0, 1, 2, 6


def make_latest(kind: Ints) -> Floats:
    """Returns the (K, 6) last two jobs of each of K kinds before any has ended."""
    return np.full((int(kind.max(initial=-1)) + 1, LATEST), -math.inf)


@kernel
def note_end(latest: Floats, kind: Ints, job: int, start: float, finish: float) -> None:
    """Notes a job that has ended; which of two that end at the same time is noted first makes no difference.

    Args:
        latest: (K, 6) last two jobs of each kind.
        kind: (J,) kind of each job, -1 for none.
        job: The job.
        start: Its start in seconds.
        finish: Its finish in seconds.
    """
    if kind[job] < 0:
        return
    row = latest[kind[job]]
    place = 0
    while place < LATEST and (
        row[place + FINISH] > finish or (row[place + FINISH] == finish and row[place + NUMBER] > job)
    ):
        place += 3
    if place == 0:
        for column in range(3):  # an assignment of a slice takes a fifth of the compilation of a replay
            row[3 + column] = row[column]
    if place < LATEST:
        row[place + FINISH], row[place + NUMBER], row[place + RUNTIME] = finish, job, finish - start


@kernel
def note_ends(latest: Floats, kind: Ints, jobs: Ints, start: Floats, finish: Floats) -> None:
    """Notes several jobs, with (N,) starts and finishes."""
    for i in range(len(jobs)):
        note_end(latest, kind, jobs[i], start[i], finish[i])


@kernel
def expect(
    queue: Ints, count: int, kind: Ints, latest: Floats, requested: Floats, expected: Floats, logs: Floats
) -> None:
    """Updates what is expected of queued jobs.

    Args:
        queue: (Q or more,) queued jobs.
        count: Q.
        kind: (J,) kind of each job, -1 for none.
        latest: (K, 6) last two jobs of each kind.
        requested: (J,) s.
        expected: (J,) s, changed.
        logs: (J,) their logarithms, of at least 1 s, changed.
    """
    if not len(latest):
        return
    for i in range(count):
        job = queue[i]
        if kind[job] < 0 or latest[kind[job], 3 + FINISH] == -math.inf:
            continue
        row = latest[kind[job]]
        time = min(max(row[RUNTIME], row[3 + RUNTIME], 1.0), requested[job])
        if time != expected[job]:
            expected[job], logs[job] = time, math.log(max(time, 1.0))
