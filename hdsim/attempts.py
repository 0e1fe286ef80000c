"""What ran where and when: a row for every start of a job. Without failures that is one a job."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hdsim.cores import members

if TYPE_CHECKING:
    from hdsim.platform import Platform

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
        lost: (A,) s of running that a failure has undone; NaN for an attempt that no failure has cut short.
    """

    job: NDArray[np.int64]
    start: Floats
    end: Floats
    sizes: NDArray[np.int64]
    cores: NDArray[np.int32]
    lost: Floats

    @classmethod
    def lasting(
        cls, job: NDArray[np.int64], start: Floats, end: Floats, sizes: NDArray[np.int64], cores: NDArray[np.int32]
    ) -> Attempts:
        """Makes attempts that no failure has cut short."""
        return cls(job, start, end, sizes, cores, np.full(len(job), np.nan))

    @classmethod
    def none(cls) -> Attempts:
        """Makes an empty table."""
        whole, real = np.zeros(0, np.int64), np.zeros(0)
        return cls(whole, real, real, whole, whole.astype(np.int32), real)

    def __len__(self) -> int:
        return len(self.job)

    def joined(self, others: Attempts) -> Attempts:
        """These and others in order of their starts."""
        if not len(others):
            return self
        job, start, end, sizes, cores, lost = (
            np.concatenate([getattr(self, name), getattr(others, name)])
            for name in ("job", "start", "end", "sizes", "cores", "lost")
        )
        order = np.argsort(start, kind="stable")
        first = np.append(0, np.cumsum(sizes))
        return Attempts(job[order], start[order], end[order], sizes[order], cores[members(first, order)], lost[order])

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
        return np.where(np.isnan(self.lost), 0.0, self.sizes * self.lost)

    def restarts(self, jobs: int) -> NDArray[np.int64]:
        """(jobs,) how often each job was started again."""
        return np.maximum(np.bincount(self.job, minlength=jobs) - 1, 0)

    def lost_by_job(self, jobs: int) -> Floats:
        """(jobs,) s x cores of each job that failures have undone."""
        return np.bincount(self.job, self.lost_core_seconds, jobs).astype(np.float64)
