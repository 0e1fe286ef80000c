"""Control planes of Kwok: start, end, what they listen on, how fake pods behave."""

from __future__ import annotations

from typing import Any

import psutil
import pytest
from kube import Cluster, wait_for

pytestmark = pytest.mark.requires("kube")


def node(name: str, cpu: str = "8") -> dict[str, Any]:
    amounts = {"cpu": cpu, "memory": "16Gi", "pods": "110"}
    metadata = {"name": name, "annotations": {"kwok.x-k8s.io/node": "fake"}}
    return {"metadata": metadata, "status": {"allocatable": amounts, "capacity": amounts}}


def pod(name: str, node: str, **annotations: str) -> dict[str, Any]:
    metadata = {"name": name, "annotations": {f"hdsim.io/{key}": value for key, value in annotations.items()}}
    return {"metadata": metadata, "spec": {"nodeName": node, "containers": [{"name": "main", "image": "none"}]}}


def test_pods_run_as_their_annotations_say(cluster: Cluster) -> None:
    cluster.api("POST", "/api/v1/nodes", node("a"))
    pods = f"/api/v1/namespaces/{cluster.namespace}/pods"
    for body in (pod("timed", "a", duration="1.5s"), pod("endless", "a"), pod("simulated", "a", clock="virtual")):
        cluster.api("POST", pods, body)

    def phases() -> dict[str, str]:
        return {pod["metadata"]["name"]: pod["status"]["phase"] for pod in cluster.pods()}

    wait_for(lambda: phases()["timed"] == "Succeeded", "the end of the pod with a duration")
    assert phases() == {"timed": "Succeeded", "endless": "Running", "simulated": "Pending"}
    # hdsim writes the status of pods in simulated time.
    cluster.api("PATCH", f"{pods}/simulated/status", {"status": {"phase": "Succeeded"}}, "merge-patch+json")
    assert phases()["simulated"] == "Succeeded"


def test_all_sockets_are_on_the_loopback_interface(cluster: Cluster) -> None:
    components = cluster.plane.components()
    assert {component.name for component in components} == {
        "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok-controller",
    }  # fmt: skip
    for component in components:
        connections = psutil.Process(component.pid).net_connections("inet")
        listening = {(c.laddr.ip, c.laddr.port) for c in connections if c.status == psutil.CONN_LISTEN}
        assert listening == {("127.0.0.1", port) for port in component.ports}
        assert not [c for c in connections if not c.raddr and c.status != psutil.CONN_LISTEN], "a UDP socket"
