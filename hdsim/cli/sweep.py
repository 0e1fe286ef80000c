"""Output of a sweep: a line for each run, the best runs, and the failures."""

from __future__ import annotations

import contextlib
import io
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, redirect_stderr
from pathlib import Path
from shutil import get_terminal_size
from statistics import fmean
from time import perf_counter
from typing import TYPE_CHECKING, Any, TextIO

import click
from tqdm import tqdm

from hdsim.errors import ConfigError, install_hint
from hdsim.runs.command import Command, RunOutcome
from hdsim.runs.plan import PlannedRun, Sweep, plan
from hdsim.runs.pool import start_server
from hdsim.runs.sweep import SweepObserver, check_all, ended, run_all
from hdsim.util.files import shown
from hdsim.util.text import folded, format_number

if TYPE_CHECKING:
    from hdsim.config.composer import Composer
    from hdsim.report.live import SweepPage

#: Shortest time between two versions of runs.csv, in seconds.
_TABLE_PAUSE = 2.0
#: Runs in the table at the end, metrics in the line of each run, and rows in the tables of the page.
_BEST, _SHOWN, _ON_PAGE = 10, 3, 200


def run_sweep(
    command: Command,
    composer: Composer,
    given: Sequence[str],
    jobs: int,
    shard: tuple[int, int] | None,
    live: int | None,
    warn: Callable[[Sequence[Mapping[str, Any]]], None],
) -> None:
    """Runs a sweep and prints its progress and its results.

    It runs in `jobs` processes, of a shard its part alone, and is shown on a page at the port `live`, 0 for a free one.
    `warn` is called with the configurations before the first run.

    Raises:
        HdsimError: A configuration is wrong.
        KeyboardInterrupt: A signal arrived.
        Exit: A run has failed.
    """
    from hdsim.results.run_directory.replications import idle_seeds
    from hdsim.runs.table import write_table

    if jobs > 1:
        start_server(jobs)
    sweep = plan(composer, given)
    part = sweep.shard(*shard) if shard else sweep
    check_all(command, part.runs)
    warn([run.config for run in sweep.runs])
    if warning := idle_seeds(run.config for run in part.runs):
        click.echo(f"hdsim: warning: {warning}", err=True)
    shards = f" of {len(sweep.runs)} runs (shard {shard[0]}/{shard[1]})" if shard else " runs"
    click.echo(f"{len(part.runs)}{shards} in {shown(sweep.directory)}")
    sweep.directory.mkdir(parents=True, exist_ok=True)
    try:
        with _page(live) as page, _Progress(command, part, page) as progress:
            outcomes = run_all(command, part.runs, jobs=jobs, observer=progress)
            if page:
                page.end("finished", _comparison(sweep.directory))
    except KeyboardInterrupt as error:
        again = f"the same command with hydra.sweep.dir={shown(sweep.directory)} goes on where it stopped"
        raise KeyboardInterrupt(f"{str(error) or 'interrupted'}; {again}") from None
    finally:
        table = write_table(sweep.directory)
    ended(part.runs)
    _report(command, part, outcomes, table)


def _page(port: int | None) -> AbstractContextManager[SweepPage | None]:
    """Starts the page of a sweep."""
    if port is None:
        return contextlib.nullcontext()
    from hdsim.report.live import SweepPage

    page = SweepPage(port)
    click.echo(f"live page      {page.url}", err=True)
    return page


def _comparison(directory: Path) -> str:
    """The page of the comparison of a sweep, empty if its runs cannot be compared."""
    from hdsim.report.compare import compare
    from hdsim.report.compare_page import render
    from hdsim.report.ranking import standings
    from hdsim.report.ratios import ratios

    try:
        comparison = compare([directory])
    except ConfigError:
        return ""
    return render(comparison, standings(comparison), directory, ratios=ratios(comparison)) if comparison.rows else ""


class _Progress(SweepObserver):
    """Prints a line for each run, above a bar on a terminal, and keeps the table and the page up to date."""

    def __init__(self, command: Command, sweep: Sweep, page: SweepPage | None) -> None:
        self._command, self._sweep, self._page = command, sweep, page
        self._metrics, self._directory, self._total = command.metrics[:_SHOWN], sweep.directory, len(sweep.runs)
        self._outcomes: list[RunOutcome] = []
        self._next_table = self._begin = perf_counter()
        self._ended = self._known = 0
        self._is_first = True

    def __enter__(self) -> _Progress:
        self._bar = tqdm(total=self._total, unit="run", disable=not sys.stderr.isatty())
        self._notes = redirect_stderr(_Lines(sys.stderr))
        self._notes.__enter__()
        if self._page:
            self._page.begin(f"sweep in {shown(self._directory)}", self._total, 0)
        return self

    def __exit__(self, *error: object) -> None:
        self._notes.__exit__(None, None, None)
        self._bar.close()

    def found(self, finished: Sequence[RunOutcome], outdated: Mapping[str, Sequence[PlannedRun]]) -> None:
        if finished:
            tqdm.write(f"{len(finished)} of {self._total} runs finished before")
        for reason, runs in outdated.items():
            which = _name(runs[0].directory, self._directory) if len(runs) == 1 else f"{len(runs)} runs"
            tqdm.write(f"{which}: {reason}; run{'s' * (len(runs) == 1)} again")
        self._ended = self._known = len(finished)
        self._bar.update(len(finished))
        self._outcomes += finished
        self._show()

    def done(self, run: PlannedRun, outcome: RunOutcome) -> None:
        self._ended += 1
        metrics, failure = outcome.metrics, outcome.failure
        numbers = [f"{name} {format_number(metrics[name])}" for name in self._metrics if name in metrics]
        told = f"{failure.kind}: {_first_line(str(failure))}" if failure else ", ".join(numbers)
        now = perf_counter()
        per_run = (now - self._begin) / (self._ended - self._known)
        left = tqdm.format_interval(per_run * (self._total - self._ended))
        if self._is_first:  # further estimates leave out the compilation of kernels
            self._begin, self._known, self._is_first = now, self._ended, False
        name = _name(run.directory, self._directory)
        tqdm.write(f"[{self._ended}/{self._total}] {name}  {told}  {outcome.seconds or 0.0:.1f} s  ETA {left}")
        if outcome.notes:
            tqdm.write(outcome.notes.rstrip("\n"), file=sys.stderr)
        self._bar.update()
        self._outcomes.append(outcome)
        self._show(left)
        self._write_table()

    def _show(self, left: str = "–") -> None:
        """Shows the state on the page."""
        if not self._page:
            return
        done = [each for each in self._outcomes if not each.failure]
        numbers = {
            f"of {self._total:,} runs finished": f"{len(done):,}",
            "failed": f"{len(self._outcomes) - len(done):,}",
            "remaining": left,
        }
        metrics = self._command.metrics
        rows = [["run, the last first", "s", *metrics]]
        for each in reversed(self._outcomes[-_ON_PAGE:]):
            values = (
                [each.failure.message]
                if each.failure
                else [format_number(each.metrics.get(name, math.nan)) for name in metrics]
            )
            rows.append([_name(each.directory, self._directory), f"{each.seconds or 0.0:.1f}", *values])
        self._page.show(numbers, [_ranked(done, self._sweep, metrics)[: _ON_PAGE + 1], rows])

    def _write_table(self) -> None:
        """Writes runs.csv, in a twentieth of the time at most: it reads the manifest of every run."""
        begin = perf_counter()
        if begin >= self._next_table:
            from hdsim.runs.table import write_table

            with contextlib.suppress(OSError):  # the runs and the table at the end report a full disk
                write_table(self._directory, parquet=False)
            self._next_table = perf_counter() + max(_TABLE_PAUSE, 19 * (perf_counter() - begin))


class _Lines(io.TextIOBase):
    """Standard error beside the bar of a sweep: no terminal for the bars of its runs."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        tqdm.write(text, file=self._stream, end="")
        return len(text)


def _report(command: Command, sweep: Sweep, outcomes: Sequence[RunOutcome], table: Path) -> None:
    """Prints the best runs and the failures."""
    from hdsim.results.run_directory.replications import seed_warning

    finished = [outcome for outcome in outcomes if not outcome.failure]
    click.echo(f"\n{_best(finished, sweep, command.metrics)}\n")
    click.echo(f"runs           {shown(table)}")
    if table.suffix == ".csv":
        click.echo(f"               runs.parquet needs pyarrow{install_hint('pyarrow')}")
    click.echo(f"compare        hdsim compare {shown(sweep.directory)}")
    warning = seed_warning(outcome.directory for outcome in finished)
    if warning:
        click.echo(f"\nhdsim: warning: {warning}", err=True)
    failed = [(outcome.directory, outcome.failure) for outcome in outcomes if outcome.failure]
    if not failed:
        return
    click.echo(f"\nhdsim: error: {len(failed)} of {len(outcomes)} runs failed", err=True)
    rows = [("run", "error", "where", "simulated time", "message")]
    for directory, failure in failed:
        simulated = "-" if failure.simulated_time is None else f"{failure.simulated_time:,.1f} s"
        name = _name(directory, sweep.directory)
        rows.append((name, failure.kind, failure.where or "-", simulated, _first_line(failure.message)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        click.echo("  ".join(map(str.ljust, row, widths)).rstrip(), err=True)
    raise click.exceptions.Exit(2 if all(failure.is_mistake for _, failure in failed) else 1)


def _best(outcomes: Sequence[RunOutcome], sweep: Sweep, metrics: Sequence[str]) -> str:
    """The best runs or configurations by the first metric."""
    head, *rows = _ranked(outcomes, sweep, metrics)
    if len(rows) > _BEST:
        head[0] = f"the best {_BEST} of {len(rows)} {head[0]}s by {metrics[0]}"
    return folded([head, *rows[:_BEST]], get_terminal_size((120, 24)).columns)


def _ranked(outcomes: Sequence[RunOutcome], sweep: Sweep, metrics: Sequence[str]) -> list[list[str]]:
    """Head and rows of a table of the runs, or of configurations that have several seeds: means, the best first."""
    from hdsim.results.metrics import unit

    first = metrics[0]
    varied = {run.directory: run.varied for run in sweep.runs}
    has_seeds = any("seed" in keys and len(keys) > 1 for keys in varied.values())
    groups: dict[str, list[Mapping[str, float]]] = {}
    for outcome in outcomes:
        if first in outcome.metrics:
            keys = varied[outcome.directory] if has_seeds else {}
            label = ",".join(f"{key}={value}" for key, value in keys.items() if key != "seed")
            groups.setdefault(label or _name(outcome.directory, sweep.directory), []).append(outcome.metrics)
    rows = []
    for label, runs in groups.items():
        means = [fmean(run.get(name, math.nan) for run in runs) for name in metrics]
        rows.append((means, [label, *([str(len(runs))] if has_seeds else []), *map(format_number, means)]))
    # A run whose jobs were all rejected has no value of it.
    rows.sort(key=lambda row: math.inf if math.isnan(row[0][0]) else row[0][0])
    names = (f"{name} [{unit(name)}]" if unit(name) else name for name in metrics)
    head = [*(["configuration", "seeds"] if has_seeds else ["run"]), *names]
    return [head, *(cells for _, cells in rows)]


def _name(directory: Path, parent: Path) -> str:
    return str(directory.relative_to(parent))


def _first_line(text: str) -> str:
    return text.partition("\n")[0]
