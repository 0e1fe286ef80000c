"""A load generator: Deployments and pods that are created on an API server by the wall clock, and their removal."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import orjson

from hdsim.cluster.requests import Amounts
from hdsim.errors import BackendError, ConfigError
from hdsim.kubernetes.cache import Cache
from hdsim.kubernetes.connection import MANAGED, SELECTOR, Connection, NoAnswer, reason_of
from hdsim.kubernetes.objects import DURATION, JobPods, pod_manifest

if TYPE_CHECKING:
    from hdsim.workload.generators.deployments import Deployment
    from hdsim.workload.model import Workload

#: Seconds before the first and the last of several attempts.
_FIRST_PAUSE, _LAST_PAUSE = 0.1, 5.0
#: Seconds between two looks at pods.
_LOOK = 0.2
#: Collections, those that create objects of the next ones first.
_COLLECTIONS = ("/apis/apps/v1/{}/deployments", "/apis/apps/v1/{}/replicasets", "/api/v1/{}/pods")


class Creation(NamedTuple):
    """An object to create, `due` seconds after the begin, in the collection `path`; `pods` come of it."""

    due: float
    path: str
    body: Mapping[str, Any]
    pods: int


@dataclass
class Counts:
    """Results of a load generator."""

    objects: int = 0  # created objects
    pods: int = 0  # pods that come of them
    unbound: int = 0  # pods without a node when the wait for them was over
    retries: Counter[str] = field(default_factory=Counter)  # failures of creations that were repeated, by reason
    delay: float = 0.0  # longest time of a creation behind its due time in seconds
    seconds: float = 0.0  # wall-clock time of the creations


class LoadGenerator:
    """Creates objects on an API server, several at the same time.

    A creation that fails for a reason that may pass is repeated until the time-out of the connection is over.

    `scheduler` names the one that is to bind the pods; `in_flight` creations are made at the same time.
    """

    def __init__(self, connection: Connection, namespace: str, scheduler: str, *, in_flight: int) -> None:
        self.counts = Counts()  # results so far
        self._connection, self._namespace, self._scheduler = connection, namespace, scheduler
        self._in_flight = in_flight
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._cache: Cache[_Pod] | None = None

    def deployments(
        self, made: Iterable[Deployment], prefix: str, *, bare: bool, duration: float | None = None
    ) -> Iterator[Creation]:
        """Yields the creations of random deployments, whose names begin with a prefix.

        Bare pods are created where no controller manager does so. Pods run for a duration in seconds, or until they are
        deleted.
        """
        notes = {} if duration is None else {DURATION: f"{duration:.6f}s"}
        for number, deployment in enumerate(made):
            name, (cpu, memory, gpus) = f"{prefix}-{deployment.epoch}-{number}", deployment.requests
            labels = {**MANAGED, "app.kubernetes.io/name": name}
            pod = pod_manifest(
                name,
                Amounts(cpu, memory, 1, gpus),
                namespace=self._namespace,
                scheduler=self._scheduler,
                labels=labels,
                annotations=notes,
            )
            if bare:
                for replica in range(deployment.replicas):
                    metadata = {**pod["metadata"], "name": f"{name}-{replica}"}
                    yield Creation(deployment.time, self._pods, {**pod, "metadata": metadata}, 1)
                continue
            template = {
                "metadata": {"labels": labels, "annotations": notes},
                "spec": {**pod["spec"], "restartPolicy": "Always"},
            }
            body = {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": name, "labels": labels},
                "spec": {
                    "replicas": deployment.replicas,
                    "selector": {"matchLabels": labels},
                    "template": template,
                },
            }
            path = f"/apis/apps/v1/namespaces/{self._namespace}/deployments"
            yield Creation(deployment.time, path, body, deployment.replicas)

    def jobs(self, jobs: Workload, pods: JobPods, time_scale: float) -> Iterator[Creation]:
        """Yields the creations of the pods of jobs, `time_scale` seconds of the trace in a second of the wall clock."""
        for body in pods.priority_classes():
            yield Creation(0.0, "/apis/scheduling.k8s.io/v1/priorityclasses", body, 0)
        due, runtime = (jobs.submission_time / time_scale).tolist(), (jobs.runtime / time_scale).tolist()
        for job in range(len(jobs)):
            for manifest in pods.manifests(job, {DURATION: f"{runtime[job]:.6f}s"}):
                yield Creation(due[job], self._pods, manifest, 1)

    def create(self, creations: Iterable[Creation], progress: Callable[[int], object] = lambda _: None) -> None:
        """Creates objects in order of their due times, each at its own; `progress` takes the number of pods of each.

        Raises:
            ConfigError: Another load has made objects of these names.
            BackendError: A creation is refused, or has failed until the time-out.
        """
        begin = time.monotonic()
        try:
            self._connection.call(self._create_all(iter(creations), begin, progress))
        finally:
            self.counts.seconds += time.monotonic() - begin

    async def _create_all(self, creations: Iterator[Creation], begin: float, progress: Callable[[int], object]) -> None:
        tasks = [asyncio.create_task(self._creations(creations, begin, progress)) for _ in range(self._in_flight)]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    async def _creations(self, creations: Iterator[Creation], begin: float, progress: Callable[[int], object]) -> None:
        """Creates objects of an iterator that several tasks share."""
        counts = self.counts
        for creation in creations:
            early = creation.due - (time.monotonic() - begin)
            if early > 0:
                await asyncio.sleep(early)
            counts.delay = max(counts.delay, -early)
            await self._create(creation)
            counts.objects += 1
            counts.pods += creation.pods
            progress(creation.pods)

    async def _create(self, creation: Creation) -> None:
        body, pause, answered = orjson.dumps(creation.body), _FIRST_PAUSE, True
        deadline = time.monotonic() + self._connection.timeout
        while True:
            try:
                status, answer = await self._connection.send("POST", creation.path, body)
            except NoAnswer as error:
                failure: BackendError = error
                reason, answered = "no answer", False
            else:
                # An attempt without an answer may have been carried out; priority classes are there from another load.
                if status == 201 or (status == 409 and not (answered and creation.pods)):
                    return
                failure = self._connection.refusal("POST", creation.path, status, answer)
                if status == 409:
                    raise ConfigError(f"{failure}; hdsim kwok clean deletes the pods of another load")
                if status < 500:
                    raise failure
                reason, answered = reason_of(answer), False
            if time.monotonic() + pause > deadline:
                raise failure
            self.counts.retries[reason] += 1
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LAST_PAUSE)

    def wait_bound(self, pods: int, patience: float) -> None:
        """Waits until a number of pods of hdsim have a node, or none has got one for `patience` seconds."""
        if self._cache is None:
            self._cache = Cache(self._connection, self._pods, _Pod.of, lambda _: None)
            self._connection.call(self._cache.start())
        best, since = -1, math.inf
        while True:
            bound = self._connection.call(self._bound(self._cache))
            if bound > best:
                best, since = bound, time.monotonic()
            if bound >= pods or time.monotonic() - since > patience:
                self.counts.unbound += max(pods - bound, 0)
                return
            time.sleep(_LOOK)

    async def _bound(self, cache: Cache[_Pod]) -> int:
        return sum(pod.bound for pod in cache.objects.values())


class _Pod(NamedTuple):
    """The part of a pod that a load generator waits for."""

    key: str
    uid: str
    version: str
    bound: bool

    @classmethod
    def of(cls, pod: Mapping[str, Any]) -> Self:
        metadata = pod["metadata"]
        managed = MANAGED.items() <= (metadata.get("labels") or {}).items()
        return cls(
            metadata["name"], metadata["uid"], metadata["resourceVersion"], managed and "nodeName" in pod["spec"]
        )


def empty(connection: Connection, namespace: str, *, everything: bool = False, timeout: float = 300.0) -> int:
    """Deletes the Deployments, ReplicaSets and pods that hdsim has created, and waits; returns the number of pods.

    With `everything`, those of others in the namespace go as well. The time-out is in seconds.

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
            connection.call(connection.ask("DELETE", f"{path}&gracePeriodSeconds=0", but=(404,), timeout=left))
        objects = sum(len(connection.get(path)["items"]) for path in paths)
        if not objects:
            return pods
        if time.monotonic() > deadline:
            raise BackendError(f"{connection.server}: {objects} objects of {namespace} are left after {timeout:g} s")
        time.sleep(_LOOK)
