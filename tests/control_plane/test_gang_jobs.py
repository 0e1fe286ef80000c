"""Tasks of a gang as Kubernetes Jobs: a real API server and job controller, real ZooKeeper and stress-ng.

Kwok marks pods as running and executes nothing, so a small kubelet of this file executes their containers as processes.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kube import Cluster, fake_node, wait_for

from hdsim.gangs.real.server import Server

ROOT = Path(__file__).resolve().parents[2]
TASKS = ("cap", "vecmath")

pytestmark = pytest.mark.requires("kube", "zookeeper", "stress-ng")


class Kubelet:
    """Executes the containers of the running pods of a namespace, and tells the API server how they end.

    Attributes:
        limits: CPU limit of each container that was executed, by name of its Job.
        processes: Those that run, by name of their pods.
    """

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster, self._folder = cluster, folder
        self.limits: dict[str, str] = {}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._stop = threading.Event()

    @contextmanager
    def running(self) -> Iterator[Kubelet]:
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            thread.join()
            for process in self.processes.values():
                self._end(process)

    def _run(self) -> None:
        started: set[str] = set()
        while not self._stop.wait(0.1):
            pods = {pod["metadata"]["name"]: pod for pod in self.cluster.pods()}
            for name, pod in pods.items():
                if name not in started and pod["status"]["phase"] == "Running":
                    started.add(name)
                    self._start(name, pod)
            for name, process in list(self.processes.items()):
                if name not in pods or "deletionTimestamp" in pods[name]["metadata"]:
                    self._end(self.processes.pop(name))
                elif process.poll() is not None:
                    del self.processes[name]
                    path = f"/api/v1/namespaces/{self.cluster.namespace}/pods/{name}/status"
                    phase = "Failed" if process.returncode else "Succeeded"
                    self.cluster.api("PATCH", path, {"status": {"phase": phase}}, "merge-patch+json")

    def _start(self, name: str, pod: dict[str, Any]) -> None:
        container, folder = pod["spec"]["containers"][0], self._folder / name
        folder.mkdir(parents=True)
        assert container["resources"]["requests"] == container["resources"]["limits"]
        self.limits[pod["metadata"]["labels"]["job-name"]] = container["resources"]["limits"]["cpu"]
        # A container has a working directory of its own.
        command = [f"--folder={folder}" if word.startswith("--folder=") else word for word in container["command"]]
        with (folder / "log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                command,
                cwd=folder,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @staticmethod
    def _end(process: subprocess.Popen[bytes]) -> None:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def arguments(folder: Path, *overrides: str) -> list[str]:
    """A run of two tasks whose profile is a guess; shares change every second superstep."""
    profile = folder / "guess.csv"
    lines = ["Task Name, Workload Size, CPU Shares, Duration"]
    lines += [
        f"{task}, {size}, {share}, {slowness * size / share:.4f}"
        for task, slowness in zip(TASKS, (1, 1.2), strict=True)
        for share in (200, 400, 600, 800)
        for size in (10, 25, 40, 50)
    ]
    profile.write_text("\n".join(lines) + "\n")
    tasks = "+tasks={cap: nyc_taxi_1, vecmath: art_daily_small_noise}"
    return [
        "bsp",
        "run",
        "runner=kubernetes",
        f"profile={profile}",
        "~tasks",
        tasks,
        "stressors.operations={cap: 700, vecmath: 35}",
        "shares.start=200",
        "shares.total=1000",
        "shares.increment=50",
        "supersteps=8",
        "start=14",
        "penalty=0.1",
        "controller=static_window",
        "controller.window=2",
        "forecasts=actual",
        "hydra.run.dir=run",
        *overrides,
    ]


@pytest.mark.ci
def test_jobs_are_made_anew_with_the_planned_limits(cluster: Cluster, tmp_path: Path) -> None:
    cluster.add_nodes([fake_node("a"), fake_node("b")])
    (tmp_path / "logs").mkdir()
    with (
        Server(tmp_path / "zookeeper", tmp_path / "logs" / "zookeeper.log") as server,
        Kubelet(cluster, tmp_path / "pods").running() as kubelet,
    ):
        command = arguments(
            tmp_path,
            f"zookeeper={server.address}",
            f"runner.kubeconfig={cluster.kubeconfig}",
            "runner.image=hdsim",
            f"runner.namespace={cluster.namespace}",
            f"runner.python={sys.executable}",
        )
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        process = subprocess.Popen(
            [sys.executable, "-m", "hdsim", *command], cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True
        )
        journal = tmp_path / "run" / "journal.jsonl"
        wait_for(lambda: journal.exists() and '"superstep": 0' in journal.read_text(), "a superstep")
        # Shares stay in superstep 1, so that it is executed now.
        os.killpg(next(iter(kubelet.processes.values())).pid, signal.SIGKILL)
        errors = process.communicate()[1]
    assert process.returncode == 0, errors
    entries = [json.loads(line) for line in journal.read_text().splitlines()]
    supersteps = [entry for entry in entries if "tasks" in entry]
    assert [entry["superstep"] for entry in supersteps] == list(range(8))
    assert all(list(entry["tasks"]) == list(TASKS) for entry in supersteps)
    assert any("fault" in entry for entry in entries)
    assert len({tuple(entry["shares"]) for entry in supersteps}) > 1
    root = next(entry["root"] for entry in entries if "root" in entry).rpartition("/")[2]
    for entry in supersteps:
        for report, share in zip(entry["tasks"].values(), entry["shares"], strict=True):
            assert kubelet.limits[f"hdsim-{root}-{report['member']}"] == f"{share}m"
    assert not cluster.pods()
    assert not cluster.api.items(f"/apis/batch/v1/namespaces/{cluster.namespace}/jobs")


@pytest.mark.ci
def test_mistakes(cluster: Cluster, tmp_path: Path, hdsim: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    account = cluster.account("reader", [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}], tmp_path)
    common = (f"runner.namespace={cluster.namespace}", "runner.image=hdsim", f"runner.kubeconfig={account}")
    for overrides, words in (
        (("runner.image=null", "zookeeper=127.0.0.1:2181"), "runner.image: expected an image"),
        ((*common,), "zookeeper: expected host:port of a server that the pods of the cluster reach"),
        ((*common, "zookeeper=127.0.0.1:2181"), 'resources: ["jobs"], verbs: ["create"]'),
    ):
        done = hdsim(*arguments(tmp_path, *overrides))
        assert (done.returncode, words in done.stderr) == (2, True), done.stderr
