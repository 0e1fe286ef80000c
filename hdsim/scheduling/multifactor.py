"""Slurm's multifactor priority with fair share between users, whose usage decays."""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hdsim.util.copies import with_own_containers
from hdsim.util.rules import FLAG, NOT_NEGATIVE, NULL, POSITIVE, Rule, require

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster
    from hdsim.util.arrays import Floats, Ints
    from hdsim.workload.model import Workload

_ACCOUNTS = ("user", "group")


def _are_priorities(value: Any) -> bool:
    return isinstance(value, Mapping) and all(map(NOT_NEGATIVE.accepts, value.values()))


#: Settings of :class:`Multifactor`.
SETTINGS = {
    **dict.fromkeys(("weight_age", "weight_fairshare", "weight_job_size", "weight_partition"), NOT_NEGATIVE),
    "max_age": POSITIVE,
    "decay_half_life": NOT_NEGATIVE,
    "favor_small": FLAG,
    "account": Rule(" or ".join(_ACCOUNTS), lambda value: value in _ACCOUNTS),
    "partitions": Rule("numbers of at least 0 by partition, such as {1: 10, 2: 5}", _are_priorities) | NULL,
}


class DecayedUsage:
    """Core-seconds that each account has used, which decay exponentially.

    With c cores in use for t seconds, usage U becomes U 2^(-t / H) + c (1 - 2^(-t / H)) H / ln 2, the limit of Slurm's
    decay for short periods (``PriorityCalcPeriod``); with a half-life H of 0 it does not decay.

    Args:
        cluster: The cluster; the jobs that have started so far count.
        account: Column of the workload that names the accounts.
        half_life: Half-life in seconds, 0 for no decay.
    """

    __deepcopy__ = with_own_containers

    def __init__(self, cluster: Cluster, account: str, half_life: float) -> None:
        self._account, self._half_life = account, half_life
        self._place: dict[int, int] = {}
        self._used, self._cores = np.zeros(16), np.zeros(16)
        # Account of each running job.
        self._running: dict[int, int] = {}
        self._time = cluster.now
        for job in cluster.queue:
            self._place_of(cluster, job)
        for job in cluster.placements:
            begin, end = cluster.starting_time[job], cluster.finish_time[job]
            if begin <= cluster.now:
                end = cluster.now if math.isnan(end) else end
                grown = self._grown(end - begin) * self._left(cluster.now - end)
                self._used[self._place_of(cluster, job)] += cluster.size[job] * grown
        self._open(cluster, len(cluster.running))

    def note(self, cluster: Cluster) -> None:
        """Takes note of the events of an instant; to be called at each one."""
        for job in cluster.submitted:
            self._place_of(cluster, job)
        passed, known = cluster.now - self._time, self._running
        ended = [job for job in cluster.ended if job in known]
        # Jobs have started at the last instant only.
        self._open(cluster, len(cluster.running) - len(known) + len(ended))
        self._used = self._used * self._left(passed) + self._cores * self._grown(passed)
        self._time = cluster.now
        for job in cluster.ended:
            if job in known:
                self._cores[known.pop(job)] -= cluster.size[job]
            elif cluster.starting_time[job] <= cluster.now:
                seconds = cluster.now - cluster.starting_time[job]
                self._used[self._place_of(cluster, job)] += cluster.size[job] * self._grown(seconds)

    def shares(self, cluster: Cluster, jobs: Ints) -> tuple[Floats, int]:
        """Returns the (Q,) parts of all usage that the accounts of jobs have used, and the number of accounts."""
        places = [self._place_of(cluster, job) for job in jobs.tolist()]
        passed = cluster.now - self._time
        used = self._used * self._left(passed) + self._cores * self._grown(passed)
        total = float(used.sum())
        return (used[places] / total if total > 0 else np.zeros(len(places))), len(self._place)

    def _open(self, cluster: Cluster, missing: int) -> None:
        """Adds the cores of that many running jobs, which are the last to have started."""
        for job in reversed(cluster.running):
            if missing <= 0:
                break
            if job not in self._running and cluster.starting_time[job] <= cluster.now:
                self._running[job] = place = self._place_of(cluster, job)
                self._cores[place] += cluster.size[job]
                missing -= 1

    def _place_of(self, cluster: Cluster, job: int) -> int:
        account = int(getattr(cluster.workload, self._account)[job])
        place = self._place.setdefault(account, len(self._place))
        if place == len(self._used):
            self._used, self._cores = (np.append(each, np.zeros(place)) for each in (self._used, self._cores))
        return place

    def _left(self, seconds: float) -> float:
        return 2.0 ** (-seconds / self._half_life) if self._half_life else 1.0

    def _grown(self, seconds: float) -> float:
        half_life = self._half_life
        return -math.expm1(-seconds * math.log(2) / half_life) * half_life / math.log(2) if half_life else seconds


class Multifactor:
    """Slurm's priority/multifactor: age, fair share, job size and partition, each factor between 0 and 1.

    The priority is the sum of weight times factor (Slurm, Multifactor Priority Plugin,
    https://slurm.schedmd.com/priority_multifactor.html). Age: time waited over `max_age`, at most 1. Fair share:
    2^(-U / S), where U is the part of all decayed usage that belongs to the job's account and S is the share of that
    account, one over the number of accounts seen so far (the classic algorithm, PriorityFlags=NO_FAIR_TREE, with equal
    shares at one level). Job size: requested cores over those of the platform. Partition: its priority over the highest
    one. Weights, half-life and maximum age are by default those of the example on that page.

    Args:
        weight_age: PriorityWeightAge.
        weight_fairshare: PriorityWeightFairshare.
        weight_job_size: PriorityWeightJobSize.
        weight_partition: PriorityWeightPartition.
        max_age: PriorityMaxAge in seconds.
        decay_half_life: PriorityDecayHalfLife in seconds, 0 for no decay.
        favor_small: PriorityFavorSmall: the job size factor is one minus that of above.
        account: Column of the workload that names the accounts, ``user`` or ``group``.
        partitions: PriorityJobFactor by partition; 0 for others.

    Raises:
        ConfigError: A setting is not allowed.
    """

    def __init__(
        self,
        weight_age: float = 1000,
        weight_fairshare: float = 10_000,
        weight_job_size: float = 1000,
        weight_partition: float = 1000,
        max_age: float = 14 * 86_400,
        decay_half_life: float = 14 * 86_400,
        favor_small: bool = False,
        account: str = "user",
        partitions: Mapping[int, float] | None = None,
    ) -> None:
        require("agent.multifactor", SETTINGS, {key: value for key, value in locals().items() if key in SETTINGS})
        self._weights = weight_age, weight_fairshare, weight_job_size, weight_partition
        self._max_age, self._half_life, self._favor_small = max_age, decay_half_life, favor_small
        self._account = account
        given = {int(number): float(priority) for number, priority in (partitions or {}).items()}
        highest = max(given.values(), default=0.0) or 1.0
        self._partitions = {number: priority / highest for number, priority in given.items()}
        self._usage: DecayedUsage | None = None

    __deepcopy__ = with_own_containers

    def follow(self, cluster: Cluster) -> Multifactor:
        """Returns the same order with the usage of a cluster, which `note` keeps up to date."""
        followed = copy(self)
        followed._usage = DecayedUsage(cluster, self._account, self._half_life)
        return followed

    def note(self, cluster: Cluster) -> None:
        """Takes note of the events of an instant; to be called at each one."""
        assert self._usage is not None
        self._usage.note(cluster)

    def __call__(self, jobs: Workload, queued: NDArray[np.int64], cluster: Cluster) -> Floats:
        """Returns (Q,) scores of queued jobs, the lowest first; without `follow` from the whole history."""
        usage = self._usage or DecayedUsage(cluster, self._account, self._half_life)
        used, accounts = usage.shares(cluster, queued)
        age = np.minimum((cluster.now - jobs.submission_time[queued]) / self._max_age, 1.0)
        size = jobs.requested_cores[queued] / cluster.platform.n_cpu_cores
        partition = np.zeros(len(queued))
        if self._partitions:
            partition[:] = [self._partitions.get(number, 0.0) for number in jobs.partition[queued].tolist()]
        factors = age, 2.0 ** (-used * accounts), 1.0 - size if self._favor_small else size, partition
        return -np.dot(self._weights, factors)
