"""Bounds of a trace: a local search that knows all run times and arrivals, and a relaxation.

The search attains a schedule, so that the optimum is no worse. The lower bound is the optimum of a relaxation, so that
no schedule is better.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hdsim.errors import ConfigError, not_one_of
from hdsim.scheduling.agent import BACKFILLS
from hdsim.scheduling.rules import TAU
from hdsim.scheduling.search.play_outs import BOUNDED_SLOWDOWN, MEAN_COSTS, TURNAROUND_TIME, WAITING_TIME, mean_cost
from hdsim.simulation.compiled import interchangeable_cores
from hdsim.simulation.kernels.lists import ListedJobs, improve, least_busy_times, make_steps, schedule
from hdsim.simulation.simulation import simulate

if TYPE_CHECKING:
    from hdsim.platform.model import Platform
    from hdsim.util.arrays import Floats, Ints
    from hdsim.workload.model import Workload

#: Orders that are compared, whose schedules the search begins with.
ORDERS = ("fcfs", "sjf", "saf", "f1", "f2", "f3", "f4")
#: Moves of the search between two looks at the clock.
_MOVES = 500


@dataclass(frozen=True)
class Bound:
    """The bounds of a trace."""

    objective: str  # metric
    orders: dict[str, float]  # its value under each order
    attained: float  # its value in the best schedule that the search has found
    lower: float  # no schedule has a smaller value
    moves: int

    @property
    def best(self) -> str:
        """The best order."""
        return min(self.orders, key=self.orders.__getitem__)


def bound(
    platform: Platform,
    workload: Workload,
    *,
    objective: str = "mean_bounded_slowdown",
    backfill: str = "easy",
    orders: Sequence[str] = ORDERS,
    moves: int = 10_000,
    seconds: float | None = None,
    seed: int = 0,
) -> Bound:
    """Searches for the best schedule of jobs whose run times and submissions are all known, and bounds it.

    Args:
        platform: The platform.
        workload: The jobs.
        objective: ``mean_bounded_slowdown``, ``mean_waiting_time`` or ``mean_turnaround_time``.
        backfill: Rule of the orders that are compared. With ``none`` the search keeps to schedules without backfilling
            as well: jobs start in the order of its list.
        orders: Orders that are compared; the search begins with the schedule of the best one.
        moves: Moves of the search, unless `seconds` are given.
        seconds: Seconds of the search; the result then depends on the machine.
        seed: Seed of the search.

    Raises:
        ConfigError: A name is unknown, a number is too small, cores are not interchangeable or a job does not fit.
    """
    for key, name, allowed in (("objective", objective, MEAN_COSTS), ("backfill", backfill, BACKFILLS)):
        if name not in allowed:
            raise ConfigError(not_one_of(name, allowed), where=key)
    if moves < 0 or not (seconds is None or 0 <= seconds < math.inf):
        raise ConfigError(f"expected at least 0, got {moves if seconds is None else seconds:g}", where="bound")
    ranked = interchangeable_cores(platform, workload, "high_gflops")
    if ranked is None:
        raise ConfigError(
            "expected cores of one speed and rigid jobs that request nothing but cores, for which alone lists are "
            "scheduled",
            where="bound",
        )
    if (workload.requested_cores > len(ranked)).any():
        raise ConfigError(f"expected jobs of at most the {len(ranked):,} cores of {platform.name}", where="bound")
    results = {order: simulate(platform, workload, {"job_policy": order, "backfill": backfill}) for order in orders}
    scores = {order: float(result.metrics[objective]) for order, result in results.items()}
    best = min(scores, key=scores.__getitem__)
    first = np.argsort(results[best].jobs["starting_time"], kind="stable")
    jobs = ListedJobs(
        submission=workload.submission_time.copy(),
        runtime=workload.runtime.copy(),
        size=workload.requested_cores.copy(),
        cores=len(ranked),
        in_order=backfill == "none",
        objective=MEAN_COSTS[objective],
    )
    attained, done = _search(jobs, first, moves, seconds, seed)
    return Bound(objective, scores, min(attained, scores[best]), lower_bound(jobs), done)


def _search(jobs: ListedJobs, first: Ints, moves: int, seconds: float | None, seed: int) -> tuple[float, int]:
    """Returns the least mean cost that is found from a list on, and the number of moves."""
    rng, steps, count = np.random.default_rng(seed), make_steps(len(first)), len(first)
    start, finish = np.empty((2, count))
    order = first.copy()
    schedule(jobs, order, steps, start, finish)
    least = float(mean_cost(jobs.objective, jobs.submission, start, finish))
    begin, done = time.perf_counter(), 0
    while count > 1 and (done < moves if seconds is None else not done or time.perf_counter() - begin < seconds):
        number = _MOVES if seconds is not None else min(_MOVES, moves - done)
        least = improve(jobs, order, least, rng.random((number, 2)), steps)
        done += number
    return least, done


def lower_bound(jobs: ListedJobs) -> float:
    """Returns a mean cost that no schedule of jobs, in order of submission, is below.

    Let job j take n_j of m cores for r_j seconds from its start S_j on. One machine with the power of all cores that
    gives each running job n_j / m of itself serves j in the same time, with the mean busy time S_j + r_j / 2. The least
    weighted sum of mean busy times M_j on that machine, preemption allowed, thus bounds that of S_j + r_j / 2, and the
    sum of w_j (C_j - s_j), with the end C_j = S_j + r_j, is at least that of w_j (M_j + r_j / 2 - s_j).
    """
    runtime: Floats = jobs.runtime
    weight = np.ones(len(runtime))
    least = 0.0
    if jobs.objective == BOUNDED_SLOWDOWN:
        weight, least = 1 / np.maximum(runtime, TAU), 1.0
    elif jobs.objective == TURNAROUND_TIME:
        least = float(runtime.mean())
    turnaround = least_busy_times(jobs, weight) + runtime / 2 - jobs.submission
    if jobs.objective == WAITING_TIME:
        turnaround -= runtime
    return max(least, float((weight * turnaround).mean()))
