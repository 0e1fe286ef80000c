"""Stable-Baselines3 in hdsim's training loop: reproducible, resumed, evaluated with masks, kept without pickles."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from training_setups import train, train_whole_and_cut

from hdsim.errors import ConfigError

pytestmark = pytest.mark.requires("torch", "stable-baselines3")

#: Picking jobs: of 8 actions seldom more than half are legal.
SMALL = (
    "platform=teaching", "workload.path=even_1000", "workload.jobs=300", "workload.memory_bandwidth=none",
    "env.jobs=20",
    "env.action=job", "env.observation=jobs", "env.queue_size=8", "env.void=true", "workload.arrival_factor=0.3",
    "train.steps=600", "train.checkpoint_every=200", "train.evaluate_every=600", "train.validation=1", "train.test=2",
    "train.baselines=[fcfs]", "train.tensorboard=false", "agent=sb3", "agent.num_envs=2", "agent.total_steps=600",
)  # fmt: skip
ALGORITHMS = {
    "MaskablePPO": "{n_steps: 32, n_epochs: 2}",
    "PPO": "{n_steps: 32, n_epochs: 2}",
    "A2C": "{n_steps: 16}",
    "DQN": "{learning_starts: 50, buffer_size: 150, target_update_interval: 40}",
}


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_a_training_cut_in_two_ends_with_the_same_bytes(
    tmp_path: Path, algo: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    overrides = (*SMALL, f"agent.algo={algo}", f"agent.options={ALGORITHMS[algo]}")
    _, cut, setup = train_whole_and_cut(tmp_path, *overrides, crash_after=300, monkeypatch=monkeypatch)
    # What was trained decides in a replay, and never against the mask.
    checkpoint = cut / "checkpoints/final.safetensors"
    agent: Any = _loaded(checkpoint)
    observations = np.random.default_rng(0).random((100, 8, 8), np.float32)
    masks = np.random.default_rng(1).random((100, 9)) < 0.3
    masks[:, 0] |= ~masks.any(axis=1)
    probabilities = agent.probabilities(observations, masks)
    assert (probabilities[~masks] == 0).all()
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    np.testing.assert_array_equal(probabilities, setup.agent.probabilities(observations, masks))
    assert b"pickle" not in checkpoint.read_bytes()


def _loaded(path: Path) -> Any:
    from hdsim.scheduling.agent import make_agent

    return make_agent({"_target_": "hdsim.agents.sb3.SB3Agent", "checkpoint": str(path)})


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("agent.algo=MaskedPPO", r"agent\.algo: expected one of MaskablePPO, .*\(did you mean 'MaskablePPO'"),
        ("agent.options={n_step: 3}", r"agent\.options\.n_step: unknown option of MaskablePPO \(did you mean"),
        ("agent.options={n_steps: many}", r"agent\.options: MaskablePPO does not take these"),
        ("env.observation=graph", r"env\.observation: expected an observation of one array"),
    ],
)  # fmt: skip
def test_mistakes_are_explained(tmp_path: Path, override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        train(tmp_path, *SMALL, override)


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sb3_contrib", None)
    with pytest.raises(ConfigError, match=r"extra rl, sb3_contrib missing: pip install 'hdsim\[rl\]'"):
        train(tmp_path, *SMALL)
