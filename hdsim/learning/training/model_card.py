"""The model card of a checkpoint: the agent, its training data and its scores.

After Mitchell et al., Model Cards for Model Reporting (FAT* 2019).
"""

from __future__ import annotations

import platform as host
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hdsim.results.metrics import Direction, direction, unit
from hdsim.util.files import dump_json, replacing
from hdsim.util.version import __version__

if TYPE_CHECKING:
    from hdsim.learning.training.loop import Training
    from hdsim.learning.training.setup import Setup

_PACKAGES = ("numpy", "torch", "gymnasium")


def facts(setup: Setup, training: Training, replays: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """Collects the contents of the card.

    Args:
        setup: The parts of the training.
        training: The training, at its end.
        replays: Replays of the test windows by agent.
    """
    state, evaluation = training.state, setup.evaluation
    judged = f"validation_{evaluation.metric}"
    scores = {name: evaluation.read(results).tolist() for name, results in replays.items()}
    means = {name: float(np.mean(values)) for name, values in scores.items()}
    return {
        "agent": type(setup.agent).__name__,
        "shipped": "final.safetensors" if state.best_score is None else "best.safetensors",
        "settings": setup.agent.settings(),
        "task": setup.agent.problem.settings,
        "config": dict(setup.config),
        "seed": setup.config["seed"],
        "steps": state.step,
        "episodes": state.episodes,
        "parameters": setup.agent.n_parameters(),
        **setup.sources(),
        "traces": [setup.described(trace) for trace in setup.traces],
        "validation_windows": [setup.described(window) for window in setup.validation],
        "test_windows": [setup.described(window) for window in setup.test],
        "metric": evaluation.metric,
        "higher_is_better": direction(evaluation.metric) is Direction.HIGHER,
        "scores": scores,
        "means": means,
        "best_classic": evaluation.best({name: means[name] for name in setup.baselines}) if setup.baselines else None,
        "best_step": state.best_step,
        "curve": [{"step": row["step"], "score": row[judged]} for row in training.records.rows if judged in row],
        "versions": {"hdsim": __version__, "python": host.python_version()}
        | {name: version(name) for name in _PACKAGES},
    }


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
    lines = [f"{name:{width}}  {means[name]:>16,.6g}" for name in _best_first(card)]
    return "\n".join([f"mean {quantity} of {len(windows)} test windows of {windows[0][contents]} {contents}\n", *lines])


def _best_first(card: Mapping[str, Any]) -> list[str]:
    means = card["means"]
    return sorted(means, key=means.__getitem__, reverse=card["higher_is_better"])


def _unit(card: Mapping[str, Any]) -> str:
    """Contents of a window."""
    return "jobs" if "platform" in card else "supersteps"


def _text(card: Mapping[str, Any]) -> str:
    means, metric, contents = card["means"], card["metric"], _unit(card)
    quantity = f"{metric} [{unit(metric)}]" if unit(metric) else metric
    platform, tests = card.get("platform"), card["test_windows"]
    place = f"{platform['name']} ({platform['cores']:,} cores)" if platform else "a gang"
    scores = [f"| {name} | {means[name]:.6g} |" for name in _best_first(card)]
    traces = [
        f"| {Path(trace['path']).name} | {trace[contents]} | `{trace['sha256'] or trace[f'{contents}_sha256']}` |"
        for trace in card["traces"]
    ]
    curve = [f"| {point['step']:.0f} | {point['score']:.6g} |" for point in card["curve"]]
    settings = [f"| {name} | {value} |" for name, value in card["settings"].items()]
    problem = ", ".join(f"{name} {value}" for name, value in card["task"].items())
    kind = "higher" if card["higher_is_better"] else "lower"
    return f"""# {card["agent"]}

{card["parameters"]:,} parameters, trained for {card["steps"]:,} steps ({card["episodes"]:,} episodes) with seed
{card["seed"]} on {place}.
Decision problem: {problem}. Objective: {card["config"]["env"].get("objective", metric)}.

`best.safetensors` is the agent of step {card["best_step"]:,}, the best on {len(card["validation_windows"])} validation
windows; `final.safetensors` is that of the last step. Neither was trained on {contents} of the validation or test
windows.

## Scores

Mean {quantity} of {len(tests)} test windows of {tests[0][contents]} {contents}; {kind} is better.

| agent | {metric} |
|---|---|
{_lines(scores)}

## Traces

| trace | {contents} | sha256 |
|---|---|---|
{_lines(traces)}

## Learning curve

Mean {quantity} of the validation windows.

| step | {metric} |
|---|---|
{_lines(curve)}

## Settings

| setting | value |
|---|---|
{_lines(settings)}
"""


def _lines(rows: Sequence[str]) -> str:
    return "\n".join(rows)
