"""Launchers of Hydra: joblib, submitit and Ray execute the planned runs of a sweep.

The settings are those of Hydra's launcher plugins. The libraries are called directly, so that workers get composed
configurations and each outcome is available when its run ends. The settings for Ray are hdsim's own: Hydra's plugin for
Ray starts a process for each run and installs the clients of a cloud.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hdsim.errors import BackendError, ConfigError
from hdsim.results.run_directory.lock import owner
from hdsim.runs.command import Command, Failure, RunOutcome, finished
from hdsim.runs.pool import attempt_quietly

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from hdsim.runs.plan import PlannedRun

#: Command, configuration, directory and composition of a run.
_Task = tuple[Any, ...]
#: Ended runs by their numbers; a text is the reason why a run was lost.
_Ended = Iterator[tuple[int, RunOutcome | str]]
#: Seconds between two looks at the jobs of submitit, and at the nodes of Ray.
_LOOK, _ALIVE_INTERVAL = 0.2, 5.0
#: Seconds until a process is taken for another one's that still uses a directory.
_ENDS = 10.0
#: Settings of submitit that are not named after the kind of cluster.
_SHARED = (
    "timeout_min",
    "cpus_per_task",
    "gpus_per_node",
    "tasks_per_node",
    "mem_gb",
    "nodes",
    "name",
    "stderr_to_stdout",
)


def launched(launcher: DictConfig, command: Command, runs: Sequence[PlannedRun]) -> Iterator[tuple[int, RunOutcome]]:
    """Executes runs by a launcher, ``hydra.launcher`` of the configuration, other than the basic one.

    Yields:
        The number of a run that has ended, and its outcome.

    Raises:
        ConfigError: The launcher is not known, or a setting cannot be used.
        BackendError: A cluster cannot be reached, or has no node left.
    """
    from omegaconf import OmegaConf

    tasks = [(command, run.config, run.directory, run.composed) for run in runs]
    settings: Any = OmegaConf.to_container(launcher, resolve=True)
    name = settings.pop("_target_").rpartition(".")[2]
    launch = _LAUNCHERS.get(name)
    if launch is None:
        known = "basic, joblib, submitit_local, submitit_slurm or ray"
        raise ConfigError(f"expected {known}, got {name}", where="hydra/launcher")
    for number, ended in launch(settings, tasks):
        if isinstance(ended, str):
            # A worker may be lost after the end of its run.
            found = finished(runs[number].config, runs[number].directory)
            lost = RunOutcome(runs[number].directory, {}, Failure("lost", ended))
            yield number, found if isinstance(found, RunOutcome) else lost
        else:
            yield number, ended


def _joblib(settings: dict[str, Any], tasks: Sequence[_Task]) -> _Ended:
    """Executes runs by joblib; those that were in work beside a killed worker are repeated."""
    from joblib import Parallel, delayed
    from joblib.externals.loky import get_reusable_executor

    left, alone = dict(enumerate(tasks)), False
    while left:
        # A run that kills its worker before any other has ended is found by executing runs one by one.
        batch = list(left.items())[: 1 if alone else None]
        calls = [delayed(_numbered)(number, *task) for number, task in batch]
        try:
            for number, outcome in Parallel(**settings, return_as="generator_unordered")(calls):
                del left[number]
                yield number, outcome
            alone = False
        except BrokenProcessPool as error:
            if alone:
                ((number, _),) = batch
                del left[number]
                yield number, _reason(error)
            alone = not alone and len(left) == len(batch)
            _wait_for_ends([directory for _, _, directory, _ in left.values()])
    # Idle workers would live, and hold standard output open, for another five minutes.
    get_reusable_executor().shutdown(wait=True)


def _numbered(number: int, *task: Any) -> tuple[int, RunOutcome]:
    return number, attempt_quietly(*task)


def _wait_for_ends(directories: Sequence[Path]) -> None:
    """Waits until no process uses the directories: those that joblib ends beside a killed one live a little longer."""
    deadline = time.monotonic() + _ENDS
    while any(map(owner, directories)) and time.monotonic() < deadline:
        time.sleep(_LOOK)


def _submitit(kind: str) -> Callable[[dict[str, Any], Sequence[_Task]], _Ended]:
    """Executes runs by submitit: on Slurm as one job array, locally as many at a time as there are processors."""

    def launch(settings: dict[str, Any], tasks: Sequence[_Task]) -> _Ended:
        import submitit
        from submitit.core.utils import FailedJobError, UncompletedJobError

        retries = {f"{kind}_{key}": settings.pop(key) for key in ("max_num_timeout",) if key in settings}
        executor = submitit.AutoExecutor(cluster=kind, folder=settings.pop("submitit_folder"), **retries)
        executor.update_parameters(
            **{key if key in _SHARED else f"{kind}_{key}": value for key, value in settings.items()}
        )
        waiting, working = list(enumerate(tasks)), dict[Any, int]()
        if kind == "slurm":
            with executor.batch():
                working = {executor.submit(attempt_quietly, *task): number for number, task in waiting}
            waiting = []
        cores = len(os.sched_getaffinity(0)) // (settings.get("cpus_per_task") or 1)
        try:
            while waiting or working:
                while waiting and len(working) < max(1, cores):
                    number, task = waiting.pop(0)
                    working[executor.submit(attempt_quietly, *task)] = number
                for job in [job for job in working if job.done()]:
                    number = working.pop(job)
                    try:
                        yield number, job.result()
                    except (FailedJobError, UncompletedJobError) as error:
                        yield number, f"{_reason(error)} ({job.paths.stderr})"
                time.sleep(_LOOK)
        finally:
            # After an interruption no job is left behind.
            for job in working:
                job.cancel()

    return launch


def _ray(settings: dict[str, Any], tasks: Sequence[_Task]) -> _Ended:
    """Executes runs by tasks of Ray, which repeats those of a lost node or process on others."""
    from hdsim.util.ray_cluster import connect, nodes_alive

    connected = connect(settings["address"], len(os.sched_getaffinity(0)), "hydra.launcher.address")
    import ray
    from ray.exceptions import RayError, RayTaskError

    options = {"num_cpus": settings["num_cpus"], "max_retries": settings["max_retries"]}
    attempt: Any = ray.remote(_attempt_there)
    attempt = attempt.options(scheduling_strategy="SPREAD", **options)
    try:
        working = {attempt.remote(Path.cwd(), *task): number for number, task in enumerate(tasks)}
        while working:
            ready, _ = ray.wait(list(working), timeout=_ALIVE_INTERVAL)
            if not ready:
                nodes_alive()
            for job in ready:
                number = working.pop(job)
                try:
                    yield number, ray.get(job)
                except RayTaskError as error:
                    raise error.cause from None
                except RayError as error:
                    yield number, _reason(error)
    finally:
        if connected:
            ray.shutdown()


def _attempt_there(directory: Path, *task: Any) -> RunOutcome:
    """Executes a run in the directory of the command, to which paths of the configuration are relative."""
    try:
        os.chdir(directory)
    except OSError as error:
        message = f"expected {directory} on every node of the Ray cluster, {platform.node()} has none: {error.strerror}"
        raise BackendError(message) from None
    return attempt_quietly(*task)


def _reason(error: Exception) -> str:
    return str(error).strip().partition("\n")[0].partition(". ")[0] or type(error).__name__


_LAUNCHERS: dict[str, Callable[[dict[str, Any], Sequence[_Task]], _Ended]] = {
    "JoblibLauncher": _joblib,
    "LocalLauncher": _submitit("local"),
    "SlurmLauncher": _submitit("slurm"),
    "RayLauncher": _ray,
}
