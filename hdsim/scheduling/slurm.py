"""slurmctld's scheduling of the jobs of a site on a cluster: what is pending when, and when passes are made."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from hdsim.cluster.frequencies import refuse_frequencies
from hdsim.cluster.power_budget import refuse_hard_caps
from hdsim.cluster.state import FinalState
from hdsim.errors import ConfigError, WorkloadError
from hdsim.platform.node_state import NodeState

if TYPE_CHECKING:
    from hdsim.cluster.placement import Placement
    from hdsim.cluster.power_budget import PowerBudget
    from hdsim.cluster.state import Cluster
    from hdsim.site.model import Site
    from hdsim.site.scheduler import SlurmScheduler, Start
    from hdsim.util.arrays import Flags, Ints
    from hdsim.workload.model import Workload

#: Seconds in which no change is missed: slurmctld looks once a second.
_TICK = 1.0
#: Seconds after which a requeued job is eligible: the lifetime of a credential, and one.
_REQUEUE_DELAY = 121.0
#: Status of SWF of jobs that were cancelled.
_CANCELLED = 5
_SUCCEEDED = int(FinalState.COMPLETED_SUCCESSFULLY)
#: sacct's words for the states of jobs that have ended.
_STATES = {
    FinalState.COMPLETED_SUCCESSFULLY: "COMPLETED",
    FinalState.COMPLETED_FAILED: "FAILED",
    FinalState.COMPLETED_WALLTIME_REACHED: "TIMEOUT",
    FinalState.COMPLETED_KILLED: "CANCELLED",
}


class SlurmScheduling:
    """Schedules the jobs of a site as slurmctld does.

    After a change the main loop runs ``batch_sched_delay`` later, over all jobs each ``sched_interval``; sched/backfill
    runs each ``bf_interval`` in which something has changed. Passes are made at whole seconds.

    Under a hard cap on the power a job that a pass starts and whose power would break it stays pending, with the reason
    ``PowerNotAvail``. The first such job of an instant has a reservation of power, at the earliest time at which the
    expected ends of the others leave enough. Jobs behind it start on other nodes than its own if it has its power then,
    too, and on any if they end until then, for which a pass is made again without those that lack power.

    At every instant `note`, then the passes that are due, of `run_passes` or of an agent's own after `opens`, then
    `wake` are called.

    Args:
        site: The site.
        cluster: The cluster.
        jobs: Its jobs with names, by default as they are.
        names_nodes: The column ``nodes`` has the nodes of the jobs, which takes a third of the time.
        own_passes: An agent makes passes in place of the main loop and sched/backfill.

    Attributes:
        scheduler: The queue and the passes.
        begin: Seconds since 1970 of the first submission.
        offered: Pending jobs that an agent chooses from, and whether each may start now; None without a decision.

    Raises:
        ConfigError: The platform is not that of the site, the site has rules that are not simulated, or there is a
            hard cap beside preemption or passes of an agent's own.
        WorkloadError: A job asks for something that the site lacks.
    """

    def __init__(
        self,
        site: Site,
        cluster: Cluster,
        *,
        jobs: Workload | None = None,
        names_nodes: bool = True,
        own_passes: bool = False,
    ) -> None:
        from hdsim.site.beginning import running_at_begin
        from hdsim.site.dependencies import Progress, dependencies_of
        from hdsim.site.jobs_table import jobs_table
        from hdsim.site.platform import nodes_of
        from hdsim.site.scheduler import SlurmScheduler
        from hdsim.site.workload import columns_of

        refuse_frequencies(cluster.frequencies, "slurm")
        if own_passes:
            refuse_hard_caps(cluster.budget, "passes of an agent's own over the jobs of a site")
        if site.preemption.type != "none":
            refuse_hard_caps(cluster.budget, "preemption of the jobs of a site")
        workload, platform = jobs or cluster.workload, cluster.platform
        self.site, self.names_nodes = site, names_nodes
        self.offered: tuple[Ints, Flags] | None = None
        self._check_platform(cluster, [kind.cpus for _, kind in nodes_of(self.site)])
        columns = columns_of(workload)
        table = jobs_table(columns, self.site, workload.source)
        self.begin = float(workload.original_submission_time[0]) if len(table) else 0.0
        self._resumed = running_at_begin(workload)
        self.scheduler: SlurmScheduler = SlurmScheduler(self.site, table, self.begin)
        if workload.used is not None:
            self.scheduler.begin_with(workload.used)
        self._jobs = table
        given = self.scheduler.parameters
        self._delay = max(float(given["batch_sched_delay"]), 0.0)
        self._full_interval = max(float(given["sched_interval"]), _TICK)
        self._backfill_interval = max(float(given["bf_interval"]), _TICK)
        self._backfills = self.site.slurm.type == "backfill" and not own_passes
        self._timed = np.array(columns.get("timed") or [False] * len(table), np.bool_)
        self._later: list[tuple[float, int]] = []  # jobs that are looked at again: not eligible yet, or cancelled then
        try:
            self._dependencies = dependencies_of(columns)
        except ValueError as error:
            raise WorkloadError(f"dependency: {error}", where=workload.source) from None
        self._progress = Progress(len(workload))
        self._dependents: dict[int, list[int]] = {}
        for job, dependency in self._dependencies.items():
            for other in dependency.jobs:
                self._dependents.setdefault(other, []).append(job)
        self._cancelled = _cancelled(workload, self.begin)
        self._requeued: set[int] = set()
        self._doomed: dict[int, float] = {}  # preempted jobs, with the time at which they end
        self._main_at = math.inf
        self._passed = -math.inf  # time of the last pass of the main loop
        self._full_at = self.begin
        self._full = False  # the last pass that was due is over all jobs
        self._backfill_at = self.begin
        self._changed = False  # since the last pass of sched/backfill
        self._untested = True  # something has changed since the last pass over all jobs
        self._unseen = False  # a time has come at which a job is eligible, and no pass over all jobs has been since
        # Power that is kept for the first job that lacks it at this instant, from when on, and until when, in seconds;
        # what may let jobs that lack power start, as of the last instant.
        self._kept: tuple[float, float, float] | None = None
        self._prospect: Any = None
        self._cores = _cores_of(platform)
        self._called = -math.inf
        reasons: list[str] = [""] * len(workload)
        on: list[str] = [""] * len(workload)
        self._reasons, self._on = reasons, on
        self._states: list[str] = [""] * len(workload)
        self._restarts = [0] * len(workload)
        self._suspended = [0.0] * len(workload)
        cluster.own_sizes = cluster.notes_refusals = True
        cluster.columns.update(_result_columns(workload, columns, reasons, on))
        cluster.columns.update(state=self._states, restart=self._restarts)
        if self.scheduler.suspends:
            cluster.columns["suspended"] = self._suspended

    def _check_platform(self, cluster: Cluster, cpus: list[int]) -> None:
        if not cluster.has_core_ids:
            raise ConfigError("slurm: expected a backend with core ids and a platform of kind cores", where="agent")
        have = cluster.platform.node_cpu_cores.tolist()
        if have != cpus:
            raise ConfigError(
                f"expected the platform of the site, {len(cpus)} nodes with {sum(cpus)} CPUs, got {len(have)} nodes "
                f"with {sum(have)}; site=FOLDER takes its platform.json",
                where="platform.path",
            )

    def note(self, cluster: Cluster) -> None:
        """Takes note of what has happened; called once at every instant.

        Raises:
            ConfigError: Jobs may have to be suspended, and the backend has no means to do so.
        """
        if self.scheduler.suspends and not cluster.can_suspend:
            raise ConfigError(
                "PreemptMode=SUSPEND: expected no contention model, no failures and no power states of nodes, and a "
                "backend that suspends jobs, such as sim",
                where="site",
            )
        scheduler, now = self.scheduler, self.begin + cluster.now
        if not scheduler.pending:
            self._pass_over(now)
        if scheduler.calculate(now) and scheduler.pending:
            self._changed = self._untested = True
        changed = False
        for job in cluster.ended:
            scheduler.end(job, now)
            changed = True
            preempted = self._doomed.pop(job, None) is not None
            self._states[job] = "PREEMPTED" if preempted else _STATES.get(FinalState(cluster.state[job]), "NODE_FAIL")
            if job in cluster.queue:
                self._restarts[job] = cluster.note_run(job)
                self._reasons[job] = self._on[job] = self._states[job] = ""
                # Slurm counts a requeued job as submitted now.
                self._requeued.add(job)
                self._jobs.submitted[job], self._jobs.eligible[job] = now, now + _REQUEUE_DELAY
            else:
                self._finish(job, now, succeeded=cluster.state[job] == _SUCCEEDED)
        for node in cluster.node_changes:
            scheduler.set_service(node, up=node not in cluster.down)
            changed = True
        for job in cluster.withdrawn:
            self._withdraw(job)
            self._finish(job, now)
            changed = True
        for job in cluster.rejected:
            # Those that could run but for the caps are rejected by them.
            capped = cluster.budget is not None and not scheduler.refusal(job)
            self._reasons[job] = self._reasons[job] or ("PowerNotAvail" if capped else "BadConstraints")
            if math.isnan(self._progress.ended[job]):
                self._finish(job, now)
        if cluster.budget is not None:
            before, self._prospect = self._prospect, cluster.budget.prospect(cluster.now)
            changed |= before != self._prospect
        if self._resumed:
            self._resume(cluster)
        if cluster.ended:
            self._start(cluster, [])
        for job in list(cluster.submitted):
            if job not in cluster.queue:
                continue
            # Dependencies are simulated, other begins are as recorded.
            simulated = job in self._dependencies and job not in self._requeued
            eligible = now if simulated else float(self._jobs.eligible[job])
            heapq.heappush(self._later, (max(eligible, now), job))
            if job in self._cancelled:
                heapq.heappush(self._later, (max(self._cancelled[job], now), job))
        while self._later and self._later[0][0] <= now:
            _, job = heapq.heappop(self._later)
            if job in cluster.queue:
                pending = self._look_at(cluster, job, now)
                # slurmctld makes no pass when a time comes: the next one over all jobs sees the job.
                by_time = pending and self._is_timed(job)
                self._unseen |= by_time
                changed |= pending and not by_time
            elif self._doomed.get(job, math.inf) <= now:
                self._end(cluster, job)
        self._untested |= self._unseen
        if changed:
            self._changed = self._untested = True
            self._main_at = min(self._main_at, max(math.ceil(now), self._passed + self._delay))

    def _resume(self, cluster: Cluster) -> None:
        """Starts the jobs that run at the begin; those for which there is no free CPU are rejected."""
        from hdsim.site.beginning import resume

        held, left = resume(self.scheduler, self._resumed)
        self._start(cluster, held)
        for one in held:
            self._progress.started[one.job] = self._resumed[one.job].start
        for job in left:
            self._turn_away(cluster, job, self.begin, "Resources")
        self._resumed = {}

    def state_at(self, now: float) -> SlurmScheduler:
        """Returns the scheduler, priorities being calculated until a time in seconds since the first submission."""
        self.scheduler.calculate(self.begin + now)
        return self.scheduler

    def _look_at(self, cluster: Cluster, job: int, now: float) -> bool:
        """Cancels a job, or submits it when its dependency is fulfilled; returns whether it is newly pending."""
        if self._cancelled.get(job, math.inf) <= now:
            self._withdraw(job)
            self._turn_away(cluster, job, now, self._reasons[job] or "None")
            return False
        dependency = self._dependencies.get(job)
        waits = dependency is None or job in self._requeued
        if job in self.scheduler.pending or (waits and self._jobs.eligible[job] > now):
            return False
        if dependency is not None:
            fulfilled, later = self._progress.verdict(dependency, now)
            if fulfilled is None:
                self._turn_away(cluster, job, now, "DependencyNeverSatisfied")
                return False
            if not fulfilled:
                self._reasons[job] = "Dependency"
                if later < math.inf:
                    heapq.heappush(self._later, (later, job))
                return False
            self._jobs.eligible[job] = now
        return self._submit(cluster, job, now)

    def _pass_over(self, now: float) -> None:
        """Notes the passes before a time until which nothing was pending."""
        if self._main_at < now:
            self._passed, self._main_at = self._main_at, math.inf
        if self._full_at < now:
            self._full_at = self._next(math.ceil(now) - _TICK, self._full_interval)
            self._passed = max(self._passed, self._full_at - self._full_interval)
        self._changed &= self._backfill_at >= now

    def _is_timed(self, job: int) -> bool:
        """Whether a job has waited for a time: that of ``--begin``, or after it was requeued."""
        return job in self._requeued or (bool(self._timed[job]) and job not in self._dependencies)

    def _finish(self, job: int, now: float, *, succeeded: bool = False) -> None:
        """Notes the end of a job, and looks at those that depend on it."""
        self._progress.ended[job], self._progress.succeeded[job] = now, succeeded
        self._release(job, now)

    def _release(self, job: int, now: float) -> None:
        for other in self._dependents.get(job, ()):
            heapq.heappush(self._later, (now, other))

    def _turn_away(self, cluster: Cluster, job: int, now: float, word: str) -> None:
        self._reasons[job] = word
        cluster.reject(job)
        self._finish(job, now)

    def _submit(self, cluster: Cluster, job: int, now: float) -> bool:
        """Adds a job to the pending ones, or turns it away; returns whether it is pending."""
        word = self.scheduler.refusal(job)
        if word:
            self._turn_away(cluster, job, now, word)
            return False
        self.scheduler.submit(job, now)
        return True

    def _withdraw(self, job: int) -> None:
        if job in self.scheduler.pending:
            self._note_reasons([job])
            self.scheduler.withdraw(job)

    def is_due(self, cluster: Cluster) -> bool:
        """Whether a pass is due: of the main loop, or of sched/backfill."""
        now = self.begin + cluster.now
        return self._main_is_due(now) or self._backfill_is_due(now)

    def opens(self, cluster: Cluster) -> bool:
        """Whether a pass of the main loop is due, which counts as made from then on."""
        now = self.begin + cluster.now
        if not self.scheduler.pending:
            return False
        self._full, due = now >= self._full_at, self._main_is_due(now)
        if self._full:
            self._full_at = self._next(now, self._full_interval)
            self._changed |= self._unseen
            self._unseen = False
        if due or self._full:
            self._passed = now
        if due:
            self._main_at = math.inf
            self._untested = not self._full
        return due

    def _main_is_due(self, now: float) -> bool:
        again = now >= self._full_at and (self._untested or self.scheduler.depends_on_time)
        return bool(self.scheduler.pending) and (now >= self._main_at or again)

    def _backfill_is_due(self, now: float) -> bool:
        return bool(self.scheduler.pending) and self._backfills and now >= self._backfill_at and self._changed

    def run_passes(self, cluster: Cluster) -> None:
        """Makes the passes that are due."""
        scheduler, now = self.scheduler, self.begin + cluster.now
        waiting = bool(scheduler.pending)
        self._kept = None
        if cluster.node_states is not None:
            scheduler.prefer(cluster.node_states.state == NodeState.ON)
        if self.opens(cluster):
            self._start_by(cluster, partial(scheduler.main, now, full=self._full))
            self._preempt(cluster, now)
        if waiting and self._backfills and now >= self._backfill_at:
            self._backfill_at = self._next(now, self._backfill_interval)
            if self._changed:
                self._changed = False
                self._start_by(cluster, partial(scheduler.backfill, now))
                self._preempt(cluster, now)

    def start(self, cluster: Cluster, job: int) -> bool:
        """Starts a pending job, if it may start now; returns whether it has started."""
        started = self.scheduler.main(self.begin + cluster.now, only=job)
        self._start(cluster, started)
        return bool(started)

    def _preempt(self, cluster: Cluster, now: float) -> None:
        """Ends the jobs that the last pass has preempted, those with a time of grace later."""
        for job in self.scheduler.preempted:
            if job in self._doomed:
                continue
            self._doomed[job] = now + self.scheduler.grace(job)
            if self._doomed[job] > now:
                heapq.heappush(self._later, (self._doomed[job], job))
            else:
                self._end(cluster, job)

    def _end(self, cluster: Cluster, job: int) -> None:
        if job not in cluster.running:
            return
        if self.scheduler.requeues(job):
            cluster.requeue(job)
        else:
            cluster.kill(job)

    def _next(self, now: float, interval: float) -> float:
        """The next multiple of an interval since the begin."""
        return self.begin + (math.floor((now - self.begin) / interval) + 1.0) * interval

    def _start_by(self, cluster: Cluster, make_pass: Callable[[], list[Start]]) -> None:
        """Makes a pass, and further ones without the jobs that lack power, as long as some lack it that is left."""
        lacking, without = self._start(cluster, make_pass()), list[int]()
        while lacking:
            without += lacking
            for job in lacking:
                self.scheduler.withdraw(job)
            assert cluster.budget is not None
            if not cluster.budget.startable(cluster.now) >= 1:
                break
            lacking = self._start(cluster, make_pass(), again=True)
        for job in without:
            self.scheduler.submit(job, self.begin + cluster.now)

    def _start(self, cluster: Cluster, started: list[Start], *, again: bool = False) -> list[int]:
        """Starts jobs, see `_place`; after starts and ends others are suspended and resumed."""
        if self.scheduler.suspends:
            suspended, resumed = self.scheduler.shift(self.begin + cluster.now)
            # Jobs that others displace in the pass in which they start, over some that stand still from now on.
            early = {one.job: one for one in started if one.job in suspended}
            for job in [job for job in suspended if job not in early] + list(early):
                self._place(cluster, [early[job]] if job in early else [])
                cluster.suspend(job)
            for job in resumed:
                cluster.resume(job)
                self._suspended[job] = cluster.suspended_time[job]
            started = [one for one in started if one.job not in early]
        return self._place(cluster, started, again=again)

    def _place(self, cluster: Cluster, started: list[Start], *, again: bool = False) -> list[int]:
        """Starts the jobs of a pass, `again` those that end before power is kept; returns those that lack it."""
        lacking: list[int] = []
        if not started:
            return lacking
        idle = cluster.cores.idle
        self._note_reasons([one.job for one in started])
        for one in started:
            chosen = []
            for place, (node, cpus, asked) in enumerate(zip(one.nodes, one.cpus, one.gpus, strict=True)):
                begin, end, gpus = self._cores[node]
                numbers = one.numbers[place] if one.numbers else np.flatnonzero(idle[begin:end])
                chosen.append(begin + numbers[:cpus])
                if asked:
                    chosen.append(gpus[idle[gpus]][:asked])
            placement = cluster.cores.placement_of(np.concatenate(chosen))
            if cluster.budget is not None and not self._has_power(
                cluster, cluster.budget, one.job, placement, again=again
            ):
                lacking.append(one.job)
                self._reasons[one.job] = "PowerNotAvail"
                self.scheduler.take_back(one.job, self.begin + cluster.now)
                continue
            cluster.start(one.job, placement)
            self._changed = self._untested = True
            if self.names_nodes:
                self._on[one.job] = self.scheduler.node_list(one.nodes)
            self._progress.started[one.job] = self.begin + cluster.now
            self._release(one.job, self.begin + cluster.now)
        return lacking

    def _has_power(self, cluster: Cluster, budget: PowerBudget, job: int, placement: Placement, *, again: bool) -> bool:
        """Returns whether a job may start on cores under the caps, beside the job that power is kept for."""
        now = cluster.now
        if cluster.breaks_cap(job, placement):
            if self._kept is None:
                watts, seconds = budget.job_watts(cluster.size[job]), float(cluster.requested_time[job])
                shadow = budget.earliest(watts, seconds, now, now)
                self._kept = watts, shadow, shadow + seconds
            return False
        if self._kept is None:
            return True
        watts, shadow, until = self._kept
        ends = now + cluster.estimate(job, placement)
        return ends <= shadow or (not again and budget.has_room(watts, shadow, until, now, placement.ids))

    def _note_reasons(self, jobs: list[int]) -> None:
        for job, word in zip(jobs, self.scheduler.reasons_of(jobs), strict=True):
            if word != "None" or not self._reasons[job]:
                self._reasons[job] = word

    def wake(self, cluster: Cluster) -> None:
        """Asks for a pass when something may happen; called last at every instant."""
        now, following = self.begin + cluster.now, math.inf
        if self._later:
            following = self._later[0][0]
        if self.scheduler.pending:
            following = min(following, self._main_at, self._full_at)
            if self._backfills and self._changed:
                following = min(following, self._backfill_at)
            if following == self._full_at and not self.awaits(cluster):
                self._note_reasons(list(self.scheduler.pending))
                return
        if following < math.inf:
            # A job that a start has released is looked at in the next second.
            time = max(following, math.floor(now) + _TICK) - self.begin
            if time != self._called:
                self._called = time
                cluster.call_me_later(time)

    def awaits(self, cluster: Cluster) -> bool:
        """Whether a pending job may start later: something runs, comes, ends or decays."""
        now = self.begin + cluster.now
        ahead = bool(cluster.running) or cluster.expects_jobs or bool(self._later) or self._unseen
        if cluster.budget is not None:
            ahead |= cluster.budget.rises_after(cluster.now) or bool(cluster.node_states and cluster.node_states.n_away)
        return ahead or bool((self.scheduler.calendar.end > now).any()) or self.scheduler.decays


def _result_columns(
    workload: Workload, columns: Mapping[str, Any], reasons: list[str], on: list[str]
) -> dict[str, Any]:
    """Columns of jobs.csv."""
    found: dict[str, Any] = {name: columns[name] for name in ("user", "account", "partition", "qos")}
    if "array_job_id" in workload.further:
        found["array_job_id"] = workload.further["array_job_id"]
    found |= {"nodes": on, "reason": reasons}
    if "recorded_start" in workload.further:
        begin = float(workload.original_submission_time[0])
        found["recorded_start"] = workload.further["recorded_start"].astype(np.float64) - begin
    if "recorded_nodes" in workload.further:
        found["recorded_nodes"] = workload.further["recorded_nodes"]
    return found


def _cancelled(workload: Workload, begin: float) -> dict[int, float]:
    """When jobs that never started were cancelled, in seconds since 1970."""
    if not {"recorded_start", "recorded_end"} <= set(workload.further):
        return {}
    start = np.asarray(workload.further["recorded_start"], np.float64)
    end = np.asarray(workload.further["recorded_end"], np.float64)
    rows = np.flatnonzero((workload.status == _CANCELLED) & np.isnan(start) & ~np.isnan(end))
    at = begin + workload.submission_time[rows] + end[rows] - workload.original_submission_time[rows]
    return dict(zip(rows.tolist(), at.tolist(), strict=True))


def _cores_of(platform: Any) -> list[tuple[int, int, np.ndarray]]:
    """The CPU cores of each node, from the first to the one behind the last, and its GPUs."""
    node = platform.processor_node[platform.core_processor]
    is_gpu = platform.is_gpu[platform.core_processor]
    found = []
    for row in range(platform.n_nodes):
        cores = np.flatnonzero((node == row) & ~is_gpu)
        gpus = np.flatnonzero((node == row) & is_gpu)
        found.append((int(cores[0]), int(cores[-1]) + 1, gpus))
    return found
