"""The plan of conservative backfilling on nodes as a part of the machine."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from hdsim.cluster.kernels.chunks import chunk_of
from hdsim.kernels.compiling import part_of_kernel
from hdsim.scheduling.kernels.node_profiles import (
    NodeProfile,
    forward_nodes,
    hold,
    plan_nodes,
    reserve_ahead,
    reserve_nodes,
    room_until,
)
from hdsim.scheduling.kernels.profiles import later
from hdsim.scheduling.machine.nodes import OnNodes, choose, copy_free, note_held, speed_of
from hdsim.scheduling.machine.queue_tree import next_fitting
from hdsim.scheduling.machine.ranked_queue import RankedQueue
from hdsim.scheduling.machine.state import Floats, Ints, Machine

#: The plan; places are in the order of candidates.
PLAN_STATE = np.dtype(
    [
        ("at", "i8"),  # first entry of `NodePlan.queued` that has no reservation
        ("count", "i8"),  # entries of it in this pass
        ("entries", "i8"),  # entries of the profile that reservations of the queued jobs may need
        ("steps_needed", "i8"),  # most steps of the profile in the next pass
        ("entries_needed", "i8"),  # most entries of the profile in the next pass
    ],
    align=True,
)


class NodePlan(NamedTuple):
    """Every job has a reservation on nodes.

    Attributes:
        state: (1,) of type `PLAN_STATE`.
        profile: Unreserved resources of nodes.
        queued: (J,) queued jobs without a reservation in order of candidates, at the begin of a pass.
        starts: (J,) their reserved starts in seconds.
    """

    state: Any
    profile: NodeProfile
    queued: Ints
    starts: Floats


@part_of_kernel
def entries_of(nodes: OnNodes, job: int) -> int:
    """Returns the most entries of the profile that a reservation needs: a begin and an end on each node."""
    return 2 * min(nodes.jobs.number[job], len(nodes.limit))


@part_of_kernel
def enter_plan(machine: Machine, queue: RankedQueue, nodes: OnNodes, plan: NodePlan, job: int) -> None:
    """Takes note of a job that has arrived: the plan is made anew for one before those that are planned."""
    if queue.place[job] < machine.clock[0].planned:
        machine.clock[0].planned = -1
    plan.state[0].entries += entries_of(nodes, job)


@part_of_kernel
def leave_plan(nodes: OnNodes, plan: NodePlan, job: int) -> None:
    """Takes note of a job that starts."""
    plan.state[0].entries -= entries_of(nodes, job)


@part_of_kernel
def lacks_steps(machine: Machine, nodes: OnNodes, plan: NodePlan) -> bool:
    """Returns whether the next pass might need more space in the profile than there is, and notes how much."""
    state, arriving, dates, arrived = plan.state[0], machine.arriving, machine.jobs.arrival, machine.clock[0].arrived
    # Entries of all nodes, and of running jobs, each of which has a core on each of its nodes.
    next_one, entries = arrived, 3 * len(nodes.limit) + 3 * machine.rules.cores + state.entries
    while next_one < len(arriving) and dates[arriving[next_one]] == dates[arriving[arrived]]:
        entries += entries_of(nodes, arriving[next_one])
        next_one += 1
    state.steps_needed = machine.releases.length[0] + machine.clock[0].queued + next_one - arrived + 2
    state.entries_needed = entries
    return state.steps_needed > len(plan.profile.times) or entries > len(plan.profile.entries)


@part_of_kernel
def begin_plan(machine: Machine, queue: RankedQueue, nodes: OnNodes, plan: NodePlan, overdue: bool) -> None:
    """Begins a new plan at a pass, or takes the present one forward; lists the jobs that are to be planned."""
    clock, state, tree = machine.clock[0], plan.state[0], nodes.candidates.queue
    if clock.planned < 0 or overdue:
        copy_free(nodes)
        plan_nodes(plan.profile, nodes.free, nodes.jobs, machine.releases, nodes.holdings, clock.now)
        clock.planned = 0
    else:
        forward_nodes(plan.profile, clock.now)
    count, place = 0, clock.planned
    while True:
        place = next_fitting(tree, place, 0.0, float(machine.rules.cores), math.inf, math.inf, 0.0, 0.0)
        if place < 0:
            break
        plan.queued[count] = queue.candidate[place]
        place += 1
        count += 1
    state.at, state.count = 0, count


@part_of_kernel
def next_planned_on_nodes(machine: Machine, queue: RankedQueue, nodes: OnNodes, plan: NodePlan) -> int:
    """Returns the next job that starts now, -1 if there is none; jobs before it have later reservations."""
    clock, state, jobs, queued = machine.clock[0], plan.state[0], nodes.jobs, plan.queued[: plan.state[0].count]
    while state.at < state.count:
        at = state.at = reserve_ahead(plan.profile, jobs, queued, state.at, plan.starts)
        if at == state.count:
            clock.planned = queue.place[queued[at - 1]] + 1
            break
        job = queued[at]
        clock.planned = queue.place[job]
        # The first of the jobs that are left out otherwise.
        if plan.starts[at] != -math.inf:
            break
        plan.starts[at] = 0.0
        state.at, clock.planned = at + 1, clock.planned + 1
        if _starts_now(machine, nodes, plan, job):
            return job
        reserve_nodes(plan.profile, jobs, job, 1)
    return -1


@part_of_kernel
def _starts_now(machine: Machine, nodes: OnNodes, plan: NodePlan, job: int) -> bool:
    """Reserves a start now on chosen cores; False if the job does not fit beside the reservations."""
    profile, now, holdings = plan.profile, machine.clock[0].now, nodes.holdings
    chunk, end = chunk_of(nodes.jobs, job), later(now, now)
    while room_until(profile, chunk, end) >= chunk.number:
        for node in range(len(nodes.limit)):
            nodes.limit[node] = profile.room[node]
        if not choose(nodes, job, nodes.limit):
            return False
        duration = nodes.jobs.time[job] / speed_of(nodes, job)
        if later(now + duration, now) <= end:
            note_held(nodes, job)
            held = slice(holdings.first[job], holdings.last[job])
            hold(profile, chunk, holdings.node[held], holdings.cores[held], 0, duration)
            return True
        end = later(now + duration, now)
    return False
