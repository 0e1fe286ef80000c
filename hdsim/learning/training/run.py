"""Runs a training: the loop, the test windows, the model card."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from hdsim.learning.training import model_card
from hdsim.learning.training.loop import Training, TrainingBudget
from hdsim.learning.training.setup import Setup
from hdsim.simulation.replay import Interrupted
from hdsim.util.files import write_csv


def run_training(
    setup: Setup,
    directory: Path,
    *,
    resume: bool,
    progress: bool,
    evaluated: Callable[[int, float], object] = lambda step, score: None,
) -> tuple[Any, dict[str, Any]]:
    """Trains, replays the test windows, and writes checkpoints, records and the model card into a run directory.

    Args:
        setup: The parts of the training.
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
        training = _training(setup, directory, progress=progress, evaluated=evaluated)
        if not (resume and training.resume()):
            for name in ("checkpoints", "tensorboard"):
                shutil.rmtree(directory / name, ignore_errors=True)
            training.checkpoints.mkdir(parents=True)
        training.run()
    finally:
        setup.close()
    try:
        return _test(setup, training, directory)
    except Interrupted:
        # An interrupted test gives no result.
        raise KeyboardInterrupt from None


def _test(setup: Setup, training: Training, directory: Path) -> tuple[Any, dict[str, Any]]:
    """Replays the test windows and writes evaluation.csv and the model card."""
    agents = ["final"] if training.state.best_score is None else ["final", "best"]
    replays = {name: setup.evaluation.replays(setup.trained(training.kept(name)), setup.test) for name in agents}
    replays |= {name: setup.evaluation.replays(spec, setup.test) for name, spec in setup.baselines.items()}
    _write_evaluation(directory / "evaluation.csv", replays)
    facts = model_card.facts(setup, training, replays)
    model_card.write(training.checkpoints, facts)
    # The agent with the best validation score, the last of the list, is shipped.
    return replays[agents[-1]][0], {"training": facts}


def _training(setup: Setup, directory: Path, **options: Any) -> Training:
    train = setup.config["train"]
    budget = TrainingBudget(**{field.name: train[field.name] for field in fields(TrainingBudget)})
    return Training(
        setup.learner(),
        setup.evaluation,
        setup.validation,
        setup.baselines,
        budget,
        directory,
        actions=setup.actions,
        tensorboard=train["tensorboard"],
        **options,
    )


def _write_evaluation(path: Path, replays: Mapping[str, Sequence[Any]]) -> None:
    """Writes evaluation.csv: one row per agent and test window, with the metrics of the replay."""
    first = next(iter(replays.values()))[0].metrics
    names = [name for name in first if name != "jobs_per_second"]
    rows = [
        [agent, window, *(f"{result.metrics[name]:.9g}" for name in names)]
        for agent, results in replays.items()
        for window, result in enumerate(results)
    ]
    write_csv(path, ["agent", "window", *names], rows)
