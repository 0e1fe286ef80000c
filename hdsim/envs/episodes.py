"""Jobs of an episode: a whole trace or a random window of one, with held-out windows and a curriculum."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

import numpy as np

from hdsim.errors import ConfigError
from hdsim.util.arrays import Ints
from hdsim.util.resources import resolve
from hdsim.util.rules import texts
from hdsim.workload.generators.base import is_generator
from hdsim.workload.load import load_workload
from hdsim.workload.model import Workload

if TYPE_CHECKING:
    from hdsim.platform.model import Platform

#: Forms of a trace: jobs, a file or a bundled name, or settings of the Lublin-Feitelson generator.
Trace = Workload | str | Path | Mapping[str, Any]


def make_traces(traces: Trace | Sequence[Trace], platform: Platform) -> list[Workload]:
    """Loads or generates traces.

    Args:
        traces: One or several: workloads, files, names of bundled ones or of generators, and settings of a generator
            with its `seed`, ``{"model": "lublin", "jobs": 10000, "seed": 7, ...}`` (see
            :func:`hdsim.workload.load.load_workload`).
        platform: The platform they are for.

    Raises:
        ConfigError: The list is empty, or a mapping has an unknown generator or setting.
    """
    several = [traces] if isinstance(traces, Workload | str | Path | Mapping) else list(traces)
    if not several:
        raise ConfigError("expected at least one trace, got none", where="env.workload")
    return [_make_trace(trace, platform) for trace in several]


def _make_trace(trace: Trace, platform: Platform) -> Workload:
    if isinstance(trace, Workload):
        return trace
    if isinstance(trace, Mapping):
        settings = dict(trace)
        return load_workload(settings, platform, seed=settings.pop("seed", 0), memory_bandwidth="none")
    if is_generator(texts(trace)):
        return _make_trace({"model": trace}, platform)
    return load_workload(resolve("workloads", trace, where="env.workload"), platform)


@dataclass(frozen=True)
class TraceWindow:
    """Part of a trace: its jobs from `first` on."""

    trace: int
    first: int
    jobs: int


class Sliceable(Protocol):
    """A trace: its length is the number of its jobs, and a slice has some of them."""

    def __len__(self) -> int: ...

    def __getitem__(self, jobs: slice, /) -> Self: ...


_Trace = TypeVar("_Trace", bound=Sliceable)


class Episodes(Generic[_Trace]):
    """Draws the jobs of episodes; of gangs the supersteps, from rows of series.

    Without `jobs` an episode is a whole trace, all equally likely. With `jobs` it is a window of that many jobs; all
    windows of all traces are equally likely, except those that share a job with a held-out window.

    Args:
        traces: Traces to draw from.
        jobs: Jobs of an episode, None for a whole trace.
        held_out: Windows excluded from training: (trace, first job, jobs), or (first job, jobs) of the first trace.
        curriculum: ``growing``: windows begin with `curriculum_start` of `jobs` and grow to all of them;
            ``easy_first``: only the `curriculum_start` easiest windows are drawn at first, then more; a window is easy
            if its load is low (requested core-seconds divided by its duration).
        curriculum_episodes: Episodes until the curriculum is complete.
        curriculum_start: Share at the start of the curriculum.
        unit: Contents of a trace, the key of `jobs` in the group ``env``.

    Attributes:
        drawn: Number of episodes drawn.
        window: The latest window.

    Raises:
        ConfigError: A setting is out of range, or no window is left to train on.
    """

    def __init__(
        self,
        traces: Sequence[_Trace],
        jobs: int | None = None,
        held_out: Iterable[Sequence[int]] = (),
        curriculum: str = "none",
        curriculum_episodes: int = 1000,
        curriculum_start: float = 0.1,
        unit: str = "jobs",
    ) -> None:
        self.unit = unit
        self.traces = list(traces)
        self._jobs, self._curriculum, self._episodes = jobs, curriculum, curriculum_episodes
        self._start = curriculum_start
        self.drawn = 0
        held = [self._held_out(window) for window in held_out]
        if jobs is None:
            if held:
                raise ConfigError("expected the number of jobs of an episode, got null", where="env.jobs")
            self._starts: list[Ints] = [np.zeros(1, np.int64) for _ in traces]
        else:
            self._starts = [
                _free_starts(len(trace), jobs, [window for window in held if window.trace == i])
                for i, trace in enumerate(self.traces)
            ]
        self._ends = np.cumsum([len(starts) for starts in self._starts])
        if not self._ends[-1]:
            longest = max(map(len, self.traces))
            raise ConfigError(
                f"expected at most as many {unit} as a trace has beside the windows held out, got {jobs}; the longest "
                f"trace has {longest}",
                where=f"env.{unit}",
            )
        self._easiest = self._by_load() if curriculum == "easy_first" else None
        self._first: tuple[_Trace, float] | None = None
        self.window = TraceWindow(0, 0, 0)

    def begin_with(self, jobs: _Trace, episodes: float) -> None:
        """Makes the first episodes, or all of them (inf), consist of given jobs."""
        self._first = jobs, episodes

    def draw(self, rng: np.random.Generator) -> _Trace:
        """Draws the jobs of the next episode; the first is submitted at 0."""
        if self._first is not None and self.drawn < self._first[1]:
            self.drawn += 1
            return self._first[0]
        window = self.draw_window(rng)
        whole_trace = self.traces[window.trace]
        return (
            whole_trace if window.jobs == len(whole_trace) else whole_trace[window.first : window.first + window.jobs]
        )

    def draw_window(self, rng: np.random.Generator) -> TraceWindow:
        """Draws the window of the next episode."""
        share = self._start + (1 - self._start) * min(self.drawn / self._episodes, 1.0)
        self.drawn += 1
        total = int(self._ends[-1])
        if self._easiest is None:
            number = int(rng.integers(total))
        else:
            number = int(self._easiest[rng.integers(max(round(share * total), 1))])
        trace = int(np.searchsorted(self._ends, number, side="right"))
        starts = self._starts[trace]
        first = int(starts[number - (self._ends[trace] - len(starts))])
        jobs = len(self.traces[trace]) if self._jobs is None else self._jobs
        if self._curriculum == "growing":
            jobs = max(round(share * jobs), 1)
        self.window = TraceWindow(trace, first, jobs)
        return self.window

    def _held_out(self, window: Sequence[int]) -> TraceWindow:
        numbers = [int(number) for number in window]
        if len(numbers) == 2:
            numbers.insert(0, 0)
        if len(numbers) == 3:
            held = TraceWindow(*numbers)
            if (
                0 <= held.trace < len(self.traces)
                and held.jobs > 0
                and 0 <= held.first <= len(self.traces[held.trace]) - held.jobs
            ):
                return held
        raise ConfigError(
            f"expected (first, {self.unit}) or (trace, first, {self.unit}) within the traces, got {tuple(window)}",
            where="env.held_out",
        )

    def _by_load(self) -> Ints:
        """Indices of all windows in order of their load."""
        assert self._jobs is not None
        loads = []
        trace: Any
        for trace, starts in zip(self.traces, self._starts, strict=True):
            work = np.concatenate([[0.0], np.cumsum(trace.runtime * trace.requested_cores)])
            span = trace.submission_time[starts + self._jobs - 1] - trace.submission_time[starts]
            loads.append((work[starts + self._jobs] - work[starts]) / np.maximum(span, 1.0))
        return np.argsort(np.concatenate(loads), kind="stable")


def _free_starts(trace_jobs: int, jobs: int, held_out: Iterable[TraceWindow]) -> Ints:
    """First jobs of the windows that share no job with a held-out window."""
    free = np.ones(max(trace_jobs - jobs + 1, 0), bool)
    for window in held_out:
        free[max(window.first - jobs + 1, 0) : window.first + window.jobs] = False
    return np.flatnonzero(free)
