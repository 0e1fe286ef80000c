"""Settings, jobs, state and outcome of episodes in batches, as arrays."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hdsim.decisions.kernels.rows import Flags, Floats, Ints, Numbers
from hdsim.kernels.compiling import part_of_kernel
from hdsim.kernels.heap import Heap
from hdsim.scheduling.kernels.profiles import Releases
from hdsim.scheduling.machine.state import CLOCK, JobColumns, Machine, Rules

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
#: A job of an episode, for the machine: 64 bytes, for what is used at the same time is at the same place.
OWN_JOB = np.dtype(
    [
        ("runtime", "f8"),  # see `JOB`, as the next three
        ("walltime", "f8"),
        ("requested", "f8"),
        ("delays", "?"),
        ("killed", "?"),  # it ends at its walltime
        ("arriving", "i4"),  # the job that is the next to arrive after as many others
        ("cores", "i8"),
        ("arrival", "f8"),  # seconds since the submission of the first job
        ("begin", "f8"),  # seconds, NaN before it
        ("finish", "f8"),  # seconds, NaN before it
    ],
    align=True,
)
#: State of an episode; jobs are numbered within the window.
EPISODE = np.dtype(
    [
        *((name, CLOCK[name]) for name in CLOCK.names or ()),  # the clock of its machine; `head` is the selected job
        ("fresh", "?"),  # it begins with the next step
        ("first", "i8"),  # first job of the window in all traces
        ("jobs", "i8"),  # jobs of the window
        ("feasible", "i8"),  # those that are not rejected
        ("next", "i8"),  # next job to arrive, rejected ones included
        ("submitted", "i8"),  # first job that arrived at this instant
        ("steps", "i8"),  # actions so far
        ("front", "i8"),  # place of the first queued job
        ("total", "f8"),  # reward since the last step
        ("since", "f8"),  # end of the time that it covers, seconds
        ("rate", "f8"),  # present rate
        ("weight", "f8"),  # sum of the weights of the jobs in the system
        ("passed", "?"),  # no further decision is due at this instant
        ("freed", "?"),  # a job has ended since the last backfilling
        ("length", "i8"),  # length of the queue at the last decision
        ("renewal", "f8"),  # arrived jobs at which the scales of the observation are renewed
    ],
    align=True,
)


class Trace(NamedTuple):
    """The T jobs of all traces, one trace behind the other.

    Attributes:
        rules: (1,) of type `RULES`.
        jobs: (T,) of type `JOB`.
        submission: (T,) seconds on the clock of the trace.
        cores: (T,) requested cores.
        table: (T x 8,) see :func:`hdsim.decisions.kernels.rows.write_rows`.
        values: (4, T) attributes of the queue that are observed.
        scales: (4,) their scales, NaN for those of the jobs that have arrived.
        rank: (K, T) place of each job in each order of the queue; the first is that of submission.
        ranked: (K, T) the jobs in each order.
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
        jobs: (E, J) of type `OWN_JOB`.
        log: (E, 2 J) see `Machine`.
        ends: (E, C) dates of the ends of running jobs; on nodes some are outdated, and there may be more.
        starts: (E, C) what the heap of these holds beside them.
        release: (E, C) expected ends of running jobs in seconds; only with backfilling, as the next two.
        released: (E, C) the jobs.
        released_cores: (E, C) their cores.
        lengths: (E, 2) entries of `ends` and of `release`.
        queue: (E, K, J) ranks of the queued jobs in each order, ascending, from the place `front` of the episode on.
        fits: (E, rows) whether each of the first queued jobs fits now.
        times: (E, rows) room for :func:`hdsim.decisions.kernels.rows.write_rows`, as `powers` (E, rows).
        powers: See `times`.
        mask: (E, A) legal actions.
        scales: (E, 4) scales of the observed attributes.
    """

    episodes: Any
    jobs: Any
    log: Ints
    ends: Floats
    starts: Ints
    release: Floats
    released: Ints
    released_cores: Floats
    lengths: Ints
    queue: Ints
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


@part_of_kernel
def machine_of(e: int, trace: Trace, state: State) -> Machine:
    """Returns the machine of an episode, whose jobs are numbered within the window."""
    episode, rules, own = state.episodes[e], trace.rules[0], state.jobs[e]
    return Machine(
        Rules(rules.backfill, rules.commit, rules.batch_events, False, rules.cores, 0),
        state.episodes[e : e + 1],
        JobColumns(
            own.arrival,
            own.runtime,
            own.requested,
            own.walltime,
            own.delays,
            own.cores,
        ),
        own.arriving[: episode.feasible],
        own.begin,
        own.finish,
        own.killed,
        state.log[e],
        Heap(state.ends[e], state.starts[e], state.lengths[e][:1]),
        Releases(state.release[e], state.released[e], state.released_cores[e], state.lengths[e][1:]),
    )
