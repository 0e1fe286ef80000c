"""Evolution of the order ``learned`` on compiled replays of generated windows.

An evolution strategy after Salimans et al., Evolution Strategies as a Scalable Alternative to Reinforcement Learning
(2017): mirrored changes of all weights, common windows for all of them, Adam on the estimated gradient. The fitness is
the logarithm of the mean bounded slowdown, so that a window counts alike whatever its scale. Each generation has fresh
windows: one part of the family ``home``, the others of machines unlike it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hdsim.errors import WorkloadError
from hdsim.kernels import counted_replay, learned_scores
from hdsim.kernels.learned_scores import COLUMNS, GATES, LANES, STATE, WEIGHTS
from hdsim.kernels.play_outs import BOUNDED_SLOWDOWN, mean_cost
from hdsim.kernels.scored_replay import CHECKS, ScoredReplay, scored_replay
from hdsim.scheduling.learned import columns_of, make_replay, power_order
from hdsim.workload.generators.families import FAMILIES, draw_workload
from hdsim.workload.model import Workload

Floats = NDArray[np.float64]

#: Rules of a window, each with its share: backfilling algorithm and whether a head stays the head.
RULES = {
    (counted_replay.EASY, False): 0.4,
    (counted_replay.RLSCHEDULER, True): 0.4,
    (counted_replay.NONE, True): 0.2,
}
#: Jobs of a window that count, and jobs before them in a window that begins warm.
JOBS, WARM = 1024, 256
#: Family of the windows away from home: wider than the family ``random``.
AWAY = {**FAMILIES["random"], "cores": [64, 100, 128, 256, 400, 512, 1024, 2048, 4096], "load": [0.5, 1.3]}
#: Limits of requested times in seconds that sites have in common.
LIMITS = np.array([1, 5, 10, 15, 30, 60, 120, 180, 240, 360, 480, 720, 1440, 2160, 2880, 5760, 11520]) * 60.0
#: Least mean bounded slowdown under smallest area first of a window away from home: below it every order is good.
LEAST = 1.6
#: Mean bounded slowdown of a window of mean weight at home, by backfilling algorithm.
TYPICAL = {counted_replay.EASY: 25.0, counted_replay.RLSCHEDULER: 55.0, counted_replay.NONE: 280.0}


@dataclass(frozen=True)
class Window:
    """A window to replay.

    Attributes:
        jobs: Jobs of the window.
        warm: The first jobs, which do not count.
        cores: Cores of the machine.
    """

    jobs: Workload
    warm: int
    cores: int

    @cached_property
    def _replay(self) -> ScoredReplay:
        jobs, runtime, network = columns_of(self.jobs), self.jobs.runtime.copy(), np.zeros((1, WEIGHTS))
        nothing, rule = np.zeros(0, np.int64), counted_replay.NONE
        return make_replay(jobs, runtime, network, self.cores, nothing, backfill=rule, commit=True)

    def cost(self, weights: Floats, backfill: int, commit: bool) -> float:
        """Returns the mean bounded slowdown under a network."""
        replay, warm = self._replay._replace(networks=weights[np.newaxis]), self.warm
        replay.rules[:2] = backfill, commit
        # The rest of the state is written before it is read.
        replay.numbers[:CHECKS] = 0, 0, 0, -1, -1, self.cores, 0
        scored_replay(replay, 4 * len(self.jobs))
        columns = (replay.submission[warm:], replay.starting_time[warm:], replay.finish_time[warm:])
        return float(mean_cost(BOUNDED_SLOWDOWN, *columns))


def smallest_area_first() -> Floats:
    """Returns the (WEIGHTS,) network that is the order ``saf``."""
    return power_order(1.0, 1.0)


def first_weights(rng: np.random.Generator) -> Floats:
    """Draws (WEIGHTS,) weights of a network that is the order ``saf``, with gates that tell the rules apart."""
    weights = smallest_area_first()
    gates = weights[: learned_scores.GATED].reshape(GATES, STATE)
    gates[3:] = 0.3 * rng.standard_normal((GATES - 3, STATE))
    gates[0, 9], gates[1, 10], gates[2, 9:] = 4.0, 4.0, (-4.0, -4.0, 4.0)
    inputs = weights[learned_scores.INPUT : learned_scores.CONTEXT].reshape(COLUMNS, LANES)
    context = weights[learned_scores.CONTEXT : learned_scores.OUTPUT].reshape(STATE, LANES)
    inputs[:, :-1] = 0.3 * rng.standard_normal((COLUMNS, LANES - 1))
    context[:, :-1] = 0.3 * rng.standard_normal((STATE, LANES - 1))
    return weights


def scales() -> Floats:
    """Returns (WEIGHTS,) relative sizes of changes: 1 for the linear part, half of it elsewhere, 0 without effect."""
    sizes = np.full(WEIGHTS, 0.5)
    sizes[learned_scores.GATED : learned_scores.INPUT].reshape(GATES, COLUMNS)[:3] = 1.0
    sizes[learned_scores.INPUT : learned_scores.CONTEXT].reshape(COLUMNS, LANES)[:, -1] = 1.0
    sizes[learned_scores.CONTEXT : learned_scores.OUTPUT].reshape(STATE, LANES)[:, -1] = 0.0
    sizes[-1] = 0.0
    return sizes


def draw_home(rng: np.random.Generator, split: str = "train") -> Window:
    """Draws a window of a fresh trace of the family ``home``."""
    trace = draw_workload("home", int(rng.integers(2**32)), int(rng.integers(1500, 6000)), split=split)
    return _window(trace, 256, rng)


def draw_away(rng: np.random.Generator, split: str = "train") -> Window:
    """Draws a window of a machine unlike home on which orders differ."""
    while True:
        seed, jobs = int(rng.integers(2**32)), int(rng.integers(1400, 3500))
        try:
            trace = draw_workload(AWAY, seed, jobs, split=split)
        except WorkloadError:  # the estimates of the model do not suit all run times
            continue
        cores = trace.cluster_cores
        window = _window(unlike(trace, cores, rng), cores, rng)
        if window.cost(smallest_area_first(), counted_replay.EASY, False) >= LEAST:
            return window


def _window(trace: Workload, cores: int, rng: np.random.Generator) -> Window:
    warm = int(rng.choice([0, WARM]))
    first = int(rng.integers(len(trace) - JOBS - warm + 1))
    return Window(trace[first : first + warm + JOBS], warm, cores)


def unlike(trace: Workload, cores: int, rng: np.random.Generator) -> Workload:
    """Changes a generated trace at random to that of another kind of machine; its offered load stays.

    There may be no short jobs, no narrow jobs, campaigns of like jobs, another scale of time, and requested times that
    are limits or just too long.
    """
    runtime, size, submission = trace.runtime.copy(), trace.requested_cores.copy(), trace.submission_time.copy()
    requested, jobs, load = trace.requested_time.copy(), len(trace), trace.runtime @ trace.requested_cores
    if rng.random() < 0.25:
        shortest = math.exp(rng.uniform(math.log(60), math.log(3600)))
        nearer = shortest * np.exp(rng.uniform(0.3, 0.8) * np.abs(np.log(np.maximum(runtime, 1.0) / shortest)))
        above = np.where(runtime < shortest, shortest * np.exp(rng.exponential(0.6, jobs)), runtime)
        runtime = np.minimum(nearer if rng.random() < 0.5 else above, 6e5)
        requested = runtime
    if rng.random() < 0.25:
        narrowest = max(1, int(cores * 2.0 ** -rng.uniform(2, 7)))
        size = np.maximum(size, narrowest)
        if rng.random() < 0.5:
            size = np.minimum(-(-size // narrowest) * narrowest, cores)
    if rng.random() < 0.3:
        new = rng.random(jobs) < rng.uniform(0.2, 0.8)
        like = np.maximum.accumulate(np.where(new, np.arange(jobs), 0))
        size, runtime = size[like], runtime[like] * np.exp(rng.normal(0, rng.uniform(0, 0.5), jobs))
        requested = np.maximum(requested[like], runtime)
        if rng.random() < 0.6:
            submission = np.cumsum(np.diff(submission, prepend=0.0) * np.where(new, 1.0, rng.uniform(0, 0.2)))
    draw = rng.random()
    if draw < 0.2:
        wanted = runtime / np.maximum(rng.beta(rng.uniform(0.5, 2), rng.uniform(0.3, 2), jobs), 0.01)
        requested = np.maximum(LIMITS[np.minimum(np.searchsorted(LIMITS, wanted), len(LIMITS) - 1)], runtime)
    elif draw < 0.3:
        requested = runtime * np.exp(rng.exponential(1.0, jobs))
    pace = math.exp(rng.normal(0, 0.7))
    runtime, requested = np.maximum(np.floor(runtime * pace), 1.0), np.maximum(np.floor(requested * pace), 1.0)
    submission = np.floor(submission * (runtime @ size / load) * (trace.submission_time[-1] / submission[-1]))
    columns = {"submission_time": submission, "runtime": runtime, "requested_time": requested, "requested_cores": size}
    return Workload.from_columns(**columns)


@dataclass
class Evolution:
    """An evolution strategy; `advance` is one generation. Equal settings give equal weights.

    Attributes:
        weights: (WEIGHTS,) mean of the latest networks, the result.
        generation: Generations so far.

    Args:
        seed: Seed of all draws.
        generations: Generations in all, over which the learning rate falls to 0.
        pairs: Pairs of networks with opposite changes.
        home: Windows of the family ``home`` of a generation.
        away: Other windows.
        sigma: Standard deviation of a change.
        learning_rate: Of Adam.
    """

    seed: int = 1
    generations: int = 160
    pairs: int = 16
    home: int = 14
    away: int = 12
    sigma: float = 0.08
    learning_rate: float = 0.03
    generation: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        self.center = first_weights(self.rng)
        self.weights = self.center.copy()
        self.scales = scales()
        self.first, self.second = np.zeros(WEIGHTS), np.zeros(WEIGHTS)

    def advance(self) -> None:
        """Replays fresh windows under pairs of networks and moves the network towards the better ones."""
        rng, rules = self.rng, list(RULES)
        windows = [draw_home(rng) for _ in range(self.home)] + [draw_away(rng) for _ in range(self.away)]
        chosen = [rules[i] for i in rng.choice(len(rules), len(windows), p=list(RULES.values()))]
        share = np.ones(len(windows))
        for i in range(self.home):
            cost = windows[i].cost(self.weights, *chosen[i])
            share[i] = np.clip(math.sqrt(cost / TYPICAL[chosen[i][0]]), 0.4, 2.5)
        noise = rng.standard_normal((self.pairs, WEIGHTS)) * self.scales
        gains = np.empty((self.pairs, len(windows)))
        for pair, change in enumerate(self.sigma * noise):
            for i, (window, rule) in enumerate(zip(windows, chosen, strict=True)):
                ratio = window.cost(self.center - change, *rule) / window.cost(self.center + change, *rule)
                gains[pair, i] = np.clip(math.log(ratio), -1.5, 1.5)
        fitness = gains @ share
        gradient = fitness / (fitness.std() + 1e-12) @ noise / self.pairs
        self.first += 0.1 * (gradient - self.first)
        self.second += 0.01 * (gradient**2 - self.second)
        rate = self.learning_rate * (1 - self.generation / self.generations)
        self.generation += 1
        steps = self.generation
        step = self.first / (1 - 0.9**steps) / (np.sqrt(self.second / (1 - 0.99**steps)) + 1e-6)
        self.center = self.center + rate * self.scales * step
        self.weights = self.weights + (self.center - self.weights) * max(0.04, 1 / (steps + 1))


def log_ratio(windows: Sequence[Window], weights: Floats, other: Floats, rule: tuple[int, bool]) -> Floats:
    """Returns the (W,) logarithms of the costs of one network over those of another."""
    return np.log([window.cost(weights, *rule) / window.cost(other, *rule) for window in windows])
