"""A minimal event loop around a network model, in the place of the engine."""

from __future__ import annotations

import math
from heapq import heappop, heappush


def replay(network, starts):
    """Runs transfers to their ends.

    Args:
        network: A network model.
        starts: (date, call) pairs; each call gets the date, starts, changes or ends a transfer, and returns the key of
            one that it ended.

    Returns:
        Date of the end of each transfer, by key.
    """
    starts = sorted(starts, key=lambda start: start[0])
    due, ends, alarms = {}, {}, []
    serial = upcoming = 0
    now = 0.0
    while upcoming < len(starts) or alarms:
        now = min(alarms[0][0] if alarms else math.inf, starts[upcoming][0] if upcoming < len(starts) else math.inf)
        while alarms and alarms[0][0] == now:
            _, number, key = heappop(alarms)
            if due.get(key) == number and network.advance(key, now):
                ends[key] = now
                del due[key]
        while upcoming < len(starts) and starts[upcoming][0] == now:
            due.pop(starts[upcoming][1](now), None)
            upcoming += 1
        for key, seconds in network.settle(now):
            serial += 1
            due[key] = serial
            heappush(alarms, (now + seconds, serial, key))
    return ends
