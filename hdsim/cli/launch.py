"""Runs of a command: one configuration or a sweep of them, each in a run directory."""

from __future__ import annotations

import contextlib
import shlex
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hdsim.errors import ConfigError, HdsimError
from hdsim.util.resources import folder
from hdsim.util.text import format_number, format_table

if TYPE_CHECKING:
    from hdsim.config.composer import Composer


@dataclass(frozen=True)
class Outcome:
    """End of a run.

    Attributes:
        directory: Its run directory.
        metrics: Its metrics; empty if it failed.
        error: The error that ended it.
    """

    directory: Path
    metrics: Mapping[str, float]
    error: Exception | None = None


def _check_replay(config: Mapping[str, Any]) -> None:
    from hdsim.config.inputs import find_inputs
    from hdsim.scheduling.agent import make_agent

    find_inputs(config)
    make_agent(config["agent"])


@dataclass(frozen=True)
class Command:
    """Steps of a command such as ``hdsim run`` for one configuration.

    Attributes:
        name: Its words after ``hdsim``, kept in the manifest for `hdsim rerun`.
        build: Reads and constructs everything that the configuration names; the result has a `platform` and a
            `workload`, None where there is none. Mistakes are found here, before anything is written.
        run: Does the work in a run directory; returns the result to keep there, by default a
            :class:`hdsim.results.result.Result`, and further facts for the manifest.
        report: Prints the outcome.
        resumes: A finished run in the directory is reused.
        check: Checks a configuration as far as possible without reading every file.
        write: Writes the result to the run directory and returns facts for the manifest; None for a replay.
        metrics: Metrics in the table of a sweep.
        begun: Checks that the run can continue from what an earlier one has left in the directory.
    """

    name: str
    build: Callable[[Mapping[str, Any]], Any]
    run: Callable[[Mapping[str, Any], Any, Path], tuple[Any, dict[str, Any]]]
    report: Callable[[Any, Outcome], None]
    resumes: bool = False
    check: Callable[[Mapping[str, Any]], object] = _check_replay
    write: Callable[[Path, Any], dict[str, Any]] | None = None
    metrics: Sequence[str] = ("makespan", "mean_waiting_time", "mean_bounded_slowdown", "utilization", "energy_joules")
    begun: Callable[[Any, Path], object] = lambda inputs, directory: None


def _options() -> str:
    groups = sorted(path for path in folder("conf").iterdir() if path.is_dir())
    lines = [f"{group.name}: {', '.join(sorted(file.stem for file in group.glob('*.yaml')))}" for group in groups]
    return "\n\n".join(["Groups and their options:", *lines])


def configured(command: Callable[..., None]) -> click.Command:
    """Decorates a function as a command with the options of Hydra and overrides."""
    for decorate in (
        click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]..."),
        click.option(
            "-cn", "--config-name", default=None, help="Another primary configuration than the command's own."
        ),
        click.option("-cd", "--config-dir", help="A folder laid out like conf/ with options of your own."),
        click.option(
            "-i",
            "--info",
            type=click.Choice(["all", "config", "defaults", "defaults-tree", "plugins", "searchpath"]),
            help="Print where the configuration comes from and stop.",
        ),
        click.option("-p", "--package", help="With --cfg: print this part only."),
        click.option("--resolve", "resolved", is_flag=True, help="With --cfg: print values instead of ${references}."),
        click.option(
            "-c", "--cfg", type=click.Choice(["job", "hydra", "all"]), help="Print the configuration and stop."
        ),
        click.option("-m", "--multirun", is_flag=True, help="Run a sweep: every combination of KEY=VALUE,VALUE,..."),
        click.command(epilog=_options()),
    ):
        command = decorate(command)
    assert isinstance(command, click.Command)
    return command


def launch(
    command: Command,
    overrides: Sequence[str],
    *,
    config_name: str,
    config_dir: str | None,
    multirun: bool,
    cfg: str | None,
    resolved: bool,
    package: str | None,
    info: str | None,
) -> None:
    """Runs a command for one configuration or a sweep of them, or prints the configuration.

    Args:
        command: The command.
        overrides: The user's.
        config_name: Primary configuration.
        config_dir: See `configured` for this one and the others.
        multirun: A sweep.
        cfg: Print that part of the configuration.
        resolved: With `cfg`.
        package: With `cfg`.
        info: Print that about the configuration.
    """
    from hdsim.config.composer import Composer

    composer = Composer(config_dir, config_name)
    given = composer.overrides(overrides)
    if cfg:
        composer.show(given, cfg, package, resolved)
    elif info:
        composer.info(given, info)
    elif multirun or composer.is_sweep(given):
        _sweep(command, composer, given)
    else:
        _single(command, composer, given)


def _single(command: Command, composer: Composer, given: Sequence[str]) -> None:
    from hdsim.results.run_directory.lock import check_free

    config, directory = composer.compose_run(given)
    inputs = command.build(config)
    check_free(directory)  # before Hydra writes its own files there
    command.begun(inputs, directory)
    with _stoppable():
        outcome: Outcome = composer.run(given, lambda directory, _: _run(command, config, inputs, directory))
    if outcome.error:
        raise outcome.error
    command.report(inputs, outcome)


def _run(command: Command, config: Mapping[str, Any], inputs: Any, directory: Path) -> Outcome:
    from hdsim.results.run_directory.directory import RunDirectory

    run = RunDirectory(directory)
    outdated = run.outdated(config)
    if command.resumes and outdated is None:
        click.echo(f"{shown(directory)}: finished before")
        return Outcome(directory, run.metrics())
    if outdated and (command.resumes or outdated.startswith("dead")):
        again = "goes on" if command.resumes else "runs again"
        click.echo(f"hdsim: {shown(directory)}: {outdated}; {again}", err=True)
    return _execute(command, config, inputs, directory)


def _execute(command: Command, config: Mapping[str, Any], inputs: Any, directory: Path) -> Outcome:
    """Executes a run in its directory; an error is recorded there and returned.

    Raises:
        KeyboardInterrupt: A signal arrived; the results until then are in the directory.
    """
    from hdsim.results.run_directory.directory import RunDirectory
    from hdsim.simulation.replay import Interrupted

    run = RunDirectory(directory, command.write)
    run.start(config, inputs.platform, inputs.workload, kind=command.name)
    try:
        result, facts = command.run(config, inputs, directory)
        run.finish(result, **facts)
    except Interrupted as stopped:
        run.interrupt(stopped.result, stopped.signal)
        stopped.args = (f"{stopped}; the jobs finished by then are in {shown(directory)}",)
        raise
    except KeyboardInterrupt as error:
        run.fail(error)
        raise
    except Exception as error:
        run.fail(error)
        return Outcome(directory, {}, error)
    return Outcome(directory, run.metrics())


def _sweep(command: Command, composer: Composer, given: Sequence[str]) -> None:
    from hdsim.results.run_directory.replications import seed_warning

    directory, configs = composer.sweep(given)
    _check_all(command, configs)
    click.echo(f"{len(configs)} runs in {directory}")
    with _stoppable(f"; the same command with hydra.sweep.dir={directory} goes on where it stopped"):
        outcomes: list[Outcome] = composer.multirun(
            given, lambda directory, number: _run_of_sweep(command, configs[number], directory, number, len(configs))
        )
    done = [outcome for outcome in outcomes if not outcome.error]
    click.echo(_sweep_table(done, directory, command.metrics))
    click.echo(f"\ncompare        hdsim compare {directory}")
    warning = seed_warning(outcome.directory for outcome in done)
    if warning:
        click.echo(f"\nhdsim: warning: {warning}", err=True)
    failed = [outcome for outcome in outcomes if outcome.error]
    if failed:
        click.echo(f"\nhdsim: error: {len(failed)} of {len(configs)} runs failed", err=True)
        for outcome in failed:
            click.echo(f"  {_name(outcome.directory, directory)}: {outcome.error}", err=True)
        raise click.exceptions.Exit(2 if all(isinstance(run.error, HdsimError) for run in failed) else 1)


def _check_all(command: Command, configs: Sequence[Mapping[str, Any]]) -> None:
    """Checks the runs of a sweep as far as possible without reading every file.

    Raises:
        HdsimError: A file is missing, an agent or a controller cannot be made, or anything is wrong with the first run.
    """
    command.build(configs[0])
    for config in configs[1:]:
        command.check(config)


def _run_of_sweep(command: Command, config: Mapping[str, Any], directory: Path, number: int, total: int) -> Outcome:
    """One run of a sweep; its failure does not stop the others."""
    from hdsim.results.run_directory.directory import RunDirectory

    run = RunDirectory(directory)
    label = f"[{number + 1}/{total}] {directory.name}"
    outdated = run.outdated(config)
    if outdated is None:
        click.echo(f"{label}: finished before")
        return Outcome(directory, run.metrics())
    click.echo(f"{label}: {outdated}; runs again" if outdated else label)
    try:
        inputs = command.build(config)
        command.begun(inputs, directory)
    except Exception as error:
        with contextlib.suppress(ConfigError):
            run.start(config, kind=command.name)
            run.fail(error)
        return Outcome(directory, {}, error)
    try:
        return _execute(command, config, inputs, directory)
    except (ConfigError, OSError) as error:  # The directory is in use, or cannot be written.
        return Outcome(directory, {}, error)


@contextlib.contextmanager
def _stoppable(advice: str = "") -> Iterator[None]:
    """Treats SIGTERM as Ctrl-C, and ends the command with one line and status 1 after either."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt as error:
        click.echo(f"hdsim: {str(error) or 'interrupted'}{advice}", err=True)
        raise click.exceptions.Exit(1) from None
    finally:
        signal.signal(signal.SIGTERM, before)


def _sweep_table(outcomes: Sequence[Outcome], directory: Path, metrics: Sequence[str]) -> str:
    """One line a run that did not fail, with its main metrics."""
    from hdsim.results.metrics import unit

    headings = [f"{name} [{unit(name)}]" if unit(name) else name for name in metrics]
    rows = [["run", *headings]]
    for outcome in outcomes:
        numbers = [format_number(outcome.metrics[name]) for name in metrics]
        rows.append([_name(outcome.directory, directory), *numbers])
    return format_table(rows)


def _name(directory: Path, parent: Path) -> str:
    return str(directory.relative_to(parent.absolute()))


def shown(path: Path) -> str:
    """A path as users see and type it: relative to where they are, if it lies below, and quoted if need be."""
    return shlex.quote(str(path.relative_to(Path.cwd()) if Path.cwd() in path.parents else path))
