"""A control plane for tests, shared by all workers of pytest, and a client that is independent of hdsim's."""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import itertools
import json
import os
import ssl
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import yaml
from tiers import TIER

from hdsim.kubernetes.control_plane import ControlPlane

PATIENCE = 120.0  # s, until a wait has failed
#: Control planes at a time: a test of one takes a fifth of a processor, and a control plane one gigabyte.
PLANES = max(1, min((2 if TIER else 1) * (os.cpu_count() or 1), int(psutil.virtual_memory().total / 4e9)))
_SUFFIXES = {"": 1, "m": 1e-3, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "k": 1e3, "M": 1e6, "G": 1e9}


class Api:
    """Requests to an API server by the standard library alone.

    Args:
        kubeconfig: A file with client certificates or a token.
    """

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self._context = ssl.create_default_context(cafile=cluster["certificate-authority"])
        if "client-certificate" in user:
            self._context.load_cert_chain(user["client-certificate"], user["client-key"])
        self._headers = {"Authorization": f"Bearer {user['token']}"} if "token" in user else {}
        self._host = cluster["server"].removeprefix("https://")

    def send(self, method: str, path: str, body: object = None, kind: str = "json") -> http.client.HTTPResponse:
        """Sends a request on a connection of its own; `kind` is the suffix of a patch's media type."""
        connection = http.client.HTTPSConnection(self._host, context=self._context, timeout=PATIENCE)
        headers = self._headers | {"Content-Type": f"application/{kind}"}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        return connection.getresponse()

    def request(self, method: str, path: str, body: object = None, kind: str = "json") -> tuple[int, Any]:
        """Returns the status and the document of an answer."""
        with self.send(method, path, body, kind) as answer:
            content = answer.read()
        return answer.status, json.loads(content) if content[:1] in (b"{", b"[") else content.decode()

    def __call__(self, method: str, path: str, body: object = None, kind: str = "json") -> Any:
        """Returns the document of an answer, which must be a success."""
        status, document = self.request(method, path, body, kind)
        assert 200 <= status < 300, f"{method} {path}: {status} {document}"
        return document

    def items(self, path: str) -> list[dict[str, Any]]:
        """Returns the objects of a collection."""
        found: list[dict[str, Any]] = self("GET", path)["items"]
        return found

    def watch(self, path: str, version: str = "0") -> Iterator[dict[str, Any]]:
        """Yields the events of a collection until the server ends the watch."""
        sign = "&" if "?" in path else "?"
        with self.send("GET", f"{path}{sign}watch=1&resourceVersion={version}") as answer:
            for line in answer:
                yield json.loads(line)


def amount(quantity: str) -> float:
    """Value of a quantity such as ``500m`` or ``2Gi``."""
    digits = quantity.rstrip("KMGimk")
    return float(digits) * _SUFFIXES[quantity[len(digits) :]]


def fake_node(
    name: str, amounts: Mapping[str, str] | None = None, *, labels: Mapping[str, str] | None = None, taints: Any = ()
) -> dict[str, Any]:
    """A node that Kwok keeps: 4 CPU, 16 GiB and 110 pods besides the given amounts."""
    found = {"cpu": "4", "memory": "16Gi", "pods": "110", **(amounts or {})}
    return {
        "metadata": {"name": name, "annotations": {"kwok.x-k8s.io/node": "fake"}, "labels": dict(labels or {})},
        "spec": {"taints": list(taints)},
        "status": {"allocatable": found, "capacity": found},
    }


def is_ready(node: Mapping[str, Any]) -> bool:
    """Whether a node is ready; the API server taints a new one until the node controller has seen that it is."""
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in node["status"].get("conditions", ()))
    return ready and not any("not-ready" in taint["key"] for taint in node["spec"].get("taints", ()))


def wait_for(holds: Callable[[], Any], what: str) -> Any:
    """Returns the first true value of a function, which may take a while."""
    deadline = time.monotonic() + PATIENCE
    while not (value := holds()):
        assert time.monotonic() < deadline, f"still waiting for {what}"
        time.sleep(0.05)
    return value


class Cluster:
    """A control plane with kube-scheduler, empty when a test begins: no node, no pod, no namespace of another test.

    Attributes:
        plane: The control plane.
        kubeconfig: Its kubeconfig file, for the administrator.
        api: A client that does not use hdsim.
        namespace: A namespace of this test's own.
    """

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self.plane, self.kubeconfig, self.namespace = plane, plane.kubeconfig, namespace
        self.api = Api(self.kubeconfig)
        self.make_namespace(namespace)

    def make_namespace(self, name: str) -> None:
        """Makes a namespace and waits for the account of its pods."""
        self.api("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
        wait_for(lambda: self.api.request("GET", account)[0] == 200, f"the default account of {name}")

    def nodes(self) -> list[dict[str, Any]]:
        return self.api.items("/api/v1/nodes")

    def add_nodes(self, nodes: Iterable[dict[str, Any]]) -> None:
        """Creates nodes and waits until all of the cluster are ready."""
        for node in nodes:
            self.api("POST", "/api/v1/nodes", node)
        wait_for(lambda: all(map(is_ready, self.nodes())), "ready nodes")

    def pods(self, namespace: str | None = None) -> list[dict[str, Any]]:
        """Pods of a namespace, by default of the test's own."""
        return self.api.items(f"/api/v1/namespaces/{namespace or self.namespace}/pods")

    def process(self, component: str) -> psutil.Process:
        """The process of a component, such as etcd."""
        pid = next(found.pid for found in self.plane.components() if found.name == component)
        assert pid is not None, f"{component} does not run"
        return psutil.Process(pid)

    def restart(self, component: str) -> None:
        """Kills a component and starts it again on its data."""
        process = self.process(component)
        # Not by kwokctl: other components end when it is slow, since they have lost their leases.
        command, folder, environment = process.cmdline(), process.cwd(), process.environ()
        process.kill()
        psutil.wait_procs([process], timeout=10)
        with (self.plane.logs / f"{component}.log").open("ab") as log:
            subprocess.run(
                ["setsid", "--fork", *command], cwd=folder, env=environment, stdout=log, stderr=log, check=True
            )
        wait_for(self._is_ready, f"{component} and the API server")
        (self.plane.folder / "pids" / f"{component}.pid").write_text(str(self.process(component).pid))

    def _is_ready(self) -> bool:
        with contextlib.suppress(OSError, http.client.HTTPException), self.api.send("GET", "/readyz") as answer:
            return answer.status == 200
        return False

    def account(self, name: str, rules: Sequence[dict[str, Any]], folder: Path) -> Path:
        """Makes a service account with the rights of RBAC rules; returns a kubeconfig file with its bearer token."""
        api, group = self.api, "/apis/rbac.authorization.k8s.io/v1"
        accounts = f"/api/v1/namespaces/{self.namespace}/serviceaccounts"
        role = f"{self.namespace}-{name}"
        api("POST", accounts, {"metadata": {"name": name}})
        api("POST", f"{group}/clusterroles", {"metadata": {"name": role}, "rules": list(rules)})
        subject = {"kind": "ServiceAccount", "name": name, "namespace": self.namespace}
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
        binding = {"metadata": {"name": role}, "subjects": [subject], "roleRef": reference}
        api("POST", f"{group}/clusterrolebindings", binding)
        token = api("POST", f"{accounts}/{name}/token", {"spec": {"expirationSeconds": 3600}})["status"]["token"]
        config = yaml.safe_load(self.kubeconfig.read_text())
        config["users"][0]["user"] = {"token": token}
        path = folder / f"{name}.kubeconfig"
        path.write_text(yaml.safe_dump(config))
        return path

    def clear(self) -> None:
        """Deletes what the test has left; a large cluster is quicker made anew."""
        pods, nodes = self.api.items("/api/v1/pods"), self.nodes()
        if len(pods) > 1000 or len(nodes) > 200:
            self.plane.remove()
            return
        for namespace in {pod["metadata"]["namespace"] for pod in pods}:
            self.api("DELETE", f"/api/v1/namespaces/{namespace}/pods?gracePeriodSeconds=0")
        self.api("DELETE", "/api/v1/nodes")
        for collection in (
            "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases",
            "/apis/scheduling.k8s.io/v1/priorityclasses",
        ):
            for item in self.api.items(collection):
                if item["metadata"]["name"].startswith(("hdsim-", self.namespace)):
                    self.api("DELETE", f"{collection}/{item['metadata']['name']}")
        wait_for(lambda: not self.api.items("/api/v1/pods") and not self.nodes(), "an empty cluster")


@contextmanager
def exclusive_cluster(folder: Path, namespace: str) -> Iterator[Cluster]:
    """A cluster of a session of pytest for one test at a time: nodes have no namespace.

    Control planes are started as far as tests that run at the same time need them, at most :data:`PLANES`.

    Args:
        folder: Temporary folder of the session, the same for all its workers.
        namespace: Name of a namespace that the test gets.
    """
    with _free_plane(folder) as name:
        plane = ControlPlane(name, folder / "kwok")
        plane.up(folder / f"{name}.kubeconfig", default_scheduler=True)
        cluster = Cluster(plane, namespace)
        try:
            yield cluster
        finally:
            cluster.clear()


@contextmanager
def _free_plane(folder: Path) -> Iterator[str]:
    """The name of the first control plane that no other test has."""
    with contextlib.ExitStack() as stack:
        for number in itertools.cycle(range(PLANES)):
            lock = stack.enter_context((folder / f"tests-{number}.lock").open("w"))
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                stack.close()
                time.sleep(0.1 * (number == PLANES - 1))
        yield f"tests-{number}"
