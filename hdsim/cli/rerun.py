"""``hdsim rerun``: a run repeated from its manifest."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hdsim.cli.launch import stoppable
from hdsim.cli.parameters import PATH
from hdsim.errors import ConfigError, HdsimError
from hdsim.runs.command import Command, execute, platform_and_workload
from hdsim.util.files import shown

if TYPE_CHECKING:
    from hdsim.results.run_directory.inputs import Change
    from hdsim.runs.rerun import Original


@click.command()
@click.argument("directory", metavar="RUN", type=PATH)
@click.option("-o", "--output", metavar="DIR", type=PATH, help="New run directory.  [RUN-rerun]")
@click.option(
    "--input", "moved", metavar="OLD=NEW", multiple=True, help="NEW holds the input OLD, a file or a folder, now."
)
@click.option("--accept-changes", is_flag=True, help="Run although inputs differ from those that the manifest names.")
def rerun(directory: Path, output: Path | None, moved: Sequence[str], accept_changes: bool) -> None:
    """Repeats a run from its manifest and says whether the results are the same, byte by byte.

    \b
    hdsim rerun runs/easy
    hdsim rerun runs/orders/agent=fcfs -o runs/again
    hdsim rerun runs/orders
    hdsim rerun runs/easy --input /home/ann/trace.swf=trace.swf

    RUN may be a sweep, of which all runs are repeated. Configuration, seed and inputs are those of the manifest. An
    input that is missing or has another SHA-256 is named before anything of it is executed. Differences of the results,
    the software and the machine are listed. Exit status: 0 identical, 1 different, 2 the run cannot be repeated.
    """  # noqa: D301 - click reads the backspace character
    from hdsim.results.run_directory.manifest import MANIFEST

    places, output = dict(map(_moved, moved)), output or _beside(directory)
    runs = [] if (directory / MANIFEST).exists() else sorted(directory.glob(f"*/**/{MANIFEST}"))
    if runs:
        _repeat_all(directory, [path.parent for path in runs], output, places, accept_changes)
    elif _repeat(directory, output, places, accept_changes):
        raise click.exceptions.Exit(1)


def _repeat_all(
    sweep: Path, runs: Sequence[Path], target: Path, places: Mapping[str, Path], accept_changes: bool
) -> None:
    """Repeats the runs of a sweep."""
    differing, refused = 0, 0
    for run in runs:
        name = run.relative_to(sweep)
        click.echo(f"{name}\n")
        try:
            differing += _repeat(run, target / name, places, accept_changes)
        except HdsimError as error:
            click.echo(f"hdsim: error: {error}", err=True)
            refused += 1
        click.echo()
    same = len(runs) - differing - refused
    failed = f", {refused} cannot be repeated" if refused else ""
    click.echo(f"{same} of {len(runs)} runs have identical results, {differing} differ{failed}")
    if differing or refused:
        raise click.exceptions.Exit(2 if refused else 1)


def _repeat(directory: Path, output: Path, places: Mapping[str, Path], accept_changes: bool) -> bool:
    """Repeats a run and prints whether its results are the same; returns whether they differ."""
    from hdsim.results.run_directory.manifest import changed_software
    from hdsim.runs.rerun import Original

    original = Original.read(directory, places)
    _check_output(original, output)
    changes = original.changed_files()
    _check(original, changes, accept_changes)
    original.import_modules()
    command, config = _command(original.manifest["kind"]), original.config
    inputs = command.build(config)
    if not changes:
        changes = original.changed_contents(*platform_and_workload(inputs))
        _check(original, changes, accept_changes)
    with stoppable():
        outcome = execute(command, config, inputs, output)
    if outcome.error:
        raise outcome.error
    results = list(original.compare(output))
    differing = [name for name, difference in results if difference]
    width = max(len(name) for name, _ in results)
    for name, difference in results:
        click.echo(f"{name:{width}}  {difference or 'identical'}")
    changes += original.changed_modules()
    software = changed_software(original.manifest)
    if changes or software:
        click.echo("\nwhat differs from the run besides")
        for text in (*map(_told, changes), *software):
            click.echo(f"  {text}")
    elif differing:
        click.echo("\ninputs, software and machine are those of the run")
    verdict = f"{len(differing)} of {len(results)} files differ" if differing else f"{len(results)} files are identical"
    click.echo(f"\n{verdict}\nrun directory  {shown(output)}")
    return bool(differing)


def _moved(text: str) -> tuple[str, Path]:
    old, equals, new = text.partition("=")
    if not (old and equals and Path(new).exists()):
        raise ConfigError(f"expected OLD=NEW with a NEW that exists, got '{text}'", where="--input")
    return old, Path(new)


def _beside(directory: Path) -> Path:
    """The default directory of the repetition, which no comparison of a sweep takes for one of its runs."""
    directory = directory.absolute()
    sweep, settings = directory.parent, directory / ".hydra/hydra.yaml"
    if settings.is_file() and b"mode: MULTIRUN" in settings.read_bytes():
        return sweep.with_name(f"{sweep.name}-rerun") / directory.name
    return directory.with_name(f"{directory.name}-rerun")


def _check_output(original: Original, output: Path) -> None:
    """Checks that the repetition overwrites no other run."""
    from hdsim.results.run_directory.manifest import MANIFEST, read_manifest

    same = output.resolve() == original.directory.resolve()
    if same or ((output / MANIFEST).is_file() and read_manifest(output)["config"] != original.config):
        raise ConfigError("expected a directory without another run; -o DIR names one", where=str(output))


def _check(original: Original, changes: Sequence[Change], accepted: bool) -> None:
    """Checks that the inputs are those of the manifest."""
    if gone := [change for change in changes if not change.now]:
        fault, advice = (
            f"missing: {'; '.join(map(_told, gone))}",
            "one that lies elsewhere now is given by --input OLD=NEW",
        )
    elif changes and not accepted:
        fault, advice = f"changed: {'; '.join(map(_told, changes))}", "--accept-changes runs with them as they are"
    else:
        return
    raise ConfigError(f"expected the inputs of the run; {fault}; {advice}", where=str(original.directory))


def _told(change: Change) -> str:
    then, now = (f"SHA-256 {sha256}" if sha256 else "" for sha256 in (change.then, change.now))
    return f"{change} {f'{then} then' if then else 'no input then'}, {f'{now} now' if now else 'missing now'}"


def _command(kind: str) -> Command:
    """The command of a subcommand of ``hdsim``."""
    replays = {"run": "hdsim.runs.replays", "train": "hdsim.runs.trainings"}
    gangs = {f"bsp {name}": f"hdsim.cli.bsp.{name}" for name in ("run", "share", "train", "plan", "forecast")}
    modules = replays | gangs
    if kind not in modules:
        raise ConfigError(f"expected a run of {', '.join(modules)}, got one of hdsim {kind}", where="kind")
    module: Any = importlib.import_module(modules[kind])
    command = module.COMMAND
    assert isinstance(command, Command)
    return command
