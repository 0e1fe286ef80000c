"""Settings, jobs, state and outcome of episodes in batches, as arrays."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hdsim.kernels.rows import Flags, Floats, Ints, Numbers

#: Quantities of the cluster whose rate or integral is the reward, and the bounded slowdown of ended jobs.
WEIGHTS, JOBS, CORES, SPEEDS, SLOWDOWN = range(5)
#: Order of a policy pair that draws the next job.
RANDOM_ORDER = -1

#: Settings of the environments.
RULES = np.dtype(
    [
        ("picks_jobs", "?"),  # an action selects one of the first queued jobs, otherwise a policy pair
        ("choices", "i8"),  # actions besides void
        ("void", "?"),  # the last action leaves everything until the next instant
        ("commit", "?"),  # any job may be selected; it is waited for if it does not fit
        ("backfill", "i8"),  # `Backfilling` while a job is waited for
        ("decide", "i8"),  # `Deciding`
        ("shows_rows", "?"),  # the observation has a row for each of the first queued jobs, otherwise quantiles
        ("sensitivity", "f8"),  # of the change of the queue's length in the observation
        ("objective", "i8"),  # source of the rewards
        ("integrated", "?"),  # rewards are integrals over time, otherwise values right after actions
        ("speed", "f8"),  # reward of a busy core
        ("shortest", "f8"),  # threshold of the bounded slowdown, seconds
        ("scale", "f8"),  # factor of every reward
        ("max_steps", "i8"),  # steps after which an episode is truncated, 0 for no limit
        ("batch_events", "?"),  # one scheduling pass per instant, otherwise one per event
        ("cores", "i8"),  # cores of the platform
        ("learns_scales", "?"),  # some scales of the observation are those of the jobs that have arrived
    ],
    align=True,
)
#: A job of a trace.
JOB = np.dtype(
    [
        ("runtime", "f8"),  # seconds
        ("walltime", "f8"),  # limit of the run time in seconds, infinite for none
        ("requested", "f8"),  # seconds
        ("weight", "f8"),  # weight in the reward
        ("delays", "?"),  # it ends in a delay, which is killed at a walltime of the same length
        ("infeasible", "?"),  # it is rejected at its submission
    ],
    align=True,
)
#: State of an episode.
EPISODE = np.dtype(
    [
        ("fresh", "?"),  # it begins with the next step
        ("first", "i8"),  # first job of the window
        ("stop", "i8"),  # the job after its last
        ("feasible", "i8"),  # jobs of the window that are not rejected
        ("next", "i8"),  # next job to arrive
        ("submitted", "i8"),  # first job that arrived at this instant
        ("now", "f8"),  # seconds since the submission of the first job
        ("idle", "i8"),  # idle cores
        ("events", "i8"),  # starts and ends so far
        ("steps", "i8"),  # actions so far
        ("head", "i8"),  # place of the first queued job
        ("tail", "i8"),  # place behind the last
        ("total", "f8"),  # reward since the last step
        ("since", "f8"),  # end of the time that it covers, seconds
        ("rate", "f8"),  # present rate
        ("weight", "f8"),  # sum of the weights of the jobs in the system
        ("passed", "?"),  # no further decision is due at this instant
        ("committed", "i8"),  # job that is waited for, or -1
        ("reserved", "i8"),  # job that has the reservation, or -1
        ("shadow", "f8"),  # its expected start, seconds
        ("extra", "f8"),  # cores idle beside it then
        ("freed", "?"),  # a job has ended since the last backfilling
        ("length", "i8"),  # length of the queue at the last decision
        ("renewal", "f8"),  # arrived jobs at which the scales of the observation are renewed
    ],
    align=True,
)


class Trace(NamedTuple):
    """The jobs of all traces, one trace behind the other.

    Attributes:
        rules: (1,) of type `RULES`.
        jobs: (J,) of type `JOB`.
        submission: (J,) seconds on the clock of the trace.
        cores: (J,) requested cores.
        table: (J x 8,) see :func:`hdsim.kernels.rows.write_rows`.
        values: (4, J) attributes of the queue that are observed.
        scales: (4,) their scales, NaN for those of the jobs that have arrived.
        rank: (K, J) place of each job in each order of the queue; the first is that of submission.
        ranked: (K, J) the jobs in each order.
        pair_order: (pairs,) the order of each policy pair, or `RANDOM_ORDER`.
        value_order: (4,) the order by each attribute.
    """

    rules: Any
    jobs: Any
    submission: Floats
    cores: Ints
    table: Numbers
    values: Floats
    scales: Floats
    rank: Ints
    ranked: Ints
    pair_order: Ints
    value_order: Ints


class State(NamedTuple):
    """State of E episodes, each of at most J jobs, of which at most C run at a time.

    Attributes:
        episodes: (E,) of type `EPISODE`.
        queue: (E, K, J) ranks of the queued jobs in each order, ascending.
        log: (E, 2 J) starts and ends in turn: i for the start of the window's job i, ~i for its end.
        start: (E, J) start of each job of the window in seconds, NaN before it.
        finish: (E, J) finish of each job that has started, seconds.
        ends: (E, C) heap of the finishes of running jobs, seconds.
        starts: (E, C) place of each one's start in `log`.
        running: (E,) number of running jobs.
        ended: (E, C) jobs that ended at this instant.
        release: (E, C) expected ends of running jobs in seconds, ascending; only with backfilling, as the next two.
        released: (E, C) the jobs.
        released_cores: (E, C) their cores.
        releases: (E,) their number.
        fits: (E, rows) whether each of the first queued jobs fits now.
        times: (E, rows) room for :func:`hdsim.kernels.rows.write_rows`, as `powers` (E, rows).
        powers: See `times`.
        mask: (E, A) legal actions.
        scales: (E, 4) scales of the observed attributes.
    """

    episodes: Any
    queue: Ints
    log: Ints
    start: Floats
    finish: Floats
    ends: Floats
    starts: Ints
    running: Ints
    ended: Ints
    release: Floats
    released: Ints
    released_cores: Floats
    releases: Ints
    fits: Flags
    times: Floats
    powers: Ints
    mask: Flags
    scales: Floats


class Outcome(NamedTuple):
    """Outcome of a step.

    Attributes:
        seen: (E, ...) observations, flat.
        mask: (E, A) legal actions.
        reward: (E,) rewards.
        terminated: (E,) every job has ended.
        truncated: (E,) the episode has reached its last permitted step.
        invalid: (E,) the action was not legal; the first legal one was carried out.
    """

    seen: Numbers
    mask: Flags
    reward: Floats
    terminated: Flags
    truncated: Flags
    invalid: Flags
