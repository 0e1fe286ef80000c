"""Use of the nodes of a cluster by its pods."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from hdsim.cluster.requests import Amounts
from hdsim.errors import BackendError
from hdsim.kubernetes.cache import Cache
from hdsim.kubernetes.connection import Connection
from hdsim.kubernetes.objects import NodeView, PodView
from hdsim.util.text import natural

#: Orders of nodes: the fullest first, or by name.
ORDERS = ("cpu", "memory", "pods", "gpus", "name")
_CONTROL_PLANE = "node-role.kubernetes.io/control-plane"


@dataclass(frozen=True, slots=True)
class WatchedPod:
    """A pod, and the message of its condition PodScheduled, why it has no node; empty without one."""

    pod: PodView
    reason: str

    @property
    def key(self) -> str:
        """Namespace and name."""
        return self.pod.key

    @property
    def uid(self) -> str:
        """Unique id."""
        return self.pod.uid

    @property
    def version(self) -> str:
        """Resource version."""
        return self.pod.version

    @property
    def state(self) -> str:
        """Phase; ``Starting`` between binding and running, ``Terminating`` during deletion."""
        if self.pod.deleted:
            return "Terminating"
        return "Starting" if self.pod.node and self.pod.phase == "Pending" else self.pod.phase

    @classmethod
    def of(cls, pod: Mapping[str, Any]) -> WatchedPod:
        """Reads a Pod object."""
        conditions = pod.get("status", {}).get("conditions") or ()
        reasons = [each.get("message", "") for each in conditions if each["type"] == "PodScheduled"]
        return cls(PodView.of(pod), reasons[0] if reasons else "")


class NodeUse(NamedTuple):
    """A node and what its pods request."""

    node: NodeView
    used: Amounts

    @property
    def state(self) -> str:
        """``Ready``, ``NotReady`` or ``Cordoned``; ``control plane`` for one that is ready."""
        if not self.node.ready:
            return "NotReady"
        if self.node.unschedulable:
            return "Cordoned"
        return "control plane" if _CONTROL_PLANE in self.node.labels else "Ready"

    def share(self, resource: str) -> float:
        """Returns the requested share of a resource, 0 of one that the node does not have."""
        there = float(getattr(self.node.allocatable, resource))
        return float(getattr(self.used, resource)) / there if there else 0.0


@dataclass(frozen=True)
class Snapshot:
    """A cluster at a time in seconds since 1970."""

    time: float
    nodes: list[NodeUse]
    pods: list[WatchedPod]  # its pods: those without a node first, then the youngest ones
    states: dict[str, int]  # number of pods in each state

    def total(self) -> tuple[Amounts, Amounts]:
        """Returns the requested and the allocatable amounts of all nodes without those of control planes."""
        workers = [use for use in self.nodes if use.state != "control plane"]
        used, there = ([use.used for use in workers], [use.node.allocatable for use in workers])
        return _sum(used), _sum(there)


class Top:
    """Watches the nodes, in one of :data:`ORDERS`, and the pods of a cluster or of one namespace."""

    def __init__(self, connection: Connection, namespace: str | None, order: str) -> None:
        self._connection, self._namespace, self._order = connection, namespace, order
        self._lost: BackendError | None = None
        self._nodes = Cache(connection, "/api/v1/nodes", NodeView.of, self._note)
        self._pods = Cache(connection, "/api/v1/pods", WatchedPod.of, self._note)
        connection.call(self._nodes.start())
        connection.call(self._pods.start())

    def snapshot(self, reasons: int) -> Snapshot:
        """Returns the present state.

        Of pods without a node and a condition, the latest FailedScheduling event of the first `reasons` is read.

        Raises:
            BackendError: A watch is lost.
        """
        if self._lost is not None:
            raise self._lost
        taken = self._connection.call(self._take())
        for place, each in enumerate(taken.pods[:reasons]):
            if each.pod.waits and not each.reason:
                taken.pods[place] = replace(each, reason=self._event(each.pod))
        return taken

    async def _take(self) -> Snapshot:
        used = dict.fromkeys(self._nodes.objects, Amounts())
        shown = []
        for each in self._pods.objects.values():
            pod = each.pod
            if pod.holds and pod.node in used:
                used[pod.node] = _sum([used[pod.node], pod.requests])
            if self._namespace in (None, pod.namespace):
                shown.append(each)
        nodes = [NodeUse(node, used[name]) for name, node in self._nodes.objects.items()]
        nodes.sort(key=lambda use: natural(use.node.name))
        if self._order != "name":
            nodes.sort(key=lambda use: -use.share(self._order))
        shown.sort(key=lambda each: (not each.pod.waits, -each.pod.created, each.key))
        return Snapshot(time.time(), nodes, shown, dict(Counter(each.state for each in shown)))

    def _event(self, pod: PodView) -> str:
        """Message of the latest event of a pod that could not be scheduled."""
        path = f"/api/v1/namespaces/{pod.namespace}/events"
        query = f"fieldSelector=involvedObject.name%3D{pod.name},reason%3DFailedScheduling"
        events = self._connection.get(f"{path}?{query}")["items"]
        events.sort(key=lambda event: int(event["metadata"]["resourceVersion"]))
        return str(events[-1].get("message", "")) if events else ""

    def _note(self, news: object) -> None:
        if isinstance(news, BackendError):
            self._lost = news


def _sum(parts: list[Amounts]) -> Amounts:
    return Amounts(*(round(sum(values), 3) for values in zip(*parts, strict=True))) if parts else Amounts()
