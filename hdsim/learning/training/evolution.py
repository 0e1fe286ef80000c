"""Evolution strategy: members with changed weights are compared, and the weights move towards the better ones.

After Salimans et al., Evolution Strategies as a Scalable Alternative to Reinforcement Learning (2017).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.utils import parameters_to_vector

from hdsim.util.arrays import Floats


@dataclass(frozen=True)
class EvolutionStrategy:
    """Pairs of members with opposite changes of P weights, and an optimizer along the gradient that costs estimate."""

    parameters: Sequence[nn.Parameter]
    optimizer: torch.optim.Optimizer  # of the weights
    pairs: int  # pairs of members of a generation
    sigma: float  # standard deviation of the changes

    def advance(self, rng: np.random.Generator, evaluate: Callable[[NDArray[Any]], Floats]) -> None:
        """Carries out one generation.

        Args:
            rng: Draws the changes.
            evaluate: Takes the (2 pairs, P) weights of the members, those with the opposite changes behind the others,
                and returns what each of them costs.
        """
        center = parameters_to_vector(self.parameters).detach().numpy().copy()
        noise = rng.standard_normal((self.pairs, len(center))).astype(center.dtype)
        noise = np.concatenate([noise, -noise])
        costs = evaluate(center + self.sigma * noise)
        self.become(center)
        gradient = (costs @ noise / (len(noise) * self.sigma)).astype(center.dtype)
        for parameter, part in self._parts(gradient):
            parameter.grad = part.clone()
        self.optimizer.step()

    def become(self, weights: NDArray[Any]) -> None:
        """Writes (P,) weights into the parameters, whose memory stays."""
        with torch.no_grad():
            for parameter, part in self._parts(weights):
                parameter.copy_(part)

    def _parts(self, vector: NDArray[Any]) -> list[tuple[nn.Parameter, torch.Tensor]]:
        """All parameters with their parts of a vector of all weights."""
        parts = torch.from_numpy(vector).split([parameter.numel() for parameter in self.parameters])
        return [(one, part.view_as(one)) for one, part in zip(self.parameters, parts, strict=True)]
