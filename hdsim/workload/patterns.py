"""Communication patterns: the messages among the tasks of a job in one phase.

Common patterns have a name and a volume. The volume is the size of *one message* in bytes, as in MPI benchmarks (OSU,
IMB) and in Batsim's ``com``; that of an h-relation is the total of each task:

=================  ==============================================================================  ================
name               messages among p tasks, of v bytes each unless stated                           h
=================  ==============================================================================  ================
``none``           none                                                                            0
``h_relation``     from each task to each other task, of v / (p - 1) bytes                         v
``all_to_all``     from each task to each other task                                               (p - 1) v
``ring``           from task i to task i + 1, from the last task to task 0                         v
``halo_2d``        to the neighbours up, down, left and right in a grid without wrap-around        4 v or less
``master_worker``  from task 0 to each other task and back                                         (p - 1) v
=================  ==============================================================================  ================

A job of one task has no messages under any pattern.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hdsim.errors import WorkloadError, nearest
from hdsim.util.arrays import Floats, Ints
from hdsim.util.copies import itself

_LARGEST = sys.float_info.max
#: (source node, target node, bytes of each message, number of messages)
Messages = list[tuple[int, int, float, int]]


def _no_tasks() -> Ints:
    return np.empty(0, np.int64)


@dataclass(frozen=True, eq=False)
class Pattern:
    """The messages of one communication phase of a job, created by :func:`make_pattern`."""

    __deepcopy__ = itself

    tasks: int  # number of tasks p, with indices 0 to p - 1
    sources: Ints = field(default_factory=_no_tasks)  # (M,) sender of each message
    targets: Ints = field(default_factory=_no_tasks)  # (M,) receiver of each message, not its sender
    volumes: Floats = field(default_factory=lambda: np.empty(0))  # (M,) bytes, above 0
    #: Bytes of a further message from each task to each other task; these p (p - 1) messages are not listed,
    #: which makes a total exchange of thousands of tasks cheap.
    exchange: float = 0.0

    @cached_property
    def h(self) -> float:
        """Valiant's h: maximum number of bytes that a task sends or receives."""
        h = (self.tasks - 1) * self.exchange
        if len(self.volumes):
            h += max(float(np.bincount(ends, self.volumes).max()) for ends in (self.sources, self.targets))
        return h

    def between(self, nodes: ArrayLike) -> Messages:
        """Returns the messages between nodes for the (p,) node of each task, equal messages counted together.

        They are (source node, target node, bytes of each message, number of messages), by source, target and size.
        """
        at = np.asarray(nodes, np.int64)
        sources, targets, volumes = at[self.sources], at[self.targets], self.volumes
        counts = np.ones(len(volumes), np.int64)
        if self.exchange:
            used, tasks = np.unique(at, return_counts=True)
            pairs = np.indices((len(used), len(used))).reshape(2, -1)
            sources, targets = (
                np.append(ends, used[pair]) for ends, pair in zip((sources, targets), pairs, strict=True)
            )
            volumes = np.append(volumes, np.full(pairs.shape[1], self.exchange))
            counts = np.append(counts, tasks[pairs[0]] * tasks[pairs[1]])
        leaving = np.flatnonzero(sources != targets)
        order = leaving[np.lexsort((volumes[leaving], targets[leaving], sources[leaving]))]
        if not len(order):
            return []
        sources, targets, volumes = sources[order], targets[order], volumes[order]
        new = (np.diff(sources) != 0) | (np.diff(targets) != 0) | (np.diff(volumes) != 0)
        first = np.concatenate(([0], np.flatnonzero(new) + 1))
        kinds = (column[first].tolist() for column in (sources, targets, volumes))
        return list(zip(*kinds, np.add.reduceat(counts[order], first).tolist(), strict=True))


def make_pattern(spec: Any, tasks: int, volume: float = 0.0, *, where: str | None = None) -> Pattern:
    """Creates the pattern of a job.

    Args:
        spec: One of :data:`PATTERNS`, or the bytes from each task to each other task: p rows of p numbers, or p * p
            numbers in row-major order as in Batsim's ``parallel`` profiles. Messages from a task to itself and messages
            of 0 bytes are ignored.
        tasks: Number of tasks p, at least 1.
        volume: Bytes of a message of a named pattern (see the table above), ignored for a matrix.
        where: Place for error messages.

    Raises:
        WorkloadError: The name is unknown, the matrix is not p by p, or a number is negative or not finite.
    """
    if tasks < 1:
        raise WorkloadError(f"expected a pattern of at least 1 task, got {tasks}", where=where)
    if not isinstance(spec, str):
        return _custom(spec, tasks, where)
    if spec not in _MAKERS:
        raise WorkloadError(
            f"expected one of {', '.join(PATTERNS)} or a matrix of {tasks} x {tasks} numbers, got '{spec}'"
            f"{nearest(spec, PATTERNS)}",
            where=where,
        )
    if isinstance(volume, bool) or not isinstance(volume, int | float) or not 0 <= volume <= _LARGEST:
        raise WorkloadError(f"expected a finite volume of 0 bytes or more, got {volume!r}", where=where)
    return _MAKERS[spec](tasks, float(volume)) if volume and tasks > 1 else Pattern(tasks)


def grid(tasks: int) -> tuple[int, int]:
    """Returns rows and columns of the most square grid of `tasks`, as ``MPI_Dims_create`` does; rows >= columns."""
    columns = next(side for side in range(math.isqrt(tasks), 0, -1) if tasks % side == 0)
    return tasks // columns, columns


def _custom(spec: Any, tasks: int, where: str | None) -> Pattern:
    def refuse(got: str) -> WorkloadError:
        return WorkloadError(
            f"expected one of {', '.join(PATTERNS)}, {tasks} rows of {tasks} numbers, or {tasks * tasks} numbers "
            f"for a job of {tasks} tasks, got {got}",
            where=where,
        )

    try:
        given = np.asarray(spec)
    except ValueError:
        raise refuse("rows of different lengths") from None
    if given.dtype.kind not in "iuf" or given.ndim not in (1, 2):
        raise refuse(repr(spec)[:60])
    if given.shape not in ((tasks, tasks), (tasks * tasks,)):
        raise refuse(" x ".join(map(str, given.shape)) + " numbers")
    matrix = given.reshape(tasks, tasks).astype(np.float64)
    wrong = np.argwhere(~(np.isfinite(matrix) & (matrix >= 0)))
    if len(wrong):
        source, target = wrong[0].tolist()
        raise WorkloadError(
            f"expected finite numbers of 0 bytes or more, got {matrix[source, target]:g} "
            f"from task {source} to task {target}",
            where=where,
        )
    np.fill_diagonal(matrix, 0.0)
    sources, targets = np.nonzero(matrix)
    return Pattern(tasks, sources, targets, matrix[sources, targets])


def _of_pairs(tasks: int, volume: float, sources: ArrayLike, targets: ArrayLike) -> Pattern:
    """Returns a pattern with one message per pair of source and target."""
    sources, targets = np.asarray(sources, np.int64), np.asarray(targets, np.int64)
    return Pattern(tasks, sources, targets, np.full(len(sources), volume))


def _ring(tasks: int, volume: float) -> Pattern:
    each = np.arange(tasks)
    return _of_pairs(tasks, volume, each, np.roll(each, -1))


def _halo_2d(tasks: int, volume: float) -> Pattern:
    place = np.arange(tasks).reshape(grid(tasks))
    upper, lower = place[:-1].ravel(), place[1:].ravel()
    left, right = place[:, :-1].ravel(), place[:, 1:].ravel()
    return _of_pairs(
        tasks, volume, np.concatenate([upper, lower, left, right]), np.concatenate([lower, upper, right, left])
    )


def _master_worker(tasks: int, volume: float) -> Pattern:
    workers = np.arange(1, tasks)
    master = np.zeros_like(workers)
    return _of_pairs(tasks, volume, np.append(master, workers), np.append(workers, master))


_MAKERS: dict[str, Callable[[int, float], Pattern]] = {
    "none": lambda tasks, volume: Pattern(tasks),
    "h_relation": lambda tasks, volume: Pattern(tasks, exchange=volume / (tasks - 1)),
    "all_to_all": lambda tasks, volume: Pattern(tasks, exchange=volume),
    "ring": _ring,
    "halo_2d": _halo_2d,
    "master_worker": _master_worker,
}
#: Names of patterns.
PATTERNS = tuple(_MAKERS)
