"""Runs a training: the loop, the test windows, the model card."""

from __future__ import annotations

import logging
import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hdsim.learning.training import model_card
from hdsim.learning.training.loop import Training
from hdsim.learning.training.task import Task
from hdsim.simulation.replay import Interrupted
from hdsim.util.files import write_csv

log = logging.getLogger(__name__)


def run_training(
    task: Task,
    directory: Path,
    *,
    resume: bool,
    progress: bool,
    evaluated: Callable[[int, float], object] = lambda step, score: None,
) -> tuple[Any, dict[str, Any]]:
    """Trains, replays the test windows, and writes checkpoints, records and the model card into a run directory.

    Args:
        task: The task.
        directory: The run directory.
        resume: Continue from its latest checkpoint, if there is one.
        progress: Show the progress on standard error: a bar on a terminal, lines elsewhere.
        evaluated: Called with the step and the score of each evaluation; an exception ends the training.

    Returns:
        The replay of the first test window under the trained agent, and the training's entries of the manifest.

    Raises:
        KeyboardInterrupt: A signal arrived; `resume` continues from there.
    """
    try:
        training = Training(task, task.learner(), directory, progress=progress, evaluated=evaluated)
        resumed = resume and training.resume()
        if resume and not resumed:
            log.warning("%s: no checkpoint to continue from; the training begins anew", training.state_file)
        if not resumed:
            for name in ("checkpoints", "tensorboard"):
                shutil.rmtree(directory / name, ignore_errors=True)
            training.checkpoints.mkdir(parents=True)
        training.run()
    finally:
        task.close()
    try:
        return _test(training, directory)
    except Interrupted:
        # An interrupted test gives no result.
        raise KeyboardInterrupt from None


def _test(training: Training, directory: Path) -> tuple[Any, dict[str, Any]]:
    """Replays the test windows and writes evaluation.csv and the model card."""
    task = training.task
    agents = {name: task.trained(training.kept(name)) for name in training.names}
    replays = {name: task.evaluation.replays(spec, task.test) for name, spec in (agents | {**task.baselines}).items()}
    _write_evaluation(directory / "evaluation.csv", replays)
    facts = model_card.facts(training, replays)
    model_card.write(training.checkpoints, facts)
    return replays[training.names[-1]][0], {"training": facts}


def _write_evaluation(path: Path, replays: Mapping[str, Sequence[Any]]) -> None:
    """Writes evaluation.csv: one row per agent and test window, with the metrics of the replay."""
    found = dict.fromkeys(name for results in replays.values() for result in results for name in result.metrics)
    names = [name for name in found if name != "jobs_per_second"]
    rows = [
        [agent, window, *(f"{result.metrics.get(name, math.nan):.9g}" for name in names)]
        for agent, results in replays.items()
        for window, result in enumerate(results)
    ]
    write_csv(path, ["agent", "window", *names], rows)
