"""Backend ``kwok`` on a real API server, by the wall clock; checked by a client that is none of hdsim's."""

from __future__ import annotations

import csv
import queue
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kube import Cluster, amount, fake_node, wait_for
from tiers import nightly

import hdsim
from hdsim.agents.kube_scheduler import KubeScheduler
from hdsim.agents.mcts import Mcts
from hdsim.agents.rollout import Rollout
from hdsim.backends.kwok.backend import Kwok
from hdsim.backends.kwok.wall import Wall
from hdsim.cluster.state import FinalState
from hdsim.errors import BackendError, ConfigError
from hdsim.kubernetes.cache import Cache
from hdsim.kubernetes.connection import Connection
from hdsim.kubernetes.nodes import platform_of
from hdsim.kubernetes.objects import NodeView, PodView
from hdsim.results.result import Result
from hdsim.results.run_directory.directory import RunDirectory
from hdsim.results.run_directory.reader import read
from hdsim.scheduling.agent import make_agent
from hdsim.workload.constraints import Constraints

pytestmark = pytest.mark.requires("kube")

LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/hdsim-hdsim"
ELECTION = {"lease": 3, "renew": 2, "retry": 0.3}
GREEDY = {"job_policy": "priority", "backfill": "greedy", "core_policy": "least_allocated"}


def node(name: str, amounts: Mapping[str, str] | None = None, **more: Any) -> dict[str, Any]:
    return fake_node(name, {"memory": "8Gi", "pods": "10", **(amounts or {})}, **more)


def pod(
    name: str,
    cpu: str = "1",
    *,
    scheduler: str = "hdsim",
    duration: float | None = None,
    more: Any = None,
    notes: Mapping[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    annotations = dict(notes or {}) | ({} if duration is None else {"hdsim.io/duration": f"{duration}s"})
    resources = {"requests": {"cpu": cpu, "memory": "512Mi"}} | (more or {})
    return {
        "metadata": {"name": name, "annotations": annotations},
        "spec": {
            "schedulerName": scheduler,
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "none", "resources": resources}],
            **spec,
        },
    }


def create(cluster: Cluster, *bodies: dict[str, Any]) -> None:
    cluster.add_nodes(body for body in bodies if "containers" not in body["spec"])
    for body in bodies:
        if "containers" in body["spec"]:
            cluster.api("POST", f"/api/v1/namespaces/{cluster.namespace}/pods", body)


def check(cluster: Cluster) -> dict[str, str]:
    """Checks that no node is overcommitted, and selectors and taints hold; returns the node of every bound pod."""
    nodes = {found["metadata"]["name"]: found for found in cluster.nodes()}
    used: dict[str, Counter[str]] = {name: Counter() for name in nodes}
    bound = {}
    for found in cluster.api.items("/api/v1/pods"):
        spec, name = found["spec"], found["metadata"]["name"]
        where = spec.get("nodeName")
        if where is None:
            continue
        bound[name] = where
        if where not in nodes:
            continue
        labels = nodes[where]["metadata"].get("labels", {})
        assert all(labels.get(key) == value for key, value in spec.get("nodeSelector", {}).items()), name
        tolerated = {each.get("key") for each in spec.get("tolerations", [])}
        if spec["schedulerName"] == "hdsim":
            hard = {each["key"] for each in nodes[where]["spec"].get("taints", []) if each["effect"] == "NoSchedule"}
            assert hard - {"node.kubernetes.io/unschedulable", "node.kubernetes.io/not-ready"} <= tolerated, name
        if found["status"]["phase"] in ("Pending", "Running"):
            used[where]["pods"] += 1
            for container in spec["containers"]:
                for key, value in container["resources"].get("requests", {}).items():
                    used[where][key] += amount(value)
    for where, amounts in used.items():
        for key, value in amounts.items():
            assert value <= amount(nodes[where]["status"]["allocatable"][key]) + 1e-9, f"{where}: {key}"
    return bound


def make(cluster: Cluster, **settings: Any) -> Kwok:
    defaults = {
        "kubeconfig": str(cluster.kubeconfig),
        "namespace": cluster.namespace,
        "stop_when_idle": 2.0,
        "leader_election": ELECTION,
        "timeout": 20.0,
    }
    return Kwok(**{**defaults, **settings})


def run(cluster: Cluster, folder: Path, agent: Any = GREEDY, **settings: Any) -> tuple[Result, dict[str, Any]]:
    backend = make(cluster, **settings)
    platform = backend.read_platform()
    return backend.run(platform, backend.read_workload(platform), agent, folder, check=True)


@contextmanager
def running(cluster: Cluster, folder: Path, **settings: Any) -> Iterator[list[Any]]:
    """A run in a thread; the list gets its result, or its error, at the end."""
    backend = make(cluster, **settings)
    outcome: list[Any] = []

    def play() -> None:
        try:
            platform = backend.read_platform()
            outcome.append(backend.run(platform, backend.read_workload(platform), GREEDY, folder))
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=play)
    thread.start()
    try:
        yield outcome
    finally:
        thread.join(timeout=120)
        assert not thread.is_alive()


def events(cluster: Cluster, reason: str) -> dict[str, list[str]]:
    """Notes of the events of hdsim by pod."""
    found: dict[str, list[str]] = {}
    for event in cluster.api.items(f"/apis/events.k8s.io/v1/namespaces/{cluster.namespace}/events"):
        if event["reason"] == reason and event["reportingController"] == "hdsim":
            found.setdefault(event["regarding"]["name"], []).append(event["note"])
    return found


def rows(path: Path) -> dict[str, dict[str, str]]:
    with path.open(newline="") as file:
        return {row["name"]: row for row in csv.DictReader(file)}


@pytest.mark.ci
def test_pods_are_bound_where_they_may_and_the_others_are_told(cluster: Cluster, tmp_path: Path) -> None:
    taint = {"key": "dedicated", "value": "batch", "effect": "NoSchedule"}
    create(
        cluster,
        node("plain"),
        node("labelled", labels={"disk": "ssd"}),
        node("tainted", {"cpu": "16"}, taints=[taint]),
        node("accelerated", {"nvidia.com/gpu": "2"}),
    )
    gpu = {"limits": {"nvidia.com/gpu": "1"}, "requests": {"cpu": "1", "memory": "1Gi"}}
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "DoesNotExist"}]}]
            }
        }
    }
    create(
        cluster,
        pod("ssd", nodeSelector={"disk": "ssd"}),
        pod("tolerant", "8", tolerations=[{"key": "dedicated", "operator": "Exists"}]),
        pod("elsewhere", affinity=affinity),
        *(pod(f"small-{i}", "500m") for i in range(6)),
        pod("gpu", more=gpu),
        pod("huge", "64"),
        pod("nowhere", nodeSelector={"disk": "tape"}),
        pod("undated", notes={"hdsim.io/duration": "abc"}),
        pod(
            "spread",
            affinity={
                "podAntiAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "kubernetes.io/hostname"}]
                }
            },
        ),
        pod("other", scheduler="nobody"),
    )
    result, facts = run(cluster, tmp_path)
    bound = check(cluster)
    assert bound["ssd"] == "labelled" and bound["tolerant"] == "tainted" and bound["elsewhere"] != "labelled"
    assert bound["gpu"] == "accelerated"
    assert set(bound) == {"ssd", "tolerant", "elsewhere", "gpu", *(f"small-{i}" for i in range(6))}
    assert set(events(cluster, "Scheduled")) == set(bound)
    told = events(cluster, "FailedScheduling")
    assert {name: len(notes) for name, notes in told.items()} == {"huge": 1, "nowhere": 1, "spread": 1, "undated": 1}
    assert "hdsim.io/duration: 'abc', expected" in told["undated"][0]
    assert "without enough cpu" in told["huge"][0] and "excluded by node selector" in told["nowhere"][0]
    assert "podAntiAffinity" in told["spread"][0]
    assert facts["pods_bound"] == 10 and facts["api_calls_per_pod"] <= 2.4
    assert set(facts["decision_latency_seconds"]) == {"p50", "p99"}
    table = rows(tmp_path / "pods.csv")
    assert table["ssd"]["node"] == "labelled" and table["ssd"]["attempts"] == "1" and table["huge"]["bound"] == ""
    assert float(table["ssd"]["created"]) <= float(table["ssd"]["decided"]) <= float(table["ssd"]["bound"])
    states = Counter(FinalState(state).name for state in result.state.tolist())
    assert states == {"RUNNING": 10, "REJECTED": 2}


@pytest.mark.ci
def test_gangs_are_bound_as_a_whole_or_not_at_all(cluster: Cluster, tmp_path: Path) -> None:
    def gang(name: str, size: int, pods: int, cpu: str = "1") -> list[dict[str, Any]]:
        made = []
        for index in range(pods):
            body = pod(f"{name}-{index}", cpu, notes={"hdsim.io/pod-group-size": str(size)})
            body["metadata"]["labels"] = {"scheduling.x-k8s.io/pod-group": name}
            made.append(body)
        return made

    create(cluster, node("a"), node("b"))
    create(cluster, *gang("whole", 3, 3), *gang("large", 3, 3, "3"), *gang("missing", 4, 3))
    result, _ = run(cluster, tmp_path, gang_timeout=1.0, stop_when_idle=4.0)
    assert set(check(cluster)) == {"whole-0", "whole-1", "whole-2"}
    told = events(cluster, "FailedScheduling")
    assert set(told) == {f"{name}-{index}" for name in ("large", "missing") for index in range(3)}
    assert "3 of 4 pods have arrived after 1 s" in told["missing-0"][0]
    assert "room for 2 of 3 pods" in told["large-0"][0]
    assert result.workload.requested_cores.tolist() == [3, 3]


@pytest.mark.ci
def test_a_gang_that_could_not_start_starts_once_its_pods_are_mended(cluster: Cluster, tmp_path: Path) -> None:
    def member(name: str, size: int, cpu: str = "100m") -> dict[str, Any]:
        return pod(name, cpu, notes={"hdsim.io/pod-group": name[0], "hdsim.io/pod-group-size": str(size)})

    pods = f"/api/v1/namespaces/{cluster.namespace}/pods"
    create(cluster, node("a"))
    with running(cluster, tmp_path, stop_when_idle=6.0, gang_timeout=1.0):
        create(cluster, member("u-0", 2), member("u-1", 2, "200m"), member("s-0", 3), member("s-1", 3))
        wait_for(lambda: {"u-0", "s-0"} <= events(cluster, "FailedScheduling").keys(), "the word of both gangs")
        assert not check(cluster)
        cluster.api("DELETE", f"{pods}/u-1?gracePeriodSeconds=0")
        create(cluster, member("u-2", 2))
        for name in ("s-0", "s-1"):
            size = {"metadata": {"annotations": {"hdsim.io/pod-group-size": "2"}}}
            cluster.api("PATCH", f"{pods}/{name}", size, "merge-patch+json")
        wait_for(lambda: check(cluster).keys() == {"u-0", "u-2", "s-0", "s-1"}, "both gangs")
    told = events(cluster, "FailedScheduling")
    assert "gang u: expected pods of equal requests, constraints and priorities" in told["u-0"]
    assert told["s-0"] == ["gang s: 2 of 3 pods have arrived after 1 s"]


def install_pod_groups(cluster: Cluster) -> str:
    """Makes the custom resource of PodGroups; returns the path of its definition."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1alpha1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    names = {"plural": "podgroups", "singular": "podgroup", "kind": "PodGroup"}
    cluster.api(
        "POST",
        definitions,
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {
                "name": "podgroups.scheduling.x-k8s.io",
                "annotations": {"api-approved.kubernetes.io": "unapproved, of a test"},
            },
            "spec": {"group": "scheduling.x-k8s.io", "names": names, "scope": "Namespaced", "versions": [version]},
        },
    )
    return f"{definitions}/podgroups.scheduling.x-k8s.io"


@pytest.mark.ci
def test_min_member_of_pod_groups_is_the_size_of_a_gang(cluster: Cluster, tmp_path: Path) -> None:
    def gang(name: str, pods: range) -> list[dict[str, Any]]:
        made = [pod(f"{name}-{index}", "1") for index in pods]
        for body in made:
            body["metadata"]["labels"] = {"scheduling.x-k8s.io/pod-group": name}
        return made

    def group(name: str, members: int) -> None:
        body = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "metadata": {"name": name}}
        path = f"/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{cluster.namespace}/podgroups"
        cluster.api("POST", path, body | {"spec": {"minMember": members}})

    definition = install_pod_groups(cluster)
    try:
        served = "/apis/scheduling.x-k8s.io/v1alpha1/podgroups"
        wait_for(lambda: cluster.api.request("GET", served)[0] == 200, "the custom resource")
        create(cluster, node("a", {"cpu": "3"}), node("b", {"cpu": "3"}))
        group("early", 3)
        with running(cluster, tmp_path, stop_when_idle=6.0, gang_timeout=2.0) as outcome:
            create(cluster, *gang("early", range(2)), *gang("late", range(3)))
            wait_for(lambda: "late-2" in events(cluster, "FailedScheduling"), "the word of a gang without a size")
            assert not check(cluster)
            create(cluster, *gang("early", range(2, 3)))
            wait_for(lambda: len(check(cluster)) == 3, "the gang that is complete")
            # Two of its three pods are enough; the third one follows.
            group("late", 2)
            wait_for(lambda: len(check(cluster)) == 6, "the gang whose PodGroup comes later")
        told = events(cluster, "FailedScheduling")
        assert told["late-0"] == [
            "gang late: no PodGroup tells its size, nor an annotation hdsim.io/pod-group-size > 0"
        ]
        assert told["early-0"] == ["gang early: 2 of 3 pods have arrived after 2 s"]
        assert outcome[0][0].workload.requested_cores.tolist() == [3, 2, 1]
    finally:
        cluster.api("DELETE", definition)


@pytest.mark.ci
def test_pod_groups_that_are_installed_and_removed_in_mid_run(
    cluster: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def member(name: str) -> dict[str, Any]:
        body = pod(name, "100m")
        body["metadata"]["labels"] = {"scheduling.x-k8s.io/pod-group": name[0]}
        return body

    groups = f"/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{cluster.namespace}/podgroups"

    def group(name: str) -> None:
        body = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "metadata": {"name": name}}
        body |= {"spec": {"minMember": 2}}
        # The API server serves a new resource a little later.
        wait_for(lambda: cluster.api.request("POST", groups, body)[0] == 201, "the custom resource")

    create(cluster, node("a"))
    with running(cluster, tmp_path, stop_when_idle=12.0, gang_timeout=1.0, timeout=3.0) as outcome:
        create(cluster, member("g-0"), member("g-1"))
        wait_for(lambda: "g-1" in events(cluster, "FailedScheduling"), "the word of a gang without a size")
        definition = install_pod_groups(cluster)
        group("g")
        wait_for(lambda: len(check(cluster)) == 2, "the gang")
        cluster.api("DELETE", definition)
        wait_for(lambda: "the API server has no such resource any more" in caplog.text, "the word of its end")
        create(cluster, member("h-0"), member("h-1"))
        wait_for(lambda: "h-1" in events(cluster, "FailedScheduling"), "the word of a gang without a size")
        wait_for(lambda: cluster.api.request("GET", definition)[0] == 404, "the end of the definition")
        install_pod_groups(cluster)
        try:
            group("h")
            wait_for(lambda: len(check(cluster)) == 4, "the gang of a resource that is back")
        finally:
            cluster.api("DELETE", definition)
    assert outcome[0][1]["pods_bound"] == 4


@pytest.mark.ci
def test_pods_of_a_gang_that_their_nodes_refuse_are_decided_on_anew(
    cluster: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    group = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/binding"]}
    policy, binding = f"{group}ies", f"{group}ybindings"
    name = {"metadata": {"name": cluster.namespace}}
    validation = {"expression": "object.target.name != 'b'", "message": "not on b"}
    spec = {"matchConstraints": {"resourceRules": [rule]}, "validations": [validation]}
    cluster.api("POST", policy, name | {"spec": spec})
    cluster.api("POST", binding, name | {"spec": {"policyName": cluster.namespace, "validationActions": ["Deny"]}})
    create(cluster, node("a"), node("b"), node("c", {"cpu": "3"}), pod("probe", scheduler="nobody"))
    try:
        pods = f"/api/v1/namespaces/{cluster.namespace}/pods"
        target = {"metadata": {"name": "probe"}, "target": {"kind": "Node", "name": "b"}}
        # The API server takes the policy into account a little later.
        wait_for(
            lambda: cluster.api.request("POST", f"{pods}/probe/binding?dryRun=All", target)[0] == 422, "the policy"
        )
        with running(cluster, tmp_path, stop_when_idle=4.0) as outcome:
            for index in range(2):
                body = pod(f"gang-{index}", "3", notes={"hdsim.io/pod-group": "gang", "hdsim.io/pod-group-size": "2"})
                create(cluster, body)
            wait_for(lambda: events(cluster, "FailedScheduling"), "an event")
            cluster.api("PATCH", "/api/v1/nodes/b", {"spec": {"unschedulable": True}}, "merge-patch+json")
            wait_for(lambda: len(check(cluster)) == 2, "the other pod of the gang")
    finally:
        for each in (binding, policy):
            cluster.api("DELETE", f"{each}/{cluster.namespace}")
    assert sorted(check(cluster).values()) == ["a", "c"]
    ((told,),) = events(cluster, "FailedScheduling").values()
    assert "the binding was refused 5 times" in told and "not on b" in told
    result, facts = outcome[0]
    assert facts["pods_bound"] == 2 and result.failed_starts
    assert Counter(FinalState(state).name for state in result.state.tolist()) == {"RUNNING": 2, "REJECTED": 1}


@pytest.mark.ci
def test_higher_priorities_come_first_and_pods_of_others_take_their_share(cluster: Cluster, tmp_path: Path) -> None:
    for name, value in (("high", 100), ("low", 1)):
        body = {"metadata": {"name": f"{cluster.namespace}-{name}"}, "value": value}
        cluster.api("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", body)
    create(cluster, node("a"), pod("other", "2500m", scheduler="nobody", nodeName="a"))
    create(cluster, *(pod(name, priorityClassName=f"{cluster.namespace}-{name}") for name in ("low", "high")))
    run(cluster, tmp_path)
    assert set(check(cluster)) == {"other", "high"}
    assert "without enough cpu" in events(cluster, "FailedScheduling")["low"][0]


@pytest.mark.ci
def test_a_gang_of_which_another_scheduler_binds_a_pod_as_it_arrives(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The arrival of the gang and the binding come with one look at the news.
    monkeypatch.setattr("hdsim.backends.kwok.wall._PACE", 2.0)
    gang = [pod(f"gang-{i}", notes={"hdsim.io/pod-group": "gang", "hdsim.io/pod-group-size": "3"}) for i in range(3)]
    create(cluster, node("a"))
    with running(cluster, tmp_path, stop_when_idle=6.0) as outcome:
        create(cluster, pod("first"))
        wait_for(lambda: "first" in check(cluster), "the first pod")
        create(cluster, *gang)
        binding = {"metadata": {"name": "gang-0"}, "target": {"kind": "Node", "name": "a"}}
        cluster.api("POST", f"/api/v1/namespaces/{cluster.namespace}/pods/gang-0/binding", binding)
        wait_for(lambda: len(check(cluster)) == 4, "all pods")
    assert len(outcome[0][0].state) == 3  # the first pod, the bound one, and the two that are left


@pytest.mark.parametrize("agent", [Rollout, *nightly(Mcts)])
@pytest.mark.ci
def test_a_search_by_the_wall_clock(cluster: Cluster, tmp_path: Path, agent: type[Rollout]) -> None:
    # Beside a pod of others the one of 4 CPUs never fits; a head that stayed the head would wait for ever.
    sizes = {"blocked": 4, **{f"p{number}": 1 + number % 3 for number in range(10)}}
    ours = [pod(name, str(size), duration=1 + size) for name, size in sizes.items()]
    create(cluster, node("a", {"cpu": "4"}), pod("theirs", "1", scheduler="other", nodeName="a"), *ours)
    settings: dict[str, Any] = {"commit_head": False, "core_policy": "least_allocated"}
    search = agent(["fcfs", "saf", "sjf"], base="sjf", scenarios=2, arrivals=3, **settings)
    result, _ = run(cluster, tmp_path, search, stop_when_idle=15.0)
    assert set(check(cluster)) == {*sizes, "theirs"} - {"blocked"}
    states = dict(zip(result.workload.job_id.tolist(), result.state.tolist(), strict=True))
    assert states.pop(f"{cluster.namespace}/blocked") == FinalState.QUEUED
    assert set(states.values()) == {FinalState.COMPLETED_SUCCESSFULLY}


@pytest.mark.ci
def test_a_restart_finds_what_is_bound_and_binds_the_rest(cluster: Cluster, tmp_path: Path) -> None:
    create(cluster, node("a"), node("b"), *(pod(f"first-{i}") for i in range(5)))
    run(cluster, tmp_path / "1")
    before = check(cluster)
    create(cluster, *(pod(f"second-{i}") for i in range(5)))
    result, facts = run(cluster, tmp_path / "2")
    after = check(cluster)
    # Eight CPUs of two nodes: five pods hold theirs.
    assert len(before) == 5 and len(after) == 8 and before.items() <= after.items()
    assert facts["pods_bound"] == 3 and Counter(result.state.tolist())[FinalState.RUNNING] == 8


@pytest.mark.ci
def test_nodes_that_go_and_come_back(cluster: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    create(cluster, node("a"), node("b"), node("c"))
    a, b, c = (f"/api/v1/nodes/{name}" for name in "abc")
    with running(cluster, tmp_path, stop_when_idle=6.0):
        create(cluster, *(pod(f"first-{i}") for i in range(3)))
        wait_for(lambda: len(check(cluster)) == 3, "the first pods")
        cluster.api("PATCH", a, {"spec": {"unschedulable": True}}, "merge-patch+json")
        cluster.api("DELETE", b)
        wait_for(lambda: "node b is deleted" in caplog.text and "node a is cordoned" in caplog.text, "the log")
        create(cluster, *(pod(f"second-{i}") for i in range(3)))
        wait_for(lambda: sum(name.startswith("second") for name in check(cluster)) == 3, "the second pods")
        assert {where for name, where in check(cluster).items() if name.startswith("second")} == {"c"}
        create(cluster, pod("large", "3"))
        cluster.api("PATCH", a, {"spec": {"unschedulable": False}}, "merge-patch+json")
        create(cluster, node("b"))
        wait_for(lambda: "large" in check(cluster), "a pod on a node that is back")
        # A taint that comes later keeps pods away as well.
        taint = {"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}}
        for name in (a, b, c):
            cluster.api("PATCH", name, taint, "strategic-merge-patch+json")
        time.sleep(0.5)
        create(cluster, pod("late", "100m"))
        wait_for(lambda: "late" in events(cluster, "FailedScheduling"), "an event")
        for name in (a, b, c):
            cluster.api("PATCH", name, {"spec": {"taints": None}}, "merge-patch+json")
        wait_for(lambda: "late" in check(cluster), "a pod after its taint")


@pytest.mark.ci
def test_pods_that_wait_have_a_condition(cluster: Cluster, tmp_path: Path) -> None:
    """Source: Kubernetes, "Pod conditions"; autoscalers and dashboards look at it."""

    def conditions() -> dict[str, dict[str, Any]]:
        return {
            found["metadata"]["name"]: each
            for found in cluster.pods()
            for each in found["status"].get("conditions", [])
            if each["type"] == "PodScheduled"
        }

    create(cluster, node("a"), pod("large", "9"), pod("runs", "3"))
    with running(cluster, tmp_path, stop_when_idle=6.0):
        wait_for(lambda: "runs" in check(cluster) and "large" in conditions(), "a bound pod and one that fits nowhere")
        create(cluster, pod("waits", "2"))
        wait_for(lambda: "waits" in conditions(), "the condition of a pod that waits")
        found = conditions()
        for name in ("large", "waits"):
            assert (found[name]["status"], found[name]["reason"]) == ("False", "Unschedulable")
            assert [found[name]["message"]] == events(cluster, "FailedScheduling")[name]
            assert found[name]["lastTransitionTime"]
        assert found["runs"]["status"] == "True"
        cluster.api("DELETE", f"/api/v1/namespaces/{cluster.namespace}/pods/runs?gracePeriodSeconds=0")
        wait_for(lambda: "waits" in check(cluster), "a pod that fits now")
        assert conditions()["waits"]["status"] == "True" and conditions()["large"]["status"] == "False"


@pytest.mark.ci
def test_a_node_whose_amounts_change_stays_in_service(
    cluster: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    create(cluster, node("a", {"cpu": "8", "memory": str(2**60)}))

    def change(**amounts: str) -> None:
        body = {"status": {"allocatable": amounts, "capacity": amounts}}
        cluster.api("PATCH", "/api/v1/nodes/a/status", body, "strategic-merge-patch+json")

    with running(cluster, tmp_path, stop_when_idle=6.0) as outcome:
        create(cluster, pod("first", "6"))
        wait_for(lambda: "first" in check(cluster), "a pod on the node as it was")
        change(cpu="7900m", pods="20")
        wait_for(lambda: "node a has 7.9 cpu instead of 8 cpu, 20 pods instead of 10 pods" in caplog.text, "the log")
        create(cluster, pod("large", "2"), pod("small", "1900m"))
        wait_for(lambda: "small" in check(cluster), "the pod that fits on what is left")
        wait_for(lambda: "large" in events(cluster, "FailedScheduling"), "the word of the one that does not")
        assert check(cluster).keys() == {"first", "small"}
        cluster.api("DELETE", f"/api/v1/namespaces/{cluster.namespace}/pods/small?gracePeriodSeconds=0")
        change(cpu="8")
        wait_for(lambda: "large" in check(cluster), "the pod that fits now")
        # More than at the start counts as well, for pods that fitted nowhere too.
        create(cluster, pod("larger", "11"))
        wait_for(lambda: "larger" in events(cluster, "FailedScheduling"), "the word of a pod larger than the node")
        change(cpu="19")
        wait_for(lambda: "larger" in check(cluster), "the pod that fits on the larger node")
        # A node without a limit of memory gets one.
        change(memory="3Gi")
        wait_for(lambda: "node a has 3 GiB memory instead of unlimited memory" in caplog.text, "the log")
        for name, size in (("much", "2Gi"), ("little", "1Gi")):
            create(cluster, pod(name, "0", more={"requests": {"memory": size}}))
        wait_for(lambda: "little" in check(cluster) and "much" in events(cluster, "FailedScheduling"), "both pods")
    (note,) = events(cluster, "FailedScheduling")["large"]
    assert note == "1 nodes have room for 0 of 1 pods: 1 without enough cpu"
    assert outcome[0][1]["pods_bound"] == 5
    assert outcome[0][1]["overfilled_nodes"] == 0


@pytest.mark.ci
def test_gpus_that_a_node_gets_in_mid_run_are_counted(cluster: Cluster, tmp_path: Path) -> None:
    """Plug-ins of devices register after the kubelet."""
    create(cluster, node("a"), node("b"))
    with running(cluster, tmp_path, stop_when_idle=6.0) as outcome:
        for name, gpus in (("one", "1"), ("two", "2")):
            create(cluster, pod(name, more={"limits": {"nvidia.com/gpu": gpus}, "requests": {"cpu": "1"}}))
        wait_for(lambda: len(events(cluster, "FailedScheduling")) == 2, "the word of pods that fit nowhere")
        amounts = {"nvidia.com/gpu": "1"}
        body = {"status": {"allocatable": amounts, "capacity": amounts}}
        cluster.api("PATCH", "/api/v1/nodes/b/status", body, "strategic-merge-patch+json")
        wait_for(lambda: check(cluster) == {"one": "b"}, "the pod on the node with a GPU")
        create(cluster, node("c", {"nvidia.com/gpu": "4"}))
        wait_for(lambda: check(cluster).get("two") == "c", "the pod on a new node with GPUs")
    result, facts = outcome[0]
    assert facts["pods_bound"] == 2
    assert "2 nodes have room for 0 of 1 pods: 2 without enough GPUs" in events(cluster, "FailedScheduling")["two"]
    assert result.platform.node_gpus.tolist() == [0, 0, 4]


@pytest.mark.ci
def test_a_run_without_any_pod_ends_in_order(cluster: Cluster, tmp_path: Path) -> None:
    create(cluster, node("a"))
    result, facts = run(cluster, tmp_path, stop_when_idle=0.5)
    assert (facts["pods"], len(result.state), result.metrics["jobs_completed"]) == (0, 0, 0)


@pytest.mark.ci
def test_nodes_that_come_in_mid_run_get_pods(
    cluster: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    create(cluster, node("a", {"cpu": "2"}))
    with running(cluster, tmp_path, stop_when_idle=6.0, spare_nodes=2) as outcome:
        create(cluster, *(pod(name, "2") for name in ("first", "second")), pod("large", "9", duration=1.0))
        create(cluster, pod("picky", "1", duration=1.0, nodeSelector={"zone": "z"}))
        wait_for(lambda: "large" in events(cluster, "FailedScheduling"), "the word of a pod that fits nowhere")
        create(cluster, node("b", {"cpu": "2"}))
        wait_for(lambda: {"first", "second"} <= check(cluster).keys(), "a pod on the new node")
        create(cluster, node("c", {"cpu": "10", "memory": "3Gi"}, labels={"zone": "z"}))
        wait_for(lambda: check(cluster).get("large") == "c" == check(cluster).get("picky"), "pods on the larger node")
        create(cluster, node("d"))
        wait_for(lambda: "node d is new; it is used after a restart" in caplog.text, "the log")
    result, facts = outcome[0]
    assert facts["new_nodes"] == 2 and facts["pods_bound"] == 4 and not facts["overfilled_nodes"]
    # The results know the nodes that came, without the spare ones.
    assert result.platform.node_names == ("a", "b", "c")
    assert result.platform.node_cpu.tolist() == [2, 2, 10]
    written = RunDirectory(tmp_path / "run")
    written.start({"seed": 1}, platform_of([NodeView.of(node("a", {"cpu": "2"}))]), result.workload)
    written.finish(result)
    again = read(written.path)
    assert again.platform.node_names == ("a", "b", "c") and again.manifest["platform"]["nodes"] == 3
    rows_of_jobs = csv.DictReader((written.path / "jobs.csv").open())
    assert {"c:9", "c:1"} <= {row["allocated_resources"] for row in rows_of_jobs}
    assert 0 < again.metrics["utilization"] <= 1


@pytest.mark.ci
def test_nodes_that_another_scheduler_overfills_are_counted(
    cluster: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    create(cluster, node("a", {"cpu": "2"}), node("b", {"cpu": "2"}))
    with running(cluster, tmp_path, stop_when_idle=4.0) as outcome:
        create(cluster, pod("mine", "1500m"))
        wait_for(lambda: "mine" in check(cluster), "a pod of this scheduler")
        where = check(cluster)["mine"]
        # Another scheduler that has not seen it yet.
        create(cluster, pod("other", "1", scheduler="another"))
        body = {"metadata": {"name": "other"}, "target": {"kind": "Node", "name": where}}
        cluster.api("POST", f"/api/v1/namespaces/{cluster.namespace}/pods/other/binding", body)
        wait_for(lambda: f"node {where} is overfilled: its pods request 2.5 cpu of 2 cpu" in caplog.text, "the log")
    assert outcome[0][1]["overfilled_nodes"] == 1


@pytest.mark.ci
def test_a_cordoned_node_takes_pods_that_tolerate_it(
    cluster: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Source: Kubernetes, the scheduler plug-in NodeUnschedulable."""
    key = "node.kubernetes.io/unschedulable"
    tolerations = {
        "by-key": {"key": key, "operator": "Exists", "effect": "NoSchedule"},
        "all": {"operator": "Exists"},
        "another": {"key": key, "operator": "Exists", "effect": "NoExecute"},
    }
    create(cluster, node("a"), node("b", {"cpu": "500m"}))
    cluster.api("PATCH", "/api/v1/nodes/a", {"spec": {"unschedulable": True}}, "merge-patch+json")
    with running(cluster, tmp_path, stop_when_idle=6.0) as outcome:
        create(cluster, pod("none"), *(pod(name, tolerations=[each]) for name, each in tolerations.items()))
        wait_for(lambda: len(events(cluster, "FailedScheduling")) == 2, "the word of those that must wait")
        wait_for(lambda: len(check(cluster)) == 2, "the pods that tolerate it")
        assert check(cluster) == {"by-key": "a", "all": "a"}
        cluster.api("PATCH", "/api/v1/nodes/a", {"spec": {"unschedulable": False}}, "merge-patch+json")
        wait_for(lambda: len(check(cluster)) == 4, "the others")
    told = events(cluster, "FailedScheduling")
    assert told.keys() == {"none", "another"}
    assert all(f"1 excluded by the taint {key}:NoSchedule" in notes[0] for notes in told.values())
    assert caplog.text.count("node a is cordoned") == 2 and "node a is cordoned no more" in caplog.text
    assert outcome[0][1]["pods_bound"] == 4


@pytest.mark.ci
def test_deleted_pods_leave_the_queue_and_free_their_nodes(cluster: Cluster, tmp_path: Path) -> None:
    pods = f"/api/v1/namespaces/{cluster.namespace}/pods"
    create(cluster, node("a"), pod("runs", "4"), pod("waits", "3"), pod("ends", "4"))
    with running(cluster, tmp_path, stop_when_idle=3.0) as outcome:
        wait_for(lambda: check(cluster), "a bound pod")
        (first,) = check(cluster)
        waiting = [name for name in ("runs", "waits", "ends") if name != first]
        cluster.api("DELETE", f"{pods}/{waiting[0]}")
        time.sleep(0.5)
        cluster.api("DELETE", f"{pods}/{first}")
        wait_for(lambda: set(check(cluster)) == {waiting[1]}, "the pod that is left")
    result, _ = outcome[0]
    states = dict(zip(result.workload.job_id.tolist(), result.state.tolist(), strict=True))
    assert states[f"{cluster.namespace}/{first}"] == FinalState.COMPLETED_KILLED
    assert states[f"{cluster.namespace}/{waiting[0]}"] == FinalState.REJECTED
    assert states[f"{cluster.namespace}/{waiting[1]}"] == FinalState.RUNNING


@pytest.mark.ci
def test_one_of_two_schedulers_binds_and_the_other_takes_over(
    cluster: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    create(cluster, node("a"), pod("first"))
    with running(cluster, tmp_path / "1", stop_when_idle=4.0) as one:
        wait_for(lambda: check(cluster), "the first pod")
        # The namespace of a scheduler's own pods has no influence.
        with running(cluster, tmp_path / "2", stop_when_idle=2.0, namespace="default") as two:
            wait_for(lambda: "is held by" in caplog.text and "waiting for it" in caplog.text, "the loser's word")
            wait_for(lambda: one, "the end of the first")
            create(cluster, pod("second"))
            wait_for(lambda: len(check(cluster)) == 2, "the second pod")
    assert one[0][1]["pods_bound"] == two[0][1]["pods_bound"] == 1
    table = rows(tmp_path / "2" / "pods.csv")
    assert float(table["first"]["created"]) < 0 and table["first"]["attempts"] == "0"


@pytest.mark.ci
def test_a_run_that_ends_when_idle_does_not_wait_for_a_lease_for_ever(cluster: Cluster, tmp_path: Path) -> None:
    create(cluster, node("a"), pod("first"))
    with running(cluster, tmp_path / "1", stop_when_idle=None) as one:
        wait_for(lambda: check(cluster), "the first pod")
        with running(cluster, tmp_path / "2", stop_when_idle=1.0) as two:
            wait_for(lambda: two, "the word of the second")
        # One of another name schedules its own pods beside it.
        create(cluster, pod("second", scheduler="lab"))
        _, facts = run(cluster, tmp_path / "3", stop_when_idle=1.0, scheduler_name="lab")
        spec = {"holderIdentity": "thief", "leaseTransitions": 9}
        cluster.api("PATCH", LEASE, {"spec": spec}, "merge-patch+json")
    assert facts["pods_bound"] == 1 and isinstance(one[0], BackendError)
    assert isinstance(two[0], BackendError)
    assert re.fullmatch(
        r"lease kube-system/hdsim-hdsim: expected it to be free within 6 s, as the run ends when it is idle "
        r"\(backend.stop_when_idle=1\), but \S+ holds it; with another backend.scheduler_name a run schedules its own "
        r"pods beside that one",
        str(two[0]),
    )


@pytest.mark.ci
def test_a_bound_pod_that_is_resized_takes_what_it_has_then(cluster: Cluster, tmp_path: Path) -> None:
    create(cluster, node("a", {"cpu": "8"}), pod("grown", "1"), pod("shrunk", "6"))
    pods = f"/api/v1/namespaces/{cluster.namespace}/pods"

    def resize(name: str, cpu: str) -> None:
        resources = {"requests": {"cpu": cpu, "memory": "512Mi"}}
        # The API server allows it where the kubelet tells the resources of running containers.
        known = {"status": {"containerStatuses": [{"name": "main", "resources": resources}]}}
        cluster.api("PATCH", f"{pods}/{name}/status", known, "strategic-merge-patch+json")
        body = {"spec": {"containers": [{"name": "main", "resources": resources}]}}
        cluster.api("PATCH", f"{pods}/{name}/resize", body, "strategic-merge-patch+json")

    with running(cluster, tmp_path, stop_when_idle=6.0) as outcome:
        # Kwok writes the states of containers when it starts them.
        wait_for(lambda: [each["status"]["phase"] for each in cluster.pods()] == ["Running"] * 2, "the first two pods")
        resize("shrunk", "1")
        resize("grown", "6")
        create(cluster, pod("large", "2"))
        create(cluster, pod("small", "1"))
        wait_for(lambda: "small" in check(cluster), "the pod that fits")
        wait_for(lambda: "large" in events(cluster, "FailedScheduling"), "the word of the one that does not")
        assert "large" not in check(cluster)
        resize("grown", "3")
        wait_for(lambda: "large" in check(cluster), "the pod that fits now")
    assert outcome[0][1]["pods_bound"] == 4


@pytest.mark.ci
def test_a_waiting_pod_that_gets_a_toleration_is_decided_on_anew(cluster: Cluster, tmp_path: Path) -> None:
    taint = {"key": "reserved", "value": "yes", "effect": "NoSchedule"}
    create(cluster, node("a", taints=[taint]), pod("late"))
    with running(cluster, tmp_path, stop_when_idle=6.0) as outcome:
        wait_for(lambda: "late" in events(cluster, "FailedScheduling"), "the word of the pod")
        path = f"/api/v1/namespaces/{cluster.namespace}/pods/late"
        found = cluster.api("GET", path)
        found["spec"].setdefault("tolerations", []).append({"key": "reserved", "operator": "Exists"})
        cluster.api("PUT", path, found)
        wait_for(lambda: "late" in check(cluster), "the pod")
    assert outcome[0][1]["pods_bound"] == 1


@pytest.mark.ci
def test_a_pod_with_gates_waits_until_they_are_removed(cluster: Cluster, tmp_path: Path) -> None:
    """Source: Kubernetes, "Pod Scheduling Readiness"."""
    create(cluster, node("a"), pod("gated", schedulingGates=[{"name": "example.com/quota"}]), pod("free"))
    with running(cluster, tmp_path, stop_when_idle=6.0) as outcome:
        wait_for(lambda: "free" in check(cluster), "the pod without gates")
        assert "gated" not in check(cluster)
        path = f"/api/v1/namespaces/{cluster.namespace}/pods/gated"
        cluster.api("PATCH", path, {"spec": {"schedulingGates": None}}, "merge-patch+json")
        wait_for(lambda: "gated" in check(cluster), "the pod that had gates")
    assert outcome[0][1]["pods_bound"] == 2
    assert events(cluster, "FailedScheduling") == {}


@pytest.mark.ci
def test_deleted_pods_are_forgotten(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler runs for months; all that stays of a deleted pod is its row of pods.csv."""
    sessions: list[Wall] = []
    start = Wall.start
    monkeypatch.setattr(Wall, "start", lambda session: (sessions.append(session), start(session)))
    gang = {"scheduling.x-k8s.io/pod-group": "g"}
    members = [pod(f"gang-{i}", duration=0.2, notes={"hdsim.io/pod-group-size": "2"}) for i in range(2)]
    for each in members:
        each["metadata"]["labels"] = gang
    taint = {"key": "reserved", "value": "yes", "effect": "NoSchedule"}
    create(cluster, node("a"), node("b", taints=[taint]), *members, pod("ended", duration=0.2), pod("stays"))
    create(cluster, pod("large", "9"), pod("killed", "500m"), pod("asks", "4", nodeSelector={"disk": "none"}))
    pods = f"/api/v1/namespaces/{cluster.namespace}/pods"
    with running(cluster, tmp_path, stop_when_idle=8.0) as outcome:
        wait_for(lambda: {"gang-0", "gang-1", "ended", "stays", "killed"} <= check(cluster).keys(), "the pods")
        wait_for(lambda: {"large", "asks"} <= events(cluster, "FailedScheduling").keys(), "those that fit nowhere")
        jobs = sessions[0].jobs
        # A pod that is decided on anew, as node b has another label, has two jobs one after the other.
        cluster.api("PATCH", "/api/v1/nodes/b", {"metadata": {"labels": {"disk": "none"}}}, "merge-patch+json")
        wait_for(
            lambda: sum(each["status"]["phase"] == "Succeeded" for each in cluster.pods()) == 3, "the ends of three"
        )
        for name in ("gang-0", "gang-1", "ended", "large", "killed", "asks"):
            cluster.api("DELETE", f"{pods}/{name}?gracePeriodSeconds=0")
        wait_for(lambda: len(jobs.members) == 1, "the deletions")
        assert [each.pod.name for each in jobs.members.values()] == ["stays"]
        assert [[each.pod.name for each in known] for known in jobs.of_job.values()] == [["stays"]]
        assert (jobs._refused, jobs.gangs._bound) == ({}, {})
        create(cluster, pod("later"))
        wait_for(lambda: "later" in check(cluster), "a pod after them")
    result, facts = outcome[0]
    assert (facts["pods"], facts["pods_bound"]) == (8, 6)
    found = rows(tmp_path / "pods.csv")
    assert found.keys() == {"gang-0", "gang-1", "ended", "stays", "large", "killed", "asks", "later"}
    assert all(found[name]["node"] == "a" and found[name]["finished"] for name in ("gang-0", "ended", "killed"))
    assert found["large"]["node"] == ""
    assert len(result.state) >= 7


@pytest.mark.ci
def test_a_leader_that_loses_its_lease_binds_no_more(cluster: Cluster, tmp_path: Path) -> None:
    create(cluster, node("a"), pod("first"))
    with running(cluster, tmp_path, stop_when_idle=None) as outcome:
        wait_for(lambda: check(cluster), "the first pod")
        spec = {"holderIdentity": "thief", "leaseTransitions": 9}
        cluster.api("PATCH", LEASE, {"spec": spec}, "merge-patch+json")
    assert isinstance(outcome[0], BackendError)
    assert "thief holds it" in str(outcome[0])


@pytest.mark.nightly
def test_a_trace_by_the_wall_clock(cluster: Cluster, tmp_path: Path) -> None:
    jobs = hdsim.Workload.from_columns(
        submission_time=[0, 10, 20, 30, 40, 50],
        runtime=[100, 50, 100, 30, 60, 10],
        requested_cores=[1, 2, 4, 1, 1, 9],
        memory=100,
        priority=[0, 0, 0, 5, 0, 0],
        constraints=[None, None, None, Constraints(selector=(("disk", "ssd"),)), None, None],
    )
    create(cluster, node("a"), node("b", labels={"disk": "ssd"}))
    for name, agent in (("hdsim", GREEDY), ("kube", KubeScheduler())):
        backend = make(cluster, time_scale=20.0)
        platform = backend.read_platform()
        result, facts = backend.run(platform, jobs, agent, tmp_path / name)
        expected = hdsim.simulate(platform, jobs, agent=GREEDY)
        check(cluster)
        assert result.state.tolist() == expected.state.tolist()
        done = expected.state == FinalState.COMPLETED_SUCCESSFULLY
        # Kwok acts within a second of the wall clock, on a machine under load within ten.
        late = (result.finish_time - expected.finish_time)[done]
        assert (late > -5).all() and (late < 10 * 20).all()
        assert facts["pods_bound"] == (9 if name == "hdsim" else 0)
        again = make(cluster)
        with pytest.raises(ConfigError, match="expected no pods of an earlier run in the namespace"):
            again.run(platform, jobs, agent, tmp_path / "again")
        taken = min(found["metadata"]["name"] for found in cluster.pods())
        cluster.api("DELETE", f"/api/v1/namespaces/{cluster.namespace}/pods?gracePeriodSeconds=0")
        wait_for(lambda: not cluster.pods(), "an empty namespace")
    # A pod of others that has the name of one of the trace's.
    create(cluster, pod(taken, scheduler="another"))
    with pytest.raises(BackendError, match=f"pod {cluster.namespace}/{taken} is there already"):
        make(cluster).run(platform, jobs, GREEDY, tmp_path / "taken")


@pytest.mark.ci
def test_a_time_scale_that_makes_pods_late_is_told(
    cluster: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # 50 ms of the wall clock.
    jobs = hdsim.Workload.from_columns(submission_time=[0, 0], runtime=10, requested_cores=1)
    create(cluster, node("a"))
    backend = make(cluster, time_scale=200.0)
    result, _ = backend.run(backend.read_platform(), jobs, GREEDY, tmp_path)
    assert (result.finish_time > 10.5).all()
    (told,) = [each.message for each in caplog.records if "backend.time_scale" in each.message]
    share = re.fullmatch(r"from decision to end pods took (\d+) % longer than their run times, .*", told)
    assert share is not None
    with (tmp_path / "pods.csv").open(newline="") as file:
        held = [float(row["finished"]) - float(row["decided"]) for row in csv.DictReader(file)]
    assert int(share[1]) == pytest.approx(100 * (sum(held) / 20 - 1), abs=1)


@pytest.mark.ci
def test_metrics_and_health(cluster: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from urllib.request import urlopen

    create(cluster, node("a"), *(pod(f"pod-{i}") for i in range(3)))
    with running(cluster, tmp_path, stop_when_idle=4.0, metrics_port=0):
        wait_for(lambda: len(check(cluster)) == 3, "the pods")
        address = next(word for word in caplog.text.split() if word.startswith("http://127.0.0.1:"))
        time.sleep(0.5)
        text = urlopen(address).read().decode()
        for page in ("healthz", "readyz"):
            assert urlopen(address.replace("metrics", page)).read() == b"ok"
    metrics = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert float(metrics["hdsim_bindings_total"]) == float(metrics["hdsim_decision_latency_seconds_count"]) == 3
    assert float(metrics['hdsim_api_calls_total{resource="pods/binding",verb="create"}']) == 3
    assert float(metrics["hdsim_leader"]) == 1


def test_a_platform_has_to_be_that_of_the_cluster(cluster: Cluster, tmp_path: Path) -> None:
    create(cluster, node("a"))
    backend = make(cluster)
    platform = hdsim.Platform.homogeneous(nodes=2, cores_per_node=4, gflops_per_core=1.0)
    with pytest.raises(ConfigError, match="homogeneous-0 is missing on the API server"):
        backend.run(platform, backend.read_workload(platform), GREEDY, tmp_path)


def test_settings_that_cannot_be_used(tmp_path: Path) -> None:
    for settings, message in (
        ({"clok": "wall"}, r"backend\.clok: unknown key \(did you mean 'clock'\?\)"),
        ({"clock": "sun"}, "backend.clock: expected wall or virtual, got 'sun'"),
        (
            {"clock": "virtual", "time_scale": 20},
            "backend.time_scale: expected 1 with backend.clock=virtual, .* got 20",
        ),
        ({"leader_election": {"lease": 5}}, "expected retry < renew < lease, got 2, 10, 5 s"),
    ):
        with pytest.raises(ConfigError, match=message):
            Kwok(**settings)
    missing = tmp_path / "missing"
    with pytest.raises(ConfigError, match=f"expected a kubeconfig, there is no file {missing}"):
        Kwok(kubeconfig=str(missing)).read_platform()
    bad = tmp_path / "bad"
    bad.write_text("users: [{name: a, user: {token: secret-token}}]\ncontexts: 3\n")
    with pytest.raises(ConfigError) as caught:
        Kwok(kubeconfig=str(bad)).read_platform()
    assert "expected a kubeconfig with a cluster and a user" in str(caught.value)
    assert "secret-token" not in str(caught.value)
    silent = tmp_path / "silent"
    silent.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{name: c, cluster: {server: 'http://127.0.0.1:9'}}]\n"
        "users: [{name: u, user: {token: secret-token}}]\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n"
    )
    backend = Kwok(kubeconfig=str(silent))
    with pytest.raises(
        BackendError, match=r"http://127\.0\.0\.1:9: create selfsubjectaccessreviews: no connection: Connect"
    ) as lost:
        backend.read_platform()
    backend.close()
    assert "secret-token" not in str(lost.value)


@pytest.mark.ci
def test_what_a_watch_has_missed_is_found_by_a_list(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    create(cluster, pod("stays"), pod("goes"))
    news: queue.SimpleQueue[Any] = queue.SimpleQueue()
    pods = f"/api/v1/namespaces/{cluster.namespace}/pods"
    with Connection(str(cluster.kubeconfig)) as connection:
        cache = Cache(connection, "/api/v1/pods", PodView.of, news.put)
        connection.call(cache.start())
        assert {new.name for _, new in news.get(timeout=10)} >= {"stays", "goes"}
        # The watch ends, and what it missed is out of the history, which begins with the start of the API server.
        connection.soon(cache._task.cancel)
        cluster.api("DELETE", f"{pods}/goes")
        create(cluster, pod("comes"))
        wait_for(lambda: {each["metadata"]["name"] for each in cluster.pods()} == {"stays", "comes"}, "the pods")
        cluster.restart("kube-apiserver")
        connection.submit(cache._keep())
        changes: list[Any] = []
        wait_for(lambda: changes.extend([] if news.empty() else news.get()) or len(changes) >= 2, "the differences")
        assert {(old and old.name, new and new.name) for old, new in changes} == {("goes", None), (None, "comes")}
        assert "listing again" in caplog.text and cache.relists == 1
        create(cluster, pod("later"))
        assert [new.name for _, new in news.get(timeout=10)] == ["later"]


@pytest.mark.ci
def test_a_binding_that_is_refused_is_tried_again(cluster: Cluster, tmp_path: Path) -> None:
    """A pod that another one binds at the same moment counts as running there, and its resources are held once."""
    create(cluster, node("a"), node("b"), pod("taken", "3"))
    backend = make(cluster)
    platform = backend.read_platform()

    agent = make_agent({"job_policy": "first", "core_policy": "least_allocated"})
    decide = agent.decide
    pods = f"/api/v1/namespaces/{cluster.namespace}/pods"

    def overtaken(state: Any) -> None:
        decide(state)
        if state.started and not check(cluster):
            target = {"apiVersion": "v1", "kind": "Node", "name": "b"}
            cluster.api("POST", f"{pods}/taken/binding", {"metadata": {"name": "taken"}, "target": target})
            create(cluster, pod("next", "3"))

    agent.decide = overtaken  # type: ignore[method-assign]
    result, facts = backend.run(platform, backend.read_workload(platform), agent, tmp_path, check=True)
    assert check(cluster) == {"taken": "b", "next": "a"}
    assert facts["pods_bound"] == 1
    assert len(result.failed_starts) == 1 and "another node" in result.failed_starts[0].reason
