"""Agents and orders on windows of traces, by the protocol of docs/compare.md: families, split, windows, table."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from hdsim.errors import ConfigError, not_one_of
from hdsim.report.statistics import Against, Floats, against
from hdsim.scheduling.agent import Agent, make_agent, stock_rules
from hdsim.simulation.setup import model_settings
from hdsim.simulation.window_sets import WindowSet
from hdsim.simulation.windows import metric_of
from hdsim.studies.measures import test_sets
from hdsim.studies.tables import Cell
from hdsim.util.resources import options

#: Rules for the jobs behind a head that waits: settings of the orders.
RULES: Mapping[str, Mapping[str, Any]] = {
    "strict": {},
    "greedy": {"backfill": "greedy"},
    "easy": {"backfill": "easy"},
    "conservative": {"backfill": "conservative"},
    "committed": {"commit_head": True},
    "rlscheduler": {"backfill": "rlscheduler", "commit_head": True},
}
#: The two of RLScheduler, under which a head stays the head and every event has a scheduling pass.
PER_EVENT = ("committed", "rlscheduler")
#: Ratios of the worst windows of an agent.
TAIL: Mapping[str, Callable[[Floats], Any]] = {
    "95th percentile of ratios": lambda ratios: np.quantile(ratios, 0.95),
    "worst ratio": np.max,
}
#: Metrics of the jobs of all windows together, beside the one that agents are compared in.
WAITS = ("mean_waiting_time", "p95_waiting_time", "max_waiting_time")


@dataclass(frozen=True)
class Contender:
    """An agent, one for each seed of its training, and the settings that they were made from, if there are some."""

    name: str
    agents: tuple[Agent, ...]
    settings: tuple[Mapping[str, Any], ...] = ()

    def scores(self, windows: WindowSet, metric: str, *, batch_events: bool) -> tuple[Floats, dict[str, float]]:
        """Returns the (S, W) scores of S seeds, and :data:`WAITS` of the jobs of all replays."""
        scores, waits = np.empty((len(self.agents), len(windows.windows))), []
        for seed, agent in enumerate(self.agents):
            for number, window in enumerate(windows.windows):
                start, finish = window.starts(agent, batch_events=batch_events)
                waits.append(start - window.workload.submission_time[window.warmup :])
                scores[seed, number] = metric_of(metric, waits[-1], finish - start)
        together = np.concatenate(waits)
        return scores, {name: metric_of(name, together, np.ones(len(together))) for name in WAITS}


def measure(
    runs: Path,
    data: Path,
    sources: str,
    orders: str = "fcfs sjf saf f1 f2 f3 f4",
    agents: str = "",
    rules: str = "strict greedy easy conservative",
    split: str = "validation",
    number: str = "0",
    traces: str = "100",
    windows: str = "2",
    jobs: str = "1024",
    warmup: str = "1024",
    base: str = "easy",
    metric: str = "mean_bounded_slowdown",
    validation_traces: str = "20",
    log: str = "",
    again: str = "",
) -> Mapping[str, Mapping[str, Cell]]:
    """Evaluates agents and plain schedulers on windows of several families.

    A plain scheduler is an order under a rule. The baseline is the one that is best on validation traces of the family;
    of several rules the best of each one is shown, of one rule all orders.

    Args:
        runs: Folder of the runs; the scores are written to ``scores`` beside it.
        data: Folder of reference data, which trace files are relative to.
        sources: Families, kinds and trace files, a line each, files perhaps with ``arrival_factor=0.5``, ``whole=true``
            or ``since=0.6``, and ``like=true``.
        orders: Orders of the queue, which get each rule.
        agents: Agents, a line each: ``NAME: AGENT KEY=VALUE ...`` with the name of an agent, or with an option of the
            group ``agent`` and settings; ``checkpoint=[A,B]`` and ``job_policy=[A.json,B.json]`` are trainings from
            several seeds.
        rules: Some of :data:`RULES`; those of :data:`PER_EVENT` are in tables of their own.
        split: ``validation`` or ``test``; of a test set the log is written.
        number: Number of the set of each family; a file has one set.
        traces: Number of traces.
        windows: Windows of a trace.
        jobs: Jobs of a window.
        warmup: Jobs of the warm-up, 0 for an empty start.
        base: Policy of the warm-up.
        metric: See :meth:`hdsim.simulation.windows.Window.score`.
        validation_traces: Number of traces that the best order is chosen on.
        log: Log of test sets, see :func:`hdsim.studies.measures.test_sets.log_file`.
        again: "yes" evaluates on a test set that the log has for other weights.

    Returns:
        By family and agent: mean, :data:`WAITS`, and with 95 % intervals the ratio of the means to that of the
        baseline, the geometric mean and the interquartile mean of the ratios of the windows, and the probability of
        improvement; then the 95th percentile of these ratios and the worst one.

    Raises:
        HdsimError: A setting is not allowed, or the test set has been used for other weights.
    """
    plain, batch_events = _plain(rules.split(), orders.split())
    told, rivals = " ".join(plain), contenders(agents)
    shape = {"jobs": int(jobs), "warmup": int(warmup), "base": base, "count": int(windows)}
    weights, file = weights_of(rivals), test_sets.log_file(log)
    rows: dict[str, dict[str, Cell]] = {}
    for line in filter(None, map(str.strip, sources.splitlines())):
        place = {**_source(line, data), **shape}
        chosen = WindowSet(split=split, number=int(number), traces=int(traces), **place)
        # A file has few sets.
        chosen = chosen if chosen.has_sets else replace(chosen, number=0)
        if split == "test" and again != "yes":
            test_sets.require_unused(file, chosen.digest, weights, line)
        held = WindowSet(split="validation", traces=int(validation_traces), **place)
        tried = {
            one.name: one.scores(held, metric, batch_events=batch_events)[0].mean()
            for of in plain.values()
            for one in of
        }
        best = min(tried, key=tried.__getitem__)
        shown = [min(of, key=lambda one: tried[one.name]) for of in plain.values()]
        shown = next(iter(plain.values())) if len(plain) == 1 else shown
        found = {one.name: one.scores(chosen, metric, batch_events=batch_events) for one in (*rivals, *shown)}
        scores = {agent: values for agent, (values, _) in found.items()}
        name = f"like {Path(chosen.source).name}" if chosen.like else Path(chosen.source).name
        firsts = ((window.trace, window.workload.job_id[window.warmup]) for window in chosen.windows)
        test_sets.write_scores(
            runs.parent / "scores" / f"{name}_{told.replace(' ', '_')}.csv", scores, firsts, ["score"]
        )
        remarks = [chosen.shortfall]
        if split == "test":
            study, sha256 = f"{runs.parent.name}, {told}", test_sets.digest_of(scores)
            remarks.append(test_sets.record(file, study, chosen.described(), weights, sha256))
        for agent, (values, waits) in found.items():
            compared = against(values, scores[best][0], [window.trace for window in chosen.windows])
            ratios = None if agent == best else values / scores[best][0]
            cells = {metric: float(values.mean()), **waits, **_cells(compared, ratios)}
            rows[f"{name}: {agent}"] = {**cells, "remark": "; ".join(filter(None, remarks))}
            remarks.clear()
    return rows


def _plain(rules: Sequence[str], orders: Sequence[str]) -> tuple[dict[str, list[Contender]], bool]:
    """Returns the plain schedulers of each rule, and whether there is one pass per instant."""
    for rule in rules:
        if rule not in RULES:
            raise ConfigError(not_one_of(rule, RULES), where="rules")
    per_event = [rule for rule in rules if rule in PER_EVENT]
    if not rules or (per_event and len(per_event) < len(rules)):
        raise ConfigError(
            f"expected one rule or more, {' and '.join(PER_EVENT)} without others, got '{' '.join(rules)}'",
            where="rules",
        )
    found = {
        rule: [
            Contender(
                order if rule == "strict" else f"{rule}-{order}", (make_agent({"job_policy": order, **RULES[rule]}),)
            )
            for order in orders
        ]
        for rule in rules
    }
    return found, not per_event


def contenders(lines: str) -> list[Contender]:
    """Returns agents from lines of text, see :func:`measure`.

    Raises:
        ConfigError: One cannot be made.
    """
    return [_contender(line) for line in lines.splitlines() if line.strip()]


def weights_of(rivals: Sequence[Contender]) -> str:
    """Returns checkpoints and code files of agents with digests."""
    told = [told for rival in rivals for told in (*rival.settings, *map(vars, rival.agents))]
    agents = [agent for rival in rivals for agent in rival.agents]
    agents += [expert for agent in agents for expert in getattr(agent, "experts", {}).values()]
    rules = map(stock_rules, agents)
    told += [{"network": rule.order.network} for rule in rules if rule is not None]
    return test_sets.weights_of(value for settings in told for value in settings.values())


def _contender(line: str) -> Contender:
    """An agent as a line of text."""
    name, colon, rest = line.partition(":")
    kind, *words = shlex.split(rest) or [""]
    if not (colon and name.strip() and kind and all("=" in word for word in words)):
        raise ConfigError(f"expected NAME: AGENT KEY=VALUE ..., got '{line.strip()}'", where="agents")
    if kind not in options("agent"):
        if words:
            raise ConfigError(
                f"expected settings of one of {', '.join(options('agent'))}, got '{kind}'", where="agents"
            )
        return Contender(name.strip(), (make_agent(kind),))
    given = {key: yaml.safe_load(value) for key, value in (word.split("=", 1) for word in words)}
    several = next((key for key in ("checkpoint", "job_policy") if isinstance(given.get(key), list)), None)
    each = [{**given, several: value} for value in given[several]] if several else [given]
    settings = tuple({**model_settings("agent", kind), **one} for one in each)
    return Contender(name.strip(), tuple(map(make_agent, settings)), settings)


def _source(line: str, data: Path) -> dict[str, Any]:
    """Settings of a :class:`WindowSet` from a line of text, see :func:`measure`."""
    source, *words = shlex.split(line)
    found: dict[str, Any] = {"source": str(data / source) if (data / source).is_file() else source}
    for word in words:
        key, _, value = word.partition("=")
        if key not in ("arrival_factor", "whole", "since", "like"):
            told = f"expected arrival_factor=NUMBER, whole=true, since=NUMBER or like=true, got '{word}'"
            raise ConfigError(told, where=f"sources: {line}")
        found[key] = yaml.safe_load(value)
    return found


def _cells(compared: Against, ratios: Floats | None) -> dict[str, Cell]:
    """Cells of a comparison; `ratios` are those of all windows, None for the baseline itself."""
    columns: dict[str, Cell] = {
        "ratio of means": compared.ratio,
        "geometric mean of ratios": compared.geometric,
        "interquartile mean of ratios": compared.middle,
        "probability of improvement": compared.improvement,
    }
    if ratios is None:
        return dict.fromkeys((*columns, *TAIL), "best on validation")
    return columns | {name: float(tail(ratios)) for name, tail in TAIL.items()}
