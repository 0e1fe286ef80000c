"""Power management on interchangeable cores as a part of the machine: a cap, or nodes that sleep."""

from __future__ import annotations

import math
from typing import NamedTuple

from hdsim.kernels.compiling import part_of_kernel
from hdsim.scheduling.machine.cap import (
    Cap,
    begin_pass_under_cap,
    hold_under_cap,
    is_within,
    most_cores_now,
    next_under_cap,
    release_under_cap,
    renew_watts,
)
from hdsim.scheduling.machine.held_ranges import HeldRanges, choose_lowest, give_back, keep_chosen, lacks_ranges
from hdsim.scheduling.machine.ranked_queue import RankedQueue
from hdsim.scheduling.machine.sleep import (
    Sleep,
    change_nodes,
    choose_awake_first,
    hold_nodes,
    lacks_events,
    next_asleep,
    next_change,
    note_freed,
    settle_nodes,
)
from hdsim.scheduling.machine.state import Machine


class Power(NamedTuple):
    """Power management; there is one of `cap` and `sleep`.

    Attributes:
        ranges: Cores of jobs.
        cap: The cap, None for none.
        sleep: Nodes that sleep, None if none does.
    """

    ranges: HeldRanges
    cap: Cap | None
    sleep: Sleep | None


@part_of_kernel
def lacks_power_space(power: Power, sleep: Sleep | None) -> bool:
    """Returns whether the next instant might need more space than there is."""
    if sleep is not None and lacks_events(sleep):
        return True
    return lacks_ranges(power.ranges)


@part_of_kernel
def begin_advance(power: Power | None) -> None:
    """Begins a number of instants."""
    if power is not None:
        _renew(power.cap)


@part_of_kernel
def _renew(cap: Cap | None) -> None:
    if cap is not None:
        renew_watts(cap)


@part_of_kernel
def next_node_event(sleep: Sleep | None) -> float:
    """Returns the date of the next event of nodes in seconds, infinite for none."""
    return next_change(sleep) if sleep is not None else math.inf


@part_of_kernel
def goes_on(sleep: Sleep | None) -> bool:
    """Returns whether nodes change though no job runs and none is to come that is not rejected."""
    return sleep is not None and (sleep.state[0].starting > 0 or next_change(sleep) <= sleep.last_arrival)


@part_of_kernel
def pass_node_events(machine: Machine, power: Power, sleep: Sleep | None, date: float) -> None:
    """Makes the events of nodes at the date of the next one."""
    if sleep is not None:
        change_nodes(machine, power.ranges, sleep, date)


@part_of_kernel
def most_cores_to_start(machine: Machine, cap: Cap | None) -> float:
    """Returns an upper bound of the cores of a job that may start now."""
    if cap is not None:
        return most_cores_now(machine, cap)
    return float(machine.clock[0].idle)


@part_of_kernel
def fits_under_power(machine: Machine, power: Power, cap: Cap | None, job: int) -> bool:
    """Returns whether there are cores for a job, and power."""
    if cap is not None:
        return is_within(machine, power.ranges, cap, job)
    return machine.jobs.size[job] <= machine.clock[0].idle


@part_of_kernel
def begin_power_pass(cap: Cap | None) -> None:
    """Begins to serve the queue."""
    if cap is not None:
        begin_pass_under_cap(cap)


@part_of_kernel
def next_under_power(
    machine: Machine, queue: RankedQueue, power: Power, cap: Cap | None, sleep: Sleep | None, place: int
) -> int:
    """Returns the first place from one on of a candidate that may start beside the reservation, -1 for none."""
    if cap is not None:
        return next_under_cap(machine, queue, power.ranges, cap, place)
    if sleep is not None:
        return next_asleep(machine, queue, power.ranges, sleep, place)
    return -1


@part_of_kernel
def hold_under_power(
    machine: Machine, power: Power, cap: Cap | None, sleep: Sleep | None, job: int, requested: float
) -> float:
    """Gives cores to a job that is to start, and wakes their nodes.

    Returns:
        The seconds until its expected end, from its requested time.
    """
    ranges, size = power.ranges, machine.jobs.size[job]
    if ranges.state[0].chosen < 0:
        if sleep is not None and size > ranges.idle.length[1]:
            choose_awake_first(machine, ranges, sleep, job, math.inf)
        else:
            choose_lowest(ranges, size)
    keep_chosen(ranges, job)
    if sleep is not None:
        requested = hold_nodes(machine, ranges, sleep, job, requested)
    ranges.expected[job] = machine.clock[0].now + requested
    if cap is not None:
        hold_under_cap(machine, ranges, cap, job)
    return requested


@part_of_kernel
def is_starting(sleep: Sleep | None, job: int) -> bool:
    """Returns whether a job waits for nodes."""
    return sleep is not None and sleep.missing[job] > 0


@part_of_kernel
def release_under_power(power: Power, cap: Cap | None, sleep: Sleep | None, job: int) -> float:
    """Releases the cores of a job that ends; returns its expected end in seconds."""
    give_back(power.ranges, job)
    if cap is not None:
        release_under_cap(power.ranges, cap, job)
    if sleep is not None:
        note_freed(power.ranges, sleep, job)
    return power.ranges.expected[job]


@part_of_kernel
def settle_power(machine: Machine, sleep: Sleep | None) -> None:
    """Schedules what follows from a pass."""
    if sleep is not None:
        settle_nodes(machine, sleep)
