"""``hdsim report``: the report of a run as a page, or its panels as static figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hdsim.cli.parameters import PATH, figure_format
from hdsim.util.files import replacing, writable
from hdsim.util.text import format_number, format_table

if TYPE_CHECKING:
    from hdsim.report.charts import Panel
    from hdsim.results.run_directory.reader import Run


@click.command()
@click.argument("directory", metavar="RUN", type=PATH)
@click.option("-o", "--output", metavar="FILE", type=PATH, help="Page to write.  [RUN/report.html]")
@click.option("--figures", metavar="DIR", type=PATH, help="Write static figures here instead of a page.")
@figure_format("--figure-format", "--format", "kind")
def report(directory: Path, output: Path | None, figures: Path | None, kind: str) -> None:
    """Writes the report of a run: RUN/report.html, one page that any browser opens without a network.

    \b
    hdsim report runs/gaia
    hdsim report runs/gaia -o gaia.html
    hdsim report runs/gaia --figures figures --figure-format pdf

    RUN may also be a sweep of hdsim bsp.
    """  # noqa: D301 - click reads the backspace character
    from hdsim.results.run_directory.supersteps import is_gang

    content = _sweep(directory) or (_gang if is_gang(directory) else _replay)(directory)
    if content.text:
        click.echo(f"{content.text}\n")
    if figures:
        from hdsim.report.figures import write_all

        with writable("a directory", figures):
            written = write_all(content.panels(), figures, kind)
        for path in written:
            click.echo(path)
    if output or not figures:
        page = output or directory / "report.html"
        with writable("a file", page), replacing(page) as file:
            file.write(content.page())
        click.echo(page)


@dataclass(frozen=True)
class _Content:
    """Makes panels, page and tables for the terminal of a report."""

    panels: Callable[[], Sequence[Panel]]
    page: Callable[[], str]
    text: str = ""


def _replay(directory: Path) -> _Content:
    from hdsim.report.html import render
    from hdsim.report.panels import panels
    from hdsim.results.run_directory.reader import read

    run = read(directory)
    if run.dead:
        click.echo(f"hdsim: {directory}: {run.dead}; the report shows what it has left", err=True)
    return _Content(lambda: panels(run), lambda: render(run), _recorded(run))


def _recorded(run: Run) -> str:
    """Waiting times beside those that the trace recorded; empty if it recorded none."""
    from hdsim.report.recorded import waits
    from hdsim.results.metrics import STATISTICS

    found = waits(run.path, run.manifest, run.jobs)
    if found is None:
        return ""
    rows = [[name, *map(format_number, values), "s"] for name, values in found.statistics().items()]
    return f"{format_table([['waiting time', *STATISTICS, ''], *rows])}\n{found}"


def _gang(directory: Path) -> _Content:
    from hdsim.report.gang_page import render, text
    from hdsim.report.gangs import panels
    from hdsim.results.run_directory.supersteps import read_gang

    run = read_gang(directory)
    if run.cut_short:
        click.echo(f"hdsim: {directory}: {run.cut_short}; the report shows what it has left", err=True)
    return _Content(lambda: panels(run), lambda: render(run), text(run))


def _sweep(directory: Path) -> _Content | None:
    """Content of a sweep of gangs; None for any other directory."""
    from hdsim.report.gang_page import render_sweep, sweep_panels, sweep_rows
    from hdsim.report.pairing import run_directories
    from hdsim.results.run_directory.supersteps import is_gang, read_gang

    inside = (file.parent for file in directory.glob("*/supersteps.csv"))
    if (directory / "manifest.json").exists() or not any(map(is_gang, inside)):
        return None
    found = run_directories(directory)
    runs = {str(path.relative_to(directory)): read_gang(path) for path in found if is_gang(path)}
    for path in found:
        if not is_gang(path):
            click.echo(f"hdsim: left out: {path}: no supersteps of a gang", err=True)
    return _Content(
        lambda: sweep_panels(runs), lambda: render_sweep(directory.name, runs), format_table(sweep_rows(runs))
    )
