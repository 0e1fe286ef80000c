"""``hdsim train``: trains a learning agent, then evaluates it."""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hdsim.cli.launch import Command, Outcome, configured, launch, shown
from hdsim.cli.resume import resumed, split_flag
from hdsim.config.inputs import read_platform, read_workload
from hdsim.errors import ConfigError

if TYPE_CHECKING:
    from hdsim.learning.training.gangs import GangSetup
    from hdsim.learning.training.setup import TrainingSetup

_NEEDED = ("gymnasium", "safetensors", "tensorboard", "torch")


@configured
def train(overrides: tuple[str, ...], config_name: str | None, **options: Any) -> None:
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
    launch_training(COMMAND, overrides, config_name or "train", options)


def launch_training(command: Command, overrides: Sequence[str], config_name: str, options: Mapping[str, Any]) -> None:
    """Runs a command that trains, new or resumed.

    Args:
        command: The command; its `run` is `run_setup`.
        overrides: The user's, with ``resume=true`` or without.
        config_name: Primary configuration.
        options: Further arguments of :func:`hdsim.cli.launch.launch`.

    Raises:
        ConfigError: A package is missing, or there is no such training to resume.
    """
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"expected the packages of the extra rl, {', '.join(missing)} missing: pip install 'hdsim[rl]'"
        )
    given, resume = split_flag(overrides)
    if resume:
        command = dataclasses.replace(command, run=partial(run_setup, resume=True), resumes=True)
        given = resumed("training", given, config_name, options)
    launch(command, given, config_name=config_name, **options)


def build(config: Mapping[str, Any]) -> TrainingSetup:
    """Reads and constructs everything that a configuration names.

    Raises:
        HdsimError: A file or a setting cannot be used.
    """
    from hdsim.backends.base import make_backend
    from hdsim.learning.training.setup import TrainingSetup

    backend = make_backend(config["backend"])
    platform = read_platform(config, backend)
    workload = read_workload(config, platform)
    traces = [read_workload(config, platform, path, "train.traces") for path in config["train"]["traces"] or ()]
    return TrainingSetup.of(config, platform, workload, traces, backend)


def run_setup(
    config: Mapping[str, Any], setup: TrainingSetup | GangSetup, directory: Path, *, resume: bool = False
) -> tuple[Any, dict[str, Any]]:
    """Trains; see :func:`hdsim.learning.training.run.run_training`.

    Raises:
        KeyboardInterrupt: A signal arrived.
    """
    from hdsim.learning.training.run import run_training

    try:
        return run_training(setup, directory, resume=resume, progress=sys.stderr.isatty())
    except KeyboardInterrupt:
        name = click.get_current_context().command_path
        raise KeyboardInterrupt(
            f"interrupted; '{name} resume=true hydra.run.dir={shown(directory)}' continues from here"
        ) from None


def report_scores(outcome: Outcome) -> Path:
    """Prints the scores on the test windows, best first; returns the best checkpoint."""
    from hdsim.learning.training import model_card
    from hdsim.results.run_directory.manifest import read_manifest

    facts = read_manifest(outcome.directory)["training"]
    click.echo(model_card.table(facts))
    click.echo(f"\nrun directory  {shown(outcome.directory)}")
    click.echo(f"report         hdsim report {shown(outcome.directory)}")
    return outcome.directory / "checkpoints" / str(facts["shipped"])


def _report(setup: TrainingSetup, outcome: Outcome) -> None:
    best, agent = report_scores(outcome), setup.config["agent"]
    own = str(agent.get("_target_")).removeprefix("hdsim.agents.").split(".")
    name = f"agent={own[0]}" if len(own) == 2 else f"agent._target_={agent.get('_target_')}"
    name = f"agent.path={agent['path']}" if agent.get("path") else name
    click.echo(f"replay         hdsim run {name} agent.checkpoint={shown(best)}")


COMMAND = Command("train", build, run_setup, _report)
