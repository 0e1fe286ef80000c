"""The scheduler's side of Batsim's protocol: messages become events of a cluster, decisions of an agent messages.

Events of Batsim are applied to a :class:`hdsim.cluster.state.Cluster`, the same object as on every backend; the
decisions of an agent there become the reply. No socket and no clock, so that recorded conversations can be replayed.
"""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from procset import ProcSet

from hdsim.backends.batsim.protocol import (
    FROM_BATSIM,
    SEPARATOR,
    format_event,
    join_message,
    parse_hosts,
    parse_message,
    quote,
)
from hdsim.cluster.state import FinalState
from hdsim.errors import BackendError, nearest
from hdsim.util.intervals import format_interval_set, to_procset

if TYPE_CHECKING:
    from hdsim.backends.batsim.pstates import PStates
    from hdsim.backends.batsim.sleeping import HostPower
    from hdsim.cluster.state import Cluster

log = logging.getLogger(__name__)

# Plain integers: a look-up of an enum member costs as much as the rest of a state change.
_NOT_SUBMITTED, _RUNNING = int(FinalState.NOT_SUBMITTED), int(FinalState.RUNNING)
#: Name of the sender in errors.
SENDER = "Batsim"
#: States in which Batsim reports the end of a job.
_ENDS = {state.name: int(state) for state in FinalState if state.name.startswith("COMPLETED")}
_NOTIFICATIONS = (
    "no_more_static_job_to_submit",
    "no_more_external_event_to_occur",
    "event_machine_unavailable",
    "event_machine_available",
)
_DIGITS = re.compile(r"(\d+)")
_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


class BatsimSession:
    """The state of the protocol, from ``SIMULATION_BEGINS`` to ``SIMULATION_ENDS``.

    Args:
        cluster: State before the first event.
        infeasible: Jobs that are rejected at their submission.
        pstates: Decides on P-states; None leaves them alone.
        power: Switches hosts of nodes off and on; None where nodes do not sleep.
        registers_jobs: The agent ends the registration of dynamic jobs itself, if Batsim allows them.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        infeasible: Iterable[int] = (),
        pstates: PStates | None = None,
        power: HostPower | None = None,
        registers_jobs: bool = False,
    ) -> None:
        self.cluster = cluster  # the state that the events change
        #: Batsim's id of a job -> its row in the workload; filled when the simulation begins.
        self.rows: dict[str, int] = {}
        self.allocations: dict[int, str] = {}  # hosts of every job, as sent in its EXECUTE_JOB
        self.abandoned: list[int] = []  # jobs that the agent never starts; they are rejected so that Batsim ends
        self.answer: Mapping[str, Any] = {}  # data of the last ``ANSWER``
        self.ended = False  # the simulation has ended; the reply still owed is the last one
        self._infeasible = frozenset(infeasible)
        self._pstates = pstates
        self._power = power
        # Nodes of each request of `power` that is not confirmed, by hosts and P-state.
        self._changing: dict[tuple[tuple[int, ...], str], list[int]] = {}
        # Batsim's id of each job as JSON.
        self._quoted: dict[int, str] = {}
        # Hosts whose change of state Batsim has yet to confirm.
        self._switching: dict[str, None] = {}
        self._clock = -math.inf
        self._begun = False
        self._called = False
        self._pending_calls = 0
        self._no_more_jobs = False
        self._registers_jobs = registers_jobs
        self._dynamic = False
        self._host_of_core: list[int] | None = None
        self._unavailable = ProcSet()
        self._cores: dict[int, list[int]] = {}
        self._requests: list[tuple[str, Mapping[str, Any]]] = []
        self._handlers: dict[str, Callable[[Mapping[str, Any]], None]] = {
            "SIMULATION_BEGINS": self._on_begin,
            "JOB_SUBMITTED": self._on_submission,
            "JOB_COMPLETED": self._on_completion,
            "JOB_KILLED": self._on_kill,
            "RESOURCE_STATE_CHANGED": self._on_state_change,
            "REQUESTED_CALL": self._on_call,
            "ANSWER": self._on_answer,
            "NOTIFY": self._on_notification,
            "SIMULATION_ENDS": self._on_end,
        }

    def request(self, kind: str, data: Mapping[str, Any]) -> None:
        """Appends an event of Batsim's protocol, such as ``QUERY``, to the next reply."""
        self._requests.append((kind, data))

    def read(self, text: bytes | str) -> bool:
        """Applies a message to the cluster; returns whether there is news for the agent. Either way a reply is owed.

        Raises:
            BackendError: The message is malformed, or contradicts what was said before.
        """
        cluster = self.cluster
        cluster.next_instant(cluster.now)
        self._called = False
        message = parse_message(text, FROM_BATSIM, sender=SENDER, clock=self._clock)
        for index, (timestamp, kind, data) in enumerate(message.events):
            cluster.now = timestamp
            try:
                if self.ended or self._begun == (kind == "SIMULATION_BEGINS"):
                    raise self._misplaced()
                self._handlers[kind](data)
            except BackendError as error:
                raise BackendError(str(error), where=f"{SENDER}: events[{index}] {kind}") from None
        self._clock = cluster.now = message.now
        if self._power is not None and not self._is_over():
            self._power.run_due()
        return bool(cluster.submitted or cluster.ended or self._called)

    def write(self) -> str:
        """Returns the reply: the decisions since the last one."""
        # A repr is exact, so that only Batsim rounds the time.
        now = repr(float(self.cluster.now))
        return join_message(now, [format_event(now, kind, data) for kind, data in self._decisions()])

    # Decisions to messages

    def _decisions(self) -> Iterator[tuple[str, str]]:
        """Yields the types of the events of a reply, each with its data as JSON."""
        cluster, names, power = self.cluster, self._quoted, self._power
        waiting = () if power is None else self._wait_for_nodes(power)
        for job in cluster.rejected:
            yield "REJECT_JOB", f'{{"job_id":{names[job]}}}'
        if cluster.started:
            for job in cluster.started:
                if job not in waiting:
                    yield "EXECUTE_JOB", f'{{"job_id":{names[job]},"alloc":"{self._execute(job)}"}}'
            cluster.started.clear()
        if cluster.killed:
            yield "KILL_JOB", f'{{"job_ids":[{",".join([names[job] for job in cluster.killed])}]}}'
            cluster.killed.clear()
        if cluster.calls:
            for date in cluster.calls:
                yield "CALL_ME_LATER", f'{{"timestamp":{float(date)!r}}}'
            self._pending_calls += len(cluster.calls)
            cluster.calls.clear()
        if self._pstates is not None:
            for state, cores in self._pstates.changes():
                hosts = format_interval_set(self._hosts_of(cores))
                self._switching[hosts] = None
                yield "SET_RESOURCE_STATE", f'{{"resources":"{hosts}","state":"{state}"}}'
        if power is not None and not self._is_over():
            yield from self._switch_nodes(power)
        if self._requests:
            yield from [(kind, _encode(data)) for kind, data in self._requests]
            self._requests.clear()
        if self._no_more_jobs and cluster.queue and self._nothing_will_happen():
            self.abandoned = list(cluster.queue)
            for job in self.abandoned:
                yield "REJECT_JOB", f'{{"job_id":{names[job]}}}'

    def _wait_for_nodes(self, power: HostPower) -> Collection[int]:
        """Carries out the decisions of a pass about nodes and jobs that wait for them; returns these jobs.

        Jobs whose nodes have come up are as started in this pass; one that was killed meanwhile is killed then.
        """
        cluster, doomed = self.cluster, power.power.doomed
        waiting = [job for job in cluster.started if job in cluster.starting]
        for job in waiting:
            power.power.wait(job)
        for job in [job for job in cluster.killed if job in cluster.starting]:
            cluster.killed.remove(job)
            doomed.add(job)
        cluster.started[:0] = power.begun
        cluster.killed += [job for job in power.begun if job in doomed]
        doomed.difference_update(power.begun)
        power.begun.clear()
        if not self._is_over():
            power.power.apply()
        return waiting

    def _switch_nodes(self, power: HostPower) -> Iterator[tuple[str, str]]:
        """Yields the requests for nodes to go down and to boot, and the calls that power management needs."""
        first = self.cluster.platform.node_first_core.tolist()
        for state, nodes in power.requests():
            hosts = self._hosts_of([core for node in nodes for core in range(first[node], first[node + 1])])
            self._changing[tuple(hosts), str(state)] = nodes
            yield "SET_RESOURCE_STATE", f'{{"resources":"{format_interval_set(hosts)}","state":"{state}"}}'
        for date in power.calls():
            yield "CALL_ME_LATER", f'{{"timestamp":{date!r}}}'

    def _is_over(self) -> bool:
        """Returns whether all jobs are over, after which nodes stay as they are."""
        return self._no_more_jobs and not (self.cluster.running or self.cluster.queue or self._dynamic)

    def _nothing_will_happen(self) -> bool:
        """Returns whether Batsim would wait forever for the jobs in the queue."""
        return not (self.cluster.running or self._pending_calls or self._dynamic or self.abandoned)

    def _execute(self, job: int) -> str:
        cores = self.cluster.core_ids(job)
        hosts = self._hosts_of(cores)
        if self._unavailable and (away := self._unavailable & to_procset(hosts)):
            raise BackendError(
                f"job {self._name(job)} was started on host {away.min}, which "
                "Batsim's external events have made unavailable; agents do not know of unavailable cores"
            )
        text = self.allocations[job] = format_interval_set(hosts)
        if self._pstates is not None:
            self._cores[job] = cores
            self._pstates.start(job, cores)
        return text

    def _hosts_of(self, cores: Sequence[int]) -> Sequence[int]:
        """Returns ascending host ids of ascending core ids."""
        numbers = self._host_of_core
        return cores if numbers is None else sorted([numbers[core] for core in cores])

    # Messages to events

    def _misplaced(self) -> BackendError:
        if self.ended:
            return BackendError("expected nothing after SIMULATION_ENDS")
        return BackendError("the simulation began before" if self._begun else "expected SIMULATION_BEGINS first")

    def _on_begin(self, data: Mapping[str, Any]) -> None:
        from hdsim.platform.simgrid import MASTER_HOST

        self._begun = True
        if data["config"].get("dynamic-jobs-enabled"):
            self._dynamic = self._registers_jobs
            if not self._registers_jobs:
                self.request("NOTIFY", {"type": "registration_finished"})
        workloads = list(data["workloads"])
        if len(workloads) != 1:
            raise BackendError(f"data.workloads: expected one workload, got {', '.join(workloads) or 'none'}")
        cores = self.cluster.platform.n_cores
        names = _host_names(data["compute_resources"])
        if MASTER_HOST in names:
            raise BackendError(
                f"data.compute_resources: expected hosts that run jobs, got '{MASTER_HOST}' among them; hdsim's "
                f"platform needs Batsim's default -m {MASTER_HOST}"
            )
        if len(names) != cores or data["nb_compute_resources"] != cores:
            raise BackendError(
                f"data.compute_resources: expected a host for each of the {cores} cores of platform "
                f"{self.cluster.platform.name}, got {len(names)}"
            )
        order = host_order(names)
        if order != list(range(cores)):
            log.warning("Batsim numbers the hosts in another order than the platform its cores; ids are translated")
            self._host_of_core = order
        for row, own in enumerate(self.cluster.workload.job_id.tolist()):
            self.rows[f"{workloads[0]}{SEPARATOR}{own}"] = row
        self._quoted = {row: quote(name) for name, row in self.rows.items()}

    def _on_submission(self, data: Mapping[str, Any]) -> None:
        job = self._row(data["job_id"])
        if self.cluster.state[job] != _NOT_SUBMITTED:
            raise self._unexpected(job, FinalState.NOT_SUBMITTED)
        cores = data["job"].get("res")
        if cores != self.cluster.size[job]:
            raise BackendError(
                f"job {data['job_id']}: data.job.res: expected {self.cluster.size[job]}, which the workload says, "
                f"got {cores}"
            )
        if job in self._infeasible:
            self.cluster.refuse(job)
        else:
            # Batsim orders jobs of one time by the text of their ids, the queue by their places in the workload.
            self.cluster.hold(job)
            self.cluster.release(job)
            self.cluster.submitted.sort()

    def _on_completion(self, data: Mapping[str, Any]) -> None:
        job = self._row(data["job_id"])
        if self.cluster.state[job] != _RUNNING:
            raise self._unexpected(job, FinalState.RUNNING)
        state = _ENDS.get(data["job_state"])
        if state is None:
            raise BackendError(
                f"data.job_state: unknown state '{data['job_state']}'{nearest(data['job_state'], _ENDS)}; "
                f"allowed: {', '.join(_ENDS)}"
            )
        self.check_allocation(job, data["alloc"], f"job {data['job_id']}: data.alloc")
        if self._pstates is not None:
            self._pstates.end(job, self._cores.pop(job))
        self.cluster.end(job, state)

    def check_allocation(self, job: int, found: str, where: str) -> None:
        """Raises BackendError if the hosts that Batsim reports for a job are not those of its EXECUTE_JOB."""
        given, count = self.allocations[job], self.cluster.platform.n_cores
        if found != given and parse_hosts(found, count) != parse_hosts(given, count):
            raise BackendError(f"expected '{given}', got '{found}'", where=where)

    def _on_kill(self, data: Mapping[str, Any]) -> None:
        for job_id in data["job_ids"]:
            if self._row(job_id) in self.cluster.running:
                raise BackendError(f"job {job_id}: expected its JOB_COMPLETED before")

    def _on_state_change(self, data: Mapping[str, Any]) -> None:
        text, state = data["resources"], data["state"]
        if self._changing and (nodes := self._changing.pop((tuple(self._parse(text)), state), None)):
            assert self._power is not None
            if not self._power.power.confirm(nodes):
                raise BackendError(f"hosts {text}: expected no change to P-state {state}, which they are in")
        elif text in self._switching:
            del self._switching[text]
        else:
            self._parse(text)

    def _parse(self, hosts: str) -> list[int]:
        return sorted(parse_hosts(hosts, self.cluster.platform.n_cores))

    def _on_call(self, data: Mapping[str, Any]) -> None:
        if self._power is not None and self._power.takes_call(self.cluster.now):
            return
        if not self._pending_calls:
            raise BackendError("expected REQUESTED_CALL after a CALL_ME_LATER only")
        self._pending_calls -= 1
        self._called = True

    def _on_answer(self, data: Mapping[str, Any]) -> None:
        self.answer = data

    def _on_notification(self, data: Mapping[str, Any]) -> None:
        kind = data["type"]
        if kind == "no_more_static_job_to_submit":
            self._no_more_jobs = True
        elif kind in ("event_machine_unavailable", "event_machine_available"):
            resources = data.get("resources")
            if not isinstance(resources, str):
                raise BackendError(f"data.resources: expected hosts as in '0-3 8', got {resources!r}")
            hosts = to_procset(parse_hosts(resources, self.cluster.platform.n_cores))
            gone = kind == "event_machine_unavailable"
            self._unavailable = self._unavailable | hosts if gone else self._unavailable - hosts
        elif kind not in _NOTIFICATIONS:
            raise BackendError(
                f"data.type: unknown notification '{kind}'{nearest(kind, _NOTIFICATIONS)}; "
                f"allowed: {', '.join(_NOTIFICATIONS)}"
            )

    def _on_end(self, data: Mapping[str, Any]) -> None:
        running = len(self.cluster.running)
        missing = self.cluster.state.count(FinalState.NOT_SUBMITTED)
        if running or missing:
            raise BackendError(
                f"expected all {len(self.cluster.state)} jobs to be over, but {running} still run and {missing} were "
                "never submitted"
            )
        self.ended = True

    def _row(self, job_id: Any) -> int:
        row = self.rows.get(job_id) if isinstance(job_id, str) else None
        if row is None:
            raise BackendError(
                f"unknown job {job_id!r}: expected one of the {len(self.rows)} of the workload given to hdsim, such as "
                f"'{next(iter(self.rows))}'"
            )
        return row

    def _name(self, job: int) -> str:
        """Returns Batsim's id of a job."""
        return str(json.loads(self._quoted[job]))

    def _unexpected(self, job: int, state: FinalState) -> BackendError:
        found = FinalState(self.cluster.state[job])
        return BackendError(f"job {self._name(job)}: expected a job that is {state.name}, it is {found.name}")


def _host_names(resources: Sequence[Any]) -> list[str]:
    """Returns the names of the hosts by host id."""
    names: dict[int, str] = {}
    for index, resource in enumerate(resources):
        where = f"data.compute_resources[{index}]"
        number = resource.get("id") if isinstance(resource, dict) else None
        name = resource.get("name") if isinstance(resource, dict) else None
        if type(number) is not int or not isinstance(name, str):
            raise BackendError(f"{where}: expected an object with a number 'id' and a text 'name'")
        if number in names or not 0 <= number < len(resources):
            raise BackendError(f"{where}.id: expected ids 0 to {len(resources) - 1}, each once, got {number}")
        names[number] = name
    return [names[number] for number in range(len(names))]


def host_order(names: Sequence[str]) -> list[int]:
    """Returns the host id of each core by the numbers in the names of the hosts, which are in order of their ids.

    Batsim 3.0 to 4.2.1 number hosts in the lexicographic order of their names, so that ``cor_10`` comes before
    ``cor_2``. Host names that differ in one number only, counted from 0 or 1, tell the core ids.

    Raises:
        BackendError: The names tell no order, and are not sorted either.
    """
    parts = [_DIGITS.split(name) for name in names]
    if len({tuple(part[::2]) for part in parts}) == 1:
        columns = list(zip(*([int(digits) for digits in part[1::2]] for part in parts), strict=True))
        varying = [column for column in columns if len(set(column)) > 1] or columns[-1:]
        if len(varying) == 1:
            first = min(varying[0])
            cores = [number - first for number in varying[0]]
            if first in (0, 1) and sorted(cores) == list(range(len(names))):
                return sorted(range(len(names)), key=cores.__getitem__)
    natural = [[int(text) if text.isdigit() else text for text in part] for part in parts]
    if natural != sorted(natural):
        raise BackendError(
            f"data.compute_resources: expected host names that tell the core ids, such as 'cor_0' to "
            f"'cor_{len(names) - 1}', got {', '.join(names[:3])}, ..."
        )
    return list(range(len(names)))
