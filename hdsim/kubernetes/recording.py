"""Recordings: the bindings of a scheduler in their order, with the free amounts of the nodes before each of them.

A recording is a file of JSON lines, described in docs/pods.md. It becomes the jobs of an episode in which each job is
submitted when its pod was bound and ends with its pod, so that each decision has the state that the scheduler had.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import orjson

from hdsim.cluster.requests import Amounts
from hdsim.errors import BackendError, ConfigError
from hdsim.kubernetes.cache import Cache, Change
from hdsim.kubernetes.connection import Connection
from hdsim.kubernetes.objects import UNLIMITED, NodeView, PodView
from hdsim.util.arrays import objects
from hdsim.util.units import in_bytes
from hdsim.workload.constraints import NODE_NAME, Constraints, Requirement, Toleration
from hdsim.workload.model import Workload

if TYPE_CHECKING:
    from hdsim.platform.model import Platform
    from hdsim.util.arrays import Floats

#: First key of the first line, and its value.
FORMAT = ("format", "hdsim recording 1")
#: Least seconds between two events of an episode, which keep their order.
_STEP = 1e-6
#: Seconds between two looks at the ends of a recording.
_LOOK = 0.2


class FreeAmounts:
    """Free amounts of nodes, at first what is allocatable."""

    def __init__(self, allocatable: Mapping[str, Amounts]) -> None:
        self.names = list(allocatable)  # names of the nodes
        #: (N, 5) free amounts in the order of `Amounts`.
        self.free: Floats = np.array(list(allocatable.values()), np.float64).reshape(-1, len(Amounts._fields))
        self._index = {name: index for index, name in enumerate(self.names)}

    def __contains__(self, node: str) -> bool:
        return node in self._index

    def change(self, node: str, amounts: Amounts, sign: int) -> None:
        """Adds amounts to a node, or subtracts them with a negative `sign`."""
        row = self._index[node]
        # Thousandths stay thousandths, so that sums do not depend on their order.
        self.free[row] = np.round(self.free[row] + sign * np.array(amounts), 3)

    def by_resource(self) -> dict[str, list[float]]:
        """Returns the (N,) free amounts of each resource."""
        return dict(zip(Amounts._fields, self.free.T.tolist(), strict=True))


@dataclass
class RecordedBinding:
    """A pod (``NAMESPACE/NAME``) and its node."""

    pod: str
    node: str
    requests: Amounts
    constraints: Constraints | None  # nodes that the pod may be on
    priority: int
    decided: bool  # the binding is one of the recorded scheduler; other pods only take amounts of nodes
    begin: float  # begin in seconds of the recording
    duration: float | None  # run time of the pod's annotation in seconds, None without one
    end: float | None = None  # end of the pod, None if it was there at the end of the recording


@dataclass(frozen=True)
class Recording:
    """A recording: allocatable amounts of nodes by name, and bindings in their order."""

    path: Path
    nodes: dict[str, Amounts]
    bindings: list[RecordedBinding]

    @classmethod
    def read(cls, path: Path) -> Recording:
        """Reads a recording; ConfigError if the file is damaged, or none."""
        with path.open("rb") as file:
            nodes: dict[str, Amounts] = {}
            bindings: list[RecordedBinding] = []
            bound: dict[str, RecordedBinding] = {}
            time = -_STEP
            for number, line in enumerate(file, 1):
                try:
                    entry = orjson.loads(line)
                    if number == 1:
                        if entry.get(FORMAT[0]) != FORMAT[1]:
                            raise ValueError(f"expected {FORMAT[0]} '{FORMAT[1]}'")
                        nodes = {node["name"]: _amounts(node["allocatable"]) for node in entry["nodes"]}
                        continue
                    time = max(float(entry["time"]), time + _STEP)
                    if entry["event"] == "ended":
                        bound.pop(entry["uid"]).end = time
                        continue
                    bound[entry["uid"]] = binding = _binding(entry, time)
                    if binding.node not in nodes:
                        raise ValueError(f"unknown node '{binding.node}'")
                    bindings.append(binding)
                except (KeyError, TypeError, ValueError, AttributeError) as error:
                    raise ConfigError(f"expected a line of a recording: {error}", where=f"{path}:{number}") from None
        if not any(binding.decided for binding in bindings):
            raise ConfigError("expected a recording with a binding, got none", where=str(path))
        return cls(path, nodes, bindings)

    def jobs(self, platform: Platform, where: str) -> tuple[Workload, list[int]]:
        """Returns the bound pods as jobs, and the node of each job, on a platform of the recorded nodes.

        A pod that the recorded scheduler did not bind may be on its node only. Nodes that the platform lacks must have
        no binding of the scheduler; `where` is the configuration key of the recording.

        Raises:
            ConfigError: The platform has other nodes.
        """
        self._check(platform, where)
        index = {name: node for node, name in enumerate(platform.node_names)}
        held = [each for each in self.bindings if each.node in index]
        begin = np.array([each.begin for each in held])
        after = max(begin[-1], *(each.end or 0.0 for each in held)) + 1.0
        runtime = np.array([each.end or after for each in held]) - begin
        cpu, memory, _, gpus, storage = np.array([each.requests for each in held]).T
        constraints = objects([each.constraints if each.decided else _only(each.node) for each in held])
        requested = [each.duration or each_runtime for each, each_runtime in zip(held, runtime.tolist(), strict=True)]
        jobs = Workload.from_columns(
            submission_time=begin,
            runtime=runtime,
            requested_time=requested,
            requested_cores=1,
            cpu=cpu,
            memory=memory / 1e6,
            requested_gpus=gpus.astype(np.int64),
            storage=storage / 1e6,
            fixed_duration=True,
            priority=[each.priority for each in held],
            constraints=constraints,
            source=str(self.path),
        )
        return jobs, [index[each.node] for each in held]

    def _check(self, platform: Platform, where: str) -> None:
        columns = (platform.node_cpu, in_bytes(platform.memory), platform.node_pods, platform.node_gpus)
        amounts = dict(zip(platform.node_names, np.array(columns, np.float64).T, strict=True))
        for name, here in amounts.items():
            there = self.nodes.get(name)
            if there is None or not np.allclose(np.minimum(here, UNLIMITED), there[: len(here)], rtol=1e-9):
                text = "nothing" if there is None else _described(there)
                raise ConfigError(
                    f"expected the nodes of {self.path}; {name} of {platform.name} has {_described(here)}, "
                    f"there it has {text}",
                    where=where,
                )
        for binding in self.bindings:
            if binding.decided and binding.node not in amounts:
                raise ConfigError(
                    f"expected the nodes of {self.path}; {platform.name} has no {binding.node}", where=where
                )


def _only(node: str) -> Constraints:
    """The constraints of a pod that may be on one node only."""
    return Constraints(affinity=((Requirement(NODE_NAME, "In", (node,)),),), tolerations=(Toleration("", "Exists"),))


def _described(amounts: Iterable[float]) -> str:
    return ", ".join(
        f"{value:g} {name}" for name, value in zip(("cpu", "memory", "pods", "gpus"), amounts, strict=False)
    )


def _amounts(document: Mapping[str, float | None]) -> Amounts:
    return Amounts(**{key: np.inf if value is None else float(value) for key, value in document.items()})


def _binding(entry: Mapping[str, Any], time: float) -> RecordedBinding:
    return RecordedBinding(
        entry["pod"],
        entry["node"],
        _amounts(entry["requests"]),
        Constraints.from_spec(entry["constraints"]),
        int(entry["priority"]),
        bool(entry["decided"]),
        time,
        entry["duration"],
    )


class Recorder:
    """Records the bindings of a scheduler: each with the state of the nodes before it.

    The watch of the pods delivers their changes in the order in which the API server made them; the free amounts before
    a binding are those after all earlier bindings and ends.

    Pods of other schedulers, and those that had a node before the recording, are recorded as such: they only take
    amounts of nodes. The nodes are those at the begin; pods on nodes that come later are left out.

    The output is a file that is opened for bytes.
    """

    def __init__(self, connection: Connection, scheduler: str, output: IO[bytes]) -> None:
        #: left_out: Pods on unknown nodes.
        #: bindings: Number of recorded bindings of the scheduler.
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
        """Records until a signal, a number of bindings or `idle` seconds without one; BackendError for a lost watch."""
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
