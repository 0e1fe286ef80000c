"""Submissions that wait for the end of earlier jobs, on a machine that starts jobs in order where they fit."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hdsim.kernels.compiling import kernel
from hdsim.kernels.heap import Heap, pop, push

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Submissions(NamedTuple):
    """S submissions of J jobs; the jobs of a submission are neighbours.

    Attributes:
        begin: (S,) seconds at which a submission begins; infinite: when the one before it has ended.
        think: (S,) seconds from the end of the submission before it, where `begin` is infinite.
        following: (S,) the submission that waits for this one, -1 for none.
        first: (S + 1,) the first job of each submission.
        offset: (J,) seconds from the begin of the submission.
        runtime: (J,) seconds.
        size: (J,) cores.
    """

    begin: Floats
    think: Floats
    following: Ints
    first: Ints
    offset: Floats
    runtime: Floats
    size: Ints


@kernel
def submitted(plan: Submissions, cores: int, arrivals: Heap, ends: Heap) -> Floats:
    """Returns (J,) submission times in whole seconds; the heaps are empty, with space for all jobs.

    Jobs start in order of submission, each as soon as it fits (``greedy-fcfs``). All jobs of a submission have ended
    before the user thinks about the next one.
    """
    jobs, count = len(plan.runtime), len(plan.begin)
    release, of = np.zeros(jobs), np.zeros(jobs, np.int64)
    left, queue = np.zeros(count, np.int64), np.zeros(jobs, np.int64)
    for each in range(count):
        left[each] = plan.first[each + 1] - plan.first[each]
        for job in range(plan.first[each], plan.first[each + 1]):
            of[job] = each
            if plan.begin[each] < math.inf:
                release[job] = math.floor(plan.begin[each] + plan.offset[job])
                push(arrivals, release[job], job)
    idle, queued = cores, 0
    while arrivals.length[0] + ends.length[0]:
        now = math.inf
        if arrivals.length[0]:
            now = arrivals.key[0]
        if ends.length[0]:
            now = min(now, ends.key[0])
        while ends.length[0] and ends.key[0] <= now:
            job = pop(ends)
            idle += plan.size[job]
            each = of[job]
            left[each] -= 1
            after = plan.following[each]
            if left[each] == 0 and after >= 0:
                for one in range(plan.first[after], plan.first[after + 1]):
                    release[one] = math.ceil(now + plan.think[after] + plan.offset[one])
                    push(arrivals, release[one], one)
        while arrivals.length[0] and arrivals.key[0] <= now:
            queue[queued] = pop(arrivals)
            queued += 1
        kept = 0
        for place in range(queued):
            job = queue[place]
            if plan.size[job] <= idle:
                idle -= plan.size[job]
                push(ends, now + plan.runtime[job], job)
            else:
                queue[kept] = job
                kept += 1
        queued = kept
    return release
