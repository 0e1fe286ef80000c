"""Execution of several runs, one after the other or in parallel."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import as_completed

from hdsim.errors import ConfigError
from hdsim.runs.command import Command, RunOutcome, attempt, finished
from hdsim.runs.launchers import launched
from hdsim.runs.plan import PlannedRun
from hdsim.runs.pool import Pool


def check_all(command: Command, runs: Sequence[PlannedRun]) -> None:
    """Checks the runs of a sweep as far as possible without reading every file.

    Raises:
        HdsimError: A file is missing, an agent or a controller cannot be made, or anything is wrong with the first run.
    """
    # Before a file is read: standard input, which a sweep cannot read, may be a terminal.
    for run in runs[1:]:
        command.check(run.config)
    command.build(runs[0].config)


class SweepObserver:
    """Is told of the progress of a sweep; by default it does nothing."""

    def found(self, finished: Sequence[RunOutcome], outdated: Mapping[str, Sequence[PlannedRun]]) -> None:
        """Is called at the beginning, with finished runs and, by the reason in words, with those that do not count."""

    def done(self, run: PlannedRun, outcome: RunOutcome) -> None:
        """Is called after each other run."""


def run_all(
    command: Command, runs: Sequence[PlannedRun], *, jobs: int = 1, observer: SweepObserver | None = None
) -> list[RunOutcome]:
    """Executes the runs that have not finished before; the failure of one does not stop the others.

    With 1 process it is this one, and so it must be with a launcher of Hydra other than the basic one.

    Returns:
        The outcomes in the order of `runs`.

    Raises:
        ConfigError: The launcher cannot be used.
        BackendError: The cluster of the launcher cannot be reached.
        KeyboardInterrupt: A signal arrived; the runs in work have been interrupted in order.
    """
    if jobs > 1 and not _is_basic(runs[0]):
        raise ConfigError("expected basic with --jobs above 1", where="hydra/launcher")
    observer = observer or SweepObserver()
    outcomes: dict[int, RunOutcome] = {}
    outdated: dict[str, list[PlannedRun]] = {}
    for number, run in enumerate(runs):
        known = finished(run.config, run.directory)
        if isinstance(known, RunOutcome):
            outcomes[number] = known
        elif known:
            outdated.setdefault(known, []).append(run)
    observer.found(list(outcomes.values()), outdated)
    # Runs with the same platform and trace follow each other, for a worker keeps these.
    begun: dict[str, int] = {}
    rest = sorted(
        set(range(len(runs))) - set(outcomes), key=lambda number: begun.setdefault(_inputs(runs[number]), number)
    )
    for number, outcome in _executed(command, runs, rest, jobs):
        outcomes[number] = outcome
        observer.done(runs[number], outcome)
    return [outcomes[number] for number in range(len(runs))]


def ended(runs: Sequence[PlannedRun]) -> None:
    """Tells the callbacks of Hydra that a sweep has ended (``on_multirun_end``); their errors become warnings."""
    from hdsim.config.jobs import Callbacks

    composed = runs[0].composed
    Callbacks(composed).on_multirun_end(config=composed, config_name=None)


def _executed(
    command: Command, runs: Sequence[PlannedRun], numbers: Sequence[int], jobs: int
) -> Iterator[tuple[int, RunOutcome]]:
    """Executes the runs of these numbers; yields number and outcome of each when it has ended."""
    if numbers and not _is_basic(runs[0]):
        places = launched(runs[0].composed.hydra.launcher, command, [runs[number] for number in numbers])
        yield from ((numbers[place], outcome) for place, outcome in places)
        return
    if min(jobs, len(numbers)) <= 1:
        for number in numbers:
            run = runs[number]
            yield number, attempt(command, run.config, run.directory, run.composed)
        return
    with Pool(min(jobs, len(numbers))) as pool:
        futures = {}
        for number in numbers:
            run = runs[number]
            futures[pool.submit(command, run.config, run.directory, composed=run.composed)] = number
        for future in as_completed(futures):
            yield futures[future], future.result()


def _is_basic(run: PlannedRun) -> bool:
    """Whether the launcher is that of Hydra itself, instead of which hdsim executes the runs."""
    from omegaconf import OmegaConf

    if OmegaConf.is_missing(run.composed.hydra, "launcher"):
        raise ConfigError("expected a launcher such as basic or joblib, got none", where="hydra/launcher")
    return str(run.composed.hydra.launcher["_target_"]).endswith(".BasicLauncher")


def _inputs(run: PlannedRun) -> str:
    return json.dumps([run.config.get(key) for key in ("platform", "workload", "seed")], sort_keys=True)
