"""Results in notebooks and at the prompt: a line of text, metrics as tiles, the first jobs as a table, the report."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from hdsim.report.html import agent_name, main_metrics, render
from hdsim.report.page import tiles
from hdsim.report.panels import panels
from hdsim.report.tables import table
from hdsim.util.files import replacing, writable
from hdsim.util.text import format_number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from hdsim.results.run_directory.reader import Run

#: Rows and columns of a table of jobs.
_ROWS = 8
_COLUMNS = (
    "job_id",
    "submission_time",
    "requested_number_of_resources",
    "requested_time",
    "final_state",
    "starting_time",
    "finish_time",
    "waiting_time",
    "stretch",
    "allocated_resources",
)
# Colours are those of the surrounding page, light or dark.
_STYLE = """<style>
.hdsim .tiles { display: flex; flex-wrap: wrap; gap: 10px; margin: 8px 0; }
.hdsim .tile { border: 1px solid rgba(128, 128, 128, .4); border-radius: 8px; padding: 8px 14px; }
.hdsim .tile b { display: block; font-size: 19px; font-weight: 650; font-variant-numeric: tabular-nums; }
.hdsim .tile span, .hdsim small { opacity: .7; font-size: 12.5px; }
.hdsim table { font-size: 13px; font-variant-numeric: tabular-nums; border-collapse: collapse; }
.hdsim th, .hdsim td { padding: 3px 9px; text-align: right; white-space: nowrap; }
.hdsim .jobs { overflow-x: auto; }
</style>"""


def text(result: Any) -> str:
    """Returns jobs, platform, agent and main metrics of a result in a line."""
    numbers = ", ".join(f"{label} {value}" for label, value in main_metrics(result.metrics).items())
    return f"<Result of {_subject(result)}: {numbers}>"


def html(result: Any) -> str:
    """Returns the same as tiles."""
    return f"<div class='hdsim'>{_STYLE}{escape(_subject(result))}{tiles(main_metrics(result.metrics))}</div>"


def jobs_html(jobs: Mapping[str, NDArray[Any]]) -> str:
    """Returns the main columns of the first jobs as a table."""
    count, names = len(jobs["job_id"]), ", ".join(name for name in jobs if name not in _COLUMNS)
    rows = zip(*(map(_cell, jobs[name][:_ROWS].tolist()) for name in _COLUMNS), strict=True)
    shown = table((f"<th>{name}</th>" for name in _COLUMNS), rows)
    more = f"{count:,} jobs; further columns: {names}"
    return f"<div class='hdsim'>{_STYLE}<div class='jobs'>{shown}</div><small>{escape(more)}</small></div>"


def figure(run: Run, kind: str) -> Figure:
    """Draws a figure of the report, see :meth:`hdsim.results.result.Result.plot`."""
    from hdsim.report.figures import draw

    return draw(panels(run), kind)


def write_report(run: Run, file: Path) -> Path:
    """Writes the report, see :meth:`hdsim.results.result.Result.report`."""
    with writable("a file", file), replacing(file) as page:
        page.write(render(run))
    return file


def _subject(result: Any) -> str:
    """Jobs, platform and agent in words."""
    agent = agent_name(result.config)
    source, platform = Path(result.workload.source).name, result.platform
    ended = ", interrupted" if result.interrupted else ""
    return (
        f"{len(result.workload):,} jobs of {source} on {platform.name} ({platform.n_cpu_cores:,} cores), {agent}{ended}"
    )


def _cell(value: object) -> str:
    return f"<td>{format_number(value) if isinstance(value, float) else escape(str(value))}</td>"
