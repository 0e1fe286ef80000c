"""Trainings: the runs of ``hdsim train``."""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hdsim.config.inputs import read_platform, read_workload
from hdsim.errors import ConfigError
from hdsim.runs.command import Command
from hdsim.util.files import shown

if TYPE_CHECKING:
    from hdsim.learning.training.task import Task


def build_training(config: Mapping[str, Any]) -> Task:
    """Reads and constructs everything that a configuration names.

    Raises:
        HdsimError: A file or a setting cannot be used.
    """
    from hdsim.backends.base import make_backend
    from hdsim.learning.training.scheduling import SchedulingTask

    if config.get("metrics"):
        raise ConfigError("expected null: metrics of one's own are of replays, of hdsim run", where="metrics")
    backend = make_backend(config["backend"])
    platform = read_platform(config, backend)
    workload = read_workload(config, platform)
    if config["train"]["evolution"] is not None:
        from hdsim.learning.training.order.task import OrderTask

        return OrderTask(config, platform, workload, backend)
    traces = [read_workload(config, platform, path, "train.traces") for path in config["train"]["traces"] or ()]
    return SchedulingTask(config, platform, workload, traces, backend)


def run_training(
    config: Mapping[str, Any],
    task: Task,
    directory: Path,
    *,
    resume: bool = False,
    command: str = "hdsim train",
    quiet: bool = False,
) -> tuple[Any, dict[str, Any]]:
    """Trains; see :func:`hdsim.learning.training.run.run_training`.

    `command` continues it, for the message of an interruption. In a process of a pool, whose text is shown at the end,
    there is no progress either.

    Raises:
        KeyboardInterrupt: A signal arrived.
    """
    from hdsim.learning.training import run

    progress = not quiet and not isinstance(sys.stderr, io.StringIO)
    try:
        return run.run_training(task, directory, resume=resume, progress=progress)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"interrupted; '{command} resume=true hydra.run.dir={shown(directory)}' continues from here"
        ) from None


COMMAND = Command("train", build_training, run_training)
