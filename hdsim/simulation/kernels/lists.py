"""Schedules by lists of jobs whose run times are known, a local search over lists, and a relaxation without cores.

A list is scheduled job by job, each as early as the jobs before it leave it room: the serial scheme of resource
constrained project scheduling. For any cost that does not fall with later ends some list gives the optimum (Kolisch,
European J. Oper. Res. 90, 1996).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hdsim.kernels.compiling import kernel, lean_kernel
from hdsim.kernels.heap import Heap, pop, push
from hdsim.scheduling.search.play_outs import mean_cost

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class ListedJobs(NamedTuple):
    """Jobs of which all is known, J in number.

    Attributes:
        submission: (J,) seconds.
        runtime: (J,) seconds.
        size: (J,) cores.
        cores: Cores of the machine, at least those of each job.
        in_order: No job starts before one that is before it in the list.
        objective: See :func:`hdsim.scheduling.search.play_outs.mean_cost`.
    """

    submission: Floats
    runtime: Floats
    size: Ints
    cores: int
    in_order: bool
    objective: int


class Steps(NamedTuple):
    """Idle cores over time: ``idle[i]`` from ``date[i]`` to ``date[i + 1]``.

    Attributes:
        date: (2 J + 1,) seconds, ascending.
        idle: (2 J + 1,) cores.
    """

    date: Floats
    idle: Ints


def make_steps(jobs: int) -> Steps:
    """Returns space for a number of jobs."""
    return Steps(np.empty(2 * jobs + 1), np.empty(2 * jobs + 1, np.int64))


@lean_kernel
def place_before(date: Floats, count: int, when: float) -> int:
    """Returns the last of `count` steps that begins by a date."""
    low, high = 0, count
    while high - low > 1:
        middle = (low + high) // 2
        if date[middle] <= when:
            low = middle
        else:
            high = middle
    return low


@lean_kernel
def split(steps: Steps, place: int, count: int, when: float) -> int:
    """Lets a step begin at a date within step `place`, and returns the new number of steps."""
    date, idle = steps
    for i in range(count, place + 1, -1):
        date[i], idle[i] = date[i - 1], idle[i - 1]
    date[place + 1], idle[place + 1] = when, idle[place]
    return count + 1


@lean_kernel
def schedule(jobs: ListedJobs, order: Ints, steps: Steps, start: Floats, finish: Floats) -> None:
    """Fills the (J,) starts and finishes in seconds of a (J,) list."""
    date, idle = steps
    date[0], idle[0], count, earliest = -math.inf, jobs.cores, 1, -math.inf
    for job in order:
        size, runtime = jobs.size[job], jobs.runtime[job]
        begin = max(jobs.submission[job], earliest)
        first = behind = place_before(date, count, begin)
        while behind < count and (behind == first or date[behind] < begin + runtime):
            behind += 1
            if idle[behind - 1] < size:
                # All cores are idle in the last step.
                first, begin = behind, date[behind]
        end = begin + runtime
        start[job], finish[job] = begin, end
        if jobs.in_order:
            earliest = begin
        if end > begin:
            if date[first] < begin:
                count = split(steps, first, count, begin)
                first += 1
            while first < count and date[first] < end:
                if first + 1 == count or date[first + 1] > end:
                    count = split(steps, first, count, end)
                idle[first] -= size
                first += 1


@kernel
def improve(jobs: ListedJobs, order: Ints, cost: float, draws: Floats, steps: Steps) -> float:
    """Moves jobs to other places of a list; a move that makes its schedule worse is undone.

    Args:
        jobs: The jobs.
        order: (J,) the list, which is changed.
        cost: Its mean cost.
        draws: (R, 2) random numbers below 1 for R moves.
        steps: Space for J jobs.

    Returns:
        The mean cost of the new list.
    """
    count = len(order)
    start, finish = np.empty(count), np.empty(count)
    for move in range(len(draws)):
        source = int(draws[move, 0] * count)
        # Distances of all magnitudes are equally probable, in both directions.
        side = 2 * draws[move, 1] - 1
        distance = int(count ** abs(side))
        target = min(max(source + (distance if side > 0 else -distance), 0), count - 1)
        if target == source:
            continue
        shift(order, source, target)
        schedule(jobs, order, steps, start, finish)
        new = mean_cost(jobs.objective, jobs.submission, start, finish)
        if new <= cost:
            cost = new
        else:
            shift(order, target, source)
    return cost


@lean_kernel
def shift(order: Ints, source: int, target: int) -> None:
    """Moves an entry to another place."""
    job, step = order[source], 1 if target > source else -1
    for place in range(source, target, step):
        order[place] = order[place + step]
    order[target] = job


@kernel
def least_busy_times(jobs: ListedJobs, weight: Floats) -> Floats:
    """Returns (J,) mean busy times in seconds whose weighted sum is the least without cores.

    One machine serves the submitted jobs with the power of all cores, preemptively, at each moment that of the greatest
    weight for each second of service (Goemans, Queyranne, Schulz, Skutella, Wang, SIAM J. Discrete Math. 15, 2002).

    Args:
        jobs: The jobs, in order of submission.
        weight: (J,) weights.
    """
    count = len(weight)
    service, busy = jobs.runtime * jobs.size / jobs.cores, np.zeros(count)
    left, heap = service.copy(), Heap(np.zeros(count), np.zeros(count, np.int64), np.zeros(1, np.int64))
    now, coming = 0.0, 0
    while coming < count or heap.length[0]:
        if not heap.length[0]:
            now = max(now, jobs.submission[coming])
        while coming < count and jobs.submission[coming] <= now:
            if service[coming] > 0:
                push(heap, -weight[coming] / service[coming], coming)
            else:
                busy[coming] = jobs.submission[coming]
            coming += 1
        if not heap.length[0]:
            continue
        job = heap.item[0]
        end = now + left[job]
        if coming < count and jobs.submission[coming] < end:
            end = jobs.submission[coming]
            left[job] -= end - now
        else:
            pop(heap)
        busy[job] += (end - now) * (end + now) / 2 / service[job]
        now = end
    return busy
