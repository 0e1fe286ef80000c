"""One small network that is applied to every row of an observation, such as each queued job: RLScheduler's kernel.

Most rows of an observation are empty: `Rows` lists those in use of a batch, and `RowKernel` scores each of them and
sums up their embeddings. Loss, gradient clipping and optimizer are PyTorch's.

Layers of 8 to 32 units for 100,000 rows are bound by memory if each layer goes through all rows in turn. On the CPU,
`_RowLayers` therefore applies the compiled kernels of :mod:`hdsim.kernels.row_networks`, which take blocks of rows
through all layers and compute the units again for the gradients rather than keeping them. On a GPU, and as the
reference of the tests, `RowKernel.plain_layers` computes the same by layers of PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from hdsim.errors import ConfigError
from hdsim.kernels import row_networks
from hdsim.kernels.row_networks import BLOCK, Group, Packed
from hdsim.learning.training.perceptrons import mlp
from hdsim.util.arrays import Ints

#: Rows of a group, whose units fit into the second-level cache.
_GROUP_ROWS = 2048
#: Lower limit of the arguments of logarithms, whose range is then -1 to 0 after scaling.
TINY = 1e-3
LOG_TINY = math.log(TINY)


class Rows:
    """The P rows in use of B observations of R rows each: those with a number other than 0.

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
        batch, size, features = seen.shape
        # Memory that is never written takes none.
        numbers, places = np.empty(seen.size, np.float32), np.empty(batch * size, np.int64)
        first, counts = np.empty(batch, np.int64), np.empty(batch, np.int64)
        total = row_networks.pack_rows(seen, first, counts, places, numbers)
        inputs = np.empty((2, features * total), np.float32)
        inputs[0] = numbers[: features * total]
        np.log(inputs[0] + np.float32(TINY), out=inputs[1])
        inputs[1] /= np.float32(-LOG_TINY)
        packed = [torch.from_numpy(each).to(observations.device) for each in (inputs, places[:total], first, counts)]
        return cls(packed[0], packed[1], packed[2], packed[3], size)

    @classmethod
    def joined(cls, parts: Sequence[Rows]) -> Rows:
        """The rows of several batches of observations, one after the other."""
        inputs, places = torch.cat([part.inputs for part in parts], dim=1), torch.cat([part.places for part in parts])
        begins = np.cumsum([0, *(len(part.places) for part in parts[:-1])]).tolist()
        first = torch.cat([part.first + begin for part, begin in zip(parts, begins, strict=True)])
        return cls(inputs, places, first, torch.cat([part.counts for part in parts]), parts[0].size)

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


class _RowLayers(torch.autograd.Function):
    """Linear layers with ReLU applied to every row, in compiled kernels on the CPU in single precision.

    Arguments are the rows, widths of the inputs and of the layers, space for the units, and weights and biases of each
    layer and of the score, a linear unit above the last layer. Only weights and biases have gradients.
    """

    @staticmethod
    def forward(ctx: Any, rows: Rows, widths: Ints, space: Group, *parameters: Tensor) -> tuple[Tensor, Tensor]:
        """Computes the (B, R) scores of the rows and the (B, H) sums of the last layer over those of an observation."""
        weights = torch.cat([parameter.flatten() for parameter in parameters])
        batch = len(rows.counts)
        scores, totals = weights.new_zeros(batch, rows.size), weights.new_zeros(batch, int(widths[-1]))
        ctx.arguments = weights.numpy(), widths, rows.packed(), space
        compiled: Any = row_networks.forward
        compiled(*ctx.arguments, scores.numpy(), totals.numpy())
        ctx.parameters = parameters
        return scores, totals

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *slopes: Tensor) -> Any:
        """Computes the gradients of weights and biases from those of the scores and the sums."""
        gradients = np.zeros_like(ctx.arguments[0])
        compiled: Any = row_networks.add_gradients
        compiled(*ctx.arguments, *(slope.contiguous().numpy() for slope in slopes), gradients)
        parts = torch.from_numpy(gradients).split([parameter.numel() for parameter in ctx.parameters])
        return None, None, None, *(part.view_as(like) for part, like in zip(parts, ctx.parameters, strict=True))


def _space(widths: Ints, rows: int) -> Group:
    """Space for a group of observations of up to `rows` rows; PyTorch's memory begins where a cache line does."""
    blocks, units, top = max(_GROUP_ROWS, rows + BLOCK - 1) // BLOCK, int(widths.sum()), int(widths[-1]) * BLOCK
    shapes = (blocks, units * BLOCK), (units * BLOCK,), (units,), (blocks * BLOCK,), (blocks * BLOCK,), (top,), (top,)
    space, slopes, zeros, *others = (torch.zeros(shape).numpy() for shape in shapes)
    return Group(space, slopes, zeros, np.zeros(BLOCK + 1, np.int64), *others)


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
        self._of_rows = (*self.embed.parameters(), *self.score.parameters())
        self._widths = np.array([2 * features, *hidden])
        self._space: tuple[int, Group] | None = None  # rows of an observation, at most, and the space

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
        if self._space is None or self._space[0] < rows.size:
            self._space = rows.size, _space(self._widths, rows.size)
        found: tuple[Tensor, Tensor] = _RowLayers.apply(rows, self._widths, self._space[1], *self._of_rows)
        return found

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
