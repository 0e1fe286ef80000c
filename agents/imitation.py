"""Imitation: behaviour cloning of the recorded decisions of a classic policy (Pomerleau 1989), as a start for others.

The agent follows a recording in the episodes of the training and fits a policy to the recorded decisions. With a search
as teacher that considers what the network would choose, it is expert iteration (Anthony, Tian and Barber, Thinking Fast
and Slow with Deep Learning and Tree Search, 2017).

The network is the policy of ppo, actor_critic and reinforce, and the values of dqn: with ``agent.start=CHECKPOINT`` one
of them starts with the weights of imitation. :mod:`hdsim.agents.gnn_imitation` is the variant for graphs.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from hdsim.agents.rollout import Rollout
from hdsim.decisions import DecisionProblem
from hdsim.decisions.actions.pick_job import PickJob
from hdsim.errors import ConfigError
from hdsim.learning.agent import TensorShapes, Transitions, map_arrays
from hdsim.learning.settings import integer, layer_widths, number
from hdsim.learning.training.buffer import ReplayBuffer
from hdsim.learning.training.demonstrations import Demonstrations
from hdsim.learning.training.networks import SoftmaxAgent, descend, masked_log_softmax, score_network
from hdsim.scheduling.orders import JobOrder
from hdsim.util.arrays import Ints

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster
    from hdsim.workload.model import Workload


#: Teacher that searches.
SEARCH = "rollout"


class Searcher(Rollout):
    """A search that makes the decisions of an environment, and keeps them.

    Args:
        problem: The decisions: heads that stay heads until they start.
        advice: Chooses an action by observation and mask; its job is one more candidate. None: there is none.
        **settings: See :class:`Rollout`.

    Attributes:
        heads: The chosen jobs, in order.
    """

    def __init__(self, problem: DecisionProblem, advice: Callable[[Any, Any], int] | None, **settings: Any) -> None:
        backfill = problem.settings.get("backfill", "none")
        super().__init__(backfill=backfill, core_policy=problem.core_policy, commit_head=True, **settings)
        self._problem, self._advice = DecisionProblem(**problem.settings), advice
        if advice is not None:
            self._orders.append(JobOrder("advice", self._advised, dynamic=True))
        self.heads: list[int] = []

    def begin(self, cluster: Cluster) -> None:
        super().begin(cluster)
        self._problem.begin(cluster)
        self.heads.clear()

    def decide(self, cluster: Cluster) -> None:
        """Carries out all decisions that are pending at this instant."""
        self._look(cluster)
        queued = self._problem.wait_queue.jobs
        while self._problem.pending():
            head = queued[0] if len(queued) == 1 else self._next(cluster)
            assert head is not None
            # Of a long queue only the first jobs can be chosen.
            place = min(queued.index(head), self._problem.action.size(cluster.platform) - 1)
            self.heads.append(queued[place])
            self._problem.act(place)

    def _advised(self, jobs: Workload, queued: Ints, cluster: Cluster) -> np.ndarray:
        """0 for the job that is advised."""
        assert self._advice is not None
        place = self._advice(self._problem.observe(), self._problem.mask())
        return (queued != self._problem.wait_queue.jobs[place]).astype(float)


@dataclass(eq=False, kw_only=True)
class ImitationAgent(SoftmaxAgent):
    """Behaviour cloning: the cross-entropy between the policy and the recorded decisions.

    Args:
        num_envs: Environments stepped together.
        teacher: Classic policy whose replay of each episode is the recording; ``rollout``: a search.
        search: Settings of the search, see :class:`hdsim.agents.rollout.Rollout`.
        iteration: Steps of all environments after which the network's choice, with the weights of that moment, is one
            of the candidates of the search; these weights are replaced after as many steps each. 0: it never is.
        recording: Run directory whose schedule is the recording instead, jobs being selected in the order of their
            recorded starts and placed on their recorded nodes; or a file of ``hdsim kwok record``, whose pods are then
            the jobs of all episodes.
        learning_rate: Of Adam.
        buffer_size: Number of stored decisions.
        batch_size: Decisions of an update.
        train_frequency: Steps between two updates.
        max_grad_norm: Gradients are scaled down to this norm.
        hidden: Widths of the perceptron's hidden layers.
        kernel: Widths of the kernel's layers.
    """

    weights = ("network",)
    progress = ("optimizer", "buffer", "steps", "student")

    num_envs: int = integer(4)
    teacher: str = "sjf"
    search: Mapping[str, Any] | None = None
    iteration: int = integer(0, low=0)
    recording: str | None = None
    learning_rate: float = number(1e-3)
    buffer_size: int = integer(20_000)
    batch_size: int = integer(256)
    train_frequency: int = integer(8)
    max_grad_norm: float = number(0.5)
    hidden: Sequence[int] = layer_widths(64, 64)
    kernel: Sequence[int] = layer_widths(32, 16, 8)

    def build(self, shapes: TensorShapes) -> None:
        """Creates the policy, Adam and an empty buffer."""
        self.any_size = shapes.row_per_action
        self.network = self.scorer(shapes).to(self.torch_device)
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=self.learning_rate)
        self.buffer = ReplayBuffer(self.buffer_size, gamma=1.0)
        self.steps = 0
        self.student = copy.deepcopy(self.network)  # the network of the present iteration

    def scorer(self, shapes: TensorShapes, gain: float = 0.01) -> nn.Module:
        """Network that scores each action."""
        return score_network(shapes, self.hidden, self.kernel, gain)

    # ---- demonstrations

    def attach(self, environments: Sequence[Any], evaluation: Any) -> None:
        """Creates the demonstrations.

        Raises:
            ConfigError: The teacher has no decisions of this kind of action.
        """
        where = "agent.teacher" if self.recording is None else "agent.recording"
        teacher: Any = self.teacher
        if self.recording is None and teacher == SEARCH:
            teacher = self._searcher
            teacher()
        elif self.iteration:
            raise ConfigError(
                f"expected 0 without a search as teacher, agent.teacher={SEARCH}, got {self.iteration}",
                where="agent.iteration",
            )
        self._demonstrations = Demonstrations(
            environments, evaluation, teacher=teacher, recording=self.recording, where=where
        )

    def _searcher(self) -> Searcher:
        """Makes the search of an episode.

        Raises:
            ConfigError: The decisions are none of a search, or it does not take the settings.
        """
        problem = self.problem
        if not (isinstance(problem, DecisionProblem) and isinstance(problem.action, PickJob) and problem.action.commit):
            raise ConfigError(
                "expected env.action=job and env.commit=true with a search, which chooses heads that stay heads, got "
                f"{getattr(problem, 'settings', 'a gang')}",
                where="agent.teacher",
            )
        advice = self._advice if 0 < self.iteration <= self.steps else None
        try:
            return Searcher(problem, advice, **(self.search or {}))
        except ConfigError as error:
            raise ConfigError(error.message, where="agent.search") from None

    @torch.no_grad()
    def _advice(self, observation: Any, mask: np.ndarray) -> int:
        """The choice of the network of the present iteration."""
        seen = self.tensors(map_arrays(lambda array: array[np.newaxis], observation))
        return int(masked_log_softmax(self.student(seen), self.tensors(mask[np.newaxis])).argmax())

    def explore(self, observations: Any, masks: np.ndarray) -> np.ndarray:
        """Returns the recorded actions of the current episodes."""
        return self._demonstrations.actions()

    # ---- learning

    def learn(self, step: Transitions) -> dict[str, float]:
        """Stores the decisions; fits the policy to a batch of them at its interval."""
        self.buffer.add(step)
        before, self.steps = self.steps, self.steps + len(step.actions)
        if self.iteration and self.steps // self.iteration > before // self.iteration:
            self.student.load_state_dict(self.network.state_dict())
            self._demonstrations.renew()
        if self.steps // self.train_frequency == before // self.train_frequency:
            return {}
        batch = self.buffer.sample(self.batch_size, self.rng)
        actions = self.tensors(batch.actions)
        log_probs = self.policy(self.tensors(batch.observations), self.tensors(batch.masks))
        loss = nn.functional.nll_loss(log_probs, actions)
        descend(loss, self.network, self.optimizer, self.max_grad_norm)
        agreement = (log_probs.argmax(dim=1) == actions).float().mean()
        return {"loss": loss.item(), "agreement": agreement.item()}
