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

from hdsim.cluster.state import FinalState, completed
from hdsim.cluster.stores.ordered import OrderedCores, core_sets
from hdsim.decisions import objectives
from hdsim.decisions.actions.pick_job import PickJob
from hdsim.decisions.actions.policy_pair import PolicyPair
from hdsim.decisions.observations.hdeeprm import ORDER_OF, Minimal
from hdsim.decisions.observations.jobs import Jobs
from hdsim.envs.episodes import Window
from hdsim.envs.node_batch import covers_nodes, make_grid, seed_draws
from hdsim.envs.scheduling import SchedulingEnv
from hdsim.envs.shares import MASK, SEEN, Ended, Views
from hdsim.errors import ConfigError
from hdsim.kernels import episode_state
from hdsim.kernels.episode_state import EPISODE, JOB, RULES, Outcome, State, Trace
from hdsim.kernels.episodes import step
from hdsim.kernels.free_ranges import make_free_ranges, placements
from hdsim.kernels.node_episodes import STOPPED, Grid
from hdsim.kernels.rules import DECIDING, NUMBERS, TAU, Backfilling, Deciding
from hdsim.results.result import Result
from hdsim.scheduling.orders import job_order
from hdsim.scheduling.queue import ranking
from hdsim.simulation.contended import require_speed
from hdsim.util.intervals import IntervalSets
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
#: The job order of a policy pair that draws.
_RANDOM = "random"


def covers(environment: SchedulingEnv) -> bool:
    """Returns whether compiled kernels step environments like this one."""
    action, observer = environment.problem.action, environment.problem.observer
    if environment.own_kinds():
        return False
    if type(environment.objective) not in _OBJECTIVES or environment.runner is not None:
        return False
    if isinstance(observer, Minimal):
        if observer.by_workload and len(observer.scales) < len(ORDER_OF):
            return False
    elif type(observer) is not Jobs:
        return False
    if isinstance(action, PolicyPair):
        if any(job_order(name).dynamic and name != _RANDOM for name, _ in action.pairs):
            return False
    elif not isinstance(action, PickJob):
        return False
    return has_ranges(environment) or covers_nodes(environment)


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


class Batch:
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
        self._state = _state(environment, num_envs, longest, self._trace)
        self._grid: Grid | None = None
        if has_ranges(environment):
            store: Any = environment.set_up(traces[0], seed=0).cluster.cores
            self._core_of_rank = store.core_of_rank
        else:
            self._grid = make_grid(environment, traces, num_envs, longest)

    def reset(self, views: Views, seeds: Sequence[int | None], options: Mapping[str, Any] | None) -> None:
        """See :class:`hdsim.envs.shares.Share`."""
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

    def step(self, views: Views, actions: NDArray[np.int64]) -> dict[int, Ended]:
        """See :class:`hdsim.envs.shares.Share`."""
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
        """See :class:`hdsim.envs.shares.Share`."""
        return self._before

    def load_state(self, views: Views, state: Sequence[Mapping[str, Any]]) -> None:
        """See :class:`hdsim.envs.shares.Share`."""
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

    def _run(self, out: Outcome, actions: NDArray[np.int64]) -> int:
        """Steps all environments; returns the number of episodes that ended."""
        arguments: Any = actions, self._trace, self._state, self._grid, out
        own, *others = self._bounds
        compiled: Any = step
        waiting = [self._pool.submit(compiled, *bounds, *arguments) for bounds in others] if self._pool else []
        ended: int = compiled(*own, *arguments)
        ended += sum(each.result() for each in waiting)
        if self._grid is not None and self._grid.numbers[:, STOPPED].any():
            self._stopped(self._grid)
        return ended

    def _stopped(self, grid: Grid) -> None:
        """Raises the error of a contention model that stops a job."""
        e = int(grid.numbers[:, STOPPED].nonzero()[0][0])
        model = self._environment.set_up(self._traces[self._sources[e].window.trace], seed=0).contention
        assert model is not None
        require_speed(float(grid.job_floats[e, 2, grid.numbers[e, STOPPED] - 1]), model)

    def _begin(self, e: int, jobs: Workload | None = None) -> None:
        """Draws the next episode, which begins with the next step."""
        source, rng = self._sources[e], self._rngs[e]
        assert rng is not None
        self._before[e] = {"drawn": source.drawn, "source": rng.bit_generator.state}
        if jobs is None:
            window = source.draw_window(rng)
        else:
            (trace,) = (i for i, trace in enumerate(self._traces) if trace is jobs)
            window = source.window = Window(trace, 0, len(jobs))
        seed = int(rng.integers(2**63))
        if self._grid is not None:
            seed_draws(self._grid, e, seed)
        episode, first = self._state.episodes[e], self._offsets[window.trace] + window.first
        episode.fresh, episode.first, episode.stop = True, first, first + window.jobs

    def _result(self, e: int, *, truncated: bool) -> Result:
        """The replay of an episode that has ended."""
        window, episode = self._sources[e].window, self._state.episodes[e]
        trace = self._traces[window.trace]
        jobs = trace if window.jobs == len(trace) else trace[window.first : window.first + window.jobs]
        # Columns of a recarray take longer to look up.
        own = np.asarray(self._trace.jobs)[episode.first : episode.stop]
        log, start = self._state.log[e, : episode.events].copy(), self._state.start[e, : len(own)].copy()
        started, ended = log[log >= 0], ~log[log < 0]
        date, limit = start + own["runtime"], start + own["walltime"]
        finish = np.full(len(own), np.nan)
        finish[ended] = self._state.finish[e, ended]
        final = np.full(len(own), FinalState.NOT_SUBMITTED, np.int8)
        final[: episode.next - episode.first] = FinalState.QUEUED
        final[own["infeasible"] & (final == FinalState.QUEUED)] = FinalState.REJECTED
        final[started] = FinalState.RUNNING
        final[ended] = completed(jobs)[ended]
        killed = (finish < date) | (own["delays"] & (date >= limit))
        if self._grid is not None:
            killed = self._grid.killed[e, : len(own)]
        final[ended[killed[ended]]] = FinalState.COMPLETED_WALLTIME_REACHED
        sets = self._ranges(e, log, started)
        return Result.once(
            self._environment.platform, jobs, start, finish, final, started, sets,
            interrupted_at=float(episode.now) if truncated else None,
        )  # fmt: skip

    def _ranges(self, e: int, log: NDArray[np.int64], started: NDArray[np.int64]) -> IntervalSets:
        """The cores of the started jobs."""
        if self._grid is not None:
            sizes = self._grid.sizes[e, started]
            return IntervalSets.of(self._grid.held[e, : sizes.sum()], sizes)
        episode = self._state.episodes[e]
        cores = self._trace.cores[episode.first : episode.stop]
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
        "shows_rows": isinstance(observer, Jobs),
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

    def places(chosen: Iterable[str]) -> NDArray[np.int64]:
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
    rows = observer if isinstance(observer, Jobs) else Jobs()
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


def _state(environment: SchedulingEnv, num_envs: int, jobs: int, trace: Trace) -> State:
    """Returns arrays for E episodes of at most `jobs` jobs each."""
    observer, rules = environment.problem.observer, trace.rules[0]
    running = min(jobs, rules.cores)
    released = running if rules.backfill else 0

    rows = observer.queue_size if isinstance(observer, Jobs) else rules.choices

    def room(*shape: int, dtype: Any = np.float64) -> Any:
        return np.zeros((num_envs, *shape), dtype)

    return State(
        episodes=room(dtype=EPISODE).view(np.recarray),
        queue=room(len(trace.rank), jobs, dtype=np.int64),
        log=room(2 * jobs, dtype=np.int64),
        start=room(jobs),
        finish=room(jobs),
        ends=room(running),
        starts=room(running, dtype=np.int64),
        running=room(dtype=np.int64),
        ended=room(running, dtype=np.int64),
        release=room(released),
        released=room(released, dtype=np.int64),
        released_cores=room(released),
        releases=room(dtype=np.int64),
        fits=room(rows, dtype=bool),
        times=room(rows),
        powers=room(rows, dtype=np.int64),
        mask=room(environment.n_actions, dtype=bool),
        scales=room(len(ORDER_OF)),
    )
