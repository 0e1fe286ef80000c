"""Demonstrations for imitation: the actions of a decision problem that reproduce a recorded schedule."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hdsim.decisions import DecisionProblem
from hdsim.decisions.actions.accept import Accept
from hdsim.decisions.actions.backfill import BackfillAction
from hdsim.decisions.actions.pick_job import PickJob
from hdsim.decisions.actions.place_job import PlaceJob
from hdsim.decisions.actions.policy_pair import PolicyPair
from hdsim.errors import ConfigError, nearest
from hdsim.kubernetes.recording import Recording
from hdsim.results.run_directory.reader import read
from hdsim.scheduling.agent import make_agent
from hdsim.util.arrays import Ints

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster
    from hdsim.envs.scheduling import SchedulingEnv
    from hdsim.learning.training.evaluation import Evaluation
    from hdsim.results.result import Result
    from hdsim.results.run_directory.reader import Run
    from hdsim.workload.model import Workload

_NEVER = (math.inf, 0)


class Demonstration:
    """Starts and nodes of recorded jobs.

    The legal job with the earliest recorded start is selected, and placed on its recorded nodes. A replay of the
    policy's own recording is reproduced exactly; `void` is the action while the recording starts no job.

    Args:
        jobs: Ids of the recorded jobs in the order of their starts.
        starts: Their starts in seconds.
        nodes: The node of each core of each job.
        exact: The jobs are those of the recording, in a cluster with the same initial state.
    """

    def __init__(self, jobs: Iterable[object], starts: Iterable[float], nodes: Iterable[Ints], *, exact: bool) -> None:
        names = list(map(str, jobs))
        self._exact = exact
        # Start of each job, and its rank among the jobs of the same instant.
        self._start = {name: (start, place) for place, (name, start) in enumerate(zip(names, starts, strict=True))}
        self._nodes = dict(zip(names, nodes, strict=True))

    @classmethod
    def of(cls, recorded: Result | Run, *, exact: bool) -> Demonstration:
        """Makes the demonstration of a replay, or of a run read from its directory."""
        ids, attempts = recorded.jobs["job_id"], recorded.segments.attempts
        if attempts.amounts is not None:
            # A run directory has no counts of cores on nodes.
            parts = [held.nodes.repeat(np.maximum(held.node_counts, 1)) for held in attempts.amounts]
        else:
            nodes = np.searchsorted(recorded.platform.node_first_core, attempts.cores, side="right") - 1
            parts = np.split(nodes, np.cumsum(attempts.sizes)[:-1])
        return cls(ids[attempts.job].tolist(), attempts.begin.tolist(), parts, exact=exact)

    def action(self, problem: DecisionProblem, cluster: Cluster) -> int:
        """The action of the recording for the pending decision.

        Raises:
            ConfigError: The action of the problem selects a policy pair.
        """
        mask, kind, names = problem.mask(), problem.action, cluster.workload.job_id
        if not mask.any():
            return 0  # In an episode without decisions any action is as good.
        void = len(mask) - 1 if kind.has_void and mask[-1] else None
        if isinstance(kind, Accept):
            start, _ = self._of(names[problem.wait_queue.next()])
            return int(self._exact and start > cluster.now and mask[1])
        if isinstance(kind, PickJob | BackfillAction):
            legal = np.flatnonzero(mask[: len(problem.wait_queue.jobs)]).tolist()
            starts = [(*self._of(names[problem.wait_queue.jobs[place]]), place) for place in legal]
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
            # The first legal node if none of the recorded nodes is.
            nodes = self._nodes.get(job, np.zeros(0, np.int64))
            cores = np.bincount(nodes, minlength=len(legal_nodes))[: len(legal_nodes)]
            return int(np.argmax((1 + cores) * legal_nodes))
        raise ConfigError(
            f"expected job, node, backfill or accept to follow a recording, got {problem.settings['action']}",
            where="env.action",
        )

    def _of(self, job: object) -> tuple[float, int]:
        return self._start.get(str(job), _NEVER)


class Demonstrations:
    """Actions of a classic policy, or of a recorded run, in the episodes of a training.

    Args:
        environments: The environments.
        evaluation: Replays episodes under the policy.
        teacher: Classic policy whose replay of each episode is the recording; with `policy_pair` one of the pairs. Or a
            function that makes an agent for the replay of an episode, whose `heads`, the jobs that it has chosen in
            order, are demonstrated.
        recording: Run directory whose schedule is the recording instead, or a file of ``hdsim kwok record``, whose
            pods are then the jobs of the first episodes.
        steps: Steps that follow the recording.
        where: Configuration key of the policy.

    Raises:
        ConfigError: The recording is missing, or has no decisions of this kind of action.
    """

    def __init__(
        self,
        environments: Sequence[SchedulingEnv],
        evaluation: Evaluation,
        *,
        teacher: str | Callable[[], Any],
        recording: str | None,
        steps: float = math.inf,
        where: str,
    ) -> None:
        if not isinstance(environments[0].problem, DecisionProblem):
            raise ConfigError("expected jobs that a policy can schedule, got a gang", where=where)
        self._environments, self._evaluation, self._teacher = environments, evaluation, teacher
        self._clusters: list[Any] = [None] * len(environments)
        self._demonstrations: list[Any] = [None] * len(environments)
        self._run: Demonstration | None = None
        if recording is not None and Path(recording).is_file():
            self._run = self._of_cluster(Recording.read(Path(recording)), steps, where)
        elif recording is not None:
            self._run = Demonstration.of(read(recording), exact=False)
        self._pair = None
        action = environments[0].problem.action
        if isinstance(action, PolicyPair):
            if recording is not None:
                raise ConfigError(
                    "expected job, node, backfill or accept with a recording, got policy_pair", where="env.action"
                )
            if teacher not in action.names:
                raise ConfigError(
                    f"expected one of the actions, {', '.join(action.names)}, got '{teacher}'"
                    f"{nearest(str(teacher), action.names)}",
                    where=where,
                )
            self._pair = action.names.index(teacher)
        elif recording is None and isinstance(teacher, str):
            try:
                make_agent(teacher)
            except ConfigError as error:
                raise ConfigError(error.message, where=where) from None

    def actions(self) -> Ints:
        """(E,) the demonstrated action of every environment."""
        if self._pair is not None:
            return np.full(len(self._environments), self._pair)
        return np.array([self._demonstrated(index) for index in range(len(self._environments))])

    def renew(self) -> None:
        """Lets the teacher replay the present episodes anew: it is another one."""
        self._clusters = [None] * len(self._environments)

    def _recorded(self, jobs: Workload) -> Demonstration:
        """The teacher's replay of an episode."""
        if isinstance(self._teacher, str):
            (replay,) = self._evaluation.replays(self._teacher, [jobs])
            return Demonstration.of(replay, exact=True)
        teacher = self._teacher()
        self._evaluation.replays(teacher, [jobs])
        chosen = jobs.job_id[list(teacher.heads)].tolist()
        return Demonstration(chosen, range(len(chosen)), [np.zeros(0, np.int64)] * len(chosen), exact=False)

    def _of_cluster(self, recording: Recording, steps: float, where: str) -> Demonstration:
        """Makes the recorded pods the jobs of the first episodes, as many as the steps that follow the recording."""
        environments = self._environments
        jobs, nodes = recording.jobs(environments[0].platform, where)
        for environment in environments:
            environment.episodes.begin_with(jobs, np.ceil(steps / len(environments) / len(jobs)))
        places = np.array(nodes)[:, None]
        return Demonstration(jobs.job_id.tolist(), jobs.submission_time.tolist(), places, exact=False)

    def _demonstrated(self, index: int) -> int:
        environment = self._environments[index]
        if self._run is None and self._clusters[index] is not environment.cluster:
            # A new episode: the teacher replays it.
            self._clusters[index] = environment.cluster
            self._demonstrations[index] = self._recorded(environment.cluster.workload)
        demonstration = self._run or self._demonstrations[index]
        return int(demonstration.action(environment.problem, environment.cluster))
