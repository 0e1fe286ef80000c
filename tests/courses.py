"""Trainings in the process of the tests, whole or interrupted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from hdsim.learning.training.course import Course


def make_course(*overrides: str) -> Course:
    """What `hdsim train` makes of overrides."""
    from hdsim.cli.config import Composer
    from hdsim.cli.train import prepare

    composer = Composer(config_name="train")
    return prepare(composer.compose(composer.overrides(overrides)))


def train(directory: Path, *overrides: str, resume: bool = False) -> tuple[Course, dict[str, Any]]:
    """Trains; returns the course and the facts of the model card."""
    directory.mkdir(exist_ok=True)
    course = make_course(*overrides)
    _, facts = course.run(directory, resume=resume, progress=False)
    return course, facts["training"]


def train_whole_and_cut(
    directory: Path, *overrides: str, crash_after: int, monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, Path, Course]:
    """Trains twice, once with a crash after so many steps and a resume; both must leave the same bytes.

    Returns:
        The two run directories and the course that was resumed.
    """
    from hdsim.learning.training.loop import Training

    whole, cut = directory / "whole", directory / "cut"
    train(whole, *overrides)

    class Crash(Exception):
        pass

    step = Training._step

    def failing(self: Training) -> None:
        if self.clock.step > crash_after:
            raise Crash
        step(self)

    with monkeypatch.context() as patched:
        patched.setattr(Training, "_step", failing)
        with pytest.raises(Crash):
            train(cut, *overrides)
    assert not (cut / "checkpoints/final.safetensors").exists()
    course, _ = train(cut, *overrides, resume=True)
    for name in ("checkpoints/final.safetensors", "checkpoints/best.safetensors", "actions.csv", "evaluation.csv"):
        assert (cut / name).read_bytes() == (whole / name).read_bytes(), name
    return whole, cut, course
