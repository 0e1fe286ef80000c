"""Perceptrons: layers of linear units."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

from torch import nn

from hdsim.errors import ConfigError

_MOST_WEIGHTS = 20_000_000


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
