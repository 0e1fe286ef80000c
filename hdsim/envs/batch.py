"""Environments of one process as arrays, stepped together by compiled kernels."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from gymnasium.utils import seeding
from numpy.typing import NDArray

from hdsim.cluster.kernels import nodes
from hdsim.cluster.kernels.chunks import JobRequests
from hdsim.cluster.kernels.free_ranges import make_free_ranges, placements
from hdsim.cluster.kernels.pcg64 import words_of
from hdsim.cluster.policies import SCORES
from hdsim.cluster.requests import Requests
from hdsim.cluster.state import FinalState, completed
from hdsim.cluster.stores.nodes import NodeCores
from hdsim.cluster.stores.ordered import OrderedCores, core_sets
from hdsim.decisions import objectives
from hdsim.decisions.actions.pick_job import PickJob
from hdsim.decisions.actions.policy_pair import PolicyPair
from hdsim.decisions.base import oversubscription_limit
from hdsim.decisions.observations.hdeeprm import ORDER_OF, STATES, Minimal, Normal, Small
from hdsim.decisions.observations.jobs import JobsObserver
from hdsim.envs.episodes import TraceWindow
from hdsim.envs.kernels import episode_state, node_episodes
from hdsim.envs.kernels.episode_state import EPISODE, JOB, OWN_JOB, RULES, Outcome, State, Trace
from hdsim.envs.kernels.episodes import step
from hdsim.envs.kernels.node_episodes import PRESENT, Grid
from hdsim.envs.scheduling import SchedulingEnv
from hdsim.envs.shares import MASK, SEEN, Ended, Share, Views
from hdsim.errors import ConfigError
from hdsim.platform.power import BUSY_SPEED, OVERSUBSCRIBED, PSTATES
from hdsim.results.result import Result
from hdsim.scheduling.backfill.arrays import job_requests
from hdsim.scheduling.machine import speeds
from hdsim.scheduling.orders import job_order
from hdsim.scheduling.queue import ranking
from hdsim.scheduling.rules import DECIDING, NUMBERS, TAU, Backfilling, Deciding
from hdsim.simulation.compiled import has_plain_jobs
from hdsim.simulation.contended import require_speed, shared_state
from hdsim.util.arrays import Ints
from hdsim.util.intervals import IntervalSets
from hdsim.util.units import in_bytes
from hdsim.workload.model import Workload

#: Objectives of compiled environments, which need interchangeable cores in a static order of preference as well.
_OBJECTIVES: dict[type[objectives.Objective], int] = {
    objectives.AverageJobSlowdown: episode_state.WEIGHTS,
    objectives.AverageBoundedSlowdown: episode_state.WEIGHTS,
    objectives.AverageJobCompletion: episode_state.JOBS,
    objectives.AverageUtilization: episode_state.CORES,
    objectives.Makespan: episode_state.CORES,
    objectives.BoundedSlowdown: episode_state.SLOWDOWN,
}
#: Numbers of the parts of nodes that observations show.
_SHOWN: dict[type, int] = {
    Minimal: node_episodes.NOTHING,
    Small: node_episodes.SMALL,
    Normal: node_episodes.NORMAL,
}
#: The job order of a policy pair that draws.
_RANDOM = "random"


def covers(environment: SchedulingEnv) -> bool:
    """Returns whether compiled kernels step environments like this one."""
    action, observer = environment.problem.action, environment.problem.observer
    if environment.own_kinds() or environment.facility:
        return False
    if type(environment.objective) not in _OBJECTIVES or environment.runner is not None:
        return False
    if isinstance(observer, Minimal):
        if observer.by_workload and len(observer.scales) < len(ORDER_OF):
            return False
    elif type(observer) is not JobsObserver:
        return False
    if isinstance(action, PolicyPair):
        if any(job_order(name).dynamic and name != _RANDOM for name, _ in action.pairs):
            return False
    elif not isinstance(action, PickJob):
        return False
    return has_ranges(environment) or _has_nodes(environment)


def has_ranges(environment: SchedulingEnv) -> bool:
    """Returns whether the episodes are those of interchangeable cores in an order of preference."""
    return all(_interchangeable(environment, trace) for trace in environment.episodes.traces)


def _interchangeable(environment: SchedulingEnv, jobs: Workload) -> bool:
    action = environment.problem.action
    if environment.problem.observer.sees_cores:
        return False
    static = {"random", "high_cores"}.isdisjoint({action.core_policy, *action.core_policies})
    static &= not isinstance(action, PolicyPair) or all(name != _RANDOM for name, _ in action.pairs)
    return static and isinstance(environment.set_up(jobs, seed=0).cluster.cores, OrderedCores)


def _has_nodes(environment: SchedulingEnv) -> bool:
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
    plain = setup.failures is None and setup.power is None and isinstance(cores, NodeCores)
    if not plain or (model is not None and not model.has_kernel):
        return None
    return has_plain_jobs(environment.platform, jobs) and (cores.policies, cores.node_gpus is None)


class Batch(Share):
    """Environments that are rows of arrays; each thread steps some of them.

    Args:
        environment: An environment that `covers` accepts.
        num_envs: E, the number of environments.
        threads: Threads, the calling one included.
        same_step: The next episode begins in the step that ends the one before, otherwise with the next step.
    """

    def __init__(self, environment: SchedulingEnv, num_envs: int, threads: int, same_step: bool = False) -> None:
        self._same_step = same_step
        self._environment = environment
        self._sources = [copy.copy(environment.episodes) for _ in range(num_envs)]
        self._rngs: list[np.random.Generator | None] = [None] * num_envs
        self._before: list[Mapping[str, Any]] = [{}] * num_envs
        self._over: list[int] = []
        self._bounds = list(itertools.pairwise(np.linspace(0, num_envs, threads + 1).astype(int).tolist()))
        self._pool = ThreadPoolExecutor(threads - 1) if threads > 1 else None
        self._load(environment.episodes.traces)

    def _load(self, traces: Sequence[Workload]) -> None:
        """Takes the jobs of traces and makes room for their episodes."""
        environment, num_envs = self._environment, len(self._sources)
        self._traces, self._offsets = list(traces), np.cumsum([0, *map(len, traces)]).tolist()
        self._trace = _columns(environment, traces)
        longest = max(map(len, traces))
        self._grid: Grid | None = None
        if has_ranges(environment):
            store: Any = environment.set_up(traces[0], seed=0).cluster.cores
            self._core_of_rank = store.core_of_rank
        else:
            self._grid = _grid(environment, traces, num_envs, longest)
        self._state = _state(environment, num_envs, longest, self._trace, on_nodes=self._grid is not None)

    def reset(self, views: Views, seeds: Sequence[int | None], options: Mapping[str, Any] | None) -> None:
        for key in options or {}:
            if key != "workload":
                raise ConfigError(f"expected the key workload, got '{key}'", where="options")
        jobs = (options or {}).get("workload")
        if jobs is not None and not any(jobs is trace for trace in self._traces):
            if not _interchangeable(self._environment, jobs):
                raise ConfigError(
                    "expected jobs without requests that distinguish cores, as in the other episodes", where="options"
                )
            self._load([*self._traces, jobs])
        for e, seed in enumerate(seeds):
            if seed is not None or self._rngs[e] is None:
                self._rngs[e] = seeding.np_random(seed)[0]
            self._begin(e, jobs)
        out = _outcome(views)
        self._run(out, np.zeros(len(seeds), np.int64))
        self._over = (out.terminated | out.truncated).nonzero()[0].tolist()

    def step(self, views: Views, actions: Ints) -> dict[int, Ended]:
        out = _outcome(views)
        for e in self._over:
            self._begin(e)
        self._over = []
        if not self._run(out, actions):
            return {}
        over = (out.terminated | out.truncated).nonzero()[0].tolist()
        results = {e: self._result(e, truncated=bool(out.truncated[e])).metrics for e in over}
        if not self._same_step:
            self._over = over
            return {e: Ended(metrics) for e, metrics in results.items()}
        ended = {e: Ended(metrics, views[SEEN][e].copy(), out.mask[e].copy()) for e, metrics in results.items()}
        shown = _outcome({name: array if name in (SEEN, MASK) else array.copy() for name, array in views.items()})
        for e in over:
            self._begin(e)
            step(e, e + 1, actions, self._trace, self._state, self._grid, shown)
        return ended

    def state(self) -> list[Mapping[str, Any]]:
        return self._before

    def load_state(self, views: Views, state: Sequence[Mapping[str, Any]]) -> None:
        out = _outcome(views)
        for e, kept in enumerate(state):
            rng = self._rngs[e] = np.random.default_rng(0)
            rng.bit_generator.state = kept["source"]
            self._sources[e].drawn = kept["drawn"]
            self._begin(e)
            numbers = np.zeros(len(state), np.int64)
            for action in [0, *kept["actions"].tolist()]:
                numbers[e] = action
                step(e, e + 1, numbers, self._trace, self._state, self._grid, out)
        self._over = []

    def _run(self, out: Outcome, actions: Ints) -> int:
        """Steps all environments; returns the number of episodes that ended."""
        arguments: Any = actions, self._trace, self._state, self._grid, out
        own, *others = self._bounds
        compiled: Any = step
        waiting = [self._pool.submit(compiled, *bounds, *arguments) for bounds in others] if self._pool else []
        ended: int = compiled(*own, *arguments)
        ended += sum(each.result() for each in waiting)
        # Columns of a recarray take longer to look up.
        if self._grid is not None and np.asarray(self._grid.present)["stopped"].any():
            self._stopped(self._grid)
        return ended

    def _stopped(self, grid: Grid) -> None:
        """Raises the error of a contention model that stops a job."""
        e = int(grid.present.stopped.nonzero()[0][0])
        model = self._environment.set_up(self._traces[self._sources[e].window.trace], seed=0).contention
        assert model is not None
        require_speed(float(grid.job_floats[e, 2, grid.present[e].stopped - 1]), model)

    def _begin(self, e: int, jobs: Workload | None = None) -> None:
        """Draws the next episode, which begins with the next step."""
        source, rng = self._sources[e], self._rngs[e]
        assert rng is not None
        self._before[e] = {"drawn": source.drawn, "source": rng.bit_generator.state}
        if jobs is None:
            window = source.draw_window(rng)
        else:
            (trace,) = (i for i, trace in enumerate(self._traces) if trace is jobs)
            window = source.window = TraceWindow(trace, 0, len(jobs))
        seed = int(rng.integers(2**63))
        episode, first = self._state.episodes[e], self._offsets[window.trace] + window.first
        episode.fresh, episode.first, episode.jobs = True, first, window.jobs
        if self._grid is not None:
            self._grid.clear(e, first, window.jobs)
            # As the seed of a replay does.
            self._grid.words[e] = words_of(np.random.default_rng(seed))

    def _result(self, e: int, *, truncated: bool) -> Result:
        """The replay of an episode that has ended."""
        window, episode = self._sources[e].window, self._state.episodes[e]
        trace = self._traces[window.trace]
        jobs = trace if window.jobs == len(trace) else trace[window.first : window.first + window.jobs]
        count = len(jobs)
        # Columns of a recarray take longer to look up.
        infeasible = np.asarray(self._trace.jobs)["infeasible"][episode.first :][:count]
        own = np.asarray(self._state.jobs)[e, :count]
        log = self._state.log[e, : episode.events].copy()
        started, ended = log[log >= 0], ~log[log < 0]
        final = np.full(count, FinalState.NOT_SUBMITTED, np.int8)
        final[: episode.next] = FinalState.QUEUED
        final[infeasible & (final == FinalState.QUEUED)] = FinalState.REJECTED
        final[started] = FinalState.RUNNING
        final[ended] = completed(jobs)[ended]
        final[ended[own["killed"][ended]]] = FinalState.COMPLETED_WALLTIME_REACHED
        sets = self._ranges(e, log, started)
        return Result.once(
            self._environment.platform,
            jobs,
            own["begin"].copy(),
            own["finish"].copy(),
            final,
            started,
            sets,
            interrupted_at=float(episode.now) if truncated else None,
        )

    def _ranges(self, e: int, log: Ints, started: Ints) -> IntervalSets:
        """The cores of the started jobs."""
        if self._grid is not None:
            sizes = self._grid.sizes[e, started]
            return IntervalSets.of(self._grid.held[e, : sizes.sum()], sizes)
        episode = self._state.episodes[e]
        cores = self._trace.cores[episode.first :][: episode.jobs]
        ranges = np.zeros((2, int(cores[started].sum())), np.int32)
        number, held = np.zeros(len(cores), np.int64), np.zeros(len(started) + 1, np.int64)
        idle = make_free_ranges(int(self._trace.rules.cores[0]))
        placements(log, cores, idle, 0, number, np.zeros_like(started), held, *ranges)
        return core_sets(self._core_of_rank, np.diff(held), *ranges[:, : held[-1]])

    def close(self) -> None:
        """Ends the threads."""
        if self._pool is not None:
            self._pool.shutdown()


def _outcome(views: Views) -> Outcome:
    names = (MASK, "reward", "terminated", "truncated", "invalid_action")
    return Outcome(views[SEEN].reshape(len(views[SEEN]), -1), *(views[name] for name in names))


def _rules(environment: SchedulingEnv) -> Any:
    rules = np.zeros(1, RULES).view(np.recarray)
    action: Any = environment.problem.action
    observer, objective = environment.problem.observer, environment.objective
    picks = isinstance(action, PickJob)
    settings = {
        "picks_jobs": picks,
        "choices": environment.n_actions - action.has_void,
        "void": action.has_void,
        "commit": picks and action.commit,
        "backfill": NUMBERS[action.backfilling] if picks else Backfilling.NONE,
        "decide": Deciding.USEFUL if picks else DECIDING[action.decide],
        "shows_rows": isinstance(observer, JobsObserver),
        "sensitivity": observer.sensitivity if isinstance(observer, Minimal) else 1.0,
        "objective": _OBJECTIVES[type(objective)],
        "speed": float(environment.platform.reference_gflops) if type(objective) is objectives.Makespan else 1.0,
        "integrated": objective.integrated,
        "shortest": TAU,
        "scale": environment.reward_scale,
        "max_steps": environment.max_steps or 0,
        "batch_events": environment.options["batch_events"],
        "cores": environment.platform.n_cpu_cores,
        "learns_scales": isinstance(observer, Minimal) and len(observer.scales) < len(ORDER_OF),
    }
    if type(objective) is objectives.Makespan and not has_ranges(environment):
        settings["objective"] = episode_state.SPEEDS
    for name, value in settings.items():
        rules[name] = value
    return rules


def _columns(environment: SchedulingEnv, traces: Sequence[Workload]) -> Trace:
    action, observer, objective = environment.problem.action, environment.problem.observer, environment.objective
    names = ["first"]
    if isinstance(action, PolicyPair):
        names += [name for name, _ in action.pairs if name != _RANDOM]
    if isinstance(observer, Minimal):
        names += ORDER_OF.values()
    # Names of the same order share one place.
    orders = {job_order(name).score: job_order(name) for name in names}

    def places(chosen: Iterable[str]) -> Ints:
        found = [
            episode_state.RANDOM_ORDER if name == _RANDOM else list(orders).index(job_order(name).score)
            for name in chosen
        ]
        return np.array(found, np.int64)

    def column(name: str, dtype: type = np.float64) -> NDArray[Any]:
        return np.concatenate([getattr(trace, name) for trace in traces]).astype(dtype)

    offsets = np.cumsum([0, *map(len, traces)]).tolist()
    rank, ranked = (
        np.concatenate(
            [
                np.array([ranking(trace, order)[side] for order in orders.values()], np.int64) + offset
                for trace, offset in zip(traces, offsets, strict=False)
            ],
            axis=1,
        )
        for side in (0, 1)
    )
    jobs = np.zeros(offsets[-1], JOB).view(np.recarray)
    jobs.runtime, jobs.requested, jobs.delays = column("runtime"), column("requested_time"), column("ends_in_delay")
    jobs.walltime = column("walltime") if environment.options["kill_at_walltime"] else np.inf
    jobs.weight = 1.0 / np.maximum(jobs.requested, getattr(objective, "shortest", 1.0))
    for trace, offset in zip(traces, offsets, strict=False):
        jobs.infeasible[offset + environment.set_up(trace, seed=0).infeasible] = True
    given = getattr(observer, "scales", {})
    rows = observer if isinstance(observer, JobsObserver) else JobsObserver()
    return Trace(
        rules=_rules(environment),
        jobs=jobs,
        submission=column("submission_time"),
        cores=column("requested_cores", np.int64),
        table=np.concatenate([rows.columns(trace, environment.platform).reshape(-1) for trace in traces]),
        values=np.stack([column(name) for name in ORDER_OF]),
        scales=np.array([given.get(name, np.nan) for name in ORDER_OF], np.float64),
        rank=rank,
        ranked=ranked,
        pair_order=places([name for name, _ in action.pairs] if isinstance(action, PolicyPair) else []),
        value_order=places(ORDER_OF.values() if isinstance(observer, Minimal) else []),
    )


def _state(environment: SchedulingEnv, num_envs: int, jobs: int, trace: Trace, *, on_nodes: bool) -> State:
    """Returns arrays for E episodes of at most `jobs` jobs each."""
    observer, rules = environment.problem.observer, trace.rules[0]
    running = min(jobs, rules.cores)
    released = running if rules.backfill else 0
    ends = running if not on_nodes else max(speeds.FEW, 2 * min(jobs, environment.platform.n_cores) + 2) + 2
    rows = observer.queue_size if isinstance(observer, JobsObserver) else rules.choices

    def room(*shape: int, dtype: Any = np.float64) -> Any:
        return np.zeros((num_envs, *shape), dtype)

    return State(
        episodes=room(dtype=EPISODE).view(np.recarray),
        jobs=room(jobs, dtype=OWN_JOB).view(np.recarray),
        log=room(2 * jobs, dtype=np.int64),
        ends=room(ends),
        starts=room(ends, dtype=np.int64),
        release=room(released),
        released=room(released, dtype=np.int64),
        released_cores=room(released),
        lengths=room(2, dtype=np.int64),
        queue=room(len(trace.rank), jobs, dtype=np.int64),
        fits=room(rows, dtype=bool),
        times=room(rows),
        powers=room(rows, dtype=np.int64),
        mask=room(environment.n_actions, dtype=bool),
        scales=room(len(ORDER_OF)),
    )


def _grid(environment: SchedulingEnv, traces: Sequence[Workload], num_envs: int, longest: int) -> Grid:
    """Returns the nodes of E episodes with at most `longest` jobs each, windows of traces that are covered."""
    platform, action, observer = environment.platform, environment.problem.action, environment.problem.observer
    requests = [Requests.of(trace, platform) for trace in traces]
    store = NodeCores(platform, requests[0], "random", np.random.default_rng(0))
    models = [environment.set_up(trace, seed=0).contention for trace in traces]
    model = next((each for each in models if each is not None), None)
    assert isinstance(action, PolicyPair)
    codes = store.policies | {"random": nodes.RANDOM}
    c, p, n = platform.n_cores, platform.n_processors, platform.n_nodes
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

    def room(*shape: int, dtype: Any = np.float64) -> Any:
        return np.zeros((num_envs, *shape), dtype)

    return Grid(
        model=0 if model is None else model.kernel,
        shown=_SHOWN[type(observer)],
        present=room(dtype=PRESENT).view(np.recarray),
        policies=np.array([codes[core] for _, core in action.pairs], np.int64),
        requests=JobRequests(*(np.concatenate(each) for each in zip(*chunks, strict=True))),
        bandwidth=np.concatenate([each.bandwidth for each in requests]),
        fixed=np.concatenate([trace.fixed_duration for trace in traces]),
        speed=peak[platform.core_processor],
        processor=np.stack(
            [
                platform.gflops,
                platform.gflops * (1.0 if model is None else PSTATES[OVERSUBSCRIBED].speed),
                store.nodes.processor_idle,
            ]
        ),
        capacity=np.concatenate([in_bytes(platform.memory), platform.mem_bw]),
        rows=np.stack([peak, peak * BUSY_SPEED[1], limit, peak, np.zeros(p)]),
        states=STATES,
        parameters=np.zeros((0, 0)) if model is None else model.parameters,
        unused=store.state,
        sharing=shared_state(platform, traces[0][:1]),
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
        begin=room(longest, dtype=np.int64),
        sizes=room(longest, dtype=np.int64),
        date=room(longest),
        seen_cores=room(2, c, dtype=np.int64),
        seen_jobs=room(4, c),
        seen_processors=room(5, p),
        new=room(c, dtype=np.int64),
        busy=room(p, dtype=np.int64),
    )
