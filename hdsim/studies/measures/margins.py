"""Margins: what agents are better than the best of many baselines, on the same windows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from hdsim.report.labels import text
from hdsim.report.pairing import finished, run_directories, run_entries
from hdsim.report.statistics import bootstrap
from hdsim.results.metrics import direction
from hdsim.studies.tables import Cell

#: Rules by the first word of a baseline's name; other orders are strict, and a portfolio has a rule of its own.
_RULES = ("strict", "greedy", "easy", "conservative")

#: Metrics of each window by configuration.
Windows = Mapping[str, Mapping[str, Mapping[str, float]]]


def measure(runs: Path, data: Path, *, baselines: str, agents: str, metrics: str) -> dict[str, dict[str, Cell]]:
    """Returns a row for each metric.

    Its cells are the best mean of the baselines under each rule; the best baseline, and the best agent, each with its
    mean, that of an agent over its seeds; and the mean difference of the two with its 95 % bootstrap interval over
    windows. The best ones are chosen on these windows, which favours what there is more of: the baselines.

    Args:
        runs: Folder of the runs of a study.
        data: Folder of the reference data.
        baselines: Name of the command whose runs are the baselines.
        agents: Name of the command whose runs are the agents; checkpoints ``NAME-1``, ``NAME-2`` are seeds of one.
        metrics: Names of metrics, separated by spaces.
    """
    theirs, ours = _windows(runs / baselines), _windows(runs / agents)
    rows: dict[str, dict[str, Cell]] = {}
    for metric in metrics.split():
        means = {name: _mean(windows, metric) for name, windows in theirs.items()}
        best, agent = _best(means, metric), _best({name: _mean(each, metric) for name, each in ours.items()}, metric)
        apart = [ours[agent][window][metric] - theirs[best][window][metric] for window in ours[agent]]
        by_rule = {rule: {name: mean for name, mean in means.items() if _rule(name) == rule} for rule in _RULES}
        rows[metric] = {
            **{rule: found[_best(found, metric)] for rule, found in by_rule.items() if found},
            "best baseline": best,
            "best agent": agent,
            "agent": _mean(ours[agent], metric),
            "difference": bootstrap(apart),
        }
    return rows


def _windows(folder: Path) -> Windows:
    """Metrics of the runs in a folder, those of several seeds of an agent averaged."""
    found, _ = finished(run_directories(folder))
    entries, _ = run_entries(found, found[0].path)
    samples: dict[str, dict[str, list[Mapping[str, float]]]] = {}
    for entry in entries:
        checkpoint = dict(entry.configuration).get("agent.checkpoint", "none")
        name = text(entry.configuration) if checkpoint == "none" else checkpoint.rpartition("-")[0]
        samples.setdefault(name, {}).setdefault(text(entry.replication), []).append(entry.metrics)
    return {
        name: {
            window: {key: float(np.mean([each[key] for each in several])) for key in several[0]}
            for window, several in windows.items()
        }
        for name, windows in samples.items()
    }


def _mean(windows: Mapping[str, Mapping[str, float]], metric: str) -> float:
    return float(np.mean([each[metric] for each in windows.values()]))


def _best(means: Mapping[str, float], metric: str) -> str:
    return max(means, key=lambda name: direction(metric) * means[name])


def _rule(name: str) -> str:
    first = name.partition("-")[0].partition("(")[0].rstrip("+")
    return first if first in (*_RULES, "portfolio") else "strict"
