"""The state of a cluster, and the events that a backend puts into it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hdsim.cluster.allocations import Allocations
from hdsim.cluster.job_state import FailedStart, FinalState, ReadOnlyList
from hdsim.cluster.requests import Requests, millicores
from hdsim.cluster.selection import policies_in_use
from hdsim.cluster.stores.choose import make_store
from hdsim.errors import BackendError, DecisionError, WorkloadError
from hdsim.platform.schema import CORES
from hdsim.workload.feasibility import infeasible_jobs
from hdsim.workload.growing import GrowingWorkload

if TYPE_CHECKING:
    from hdsim.cluster.time_breakdown import TimeBreakdown
    from hdsim.gangs.simulation import RunningGang
    from hdsim.platform.model import Platform
    from hdsim.workload.model import Workload

# Plain numbers: looking a member of the enum up costs as much as the rest of a state change.
_QUEUED, _RUNNING, _STARTING = int(FinalState.QUEUED), int(FinalState.RUNNING), int(FinalState.STARTING)


class WaitingJobs(dict[int, None]):
    """The queued jobs in order of submission, as keys; a loop over them may start jobs."""

    def __iter__(self) -> Iterator[int]:
        """Iterates over the jobs that are queued when the loop begins."""
        return iter(list(super().__iter__()))

    def __deepcopy__(self, memo: dict[int, Any]) -> WaitingJobs:
        # From a list twice as fast as from an iterator.
        return WaitingJobs(dict.fromkeys(list(super().__iter__())))

    def __repr__(self) -> str:
        return str(list(self))


class ClusterState:
    """Queue, running jobs and idle cores at one instant.

    Attributes:
        platform: The platform.
        now: Time in seconds since the first submission.
        queue: Jobs that wait, as keys in order of submission.
        running: Placement of each job that holds cores, in order of the requests to start them; those that are
            STARTING are among them.
        starting: Jobs whose start the backend has yet to confirm, each with the time of the request in seconds.
        held: Jobs that have arrived but may not start yet, as keys.
        arrived: Number of jobs that have arrived.
        doubled: That number at the last instant at which it had at least doubled.
        open_ended: Jobs may be added; the backend clears it when none will be any more.
        submitted: Jobs that arrived at this instant, were released or came back to the queue, in order.
        ended: Jobs that gave their cores back at this instant, in order: they completed, were killed or interrupted by
            a failure, or their start has failed.
        rejected: Jobs rejected at this instant, by the scheduler or because they could never run.
        withdrawn: Jobs that left the queue at this instant without a decision of the scheduler, such as pods that were
            deleted.
        can_kill: Whether the backend carries `kill` out.
        can_resize: Whether the backend carries `resize` out.
        speed_changes: Core ids and their new share of the peak speed, as the scheduler wants them in its present pass.
        can_set_speed: Whether the backend carries `set_speed` out.
        core_speed: (C,) share of its peak speed at which each core computes, None while all compute at theirs.
        started: Jobs the scheduler has started in its present pass.
        resized: Running jobs the scheduler has resized in its present pass.
        killed: Running jobs the scheduler wants killed.
        calls: Times at which the scheduler asked to be called again.
        nodes_fail: Nodes may fail.
        down: Nodes that are down, as keys.
        node_changes: Nodes that failed or were repaired at this instant, in order, and those of which pods of others
            take more or less.
        outages: (node, begin, end) in seconds of every outage that has begun; the end may lie ahead.
        failed_starts: Starts that the backend has refused, in order.
        failed_permanently: Jobs that have failed because nodes failed under them too often.
        starting_time: Last start of each job in seconds, NaN until it is confirmed and after an interruption.
        finish_time: Finish of each job in seconds, NaN before it.
        state: :class:`FinalState` of each job.
        size: Requested cores of each job; without core ids its CPU in cores.
        has_core_ids: Jobs get cores with ids, otherwise amounts of nodes.
        requests: Requests of the jobs.
        requested_time: Requested time of each job in seconds at reference speed; that of jobs in `expected` is a
            prediction of the scheduler.
        expected: Longest run time in seconds at reference speed that each job with a prediction is expected to have,
            and the number of corrections of the prediction.
        allocations: Allocations of all jobs.
        placements: See :class:`hdsim.cluster.allocations.Allocations`.
        time_breakdown: Time of jobs with programs by activity, None where no job has one.
        gangs: Supersteps of each gang that has started.
        rng: For random policies.

    Args:
        platform: The platform.
        workload: The jobs.
        core_policy: Core policy that `pick` uses by default.
        fixed_policy: Promise that no other core policy will be asked for, which permits a quicker store.
        core_policies: Promise that only these will be asked for, and nothing else of the cores, to the same end.
        needs_processors: The backend needs to know which processors a job is on.
        nodes_fail: `fail` will be called.
        confirms_starts: The backend calls `confirm_start` or `start_failed` for every job that is started; otherwise a
            started job runs at once.
        has_core_ids: The backend allocates cores with ids; otherwise, and on a platform of kind ``quantities``, jobs
            get amounts of nodes, which may be fractions of cores.
        open_ended: `add` may be called: memory and GPUs of the platform are watched whatever the first jobs ask for.
        rng: For random policies.
    """

    def __init__(
        self,
        platform: Platform,
        workload: Workload,
        *,
        core_policy: str = "high_gflops",
        fixed_policy: bool = False,
        core_policies: Collection[str] = (),
        needs_processors: bool = False,
        nodes_fail: bool = False,
        confirms_starts: bool = False,
        open_ended: bool = False,
        has_core_ids: bool = True,
        rng: np.random.Generator | None = None,
    ) -> None:
        jobs = len(workload)
        self.rng = rng or np.random.default_rng(0)
        self.time_breakdown: TimeBreakdown | None = None
        self.gangs: dict[int, RunningGang] = {}
        self.platform = platform
        self._jobs = GrowingWorkload(workload)
        self.now = 0.0
        self.queue: dict[int, None] = WaitingJobs()
        self.running: dict[int, Any] = {}
        self.starting: dict[int, float] = {}
        self.held: dict[int, None] = {}
        self.arrived = self.doubled = 0
        self.open_ended = open_ended
        self.confirms_starts = confirms_starts
        self.submitted: list[int] = []
        self.ended: list[int] = []
        self.rejected: list[int] = []
        self.withdrawn: list[int] = []
        self.started: list[int] = []
        self.resized: list[int] = []
        self.can_kill = True
        self.can_resize = True
        self.speed_changes: list[tuple[NDArray[np.int64], float]] = []
        self.can_set_speed = True
        self.core_speed: NDArray[np.float64] | None = None
        self.killed: list[int] = []
        self.calls: list[float] = []
        self.nodes_fail = nodes_fail
        self.down: dict[int, None] = {}
        self.node_changes: list[int] = []
        self.outages: list[tuple[int, float, float]] = []
        self.failed_starts: list[FailedStart] = []
        self.failed_permanently: list[int] = []
        self.starting_time = ReadOnlyList([math.nan] * jobs)
        self.finish_time = ReadOnlyList([math.nan] * jobs)
        self.state: ReadOnlyList[int] = ReadOnlyList([FinalState.NOT_SUBMITTED] * jobs)
        self.allocations = Allocations()
        self.placements = self.allocations.placements
        self.has_core_ids = has_core_ids = has_core_ids and platform.kind == CORES
        self.requests = Requests.of(workload, platform, open_ended=open_ended, has_core_ids=has_core_ids)
        self.only_counts = has_core_ids and not self.requests.memory_matters and self.requests.gpus is None
        self.uniform_speed = platform.homogeneous_speed
        self.size: list[Any] = self.requests.size if has_core_ids else []
        self._note_sizes(workload)
        self.requested_time: list[float] = workload.requested_time.tolist()
        self.expected: dict[int, tuple[float, int]] = {}
        self._only_order = self.only_counts and self.uniform_speed and not needs_processors
        self._set_store(policies_in_use(core_policy, fixed_policy, core_policies))

    def _set_store(self, policies: tuple[str, list[str]]) -> None:
        """Creates the store, without jobs; see `policies_in_use`."""
        self._policies = policies
        only_order, nodes_fail = self._only_order, self.nodes_fail
        self.cores: Any = make_store(
            self.platform, self.requests, self.rng, policies, only_order=only_order, nodes_fail=nodes_fail
        )

    @property
    def pick(self) -> Callable[..., Any]:
        """``pick(job, core_policy=None, limit=None)`` chooses cores for a queued job without giving them to it yet.

        It returns a placement for `start`, or None when the job does not fit now. `limit` is the most cores each node
        may give, (N,).
        """
        pick: Callable[..., Any] = self.cores.pick
        return pick

    @property
    def workload(self) -> Workload:
        """The jobs known so far; a job is known by its row."""
        return self._jobs.jobs

    @property
    def n_idle(self) -> Any:
        """Idle cores of the whole platform, an integer; without core ids CPU in cores."""
        return self.cores.n_idle

    @property
    def node_cpu(self) -> NDArray[Any]:
        """(N,) CPU of each node in cores, of which `cores.node_idle` is free."""
        return self.platform.node_cpu_cores if self.has_core_ids else self.platform.node_cpu

    @property
    def n_idle_gpus(self) -> int:
        """Idle GPUs of the whole platform; all of them where no job asks for any."""
        gpus = getattr(self.cores, "node_gpus", None)
        return self.platform.n_gpus if gpus is None else int(gpus.sum())

    @property
    def expects_jobs(self) -> bool:
        """Whether jobs may still arrive."""
        return self.open_ended or self.arrived < len(self.state)

    # Calls of the backend

    def next_instant(self, now: float) -> None:
        """Goes to an instant in seconds, at which nothing has happened yet."""
        if self.arrived >= 2 * self.doubled:
            self.doubled = self.arrived
        self.now = now
        self.submitted.clear()
        self.ended.clear()
        self.rejected.clear()
        self.withdrawn.clear()
        self.node_changes.clear()

    def add(self, jobs: Workload) -> None:
        """Adds jobs behind those known, before their submission; their submission times are on the cluster's clock.

        Raises:
            BackendError: The cluster is not made `open_ended`.
        """
        if not self.requests.open_ended:
            raise BackendError("expected a cluster made with open_ended=True, to which jobs can be added")
        self.requests.add(jobs)
        self._jobs.add(jobs)
        self._note_sizes(jobs)
        self.requested_time += jobs.requested_time.tolist()
        self.starting_time.grow([math.nan] * len(jobs))
        self.finish_time.grow([math.nan] * len(jobs))
        self.state.grow([FinalState.NOT_SUBMITTED] * len(jobs))

    def infeasible(self, first: int = 0) -> list[int]:
        """Returns the jobs from row `first` on that do not fit on the empty platform."""
        if not self.has_core_ids:
            return [job for job in range(first, len(self.workload)) if not self.cores.feasible(job)]
        rows: list[int] = (first + infeasible_jobs(self.platform, self.workload.rows(first))).tolist()
        return rows

    def submit(self, job: int) -> None:
        """Puts an arriving job into the queue."""
        self.arrived += 1
        self.queue[job] = None
        self.state.write(job, _QUEUED)
        self.submitted.append(job)

    def hold(self, job: int) -> None:
        """Takes note of an arriving job that may not start yet, such as one that depends on others."""
        self.arrived += 1
        self.held[job] = None
        self.state.write(job, FinalState.HELD)

    def release(self, job: int) -> None:
        """Puts a held job into its place in the queue.

        Raises:
            BackendError: The job is not held.
        """
        if job not in self.held:
            raise BackendError(self._misplacement(job, "released", "held"))
        del self.held[job]
        self._queue_in_order(job)

    def refuse(self, job: int) -> None:
        """Turns an arriving job away that could not run on the empty platform."""
        self.arrived += 1
        self._turn_away(job)

    def withdraw(self, job: int) -> None:
        """Removes a queued job that its user has taken back; its state is REJECTED.

        Raises:
            BackendError: The job is not queued.
        """
        self._leave_queue(job, "withdrawn")
        self.state.write(job, FinalState.REJECTED)

    def adopt(self, job: int, placement: Any, time: float) -> None:
        """Takes note of a job that runs without a decision of the scheduler, such as one started before a restart.

        Only stores without core ids have such jobs.

        Args:
            job: A job that is queued or not submitted yet.
            placement: Its resources, which may overcommit nodes.
            time: Its start in seconds of the backend's clock.

        Raises:
            BackendError: The job is in another state.
        """
        if self.state[job] == FinalState.NOT_SUBMITTED:
            self.arrived += 1
        else:
            self._leave_queue(job, "adopted")
        self.cores.allocate(job, placement, may_overcommit=True)
        self.running[job] = self.placements[job] = placement
        self.starting_time.write(job, time)
        self.state.write(job, _RUNNING)

    def confirm_start(self, job: int, time: float) -> None:
        """Takes note that a job whose start was asked for runs since a time of the backend's clock.

        Raises:
            BackendError: No start of the job is being waited for, or the time lies before its submission or ahead.
        """
        self._require_starting(job, "confirmed")
        submitted = float(self.workload.submission_time[job])
        if not submitted <= time <= self.now:
            raise BackendError(
                f"job {self._name(job)}: expected a start between {submitted:g} and {self.now:g} s, got {time:g}"
            )
        del self.starting[job]
        self.placements[job] = self.running[job]
        self.starting_time.write(job, time)
        self.state.write(job, _RUNNING)

    def record_speed(
        self, cores: Sequence[int] | NDArray[Any], share: NDArray[np.float64] | float, jobs: Iterable[int]
    ) -> None:
        """Takes note of the speed at which cores compute from now on.

        Args:
            cores: (n,) core ids.
            share: (n,) or one for all, share of their peak speed.
            jobs: The running jobs on them.
        """
        if self.core_speed is None:
            self.core_speed = np.ones(self.platform.n_cores)
        self.core_speed[np.asarray(cores, np.int64)] = share
        for job in jobs:
            self._record_speed_of(job)

    def _record_speed_of(self, job: int) -> None:
        assert self.core_speed is not None
        held = self.running[job]
        speed = float(self.core_speed[self.cores.ids_of(held)].min())
        self.allocations.set_speed(job, held, speed, self.starting_time[job], self.now)

    def start_failed(self, job: int, reason: str) -> None:
        """Takes the cores back from a job that the backend refuses to start, and puts it back into its place.

        Raises:
            BackendError: No start of the job is being waited for.
        """
        self._require_starting(job, "taken back")
        self.failed_starts.append(FailedStart(job, self.starting.pop(job), self.now, reason))
        self.cores.release(job, self.running.pop(job))
        self.ended.append(job)
        self._queue_in_order(job)

    def end(self, job: int, state: int, time: float | None = None) -> None:
        """Takes a running job off its cores, which it has left at a time of the backend's clock, by default now.

        Raises:
            BackendError: The start of the job has not been confirmed.
        """
        if job in self.starting:
            raise BackendError(self._misplacement(job, "ended", "running"))
        self.cores.release(job, self.running.pop(job))
        self.finish_time.write(job, self.now if time is None else time)
        self.state.write(job, state)
        self.ended.append(job)

    def interrupt(self, job: int, lost: float) -> None:
        """Takes a running job off its cores, one of whose nodes fails, and puts it back into its place in the queue.

        Args:
            job: The job.
            lost: Seconds of running that it will have to repeat.
        """
        self.allocations.interrupt(job, self.starting_time[job], self.now, lost)
        self.cores.release(job, self.running.pop(job))
        self.starting_time.write(job, math.nan)
        self.ended.append(job)
        self._queue_in_order(job)

    def fail(self, node: int, until: float) -> None:
        """Takes a node, on which no job runs any more, out of service.

        Args:
            node: The node.
            until: Date of its repair in seconds; not before `repair` is called.
        """
        self.cores.fail(node)
        self.down[node] = None
        self.node_changes.append(node)
        self.outages.append((node, self.now, until))

    def repair(self, node: int) -> None:
        """Puts a node back into service."""
        self.cores.repair(node)
        del self.down[node]
        self.node_changes.append(node)

    def _note_sizes(self, jobs: Workload) -> None:
        """Appends the sizes of jobs, which without core ids may be fractions of cores."""
        if not self.has_core_ids:
            self.size += (jobs.requested_cores * millicores(jobs) / 1000).tolist()
        elif (jobs.cpu != 1).any() or jobs.storage.any() or jobs.has_constraints:
            raise WorkloadError(
                "expected jobs of whole cores (cpu=1) without ephemeral storage and placement constraints, which alone "
                "have core ids; platform.kind=quantities allocates quantities of nodes"
            )

    def _queue_in_order(self, job: int) -> None:
        """Puts a job that has arrived before into the queue, which is in order of submission."""
        behind = bool(self.queue) and next(reversed(self.queue)) > job
        self.queue[job] = None
        if behind:
            in_order = sorted(self.queue)
            self.queue.clear()
            self.queue.update(dict.fromkeys(in_order))
        self.state.write(job, _QUEUED)
        self.submitted.append(job)

    def _leave_queue(self, job: int, done: str) -> None:
        """Removes a queued job without a decision of the scheduler."""
        if job not in self.queue:
            raise BackendError(self._misplacement(job, done, "queued"))
        del self.queue[job]
        # The scheduler has not been told yet of a job submitted at this instant.
        if job in self.submitted:
            self.submitted.remove(job)
        else:
            self.withdrawn.append(job)

    def _require_starting(self, job: int, done: str) -> None:
        if job not in self.starting:
            raise BackendError(self._misplacement(job, f"{done} as started", "starting"))

    def _turn_away(self, job: int) -> None:
        self.state.write(job, FinalState.REJECTED)
        self.rejected.append(job)

    def _name(self, job: int) -> str:
        return str(self.workload.job_id[job]) if 0 <= job < len(self.state) else f"index {job}"

    def __repr__(self) -> str:
        """Shows time, idle cores and the first queued jobs."""
        shown = [f"{self._name(job)} ({self.size[job]:g} cores)" for job in itertools.islice(self.queue, 5)]
        more = f" and {len(self.queue) - 5} more" if len(self.queue) > 5 else ""
        total = self.platform.n_cpu_cores if self.has_core_ids else round(float(self.node_cpu.sum()), 3)
        waiting = f"{', '.join(shown)}{more}" if shown else "empty"
        return (
            f"t={self.now:g} s, {self.n_idle:g} of {total:g} cores idle, {len(self.running)} running, queue: {waiting}"
        )

    def _misplaced(self, job: Any, done: str, expected: str) -> DecisionError:
        return DecisionError(self._misplacement(job, done, expected))

    def _misplacement(self, job: Any, done: str, expected: str) -> str:
        if type(job) is bool or not isinstance(job, int | np.integer):
            return f"expected the number of a job, such as those in cluster.queue, got {job!r}; it cannot be {done}"
        state = FinalState(self.state[job]).name if 0 <= job < len(self.state) else "unknown"
        return f"job {self._name(int(job))} cannot be {done}: expected a {expected} job, it is {state}"
