"""Steps of PPO per second of CPU time in the first version, which `training.py --before FOLDER` runs in turns.

PYTHONPATH=FOLDER python benchmarks/training_before.py ENVS STEPS ROLLOUT ARRIVALS, in a worktree FOLDER of bdc7d45.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import hdsim
from hdsim.agents.ppo import PPOAgent
from hdsim.envs.scheduling import SchedulingEnv
from hdsim.training.environments import Environments
from hdsim.training.loop import reproducible
from hdsim.training.rewards import RewardScale


def main() -> None:
    """Prints rows in use and steps per second after a first rollout."""
    envs, steps, rollout = map(int, sys.argv[1:4])
    folder = Path(hdsim.__file__).parents[1]
    workload = hdsim.load_workload(folder / "workloads" / "lublin_16000.swf.gz", arrival_factor=float(sys.argv[4]))
    problem: dict[str, Any] = {
        "platform": folder / "platforms" / "homogeneous_256.json", "workload": workload, "jobs": 256, "action": "job",
        "observation": "jobs", "objective": "bounded_slowdown", "reward": "sampled", "queue_size": 128, "commit": True,
    }  # fmt: skip
    with reproducible():
        environments = Environments([SchedulingEnv(**problem) for _ in range(envs)], 0)
        example = SchedulingEnv(**problem)
        agent = PPOAgent(
            num_envs=envs, num_steps=rollout // envs, update_epochs=4, num_minibatches=4, learning_rate=3e-4,
            device="cpu",
        )  # fmt: skip
        agent.begin_training(example.task, example.platform, 0)
        scale, rows = RewardScale(envs, agent.gamma), []
        for number in range((rollout + steps) // envs):
            if number == rollout // envs:
                begin = time.process_time()
                rows.clear()
            rows.append(environments.masks.sum() / envs)
            step = environments.step(agent.explore(environments.observations, environments.masks))
            rewards = scale(step.rewards, step.terminated | step.truncated)
            agent.learn(dataclasses.replace(step, rewards=rewards))
        print(float(np.mean(rows)), steps / (time.process_time() - begin))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
