"""A real run of a gang: decisions of the controller, supersteps of processes, the journal of both."""

from __future__ import annotations

import logging
import shutil
import statistics
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from hdsim.errors import ConfigError
from hdsim.gangs.output import write_run
from hdsim.gangs.real.coordinator import Coordinator
from hdsim.gangs.real.journal import Journal
from hdsim.gangs.real.launcher import Launcher, Site, Timeouts
from hdsim.gangs.real.server import Server
from hdsim.gangs.real.session import KazooSession
from hdsim.gangs.simulation import Gang, GangRun, RunningGang
from hdsim.gangs.stressors import Stressors
from hdsim.util.arrays import Floats
from hdsim.util.files import write_csv

log = logging.getLogger(__name__)

JOURNAL = "journal.jsonl"
_TIMES = ("entered", "began", "ended")


@dataclass(frozen=True, kw_only=True)
class RealRun(GangRun):
    """Supersteps that were executed; the durations are measured."""

    predicted: Floats  # (N, J) durations by the profile, for the executed sizes and shares, in seconds
    #: starts, entries, faults: Entries of the journal: starts of controllers, supersteps, attempts not
    #: completed.
    starts: Sequence[Mapping[str, Any]]
    entries: Sequence[Mapping[str, Any]]
    faults: Sequence[Mapping[str, Any]]

    @property
    def begin(self) -> float:
        """Time of the first start in seconds since the epoch."""
        return float(self.starts[0]["time"])

    @cached_property
    def metrics(self) -> dict[str, float]:
        """Those of a simulated run, and those that only a real one has (``hdsim.results.metrics.GANG_METRICS``)."""
        predicted, measured = self.predicted.max(axis=1), self.durations.max(axis=1)
        return super().metrics | {
            "predicted_duration": float(predicted.sum()),
            "prediction_error": statistics.median((abs(predicted - measured) / measured).tolist()),
            "repetitions": len(self.faults),
            "elapsed": max(report["ended"] for report in self.entries[-1]["tasks"].values()) - self.begin,
        }


def run(
    gang: Gang,
    launcher: Launcher,
    stressors: Stressors,
    directory: Path,
    *,
    zookeeper: str | None,
    timeouts: Timeouts,
    attempts: int,
    resume: bool,
    progress: Callable[[int], object],
) -> tuple[RealRun, dict[str, Any]]:
    """Runs a gang in a directory; returns the run, and entries of the manifest.

    A resumed run repeats the decisions of the finished supersteps without executing them, which brings the controller
    into the state that it had. Without ``host:port`` of ZooKeeper a server is started for the run. A superstep has some
    attempts before the run fails; `progress` is called with the number of supersteps finished since the last call.

    Raises:
        ConfigError: The journal is that of other decisions.
        BackendError: ZooKeeper is silent, or a superstep fails again and again.
        DecisionError: The controller returns shares that the gang cannot have.
    """
    running = RunningGang(gang)
    with ExitStack() as stack:
        journal = Journal(directory / JOURNAL, resume=resume)
        stack.callback(journal.close)
        done = len(journal.supersteps)
        if not resume:
            shutil.rmtree(directory / "logs", ignore_errors=True)
        logs = directory / "logs" / str(len(journal.starts))
        logs.mkdir(parents=True)
        if zookeeper is None:
            zookeeper = stack.enter_context(Server(directory / "zookeeper", logs / "zookeeper.log")).address
        session = stack.enter_context(KazooSession(zookeeper, timeout=timeouts.session, patience=timeouts.connection))
        for earlier in journal.starts:
            session.delete(earlier["root"])  # Processes of a killed controller end.
        root = f"/hdsim/{uuid.uuid4().hex[:12]}"
        journal.start(time=time.time(), root=root)
        launcher.site = Site(zookeeper, root, logs, stressors, timeouts, session.wake)
        stack.callback(session.delete, root)
        stack.enter_context(launcher)
        coordinator = Coordinator(session, launcher, gang.tasks, journal, attempts)
        facts = {"zookeeper": {"address": zookeeper, "version": session.version()}, **launcher.facts()}
        if done:
            log.warning("%d supersteps are finished; the run goes on with superstep %d", done, done)
        while not running.over:
            superstep = running.planned
            replanned = running.plan(gang.budget.total)
            shares, sizes = running.shares.tolist(), gang.actual[gang.start + superstep].tolist()
            if superstep < done:
                _check_same(journal, superstep, shares, directory)
            else:
                coordinator.superstep(superstep, sizes, shares, replanned=replanned)
            progress(1)
    return _result(gang, journal), facts


def _check_same(journal: Journal, superstep: int, shares: list[int], directory: Path) -> None:
    recorded = journal.supersteps[superstep]["shares"]
    if recorded != shares:
        raise ConfigError(
            f"expected the shares {recorded} of superstep {superstep} from the same controller, got {shares}",
            where=str(directory / JOURNAL),
        )


def _result(gang: Gang, journal: Journal) -> RealRun:
    profile, entries = gang.planner.profile, journal.supersteps
    sizes, shares = (np.array([entry[key] for entry in entries]) for key in ("sizes", "shares"))
    return RealRun(
        tasks=profile.tasks,
        start=gang.start,
        penalty=gang.penalty,
        sizes=sizes,
        shares=shares,
        replanned=np.array([entry["replanned"] for entry in entries]),
        durations=np.array(
            [[report["ended"] - report["began"] for report in entry["tasks"].values()] for entry in entries]
        ),
        predicted=profile.at(sizes, shares),
        starts=journal.starts,
        entries=entries,
        faults=journal.faults,
    )


def write_real_run(path: Path, run: RealRun) -> dict[str, Any]:
    """Writes the files of a simulated run, ``barriers.csv`` and ``faults.csv``; returns entries of the manifest."""
    begin = run.begin
    reports = [list(entry["tasks"].values()) for entry in run.entries]
    columns = {
        "attempts": [str(entry["attempt"]) for entry in run.entries],
        "predicted": [f"{value:.6f}" for value in run.predicted.max(axis=1)],
        **{f"predicted_{task}": [f"{value:.6f}" for value in run.predicted[:, j]] for j, task in enumerate(run.tasks)},
    }
    write_run(path, run, np.array([min(report["began"] for report in each) for each in reports]) - begin, columns)
    write_csv(
        path / "barriers.csv",
        ["superstep", "attempt", "task", "process", *_TIMES],
        (
            [entry["superstep"], entry["attempt"], task, report["member"]]
            + [f"{report[key] - begin:.6f}" for key in _TIMES]
            for entry in run.entries
            for task, report in entry["tasks"].items()
        ),
    )
    write_csv(
        path / "faults.csv",
        ["time", "superstep", "attempt", "fault"],
        ([f"{each['time'] - begin:.6f}", each["superstep"], each["attempt"], each["fault"]] for each in run.faults),
    )
    return {"starts": len(run.starts)}
