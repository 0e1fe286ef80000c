"""Trials of a search: sampled, evaluated run by run, pruned, and kept in a database that survives the process."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import optuna
from optuna.distributions import CategoricalDistribution
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, Trial, TrialState
from sqlalchemy.exc import SQLAlchemyError

from hdsim.errors import ConfigError, HdsimError
from hdsim.results.metrics import Direction, direction
from hdsim.results.run_directory.failure import Failure
from hdsim.runs.command import Command, RunOutcome, attempt
from hdsim.runs.plan import PlannedRun
from hdsim.runs.pool import Pool
from hdsim.runs.tuning.goal import Pruned
from hdsim.runs.tuning.setup import Search
from hdsim.util.text import shown

DATABASE = "study.db"
_NAME = "hdsim"
_OVER = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)

Submit = Callable[[Command, PlannedRun], "Future[RunOutcome]"]
Evaluation = Generator[tuple[Command, PlannedRun], RunOutcome, float | None]


class TuningStudy:
    """The trials of a search in its directory.

    Values of a trial follow from the seed and the trials before: with one worker the trials are those of a search that
    was never interrupted. The trial of a killed process is evaluated again, a training from its latest checkpoint on.

    The runs of trial 7 lie in ``trials/0007``.

    Raises:
        ConfigError: The directory has another search, or a damaged one.
    """

    def __init__(self, search: Search) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._search = search
        self.directory, self.space, self.goal = search.directory, search.space, search.goal
        pruners = optuna.pruners
        self._pruner = pruners.MedianPruner(n_warmup_steps=1) if search.pruner == "median" else pruners.NopPruner()
        storage, identity = database(search.directory), search.identity
        try:
            self.study = optuna.create_study(
                study_name=_NAME, storage=storage, pruner=self._pruner, direction=self._direction, load_if_exists=True
            )
            begun = self.study.user_attrs.get("identity")
            if begun is None and not self.study.get_trials(deepcopy=False):
                self.study.set_user_attr("identity", identity)
            elif not isinstance(begun, dict):
                raise self._damage(f"{shown(begun)} in the place of what was searched for")
            elif begun != identity:
                different = ", ".join(key for key in identity if begun.get(key) != identity[key])
                raise ConfigError(
                    f"expected the search that began there, {different} differs", where=str(search.directory)
                )
            self._check_trials()
        except (HdsimError, OSError, SQLAlchemyError, optuna.exceptions.StorageInternalError):
            raise
        except Exception as error:  # Optuna checks little of what it reads
            raise self._damage(f"{type(error).__name__}: {error}") from error
        # Trials of a killed process wait again, with their values.
        for trial in self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            self.study._storage.set_trial_state_values(trial._trial_id, TrialState.WAITING)

    def _check_trials(self) -> None:
        """Checks the direction of the search, and the trials that have ended."""
        if self.study.direction is not self._direction:
            raise self._damage(f"the direction {self.study.direction.name.lower()} for {self.goal.metric}")
        for number, trial in enumerate(self.study.get_trials(deepcopy=False)):
            if trial.number != number:
                raise self._damage(f"trial {trial.number} in the place of {number}")
            if trial.state in _OVER and trial.params.keys() != self.space.distributions.keys():
                raise self._damage(f"trial {number} with the settings {', '.join(trial.params) or 'none'}")
            for key, value in trial.params.items():
                known: Any = self.space.distributions.get(key)
                if isinstance(known, CategoricalDistribution):
                    inside = value in known.choices
                else:
                    inside = known is not None and known.low <= value <= known.high
                if not inside:
                    raise self._damage(f"trial {number} with {key}={value}")
            if trial.state is TrialState.COMPLETE and not trial.values:
                raise self._damage(f"trial {number} without a value")
            if trial.values and not math.isfinite(trial.values[0]):
                raise self._damage(f"trial {number} with the value {trial.values[0]}")

    def _damage(self, found: str) -> ConfigError:
        return ConfigError(
            f"expected trials that hdsim tune has written, got {found}", where=str(self.directory / DATABASE)
        )

    @property
    def _direction(self) -> StudyDirection:
        higher = direction(self.goal.metric) is Direction.HIGHER
        return StudyDirection.MAXIMIZE if higher else StudyDirection.MINIMIZE

    @property
    def trials(self) -> list[FrozenTrial]:
        """The trials that have ended, in the order of their numbers."""
        return self.study.get_trials(deepcopy=False, states=_OVER)

    @property
    def best(self) -> FrozenTrial | None:
        """The best trial, None while no trial has a value."""
        complete = self.study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        return self.study.best_trial if complete else None

    def runs(self, trial: FrozenTrial | Trial) -> Sequence[PlannedRun]:
        """The runs of a trial.

        Raises:
            ConfigError: Its values make no configuration.
        """
        folder = self.directory / "trials" / f"{trial.number:04}"
        return self._search.plan(self.space.overrides(trial.params), folder)

    def search(self, jobs: int, ended: Callable[[FrozenTrial], object]) -> None:
        """Evaluates trials in some processes, 1 is this one, until there are as many as the settings ask for.

        Raises:
            KeyboardInterrupt: A signal arrived.
        """
        with _executor(jobs) as submit:
            working: dict[Future[RunOutcome], tuple[Trial, Evaluation]] = {}

            def go_on(trial: Trial, evaluation: Evaluation, outcome: RunOutcome | None = None) -> None:
                step = self._advanced(trial, evaluation, outcome)
                if step is None:
                    ended(self.study.get_trials(deepcopy=False)[trial.number])
                else:
                    working[submit(*step)] = trial, evaluation

            while True:
                while len(working) < jobs and (trial := self._ask()):
                    go_on(trial, self._evaluate(trial))
                if not working:
                    break
                for future in wait(working, return_when=FIRST_COMPLETED).done:
                    go_on(*working.pop(future), future.result())

    def _ask(self) -> Trial | None:
        """A trial that waits, or else a new one of other settings than those before; None if there are no more."""
        trials, distributions = self.study.get_trials(deepcopy=False), dict(self.space.distributions)
        if not any(trial.state is TrialState.WAITING for trial in trials):
            tried = [trial.params for trial in trials]
            untried = self.space.untried(tried)
            if len(trials) >= self._search.trials or untried == []:
                return None
            # All values are sampled before the first is stored: a process that is killed meanwhile leaves no trial
            # with some of them, and the next process samples the same ones.
            seed = int(np.random.SeedSequence([self._search.seed, len(trials)]).generate_state(1)[0])
            copied = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed), direction=self._direction)
            copied.add_trials(trials)
            params = copied.ask(distributions).params
            if untried and params in tried:
                params = untried[seed % len(untried)]
            self.study.enqueue_trial(params)
        trial = self.study.ask(distributions)
        if trial.number >= (known := len(self.study.get_trials(deepcopy=False))):
            raise self._damage(f"{trial.number + 1} trials with {known} different numbers")
        return trial

    def _advanced(
        self, trial: Trial, evaluation: Evaluation, outcome: RunOutcome | None
    ) -> tuple[Command, PlannedRun] | None:
        """The next run of a trial; None: the trial has ended and its result is stored."""
        try:
            return next(evaluation) if outcome is None else evaluation.send(outcome)
        except StopIteration as end:
            pruned = end.value is None
            self.study.tell(trial, end.value, TrialState.PRUNED if pruned else TrialState.COMPLETE)
        except HdsimError as error:
            trial.set_user_attr("error", str(error))
            self.study.tell(trial, state=TrialState.FAIL)
        return None

    def _evaluate(self, trial: Trial) -> Evaluation:
        """Evaluates a trial: yields its runs and takes their outcomes; returns the mean, None if it is pruned."""
        same = [other for other in self.trials if other.params == trial.params and other.state is TrialState.COMPLETE]
        if same:  # Equal runs have equal results.
            return same[0].value
        runs, values = self.runs(trial), list[float]()
        for number, run in enumerate(runs, 1):
            last = run.config["train"]["steps"] if self.goal.trains else 0
            judge = Judge(self.directory, self._pruner, trial._trial_id, last) if len(runs) == 1 else None
            outcome = yield self.goal.command_for(run, judge), run
            if outcome.failure and "pruned" in self.study.get_trials(deepcopy=False)[trial.number].user_attrs:
                return None
            if outcome.failure and outcome.failure.kind == "OSError":
                # A full disk is no property of the settings: the trial stays in work, for the next process.
                raise OSError(outcome.failure.message)
            values.append(self.goal.value(outcome))
            if len(runs) > 1 and report(trial, self.study, fmean(values), number) and number < len(runs):
                return None
        return fmean(values)


@dataclass(frozen=True)
class Judge:
    """Reports the evaluations of a training to its trial, from any process.

    `directory` and `pruner` are those of the search, `trial` is an id; after `last` steps the training is not pruned.
    """

    directory: Path
    pruner: optuna.pruners.BasePruner
    trial: int
    last: int

    def __call__(self, step: int, score: float) -> None:
        """Reports a score.

        Raises:
            Pruned: The trial is worse than others.
        """
        study = optuna.load_study(study_name=_NAME, storage=database(self.directory), pruner=self.pruner)
        trial = Trial(study, self.trial)
        if report(trial, study, score, step) and step < self.last:
            trial.set_user_attr("pruned", step)
            raise Pruned(f"pruned by hdsim tune after step {step}")


@contextlib.contextmanager
def storage_errors(directory: Path) -> Iterator[None]:
    """Turns errors of the database of a search, such as a full disk, into an OSError of one line."""
    try:
        yield
    except (optuna.exceptions.StorageInternalError, SQLAlchemyError) as error:
        cause = error.__cause__ or error
        raise OSError(f"{directory / DATABASE}: cannot be used: {getattr(cause, 'orig', cause)}") from error


def database(directory: Path) -> str:
    """URL of the database of a search."""
    return f"sqlite:///{directory.absolute() / DATABASE}"


def report(trial: Trial, study: optuna.Study, value: float, step: int) -> bool:
    """Reports an intermediate value, which a killed process may have done before; returns whether to prune."""
    if step not in study.get_trials(deepcopy=False)[trial.number].intermediate_values:
        trial.report(value, step)
    return trial.should_prune()


@contextlib.contextmanager
def _executor(jobs: int) -> Iterator[Submit]:
    """Executes runs in this process, or in others."""
    if jobs > 1:
        with Pool(jobs) as pool:
            yield lambda command, run: pool.submit(command, run.config, run.directory, composed=run.composed)
        return

    def here(command: Command, run: PlannedRun) -> Future[RunOutcome]:
        done: Future[RunOutcome] = Future()
        try:
            done.set_result(attempt(command, run.config, run.directory, run.composed))
        except Pruned as pruned:
            done.set_result(RunOutcome(run.directory, {}, Failure.of(pruned)))
        return done

    yield here
