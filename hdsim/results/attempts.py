"""What ran where and when: a row for every start of a job. Without failures that is one a job."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hdsim.util.arrays import members

if TYPE_CHECKING:
    from hdsim.platform.model import Platform

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Attempts:
    """Starts of jobs.

    Attributes:
        job: (A,) job.
        start: (A,) s.
        end: (A,) s; for a job that still runs the end of the period accounted for.
        sizes: (A,) core ids, those of GPUs included.
        cores: (sum of sizes,) core ids of each attempt in turn, ascending within an attempt.
        lost: (A,) s of running that a failure has undone.
        requeued: (A,) whether the job went back to the queue because of a failure.
    """

    job: NDArray[np.int64]
    start: Floats
    end: Floats
    sizes: NDArray[np.int64]
    cores: NDArray[np.int32]
    lost: Floats
    requeued: NDArray[np.bool_]

    @classmethod
    def last(
        cls,
        job: NDArray[np.int64],
        start: Floats,
        end: Floats,
        sizes: NDArray[np.int64],
        cores: NDArray[np.int32],
        failed_permanently: NDArray[np.int64],
    ) -> Attempts:
        """Makes the last starts of jobs; those of jobs that failed permanently are lost."""
        lost = np.where(np.isin(job, failed_permanently), end - start, 0.0)
        return cls(job, start, end, sizes, cores, lost, np.zeros(len(job), bool))

    @classmethod
    def none(cls) -> Attempts:
        """Makes an empty table."""
        whole, real = np.zeros(0, np.int64), np.zeros(0)
        return cls(whole, real, real, whole, whole.astype(np.int32), real, np.zeros(0, bool))

    def __len__(self) -> int:
        return len(self.job)

    def joined(self, others: Attempts) -> Attempts:
        """These and others in order of their starts."""
        if not len(others):
            return self
        both = Attempts(*(np.concatenate([getattr(self, key.name), getattr(others, key.name)]) for key in fields(self)))
        return both.rows(np.argsort(both.start, kind="stable"))

    def rows(self, rows: NDArray[np.int64]) -> Attempts:
        """Some rows, in the given order."""
        if not len(rows):
            return Attempts.none()
        cores = self.cores[members(np.append(0, np.cumsum(self.sizes)), rows)]
        job, start, end, sizes = self.job[rows], self.start[rows], self.end[rows], self.sizes[rows]
        return Attempts(job, start, end, sizes, cores, self.lost[rows], self.requeued[rows])

    def gpus(self, platform: Platform) -> NDArray[np.int64]:
        """(A,) GPUs of each attempt."""
        before = np.append(0, np.cumsum(platform.is_gpu[platform.core_processor[self.cores]]))
        ends = np.cumsum(self.sizes)
        return before[ends] - before[ends - self.sizes]

    def cpu_cores(self, platform: Platform) -> NDArray[np.int64]:
        """(A,) cores of each attempt that are no GPUs."""
        return self.sizes - self.gpus(platform) if platform.n_gpus else self.sizes

    @cached_property
    def core_seconds(self) -> Floats:
        """(A,) s x cores for which each attempt held them."""
        return self.sizes * (self.end - self.start)

    @cached_property
    def lost_core_seconds(self) -> Floats:
        """(A,) s x cores that a failure has undone."""
        return self.sizes * self.lost

    def restarts(self, jobs: int) -> NDArray[np.int64]:
        """(jobs,) how often each job was started again."""
        return np.maximum(np.bincount(self.job, minlength=jobs) - 1, 0)

    def lost_by_job(self, jobs: int) -> Floats:
        """(jobs,) s x cores of each job that failures have undone."""
        return np.bincount(self.job, self.lost_core_seconds, jobs).astype(np.float64)
