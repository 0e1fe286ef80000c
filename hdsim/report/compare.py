"""Compares runs: means by configuration, paired differences to a baseline, bootstrap confidence intervals.

Trainings are compared by their replays of test windows: agents that learned and the classic policies beside them.

A run's configuration is what it has different from the other runs. Runs that differ in nothing but their seed or in the
part of the trace they replay are replications of one configuration. Where agents differ and other settings do as well,
those others make up scenarios, and an agent is compared with the baseline's agent within each of them, provided that
the baseline's agent ran in all of them.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hdsim.errors import ConfigError, nearest
from hdsim.results.metrics import Direction, bounded_slowdown, direction, slowdown, unit
from hdsim.results.run_directory.directory import RunDirectory
from hdsim.results.run_directory.manifest import read_manifest
from hdsim.results.run_directory.reader import read
from hdsim.util.plugins import short_name

Floats = NDArray[np.float64]
Key = tuple[tuple[str, str], ...]

#: Settings that change nothing about what a training learns.
_BOOKKEEPING = ("train.log_every", "train.checkpoint_every", "train.tensorboard")
#: Metrics compared when none are named.
DEFAULT_METRICS = ("makespan", "mean_waiting_time", "mean_bounded_slowdown", "utilization", "energy_joules")
#: Groups whose option is a class with settings of its own.
MODELS = ("contention", "network", "failures")
#: Replays of test windows in the directory of a training.
EVALUATION = "evaluation.csv"
#: Settings in which replications of one configuration differ.
REPLICATION = ("seed", "workload.start")
CONFIDENCE = 0.95
_SEED = 0
_RESAMPLES = 2000
#: Numbers drawn for one interval at most: of a hundred thousand jobs fewer resamples tell enough.
_DRAWS = 50_000_000
_FEWEST_RESAMPLES = 500


@dataclass(frozen=True)
class Interval:
    """An estimate with its confidence interval, whose bounds are NaN where there is none.

    Attributes:
        value: The mean.
        low: Lower bound.
        high: Upper bound.
        count: Values that the mean was taken over.
    """

    value: float
    low: float
    high: float
    count: int


_NOTHING = Interval(math.nan, math.nan, math.nan, 0)


@dataclass(frozen=True)
class Row:
    """One metric of one configuration in one scenario.

    Attributes:
        scenario: Settings that the compared configurations share, as text.
        configuration: Settings that make the configuration, as text.
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
class Window:
    """One metric of one run of a configuration that has several: of one seed, of one part of the trace.

    Attributes:
        scenario: As in :class:`Row`, like the next four.
        configuration: See there.
        metric: See there.
        unit: See there.
        baseline: See there.
        replication: Seed and part of the trace, as text.
        value: The metric.
        difference: To the baseline's run of the same replication, NaN without one.
    """

    scenario: str
    configuration: str
    metric: str
    unit: str
    baseline: bool
    replication: str
    value: float
    difference: float


@dataclass(frozen=True)
class Comparison:
    """What came out of comparing runs.

    Attributes:
        rows: Every metric of every configuration, metric by metric.
        metrics: Names of the metrics, in order.
        sample: What the intervals are over: runs; windows, for trainings; jobs, where there are no replications.
        runs: What each run directory goes by.
        windows: Every metric of every run, where there are replications.
    """

    rows: tuple[Row, ...]
    metrics: tuple[str, ...]
    sample: str
    runs: Mapping[Path, str]
    windows: tuple[Window, ...] = ()


@dataclass(frozen=True)
class _Entry:
    """A run, and where it belongs.

    Attributes:
        path: Its directory.
        metrics: Its metrics.
        scenario: Settings it shares with what it is compared with.
        configuration: Settings that make its configuration.
        replication: Seed and part of the trace.
    """

    path: Path
    metrics: Mapping[str, float]
    scenario: Key
    configuration: Key
    replication: Key


def compare(paths: Iterable[str | Path], metrics: Sequence[str] = (), baseline: str | Path | None = None) -> Comparison:
    """Compares runs.

    Args:
        paths: Run directories, or sweeps: directories with run directories in them.
        metrics: Names of metrics; by default :data:`DEFAULT_METRICS`.
        baseline: Run whose configuration the others are compared with; by default the first run's.

    Raises:
        ConfigError: A directory holds no finished run, there is nothing to compare, or a metric is unknown.
    """
    directories = list(dict.fromkeys(path.resolve() for given in paths for path in _run_directories(Path(given))))
    first = directories[0]
    if baseline is not None:
        first = _run_directories(Path(baseline))[0].resolve()
        directories = list(dict.fromkeys([*directories, first]))
    trained = all((path / EVALUATION).is_file() for path in directories)
    if len(directories) < 2 and not trained:
        raise ConfigError(f"expected at least two runs to compare, got {directories[0]} alone")
    entries, base = _evaluated(directories, first) if trained else _entries(directories, first)
    names = _metric_names(entries, metrics)
    groups: dict[tuple[Key, Key], list[_Entry]] = {}
    scenarios = list(dict.fromkeys(entry.scenario for entry in entries))
    for entry in sorted(entries, key=lambda entry: scenarios.index(entry.scenario)):
        groups.setdefault((entry.scenario, entry.configuration), []).append(entry)
    by_job = not trained and all(len(group) == 1 for group in groups.values())
    samples = _JobSamples() if by_job else _WindowSamples() if trained else _RunSamples()
    rows: list[Row] = []
    windows: list[Window] = []
    for name in names:
        for (scenario, configuration), group in groups.items():
            others = groups.get((scenario, base), []) if configuration != base else []
            rows.append(_row(name, group, others, samples, is_baseline=configuration == base))
            if not by_job:
                windows += _windows(rows[-1], group, others)
    runs = {
        entry.path: _joined(*map(_text, (entry.scenario, entry.configuration, entry.replication))) for entry in entries
    }
    return Comparison(tuple(_with_best(rows)), names, samples.of, runs, tuple(windows))


def _windows(row: Row, group: list[_Entry], others: list[_Entry]) -> Iterator[Window]:
    """The runs behind a row."""
    base = {entry.replication: entry.metrics[row.metric] for entry in others}
    for entry in group:
        value = entry.metrics[row.metric]
        yield Window(
            row.scenario,
            row.configuration,
            row.metric,
            row.unit,
            row.baseline,
            _text(entry.replication),
            value,
            value - base.get(entry.replication, math.nan),
        )


def _row(
    name: str, group: list[_Entry], others: list[_Entry], samples: _RunSamples | _JobSamples, *, is_baseline: bool
) -> Row:
    mean = samples.mean(name, group)
    middle = samples.middle(name, group)
    difference, paired_by = samples.difference(name, group, others) if others else (_NOTHING, "")
    return Row(
        scenario=_text(group[0].scenario),
        configuration=_text(group[0].configuration),
        metric=name,
        unit=unit(name),
        runs=len(group),
        mean=mean.value,
        low=mean.low,
        high=mean.high,
        iqm=middle.value,
        iqm_low=middle.low,
        iqm_high=middle.high,
        difference=difference.value,
        difference_low=difference.low,
        difference_high=difference.high,
        pairs=difference.count,
        paired_by=paired_by if difference.count else "",
        baseline=is_baseline,
        best=False,
    )


def _with_best(rows: list[Row]) -> Iterator[Row]:
    """Marks the best of each metric in each scenario that has more than one configuration."""
    means: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        means.setdefault((row.metric, row.scenario), []).append(row.mean)
    for row in rows:
        rivals = means[row.metric, row.scenario]
        better = direction(row.metric)
        comparable = better and len(rivals) > 1 and not all(map(math.isnan, rivals))
        best = np.nanmax if better is Direction.HIGHER else np.nanmin
        yield replace(row, best=bool(comparable) and row.mean == best(rivals))


class _RunSamples:
    """Runs as the sample: a configuration has replications."""

    of = "runs"
    paired_by = "run"

    def mean(self, name: str, group: list[_Entry]) -> Interval:
        return bootstrap(self._sample((entry, entry.metrics[name]) for entry in group))

    def middle(self, name: str, group: list[_Entry]) -> Interval:
        return bootstrap(self._sample((entry, entry.metrics[name]) for entry in group), interquartile_mean)

    def difference(self, name: str, group: list[_Entry], others: list[_Entry]) -> tuple[Interval, str]:
        """Differences between runs of the same seed and part of the trace."""
        base = {entry.replication: entry.metrics[name] for entry in others}
        pairs = [(entry, entry.metrics[name] - base[entry.replication]) for entry in group if entry.replication in base]
        return bootstrap(self._sample(pairs)), self.paired_by

    def _sample(self, values: Iterable[tuple[_Entry, float]]) -> list[float]:
        return [value for _, value in values]


class _WindowSamples(_RunSamples):
    """Windows as the sample: several trainings replayed the same ones, which tells nothing of further windows."""

    of = "windows"
    paired_by = "window"

    def _sample(self, values: Iterable[tuple[_Entry, float]]) -> list[float]:
        """The mean over trainings in each window."""
        windows: dict[str, list[float]] = {}
        for entry, value in values:
            windows.setdefault(dict(entry.replication)["window"], []).append(value)
        return [float(np.mean(found)) for found in windows.values()]


class _JobSamples:
    """Jobs as the sample: there is one run of each configuration."""

    of = "jobs"

    def __init__(self) -> None:
        self._jobs: dict[Path, Mapping[str, NDArray[Any]]] = {}

    def mean(self, name: str, group: list[_Entry]) -> Interval:
        (entry,) = group
        values = self._values(name, entry)
        if values is None:
            return Interval(entry.metrics[name], math.nan, math.nan, 1)
        interval = bootstrap(values[~np.isnan(values)])
        return Interval(entry.metrics[name], interval.low, interval.high, interval.count)

    def middle(self, name: str, group: list[_Entry]) -> Interval:
        return _NOTHING

    def difference(self, name: str, group: list[_Entry], others: list[_Entry]) -> tuple[Interval, str]:
        """Differences between the two runs' values of the same job; jobs that ended in one run only are left out."""
        (entry,), (base,) = group, others
        values, base_values = self._values(name, entry), self._values(name, base)
        if values is None or base_values is None or not self._same_jobs(entry, base):
            return Interval(entry.metrics[name] - base.metrics[name], math.nan, math.nan, 1), "run"
        pairs = values - base_values
        return bootstrap(pairs[~np.isnan(pairs)]), "job"

    def _values(self, name: str, entry: _Entry) -> Floats | None:
        """(J,) what each job adds to a mean, None for a metric that is no mean over jobs."""
        jobs = self._columns(entry)
        wait, turnaround, execution = jobs["waiting_time"], jobs["turnaround_time"], jobs["execution_time"]
        match name:
            case "mean_waiting_time":
                return wait
            case "mean_turnaround_time":
                return turnaround
            case "mean_execution_time":
                return execution
            case "mean_slowdown_factor":
                return jobs.get("slowdown_factor")
            case "mean_slowdown":
                return slowdown(turnaround, execution)
            case "mean_bounded_slowdown":
                return bounded_slowdown(turnaround, execution)
        return None

    def _same_jobs(self, a: _Entry, b: _Entry) -> bool:
        return all(
            np.array_equal(self._columns(a)[name], self._columns(b)[name]) for name in ("job_id", "submission_time")
        )

    def _columns(self, entry: _Entry) -> Mapping[str, NDArray[Any]]:
        if entry.path not in self._jobs:
            self._jobs[entry.path] = read(entry.path).jobs
        return self._jobs[entry.path]


def interquartile_mean(values: Floats, axis: int = -1) -> Floats:
    """Mean without the lowest and the highest quarter (Agarwal et al., NeurIPS 2021, recommend it for few runs)."""
    from scipy import stats

    found: Floats = stats.trim_mean(values, 0.25, axis=axis)
    return found


def bootstrap(values: Sequence[float] | Floats, statistic: Callable[..., Any] = np.mean) -> Interval:
    """Mean with its percentile bootstrap interval (Efron and Tibshirani 1993, ch. 13), the same on every call.

    Args:
        values: The sample; a single value has no interval.
        statistic: What to take instead of the mean: a function of an array and an axis.
    """
    sample = np.asarray(values, np.float64)
    if not len(sample):
        return _NOTHING
    mean = float(statistic(sample, axis=-1))
    if len(sample) == 1 or math.isnan(mean):
        return Interval(mean, math.nan, math.nan, len(sample))
    if (sample == sample[0]).all():
        return Interval(mean, mean, mean, len(sample))
    from scipy import stats

    found = stats.bootstrap(
        (sample,),
        statistic,
        confidence_level=CONFIDENCE,
        n_resamples=min(_RESAMPLES, max(_FEWEST_RESAMPLES, _DRAWS // len(sample))),
        batch=max(1, 1_000_000 // len(sample)),
        method="percentile",
        random_state=np.random.default_rng(_SEED),
    ).confidence_interval
    return Interval(mean, float(found.low), float(found.high), len(sample))


def _run_directories(path: Path) -> list[Path]:
    """The run directory itself, or those inside a sweep in order of their starts."""
    if (path / "manifest.json").is_file():
        return [path]
    if not path.is_dir():
        raise ConfigError("expected a run directory or a sweep, got a path where there is none", where=str(path))
    found = [manifest.parent for manifest in path.rglob("manifest.json")]
    if not found:
        raise ConfigError("expected a run directory or a sweep, got a directory without any run", where=str(path))
    return sorted(found, key=lambda run: (str(read_manifest(run).get("start")), run))


def _evaluated(directories: list[Path], first: Path) -> tuple[list[_Entry], Key]:
    """Reads the replays of test windows that trainings have left, and the baseline's configuration.

    Of the agents that a training has made only the one to ship takes part. The baseline is the classic policy that was
    best in the training `first`.

    Raises:
        ConfigError: A training did not finish; all such are listed.
    """
    entries, errors, settings, facts = [], [], [], []
    for path in directories:
        try:
            config, _ = _load(path)
        except ConfigError as error:
            errors.append(error)
            continue
        settings.append(dict(_flat(_named(config))))
        facts.append(read_manifest(path)["training"])
    if errors:
        raise ConfigError.many(errors)
    keys = dict.fromkeys(key for setting in settings for key in setting)
    differing = [key for key in keys if _differs(key, settings) and key not in REPLICATION]
    shared = [key for key in differing if key.partition(".")[0] not in ("agent", "train")]
    # Trainings of one algorithm are told apart by their settings, those of several by its name.
    own = {name: _own([setting for setting, fact in zip(settings, facts, strict=True) if fact["agent"] == name])
           for name in {fact["agent"] for fact in facts}}  # fmt: skip
    places: set[tuple[Key, Key, Key]] = set()
    for path, setting, fact in zip(directories, settings, facts, strict=True):
        shipped = fact["shipped"].partition(".")[0]
        with (path / EVALUATION).open(encoding="utf-8", newline="") as file:
            for cells in csv.DictReader(file):
                agent, window = cells.pop("agent"), cells.pop("window")
                if agent in ("best", "final") and agent != shipped:
                    continue
                learned = agent == shipped
                configuration = (
                    ("agent", fact["agent"] if learned else agent),
                    *(_key(setting, own[fact["agent"]]) if learned else ()),
                )
                place = (_key(setting, shared), configuration, (("seed", setting["seed"]), ("window", window)))
                # Trainings of one seed have replayed the classic policies alike.
                if learned or place not in places:
                    places.add(place)
                    entries.append(_Entry(path, {name: float(cell) for name, cell in cells.items()}, *place))
    best = facts[directories.index(first)]["best_classic"]
    return entries, (("agent", best),) if best else entries[0].configuration


def _own(settings: list[dict[str, str]]) -> list[str]:
    """Settings of agent and training that trainings of one algorithm differ in, but for what only keeps books."""
    keys = dict.fromkeys(key for setting in settings for key in setting if key.partition(".")[0] in ("agent", "train"))
    return [key for key in keys if _differs(key, settings) and key not in (*REPLICATION, *_BOOKKEEPING)]


def _entries(directories: list[Path], first: Path) -> tuple[list[_Entry], Key]:
    """Reads the runs, and finds out in what they differ and what the baseline's configuration is.

    Args:
        directories: The runs.
        first: The one among them that has the baseline's configuration.

    Raises:
        ConfigError: There are runs that cannot be compared; all are listed.
    """
    errors = []
    settings: list[dict[str, str]] = []
    metrics: list[Mapping[str, float]] = []
    for path in directories:
        try:
            config, numbers = _load(path)
        except ConfigError as error:
            errors.append(error)
            continue
        settings.append(dict(_flat(_named(config))))
        metrics.append(numbers)
    if errors:
        raise ConfigError.many(errors)
    keys = dict.fromkeys(key for setting in settings for key in setting)
    differing = [key for key in keys if _differs(key, settings)]
    replication = [key for key in differing if key in REPLICATION]
    other = [key for key in differing if key not in REPLICATION]
    configuration = [key for key in other if key.partition(".")[0] == "agent"] or other
    scenario = [key for key in other if key not in configuration]
    base = _key(settings[directories.index(first)], configuration)
    ran_base = {_key(setting, scenario) for setting in settings if _key(setting, configuration) == base}
    if any(_key(setting, scenario) not in ran_base for setting in settings):
        configuration, scenario = other, []
    entries = [
        _Entry(path, numbers, *(_key(setting, names) for names in (scenario, configuration, replication)))
        for path, setting, numbers in zip(directories, settings, metrics, strict=True)
    ]
    places = Counter((entry.scenario, entry.configuration, entry.replication) for entry in entries)
    if places.most_common(1)[0][1] == 1:
        return entries, next(entry.configuration for entry in entries if entry.path == first)
    # Nothing in their configurations tells these runs apart; their directories do.
    names = _distinct_names(directories)
    entries = [
        _Entry(entry.path, entry.metrics, entry.scenario, (("", names[entry.path]), *entry.configuration), ())
        for entry in entries
    ]
    return entries, next(entry.configuration for entry in entries if entry.path == first)


def _load(path: Path) -> tuple[dict[str, Any], Mapping[str, float]]:
    """Configuration and metrics of a finished run."""
    manifest = read_manifest(path)
    status = manifest["status"]
    if status != "finished":
        raise ConfigError(f"expected a finished run, got one that is {status}", where=str(path))
    if not (path / "jobs.csv").is_file():
        raise ConfigError("expected a finished run, got a directory without jobs.csv", where=str(path))
    return manifest["config"], RunDirectory(path).metrics()


def _named(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration with the short names of its models, ``contention=fair_share``, beside their settings."""
    models = {group: config[group] for group in MODELS if isinstance(config.get(group), Mapping)}
    rest = {key: value for key, value in config.items() if key not in models}
    for group, model in models.items():
        rest[group] = short_name(model)
        rest |= {f"{group}.{key}": value for key, value in model.items() if key not in ("path", "_target_")}
    return rest


def _differs(key: str, settings: Sequence[Mapping[str, str]]) -> bool:
    """Whether runs differ in a setting; settings that come with a model are told by the name of the model."""
    group = key.partition(".")[0]
    having = settings if group not in MODELS else [setting for setting in settings if key in setting]
    return len({setting.get(key) for setting in having}) > 1


def _flat(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", "none" if value is None else str(value)


def _key(setting: Mapping[str, str], names: Iterable[str]) -> Key:
    return tuple((name, setting.get(name, "none")) for name in names)


def _text(key: Key) -> str:
    """Settings for people: ``job_policy=first backfill=easy``."""
    last = Counter(name.rpartition(".")[2] for name, _ in key)
    parts = []
    for name, value in key:
        short = name.rpartition(".")[2]
        label = short if last[short] == 1 else name
        parts.append(f"{label}={value}" if label else value)
    return " ".join(parts)


def _distinct_names(directories: list[Path]) -> dict[Path, str]:
    """The shortest ends of paths that are all different."""
    for parts in range(1, max(len(path.parts) for path in directories) + 1):
        names = {path: "/".join(path.parts[-parts:]) for path in directories}
        if len(set(names.values())) == len(directories):
            break
    return names


def _metric_names(entries: list[_Entry], asked: Sequence[str]) -> tuple[str, ...]:
    common = [name for name in entries[0].metrics if all(name in entry.metrics for entry in entries)]
    for name in asked:
        if name not in common:
            raise ConfigError(
                f"expected a metric that every run has, got '{name}'{nearest(name, common)}; "
                f"allowed: {', '.join(common)}",
                where="--metric",
            )
    return tuple(dict.fromkeys(asked)) or tuple(name for name in DEFAULT_METRICS if name in common) or tuple(common)


def write_csv(rows: Sequence[Row] | Sequence[Window], path: Path) -> None:
    """Writes rows; what is not known is empty.

    Args:
        rows: Rows or windows of a comparison, at least one.
        path: The file.
    """
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        names = [field.name for field in fields(rows[0])]
        writer.writerow(names)
        for row in rows:
            values = (getattr(row, name) for name in names)
            writer.writerow("" if isinstance(value, float) and math.isnan(value) else value for value in values)


def table(comparison: Comparison) -> str:
    """The comparison as text: a table of means, and for each metric intervals and differences to the baseline."""
    parts = [_means(comparison)]
    parts += [_details([row for row in comparison.rows if row.metric == name]) for name in comparison.metrics]
    best = [f"  {line}" for line in _best(comparison)]
    sample = comparison.sample + (" (one run of each configuration)" if comparison.sample == _JobSamples.of else "")
    parts.append("\n".join([f"[] {CONFIDENCE:.0%} bootstrap interval over {sample}", "best", *best]))
    return "\n\n".join(parts)


def _means(comparison: Comparison) -> str:
    by_metric = [[row for row in comparison.rows if row.metric == name] for name in comparison.metrics]
    lines = [["", *comparison.metrics]]
    for rows in zip(*by_metric, strict=True):
        lines.append([_name(rows[0]), *(f"{_number(row.mean)}{'*' if row.best else ' '}" for row in rows)])
    return _aligned(lines)


def _details(rows: list[Row]) -> str:
    name, *notes = filter(None, (rows[0].metric, rows[0].unit, str(direction(rows[0].metric))))
    heading = f"{name} ({', '.join(notes)})" if notes else name
    middle = [] if all(math.isnan(row.iqm) for row in rows) else ["IQM", ""]
    lines = [["", "runs", "mean", "", *middle, "difference", "", "pairs"]]
    for row in rows:
        ours = [_name(row), str(row.runs), _number(row.mean), _bounds(row.low, row.high)]
        if middle:
            ours += [_number(row.iqm), _bounds(row.iqm_low, row.iqm_high)]
        if row.baseline:
            lines.append([*ours, "baseline", "", ""])
        else:
            difference = _number(row.difference, signed=True)
            pairs = f"{row.pairs:,} {row.paired_by}s" if row.pairs > 1 else str(row.pairs)
            lines.append([*ours, difference, _bounds(row.difference_low, row.difference_high), pairs])
    return f"{heading}\n{_aligned(lines)}"


def _best(comparison: Comparison) -> Iterator[str]:
    for name in comparison.metrics:
        winners: dict[str, list[str]] = {}
        for row in comparison.rows:
            if row.metric == name and row.best:
                winners.setdefault(row.scenario, []).append(row.configuration)
        for scenario, configurations in winners.items():
            yield f"{name}{f' with {scenario}' if scenario else ''}: {' and '.join(configurations)}"


def _name(row: Row) -> str:
    return _joined(row.scenario, row.configuration)


def _joined(*parts: str) -> str:
    return " | ".join(part for part in parts if part) or "all runs"


def _bounds(low: float, high: float) -> str:
    return "" if math.isnan(low) else f"[{_number(low)}, {_number(high)}]"


def _number(value: float, *, signed: bool = False) -> str:
    if math.isnan(value):
        return "-"
    sign = "+" if signed else ""
    size = abs(value)
    if size >= 1e9 or 0 < size < 1e-3:
        return f"{value:{sign}.4e}"
    return f"{value:{sign},.2f}" if size >= 100 else f"{value:{sign}.4f}"


def _aligned(lines: list[list[str]]) -> str:
    """Columns of equal width, the first one to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def write_figure(comparison: Comparison, path: Path) -> None:
    """Draws the means with their intervals, one panel a metric.

    Args:
        comparison: What to draw.
        path: The PNG file.
    """
    from matplotlib.figure import Figure

    names = [_name(row) for row in comparison.rows if row.metric == comparison.metrics[0]]
    panels = len(comparison.metrics)
    width, height = 1.5 + 0.07 * max(map(len, names)) + 2.6 * panels, 1.5 + 0.28 * len(names)
    figure = Figure(figsize=(width, height), layout="constrained")
    for axes, metric in zip(figure.subplots(1, panels, sharey=True, squeeze=False)[0], comparison.metrics, strict=True):
        rows = [row for row in comparison.rows if row.metric == metric]
        for place, row in enumerate(rows):
            color = "tab:green" if row.best else "tab:blue"
            if not math.isnan(row.low):
                axes.hlines(place, row.low, row.high, color=color, linewidth=2, alpha=0.5)
            axes.plot(row.mean, place, "D" if row.baseline else "o", color=color, markersize=5)
        better = str(direction(metric))
        axes.set_title(metric, fontsize=9)
        axes.set_xlabel(f"{rows[0].unit} ({better})" if rows[0].unit and better else better or rows[0].unit, fontsize=8)
        axes.tick_params(labelsize=8)
        axes.margins(x=0.1)
        axes.locator_params(axis="x", nbins=4)
        axes.grid(axis="x", alpha=0.3)
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.5, -0.5)
    figure.supxlabel(f"diamond: baseline   green: best   bar: {CONFIDENCE:.0%} bootstrap interval", fontsize=8)
    figure.savefig(path, dpi=150)


def write_windows(comparison: Comparison, path: Path) -> bool:
    """Draws each run's difference to the baseline, and their mean with its interval, one panel a metric.

    Args:
        comparison: What to draw; it has windows.
        path: The PNG file.

    Returns:
        Whether there was a difference to draw.
    """
    from matplotlib.figure import Figure

    configurations = list(dict.fromkeys(_name(row) for row in comparison.rows if row.pairs))
    if not configurations:
        return False
    panels = len(comparison.metrics)
    width, height = 1.5 + 0.07 * max(map(len, configurations)) + 2.6 * panels, 1.5 + 0.4 * len(configurations)
    figure = Figure(figsize=(width, height), layout="constrained")
    for axes, metric in zip(figure.subplots(1, panels, sharey=True, squeeze=False)[0], comparison.metrics, strict=True):
        axes.axvline(0, color="tab:gray", linewidth=1)
        rows = [row for row in comparison.rows if row.metric == metric and row.pairs]
        for row in rows:
            place = configurations.index(_name(row))
            found = np.array(
                [
                    window.difference
                    for window in comparison.windows
                    if (window.metric, window.scenario, window.configuration)
                    == (metric, row.scenario, row.configuration)
                ]
            )
            better = found * direction(metric) > 0
            for chosen, color in ((better, "tab:green"), (~better, "tab:red")):
                axes.plot(found[chosen], np.full(chosen.sum(), place), "o", color=color, markersize=4, alpha=0.6)
            if not math.isnan(row.difference_low):
                axes.hlines(place + 0.25, row.difference_low, row.difference_high, color="black", linewidth=2)
            axes.plot(row.difference, place + 0.25, "D", color="black", markersize=4)
        axes.set_title(metric, fontsize=9)
        axes.set_xlabel(rows[0].unit if rows else "", fontsize=8)
        axes.tick_params(labelsize=8)
        axes.margins(x=0.1)
        axes.locator_params(axis="x", nbins=4)
        axes.grid(axis="x", alpha=0.3)
        axes.set_yticks(range(len(configurations)), configurations)
        axes.set_ylim(len(configurations) - 0.5, -0.5)
    base = next(_name(row) for row in comparison.rows if row.baseline)
    figure.supxlabel(
        f"difference to {base}   dots: runs (green: better)   diamond and bar: mean, {CONFIDENCE:.0%} interval",
        fontsize=8,
    )
    figure.savefig(path, dpi=150)
    return True
