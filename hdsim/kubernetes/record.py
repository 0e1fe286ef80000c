"""The recorder of a scheduler: writes each binding with the state of the nodes before it.

The watch of the pods delivers their changes in the order in which the API server made them, whatever the order of their
creation; the free amounts before a binding are those after all earlier bindings and ends.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Mapping, Sequence
from typing import IO, Any

import orjson

from hdsim.errors import BackendError
from hdsim.kubernetes.cache import Cache, Change
from hdsim.kubernetes.connection import Connection
from hdsim.kubernetes.objects import NodeView, PodView
from hdsim.kubernetes.recording import FORMAT, FreeAmounts

#: Seconds between two looks at the ends of a recording.
_LOOK = 0.2


class Recorder:
    """Records the bindings of a scheduler.

    Pods of other schedulers, and those that had a node before the recording, are recorded as such: they only take
    amounts of nodes. The nodes are those at the begin; pods on nodes that come later are left out.

    The output is a file that is opened for bytes.

    Attributes:
        bindings: Number of recorded bindings of the scheduler.
        left_out: Pods on unknown nodes.
    """

    def __init__(self, connection: Connection, scheduler: str, output: IO[bytes]) -> None:
        self.bindings = self.left_out = 0
        self._connection, self._scheduler, self._output = connection, scheduler, output
        nodes = [NodeView.of(item) for item in connection.get("/api/v1/nodes")["items"]]
        self._free = FreeAmounts({node.name: node.allocatable for node in nodes})
        self._held: dict[str, PodView] = {}
        self._news: queue.SimpleQueue[list[Change[PodView]] | BackendError] = queue.SimpleQueue()
        self._cache = Cache(connection, "/api/v1/pods", PodView.of, self._news.put)
        # JSON has no infinity: an unlimited amount is null.
        amounts = [{"name": node.name, "allocatable": node.allocatable._asdict()} for node in nodes]
        self._write({FORMAT[0]: FORMAT[1], "server": connection.server, "scheduler": scheduler, "nodes": amounts})
        self._begin = time.monotonic()
        connection.call(self._cache.start())
        self._take(first=True)

    @property
    def relists(self) -> int:
        """Number of lists after the first one: bindings since the lost watch have the order of their pods' versions."""
        return self._cache.relists

    def run(self, stop: Sequence[int], *, bindings: int | None = None, idle: float | None = None) -> None:
        """Records until a signal comes, there are as many bindings, or none has come for `idle` seconds.

        Raises:
            BackendError: The watch is lost.
        """
        latest = time.monotonic()
        while not stop and (bindings is None or self.bindings < bindings):
            before = self.bindings
            if idle is not None and time.monotonic() - latest > idle:
                return
            try:
                self._take(bindings, timeout=_LOOK)
            except queue.Empty:
                continue
            if self.bindings > before:
                latest = time.monotonic()

    def _take(self, most: int | None = None, timeout: float | None = None, *, first: bool = False) -> None:
        """Records the changes that have come together."""
        changes = self._news.get(timeout=timeout)
        if isinstance(changes, BackendError):
            raise changes
        now = round(time.monotonic() - self._begin, 6)
        # Those of a list are in no order.
        for old, new in sorted(changes, key=_version):
            if self.bindings == most:
                break
            if new is not None and new.holds:
                self._bound(new, now, decided=not first and old is not None and new.scheduler == self._scheduler)
            elif pod := new or old:
                self._ended(pod.uid, now)
        self._output.flush()

    def _bound(self, pod: PodView, now: float, *, decided: bool) -> None:
        if pod.uid in self._held:
            return
        if pod.node not in self._free:
            self.left_out += 1
            return
        entry = {
            "event": "bound",
            "time": now,
            "version": pod.version,
            "uid": pod.uid,
            "pod": pod.key,
            "node": pod.node,
            "decided": decided,
            "requests": pod.requests._asdict(),
            "constraints": pod.constraints.to_spec() if pod.constraints else {},
            "priority": pod.priority,
            "duration": pod.duration,
        }
        self._write(entry | ({"free": self._free.by_resource()} if decided else {}))
        self._free.change(pod.node, pod.requests, -1)
        self._held[pod.uid] = pod
        self.bindings += decided

    def _ended(self, uid: str, now: float) -> None:
        pod = self._held.pop(uid, None)
        if pod is not None:
            self._free.change(pod.node, pod.requests, 1)
            self._write({"event": "ended", "time": now, "uid": uid, "pod": pod.key, "node": pod.node})

    def _write(self, entry: Mapping[str, Any]) -> None:
        self._output.write(orjson.dumps(entry, option=orjson.OPT_APPEND_NEWLINE))


def _version(change: Change[PodView]) -> int:
    pod = change[1] or change[0]
    return int(pod.version) if pod else 0
