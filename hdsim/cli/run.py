"""``hdsim run``: one replay, or a sweep of them."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hdsim.errors import HdsimError
from hdsim.util.resources import folder, resolve
from hdsim.util.text import format_number, format_table

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from hdsim.backends.base import Backend
    from hdsim.cli.config import Composer
    from hdsim.platform.model import Platform
    from hdsim.results.result import Result
    from hdsim.scheduling.agent import Agent
    from hdsim.workload.model import Workload

_STATISTICS = ("mean", "median", "p95", "p99", "max")
# Groups of the configuration whose models a backend follows.
_MODELS = ("contention", "network", "failures")
# Columns of a sweep's table.
_SWEEP_METRICS = ("makespan", "mean_waiting_time", "mean_bounded_slowdown", "utilization", "energy_joules")


def _options() -> str:
    groups = sorted(path for path in folder("conf").iterdir() if path.is_dir())
    lines = [f"{group.name}: {', '.join(sorted(file.stem for file in group.glob('*.yaml')))}" for group in groups]
    return "\n\n".join(["Groups and their options:", *lines])


def configured(command: Callable[..., None]) -> click.Command:
    """Makes a command of a function that takes Hydra's options and overrides."""
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


@configured
def run(overrides: tuple[str, ...], config_name: str | None, **options: Any) -> None:
    """Replays a workload on a platform with an agent and writes a run directory.

    \b
    hdsim run
    hdsim run platform=pik workload.path=log.swf.gz workload.jobs=10000 agent=easy
    hdsim run agent=shortest-low_power contention=threshold
    hdsim run -m agent=fcfs,sjf,easy-saf seed=1,2,3 hydra.sweep.dir=runs/orders

    An agent goes by a short name (fcfs, sjf, saf, f1, wfp3, easy, conservative, easy-sjf, shortest-high_gflops, ...),
    by agent.path=FILE.py or by agent._target_=package.Class. All keys are in docs/configuration.md.
    """  # noqa: D301 - click reads the backspace character
    launch(REPLAY, overrides, config_name=config_name or "config", **options)


def launch(
    work: Work,
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
    """Does a command's work on one configuration or a sweep of them, or prints the configuration.

    Args:
        work: What to do.
        overrides: The user's.
        config_name: Primary configuration.
        config_dir: See `configured` for this one and the others.
        multirun: A sweep.
        cfg: Print that part of the configuration.
        resolved: With `cfg`.
        package: With `cfg`.
        info: Print that about the configuration.
    """
    from hdsim.cli.config import Composer

    composer = Composer(config_dir, config_name)
    given = composer.overrides(overrides)
    if cfg:
        composer.show(given, cfg, package, resolved)
    elif info:
        composer.info(given, info)
    elif multirun or composer.is_sweep(given):
        _sweep(work, composer, given)
    else:
        _single(work, composer, given)


@dataclass(frozen=True)
class Inputs:
    """What a configuration names, read and made."""

    platform: Platform
    workload: Workload
    agent: Agent
    backend: Backend


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Attributes:
        directory: Its run directory.
        metrics: Its metrics; empty if it failed.
        error: What it failed with.
        skipped: It had finished before.
    """

    directory: Path
    metrics: Mapping[str, float]
    error: Exception | None = None
    skipped: bool = False


@dataclass(frozen=True)
class Work:
    """What a command does with a configuration.

    Attributes:
        prepare: Reads and makes everything it names, among it a `platform` and a `workload`.
        perform: Does it in a run directory; returns the replay to keep there and what its manifest is to tell.
        conclude: Tells the user how it went.
        resumes: What there is of an earlier run in the directory is to be used.
    """

    prepare: Callable[[Mapping[str, Any]], Any]
    perform: Callable[[Mapping[str, Any], Any, Path], tuple[Result, dict[str, Any]]]
    conclude: Callable[[Any, Outcome], None]
    resumes: bool = False


def prepare(config: Mapping[str, Any]) -> Inputs:
    """Reads and makes everything a configuration names, so that a mistake in it is found before anything is written.

    Raises:
        HdsimError: A file or a setting cannot be used.
    """
    from hdsim.backends.base import make_backend
    from hdsim.decisions import DecisionProblem
    from hdsim.decisions.episode_settings import KEYS, check_episode_settings
    from hdsim.scheduling.agent import make_agent

    # A replay takes what is decided and seen from the checkpoint; a mistake in `env` is one all the same.
    env = config["env"] or {}
    problem = DecisionProblem(**{key: value for key, value in env.items() if key not in KEYS})
    check_episode_settings(problem.settings["action"], **{key: value for key, value in env.items() if key in KEYS})
    platform = read_platform(config)
    agent = make_agent(config["agent"])
    backend = make_backend(config["backend"])
    workload = read_workload(config, config["workload"]["path"])
    backend.check(platform, workload, **{key: config[key] for key in _MODELS})
    return Inputs(platform, workload, agent, backend)


def read_platform(config: Mapping[str, Any]) -> Platform:
    """Reads the platform of a configuration.

    Raises:
        HdsimError: There is none, or it cannot be used.
    """
    return _platform(*_platform_key(config))


def read_workload(config: Mapping[str, Any], name: str, where: str = "workload.path") -> Workload:
    """Reads a trace as a configuration says.

    Raises:
        HdsimError: There is none, or it cannot be used.
    """
    options = {key: value for key, value in config["workload"].items() if key not in ("path", "bsp")}
    path = resolve("workloads", name, where=where)
    bsp = json.dumps(config["workload"]["bsp"])
    return _workload(path, _platform_key(config), (*options.items(), ("seed", config["seed"])), bsp)


def _platform_key(config: Mapping[str, Any]) -> tuple[Path, str | None]:
    return resolve("platforms", config["platform"]["path"], where="platform.path"), config["platform"]["types"]


# The runs of a sweep share what they have in common; platforms and workloads cannot be changed.
@lru_cache(maxsize=4)
def _platform(path: Path, types: str | None) -> Platform:
    from hdsim.platform.load import load_platform

    return load_platform(path, types)


@lru_cache(maxsize=4)
def _workload(
    path: Path, platform_key: tuple[Path, str | None], options: tuple[tuple[str, Any], ...], bsp: str
) -> Workload:
    from hdsim.workload.load import load_workload

    given, supersteps = dict(options), json.loads(bsp)
    workload = load_workload(path, _platform(*platform_key), **given)
    if supersteps["supersteps"] is None:
        return workload
    from hdsim.workload.generators.bsp import with_supersteps

    return with_supersteps(workload, _platform(*platform_key), **supersteps, seed=given["seed"])


def execute(work: Work, config: Mapping[str, Any], inputs: Any, directory: Path) -> Outcome:
    """Works in a run directory; a failure is kept there and returned.

    Raises:
        KeyboardInterrupt: A signal came; the jobs finished so far are in the directory.
    """
    from hdsim.results.run_directory.directory import RunDirectory
    from hdsim.simulation.replay import Interrupted

    run = RunDirectory(directory)
    run.start(config, inputs.platform, inputs.workload)
    try:
        result, facts = work.perform(config, inputs, directory)
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


def _replay(config: Mapping[str, Any], inputs: Inputs, directory: Path) -> tuple[Result, dict[str, Any]]:
    """Replays on the backend; returns the result and what the manifest is to tell of the backend."""
    options = {key: config[key] for key in (*_MODELS, "seed")}
    options |= {"progress": sys.stderr.isatty(), "config": config}
    result, facts = inputs.backend.run(inputs.platform, inputs.workload, inputs.agent, directory, **options)
    return result, {"backend": facts} if facts else {}


def _conclude(inputs: Inputs, outcome: Outcome) -> None:
    workload, platform = inputs.workload, inputs.platform
    click.echo(
        f"{len(workload):,} jobs of {Path(workload.source).name} on {platform.name}, {platform.n_cpu_cores:,} cores"
        f"{f' and {platform.n_gpus:,} GPUs' if platform.n_gpus else ''}\n"
    )
    click.echo(_metrics_table(outcome.metrics))
    click.echo(f"\nrun directory  {shown(outcome.directory)}")
    click.echo(f"report         hdsim report {shown(outcome.directory)}")


REPLAY = Work(prepare, _replay, _conclude)


def _single(work: Work, composer: Composer, given: Sequence[str]) -> None:
    config = composer.compose(given)
    inputs = work.prepare(config)

    def task(_: DictConfig) -> Outcome:
        return _finished_before(work, config, _directory()) or execute(work, config, inputs, _directory())

    with _stoppable():
        outcome: Outcome = composer.run(given, task)
    if outcome.error:
        raise outcome.error
    work.conclude(inputs, outcome)


def _finished_before(work: Work, config: Mapping[str, Any], directory: Path) -> Outcome | None:
    """The outcome of an earlier run of the same configuration in the directory, where that is to be used."""
    from hdsim.results.run_directory.directory import RunDirectory

    run = RunDirectory(directory)
    if not (work.resumes and run.finished_with(config)):
        return None
    click.echo(f"{shown(directory)}: finished before")
    return Outcome(directory, run.metrics())


def _sweep(work: Work, composer: Composer, given: Sequence[str]) -> None:
    directory, runs = composer.sweep(given)
    configs = [composer.compose(overrides) for overrides in runs]
    _check_all(work, configs)
    click.echo(f"{len(runs)} runs in {directory}")
    with _stoppable(f"; the same command with hydra.sweep.dir={directory} goes on where it stopped"):
        outcomes: list[Outcome] = composer.multirun(given, partial(_sweep_task, work=work, total=len(runs)))
    click.echo(_sweep_table([outcome for outcome in outcomes if not outcome.error], directory))
    click.echo(f"\ncompare        hdsim compare {directory}")
    failed = [outcome for outcome in outcomes if outcome.error]
    if failed:
        click.echo(f"\nhdsim: error: {len(failed)} of {len(runs)} runs failed", err=True)
        for outcome in failed:
            click.echo(f"  {_name(outcome.directory, directory)}: {outcome.error}", err=True)
        raise click.exceptions.Exit(2 if all(isinstance(run.error, HdsimError) for run in failed) else 1)


def _check_all(work: Work, configs: Sequence[Mapping[str, Any]]) -> None:
    """Finds what can be found wrong with the runs of a sweep without reading every file.

    Raises:
        HdsimError: A file is missing or an agent cannot be made; or anything is wrong with the first run.
    """
    from hdsim.scheduling.agent import make_agent

    work.prepare(configs[0])
    for config in configs[1:]:
        resolve("platforms", config["platform"]["path"], where="platform.path")
        resolve("workloads", config["workload"]["path"], where="workload.path")
        make_agent(config["agent"])


def _sweep_task(composed: DictConfig, work: Work, total: int) -> Outcome:
    """One run of a sweep; whatever happens to it, the others go on."""
    from hydra.core.hydra_config import HydraConfig

    from hdsim.cli.config import plain
    from hdsim.results.run_directory.directory import RunDirectory

    directory, config = _directory(), plain(composed)
    label = f"[{HydraConfig.get().job.num + 1}/{total}] {directory.name}"
    run = RunDirectory(directory)
    if run.finished_with(config):
        click.echo(f"{label}: finished before")
        return Outcome(directory, run.metrics())
    click.echo(label)
    try:
        inputs = work.prepare(config)
    except Exception as error:
        run.start(config)
        run.fail(error)
        return Outcome(directory, {}, error)
    return execute(work, config, inputs, directory)


def _directory() -> Path:
    from hydra.core.hydra_config import HydraConfig

    return Path(HydraConfig.get().runtime.output_dir)


@contextmanager
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


def _metrics_table(metrics: Mapping[str, float]) -> str:
    """Statistics of one quantity on a line, then the other metrics one a line, with units."""
    from hdsim.results.metrics import unit

    statistics: dict[str, dict[str, float]] = {}
    others = {}
    for name, value in metrics.items():
        kind, _, quantity = name.partition("_")
        if kind in _STATISTICS and all(f"{other}_{quantity}" in metrics for other in _STATISTICS):
            statistics.setdefault(quantity, {})[kind] = value
        else:
            others[name] = value
    rows = [["", *_STATISTICS, ""]]
    for quantity, numbers in statistics.items():
        rows.append([quantity, *(format_number(numbers[kind]) for kind in _STATISTICS), unit(f"mean_{quantity}")])
    width = max(map(len, others))
    lines = [f"{name:{width}}  {format_number(value):>16} {unit(name)}".rstrip() for name, value in others.items()]
    return format_table(rows) + "\n\n" + "\n".join(lines)


def _sweep_table(outcomes: Sequence[Outcome], directory: Path) -> str:
    """One line a run that did not fail, with its main metrics."""
    from hdsim.results.metrics import unit

    headings = [f"{name} [{unit(name)}]" if unit(name) else name for name in _SWEEP_METRICS]
    rows = [["run", *headings]]
    for outcome in outcomes:
        numbers = [format_number(outcome.metrics[name]) for name in _SWEEP_METRICS]
        rows.append([_name(outcome.directory, directory), *numbers])
    return format_table(rows)


def _name(directory: Path, parent: Path) -> str:
    return str(directory.relative_to(parent.absolute()))


def shown(path: Path) -> str:
    """A path as users see it: relative to where they are, if it lies below."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
