"""Nodes of Kubernetes and platforms: what one says, the other says too."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from kube import Cluster
from tiers import examples

from hdsim import Platform, Workload, load_platform
from hdsim.cluster.state import Cluster as Simulated
from hdsim.errors import PlatformError
from hdsim.kubernetes.nodes import GFLOPS, amounts_of, node_manifests, platform_of, read_manifests
from hdsim.kubernetes.objects import NodeView

EQUAL = ("node_cpu", "memory", "node_pods", "node_gpus", "node_storage")
SIZES = st.integers(1, 2**42).map(lambda size: f"{size}B")


def same_nodes(one: Platform, other: Platform) -> None:
    assert one.node_names == other.node_names
    for key in EQUAL:
        np.testing.assert_array_equal(getattr(one, key), getattr(other, key), key)
    assert one.node_labels == other.node_labels
    assert one.node_taints == other.node_taints


def through_manifests(platform: Platform) -> Platform:
    # JSON as between API server and client.
    return platform_of(NodeView.of(json.loads(json.dumps(node))) for node in node_manifests(platform))


@st.composite
def platforms(draw: st.DrawFn) -> Platform:
    def some(**values: st.SearchStrategy[Any]) -> dict[str, Any]:
        return {key: draw(value) for key, value in values.items() if draw(st.booleans())}

    names = st.from_regex(r"[a-z]([-a-z0-9]{0,8}[a-z0-9])?", fullmatch=True)
    marks = st.dictionaries(names, st.from_regex(r"[A-Za-z0-9]{0,5}", fullmatch=True), max_size=2)
    effects = st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"])
    taints = st.lists(st.fixed_dictionaries({"key": names, "value": names, "effect": effects}), max_size=2)
    types = {}
    processors = {"gpu": {"type": "GPU", "cores": 1, "clock_rate": 1, "dpflops_per_cycle": 1, "power": 0}}
    for name in draw(st.lists(names, min_size=1, max_size=3, unique=True)):
        speed = draw(st.floats(0.1, 1e6))
        processors[f"{name}-cpu"] = {
            "cores": draw(st.integers(1, 64)),
            "clock_rate": speed,
            "dpflops_per_cycle": 1,
            "power": 0,
        }
        gpus = [{"type": "gpu", "number": draw(st.integers(1, 8))}] if draw(st.booleans()) else []
        types[name] = {
            "processors": [{"type": f"{name}-cpu", "number": draw(st.integers(1, 2))}, *gpus],
            **some(
                cpu=st.integers(1, 64_000).map(lambda milli: f"{milli}m"),
                pods=st.integers(1, 500),
                labels=marks,
                taints=taints,
                ephemeral_storage=SIZES,
                memory=st.fixed_dictionaries({"capacity": SIZES}),
            ),
        }
    groups = st.fixed_dictionaries({"type": st.sampled_from(list(types)), "number": st.integers(1, 4)})
    nodes = [group | some(labels=marks, taints=taints) for group in draw(st.lists(groups, min_size=1, max_size=4))]
    document = {
        "kind": "quantities",
        "clusters": [{"id": "c", "nodes": nodes}],
        "types": {"node": types, "processor": processors},
    }
    return Platform.from_dict(document)


@given(platform=platforms())
@examples(60, 400)
def test_a_platform_comes_back_from_its_nodes(platform: Platform) -> None:
    back = through_manifests(platform)
    same_nodes(platform, back)
    # The first processors of a node are its CPUs.
    speeds = (one.gflops[one.node_first_processor[:-1]] for one in (platform, back))
    np.testing.assert_array_equal(*speeds)
    same_nodes(back, Platform.from_dict(back.to_dict()))


def test_nodes_of_the_bundled_platform(root: Path) -> None:
    gaia = load_platform(root / "platforms/gaia.json")
    same_nodes(gaia.of_kind("quantities"), through_manifests(gaia))


def test_manifests_have_the_limits_of_kubernetes() -> None:
    (node,) = node_manifests(Platform.homogeneous(1, 4, name="Big Nodes"))
    assert node["status"]["allocatable"] == {
        "cpu": "4000m",
        "memory": str(2**60),
        "pods": "110",
        "ephemeral-storage": str(2**60),
    }
    assert node["metadata"]["name"] == "big-nodes-0"
    assert node["metadata"]["labels"][GFLOPS] == "10.0"


def view(name: str, labels: dict[str, str] | None = None, **allocatable: str) -> NodeView:
    amounts = {"cpu": "3920m", "memory": "7Gi", "pods": "58"} | allocatable
    return NodeView.of({"metadata": {"name": name, "labels": labels or {}}, "status": {"allocatable": amounts}})


def test_nodes_of_any_cluster_make_a_platform() -> None:
    nodes = [view("b"), view("a", **{"nvidia.com/gpu": "2"}), view("idle", cpu="0"), view("c")]
    platform = platform_of(nodes)
    assert platform.name == "kubernetes"
    assert platform.node_names == ("b", "a", "c")
    assert platform.node_cpu.tolist() == [3.92] * 3
    assert platform.memory.tolist() == [7 * 2**30 / 1e6] * 3
    assert platform.node_gpus.tolist() == [0, 2, 0]
    assert platform.gflops[~platform.is_gpu].tolist() == [1, 1, 1]
    assert platform.kind == "quantities"


@pytest.mark.parametrize("allocatable", [{}, {"ephemeral-storage": "0"}])
def test_a_node_without_ephemeral_storage_has_none_for_pods_that_request_it(allocatable: dict[str, str]) -> None:
    bare, ample = view("bare", **allocatable), view("ample", **{"ephemeral-storage": "10Gi"})
    platform = platform_of([bare, ample])
    assert platform.node_storage.tolist() == [0, 10 * 2.0**30]
    assert amounts_of(platform) == [bare.allocatable, ample.allocatable]
    jobs = Workload.from_columns(submission_time=[0, 0], runtime=1, requested_cores=1, storage=[1000, 0])
    store = Simulated(platform, jobs).cores
    assert store.pick(0).nodes.tolist() == [1]
    assert store.pick(1).nodes.tolist() == [0]
    alone = Simulated(platform_of([bare]), jobs).cores
    assert (alone.feasible(0), alone.feasible(1)) == (False, True)
    assert alone.explain(0, empty=True).endswith(": 1 without enough ephemeral storage")


def test_nodes_without_a_speed_have_the_mean_of_the_others() -> None:
    platform = platform_of([view("a", {GFLOPS: "4"}), view("b", {GFLOPS: "8"}), view("c")])
    assert platform.gflops.tolist() == [4, 8, 6]
    assert platform_of([view("a", {GFLOPS: "0.1"}), view("b", {GFLOPS: "0.1"}), view("c")]).homogeneous_speed


def test_states_of_nodes_are_no_part_of_the_platform() -> None:
    node = {
        "metadata": {"name": "a"},
        "spec": {
            "taints": [
                {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"},
                {"key": "gpu", "effect": "NoSchedule"},
            ]
        },
        "status": {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "1"}},
    }
    assert [taint.key for taint in platform_of([NodeView.of(node)]).node_taints[0]] == ["gpu"]
    node["spec"]["unschedulable"] = True
    assert [taint.key for taint in platform_of([NodeView.of(node)]).node_taints[0]] == ["gpu"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: [", "expected manifests of nodes"),
        ("[" * 100_000, "nest(ed|ing)"),
        ("kind: Pod", "object 1: expected an object of kind Node, got Pod"),
        ("kind: List\nitems: [{kind: Node, metadata: {}}]", "object 1: expected a Node as the API has it"),
        ("kind: List\nitems: [4]", "object 1: expected an object of kind Node, got int"),
        ("", "expected a node with allocatable CPU"),
    ],
)
def test_files_that_hold_no_nodes_are_told(text: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "nodes.yaml"
    path.write_text(text)
    with pytest.raises(PlatformError, match=told):
        platform_of(read_manifests(path))


@pytest.mark.ci
def test_convert_writes_nodes_and_reads_them(
    hdsim: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    assert hdsim("platform", "convert", "gaia", "--to", "kubernetes", "-o", "nodes.yaml").returncode == 0
    listed = {"kind": "List", "items": list(yaml.safe_load_all((tmp_path / "nodes.yaml").read_text()))}
    (tmp_path / "list.yaml").write_text(yaml.safe_dump(listed))
    for name in ("nodes", "list"):
        done = hdsim("platform", "convert", f"{name}.yaml", "-o", f"{name}.json")
        assert done.returncode == 0, done.stderr
        same_nodes(load_platform(tmp_path / f"{name}.json"), load_platform("platforms/gaia.json", kind="quantities"))


@pytest.mark.requires("kube")
@pytest.mark.nightly
def test_nodes_are_made_and_deleted(
    cluster: Cluster, hdsim: Callable[..., subprocess.CompletedProcess[str]], root: Path
) -> None:
    def nodes(*arguments: object, status: int = 0) -> str:
        done = hdsim("kwok", "nodes", "--kubeconfig", cluster.kubeconfig, *arguments)
        assert done.returncode == status, done.stderr
        return done.stdout if status == 0 else done.stderr

    assert nodes("gaia", "--control-plane") == "154 nodes are ready\n"
    gaia = load_platform(root / "platforms/gaia.json", kind="quantities")
    found = {node.name: node for node in map(NodeView.of, cluster.nodes())}
    same_nodes(gaia, platform_of(found[name] for name in gaia.node_names))
    assert [taint.key for taint in found["control-plane"].taints] == ["node-role.kubernetes.io/control-plane"]
    assert all(node.ready for node in found.values())
    assert "got 'gaia" in nodes("gaia", status=2)
    nodes("--count", 2, "--type", "gpu", "--gpus", 4, "--label", "zone=b", "--taint", "gpu=yes:NoSchedule")
    gpu = next(node for node in map(NodeView.of, cluster.nodes()) if node.name == "gpu-1")
    assert (gpu.allocatable.cpu, gpu.allocatable.gpus, gpu.labels["zone"], len(gpu.taints)) == (64, 4, "b", 1)
    of_others = {"name": "of-others", "annotations": {"kwok.x-k8s.io/node": "fake"}}
    # A node that is not fake stays, whatever its labels.
    real = {"name": "real", "labels": {"app.kubernetes.io/managed-by": "hdsim"}}
    for metadata in (of_others, real):
        cluster.api("POST", "/api/v1/nodes", {"metadata": metadata})
    assert nodes("--delete") == "156 nodes are deleted\n"
    assert [node["metadata"]["name"] for node in cluster.nodes()] == ["of-others", "real"]
    cluster.api("DELETE", "/api/v1/nodes/real")
    assert "expected one of PLATFORM" in nodes("gaia", "--count", 1, status=2)
    for option, value, told in (
        ("--memory", "much", "--memory: expected a quantity"),
        ("--cpu", "1e300", "at most 1Ei, got '1e300'"),
        ("--label", "kubernetes.io/hostname=x", "--label: expected none of the labels that hdsim sets"),
        ("--label", "zone=-b", "--label: expected a value of at most 63 letters"),
        ("--label", "a b=c", "metadata.labels: Invalid value"),
        ("--taint", "gpu=y/n:NoSchedule", "--taint: expected a value of at most 63 letters"),
    ):
        assert told in nodes("--count", 1, option, value, status=2)


@pytest.mark.requires("kube")
@pytest.mark.ci
def test_clean_deletes_what_hdsim_has_made(
    cluster: Cluster, hdsim: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    def pod(name: str, **labels: str) -> None:
        body = {
            "metadata": {"name": name, "labels": labels},
            "spec": {"containers": [{"name": "main", "image": "none"}]},
        }
        cluster.api("POST", f"/api/v1/namespaces/{cluster.namespace}/pods", body)

    def clean(*options: str) -> tuple[str, list[str]]:
        done = hdsim("kwok", "clean", "--kubeconfig", cluster.kubeconfig, "--namespace", cluster.namespace, *options)
        assert done.returncode == 0, done.stderr
        return done.stdout, [pod["metadata"]["name"] for pod in cluster.pods()]

    pod("ours", **{"app.kubernetes.io/managed-by": "hdsim"})
    pod("theirs")
    hdsim("kwok", "nodes", "--kubeconfig", cluster.kubeconfig, "--count", 1)
    assert clean() == ("1 pods are deleted\n", ["theirs"])
    assert len(cluster.nodes()) == 1
    assert clean("--all", "--nodes") == ("1 pods are deleted\n1 nodes are deleted\n", [])
    assert not cluster.nodes()
    where = ("--kubeconfig", cluster.kubeconfig, "--namespace")
    for verb, namespace, told in (("load", cluster.namespace, "expected a node"), ("clean", "x", "--namespace: exp")):
        done = hdsim("kwok", verb, *where, namespace)
        assert done.returncode == 2 and told in done.stderr
