"""Commands with configurations: their options, and what they print about one run."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from hdsim.cli import completion
from hdsim.cli.parameters import Parsed
from hdsim.errors import ConfigError
from hdsim.kernels.compiling import interpreted
from hdsim.runs.command import Command, RunOutcome, as_job, execute, finished
from hdsim.util.files import shown
from hdsim.util.resources import groups, options

if TYPE_CHECKING:
    from pathlib import Path

    from hdsim.config.composer import Composer, Composition


def _options() -> str:
    lines = [f"{group}: {', '.join(options(group))}" for group in groups()]
    return "\n\n".join(["Groups and their options:", *lines])


def _shard(text: str) -> tuple[int, int]:
    """Part I of N, counted from 1."""
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise ValueError(text)
    return int(number), int(count)


_SHARD = Parsed("I/N", _shard, "I/N with 1 <= I <= N, such as 1/4")


class _Configured(click.Command):
    """A command whose option ``--live`` may have a value, with ``=``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Gives the option its default value; click would take the next argument."""
        return super().parse_args(ctx, ["--live=0" if argument == "--live" else argument for argument in args])


def configured(config_name: str) -> Callable[[Callable[..., None]], click.Command]:
    """Returns a decorator of a function as a command with overrides and the options of Hydra; see :func:`launch`."""
    return partial(_configured, config_name)


def _configured(config_name: str, command: Callable[..., None]) -> click.Command:
    for decorate in (
        click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...", shell_complete=completion.overrides),
        click.option(
            "-cn", "--config-name", default=config_name, help="Another primary configuration than the command's own."
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
        click.option("--shard", type=_SHARD, help="With -m: run part I of N only, as the tasks of a job array do."),
        click.option(
            "-j",
            "--jobs",
            type=click.IntRange(min=1),
            default=1,
            show_default=True,
            help="With -m: number of processes.",
        ),
        click.option("-m", "--multirun", is_flag=True, help="Run a sweep: every combination of KEY=VALUE,VALUE,..."),
        click.command(cls=_Configured, epilog=_options()),
    ):
        command = decorate(command)
    assert isinstance(command, click.Command)
    return command


def launch(
    command: Command,
    report: Callable[[Any, RunOutcome], None],
    overrides: Sequence[str],
    *,
    config_name: str,
    config_dir: str | None,
    multirun: bool,
    jobs: int,
    shard: tuple[int, int] | None,
    cfg: str | None,
    resolved: bool,
    package: str | None,
    info: str | None,
    live: int | None = None,
) -> None:
    """Runs a command for one configuration or a sweep of them, or prints the configuration.

    `report` prints the outcome of one run. The keywords are the options of :func:`configured`; `live` shows a sweep on
    a page at that port, 0 for a free one.
    """
    from hdsim.config.composer import Composer

    composer = Composer(config_dir, config_name)
    given = composer.overrides(overrides)
    if cfg:
        composer.show(given, cfg, package, resolved)
    elif info:
        composer.info(given, info)
    elif multirun or composer.is_sweep(given):
        from hdsim.cli.sweep import run_sweep

        with stoppable():
            run_sweep(command, composer, given, jobs, shard, live, partial(warn_of_idle, overrides, swept=True))
    elif jobs > 1 or shard:
        raise ConfigError("expected a sweep (-m)", where="--shard" if shard else "--jobs")
    else:
        _single(command, report, composer, given, partial(warn_of_idle, overrides, swept=False))


def warn_of_idle(overrides: Sequence[str], configs: Sequence[Mapping[str, Any]], *, swept: bool) -> None:
    """Tells which of the overrides change nothing in any run of these configurations."""
    from hdsim.config.idle import idle_keys

    for line in idle_keys(overrides, configs, swept=swept):
        click.echo(f"hdsim: warning: {line}", err=True)


def _single(
    command: Command,
    report: Callable[[Any, RunOutcome], None],
    composer: Composer,
    given: Sequence[str],
    warn: Callable[[Sequence[Mapping[str, Any]]], None],
) -> None:
    from hdsim.results.run_directory.directory import check_place
    from hdsim.results.run_directory.lock import Lock

    composition = composer.compose_run(given)
    config, directory, lock = composition.config, composition.directory.absolute(), None
    if directory.is_dir() and not composition.is_named_by_time:
        # Before a trace is read, which may take a while.
        check_place(directory, config)
        lock = Lock.of(directory)
    inputs = command.build(config)
    warn([config])
    directory = composition.claim().absolute()
    lock = lock or Lock.of(directory)  # before anything is written there
    try:
        _execute(command, report, composition, inputs, directory)
    finally:
        lock.release()


def _execute(
    command: Command, report: Callable[[Any, RunOutcome], None], composition: Composition, inputs: Any, directory: Path
) -> None:
    """Executes a run in its directory, which this process has, and prints its outcome."""
    config = composition.config
    command.begun(inputs, directory)
    before = finished(config, directory)
    if command.resumes and isinstance(before, RunOutcome):
        click.echo(f"{shown(directory)}: finished before")
        outcome = before
    else:
        if isinstance(before, str) and before and (command.resumes or before.startswith("dead")):
            again = "goes on" if command.resumes else "runs again"
            click.echo(f"hdsim: {shown(directory)}: {before}; {again}", err=True)
        with stoppable(), interpreted(command.is_small(config, inputs)):
            outcome = as_job(composition.hydra, lambda: execute(command, config, inputs, directory))
    if outcome.error:
        raise outcome.error
    report(inputs, outcome)


@contextlib.contextmanager
def stoppable(advice: str = "") -> Iterator[None]:
    """Treats SIGTERM as Ctrl-C, and ends the command with one line and status 1 after either.

    Within another one it leaves both to that.
    """
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt as error:
        if before is signal.default_int_handler:
            raise
        click.echo(f"hdsim: {str(error) or 'interrupted'}{advice}", err=True)
        raise click.exceptions.Exit(1) from None
    finally:
        signal.signal(signal.SIGTERM, before)
