"""An agent of one's own that looks ahead: of several policies, the one that would empty the queue best decides.

hdsim run agent.path=examples/look_ahead.py 'agent.candidates=[easy,easy-sjf]' workload.jobs=300
"""

from collections.abc import Sequence

import hdsim
from hdsim.cluster.state import Cluster


class LookAhead(hdsim.Agent):
    """Plays every candidate out on a fork of the simulation and starts the jobs that the best one starts now.

    Args:
        candidates: Agents by name.
        metric: Metric of the fork's result, lower is better.
    """

    def __init__(self, candidates: Sequence[str] = ("easy", "easy-sjf"), metric: str = "mean_bounded_slowdown") -> None:
        self.candidates = list(candidates)
        self.metric = metric

    def decide(self, cluster: Cluster) -> None:
        """Starts the jobs of the best candidate."""
        if not cluster.queue or not cluster.n_idle:
            return
        best, started = float("inf"), []
        for name in self.candidates:
            # Jobs last as long as requested, and no further job arrives.
            fork = cluster.fork(name)
            fork.run_until(cluster.now)
            copy = fork.cluster
            now = [(job, copy.core_ids(job)) for job in cluster.queue if job not in copy.queue]
            value = fork.run().metrics[self.metric]
            if value < best:
                best, started = value, now
        for job, cores in started:
            cluster.start_on(job, cores)
