"""Evolution of the order ``learned`` on compiled replays of generated windows.

An evolution strategy after Salimans et al., Evolution Strategies as a Scalable Alternative to Reinforcement Learning
(2017): mirrored changes of all weights, common windows for all of them, Adam on the estimated gradient. The fitness is
the logarithm of the mean bounded slowdown, so that a window counts alike whatever its scale. Each generation has fresh
windows: one part of the family ``home``, the others of machines unlike it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hdsim.errors import WorkloadError
from hdsim.kernels.learned_scores import COLUMNS, CONTEXT, ERRORS, INPUT, LANES, OUTPUT, PART, STATE, WEIGHTS
from hdsim.kernels.machine import CHECK, Replay, advance
from hdsim.kernels.play_outs import BOUNDED_SLOWDOWN, mean_cost
from hdsim.kernels.rules import HEAD_ALONE_NUMBERS, NUMBERS, Backfilling
from hdsim.scheduling.learned import Checks, columns_of, make_replay, power_order, scored_queue
from hdsim.simulation import windows
from hdsim.workload.generators.families import FAMILIES, draw_workload
from hdsim.workload.model import Workload

Floats = NDArray[np.float64]

#: Backfilling algorithm and whether a head stays the head, in the order of the weights.
RULES = {name: (number, name != "easy") for name, number in HEAD_ALONE_NUMBERS.items()}
#: Jobs of a window that count, at home and away from it, and jobs before them in a window that begins warm.
JOBS, JOBS_AWAY, WARM = 1024, 512, 1024
#: Family of the windows away from home: wider than the family ``random``.
AWAY = {**FAMILIES["random"], "cores": [64, 100, 128, 256, 400, 512, 1024, 2048, 4096], "load": [0.5, 1.15]}
#: Limits of requested times in seconds that sites have in common.
LIMITS = np.array([1, 5, 10, 15, 30, 60, 120, 180, 240, 360, 480, 720, 1440, 2160, 2880, 5760, 11520]) * 60.0
#: Least mean bounded slowdown under smallest area first of a window away from home: below it every order is good.
LEAST = 1.6
#: First weights of the linear part for RLScheduler's rule, by column: the choices of ``rlscheduler_backfill-1`` in a
#: conditional logit, rounded. Evolution from smallest area first is caught at 0.90 of it at home, from here at 0.87.
BEGIN_RLSCHEDULER = {
    0: 1.0, 1: -2.0, 2: 1.0, 3: -2.0, 6: 6.0, 7: -1.0, 8: 2.5, 9: 1.5, 10: -1.0, 11: -3.5, 12: 1.0, 17: -3.5, 19: 1.0,
    20: -4.0, 24: -8.0,
}  # fmt: skip
#: Mean bounded slowdown of a window of mean weight at home, by backfilling algorithm.
TYPICAL: dict[int, float] = {Backfilling.NONE: 280.0, Backfilling.EASY: 25.0, Backfilling.RLSCHEDULER: 55.0}


@dataclass(frozen=True)
class Window:
    """A window to replay.

    Attributes:
        window: The jobs that count, and those before them that a warm start consists of.
    """

    window: windows.Window

    @cached_property
    def _replay(self) -> Replay:
        workload, (arriving, release) = self.window.workload, self.window.arrivals
        # Without kinds nothing changes what is expected of jobs, so that the next replay begins as the first did.
        jobs, nothing, rule = (
            columns_of(workload)._replace(kind=np.full(len(workload), -1)),
            np.zeros(0, np.int64),
            NUMBERS["none"],
        )
        network, cores = np.zeros((1, WEIGHTS)), workload.cluster_cores
        replay = make_replay(jobs, workload.runtime.copy(), network, cores, nothing, backfill=rule, commit=True)
        return replay.with_arrivals(arriving, release)

    def cost(self, weights: Floats, backfill: int, commit: bool, *, after_start: bool = True) -> float:
        """Returns the mean bounded slowdown under a network; see `Evolution` for `after_start`.

        As in :mod:`hdsim.studies.measures.windows` there is a pass for each event where a head stays the head.
        """
        window, replay = self.window, self._replay
        queue, state = scored_queue(replay)._replace(networks=weights[np.newaxis]), replay.machine
        clock, scoring, cores = state.clock[0], queue.scoring[0], state.rules.cores
        replay = replay._replace(scored=queue).under(backfill=backfill, commit=commit, batch=True)
        warm, checks = window.warmup, Checks(queue.networks, cores, backfill, commit)
        # The rest of the state is written before it is read.
        clock.arrived = clock.queued = clock.events = scoring.checks = 0
        clock.idle, clock.head, clock.reserved = cores, -1, -1
        state.starting_time[:], state.finish_time[:] = math.nan, math.nan
        ended, *dates = window.ended
        state.starting_time[ended], state.finish_time[ended] = dates
        scoring.after_start = after_start and backfill != Backfilling.NONE
        while warm and state.jobs.arrival[state.arriving[clock.arrived]] <= window.begin:
            if advance(replay, 1) == CHECK:
                checks.check(replay)
        replay = replay.under(batch=not commit)
        while advance(replay, 2 * len(state.log)) == CHECK:
            checks.check(replay)
        columns = (queue.submission[warm:], state.starting_time[warm:], state.finish_time[warm:])
        return float(mean_cost(BOUNDED_SLOWDOWN, *columns))


def smallest_area_first() -> Floats:
    """Returns the (WEIGHTS,) network that is the order ``saf``."""
    return power_order(1.0, 1.0)


def first_weights(rng: np.random.Generator) -> Floats:
    """Draws (WEIGHTS,) weights of a network that is the order ``saf``, but under RLScheduler's rule."""
    weights = smallest_area_first().reshape(-1, PART)
    for column, weight in BEGIN_RLSCHEDULER.items():
        weights[2, INPUT:CONTEXT].reshape(COLUMNS, LANES)[column, -1] = weight
    for first, last in ((INPUT, CONTEXT), (CONTEXT, OUTPUT)):
        lanes = weights[:, first:last].reshape(len(weights), -1, LANES)[:, :, :-1]
        lanes[:] = 0.3 * rng.standard_normal(lanes.shape)
    return weights.ravel()


def scales(estimates: bool) -> Floats:
    """Returns the (PART,) relative sizes of changes, 0 without effect; see `Evolution` for `estimates`."""
    sizes = np.ones(PART)
    sizes[:INPUT].reshape(STATE, COLUMNS)[-1] = 0.0
    lanes = sizes[INPUT:OUTPUT].reshape(COLUMNS + STATE, LANES)
    lanes[:, :-1], lanes[:COLUMNS, -1], lanes[COLUMNS:, -1] = 2.0, 3.0, 0.0
    sizes[OUTPUT:-1], sizes[-1] = 4.0, 0.0
    if estimates:
        for first, last in ((0, INPUT), (CONTEXT, OUTPUT)):
            rows = sizes[first:last].reshape(STATE, -1)
            rows[:ERRORS], rows[ERRORS + 2 :] = 0.0, 0.0
        sizes[INPUT:CONTEXT], sizes[OUTPUT:] = 0.0, 0.0
    return sizes


def draw_home(rng: np.random.Generator, split: str = "train", *, estimates: bool = False) -> Window:
    """Draws a window of a fresh trace of the family ``home``, or of it with estimates of run times."""
    changes = {"estimates": "tsafrir"} if estimates else {}
    while True:
        try:
            trace = draw_workload("home", int(rng.integers(2**32)), WARM + JOBS, split=split, **changes)
        except WorkloadError:  # the estimates of the model do not suit all run times
            continue
        return _window(trace, JOBS, rng)


def draw_away(rng: np.random.Generator, split: str = "train", *, estimates: bool = False) -> Window:
    """Draws a window of a machine unlike home on which orders differ, perhaps one with estimates of run times."""
    while True:
        try:
            trace = draw_workload(AWAY, int(rng.integers(2**32)), WARM + JOBS_AWAY, split=split)
        except WorkloadError:  # the estimates of the model do not suit all run times
            continue
        trace = unlike(trace, trace.cluster_cores, rng)
        if (window := _telling_window(trace, rng, estimates=estimates)) is not None:
            return window


def draw_capability(rng: np.random.Generator, *, estimates: bool = False) -> Window:
    """Draws a window of a machine for wide jobs on which orders differ, perhaps one with estimates of run times."""
    while True:
        trace = capability(int(rng.choice(AWAY["cores"])), rng.uniform(0.6, 1.1), WARM + JOBS_AWAY, rng)
        if (window := _telling_window(trace, rng, estimates=estimates)) is not None:
            return window


def _telling_window(trace: Workload, rng: np.random.Generator, *, estimates: bool) -> Window | None:
    """Returns a window away from home, None if orders do not differ on it or estimates are missing."""
    if estimates and (trace.requested_time <= trace.runtime).all():
        return None
    window = _window(trace, JOBS_AWAY, rng)
    return window if window.cost(smallest_area_first(), NUMBERS["easy"], False, after_start=False) >= LEAST else None


def _window(trace: Workload, jobs: int, rng: np.random.Generator) -> Window:
    """Returns the last jobs of a trace, which begin warm or come to the empty machine."""
    warm = len(trace) - jobs if rng.random() < 0.5 else 0
    return Window(windows.Window(trace[len(trace) - jobs - warm :], warm))


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
        requested = np.maximum(_round_up(wanted, LIMITS), runtime)
    elif draw < 0.3:
        requested = runtime * np.exp(rng.exponential(1.0, jobs))
    pace = math.exp(rng.normal(0, 0.7))
    runtime, requested = np.maximum(np.floor(runtime * pace), 1.0), np.maximum(np.floor(requested * pace), 1.0)
    submission = np.floor(submission * (runtime @ size / load) * (trace.submission_time[-1] / submission[-1]))
    columns = {"submission_time": submission, "runtime": runtime, "requested_time": requested, "requested_cores": size}
    return Workload.from_columns(**columns, header=trace.header)


def capability(cores: int, load: float, jobs: int, rng: np.random.Generator) -> Workload:
    """Generates a trace of a machine for wide jobs, such as those of the largest centres.

    Jobs take multiples of a share of the machine, run for an hour or so, arrive evenly or in bursts, and mostly request
    one of a few limits; then some jobs fail early.
    """
    unit = max(1, int(cores * math.exp(-rng.uniform(math.log(8), math.log(64)))))
    most = cores // unit
    width = np.minimum(np.floor(rng.random(jobs) ** -rng.uniform(0.5, 1.7)), most)
    if rng.random() < 0.5:
        width = 2.0 ** np.floor(np.log2(width))
    size = np.where(width == most, cores, width * unit).astype(np.int64)
    longest = rng.choice([12, 24, 48]) * 3600.0
    median, spread = math.exp(rng.uniform(math.log(600), math.log(10800))), rng.uniform(0.7, 1.8)
    runtime = np.floor(np.clip(median * np.exp(rng.normal(0, spread, jobs)), 20, longest))
    requested = runtime
    if rng.random() < 0.8:
        wanted = runtime / np.maximum(rng.beta(rng.uniform(0.5, 2), rng.uniform(0.3, 2), jobs), 0.002)
        least = rng.choice([5, 15, 30, 60]) * 60.0
        limits = LIMITS[np.searchsorted(LIMITS, least) : np.searchsorted(LIMITS, longest, side="right")]
        requested = np.maximum(_round_up(wanted, limits), runtime)
        fails = rng.random(jobs) < rng.uniform(0, 0.3)
        runtime = np.where(fails, np.maximum(np.floor(runtime * rng.random(jobs) ** 2), 20), runtime)
    gaps = rng.gamma(math.exp(rng.uniform(math.log(0.3), math.log(20))), size=jobs)
    submission = np.floor(np.cumsum(gaps) / gaps.sum() * (runtime @ size) / (cores * load))
    columns = {"submission_time": submission, "runtime": runtime, "requested_time": requested, "requested_cores": size}
    return Workload.from_columns(**columns, header={"MaxProcs": str(cores)})


def _round_up(wanted: Floats, limits: Floats) -> Floats:
    """Returns the least limit of at least each time, the greatest one where there is none."""
    return limits[np.minimum(np.searchsorted(limits, wanted), len(limits) - 1)]


@dataclass
class Evolution:
    """An evolution strategy; `advance` is one generation. Equal settings give equal weights.

    Attributes:
        weights: (WEIGHTS,) mean of the latest networks, the result.
        generation: Generations so far.

    Args:
        seed: Seed of all draws.
        generations: Generations in all, over which the learning rate falls to 0.
        none: Pairs of networks with opposite changes of the weights without backfilling; 0: these weights stay.
        easy: The same for EASY.
        rlscheduler: The same for RLScheduler's rule.
        each: Windows that a pair replays.
        home: Windows of the family ``home`` of a generation.
        away: Windows of machines unlike it.
        capability: Windows of machines for wide jobs.
        sigma: Standard deviation of a change.
        learning_rate: Of Adam.
        after_start: With backfilling, jobs are scored after every start, as in use; otherwise once a pass, which takes
            a third of the time.
        estimates: Only the weights of the errors of requested times change, which have no effect where requested times
            are the run times, and all windows have estimates of run times.
        none_from_easy: The weights without backfilling begin as those for EASY.
        start: (WEIGHTS,) first weights; None: those of :func:`first_weights`.
    """

    seed: int = 1
    generations: int = 400
    none: int = 18
    easy: int = 42
    rlscheduler: int = 60
    each: int = 4
    home: int = 34
    away: int = 30
    capability: int = 0
    sigma: float = 0.1
    learning_rate: float = 0.06
    after_start: bool = False
    estimates: bool = False
    none_from_easy: bool = False
    start: Floats | None = None
    generation: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        self.center = first_weights(self.rng) if self.start is None else self.start.copy()
        if self.none_from_easy:
            self.center[:PART] = self.center[PART : 2 * PART]
        self.weights = self.center.copy()
        self.scales = scales(self.estimates)
        self.first, self.second = np.zeros(WEIGHTS), np.zeros(WEIGHTS)

    def advance(self) -> None:
        """Replays fresh windows under pairs of networks and moves the network towards the better ones."""
        rng, rate = self.rng, self.learning_rate * (1 - self.generation / self.generations)
        drawn = [draw_home(rng, estimates=self.estimates) for _ in range(self.home)]
        drawn += [draw_away(rng, estimates=self.estimates) for _ in range(self.away)]
        drawn += [draw_capability(rng, estimates=self.estimates) for _ in range(self.capability)]
        self.generation += 1
        for part, (name, rule) in enumerate(RULES.items()):
            own = slice(part * PART, (part + 1) * PART)
            pairs = getattr(self, name)
            if not pairs:
                continue
            noise = rng.standard_normal((pairs, PART)) * self.scales
            # Windows are dealt out like cards, so that all of them count alike.
            rounds = -(-len(noise) * self.each // len(drawn))
            dealt = np.concatenate([rng.permutation(len(drawn)) for _ in range(rounds)])
            fitness = np.zeros(len(noise))
            for pair, change in enumerate(self.sigma * noise):
                more, less = self.center.copy(), self.center.copy()
                more[own] += change
                less[own] -= change
                for i in dealt[pair * self.each : (pair + 1) * self.each]:
                    fitness[pair] += self._gain(drawn[i], more, less, rule, home=i < self.home)
            gradient = fitness / (fitness.std() + 1e-12) @ noise / len(noise)
            self.first[own] += 0.1 * (gradient - self.first[own])
            self.second[own] += 0.01 * (gradient**2 - self.second[own])
            step = self.first[own] / (1 - 0.9**self.generation)
            step /= np.sqrt(self.second[own] / (1 - 0.99**self.generation)) + 1e-6
            self.center[own] += rate * self.scales * step
        self.weights = self.weights + (self.center - self.weights) * max(0.04, 1 / (self.generation + 1))

    def _gain(self, window: Window, more: Floats, less: Floats, rule: tuple[int, bool], *, home: bool) -> float:
        """By how much one network is better than another; at home, windows of heavy load count more."""
        costs = [window.cost(weights, *rule, after_start=self.after_start) for weights in (more, less)]
        gain = max(-1.5, min(1.5, math.log(costs[1] / costs[0])))
        return gain * max(0.4, min(2.5, (costs[0] * costs[1] / TYPICAL[rule[0]] ** 2) ** 0.25)) if home else gain
