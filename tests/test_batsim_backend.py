"""Backend batsim: recorded conversations, made-up ones, faults, and whole replays on hdsim's own Batsim side."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import hdsim
from hdsim.agent import make_agent
from hdsim.batsim.translation import Translation
from hdsim.readers.batsim import read_batsim
from hdsim.state import Cluster, FinalState


def exchanges(path: Path) -> Iterator[tuple[str, Any]]:
    """Raw messages of Batsim, each with the recorded reply as a JSON value."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for asked, answered in zip(lines[::2], lines[1::2], strict=True):
        assert (asked["dir"], answered["dir"]) == ("batsim->scheduler", "scheduler->batsim")
        yield asked["raw"], answered["msg"]


def converse(translation: Translation, agent: hdsim.Agent, messages: Sequence[tuple[str, Any]]) -> None:
    """Lets an agent answer recorded messages and compares its replies with the recorded ones."""
    agent.begin(translation.cluster)
    for raw, reply in messages:
        if translation.read(raw):
            agent.decide(translation.cluster)
            translation.cluster.check()
        assert json.loads(translation.write()) == reply
    assert translation.ended


def test_recorded_easy(shared_data: Path) -> None:
    folder = shared_data / "batsim_runs"
    platform = hdsim.Platform.homogeneous(nodes=4, cores_per_node=1, gflops_per_core=1.0)
    workload = hdsim.load_workload(folder / "transcript_inputs/tiny2.json", platform)
    cluster = Cluster(platform, workload, fixed_policy=True)
    converse(Translation(cluster), make_agent("easy"), list(exchanges(folder / "transcript-easy.jsonl")))
    assert cluster.starting_time == [0, 10, 2, 20]
    assert cluster.finish_time == [10, 20, 7, 50]


class Probe(hdsim.Agent):
    """What the recorded scheduler did, in hdsim's words; what they have no word for goes to the translation."""

    PLACES: Mapping[int, Sequence[int]] = {0: [0, 1], 1: [2], 2: [3], 5: [0], 6: [1]}

    def __init__(self) -> None:
        self.batsim: Translation
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
        self.batsim.add_job("dyn!d", 6)

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
    probe.batsim = Translation(cluster, pstates=probe)
    converse(probe.batsim, probe, list(exchanges(folder / "transcript.jsonl")))
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
