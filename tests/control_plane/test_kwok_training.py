"""Trainings by the clock on the wall, on a real API server, beside a load that hdsim does not control."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kube import Cluster, wait_for

from hdsim.kubernetes.connection import Connection
from hdsim.kubernetes.load import empty
from hdsim.kubernetes.nodes import node_manifests
from hdsim.platform.load import load_platform
from hdsim.util.resources import resolve

pytestmark = [pytest.mark.requires("kube"), pytest.mark.requires("torch")]
Run = Callable[..., "subprocess.CompletedProcess[str]"]

STEPS, EPISODE = 45, 15


@pytest.fixture
def settings(cluster: Cluster) -> Iterator[list[str]]:
    """Settings of a training on ten nodes."""
    cluster.add_nodes(node_manifests(load_platform(resolve("platforms", "ten_nodes", where="test"))))
    yield [
        "env=kubernetes",
        "platform=ten_nodes",
        "workload=deployments",
        f"env.jobs={EPISODE}",
        f"train.steps={STEPS}",
        "train.window_jobs=20",
        "train.validation=1",
        "train.test=1",
        "train.log_every=15",
        "train.evaluate_every=30",
        "train.checkpoint_every=15",
        "train.tensorboard=false",
        "train.baselines=[least_allocated]",
        "backend=kwok",
        f"backend.kubeconfig={cluster.kubeconfig}",
        f"backend.namespace={cluster.namespace}",
    ]
    with Connection(cluster.kubeconfig) as connection:
        empty(connection, cluster.namespace, everything=True)


@contextmanager
def load(cluster: Cluster, root: Path, epochs: int, name: str = "load") -> Iterator[subprocess.Popen[bytes]]:
    """Deployments that fill a tenth of the nodes, epoch after epoch, from another process."""
    where = ["--kubeconfig", str(cluster.kubeconfig), "--namespace", cluster.namespace]
    words = ["kwok", "load", *where, "--scheduler-name", "hdsim", "--epochs", str(epochs), "--cpu-load", "0.1"]
    words += ["--name", name]
    process = subprocess.Popen(
        [sys.executable, "-m", "hdsim", *words],
        env={**os.environ, "PYTHONPATH": str(root)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def rows(run: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((run / "progress.csv").open()))


@pytest.mark.ci
def test_agents_learn_from_the_pods_of_a_running_load(
    cluster: Cluster, settings: list[str], hdsim: Run, root: Path, tmp_path: Path
) -> None:
    graph = "env.observation=graph"
    agents = {
        "dqn": ["agent.learning_starts=20"],
        "gnn_dqn": ["agent.learning_starts=20", graph],
        "actor_critic": ["agent.num_envs=1"],
        "gnn_actor_critic": ["agent.num_envs=1", graph],
    }
    with load(cluster, root, 1000):
        for agent, more in agents.items():
            done = hdsim("train", *settings, "backend.submit=false", f"agent={agent}", *more, f"hydra.run.dir={agent}")
            assert done.returncode == 0, done.stderr
            last = rows(tmp_path / agent)[-1]
            assert (int(last["step"]), int(last["episodes"])) == (STEPS, STEPS // EPISODE)
            # A reward for each pod, and no larger one than of a cluster that is in balance.
            assert 0 < float(last["mean_reward"]) <= 1
            used: Counter[str] = Counter(pod["spec"]["nodeName"] for pod in cluster.pods() if "nodeName" in pod["spec"])
            assert used and max(used.values()) <= 64
            replay = ["platform=ten_nodes", "workload=deployments", "workload.jobs=20", f"agent={agent}"]
            kept = f"agent.checkpoint={agent}/checkpoints/final.safetensors"
            assert hdsim("run", *replay, kept, f"hydra.run.dir={agent}-replay").returncode == 0


@pytest.mark.nightly
def test_a_training_ends_with_its_load_and_goes_on_after_a_signal(
    cluster: Cluster, settings: list[str], hdsim: Run, root: Path, tmp_path: Path
) -> None:
    settings += ["backend.submit=false", "backend.stop_when_idle=8", "agent=dqn", "train.validation=0"]
    settings += ["train.steps=100000", "hydra.run.dir=run"]
    with load(cluster, root, 1000):
        process = subprocess.Popen(
            [sys.executable, "-m", "hdsim", "train", *settings],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(root)},
            stderr=subprocess.PIPE,
            text=True,
        )
        progress = tmp_path / "run/progress.csv"
        wait_for(lambda: progress.exists() and len(rows(progress.parent)) > 3, "the first steps")
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=120)
        assert process.returncode == 1 and "resume=true" in told, told
    done = int(rows(tmp_path / "run")[-1]["step"])
    with load(cluster, root, 1, "another"):  # Deployments of the first load are still there.
        ended = hdsim("train", "resume=true", "hydra.run.dir=run")
    assert ended.returncode == 0, ended.stderr
    assert "the training ends at step" in ended.stderr
    assert "expected pods of scheduler hdsim that can be placed within 8 s, got none" in ended.stderr
    assert int(rows(tmp_path / "run")[-1]["step"]) > done
    assert (tmp_path / "run/checkpoints/final.safetensors").exists() and (tmp_path / "run/evaluation.csv").exists()


@pytest.mark.ci
def test_a_trace_by_the_wall_clock_and_what_is_refused(
    cluster: Cluster, settings: list[str], hdsim: Run, tmp_path: Path
) -> None:
    nothing = hdsim(
        "train", *settings, "agent=dqn", "backend.submit=false", "backend.stop_when_idle=1", "hydra.run.dir=n"
    )
    assert nothing.returncode == 2
    assert "backend.stop_when_idle: expected pods of scheduler hdsim that can be placed within 1 s" in nothing.stderr
    refused = hdsim(
        "train", *settings, "agent=dqn", "backend.submit=false", "env.objective=bounded_slowdown", "hydra.run.dir=r"
    )
    assert refused.returncode == 2 and "env.objective: expected one of" in refused.stderr
    wall = [*settings, "agent=dqn", "train.steps=20", "env.jobs=8", "train.validation=0", "backend.time_scale=1000"]
    done = hdsim("train", *wall, "hydra.run.dir=trace")
    assert done.returncode == 0, done.stderr
    # The pods of an episode are gone before the next one begins.
    pods = cluster.pods()
    assert 0 < len(pods) <= 8 and all(pod["metadata"]["name"] for pod in pods)
