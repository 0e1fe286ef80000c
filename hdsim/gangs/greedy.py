"""Greedy rule of largest improvement for CPU shares (Kube_Gang_Scheduling), for many windows at a time."""

from __future__ import annotations

import numpy as np

from hdsim.util.arrays import Floats, Ints


def allocate(table: Floats, first: Ints, width: Ints, increments: int, decay: float) -> Ints:
    """Distributes increments of CPU shares over J tasks for each of B windows of supersteps; returns (B, J) of them.

    An increment goes to the task with the largest sum of gains. In superstep i of a window the slowest task alone
    gains: decay^i times the seconds by which one more increment shortens it, which may be negative. The first task of
    equal duration counts as the slowest, and of equal gains the task of the earliest superstep is chosen. `table` has
    (J, n, L) durations in each superstep after 0, 1, ... increments; more increments than that have the last duration.
    Windows begin with (B,) supersteps `first` and have (B,) numbers of supersteps `width`, at least 1.
    """
    tasks, n, levels = table.shape
    # The lowest bits of a duration hold the task, the largest value for the first task: one maximum finds both.
    tag = (1 << (tasks - 1).bit_length()) - 1
    bits = (np.ascontiguousarray(table).view(np.int64) & ~tag) | (tag - np.arange(tasks))[:, None, None]
    tagged = bits.view(np.float64).ravel()
    gains = -np.diff(table, axis=2, append=table[:, :, -1:]).ravel()

    # Entries are the supersteps of all windows one after the other, cells are the tasks of all windows.
    windows = np.arange(len(width))
    begin = np.cumsum(width) - width
    window = np.repeat(windows, width)
    entries = np.arange(len(window))
    place = entries - begin[window]
    weight = decay**place
    base = (first[window] + place) * levels
    cells, rows = windows * tasks, window * tasks
    offset = np.tile(np.arange(tasks) * (n * levels), len(width))  # of the level of a cell in `tagged` and `gains`
    last = offset + levels - 1
    given = np.zeros(len(width) * tasks, np.int64)
    durations = tagged[base + offset[:tasks, None]]
    for _ in range(increments):
        slowest = tag - (durations.max(axis=0).view(np.int64) & tag)
        cell = rows + slowest
        total = np.bincount(cell, weight * gains[base + offset[cell]], len(given))[cell]
        best = np.flatnonzero(total == np.maximum.reduceat(total, begin)[window])[::-1]
        chosen = np.empty(len(width), np.int64)
        chosen[window[best]] = slowest[best]  # the earliest superstep is assigned last
        cell = cells + chosen
        given[cell] += 1
        offset[cell] = np.minimum(offset[cell] + 1, last[cell])
        task = chosen[window]
        durations[task, entries] = tagged[base + offset[rows + task]]
    return given.reshape(-1, tasks)


def exppo(levels: Floats, increments: int, most: int) -> Ints:
    """Distributes increments of CPU shares by EXPPO, each to the slowest task below a limit; returns (J,) of them.

    `levels` are the (J, L) durations of each task after 0, 1, ... increments; more than L - 1 increments have the
    duration of L - 1. A task gets at most `most` increments, which is at least increments / J.
    """
    given = np.zeros(len(levels), np.int64)
    tasks = np.arange(len(levels))
    for _ in range(increments):
        durations = levels[tasks, np.minimum(given, levels.shape[1] - 1)]
        given[np.where(given < most, durations, -np.inf).argmax()] += 1
    return given
