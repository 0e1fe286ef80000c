"""A comparison for a paper on one's own trace and cluster: five policies by ten seeds, in five commands."""

from __future__ import annotations

import csv
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent
AGENTS = ("fcfs", "sjf", "easy", "easy-saf", "conservative")


def cluster() -> dict[str, object]:
    """A cluster of three types of nodes."""
    platform = json.loads((ROOT / "platforms/teaching.json").read_text())
    types = platform["types"]["node"]
    types["large"] = types["fast"] | {"memory": {"capacity": 256}}
    platform["clusters"][0]["nodes"] += [{"type": "large", "number": 2}]
    return platform


def log() -> str:
    """A trace of 40 jobs in the Standard Workload Format."""
    rng = np.random.default_rng(5)
    lines = ["; MaxProcs: 32"]
    for job, submitted in enumerate(np.cumsum(rng.integers(0, 200, 40)).tolist(), 1):
        cores, runtime = rng.choice([1, 2, 4, 8, 16]), rng.integers(10, 2000)
        lines.append(
            f"{job} {submitted} -1 {runtime} {cores} -1 -1 {cores} {3 * runtime} -1 1 {job % 4} 1 -1 1 -1 -1 -1"
        )
    return "\n".join(lines) + "\n"


@pytest.mark.nightly
def test_five_policies_by_ten_seeds(hdsim: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text(json.dumps(cluster()))
    (tmp_path / "log.swf").write_text(log())
    inputs = ("platform.path=cluster.json", "workload.path=log.swf", "contention=threshold")
    # The first of the commands is `pip install hdsim`, which tests/test_packaging.py runs.
    for command in (
        ("platform", "validate", "cluster.json"),
        ("workload", "validate", "log.swf"),
        ("run", "-m", f"agent={','.join(AGENTS)}", "seed=range(1,11)", *inputs, "hydra.sweep.dir=runs"),
        ("compare", "runs", "-o", "paper", "--figure-format", "pdf", "--latex", "paper/table.tex"),
    ):
        done = hdsim(*command)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "paper/compare.pdf").read_bytes().startswith(b"%PDF")
    with (tmp_path / "paper/compare.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["metric"] == "mean_waiting_time"]
    assert [(row["configuration"], row["runs"]) for row in rows] == [(agent, "10") for agent in AGENTS]
    assert all(float(row["low"]) < float(row["mean"]) < float(row["high"]) for row in rows)
    assert (tmp_path / "paper/table.tex").read_text().count(r"\mathbf{") >= 5
    assert "Ranking" in (tmp_path / "paper/compare.html").read_text()
