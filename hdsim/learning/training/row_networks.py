"""One small network that is applied to every row of an observation, such as each queued job: RLScheduler's kernel.

Most rows of an observation are empty: `Rows` lists those in use of a batch, and `RowKernel` scores each of them and
sums up their embeddings. Loss, gradient clipping and optimizer are PyTorch's.

Layers of 8 to 32 units for 100,000 rows are bound by memory if each layer goes through all rows in turn. On the CPU,
`_RowLayers` therefore applies the compiled kernels of :mod:`hdsim.learning.kernels.row_networks`, which take blocks of
rows through all layers and compute the units again for the gradients rather than keeping them. On a GPU, and as the
reference of the tests, `RowKernel.plain_layers` computes the same by layers of PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from hdsim.errors import ConfigError
from hdsim.learning.kernels import row_networks
from hdsim.learning.kernels.row_networks import BLOCK, Group, Numbers, Packed, Tables
from hdsim.learning.training.perceptrons import mlp
from hdsim.util.arrays import Ints

#: Rows of a group, whose units fit into the second-level cache.
_GROUP_ROWS = 2048
#: Lower limit of the arguments of logarithms, whose range is then -1 to 0 after scaling.
TINY = 1e-3
LOG_TINY = math.log(TINY)


@dataclass(eq=False)
class Rows:
    """The P rows in use of B observations of R rows each: those with a number other than 0."""

    inputs: Tensor  # (2, F x P) numbers and their scaled logarithms; of each observation the first column first
    places: Tensor  # (P,) index of each row in its observation
    first: Tensor  # (B,) first row of each observation; rows may be of none or of several
    counts: Tensor  # (B,) rows of each observation
    size: int  # R

    @classmethod
    def of(cls, observations: Tensor) -> Rows:
        """Finds the rows in use of (B, R, F) observations."""
        return cls.joined([packed_rows(observations.cpu().numpy())], observations.shape[1], observations.device)

    @classmethod
    def joined(cls, parts: Sequence[Packed], size: int, device: torch.device) -> Rows:
        """The rows of several batches of observations of `size` rows, one after the other."""
        begins = np.cumsum([0, *(len(part.places) for part in parts[:-1])])
        first = np.concatenate([part.first + begin for part, begin in zip(parts, begins, strict=True)])
        inputs = np.concatenate([part.inputs for part in parts], axis=1)
        places, counts = (np.concatenate([part[at] for part in parts]) for at in (1, 3))
        arrays = [torch.from_numpy(each).to(device) for each in (inputs, places, first, counts)]
        return cls(arrays[0], arrays[1], arrays[2], arrays[3], size)

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


def packed_rows(observations: NDArray[np.float32]) -> Packed:
    """Finds the rows in use of (B, R, F) observations."""
    batch, size, features = observations.shape
    # Memory that is never written takes none.
    numbers, places = np.empty(observations.size, np.float32), np.empty(batch * size, np.int64)
    first, counts = np.empty(batch, np.int64), np.empty(batch, np.int64)
    compiled: Any = row_networks.pack_rows
    total = compiled(np.ascontiguousarray(observations), first, counts, places, numbers)
    inputs = np.empty((2, features * total), np.float32)
    inputs[0] = numbers[: features * total]
    np.log(inputs[0] + np.float32(TINY), out=inputs[1])
    inputs[1] /= np.float32(-LOG_TINY)
    return Packed(inputs, places[:total], first, counts)


class CompiledLayers:
    """Layers with ReLU applied to every row, and a linear unit above the last one that gives the score of the row.

    Args:
        widths: Inputs, and outputs of each layer.
    """

    def __init__(self, widths: Ints) -> None:
        self._widths = widths
        self._space: Group | None = None

    def forward(self, weights: Numbers, rows: Packed, size: int) -> tuple[Tables, Tables]:
        """Computes the (B, `size`) scores of the rows and the (B, H) sums of the last layer over those of each."""
        batch = len(rows.counts)
        scores, totals = np.zeros((batch, size), np.float32), np.zeros((batch, int(self._widths[-1])), np.float32)
        compiled: Any = row_networks.forward
        compiled(weights, self._widths, rows, self._space_for(size), scores, totals)
        return scores, totals

    def gradients(self, weights: Numbers, rows: Packed, of_scores: Tables, of_totals: Tables) -> Numbers:
        """Computes the gradients of the weights from those of the scores and the sums."""
        gradients = np.zeros_like(weights)
        compiled: Any = row_networks.add_gradients
        space = self._space_for(of_scores.shape[1])
        compiled(weights, self._widths, rows, space, of_scores, of_totals, gradients)
        return gradients

    def _space_for(self, size: int) -> Group:
        """Space for a group of observations of up to `size` rows; PyTorch's memory begins where a cache line does."""
        if self._space is None or len(self._space.scores) < size:
            blocks, units = max(_GROUP_ROWS, size + BLOCK - 1) // BLOCK, int(self._widths.sum())
            shapes = (blocks, units * BLOCK), units * BLOCK, units, blocks * BLOCK, blocks * BLOCK
            kept, slopes, zeros, scores, of_scores = (torch.zeros(shape).numpy() for shape in shapes)
            self._space = Group(kept, slopes, zeros, np.zeros(BLOCK + 1, np.int64), scores, of_scores)
        return self._space


class _RowLayers(torch.autograd.Function):
    """Compiled layers of rows, on the CPU in single precision.

    Arguments are the layers, the rows, and weights and biases of each layer and of the score, which alone have
    gradients.
    """

    @staticmethod
    def forward(ctx: Any, layers: CompiledLayers, rows: Rows, *parameters: Tensor) -> tuple[Tensor, Tensor]:
        """Computes the (B, R) scores of the rows and the (B, H) sums of the last layer over those of an observation."""
        weights, packed = torch.cat([parameter.flatten() for parameter in parameters]).numpy(), rows.packed()
        ctx.parameters, ctx.layers, ctx.arguments = parameters, layers, (weights, packed)
        scores, totals = layers.forward(weights, packed, rows.size)
        return torch.from_numpy(scores), torch.from_numpy(totals)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *slopes: Tensor) -> Any:
        """Computes the gradients of weights and biases from those of the scores and the sums."""
        arrays = (slope.contiguous().numpy() for slope in slopes)
        gradients = torch.from_numpy(ctx.layers.gradients(*ctx.arguments, *arrays))
        parts = gradients.split([parameter.numel() for parameter in ctx.parameters])
        return None, None, *(part.view_as(like) for part, like in zip(parts, ctx.parameters, strict=True))


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
        gain: See :func:`hdsim.learning.training.perceptrons.mlp`.
    """

    def __init__(self, features: int, hidden: Sequence[int], actions: int, *, gain: float) -> None:
        super().__init__()
        if not hidden:
            raise ConfigError("expected at least one width, got none", where="agent.kernel")
        self.embed = nn.Sequential(mlp([2 * features, *hidden], nn.ReLU, math.sqrt(2)), nn.ReLU())
        self.score = mlp([hidden[-1], 1], gain=gain)
        self.pooled = mlp([hidden[-1] + 1, hidden[0], actions], gain=gain) if actions else None
        self.of_rows = (*self.embed.parameters(), *self.score.parameters())
        self._widths = np.array([2 * features, *hidden])
        self.compiled = CompiledLayers(self._widths)

    def forward(self, observations: Tensor | Rows) -> Tensor:
        """(B, R, F) -> (B, R + actions)."""
        return self.scores(*self.layers(observations))

    def layers(self, observations: Tensor | Rows) -> tuple[Tensor, Tensor]:
        """(B, R) scores of the rows, and (B, H + 1) mean of the last layer over them and logarithm of their number."""
        rows = observations if isinstance(observations, Rows) else Rows.of(observations)
        compiled = rows.inputs.device.type == "cpu"
        scores, totals = self.compiled_layers(rows) if compiled else self.plain_layers(rows)
        number = rows.counts[:, None]
        return scores, torch.cat([totals / number.clamp(min=1), number.float().log1p()], dim=-1)

    def compiled_layers(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """(B, R) scores of the rows, and (B, H) sums of the last layer, by compiled kernels."""
        return _RowLayers.apply(self.compiled, rows, *self.of_rows)

    def plain_layers(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """The same by layers of PyTorch."""
        inputs, places, owners = rows.listed(int(self._widths[0]) // 2)
        embedded, batch = self.embed(inputs), len(rows.counts)
        scores = embedded.new_zeros(batch, rows.size)
        scores = scores.index_put((owners, places), self.score(embedded).squeeze(-1))
        return scores, embedded.new_zeros(batch, embedded.shape[1]).index_add(0, owners, embedded)

    def scores(self, scores: Tensor, summary: Tensor) -> Tensor:
        """(B, R + actions) scores of all actions from the results of `layers`."""
        return scores if self.pooled is None else torch.cat([scores, self.pooled(summary)], dim=-1)
