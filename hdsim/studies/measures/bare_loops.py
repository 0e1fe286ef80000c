"""Reference loops: the least work a replay in Python can do. They count cores, and nothing else.

Speeds of hdsim are given as ratios to these, measured in the same process, so that machines can be compared.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import Any


def bare_fcfs(submit: list[float], runtime: list[float], size: list[int], cores: int) -> list[float]:
    """Strict first come, first served with one heap of arrivals and completions; returns finish times."""
    jobs = len(submit)
    finish = [0.0] * jobs
    events = [(submit[0], 1, 0)]
    queue: deque[int] = deque()
    free = cores
    while events:
        now, is_arrival, job = heappop(events)
        if is_arrival:
            queue.append(job)
            if job + 1 < jobs:
                heappush(events, (submit[job + 1], 1, job + 1))
        else:
            free += size[job]
            finish[job] = now
        while queue and size[queue[0]] <= free:
            job = queue.popleft()
            free -= size[job]
            heappush(events, (now + runtime[job], 0, job))
    return finish


def bare_easy(
    submit: list[float], runtime: list[float], requested: list[float], size: list[int], cores: int
) -> list[float]:
    """Textbook EASY backfilling, one pass an instant; returns start times."""
    jobs = len(submit)
    starts = [0.0] * jobs
    ends: list[tuple[float, int]] = []
    running: dict[int, float] = {}
    queue: list[int] = []
    free, now, arrived = cores, 0.0, 0
    while arrived < jobs or queue:
        now = min(submit[arrived] if arrived < jobs else float("inf"), ends[0][0] if ends else float("inf"))
        while ends and ends[0][0] == now:
            job = heappop(ends)[1]
            free += size[job]
            del running[job]
        while arrived < jobs and submit[arrived] == now:
            queue.append(arrived)
            arrived += 1
        while queue and size[queue[0]] <= free:
            job = queue.pop(0)
            starts[job] = now
            free -= size[job]
            running[job] = now + requested[job]
            heappush(ends, (now + runtime[job], job))
        if not queue or not free:
            continue
        available, shadow, need = free, now, size[queue[0]]
        for end, job in sorted((end, job) for job, end in running.items()):
            if available >= need and end > shadow:
                break
            available += size[job]
            shadow = end
        extra = available - need
        left = [queue[0]]
        for job in queue[1:]:
            n = size[job]
            if n <= free and (now + requested[job] <= shadow or n <= extra):
                if now + requested[job] > shadow:
                    extra -= n
                starts[job] = now
                free -= n
                running[job] = now + requested[job]
                heappush(ends, (now + runtime[job], job))
            else:
                left.append(job)
        queue = left
    return starts


def columns(workload: Any) -> tuple[list[float], list[float], list[float], list[int]]:
    """Submission, run time, requested time and size of the jobs as lists."""
    return (
        workload.submission_time.tolist(),
        workload.runtime.tolist(),
        workload.requested_time.tolist(),
        workload.requested_cores.tolist(),
    )
