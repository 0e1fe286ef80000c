"""What a recorded schedule would have decided, in terms of a task: the examples that imitation learns from."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hdsim.decisions.job import PickJob
from hdsim.decisions.node import PlaceJob
from hdsim.errors import ConfigError

if TYPE_CHECKING:
    from hdsim.decisions import Task
    from hdsim.results import Result
    from hdsim.rundir import Run
    from hdsim.state import Cluster

_NEVER = (math.inf, 0)


class Demonstration:
    """Starts and nodes of recorded jobs.

    A job is picked when its start comes first in the recording, and gets the nodes it had there. Replays of the
    recorded policy's own decisions follow the recording to the instant, and `void` is chosen while it starts nothing.

    Args:
        recorded: A replay, or a run read from its directory.
        exact: The jobs to schedule are those recorded, in a cluster that was as empty at first.
    """

    def __init__(self, recorded: Result | Run, *, exact: bool) -> None:
        ids, attempts = recorded.jobs["job_id"].tolist(), recorded.attempts
        self._exact = exact
        # Start of each job, and its place among those that start at the same instant.
        self._start = {
            str(ids[job]): (start, place)
            for place, (job, start) in enumerate(zip(attempts.job.tolist(), attempts.start.tolist(), strict=True))
        }
        nodes = np.searchsorted(recorded.platform.node_first_core, attempts.cores, side="right") - 1
        parts = np.split(nodes, np.cumsum(attempts.sizes)[:-1])
        self._nodes = {str(ids[job]): part for job, part in zip(attempts.job.tolist(), parts, strict=True)}

    def action(self, task: Task, cluster: Cluster) -> int:
        """The decision that is due.

        Raises:
            ConfigError: The task has neither jobs nor nodes to choose.
        """
        mask, kind, names = task.mask(), task.action, cluster.workload.job_id
        void = len(mask) - 1 if task.settings.get("void", False) and mask[-1] else None
        if isinstance(kind, PickJob):
            legal = np.flatnonzero(mask[: len(task.waiting.ranks)]).tolist()
            starts = [(*self._of(names[task.waiting.ranks[place]]), place) for place in legal]
            first = min(starts, default=None)
            if void is not None and (first is None or (self._exact and first[0] > cluster.now)):
                return void
            assert first is not None
            return int(first[-1])
        if isinstance(kind, PlaceJob):
            placing = task.waiting.placing
            assert placing is not None
            job = str(names[placing.job])
            if void is not None and self._exact and self._of(job)[0] > cluster.now:
                return void
            legal_nodes = mask[: len(placing.room)]
            # Where none of the recorded nodes has room, the first that has.
            return int(np.argmax((1 + self._cores_on(job, len(legal_nodes))) * legal_nodes))
        raise ConfigError(
            f"expected env.action=job or node to follow a recording, got {task.settings['action']}", where="env.action"
        )

    def _of(self, job: object) -> tuple[float, int]:
        return self._start.get(str(job), _NEVER)

    def _cores_on(self, job: str, nodes: int) -> NDArray[np.int64]:
        """(N,) cores that a job had on each node."""
        return np.bincount(self._nodes.get(job, np.zeros(0, np.int64)), minlength=nodes)[:nodes]
