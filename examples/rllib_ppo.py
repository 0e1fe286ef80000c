"""PPO of RLlib with masks of legal actions.

pip install 'hdsim[rl]' 'ray[rllib]'
python examples/rllib_ppo.py --iterations 20

RLlib reads the mask from the observation: a dictionary of ``observations`` and ``action_mask``.
"""

import argparse
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.examples.rl_modules.classes.action_masking_rlm import ActionMaskingTorchRLModule

from hdsim.envs.scheduling import SchedulingEnv

SETTINGS = {
    "platform": "homogeneous_256",
    "workload": {"model": "lublin", "jobs": 10_000, "seed": 1, "arrival_factor": 0.7},
    "jobs": 128,
    "action": "job",
    "observation": "jobs",
    "queue_size": 32,
    "objective": "avg_bounded_slowdown",
    "reward": "integrated",
    "reward_scale": 0.001,
}


class Masked(gymnasium.Env[Any, Any]):
    """`hdsim/Scheduling-v0` whose observations have the legal actions."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.env = SchedulingEnv(**settings)
        shape, actions = self.env.observation_space.shape, self.env.n_actions
        self.observation_space = spaces.Dict(
            {
                "observations": spaces.Box(0.0, 1.0, (int(np.prod(shape or ())),), np.float32),
                "action_mask": spaces.Box(0.0, 1.0, (actions,), np.float32),
            }
        )
        self.action_space = spaces.Discrete(actions)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Begins an episode."""
        observation, info = self.env.reset(seed=seed, options=options)
        return self._seen(observation, info), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Carries out an action."""
        observation, reward, terminated, truncated, info = self.env.step(int(action))
        return self._seen(observation, info), reward, terminated, truncated, {}

    def _seen(self, observation: Any, info: dict[str, Any]) -> dict[str, Any]:
        return {"observations": observation.ravel(), "action_mask": info["action_mask"].astype(np.float32)}


def main() -> None:
    """Trains, and prints the mean return of each iteration."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--runners", type=int, default=0, help="processes that step environments, 0: this one")
    given = parser.parse_args()
    module = RLModuleSpec(ActionMaskingTorchRLModule, model_config={"head_fcnet_hiddens": [64, 64]})
    config = (
        PPOConfig()
        .environment(Masked, env_config=SETTINGS)
        .env_runners(num_env_runners=given.runners, num_envs_per_env_runner=4)
        .training(train_batch_size_per_learner=2048, minibatch_size=256, num_epochs=4, lr=1e-3)
        .rl_module(rl_module_spec=module)
        .debugging(seed=1)
    )
    algorithm = config.build_algo()
    for iteration in range(given.iterations):
        found = algorithm.train()["env_runners"]
        print(f"{iteration + 1:4} mean return {found.get('episode_return_mean', float('nan')):12.3f}", flush=True)
    algorithm.stop()


if __name__ == "__main__":
    main()
