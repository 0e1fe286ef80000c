"""hdsim in Batsim's place: what a scheduler decides goes into the engine, what happens there goes to the scheduler.

`Server` is the pure part: a reply of the scheduler in, the next message to it out. `SchedulerSocket` is the other part.
"""

from __future__ import annotations

import heapq
import json
import math
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from hdsim.batsim import zmtp
from hdsim.batsim.energy import Meter
from hdsim.batsim.hosts import Hosts
from hdsim.batsim.machine import GrowingCluster, HostBackend
from hdsim.batsim.protocol import (
    DEFAULT_ENDPOINT,
    FROM_SCHEDULER,
    LATEST,
    RETURN_CODES,
    SEPARATOR,
    Event,
    format_hosts,
    format_message,
    parse_hosts,
    parse_message,
    split_job_id,
)
from hdsim.batsim.record import JobRow, Record
from hdsim.errors import BackendError, ConfigError, DecisionError, WorkloadError
from hdsim.readers import RawJobs, raise_faults
from hdsim.readers.batsim import jobs_of, read_document, to_batsim
from hdsim.state import FinalState
from hdsim.workload import COLUMNS, Workload, is_json, load_workload

if TYPE_CHECKING:
    from hdsim.contention import Contention
    from hdsim.platform import Platform

SCHEDULER = "the scheduler"
#: Events of ``--events`` that Batsim knows, with the NOTIFY each becomes.
_MACHINE_EVENTS = {
    "machine_available": "event_machine_available",
    "machine_unavailable": "event_machine_unavailable",
}


@dataclass(frozen=True)
class Options:
    """Settings of a simulation; named as Batsim's options are.

    Attributes:
        energy: Count energy and let the scheduler set P-states.
        as_batsim: Count energy with SimGrid's artefact.
        forward_profiles: Send the profile along with each submission.
        dynamic_jobs: The scheduler may register jobs.
        acknowledge_dynamic_jobs: Send a submission for each of them.
        profile_reuse: Told to the scheduler; hdsim never forgets a profile.
        forward_unknown_events: Send external events of unknown types to the scheduler rather than refuse them.
        sched_config: Text handed to the scheduler.
        one_event: Never send two events in one message.
    """

    energy: bool = False
    as_batsim: bool = False
    forward_profiles: bool = False
    dynamic_jobs: bool = False
    acknowledge_dynamic_jobs: bool = False
    profile_reuse: bool = False
    forward_unknown_events: bool = False
    sched_config: str = ""
    one_event: bool = False


@dataclass(frozen=True)
class JobFile:
    """A workload as its file states it.

    Attributes:
        path: As the user named it.
        content: The JSON object; a trace in another format is turned into one.
        jobs: The jobs of it, in the order of the file.
    """

    path: str
    content: Mapping[str, Any]
    jobs: RawJobs


def read_jobs(path: str | Path, platform: Platform, name: str | None = None) -> JobFile:
    """Reads a workload.

    Args:
        path: Batsim's JSON, or any trace that hdsim reads.
        platform: Its reference speed turns operations into seconds.
        name: What the scheduler is told as the path, by default the path.

    Raises:
        WorkloadError: It cannot be read or has faults.
    """
    content = read_document(path)[0] if is_json(path) else to_batsim(load_workload(path))
    jobs = jobs_of(content, str(path), platform.reference_gflops)
    raise_faults(jobs.errors, path)
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
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"expected a readable file of events: {error}", where=str(path)) from None
    events = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            event = json.loads(line)
        except ValueError as error:
            raise ConfigError(f"expected JSON: {error}", where=f"{path}:{number}") from None
        known = isinstance(event, dict) and isinstance(event.get("type"), str)
        when = event.get("timestamp") if known else None
        if isinstance(when, bool) or not isinstance(when, int | float) or not 0 <= when < math.inf:
            raise ConfigError(
                f"expected an object with a 'type' and a 'timestamp' of at least 0 s, got {line.strip()[:80]}",
                where=f"{path}:{number}",
            )
        events.append(event)
    return sorted(events, key=lambda event: float(event["timestamp"]))


class Server:
    """A simulation that a scheduler drives by messages.

    Attributes:
        record: What has happened so far.
        cluster: State of the simulation.

    Args:
        hosts: The hosts.
        files: The workloads, named w0, w1 ... in this order.
        options: Settings.
        contention: Contention model, or None.
        events: External events, in order of time; None when the user has none to offer.

    Raises:
        HdsimError: A workload has no job, or an option does not suit the platform or the events.
    """

    def __init__(
        self,
        hosts: Hosts,
        files: Sequence[JobFile],
        options: Options | None = None,
        *,
        contention: Contention | None = None,
        events: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        self._hosts = hosts
        self._options = options = options or Options()
        self._files = files
        self._profiles: dict[str, dict[str, Any]] = {}
        self._ids: list[str] = []
        self._documents: list[Mapping[str, Any]] = []
        workload = self._join(files)
        self._static = len(workload)
        self._row = {job_id: row for row, job_id in enumerate(self._ids)}
        if contention is not None and not contention.applies(workload) and not options.dynamic_jobs:
            contention = None
        self.cluster = GrowingCluster(hosts.platform, workload, needs_processors=contention is not None)
        share = None
        if options.energy or (hosts.initial.any() and not hosts.ruled):
            share = hosts.speed[np.arange(len(hosts)), hosts.initial]
            if hosts.ruled:
                share = np.ones(len(hosts))
        self._backend = HostBackend(hosts.platform, workload, self.cluster, contention=contention, share=share)
        self._meter = Meter(hosts, as_batsim=options.as_batsim) if options.energy else None
        self.record = Record(len(hosts), energy=options.energy)
        self.record.begin(hosts.initial)
        self._submission: list[float] = workload.submission_time.tolist()
        self._walltime: list[float] = workload.walltime.tolist()
        self._return_code: list[int] = workload.return_code.tolist()
        self._alloc: dict[int, list[int]] = {}
        self._held: dict[int, NDArray[np.int64]] = {}
        self._joules: dict[int, float] = {}
        self._unavailable: set[int] = set()
        self._external = [self._checked(event) for event in events or ()]
        self._external.reverse()
        self._has_external = events is not None
        self.cluster.calls += [float(event["timestamp"]) for event in self._external]
        self._calls: list[float] = []
        self._kills: list[tuple[list[str], dict[str, Any]]] = []
        self._pending: list[Event] = []
        self._later: list[Event] = []
        self._told = 0.0
        self._open = 0
        self._unsubmitted = self._static
        self._registering = options.dynamic_jobs
        self._ended = False
        self._decisions: dict[str, Callable[[Mapping[str, Any]], None]] = {
            "EXECUTE_JOB": self._execute,
            "REJECT_JOB": self._reject,
            "KILL_JOB": self._kill,
            "CALL_ME_LATER": self._call_later,
            "SET_RESOURCE_STATE": self._set_state,
            "QUERY": self._query,
            "REGISTER_PROFILE": self._register_profile,
            "REGISTER_JOB": self._register_job,
            "SET_JOB_METADATA": self._set_metadata,
            "NOTIFY": self._notified,
        }

    def _join(self, files: Sequence[JobFile]) -> Workload:
        """One workload of all files, in order of submission, in the clock of the files."""
        if not files:
            raise WorkloadError("expected at least one workload, got none")
        columns: dict[str, list[np.ndarray]] = {}
        origins = []
        for number, file in enumerate(files):
            name = f"w{number}"
            jobs = file.jobs
            for key, column in jobs.columns.items():
                columns.setdefault(key, []).append(column)
            used = dict.fromkeys(jobs.columns["profile"].tolist())
            self._profiles[name] = {profile: jobs.profiles[profile] for profile in used}
            origins += [(name, document) for document in file.content["jobs"]]
        joined: dict[str, Any] = {key: np.concatenate(parts) for key, parts in columns.items()}
        order = np.argsort(joined["submission_time"], kind="stable")
        for row in order.tolist():
            name, document = origins[row]
            self._ids.append(f"{name}{SEPARATOR}{document['id']}")
            self._documents.append({**document, "id": self._ids[-1]})
        joined = {key: column[order] for key, column in joined.items() if key in COLUMNS}
        joined["memory"] = np.zeros(len(order))  # Batsim does not know memory
        joined["job_id"] = np.array(self._ids, object)
        workload = Workload.from_columns(**joined, source=", ".join(file.path for file in files))
        return workload.replaced(submission_time=joined["submission_time"])

    def _checked(self, event: Mapping[str, Any]) -> Mapping[str, Any]:
        kind = event["type"]
        if kind not in _MACHINE_EVENTS and not self._options.forward_unknown_events:
            raise ConfigError(
                f"unknown event '{kind}'; allowed: {', '.join(_MACHINE_EVENTS)}, or any with --forward-unknown-events",
                where="--events",
            )
        if kind in _MACHINE_EVENTS:
            try:
                parse_hosts(str(event.get("resources")), len(self._hosts))
            except BackendError as error:
                raise ConfigError(f"{kind} at {event['timestamp']}: resources: {error}", where="--events") from None
        return event

    # Messages

    def begin(self) -> str:
        """The first message."""
        hosts, options = self._hosts, self._options
        resources = [
            {"id": row, "name": name, "state": "idle", "properties": dict(own), "zone_properties": dict(zone)}
            for row, (name, own, zone) in enumerate(
                zip(hosts.names, hosts.properties, hosts.zone_properties, strict=True)
            )
        ]
        data = {
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
            "workloads": {f"w{number}": file.path for number, file in enumerate(self._files)},
            "profiles": {name: dict(profiles) for name, profiles in self._profiles.items()},
        }
        return format_message(0.0, [Event(0.0, "SIMULATION_BEGINS", data)])

    def answer(self, reply: str | bytes) -> str | None:
        """Carries out a reply of the scheduler and simulates until there is something to tell.

        Returns:
            The next message, or None after the reply to the last one.

        Raises:
            BackendError: The reply is malformed or asks for something impossible, or the scheduler leaves the
                simulation with nothing that could happen.
        """
        message = parse_message(reply, FROM_SCHEDULER, sender=SCHEDULER, clock=self._told)
        if self._ended:
            return None
        self._pending += self._later
        self._later.clear()
        for index, (timestamp, kind, data) in enumerate(message.events):
            self._sleep(timestamp)
            try:
                self._decisions[kind](data)
            except (BackendError, DecisionError, WorkloadError) as error:
                where = f"{SCHEDULER} at {timestamp:.6f}: events[{index}] {kind}"
                raise BackendError(str(error), where=where) from None
        self._sleep(message.now)
        return self._next()

    def _next(self) -> str:
        """Simulates until something is to be told, and tells it."""
        self._backend.apply()
        if self._kills:
            self._go_on()
        while not self._pending:
            if self._is_over():
                self._pending.append(Event(self._now(), "SIMULATION_ENDS"))
                self._ended = True
            elif not self._go_on():
                raise self._stuck()
        count = 1 if self._options.one_event else len(self._pending)
        events, self._pending = self._pending[:count], self._pending[count:]
        now = self._now()
        self._told = float(f"{now:.6f}")
        return format_message(now, events)

    def _now(self) -> float:
        return self.cluster.now

    def _sleep(self, until: float) -> None:
        """Simulates until a time that the scheduler has chosen for a decision."""
        cluster = self.cluster
        # The scheduler knows times of six decimals only.
        if until <= self._told or until <= cluster.now:
            return
        cluster.call_me_later(until)
        self._backend.apply()
        while cluster.now < until:
            self._go_on()
            self._backend.apply()

    def _is_over(self) -> bool:
        return not (self._open or self._unsubmitted or self._registering or self._external or self._calls)

    def _stuck(self) -> BackendError:
        if self._open:
            waiting = [self._ids[job] for job in self.cluster.queue]
            shown = ", ".join(waiting[:5]) + (", ..." if len(waiting) > 5 else "")
            message = f"nothing is left to happen, but {len(waiting)} jobs are neither executed nor rejected: {shown}"
        else:
            message = "nothing is left to happen; expected a NOTIFY registration_finished, as dynamic jobs are enabled"
        return BackendError(message, where=f"{SCHEDULER} at {self._now():.6f}")

    # From the engine

    def _go_on(self) -> bool:
        """Simulates one instant and notes what to tell of it; False when nothing is left to happen."""
        cluster = self.cluster
        clock = cluster.now
        if not self._backend.advance():
            # What was cancelled on the way has moved the clock, but did not happen.
            cluster.now = clock
            return False
        now, pending = cluster.now, self._pending
        for job in cluster.ended:
            self._complete(job, now)
        for job_ids, progress in self._kills:
            pending.append(Event(now, "JOB_KILLED", {"job_ids": job_ids, "job_progress": progress}))
        self._kills.clear()
        for job in cluster.submitted:
            pending.append(self._submitted(job, now))
        if cluster.submitted:
            self._unsubmitted -= len(cluster.submitted)
            if not self._unsubmitted:
                self._later.append(Event(now, "NOTIFY", {"type": "no_more_static_job_to_submit"}))
        while self._calls and self._calls[0] <= now:
            heapq.heappop(self._calls)
            pending.append(Event(now, "REQUESTED_CALL"))
        while self._external and self._external[-1]["timestamp"] <= now:
            self._happen(self._external.pop(), now)
        return True

    def _submitted(self, job: int, now: float) -> Event:
        document = self._documents[job]
        data: dict[str, Any] = {"job_id": self._ids[job], "job": document}
        if self._options.forward_profiles:
            data["profile"] = self._profiles[split_job_id(self._ids[job])[0]][document["profile"]]
        self._open += 1
        self.record.submitted += 1
        return Event(now, "JOB_SUBMITTED", data)

    def _complete(self, job: int, now: float) -> None:
        self._open -= 1
        cluster, record, meter = self.cluster, self.record, self._meter
        state = FinalState(cluster.state[job])
        hosts = self._alloc.pop(job)
        alloc = format_hosts(hosts)
        held = self._held.pop(job)
        joules = -1.0
        if meter is not None:
            total = meter.read(now)
            joules = meter.joules(held, now) - self._joules.pop(job)
            meter.set_load(held, 0.0, now, busy=False)
            record.energy(now, total, "e", meter.least_watts)
        start, job_id = cluster.starting_time[job], self._ids[job]
        record.end(now, held, job_id, self._job_row(job, state, start, now, alloc, joules))
        code = RETURN_CODES.get(state, self._return_code[job])
        data = {"job_id": job_id, "job_state": state.name, "return_code": code, "alloc": alloc}
        self._pending.append(Event(now, "JOB_COMPLETED", data))

    def _job_row(self, job: int, state: FinalState, *ended: Any) -> JobRow:
        workload, own = split_job_id(self._ids[job])
        size, submission, walltime = self.cluster.size[job], self._submission[job], self._walltime[job]
        return JobRow(own, workload, self._documents[job]["profile"], submission, size, walltime, state, *ended)

    def _happen(self, event: Mapping[str, Any], now: float) -> None:
        """An external event."""
        kind = event["type"]
        data = {key: value for key, value in event.items() if key not in ("timestamp", "type")}
        if kind in _MACHINE_EVENTS:
            hosts = parse_hosts(event["resources"], len(self._hosts))
            there = kind == "machine_available"
            (self._unavailable.difference_update if there else self._unavailable.update)(hosts)
            self.record.available(now, hosts, there=there)
            data["resources"] = format_hosts(hosts)
        self._pending.append(Event(now, "NOTIFY", {"type": _MACHINE_EVENTS.get(kind, kind), **data}))
        if not self._external:
            self._later.append(Event(now, "NOTIFY", {"type": "no_more_external_event_to_occur"}))

    # From the scheduler

    def _known(self, job_id: str) -> int:
        job = self._row.get(job_id)
        if job is None:
            raise BackendError(f"unknown job '{job_id}'")
        return job

    def _execute(self, data: Mapping[str, Any]) -> None:
        for key in ("mapping", "storage_mapping", "additional_io_job"):
            if data.get(key):
                raise BackendError(f"data.{key} is not supported; allowed: job_id and alloc")
        job = self._known(data["job_id"])
        hosts = parse_hosts(data["alloc"], len(self._hosts))
        away = self._unavailable.intersection(hosts)
        if away:
            raise BackendError(f"job {data['job_id']}: expected available hosts, got {format_hosts(sorted(away))}")
        cluster, meter = self.cluster, self._meter
        now = cluster.now
        cluster.start_on(job, hosts)
        # Batsim's files are written from the record; the cluster need not remember.
        cluster.placements.clear()
        self._alloc[job] = hosts
        held = self._held[job] = cluster.running[job].cores
        self._backend.apply()
        if meter is not None:
            total = meter.read(now)
            self._joules[job] = meter.joules(held, now)
            record_watts = meter.least_watts
            assert self._backend.pstates is not None
            meter.set_load(held, self._backend.pstates.loads(job), now, busy=True)
            self.record.energy(now, total, "s", record_watts)
        self.record.start(now, held)

    def _reject(self, data: Mapping[str, Any]) -> None:
        job = self._known(data["job_id"])
        self.cluster.reject(job)
        self._open -= 1
        self.record.reject(data["job_id"], self._job_row(job, FinalState.REJECTED))

    def _kill(self, data: Mapping[str, Any]) -> None:
        progress = {}
        job_ids = data["job_ids"]
        for job_id in job_ids:
            job = self._known(job_id) if isinstance(job_id, str) else -1
            if job < 0:
                raise BackendError(f"data.job_ids: expected job ids, got {job_ids}")
            if FinalState(self.cluster.state[job]).name.startswith("COMPLETED"):
                continue
            self.cluster.kill(job)
            share = self._backend.done(job)
            progress[job_id] = {"profile_name": self._documents[job]["profile"], "progress": share}
        if progress:
            self._kills.append((job_ids, progress))
        else:
            # All have completed in the meantime.
            self._pending.append(Event(self._now(), "JOB_KILLED", {"job_ids": job_ids, "job_progress": {}}))

    def _call_later(self, data: Mapping[str, Any]) -> None:
        date = data["timestamp"]
        if not self._told <= date < LATEST:
            reason = ": time goes back" if date < self._told else ""
            raise BackendError(f"data.timestamp: expected at least {self._told:.6f}, got {str(date)[:80]}{reason}")
        if date <= self._now():
            self._pending.append(Event(self._now(), "REQUESTED_CALL"))
        else:
            heapq.heappush(self._calls, date)
            self.cluster.call_me_later(date)

    def _need_energy(self) -> Meter:
        if self._meter is None:
            raise BackendError("P-states and energy need the option -E (--energy)")
        return self._meter

    def _set_state(self, data: Mapping[str, Any]) -> None:
        meter, pstates, now = self._need_energy(), self._backend.pstates, self._now()
        assert pstates is not None
        hosts = np.array(parse_hosts(data["resources"], len(self._hosts)), np.int64)
        if not len(hosts):
            raise BackendError("data.resources: expected at least one host, got none")
        text = data["state"]
        least = int(self._hosts.n_states[hosts].min())
        if not (text.isdecimal() and int(text) < least):
            raise BackendError(f"data.state: expected a P-state from 0 to {least - 1}, got '{text}'")
        state = int(text)
        self._backend.apply()
        self.record.energy(now, meter.read(now), "p", meter.least_watts)
        jobs = pstates.set_share(hosts, self._hosts.speed[hosts, state])
        meter.set_state(hosts, state, now)
        for job in jobs:
            meter.set_load(self.cluster.running[job].cores, pstates.loads(job), now, busy=True)
        self.record.energy(now, meter.read(now), "p", meter.least_watts)
        self.record.switch(now, hosts.tolist(), state)
        answer = {"resources": format_hosts(hosts.tolist()), "state": text}
        self._pending.append(Event(now, "RESOURCE_STATE_CHANGED", answer))

    def _query(self, data: Mapping[str, Any]) -> None:
        requests = data["requests"]
        for request in requests:
            if request != "consumed_energy":
                raise BackendError(f"data.requests: unknown query '{request}'; allowed: consumed_energy")
        if requests:
            now = self._now()
            self._pending.append(Event(now, "ANSWER", {"consumed_energy": self._need_energy().read(now)}))

    def _need_dynamic(self) -> None:
        if not self._options.dynamic_jobs:
            raise BackendError("jobs and profiles can be registered with the option --enable-dynamic-jobs only")

    def _register_profile(self, data: Mapping[str, Any]) -> None:
        self._need_dynamic()
        profiles = self._profiles.setdefault(data["workload_name"], {})
        if profiles.setdefault(data["profile_name"], data["profile"]) != data["profile"]:
            raise BackendError(f"profile '{data['profile_name']}' of '{data['workload_name']}' is another already")

    def _register_job(self, data: Mapping[str, Any]) -> None:
        self._need_dynamic()
        if not self._registering:
            raise BackendError("expected no job after NOTIFY registration_finished")
        job_id, document = data["job_id"], data["job"]
        name, own = split_job_id(job_id)
        if job_id in self._row:
            raise BackendError(f"job '{job_id}' exists already")
        content = {
            "jobs": [{**document, "id": own, "subtime": self._now()}],
            "profiles": self._profiles.get(name, {}),
        }
        raw = jobs_of(content, job_id, self._hosts.platform.reference_gflops)
        raise_faults(raw.errors, job_id)
        columns: dict[str, Any] = {key: column for key, column in raw.columns.items() if key in COLUMNS}
        workload = Workload.from_columns(**columns, source=job_id)
        job = self._backend.add(workload)
        self._row[job_id] = job
        self._ids.append(job_id)
        self._documents.append({**document, "id": job_id})
        self._submission.append(self._now())
        self._walltime += workload.walltime.tolist()
        self._return_code += workload.return_code.tolist()
        self.cluster.submit(job)
        event = self._submitted(job, self._now())
        if self._options.acknowledge_dynamic_jobs:
            self._pending.append(event)

    def _set_metadata(self, data: Mapping[str, Any]) -> None:
        self._known(data["job_id"])
        self.record.metadata[data["job_id"]] = data["metadata"]

    def _notified(self, data: Mapping[str, Any]) -> None:
        kind = data["type"]
        if kind not in ("registration_finished", "continue_registration"):
            raise BackendError(f"data.type: unknown '{kind}'; allowed: registration_finished, continue_registration")
        self._need_dynamic()
        self._registering = kind == "continue_registration"


def converse(server: Server, exchange: Callable[[str], str | bytes], tell: Callable[[], object] | None = None) -> None:
    """Lets a scheduler drive a simulation to its end.

    Args:
        server: The simulation.
        exchange: Sends a message to the scheduler and returns its reply.
        tell: Called after each reply.

    Raises:
        BackendError: See :meth:`Server.answer`, and whatever `exchange` raises.
    """
    message: str | None = server.begin()
    while message is not None:
        message = server.answer(exchange(message))
        if tell:
            tell()


class SchedulerSocket:
    """The REQ socket to a scheduler, to be used in a ``with`` statement.

    Attributes:
        waited: s of real time spent on waiting for replies.

    Args:
        endpoint: Where the scheduler has bound its REP socket, or will.
        timeout: s of real time that each reply may take.

    Raises:
        ConfigError: The endpoint is none.
    """

    def __init__(self, endpoint: str, timeout: float) -> None:
        self.waited = 0.0
        self._endpoint, self._timeout = endpoint, timeout
        self._peer: zmtp.Peer | None = None
        try:
            self._address = zmtp.parse_endpoint(endpoint)
        except ValueError as error:
            raise self._no_endpoint(error) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._peer is not None:
            self._peer.close()

    def exchange(self, message: str) -> bytes:
        """Sends a message and waits for the reply.

        Raises:
            BackendError: No reply came in time, or none will come.
            ConfigError: The endpoint is none.
        """
        begin = time.perf_counter()
        try:
            peer = self._peer or self._connect()
            peer.send(message.encode("utf-8", "replace"))
            frames = peer.receive()
        except (BlockingIOError, TimeoutError):
            silent = f"has been silent for {self._timeout:g} s: it does not run, is stuck, or needs a longer --timeout"
            raise self._fault(silent, message) from None
        except zmtp.ProtocolError as error:
            raise self._fault(f"speaks another protocol: {error}", message) from None
        except ConnectionError:
            raise self._fault("has ended or was killed: it has closed the connection", message) from None
        if len(frames) > 1:
            raise self._fault(f"expected to reply in one frame, got {len(frames)}", message)
        self.waited += time.perf_counter() - begin
        return frames[0]

    def _connect(self) -> zmtp.Peer:
        try:
            peer = zmtp.connect(self._address, self._timeout)
        except socket.gaierror as error:
            raise self._no_endpoint(error) from None
        peer.set_patience(receive=self._timeout, send=self._timeout)
        self._peer = peer
        return peer

    def _no_endpoint(self, error: Exception) -> ConfigError:
        return ConfigError(
            f"expected an endpoint such as {DEFAULT_ENDPOINT}, got '{self._endpoint}': {error}", where="-s"
        )

    def _fault(self, what: str, message: str) -> BackendError:
        return BackendError(f"{SCHEDULER} {what}; the last message to it was {message[:120]}", where=self._endpoint)
