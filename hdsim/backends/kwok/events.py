"""Kubernetes Events for pods that were bound or cannot be."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from hdsim.backends.kwok.members import Member, PodPhase
from hdsim.backends.kwok.sender import Request, Sender
from hdsim.kubernetes.objects import PodView

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster

_CONTROLLER = "hdsim"
#: Most pods that a note lists whose anti-affinity excludes nodes.
_LISTED = 5
#: Characters of a note that the API server accepts.
_LONGEST_NOTE = 1000


class Notices:
    """Events about pods that are not scheduled, and their conditions, one for each change of the reason.

    They are silent where another scheduler is responsible for the pods.
    """

    def __init__(self, cluster: Cluster, sender: Sender, identity: str, *, silent: bool) -> None:
        self._cluster, self._sender, self._identity, self._silent = cluster, sender, identity, silent

    def scheduled(self, pod: PodView, node: str) -> None:
        """Tells that a pod was bound."""
        note = f"Successfully assigned {pod.key} to {node}"
        self._sender.send([_event(pod, "Scheduled", note, self._identity)])

    def tell(self, members: Iterable[Member], text: str) -> None:
        """Tells why pods that wait are not scheduled."""
        if self._silent:
            return
        # Numbers of nodes change all the time.
        reason = "".join(letter for letter in text if not letter.isdigit())
        fresh = [member for member in members if member.phase is PodPhase.WAITING and member.told != reason]
        requests = []
        for member in fresh:
            requests.append(_event(member.pod, "FailedScheduling", text, self._identity))
            requests.append(_condition(member.pod, text, new=not member.told))
            member.told = reason
        self._sender.send(requests)

    def tell_waiting(self, pods: Mapping[int, Sequence[Member]]) -> None:
        """Tells the pods of all queued jobs; `pods` are those of each job."""
        reasons: dict[int, str] = {}
        for job in self._cluster.queue:
            kind = self._cluster.requests.kind(job)
            if kind not in reasons:
                reasons[kind] = self.reason(job, pods[job])
            self.tell(pods[job], reasons[kind])

    def reason(self, job: int, members: Sequence[Member], *, ever: bool = False) -> str:
        """Returns why a job does not start now, or with `ever` on no empty nodes either."""
        cluster = self._cluster
        if not ever and cluster.fits(job):
            return "the scheduler lets it wait"
        kept = [
            f"; the podAntiAffinity of {pod} excludes nodes with {key}={value}"
            for (key, value), pod in sorted(members[0].kept_off.items())
        ]
        more = [f"; and {len(kept) - _LISTED} more"] if len(kept) > _LISTED else []
        return "".join([cluster.cores.explain(job, empty=ever), *kept[:_LISTED], *more])


def _condition(pod: PodView, message: str, *, new: bool) -> Request:
    """Returns the request that sets the condition PodScheduled=False of a pod.

    The version of the pod is part of it, so that a pod that has been bound or changed meanwhile keeps its conditions.
    """
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    if new:
        condition["lastTransitionTime"] = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    body = {"metadata": {"uid": pod.uid, "resourceVersion": pod.version}, "status": {"conditions": [condition]}}
    path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/status"
    return Request("PATCH", path, body, content_type="application/strategic-merge-patch+json")


def _event(pod: PodView, reason: str, note: str, identity: str) -> Request:
    """Returns the request that creates an Event (events.k8s.io/v1) about a pod."""
    body: dict[str, Any] = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": f"{pod.name[:230]}.{secrets.token_hex(8)}", "namespace": pod.namespace},
        "eventTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "type": "Normal" if reason == "Scheduled" else "Warning",
        "reason": reason,
        "action": "Binding" if reason == "Scheduled" else "Scheduling",
        "note": note[:_LONGEST_NOTE],
        "reportingController": _CONTROLLER,
        "reportingInstance": identity,
        "regarding": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": pod.namespace,
            "name": pod.name,
            "uid": pod.uid,
        },
    }
    return Request("POST", f"/apis/events.k8s.io/v1/namespaces/{pod.namespace}/events", body)
