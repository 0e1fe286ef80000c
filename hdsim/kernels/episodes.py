"""Episodes of learning agents in batches: jobs on interchangeable cores, decisions, observations and rewards.

An episode replays a window of a trace. The state of E episodes lies in arrays, one row each; the kernels advance some
of them by one decision. They do what :class:`hdsim.envs.scheduling.SchedulingEnv` does with the engine, in the same
order of floating-point operations. Jobs are numbered over all traces together.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hdsim.kernels import node_episodes as on_nodes
from hdsim.kernels.compiling import lean_kernel, part_of_kernel
from hdsim.kernels.episode_state import (
    JOBS,
    RANDOM_ORDER,
    SLOWDOWN,
    SPEEDS,
    WEIGHTS,
    Outcome,
    State,
    Trace,
)
from hdsim.kernels.heap import Heap, pop, push
from hdsim.kernels.node_episodes import Grid
from hdsim.kernels.profiles import Releases, add_release, head_reservation, longest_before, remove_release
from hdsim.kernels.rows import Ints, percentile, write_quantiles, write_rows
from hdsim.kernels.rules import Backfilling, Deciding
from hdsim.kernels.walltime import reaches_walltime

_NONE = -1
#: Numbers of the queue in an observation without rows.
QUEUE_NUMBERS = 21


@lean_kernel
def step(low: int, high: int, actions: Ints, trace: Trace, state: State, grid: Grid | None, out: Outcome) -> int:
    """Carries out one action in each of the environments `low` to `high` - 1 and advances it to its next decision.

    An episode that is fresh begins instead. Without a grid cores are interchangeable.

    Returns:
        The number of episodes that ended.
    """
    rules, count = trace.rules[0], 0
    for e in range(low, high):
        episode, reward = state.episodes[e], 0.0
        begun, acts, chosen = not episode.fresh, not episode.fresh, _NONE
        out.invalid[e] = False
        if episode.fresh:
            _clear(e, rules, trace, state, grid)
        else:
            action = actions[e]
            if not state.mask[e, action]:
                out.invalid[e], action = True, 0
                while not state.mask[e, action]:
                    action += 1
            episode.length = episode.tail - episode.head
            episode.steps += 1
            if action == rules.choices:
                episode.passed = True
            elif rules.picks_jobs:
                chosen = state.queue[e, 0, episode.head + action]
            else:
                _schedule(e, action, rules, trace, state, grid)
        over = False
        while True:
            if begun:
                if chosen != _NONE:
                    _serve(e, chosen, rules, trace, state)
                if acts and not rules.integrated and rules.objective != SLOWDOWN:
                    episode.total = _rate(e, rules, state, grid)
                acts = False
                if _pending(e, rules, trace, state):
                    break
                if grid is not None:
                    on_nodes.end_pass(e, trace, state, grid)
                if rules.integrated:
                    episode.rate = _rate(e, rules, state, grid)
            begun = True
            if not _next_instant(e, rules, trace, state, grid):
                over = True
                break
            chosen, episode.committed = episode.committed, _NONE
        truncated = not over and episode.steps == rules.max_steps and not episode.fresh
        if not episode.fresh and (over or truncated or rules.integrated or rules.objective != SLOWDOWN):
            reward, episode.total = episode.total, 0.0
            if rules.objective == SLOWDOWN:
                reward /= max(episode.feasible, 1)
            reward *= rules.scale
        episode.fresh = False
        out.reward[e], out.terminated[e], out.truncated[e] = reward, over, truncated
        count += over or truncated
        _show(e, over, rules, trace, state, grid, out)
    return count


@part_of_kernel
def _clear(e: int, rules: Any, trace: Trace, state: State, grid: Grid | None) -> None:
    """Clears the state before the first event of an episode."""
    episode = state.episodes[e]
    episode.next = episode.submitted = episode.first
    episode.now = episode.total = episode.since = episode.rate = episode.weight = 0.0
    episode.idle = rules.cores
    episode.events = episode.steps = episode.head = episode.tail = episode.length = 0
    episode.committed = episode.reserved = _NONE
    episode.passed = episode.freed = False
    episode.renewal = 1.0 if rules.learns_scales else math.inf
    state.running[e] = state.releases[e] = 0
    episode.feasible = 0
    for own in range(episode.stop - episode.first):
        state.start[e, own] = math.nan
        episode.feasible += not trace.jobs[episode.first + own].infeasible
    for k in range(len(trace.scales)):
        state.scales[e, k] = trace.scales[k]
    if grid is not None:
        on_nodes.clear(e, trace, state, grid)


@part_of_kernel
def _pending(e: int, rules: Any, trace: Trace, state: State) -> bool:
    """Returns whether a decision is due at this instant."""
    episode = state.episodes[e]
    if episode.passed:
        return False
    queued, idle = episode.tail - episode.head, episode.idle
    if not rules.picks_jobs:
        return rules.decide == Deciding.ALWAYS or (queued > 0 and (rules.decide == Deciding.QUEUED or idle > 0))
    if rules.commit:
        return queued > 0 and episode.committed == _NONE
    if idle:
        queue, cores = state.queue[e, 0], trace.cores
        for i in range(episode.head, min(episode.tail, episode.head + rules.choices)):
            if cores[queue[i]] <= idle:
                return True
    return False


@part_of_kernel
def _next_instant(e: int, rules: Any, trace: Trace, state: State, grid: Grid | None) -> bool:
    """Advances to the next instant with events and handles them; returns False if there is none."""
    episode, submission = state.episodes[e], trace.submission
    ends = Heap(state.ends[e], state.starts[e], state.running[e : e + 1])
    origin, stop, ended, arrivals = submission[episode.first], episode.stop, 0, 0
    while True:
        job, now = episode.next, math.inf
        arrival = submission[job] - origin if job < stop else math.inf
        if state.running[e]:
            now = ends.key[0] if grid is None else grid.dates[e, 0]
        elif grid is not None and grid.entries[e] and arrival < math.inf:
            # An outdated entry.
            now = grid.dates[e, 0]
        if arrival < now:
            now = arrival
        if now == math.inf:
            return False
        episode.now = now
        if grid is not None:
            if rules.batch_events or arrival > now:
                ended = on_nodes.end_jobs(e, trace, state, grid, rules.batch_events)
        elif rules.batch_events or arrival > now:
            while state.running[e] and ends.key[0] == now:
                done = state.log[e, pop(ends)]
                state.log[e, episode.events] = ~done
                episode.events += 1
                state.ended[e, ended] = episode.first + done
                episode.idle += trace.cores[episode.first + done]
                ended += 1
                if not rules.batch_events:
                    break
        episode.submitted = job
        while job < stop and submission[job] - origin == now:
            if not trace.jobs[job].infeasible:
                arrivals += 1
                _enqueue(e, job, trace, state)
            job += 1
            if not rules.batch_events:
                break
        episode.next = job
        if ended or arrivals:
            break
    _account(e, ended, rules, trace, state)
    arrived = job - episode.first
    if arrived >= episode.renewal:
        episode.renewal = 2.0 * arrived
        for k in range(len(trace.scales)):
            if math.isnan(trace.scales[k]):
                state.scales[e, k] = percentile(trace.values[k, episode.first : job])
    episode.passed = False
    if rules.backfill != Backfilling.NONE:
        for i in range(ended):
            job = state.ended[e, i]
            end = state.start[e, job - episode.first] + trace.jobs[job].requested
            remove_release(_releases(e, state), end, job)
            episode.freed = True
            if rules.backfill == Backfilling.EASY:
                episode.reserved = _NONE
    return True


@part_of_kernel
def _account(e: int, ended: int, rules: Any, trace: Trace, state: State) -> None:
    """Adds the time since the last instant and the events of this one to the reward."""
    episode = state.episodes[e]
    now = episode.now
    if rules.objective == SLOWDOWN:
        for i in range(ended):
            job = state.ended[e, i]
            submission = trace.submission[job] - trace.submission[episode.first]
            execution = now - state.start[e, job - episode.first]
            episode.total -= max((now - submission) / max(execution, rules.shortest), 1.0)
        return
    if rules.integrated:
        episode.total += episode.rate * (now - episode.since)
        episode.since = now
    if rules.objective == WEIGHTS:
        for job in range(episode.submitted, episode.next):
            if not trace.jobs[job].infeasible:
                episode.weight += trace.jobs[job].weight
        for i in range(ended):
            episode.weight -= trace.jobs[state.ended[e, i]].weight
        if not state.running[e] and episode.head == episode.tail:
            # An empty system resets rounding errors.
            episode.weight = 0.0


@part_of_kernel
def _rate(e: int, rules: Any, state: State, grid: Grid | None) -> float:
    """Returns the present value of the objective."""
    episode = state.episodes[e]
    if rules.objective == WEIGHTS:
        return -episode.weight
    if rules.objective == JOBS:
        return -float(episode.tail - episode.head + state.running[e])
    if grid is not None and rules.objective == SPEEDS:
        return on_nodes.computing_power(e, grid)
    return float(rules.cores - episode.idle) * rules.speed


@part_of_kernel
def _enqueue(e: int, job: int, trace: Trace, state: State) -> None:
    """Inserts a submitted job into every order of the queue."""
    episode = state.episodes[e]
    for k in range(len(trace.rank)):
        queue, rank, place = state.queue[e, k], trace.rank[k, job], episode.tail
        while place > episode.head and queue[place - 1] > rank:
            queue[place] = queue[place - 1]
            place -= 1
        queue[place] = rank
    episode.tail += 1


@part_of_kernel
def _dequeue(e: int, job: int, trace: Trace, state: State) -> None:
    """Removes a job from every order of the queue."""
    head, tail = state.episodes[e].head, state.episodes[e].tail
    for k in range(len(trace.rank)):
        queue, rank = state.queue[e, k], trace.rank[k, job]
        low, high = head, tail
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
    state.episodes[e].head = head + 1


@part_of_kernel
def _start(e: int, job: int, rules: Any, trace: Trace, state: State) -> None:
    """Starts a queued job that fits."""
    _dequeue(e, job, trace, state)
    episode = state.episodes[e]
    now = episode.now
    own = job - episode.first
    finish, limit = now + trace.jobs[job].runtime, now + trace.jobs[job].walltime
    if reaches_walltime(finish, limit, trace.jobs[job].delays):
        finish = limit
    state.start[e, own], state.finish[e, own] = now, finish
    push(Heap(state.ends[e], state.starts[e], state.running[e : e + 1]), finish, episode.events)
    state.log[e, episode.events] = own
    episode.events += 1
    episode.idle -= trace.cores[job]
    if rules.backfill != Backfilling.NONE:
        add_release(_releases(e, state), now + trace.jobs[job].requested, job, float(trace.cores[job]))


@part_of_kernel
def _schedule(e: int, pair: int, rules: Any, trace: Trace, state: State, grid: Grid | None) -> None:
    """Starts jobs in the order of a policy pair until one does not fit."""
    episode, order = state.episodes[e], trace.pair_order[pair]
    episode.passed = True
    if grid is not None:
        if not episode.idle:
            return
        drawn = on_nodes.draw_scores(e, trace, state, grid) if order == RANDOM_ORDER else 0
        while episode.head < episode.tail:
            at = on_nodes.lowest_score(e, drawn, grid)
            job = grid.listed[e, at] if drawn else trace.ranked[order, state.queue[e, order, episode.head]]
            if not on_nodes.place(e, job, grid.policies[pair], trace, state, grid):
                return
            grid.scores[e, at] = math.inf
            _dequeue(e, job, trace, state)
        return
    while episode.head < episode.tail:
        job = trace.ranked[order, state.queue[e, order, episode.head]]
        if trace.cores[job] > episode.idle:
            return
        _start(e, job, rules, trace, state)


@part_of_kernel
def _serve(e: int, job: int, rules: Any, trace: Trace, state: State) -> None:
    """Starts a selected job, or waits for it while others are backfilled."""
    episode = state.episodes[e]
    if trace.cores[job] <= episode.idle:
        _start(e, job, rules, trace, state)
        if rules.backfill == Backfilling.EASY:
            episode.reserved = _NONE
        return
    episode.committed = job
    if rules.backfill != Backfilling.NONE:
        _backfill(e, job, rules, trace, state)


@part_of_kernel
def _releases(e: int, state: State) -> Releases:
    return Releases(state.release[e], state.released[e], state.released_cores[e], state.releases[e : e + 1])


@part_of_kernel
def _backfill(e: int, head: int, rules: Any, trace: Trace, state: State) -> None:
    """Starts jobs that do not delay a job that is waited for, in order of submission.

    With EASY they leave the reservation alone; with RLScheduler's rule they end before its first date.
    """
    episode, queue, easy = state.episodes[e], state.queue[e, 0], rules.backfill == Backfilling.EASY
    now, idle, place = episode.now, episode.idle, episode.head
    if easy and not idle:
        return
    overdue = easy and state.releases[e] > 0 and state.release[e, 0] <= now
    if episode.reserved != head or overdue:
        episode.reserved = head
        episode.shadow, episode.extra = head_reservation(
            _releases(e, state), now, float(idle), float(trace.cores[head])
        )
    elif easy or not episode.freed:
        # Blocked jobs stay blocked: only jobs submitted now are candidates.
        place = episode.tail
        while place > episode.head and queue[place - 1] >= episode.submitted:
            place -= 1
    episode.freed = False
    shadow, extra = episode.shadow, episode.extra
    longest = longest_before(shadow, now, 1.0)
    for i in range(place, episode.tail):
        job = queue[i]
        cores, requested = trace.cores[job], trace.jobs[job].requested
        if cores > episode.idle or job == head:
            continue
        if not easy:
            if not now + requested < shadow:
                continue
        elif not (requested <= longest or cores <= extra):
            continue
        elif now + requested > shadow:
            if cores > episode.extra:
                continue
            episode.extra -= cores
        _start(e, job, rules, trace, state)


@part_of_kernel
def _show(e: int, over: bool, rules: Any, trace: Trace, state: State, grid: Grid | None, out: Outcome) -> None:
    """Writes the legal actions and the observation."""
    episode = state.episodes[e]
    head, queued, idle = episode.head, episode.tail - episode.head, episode.idle
    mask, fits, seen, cores = state.mask[e], state.fits[e], out.seen[e], trace.cores
    more = state.running[e] > 0 or episode.next < episode.stop
    first = state.queue[e, 0, head : head + min(queued, len(fits))]
    for i in range(len(first)):
        fits[i] = cores[first[i]] <= idle
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
            first, fits, trace.table, trace.submission, trace.submission[episode.first], episode.now,
            idle / rules.cores, state.times[e], state.powers[e], seen,
        )  # fmt: skip
        return
    numbers = seen[len(seen) - QUEUE_NUMBERS :]
    if grid is not None:
        on_nodes.show(e, state, grid, seen)
    if queued == 0:
        for i in range(len(numbers)):
            numbers[i] = 0.0
    else:
        for k in range(len(trace.scales)):
            order = trace.value_order[k]
            write_quantiles(
                trace.values[k], state.queue[e, order, head : episode.tail], trace.ranked[order], state.scales[e, k],
                numbers[5 * k : 5 * k + 5],
            )  # fmt: skip
        before, q = episode.length, rules.sensitivity
        change = (queued - before) / min(queued, before) if before else q
        numbers[20] = min(max((change + q) / (2 * q), 0.0), 1.0)
