"""Networks for observations that are graphs: layers of messages, then a number per vertex or for the whole graph."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch_geometric.nn import GCNConv

from hdsim.decisions.observations.graph import COLUMNS, EDGE_TYPES, VERTEX_TYPES
from hdsim.decisions.observations.star import STAR_VERTICES, STAR_WIDTH
from hdsim.errors import ConfigError
from hdsim.learning.agent import LearningAgent, Observations, TensorShapes, Transitions
from hdsim.learning.kernels import equal_nodes
from hdsim.learning.settings import layer_widths, word
from hdsim.learning.training.networks import ActorCritic
from hdsim.learning.training.perceptrons import mlp, require_size

#: Arrays that are equal in every graph of a platform.
_CONSTANT_ARRAYS = ("node_type", "edge_index", "edge_type", "node_cluster")
#: Least sum of the weights of the neighbours, which is 0 without neighbours.
_TINY = 1e-30
#: Vertices of all graphs up to which NumPy is faster than PyTorch, and uses one thread.
_FEW = 512
#: A one-hot code of the type has always had a place more than stars have types; weights of checkpoints depend on it.
_STAR_TYPES = 4
#: Arrays of one of which every graph has.
_ROWS = {"x", "fits"}
_FITS, _TAKES, _IN, _HAS, _JOINS = (relation for _, relation, _ in EDGE_TYPES)


class Parts(NamedTuple):
    """The parts of a network: modules and functions of PyTorch, or of NumPy, which is called in less time."""

    layers: Sequence[Any]
    score: Any
    pooled: Any
    relu: Any
    join: Any  # arrays, axis
    pick: Any  # array, indices, axis
    add_products: Any  # sums, (B, I, J) and (B, J, K) factors

    @classmethod
    def of(cls, network: Any) -> Parts:
        """Those of PyTorch."""
        layers, functions = getattr(network, "layers", ()), (torch.relu, torch.cat, torch.take_along_dim)
        return cls(layers, network.score, network.pooled, *functions, torch.baddbmm)

    @classmethod
    def numpy(cls, network: Any) -> Parts:
        """Those of NumPy, which share the memory of the weights."""
        layers = [{name: _numpy(part) for name, part in maps.items()} for maps in network.layers]
        score, pooled = (None if part is None else _numpy(part) for part in (network.score, network.pooled))
        functions = _relu, np.concatenate, np.take_along_axis
        return cls(layers, score, pooled, *functions, lambda sums, first, second: sums + first @ second)


def _numpy(part: Any) -> Any:
    """A function of arrays: a linear map, or layers with ReLU."""
    if isinstance(part, nn.ReLU):
        return _relu
    if isinstance(part, nn.Linear):
        weights, biases = part.weight.detach().numpy().T, dict(part.named_parameters()).get("bias")
        if biases is None:
            return lambda x: x @ weights
        bias = biases.detach().numpy()
        return lambda x: x @ weights + bias
    steps = [_numpy(step) for step in part]
    return lambda x: reduce(lambda y, step: step(y), steps, x)


def _relu(x: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.maximum(x, np.float32(0.0))


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
        """B graphs, as :meth:`GraphAgentMixin.tensors` makes them -> (B, chosen + pooled)."""
        return self.outputs(graphs, Parts.of(self))

    def outputs(self, graphs: Mapping[str, Any], parts: Parts) -> Any:
        """The outputs of `forward`, as `parts` compute them: tensors or arrays."""
        vertices, embedded = self.embed(graphs, parts)
        outputs = [] if parts.score is None else [self.of_actions(parts.score(vertices).squeeze(-1), graphs, parts)]
        if parts.pooled is not None:
            outputs.append(parts.pooled(embedded))
        return parts.join(outputs, -1)

    @abstractmethod
    def embed(self, graphs: Mapping[str, Any], parts: Parts) -> tuple[Any, Any]:
        """(B, V, E) embeddings of the vertices to choose from, and (B, W) of the graphs; None where none are needed."""

    def of_actions(self, scores: Any, graphs: Mapping[str, Any], parts: Parts) -> Any:
        """(B, A) scores of jobs or nodes from those of the (B, V) vertices."""
        return scores


class RelationalNetwork(GraphNetwork):
    """Relational graph convolutions (Schlichtkrull et al., ESWC 2018): each type of edges has weights of its own.

    In every layer a vertex adds a linear map of itself to one, for each type of edges, of the mean of its neighbours;
    with `attention` the mean between jobs and nodes is weighted by the softmax of scaled dot products (Vaswani et al.,
    NeurIPS 2017). Edges join nodes to jobs and clusters, so messages are products of matrices, without lists of edges;
    clusters are all joined. Nodes that are alike are one vertex (:func:`merged`).

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

        self._numpy: Parts | None = None
        self._place = 0  # of the first weights of `_numpy` in memory

    def forward(self, graphs: Mapping[str, Tensor]) -> Tensor:
        """See :class:`GraphNetwork`. A few graphs on the CPU that need no gradients go through NumPy."""
        batch, vertices, _ = graphs["node"].shape
        few = batch * vertices <= _FEW and graphs["node"].device.type == "cpu"
        if not few or self.attends or torch.is_grad_enabled():
            return super().forward(graphs)
        place = next(self.parameters()).data_ptr()
        if self._numpy is None or place != self._place:
            self._numpy, self._place = Parts.numpy(self), place
        return torch.from_numpy(self.outputs({name: array.numpy() for name, array in graphs.items()}, self._numpy))

    def embed(self, graphs: Mapping[str, Any], parts: Parts) -> tuple[Any, Any]:
        weights = graphs["to_nodes"], graphs["from_nodes"]
        present = {kind: graphs[kind] for kind in VERTEX_TYPES}
        present["job"] = present["job"][:, : graphs["job_share"].shape[2]]
        seen = {kind: [x] for kind, x in present.items()}
        for layer, maps in enumerate(parts.layers, 1):
            last = layer == len(parts.layers) and self.pooled is None
            to_nodes, from_nodes = self._attention(maps, present, *weights) if self.attends else weights
            present = {kind: parts.relu(x) for kind, x in self._next(maps, present, to_nodes, from_nodes, last, parts)}
            for kind, x in present.items():
                seen[kind].append(x)
        if self.pooled is None:
            return parts.join(seen[str(self.chosen)], -1), None
        embedded = {kind: parts.join(steps, -1) for kind, steps in seen.items()}
        whole = [(graphs[f"{kind}_share"] @ embedded[kind]).squeeze(1) for kind in ("job", "node")]
        whole = [whole[0], graphs["queue"], whole[1], embedded["cluster"].mean(1)]
        return embedded.get(str(self.chosen)), parts.join(whole, -1)

    def of_actions(self, scores: Any, graphs: Mapping[str, Any], parts: Parts) -> Any:
        if self.chosen == "node":
            return parts.pick(scores, graphs["vertex"], 1)
        # Rows behind the last job are zeros.
        return parts.join([scores, graphs["job"][:, scores.shape[1] :, 0]], 1)

    def _next(
        self, maps: Any, present: Mapping[str, Any], to_nodes: Any, from_nodes: Any, last: bool, parts: Parts
    ) -> Iterator[tuple[str, Any]]:
        """Sums of a layer for each type of vertices; in the last layer of a network without a pooled number of one."""
        jobs, nodes, clusters = (present[kind] for kind in VERTEX_TYPES)
        if not last or self.chosen == "node":
            sent = parts.join([maps[_HAS](clusters), maps[_FITS](jobs)], 1)
            yield "node", parts.add_products(maps["node"](nodes), to_nodes, sent)
        n_clusters, received = clusters.shape[1], from_nodes @ nodes
        if not last or self.chosen == "job":
            yield "job", maps["job"](jobs) + maps[_TAKES](received[:, n_clusters:])
        if not last:
            sums = maps["cluster"](clusters) + maps[_IN](received[:, :n_clusters])
            if n_clusters > 1:
                others = (clusters.sum(1)[:, None] - clusters) / (n_clusters - 1)
                sums = sums + maps[_JOINS](others)
            yield "cluster", sums

    @staticmethod
    def _attention(
        maps: Any, present: Mapping[str, Tensor], to_nodes: Tensor, from_nodes: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Shares as those of a mean, in proportion to the exponentials of the scaled dot products of jobs and nodes."""
        jobs, nodes = maps["job_key"](present["job"]), maps["node_key"](present["node"])
        alike = jobs @ nodes.transpose(1, 2) / jobs.shape[-1] ** 0.5
        factors = (alike - alike.detach().amax(dim=(1, 2), keepdim=True)).exp()
        n_clusters = present["cluster"].shape[1]
        return (
            torch.cat([to_nodes[..., :n_clusters], _shares(to_nodes[..., n_clusters:] * factors.transpose(1, 2))], 2),
            torch.cat([from_nodes[:, :n_clusters], _shares(from_nodes[:, n_clusters:] * factors)], 1),
        )


def _shares(weights: Tensor) -> Tensor:
    """Weights divided by their sums over the last axis."""
    return weights / weights.sum(dim=-1, keepdim=True).clamp(min=_TINY)


def merged(graphs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Makes one vertex of nodes that are alike, which layers of messages cannot tell apart.

    Most nodes of a large platform are like many others: all that are idle, for instance.

    Args:
        graphs: B observations of :class:`hdsim.decisions.observations.graph.Graph`, of one platform.

    Returns:
        ``job`` and ``cluster`` as they are; ``node`` (B, M, 22) features of the vertices; ``vertex`` (B, N) the vertex
        of each node. For the first Q jobs, behind which no graph has any: ``to_nodes`` (B, M, K + Q) shares of clusters
        and jobs in the mean messages to a vertex, ``from_nodes`` (B, K + Q, M) shares of the vertices in those to
        clusters and jobs; ``job_share`` (B, 1, Q) and ``node_share`` (B, 1, M) weights of the means of all; ``queue``
        (B, 1) log(1 + n) of n jobs.
    """
    fits, clusters = np.ascontiguousarray(graphs["fits"]), graphs["node_cluster"][0].astype(np.int64)
    nodes = np.ascontiguousarray(graphs["node"], np.float32)
    batch, size, _ = nodes.shape
    counts, n_clusters = np.count_nonzero(graphs["job"][..., -1], axis=1), graphs["cluster"].shape[1]
    queued = graphs["job"][:, : max(int(counts.max()), 1), -1]
    table = np.full(2 << size.bit_length(), -1)
    vertex, first = np.empty((batch, size), np.int64), np.zeros((batch, size), np.int64)
    most = equal_nodes.find(nodes.view(np.uint32), fits, counts, clusters, table, vertex, first)
    to_nodes = np.zeros((batch, most, n_clusters + queued.shape[1]), np.float32)
    from_nodes, copies = np.zeros((batch, *to_nodes.shape[:0:-1]), np.float32), np.zeros((batch, 1, most), np.float32)
    equal_nodes.fill(fits, counts, clusters, n_clusters, vertex, to_nodes, from_nodes, copies)
    number = counts[:, None].astype(np.float32)
    return {
        "job": graphs["job"],
        "node": nodes[np.arange(batch)[:, None], first[:, :most]],
        "cluster": graphs["cluster"],
        "vertex": vertex,
        "to_nodes": to_nodes,
        "from_nodes": from_nodes,
        "job_share": (queued / np.maximum(number, 1))[:, None],
        "node_share": copies / np.float32(size),
        "queue": np.log1p(number),
    }


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

    def embed(self, graphs: Mapping[str, Any], parts: Parts) -> tuple[Any, Any]:
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
        """See :class:`LearningAgent`; graphs are whole again, and :func:`merged`."""
        if isinstance(arrays, dict) and arrays.keys() & _ROWS and not arrays.keys() & set(_CONSTANT_ARRAYS):
            batch = len(next(iter(arrays.values())))
            arrays = arrays | {
                name: np.broadcast_to(array, (batch, *array.shape[1:])) for name, array in self._same.items()
            }
        if isinstance(arrays, dict) and "fits" in arrays:
            arrays = merged(arrays)
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
