"""Scores of queued jobs by a small network whose inputs have no scale: the order ``learned``.

Each job has 25 columns, the state of queue and machine 12. The state changes the weights of the columns (a bilinear
part), and a perceptron with one hidden layer sees both. Some columns look ahead by one step: which jobs start at once
beside a head, and whose start a job puts off. The job of the lowest score is first.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from hdsim.kernels.compiling import kernel
from hdsim.kernels.logarithms import logarithms
from hdsim.scheduling.kernels.profiles import Releases, later
from hdsim.scheduling.rules import TAU, Backfilling

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Columns of a job, columns of the state, lanes: hidden units and, last, the linear part.
COLUMNS, STATE, LANES = 25, 12, 12
#: The first of the two columns of the state that are errors of requested times; the last column is always 1.
ERRORS = STATE - 3
#: Parts of the weights: state x columns, columns to lanes, state to lanes, hidden units to score.
INPUT = STATE * COLUMNS
CONTEXT = INPUT + COLUMNS * LANES
OUTPUT = CONTEXT + STATE * LANES
WEIGHTS = OUTPUT + LANES
#: Weights of the linear part for the first two columns, run time and cores: those of a plain order.
TIME, WIDTH = INPUT + LANES - 1, INPUT + 2 * LANES - 1
#: Latest jobs that the recent past consists of.
PAST = 256
#: The first queued jobs that fit, and the first that do not, on which the effects of a job are looked at.
AFFECTED = 16
#: Columns of the sums over the past, see `past_sums`.
SUMS, LOG_TIME, LOG_CORES = 9, 7, 8
LOG_TAU = math.log(TAU)


@kernel
def past_sums(requested: Floats, size: Ints) -> Floats:
    """Returns the (J + 1, 9) sums over all jobs before each job.

    Columns: log run time and its square, log cores and its square, run time x cores, 1 / run time, with requested times
    of at least 1 s (10 s in the reciprocal).
    """
    sums = np.zeros((len(size) + 1, SUMS))
    for job in range(len(size)):
        add_to_sums(sums, job, requested[job], size[job])
    return sums


@kernel
def add_to_sums(sums: Floats, job: int, requested: float, size: int) -> None:
    """Writes the sums behind a job from those before it, see `past_sums`."""
    r, c = max(requested, 1.0), float(size)
    time, cores = math.log(r), math.log(c)
    row, before = sums[job + 1], sums[job]
    row[0] = before[0] + time
    row[1] = before[1] + time * time
    row[2] = before[2] + cores
    row[3] = before[3] + cores * cores
    row[4] = before[4] + r * c
    row[5] = before[5] + 1.0 / max(r, TAU)
    row[6] = before[6] + 1.0 / c
    # These two are not sums, but of the job itself; the first may become that of its expected run time.
    before[LOG_TIME], before[LOG_CORES] = time, cores


@kernel
def affected(
    queue: Ints, count: int, fit: bool, idle: float, requested: Floats, size: Ints
) -> tuple[Ints, Floats, int, float]:
    """Returns the places in the queue of the first jobs that fit, or do not, their pressures, their number and the sum.

    The pressure of a job is the bounded slowdown that it gains in a second: 1 / max(run time, 10 s).
    """
    places, pressures, found, total = np.empty(AFFECTED, np.int64), np.empty(AFFECTED), 0, 0.0
    for i in range(count):
        if (size[queue[i]] <= idle) == fit and found < AFFECTED:
            places[found], pressures[found] = i, 1.0 / max(requested[queue[i]], TAU)
            total += pressures[found]
            found += 1
    return places, pressures, found, total


@kernel
def relief(
    head: int,
    fit: bool,
    delay: float,
    spare: float,
    left: float,
    backfill: int,
    requested: Floats,
    size: Ints,
    fitting: Ints,
    pressures: Floats,
    fits: int,
) -> tuple[float, float]:
    """Starts the jobs that fit beside a head; returns the cores that stay idle and the pressure of those jobs.

    Args:
        head: The head.
        fit: Whether it starts at once, and then any other may; otherwise jobs start by the rule of backfilling.
        delay: Seconds until it can start.
        spare: Cores that it leaves idle then.
        left: Cores that are idle now beside it.
        backfill: Backfilling algorithm.
        requested: (J,) s.
        size: (J,) cores.
        fitting: The first queued jobs that fit.
        pressures: Their pressures.
        fits: Their number.
    """
    pressure = 0.0
    for k in range(fits):
        job = fitting[k]
        if job == head or size[job] > left:
            continue
        if fit or requested[job] < delay or (backfill == Backfilling.EASY and size[job] <= spare):
            left -= size[job]
            pressure += pressures[k]
    return left, pressure


@kernel
def put_off(
    job: int,
    requested: Floats,
    size: Ints,
    delays: Floats,
    spare: Floats,
    blocked: Ints,
    pressures: Floats,
    blocks: int,
) -> tuple[float, float]:
    """Returns the pressure of the jobs whose earliest start a job would put off, and the slowdown that they gain.

    Args:
        job: The job.
        requested: (J,) s.
        size: (J,) cores.
        delays: (Q,) seconds until the earliest start of each.
        spare: (Q,) cores that it leaves idle then.
        blocked: Places in the queue of the first jobs that do not fit.
        pressures: Their pressures.
        blocks: Their number.
    """
    harm, slip = 0.0, 0.0
    for k in range(blocks):
        i = blocked[k]
        if requested[job] > delays[i] and size[job] > spare[i]:
            harm += pressures[k]
            slip += pressures[k] * (requested[job] - delays[i])
    return harm, slip


@kernel
def learned_scores(
    weights: Floats,
    cores: float,
    backfill: int,
    now: float,
    idle: float,
    queue: Ints,
    count: int,
    submission: Floats,
    requested: Floats,
    size: Ints,
    sums: Floats,
    errors: Floats,
    releases: Releases,
    out: Floats,
) -> None:
    """Scores the queued jobs.

    Args:
        weights: (WEIGHTS,) the network for the rule.
        cores: Cores of the machine.
        backfill: Number of :class:`hdsim.scheduling.rules.Backfilling`.
        now: Present time in seconds.
        idle: Idle cores.
        queue: (Q or more,) queued jobs in order of submission.
        count: Q.
        submission: (J,) s.
        requested: (J,) s, for queued jobs what is expected instead, see :mod:`hdsim.scheduling.learned.like_jobs`.
        size: (J,) cores.
        sums: (J + 1, 9) see `past_sums`.
        errors: (2,) mean and standard deviation of log run time / requested time of jobs that have ended lately.
        releases: Expected ends of running jobs.
        out: (Q or more,) receives the scores.
    """
    # The recent past ends at the last queued job.
    last = queue[count - 1] + 1
    first = max(last - PAST, 0)
    jobs = float(last - first)
    time_mean = (sums[last, 0] - sums[first, 0]) / jobs
    width_mean = (sums[last, 2] - sums[first, 2]) / jobs
    for k in range(WEIGHTS):
        if weights[k] != 0.0 and k != TIME and k != WIDTH:
            break
    else:
        # A plain order needs no columns but the first two.
        for i in range(count):
            time, width = sums[queue[i], LOG_TIME] - time_mean, sums[queue[i], LOG_CORES] - width_mean
            out[i] = weights[TIME] * time + weights[WIDTH] * width
        return
    time_sd = math.sqrt(max((sums[last, 1] - sums[first, 1]) / jobs - time_mean * time_mean, 0.0))
    width_sd = math.sqrt(max((sums[last, 3] - sums[first, 3]) / jobs - width_mean * width_mean, 0.0))
    area = (sums[last, 4] - sums[first, 4]) / cores
    brevity = math.log((sums[last, 5] - sums[first, 5]) / jobs) + time_mean
    narrowness = math.log((sums[last, 6] - sums[first, 6]) / jobs) + width_mean
    load = math.log((area + 1.0) / (now - submission[first] + area / jobs + 1.0))

    state = np.empty(STATE)
    state[0] = math.log(1.0 + count) / 3.0 - 1.0
    state[1] = idle / cores
    state[2] = max(-3.0, min(3.0, load))
    state[4] = time_sd - 1.5
    state[5] = width_sd - 1.0
    state[6] = 0.5 * brevity
    state[7] = narrowness
    state[8] = 0.5 * (width_mean - math.log(cores)) + 1.0
    state[ERRORS], state[ERRORS + 1] = errors[0], errors[1]
    state[STATE - 1] = 1.0

    queue_time, queue_width, queue_area, queue_wait = 0.0, 0.0, 0.0, 0.0
    for i in range(count):
        job = queue[i]
        queue_time += sums[job, LOG_TIME]
        queue_width += sums[job, LOG_CORES]
        queue_area += max(requested[job], 1.0) * size[job]
        queue_wait += now - submission[job]
    queue_time /= count
    queue_width /= count
    queue_wait = queue_wait / count + 1.0
    # Idle cores after each expected end.
    running, backlog, free = releases.length[0], queue_area, np.empty(releases.length[0] + 1)
    free[0] = idle
    for k in range(running):
        free[k + 1] = free[k] + releases.cores[k]
        backlog += (later(releases.end[k], now) - now) * releases.cores[k]
    clear, scale = math.log(backlog / cores + 1.0), math.exp(time_mean)

    state[3] = 0.5 * (clear - time_mean)

    # The earliest expected start of each job by itself, and the cores that are idle beside it then. Numbers of which
    # only logarithms count are in `logs`.
    gap, logs = math.inf, np.empty(4 * count)
    delays, spare = np.empty(count), np.empty(count)
    for i in range(count):
        job = queue[i]
        c, low, high = float(size[job]), 0, running
        while low < high:
            middle = (low + high) // 2
            if free[middle] < c:
                low = middle + 1
            else:
                high = middle
        delay = later(releases.end[low - 1], now) - now if low else 0.0
        if low:
            gap = min(gap, delay)
        wait, bounded = now - submission[job], max(requested[job], TAU)
        logs[4 * i] = 1.0 + wait / bounded
        logs[4 * i + 1] = 1.0 + wait / queue_wait
        logs[4 * i + 2] = 1.0 + delay / bounded
        logs[4 * i + 3] = 1.0 + delay / scale
        out[i] = (free[low] - c) / cores
        delays[i], spare[i] = delay, free[low] - c
    logarithms(logs, logs.view(np.int64), np.empty(4 * count, np.int64), 4 * count)
    places, gains, fits, pressure = affected(queue, count, True, idle, requested, size)
    fitting = np.empty(AFFECTED, np.int64)
    for k in range(fits):
        fitting[k] = queue[places[k]]
    blocked, losses, blocks, burden = affected(queue, count, False, idle, requested, size)
    nearest = math.log(gap + 1.0) if gap < math.inf else math.inf

    # The state adds to every lane and changes the weights of the linear part.
    lanes, context, lane = np.empty(CONTEXT - INPUT), np.empty(LANES), np.empty(LANES)
    for k in range(CONTEXT - INPUT):
        lanes[k] = weights[INPUT + k]
    for unit in range(LANES):
        context[unit] = 0.0
    for k in range(STATE):
        for unit in range(LANES):
            context[unit] += weights[CONTEXT + k * LANES + unit] * state[k]
    for s in range(STATE):
        for k in range(COLUMNS):
            lanes[k * LANES + LANES - 1] += state[s] * weights[s * COLUMNS + k]

    column = np.empty(COLUMNS)
    for i in range(count):
        job = queue[i]
        c, time, width = float(size[job]), sums[job, LOG_TIME], sums[job, LOG_CORES]
        column[0] = time - time_mean
        column[1] = width - width_mean
        column[2] = time - queue_time
        column[3] = width - queue_width
        column[4] = logs[4 * i]
        column[5] = 2.0 * logs[4 * i + 1]
        column[6] = 3.0 * c / cores
        column[8] = min(c / (idle + 1.0), 4.0)
        column[9] = logs[4 * i + 2]
        column[10] = logs[4 * i + 3]
        column[11] = 5.0 * out[i]
        column[12] = time - clear
        column[13] = 3.0 * max(LOG_TAU - time, 0.0)
        column[14] = max(-3.0, min(3.0, nearest - time))
        fit, delay, left, relieved = size[job] <= idle, delays[i], idle, 0.0
        if fit:
            left -= size[job]
        if fit or backfill != Backfilling.NONE:
            left, relieved = relief(job, fit, delay, spare[i], left, backfill, requested, size, fitting, gains, fits)
        column[18] = 4.0 * relieved / pressure if fits else 0.0
        column[19] = 3.0 * (idle - left) / (idle + 1.0)
        column[20] = 0.4 * math.log(1.0 + delay * (pressure - relieved)) if fits else 0.0
        # Columns of jobs that fit.
        column[7] = column[15] = column[16] = column[17] = 0.0
        column[21] = column[22] = column[23] = column[24] = 0.0
        if fit:
            harm, slip = put_off(job, requested, size, delays, spare, blocked, losses, blocks)
            column[7] = 3.0
            column[15] = column[2]
            column[16] = column[3]
            column[17] = column[11]
            column[21] = 2.0 * harm / burden if blocks else 0.0
            column[22] = 0.4 * math.log(1.0 + slip)
            column[23] = column[4]
            column[24] = column[6]
        for unit in range(LANES):
            lane[unit] = context[unit]
        # Five columns at once: sums stay in registers.
        for k in range(0, COLUMNS, 5):
            at, a, b, c, d, e = k * LANES, column[k], column[k + 1], column[k + 2], column[k + 3], column[k + 4]
            for unit in range(LANES):
                lane[unit] += (
                    lanes[at + unit] * a
                    + lanes[at + LANES + unit] * b
                    + lanes[at + 2 * LANES + unit] * c
                    + lanes[at + 3 * LANES + unit] * d
                    + lanes[at + 4 * LANES + unit] * e
                )
        linear = lane[LANES - 1]
        for unit in range(LANES):
            lane[unit] = weights[OUTPUT + unit] * (lane[unit] / (1.0 + abs(lane[unit])))
        lane[LANES - 1] = linear
        for unit in range(4):
            lane[unit] += lane[unit + 4] + lane[unit + 8]
        out[i] = (lane[0] + lane[1]) + (lane[2] + lane[3])
