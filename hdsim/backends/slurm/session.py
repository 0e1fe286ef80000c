"""The jobs of a run in Slurm: changes of the list of jobs become events of the cluster, decisions become releases.

Nothing depends on a request having been carried out: each list of the jobs is compared with what hdsim knows, and what
differs is asked for again. So a slurmctld that was killed and started again, with an older state perhaps, loses no job.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from hdsim.backends.live import LONGEST_WAIT, LiveSession
from hdsim.backends.slurm.nodes import SlurmNodes, held_cpus
from hdsim.backends.slurm.records import Record
from hdsim.backends.slurm.trace import Trace, ended_comment, has_ended
from hdsim.cluster.requests import Amounts
from hdsim.cluster.state import FinalState
from hdsim.errors import BackendError
from hdsim.slurm.client import NoAnswer, Refused
from hdsim.slurm.objects import Demand, Held, Release, listed
from hdsim.workload.constraints import NODE_NAME, Constraints, Requirement
from hdsim.workload.model import Workload

if TYPE_CHECKING:
    from hdsim.backends.slurm.settings import SlurmSettings
    from hdsim.simulation.setup import ReplaySetup
    from hdsim.slurm.client import Client
    from hdsim.slurm.objects import SlurmJob

T = TypeVar("T")
log = logging.getLogger(__name__)

#: Seconds between two lists of jobs, at least; a list that takes long is made less often, so that slurmctld has time.
_POLL, _SHARE = 0.05, 1.5
#: Seconds after which all jobs are listed though none has changed, as one may be overdue.
_FULL = 5.0
#: Seconds between two looks at the nodes.
_NODES = 1.0
#: Seconds of submissions between two lists of jobs.
_SUBMITTING = 0.25
#: Pauses in seconds before a silent slurmctld is asked again, and before a refused release is repeated.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0
#: Seconds to wait after a signal for starts that are not confirmed.
_CONFIRMING = 3.0
#: Seconds of a job without a time limit, in which the scheduler believes.
_UNKNOWN = 3600.0
#: MiB in a MB.
_MIB = 1e6 / 2**20
_QUEUED, _STARTING, _RUNNING = FinalState.QUEUED, FinalState.STARTING, FinalState.RUNNING
_FINAL = {
    "COMPLETED": FinalState.COMPLETED_SUCCESSFULLY,
    "TIMEOUT": FinalState.COMPLETED_WALLTIME_REACHED,
    "DEADLINE": FinalState.COMPLETED_WALLTIME_REACHED,
    "CANCELLED": FinalState.COMPLETED_KILLED,
    "PREEMPTED": FinalState.COMPLETED_KILLED,
}


class SlurmSession(LiveSession):
    """The jobs of a trace, or those that users have submitted held.

    Args:
        client: The client of slurmctld.
        settings: Settings of the backend.
        scale: Seconds of Slurm's clock in a second.
        setup: The setup of the replay.
        stop: Signals that were received.
    """

    def __init__(
        self, client: Client, settings: SlurmSettings, scale: float, setup: ReplaySetup, stop: Sequence[int]
    ) -> None:
        super().__init__(setup, stop, scale, settings.stop_when_idle)
        self._client, self._settings = client, settings
        self._infeasible = set(setup.infeasible.tolist())
        is_trace = not self.cluster.open_ended
        self._trace = Trace(self.cluster, settings, scale, sorted(self._infeasible)) if is_trace else None
        self._jobs = self._trace
        self._by_id: dict[int, Record] = {}  # records of jobs that others have submitted
        self.records: list[Record] = self._trace.records if self._trace else []
        self._of_job: dict[int, Record] = {record.job: record for record in self.records}
        # Amounts that jobs of others take of nodes, by the ids of the jobs.
        self._others: dict[int, list[tuple[int, Amounts]]] = {}
        self._to_cancel: list[Record] = []
        self._left_alone: set[int] = set()
        self.silences = 0  # times that slurmctld did not answer
        self.continued = False  # the run continues one that was interrupted
        self._silent_since = self._ask_again = self._pause = 0.0
        # Requests whose answers are missing may be carried out: their records wait for the next list.
        self._uncertain: list[Record] = []
        self._next_list = self._next_full = self._next_nodes = 0.0
        self._since = 0
        # Jobs that were submitted by the interrupted run.
        self._found: Sequence[Record] = ()

    # Time

    def clock(self) -> float:
        """Returns the seconds since the begin of the run by Slurm's clock."""
        return self._slurm_time() - self._origin

    def _slurm_time(self) -> float:
        return self._second + (time.monotonic() - self._tick) * self._scale

    def _read_clock(self) -> None:
        """Finds out when a second of slurmctld's clock begins."""
        first = self._client.time()
        while (second := self._client.time()) == first:
            time.sleep(min(0.01, 0.1 / self._scale))
        self._second, self._tick = float(second), time.monotonic()
        self._origin = self._second

    # Begin and end

    def start(self) -> None:
        """Reads clock, nodes and jobs; an interrupted run of a trace is continued.

        Raises:
            ConfigError: The nodes are not those of the platform, or jobs of another trace are there.
            BackendError: slurmctld does not answer.
        """
        self._read_clock()
        partition = None if self._trace is None else self._settings.partition
        self.nodes = SlurmNodes(
            self.cluster, self._client.nodes(), by_features=self._client.by_features, partition=partition
        )
        views = self._client.jobs(0) or ()
        if self._trace is None:
            return
        run = self._trace.unfinished(views)
        if run is None:
            self._trace.begin_at(self._origin, self._infeasible)
        else:
            self._resume(*run)

    def _resume(self, origin: float, views: Mapping[int, SlurmJob]) -> None:
        """Continues a run whose hdsim has ended before it."""
        assert self._trace is not None
        self._origin, self.continued = origin, True
        self._trace.begin_at(origin, [*views, *self._infeasible])
        over = sum(view.ended for view in views.values())
        log.warning(
            "the run %s is continued: of %d jobs %d have ended, %d are in Slurm and %d are not submitted yet",
            self._settings.name,
            len(self.records),
            over,
            len(views) - over,
            len(self.records) - len(views) - len(self._infeasible),
        )
        for job, view in views.items():
            self.records[job].id = view.id
            self.records[job].submitted = float(self.cluster.workload.submission_time[job])
        self._found = [self.records[job] for job in sorted(views)]

    def end(self) -> None:
        """Looks once more after a signal, and waits for starts that are not confirmed.

        An open-ended run ends by SIGTERM in order.
        """
        if self._stop:
            deadline = time.monotonic() + _CONFIRMING
            while not self._silent_since:
                self._next_list = 0.0
                views = self._read()
                self.cluster.next_instant(max(self.cluster.now, self.clock()))
                if views is not None:
                    self._compare(views)
                if not self.cluster.starting or time.monotonic() > deadline:
                    break
                time.sleep(_POLL)
        self.end_open_run()

    # The loop

    def _receive(self) -> tuple[list[Record], Sequence[SlurmJob] | None, Any]:
        """Submits what is due and sends what is left to send; returns what was submitted, jobs and nodes."""
        submitted = self._submit()
        self._send_again()
        return submitted, self._read(), self._read_nodes()

    def _handle(self, news: tuple[list[Record], Sequence[SlurmJob] | None, Any]) -> None:
        submitted, views, nodes = news
        self._arrive(submitted)
        if nodes is not None:
            self.nodes.update(nodes)
        if views is not None:
            self._compare(views)

    def _send(self, now: float) -> None:
        cluster = self.cluster
        for job in cluster.started:
            record, placement = self._of_job[job], cluster.running[job]
            record.asked = tuple(self.nodes.names[node] for node in placement.nodes.tolist())
            record.decided, record.unsent = now, True
        self._to_cancel += [self._of_job[job] for job in cluster.killed]
        if self._trace is not None:
            self._to_cancel += [self._of_job[job] for job in cluster.rejected if job not in self._infeasible]
        for job in cluster.started:
            self._release(self._of_job[job])

    def _is_waiting(self) -> bool:
        return bool(super()._is_waiting() or self._silent_since or self._uncertain)

    def _rest(self, *, over: bool) -> None:
        if over:
            return
        now = time.monotonic()
        until = min(self._next_list, self._next_nodes, now + LONGEST_WAIT, now + self.seconds_until_due())
        time.sleep(max(0.001, max(until, self._ask_again if self._silent_since else 0.0) - now))

    # Requests

    def _asked(self, request: Callable[[], T]) -> T | None:
        """Returns the answer to a request, None if there is none.

        Raises:
            Refused: slurmctld has refused the request.
            BackendError: It has been silent for too long.
        """
        now = time.monotonic()
        if self._silent_since and now < self._ask_again:
            return None
        try:
            answer = request()
        except NoAnswer as error:
            now = time.monotonic()
            if not self._silent_since:
                log.warning("%s; trying again", error)
                self._silent_since, self._pause = now, _FIRST_PAUSE
                self.silences += 1
            if now - self._silent_since > self._settings.timeout:
                raise BackendError(
                    f"{self._client.name} has been silent for {now - self._silent_since:.0f} s: {error}"
                ) from None
            self._ask_again, self._pause = now + self._pause, min(2 * self._pause, _LONGEST_PAUSE)
            return None
        if self._silent_since:
            log.warning("%s answers again", self._client.name)
            # It may have gone back to an older state.
            self._silent_since, self._since, self._next_list = 0.0, 0, 0.0
        return answer

    def _submit(self) -> list[Record]:
        """Submits the jobs that are due; returns those that slurmctld has taken or refused."""
        trace, done = self._trace, list[Record]()
        if trace is None:
            return done
        deadline = time.monotonic() + _SUBMITTING
        while not self._silent_since and time.monotonic() < deadline:
            record = trace.take_due(self.clock())
            if record is None:
                break
            job = trace.submission(record)
            try:
                found = self._asked(lambda job=job: self._client.submit(job))  # type: ignore[misc]
            except Refused as error:
                log.warning("job %s was not submitted: %s", record.job_id, error)
                record.done, record.state = True, "REFUSED"
                done.append(record)
                continue
            if found is None:
                self._uncertain.append(record)
            else:
                record.id = found
                record.submitted = self.clock()
                done.append(record)
        return done

    def _send_again(self) -> None:
        """Sends what is not sent yet, or was refused a while ago."""
        if self._silent_since and time.monotonic() < self._ask_again:
            return
        for record in [self._of_job[job] for job in self.cluster.starting]:
            if record.unsent:
                self._release(record)
        self._to_cancel = [record for record in self._to_cancel if not record.done]
        for record in self._to_cancel:
            # A job that is starting is cancelled as soon as it runs.
            if record.id and record.job not in self.cluster.starting:
                self._cancel(record.id)

    def _release(self, record: Record) -> None:
        """Gives a job its nodes and releases it."""
        if not record.id or time.monotonic() < record.pause_until:
            return
        chunk, placement = self.cluster.requests.chunk(record.job), self.cluster.running[record.job]
        cpus = round(chunk.cores * chunk.cpu)
        asked = record.demand
        release = Release(
            job=record.id,
            nodes=record.asked,
            tasks=chunk.number if asked is None else asked.tasks,
            cpus=cpus if asked is None else asked.cpus,
            least=cpus * int(placement.pods.min()),
            again=record.taken_back,
        )
        record.releases += 1
        try:
            if self._asked(lambda: self._client.release(release) or True) is None:
                return
        except Refused as error:
            record.refused += 1
            record.pause_until = time.monotonic() + min(_FIRST_PAUSE * 2**record.refused, 10.0)
            record.refusal = str(error)
            log.warning("job %s was not released to %s: %s", record.job_id, listed(record.asked), error)
            self._next_list = 0.0
            record.unsent = False
            record.taken_back = True
            return
        record.unsent, record.refused, record.released = False, 0, self.clock()
        self._next_list = min(self._next_list, time.monotonic() + _POLL)

    def _cancel(self, job: int) -> None:
        try:
            self._asked(lambda: self._client.cancel(job) or True)
        except Refused as error:
            log.warning("job %d of Slurm was not cancelled: %s", job, error)

    def _hold(self, record: Record) -> bool:
        """Holds a job that waits to be decided on; False if it was not held."""
        try:
            required = () if record.demand is None else record.demand.required
            done = self._asked(lambda: self._client.hold(record.id, required) or True)
        except Refused as error:
            log.warning("job %s was not held: %s", record.job_id, error)
            return False
        record.taken_back = True
        return done is not None

    def _read(self) -> Sequence[SlurmJob] | None:
        """Returns all jobs, None if it is too early, none has changed or slurmctld is silent."""
        begin = time.monotonic()
        if begin < self._next_list:
            return None
        since = int(self._slurm_time()) - 2
        if begin > self._next_full:
            self._since, self._next_full = 0, begin + _FULL
        # None stands for no change as well as for no answer.
        told = self._asked(lambda: (self._client.jobs(self._since),))
        took = time.monotonic() - begin
        if told is None:
            return None
        self._since = max(0, since)
        self._next_list = time.monotonic() + max(_POLL, _SHARE * took)
        return told[0]

    def _read_nodes(self) -> Any:
        if time.monotonic() < self._next_nodes:
            return None
        self._next_nodes = time.monotonic() + _NODES
        return self._asked(self._client.nodes)

    # Events

    def _arrive(self, submitted: Sequence[Record]) -> None:
        """Takes note of submitted jobs, and of jobs of the trace that fit on no empty nodes."""
        cluster = self.cluster
        found, self._found = self._found, ()
        for job in sorted(self._infeasible):
            if cluster.state[job] == FinalState.NOT_SUBMITTED and cluster.workload.submission_time[job] <= cluster.now:
                self.records[job].done = True
                cluster.refuse(job)
        for record in sorted([*found, *submitted], key=lambda each: each.job):
            if cluster.state[record.job] != FinalState.NOT_SUBMITTED:
                continue
            if record.done:
                cluster.refuse(record.job)
            else:
                cluster.submit(record.job)

    def _compare(self, views: Sequence[SlurmJob]) -> None:
        """Brings the cluster up to what slurmctld lists."""
        seen: set[int] = set()
        arrived: list[tuple[SlurmJob, Demand]] = []
        running: set[int] = set()
        for view in views:
            record = self._record_of(view)
            if record is not None:
                if record.id == view.id:
                    seen.add(record.job)
                    self._settle(record, view)
                elif view.pending:
                    # It was submitted twice, as the answer to the first submission came too late.
                    self._cancel(view.id)
            elif demand := self._wanted(view):
                arrived.append((view, demand))
            elif view.running:
                running.add(view.id)
                self._occupy(view)
        for job in [job for job in self._others if job not in running]:
            self._vacate(job)
        for record in [each for each in self.records if each.id and not each.done and each.job not in seen]:
            self._miss(record)
        if self._trace is not None:
            for record in self._uncertain:
                if not record.id:
                    self._trace.submit_again(record)
            self._uncertain.clear()
        if arrived:
            self._add(arrived)

    def _record_of(self, view: SlurmJob) -> Record | None:
        if self._trace is None:
            record = self._by_id.get(view.id)
            if record is not None and record.done and not view.ended:
                # A user has it run once more.
                del self._by_id[view.id]
                return None
            return record
        record = self._trace.record_of(view)
        if record in self._uncertain:
            assert record is not None
            record.id, record.submitted = view.id, self.clock()
            self._uncertain.remove(record)
            self._arrive([record])
        return record

    def _wanted(self, view: SlurmJob) -> Demand | None:
        """Returns the request of a job that someone has submitted held, or that runs already; None for other jobs."""
        if self._trace is not None or view.ended or view.waits or view.id in self._left_alone:
            return None
        if self._settings.partition not in (None, view.partition) or not (view.held or view.running):
            return None
        try:
            demand = self._asked(lambda: self._client.demand(view.id, frozenset(self.nodes.number)))
        except Refused:
            return None
        if demand is None:
            return None
        if view.running:
            return demand
        reason = f"hdsim does not know {demand.unsupported}" if demand.unsupported else ""
        if view.reason == "JobHeldAdmin":
            # slurmrestd holds as an administrator does what hdsim has released before.
            reason = reason or ("" if demand.on_nodes else "an administrator holds it")
        else:
            demand = replace(demand, on_nodes=False)
        if not (reason or self._allowed(demand, view)):
            reason = f"no node of the platform is in partition {view.partition} and as it asks for"
        if reason:
            self._left_alone.add(view.id)
            log.warning("job %d of Slurm stays held: %s", view.id, reason)
            return None
        return demand

    def _allowed(self, demand: Demand, view: SlurmJob) -> tuple[str, ...]:
        """Returns the nodes of the platform that a job may be on."""
        views = (self.nodes.views[name] for name in self.nodes.names if name in self.nodes.views)
        return tuple(node.name for node in views if demand.allows(node, view.partition))

    def _constraints(self, demand: Demand, view: SlurmJob) -> Constraints | None:
        names = self._allowed(demand, view)
        if view.running or len(names) == len(self.nodes.names):
            return None
        return Constraints(affinity=((Requirement(NODE_NAME, "In", names),),))

    def _add(self, arrived: Sequence[tuple[SlurmJob, Demand]]) -> None:
        """Makes jobs of those that someone else has submitted."""
        cluster, now = self.cluster, self.cluster.now
        first, n = len(cluster.state), len(arrived)
        demands = [demand for _, demand in arrived]
        limits = [_UNKNOWN if demand.limit is None else demand.limit for demand in demands]
        rows = Workload.from_columns(
            submission_time=np.zeros(n),
            runtime=limits,
            requested_cores=[1 if demand.one_node else demand.tasks for demand in demands],
            requested_gpus=[demand.gpus * (1 if demand.one_node else demand.tasks) for demand in demands],
            job_id=[view.id for view, _ in arrived],
            cpu=[float(demand.cpus * (demand.tasks if demand.one_node else 1)) for demand in demands],
            memory=[demand.memory / _MIB for demand in demands],
            constraints=[self._constraints(demand, view) for view, demand in arrived],
            user=[demand.user for demand in demands],
            source="<cluster>",
        )
        cluster.add(rows.replaced(submission_time=np.full(n, now)))
        for job, (view, demand) in enumerate(arrived, first):
            again = view.reason == "JobHeldAdmin"
            record = Record(job, view.id, id=view.id, submitted=now, taken_back=again, demand=demand)
            self.records.append(record)
            self._by_id[view.id] = self._of_job[job] = record
            if view.running:
                self._adopt(record, view)
            elif cluster.cores.feasible(job):
                cluster.submit(job)
            else:
                log.warning("job %d of Slurm stays held: %s", view.id, cluster.cores.explain(job, empty=True))
                cluster.refuse(job)

    def _settle(self, record: Record, view: SlurmJob) -> None:
        """Brings the state of a job up to Slurm's."""
        record.state = view.state
        state = self.cluster.state[record.job]
        if record.done or state == FinalState.REJECTED:
            if self._trace is not None and not view.ended and record.done:
                self._bury(record, view)
            elif view.ended:
                record.done = True
            return
        if view.pending:
            self._wait(record, view, state)
        elif view.running:
            self._run(record, view, state)
        else:
            self._finish(record, view, state)

    def _wait(self, record: Record, view: SlurmJob, state: int) -> None:
        cluster = self.cluster
        if state == _RUNNING:
            log.warning("job %s waits again: %s", record.job_id, view.reason)
            self._interrupt(record)
            state = _QUEUED
        if state == _QUEUED and not view.held:
            self._hold(record)
        elif state == _STARTING and record.refused and not record.unsent:
            cluster.start_failed(record.job, record.refusal)
        elif state == _STARTING and view.held:
            # Perhaps slurmctld was killed and has forgotten the release.
            record.unsent = True
        elif state == _STARTING and not record.unsent:
            waited = (self.clock() - record.released) / self._scale
            if waited > self._settings.start_timeout and self._hold(record):
                log.warning("job %s has not started on %s: %s", record.job_id, listed(record.asked), view.reason)
                cluster.start_failed(record.job, view.reason)

    def _run(self, record: Record, view: SlurmJob, state: int) -> None:
        if state == _RUNNING and record.begin and view.begin != record.begin:
            log.warning("job %s was started again by Slurm", record.job_id)
            self._interrupt(record)
            state = _QUEUED
        if state == _RUNNING and self._trace is not None:
            end = record.started + self._trace.runtime(record)
            if self.cluster.now - end > self._settings.start_timeout * self._scale:
                # Its sleep is over, but slurmctld was killed after it had heard of the end.
                record.finished, record.done = end, True
                self.cluster.end(record.job, self._trace.final_state(record), end)
                self._bury(record, view)
        elif state == _STARTING:
            self._confirm(record, view)
        elif state == _QUEUED:
            if not self.continued or record.releases:
                log.warning("job %s runs on %s, not by this instance", record.job_id, listed(view.nodes))
            self._adopt(record, view)

    def _finish(self, record: Record, view: SlurmJob, state: int) -> None:
        cluster, job = self.cluster, record.job
        if state == _STARTING:
            if view.has_run:
                self._confirm(record, view)
            else:
                cluster.start_failed(job, f"it is {view.state.lower()}")
                state = _QUEUED
        if state == _QUEUED and not view.has_run:
            cluster.withdraw(job)
        else:
            if state == _QUEUED:
                self._adopt(record, view)
            end, final = view.end - self._origin, _FINAL.get(view.state, FinalState.COMPLETED_FAILED)
            if self._trace is not None and has_ended(view):
                end, final = record.started + self._trace.runtime(record), self._trace.final_state(record)
            record.finished = min(cluster.now, max(record.started, end))
            cluster.end(job, final, record.finished)
        record.done = True

    def _bury(self, record: Record, view: SlurmJob) -> None:
        """Cancels a job that has ended, which slurmctld has forgotten; its comment keeps that for later runs."""
        if not record.forgotten:
            record.forgotten = True
            log.warning("job %s has ended and is cancelled, as slurmctld has forgotten that", record.job_id)
        try:
            if not has_ended(view):
                self._asked(lambda: self._client.comment(view.id, ended_comment(record)) or True)
        except Refused as error:
            log.warning("job %s keeps its comment: %s", record.job_id, error)
        self._cancel(view.id)

    def _miss(self, record: Record) -> None:
        """Takes note of a job that slurmctld does not list any more."""
        cluster, job = self.cluster, record.job
        state = cluster.state[job]
        if self._trace is not None:
            log.warning("slurmctld has lost job %s, which is submitted again", record.job_id)
            if state == _RUNNING:
                self._interrupt(record)
            elif state == _STARTING:
                record.unsent = True
            self._trace.submit_again(record)
            return
        log.warning("slurmctld has no job %s any more", record.job_id)
        record.done = True
        if state == _STARTING:
            cluster.start_failed(job, "slurmctld has lost it")
            state = _QUEUED
        if state == _QUEUED:
            cluster.withdraw(job)
        elif state == _RUNNING:
            record.finished = cluster.now
            cluster.end(job, FinalState.COMPLETED_FAILED)

    def _interrupt(self, record: Record) -> None:
        """Puts a running job that Slurm has requeued back into the queue."""
        cluster, job = self.cluster, record.job
        cluster.interrupt(job, cluster.now - cluster.starting_time[job])
        record.begin, record.taken_back = 0, True

    def _note_start(self, record: Record, view: SlurmJob) -> float:
        """Takes note of a start; returns its time on the clock of the run."""
        cluster, job = self.cluster, record.job
        record.begin, record.nodes, record.unsent = view.begin, view.nodes, False
        record.confirmed = cluster.now
        earliest = float(cluster.workload.submission_time[job])
        if cluster.state[job] == _STARTING:
            earliest = max(earliest, record.decided)
        record.started = min(cluster.now, max(earliest, view.begin - self._origin))
        return record.started

    def _confirm(self, record: Record, view: SlurmJob) -> None:
        cluster, job = self.cluster, record.job
        placement, asked = self._placement(record, view), cluster.running[job]
        if view.nodes != record.asked:
            log.warning(
                "job %s was asked onto %s: it is on %s", record.job_id, listed(record.asked), listed(view.nodes)
            )
        same = np.array_equal(placement.nodes, asked.nodes) and np.array_equal(placement.pods, asked.pods)
        cluster.confirm_start(job, self._note_start(record, view), None if same else placement)

    def _adopt(self, record: Record, view: SlurmJob) -> None:
        self.cluster.adopt(record.job, self._placement(record, view), self._note_start(record, view))

    def _placement(self, record: Record, view: SlurmJob) -> Any:
        """Returns the placement of a job on the nodes that Slurm has given it."""
        cluster, job = self.cluster, record.job
        chunk = cluster.requests.chunk(job)
        known = [name for name in view.nodes if name in self.nodes.number]
        on: Mapping[str, int] | None = view.cpus_on
        if on is None and len(known) > 1 and view.running:
            try:
                held = self._asked(lambda: self._client.held_on(view.id)) or {}
                on = {name: each.cpus for name, each in held.items()}
            except Refused:
                on = None
        parts = held_cpus(known, on or {}, chunk.number, max(1, round(chunk.cores * chunk.cpu)))
        return cluster.cores.placement_on(job, {self.nodes.number[name]: each for name, each in parts.items()})

    # Jobs of others

    def _occupy(self, view: SlurmJob) -> None:
        """Takes what a job of someone else holds from its nodes."""
        if view.id in self._others:
            return
        known = [name for name in view.nodes if name in self.nodes.number]
        if not known:
            return
        try:
            held = self._asked(lambda: self._client.held_on(view.id))
        except Refused:
            held = {}  # it has ended
        if held is None:
            return
        cluster, spread = self.cluster, held_cpus(known, {}, max(view.cpus, len(known)), 1)
        on = {name: held.get(name, Held(spread[name])) for name in known}
        taken = [
            (
                self.nodes.number[name],
                Amounts(cpu=float(each.cpus), memory=each.memory * 2**20, pods=1, gpus=each.gpus),
            )
            for name, each in on.items()
        ]
        for node, amounts in taken:
            cluster.cores.occupy(node, amounts)
            cluster.node_changes.append(node)
        self._others[view.id] = taken

    def _vacate(self, job: int) -> None:
        for node, amounts in self._others.pop(job):
            self.cluster.cores.vacate(node, amounts)
            self.cluster.node_changes.append(node)
