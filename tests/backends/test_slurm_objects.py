"""What hdsim reads of jobs and nodes of Slurm, without a slurmctld."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdsim.backends.slurm.nodes import held_cpus
from hdsim.slurm.objects import SlurmNode, constraint, demand_of, is_up

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
        ("ReqNodeList", "n[1-2]", "--nodelist=n[1-2], several nodes"),
        ("Licenses", "matlab:2", "--licenses=matlab:2"),
        ("TresPerNode", "gres:shard:1", "--gres=gres:shard:1"),
        ("TresPerNode", "gres:gpu:1,gres:shard:2", "--gres=gres:gpu:1,gres:shard:2"),
        ("TresPerSocket", "gres:gpu:1", "--gpus-per-socket=gres:gpu:1"),
        ("Reservation", "week", "--reservation=week"),
        ("Features", "[intel*2&amd*1]", "--constraint=[intel*2&amd*1]"),
        ("OverSubscribe", "NO", "--exclusive"),
        ("ArrayTaskId", "1-4", "--array=1-4"),
    ],
)
def test_what_hdsim_does_not_know_is_named(key: str, value: str, told: str) -> None:
    assert demand_of({**PLAIN, key: value}, NAMES).unsupported == told


@pytest.mark.parametrize(("key", "value"), [("MinMemoryNode", "4000M"), ("TresPerNode", "gres:gpu:1")])
def test_what_a_node_or_a_job_has_is_on_one_node(key: str, value: str) -> None:
    fields = {**PLAIN, key: value}
    assert demand_of(fields, NAMES).one_node and not demand_of(fields, NAMES).unsupported
    assert demand_of({**fields, "NumNodes": "2-2"}, NAMES).unsupported.endswith(" on several nodes")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"TresPerTask": "gres:gpu:2"}, (2, "gpu", False, 200.0)),
        ({"TresPerNode": "gres:gpu:a100:3"}, (3, "gpu:a100", True, 800.0)),
        ({"TresPerJob": "gres:gpu:3"}, (3, "gpu", True, 800.0)),
        ({"TresPerTask": "gres:gpu:1", "MinMemoryCPU": "", "MinMemoryNode": "2G"}, (4, "gpu", True, 2048.0)),
    ],
)
def test_gpus_and_memory_are_of_tasks_or_of_the_job(fields: dict[str, str], expected: tuple[object, ...]) -> None:
    asked = {key: value for key, value in {**PLAIN, "MinMemoryCPU": "100M", **fields}.items() if value}
    demand = demand_of(asked, NAMES)
    assert (demand.gpus, demand.gpu_kind, demand.one_node, demand.memory) == expected


def test_nodes_that_users_allow() -> None:
    nodes = [
        SlurmNode("n1", 8, 1000.0, True, "idle", ("amd", "ib"), ("main", "long"), {"gpu:a100": 4}),
        SlurmNode("n2", 8, 1000.0, True, "idle", ("intel", "ib"), ("main",), {"gpu": 2}),
        SlurmNode("n3", 8, 1000.0, True, "idle", ("intel",), ("long",)),
    ]

    def allowed(partition: str, **fields: str) -> list[str]:
        demand = replace(demand_of({**PLAIN, **fields}, NAMES), on_nodes=False)
        assert not demand.unsupported
        return [node.name for node in nodes if demand.allows(node, partition)]

    assert allowed("main") == ["n1", "n2"]
    assert allowed("main,long") == ["n1", "n2", "n3"]
    assert allowed("main,long", Features="intel&ib") == ["n2"]
    assert allowed("main,long", Features="(amd|intel)") == ["n1", "n2", "n3"]
    assert allowed("main,long", Features="amd&intel") == []
    assert allowed("main,long", ReqNodeList="n3", ExcNodeList="n[1-2]") == ["n3"]
    assert allowed("main,long", ExcNodeList="n[1,3]") == ["n2"]
    assert allowed("main,long", TresPerNode="gres:gpu:1") == ["n1", "n2"]
    assert allowed("main,long", TresPerTask="gres:gpu:a100:1") == ["n1"]


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
