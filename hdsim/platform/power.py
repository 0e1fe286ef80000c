"""P-states of cores and the exact energy of a schedule.

The table below is the only definition of the P-states; energy, power series and SimGrid platform files derive from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from hdsim.platform.model import Platform


@dataclass(frozen=True)
class PState:
    """One P-state of a core.

    Attributes:
        name: Description of the state.
        speed: Share of the core's peak speed, 0..1.
        power: Share of the core's power, 0..1.
    """

    name: str
    speed: float
    power: float


#: P-states of HDeepRM as executed by Batsim, by number.
PSTATES: tuple[PState, ...] = (
    PState("computing", 1.0, 1.0),
    PState("computing, bandwidth oversubscribed", 0.75, 1.0),
    PState("idle beside a computing core", 0.0, 0.25),
    PState("idle in an idle processor", 0.0, 0.05),
)
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

_STARTS_PER_SLICE = 8192


@dataclass(frozen=True)
class Usage:
    """Processors of allocation segments, one row per (segment, processor), in order of the segments.

    Attributes:
        segment: (R,) index of the segment, see :class:`hdsim.results.segments.Segments`.
        processor: (R,) processor index.
        cores: (R,) allocated cores of the processor.
    """

    segment: NDArray[np.int64]
    processor: NDArray[np.int32]
    cores: NDArray[np.int64]


def processor_power(cores: NDArray[Any], busy: NDArray[Any]) -> NDArray[np.float64]:
    """Power of processors in multiples of the power of one computing core.

    Args:
        cores: (P,) cores of each processor.
        busy: (P,) busy cores of each processor.
    """
    share: NDArray[np.float64] = busy * PSTATES[COMPUTING].power + (cores - busy) * IDLE_POWER.take(busy > 0)
    return share


def usage(platform: Platform, sizes: NDArray[np.int64], cores: NDArray[np.int32]) -> Usage:
    """Counts the cores of each allocation segment on each processor.

    Args:
        platform: The platform.
        sizes: (A,) cores of each segment.
        cores: (sum of sizes,) core ids, ascending within a segment.
    """
    if not len(cores):
        none = np.zeros(0, np.int64)
        return Usage(none, none.astype(np.int32), none)
    processor = platform.core_processor[cores]
    row_starts = np.empty(len(cores), bool)
    row_starts[0] = True
    np.not_equal(processor[1:], processor[:-1], out=row_starts[1:])
    job_ends = np.cumsum(sizes)
    row_starts[(job_ends - sizes)[sizes > 0]] = True
    first = np.flatnonzero(row_starts)
    counts = np.diff(first, append=len(cores))
    rows_per_job = np.diff(np.searchsorted(first, job_ends), prepend=0)
    return Usage(np.repeat(np.arange(len(sizes)), rows_per_job), processor[first], counts)


def busy_seconds(
    platform: Platform,
    sizes: NDArray[np.int64],
    cores: NDArray[np.int32],
    begin: NDArray[np.float64],
    end: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns, for every processor, busy core-seconds and the seconds in which any of its cores was busy.

    Args:
        platform: The platform.
        sizes: (A,) cores of each segment.
        cores: (sum of sizes,) core ids, ascending within a segment.
        begin: (A,) s, ascending.
        end: (A,) s.

    Returns:
        Two (P,) arrays in seconds.
    """
    n = platform.n_processors
    core_seconds, active_seconds = np.zeros(n), np.zeros(n)
    covered = np.full(n, -np.inf)  # until when each processor is known to be busy
    order = np.argsort(end, kind="stable")
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    last = np.concatenate([[0], np.cumsum(sizes)])
    # In slices that stay in the processor's cache.
    for i in range(0, len(sizes), _STARTS_PER_SLICE):
        j = min(i + _STARTS_PER_SLICE, len(sizes))
        held = usage(platform, sizes[i:j], cores[last[i] : last[j]])
        segments = i + held.segment
        seconds = end[segments] - begin[segments]
        core_seconds += np.bincount(held.processor, seconds * held.cores, n)
        if platform.n_cores == n:
            continue
        # The union of a processor's segments: in order, a segment adds what lies after the latest end before it.
        # Ends are compared by rank, so that one running maximum serves all processors without losing digits.
        by_processor = np.argsort(held.processor.astype(np.int16 if n < 2**15 else np.int32), kind="stable")
        processor = held.processor[by_processor].astype(np.int64)
        segment = segments[by_processor]
        latest = np.maximum.accumulate(rank[segment] + processor * len(order)) - processor * len(order)
        latest_end = np.maximum(end[order[latest]], covered[processor])
        until = covered[processor]
        same = np.flatnonzero(processor[1:] == processor[:-1])
        until[same + 1] = latest_end[same]
        added = np.maximum(latest_end - np.maximum(begin[segment], until), 0.0)
        active_seconds += np.bincount(processor, added, n)
        ends = np.append(np.flatnonzero(processor[1:] != processor[:-1]), len(processor) - 1)
        covered[processor[ends]] = latest_end[ends]
    return core_seconds, core_seconds if platform.n_cores == n else active_seconds


def total_energy(
    platform: Platform,
    core_seconds: NDArray[np.float64],
    active_seconds: NDArray[np.float64],
    duration: float,
    down_seconds: NDArray[np.float64] | float = 0.0,
) -> float:
    """Energy in J of the whole platform over `duration` seconds, by the P-state rule of :data:`PSTATES`.

    Args:
        platform: The platform.
        core_seconds: (P,) busy core-seconds of each processor.
        active_seconds: (P,) seconds in which at least one core of the processor was busy.
        duration: Length of the run in seconds.
        down_seconds: (P,) downtime of the node of each processor in seconds, without power.
    """
    cores = platform.cores_per_processor
    computing = PSTATES[COMPUTING].power * core_seconds
    idle = PSTATES[IDLE].power * (cores * active_seconds - core_seconds)
    package = PSTATES[IDLE_PACKAGE].power * cores * (duration - active_seconds - down_seconds)
    return float(np.sum(platform.power * (computing + idle + package)))
