"""Windows that train the order ``learned``: generated jobs, at home and on machines unlike it, in compiled replays."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np

from hdsim.errors import WorkloadError
from hdsim.scheduling.learned.network import WEIGHTS
from hdsim.scheduling.learned.order import Checks, columns_of, make_replay, power_order, rule_of, scored_queue
from hdsim.scheduling.machine.loop import CHECK, Replay, advance
from hdsim.scheduling.rules import NUMBERS
from hdsim.scheduling.search.play_outs import BOUNDED_SLOWDOWN, mean_cost
from hdsim.simulation.windows import Window
from hdsim.util.arrays import Floats
from hdsim.workload.generators.families import FAMILIES, draw_workload
from hdsim.workload.generators.kinds import kinds
from hdsim.workload.model import Workload

#: Jobs of a window that count, at home and away from it, and jobs before them in a window that begins warm.
JOBS, JOBS_AWAY, WARM = 1024, 512, 1024
#: Family of the windows away from home: wider than the family ``random``.
AWAY = {**FAMILIES["random"], "cores": [64, 100, 128, 256, 400, 512, 1024, 2048, 4096], "load": [0.5, 1.15]}
#: Limits of requested times in seconds that sites have in common.
LIMITS = np.array([1, 5, 10, 15, 30, 60, 120, 180, 240, 360, 480, 720, 1440, 2160, 2880, 5760, 11520]) * 60.0


class OrderWindow(Window):
    """A window that networks are replayed on; the state of its replay is used again and again."""

    @cached_property
    def _scored(self) -> Replay:
        workload, (arriving, release) = self.workload, self.arrivals
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
        """Returns the mean bounded slowdown under a network.

        Jobs are scored after every start (`after_start`) or once a pass, always so under the rule ``committed``. As in
        :mod:`hdsim.studies.measures.windows` there is a pass for each event where a head stays the head.
        """
        replay = self._scored
        queue, state = scored_queue(replay)._replace(networks=weights[np.newaxis]), replay.machine
        clock, scoring, cores = state.clock[0], queue.scoring[0], state.rules.cores
        replay = replay._replace(scored=queue).under(backfill=backfill, commit=commit, batch=True)
        # Without a head any job may start beside others.
        shadow = math.inf if backfill == NUMBERS["greedy"] else 0.0
        warm, checks = self.warmup, Checks(queue.networks, cores, backfill, commit)
        # The rest of the state is written before it is read.
        clock.arrived = clock.queued = clock.events = scoring.checks = 0
        clock.idle, clock.head, clock.reserved, clock.shadow, clock.longest = cores, -1, -1, shadow, shadow
        state.starting_time[:], state.finish_time[:] = math.nan, math.nan
        ended, *dates = self.ended
        state.starting_time[ended], state.finish_time[ended] = dates
        scoring.after_start = after_start and rule_of(backfill, commit) != "committed"
        while warm and state.jobs.arrival[state.arriving[clock.arrived]] <= self.begin:
            if advance(replay, 1) == CHECK:
                checks.check(replay)
        replay = replay.under(batch=not commit)
        while advance(replay, 2 * len(state.log)) == CHECK:
            checks.check(replay)
        columns = (queue.submission[warm:], state.starting_time[warm:], state.finish_time[warm:])
        return float(mean_cost(BOUNDED_SLOWDOWN, *columns))


def draw_home(rng: np.random.Generator, split: str = "train", *, estimates: bool = False) -> OrderWindow:
    """Draws a window of a fresh trace of the family ``home``, or of it with estimates of run times."""
    changes = {"estimates": "tsafrir"} if estimates else {}
    while True:
        try:
            trace = draw_workload("home", int(rng.integers(2**32)), WARM + JOBS, split=split, **changes)
        except WorkloadError:  # the estimates of the model do not suit all run times
            continue
        return _window(trace, JOBS, rng)


def draw_away(rng: np.random.Generator, split: str = "train", *, least: float, estimates: bool = False) -> OrderWindow:
    """Draws a window of a machine unlike home, perhaps one with estimates of run times.

    Windows on which smallest area first has less than the `least` mean bounded slowdown are left out: every order is
    good on them.
    """
    while True:
        try:
            trace = draw_workload(AWAY, int(rng.integers(2**32)), WARM + JOBS_AWAY, split=split)
        except WorkloadError:  # the estimates of the model do not suit all run times
            continue
        trace = unlike(trace, trace.cluster_cores, rng)
        if (window := _telling_window(trace, rng, least, estimates=estimates)) is not None:
            return window


def draw_capability(rng: np.random.Generator, *, least: float, estimates: bool = False) -> OrderWindow:
    """Draws a window of a machine for wide jobs; see :func:`draw_away`."""
    while True:
        trace = capability(int(rng.choice(AWAY["cores"])), rng.uniform(0.6, 1.1), WARM + JOBS_AWAY, rng)
        if (window := _telling_window(trace, rng, least, estimates=estimates)) is not None:
            return window


def draw_kind(rng: np.random.Generator, split: str = "train", *, least: float, estimates: bool = False) -> OrderWindow:
    """Draws a window of a kind of machine and load that is not held out; see :func:`draw_away`."""
    names = [name for name, kind in kinds().items() if not kind.held_out]
    while True:
        trace = draw_workload(str(rng.choice(names)), int(rng.integers(2**32)), WARM + JOBS_AWAY, split=split)
        if (window := _telling_window(trace, rng, least, estimates=estimates)) is not None:
            return window


def _telling_window(trace: Workload, rng: np.random.Generator, least: float, *, estimates: bool) -> OrderWindow | None:
    """Returns a window away from home, None if orders do not differ on it or estimates are missing."""
    if estimates and (trace.requested_time <= trace.runtime).all():
        return None
    window = _window(trace, JOBS_AWAY, rng)
    cost = window.cost(power_order(1.0, 1.0), NUMBERS["easy"], False, after_start=False)
    return window if cost >= least else None


def _window(trace: Workload, jobs: int, rng: np.random.Generator) -> OrderWindow:
    """Returns the last jobs of a trace, which begin warm or come to the empty machine."""
    warm = len(trace) - jobs if rng.random() < 0.5 else 0
    return OrderWindow(trace[len(trace) - jobs - warm :], warm)


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
