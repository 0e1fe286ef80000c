"""Steps of training per second of CPU time: hdsim's PPO, and MaskablePPO of sb3-contrib on the same vector environment.

python benchmarks/training.py
python benchmarks/training.py --envs 8 64 --steps 32768

Both take the same number of steps per update, minibatches, passes and learning rate. MaskablePPO's policy is a
perceptron of the whole queue, that of hdsim a small network for each job, whose cost grows with the queue.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from sb3_contrib import MaskablePPO
from stable_baselines3.common.vec_env import VecEnv

import hdsim
from hdsim.agents.ppo import PPOAgent
from hdsim.envs.scheduling import SchedulingEnv
from hdsim.envs.vector import SAME_STEP
from hdsim.learning.training.environments import Environments
from hdsim.learning.training.learner import RewardScale
from hdsim.learning.training.reproducible import reproducible
from hdsim.util.resources import resolve

ROLLOUT = 8192  # steps of all environments between two updates
PASSES, MINIBATCHES, RATE = 4, 4, 3e-4


def settings(arrivals: float) -> dict[str, Any]:
    """RLScheduler's problem: 128 queued jobs of a trace of 256 cores."""
    workload = hdsim.load_workload(resolve("workloads", "lublin_16000"), arrival_factor=arrivals)
    return {
        "platform": "homogeneous_256",
        "workload": workload,
        "jobs": 256,
        "action": "job",
        "observation": "jobs",
        "objective": "bounded_slowdown",
        "reward": "sampled",
        "queue_size": 128,
        "commit": True,
    }


class Adapter(VecEnv):
    """A vector environment of hdsim for Stable-Baselines3."""

    def __init__(self, vector: Any) -> None:
        super().__init__(vector.num_envs, vector.single_observation_space, vector.single_action_space)
        self._vector = vector

    def reset(self) -> Any:
        observations, self._info = self._vector.reset(seed=0)
        return observations

    def step_async(self, actions: Any) -> None:
        self._actions = actions

    def step_wait(self) -> Any:
        observations, rewards, terminated, truncated, self._info = self._vector.step(self._actions)
        over = terminated | truncated
        infos: list[dict[str, Any]] = [{} for _ in over]
        for i in over.nonzero()[0].tolist():
            infos[i] = {"terminal_observation": self._info["final_obs"][i], "TimeLimit.truncated": bool(truncated[i])}
        return observations, rewards, over, infos

    def env_method(self, method_name: str, *arguments: Any, indices: Any = None, **keywords: Any) -> list[Any]:
        assert method_name == "action_masks"
        return list(self._info["action_mask"])

    def has_attr(self, attr_name: str) -> bool:
        return attr_name == "action_masks"

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [None] * self.num_envs

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise NotImplementedError

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [False] * self.num_envs

    def close(self) -> None:
        self._vector.close()


def make_vector(envs: int, problem: dict[str, Any]) -> Any:
    return hdsim.make_vec(envs, autoreset_mode=SAME_STEP, workers=1, **problem)


def ours(envs: int, problem: dict[str, Any]) -> Iterator[float]:
    """Rows in use of each step, step by step."""
    environments, environment = Environments(make_vector(envs, problem), 0), SchedulingEnv(**problem)
    agent = PPOAgent(
        num_envs=envs,
        num_steps=ROLLOUT // envs,
        update_epochs=PASSES,
        num_minibatches=MINIBATCHES,
        learning_rate=RATE,
        device="cpu",
    )
    agent.begin_training(environment.problem, environment.platform, 0)
    scale = RewardScale(envs, agent.gamma)
    while True:
        yield float(environments.masks.sum())
        step = environments.step(agent.explore(environments.observations, environments.masks))
        scaled = scale(step.rewards, step.terminated | step.truncated)
        agent.learn(type(step)(**(vars(step) | {"rewards": scaled})))


def timed(envs: int, steps: int, problem: dict[str, Any]) -> tuple[float, float]:
    """Mean rows in use, and steps per second of CPU time."""
    training = ours(envs, problem)
    # The first rollout compiles the kernels.
    for _ in range(ROLLOUT // envs + 1):
        next(training)
    begin = time.process_time()
    rows = np.mean([next(training) for _ in range(steps // envs)]) / envs
    return float(rows), steps / (time.process_time() - begin)


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--envs", type=int, nargs="+", default=[8, 64], help="environments stepped together")
    parser.add_argument("--steps", type=int, default=4 * ROLLOUT, help="steps, a multiple of 8,192")
    parser.add_argument("--arrivals", type=float, default=1.0, help="factor of the times between arrivals")
    options = parser.parse_args()
    problem = settings(options.arrivals)
    with reproducible():
        for envs in options.envs:
            rows, own = timed(envs, options.steps, problem)
            peer = MaskablePPO(
                "MlpPolicy",
                Adapter(make_vector(envs, problem)),
                n_steps=ROLLOUT // envs,
                n_epochs=PASSES,
                batch_size=ROLLOUT // MINIBATCHES,
                learning_rate=RATE,
                device="cpu",
                seed=0,
            )
            begin = time.process_time()
            peer.learn(options.steps)
            theirs = options.steps / (time.process_time() - begin)
            print(
                f"{envs:4} environments, {rows:5.1f} jobs to choose from: hdsim {own:8,.0f} steps per CPU second, "
                f"MaskablePPO {theirs:8,.0f}, x {own / theirs:.1f}",
                flush=True,
            )


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
