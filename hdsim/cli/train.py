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

from hdsim.cli.inputs import read_platform, read_workload
from hdsim.cli.launch import Command, Outcome, configured, launch, shown
from hdsim.errors import ConfigError

if TYPE_CHECKING:
    from hdsim.learning.training.gangs import GangSetup
    from hdsim.learning.training.setup import TrainingSetup

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

    resume=true continues an interrupted training: the one in hydra.run.dir, or the latest of the same configuration.
    `hdsim run agent=ppo agent.checkpoint=RUN/checkpoints/best.safetensors` replays the trained agent. All keys are
    in docs/training.md.
    """  # noqa: D301 - click reads the backspace character
    launch_training(_TRAINING, overrides, config_name or "train", options)


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
    given = [text for text in overrides if not text.startswith("resume=")]
    if _flag([text for text in overrides if text.startswith("resume=")]):
        command = dataclasses.replace(command, run=partial(run_setup, resume=True), resumes=True)
        given = _with_directory(given, config_name, options)
    launch(command, given, config_name=config_name, **options)


def _flag(given: Sequence[str]) -> bool:
    """The value of ``resume=``, which is an option of the command and not part of the configuration."""
    value = given[-1].partition("=")[2] if given else "false"
    if value.lower() not in ("true", "false"):
        raise ConfigError(f"expected true or false, got '{value}'", where="resume")
    return value.lower() == "true"


def _with_directory(given: Sequence[str], config_name: str, options: Mapping[str, Any]) -> list[str]:
    """Completes the overrides of a resumed training: by its own overrides, or by its directory.

    Classes of the configuration are imported only after the manifest has been found to name the same files.

    Raises:
        ConfigError: The training does not exist, or has another configuration or other inputs.
    """
    from hdsim.cli.config import Composer

    given = list(given)
    named = [Path(text.partition("=")[2]) for text in given if text.startswith("hydra.run.dir=")]
    if options["multirun"]:
        return given
    if named and len(given) == 1 and (named[0] / _OVERRIDES).is_file():
        given = [*_recorded_overrides(named[0] / _OVERRIDES), *given]
    composer = Composer(options["config_dir"], config_name)
    config, directory = composer.compose_run(composer.overrides(given))
    if not named:
        same = [path for path in sorted(directory.parent.glob("*")) if _is_unfinished(path, config)]
        if not same:
            raise ConfigError(
                f"expected an interrupted training of this configuration in {directory.parent}, found none; name it by "
                "hydra.run.dir",
                where="resume",
            )
        directory = same[-1]
        given.append(f"hydra.run.dir={directory}")
    _check_begun(directory, config)
    return given


def _recorded_overrides(path: Path) -> list[str]:
    """Overrides that a training began with.

    Raises:
        ConfigError: The file holds something else, or settings of Hydra, which could name code to run.
    """
    import yaml

    try:
        recorded = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"expected YAML: {str(error).partition(chr(10))[0]}", where=str(path)) from None
    texts = recorded if isinstance(recorded, list) else [recorded]
    for text in texts:
        if not isinstance(text, str) or text.lstrip("+~").startswith("hydra"):
            raise ConfigError(f"expected a list of overrides KEY=VALUE without Hydra's, got {text!r}", where=str(path))
    return texts


def _check_begun(directory: Path, config: Mapping[str, Any]) -> None:
    """Checks that the training in a directory has a configuration, and the inputs that its manifest names.

    Raises:
        ConfigError: It has not, or there is none.
    """
    from hdsim.cli.paths import with_absolute_paths
    from hdsim.results.run_directory.inputs import changed_inputs
    from hdsim.results.run_directory.manifest import other_software, read_manifest

    try:
        manifest = read_manifest(directory)
    except ConfigError as error:
        raise ConfigError(
            f"expected the run directory of a training that has begun, found none in '{directory}' ({error.message}); "
            "without resume=true one begins there",
            where="resume",
        ) from None
    begun, now = with_absolute_paths(manifest["config"]), with_absolute_paths(config)
    different = [key for key in now if begun.get(key) != now[key]]
    if different:
        raise ConfigError(
            f"expected the configuration in the manifest of {directory}, {', '.join(different)} differs; "
            f"'hdsim train resume=true hydra.run.dir={directory}' takes it from there",
            where="resume",
        )
    changed = changed_inputs(manifest.get("inputs") or [], config)
    if changed:
        raise ConfigError(
            f"expected the files that the manifest of {directory} names, with the same content; not so: "
            f"{', '.join(changed)}",
            where="resume",
        )
    other = other_software(manifest)
    if other:
        click.echo(f"hdsim: {directory}: the training began with {other}", err=True)


def _is_unfinished(directory: Path, config: Mapping[str, Any]) -> bool:
    """Whether a directory has an unfinished training of a configuration."""
    from hdsim.results.run_directory.manifest import read_manifest

    try:
        manifest = read_manifest(directory)
    except ConfigError:
        return False
    return manifest["config"] == config and manifest["status"] != "finished"


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
        raise KeyboardInterrupt(
            f"interrupted; 'hdsim train resume=true hydra.run.dir={shown(directory)}' continues from here"
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


_TRAINING = Command(build, run_setup, _report)
