"""Output of a sweep: a line for each run, the best runs, and the failures."""

from __future__ import annotations

import contextlib
import io
import math
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, TextIO

import click
from tqdm import tqdm

from hdsim.errors import install_hint
from hdsim.runs.command import Command, Outcome
from hdsim.runs.plan import Run, Sweep, plan
from hdsim.runs.pool import start_server
from hdsim.runs.sweep import Observer, check_all, ended, run_all
from hdsim.util.files import shown
from hdsim.util.text import format_number, format_table

if TYPE_CHECKING:
    from hdsim.config.composer import Composer

#: Shortest time between two versions of runs.csv, in seconds.
_TABLE_PAUSE = 2.0
#: Runs in the table at the end, and metrics in the line of each run.
_BEST, _SHOWN = 10, 3


def run_sweep(
    command: Command, composer: Composer, given: Sequence[str], jobs: int, shard: tuple[int, int] | None
) -> None:
    """Runs a sweep and prints its progress and its results.

    Args:
        command: The command.
        composer: Composes the configurations.
        given: The overrides.
        jobs: Number of processes.
        shard: Number and count of the part to run.

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
    if warning := idle_seeds(run.config for run in part.runs):
        click.echo(f"hdsim: warning: {warning}", err=True)
    shards = f" of {len(sweep.runs)} runs (shard {shard[0]}/{shard[1]})" if shard else " runs"
    click.echo(f"{len(part.runs)}{shards} in {shown(sweep.directory)}")
    sweep.directory.mkdir(parents=True, exist_ok=True)
    try:
        with _Progress(command, part) as progress:
            outcomes = run_all(command, part.runs, jobs=jobs, observer=progress)
    except KeyboardInterrupt as error:
        again = f"the same command with hydra.sweep.dir={shown(sweep.directory)} goes on where it stopped"
        raise KeyboardInterrupt(f"{str(error) or 'interrupted'}; {again}") from None
    finally:
        table = write_table(sweep.directory)
    ended(part.runs)
    _report(command, part, outcomes, table)


class _Progress(Observer):
    """Prints a line for each run, above a bar on a terminal, and keeps the table of the runs up to date."""

    def __init__(self, command: Command, sweep: Sweep) -> None:
        self._metrics, self._directory, self._total = command.metrics[:_SHOWN], sweep.directory, len(sweep.runs)
        self._begin = perf_counter()
        self._ended = self._known = 0
        self._next_table = self._begin

    def __enter__(self) -> _Progress:
        self._bar = tqdm(total=self._total, unit="run", disable=not sys.stderr.isatty())
        self._notes = redirect_stderr(_Lines(sys.stderr))
        self._notes.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._notes.__exit__(None, None, None)
        self._bar.close()

    def found(self, finished: int, outdated: Mapping[str, Sequence[Run]]) -> None:
        if finished:
            tqdm.write(f"{finished} of {self._total} runs finished before")
        for reason, runs in outdated.items():
            which = _name(runs[0].directory, self._directory) if len(runs) == 1 else f"{len(runs)} runs"
            tqdm.write(f"{which}: {reason}; run{'s' * (len(runs) == 1)} again")
        self._ended = self._known = finished
        self._bar.update(finished)

    def done(self, run: Run, outcome: Outcome) -> None:
        self._ended += 1
        metrics, failure = outcome.metrics, outcome.failure
        numbers = [f"{name} {format_number(metrics[name])}" for name in self._metrics if name in metrics]
        told = f"{failure.kind}: {_first_line(str(failure))}" if failure else ", ".join(numbers)
        per_run = (perf_counter() - self._begin) / (self._ended - self._known)
        left = tqdm.format_interval(per_run * (self._total - self._ended))
        name = _name(run.directory, self._directory)
        tqdm.write(f"[{self._ended}/{self._total}] {name}  {told}  {outcome.seconds or 0.0:.1f} s  ETA {left}")
        if outcome.notes:
            tqdm.write(outcome.notes.rstrip("\n"), file=sys.stderr)
        self._bar.update()
        self._write_table()

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


def _report(command: Command, sweep: Sweep, outcomes: Sequence[Outcome], table: Path) -> None:
    """Prints the best runs and the failures.

    Raises:
        Exit: A run has failed.
    """
    from hdsim.results.run_directory.replications import seed_warning

    finished = [outcome for outcome in outcomes if not outcome.failure]
    click.echo(f"\n{_best(finished, sweep.directory, command.metrics)}\n")
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


def _best(outcomes: Sequence[Outcome], directory: Path, metrics: Sequence[str]) -> str:
    """The best runs by the first metric, with all main metrics."""
    from hdsim.results.metrics import unit

    first = metrics[0]
    known = [each for each in outcomes if first in each.metrics]
    # A run whose jobs were all rejected has no value of it.
    known.sort(key=lambda each: math.inf if math.isnan(each.metrics[first]) else each.metrics[first])
    headings = [f"{name} [{unit(name)}]" if unit(name) else name for name in metrics]
    title = "run" if len(known) <= _BEST else f"the best {_BEST} of {len(known)} runs by {first}"
    rows = [[title, *headings]]
    for outcome in known[:_BEST]:
        numbers = [format_number(outcome.metrics.get(name, float("nan"))) for name in metrics]
        rows.append([_name(outcome.directory, directory), *numbers])
    return format_table(rows)


def _name(directory: Path, parent: Path) -> str:
    return str(directory.relative_to(parent))


def _first_line(text: str) -> str:
    return text.partition("\n")[0]
