"""Expected releases of resources, the reservation of the head (EASY) and availability profiles (conservative)."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hdsim.kernels.compiling import kernel

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Releases(NamedTuple):
    """Expected ends of running jobs, ascending, ties by job.

    Attributes:
        end: (R,) expected ends in seconds.
        job: (R,) the jobs.
        cores: (R,) their cores.
        length: (1,) number of running jobs; the arrays may be longer.
    """

    end: Floats
    job: Ints
    cores: Floats
    length: Ints


class Profile(NamedTuple):
    """Unreserved cores over time: ``free[i]`` from ``times[i]`` to ``times[i + 1]``, the last entry without end.

    Attributes:
        times: (S,) beginnings of steps in seconds, ascending. One step for each running and each queued job and one
            more are enough.
        free: (S,) unreserved cores.
        length: (1,) number of steps; the arrays may be longer.
    """

    times: Floats
    free: Floats
    length: Ints


def make_releases(size: int) -> Releases:
    """Returns space for the expected ends of `size` running jobs."""
    return Releases(np.zeros(size), np.zeros(size, np.int64), np.zeros(size), np.zeros(1, np.int64))


def make_profile(size: int) -> Profile:
    """Returns space for `size` steps."""
    return Profile(np.zeros(size), np.zeros(size), np.zeros(1, np.int64))


@kernel
def later(end: float, now: float) -> float:
    """Returns an expected end, just after `now` if it has passed."""
    return end if end > now else np.nextafter(now, math.inf)


@kernel
def release_place(releases: Releases, end: float, job: int) -> int:
    """Returns the place of a job of expected `end` among the running ones."""
    first, last = 0, releases.length[0]
    while first < last:
        middle = (first + last) // 2
        at = releases.end[middle]
        if at < end or (at == end and releases.job[middle] < job):
            first = middle + 1
        else:
            last = middle
    return first


@kernel
def add_release(releases: Releases, end: float, job: int, cores: float) -> None:
    """Adds a started job."""
    place, count = release_place(releases, end, job), releases.length[0]
    for i in range(count, place, -1):
        releases.end[i] = releases.end[i - 1]
        releases.job[i] = releases.job[i - 1]
        releases.cores[i] = releases.cores[i - 1]
    releases.end[place], releases.job[place], releases.cores[place] = end, job, cores
    releases.length[0] = count + 1


@kernel
def remove_release(releases: Releases, end: float, job: int) -> None:
    """Removes a job that has ended, whose expected end was `end`."""
    releases.length[0] -= 1
    for i in range(release_place(releases, end, job), releases.length[0]):
        releases.end[i] = releases.end[i + 1]
        releases.job[i] = releases.job[i + 1]
        releases.cores[i] = releases.cores[i + 1]


@kernel
def head_reservation(releases: Releases, now: float, idle: float, cores: float) -> tuple[float, float]:
    """Returns the reservation of the head of the queue if only the number of cores matters.

    Args:
        releases: Expected ends of running jobs.
        now: Present time in seconds.
        idle: Idle cores.
        cores: Cores of the head.

    Returns:
        The shadow time, the earliest expected start of the head in seconds, infinite if unknown, and the extra cores,
        idle beside the head at that time.
    """
    missing, shadow = cores - idle, math.inf
    for i in range(releases.length[0]):
        date = max(releases.end[i], now)
        if missing <= 0 and date > shadow:
            break
        missing -= releases.cores[i]
        shadow = date
    return (shadow if missing <= 0 else math.inf), -missing


@kernel
def plan(profile: Profile, releases: Releases, now: float, idle: float) -> None:
    """Makes a profile of the running jobs alone.

    Args:
        profile: The profile.
        releases: Expected ends of running jobs; those that have passed are expected at any moment.
        now: Present time in seconds.
        idle: Idle cores.
    """
    times, free, last = profile.times, profile.free, 0
    times[0], free[0] = now, idle
    for i in range(releases.length[0]):
        date = later(releases.end[i], now)
        if date > times[last]:
            last += 1
            times[last], free[last] = date, free[last - 1]
        free[last] += releases.cores[i]
    profile.length[0] = last + 1


@kernel
def forward(profile: Profile, now: float) -> None:
    """Removes the time before `now`, at which or before which the profile begins."""
    times, free, count, past = profile.times, profile.free, profile.length[0], 0
    while past + 1 < count and times[past + 1] <= now:
        past += 1
    if past:
        for i in range(past, count):
            times[i - past], free[i - past] = times[i], free[i]
        profile.length[0] = count - past
    times[0] = now


@kernel
def reserve(profile: Profile, cores: float, duration: float) -> float:
    """Reserves cores for some seconds and returns their earliest start in seconds, infinite if there is none."""
    times, free, count = profile.times, profile.free, profile.length[0]
    if free[count - 1] < cores:
        return math.inf
    i = 0
    while True:
        while free[i] < cores:
            i += 1
        end = later(times[i] + duration, times[i])
        j = i + 1
        while j < count and times[j] < end and free[j] >= cores:
            j += 1
        if j == count or times[j] >= end:
            break
        i = j
    if j == count or times[j] > end:
        for k in range(count, j, -1):
            times[k], free[k] = times[k - 1], free[k - 1]
        times[j], free[j] = end, free[j - 1]
        profile.length[0] = count + 1
    for k in range(i, j):
        free[k] -= cores
    return times[i]
