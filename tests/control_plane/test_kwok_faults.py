"""Faults on a real API server in mid-run: every pod ends bound once, and the log says what happened.

Pods come meanwhile; a watch of its own checks at every revision that no pod changes its node and no node is
overcommitted.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kube import Cluster, fake_node, wait_for
from kube_faults import Creator, History, Proxy, Scheduler, ended, pod, told_by_events, wait_until
from tiers import nightly

pytestmark = pytest.mark.requires("kube")

NODES, CPU = ("a", "b", "c", "d"), 4
#: What a scheduler needs that gets its pods from the API server (docs/kubernetes.md).
RULES = [
    {"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["list", "watch"]},
    {"apiGroups": [""], "resources": ["pods/binding"], "verbs": ["create"]},
    {"apiGroups": [""], "resources": ["pods/status"], "verbs": ["patch"]},
    {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create"]},
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create", "get", "update"]},
]
#: Times of leader election for tests in which a leader ends without a word.
SHORT = (3.0, 2.5, 0.3)


def pods_of(number: int, seed: int = 1, *, seconds: float | None = 1.0) -> list[dict[str, Any]]:
    """Pods of several sizes, one that fits nowhere, and a gang among every twenty."""
    rng = random.Random(seed)
    made = [pod("infeasible", 640_000)]
    for index in range(number):
        if index % 20 == 10:
            made += [pod(f"gang-{index}-{i}", 500, seconds, f"gang-{index}", 3) for i in range(3)]
        duration = None if seconds is None else round(seconds * rng.uniform(0.5, 1.5), 2)
        made.append(pod(f"pod-{index:03}", rng.choice((500, 1000, 1500, 2000)), duration))
    return made


@contextmanager
def load(cluster: Cluster, pods: Sequence[dict[str, Any]], *, cpu: int = CPU, pause: float = 0.05) -> Iterator[History]:
    """Four nodes, pods that come one after another, and afterwards a look at everything that was seen of them."""
    cluster.add_nodes(fake_node(name, {"cpu": str(cpu)}) for name in NODES)
    history = History(cluster, dict.fromkeys(NODES, 1000 * cpu))
    creator = Creator(cluster, pods, pause)
    try:
        yield history
        creator.join()
    finally:
        history.stop()
    history.join()
    names = {body["metadata"]["name"] for body in pods}
    assert not history.faults, history.faults
    assert set(history.bound) == names
    assert {name for name, nodes in history.bound.items() if not nodes} == {"infeasible"}
    # The same by a list, for what a watch might have missed.
    after = {found["metadata"]["name"]: found["spec"].get("nodeName") for found in cluster.pods()}
    assert after == {name: nodes[0] if nodes else None for name, nodes in history.bound.items() if name in after}
    assert "infeasible" in told_by_events(cluster, "FailedScheduling")


def finish(history: History, pods: Sequence[dict[str, Any]], *schedulers: Scheduler) -> None:
    """Waits until all pods but the one that fits nowhere have succeeded."""
    names = {body["metadata"]["name"] for body in pods} - {"infeasible"}
    wait_until(history, lambda: names <= history.ended, "the end of all pods", schedulers)


@contextmanager
def scheduled(
    cluster: Cluster, folder: Path, pods: Sequence[dict[str, Any]], kubeconfig: Path | None = None, *, bound: int
) -> Iterator[tuple[History, Scheduler]]:
    """A load and its scheduler: from the time at which so many pods are bound until all have ended."""
    with load(cluster, pods) as history:
        scheduler = Scheduler(cluster, folder / "run", kubeconfig)
        with ended(scheduler):
            wait_until(history, lambda: history.on_nodes() >= bound, "some pods", [scheduler])
            yield history, scheduler
            finish(history, pods, scheduler)
            scheduler.end()


@pytest.mark.ci
def test_api_server_killed_and_restarted(cluster: Cluster, tmp_path: Path) -> None:
    kubeconfig = cluster.account("hdsim", RULES, tmp_path)
    with scheduled(cluster, tmp_path, pods_of(60), kubeconfig, bound=15) as (_, scheduler):
        cluster.restart("kube-apiserver")
    assert scheduler.told("pods: the watch is lost") and scheduler.told("nodes: the watch is lost")
    assert scheduler.told("the watch goes on after") or scheduler.told("listing again")


@pytest.mark.ci
def test_every_watch_dropped(cluster: Cluster, tmp_path: Path) -> None:
    proxy = Proxy(cluster.plane.server)
    kubeconfig = proxy.kubeconfig(cluster.kubeconfig, tmp_path / "proxied")
    with scheduled(cluster, tmp_path, pods_of(60), kubeconfig, bound=5) as (history, scheduler):
        for number in range(1, 6):
            goal = 5 * number
            wait_until(history, lambda goal=goal: history.on_nodes() >= goal, "some pods", [scheduler])
            proxy.cut()
            for watch in ("pods", "nodes"):
                back = f"{watch}: the watch goes on after"
                wait_for(lambda back=back, number=number: scheduler.log.read_text().count(back) >= number, back)
    proxy.close()
    log = scheduler.log.read_text()
    assert min(log.count("pods: the watch is lost"), log.count("nodes: the watch is lost")) >= 5


@pytest.mark.ci
def test_changes_that_no_watch_can_tell_any_more(cluster: Cluster, tmp_path: Path) -> None:
    pods = pods_of(30)
    proxy = Proxy(cluster.plane.server)
    kubeconfig = proxy.kubeconfig(cluster.kubeconfig, tmp_path / "proxied")
    with scheduled(cluster, tmp_path, pods, kubeconfig, bound=8) as (history, scheduler), proxy.blocked():
        wait_until(history, lambda: len(history.bound) >= len(pods), "the other pods", [scheduler])
        # A new API server has no events of the time before it: resource versions are too old (410).
        cluster.restart("kube-apiserver")
    proxy.close()
    assert scheduler.told("pods: the watch is lost") and scheduler.told("listing again")


@pytest.mark.nightly
def test_etcd_stopped_for_five_seconds(cluster: Cluster, tmp_path: Path) -> None:
    with scheduled(cluster, tmp_path, pods_of(60), bound=15) as (_, scheduler):
        etcd = cluster.process("etcd")
        etcd.suspend()
        time.sleep(5)
        etcd.resume()
    assert scheduler.told("answered after")


@pytest.mark.nightly
def test_node_deleted_while_pods_are_bound_to_it(cluster: Cluster, tmp_path: Path) -> None:
    with scheduled(cluster, tmp_path, pods_of(60), bound=1) as (history, scheduler):
        wait_until(
            history,
            lambda: sum(nodes == ["b"] for nodes in list(history.bound.values())) >= 3,
            "pods on b",
            [scheduler],
        )
        cluster.api("DELETE", "/api/v1/nodes/b")
        scheduler.wait_until_told("node b is deleted")
        others = history.on_nodes()
        wait_until(history, lambda: history.on_nodes() > others + 10, "pods on other nodes", [scheduler])
        cluster.api("POST", "/api/v1/nodes", fake_node("b"))
        scheduler.wait_until_told("node b is back")


@pytest.mark.parametrize("moments", [3, *nightly(10)])
@pytest.mark.ci
def test_scheduler_killed_at_random_moments(cluster: Cluster, tmp_path: Path, moments: int) -> None:
    rng = random.Random(7)
    pods = pods_of(30 * moments, seconds=None)
    with load(cluster, pods, cpu=200, pause=0.15) as history:
        for number in range(moments):
            scheduler = Scheduler(cluster, tmp_path / str(number), election=SHORT)
            with ended(scheduler):
                goal = min(history.on_nodes() + rng.choice((0, 1, 3, 10)), len(pods) - 1)
                # Some moments are in the start of the process, or while it waits for the lease of the one before.
                wait_for(lambda goal=goal: history.on_nodes() >= goal, "a few pods")
                time.sleep(rng.uniform(0, 0.3))
        last = Scheduler(cluster, tmp_path / "last", election=SHORT)
        with ended(last):
            wait_until(history, lambda: history.on_nodes() == len(pods) - 1, "all pods", [last])
            last.wait_until_told("pods are bound already")
            last.end()


@pytest.mark.ci
def test_gangs_bound_in_part_are_completed(cluster: Cluster, tmp_path: Path) -> None:
    """The scheduler before has ended between the bindings of a gang, before or after those of any other member."""
    pods = [pod("infeasible", 640_000)]
    pods += [pod(f"gang-{left}-{i}", 500, None, f"gang-{left}", 3) for left in range(3) for i in range(3)]
    with load(cluster, pods) as history:
        for left in range(3):
            for member in {0, 1, 2} - {left}:
                name = f"gang-{left}-{member}"
                wait_until(history, lambda name=name: name in history.bound, name)
                body = {"metadata": {"name": name}, "target": {"kind": "Node", "name": NODES[member]}}
                cluster.api("POST", f"/api/v1/namespaces/{cluster.namespace}/pods/{name}/binding", body)
        scheduler = Scheduler(cluster, tmp_path / "run")
        with ended(scheduler):
            wait_until(history, lambda: history.on_nodes() == 9, "all members", [scheduler])
            assert "6 pods are bound already" in scheduler.end()


@pytest.mark.parametrize("end", [signal.SIGKILL, *nightly(signal.SIGSTOP)], ids=["killed", "stopped"])
@pytest.mark.ci
def test_second_scheduler_takes_over(cluster: Cluster, tmp_path: Path, end: signal.Signals) -> None:
    pods = pods_of(80)
    with load(cluster, pods, pause=0.1) as history:
        first = Scheduler(cluster, tmp_path / "1", election=SHORT)
        with ended(first):
            wait_until(history, lambda: history.on_nodes() >= 1, "a pod", [first])
            second = Scheduler(cluster, tmp_path / "2", election=SHORT)
            with ended(second):
                second.wait_until_told("waiting for it")
                first.process.send_signal(end)
                second.wait_until_told("is taken over")
                pods.append(pod("late", 500, 1.0))
                assert cluster.api.request("POST", f"/api/v1/namespaces/{cluster.namespace}/pods", pods[-1])[0] in (
                    201,
                    409,
                )
                wait_until(history, lambda: bool(history.bound.get("late")), "a pod of the second", [second])
                if end == signal.SIGSTOP:
                    first.process.send_signal(signal.SIGCONT)
                    assert first.process.wait() == 1
                    assert first.told("is lost, another scheduler may bind pods now"), first.log.read_text()
                finish(history, pods, second)
                second.end()
