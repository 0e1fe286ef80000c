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

from hdsim.cli.run import Outcome, Work, configured, launch, read_platform, read_workload, shown
from hdsim.errors import ConfigError

if TYPE_CHECKING:
    from hdsim.learning.training.setup import TrainingSetup
    from hdsim.results.result import Result

_OVERRIDES = Path(".hydra/overrides.yaml")
_NEEDED = ("gymnasium", "safetensors", "tensorboard", "torch")


@configured
def train(overrides: tuple[str, ...], config_name: str | None, **options: Any) -> None:
    """Trains a learning agent, evaluates it on held-out windows and writes a run directory.

    \b
    hdsim train
    hdsim train agent=dqn env.objective=energy_consumption train.steps=50000
    hdsim train -m agent=ppo,dqn seed=1,2,3 hydra.sweep.dir=runs/agents
    hdsim train resume=true hydra.run.dir=runs/2026-01-31_12-00-00

    resume=true goes on with an interrupted training: the one in hydra.run.dir, or the latest of the same configuration.
    `hdsim run agent=ppo agent.checkpoint=RUN/checkpoints/best.safetensors` replays with what was learned. All keys are
    in docs/training.md.
    """  # noqa: D301 - click reads the backspace character
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"expected the packages of the extra rl, {', '.join(missing)} missing: pip install 'hdsim[rl]'"
        )
    given = [text for text in overrides if not text.startswith("resume=")]
    resume = _flag([text for text in overrides if text.startswith("resume=")])
    work = _TRAINING
    if resume:
        work = dataclasses.replace(_TRAINING, perform=partial(_perform, resume=True), resumes=True)
        given = _with_directory(given, config_name or "train", options)
    launch(work, given, config_name=config_name or "train", **options)


def _flag(given: Sequence[str]) -> bool:
    """The value of ``resume=``, which says how a training is begun and is no part of its configuration."""
    import yaml

    value = yaml.safe_load(given[-1].partition("=")[2]) if given else False
    if not isinstance(value, bool):
        raise ConfigError(f"expected true or false, got '{value}'", where="resume")
    return value


def _with_directory(given: Sequence[str], config_name: str, options: Mapping[str, Any]) -> list[str]:
    """Completes the overrides of a training to go on with: by its own overrides, or by its directory.

    Raises:
        ConfigError: There is no such training, or the one in the directory has another configuration.
    """
    import yaml

    from hdsim.cli.config import Composer

    given = list(given)
    named = [Path(text.partition("=")[2]) for text in given if text.startswith("hydra.run.dir=")]
    if options["multirun"]:
        return given
    if named and len(given) == 1 and (named[0] / _OVERRIDES).is_file():
        return [*yaml.safe_load((named[0] / _OVERRIDES).read_text(encoding="utf-8")), *given]
    composer = Composer(options["config_dir"], config_name)
    prepared = composer.overrides(given)
    config = composer.compose(prepared)
    if named:
        begun = _begun(named[0])
        if begun is None:
            raise ConfigError(
                f"expected the run directory of a training that has begun, found none in '{named[0]}'; without "
                "resume=true one begins there",
                where="resume",
            )
        different = [key for key in config if begun.get(key) != config[key]]
        if different:
            raise ConfigError(
                f"expected the configuration of the training in {named[0]}, {', '.join(different)} differs; "
                f"'hdsim train resume=true hydra.run.dir={named[0]}' takes it from there",
                where="resume",
            )
        return given
    folder = composer.run_directory(prepared).parent
    same = [path for path in sorted(folder.glob("*")) if _begun(path, unfinished=True) == config]
    if not same:
        raise ConfigError(
            f"expected an interrupted training of this configuration in {folder}, found none; name it by hydra.run.dir",
            where="resume",
        )
    return [*given, f"hydra.run.dir={same[-1]}"]


def _begun(directory: Path, *, unfinished: bool = False) -> Mapping[str, Any] | None:
    """Configuration of the run in a directory, if there is one."""
    from hdsim.results.run_directory.manifest import read_manifest

    try:
        manifest = read_manifest(directory)
    except ConfigError:
        return None
    config: Mapping[str, Any] = manifest["config"]
    return None if unfinished and manifest["status"] == "finished" else config


def prepare(config: Mapping[str, Any]) -> TrainingSetup:
    """Reads and makes everything a configuration names, so that a mistake in it is found before anything is written.

    Raises:
        HdsimError: A file or a setting cannot be used.
    """
    from hdsim.learning.training.setup import TrainingSetup

    platform = read_platform(config)
    workload = read_workload(config, config["workload"]["path"])
    traces = [read_workload(config, path, "train.traces") for path in config["train"]["traces"] or ()]
    return TrainingSetup.of(config, platform, workload, traces)


def _perform(
    config: Mapping[str, Any], setup: TrainingSetup, directory: Path, *, resume: bool = False
) -> tuple[Result, dict[str, Any]]:
    from hdsim.learning.training.run import run_training

    try:
        return run_training(setup, directory, resume=resume, progress=sys.stderr.isatty())
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"interrupted; 'hdsim train resume=true hydra.run.dir={shown(directory)}' goes on from here"
        ) from None


def _conclude(setup: TrainingSetup, outcome: Outcome) -> None:
    """Prints the scores on the test windows, best first."""
    from hdsim.learning.training import model_card
    from hdsim.results.run_directory.manifest import read_manifest

    facts = read_manifest(outcome.directory)["training"]
    click.echo(model_card.table(facts))
    click.echo(f"\nrun directory  {shown(outcome.directory)}")
    click.echo(f"report         hdsim report {shown(outcome.directory)}")
    agent = facts["config"]["agent"]
    own = str(agent.get("_target_")).removeprefix("hdsim.agents.").split(".")
    name = f"agent={own[0]}" if len(own) == 2 else f"agent._target_={agent.get('_target_')}"
    name = f"agent.path={agent['path']}" if agent.get("path") else name
    best = outcome.directory / "checkpoints" / facts["shipped"]
    click.echo(f"replay         hdsim run {name} agent.checkpoint={shown(best)}")


_TRAINING = Work(prepare, _perform, _conclude)
