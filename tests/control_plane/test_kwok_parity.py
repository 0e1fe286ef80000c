"""Backend ``kwok`` by the wall clock beside the simulation: hdsim's scheduler and kube-scheduler on one trace."""

from __future__ import annotations

import csv
import json
import random
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kube import Cluster
from tiers import nightly

pytestmark = pytest.mark.requires("kube")
Run = Callable[..., "subprocess.CompletedProcess[str]"]

#: Ten nodes of 8 CPU.
PLATFORM = {
    "name": "ten",
    "kind": "quantities",
    "clusters": [{"id": "node", "nodes": [{"type": "worker", "number": 10}]}],
    "types": {
        "node": {"worker": {"processors": [{"type": "cpu", "number": 1}], "memory": {"capacity": "64GiB"}}},
        "processor": {"cpu": {"cores": 8, "clock_rate": 1, "dpflops_per_cycle": 1, "power": 0}},
    },
}


def trace(jobs: int, seconds: float, seed: int) -> dict[str, Any]:
    """Pods of 1 to 4 CPU that come during most of a time, which fill two thirds of the nodes on average."""
    rng = random.Random(seed)
    longest = seconds / 4
    dates = sorted(round(rng.uniform(0, seconds - longest), 1) for _ in range(jobs))
    sizes = [rng.choice((1, 2, 4)) for _ in range(jobs)]
    work = 2 / 3 * 80 * (seconds - longest)
    weights = [rng.uniform(0.2, 1) for _ in range(jobs)]
    scale = work / sum(size * weight for size, weight in zip(sizes, weights, strict=True))
    runtimes = [round(min(scale * weight, longest), 1) for weight in weights]
    return {
        "nb_res": 80,
        "jobs": [
            {
                "id": job,
                "subtime": dates[job] - dates[0],
                "res": 1,
                "profile": str(job),
                "walltime": 10 * seconds,
                "kubernetes": {"cpu": str(sizes[job])},
            }
            for job in range(jobs)
        ],
        "profiles": {str(job): {"type": "delay", "delay": runtimes[job]} for job in range(jobs)},
    }


@pytest.mark.parametrize(
    ("jobs", "wall"), [(30, 24.0), *nightly((80, 60.0), (500, 300.0))], ids=["24 s", "minute", "five minutes"]
)
@pytest.mark.ci
def test_makespan_by_the_wall_clock_is_that_of_the_simulation(
    cluster: Cluster, hdsim: Run, tmp_path: Path, jobs: int, wall: float
) -> None:
    scale = 20.0
    (tmp_path / "ten.json").write_text(json.dumps(PLATFORM))
    (tmp_path / "trace.json").write_text(json.dumps(trace(jobs, scale * wall, seed=3)))

    def run(*arguments: object) -> str:
        done = hdsim(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("kwok", "nodes", "ten.json", "--kubeconfig", cluster.kubeconfig)
    same = ["workload.path=trace.json", "platform.path=ten.json"]
    kwok = [
        "backend=kwok",
        f"backend.kubeconfig={cluster.kubeconfig}",
        f"backend.namespace={cluster.namespace}",
        f"backend.time_scale={scale}",
    ]
    clean = ["kwok", "clean", "--kubeconfig", cluster.kubeconfig, "--namespace", cluster.namespace]
    run("run", *same, "agent=least_allocated", "hydra.run.dir=runs/sim")
    run("run", *same, *kwok, "agent=least_allocated", "hydra.run.dir=runs/kwok")
    run(*clean)
    run("run", *same, *kwok, "agent=kube_scheduler", "hydra.run.dir=runs/kube")
    run(*clean)
    makespans = {}
    for name in ("sim", "kwok", "kube"):
        metrics = json.loads((tmp_path / "runs" / name / "metrics.json").read_text())
        assert metrics["jobs_completed"] == jobs
        makespans[name] = metrics["makespan"]
        facts = json.loads((tmp_path / "runs" / name / "manifest.json").read_text()).get("backend", {})
        assert facts.get("pods_bound", 0) == (jobs if name == "kwok" else 0)
    print(makespans, {name: value / makespans["sim"] for name, value in makespans.items()})
    assert makespans["kwok"] == pytest.approx(makespans["sim"], rel=0.05)
    assert makespans["kube"] == pytest.approx(makespans["sim"], rel=0.05)
    table = run("compare", "runs/sim", "runs/kwok", "runs/kube", "--output", "compared")
    with (tmp_path / "compared" / "compare.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["metric"] == "makespan"]
    print(table, rows)
    assert [row["configuration"].split()[0] for row in rows] == ["least_allocated", "least_allocated", "kube_scheduler"]
    assert sorted(float(row["mean"]) for row in rows) == pytest.approx(sorted(makespans.values()), rel=1e-3)
