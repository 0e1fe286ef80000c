"""Execution of several runs, one after the other or in parallel."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import as_completed

from hdsim.runs.command import Command, Outcome, attempt, finished
from hdsim.runs.plan import Run
from hdsim.runs.pool import Pool


def check_all(command: Command, runs: Sequence[Run]) -> None:
    """Checks the runs of a sweep as far as possible without reading every file.

    Raises:
        HdsimError: A file is missing, an agent or a controller cannot be made, or anything is wrong with the first run.
    """
    command.build(runs[0].config)
    for run in runs[1:]:
        command.check(run.config)


def run_all(
    command: Command,
    runs: Sequence[Run],
    *,
    jobs: int = 1,
    outdated: Callable[[Run, str], object] = lambda *_: None,
    done: Callable[[Run, Outcome], object] = lambda *_: None,
) -> list[Outcome]:
    """Executes the runs that have not finished before; the failure of one does not stop the others.

    Args:
        command: The command.
        runs: The runs.
        jobs: Number of processes; 1 is this one.
        outdated: Called with each run whose directory has an earlier run that does not count, and the reason.
        done: Called with each run that has ended and its outcome.

    Returns:
        The outcomes in the order of `runs`.

    Raises:
        KeyboardInterrupt: A signal arrived; the runs in work have been interrupted in order.
    """
    outcomes: dict[int, Outcome] = {}

    def end(number: int, outcome: Outcome) -> None:
        outcomes[number] = outcome
        done(runs[number], outcome)

    for number, run in enumerate(runs):
        if isinstance(found := finished(run.config, run.directory), Outcome):
            end(number, found)
        elif found:
            outdated(run, found)
    # Runs with the same platform and trace follow each other, for a worker keeps these.
    rest = sorted(set(range(len(runs))) - set(outcomes), key=lambda number: _inputs(runs[number]))
    if jobs == 1 or len(rest) == 1:
        for number in rest:
            run = runs[number]
            end(number, attempt(command, run.config, run.directory, run.composed))
    elif rest:
        with Pool(min(jobs, len(rest))) as pool:
            futures = {
                pool.submit(command, runs[number].config, runs[number].directory, composed=runs[number].composed): number
                for number in rest
            }
            for future in as_completed(futures):
                end(futures[future], future.result())
    return [outcomes[number] for number in range(len(runs))]


def _inputs(run: Run) -> str:
    return json.dumps([run.config.get(key) for key in ("platform", "workload", "seed")], sort_keys=True)
