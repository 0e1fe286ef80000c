"""The state of a simulated or real cluster as schedulers see it, and the few verbs that change it.

Every backend (the SimPy engine, Batsim, Kubernetes) feeds one `Cluster` with the same events, so policies and agents
cannot tell them apart. A backend empties
`submitted`, `ended` and `rejected`, then calls `submit`, `refuse` and `end`; a scheduler calls `start`, `start_on`,
`reject` and `kill` and reads the rest. Where nodes fail, the backend also empties `node_changes` and calls `interrupt`,
`fail` and `repair`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hdsim.cluster.placement import Placement
from hdsim.cluster.requests import Requests
from hdsim.cluster.selection import CORE_POLICIES
from hdsim.cluster.stores.failing import FailingCores
from hdsim.cluster.stores.nodes import NodeCores
from hdsim.cluster.stores.ordered import OrderedCores
from hdsim.errors import ConfigError, DecisionError, nearest
from hdsim.util.units import in_bytes

if TYPE_CHECKING:
    from hdsim.cluster.time_breakdown import TimeBreakdown
    from hdsim.platform.model import Platform
    from hdsim.workload.model import Workload


class FinalState(IntEnum):
    """What became of a job; the names are Batsim's where Batsim has one."""

    NOT_SUBMITTED = 0
    QUEUED = 1
    RUNNING = 2
    COMPLETED_SUCCESSFULLY = 3
    COMPLETED_FAILED = 4
    COMPLETED_WALLTIME_REACHED = 5
    COMPLETED_KILLED = 6
    REJECTED = 7


def completed(workload: Workload) -> NDArray[np.int8]:
    """(J,) final state of jobs that run to their own ends."""
    success, failure = FinalState.COMPLETED_SUCCESSFULLY, FinalState.COMPLETED_FAILED
    return np.where(workload.return_code == 0, success, failure).astype(np.int8)


# Plain numbers: looking a member of the enum up costs as much as the rest of a state change.
_QUEUED, _RUNNING = int(FinalState.QUEUED), int(FinalState.RUNNING)


class Interruption(NamedTuple):
    """A start of a job that a failure has cut short."""

    job: int
    placement: Placement
    start: float  # s
    end: float  # s
    lost: float  # s of running that have to be repeated


class Cluster:
    """Queue, running jobs and idle cores at one instant.

    Attributes:
        platform: The platform.
        workload: The jobs; a job is known by its row in it.
        now: Time in s since the first submission.
        queue: Jobs that wait, as keys in order of submission.
        running: Placement of each running job, in order of their starts.
        submitted: Jobs that arrived at this instant, or came back to the queue, in order.
        ended: Jobs that completed, were killed or were interrupted by a failure at this instant, in order.
        rejected: Jobs turned away at this instant, by the scheduler or because they could never run.
        started: Jobs the scheduler has started in its present pass.
        killed: Running jobs the scheduler wants killed.
        calls: Times at which the scheduler asked to be called again.
        nodes_fail: Nodes may fail.
        down: Nodes that are down, as keys.
        node_changes: Nodes that failed or were repaired at this instant, in order.
        outages: (node, begin in s, end in s) of every outage that has begun; the end may lie ahead.
        interruptions: Starts cut short by failures after which jobs went back to the queue, in order of these.
        given_up: Jobs that have failed for good because nodes failed under them too often.
        starting_time: s of the last start, NaN before it and after an interruption; one entry a job.
        finish_time: s, NaN before the end; one entry a job.
        state: :class:`FinalState` of each job.
        size: Requested cores of each job.
        requests: What each job takes from the stores of cores.
        requested_time: s at reference speed, of each job.
        pick: ``pick(job, core_policy=None, limit=None)`` chooses cores for a queued job without giving them to it yet:
            a placement for `start`, or None when the job does not fit now. `limit` is the most cores each node may
            give, (N,).
        placements: Placement of every started job that is not in `compacted`, in order of the starts.
        compacted: Jobs and core ids of earlier starts, in portions.
        time_breakdown: Where the time of jobs with programs goes, None where no job has one.
        rng: For random policies.

    Args:
        platform: The platform.
        workload: The jobs.
        core_policy: Core policy that `pick` uses by default.
        fixed_policy: Promise that no other core policy will be asked for, which permits a quicker store.
        core_policies: Promise that only these will be asked for, and nothing else of the cores, to the same end.
        needs_processors: The backend needs to know which processors a job is on.
        nodes_fail: `fail` will be called.
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
        rng: np.random.Generator | None = None,
    ) -> None:
        if core_policy not in CORE_POLICIES:
            raise ConfigError(
                f"expected one of {', '.join(CORE_POLICIES)}, got '{core_policy}'{nearest(core_policy, CORE_POLICIES)}",
                where="agent.core_policy",
            )
        jobs = len(workload)
        self.rng = rng or np.random.default_rng(0)
        self.time_breakdown: TimeBreakdown | None = None
        self.platform = platform
        self.workload = workload
        self.now = 0.0
        self.queue: dict[int, None] = {}
        self.running: dict[int, Any] = {}
        self.submitted: list[int] = []
        self.ended: list[int] = []
        self.rejected: list[int] = []
        self.started: list[int] = []
        self.killed: list[int] = []
        self.calls: list[float] = []
        self.nodes_fail = nodes_fail
        self.down: dict[int, None] = {}
        self.node_changes: list[int] = []
        self.outages: list[tuple[int, float, float]] = []
        self.interruptions: list[Interruption] = []
        self.given_up: list[int] = []
        self.starting_time: list[float] = [math.nan] * jobs
        self.finish_time: list[float] = [math.nan] * jobs
        self.state: list[int] = [FinalState.NOT_SUBMITTED] * jobs
        self.placements: dict[int, Any] = {}
        self.compacted: list[tuple[NDArray[np.int64], NDArray[np.int32]]] = []
        memory_matters = bool(np.any(workload.memory > 0)) and bool(np.isfinite(platform.memory).any())
        gpus = workload.requested_gpus.tolist() if workload.asks_for_gpus else None
        self.only_counts = not memory_matters and gpus is None
        self.uniform_speed = platform.homogeneous_speed
        self.size: list[int] = workload.requested_cores.tolist()
        self.requested_time: list[float] = workload.requested_time.tolist()
        self._fixed_duration: list[bool] = workload.fixed_duration.tolist()
        memory = in_bytes(workload.memory).tolist() if memory_matters else [0.0] * jobs
        self.requests = Requests(self.size, memory, workload.memory_bandwidth.tolist(), gpus)
        self.cores: Any
        only_order = self.only_counts and self.uniform_speed and not needs_processors
        asked = list(dict.fromkeys([core_policy, *core_policies])) if fixed_policy or core_policies else []
        if nodes_fail:
            self.cores = FailingCores(platform, self.requests, core_policy, self.rng)
        elif asked and only_order and OrderedCores.suit(asked, platform, self.requests):
            self.cores = OrderedCores(platform, self.requests, asked, self.rng)
        else:
            self.cores = NodeCores(platform, self.requests, core_policy, self.rng)
        self.pick: Callable[..., Any] = self.cores.pick

    @property
    def n_idle(self) -> int:
        """Idle cores of the whole platform."""
        return int(self.cores.n_idle)

    @property
    def n_idle_gpus(self) -> int:
        """Idle GPUs of the whole platform; all of them where no job asks for any."""
        gpus = getattr(self.cores, "gpus", None)
        return self.platform.n_gpus if gpus is None else int(gpus.node_idle.sum())

    # What a scheduler calls

    def start(self, job: int, placement: Any = None) -> None:
        """Starts a queued job now on the cores of a placement from `pick` (by default one is picked here).

        Raises:
            DecisionError: The job is not in the queue, or the cores are not idle or not enough.
        """
        if job not in self.queue:
            raise self._misplaced(job, "started", "queued")
        if placement is None:
            placement = self.pick(job)
            if placement is None:
                raise DecisionError(f"job {self._name(job)} cannot be started: it does not fit on the idle cores")
        self.cores.allocate(job, placement)
        del self.queue[job]
        self.running[job] = self.placements[job] = placement
        self.starting_time[job] = self.now
        self.state[job] = _RUNNING
        self.started.append(job)

    def start_on(self, job: int, cores: Sequence[int]) -> None:
        """Starts a queued job now on given core ids.

        Raises:
            DecisionError: The job is not in the queue, or the cores are not idle, not distinct, out of range or not
                as many as it asked for, or their nodes lack memory.
        """
        gpus = self.requests.gpus[job] if self.requests.gpus else 0
        wanted = self.size[job] + gpus
        what = f"{self.size[job]} cores and {gpus} GPUs, all distinct" if gpus else f"{wanted} distinct cores"
        if len(cores) != wanted or len(set(cores)) != wanted:
            raise DecisionError(f"job {self._name(job)}: expected {what}, got {list(cores)}")
        if min(cores) < 0 or max(cores) >= self.platform.n_cores:
            raise DecisionError(
                f"job {self._name(job)}: expected core ids 0 to {self.platform.n_cores - 1}, got {list(cores)}"
            )
        if self.platform.n_gpus:
            self._check_gpus(job, gpus, np.asarray(cores))
        self.start(job, self.cores.placement_of(cores))

    def _check_gpus(self, job: int, gpus: int, ids: NDArray[np.int64]) -> None:
        processor = self.platform.core_processor[ids]
        node, is_gpu = self.platform.processor_node[processor], self.platform.is_gpu[processor]
        devices = np.bincount(node[is_gpu], minlength=self.platform.n_nodes)
        cores = np.bincount(node[~is_gpu], minlength=self.platform.n_nodes)
        if devices.sum() != gpus:
            raise DecisionError(
                f"job {self._name(job)}: expected {gpus} GPUs among its cores, got {ids[is_gpu].tolist()}"
            )
        uneven = np.flatnonzero(devices * self.size[job] != cores * gpus)
        if len(uneven):
            raise DecisionError(
                f"job {self._name(job)}: expected {gpus} GPUs to {self.size[job]} cores on each of its nodes, "
                f"got {devices[uneven[0]]} to {cores[uneven[0]]} on node {uneven[0]}"
            )

    def reject(self, job: int) -> None:
        """Takes a queued job out for good.

        Raises:
            DecisionError: The job is not in the queue.
        """
        if job not in self.queue:
            raise self._misplaced(job, "rejected", "queued")
        del self.queue[job]
        self._turn_away(job)

    def kill(self, job: int) -> None:
        """Asks the backend to kill a running job at this instant.

        Raises:
            DecisionError: The job does not run.
        """
        if job not in self.running:
            raise self._misplaced(job, "killed", "running")
        self.killed.append(job)

    def call_me_later(self, time: float) -> None:
        """Asks for a scheduling pass at a future time in s.

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
        if self.uniform_speed or self._fixed_duration[job]:
            return requested
        return requested / float(self.cores.slowest(placement))

    def core_ids(self, job: int) -> list[int]:
        """Core ids that a started job was given, ascending."""
        ids: list[int] = self.cores.ids_of(self.placements[job])
        return ids

    # What a backend calls

    def submit(self, job: int) -> None:
        """Puts a job into the queue."""
        self.queue[job] = None
        self.state[job] = _QUEUED
        self.submitted.append(job)

    def refuse(self, job: int) -> None:
        """Turns an arriving job away that could not run on the empty platform."""
        self._turn_away(job)

    def end(self, job: int, state: int) -> None:
        """Takes a running job off its cores."""
        self.cores.release(job, self.running.pop(job))
        self.finish_time[job] = self.now
        self.state[job] = state
        self.ended.append(job)

    def interrupt(self, job: int, lost: float) -> None:
        """Takes a running job off its cores, one of whose nodes fails, and puts it back into its place in the queue.

        Args:
            job: The job.
            lost: s of running that it will have to repeat.
        """
        self.interruptions.append(Interruption(job, self.placements.pop(job), self.starting_time[job], self.now, lost))
        self.cores.release(job, self.running.pop(job))
        self.starting_time[job] = math.nan
        self.ended.append(job)
        self.submit(job)
        in_order = sorted(self.queue)
        self.queue.clear()
        self.queue.update(dict.fromkeys(in_order))

    def fail(self, node: int, until: float) -> None:
        """Takes a node, on which no job runs any more, out of service.

        Args:
            node: The node.
            until: s, when it will be repaired; not before `repair` is called.
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

    def compact(self) -> None:
        """Moves the placements known so far into arrays, which take a fraction of the memory."""
        jobs = np.fromiter(self.placements, np.int64, len(self.placements))
        sizes = self.workload.requested_resources[jobs]
        self.compacted.append((jobs, self.cores.cores_of(list(self.placements.values()), sizes)))
        self.placements.clear()

    def check(self) -> None:
        """Asserts every invariant of the state; for tests, costs time in proportion to the platform and all jobs."""
        states = np.array(self.state)
        assert set(self.queue) == set(np.flatnonzero(states == FinalState.QUEUED).tolist()), "queue"
        assert list(self.queue) == sorted(self.queue), "queue out of order"
        assert set(self.running) == set(np.flatnonzero(states == FinalState.RUNNING).tolist()), "running jobs"
        started, finished = np.array(self.starting_time), np.array(self.finish_time)
        submitted = self.workload.submission_time
        assert np.array_equal(~np.isnan(started), np.isin(states, [2, 3, 4, 5, 6])), "a state without its start"
        assert np.array_equal(~np.isnan(finished), np.isin(states, [3, 4, 5, 6])), "a state without its end"
        assert not (started < submitted).any() and not (finished < started).any(), "a job before its time"
        assert not (finished > self.now).any(), "a job ended in the future"
        for job, placement in self.running.items():
            cores = placement.cores if isinstance(placement, Placement) else placement
            assert len(cores) == self.size[job], "a job has not the cores it asked for"
            if self.requests.gpus:
                self._check_gpus(job, self.requests.gpus[job], placement.ids)
        self.cores.check(list(self.running.values()))
        if isinstance(self.cores, NodeCores):
            self._check_memory(self.cores)

    def _check_memory(self, cores: NodeCores) -> None:
        platform = self.platform
        memory, bandwidth = in_bytes(platform.memory), platform.mem_bw.copy()
        for job, placement in self.running.items():
            owner = platform.core_processor[placement.cores]
            np.subtract.at(memory, platform.processor_node[owner], self.requests.memory[job])
            np.subtract.at(bandwidth, owner, self.requests.bandwidth[job])
        assert np.allclose(memory, cores.node_memory), "free memory of nodes"
        assert np.allclose(bandwidth, cores.free_bandwidth), "free bandwidth of processors"

    def _turn_away(self, job: int) -> None:
        self.state[job] = FinalState.REJECTED
        self.rejected.append(job)

    def _name(self, job: int) -> str:
        return str(self.workload.job_id[job]) if 0 <= job < len(self.state) else f"index {job}"

    def _misplaced(self, job: int, done: str, expected: str) -> DecisionError:
        state = FinalState(self.state[job]).name if 0 <= job < len(self.state) else "unknown"
        return DecisionError(f"job {self._name(job)} cannot be {done}: expected a {expected} job, it is {state}")
