"""Jobs of a trace in Slurm: what is submitted, and how a job is recognized after a restart of hdsim."""

from __future__ import annotations

import hashlib
import heapq
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from hdsim.backends.slurm.records import Record
from hdsim.cluster.state import FinalState
from hdsim.errors import ConfigError
from hdsim.slurm.objects import SlurmJob, Submission

if TYPE_CHECKING:
    from hdsim.backends.slurm.settings import SlurmSettings
    from hdsim.cluster.state import Cluster

#: Begin of the comment of each job that hdsim submits, and of those whose ends slurmctld has forgotten.
_MARK, _ENDED = "hdsim", "hdsim-ended"
_MIB = 1e6 / 2**20


class Trace:
    """The jobs of a workload, each with a record.

    The comment of a job in Slurm is ``hdsim:NAME:FINGERPRINT:BEGIN:ID``: the name of the settings, a hash of the
    workload, the time 0 of the run in seconds since 1970 by Slurm's clock, and the id of the job in the trace. It
    begins with ``hdsim-ended`` where hdsim has cancelled a job whose end slurmctld has forgotten. `infeasible` jobs are
    not submitted.
    """

    def __init__(self, cluster: Cluster, settings: SlurmSettings, scale: float, infeasible: Sequence[int]) -> None:
        self._cluster, self._settings, self._scale, self._infeasible = cluster, settings, scale, infeasible
        jobs = cluster.workload
        self.records = [Record(job, own) for job, own in enumerate(jobs.job_id.tolist())]
        self._by_id = {str(record.job_id): record for record in self.records}
        self._dates = jobs.submission_time.tolist()
        # Records to submit by their dates.
        self._waiting: list[tuple[float, int]] = []
        self._prefix = ""
        columns = (jobs.submission_time, jobs.runtime, jobs.requested_cores, jobs.cpu)
        self._fingerprint = hashlib.sha256(b"".join(column.tobytes() for column in columns)).hexdigest()[:12]

    def begin_at(self, origin: float, earlier: Iterable[int]) -> None:
        """Begins at a time 0 of Slurm's clock; `earlier` jobs are submitted already, or will not be."""
        self._prefix = f"{_MARK}:{self._settings.name}:{self._fingerprint}:{origin:.3f}:"
        for record in self.records:
            record.comment = f"{self._prefix}{record.job_id}"
        without = set(earlier)
        self._waiting = [(date, job) for job, date in enumerate(self._dates) if job not in without]
        heapq.heapify(self._waiting)

    def unfinished(self, found: Sequence[SlurmJob]) -> tuple[float, dict[int, SlurmJob]] | None:
        """Returns time 0 and jobs, by rows of the workload, of a run of this name that has not ended; None without one.

        Raises:
            ConfigError: It is one of another workload.
        """
        runs: dict[float, dict[int, SlurmJob]] = defaultdict(dict)
        for view in found:
            mark, name, fingerprint, begin, own = (*view.comment.split(":", 4), "", "", "", "")[:5]
            if mark not in (_MARK, _ENDED) or name != self._settings.name:
                continue
            if fingerprint == self._fingerprint and own in self._by_id:
                runs[float(begin)][self._by_id[own].job] = view
            elif not view.ended:
                raise ConfigError(
                    f"expected the workload of the run of this name that has not ended, got another one: job {view.id} "
                    "of Slurm is none of its jobs; `scancel` ends it, another backend.name leaves it alone",
                    where="backend.name",
                )
        if not runs:
            return None
        origin = max(runs)
        views = runs[origin]
        refused = set(self._infeasible)
        ended = all(job in views and views[job].ended for job in range(len(self.records)) if job not in refused)
        return None if ended else (origin, views)

    def record_of(self, view: SlurmJob) -> Record | None:
        """Returns the record of a job of this run, None for other jobs."""
        comment = view.comment
        if has_ended(view):
            comment = f"{_MARK}{comment[len(_ENDED) :]}"
        return self._by_id.get(comment[len(self._prefix) :]) if comment.startswith(self._prefix) else None

    def runtime(self, record: Record) -> float:
        """Returns the seconds for which a job sleeps."""
        return float(self._cluster.workload.runtime[record.job])

    def final_state(self, record: Record) -> FinalState:
        """Returns the state of a job that has slept for its run time."""
        failed = self._cluster.workload.return_code[record.job] != 0
        return FinalState.COMPLETED_FAILED if failed else FinalState.COMPLETED_SUCCESSFULLY

    @property
    def due(self) -> float:
        """Date of the next submission in seconds, infinite if there is none."""
        return self._waiting[0][0] if self._waiting else math.inf

    def take_due(self, now: float) -> Record | None:
        """Returns the next job to submit, None if none is due."""
        if self.due > now:
            return None
        return self.records[heapq.heappop(self._waiting)[1]]

    def submit_again(self, record: Record) -> None:
        """Has a job submitted that Slurm does not have."""
        record.id = 0
        heapq.heappush(self._waiting, (self._dates[record.job], record.job))

    def submission(self, record: Record) -> Submission:
        """Returns what is submitted: a job that sleeps for the run time of the trace's."""
        cluster, job = self._cluster, record.job
        jobs, chunk = cluster.workload, cluster.requests.chunk(job)
        seconds = float(jobs.runtime[job]) / self._scale
        code = int(jobs.return_code[job])
        end = f"sleep {seconds:.3f}\nexit {code if 0 < code < 256 else 1}" if code else f"exec sleep {seconds:.3f}"
        walltime = float(jobs.walltime[job])
        limited = self._settings.kill_at_walltime and math.isfinite(walltime)
        cpus = round(chunk.cores * chunk.cpu)
        return Submission(
            name=str(record.job_id),
            comment=record.comment,
            tasks=chunk.number,
            cpus=cpus,
            memory=float(jobs.memory[job]) * chunk.cores / cpus * _MIB,
            # A clock of libfaketime would end the sleep too early.
            gpus=chunk.gpus,
            script=f"#!/bin/sh\nunset LD_PRELOAD\n{end}\n",
            minutes=max(1, math.ceil(walltime / 60)) if limited else None,
            partition=self._settings.partition,
        )


def has_ended(view: SlurmJob) -> bool:
    """Whether a job has ended by itself before it was cancelled."""
    return view.comment.startswith(f"{_ENDED}:")


def ended_comment(record: Record) -> str:
    """Returns the comment of a job whose end slurmctld has forgotten."""
    return f"{_ENDED}{record.comment[len(_MARK) :]}"
