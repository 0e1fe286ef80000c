"""Removal of pods and of the objects that create them."""

from __future__ import annotations

import time

from hdsim.errors import BackendError
from hdsim.kubernetes.connection import Connection

#: Label of everything that hdsim creates.
MANAGED = {"app.kubernetes.io/managed-by": "hdsim"}
#: Query that selects what has the label.
SELECTOR = "labelSelector=" + ",".join(f"{key}%3D{value}" for key, value in MANAGED.items())
#: Collections, those that create objects of the next ones first.
_COLLECTIONS = ("/apis/apps/v1/{}/deployments", "/apis/apps/v1/{}/replicasets", "/api/v1/{}/pods")
#: Seconds between two looks at what is left.
_LOOK = 0.2


def empty(connection: Connection, namespace: str, *, everything: bool = False, timeout: float = 300.0) -> int:
    """Deletes the Deployments, ReplicaSets and pods that hdsim has created, and waits until they are gone.

    With `everything`, those of others in the namespace go as well. The time-out is in seconds.

    Returns:
        Number of pods.

    Raises:
        BackendError: A deletion is refused, or pods are left.
    """
    selector = "" if everything else SELECTOR
    paths = [f"{path.format(f'namespaces/{namespace}')}?{selector}" for path in _COLLECTIONS]
    pods, deadline = len(connection.get(paths[-1])["items"]), time.monotonic() + timeout
    while True:
        for path in paths:
            # Pods of ReplicaSets that were created since the last look are deleted too.
            left = max(deadline - time.monotonic(), 1.0)
            status, answer = connection.call(connection.send("DELETE", f"{path}&gracePeriodSeconds=0", timeout=left))
            if status not in (200, 404):
                raise connection.refusal("DELETE", path, status, answer)
        objects = sum(len(connection.get(path)["items"]) for path in paths)
        if not objects:
            return pods
        if time.monotonic() > deadline:
            raise BackendError(f"{connection.server}: {objects} objects of {namespace} are left after {timeout:g} s")
        time.sleep(_LOOK)
