"""CPUs that running jobs have on each of their nodes, of which logs have the sum, from what was before in the log."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np

from hdsim.site.beginning import Times, recorded_nodes, rows_of
from hdsim.site.jobs_table import jobs_table
from hdsim.site.scheduler import SlurmScheduler
from hdsim.site.workload import columns_of

if TYPE_CHECKING:
    from hdsim.site.model import Site
    from hdsim.util.arrays import Ints
    from hdsim.workload.model import Workload

#: Seconds before a moment from which on starts and ends are followed.
_BEFORE = 7 * 86_400.0


def held_at(site: Site, log: Workload, times: Times, at: float) -> dict[int, tuple[int, ...]]:
    """Returns the CPUs on each of its recorded nodes of jobs that run at a moment, by their rows.

    The starts and ends of the last week are followed. A job gets the CPUs that the scheduler would give it on its nodes
    if these are on each of them, else one on each and those that are free on the first ones. If nothing is free
    another job has less there, and more on another node of its own: augmenting paths of L. Ford and D. Fulkerson,
    "Maximal flow through a network", Canadian Journal of Mathematics 8 (1956).

    Nothing is returned of jobs that lack CPUs even so, and of sites where jobs are suspended or have whole cores of
    several CPUs.

    Args:
        site: The site.
        log: The jobs, with the column ``recorded_nodes``.
        times: Their recorded times.
        at: The moment in seconds since 1970.
    """
    first, listed = at - _BEFORE, recorded_nodes(log)
    ran = np.flatnonzero((times.end > first) & (times.start <= at))
    ran = np.array([row for row in ran.tolist() if listed[row]], np.int64)
    if not len(ran):
        return {}
    part = dataclasses.replace(log, **log.columns_at(ran))
    scheduler = SlurmScheduler(site, jobs_table(columns_of(part), site, log.source), first)
    if scheduler.suspends or (scheduler.nodes.unit > 1).any():
        return {}
    held = _Held(scheduler, [rows_of(scheduler, listed[row]) for row in ran.tolist()])
    start, end = np.maximum(times.start[ran], first).tolist(), times.end[ran].tolist()
    rows = ran.tolist()
    # At an instant jobs end before others start; those that ran before the week are in the order of their starts.
    events = [(end[job], 0, end[job], job) for job in range(len(rows)) if end[job] <= at]
    events += [(start[job], 1, float(times.start[row]), job) for job, row in enumerate(rows)]
    for (now, starts), group in groupby(sorted(events), key=itemgetter(0, 1)):
        jobs = [job for *_, job in group]
        if starts:
            held.start(jobs, now)
        else:
            held.end(jobs, now)
    return {rows[job]: tuple(given.values()) for job, given in held.given.items() if held.has_all(job)}


class _Held:
    """The CPUs that jobs have on nodes, which are followed; see `held_at`.

    Args:
        scheduler: Scheduler of the jobs.
        nodes: Nodes of each job.

    Attributes:
        given: CPUs on the nodes of the jobs that run now.
    """

    def __init__(self, scheduler: SlurmScheduler, nodes: list[list[int]]) -> None:
        self._scheduler, self._nodes = scheduler, nodes
        self._on: list[dict[int, None]] = [{} for _ in scheduler.nodes.cpus]  # jobs that run on each node
        self.given: dict[int, dict[int, int]] = {}

    def has_all(self, job: int) -> bool:
        """Whether a job has CPUs on all of its nodes, and all of its CPUs."""
        given, wanted = self.given[job], int(self._scheduler.jobs.demands.cpus[job])
        return list(given) == self._nodes[job] and sum(given.values()) >= wanted

    def end(self, jobs: Iterable[int], now: float) -> None:
        """Takes back what jobs have."""
        for job in jobs:
            if job in self.given:
                self._scheduler.end(job, now)
                for node in self.given.pop(job):
                    del self._on[node][job]

    def start(self, jobs: list[int], now: float) -> None:
        """Gives jobs that start at a time their CPUs, first those that would get them on all of their nodes."""
        left = sorted(jobs, key=lambda job: len(self._nodes[job]) > 1)
        while left:
            among = np.zeros(len(self._on), np.bool_)
            for job in left:
                among[:] = False
                among[self._nodes[job]] = True
                given = self._scheduler.fitting(job, among)
                if given and list(given) == self._nodes[job]:
                    break
            else:
                job = left[0]
                given = self._found(job, now)
            left.remove(job)
            if given:
                self._hold(job, given, now)

    def _hold(self, job: int, given: dict[int, int], now: float) -> None:
        self._scheduler.hold(job, now, given.keys(), given.values())
        self.given[job] = given
        for node in given:
            self._on[node][job] = None

    def _found(self, job: int, now: float) -> dict[int, int]:
        """Returns CPUs for a job on its nodes, some of which others may give up."""
        free = self._scheduler.usage.cpus.copy()
        changed: dict[int, dict[int, int]] = {}
        found = dict.fromkeys(self._nodes[job], 0)
        lacking, most = int(self._scheduler.jobs.demands.cpus[job]), self._scheduler.nodes.cpus
        for node in found:
            if lacking and self._make_space(node, free, changed):
                found[node], free[node], lacking = 1, free[node] - 1, lacking - 1
        for node in found:
            more = min(int(free[node]), lacking)
            found[node], free[node], lacking = found[node] + more, free[node] - more, lacking - more
        for node in found:
            while lacking and found[node] < most[node] and self._make_space(node, free, changed):
                found[node], free[node], lacking = found[node] + 1, free[node] - 1, lacking - 1
        for other in changed:
            self._scheduler.end(other, now)
        for other, given in changed.items():
            self._scheduler.hold(other, now, given.keys(), given.values())
            self.given[other] = given
        return {node: cpus for node, cpus in found.items() if cpus}

    def _make_space(self, node: int, free: Ints, changed: dict[int, dict[int, int]]) -> bool:
        """Has jobs move one CPU so that one is free on a node; returns whether one is."""
        reached: dict[int, tuple[int, int]] = {}  # nodes, with the job that has CPUs there and on the node before
        queue = [node]
        for place in queue:
            if free[place] > 0:
                free[place] -= 1
                free[node] += 1
                target = place
                while target != node:
                    job, source = reached[target]
                    given = changed.setdefault(job, dict(self.given[job]))
                    given[target], given[source] = given[target] + 1, given[source] - 1
                    target = source
                return True
            for job in self._on[place]:
                given = changed.get(job, self.given[job])
                if given[place] > 1 and not self._scheduler.jobs.demands.whole[job]:
                    for other in given:
                        if other != node and other not in reached:
                            reached[other] = job, place
                            queue.append(other)
        return False
