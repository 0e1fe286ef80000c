"""CPU time of graph networks on gaia, beside that of RLScheduler's kernel: forward passes and updates.

Observations come from an environment that plays random legal actions; the least time of several rounds counts. Forward
passes begin with the arrays of an environment, updates with tensors, which a rollout makes once.

python benchmarks/graphs.py
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from hdsim.agents.gnn_ppo import GNNPPOAgent
from hdsim.agents.ppo import PPOAgent
from hdsim.envs.scheduling import SchedulingEnv
from hdsim.learning.agent import LearningAgent, stacked

ROUNDS = 5
FEW, MANY = 8, 256


def milliseconds(function: Callable[[], object], repeats: int) -> float:
    """Least CPU time of a call, ms."""
    times = []
    for _ in range(ROUNDS):
        begin = time.process_time()
        for _ in range(repeats):
            function()
        times.append(time.process_time() - begin)
    return min(times) / repeats * 1e3


def measured(agent: LearningAgent, env: SchedulingEnv) -> list[float]:
    """Forward of 8, forward of 256 and update of policy and value with 256 observations, ms."""
    agent.begin_training(env.problem, env.platform, 1)
    rng, seen = np.random.default_rng(0), []
    observation, info = env.reset(seed=1)
    for _ in range(100 + MANY):
        observation, *_, info = env.step(rng.choice(np.flatnonzero(info["action_mask"])))
        seen.append(observation)
    network: Any = agent.policy_network()
    whole: Any = agent.network  # type: ignore[attr-defined]
    few, many = (stacked(seen[-count:]) for count in (FEW, MANY))
    inputs = agent.tensors(many)

    def update() -> None:
        whole.zero_grad()
        sum(each.sum() for each in whole(inputs)).backward()

    with torch.no_grad():
        forward = [
            milliseconds(lambda: network(agent.tensors(few)), 20),
            milliseconds(lambda: network(agent.tensors(many)), 2),
        ]
    return [*forward, milliseconds(update, 1)]


def main() -> None:
    """Prints a table."""
    torch.set_num_threads(1)
    print(f"{'':32}{'forward of 8':>14}{'of 256':>10}{'update of 256':>16}")
    for action, rows in (("job", "jobs"), ("node", "nodes_bandwidth")):
        for name, observation, agent in (
            ("kernel", rows, PPOAgent()),
            ("graph, mean", "graph", GNNPPOAgent()),
            ("graph, attention", "graph", GNNPPOAgent(aggregation="attention")),
        ):
            size = {"queue_size": 32} if "graph" in name or action == "job" else {}
            env = SchedulingEnv("gaia", "lublin_4000", action, observation, jobs=1000, contention="threshold", **size)
            few, many, update = measured(agent, env)
            print(f"{action + ', ' + name:32}{few:14.2f}{many:10.2f}{update:16.1f}")


if __name__ == "__main__":
    main()
