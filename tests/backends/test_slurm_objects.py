"""What hdsim reads of jobs and nodes of Slurm, without a slurmctld."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdsim.backends.slurm.nodes import held_cpus
from hdsim.slurm.objects import constraint, demand_of, is_up

NAMES = frozenset({"n1", "n2", "gpu-3"})
PLAIN = {
    "UserId": "ann(1001)",
    "NumNodes": "1",
    "NumCPUs": "8",
    "NumTasks": "4",
    "CPUs/Task": "2",
    "TimeLimit": "1-02:00:00",
    "Features": "(null)",
    "ReqNodeList": "(null)",
    "OverSubscribe": "OK",
    "MinMemoryNode": "0",
    "Licenses": "(null)",
}


def test_a_request_is_read() -> None:
    demand = demand_of({**PLAIN, "MinMemoryCPU": "2G"}, NAMES)
    assert (demand.tasks, demand.cpus, demand.memory, demand.limit, demand.user) == (4, 2, 4096.0, 93_600.0, 1001)
    assert not demand.unsupported and not demand.features


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("ReqNodeList", "n1", "--nodelist=n1"),
        ("ExcNodeList", "n1", "--exclude=n1"),
        ("Licenses", "matlab:2", "--licenses=matlab:2"),
        ("TresPerNode", "gres:gpu:1", "--gres=gres:gpu:1"),
        ("OverSubscribe", "NO", "--exclusive"),
        ("MinMemoryNode", "4000M", "memory per node"),
        ("ArrayTaskId", "1-4", "--array=1-4"),
    ],
)
def test_what_hdsim_does_not_know_is_named(key: str, value: str, told: str) -> None:
    assert demand_of({**PLAIN, key: value}, NAMES).unsupported == told


@pytest.mark.parametrize(
    ("features", "on_nodes"),
    [("n1", True), ("[n1*1&gpu-3*1]", True), ("intel", False), ("n1&intel", False), ("", False)],
)
def test_constraints_of_releases_are_told_from_those_of_users(features: str, on_nodes: bool) -> None:
    assert demand_of({**PLAIN, "Features": features}, NAMES).on_nodes == on_nodes
    assert demand_of({**PLAIN, "Features": constraint(("n1", "n2"))}, NAMES).on_nodes


@pytest.mark.parametrize(
    ("state", "up"),
    [("idle", True), ("mixed", True), ("allocated", True), ("down", False), ("idle*", False), ("draining", False)],
)
def test_nodes_that_take_jobs(state: str, up: bool) -> None:
    assert is_up(state) == up


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=6),
    st.integers(1, 40),
    st.integers(1, 4),
)
def test_all_tasks_of_a_job_are_on_its_nodes(cpus: list[int], tasks: int, each: int) -> None:
    nodes = [f"n{node}" for node in range(len(cpus))]
    parts = held_cpus(nodes, dict(zip(nodes, cpus, strict=True)), tasks, each)
    assert sum(parts.values()) == max(tasks, len(nodes))
    assert min(parts.values()) >= 1
    exact = [max(1, number // each) for number in cpus]
    if sum(exact) == tasks:
        assert list(parts.values()) == exact
