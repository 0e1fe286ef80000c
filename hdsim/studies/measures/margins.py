"""Margins: what agents are better than the best of many baselines, on windows of any platform and with any model."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hdsim.config.composer import Composer
from hdsim.config.inputs import read_platform, read_workload, seed_of_jobs
from hdsim.errors import ConfigError, not_one_of
from hdsim.report.statistics import Floats, against, bootstrap
from hdsim.results.metrics import direction
from hdsim.results.run_directory.inputs import digest
from hdsim.scheduling.agent import Agent, make_agent
from hdsim.simulation.setup import MODELS
from hdsim.simulation.simulation import simulate
from hdsim.studies.measures import test_sets
from hdsim.studies.measures.windows import contenders, weights_of
from hdsim.studies.tables import Cell

if TYPE_CHECKING:
    from hdsim.workload.model import Workload

#: Rules by the first word of a baseline's name; other orders are strict, and a portfolio has a rule of its own.
_RULES = ("strict", "greedy", "easy", "conservative")


@dataclass(frozen=True)
class _Window:
    """A composed configuration of ``hdsim run`` without its agent."""

    config: Mapping[str, Any]

    @cached_property
    def jobs(self) -> Workload:
        return read_workload(self.config, read_platform(self.config))

    @property
    def options(self) -> dict[str, Any]:
        return {key: self.config[key] for key in (*MODELS, "seed")}

    @property
    def trace(self) -> str:
        """All that the jobs of several windows have in common."""
        return str({**self.config["workload"], "start": 0, "seed of the run": self.config["seed"]})

    def metrics(self, agent: Agent) -> Mapping[str, float]:
        return simulate(read_platform(self.config), self.jobs, agent, **self.options).metrics


def measure(
    runs: Path,
    data: Path,
    windows: str,
    baselines: str,
    agents: str,
    metrics: str,
    parts: str = "1",
    split: str = "validation",
    log: str = "",
    again: str = "",
) -> dict[str, dict[str, Cell]]:
    """Replays windows under all baselines and under agents; returns a row for each pair of `metrics`.

    Its cells are the best mean of the baselines under each rule; the baseline that is best of all on these very
    windows, which favours the baselines; the agent's mean over its seeds; the mean difference of the two with its 95 %
    bootstrap interval over windows; and with intervals over trainings, traces and windows the
    ratio of the means and the geometric mean of the ratios of the windows.

    A baseline is not replayed where no job of a window waits under its strict counterpart, the same order without
    backfilling: it starts the same jobs on the same cores, unless these are random.

    Args:
        runs: Folder of the runs; the scores of agents and best baselines are written to ``scores`` beside it.
        data: Not used.
        windows: Overrides of ``hdsim run``, a sweep of windows; those of one trace differ in ``workload.start``.
        baselines: Overrides of ``hdsim run experiment=baselines``.
        agents: See :func:`hdsim.studies.measures.windows.measure`.
        metrics: ``METRIC=AGENT``, separated by spaces: agents that are compared in a metric of replays.
        parts: Parts of a trace, contiguous and with as many windows each, that count as traces.
        split: ``test``: the windows are a test set, whose use is written to the log.
        log: Log of test sets, see :func:`hdsim.studies.measures.test_sets.log_file`.
        again: "yes" evaluates on a test set that the log has for other weights.

    Raises:
        HdsimError: A setting is not allowed, or the test set has been used for other weights.
    """
    composer, rivals = Composer(), contenders(agents)
    held = [_Window(run.config) for run in composer.sweep(_overrides(composer, windows))]
    weights, file, sha256 = weights_of(rivals), test_sets.log_file(log), _digest(held)
    if split == "test" and again != "yes":
        test_sets.require_unused(file, sha256, weights, "windows")
    pairs = [pair.partition("=")[::2] for pair in metrics.split()]
    names = list(dict.fromkeys(metric for metric, _ in pairs))
    ours = {rival.name: _scores(rival.agents, held, names) for rival in rivals}
    for _, agent in pairs:
        if agent not in ours:
            raise ConfigError(not_one_of(agent, ours), where="metrics")
    theirs, strict = {}, _Strict(held)
    for run in composer.sweep(["experiment=baselines", *_overrides(composer, baselines)]):
        name = "-".join(text.partition("=")[2] for text in run.overrides if text.startswith("agent"))
        found = strict.metrics(run.config["agent"])
        theirs[name] = np.array([[[each[metric] for metric in names] for each in found]])
    traces = _traces(held, int(parts))
    rows: dict[str, dict[str, Cell]] = {}
    for metric, agent in pairs:
        column, higher = names.index(metric), direction(metric) > 0
        best_of = max if higher else min
        means = {name: float(scores[..., column].mean()) for name, scores in theirs.items()}
        by_rule = {rule: [mean for name, mean in means.items() if _rule(name) == rule] for rule in _RULES}
        best = best_of(means, key=means.__getitem__)
        scores, baseline = ours[agent][..., column], theirs[best][0, :, column]
        compared = against(scores, baseline, traces, higher=higher)
        rows[f"{metric}: {agent}"] = {
            **{rule: best_of(found) for rule, found in by_rule.items() if found},
            "best baseline": best,
            "mean": float(scores.mean()),
            "difference": bootstrap(scores.mean(axis=0) - baseline),
            "ratio of means": compared.ratio,
            "geometric mean of ratios": compared.geometric,
        }
    shown = ours | {name: theirs[name] for name in sorted({str(row["best baseline"]) for row in rows.values()})}
    told = {**_described(held, sha256), "traces": len(np.unique(traces))}
    firsts = ((seed_of_jobs(window.config), window.jobs.job_id[0]) for window in held)
    file_name = f"{str(told['source']).replace(' ', '_')}.csv"
    test_sets.write_scores(runs.parent / "scores" / file_name, shown, firsts, names)
    if split == "test":
        log_row = (runs.parent.name, told, weights, test_sets.digest_of(ours))
        rows[next(iter(rows))]["remark"] = test_sets.record(file, *log_row)
    return rows


class _Strict:
    """Replays windows under baselines, whose strict counterparts are replayed first."""

    def __init__(self, windows: list[_Window]) -> None:
        self._windows = windows
        self._found: dict[str, list[Mapping[str, float]]] = {}  # by strict order

    def metrics(self, settings: Mapping[str, Any]) -> list[Mapping[str, float]]:
        """Returns the metrics of every window under a baseline."""
        # A portfolio has several orders, and random cores depend on how often they were drawn.
        if "job_policy" not in settings or settings["core_policy"] == "random":
            return [window.metrics(make_agent(settings)) for window in self._windows]
        counterpart = {**settings, "backfill": "none", "backfill_order": None, "estimates": "requested"}
        key = json.dumps(counterpart, sort_keys=True)
        if key not in self._found:
            self._found[key] = [window.metrics(make_agent(counterpart)) for window in self._windows]
        if settings == counterpart:
            return self._found[key]
        agent = make_agent(settings)
        return [
            window.metrics(agent) if found["max_waiting_time"] else found
            for window, found in zip(self._windows, self._found[key], strict=True)
        ]


def _traces(windows: list[_Window], parts: int) -> NDArray[np.int64]:
    """(W,) trace of each window, or part of a trace."""
    traces = np.unique([window.trace for window in windows], return_inverse=True)[1]
    numbers = traces * parts
    for trace in np.unique(traces):
        own = np.flatnonzero(traces == trace)
        first = np.array([windows[place].config["workload"]["start"] for place in own])
        numbers[own[first.argsort()]] += np.arange(len(own)) * parts // len(own)
    return numbers


def _overrides(composer: Composer, line: str) -> list[str]:
    return composer.overrides(shlex.split(line))


def _scores(agents: tuple[Agent, ...], windows: list[_Window], metrics: list[str]) -> Floats:
    """(S, W, M) metrics of S seeds of an agent."""
    found = [[window.metrics(agent) for window in windows] for agent in agents]
    return np.array([[[each[metric] for metric in metrics] for each in seed] for seed in found])


def _rule(name: str) -> str:
    first = name.partition("-")[0].rstrip("+")
    return first if first in (*_RULES, "portfolio") else "strict"


def _digest(windows: list[_Window]) -> str:
    """The sha256 of the jobs of all windows and of what they are replayed on."""
    told = [f"{window.config['platform']} {window.options} {digest(window.jobs)}" for window in windows]
    return hashlib.sha256("\n".join(told).encode()).hexdigest()


def _described(windows: list[_Window], sha256: str) -> dict[str, str | int]:
    """The windows for the log, see :func:`hdsim.studies.measures.test_sets.record`."""
    platform, workload = windows[0].config["platform"], windows[0].config["workload"]
    source = Path(workload["path"] or workload["generate"]["model"]).name
    return {
        "source": f"{source} on {Path(platform['path']).name}",
        "number": seed_of_jobs(windows[0].config),
        "windows": len(windows),
        "jobs": len(windows[0].jobs),
        "start": "empty",
        "sha256": sha256,
    }
