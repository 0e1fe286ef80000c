"""Parts of networks that several algorithms use: perceptrons, and small networks applied to every job or node alike."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hdsim.errors import ConfigError
from hdsim.kernels import row_networks
from hdsim.kernels.row_networks import BLOCK, Group, Packed
from hdsim.learning.agent import LearningAgent, Masks, Observations, TensorShapes, draw
from hdsim.util.arrays import Ints

#: Logit of an illegal action; its probability is exactly 0 in single precision.
_NEVER = -1e8
#: Rows of a group, whose units fit into the second-level cache, and bytes of a line of it.
_GROUP_ROWS, _LINE = 2048, 64
#: Lower limit of the arguments of logarithms, whose range is then -1 to 0 after scaling.
_TINY = 1e-3
_LOG_TINY = math.log(_TINY)
_MOST_WEIGHTS = 20_000_000


#: Overwrites its input, since memory bounds the speed of small layers.
_relu = partial(nn.ReLU, inplace=True)


def require_size(widths: Sequence[int]) -> None:
    """Checks the numbers of units of a network's layers.

    Raises:
        ConfigError: They make a network that takes much of the memory, which no task of hdsim's needs.
    """
    weights = sum(inputs * outputs for inputs, outputs in pairwise(widths))
    if weights > _MOST_WEIGHTS:
        raise ConfigError(
            f"expected a network of at most {_MOST_WEIGHTS:,} weights, got {weights:,} with layers of {list(widths)}",
            where="agent",
        )


def mlp(widths: Sequence[int], activation: Callable[[], nn.Module] = nn.Tanh, gain: float = 1.0) -> nn.Sequential:
    """A perceptron with orthogonal weights and zero biases (Saxe et al. 2014; the usual initialisation of PPO).

    Args:
        widths: Numbers of inputs, hidden units and outputs.
        activation: Activation after every layer but the last.
        gain: Scale of the last layer's weights; a small one makes the initial policy close to uniform.
    """
    require_size(widths)
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        last = len(layers) == 2 * (len(widths) - 2)
        linear = nn.Linear(inputs, outputs)
        nn.init.orthogonal_(linear.weight, gain if last else math.sqrt(2))
        nn.init.zeros_(linear.bias)
        layers += [linear] if last else [linear, activation()]
    return nn.Sequential(*layers)


class KeptRows:
    """Room for the rows in use of observations, packed one after the other; new memory costs as much as packing.

    Args:
        shape: Number of observations, of the rows of one, and of the numbers of a row.
    """

    def __init__(self, shape: Sequence[int]) -> None:
        batch, size, self._features = shape
        # Memory that is never written takes none.
        inputs, places = np.empty((2, batch * size * self._features), np.float32), np.empty(batch * size, np.int64)
        self._rows = Packed(inputs, places, np.zeros(batch, np.int64), np.zeros(batch, np.int64))

    def put(self, begin: int, observations: NDArray[np.float32]) -> Packed:
        """Packs (B, R, F) observations behind those before `begin`, and returns them."""
        inputs, places, first, counts = self._rows
        at = int(first[begin - 1] + counts[begin - 1]) if begin else 0
        first, counts = first[begin : begin + len(observations)], counts[begin : begin + len(observations)]
        end = row_networks.pack_rows(observations, at, first, counts, places, inputs[0])
        numbers, logarithms = inputs[:, self._features * at : self._features * end]
        np.add(numbers, np.float32(_TINY), out=logarithms)
        np.log(logarithms, out=logarithms)
        logarithms /= np.float32(-_LOG_TINY)
        return Packed(inputs, places, first, counts)

    def __getitem__(self, chosen: Ints) -> Packed:
        """The rows of some of the observations, in their order."""
        inputs, places, first, counts = self._rows
        return Packed(inputs, places, first[chosen], counts[chosen])


class Rows:
    """The P rows in use of B observations of R rows each, which several kernels share; most rows are empty.

    Attributes:
        inputs: (2, F x P) numbers of the rows and their scaled logarithms, for each observation those of the first
            column first.
        places: (P,) index of each row in its observation.
        first: (B,) first row of each observation; rows may be of none or of several.
        counts: (B,) rows of each observation.
        size: R.
    """

    def __init__(self, inputs: Tensor, places: Tensor, first: Tensor, counts: Tensor, size: int) -> None:
        self.inputs = inputs
        self.places = places
        self.first = first
        self.counts = counts
        self.size = size

    @classmethod
    def of(cls, observations: Tensor) -> Rows:
        """Finds the rows in use of (B, R, F) observations."""
        seen = observations.contiguous().cpu().numpy()
        inputs, places, first, counts = KeptRows(seen.shape).put(0, seen)
        total = int(counts.sum())
        exact = inputs[:, : seen.shape[2] * total].copy(), places[:total].copy(), first, counts
        packed = [torch.from_numpy(each).to(observations.device) for each in exact]
        return cls(packed[0], packed[1], packed[2], packed[3], seen.shape[1])

    def __getitem__(self, chosen: Tensor) -> Rows:
        """The rows of some of the observations, in their order."""
        return Rows(self.inputs, self.places, self.first[chosen], self.counts[chosen], self.size)

    def packed(self) -> Packed:
        """The rows for compiled kernels."""
        return Packed(*(each.numpy() for each in (self.inputs, self.places, self.first, self.counts)))

    def listed(self, features: int) -> tuple[Tensor, Tensor, Tensor]:
        """(P', 2 F) inputs, (P',) places and (P',) observation of the rows one by one, of F `features` each."""
        device = self.counts.device
        owners = torch.arange(len(self.counts), device=device).repeat_interleave(self.counts)
        # Index of a row within its observation.
        within = torch.arange(len(owners), device=device) - (self.counts.cumsum(0) - self.counts)[owners]
        columns = torch.arange(features, device=device) * self.counts[owners, None]
        index = (self.first[owners] * features + within)[:, None] + columns
        return torch.cat([each[index] for each in self.inputs], dim=1), self.places[self.first[owners] + within], owners


class _Layers(torch.autograd.Function):
    """Layers that are applied to every row, in compiled kernels on the CPU: scores of rows, and sums of outputs."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, widths: Ints, rows: Rows) -> tuple[Tensor, Tensor]:
        """(W,) weights -> (B, R) scores and (B, H) sums over the rows of each observation."""
        batch = len(rows.counts)
        scores, totals = weights.new_zeros(batch, rows.size), weights.new_zeros(batch, widths[-1])
        ctx.arrays = arrays = (weights.detach().numpy(), widths, rows.packed(), group_space(widths, rows.size))
        compiled: Any = row_networks.forward
        compiled(*arrays, scores.numpy(), totals.numpy())
        return scores, totals

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Any:
        """Gradients of the weights."""
        gradients = np.zeros_like(ctx.arrays[0])
        compiled: Any = row_networks.add_gradients
        compiled(*ctx.arrays, *(slope.contiguous().numpy() for slope in slopes), gradients)
        return torch.from_numpy(gradients), None, None


def group_space(widths: Ints, rows: int) -> Group:
    """Space for a group of observations of at most `rows` rows each, under a network of `widths`."""
    blocks, units, top = max(_GROUP_ROWS, rows + BLOCK - 1) // BLOCK, widths.sum() * BLOCK, widths[-1] * BLOCK
    sizes = (blocks, units), units, blocks * BLOCK, blocks * BLOCK, top, top
    blocks_of_units, slopes, *others = (aligned(size) for size in sizes)
    zeros, starts = np.zeros(widths.sum(), np.float32), np.zeros(BLOCK + 1, np.int64)
    return Group(blocks_of_units, slopes, zeros, starts, *others)


def aligned(shape: int | tuple[int, ...]) -> NDArray[np.float32]:
    """Zeros that begin where a line of the cache does, for speed."""
    size = int(np.prod(shape)) * 4
    space = np.zeros(size + _LINE, np.uint8)
    first = -space.ctypes.data % _LINE
    return space[first : first + size].view(np.float32).reshape(shape)


class RowKernel(nn.Module):
    """Applies one small network to every row, RLScheduler's kernel, which fits any number of rows.

    RLScheduler (Zhang et al., SC 2020) scores each queued job this way but values the state with a network of the whole
    padded queue; here the value, and the score of the action without a row, are computed from the mean over the rows in
    use and the logarithm of their number. The kernel's inputs are the numbers of a row and their logarithms: good queue
    orders are products such as cores x time, and most jobs request a small share of a platform.

    Args:
        features: Numbers in a row.
        hidden: Widths of the kernel's layers.
        actions: Outputs besides those of the rows: 0 or 1.
        gain: See :func:`mlp`.
    """

    def __init__(self, features: int, hidden: Sequence[int], actions: int, *, gain: float) -> None:
        super().__init__()
        if not hidden:
            raise ConfigError("expected at least one width, got none", where="agent.kernel")
        self.widths = np.array([2 * features, *hidden])
        self.embed = nn.Sequential(mlp([2 * features, *hidden], _relu, math.sqrt(2)), _relu())
        self.score = mlp([hidden[-1], 1], gain=gain)
        self.pooled = mlp([hidden[-1] + 1, hidden[0], actions], gain=gain) if actions else None

    def forward(self, observations: Tensor | Rows) -> Tensor:
        """(B, R, F) -> (B, R + actions)."""
        return self.scores(*self.layers(observations))

    def layers(self, observations: Tensor | Rows) -> tuple[Tensor, Tensor]:
        """(B, R) scores of the rows, and (B, H + 1) mean of the last layer over them and logarithm of their number."""
        rows = observations if isinstance(observations, Rows) else Rows.of(observations)
        if rows.inputs.device.type == "cpu":
            weights = torch.cat([each.flatten() for part in (self.embed, self.score) for each in part.parameters()])
            scores, totals = _Layers.apply(weights, self.widths, rows)
        else:
            scores, totals = self.plain_layers(rows)
        number = rows.counts[:, None]
        return scores, torch.cat([totals / number.clamp(min=1), number.float().log1p()], dim=-1)

    def plain_layers(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """(B, R) scores of the rows, and (B, H) sums of the last layer, by PyTorch."""
        inputs, places, owners = rows.listed(int(self.widths[0]) // 2)
        embedded, batch = self.embed(inputs), len(rows.counts)
        scores = embedded.new_zeros(batch, rows.size)
        scores = scores.index_put((owners, places), self.score(embedded).squeeze(-1))
        return scores, embedded.new_zeros(batch, embedded.shape[1]).index_add(0, owners, embedded)

    def scores(self, scores: Tensor, summary: Tensor) -> Tensor:
        """(B, R + actions) scores of all actions from the results of `layers`."""
        return scores if self.pooled is None else torch.cat([scores, self.pooled(summary)], dim=-1)


def score_network(shapes: TensorShapes, hidden: Sequence[int], kernel: Sequence[int], gain: float = 0.01) -> nn.Module:
    """A network from observations to one number for every action: logits of a policy or values Q.

    Args:
        shapes: Shapes; observations with one row per action get a kernel, others a perceptron.
        hidden: Widths of the perceptron's hidden layers.
        kernel: Widths of the kernel's layers.
        gain: See :func:`mlp`.

    Raises:
        ConfigError: The observation is not one array.
    """
    if shapes.row_per_action:
        rows, features = _array(shapes)
        return RowKernel(features, kernel, shapes.actions - rows, gain=gain)
    return nn.Sequential(nn.Flatten(), mlp([math.prod(_array(shapes)), *hidden, shapes.actions], gain=gain))


def numpy_policy(network: nn.Module) -> Callable[[NDArray[np.float32], NDArray[np.bool_]], int]:
    """A NumPy function of `score_network`: observation (R, F) or (F,) and mask (A,) to the best legal action.

    A call of PyTorch costs several times the arithmetic, and only legal rows need be scored. The function shares the
    memory of the weights and follows their changes.
    """
    if isinstance(network, RowKernel):
        embed, score, pooled = (_layers(part) for part in (network.embed, network.score, network.pooled))

        def embedded(rows: NDArray[np.float32]) -> NDArray[np.float32]:
            return _through(embed, np.concatenate([rows, np.log(rows + np.float32(_TINY)) / -_LOG_TINY], axis=1))

        def best(observation: NDArray[np.float32], mask: NDArray[np.bool_]) -> int:
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
    """A policy and the value of the state, which has the kernel of the policy below it if that is one.

    Args:
        actor: Network of the policy.
        critic: Network of the value, of the summary of the kernel's rows or of observations.
    """

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
        return cls(actor, nn.Sequential(nn.Flatten(), mlp([math.prod(_array(shapes)), *hidden, 1])))

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


def masked_log_softmax(logits: Tensor, masks: Tensor) -> Tensor:
    """(B, A) logarithms of the probabilities of a policy; illegal actions have probability 0."""
    return logits.masked_fill(~masks, _NEVER).log_softmax(dim=-1)


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
    def probabilities(self, observations: Observations, masks: Masks) -> NDArray[np.float64]:
        """See :class:`LearningAgent`."""
        found: NDArray[np.float64] = (
            self.policy(self.tensors(observations), self.tensors(masks)).exp().double().cpu().numpy()
        )
        return found

    def explore(self, observations: Observations, masks: Masks) -> NDArray[np.int64]:
        """Draws from the policy."""
        return draw(self.probabilities(observations, masks), self.rng)


def _array(shapes: TensorShapes) -> tuple[int, ...]:
    if isinstance(shapes.observation, dict):
        raise ConfigError(
            "expected an observation of one array such as minimal or jobs for this agent, got several",
            where="env.observation",
        )
    return shapes.observation
