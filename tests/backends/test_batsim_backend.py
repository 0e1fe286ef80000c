"""Backend batsim: recorded conversations, made-up ones, faults, and whole replays on hdsim's own Batsim side."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zmq
from hypothesis import example, given
from hypothesis import strategies as st
from lxml import etree
from spoiling import spoilt
from tiers import ci, examples, nightly, pairs

import hdsim
from hdsim.backends.batsim.backend import Batsim
from hdsim.backends.batsim.files import Files
from hdsim.backends.batsim.hosts import load_hosts
from hdsim.backends.batsim.inputs import Options, read_jobs
from hdsim.backends.batsim.pstates import PStates
from hdsim.backends.batsim.server import BatsimServer
from hdsim.backends.batsim.session import BatsimSession, host_order
from hdsim.backends.batsim.zeromq import SchedulerSocket, serve
from hdsim.cluster import invariants
from hdsim.cluster.policies import CORE_POLICIES
from hdsim.cluster.state import Cluster, FinalState
from hdsim.errors import BackendError, ConfigError
from hdsim.results.result import Result
from hdsim.scheduling.agent import make_agent
from hdsim.simulation.setup import set_up
from hdsim.util.process import Process
from hdsim.util.resources import resolve
from hdsim.workload.batsim_json import read_batsim
from hdsim.workload.generators import lublin

ROOT = Path(__file__).resolve().parents[2]
JOB_POLICIES = ("random", "first", "shortest", "smallest", "low_mem", "low_mem_bw")
# s; both sides know times of six decimals.
ROUNDING = 1e-6


# Recorded conversations


def exchanges(path: Path) -> Iterator[tuple[str, Any]]:
    """Raw messages of Batsim, each with the recorded reply as a JSON value."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for asked, answered in zip(lines[::2], lines[1::2], strict=True):
        assert (asked["dir"], answered["dir"]) == ("batsim->scheduler", "scheduler->batsim")
        yield asked["raw"], answered["msg"]


def answer(session: BatsimSession, agent: hdsim.Agent, messages: Sequence[tuple[str, Any]]) -> None:
    """Lets an agent answer recorded messages and compares its replies with the recorded ones."""
    agent.begin(session.cluster)
    for raw, reply in messages:
        if session.read(raw):
            agent.decide(session.cluster)
            invariants.check(session.cluster)
        assert json.loads(session.write()) == reply
    assert session.ended


def test_recorded_easy(shared_data: Path) -> None:
    folder = shared_data / "batsim_runs"
    platform = hdsim.Platform.homogeneous(nodes=4, cores_per_node=1, gflops_per_core=1.0)
    workload = hdsim.load_workload(folder / "transcript_inputs/tiny2.json", platform)
    cluster = Cluster(platform, workload, fixed_policy=True)
    answer(BatsimSession(cluster), make_agent("easy"), list(exchanges(folder / "transcript-easy.jsonl")))
    assert cluster.starting_time == [0, 10, 2, 20]
    assert cluster.finish_time == [10, 20, 7, 50]


class Probe(hdsim.Agent):
    """What the recorded scheduler did, in hdsim's words; what they have no word for goes to the session."""

    PLACES: Mapping[int, Sequence[int]] = {0: [0, 1], 1: [2], 2: [3], 5: [0], 6: [1]}

    def __init__(self) -> None:
        self.batsim: BatsimSession
        self.states: list[tuple[int, list[int]]] = []

    def begin(self, cluster: Cluster) -> None:
        cluster.call_me_later(6)

    def decide(self, cluster: Cluster) -> None:
        for job in cluster.submitted:
            if job == 3:
                cluster.reject(job)
            elif job in self.PLACES:
                cluster.start_on(job, self.PLACES[job])
                if job == 2:
                    self.states.append((0, [3]))
        if 1 in cluster.ended:
            cluster.start_on(4, [2])
            self.states.append((1, [2]))
        if 4 in cluster.ended:
            self.states.append((3, [2]))
        if 5 in cluster.ended:
            self._register(cluster)
        if not cluster.submitted and not cluster.ended:
            cluster.kill(4)
            self.batsim.request("QUERY", {"requests": {"consumed_energy": {}}})

    def _register(self, cluster: Cluster) -> None:
        request = self.batsim.request
        profile = {"type": "delay", "delay": 2}
        job = {"profile": "p", "id": "dyn!d", "res": 1, "walltime": 10, "subtime": cluster.now}
        request("REGISTER_PROFILE", {"workload_name": "dyn", "profile_name": "p", "profile": profile})
        request("REGISTER_JOB", {"job_id": "dyn!d", "job": job})
        request("SET_JOB_METADATA", {"job_id": "dyn!d", "metadata": "hello"})
        request("NOTIFY", {"type": "registration_finished"})
        # No row of a workload stands for a registered job.
        self.batsim.rows["dyn!d"] = 6
        self.batsim._quoted[6] = '"dyn!d"'

    # As keeper of the P-states

    def start(self, job: int, cores: Sequence[int]) -> None:
        assert list(cores) == sorted(cores)

    def end(self, job: int, cores: Sequence[int]) -> None:
        assert list(cores) == sorted(cores)

    def changes(self) -> Iterator[tuple[int, list[int]]]:
        yield from self.states
        self.states.clear()


def test_recorded_probe(shared_data: Path) -> None:
    folder = shared_data / "batsim_runs"
    platform = hdsim.load_platform(shared_data / "hdeeprm/platforms/learning.json", shared_data / "hdeeprm/types")
    raw, _ = read_batsim(folder / "transcript_inputs/tiny.json", platform.reference_gflops)
    columns = {key: list(raw.columns[key]) for key in ("submission_time", "runtime", "requested_cores", "job_id")}
    # The job that the scheduler registered itself.
    dynamic = {"submission_time": 13.0, "runtime": 2.0, "requested_cores": 1, "job_id": "d"}
    workload = hdsim.Workload.from_columns(**{key: [*columns[key], dynamic[key]] for key in columns})
    cluster = Cluster(platform, workload)
    probe = Probe()
    probe.batsim = BatsimSession(cluster, pstates=probe, registers_jobs=True)
    answer(probe.batsim, probe, list(exchanges(folder / "transcript.jsonl")))
    assert [FinalState(state).name for state in cluster.state] == [
        "COMPLETED_SUCCESSFULLY",
        "COMPLETED_WALLTIME_REACHED",
        "COMPLETED_SUCCESSFULLY",
        "REJECTED",
        "COMPLETED_KILLED",
        "COMPLETED_FAILED",
        "COMPLETED_SUCCESSFULLY",
    ]
    np.testing.assert_array_equal(cluster.starting_time, [0, 0, 1.5, np.nan, 5, 12, 13])
    np.testing.assert_array_equal(cluster.finish_time, [10, 5, 3.318182, np.nan, 6, 13, 15])
    assert probe.batsim.answer == {"consumed_energy": 571.75}


# Against hdsim's own Batsim side, without a socket


def replayed(
    platform: hdsim.Platform,
    workload: hdsim.Workload,
    agent: str | hdsim.Agent,
    folder: Path,
    *,
    contention: str = "none",
    energy: bool = True,
    kill_at_walltime: bool = False,
    check: bool = False,
    renamed: Callable[[bytes], bytes] = bytes,
    sockets: bool = False,
) -> Result:
    """What an agent makes of a workload when it is told about it in messages only, over real sockets or without any."""
    files = Files(folder, energy=energy, kill_at_walltime=kill_at_walltime)
    files.write(platform, workload)
    files.platform.write_bytes(renamed(files.platform.read_bytes()))
    hosts = load_hosts(files.platform)
    server = BatsimServer(hosts, [read_jobs(files.workload, hosts.platform)], Options(energy=energy))
    if sockets:
        endpoint = f"ipc://{folder}/socket"
        batsim = Batsim(socket=endpoint, energy=energy, kill_at_walltime=kill_at_walltime)

        def simulate() -> None:
            with SchedulerSocket(endpoint, timeout=60) as scheduler:
                serve(server, scheduler.exchange)

        with ThreadPoolExecutor() as threads:
            served = threads.submit(simulate)
            result, _ = batsim.run(platform, workload, agent, folder, contention=contention, seed=1, check=check)
            served.result()
        return result
    setup = set_up(platform, workload, agent, contention=contention, seed=1)
    pstates = PStates(platform, workload, setup.contention) if energy else None  # type: ignore[arg-type]
    session = BatsimSession(setup.cluster, infeasible=setup.infeasible.tolist(), pstates=pstates)

    def exchange(message: str) -> str:
        if session.read(message):
            setup.agent.decide(setup.cluster)
        reply = session.write()
        if check:
            invariants.check(setup.cluster)
        return reply

    setup.agent.begin(setup.cluster)
    serve(server, exchange)
    assert session.ended
    return Result.of(setup.cluster, interrupted=False)


def assert_equal(batsim: Result, sim: Result, tolerance: float = ROUNDING) -> None:
    """Job by job: outcome and cores equal, times up to the rounding of the protocol."""
    np.testing.assert_array_equal(batsim.state, sim.state)
    assert list(batsim.jobs["allocated_resources"]) == list(sim.jobs["allocated_resources"])
    np.testing.assert_allclose(batsim.starting_time, sim.starting_time, rtol=0, atol=tolerance)
    np.testing.assert_allclose(batsim.finish_time, sim.finish_time, rtol=0, atol=tolerance)


@pytest.fixture(scope="module")
def platform() -> hdsim.Platform:
    """16 cores of two speeds."""
    return hdsim.load_platform(resolve("platforms", "teaching"))


def made_up(jobs: int, seed: int = 0, **columns: Any) -> hdsim.Workload:
    """Jobs of which many wait, and many want the same node's memory or the same processor's bandwidth."""
    rng = np.random.default_rng(seed)
    runtime = rng.integers(1, 500, jobs)
    made = {
        "submission_time": np.sort(rng.integers(0, jobs * 60, jobs)),
        "runtime": runtime,
        "requested_time": runtime * rng.integers(1, 4, jobs),
        "requested_cores": rng.choice([1, 1, 2, 3, 4, 8, 16], jobs),
        "memory": rng.choice([0, 500, 2000, 4000], jobs),
        "memory_bandwidth": rng.choice([0, 4, 8, 12, 16, 20, 24], jobs),
    }
    return hdsim.Workload.from_columns(**(made | columns))


@pytest.mark.parametrize(("job_policy", "core_policy"), pairs(JOB_POLICIES, CORE_POLICIES))
def test_every_policy_pair(platform: hdsim.Platform, tmp_path: Path, job_policy: str, core_policy: str) -> None:
    workload, agent = made_up(80), f"{job_policy}-{core_policy}"
    sim = hdsim.simulate(platform, workload, agent, contention="threshold", seed=1)
    assert len(sim.oversubscribed[0]) > 3
    batsim = replayed(platform, workload, agent, tmp_path, contention="threshold", check=True)
    assert_equal(batsim, sim)


@pytest.mark.parametrize("energy", [True, *nightly(False)])
@pytest.mark.parametrize(
    "agent", ["easy", *ci("conservative"), *nightly("fcfs", "easy-sjf", "easy-saf-low_power", "wfp3", "tetris")]
)
def test_backfilling_and_orders(platform: hdsim.Platform, tmp_path: Path, agent: str, energy: bool) -> None:
    workload = made_up(100, seed=3)
    sim = hdsim.simulate(platform, workload, agent, seed=1)
    assert_equal(replayed(platform, workload, agent, tmp_path, energy=energy, sockets=True), sim)


@pytest.mark.parametrize("agent", ["fcfs", "easy", "sjf"])
def test_jobs_of_one_time_are_queued_by_number(platform: hdsim.Platform, tmp_path: Path, agent: str) -> None:
    """Batsim submits them by the text of their ids, 10 before 2."""
    workload = made_up(24, seed=2, submission_time=np.repeat([0, 600], 12), runtime=60, requested_time=60)
    sim = hdsim.simulate(platform, workload, agent, seed=1)
    assert len(np.unique(sim.starting_time)) > 4
    assert_equal(replayed(platform, workload, agent, tmp_path, energy=False, check=True), sim)


def test_exact_on_one_speed(tmp_path: Path) -> None:
    machine = hdsim.Platform.homogeneous(nodes=16, cores_per_node=1, gflops_per_core=10.0)
    workload = made_up(400, memory=0)
    sim = hdsim.simulate(machine, workload, "easy")
    assert_equal(replayed(machine, workload, "easy", tmp_path, energy=False), sim, tolerance=0.0)


class Busybody(hdsim.Agent):
    """First fit that also rejects, kills and asks to be called, by chance."""

    def begin(self, cluster: Cluster) -> None:
        cluster.call_me_later(7.5)

    def decide(self, cluster: Cluster) -> None:
        chance = cluster.rng.random
        for job in list(cluster.queue):
            if chance() < 0.05:
                cluster.reject(job)
                continue
            placement = cluster.pick(job)
            if placement is not None and chance() < 0.7:
                cluster.start(job, placement)
        for job in list(cluster.running):
            # A job started at this instant is not known to run yet on every backend.
            if chance() < 0.05 and cluster.starting_time[job] < cluster.now:
                cluster.kill(job)
        if chance() < 0.2 or (cluster.queue and not cluster.running):
            cluster.call_me_later(cluster.now + float(cluster.rng.integers(1, 20)))


@pytest.mark.parametrize("contention", ["none", "threshold"])
def test_every_decision(platform: hdsim.Platform, tmp_path: Path, contention: str) -> None:
    workload = made_up(200, walltime=300.0, return_code=np.arange(200) % 7 == 3)
    sim = hdsim.simulate(platform, workload, Busybody(), contention=contention, seed=1, kill_at_walltime=True)
    assert len(np.unique(sim.state)) == 5
    batsim = replayed(platform, workload, Busybody(), tmp_path, contention=contention, kill_at_walltime=True)
    assert_equal(batsim, sim)


def test_jobs_that_never_start(platform: hdsim.Platform, tmp_path: Path) -> None:
    workload = made_up(20)
    batsim = replayed(platform, workload, "void", tmp_path)
    assert_equal(batsim, hdsim.simulate(platform, workload, "void"))
    assert (batsim.state == FinalState.QUEUED).all()


def test_jobs_that_cannot_run(platform: hdsim.Platform, tmp_path: Path) -> None:
    workload = made_up(20, memory=np.where(np.arange(20) % 4 == 3, 1e9, 0))
    batsim = replayed(platform, workload, "easy", tmp_path)
    assert_equal(batsim, hdsim.simulate(platform, workload, "easy"))
    assert (batsim.state == FinalState.REJECTED).sum() == 5


def unpadded(xml: bytes) -> bytes:
    return re.sub(rb"cor_0+(?=\d)", b"cor_", xml)


def test_hosts_numbered_by_name(platform: hdsim.Platform, tmp_path: Path) -> None:
    workload, agent = made_up(100), "shortest-high_gflops"
    sim = hdsim.simulate(platform, workload, agent, contention="threshold", seed=1)
    batsim = replayed(platform, workload, agent, tmp_path, contention="threshold", renamed=unpadded)
    assert load_hosts(tmp_path / "batsim/platform.xml").names[:3] == ("cor_0", "cor_1", "cor_10")
    assert_equal(batsim, sim)


@pytest.mark.parametrize(
    ("names", "order"),
    [
        (["cor_0", "cor_1", "cor_2"], [0, 1, 2]),
        (["cor_0", "cor_1", "cor_10", *(f"cor_{n}" for n in range(2, 10))], [0, 1, *range(3, 11), 2]),
        (["node-3.grid", "node-1.grid", "node-2.grid"], [1, 2, 0]),
        (["rack7-a2", "rack7-a1"], [1, 0]),
        (["only"], [0]),
        (["a1", "b1", "b2"], [0, 1, 2]),
        (["Bourassa", "Fafard", "Jupiter"], [0, 1, 2]),
    ],
)
def test_order_of_hosts(names: list[str], order: list[int]) -> None:
    assert host_order(names) == order


@pytest.mark.parametrize("names", [["b", "a"], ["a2", "a10", "b1", "b0"], ["cor_10", "cor_2"]])
def test_order_of_hosts_that_nothing_tells(names: list[str]) -> None:
    with pytest.raises(BackendError, match="expected host names that tell the core ids"):
        host_order(names)


jobs = st.lists(
    st.tuples(
        st.integers(0, 30), st.integers(1, 20), st.integers(1, 5), st.sampled_from([0, 100, 700]), st.integers(0, 9)
    ),
    min_size=1,
    max_size=12,
)


# The last job is as long as its walltime, and its end a sum of several parts.
@example(jobs=[*[(0, 1, 1, 0, 0)] * 5, (0, 15, 1, 0, 0)], agent="random-random")
@given(jobs=jobs, agent=st.sampled_from(["easy", "conservative", "shortest-high_mem", "random-random", "busy", "void"]))
@examples(40)
def test_any_workload(tmp_path_factory: pytest.TempPathFactory, jobs: list[tuple[int, ...]], agent: str) -> None:
    submission, runtime, cores, memory, bandwidth = (np.array(column) for column in zip(*jobs, strict=True))
    machine = hdsim.Platform.homogeneous(nodes=2, cores_per_node=2, memory_gb_per_node=1.0, mem_bw=10.0)
    workload = hdsim.Workload.from_columns(
        submission_time=submission,
        runtime=runtime,
        requested_cores=cores,
        memory=memory,
        memory_bandwidth=bandwidth,
        walltime=15.0,
    )
    chosen = Busybody() if agent == "busy" else agent
    options = {"contention": "threshold", "kill_at_walltime": True, "check": True}
    batsim = replayed(machine, workload, chosen, tmp_path_factory.mktemp("run"), **options)
    assert_equal(batsim, hdsim.simulate(machine, workload, chosen, seed=1, **options))


# Messages that no Batsim should send

BEGIN: dict[str, Any] = {
    "nb_resources": 2,
    "nb_compute_resources": 2,
    "nb_storage_resources": 0,
    "allow_compute_sharing": False,
    "allow_storage_sharing": True,
    "config": {},
    "compute_resources": [{"id": 0, "name": "host0"}, {"id": 1, "name": "host1"}],
    "storage_resources": [],
    "workloads": {"w0": "workload.json"},
    "profiles": {"w0": {}},
}


def message(now: float, *events: tuple[str, dict[str, Any]], at: float | None = None) -> str:
    stamp = now if at is None else at
    return json.dumps(
        {"now": now, "events": [{"timestamp": stamp, "type": kind, "data": data} for kind, data in events]}
    )


def submission(job: str, cores: int = 1) -> tuple[str, dict[str, Any]]:
    return "JOB_SUBMITTED", {"job_id": job, "job": {"id": job, "subtime": 0, "res": cores, "profile": "p"}}


def completion(job: str, **changed: Any) -> tuple[str, dict[str, Any]]:
    data = {"job_id": job, "job_state": "COMPLETED_SUCCESSFULLY", "return_code": 0, "alloc": "0"}
    return "JOB_COMPLETED", data | changed


def begun() -> tuple[BatsimSession, hdsim.Agent]:
    """A conversation about two jobs of one core at the point where the first was told to start on host 0."""
    machine = hdsim.Platform.homogeneous(nodes=2, cores_per_node=1)
    workload = hdsim.Workload.from_columns(
        submission_time=[0, 0], runtime=[10, 10], requested_cores=[1, 1], job_id=[1, 2]
    )
    session, agent = BatsimSession(Cluster(machine, workload)), make_agent("fcfs")
    agent.begin(session.cluster)
    for text in (message(0, ("SIMULATION_BEGINS", BEGIN)), message(1, submission("w0!1"))):
        if session.read(text):
            agent.decide(session.cluster)
        session.write()
    return session, agent


def test_the_conversation_to_spoil_is_fine() -> None:
    session, _ = begun()
    assert session.read(message(2, completion("w0!1"), submission("w0!2")))
    assert session.cluster.ended == [0]
    assert session.cluster.submitted == [1]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("\x08\x00\x00", "Batsim: expected JSON"),
        ("{}", "expected an object with 'now' and a list of 'events'"),
        ('{"now": 2, "events": [3]}', "events[0]: expected an object, got 3"),
        ('{"now": "2", "events": []}', 'now: expected a number of seconds, got "2"'),
        (message(0.5), "now: expected at least 1.000000"),
        (message(2, ("REQUESTED_CALL", {}), at=0.5), "time goes back"),
        (message(2, ("REQUESTED_CALL", {}), at=3), "time goes back"),
        (message(2, ("JOB_SUBMITED", {})), 'unknown event "JOB_SUBMITED" (did you mean'),
        (message(2, ("NOTIFY", {"type": "end_of_days"})), "unknown notification 'end_of_days'"),
        (message(2, ("NOTIFY", {"type": "event_machine_unavailable"})), "data.resources: expected hosts"),
        (message(2, ("SIMULATION_BEGINS", BEGIN)), "SIMULATION_BEGINS: the simulation began before"),
        (message(2, ("SIMULATION_ENDS", {})), "but 1 still run and 1 were never submitted"),
        (message(2, ("REQUESTED_CALL", {})), "expected REQUESTED_CALL after a CALL_ME_LATER only"),
        (message(2, ("JOB_SUBMITTED", {"job_id": "w0!2"})), "data.job: expected an object, got nothing"),
        (message(2, submission("w0!3")), "unknown job 'w0!3': expected one of the 2 of the workload given to hdsim"),
        (message(2, submission("w0!1")), "job w0!1: expected a job that is NOT_SUBMITTED, it is RUNNING"),
        (message(2, submission("w0!2", 7)), "job w0!2: data.job.res: expected 1, which the workload says, got 7"),
        (message(2, completion("w0!2")), "job w0!2: expected a job that is RUNNING, it is NOT_SUBMITTED"),
        (message(2, completion("w0!1"), completion("w0!1")), "events[1] JOB_COMPLETED: job w0!1: expected a job that"),
        (message(2, completion("w0!1", job_state="DONE")), "data.job_state: unknown state 'DONE'"),
        (message(2, completion("w0!1", alloc="1")), "job w0!1: data.alloc: expected '0', got '1'"),
        (message(2, completion("w0!1", alloc="0-7")), 'expected hosts from 0 to 1, got "0-7"'),
        (message(2, completion("w0!1", alloc="all")), "expected hosts as in '0-3 8', got \"all\""),
        (message(2, ("JOB_KILLED", {"job_ids": ["w0!1"], "job_progress": {}})), "expected its JOB_COMPLETED before"),
        (message(2, ("JOB_KILLED", {"job_ids": [7], "job_progress": {}})), "unknown job 7"),
        (message(2, ("RESOURCE_STATE_CHANGED", {"resources": "5", "state": "0"})), "expected hosts from 0 to 1"),
    ],
)
def test_malformed_messages(text: str, told: str) -> None:
    session, _ = begun()
    with pytest.raises(BackendError) as caught:
        session.read(text)
    assert told in str(caught.value)
    assert str(caught.value).startswith("Batsim")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"compute_resources": BEGIN["compute_resources"][:1]}, "expected a host for each of the 2 cores"),
        ({"nb_compute_resources": 3}, "expected a host for each of the 2 cores"),
        ({"compute_resources": [{"id": 0, "name": "a"}, {"id": 0, "name": "b"}]}, "compute_resources[1].id"),
        ({"compute_resources": [{"id": 0, "name": "a"}, {"id": 2, "name": "b"}]}, "expected ids 0 to 1, each once"),
        ({"compute_resources": [{"id": 0, "name": "a"}, 5]}, "compute_resources[1]: expected an object"),
        ({"compute_resources": [{"id": 0, "name": "b"}, {"id": 1, "name": "a"}]}, "host names that tell the core ids"),
        ({"workloads": {}}, "expected one workload, got none"),
        ({"workloads": {"w0": "a", "w1": "b"}}, "expected one workload, got w0, w1"),
        ({"config": None}, "data.config: expected an object"),
        (
            {"compute_resources": [{"id": 0, "name": "cor_1"}, {"id": 1, "name": "master_host"}]},
            "got 'master_host' among them; hdsim's platform needs Batsim's default -m master_host",
        ),
    ],
)
def test_malformed_beginnings(changed: dict[str, Any], told: str) -> None:
    machine = hdsim.Platform.homogeneous(nodes=2, cores_per_node=1)
    session = BatsimSession(Cluster(machine, made_up(1)))
    with pytest.raises(BackendError, match=re.escape(told)):
        session.read(message(0, ("SIMULATION_BEGINS", BEGIN | changed)))


def test_nothing_before_the_beginning() -> None:
    machine = hdsim.Platform.homogeneous(nodes=2, cores_per_node=1)
    with pytest.raises(BackendError, match="JOB_SUBMITTED: expected SIMULATION_BEGINS first"):
        BatsimSession(Cluster(machine, made_up(1))).read(message(0, submission("w0!0")))


def test_a_job_on_an_unavailable_host() -> None:
    session, agent = begun()
    unavailable = ("NOTIFY", {"type": "event_machine_unavailable", "resources": "1"})
    assert session.read(message(2, unavailable, submission("w0!2")))
    agent.decide(session.cluster)
    with pytest.raises(BackendError, match=r"job w0!2 was started on host 1, which .* unavailable"):
        session.write()


values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 9),
    st.floats(),
    st.text(max_size=5),
    st.just([]),
    st.just({}),
    st.just([{}]),
)


@given(data=st.data())
@examples(150)
def test_spoilt_messages_end_in_one_error(shared_data: Path, data: st.DataObject) -> None:
    """Any part of a recorded message exchanged for something else is understood or refused, and never trips hdsim."""
    folder = shared_data / "batsim_runs"
    machine = hdsim.Platform.homogeneous(nodes=4, cores_per_node=1, gflops_per_core=1.0)
    workload = hdsim.load_workload(folder / "transcript_inputs/tiny2.json", machine)
    session, agent = BatsimSession(Cluster(machine, workload)), make_agent("easy")
    recorded = [json.loads(raw) for raw, _ in exchanges(folder / "transcript-easy.jsonl")]
    chosen = data.draw(st.integers(0, len(recorded) - 1))
    agent.begin(session.cluster)
    try:
        for content in recorded[:chosen]:
            if session.read(json.dumps(content)):
                agent.decide(session.cluster)
            session.write()
        session.read(json.dumps(spoilt(recorded[chosen], data, values)))
        invariants.check(session.cluster)
    except BackendError as error:
        assert "\n" not in str(error)


# Real sockets


@pytest.fixture
def batsim_program(tmp_path: Path) -> Callable[..., Path]:
    """Makes a program that takes Batsim's options: hdsim's own Batsim side, with shell commands around it."""

    def make(before: str = "", after: str = "") -> Path:
        program = tmp_path / "batsim.sh"
        command = f'"{sys.executable}" -m hdsim batsim-serve "$@"'
        lines = [
            "#!/bin/sh",
            f'export PYTHONPATH="{ROOT}"',
            before,
            f"{command}\n{after}" if after else f"exec {command}",
        ]
        program.write_text("\n".join(lines) + "\n")
        program.chmod(0o755)
        return program

    return make


@pytest.mark.ci
def test_three_thousand_jobs(tmp_path: Path, batsim_program: Callable[..., Path]) -> None:
    machine = hdsim.Platform.homogeneous(nodes=64, cores_per_node=4, gflops_per_core=10.0)
    workload = lublin.generate(3_000, seed=5, cores=machine.n_cores)
    chosen = Batsim(executable=str(batsim_program()), energy=False)
    batsim, facts = chosen.run(machine, workload, "easy", tmp_path)
    assert_equal(batsim, hdsim.simulate(machine, workload, "easy"), tolerance=0.0)
    assert facts["version"]
    assert facts["messages"] > 3_000


class Annotator(hdsim.Agent):
    """First fit that knows it runs on a Batsim."""

    batsim: BatsimSession | None = None

    def decide(self, cluster: Cluster) -> None:
        for job in list(cluster.queue):
            placement = cluster.pick(job)
            if placement is not None:
                cluster.start(job, placement)
                assert self.batsim is not None
                self.batsim.request("SET_JOB_METADATA", {"job_id": f"w0!{job}", "metadata": f"seen {job}"})


def test_energy_and_metadata(tmp_path: Path, platform: hdsim.Platform, batsim_program: Callable[..., Path]) -> None:
    """The P-states that were asked for give the energy that hdsim computes from the schedule."""
    chosen = Batsim(executable=str(batsim_program()))
    batsim, facts = chosen.run(platform, made_up(60), Annotator(), tmp_path, contention="threshold")
    assert len(batsim.oversubscribed[0]) > 3
    assert facts["consumed_joules"] == pytest.approx(batsim.energy_joules, rel=1e-6)
    assert facts["abandoned_jobs"] == 0
    assert "seen 7" in (tmp_path / "batsim/out_jobs.csv").read_text()


@pytest.mark.parametrize(
    ("energy", "contention", "counted"),
    [
        (None, "none", False),
        (None, "threshold", True),
        (True, "none", True),
        (False, "none", False),
    ],
)
@pytest.mark.ci
def test_batsim_counts_energy_where_it_is_asked_to(
    tmp_path: Path,
    platform: hdsim.Platform,
    batsim_program: Callable[..., Path],
    energy: bool,
    contention: str,
    counted: bool,
) -> None:
    chosen = Batsim(executable=str(batsim_program()), energy=energy)
    batsim, facts = chosen.run(platform, made_up(20), "fcfs", tmp_path, contention=contention)
    assert_equal(batsim, hdsim.simulate(platform, made_up(20), "fcfs", contention=contention))
    assert (tmp_path / "batsim/out_consumed_energy.csv").exists() is counted
    told = pytest.approx(batsim.energy_joules, rel=1e-6) if counted else None
    assert facts["consumed_joules"] == told


def alive(pid: int) -> bool:
    """Whether a process runs, a zombie left aside."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return
        time.sleep(0.02)
    pytest.fail("it never happened")


SLOW_AGENT = '''
import pathlib
import time

import hdsim


class Slow(hdsim.Agent):
    """First fit that takes its time, and says when jobs have ended."""

    def decide(self, cluster):
        for job in list(cluster.queue):
            placement = cluster.pick(job)
            if placement is not None:
                cluster.start(job, placement)
        if len(cluster.placements) - len(cluster.running) > 5:
            pathlib.Path("begun").touch()
            time.sleep(0.02)
'''


@pytest.fixture
def running(
    tmp_path: Path, batsim_program: Callable[..., Path]
) -> Iterator[Callable[..., tuple[subprocess.Popen[str], int, Path]]]:
    """Starts ``hdsim run backend=batsim`` and waits until jobs have ended: the process, Batsim's pid, the directory."""
    started: list[subprocess.Popen[str]] = []

    def start(*overrides: str) -> tuple[subprocess.Popen[str], int, Path]:
        (tmp_path / "slow.py").write_text(SLOW_AGENT)
        program = batsim_program(before=f"echo $$ > {tmp_path}/pid")
        directory = tmp_path / "run"
        command = [
            sys.executable,
            "-m",
            "hdsim",
            "run",
            "backend=batsim",
            f"backend.executable={program}",
            "platform=teaching",
            "workload.jobs=2000",
            "agent.path=slow.py",
            f"hydra.run.dir={directory}",
            *overrides,
        ]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        process = subprocess.Popen(
            command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        started.append(process)
        wait_until(lambda: (tmp_path / "begun").exists() or process.poll() is not None)
        assert process.poll() is None, process.communicate()
        return process, int((tmp_path / "pid").read_text()), directory

    yield start
    for process in started:
        process.kill()
        process.communicate()


def finished_jobs(directory: Path) -> int:
    return len((directory / "jobs.csv").read_text().splitlines()) - 1


@pytest.mark.ci
def test_batsim_is_killed(running: Callable[..., tuple[subprocess.Popen[str], int, Path]]) -> None:
    process, batsim, directory = running()
    os.kill(batsim, signal.SIGKILL)
    _, errors = process.communicate()
    assert process.returncode == 1
    assert errors.splitlines()[-1].startswith("hdsim: error: Batsim was killed by SIGKILL")
    assert "Traceback" not in errors
    manifest = json.loads((directory / "manifest.json").read_text())
    assert manifest["status"] == "failed"
    assert "Batsim was killed by SIGKILL" in manifest["error"]
    assert finished_jobs(directory) > 5


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, *nightly(signal.SIGTERM, signal.SIGINT)], ids=lambda number: number.name
)
@pytest.mark.ci
def test_batsim_never_outlives_hdsim(
    running: Callable[..., tuple[subprocess.Popen[str], int, Path]], number: signal.Signals
) -> None:
    process, batsim, directory = running()
    assert alive(batsim)
    process.send_signal(number)
    process.communicate()
    wait_until(lambda: not alive(batsim))
    status = json.loads((directory / "manifest.json").read_text())["status"]
    if number == signal.SIGKILL:
        assert status == "running"
    else:
        assert status == "interrupted"
        assert process.returncode == 1
        assert finished_jobs(directory) > 5


ORPHAN = """
import signal, sys
from pathlib import Path
from hdsim.util.process import Process

with Process(["sh", "-c", f"echo $$ > {sys.argv[1]}/pid; exec sleep 1000"], Path(sys.argv[1], "log"), "it"):
    signal.pause()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux kills the children of a process that was killed")
def test_not_even_a_process_that_never_listens_outlives_hdsim(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, "-c", ORPHAN, tmp_path], env=environment)
    try:
        wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip())
        orphan = int((tmp_path / "pid").read_text())
        assert alive(orphan)
    finally:
        process.kill()
        process.wait()
    wait_until(lambda: not alive(orphan))


#: s; within it a program starts, and the scheduler compiles the kernels that its first answer needs.
SILENCE = 120


@pytest.fixture
def apart(
    tmp_path: Path, batsim_program: Callable[..., Path]
) -> Iterator[tuple[subprocess.Popen[str], subprocess.Popen[str], Path]]:
    """``hdsim run backend=batsim`` and a Batsim at its socket, neither the child of the other; some jobs have ended."""
    (tmp_path / "slow.py").write_text(SLOW_AGENT)
    directory, endpoint = tmp_path / "run", f"ipc://{tmp_path}/socket"
    files = directory / "batsim"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    def start(*command: object) -> subprocess.Popen[str]:
        return subprocess.Popen(
            list(map(str, command)),
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    ours = start(
        sys.executable,
        "-m",
        "hdsim",
        "run",
        "backend=batsim",
        f"backend.socket={endpoint}",
        f"backend.timeout={SILENCE}",
        "platform=teaching",
        "workload.jobs=2000",
        "agent.path=slow.py",
        f"hydra.run.dir={directory}",
    )
    wait_until(lambda: (files / "workload.json").exists() or ours.poll() is not None)
    inputs = ["-p", files / "platform.xml", "-w", files / "workload.json", "-E"]
    theirs = start(batsim_program(), "-s", endpoint, *inputs, "-e", tmp_path / "theirs", "--timeout", SILENCE)
    try:
        # The first answer may compile kernels.
        wait_until(lambda: (tmp_path / "begun").exists() or ours.poll() is not None or theirs.poll() is not None, 120)
        assert ours.poll() is None, ours.communicate()
        assert theirs.poll() is None, theirs.communicate()
        yield ours, theirs, directory
    finally:
        for process in (ours, theirs):
            process.kill()
            process.wait()


def test_batsim_at_a_socket_is_killed(
    apart: tuple[subprocess.Popen[str], subprocess.Popen[str], Path],
) -> None:
    ours, theirs, directory = apart
    theirs.kill()
    begin = time.monotonic()
    _, errors = ours.communicate()
    assert time.monotonic() - begin < SILENCE / 4
    assert ours.returncode == 1
    assert re.match(
        r"hdsim: error: Batsim has hung up after \d+ messages$",
        errors.splitlines()[-1],
    )
    assert "Traceback" not in errors
    assert json.loads((directory / "manifest.json").read_text())["status"] == "failed"
    assert finished_jobs(directory) > 5


@pytest.mark.ci
def test_hdsim_is_killed_and_the_batsim_at_its_socket_notices(
    apart: tuple[subprocess.Popen[str], subprocess.Popen[str], Path],
) -> None:
    ours, theirs, directory = apart
    ours.kill()
    begin = time.monotonic()
    _, errors = theirs.communicate()
    assert time.monotonic() - begin < SILENCE / 4
    assert theirs.returncode == 1
    assert re.search(r"the scheduler has hung up after \d+ messages; the last message to it was", errors)
    assert "Traceback" not in errors
    assert len((directory.parent / "theirs_jobs.csv").read_text().splitlines()) > 5


@pytest.mark.ci
def test_batsim_that_waits_at_a_socket(
    tmp_path: Path, platform: hdsim.Platform, batsim_program: Callable[..., Path]
) -> None:
    """hdsim is there first or last; here it is last, and its files were written by an earlier try."""
    workload = made_up(100)
    endpoint = f"ipc://{tmp_path}/socket"
    with pytest.raises(BackendError, match=f"no Batsim has connected to {endpoint} within 0.3 s"):
        Batsim(socket=endpoint, timeout=0.3).run(platform, workload, "fcfs", tmp_path)
    folder = tmp_path / "batsim"
    options = ["-E", "-p", folder / "platform.xml", "-w", folder / "workload.json", "-e", tmp_path / "theirs"]
    other = subprocess.Popen([batsim_program(), "-s", endpoint, *options], stderr=subprocess.DEVNULL)
    try:
        batsim, facts = Batsim(socket=endpoint).run(platform, workload, "fcfs", tmp_path)
        assert other.wait() == 0
    finally:
        other.kill()
    assert_equal(batsim, hdsim.simulate(platform, workload, "fcfs"))
    assert facts["endpoint"] == endpoint
    assert facts["version"] is None


def program(path: Path, body: str) -> str:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (
            "echo one; echo libsimgrid.so not found >&2; exit 3",
            r"Batsim ended with status 3; the end of .*one \| lib",
        ),
        ("kill -SEGV $$", "Batsim was killed by SIGSEGV; it wrote nothing to"),
        ("echo $$ > pid; exec sleep 1000", "no Batsim has connected to (ipc|tcp)://[^ ]+ within 0.5 s"),
    ],
)
def test_batsim_that_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, platform: hdsim.Platform, body: str, told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    chosen = Batsim(executable=program(tmp_path / "batsim.sh", body), timeout=0.5)
    with pytest.raises(BackendError, match=told) as caught:
        chosen.run(platform, made_up(5), "fcfs", tmp_path)
    assert (caught.value.result.state == FinalState.NOT_SUBMITTED).all()
    pid = tmp_path / "pid"
    assert not pid.exists() or not alive(int(pid.read_text()))


# Changes a field in line 2 of Batsim's output.
EDIT = "awk -F, -v OFS=, 'NR!=2{print;next}"
EDITED = "batsim/out_jobs.csv > edited && mv edited batsim/out_jobs.csv"


@pytest.mark.parametrize(
    ("after", "told"),
    [
        (
            r"sed -i '2s/COMPLETED_SUCCESSFULLY/COMPLETED_FAILED/' batsim/out_jobs.csv",
            "out_jobs.csv:2: final_state: exp",
        ),
        (f"{EDIT} {{$11=1.5}}1' {EDITED}", "out_jobs.csv:2: finish_time: expected "),
        (f'{EDIT} {{$15=""}}1\' {EDITED}', "out_jobs.csv:2: allocated_resources: expected '"),
        (r"sed -i '3d' batsim/out_jobs.csv", "out_jobs.csv: expected a row for every job, 1 are missing"),
        ("rm batsim/out_schedule.csv", "out_schedule.csv: expected Batsim to have written this file"),
        ("exit 4", "Batsim ended with status 4"),
    ],
)
def test_batsim_that_contradicts_itself(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    platform: hdsim.Platform,
    batsim_program: Callable[..., Path],
    after: str,
    told: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    chosen = Batsim(executable=str(batsim_program(after=after)))
    with pytest.raises(BackendError, match=re.escape(told)):
        chosen.run(platform, made_up(5, requested_cores=1), "fcfs", tmp_path)


@pytest.mark.parametrize(
    ("frames", "told"),
    [
        ([b"\x10\x00\x00\x00\x0c"], r"expected JSON of Batsim 3 or 4 \(Batsim 5 speaks FlatBuffers\)"),
        ([b"{}", b"{}"], "expected a message of one frame from Batsim, got 2 frames"),
        ([b'{"now": 0, "events": ['], "expected JSON"),
    ],
)
def test_another_protocol(tmp_path: Path, platform: hdsim.Platform, frames: list[bytes], told: str) -> None:
    endpoint = f"ipc://{tmp_path}/socket"
    with zmq.Context() as context, context.socket(zmq.REQ) as peer:
        peer.linger = 0
        peer.connect(endpoint)
        peer.send_multipart(frames)
        with pytest.raises(BackendError, match=told):
            Batsim(socket=endpoint).run(platform, made_up(1), "fcfs", tmp_path)


def test_batsim_that_does_not_end(tmp_path: Path) -> None:
    with Process(["sleep", "1000"], tmp_path / "log", "Batsim") as process:
        assert process.fault() is None
        with pytest.raises(BackendError, match=r"Batsim has not ended 0\.1 seconds after the end of the simulation"):
            process.wait(0.1)
    assert process.fault() == f"was killed by SIGKILL; it wrote nothing to {tmp_path / 'log'}"


def test_a_program_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "text").touch(mode=0o644)
    with pytest.raises(BackendError, match="cannot be started: Permission denied"):
        Process([str(tmp_path / "text")], tmp_path / "log", "Batsim")


# What is found before the simulation begins


def test_what_batsim_cannot_do_is_told_at_once(platform: hdsim.Platform, tmp_path: Path) -> None:
    workload = made_up(4, runtime=[0, 1, 2, 0], fixed_duration=True, job_id=["a", "b!c", "d", "e"])
    chosen = Batsim(executable="no-such-batsim")
    with pytest.raises(ConfigError) as caught:
        chosen.run(platform, workload, "fcfs", tmp_path, contention="fair_share")
    told = [str(error) for error in caught.value.errors]
    assert all(error.startswith("backend=batsim: ") for error in told)
    assert [
        bool(re.search(part, error))
        for part, error in zip(
            ("got fair_share", "no program 'no-such-batsim'", "2 of 4 jobs", "job ids without '!'"), told, strict=True
        )
    ] == [True] * 4
    assert not list(tmp_path.iterdir())
    with pytest.raises(ConfigError, match=r"does not do with backend\.energy=false"):
        Batsim(socket="tcp://*:1", energy=False).check(platform, made_up(4), contention="threshold")


def with_messages(folder: Path, platform: hdsim.Platform) -> hdsim.Workload:
    """Two jobs of two tasks, of which the second exchanges messages."""
    profiles = {f"p{n}": {"type": "parallel_homogeneous", "cpu": 1e12, "com": n * 1e8} for n in range(2)}
    jobs = [{"id": n, "subtime": n, "res": 2, "profile": f"p{n}"} for n in range(2)]
    path = folder / "messages.json"
    path.write_text(json.dumps({"nb_res": 16, "jobs": jobs, "profiles": profiles}))
    return hdsim.load_workload(path, platform)


def test_messages_of_jobs_need_a_network(platform: hdsim.Platform, tmp_path: Path) -> None:
    """A real Batsim sends them over the links of the platform, whatever `network` says."""
    workload = with_messages(tmp_path, platform)
    told = r"network=none: expected jobs without messages, .*; 1 of 2 jobs have some; network=fluid simulates the same"
    with pytest.raises(ConfigError, match=told):
        Batsim(socket="tcp://*:1").check(platform, workload)
    Batsim(socket="tcp://*:1").check(platform, workload, network="fluid")


def test_the_command_for_a_batsim_started_by_hand(
    platform: hdsim.Platform, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It names an endpoint that can be connected to, whatever the bound one is."""
    with pytest.raises(BackendError, match=r"no Batsim has connected to tcp://0\.0\.0\.0:\d+ within"):
        Batsim(socket="tcp://*:*", timeout=0.1).run(platform, made_up(1), "fcfs", tmp_path)
    assert re.search(r"to start it: batsim -s tcp://localhost:\d+ -p ", caplog.text)


def test_dynamic_jobs_end_at_once(
    batsim_program: Callable[..., Path], platform: hdsim.Platform, tmp_path: Path
) -> None:
    """Agents register no jobs, so that Batsim need not wait for them."""
    batsim = Batsim(executable=str(batsim_program()), arguments=["--enable-dynamic-jobs"])
    result, _ = batsim.run(platform, made_up(20), "fcfs", tmp_path)
    assert result.metrics["jobs_completed"] == 20


@pytest.mark.parametrize("network", ["none", "fluid"])
def test_latencies_of_links(platform: hdsim.Platform, tmp_path: Path, network: str) -> None:
    """Reports of events cross the links to the master host as well; without messages of jobs they take no time."""
    assert platform.global_latency.all()
    workload = with_messages(tmp_path, platform) if network == "fluid" else made_up(5)
    batsim = Batsim(socket="tcp://127.0.0.1:*", timeout=0.1)
    with pytest.raises(BackendError, match="no Batsim has connected"):
        batsim.run(platform, workload, "fcfs", tmp_path, network=network)
    links = etree.parse(tmp_path / "batsim/platform.xml").iter("link")
    latencies = {link.get("id")[:3]: link.get("latency") for link in links}
    assert latencies == ({"glo": "2e-05s", "nod": "5e-06s"} if network == "fluid" else {"glo": "0.0s", "nod": "0.0s"})


def test_a_socket_that_cannot_be_bound(platform: hdsim.Platform, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"backend\.socket: expected an endpoint such as tcp://\*:28000"):
        Batsim(socket="tcp://256.0.0.1:80").run(platform, made_up(1), "fcfs", tmp_path)


def test_a_missing_batsim_is_the_users_mistake(
    hdsim: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    done = hdsim("run", "backend=batsim", "backend.executable=no-such-batsim", "platform=teaching", "workload.jobs=5")
    assert done.returncode == 2
    assert "expected Batsim on PATH or its path in backend.executable" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(shutil.which("batsim") is None, reason="no Batsim on PATH; no package registry has one to install")
@pytest.mark.parametrize("agent", ["fcfs", "easy", "shortest-high_mem_bw"])
def test_a_real_batsim(tmp_path: Path, platform: hdsim.Platform, agent: str) -> None:
    workload = made_up(200)
    batsim, facts = Batsim().run(platform, workload, agent, tmp_path, contention="threshold")
    assert facts["version"].startswith(("v3", "v4"))
    assert batsim.metrics["jobs_completed"] == 200
    if agent == "fcfs":
        assert_equal(batsim, hdsim.simulate(platform, workload, agent, contention="threshold"), tolerance=1e-4)
