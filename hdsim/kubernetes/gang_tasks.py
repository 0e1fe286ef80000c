"""Tasks of a BSP gang as Kubernetes Jobs, each with one pod; another CPU share is another Job."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

from hdsim.errors import BackendError, ConfigError
from hdsim.gangs.real.launcher import Launcher
from hdsim.gangs.stressors import Stressors
from hdsim.kubernetes.cache import Cache, Change
from hdsim.kubernetes.connection import MANAGED, Call, Connection, Permission, require

#: Working directory of a task in its container.
_FOLDER = "/tmp"
#: Seconds between the two signals that end a container.
_GRACE = 1
#: Verbs that a run needs for Jobs of its namespace.
_VERBS = ("list", "watch", "create", "delete")


@dataclass(frozen=True)
class _JobView:
    """A Job; `ended` is its end in words, empty while it runs."""

    key: str
    uid: str
    version: str
    ended: str

    @classmethod
    def of(cls, item: Mapping[str, Any]) -> _JobView:
        """Reads a Job object."""
        metadata, conditions = item["metadata"], item.get("status", {}).get("conditions") or ()
        reached = {each["type"]: each for each in conditions if each["status"] == "True"}
        ended = "has ended" if "Complete" in reached else ""
        if "Failed" in reached:
            ended = f"has failed: {reached['Failed'].get('message') or reached['Failed'].get('reason', 'no reason')}"
        return cls(metadata["name"], metadata["uid"], metadata["resourceVersion"], ended)


class KubernetesJobs(Launcher):
    """Each task is a Job with one pod whose CPU request and limit are its shares.

    A Job's pod cannot be resized everywhere, so new shares end the Job and create another one. The image has hdsim with
    its extra ``bsp``, stress-ng and the program `python`; kubeconfig and context are those of
    :class:`hdsim.kubernetes.connection.Connection`. `timeout` is in seconds, for an answer and for the end of Jobs.
    """

    in_place = False

    def __init__(
        self,
        image: str | None = None,
        python: str = "python",
        kubeconfig: str | None = None,
        context: str | None = None,
        namespace: str = "default",
        timeout: float = 60.0,
    ) -> None:
        if not image:
            raise ConfigError("expected an image with hdsim[bsp] and stress-ng, got none", where="runner.image")
        self._image, self._python, self._namespace, self._timeout = image, python, namespace, timeout
        self._connect: Callable[[], Connection] = partial(
            Connection, kubeconfig, context, timeout=timeout, where="runner.kubeconfig"
        )
        self._path = f"/apis/batch/v1/namespaces/{namespace}/jobs"
        self._names: dict[str, str] = {}
        self._seen = threading.Condition()
        self._fault: BackendError | None = None
        self._resources = ExitStack()

    def __enter__(self) -> Self:
        self._connection = self._resources.enter_context(self._connect())
        self._cache = Cache(self._connection, self._path, _JobView.of, self._hear)
        self._connection.call(self._cache.start())
        return self

    def __exit__(self, *_: object) -> None:
        """Deletes all Jobs."""
        with self._resources:
            self.stop(list(self._names))

    def check(self, stressors: Stressors, tasks: Sequence[str], least: int, zookeeper: str | None) -> None:
        """Checks the address of ZooKeeper, the operations of the tasks and the permissions."""
        if zookeeper is None:
            raise ConfigError(
                "expected host:port of a server that the pods of the cluster reach, got null", where="zookeeper"
            )
        for task in tasks:
            if task not in stressors.operations:
                message = f"expected the operations per unit of workload of {task}, got none"
                raise ConfigError(message, where="stressors.operations")
        with self._connect() as connection:
            require(connection, [Permission(Call(verb, "batch", "jobs"), self._namespace) for verb in _VERBS])

    def start(self, task: str, member: str, millicores: int) -> None:
        """Creates a Job."""
        name = f"hdsim-{self.site.root.rpartition('/')[2]}-{member}"
        cpu = {"cpu": f"{millicores}m"}
        container = {
            "name": "task",
            "image": self._image,
            "command": [self._python, *self.site.arguments(task, member, _FOLDER)],
            "resources": {"requests": cpu, "limits": cpu},
        }
        pod = {"restartPolicy": "Never", "terminationGracePeriodSeconds": _GRACE, "containers": [container]}
        body = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name, "labels": MANAGED},
            # The controller of the gang replaces a task that fails.
            "spec": {"backoffLimit": 0, "template": {"metadata": {"labels": MANAGED}, "spec": pod}},
        }
        self._connection.call(self._connection.ask("POST", self._path, body))
        self._names[member] = name
        self._wait(lambda: name in self._cache.objects, f"Job {name} is not in the watch")

    def fault(self, member: str, patience: float = 0.0) -> str | None:
        """Returns how the Job of a task has ended."""
        with self._seen:
            self._seen.wait_for(lambda: self._ended(member), patience)
            return self._ended(member) or None

    def stop(self, members: Sequence[str]) -> None:
        """Deletes Jobs, and waits until their pods are deleted."""
        names = {self._names.pop(member) for member in members if member in self._names}
        for name in names:
            options = {"propagationPolicy": "Foreground"}
            self._connection.call(self._connection.ask("DELETE", f"{self._path}/{name}", options, but=(404,)))
        self._wait(lambda: not names & self._cache.objects.keys(), f"Jobs {', '.join(sorted(names))} are not deleted")

    def facts(self) -> Mapping[str, Any]:
        """Returns the method of the limits, the server and the image."""
        return {"limits": "Kubernetes Jobs", "server": self._connection.server, "image": self._image}

    def _ended(self, member: str) -> str:
        if self._fault is not None:
            raise self._fault
        view = self._cache.objects.get(self._names[member])
        return "was deleted" if view is None else view.ended

    def _hear(self, news: list[Change[_JobView]] | BackendError) -> None:
        """Notes changes; called in the thread of the connection."""
        if isinstance(news, BackendError):
            self._fault = news
        with self._seen:
            self._seen.notify_all()
        self.site.wake()

    def _wait(self, holds: Callable[[], bool], otherwise: str) -> None:
        end = time.monotonic() + self._timeout
        with self._seen:
            while not holds():
                if self._fault is not None:
                    raise self._fault
                # The cache is changed before its listeners are called, in another thread.
                if not self._seen.wait(end - time.monotonic()) and time.monotonic() > end:
                    raise BackendError(f"{self._connection.server}: {otherwise} after {self._timeout:g} s")
