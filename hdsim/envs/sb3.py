"""Environments in batches as a vector environment of Stable-Baselines3."""

from __future__ import annotations

from typing import Any

import numpy as np
from stable_baselines3.common.vec_env import VecEnv

from hdsim.envs.vector import SAME_STEP, SchedulingVectorEnv


class SB3VecEnv(VecEnv):
    """Environments of hdsim that algorithms of Stable-Baselines3 and sb3-contrib step together.

    ``MaskablePPO`` finds the legal actions by itself. After the end of an episode, ``infos`` has its ``metrics``,
    return and length.

    Args:
        num_envs: Number of environments.
        **settings: See :class:`hdsim.envs.vector.SchedulingVectorEnv`.
    """

    def __init__(self, num_envs: int, **settings: Any) -> None:
        self.vector = SchedulingVectorEnv(num_envs, autoreset_mode=SAME_STEP, **settings)
        super().__init__(num_envs, self.vector.single_observation_space, self.vector.single_action_space)
        self._returns, self._lengths = np.zeros(num_envs), np.zeros(num_envs, np.int64)

    def reset(self) -> Any:
        """Begins an episode in every environment."""
        seeds: Any = self._seeds
        observations, _ = self.vector.reset(seed=seeds)
        self._reset_seeds()
        self._returns[:] = self._lengths[:] = 0
        return observations

    def step_async(self, actions: np.ndarray) -> None:
        """Takes note of the actions."""
        self._actions = actions

    def step_wait(self) -> tuple[Any, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        """Carries the actions out."""
        observations, rewards, terminated, truncated, info = self.vector.step(self._actions)
        over = terminated | truncated
        self._returns += rewards
        self._lengths += 1
        infos: list[dict[str, Any]] = [{} for _ in over]
        for i in over.nonzero()[0].tolist():
            infos[i] = {
                "terminal_observation": info["final_obs"][i],
                "TimeLimit.truncated": bool(truncated[i]),
                "metrics": {name: float(values[i]) for name, values in info["metrics"].items()},
                "episode": {"r": float(self._returns[i]), "l": int(self._lengths[i])},
            }
        self._returns[over] = self._lengths[over] = 0
        return observations, rewards.astype(np.float32), over, infos

    def close(self) -> None:
        """Ends threads and processes."""
        self.vector.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Returns an attribute, the same for all environments."""
        return [getattr(self.vector, attr_name) for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Raises an error: environments have no attributes of their own.

        Raises:
            AttributeError: Always.
        """
        raise AttributeError(f"{attr_name} cannot be set: the environments are stepped together")

    def env_method(self, method_name: str, *arguments: Any, indices: Any = None, **options: Any) -> list[Any]:
        """Returns the row of each environment in what a method of the vector returns, such as ``action_masks``."""
        rows = getattr(self.vector, method_name)(*arguments, **options)
        return [rows[i] for i in self._get_indices(indices)]

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """Returns that no environment is wrapped."""
        return [False for _ in self._get_indices(indices)]
