"""Stable-Baselines3 in hdsim's training loop: reproducible, resumed, evaluated with masks, kept without pickles."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from training_setups import train, train_whole_and_cut

from hdsim.errors import ConfigError

pytestmark = pytest.mark.requires("torch", "stable-baselines3")

#: Picking jobs: of 8 actions seldom more than half are legal.
SMALL = (
    "platform=teaching",
    "workload.path=even_1000",
    "workload.jobs=300",
    "workload.memory_bandwidth=none",
    "env.jobs=20",
    "env.action=job",
    "env.observation=jobs",
    "env.queue_size=8",
    "env.void=true",
    "workload.arrival_factor=0.3",
    "train.steps=400",
    "train.checkpoint_every=200",
    "train.evaluate_every=400",
    "train.validation=1",
    "train.test=2",
    "train.baselines=[fcfs]",
    "train.tensorboard=false",
    "agent=sb3",
    "agent.num_envs=2",
)
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
    # Schedules are completed at the end of the training.
    assert setup.agent.model._current_progress_remaining == 0
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


class Script:
    """Observations and rewards of two environments at each step, whatever the actions; episodes end and are cut off."""

    ENVS, JOBS = 2, 4

    def __init__(self, steps: int) -> None:
        rng = np.random.default_rng(8)
        shape = (steps + 1, self.ENVS)
        self.observations = rng.random((*shape, self.JOBS, 8), np.float32)
        self.last = rng.random((*shape, self.JOBS, 8), np.float32)  # of an episode that ends here
        self.masks = rng.random((*shape, self.JOBS)) < 0.6
        self.masks[..., 0] |= ~self.masks.any(axis=-1)
        self.rewards = rng.normal(size=shape).astype(np.float32)
        self.terminated = rng.random(shape) < 0.1
        self.truncated = (rng.random(shape) < 0.1) & ~self.terminated

    def transitions(self, t: int, actions: np.ndarray) -> Any:
        """Step t as hdsim's training loop hands it over."""
        from hdsim.learning.agent import Transitions

        over = self.terminated[t] | self.truncated[t]
        following = np.where(over[:, None, None], self.last[t], self.observations[t + 1])
        return Transitions(
            self.observations[t],
            self.masks[t],
            actions,
            self.rewards[t].astype(np.float64),
            following,
            self.masks[t + 1],
            self.terminated[t],
            self.truncated[t],
        )

    def environment(self, index: int) -> Any:
        """One of the environments for the library's own loop."""
        import gymnasium

        script = self

        class Scripted(gymnasium.Env[Any, Any]):
            observation_space = gymnasium.spaces.Box(0, 1, (script.JOBS, 8))
            action_space = gymnasium.spaces.Discrete(script.JOBS)
            t = 0

            def reset(self, *, seed: Any = None, options: Any = None) -> Any:
                return script.observations[self.t, index], {}

            def step(self, action: Any) -> Any:
                t, self.t = self.t, self.t + 1
                over = script.terminated[t, index] or script.truncated[t, index]
                seen = script.last[t, index] if over else script.observations[t + 1, index]
                return (
                    seen,
                    float(script.rewards[t, index]),
                    script.terminated[t, index],
                    script.truncated[t, index],
                    {},
                )

            def action_masks(self) -> Any:
                return script.masks[self.t, index]

        return Scripted()


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_an_update_is_the_librarys_own_on_the_same_experience(algo: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    from stable_baselines3.common.vec_env import DummyVecEnv

    import hdsim
    from hdsim.agents import sb3
    from hdsim.decisions import DecisionProblem

    @contextmanager
    def same_batches(_: int) -> Iterator[None]:
        np.random.seed(7)  # noqa: NPY002 - the library draws its batches from it
        yield

    monkeypatch.setattr(sb3, "_seeded", same_batches)
    options = yaml.safe_load(ALGORITHMS[algo])
    steps = options.get("n_steps", 40)
    script = Script(steps)
    agent: Any = sb3.SB3Agent(algo=algo, num_envs=script.ENVS, options=options, total_steps=steps * script.ENVS)
    problem = DecisionProblem("job", "jobs", queue_size=script.JOBS)
    agent.begin_training(problem, hdsim.Platform.homogeneous(2, 2), 3)
    before = deepcopy(agent.policy.state_dict())
    taken, losses = [], {}
    for t in range(steps):
        taken.append(agent.explore(script.observations[t], script.masks[t]))
        step = script.transitions(t, taken[-1])
        if algo == "DQN":
            # Replayed rewards have the scale of the update, the first of which is due at step 25.
            scale = 8.0 if t < 20 else 2.0
            step = dataclasses.replace(step, rewards=step.rewards * 2 / scale, scale=scale)
        losses = agent.learn(step) or losses
    assert losses

    settings = {**sb3._DEFAULTS[algo], **options, "gamma": agent.gamma, "device": "cpu"}
    if "PPO" in algo:
        settings["batch_size"] = steps * script.ENVS // 4
    environments = DummyVecEnv([lambda index=index: script.environment(index) for index in range(script.ENVS)])
    native = getattr(sb3._package(sb3.ALGORITHMS[algo]), algo)("MlpPolicy", environments, **settings)
    native.policy.load_state_dict(before)
    if algo == "DQN":
        forced = iter(taken)
        monkeypatch.setattr(native, "_sample_action", lambda *_: (actions := next(forced), actions))
    else:
        forced = iter(torch.from_numpy(np.stack(taken)))

        def forward(seen: Any, deterministic: bool = False, action_masks: Any = None) -> Any:
            more = {} if action_masks is None else {"action_masks": torch.as_tensor(action_masks)}
            actions = next(forced)
            values, log_probs, _ = native.policy.evaluate_actions(seen, actions, **more)
            return actions, values, log_probs

        monkeypatch.setattr(native.policy, "forward", forward)
    update = native.train

    def train_on_the_same_batches(*arguments: Any, **settings: Any) -> None:
        with same_batches(0):
            update(*arguments, **settings)

    monkeypatch.setattr(native, "train", train_on_the_same_batches)
    native.learn(steps * script.ENVS)
    after = native.policy.state_dict()
    assert any((after[name] != before[name]).any() for name in after)
    for name, weights in agent.policy.state_dict().items():
        torch.testing.assert_close(
            weights, after[name], rtol=1e-5, atol=1e-6, msg=lambda text, name=name: f"{name}: {text}"
        )


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
)
def test_mistakes_are_explained(tmp_path: Path, override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        train(tmp_path, *SMALL, override)


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sb3_contrib", None)
    with pytest.raises(ConfigError, match=r"extra rl, sb3_contrib missing: pip install 'hdsim\[rl\]'"):
        train(tmp_path, *SMALL)
