"""Panels and tables of the supersteps of gangs, of those that are jobs of a replay too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from hdsim.errors import ConfigError
from hdsim.report.charts import (
    BINS,
    Axis,
    Blocks,
    Fact,
    Floats,
    Groups,
    Heat,
    Line,
    Lines,
    Panel,
    View,
    spans,
    step_line,
)
from hdsim.report.colors import BLACK, JOB_COLORS
from hdsim.results.run_directory.formats import numbers, read_csv
from hdsim.results.run_directory.supersteps import GangRecord
from hdsim.results.series import StepFunction

if TYPE_CHECKING:
    from hdsim.results.run_directory.reader import Run

#: Supersteps, and plans, that are drawn one by one; beyond, heat maps show them.
MAX_SUPERSTEPS, MAX_PLANS = 20_000, 2_000
#: Most lines of a chart, of gangs or of configurations.
_MOST_LINES = 10
#: Most tasks or gangs whose names label an axis.
_MOST_NAMES = 20
#: Columns of gangs.csv that are drawn.
_GANG_COLUMNS = ("job_id", "superstep", "begin", "duration", "slowest_task", "replanned")
#: Headings of the table of tasks.
TASK_COLUMNS = (
    "slowest (supersteps)",
    "slowest (s)",
    "waiting (s)",
    "waiting (%)",
    "mean shares (millicores)",
    "mean size",
)


def panels(run: GangRecord) -> list[Panel]:
    """All panels of the run of a gang."""
    made = (supersteps(run), waiting(run), shares(run), sizes(run))
    return [panel for panel in made if panel is not None]


def task_table(run: GangRecord) -> dict[str, list[float]]:
    """Values of TASK_COLUMNS by task; NaN for what the run has not recorded."""
    time = float(run.duration.sum())
    return {
        task: [
            int((run.slowest == j).sum()),
            float(run.duration[run.slowest == j].sum()),
            float(run.waiting[:, j].sum()),
            100.0 * float(run.waiting[:, j].sum()) / time if time else np.nan,
            *(np.nan if values is None else float(values[:, j].mean()) for values in (run.shares, run.sizes)),
        ]
        for j, task in enumerate(run.tasks)
    }


def supersteps(run: GangRecord) -> Panel:
    """Duration and slowest task of each superstep."""
    mine = np.eye(len(run.tasks))[run.slowest]
    views = [View("slowest_tasks", "Slowest task", _heat(run, mine, "time as the slowest task"))]
    count = len(run.duration)
    if count <= MAX_SUPERSTEPS:
        # The lanes are the durations themselves, so that a block of lanes is a bar.
        levels, level = np.unique(np.append(0.0, run.duration), return_inverse=True)
        slowest = [run.tasks[j] for j in run.slowest.tolist()]
        bars = Blocks(
            x=_time(run),
            y=Axis("Duration (s)", high=1.06 * float(levels[-1]) or 1.0),
            start=run.begin,
            finish=run.end,
            item=np.arange(count, dtype=np.int32),
            low=np.zeros(count, np.int32),
            high=level[1:].astype(np.int32),
            position=levels.astype(np.float32),
            color=_colors(run.slowest),
            colors=JOB_COLORS,
            legend=_legend(run.tasks),
            lane="",
            groups=Groups(np.array([0]), [""]),
            facts=(
                Fact("superstep", np.arange(count), "number"),
                Fact("duration", run.duration, "duration"),
                Fact("slowest task", slowest),
                Fact("second slowest", np.sort(run.durations, axis=1)[:, -2:][:, 0], "duration"),
            ),
        )
        views.insert(0, View("supersteps", "Durations", bars))
    note = f"{count:,} supersteps of {run.duration.mean():,.1f} s on average, {run.duration.max():,.1f} s at most."
    note += " A bar is a superstep in the colour of its slowest task." * (count <= MAX_SUPERSTEPS)
    return Panel("Supersteps", note, tuple(views))


def waiting(run: GangRecord) -> Panel:
    """Waiting of each task at the barrier."""
    total, duration = float(run.waiting.sum()), float(run.duration.sum())
    share = run.waiting / np.where(run.duration > 0, run.duration, 1.0)[:, None]
    part = 100 * total / (duration * len(run.tasks)) if duration else 0.0
    note = (
        f"Share of the time that each task waits for the slowest one: {part:.1f} % on average, "
        f"{total:,.0f} s of all tasks together."
    )
    view = View("waiting_at_barrier", "Waiting", _heat(run, share, "time waiting"))
    return Panel("Waiting at the barrier", note, (view,))


def shares(run: GangRecord) -> Panel | None:
    """CPU shares of the tasks over time; None if the run has not recorded them."""
    if run.shares is None:
        return None
    plans, views = run.plans, []
    if len(plans) <= MAX_PLANS:
        views.append(View("shares", "Stacked", _stacked(run, run.shares)))
    else:
        relative = run.shares / max(float(run.shares.max()), 1.0)
        views.append(View("shares", "By task", _heat(run, relative, "CPU shares, of the largest")))
    lines = _lines(run, plans, run.shares, "CPU shares (millicores)")
    note = f"{len(plans):,} plans, hence {len(plans) - 1:,} checkpoints"
    note += ", which are the dark lines." if len(plans) <= MAX_PLANS else "."
    return Panel("CPU shares", note, (*views, View("shares_by_task", "One line per task", lines)))


def sizes(run: GangRecord) -> Panel | None:
    """Workload sizes of the tasks over time; None if the run has not recorded them."""
    if run.sizes is None:
        return None
    relative = run.sizes / (float(run.sizes.max()) or 1.0)
    heat = _heat(run, relative, "workload size, of the largest")
    lines = _lines(run, np.arange(len(run.begin)), run.sizes, "Workload size")
    note = f"From {run.sizes.min():,.3g} to {run.sizes.max():,.3g}."
    views = (View("sizes", "By task", heat), View("sizes_by_task", "One line per task", lines))
    return Panel("Workload sizes", note, views)


def slowest_by_run(runs: Mapping[str, GangRecord]) -> Panel | None:
    """Slowest task of each superstep, a lane for each run; None where there are too many supersteps or tasks differ."""
    records = list(runs.values())
    total = sum(len(run.duration) for run in records)
    if total > MAX_SUPERSTEPS or len({run.tasks for run in records}) > 1:
        return None
    number = np.concatenate([np.arange(len(run.duration)) for run in records])
    lane = np.repeat(np.arange(len(records)), [len(run.duration) for run in records]).astype(np.int32)
    slowest = np.concatenate([run.slowest for run in records])
    chart = spans(
        Axis("Superstep", "count", high=float(number.max() + 1)),
        _lanes("Run", [f"run {place + 1}" for place in range(len(records))]),
        number.astype(float),
        number + 1.0,
        lane,
        Groups(np.arange(len(records) + 1), list(runs)),
        (
            Fact("superstep", number, "number"),
            Fact("slowest task", [records[0].tasks[j] for j in slowest.tolist()]),
            Fact("duration", np.concatenate([run.duration for run in records]), "duration"),
        ),
        colors=JOB_COLORS,
        color=_colors(slowest),
        legend=_legend(records[0].tasks),
        name="run",
    )
    note = "Runs are numbered in the order of the table; a colour is the slowest task of a superstep."
    return Panel("Slowest task by run", note, (View("slowest_by_run", "Slowest task", chart),))


def progress(pairs: Mapping[str, Sequence[tuple[GangRecord, GangRecord]]], baseline: str) -> Panel | None:
    """Time of runs relative to that of the baseline on the same workloads, superstep by superstep; None without a pair.

    `pairs` has by name the runs of a configuration, each with the run it is compared with. A line is the mean over
    pairs; those that differ in the rows of their series are left out.
    """
    found = {}
    for name, both in pairs.items():
        same = [(run, base) for run, base in both if np.array_equal(run.row, base.row)]
        lengths = {len(run.row) for run, _ in same}
        if len(lengths) == 1:
            found[name] = np.mean([run.end - base.end for run, base in same], axis=0)
    if not found:
        return None
    lines = []
    for place, (name, values) in enumerate(list(found.items())[:_MOST_LINES]):
        steps = StepFunction(np.arange(len(values) + 1.0), np.append(0.0, values), len(values) + 1.0)
        lines.append(step_line(name, steps, _line_color(place)))
    low, high = (extreme([float(extreme(line.y)) for line in lines]) for extreme in (min, max))
    room = 0.06 * (high - low) or 1.0
    axis = Axis("Superstep", "count", high=float(max(map(len, found.values()))))
    chart = Lines(axis, Axis("Difference (s)", low=low - room, high=high + room), tuple(lines))
    note = f"Seconds to the end of each superstep, checkpoints included, less those of {baseline}."
    note += f" The first {_MOST_LINES} of {len(found)} are drawn." * (len(found) > _MOST_LINES)
    return Panel(f"Time against {baseline}", note, (View("progress", "Difference", chart),))


def of_replay(run: Run) -> Panel | None:
    """Supersteps and CPU shares of the gangs that are jobs of a replay; None for a run without gangs.

    Raises:
        ConfigError: gangs.csv is damaged.
    """
    path = run.path / "gangs.csv"
    if not path.is_file():
        return None
    header, rows = read_csv(path)
    missing = [name for name in _GANG_COLUMNS if name not in header]
    if missing or not rows:
        raise ConfigError(f"expected supersteps with {', '.join(missing or _GANG_COLUMNS)}", where=str(path))
    texts = dict(zip(header, zip(*rows, strict=True), strict=True))
    begin, duration, replanned = (numbers(path, name, texts[name]) for name in ("begin", "duration", "replanned"))
    if np.isnan([begin, duration, replanned]).any() or (duration < 0).any():
        raise ConfigError("expected a begin and a duration of each superstep", where=str(path))
    shares = [numbers(path, name, texts[name]) for name in header if name.startswith("shares_")]
    cores = np.nan_to_num(np.array(shares)).sum(axis=0) / 1000 if shares else np.zeros(len(rows))
    names, lane = _numbered(texts["job_id"])
    tasks, slowest = _numbered(texts["slowest_task"])
    end = begin + duration
    x = Axis("Time since first submission", "time", 0.0, max(run.end_time, float(end.max())) or 1.0)
    views = []
    if len(rows) <= MAX_SUPERSTEPS:
        facts = (
            Fact("superstep", list(texts["superstep"])),
            Fact("slowest task", list(texts["slowest_task"])),
            Fact("duration", duration, "duration"),
            Fact("CPU of the gang (cores)", cores, "number"),
        )
        groups = Groups(np.arange(len(names) + 1), names)
        y, color, legend = _lanes("Gang", names), _colors(slowest), _legend(tasks)
        chart = spans(x, y, begin, end, lane, groups, facts, colors=JOB_COLORS, color=color, legend=legend)
        views.append(View("gangs", "Supersteps", chart))
    lines = []
    for place, name in enumerate(names[:_MOST_LINES]):
        mine = lane == place
        times, values = np.append(begin[mine], end[mine][-1]), cores[mine]
        lines.append(Line(name, times, np.append(values, values[-1]), _line_color(place)))
    views.append(View("gang_shares", "CPU", Lines(x, Axis("CPU of a gang (cores)"), tuple(lines))))
    checkpoints = int(replanned.sum()) - sum(bool(replanned[lane == place][0]) for place in range(len(names)))
    note = f"{len(names):,} gangs, {checkpoints:,} checkpoints, "
    note += f"{len(rows):,} supersteps of {duration.mean():,.1f} s on average."
    note += " A block is a superstep in the colour of its slowest task." * (len(rows) <= MAX_SUPERSTEPS)
    note += f" The CPU of the first {_MOST_LINES} gangs is drawn." * (len(names) > _MOST_LINES)
    return Panel("Gangs", note, tuple(views))


def _numbered(texts: Sequence[str]) -> tuple[list[str], np.ndarray]:
    """Different texts in the order of their first appearance, and the place of each text among them."""
    number = {text: place for place, text in enumerate(dict.fromkeys(texts))}
    return list(number), np.array([number[text] for text in texts], np.int32)


def _line_color(place: int) -> str:
    return JOB_COLORS[3 * place % len(JOB_COLORS)]


def _time(run: GangRecord) -> Axis:
    return Axis("Time since the begin of the run", "time", 0.0, float(run.end[-1]) or 1.0)


def _lanes(label: str, names: Sequence[str]) -> Axis:
    few = tuple(names) if len(names) <= _MOST_NAMES else ()
    return Axis(label, "count", high=len(names), names=few)


def _colors(tasks: np.ndarray) -> np.ndarray:
    return (tasks % len(JOB_COLORS)).astype(np.uint8)


def _legend(tasks: Sequence[str]) -> tuple[tuple[str, str], ...]:
    return tuple((task, JOB_COLORS[j % len(JOB_COLORS)]) for j, task in enumerate(tasks))


def _heat(run: GangRecord, values: Floats, label: str) -> Heat:
    """Means of (N, J) values from 0 to 1 over time, for stretches of equally many supersteps."""
    first = np.arange(0, len(run.begin), -(-len(run.begin) // BINS))
    weight = np.maximum(run.duration, 1e-9)
    mean = np.add.reduceat(values * weight[:, None], first) / np.add.reduceat(weight, first)[:, None]
    lanes = np.arange(len(run.tasks) + 1)
    return Heat(
        x=_time(run),
        y=_lanes("Task", run.tasks),
        times=np.append(run.begin[first], run.end[-1]),
        lanes=lanes,
        share=np.clip(mean.T, 0.0, 1.0),
        label=label,
        groups=Groups(lanes, run.tasks),
    )


def _lines(run: GangRecord, first: np.ndarray, values: Floats, label: str) -> Lines:
    """A curve for each task with its values from some supersteps on."""
    end = float(run.end[-1])
    lines = tuple(
        step_line(task, StepFunction(run.begin[first], values[first, j], end), JOB_COLORS[j % len(JOB_COLORS)])
        for j, task in enumerate(run.tasks)
    )
    return Lines(_time(run), Axis(label), lines)


def _stacked(run: GangRecord, millicores: Floats) -> Blocks:
    """The shares of each plan above each other, and a line at each checkpoint."""
    first, tasks = run.plans, len(run.tasks)
    last = np.append(first[1:], len(run.begin)) - 1
    bounds = np.pad(millicores[first].cumsum(axis=1), [(0, 0), (1, 0)])
    levels, level = np.unique(bounds, return_inverse=True)
    level = level.reshape(bounds.shape).astype(np.int32)
    changes, top = len(first) - 1, len(levels) - 1
    plan = np.append(np.repeat(np.arange(len(first)), tasks), np.arange(1, len(first)))
    task = np.append(np.tile(np.arange(tasks), len(first)), np.full(changes, tasks))
    mark = task == tasks
    start, finish = run.begin[first][plan], run.end[last][plan]
    start[mark], finish[mark] = run.end[first[1:] - 1], run.begin[first[1:]]
    names = (*run.tasks, "checkpoint")
    own = [f"{value:,.0f}" for value in millicores[first].ravel().tolist()] + [""] * changes
    return Blocks(
        x=_time(run),
        y=Axis("CPU shares (millicores)", high=float(levels[-1])),
        start=start,
        finish=finish,
        item=np.arange(len(plan), dtype=np.int32),
        low=np.append(level[:, :-1].ravel(), np.zeros(changes, np.int32)),
        high=np.append(level[:, 1:].ravel(), np.full(changes, top, np.int32)),
        position=levels.astype(np.float32),
        color=np.where(mark, len(JOB_COLORS), task % len(JOB_COLORS)).astype(np.uint8),
        colors=(*JOB_COLORS, BLACK),
        legend=(*_legend(run.tasks), ("checkpoint", BLACK)),
        lane="",
        groups=Groups(np.array([0]), [""]),
        facts=(
            Fact("task", [names[j] for j in task.tolist()]),
            Fact("millicores", own),
            Fact("first superstep", first[plan], "number"),
            Fact("supersteps", (last - first + 1)[plan], "number"),
        ),
    )
