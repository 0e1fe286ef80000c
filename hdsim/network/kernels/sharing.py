"""Links and the flows that share them, in flat arrays.

A transfer and its flows are rows of one table, the uses of links are rows of another. Rings of rows keep the order of
insertion: the users of a link, the flows of a transfer (those before the end of their latency first), the flows that
wait for a rate, and the transfers that wait for a date.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hdsim.kernels.compiling import lean_kernel

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Columns of `links`. The level of a link is the maximum usage by a claim of share 1, inf if the link is not saturated.
CAPACITY, LOAD = 0, 1
#: Usage if all flows had their limits. If it fits, the link does not connect its flows.
WANTED = 2
LEVEL, SCRATCH = 3, 4

# Columns of `marks`, integers of links. A tight link connects its flows; the level of a rough one is not known, because
# of flows of different slopes; a queued one waits for a new level.
TIGHT, ROUGH, QUEUED = 0, 1, 2
#: Last solution in which the link was in a component.
KNOWN = 3
#: Rows of the circular queue of links that wait, independent of the link of this row.
QUEUE = 4

# Columns of `uses`: flow, link, next use of the flow or next free row, ring of the users of a link, with the row of the
# link as head.
FLOW, LINK, NEXT, USERS = 0, 1, 2, 3
# Columns of `amounts`: usage at rate 1; slope, which is the rate per level of the link.
USAGE, SLOPE = 0, 1

# Columns of `flows`: the amount left at a date, and the rate since then.
LEFT, RATE, SINCE = 0, 1, 2
#: End of the latency, then end of the flow; of a transfer, the announced date of its next step, NaN for none.
DATE = 3
# Maximum rate for other reasons than links, and on otherwise idle links; the lower of these, and its level.
BOUND, PEAK, LIMIT, TOP = 4, 5, 6, 7
#: Common slope of the uses, 0 if they differ, 1 without uses.
EVEN = 8
#: Seconds until the next step of the moved transfers, independent of the item of this row.
SECONDS = 9

# Columns of `items`, integers of transfers and flows: transfer, stream, first use; whether the latency is over.
TRANSFER, STREAM, FIRST, FLOWING = 0, 1, 2, 3
# Last solution in which the flow was in a component, and last one in which levels did not give its rate.
SEEN, SOLVED = 4, 5
#: The moved transfers, independent of the item of this row.
MOVED = 6
# Rings: flows of a transfer, or next free row; what waits in one of the first two rows.
MEMBERS, PENDING = 7, 9
#: Heads of the rings of flows that wait for a rate and of transfers that wait for a date.
RATES, DATES = 0, 1

# Entries of `counts`: number of the solution, free rows (the first and their number), queue (its begin and length).
SOLUTION, FREE_ITEM, FREE_ITEMS, FREE_USE, FREE_USES, HEAD, WAITING = range(7)
#: Number of flows of different slopes, number of rough links, 1 for SimGrid's default rule for parallel tasks.
UNEVEN, ROUGH_LINKS, ROUNDS = 7, 8, 9

# Relative tolerance of rates, which depend on the order of additions.
SAME = 1e-12


class Streams(NamedTuple):
    """S flows that start together and their U uses of links, flow after flow.

    Attributes:
        amount: (S,) amount to transfer, such as bytes.
        latency: (S,) seconds before it flows.
        peak: (S,) rate on otherwise idle links.
        even: (S,) common slope of the uses, 0 if they differ, 1 without uses.
        first: (S + 1,) first use of each stream.
        link: (U,) link of each use.
        usage: (U,) usage of the link at rate 1, above 0.
        slope: (U,) rate per level of the link.
    """

    amount: Floats
    latency: Floats
    peak: Floats
    even: Floats
    first: Ints
    link: Ints
    usage: Floats
    slope: Floats


class Sharing(NamedTuple):
    """L links, up to I transfers and flows, and up to U uses of links; see the columns above.

    A ring is a column with the next row and one with the previous row; a row in no ring is its own next.

    Attributes:
        links: (L, 5) state of the links.
        marks: (L, 5) integers of the links.
        uses: (L + U, 5) uses; the first L rows are heads of rings.
        amounts: (L + U, 2) amounts of the uses.
        flows: (2 + I, 10) state of the flows.
        items: (2 + I, 11) integers of transfers and flows; the first two rows are heads of rings.
        scratch: (2, 2 + I) demands and claims on a link.
        counts: (10,) see above.
    """

    links: Floats
    marks: Ints
    uses: Ints
    amounts: Floats
    flows: Floats
    items: Ints
    scratch: Floats
    counts: Ints


def idle(capacities: Floats, rounds: bool) -> Sharing:
    """Returns links of these capacities without room for flows; see :func:`grown`."""
    size = len(capacities)
    links, marks, uses = np.zeros((size, 5)), np.zeros((size, 5), np.int64), np.zeros((size, 5), np.int64)
    links[:, CAPACITY], links[:, LEVEL] = capacities, math.inf
    uses[:, USERS] = uses[:, USERS + 1] = np.arange(size)
    items, counts = np.zeros((2, 11), np.int64), np.zeros(10, np.int64)
    items[:, PENDING] = items[:, PENDING + 1] = np.arange(2)
    counts[ROUNDS] = rounds
    return Sharing(links, marks, uses, np.zeros((size, 2)), np.zeros((2, 10)), items, np.zeros((2, 2)), counts)


def grown(net: Sharing, items: int, uses: int) -> Sharing:
    """Returns a copy with room for some more items and uses."""
    for name, column, free, needed in (("items", MEMBERS, FREE_ITEM, items), ("uses", NEXT, FREE_USE, uses)):
        rows = getattr(net, name)
        if needed > net.counts[free + 1]:
            # Twice as many rows, so that the time of all copies is proportional to their number.
            added = np.zeros((needed + len(rows), rows.shape[1]), np.int64)
            added[:, column] = [*range(len(rows) + 1, len(rows) + len(added)), net.counts[free]]
            net.counts[free] = len(rows)
            net.counts[free + 1] += len(added)
            net = net._replace(**{name: np.concatenate((rows, added))})
    return net._replace(
        amounts=np.concatenate((net.amounts, np.zeros((len(net.uses) - len(net.amounts), 2)))),
        flows=np.concatenate((net.flows, np.zeros((len(net.items) - len(net.flows), 10)))),
        scratch=np.zeros((2, len(net.items))),
    )


@lean_kernel
def append(rows: Ints, ring: int, head: int, row: int) -> None:
    """Appends a row to a ring."""
    last = rows[head, ring + 1]
    rows[last, ring], rows[row, ring + 1] = row, last
    rows[row, ring], rows[head, ring + 1] = head, row


@lean_kernel
def detach(rows: Ints, ring: int, row: int) -> None:
    """Removes a row from its ring, if it is in one."""
    after, before = rows[row, ring], rows[row, ring + 1]
    rows[before, ring], rows[after, ring + 1] = after, before
    rows[row, ring] = rows[row, ring + 1] = row


@lean_kernel
def wait(net: Sharing, head: int, item: int) -> None:
    """Lets a flow wait for a rate or a transfer for a date."""
    if net.items[item, PENDING] == item:
        append(net.items, PENDING, head, item)


@lean_kernel
def enqueue(net: Sharing, link: int) -> None:
    """Lets a link wait for a level."""
    marks, counts = net.marks, net.counts
    if not marks[link, QUEUED]:
        marks[link, QUEUED] = 1
        marks[(counts[HEAD] + counts[WAITING]) % len(marks), QUEUE] = link
        counts[WAITING] += 1


@lean_kernel
def set_rate(net: Sharing, flow: int, rate: float, now: float) -> None:
    """Changes the rate of a flow and the end of its stream."""
    flows, before = net.flows, net.flows[flow, RATE]
    if rate == before or abs(rate - before) <= SAME * before:
        return
    flows[flow, RATE] = rate
    use = net.items[flow, FIRST]
    while use >= 0:
        net.links[net.uses[use, LINK], LOAD] += net.amounts[use, USAGE] * (rate - before)
        use = net.uses[use, NEXT]
    left = max(flows[flow, LEFT] - before * (now - flows[flow, SINCE]), 0.0)
    flows[flow, LEFT], flows[flow, SINCE], flows[flow, DATE] = left, now, now + left / rate
    wait(net, DATES, net.items[flow, TRANSFER])
