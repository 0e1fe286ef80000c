"""Failure models: node outages and checkpoints. The classes are selected in ``conf/failures``.

Each node has its own random stream. Outages depend only on the seed and the platform, not on the scheduler.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hdsim.errors import ConfigError, nearest, not_one_of
from hdsim.util.inputs import parse_json, read_text
from hdsim.util.intervals import IntervalSets
from hdsim.util.rules import NULL, POSITIVE, duration, integers_from, require
from hdsim.util.text import number_in, shown
from hdsim.util.units import LONGEST_TIME

if TYPE_CHECKING:
    from hdsim.platform.model import Platform

#: Recovery of a job whose node fails.
RECOVERIES = ("resubmit", "checkpoint")
#: Batsim's external events at the begin and at the end of an outage.
_EVENTS = ("event_machine_unavailable", "event_machine_available")
_HEADER = ["node", "down", "up"]

#: Begin and end of an outage in seconds; the end is infinite for a node that is never repaired.
Outage = tuple[float, float]


@dataclass(frozen=True)
class Outages:
    """Outages of nodes, in order of their begin.

    Attributes:
        node: (O,) node.
        down: (O,) time of the failure, seconds.
        up: (O,) time of the repair, seconds; infinite for never.
    """

    node: NDArray[np.int64]
    down: NDArray[np.float64]
    up: NDArray[np.float64]

    @classmethod
    def of(cls, rows: Sequence[tuple[int, float, float]]) -> Outages:
        """Creates outages from rows (node, down, up)."""
        node, down, up = zip(*rows, strict=True) if rows else ((), (), ())
        return cls(np.array(node, np.int64), np.array(down, np.float64), np.array(up, np.float64))

    def __len__(self) -> int:
        return len(self.node)

    def begun_before(self, time: float) -> Outages:
        """Returns the outages that begin before a time in seconds."""
        begun = self.down < time
        return Outages(self.node[begun], self.down[begun], self.up[begun])

    def seconds(self, nodes: int, end: float) -> NDArray[np.float64]:
        """Returns (N,) downtime of each node before a time, in seconds."""
        seconds = np.minimum(self.up, end) - np.minimum(self.down, end)
        return np.bincount(self.node, seconds, nodes).astype(np.float64)


def checkpointed_work(work: float, interval: float) -> float:
    """Returns the work saved by the last checkpoint, with one checkpoint after each `interval` of work."""
    # The tolerance makes a checkpoint at the very end count in spite of rounding.
    return math.floor(work / interval + 1e-9) * interval if interval < math.inf else 0.0


class Failures(ABC):
    """Base class of failure models: the recovery of jobs.

    Attributes:
        platform: The platform.
        checkpoint_interval: Run time between two checkpoints of a job without a program, reference seconds; infinite
            if only jobs with programs have checkpoints, None if no job has.
        max_restarts: Maximum number of restarts of a job, may be infinite.

    Args:
        platform: The platform of the replay. The settings of the model's file in ``conf/failures`` are keyword
            arguments.
        recovery: ``resubmit``: an interrupted job runs again from its start; ``checkpoint``: from its last checkpoint.
        checkpoint_interval: Run time between two checkpoints of a job, reference seconds or with a unit (``1h``);
            None for no checkpoints. Jobs with programs have a checkpoint after every superstep instead.
        max_restarts: Number of restarts after which the next failure of a node makes a job fail permanently. None for
            no limit; then the replay of a job that is longer than all periods between failures does not end.

    Raises:
        ConfigError: A setting is not allowed.
    """

    def __init__(
        self,
        platform: Platform,
        recovery: str = "resubmit",
        checkpoint_interval: float | str | None = None,
        max_restarts: int | None = 100,
    ) -> None:
        if recovery not in RECOVERIES:
            raise ConfigError(
                not_one_of(recovery, RECOVERIES),
                where="failures.recovery",
            )
        if checkpoint_interval is not None and recovery != "checkpoint":
            raise ConfigError("expected null unless failures.recovery=checkpoint", where="failures.checkpoint_interval")
        require("failures", {"max_restarts": integers_from(0) | NULL}, {"max_restarts": max_restarts})
        self.platform = platform
        self.max_restarts = math.inf if max_restarts is None else max_restarts
        self.checkpoint_interval: float | None = None
        if checkpoint_interval is not None:
            self.checkpoint_interval = duration(checkpoint_interval, "failures.checkpoint_interval")
        elif recovery == "checkpoint":
            self.checkpoint_interval = math.inf

    @abstractmethod
    def outages(self, rng: np.random.Generator) -> Sequence[Iterator[Outage]]:
        """Returns the outages of each node, ascending and disjoint; an iterator may be infinite.

        A simulation with iterators that :func:`copy.deepcopy` cannot copy, such as generators, has no exact fork.

        Args:
            rng: Source of all random numbers.
        """


class External(Failures):
    """No outages but those that a user's process makes with ``Simulation.fail``, such as a maintenance window."""

    def outages(self, rng: np.random.Generator) -> Sequence[Iterator[Outage]]:
        return ()


class Weibull(Failures):
    """Independent nodes with Weibull times between failures and exponential repair times; all nodes are new at time 0.

    Schroeder and Gibson (DSN 2006) found shapes of 0.7 to 0.8 for the time between failures of a node.

    Args:
        platform: The platform.
        mtbf: Mean time from a repair to the next failure of a node, seconds or with a unit (``1000h``).
        mttr: Mean time to repair, seconds or with a unit; 0 interrupts jobs without downtime.
        shape: Weibull shape: below 1 failures are bursty, 1 is the exponential distribution, above 1 nodes wear out.
        recovery: See :class:`Failures`.
        checkpoint_interval: See :class:`Failures`.
        max_restarts: See :class:`Failures`.

    Raises:
        ConfigError: A setting is not allowed.
    """

    def __init__(
        self,
        platform: Platform,
        mtbf: float | str,
        mttr: float | str,
        shape: float = 0.7,
        recovery: str = "resubmit",
        checkpoint_interval: float | str | None = None,
        max_restarts: int | None = 100,
    ) -> None:
        super().__init__(platform, recovery, checkpoint_interval, max_restarts)
        require("failures", {"shape": POSITIVE}, {"shape": shape})
        self._mttr = duration(mttr, "failures.mttr", zero=True)
        self._shape = float(shape)
        self._scale = duration(mtbf, "failures.mtbf") / math.gamma(1 + 1 / shape)

    def outages(self, rng: np.random.Generator) -> Sequence[Iterator[Outage]]:
        return [_Draws(stream, self._scale, self._shape, self._mttr) for stream in rng.spawn(self.platform.n_nodes)]


class _Draws:
    """Outages of a node with Weibull times between failures and exponential repair times; it can be copied.

    Args:
        rng: Source of the draws.
        scale: Weibull scale, seconds.
        shape: Weibull shape.
        mttr: Mean time to repair, seconds.
    """

    def __init__(self, rng: np.random.Generator, scale: float, shape: float, mttr: float) -> None:
        self._rng, self._scale, self._shape, self._mttr = rng, scale, shape, mttr
        self._up = 0.0

    def __iter__(self) -> Iterator[Outage]:
        return self

    def __next__(self) -> Outage:
        down = self._up + self._scale * self._rng.weibull(self._shape)
        self._up = down + self._mttr * self._rng.standard_exponential()
        return down, self._up


class Exponential(Weibull):
    """Independent nodes with exponential times between failures and exponential repair times; all are up at time 0.

    Args:
        platform: The platform.
        mtbf: Mean time from a repair to the next failure of a node, seconds or with a unit (``1000h``).
        mttr: Mean time to repair, seconds or with a unit.
        recovery: See :class:`Failures`.
        checkpoint_interval: See :class:`Failures`.
        max_restarts: See :class:`Failures`.

    Raises:
        ConfigError: A setting is not allowed.
    """

    def __init__(
        self,
        platform: Platform,
        mtbf: float | str,
        mttr: float | str,
        recovery: str = "resubmit",
        checkpoint_interval: float | str | None = None,
        max_restarts: int | None = 100,
    ) -> None:
        super().__init__(platform, mtbf, mttr, 1.0, recovery, checkpoint_interval, max_restarts)


class Trace(Failures):
    """Outages from a file, plain or gzip.

    The file is CSV with the header ``node,down,up`` (node index, seconds since the first submission, `up` empty for a
    node that is never repaired), or has one external event of Batsim per line,
    ``{"timestamp": 10, "type": "event_machine_unavailable", "resources": "0-3 8"}`` or ``event_machine_available``, in
    which resources are nodes.

    Args:
        platform: The platform.
        file: The file.
        recovery: See :class:`Failures`.
        checkpoint_interval: See :class:`Failures`.
        max_restarts: See :class:`Failures`.

    Raises:
        ConfigError: The file does not exist or has faults; all of them are listed.
    """

    def __init__(
        self,
        platform: Platform,
        file: str | Path,
        recovery: str = "resubmit",
        checkpoint_interval: float | str | None = None,
        max_restarts: int | None = 100,
    ) -> None:
        super().__init__(platform, recovery, checkpoint_interval, max_restarts)
        if not isinstance(file, str | Path) or not Path(file).is_file():
            raise ConfigError(f"expected a file of outages, found no file '{file}'", where="failures.file")
        self._by_node = _read(Path(file), platform.n_nodes)

    def outages(self, rng: np.random.Generator) -> Sequence[Iterator[Outage]]:
        """See :meth:`Failures.outages`; nothing is drawn."""
        return [iter(outages) for outages in self._by_node]


# (line, node, time, whether it goes down)
_Change = tuple[int, int, float, bool]


def _read(path: Path, nodes: int) -> list[list[Outage]]:
    """Returns the outages of each node, ascending.

    Raises:
        ConfigError: The file has faults; all of them are listed.
    """
    text = read_text(path, ConfigError, "file of outages")
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1)]
    lines = [(number, text) for number, text in lines if text and not text.startswith("#")]
    faults: list[ConfigError] = []
    read = _events if lines and lines[0][1].startswith("{") else _rows
    by_node: list[list[_Change]] = [[] for _ in range(nodes)]
    for change in read(path, lines, nodes, faults):
        by_node[change[1]].append(change)
    outages = [list(_paired(path, changes, faults)) for changes in by_node]
    if faults:
        raise ConfigError.many(sorted(faults, key=lambda fault: int((fault.where or "").rpartition(":")[2])))
    return outages


def _rows(path: Path, lines: list[tuple[int, str]], nodes: int, faults: list[ConfigError]) -> Iterator[_Change]:
    """Yields the changes in the rows of a CSV file."""
    number, header = lines[0] if lines else (1, "")
    if [name.strip() for name in header.split(",")] != _HEADER:
        faults.append(
            ConfigError(f"expected the header {','.join(_HEADER)} or events, got '{header}'", where=f"{path}:{number}")
        )
        return
    rows: list[tuple[float, float, int, int]] = []
    for number, text in lines[1:]:
        where = f"{path}:{number}"
        row = text.split(",")
        if len(row) != len(_HEADER):
            faults.append(ConfigError(f"expected {','.join(_HEADER)}, got '{text}'", where=where))
            continue
        try:
            node, down, up = (number_in(field) if field.strip() else math.inf for field in row)
            if not node.is_integer():
                raise ValueError(f"node {row[0]!r}")
        except ValueError as error:
            faults.append(ConfigError(f"expected numbers: {error}", where=where))
            continue
        if not (0 <= down <= up and down <= LONGEST_TIME and (up <= LONGEST_TIME or up == math.inf)):
            message = f"expected 0 <= down <= up <= {LONGEST_TIME:g}, got down {down:g}, up {up:g}"
            faults.append(ConfigError(message, where=where))
        elif _is_node(int(node), nodes, where, faults):
            rows.append((down, up, int(node), number))
    # A repair precedes a failure of the same instant.
    for down, up, node, number in sorted(rows):
        yield number, node, down, True
        if up < math.inf:
            yield number, node, up, False


def _events(path: Path, lines: list[tuple[int, str]], nodes: int, faults: list[ConfigError]) -> Iterator[_Change]:
    """Yields the changes in Batsim's external events."""
    for number, text in lines:
        where = f"{path}:{number}"
        try:
            event = parse_json(text, path, ConfigError, line=number)
            kind, time, resources = (event[key] for key in ("type", "timestamp", "resources"))
        except (ConfigError, TypeError, KeyError):
            message = f"expected a JSON object with timestamp, type and resources, got {shown(text.encode())}"
            faults.append(ConfigError(message, where=where))
            continue
        if kind not in _EVENTS:
            message = f"type: expected {' or '.join(_EVENTS)}, got {shown(kind)}{nearest(str(kind), _EVENTS)}"
            faults.append(ConfigError(message, where=where))
            continue
        if isinstance(time, bool) or not isinstance(time, int | float) or not 0 <= time <= LONGEST_TIME:
            faults.append(
                ConfigError(f"timestamp: expected seconds from 0 to {LONGEST_TIME:g}, got {shown(time)}", where=where)
            )
            continue
        try:
            members = IntervalSets.parse([str(resources)], nodes).ids.tolist()
        except ValueError as error:
            faults.append(ConfigError(f"resources: {error}", where=where))
            continue
        for node in members:
            if _is_node(node, nodes, where, faults):
                yield number, node, float(time), kind == _EVENTS[0]


def _is_node(node: int, nodes: int, where: str, faults: list[ConfigError]) -> bool:
    if not 0 <= node < nodes:
        faults.append(ConfigError(f"expected nodes 0 to {nodes - 1}, got {node}", where=where))
        return False
    return True


def _paired(path: Path, changes: Iterable[_Change], faults: list[ConfigError]) -> Iterator[Outage]:
    """Yields the outages of a node; changes of one instant are in file order."""
    down: float | None = None
    for line, node, time, goes_down in sorted(changes, key=lambda change: change[2]):
        if goes_down == (down is not None):
            state = f"down since {down:g} s" if goes_down else "up"
            faults.append(ConfigError(f"node {node} is {state} already at {time:g} s", where=f"{path}:{line}"))
        elif down is None:
            down = time
        else:
            yield down, time
            down = None
    if down is not None:
        yield down, math.inf
