"""A run of a command in its run directory."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from traceback import extract_tb
from typing import TYPE_CHECKING, Any

import click

from hdsim.errors import ConfigError, PluginError
from hdsim.results.run_directory.failure import Failure
from hdsim.results.run_directory.inputs import is_own_code
from hdsim.util.files import shown

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from hdsim.platform.model import Platform
    from hdsim.workload.model import Workload


def check_replay(config: Mapping[str, Any]) -> None:
    """Finds platform, workload and agent of a configuration without reading the files of the first two.

    Raises:
        ConfigError: A file is missing, or the agent cannot be made.
    """
    from hdsim.config.inputs import find_inputs
    from hdsim.results.own_metrics import load_metrics
    from hdsim.scheduling.agent import make_agent

    find_inputs(config)
    make_agent(config["agent"])
    load_metrics(config.get("metrics"))


def _begins(inputs: Any, directory: Path) -> None:
    """Checks nothing."""


def _is_not_small(config: Mapping[str, Any], inputs: Any) -> bool:
    return False


@dataclass(frozen=True)
class Command:
    """Steps of a command such as ``hdsim run`` for one configuration; its functions can be pickled.

    Attributes:
        name: Its words after ``hdsim``, kept in the manifest for `hdsim rerun`.
        build: Reads and constructs everything that the configuration names; the result has a `platform` and a
            `workload` where there are some. Mistakes are found here, before anything is written.
        run: Does the work in a run directory; returns the result to keep there, by default a
            :class:`hdsim.results.result.Result`, and further facts for the manifest.
        resumes: A finished run in the directory is reused.
        check: Checks a configuration as far as possible without reading every file.
        write: Writes the result to the run directory and returns facts for the manifest; None for a replay.
        metrics: Main metrics, the most important first; smaller is better.
        begun: Checks that the run can continue from what an earlier one has left in the directory.
        is_small: Whether a run takes less time with interpreted kernels than the import of a compiler.
    """

    name: str
    build: Callable[[Mapping[str, Any]], Any]
    run: Callable[[Mapping[str, Any], Any, Path], tuple[Any, dict[str, Any]]]
    resumes: bool = False
    check: Callable[[Mapping[str, Any]], object] = check_replay
    write: Callable[[Path, Any], dict[str, Any]] | None = None
    metrics: Sequence[str] = ("makespan", "mean_waiting_time", "mean_bounded_slowdown", "utilization", "energy_joules")
    begun: Callable[[Any, Path], object] = _begins
    is_small: Callable[[Mapping[str, Any], Any], bool] = _is_not_small


@dataclass(frozen=True)
class RunOutcome:
    """End of a run.

    Attributes:
        metrics: Its metrics; empty if it failed.
        error: The exception behind `failure`, in the process that executed the run only.
        seconds: Time of its execution; None if it had finished before.
        notes: Text on standard output and standard error of a run in a process of a pool.
    """

    directory: Path
    metrics: Mapping[str, float]
    failure: Failure | None = None
    error: Exception | None = None
    seconds: float | None = None
    notes: str = ""


def finished(config: Mapping[str, Any], directory: Path) -> RunOutcome | str:
    """Returns the outcome if the directory has a finished run of the configuration, else the reason in words."""
    from hdsim.results.run_directory.directory import RunDirectory

    run = RunDirectory(directory)
    outdated = run.outdated(config)
    return RunOutcome(directory, run.metrics()) if outdated is None else outdated


def execute(command: Command, config: Mapping[str, Any], inputs: Any, directory: Path) -> RunOutcome:
    """Executes a run with inputs that the command has built, in this process; an exception is recorded and returned.

    Raises:
        ConfigError: Another process uses the directory, or it cannot be made.
        KeyboardInterrupt: A signal arrived; the results until then are in the directory.
    """
    from hdsim.results.run_directory.directory import RunDirectory
    from hdsim.simulation.replay import Interrupted

    run, begin = RunDirectory(directory, command.write), perf_counter()
    run.start(config, *platform_and_workload(inputs), kind=command.name)
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
    except BaseException as fault:
        # A plug-in may call sys.exit, which ends neither a sweep nor a run without a word; click takes the other two
        # for an interruption by the user.
        ends = not isinstance(fault, Exception) or isinstance(fault, EOFError | click.Abort)
        failure: Any = _failure(fault) if ends else fault
        run.fail(failure)
        return RunOutcome(directory, {}, Failure.of(failure), failure, perf_counter() - begin)
    return RunOutcome(directory, run.metrics(), seconds=perf_counter() - begin)


def platform_and_workload(inputs: Any) -> tuple[Platform | None, Workload | None]:
    """Returns the platform and the workload of what a command has built, None where there is none."""
    return getattr(inputs, "platform", None), getattr(inputs, "workload", None)


def _failure(fault: BaseException) -> PluginError:
    """Returns an error in place of an exception that would end the program."""
    frames = reversed(extract_tb(fault.__traceback__))
    place = next((f"{frame.filename}:{frame.lineno}" for frame in frames if is_own_code(frame.filename)), None)
    return PluginError(f"a plug-in raised {type(fault).__name__}({fault})", where=place)


def attempt(
    command: Command, config: Mapping[str, Any], directory: Path, composed: DictConfig | None = None
) -> RunOutcome:
    """Builds and executes one of several runs, unless it has finished before; its failure is part of the outcome.

    `composed` is Hydra's composition of the configuration, for ``.hydra``.

    Raises:
        KeyboardInterrupt: A signal arrived; the results until then are in the directory.
    """
    from hdsim.results.run_directory.directory import RunDirectory, check_place
    from hdsim.results.run_directory.lock import Lock

    done, begin = finished(config, directory), perf_counter()
    if isinstance(done, RunOutcome):
        return done
    try:
        check_place(directory, config)
        lock = Lock.of(directory)  # before anything is written there
        inputs = command.build(config)
        command.begun(inputs, directory)
    except Exception as error:
        run = RunDirectory(directory)
        with contextlib.suppress(ConfigError):
            run.start(config, kind=command.name)
            run.fail(error)
        return RunOutcome(directory, {}, Failure.of(error), error, perf_counter() - begin)
    try:
        outcome = as_job(composed, lambda: execute(command, config, inputs, directory))
    except (ConfigError, OSError) as error:  # The directory is in use, or cannot be written.
        outcome = RunOutcome(directory, {}, Failure.of(error), error)
    finally:
        lock.release()
    return replace(outcome, seconds=perf_counter() - begin)


def as_job(composed: DictConfig | None, function: Callable[[], RunOutcome]) -> RunOutcome:
    """Calls a function as a job of Hydra if there is a composition of it."""
    if composed is None:
        return function()
    from hdsim.config.jobs import call_as_job

    return call_as_job(composed, function)
