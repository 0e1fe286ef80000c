"""The goal of a search: a metric of replays, or the best validation score of a training."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from hdsim.errors import ConfigError
from hdsim.results.run_directory.directory import difference
from hdsim.results.run_directory.manifest import read_manifest
from hdsim.runs.command import Command, RunOutcome
from hdsim.runs.plan import PlannedRun


class Pruned(KeyboardInterrupt):
    """A training was ended because its trial is worse than others."""


@dataclass(frozen=True)
class Goal:
    """The measure of trials, whose runs a command executes; trainings are judged by their best validation score."""

    command: Command
    metric: str
    trains: bool

    def command_for(self, run: PlannedRun, judge: Callable[[int, float], object] | None) -> Command:
        """The command for a run of a trial, whose judge gets step and score of each evaluation of a training."""
        if not self.trains:
            return self.command
        return replace(self.command, run=partial(_train, resume=_can_resume(run), judge=judge))

    def value(self, outcome: RunOutcome) -> float:
        """The metric of a run.

        Raises:
            ConfigError: The run has failed, or has no such metric.
        """
        if outcome.failure:
            raise ConfigError(str(outcome.failure))
        if self.trains:
            facts = read_manifest(outcome.directory)["training"]
            return next(point["score"] for point in facts["curve"] if point["step"] == facts["best_step"])
        value = outcome.metrics.get(self.metric, math.nan)
        if math.isnan(value):
            raise ConfigError(f"expected a run with the metric {self.metric}, which this one does not define")
        return value


def _train(
    config: Mapping[str, Any],
    setup: Any,
    directory: Path,
    *,
    resume: bool,
    judge: Callable[[int, float], object] | None,
) -> tuple[Any, dict[str, Any]]:
    from hdsim.learning.training.run import run_training

    options = {} if judge is None else {"evaluated": judge}
    return run_training(setup, directory, resume=resume, progress=False, **options)


def _can_resume(run: PlannedRun) -> bool:
    """Whether a killed process has left this very training, rather than one of other inputs or another version."""
    try:
        return difference(read_manifest(run.directory), run.config) is None
    except ConfigError:
        return False
