"""Textbook first come, first served on pybatsim's API: hosts in order of their ids, one pass a message."""

from itertools import islice

from batsim.batsim import BatsimScheduler
from procset import ProcSet


class FirstComeFirstServed(BatsimScheduler):
    def onSimulationBegins(self):
        self.idle = ProcSet((0, self.bs.nb_compute_resources - 1))
        self.queue = []

    def onJobSubmission(self, job):
        self.queue.append(job)

    def onJobCompletion(self, job):
        self.idle |= job.allocation

    def onNoMoreEvents(self):
        while self.queue and self.queue[0].requested_resources <= len(self.idle):
            job = self.queue.pop(0)
            job.allocation = ProcSet(*islice(self.idle, job.requested_resources))
            self.idle -= job.allocation
            self.bs.execute_job(job)
