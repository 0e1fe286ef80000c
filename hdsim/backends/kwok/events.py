"""Kubernetes Events for pods that were bound or cannot be."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import numpy as np

from hdsim.backends.kwok.sender import Request
from hdsim.cluster.requests import Chunk, FreeNodes
from hdsim.kubernetes.objects import PodView

CONTROLLER = "hdsim"


def event(pod: PodView, reason: str, note: str, identity: str, *, warning: bool = False) -> Request:
    """Returns the request that creates an Event (events.k8s.io/v1) about a pod.

    Args:
        pod: The pod.
        reason: ``Scheduled`` or ``FailedScheduling``.
        note: Text for users.
        identity: Name of this instance.
        warning: Whether something is wrong.
    """
    body: dict[str, Any] = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": f"{pod.name[:230]}.{secrets.token_hex(8)}", "namespace": pod.namespace},
        "eventTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "type": "Warning" if warning else "Normal",
        "reason": reason,
        "action": "Binding" if reason == "Scheduled" else "Scheduling",
        "note": note[:1000],
        "reportingController": CONTROLLER,
        "reportingInstance": identity[:128],
        "regarding": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": pod.namespace,
            "name": pod.name,
            "uid": pod.uid,
        },
    }
    return Request("POST", f"/apis/events.k8s.io/v1/namespaces/{pod.namespace}/events", body)


def scheduled(pod: PodView, node: str, identity: str) -> Request:
    """Returns the event of a pod that was bound."""
    return event(pod, "Scheduled", f"Successfully assigned {pod.key} to {node}", identity)


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
        ("nvidia.com/gpu", nodes.gpus, chunk.gpus),
        ("ephemeral-storage", nodes.storage, chunk.cores * chunk.storage),
        ("pods", nodes.pods, 1),
    )
    for name, free, needed in needs:
        if free is not None and needed:
            yield free < needed, f"Insufficient {name}"
