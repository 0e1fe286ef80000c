"""An agent of one's own: among the queued jobs that fit, start the one that leaves the fewest cores idle.

hdsim run agent.path=examples/best_fit.py agent.patience=3600 workload.jobs=500
"""

import hdsim
from hdsim.cluster.state import Cluster


class BestFit(hdsim.Agent):
    """Best fit, with a limit to what the oldest job has to put up with.

    Args:
        patience: Seconds after which the oldest job is served before all others.
    """

    def __init__(self, patience: float = 86_400.0) -> None:
        self.patience = patience

    def decide(self, cluster: Cluster) -> None:
        """Starts jobs until none of those allowed fits."""
        submission = cluster.workload.submission_time
        while cluster.queue:
            oldest = next(iter(cluster.queue))
            if cluster.now - submission[oldest] > self.patience:
                allowed = [oldest]
            else:
                allowed = [job for job in cluster.queue if cluster.size[job] <= cluster.n_idle]
            job = max(allowed, key=cluster.size.__getitem__, default=None)
            placement = None if job is None else cluster.pick(job, "low_power")
            if job is None or placement is None:
                return
            cluster.start(job, placement)
