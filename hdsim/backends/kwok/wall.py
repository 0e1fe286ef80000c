"""Pods by the clock on the wall: what the watches report becomes events of the cluster, decisions become bindings."""

from __future__ import annotations

import logging
import queue
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from hdsim.backends.kwok.events import Notices
from hdsim.backends.kwok.jobs import PodJobs
from hdsim.backends.kwok.members import PodPhase
from hdsim.backends.kwok.nodes import MirroredNodes
from hdsim.backends.kwok.pod_groups import PodGroups
from hdsim.backends.kwok.sender import Binding, BindingOutcome, Request, Sender, pause_before
from hdsim.backends.kwok.session import Session
from hdsim.backends.kwok.trace import PodTrace
from hdsim.backends.live import LONGEST_WAIT, LiveSession
from hdsim.errors import BackendError, NoMoreJobs
from hdsim.kubernetes.cache import Cache, Change
from hdsim.kubernetes.objects import JOB_LABEL, NodeView, PodGroupView, PodView
from hdsim.simulation.terminal import received_signals

if TYPE_CHECKING:
    from hdsim.backends.kwok.members import Record
    from hdsim.backends.kwok.settings import KwokSettings
    from hdsim.kubernetes.connection import Connection
    from hdsim.simulation.setup import ReplaySetup

log = logging.getLogger(__name__)

#: A handler, what it takes, and when that came in seconds of the clock.
News = tuple[Callable[[Any, float], None], Any, float]
#: Shortest time between two looks at the news in seconds, so that under load a look finds several.
_PACE = 0.01
#: Share of their run times by which pods of a trace may hold their nodes too long without a warning.
_LATE = 0.05
#: Seconds without news after which pods that fit nowhere get an event.
_QUIET = 1.0


class Wall(LiveSession, Session):
    """Jobs of a cluster, by the clock on the wall.

    `observe` takes the latency of each ``decision`` and ``binding`` in seconds. `jobs` has the jobs that the pods make
    up; other attributes are those of :class:`hdsim.backends.kwok.session.Session`.
    """

    def __init__(
        self,
        connection: Connection,
        settings: KwokSettings,
        setup: ReplaySetup,
        stop: list[int],
        identity: str,
        observe: Callable[[str, float], None],
    ) -> None:
        super().__init__(setup, stop, settings.time_scale, settings.stop_when_idle)
        self._connection, self._settings, self._observe = connection, settings, observe
        agent: Any = setup.agent
        self._observing = hasattr(agent, "observes")
        if self._observing:
            agent.attached = True
        self._scheduler = agent.observes if self._observing else settings.scheduler_name
        self._trace = None if self.cluster.open_ended else PodTrace(self.cluster, settings, self._scheduler)
        self._jobs = self._trace
        self._news: queue.SimpleQueue[News] = queue.SimpleQueue()
        self.sender = Sender(connection, self._hear(self._on_outcome), settings.bindings_in_flight)
        self._nodes_cache = Cache(connection, "/api/v1/nodes", NodeView.of, self._hear(self._on_nodes))
        self._pods_cache = Cache(connection, "/api/v1/pods", PodView.of, self._hear(self._on_pods))
        self._pod_groups = PodGroups(connection, self._hear(self._on_groups))
        self.caches: tuple[Cache[Any], ...] = (self._nodes_cache, self._pods_cache, self._pod_groups.cache)
        self._notices = Notices(self.cluster, self.sender, identity, silent=self._observing)
        self._untold = False
        self.decisions = 0
        self._begin = self.heard = time.monotonic()

    def start(self) -> None:
        """Reads nodes and pods: those of others take resources, those bound before are running jobs."""
        if self._trace is not None:
            self._trace.prepare(self._connection)
        self._connection.call(self.sender.start())
        self._connection.call(self._nodes_cache.start())
        self.nodes = MirroredNodes(self.cluster, dict(self._nodes_cache.objects), self.spare)
        self.warnings = (self.nodes.warning,)
        self.jobs = PodJobs(
            self.cluster,
            self.nodes,
            self.sender,
            self._notices,
            self._settings,
            scheduler=self._scheduler,
            observing=self._observing,
            trace=self._trace,
            trains=self.trains,
            observe=self._observe,
        )
        self._begin = self._active = time.monotonic()
        if self._trace is None:
            self.warnings = (*self.warnings, self._pod_groups.start())
        self._connection.call(self._pods_cache.start())

    @property
    def records(self) -> list[Record]:
        return self.jobs.records()

    @property
    def bindings(self) -> int:
        return self.jobs.bindings

    def lose(self, reason: BackendError) -> None:
        """Ends the run, and stops binding at once; called in the thread of the connection."""
        self.sender.stop(str(reason))
        self._hear(raise_it)(reason)

    def clock(self) -> float:
        """Returns the simulated seconds since the begin of the run."""
        return (time.monotonic() - self._begin) * self._scale

    def _is_stopped(self) -> bool:
        return super()._is_stopped() or bool(self.trains and received_signals())

    def _handle(self, news: list[News]) -> None:
        for handle, what, at in news:
            handle(what, at)
        if self._trace is not None:
            self.sender.send(self._trace.submissions(self.cluster.now))
        elif self.jobs.gangs.lack_sizes():
            self._pod_groups.look()
        for member, reason in self.jobs.gangs.overdue(self.cluster.now):
            self._notices.tell([member], reason)
        self.jobs.add()

    def _rest(self, *, over: bool) -> None:
        if self._untold and (over or time.monotonic() - self._active > _QUIET):
            self._untold = False
            self._notices.tell_waiting(self.jobs.of_job)
        if over:
            if self.trains and not self.decisions:
                raise NoMoreJobs(
                    f"expected pods of scheduler {self._scheduler} that can be placed within "
                    f"{self._settings.stop_when_idle:g} s, got none",
                    where="backend.stop_when_idle",
                )
            self.cluster.open_ended = False

    def _send(self, now: float) -> None:
        cluster, self._untold = self.cluster, True
        at_once: list[Binding] = []
        names = self.nodes.names
        for job in cluster.started:
            placement = cluster.running[job]
            nodes = [
                names[node]
                for node, pods in zip(placement.nodes.tolist(), placement.pods.tolist(), strict=True)
                for _ in range(pods)
            ]
            waiting = [member for member in self.jobs.of_job[job] if member.phase is PodPhase.WAITING]
            annotations = {} if self._trace is None else self._trace.annotations(job, placement)
            for member, node in zip(waiting, nodes, strict=False):
                member.phase, member.node, member.decided = PodPhase.BINDING, node, now
                member.attempts += 1
                self.decisions += 1
                self._observe("decision", (now - member.created) / self._settings.time_scale)
                binding = Binding(member.pod, node, annotations)
                if member.refusal:
                    self.sender.bind([binding], pause_before(member.attempts))
                else:
                    at_once.append(binding)
        if at_once:
            self.sender.bind(at_once)
        self.sender.send([_deletion(member.pod) for job in cluster.killed for member in self.jobs.of_job[job]])
        for job in cluster.rejected:
            # Those that the agent has rejected; jobs that fit on no empty nodes have been told so.
            members = [member for member in self.jobs.of_job[job] if not member.told]
            self._notices.tell(members, "the scheduler has rejected it")

    # News

    def _hear(self, handle: Callable[[Any, float], None]) -> Callable[[Any], None]:
        """Returns a function that puts what it is given among the news, or an error of the connection."""
        return lambda what: self._news.put((raise_it if isinstance(what, BackendError) else handle, what, self.clock()))

    def _receive(self) -> list[News]:
        """Waits for news until something is due, and returns all there are."""
        found = []
        last, self.heard = self.heard, time.monotonic()
        try:
            found.append(self._news.get(timeout=max(0.0, min(self.seconds_until_due(), LONGEST_WAIT))))
            time.sleep(max(0.0, last + _PACE - time.monotonic()))
            while True:
                found.append(self._news.get_nowait())
        except queue.Empty:
            return found

    def _on_nodes(self, changes: Sequence[Change[NodeView]], at: float) -> None:
        for change in changes:
            self.nodes.change(*change)
        if any(old is None or new is None or old.labels != new.labels for old, new in changes):
            self.jobs.on_labels(at)

    def _on_pods(self, changes: Sequence[Change[PodView]], at: float) -> None:
        self.jobs.on_pods(changes, at)

    def _on_groups(self, changes: Sequence[Change[PodGroupView]], at: float) -> None:
        self.jobs.on_groups(changes, at)

    def _on_outcome(self, outcome: BindingOutcome, at: float) -> None:
        self._active = time.monotonic()
        self.jobs.on_outcome(outcome, at)

    def end(self) -> None:
        """Waits after a signal for the outcomes of all bindings; an open-ended run ends by SIGTERM in order."""
        late, asked = self.jobs.late, self.jobs.asked
        if self._trace is not None and late > _LATE * asked:
            log.warning(
                "from decision to end pods took %.0f %% longer than their run times, as the API server and Kwok need "
                "time as well: the schedule is later than in simulation; a smaller backend.time_scale reduces it",
                100 * late / asked,
            )
        if not self._stop:
            return
        self._connection.soon(self.sender.stop, "the run ends")
        self._await_outcomes()
        self.end_open_run()

    def _await_outcomes(self) -> None:
        """Waits for the outcomes of all bindings."""
        end = time.monotonic() + self._settings.timeout
        self.cluster.next_instant(max(self.cluster.now, self.clock()))
        while self.cluster.starting and time.monotonic() < end:
            for handle, what, at in self._receive():
                handle(what, min(at, self.cluster.now))

    def discard(self) -> None:
        connection = self._connection
        self.apply()  # of the last decision
        self._await_outcomes()
        if self._trace is not None and self._settings.submit:
            connection.call(self.sender.drain(self._settings.timeout))
            path = f"/api/v1/namespaces/{self._settings.namespace}/pods?labelSelector={JOB_LABEL}"
            while pods := [PodView.of(item) for item in connection.get(path)["items"]]:
                for pod in pods:
                    method, own, body, *_ = _deletion(pod)
                    connection.call(connection.ask(method, own, body, but=(404,)))
        for cache in self.caches:
            connection.call(cache.stop())
        connection.call(self.sender.close())


def raise_it(error: BackendError, at: float) -> None:
    """Raises an error of the connection's thread."""
    raise error


def _deletion(pod: PodView) -> Request:
    return Request("DELETE", f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}", {"gracePeriodSeconds": 0})
