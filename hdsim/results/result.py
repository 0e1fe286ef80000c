"""Result of a replay: start, end, state and cores of every job, as columns."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from procset import ProcSet

from hdsim.cluster.state import FinalState
from hdsim.errors import nearest
from hdsim.facility.quantities import QUANTITIES
from hdsim.platform import power
from hdsim.platform.node_state import NodeState
from hdsim.results import details
from hdsim.results.metrics import slowdown, summary
from hdsim.results.period import Period
from hdsim.results.schedule import Schedule
from hdsim.results.segments import powered_until
from hdsim.util.arrays import read_only
from hdsim.util.plugins import optional

if TYPE_CHECKING:
    from hdsim.results.costs import Costs
    from hdsim.results.run_directory.reader import Run
    from hdsim.results.segments import Segments

Column = NDArray[Any]


def _view(name: str, *arguments: Any) -> Any:
    """Calls a function of :mod:`hdsim.report.notebook`, which is loaded by name since reports are a higher layer."""
    return getattr(import_module("hdsim.report.notebook"), name)(*arguments)


class Metrics(dict[str, float]):
    """Metrics by name; a KeyError names the nearest one."""

    def __missing__(self, name: str) -> float:
        raise KeyError(
            f"'{name}'{nearest(name, self)}; metrics: {', '.join(self)}; those of the schedule as a whole, such as "
            "peak_power_watts and jain_fairness, are in hdsim.results.metrics.full(result)"
        )


class JobTable(dict[str, Column]):
    """Columns of the jobs by name, made when first asked for; rows in the order of the workload.

    It is a read-only dict, which pandas, Polars and Arrow take for columns: ``pandas.DataFrame(result.jobs)``.

    Args:
        makers: Function that makes each column, by its name.
        jobs: Number of rows.
    """

    # The dict holds the columns made so far; the methods of Mapping ask for all of them.
    get, keys, items, values = Mapping.get, Mapping.keys, Mapping.items, Mapping.values  # type: ignore[assignment]
    __contains__, __eq__, __reversed__ = Mapping.__contains__, Mapping.__eq__, None  # type: ignore[assignment]

    def __init__(self, makers: Mapping[str, Callable[[], Column]], jobs: int) -> None:
        super().__init__()
        self._makers, self._jobs = makers, jobs

    def __getitem__(self, name: str) -> Column:
        column = dict.get(self, name)
        if column is None:
            if name not in self._makers:
                raise KeyError(f"'{name}'{nearest(name, self._makers)}; columns: {', '.join(self._makers)}")
            column = read_only(self._makers[name]())
            dict.__setitem__(self, name, column)
        return column

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)

    def copy(self) -> dict[str, Column]:
        """Returns all columns as a plain dict."""
        return dict(self)

    def __or__(self, other: Any) -> dict[str, Any]:  # type: ignore[override]
        return dict(self) | other

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("the columns of a result are read-only; dict(result.jobs) is a copy that takes further ones")

    __setitem__ = __delitem__ = __ior__ = update = setdefault = pop = popitem = clear = _refuse

    def __reduce__(self) -> tuple[type[dict[str, Column]], tuple[dict[str, Column]]]:
        return dict, (dict(self),)

    def __repr__(self) -> str:
        return f"<Jobs: {self._jobs:,} rows; columns {', '.join(self)}>"

    def _repr_html_(self) -> str:
        return str(_view("jobs_html", self))


@dataclass(kw_only=True, eq=False)
class Result(Schedule):
    """A finished (or interrupted) replay; see :class:`hdsim.results.replay.FullReplay`.

    Attributes:
        config: Settings of the replay.
        wall_seconds: Wall-clock time the replay took.
        engine: Which parts of the engine the replay has used: ``mode`` (``events`` or ``compiled``), ``cores`` (store)
            and ``executor``; empty on other backends.
    """

    config: Mapping[str, Any] = field(default_factory=dict)
    wall_seconds: float = 0.0
    engine: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def jobs(self) -> JobTable:
        """Columns by name: Batsim's job columns, then hdsim's own, in the order of the workload.

        `requested_number_of_resources` counts cores and GPUs, both of which are hosts to Batsim, `requested_gpus` the
        latter alone.
        `restarts` counts the starts of a job after failures, and `lost_core_seconds` the core-seconds that failures
        have undone. :func:`hdsim.results.details.columns` explains the others.
        """
        workload, start, finish = self.workload, self.starting_time, self.finish_time
        submission = workload.submission_time
        return JobTable(
            {
                "job_id": workload.job_id.copy,
                "submission_time": submission.copy,
                "requested_number_of_resources": workload.requested_resources.copy,
                "requested_time": workload.requested_time.copy,
                "success": lambda: (self.state == FinalState.COMPLETED_SUCCESSFULLY).astype(np.int8),
                "final_state": lambda: np.array([state.name for state in FinalState], object)[self.state],
                "starting_time": start.copy,
                "execution_time": lambda: finish - start,
                "finish_time": finish.copy,
                "waiting_time": lambda: start - submission,
                "turnaround_time": lambda: finish - submission,
                "stretch": lambda: slowdown(finish - submission, finish - start),
                "allocated_resources": self._interval_sets,
                "consumed_energy": self._consumed_energy,
                "requested_gpus": workload.requested_gpus.copy,
                "restarts": lambda: self.segments.restarts(len(workload)),
                "lost_core_seconds": lambda: self.segments.lost_by_job(len(workload)),
                **details.columns(self),
                **self._costs_of_jobs(),
            },
            len(workload),
        )

    @cached_property
    def period(self) -> Period:
        """The period that means are taken over, as ``warmup`` and ``cooldown`` of the settings say."""
        return Period.of(self.config, self.workload.submission_time)

    @property
    def counted(self) -> NDArray[np.bool_]:
        """(J,) whether statistics count a job: it has ended, and was submitted in the period."""
        return self.period.counts(self.workload.submission_time, self.finish_time)

    def without(self, warmup: float | str | None = None, cooldown: float | str | None = None) -> Result:
        """Returns the result with means that leave out a warm-up and a cool-down.

        Args:
            warmup: Seconds after the first submission, a text such as ``"1d"``, or ``"10%"`` of the jobs.
            cooldown: The same before the last submission.

        Raises:
            ConfigError: An argument is none of these, or no job is left.
        """
        result = replace(self, config={**self.config, "warmup": warmup, "cooldown": cooldown})
        Period.checked(result.config, self.workload.submission_time)
        return result

    @cached_property
    def metrics(self) -> dict[str, float]:
        """Metrics by name; see :mod:`hdsim.results.metrics`."""
        return Metrics(summary(self))

    def to_pandas(self) -> Any:
        """Returns the jobs as a pandas DataFrame, a row for each.

        Raises:
            ConfigError: pandas is not installed.
        """
        return optional("pandas").DataFrame(self.jobs)

    def to_polars(self) -> Any:
        """Returns the jobs as a Polars DataFrame, a row for each.

        Raises:
            ConfigError: Polars is not installed.
        """
        return optional("polars").DataFrame(self.jobs)

    def save(self, directory: str | Path) -> Path:
        """Writes a run directory, which `hdsim report`, `compare` and `rerun` take, and returns it.

        Args:
            directory: The directory, made if need be; results in it are replaced.

        Raises:
            ConfigError: The directory cannot be made, or another process uses it.
        """
        from hdsim.results.run_directory.directory import RunDirectory

        run = RunDirectory(Path(directory).expanduser())
        source = self.config.get("workload") or {}
        # A run without a source of its jobs cannot be repeated from its manifest.
        kind = "run" if source.get("path") or source.get("generate") else None
        run.start(self.config, self.platform, self.workload, kind=kind)
        run.finish(self, backend={"engine": self.engine})
        return run.path

    def plot(self, kind: str = "overview") -> Any:
        """Draws a figure of the report.

        Args:
            kind: ``overview``, ``gantt``, ``utilization``, ``queue``, ``power``, or the name of any other figure of
                ``hdsim report --figures``.

        Returns:
            The :class:`matplotlib.figure.Figure`.

        Raises:
            ConfigError: The report has no such figure.
        """
        return _view("figure", self._run, kind)

    def report(self, file: str | Path = "report.html") -> Path:
        """Writes the report, one page that any browser opens without a network, and returns its path.

        Raises:
            ConfigError: The file cannot be written.
        """
        path: Path = _view("write_report", self._run, Path(file).expanduser())
        return path

    @cached_property
    def _run(self) -> Run:
        """The result as reports read it from a run directory."""
        from hdsim.results.run_directory.reader import read

        with TemporaryDirectory() as directory:
            return read(self.save(directory))

    def __repr__(self) -> str:
        return str(_view("text", self))

    def _repr_html_(self) -> str:
        return str(_view("html", self))

    @cached_property
    def segments(self) -> Segments:
        """Allocation segments in order of their begins."""
        return self.latest.joined(self.earlier)

    @cached_property
    def allocations(self) -> list[ProcSet]:
        """(J,) cores of each job; see :meth:`hdsim.results.segments.Segments.allocations`."""
        return self.segments.allocations(len(self.starting_time))

    @cached_property
    def energy_joules(self) -> float:
        """Energy of the platform from the first submission to the last finish, J; NaN where cores have no ids."""
        end = powered_until(self.finish_time, self.end_time, self.segments)
        held = self.segments.until(end)
        if held.amounts is not None:
            return math.nan
        core_seconds, active = power.busy_seconds(self.platform, held.held, held.begin, held.end)
        platform, nodes = self.platform, self.platform.n_nodes
        away = 0.0 if self.outages is None else self.outages.seconds(nodes, end)
        if self.node_states is not None:
            away = away + self.node_states.until(end).seconds(nodes).sum(axis=0)
        if isinstance(away, np.ndarray):
            away = away[platform.processor_node]
        joules = power.total_energy(platform, core_seconds, active, end, away)
        if platform.has_state_watts:
            joules += float(power.state_energy(platform, self.state_seconds).sum())
        if held.ghz is not None:
            joules += float(held.more_watts @ (held.end - held.begin))
        return joules

    @cached_property
    def state_seconds(self) -> NDArray[np.float64]:
        """(5, N) s that each node spent in each :class:`NodeState`, for as long as energy counts.

        A node that is down is in none of them.
        """
        end, nodes = powered_until(self.finish_time, self.end_time, self.segments), self.platform.n_nodes
        held = self.segments.until(end)
        seconds = np.zeros((len(NodeState), nodes))
        if self.node_states is not None:
            seconds = self.node_states.until(end).seconds(nodes)
        seconds[NodeState.ON] = power.busy_node_seconds(self.platform, held.held, held.begin, held.end)
        down = 0.0 if self.outages is None else self.outages.seconds(nodes, end)
        seconds[NodeState.IDLE] = end - down - seconds.sum(axis=0)
        return seconds

    @cached_property
    def costs(self) -> Costs | None:
        """Energy, price and emissions in the facility, None without one."""
        if self.facility is None:
            return None
        from hdsim.results.costs import Costs

        return Costs(self, self.facility)

    @cached_property
    def oversubscribed(self) -> tuple[NDArray[np.int32], NDArray[np.float64], NDArray[np.float64]]:
        """Spans in which the demands on a processor exceeded its memory bandwidth: processors, begins, ends."""
        ran = self.segments.rows(np.flatnonzero(self.workload.memory_bandwidth[self.segments.job] > 0))
        held = ran.usage
        demand = held.cores * self.workload.memory_bandwidth[ran.job[held.segment]]
        limited = np.isfinite(self.platform.mem_bw) & ~self.platform.is_gpu
        used = np.flatnonzero(limited[held.processor])
        processor, demand, segment = held.processor[used], demand[used], held.segment[used]
        time = np.concatenate([ran.begin[segment], ran.end[segment]])
        change = np.concatenate([demand, -demand])
        processor = np.concatenate([processor, processor])
        order = np.lexsort((time, processor))
        processor, time, change = processor[order], time[order], change[order]
        if not len(processor):
            return processor, time, time
        # Sums of all processors in one pass: each processor's changes add up to nothing.
        load = np.cumsum(change)
        last_of_instant = np.append((processor[1:] != processor[:-1]) | (time[1:] != time[:-1]), True)
        processor, time, load = processor[last_of_instant], time[last_of_instant], load[last_of_instant]
        limit = self.platform.mem_bw[processor]
        over = load > limit * (1 + 1e-12)
        begins = over & np.append(True, (processor[1:] != processor[:-1]) | ~over[:-1])
        until = np.flatnonzero(~over & np.append(False, (processor[1:] == processor[:-1]) & over[:-1]))
        return processor[begins], time[begins], time[until]

    @cached_property
    def contention(self) -> NDArray[np.float64]:
        """(E, 3) changes, in any order: date in seconds, cores' worth of speed lost to contention, tasks that send.

        Empty where jobs have no programs.
        """
        changes = self.time_breakdown.changes if self.time_breakdown is not None else ()
        return np.array(changes, np.float64).reshape(-1, 3)

    def _costs_of_jobs(self) -> dict[str, Callable[[], Column]]:
        """Makers of the columns of :data:`hdsim.facility.quantities.QUANTITIES`, of those that are known."""
        costs = self.costs
        if costs is None:
            return {}
        return {name: partial(lambda row: costs.jobs[row].copy(), QUANTITIES.index(name)) for name in costs.known}

    def _interval_sets(self) -> Column:
        """All that each job has held since its last start."""
        texts = np.full(len(self.workload), "", object)
        held = self.segments.last_attempts
        texts[held.job] = held.texts
        return texts

    def _consumed_energy(self) -> Column:
        """Energy of a job's own cores while it ran, J, without idle cores beside it; NaN where cores have no ids."""
        energy = np.full(len(self.workload), np.nan)
        ran, watts = self.segments, self.platform.power
        if ran.amounts is not None:
            return energy
        if len(watts) and (watts == watts[0]).all():
            total = ran.sizes * watts[0]
        else:
            # Every segment has at least one core, so no group is empty.
            per_core = watts[self.platform.core_processor[ran.cores]]
            total = np.add.reduceat(per_core, np.cumsum(ran.sizes) - ran.sizes) if len(per_core) else np.zeros(0)
        joules = total * (ran.end - ran.begin) * power.PSTATES[power.COMPUTING].power
        if ran.ghz is not None:
            joules += ran.more_watts * (ran.end - ran.begin)
        ended = ~np.isnan(self.finish_time)
        energy[ended] = np.bincount(ran.job, joules, len(energy))[ended]
        return energy
