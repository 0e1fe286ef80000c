"""Jobs at several frequencies, the obvious program, written apart from hdsim.

`serve` is a queue of serial jobs on nodes of one core under a cap; `joules` adds up the cores one by one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple


class Point(NamedTuple):
    ghz: float
    watts: float


def stretched(bound: float, nominal: float, ghz: float) -> float:
    return bound * nominal / ghz + 1 - bound


def serve(
    arrivals: Sequence[float],
    runtimes: Sequence[float],
    bound: Sequence[float],
    nodes: int,
    points: Sequence[Point],
    *,
    nominal: float,
    idle: float,
    cap: float = math.inf,
    slows: bool = False,
    rises: bool = False,
) -> tuple[list[float], list[float], list[list[float]], float]:
    """Returns starts, ends and all GHz of jobs in order of their arrival, and the joules until the last end.

    With `slows` jobs start at the highest frequency within the cap; with `rises` they rise when none waits, in order of
    their starts.
    """
    allowed = [point for point in sorted(points, reverse=True) if point.ghz <= nominal]
    if not slows:
        allowed = [point for point in allowed if point.ghz == nominal]
    starts, ends = ([math.nan] * len(arrivals) for _ in range(2))
    ghz: list[list[float]] = [[] for _ in arrivals]
    running: dict[int, Point] = {}
    now = energy = 0.0
    coming, queue = 0, []
    while coming < len(arrivals) or queue or running:
        dates = [ends[job] for job in running] + ([arrivals[coming]] if coming < len(arrivals) else [])
        if not dates:
            raise AssertionError("a job never starts")
        then = min(dates)
        energy += (then - now) * (sum(point.watts for point in running.values()) + idle * (nodes - len(running)))
        now = then
        running = {job: point for job, point in running.items() if ends[job] != now}
        while coming < len(arrivals) and arrivals[coming] == now:
            queue.append(coming)
            coming += 1
        while queue and len(running) < nodes:
            others = sum(point.watts for point in running.values()) + idle * (nodes - len(running) - 1)
            point = next((point for point in allowed if others + point.watts <= cap * (1 + 1e-12)), None)
            if point is None:
                break
            job = queue.pop(0)
            starts[job], running[job] = now, point
            ghz[job].append(point.ghz)
            ends[job] = now + runtimes[job] * stretched(bound[job], nominal, point.ghz)
        for job, before in running.items():
            others = sum(point.watts for point in running.values()) - before.watts + idle * (nodes - len(running))
            faster = [point for point in allowed if point.ghz > before.ghz and others + point.watts <= cap]
            if rises and not queue and starts[job] < now and faster:
                ratio = stretched(bound[job], nominal, faster[0].ghz) / stretched(bound[job], nominal, before.ghz)
                running[job], ends[job] = faster[0], now + (ends[job] - now) * ratio
                ghz[job].append(faster[0].ghz)
    return starts, ends, ghz, energy


def joules(
    cores: Sequence[Sequence[int]],
    nominal: Sequence[float],
    held: Sequence[tuple[float, float, Sequence[int], float]],
    watts_at: Sequence[dict[float, float]],
    until: float,
) -> float:
    """Returns the energy of all cores until a time, in J.

    Args:
        cores: Core ids of each processor.
        nominal: W of a computing core of each processor at the nominal frequency.
        held: Begin, end, cores and GHz of each time in which a job held cores.
        watts_at: W of a computing core of each processor by GHz.
        until: The time in seconds.
    """
    dates = sorted({0.0, until, *(date for begin, end, _, _ in held for date in (begin, end))})
    total = 0.0
    for begin, end in pairwise(dates):
        at = {core: ghz for first, last, ids, ghz in held if first <= begin and end <= last for core in ids}
        for ids, full, by_ghz in zip(cores, nominal, watts_at, strict=True):
            busy = [core for core in ids if core in at]
            total += (end - begin) * sum(by_ghz[at[core]] for core in busy)
            total += (end - begin) * (len(ids) - len(busy)) * full * (0.25 if busy else 0.05)
    return total
