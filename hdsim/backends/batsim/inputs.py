"""Options, external events and jobs, of the workloads or registered, of a simulation in Batsim's place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hdsim.backends.batsim.hosts import Hosts
from hdsim.backends.batsim.output import JobRow
from hdsim.backends.batsim.protocol import SEPARATOR, encode, parse_hosts, quote, split_job_id
from hdsim.errors import BackendError, ConfigError, WorkloadError
from hdsim.platform.model import Platform
from hdsim.util.inputs import parse_json, read_text
from hdsim.util.text import shown
from hdsim.util.units import LONGEST_TIME
from hdsim.workload.batsim_json import jobs_of, read_document, to_batsim
from hdsim.workload.load import is_json, load_workload
from hdsim.workload.model import COLUMNS, Workload
from hdsim.workload.programs import parts_of, progress_of
from hdsim.workload.raw import RawJobs, raise_faults

#: Types of external events in Batsim, with the type of the NOTIFY of each.
MACHINE_EVENTS = {
    "machine_available": "event_machine_available",
    "machine_unavailable": "event_machine_unavailable",
}
#: Submissions that are encoded together; between two messages the caches of the processor are cold.
_PORTION = 256
#: Profile types whose tasks are all the same, so that it does not matter which host serves which.
_EQUAL_TASKS = ("delay", "parallel_homogeneous", "parallel_homogeneous_total")


@dataclass(frozen=True)
class Options:
    """Settings of a simulation, the flags of ``hdsim batsim-serve``."""

    energy: bool = False  # count energy and let the scheduler set P-states
    as_batsim: bool = False  # count energy with SimGrid's artefact
    forward_profiles: bool = False  # send the profile along with each submission
    dynamic_jobs: bool = False  # the scheduler may register jobs
    acknowledge_dynamic_jobs: bool = False  # send a submission for each of them
    profile_reuse: bool = False  # told to the scheduler; hdsim never forgets a profile
    #: Send external events of unknown types to the scheduler rather than refuse them.
    forward_unknown_events: bool = False
    sched_config: str = ""  # text handed to the scheduler
    one_event: bool = False  # never send two events in one message


@dataclass(frozen=True)
class JobFile:
    """A workload file."""

    path: str  # as the user named it
    content: Mapping[str, Any]  # the JSON object; a trace in another format is turned into one
    jobs: RawJobs  # the jobs of it, in the order of the file


def read_jobs(path: str | Path, platform: Platform, name: str | None = None) -> JobFile:
    """Reads Batsim's JSON, or any trace that hdsim reads; `name` is the path that the scheduler is sent.

    The reference speed of the platform turns operations into seconds.

    Raises:
        WorkloadError: It cannot be read or has faults.
    """
    content = read_document(path)[0] if is_json(path) else to_batsim(load_workload(path))
    jobs = jobs_of(content, str(path), platform.reference_gflops)
    raise_faults(jobs.errors, path)
    asking = np.flatnonzero(jobs.columns["requested_gpus"])
    if len(asking):
        where = jobs.where(int(asking[0]), "requested_gpus")
        raise WorkloadError("expected jobs without GPUs, which Batsim's protocol does not have", where=where)
    early = np.flatnonzero(jobs.columns["submission_time"] < 0)
    if len(early):
        where = jobs.where(int(early[0]), "submission_time")
        raise WorkloadError(f"expected at least 0 s, got {content['jobs'][early[0]]['subtime']}", where=where)
    return JobFile(name or str(path), content, jobs)


def read_events(path: str | Path) -> list[dict[str, Any]]:
    """Reads external events: one JSON object with ``timestamp`` and ``type`` a line, sorted by time.

    Raises:
        ConfigError: The file cannot be read, or a line is none.
    """
    events = []
    for number, line in enumerate(read_text(path, ConfigError, "file of events").splitlines(), 1):
        if not line.strip():
            continue
        event = parse_json(line, path, ConfigError, line=number)
        known = isinstance(event, dict) and isinstance(event.get("type"), str)
        when = event.get("timestamp") if known else None
        if isinstance(when, bool) or not isinstance(when, int | float) or not 0 <= when <= LONGEST_TIME:
            raise ConfigError(
                f"expected an object with a 'type' and a 'timestamp' of at least 0 s, got {line.strip()[:80]}",
                where=f"{path}:{number}",
            )
        events.append(event)
    return sorted(events, key=lambda event: float(event["timestamp"]))


def check_events(events: Iterable[Mapping[str, Any]], hosts: int, *, forward_unknown: bool) -> None:
    """Checks the types of external events and the hosts that they name.

    With `forward_unknown`, types that Batsim does not know are sent to the scheduler.

    Raises:
        ConfigError: An event cannot happen.
    """
    for event in events:
        kind = event["type"]
        if kind not in MACHINE_EVENTS and not forward_unknown:
            raise ConfigError(
                f"unknown event '{kind}'; allowed: {', '.join(MACHINE_EVENTS)}, or any with --forward-unknown-events",
                where="--events",
            )
        if kind in MACHINE_EVENTS:
            try:
                parse_hosts(str(event.get("resources")), hosts)
            except BackendError as error:
                raise ConfigError(f"{kind} at {event['timestamp']}: resources: {error}", where="--events") from None


def describe_simulation(
    hosts: Hosts, options: Options, workloads: Mapping[str, str], profiles: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """Returns the data of the event ``SIMULATION_BEGINS``."""
    resources = [
        {"id": row, "name": name, "state": "idle", "properties": dict(own), "zone_properties": dict(zone)}
        for row, (name, own, zone) in enumerate(zip(hosts.names, hosts.properties, hosts.zone_properties, strict=True))
    ]
    return {
        "nb_resources": len(hosts),
        "nb_compute_resources": len(hosts),
        "nb_storage_resources": 0,
        "allow_compute_sharing": False,
        "allow_storage_sharing": True,
        "config": {
            "redis-enabled": False,
            "redis-hostname": "127.0.0.1",
            "redis-port": 6379,
            "redis-prefix": "default",
            "profiles-forwarded-on-submission": options.forward_profiles,
            "dynamic-jobs-enabled": options.dynamic_jobs,
            "dynamic-jobs-acknowledged": options.acknowledge_dynamic_jobs,
            "profile-reuse-enabled": options.profile_reuse,
            "sched-config": options.sched_config,
            "forward-unknown-events": options.forward_unknown_events,
        },
        "compute_resources": resources,
        "storage_resources": [],
        "workloads": workloads,
        "profiles": {name: dict(profiles) for name, profiles in profiles.items()},
    }


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
        """Returns the row of a job; BackendError without such a job."""
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
        """Refuses, with a BackendError, a mapping of executors to hosts that would change what a job does."""
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
        """Adds a profile; BackendError if there is another one of this name."""
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
