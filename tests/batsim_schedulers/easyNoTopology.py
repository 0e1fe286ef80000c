"""Textbook EASY backfilling on pybatsim's API, blind to which hosts are which, one pass a message."""

from itertools import islice

from batsim.batsim import BatsimScheduler
from procset import ProcSet


class EasyNoTopology(BatsimScheduler):
    def onSimulationBegins(self):
        self.idle = ProcSet((0, self.bs.nb_compute_resources - 1))
        self.queue = []
        self.ends = {}

    def onJobSubmission(self, job):
        self.queue.append(job)

    def onJobCompletion(self, job):
        self.idle |= job.allocation
        del self.ends[job]

    def onNoMoreEvents(self):
        now = self.bs.time()
        while self.queue and self.queue[0].requested_resources <= len(self.idle):
            self.start(self.queue.pop(0), now)
        if len(self.queue) < 2:
            return
        free = len(self.idle)
        for job in sorted(self.ends, key=self.ends.get):
            free += job.requested_resources
            if free >= self.queue[0].requested_resources:
                shadow = self.ends[job]
                break
        # All jobs that are expected to end by then have left.
        free = len(self.idle) + sum(job.requested_resources for job, end in self.ends.items() if end <= shadow)
        extra = free - self.queue[0].requested_resources
        for job in self.queue[1:]:
            size = job.requested_resources
            if size > len(self.idle):
                continue
            if now + job.requested_time <= shadow:
                pass
            elif size <= extra:
                extra -= size
            else:
                continue
            self.queue.remove(job)
            self.start(job, now)

    def start(self, job, now):
        job.allocation = ProcSet(*islice(self.idle, job.requested_resources))
        self.idle -= job.allocation
        self.ends[job] = now + job.requested_time
        self.bs.execute_job(job)
