"""Nodes of environments that compiled kernels step: which ones are covered, and their arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hdsim.cluster.policies import SCORES
from hdsim.cluster.requests import Requests
from hdsim.cluster.stores.nodes import NodeCores
from hdsim.decisions.actions.policy_pair import PolicyPair
from hdsim.decisions.base import oversubscription_limit
from hdsim.decisions.observations.hdeeprm import STATES, Minimal, Normal, Small
from hdsim.kernels import machine_speeds, node_episodes, nodes
from hdsim.kernels.node_episodes import Grid
from hdsim.kernels.pcg64 import words_of
from hdsim.kernels.profiles import JobRequests
from hdsim.platform.power import BUSY_SPEED, OVERSUBSCRIBED, PSTATES
from hdsim.scheduling.backfill.arrays import job_requests
from hdsim.simulation.compiled import has_plain_jobs
from hdsim.simulation.contended import shared_state
from hdsim.util.units import in_bytes

if TYPE_CHECKING:
    from hdsim.envs.scheduling import SchedulingEnv
    from hdsim.workload.model import Workload

_SHOWN: dict[type, int] = {
    Minimal: node_episodes.NOTHING,
    Small: node_episodes.SMALL,
    Normal: node_episodes.NORMAL,
}


def covers_nodes(environment: SchedulingEnv) -> bool:
    """Returns whether kernels step environments like this one, whose objective and job orders have some."""
    action, observer, traces = environment.problem.action, environment.problem.observer, environment.episodes.traces
    if not isinstance(action, PolicyPair) or type(observer) not in _SHOWN:
        return False
    if not set(SCORES).isdisjoint(action.core_policies):
        return False
    kinds = [_kind(environment, trace) for trace in traces]
    return kinds[0] is not None and all(kind == kinds[0] for kind in kinds)


def _kind(environment: SchedulingEnv, jobs: Workload) -> Any:
    """Returns what the episodes of covered traces have in common, None if a trace is not covered."""
    setup = environment.set_up(jobs, seed=0)
    model, cores = setup.contention, setup.cluster.cores
    if setup.failures is not None or (model is not None and not model.has_kernel) or not isinstance(cores, NodeCores):
        return None
    return has_plain_jobs(environment.platform, jobs) and (cores.policies, cores.node_gpus is None)


def make_grid(environment: SchedulingEnv, traces: Sequence[Workload], num_envs: int, longest: int) -> Grid:
    """Returns the nodes of E episodes with at most `longest` jobs each, windows of traces that are covered."""
    platform, action, observer = environment.platform, environment.problem.action, environment.problem.observer
    requests = [Requests.of(trace, platform) for trace in traces]
    store = NodeCores(platform, requests[0], "random", np.random.default_rng(0))
    models = [environment.set_up(trace, seed=0).contention for trace in traces]
    model = next((each for each in models if each is not None), None)
    assert isinstance(action, PolicyPair)
    codes = store.policies | {"random": nodes.RANDOM}
    c, p, n = platform.n_cores, platform.n_processors, platform.n_nodes
    fixed = np.concatenate([trace.fixed_duration for trace in traces])
    chunks = [
        job_requests(each, trace.requested_time, trace.fixed_duration, {})
        for each, trace in zip(requests, traces, strict=True)
    ]
    # Cores and GPUs of the jobs of an episode.
    held = np.append(0, np.cumsum(np.concatenate([trace.requested_cores + trace.requested_gpus for trace in traces])))
    most = int((held[longest:] - held[:-longest]).max())
    # GPUs hold no job back.
    peak = np.where(platform.is_gpu, np.inf, platform.gflops / platform.reference_gflops)
    limit = oversubscription_limit(platform)
    sharing, dates = shared_state(platform, traces[0][:1]), max(machine_speeds.FEW, 2 * min(longest, c) + 2) + 2

    def room(*shape: int, dtype: Any = np.float64) -> NDArray[Any]:
        return np.zeros((num_envs, *shape), dtype)

    return Grid(
        settings=np.array([0 if model is None else model.kernel, _SHOWN[type(observer)]]),
        policies=np.array([codes[core] for _, core in action.pairs], np.int64),
        requests=JobRequests(*(np.concatenate(each) for each in zip(*chunks, strict=True))),
        bandwidth=np.concatenate([each.bandwidth for each in requests]),
        fixed=fixed,
        speed=peak[platform.core_processor],
        processor=np.stack([
            platform.gflops,
            platform.gflops * (1.0 if model is None else PSTATES[OVERSUBSCRIBED].speed),
            store.nodes.processor_idle,
        ]),
        capacity=np.concatenate([in_bytes(platform.memory), platform.mem_bw]),
        rows=np.stack([peak, peak * BUSY_SPEED[1], limit, peak, np.zeros(p)]),
        states=STATES,
        parameters=np.zeros((0, 0)) if model is None else model.parameters,
        unused=store.state,
        sharing=sharing,
        idle=room(c, dtype=bool),
        processors=room(5, p + 1, dtype=np.int64),
        nodes=room(9, n + 1, dtype=np.int64),
        amounts=room(n + p + n),
        core_ints=room(3, c, dtype=np.int64),
        core_floats=room(2, c),
        processor_floats=room(2, p),
        job_ints=room(3, longest, dtype=np.int64),
        job_floats=room(5, longest),
        work_ints=room(8, c + p + 1, dtype=np.int64),
        work_floats=room(4, c),
        words=room(3, 4, dtype=np.uint64),
        order=room(c, dtype=np.int64),
        among=room(c, dtype=bool),
        scores=room(longest),
        listed=room(longest, dtype=np.int64),
        ids=room(c, dtype=np.int64),
        held=room(most, dtype=np.int32),
        first=room(longest, dtype=np.int64),
        sizes=room(longest, dtype=np.int64),
        date=room(longest),
        killed=room(longest, dtype=bool),
        dates=room(dates),
        changes=room(dates, dtype=np.int64),
        entries=room(dtype=np.int64),
        numbers=room(6, dtype=np.int64),
        seen_cores=room(2, c, dtype=np.int64),
        seen_jobs=room(4, c),
        seen_processors=room(5, p),
        new=room(c, dtype=np.int64),
        busy=room(p, dtype=np.int64),
    )  # fmt: skip


def seed_draws(grid: Grid, e: int, seed: int) -> None:
    """Sets the random generator of an episode as the seed of its replay does."""
    grid.words[e] = words_of(np.random.default_rng(seed))
