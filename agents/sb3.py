"""Algorithms of Stable-Baselines3 and sb3-contrib as agents (Raffin et al., JMLR 2021).

The training loop of hdsim collects the experience, so records, evaluations and checkpoints are the same for all agents;
networks, buffers and updates are those of the library. MaskablePPO learns with masks. PPO and A2C sample as if every
action were legal (the environment carries out the first legal one instead); DQN takes legal actions only, but its
targets are the values of the best of all actions. All use the mask in evaluations. A checkpoint has the weights as
safetensors and the settings as JSON; the zip files of the library, which hold pickled parts, are neither written nor
read.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces

from hdsim.errors import ConfigError, nearest, not_one_of
from hdsim.learning.agent import LearningAgent, TensorShapes, Transitions, draw, one_hot
from hdsim.learning.settings import integer, number

#: Algorithms and the packages they are in.
ALGORITHMS = {
    "MaskablePPO": "sb3_contrib",
    "PPO": "stable_baselines3",
    "A2C": "stable_baselines3",
    "DQN": "stable_baselines3",
}
#: Replacements of defaults of the library that are for one environment or for millions of steps of Atari. PPO: the
#: rollout of Schulman et al. 2017 for eight environments, four epochs of four minibatches. DQN: the settings of RL
#: Baselines3 Zoo for LunarLander with fewer updates, which dominate the run time, and five-step returns, since the
#: costs of a decision are delayed.
_PPO = {"n_steps": 128, "n_epochs": 4}
_DEFAULTS: dict[str, dict[str, Any]] = {
    "MaskablePPO": _PPO,
    "PPO": _PPO,
    "A2C": {},
    "DQN": {
        "learning_rate": 6.3e-4,
        "buffer_size": 50_000,
        "batch_size": 128,
        "gradient_steps": 4,
        "n_steps": 5,
        "target_update_interval": 250,
        "exploration_final_eps": 0.1,
    },
}
#: Arguments of an algorithm that hdsim sets.
_GIVEN = {"policy", "env", "gamma", "seed", "device", "verbose", "tensorboard_log", "_init_setup_model"}
#: Entries of the log of the library that are not losses.
_NO_LOSS = {"n_updates", "learning_rate", "clip_range", "explained_variance"}


@dataclass(eq=False, kw_only=True)
class SB3Agent(LearningAgent):
    """An algorithm of Stable-Baselines3.

    Args:
        num_envs: Environments stepped together.
        algo: MaskablePPO, PPO, A2C or DQN.
        gamma: Discount factor.
        total_steps: Steps of all environments over which schedules, such as DQN's exploration, are completed; None for
            those of the training.
        options: Further arguments of the algorithm's constructor under their names there, such as
            ``{n_steps: 256, learning_rate: 0.001, policy_kwargs: {net_arch: [64, 64]}}``. The others have the defaults
            of the library, except those in `_DEFAULTS`.
    """

    weights = ("policy",)
    progress = ("optimizer", "buffer", "counters", "starts")

    num_envs: int = integer(8)
    algo: str = "MaskablePPO"
    gamma: float = number(0.99, high=1)
    total_steps: int | None = integer(None)
    options: Mapping[str, Any] | None = None

    def build(self, shapes: TensorShapes) -> None:
        """Creates the algorithm with its policy, optimizer and empty buffer.

        Raises:
            ConfigError: The library is missing, or the algorithm or its options are unknown.
        """
        self._off_policy = self.algo == "DQN"
        model = self.model = self._make(shapes)
        self.policy, self.optimizer = model.policy, model.policy.optimizer
        self.policy.set_training_mode(False)
        self.scale = model._vec_normalize_env = _Scale()
        self.buffer = _AttributeState(model.replay_buffer if self._off_policy else model.rollout_buffer)
        self.counters = _AttributeState(model)
        self.starts = np.ones(self.num_envs, bool)  # whether the next step is the first of its episode

    def _make(self, shapes: TensorShapes) -> Any:
        if self.algo not in ALGORITHMS:
            raise ConfigError(not_one_of(self.algo, ALGORITHMS), where="agent.algo")
        algorithm = getattr(_package(ALGORITHMS[self.algo]), self.algo)
        options = dict(self.options or {})
        allowed = [name for name in inspect.signature(algorithm).parameters if name not in _GIVEN]
        for name in options:
            if name not in allowed:
                raise ConfigError(
                    f"unknown option of {self.algo}{nearest(name, allowed)}; allowed: {', '.join(allowed)}",
                    where=f"agent.options.{name}",
                )
        options = _DEFAULTS[self.algo] | options
        if "PPO" in self.algo and isinstance(options["n_steps"], int):
            options.setdefault("batch_size", max(2, options["n_steps"] * self.num_envs // 4))
        library = _package("stable_baselines3.common.vec_env")
        stage = library.DummyVecEnv([lambda: _Spaces(shapes)] * self.num_envs)
        try:
            model = algorithm("MlpPolicy", stage, gamma=self.gamma, device=self.torch_device, **options)
        except (TypeError, ValueError, AssertionError) as error:
            raise ConfigError(f"{self.algo} does not take these: {error}", where="agent.options") from None
        model.set_logger(_package("stable_baselines3.common.logger").Logger(None, []))
        return model

    # ---- choosing

    @torch.no_grad()
    def probabilities(self, observations: Any, masks: np.ndarray) -> np.ndarray:
        """Probabilities of the policy among the legal actions; DQN takes the best of them."""
        if self._off_policy:
            values = self.policy.q_net(self.tensors(observations)).cpu().numpy()
            return one_hot(np.where(masks, values, -np.inf).argmax(axis=1), masks.shape[1])
        legal = self._distribution(observations, masks).probs.double().cpu().numpy() * masks
        # A policy without masks may give all probability to illegal actions.
        legal += masks * (legal.sum(axis=1, keepdims=True) == 0)
        return legal / legal.sum(axis=1, keepdims=True)

    @torch.no_grad()
    def explore(self, observations: Any, masks: np.ndarray) -> np.ndarray:
        """Draws from the policy; DQN's is epsilon-greedy."""
        if self._off_policy:
            greedy, uniform = self.probabilities(observations, masks), masks / masks.sum(axis=1, keepdims=True)
            epsilon = self.model.exploration_rate
            return draw(epsilon * uniform + (1 - epsilon) * greedy, self.rng)
        distribution = self._distribution(observations, masks)
        actions = draw(distribution.probs.double().cpu().numpy(), self.rng)
        self._log_probs = distribution.log_prob(self.tensors(actions))
        self._values = self.policy.predict_values(self.tensors(observations))
        return actions

    def _distribution(self, observations: Any, masks: np.ndarray) -> torch.distributions.Categorical:
        more = {"action_masks": masks} if self.algo == "MaskablePPO" else {}
        return self.policy.get_distribution(self.tensors(observations), **more).distribution

    # ---- learning

    def learn(self, step: Transitions) -> dict[str, float]:
        """Adds a step to the buffer of the library, and updates at the intervals of the library."""
        model, over = self.model, step.terminated | step.truncated
        model.num_timesteps += len(over)
        total = self.total_steps or self.training_steps
        model._current_progress_remaining = max(0.0, 1 - model.num_timesteps / total)
        due = self._store(step, over) if self._off_policy else self._roll(step, over)
        self.starts = over
        if due is None:
            return {}
        with _seeded(int(self.rng.integers(2**32))):
            model.train(**due)
        self.policy.set_training_mode(False)
        if not self._off_policy:
            model.rollout_buffer.reset()
        log = {name.rpartition("/")[2]: value for name, value in model.logger.name_to_value.items()}
        model.logger.name_to_value.clear()
        return {name: float(value) for name, value in log.items() if name not in _NO_LOSS and np.isfinite(value)}

    @torch.no_grad()
    def _roll(self, step: Transitions, over: np.ndarray) -> dict[str, Any] | None:
        """Adds to a rollout; returns the arguments of an update when it is full."""
        buffer = self.model.rollout_buffer
        rewards = step.rewards.astype(np.float32)
        following = self.policy.predict_values(self.tensors(step.next_observations))
        if step.truncated.any():
            rewards += self.gamma * step.truncated * following.flatten().cpu().numpy()
        masks = {"action_masks": step.masks} if self.algo == "MaskablePPO" else {}
        buffer.add(step.observations, step.actions, rewards, self.starts, self._values, self._log_probs, **masks)
        if not buffer.full:
            return None
        buffer.compute_returns_and_advantage(following, over)
        return {}

    def _store(self, step: Transitions, over: np.ndarray) -> dict[str, Any] | None:
        """Adds to the replay buffer; returns the arguments of an update when one is due, otherwise None."""
        model = self.model
        infos = [{"TimeLimit.truncated": bool(cut)} for cut in step.truncated]
        self.scale.value, rewards = step.scale, step.rewards * step.scale
        model.replay_buffer.add(step.observations, step.next_observations, step.actions[:, None], rewards, over, infos)
        model._on_step()
        if model.num_timesteps <= model.learning_starts or model._n_calls % model.train_freq.frequency:
            return None
        every = model.gradient_steps if model.gradient_steps >= 0 else model.train_freq.frequency * self.num_envs
        return {"batch_size": model.batch_size, "gradient_steps": every} if every else None


class _Spaces(gymnasium.Env[Any, Any]):
    """The spaces that an algorithm needs of an environment; it is never stepped."""

    def __init__(self, shapes: TensorShapes) -> None:
        self.observation_space = spaces.Box(0, 1, shapes.array)
        self.action_space = spaces.Discrete(shapes.actions)


class _Scale:
    """The scale of the latest rewards where the library has VecNormalize: replayed rewards are divided by it."""

    value = 1.0

    def normalize_obs(self, observations: Any) -> Any:
        """Returns them as they are."""
        return observations

    def normalize_reward(self, rewards: np.ndarray) -> np.ndarray:
        """Returns the rewards scaled."""
        return rewards / self.value


class _AttributeState:
    """Numbers and arrays among the attributes of an object of the library, for a checkpoint."""

    def __init__(self, owner: Any) -> None:
        self._owner = owner

    def state_dict(self) -> dict[str, Any]:
        """State for a checkpoint; of a replay buffer the filled part."""
        owner = self._owner
        filled = getattr(owner, "pos", None) if not getattr(owner, "full", True) else None
        kept = {name: value for name, value in vars(owner).items() if isinstance(value, np.ndarray | int | float)}
        return {name: value[:filled] if isinstance(value, np.ndarray) else value for name, value in kept.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores the state."""
        for name, value in state.items():
            if isinstance(value, np.ndarray):
                getattr(self._owner, name)[: len(value)] = value
            else:
                setattr(self._owner, name, value)


def _package(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise ConfigError(
            f"expected the packages of the extra rl, {error.name} missing: pip install 'hdsim[rl]'", where="agent"
        ) from None


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seeds the global generator of NumPy, from which the library draws its batches, in a context."""
    before = np.random.get_state()  # noqa: NPY002
    np.random.seed(seed)  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(before)  # noqa: NPY002
