"""The order of pending jobs of which some preempt others, against a merge sort by recursion."""

from __future__ import annotations

import numpy as np
import pytest

from hdsim.site.kernels.preempting import sort_queue


def merged(jobs: list[int], group: np.ndarray, rank: np.ndarray, beats: np.ndarray) -> list[int]:
    """Halves sorted and merged; of equal jobs the one of the first half comes first."""
    if len(jobs) < 2:
        return jobs
    half = len(jobs) // 2
    left, right = (merged(part, group, rank, beats) for part in (jobs[:half], jobs[half:]))
    made = []
    while left and right:
        one, other = left[0], right[0]
        own, its = group[one], group[other]
        first = beats[own, its] or (not beats[its, own] and rank[one] <= rank[other])
        made.append((left if first else right).pop(0))
    return made + left + right


def in_order(group: np.ndarray, rank: np.ndarray, beats: np.ndarray) -> list[int]:
    order = np.arange(len(group))
    sort_queue(group, rank, beats, order, np.zeros((4, len(group) + 64), np.int64))
    return order.tolist()


@pytest.mark.parametrize("seed", range(20))
def test_the_order_is_that_of_a_merge_sort(seed: int) -> None:
    rng = np.random.default_rng(seed)
    jobs, groups = int(rng.integers(0, 60)), 4
    group, rank = rng.integers(0, groups, jobs), rng.permutation(jobs)
    beats = np.triu(rng.random((groups, groups)) < 0.5, 1)
    assert in_order(group, rank, beats) == merged(list(range(jobs)), group, rank, beats)


def test_without_preemption_the_rank_decides() -> None:
    rank = np.array([3, 1, 0, 2])
    assert in_order(np.zeros(4, np.int64), rank, np.zeros((1, 1), np.bool_)) == [2, 1, 3, 0]


def test_a_job_comes_before_those_that_it_preempts_and_behind_others_of_a_higher_priority() -> None:
    # Of groups low, high and other, high preempts low; by priority: other, low, high.
    beats = np.array([[False, False, False], [True, False, False], [False, False, False]])
    assert in_order(np.array([0, 1, 2]), np.array([1, 2, 0]), beats) == [2, 1, 0]
