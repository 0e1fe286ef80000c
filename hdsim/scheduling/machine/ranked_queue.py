"""Queued jobs in static orders, and the plan of reservations for them."""

from __future__ import annotations

import math
from typing import NamedTuple

from hdsim.kernels.compiling import part_of_kernel
from hdsim.kernels.heap import Heap, pop, push
from hdsim.scheduling.kernels.profiles import Profile, forward, plan, reserve
from hdsim.scheduling.machine.queue_tree import QueueTree, enter, next_fitting
from hdsim.scheduling.machine.state import Ints, Machine
from hdsim.scheduling.rules import HEAD_ALONE


class RankedQueue(NamedTuple):
    """Queued jobs.

    Attributes:
        rank: (J,) place in the order of the queue.
        place: (J,) place in the order of candidates.
        candidate: (J,) job of each place in the order of candidates.
        waiting: Queued jobs by rank, and some that backfilling has started.
        tree: Queued jobs in the order of candidates, with backfilling; on nodes they are in `OnNodes.candidates`.
    """

    rank: Ints
    place: Ints
    candidate: Ints
    waiting: Heap
    tree: QueueTree


class Plan(NamedTuple):
    """Reservations: of every job in the order of candidates (conservative backfilling), or of the first ones.

    Attributes:
        profile: Unreserved cores.
        starts: Planned starts, with places in the order of candidates.
    """

    profile: Profile
    starts: Heap


@part_of_kernel
def enter_ranked(machine: Machine, queue: RankedQueue, job: int) -> None:
    """Adds a job that has arrived to the heads."""
    if machine.rules.backfill in HEAD_ALONE:
        push(queue.waiting, float(queue.rank[job]), job)


@part_of_kernel
def enter_tree(machine: Machine, queue: RankedQueue, job: int) -> None:
    """Adds a job that has arrived to the candidates."""
    place = queue.place[job]
    enter(queue.tree, place, float(machine.jobs.size[job]), machine.jobs.requested[job])
    if place < machine.clock[0].planned:
        machine.clock[0].planned = -1


@part_of_kernel
def first_ranked(machine: Machine, queue: RankedQueue) -> int:
    """Returns the first of the queued jobs, of which there is one."""
    while not math.isnan(machine.starting_time[queue.waiting.item[0]]):
        pop(queue.waiting)
    return queue.waiting.item[0]


@part_of_kernel
def next_ranked(machine: Machine, queue: RankedQueue, place: int) -> int:
    """Returns the first place from one on of a candidate that may start beside the reservation, -1 for none."""
    clock = machine.clock[0]
    return next_fitting(
        queue.tree, place, clock.now, float(clock.idle), clock.shadow, clock.longest, clock.widest, clock.extra
    )


@part_of_kernel
def renew_plan(machine: Machine, plans: Plan, overdue: bool) -> None:
    """Begins a new plan at a scheduling pass, or takes the present one forward."""
    clock = machine.clock[0]
    if clock.planned < 0 or overdue:
        plan(plans.profile, machine.releases, clock.now, float(clock.idle))
        clock.planned = plans.starts.length[0] = 0
    else:
        forward(plans.profile, clock.now)
    clock.tried = 0


@part_of_kernel
def next_planned(machine: Machine, queue: RankedQueue, plans: Plan) -> int:
    """Returns the next job that starts now beside the reservations, -1 if there is none.

    Jobs are planned in order up to the last one that could start now. Behind as many as have reservations under the
    rules, jobs start now or have none.
    """
    clock, jobs, profile, tree = machine.clock[0], machine.jobs, plans.profile, queue.tree
    now = clock.now
    if plans.starts.length[0] and plans.starts.key[0] <= now:
        return queue.candidate[pop(plans.starts)]
    possible = -1
    while profile.free[0] > 0:
        reserves = plans.starts.length[0] < machine.rules.depth
        place = clock.planned if reserves else max(clock.planned, clock.tried)
        if possible < place or jobs.size[queue.candidate[possible]] > profile.free[0]:
            full = 1
            while full < profile.length[0] and profile.free[full] > 0:
                full += 1
            until = profile.times[full] if full < profile.length[0] else math.inf
            possible = next_fitting(tree, place, now, profile.free[0], until, math.inf, 0.0, 0.0)
            if possible < 0:
                break
        if reserves:
            place = next_fitting(tree, place, now, float(machine.rules.cores), math.inf, math.inf, 0.0, 0.0)
            clock.planned = place + 1
        else:
            place = possible
            clock.tried = place + 1
        job = queue.candidate[place]
        start = reserve(profile, float(jobs.size[job]), jobs.requested[job], math.inf if reserves else now)
        if start <= now:
            return job
        if reserves:
            push(plans.starts, start, place)
    return -1
