"""Options, workloads and external events of a simulation in Batsim's place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hdsim.backends.batsim.hosts import Hosts
from hdsim.backends.batsim.protocol import parse_hosts
from hdsim.errors import BackendError, ConfigError, WorkloadError
from hdsim.util.inputs import parse_json, read_text
from hdsim.util.units import LONGEST_TIME
from hdsim.workload.batsim_json import jobs_of, read_document, to_batsim
from hdsim.workload.load import is_json, load_workload
from hdsim.workload.raw import RawJobs, raise_faults

if TYPE_CHECKING:
    from hdsim.platform.model import Platform

#: Types of external events in Batsim, with the type of the NOTIFY of each.
MACHINE_EVENTS = {
    "machine_available": "event_machine_available",
    "machine_unavailable": "event_machine_unavailable",
}


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
