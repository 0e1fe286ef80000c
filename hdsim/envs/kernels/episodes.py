"""Episodes of learning agents in batches: decisions, observations and rewards around the machine.

An episode replays a window of a trace. The state of E episodes lies in arrays, one row each; the kernels advance some
of them by one decision. They do what :class:`hdsim.envs.scheduling.SchedulingEnv` does with the engine, in the same
order of floating-point operations. Jobs are numbered within their window, in queues over all traces together.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hdsim.decisions.kernels.rows import Ints, percentile, write_quantiles, write_rows
from hdsim.envs.kernels import node_episodes as on_nodes
from hdsim.envs.kernels.episode_state import (
    JOBS,
    RANDOM_ORDER,
    SLOWDOWN,
    SPEEDS,
    WEIGHTS,
    Outcome,
    State,
    Trace,
    machine_of,
)
from hdsim.envs.kernels.node_episodes import Grid
from hdsim.kernels.compiling import lean_kernel, part_of_kernel
from hdsim.kernels.references import by_reference
from hdsim.scheduling.kernels.profiles import may_start
from hdsim.scheduling.machine.loop import OVER, next_instant, reserve_cores, start
from hdsim.scheduling.rules import Backfilling, Deciding

#: Numbers of the queue in an observation without rows.
QUEUE_NUMBERS = 21


@lean_kernel
def step(low: int, high: int, actions: Ints, trace: Trace, state: State, grid: Grid | None, out: Outcome) -> int:
    """Carries out one action in each of the environments `low` to `high` - 1 and advances it to its next decision.

    An episode that is fresh begins instead. Without a grid cores are interchangeable.

    Returns:
        The number of episodes that ended.
    """
    # A grid that is None is pruned where it is an argument.
    return _step(low, high, actions, by_reference(trace), by_reference(state), by_reference(grid), out)


@part_of_kernel
def _step(low: int, high: int, actions: Ints, trace: Trace, state: State, grid: Grid | None, out: Outcome) -> int:
    rules, count = trace.rules[0], 0
    for e in range(low, high):
        episode, reward = state.episodes[e], 0.0
        begun, acts = not episode.fresh, not episode.fresh
        out.invalid[e] = False
        if episode.fresh:
            _clear(e, trace, state)
        else:
            action = actions[e]
            if not state.mask[e, action]:
                out.invalid[e], action = True, 0
                while not state.mask[e, action]:
                    action += 1
            episode.length = episode.queued
            episode.steps += 1
            if action == rules.choices:
                episode.passed = True
            elif rules.picks_jobs:
                episode.head = state.queue[e, 0, episode.front + action] - episode.first
            else:
                _schedule(e, action, trace, state, grid)
        over = False
        while True:
            if begun:
                if episode.head >= 0:
                    _serve(e, trace, state)
                if acts and not rules.integrated and rules.objective != SLOWDOWN:
                    episode.total = _rate(e, trace, state, grid)
                acts = False
                if _pending(e, trace, state):
                    break
                if grid is not None:
                    on_nodes.end_pass(e, by_reference(machine_of(e, trace, state)), grid)
                if rules.integrated:
                    episode.rate = _rate(e, trace, state, grid)
            begun = True
            if not _advance(e, trace, state, grid):
                over = True
                break
        truncated = not over and episode.steps == rules.max_steps and not episode.fresh
        if not episode.fresh and (over or truncated or rules.integrated or rules.objective != SLOWDOWN):
            reward, episode.total = episode.total, 0.0
            if rules.objective == SLOWDOWN:
                reward /= max(episode.feasible, 1)
            reward *= rules.scale
        episode.fresh = False
        out.reward[e], out.terminated[e], out.truncated[e] = reward, over, truncated
        count += over or truncated
        _show(e, over, trace, state, grid, out)
    return count


@part_of_kernel
def _clear(e: int, trace: Trace, state: State) -> None:
    """Clears the state before the first event of an episode."""
    episode, rules = state.episodes[e], trace.rules[0]
    episode.next = episode.submitted = episode.steps = episode.front = episode.length = episode.feasible = 0
    episode.total = episode.since = episode.rate = episode.weight = 0.0
    episode.passed = episode.freed = False
    episode.renewal = 1.0 if rules.learns_scales else math.inf
    episode.now, episode.idle = 0.0, rules.cores
    episode.arrived = episode.queued = episode.events = 0
    episode.head = episode.reserved = -1
    state.lengths[e, 0] = state.lengths[e, 1] = 0
    for i in range(episode.jobs):
        job, source = state.jobs[e, i], trace.jobs[episode.first + i]
        job.runtime, job.requested, job.walltime = source.runtime, source.requested, source.walltime
        job.delays, job.cores = source.delays, trace.cores[episode.first + i]
        job.arrival = trace.submission[episode.first + i] - trace.submission[episode.first]
        job.begin = job.finish = math.nan
        job.killed = False
        if not source.infeasible:
            state.jobs[e, episode.feasible].arriving = i
            episode.feasible += 1
    for k in range(len(trace.scales)):
        state.scales[e, k] = trace.scales[k]


@part_of_kernel
def _pending(e: int, trace: Trace, state: State) -> bool:
    """Returns whether a decision is due at this instant."""
    episode, rules = state.episodes[e], trace.rules[0]
    if episode.passed:
        return False
    queued, idle = episode.queued, episode.idle
    if not rules.picks_jobs:
        return rules.decide == Deciding.ALWAYS or (queued > 0 and (rules.decide == Deciding.QUEUED or idle > 0))
    if rules.commit:
        return queued > 0 and episode.head < 0
    if idle:
        queue, size = state.queue[e, 0], trace.cores
        for i in range(episode.front, episode.front + min(queued, rules.choices)):
            if size[queue[i]] <= idle:
                return True
    return False


@part_of_kernel
def _advance(e: int, trace: Trace, state: State, grid: Grid | None) -> bool:
    """Advances to the next instant with events and handles them; returns False if there is none."""
    episode, machine = state.episodes[e], by_reference(machine_of(e, trace, state))
    dates = machine.jobs.arrival
    events, arrived, queued = episode.events, episode.arrived, episode.queued
    if grid is None:
        over = next_instant(machine, None, None, None, None, None, None, None, None) == OVER
    else:
        over = on_nodes.next_instant(e, machine, grid) == OVER
    episode.submitted = episode.next
    if over:
        if episode.next < episode.jobs:
            # The last jobs are rejected.
            episode.now, episode.next = dates[episode.jobs - 1], episode.jobs
        return False
    for i in range(arrived, episode.arrived):
        episode.next = machine.arriving[i] + 1
        _enqueue(e, episode.first + machine.arriving[i], queued + i - arrived, trace, state)
    # Jobs that are rejected.
    at_once = machine.rules.batch or episode.arrived == arrived
    while episode.next < episode.jobs and (
        dates[episode.next] < episode.now or (at_once and dates[episode.next] == episode.now)
    ):
        episode.next += 1
    _account(e, events, arrived, trace, state)
    if episode.next >= episode.renewal:
        episode.renewal = 2.0 * episode.next
        for k in range(len(trace.scales)):
            if math.isnan(trace.scales[k]):
                state.scales[e, k] = percentile(trace.values[k, episode.first : episode.first + episode.next])
    episode.passed = False
    if episode.events > events:
        episode.freed = True
    return True


@part_of_kernel
def _account(e: int, events: int, arrived: int, trace: Trace, state: State) -> None:
    """Adds the time since the last instant, and the arrivals and ends since then, to the reward.

    Args:
        e: The episode.
        events: Events before this instant.
        arrived: Jobs that had arrived before.
        trace: The jobs.
        state: The episodes.
    """
    episode, rules, log = state.episodes[e], trace.rules[0], state.log[e]
    now = episode.now
    if rules.objective == SLOWDOWN:
        for i in range(events, episode.events):
            job = state.jobs[e, ~log[i]]
            episode.total -= max((now - job.arrival) / max(now - job.begin, rules.shortest), 1.0)
        return
    if rules.integrated:
        episode.total += episode.rate * (now - episode.since)
        episode.since = now
    if rules.objective == WEIGHTS:
        for i in range(arrived, episode.arrived):
            episode.weight += trace.jobs[episode.first + state.jobs[e, i].arriving].weight
        for i in range(events, episode.events):
            episode.weight -= trace.jobs[episode.first + ~log[i]].weight
        if not _in_system(episode):
            # An empty system resets rounding errors.
            episode.weight = 0.0


@part_of_kernel
def _in_system(episode: Any) -> int:
    """Returns the number of queued and running jobs."""
    started = episode.arrived - episode.queued
    ended = episode.events - started
    return episode.arrived - ended


@part_of_kernel
def _rate(e: int, trace: Trace, state: State, grid: Grid | None) -> float:
    """Returns the present value of the objective."""
    rules = trace.rules[0]
    if rules.objective == WEIGHTS:
        return -state.episodes[e].weight
    if rules.objective == JOBS:
        return -float(_in_system(state.episodes[e]))
    if grid is not None and rules.objective == SPEEDS:
        return on_nodes.computing_power(e, grid)
    return float(rules.cores - state.episodes[e].idle) * rules.speed


@part_of_kernel
def _enqueue(e: int, job: int, queued: int, trace: Trace, state: State) -> None:
    """Inserts a job, numbered over all traces, into every order of the queue behind whose head others wait."""
    head = state.episodes[e].front
    for k in range(len(trace.rank)):
        queue, rank, place = state.queue[e, k], trace.rank[k, job], head + queued
        while place > head and queue[place - 1] > rank:
            queue[place] = queue[place - 1]
            place -= 1
        queue[place] = rank


@part_of_kernel
def _dequeue(e: int, job: int, queued: int, trace: Trace, state: State) -> None:
    """Removes a job, numbered over all traces, from every order of the queue, in which it is one of the `queued`."""
    head = state.episodes[e].front
    for k in range(len(trace.rank)):
        queue, rank = state.queue[e, k], trace.rank[k, job]
        low, high = head, head + queued
        while low < high:
            middle = (low + high) // 2
            if queue[middle] < rank:
                low = middle + 1
            else:
                high = middle
        # Jobs leave the queue near its head more often than near its tail.
        for passed in range(low - head):
            # Unsigned indices need no check for negative ones.
            place = np.uint64(low - passed)
            queue[place] = queue[place - np.uint64(1)]
    state.episodes[e].front = head + 1


@part_of_kernel
def _start(e: int, job: int, trace: Trace, state: State) -> None:
    """Starts a queued job for which there are idle cores."""
    _dequeue(e, state.episodes[e].first + job, state.episodes[e].queued, trace, state)
    start(by_reference(machine_of(e, trace, state)), None, None, None, None, None, None, None, None, job, True)


@part_of_kernel
def _schedule(e: int, pair: int, trace: Trace, state: State, grid: Grid | None) -> None:
    """Starts jobs in the order of a policy pair until one does not fit."""
    episode, order, drawn = state.episodes[e], trace.pair_order[pair], 0
    machine = by_reference(machine_of(e, trace, state))
    episode.passed = True
    if grid is not None and order == RANDOM_ORDER and episode.idle:
        drawn = on_nodes.draw_scores(e, episode.queued, trace, state, grid)
    while episode.queued and episode.idle:
        if grid is not None and drawn:
            at = on_nodes.lowest_score(e, drawn, grid)
            of_all = grid.listed[e, at]
            grid.scores[e, at] = math.inf
        else:
            of_all = trace.ranked[order, state.queue[e, order, episode.front]]
        job, queued = of_all - episode.first, episode.queued
        if trace.cores[of_all] > episode.idle:
            return
        if grid is None:
            start(machine, None, None, None, None, None, None, None, None, job, True)
        elif not on_nodes.place(e, job, grid.policies[pair], machine, grid):
            return
        _dequeue(e, of_all, queued, trace, state)


@part_of_kernel
def _serve(e: int, trace: Trace, state: State) -> None:
    """Starts the selected job, or waits for it while others are backfilled."""
    episode, backfill = state.episodes[e], trace.rules[0].backfill
    if trace.cores[episode.first + episode.head] > episode.idle:
        if backfill != Backfilling.NONE and (episode.idle or backfill != Backfilling.EASY):
            _backfill(e, trace, state)
        return
    _start(e, episode.head, trace, state)
    episode.head = -1
    if backfill == Backfilling.EASY:
        episode.reserved = -1


@part_of_kernel
def _backfill(e: int, trace: Trace, state: State) -> None:
    """Starts jobs beside the reservation of the job that is waited for, in order of submission."""
    episode, queue, machine = state.episodes[e], state.queue[e, 0], by_reference(machine_of(e, trace, state))
    jobs = machine.jobs
    first, place, tail = episode.first, episode.front, episode.front + episode.queued
    if not (reserve_cores(machine, episode.head) or episode.freed):
        # Blocked jobs stay blocked: only jobs submitted now are candidates.
        place = tail
        while place > episode.front and queue[place - 1] - first >= episode.submitted:
            place -= 1
    episode.freed = False
    now, shadow, longest, widest = episode.now, episode.shadow, episode.longest, episode.widest
    for i in range(place, tail):
        job = queue[i] - first
        size, requested = jobs.size[job], jobs.requested[job]
        if job != episode.head and may_start(
            size, requested, now, episode.idle, shadow, longest, widest, episode.extra
        ):
            if now + requested > shadow:
                episode.extra -= size
            _start(e, job, trace, state)


@part_of_kernel
def _show(e: int, over: bool, trace: Trace, state: State, grid: Grid | None, out: Outcome) -> None:
    """Writes the legal actions and the observation."""
    episode, rules = state.episodes[e], trace.rules[0]
    head, queued, idle = episode.front, episode.queued, episode.idle
    mask, fits, seen, size = state.mask[e], state.fits[e], out.seen[e], trace.cores
    more = _in_system(episode) > queued or episode.next < episode.jobs
    first = state.queue[e, 0, head : head + min(queued, len(fits))]
    for i in range(len(first)):
        fits[i] = size[first[i]] <= idle
    if over or not rules.picks_jobs:
        for i in range(len(mask)):
            mask[i] = True
        if rules.void and not over:
            mask[rules.choices] = queued == 0 or more
    else:
        for i in range(len(mask)):
            mask[i] = False
        for i in range(len(first)):
            mask[i] = rules.commit or fits[i]
        if rules.void:
            mask[rules.choices] = more
    shown = out.mask[e]
    for i in range(len(mask)):
        shown[i] = mask[i]
    if rules.shows_rows:
        write_rows(
            first,
            fits,
            trace.table,
            trace.submission,
            trace.submission[episode.first],
            episode.now,
            idle / rules.cores,
            state.times[e],
            state.powers[e],
            seen,
        )
        return
    numbers = seen[len(seen) - QUEUE_NUMBERS :]
    if grid is not None:
        on_nodes.show(e, episode.now, grid, seen)
    if queued == 0:
        for i in range(len(numbers)):
            numbers[i] = 0.0
    else:
        for k in range(len(trace.scales)):
            order = trace.value_order[k]
            write_quantiles(
                trace.values[k],
                state.queue[e, order, head : head + queued],
                trace.ranked[order],
                state.scales[e, k],
                numbers[5 * k : 5 * k + 5],
            )
        before, q = episode.length, rules.sensitivity
        change = (queued - before) / min(queued, before) if before else q
        numbers[20] = min(max((change + q) / (2 * q), 0.0), 1.0)
