"""Pods of hdsim and equal ones of kube-scheduler on one API server: both bind them, or neither does."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from kube import Cluster, wait_for
from test_kwok_backend import create, events, node, pod, running
from tiers import nightly

pytestmark = pytest.mark.requires("kube")

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
HOSTNAME = "kubernetes.io/hostname"
NODES = {
    "a": {"labels": {"zone": "1"}},
    "b": {"labels": {"zone": "1"}, "taints": [{"key": "ded", "value": "x", "effect": "NoSchedule"}]},
    "c": {"labels": {"zone": "2"}},
}


def requesting(cpu: str) -> dict[str, Any]:
    return {"requests": {"cpu": cpu, "memory": "1Mi"}}


def post(cluster: Cluster, body: dict[str, Any], namespace: str | None = None) -> None:
    cluster.api("POST", f"/api/v1/namespaces/{namespace or cluster.namespace}/pods", body)


def decided(cluster: Cluster, *namespaces: str) -> dict[str, str]:
    """Waits until both schedulers have decided on all their pods; returns the nodes of those that are bound."""

    def look() -> dict[str, str] | None:
        nodes = {}
        for found in (each for namespace in namespaces for each in cluster.pods(namespace)):
            told = {each["type"]: each["status"] for each in found["status"].get("conditions", ())}
            if where := found["spec"].get("nodeName"):
                nodes[found["metadata"]["name"]] = where
            elif found["spec"]["schedulerName"] in ("hdsim", "default-scheduler") and "PodScheduled" not in told:
                return None
        return {"": "", **nodes}

    return dict(wait_for(look, "the decisions of both schedulers"))


def random_term(rng: random.Random, namespaces: list[str]) -> dict[str, Any]:
    """A term of an anti-affinity to pods."""
    selector: dict[str, Any] = {}
    if rng.random() < 0.7:
        selector["matchLabels"] = {"app": rng.choice("xy")}
    if rng.random() < 0.5:
        operator = rng.choice(["In", "NotIn", "Exists", "DoesNotExist"])
        values = {"values": ["u", "v"]} if operator in ("In", "NotIn") else {}
        selector["matchExpressions"] = [{"key": "tier", "operator": operator, **values}]
    term: dict[str, Any] = {"topologyKey": rng.choice([HOSTNAME, HOSTNAME, "zone", "none"])}
    # Without a selector no pods are meant, with an empty one all.
    term |= {"labelSelector": selector} if rng.random() < 0.9 else {}
    scope = rng.random()
    if scope < 0.3:
        return term | {"namespaces": [rng.choice(namespaces)]}
    return term | ({"namespaceSelector": {}} if scope < 0.5 else {})


@pytest.mark.ci
@pytest.mark.parametrize("seed", [0, *nightly(1, 3, 4, 5)])
def test_anti_affinity_of_pods_that_are_there_is_that_of_kube_scheduler(
    cluster: Cluster, tmp_path: Path, seed: int
) -> None:
    """Source: Kubernetes, "Inter-pod affinity and anti-affinity": it holds for pods that come later as well."""
    rng = random.Random(seed)
    other = f"{cluster.namespace}-other"
    cluster.make_namespace(other)
    namespaces = [cluster.namespace, other]
    create(cluster, *(node(name, {"pods": "100", "memory": "64Gi"}, **more) for name, more in NODES.items()))  # type: ignore[arg-type]
    for name in NODES:
        label = {"metadata": {"labels": {HOSTNAME: name}}}
        cluster.api("PATCH", f"/api/v1/nodes/{name}", label, "merge-patch+json")
    for index in range(4):
        weighted = {"weight": 100, "podAffinityTerm": random_term(rng, namespaces)}
        required = [random_term(rng, namespaces) for _ in range(rng.randint(1, 2))]
        anti = {PREFERRED: [weighted]} if index == 0 else {REQUIRED: required, PREFERRED: [weighted]}
        body = pod(f"there-{index}", "1m", scheduler="none", nodeName=rng.choice("abc"))
        post(cluster, body | {"spec": {**body["spec"], "affinity": {"podAntiAffinity": anti}}}, rng.choice(namespaces))
    with running(cluster, tmp_path, stop_when_idle=5.0):
        for index in range(12):
            where, labels = rng.choice(namespaces), {}
            if rng.random() < 0.7:
                labels["app"] = rng.choice("xyz")
            if rng.random() < 0.5:
                labels["tier"] = rng.choice("uw")
            wish = {"podAntiAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": random_term(rng, namespaces)}]}}
            for scheduler in ("hdsim", "default-scheduler"):
                for place in NODES:
                    spec = {"affinity": wish, "tolerations": [{"key": "ded", "operator": "Exists"}] * (index % 2)}
                    spec["nodeSelector"] = {HOSTNAME: place}
                    body = pod(f"{scheduler}-{index}-{place}", "1m", scheduler=scheduler, **spec)
                    post(cluster, body | {"metadata": {**body["metadata"], "labels": labels}}, where)
        bound = decided(cluster, *namespaces)
    ours = {name.removeprefix("hdsim-") for name in bound if name.startswith("hdsim-")}
    theirs = {name.removeprefix("default-scheduler-") for name in bound if name.startswith("default-scheduler-")}
    assert ours == theirs
    assert 0 < len(theirs) < 12 * len(NODES)


@pytest.mark.ci
def test_a_pod_follows_the_anti_affinity_of_others_and_its_own_labels(cluster: Cluster, tmp_path: Path) -> None:
    term = {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "zone"}
    guard = pod("guard", scheduler="none", nodeName="a", affinity={"podAntiAffinity": {REQUIRED: [term]}})
    pods = f"/api/v1/namespaces/{cluster.namespace}/pods"
    create(cluster, node("a", labels={"zone": "1"}), node("b", labels={"zone": "2"}), guard)
    with running(cluster, tmp_path, stop_when_idle=6.0) as outcome:
        for name in ("moved", "renamed"):
            body = pod(name, nodeSelector={"zone": "1"})
            post(cluster, body | {"metadata": {**body["metadata"], "labels": {"app": "db"}}})
            wait_for(lambda name=name: name in events(cluster, "FailedScheduling"), "the word of the pod")
        bound = decided(cluster, cluster.namespace)
        assert not {"moved", "renamed"} & bound.keys()
        cluster.api("PATCH", f"{pods}/renamed", {"metadata": {"labels": {"app": "web"}}}, "merge-patch+json")
        wait_for(lambda: "renamed" in decided(cluster, cluster.namespace), "the pod that it is against no more")
        # The topology of the node changes.
        cluster.api("PATCH", "/api/v1/nodes/b", {"metadata": {"labels": {"zone": "1"}}}, "merge-patch+json")
        cluster.api("PATCH", "/api/v1/nodes/a", {"metadata": {"labels": {"zone": "3"}}}, "merge-patch+json")
        wait_for(lambda: decided(cluster, cluster.namespace).get("moved") == "b", "the node of another zone")
    assert outcome[0][1]["pods_bound"] == 2
    reason = f"; the podAntiAffinity of {cluster.namespace}/guard excludes nodes with zone=1"
    assert any(told.endswith(reason) for told in events(cluster, "FailedScheduling")["moved"])


@pytest.mark.ci
@pytest.mark.parametrize(
    ("asked", "held", "infeasible", "fits"),
    [
        ("7", "1", False, False),  # a node that has not yet given more
        ("1", "7", False, False),  # a node that has not yet taken less
        ("7", "1", True, True),  # a node that never gives more
        ("2", "2", False, True),
    ],
)
def test_a_resize_that_is_not_carried_out_counts_as_for_kube_scheduler(
    cluster: Cluster, tmp_path: Path, asked: str, held: str, infeasible: bool, fits: bool
) -> None:
    """Source: Kubernetes, "Resize CPU and Memory Resources assigned to Containers": scheduling during a resize."""
    create(cluster, node("a", {"cpu": "8"}), pod("resized", held, scheduler="none", nodeName="a"))
    pods = f"/api/v1/namespaces/{cluster.namespace}/pods"
    has = requesting(held)
    conditions = [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}] if infeasible else []
    known = {"name": "main", "resources": has, "allocatedResources": has["requests"]}
    wait_for(lambda: cluster.pods()[0]["status"].get("phase") == "Running", "the pod")
    for path, body in (
        ("status", {"status": {"containerStatuses": [known]}}),
        ("resize", {"spec": {"containers": [{"name": "main", "resources": requesting(asked)}]}}),
        ("status", {"status": {"conditions": conditions}}),
    ):
        cluster.api("PATCH", f"{pods}/resized/{path}", body, "strategic-merge-patch+json")
    with running(cluster, tmp_path, stop_when_idle=3.0):
        for scheduler in ("hdsim", "default-scheduler"):
            create(cluster, pod(f"of-{scheduler}", "2", scheduler=scheduler))
        bound = decided(cluster, cluster.namespace)
    assert ("of-hdsim" in bound, "of-default-scheduler" in bound) == (fits, fits), json.dumps(bound)
