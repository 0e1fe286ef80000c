"""Options, workloads and external events of a simulation in Batsim's place."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hdsim.errors import ConfigError, WorkloadError
from hdsim.workload.batsim_json import jobs_of, read_document, to_batsim
from hdsim.workload.load import is_json, load_workload
from hdsim.workload.raw import RawJobs, raise_faults

if TYPE_CHECKING:
    from hdsim.platform.model import Platform


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
    asking = np.flatnonzero(jobs.columns["requested_gpus"])
    if len(asking):
        where = jobs.where(int(asking[0]), "requested_gpus")
        raise WorkloadError("expected jobs without GPUs, which schedulers for Batsim do not know", where=where)
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
