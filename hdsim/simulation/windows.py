"""Windows of traces: jobs that an agent is measured on, which come to an empty or to a busy machine.

A warm window begins in the state that a base policy leaves: the jobs before the window run or wait, and only the jobs
of the window count. On interchangeable cores the state is part of a compiled replay.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from hdsim.errors import ConfigError, WorkloadError, not_one_of
from hdsim.platform.model import Platform
from hdsim.results.metrics import bounded_slowdown, slowdown, statistics
from hdsim.scheduling.agent import Agent, StockRules, make_agent, stock_rules
from hdsim.scheduling.learned.like_jobs import note_ends
from hdsim.scheduling.machine.loop import OVER
from hdsim.simulation.compiled import advance, has_kernel, interchangeable_cores, make_checks, make_replay
from hdsim.simulation.setup import Model
from hdsim.simulation.simulation import Simulation, simulate

if TYPE_CHECKING:
    from hdsim.util.arrays import Floats, Ints
    from hdsim.workload.model import Workload

#: Seconds from the moment at which the agent takes over from the base policy to the first job of a window.
_BEFORE = 1.0
#: Quantities of the jobs of a window; every statistic of them is a metric.
_QUANTITIES = {
    "waiting_time": lambda wait, runtime: wait,
    "turnaround_time": lambda wait, runtime: wait + runtime,
    "slowdown": lambda wait, runtime: slowdown(wait + runtime, runtime),
    "bounded_slowdown": lambda wait, runtime: bounded_slowdown(wait + runtime, runtime),
}


@dataclass(frozen=True)
class Window:
    """Jobs that an agent is measured on, and the jobs before them.

    Attributes:
        workload: The jobs of the warm-up and those of the window.
        warmup: Number of jobs of the warm-up; 0: the window comes to the empty machine.
        base: Policy of the warm-up.
        trace: Number of the trace in its set.
        platform: The platform; None: as many interchangeable cores as the trace is for, see :func:`machine`.
    """

    workload: Workload
    warmup: int = 0
    base: str = "easy"
    trace: int = 0
    platform: Platform | None = None

    @cached_property
    def begin(self) -> float:
        """Seconds after the first submission at which the agent takes over, -inf without a warm-up."""
        return float(self.workload.submission_time[self.warmup]) - _BEFORE if self.warmup else -math.inf

    @cached_property
    def arrivals(self) -> tuple[Ints, Floats]:
        """The jobs that matter from `begin` on in order of their releases, and (J,) releases in seconds.

        A running job is released at its start, where it starts at once under every policy, a waiting one when the agent
        takes over, and a later one at its submission.
        """
        workload = self.workload
        release = workload.submission_time.copy()
        if not self.warmup:
            return np.arange(len(workload)), release
        before = slice(None, self.warmup)
        start, finish = self._warm
        waiting = (release[before] <= self.begin) & (start > self.begin)
        running = (start <= self.begin) & (finish > self.begin)
        release[before] = np.where(running, start, np.where(waiting, self.begin, release[before]))
        matters = np.flatnonzero(
            np.concatenate(
                [running | waiting | (release[before] > self.begin), np.ones(len(workload) - self.warmup, bool)]
            )
        )
        return matters[np.argsort(release[matters], kind="stable")], release

    @cached_property
    def ended(self) -> tuple[Ints, Floats, Floats]:
        """The (E,) jobs of the warm-up that have ended when the agent takes over, with start and finish in seconds."""
        rows = np.setdiff1d(np.arange(self.warmup), self.arrivals[0])
        start, finish = self._warm
        return rows, start[rows], finish[rows]

    @property
    def _machine(self) -> Platform:
        return machine(self.workload.cluster_cores) if self.platform is None else self.platform

    def starts(
        self, agent: Model | Agent, *, seed: int = 0, batch_events: bool = True, **models: Model
    ) -> tuple[Floats, Floats]:
        """Replays the window.

        Args:
            agent: The agent that takes over; see :func:`hdsim.scheduling.agent.make_agent`.
            seed: Seed of the replay.
            batch_events: See :class:`hdsim.simulation.simulation.Simulation`.
            models: Contention, network and failures, see there.

        Returns:
            Start and finish of the jobs of the window in seconds after the first submission of the warm-up.

        Raises:
            ConfigError: The agent leaves jobs of the window waiting.
        """
        agent, platform, workload = make_agent(agent), self._machine, self.workload
        rules = None if models else stock_rules(agent)
        if (
            rules is not None
            and has_kernel(rules)
            and (ranked := interchangeable_cores(platform, workload, agent.core_policy)) is not None
        ):
            start, finish = self._replay(rules, len(ranked), batch_events)
        else:
            options: dict[str, Any] = {"seed": seed, "batch_events": batch_events, **models}
            simulation = Simulation(platform, workload, self.base if self.warmup else agent, **options)
            if self.warmup:
                simulation.run_until(self.begin)
                simulation = simulation.fork(agent, runtimes="actual", arrivals="actual")
            result = simulation.run()
            start, finish = result.starting_time, result.finish_time
        if np.isnan(finish[self.warmup :]).any():
            raise ConfigError(
                "expected an agent that starts every job, got one that leaves jobs waiting", where="agent"
            )
        return start[self.warmup :], finish[self.warmup :]

    def _replay(self, rules: StockRules, cores: int, batch_events: bool) -> tuple[Floats, Floats]:
        """Replays in compiled code; returns (J,) start and finish of all jobs, NaN for some of the warm-up."""
        (arriving, release), nothing = self.arrivals, np.zeros(0, np.int64)
        replay = make_replay(self.workload, rules, cores, nothing, batch_events=batch_events)
        replay, checks = replay.with_arrivals(arriving, release.copy()), make_checks(rules, cores)
        state = replay.machine
        if replay.scored is not None:
            # The network is checked on the jobs that have ended, too.
            ended, *dates = self.ended
            state.starting_time[ended], state.finish_time[ended] = dates
            note_ends(replay.scored.latest, replay.scored.kind, ended, *dates)
        if self.warmup:
            # The jobs that wait when the agent takes over are in one scheduling pass.
            batched = replay.under(batch=True)
            while release[arriving[state.clock[0].arrived]] <= self.begin:
                advance(batched, checks, 1)
        while advance(replay, checks, 4 * len(self.workload)) != OVER:
            pass
        return state.starting_time, state.finish_time

    @cached_property
    def _warm(self) -> tuple[Floats, Floats]:
        """(W,) start and finish of the warm-up under the base policy."""
        if not self.warmup:
            return np.zeros(0), np.zeros(0)
        warm = self.workload[: self.warmup]
        start = simulate(self._machine, warm, self.base).starting_time
        return start, start + warm.runtime

    def score(self, agent: Model | Agent, metric: str = "mean_bounded_slowdown", **options: Any) -> float:
        """Returns a metric of the jobs of the window under an agent.

        Args:
            agent: See :meth:`starts`.
            metric: A statistic of a quantity of jobs, such as ``mean_waiting_time`` and ``p95_bounded_slowdown``.
            **options: See :meth:`starts`.
        """
        start, finish = self.starts(agent, **options)
        return metric_of(metric, start - self.workload.submission_time[self.warmup :], finish - start)


def metric_of(metric: str, wait: Floats, runtime: Floats) -> float:
    """Returns a metric of jobs.

    Args:
        metric: See :meth:`Window.score`.
        wait: (J,) s.
        runtime: (J,) s.

    Raises:
        ConfigError: There is no such metric.
    """
    kind, _, quantity = metric.partition("_")
    if quantity not in _QUANTITIES:
        raise ConfigError(not_one_of(quantity, _QUANTITIES), where=f"metric {metric}")
    values = _QUANTITIES[quantity](wait, runtime)
    if kind == "mean":
        return float(values.mean())
    found = statistics(quantity, values)
    if metric not in found:
        raise ConfigError(not_one_of(metric, found), where="metric")
    return found[metric]


@lru_cache(maxsize=64)
def machine(cores: int) -> Platform:
    """Returns a platform of interchangeable cores of equal speed."""
    return Platform.homogeneous(nodes=cores, cores_per_node=1, gflops_per_core=1.0)


def windows(
    trace: Workload,
    count: int,
    jobs: int,
    *,
    warmup: int = 1024,
    base: str = "easy",
    number: int = 0,
    platform: Platform | None = None,
) -> list[Window]:
    """Returns the first windows of a trace, one after the other; no job is in two of them.

    Args:
        trace: The jobs.
        count: Number of windows.
        jobs: Jobs of a window.
        warmup: Jobs before the window that its warm-up consists of, which may be jobs of the window before; 0: windows
            come to the empty machine.
        base: Policy of the warm-up.
        number: Number of the trace.
        platform: See :class:`Window`.

    Raises:
        WorkloadError: The trace is too short.
    """
    if count * jobs + warmup > len(trace):
        raise WorkloadError(
            f"expected at least {count * jobs + warmup} jobs for {count} windows of {jobs} with a warm-up of {warmup}, "
            f"got {len(trace)}",
            where=trace.source,
        )
    firsts: Sequence[int] = range(warmup, warmup + count * jobs, jobs)
    return [Window(trace[first - warmup : first + jobs], warmup, base, number, platform) for first in firsts]
