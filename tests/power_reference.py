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
