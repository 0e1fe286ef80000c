"""PPO in one file, in the manner of CleanRL: every line of the algorithm, on environments stepped together.

python examples/cleanrl_ppo.py --steps 100000

An agent picks one of the first 64 queued jobs; a small network scores each of them alike. At the end it is compared
with classic orders on jobs that it has not seen.
"""

import argparse

import numpy as np
import torch
from gymnasium.vector import AutoresetMode
from torch import nn
from torch.distributions import Categorical

import hdsim
from hdsim.envs.scheduling import SchedulingEnv
from hdsim.workload.generators import lublin

SETTINGS = {
    "platform": "homogeneous_256",
    "action": "job",
    "observation": "jobs",
    "queue_size": 64,
    "objective": "avg_bounded_slowdown",
    "reward": "integrated",
}


class Agent(nn.Module):
    """Scores of jobs, (E, 64, 8) to (E, 64), and values of states, to (E,)."""

    def __init__(self) -> None:
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 16), nn.Tanh(), nn.Linear(16, 1))
        self.critic = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))

    def forward(self, jobs: torch.Tensor, legal: torch.Tensor) -> tuple[Categorical, torch.Tensor]:
        """Distribution over the legal jobs, and the sum of what each job adds to the value."""
        scores = self.actor(jobs).squeeze(-1).masked_fill(~legal, -1e8)
        return Categorical(logits=scores), (self.critic(jobs).squeeze(-1) * jobs[..., 7]).sum(-1)


def train(steps: int, *, envs: int = 16, length: int = 128, seed: int = 1) -> Agent:
    """Trains on windows of 128 jobs of a generated trace."""
    torch.manual_seed(seed)
    gamma, lam, clip, epochs, minibatches = 0.99, 0.97, 0.2, 4, 4
    trace = {"model": "lublin", "jobs": 10_000, "seed": seed, "arrival_factor": 0.7}
    vector = hdsim.make_vec(envs, workload=trace, jobs=128, autoreset_mode=AutoresetMode.SAME_STEP, **SETTINGS)
    agent = Agent()
    optimizer = torch.optim.Adam(agent.parameters(), lr=1e-3)
    seen, info = vector.reset(seed=seed)
    ended: list[float] = []
    for update in range(1, max(1, steps // (envs * length)) + 1):
        shape = (length, envs)
        jobs, legal = torch.zeros(*shape, 64, 8), torch.zeros(*shape, 64, dtype=torch.bool)
        actions, chances, rewards, values, over = (torch.zeros(shape) for _ in range(5))
        for t in range(length):
            jobs[t], legal[t] = torch.as_tensor(seen), torch.as_tensor(info["action_mask"])
            with torch.no_grad():
                policy, values[t] = agent(jobs[t], legal[t])
            actions[t] = action = policy.sample()
            chances[t] = policy.log_prob(action)
            seen, reward, terminated, truncated, info = vector.step(action.numpy())
            rewards[t], over[t] = torch.as_tensor(reward), torch.as_tensor(terminated | truncated)
            if "metrics" in info:
                ended += info["metrics"]["mean_bounded_slowdown"][info["_metrics"]].tolist()
        with torch.no_grad():
            _, value = agent(torch.as_tensor(seen), torch.as_tensor(info["action_mask"]))
        advantages, advantage = torch.zeros(shape), torch.zeros(envs)
        for t in reversed(range(length)):
            error = rewards[t] + gamma * value * (1 - over[t]) - values[t]
            advantages[t] = advantage = error + gamma * lam * advantage * (1 - over[t])
            value = values[t]
        flat = [x.flatten(0, 1) for x in (jobs, legal, actions, chances, advantages, advantages + values)]
        # The returns of a loaded machine are thousands of times those of an idle one.
        scale = flat[5].abs().mean().clamp(min=1.0)
        for _ in range(epochs):
            for batch in torch.randperm(envs * length).chunk(minibatches):
                x, allowed, action, before, gain, target = (column[batch] for column in flat)
                policy, value = agent(x, allowed)
                ratio = (policy.log_prob(action) - before).exp()
                gain = (gain - gain.mean()) / (gain.std() + 1e-8)
                loss = -torch.min(ratio * gain, ratio.clamp(1 - clip, 1 + clip) * gain).mean()
                loss = loss + 0.5 * ((value - target) / scale).square().mean() - 0.01 * policy.entropy().mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()
        if update % 5 == 0:
            mean = f"{np.mean(ended[-50:]):.1f}" if ended else "-"
            print(f"{update * envs * length:8} steps, bounded slowdown of the last 50 episodes {mean}", flush=True)
    vector.close()
    return agent


def evaluate(agent: Agent, jobs: hdsim.Workload) -> float:
    """Mean bounded slowdown of jobs under the best-scored choices."""
    env = SchedulingEnv(workload=jobs, **SETTINGS)
    seen, info = env.reset(seed=0)
    over = False
    while not over:
        with torch.no_grad():
            policy, _ = agent(torch.as_tensor(seen)[None], torch.as_tensor(info["action_mask"])[None])
        seen, _, over, _, info = env.step(int(policy.probs.argmax()))
    return float(info["metrics"]["mean_bounded_slowdown"])


def main() -> None:
    """Trains, and prints the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    agent = train(given.steps, seed=given.seed)
    unseen = [lublin.generate(500, seed=1_000 + i, arrival_factor=0.7) for i in range(5)]
    means = {"this agent": np.mean([evaluate(agent, jobs) for jobs in unseen])}
    for name in ("fcfs", "sjf", "easy-sjf", "greedy-sjf", "greedy-saf"):
        replays = [hdsim.simulate(SETTINGS["platform"], jobs, name) for jobs in unseen]
        means[name] = np.mean([replay.metrics["mean_bounded_slowdown"] for replay in replays])
    print("mean bounded slowdown of 5 traces of 500 jobs")
    for name, mean in sorted(means.items(), key=lambda row: row[1]):
        print(f"{name:12} {mean:10.1f}")


if __name__ == "__main__":
    main()
