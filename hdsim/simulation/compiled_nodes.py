"""Replays in compiled code on nodes: memory, several speeds, core policies by processor, contention."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from hdsim.cluster.policies import SCORES
from hdsim.cluster.requests import Requests
from hdsim.cluster.stores.nodes import NodeCores
from hdsim.kernels import node_replay
from hdsim.kernels.heap import make_heap
from hdsim.kernels.node_replay import Candidates, NodeReplay
from hdsim.kernels.pcg64 import restore, words_of
from hdsim.kernels.profiles import Holdings, JobRequests, make_releases
from hdsim.kernels.queue_tree import QueueTree, make_queue_tree
from hdsim.kernels.rules import NUMBERS, Backfilling
from hdsim.kernels.speeds import shared_of
from hdsim.scheduling.agent import StockRules, stock_rules
from hdsim.scheduling.backfill.arrays import job_requests, node_speeds
from hdsim.scheduling.queue import ranking
from hdsim.simulation.compiled import CompiledReplay, has_plain_jobs
from hdsim.simulation.contended import require_speed, shared_state
from hdsim.util.intervals import IntervalSets

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster
    from hdsim.contention import Contention
    from hdsim.platform.model import Platform
    from hdsim.simulation.setup import ReplaySetup
    from hdsim.util.arrays import Floats, Ints
    from hdsim.workload.model import Workload

#: Kinds of chunks that have a tree each.
_MOST_TREES = 64
#: Backfilling algorithms that the compiled replay knows.
_BACKFILLS = ("none", "easy", "greedy")


def compiled_nodes(
    platform: Platform, workload: Workload, setup: ReplaySetup, *, kill_at_walltime: bool, batch_events: bool
) -> CompiledNodes | None:
    """Returns the replay of what has been set up, None if only the engine has what it needs."""
    rules, model = stock_rules(setup.agent), setup.contention
    if rules is None or not rules.static or rules.backfill not in _BACKFILLS or setup.failures is not None:
        return None
    if (model is not None and not model.has_kernel) or not has_plain_jobs(platform, workload):
        return None
    if setup.agent.core_policy in SCORES:
        return None
    options = {"kill_at_walltime": kill_at_walltime, "batch_events": batch_events}
    policy, refused = setup.agent.core_policy, setup.infeasible
    make_state = partial(make_node_replay, platform, workload, rules, policy, model, refused, setup.rng, **options)
    return CompiledNodes(platform, workload, model, refused, make_state)


def make_node_replay(
    platform: Platform,
    workload: Workload,
    rules: StockRules,
    core_policy: str,
    contention: Contention | None,
    infeasible: Ints,
    rng: np.random.Generator,
    *,
    kill_at_walltime: bool,
    batch_events: bool,
) -> NodeReplay:
    """Returns a replay before its first event.

    Args:
        platform: The platform, with core ids.
        workload: The jobs.
        rules: Static orders and backfilling.
        core_policy: Core policy with a kernel.
        contention: Contention model with a kernel, None if no job can be slowed down.
        infeasible: Jobs that are rejected.
        rng: Source of the draws of the core policy ``random``, in its state when the replay begins.
        kill_at_walltime: Kill jobs at their walltime.
        batch_events: One scheduling pass per instant; otherwise one per event, arrivals first.
    """
    requests, n, cores = Requests.of(workload, platform), len(workload), platform.n_cores
    workload = rules.known(workload)
    store = NodeCores(platform, requests, core_policy, rng)
    backfill, homogeneous = NUMBERS[rules.backfill], platform.homogeneous_speed
    fixed = workload.fixed_duration | homogeneous
    counts = not requests.memory_matters and requests.gpus is None
    rank, candidate = ranking(workload, rules.order)
    place = rank
    if rules.candidates is not None:
        place, candidate = ranking(workload, rules.candidates)
    running = min(n, cores) + 1
    backfilled = n if backfill != Backfilling.NONE else 0
    on_nodes = 0 if counts else backfilled
    kinds: dict[tuple[float, ...], int] = {}
    requested = job_requests(requests, workload.requested_time, fixed, kinds)
    free, allowed = store.free_nodes().arrays()
    policy = node_replay.RANDOM if core_policy == "random" else store.policies[core_policy]
    model = 0 if contention is None else contention.kernel
    fastest = platform.gflops[~platform.is_gpu].max() / platform.reference_gflops
    ints, floats = np.zeros((9, n + 1), np.int64), np.full((7, n), math.nan)
    ints[node_replay.RANK, :n], ints[node_replay.PLACE, :n] = rank, place
    ints[node_replay.SIZE, :n] = workload.requested_cores
    ints[node_replay.IN_DELAY, :n], ints[node_replay.AT_PEAK, :n] = workload.ends_in_delay, fixed
    floats[node_replay.SUBMISSION], floats[node_replay.RUNTIME] = workload.submission_time, workload.runtime
    floats[node_replay.WALLTIME] = workload.walltime if kill_at_walltime else math.inf
    speed = np.where(platform.is_gpu, math.inf, platform.gflops / platform.reference_gflops)
    return NodeReplay(
        rules=np.array([backfill, rules.commit_head, batch_events, policy, model, counts, homogeneous]),
        numbers=np.array([0, 0, 0, 0, platform.n_cpu_cores, -1, -1, 0, node_replay.FEW, 0, -1]),
        dates=np.array([0.0, 1.0 if homogeneous else fastest, 0.0, 0.0, 0.0]),
        ints=ints,
        floats=floats,
        jobs=requested,
        bandwidth=np.array(requests.bandwidth),
        arriving=np.delete(np.arange(n), infeasible),
        first=np.zeros(2 * n + cores, np.int32),
        last=np.zeros(2 * n + cores, np.int32),
        ids=np.zeros(cores, np.int64),
        random=(words_of(rng), np.zeros(cores, np.int64), np.zeros(cores, bool))
        if policy == node_replay.RANDOM
        else None,
        speed=speed[platform.core_processor],
        slowest=node_speeds(platform).slowest,
        rooms=np.full((2, len(kinds)), -1),
        beside=np.full((2, len(kinds)), -1),
        limit=np.zeros(platform.n_nodes, np.int64),
        agenda=make_heap(max(node_replay.FEW, 2 * running) + 2),
        waiting=make_heap(n),
        candidates=_candidates(candidate[:backfilled], requested, len(kinds) if on_nodes else 1),
        releases=make_releases(running if backfilled else 0),
        holdings=Holdings(
            first=np.zeros(on_nodes, np.int64),
            last=np.zeros(on_nodes, np.int64),
            node=np.zeros(2 * on_nodes + cores, np.int64),
            cores=np.zeros(2 * on_nodes + cores, np.int64),
            length=np.zeros(1, np.int64),
        ),
        free=free,
        allowed=allowed,
        nodes=store.state,
        progress=shared_state(platform, workload),
        parameters=np.zeros((0, 0)) if contention is None else contention.parameters,
    )


def _candidates(order: Ints, jobs: JobRequests, kinds: int) -> Candidates:
    """Returns an empty queue.

    Args:
        order: The jobs in the order of candidates.
        jobs: Their requests.
        kinds: Number of kinds of their chunks.
    """
    trees = kinds if 1 < kinds <= _MOST_TREES else 1
    kind = jobs.kind[order] if trees > 1 else np.zeros(len(order), np.int64)
    job = order[np.argsort(kind, kind="stable")]
    number = np.bincount(kind, minlength=trees)
    first = np.append(0, np.cumsum(number))
    place = np.empty(len(order), np.int64)
    place[job] = np.arange(len(order)) - first[:-1].repeat(number)
    parts = [make_queue_tree(count) for count in number.tolist()]
    cores = np.zeros(trees, np.int64)
    if trees > 1:
        cores[jobs.kind] = jobs.cores
    return Candidates(
        QueueTree(*(np.concatenate(each) for each in zip(*parts, strict=True))),
        np.append(0, np.cumsum([len(part.size) for part in parts])),
        first,
        job,
        place,
        cores,
        np.full(trees, -1),
        np.zeros(trees, np.int64),
    )


class CompiledNodes(CompiledReplay[NodeReplay]):
    """A replay on nodes.

    Args:
        platform: The platform.
        workload: The jobs.
        contention: The contention model.
        infeasible: Jobs that are rejected.
        make_state: Makes the replay before its first event.
    """

    engine: ClassVar[Mapping[str, str]] = {"cores": "NodeCores", "mode": "compiled", "executor": "none"}

    def __init__(
        self,
        platform: Platform,
        workload: Workload,
        contention: Contention | None,
        infeasible: Ints,
        make_state: Callable[[], NodeReplay],
    ) -> None:
        super().__init__(platform, workload, infeasible, make_state)
        self._contention = contention

    @property
    def now(self) -> float:
        """See :class:`CompiledReplay`."""
        return float(self._state.dates[node_replay.NOW])

    def _advance(self, instants: int) -> bool:
        state = self._state
        told = node_replay.replay(state, instants)
        if told == node_replay.FULL:
            holdings = state.holdings
            first, last, node, cores = (
                np.concatenate([each, each]) for each in (state.first, state.last, holdings.node, holdings.cores)
            )
            self._state = state._replace(first=first, last=last, holdings=holdings._replace(node=node, cores=cores))
        elif told == node_replay.BROKEN:
            assert self._contention is not None
            rate = shared_of(state.progress).rate[state.numbers[node_replay.STOPPED]]
            require_speed(float(rate), self._contention)
        return bool(told == node_replay.OVER)

    def _columns(self) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        floats, killed = self._state.floats, self._state.ints[node_replay.KILLED, :-1] == 1
        return floats[node_replay.BEGIN], floats[node_replay.FINISH], killed

    def _held(self) -> tuple[Ints, IntervalSets]:
        state = self._state
        starts = int(state.numbers[node_replay.STARTED])
        places = state.ints[node_replay.HELD, : starts + 1]
        held = IntervalSets(np.diff(places), state.first[: places[-1]], state.last[: places[-1]])
        return state.ints[node_replay.JOB, :starts].copy(), held

    def fill(self, cluster: Cluster) -> None:
        """See :meth:`CompiledReplay.fill`."""
        super().fill(cluster)
        if self._state.random is not None:
            restore(cluster.rng, self._state.random[0])
