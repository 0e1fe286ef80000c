"""``hdsim bsp train``: trains an agent that controls the CPU shares of a gang."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from hdsim.cli.bsp.gang import write
from hdsim.cli.launch import configured
from hdsim.cli.train import QUIET, launch_training, report_scores
from hdsim.runs.command import Command, RunOutcome
from hdsim.runs.trainings import run_training
from hdsim.util.files import shown

if TYPE_CHECKING:
    from hdsim.learning.training.gangs import GangTask


@configured("bsp_train")
@QUIET
def train(overrides: tuple[str, ...], **options: Any) -> None:
    """Trains an agent to control the CPU shares of a gang, runs the gang with it and writes a run directory.

    \b
    hdsim bsp train
    hdsim bsp train agent=dqn env.actions=10 env.columns=10 train.steps=50000
    hdsim bsp train agent=sb3 agent.algo=PPO
    hdsim bsp train resume=true hydra.run.dir=runs/2026-01-31_12-00-00

    `hdsim bsp run controller=learned controller.checkpoint=RUN/checkpoints/best.safetensors` runs a gang with the
    trained agent. All keys are in docs/bsp_gangs.md.
    """  # noqa: D301 - click reads the backspace character
    launch_training(COMMAND, _report, overrides, **options)


def _build(config: Mapping[str, Any]) -> GangTask:
    from hdsim.learning.training.gangs import GangTask

    return GangTask(config)


def _report(task: GangTask, outcome: RunOutcome) -> None:
    best = report_scores(outcome)
    click.echo(f"run            hdsim bsp run controller=learned controller.checkpoint={shown(best)}")


_METRICS = ("duration", "checkpoints", "total")
_RUN = partial(run_training, command="hdsim bsp train")
COMMAND = Command("bsp train", _build, _RUN, check=_build, write=write, metrics=_METRICS)
