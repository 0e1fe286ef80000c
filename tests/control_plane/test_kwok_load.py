"""``hdsim kwok load`` and ``top`` on a real API server, looked at by a client that is independent of them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from kube import Cluster

pytestmark = pytest.mark.requires("kube")
Run = Callable[..., "subprocess.CompletedProcess[str]"]
GIB = 2**30

NODE = {"cpu": "8", "memory": "32Gi"}
#: Four nodes of 8 CPU, 32 GiB and 110 pods: node-0 to node-3.
PLATFORM = {
    "name": "four",
    "kind": "quantities",
    "clusters": [{"id": "node", "nodes": [{"type": "worker", "number": 4}]}],
    "types": {
        "node": {"worker": {"processors": [{"type": "cpu", "number": 1}], "memory": {"capacity": "32GiB"}}},
        "processor": {"cpu": {"cores": 8, "clock_rate": 1, "dpflops_per_cycle": 1, "power": 0}},
    },
}


@pytest.fixture
def kwok(cluster: Cluster, hdsim: Run) -> Iterator[Callable[..., str]]:
    """`hdsim kwok VERB` in the namespace of the test; returns the output."""
    from kube import fake_node

    from hdsim.kubernetes.connection import Connection
    from hdsim.kubernetes.load import empty

    def run(verb: str, *args: object, status: int = 0) -> str:
        where = [] if verb in ("record", "nodes") else ["--namespace", cluster.namespace]
        done = hdsim("kwok", verb, "--kubeconfig", cluster.kubeconfig, *where, *args)
        assert done.returncode == status, done.stderr
        return done.stderr if status else done.stdout

    cluster.add_nodes(fake_node(f"node-{index}", NODE) for index in range(4))
    yield run
    with Connection(cluster.kubeconfig) as connection:
        empty(connection, cluster.namespace, everything=True)


def requests_of(pod: dict[str, Any]) -> dict[str, str]:
    found: dict[str, str] = pod["spec"]["containers"][0]["resources"]["requests"]
    return found


def test_deployments_fill_the_nodes_epoch_after_epoch(cluster: Cluster, kwok: Callable[..., str]) -> None:
    told = kwok("load", "--scheduler-name", "default-scheduler", "--cpu-load", 0.5, "--memory-load", 0.9, "--epochs", 2)
    assert re.match(r"created 32 pods \(\d+ objects\) in ", told), told
    pods = cluster.pods()
    assert len(pods) == 16  # 0.5 x 32 CPU; the first epoch is gone
    assert all(pod["spec"]["nodeName"] for pod in pods)
    assert {(requests_of(pod)["cpu"], requests_of(pod)["memory"]) for pod in pods} == {("1", str(2 * GIB))}
    deployments = cluster.api.items(f"/apis/apps/v1/namespaces/{cluster.namespace}/deployments")
    assert sum(made["spec"]["replicas"] for made in deployments) == 16
    assert all(made["metadata"]["name"].startswith("load-1-") for made in deployments)


@pytest.mark.ci
def test_same_seed_same_pods(cluster: Cluster, kwok: Callable[..., str]) -> None:
    made = []
    for seed, name in ((5, "a"), (5, "b"), (6, "c")):
        kwok("load", "--pods", "--cpu", "250m,500m,1", "--seed", seed, "--name", name, "--wait", 0)
        pods = [pod for pod in cluster.pods() if pod["metadata"]["name"].startswith(f"{name}-")]
        made.append(sorted((pod["metadata"]["name"][1:], requests_of(pod)["cpu"]) for pod in pods))
    assert made[0] == made[1] != made[2]


@pytest.mark.ci
def test_the_rate_is_kept(kwok: Callable[..., str]) -> None:
    told = kwok("load", "--pods", "--replicas", 1, "--cpu-load", 0.5, "--memory-load", 1, "--rate", 10, "--wait", 0)
    seconds = float(re.search(r" in ([\d.]+) s", told)[1])  # type: ignore[index]
    assert seconds >= 1.5  # 16 pods, the last one due 1.5 s after the first


@pytest.mark.ci
def test_a_trace_becomes_pods_and_gangs(cluster: Cluster, kwok: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "four.json").write_text(json.dumps(PLATFORM))
    rows = [(1, 0, 5.0, 1), (2, 30, 2.5, 3), (3, 60, 1.0, 2)]
    (tmp_path / "three.swf").write_text(
        "".join(
            f"{job} {time} 0 {runtime} {cores} -1 -1 {cores} 100 -1 1 1 1 1 1 -1 -1 -1\n"
            for job, time, runtime, cores in rows
        )
    )
    kwok(
        "load",
        "--trace",
        tmp_path / "three.swf",
        "--platform",
        tmp_path / "four.json",
        "--time-scale",
        20,
        "--scheduler-name",
        "default-scheduler",
        "--cores-per-pod",
        1,
    )
    pods = cluster.pods()
    notes = [pod["metadata"]["annotations"] for pod in pods]
    assert Counter(note["hdsim.io/job-id"] for note in notes) == {"1": 1, "2": 3, "3": 2}
    seconds = {note["hdsim.io/job-id"]: float(note["hdsim.io/duration"][:-1]) for note in notes}
    assert seconds == {"1": 0.25, "2": 0.125, "3": 0.05}
    gangs = [pod["metadata"] for pod in pods if pod["metadata"]["annotations"]["hdsim.io/job-id"] == "2"]
    assert {gang["labels"]["scheduling.x-k8s.io/pod-group"] for gang in gangs} == {"job-2"}
    assert {gang["annotations"]["hdsim.io/pod-group-size"] for gang in gangs} == {"3"}
    assert {requests_of(pod)["cpu"] for pod in pods} == {"1"}
    created = {
        note["hdsim.io/job-id"]: pod["metadata"]["creationTimestamp"] for note, pod in zip(notes, pods, strict=True)
    }
    assert created["1"] < created["2"] < created["3"]  # 1.5 s apart
    from kube import wait_for

    wait_for(lambda: {pod["status"]["phase"] for pod in cluster.pods()} == {"Succeeded"}, "the end of all pods")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--jobs", "3"), "--jobs: expected with --trace"),
        (("--trace", "lublin_256", "--epochs", "2"), "--epochs: expected without --trace"),
        (("--cpu", "1x"), "expected quantities such as 500m or 2Gi, separated by commas, got '1x'"),
        (("--cpu", "1e400"), "expected quantities such as 500m or 2Gi, separated by commas, got '1e400'"),
        (("--replicas", "9-3"), "expected a number of pods or a range such as 5-15, got '9-3'"),
        (("--replicas", "many"), "expected a number of pods or a range such as 5-15, got 'many'"),
        (("--namespace", "nowhere"), "--namespace: expected a namespace of https://127.0.0.1:"),
        (("--name", "A_b"), "Invalid value"),
    ],
)
def test_mistakes_are_one_message(kwok: Callable[..., str], args: tuple[str, ...], message: str) -> None:
    told = kwok("load", *args, status=2)
    assert message in told
    assert "Traceback" not in told


@pytest.mark.ci
def test_pods_that_are_there_already_are_told(kwok: Callable[..., str]) -> None:
    kwok("load", "--pods", "--wait", 0)
    assert "hdsim kwok clean" in kwok("load", "--pods", "--wait", 0, status=2)


@pytest.mark.ci
def test_creations_that_got_no_answer_are_repeated(cluster: Cluster, kwok: Callable[..., str]) -> None:
    """The API server is killed and started again while pods are created: each one is there once."""
    command = [
        sys.executable,
        "-m",
        "hdsim",
        "kwok",
        "load",
        "--kubeconfig",
        str(cluster.kubeconfig),
        "--namespace",
        cluster.namespace,
        "--pods",
        "--replicas",
        "1",
        "--cpu-load",
        "1",
        "--memory-load",
        "1",
        "--pod-load",
        "1",
        "--rate",
        "8",
        "--wait",
        "0",
    ]
    from kube import wait_for

    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as loading:
        wait_for(lambda: len(cluster.pods()) > 4, "the first pods")
        cluster.restart("kube-apiserver")
        told, failed = loading.communicate(timeout=120)
    assert loading.returncode == 0, failed
    assert told.startswith("created 32 pods (32 objects)")
    assert "repeated" in told
    assert sorted(pod["metadata"]["name"] for pod in cluster.pods()) == sorted(f"load-0-{k}-0" for k in range(32))


@pytest.mark.ci
def test_top_shows_what_the_nodes_have_and_why_pods_wait(cluster: Cluster, kwok: Callable[..., str]) -> None:
    kwok("load", "--scheduler-name", "default-scheduler", "--cpu-load", 0.5, "--memory-load", 0.9)
    kwok(
        "load",
        "--scheduler-name",
        "default-scheduler",
        "--pods",
        "--name",
        "big",
        "--cpu",
        9,
        "--replicas",
        2,
        "--cpu-load",
        0.5,
        "--memory-load",
        1,
        "--wait",
        2,
    )
    shown = kwok("top", "--once", "--sort", "cpu")
    lines = {line.split()[0]: line for line in shown.splitlines() if line}
    used: Counter[str] = Counter(pod["spec"]["nodeName"] for pod in cluster.pods() if "nodeName" in pod["spec"])
    for node, pods in used.items():
        assert re.search(rf"^{node}\s+Ready\s+{pods} / 8 .* {2 * pods}Gi / 32Gi .* {pods} / 110 ", lines[node])
    assert re.search(r"^total\s+16 / 32 .* 50%\s+32Gi / 128Gi .* 25%\s+16 / 440 ", lines["total"])
    order = [line.split()[0] for line in shown.splitlines() if line.startswith("node-")]
    assert [used[node] for node in order] == sorted(used.values(), reverse=True)
    assert "Insufficient cpu" in lines[f"{cluster.namespace}/big-0-0-0"]
    assert "18: 2 Pending, 16 Running" in shown


@pytest.mark.ci
def test_clusters_with_kubelets_are_left_alone(cluster: Cluster, kwok: Callable[..., str]) -> None:
    from kube import fake_node

    node = fake_node("real", {"cpu": "4", "memory": "8Gi", "pods": "10"})
    node["metadata"]["annotations"] = {}
    cluster.add_nodes([node])
    for verb, *options in (("load", "--pods", "--wait", 0), ("nodes", "--count", 1), ("clean", "--all")):
        told = kwok(verb, *options, status=2)
        assert f"{verb}: expected a cluster whose nodes are all fake, got real" in told and "--real takes any" in told
    assert "0 pods are deleted" in kwok("clean", "--real")
