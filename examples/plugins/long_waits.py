"""An objective: ``hdsim train env.objective=long_waits.py env.patience=60``."""

from hdsim.decisions.objectives import Rate


class LongWaits(Rate):
    """Minus the number of queued jobs that have waited for more than `patience` seconds."""

    metric = "p95_waiting_time"

    def __init__(self, integrated, patience: float = 600.0):
        super().__init__(integrated)
        self.patience = patience

    def value(self):
        cluster = self.cluster
        submitted = cluster.workload.submission_time
        return -float(sum(cluster.now - submitted[job] > self.patience for job in cluster.queue))
