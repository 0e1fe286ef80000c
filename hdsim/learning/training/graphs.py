"""Networks for observations that are graphs: convolutions, then a number per vertex or for the whole graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.nn import GCNConv

from hdsim.decisions.observations.graph import JOB, NODE, VERTEX_TYPES
from hdsim.decisions.observations.star import STAR_WIDTH
from hdsim.errors import ConfigError
from hdsim.learning.agent import LearningAgent, Observations, TensorShapes, Transitions
from hdsim.learning.training.networks import mlp, require_size

if TYPE_CHECKING:
    from hdsim.decisions import DecisionProblem

#: Actions that choose a vertex of the graph, and its type; all others use the graph as a whole.
_CHOSEN = {"job": JOB, "node": NODE}
#: Arrays that are equal in every graph of a platform.
_CONSTANT_ARRAYS = ("node_type", "edge_index", "edge_type")


class GraphNetwork(nn.Module):
    """Graph convolutions (Kipf and Welling, ICLR 2017), then numbers for vertices and for the graph.

    The input of a vertex is its features and its type. Its embedding concatenates the input and the output of every
    convolution (Xu et al., Jumping Knowledge Networks, ICML 2018), because convolutions alone make vertices with a
    common neighbour alike: all nodes of a cluster share its link. Masked vertices and edges are left out. The weights
    do not depend on the numbers of vertices and edges, so they fit every platform and queue. On a star
    (:class:`hdsim.decisions.observations.star.StarGraph`) the convolutions are the same sums without lists of edges.

    Args:
        features: Numbers of a vertex.
        convolutions: Widths of the graph convolutions.
        kernel: Widths of the hidden layers of the perceptron applied to every vertex of the type `chosen`.
        hidden: Widths of the hidden layers of the perceptron applied to the mean of all vertices.
        chosen: Type of the vertices that get a number each, None for none.
        pooled: Numbers for the whole graph.
        gain: See :func:`hdsim.learning.training.networks.mlp`.
    """

    def __init__(
        self,
        features: int,
        convolutions: Sequence[int],
        kernel: Sequence[int],
        hidden: Sequence[int],
        *,
        chosen: int | None,
        pooled: int,
        gain: float,
    ) -> None:
        super().__init__()
        steps = [features + len(VERTEX_TYPES), *convolutions]
        require_size(steps)
        self.convolutions = nn.ModuleList(GCNConv(inputs, outputs) for inputs, outputs in pairwise(steps))
        self.star = features == STAR_WIDTH
        self.chosen = chosen
        self.score = None if chosen is None else mlp([sum(steps), *kernel, 1], nn.ReLU, gain)
        self.pooled = mlp([sum(steps), *hidden, pooled], nn.ReLU, gain) if pooled else None

    def forward(self, graphs: Mapping[str, Tensor]) -> Tensor:
        """B graphs, as :class:`Graph` observes them -> (B, number of chosen vertices + pooled)."""
        x, node_type = graphs["x"], graphs["node_type"].long()
        there = graphs["node_mask"].unsqueeze(-1).to(x.dtype)
        step = torch.cat([x, nn.functional.one_hot(node_type, len(VERTEX_TYPES)).to(x.dtype)], dim=-1)
        embedded = (self._star_steps(step, there) if self.star else self._steps(step, graphs)) * there
        outputs = []
        if self.score is not None:
            # Vertices are in the same places in every graph of a platform.
            outputs.append(self.score(embedded[:, node_type[0] == self.chosen]).squeeze(-1))
        if self.pooled is not None:
            outputs.append(self.pooled(embedded.sum(dim=1) / there.sum(dim=1)))
        return torch.cat(outputs, dim=-1)

    def _steps(self, x: Tensor, graphs: Mapping[str, Tensor]) -> Tensor:
        """(B, V, F) inputs and the outputs of all convolutions, side by side."""
        batch, vertices = x.shape[:2]
        # One graph of B parts.
        first = vertices * torch.arange(batch, device=x.device)
        source, target = (graphs["edge_index"] + first[:, None, None]).unbind(dim=1)
        edges = graphs["edge_mask"] > 0
        edge_index = torch.stack([source[edges], target[edges]])
        seen = [x.flatten(0, 1)]
        for convolution in self.convolutions:
            seen.append(convolution(seen[-1], edge_index).relu())
        return torch.cat(seen, dim=-1).unflatten(0, (batch, vertices))

    def _star_steps(self, x: Tensor, there: Tensor) -> Tensor:
        """The same for stars, whose last vertex is the centre; `there` (B, V, 1) marks the present vertices."""
        # Degrees with the loop of each vertex: that of the centre is its leaves and one, those of leaves are 2.
        degree = there.sum(dim=1, keepdim=True)
        weight = (2 * degree).rsqrt()
        seen = [x]
        convolution: Any
        for convolution in self.convolutions:
            mapped = convolution.lin(seen[-1]) * there
            leaves, centre = mapped[:, :-1], mapped[:, -1:]
            step = torch.cat(
                [leaves / 2 + weight * centre, centre / degree + weight * leaves.sum(dim=1, keepdim=True)], dim=1
            )
            seen.append((step + convolution.bias).relu())
        return torch.cat(seen, dim=-1)


def graph_scorer(
    shapes: TensorShapes,
    problem: DecisionProblem,
    convolutions: Sequence[int],
    kernel: Sequence[int],
    hidden: Sequence[int],
    gain: float = 0.01,
) -> GraphNetwork:
    """A network from graphs to one number for every action: of each job or node to choose, or of the whole graph.

    Args:
        shapes: Shapes of the observation and number of actions.
        problem: The decision problem.
        convolutions: See :class:`GraphNetwork`, like the next two.
        kernel: See there.
        hidden: See there.
        gain: See :func:`hdsim.learning.training.networks.mlp`.

    Raises:
        ConfigError: The observation is no graph.
    """
    chosen = _CHOSEN.get(problem.settings.get("action", ""))
    pooled = shapes.actions if chosen is None else int(problem.settings.get("void", False))
    return GraphNetwork(_features(shapes), convolutions, kernel, hidden, chosen=chosen, pooled=pooled, gain=gain)


def graph_valuer(shapes: TensorShapes, convolutions: Sequence[int], hidden: Sequence[int]) -> GraphNetwork:
    """A network from graphs to the value of the state, (B, 1); see :func:`graph_scorer`."""
    return GraphNetwork(_features(shapes), convolutions, (), hidden, chosen=None, pooled=1, gain=1.0)


class GraphAgentMixin(LearningAgent):
    """Mixin of agents that learn from graphs; precedes the algorithm among the base classes.

    Vertices and edges are in the same order in every observation of a platform: the algorithm stores the arrays that
    change, and the mixin adds the constant ones when tensors are made. A replay buffer would store all edges with every
    transition otherwise.
    """

    def build(self, shapes: TensorShapes) -> None:
        """See :class:`LearningAgent`."""
        super().build(shapes)  # type: ignore[safe-super]  # the algorithm's, as below
        self.any_size = True

    def learn(self, step: Transitions) -> dict[str, float]:
        """See :class:`LearningAgent`."""
        assert isinstance(step.observations, dict)
        self._same = {name: step.observations[name][:1] for name in _CONSTANT_ARRAYS}
        step = replace(
            step,
            observations=_variable_arrays(step.observations),
            next_observations=_variable_arrays(step.next_observations),
        )
        return super().learn(step)  # type: ignore[safe-super]

    def tensors(self, arrays: Any) -> Any:
        """See :class:`LearningAgent`; graphs are whole again."""
        if isinstance(arrays, dict) and "x" in arrays and "edge_index" not in arrays:
            batch = len(arrays["x"])
            arrays = arrays | {
                name: np.broadcast_to(array, (batch, *array.shape[1:])) for name, array in self._same.items()
            }
        return super().tensors(arrays)


def _variable_arrays(graphs: Observations) -> Observations:
    assert isinstance(graphs, dict)
    return {name: array for name, array in graphs.items() if name not in _CONSTANT_ARRAYS}


def _features(shapes: TensorShapes) -> int:
    if not isinstance(shapes.observation, dict) or "edge_index" not in shapes.observation:
        raise ConfigError(
            f"expected graph for an agent with a graph network, got arrays of {shapes.observation}",
            where="env.observation",
        )
    return shapes.observation["x"][1]
