"""Permissions, credentials and sockets of backend kwok on a real API server with TLS, bearer tokens and RBAC."""

from __future__ import annotations

import base64
import copy
import http.client
import itertools
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from aiohttp import ClientTimeout
from kube import Api, Cluster, fake_node, wait_for

from hdsim.errors import BackendError, ConfigError
from hdsim.kubernetes.connection import Connection

ROOT = Path(__file__).resolve().parents[2]
MANIFESTS = ROOT / "deploy/kubernetes"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
NAMESPACE = "hdsim"
NODES = [fake_node("node-0"), fake_node("node-1")]
Document = dict[str, Any]
Hdsim = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = pytest.mark.requires("kube")


def documents(name: str) -> list[Document]:
    """Objects of a manifest."""
    return list(yaml.safe_load_all((MANIFESTS / name).read_text()))


def path_of(document: Document) -> str:
    """Path of an object on the API server."""
    kind, version = document["kind"], document["apiVersion"]
    root = f"/api/{version}" if version == "v1" else f"/apis/{version}"
    namespace = document["metadata"].get("namespace")
    place = f"/namespaces/{namespace}" if namespace else ""
    return f"{root}{place}/{kind.lower()}s/{document['metadata']['name']}"


def apply(api: Api, document: Document, query: str = "") -> Document:
    """Applies an object on the side of the server, which refuses unknown fields."""
    path = f"{path_of(document)}?fieldManager=tests&force=true&fieldValidation=Strict{query}"
    with api.send("PATCH", path, document, "apply-patch+yaml") as answer:
        content = json.loads(answer.read())
        assert answer.status in (200, 201), content
        assert answer.getheader("Warning") is None, answer.getheader("Warning")
    return dict(content)


class Deployment:
    """The objects of rbac.yaml and submit.yaml on the API server, and a token of their service account.

    Attributes:
        api: The administrator.
        account: The service account.
        token: Its token.
        kubeconfig: File with the token.
    """

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.api, self.cluster, self.folder = cluster.api, cluster, folder
        for document in documents("rbac.yaml"):
            apply(self.api, document)
        default = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default"
        wait_for(lambda: self.api.request("GET", default)[0] == 200, "the default account of the namespace")
        request = {"spec": {"expirationSeconds": 3600}}
        path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/hdsim/token"
        self.token: str = self.api("POST", path, request)["status"]["token"]
        self.kubeconfig = self.write({"token": self.token})
        self.account = Api(self.kubeconfig)

    def write(self, user: Document, name: str = "kubeconfig", **cluster: str) -> Path:
        """Writes a kubeconfig file with a user."""
        config = yaml.safe_load(self.cluster.kubeconfig.read_text())
        config["users"][0]["user"] = user
        config["clusters"][0]["cluster"] |= cluster
        path = self.folder / name
        path.write_text(yaml.safe_dump(config))
        return path

    def may(self, verb: str, resource: str, group: str = "", namespace: str = "", name: str = "") -> bool:
        """Whether the service account has a permission."""
        resource, _, subresource = resource.partition("/")
        attributes = {
            "verb": verb,
            "group": group,
            "resource": resource,
            "subresource": subresource,
            "namespace": namespace,
            "name": name,
        }
        body = {"spec": {"resourceAttributes": attributes}}
        reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        return bool(self.account("POST", reviews, body)["status"]["allowed"])

    def pods(self, number: int, start: int = 0) -> None:
        """Creates pods for hdsim."""
        for index in range(start, start + number):
            requests = {"resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
            spec = {"schedulerName": "hdsim", "containers": [{"name": "main", "image": "none", **requests}]}
            path = f"/api/v1/namespaces/{self.cluster.namespace}/pods"
            self.api("POST", path, {"metadata": {"name": f"pod-{index}"}, "spec": spec})


@pytest.fixture
def deployed(cluster: Cluster, tmp_path: Path) -> Iterator[Deployment]:
    deployment = Deployment(cluster, tmp_path)
    yield deployment
    for document in [*documents("rbac.yaml"), *documents("submit.yaml")]:
        if document["kind"] != "Namespace":
            cluster.api.request("DELETE", path_of(document))


def command(kubeconfig: Path | str, *overrides: str) -> list[str]:
    """Arguments of a run that schedules the pods of a cluster."""
    return [
        "run",
        "backend=kwok",
        f"backend.kubeconfig={kubeconfig}",
        f"backend.namespace={NAMESPACE}",
        "backend.stop_when_idle=1",
        "workload=cluster",
        "agent=least_allocated",
        "hydra.run.dir=run",
        *overrides,
    ]


@contextmanager
def started(arguments: list[str], folder: Path, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """Runs hdsim in a process of its own, which ends with the block."""
    folder.mkdir(exist_ok=True)
    with subprocess.Popen(
        [sys.executable, "-m", "hdsim", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        text=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


def test_the_manifests_are_accepted(deployed: Deployment) -> None:
    """The API server checks kinds, fields and values; PodSecurity checks the pod of the Deployment."""
    for document in [*documents("submit.yaml"), *documents("podgroups.yaml"), *documents("deployment.yaml")]:
        apply(deployed.api, document, "&dryRun=All")
    (template,) = (d["spec"]["template"] for d in documents("deployment.yaml") if d["kind"] == "Deployment")
    namespace = deployed.cluster.namespace
    labels = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    deployed.api("PATCH", f"/api/v1/namespaces/{namespace}", labels, "merge-patch+json")
    spec = {**template["spec"], "serviceAccountName": "default"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "hdsim"}, "spec": spec}
    path = f"/api/v1/namespaces/{namespace}/pods?dryRun=All&fieldValidation=Strict"
    deployed.api("POST", path, pod)
    spec["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
    status, answer = deployed.api.request("POST", path, pod)
    assert status == 403 and "PodSecurity" in answer["message"]
    names = {path.name for path in MANIFESTS.glob("*.yaml")}
    assert names == {"rbac.yaml", "submit.yaml", "podgroups.yaml", "deployment.yaml", "kustomization.yaml"}
    assert set(documents("kustomization.yaml")[0]["resources"]) <= names


@pytest.mark.ci
def test_the_role_suffices_and_permits_nothing_else(deployed: Deployment, hdsim: Hdsim, tmp_path: Path) -> None:
    deployed.cluster.add_nodes(NODES[:2])
    deployed.pods(9)
    done = hdsim(*command(deployed.kubeconfig))
    assert done.returncode == 0, done.stderr
    nodes = [pod["spec"].get("nodeName") for pod in deployed.cluster.pods()]
    assert sorted(map(str, nodes)) == ["None", *["node-0"] * 4, *["node-1"] * 4]
    events = deployed.api.items(f"/apis/events.k8s.io/v1/namespaces/{deployed.cluster.namespace}/events")
    reasons = [event["reason"] for event in events if event["reportingController"] == "hdsim"]
    assert reasons.count("Scheduled") == 8 and "FailedScheduling" in reasons
    leases = deployed.api.items("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases")
    assert [each["metadata"]["name"] for each in leases if "hdsim" in each["metadata"]["name"]] == ["hdsim-hdsim"]
    for verb, resource in itertools.product(
        ("get", "list", "create", "update", "patch", "delete"),
        ("secrets", "configmaps", "nodes", "pods", "pods/status"),
    ):
        assert deployed.may(verb, resource) == (
            (verb, resource) in {("list", "nodes"), ("list", "pods"), ("patch", "pods/status")}
        )
    assert not deployed.may("update", "leases", "coordination.k8s.io", "kube-system", "another")
    assert not deployed.may("create", "leases", "coordination.k8s.io", "default")


def rules(*files: str) -> Iterator[tuple[Document, int, str]]:
    """Roles, each with the place of a rule and one of its verbs."""
    for document in itertools.chain.from_iterable(map(documents, files)):
        for index, rule in enumerate(document.get("rules", [])):
            for verb in rule["verbs"]:
                yield document, index, verb


def without(role: Document, index: int, verb: str) -> Document:
    """The role without a verb of one of its rules."""
    reduced = copy.deepcopy(role)
    rule = reduced["rules"][index]
    rule["verbs"].remove(verb)
    if not rule["verbs"]:
        del reduced["rules"][index]
    return reduced


def expected(role: Document, index: int, verb: str) -> str:
    """The rule that a message must name."""
    rule = role["rules"][index]
    names = f', resourceNames: ["{rule["resourceNames"][0]}"]' if "resourceNames" in rule else ""
    return f'{{apiGroups: ["{rule["apiGroups"][0]}"], resources: ["{rule["resources"][0]}"]{names}, verbs: ["{verb}"]}}'


@pytest.mark.ci
def test_each_missing_permission_is_one_clear_error(deployed: Deployment, hdsim: Hdsim) -> None:
    deployed.cluster.add_nodes(NODES[:1])
    deployed.pods(1)
    for role, index, verb in rules("rbac.yaml"):
        rule = role["rules"][index]
        question = verb, rule["resources"][0], rule["apiGroups"][0], role["metadata"].get("namespace", "")
        name = rule.get("resourceNames", [""])[0]
        apply(deployed.api, without(role, index, verb))
        wait_for(lambda asked=(*question, name): not deployed.may(*asked), "the change of a role")
        done = hdsim(*command(deployed.kubeconfig))
        apply(deployed.api, role)
        assert done.returncode == 2, (question, done.stderr)
        (line,) = done.stderr.splitlines()
        assert f"{verb} {rule['resources'][0]}" in line
        assert expected(role, index, verb) in line
        assert str(deployed.kubeconfig) in line
        assert not deployed.cluster.pods()[0]["spec"].get("nodeName")
        wait_for(lambda asked=(*question, name): deployed.may(*asked), "the role again")
    done = hdsim(*command(deployed.kubeconfig))
    assert done.returncode == 0, done.stderr


@pytest.mark.ci
def test_submission_needs_the_optional_role(deployed: Deployment, hdsim: Hdsim, tmp_path: Path) -> None:
    deployed.cluster.add_nodes(NODES[:2])
    trace = tmp_path / "trace.json"
    jobs = [
        {"id": f"{job}", "subtime": job, "res": 1, "profile": "p", "kubernetes": {"priority": 5}} for job in range(3)
    ]
    trace.write_text(json.dumps({"nb_res": 8, "jobs": jobs, "profiles": {"p": {"type": "delay", "delay": 2}}}))
    run = [*command(deployed.kubeconfig), f"workload.path={trace}", "backend.clock=virtual"]
    run.remove("workload=cluster")
    done = hdsim(*run)
    assert done.returncode == 2, done.stderr
    lines = done.stderr.splitlines()
    for role, index, verb in rules("submit.yaml"):
        assert sum(expected(role, index, verb) in line for line in lines) == 1, (verb, done.stderr)
    for document in documents("submit.yaml"):
        apply(deployed.api, document)
    wait_for(lambda: deployed.may("delete", "pods", namespace=NAMESPACE), "the roles")
    done = hdsim(*run)
    assert done.returncode == 0, done.stderr


@pytest.mark.ci
def test_pods_that_are_refused_end_a_run(deployed: Deployment, hdsim: Hdsim, tmp_path: Path) -> None:
    """Their jobs would be missing from the results otherwise."""
    deployed.cluster.add_nodes(NODES[:1])
    namespace = deployed.cluster.namespace
    labels = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    deployed.api("PATCH", f"/api/v1/namespaces/{namespace}", labels, "merge-patch+json")
    options = [f"backend.namespace={namespace}", "workload.path=even_1000", "workload.jobs=2", "platform=cluster"]
    done = hdsim(*[word for word in command(deployed.cluster.kubeconfig) if word != "workload=cluster"], *options)
    assert done.returncode == 1, done.stderr
    assert 'create pods: pods "job-0" is forbidden: violates PodSecurity' in done.stderr


@pytest.mark.ci
def test_a_permission_that_is_lost_ends_a_run(deployed: Deployment, tmp_path: Path) -> None:
    deployed.cluster.add_nodes(NODES[:1])
    deployed.pods(1)
    with started(command(deployed.kubeconfig, "backend.stop_when_idle=null"), tmp_path) as process:
        wait_for(lambda: deployed.cluster.pods()[0]["spec"].get("nodeName"), "the first binding")
        for role, index, verb in rules("rbac.yaml"):
            if role["rules"][index]["resources"] == ["pods/binding"]:
                apply(deployed.api, without(role, index, verb))
        wait_for(lambda: not deployed.may("create", "pods/binding"), "the change of a role")
        deployed.pods(1, start=1)
        _, stderr = process.communicate()
    assert process.returncode == 1
    assert "create pods/binding" in stderr and 'resources: ["pods/binding"], verbs: ["create"]' in stderr
    assert "Traceback" not in stderr


def secrets_of(deployed: Deployment) -> set[str]:
    """Strings that must appear nowhere: of the token, and of the administrator's key."""
    config = yaml.safe_load(deployed.cluster.kubeconfig.read_text())
    key = Path(config["users"][0]["user"]["client-key"]).read_text()
    lines = [line for line in key.splitlines() if len(line) >= 40 and "-----" not in line]
    _, payload, signature = deployed.token.split(".")
    return {payload, signature, base64.b64encode(signature.encode()).decode()[:40], lines[1]}


def leaks(secrets: set[str], texts: dict[str, str]) -> list[str]:
    """Names of the texts that contain a secret."""
    return [name for name, text in texts.items() if any(secret in text for secret in secrets)]


def files(folder: Path) -> dict[str, str]:
    """Files of a folder."""
    found = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_text(errors="replace") for path in found}


class Silent:
    """A server that accepts connections and never answers."""

    def __enter__(self) -> str:
        self._socket = socket.create_server(("127.0.0.1", 0))
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def __exit__(self, *_: object) -> None:
        self._socket.close()


def test_the_time_out_holds_while_a_connection_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # aiohttp has a limit of its own for a connection and its TLS, 30 s, shortened here.
    monkeypatch.setattr("aiohttp.client.DEFAULT_TIMEOUT", ClientTimeout(total=None, sock_connect=0.1))
    with Silent() as server:
        entry = {"server": server.replace("http:", "https:"), "insecure-skip-tls-verify": True}
        config = {"clusters": [{"name": "c", "cluster": entry}], "users": [{"name": "u", "user": {"token": "t"}}]}
        config |= {"current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]}
        (tmp_path / "config").write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", **config}))
        told = pytest.raises(BackendError, match="list nodes: no answer within 1 s")
        with Connection(tmp_path / "config", timeout=1.0) as connection, told:
            begin = time.monotonic()
            try:
                connection.get("/api/v1/nodes")
            finally:
                assert time.monotonic() - begin >= 1.0


@pytest.mark.ci
def test_credentials_appear_nowhere(deployed: Deployment, hdsim: Hdsim, tmp_path: Path) -> None:
    secrets, token = secrets_of(deployed), deployed.token
    payload = token.split(".")[1]
    deployed.cluster.add_nodes(NODES[:1])
    deployed.pods(2)
    texts: dict[str, str] = {}

    def run(name: str, arguments: list[str], status: int, **options: Any) -> None:
        done = hdsim(*arguments, **options)
        assert done.returncode == status, (name, done.stderr)
        assert "Traceback" not in done.stderr
        texts[f"{name}: stdout"], texts[f"{name}: stderr"] = done.stdout, done.stderr
        for path, text in files(tmp_path / "run").items():
            texts[f"{name}: {path}"] = text

    run("a run", command(deployed.kubeconfig), 0)
    assert {".hydra/config.yaml", "manifest.json", "pods.csv"} <= {name.partition(": ")[2] for name in texts}
    run("the administrator's run", command(deployed.cluster.kubeconfig), 0)
    run("configuration", [*command(deployed.kubeconfig), "--cfg", "job"], 0)
    run("help", ["run", "--help"], 0)
    # Credentials that are not accepted, or not permitted to do anything.
    header, _, signature = token.split(".")
    run("401", command(deployed.write({"token": f"{header}.{payload}.{signature[::-1]}"}, "wrong")), 1)
    for document in documents("rbac.yaml"):
        if document["kind"] == "ClusterRoleBinding":
            deployed.api("DELETE", path_of(document))
    wait_for(lambda: not deployed.may("list", "pods"), "the removal of the binding")
    run("403", command(deployed.kubeconfig), 2)
    for verb in ("load", "nodes --count 1", "clean", "top --once", f"record --output {tmp_path / 'recording'}"):
        run(f"403: {verb}", ["kwok", *verb.split(), "--kubeconfig", str(deployed.kubeconfig)], 1)
    with Silent() as server:
        run("time-out", command(deployed.write({"token": token}, "silent", server=server), "backend.timeout=1"), 1)
    with Silent() as server:
        pass
    run("no server", command(deployed.write({"token": token}, "none", server=server), "backend.timeout=2"), 1)
    address = f"https://hdsim:{signature}@127.0.0.1:1"
    run("an address with a password", command(deployed.write({"token": token}, "address", server=address)), 2)
    # Files that cannot be read, and plug-ins that print what they should not.
    broken = tmp_path / "broken"
    broken.write_text(f"users:\n- user: {{token: {token}\n  - x: [")
    run("broken YAML", command(broken), 2)
    broken.write_text(f'{{"users": "{token}", "clusters": "{token}", "current-context": "{token}"}}')
    run("no clusters", command(broken), 2)
    for name, script in {
        "a plug-in that fails": f"echo {token} >&2; echo {token}; exit 1",
        "a plug-in without JSON": f'echo \'{{"token": "{token}\'',
    }.items():
        plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": ["-c", script]}
        run(name, command(deployed.write({"exec": {**plugin, "interactiveMode": "Never"}}, "plugin")), 2)
    # What other clients see.
    for collection in (
        "/api/v1/pods",
        "/api/v1/nodes",
        "/apis/events.k8s.io/v1/events",
        "/apis/coordination.k8s.io/v1/leases",
    ):
        texts[collection] = json.dumps(deployed.api("GET", collection))
    assert leaks(secrets, {"itself": token, "key": "".join(secrets)}) == ["itself", "key"]
    assert not leaks(secrets, texts)


@pytest.mark.ci
def test_the_service_account_of_a_pod(deployed: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a pod there is no kubeconfig, but files with the token and the certificate of the API server."""
    from kubernetes.aio.config import incluster_config

    from hdsim.kubernetes.connection import Connection

    cluster = yaml.safe_load(deployed.cluster.kubeconfig.read_text())["clusters"][0]["cluster"]
    host, port = cluster["server"].removeprefix("https://").split(":")
    (tmp_path / "token").write_text(deployed.token)
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", cluster["certificate-authority"])
    monkeypatch.setattr("kubernetes.aio.config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "none"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
    with Connection() as connection:
        assert connection.user == "credentials of the service account of this pod"
        assert connection.get("/api/v1/pods")["items"] == []
        with pytest.raises(BackendError, match="of the service account of this pod do not permit it") as caught:
            connection.get("/api/v1/secrets")
    assert not leaks(secrets_of(deployed), {"message": str(caught.value)})
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST")
    with pytest.raises(ConfigError, match="nor has this machine the service account of a pod"):
        Connection()


@pytest.mark.ci
def test_tracebacks_for_developers_have_no_credentials(
    deployed: Deployment, hdsim: Hdsim, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HDSIM_DEBUG", "1")
    header, payload, signature = deployed.token.split(".")
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "sh",
        "args": ["-c", f"echo {deployed.token} >&2; exit 1"],
    }
    for name, user, said in (
        ("wrong", {"token": f"{header}.{payload}.{signature[::-1]}"}, "are not valid, or have expired"),
        ("plugin", {"exec": plugin}, "expected credentials from the plug-in 'sh'"),
    ):
        done = hdsim(*command(deployed.write(user, name)))
        assert done.returncode == 1
        assert "Traceback" in done.stderr and said in done.stderr
        assert not leaks(secrets_of(deployed), {"stdout": done.stdout, "stderr": done.stderr})


@pytest.mark.ci
def test_hdsim_listens_on_the_loopback_interface(deployed: Deployment, tmp_path: Path) -> None:
    """By default; the Deployment names another address, because the probes of a kubelet come from outside the pod."""
    deployed.cluster.add_nodes(NODES[:1])
    arguments = command(deployed.kubeconfig, "backend.metrics_port=0", "backend.stop_when_idle=null")
    with started(arguments, tmp_path) as process:
        seen = psutil.Process(process.pid)
        listening = wait_for(
            lambda: [c for c in seen.net_connections("inet") if c.status == psutil.CONN_LISTEN], "a socket"
        )
        assert [connection.laddr.ip for connection in listening] == ["127.0.0.1"]
        assert not any(deployed.token in argument for argument in seen.cmdline())


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def page(port: int, name: str) -> tuple[int, str]:
    """Status and text of a page of a scheduler, status 0 while nothing listens."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    try:
        connection.request("GET", f"/{name}")
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    except ConnectionError:
        return 0, ""
    finally:
        connection.close()


@pytest.mark.ci
def test_the_replicas_of_the_deployment(deployed: Deployment, tmp_path: Path) -> None:
    """The command of the container and its probes: one replica leads, the other one is ready and takes over."""
    deployed.cluster.add_nodes(NODES[:1])
    deployed.pods(1)
    (template,) = (d["spec"]["template"] for d in documents("deployment.yaml") if d["kind"] == "Deployment")
    (container,) = template["spec"]["containers"]
    paths = {container[probe]["httpGet"]["path"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert paths == {"/healthz", "/readyz"}
    first, second = free_port(), free_port()

    def replica(port: int) -> AbstractContextManager[subprocess.Popen[str]]:
        own = ["backend.metrics_host=127.0.0.1", f"backend.metrics_port={port}"]
        return started([*container["args"], *own], tmp_path / str(port), KUBECONFIG=str(deployed.kubeconfig))

    def is_bound(index: int) -> bool:
        return bool(deployed.cluster.pods()[index]["spec"].get("nodeName"))

    with replica(first) as leader, ExitStack() as later:
        wait_for(lambda: is_bound(0), "the first replica")
        later.enter_context(replica(second))
        wait_for(lambda: page(second, "readyz")[0] == 200, "the second replica")
        assert page(first, "healthz")[0] == page(second, "healthz")[0] == 200
        assert "hdsim_leader 1.0" in page(first, "metrics")[1]
        assert "hdsim_leader 0.0" in page(second, "metrics")[1]
        leader.terminate()
        assert leader.wait() == 0
        deployed.pods(1, start=1)
        wait_for(lambda: is_bound(1), "the other leader")
        assert "hdsim_leader 1.0" in page(second, "metrics")[1]
