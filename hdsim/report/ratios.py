"""Configurations relative to the baseline over all seeds, traces and windows, by :func:`statistics.against`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hdsim.report.compare import Comparison
from hdsim.report.labels import text
from hdsim.report.pairing import PlacedRun, grouped
from hdsim.report.statistics import Interval, against
from hdsim.results.metrics import Direction, direction
from hdsim.results.run_directory.manifest import read_manifest

#: Settings of a replication that name a part of a trace.
_PARTS = ("workload.start", "start", "window")


@dataclass(frozen=True)
class Ratio:
    """One metric of one configuration relative to the baseline.

    Attributes:
        configuration, baseline: Their labels.
        seeds: Seeds with the same jobs, as of trainings.
        traces: Traces: jobs of other files, generators or seeds. Scenarios, such as loads and platforms, replay the
            same traces.
        windows: Windows of all traces in all scenarios, whole traces among them.
        ratio: Ratio of the means.
        geometric: Geometric mean of the ratios of the windows.
        middle: Interquartile mean of these ratios.
        improvement: Probability that a seed is better than the baseline on a window, ties counted half.
    """

    metric: str
    configuration: str
    baseline: str
    seeds: int
    traces: int
    windows: int
    ratio: Interval
    geometric: Interval
    middle: Interval
    improvement: Interval


@dataclass(frozen=True)
class Place:
    """Trace of an entry, part of it, scenario in which it is replayed, and seed among those with the same jobs."""

    trace: str
    part: str
    scenario: str
    seed: str


def ratios(comparison: Comparison) -> tuple[Ratio, ...]:
    """Returns every metric of every configuration that has two windows or more in common with the baseline.

    Metrics without a direction, or with values that are not above 0, have no ratios. Windows that a seed lacks are left
    out.
    """
    if not comparison.windows:
        return ()
    base = comparison.baseline
    if base is None:
        return ()
    placed = zip(places(comparison.entries), comparison.entries, strict=True)
    groups = grouped(placed, lambda one: text(one[1].configuration))
    return tuple(
        found
        for metric in comparison.metrics
        if direction(metric)
        for name, group in groups.items()
        if name != base
        for found in _ratio(metric, name, base, *(_scores(metric, one) for one in (group, groups[base])))
    )


_Scores = dict[tuple[str, str, str], dict[str, float]]


def _scores(metric: str, group: Sequence[tuple[Place, PlacedRun]]) -> _Scores:
    """Values by trace, part and scenario, and by seed."""
    found: _Scores = {}
    for place, entry in group:
        found.setdefault((place.trace, place.part, place.scenario), {})[place.seed] = entry.metrics[metric]
    return found


def _ratio(metric: str, name: str, base: str, ours: _Scores, theirs: _Scores) -> Iterator[Ratio]:
    seeds = sorted({seed for values in ours.values() for seed in values})
    windows = [window for window, values in ours.items() if len(values) == len(seeds) and window in theirs]
    if len(windows) < 2:
        return
    scores = np.array([[ours[window][seed] for window in windows] for seed in seeds])
    baseline = np.array([np.mean(list(theirs[window].values())) for window in windows])
    if not ((scores > 0).all() and (baseline > 0).all() and np.isfinite(scores).all() and np.isfinite(baseline).all()):
        return
    known = {trace: number for number, trace in enumerate(dict.fromkeys(trace for trace, *_ in windows))}
    parts = {part: number for number, part in enumerate(dict.fromkeys(part for _, part, _ in windows))}
    higher = direction(metric) is Direction.HIGHER
    traces = [known[trace] for trace, *_ in windows]
    found = against(scores, baseline, traces, [parts[part] for _, part, _ in windows], higher=higher)
    yield Ratio(metric, name, base, len(seeds), len(known), len(windows), **vars(found))


def places(entries: Sequence[PlacedRun]) -> list[Place]:
    """Places of all entries. A seed that changes the jobs is part of the trace."""
    jobs: dict[tuple[str, str, str], set[str | None]] = {}
    found = []
    for entry in entries:
        settings = dict(entry.replication)
        seed = settings.pop("seed", "")
        part = ", ".join(settings.pop(name) for name in _PARTS if name in settings)
        manifest = read_manifest(entry.path)
        trace = " ".join((_source(manifest), *settings.values()))
        found.append(Place(trace, part, text(entry.scenario), seed))
        digest = None
        if "window" not in dict(entry.replication):
            digest = (manifest.get("workload") or {}).get("sha256", seed)
        jobs.setdefault((trace, part, text(entry.scenario)), set()).add(digest)
    drawn = {trace for (trace, *_), digests in jobs.items() if len(digests) > 1}
    return [
        replace(place, trace=f"{place.trace} {place.seed}", seed="") if place.trace in drawn else place
        for place in found
    ]


def _source(manifest: Mapping[str, Any]) -> str:
    """File or generator that the jobs of a run come from."""
    workload = manifest["config"].get("workload") or {}
    files = [entry["sha256"] for entry in manifest.get("inputs") or [] if entry["kind"] == "workload"]
    return str(files or workload.get("path") or (workload.get("generate") or {}).get("model"))
