"""Runs that continue: ``resume=true`` of a command, and the run directory that it means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from hdsim.errors import ConfigError

_OVERRIDES = Path(".hydra/overrides.yaml")
#: Keys of where environments are stepped, which the result does not depend on.
_PLACES = ("rollouts", "workers", "ray_address", "ray_timeout")


def split_flag(overrides: Sequence[str]) -> tuple[list[str], bool]:
    """Splits the value of ``resume=`` off overrides: it is an option of the command and not part of the configuration.

    Raises:
        ConfigError: It is neither true nor false.
    """
    given = [text for text in overrides if text.startswith("resume=")]
    value = given[-1].partition("=")[2] if given else "false"
    if value.lower() not in ("true", "false"):
        raise ConfigError(f"expected true or false, got '{value}'", where="resume")
    return [text for text in overrides if text not in given], value.lower() == "true"


def resumed(noun: str, given: Sequence[str], options: Mapping[str, Any]) -> list[str]:
    """Completes the overrides of a resumed run: by its own overrides, or by its directory.

    Classes of the configuration are imported only after the manifest has been found to name the same files. `noun` is
    the kind of the run for messages; the options are those of :func:`hdsim.cli.launch.launch`.

    Raises:
        ConfigError: The run does not exist, or has another configuration or other inputs.
    """
    from hdsim.config.composer import Composer

    given = list(given)
    named = [Path(text.partition("=")[2]) for text in given if text.startswith("hydra.run.dir=")]
    if options["multirun"]:
        return given
    others = [text for text in given if text.partition("=")[0] not in (f"train.{name}" for name in _PLACES)]
    if named and len(others) == 1 and (named[0] / _OVERRIDES).is_file():
        given = [*_recorded_overrides(named[0] / _OVERRIDES), *given]
    composer = Composer(options["config_dir"], options["config_name"])
    composition = composer.compose_run(composer.overrides(given))
    config, directory = composition.config, composition.directory
    if not named:
        same = [path for path in sorted(directory.parent.glob("*")) if _is_unfinished(path, config)]
        if not same:
            raise ConfigError(
                f"expected an interrupted {noun} of this configuration in {directory.parent}, found none; "
                "name it by hydra.run.dir",
                where="resume",
            )
        directory = same[-1]
        given.append(f"hydra.run.dir={directory}")
    _check_begun(noun, directory, config)
    return given


def _check_begun(noun: str, directory: Path, config: Mapping[str, Any]) -> None:
    """Checks that the run in a directory has a configuration, and the inputs that its manifest names."""
    from hdsim.config.paths import with_absolute_paths
    from hdsim.results.run_directory.inputs import changed_inputs
    from hdsim.results.run_directory.manifest import other_software, read_manifest

    try:
        manifest = read_manifest(directory)
    except ConfigError as error:
        raise ConfigError(
            f"expected the run directory of a {noun} that has begun, found none in '{directory}' "
            f"({error.message}); without resume=true one begins there",
            where="resume",
        ) from None
    begun, now = (_without_places(with_absolute_paths(each)) for each in (manifest["config"], config))
    different = [key for key in now if begun.get(key) != now[key]]
    if different:
        raise ConfigError(
            f"expected the configuration in the manifest of {directory}, {', '.join(different)} differs; "
            f"'{click.get_current_context().command_path} resume=true hydra.run.dir={directory}' takes it from there",
            where="resume",
        )
    changed = changed_inputs(manifest.get("inputs") or [], config)
    if changed:
        raise ConfigError(
            f"expected the files that the manifest of {directory} names, with the same content; not so: "
            f"{', '.join(map(str, changed))}",
            where="resume",
        )
    other = other_software(manifest)
    if other:
        click.echo(f"hdsim: {directory}: the {noun} began with {other}", err=True)


def _without_places(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration without the keys of where environments are stepped."""
    train = {key: value for key, value in config.get("train", {}).items() if key not in _PLACES}
    return {**config, "train": train}


def _recorded_overrides(path: Path) -> list[str]:
    """Overrides that a run began with."""
    from hdsim.util.inputs import read_yaml

    recorded = read_yaml(path, ConfigError, "YAML")
    texts = recorded if isinstance(recorded, list) else [recorded]
    for text in texts:
        if not isinstance(text, str) or text.lstrip("+~").startswith("hydra"):
            raise ConfigError(f"expected a list of overrides KEY=VALUE without Hydra's, got {text!r}", where=str(path))
    return texts


def _is_unfinished(directory: Path, config: Mapping[str, Any]) -> bool:
    """Whether a directory has an unfinished run of a configuration."""
    from hdsim.results.run_directory.manifest import read_manifest

    try:
        manifest = read_manifest(directory)
    except ConfigError:
        return False
    return _without_places(manifest["config"]) == _without_places(config) and manifest["status"] != "finished"
