"""The machine: the whole replay of a stock agent.

Instants, passes and their order are those of the engine. One function moves the clock, one starts a job and one serves
the queue; what the queue is, and whether there are nodes, contention or a plan, are arguments, of which those that are
None cost nothing. Interchangeable cores have no ids here: :func:`hdsim.cluster.kernels.free_ranges.placements` gives
them out by the log.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from hdsim.kernels.compiling import lean_kernel, part_of_kernel
from hdsim.kernels.heap import pop
from hdsim.kernels.references import by_reference
from hdsim.scheduling.kernels.profiles import (
    add_release,
    head_reservation,
    is_overdue,
    just_before,
    longest_before,
    remove_release,
)
from hdsim.scheduling.learned.like_jobs import note_end
from hdsim.scheduling.learned.queue import (
    ScoredQueue,
    enter_scored,
    first_scored,
    is_check_due,
    is_pass_due,
    leave_scored,
    next_scored,
    renew_scores,
)
from hdsim.scheduling.machine.cap import Cap, reserve_under_cap
from hdsim.scheduling.machine.node_plan import (
    NodePlan,
    begin_plan,
    enter_plan,
    lacks_steps,
    leave_plan,
    next_planned_on_nodes,
)
from hdsim.scheduling.machine.nodes import (
    OnNodes,
    begin_search,
    choose,
    enter_candidate,
    is_chosen,
    lacks_space,
    leave_candidate,
    next_ranked_on_nodes,
    next_scored_on_nodes,
    release_cores,
    reserve_on_nodes,
    speed_of,
    take_cores,
)
from hdsim.scheduling.machine.power import (
    Power,
    begin_advance,
    begin_power_pass,
    fits_under_power,
    goes_on,
    hold_under_power,
    is_starting,
    lacks_power_space,
    most_cores_to_start,
    next_node_event,
    next_under_power,
    pass_node_events,
    release_under_power,
    settle_power,
)
from hdsim.scheduling.machine.queue_tree import leave
from hdsim.scheduling.machine.ranked_queue import (
    Plan,
    RankedQueue,
    enter_ranked,
    enter_tree,
    first_ranked,
    next_planned,
    next_ranked,
    renew_plan,
)
from hdsim.scheduling.machine.short_queue import (
    ShortQueue,
    enter_short,
    first_short,
    insert_end,
    leave_short,
    next_short,
)
from hdsim.scheduling.machine.speeds import Speeds, begin_progress, end_progress, is_outdated, settle
from hdsim.scheduling.machine.state import Floats, Ints, Machine, end_or_limit, log_start
from hdsim.scheduling.rules import HEAD_ALONE, Backfilling

#: Results of `advance`: the instants are used up, the replay is at its end, its past is to be checked before another
#: instant, another instant needs more space on nodes, or the contention model has stopped a job.
PAUSED, OVER, CHECK, FULL, BROKEN = range(5)


class Replay(NamedTuple):
    """A replay; one of the queues is there.

    Attributes:
        machine: The state but for the queue.
        ranked: Queued jobs in static orders.
        scored: Queued jobs that networks score.
        plan: The plan of conservative backfilling where the number of cores decides, which is for static orders.
        nodes: Cores of nodes, None for interchangeable cores.
        speeds: Contention, which is on nodes.
        node_plan: The plan of conservative backfilling on nodes.
        power: Power management, which is on interchangeable cores.
    """

    machine: Machine
    ranked: RankedQueue | None
    scored: ScoredQueue | None
    plan: Plan | None
    nodes: OnNodes | None = None
    speeds: Speeds | None = None
    node_plan: NodePlan | None = None
    power: Power | None = None

    def under(self, **rules: Any) -> Replay:
        """Returns the replay under other rules, fields of ``machine.rules``; the state is shared."""
        return self._replace(machine=self.machine._replace(rules=self.machine.rules._replace(**rules)))

    def with_arrivals(self, arriving: Ints, dates: Floats) -> Replay:
        """Returns the replay with (A,) jobs in order of their arrival, and (J,) other dates of arrivals in seconds."""
        jobs = self.machine.jobs._replace(arrival=dates)
        return self._replace(machine=self.machine._replace(arriving=arriving, jobs=jobs))


@lean_kernel
def advance(replay: Replay, instants: int) -> int:
    """Simulates at most a number of instants; returns one of the results above."""
    machine, ranked, scored = by_reference(replay.machine), by_reference(replay.ranked), by_reference(replay.scored)
    plan, nodes, speeds = by_reference(replay.plan), by_reference(replay.nodes), by_reference(replay.speeds)
    node_plan, power = by_reference(replay.node_plan), by_reference(replay.power)
    begin_advance(power)
    for _ in range(instants):
        told = next_instant(machine, ranked, scored, None, plan, nodes, speeds, node_plan, power)
        if told != PAUSED:
            return told
        schedule(machine, ranked, scored, None, plan, nodes, speeds, node_plan, power)
        if not is_settled(machine, speeds, power):
            return BROKEN
    return PAUSED


@part_of_kernel
def next_instant(
    machine: Machine,
    ranked: RankedQueue | None,
    scored: ScoredQueue | None,
    short: ShortQueue | None,
    plan: Plan | None,
    nodes: OnNodes | None,
    speeds: Speeds | None,
    node_plan: NodePlan | None,
    power: Power | None,
) -> int:
    """Moves the clock to the next event and carries out the events of a pass, unless another result is returned."""
    if nodes is not None:
        if lacks_space(nodes):
            return FULL
        if node_plan is not None and lacks_steps(machine, nodes, node_plan):
            return FULL
    if power is not None and lacks_power_space(power, power.sleep):
        return FULL
    clock, rules, arriving, dates = machine.clock[0], machine.rules, machine.arriving, machine.jobs.arrival
    batch, arrived = rules.batch, clock.arrived
    arrival = dates[arriving[arrived]] if arrived < len(arriving) else math.inf
    now = min(arrival, first_end(machine, short, speeds))
    if power is not None:
        # Events of nodes alone give no pass.
        while next_node_event(power.sleep) < now and (now < math.inf or goes_on(power.sleep)):
            pass_node_events(machine, power, power.sleep, next_node_event(power.sleep))
            now = min(arrival, first_end(machine, short, speeds))
    if now == math.inf:
        return OVER
    if scored is not None and is_check_due(machine, scored, now, arrival):
        return CHECK
    if short is not None:
        # Jobs that have been tried can start only after an end, or before another head.
        short.state[0].untried = len(short.line)
    if nodes is not None:
        nodes.state[0].ended = False
        nodes.state[0].first_new = arriving[arrived] if arrival == now else len(dates)
    clock.now = now
    while first_end(machine, short, speeds) == now and (batch or rules.ends_first or arrival > now):
        end_first(machine, scored, short, plan, nodes, speeds, node_plan, power)
        if not batch:
            arrival = math.inf
            break
    if power is not None and next_node_event(power.sleep) == now:
        pass_node_events(machine, power, power.sleep, now)
    while arrival == now:
        job = arriving[arrived]
        if ranked is not None:
            enter_ranked(machine, ranked, job)
            if rules.backfill != Backfilling.NONE:
                if nodes is None or plan is not None:
                    enter_tree(machine, ranked, job)
                else:
                    enter_candidate(machine, nodes, job)
            if node_plan is not None and nodes is not None:
                enter_plan(machine, ranked, nodes, node_plan, job)
        if scored is not None:
            enter_scored(machine, scored, job)
        if short is not None:
            enter_short(machine, short, job)
        clock.queued += 1
        arrived += 1
        arrival = dates[arriving[arrived]] if batch and arrived < len(arriving) else math.inf
    clock.arrived = arrived
    return PAUSED


@part_of_kernel
def first_end(machine: Machine, short: ShortQueue | None, speeds: Speeds | None) -> float:
    """Returns the date of the first end of a running job, infinite if there is none."""
    if speeds is not None:
        while machine.ends.length[0] and is_outdated(machine, speeds):
            pop(machine.ends)
    count = machine.ends.length[0]
    if not count:
        return math.inf
    if short is not None:
        return machine.ends.key[count - 1]
    return machine.ends.key[0]


@part_of_kernel
def note_start(machine: Machine, short: ShortQueue | None, speeds: Speeds | None, job: int, end: float) -> None:
    """Notes a job that starts and its end in seconds, which contention sets later.

    A play-out has no log, and no use for ends to be known later.
    """
    if short is not None:
        machine.finish_time[job] = end
        insert_end(machine.ends, end, job)
    else:
        if speeds is None:
            log_start(machine, job, end)
        else:
            machine.log[machine.clock[0].events] = job
            machine.clock[0].events += 1


@part_of_kernel
def take_ended(machine: Machine, short: ShortQueue | None, speeds: Speeds | None) -> int:
    """Removes the first end of a running job and returns the job."""
    if short is not None:
        machine.ends.length[0] -= 1
        return machine.ends.item[machine.ends.length[0]]
    clock, place = machine.clock[0], pop(machine.ends)
    job = machine.log[place] if speeds is None else place % len(machine.finish_time)
    machine.log[clock.events] = ~job
    clock.events += 1
    machine.finish_time[job] = clock.now
    return job


@part_of_kernel
def end_first(
    machine: Machine,
    scored: ScoredQueue | None,
    short: ShortQueue | None,
    plan: Plan | None,
    nodes: OnNodes | None,
    speeds: Speeds | None,
    node_plan: NodePlan | None,
    power: Power | None,
) -> None:
    """Ends the running job whose end is the first."""
    clock, jobs = machine.clock[0], machine.jobs
    job = take_ended(machine, short, speeds)
    now, begin = clock.now, machine.starting_time[job]
    expected = begin + jobs.requested[job]
    clock.idle += jobs.size[job]
    if nodes is not None:
        expected = nodes.expected[job]
        release_cores(nodes, job)
    if power is not None:
        expected = release_under_power(power, power.cap, power.sleep, job)
    if speeds is not None:
        end_progress(speeds, job)
    if len(machine.releases.end):
        remove_release(machine.releases, expected, job)
    if machine.rules.backfill == Backfilling.EASY:
        clock.reserved = -1
    # A job of zero duration ends before its expected end, which is just after its start.
    if plan is not None and (expected != now or begin == now):
        clock.planned = -1
    # Jobs start on other nodes than reserved.
    if node_plan is not None:
        clock.planned = -1
    if scored is not None:
        note_end(scored.latest, scored.kind, job, begin, now)
    if short is not None:
        short.state[0].untried = 0


@part_of_kernel
def start(
    machine: Machine,
    ranked: RankedQueue | None,
    scored: ScoredQueue | None,
    short: ShortQueue | None,
    plan: Plan | None,
    nodes: OnNodes | None,
    speeds: Speeds | None,
    node_plan: NodePlan | None,
    power: Power | None,
    job: int,
    serving: bool,
) -> None:
    """Starts a queued job, as a head or not, for which there are idle cores; on nodes they have been chosen."""
    clock, jobs = machine.clock[0], machine.jobs
    now, size = clock.now, jobs.size[job]
    clock.queued -= 1
    clock.idle -= size
    machine.starting_time[job] = now
    runtime, requested = jobs.runtime[job], jobs.requested[job]
    if nodes is not None:
        speed = speed_of(nodes, job)
        runtime, requested = runtime / speed, requested / speed
        nodes.expected[job] = now + requested
        take_cores(nodes, job)
    starting = False
    if power is not None:
        requested = hold_under_power(machine, power, power.cap, power.sleep, job, requested)
        starting = is_starting(power.sleep, job)
    if speeds is not None and nodes is not None:
        begin_progress(machine, nodes, speeds, job)
    if not starting:
        note_start(machine, short, speeds, job, end_or_limit(machine, job, now + runtime))
    if len(machine.releases.end):
        add_release(machine.releases, now + requested, job, float(size))
    if ranked is not None and machine.rules.backfill != Backfilling.NONE:
        if nodes is None or plan is not None:
            leave(ranked.tree, ranked.place[job])
        else:
            leave_candidate(nodes, job)
    if node_plan is not None and nodes is not None:
        leave_plan(nodes, node_plan, job)
    if scored is not None:
        leave_scored(machine, scored, job, serving)
    if short is not None:
        leave_short(machine, short, job)


@part_of_kernel
def is_settled(machine: Machine, speeds: Speeds | None, power: Power | None) -> bool:
    """Updates speeds, dates and nodes that sleep after a pass; returns False if contention has stopped a job."""
    if power is not None:
        settle_power(machine, power.sleep)
    return settle(machine, speeds) if speeds is not None else True


@part_of_kernel
def schedule(
    machine: Machine,
    ranked: RankedQueue | None,
    scored: ScoredQueue | None,
    short: ShortQueue | None,
    plan: Plan | None,
    nodes: OnNodes | None,
    speeds: Speeds | None,
    node_plan: NodePlan | None,
    power: Power | None,
) -> None:
    """Carries out a scheduling pass if it may change anything."""
    clock, rules = machine.clock[0], machine.rules
    if scored is not None:
        if not is_pass_due(machine, scored):
            return
    elif not clock.queued or not (clock.idle or rules.commit):
        return
    overdue = False
    if plan is not None:
        overdue = is_overdue(machine.releases, clock.now)
        renew_plan(machine, plan, overdue)
    if node_plan is not None and nodes is not None and ranked is not None:
        overdue = is_overdue(machine.releases, clock.now)
        begin_plan(machine, ranked, nodes, node_plan, overdue)
    serve(machine, ranked, scored, short, plan, nodes, speeds, node_plan, power)
    if overdue:
        clock.planned = -1


@part_of_kernel
def serve(
    machine: Machine,
    ranked: RankedQueue | None,
    scored: ScoredQueue | None,
    short: ShortQueue | None,
    plan: Plan | None,
    nodes: OnNodes | None,
    speeds: Speeds | None,
    node_plan: NodePlan | None,
    power: Power | None,
) -> None:
    """Starts jobs one by one until none can: heads up to one that does not fit, then others beside its reservation."""
    clock, rules, size = machine.clock[0], machine.rules, machine.jobs.size
    backfill, serving, place = rules.backfill, rules.backfill in HEAD_ALONE, 0
    if nodes is not None and not serving:
        nodes.state[0].anew = nodes.state[0].ended
        begin_search(nodes)
    if power is not None:
        begin_power_pass(power.cap)
    while clock.queued:
        if scored is not None:
            renew_scores(machine, scored)
        if serving:
            job = clock.head
            if job < 0:
                if ranked is not None:
                    job = first_ranked(machine, ranked)
                if scored is not None:
                    job = first_scored(machine, scored)
                if short is not None:
                    job = first_short(machine, short)
            if not fits(machine, nodes, power, job):
                if rules.commit:
                    clock.head = job
                if backfill == Backfilling.NONE or (
                    backfill == Backfilling.EASY and none_fits(machine, ranked, short, nodes, power)
                ):
                    break
                serving = False
                renewed = reserve(machine, ranked, nodes, power, job)
                if short is not None:
                    if renewed:
                        short.state[0].untried = 0
                    place = short.state[0].untried
                    if backfill != Backfilling.RLSCHEDULER:
                        place = max(place, short.state[0].first)
                continue
            clock.head = -1
            if backfill == Backfilling.EASY:
                clock.reserved = -1
            if short is not None:
                short.state[0].at, short.state[0].early_at = short.state[0].first, 0
        elif not clock.idle:
            break
        else:
            job = -1
            if plan is not None:
                if ranked is not None:
                    job = next_planned(machine, ranked, plan)
                if nodes is not None and job >= 0:
                    choose(nodes, job, nodes.limit[:0])
            elif node_plan is not None:
                if nodes is not None and ranked is not None:
                    job = next_planned_on_nodes(machine, ranked, nodes, node_plan)
            elif ranked is not None:
                if power is not None:
                    place = next_under_power(machine, ranked, power, power.cap, power.sleep, place)
                elif nodes is None:
                    place = next_ranked(machine, ranked, place)
                else:
                    place = next_ranked_on_nodes(machine, ranked, nodes, place)
                if place >= 0:
                    job = ranked.candidate[place]
                    place += 1
            if scored is not None:
                job = next_scored(machine, scored) if nodes is None else next_scored_on_nodes(machine, scored, nodes)
            if short is not None:
                place = next_short(machine, short, place)
                if place >= 0:
                    if backfill == Backfilling.RLSCHEDULER:
                        job = short.early[place]
                    else:
                        job = short.line[place]
                        place += 1
            if job < 0:
                break
            if nodes is None and power is None and clock.now + machine.jobs.requested[job] > clock.shadow:
                clock.extra -= size[job]
        start(machine, ranked, scored, short, plan, nodes, speeds, node_plan, power, job, serving)


@part_of_kernel
def fits(machine: Machine, nodes: OnNodes | None, power: Power | None, job: int) -> bool:
    """Returns whether a head may start, on nodes on cores that are chosen then."""
    if nodes is not None:
        return is_chosen(machine, nodes, job)
    if power is not None:
        return fits_under_power(machine, power, power.cap, job)
    return machine.jobs.size[job] <= machine.clock[0].idle


@part_of_kernel
def none_fits(
    machine: Machine, ranked: RankedQueue | None, short: ShortQueue | None, nodes: OnNodes | None, power: Power | None
) -> bool:
    """Returns whether it is known at once that no queued job has enough idle cores."""
    if nodes is not None:
        return machine.clock[0].idle == 0
    if ranked is not None:
        most = float(machine.clock[0].idle) if power is None else most_cores_to_start(machine, power.cap)
        return ranked.tree.size[1] > most
    if short is not None:
        return machine.clock[0].idle == 0
    return False


@part_of_kernel
def reserve(
    machine: Machine, ranked: RankedQueue | None, nodes: OnNodes | None, power: Power | None, head: int
) -> bool:
    """Sets what may start beside the reservation of a head that does not fit; returns whether it is a new one."""
    if nodes is not None:
        return reserve_on_nodes(machine, nodes, head)
    if power is not None:
        return reserve_beside(machine, ranked, power, power.cap, head)
    return reserve_cores(machine, head)


@part_of_kernel
def reserve_beside(machine: Machine, ranked: RankedQueue | None, power: Power, cap: Cap | None, head: int) -> bool:
    """See `reserve`, with power management."""
    if cap is not None and ranked is not None:
        return reserve_under_cap(machine, ranked, power.ranges, cap, head)
    return reserve_cores(machine, head)


@part_of_kernel
def reserve_cores(machine: Machine, head: int) -> bool:
    """Sets what may start beside the reservation of a head that does not fit; returns whether it is a new one.

    While no job ends and the head is the same, the reservation stays. With RLScheduler's rule it stays for each head,
    other jobs end strictly before it, and there are no extra cores.
    """
    clock, easy = machine.clock[0], machine.rules.backfill == Backfilling.EASY
    renewed = clock.reserved != head or (easy and is_overdue(machine.releases, clock.now))
    if renewed:
        clock.reserved = head
        clock.shadow, clock.extra = head_reservation(
            machine.releases, clock.now, float(clock.idle), float(machine.jobs.size[head])
        )
        if not easy:
            clock.shadow, clock.extra = just_before(clock.shadow), 0.0
    clock.longest = longest_before(clock.shadow, clock.now, 1.0) if easy else math.inf
    clock.widest = clock.extra
    return renewed
