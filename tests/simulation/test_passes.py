"""What happens at one instant is one scheduling pass, and decisions of one pass take effect together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hdsim
from hdsim.results import metrics

PLATFORM = hdsim.Platform.homogeneous(nodes=1, cores_per_node=4, processors_per_node=2, mem_bw=16)


class Shrink(hdsim.Agent):
    """Gives up cores of job 0 and starts another job on them in the same pass."""

    def __init__(self, keep: list[int]) -> None:
        self.keep = keep

    def decide(self, cluster: Any) -> None:
        if cluster.queue and cluster.running:
            cluster.resize_on(0, self.keep)
        for job in list(cluster.queue):
            if cluster.fits(job):
                cluster.start(job)


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize(
    ("model", "second"), [("none", 30.0), ("threshold", 10 + 20 / 0.75), ("fair_share", 10 + 20 / (16 / 24))]
)
def test_a_job_that_starts_on_cores_given_up_in_the_same_pass(model: str, second: float, check: bool) -> None:
    # From 10 s on job 0 has half its cores, and 90 of 100 s left. Job 1 wants 24 of the 16 GB/s of its processor.
    jobs = hdsim.Workload.from_columns(
        submission_time=[0, 10], runtime=[100, 20], requested_cores=[4, 2], memory_bandwidth=[4, 12]
    )
    result = hdsim.simulate(PLATFORM, jobs, Shrink([0, 1]), contention=model, check=check)
    assert result.finish_time.tolist() == pytest.approx([190.0, second], rel=1e-12)


class Swap(hdsim.Agent):
    """Jobs 0 and 1 exchange cores within one pass: job 0 gives up cores, takes others back, and job 2 starts."""

    def decide(self, cluster: Any) -> None:
        if 2 in cluster.queue:
            cluster.resize_on(0, [0, 1])
            cluster.resize_on(1, [2, 4])
            cluster.resize_on(0, [0, 1, 5])
        for job in list(cluster.queue):
            if cluster.fits(job):
                cluster.start(job)


@pytest.mark.parametrize("model", ["none", "threshold", "fair_share"])
def test_jobs_that_exchange_cores_in_one_pass(model: str) -> None:
    # One core a processor: nothing is contended, whoever has which.
    platform = hdsim.Platform.homogeneous(nodes=1, cores_per_node=6, processors_per_node=6, mem_bw=100)
    jobs = hdsim.Workload.from_columns(
        submission_time=[0, 0, 10], runtime=[100, 100, 20], requested_cores=[4, 2, 1], memory_bandwidth=1
    )
    result = hdsim.simulate(platform, jobs, Swap(), contention=model, check=True)
    assert result.finish_time.tolist() == pytest.approx([10 + 90 * 4 / 3, 100, 30])


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("model", ["threshold", "fair_share", "smoothstep"])
def test_work_of_random_resizes_with_starts(seed: int, model: str) -> None:
    """Without sharing of processors a model slows nothing down: the result is that without contention."""

    class Any_(hdsim.Agent):
        def begin(self, cluster: Any) -> None:
            self.rng = np.random.default_rng(seed)

        def decide(self, cluster: Any) -> None:
            for job in list(cluster.running):
                if job in cluster.started or self.rng.random() < 0.5:
                    continue
                own = cluster.cores.ids_of(cluster.running[job])
                free = cluster.cores.idle_ids().tolist()
                cores = self.rng.permutation([*own, *free])[: int(self.rng.integers(1, len(own) + len(free) + 1))]
                cluster.resize_on(job, sorted(cores.tolist()))
            for job in list(cluster.queue):
                if cluster.fits(job):
                    cluster.start(job)

    platform = hdsim.Platform.homogeneous(nodes=2, cores_per_node=4, processors_per_node=4, mem_bw=100)
    rng = np.random.default_rng(seed)
    jobs = hdsim.Workload.from_columns(
        submission_time=np.sort(rng.integers(0, 60, 25)),
        runtime=rng.integers(1, 40, 25),
        requested_cores=rng.integers(1, 5, 25),
        memory_bandwidth=rng.integers(0, 20, 25),
    )
    expected = hdsim.simulate(platform, jobs, Any_(), check=True)
    found = hdsim.simulate(platform, jobs, Any_(), contention=model, check=True)
    assert found.finish_time.tolist() == pytest.approx(expected.finish_time.tolist(), rel=1e-9)


@pytest.mark.parametrize("steps", [None, 2, [[0.0], [1e9], [5e8], [5e8]]])
def test_a_walltime_at_the_end_of_a_superstep_is_part_of_its_instant(steps: Any, tmp_path: Path) -> None:
    # A ends at 1 s, where the walltime of B kills it after half its work: then both cores are free, and Y, the first
    # of the queue, starts before X.
    def profile(work: float) -> dict[str, Any]:
        if steps is None:
            return {"type": "parallel_homogeneous", "cpu": work, "com": 0}
        if isinstance(steps, int):
            return {"type": "bsp", "supersteps": steps, "cpu": work / steps}
        return {"type": "bsp", "supersteps": 4, "cpu": [[0.0], [work / 2], [work / 4], [work / 4]]}

    document = {
        "nb_res": 2,
        "jobs": [
            {"id": "A", "subtime": 0, "res": 1, "profile": "a"},
            {"id": "B", "subtime": 0, "res": 1, "walltime": 1, "profile": "b"},
            {"id": "Y", "subtime": 0.5, "res": 2, "profile": "y"},
            {"id": "X", "subtime": 0.5, "res": 1, "profile": "y"},
        ],
        "profiles": {"a": profile(1e9), "b": profile(2e9), "y": {"type": "parallel_homogeneous", "cpu": 1e9, "com": 0}},
    }
    (tmp_path / "jobs.json").write_text(json.dumps(document))
    platform = hdsim.Platform.homogeneous(nodes=1, cores_per_node=2, gflops_per_core=1.0)
    agent = {"job_policy": "first", "backfill": "greedy"}
    result = hdsim.simulate(
        platform, hdsim.load_workload(tmp_path / "jobs.json", platform), agent, kill_at_walltime=True
    )
    start = dict(zip(result.jobs["job_id"], result.starting_time.tolist(), strict=True))
    assert (start["Y"], start["X"]) == (1.0, 2.0)


def test_energy_ends_with_the_last_finish(tmp_path: Path) -> None:
    # The second job starts at 10 s, its only node fails at 30 s for good: it never finishes.
    (tmp_path / "outage.csv").write_text("node,down,up\n0,30,\n")
    platform = hdsim.Platform.homogeneous(nodes=1, cores_per_node=1, power_per_core=10.0)
    jobs = hdsim.Workload.from_columns(submission_time=[0, 0], runtime=[10, 100], requested_cores=[1, 1])
    failures = {"_target_": "hdsim.failures.Trace", "file": str(tmp_path / "outage.csv")}
    result = hdsim.simulate(platform, jobs, "fcfs", failures=failures)
    assert (result.metrics["makespan"], result.metrics["energy_joules"], result.metrics["edp"]) == (10, 100, 1000)
    assert metrics.full(result)["peak_power_watts"] == 10
