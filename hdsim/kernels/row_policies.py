"""Policy and value above the network of the rows: their actions, and the gradients of their loss.

Value, and where there is one the score of the action without a row, are perceptrons with one layer of K hyperbolic
tangents. Their H + 1 inputs are the means of the last layer over the rows and the logarithm of the number of rows.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hdsim.kernels.policy_loss import Steps, Weighting, exponential, softmax, step_loss
from hdsim.kernels.row_networks import (
    ANY,
    BLOCK,
    Group,
    Packed,
    add_layer_gradients,
    add_outer,
    load,
    n_layer_weights,
    product,
    reordering_kernel,
    reordering_part,
    through,
)
from hdsim.kernels.rows import Floats, Ints, Numbers


class Heads(NamedTuple):
    """Space for the perceptrons of a group of observations, unit by unit.

    Attributes:
        inputs: ((H + 1) x BLOCK,) inputs.
        of_inputs: ((H + 1) x BLOCK,) their gradients.
        units: (heads, K x BLOCK) units.
        slopes: (K x BLOCK,) gradients of the units of one.
        outputs: (heads, BLOCK) outputs; the last are the values.
        of_outputs: (heads, BLOCK) their gradients.
        legal: (A,) logits of legal actions.
        actions: (A,) these actions.
        places: (A,) the places of their rows in the group, -1 without a row.
        shares: (A,) probabilities, or gradients of the logits.
    """

    inputs: Numbers
    of_inputs: Numbers
    units: NDArray[np.float32]
    slopes: Numbers
    outputs: NDArray[np.float32]
    of_outputs: NDArray[np.float32]
    legal: Numbers
    actions: Ints
    places: Ints
    shares: Numbers


@reordering_kernel
def draw_actions(
    weights: Numbers,
    widths: Ints,
    rows: Packed,
    group: Group,
    heads: Heads,
    masks: NDArray[np.bool_],
    chances: Floats,
    actions: Ints,
    log_probs: Numbers,
    values: Numbers,
) -> None:
    """Draws an action for each of B observations.

    Args:
        weights: Those of :func:`hdsim.kernels.row_networks.forward`, and of each head those (K, H + 1) of its layer, K
            biases, those of its output and a bias.
        widths: Inputs, and outputs of each layer.
        rows: The rows.
        group: Space.
        heads: Space.
        masks: (B, A) legal actions, at least one each.
        chances: (B,) uniform random numbers, at least 0 and less than 1.
        actions: (B,) receives the actions.
        log_probs: (B,) receives the logarithms of their probabilities.
        values: (B,) receives the values.
    """
    begin = 0
    while begin < len(actions):
        count = load(rows, widths[0] // 2, begin, group)
        through(weights, widths, group, count)
        _evaluate(weights, widths, group, heads, count)
        for j in range(count):
            b = begin + j
            plain = _are_rows(rows, masks, b)
            if plain:
                logits = group.scores[group.starts[j] : group.starts[j + 1]]
            else:
                legal, _ = _choices(rows, group, heads, masks, b, j, 0)
                logits = heads.legal[:legal]
            normal = softmax(logits, heads.shares)
            chosen, total = 0, np.float64(heads.shares[0])
            while chosen < len(logits) - 1 and total <= chances[b]:
                chosen += 1
                total += heads.shares[chosen]
            # Rounding can leave a last one of probability 0.
            while heads.shares[chosen] == 0:
                chosen -= 1
            actions[b] = chosen if plain else heads.actions[chosen]
            log_probs[b] = logits[chosen] - normal
            values[b] = heads.outputs[-1, j]
        begin += count


@reordering_kernel
def add_policy_gradients(
    weights: Numbers,
    widths: Ints,
    rows: Packed,
    group: Group,
    heads: Heads,
    steps: Steps,
    weighting: Weighting,
    gradients: Numbers,
    terms: Floats,
) -> None:
    """Adds the gradients of the loss of B steps; see :func:`hdsim.kernels.policy_loss.clipped_loss`.

    Args:
        weights: See `draw_actions`.
        widths: See there.
        rows: The rows of the steps' observations.
        group: Space.
        heads: Space.
        steps: The steps.
        weighting: Weights of the terms.
        gradients: Receives the sums, of the size of the weights.
        terms: (4,) receives the sums of the terms.
    """
    begin = 0
    while begin < len(steps.actions):
        count = load(rows, widths[0] // 2, begin, group)
        through(weights, widths, group, count)
        _evaluate(weights, widths, group, heads, count)
        heads.of_outputs[:] = 0.0
        for j in range(count):
            b, low, high = begin + j, group.starts[j], group.starts[j + 1]
            plain = _are_rows(rows, steps.masks, b)
            if plain:
                logits, slopes, taken = group.scores[low:high], group.of_scores[low:high], steps.actions[b]
            else:
                legal, taken = _choices(rows, group, heads, steps.masks, b, j, steps.actions[b])
                logits, slopes = heads.legal[:legal], heads.shares
            value = heads.outputs[-1, j]
            heads.of_outputs[-1, j] = step_loss(logits, taken, value, steps, b, weighting, slopes, terms)
            if not plain:
                group.of_scores[low:high] = 0.0
                for i in range(len(logits)):
                    if heads.places[i] >= 0:
                        group.of_scores[heads.places[i]] = slopes[i]
                    elif _has_no_row(heads, steps.masks, heads.actions[i]):
                        heads.of_outputs[0, j] = slopes[i]
        _add_head_gradients(weights, widths, group, heads, count, gradients)
        add_layer_gradients(weights, widths, group, count, gradients)
        begin += count


@reordering_part
def _are_rows(rows: Packed, masks: NDArray[np.bool_], b: int) -> bool:
    """Returns whether the legal actions of an observation are its rows in use and the first of all: the usual case."""
    size, legal, first = rows.counts[b], 0, 0
    for a in range(masks.shape[1]):
        legal += masks[b, a]
    if size == 0 or legal != size or rows.places[rows.first[b] + size - 1] >= size:
        return False
    for a in range(size):
        first += masks[b, a]
    return first == size


@reordering_part
def _choices(
    rows: Packed, group: Group, heads: Heads, masks: NDArray[np.bool_], b: int, j: int, action: int
) -> tuple[int, int]:
    """Lists the legal actions of an observation; returns their number and the index of one of them.

    Rows that are not in use have the score 0.
    """
    count = taken = k = 0
    first, size = rows.first[b], rows.counts[b]
    for a in range(masks.shape[1]):
        has_row = k < size and rows.places[first + k] == a
        if masks[b, a]:
            logit, place = np.float32(0.0), -1
            if has_row:
                place = group.starts[j] + k
                logit = group.scores[place]
            elif _has_no_row(heads, masks, a):
                logit = heads.outputs[0, j]
            if a == action:
                taken = count
            heads.legal[count], heads.actions[count], heads.places[count] = logit, a, place
            count += 1
        k += has_row
    return count, taken


@reordering_part
def _has_no_row(heads: Heads, masks: NDArray[np.bool_], action: int) -> bool:
    return len(heads.outputs) > 1 and action == masks.shape[1] - 1


@reordering_part
def _evaluate(weights: Numbers, widths: Ints, group: Group, heads: Heads, count: int) -> None:
    """Computes the outputs of the heads for a number of observations."""
    hidden, width = widths[-1], heads.units.shape[1] // BLOCK
    for j in range(count):
        number = group.starts[j + 1] - group.starts[j]
        for o in range(hidden):
            heads.inputs[o * BLOCK + j] = group.totals[o * BLOCK + j] / max(number, 1)
        heads.inputs[hidden * BLOCK + j] = math.log1p(number)
    at = n_layer_weights(widths)
    for head in range(len(heads.outputs)):
        units, biases = heads.units[head], weights[at + (hidden + 1) * width :]
        product(weights, at, hidden + 1, 1, width, hidden + 1, ANY, heads.inputs, biases, units)
        for o in range(width):
            layer = units[o * BLOCK : o * BLOCK + count]
            for j in range(count):
                layer[j] = 1.0 - 2.0 / (1.0 + exponential(2.0 * min(layer[j], np.float32(20.0))))
        at += (hidden + 2) * width
        product(weights, at, width, 1, 1, width, ANY, units, weights[at + width :], heads.outputs[head])
        at += width + 1


@reordering_part
def _add_head_gradients(
    weights: Numbers, widths: Ints, group: Group, heads: Heads, count: int, gradients: Numbers
) -> None:
    """Adds the gradients of the heads' weights, and writes those of the totals."""
    hidden, width = widths[-1], heads.units.shape[1] // BLOCK
    at, slopes = n_layer_weights(widths), heads.slopes
    group.of_totals[:] = 0.0
    for head in range(len(heads.outputs)):
        units, above = heads.units[head], heads.of_outputs[head]
        top = at + (hidden + 2) * width
        add_outer(above, units, 1, width, ANY, gradients, top)
        for o in range(width):
            for j in range(BLOCK):
                unit = units[o * BLOCK + j]
                slopes[o * BLOCK + j] = weights[top + o] * above[j] * (np.float32(1.0) - unit * unit)
        add_outer(slopes, heads.inputs, width, hidden + 1, ANY, gradients, at)
        product(weights, at, 1, hidden + 1, hidden, width, ANY, slopes, group.zeros, heads.of_inputs)
        for j in range(count):
            number = max(group.starts[j + 1] - group.starts[j], 1)
            for o in range(hidden):
                group.of_totals[o * BLOCK + j] += heads.of_inputs[o * BLOCK + j] / number
        at = top + width + 1
