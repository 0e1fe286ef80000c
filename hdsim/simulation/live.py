"""Jobs that another backend runs; their copies are simulations."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

import numpy as np

from hdsim.simulation.engine import Engine
from hdsim.simulation.setup import make_rigid_executor

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster
    from hdsim.simulation.executor import Executor
    from hdsim.simulation.setup import ReplaySetup


class LiveJobs:
    """Takes the place of the engine where another backend runs the jobs; all it has is copies, which are engines.

    A copy knows what a scheduler sees, and takes for granted that running jobs have been on their present cores at the
    present speed of these since their starts, or since the requests to start them if they are STARTING; that jobs start
    at once; that nodes that are down stay down and held jobs stay held. Programs are left out.

    Attributes:
        cluster: The state.
        deciding: Whether copies begin with a scheduling pass.
        user_processes: Number of processes of the user.
        active_process: The process of the user that runs now.

    Args:
        setup: Cluster and models.
        kill_at_walltime: Jobs are killed at their walltimes.
    """

    deciding, user_processes, active_process = True, 0, None

    def __init__(self, setup: ReplaySetup, *, kill_at_walltime: bool) -> None:
        self.cluster = setup.cluster
        self._contention, self._kill_at_walltime = setup.contention, kill_at_walltime

    def fork(self, memo: dict[int, Any], *, to_come: bool, calls: bool) -> Engine:
        """Returns an engine with a copy of the cluster; see :meth:`hdsim.simulation.engine.Engine.fork`."""
        cluster = deepcopy(self.cluster, memo)
        cluster.calls.clear()
        cluster.start_at_once()
        executor = make_rigid_executor(cluster, self._contention)
        _continue_jobs(cluster, executor)
        engine = Engine(cluster, executor, kill_at_walltime=self._kill_at_walltime)
        engine.drop_arrivals()
        return engine


def _continue_jobs(cluster: Cluster, executor: Executor) -> None:
    """Starts the running jobs in an executor, but for those that the present pass has started."""
    if cluster.core_speed is not None:
        executor.set_speed(np.arange(cluster.platform.n_cores), cluster.core_speed, 0.0)
    starts = cluster.starting_time
    for job in sorted(set(cluster.running).difference(cluster.started), key=starts.__getitem__):
        executor.start(job, cluster.running[job], starts[job])
        if job in cluster.allocations.begin:
            executor.resize({job: cluster.running[job]}, starts[job])
        # The dates are those of assumed run times.
        list(executor.settle(starts[job]))
