"""Faults of the API server, of etcd and of the scheduler: every pod ends bound exactly once, and the log says why."""

from __future__ import annotations

import contextlib
import os
import queue
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kube import Cluster, wait_for
from test_kwok_backend import check, create, events, make, node, pod, rows, running

from hdsim.kubernetes.cache import Cache
from hdsim.kubernetes.connection import Connection
from hdsim.kubernetes.objects import PodView
from hdsim.scheduling.agent import make_agent

pytestmark = pytest.mark.requires("kube")

PODS = 60
SMALL = {"requests": {"cpu": "100m", "memory": "64Mi"}}


@contextlib.contextmanager
def submitting(cluster: Cluster, seconds: float) -> Iterator[None]:
    """Creates pods meanwhile, again after each failure."""
    names = [f"pod-{i}" for i in range(PODS)]

    def submit() -> None:
        for name in names:
            time.sleep(seconds / PODS)
            while True:
                with contextlib.suppress(OSError):
                    status, _ = cluster.api.request(
                        "POST", f"/api/v1/namespaces/{cluster.namespace}/pods", pod(name, more=SMALL)
                    )
                    if status in (201, 409):
                        break
                time.sleep(0.2)

    thread = threading.Thread(target=submit)
    thread.start()
    try:
        yield
    finally:
        thread.join(timeout=120)
        assert not thread.is_alive()


def bindings_seen(cluster: Cluster) -> dict[str, list[str]]:
    """Nodes that each pod was told to be bound to, by the events."""
    return {name: [note.rpartition(" ")[2] for note in notes] for name, notes in events(cluster, "Scheduled").items()}


@pytest.mark.parametrize("fault", ["API server restarted", "etcd stopped"])
def test_faults_of_the_control_plane(
    cluster: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture, fault: str
) -> None:
    create(cluster, *(node(name, more={"pods": "110"}) for name in "abc"))
    election = {"lease": 40, "renew": 30, "retry": 1}
    with running(cluster, tmp_path, stop_when_idle=6.0, timeout=60.0, leader_election=election) as outcome:
        with submitting(cluster, 5.0):
            wait_for(lambda: len(check(cluster)) > 10, "some bound pods")
            if fault == "etcd stopped":
                etcd = cluster.process("etcd")
                etcd.send_signal(signal.SIGSTOP)
                time.sleep(5)
                etcd.send_signal(signal.SIGCONT)
            else:
                cluster.restart("kube-apiserver")
        wait_for(lambda: len(check(cluster)) == PODS, "all pods")
    assert not isinstance(outcome[0], BaseException), outcome[0]
    bound = check(cluster)
    assert all(nodes == [bound[name]] for name, nodes in bindings_seen(cluster).items())
    assert {name: row["node"] for name, row in rows(tmp_path / "pods.csv").items()} == bound
    if fault == "API server restarted":
        assert "pods: the watch is lost" in caplog.text and "pods: the watch goes on" in caplog.text


def test_a_scheduler_that_is_killed_at_any_moment(
    cluster: Cluster, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    create(cluster, *(node(name, more={"pods": "110"}) for name in "abc"))
    command = [
        sys.executable, "-m", "hdsim", "run", "backend=kwok", "workload=cluster", "agent=least_allocated",
        f"backend.kubeconfig={cluster.kubeconfig}", f"backend.namespace={cluster.namespace}",
        "backend.leader_election={enabled: true, lease: 4, renew: 3, retry: 0.5}",
    ]  # fmt: skip
    rng = random.Random(1)
    processes: list[subprocess.Popen[bytes]] = []
    request.addfinalizer(lambda: [process.kill() for process in processes])

    def start(number: int, *more: str) -> subprocess.Popen[bytes]:
        folder = tmp_path / str(number)
        folder.mkdir()
        environment = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parent.parent)}
        options: dict[str, Any] = {"cwd": folder, "env": environment, "stdout": subprocess.DEVNULL}
        processes.append(subprocess.Popen([*command, "hydra.run.dir=run", *more], **options))
        return processes[-1]

    with submitting(cluster, 10.0):
        for number in range(3):
            process = start(number, "backend.stop_when_idle=null")
            goal = len(check(cluster)) + rng.randint(1, 8)
            wait_for(lambda goal=goal: len(check(cluster)) >= min(goal, PODS), "some bound pods")
            process.kill()
            process.wait()
    before = check(cluster)
    process = start(9, "backend.stop_when_idle=null")
    create(cluster, pod("last", more=SMALL))
    wait_for(lambda: len(check(cluster)) == PODS + 1, "all pods")
    after = check(cluster)
    assert before.items() <= after.items()
    # An endless run ends in order by SIGTERM.
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 0
    table = rows(tmp_path / "9" / "run" / "pods.csv")
    assert {name: row["node"] for name, row in table.items()} == after
    assert {name for name, row in table.items() if row["attempts"] == "0"} == set(before)
    lease = f"/apis/coordination.k8s.io/v1/namespaces/{cluster.namespace}/leases/hdsim-hdsim"
    assert not cluster.api("GET", lease)["spec"].get("holderIdentity")


def test_what_a_watch_has_missed_is_found_by_a_list(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    create(cluster, pod("stays"), pod("goes"))
    news: queue.SimpleQueue[Any] = queue.SimpleQueue()
    pods = f"/api/v1/namespaces/{cluster.namespace}/pods"
    with Connection(str(cluster.kubeconfig)) as connection:
        cache = Cache(connection, "/api/v1/pods", PodView.of, news.put)
        connection.call(cache.start())
        assert {new.name for _, new in news.get(timeout=10)} >= {"stays", "goes"}
        # The watch ends, and what it missed is out of the history.
        connection.soon(cache._task.cancel)
        cluster.api("DELETE", f"{pods}/goes")
        create(cluster, pod("comes"))
        wait_for(lambda: {each["metadata"]["name"] for each in cluster.pods()} == {"stays", "comes"}, "the pods")
        cache._version = "1"
        connection.submit(cache._keep())
        changes: list[Any] = []
        wait_for(lambda: changes.extend([] if news.empty() else news.get()) or len(changes) >= 2, "the differences")
        assert {(old and old.name, new and new.name) for old, new in changes} == {("goes", None), (None, "comes")}
        assert "listing again" in caplog.text and cache.relists == 1
        create(cluster, pod("later"))
        assert [new.name for _, new in news.get(timeout=10)] == ["later"]


def test_a_binding_that_is_refused_is_tried_again(cluster: Cluster, tmp_path: Path) -> None:
    """A pod that another one binds at the same moment counts as running there, and its resources are held once."""
    create(cluster, node("a"), node("b"), pod("taken", "3"))
    backend = make(cluster)
    platform = backend.read_platform()

    agent = make_agent({"job_policy": "first", "core_policy": "least_allocated"})
    decide = agent.decide
    pods = f"/api/v1/namespaces/{cluster.namespace}/pods"

    def overtaken(state: Any) -> None:
        decide(state)
        if state.started and not check(cluster):
            target = {"apiVersion": "v1", "kind": "Node", "name": "b"}
            cluster.api("POST", f"{pods}/taken/binding", {"metadata": {"name": "taken"}, "target": target})
            create(cluster, pod("next", "3"))

    agent.decide = overtaken  # type: ignore[method-assign]
    result, facts = backend.run(platform, backend.read_workload(platform), agent, tmp_path, check=True)
    assert check(cluster) == {"taken": "b", "next": "a"}
    assert facts["pods_bound"] == 1
    assert len(result.failed_starts) == 1 and "another node" in result.failed_starts[0].reason
