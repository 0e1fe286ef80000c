"""The state of a simulated or real cluster as schedulers see it, and the few verbs that change it.

Every backend (the SimPy engine, Batsim, Kubernetes) feeds one `Cluster` with the same events, so policies and agents
cannot tell them apart. A backend opens each instant with `next_instant`, then calls `submit`, `refuse` and `end`; a
scheduler calls `start`, `start_on`, `resize`, `set_speed`, `set_frequency`, `reject` and `kill` and reads the rest. For
nodes that fail, the backend also calls `interrupt`, `fail` and `repair`; for jobs that wait for others, `hold` and
`release`.

A start is a request. Most backends carry it out at once. If the backend confirms starts, or some nodes of the job are
not up yet, a job holds its cores from `start` on but is STARTING until `confirm_start`; `start_failed` takes the cores
back and returns the job to its place in the queue, which an agent sees as an end and a submission, as after the failure
of a node.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from weakref import WeakMethod

import numpy as np
from numpy.typing import NDArray
from procset import ProcSet

from hdsim.cluster.allocations import Allocations
from hdsim.cluster.job_state import (
    UNFINISHED,
    FailedStart,
    FinalState,
    JobView,
    ReadOnlyDict,
    ReadOnlyList,
    WaitingJobs,
    completed,
)
from hdsim.cluster.node_states import NodeStates
from hdsim.cluster.requests import Requests, millicores
from hdsim.cluster.selection import policies_in_use
from hdsim.cluster.stores.failing import FailingCores
from hdsim.cluster.stores.nodes import NodeCores
from hdsim.cluster.stores.ordered import OrderedCores
from hdsim.cluster.stores.quantities import NodeQuantities
from hdsim.cluster.stores.sleeping import SleepingCores
from hdsim.errors import BackendError, ConfigError, DecisionError, WorkloadError
from hdsim.platform.node_state import NodeState
from hdsim.platform.schema import CORES
from hdsim.util.arrays import Floats, Ints
from hdsim.util.copies import with_own_containers
from hdsim.util.intervals import Cores, to_ids, to_procset
from hdsim.workload.feasibility import infeasible_jobs
from hdsim.workload.model import GrowingWorkload

if TYPE_CHECKING:
    from hdsim.cluster.frequencies import Frequencies
    from hdsim.cluster.power_budget import PowerBudget
    from hdsim.cluster.time_breakdown import TimeBreakdown
    from hdsim.gangs.simulation import RunningGang
    from hdsim.platform.model import Platform
    from hdsim.platform.states import Cap
    from hdsim.workload.model import Workload

__all__ = ["UNFINISHED", "Cluster", "FailedStart", "FinalState", "JobView", "completed"]

#: Attributes and methods for schedulers.
_FOR_AGENTS = (
    *("platform", "workload", "now", "queue", "running", "starting", "held", "down", "state", "size", "requests"),
    *("rng", "n_idle_gpus", "expects_jobs", "node_states"),
    *("submitted", "ended", "rejected", "withdrawn", "node_changes", "failed_starts", "requested_time", "core_speed"),
    *(
        "columns",
        "starting_time",
        "finish_time",
        "can_kill",
        "can_resize",
        "can_set_speed",
        "can_set_frequency",
        "frequencies",
        "has_core_ids",
        "n_idle",
        "node_cpu",
        "facility",
    ),
    *("job", "fits", "pick", "estimate", "speed", "allocation", "idle_cores", "core_ids", "idle_ids", "expect", "fork"),
    *(
        "start",
        "start_on",
        "reject",
        "kill",
        "requeue",
        "can_requeue",
        "suspend",
        "resume",
        "suspended",
        "can_suspend",
        "resize",
        "resize_on",
        "resize_gang",
        "set_speed",
        "set_frequency",
        "power_off",
        "power_on",
        "set_suspend_time",
        "suspend_time",
        "call_me_later",
        "note_run",
    ),
)
#: States in which a job that has run ends.
_ENDS = tuple(int(state) for state in FinalState if state.name.startswith("COMPLETED"))
#: Types of an instant; a union of them would be made anew at each one.
_NUMBERS = (float, int, np.number)
# Plain numbers: looking a member of the enum up costs as much as the rest of a state change.
_QUEUED, _RUNNING, _STARTING = int(FinalState.QUEUED), int(FinalState.RUNNING), int(FinalState.STARTING)


class Cluster:
    """Queue, running jobs and idle cores at one instant, and the decisions of a scheduler.

    Attributes:
        platform: The platform.
        now: Time in seconds since the first submission.
        queue: Jobs that wait, as keys in order of submission.
        running: Placement of each job that holds cores, in order of the requests to start them; those that are
            STARTING are among them.
        starting: Jobs whose start the backend has yet to confirm, or whose nodes are not up yet, each with the time of
            the request in seconds.
        suspended: Placement that each suspended job has left, and gets back when it is resumed.
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
        can_set_frequency: Whether the backend carries `set_frequency` out.
        frequencies: Frequencies of jobs, None where the processor types do not share any.
        started: Jobs the scheduler has started in its present pass.
        decides_more: The scheduler has decided on more than starts and calls in its present pass, or may have where
            jobs have frequencies.
        resized: Running jobs the scheduler has resized in its present pass.
        killed: Running jobs the scheduler wants killed.
        requeued: Running jobs that the scheduler wants back in the queue.
        can_requeue: Whether the backend carries `requeue` out.
        paused: Jobs that the scheduler has suspended (True) or resumed in its present pass, in order.
        suspended_time: Seconds for which each job that was resumed has been suspended since its last start.
        can_suspend: Whether the backend carries `suspend` and `resume` out.
        calls: Times at which the scheduler asked to be called again.
        nodes_fail: Nodes may fail.
        node_states: Power states of the nodes, None where nodes do not sleep.
        suspend_time: Seconds after which idle nodes go down by `set_suspend_time`, None as power management says.
        caps: Limits on the power of nodes.
        budget: The power that hard ones leave for starts, None without any.
        down: Nodes that are down, as keys.
        node_changes: Nodes that failed or were repaired at this instant, in order, and those of which pods of others
            take more or less.
        outages: (node, begin, end) in seconds of every outage that has begun; the end may lie ahead.
        failed_starts: Starts that the backend has refused, in order.
        failed_permanently: Jobs that have failed because nodes failed under them too often.
        own_sizes: The scheduler may give a job another number of cores than it asked for, such as whole nodes, by
            `start`; its run time stays the same.
        notes_refusals: A job that is rejected because it could never run triggers a scheduling pass, too.
        columns: Further columns of jobs.csv by name, (J,) values each, which a scheduler may add and change.
        earlier_runs: Values of these columns of runs that were cut short, by job and number of its run; see `note_run`.
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
        resume_rate: Most nodes that begin to boot within 60 s, may be infinite; None where nodes do not sleep.
        time_out: Idle nodes go down without a decision of the scheduler.
        caps: Limits on the power of nodes; with `resume_rate`.
        frequency: Frequency of jobs for which the scheduler has chosen none, GHz; None for the nominal one.
        slows: Jobs that would break a hard cap start at the highest frequency at which they do not, if there is one.
        raises: They rise again as far as the caps allow.
        confirms_starts: The backend calls `confirm_start` or `start_failed` for every job that is started; otherwise a
            started job runs at once.
        has_core_ids: The backend allocates cores with ids; otherwise, and on a platform of kind ``quantities``, jobs
            get amounts of nodes, which may be fractions of cores.
        open_ended: `add` may be called: memory and GPUs of the platform are watched whatever the first jobs ask for.
        rng: For random policies.
    """

    __deepcopy__ = with_own_containers

    #: The method `fork` of the simulation, or of what knows its models where another backend runs the jobs; weak, since
    #: it has a reference to the cluster.
    forker: WeakMethod[Callable[..., Any]] | None = None
    #: Price and carbon intensity as a scheduler knows them, a :class:`hdsim.facility.model.Outlook`; None without.
    facility: Any = None

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
        resume_rate: float | None = None,
        time_out: bool = False,
        caps: Sequence[Cap] = (),
        frequency: float | None = None,
        slows: bool = False,
        raises: bool = False,
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
        self.queue = WaitingJobs()
        self.running = ReadOnlyDict[Any]()
        self.starting = ReadOnlyDict[float]()
        self.suspended = ReadOnlyDict[Any]()
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
        self.speed_changes: list[tuple[Ints, float]] = []
        self.can_set_speed = True
        self.core_speed: Floats | None = None
        self.can_set_frequency = True
        self.killed: list[int] = []
        self.requeued: list[int] = []
        self.can_requeue = False
        self.paused: list[tuple[int, bool]] = []
        self.suspended_time: dict[int, float] = {}
        self._suspended_at: dict[int, float] = {}
        self.can_suspend = False
        self.calls: list[float] = []
        self.nodes_fail = nodes_fail
        self.node_states = None if resume_rate is None else NodeStates(platform, resume_rate, time_out=time_out)
        self.suspend_time: float | None = None
        self.caps = tuple(caps)
        hard = [cap for cap in caps if cap.hard]
        self.budget: PowerBudget | None = None
        if self.node_states is not None and hard:
            from hdsim.cluster.power_budget import PowerBudget

            self.budget = PowerBudget(platform, hard, self.node_states)
        # The placement that `pick` has last found to be within the caps, and at which frequency.
        self._allowed: tuple[Any, float] = None, math.nan
        # Answers of `pick` under hard caps by question, and their moment.
        self._found: dict[Any, Any] = {}
        self._found_at: Any = None
        # When the scheduler has last reserved power for the first job that waits, and that; and what was the same when
        # slowed jobs were last raised.
        self._reserved: tuple[float, tuple[tuple[float, float, float], ...]] = math.nan, ()
        self._raised: Any = None
        # Seconds from the request to start each job until its nodes are up.
        self._delays: dict[int, float] = {}
        self.down: dict[int, None] = {}
        self.node_changes: list[int] = []
        self.outages: list[tuple[int, float, float]] = []
        self.failed_starts: list[FailedStart] = []
        self.failed_permanently: list[int] = []
        self.own_sizes = self.notes_refusals = False
        self.columns: dict[str, Sequence[Any] | NDArray[Any]] = {}
        self.earlier_runs: dict[tuple[int, int], dict[str, Any]] = {}
        self.starting_time = ReadOnlyList([math.nan] * jobs)
        self.finish_time = ReadOnlyList([math.nan] * jobs)
        self.state: ReadOnlyList[int] = ReadOnlyList([FinalState.NOT_SUBMITTED] * jobs)
        self.allocations = Allocations()
        self.placements = self.allocations.placements
        self.has_core_ids = has_core_ids = has_core_ids and platform.kind == CORES
        self.requests = Requests.of(workload, platform, open_ended=open_ended, has_core_ids=has_core_ids)
        plain = not self.requests.memory_matters and self.requests.gpus is None and self.budget is None
        self.only_counts = has_core_ids and plain
        self.uniform_speed = platform.homogeneous_speed
        self.size: list[Any] = self.requests.size if has_core_ids else []
        self._note_sizes(workload)
        self.requested_time: list[float] = workload.requested_time.tolist()
        self.frequencies: Frequencies | None = None
        if self.has_core_ids and platform.frequencies is not None:
            from hdsim.cluster.frequencies import Frequencies

            self.frequencies = Frequencies(platform.frequencies, workload, frequency, slows=slows, raises=raises)
            self._stretch(0)
            if self.budget is not None:
                self.budget.only_nominal = not slows and math.isnan(self.frequencies.default)
        self.decides_more = self.frequencies is not None
        self.expected: dict[int, tuple[float, int]] = {}
        self._only_order = self.only_counts and self.uniform_speed and not needs_processors
        self._set_store(policies_in_use(core_policy, fixed_policy, core_policies))

    def __dir__(self) -> list[str]:
        """Returns what a scheduler reads, asks and decides; the rest is for backends."""
        return list(_FOR_AGENTS)

    def _set_store(self, policies: tuple[str, list[str]]) -> None:
        """Creates the store, without jobs; see `policies_in_use`."""
        self._policies = core_policy, asked = policies
        platform, requests, rng = self.platform, self.requests, self.rng
        self.cores: Any
        if self.requests.places is not None:
            self.cores = NodeQuantities(platform, requests, core_policy, rng)
        elif self.node_states is not None:
            self.cores = SleepingCores(platform, requests, core_policy, rng, self.node_states)
        elif self.nodes_fail:
            self.cores = FailingCores(platform, requests, core_policy, rng)
        elif asked and self._only_order and OrderedCores.suit(asked, platform, requests):
            self.cores = OrderedCores(platform, requests, asked, rng)
        else:
            self.cores = NodeCores(platform, requests, core_policy, rng)

    @property
    def pick(self) -> Callable[..., Any]:
        """``pick(job, core_policy=None, limit=None)`` chooses cores for a queued job without giving them to it yet.

        It returns a placement for `start`, or None when the job does not fit now. `limit` is the most cores each node
        may give, (N,). Under hard caps no placement breaks one; nodes under a cap that the core policy's choice would
        break are left out. If jobs are slowed under caps, the highest frequency has precedence over the core policy.
        """
        return self.cores.pick if self.budget is None else self._pick_under_caps

    def _pick_under_caps(self, job: int, core_policy: str | None = None, limit: Any = None) -> Any:
        budget = self.budget
        assert budget is not None
        if self.size[job] > budget.startable(self.now):
            return None
        if limit is not None or (core_policy or self._policies[0]) == "random":
            return self._within_caps(job, core_policy, limit)
        moment = budget, budget.moment(self.now)
        if self._found_at != moment:
            self._found, self._found_at = {}, moment
        asked: Any = job, core_policy
        if self.frequencies is None and budget.steady:
            # Jobs that differ in requested times alone get the same cores, and draw the same as long as they run.
            asked = self.requests.kind(job), self.requests.bandwidth[job], core_policy
        if asked not in self._found:
            self._found[asked] = self._within_caps(job, core_policy, None)
        return self._found[asked]

    def _within_caps(self, job: int, core_policy: str | None, limit: Any) -> Any:
        for ghz in self.frequencies_of(job):
            left = limit
            while (placement := self.cores.pick(job, core_policy, left)) is not None:
                broken = self._broken_by(job, placement, ghz)
                if not broken.any():
                    self._allowed = placement, ghz
                    return placement
                left = np.where(broken, 0, self.size[job] if left is None else left)
        return None

    def frequencies_of(self, job: int) -> list[float]:
        """Returns the frequencies in GHz at which a queued job may start, the best one first; NaN: the nominal one."""
        return [math.nan] if self.frequencies is None else self.frequencies.candidates(job)

    def frequency_on(self, job: int, placement: Any) -> float:
        """Returns the frequency in GHz at which a queued job would start on a placement, NaN for the nominal one.

        It is that of the scheduler where it would break a hard cap at any.
        """
        asked = self.frequencies_of(job)
        if len(asked) == 1:
            return asked[0]
        within = self._frequency_within_caps(job, placement)
        return asked[0] if within is None else within

    def breaks_cap(self, job: int, placement: Any) -> bool:
        """Returns whether the power of a job that started now on the cores of a placement would break a hard cap."""
        return self.budget is not None and self._frequency_within_caps(job, placement) is None

    def _frequency_within_caps(self, job: int, placement: Any) -> float | None:
        """Returns the best frequency in GHz at which a job breaks no hard cap on a placement, None if there is none."""
        if placement is self._allowed[0]:
            return self._allowed[1]
        return next((ghz for ghz in self.frequencies_of(job) if not self._broken_by(job, placement, ghz).any()), None)

    def _broken_by(self, job: int, placement: Any, ghz: float) -> NDArray[np.bool_]:
        """Returns the (N,) nodes of the hard caps that a start of a job at a frequency in GHz would break."""
        assert self.budget is not None
        assert self.node_states is not None
        ready = self.node_states.up_at(placement.nodes, self.now)
        end = self._latest_end(job, placement, ready, ghz)
        return self.budget.broken(self.now, end, placement.ids, placement.nodes, ready, ghz)

    def _latest_end(self, job: int, placement: Any, start: float, ghz: float) -> float:
        """Returns the end of a job of its requested time, whatever the scheduler expects, in seconds."""
        return start + self._stretched(job, ghz) / self.speed(job, placement)

    def _stretched(self, job: int, ghz: float) -> float:
        """Returns the requested time of a job at a frequency in GHz, seconds at reference speed."""
        requested = float(self.workload.requested_time[job])
        return requested if self.frequencies is None else requested * self.frequencies.slowdown(job, ghz)

    def _stretch(self, first: int) -> None:
        """Makes the requested times of jobs from row `first` on those at the default frequency."""
        assert self.frequencies is not None
        if not math.isnan(self.frequencies.default):
            for job in range(first, len(self.requested_time)):
                self.requested_time[job] = self._stretched(job, self.frequencies.default)

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
        """Goes to an instant in seconds, at which nothing has happened yet.

        Raises:
            BackendError: It lies before the present one, or is no number.
        """
        if not (isinstance(now, _NUMBERS) and self.now <= now < math.inf):
            raise BackendError(f"expected an instant from {self.now:g} s on, got {now!r}")
        if self.arrived >= 2 * self.doubled:
            self.doubled = self.arrived
        self.now = now
        self.submitted.clear()
        self.ended.clear()
        # Mostly empty: looking takes less time than clearing.
        if self.rejected:
            self.rejected.clear()
        if self.withdrawn:
            self.withdrawn.clear()
        if self.node_changes:
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
        if self.frequencies is not None:
            self.frequencies.add(jobs)
            self._stretch(len(self.state))
        self.starting_time.grow([math.nan] * len(jobs))
        self.finish_time.grow([math.nan] * len(jobs))
        self.state.grow([FinalState.NOT_SUBMITTED] * len(jobs))

    def infeasible(self, first: int = 0) -> list[int]:
        """Returns the jobs from row `first` on that do not fit on the empty platform."""
        if not self.has_core_ids:
            return [job for job in range(first, len(self.workload)) if not self.cores.feasible(job)]
        return (first + infeasible_jobs(self.platform, self.workload.rows(first))).tolist()

    def submit(self, job: int) -> None:
        """Puts an arriving job into the queue."""
        self.arrived += 1
        self.queue.add(job, None)
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
        self.running.write(job, placement)
        self.placements[job] = placement
        self.starting_time.write(job, time)
        self.state.write(job, _RUNNING)

    def confirm_start(self, job: int, time: float, placement: Any = None) -> None:
        """Takes note that a job whose start was asked for runs since a time of the backend's clock.

        A `placement` is what it got instead of what was asked for, with the conditions of `adopt`.

        Raises:
            BackendError: No start of the job is being waited for, or the time lies before its submission or ahead.
        """
        self._require_starting(job, "confirmed")
        submitted = float(self.workload.submission_time[job])
        if not submitted <= time <= self.now:
            raise BackendError(
                f"job {self._name(job)}: expected a start between {submitted:g} and {self.now:g} s, got {time:g}"
            )
        self.starting.take(job)
        self._delays.pop(job, None)
        if placement is not None:
            self.cores.release(job, self.running[job])
            self.cores.allocate(job, placement, may_overcommit=True)
            self.running.write(job, placement)
        self.placements[job] = self.running[job]
        self.starting_time.write(job, time)
        self.state.write(job, _RUNNING)
        if self.core_speed is not None:
            self._record_speed_of(job)
        if self.frequencies is not None:
            self.allocations.note_frequency(job, self.frequencies.of(job))

    def record_speed(self, cores: Sequence[int] | NDArray[Any], share: Floats | float, jobs: Iterable[int]) -> None:
        """Takes note of the share of their peak speed at which cores compute from now on; `jobs` run on them."""
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
        self.failed_starts.append(FailedStart(job, self.starting.take(job), self.now, reason))
        self._delays.pop(job, None)
        self._give_back(job)
        self.ended.append(job)
        self._queue_in_order(job)

    def _give_back(self, job: int) -> None:
        self.cores.release(job, self.running.take(job))
        if self.frequencies is not None:
            self.frequencies.release(job)
        if self.budget is not None:
            self.budget.release(job)

    def end(self, job: int, state: int, time: float | None = None) -> None:
        """Takes a running job off its cores, which it has left at a time of the backend's clock, by default now.

        Raises:
            BackendError: The job does not run, its start has not been confirmed, or it cannot end so.
        """
        if job in self.starting or job not in self.running:
            raise BackendError(self._misplacement(job, "ended", "running"))
        if state not in _ENDS or time != time:
            told = f"expected one of {', '.join(FinalState(each).name for each in _ENDS)} and a time, got {state!r}"
            raise BackendError(f"job {self._name(job)}: {told} at {self.now if time is None else time} s")
        self._give_back(job)
        self.finish_time.write(job, self.now if time is None else time)
        self.state.write(job, state)
        self.ended.append(job)

    def interrupt(self, job: int, lost: float) -> None:
        """Puts a running job, one of whose nodes fails, back into its place in the queue; it repeats `lost` seconds."""
        self.allocations.interrupt(job, self.starting_time[job], self.now, lost)
        self._give_back(job)
        self.suspended_time.pop(job, None)
        self.starting_time.write(job, math.nan)
        self.ended.append(job)
        self._queue_in_order(job)

    def fail(self, node: int, until: float) -> None:
        """Takes a node, on which no job runs any more, out of service; its repair is due at a date in seconds."""
        self.cores.fail(node)
        if self.node_states is not None:
            self.node_states.come_up(node, self.now)
        self.down[node] = None
        self.node_changes.append(node)
        self.outages.append((node, self.now, until))

    def repair(self, node: int) -> None:
        """Puts a node back into service."""
        self.cores.repair(node)
        if self.node_states is not None:
            self.node_states.changes += 1
        del self.down[node]
        self.node_changes.append(node)

    # Calls of the scheduler

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
            MappingProxyType(jobs.own_fields(job)),
        )

    def start(self, job: int, placement: Any = None) -> None:
        """Starts a queued job now on the cores of a placement from `pick` (by default one is picked here).

        The job leaves the queue and holds its cores; where the backend confirms starts, it is STARTING until then.
        Nodes of the job that are off boot for it; it is STARTING until all are up.

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
        frequencies = self.frequencies
        if frequencies is None and self.budget is None:
            self.cores.allocate(job, placement)
        else:
            self._allocate_with_power(job, placement)
        self.queue.take(job)
        self.running.add(job, placement)
        self.started.append(job)
        if (self.node_states is not None and self._wake(job, placement)) or self.confirms_starts:
            self.starting.write(job, self.now)
            self.state.write(job, _STARTING)
        else:
            self.placements[job] = placement
            self.starting_time.write(job, self.now)
            self.state.write(job, _RUNNING)
            if self.core_speed is not None:
                self._record_speed_of(job)
            if frequencies is not None and frequencies.used:
                self.allocations.note_frequency(job, frequencies.of(job))

    def _allocate_with_power(self, job: int, placement: Any) -> None:
        """Gives a job its cores and the power that it takes on them."""
        ghz: float | None
        if self.budget is None:
            assert self.frequencies is not None
            ghz = self.frequencies.asked(job)
        else:
            ghz = self._frequency_within_caps(job, placement)
            if ghz is None:
                raise DecisionError(f"job {self._name(job)} cannot be started: its power would break a cap")
        self.cores.allocate(job, placement)
        if self.budget is not None:
            assert self.node_states is not None
            self._allowed, ready = (None, math.nan), self.node_states.up_at(placement.nodes, self.now)
            self.budget.hold(job, placement.ids, self._latest_end(job, placement, ready, ghz), ghz)
        if self.frequencies is not None:
            self._run_at(job, ghz)

    def _run_at(self, job: int, ghz: float) -> None:
        """Takes note of the frequency in GHz at which a job starts, NaN for the nominal one."""
        frequencies = self.frequencies
        assert frequencies is not None
        asked = frequencies.asked(job)
        frequencies.run(job, ghz)
        if not frequencies.same(asked, ghz):
            self.requested_time[job] = self._stretched(job, ghz)
            if frequencies.raises:
                frequencies.slowed[job] = asked

    def _wake(self, job: int, placement: Any) -> bool:
        """Asks the nodes of a job to boot; returns whether any of them is not up."""
        states = self.node_states
        assert states is not None
        if not states.n_away or not (away := states.away(placement.nodes)).size:
            return False
        self._delays[job] = states.up_at(away, self.now) - self.now
        for node in away.tolist():
            states.power_on(node, self.now)
        return True

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
            if self.node_states is not None:
                away = self.node_states.away(placement.nodes)
                if away.size:
                    raise DecisionError(f"node {away[0]} is not up")
            self.requests.check_gpus(job, np.array(ids), self.platform)
            self._exchange(job, held, placement)
            if self.budget is not None and not self._moves_under_caps(job, placement):
                self._exchange(job, placement, held)
                raise DecisionError("its power would break a cap")
        except DecisionError as error:
            raise DecisionError(f"job {self._name(job)} cannot be resized to cores {ids}: {error}") from None
        self._hold(job, placement)
        self._decide(self.resized, job)
        if self.core_speed is not None:
            self._record_speed_of(job)

    def _moves_under_caps(self, job: int, placement: Any) -> bool:
        """Takes note that a running job has another placement, unless a cap would be broken; returns whether it is."""
        assert self.budget is not None
        end = self.budget.release(job)
        ghz = math.nan if self.frequencies is None else self.frequencies.of(job)
        latest = max(end, self.now)
        broken = self.budget.broken(self.now, latest, placement.ids, placement.nodes, self.now, ghz).any()
        self.budget.hold(job, self.running[job].ids if broken else placement.ids, end, ghz)
        return not broken

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
        self._decide(self.speed_changes, (np.array(ids, np.int64), share))

    def set_frequency(self, job: int, ghz: float | None = None) -> None:
        """Chooses the frequency of a job: that of a queued one at its start, that of a running one now.

        A queued job that has started keeps it to its end; one that comes back to the queue starts again at the
        default. Requested times follow, so that reservations do.

        Args:
            job: The job, not one that is STARTING.
            ghz: A frequency of ``frequencies.table`` in GHz; None for the nominal one.

        Raises:
            DecisionError: The backend or the platform has no frequencies, there is no such one, the job is neither
                queued nor running, has a program or a predicted run time, or would break a hard cap at it.
        """
        frequencies = self.frequencies
        if not self.can_set_frequency:
            raise DecisionError("set_frequency: the backend has no means to change frequencies")
        if frequencies is None:
            raise DecisionError("set_frequency: expected processor types that share `frequencies`, got none")
        try:
            wanted = frequencies.checked(frequencies.table.nominal if ghz is None else ghz)
        except ValueError as error:
            raise DecisionError(f"set_frequency: {error}") from None
        queued = job in self.queue
        if not queued and (job not in self.running or job in self.starting):
            raise self._misplaced(job, "set to a frequency", "queued or running")
        if self.workload.has_programs and self.workload.program[job] is not None:
            raise DecisionError(f"set_frequency: job {self._name(job)} has a program")
        if job in self.expected:
            raise DecisionError(f"set_frequency: job {self._name(job)} has a predicted run time")
        if queued:
            frequencies.ask(job, wanted)
            self.requested_time[job] = self._stretched(job, wanted)
            if self.budget is not None:
                self._allowed = None, math.nan
                self.budget.forget()
        elif self._change_frequency(job, wanted):
            frequencies.slowed.pop(job, None)
        else:
            raise DecisionError(f"job {self._name(job)} cannot be set to a frequency: its power would break a cap")

    @property
    def has_slowed(self) -> bool:
        """Whether running jobs that hard caps have slowed may rise to the frequency that they were to have."""
        return self.frequencies is not None and bool(self.frequencies.slowed)

    def reserve_power(self, starts: Iterable[tuple[float, float, float]]) -> None:
        """Keeps power of the whole machine for possible starts of the first job that waits, from jobs that are slowed.

        It does so at this instant.

        Args:
            starts: Begin and end of each in seconds, and the W that the job adds.
        """
        self._reserved = self.now, tuple(starts)

    def raise_slowed(self) -> None:
        """Raises the jobs that hard caps have slowed as far as these allow now, in the order of their starts.

        While jobs wait, none is raised unless the scheduler has reserved power for the first of them in its present
        pass, which a raise leaves.
        """
        frequencies, budget = self.frequencies, self.budget
        if budget is None or frequencies is None or not frequencies.slowed:
            return
        at, reserved = self._reserved
        if not self.queue:
            reserved = ()
        elif at != self.now or not reserved:
            return
        if self._raised == (budget.moment(self.now), reserved):
            return
        room = budget.room(self.now)
        for job in [job for job in frequencies.slowed if job not in self.started and job not in self.starting]:
            for ghz in frequencies.higher(job):
                more = budget.least_more(frequencies.of(job), ghz) * self.size[job]
                if more <= room and self._change_frequency(job, ghz, reserved):
                    if frequencies.same(ghz, frequencies.slowed[job]):
                        del frequencies.slowed[job]
                    room = budget.room(self.now)
                    break
        self._raised = budget.moment(self.now), reserved

    def _change_frequency(self, job: int, ghz: float, reserved: Sequence[tuple[float, float, float]] = ()) -> bool:
        """Changes the frequency of a running job, NaN for the nominal one; returns False if a hard cap forbids it.

        So does power that is reserved, see `reserve_power`.
        """
        frequencies, placement, budget = self.frequencies, self.running[job], self.budget
        assert frequencies is not None
        before = frequencies.of(job)
        if frequencies.same(before, ghz):
            return True
        # The rest of the requested time is stretched.
        ratio = frequencies.slowdown(job, ghz) / frequencies.slowdown(job, before)
        if budget is not None:
            end = budget.release(job)
            later = self.now + (end - self.now) * ratio if end > self.now else end
            latest = max(later, self.now)
            broken = bool(budget.broken(self.now, latest, placement.ids, placement.nodes, self.now, ghz).any())
            if not broken and reserved:
                budget.hold(job, placement.ids, later, ghz)
                broken = not all(budget.has_room(watts, begin, over, self.now) for begin, over, watts in reserved)
                budget.release(job)
            budget.hold(job, placement.ids, end if broken else later, before if broken else ghz)
            if broken:
                return False
        ran = self.now - self.starting_time[job] - self.suspended_time.get(job, 0.0)
        done = ran * self.speed(job, placement)
        left = self.requested_time[job] - done
        if left > 0:
            self.requested_time[job] = done + left * ratio
        frequencies.run(job, ghz)
        frequencies.changed.append(job)
        frequencies.retimed.append(job)
        self.allocations.set_frequency(job, placement, ghz, self.starting_time[job], self.now)
        return True

    def power_off(self, nodes: int | Sequence[int] | NDArray[Any]) -> None:
        """Begins, now, to switch off nodes that are up and serve no job, by their numbers.

        Raises:
            DecisionError: There is no such node, it serves a job, is down or not up, or cannot be switched off.
        """
        states = self._sleeping("power_off")
        asked, up = self._checked_nodes("power_off", nodes), states.state == NodeState.ON
        for node in asked:
            if not self.platform.can_sleep[node]:
                raise DecisionError(f"power_off: node {node} has no power state off")
            if not up[node]:
                raise DecisionError(f"power_off: node {node} is {NodeState(states.state[node]).name}, expected ON")
            if not self.cores.idle_nodes(np.array([node])).size:
                raise DecisionError(f"power_off: node {node} serves a job")
        for node in asked:
            if not self.may_go_down(node):
                raise DecisionError(f"power_off: node {node} would break a cap as it goes down or boots")
            states.power_off(node, self.now)

    def power_on(self, nodes: int | Sequence[int] | NDArray[Any]) -> None:
        """Asks nodes, by their numbers, to boot as soon as they can; nothing happens to those up or booting.

        Raises:
            DecisionError: There is no such node, or it is down.
        """
        states = self._sleeping("power_on")
        for node in self._checked_nodes("power_on", nodes):
            until = states.up_at(np.array([node]), self.now)
            budget, asked = self.budget, states.ready[node] < math.inf
            if budget is not None and not (asked or budget.allows_change(node, NodeState.BOOTING, self.now, until)):
                raise DecisionError(f"power_on: node {node} would break a cap as it boots")
            states.power_on(node, self.now)

    def set_suspend_time(self, seconds: float) -> None:
        """Lets nodes go down once they have been idle for some seconds, those that are idle now included.

        It takes the place of the time-out of power management until the next call; its rates and excluded nodes stay.
        Infinite: no idle node goes down by itself.

        Raises:
            DecisionError: Nodes do not sleep, or the number is negative or not a number.
        """
        self._sleeping("set_suspend_time")
        if not seconds >= 0:
            raise DecisionError(f"set_suspend_time: expected at least 0 s, got {seconds}")
        self.suspend_time = float(seconds)

    def may_go_down(self, node: int) -> bool:
        """Whether no hard cap would be broken by a node that goes down, nor by its boot beside idle nodes."""
        until = self.now + float(self.platform.state_seconds[NodeState.GOING_DOWN, node])
        budget = self.budget
        if budget is None:
            return True
        return bool(budget.can_boot[node]) and budget.allows_change(node, NodeState.GOING_DOWN, self.now, until)

    def _sleeping(self, verb: str) -> NodeStates:
        if self.node_states is None:
            raise DecisionError(f"{verb}: nodes sleep where there is power management only (power=states)")
        return self.node_states

    def _checked_nodes(self, verb: str, nodes: int | Sequence[int] | NDArray[Any]) -> list[int]:
        """Returns node numbers without repetition."""
        asked, last = list(dict.fromkeys(np.atleast_1d(np.asarray(nodes)).tolist())), self.platform.n_nodes - 1
        if not all(type(node) is int and 0 <= node <= last for node in asked):
            raise DecisionError(f"{verb}: expected nodes 0 to {last}, got {nodes}")
        if down := [node for node in asked if node in self.down]:
            raise DecisionError(f"{verb}: node {down[0]} is down")
        return asked

    def wake_delay(self, job: int, placement: Any) -> float:
        """Seconds from now until all nodes of a placement are up, of a job that is STARTING from its request on."""
        if self.node_states is None:
            return 0.0
        if job in self.running:
            return self._delays.get(job, 0.0)
        return self.node_states.up_at(placement.nodes, self.now) - self.now

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
        self.starting.empty()

    def use_policies(self, core_policy: str, fixed_policy: bool, core_policies: Collection[str]) -> None:
        """Changes the core policies to those of another agent; see the arguments of the class.

        Raises:
            ConfigError: `core_policy` is unknown.
        """
        before, allocations = self.cores, self.allocations
        policies = policies_in_use(core_policy, fixed_policy, core_policies)
        if not isinstance(before, OrderedCores):
            before.use(core_policy)
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
            self.running.write(job, converted(placement))
            self.cores.allocate(job, self.running[job])

    def _hold(self, job: int, placement: Any) -> None:
        """Begins a segment of a running job with another placement."""
        self.allocations.resize(job, self.running[job], placement, self.starting_time[job], self.now)
        self.running.write(job, placement)

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
        return np.unique(
            self.platform.processor_node[self.platform.core_processor[self.cores.ids_of(placement)]]
        ).tolist()

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
        self.queue.take(job)
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
        self._decide(self.killed, job)

    def requeue(self, job: int) -> None:
        """Asks the backend to put a running job back into the queue at this instant; all that it has done is lost.

        Raises:
            DecisionError: The job does not run, or the backend requeues no jobs.
        """
        if job not in self.running:
            raise self._misplaced(job, "requeued", "running")
        if not self.can_requeue:
            raise DecisionError(f"job {self._name(job)} cannot be requeued: the backend requeues no jobs")
        self._decide(self.requeued, job)

    def suspend(self, job: int) -> None:
        """Stops a running job, now; it gives its cores back, with memory and GPUs beside them, until `resume`.

        Its walltime stands still meanwhile.

        Raises:
            DecisionError: The job does not run, or the backend suspends no jobs.
        """
        if self.state[job] != _RUNNING:
            raise self._misplaced(job, "suspended", "running")
        if not self.can_suspend:
            raise DecisionError(f"job {self._name(job)} cannot be suspended: the backend suspends no such jobs")
        if job in self.killed or job in self.requeued:
            raise DecisionError(f"job {self._name(job)} cannot be suspended: it ends at this very instant")
        held = self.running[job]
        self.allocations.suspend(job, held, self.starting_time[job], self.now)
        self._give_back(job)
        self.suspended.write(job, held)
        self._suspended_at[job] = self.now
        self.state.write(job, FinalState.SUSPENDED)
        self._decide(self.paused, (job, True))

    def resume(self, job: int) -> None:
        """Continues a suspended job, now, on the cores that it held.

        Raises:
            DecisionError: The job is not suspended, or its cores are not idle.
        """
        if job not in self.suspended:
            raise self._misplaced(job, "resumed", "suspended")
        self.cores.allocate(job, self.suspended[job])
        self.running.write(job, self.suspended.take(job))
        if self.frequencies is not None:
            self.frequencies.run(job, self.allocations.frequency.get(job, math.nan))
        stood = self.now - self._suspended_at.pop(job)
        self.suspended_time[job] = self.suspended_time.get(job, 0.0) + stood
        self.allocations.resume(job, self.now)
        if self.core_speed is not None:
            self._record_speed_of(job)
        self.state.write(job, _RUNNING)
        self._decide(self.paused, (job, False))

    def note_run(self, job: int) -> int:
        """Gives the last run of a job that is back in the queue a row of its own in jobs.csv, with the present columns.

        Returns:
            The number of earlier runs of the job.
        """
        restarts = self.allocations.restarts.get(job, 0)
        if restarts:
            self.earlier_runs[job, restarts - 1] = {name: column[job] for name, column in self.columns.items()}
        return restarts

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
        if self.budget is not None and self.size[job] > self.budget.startable(self.now):
            return False
        if self.only_counts:
            return True
        fits: bool = self.cores.fits(job)
        return fits if self.budget is None else fits and self.pick(job) is not None

    def estimate(self, job: int, placement: Any) -> float:
        """Seconds the job is expected to take on the cores of a placement, from its requested time.

        They include the time until the nodes are up that are not.
        """
        seconds = self.requested_time[job]
        if not (self.uniform_speed or self.workload.fixed_duration[job]):
            seconds /= float(self.cores.slowest(placement))
        if self.frequencies is not None and self.frequencies.slows and job in self.queue:
            seconds *= self.stretch(job, self.frequency_on(job, placement))
        if self.node_states is not None and self.node_states.n_away:
            return self.wake_delay(job, placement) + seconds
        return seconds

    def more_watts(self) -> float:
        """Returns the W that running jobs draw more than at the nominal frequency."""
        frequencies, platform, watts = self.frequencies, self.platform, 0.0
        if frequencies is not None:
            for job, ghz in frequencies.of_running.items():
                if job not in self.starting:
                    types = platform.processor_type[platform.core_processor[self.cpu_ids(job)]]
                    watts += float(frequencies.more_watts(ghz)[types].sum())
        return watts

    def stretch(self, job: int, ghz: float) -> float:
        """Returns the run time of a queued job at a frequency in GHz over that at the one it is to start at."""
        frequencies = self.frequencies
        if frequencies is None:
            return 1.0
        return frequencies.slowdown(job, ghz) / frequencies.slowdown(job, frequencies.asked(job))

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
        """Core ids that a started job was given, also one that is STARTING, ascending.

        Raises:
            DecisionError: The job has no cores and had none.
        """
        placements = self.running if job in self.starting else self.placements
        if job not in placements:
            raise self._misplaced(job, "asked for its cores", "started")
        return self.cores.ids_of(placements[job])

    def cpu_ids(self, job: int) -> Ints:
        """Returns the (n,) ids of the cores without GPUs that a job holds, ascending."""
        ids = np.asarray(self.cores.ids_of(self.running[job]), np.int64)
        return ids if not self.platform.n_gpus else ids[~self.platform.is_gpu[self.platform.core_processor[ids]]]

    def idle_ids(self) -> list[int]:
        """Ids of the idle cores and GPUs, ascending."""
        return self.cores.idle_ids().tolist()

    # Helpers

    def _decide(self, decisions: list[Any], decision: Any) -> None:
        """Takes note of a decision of the scheduler that is neither a start nor a call."""
        decisions.append(decision)
        self.decides_more = True

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
        behind = bool(self.queue) and next(self.queue.latest_first()) > job
        self.queue.write(job, None)
        if behind:
            in_order = sorted(self.queue)
            self.queue.empty()
            self.queue.fill(dict.fromkeys(in_order))
        self.state.write(job, _QUEUED)
        self.submitted.append(job)
        if self.frequencies is not None and self.frequencies.chosen and job not in self.expected:
            self.requested_time[job] = self._stretched(job, self.frequencies.default)

    def _leave_queue(self, job: int, done: str) -> None:
        """Removes a queued job without a decision of the scheduler."""
        if job not in self.queue:
            raise BackendError(self._misplacement(job, done, "queued"))
        self.queue.take(job)
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
