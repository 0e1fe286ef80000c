"""Trainings in the process of the tests, whole or interrupted."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from hdsim.learning.training.loop import Training
    from hdsim.learning.training.task import EpisodeTask


def make_setup(*overrides: str) -> EpisodeTask:
    """What `hdsim train` makes of overrides."""
    from hdsim.config.composer import Composer
    from hdsim.runs.trainings import build_training as build

    composer = Composer(config_name="train")
    return build(composer.compose(composer.overrides(overrides)))


def run(setup: EpisodeTask, directory: Path, *, resume: bool = False) -> dict[str, Any]:
    """Runs a training; returns the facts of the model card."""
    from hdsim.learning.training.run import run_training

    facts: dict[str, Any] = run_training(setup, directory, resume=resume, progress=False)[1]["training"]
    return facts


def train(directory: Path, *overrides: str, resume: bool = False) -> tuple[EpisodeTask, dict[str, Any]]:
    """Trains; returns the setup and the facts of the model card."""
    directory.mkdir(exist_ok=True)
    setup = make_setup(*overrides)
    return setup, run(setup, directory, resume=resume)


def train_until(
    directory: Path,
    *overrides: str,
    learned: Callable[[EpisodeTask, Training], bool],
    monkeypatch: pytest.MonkeyPatch,
) -> EpisodeTask:
    """Trains until a criterion holds at two evaluations in a row, or fails at the end of the steps.

    The criterion must not hold for the untrained agent.
    """
    from hdsim.learning.training.loop import Training

    setup = make_setup(*overrides)
    evaluate, found = Training._evaluate, list[bool]()

    def evaluate_and_stop(self: Training) -> None:
        evaluate(self)
        found.append(learned(setup, self))
        if all(found[-2:]):
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Training, "_evaluate", evaluate_and_stop)
        run(setup, directory)
    assert not found[0], "the untrained agent meets the criterion: another seed shows what is learned"
    return setup


def train_whole_and_cut(
    directory: Path, *overrides: str, crash_after: int, monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, Path, EpisodeTask]:
    """Trains twice, once with a crash after so many steps and a resume; both must leave the same bytes.

    Returns:
        The two run directories and the setup that was resumed.
    """
    from hdsim.learning.training.loop import Training

    whole, cut = directory / "whole", directory / "cut"
    train(whole, *overrides)

    class Crash(Exception):
        pass

    step = Training._step

    def failing(self: Training) -> None:
        if self.state.step > crash_after:
            raise Crash
        step(self)

    with monkeypatch.context() as patched:
        patched.setattr(Training, "_step", failing)
        with pytest.raises(Crash):
            train(cut, *overrides)
    assert not list(cut.glob("checkpoints/final.*"))
    setup, _ = train(cut, *overrides, resume=True)
    kept = [path.relative_to(whole) for name in ("best", "final") for path in whole.glob(f"checkpoints/{name}.*")]
    assert len(kept) == 2
    for name in (*kept, *(["actions.csv"] if setup.actions else []), "evaluation.csv"):
        assert (cut / name).read_bytes() == (whole / name).read_bytes(), name
    return whole, cut, setup
