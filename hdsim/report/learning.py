"""Panels of a training: rewards, scores on validation windows, losses, and which actions were preferred when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hdsim.errors import ConfigError
from hdsim.report.charts import Axis, Groups, Heat, Line, Lines, Panel, View
from hdsim.report.colors import BLUE, GREEN, ORANGE, PURPLE, RED
from hdsim.results.metrics import unit
from hdsim.results.run_directory.formats import numbers, read_csv
from hdsim.results.run_directory.reader import Run

Floats = NDArray[np.float64]

#: Columns of the training loop; all others are losses of the agent.
_KEPT = ("step", "episode", "seconds", "mean_reward", "validation_")
_CLASSIC = "validation_best_classic"
_COLORS = (BLUE, ORANGE, GREEN, PURPLE, RED)


def rewards(run: Run) -> Panel | None:
    """Rewards of the agent."""
    columns = _columns(run.path / "progress.csv")
    if columns is None or "mean_reward" not in columns:
        return None
    # The first row precedes all decisions.
    columns["mean_reward"][columns["step"] == 0] = np.nan
    note = "Mean over the decisions, and sum over the episodes, between two rows of progress.csv."
    names = {"mean_reward": "Per decision", "episode_return": "Per episode"}
    curves = {name: [(name, BLUE)] for name in names if name in columns}
    return _panel("Rewards", note, columns, curves, names, means=True)


def scores(run: Run) -> Panel | None:
    """Scores of the agent on the validation windows, with the best classic policy."""
    columns = _columns(run.path / "progress.csv") or {}
    metric = next((name for name in columns if name.startswith("validation_") and name != _CLASSIC), None)
    if metric is None:
        return None
    found = [(metric, GREEN), *([(_CLASSIC, ORANGE)] if _CLASSIC in columns else [])]
    what = metric.removeprefix("validation_")
    words = what.replace("_", " ")
    quantity = f"{words} ({unit(what)})" if unit(what) else words
    note = f"Score on the validation windows, {quantity}, and that of the best classic policy on them."
    return _panel("Validation", note, columns, {metric: found}, {metric: quantity})


def losses(run: Run) -> Panel | None:
    """Losses and other numbers of the updates."""
    columns = _columns(run.path / "progress.csv") or {}
    names = [name for name in columns if not name.startswith(_KEPT)]
    if not names:
        return None
    note = "Means over the updates between two rows of progress.csv, named as in the agent's file."
    labels = {name: name.replace("_", " ") for name in names}
    return _panel("Losses", note, columns, {name: [(name, RED)] for name in names}, labels, means=True)


def preferences(run: Run) -> Panel | None:
    """Shares of the actions over the training."""
    columns = _columns(run.path / "actions.csv")
    if columns is None or len(columns["step"]) < 2:
        return None
    steps, names = columns.pop("step"), list(columns)
    share = np.array([columns[name][1:] for name in names])
    favourite = names[int(share[:, -1].argmax())]
    note = f"Share of the decisions that each action was taken in. In the end most often: {favourite}."
    lanes = np.arange(len(names) + 1)
    heat = Heat(
        x=Axis("Step", "count", float(steps[0]), float(steps[-1])),
        y=Axis("Action", "count", high=len(names)),
        times=steps,
        lanes=lanes,
        share=share,
        label="decisions",
        groups=Groups(lanes, names),
    )
    views = [View("actions", "All actions", heat)]
    # The most frequent actions, as curves.
    often = np.argsort(-share.max(axis=1), kind="stable")[: len(_COLORS)]
    lines = tuple(
        Line(names[action], *_spans(steps[:-1], steps[1:], 100 * share[action]), color)
        for action, color in zip(often.tolist(), _COLORS, strict=False)
    )
    chart = Lines(heat.x, Axis("Decisions (%)", high=100), lines)
    views.append(View("preferred_actions", "Most preferred", chart))
    return Panel("Action preferences", note, tuple(views))


def _panel(
    title: str,
    note: str,
    columns: Mapping[str, Floats],
    curves: Mapping[str, Sequence[tuple[str, str]]],
    labels: Mapping[str, str],
    *,
    means: bool = False,
) -> Panel:
    """One view per group of columns; `means`: values are means over the steps since the row before."""
    views = []
    for key, found in curves.items():
        steps, lines = columns["step"], []
        for name, color in found:
            there = np.isfinite(columns[name])
            label = "best classic policy" if name == _CLASSIC else labels[key]
            x, y = steps[there], columns[name][there]
            if means:
                x, y = _spans(np.insert(steps[:-1], 0, steps[0])[there], x, y)
            lines.append(Line(label, x, y, color))
        values = np.concatenate([line.y for line in lines])
        room = 0.05 * float(np.ptp(values)) or 0.05 * abs(float(values[0])) or 1.0
        low, high = float(values.min()) - room, float(values.max()) + room
        axes = Axis("Step", "count", float(steps[0]), float(steps[-1])), Axis(labels[key], "number", low, high)
        views.append(View(f"training_{key}", labels[key], Lines(*axes, tuple(lines))))
    return Panel(title, note, tuple(views), narrow=True)


def _spans(starts: Floats, ends: Floats, values: Floats) -> tuple[Floats, Floats]:
    """Points of a step curve from the values of spans."""
    return np.append(starts, ends[-1:]), np.append(values, values[-1:])


def _columns(path: Path) -> dict[str, Floats] | None:
    """Columns with numbers, NaN for empty cells; None without a file."""
    if not path.is_file():
        return None
    names, rows = read_csv(path)
    columns = {name: numbers(path, name, [row[i] for row in rows]) for i, name in enumerate(names)}
    steps = columns.get("step")
    if steps is None or not len(rows) or not (np.diff(steps) >= 0).all():
        raise ConfigError("expected rows with ascending numbers in the column step", where=str(path))
    return {name: column for name, column in columns.items() if np.isfinite(column).any()}
