"""The model card of a checkpoint: the agent, its training data and its scores.

After Mitchell et al., Model Cards for Model Reporting (FAT* 2019).
"""

from __future__ import annotations

import hashlib
import math
import platform as host
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hdsim.report.statistics import bootstrap
from hdsim.results.metrics import Direction, direction, unit
from hdsim.util.files import dump_json, replacing
from hdsim.util.version import __version__

if TYPE_CHECKING:
    from hdsim.learning.training.evaluation import Evaluation
    from hdsim.learning.training.loop import Training

#: Traces of a split that its row names.
_NAMED = 3
_PACKAGES = ("numpy", "torch", "gymnasium")


def facts(training: Training, replays: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """Collects the contents of the card from a training at its end, and the replays of the test windows by agent."""
    task, state, evaluation = training.task, training.state, training.task.evaluation
    judged = f"validation_{evaluation.metric}"
    shipped = training.names[-1]
    sets = {"train": task.traces, "validation": task.validation, "test": task.test}
    described = {split: [task.described(part) for part in parts] for split, parts in sets.items()}
    return {
        **task.about(training.kept(shipped)),
        "shipped": training.kept(shipped).name,
        "config": dict(task.config),
        "seed": task.config["seed"],
        "steps": state.step,
        "episodes": state.episodes,
        "cpu_seconds": state.cpu_seconds,
        "traces": described["train"],
        "validation_windows": described["validation"],
        "test_windows": described["test"],
        "splits": {split: _digest(parts) for split, parts in described.items()},
        "metric": evaluation.metric,
        "higher_is_better": direction(evaluation.metric) is Direction.HIGHER,
        **compared(evaluation, replays, shipped, task.baselines),
        "average": task.average,
        "best_step": state.best_step,
        "curve": [{"step": row["step"], "score": row[judged]} for row in training.records.rows if judged in row],
        "versions": {"hdsim": __version__, "python": host.python_version()}
        | {name: version(name) for name in _PACKAGES},
    }


def compared(
    evaluation: Evaluation, replays: Mapping[str, Sequence[Any]], shipped: str, baselines: Iterable[str]
) -> dict[str, Any]:
    """Scores and means by agent, differences of the shipped agent to baselines with intervals, the best baseline."""
    scores = {name: evaluation.read(results).tolist() for name, results in replays.items()}
    means = {name: float(np.mean(values)) for name, values in scores.items()}
    classic = {name: means[name] for name in baselines}
    return {
        "scores": scores,
        "means": means,
        "differences": {name: _difference(scores[shipped], scores[name]) for name in classic},
        "best_classic": evaluation.best(classic) if classic else None,
    }


def _digest(parts: Sequence[Mapping[str, Any]]) -> str:
    """The sha256 of a split: of the digests of its traces or windows."""
    told = [part[next(key for key in part if key.endswith("_sha256"))] for part in parts]
    return hashlib.sha256("\n".join(told).encode()).hexdigest()


def _difference(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float, float]:
    """Mean difference of the shipped agent to another one over the test windows, with its interval."""
    found = bootstrap(np.subtract(ours, theirs))
    return found.value, found.low, found.high


def write(directory: Path, card: Mapping[str, Any]) -> None:
    """Writes model_card.json and model_card.md."""
    dump_json(directory / "model_card.json", card, default=list)
    with replacing(directory / "model_card.md") as file:
        file.write(_text(card))


def table(card: Mapping[str, Any]) -> str:
    """The mean scores of the trained agent and of the classic policies, best first, one per line."""
    means, metric = card["means"], card["metric"]
    windows, contents = card["test_windows"], _unit(card)
    quantity = f"{metric} [{unit(metric)}]" if unit(metric) else metric
    width = max(map(len, means))
    lines = [f"{name:{width}}  {means[name]:>16,.6g}{_less(card, name)}" for name in _best_first(card)]
    heading = f"mean {quantity} of {len(windows)} test windows of {windows[0][contents]} {contents}\n"
    return "\n".join([heading, *lines, *([f"\n{early}"] if (early := _early(card)) else [])])


def _early(card: Mapping[str, Any]) -> str:
    """Why the training ended before its last step, empty if it did not."""
    train = card["config"]["train"]
    if card["steps"] >= train["steps"]:
        return ""
    return (
        f"ended at step {card['steps']:,} of {train['steps']:,}: {train['patience']} evaluations without a better "
        f"score than that of step {card['best_step']:,}"
    )


def _less(card: Mapping[str, Any], name: str) -> str:
    """Difference of the shipped agent to a classic policy, empty for others and in cards of earlier versions."""
    if name not in card.get("differences", {}):
        return ""
    value, low, high = card["differences"][name]
    interval = "" if low is None or math.isnan(low) else f" [{low:+.6g}, {high:+.6g}]"
    return f"  shipped agent {value:+.6g}{interval}"


def _best_first(card: Mapping[str, Any]) -> list[str]:
    means = card["means"]
    return sorted(means, key=means.__getitem__, reverse=card["higher_is_better"])


def _unit(card: Mapping[str, Any]) -> str:
    """Contents of a window."""
    return "jobs" if "platform" in card else "supersteps"


def _text(card: Mapping[str, Any]) -> str:
    metric, contents = card["metric"], _unit(card)
    quantity = f"{metric} [{unit(metric)}]" if unit(metric) else metric
    platform, tests = card.get("platform"), card["test_windows"]
    place = f"{platform['name']} ({platform['cores']:,} cores)" if platform else "a gang"
    traces = [
        f"| `{Path(trace['path']).name}` | {trace[contents]} | `{trace['sha256'] or trace[f'{contents}_sha256']}` |"
        for trace in card["traces"]
    ]
    parts = {"train": card["traces"], "validation": card["validation_windows"], "test": tests}
    splits = [
        f"| {split} | {_sources(windows)} | {len(windows)} | {sum(part[contents] for part in windows):,} | "
        f"`{card['splits'][split]}` |"
        for split, windows in parts.items()
    ]
    curve = [f"| {point['step']:.0f} | {point['score']:.6g} |" for point in card["curve"]]
    settings = [f"| {name} | {value} |" for name, value in card["settings"].items()]
    problem = ", ".join(f"{name} {value}" for name, value in card["task"].items())
    suffix = Path(card["shipped"]).suffix
    early = f" The training {early}." if (early := _early(card)) else ""
    kind = "higher" if card["higher_is_better"] else "lower"
    return f"""# {card["agent"]}

{card["parameters"]:,} parameters, trained for {card["steps"]:,} steps ({card["episodes"]:,} episodes) with seed
{card["seed"]} on {place}.
Decision problem: {problem}. Objective: {card["config"]["env"].get("objective", metric)}.

`best{suffix}` is the agent of step {card["best_step"]:,}, the best on {len(card["validation_windows"])} validation
windows; `final{suffix}` is that of the last step. Neither was trained on {contents} of the validation or test
windows.{early}

## Scores

Mean {quantity} of {len(tests)} test windows of {tests[0][contents]} {contents}; {kind} is better. Differences of the
shipped agent have 95 % bootstrap intervals over these windows, which are of one trace; a claim needs more of them.

{scores_table(card)}

## Traces

| trace | {contents} | sha256 |
|---|---|---|
{_lines(traces)}

| split | of | parts | {contents} | sha256 |
|---|---|---|---|---|
{_lines(splits)}

## Learning curve

{card["average"].capitalize()} {quantity} of the validation windows.

| step | {metric} |
|---|---|
{_lines(curve)}

## Settings

| setting | value |
|---|---|
{_lines(settings)}
"""


def scores_table(card: Mapping[str, Any]) -> str:
    """Means and differences of a card, or of its scores on other windows, as Markdown; best first."""
    rows = [f"| {name} | {card['means'][name]:.6g} | {_less(card, name).strip()} |" for name in _best_first(card)]
    return _lines([f"| agent | {card['metric']} | |", "|---|---|---|", *rows])


def _sources(parts: Sequence[Mapping[str, Any]]) -> str:
    """Names of the first traces of a split, and how many more there are."""
    names = list(dict.fromkeys(f"`{Path(part['path']).name}`" for part in parts))
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _lines(rows: Sequence[str]) -> str:
    return "\n".join(rows)
