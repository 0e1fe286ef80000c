"""The panel of gangs that are jobs of a replay: their supersteps, and the CPU that they hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hdsim.errors import ConfigError
from hdsim.report.charts import Axis, Blocks, Fact, Groups, Line, Lines, Panel, View
from hdsim.report.colors import JOB_COLORS
from hdsim.results.run_directory.formats import numbers, read_csv

if TYPE_CHECKING:
    from hdsim.results.run_directory.reader import Run

#: Supersteps that are drawn one by one, gangs with a curve, and gangs with a name beside the axis.
MAX_SUPERSTEPS, CURVES, NAMES = 20_000, 10, 20
_COLUMNS = ("job_id", "superstep", "begin", "duration", "slowest_task", "replanned")


def gangs(run: Run) -> Panel | None:
    """Supersteps and CPU shares of the gangs of a replay; None for a run without gangs.

    Raises:
        ConfigError: gangs.csv is damaged.
    """
    path = run.path / "gangs.csv"
    if not path.is_file():
        return None
    header, rows = read_csv(path)
    missing = [name for name in _COLUMNS if name not in header]
    if missing or not rows:
        raise ConfigError(f"expected supersteps with {', '.join(missing or _COLUMNS)}", where=str(path))
    texts = dict(zip(header, zip(*rows, strict=True), strict=True))
    begin, duration, replanned = (numbers(path, name, texts[name]) for name in ("begin", "duration", "replanned"))
    if np.isnan([begin, duration, replanned]).any() or (duration < 0).any():
        raise ConfigError("expected a begin and a duration of each superstep", where=str(path))
    shares = [numbers(path, name, texts[name]) for name in header if name.startswith("shares_")]
    cores = np.nan_to_num(np.array(shares)).sum(axis=0) / 1000 if shares else np.zeros(len(rows))
    names = list(dict.fromkeys(texts["job_id"]))
    tasks = list(dict.fromkeys(texts["slowest_task"]))
    number = {name: lane for lane, name in enumerate(names)}
    lane = np.array([number[name] for name in texts["job_id"]], np.int32)
    x = Axis("Time since first submission", "time", 0.0, max(run.end_time, float((begin + duration).max())) or 1.0)
    views = []
    if len(rows) <= MAX_SUPERSTEPS:
        first = np.arange(len(names) + 1)
        color = np.array([tasks.index(task) % len(JOB_COLORS) for task in texts["slowest_task"]], np.uint8)
        chart = Blocks(
            x=x,
            y=Axis("Gang", "count", high=len(names), names=tuple(names) if len(names) <= NAMES else ()),
            start=begin,
            finish=begin + duration,
            item=np.arange(len(rows), dtype=np.int32),
            low=lane,
            high=lane + 1,
            position=first.astype(np.float32),
            color=color,
            colors=JOB_COLORS,
            legend=tuple((task, JOB_COLORS[place % len(JOB_COLORS)]) for place, task in enumerate(tasks)),
            lane="",
            groups=Groups(first, names),
            facts=(
                Fact("superstep", list(texts["superstep"])),
                Fact("slowest task", list(texts["slowest_task"])),
                Fact("duration", duration, "duration"),
                Fact("CPU of the gang (cores)", cores, "number"),
            ),
        )
        views.append(View("gangs", "Supersteps", chart))
    lines = []
    for place, name in enumerate(names[:CURVES]):
        mine = lane == place
        times, values = np.append(begin[mine], (begin + duration)[mine][-1]), cores[mine]
        lines.append(Line(name, times, np.append(values, values[-1]), JOB_COLORS[3 * place % len(JOB_COLORS)]))
    views.append(View("gang_shares", "CPU", Lines(x, Axis("CPU of a gang (cores)"), tuple(lines))))
    checkpoints = int(replanned.sum()) - sum(bool(replanned[lane == place][0]) for place in range(len(names)))
    note = f"{len(names):,} gangs, {checkpoints:,} checkpoints, "
    note += f"{len(rows):,} supersteps of {duration.mean():,.1f} s on average."
    note += " A block is a superstep in the colour of its slowest task." * (len(rows) <= MAX_SUPERSTEPS)
    note += f" The CPU of the first {CURVES} gangs is drawn." * (len(names) > CURVES)
    return Panel("Gangs", note, tuple(views))
