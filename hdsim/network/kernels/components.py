"""Rates of connected flows that levels alone do not give: tasks of uneven usage, and SimGrid's default rule."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hdsim.kernels.compiling import kernel, lean_kernel
from hdsim.network.kernels.maxmin import water_level
from hdsim.network.kernels.sharing import (
    BOUND,
    CAPACITY,
    EVEN,
    FIRST,
    FLOW,
    HEAD,
    KNOWN,
    LIMIT,
    LINK,
    NEXT,
    PENDING,
    QUEUE,
    QUEUED,
    RATES,
    ROUGH,
    ROUGH_LINKS,
    ROUNDS,
    SAME,
    SEEN,
    SLOPE,
    SOLUTION,
    SOLVED,
    TIGHT,
    USAGE,
    USERS,
    WAITING,
    Floats,
    Ints,
    Sharing,
    enqueue,
    set_rate,
    wait,
)

# Relative tolerance of sums against capacities.
_SLACK = 1e-9
# Upper limit for the sweeps over the levels of a component, which takes few sweeps.
_SWEEPS = 200


@kernel
def solve_components(now: float, *state: Any) -> None:
    """Updates the rates of the components of changes that levels cannot solve, and leaves the others to `settle`."""
    net = Sharing(*state)
    links, items, counts = net.marks, net.items, net.counts
    found, known, waiting = np.empty(len(items), np.int64), np.empty(len(links), np.int64), counts[WAITING]
    for i in range(waiting):
        link = links[(counts[HEAD] + i) % len(links), QUEUE]
        if links[link, ROUGH] and not links[link, TIGHT]:
            links[link, ROUGH] = 0
            counts[ROUGH_LINKS] -= 1
    flow = items[RATES, PENDING]
    while flow != RATES:
        _solve_component(net, flow, now, found, known)
        flow = items[flow, PENDING]
    for i in range(waiting):
        link = links[(counts[HEAD] + i) % len(links), QUEUE]
        user = net.uses[link, USERS]
        while user != link:
            _solve_component(net, net.uses[user, FLOW], now, found, known)
            user = net.uses[user, USERS]


@kernel
def _solve_component(net: Sharing, seed: int, now: float, found: Ints, known: Ints) -> None:
    """Solves the component of a flow, if it is new; `found` and `known` are scratch for its flows and links."""
    marks, items, uses, counts = net.marks, net.items, net.uses, net.counts
    if items[seed, SEEN] == counts[SOLUTION]:
        return
    items[seed, SEEN], found[0] = counts[SOLUTION], seed
    flows, links = 1, _add_links(net, seed, known, 0)
    even = net.flows[seed, EVEN] != 0.0
    i = 0
    while i < links:
        user = uses[known[i], USERS]
        while user != known[i]:
            flow = uses[user, FLOW]
            if items[flow, SEEN] != counts[SOLUTION]:
                items[flow, SEEN], found[flows] = counts[SOLUTION], flow
                flows += 1
                links = _add_links(net, flow, known, links)
                even = even and net.flows[flow, EVEN] != 0.0
            user = uses[user, USERS]
        i += 1
    rounds = counts[ROUNDS] == 1 and links > 0
    if even and not rounds:
        for i in range(flows):
            wait(net, RATES, found[i])
    for i in range(links if not rounds else 0):
        if marks[known[i], ROUGH] and even:
            enqueue(net, known[i])
        counts[ROUGH_LINKS] += int(not even) - marks[known[i], ROUGH]
        marks[known[i], ROUGH] = not even
    if even and not rounds:
        return
    rates = _climb(net, found[:flows], known[:links]) if rounds else _balance(net, found[:flows], known[:links])
    for i in range(links):
        marks[known[i], QUEUED] = 0
    for i in range(flows):
        items[found[i], SOLVED] = counts[SOLUTION]
        set_rate(net, found[i], rates[i], now)


@lean_kernel
def _add_links(net: Sharing, flow: int, known: Ints, count: int) -> int:
    """Appends the new ones of the saturated links of a flow to `count` known ones; returns their number."""
    use = net.items[flow, FIRST]
    while use >= 0:
        link = net.uses[use, LINK]
        if net.marks[link, TIGHT] and net.marks[link, KNOWN] != net.counts[SOLUTION]:
            net.marks[link, KNOWN], known[count] = net.counts[SOLUTION], link
            count += 1
        use = net.uses[use, NEXT]
    return count


@kernel
def _climb(net: Sharing, members: Ints, saturated: Ints) -> Floats:
    """Returns the rates of flows under SimGrid's default rule for parallel tasks, ``fairbottleneck``.

    In each round, a link offers its remaining capacity in equal parts to its active claims, and each flow increases its
    rate by the minimum of its offers. A saturated link stops its flows. As in SimGrid, the last increase of a stopped
    flow is counted again in later rounds, which leaves some links partly idle.
    """
    uses, amounts = net.uses, net.amounts
    rates, steps, active = np.empty(len(net.items)), np.empty(len(net.items)), np.empty(len(net.items), np.bool_)
    left, width = np.empty(len(net.links)), np.empty(len(net.links))
    for flow in members:
        rates[flow], active[flow] = 0.0, True
    for link in saturated:
        left[link] = net.links[link, CAPACITY]
    remaining = len(members)
    while remaining:
        for link in saturated:
            width[link] = 0.0
        for flow in members:
            use = net.items[flow, FIRST] if active[flow] else -1
            while use >= 0:
                width[uses[use, LINK]] += amounts[use, USAGE] * amounts[use, SLOPE]
                use = uses[use, NEXT]
        for flow in members:
            if active[flow]:
                headroom = net.flows[flow, BOUND] - rates[flow]
                step, use = headroom, net.items[flow, FIRST]
                while use >= 0:
                    step = min(step, left[uses[use, LINK]] / width[uses[use, LINK]] * amounts[use, SLOPE])
                    use = uses[use, NEXT]
                steps[flow] = step
                rates[flow] += step
                active[flow] = step < headroom * (1.0 - SAME)
        for link in saturated:
            used, user = 0.0, uses[link, USERS]
            while user != link and width[link]:
                used += amounts[user, USAGE] * steps[uses[user, FLOW]]
                user = uses[user, USERS]
            left[link] -= used
            user = uses[link, USERS]
            while user != link and left[link] <= SAME * net.links[link, CAPACITY]:
                active[uses[user, FLOW]] = False
                user = uses[user, USERS]
        remaining = 0
        for flow in members:
            remaining += active[flow]
    for i in range(len(members)):
        steps[i] = rates[members[i]]
    return steps


@kernel
def _balance(net: Sharing, members: Ints, saturated: Ints) -> Floats:
    """Returns the bottleneck max fair rates of flows of different slopes per link.

    Each level in turn is set to saturate its link. Once the resulting bottlenecks are correct, a linear system gives
    the exact levels.
    """
    uses, amounts, links = net.uses, net.amounts, net.links
    level, used = np.empty(len(links)), np.empty(len(links))
    level[:] = math.inf
    for link in saturated:
        # Lower bounds of the levels: an equal part for each claim.
        width, user = 0.0, uses[link, USERS]
        while user != link:
            width += amounts[user, USAGE] * amounts[user, SLOPE]
            user = uses[user, USERS]
        level[link] = links[link, CAPACITY] / width
    demands, claims, rates = np.empty(len(members)), np.empty(len(members)), np.empty(len(members))
    excess = 0.0
    for sweep in range(_SWEEPS + 1):
        exact = level
        if sweep < _SWEEPS:
            for link in saturated:
                level[link] = _uneven_level(net, link, level, demands, claims)
            exact = _exact_levels(net, members, saturated, level)
        used[:], excess, same = 0.0, 0.0, True
        for i in range(len(members)):
            promised = _rate(net, members[i], _bottleneck(net, members[i], level), exact)
            rates[i] = _rate(net, members[i], _bottleneck(net, members[i], exact), exact)
            same = same and promised > 0.0 and abs(rates[i] - promised) <= SAME * promised
            use = net.items[members[i], FIRST]
            while use >= 0:
                link = uses[use, LINK]
                used[link] += rates[i] * amounts[use, USAGE]
                excess = max(excess, used[link] / links[link, CAPACITY])
                use = uses[use, NEXT]
        if sweep < _SWEEPS and same and excess <= 1.0 + _SLACK:
            return rates
    for i in range(len(members)):
        rates[i] /= max(1.0, excess)
    return rates


@lean_kernel
def _uneven_level(net: Sharing, link: int, level: Floats, demands: Floats, claims: Floats) -> float:
    """Returns the level of a link for the levels of all others; `demands` and `claims` are scratch."""
    uses, amounts = net.uses, net.amounts
    count, user = 0, uses[link, USERS]
    while user != link:
        rate, use = net.flows[uses[user, FLOW], LIMIT], net.items[uses[user, FLOW], FIRST]
        while use >= 0:
            if use != user:
                rate = min(rate, amounts[use, SLOPE] * level[uses[use, LINK]])
            use = uses[use, NEXT]
        demands[count] = rate / amounts[user, SLOPE]
        claims[count] = amounts[user, USAGE] * amounts[user, SLOPE]
        count += 1
        user = uses[user, USERS]
    return water_level(demands, claims, count, net.links[link, CAPACITY])


@lean_kernel
def _bottleneck(net: Sharing, flow: int, level: Floats) -> int:
    """Returns the use that limits a flow, -1 if its own limit does."""
    rate, limiting, use = net.flows[flow, LIMIT], -1, net.items[flow, FIRST]
    while use >= 0:
        if net.amounts[use, SLOPE] * level[net.uses[use, LINK]] < rate:
            rate, limiting = net.amounts[use, SLOPE] * level[net.uses[use, LINK]], use
        use = net.uses[use, NEXT]
    return limiting


@lean_kernel
def _rate(net: Sharing, flow: int, limiting: int, level: Floats) -> float:
    """Returns the rate of a flow that a use limits, see :func:`_bottleneck`."""
    if limiting < 0:
        return net.flows[flow, LIMIT]
    return net.amounts[limiting, SLOPE] * level[net.uses[limiting, LINK]]


@kernel
def _exact_levels(net: Sharing, members: Ints, saturated: Ints, level: Floats) -> Floats:
    """Returns the (L,) levels at which the bottlenecks of approximate levels are saturated, inf for other links.

    Gaussian elimination with partial pivoting solves the linear system; all levels are 0 if it is singular.
    """
    uses, amounts = net.uses, net.amounts
    column, exact = np.empty(len(level), np.int64), np.empty(len(level))
    column[:], exact[:] = -1, math.inf
    for flow in members:
        limiting = _bottleneck(net, flow, level)
        if limiting >= 0:
            column[uses[limiting, LINK]] = 0
    size = 0
    for link in saturated:
        if column[link] == 0:
            column[link] = size
            size += 1
    # The last column is the right side.
    matrix = np.zeros((size, size + 1))
    for link in saturated:
        if column[link] >= 0:
            matrix[column[link], size] = net.links[link, CAPACITY]
    for flow in members:
        limiting, use = _bottleneck(net, flow, level), net.items[flow, FIRST]
        while use >= 0:
            row = column[uses[use, LINK]]
            if row >= 0 and limiting >= 0:
                matrix[row, column[uses[limiting, LINK]]] += amounts[use, USAGE] * amounts[limiting, SLOPE]
            elif row >= 0:
                matrix[row, size] -= net.flows[flow, LIMIT] * amounts[use, USAGE]
            use = uses[use, NEXT]
    for k in range(size):
        pivot = k
        for row in range(k + 1, size):
            if abs(matrix[row, k]) > abs(matrix[pivot, k]):
                pivot = row
        if matrix[pivot, k] == 0.0:
            exact[:] = 0.0
            return exact
        for j in range(k, size + 1):
            matrix[k, j], matrix[pivot, j] = matrix[pivot, j], matrix[k, j]
        for row in range(k + 1, size):
            factor = matrix[row, k] / matrix[k, k]
            for j in range(k + 1, size + 1):
                matrix[row, j] -= factor * matrix[k, j]
    for k in range(size - 1, -1, -1):
        for j in range(k + 1, size):
            matrix[k, size] -= matrix[k, j] * matrix[j, size]
        matrix[k, size] /= matrix[k, k]
    for link in saturated:
        if column[link] >= 0:
            exact[link] = matrix[column[link], size]
    return exact
