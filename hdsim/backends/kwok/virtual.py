"""Clock ``virtual``: simulated time, in which every event takes place on the API server before the next one.

The engine says when jobs arrive and end. Their pods are created, bound and finished in this order, and each answer of
the API server is awaited; nothing waits for a clock.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import orjson

from hdsim.backends.kwok.events import Notices
from hdsim.backends.kwok.members import Member, PodPhase, Record
from hdsim.backends.kwok.nodes import MirroredNodes
from hdsim.backends.kwok.sender import Binding, BindingOutcome, BindingResult, Sender
from hdsim.backends.kwok.session import Session
from hdsim.backends.kwok.trace import PodTrace
from hdsim.cluster.state import FinalState
from hdsim.errors import BackendError, ConfigError
from hdsim.kubernetes.connection import NoAnswer
from hdsim.kubernetes.objects import CLOCK, FAKE, JOB_ID, NodeView, PodView

if TYPE_CHECKING:
    from hdsim.backends.kwok.settings import KwokSettings
    from hdsim.kubernetes.connection import Connection
    from hdsim.simulation.setup import ReplaySetup

T = TypeVar("T")
log = logging.getLogger(__name__)

VIRTUAL = {CLOCK: "virtual"}
_MERGE_PATCH = "application/merge-patch+json"
#: Starts of a job at one instant after which the run ends.
_ATTEMPTS = 5
_INFEASIBLE = "the pods of the job fit on no nodes, not even on empty ones"
#: Seconds between two attempts to reach the API server.
_PAUSE = 0.5


def warning_of_others(pods: Sequence[PodView]) -> str:
    """Returns the warning of pods of others that are on the nodes at the start, empty without any."""
    if not pods:
        return ""
    number = "1 pod of others is" if len(pods) == 1 else f"{len(pods):,} pods of others are"
    return (
        f"{number} on the nodes of the platform, such as {min(pod.key for pod in pods)}: they take their requests for "
        "the whole run, so that its results differ from those of the simulation"
    )


class Virtual(Session):
    """Jobs of a trace in simulated time.

    A start is confirmed once the API server has bound all pods of the job. If it refuses one of them, all are created
    anew and the start has failed.
    """

    bindings = 0

    def __init__(
        self, connection: Connection, settings: KwokSettings, setup: ReplaySetup, stop: Any, identity: str, observe: Any
    ) -> None:
        if hasattr(setup.agent, "observes"):
            raise ConfigError("expected wall, got virtual: kube-scheduler has no simulated time", where="backend.clock")
        self.cluster = cluster = setup.cluster
        self._connection, self._settings = connection, settings
        self._engine = setup.engine(kill_at_walltime=False, batch_events=True)
        self._trace = PodTrace(cluster, settings, settings.scheduler_name)
        self.sender = Sender(connection, self._hear, settings.bindings_in_flight)
        self._notices = Notices(cluster, self.sender, identity, silent=False)
        self._collection = f"/api/v1/namespaces/{settings.namespace}/pods"
        self._names = cluster.platform.node_names
        self._of_job: dict[int, list[Member]] = {}
        self._bound: set[int] = set()
        self._failed: dict[int, tuple[int, float]] = {}
        self._fault: BackendError | None = None
        self.heard = time.monotonic()

    @property
    def members(self) -> list[Member]:
        """The pods of all jobs that have arrived."""
        return [member for members in self._of_job.values() for member in members]

    @property
    def records(self) -> list[Record]:
        return [Record.of(member) for member in self.members]

    def start(self) -> None:
        """Reads nodes, which must be those of Kwok, and pods: those of others take resources.

        Raises:
            ConfigError: A node has a real kubelet, or the platform has other nodes.
        """
        found = self._connection.get("/api/v1/nodes")["items"]
        real = [each["metadata"]["name"] for each in found if FAKE not in each["metadata"].get("annotations", {})]
        real = [name for name in real if name in self._names]
        if real:
            raise ConfigError(
                f"expected wall: node {real[0]} is none of Kwok's, and runs its pods by the clock on the wall",
                where="backend.clock",
            )
        views = {view.name: view for view in map(NodeView.of, found)}
        self.nodes = nodes = MirroredNodes(self.cluster, views)
        for name, taints in zip(self._names, self.cluster.platform.node_taints, strict=True):
            view = views[name]
            if not view.ready or view.unschedulable or set(view.taints) != set(taints):
                raise ConfigError(
                    f"expected nodes that are ready, with the taints of the platform, got node {name} "
                    f"({'ready' if view.ready else 'not ready'}, {len(view.taints)} taints)",
                    where="platform",
                )
        self._trace.prepare(self._connection)
        pods = [PodView.of(item) for item in self._connection.get("/api/v1/pods")["items"]]
        for pod in pods:
            nodes.occupy(pod)
        others = [pod for pod in pods if pod.holds and pod.node in nodes.number]
        self._others = {pod.uid for pod in others}
        self.warnings = nodes.warning, warning_of_others(others)
        self._connection.call(self.sender.start())

    def discard(self) -> None:
        self._await([self._answer("DELETE", f"{self._collection}/{member.pod.name}", 404) for member in self.members])
        self._connection.call(self.sender.close())

    def lose(self, reason: BackendError) -> None:
        self.sender.stop(str(reason))
        self._hear(reason)

    def advance(self) -> bool:
        """Advances to the next instant with events; False after the last one.

        Raises:
            BackendError: The API server does not answer, or another client has changed the pods.
        """
        if self._fault is not None:
            raise self._fault
        self.heard = time.monotonic()
        cluster = self.cluster
        if not self._engine.advance():
            self._compare()
            return False
        ends: list[Coroutine[Any, Any, PodView | None]] = []
        for job in cluster.ended:
            if job in self._bound:
                self._bound.remove(job)
                done = cluster.state[job] == FinalState.COMPLETED_SUCCESSFULLY
                ends += [self._finish(member, done) for member in self._of_job[job]]
        new = [job for job in (*cluster.submitted, *cluster.rejected) if job not in self._of_job]
        manifests = [(job, manifest) for job in new for manifest in self._trace.manifests(job, VIRTUAL)]
        answers = self._await([*ends, *(self._post(manifest) for _, manifest in manifests)])
        for (job, _), pod in zip(manifests, answers[len(ends) :], strict=True):
            assert pod is not None
            self._of_job.setdefault(job, []).append(Member(pod, cluster.now, pod.requests, job))
        for job in cluster.rejected:
            self._notices.tell(self._of_job[job], _INFEASIBLE)
        return True

    def apply(self) -> None:
        """Binds the pods of started jobs, then carries the decisions out in the engine."""
        cluster, now = self.cluster, self.cluster.now
        started = list(cluster.started)
        bindings = [
            (member, Binding(member.pod, self._names[node], VIRTUAL))
            for job in started
            for member, node in zip(self._of_job[job], self._nodes(job), strict=True)
        ]
        outcomes = self._await([self.sender.carry_out(binding) for _, binding in bindings])
        refused: dict[int, str] = {}
        for (member, binding), outcome in zip(bindings, outcomes, strict=True):
            member.attempts += 1
            member.decided = now
            self.decisions += 1
            if outcome.result is BindingResult.BOUND and outcome.node == binding.node:
                member.phase, member.node = PodPhase.BOUND, outcome.node
                member.bound = member.running = now
                self.bindings += 1
            else:
                refused[member.job] = _reason(outcome)
        for job in started:
            if job in refused:
                self._take_back(job, refused[job])
            else:
                self._bound.add(job)
                cluster.confirm_start(job, now)
        self._engine.apply()

    def _take_back(self, job: int, reason: str) -> None:
        """Creates the pods of a job anew, whose start fails at this instant."""
        cluster, now = self.cluster, self.cluster.now
        number, date = self._failed.get(job, (0, now))
        number = number + 1 if date == now else 1
        self._failed[job] = number, now
        name = self._of_job[job][0].pod.key
        log.warning("%s was not bound: %s", name, reason)
        if number == _ATTEMPTS:
            raise BackendError(f"{name} was not bound in {_ATTEMPTS} attempts: {reason}")
        self._await([self._renew(member) for member in self._of_job[job]])
        cluster.started.remove(job)
        self._engine.schedule_at(now, lambda _: cluster.start_failed(job, reason), None)

    def _hear(self, news: Any) -> None:
        """Takes the error of a request that can never succeed."""
        if isinstance(news, BackendError):
            self._fault = news

    def _nodes(self, job: int) -> Iterable[int]:
        """Yields the node of each pod of a job."""
        held = self.cluster.running[job]
        for node, number in zip(held.nodes.tolist(), held.pods.tolist(), strict=True):
            yield from [node] * number

    async def _renew(self, member: Member) -> None:
        """Replaces a pod by a new one."""
        await self._answer("DELETE", f"{self._collection}/{member.pod.name}", 404)
        index = self._of_job[member.job].index(member)
        member.pod = await self._post(self._trace.manifests(member.job, VIRTUAL)[index])
        member.phase, member.node = PodPhase.WAITING, ""

    async def _finish(self, member: Member, succeeded: bool) -> None:
        """Ends a pod."""
        phase = "Succeeded" if succeeded else "Failed"
        path, body = f"{self._collection}/{member.pod.name}/status", {"status": {"phase": phase}}
        await self._answer("PATCH", path, body=body, content_type=_MERGE_PATCH)
        member.phase, member.finished, member.succeeded = PodPhase.ENDED, self.cluster.now, succeeded

    async def _post(self, manifest: dict[str, Any]) -> PodView:
        """Creates a pod, whatever becomes of the connection."""
        name, job = manifest["metadata"]["name"], manifest["metadata"]["annotations"][JOB_ID]
        answer = await self._answer("POST", self._collection, 409, body=manifest)
        if answer.status == 409:
            repeated = answer.repeated
            answer = await self._answer("GET", f"{self._collection}/{name}")
            found = answer.pod
            # An attempt without an answer may have created it.
            if not repeated or found.node or found.annotations.get(JOB_ID) != job:
                raise BackendError(
                    f"pod {found.key} is there already; expected a namespace without pods of other runs "
                    "(`hdsim kwok clean` deletes them, backend.namespace=NAME takes another one)"
                )
        return answer.pod

    async def _answer(self, method: str, path: str, *allowed: int, **options: Any) -> _Answer:
        """Sends a request that may be repeated, until it is answered, refused or the time-out is over."""
        loop = asyncio.get_running_loop()
        end, repeated = loop.time() + self._connection.timeout, False
        while True:
            try:
                status, answer = await self._connection.send(method, path, **options)
            except NoAnswer as error:
                if loop.time() > end:
                    raise
                log.warning("%s; trying again", error)
                repeated = True
                await asyncio.sleep(_PAUSE)
                continue
            if status >= 300 and status not in allowed:
                raise self._connection.refusal(method, path, status, answer)
            return _Answer(status, answer, repeated)

    def _await(self, work: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
        """Runs coroutines, some at a time, and returns their results."""
        if not work:
            return []
        width = asyncio.Semaphore(self._settings.bindings_in_flight)

        async def limited(each: Coroutine[Any, Any, T]) -> T:
            async with width:
                return await each

        async def together() -> list[T]:
            return await asyncio.gather(*map(limited, work))

        return self._connection.call(together())

    def _compare(self) -> None:
        """Compares all pods on the API server with their states here, as another client may have changed one."""
        pods = [PodView.of(item) for item in self._connection.get("/api/v1/pods")["items"]]
        ours = {member.pod.uid for member in self.members}
        late = [pod for pod in pods if pod.holds and pod.node in self.nodes.number]
        late = [pod for pod in late if pod.uid not in ours and pod.uid not in self._others]
        if late:
            log.warning(
                "%d pods of others have come to the nodes in mid-run, such as %s: simulated time takes no note of them",
                len(late),
                min(pod.key for pod in late),
            )
        found = {pod.name: (pod.node, pod.phase) for pod in pods if pod.namespace == self._settings.namespace}
        for member in self.members:
            phase = "Pending" if member.phase is not PodPhase.ENDED else "Succeeded" if member.succeeded else "Failed"
            node, seen = found.get(member.pod.name, ("", "not there"))
            if (node, seen) != (member.node, phase):
                raise BackendError(
                    f"another client has changed pod {member.pod.key}: expected {phase} on "
                    f"{member.node or 'no node'}, it is {seen} on {node or 'no node'}"
                )


class _Answer(NamedTuple):
    """An answer of the API server; `repeated`: to a request that was sent before without an answer."""

    status: int
    content: bytes
    repeated: bool

    @property
    def pod(self) -> PodView:
        return PodView.of(orjson.loads(self.content))


def _reason(outcome: BindingOutcome) -> str:
    if outcome.result is BindingResult.GONE:
        return "it was deleted by another client"
    return f"another client has bound it to {outcome.node}" if outcome.node else outcome.reason
