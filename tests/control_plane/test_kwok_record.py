"""Recordings of kube-scheduler: the state before each binding is the one that an independent watch gives."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from test_kwok_load import GIB, NODE, PLATFORM
from training_setups import make_setup, run

if TYPE_CHECKING:
    from kube import Cluster

pytestmark = pytest.mark.requires("kube")


@pytest.fixture
def recorded(cluster: Cluster, tmp_path: Path) -> tuple[Path, list[dict[str, Any]]]:
    """A recording of pods that two processes create at the same time, and the events of a watch over the same time."""
    from kube import fake_node, wait_for

    cluster.add_nodes(fake_node(f"node-{index}", NODE) for index in range(4))
    common = ["--kubeconfig", str(cluster.kubeconfig)]

    def hdsim(*args: object) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "hdsim", "kwok", *map(str, args[:1]), *common, *map(str, args[1:])]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    # A pod that has its node before the recording, and one that is bound by no scheduler during it.
    placed = {
        "metadata": {"name": "placed"},
        "spec": {
            "nodeName": "node-2",
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}],
        },
    }
    pods = f"/api/v1/namespaces/{cluster.namespace}/pods"
    cluster.api("POST", pods, placed)
    version = cluster.api("GET", "/api/v1/pods")["metadata"]["resourceVersion"]
    path = tmp_path / "recording.jsonl"
    recording = hdsim("record", "-o", path)
    wait_for(lambda: path.exists() and path.read_bytes().count(b"\n") >= 2, "the begin of the recording")
    placed["metadata"]["name"] = "placed-later"
    cluster.api("POST", pods, placed)
    loads = [
        hdsim(
            "load",
            "--namespace",
            cluster.namespace,
            "--scheduler-name",
            "default-scheduler",
            "--pods",
            "--name",
            name,
            "--cpu",
            "250m,500m",
            "--replicas",
            "2-4",
            "--cpu-load",
            0.6,
            "--memory-load",
            1,
            "--pod-load",
            1,
            "--duration",
            1,
            "--seed",
            seed,
            "--rate",
            25,
        )
        for seed, name in enumerate(("left", "right"))
    ]
    for process in loads:
        _, failed = process.communicate(timeout=120)
        assert process.returncode == 0, failed
    wait_for(lambda: all(ended(pod) for pod in cluster.pods() if "placed" not in pod["metadata"]["name"]), "the pods")
    recording.send_signal(signal.SIGINT)
    told, failed = recording.communicate(timeout=120)
    assert recording.returncode == 0, failed
    assert "bindings" in told
    return path, list(cluster.api.watch("/api/v1/pods?timeoutSeconds=2", version))


def ended(pod: dict[str, Any]) -> bool:
    return bool(pod["status"]["phase"] == "Succeeded")


def amounts(pod: dict[str, Any]) -> np.ndarray:
    requests = pod["spec"]["containers"][0]["resources"]["requests"]
    cpu, memory = requests["cpu"], requests["memory"]
    cores = float(cpu[:-1]) / 1000 if cpu.endswith("m") else float(cpu)
    return np.array([cores, int(memory[:-2]) * GIB if memory.endswith("Gi") else int(memory), 1])


def replayed(events: list[dict[str, Any]]) -> list[tuple[str, str, np.ndarray]]:
    """Pod, node and free amounts (cpu, memory, pods) before each binding, from the events of a watch."""
    free = np.tile([8.0, 32.0 * GIB, 110.0], (4, 1))
    free[2] -= 0.5, GIB, 1
    held: dict[str, tuple[int, np.ndarray]] = {}
    bindings = []
    for event in events:
        pod = event["object"]
        uid, name, node = pod["metadata"]["uid"], pod["metadata"]["name"], pod["spec"].get("nodeName")
        over = event["type"] == "DELETED" or ended(pod)
        if uid in held and over:
            index, taken = held.pop(uid)
            free[index] += taken
        elif node and uid not in held and not over and name != "placed":
            if not name.startswith("placed"):
                bindings.append((name, node, free.copy()))
            held[uid] = int(node.removeprefix("node-")), amounts(pod)
            free[held[uid][0]] -= held[uid][1]
    return bindings


@pytest.mark.requires("torch")
@pytest.mark.ci
def test_states_are_those_of_the_watch_and_feed_training(
    recorded: tuple[Path, list[dict[str, Any]]], tmp_path: Path
) -> None:
    path, events = recorded
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    decided = [line for line in lines if line.get("decided")]
    expected = replayed(events)
    assert len(expected) > 60
    assert sum(line.get("event") == "ended" for line in lines) > 20
    assert [(line["pod"].partition("/")[2], line["node"]) for line in decided] == [each[:2] for each in expected]
    for line, (_, _, free) in zip(decided, expected, strict=True):
        found = [line["free"][name] for name in ("cpu", "memory", "pods")]
        np.testing.assert_allclose(found, free.T, atol=1e-6)
    assert [line["pod"].partition("/")[2] for line in lines if line.get("decided") is False] == [
        "placed",
        "placed-later",
    ]

    # An episode of the recording has the same states and the same actions.
    (tmp_path / "four.json").write_text(json.dumps(PLATFORM))
    problem = (
        f"platform.path={tmp_path / 'four.json'}",
        "workload=lublin",
        "workload.generate.jobs=3000",
        "env=kubernetes",
        "env.jobs=50",
        "train.window_jobs=50",
        "train.validation=1",
        "train.test=1",
        "train.baselines=[]",
    )
    setup = make_setup(*problem, "agent=dqn", f"agent.replay_from={path}", f"agent.replay_steps={len(decided)}")
    environment = setup.environments[0]
    environment.reset(seed=1)
    states, nodes, over = [], [], False
    while not over:
        action = int(setup.agent.demonstrations.actions()[0])
        states.append(environment.cluster.cores.node_idle.copy())
        nodes.append(f"node-{action}")
        over = environment.step(action)[2]
    bound = [line for line in lines if line.get("event") == "bound"]
    assert nodes == [line["node"] for line in bound]
    for state, line in zip(states, bound, strict=True):
        if line["decided"]:
            np.testing.assert_allclose(state, line["free"]["cpu"], atol=1e-9)


@pytest.mark.requires("torch")
@pytest.mark.ci
def test_imitation_of_a_recording(recorded: tuple[Path, list[dict[str, Any]]], tmp_path: Path) -> None:
    path, _ = recorded
    (tmp_path / "four.json").write_text(json.dumps(PLATFORM))
    setup = make_setup(
        f"platform.path={tmp_path / 'four.json'}",
        "workload=lublin",
        "workload.generate.jobs=3000",
        "env=kubernetes",
        "env.jobs=50",
        "train.window_jobs=50",
        "train.validation=1",
        "train.test=1",
        "train.baselines=[]",
        "agent=imitation",
        f"agent.recording={path}",
        "train.steps=800",
        "agent.train_frequency=4",
    )
    (tmp_path / "out").mkdir()
    run(setup, tmp_path / "out")
    progress = np.genfromtxt(tmp_path / "out" / "progress.csv", delimiter=",", names=True)
    assert progress["agreement"][-1] > 0.4  # 0.25 by chance


@pytest.mark.ci
def test_a_recording_is_not_written_over(hdsim: Any, tmp_path: Path) -> None:
    (tmp_path / "config").write_text(
        "{apiVersion: v1, kind: Config, current-context: a, users: [], clusters: [{name: a, cluster: {server: 'http://127.0.0.1:1'}}],"
        " contexts: [{name: a, context: {cluster: a, user: ''}}]}"
    )
    (tmp_path / "old.jsonl").write_text("what was recorded\n")
    done = hdsim("kwok", "record", "--kubeconfig", "config", "-o", "old.jsonl")
    assert done.returncode == 2 and "--output: expected a new file, 'old.jsonl' exists" in done.stderr
    assert (tmp_path / "old.jsonl").read_text() == "what was recorded\n"
    done = hdsim("kwok", "record", "--kubeconfig", "config", "-o", "new.jsonl")
    assert done.returncode and "Traceback" not in done.stderr and not (tmp_path / "new.jsonl").exists()
