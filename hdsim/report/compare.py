"""Compares runs: means by configuration, paired differences to a baseline, bootstrap confidence intervals.

Trainings are compared by their replays of test windows: trained agents and classic policies.

The configuration of a run consists of the settings that differ between the runs. Runs that differ only in their seed or
in the replayed part of the trace are replications of one configuration. If agents and other settings differ, the
other settings make up scenarios, and an agent is compared with the baseline's agent within each of them, provided that
the baseline's agent ran in all of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hdsim.errors import ConfigError, nearest
from hdsim.report.labels import Key
from hdsim.report.labels import text as key_text
from hdsim.report.pairing import (
    EVALUATION,
    PlacedRun,
    check_definitions,
    evaluated_entries,
    finished,
    grouped,
    joined,
    other_replays,
    other_sources,
    renamed,
    run_directories,
    run_entries,
)
from hdsim.report.parts import parted, rows_of, run_of
from hdsim.report.statistics import NO_INTERVAL, Floats, Interval, bootstrap, interquartile_mean
from hdsim.results.metrics import GANG_METRICS, Direction, bounded_slowdown, direction, is_own, slowdown, unit
from hdsim.results.run_directory.manifest import read_manifest
from hdsim.results.run_directory.reader import period_of, read, read_jobs

#: Metrics compared when none are named.
DEFAULT_METRICS = (
    "makespan",
    "mean_waiting_time",
    "mean_bounded_slowdown",
    "utilization",
    "energy_joules",
    *GANG_METRICS,
)
#: The sample where configurations have no replications.
JOBS = "jobs"


@dataclass(frozen=True)
class Row:
    """One metric of one configuration in one scenario.

    Attributes:
        scenario: Settings that the compared configurations share, as text.
        configuration: Settings of the configuration, as text.
        metric: Name of the metric.
        unit: Its unit.
        runs: Runs of the configuration.
        mean: Mean over the runs.
        low, high: Confidence interval of the mean.
        iqm: Interquartile mean over the runs: without the lowest and the highest quarter of them; NaN for jobs.
        iqm_low, iqm_high: Its confidence interval.
        difference: Mean paired difference to the baseline, NaN for the baseline itself.
        difference_low, difference_high: Its confidence interval.
        pairs: Pairs the difference was taken over.
        paired_by: ``run`` or ``job``, empty without pairs.
        baseline: The configuration is the baseline.
        best: No configuration of the scenario is better.
    """

    scenario: str
    configuration: str
    metric: str
    unit: str
    runs: int
    mean: float
    low: float
    high: float
    iqm: float
    iqm_low: float
    iqm_high: float
    difference: float
    difference_low: float
    difference_high: float
    pairs: int
    paired_by: str
    baseline: bool
    best: bool


@dataclass(frozen=True)
class MetricWindow:
    """One metric of one run of a configuration that has several: of one seed, of one part of the trace.

    Attributes:
        scenario, configuration, metric, unit, baseline: As in :class:`Row`.
        replication: Seed and part of the trace, as text.
        value: The metric.
        difference: To the baseline's run of the same replication, NaN without one.
        run: Its directory.
    """

    scenario: str
    configuration: str
    metric: str
    unit: str
    baseline: bool
    replication: str
    value: float
    difference: float
    run: str


@dataclass(frozen=True)
class Comparison:
    """The result of comparing runs.

    Attributes:
        rows: Every metric of every configuration, metric by metric.
        metrics: Names of the metrics, in order.
        sample: Sample of the intervals: runs; windows, for trainings; jobs, without replications.
        entries: The runs; of trainings, the replays of their test windows.
        windows: Every metric of every run, if there are replications.
        left_out: Runs that failed, died, have not finished or are damaged, with the reason.
        sources: Differences between the software and the inputs of the runs, a line each.
        pairs: By configuration: its runs, each with the baseline's run of the same replication.
    """

    rows: tuple[Row, ...]
    metrics: tuple[str, ...]
    sample: str
    entries: tuple[PlacedRun, ...]
    windows: tuple[MetricWindow, ...] = ()
    left_out: Mapping[Path, str] = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    pairs: Mapping[str, Sequence[tuple[Path, Path]]] = field(default_factory=dict)

    @property
    def baseline(self) -> str | None:
        """Configuration of the baseline; None if it shares no metric with the others, which are of another kind."""
        return next((row.configuration for row in self.rows if row.baseline), None)

    def of(self, metric: str) -> list[Row]:
        """Returns the rows of a metric."""
        return [row for row in self.rows if row.metric == metric]

    @property
    def runs(self) -> dict[Path, str]:
        """Name of each run directory."""
        return {
            entry.path: joined(*map(key_text, (entry.scenario, entry.configuration, entry.replication)))
            for entry in self.whole
        }

    @property
    def whole(self) -> list[PlacedRun]:
        """The runs with all their jobs; as `entries` where the jobs are not compared apart."""
        if not any(entry.part for entry in self.entries):
            return list(self.entries)
        found = {entry.path: replace(entry, scenario=entry.scenario[:-1], part=None) for entry in self.entries}
        return list(found.values())


def compare(
    paths: Iterable[str | Path],
    metrics: Sequence[str] = (),
    baseline: str | Path | None = None,
    labels: Mapping[str, str | Path] | None = None,
    *,
    strict: bool = False,
    by: str | None = None,
) -> Comparison:
    """Compares runs.

    Args:
        paths: Run directories, or sweeps: directories with run directories in them.
        metrics: Names of metrics; by default :data:`DEFAULT_METRICS`.
        baseline: Run whose configuration the others are compared with, or the label of a configuration; by default the
            first run's.
        labels: Labels, each with a run of the configuration that it stands for.
        strict: Refuse runs that failed, died, have not finished or are damaged, instead of leaving them out.
        by: Column by whose values the jobs of each run are compared apart: ``partition``, ``account``, ``qos`` ...

    Raises:
        ConfigError: A directory has no finished run, fewer than two runs are left, or a metric is unknown.
    """
    run_of.cache_clear()
    jobs_of.cache_clear()  # Runs may have been repeated in their directories since another comparison.
    directories = list(dict.fromkeys(path.resolve() for given in paths for path in run_directories(Path(given))))
    by_label = baseline is not None and not Path(baseline).exists()
    chosen = None if baseline is None or by_label else run_directories(Path(baseline))[0].resolve()
    found, left_out = finished(dict.fromkeys([*directories, *([chosen] if chosen else [])]))
    refused = [
        ConfigError(f"expected a finished run, got {reason}", where=str(path)) for path, reason in left_out.items()
    ]
    if refused and (strict or chosen in left_out or not found):
        raise ConfigError.many(refused)
    first = chosen or found[0].path
    trained = all((run.path / EVALUATION).is_file() for run in found)
    if len(found) < 2 and not trained:
        alone = ConfigError(f"expected at least two runs to compare, got {found[0].path} alone")
        raise ConfigError.many([alone, *refused])
    entries, base = _labelled(*(evaluated_entries if trained else run_entries)(found, first), labels)
    if by_label:
        places = {key_text(entry.configuration): entry for entry in reversed(entries)}
        if str(baseline) not in places:
            raise ConfigError(
                f"expected a run directory or one of the labels {', '.join(sorted(places))}, got '{baseline}'"
                f"{nearest(str(baseline), places)}",
                where="--baseline",
            )
        place = places[str(baseline)]
        # The baseline decides which settings make a scenario.
        entries, base = (
            (entries, place.configuration) if trained else _labelled(*run_entries(found, place.path), labels)
        )
    if by is not None:
        if trained:
            raise ConfigError(
                "expected replays of one workload, got trainings, whose windows have no jobs", where="--by"
            )
        entries = parted(entries, by)
    names = _metric_names(entries, metrics)
    check_definitions(found, names)
    scenarios = list(dict.fromkeys(entry.scenario for entry in entries))
    in_order = sorted(entries, key=lambda entry: scenarios.index(entry.scenario))
    groups = grouped(in_order, lambda entry: (entry.scenario, entry.configuration))
    single = not trained and all(len(group) == 1 for group in groups.values())
    by_job = single and all((run.path / "jobs.csv").is_file() for run in found)
    samples = _JobSamples() if by_job else _WindowSamples() if trained else _RunSamples()
    rows: list[Row] = []
    windows: list[MetricWindow] = []
    pairs: dict[str, list[tuple[Path, Path]]] = {}
    for (scenario, configuration), group in groups.items():
        if configuration != base:
            known = {entry.replication: entry.path for entry in groups.get((scenario, base), [])}
            both = [(entry.path, known[entry.replication]) for entry in group if entry.replication in known]
            pairs[joined(key_text(scenario), key_text(configuration))] = both
    for name in names:
        for (scenario, configuration), group in groups.items():
            others = groups.get((scenario, base), []) if configuration != base else []
            rows.append(_row(name, group, others, samples, is_baseline=configuration == base))
            if not by_job:
                windows += _windows(rows[-1], group, others)
    return Comparison(
        tuple(_with_best(rows)),
        names,
        samples.of,
        tuple(entries),
        tuple(windows),
        left_out,
        (*other_sources(found), *(() if trained else other_replays(found, entries))),
        pairs,
    )


def _windows(row: Row, group: list[PlacedRun], others: list[PlacedRun]) -> Iterator[MetricWindow]:
    """The runs behind a row."""
    base = {entry.replication: entry.metrics[row.metric] for entry in others}
    for entry in group:
        value = entry.metrics[row.metric]
        yield MetricWindow(
            row.scenario,
            row.configuration,
            row.metric,
            row.unit,
            row.baseline,
            key_text(entry.replication),
            value,
            value - base.get(entry.replication, math.nan),
            str(entry.path),
        )


def _row(
    name: str, group: list[PlacedRun], others: list[PlacedRun], samples: _RunSamples | _JobSamples, *, is_baseline: bool
) -> Row:
    difference, paired_by = samples.difference(name, group, others) if others else (NO_INTERVAL, "")
    return Row(
        key_text(group[0].scenario),
        key_text(group[0].configuration),
        name,
        unit(name),
        len(group),
        *samples.mean(name, group).numbers,
        *samples.middle(name, group).numbers,
        *difference.numbers,
        pairs=difference.count,
        paired_by=paired_by if difference.count else "",
        baseline=is_baseline,
        best=False,
    )


def _with_best(rows: list[Row]) -> Iterator[Row]:
    """Marks the best of each metric in each scenario with several configurations."""
    means: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        means.setdefault((row.metric, row.scenario), []).append(row.mean)
    for row in rows:
        competitors = means[row.metric, row.scenario]
        better = direction(row.metric)
        comparable = better and len(competitors) > 1 and not all(map(math.isnan, competitors))
        best = np.nanmax if better is Direction.HIGHER else np.nanmin
        yield replace(row, best=bool(comparable) and row.mean == best(competitors))


class _RunSamples:
    """Runs as the sample: a configuration has replications."""

    of = "runs"
    paired_by = "run"

    def mean(self, name: str, group: list[PlacedRun]) -> Interval:
        return bootstrap(self._sample((entry, entry.metrics[name]) for entry in group))

    def middle(self, name: str, group: list[PlacedRun]) -> Interval:
        return bootstrap(self._sample((entry, entry.metrics[name]) for entry in group), interquartile_mean)

    def difference(self, name: str, group: list[PlacedRun], others: list[PlacedRun]) -> tuple[Interval, str]:
        """Differences between runs of the same seed and part of the trace."""
        base = {entry.replication: entry.metrics[name] for entry in others}
        pairs = [(entry, entry.metrics[name] - base[entry.replication]) for entry in group if entry.replication in base]
        return bootstrap(self._sample(pairs)), self.paired_by

    def _sample(self, values: Iterable[tuple[PlacedRun, float]]) -> list[float]:
        return [value for _, value in values]


class _WindowSamples(_RunSamples):
    """Windows as the sample: trainings share their windows, so seeds are no further observations."""

    of = "windows"
    paired_by = "window"

    def _sample(self, values: Iterable[tuple[PlacedRun, float]]) -> list[float]:
        """The mean over trainings in each window."""
        windows: dict[str, list[float]] = {}
        for entry, value in values:
            windows.setdefault(dict(entry.replication)["window"], []).append(value)
        return [float(np.mean(found)) for found in windows.values()]


class _JobSamples:
    """Jobs as the sample: each configuration has one run."""

    of = JOBS

    def mean(self, name: str, group: list[PlacedRun]) -> Interval:
        (entry,) = group
        values = self._values(name, entry)
        if values is None:
            return Interval(entry.metrics[name], math.nan, math.nan, 1)
        interval = bootstrap(values[~np.isnan(values)])
        return Interval(entry.metrics[name], interval.low, interval.high, interval.count)

    def middle(self, name: str, group: list[PlacedRun]) -> Interval:
        return NO_INTERVAL

    def difference(self, name: str, group: list[PlacedRun], others: list[PlacedRun]) -> tuple[Interval, str]:
        """Differences between the two runs' values of the same job; jobs that ended in one run only are left out."""
        (entry,), (base,) = group, others
        values, base_values = self._values(name, entry), self._values(name, base)
        if values is None or base_values is None or not self._same_jobs(entry, base):
            return Interval(entry.metrics[name] - base.metrics[name], math.nan, math.nan, 1), "run"
        pairs = values - base_values
        return bootstrap(pairs[~np.isnan(pairs)]), "job"

    def _values(self, name: str, entry: PlacedRun) -> Floats | None:
        """(J,) values of the jobs whose mean is the metric, None for other metrics."""
        jobs = jobs_of(entry.path, entry.part)
        turnaround, execution = jobs["turnaround_time"], jobs["execution_time"]
        match name:
            case "mean_waiting_time":
                return jobs["waiting_time"]
            case "mean_turnaround_time":
                return turnaround
            case "mean_execution_time":
                return execution
            case "mean_slowdown_factor":
                run = read(entry.path)
                factors = run.jobs.get("slowdown_factor")
                return None if factors is None else factors[run.period.has(run.jobs["submission_time"])]
            case "mean_slowdown":
                return slowdown(turnaround, execution)
            case "mean_bounded_slowdown":
                return bounded_slowdown(turnaround, execution)
        return None

    def _same_jobs(self, a: PlacedRun, b: PlacedRun) -> bool:
        return all(
            np.array_equal(jobs_of(a.path, a.part)[name], jobs_of(b.path, b.part)[name])
            for name in ("job_id", "submission_time")
        )


@lru_cache(maxsize=128)
def jobs_of(path: Path, part: tuple[str, str] | None = None) -> Mapping[str, NDArray[Any]]:
    """Returns the ids and times of the jobs of a run that were submitted in the period of its means.

    Of a part, a column and its value, they are the jobs that have it.

    Raises:
        ConfigError: ``jobs.csv`` is missing or damaged.
    """
    jobs = read_jobs(path, ("job_id", "submission_time", "waiting_time", "turnaround_time", "execution_time"))
    counted = period_of(read_manifest(path)).has(jobs["submission_time"])
    if part is not None:
        counted &= rows_of(path, part, jobs["job_id"].tolist())
    return {name: column[counted] for name, column in jobs.items()}


def _labelled(
    entries: list[PlacedRun], base: Key, labels: Mapping[str, str | Path] | None
) -> tuple[list[PlacedRun], Key]:
    """Returns the entries and the baseline with the labels of the user."""
    keys = renamed(entries, labels) if labels else {}
    changed = [replace(entry, configuration=keys.get(entry.configuration, entry.configuration)) for entry in entries]
    return changed, keys.get(base, base)


def _own_metrics(names: Sequence[str]) -> list[str]:
    """Returns the metrics of the user, of quantities of jobs the mean alone."""
    own = [name for name in names if is_own(name)]
    return [name for name in own if name.startswith("mean_") or f"mean_{name.partition('_')[2]}" not in own]


def _metric_names(entries: list[PlacedRun], asked: Sequence[str]) -> tuple[str, ...]:
    common = [name for name in entries[0].metrics if all(name in entry.metrics for entry in entries)]
    for name in asked:
        if name not in common:
            raise ConfigError(
                f"expected a metric that every run has, got '{name}'{nearest(name, common)}; "
                "'hdsim show metrics' lists them",
                where="--metric",
            )
    defined = [
        name
        for name in (*DEFAULT_METRICS, *_own_metrics(common))
        if name in common and not all(math.isnan(entry.metrics[name]) for entry in entries)
    ]
    return tuple(dict.fromkeys(asked)) or tuple(defined) or tuple(common)
