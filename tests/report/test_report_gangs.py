"""Reports and comparisons of gangs: numbers by hand, pages in a browser, damaged and unfinished runs."""

from __future__ import annotations

import csv
import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from conftest import Warm
from test_report import Visit, visit  # noqa: F401 - a fixture

from hdsim.errors import ConfigError
from hdsim.report import gangs
from hdsim.report.charts import Blocks, Heat, Lines
from hdsim.report.gang_page import render, render_sweep, text
from hdsim.report.html import render as render_replay
from hdsim.results.run_directory.reader import read
from hdsim.results.run_directory.supersteps import GangRecord, read_gang

COLUMNS = (
    "superstep",
    "row",
    "begin",
    "duration",
    "slowest_task",
    "replanned",
    "shares_a",
    "shares_b",
    "size_a",
    "size_b",
    "duration_a",
    "duration_b",
)
#: Three supersteps of two tasks, with a checkpoint of 5 s before the last one.
ROWS = (
    (0, 7, 0, 10, "a", 1, 1000, 3000, 20, 30, 10, 4),
    (1, 8, 10, 20, "b", 0, 1000, 3000, 20, 40, 15, 20),
    (2, 9, 35, 6, "b", 1, 1500, 2500, 10, 40, 3, 6),
)


def written(
    path: Path, rows: Sequence[Sequence[object]] = ROWS, columns: Sequence[str] = COLUMNS, status: str = "finished"
) -> Path:
    """A run directory with these supersteps."""
    path.mkdir(parents=True)
    lines = [columns, *([dict(zip(COLUMNS, row, strict=True))[name] for name in columns] for row in rows)]
    (path / "supersteps.csv").write_text("".join(",".join(map(str, line)) + "\n" for line in lines))
    config = {"controller": {"_target_": "hdsim.gangs.controllers.StaticWindow", "window": 2}, "penalty": 5, "start": 7}
    (path / "manifest.json").write_text(json.dumps({"status": status, "config": config, "seeds": {"seed": 1}}))
    if status == "finished":
        metrics = {"duration": 36.0, "checkpoints": 1, "total": 41.0, "lower_bound": 40.0}
        (path / "metrics.json").write_text(json.dumps(metrics))
    return path


def chart(panel: gangs.Panel | None, place: int = 0) -> Blocks | Heat | Lines:
    assert panel is not None
    return panel.views[place].chart


def test_the_table_of_tasks_is_that_computed_by_hand(tmp_path: Path) -> None:
    run = read_gang(written(tmp_path / "run"))
    table = gangs.task_table(run)
    assert table["a"] == pytest.approx([1, 10, 0 + 5 + 3, 100 * 8 / 36, 3500 / 3, 50 / 3])
    assert table["b"] == pytest.approx([2, 26, 6, 100 * 6 / 36, 8500 / 3, 110 / 3])
    told = text(run)
    for number in ("36  s", "5  s", "41  s", "40  s", "2.5000  %", "1,166.67"):
        assert number in told, told


def test_bars_have_the_durations_and_colours_of_the_slowest_tasks(tmp_path: Path) -> None:
    run = read_gang(written(tmp_path / "run"))
    bars, slowest = (chart(gangs.supersteps(run), place) for place in (0, 1))
    assert isinstance(bars, Blocks) and isinstance(slowest, Heat)
    assert bars.position[bars.high].tolist() == [10, 20, 6] and bars.position[bars.low].tolist() == [0, 0, 0]
    assert bars.start.tolist() == [0, 10, 35] and bars.finish.tolist() == [10, 30, 41]
    colors = dict(bars.legend)
    assert [bars.colors[color] for color in bars.color] == [colors["a"], colors["b"], colors["b"]]
    assert slowest.share.tolist() == [[1, 0, 0], [0, 1, 1]] and slowest.times.tolist() == [0, 10, 35, 41]
    waiting = chart(gangs.waiting(run))
    assert isinstance(waiting, Heat)
    assert waiting.share == pytest.approx(np.array([[0, 0.25, 0.5], [0.6, 0, 0]]))


def test_shares_lie_above_each_other_and_checkpoints_between_plans(tmp_path: Path) -> None:
    run = read_gang(written(tmp_path / "run"))
    stacked = chart(gangs.shares(run))
    assert isinstance(stacked, Blocks)
    spans = zip(
        stacked.start, stacked.finish, stacked.position[stacked.low], stacked.position[stacked.high], strict=True
    )
    assert [tuple(map(float, span)) for span in spans] == [
        (0, 30, 0, 1000),
        (0, 30, 1000, 4000),
        (35, 41, 0, 1500),
        (35, 41, 1500, 4000),
        (30, 35, 0, 4000),
    ]
    lines = chart(gangs.shares(run), 1)
    assert isinstance(lines, Lines)
    assert lines.lines[0].x.tolist() == [0, 35, 41] and lines.lines[0].y.tolist() == [1000, 1500, 1500]
    sizes = chart(gangs.sizes(run), 1)
    assert isinstance(sizes, Lines) and sizes.lines[1].y.tolist() == [30, 40, 40, 40]


def test_progress_is_the_difference_after_each_superstep(tmp_path: Path) -> None:
    run = read_gang(written(tmp_path / "run"))
    later = [(*row[:2], begin, *row[3:]) for row, begin in zip(ROWS, (0, 12, 37), strict=True)]
    slower = read_gang(written(tmp_path / "slower", later))
    elsewhere = read_gang(written(tmp_path / "elsewhere", [(row[0], row[1] + 1, *row[2:]) for row in ROWS]))
    panel = gangs.progress({"slower": [(slower, run)], "other rows": [(elsewhere, run)]}, "run")
    lines = chart(panel)
    assert isinstance(lines, Lines)
    (line,) = lines.lines
    assert line.label == "slower" and line.y[:4].tolist() == [0, 0, 2, 2] and line.x[:4].tolist() == [0, 1, 2, 3]
    assert gangs.progress({"other rows": [(elsewhere, run)]}, "run") is None


@pytest.mark.parametrize(
    ("missing", "panels"),
    [
        ((), 4),
        (("shares_a",), 3),
        (("size_a", "size_b"), 3),
        (("row", "slowest_task", "superstep"), 4),
        (("begin", "duration", "replanned"), 4),
    ],
)
def test_columns_may_be_missing(tmp_path: Path, missing: tuple[str, ...], panels: int) -> None:
    run = read_gang(written(tmp_path / "run", columns=[name for name in COLUMNS if name not in missing]))
    assert len(gangs.panels(run)) == panels
    assert run.duration.tolist() == [10, 20, 6] and run.replanned[1:].tolist() == [False, True]
    assert "static_window" in render(run) and text(run)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda lines: lines[:1], "expected supersteps with a column duration_TASK of each task, got none"),
        (
            lambda lines: [line.rpartition(",")[0].rpartition(",")[0] for line in lines],
            "got the columns superstep, row",
        ),
        (lambda lines: [*lines[:2], lines[2].replace("20", "x")], "duration_b: expected numbers"),
        (lambda lines: [*lines[:3], lines[3].replace(",6", ",-6")], "duration_b: expected a number >= 0, got '-6'"),
        (lambda lines: [*lines[:2], lines[2].replace("1,8,10", "1,8,-1")], "supersteps.csv:3"),
        (lambda lines: [lines[0], lines[2], lines[1]], "supersteps.csv:3: begin: expected ascending times"),
        (lambda lines: [*lines[:3], lines[3][:9]], "supersteps.csv:4: expected 12 fields"),
    ],
)
def test_damage_is_one_message(tmp_path: Path, change: Callable[[list[str]], list[str]], message: str) -> None:
    file = written(tmp_path / "run") / "supersteps.csv"
    file.write_text("\n".join(change(file.read_text().splitlines())) + "\n")
    with pytest.raises(ConfigError) as raised:
        read_gang(tmp_path / "run")
    assert message in str(raised.value)


def long_run(path: Path, count: int = 10_000) -> GangRecord:
    rng = np.random.default_rng(1)
    times, begin, rows = rng.uniform(80, 120, (count, 2)), 0.0, []
    for n, (a, b) in enumerate(times.round(3).tolist()):
        replanned = n % 3 == 0
        begin += 5 * (replanned and n > 0)
        share = 1000 + n % 3000
        rows.append((n, n, begin, max(a, b), "ab"[b > a], int(replanned), share, 4000 - share, a / 4, b / 4, a, b))
        begin += max(a, b)
    return read_gang(written(path, rows))


def test_a_long_run_has_a_light_page(tmp_path: Path) -> None:
    run = long_run(tmp_path / "run")
    page = render(run)
    data = page.partition('id="arrays">')[2].partition("</script>")[0]
    panels = page.partition('id="panels-data">')[2].partition("</script>")[0]
    assert len(data) + len(panels) < 3e6
    heat = chart(gangs.shares(run))
    assert isinstance(heat, Heat) and heat.share.shape[1] <= 480
    time = np.diff(heat.times)
    slowest = chart(gangs.supersteps(run), 1)
    assert isinstance(slowest, Heat)
    told = np.array([row[1] for row in gangs.task_table(run).values()])
    assert slowest.share @ time == pytest.approx(told * time.sum() / told.sum(), rel=0.01)


@pytest.mark.ci
def test_pages_open_without_a_complaint(
    tmp_path: Path,
    visit: Callable[..., Visit],  # noqa: F811
) -> None:
    run = read_gang(written(tmp_path / "run"))
    page = visit(render(run))
    assert not page.complaints
    for word in ("static_window on a gang of 2 tasks", "penalties of checkpoints", "Waiting at the barrier"):
        assert word in page.text()
    assert set(page.pictures()) == {"supersteps", "waiting_at_barrier", "shares", "sizes"}
    again = visit(render_sweep("sweep", {"one": run, "two": read_gang(written(tmp_path / "two"))}))
    assert not again.complaints and "two" in again.text()
    assert set(again.pictures()) == {"slowest_by_run"} and again.curves()["progress"]


def hdsim(warm: Warm, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*warm.command("hdsim"), *arguments], cwd=folder, capture_output=True, text=True)


STOPS = """
from hdsim.gangs.controllers import StaticWindow

class Stops(StaticWindow):
    def decide(self, state):
        if state.superstep == 5:
            raise KeyboardInterrupt
        return super().decide(state)
"""


@pytest.mark.ci
def test_an_interrupted_run_keeps_its_supersteps(warm: Warm, tmp_path: Path) -> None:
    (tmp_path / "stops.py").write_text(STOPS)
    whole = hdsim(warm, tmp_path, "bsp", "run", "controller=static_window", "supersteps=4", "hydra.run.dir=whole")
    assert whole.returncode == 0, whole.stderr
    done = hdsim(warm, tmp_path, "bsp", "run", "controller.path=stops.py", "supersteps=30", "hydra.run.dir=run")
    assert done.returncode == 1 and "interrupted after 4 supersteps" in done.stderr
    parts = [(tmp_path / name / "supersteps.csv").read_bytes() for name in ("run", "whole")]
    assert parts[0] == parts[1]
    report = hdsim(warm, tmp_path, "report", "run")
    assert (
        report.returncode == 0 and "interrupted after 4 supersteps; the report shows what it has left" in report.stderr
    )
    assert "The page shows the 4 supersteps until then" in (tmp_path / "run" / "report.html").read_text()
    refused = hdsim(warm, tmp_path, "compare", "run", "whole")
    assert refused.returncode == 2 and "expected a finished run" in refused.stderr


def test_a_killed_run_shows_what_was_written(tmp_path: Path) -> None:
    run = read_gang(written(tmp_path / "run", status="running"))
    assert run.cut_short and run.cut_short.startswith("dead since")
    assert run.metrics == {"duration": 36.0, "checkpoints": 1, "total": 41.0}


@pytest.mark.ci
def test_reports_and_figures_of_a_sweep(warm: Warm, tmp_path: Path) -> None:
    sweep = hdsim(
        warm,
        tmp_path,
        "bsp",
        "run",
        "-m",
        "controller=static,static_window",
        "start=0,50",
        "supersteps=9",
        "hydra.sweep.dir=sweep",
        "hydra.sweep.subdir=${hydra.job.num}",
    )
    assert sweep.returncode == 0, sweep.stderr
    report = hdsim(warm, tmp_path, "report", "sweep")
    assert report.returncode == 0, report.stderr
    lines = {line.split()[0]: line for line in report.stdout.splitlines() if line}
    for name in "0123":
        total = json.loads((tmp_path / "sweep" / name / "metrics.json").read_text())["total"]
        assert lines[name].endswith(f"{total:,.2f}")
    assert (tmp_path / "sweep" / "report.html").is_file()
    figures = hdsim(warm, tmp_path, "report", "sweep/2", "--figures", "figures")
    assert figures.returncode == 0, figures.stderr
    names = {path.stem for path in (tmp_path / "figures").iterdir()}
    assert names >= {"supersteps", "slowest_tasks", "waiting_at_barrier", "shares", "sizes"}
    compared = hdsim(warm, tmp_path, "compare", "sweep", "-o", "compared")
    assert compared.returncode == 0 and "compare_supersteps.png" in compared.stdout, compared.stderr
    assert (tmp_path / "compared" / "compare_supersteps.png").is_file()
    (tmp_path / "sweep" / "3" / "supersteps.csv").unlink()
    report = hdsim(warm, tmp_path, "report", "sweep")
    assert report.returncode == 0 and "left out: sweep/3: no supersteps of a gang" in report.stderr


@pytest.mark.ci
def test_gangs_of_a_replay(tmp_path: Path, hdsim: Warm, visit: Callable[..., Visit]) -> None:  # noqa: F811
    keys = ["gangs=3", "interarrival=50", "supersteps=6", "controller=static_window", "hydra.run.dir=run"]
    assert hdsim("bsp", "share", *keys).returncode == 0
    run = read(tmp_path / "run")
    panel = gangs.of_replay(run)
    assert panel is not None and panel.note.startswith("3 gangs, ") and "18 supersteps" in panel.note
    bars, lines = (view.chart for view in panel.views)
    assert isinstance(bars, Blocks) and isinstance(lines, Lines)
    with (tmp_path / "run/gangs.csv").open() as file:
        rows = list(csv.DictReader(file))
    legend = {color: task for task, color in bars.legend}
    for place, row in enumerate(rows):
        assert bars.y.names[bars.low[place]] == row["job_id"]
        assert bars.start[place] == float(row["begin"])
        assert bars.finish[place] - bars.start[place] == pytest.approx(float(row["duration"]))
        assert legend[bars.colors[bars.color[place]]] == row["slowest_task"]
        (line,) = (line for line in lines.lines if line.label == row["job_id"])
        held = sum(float(value) for name, value in row.items() if name.startswith("shares_") and value)
        assert line.y[line.x.tolist().index(float(row["begin"]))] == held / 1000
    mean = float(json.loads((tmp_path / "run/metrics.json").read_text())["checkpoints"])
    assert f" {round(3 * mean)} checkpoints, " in panel.note
    page = visit(render_replay(run))
    assert page.complaints == [] and "gangs" in page.pictures()
    (tmp_path / "run/gangs.csv").write_text("job_id,superstep\n")
    with pytest.raises(ConfigError, match="expected supersteps with begin"):
        gangs.of_replay(run)
