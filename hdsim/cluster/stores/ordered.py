"""Idle cores in one static order of preference."""

from __future__ import annotations

from bisect import bisect_left, insort
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hdsim.cluster.selection import rank_cores, static_scores
from hdsim.errors import DecisionError, require
from hdsim.util.arrays import Floats, Ints, sorted_within
from hdsim.util.copies import with_own_containers
from hdsim.util.intervals import IntervalSets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hdsim.cluster.requests import Requests
    from hdsim.platform.model import Platform

#: Number of cores up to which they are processed one by one.
_FEW = 4
#: Ratio of idle to allocated cores from which a binary search for each allocated core is faster.
_SPARSE = 16
_NONE = -1


def preference(scores: Floats, platform: Platform) -> NDArray[np.int32]:
    """Returns the cores, without GPUs, by ascending (P,) score of their processors, then by descending id."""
    order = rank_cores(scores, platform)[::-1]
    return order[~platform.is_gpu[platform.core_processor[order]]].astype(np.int32)


def core_sets(
    core_of_rank: NDArray[np.int32], counts: Ints, first: NDArray[np.int32], last: NDArray[np.int32]
) -> IntervalSets:
    """Returns the core ids of placements from their ranges of ranks.

    Args:
        core_of_rank: (C,) cores by ascending preference.
        counts: (S,) number of ranges of each placement.
        first: (R,) first rank of each range, descending within a placement.
        last: (R,) last rank of each range.
    """
    top = len(core_of_rank) - 1
    places = IntervalSets(counts, top - last, top - first)
    if (core_of_rank == np.arange(top, -1, -1)).all():
        return places
    return IntervalSets.of(sorted_within(core_of_rank[top - places.ids], places.sizes), places.sizes)


class OrderedCores:
    """Idle cores of a platform of one speed with a static order of preference.

    A core is represented by its rank in that order, the best core last, so that most picks are the tail of one
    ascending list. A placement is a tuple of ranks, best first.

    Attributes:
        core_of_rank: (C,) cores by ascending preference.
        idle: Ranks of the idle cores, ascending.
        n_idle: Number of idle cores.

    Args:
        platform: The platform; memory and bandwidth are not tracked.
        requests: Requests of the jobs.
        policies: Core policies in use, see `suit`; the first is the default of `pick`.
        rng: For the `random` policy.
    """

    __deepcopy__ = with_own_containers

    def __init__(
        self, platform: Platform, requests: Requests, policies: Sequence[str], rng: np.random.Generator
    ) -> None:
        self._size = requests.size
        self._rng = rng
        self.policy = policies[0]
        self._policies = frozenset(policies)
        keys = static_scores(platform, requests, policies)
        ranking = [policy for policy in policies if policy in keys]
        #: Policies under which a pick is the tail of the list; None stands for the first policy.
        self._ordered = frozenset([*ranking, *([None] if self.policy in keys else [])])
        self.core_of_rank = preference(keys[ranking[0]] if ranking else np.zeros(platform.n_processors), platform)
        self._processor_of_rank = platform.core_processor[self.core_of_rank]
        n = len(self.core_of_rank)
        self._by_id = n == platform.n_cores and bool((np.diff(self.core_of_rank) < 0).all())
        self._rank_of_core: Ints = np.full(platform.n_cores, _NONE)
        self._rank_of_core[self.core_of_rank] = np.arange(n)
        self.idle: list[int] = list(range(n))
        self.n_idle = n
        # The last pick from the tail of the list, while that is as it was.
        self._tail: tuple[int, ...] | None = None

    @staticmethod
    def suit(policies: Sequence[str], platform: Platform, requests: Requests) -> bool:
        """Returns whether this store supports core policies: all static ones must have the same order."""
        keys = static_scores(platform, requests, policies)
        ranking = [keys[policy] for policy in policies if policy in keys]
        others = {policy for policy in policies if policy not in keys}
        orders = [np.argsort(-key, kind="stable") for key in ranking]
        return others <= {"random", "high_cores"} and all(np.array_equal(orders[0], order) for order in orders[1:])

    def pick(self, job: int, policy: str | None = None, limit: None = None) -> tuple[int, ...] | None:
        """Selects the most preferred idle cores without allocating them; None if there are too few.

        Raises:
            DecisionError: The core policy is not among those that the agent declares.
        """
        n = self._size[job]
        idle = self.idle
        if policy in self._ordered:
            if n > len(idle):
                return None
            self._tail = tuple(idle[: -n - 1 : -1])
            return self._tail
        policy = policy or self.policy
        if policy not in self._policies:
            raise DecisionError(
                f"expected a core policy that the agent declares ({', '.join(sorted(self._policies))}), got '{policy}'"
            )
        if n > len(idle):
            return None
        if policy == "random":
            ranks = self._by_core()
            chosen = [ranks[place] for place in self._rng.permutation(len(ranks))[:n].tolist()]
        else:
            chosen = self._levelled(n)
        return tuple(sorted(chosen, reverse=True))

    def _by_core(self) -> list[int]:
        """Returns the idle ranks by core id."""
        return self.idle[::-1] if self._by_id else sorted(self.idle, key=self.core_of_rank.__getitem__)

    def _levelled(self, n: int) -> list[int]:
        """Returns the n idle ranks that `high_cores` selects."""
        ranks = np.array(self._by_core(), np.int64)
        # The score of a core is the number of idle cores from it to the end of its processor.
        owner = self._processor_of_rank[ranks]
        after = owner.searchsorted(owner, side="right") - np.arange(len(owner))
        return ranks[(-after).argsort(kind="stable")[:n]].tolist()

    def placement_of(self, cores: Sequence[int] | Ints) -> tuple[int, ...]:
        """Converts core ids to a placement."""
        return tuple(sorted(self._rank_of_core[np.asarray(cores, np.int64)].tolist(), reverse=True))

    def allocate(self, job: int, ranks: tuple[int, ...]) -> None:
        """Allocates cores to a job.

        Raises:
            DecisionError: A core is busy or given twice.
        """
        idle = self.idle
        n = len(ranks)
        tail, self._tail = self._tail, None
        if ranks is tail or tuple(idle[: -n - 1 : -1]) == ranks:
            del idle[-n:]
            self.n_idle -= n
            return
        if n <= _FEW or n * _SPARSE <= len(idle):
            places, end = [], len(idle)
            for rank in ranks:
                place = bisect_left(idle, rank, 0, end)
                if place == end or idle[place] != rank:
                    break
                places.append(place)
                end = place
            else:
                for place in places:
                    del idle[place]
                self.n_idle -= n
                return
        wanted = set(ranks)
        rest = [rank for rank in idle if rank not in wanted]
        if len(rest) != len(idle) - n:
            busy = sorted(int(self.core_of_rank[rank]) for rank in wanted.difference(idle))
            got = f"busy {busy}" if busy else "a core twice"
            raise DecisionError(f"expected distinct idle cores, got {got}")
        idle[:] = rest
        self.n_idle -= n

    def release(self, job: int, ranks: tuple[int, ...]) -> None:
        """Releases the cores of a job."""
        idle, self._tail = self.idle, None
        self.n_idle += len(ranks)
        if not idle or idle[-1] < ranks[-1]:
            idle += ranks[::-1]
        elif len(ranks) <= _FEW:
            for rank in ranks:
                insort(idle, rank)
        else:
            start = bisect_left(idle, ranks[-1])
            idle[start:] = sorted([*idle[start:], *ranks])

    def cores_of(self, placements: Sequence[tuple[int, ...]], sizes: Ints) -> NDArray[np.int32]:
        """Returns the core ids of many placements, concatenated, ascending within each."""
        ranks = np.fromiter(chain.from_iterable(placements), np.int32, int(sizes.sum()))
        if self._by_id:
            return np.subtract(len(self.core_of_rank) - 1, ranks, out=ranks)
        cores = self.core_of_rank[ranks]
        return sorted_within(cores, sizes)

    def ids_of(self, ranks: tuple[int, ...]) -> list[int]:
        """Returns the core ids of a placement, ascending; faster than `cores_of` for one placement."""
        if self._by_id:
            last = len(self.core_of_rank) - 1
            return [last - rank for rank in ranks]
        return sorted(self.core_of_rank[list(ranks)].tolist())

    def idle_ids(self) -> Ints:
        """Ids of the idle cores, ascending."""
        return np.sort(self.core_of_rank[self.idle])

    def check(self, running: Sequence[tuple[int, ...]]) -> None:
        """Checks that each core is either idle or allocated to exactly one running job."""
        held = [rank for ranks in running for rank in ranks]
        require(self.idle == sorted(self.idle), "idle cores are not sorted")
        require(sorted(held + self.idle) == list(range(len(self.core_of_rank))), "a core is lost or allocated twice")
