"""An observation: ``hdsim train env.observation=waiting.py env.longest=600``."""

import numpy as np

from hdsim.decisions import Array, Observer


class Waiting(Observer):
    """The share of idle cores, and how long the first queued job has waited, as a share of `longest` seconds."""

    def __init__(self, longest: float = 3600.0):
        self.longest = longest

    def arrays(self, platform):
        return Array((2,))

    def begin(self, cluster, wait_queue):
        self.cluster, self.wait_queue = cluster, wait_queue

    def observe(self):
        cluster, jobs = self.cluster, self.wait_queue.jobs
        waited = cluster.now - cluster.workload.submission_time[jobs[0]] if jobs else 0.0
        return np.float32([cluster.n_idle / cluster.platform.n_cpu_cores, min(waited / self.longest, 1.0)])
