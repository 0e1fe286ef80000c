"""The loss of proximal policy optimisation and its gradients, observation by observation.

Schulman et al., Proximal policy optimization algorithms, 2017; illegal actions have probability 0.
"""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hdsim.kernels.compiling import kernel
from hdsim.kernels.rows import Floats, Ints, Numbers, Table

#: Terms of the loss: policy, value, entropy, and the approximate KL divergence (Schulman's low-variance estimate).
POLICY, VALUE, ENTROPY, KL = range(4)

_part = partial(kernel, inline=True, allocates=False, reorders=True)


class Steps(NamedTuple):
    """B of the steps of a minibatch.

    Attributes:
        masks: (B, A) legal actions, at least one each.
        actions: (B,) actions taken.
        log_probs: (B,) logarithms of their probabilities at that time.
        advantages: (B,) advantages of these actions.
        returns: (B,) targets of the value.
    """

    masks: NDArray[np.bool_]
    actions: Ints
    log_probs: Numbers
    advantages: Numbers
    returns: Numbers


class Weighting(NamedTuple):
    """Weights of the terms of the loss.

    Attributes:
        clip: Largest change of the ratio of probabilities that is rewarded.
        of_entropy: Weight of the entropy.
        of_value: Weight of half of the squared error of the value.
        size: Steps over which the terms are means.
    """

    clip: float
    of_entropy: float
    of_value: float
    size: int


@kernel
def clipped_loss(
    logits: Table,
    values: Numbers,
    steps: Steps,
    weighting: Weighting,
    of_logits: Table,
    of_values: Numbers,
    terms: Floats,
) -> None:
    """Computes the loss of B of the steps of a minibatch, and its gradients.

    Args:
        logits: (B, A) outputs of the policy.
        values: (B,) outputs of the value.
        steps: The steps.
        weighting: Weights of the terms.
        of_logits: (B, A) zeros that receive the gradients of the loss.
        of_values: (B,) receives the gradients of the loss.
        terms: (4,) receives the sums of the terms.
    """
    legal, which, shares = np.empty_like(logits[0]), np.empty(logits.shape[1], np.int64), np.empty_like(logits[0])
    for b in range(len(values)):
        count = taken = 0
        for a in range(logits.shape[1]):
            if steps.masks[b, a]:
                if a == steps.actions[b]:
                    taken = count
                legal[count], which[count] = logits[b, a], a
                count += 1
        of_values[b] = step_loss(legal[:count], taken, values[b], steps, b, weighting, shares, terms)
        for i in range(count):
            of_logits[b, which[i]] = shares[i]


@kernel
def add_up_rewards(
    rewards: Table, values: Table, over: NDArray[np.bool_], next_values: Numbers, decay: Numbers, advantages: Table
) -> None:
    """Computes generalised advantage estimates (Schulman et al. 2016) of T steps of E environments.

    Args:
        rewards: (T, E) rewards.
        values: (T, E) values of the states before the steps.
        over: (T, E) the episode ended with the step.
        next_values: (E,) values of the states after the last steps.
        decay: (2,) discount factor, and its product with that of the estimates.
        advantages: (T, E) receives the estimates.
    """
    steps, none = len(rewards), np.float32(0.0)
    for t in range(steps - 1, -1, -1):
        for e in range(rewards.shape[1]):
            following, value = (advantages[t + 1, e], values[t + 1, e]) if t < steps - 1 else (none, next_values[e])
            goes_on = np.float32(not over[t, e])
            delta = rewards[t, e] + decay[0] * goes_on * value - values[t, e]
            advantages[t, e] = delta + decay[1] * goes_on * following


@_part
def softmax(logits: Numbers, shares: Numbers) -> np.float32:
    """Computes the probabilities of legal actions; returns the logarithm of the sum of the logits' exponentials.

    Args:
        logits: (L,) logits of legal actions.
        shares: (L or more,) receives the probabilities.
    """
    highest, total = logits[0], np.float32(0.0)
    for i in range(len(logits)):
        highest = max(highest, logits[i])
    for i in range(len(logits)):
        shares[i] = exponential(logits[i] - highest)
    # In a loop that writes, the order of the sum depends on the distance of the arrays in memory.
    for i in range(len(logits)):
        total += shares[i]
    for i in range(len(logits)):
        shares[i] /= total
    return highest + math.log(total)


@_part
def exponential(power: float) -> float:
    """The exponential of a number of at most 40 to 1e-8, (exp(x / 1024))^1024, which loops take several at a time."""
    x = np.float64(max(power, -85.0)) / 1024
    value = 1.0 + x * (1.0 + x * (1 / 2 + x * (1 / 6 + x * (1 / 24 + x * (1 / 120 + x * (1 / 720))))))
    for _ in range(10):
        value *= value
    return value


@_part
def step_loss(
    logits: Numbers,
    taken: int,
    value: float,
    steps: Steps,
    b: int,
    weighting: Weighting,
    slopes: Numbers,
    terms: Floats,
) -> float:
    """Computes the loss of one step; returns the gradient of its value.

    Args:
        logits: (L,) logits of its legal actions.
        taken: The place of the action taken among them.
        value: The value.
        steps: The steps.
        b: The step.
        weighting: See `clipped_loss`.
        slopes: (L or more,) receives the gradients of the logits.
        terms: See `clipped_loss`.
    """
    normal, entropy, size = softmax(logits, slopes), 0.0, weighting.size
    for i in range(len(logits)):
        entropy -= slopes[i] * (logits[i] - normal)
    change = np.float64(logits[taken]) - normal - steps.log_probs[b]
    ratio = math.exp(change)
    gain = steps.advantages[b] * ratio
    clipped = steps.advantages[b] * min(max(ratio, 1.0 - weighting.clip), 1.0 + weighting.clip)
    pull = -gain / size if gain <= clipped else 0.0
    for i in range(len(logits)):
        slopes[i] *= weighting.of_entropy / size * (logits[i] - normal + entropy) - pull
    slopes[taken] += pull
    error = value - steps.returns[b]
    terms[POLICY] -= min(gain, clipped) / size
    terms[VALUE] += 0.5 * error * error / size
    terms[ENTROPY] += entropy / size
    terms[KL] += (ratio - 1.0 - change) / size
    return weighting.of_value * error / size
