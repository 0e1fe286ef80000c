"""Pods by the clock on the wall: what the watches report becomes events of the cluster, decisions become bindings."""

from __future__ import annotations

import heapq
import logging
import math
import queue
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from hdsim.backends.kwok import events
from hdsim.backends.kwok.gangs import Gangs
from hdsim.backends.kwok.members import Member, Phase
from hdsim.backends.kwok.nodes import Nodes
from hdsim.backends.kwok.rows import rows_of
from hdsim.backends.kwok.sender import Binding, Outcome, Request, Result, Sender
from hdsim.backends.kwok.trace import Trace
from hdsim.cluster.state import FinalState
from hdsim.errors import BackendError
from hdsim.kubernetes.cache import Cache, Change
from hdsim.kubernetes.objects import ENDED, NodeView, PodView

if TYPE_CHECKING:
    from hdsim.backends.kwok.settings import Settings
    from hdsim.kubernetes.connection import Connection
    from hdsim.simulation.setup import Setup

log = logging.getLogger(__name__)

#: A handler, what it takes, and when that came in seconds of the clock.
News = tuple[Callable[[Any, float], None], Any, float]
#: Longest wait in seconds, so that a signal is noticed.
_WAIT = 0.2
#: Seconds without news after which pods that fit nowhere are told.
_QUIET = 1.0
#: Seconds before the second and the last of several attempts to bind a pod.
_FIRST_PAUSE, _LAST_PAUSE = 0.2, 10.0
_DONE, _FAILED, _KILLED = (
    FinalState.COMPLETED_SUCCESSFULLY,
    FinalState.COMPLETED_FAILED,
    FinalState.COMPLETED_KILLED,
)
_QUEUED, _STARTING, _RUNNING = FinalState.QUEUED, FinalState.STARTING, FinalState.RUNNING


class Wall:
    """Jobs of a cluster, by the clock on the wall.

    Attributes:
        members: All pods that were scheduled, by their uids.
        caches: Copies of the pods and the nodes of the API server.
        heard: Monotonic time of the last look at the news, in seconds.

    Args:
        connection: The connection.
        settings: The settings.
        setup: The cluster and its agent.
        stop: Received signals.
        identity: Name of this instance.
        observe: Takes the latency of each ``decision`` and ``binding`` in seconds.
    """

    def __init__(
        self,
        connection: Connection,
        settings: Settings,
        setup: Setup,
        stop: list[int],
        identity: str,
        observe: Callable[[str, float], None],
    ) -> None:
        self._connection, self._settings, self._stop = connection, settings, stop
        self._identity, self._observe, self.cluster = identity, observe, setup.cluster
        self._scheduler = getattr(setup.agent, "observes", settings.scheduler_name)
        self._observing = hasattr(setup.agent, "observes")
        self._trace = None if self.cluster.open_ended else Trace(self.cluster, settings, self._scheduler)
        self._news: queue.SimpleQueue[News] = queue.SimpleQueue()
        self.sender = Sender(connection, self._hear(self._on_outcome), settings.bindings_in_flight)
        self.caches = (
            Cache(connection, "/api/v1/nodes", NodeView.of, self._hear(self._on_nodes)),
            Cache(connection, "/api/v1/pods", PodView.of, self._hear(self._on_pods)),
        )
        self.members: dict[str, Member] = {}
        self._of_job: dict[int, list[Member]] = {}
        self._arrived: list[list[Member]] = []
        self._found: list[Member] = []
        self._gangs = Gangs(settings.gang_timeout)
        self._calls: list[float] = []
        self._called = self._untold = False
        self._begin = self.heard = self._active = time.monotonic()
        self._date = time.time()

    def start(self) -> None:
        """Reads nodes and pods: those of others take resources, those bound before are running jobs."""
        nodes, pods = self.caches
        if self._trace is not None:
            self._trace.prepare(self._connection)
        self._connection.call(self.sender.start())
        views = {view.name: view for view in self._connection.call(nodes.start())}
        self._nodes = Nodes(self.cluster, views)
        known: list[Change[PodView]] = [(None, pod) for pod in self._connection.call(pods.start())]
        self._begin = self._active = time.monotonic()
        self._date = time.time()
        self._news.put((self._on_pods, known, 0.0))

    def lose(self, reason: BackendError) -> None:
        """Ends the run, and stops binding at once; called in the thread of the connection."""
        self.sender.stop(str(reason))
        self._hear(raise_it)(reason)

    def clock(self) -> float:
        """Returns the simulated seconds since the begin of the run."""
        return (time.monotonic() - self._begin) * self._settings.time_scale

    def advance(self) -> bool:
        """Waits for news that the scheduler acts on; False at the end."""
        cluster = self.cluster
        while True:
            news = self._receive()
            if self._stop:
                return self._stopped()
            cluster.next_instant(self.clock())
            for handle, what, at in news:
                handle(what, at)
            self._on_time()
            self._add_jobs()
            if cluster.submitted or cluster.ended or cluster.node_changes or cluster.withdrawn or self._called:
                self._called, self._untold, self._active = False, True, time.monotonic()
                return True
            if self._is_over():
                cluster.open_ended = False
                return False
            if self._untold and time.monotonic() - self._active > _QUIET:
                self._tell_waiting()

    def apply(self) -> None:
        """Sends the decisions."""
        cluster, now = self.cluster, self.clock()
        at_once: list[Binding] = []
        names = cluster.platform.node_names
        for job in cluster.started:
            placement = cluster.running[job]
            nodes = [
                names[node]
                for node, pods in zip(placement.nodes.tolist(), placement.pods.tolist(), strict=True)
                for _ in range(pods)
            ]
            waiting = [member for member in self._of_job[job] if member.phase is Phase.WAITING]
            annotations = {} if self._trace is None else self._trace.annotations(job, placement)
            for member, node in zip(waiting, nodes, strict=False):
                member.phase, member.node, member.decided = Phase.BINDING, node, now
                member.attempts += 1
                self._observe("decision", (now - member.created) / self._settings.time_scale)
                binding = Binding(member.pod, node, annotations)
                if member.refusal:
                    self.sender.bind([binding], min(_FIRST_PAUSE * 2 ** (member.attempts - 2), _LAST_PAUSE))
                else:
                    at_once.append(binding)
        if at_once:
            self.sender.bind(at_once)
        self.sender.send([_deletion(member.pod) for job in cluster.killed for member in self._of_job[job]])
        for job in cluster.rejected:
            self._tell(self._of_job[job], self._told_of(job))
        for date in cluster.calls:
            heapq.heappush(self._calls, date)
        for done in (cluster.started, cluster.killed, cluster.calls):
            done.clear()

    # News

    def _hear(self, handle: Callable[[Any, float], None]) -> Callable[[Any], None]:
        """Returns a function that puts what it is given among the news, or an error of the connection."""
        return lambda what: self._news.put((raise_it if isinstance(what, BackendError) else handle, what, self.clock()))

    def _receive(self) -> list[News]:
        """Waits for news until something is due, and returns all there are."""
        now = self.clock()
        due = [self._calls[0]] if self._calls else []
        if self._trace is not None:
            due.append(self._trace.due)
        wait = (min(due, default=math.inf) - now) / self._settings.time_scale
        found = []
        self.heard = time.monotonic()
        try:
            found.append(self._news.get(timeout=max(0.0, min(wait, _WAIT))))
            while True:
                found.append(self._news.get_nowait())
        except queue.Empty:
            return found

    def _on_nodes(self, changes: Sequence[Change[NodeView]], at: float) -> None:
        for change in changes:
            self._nodes.change(*change)

    def _on_pods(self, changes: Sequence[Change[PodView]], at: float) -> None:
        for old, new in changes:
            if new is None:
                assert old is not None
                self._on_deletion(old, at)
            elif (member := self.members.get(new.uid)) is not None:
                self._on_change(member, new, at)
            elif new.scheduler == self._scheduler and self._wants(new):
                self._on_arrival(new, at)
            else:
                self._nodes.occupy(new)

    def _wants(self, pod: PodView) -> bool:
        """Whether a pod of this scheduler is one of its jobs."""
        if pod.phase in ENDED or not (pod.holds or pod.waits):
            return False
        if pod.holds and pod.node not in self._nodes.number:
            return False
        return self._trace is None or self._trace.has(pod)

    def _on_arrival(self, pod: PodView, at: float) -> None:
        """Takes note of a pod that waits, or that was bound before this run."""
        created = at if at else min(0.0, (pod.created - self._date) * self._settings.time_scale)
        member = self.members[pod.uid] = Member(pod, created)
        self._nodes.vacate(pod)
        if pod.holds:
            member.phase, member.node, member.bound = Phase.BOUND, pod.node, created
            member.running = created if pod.phase == "Running" else math.nan
            self._gangs.note_bound(pod)
            self._found.append(member)
        elif self._trace is not None:
            job = self._trace.job_of(pod)
            members = self._of_job.setdefault(job, [])
            member.job = job
            members.append(member)
            if len(members) == self._trace.pods_of(job):
                members.sort(key=lambda each: (len(each.pod.name), each.pod.name))
                self._submit(job)
        else:
            self._wait(member, at)

    def _wait(self, member: Member, at: float) -> None:
        """Makes a pod that waits, or its gang if it is complete, a job."""
        pod = member.pod
        member.job = -1
        if pod.unsupported:
            self._tell([member], f"hdsim does not know {pod.unsupported}")
        elif not pod.group:
            self._arrived.append([member])
        elif whole := self._gangs.add(member, at):
            if len({(each.pod.requests, each.pod.constraints, each.pod.priority) for each in whole}) == 1:
                self._arrived.append(whole)
            else:
                self._tell(whole, f"gang {pod.group}: expected pods of equal requests, constraints and priorities")

    def _on_change(self, member: Member, pod: PodView, at: float) -> None:
        """Takes note of a change of a pod of a job."""
        member.pod = pod
        if math.isnan(member.running) and pod.phase == "Running":
            member.running = at
        if pod.node and member.phase in (Phase.WAITING, Phase.BINDING):
            self._bound(member, pod.node, at)
        if pod.phase in ENDED and member.phase is not Phase.ENDED:
            self._leave(member, Phase.ENDED, at)
            member.succeeded = pod.phase == "Succeeded"
        elif pod.deleted and member.phase is Phase.WAITING:
            self._leave(member, Phase.GONE, at)
        self._settle(member.job, at)

    def _on_deletion(self, pod: PodView, at: float) -> None:
        self._nodes.vacate(pod)
        member = self.members.get(pod.uid)
        if member is not None and member.phase not in (Phase.ENDED, Phase.GONE):
            self._leave(member, Phase.GONE, at)
            self._settle(member.job, at)

    def _leave(self, member: Member, phase: Phase, at: float) -> None:
        member.phase, member.finished = phase, at
        self._gangs.remove(member)

    def _on_outcome(self, outcome: Outcome, at: float) -> None:
        """Takes note of the outcome of a binding; the watch may have told it before."""
        self._active = time.monotonic()
        member = self.members[outcome.pod.uid]
        if member.phase is not Phase.BINDING:
            return
        if outcome.result is Result.BOUND:
            self._bound(member, outcome.node, at)
        elif outcome.result is Result.GONE:
            self._leave(member, Phase.GONE, at)
        else:
            log.warning("%s was not bound to %s: %s", outcome.pod.key, member.node, outcome.reason)
            member.phase = Phase.WAITING
        member.refusal = outcome.reason
        self._settle(member.job, at)

    def _bound(self, member: Member, node: str, at: float) -> None:
        if node != member.node and not self._observing:
            log.warning("%s is bound to %s, not by this instance", member.pod.key, node)
        elif not self._observing:
            self.sender.send([events.scheduled(member.pod, node, self._identity)])
            self._observe("binding", (at - member.decided) / self._settings.time_scale)
        member.phase, member.node, member.bound = Phase.BOUND, node, at
        self._gangs.note_bound(member.pod)

    # Jobs

    def _add_jobs(self) -> None:
        """Makes jobs of the pods that have arrived, or were found bound."""
        arrived, found = self._arrived, self._grouped_found()
        if not arrived and not found:
            return
        cluster, now = self.cluster, self.cluster.now
        first = len(cluster.state)
        self._arrived = []
        cluster.add(rows_of([*arrived, *found], now, self._settings.time_scale))
        for job, members in enumerate([*arrived, *found], first):
            self._of_job[job] = members
            for member in members:
                member.job = job
            if members[0].phase is Phase.WAITING:
                self._submit(job)
            else:
                self._adopt(job, members)
                self._settle(job, now)

    def _grouped_found(self) -> list[list[Member]]:
        groups: dict[Any, list[Member]] = defaultdict(list)
        for member in self._found:
            pod = member.pod
            same = (pod.namespace, pod.group, pod.requests, pod.constraints) if pod.group else pod.uid
            groups[same].append(member)
        self._found = []
        if self._trace is None:
            return list(groups.values())
        return []

    def _submit(self, job: int) -> None:
        """Queues a job, or turns it away if it fits on no empty nodes."""
        cluster = self.cluster
        chunk = cluster.requests.chunk(job)
        fitting = cluster.cores.total.capacity(chunk)
        lacks_gpus = self._of_job[job][0].pod.requests.gpus > 0 and not cluster.platform.n_gpus
        if lacks_gpus or fitting.clip(max=chunk.number).sum() < chunk.number:
            cluster.refuse(job)
            self._tell(self._of_job[job], self._told_of(job))
        else:
            cluster.submit(job)

    def _adopt(self, job: int, members: Sequence[Member]) -> None:
        """Takes note of a job whose pods are bound already."""
        on = Counter(self._nodes.number[member.node] for member in members if member.phase is not Phase.GONE)
        starts = [member.bound for member in members if member.phase is not Phase.GONE]
        cluster = self.cluster
        submitted = float(cluster.workload.submission_time[job])
        cluster.adopt(job, cluster.cores.placement_on(job, on), min(cluster.now, max(submitted, *starts)))

    def _settle(self, job: int, at: float) -> None:
        """Brings the state of a job up to that of its pods."""
        if job < 0:
            return
        cluster, members = self.cluster, self._of_job[job]
        phases = {member.phase for member in members}
        state = cluster.state[job]
        if state == _STARTING and Phase.BINDING not in phases:
            state = self._settle_start(job, members, phases, at)
        if state == _QUEUED:
            if phases <= {Phase.GONE}:
                cluster.withdraw(job)
            elif phases <= {Phase.BOUND, Phase.ENDED, Phase.GONE}:
                self._adopt(job, members)
                state = _RUNNING
            elif Phase.GONE in phases or (Phase.BOUND in phases and not self._observing):
                self._break_up(job, members, at)
        if state == _RUNNING and phases <= {Phase.ENDED, Phase.GONE}:
            cluster.end(job, self._final_state(members), max(member.finished for member in members))

    def _settle_start(self, job: int, members: Sequence[Member], phases: set[Phase], at: float) -> int:
        """Confirms or takes back the start of a job, all of whose bindings have their outcomes."""
        cluster = self.cluster
        refused = [member for member in members if member.phase is Phase.WAITING]
        reason = next((member.refusal for member in members if member.refusal), "its pods are deleted")
        if not phases & {Phase.BOUND, Phase.ENDED}:
            cluster.start_failed(job, reason)
            return _QUEUED
        if refused:
            # A gang that is bound in part has to be completed.
            for member in refused:
                member.phase = Phase.BINDING
                member.attempts += 1
                pause = min(_FIRST_PAUSE * 2 ** (member.attempts - 2), _LAST_PAUSE)
                self.sender.bind([Binding(member.pod, member.node, {})], pause)
            return _STARTING
        held = cluster.running[job]
        chosen = {node: pods for node, pods in zip(held.nodes.tolist(), held.pods.tolist(), strict=True)}
        actual = Counter(self._nodes.number.get(member.node, -1) for member in members)
        if any(pods > chosen.get(node, 0) for node, pods in actual.items()):
            cluster.start_failed(job, "a pod was bound to another node")
            return _QUEUED
        cluster.confirm_start(job, max(at, float(cluster.workload.submission_time[job])))
        return _RUNNING

    def _break_up(self, job: int, members: Sequence[Member], at: float) -> None:
        """Takes an incomplete gang out of the queue; its pods wait for others, or are found bound."""
        self.cluster.withdraw(job)
        if self._trace is not None:
            self._tell(members, "pods of its job are deleted, or bound elsewhere")
            return
        for member in members:
            if member.phase is Phase.BOUND:
                self._found.append(member)
            elif member.phase is Phase.WAITING:
                self._wait(member, at)

    def _final_state(self, members: Sequence[Member]) -> FinalState:
        gone = [member for member in members if member.phase is Phase.GONE]
        if any(self._nodes.number.get(member.node) in self.cluster.down for member in gone):
            return _FAILED
        if gone:
            return _KILLED
        return _DONE if all(member.succeeded for member in members) else _FAILED

    # Time

    def _on_time(self) -> None:
        """Does what is due."""
        now = self.cluster.now
        while self._calls and self._calls[0] <= now:
            heapq.heappop(self._calls)
            self._called = True
        if self._trace is not None:
            self.sender.send(self._trace.submissions(now))
        for member, reason in self._gangs.overdue(now):
            self._tell([member], reason)

    def _is_over(self) -> bool:
        cluster, idle = self.cluster, self._settings.stop_when_idle
        if cluster.starting:
            return False
        if self._trace is not None:
            if self._trace.due < math.inf or cluster.running:
                return False
            if not cluster.queue and cluster.arrived == len(cluster.state):
                return True
        return idle is not None and time.monotonic() - self._active > idle

    def _stopped(self) -> bool:
        """Ends after a signal, once all bindings have their outcomes; SIGTERM is an end in order of an open-ended run."""
        self._connection.soon(self.sender.stop, "the run ends")
        end = time.monotonic() + self._settings.timeout
        self.cluster.next_instant(self.clock())
        while self.cluster.starting and time.monotonic() < end:
            for handle, what, at in self._receive():
                handle(what, min(at, self.cluster.now))
        if self._trace is None and self._stop == [signal.SIGTERM]:
            self._stop.clear()
        self.cluster.open_ended = False
        return False

    # Events

    def _tell_waiting(self) -> None:
        """Tells the pods that fit nowhere at present."""
        self._untold = False
        if self._observing:
            return
        reasons: dict[int, str] = {}
        for job in self.cluster.queue:
            kind = self.cluster.requests.kind(job)
            if kind not in reasons:
                reasons[kind] = self._told_of(job)
            self._tell(self._of_job[job], reasons[kind])

    def _told_of(self, job: int) -> str:
        """Returns why a job does not run."""
        cluster = self.cluster
        chunk = cluster.requests.chunk(job)
        nodes = cluster.platform.n_nodes
        lacks_gpus = self._of_job[job][0].pod.requests.gpus > 0 and not cluster.platform.n_gpus
        lacks = [(nodes, "Insufficient nvidia.com/gpu")] if lacks_gpus else events.shortages(chunk, cluster.cores.free_nodes())
        if sum(number for number, _ in lacks) < nodes:
            return "the scheduler lets it wait" if cluster.fits(job) else f"its gang of {chunk.number} pods does not fit"
        return f"0/{nodes} nodes are available: " + ", ".join(f"{number} {what}" for number, what in lacks)

    def _tell(self, members: Sequence[Member], text: str) -> None:
        """Creates an event for each of some pods, unless the last one gave the same reason."""
        if self._observing:
            return
        reason = "".join(letter for letter in text if not letter.isdigit())
        fresh = [member for member in members if member.phase is Phase.WAITING and member.told != reason]
        for member in fresh:
            member.told = reason
        self.sender.send(
            [events.event(member.pod, "FailedScheduling", text, self._identity, warning=True) for member in fresh]
        )


def raise_it(error: BackendError, at: float) -> None:
    """Raises an error of the connection's thread."""
    raise error


def _deletion(pod: PodView) -> Request:
    return Request("DELETE", f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}", {"gracePeriodSeconds": 0})
