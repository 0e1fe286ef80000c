"""A backend of machines that start jobs late: ``hdsim run backend.path=slow_cloud.py backend.delay=60``."""

import heapq
import itertools
import random

import hdsim


class SlowCloud(hdsim.Backend):
    """Starts each job after a while, or refuses to."""

    capabilities = hdsim.Capabilities(confirms_starts=True, kills=False)

    def __init__(self, delay: float = 30.0, refused: float = 0.1, seed: int = 1) -> None:
        self.delay, self.refused, self.random = delay, refused, random.Random(seed)

    def open(self, setup, directory, stop) -> None:
        """Called before the first event."""
        self.cluster, self.events, self.number = setup.cluster, [], itertools.count()
        infeasible = set(setup.infeasible.tolist())
        for job, time in enumerate(self.cluster.workload.submission_time.tolist()):
            self.at(time, self.cluster.refuse if job in infeasible else self.cluster.submit, job)

    def at(self, time, verb, *arguments) -> None:
        heapq.heappush(self.events, (time, next(self.number), verb, arguments))

    def advance(self) -> bool:
        """Puts the events of the next instant into the cluster; False when there are none."""
        if not self.events:
            return False
        now = self.events[0][0]
        self.cluster.next_instant(now)
        while self.events and self.events[0][0] == now:
            _, _, verb, arguments = heapq.heappop(self.events)
            verb(*arguments)
        return True

    def apply(self) -> None:
        """Carries out what the agent decided."""
        cluster = self.cluster
        for job in cluster.started:
            begin = cluster.now + self.random.expovariate(1 / self.delay)
            if self.random.random() < self.refused:
                self.at(begin, cluster.start_failed, job, "no machine")
                continue
            self.at(begin, cluster.confirm_start, job, begin)
            end = begin + float(cluster.workload.runtime[job])
            self.at(end, cluster.end, job, hdsim.FinalState.COMPLETED_SUCCESSFULLY)
        for time in cluster.calls:
            self.at(time, lambda: None)
        cluster.started.clear()
        cluster.calls.clear()
