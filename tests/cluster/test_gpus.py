"""Jobs with GPUs on machines small enough to follow by hand; the random ones are in test_invariants.py."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from schedules import cores_of_jobs

import hdsim
from hdsim import Platform, Workload, load_workload, simulate
from hdsim.backends.batsim.backend import Batsim
from hdsim.cluster import invariants
from hdsim.cluster.state import Cluster, FinalState
from hdsim.contention.smoothstep import Smoothstep
from hdsim.errors import ConfigError, DecisionError, PlatformError, WorkloadError
from hdsim.results import series
from hdsim.results.metrics import full
from hdsim.results.run_directory.directory import RunDirectory
from hdsim.results.run_directory.reader import read
from hdsim.workload.batsim_json import write_batsim

#: Three nodes: 0-3 cores; 4-7 cores, 8 9 GPUs; 10-13 cores, 14 15 GPUs.
DOCUMENT: dict[str, Any] = {
    "name": "three",
    "clusters": [{"id": "all", "nodes": [{"type": "plain", "number": 1}, {"type": "gpus", "number": 2}]}],
    "types": {
        "node": {
            "plain": {"processors": [{"type": "cpu", "number": 1}], "memory": {"capacity": 8}},
            "gpus": {
                "processors": [{"type": "cpu", "number": 1}, {"type": "gpu", "number": 2}],
                "memory": {"capacity": 4},
            },
        },
        "processor": {
            "cpu": {"cores": 4, "clock_rate": 1, "dpflops_per_cycle": 8, "power": 40},
            "gpu": {"type": "GPU", "cores": 1, "clock_rate": 1, "dpflops_per_cycle": 4000, "power": 300},
        },
    },
}
THREE = Platform.from_dict(DOCUMENT)


def _workload(*jobs: tuple[float, float, int, int], **columns: Any) -> Workload:
    """Jobs of (submission, run time, cores, GPUs)."""
    submit, runtime, cores, gpus = zip(*jobs, strict=True)
    return Workload.from_columns(
        submission_time=submit, runtime=runtime, requested_cores=cores, requested_gpus=gpus, **columns
    )


# The platform


def test_gpus_are_counted_apart() -> None:
    assert (THREE.n_cores, THREE.n_cpu_cores, THREE.n_gpus) == (16, 12, 4)
    assert THREE.gpus.tolist() == [8, 9, 14, 15]
    assert (THREE.node_cpu_cores.tolist(), THREE.node_gpus.tolist()) == ([4, 4, 4], [0, 2, 2])


def test_gpus_have_no_part_in_the_reference_speed() -> None:
    assert THREE.homogeneous_speed
    assert THREE.reference_gflops == 8


def test_the_kind_may_be_in_small_letters() -> None:
    document = copy.deepcopy(DOCUMENT)
    document["types"]["processor"]["gpu"]["type"] = "gpu"
    assert Platform.from_dict(document).n_gpus == 4


def test_a_node_of_gpus_alone_is_a_fault() -> None:
    document = copy.deepcopy(DOCUMENT)
    del document["types"]["node"]["gpus"]["processors"][0]
    with pytest.raises(PlatformError, match=r"types\.node\.gpus: expected a processor besides the GPUs"):
        Platform.from_dict(document)


# What a job gets


def test_a_job_gets_whole_gpus_beside_its_cores() -> None:
    workload = _workload((0, 5, 2, 1), (0, 5, 4, 2), (0, 5, 4, 0), (0, 5, 2, 1))
    result = simulate(THREE, workload, "fcfs", check=True)
    # Job 1 could only be 2 + 2 cores with a GPU each: there is one GPU left on node 1, and two on node 2.
    assert result.jobs["allocated_resources"].tolist() == ["4-5 8", "6-7 9-11 14", "0-3", "12-13 15"]
    assert result.starting_time.tolist() == [0, 0, 0, 0]
    assert result.jobs["requested_number_of_resources"].tolist() == [3, 6, 4, 3]
    assert result.jobs["requested_gpus"].tolist() == [1, 2, 0, 1]


@pytest.mark.parametrize(
    ("cores", "gpus", "given"),
    [
        (1, 2, "4 8-9"),  # one part of 1 core and 2 GPUs
        (2, 4, "4 8-10 14-15"),  # two of them
        (8, 4, "4-15"),
        (3, 2, "4-6 8-9"),  # cannot be divided
        (6, 4, "4-6 8-12 14-15"),  # two parts of 3 cores and 2 GPUs
        (4, 1, "4-8"),
    ],
)
def test_equal_parts_lie_on_one_node_each(cores: int, gpus: int, given: str) -> None:
    result = simulate(THREE, _workload((0, 1, cores, gpus)), "fcfs", check=True)
    assert result.jobs["allocated_resources"].tolist() == [given]


@pytest.mark.parametrize(("cores", "gpus"), [(1, 3), (5, 1), (3, 4), (1, 5), (12, 4), (2, 6)])
@pytest.mark.parametrize("agent", ["fcfs", "easy", "conservative"])
def test_what_never_fits_is_rejected(agent: str, cores: int, gpus: int) -> None:
    result = simulate(THREE, _workload((0, 1, cores, gpus), (0, 1, 1, 1)), agent, check=True)
    assert result.state.tolist() == [FinalState.REJECTED, FinalState.COMPLETED_SUCCESSFULLY]


def test_memory_limits_the_parts_of_a_node() -> None:
    """A part takes 2 cores at 1.5 GB, of which a node of 4 GB has room for one."""
    workload = _workload((0, 1, 4, 2), memory=1500)
    assert simulate(THREE, workload, "fcfs").jobs["allocated_resources"].tolist() == ["4-5 8 10-11 14"]
    result = simulate(THREE, _workload((0, 1, 6, 3), memory=1500), "fcfs")
    assert result.state.tolist() == [FinalState.REJECTED]


def test_jobs_without_gpus_never_get_one() -> None:
    workload = _workload(*[(0, 1, 1, 0)] * 13)
    result = simulate(THREE, workload, "fcfs", check=True)
    assert sorted(np.concatenate(cores_of_jobs(result)[:12]).tolist()) == [0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12, 13]
    assert result.starting_time.tolist() == [0] * 12 + [1]


def test_an_agent_names_gpus_and_cores() -> None:
    cluster = Cluster(THREE, _workload((0, 1, 2, 1), (0, 1, 2, 2), (0, 1, 1, 0)))
    for job in range(3):
        cluster.submit(job)
    for cores, complaint in [
        ([4, 5], "expected 2 cores and 1 GPUs, all distinct"),
        ([4, 5, 6], "expected 1 GPUs to 2 cores on each of its nodes, got 0 to 3 on node 1"),
        ([4, 5, 14], "expected 1 GPUs to 2 cores on each of its nodes, got 0 to 2 on node 1"),
        ([4, 8, 9], "expected 1 GPUs to 2 cores on each of its nodes, got 2 to 1 on node 1"),
    ]:
        with pytest.raises(DecisionError, match=complaint):
            cluster.start_on(0, cores)
    cluster.start_on(0, [8, 5, 4])
    assert cluster.core_ids(0) == [4, 5, 8]
    assert (cluster.n_idle, cluster.n_idle_gpus) == (10, 3)
    with pytest.raises(DecisionError, match=r"expected idle cores, got busy \[8\]"):
        cluster.start_on(1, [6, 7, 8, 9])
    with pytest.raises(DecisionError, match="expected 0 GPUs"):
        cluster.start_on(2, [9])
    invariants.check(cluster)


# Around it


def test_metrics_and_energy() -> None:
    result = simulate(THREE, _workload((0, 3600, 2, 1), (0, 1800, 4, 0)), "fcfs", check=True)
    metrics = full(result)
    assert metrics["gpu_hours"] == 1
    assert metrics["gpu_utilization"] == 1 / 4
    assert metrics["utilization"] == (2 + 4 / 2) / 12
    assert series.gpu_utilization(result).mean() == 1 / 4
    # W: node 0 has 40 W for half the time and 5 % after; of node 1 two cores and a GPU compute, two cores idle beside.
    watts = (40 * 0.5 + 2 * 0.5) + (20 + 20 * 0.25 + 300 + 300 * 0.05) + (2 + 2 * 15)
    assert result.energy_joules == pytest.approx(3600 * watts, rel=1e-12)
    assert result.jobs["consumed_energy"].tolist() == pytest.approx([3600 * 320, 1800 * 40])
    assert series.power(result).integral() == pytest.approx(result.energy_joules)


def test_platforms_without_gpus_have_no_such_metrics() -> None:
    result = simulate(Platform.homogeneous(2, 2), _workload((0, 1, 1, 0)), "fcfs")
    assert not [name for name in full(result) if "gpu" in name]


def test_a_run_directory_keeps_gpus_apart(tmp_path: Path) -> None:
    workload = _workload((0, 10, 2, 1), (1, 10, 4, 4), (2, 5, 9, 0))
    result = simulate(THREE, workload, "fcfs")
    directory = RunDirectory(tmp_path / "run")
    directory.start({"agent": "fcfs", "seed": 0}, THREE, workload)
    directory.finish(result)
    run = read(tmp_path / "run")
    assert run.jobs["requested_gpus"].tolist() == [1, 4, 0]
    for name in ("busy_cores", "busy_gpus", "queued_cores", "utilization", "gpu_utilization", "power"):
        theirs, own = getattr(series, name)(run), getattr(series, name)(result)
        assert theirs.times.tolist() == own.times.tolist(), name
        assert theirs.values.tolist() == pytest.approx(own.values.tolist()), name
    text = (tmp_path / "run" / "machine_states.csv").read_text()
    rows = [tuple(float(cell) for cell in line.split(",")) for line in text.splitlines()[1:]]
    assert [(time, idle, busy) for time, *_, idle, busy in rows] == [(0, 13, 3), (10, 8, 8), (20, 7, 9), (25, 16, 0)]


def test_contention_leaves_gpus_alone() -> None:
    """A job is as fast as its cores; the little bandwidth of the GPUs slows nobody down, nor do they need constants."""
    document = copy.deepcopy(DOCUMENT)
    document["types"]["processor"]["gpu"]["mem_bw"] = 1
    constants = {"b": -0.1, "c": 50.0, "da": 5.0, "db": 0.0, "dc": 10.0, "dd": 0.0}
    document["types"]["processor"]["cpu"] |= {"mem_bw": 30, "smoothstep": constants}
    platform = Platform.from_dict(document)
    Smoothstep(platform)
    workload = _workload((0, 10, 1, 2), (0, 10, 3, 0), memory_bandwidth=5)
    for contention in ("threshold", "fair_share", "smoothstep"):
        result = simulate(platform, workload, "fcfs", contention=contention, check=True)
        assert result.finish_time.tolist() == [10, 10]
        assert len(result.oversubscribed[0]) == 0


@pytest.mark.parametrize("agent", ["fcfs", "easy"])
def test_nodes_with_gpus_fail_and_come_back(tmp_path: Path, agent: str) -> None:
    outages = tmp_path / "outages.csv"
    outages.write_text("node,down,up\n1,5,30\n2,8,9\n")
    workload = _workload((0, 10, 2, 2), (0, 10, 2, 2), (1, 10, 4, 4), (2, 1, 1, 0))
    failures = {"_target_": "hdsim.failures.Trace", "file": str(outages)}
    result = simulate(THREE, workload, agent, failures=failures, check=True)
    assert (result.state == FinalState.COMPLETED_SUCCESSFULLY).all()
    assert result.jobs["restarts"].tolist()[:2] == [1, 1]
    assert result.metrics["gpu_utilization"] > 0


# Files


def _file(folder: Path, *jobs: dict[str, Any]) -> Path:
    path = folder / "jobs.json"
    each = [{"id": i, "subtime": 0, "res": 2, "profile": "p"} | job for i, job in enumerate(jobs)]
    path.write_text(json.dumps({"nb_res": 16, "jobs": each, "profiles": {"p": {"type": "delay", "delay": 5}}}))
    return path


def test_batsim_jobs_ask_for_gpus(tmp_path: Path) -> None:
    jobs = ({"gpus": 2}, {"nvidia.com/gpu": 1}, {"nvidia.com/gpu": "4"}, {}, {"gpus": 2, "nvidia.com/gpu": "2"})
    workload = load_workload(_file(tmp_path, *jobs), platform=THREE)
    assert workload.requested_gpus.tolist() == [2, 1, 4, 0, 2]
    write_batsim(workload, tmp_path / "again.json", THREE)
    written = json.loads((tmp_path / "again.json").read_text())["jobs"]
    assert [job.get("gpus") for job in written] == [2, 1, 4, None, 2]
    assert load_workload(tmp_path / "again.json", platform=THREE).requested_gpus.tolist() == [2, 1, 4, 0, 2]


@pytest.mark.parametrize(
    ("job", "complaint"),
    [
        ({"gpus": -1}, r"jobs\[0\].gpus: expected at least 0 GPUs, got -1"),
        ({"gpus": 1.5}, r"jobs\[0\].gpus: expected a whole number, got 1.5"),
        ({"gpus": "two"}, r"jobs\[0\].gpus: expected a whole number, got \"two\""),
        ({"gpus": 1, "nvidia.com/gpu": 2}, "expected the GPUs of the job under one name, got 1 and 2"),
        ({"gpus": 6}, r"jobs\[0\].gpus: expected capacity for 2 x 1 cores and 3 GPUs, .* capacity for 0"),
        ({"res": 3, "gpus": 4}, r"jobs\[0\].gpus: expected capacity for 1 x 3 cores and 4 GPUs, .* capacity for 0"),
    ],
)
def test_faults_of_requests_are_told(tmp_path: Path, job: dict[str, Any], complaint: str) -> None:
    with pytest.raises(WorkloadError, match=complaint):
        load_workload(_file(tmp_path, job), platform=THREE, strict=True)


def test_batsim_refuses_before_time_0() -> None:
    workload = _workload((0, 1, 1, 1), (0, 1, 1, 0))
    with pytest.raises(ConfigError, match="expected jobs without GPUs; 1 of 2 jobs ask for some"):
        Batsim(executable="true").check(THREE, workload)


def test_the_shipped_platform(root: Path) -> None:
    platform = hdsim.load_platform(root / "platforms" / "accelerated.json")
    assert (platform.n_cpu_cores, platform.n_gpus) == (288, 24)
    rng = np.random.default_rng(1)
    jobs = 120
    gpus = rng.choice([0, 0, 1, 2, 4, 8], jobs)
    workload = Workload.from_columns(
        submission_time=np.sort(rng.uniform(0, 8_000, jobs)),
        runtime=rng.uniform(10, 2000, jobs),
        requested_cores=np.where(gpus > 0, 4 * gpus, rng.integers(1, 64, jobs)),
        requested_gpus=gpus,
    )
    for agent in ("fcfs", "easy", "conservative"):
        result = simulate(platform, workload, agent, check=True)
        assert (result.state == FinalState.COMPLETED_SUCCESSFULLY).all()
        assert 0 < result.metrics["gpu_utilization"] <= 1
