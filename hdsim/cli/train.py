"""``hdsim train``: trains a learning agent, then evaluates it."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hdsim.cli.launch import configured, launch
from hdsim.cli.resume import resumed, split_flag
from hdsim.errors import ConfigError, install_hint
from hdsim.runs.command import Command, RunOutcome
from hdsim.runs.trainings import COMMAND
from hdsim.util.files import shown

if TYPE_CHECKING:
    from hdsim.learning.training.task import Task

_NEEDED = ("gymnasium", "safetensors", "tensorboard", "torch")
QUIET = click.option("-q", "--quiet", is_flag=True, help="No progress on standard error.")


@configured("train")
@QUIET
def train(overrides: tuple[str, ...], **options: Any) -> None:
    """Trains a learning agent, evaluates it on held-out windows and writes a run directory.

    \b
    hdsim train
    hdsim train agent=dqn env.objective=energy_consumption train.steps=50000
    hdsim train -m agent=ppo,dqn seed=1,2,3 hydra.sweep.dir=runs/agents
    hdsim train resume=true hydra.run.dir=runs/2026-01-31_12-00-00

    resume=true continues an interrupted training: the one in hydra.run.dir, or the latest of the same configuration.
    `hdsim run agent=ppo agent.checkpoint=RUN/checkpoints/best.safetensors` replays the trained agent. All keys are
    in docs/training.md.
    """  # noqa: D301 - click reads the backspace character
    launch_training(COMMAND, _report, overrides, **options)


def launch_training(
    command: Command,
    report: Callable[[Any, RunOutcome], None],
    overrides: Sequence[str],
    *,
    quiet: bool,
    **options: Any,
) -> None:
    """Runs a command that trains, new or resumed.

    `run` of the command takes the keywords `resume` and `quiet`. The options are those of
    :func:`hdsim.cli.launch.launch`.

    Raises:
        ConfigError: A package is missing, or there is no such training to resume.
    """
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(f"expected the packages of the extra rl, {', '.join(missing)} missing{install_hint('torch')}")
    run: Callable[..., Any] = command.run
    given, resume = split_flag(overrides)
    command = dataclasses.replace(command, run=partial(run, resume=resume, quiet=quiet), resumes=resume)
    if resume:
        given = resumed("training", given, options)
    launch(command, report, given, **options)


def report_scores(outcome: RunOutcome) -> Path:
    """Prints the scores on the test windows, best first; returns the best checkpoint."""
    from hdsim.learning.training import model_card
    from hdsim.results.run_directory.manifest import read_manifest

    facts = read_manifest(outcome.directory)["training"]
    click.echo(model_card.table(facts))
    click.echo(f"\nrun directory  {shown(outcome.directory)}")
    click.echo(f"report         hdsim report {shown(outcome.directory)}")
    return outcome.directory / "checkpoints" / str(facts["shipped"])


def _report(task: Task, outcome: RunOutcome) -> None:
    best, agent = report_scores(outcome), task.config["agent"]
    if task.config["train"]["evolution"] is not None:
        click.echo(f"replay         hdsim run agent.job_policy={shown(best)} agent.backfill={agent['backfill']}")
        return
    own = str(agent.get("_target_")).removeprefix("hdsim.agents.").split(".")
    name = f"agent={own[0]}" if len(own) == 2 else f"agent._target_={agent.get('_target_')}"
    name = f"agent.path={agent['path']}" if agent.get("path") else name
    click.echo(f"replay         hdsim run {name} agent.checkpoint={shown(best)}")
