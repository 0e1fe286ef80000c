"""Networks of agents: scores of actions, policy and value, and the softmax of a policy over the legal actions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hdsim.learning.agent import LearningAgent, Masks, Observations, TensorShapes, draw
from hdsim.learning.kernels.row_networks import Packed
from hdsim.learning.training.perceptrons import mlp
from hdsim.learning.training.row_networks import LOG_TINY, TINY, RowKernel, Rows
from hdsim.util.arrays import Flags, Floats, Ints

#: Logit of an illegal action; its probability is exactly 0 in single precision.
_NEVER = -1e8


def score_network(shapes: TensorShapes, hidden: Sequence[int], kernel: Sequence[int], gain: float = 0.01) -> nn.Module:
    """A network from observations to one number for every action: logits of a policy or values Q.

    Args:
        shapes: Shapes; observations with one row per action get a kernel, others a perceptron.
        hidden: Widths of the perceptron's hidden layers.
        kernel: Widths of the kernel's layers.
        gain: See :func:`hdsim.learning.training.perceptrons.mlp`.

    Raises:
        ConfigError: The observation is not one array.
    """
    if shapes.row_per_action:
        rows, features = shapes.array
        return RowKernel(features, kernel, shapes.actions - rows, gain=gain)
    return nn.Sequential(nn.Flatten(), mlp([math.prod(shapes.array), *hidden, shapes.actions], gain=gain))


def numpy_policy(network: nn.Module) -> Callable[[NDArray[np.float32], Flags], int]:
    """A NumPy function of `score_network`: observation (R, F) or (F,) and mask (A,) to the best legal action.

    A call of PyTorch costs several times the arithmetic, and only legal rows need be scored. The function shares the
    memory of the weights and follows their changes.
    """
    if isinstance(network, RowKernel):
        embed, score, pooled = (_layers(part) for part in (network.embed, network.score, network.pooled))

        def embedded(rows: NDArray[np.float32]) -> NDArray[np.float32]:
            return _through(embed, np.concatenate([rows, np.log(rows + np.float32(TINY)) / -LOG_TINY], axis=1))

        def best(observation: NDArray[np.float32], mask: Flags) -> int:
            legal = mask.nonzero()[0]
            if len(legal) == 1:
                return int(legal[0])
            rows = len(observation)
            if legal[-1] < rows:
                return int(legal[_through(score, embedded(observation[legal])).argmax()])
            used = embedded(observation[observation.any(axis=1)])
            mean = used.sum(axis=0) / max(len(used), 1)
            other = _through(pooled, np.append(mean, np.float32(np.log1p(len(used)))))
            scores = np.append(_through(score, embedded(observation[legal[:-1]])), other)
            return int(legal[scores.argmax()])

        return best
    layers = _layers(network)
    return lambda observation, mask: int(np.where(mask, _through(layers, observation.ravel()), -np.inf).argmax())


def _layers(network: nn.Module | None) -> list[tuple[NDArray[np.float32], NDArray[np.float32], Any]]:
    """Weights (inputs, outputs), biases (outputs,) and activation of every layer."""
    after = {nn.ReLU: lambda sums: np.maximum(sums, 0.0, out=sums), nn.Tanh: np.tanh}
    layers: list[tuple[NDArray[np.float32], NDArray[np.float32], Any]] = []
    for part in network.modules() if network is not None else ():
        if isinstance(part, nn.Linear):
            layers.append((part.weight.detach().numpy().T, part.bias.detach().numpy(), None))
        elif type(part) in after:
            layers[-1] = (*layers[-1][:2], after[type(part)])
    return layers


def _through(layers: Sequence[tuple[Any, Any, Any]], values: NDArray[np.float32]) -> NDArray[np.float32]:
    for weights, biases, activation in layers:
        values = values @ weights
        values += biases
        if activation is not None:
            values = activation(values)
    return values


class ActorCritic(nn.Module):
    """A policy and the value of the state, which has the kernel of the policy below it if that is one."""

    def __init__(self, actor: nn.Module, critic: nn.Module) -> None:
        super().__init__()
        self.actor = actor
        self.critic = critic
        self.register_load_state_dict_pre_hook(_with_own_critic)

    @classmethod
    def of(cls, shapes: TensorShapes, hidden: Sequence[int], kernel: Sequence[int]) -> ActorCritic:
        """Creates both; see :func:`score_network`."""
        actor = score_network(shapes, hidden, kernel)
        if isinstance(actor, RowKernel):
            return cls(actor, mlp([kernel[-1] + 1, kernel[0], 1]))
        return cls(actor, nn.Sequential(nn.Flatten(), mlp([math.prod(shapes.array), *hidden, 1])))

    def forward(self, observations: Any) -> tuple[Tensor, Tensor]:
        """(B, A) logits and (B,) values."""
        if not isinstance(self.actor, RowKernel):
            return self.actor(observations), self.critic(observations).squeeze(-1)
        scores, summary = self.actor.layers(observations)
        return self.actor.scores(scores, summary), self.critic(summary).squeeze(-1)


def _with_own_critic(network: ActorCritic, weights: dict[str, Tensor], prefix: str, *_: Any) -> None:
    """Replaces a critic with a kernel of its own, as in checkpoints before this form: decisions need none."""
    if f"{prefix}critic.embed.0.0.weight" in weights:
        for name in [name for name in weights if name.startswith(f"{prefix}critic.")]:
            del weights[name]
        weights |= {f"{prefix}critic.{name}": kept for name, kept in network.critic.state_dict().items()}


def numpy_actor_critic(
    network: ActorCritic,
) -> Callable[[Packed, int], tuple[NDArray[np.float32], NDArray[np.float32]]]:
    """A NumPy function of policy and value with a kernel on the CPU, which shares the memory of the weights.

    It takes the rows in use of B observations and R, and returns (B, A) logits and (B,) values.
    """
    kernel: Any = network.actor
    parameters = [parameter.detach().numpy().ravel() for parameter in kernel.of_rows]
    pooled, critic = _layers(kernel.pooled), _layers(network.critic)

    def outputs(rows: Packed, size: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        scores, totals = kernel.compiled.forward(np.concatenate(parameters), rows, size)
        number = rows.counts[:, None].astype(np.float32)
        summary = np.concatenate([totals / np.maximum(number, 1), np.log1p(number)], axis=1)
        logits = np.concatenate([scores, _through(pooled, summary)], axis=1) if pooled else scores
        return logits, _through(critic, summary)[:, 0]

    return outputs


def masked_log_softmax(logits: Tensor, masks: Tensor) -> Tensor:
    """(B, A) logarithms of the probabilities of a policy; illegal actions have probability 0."""
    return torch.where(masks, logits, _NEVER).log_softmax(dim=-1)


def descend(loss: Tensor, network: nn.Module, optimizer: torch.optim.Optimizer, max_norm: float) -> None:
    """One step of an optimizer along the gradient of a loss, which is scaled down to a norm."""
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(network.parameters(), max_norm)
    optimizer.step()


class SoftmaxAgent(LearningAgent):
    """Base of agents whose policy is the softmax of `policy_network` over the legal actions."""

    def inputs(self, observations: Observations) -> Any:
        """Observations as policy and value take them."""
        seen = self.tensors(observations)
        return Rows.of(seen) if isinstance(self.policy_network(), RowKernel) else seen

    def policy(self, observations: Any, masks: Any) -> Tensor:
        """(B, A) logarithms of the actions' probabilities."""
        return masked_log_softmax(self.policy_network()(observations), masks)

    @torch.no_grad()
    def probabilities(self, observations: Observations, masks: Masks) -> Floats:
        return self.policy(self.tensors(observations), self.tensors(masks)).exp().double().cpu().numpy()

    def explore(self, observations: Observations, masks: Masks) -> Ints:
        """Draws from the policy."""
        return draw(self.probabilities(observations, masks), self.rng)
