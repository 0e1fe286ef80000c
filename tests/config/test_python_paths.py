"""A path does in Python as its text does, in every setting that takes a file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hdsim

PLUGINS = Path(__file__).parents[2] / "examples" / "plugins"
FILES = {
    "prices.csv": "timestamp,price\n2019-12-31T00:00:00Z,0.3\n2021-12-31T00:00:00Z,0.5\n",
    "cap.csv": "time,watts\n0,1000000\n",
    "outages.csv": "node,down,up\n0,10,20\n",
    "order.py": "def widest(jobs):\n    return -jobs.requested_cores\n",
    "cores.py": "def fast(platform):\n    return platform.gflops\n",
    "rule.py": "import hdsim\nclass No(hdsim.Backfill):\n    def backfill(self, cluster, queue, order, head): pass\n",
    "kind.yaml": "version: 1\nabout: all\nmachine: {cores: 64}\nload: 0.5\nclasses: {all: {cores: 2, runtime: 60}}\n",
}
BEGIN = {"begin": "2020-01-01T00:00:00Z"}


def replayed(agent: Any = "easy", **models: Any) -> list[float]:
    jobs = hdsim.Workload.from_columns(submission_time=[0, 1, 2], runtime=[30, 5, 5], requested_cores=[16, 1, 16])
    simulation = hdsim.Simulation("teaching", jobs, agent, **models)
    return simulation.run().starting_time.tolist()


def acted(workload: Any = "even_1000", **settings: Any) -> list[float]:
    from hdsim.envs.scheduling import SchedulingEnv

    env = SchedulingEnv("teaching", workload, jobs=5, **settings)
    observation, _ = env.reset(seed=1)
    return np.concatenate([np.ravel(part) for part in np.atleast_1d(observation)]).tolist()


def drawn(kind: Any) -> list[float]:
    return hdsim.draw_workload(kind, seed=1, jobs=20).submission_time.tolist()


@pytest.mark.parametrize(
    ("made", "name"),
    [
        (lambda file: replayed(facility={**BEGIN, "price": file}), "prices.csv"),
        (lambda file: replayed(facility={**BEGIN, "price": {"path": file}}), "prices.csv"),
        (lambda file: replayed(power={"_target_": "hdsim.power.PowerManagement", "cap": file}), "cap.csv"),
        (lambda file: replayed(power={"_target_": "hdsim.power.PowerManagement", "cap": {"machine": file}}), "cap.csv"),
        (lambda file: replayed(failures={"_target_": "hdsim.failures.Trace", "file": file}), "outages.csv"),
        (lambda file: replayed({"job_policy": file}), "order.py"),
        (lambda file: replayed({"core_policy": file}), "cores.py"),
        (lambda file: replayed({"backfill": file}), "rule.py"),
        (lambda file: replayed({"backfill": {"path": file}}), "rule.py"),
        (lambda file: replayed(contention={"path": file}), PLUGINS / "crowd.py"),
        (lambda file: acted(action=file), PLUGINS / "heads.py"),
        (lambda file: acted(observation=file), PLUGINS / "waiting.py"),
        (lambda file: acted(objective=file), PLUGINS / "long_waits.py"),
        (acted, PLUGINS / "poisson.py"),
        (lambda file: acted({"model": file, "jobs": 20}), PLUGINS / "poisson.py"),
        (drawn, "kind.yaml"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_a_path_does_as_its_text(made: Callable[[Any], list[float]], name: str | Path, tmp_path: Path) -> None:
    file = tmp_path / name
    if not file.exists():
        file.write_text(FILES[str(name)])
    assert made(file) == made(str(file))


def test_a_path_in_settings_is_text_in_the_manifest(tmp_path: Path) -> None:
    file = tmp_path / "prices.csv"
    file.write_text(FILES["prices.csv"])
    jobs = hdsim.Workload.from_columns(submission_time=[0], runtime=[30], requested_cores=[1])
    result = hdsim.simulate("teaching", jobs, {"job_policy": "fcfs"}, facility={**BEGIN, "price": file})
    result.save(tmp_path / "run")
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["config"]["facility"]["price"] == str(file)
    assert any(one["path"] == str(file) for one in manifest["inputs"])
