"""Small networks that are applied to each of many rows: layers of linear units with ReLU, and their gradients.

Blocks of rows lie unit by unit in memory, so that all loops run over the rows of a block. Sums are in any order.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from hdsim.kernels.compiling import kernel
from hdsim.kernels.rows import Ints, Numbers

Tables = NDArray[np.float32]

#: Rows of a block.
BLOCK = 128

_kernel = partial(kernel, allocates=False, reorders=True)
_part = partial(kernel, inline=True, allocates=False, reorders=True)


@_kernel
def count_rows(observations: Tables, counts: Ints) -> int:
    """Counts the rows with a number other than 0 of each observation; returns the sum.

    Args:
        observations: (B, R, F) numbers.
        counts: (B,) receives the counts.
    """
    total = 0
    for b in range(len(counts)):
        count = 0
        for r in range(observations.shape[1]):
            count += _is_used(observations, b, r)
        counts[b] = count
        total += count
    return total


@_kernel
def pack_rows(observations: Tables, counts: Ints, places: Ints, numbers: Numbers) -> None:
    """Copies the rows with a number other than 0.

    Args:
        observations: (B, R, F) numbers.
        counts: (B,) such rows of each observation.
        places: (P,) receives the index of each row in its observation.
        numbers: (F x P,) receives the numbers of the rows, for each observation those of the first column first.
    """
    p = 0
    for b in range(len(observations)):
        k, count, at = 0, counts[b], p * observations.shape[2]
        for r in range(observations.shape[1]):
            if _is_used(observations, b, r):
                places[p + k] = r
                for f in range(observations.shape[2]):
                    numbers[at + f * count + k] = observations[b, r, f]
                k += 1
        p += count


@_part
def _is_used(observations: Tables, b: int, r: int) -> bool:
    f = observations.shape[2] - 1
    while f >= 0 and observations[b, r, f] == 0:
        f -= 1
    return f >= 0


@_kernel
def forward(
    weights: Numbers,
    widths: Ints,
    inputs: Tables,
    places: Ints,
    first: Ints,
    counts: Ints,
    owners: Ints,
    units: Tables,
    scores: Tables,
    totals: Tables,
) -> None:
    """Applies a network to the rows of B observations.

    Args:
        weights: (W,) weights (outputs, inputs) and biases of each layer, one layer after the other, and those of the
            score, a linear unit above the last layer.
        widths: Inputs, and outputs of each layer; the last are H.
        inputs: (2, inputs / 2 x P) numbers of the rows and numbers made of them, see `pack_rows`.
        places: (P,) index of each row in its observation.
        first: (B,) first row of each observation.
        counts: (B,) its rows.
        owners: (BLOCK,) space.
        units: (sum of the widths + 1, BLOCK) space.
        scores: (B, R) zeros that receive the scores.
        totals: (B, H) zeros that receive the sums of the last layer's outputs over the rows of each observation.
    """
    hidden = totals.shape[1]
    b = taken = 0
    while b < len(counts):
        begin, skipped = b, taken
        b, taken, n = _load(widths[0] // 2, inputs, first, counts, b, taken, owners, units)
        end, row = _through(weights, widths, units)
        units[-1] = weights[end + hidden]
        _add_product(weights, end, hidden, 1, 1, hidden, units[row : row + hidden], units[row + hidden :])
        r = 0
        while r < n:
            owner, low = owners[r], r
            while r < n and owners[r] == owner:
                r += 1
            at = first[owner] - low + (skipped if owner == begin else 0)
            for k in range(low, r):
                scores[owner, places[at + k]] = units[-1, k]
            for o in range(hidden):
                total = np.float32(0.0)
                for k in range(low, r):
                    total += units[row + o, k]
                totals[owner, o] += total


@_kernel
def add_gradients(
    weights: Numbers,
    widths: Ints,
    inputs: Tables,
    places: Ints,
    first: Ints,
    counts: Ints,
    owners: Ints,
    units: Tables,
    slopes: Tables,
    of_scores: Tables,
    of_totals: Tables,
    gradients: Numbers,
) -> None:
    """Adds the gradients of the weights; see `forward`, whose units are computed again.

    Args:
        weights: See there, also for those up to `units`.
        widths: See there.
        inputs: See there.
        places: See there.
        first: See there.
        counts: See there.
        owners: See there.
        units: See there.
        slopes: Space of the shape of `units`.
        of_scores: (B, R) gradients of the scores.
        of_totals: (B, H) gradients of the totals.
        gradients: (W,) receives the sums.
    """
    hidden = of_totals.shape[1]
    b = taken = 0
    while b < len(counts):
        begin, skipped = b, taken
        b, taken, n = _load(widths[0] // 2, inputs, first, counts, b, taken, owners, units)
        at, row = _through(weights, widths, units)
        above, low = slopes[row + hidden], 0
        above[:] = 0.0
        for r in range(n):
            owner = owners[r]
            if r > 0 and owner != owners[r - 1]:
                low = r
            above[r] = of_scores[owner, places[first[owner] - low + r + (skipped if owner == begin else 0)]]
        gradients[at + hidden] += above.sum()
        _add_outer(slopes[row + hidden :], units[row : row + hidden], 1, hidden, gradients, at)
        for o in range(hidden):
            g, w = slopes[row + o], weights[at + o]
            for r in range(n):
                g[r] = of_totals[owners[r], o]
            g[n:] = 0.0
            for r in range(BLOCK):
                g[r] += w * above[r]
        for layer in range(len(widths) - 2, -1, -1):
            below, width = widths[layer], widths[layer + 1]
            at -= (below + 1) * width
            x, y, g = units[row - below : row], units[row : row + width], slopes[row : row + width]
            for o in range(width):
                total = np.float32(0.0)
                for r in range(BLOCK):
                    g[o, r] = g[o, r] if y[o, r] > 0 else np.float32(0.0)
                    total += g[o, r]
                gradients[at + below * width + o] += total
            _add_outer(g, x, width, below, gradients, at)
            row -= below
            if layer:
                slopes[row : row + below] = 0.0
                _add_product(weights, at, 1, below, below, width, g, slopes[row : row + below])


@_part
def _load(
    features: int, inputs: Tables, first: Ints, counts: Ints, b: int, taken: int, owners: Ints, units: Tables
) -> tuple[int, int, int]:
    """Copies the next rows into a block.

    Args:
        features: Numbers of a row.
        inputs: See `forward`, also for `first` and `counts`.
        first: See there.
        counts: See there.
        b: The next observation.
        taken: Its rows that are in blocks already.
        owners: Receives the observation of each row.
        units: Receives the rows.

    Returns:
        `b` and `taken` of the next block, and the number of rows.
    """
    n = 0
    while b < len(counts) and n < BLOCK:
        count = min(counts[b] - taken, BLOCK - n)
        for r in range(count):
            owners[n + r] = b
        for i in range(2 * features):
            x, y = inputs[i // features], units[i]
            at = first[b] * features + i % features * counts[b] + taken
            for r in range(count):
                y[n + r] = x[at + r]
        n += count
        taken += count
        if taken == counts[b]:
            b, taken = b + 1, 0
    units[: 2 * features, n:] = 0.0
    return b, taken, n


@_part
def _through(weights: Numbers, widths: Ints, units: Tables) -> tuple[int, int]:
    """Computes the layers of a block; returns the index behind their weights, and the first unit of the last layer."""
    at = row = 0
    for layer in range(len(widths) - 1):
        below, width = widths[layer], widths[layer + 1]
        x, y = units[row : row + below], units[row + below : row + below + width]
        for o in range(width):
            y[o] = weights[at + below * width + o]
        _add_product(weights, at, below, 1, width, below, x, y)
        for o in range(width):
            for r in range(BLOCK):
                y[o, r] = max(y[o, r], np.float32(0.0))
        at += (below + 1) * width
        row += below
    return at, row


@_part
def _add_product(
    weights: Numbers, at: int, down: int, along: int, outputs: int, below: int, x: Tables, y: Tables
) -> None:
    """Adds to y (outputs, BLOCK) the product of weights, of which two rows or columns are `down` apart, and x."""
    for o in range(0, outputs - 1, 2):
        y0, y1, a = y[o], y[o + 1], at + o * down
        for i in range(0, below - 3, 4):
            b = a + i * along
            c = b + down
            b0, b1, b2, b3 = weights[b], weights[b + along], weights[b + 2 * along], weights[b + 3 * along]
            c0, c1, c2, c3 = weights[c], weights[c + along], weights[c + 2 * along], weights[c + 3 * along]
            x0, x1, x2, x3 = x[i], x[i + 1], x[i + 2], x[i + 3]
            for r in range(BLOCK):
                y0[r] += b0 * x0[r] + b1 * x1[r] + b2 * x2[r] + b3 * x3[r]
                y1[r] += c0 * x0[r] + c1 * x1[r] + c2 * x2[r] + c3 * x3[r]
        for i in range(below - below % 4, below):
            b0, c0, x0 = weights[a + i * along], weights[a + down + i * along], x[i]
            for r in range(BLOCK):
                y0[r] += b0 * x0[r]
                y1[r] += c0 * x0[r]
    if outputs % 2:
        for i in range(below):
            b0, x0, y0 = weights[at + (outputs - 1) * down + i * along], x[i], y[outputs - 1]
            for r in range(BLOCK):
                y0[r] += b0 * x0[r]


@_part
def _add_outer(g: Tables, x: Tables, outputs: int, below: int, gradients: Numbers, at: int) -> None:
    """Adds the product of g (outputs, BLOCK) and x (below, BLOCK) over the rows to gradients of weights."""
    for o in range(outputs):
        slope = g[o]
        for i in range(0, below - 3, 4):
            s0 = s1 = s2 = s3 = np.float32(0.0)
            x0, x1, x2, x3 = x[i], x[i + 1], x[i + 2], x[i + 3]
            for r in range(BLOCK):
                s0 += slope[r] * x0[r]
                s1 += slope[r] * x1[r]
                s2 += slope[r] * x2[r]
                s3 += slope[r] * x3[r]
            place = at + o * below + i
            gradients[place] += s0
            gradients[place + 1] += s1
            gradients[place + 2] += s2
            gradients[place + 3] += s3
        for i in range(below - below % 4, below):
            s0 = np.float32(0.0)
            for r in range(BLOCK):
                s0 += slope[r] * x[i, r]
            gradients[at + o * below + i] += s0
