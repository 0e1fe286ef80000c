"""Forks in compiled code: the rest of a replay under a stock agent on interchangeable cores."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hdsim.kernels import counted_replay
from hdsim.kernels.profiles import add_release
from hdsim.simulation.compiled import CompiledCores, compiled_cores
from hdsim.util.arrays import sorted_within
from hdsim.util.intervals import IntervalSets

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster
    from hdsim.kernels.counted_replay import CountedReplay
    from hdsim.simulation.engine import Engine, Rest
    from hdsim.simulation.setup import Setup
    from hdsim.util.arrays import Floats, Ints


def continued_replay(
    setup: Setup, env: Engine, *, kill_at_walltime: bool, batch_events: bool
) -> ContinuedReplay | None:
    """Returns the rest of a replay in compiled code, None if only the engine has what it needs.

    The rest begins with a scheduling pass at the present instant, in which all queued jobs count as submitted.

    Args:
        setup: Agent and models.
        env: The engine, between two instants.
        kill_at_walltime: See :class:`hdsim.simulation.simulation.Simulation`.
        batch_events: See there.
    """
    cluster, rest = env.cluster, env.rest()
    changed = cluster.allocations.closed or cluster.allocations.restarts or cluster.requests.open_ended
    if rest is None or changed or not batch_events or not cluster.has_core_ids:
        return None
    now, submission = cluster.now, cluster.workload.submission_time[rest.coming.start : rest.coming.stop]
    if (rest.dates <= now).any() or (submission <= now).any():
        return None
    options = {"kill_at_walltime": kill_at_walltime, "batch_events": batch_events}
    made = compiled_cores(cluster.platform, cluster.workload, setup, **options)
    return None if made is None else ContinuedReplay(made, cluster, rest)


class ContinuedReplay(CompiledCores):
    """The rest of a replay.

    Args:
        fresh: The same replay before its first event.
        cluster: The state.
        rest: Run times of all jobs, dates of the running ones and arrivals.
    """

    def __init__(self, fresh: CompiledCores, cluster: Cluster, rest: Rest) -> None:
        super().__init__(fresh._platform, fresh._workload, fresh._ranked, fresh._infeasible, fresh._make_state)
        self._cluster, self._rest = cluster, rest
        self._running = list(cluster.running)
        # Jobs that the rest is about.
        self._open = np.zeros(len(cluster.workload), bool)
        self._open[[*self._running, *cluster.queue, *rest.coming]] = True

    @cached_property
    def _state(self) -> CountedReplay:
        fresh, cluster, rest, running = self._make_state(), self._cluster, self._rest, self._running
        rank_of_core = np.zeros(self._platform.n_cores, np.int32)
        rank_of_core[self._ranked] = np.arange(len(self._ranked))
        queued = np.fromiter(cluster.queue, np.int64, len(cluster.queue))
        coming = np.setdiff1d(np.array(rest.coming, np.int64), self._infeasible)
        state = fresh._replace(arriving=np.concatenate([queued, coming]), runtime=np.array(rest.runtimes, np.float64))
        state.submission[queued] = cluster.now
        state.numbers[counted_replay.STARTED], state.dates[counted_replay.NOW] = len(running), cluster.now
        state.starting_time[running] = np.array(cluster.starting_time)[running]
        state.started[: len(running)] = running
        state.killed[rest.killed] = True
        ranks = rank_of_core[cluster.cores.cores_of(list(cluster.running.values()), state.size[running])]
        # Ranges of each job, the highest first.
        top = np.int32(len(self._ranked) - 1)
        sizes = state.size[running]
        held = IntervalSets.of(sorted_within(top - ranks, sizes), sizes)
        state.held[1 : len(running) + 1] = np.cumsum(held.counts)
        state.first[: len(held.first)], state.last[: len(held.first)] = top - held.last, top - held.first
        busy = np.zeros(len(self._ranked), bool)
        busy[ranks] = True
        idle = np.flatnonzero(~busy).astype(np.int32)
        ranges = IntervalSets.of(idle, np.array([len(idle)]))
        state.idle.length[:] = len(ranges.first), len(idle)
        state.idle.first[: len(ranges.first)], state.idle.last[: len(ranges.first)] = ranges.first, ranges.last
        order = np.lexsort((np.arange(len(running)), rest.dates))
        state.ends.key[: len(running)], state.ends.item[: len(running)] = rest.dates[order], order
        state.ends.length[0] = len(running)
        if len(state.releases.end):
            for job in running:
                end = state.starting_time[job] + state.requested[job]
                add_release(state.releases, float(end), job, float(state.size[job]))
        return state

    def _columns(self) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        begin, finish, killed = super()._columns()
        cluster, new = self._cluster, self._open
        return np.where(new, begin, cluster.starting_time), np.where(new, finish, cluster.finish_time), killed

    def _held(self) -> tuple[Ints, IntervalSets]:
        cluster, (started, held) = self._cluster, super()._held()
        earlier = np.fromiter(cluster.placements, np.int64, len(cluster.placements))
        sizes = self._workload.requested_cores[earlier]
        before = IntervalSets.of(cluster.cores.cores_of(list(cluster.placements.values()), sizes), sizes)
        late = np.arange(len(self._running), len(started))
        return np.concatenate([earlier, started[late]]), IntervalSets.concatenate([before, held[late]])

    def _final_states(self) -> NDArray[np.int8]:
        return np.where(self._open, super()._final_states(), np.array(self._cluster.state, np.int8))

    def fill(self, cluster: Cluster) -> None:
        """Gives the cluster of the fork the state at the end."""
        for job in self._running:
            cluster.cores.release(job, cluster.running.pop(job))
        cluster.queue.clear()
        super().fill(cluster)
