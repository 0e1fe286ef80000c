"""Kernels of deferral: which jobs with slack have a better start later."""

from __future__ import annotations

import math

import numpy as np

from hdsim.kernels.compiling import lean_kernel

#: Longest stretch, in seconds, that a mean over the run of a job may lack beyond the horizon of the forecast.
SEEN = 4 * 3600.0
#: Numbers by which a learned plan decides; see :func:`hold`.
FEATURES = 8
#: Relative rounding of means.
_ROUNDING = 1e-12


@lean_kernel
def hold(
    knots: np.ndarray,
    sums: np.ndarray,
    due: np.ndarray,
    length: np.ndarray,
    work: np.ndarray,
    backlog: float,
    cores: float,
    idle: float,
    gain: float,
    weights: np.ndarray,
    values: np.ndarray,
    means: np.ndarray,
    features: np.ndarray,
    held: np.ndarray,
) -> None:
    """Decides which of J jobs wait.

    Args:
        knots: (K + 1,) seconds: now, later times at which the signal changes, and the one until which it is known.
        sums: (K + 1,) integrals of the signal from now until each of these.
        due: (J,) latest starts, seconds.
        length: (J,) run times over which means are taken, seconds, above 0.
        work: (J,) core-seconds.
        backlog: Core-seconds of all jobs with slack that wait.
        cores: Cores of the machine.
        idle: Share of them that are idle.
        gain: Without weights: share by which the mean of a later start must be lower.
        weights: (FEATURES + 1,) factors of the features and a constant, (0,) for the rule: a job waits if their sum is
            above 0. Features are, m being the mean of a start now: m - that of the best start until `due`, and m - the
            mean of these starts, both over the mean of the signal; the share of the time until `due` in which starts
            are better; the h hours until `due` as ln(1 + h) / 5; backlog / (backlog + cores x time with better starts);
            `idle`; and the core-hours and hours of the job, as those until `due`.
        values: (K,) scratch.
        means: (K,) scratch.
        features: (FEATURES,) scratch.
        held: (J,) written: whether each job waits.
    """
    now, known, steps = knots[0], knots[-1], len(knots) - 1
    scale = 0.0
    for k in range(steps):
        scale += abs(sums[k + 1] - sums[k])
        values[k] = (sums[k + 1] - sums[k]) / (knots[k + 1] - knots[k])
    scale = max(scale / max(known - now, 1.0), 1e-9)
    for j in range(len(due)):
        held[j] = False
        if not due[j] > now:
            continue
        lasts, last, inverse = length[j], min(due[j], known - min(length[j], SEEN)), 1 / length[j]
        place, count, best = 0, 0, math.inf
        while count < steps and knots[count] <= last:
            begin = knots[count]
            end = begin + lasts
            if end > known:
                end, inverse = known, 1 / (known - begin)
            while knots[place + 1] < end:
                place += 1
            means[count] = (sums[place] + (end - knots[place]) * values[place] - sums[count]) * inverse
            if count > 0 and means[count] < best:
                best = means[count]
            count += 1
        if count < 2:
            continue
        present = means[0]
        if len(weights) == 0:
            held[j] = best < present - (gain + _ROUNDING) * abs(present)
            continue
        better, window, mean = 0.0, 0.0, 0.0
        for k in range(1, count):
            step = min(knots[k + 1], due[j]) - knots[k]
            window += step
            mean += step * means[k]
            if means[k] < present:
                better += step
        mean = mean / window if window > 0 else best
        features[0] = (present - best) / scale
        features[1] = better / window if window > 0 else 0.0
        features[2] = (present - mean) / scale
        features[3] = math.log1p((due[j] - now) / 3600) / 5
        features[4] = backlog / (backlog + cores * better + 1.0)
        features[5] = idle
        features[6] = math.log1p(work[j] / 3600) / 5
        features[7] = math.log1p(lasts / 3600) / 5
        score = weights[FEATURES]
        for f in range(FEATURES):
            score += weights[f] * features[f]
        # No later start within reach is lower: nothing to wait for.
        held[j] = score > 0 and best < present
