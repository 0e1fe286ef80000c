"""Networks for observations that are graphs: layers of messages, then a number per vertex or for the whole graph."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.nn import GCNConv

from hdsim.decisions.observations.graph import COLUMNS, EDGE_TYPES, VERTEX_TYPES
from hdsim.decisions.observations.star import STAR_VERTICES, STAR_WIDTH
from hdsim.errors import ConfigError
from hdsim.learning.agent import LearningAgent, Observations, TensorShapes, Transitions
from hdsim.learning.settings import layer_widths, word
from hdsim.learning.training.networks import ActorCritic
from hdsim.learning.training.perceptrons import mlp, require_size

#: Arrays that are equal in every graph of a platform.
_CONSTANT_ARRAYS = ("node_type", "edge_index", "edge_type", "node_cluster")
#: Least sum of the weights of the neighbours, which is 0 without neighbours.
_TINY = 1e-30
#: A one-hot code of the type has always had a place more than stars have types; weights of checkpoints depend on it.
_STAR_TYPES = 4
#: Arrays of one of which every graph has.
_ROWS = {"x", "fits"}
_FITS, _TAKES, _IN, _HAS, _JOINS = (relation for _, relation, _ in EDGE_TYPES)


class GraphNetwork(nn.Module):
    """Base of networks from graphs to numbers for vertices and for the graph.

    The embedding of a vertex concatenates its input and the output of every layer (Xu et al., Jumping Knowledge
    Networks, ICML 2018), because layers alone make vertices with the same neighbours alike. The weights do not depend
    on the numbers of vertices and edges, so they fit every platform and queue.

    Args:
        embedding: Width of the embedding of a vertex with a score.
        whole: Width of the embedding of the graph.
        kernel: Widths of the hidden layers of the perceptron applied to every vertex of the type `chosen`.
        hidden: Widths of the hidden layers of the perceptron applied to the embedding of the graph.
        chosen: Type of the vertices that get a number each, None for none.
        pooled: Numbers for the whole graph.
        gain: See :func:`hdsim.learning.training.networks.mlp`.
    """

    def __init__(
        self,
        embedding: int,
        whole: int,
        kernel: Sequence[int],
        hidden: Sequence[int],
        *,
        chosen: str | None,
        pooled: int,
        gain: float,
    ) -> None:
        super().__init__()
        self.chosen = chosen
        self.score = None if chosen is None else mlp([embedding, *kernel, 1], nn.ReLU, gain)
        self.pooled = mlp([whole, *hidden, pooled], nn.ReLU, gain) if pooled else None

    def forward(self, graphs: Mapping[str, Tensor]) -> Tensor:
        """B graphs, as :class:`hdsim.decisions.observations.graph.Graph` observes them -> (B, chosen + pooled)."""
        vertices, embedded = self.embed(graphs)
        outputs = [] if self.score is None else [self.score(vertices).squeeze(-1)]
        if self.pooled is not None:
            outputs.append(self.pooled(embedded))
        return torch.cat(outputs, dim=-1)

    @abstractmethod
    def embed(self, graphs: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """(B, V, E) embeddings of the vertices to choose from, if any, and (B, W) of the graphs."""


class RelationalNetwork(GraphNetwork):
    """Relational graph convolutions (Schlichtkrull et al., ESWC 2018): each type of edges has weights of its own.

    In every layer a vertex adds a linear map of itself to one, for each type of edges, of the mean of its neighbours;
    with `attention` the mean between jobs and nodes is weighted by the softmax of scaled dot products (Vaswani et al.,
    NeurIPS 2017). Those edges are a matrix and all others follow from the cluster of each node, so messages are
    products of matrices, without lists of edges.

    Args:
        layers: Widths of the layers.
        aggregation: `mean` or `attention`.
        **outputs: See :class:`GraphNetwork`.
    """

    def __init__(self, layers: Sequence[int], aggregation: str, **outputs: Any) -> None:
        inputs = {kind: len(COLUMNS[kind]) for kind in VERTEX_TYPES}
        chosen, width = outputs["chosen"], sum(layers)
        super().__init__(inputs.get(chosen, 0) + width, sum(inputs.values()) + len(inputs) * width + 1, **outputs)
        require_size([max(inputs.values()), *layers])
        self.attends = aggregation == "attention"
        self.layers = nn.ModuleList()
        for outer in layers:
            maps = {kind: nn.Linear(inner, outer) for kind, inner in inputs.items()}
            maps |= {relation: nn.Linear(inputs[source], outer, bias=False) for source, relation, _ in EDGE_TYPES}
            if self.attends:
                maps |= {f"{kind}_key": nn.Linear(inputs[kind], outer, bias=False) for kind in ("job", "node")}
            self.layers.append(nn.ModuleDict(maps))
            inputs = dict.fromkeys(VERTEX_TYPES, outer)

    def embed(self, graphs: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        fits, cluster = graphs["fits"].to(graphs["job"].dtype), graphs["node_cluster"][0].long()
        members = nn.functional.one_hot(cluster, graphs["cluster"].shape[1]).to(fits.dtype).T
        members = members / members.sum(dim=1, keepdim=True).clamp(min=1)
        shares = None if self.attends else _shares(fits)
        present = {kind: graphs[kind] for kind in VERTEX_TYPES}
        seen = {kind: [x] for kind, x in present.items()}
        maps: Any
        for layer, maps in enumerate(self.layers, 1):
            last = layer == len(self.layers) and self.pooled is None
            to_node, to_job = shares or _shares(self._attention(maps, present, fits))
            present = {
                kind: (maps[kind](present[kind]) + received).relu()
                for kind, received in self._received(maps, present, to_node, to_job, members, cluster, last)
            }
            for kind, x in present.items():
                seen[kind].append(x)
        embedded = {kind: torch.cat(steps, dim=-1) for kind, steps in seen.items()}
        if self.pooled is None:
            return embedded[str(self.chosen)], fits
        queued = graphs["job"][..., -1:]
        number = queued.sum(dim=1)
        whole = [(embedded["job"] * queued).sum(dim=1) / number.clamp(min=1), number.log1p()]
        whole += [embedded[kind].mean(dim=1) for kind in ("node", "cluster")]
        return embedded[self.chosen or "node"], torch.cat(whole, dim=-1)

    def _received(
        self,
        maps: Any,
        present: Mapping[str, Tensor],
        to_node: Tensor,
        to_job: Tensor,
        members: Tensor,
        cluster: Tensor,
        last: bool,
    ) -> Iterator[tuple[str, Tensor]]:
        """Messages to all vertices of each type; in the last layer of a network without a pooled number only of one."""
        jobs, nodes, clusters = (present[kind] for kind in VERTEX_TYPES)
        if not last or self.chosen == "job":
            yield "job", maps[_TAKES](to_job @ nodes)
        if not last or self.chosen == "node":
            yield "node", to_node @ maps[_FITS](jobs) + maps[_HAS](clusters)[:, cluster]
        if not last:
            others = (clusters.sum(dim=1, keepdim=True) - clusters) / max(clusters.shape[1] - 1, 1)
            yield "cluster", maps[_IN](members @ nodes) + maps[_JOINS](others)

    @staticmethod
    def _attention(maps: Any, present: Mapping[str, Tensor], fits: Tensor) -> Tensor:
        """(B, Q, N) exponentials of the scaled dot products of jobs and nodes, up to one factor per graph."""
        jobs, nodes = maps["job_key"](present["job"]), maps["node_key"](present["node"])
        alike = jobs @ nodes.transpose(1, 2) / jobs.shape[-1] ** 0.5
        return (alike - alike.detach().amax(dim=(1, 2), keepdim=True)).exp() * fits


def _shares(weights: Tensor) -> tuple[Tensor, Tensor]:
    """(B, N, Q) and (B, Q, N) shares of jobs in the messages to a node and of nodes in those to a job, from weights."""
    return (weights / weights.sum(dim=1, keepdim=True).clamp(min=_TINY)).transpose(1, 2), (
        weights / weights.sum(dim=2, keepdim=True).clamp(min=_TINY)
    )


class StarNetwork(GraphNetwork):
    """Graph convolutions (Kipf and Welling, ICLR 2017) on stars, as sums instead of lists of edges.

    The input of a vertex is its features and its type (:class:`hdsim.decisions.observations.star.StarGraph`).

    Args:
        layers: Widths of the convolutions.
        **outputs: See :class:`GraphNetwork`.
    """

    def __init__(self, layers: Sequence[int], **outputs: Any) -> None:
        steps = [STAR_WIDTH + _STAR_TYPES, *layers]
        require_size(steps)
        super().__init__(sum(steps), sum(steps), **outputs)
        self.convolutions = nn.ModuleList(GCNConv(inputs, outputs) for inputs, outputs in pairwise(steps))

    def embed(self, graphs: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        x, node_type = graphs["x"], graphs["node_type"].long()
        there = graphs["node_mask"].unsqueeze(-1).to(x.dtype)
        # Degrees with the loop of each vertex: that of the centre is its leaves and one, those of leaves are 2.
        degree = there.sum(dim=1, keepdim=True)
        weight = (2 * degree).rsqrt()
        seen = [torch.cat([x, nn.functional.one_hot(node_type, _STAR_TYPES).to(x.dtype)], dim=-1)]
        convolution: Any
        for convolution in self.convolutions:
            mapped = convolution.lin(seen[-1]) * there
            leaves, centre = mapped[:, :-1], mapped[:, -1:]
            step = torch.cat(
                [leaves / 2 + weight * centre, centre / degree + weight * leaves.sum(dim=1, keepdim=True)], dim=1
            )
            seen.append((step + convolution.bias).relu())
        embedded = torch.cat(seen, dim=-1) * there
        # Vertices are in the same places in every graph of a platform.
        chosen = embedded[:, node_type[0] == STAR_VERTICES.index(self.chosen)] if self.chosen else embedded
        return chosen, embedded.sum(dim=1) / there.sum(dim=1)


@dataclass(eq=False, kw_only=True)
class GraphAgentMixin(LearningAgent):
    """Mixin of agents that learn from graphs; precedes the algorithm, whose networks it makes, among the base classes.

    Vertices are in the same order in every observation of a platform: the algorithm stores the arrays that change, and
    the mixin adds the constant ones when tensors are made. A replay buffer would store all of them with every
    transition otherwise.

    Args:
        convolutions: Widths of the graph convolutions.
        aggregation: Sum of the messages of neighbours: `mean` or `attention` (:class:`RelationalNetwork`).
        kernel: Widths of the hidden layers of the perceptron that scores every job or node.
        hidden: Widths of the hidden layers of the perceptron behind the embedding of the graph.
    """

    convolutions: Sequence[int] = layer_widths(32, 32)
    aggregation: str = word("mean", "attention")
    hidden: Sequence[int] = layer_widths(64)
    kernel: Sequence[int] = layer_widths(32)

    def build(self, shapes: TensorShapes) -> None:
        super().build(shapes)  # type: ignore[safe-super]  # the algorithm's, as below
        self.any_size = True

    def scorer(self, shapes: TensorShapes, gain: float = 0.01) -> GraphNetwork:
        """A network from graphs to one number for every action: of each job or node, or of the whole graph.

        Args:
            shapes: Shapes of the observation and number of actions.
            gain: See :func:`hdsim.learning.training.networks.mlp`.

        Raises:
            ConfigError: The observation is no graph.
        """
        settings = self.problem.settings
        chosen = settings["action"] if settings.get("action") in ("job", "node") else None
        pooled = shapes.actions if chosen is None else int(settings.get("void", False))
        return self._network(shapes, chosen=chosen, pooled=pooled, gain=gain)

    def networks(self, shapes: TensorShapes) -> ActorCritic:
        """Policy and value."""
        return ActorCritic(self.scorer(shapes), self._network(shapes, chosen=None, pooled=1, gain=1.0))

    def learn(self, step: Transitions) -> dict[str, float]:
        assert isinstance(step.observations, dict)
        self._same = {name: step.observations[name][:1] for name in _CONSTANT_ARRAYS if name in step.observations}
        step = replace(
            step,
            observations=_variable_arrays(step.observations),
            next_observations=_variable_arrays(step.next_observations),
        )
        return super().learn(step)  # type: ignore[safe-super]

    def tensors(self, arrays: Any) -> Any:
        """See :class:`LearningAgent`; graphs are whole again."""
        if isinstance(arrays, dict) and arrays.keys() & _ROWS and not arrays.keys() & set(_CONSTANT_ARRAYS):
            batch = len(next(iter(arrays.values())))
            arrays = arrays | {
                name: np.broadcast_to(array, (batch, *array.shape[1:])) for name, array in self._same.items()
            }
        return super().tensors(arrays)

    def _network(self, shapes: TensorShapes, **outputs: Any) -> GraphNetwork:
        outputs |= {"kernel": self.kernel, "hidden": self.hidden}
        seen = shapes.observation
        if isinstance(seen, dict) and "x" in seen:
            return StarNetwork(self.convolutions, **outputs)
        if isinstance(seen, dict) and "fits" in seen:
            return RelationalNetwork(self.convolutions, self.aggregation, **outputs)
        raise ConfigError(
            f"expected graph for an agent with a graph network, got arrays of {seen}", where="env.observation"
        )


def _variable_arrays(graphs: Observations) -> Observations:
    assert isinstance(graphs, dict)
    return {name: array for name, array in graphs.items() if name not in _CONSTANT_ARRAYS}
