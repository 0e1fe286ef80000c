"""Tools for tests of faults: pods that come meanwhile, a scheduler as a process, a complete watch, a proxy."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml
from kube import PATIENCE, Cluster, wait_for

ROOT = Path(__file__).parent.parent
_BROKEN = (http.client.HTTPException, OSError)


def pod(
    name: str, millicores: int = 1000, seconds: float | None = None, gang: str = "", size: int = 0
) -> dict[str, Any]:
    """A pod for hdsim; without `seconds` it runs for ever."""
    annotations = {} if seconds is None else {"hdsim.io/duration": f"{seconds}s"}
    labels = {}
    if gang:
        labels, annotations = (
            {"scheduling.x-k8s.io/pod-group": gang},
            annotations | {"hdsim.io/pod-group-size": str(size)},
        )
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": f"{millicores}m"}}}
    return {
        "metadata": {"name": name, "annotations": annotations, "labels": labels},
        "spec": {"schedulerName": "hdsim", "terminationGracePeriodSeconds": 0, "containers": [container]},
    }


class Creator(threading.Thread):
    """Creates pods one after another, whatever happens to the API server.

    Args:
        cluster: The cluster.
        pods: The pods.
        pause: Seconds between two.
    """

    def __init__(self, cluster: Cluster, pods: Sequence[dict[str, Any]], pause: float) -> None:
        super().__init__(daemon=True)
        self._cluster, self._pods, self._pause = cluster, pods, pause
        self.start()

    def run(self) -> None:
        path = f"/api/v1/namespaces/{self._cluster.namespace}/pods"
        for body in self._pods:
            while True:
                with contextlib.suppress(*_BROKEN):
                    if self._cluster.api.request("POST", path, body)[0] in (201, 409):
                        break
                time.sleep(0.2)
            time.sleep(self._pause)


class History(threading.Thread):
    """Follows the pods of a namespace revision by revision, and notes what must never happen.

    Attributes:
        bound: Every node that a pod was ever seen on, in order, by name.
        ended: Names of the pods that have succeeded.
        faults: Pods that changed their nodes, and nodes with more CPU promised than they have.

    Args:
        cluster: The cluster.
        cpu: Millicores of the nodes.
    """

    def __init__(self, cluster: Cluster, cpu: Mapping[str, int]) -> None:
        super().__init__(daemon=True)
        self.bound: dict[str, list[str]] = {}
        self.ended: set[str] = set()
        self.faults: list[str] = []
        self._api, self._path, self._cpu = cluster.api, f"/api/v1/namespaces/{cluster.namespace}/pods", cpu
        self._held: dict[str, tuple[str, int]] = {}
        self._used: Counter[str] = Counter()
        self._over = False
        self.start()

    def stop(self) -> None:
        self._over = True

    def run(self) -> None:
        version = ""
        while not self._over:
            with contextlib.suppress(*_BROKEN):
                if not version:
                    version = self._list()
                for event in self._api.watch(f"{self._path}&timeoutSeconds=2".replace("&", "?", 1), version):
                    if event["type"] == "ERROR":
                        version = ""
                        break
                    version = event["object"]["metadata"]["resourceVersion"]
                    self._see(event["object"], gone=event["type"] == "DELETED")
                continue
            time.sleep(0.05)

    def _list(self) -> str:
        status, found = self._api.request("GET", self._path)
        if status != 200:
            raise OSError
        for uid in self._held.keys() - {item["metadata"]["uid"] for item in found["items"]}:
            self._free(uid)
        # Those that have ended first: what they held may be held by others already.
        for item in sorted(found["items"], key=lambda each: each["status"]["phase"] in ("Pending", "Running")):
            self._see(item)
        version: str = found["metadata"]["resourceVersion"]
        return version

    def _free(self, uid: str) -> None:
        if uid in self._held:
            where, cpu = self._held.pop(uid)
            self._used[where] -= cpu

    def _see(self, found: dict[str, Any], *, gone: bool = False) -> None:
        name, uid, phase = found["metadata"]["name"], found["metadata"]["uid"], found["status"]["phase"]
        where = found["spec"].get("nodeName")
        seen = self.bound.setdefault(name, [])
        if where and where not in seen:
            seen.append(where)
            if len(seen) > 1:
                self.faults.append(f"{name} was on {seen}")
        elif seen and not where:
            self.faults.append(f"{name} is on no node after {seen}")
        if phase == "Succeeded":
            self.ended.add(name)
        if gone or phase in ("Succeeded", "Failed"):
            self._free(uid)
        elif where and uid not in self._held:
            cpu = int(found["spec"]["containers"][0]["resources"]["requests"]["cpu"].removesuffix("m"))
            cpu *= 1 if found["spec"]["containers"][0]["resources"]["requests"]["cpu"].endswith("m") else 1000
            self._held[uid] = where, cpu
            self._used[where] += cpu
            if self._used[where] > self._cpu[where]:
                self.faults.append(f"{where} has {self._used[where]}m promised after {name}")

    def on_nodes(self) -> int:
        """Number of pods that are or were bound."""
        return sum(bool(nodes) for nodes in list(self.bound.values()))


class Scheduler:
    """`hdsim run backend=kwok workload=cluster` as a process.

    Attributes:
        process: The process.
        log: File of what it prints.

    Args:
        cluster: The cluster.
        folder: Folder of its results.
        kubeconfig: The kubeconfig file, by default the administrator's.
        election: Times of leader election in seconds: lease, renew, retry.
    """

    def __init__(
        self, cluster: Cluster, folder: Path, kubeconfig: Path | None = None, election: tuple[float, ...] = (60, 50, 1)
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.log = folder, folder / "log"
        lease, renew, retry = election
        command = [
            sys.executable,
            "-m",
            "hdsim",
            "run",
            "backend=kwok",
            "workload=cluster",
            "agent=least_allocated",
            f"backend.kubeconfig={kubeconfig or cluster.kubeconfig}",
            f"backend.namespace={cluster.namespace}",
            "backend.stop_when_idle=null",
            f"backend.timeout={PATIENCE / 2}",
            f"backend.leader_election.lease={lease}",
            f"backend.leader_election.renew={renew}",
            f"backend.leader_election.retry={retry}",
            f"hydra.run.dir={folder}",
        ]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=log, stderr=log
            )

    def told(self, text: str) -> bool:
        """Whether it has printed a text."""
        return text in self.log.read_text()

    def wait_until_told(self, text: str) -> None:
        wait_for(lambda: self.told(text) or self.process.poll() is not None, f"the message {text}")
        assert self.told(text), self.log.read_text()

    def kill(self) -> None:
        """Ends it at once."""
        self.process.kill()
        self.process.wait()

    def end(self) -> str:
        """Ends it by SIGTERM, as Kubernetes does; returns what it has printed."""
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(timeout=PATIENCE)
        printed = self.log.read_text()
        assert status == 0, printed
        return printed


@contextlib.contextmanager
def ended(*schedulers: Scheduler) -> Iterator[None]:
    """Ends processes also after a failure."""
    try:
        yield
    finally:
        for scheduler in schedulers:
            if scheduler.process.poll() is None:
                scheduler.process.send_signal(signal.SIGCONT)
                scheduler.kill()


class Proxy:
    """A TCP proxy in front of an API server, all of whose connections can be cut at once.

    Attributes:
        address: URL of the proxy.

    Args:
        server: URL of the API server.
    """

    def __init__(self, server: str) -> None:
        parts = urlsplit(server)
        self._target = (parts.hostname, parts.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"https://127.0.0.1:{self._listener.getsockname()[1]}"
        self._lock, self._open, self._refusing = threading.Lock(), set[socket.socket](), False
        threading.Thread(target=self._accept, daemon=True).start()

    def kubeconfig(self, original: Path, path: Path) -> Path:
        """Writes a kubeconfig of which the server is this proxy."""
        config = yaml.safe_load(original.read_text())
        config["clusters"][0]["cluster"]["server"] = self.address
        path.write_text(yaml.safe_dump(config))
        path.chmod(0o600)
        return path

    def cut(self) -> None:
        """Resets all connections."""
        with self._lock:
            for end in self._open:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
            self._open.clear()

    @contextlib.contextmanager
    def blocked(self) -> Iterator[None]:
        """Cuts all connections, and closes new ones at once."""
        self._refusing = True
        self.cut()
        try:
            yield
        finally:
            self._refusing = False

    def close(self) -> None:
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self._refusing:
                    client.close()
                    continue
                try:
                    server = socket.create_connection(self._target)
                except OSError:
                    client.close()
                    continue
                with self._lock:
                    self._open |= {client, server}
                for source, target in ((client, server), (server, client)):
                    threading.Thread(target=self._copy, args=(source, target), daemon=True).start()

    def _copy(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        with self._lock:
            self._open -= {source, target}
        source.close()


def told_by_events(cluster: Cluster, reason: str) -> dict[str, int]:
    """Number of events of hdsim of a reason by pod."""
    found: defaultdict[str, int] = defaultdict(int)
    for event in cluster.api.items(f"/apis/events.k8s.io/v1/namespaces/{cluster.namespace}/events"):
        if event["reason"] == reason and event["reportingController"] == "hdsim":
            found[event["regarding"]["name"]] += 1
    return dict(found)


def wait_until(history: History, done: Callable[[], bool], what: str, schedulers: Iterable[Scheduler] = ()) -> None:
    """Waits, and shows what schedulers have printed if it takes too long."""
    try:
        wait_for(done, what)
    except AssertionError as error:
        logs = "\n".join(scheduler.log.read_text() for scheduler in schedulers)
        missing = sorted(name for name, nodes in history.bound.items() if not nodes)
        raise AssertionError(f"{error}; not bound: {missing}\n{logs}") from None
