"""Forks in compiled code: the rest of a replay under a stock agent."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hdsim.cluster.kernels.free_ranges import FreeRanges, make_free_ranges
from hdsim.cluster.stores.nodes import NodeCores
from hdsim.kernels.heap import make_heap
from hdsim.scheduling.agent import stock_rules
from hdsim.scheduling.kernels.profiles import add_release
from hdsim.simulation.compiled import CompiledCores, CompiledReplay, compiled_cores
from hdsim.simulation.compiled_nodes import CompiledNodes, compiled_nodes
from hdsim.util.arrays import Flags, Floats, Ints, sorted_within
from hdsim.util.intervals import IntervalSets

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster
    from hdsim.kernels.heap import Heap
    from hdsim.scheduling.machine.loop import Replay
    from hdsim.scheduling.machine.state import Machine
    from hdsim.simulation.engine import Engine, Rest
    from hdsim.simulation.setup import ReplaySetup


def continued_replay(
    setup: ReplaySetup, env: Engine, *, kill_at_walltime: bool, batch_events: bool
) -> ContinuedCores | ContinuedNodes | None:
    """Returns the rest of a replay in compiled code, None if only the engine has what it needs.

    The rest begins with a scheduling pass at the present instant, in which all queued jobs count as submitted.
    """
    cluster, rest, held, rules = env.cluster, env.rest(), env.cluster.allocations, stock_rules(setup.agent)
    if rules is None or not rules.static:
        return None
    changed = held.closed or held.begin or held.restarts or cluster.requests.open_ended
    if rest is None or changed or not batch_events or not cluster.has_core_ids:
        return None
    now, submission = cluster.now, cluster.workload.submission_time[rest.coming.start : rest.coming.stop]
    if any(rest.dates[job] <= now for job in cluster.running) or (submission <= now).any():
        return None
    jobs, events = cluster.workload, {"kill_at_walltime": kill_at_walltime, "batch_events": batch_events}
    counted = compiled_cores(cluster.platform, jobs, setup, **events)
    if counted is not None:
        return ContinuedCores(counted, cluster, rest)
    setup = replace(setup, rng=cluster.rng)
    on_nodes = compiled_nodes(cluster.platform, jobs, setup, **events) if type(cluster.cores) is NodeCores else None
    return None if on_nodes is None else ContinuedNodes(on_nodes, cluster, rest)


class Continued(CompiledReplay):
    """The rest of a replay, beside the class of whole replays."""

    def __init__(self, fresh: CompiledReplay, cluster: Cluster, rest: Rest) -> None:
        vars(self).update(vars(fresh))
        self._cluster, self._rest = cluster, rest
        self._running = list(cluster.running)
        # Jobs that the rest is about.
        self._open = np.zeros(len(cluster.workload), bool)
        self._open[[*self._running, *cluster.queue, *rest.coming]] = True

    def _present(self, fresh: Replay) -> Machine:
        """Returns the state now but for ends and expected ends; queued jobs arrive now, others later."""
        cluster, rest, running = self._cluster, self._rest, self._running
        queued = np.fromiter(cluster.queue, np.int64, len(cluster.queue))
        arriving = np.concatenate([queued, np.setdiff1d(np.array(rest.coming, np.int64), self.infeasible)])
        jobs = fresh.machine.jobs._replace(runtime=np.array(rest.runtimes, np.float64))
        state = fresh.machine._replace(arriving=arriving, jobs=jobs)
        jobs.arrival[queued] = cluster.now
        state.starting_time[running] = np.array(cluster.starting_time)[running]
        state.log[: len(running)], state.killed[rest.killed] = running, True
        clock = state.clock[0]
        clock.now, clock.events, clock.idle = cluster.now, len(running), cluster.n_idle
        return state

    def _cores(self, jobs: list[int]) -> tuple[NDArray[np.int32], Ints]:
        """Returns the core ids of started jobs, ascending for each, and their numbers."""
        placements = [self._cluster.placements[job] for job in jobs]
        sizes = np.fromiter(map(len, placements), np.int64, len(placements))
        return self._cluster.cores.cores_of(placements, sizes), sizes

    def _columns(self) -> tuple[Floats, Floats, Flags]:
        begin, finish, killed = super()._columns()
        cluster, new = self._cluster, self._open
        return np.where(new, begin, cluster.starting_time), np.where(new, finish, cluster.finish_time), killed

    def _held(self) -> tuple[Ints, IntervalSets]:
        started, held = super()._held()  # type: ignore[safe-super]
        earlier = list(self._cluster.placements)
        late = np.arange(len(self._running), len(started))
        before = IntervalSets.of(*self._cores(earlier))
        return np.concatenate([np.array(earlier, np.int64), started[late]]), IntervalSets.concatenate(
            [before, held[late]]
        )

    def _final_states(self) -> NDArray[np.int8]:
        return np.where(self._open, super()._final_states(), np.array(self._cluster.state, np.int8))

    def fill(self, cluster: Cluster) -> None:
        """Gives the cluster of the fork the state at the end."""
        for job in self._running:
            cluster.cores.release(job, cluster.running.take(job))
        cluster.queue.empty()
        super().fill(cluster)


class ContinuedCores(Continued, CompiledCores):
    """The rest of a replay on interchangeable cores."""

    @cached_property
    def _state(self) -> Replay:
        fresh, running = self.make_state(), self._running
        state = self._present(fresh)
        jobs, ends = state.jobs, state.ends
        _set_ends(ends, running, self._rest)
        if len(state.releases.end):
            for job in running:
                end = state.starting_time[job] + jobs.requested[job]
                add_release(state.releases, float(end), job, float(jobs.size[job]))
        return fresh._replace(machine=state)

    def _begin(self, held: Ints, first: NDArray[np.int32], last: NDArray[np.int32]) -> tuple[FreeRanges, int]:
        top, rank_of_core = np.int32(len(self.ranked) - 1), np.zeros(self.platform.n_cores, np.int32)
        rank_of_core[self.ranked] = np.arange(len(self.ranked))
        cores, sizes = self._cores(self._running)
        ranks, busy = rank_of_core[cores], np.zeros(len(self.ranked), bool)
        # Ranges of each job, the highest first.
        sets = IntervalSets.of(sorted_within(top - ranks, sizes), sizes)
        held[1 : len(sizes) + 1] = np.cumsum(sets.counts)
        first[: len(sets.first)], last[: len(sets.first)] = top - sets.last, top - sets.first
        busy[ranks] = True
        left = np.flatnonzero(~busy).astype(np.int32)
        idle, ranges = make_free_ranges(len(self.ranked)), IntervalSets.of(left, np.array([len(left)]))
        idle.length[:] = len(ranges.first), len(left)
        idle.first[: len(ranges.first)], idle.last[: len(ranges.first)] = ranges.first, ranges.last
        return idle, len(sizes)


class ContinuedNodes(Continued, CompiledNodes):
    """The rest of a replay on nodes."""

    @cached_property
    def _state(self) -> Replay:
        fresh, cluster, rest, running = self.make_state(), self._cluster, self._rest, self._running
        state, speeds, nodes = self._present(fresh), fresh.speeds, fresh.nodes
        assert nodes is not None
        # The kernel changes these, and the cluster is needed for the result.
        store: Any = tuple(each.copy() for each in cluster.cores.state)
        # The store may know other core policies of one's own, so that numbers differ.
        policy = cluster.cores.policies.get(cluster.cores.policy, nodes.rules.policy)
        nodes = nodes._replace(store=store, rules=nodes.rules._replace(policy=policy))
        if speeds is None:
            _set_ends(state.ends, running, rest)
        else:
            assert rest.progress is not None
            progress: Any = tuple(each.copy() for each in rest.progress)
            entries, jobs = len(rest.entries), len(self.workload)
            agenda = make_heap(max(len(state.ends.key), entries + 2, rest.limit + 2))
            # Entries in order are a heap.
            agenda.key[:entries] = [date for date, _ in rest.entries]
            agenda.item[:entries] = [number * jobs + job for number, (_, job) in enumerate(rest.entries)]
            agenda.length[0] = entries
            state, speeds = state._replace(ends=agenda), speeds._replace(progress=progress)
            speeds.date[running] = [rest.dates[job] for job in running]
            speeds.dates[0].set, speeds.dates[0].limit = entries, rest.limit
        held = IntervalSets.of(*self._cores(running))
        places = np.append(0, np.cumsum(held.counts))
        nodes.begin[running], nodes.end[running] = places[:-1], places[1:]
        nodes.state[0].ranges = len(held.first)
        nodes.first[: len(held.first)], nodes.last[: len(held.first)] = held.first, held.last
        holdings, place = nodes.holdings, 0
        for job in running:
            placement, speed = cluster.running[job], 1.0
            if not nodes.jobs.fixed[job]:
                speed = float(cluster.cores.slowest(placement))
            end = nodes.expected[job] = cluster.starting_time[job] + float(nodes.jobs.time[job]) / speed
            if len(state.releases.end):
                add_release(state.releases, end, job, float(len(placement.cores)))
            if nodes.rules.holds:
                last = place + len(placement.nodes)
                holdings.first[job], holdings.last[job] = place, last
                holdings.node[place:last], holdings.cores[place:last] = placement.nodes, placement.node_counts
                holdings.length[0] = place = last
        return fresh._replace(machine=state, nodes=nodes, speeds=speeds)


def _set_ends(ends: Heap, running: list[int], rest: Rest) -> None:
    """Adds the dates of running jobs, each with its place among them."""
    dates = np.array([rest.dates[job] for job in running], np.float64)
    order = np.lexsort((np.arange(len(running)), dates))
    ends.key[: len(running)], ends.item[: len(running)] = dates[order], order
    ends.length[0] = len(running)
