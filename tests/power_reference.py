"""Serial jobs in order of their arrival on nodes of one core that sleep: the obvious program, written apart from hdsim.

It steps from event to event, and looks at everything at each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass
class Node:
    state: str = "up"
    until: float = math.inf  # end of going down or booting
    idle_since: float = 0.0  # NaN while a job holds it
    job: int = -1
    end: float = math.inf  # of its job, once that runs


def replay(
    arrivals: list[float],
    runtimes: list[float],
    nodes: int,
    *,
    timeout: float,
    down: float,
    boot: float,
    watts: dict[str, float],
) -> tuple[list[float], float]:
    """Returns the start of each job and the joules until the last end.

    `timeout` is the time-out of idle nodes, `down` and `boot` the seconds of their changes, `watts` the power of a node
    that is busy, idle, down (going down), off or boot (booting).
    """
    machine = [Node() for _ in range(nodes)]
    starts = [math.nan] * len(arrivals)
    queue: list[int] = []
    now = joules = 0.0
    coming, ended = 0, 0

    def power(node: Node) -> float:
        if node.state == "up":
            return watts["busy"] if node.end < math.inf else watts["idle"]
        return watts[node.state]

    while ended < len(arrivals):
        dates = [arrivals[coming]] if coming < len(arrivals) else []
        for node in machine:
            dates += [node.end, node.until]
            if node.state == "up" and node.job < 0:
                dates.append(node.idle_since + timeout)
        soonest = min(dates)
        joules += (soonest - now) * sum(power(node) for node in machine)
        now = soonest
        for node in machine:  # ends
            if node.end == now:
                node.end, node.job, node.idle_since = math.inf, -1, now
                ended += 1
        for node in machine:  # changes
            if node.until == now:
                if node.state == "down" and node.job < 0:
                    node.state, node.until = "off", math.inf
                elif node.state == "down":
                    node.state, node.until = "boot", now + boot
                else:
                    node.state, node.until = "up", math.inf
                    starts[node.job], node.end = now, now + runtimes[node.job]
            elif node.state == "up" and node.job < 0 and node.idle_since + timeout == now:
                node.state, node.until = "down", now + down
        while coming < len(arrivals) and arrivals[coming] == now:
            queue.append(coming)
            coming += 1
        order = ("up", "off", "down")
        while queue:
            free = [node for node in machine if node.job < 0]
            if not free:
                break
            node = min(free, key=lambda each: order.index(each.state))
            job = node.job = queue.pop(0)
            node.idle_since = math.nan
            if node.state == "up":
                starts[job], node.end = now, now + runtimes[job]
            elif node.state == "off":
                node.state, node.until = "boot", now + boot
    return starts, joules


def capped(
    arrivals: list[float],
    runtimes: list[float],
    requested: list[float],
    nodes: int,
    *,
    busy: float,
    idle: float,
    steps: list[tuple[float, float]],
) -> list[float]:
    """Returns the starts of serial jobs in order of their arrival under a hard cap, all times being whole seconds.

    A job starts once a node is free and, at every second of its requested time, the power of all nodes is within the
    limit, if those that run end at their requested times. `steps` are (time, watts) of the limit, from 0 on.
    """
    starts = [math.nan] * len(arrivals)
    running: dict[int, tuple[float, float]] = {}  # end, expected end
    now, following = arrivals[0], 0
    last = sum(arrivals[-1:]) + sum(runtimes) + sum(requested) + max(time for time, _ in steps)

    def limit(time: float) -> float:
        return next(watts for begin, watts in reversed(steps) if begin <= time)

    def fits(job: int) -> bool:
        time = now
        while time < now + requested[job]:
            others = sum(expected > time or expected <= now for _, expected in running.values())
            if (others + 1) * busy + (nodes - others - 1) * idle > limit(time) + 1e-9:
                return False
            time += 1
        return True

    while following < len(arrivals) and now <= last:
        for job in [job for job, (end, _) in running.items() if end <= now]:
            del running[job]
        while following < len(arrivals) and arrivals[following] <= now and len(running) < nodes and fits(following):
            starts[following] = now
            running[following] = now + runtimes[following], now + requested[following]
            following += 1
        now += 1
    return starts
