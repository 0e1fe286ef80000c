"""How jobs ran: columns, job_details.csv, metrics, and the network models of `hdsim run`."""

from __future__ import annotations

import csv
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_execution import make_workload

from hdsim import Platform, Workload, simulate
from hdsim.backends.batsim.backend import Batsim
from hdsim.errors import ConfigError
from hdsim.results.details import columns, fewest_nodes
from hdsim.results.metrics import full
from hdsim.results.result import Result
from hdsim.results.run_directory.directory import RunDirectory
from hdsim.results.run_directory.reader import read

NAMES = (
    "supersteps",
    "computation_time",
    "communication_time",
    "barrier_waiting_time",
    "communication_share",
    "slowdown_factor",
    "nodes",
    "node_spread",
)


def uneven() -> Platform:
    """Nodes of 4, 2 and 2 cores, of which the last is half as fast."""
    processors = {
        name: {"cores": cores, "clock_rate": rate, "dpflops_per_cycle": 1, "power": 1, "mem_bw": 10}
        for name, cores, rate in (("large", 4, 1.0), ("small", 2, 1.0), ("slow", 2, 0.5))
    }
    return Platform.from_dict(
        {
            "clusters": [{"id": "c", "nodes": [{"type": name, "number": 1} for name in processors]}],
            "types": {
                "processor": processors,
                "node": {name: {"processors": [{"type": name, "number": 1}]} for name in processors},
            },
        }
    )


def mixed() -> Result:
    """A gang, a rigid job, one that is killed and one that can never run."""
    platform = Platform.homogeneous(nodes=2, cores_per_node=2, gflops_per_core=1.0, mem_bw=10.0, bandwidth="1GBps")
    profiles = {
        "gang": {"type": "bsp", "supersteps": 2, "cpu": [1e9, 2e9, 2e9], "com": 1e9, "pattern": "ring", "l": 0.5},
        "rigid": {"type": "parallel_homogeneous", "cpu": 3e9},
        "long": {"type": "parallel_homogeneous", "cpu": 50e9},
    }
    jobs = [
        {"id": "gang", "subtime": 0, "res": 3, "profile": "gang"},
        {"id": "rigid", "subtime": 0, "res": 1, "profile": "rigid"},
        {"id": "killed", "subtime": 1, "res": 2, "profile": "long", "walltime": 4},
        {"id": "large", "subtime": 1, "res": 9, "profile": "long"},
    ]
    workload = make_workload(jobs, profiles, platform)
    return simulate(platform, workload, "fcfs", network="fluid", kill_at_walltime=True)


def test_columns_of_jobs_with_and_without_programs() -> None:
    jobs = mixed().jobs
    assert tuple(jobs)[-len(NAMES) :] == NAMES
    # Cores 0, 1 and 2: of the ring 0 -> 1 -> 2 -> 0, two messages of 1 GB cross, one each way. 2 x (2 + 1 + 0.5) s.
    expected = {
        "supersteps": [2, 0, 0, 0],
        "computation_time": [4, 3, 4, np.nan],
        "communication_time": [3, 0, 0, np.nan],
        "barrier_waiting_time": [2 / 3, 0, 0, np.nan],
        "communication_share": [3 / 7, 0, 0, np.nan],
        "slowdown_factor": [1, 1, 1, np.nan],
        "nodes": [2, 1, 1, 0],
        "node_spread": [1, 1, 1, np.nan],
    }
    for name, values in expected.items():
        assert jobs[name] == pytest.approx(values, nan_ok=True), name
    assert jobs["supersteps"].dtype == jobs["nodes"].dtype == np.int64


def test_rigid_jobs_under_contention_have_a_slow_down() -> None:
    platform = uneven()
    workload = Workload.from_columns(
        submission_time=[0, 0, 0, 20],
        runtime=[6, 6, 6, 0],
        requested_cores=[2, 2, 4, 1],
        memory_bandwidth=[5, 0, 5, 0],
        fixed_duration=[False, False, False, True],
    )
    result = simulate(platform, workload, "fcfs-high_gflops", contention="fair_share")
    assert result.time_breakdown is None
    # The third job has the two small nodes, one of them slow, where its demand fits.
    assert result.jobs["allocated_resources"].tolist() == ["0-1", "2-3", "4-7", "0"]
    assert result.jobs["slowdown_factor"] == pytest.approx([1, 1, 1, 1])
    assert result.jobs["nodes"].tolist() == [1, 1, 2, 1]
    assert result.jobs["node_spread"].tolist() == [1, 1, 2, 1]
    assert result.jobs["computation_time"].tolist() == result.jobs["execution_time"].tolist()
    greedy = simulate(platform, workload.replaced(memory_bandwidth=8.0), "fcfs-high_gflops", contention="fair_share")
    # 32 of 10 GB/s on the first processor, 16 of 10 on the others.
    assert greedy.jobs["slowdown_factor"] == pytest.approx([3.2, 3.2, 1.6, 1])


def test_fewest_nodes_takes_the_largest_first() -> None:
    assert fewest_nodes(uneven(), np.arange(1, 9)).tolist() == [1, 1, 1, 1, 2, 2, 3, 3]


def test_job_details_csv(tmp_path: Path) -> None:
    result = mixed()
    run = RunDirectory(tmp_path)
    run.start({"seed": 1}, result.platform, result.workload)
    run.finish(result)
    with (tmp_path / "job_details.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows[0] == {
        "job_id": "gang",
        "supersteps": "2",
        "computation_time": "4.000000",
        "communication_time": "3.000000",
        "barrier_waiting_time": "0.666667",
        "communication_share": "0.428571",
        "slowdown_factor": "1.000000",
        "nodes": "2",
        "node_spread": "1.000000",
    }
    assert rows[3] == {"job_id": "large", "supersteps": "0", "nodes": "0"} | {
        name: "" for name in NAMES if name not in ("supersteps", "nodes")
    }
    back = read(tmp_path)
    for name in columns(result):
        assert back.jobs[name] == pytest.approx(result.jobs[name], abs=1e-6, nan_ok=True)
        assert back.jobs[name].dtype == result.jobs[name].dtype
    (tmp_path / "job_details.csv").unlink()
    assert "nodes" not in read(tmp_path).jobs


def test_metrics() -> None:
    metrics = full(mixed())
    held = 3 * 7 + 3 + 2 * 4
    assert metrics["communication_share"] == pytest.approx(3 * 3 / held)
    assert metrics["barrier_waiting_share"] == pytest.approx(3 * 2 / 3 / held)
    assert metrics["mean_nodes"] == pytest.approx(4 / 3)
    assert metrics["mean_node_spread"] == 1.0
    assert metrics["max_slowdown_factor"] == pytest.approx(1.0)
    rigid = simulate(uneven(), Workload.from_columns(submission_time=[0], runtime=[1], requested_cores=[1]))
    assert "communication_share" not in full(rigid)
    assert full(rigid)["p95_slowdown_factor"] == 1.0


def test_metrics_of_nothing_are_not_defined() -> None:
    nothing = simulate(uneven(), Workload.from_columns(submission_time=[0], runtime=[1], requested_cores=[1]), "void")
    metrics = full(nothing)
    assert np.isnan([metrics["mean_slowdown_factor"], metrics["mean_nodes"], metrics["mean_node_spread"]]).all()


def test_batsim_does_not_know_supersteps() -> None:
    result = mixed()
    with pytest.raises(ConfigError, match="expected jobs without supersteps; 1 of 4 have some"):
        Batsim(socket="tcp://*:1").check(result.platform, result.workload)


# Network models by name and by file

SLOWER = '''
import dataclasses
from hdsim.network.fluid import Fluid


class Slower(Fluid):
    """Links that are slower than the platform says."""

    def __init__(self, platform, factor=2.0):
        super().__init__(dataclasses.replace(platform, local_bandwidth=platform.local_bandwidth / factor))
'''


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    """A folder with a platform, a workload and a network model."""
    platform = Platform.homogeneous(nodes=2, cores_per_node=1, gflops_per_core=1.0, bandwidth="1GBps")
    (tmp_path / "p.json").write_text(json.dumps(platform.to_dict()))
    profile = {"type": "bsp", "supersteps": 2, "cpu": 1e9, "com": 1e9, "pattern": "ring", "g": 5e-9}
    jobs = [{"id": 0, "subtime": 0, "res": 2, "profile": "p"}]
    (tmp_path / "w.json").write_text(json.dumps({"jobs": jobs, "profiles": {"p": profile}}))
    (tmp_path / "slower.py").write_text(SLOWER)
    return tmp_path


@pytest.mark.parametrize(
    ("settings", "makespan"),
    [
        ([], 2 * (1 + 5)),
        (["network=fluid"], 2 * (1 + 1)),
        (["network.path=slower.py"], 2 * (1 + 2)),
        (["network.path=slower.py", "network.factor=4"], 2 * (1 + 4)),
    ],
)
def test_a_run_takes_a_network(
    hdsim: Callable[..., subprocess.CompletedProcess[str]], inputs: Path, settings: list[str], makespan: float
) -> None:
    done = hdsim("run", "platform.path=p.json", "workload.path=w.json", *settings, "hydra.run.dir=run", cwd=inputs)
    assert done.returncode == 0, done.stderr
    assert read(inputs / "run").metrics["makespan"] == pytest.approx(makespan)


@pytest.mark.parametrize(
    ("network", "message"),
    [
        ("fuild", r"network: expected one of custom, fluid, none, got 'fuild' \(did you mean 'fluid'\?\)"),
        ({"path": "gone.py"}, r"network\.path: expected a Python file .* found no file 'gone\.py'"),
        ({"_target_": "hdsim.contention.fair_share.FairShare"}, "expected a subclass of hdsim.network.Network"),
        ({"_target_": "hdsim.network.fluid.Fluid", "share": 1}, r"unexpected keyword argument 'share' \(did you mean"),
        ({"_target_": "hdsim.network.fluid.Fluid", "sharing": "fair"}, r"network\.sharing: expected one of equal, lat"),
    ],
)
def test_faults_of_a_network(network: Any, message: str) -> None:
    workload = Workload.from_columns(submission_time=[0], runtime=[1], requested_cores=[1])
    with pytest.raises(ConfigError) as caught:
        simulate(uneven(), workload, network=network)
    assert re.search(message, str(caught.value))
