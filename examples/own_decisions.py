"""An observation and an objective of one's own, in one file, for any learning agent.

hdsim train platform=teaching workload.path=even_1000 workload.arrival_factor=0.2 \
    env.observation=examples/own_decisions.py env.objective=examples/own_decisions.py env.patience=60 env.jobs=20 \
    'env.pairs=[first-low_power,first-high_gflops]' agent=reinforce train.steps=2000
"""

from typing import Any

import numpy as np

from hdsim.decisions import Array, Observer
from hdsim.decisions.objectives import Rate


class HeadAndMachine(Observer):
    """Idle cores, and of the head of the queue: waiting time, requested time, cores, and whether it fits.

    The wait queue has the queued jobs in order of submission (`jobs`, `head()`, `peek(n)`), and `ordered("smallest")`
    in another fixed order, which is to be asked for in `begin`.
    """

    def arrays(self, platform: Any) -> Array:
        """Five numbers from 0 to 1."""
        return Array((5,))

    def begin(self, cluster: Any, wait_queue: Any) -> None:
        """Keeps what `observe` looks at: both change with the simulation."""
        self.cluster, self.wait_queue = cluster, wait_queue

    def observe(self) -> Any:
        """A new array; zeros stand for an empty queue."""
        cluster, head, seen = self.cluster, self.wait_queue.head(), np.zeros(5, np.float32)
        cores = cluster.platform.n_cpu_cores
        seen[0] = cluster.n_idle / cores
        if head is not None:
            jobs = cluster.workload
            waited = cluster.now - jobs.submission_time[head]
            seen[1:3] = np.log1p([waited, jobs.requested_time[head]]) / np.log1p(7 * 86400)
            seen[3:] = jobs.requested_cores[head] / cores, cluster.fits(head)
        return np.minimum(seen, 1.0)


class LateJobs(Rate):
    """Minus the number of queued jobs that have waited for more than `patience` seconds."""

    metric = "p95_waiting_time"

    def __init__(self, integrated: bool, patience: float = 600.0) -> None:
        super().__init__(integrated)
        self.patience = patience

    def value(self) -> float:
        """The number at this moment; both rewards are made of it."""
        cluster = self.cluster
        submitted = cluster.workload.submission_time
        return -float(sum(cluster.now - submitted[job] > self.patience for job in cluster.queue))
