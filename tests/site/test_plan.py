"""``hdsim plan``: a line for each of a handful of jobs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_site_replay import run
from tiers import ci

from hdsim.errors import ConfigError, WorkloadError
from hdsim.site.jobs_table import jobs_table
from hdsim.site.plans import read_plan
from hdsim.site.workload import columns_of

PLAN = """
nodes: {n: {nodes: "n[1-4]", cpus: 8, memory: 16000}}
slurm: {parameters: {batch_sched_delay: 0, bf_interval: 1}}
jobs:
- {cpus: 24, runtime: 1h, time: 2h}
- {cpus: 32, runtime: 10min, time: 30min, at: 60}
- {cpus: 8, runtime: 10min, time: 30min, at: 120, id: late}
- {cpus: 8, runtime: 3h, time: 4h, at: 120}
- {cpus: 40, runtime: 1h, at: 130}
- {cpus: 1, runtime: 1h, time: 10min, at: 130, dependency: "afterok:2"}
"""


@pytest.mark.parametrize("compiled", [True, *ci(False)])
def test_each_job_is_a_line_with_the_reason_why_it_waits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], compiled: bool
) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(PLAN, encoding="utf-8")
    if compiled:
        run("plan", str(path))
        told = capsys.readouterr().out
    else:
        command, ordinary = [sys.executable, "-m", "hdsim", "plan", str(path)], os.environ | {"NUMBA_DISABLE_JIT": "1"}
        told = subprocess.run(command, env=ordinary, capture_output=True, text=True, check=True).stdout
    lines = [line.split() for line in told.splitlines()[1:]]
    assert [(line[0], line[-2], line[-1]) for line in lines] == [
        ("1", "n[1-3]", "-"),
        ("2", "n[1-4]", "Resources"),
        ("late", "n4", "Priority"),
        ("4", "n1", "Resources"),
        ("5", "-", "BadConstraints"),
        ("6", "n2", "Dependency"),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nodes: {n: {nodes: n1}}\njobs: [{cpu: 3}]", r"jobs\[0\]\.cpu: unknown key \(did you mean 'cpus'\?\)"),
        ("nodes: {n: {nodes: n1}}\njobs: [{cpus: 3}]", r"jobs\[0\]\.runtime: expected a value"),
        ("nodes: {n: {nodes: n1}}\njobs: [{runtime: soon}]", r"runtime: expected seconds, 24h, .*, got \"soon\""),
        ("nodes: {n: {nodes: n1}}", r"expected jobs, a list such as '- \{at: 0, cpus: 4, runtime: 1h\}', got nothing"),
        ("nodes: {n: {cpus: x, nodes: n1}}\njobs: [{runtime: 1}]", r"nodes\.n\.cpus: "),
        ("jobs: [", "expected YAML"),
        (
            "nodes: {n: {nodes: n1}}\njobs: [{runtime: 1, gpus: a100}]",
            r"jobs\[0\]\.gpus: expected a number of GPUs such as 4 or a100:4, got \"a100\"",
        ),
    ],
)
def test_a_wrong_plan_is_told_by_key(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        read_plan(path)


def test_gpus_of_a_plan_are_numbers_or_have_a_type(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    nodes = 'nodes: {n: {nodes: "n[1-2]", cpus: 8, gres: {"gpu:a100": 2}}}\n'
    path.write_text(f"{nodes}jobs: [{{runtime: 1, gpus: 4}}, {{runtime: 1, gpus_per_task: 'a100:1'}}]")
    site, jobs = read_plan(path)
    demands = jobs_table(columns_of(jobs), site).demands
    assert demands.all_gpus.tolist() == [4, 1]
    assert demands.gpu_type.tolist() == [-1, 0]
    path.write_text(f"{nodes}jobs: [{{runtime: 1, gpus: 'v100:1'}}]")
    site, jobs = read_plan(path)
    with pytest.raises(WorkloadError, match='job 1: gpus: expected one of gpu:a100, got "gpu:v100"'):
        jobs_table(columns_of(jobs), site)


def test_a_pass_is_made_at_once_when_the_last_one_is_long_ago(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """batch_sched_delay is the time since the last pass, also of one with nothing to start, as at the end of a job."""
    path = tmp_path / "plan.yaml"
    path.write_text(
        """
nodes: {n: {nodes: "n[1-4]", cpus: 8}}
slurm: {type: builtin}
jobs:
- {cpus: 1, runtime: 10}
- {cpus: 1, runtime: 1h, at: 12}
- {cpus: 1, runtime: 1h, at: 20}
- {cpus: 1, runtime: 1h, at: 21}
- {cpus: 1, runtime: 1h, at: 61}
""",
        encoding="utf-8",
    )
    run("plan", str(path))
    rows = [line.split("  ") for line in capsys.readouterr().out.splitlines()[1:]]
    cells = [[cell.strip() for cell in row if cell.strip()] for row in rows]
    assert [row[2] for row in cells] == ["0 s", "13 s", "20 s", "23 s", "1 min 3 s"]


def test_tasks_on_each_node_decide_on_the_number_of_nodes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(
        """
nodes: {n: {nodes: "n[1-4]", cpus: 8}}
jobs:
- {cpus: 8, tasks_per_node: 4, runtime: 1h}
- {cpus: 4, per_task: 2, tasks_per_node: 1, runtime: 1h}
- {cpus: 1, min_cpus: 6, runtime: 1h}
- {cpus: 9, tasks_per_node: 3, nodes: 2, runtime: 1h}
""",
        encoding="utf-8",
    )
    run("plan", str(path))
    assert [row.split()[-2] for row in capsys.readouterr().out.splitlines()[1:]] == ["n[1-2]", "n[1-2]", "n3", "n[1,4]"]
    assert "1 jobs have more tasks than --ntasks-per-node allows on their nodes" in caplog.text


def test_a_job_is_planned_with_its_limit_though_it_would_run_longer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Job 3 ends at its limit, before the reservation of job 2 begins."""
    path = tmp_path / "plan.yaml"
    path.write_text(
        """
nodes: {n: {nodes: "n[1-4]", cpus: 8}}
slurm: {parameters: {batch_sched_delay: 0, bf_interval: 1}}
jobs:
- {cpus: 16, runtime: 90min, time: 90min}
- {cpus: 32, runtime: 10min, time: 30min, at: 10}
- {cpus: 8, runtime: 3h, time: 1h, at: 20}
""",
        encoding="utf-8",
    )
    _, jobs = read_plan(path)
    assert jobs.requested_time.tolist() == [5400, 1800, 3600]
    run("plan", str(path))
    rows = [line.split("  ") for line in capsys.readouterr().out.splitlines()[1:]]
    cells = [[cell.strip() for cell in row if cell.strip()] for row in rows]
    assert [row[2] for row in cells] == ["0 s", "1 h 30 min", "20 s"]


def test_tasks_of_an_array_need_no_quotes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """YAML 1.1 takes 7_1 for the number 71."""
    path = tmp_path / "plan.yaml"
    tasks = "\n".join(f"- {{id: 7_{task}, cpus: 8, runtime: 1h, array_limit: 2}}" for task in (1, 2, 3))
    path.write_text(f'nodes: {{n: {{nodes: "n[1-4]", cpus: 8}}}}\njobs:\n{tasks}\n', encoding="utf-8")
    run("plan", str(path))
    lines = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    assert [(line[0], line[-1]) for line in lines] == [("7_1", "-"), ("7_2", "-"), ("7_3", "JobArrayTaskLimit")]


@pytest.mark.parametrize(
    ("jobs", "message"),
    [
        ("[{id: a, runtime: 1}, {id: a, runtime: 1}]", "expected ids that differ, got a twice"),
        ("[{runtime: 1}, {id: 1, runtime: 1}]", "expected ids that differ, got 1 twice"),
        ("[{runtime: 1, dependency: 'afterok:9'}, {runtime: 1}]", r"job 1: dependency: .* \(2\), got '9'"),
        ("[{runtime: 1, dependency: 'afterok:1'}]", r"job 1: dependency: .* \(none\), got '1'"),
        ("[{runtime: 1, runtime: 2}]", "the key runtime is there twice"),
    ],
)
def test_ids_of_a_plan_and_keys_are_there_once(tmp_path: Path, jobs: str, message: str) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(f"nodes: {{n: {{nodes: n1}}}}\njobs: {jobs}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        read_plan(path)
