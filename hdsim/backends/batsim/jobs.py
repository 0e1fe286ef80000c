"""The jobs of a simulation in Batsim's place: those of the workloads and those that the scheduler registers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hdsim.backends.batsim.inputs import JobFile
from hdsim.backends.batsim.output import JobRow
from hdsim.backends.batsim.protocol import SEPARATOR, encode, quote, split_job_id
from hdsim.errors import BackendError, WorkloadError
from hdsim.util.text import shown
from hdsim.workload.batsim_json import jobs_of
from hdsim.workload.model import COLUMNS, Workload
from hdsim.workload.programs import parts_of, progress_of
from hdsim.workload.raw import raise_faults

#: Submissions that are encoded together; between two messages the caches of the processor are cold.
_PORTION = 256
#: Profile types whose tasks are all the same, so that it does not matter which host serves which.
_EQUAL_TASKS = ("delay", "parallel_homogeneous", "parallel_homogeneous_total")


class ServedJobs:
    """The jobs by row, first those of the workloads (w0, w1 ... in the order of the files) in order of submission.

    With `forward_profiles` a submission has the job's profile.

    Raises:
        WorkloadError: There is no workload, or no job in one.
    """

    def __init__(self, files: Sequence[JobFile], *, forward_profiles: bool) -> None:
        if not files:
            raise WorkloadError("expected at least one workload, got none")
        self._forward_profiles = forward_profiles
        self.profiles: dict[str, dict[str, Any]] = {}  # Batsim's profiles by workload and name
        self.ids: list[str] = []  # Batsim's id of each job
        self._documents: list[Mapping[str, Any]] = []
        # Encoded submissions of the next jobs of the workloads.
        self._encoded: dict[int, str] = {}
        self.workload = self._join(files)  # the jobs of the files, in the clock of the files
        self._rows = {job_id: row for row, job_id in enumerate(self.ids)}
        self.submission: list[float] = self.workload.submission_time.tolist()  # submission time of each job, in seconds
        self._walltime: list[float] = self.workload.walltime.tolist()
        #: Return code of each job that is neither killed nor stopped at its walltime.
        self.return_code: list[int] = self.workload.return_code.tolist()

    def _join(self, files: Sequence[JobFile]) -> Workload:
        columns: dict[str, list[np.ndarray]] = {}
        origins = []
        for number, file in enumerate(files):
            name = f"w{number}"
            jobs = file.jobs
            for key, column in jobs.columns.items():
                columns.setdefault(key, []).append(column)
            used = dict.fromkeys(jobs.columns["profile"].tolist())
            self.profiles[name] = parts_of(used, jobs.profiles)
            origins += [(name, document) for document in file.content["jobs"]]
        joined: dict[str, Any] = {key: np.concatenate(parts) for key, parts in columns.items()}
        # Batsim sorts by time, then by the name of the job as text: w0!10 comes before w0!2.
        names = np.array([f"{name}{SEPARATOR}{document['id']}" for name, document in origins])
        order = np.lexsort((names, joined["submission_time"]))
        for row in order.tolist():
            name, document = origins[row]
            self.ids.append(f"{name}{SEPARATOR}{document['id']}")
            self._documents.append({**document, "id": self.ids[-1]})
        joined = {key: column[order] for key, column in joined.items() if key in COLUMNS}
        joined["memory"] = np.zeros(len(order))  # Batsim has no memory
        joined["job_id"] = np.array(self.ids, object)
        workload = Workload.from_columns(**joined, source=", ".join(file.path for file in files))
        return workload.replaced(submission_time=joined["submission_time"])

    def row(self, job_id: str) -> int:
        """Returns the row of a job.

        Raises:
            BackendError: There is no such job.
        """
        row = self._rows.get(job_id)
        if row is None:
            raise BackendError(f"unknown job '{job_id}'")
        return row

    def describe(self, job: int) -> JobRow:
        """Returns the columns of a job in ``_jobs.csv`` that the workload determines."""
        workload, own = split_job_id(self.ids[job])
        document = self._documents[job]
        return JobRow(own, workload, document["profile"], self.submission[job], document["res"], self._walltime[job])

    def encode_submission(self, job: int) -> str:
        """Returns the data of the event ``JOB_SUBMITTED`` of a job."""
        data = self._encoded.pop(job, None)
        if data is None:
            static = len(self.workload)
            following = range(job, min(job + _PORTION, static) if job < static else job + 1)
            self._encoded.update((each, self._encode(each)) for each in following)
            data = self._encoded.pop(job)
        return data

    def _encode(self, job: int) -> str:
        document = self._documents[job]
        data = f'"job_id":{quote(self.ids[job])},"job":{encode(document)}'
        if self._forward_profiles:
            data += f',"profile":{encode(self._profiles_of(job)[document["profile"]])}'
        return f"{{{data}}}"

    def _profiles_of(self, job: int) -> dict[str, Any]:
        return self.profiles[split_job_id(self.ids[job])[0]]

    def progress(self, job: int, done: int, share: float) -> dict[str, Any]:
        """Returns the progress of a job as in ``JOB_KILLED``; see :func:`hdsim.workload.programs.progress_of`."""
        return progress_of(self._documents[job]["profile"], self._profiles_of(job), done, share)

    def check_mapping(self, job: int, mapping: Any, size: int) -> None:
        """Refuses a mapping of executors to hosts that would change what a job does.

        Raises:
            BackendError: It would, or is not a mapping.
        """
        if not mapping:
            return
        try:
            places = [int(mapping[str(executor)]) for executor in range(size)]
        except (KeyError, TypeError, ValueError):
            places = []
        if len(mapping) != size or sorted(places) != list(range(size)):
            raise BackendError(f"data.mapping: expected each of 0 to {size - 1} once, got {shown(mapping)}")
        profile = self._profiles_of(job)[self._documents[job]["profile"]]
        if places != list(range(size)) and profile["type"] not in _EQUAL_TASKS:
            raise BackendError(
                f"data.mapping: expected executor n on host n of alloc, got {shown(mapping)}; other mappings are "
                f"supported for profiles of type {', '.join(_EQUAL_TASKS)}"
            )

    def register_profile(self, workload: str, name: str, profile: Mapping[str, Any]) -> None:
        """Adds a profile.

        Raises:
            BackendError: There is another one of this name.
        """
        if self.profiles.setdefault(workload, {}).setdefault(name, profile) != profile:
            raise BackendError(f"profile '{name}' of '{workload}' is another already")

    def register(self, job_id: str, document: Mapping[str, Any], now: float, gflops: float) -> Workload:
        """Adds a job that is submitted `now` (s), described as in a workload file; its row is the next one.

        Raises:
            BackendError: The id is malformed or in use.
            WorkloadError: The job cannot run.
        """
        name, own = split_job_id(job_id)
        if job_id in self._rows:
            raise BackendError(f"job '{job_id}' exists already")
        content = {"jobs": [{**document, "id": own, "subtime": now}], "profiles": self.profiles.get(name, {})}
        raw = jobs_of(content, job_id, gflops)
        raise_faults(raw.errors, job_id)
        columns: dict[str, Any] = {key: column for key, column in raw.columns.items() if key in COLUMNS}
        added = Workload.from_columns(**columns, source=job_id)
        self._rows[job_id] = len(self.ids)
        self.ids.append(job_id)
        self._documents.append({**document, "id": job_id})
        self.submission.append(now)
        self._walltime += added.walltime.tolist()
        self.return_code += added.return_code.tolist()
        return added
