"""Output of a sweep: a line for each run, the best runs, and the failures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import click

from hdsim.runs.command import Command, Outcome
from hdsim.util.text import format_number, format_table

if TYPE_CHECKING:
    from hdsim.config.composer import Composer
    from hdsim.runs.plan import Run

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
        Exit: A run has failed.
    """
    from hdsim.results.run_directory.replications import seed_warning
    from hdsim.runs.plan import plan
    from hdsim.runs.sweep import check_all, run_all

    sweep = plan(composer, given)
    if shard:
        sweep = sweep.shard(*shard)
    check_all(command, sweep.runs)
    total, begin, count = len(sweep.runs), perf_counter(), 0
    click.echo(f"{total} runs in {sweep.directory}")

    def done(run: Run, outcome: Outcome) -> None:
        nonlocal count
        count += 1
        numbers = ", ".join(
            f"{name} {format_number(outcome.metrics[name])}"
            for name in command.metrics[:_SHOWN]
            if name in outcome.metrics
        )
        told = f"failed: {outcome.failure}" if outcome.failure else numbers
        seconds = "finished before" if outcome.seconds is None else f"{outcome.seconds:.1f} s"
        left = (perf_counter() - begin) / count * (total - count)
        click.echo(f"[{count}/{total}] {_name(run.directory, sweep.directory)}: {told}; {seconds}; ETA {left:.0f} s")
        if outcome.notes:
            click.echo(outcome.notes.rstrip("\n"), err=True)

    def outdated(run: Run, reason: str) -> None:
        click.echo(f"{_name(run.directory, sweep.directory)}: {reason}; runs again")

    outcomes = run_all(command, sweep.runs, jobs=jobs, outdated=outdated, done=done)
    finished = [outcome for outcome in outcomes if not outcome.failure]
    click.echo(_table(finished, sweep.directory, command.metrics))
    click.echo(f"\ncompare        hdsim compare {sweep.directory}")
    warning = seed_warning(outcome.directory for outcome in finished)
    if warning:
        click.echo(f"\nhdsim: warning: {warning}", err=True)
    failed = [(outcome.directory, outcome.failure) for outcome in outcomes if outcome.failure]
    if failed:
        click.echo(f"\nhdsim: error: {len(failed)} of {total} runs failed", err=True)
        for directory, failure in failed:
            click.echo(f"  {_name(directory, sweep.directory)}: {failure}", err=True)
        raise click.exceptions.Exit(2 if all(failure.is_mistake for _, failure in failed) else 1)


def _table(outcomes: Sequence[Outcome], directory: Path, metrics: Sequence[str]) -> str:
    """One line a run, with its main metrics."""
    from hdsim.results.metrics import unit

    headings = [f"{name} [{unit(name)}]" if unit(name) else name for name in metrics]
    rows = [["run", *headings]]
    for outcome in outcomes:
        numbers = [format_number(outcome.metrics[name]) for name in metrics]
        rows.append([_name(outcome.directory, directory), *numbers])
    return format_table(rows)


def _name(directory: Path, parent: Path) -> str:
    return str(directory.relative_to(parent))
