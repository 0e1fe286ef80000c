"""The discrete-event engine: a SimPy environment that feeds a `Cluster` one instant at a time.

The engine merges three sources of events: arrivals of the sorted trace; an agenda of completions, kills, calls and
changes of nodes, which is a heap of tuples, since SimPy events cost several times as much; and the events of SimPy
processes of the user, which run by SimPy's own stepping.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np
import simpy

from hdsim.cluster.state import Cluster, FinalState
from hdsim.errors import ConfigError, DecisionError
from hdsim.scheduling.machine.walltime import reaches_walltime
from hdsim.simulation.agenda import AFTER_NODES, FIRST, Agenda
from hdsim.simulation.node_power import NodePower
from hdsim.simulation.outages import NodeOutages, Repair
from hdsim.util.arrays import Floats
from hdsim.util.copies import with_own_containers

if TYPE_CHECKING:
    from hdsim.contention.kernels import speeds
    from hdsim.failures import Failures
    from hdsim.power import PowerManagement
    from hdsim.simulation.executor import CoreIds, Executor, JobProgress
    from hdsim.workload.model import Workload

log = logging.getLogger(__name__)

#: Number of instants with changes of nodes and user processes only, after which waiting jobs end the simulation.
_PATIENCE, _PATIENCE_OF_NODE = 10_000, 200
# Plain numbers: looking a member of the enum up costs as much as the rest of a state change.
_SUCCESSFUL, _FAILED = int(FinalState.COMPLETED_SUCCESSFULLY), int(FinalState.COMPLETED_FAILED)


class Rest(NamedTuple):
    """Events to come that are arrivals and ends of jobs at known dates."""

    runtimes: list[float]  # reference seconds of each job
    dates: Mapping[int, float]  # end of each running job in seconds, if no speed changes
    entries: list[tuple[float, int]]  # dates and their jobs in order, outdated ones among them
    limit: int  # number of entries above which outdated ones are removed
    coming: range  # jobs that have not arrived
    killed: list[int]  # running jobs that end at their walltimes
    progress: speeds.State | None  # progress of running jobs under contention


class Engine(simpy.Environment):
    """Simulates the jobs of a cluster, in a SimPy environment in which processes of the user run beside them.

    The order at an instant is: ends of jobs, changes of nodes, processes of the user, arrivals, one scheduling pass. A
    method called at an instant takes effect at that instant.

    Attributes:
        cluster: The state of the cluster.
        over: Whether the simulation has ended.
        deciding: Whether a scheduling pass is under way.
        on_settled: Called after updates of the speeds of jobs, for power models; None for no call.

    Args:
        cluster: The state before the first event.
        executor: Computes the completion dates of jobs, see :mod:`hdsim.simulation.executor`.
        kill_at_walltime: Kill jobs at their walltime, see ``Workload.ends_in_delay``.
        batch_events: One scheduling pass per instant; otherwise one per event, arrivals first.
        infeasible: Jobs that are rejected at their submission.
        failures: Failure model, None without failures.
        rng: Source of the draws of the failure model.
        power: Power management, None where nodes do not sleep.
        boots: Source of the draws of boots that fail, None for boots that never do.
    """

    def __init__(
        self,
        cluster: Cluster,
        executor: Executor,
        *,
        kill_at_walltime: bool = False,
        batch_events: bool = True,
        infeasible: Iterable[int] = (),
        failures: Failures | None = None,
        rng: np.random.Generator | None = None,
        power: PowerManagement | None = None,
        boots: np.random.Generator | None = None,
    ) -> None:
        super().__init__()
        self.cluster, workload = cluster, cluster.workload
        cluster.can_requeue, cluster.can_suspend = True, executor.suspends and failures is None and power is None
        self._agenda = Agenda()
        # Number of agenda entries and events of the user that prevent the end of the simulation.
        self._awaited = 0
        cluster.time_breakdown = executor.time_breakdown
        self._executor = executor
        self._kill_at_walltime = kill_at_walltime
        self._batch_events = batch_events
        self._submission: list[float] = [*workload.submission_time.tolist(), math.inf]
        # Jobs whose date is that of their walltime.
        self._too_long: set[int] = set()
        self._infeasible = set(infeasible)
        # Jobs that end with an error.
        self._failing = set(np.flatnonzero(workload.return_code).tolist())
        self._next = self._calls = 0
        self._notified = self.deciding = self.over = False
        self.on_settled: Callable[[], None] | None = None
        self._idle_instants = 0
        self._patience = max(_PATIENCE, _PATIENCE_OF_NODE * cluster.platform.n_nodes)
        # Whether the dates of jobs are those of the executor.
        self._settled = True
        self._outages = None if failures is None else NodeOutages(self, failures, rng)
        self._power = None if power is None else NodePower(self, power, boots)

    @property
    def executor(self) -> str:
        """Name of the executor."""
        return type(self._executor).__name__

    @property
    def dates(self) -> Mapping[int, float]:
        """Date in seconds at which each running job ends if no speed changes."""
        return self._agenda.dates

    @property
    def batch_events(self) -> bool:
        """Whether there is one scheduling pass per instant, not one per event."""
        return self._batch_events

    # The loop of a replay

    def advance(self, until: float = math.inf) -> bool:
        """Advances to the next instant with events and applies them to the cluster.

        Args:
            until: Last allowed instant, seconds.

        Returns:
            False if there are no events until then.
        """
        cluster, dates, submission = self.cluster, self._agenda, self._submission
        agenda = dates.entries
        # `peek` is slower: without an event, which is the usual case, it raises and catches an error.
        events = self._queue
        cluster.next_instant(cluster.now)
        submitted, ended, batch, submit = cluster.submitted, cluster.ended, self._batch_events, self._submit
        self._notified = False
        if cluster.calls:
            # An agent may ask for calls before the first event.
            self._schedule_calls()
        while True:
            arrival, now = submission[self._next], agenda[0][0]
            if events and events[0][0] < now:
                now = events[0][0]
            if arrival < now:
                now = arrival
            elif arrival == math.inf and (now == math.inf or self._is_over()):
                if not self.over:
                    self.over = True
                    self._warn()
                return False
            self.over = False
            if now > until:
                return False
            self._now = cluster.now = now
            while batch or arrival > now:
                if agenda[0][0] == now:
                    action, argument = dates.pop()
                    if action is None:
                        self._reach_date(argument)
                    else:
                        action(argument)
                elif events and events[0][0] == now:
                    self.step()
                else:
                    break
                self._settled = False
                if not batch:
                    break
            while arrival == now:
                job = self._next
                self._next = job + 1
                submit(job)
                arrival = submission[job + 1] if batch else math.inf
            if submitted or ended or self._notified:
                self.deciding = True
                return True
            self._settle()
            if cluster.calls:
                self._schedule_calls()

    def apply(self) -> None:
        """Carries out the decisions of the scheduler."""
        cluster, self.deciding = self.cluster, False
        decides_more = cluster.decides_more
        if decides_more:
            self._resize()
        if cluster.started:
            self._settled = False
            self._idle_instants = 0
            running, power, executor, now = cluster.running, self._power, self._executor, cluster.now
            paced = cluster.frequencies is not None and cluster.frequencies.used
            for job in cluster.started:
                if power is not None and job in cluster.starting:
                    power.wait(job)
                else:
                    executor.start(job, running[job] if job in running else cluster.suspended[job], now)
                    if paced:
                        self._set_pace(job)
            cluster.started.clear()
        if decides_more:
            self._change_paces()
        if not self._settled:
            self._settle()
        if decides_more:
            for jobs, action in ((cluster.killed, self._kill), (cluster.requeued, self._requeue)):
                for job in jobs:
                    self.schedule_at(cluster.now, action, job)
                jobs.clear()
            cluster.decides_more = cluster.frequencies is not None
        if cluster.calls:
            self._schedule_calls()
        if self._power is not None:
            self._power.apply()

    def _resize(self) -> None:
        """Carries out decisions that come before starts."""
        cluster = self.cluster
        cluster.raise_slowed()
        if cluster.resized:
            # Jobs that start may have cores that others gave up.
            self._settled = False
            self._executor.resize({job: cluster.placements[job] for job in cluster.resized}, cluster.now)
            for job in cluster.resized:
                self._set_pace(job)
            cluster.resized.clear()

    def _change_paces(self) -> None:
        """Carries out suspensions and changes of speeds and frequencies, which come after starts."""
        cluster, executor, now = self.cluster, self._executor, self.cluster.now
        if cluster.paused:
            self._settled = False
            for job, suspended in cluster.paused:
                placement = cluster.placements[job]
                if suspended:
                    self._agenda.dates.pop(job, None)
                    executor.suspend(job, placement, now)
                else:
                    executor.resume(job, placement, now)
                    self._set_pace(job)
            cluster.paused.clear()
        if cluster.speed_changes:
            for cores, share in cluster.speed_changes:
                self.set_speed(cores, share)
            cluster.speed_changes.clear()
        if cluster.frequencies is not None and cluster.frequencies.changed:
            self._settled = False
            for job in cluster.frequencies.changed:
                self._set_pace(job)
            cluster.frequencies.changed.clear()

    def wait_until(self, time: float) -> None:
        """Advances the clock to a time in seconds before the next event."""
        self._now = self.cluster.now = max(time, self.cluster.now)

    # Copies

    def fork(self, memo: dict[int, Any], *, to_come: bool, calls: bool) -> Engine:
        """Returns a copy without processes and events of the user, and its cluster.

        Args:
            memo: Copies by the id of the original, see :func:`copy.deepcopy`.
            to_come: The copy has the arrivals and the outages to come.
            calls: The copy has the calls that the agent has asked for.
        """
        if self._outages is not None and not to_come:
            self._outages.forget(memo)
        if self._power is not None and not to_come:
            self._power.forget(memo)
        memo.update({id(self._queue): [], id(self._eid): count(), id(self.on_settled): None})
        other = with_own_containers(self, memo)
        outages = other._outages

        def unwanted(action: Callable[[Any], Any], argument: Any) -> bool:
            if action == other._call:
                return not calls
            begins = outages is not None and outages.is_to_come(action, argument)
            return not to_come and (begins or action == other._arrive)

        other._agenda.drop(unwanted)
        other._awaited = sum(entry[3] in (other._call, other._arrive) for entry in other._agenda.actions)
        other._calls = sum(entry[3] == other._call for entry in other._agenda.actions)
        if not to_come:
            other.drop_arrivals()
        return other

    def drop_arrivals(self) -> None:
        """Leaves out the jobs of the workload that have not arrived."""
        self._submission[self._next :] = [math.inf]

    def rest(self) -> Rest | None:
        """Returns the events to come; None if there are others than arrivals and ends of rigid jobs."""
        cluster, agenda, executor = self.cluster, self._agenda, self._executor
        waits = self._queue or cluster.held or cluster.started
        if agenda.actions or waits or self._power is not None or cluster.core_speed is not None:
            return None
        if cluster.frequencies is not None and cluster.frequencies.chosen:
            return None
        rigid = executor.rigid_jobs()
        if rigid is None:
            return None
        entries = [(date, job) for date, _, _, _, job in sorted(agenda.entries) if date < math.inf]
        coming = range(self._next, len(self._submission) - 1)
        runtimes, progress = rigid
        return Rest(runtimes, agenda.dates, entries, agenda.limit, coming, list(self._too_long), progress)

    def assume(self, remaining: Callable[[int], float] | None = None) -> None:
        """Changes the run times of all jobs to assumed ones.

        Args:
            remaining: Returns the remaining run time of a running or queued job in reference seconds; None for the
                requested times, which those of all other jobs become anyway.

        Raises:
            ConfigError: `remaining` returns no number of at least 0.
        """
        cluster, executor, now = self.cluster, self._executor, self.cluster.now
        starts, requested = cluster.starting_time[:], cluster.workload.requested_time
        if cluster.frequencies is None:
            runtimes = cluster.requested_time.copy()
            for job in cluster.expected:
                runtimes[job] = float(requested[job])
        else:
            runtimes = requested.tolist()
        for job in cluster.allocations.restarts:
            runtimes[job] = max(runtimes[job] - executor.saved(job, float(cluster.workload.runtime[job])), 0.0)
        if remaining is not None:
            for job in [*cluster.running, *cluster.queue]:
                seconds = float(remaining(job))
                if not 0 <= seconds < math.inf:
                    raise ConfigError(f"expected at least 0 s for job {job}, got {seconds:g}", where="fork: runtimes")
                runs = job in cluster.running and job not in cluster.starting
                runtimes[job] = seconds + (executor.worked(job, now, starts[job]) if runs else 0.0)
        dates = executor.set_runtimes(runtimes, starts, now)
        if cluster.starting:
            dates = {job: date for job, date in dates.items() if job not in cluster.starting}
        self._too_long.clear()
        if self._kill_at_walltime:
            dates = {job: self._limited(job, date) for job, date in dates.items()}
        self._agenda.set_dates(dates)
        self._settle()

    # Methods for processes of the user

    def run(self, until: Any = None) -> NoReturn:
        """Raises an error, since the loop of SimPy has no scheduling passes.

        Raises:
            ConfigError: Always.
        """
        raise ConfigError("expected Simulation.run, run_until or step; simpy.Environment.run has no scheduling passes")

    def schedule_at(self, date: float, action: Callable[[Any], Any], argument: Any, rank: int = FIRST) -> None:
        """Schedules an action at a date in seconds, after actions of lower ranks at the same date."""
        self._agenda.schedule(date, action, argument, rank)

    def at(self, date: float, value: Any = None) -> simpy.Event:
        """Returns an event at a date in seconds, which a relative ``timeout`` can miss by rounding.

        Raises:
            DecisionError: The date has passed.
        """
        if not date >= self.cluster.now:
            raise DecisionError(f"at: expected a date of at least {self.cluster.now:g} s, got {date:g}")
        event = self.event()
        self.schedule_at(date, event.succeed, value)
        return event

    def expect(self, event: simpy.Event) -> simpy.Event:
        """Delays the end of the simulation until an event or process of the user ends; returns the event.

        By default a simulation ends with its last job.
        """
        if event.callbacks is not None:
            self._awaited += 1
            event.callbacks.append(self._happened)
        return event

    def fail(self, node: int, until: float = math.inf) -> simpy.Event:
        """Begins an outage of a node; its jobs return to the queue or, after too many restarts, fail permanently.

        Args:
            node: The node.
            until: Time of the repair in seconds, unless `repair` is called earlier.

        Returns:
            The event of its repair.

        Raises:
            ConfigError: The simulation has no failure model, or the node does not exist.
        """
        repaired = Repair(self)
        self._node_outages(node).fail(node, until, repaired)
        return repaired

    def repair(self, node: int) -> None:
        """Ends all outages of a node.

        Raises:
            ConfigError: The simulation has no failure model, or the node does not exist.
        """
        self._node_outages(node).repair(node)

    @property
    def user_processes(self) -> str:
        """Signs of processes of the user, which have no copies; empty if there are none."""
        if self._active_proc is not None:
            return "one of them runs"
        if self._queue:
            return f"there are events up to {max(self._queue)[0]:g} s"
        if any(isinstance(getattr(entry[3], "__self__", None), simpy.Event) for entry in self._agenda.actions):
            return "one of them waits for a date"
        return "one of them waits for a repair" if self._outages is not None and self._outages.awaited else ""

    # Methods for event sources

    def notify(self) -> None:
        """Requests a scheduling pass at the current instant."""
        self._notified = True

    def add(self, jobs: Workload, *, arrive: bool = True) -> range:
        """Appends jobs to the workload.

        Args:
            jobs: The jobs, with submission times relative to now.
            arrive: Submit them at these times; otherwise the caller submits them.

        Returns:
            The rows of the jobs in the workload.

        Raises:
            BackendError: The cluster was not created with ``open_ended=True``.
        """
        first, now = len(self.cluster.workload), self.cluster.now
        jobs = jobs.replaced(submission_time=now + jobs.submission_time)
        self.cluster.add(jobs)
        self._executor.add(jobs)
        self._failing.update((first + np.flatnonzero(jobs.return_code)).tolist())
        rows = range(first, first + len(jobs))
        if arrive:
            self._awaited += len(rows)
            self._infeasible.update(self.cluster.infeasible(first))
            for row, date in zip(rows, jobs.submission_time.tolist(), strict=True):
                self.schedule_at(date, self._arrive, row, AFTER_NODES)
        return rows

    def set_speed(self, cores: CoreIds, share: Floats | float) -> None:
        """Changes the speed of cores; see :meth:`hdsim.simulation.executor.Executor.set_speed`.

        Raises:
            ConfigError: A share is not a number above 0, a core does not exist, or cores have no ids.
        """
        platform = self.cluster.platform
        if not self.cluster.has_core_ids:
            raise ConfigError("set_speed: expected a platform of kind cores, whose cores have ids")
        chosen, shares = np.asarray(cores, np.int64), np.asarray(share, np.float64)
        if not (np.isfinite(shares) & (shares > 0)).all():
            raise ConfigError(f"set_speed: expected shares of peak speed above 0, got {shares.min():g}")
        if len(chosen) and not 0 <= chosen.min() <= chosen.max() < platform.n_cores:
            raise ConfigError(f"set_speed: expected core ids 0 to {platform.n_cores - 1}, got {chosen.tolist()}")
        self._settled = False
        jobs = self._executor.set_speed(chosen, share, self.cluster.now)
        self.cluster.record_speed(chosen, share, jobs)
        for job in jobs:
            self._set_pace(job)

    def _set_pace(self, job: int) -> None:
        """Makes the cores of a running job as slow for it as its frequency does, beside what their own speed does."""
        cluster = self.cluster
        frequencies = cluster.frequencies
        # A job may have been suspended in the same pass.
        if frequencies is None or not frequencies.used or job not in cluster.running:
            return
        ids = cluster.cpu_ids(job)
        share = 1.0 / frequencies.slowdown(job, frequencies.of(job))
        speed = share if cluster.core_speed is None else cluster.core_speed[ids] * share
        self._executor.set_speed(ids, speed, cluster.now)

    def progress(self, job: int) -> JobProgress:
        """Returns the progress of a running job.

        Raises:
            DecisionError: The job is not running.
        """
        if job not in self.cluster.running:
            raise DecisionError(f"progress: expected a running job, got {job}")
        return self._executor.progress(job, self.cluster.now)

    def begin(self, job: int) -> None:
        """Starts a job that is STARTING."""
        cluster = self.cluster
        self._settled = False
        cluster.confirm_start(job, cluster.now)
        self._executor.start(job, cluster.running[job], cluster.now)
        self._set_pace(job)
        assert self._power is not None
        if job in self._power.doomed:
            self._power.doomed.remove(job)
            # The date of the job's end must not become known after its kill.
            self._settle()
            self.schedule_at(cluster.now, self._kill, job)

    def interrupt(self, job: int, interval: float | None) -> None:
        """Returns a running job, or one that is STARTING, to the queue; see `Executor.interrupt`."""
        cluster = self.cluster
        if self._power is not None and job in cluster.starting:
            self._power.forget_job(job)
            cluster.start_failed(job, "a node failed, or the job was put back into the queue")
            return
        self._agenda.dates.pop(job, None)
        self._settled = False
        # As if it had started later, by the time for which it stood still.
        begin = cluster.starting_time[job] + cluster.suspended_time.get(job, 0.0)
        lost = self._executor.interrupt(job, cluster.now, begin, interval)
        cluster.interrupt(job, lost)

    def stop(self, job: int, state: FinalState) -> None:
        """Ends a running job before its completion."""
        self._agenda.dates.pop(job, None)
        self._settled = False
        self._executor.end(job, self.cluster.now)
        self.cluster.end(job, state)

    # Events

    def _reach_date(self, job: int) -> None:
        now, dates = self.cluster.now, self._agenda.dates
        # The date of an outdated entry is another one.
        if dates.get(job) == now:
            del dates[job]
            if job in self._too_long:
                self.stop(job, FinalState.COMPLETED_WALLTIME_REACHED)
            elif self._executor.advance(job, now):
                self.cluster.end(job, _FAILED if job in self._failing else _SUCCESSFUL)
            elif self._kill_at_walltime:
                limit = self.cluster.starting_time[job] + float(self.cluster.workload.walltime[job])
                if limit <= now:
                    # A step ended at the walltime of its job: the kill belongs to the same scheduling pass.
                    self._settle()

    def _settle(self) -> None:
        """Updates the changed dates of jobs in the agenda."""
        self._settled = True
        set_date = self._agenda.set_date
        for job, date in self._executor.settle(self.cluster.now):
            set_date(job, self._limited(job, date) if self._kill_at_walltime else date)
        if self.on_settled is not None:
            self.on_settled()

    def _limited(self, job: int, date: float) -> float:
        """Returns the date of a job, at most that of its walltime."""
        cluster, jobs = self.cluster, self.cluster.workload
        limit = cluster.starting_time[job] + float(jobs.walltime[job]) + cluster.suspended_time.get(job, 0.0)
        if reaches_walltime(date, limit, jobs.ends_in_delay[job]):
            self._too_long.add(job)
            return limit
        self._too_long.discard(job)
        return date

    def _submit(self, job: int) -> None:
        if job in self._infeasible:
            self.cluster.refuse(job)
            self._notified |= self.cluster.notes_refusals
        else:
            self.cluster.submit(job)

    def _arrive(self, job: int) -> None:
        self._awaited -= 1
        self._submit(job)

    def _kill(self, job: int) -> None:
        if job in self.cluster.starting:
            assert self._power is not None
            self._power.doomed.add(job)
        elif job in self.cluster.running:
            self.stop(job, FinalState.COMPLETED_KILLED)

    def _requeue(self, job: int) -> None:
        if job in self.cluster.running:
            self.interrupt(job, None)

    def _schedule_calls(self) -> None:
        self._awaited += len(self.cluster.calls)
        self._calls += len(self.cluster.calls)
        for date in self.cluster.calls:
            self.schedule_at(date, self._call, None)
        self.cluster.calls.clear()

    def _call(self, _: None) -> None:
        self._awaited -= 1
        self._calls -= 1
        self._notified = True

    def _happened(self, _: simpy.Event) -> None:
        self._awaited -= 1

    def _node_outages(self, node: int) -> NodeOutages:
        if self._outages is None:
            raise ConfigError(
                "nodes can fail where there is a failure model only; failures=external has no outages of its own",
                where="failures",
            )
        nodes = self.cluster.platform.n_nodes
        if not 0 <= node < nodes:
            raise ConfigError(f"expected nodes 0 to {nodes - 1}, got {node}", where="failures")
        return self._outages

    # The end

    def _is_over(self) -> bool:
        """Returns whether the simulation ends where no job is to arrive."""
        cluster = self.cluster
        if cluster.running or cluster.suspended:
            return False
        # Calls that the agent asks for keep nothing going by themselves.
        if self._awaited > self._calls:
            self._idle_instants = 0
            return False
        # On an idle platform a waiting job can only start after a change by nodes or by the user.
        pending = self._power is not None and self._power.pending
        if not cluster.queue or not (cluster.down or self._calls or pending or self.peek() < math.inf):
            return True
        self._idle_instants += 1
        return self._idle_instants > self._patience

    def _warn(self) -> None:
        """Logs waiting jobs and remaining events at the end."""
        cluster, date = self.cluster, self.peek()
        if date < math.inf:
            log.warning(
                "the simulation ended at %g s, with its last job; events of user processes from %g s on are ignored "
                "(Engine.expect delays the end until an event)",
                cluster.now,
                date,
            )
        if self._idle_instants > self._patience:
            log.warning(
                "%d jobs cannot start: none was started at %d instants on an idle platform",
                len(cluster.queue),
                self._patience,
            )
        elif self._outages is not None:
            self._outages.warn_of_lost_jobs()
