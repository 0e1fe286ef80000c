"""hdsim in Batsim's place: recorded and made-up conversations, impossible decisions, real schedulers, sudden deaths."""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import os
import random
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st
from spoiling import spoilt
from tiers import ci, examples

import hdsim
from hdsim.backends.batsim.hosts import hosts_of, load_hosts, read_xml
from hdsim.backends.batsim.inputs import JobFile, Options, read_events, read_jobs
from hdsim.backends.batsim.output import JobOutcome, JobRow
from hdsim.backends.batsim.protocol import FROM_BATSIM, parse_hosts, parse_message
from hdsim.backends.batsim.server import BatsimServer
from hdsim.backends.batsim.zeromq import serve
from hdsim.cluster import invariants
from hdsim.cluster.state import FinalState
from hdsim.errors import BackendError, ConfigError, PlatformError, WorkloadError
from hdsim.platform.simgrid import to_xml
from hdsim.simulation.setup import make_model
from hdsim.util.intervals import format_interval_set
from hdsim.workload.batsim_json import jobs_of, write_batsim
from hdsim.workload.generators import lublin
from hdsim.workload.model import COLUMNS

ROOT = Path(__file__).resolve().parents[2]
SCHEDULERS = Path(__file__).resolve().parents[1] / "batsim_schedulers"
FOUR = hdsim.Platform.homogeneous(nodes=4, cores_per_node=1, gflops_per_core=1.0)
#: Real seconds and versions, which no two runs share.
NOT_SIMULATED = {"batsim_version", "scheduling_time", "simulation_time"}

Event = dict[str, Any]
Scheduler = Callable[[dict[str, Any]], list[Event]]


# Recorded conversations


def recorded_server(shared_data: Path, name: str) -> tuple[BatsimServer, list[dict[str, Any]]]:
    folder = shared_data / "batsim_runs"
    inputs = folder / "transcript_inputs"
    if name == "transcript":
        platform, jobs = "learning.xml", "tiny.json"
        options = Options(energy=True, as_batsim=True, dynamic_jobs=True, acknowledge_dynamic_jobs=True)
        events = read_events(inputs / "events.txt")
    else:
        platform, jobs, events = "plat4.xml", "tiny2.json", None
        options = Options(forward_profiles=True)
    hosts = load_hosts(inputs / platform)
    file = read_jobs(inputs / jobs, hosts.platform, f"workload/{jobs}")
    lines = [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]
    return BatsimServer(hosts, [file], options, events=events), lines


@pytest.mark.parametrize("name", ["transcript", "transcript-easy"])
def test_recorded_conversations(shared_data: Path, name: str) -> None:
    server, lines = recorded_server(shared_data, name)
    message: str | None = server.begin()
    for line in lines:
        if line["dir"] == "batsim->scheduler":
            assert message is not None
            assert json.loads(message) == line["msg"]
            if line["n"]:  # in the first, Batsim's order of profiles is that of a hash table
                assert message == line["raw"]
        else:
            message = server.answer(line["raw"])
    assert message is None


def rows(path: Path) -> list[dict[str, str]]:
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    return list(csv.DictReader(io.StringIO(text)))


@pytest.mark.parametrize(("name", "outputs"), [("transcript", "probe-outputs"), ("transcript-easy", "easy-outputs")])
def test_files_equal_those_of_batsim(shared_data: Path, tmp_path: Path, name: str, outputs: str) -> None:
    server, lines = recorded_server(shared_data, name)
    for line in lines:
        if line["dir"] != "batsim->scheduler":
            server.answer(line["raw"])
    server.record.write(f"{tmp_path}/out", scheduling_seconds=0.0, wall_seconds=0.0)
    recorded = shared_data / "batsim_runs" / "transcript_inputs" / outputs
    expected = {path.name for path in recorded.glob("*.csv")}
    assert {path.name for path in tmp_path.iterdir()} == expected
    for file in expected:
        if file in ("out_jobs.csv", "out_pstate_changes.csv"):
            assert (tmp_path / file).read_bytes() == (recorded / file).read_bytes()
            continue
        ours, theirs = rows(tmp_path / file), rows(recorded / file)
        assert len(ours) == len(theirs)
        for our, their in zip(ours, theirs, strict=True):
            assert list(our) == list(their)
            for key in set(our) - NOT_SIMULATED:
                if file == "out_machine_states.csv":  # Batsim cuts times to six digits
                    assert float(our[key]) == pytest.approx(float(their[key]), rel=1e-5)
                elif key == "epower" and our[key] == "NA":
                    # Batsim kills and starts jobs a nanosecond after their time and divides by that.
                    assert their[key] == "NA" or our["time"] == ours[ours.index(our) - 1]["time"]
                else:
                    assert our[key] == their[key], (file, key)


def test_energy_without_the_artefact_is_the_true_one(shared_data: Path) -> None:
    server, lines = recorded_server(shared_data, "transcript")
    inputs = shared_data / "batsim_runs" / "transcript_inputs"
    hosts = load_hosts(inputs / "learning.xml")
    file = read_jobs(inputs / "tiny.json", hosts.platform)
    options = Options(energy=True, dynamic_jobs=True, acknowledge_dynamic_jobs=True)
    server = BatsimServer(hosts, [file], options, events=read_events(inputs / "events.txt"))
    answers = []
    for line in lines:
        if line["dir"] != "batsim->scheduler":
            message = server.answer(line["raw"])
            answers += [
                event for event in json.loads(message or '{"events": []}')["events"] if event["type"] == "ANSWER"
            ]
    # 9 W asleep; host 3 computes from 1.5 s on at 50 W and stays in P-state 0, host 2 does from 5 s to 6 s.
    assert answers[0]["data"] == {"consumed_energy": pytest.approx(9 * 6 + 47.5 * 4.5 + 47.5 * 1)}


# Conversations with a scheduler of one's own


def job_file(jobs: Sequence[Mapping[str, Any]], profiles: Mapping[str, Any], gflops: float = 1.0) -> JobFile:
    content = {"nb_res": 4, "jobs": [dict(job) for job in jobs], "profiles": dict(profiles)}
    return JobFile("jobs.json", content, jobs_of(content, "jobs.json", gflops))


def delays(*jobs: tuple[float, float, int], walltime: float | None = None) -> JobFile:
    """Jobs of (submission, delay, hosts)."""
    limit = {} if walltime is None else {"walltime": walltime}
    return job_file(
        [
            {"id": n, "subtime": when, "res": size, "profile": f"d{n}", **limit}
            for n, (when, _, size) in enumerate(jobs)
        ],
        {f"d{n}": {"type": "delay", "delay": delay} for n, (_, delay, _) in enumerate(jobs)},
    )


def talk(server: BatsimServer, scheduler: Scheduler) -> list[dict[str, Any]]:
    """Lets a scheduler drive a simulation; returns all messages to it."""
    told = []

    def exchange(message: str) -> str:
        told.append(json.loads(message))
        events = scheduler(told[-1])
        now = max([told[-1]["now"], *(event["timestamp"] for event in events)])
        return json.dumps({"now": now, "events": events})

    serve(server, exchange)
    return told


def event(message: Mapping[str, Any], kind: str, at: float | None = None, **data: Any) -> Event:
    return {"timestamp": message["now"] if at is None else at, "type": kind, "data": data}


def scripted(*replies: Callable[[dict[str, Any]], list[Event]] | None) -> Scheduler:
    """A scheduler that answers the n-th message by the n-th function, and with nothing after the last."""
    left = list(replies)

    def scheduler(message: dict[str, Any]) -> list[Event]:
        reply = left.pop(0) if left else None
        return reply(message) if reply else []

    return scheduler


def execute(job: str, alloc: str, at: float | None = None) -> Callable[[dict[str, Any]], list[Event]]:
    return lambda message: [event(message, "EXECUTE_JOB", at, job_id=job, alloc=alloc)]


class Greedy:
    """Serves jobs first come, first served, on the hosts of the lowest numbers."""

    def __init__(self, hosts: int = 4) -> None:
        self.idle = set(range(hosts))
        self.queue: list[tuple[str, int]] = []

    def __call__(self, message: dict[str, Any]) -> list[Event]:
        for one in message["events"]:
            data = one["data"]
            if one["type"] == "JOB_SUBMITTED":
                self.queue.append((data["job_id"], data["job"]["res"]))
            elif one["type"] == "JOB_COMPLETED":
                self.idle |= set(parse_hosts(data["alloc"], 10**6))
        events = []
        while self.queue and self.queue[0][1] <= len(self.idle):
            job, size = self.queue.pop(0)
            given = sorted(self.idle)[:size]
            self.idle -= set(given)
            events.append(event(message, "EXECUTE_JOB", job_id=job, alloc=format_interval_set(given)))
        return events


def times(server: BatsimServer, tmp_path: Path) -> dict[str, dict[str, str]]:
    server.record.write(f"{tmp_path}/out", scheduling_seconds=0.0, wall_seconds=0.0)
    return {row["job_id"]: row for row in rows(tmp_path / "out_jobs.csv")}


def told(messages: Sequence[Mapping[str, Any]], kind: str) -> list[Event]:
    return [one for message in messages for one in message["events"] if one["type"] == kind]


def test_a_delay_equal_to_the_walltime_reaches_it() -> None:
    messages = talk(BatsimServer(hosts_of(FOUR), [delays((0, 10, 1), (0, 9, 1), walltime=10)]), Greedy())
    ends = {one["data"]["job_id"]: (one["timestamp"], one["data"]) for one in told(messages, "JOB_COMPLETED")}
    assert ends["w0!0"][0] == 10
    assert (ends["w0!0"][1]["job_state"], ends["w0!0"][1]["return_code"]) == ("COMPLETED_WALLTIME_REACHED", -1)
    assert (ends["w0!1"][1]["job_state"], ends["w0!1"][1]["return_code"]) == ("COMPLETED_SUCCESSFULLY", 0)


@pytest.mark.parametrize("energy", [False, True])
@pytest.mark.parametrize(
    ("profile", "state"),
    [
        ({"type": "delay", "delay": 10}, "COMPLETED_WALLTIME_REACHED"),
        ({"type": "parallel_homogeneous", "cpu": 10e9, "com": 0}, "COMPLETED_SUCCESSFULLY"),
        ({"type": "parallel_homogeneous_total", "cpu": 20e9, "com": 0}, "COMPLETED_SUCCESSFULLY"),
        ({"type": "parallel", "cpu": [10e9, 5e9], "com": [0] * 4}, "COMPLETED_SUCCESSFULLY"),
        ({"type": "composed", "seq": ["compute", "wait"]}, "COMPLETED_WALLTIME_REACHED"),
        ({"type": "composed", "seq": ["wait", "compute"]}, "COMPLETED_SUCCESSFULLY"),
    ],
)
def test_a_walltime_equal_to_the_run_time(profile: dict[str, Any], state: str, energy: bool) -> None:
    """A computation completes, a delay reaches the walltime, as in Batsim 4.2.1."""
    half = {"compute": {"type": "parallel_homogeneous", "cpu": 5e9, "com": 0}, "wait": {"type": "delay", "delay": 5}}
    file = job_file([{"id": 0, "subtime": 0, "res": 2, "profile": "p", "walltime": 10}], {"p": profile, **half})
    messages = talk(BatsimServer(hosts_of(FOUR), [file], Options(energy=energy)), Greedy())
    ends = [(one["timestamp"], one["data"]["job_state"]) for one in told(messages, "JOB_COMPLETED")]
    assert ends == [(10, state)]


def test_decisions_of_later_dates_are_carried_out_then(tmp_path: Path) -> None:
    """What happens while the scheduler thinks is told when it has finished."""

    def slow(message: dict[str, Any]) -> list[Event]:
        submitted = [one["data"]["job_id"] for one in message["events"] if one["type"] == "JOB_SUBMITTED"]
        return [event(message, "EXECUTE_JOB", message["now"] + 3, job_id=job, alloc=job[-1]) for job in submitted]

    server = BatsimServer(hosts_of(FOUR), [delays((0, 10, 1), (2, 10, 1), (4, 10, 1))])
    messages = talk(server, slow)
    assert [(m["now"], [(e["type"], e["timestamp"]) for e in m["events"]]) for m in messages[1:4]] == [
        (0.0, [("JOB_SUBMITTED", 0.0)]),
        (3.0, [("JOB_SUBMITTED", 2.0)]),
        (6.0, [("JOB_SUBMITTED", 4.0), ("NOTIFY", 4.0)]),
    ]
    assert [row["starting_time"] for row in times(server, tmp_path).values()] == ["3.000000", "6.000000", "9.000000"]


def test_the_note_of_the_last_submission_while_the_scheduler_thinks() -> None:
    """It stands behind the submission, in the message that has it, as in Batsim."""

    def slow(message: dict[str, Any]) -> list[Event]:
        submitted = [one["data"]["job_id"] for one in message["events"] if one["type"] == "JOB_SUBMITTED"]
        return [event(message, "EXECUTE_JOB", message["now"] + 5, job_id=job, alloc=job[-1]) for job in submitted]

    messages = talk(BatsimServer(hosts_of(FOUR), [delays((0, 4, 1), (2, 9, 1), (3, 9, 1), (30, 1, 1))]), slow)
    last = next(message for message in messages if any(one["timestamp"] == 30 for one in message["events"]))
    assert [one["type"] for one in last["events"]] == ["JOB_SUBMITTED"]
    messages = talk(BatsimServer(hosts_of(FOUR), [delays((0, 4, 1), (2, 9, 1), (3, 9, 1))]), slow)
    assert messages[2]["now"] == 5
    assert [(one["type"], one["timestamp"]) for one in messages[2]["events"]] == [
        ("JOB_SUBMITTED", 2),
        ("JOB_SUBMITTED", 3),
        ("NOTIFY", 3),
    ]


def test_makespan_and_energy_of_the_schedule(tmp_path: Path) -> None:
    """As in Batsim: the makespan from 0, the joules from the first submission to the last completion."""
    hosts = read_xml(TWO_STATES.encode(), "p.xml")
    jobs = [{"id": n, "subtime": 5 + n, "res": 1, "profile": "work"} for n in range(2)]
    file = job_file(jobs, NESTED, hosts.platform.reference_gflops)
    server = BatsimServer(hosts, [file], Options(energy=True))

    def ask(message: dict[str, Any]) -> list[Event]:
        return [event(message, "CALL_ME_LATER", timestamp=50)]

    talk(server, scripted(ask, execute("w0!0", "0"), execute("w0!1", "1")))
    server.record.write(f"{tmp_path}/out", scheduling_seconds=0.0, wall_seconds=0.0)
    [row] = rows(tmp_path / "out_schedule.csv")
    # Two jobs of 1 s, one at a time, on three hosts: 60 W with a job, 10 W without.
    assert (row["makespan"], row["consumed_joules"]) == ("7.000000", f"{2 * (60 + 2 * 10):.6f}")


def test_the_makespan_without_jobs_is_0(tmp_path: Path) -> None:
    server = BatsimServer(hosts_of(FOUR), [delays((5094, 5, 1))])
    talk(server, scripted(None, lambda m: [event(m, "REJECT_JOB", job_id="w0!0")]))
    server.record.write(f"{tmp_path}/out", scheduling_seconds=0.0, wall_seconds=0.0)
    assert rows(tmp_path / "out_schedule.csv")[0]["makespan"] == "0.000000"


@pytest.mark.parametrize("key", ["timestamp", "call"])
def test_times_of_a_scheduler_that_rounds_large_numbers(key: str) -> None:
    """At 1e11 s two neighbouring numbers are 0.00002 s apart."""
    begin = 1e11 + 1 / 3

    def rounded(message: dict[str, Any]) -> list[Event]:
        now = message["now"]
        past = now - math.ulp(now) if now else now
        if any(one["type"] == "JOB_SUBMITTED" for one in message["events"]):
            start = event(message, "EXECUTE_JOB", past if key == "timestamp" else now, job_id="w0!0", alloc="0")
            call = event(message, "CALL_ME_LATER", timestamp=past if key == "call" else now)
            return [start, call]
        return []

    server = BatsimServer(hosts_of(FOUR), [delays((begin, 5, 1))])
    talk(server, rounded)
    assert server.cluster.starting_time == pytest.approx([begin], rel=1e-15)
    with pytest.raises(BackendError, match="time goes back"):
        server = BatsimServer(hosts_of(FOUR), [delays((begin, 5, 1))])
        server.begin()
        message = json.loads(server.answer('{"now": 0, "events": []}') or "")
        reject = {"timestamp": math.nextafter(message["now"], 0), "type": "REJECT_JOB", "data": {"job_id": "w0!0"}}
        server.answer(json.dumps({"now": reject["timestamp"], "events": [reject]}))
        server.answer(json.dumps({"now": message["now"] - 0.01, "events": []}))


def test_rounded_times_of_a_scheduler_do_not_delay_jobs(tmp_path: Path) -> None:
    file = delays((0, 1 / 3, 4), (0, 1 / 3, 4), (0, 1 / 3, 4))
    server = BatsimServer(hosts_of(FOUR), [file])
    talk(server, Greedy())
    assert server.cluster.finish_time == pytest.approx([1 / 3, 2 / 3, 1], abs=1e-12)


def test_calls() -> None:
    def ask(message: dict[str, Any]) -> list[Event]:
        return [event(message, "CALL_ME_LATER", timestamp=date) for date in (7.25, 3, 0, 7.25)]

    messages = talk(BatsimServer(hosts_of(FOUR), [delays((5, 1, 1))]), scripted(ask, None, None, execute("w0!0", "0")))
    assert [one["timestamp"] for one in told(messages, "REQUESTED_CALL")] == [0, 3, 7.25, 7.25]
    assert [message["now"] for message in messages] == [0, 0, 3, 5, 5, 6, 7.25, 7.25]


def test_killing_what_has_just_completed() -> None:
    def kill(message: dict[str, Any]) -> list[Event]:
        return [event(message, "KILL_JOB", job_ids=["w0!0"])]

    server = BatsimServer(hosts_of(FOUR), [delays((0, 5, 1), (0, 20, 1))])
    messages = talk(server, scripted(None, lambda m: [*execute("w0!0", "0")(m), *execute("w0!1", "1")(m)], None, kill))
    assert [one["data"] for one in told(messages, "JOB_KILLED")] == [{"job_ids": ["w0!0"], "job_progress": {}}]


def test_progress_of_a_killed_job() -> None:
    def kill(message: dict[str, Any]) -> list[Event]:
        return [event(message, "KILL_JOB", 4.0, job_ids=["w0!0", "w0!1"])]

    server = BatsimServer(hosts_of(FOUR), [delays((0, 5, 1), (0, 20, 1))])
    start = scripted(None, lambda m: [*execute("w0!0", "0")(m), *execute("w0!1", "1")(m)], kill)
    messages = talk(server, start)
    ended = [one["type"] for one in messages[-2]["events"]]
    assert ended == ["JOB_COMPLETED", "JOB_COMPLETED", "JOB_KILLED"]
    progress = messages[-2]["events"][-1]["data"]["job_progress"]
    assert [progress[job]["progress"] for job in ("w0!0", "w0!1")] == pytest.approx([0.8, 0.2])


def test_several_workloads() -> None:
    one, two = delays((1, 1, 1), (4, 1, 1)), delays((0, 1, 2), (2, 1, 2))
    messages = talk(BatsimServer(hosts_of(FOUR), [one, two]), Greedy())
    submitted = [(event["timestamp"], event["data"]["job_id"]) for event in told(messages, "JOB_SUBMITTED")]
    assert submitted == [(0, "w1!0"), (1, "w0!0"), (2, "w1!1"), (4, "w0!1")]
    assert set(messages[0]["events"][0]["data"]["profiles"]) == {"w0", "w1"}


def test_jobs_of_one_time_are_submitted_by_the_text_of_their_ids(tmp_path: Path) -> None:
    """As in Batsim 4.2.1, which compares the texts of ids: w0!10 comes before w0!2."""
    alike = [{"subtime": 0, "res": 1, "profile": "d"}] * 12
    first = job_file([{**job, "id": n} for n, job in enumerate(alike)], {"d": {"type": "delay", "delay": 1}})
    others = {"b": 0, "B": 0, "a": 1, "é": 0, "z": 0}
    second = job_file(
        [{**alike[0], "id": name, "subtime": when} for name, when in others.items()],
        {"d": {"type": "delay", "delay": 1}},
    )
    server = BatsimServer(hosts_of(FOUR), [first, second])
    messages = talk(server, Greedy())
    numbers = ["0", "1", "10", "11", *map(str, range(2, 10))]
    at_once = [*(f"w0!{number}" for number in numbers), "w1!B", "w1!b", "w1!z", "w1!é"]
    assert [one["data"]["job_id"] for one in told(messages, "JOB_SUBMITTED")] == [*at_once, "w1!a"]
    started = [(row["workload_name"], row["job_id"]) for row in rows_by_start(server, tmp_path)]
    assert [f"{workload}!{job}" for workload, job in started] == [*at_once, "w1!a"]


def rows_by_start(server: BatsimServer, tmp_path: Path) -> list[dict[str, str]]:
    """Rows of the jobs in order of their starts, those of one time by host."""
    server.record.write(f"{tmp_path}/out", scheduling_seconds=0.0, wall_seconds=0.0)
    found = rows(tmp_path / "out_jobs.csv")
    return sorted(found, key=lambda row: (float(row["starting_time"]), int(row["allocated_resources"])))


def test_jobs_of_no_time_have_a_slowdown(tmp_path: Path) -> None:
    """A computation of nothing lasts 1e-5 s in Batsim, so that without a wait its slowdown is 1."""
    file = job_file(
        [{"id": 0, "subtime": 0, "res": 1, "profile": "nothing"}, {"id": 1, "subtime": 0, "res": 4, "profile": "d"}],
        {"nothing": {"type": "parallel_homogeneous", "cpu": 0, "com": 0}, "d": {"type": "delay", "delay": 2}},
    )
    server = BatsimServer(hosts_of(FOUR), [file])
    talk(server, Greedy())
    server.record.write(f"{tmp_path}/out", scheduling_seconds=0.0, wall_seconds=0.0)
    assert [row["stretch"] for row in rows(tmp_path / "out_jobs.csv")] == ["1.000000", "1.000000"]
    [schedule] = rows(tmp_path / "out_schedule.csv")
    assert (schedule["mean_slowdown"], schedule["max_slowdown"]) == ("1.000000", "1.000000")


def test_registered_jobs_without_acknowledgement(tmp_path: Path) -> None:
    def register(message: dict[str, Any]) -> list[Event]:
        profile = {"type": "parallel_homogeneous", "cpu": 3e9, "com": 0}
        job = {"id": "w0!0#1", "res": 1, "profile": "p", "walltime": -1, "subtime": 0}
        return [
            event(message, "REGISTER_PROFILE", workload_name="w0", profile_name="p", profile=profile),
            event(message, "REGISTER_JOB", job_id="w0!0#1", job=job),
            event(message, "EXECUTE_JOB", job_id="w0!0#1", alloc="3"),
            event(message, "SET_JOB_METADATA", job_id="w0!0#1", metadata='a "text", quoted'),
            event(message, "NOTIFY", type="registration_finished"),
        ]

    server = BatsimServer(hosts_of(FOUR), [delays((0, 5, 1))], Options(dynamic_jobs=True))
    messages = talk(server, scripted(register, execute("w0!0", "0")))
    assert [one["data"]["job_id"] for one in told(messages, "JOB_SUBMITTED")] == ["w0!0"]
    assert [one["data"]["job_id"] for one in told(messages, "JOB_COMPLETED")] == ["w0!0#1", "w0!0"]
    row = times(server, tmp_path)["0#1"]
    assert (row["finish_time"], row["metadata"], row["workload_name"]) == ("3.000000", 'a "text", quoted', "w0")


def test_acknowledged_jobs_come_with_those_of_the_workload() -> None:
    """In one message, after them, as in Batsim."""

    def register(message: dict[str, Any]) -> list[Event]:
        job = {"id": "dyn!0", "res": 1, "profile": "p", "walltime": -1, "subtime": 0}
        profile = {"type": "delay", "delay": 3}
        return [
            event(message, "REGISTER_PROFILE", workload_name="dyn", profile_name="p", profile=profile),
            event(message, "REGISTER_JOB", job_id="dyn!0", job=job),
            event(message, "NOTIFY", type="registration_finished"),
        ]

    server = BatsimServer(
        hosts_of(FOUR), [delays((0, 5, 1), (8, 5, 1))], Options(dynamic_jobs=True, acknowledge_dynamic_jobs=True)
    )
    greedy, replies = Greedy(), iter([register])

    def scheduler(message: dict[str, Any]) -> list[Event]:
        return next(replies, greedy)(message)

    messages = talk(server, scheduler)
    assert [one["data"]["job_id"] for one in messages[1]["events"]] == ["w0!0", "dyn!0"]
    assert [one["data"]["job_id"] for one in told(messages, "JOB_SUBMITTED")] == ["w0!0", "dyn!0", "w0!1"]


def test_external_events_of_unknown_types() -> None:
    events = [{"type": "ice_age", "timestamp": 2, "degrees": -10}]
    with pytest.raises(ConfigError, match="unknown event 'ice_age'; allowed: machine_available, machine_unavailable"):
        BatsimServer(hosts_of(FOUR), [delays((0, 5, 1))], events=events)
    server = BatsimServer(hosts_of(FOUR), [delays((0, 5, 1))], Options(forward_unknown_events=True), events=events)
    notified = [one["data"] for one in told(talk(server, Greedy()), "NOTIFY")]
    assert {"type": "ice_age", "degrees": -10} in notified
    assert {"type": "no_more_external_event_to_occur"} in notified


def test_one_event_a_message() -> None:
    file = delays((0, 5, 1), (0, 5, 1), (5, 1, 1))
    batched = talk(BatsimServer(hosts_of(FOUR), [file]), Greedy())
    single = talk(BatsimServer(hosts_of(FOUR), [file], Options(one_event=True)), Greedy())
    assert max(len(message["events"]) for message in batched) == 3
    assert {len(message["events"]) for message in single} == {1}
    assert sorted(map(str, told(batched, "JOB_COMPLETED"))) == sorted(map(str, told(single, "JOB_COMPLETED")))


# P-states, energy and contention


def test_pstates_change_the_speed_of_running_jobs(shared_data: Path) -> None:
    """4e9 operations: 1 s at 4.4 Gf, 0.0606 s at 3.3 Gf... and a delay, which does not care."""
    hosts = load_hosts(shared_data / "batsim_runs" / "transcript_inputs" / "learning.xml")
    gflops = hosts.platform.reference_gflops
    profiles = {"cpu": {"type": "parallel_homogeneous", "cpu": 8.8e9, "com": 0}, "wait": {"type": "delay", "delay": 2}}
    file = job_file(
        [{"id": 0, "subtime": 0, "res": 2, "profile": "cpu"}, {"id": 1, "subtime": 0, "res": 1, "profile": "wait"}],
        profiles,
        gflops,
    )

    def state(message: dict[str, Any], resources: str, number: int, at: float) -> Event:
        return event(message, "SET_RESOURCE_STATE", at, resources=resources, state=str(number))

    def start(message: dict[str, Any]) -> list[Event]:
        return [
            state(message, "1-3", 0, 0),
            *execute("w0!0", "2-3")(message),
            *execute("w0!1", "1")(message),
            state(message, "3", 1, 1),  # 4.4e9 operations are done; the slowest host counts
            state(message, "1", 3, 1),
        ]

    messages = talk(BatsimServer(hosts, [file], Options(energy=True)), scripted(None, start))
    ends = {one["data"]["job_id"]: one["timestamp"] for one in told(messages, "JOB_COMPLETED")}
    assert ends == {"w0!1": 2.0, "w0!0": pytest.approx(1 + 4.4 / 3.3, abs=1e-6)}


@pytest.mark.parametrize("contention", ["none", "threshold"])
def test_energy_follows_the_rule_of_pstates_until_they_are_set(contention: str) -> None:
    """A scheduler that cares for no P-state gets the energy of hdsim's own replay."""
    platform = hdsim.load_platform(ROOT / "platforms" / "teaching.json")
    workload = lublin.generate(60, 3, platform.n_cores).replaced(memory_bandwidth=12.0)
    workload = workload.replaced(original_submission_time=workload.submission_time)
    result = hdsim.simulate(platform, workload, agent="fcfs", contention=contention)
    server = replayed(platform, result, contention, Options(energy=True))
    assert [outcome.finish for outcome in server.record.jobs] == pytest.approx(sorted(result.finish_time), rel=1e-9)
    joules = server._meter.read(result.end_time)  # type: ignore[union-attr]
    assert joules == pytest.approx(result.energy_joules, rel=1e-9)


def finished(server: BatsimServer) -> list[tuple[JobRow, JobOutcome]]:
    return [(server._jobs.describe(outcome.job), outcome) for outcome in server.record.jobs]


def replayed(platform: hdsim.Platform, result: Any, contention: str, options: Options | None = None) -> BatsimServer:
    """Has a scheduler start the jobs of a replay when and where they started there."""
    from hdsim.workload.batsim_json import to_batsim

    content = to_batsim(result.workload, platform)
    file = JobFile("jobs.json", content, jobs_of(content, "jobs.json", platform.reference_gflops))
    order = np.argsort(result.starting_time, kind="stable")
    plan = [
        (float(result.starting_time[job]), f"w0!{result.workload.job_id[job]}", result.jobs["allocated_resources"][job])
        for job in order.tolist()
    ]
    server = BatsimServer(
        hosts_of(platform), [file], options, contention=make_model("contention", contention, platform)
    )
    talk(server, follow(plan))
    return server


def follow(plan: list[tuple[float, str, str]]) -> Scheduler:
    left = list(reversed(plan))

    def scheduler(message: dict[str, Any]) -> list[Event]:
        events = []
        if message["events"][0]["type"] != "SIMULATION_BEGINS":
            while left and left[-1][0] <= message["now"] + 2e-6:
                _, job, alloc = left.pop()
                events.append(event(message, "EXECUTE_JOB", job_id=job, alloc=alloc))
        return events

    return scheduler


@pytest.mark.parametrize("run", ["first-high_gflops", "shortest-high_mem_bw"])
def test_contended_runs_of_batsim(shared_data: Path, run: str) -> None:
    """HDeepRM's decisions on gaia, 1,000 jobs: hdsim's contention gives the finish that its P-states gave on Batsim."""
    folder = shared_data / "batsim_runs" / f"gaia_div20_{run}"
    platform = hdsim.load_platform(
        shared_data / "hdeeprm" / "platforms" / "gaia.json", types=shared_data / "hdeeprm" / "types"
    )
    recorded = {row["job_id"]: row for row in rows(folder / "out_jobs.csv.gz")}
    plan = sorted(
        (float(row["starting_time"]), f"w0!{row['job_id']}", row["allocated_resources"]) for row in recorded.values()
    )
    file = read_jobs(folder / "workload.json.gz", platform)
    server = BatsimServer(hosts_of(platform), [file], contention=make_model("contention", "threshold", platform))
    talk(server, follow(plan))
    assert len(server.record.jobs) == len(recorded) == 1000
    for row, outcome in finished(server):
        assert outcome.start == pytest.approx(float(recorded[row.job_id]["starting_time"]), abs=3e-6)
        assert outcome.finish == pytest.approx(float(recorded[row.job_id]["finish_time"]), abs=3e-6)


# Platforms


def test_hosts_of_a_platform_are_its_cores() -> None:
    platform = hdsim.load_platform(ROOT / "platforms" / "teaching.json")
    hosts = hosts_of(platform)
    assert len(hosts) == platform.n_cores
    read = read_xml(to_xml(platform), "platform.xml")
    assert read.names == hosts.names
    assert read.platform.core_gflops() == pytest.approx(platform.core_gflops(), rel=1e-12)
    assert hosts.initial.tolist() == [3] * platform.n_cores


CLUSTER = """<platform version="4.1"><zone id="z" routing="Full"><prop id="site" value="here"/>
<host id="master_host" speed="1Gf"/>
<cluster id="c" prefix="n-" suffix=".x" radical="0-2,10" speed="5Gf,500Mf" pstate="1" bw="1Gbps" lat="1us">
  <prop id="wattage_per_state" value="10:12:20, 5:6:8"/></cluster>
</zone></platform>"""


def test_blank_lines_before_the_declaration() -> None:
    """SimGrid reads them, and Batsim's own cluster_energy_128.xml has one; lines in errors keep their numbers."""
    declared = "\n \n<?xml version='1.0'?>\n" + CLUSTER
    assert read_xml(declared.encode(), "c.xml").names == read_xml(CLUSTER.encode(), "c.xml").names
    with pytest.raises(PlatformError, match=r"c\.xml:5: speed: expected flop/s"):
        read_xml(declared.replace('speed="1Gf"', 'speed="fast"').encode(), "c.xml")


def test_clusters_and_zones() -> None:
    hosts = read_xml(CLUSTER.encode(), "c.xml")
    # Batsim 4.2.1 numbers hosts in lexicographic order of their names.
    assert hosts.names == ("n-0.x", "n-1.x", "n-10.x", "n-2.x")
    assert hosts.zone_properties[0] == {"site": "here"}
    assert hosts.initial.tolist() == [1] * 4
    assert hosts.speed[0].tolist() == [1.0, 0.1]
    assert hosts.watts is not None
    assert hosts.watts[:, 0].tolist() == [[10, 5], [12, 6], [20, 8]]


@pytest.mark.parametrize(
    ("xml", "complaint"),
    [
        ("<platform", "expected XML"),
        ("<a/>", "expected the element 'platform', got 'a'"),
        ("<platform/>", "expected at least one host besides the master 'master_host', got 0"),
        (
            '<platform><host id="a" speed="fast"/></platform>',
            "speed: expected flop/s above 0 such as '1Gf', got 'fast'",
        ),
        ('<platform><host id="a" speed="0f"/></platform>', "speed: expected flop/s above 0"),
        ('<platform><host id="a" speed="1Gf" pstate="1"/></platform>', "pstate: expected 0 to 0, got '1'"),
        ('<platform><host id="a" speed="1Gf" core="4"/></platform>', "core: expected 1, got 4"),
        ('<platform><host id="a" speed="1f"/><host id="a" speed="1f"/></platform>', "expected host names to differ"),
        (CLUSTER.replace("0-2,10", "a"), "radical: expected numbers such as '0-255', got 'a'"),
        (CLUSTER.replace(", 5:6:8", ""), "expected 2 P-states, got '10:12:20'"),
        (CLUSTER.replace("5:6:8", "5"), "expected W as in 'idle:all', got '5'"),
    ],
)
def test_bad_platforms(xml: str, complaint: str) -> None:
    with pytest.raises(PlatformError) as caught:
        read_xml(xml.encode(), "p.xml")
    assert str(caught.value).startswith("p.xml")
    assert complaint in str(caught.value)


def test_energy_needs_powers() -> None:
    hosts = read_xml(b'<platform><host id="a" speed="1Gf"/></platform>', "p.xml")
    with pytest.raises(PlatformError, match="expected the property wattage_per_state of every host"):
        BatsimServer(hosts, [delays((0, 1, 1))], Options(energy=True))


@pytest.mark.parametrize(
    ("profile", "complaint"),
    [
        ({"type": "smpi", "trace": "x"}, 'profile type "smpi" is not supported'),
        ({"type": "composed", "seq": ["q"]}, "expected the name of a profile in 'profiles', got \"q\""),
        ({"type": "delay"}, "expected a finite number, got nothing"),
    ],
)
def test_profiles_that_hdsim_cannot_run(tmp_path: Path, profile: dict[str, Any], complaint: str) -> None:
    path = tmp_path / "jobs.json"
    jobs = [{"id": 0, "subtime": 0, "res": 1, "profile": "p"}]
    path.write_text(json.dumps({"nb_res": 4, "jobs": jobs, "profiles": {"p": profile}}))
    with pytest.raises(WorkloadError, match=complaint):
        read_jobs(path, FOUR)


@pytest.mark.parametrize(
    ("job", "complaint"),
    [
        ({"gpus": 1}, r"jobs\[1\].*: expected jobs without GPUs, which Batsim's protocol does not have"),
        ({"subtime": -3}, r"jobs\[1\].*: expected at least 0 s, got -3"),
    ],
)
def test_jobs_that_no_scheduler_for_batsim_knows(tmp_path: Path, job: dict[str, Any], complaint: str) -> None:
    path = tmp_path / "jobs.json"
    jobs = [{"id": n, "subtime": 0, "res": 1, "profile": "p"} for n in range(2)]
    jobs[1] |= job
    path.write_text(json.dumps({"nb_res": 4, "jobs": jobs, "profiles": {"p": {"type": "delay", "delay": 1}}}))
    with pytest.raises(WorkloadError, match=complaint):
        read_jobs(path, FOUR)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("nothing", "expected JSON"),
        ("[1, 2]", "expected an object with a 'type' and a 'timestamp' of at least 0 s, got \\[1, 2\\]"),
        ('{"timestamp": 1}', "expected an object with a 'type'"),
        ('{"timestamp": 1, "type": 2}', "expected an object with a 'type'"),
        ('{"timestamp": true, "type": "x"}', "expected an object with a 'type'"),
        ('{"timestamp": "1", "type": "x"}', "expected an object with a 'type'"),
        ('{"timestamp": -0.5, "type": "x"}', "expected an object with a 'type'"),
        ('{"timestamp": Infinity, "type": "x"}', "expected an object with a 'type'"),
    ],
)
def test_lines_that_are_no_external_events(tmp_path: Path, line: str, complaint: str) -> None:
    path = tmp_path / "events.txt"
    path.write_text('{"timestamp": 5, "type": "x"}\n\n{"timestamp": 0, "type": "y"}\n')
    assert [event["type"] for event in read_events(path)] == ["y", "x"]
    path.write_text(f'{{"timestamp": 5, "type": "x"}}\n\n{line}\n')
    with pytest.raises(ConfigError, match=rf"events\.txt:3(:1)?: {complaint}"):
        read_events(path)


# Jobs of several steps, and messages

NESTED = {
    "nap": {"type": "delay", "delay": 1},
    "work": {"type": "parallel_homogeneous", "cpu": 4e9, "com": 0},
    "twice": {"type": "composed", "repeat": 2, "seq": ["nap", "work"]},
    "all": {"type": "composed", "seq": ["nap", "twice", "work"]},
}


def one_job(profile: str, size: int = 1, **limit: float) -> JobFile:
    return job_file([{"id": 0, "subtime": 0, "res": size, "profile": profile, **limit}], NESTED)


def test_composed_profiles(tmp_path: Path) -> None:
    server = BatsimServer(hosts_of(FOUR), [one_job("all")])
    messages = talk(server, Greedy())
    assert set(messages[0]["events"][0]["data"]["profiles"]["w0"]) == {"nap", "work", "twice", "all"}
    assert times(server, tmp_path)["0"]["finish_time"] == "15.000000"


@pytest.mark.parametrize(
    ("when", "progress"),
    [
        (
            0.5,
            {"profile_name": "all", "current_task_index": 0, "current_task": {"profile_name": "nap", "progress": 0.5}},
        ),
        (
            8.0,
            {
                "profile_name": "all",
                "current_task_index": 1,
                "current_task": {
                    "profile_name": "twice",
                    "current_task_index": 3,
                    "current_task": {"profile_name": "work", "progress": 0.25},
                },
            },
        ),
        (
            14.0,
            {
                "profile_name": "all",
                "current_task_index": 2,
                "current_task": {"profile_name": "work", "progress": 0.75},
            },
        ),
    ],
)
def test_progress_of_killed_composed_jobs(when: float, progress: dict[str, Any]) -> None:
    """As Batsim tells it: a tree, with the index among all repetitions."""
    server = BatsimServer(hosts_of(FOUR), [one_job("all")])
    kill = scripted(None, execute("w0!0", "2"), lambda m: [event(m, "KILL_JOB", when, job_ids=["w0!0"])])
    killed = told(talk(server, kill), "JOB_KILLED")
    assert [(one["timestamp"], one["data"]["job_progress"]) for one in killed] == [(when, {"w0!0": progress})]


def test_walltimes_of_composed_jobs() -> None:
    messages = talk(BatsimServer(hosts_of(FOUR), [one_job("all", walltime=6.0)]), Greedy())
    assert [(one["timestamp"], one["data"]["job_state"]) for one in told(messages, "JOB_COMPLETED")] == [
        (6.0, "COMPLETED_WALLTIME_REACHED")
    ]


def test_registered_composed_jobs() -> None:
    def register(message: dict[str, Any]) -> list[Event]:
        parts = [
            event(message, "REGISTER_PROFILE", workload_name="dyn", profile_name=name, profile=profile)
            for name, profile in NESTED.items()
        ]
        job = {"id": "dyn!a", "res": 2, "profile": "twice", "walltime": -1, "subtime": 0}
        return [
            *parts,
            event(message, "REGISTER_JOB", job_id="dyn!a", job=job),
            event(message, "EXECUTE_JOB", job_id="dyn!a", alloc="0-1"),
            event(message, "NOTIFY", type="registration_finished"),
        ]

    server = BatsimServer(hosts_of(FOUR), [one_job("nap")], Options(dynamic_jobs=True))
    messages = talk(server, scripted(register, execute("w0!0", "3")))
    ends = {one["data"]["job_id"]: one["timestamp"] for one in told(messages, "JOB_COMPLETED")}
    assert ends == {"w0!0": 1.0, "dyn!a": 10.0}


@pytest.mark.parametrize(
    ("contention", "network", "energy"),
    [
        ("none", "none", False),
        ("threshold", "fluid", True),
        *ci(
            ("none", "none", True),
            ("none", "fluid", False),
            ("none", "fluid", True),
            ("threshold", "none", False),
            ("threshold", "none", True),
            ("threshold", "fluid", False),
        ),
    ],
)
def test_programs_run_as_in_hdsims_own_replay(contention: str, network: str, energy: bool) -> None:
    platform = hdsim.load_platform(ROOT / "platforms" / "teaching.json")
    rng = np.random.default_rng(3)
    profiles = {
        f"p{n}": {
            "type": "parallel_homogeneous",
            "cpu": float(rng.integers(1, 9)) * 1e11,
            "com": float(rng.integers(0, 3)) * 1e8,
            "mem_bw": int(rng.integers(0, 20)),
        }
        for n in range(6)
    }
    profiles["both"] = {"type": "composed", "repeat": 2, "seq": ["p0", "p1", "p2"]}
    names = sorted(profiles)
    jobs = [{"id": n, "subtime": 10 * n, "res": int(rng.choice([2, 3, 4])), "profile": names[n % 7]} for n in range(40)]
    file = job_file(jobs, profiles, platform.reference_gflops)
    workload = hdsim.Workload.from_columns(
        **{key: column for key, column in file.jobs.columns.items() if key in COLUMNS}
    )
    result = hdsim.simulate(platform, workload, "fcfs", contention=contention, network=network)
    plan = [
        (float(result.starting_time[job]), f"w0!{job}", result.jobs["allocated_resources"][job])
        for job in np.argsort(result.starting_time, kind="stable").tolist()
    ]
    server = BatsimServer(
        hosts_of(platform),
        [file],
        Options(energy=energy),
        contention=make_model("contention", contention, platform),
        network=make_model("network", network, platform),
    )
    talk(server, follow(plan))
    finish = {row.job_id: outcome.finish for row, outcome in finished(server)}
    assert [finish[str(job)] for job in range(40)] == pytest.approx(result.finish_time.tolist(), abs=1e-5)
    if server._meter is not None:
        assert server._meter.read(result.end_time) == pytest.approx(result.energy_joules, rel=1e-6)


#: P0: 4 Gf, 10 W idle, 20 W with the least load and 60 W with the full one; P1: half of all that.
TWO_STATES = """<platform version="4.1"><zone id="z" routing="Full">
<cluster id="c" prefix="n" suffix="" radical="0-2" speed="4Gf,2Gf" pstate="0" bw="1Gbps" lat="1us">
  <prop id="wattage_per_state" value="10:20:60, 5:10:30"/></cluster></zone></platform>"""
PROGRAMS = {
    **NESTED,
    "unequal": {"type": "parallel", "cpu": [4e9, 2e9, 0], "com": [0] * 9},
    "meeting": {"type": "bsp", "supersteps": 2, "cpu": 4e9, "l": 0.5},
    "wait": {"type": "delay", "delay": 2},
}


@pytest.mark.parametrize(
    ("profile", "size", "switch", "end", "joules"),
    [
        # Three delays of 1 s, which take no computing power, and three times 4e9 operations.
        ("all", 1, None, 6.0, 3 * 10 + 3 * 60 + 2 * 6 * 10),
        # Half of the first 4e9 are done when their host halves its speed, for good.
        ("all", 1, (2.5, "0"), 8.5, 2 * 10 + 0.5 * 60 + 1 * 30 + 1 * 5 + 4 * 30 + 2 * 8.5 * 10),
        # Of hosts that belong to nobody.
        ("all", 1, (2.0, "1-2"), 6.0, 3 * 10 + 3 * 60 + 2 * (2 * 10 + 4 * 5)),
        # All at the pace of the first task: the second uses half of its host, the third nothing.
        ("unequal", 3, None, 1.0, 60 + (20 + 0.5 * 40) + 10),
        # Half the host does as well for the second task ...
        ("unequal", 3, (0.0, "1"), 1.0, 60 + 30 + 10),
        # ... and for the first it takes twice as long, while the second uses a quarter.
        ("unequal", 3, (0.5, "0"), 1.5, 0.5 * (60 + 40) + 1 * (30 + 30) + 1.5 * 10),
        # Tasks wait busily at the barrier.
        ("meeting", 2, None, 3.0, 2 * 3 * 60 + 3 * 10),
        # 0.5 s before the end of the second computation, which then takes 1 s.
        ("meeting", 2, (2.0, "1"), 3.5, 3.5 * 60 + 2 * 60 + 1.5 * 30 + 3.5 * 10),
        # Jobs of one step: both hosts compute; one at half its speed, the other half the time; so from the middle on.
        ("work", 2, None, 1.0, 2 * 60 + 10),
        ("work", 2, (0.0, "1"), 2.0, 2 * (30 + (20 + 0.5 * 40) + 10)),
        ("work", 2, (0.5, "0"), 1.5, 0.5 * 2 * 60 + 1 * (30 + 40) + 1.5 * 10),
        # They only last.
        ("wait", 2, None, 2.0, 3 * 2 * 10),
        ("wait", 2, (0.5, "0"), 2.0, 0.5 * 10 + 1.5 * 5 + 2 * 2 * 10),
    ],
)
@pytest.mark.parametrize("registered", [False, True])
def test_programs_and_pstates(
    profile: str, size: int, switch: tuple[float, str] | None, end: float, joules: float, registered: bool
) -> None:
    """End and joules of all hosts, by hand."""
    hosts = read_xml(TWO_STATES.encode(), "p.xml")
    job = {"id": 0, "subtime": 0, "res": size, "profile": profile}
    nap = {"id": "nap", "subtime": 0, "res": 1, "profile": "nap"}
    file = job_file([nap if registered else job], PROGRAMS, hosts.platform.reference_gflops)
    job_id = "dyn!0" if registered else "w0!0"

    def begin(message: dict[str, Any]) -> list[Event]:
        return [
            *(
                event(message, "REGISTER_PROFILE", workload_name="dyn", profile_name=name, profile=each)
                for name, each in PROGRAMS.items()
            ),
            event(message, "REGISTER_JOB", job_id=job_id, job={**job, "id": job_id}),
            event(message, "NOTIFY", type="registration_finished"),
        ]

    def start(message: dict[str, Any]) -> list[Event]:
        events = execute(job_id, f"0-{size - 1}" if size > 1 else "0")(message)
        if registered:
            events.append(event(message, "REJECT_JOB", job_id="w0!nap"))
        if switch is not None:
            events.append(event(message, "SET_RESOURCE_STATE", switch[0], resources=switch[1], state="1"))
        return events

    server = BatsimServer(hosts, [file], Options(energy=True, dynamic_jobs=registered))
    messages = talk(server, scripted(begin if registered else None, start))
    assert [one["timestamp"] for one in told(messages, "JOB_COMPLETED")] == [end]
    assert server._meter is not None
    assert server._meter.read(end) == pytest.approx(joules, rel=1e-12)


def test_hosts_that_begin_in_another_pstate() -> None:
    hosts = read_xml(TWO_STATES.replace('pstate="0"', 'pstate="1"').encode(), "p.xml")
    file = job_file([{"id": 0, "subtime": 0, "res": 1, "profile": "all"}], NESTED, hosts.platform.reference_gflops)
    messages = talk(BatsimServer(hosts, [file]), scripted(None, execute("w0!0", "0")))
    assert [one["timestamp"] for one in told(messages, "JOB_COMPLETED")] == [3 * 1 + 3 * 2]


# Impossible decisions

IMPOSSIBLE: dict[str, tuple[str, dict[str, Any], str]] = {
    "unknown job": ("EXECUTE_JOB", {"job_id": "w0!9", "alloc": "0"}, "unknown job 'w0!9'"),
    "not submitted yet": (
        "EXECUTE_JOB",
        {"job_id": "w0!3", "alloc": "0"},
        "expected a queued job, it is NOT_SUBMITTED",
    ),
    "runs already": ("EXECUTE_JOB", {"job_id": "w0!0", "alloc": "2"}, "expected a queued job, it is RUNNING"),
    "too few hosts": ("EXECUTE_JOB", {"job_id": "w0!1", "alloc": "2"}, "expected 2 hosts, got '2'"),
    "too many hosts": ("EXECUTE_JOB", {"job_id": "w0!1", "alloc": "1-3"}, "expected 2 hosts, got '1-3'"),
    "overlapping": ("EXECUTE_JOB", {"job_id": "w0!1", "alloc": "0-1"}, "expected idle cores, got busy [0]"),
    "out of range": ("EXECUTE_JOB", {"job_id": "w0!1", "alloc": "3-4"}, 'expected hosts from 0 to 3, got "3-4"'),
    "a host twice": ("EXECUTE_JOB", {"job_id": "w0!1", "alloc": "2 2"}, 'expected each host once, got "2 2"'),
    "no hosts": ("EXECUTE_JOB", {"job_id": "w0!1", "alloc": ""}, "expected 2 hosts, got ''"),
    "mapping of some": (
        "EXECUTE_JOB",
        {"job_id": "w0!1", "alloc": "2-3", "mapping": {"0": "0"}},
        "data.mapping: expected each of 0 to 1 once",
    ),
    "mapping to one host": (
        "EXECUTE_JOB",
        {"job_id": "w0!1", "alloc": "2-3", "mapping": {"0": "0", "1": "0"}},
        "data.mapping: expected each of 0 to 1 once",
    ),
    "storage mapping": (
        "EXECUTE_JOB",
        {"job_id": "w0!1", "alloc": "2-3", "storage_mapping": {"s": 3}},
        "data.storage_mapping is not supported",
    ),
    "reject a running job": ("REJECT_JOB", {"job_id": "w0!0"}, "expected a queued job, it is RUNNING"),
    "kill a queued job": ("KILL_JOB", {"job_ids": ["w0!1"]}, "expected a running job, it is QUEUED"),
    "kill a number": ("KILL_JOB", {"job_ids": [1]}, "data.job_ids: expected job ids, got [1]"),
    "call in the past": (
        "CALL_ME_LATER",
        {"timestamp": -1},
        "expected at least 0.000000, got -1: time goes back",
    ),
    "P-state without -E": ("SET_RESOURCE_STATE", {"resources": "0", "state": "1"}, "need the option -E"),
    "energy without -E": ("QUERY", {"requests": {"consumed_energy": {}}}, "need the option -E"),
    "unknown query": ("QUERY", {"requests": {"weather": {}}}, "unknown query 'weather'; allowed: consumed_energy"),
    "job without option": (
        "REGISTER_JOB",
        {"job_id": "dyn!0", "job": {}},
        "with the option --enable-dynamic-jobs only",
    ),
    "unknown notification": ("NOTIFY", {"type": "lunch"}, "data.type: unknown 'lunch'; allowed: registration_finished"),
    "metadata of no job": ("SET_JOB_METADATA", {"job_id": "x!1", "metadata": ""}, "unknown job 'x!1'"),
}
FULL = Options(energy=True, dynamic_jobs=True)
IMPOSSIBLE_WITH_OPTIONS: dict[str, tuple[str, dict[str, Any], str]] = {
    "no such P-state": (
        "SET_RESOURCE_STATE",
        {"resources": "0", "state": "4"},
        "expected a P-state from 0 to 3, got '4'",
    ),
    "P-state is no number": ("SET_RESOURCE_STATE", {"resources": "0", "state": "on"}, "expected a P-state from 0 to 3"),
    "P-state of no host": (
        "SET_RESOURCE_STATE",
        {"resources": "", "state": "1"},
        "expected at least one host, got none",
    ),
    "P-state of unknown host": ("SET_RESOURCE_STATE", {"resources": "4", "state": "1"}, "expected hosts from 0 to 3"),
    "job id twice": ("REGISTER_JOB", {"job_id": "w0!1", "job": {"res": 1, "profile": "d0"}}, "exists already"),
    "job without a workload": (
        "REGISTER_JOB",
        {"job_id": "1", "job": {}},
        "expected a job id such as 'w0!1', got \"1\"",
    ),
    "unknown profile": (
        "REGISTER_JOB",
        {"job_id": "w0!x", "job": {"res": 1, "profile": "d7"}},
        "expected the name of a profile in 'profiles', got \"d7\"",
    ),
    "job of no hosts": ("REGISTER_JOB", {"job_id": "w0!x", "job": {"res": 0, "profile": "d0"}}, "expected at least 1"),
    "profile twice": (
        "REGISTER_PROFILE",
        {"workload_name": "w0", "profile_name": "d0", "profile": {"type": "delay", "delay": 7}},
        "profile 'd0' of 'w0' is another already",
    ),
}


@pytest.mark.parametrize(
    ("kind", "data", "complaint", "options"),
    [
        *((*case, Options()) for case in IMPOSSIBLE.values()),
        *((*case, FULL) for case in IMPOSSIBLE_WITH_OPTIONS.values()),
    ],
    ids=[*IMPOSSIBLE, *IMPOSSIBLE_WITH_OPTIONS],
)
def test_impossible_decisions(kind: str, data: dict[str, Any], complaint: str, options: Options) -> None:
    file = delays((0, 10, 1), (0, 10, 2), (0, 10, 64), (50, 10, 1))
    server = BatsimServer(hosts_of(FOUR), [file], options)

    def decide(message: dict[str, Any]) -> list[Event]:
        return [*execute("w0!0", "0")(message), event(message, kind, **data)]

    with pytest.raises(BackendError) as caught:
        talk(server, scripted(None, decide))
    assert str(caught.value).startswith(f"the scheduler at 0.000000: events[1] {kind}: ")
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize(("profile", "end"), [("work", 1.0), ("two", 2.0)])
def test_mappings(profile: str, end: float, swapped: bool) -> None:
    """The identity, which batsched always sends, and others where the tasks of a job are all the same."""
    profiles = {**NESTED, "two": {"type": "parallel", "cpu": [4e9, 8e9], "com": [0] * 4}}
    job = {"id": 0, "subtime": 0, "res": 2, "profile": profile}
    hosts = read_xml(TWO_STATES.encode(), "p.xml")
    mapping = {"0": "1", "1": "0"} if swapped else {"0": "0", "1": "1"}
    server = BatsimServer(hosts, [job_file([job], profiles, hosts.platform.reference_gflops)])

    def start(message: dict[str, Any]) -> list[Event]:
        return [event(message, "EXECUTE_JOB", job_id="w0!0", alloc="0-1", mapping=mapping)]

    if swapped and profile == "two":
        with pytest.raises(BackendError, match=r"data\.mapping: expected executor n on host n of alloc"):
            talk(server, scripted(None, start))
    else:
        ends = told(talk(server, scripted(None, start)), "JOB_COMPLETED")
        assert [one["timestamp"] for one in ends] == [end]


def test_a_host_that_is_away_takes_no_job() -> None:
    events = [{"type": "machine_unavailable", "resources": "2-3", "timestamp": 0}]
    server = BatsimServer(hosts_of(FOUR), [delays((1, 10, 2))], events=events)
    with pytest.raises(BackendError, match="job w0!0: expected available hosts, got 2"):
        talk(server, lambda m: execute("w0!0", "1-2")(m) if m["events"][0]["type"] == "JOB_SUBMITTED" else [])


def test_a_scheduler_that_forgets_its_jobs() -> None:
    with pytest.raises(BackendError) as caught:
        talk(BatsimServer(hosts_of(FOUR), [delays((3, 10, 2))]), scripted())
    assert str(caught.value) == (
        "the scheduler at 3.000000: nothing is left to happen, but 1 jobs are neither executed nor rejected: w0!0"
    )


def test_a_scheduler_that_does_not_finish_its_registration() -> None:
    with pytest.raises(BackendError, match="expected a NOTIFY registration_finished"):
        talk(BatsimServer(hosts_of(FOUR), [delays((3, 10, 2))], Options(dynamic_jobs=True)), Greedy())


@pytest.mark.parametrize("name", ["transcript", "transcript-easy"])
def test_time_going_back(shared_data: Path, name: str) -> None:
    server, lines = recorded_server(shared_data, name)
    replies = [line["msg"] for line in lines if line["dir"] != "batsim->scheduler"]
    for reply in replies[:5]:
        server.answer(json.dumps(reply))
    with pytest.raises(BackendError, match="time goes back"):
        server.answer(json.dumps({"now": 0.5, "events": []}))


# The contract: any sequence of possible decisions

_WHOLE = st.integers(0, 12)


@st.composite
def workloads(draw: st.DrawFn) -> JobFile:
    n = draw(st.integers(1, 8))
    profiles: dict[str, Any] = {}
    jobs = []
    for number in range(n):
        kind = draw(st.sampled_from(["delay", "cpu"]))
        length = draw(st.sampled_from([0.0, 0.5, 1 / 3, 1.0, 4.0, 7.0]))
        profile: dict[str, Any] = {"type": "delay", "delay": length}
        if kind == "cpu":
            profile = {"type": "parallel_homogeneous", "cpu": length * 1e9, "com": 0}
        profile["ret"] = draw(st.sampled_from([0, 0, 2]))
        profiles[f"p{number}"] = profile
        job = {"id": number, "subtime": draw(_WHOLE), "res": draw(st.integers(1, 5)), "profile": f"p{number}"}
        if draw(st.booleans()):
            job["walltime"] = draw(st.sampled_from([-1, 0.5, 2, 4]))
        jobs.append(job)
    return job_file(jobs, profiles)


class Moody:
    """Makes any possible decision, and keeps the books that the simulation must agree with."""

    def __init__(self, rng: random.Random, energy: bool) -> None:
        self.rng, self.energy = rng, energy
        self.idle = set(range(4))
        self.waiting: dict[str, Mapping[str, Any]] = {}
        self.running: dict[str, tuple[float, str]] = {}
        self.killed: set[str] = set()
        self.over: dict[str, str] = {}
        self.notes: list[str] = []
        self.clock = 0.0
        self.finished = False
        self.calls: list[float] = []

    def __call__(self, message: dict[str, Any]) -> list[Event]:
        parse_message(json.dumps(message), FROM_BATSIM, sender="hdsim")
        assert message["now"] >= self.clock, "time goes back"
        assert not self.finished, "a message after the last"
        now = self.clock = message["now"]
        for one in message["events"]:
            assert one["timestamp"] <= now
            getattr(self, "_" + one["type"].lower())(one, one["data"])
        if self.finished:
            assert len(message["events"]) == 1
            return []
        return self._decide(message)

    def _simulation_begins(self, one: Event, data: Mapping[str, Any]) -> None:
        assert one["timestamp"] == 0
        assert data["nb_resources"] == 4

    def _job_submitted(self, one: Event, data: Mapping[str, Any]) -> None:
        assert one["timestamp"] == pytest.approx(data["job"]["subtime"])
        assert data["job_id"] == data["job"]["id"] not in self.waiting
        self.waiting[data["job_id"]] = data["job"]

    def _job_completed(self, one: Event, data: Mapping[str, Any]) -> None:
        _, alloc = self.running.pop(data["job_id"])
        assert data["alloc"] == alloc
        self.idle |= set(parse_hosts(alloc, 4))
        self.over[data["job_id"]] = data["job_state"]

    def _job_killed(self, one: Event, data: Mapping[str, Any]) -> None:
        for job in data["job_ids"]:
            assert job in self.killed
            assert job in self.over
        for job, progress in data["job_progress"].items():
            assert self.over[job] == "COMPLETED_KILLED" or self.over[job].startswith("COMPLETED")
            assert 0 <= progress["progress"] <= 1

    def _requested_call(self, one: Event, data: Mapping[str, Any]) -> None:
        assert min(self.calls) <= one["timestamp"] + 1e-6
        self.calls.remove(min(self.calls))

    def _resource_state_changed(self, one: Event, data: Mapping[str, Any]) -> None:
        assert self.energy

    def _answer(self, one: Event, data: Mapping[str, Any]) -> None:
        assert data["consumed_energy"] >= 0

    def _notify(self, one: Event, data: Mapping[str, Any]) -> None:
        assert data["type"] not in self.notes
        self.notes.append(data["type"])

    def _simulation_ends(self, one: Event, data: Mapping[str, Any]) -> None:
        assert not self.waiting
        assert not self.running
        assert not self.calls
        self.finished = True

    def _decide(self, message: dict[str, Any]) -> list[Event]:
        now, rng = message["now"], self.rng
        events: list[Event] = []
        for job in [job for job in self.running if rng.random() < 0.2]:
            self.killed.add(job)
            events.append(event(message, "KILL_JOB", now, job_ids=[job]))
        if rng.random() < 0.1:
            self.calls.append(now + rng.choice([0.25, 1.0, 30.0]))
            events.append(event(message, "CALL_ME_LATER", now, timestamp=self.calls[-1]))
        if self.energy and rng.random() < 0.3:
            state = rng.choice("01")
            alloc = format_interval_set(sorted(rng.sample(range(4), rng.randint(1, 4))))
            events.append(event(message, "SET_RESOURCE_STATE", now, resources=alloc, state=state))
            events.append(event(message, "QUERY", now, requests={"consumed_energy": {}}))
        for job, document in list(self.waiting.items()):
            at = now + rng.choice([0.0, 0.0, 0.0, 0.125])
            now = at
            if document["res"] > 4 or rng.random() < 0.1:
                events.append(event(message, "REJECT_JOB", at, job_id=job))
            elif document["res"] <= len(self.idle):
                hosts = rng.sample(sorted(self.idle), document["res"])
                alloc = format_interval_set(sorted(hosts))
                self.idle -= set(hosts)
                self.running[job] = (at, alloc)
                events.append(event(message, "EXECUTE_JOB", at, job_id=job, alloc=alloc))
            else:
                continue
            del self.waiting[job]
        return events


@given(seed=st.integers(0, 2**32), file=workloads(), energy=st.booleans(), one_event=st.booleans())
def test_contract(seed: int, file: JobFile, energy: bool, one_event: bool) -> None:
    server = BatsimServer(hosts_of(FOUR), [file], Options(energy=energy, one_event=one_event))
    scheduler = Moody(random.Random(seed), energy)

    def checked(message: dict[str, Any]) -> list[Event]:
        invariants.check(server.cluster)
        return scheduler(message)

    talk(server, checked)
    assert scheduler.finished
    assert scheduler.notes == ["no_more_static_job_to_submit"]
    ended = finished(server)
    assert len(ended) == len(file.jobs.columns["runtime"])
    for row, outcome in ended:
        if outcome.state == FinalState.REJECTED:
            assert math.isnan(outcome.start)
            continue
        profile = file.content["profiles"][row.profile]
        length = profile["delay"] if profile["type"] == "delay" else profile["cpu"] / 1e9
        lasted = outcome.finish - outcome.start
        assert lasted <= min(row.walltime, 2 * length) + 1e-9
        state = FinalState(outcome.state).name
        if state in ("COMPLETED_SUCCESSFULLY", "COMPLETED_FAILED"):
            assert (state == "COMPLETED_FAILED") == bool(profile["ret"])
            if profile["type"] == "delay" or not energy:
                assert lasted == pytest.approx(length, abs=1e-9)
        elif state == "COMPLETED_WALLTIME_REACHED":
            assert lasted == pytest.approx(row.walltime)
        else:
            assert f"w0!{row.job_id}" in scheduler.killed


values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 9),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from([[], {}, [{}], "w0!1"]),
)


@given(data=st.data())
@examples(150)
@pytest.mark.parametrize("name", ["transcript", "transcript-easy"])
def test_spoilt_replies_end_in_one_error(shared_data: Path, name: str, data: st.DataObject) -> None:
    """Any part of a recorded reply exchanged for something else is carried out or refused, and never trips hdsim."""
    server, lines = recorded_server(shared_data, name)
    replies = [line["msg"] for line in lines if line["dir"] != "batsim->scheduler"]
    chosen = data.draw(st.integers(0, len(replies) - 1))
    for reply in replies[:chosen]:
        server.answer(json.dumps(reply))
    try:
        message = server.answer(json.dumps(spoilt(replies[chosen], data, values)))
        assert message is None or parse_message(message, FROM_BATSIM, sender="hdsim")
        server.cluster.cores.check(list(server.cluster.running.values()))
    except BackendError as error:
        assert str(error).startswith("the scheduler")
        assert "\n" not in str(error)


# Real schedulers


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def peer(scheduler: str | Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """An unmodified pybatsim with one of its own schedulers or one of ours."""
    command = [sys.executable, "-m", "batsim.cmds.launcher", str(scheduler), "-s", f"tcp://127.0.0.1:{port}"]
    # It writes a log of its own where it stands.
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [*command, "-v", "warning", "-t", "600000"],
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def batsim_serve(*arguments: object, port: int, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hdsim", "batsim-serve", "-s", f"tcp://127.0.0.1:{port}", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL, **options)


def flat_xml(path: Path, hosts: int) -> Path:
    names = "".join(f'<host id="h{n:04}" speed="1Gf"/>' for n in range(hosts))
    path.write_text(f'<platform version="4.1"><zone id="z" routing="Full">{names}</zone></platform>')
    return path


def write_recorded_workload(folder: Path, path: Path) -> None:
    """Writes the workload of a recorded run, all of whose profiles are delays."""
    jobs = [
        {
            "id": int(row["job_id"]),
            "subtime": float(row["submission_time"]),
            "res": int(row["requested_number_of_resources"]),
            "walltime": float(row["requested_time"]),
            "profile": row["profile"],
        }
        for row in sorted(rows(folder / "out_jobs.csv.gz"), key=lambda row: int(row["job_id"]))
    ]
    profiles = {job["profile"]: {"type": "delay", "delay": float(str(job["profile"])[1:])} for job in jobs}
    path.write_text(json.dumps({"nb_res": 256, "jobs": jobs, "profiles": profiles}))


@pytest.mark.requires("pybatsim")
@pytest.mark.parametrize("scheduler", ["schedFcfs", "easyBackfill", "fillerSched"])
def test_schedulers_of_pybatsim_complete_a_trace(tmp_path: Path, scheduler: str) -> None:
    workload = lublin.generate(250, 11, 64).scaled_arrivals(3.0)
    # schedFcfs asserts that no job starts at time 0.
    workload = workload.replaced(walltime=workload.runtime + 1.0, submission_time=workload.submission_time + 1.0)
    write_batsim(workload, tmp_path / "jobs.json", None)
    port = free_port()
    with peer(scheduler, port) as process:
        done = batsim_serve(
            "-p", flat_xml(tmp_path / "p.xml", 64), "-w", tmp_path / "jobs.json", "-e", tmp_path / "out", port=port
        )
        assert done.returncode == 0, done.stderr
        assert process.wait(60) == 0
    table = rows(tmp_path / "out_jobs.csv")
    assert len(table) == 250
    assert {row["final_state"] for row in table} == {"COMPLETED_SUCCESSFULLY"}
    assert "250 jobs submitted: 250 completed_successfully" in done.stderr


@pytest.mark.requires("pybatsim")
def test_textbook_fcfs_equals_hdsims_own_and_batsims(tmp_path: Path, shared_data: Path) -> None:
    run = shared_data / "batsim_runs" / "lublin1000-fcfsNoTopo"
    write_recorded_workload(run, tmp_path / "jobs.json")
    port = free_port()
    with peer(SCHEDULERS / "firstComeFirstServed.py", port):
        done = batsim_serve(
            "-p", flat_xml(tmp_path / "p.xml", 256), "-w", tmp_path / "jobs.json", "-e", tmp_path / "out", port=port
        )
    assert done.returncode == 0, done.stderr
    assert_same_lines(tmp_path / "out_jobs.csv", run / "out_jobs.csv.gz")
    ours = {row["job_id"]: row for row in rows(tmp_path / "out_jobs.csv")}
    platform = hdsim.Platform.homogeneous(nodes=256, cores_per_node=1)
    workload = hdsim.load_workload(tmp_path / "jobs.json", platform=platform)
    own = hdsim.simulate(platform, workload, agent="fcfs", kill_at_walltime=True)
    first = workload.original_submission_time[0]
    for job, start in zip(workload.job_id.tolist(), own.starting_time.tolist(), strict=True):
        assert float(ours[str(job)]["starting_time"]) == start + first


@pytest.mark.requires("pybatsim")
@pytest.mark.parametrize("walltime", ["wt1", "wt2x"])
def test_textbook_easy_equals_batsims(tmp_path: Path, shared_data: Path, walltime: str) -> None:
    run = shared_data / "batsim_runs" / f"lublin1000-easyNotopo-{walltime}"
    write_recorded_workload(run, tmp_path / "jobs.json")
    port = free_port()
    arguments = ["-p", flat_xml(tmp_path / "p.xml", 256), "-w", tmp_path / "jobs.json", "-e", tmp_path / "out"]
    with peer(SCHEDULERS / "easyNoTopology.py", port):
        done = batsim_serve(*arguments, "--one-event-per-message", port=port)
    assert done.returncode == 0, done.stderr
    assert_same_lines(tmp_path / "out_jobs.csv", run / "out_jobs.csv.gz")


def assert_same_lines(ours: Path, recorded: Path) -> None:
    """The bytes of every line but for the hosts, whose choice is the scheduler's."""

    def lines(path: Path) -> list[bytes]:
        data = path.read_bytes()
        content = gzip.decompress(data) if path.suffix == ".gz" else data
        return sorted(re.sub(rb"(.*),[^,]*(,[^,]*,[^,]*)", rb"\1\2", line) for line in content.splitlines())

    assert lines(ours) == lines(recorded)


# Sudden deaths


@pytest.mark.requires("pybatsim")
def test_a_killed_scheduler_is_noticed_and_finished_jobs_are_kept(tmp_path: Path) -> None:
    workload = lublin.generate(2000, 11, 64).scaled_arrivals(3.0)
    write_batsim(workload, tmp_path / "jobs.json", None)
    port = free_port()
    command = [sys.executable, "-m", "hdsim", "batsim-serve", "-s", f"tcp://127.0.0.1:{port}", "--timeout", "3"]
    command += ["-p", str(flat_xml(tmp_path / "p.xml", 64)), "-w", str(tmp_path / "jobs.json"), "-e", f"{tmp_path}/out"]
    with peer(SCHEDULERS / "diesAfterAWhile.py", port) as scheduler:
        done = subprocess.run(
            command,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )
        assert scheduler.wait(60) == -signal.SIGKILL
    assert done.returncode == 1
    assert re.search(r"the scheduler has hung up after \d+ messages; the last message to it was {", done.stderr)
    assert "Traceback" not in done.stderr
    assert 100 <= len(rows(tmp_path / "out_jobs.csv")) < 2000


@pytest.mark.parametrize(
    ("before", "complaint"),
    [
        (b"SIMULATION_ENDS", ""),
        (b"JOB_SUBMITTED", "the scheduler has hung up after 1 messages; the last message to it"),
    ],
)
@pytest.mark.ci
def test_a_scheduler_that_ends_without_a_reply(tmp_path: Path, before: bytes, complaint: str) -> None:
    """It may when it has been told of the end."""
    write_batsim(lublin.generate(10, 1, 4), tmp_path / "jobs.json", None)
    with zmq.Context() as context, context.socket(zmq.REP) as scheduler, ThreadPoolExecutor() as threads:
        scheduler.rcvtimeo = 60_000
        port = scheduler.bind_to_random_port("tcp://127.0.0.1")

        def schedule() -> None:
            while before not in (message := scheduler.recv()):
                content = json.loads(message)
                jobs = [event["data"]["job_id"] for event in content["events"] if event["type"] == "JOB_SUBMITTED"]
                events = [{"timestamp": content["now"], "type": "REJECT_JOB", "data": {"job_id": job}} for job in jobs]
                scheduler.send_string(json.dumps({"now": content["now"], "events": events}))
            scheduler.close()

        scheduled = threads.submit(schedule)
        arguments = ["-p", flat_xml(tmp_path / "p.xml", 4), "-w", tmp_path / "jobs.json"]
        done = batsim_serve(*arguments, port=port, cwd=tmp_path)
        scheduled.result()
    assert done.returncode == int(bool(complaint)), done.stderr
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr
    assert len(rows(tmp_path / "out_jobs.csv")) == (0 if complaint else 10)


# A scheduler that hdsim starts

REJECTER = '''
"""Rejects all jobs at the endpoint given, does something odd when a text comes, then leaves."""
import json, os, sys, time, zmq

endpoint, text, odd = sys.argv[1:]
print("bound to", endpoint, flush=True)
socket = zmq.Context().socket(zmq.REP)
socket.bind(endpoint)
ended = False
while not ended:
    message = socket.recv()
    if text.encode() in message:
        exec(odd)
    content = json.loads(message)
    ended = content["events"][-1:] != [] and content["events"][-1]["type"] == "SIMULATION_ENDS"
    jobs = [event["data"]["job_id"] for event in content["events"] if event["type"] == "JOB_SUBMITTED"]
    events = [{"timestamp": content["now"], "type": "REJECT_JOB", "data": {"job_id": job}} for job in jobs]
    socket.send_string(json.dumps({"now": content["now"], "events": events}))
'''


def serve_started(
    folder: Path, *arguments: object, text: str = "no such text", odd: str = ""
) -> subprocess.CompletedProcess[str]:
    port = free_port()
    (folder / "rejecter.py").write_text(REJECTER)
    write_batsim(lublin.generate(10, 1, 4), folder / "jobs.json", None)
    command = shlex.join([sys.executable, f"{folder}/rejecter.py", f"tcp://127.0.0.1:{port}", text, odd])
    inputs = ["-p", flat_xml(folder / "p.xml", 4), "-w", folder / "jobs.json", "-e", folder / "results" / "out"]
    return batsim_serve(*inputs, "--sched-cmd", command, *arguments, port=port, cwd=folder)


def test_a_started_scheduler(tmp_path: Path) -> None:
    done = serve_started(tmp_path)
    assert done.returncode == 0, done.stderr
    assert {row["final_state"] for row in rows(tmp_path / "results/out_jobs.csv")} == {"REJECTED"}
    assert (tmp_path / "results/out_sched.log").read_text().startswith("bound to tcp://")


@pytest.mark.parametrize(
    ("text", "odd", "complaint", "jobs"),
    [
        ("w0!9", "sys.exit('no more')", "the scheduler ended with status 1; the end of .* no more", 8),
        ("_BEGINS", "os.kill(os.getpid(), 9)", "the scheduler was killed by SIGKILL; the end of", 0),
        ("_ENDS", "sys.exit('at last')", "the scheduler ended with status 1; the end of .* at last", 10),
        ("_ENDS", "socket.close(); time.sleep(99)", "the scheduler has not ended 3 seconds after the end", 10),
    ],
)
@pytest.mark.ci
def test_a_started_scheduler_that_ends_badly(tmp_path: Path, text: str, odd: str, complaint: str, jobs: int) -> None:
    done = serve_started(tmp_path, "--timeout", 3 if "sleep" in odd else 60, text=text, odd=odd)
    assert done.returncode == 1, done.stderr
    assert re.search(complaint, done.stderr)
    assert "Traceback" not in done.stderr
    assert len(rows(tmp_path / "results/out_jobs.csv")) == jobs


def test_a_started_scheduler_that_never_listens(tmp_path: Path) -> None:
    write_batsim(lublin.generate(10, 1, 4), tmp_path / "jobs.json", None)
    begin = time.monotonic()
    inputs = ["-p", flat_xml(tmp_path / "p.xml", 4), "-w", tmp_path / "jobs.json", "--timeout", 600]
    done = batsim_serve(*inputs, "--sched-cmd", "sh -c 'echo cannot >&2; exit 3'", port=free_port(), cwd=tmp_path)
    assert done.returncode == 1
    assert "the scheduler ended with status 3; the end of out_sched.log: cannot" in done.stderr
    assert time.monotonic() - begin < 300


@pytest.mark.requires("pybatsim")
def test_a_started_pybatsim(tmp_path: Path) -> None:
    workload = lublin.generate(100, 11, 64)
    write_batsim(workload.replaced(walltime=workload.runtime + 1.0), tmp_path / "jobs.json", None)
    port = free_port()
    inputs = ["-p", flat_xml(tmp_path / "p.xml", 64), "-w", tmp_path / "jobs.json"]
    command = f"{sys.executable} -m batsim.cmds.launcher easyBackfill -s tcp://127.0.0.1:{port}"
    done = batsim_serve(*inputs, "--sched-cmd", command, port=port, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert {row["final_state"] for row in rows(tmp_path / "out_jobs.csv")} == {"COMPLETED_SUCCESSFULLY"}


def test_no_scheduler(tmp_path: Path) -> None:
    write_batsim(lublin.generate(10, 1, 4), tmp_path / "jobs.json", None)
    begin = time.monotonic()
    done = batsim_serve(
        "-p",
        flat_xml(tmp_path / "p.xml", 4),
        "-w",
        tmp_path / "jobs.json",
        "--timeout",
        "0.5",
        port=free_port(),
        cwd=tmp_path,
    )
    assert done.returncode == 1
    assert re.search(r"the scheduler has not bound tcp://127.0.0.1:\d+ within 0.5 s", done.stderr)
    assert time.monotonic() - begin >= 0.5
    assert rows(tmp_path / "out_jobs.csv") == []


def test_termination_keeps_what_is_done(tmp_path: Path) -> None:
    write_batsim(lublin.generate(10, 1, 4), tmp_path / "jobs.json", None)
    with zmq.Context() as context, context.socket(zmq.REP) as scheduler:
        port = scheduler.bind_to_random_port("tcp://127.0.0.1")
        command = [
            sys.executable,
            "-m",
            "hdsim",
            "batsim-serve",
            "-s",
            f"tcp://127.0.0.1:{port}",
            "-e",
            f"{tmp_path}/out",
        ]
        command += ["-p", str(flat_xml(tmp_path / "p.xml", 4)), "-w", str(tmp_path / "jobs.json")]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
            assert b"SIMULATION_BEGINS" in scheduler.recv()
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate()
    assert process.returncode == 1
    assert "interrupted" in errors
    assert (tmp_path / "out_jobs.csv").exists()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("-p", "nowhere", "-w", "w.json"), "expected a file or a bundled name, got 'nowhere'"),
        (("-p", "p.xml", "-w", "nothing.json"), "got 'nothing.json'"),
        (("-p", "p.xml", "-w", "p.xml"), "p.xml"),
        (("-p", "p.xml", "-w", "w.json", "-E"), "expected the property wattage_per_state of every host"),
        (("-p", "p.xml", "-w", "w.json", "--timeout", "0"), "--timeout: expected more than 0 s"),
        (("-p", "p.xml", "-w", "w.json", "-s", "localhost"), "expected an endpoint such as tcp://localhost:28000"),
        (("-p", "p.xml", "-w", "w.json", "--contention", "bogus"), "got 'bogus'"),
        (("-p", "p.xml", "-w", "w.json", "--acknowledge-dynamic-jobs"), "needs --enable-dynamic-jobs"),
        (("-p", "p.xml", "-w", "w.json", "--batsim-energy"), "--batsim-energy needs -E"),
        (("-p", "p.xml", "-w", "w.json", "--events", "w.json"), "w.json:1:13: expected JSON"),
        (("-p", "p.xml", "-w", "w.json", "--sched-cmd", ""), "--sched-cmd: expected a program on PATH or its path"),
        (("-p", "p.xml", "-w", "w.json", "--sched-cmd", "no-such -x"), "PATH or its path, got 'no-such -x'"),
        (("-p", "p.xml", "-w", "w.json", "--sched-cmd", "sh 'x"), "got 'sh 'x': No closing quotation"),
        (("-w", "w.json"), "Missing option '-p'"),
    ],
)
def test_bad_arguments(
    hdsim: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path, arguments: tuple[str, ...], complaint: str
) -> None:
    flat_xml(tmp_path / "p.xml", 4)
    write_batsim(lublin.generate(10, 1, 4), tmp_path / "w.json", None)
    done = hdsim("batsim-serve", *arguments)
    assert done.returncode == 2, done.stderr
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.glob("out_*"))
