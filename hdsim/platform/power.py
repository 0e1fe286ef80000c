"""P-states of cores, power states of nodes, and the exact energy of a schedule.

The table below is the only definition of the P-states; energy, power series and SimGrid platform files derive from it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hdsim.kernels import intervals
from hdsim.platform import pstates
from hdsim.platform.node_state import NodeState
from hdsim.util.arrays import Floats, Ints

if TYPE_CHECKING:
    from hdsim.platform.model import Platform
    from hdsim.util.intervals import IntervalSets


#: P-states of HDeepRM as executed by Batsim, by number.
PSTATES = pstates.PSTATES
COMPUTING, OVERSUBSCRIBED, IDLE, IDLE_PACKAGE = range(4)

# The rule that puts a core into a P-state has two halves. Batsim's "sleep" is another state: a core of an idle package
# takes a job at once.
#: P-state of a busy core, by whether the memory bandwidth of its processor is oversubscribed.
BUSY_PSTATE = (COMPUTING, OVERSUBSCRIBED)
#: P-state of an idle core, by whether another core of its processor is busy.
IDLE_PSTATE = (IDLE_PACKAGE, IDLE)
#: Speed of a busy core as a share of its peak, indexed as `BUSY_PSTATE`.
BUSY_SPEED = np.array([PSTATES[state].speed for state in BUSY_PSTATE])
#: Power of an idle core as a share of its peak, indexed as `IDLE_PSTATE`; a busy core draws `PSTATES[COMPUTING].power`.
IDLE_POWER = np.array([PSTATES[state].power for state in IDLE_PSTATE])
#: Power as a share of its peak of a computing core, an idle one beside a busy one of its processor, and any other.
CORE_SHARES = np.array([PSTATES[state].power for state in (COMPUTING, IDLE, IDLE_PACKAGE)])

#: Events whose counts are made together.
_EVENTS = 1 << 14

Ids = NDArray[np.int32]


@dataclass(frozen=True)
class Usage:
    """Processors of allocation segments, one row per (segment, processor), in order of the segments."""

    segment: NDArray[np.int64]  # (R,) index of the segment, see :class:`hdsim.results.segments.Segments`
    processor: NDArray[np.int32]  # (R,) processor index
    cores: NDArray[np.int64]  # (R,) allocated cores of the processor


def processor_power(cores: NDArray[Any], busy: NDArray[Any]) -> NDArray[np.float64]:
    """Power of processors in multiples of the power of one computing core.

    Both are (P,) numbers of cores.
    """
    return busy * PSTATES[COMPUTING].power + (cores - busy) * IDLE_POWER.take(busy > 0)


def node_power(platform: Platform, pstate: int, state: NodeState) -> NDArray[np.float64]:
    """(N,) W of each node with all its cores in a P-state, up in a power state (ON or IDLE)."""
    cores = platform.power * platform.cores_per_processor * PSTATES[pstate].power
    watts: NDArray[np.float64] = np.add.reduceat(cores, platform.node_first_processor[:-1])
    return watts + platform.state_watts[state]


def present_power(
    platform: Platform, busy: NDArray[Any], state: NDArray[np.int64] | None = None, down: Collection[int] = ()
) -> float:
    """Power in W of all nodes at one instant, the value of :func:`hdsim.results.series.power` then.

    Args:
        platform: The platform.
        busy: (P,) computing cores of each processor.
        state: (N,) :class:`hdsim.platform.node_state.NodeState`, ON for all that are up; None: all are.
        down: Nodes out of service, which draw nothing.
    """
    cores = processor_power(platform.cores_per_processor, busy)
    if state is None and not down and not platform.has_state_watts:
        return float(platform.power @ cores)
    first = platform.node_first_processor[:-1]
    serves = np.add.reduceat(busy, first) > 0
    here = np.where(serves, NodeState.ON, NodeState.IDLE)
    watts = np.add.reduceat(platform.power * cores, first)
    if state is not None:
        up = state == NodeState.ON
        here, watts = np.where(up, here, state), np.where(up, watts, 0.0)
    watts += np.nan_to_num(platform.state_watts)[here, np.arange(platform.n_nodes)]
    watts[list(down)] = 0.0
    return float(watts.sum())


def usage(platform: Platform, held: IntervalSets) -> Usage:
    """Counts the cores of each allocation segment on each processor."""
    owner = platform.core_processor
    most = int((owner[held.last] - owner[held.first]).sum()) + len(held.first)
    segment, processor, cores = np.empty(most, np.int64), np.empty(most, np.int32), np.empty(most, np.int64)
    rows = intervals.count_cores(*_arrays(platform, held), segment, processor, cores)
    return Usage(segment[:rows], processor[:rows], cores[:rows])


def busy_seconds(
    platform: Platform, held: IntervalSets, begin: NDArray[np.float64], end: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns (P,) busy core-seconds of every processor, and (P,) seconds in which any of its cores was busy.

    Segment i holds cores from `begin` to `end`, (A,) s; begins are ascending.
    """
    busy = np.zeros((2, platform.n_processors))
    intervals.add_busy_seconds(*_arrays(platform, held), begin, end, busy)
    return busy[0], busy[1]


def power_after(
    platform: Platform, held: IntervalSets, events: Ints, of_core: Floats | None = None, of_node: Floats | None = None
) -> Floats:
    """Computes the power in W after each begin and end of allocation segments: (2, E) that of the cores, and of nodes.

    Cores are counted by state, so that a power is independent of the events before it to its last digit.

    Args:
        platform: The platform.
        held: Core ids of A segments; a core is in one at a time, but between events of one time.
        events: (E,) in order of time, i for the begin of segment i and A + i for its end.
        of_core: (P,) W of a computing core of each processor, by default that of the platform.
        of_node: (N,) W that nodes draw while one of their cores is busy, by default none.
    """
    watts, kind = np.unique(platform.power if of_core is None else of_core, return_inverse=True)
    cores = np.bincount(kind, platform.cores_per_processor)
    node_kind, together = np.zeros(len(kind), np.int64), platform.n_processors == platform.n_nodes
    values = np.zeros(1)
    if together and of_node is not None:
        values, node_kind = np.unique(of_node, return_inverse=True)
    pairs, pair = np.unique(kind * len(values) + node_kind, return_inverse=True)
    of_watts, of_value = np.divmod(pairs, len(values))
    power = np.zeros((2, len(events)))
    for at, counts in _busy_after(_arrays(platform, held), pair, events):
        for k in range(len(watts)):
            awake, computing = counts[1:, of_watts == k].sum(axis=1)
            idle = CORE_SHARES[1] * (awake - computing) + CORE_SHARES[2] * (cores[k] - awake)
            power[0, at] += watts[k] * (CORE_SHARES[0] * computing + idle)
        for k in np.flatnonzero(values).tolist():
            power[1, at] += values[k] * counts[0, of_value == k].sum(axis=0)
    if of_node is not None and not together:
        power[1] = busy_nodes_after(platform, held, events, of_node)
    return power


def busy_node_seconds(
    platform: Platform, held: IntervalSets, begin: NDArray[np.float64], end: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Returns (N,) seconds in which any core of each node was busy; see `busy_seconds`."""
    busy, nodes = np.zeros((2, platform.n_nodes)), _node_arrays(platform, held)
    intervals.add_busy_seconds(*nodes, begin, end, busy)
    return busy[1]


def busy_nodes_after(platform: Platform, held: IntervalSets, events: Ints, watts: Floats) -> Floats:
    """Computes the (E,) sum of the watts (N,) of nodes with a busy core after each event; see `power_after`."""
    values, kind = np.unique(watts, return_inverse=True)
    total = np.zeros(len(events))
    for at, (owners, _, _) in _busy_after(_node_arrays(platform, held), kind, events):
        for k in np.flatnonzero(values).tolist():
            total[at] += values[k] * owners[k]
    return total


def _busy_after(arrays: tuple[Ints, Ids, Ids, Ids, Ids], kind: Ints, events: Ints) -> Iterator[tuple[slice, Ints]]:
    """Yields stretches of events and their counts (3, K, e), see :func:`hdsim.kernels.intervals.count_busy`."""
    kinds, first_core = int(kind.max()) + 1, arrays[-1]
    alike = intervals.neighbours_alike(first_core, kind)
    busy, now = np.zeros(len(kind), np.int64), np.zeros((3, kinds), np.int64)
    for begin in range(0, len(events), _EVENTS):
        at = slice(begin, min(begin + _EVENTS, len(events)))
        counts = np.empty((3, kinds, at.stop - at.start), np.int64)
        intervals.count_busy(*arrays, events[at], kind, alike, busy, now, counts)
        yield at, counts


def _node_arrays(platform: Platform, held: IntervalSets) -> tuple[Ints, Ids, Ids, Ids, Ids]:
    """The first arguments of the kernels with nodes in place of processors."""
    owner = platform.processor_node[platform.core_processor]
    return held.begins, held.first, held.last, owner, platform.node_first_core


def _arrays(platform: Platform, held: IntervalSets) -> tuple[Ints, Ids, Ids, Ids, Ids]:
    """The first arguments of the kernels."""
    return held.begins, held.first, held.last, platform.core_processor, platform.processor_first_core


def total_energy(
    platform: Platform,
    core_seconds: NDArray[np.float64],
    active_seconds: NDArray[np.float64],
    duration: float,
    down_seconds: NDArray[np.float64] | float = 0.0,
) -> float:
    """Energy in J of the whole platform over `duration` seconds, by the P-state rule of :data:`PSTATES`.

    `core_seconds` are the (P,) busy core-seconds of each processor, `active_seconds` the (P,) seconds in which at least
    one of its cores was busy, `down_seconds` the (P,) seconds in which its node was not up, where its cores draw
    nothing.
    """
    cores = platform.cores_per_processor
    computing = PSTATES[COMPUTING].power * core_seconds
    idle = PSTATES[IDLE].power * (cores * active_seconds - core_seconds)
    package = PSTATES[IDLE_PACKAGE].power * cores * (duration - active_seconds - down_seconds)
    return float(np.sum(platform.power * (computing + idle + package)))


def state_energy(platform: Platform, seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    """(5,) energy in J of nodes in each :class:`NodeState`, beside that of their cores, by `Platform.state_watts`.

    `seconds` are the (5, N) seconds of each node in each state.
    """
    return np.where(seconds > 0, platform.state_watts * seconds, 0.0).sum(axis=1)
