"""Allocation segments: the cores that each job held over time, one row for every stretch of time with the same cores.

A job that is started once and never resized has one segment. A resize, a change of speed
or frequency and a failure end a segment.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from procset import ProcSet

from hdsim.errors import ConfigError
from hdsim.platform import power
from hdsim.util.arrays import Floats, Ints
from hdsim.util.intervals import IntervalSets

if TYPE_CHECKING:
    from hdsim.platform.model import Platform


def powered_until(finish_time: Floats, end_time: float, ran: Segments) -> float:
    """Returns the end of the period whose energy counts: the last finish, if any, or the interruption of a replay.

    Attempts that failures cut short may go beyond the last finish (s, NaN for a job that never ended).
    """
    if np.isnan(finish_time).all():
        return end_time
    last = float(np.nanmax(finish_time))
    return last if last < end_time == float(ran.end[ran.requeued].max(initial=0.0)) else end_time


@dataclass(frozen=True)
class Segments:
    """Allocations of jobs.

    Attributes:
        platform: The platform.
        job: (A,) job.
        attempt: (A,) earlier starts of the job that failures have cut short.
        begin: (A,) s.
        end: (A,) s; for a job that still runs the end of the period accounted for.
        held: Core ids of each segment, those of GPUs included; none where cores have no ids.
        speed: (A,) share of their peak speed at which the cores compute.
        lost: (A,) s of running that a failure has undone.
        requeued: (A,) whether the job went back to the queue at the end because of a failure.
        amounts: (A,) :class:`hdsim.cluster.stores.quantities.NodeAmounts` of each segment where cores have no ids, None
            where they have.
        ghz: (A,) GHz of the cores, NaN for the nominal frequency; None if all are at that.
    """

    platform: Platform
    job: Ints
    attempt: Ints
    begin: Floats
    end: Floats
    held: IntervalSets
    speed: Floats
    lost: Floats
    requeued: NDArray[np.bool_]
    amounts: NDArray[np.object_] | None = None
    ghz: Floats | None = None

    @classmethod
    def none(cls, platform: Platform) -> Segments:
        """Makes an empty table."""
        none = np.zeros(0)
        return cls.once(platform, np.zeros(0, np.int64), none, none, IntervalSets.empty())

    @classmethod
    def once(
        cls,
        platform: Platform,
        job: Ints,
        begin: Floats,
        end: Floats,
        held: IntervalSets,
        amounts: NDArray[np.object_] | None = None,
    ) -> Segments:
        """Makes the table of jobs that were started once and never resized; see the attributes for the arguments."""
        rows = len(job)
        first, nothing, never = np.zeros(rows, np.int64), np.zeros(rows), np.zeros(rows, bool)
        return cls(platform, job, first, begin, end, held, np.ones(rows), nothing, never, amounts)

    def __len__(self) -> int:
        return len(self.job)

    def joined(self, others: Segments) -> Segments:
        """These and others in order of their begins."""
        if not len(others):
            return self
        columns: list[Any] = []
        for field in fields(self)[1:]:
            both: tuple[Any, ...] = (getattr(self, field.name), getattr(others, field.name))
            if field.name == "ghz" and (both[0] is None) != (both[1] is None):
                both = tuple(np.full(len(one), np.nan) if one.ghz is None else one.ghz for one in (self, others))
            if isinstance(both[0], IntervalSets):
                columns.append(IntervalSets.concatenate(both))
            else:
                columns.append(None if both[0] is None else np.concatenate(both))
        joined = Segments(self.platform, *columns)
        return joined.rows(np.argsort(joined.begin, kind="stable"))

    def rows(self, rows: Ints) -> Segments:
        """Some rows, in the given order."""
        if not len(rows):
            return Segments.none(self.platform)
        columns: list[Any] = [getattr(self, field.name) for field in fields(self)[1:]]
        chosen: list[Any] = [None if column is None else column[rows] for column in columns]
        return Segments(self.platform, *chosen)

    def until(self, end: float) -> Segments:
        """The same up to a time in seconds; attempts that failures cut short may go beyond the last finish."""
        if not (self.end > end).any():
            return self
        kept = self.rows(np.flatnonzero(self.begin < end))
        return replace(kept, end=np.minimum(kept.end, end))

    def with_losses_spread(self) -> Segments:
        """The same, where losses longer than their segments reach back over earlier segments of the same attempt."""
        lost, seconds = self.lost.copy(), self.end - self.begin
        beyond: dict[tuple[int, int], float] = {}
        attempts = list(zip(self.job.tolist(), self.attempt.tolist(), strict=True))
        for row in reversed(range(len(self))):
            undone = lost[row] + beyond.get(attempts[row], 0.0)
            lost[row] = min(undone, seconds[row])
            beyond[attempts[row]] = undone - lost[row]
        return replace(self, lost=lost)

    @property
    def sizes(self) -> Ints:
        """(A,) core ids of each segment, those of GPUs included."""
        return self.held.sizes

    @cached_property
    def cores(self) -> NDArray[np.int32]:
        """(sum of sizes,) core ids of each segment in turn, ascending within a segment."""
        return self.held.ids

    @cached_property
    def attempts(self) -> Segments:
        """One row for each start of a job, with all cores that it has held since, at the lowest speed and frequency.

        Without ids of cores, a row has the largest allocation of the attempt.
        """
        starts = self.attempt.max(initial=0) + 1
        key = self.job * starts + self.attempt
        if (np.bincount(key).max(initial=0) <= 1) if starts == 1 else len(np.unique(key)) == len(key):
            return self
        _, first, group = np.unique(key, return_index=True, return_inverse=True)
        group = np.argsort(np.argsort(first))[group]
        first = np.sort(first)
        n_cores = self.platform.n_cores
        held = np.unique(group.repeat(self.sizes) * n_cores + self.cores)
        end, speed = self.end[first], self.speed[first]
        np.maximum.at(end, group, self.end)
        np.minimum.at(speed, group, self.speed)
        amounts = None
        if self.amounts is not None:
            most_first = np.lexsort((-self.cpu_cores, group))
            amounts = self.amounts[most_first[np.unique(group[most_first], return_index=True)[1]]]
        return Segments(
            self.platform,
            self.job[first],
            self.attempt[first],
            self.begin[first],
            end,
            IntervalSets.of((held % n_cores).astype(np.int32), np.bincount(held // n_cores, minlength=len(first))),
            speed,
            np.bincount(group, self.lost).astype(np.float64),
            np.bincount(group, self.requeued) > 0,
            amounts,
            self._lowest_ghz(first, group),
        )

    def _lowest_ghz(self, first: Ints, group: Ints) -> Floats | None:
        """Returns the lowest frequency of each group of rows, whose first rows are given; see `ghz`."""
        table = self.platform.frequencies
        if self.ghz is None or table is None:
            return None
        ghz = np.where(np.isnan(self.ghz), table.nominal, self.ghz)
        lowest = ghz[first]
        np.minimum.at(lowest, group, ghz)
        return np.where(lowest == table.nominal, np.nan, lowest)

    @cached_property
    def last_attempts(self) -> Segments:
        """The rows of `attempts` that are the last of their jobs."""
        attempts = self.attempts
        if not attempts.attempt.any():
            return attempts
        last = np.zeros(attempts.job.max() + 1, np.int64)
        np.maximum.at(last, attempts.job, attempts.attempt)
        return attempts.rows(np.flatnonzero(attempts.attempt == last[attempts.job]))

    @cached_property
    def gpus(self) -> Ints:
        """(A,) GPUs of each segment."""
        if self.amounts is not None:
            return np.array([amounts.gpus.sum() for amounts in self.amounts], np.int64)
        before = np.append(0, np.cumsum(self.platform.is_gpu[self.platform.core_processor]))
        return self.held.sums(before[self.held.last + 1] - before[self.held.first])

    @cached_property
    def cpu_cores(self) -> Ints | Floats:
        """(A,) cores of each segment that are no GPUs; CPU in cores where cores have no ids."""
        if self.amounts is not None:
            return np.array([amounts.cpu.sum() for amounts in self.amounts], np.float64)
        return self.sizes - self.gpus if self.platform.n_gpus else self.sizes

    @property
    def resources(self) -> Ints | Floats:
        """(A,) cores and GPUs of each segment."""
        return self.sizes if self.amounts is None else self.cpu_cores + self.gpus

    def allocations(self, jobs: int) -> list[ProcSet]:
        """(jobs,) cores and GPUs that each job has held since its last start, empty for a job that has not started.

        Raises:
            ConfigError: Cores have no ids.
        """
        if self.amounts is not None:
            raise ConfigError("allocations: cores have no ids; jobs['allocated_resources'] has the CPU of each node")
        last = self.last_attempts
        found = [ProcSet() for _ in range(jobs)]
        for job, held in zip(last.job.tolist(), last.held.procsets(), strict=True):
            found[job] = held
        return found

    @cached_property
    def texts(self) -> list[str]:
        """(A,) holdings as text: the interval set of the core ids, or ``NODE:CPU[:GPUS]`` of each node."""
        if self.amounts is None:
            return self.held.texts
        names = self.platform.node_names
        return [
            " ".join(
                f"{names[node]}:{cpu:g}:{gpus}" if gpus else f"{names[node]}:{cpu:g}"
                for node, cpu, gpus in zip(held.nodes.tolist(), held.cpu.tolist(), held.gpus.tolist(), strict=True)
            )
            for held in self.amounts
        ]

    @cached_property
    def usage(self) -> power.Usage:
        """Cores of every processor that each segment holds."""
        return power.usage(self.platform, self.held)

    @cached_property
    def core_watts(self) -> Floats:
        """(R,) W that each core of each row of `usage` draws more than at the nominal frequency."""
        used, table = self.usage, self.platform.frequencies
        if self.ghz is None or table is None:
            return np.zeros(len(used.cores))
        ghz = np.where(np.isnan(self.ghz), table.nominal, self.ghz)
        place = np.searchsorted(table.ghz, ghz)[used.segment]
        return np.asarray(table.more[place, self.platform.processor_type[used.processor]])

    @cached_property
    def more_watts(self) -> Floats:
        """(A,) W that the cores of each segment draw more than at the nominal frequency."""
        if self.ghz is None:
            return np.zeros(len(self))
        used = self.usage
        return np.bincount(used.segment, used.cores * self.core_watts, len(self)).astype(np.float64)

    @cached_property
    def core_seconds(self) -> Floats:
        """(A,) s x cores for which each segment held them."""
        return self.resources * (self.end - self.begin)

    @cached_property
    def lost_core_seconds(self) -> Floats:
        """(A,) s x cores that a failure has undone."""
        return self.resources * self.lost

    def restarts(self, jobs: int) -> Ints:
        """(jobs,) restarts of each job."""
        return np.maximum(np.bincount(self.attempts.job, minlength=jobs) - 1, 0)

    def lost_by_job(self, jobs: int) -> Floats:
        """(jobs,) s x cores of each job that failures have undone."""
        return np.bincount(self.job, self.lost_core_seconds, jobs).astype(np.float64)
