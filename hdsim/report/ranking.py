"""Rankings of configurations over traces, platforms or loads.

Average ranks with the tests of Friedman and Nemenyi (Demšar, *Statistical Comparisons of Classifiers over Multiple Data
Sets*, JMLR 7, 2006), and the probability of improvement over the baseline (Agarwal et al., *Deep RL at the Edge of the
Statistical Precipice*, NeurIPS 2021).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from hdsim.report.compare import Comparison
from hdsim.report.labels import text
from hdsim.report.ratios import places
from hdsim.report.statistics import CONFIDENCE, NO_INTERVAL, Floats, Interval, two_stage
from hdsim.results.metrics import direction

#: Fewest configurations and blocks of a ranking.
FEWEST_CONFIGURATIONS, FEWEST_BLOCKS = 3, 4
_RESAMPLES = 2000
_SEED = 0
#: A trace, and the part of it that a run replays.
Draw = tuple[str, str]


@dataclass(frozen=True)
class Standing:
    """The place of one configuration in the ranking by one metric.

    Attributes:
        metric: Name of the metric.
        configuration: Label of the configuration.
        baseline: The configuration is the baseline.
        blocks: Scenarios, or replications of a single scenario, in which all configurations ran.
        average_rank: Mean over the blocks of the place, 1 for the best; equal values share the mean of their places.
        critical_difference: Difference of average ranks from which on two configurations differ by Nemenyi's test.
        friedman_p: Probability of ranks as different as these if all configurations were alike.
        iman_davenport_p: The same by the less conservative F distribution.
        improvement: Probability that a run is better than one of the baseline in the same block, ties counted half; NaN
            for the baseline.
    """

    metric: str
    configuration: str
    baseline: bool
    blocks: int
    average_rank: float
    critical_difference: float
    friedman_p: float
    iman_davenport_p: float
    improvement: Interval


def standings(comparison: Comparison) -> tuple[Standing, ...]:
    """Returns the rankings by every metric that has better and worse values, best configuration first.

    Blocks are scenarios, whose replications are averaged, as they are not independent. In a single scenario blocks are
    the replications: windows of the trace, or traces drawn from different seeds. There is no ranking of fewer than 3
    configurations, or over fewer than 4 blocks.
    """
    base = comparison.baseline
    if base is None:
        return ()
    draws = [(place.trace, place.part) for place in places(comparison.entries)]
    metrics = [metric for metric in comparison.metrics if direction(metric)]
    return tuple(one for metric in metrics for one in _by(comparison, draws, metric, base))


def _by(comparison: Comparison, draws: Sequence[Draw], metric: str, base: str) -> Iterator[Standing]:
    blocks: dict[str, dict[str, list[float]]] = {}
    drawn: dict[tuple[str, str], list[Draw]] = {}
    single = len({entry.scenario for entry in comparison.entries}) == 1
    for entry, draw in zip(comparison.entries, draws, strict=True):
        # Trainings of several seeds share their test windows.
        alone = dict(entry.replication).get("window") or text(entry.replication)
        at, name = alone if single else text(entry.scenario), text(entry.configuration)
        blocks.setdefault(at, {}).setdefault(name, []).append(direction(metric) * entry.metrics[metric])
        drawn.setdefault((at, name), []).append(draw)
    names = list(dict.fromkeys(name for block in blocks.values() for name in block))
    whole = {at: block for at, block in blocks.items() if len(block) == len(names)}
    values = np.array([[np.mean(block[name]) for name in names] for block in whole.values()])
    if len(names) < FEWEST_CONFIGURATIONS or len(whole) < FEWEST_BLOCKS or np.isnan(values).any():
        return
    ranks = average_ranks(values)
    chi, f = friedman(values)
    difference = critical_difference(len(names), len(whole))
    for place in np.argsort(ranks, kind="stable").tolist():
        name = names[place]
        pairs = [(block[name], block[base]) for block in whole.values()]
        same = [(drawn[at, name], drawn[at, base]) for at in whole]
        better = NO_INTERVAL if name == base else probability_of_improvement(pairs, same)
        yield Standing(metric, name, name == base, len(whole), float(ranks[place]), difference, chi, f, better)


def average_ranks(values: Floats) -> Floats:
    """Returns (K,) average ranks of (N, K) values of K configurations in N blocks, the highest value first.

    Ties get the mean of their ranks.
    """
    from scipy import stats

    found: Floats = stats.rankdata(-values, axis=1).mean(axis=0)
    return found


def friedman(values: Floats) -> tuple[float, float]:
    """Returns p-values of the hypothesis that K configurations are alike: Friedman's, and Iman and Davenport's.

    The values are (N, K), of N blocks. Friedman's statistic is corrected for ties; F = (N - 1) chi2 /
    (N (K - 1) - chi2) follows an F distribution with K - 1 and (K - 1) (N - 1) degrees of freedom (Demšar 2006, 3.2.2).
    """
    from scipy import stats

    if (values == values[:, :1]).all():
        return 1.0, 1.0
    blocks, count = values.shape
    chi, p = stats.friedmanchisquare(*values.T)
    rest = blocks * (count - 1) - chi
    f = math.inf if rest <= 1e-9 else (blocks - 1) * chi / rest
    return float(p), float(stats.f.sf(f, count - 1, (count - 1) * (blocks - 1)))


def critical_difference(configurations: int, blocks: int) -> float:
    """Returns the critical difference of average ranks of Nemenyi's test, q sqrt(K (K + 1) / (6 N)), at 5 %.

    q is the quantile of the studentized range of K means with infinitely many degrees of freedom, divided by the square
    root of 2 (Demšar 2006, section 3.2.2 and table 5).
    """
    from scipy import stats

    q = float(stats.studentized_range.ppf(CONFIDENCE, configurations, np.inf)) / math.sqrt(2)
    return q * math.sqrt(configurations * (configurations + 1) / (6 * blocks))


def cliques(ranks: Sequence[float], difference: float) -> list[tuple[int, int]]:
    """Returns the largest groups of neighbours in ascending ranks that differ by less than the critical difference.

    Returns:
        First and last place of each group of two or more, none inside another.
    """
    found: list[tuple[int, int]] = []
    for first, rank in enumerate(ranks):
        last = max(place for place in range(first, len(ranks)) if ranks[place] - rank < difference or place == first)
        if last > first and (not found or last > found[-1][1]):
            found.append((first, last))
    return found


def probability_of_improvement(
    blocks: Sequence[tuple[Sequence[float], Sequence[float]]],
    draws: Sequence[tuple[Sequence[Draw], Sequence[Draw]]],
) -> Interval:
    """Returns the probability that a run is better than one of the baseline in the same block, ties counted half.

    It is the mean over blocks of Mann and Whitney's U over the number of pairs (Agarwal et al. 2021, section 4.3). The
    interval is the percentile bootstrap of the draws that are in the same blocks, in two stages as in
    :func:`hdsim.report.statistics.against`; where a block has a single run, that of the blocks.

    Args:
        blocks: Values of the runs of a configuration and of the baseline in each block, higher ones better.
        draws: Trace and part of it of these runs; equal ones, such as one trace at several loads, were drawn once.
    """
    rng = np.random.default_rng(_SEED)
    wins = [0.5 * (np.sign(np.subtract.outer(np.array(ours), np.array(base))) + 1) for ours, base in blocks]
    values = np.array([found.mean() for found in wins])
    single = min(min(found.shape) for found in wins) == 1
    if single:
        draws = [([ours[0]] * len(ours), [ours[0]] * len(base)) for ours, base in draws]
    weights = _weights(draws, rng, together=single)
    total, mass = np.zeros(_RESAMPLES), np.zeros(_RESAMPLES)
    for found, (ours, base) in zip(wins, draws, strict=True):
        mine, theirs = (np.array([weights[draw] for draw in side]) for side in (ours, base))
        pairs = mine.sum(axis=0) * theirs.sum(axis=0)
        # A block counts as often as its runs were drawn.
        count = np.where(pairs > 0, mine.mean(axis=0), 0.0)
        total += count * np.einsum("ir,ij,jr->r", mine, found, theirs) / np.maximum(pairs, 1)
        mass += count
    low, high = np.quantile(total[mass > 0] / mass[mass > 0], ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2))
    return Interval(float(values.mean()), float(low), float(high), len(values))


def _weights(
    draws: Sequence[tuple[Sequence[Draw], Sequence[Draw]]], rng: np.random.Generator, *, together: bool
) -> dict[Draw, Floats]:
    """(R,) how often each draw is drawn, from those in the same blocks on the same sides, or from all `together`."""
    where: dict[Draw, set[tuple[int, int]]] = {}
    for block, sides in enumerate(draws):
        for side, runs in enumerate(sides):
            for draw in runs:
                where.setdefault(draw, set()).add((block, side))
    strata: dict[frozenset[tuple[int, int]], list[Draw]] = {}
    for draw, at in where.items():
        strata.setdefault(frozenset() if together else frozenset(at), []).append(draw)
    found: dict[Draw, Floats] = {}
    for stratum in strata.values():
        known = {trace: number for number, trace in enumerate(dict.fromkeys(trace for trace, _ in stratum))}
        found |= zip(stratum, two_stage([known[trace] for trace, _ in stratum], _RESAMPLES, rng).T, strict=True)
    return found
