"""What a recorded schedule would have decided, in terms of a problem: the examples that imitation learns from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hdsim.decisions.actions.pick_job import PickJob
from hdsim.decisions.actions.place_job import PlaceJob
from hdsim.decisions.actions.policy_pair import PolicyPair
from hdsim.errors import ConfigError, nearest
from hdsim.results.run_directory.reader import read
from hdsim.scheduling.agent import make_agent

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster
    from hdsim.decisions import DecisionProblem
    from hdsim.envs.scheduling import SchedulingEnv
    from hdsim.learning.training.evaluation import Evaluation
    from hdsim.results.result import Result
    from hdsim.results.run_directory.reader import Run

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
        ids, attempts = recorded.jobs["job_id"].tolist(), recorded.segments.attempts
        self._exact = exact
        # Start of each job, and its place among those that start at the same instant.
        self._start = {
            str(ids[job]): (start, place)
            for place, (job, start) in enumerate(zip(attempts.job.tolist(), attempts.begin.tolist(), strict=True))
        }
        nodes = np.searchsorted(recorded.platform.node_first_core, attempts.cores, side="right") - 1
        parts = np.split(nodes, np.cumsum(attempts.sizes)[:-1])
        self._nodes = {str(ids[job]): part for job, part in zip(attempts.job.tolist(), parts, strict=True)}

    def action(self, problem: DecisionProblem, cluster: Cluster) -> int:
        """The decision that is due.

        Raises:
            ConfigError: The problem has neither jobs nor nodes to choose.
        """
        mask, kind, names = problem.mask(), problem.action, cluster.workload.job_id
        void = len(mask) - 1 if problem.settings.get("void", False) and mask[-1] else None
        if isinstance(kind, PickJob):
            legal = np.flatnonzero(mask[: len(problem.wait_queue.queued)]).tolist()
            starts = [(*self._of(names[problem.wait_queue.queued[place]]), place) for place in legal]
            first = min(starts, default=None)
            if void is not None and (first is None or (self._exact and first[0] > cluster.now)):
                return void
            assert first is not None
            return int(first[-1])
        if isinstance(kind, PlaceJob):
            partial = problem.wait_queue.partial
            assert partial is not None
            job = str(names[partial.job])
            if void is not None and self._exact and self._of(job)[0] > cluster.now:
                return void
            legal_nodes = mask[: len(partial.capacity)]
            # Where none of the recorded nodes has room, the first that has.
            return int(np.argmax((1 + self._cores_on(job, len(legal_nodes))) * legal_nodes))
        raise ConfigError(
            f"expected env.action=job or node to follow a recording, got {problem.settings['action']}",
            where="env.action",
        )

    def _of(self, job: object) -> tuple[float, int]:
        return self._start.get(str(job), _NEVER)

    def _cores_on(self, job: str, nodes: int) -> NDArray[np.int64]:
        """(N,) cores that a job had on each node."""
        return np.bincount(self._nodes.get(job, np.zeros(0, np.int64)), minlength=nodes)[:nodes]


class Demonstrations:
    """What a classic policy, or a recorded run, does in the episodes that an agent learns in.

    Args:
        environments: What the agent acts in.
        evaluation: Replays episodes under the policy.
        teacher: Classic policy whose replay of each episode is the recording; with `policy_pair` one of the pairs.
        recording: Run directory whose schedule is the recording instead.
        where: Key of the setting that names the policy.

    Raises:
        ConfigError: There is no such recording, or it decides nothing that the problem can decide.
    """

    def __init__(
        self,
        environments: Sequence[SchedulingEnv],
        evaluation: Evaluation,
        *,
        teacher: str,
        recording: str | None,
        where: str,
    ) -> None:
        self._environments, self._evaluation, self._teacher = environments, evaluation, teacher
        self._watched: list[Any] = [None] * len(environments)
        self._demonstrations: list[Any] = [None] * len(environments)
        self._run = None if recording is None else Demonstration(read(recording), exact=False)
        self._pair = None
        action = environments[0].problem.action
        if isinstance(action, PolicyPair):
            if recording is not None:
                raise ConfigError(
                    "expected env.action=job or node with a recording, got policy_pair", where="env.action"
                )
            if teacher not in action.names:
                raise ConfigError(
                    f"expected one of the actions, {', '.join(action.names)}, got '{teacher}'"
                    f"{nearest(teacher, action.names)}",
                    where=where,
                )
            self._pair = action.names.index(teacher)
        elif recording is None:
            try:
                make_agent(teacher)
            except ConfigError as error:
                raise ConfigError(error.message, where=where) from None

    def actions(self) -> NDArray[np.int64]:
        """(E,) what is done in every environment now."""
        if self._pair is not None:
            return np.full(len(self._environments), self._pair)
        return np.array([self._shown(index) for index in range(len(self._environments))])

    def _shown(self, index: int) -> int:
        environment = self._environments[index]
        if self._run is None and self._watched[index] is not environment.cluster:
            # Another episode: the teacher replays it.
            self._watched[index] = environment.cluster
            (replay,) = self._evaluation.replays(self._teacher, [environment.cluster.workload])
            self._demonstrations[index] = Demonstration(replay, exact=True)
        demonstration = self._run or self._demonstrations[index]
        return int(demonstration.action(environment.problem, environment.cluster))
