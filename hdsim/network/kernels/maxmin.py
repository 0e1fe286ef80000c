"""Max-min fair rates of flows on shared links; see :mod:`hdsim.network.kernels.sharing` for their arrays."""

from __future__ import annotations

import math
from typing import Any

from hdsim.kernels.compiling import lean_kernel
from hdsim.network.kernels.sharing import (
    CAPACITY,
    DATE,
    DATES,
    EVEN,
    FIRST,
    FLOW,
    HEAD,
    LEVEL,
    LIMIT,
    LINK,
    MEMBERS,
    MOVED,
    NEXT,
    PENDING,
    QUEUE,
    QUEUED,
    RATES,
    ROUGH_LINKS,
    ROUNDS,
    SAME,
    SECONDS,
    SOLUTION,
    SOLVED,
    TIGHT,
    TOP,
    UNEVEN,
    USAGE,
    USERS,
    WAITING,
    WANTED,
    Floats,
    Sharing,
    detach,
    enqueue,
    set_rate,
    wait,
)

#: Result of :func:`settle` if :func:`hdsim.network.kernels.components.solve_components` has to precede it.
UNPREPARED = -1

# Relative tolerance of sums against capacities, since sums are updated by additions and subtractions.
_SLACK = 1e-9


@lean_kernel
def settle(now: float, prepared: bool, *state: Any) -> int:
    """Updates all rates, and the dates of the transfers with changed rates.

    Returns:
        Number of new transfers and transfers of another date, which are in `Sharing`, or :data:`UNPREPARED`.
    """
    net = Sharing(*state)
    links, counts, items = net.links, net.counts, net.items
    if not prepared:
        counts[SOLUTION] += 1
        for i in range(counts[WAITING]):
            link = net.marks[(counts[HEAD] + i) % len(links), QUEUE]
            crowded = links[link, WANTED] > links[link, CAPACITY] * (1.0 + _SLACK)
            net.marks[link, TIGHT] = counts[ROUNDS] == 1 or crowded
        if counts[ROUNDS] + counts[UNEVEN] + counts[ROUGH_LINKS] > 0:
            return UNPREPARED
    _solve_levels(net)
    flow = items[RATES, PENDING]
    while flow != RATES:
        if items[flow, SOLVED] != counts[SOLUTION]:
            level = top = net.flows[flow, TOP]
            use = items[flow, FIRST]
            while use >= 0:
                level = min(level, links[net.uses[use, LINK], LEVEL])
                use = net.uses[use, NEXT]
            set_rate(net, flow, level * net.flows[flow, EVEN] if level < top else net.flows[flow, LIMIT], now)
        detach(items, PENDING, flow)
        flow = items[RATES, PENDING]
    return _announce(net, now)


@lean_kernel
def _announce(net: Sharing, now: float) -> int:
    """Updates the dates of transfers; returns the number of those that have changed."""
    flows, items = net.flows, net.items
    count = 0
    transfer = items[DATES, PENDING]
    while transfer != DATES:
        date, flow = math.inf, items[transfer, MEMBERS]
        if flow == transfer:
            date = now
        while flow != transfer:
            date = min(date, flows[flow, DATE])
            flow = items[flow, MEMBERS]
        if date != flows[transfer, DATE]:
            flows[transfer, DATE] = date
            items[count, MOVED], flows[count, SECONDS] = transfer, max(date - now, 0.0)
            count += 1
        detach(items, PENDING, transfer)
        transfer = items[DATES, PENDING]
    return count


@lean_kernel
def _solve_levels(net: Sharing) -> None:
    """Updates the levels of links until they agree, beginning with those that wait.

    A link divides its capacity among its flows, each limited by the levels of its other links; a changed level updates
    these. The lowest level is final after its first update, then the lowest of the rest, and so on, so that the result
    is max-min fair (Bertsekas and Gallager, Data Networks, 6.5.2; Charny, Clark and Jain, Congestion control with
    explicit rate indication, 1995).
    """
    links, marks, uses, counts = net.links, net.marks, net.uses, net.counts
    while counts[WAITING]:
        link = marks[counts[HEAD], QUEUE]
        counts[HEAD] = (counts[HEAD] + 1) % len(links)
        counts[WAITING] -= 1
        if not marks[link, QUEUED]:
            continue
        marks[link, QUEUED] = 0
        before = links[link, LEVEL]
        level = _level_of(net, link) if marks[link, TIGHT] else math.inf
        if level == before or abs(level - before) <= SAME * before < math.inf:
            continue
        links[link, LEVEL] = level
        lower = min(level, before)
        user = uses[link, USERS]
        while user != link:
            flow = uses[user, FLOW]
            user = uses[user, USERS]
            if net.items[flow, SOLVED] == counts[SOLUTION]:
                continue
            wait(net, RATES, flow)
            use = net.items[flow, FIRST]
            while use >= 0:
                other = uses[use, LINK]
                use = uses[use, NEXT]
                # A flow with a lower level elsewhere before and after does not depend on this one.
                above = links[other, LEVEL]
                if other != link and (
                    lower < above if above < math.inf else level > before and marks[other, TIGHT] == 1
                ):
                    enqueue(net, other)


@lean_kernel
def _level_of(net: Sharing, link: int) -> float:
    """Returns the level of a link for the current levels of all others."""
    links, uses, demands, claims = net.links, net.uses, net.scratch[0], net.scratch[1]
    count, user = 0, uses[link, USERS]
    while user != link:
        flow = uses[user, FLOW]
        demand = net.flows[flow, TOP]
        use = net.items[flow, FIRST]
        while use >= 0:
            if use != user:
                demand = min(demand, links[uses[use, LINK], LEVEL])
            use = uses[use, NEXT]
        demands[count], claims[count] = demand, net.amounts[user, USAGE] * net.flows[flow, EVEN]
        count += 1
        user = uses[user, USERS]
    return water_level(demands, claims, count, links[link, CAPACITY])


@lean_kernel
def water_level(demands: Floats, claims: Floats, count: int, capacity: float) -> float:
    """Returns the level f at which the sum of ``claims * min(demands, f)`` is `capacity`, inf if all demands fit.

    The first `count` demands and claims are used up.
    """
    width = wanted = 0.0
    lowest = math.inf
    for i in range(count):
        width += claims[i]
        wanted += claims[i] * demands[i]
        lowest = min(lowest, demands[i])
    if wanted <= capacity * (1.0 + SAME):
        return math.inf
    if lowest * width >= capacity:
        return capacity / width
    # Demands in ascending order come from a heap, since the first ones often suffice.
    for i in range(count // 2 - 1, -1, -1):
        _sink(demands, claims, i, count)
    while count:
        if demands[0] * width >= capacity:
            return capacity / width
        capacity -= demands[0] * claims[0]
        width -= claims[0]
        count -= 1
        demands[0], claims[0] = demands[count], claims[count]
        _sink(demands, claims, 0, count)
    # All demands fit except for rounding.
    return math.inf


@lean_kernel
def _sink(demands: Floats, claims: Floats, place: int, count: int) -> None:
    """Moves an entry of a heap down to its place; equal demands are in the order of their claims."""
    demand, claim = demands[place], claims[place]
    while 2 * place + 1 < count:
        below = 2 * place + 1
        other = below + 1
        if other < count and (
            demands[other] < demands[below] or (demands[other] == demands[below] and claims[other] < claims[below])
        ):
            below = other
        if demand < demands[below] or (demand == demands[below] and claim <= claims[below]):
            break
        demands[place], claims[place] = demands[below], claims[below]
        place = below
    demands[place], claims[place] = demand, claim
