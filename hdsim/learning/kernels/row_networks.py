"""Small networks that are applied to each of many rows: layers of linear units with ReLU, and their gradients.

Rows lie in blocks, unit by unit, so that all loops run over the rows of a block. Sums are in any order. Units are kept
before ReLU, which is applied where they are read.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hdsim.kernels.compiling import kernel

Ints = NDArray[np.int64]
Numbers = NDArray[np.float32]
Tables = NDArray[np.float32]

#: Rows of a block.
BLOCK = 256
#: Lower limit of numbers that are read without ReLU.
ANY = np.float32(-np.inf)
#: Lower limit of numbers that are read with ReLU.
RELU = np.float32(0.0)

reordering_kernel = partial(kernel, allocates=False, reorders=True)
reordering_part = partial(kernel, inline=True, allocates=False, reorders=True)


class Packed(NamedTuple):
    """The rows in use of observations.

    Attributes:
        inputs: (2, F x P) numbers of the rows and numbers made of them, for each observation those of the first column
            first.
        places: (P,) index of each row in its observation.
        first: (B,) first row of each observation.
        counts: (B,) its rows.
    """

    inputs: Tables
    places: Ints
    first: Ints
    counts: Ints


class Group(NamedTuple):
    """Space for up to M whole observations, whose rows fill up to N blocks; memory is aligned for speed.

    Attributes:
        units: (N, U x BLOCK) inputs of the rows and units of all layers, unit by unit.
        slopes: (U x BLOCK,) gradients of the units of a block.
        zeros: (U,) zeros.
        starts: (M + 1,) first row of each observation, and the end of the last one.
        scores: (N x BLOCK,) scores of the rows.
        of_scores: (N x BLOCK,) their gradients.
    """

    units: Tables
    slopes: Numbers
    zeros: Numbers
    starts: Ints
    scores: Numbers
    of_scores: Numbers


@reordering_kernel
def pack_rows(observations: Tables, first: Ints, counts: Ints, places: Ints, numbers: Numbers) -> int:
    """Packs the rows with a number other than 0; see `Packed`.

    Args:
        observations: (B, R, F) numbers.
        first: (B,) receives the first row of each observation.
        counts: (B,) receives the number of its rows.
        places: (P or more,) receives the index of each row in its observation.
        numbers: (F x P or more,) receives the numbers of the rows, for each observation those of the first column
            first.

    Returns:
        The number of rows.
    """
    end = 0
    for b in range(len(observations)):
        first[b] = p = end
        for r in range(observations.shape[1]):
            if _is_used(observations, b, r):
                places[end] = r
                end += 1
        counts[b] = count = end - p
        seen, used = observations[b], places[p:end]
        for f in range(observations.shape[2]):
            at = p * observations.shape[2] + f * count
            column = numbers[at : at + count]
            for k in range(count):
                column[k] = seen[used[k], f]
    return end


@reordering_part
def _is_used(observations: Tables, b: int, r: int) -> bool:
    f = observations.shape[2] - 1
    while f >= 0 and observations[b, r, f] == 0:
        f -= 1
    return f >= 0


@reordering_kernel
def forward(weights: Numbers, widths: Ints, rows: Packed, group: Group, scores: Tables, totals: Tables) -> None:
    """Applies a network to the rows of B observations.

    Args:
        weights: (W,) weights (outputs, inputs) and biases of each layer, one layer after the other, and those of the
            score, a linear unit above the last layer.
        widths: Inputs, and outputs of each layer; the last are H.
        rows: The rows.
        group: Space.
        scores: (B, R) zeros that receive the scores.
        totals: (B, H) zeros that receive the sums of the last layer's outputs over the rows of each observation.
    """
    begin = 0
    while begin < len(rows.counts):
        count = load(rows, widths[0] // 2, begin, group)
        through(weights, widths, group, count)
        sum_up(weights, widths, group, totals[begin : begin + count])
        for j in range(count):
            low, first = group.starts[j], rows.first[begin + j]
            for k in range(rows.counts[begin + j]):
                scores[begin + j, rows.places[first + k]] = group.scores[low + k]
        begin += count


@reordering_kernel
def add_gradients(
    weights: Numbers,
    widths: Ints,
    rows: Packed,
    group: Group,
    of_scores: Tables,
    of_totals: Tables,
    gradients: Numbers,
) -> None:
    """Adds the gradients of the weights; see `forward`, whose units are computed again.

    Args:
        weights: See there, also for the next three.
        widths: See there.
        rows: See there.
        group: See there.
        of_scores: (B, R) gradients of the scores.
        of_totals: (B, H) gradients of the totals.
        gradients: (W,) receives the sums.
    """
    begin = 0
    while begin < len(rows.counts):
        count = load(rows, widths[0] // 2, begin, group)
        through(weights, widths, group, count)
        for j in range(count):
            low, first = group.starts[j], rows.first[begin + j]
            for k in range(rows.counts[begin + j]):
                group.of_scores[low + k] = of_scores[begin + j, rows.places[first + k]]
        add_layer_gradients(weights, widths, group, of_totals[begin : begin + count], gradients)
        begin += count


@reordering_part
def n_layer_weights(widths: Ints) -> int:
    """Number of the weights and biases of all layers and of the score."""
    total = widths[-1] + 1
    for layer in range(len(widths) - 1):
        total += (widths[layer] + 1) * widths[layer + 1]
    return total


@reordering_part
def load(rows: Packed, features: int, begin: int, group: Group) -> int:
    """Copies the rows of the next observations into blocks; behind the last row are zeros.

    Args:
        rows: The rows.
        features: F.
        begin: The first of the observations.
        group: Receives the rows; there is room for those of one observation.

    Returns:
        The number of observations.
    """
    n = j = 0
    group.starts[0] = 0
    while j < len(group.starts) - 1 and begin + j < len(rows.counts):
        count = rows.counts[begin + j]
        if j > 0 and n + count > len(group.scores):
            break
        taken = 0
        while taken < count:
            block, low = n // BLOCK, n % BLOCK
            size = min(count - taken, BLOCK - low)
            for half in range(2):
                for f in range(features):
                    at = rows.first[begin + j] * features + f * count + taken
                    x = rows.inputs[half, at : at + size]
                    place = (half * features + f) * BLOCK + low
                    y = group.units[block, place : place + size]
                    for r in range(size):
                        y[r] = x[r]
            taken += size
            n += size
        j += 1
        group.starts[j] = n
    if n % BLOCK:
        for i in range(2 * features):
            group.units[n // BLOCK, i * BLOCK + n % BLOCK : (i + 1) * BLOCK] = 0.0
    return j


@reordering_part
def through(weights: Numbers, widths: Ints, group: Group, count: int) -> None:
    """Computes the units of the rows of a number of observations.

    Args:
        weights: See `forward`.
        widths: See there.
        group: The rows; receives the units.
        count: The observations.
    """
    for block in range(-(-group.starts[count] // BLOCK)):
        units, at, row = group.units[block], 0, 0
        for layer in range(len(widths) - 1):
            below, width = widths[layer], widths[layer + 1]
            x, y, biases = units[row * BLOCK :], units[(row + below) * BLOCK :], weights[at + below * width :]
            product(weights, at, below, 1, width, below, RELU if layer else ANY, x, biases, y)
            at += (below + 1) * width
            row += below


@reordering_part
def sum_up(weights: Numbers, widths: Ints, group: Group, totals: Tables) -> None:
    """Computes scores and totals of the rows of a number of observations from their units; see `through`."""
    count, hidden, top, at = len(totals), widths[-1], widths[:-1].sum(), n_layer_weights(widths) - widths[-1] - 1
    for block in range(-(-group.starts[count] // BLOCK)):
        units, scores = group.units[block], group.scores[block * BLOCK : (block + 1) * BLOCK]
        product(weights, at, hidden, 1, 1, hidden, RELU, units[top * BLOCK :], weights[at + hidden :], scores)
    for j in range(count):
        n, end = group.starts[j], group.starts[j + 1]
        while n < end:
            block, low = n // BLOCK, n % BLOCK
            size = min(BLOCK - low, end - n)
            for o in range(hidden):
                first, total = (top + o) * BLOCK + low, np.float32(0.0)
                y = group.units[block, first : first + size]
                for r in range(size):
                    total += max(y[r], RELU)
                totals[j, o] += total
            n += size


@reordering_part
def add_layer_gradients(weights: Numbers, widths: Ints, group: Group, of_totals: Tables, gradients: Numbers) -> None:
    """Adds the gradients of the weights by the rows of a number of observations.

    Args:
        weights: See `forward`.
        widths: See there.
        group: Rows, units of `through`, and gradients of the scores.
        of_totals: (observations, H) gradients of the totals.
        gradients: (W,) receives the sums.
    """
    hidden, top, end, j = widths[-1], widths[:-1].sum(), group.starts[len(of_totals)], 0
    slopes, score = group.slopes, n_layer_weights(widths) - hidden - 1
    for block in range(-(-end // BLOCK)):
        units, above = group.units[block], group.of_scores[block * BLOCK : (block + 1) * BLOCK]
        n, last = block * BLOCK, min((block + 1) * BLOCK, end)
        above[last - n :] = 0.0
        add_outer(above, units[top * BLOCK :], 1, hidden, RELU, gradients, score)
        for o in range(hidden):
            slopes[(top + o) * BLOCK + last - n : (top + o + 1) * BLOCK] = 0.0
        while n < last:
            high = min(group.starts[j + 1], last)
            for o in range(hidden):
                at = (top + o - block) * BLOCK
                slopes[at + n : at + high] = of_totals[j, o]
            n = high
            if n == group.starts[j + 1]:
                j += 1
        for o in range(hidden):
            weight, g = weights[score + o], slopes[(top + o) * BLOCK :]
            for r in range(BLOCK):
                g[r] += weight * above[r]
        at, row = score, top
        for layer in range(len(widths) - 2, -1, -1):
            below, width = widths[layer], widths[layer + 1]
            at -= (below + 1) * width
            x, y, g = units[(row - below) * BLOCK :], units[row * BLOCK :], slopes[row * BLOCK :]
            for r in range(width * BLOCK):
                slope = g[r]
                g[r] = slope if y[r] > 0 else np.float32(0.0)
            add_outer(g, x, width, below, RELU if layer else ANY, gradients, at)
            row -= below
            if layer:
                product(weights, at, 1, below, below, width, ANY, g, group.zeros, slopes[row * BLOCK :])


@reordering_part
def product(
    weights: Numbers,
    at: int,
    down: int,
    along: int,
    outputs: int,
    below: int,
    floor: np.float32,
    x: Numbers,
    biases: Numbers,
    y: Numbers,
) -> None:
    """Computes the product of weights, of which two rows or columns are `down` apart, and x.

    Args:
        weights: Weights of all layers.
        at: The first of the product.
        down: Distance of the weights of two outputs.
        along: Distance of the weights of two units below.
        outputs: Units of y.
        below: Units of x.
        floor: ANY or RELU, for x.
        x: (below x BLOCK or more,) numbers, unit by unit.
        biases: (outputs or more,) numbers to add.
        y: (outputs x BLOCK or more,) receives the sums.
    """
    for o in range(0, outputs - 3, 4):
        y4, e, f, g, h = y[o * BLOCK : (o + 4) * BLOCK], biases[o], biases[o + 1], biases[o + 2], biases[o + 3]
        for i in range(0, below - 3, 4):
            a, x4 = at + o * down + i * along, x[i * BLOCK : (i + 4) * BLOCK]
            b, c, d = a + down, a + 2 * down, a + 3 * down
            a0, a1, a2, a3 = weights[a], weights[a + along], weights[a + 2 * along], weights[a + 3 * along]
            b0, b1, b2, b3 = weights[b], weights[b + along], weights[b + 2 * along], weights[b + 3 * along]
            c0, c1, c2, c3 = weights[c], weights[c + along], weights[c + 2 * along], weights[c + 3 * along]
            d0, d1, d2, d3 = weights[d], weights[d + along], weights[d + 2 * along], weights[d + 3 * along]
            # All loads come before the stores, which could change them. The first four units begin the sums.
            if i == 0:
                for r in range(BLOCK):
                    s0, s1 = max(x4[r], floor), max(x4[BLOCK + r], floor)
                    s2, s3 = max(x4[2 * BLOCK + r], floor), max(x4[3 * BLOCK + r], floor)
                    y4[r] = e + a0 * s0 + a1 * s1 + a2 * s2 + a3 * s3
                    y4[BLOCK + r] = f + b0 * s0 + b1 * s1 + b2 * s2 + b3 * s3
                    y4[2 * BLOCK + r] = g + c0 * s0 + c1 * s1 + c2 * s2 + c3 * s3
                    y4[3 * BLOCK + r] = h + d0 * s0 + d1 * s1 + d2 * s2 + d3 * s3
            else:
                for r in range(BLOCK):
                    s0, s1 = max(x4[r], floor), max(x4[BLOCK + r], floor)
                    s2, s3 = max(x4[2 * BLOCK + r], floor), max(x4[3 * BLOCK + r], floor)
                    t0, t1, t2, t3 = y4[r], y4[BLOCK + r], y4[2 * BLOCK + r], y4[3 * BLOCK + r]
                    y4[r] = t0 + a0 * s0 + a1 * s1 + a2 * s2 + a3 * s3
                    y4[BLOCK + r] = t1 + b0 * s0 + b1 * s1 + b2 * s2 + b3 * s3
                    y4[2 * BLOCK + r] = t2 + c0 * s0 + c1 * s1 + c2 * s2 + c3 * s3
                    y4[3 * BLOCK + r] = t3 + d0 * s0 + d1 * s1 + d2 * s2 + d3 * s3
        for k in range(o, o + 4):
            _add_units(weights, at + k * down, along, below - below % 4, below, floor, x, biases[k], y[k * BLOCK :])
    for o in range(outputs - outputs % 4, outputs):
        _add_units(weights, at + o * down, along, 0, below, floor, x, biases[o], y[o * BLOCK :])


@reordering_part
def _add_units(
    weights: Numbers,
    at: int,
    along: int,
    begin: int,
    end: int,
    floor: np.float32,
    x: Numbers,
    bias: np.float32,
    y: Numbers,
) -> None:
    """Adds to one unit, which is the bias if they are all, the products of weights and units `begin` to `end` of x."""
    if begin == 0:
        y[:BLOCK] = bias
    for i in range(begin, end):
        a, s = weights[at + i * along], x[i * BLOCK : (i + 1) * BLOCK]
        for r in range(BLOCK):
            y[r] += a * max(s[r], floor)


@reordering_part
def add_outer(g: Numbers, x: Numbers, outputs: int, below: int, floor: np.float32, gradients: Numbers, at: int) -> None:
    """Adds the gradients of the weights and biases of a layer.

    Args:
        g: (outputs x BLOCK or more,) gradients of the outputs, unit by unit.
        x: (below x BLOCK or more,) units below.
        outputs: Units of g.
        below: Units of x.
        floor: ANY or RELU, for x.
        gradients: Receives the sums.
        at: The first weight.
    """
    for o in range(0, outputs - 3, 4):
        g4 = g[o * BLOCK : (o + 4) * BLOCK]
        for i in range(0, below - 3, 4):
            x4 = x[i * BLOCK : (i + 4) * BLOCK]
            a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = np.float32(0.0)
            c0 = c1 = c2 = c3 = d0 = d1 = d2 = d3 = np.float32(0.0)
            for r in range(BLOCK):
                s0, s1 = max(x4[r], floor), max(x4[BLOCK + r], floor)
                s2, s3 = max(x4[2 * BLOCK + r], floor), max(x4[3 * BLOCK + r], floor)
                t0, t1, t2, t3 = g4[r], g4[BLOCK + r], g4[2 * BLOCK + r], g4[3 * BLOCK + r]
                a0, a1, a2, a3 = a0 + t0 * s0, a1 + t0 * s1, a2 + t0 * s2, a3 + t0 * s3
                b0, b1, b2, b3 = b0 + t1 * s0, b1 + t1 * s1, b2 + t1 * s2, b3 + t1 * s3
                c0, c1, c2, c3 = c0 + t2 * s0, c1 + t2 * s1, c2 + t2 * s2, c3 + t2 * s3
                d0, d1, d2, d3 = d0 + t3 * s0, d1 + t3 * s1, d2 + t3 * s2, d3 + t3 * s3
            a = at + o * below + i
            b, c, d = a + below, a + 2 * below, a + 3 * below
            _add_four(gradients, a, a0, a1, a2, a3)
            _add_four(gradients, b, b0, b1, b2, b3)
            _add_four(gradients, c, c0, c1, c2, c3)
            _add_four(gradients, d, d0, d1, d2, d3)
    for o in range(outputs):
        slope, total = g[o * BLOCK : (o + 1) * BLOCK], np.float32(0.0)
        for i in range(below - below % 4 if o < outputs - outputs % 4 else 0, below):
            s0, x1 = np.float32(0.0), x[i * BLOCK : (i + 1) * BLOCK]
            for r in range(BLOCK):
                s0 += slope[r] * max(x1[r], floor)
            gradients[at + o * below + i] += s0
        for r in range(BLOCK):
            total += slope[r]
        gradients[at + outputs * below + o] += total


@reordering_part
def _add_four(sums: Numbers, at: int, a: np.float32, b: np.float32, c: np.float32, d: np.float32) -> None:
    sums[at] += a
    sums[at + 1] += b
    sums[at + 2] += c
    sums[at + 3] += d
