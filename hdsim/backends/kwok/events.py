"""Kubernetes Events for pods that were bound or cannot be."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from hdsim.backends.kwok.members import Member, Phase
from hdsim.backends.kwok.sender import Request, Sender
from hdsim.kubernetes.objects import GPU, PodView

if TYPE_CHECKING:
    from hdsim.cluster.requests import Chunk, FreeNodes
    from hdsim.cluster.state import Cluster

_CONTROLLER = "hdsim"
#: Characters of a note that the API server accepts.
_LONGEST_NOTE = 1000


class Notices:
    """Events about pods that are not scheduled, one for each change of the reason.

    Args:
        cluster: The cluster.
        sender: Sends them.
        identity: Name of this instance.
        silent: Another scheduler is responsible for the pods.
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
        fresh = [member for member in members if member.phase is Phase.WAITING and member.told != reason]
        for member in fresh:
            member.told = reason
        self._sender.send([_event(member.pod, "FailedScheduling", text, self._identity) for member in fresh])

    def tell_waiting(self, pods: Mapping[int, Sequence[Member]]) -> None:
        """Tells the pods of all queued jobs; `pods` are those of each job."""
        reasons: dict[int, str] = {}
        for job in self._cluster.queue:
            kind = self._cluster.requests.kind(job)
            if kind not in reasons:
                reasons[kind] = self.reason(job, pods[job])
            self.tell(pods[job], reasons[kind])

    def reason(self, job: int, members: Sequence[Member]) -> str:
        """Returns why a job does not start now."""
        cluster = self._cluster
        chunk, nodes = cluster.requests.chunk(job), cluster.platform.n_nodes
        if lacks_gpus(members, cluster):
            lacks = [(nodes, f"Insufficient {GPU}")]
        else:
            lacks = shortages(chunk, cluster.cores.free_nodes())
        if sum(number for number, _ in lacks) == nodes:
            return f"0/{nodes} nodes are available: " + ", ".join(f"{number} {what}" for number, what in lacks)
        return "the scheduler lets it wait" if cluster.fits(job) else f"its gang of {chunk.number} pods does not fit"


def lacks_gpus(members: Sequence[Member], cluster: Cluster) -> bool:
    """Whether pods request GPUs of a platform without any, whose store does not count them."""
    return members[0].pod.requests.gpus > 0 and not cluster.platform.n_gpus


def shortages(chunk: Chunk, nodes: FreeNodes) -> list[tuple[int, str]]:
    """Returns why a pod does not fit: numbers of nodes, each with what they lack; a node counts once.

    Args:
        chunk: What the pod requests.
        nodes: Free resources of the nodes.
    """
    count = len(nodes.idle)
    left = np.ones(count, np.bool_)
    found: list[tuple[int, str]] = []
    for lacking, what in _lacks(chunk, nodes):
        number = int(np.count_nonzero(left & lacking))
        if number:
            found.append((number, what))
        left &= ~lacking
    return found


def _lacks(chunk: Chunk, nodes: FreeNodes) -> Iterable[tuple[Any, str]]:
    """Yields (N,) whether nodes lack something, and its name."""
    if nodes.up is not None:
        yield ~nodes.up, "not ready or cordoned"
    mask = nodes.masks[chunk.place] if nodes.masks else None
    if mask is not None:
        yield ~mask, "excluded by node selector, node affinity or taints"
    needs = (
        ("cpu", nodes.idle, chunk.cores * (chunk.cpu or 0.0)),
        ("memory", nodes.memory, chunk.cores * chunk.memory),
        (GPU, nodes.gpus, chunk.gpus),
        ("ephemeral-storage", nodes.storage, chunk.cores * chunk.storage),
        ("pods", nodes.pods, 1),
    )
    for name, free, needed in needs:
        if free is not None and needed:
            yield free < needed, f"Insufficient {name}"


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
