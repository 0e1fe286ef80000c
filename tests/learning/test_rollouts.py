"""Rollouts on a cluster of Ray: the bytes of a training on one machine, whatever is lost on the way."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ray_nodes import Nodes, pid_of, ray_nodes
from tiers import nightly
from training_setups import make_setup, run, train

from hdsim.errors import BackendError, ConfigError

pytestmark = [pytest.mark.requires("torch", "ray"), pytest.mark.xdist_group("ray")]

SMALL = (
    "platform=teaching",
    "workload.path=even_1000",
    "workload.jobs=300",
    "workload.memory_bandwidth=none",
    "env.objective=makespan",
    "env.jobs=20",
    "env.pairs=[first-low_power,shortest-high_gflops,smallest-random]",
    "train.steps=360",
    "train.log_every=120",
    "train.evaluate_every=180",
    "train.checkpoint_every=120",
    "train.validation=1",
    "train.test=1",
    "train.baselines=[fcfs]",
    "train.tensorboard=false",
)
PPO = (*SMALL, "agent.num_envs=5", "agent.num_steps=24")
LEFT = ("checkpoints/final.safetensors", "checkpoints/best.safetensors", "actions.csv", "evaluation.csv")


def on(nodes: Nodes, workers: int) -> tuple[str, ...]:
    return "train.rollouts=ray", f"train.workers={workers}", f"train.ray_address={nodes.address}"


def left(directory: Path) -> dict[str, bytes]:
    return {name: (directory / name).read_bytes() for name in LEFT}


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What the training on one machine leaves."""
    directory = tmp_path_factory.mktemp("alone")
    train(directory, *PPO)
    return left(directory)


@pytest.fixture(scope="module")
def nodes(alone: dict[str, bytes]) -> Iterator[Nodes]:
    """A cluster that starts after the training on one machine, which may have to compile kernels."""
    with ray_nodes(3) as cluster:
        yield cluster


def at_step(monkeypatch: pytest.MonkeyPatch, faults: dict[int, Callable[[Any], object]]) -> list[int]:
    """Calls functions of the workers before given steps; returns the list of those that were called."""
    from hdsim.learning.training.loop import Training

    step, happened = Training._step, list[int]()

    def faulty(self: Training) -> None:
        for number in [number for number in faults if number <= self.state.step and number not in happened]:
            happened.append(number)
            faults[number](self.learner._environments._vector._workers)  # type: ignore[attr-defined]
        step(self)

    monkeypatch.setattr(Training, "_step", faulty)
    return happened


@pytest.mark.parametrize("workers", [2, *nightly(1, 3)])
def test_the_number_of_workers_does_not_change_a_byte(
    workers: int, nodes: Nodes, alone: dict[str, bytes], tmp_path: Path
) -> None:
    train(tmp_path, *PPO, *on(nodes, workers))
    assert left(tmp_path) == alone


@pytest.mark.nightly
def test_observations_of_several_arrays_and_environments_without_kernels(nodes: Nodes, tmp_path: Path) -> None:
    # A replay buffer, and observations of nodes, which no compiled kernel steps.
    options = (
        "experiment=spread_or_pack",
        "agent=gnn_dqn",
        "env.observation=graph",
        "~env.scale",
        "env.jobs=20",
        "agent.num_envs=3",
        "agent.buffer_size=60",
        "agent.batch_size=8",
        "agent.hidden=[8]",
        "train.steps=90",
        "train.evaluate_every=90",
        "train.validation=1",
        "train.test=1",
        "train.baselines=[fcfs]",
        SMALL[-1],
    )
    for name, place in (("alone", ()), ("ray", on(nodes, 2))):
        train(tmp_path / name, *options, *place)
    assert left(tmp_path / "ray") == left(tmp_path / "alone")


@pytest.mark.ci
def test_a_lost_process_and_a_lost_node_do_not_change_a_byte(
    nodes: Nodes,
    alone: dict[str, bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def lose_node(worker: Any) -> None:
        """Ends a node with the worker on it, which would otherwise answer until it notices that its node is gone."""
        process = pid_of(worker._actor)
        nodes.remove(worker._node)
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)

    happened = at_step(
        monkeypatch,
        {
            95: lambda workers: os.kill(pid_of(workers[0]._actor), signal.SIGKILL),
            215: lambda workers: lose_node(workers[1]),
        },
    )
    train(tmp_path, *PPO, *on(nodes, 3))
    assert happened == [95, 215]
    assert "environments 0 to 0 was lost in an action" in caplog.text
    assert "environments 1 to 2 was lost in an action" in caplog.text
    assert left(tmp_path) == alone


@pytest.mark.ci
def test_an_interrupted_training_goes_on_elsewhere(
    nodes: Nodes, alone: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hdsim: Callable[..., Any]
) -> None:
    with monkeypatch.context() as patched:
        at_step(patched, {150: lambda _: signal.raise_signal(signal.SIGINT)})
        with pytest.raises(KeyboardInterrupt):
            train(tmp_path, *PPO, *on(nodes, 2))
    run(make_setup(*PPO), tmp_path, resume=True)
    assert left(tmp_path) == alone


@pytest.mark.ci
def test_a_worker_without_an_answer_is_named(nodes: Nodes) -> None:
    vector = make_setup(*PPO, *on(nodes, 2)).vector()
    vector.reset(seed=1)
    last: Any = vector._workers[1]  # type: ignore[attr-defined]
    os.kill(pid_of(last._actor), signal.SIGSTOP)
    last._timeout = 0.5
    with pytest.raises(
        BackendError, match=r"environments 2 to 4 gave no answer in 0\.5 s \(train\.ray_timeout\) to an"
    ):
        vector.step([0] * 5)
    vector.close()


@pytest.mark.ci
def test_workers_that_are_lost_again_and_again_are_one_error(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    from hdsim.envs import distributed

    vector = make_setup(*PPO, *on(nodes, 1)).vector()
    vector.reset(seed=1)
    start = distributed._RayActor._start

    def start_and_end(self: Any) -> None:
        start(self)
        self.close()

    monkeypatch.setattr(distributed._RayActor, "_start", start_and_end)
    monkeypatch.setattr(distributed, "_LOSSES", 3)
    vector._workers[0].close()  # type: ignore[attr-defined]
    with pytest.raises(BackendError, match=r"environments 0 to 4 was lost in an action .*; 3 actors were lost in turn"):
        vector.step([0] * 5)
    vector.close()


@pytest.mark.ci
def test_a_cluster_without_nodes_is_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ray_nodes(2) as nodes:

        def remove_all(_: Any) -> None:
            while len(nodes):
                nodes.remove()

        at_step(monkeypatch, {95: remove_all})
        with pytest.raises(BackendError, match="expected a node with processors in the Ray cluster, none is left"):
            train(tmp_path, *PPO, *on(nodes, 2))


@pytest.mark.ci
def test_a_cluster_without_processors_is_left() -> None:
    import ray

    with ray_nodes(0) as head:
        with pytest.raises(BackendError, match="expected a node with processors in the Ray cluster, none is left"):
            make_setup(*PPO, *on(head, 2)).vector()
        assert not ray.is_initialized()


@pytest.mark.nightly
def test_a_cluster_of_its_own_is_quiet_and_ends_with_the_training(tmp_path: Path, alone: dict[str, bytes]) -> None:
    # A process of its own: it starts the cluster of this machine.
    begin = [sys.executable, "-m", "hdsim", "train", "-q"]
    command = [*begin, *PPO, "train.rollouts=ray", "train.workers=2", "hydra.run.dir=a"]
    told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    assert told.stderr == ""
    assert "ray" not in told.stdout.replace("train.rollouts=ray", "").lower()
    assert left(tmp_path / "a") == alone
    config = json.loads((tmp_path / "a/manifest.json").read_text())["config"]
    assert config["train"]["workers"] == 2
    # Another number of workers is the same training.
    elsewhere = ["resume=true", "hydra.run.dir=a", "train.rollouts=local", "train.workers=1"]
    again = subprocess.run([*begin, *elsewhere], cwd=tmp_path, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert left(tmp_path / "a") == alone


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("train.rollouts=ray", "train.workers=9"), "train.workers: expected at most 5 (agent.num_envs), got 9"),
        (("train.rollouts=ray", "train.ray_address=here"), "expected null, auto or HOST:PORT, got 'here'"),
        (("train.rollouts=ray", "train.ray_address=127.0.0.1:1"), "expected a Ray cluster at 127.0.0.1:1: Connection"),
        (("train.ray_address=auto",), "train.ray_address: expected null with train.rollouts=local, got auto"),
        (
            ("agent=imitation", "agent.teacher=sjf-low_power", "train.rollouts=ray"),
            "train.rollouts: expected local since ImitationAgent uses environments of the process that trains, got ray",
        ),
        (("train.rollouts=spark",), "train.rollouts: expected local or ray, got 'spark'"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(overrides: tuple[str, ...], message: str) -> None:
    options = [text for text in PPO if "agent.num_steps" not in text or "agent=imitation" not in overrides]
    with pytest.raises((ConfigError, BackendError)) as refused:
        make_setup(*options, *overrides).vector()
    assert message in str(refused.value)
