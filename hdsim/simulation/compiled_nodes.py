"""Replays in compiled code on nodes: memory, several speeds, core policies by processor, contention."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from hdsim.cluster.kernels.chunks import Holdings, JobRequests
from hdsim.cluster.kernels.nodes import RANDOM
from hdsim.cluster.kernels.pcg64 import restore, words_of
from hdsim.cluster.policies import SCORES
from hdsim.cluster.requests import Requests
from hdsim.cluster.stores.nodes import NodeCores
from hdsim.contention.kernels.speeds import shared_of
from hdsim.kernels.heap import make_heap
from hdsim.scheduling.agent import StockRules, stock_rules
from hdsim.scheduling.backfill.arrays import job_requests, node_speeds
from hdsim.scheduling.kernels.node_profiles import make_node_profile, with_entries, with_steps
from hdsim.scheduling.machine import loop
from hdsim.scheduling.machine.node_plan import PLAN_STATE, NodePlan
from hdsim.scheduling.machine.nodes import NODES_STATE, Candidates, NodeRules, OnNodes
from hdsim.scheduling.machine.queue_tree import QueueTree, make_queue_tree
from hdsim.scheduling.machine.speeds import DATES, FEW, Speeds
from hdsim.simulation.compiled import CompiledReplay, has_kernel, has_plain_jobs, make_checks, make_replay
from hdsim.simulation.contended import require_speed, shared_state
from hdsim.util.intervals import IntervalSets

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster
    from hdsim.contention import Contention
    from hdsim.platform.model import Platform
    from hdsim.scheduling.machine.loop import Replay
    from hdsim.simulation.setup import ReplaySetup
    from hdsim.util.arrays import Ints
    from hdsim.workload.model import Workload

#: Kinds of chunks that have a tree each.
_MOST_TREES = 64
#: Backfilling algorithms whose replays on nodes are those of the engine in all tests.
_BACKFILLS = ("none", "easy", "greedy", "conservative")


def compiled_nodes(
    platform: Platform, workload: Workload, setup: ReplaySetup, *, kill_at_walltime: bool, batch_events: bool
) -> CompiledNodes | None:
    """Returns the replay of what has been set up, None if only the engine has what it needs."""
    rules, model = stock_rules(setup.agent), setup.contention
    plain = setup.failures is None and setup.power is None
    if rules is None or not has_kernel(rules) or rules.backfill not in _BACKFILLS or not plain:
        return None
    if (model is not None and not model.has_kernel) or not has_plain_jobs(platform, workload):
        return None
    if setup.agent.core_policy in SCORES:
        return None
    policy, refused = setup.agent.core_policy, setup.infeasible
    options = {"kill_at_walltime": kill_at_walltime, "batch_events": batch_events}
    make_state = partial(make_node_replay, platform, workload, rules, policy, model, refused, setup.rng, **options)
    return CompiledNodes(platform, workload, refused, make_state, make_checks(rules, platform.n_cpu_cores), model)


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
) -> Replay:
    """Returns a replay before its first event; see :func:`hdsim.simulation.compiled.make_replay`.

    The core policy and the contention model, None if no job can be slowed down, have kernels; `rng` is the source of
    the draws of the core policy ``random``, in its state when the replay begins.
    """
    requests, n, cores, backfill = Requests.of(workload, platform), len(workload), platform.n_cores, rules.backfill
    homogeneous = platform.homogeneous_speed
    counts = not requests.memory_matters and requests.gpus is None
    planned = backfill == "conservative" and not (counts and homogeneous)  # on nodes, else numbers of cores
    events = {"kill_at_walltime": kill_at_walltime, "batch_events": batch_events}
    on_nodes = planned or backfill != "conservative"
    replay = make_replay(workload, rules, platform.n_cpu_cores, infeasible, on_nodes=on_nodes, **events)
    store = NodeCores(platform, requests, core_policy, rng)
    fixed = workload.fixed_duration | homogeneous
    bounded = backfill == "easy" and not counts
    holds = bounded or planned
    held = n if holds else 0
    kinds: dict[tuple[float, ...], int] = {}
    requested = job_requests(requests, replay.machine.jobs.requested, fixed, kinds)
    free, allowed = store.free_nodes().arrays()
    policy = RANDOM if core_policy == "random" else store.policies[core_policy]
    fastest = platform.gflops[~platform.is_gpu].max() / platform.reference_gflops
    speed = np.where(platform.is_gpu, math.inf, platform.gflops / platform.reference_gflops)
    candidate = np.zeros(0, np.int64) if replay.ranked is None or backfill == "none" else replay.ranked.candidate
    state = np.zeros(1, NODES_STATE).view(np.recarray)
    nodes = OnNodes(
        rules=NodeRules(policy, counts, homogeneous, bounded, holds, 1.0 if homogeneous else float(fastest)),
        state=state,
        store=store.state,
        jobs=requested,
        bandwidth=np.array(requests.bandwidth),
        expected=np.zeros(n),
        speed=speed[platform.core_processor],
        slowest=node_speeds(platform).slowest,
        ids=np.zeros(cores, np.int64),
        limit=np.zeros(platform.n_nodes, np.int64),
        random=(words_of(rng), np.zeros(cores, np.int64), np.zeros(cores, bool)) if policy == RANDOM else None,
        begin=np.zeros(n, np.int64),
        end=np.zeros(n, np.int64),
        first=np.zeros(2 * n + cores, np.int32),
        last=np.zeros(2 * n + cores, np.int32),
        holdings=Holdings(
            first=np.zeros(held, np.int64),
            last=np.zeros(held, np.int64),
            node=np.zeros(2 * held + cores, np.int64),
            cores=np.zeros(2 * held + cores, np.int64),
            length=np.zeros(1, np.int64),
        ),
        candidates=_candidates(candidate, requested, 1 if counts or backfill == "conservative" else len(kinds)),
        tried=np.zeros(0 if rules.static else n, np.int64),
        rooms=np.full((2, len(kinds)), -1),
        beside=np.full((2, len(kinds)), -1),
        free=free,
        allowed=allowed,
    )
    plan = speeds = None
    if planned:
        profile = make_node_profile(free, allowed, node_speeds(platform))
        plan = NodePlan(np.zeros(1, PLAN_STATE).view(np.recarray), profile, np.zeros(n, np.int64), np.zeros(n))
    made = replay.machine
    if contention is not None:
        dates = np.array([(0, FEW, -1)], DATES).view(np.recarray)
        progress = shared_state(platform, workload)
        speeds = Speeds(contention.kernel, contention.parameters, progress, np.full(n, math.nan), dates)
        made = made._replace(ends=make_heap(max(FEW, 2 * len(made.ends.key)) + 2))
    return replay._replace(machine=made, nodes=nodes, speeds=speeds, node_plan=plan)


def _candidates(order: Ints, jobs: JobRequests, kinds: int) -> Candidates:
    """Returns an empty queue of jobs in the order of candidates, whose chunks are of a number of kinds."""
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


@dataclass(eq=False, repr=False)
class CompiledNodes(CompiledReplay):
    """A replay on nodes."""

    engine: ClassVar[Mapping[str, str]] = {"cores": "NodeCores", "mode": "compiled", "executor": "none"}

    contention: Contention | None  # the contention model, None if no job can be slowed down

    @property
    def _nodes(self) -> OnNodes:
        assert self._state.nodes is not None
        return self._state.nodes

    def _advance(self, instants: int) -> int:
        told = super()._advance(instants)
        if told == loop.FULL:
            self._make_space()
        elif told == loop.BROKEN:
            self._report_stop()
        return told

    def _make_space(self) -> None:
        nodes, plan, most = self._nodes, self._state.node_plan, len(self._nodes.ids)
        if nodes.state[0].ranges + most > len(nodes.first):
            nodes = nodes._replace(first=np.tile(nodes.first, 2), last=np.tile(nodes.last, 2))
        holdings = nodes.holdings
        if holdings.length[0] + most > len(holdings.node):
            holdings = holdings._replace(node=np.tile(holdings.node, 2), cores=np.tile(holdings.cores, 2))
            nodes = nodes._replace(holdings=holdings)
        if plan is not None:
            needed = plan.state[0]
            profile = with_steps(plan.profile, int(needed.steps_needed))
            profile = with_entries(profile, int(needed.entries_needed - profile.length[1]))
            plan = plan._replace(profile=profile)
        self._state = self._state._replace(nodes=nodes, node_plan=plan)

    def _report_stop(self) -> None:
        speeds = self._state.speeds
        assert speeds is not None and self.contention is not None
        rate = shared_of(speeds.progress).rate[speeds.dates[0].stopped]
        require_speed(float(rate), self.contention)

    def _held(self) -> tuple[Ints, IntervalSets]:
        state, nodes = self._state.machine, self._nodes
        log = state.log[: state.clock[0].events]
        started, ranges = log[log >= 0], int(nodes.state[0].ranges)
        held = IntervalSets(nodes.end[started] - nodes.begin[started], nodes.first[:ranges], nodes.last[:ranges])
        return started, held

    def fill(self, cluster: Cluster) -> None:
        super().fill(cluster)
        if self._nodes.random is not None:
            restore(cluster.rng, self._nodes.random[0])
