"""A learning agent of one's own: the policy gradient in plain PyTorch, for any observation of one array.

hdsim train experiment=spread_or_pack agent.path=examples/policy_gradient.py agent.gamma=0.95 train.steps=3000
hdsim run platform=eight_nodes workload.path=even_1000 workload.memory_bandwidth=40 contention=fair_share \
    agent.path=examples/policy_gradient.py agent.checkpoint=RUN/checkpoints/best.safetensors
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from hdsim.learning.agent import LearningAgent, TensorShapes, Transitions, draw, row, stacked
from hdsim.learning.settings import integer, number


@dataclass(eq=False, kw_only=True)
class PolicyGradient(LearningAgent):
    """REINFORCE with standardised returns; an update takes the episodes that have ended, of all environments.

    Args:
        gamma: Discount factor.
        learning_rate: Of Adam.
        steps_per_update: Steps of complete episodes that make an update.
        width: Width of the hidden layer.
    """

    # What a checkpoint holds, and what `resume=true` needs besides.
    weights = ("network",)
    progress = ("optimizer", "running", "complete")

    gamma: float = number(0.99, high=1)
    learning_rate: float = number(5e-3)
    steps_per_update: int = integer(160)
    width: int = integer(32)

    def build(self, shapes: TensorShapes) -> None:
        """Creates the network; called before a training and before a checkpoint is read into it."""
        self.network = self.make_network(shapes).to(self.torch_device)
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=self.learning_rate)
        self.running: list[list[dict[str, Any]]] = [[] for _ in range(self.num_envs)]
        self.complete: list[dict[str, Any]] = []

    def make_network(self, shapes: TensorShapes) -> torch.nn.Module:
        """A perceptron from the numbers of an observation to a score for each action."""
        first = torch.nn.Linear(int(np.prod(shapes.array)), self.width)
        return torch.nn.Sequential(
            torch.nn.Flatten(), first, torch.nn.Tanh(), torch.nn.Linear(self.width, shapes.actions)
        )

    def logits(self, observations: Any, masks: Any) -> torch.Tensor:
        """(E, A) logarithms of probabilities, up to a constant; -inf where the mask forbids an action."""
        scores = self.network(self.tensors(observations))
        return scores.masked_fill(~torch.as_tensor(masks, device=scores.device), -torch.inf)

    def probabilities(self, observations: Any, masks: Any) -> Any:
        """The policy: what a replay follows."""
        with torch.no_grad():
            return torch.softmax(self.logits(observations, masks), dim=1).cpu().numpy()

    def explore(self, observations: Any, masks: Any) -> Any:
        """Draws from the policy with the generator of the training."""
        return draw(self.probabilities(observations, masks), self.rng)

    def learn(self, step: Transitions) -> dict[str, float]:
        """Adds a step of each environment; an update follows when enough steps are in complete episodes."""
        for env, episode in enumerate(self.running):
            kept = {"seen": row(step.observations, env), "mask": row(step.masks, env), "action": int(step.actions[env])}
            episode.append({**kept, "reward": float(step.rewards[env])})
            # A truncated episode counts as one that has ended, without a value of what would follow.
            if step.terminated[env] or step.truncated[env]:
                after = 0.0
                for each in reversed(episode):
                    after = each["return"] = each["reward"] + self.gamma * after
                self.complete += episode
                self.running[env] = []
        return self.update() if len(self.complete) >= self.steps_per_update else {}

    def update(self) -> dict[str, float]:
        """One step of Adam."""
        batch, self.complete = self.complete, []
        seen, masks = stacked([each["seen"] for each in batch]), stacked([each["mask"] for each in batch])
        returns = np.array([each["return"] for each in batch])
        advantages = self.tensors((returns - returns.mean()) / (returns.std() + 1e-8))
        chosen = torch.tensor([each["action"] for each in batch], device=self.torch_device)
        logarithms = torch.log_softmax(self.logits(seen, masks), dim=1)
        loss = -(logarithms.gather(1, chosen[:, None])[:, 0] * advantages).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return {"loss": float(loss.detach())}
