"""Orders and core policies of one's own: files, functions and entry points, on every store of cores."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hdsim
from hdsim.config.catalog import policies
from hdsim.config.completion import overrides
from hdsim.errors import ConfigError
from hdsim.scheduling.agent import classic_name, make_agent
from hdsim.scheduling.orders import job_order
from hdsim.util import plugins

AREA = "def area(jobs):\n    return jobs.requested_cores * jobs.requested_time\n"
WFP3 = """
import numpy as np


def _relative(jobs, queued, cluster):
    return (cluster.now - jobs.submission_time[queued]) / np.maximum(jobs.requested_time[queued], 1e-9)


def wfp3(jobs, queued, cluster):
    return -(_relative(jobs, queued, cluster) ** 3) * jobs.requested_cores[queued]
"""
FRUGAL = "def frugal(platform):\n    return -platform.power\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with two orders and a core policy."""
    for name, text in (("area", AREA), ("wfp3", WFP3), ("frugal", FRUGAL)):
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def starts(platform: Any, workload: Any, agent: dict[str, Any], **settings: Any) -> tuple[list[float], list[Any]]:
    """Start and cores of each job."""
    result = hdsim.simulate(platform, workload, agent, **settings)
    return result.jobs["starting_time"].tolist(), [str(cores) for cores in result.jobs["allocated_resources"]]


@pytest.mark.parametrize("backfill", ["none", "easy"])
@pytest.mark.parametrize(("own", "stock"), [("area.py", "saf"), ("wfp3.py", "wfp3")])
@pytest.mark.parametrize("platform", ["teaching", "eight_nodes"])
def test_an_order_of_a_file_is_the_same_as_that_of_hdsim(
    folder: Path, platform: str, own: str, stock: str, backfill: str
) -> None:
    known, rng = hdsim.load_platform(platform), np.random.default_rng(1)
    workload = hdsim.Workload.from_columns(
        submission_time=np.sort(rng.uniform(0, 2000, 150)),
        runtime=rng.exponential(300, 150),
        requested_cores=rng.integers(1, known.n_cpu_cores // 2, 150),
    )
    mine, theirs = (starts(known, workload, {"job_policy": name, "backfill": backfill}) for name in (own, stock))
    assert mine == theirs
    assert mine[0] != starts(known, workload, {"job_policy": "fcfs", "backfill": backfill})[0]


@pytest.mark.parametrize("settings", [{}, {"failures": "exponential"}, {"contention": "fair_share"}])
def test_a_core_policy_of_a_file_is_the_same_as_that_of_hdsim(folder: Path, settings: dict[str, Any]) -> None:
    platform = hdsim.load_platform("teaching")
    workload = hdsim.load_workload("even_1000", platform, jobs=100)
    base = {"job_policy": "sjf", "backfill": "easy"}
    mine, theirs, other = (
        starts(platform, workload, {**base, "core_policy": name}, seed=3, **settings)
        for name in ("frugal.py", "low_power", "high_gflops")
    )
    assert mine == theirs
    assert mine != other


def test_a_fork_takes_over_with_a_core_policy_of_a_file(folder: Path) -> None:
    (folder / "fast.py").write_text("def fast(platform):\n    return platform.gflops\n")
    platform = hdsim.load_platform("teaching")
    columns = {"submission_time": [0] * 40, "runtime": np.arange(40) + 60.0, "requested_cores": [1, 2] * 20}
    workload = hdsim.Workload.from_columns(**columns)
    cores = []
    pairs = [
        ("frugal.py", "fast.py"),
        ("low_power", "high_gflops"),
        ("high_gflops", "frugal.py"),
        ("fast.py", "low_power"),
    ]
    for before, after in pairs:
        simulation = hdsim.Simulation(platform, workload, {"job_policy": "sjf", "core_policy": before})
        simulation.run_until(100.0)
        fork = simulation.fork({"job_policy": "sjf", "core_policy": after})
        result = fork.run()
        assert result.engine["mode"] == "compiled"
        cores.append([str(each) for each in result.jobs["allocated_resources"]])
    assert cores[0] == cores[1] != cores[2]
    assert cores[2] == cores[3]


def test_names_of_installed_packages(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "their_policies.py").write_text(AREA + FRUGAL)
    information = folder / "theirs-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(
        "[hdsim.orders]\narea = their_policies:area\n[hdsim.core_policies]\nfrugal = their_policies:frugal\n"
    )
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(plugins, "_registered", entry_points)
    assert job_order("area").score is not None
    assert make_agent({"job_policy": "their_policies.area", "core_policy": "frugal"}).core_policy == "frugal"
    assert overrides("agent.job_policy=are", []) == ["agent.job_policy=area", "agent.job_policy=area.py"]
    assert overrides("agent.backfill_order=are", []) == ["agent.backfill_order=area", "agent.backfill_order=area.py"]
    assert overrides("agent.core_policy=fr", []) == ["agent.core_policy=frugal", "agent.core_policy=frugal.py"]
    assert overrides("agent=fcfs,are", [])[-1] == "agent=fcfs,area.py"
    assert overrides("metrics=[fru", []) == ["metrics=[frugal.py"]
    shown = policies()
    assert shown["area"].summary == "job_policy: of their_policies:area"
    assert shown["frugal"].summary == "core_policy: of their_policies:frugal"


def test_the_label_of_a_file_is_its_name(folder: Path) -> None:
    settings = {"job_policy": f"{folder}/area.py", "core_policy": "frugal.py", "backfill": "easy"}
    assert classic_name(settings) == ("easy-area-frugal", {})


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (AREA + "def second(jobs):\n    return jobs.runtime\n", "expected one function .* found area, second"),
        ("x = 1\n", "expected one function .* found none"),
        ("def f(jobs, queued):\n    return jobs\n", r"expected \(jobs\) or \(jobs, queued, cluster\), got f\(jobs, qu"),
        ("def f(jobs):\n    return 1\n", "expected 3 numbers, a score for each job, got 1"),
        ("def f(jobs):\n    return jobs.runtime * float('nan')\n", "expected 3 numbers, a score for each job"),
        ("def f(jobs):\n", "cannot be loaded: "),
    ],
)
def test_faults_of_an_order_are_one_line(tmp_path: Path, text: str, fault: str) -> None:
    path = tmp_path / "order.py"
    path.write_text(text)
    workload = hdsim.Workload.from_columns(submission_time=[0, 1, 2], runtime=[5, 5, 5], requested_cores=[1, 1, 1])
    with pytest.raises(ConfigError, match=fault) as told:
        hdsim.simulate("teaching", workload, {"job_policy": str(path)})
    assert "\n" not in str(told.value)
    assert "agent.job_policy" in str(told.value)


def test_faults_of_a_core_policy_are_one_line(tmp_path: Path) -> None:
    path = tmp_path / "cores.py"
    path.write_text("def f(platform):\n    return [1.0]\n")
    with pytest.raises(ConfigError, match="expected 4 numbers, a score for each processor") as told:
        hdsim.simulate(
            hdsim.Platform.homogeneous(nodes=4, cores_per_node=1),
            hdsim.Workload.from_columns(submission_time=[0], runtime=[5], requested_cores=[1]),
            {"job_policy": "fcfs", "core_policy": str(path)},
        )
    assert "agent.core_policy" in str(told.value)
    with pytest.raises(ConfigError, match="found no file"):
        make_agent({"job_policy": "fcfs", "core_policy": "missing.py"})
    with pytest.raises(ConfigError, match="did you mean 'low_power'"):
        make_agent({"job_policy": "fcfs", "core_policy": "low_powe"})
    for name in ("builtins.max", "builtins.dict.fromkeys"):
        with pytest.raises(ConfigError, match=r"agent\.core_policy"):
            make_agent({"job_policy": "fcfs", "core_policy": name})


def test_a_later_change_of_the_scores_changes_nothing(folder: Path) -> None:
    """Scores are copied: what a function keeps and changes later is its own."""
    (folder / "kept.py").write_text("_kept = {}\n\n\ndef f(jobs):\n    return _kept.setdefault(0, -jobs.runtime)\n")
    workload = hdsim.Workload.from_columns(submission_time=[0, 1], runtime=[5, 6], requested_cores=[1, 1])
    scores = job_order("kept.py").score(workload)
    scores[:] = 0
    assert np.array_equal(job_order("kept.py").score(workload), [-5, -6])


def test_a_core_policy_of_a_file_orders_interchangeable_cores(tmp_path: Path) -> None:
    path = tmp_path / "last.py"
    path.write_text("def last(platform):\n    return range(platform.n_processors)\n")
    platform = hdsim.Platform.homogeneous(nodes=4, cores_per_node=2)
    workload = hdsim.Workload.from_columns(submission_time=[0, 1], runtime=[9, 9], requested_cores=[2, 3])
    agent = {"job_policy": "fcfs", "core_policy": str(path)}
    for failures in ("none", "exponential"):
        result = hdsim.simulate(platform, workload, agent, failures=failures)
        assert [str(each) for each in result.jobs["allocated_resources"]] == ["6-7", "2 4-5"]


def test_a_core_policy_of_a_file_orders_nodes_without_core_ids(folder: Path) -> None:
    platform = hdsim.load_platform("teaching", kind="quantities")
    columns = {"submission_time": [0] * 6, "runtime": [9] * 6, "requested_cores": [1, 2] * 3, "cpu": [0.5] * 6}
    workload = hdsim.Workload.from_columns(**columns)
    mine, theirs, other = (
        hdsim.simulate(platform, workload, {"job_policy": "fcfs", "core_policy": name})
        .jobs["allocated_resources"]
        .tolist()
        for name in ("frugal.py", "low_power", "high_gflops")
    )
    assert mine == theirs != other
