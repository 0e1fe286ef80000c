"""The jobs that pods make up: arrival, start and end of jobs from the changes of their pods."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from hdsim.backends.kwok.anti_affinity import AntiAffinity
from hdsim.backends.kwok.events import Notices
from hdsim.backends.kwok.gangs import Gangs
from hdsim.backends.kwok.members import Member, PodPhase, Record, rows_of
from hdsim.backends.kwok.sender import Binding, BindingOutcome, BindingResult, pause_before
from hdsim.cluster.state import FinalState
from hdsim.kubernetes.objects import ENDED, PodView

if TYPE_CHECKING:
    from hdsim.backends.kwok.nodes import MirroredNodes
    from hdsim.backends.kwok.sender import Sender
    from hdsim.backends.kwok.settings import KwokSettings
    from hdsim.backends.kwok.trace import PodTrace
    from hdsim.cluster.state import Cluster
    from hdsim.kubernetes.cache import Change
    from hdsim.kubernetes.objects import PodGroupView, Repulsion

log = logging.getLogger(__name__)

#: Refused bindings of a pod after which its gang is decided on anew, if others of it are bound.
_ATTEMPTS = 5
_QUEUED, _STARTING, _RUNNING = FinalState.QUEUED, FinalState.STARTING, FinalState.RUNNING


class PodJobs:
    """Pods of one scheduler as jobs of a cluster; pods of others take resources of nodes.

    `observing` tells that another scheduler binds the pods, `trains` that the jobs are those of an episode of a
    training. Jobs of a `trace` become pods; without one, pods become jobs. `observe` takes the latency of each
    ``binding`` in seconds.
    """

    def __init__(
        self,
        cluster: Cluster,
        nodes: MirroredNodes,
        sender: Sender,
        notices: Notices,
        settings: KwokSettings,
        *,
        scheduler: str,
        observing: bool,
        trace: PodTrace | None,
        trains: bool,
        observe: Callable[[str, float], None],
    ) -> None:
        self.cluster, self._nodes, self._sender, self._notices = cluster, nodes, sender, notices
        self._scheduler, self._observing, self._trace, self._trains = scheduler, observing, trace, trains
        self._time_scale, self._observe = settings.time_scale, observe
        #: The pods that jobs are made of, by their uids; pods of the API server until they are deleted.
        self.members: dict[str, Member] = {}
        self.of_job: dict[int, list[Member]] = {}  # pods of each job, as long as one of them is there
        self.gangs = Gangs(settings.gang_timeout)  # pods that wait for others
        self.bindings = 0  # number of pods that were bound
        #: asked: Seconds that the pods that have succeeded were to run.
        #: late: Seconds that these have taken longer, from the decision to the end.
        self.asked = self.late = 0.0
        # Pods that were deleted.
        self._gone: list[Record] = []
        self._arrived: list[list[Member]] = []
        self._found: list[Member] = []
        # Jobs whose pods fit on no empty nodes, in order.
        self._refused: dict[int, None] = {}
        self._anti_affinity = AntiAffinity(nodes.labels)

    def records(self) -> list[Record]:
        """Returns the records of all pods that jobs were made of."""
        return [*self._gone, *map(Record.of, self.members.values())]

    def on_pods(self, changes: Sequence[Change[PodView]], at: float) -> None:
        """Takes note of changes of pods that were seen at a time."""
        changed = self._anti_affinity.note(changes)
        for old, new in changes:
            self._nodes.count(old, new)
            if new is None:
                assert old is not None
                self._on_deletion(old, at)
            elif (member := self.members.get(new.uid)) is not None:
                self._on_change(member, new, at)
            elif new.scheduler == self._scheduler and self._wants(new):
                self._on_arrival(new, at)
            else:
                self._nodes.occupy(new)
        self._keep_off(changed, at)

    def on_groups(self, changes: Sequence[Change[PodGroupView]], at: float) -> None:
        """Takes note of changes of PodGroups that were seen at a time."""
        for old, new in changes:
            group = new or old
            assert group is not None
            self._gather(self.gangs.note_group(group, deleted=new is None), at)

    def on_labels(self, at: float) -> None:
        """Takes note of labels of nodes that have changed, and of nodes that have come or gone."""
        self._keep_off(self._anti_affinity.terms, at)

    def _keep_off(self, terms: Collection[Repulsion], at: float) -> None:
        """Decides anew on jobs that wait, if some terms of other pods keep them off other nodes than before."""
        if not terms or self._trace is not None or self._observing:
            return
        for job in [*self.cluster.queue, *self._refused]:
            members = self.of_job[job]
            if any(term.concerns(member.pod) for member in members for term in terms):
                kept_off = self._anti_affinity.against([member.pod for member in members])
                if kept_off.keys() != members[0].kept_off.keys():
                    self._decide_anew(job, at)

    def _wants(self, pod: PodView) -> bool:
        """Whether a pod of this scheduler is one of its jobs."""
        if pod.phase in ENDED or not (pod.holds or pod.waits):
            return False
        if pod.holds and pod.node not in self._nodes.number:
            return False
        return self._trace is None or self._trace.has(pod)

    def _on_arrival(self, pod: PodView, at: float) -> None:
        """Takes note of a pod that waits, or that was bound before this run."""
        # The API server tells the second of the creation only.
        created = min(at, at + (pod.created + 1 - time.time()) * self._time_scale)
        member = self.members[pod.uid] = Member(pod, created, pod.requests)
        self._nodes.vacate(pod)
        if pod.holds:
            member.phase, member.node, member.bound = PodPhase.BOUND, pod.node, created
            member.running = created if pod.phase == "Running" else math.nan
            self._gather(self.gangs.note_bound(pod), at)
            self._found.append(member)
        elif self._trace is not None:
            job = self._trace.job_of(pod)
            members = self.of_job.setdefault(job, [])
            member.job = job
            members.append(member)
            if len(members) == self._trace.pods_of(job):
                members.sort(key=lambda each: (len(each.pod.name), each.pod.name))
                self._submit(job)
        else:
            self._wait(member, at)

    def _wait(self, member: Member, at: float) -> None:
        """Makes a pod that waits, or its gang if it is complete, a job."""
        pod, former = member.pod, member.job
        member.job = -1
        self._forget(former)
        if pod.unsupported:
            self._notices.tell([member], f"hdsim does not know {pod.unsupported}")
        elif not pod.group:
            self._arrived.append([member])
        else:
            self._gather(self.gangs.add(member, at), at)

    def _gather(self, whole: list[Member], at: float) -> None:
        """Makes the pods of a gang that is complete a job, if they are equal."""
        if len({(each.pod.requests, each.pod.constraints, each.pod.priority) for each in whole}) == 1:
            self._arrived.append(whole)
        elif whole:
            reason = f"gang {whole[0].pod.group}: expected pods of equal requests, constraints and priorities"
            self._notices.tell(whole, reason)
            self.gangs.put_back(whole, at)

    def _on_change(self, member: Member, pod: PodView, at: float) -> None:
        """Takes note of a change of a pod of a job."""
        anew = member.phase is PodPhase.WAITING and self._trace is None and self._asks(member.pod) != self._asks(pod)
        if anew:
            self.gangs.remove(member)
        member.pod = pod
        if anew:
            self._reconsider(member, at)
        if math.isnan(member.running) and pod.phase == "Running":
            member.running = at
        if pod.node and member.phase in (PodPhase.WAITING, PodPhase.BINDING):
            self.gangs.remove(member)
            self._bound(member, pod.node, at)
            if member.job < 0 or self.cluster.state[member.job] == FinalState.REJECTED:
                self._found.append(member)
        if pod.phase in ENDED and member.phase is not PodPhase.ENDED:
            self._leave(member, PodPhase.ENDED, at)
            member.succeeded = pod.phase == "Succeeded"
            if member.succeeded and pod.duration is not None:
                asked = pod.duration * self._time_scale
                begin = member.bound if math.isnan(member.decided) else member.decided
                self.asked += asked
                self.late += at - begin - asked
        elif pod.deleted and member.phase is PodPhase.WAITING:
            self._leave(member, PodPhase.GONE, at)
        self._nodes.occupy(pod, member.requests)
        self._settle(member.job, at)

    def _reconsider(self, member: Member, at: float) -> None:
        """Decides anew on a pod that waits, and on its gang, once it asks for something else, such as a toleration."""
        job = member.job
        if job >= 0:
            self._decide_anew(job, at)
            return
        together = next((members for members in self._arrived if member in members), [member])
        if together in self._arrived:
            self._arrived.remove(together)
        for each in together:
            self._wait(each, at)

    def _decide_anew(self, job: int, at: float) -> None:
        """Makes the pods that wait of a job which is queued, or was refused, other jobs."""
        if self.cluster.state[job] == _QUEUED:
            self._break_up(job, self.of_job[job], at)
        elif job in self._refused:
            del self._refused[job]
            for each in self.of_job[job]:
                if each.phase is PodPhase.WAITING:
                    self._wait(each, at)

    def _on_deletion(self, pod: PodView, at: float) -> None:
        self._nodes.vacate(pod)
        member = self.members.get(pod.uid)
        if member is None:
            return
        if member.phase not in (PodPhase.ENDED, PodPhase.GONE):
            self._leave(member, PodPhase.GONE, at)
            self._settle(member.job, at)
        if self._trace is None:
            self._gone.append(Record.of(member))
            del self.members[pod.uid]
            self._forget(member.job)

    def _forget(self, job: int) -> None:
        """Forgets a job of the API server's pods if it has none any more."""
        if all(each.job != job or each.pod.uid not in self.members for each in self.of_job.get(job, ())):
            self.of_job.pop(job, None)
            self._refused.pop(job, None)

    def _leave(self, member: Member, phase: PodPhase, at: float) -> None:
        member.phase, member.finished = phase, at
        self.gangs.remove(member)

    def on_outcome(self, outcome: BindingOutcome, at: float) -> None:
        """Takes note of the outcome of a binding; the watch may have told it before."""
        member = self.members.get(outcome.pod.uid)
        if member is None or member.phase is not PodPhase.BINDING:
            return
        if outcome.result is BindingResult.BOUND:
            self._bound(member, outcome.node, at)
        elif outcome.result is BindingResult.GONE:
            self._leave(member, PodPhase.GONE, at)
        else:
            log.warning("%s was not bound to %s: %s", outcome.pod.key, member.node, outcome.reason)
            member.phase = PodPhase.WAITING
        member.refusal = outcome.reason
        self._settle(member.job, at)

    def _bound(self, member: Member, node: str, at: float) -> None:
        if node != member.node and not self._observing:
            log.warning("%s is bound to %s, not by this instance", member.pod.key, node)
        elif not self._observing:
            self._notices.scheduled(member.pod, node)
            self.bindings += 1
            self._observe("binding", (at - member.decided) / self._time_scale)
        member.phase, member.node, member.bound = PodPhase.BOUND, node, at
        self._gather(self.gangs.note_bound(member.pod), at)

    def add(self) -> None:
        """Makes jobs of the pods that have arrived, or were found bound."""
        if self._nodes.relabelled:
            self._nodes.relabelled = False
            refused = [self.of_job[job] for job in self._refused]
            self._arrived += [pods for pods in refused if all(each.phase is PodPhase.WAITING for each in pods)]
            self._refused = {}
        cluster, now = self.cluster, self.cluster.now
        arrived, found = self._still_waiting(now), self._grouped_found()
        if not arrived and not found:
            return
        first = len(cluster.state)
        if found and not self._trains:
            log.warning("%d pods are bound already", sum(map(len, found)))
        for members in arrived:
            kept_off = self._anti_affinity.against([member.pod for member in members])
            for member in members:
                member.kept_off = kept_off
        cluster.add(rows_of([*arrived, *found], now, self._time_scale))
        for job, members in enumerate([*arrived, *found], first):
            self.of_job[job] = members
            former = {member.job for member in members}
            for member in members:
                member.job, member.requests = job, member.pod.requests
            for each in former:
                self._forget(each)
            if members[0].phase is PodPhase.WAITING:
                self._submit(job)
            else:
                self._adopt(job, members)
                self._settle(job, now)
                self._forget(job)

    def _still_waiting(self, now: float) -> list[list[Member]]:
        """Takes the pods that have arrived; a gang of which one is bound or deleted since then waits again."""
        whole = []
        while self._arrived:
            members = self._arrived.pop(0)
            waiting = [member for member in members if member.phase is PodPhase.WAITING]
            if len(waiting) == len(members):
                whole.append(members)
            else:
                for member in waiting:
                    self._wait(member, now)
        return whole

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
        members = self.of_job[job]
        if not cluster.cores.feasible(job):
            cluster.refuse(job)
            if self._trace is None:
                self._refused[job] = None
            self._notices.tell(members, self._notices.reason(job, members, ever=True))
        else:
            cluster.submit(job)

    def _adopt(self, job: int, members: Sequence[Member]) -> None:
        """Takes note of a job whose pods are bound already."""
        on = Counter(self._nodes.number[member.node] for member in members if member.phase is not PodPhase.GONE)
        starts = [member.bound for member in members if member.phase is not PodPhase.GONE]
        cluster = self.cluster
        submitted = float(cluster.workload.submission_time[job])
        cluster.adopt(job, cluster.cores.placement_on(job, on), min(cluster.now, max(submitted, *starts)))

    def _settle(self, job: int, at: float) -> None:
        """Brings the state of a job up to that of its pods."""
        members = self.of_job.get(job)
        if members is None:
            return
        cluster = self.cluster
        phases = {member.phase for member in members}
        state = cluster.state[job]
        if state == _STARTING and PodPhase.BINDING not in phases:
            state = self._settle_start(job, members, phases, at)
        if state == _QUEUED:
            if phases <= {PodPhase.GONE}:
                cluster.withdraw(job)
            elif phases <= {PodPhase.BOUND, PodPhase.ENDED, PodPhase.GONE}:
                self._adopt(job, members)
                state = _RUNNING
            elif PodPhase.GONE in phases or (PodPhase.BOUND in phases and not self._observing):
                self._break_up(job, members, at)
        if state == _RUNNING and phases <= {PodPhase.ENDED, PodPhase.GONE}:
            cluster.end(job, self._final_state(members), max(member.finished for member in members))

    def _settle_start(self, job: int, members: Sequence[Member], phases: set[PodPhase], at: float) -> int:
        """Confirms or takes back the start of a job, all of whose bindings have their outcomes."""
        cluster = self.cluster
        refused = [member for member in members if member.phase is PodPhase.WAITING]
        reason = next((member.refusal for member in members if member.refusal), "its pods are deleted")
        if not phases & {PodPhase.BOUND, PodPhase.ENDED}:
            cluster.start_failed(job, reason)
            return _QUEUED
        if refused:
            tried = max(member.attempts for member in refused)
            if tried >= _ATTEMPTS:
                self._notices.tell(refused, f"the binding was refused {tried} times: {reason}")
                if self._trace is None:
                    cluster.start_failed(job, reason)
                    return _QUEUED
            # A gang that is bound in part has to be completed.
            for member in refused:
                member.phase = PodPhase.BINDING
                member.attempts += 1
                self._sender.bind([Binding(member.pod, member.node, {})], pause_before(member.attempts))
            return _STARTING
        held = cluster.running[job]
        chosen = dict(zip(held.nodes.tolist(), held.pods.tolist(), strict=True))
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
            self._notices.tell(members, "pods of its job are deleted, or bound elsewhere")
            return
        for member in members:
            if member.phase is PodPhase.BOUND:
                self._found.append(member)
            elif member.phase is PodPhase.WAITING:
                self._wait(member, at)

    def _final_state(self, members: Sequence[Member]) -> FinalState:
        gone = [member for member in members if member.phase is PodPhase.GONE]
        if gone and not any(self._nodes.number.get(member.node) in self.cluster.down for member in gone):
            return FinalState.COMPLETED_KILLED
        done = all(member.succeeded for member in members) and not gone
        return FinalState.COMPLETED_SUCCESSFULLY if done else FinalState.COMPLETED_FAILED

    def _asks(self, pod: PodView) -> tuple[Any, ...]:
        """The parts of a pod that decide where it may be, and with which others."""
        marks = pod.labels if self._anti_affinity else None
        return pod.requests, pod.constraints, pod.unsupported, pod.group, pod.group_size, pod.priority, marks
