"""Starts and ends of transfers on shared links; see :mod:`hdsim.network.kernels.sharing` for their arrays.

The last arguments of each are the arrays of :class:`Sharing` one by one: tuples take longer to hand over.
"""

from __future__ import annotations

import math
from typing import Any

from hdsim.kernels.compiling import lean_kernel
from hdsim.network.kernels.sharing import (
    BOUND,
    CAPACITY,
    DATE,
    DATES,
    EVEN,
    FIRST,
    FLOW,
    FLOWING,
    FREE_ITEM,
    FREE_ITEMS,
    FREE_USE,
    FREE_USES,
    LEFT,
    LIMIT,
    LINK,
    LOAD,
    MEMBERS,
    NEXT,
    PEAK,
    PENDING,
    RATE,
    RATES,
    SCRATCH,
    SINCE,
    SLOPE,
    STREAM,
    TOP,
    TRANSFER,
    UNEVEN,
    USAGE,
    USERS,
    WANTED,
    Floats,
    Ints,
    Sharing,
    Streams,
    append,
    detach,
    enqueue,
    wait,
)


@lean_kernel
def uncontended_time(*arrays: Any) -> float:
    """Returns the duration of streams on otherwise idle links in seconds, NaN if their rates change on the way.

    The streams precede the links. Equal messages that start together: those on the most loaded link relative to its
    capacity have the lowest rate until their common end, which is the end of all.
    """
    streams, links = Streams(*arrays[:8]), arrays[8]
    longest, slowest, same, flowing = 0.0, 0.0, True, -1
    for stream in range(len(streams.amount)):
        amount, latency = streams.amount[stream], streams.latency[stream]
        longest = max(longest, latency)
        if amount > 0.0 and streams.first[stream] < streams.first[stream + 1]:
            if flowing < 0:
                flowing = stream
            same = same and amount == streams.amount[flowing] and latency == streams.latency[flowing]
            for k in range(streams.first[stream], streams.first[stream + 1]):
                links[streams.link[k], SCRATCH] += streams.usage[k]
    for link in streams.link:
        slowest = max(slowest, links[link, SCRATCH] / links[link, CAPACITY])
        links[link, SCRATCH] = 0.0
    if not same:
        return math.nan
    return max(streams.latency[flowing] + streams.amount[flowing] * slowest, longest) if flowing >= 0 else longest


@lean_kernel
def _new_item(net: Sharing) -> int:
    """Takes a free item, without uses and in no ring."""
    items, item = net.items, net.counts[FREE_ITEM]
    items[item, FIRST] = -1
    net.counts[FREE_ITEM] = items[item, MEMBERS]
    net.counts[FREE_ITEMS] -= 1
    for ring in (MEMBERS, PENDING):
        items[item, ring] = items[item, ring + 1] = item
    return item


@lean_kernel
def _free(net: Sharing, item: int) -> None:
    """Gives back an item with its uses."""
    items, uses, counts = net.items, net.uses, net.counts
    use = items[item, FIRST]
    while use >= 0:
        after = uses[use, NEXT]
        uses[use, NEXT], counts[FREE_USE] = counts[FREE_USE], use
        counts[FREE_USES] += 1
        use = after
    detach(items, PENDING, item)
    detach(items, MEMBERS, item)
    items[item, MEMBERS], counts[FREE_ITEM] = counts[FREE_ITEM], item
    counts[FREE_ITEMS] += 1


@lean_kernel
def add(now: float, begin: float, bound: float, announced: float, chosen: Ints, left: Floats, *arrays: Any) -> int:
    """Adds a transfer of streams, which precede the arrays of the links.

    Args:
        now: Date in seconds.
        begin: Date of the start of the streams.
        bound: Maximum rate of each flow.
        announced: Date of the next step that the caller knows, NaN for none.
        chosen: (F,) the streams that are not over.
        left: (F,) their remaining amounts.
        arrays: Those of :class:`Streams` and of :class:`Sharing`.

    Returns:
        The transfer, -1 if there is no room for it.
    """
    streams, net = Streams(*arrays[:8]), Sharing(*arrays[8:])
    flows, items, uses, counts = net.flows, net.items, net.uses, net.counts
    if counts[FREE_ITEMS] <= len(chosen) or counts[FREE_USES] < len(streams.link):
        return -1
    transfer = _new_item(net)
    flows[transfer, DATE], flows[transfer, BOUND] = announced, bound
    for i in range(len(chosen)):
        flow, stream = _new_item(net), chosen[i]
        items[flow, TRANSFER], items[flow, STREAM], items[flow, FLOWING] = transfer, stream, 0
        flows[flow, LEFT], flows[flow, DATE] = max(left[i], 0.0), begin + streams.latency[stream]
        flows[flow, PEAK], flows[flow, EVEN] = streams.peak[stream], streams.even[stream]
        for k in range(streams.first[stream + 1] - 1, streams.first[stream] - 1, -1):
            use = counts[FREE_USE]
            counts[FREE_USE], uses[use, NEXT], items[flow, FIRST] = uses[use, NEXT], items[flow, FIRST], use
            uses[use, FLOW], uses[use, LINK] = flow, streams.link[k]
            net.amounts[use, USAGE], net.amounts[use, SLOPE] = streams.usage[k], streams.slope[k]
        counts[FREE_USES] -= streams.first[stream + 1] - streams.first[stream]
        append(items, MEMBERS, transfer, flow)
    wait(net, DATES, transfer)
    _begin(net, transfer, now, now)
    return transfer


@lean_kernel
def _begin(net: Sharing, transfer: int, date: float, now: float) -> None:
    """Starts the flows whose latency ends by `date`; flows without limit are complete at once."""
    flows, items, uses = net.flows, net.items, net.uses
    bound = flows[transfer, BOUND]
    flow = items[transfer, MEMBERS]
    while flow != transfer and not items[flow, FLOWING]:
        after = items[flow, MEMBERS]
        if flows[flow, DATE] > date:
            pass
        elif flows[flow, LEFT] and (items[flow, FIRST] >= 0 or bound < math.inf):
            detach(items, MEMBERS, flow)
            append(items, MEMBERS, transfer, flow)
            items[flow, FLOWING] = 1
            flows[flow, RATE], flows[flow, SINCE], flows[flow, DATE], flows[flow, LIMIT] = 0.0, now, math.inf, 0.0
            use = items[flow, FIRST]
            while use >= 0:
                append(uses, USERS, uses[use, LINK], use)
                use = uses[use, NEXT]
            _bind(net, flow, bound)
            if flows[flow, EVEN] == 0.0:
                net.counts[UNEVEN] += 1
        else:
            _free(net, flow)
        flow = after


@lean_kernel
def _bind(net: Sharing, flow: int, bound: float) -> None:
    """Changes the maximum rate of a flow, whose limit is 0 at its begin."""
    flows, uses = net.flows, net.uses
    before, limit, slope = flows[flow, LIMIT], min(bound, flows[flow, PEAK]), flows[flow, EVEN]
    flows[flow, BOUND], flows[flow, LIMIT] = bound, limit
    flows[flow, TOP] = limit / slope if slope else math.inf
    use = net.items[flow, FIRST]
    while use >= 0:
        link = uses[use, LINK]
        net.links[link, WANTED] += net.amounts[use, USAGE] * (limit - before)
        enqueue(net, link)
        use = uses[use, NEXT]
    wait(net, RATES, flow)


@lean_kernel
def _remove_flow(net: Sharing, flow: int) -> None:
    links, uses, flows = net.links, net.uses, net.flows
    use = net.items[flow, FIRST]
    while use >= 0 and net.items[flow, FLOWING]:
        link, usage = uses[use, LINK], net.amounts[use, USAGE]
        detach(uses, USERS, use)
        enqueue(net, link)
        if uses[link, USERS] == link:
            # Removes the rounding errors of additions and subtractions.
            links[link, WANTED] = links[link, LOAD] = 0.0
        else:
            links[link, WANTED] -= usage * flows[flow, LIMIT]
            links[link, LOAD] -= usage * flows[flow, RATE]
        use = uses[use, NEXT]
    if net.items[flow, FLOWING] and flows[flow, EVEN] == 0.0:
        net.counts[UNEVEN] -= 1
    _free(net, flow)


@lean_kernel
def remove(transfer: int, *state: Any) -> None:
    """Removes a transfer."""
    net = Sharing(*state)
    while net.items[transfer, MEMBERS] != transfer:
        _remove_flow(net, net.items[transfer, MEMBERS])
    _free(net, transfer)


@lean_kernel
def set_bound(transfer: int, bound: float, *state: Any) -> None:
    """Changes the maximum rate of all flows of a transfer."""
    net = Sharing(*state)
    net.flows[transfer, BOUND] = bound
    flow = net.items[transfer, MEMBERS]
    while flow != transfer:
        if net.items[flow, FLOWING]:
            _bind(net, flow, bound)
        flow = net.items[flow, MEMBERS]


@lean_kernel
def advance(transfer: int, now: float, *state: Any) -> bool:
    """Continues a transfer at its announced date; True if it is complete, which removes it."""
    net = Sharing(*state)
    flows, items = net.flows, net.items
    # The clock of the caller may have rounded the announced date down.
    date = flows[transfer, DATE] if flows[transfer, DATE] > now else now
    flow = items[transfer, MEMBERS]
    while flow != transfer:
        after = items[flow, MEMBERS]
        if items[flow, FLOWING] and flows[flow, DATE] <= date:
            _remove_flow(net, flow)
        flow = after
    _begin(net, transfer, date, now)
    if items[transfer, MEMBERS] == transfer:
        _free(net, transfer)
        return True
    # The next date is announced even if it is equal to this one.
    flows[transfer, DATE] = math.nan
    wait(net, DATES, transfer)
    return False


@lean_kernel
def states(transfer: int, now: float, chosen: Ints, left: Floats, rate: Floats, *state: Any) -> int:
    """Gives the unfinished streams of a transfer, flowing ones first, their amounts and rates; returns their number."""
    net = Sharing(*state)
    count = 0
    for flowing in (1, 0):
        flow = net.items[transfer, MEMBERS]
        while flow != transfer:
            if net.items[flow, FLOWING] == flowing:
                chosen[count], left[count], rate[count] = net.items[flow, STREAM], net.flows[flow, LEFT], 0.0
                if flowing:
                    rate[count] = net.flows[flow, RATE]
                    left[count] -= rate[count] * (now - net.flows[flow, SINCE])
                count += 1
            flow = net.items[flow, MEMBERS]
    return count
