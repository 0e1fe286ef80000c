"""The state of a simulated or real cluster as schedulers see it, and the few verbs that change it.

Every backend (the SimPy engine, Batsim, Kubernetes) feeds one `Cluster` with the same events, so policies and agents
cannot tell them apart. A backend opens each instant with `next_instant`, then calls `submit`, `refuse` and `end`; a
scheduler calls `start`, `start_on`, `resize`, `set_speed`, `reject` and `kill` and reads the rest. For nodes that
fail, the backend also calls `interrupt`, `fail` and `repair`; for jobs that wait for others, `hold` and `release`.

A start is a request. Most backends carry it out at once. If the backend confirms starts, a job holds its cores
from `start` on but is STARTING until `confirm_start`; `start_failed` takes the cores back and returns the job to its
place in the queue, which an agent sees as an end and a submission, as after the failure of a node.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from types import MappingProxyType
from typing import Any
from weakref import WeakMethod

import numpy as np
from procset import ProcSet

from hdsim.cluster.base import ClusterState
from hdsim.cluster.job_state import UNFINISHED, FailedStart, FinalState, JobView, completed
from hdsim.cluster.selection import policies_in_use
from hdsim.cluster.stores.nodes import NodeCores
from hdsim.cluster.stores.ordered import OrderedCores
from hdsim.errors import ConfigError, DecisionError
from hdsim.util.copies import with_own_containers
from hdsim.util.intervals import Cores, to_ids, to_procset

__all__ = ["UNFINISHED", "Cluster", "FailedStart", "FinalState", "JobView", "completed"]

#: Attributes and methods for schedulers.
_FOR_AGENTS = (
    *("platform", "workload", "now", "queue", "running", "starting", "held", "down", "state", "size", "requests"),
    *("rng", "n_idle_gpus", "expects_jobs"),
    *("submitted", "ended", "rejected", "withdrawn", "node_changes", "failed_starts", "requested_time", "core_speed"),
    *("starting_time", "finish_time", "can_kill", "can_resize", "can_set_speed", "has_core_ids", "n_idle", "node_cpu"),
    *("job", "fits", "pick", "estimate", "speed", "allocation", "idle_cores", "core_ids", "idle_ids", "expect", "fork"),
    *("start", "start_on", "reject", "kill", "resize", "resize_on", "resize_gang", "set_speed", "call_me_later"),
)
_RUNNING, _STARTING = int(FinalState.RUNNING), int(FinalState.STARTING)


class Cluster(ClusterState):
    """The state of a cluster and the decisions of a scheduler; :class:`ClusterState` lists the attributes."""

    __deepcopy__ = with_own_containers

    #: The method `fork` of the simulation, or of what knows its models where another backend runs the jobs; weak, since
    #: it has a reference to the cluster.
    forker: WeakMethod[Callable[..., Any]] | None = None

    def __dir__(self) -> list[str]:
        """Returns what a scheduler reads, asks and decides; the rest is for backends."""
        return list(_FOR_AGENTS)

    def job(self, job: int) -> JobView:
        """Returns what is known of a job that has arrived.

        Raises:
            DecisionError: There is no such job, or it has not arrived.
        """
        known = isinstance(job, int | np.integer) and type(job) is not bool and 0 <= job < len(self.state)
        if not known or self.state[job] == FinalState.NOT_SUBMITTED:
            raise self._misplaced(job, "shown", "submitted")
        jobs, placement, names = self.workload, self.running.get(job), self.platform.node_names
        return JobView(
            jobs.job_id[job],
            FinalState(self.state[job]),
            self.size[job],
            self.requests.gpus[job] if self.requests.gpus else 0,
            float(jobs.submission_time[job]),
            self.requested_time[job],
            int(jobs.user[job]),
            self.starting_time[job],
            () if placement is None else tuple(names[node] for node in self._nodes_of(placement)),
            MappingProxyType(jobs.extra[job] or {}),
        )

    def start(self, job: int, placement: Any = None) -> None:
        """Starts a queued job now on the cores of a placement from `pick` (by default one is picked here).

        The job leaves the queue and holds its cores; where the backend confirms starts, it is STARTING until then.

        Raises:
            DecisionError: The job is not in the queue, or the cores are not idle or not enough.
        """
        if type(job) is not int:
            given: Any = job
            if not isinstance(given, np.integer):
                raise self._misplaced(job, "started", "queued")
            job = int(given)
        if job not in self.queue:
            raise self._misplaced(job, "started", "queued")
        if placement is None:
            placement = self.pick(job)
            if placement is None:
                raise DecisionError(f"job {self._name(job)} cannot be started: it does not fit on the idle cores")
        self.cores.allocate(job, placement)
        del self.queue[job]
        self.running[job] = placement
        self.started.append(job)
        if self.confirms_starts:
            self.starting[job] = self.now
            self.state.write(job, _STARTING)
        else:
            self.placements[job] = placement
            self.starting_time.write(job, self.now)
            self.state.write(job, _RUNNING)
            if self.core_speed is not None:
                self._record_speed_of(job)

    def start_on(self, job: int, cores: Cores) -> None:
        """Starts a queued job now on given cores: a ``ProcSet``, a slice, an array or a sequence of ids.

        Raises:
            DecisionError: The job is not in the queue, or the cores are not idle, not distinct, out of range or not
                as many as it asked for, or their nodes lack memory.
        """
        if not self.has_core_ids:
            raise DecisionError("expected a placement from pick: nodes have amounts here, and cores no ids")
        cores = to_ids(cores, self.platform.n_cores)
        gpus = self.requests.gpus[job] if self.requests.gpus else 0
        wanted = self.size[job] + gpus
        what = f"{self.size[job]} cores and {gpus} GPUs, all distinct" if gpus else f"{wanted} distinct cores"
        if len(cores) != wanted or len(set(cores)) != wanted:
            raise DecisionError(f"job {self._name(job)}: expected {what}, got {cores}")
        self.start(job, self._placement_of(job, cores))

    def resize(self, job: int, placement: Any) -> None:
        """Changes what a running job holds, now; its remaining work is spread over the cores that it then holds.

        The placement names all cores that the job keeps or gets, and as many GPUs to its cores on each of its nodes as
        the job asked for. A job of fixed duration lasts as long as before. When the resize is refused, nothing has
        changed.

        Args:
            job: The job.
            placement: All it is to hold, of the kind that `pick` returns.

        Raises:
            DecisionError: The backend cannot resize jobs; the job does not run, starts at this instant or has a
                program; or there is no core, a core is named twice or busy, GPUs are not in proportion, or a node lacks
                memory.
        """
        if self.state[job] != _RUNNING:
            raise self._misplaced(job, "resized", "running")
        held, ids = self.running[job], self.cores.ids_of(placement)
        try:
            if not self.can_resize or not self.has_core_ids:
                raise DecisionError("the backend has no means to do so")
            if job in self.started:
                raise DecisionError("it starts at this very instant")
            if self.workload.has_programs and self.workload.program[job] is not None:
                raise DecisionError("its program has one task on each of its cores")
            if not ids or len(set(ids)) < len(ids):
                raise DecisionError("expected distinct cores, at least one")
            if ids == self.cores.ids_of(held):
                return
            self.requests.check_gpus(job, np.array(ids), self.platform)
            self._exchange(job, held, placement)
        except DecisionError as error:
            raise DecisionError(f"job {self._name(job)} cannot be resized to cores {ids}: {error}") from None
        self._hold(job, placement)
        self.resized.append(job)
        if self.core_speed is not None:
            self._record_speed_of(job)

    def resize_on(self, job: int, cores: Cores) -> None:
        """Changes the cores that a running job holds, given as for `start_on`; see `resize`."""
        self.resize(job, self._placement_of(job, to_ids(cores, self.platform.n_cores)))

    def resize_gang(self, job: int, cpu: float) -> None:
        """Changes the CPU that a running gang holds, now; its controller decides on it, not the scheduler.

        Args:
            job: The job.
            cpu: CPU in cores, a multiple of 1/1000.

        Raises:
            DecisionError: Its node does not have as much; nothing has changed then.
        """
        self._hold(job, self.cores.resize(job, self.running[job], cpu))
        self.size[job] = cpu

    def set_speed(self, cores: Cores, share: float) -> None:
        """Changes, now, the share of their peak speed at which cores compute, such as by another P-state.

        A busy core draws the same power at any share, as in P-state 1 (75 % of the speed, 100 % of the power).

        Args:
            cores: The cores, as for `start_on`.
            share: Above 0, at most 1.

        Raises:
            DecisionError: The backend cannot change speeds, there is no such core, or the share is out of range.
        """
        if not self.can_set_speed or not self.has_core_ids:
            raise DecisionError("set_speed: the backend has no means to change the speed of single cores")
        last = self.platform.n_cores - 1
        ids = to_ids(cores, self.platform.n_cores)
        if not ids or not all(0 <= core <= last for core in ids):
            raise DecisionError(f"set_speed: expected core ids 0 to {last}, got {ids}")
        if not 0 < share <= 1:
            raise DecisionError(f"set_speed: expected a share of the peak speed above 0 and at most 1, got {share:g}")
        self.speed_changes.append((np.array(ids, np.int64), share))

    def fork(self, agent: Any = None, seed: int | None = None, **assumptions: Any) -> Any:
        """Returns a simulation that begins in the present state.

        See :meth:`hdsim.simulation.simulation.Simulation.fork`, also for the arguments.

        Raises:
            ConfigError: This cluster belongs to no run, or to one that cannot be copied.
        """
        fork = None if self.forker is None else self.forker()
        if fork is None:
            raise ConfigError("fork: expected the cluster of a hdsim.Simulation or of a run on a backend")
        return fork(agent, seed, **assumptions)

    def start_at_once(self) -> None:
        """No start is to be confirmed any more: jobs that are STARTING run since the requests to start them."""
        self.confirms_starts = False
        for job, asked in self.starting.items():
            self.placements[job] = self.running[job]
            self.starting_time.write(job, asked)
            self.state.write(job, _RUNNING)
        self.starting.clear()

    def use_policies(self, core_policy: str, fixed_policy: bool, core_policies: Collection[str]) -> None:
        """Changes the core policies to those of another agent; see :class:`ClusterState`.

        Raises:
            ConfigError: `core_policy` is unknown.
        """
        before, allocations = self.cores, self.allocations
        policies = policies_in_use(core_policy, fixed_policy, core_policies)
        if not isinstance(before, OrderedCores):
            before.policy = core_policy
            return
        if policies == self._policies:
            return
        self._set_store(policies)

        def converted(placement: Any) -> Any:
            return self.cores.placement_of(before.ids_of(placement))

        allocations.closed = [each._replace(placement=converted(each.placement)) for each in allocations.closed]
        for job, placement in self.placements.items():
            self.placements[job] = converted(placement)
        for job, placement in self.running.items():
            self.running[job] = converted(placement)
            self.cores.allocate(job, self.running[job])

    def _hold(self, job: int, placement: Any) -> None:
        """Begins a segment of a running job with another placement."""
        self.allocations.resize(job, self.running[job], placement, self.starting_time[job], self.now)
        self.running[job] = placement

    def _exchange(self, job: int, held: Any, placement: Any) -> None:
        """Takes back what a job holds and allocates something else, or changes nothing at all."""
        store = self.cores
        # Sums of fractions depend on their order: undoing one does not bring back every digit.
        bandwidth = store.free_bandwidth.copy() if isinstance(store, NodeCores) else None
        store.release(job, held)
        try:
            store.allocate(job, placement)
        except DecisionError:
            store.allocate(job, held)
            if bandwidth is not None:
                store.free_bandwidth[:] = bandwidth
            raise

    def _nodes_of(self, placement: Any) -> list[int]:
        """Nodes of a placement, ascending."""
        if not self.has_core_ids:
            return sorted(placement.nodes.tolist())
        found: list[int] = np.unique(
            self.platform.processor_node[self.platform.core_processor[self.cores.ids_of(placement)]]
        ).tolist()
        return found

    def _placement_of(self, job: int, cores: list[int]) -> Any:
        """Turns core ids that an agent chose into a placement."""
        last = self.platform.n_cores - 1
        if not cores or not all(0 <= core <= last for core in cores):
            raise DecisionError(f"job {self._name(job)}: expected core ids 0 to {last}, got {cores}")
        try:
            self.requests.check_gpus(job, np.array(cores, np.int64), self.platform)
        except DecisionError as error:
            raise DecisionError(f"job {self._name(job)}: {error}") from None
        return self.cores.placement_of(cores)

    def reject(self, job: int) -> None:
        """Removes a queued job, which will not run.

        Raises:
            DecisionError: The job is not in the queue.
        """
        if job not in self.queue:
            raise self._misplaced(job, "rejected", "queued")
        del self.queue[job]
        self._turn_away(job)

    def kill(self, job: int) -> None:
        """Asks the backend to kill a running job at this instant; one that is STARTING, as soon as it runs.

        Raises:
            DecisionError: The job does not run, or the backend kills no jobs.
        """
        if job not in self.running:
            raise self._misplaced(job, "killed", "running")
        if not self.can_kill:
            raise DecisionError(f"job {self._name(job)} cannot be killed: the backend kills no jobs")
        self.killed.append(job)

    def call_me_later(self, time: float) -> None:
        """Asks for a scheduling pass at a future time in seconds.

        Raises:
            DecisionError: The time is not in the future.
        """
        if not time > self.now:
            raise DecisionError(f"call_me_later: expected a time after {self.now:g}, got {time:g}")
        self.calls.append(time)

    def fits(self, job: int) -> bool:
        """Whether the idle cores, and memory and GPUs beside them, suffice for a job: then `pick` finds a placement."""
        if self.size[job] > self.n_idle:
            return False
        if self.only_counts:
            return True
        chunk = self.requests.chunk(job)
        return bool(self.cores.chunks(chunk) >= chunk.number)

    def estimate(self, job: int, placement: Any) -> float:
        """Seconds the job is expected to take on the cores of a placement, from its requested time."""
        requested = self.requested_time[job]
        if self.uniform_speed or self.workload.fixed_duration[job]:
            return requested
        return requested / float(self.cores.slowest(placement))

    def speed(self, job: int, placement: Any) -> float:
        """Speed at which a job runs on the cores of a placement relative to the reference speed."""
        return 1.0 if self.uniform_speed or self.workload.fixed_duration[job] else float(self.cores.slowest(placement))

    def expect(self, job: int, seconds: float, limit: float | None = None, corrections: int = 0) -> None:
        """Replaces the requested time of a job by a prediction, in what schedulers read.

        Args:
            job: A queued or running job.
            seconds: Expected run time in seconds at reference speed.
            limit: Longest run time that the job is expected to have if it exceeds the prediction, by default that.
            corrections: Number of corrections of the prediction so far.
        """
        self.requested_time[job] = seconds
        self.expected[job] = (seconds if limit is None else limit, corrections)

    def forget_expected(self) -> None:
        """Takes all predictions back: requested times are those of the workload."""
        for job in self.expected:
            self.requested_time[job] = float(self.workload.requested_time[job])
        self.expected.clear()

    def allocation(self, job: int) -> ProcSet:
        """Cores and GPUs that a started job was given; empty where cores have no ids."""
        return to_procset(self.core_ids(job))

    def idle_cores(self) -> ProcSet:
        """The idle cores and GPUs; empty where cores have no ids."""
        return to_procset(self.idle_ids() if self.has_core_ids else ())

    def core_ids(self, job: int) -> list[int]:
        """Core ids that a started job was given, ascending."""
        ids: list[int] = self.cores.ids_of(self.placements[job])
        return ids

    def idle_ids(self) -> list[int]:
        """Ids of the idle cores and GPUs, ascending."""
        ids: list[int] = self.cores.idle_ids().tolist()
        return ids
