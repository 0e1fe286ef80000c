"""Actors and critics above a network of rows in compiled kernels, on the CPU: no call of PyTorch for small layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from hdsim.kernels.policy_loss import Steps, Weighting
from hdsim.kernels.row_networks import BLOCK, Packed
from hdsim.kernels.row_policies import Heads, add_policy_gradients, draw_actions
from hdsim.learning.agent import Masks
from hdsim.learning.training.networks import ActorCritic, RowKernel, aligned, group_space
from hdsim.util.arrays import Floats, Ints


class CompiledPolicy:
    """Policy and value of an :class:`ActorCritic` with a kernel, whose weights it shares.

    Args:
        network: The network.
        actions: A.
    """

    def __init__(self, network: ActorCritic, actions: int) -> None:
        kernel: Any = network.actor
        self._parameters = list(network.parameters())
        # The parameters become views of one vector, which the kernels read.
        weights = nn.utils.parameters_to_vector(self._parameters).detach()
        nn.utils.vector_to_parameters(weights, self._parameters)
        self._weights = weights.numpy()
        # So do their gradients, which the kernels write.
        self._gradients = np.zeros_like(self._weights)
        parts = torch.from_numpy(self._gradients).split([each.numel() for each in self._parameters])
        for parameter, part in zip(self._parameters, parts, strict=True):
            parameter.grad = part.view_as(parameter)
        heads = 1 + (kernel.pooled is not None)
        inputs, units = (kernel.widths[-1] + 1) * BLOCK, kernel.widths[1] * BLOCK
        sizes = inputs, inputs, (heads, units), units, (heads, BLOCK), (heads, BLOCK)
        space: list[Any] = [aligned(size) for size in sizes]
        legal = [np.zeros(actions, dtype) for dtype in (np.float32, np.int64, np.int64, np.float32)]
        self._space = kernel.widths, group_space(kernel.widths, actions), Heads(*space, *legal)

    @classmethod
    def of(cls, network: nn.Module, actions: int) -> CompiledPolicy | None:
        """Returns it for networks that it covers, else None."""
        if type(network) is not ActorCritic or not isinstance(network.actor, RowKernel):
            return None
        return cls(network, actions) if next(network.parameters()).device.type == "cpu" else None

    def draw(
        self, rows: Packed, masks: Masks, chances: Floats
    ) -> tuple[Ints, NDArray[np.float32], NDArray[np.float32]]:
        """Draws (B,) actions by (B,) uniform random numbers; returns also logarithms of probabilities, and values."""
        batch = len(chances)
        drawn = np.empty(batch, np.int64), np.empty(batch, np.float32), np.empty(batch, np.float32)
        compiled: Any = draw_actions
        compiled(*self._arrays(rows), masks, chances, *drawn)
        return drawn

    def set_gradients(self, rows: Packed, steps: Steps, weighting: Weighting) -> NDArray[np.float64]:
        """Writes the gradients of the parameters; returns the (4,) terms of the loss."""
        arrays, terms = self._arrays(rows), np.zeros(4)
        self._gradients[:] = 0.0
        compiled: Any = add_policy_gradients
        compiled(*arrays, steps, weighting, self._gradients, terms)
        return terms

    def clip_gradients(self, norm: float) -> None:
        """Scales the gradients down to a norm."""
        self._gradients *= min(1.0, norm / (float(np.linalg.norm(self._gradients)) + 1e-6))

    def _arrays(self, rows: Packed) -> tuple[Any, ...]:
        widths, group, heads = self._space
        return self._weights, widths, rows, group, heads
