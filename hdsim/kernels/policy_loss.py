"""The loss of proximal policy optimisation and its gradients, observation by observation.

Schulman et al., Proximal policy optimization algorithms, 2017; illegal actions have probability 0.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from hdsim.kernels.compiling import kernel
from hdsim.kernels.rows import Floats, Ints, Numbers, Table

#: Terms of the loss: policy, value, entropy, and the approximate KL divergence (Schulman's low-variance estimate).
POLICY, VALUE, ENTROPY, KL = range(4)


@kernel
def clipped_loss(
    logits: Table,
    masks: NDArray[np.bool_],
    actions: Ints,
    log_probs: Numbers,
    advantages: Numbers,
    values: Numbers,
    returns: Numbers,
    clip: float,
    of_entropy: float,
    of_value: float,
    size: int,
    of_logits: Table,
    of_values: Numbers,
    terms: Floats,
) -> None:
    """Computes the loss of B of the `size` steps of a minibatch, and its gradients.

    Args:
        logits: (B, A) outputs of the policy.
        masks: (B, A) legal actions, at least one each.
        actions: (B,) actions taken.
        log_probs: (B,) logarithms of their probabilities at that time.
        advantages: (B,) advantages of these actions.
        values: (B,) outputs of the value.
        returns: (B,) targets of the value.
        clip: Largest change of the ratio of probabilities that is rewarded.
        of_entropy: Weight of the entropy.
        of_value: Weight of half of the squared error of the value.
        size: Steps over which the terms are means.
        of_logits: (B, A) zeros that receive the gradients of the loss.
        of_values: (B,) receives the gradients of the loss.
        terms: (4,) receives the sums of the terms.
    """
    for b in range(len(actions)):
        z, mask, slope, taken = logits[b], masks[b], of_logits[b], actions[b]
        highest, total = -math.inf, 0.0
        for a in range(len(mask)):
            if mask[a] and z[a] > highest:
                highest = z[a]
        for a in range(len(mask)):
            if mask[a]:
                slope[a] = math.exp(z[a] - highest)
                total += slope[a]
        normal, entropy = highest + math.log(total), 0.0
        for a in range(len(mask)):
            if mask[a]:
                slope[a] /= total
                entropy -= slope[a] * (z[a] - normal)
        change = z[taken] - normal - log_probs[b]
        ratio = math.exp(change)
        gain = advantages[b] * ratio
        clipped = advantages[b] * min(max(ratio, 1.0 - clip), 1.0 + clip)
        pull = -gain / size if gain <= clipped else 0.0
        for a in range(len(mask)):
            if mask[a]:
                slope[a] *= of_entropy / size * (z[a] - normal + entropy) - pull
        slope[taken] += pull
        error = values[b] - returns[b]
        of_values[b] = of_value * error / size
        terms[POLICY] -= min(gain, clipped) / size
        terms[VALUE] += 0.5 * error * error / size
        terms[ENTROPY] += entropy / size
        terms[KL] += (ratio - 1.0 - change) / size
