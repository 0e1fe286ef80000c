"""hdsim in Batsim's place: a reply of the scheduler in, the next message to it out, no socket.

:func:`hdsim.backends.batsim.zeromq.serve` connects a :class:`BatsimServer` to a scheduler.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from procset import ProcSet

from hdsim.backends.batsim.energy import Meter
from hdsim.backends.batsim.hosts import OFF, ON, SLEEP, VIRTUAL, HostCores, Hosts
from hdsim.backends.batsim.inputs import MACHINE_EVENTS, JobFile, Options, ServedJobs, check_events, describe_simulation
from hdsim.backends.batsim.output import JobOutcome, OutputWriter
from hdsim.backends.batsim.protocol import (
    FROM_SCHEDULER,
    LATEST,
    SCHEDULER,
    Event,
    earliest,
    encode,
    format_event,
    format_message,
    join_message,
    parse_hosts,
    parse_message,
    quote,
)
from hdsim.cluster.state import Cluster, FinalState
from hdsim.contention import Contention
from hdsim.errors import BackendError, DecisionError, WorkloadError
from hdsim.network import Network
from hdsim.simulation.bsp_jobs import BspJobs
from hdsim.simulation.engine import Engine
from hdsim.simulation.executor import Executor
from hdsim.simulation.setup import make_executor
from hdsim.util.intervals import format_interval_set, to_procset

#: Batsim's name of each final state, and its return code; None stands for that of the profile.
_ENDS = {
    int(FinalState.COMPLETED_SUCCESSFULLY): ("COMPLETED_SUCCESSFULLY", None),
    int(FinalState.COMPLETED_FAILED): ("COMPLETED_FAILED", None),
    int(FinalState.COMPLETED_WALLTIME_REACHED): ("COMPLETED_WALLTIME_REACHED", -1),
    int(FinalState.COMPLETED_KILLED): ("COMPLETED_KILLED", -2),
}


@dataclass
class _Switch:
    """A change of hosts to a P-state that takes its time."""

    hosts: list[int]
    state: int
    left: set[int]  # hosts that go down or boot


class BatsimServer:
    """A simulation that a scheduler drives by messages.

    The files are the workloads w0, w1 ... in this order, events are external ones in order of time. Without a network
    messages take no time of their own.

    Raises:
        HdsimError: A workload has no job, or an option does not suit the platform or the events.
    """

    def __init__(
        self,
        hosts: Hosts,
        files: Sequence[JobFile],
        options: Options | None = None,
        *,
        contention: Contention | None = None,
        network: Network | None = None,
        events: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        self._hosts = hosts
        self._options = options = options or Options()
        self._files = files
        self._jobs = ServedJobs(files, forward_profiles=options.forward_profiles)
        workload = self._jobs.workload
        self._static = len(workload)
        if contention is not None and not contention.applies(workload) and not options.dynamic_jobs:
            contention = None
        platform = hosts.platform
        self.cluster = Cluster(platform, workload, open_ended=options.dynamic_jobs)
        self.cluster.cores = self._cores = HostCores(platform.core_gflops() / platform.reference_gflops)
        if options.dynamic_jobs:
            # Jobs registered later may have several steps or messages.
            self._executor: Executor = BspJobs(platform, workload, contention, network)
        else:
            self._executor = make_executor(self.cluster, contention, network)
        self._engine = Engine(self.cluster, self._executor, kill_at_walltime=True)
        if options.energy:
            self._executor.moved = {}
            self._engine.on_settled = self._measure
        if options.energy or (hosts.initial.any() and not hosts.ruled):
            rows = np.arange(len(hosts))
            self._engine.set_speed(rows, 1.0 if hosts.ruled else hosts.speed[rows, hosts.initial])
        self._meter = Meter(hosts, as_batsim=options.as_batsim) if options.energy else None
        self.record = OutputWriter(len(hosts), self._jobs.describe, energy=options.energy)  # the results so far
        # Hosts that sleep, go down or boot, those that go down or boot, and the changes that are over.
        asleep = np.flatnonzero(hosts.kind[np.arange(len(hosts)), hosts.initial] == SLEEP).tolist()
        self._away: set[int] = set(asleep if options.energy else ())
        self._changing: set[int] = set()
        self._switched: list[_Switch] = []
        self.record.begin(hosts.initial, sorted(self._away))
        self._alloc: dict[int, list[int]] = {}
        self._joules: dict[int, float] = {}
        self._unavailable = ProcSet()
        check_events(events or (), len(hosts), forward_unknown=options.forward_unknown_events)
        self._external = list(reversed(events or ()))
        for event in self._external:
            self._wake(float(event["timestamp"]))
        self._calls: list[float] = []
        self._kills: list[tuple[list[str], dict[str, Any]]] = []
        # Encoded events of the next message, and those of the message after it.
        self._pending: list[str] = []
        self._later: list[str] = []
        self._acknowledged: list[str] = []
        self._sent = 0.0
        # The simulated time as messages print it.
        self._now = f"{0:.6f}"
        self._open = 0
        self._unsubmitted = self._static
        self._registering = options.dynamic_jobs
        self.ended = False  # the latest message has SIMULATION_ENDS
        self._decisions: dict[str, Callable[[Mapping[str, Any]], None]] = {
            "EXECUTE_JOB": self._execute,
            "REJECT_JOB": self._reject,
            "KILL_JOB": self._kill,
            "CALL_ME_LATER": self._call_later,
            "SET_RESOURCE_STATE": self._set_state,
            "QUERY": self._query,
            "REGISTER_PROFILE": self._register_profile,
            "REGISTER_JOB": self._register_job,
            "SET_JOB_METADATA": self._set_metadata,
            "NOTIFY": self._notified,
        }

    # Messages

    def begin(self) -> str:
        """Returns the first message."""
        workloads = {f"w{number}": file.path for number, file in enumerate(self._files)}
        data = describe_simulation(self._hosts, self._options, workloads, self._jobs.profiles)
        return format_message(0.0, [Event(0.0, "SIMULATION_BEGINS", data)])

    def answer(self, reply: str | bytes) -> str | None:
        """Carries out a reply of the scheduler and returns the next message, None after the reply to the last one.

        Raises:
            BackendError: The reply is malformed or asks for something impossible, or the scheduler leaves the
                simulation with nothing that could happen.
        """
        message = parse_message(reply, FROM_SCHEDULER, sender=SCHEDULER, clock=self._sent)
        if self.ended:
            return None
        self._pending += self._later
        self._later.clear()
        told = self._sent
        for index, (timestamp, kind, data) in enumerate(message.events):
            if timestamp > told:
                self._sleep(timestamp)
            try:
                self._decisions[kind](data)
            except (BackendError, DecisionError, WorkloadError) as error:
                where = f"{SCHEDULER} at {timestamp:.6f}: events[{index}] {kind}"
                raise BackendError(str(error), where=where) from None
        if message.now > told:
            self._sleep(message.now)
        return self._next()

    def _next(self) -> str:
        """Simulates until the next event for the scheduler and returns the message."""
        self._engine.apply()
        if self._kills:
            self._advance()
        if self._acknowledged:
            # Jobs of the workload that are submitted at the same time come first, in the same message.
            following = self._static - self._unsubmitted
            if self._unsubmitted and self._jobs.submission[following] <= self.cluster.now:
                self._advance()
            self._pending += self._acknowledged
            self._acknowledged.clear()
        while not self._pending:
            if self._is_over():
                self._pending.append(self._event("SIMULATION_ENDS"))
                self.ended = True
            elif not self._advance():
                raise self._stuck()
        now = self._now
        self._sent = float(now)
        if self._options.one_event:
            return join_message(now, [self._pending.pop(0)])
        message = join_message(now, self._pending)
        self._pending.clear()
        return message

    def _event(self, kind: str, data: str = "{}") -> str:
        return format_event(self._now, kind, data)

    def _report(self, kind: str, data: Mapping[str, Any]) -> None:
        self._pending.append(self._event(kind, encode(data)))

    def _sleep(self, until: float) -> None:
        """Simulates until the time of a decision."""
        cluster = self.cluster
        # The scheduler knows times with six decimals, so that its time may be slightly before the present one.
        if until <= cluster.now:
            return
        self._wake(until)
        self._engine.apply()
        while cluster.now < until:
            self._advance()
            self._engine.apply()
            # The scheduler is busy: the notification of the last submission joins the events of its time.
            self._pending += self._later
            self._later.clear()

    def _wake(self, date: float, action: Callable[[], None] | None = None) -> None:
        """Awaits an instant, with jobs or without, and an action at it."""
        engine = self._engine
        event = engine.expect(engine.at(date))
        if action is not None:
            event.callbacks.append(lambda _: action())
        event.callbacks.append(lambda _: engine.notify())

    def _is_over(self) -> bool:
        waits = self._open or self._unsubmitted or self._registering or self._external or self._calls
        return not (waits or self._changing)

    def _stuck(self) -> BackendError:
        if self._open:
            waiting = [self._jobs.ids[job] for job in self.cluster.queue]
            shown = ", ".join(waiting[:5]) + (", ..." if len(waiting) > 5 else "")
            message = f"nothing is left to happen, but {len(waiting)} jobs are neither executed nor rejected: {shown}"
        else:
            message = "nothing is left to happen; expected a NOTIFY registration_finished, as dynamic jobs are enabled"
        return BackendError(message, where=f"{SCHEDULER} at {self.cluster.now:.6f}")

    # From the engine

    def _advance(self) -> bool:
        """Simulates one instant and collects its events; returns False when no event is left."""
        cluster = self.cluster
        clock = cluster.now
        if not self._engine.advance():
            # Cancelled events have moved the clock.
            cluster.now = clock
            return False
        now = cluster.now
        self._now = f"{now:.6f}"
        for job in cluster.ended:
            self._complete(job, now)
        for job_ids, progress in self._kills:
            self._report("JOB_KILLED", {"job_ids": job_ids, "job_progress": progress})
        self._kills.clear()
        for switch in self._switched:
            self._report_switch(switch, at_once=False)
        self._switched.clear()
        for job in cluster.submitted:
            self._pending.append(self._submitted(job))
        if cluster.submitted:
            self._unsubmitted -= len(cluster.submitted)
            if not self._unsubmitted:
                self._later.append(self._event("NOTIFY", '{"type":"no_more_static_job_to_submit"}'))
        while self._calls and self._calls[0] <= now:
            heapq.heappop(self._calls)
            self._pending.append(self._event("REQUESTED_CALL"))
        while self._external and self._external[-1]["timestamp"] <= now:
            self._report_external(self._external.pop(), now)
        return True

    def _submitted(self, job: int) -> str:
        self._open += 1
        self.record.submitted += 1
        if self._meter is not None and job == 0:
            self.record.joules_at_first_submission = self._meter.read(self.cluster.now)
        return self._event("JOB_SUBMITTED", self._jobs.encode_submission(job))

    def _complete(self, job: int, now: float) -> None:
        self._open -= 1
        cluster, record, meter = self.cluster, self.record, self._meter
        state, hosts = cluster.state[job], self._alloc.pop(job)
        alloc = format_interval_set(hosts)
        joules = -1.0
        if meter is not None:
            total = meter.read(now)
            joules = meter.joules(hosts, now) - self._joules.pop(job)
            meter.set_load(hosts, 0.0, now, busy=False)
            record.energy(now, total, "e", meter.least_watts)
        record.end(now, hosts, JobOutcome(job, state, cluster.starting_time[job], now, alloc, joules))
        name, code = _ENDS[state]
        if code is None:
            code = self._jobs.return_code[job]
        data = f'{{"job_id":{quote(self._jobs.ids[job])},"job_state":"{name}","return_code":{code},"alloc":"{alloc}"}}'
        self._pending.append(self._event("JOB_COMPLETED", data))

    def _report_external(self, event: Mapping[str, Any], now: float) -> None:
        """Reports an external event."""
        kind = event["type"]
        data = {key: value for key, value in event.items() if key not in ("timestamp", "type")}
        if kind in MACHINE_EVENTS:
            hosts = parse_hosts(event["resources"], len(self._hosts))
            there = kind == "machine_available"
            changed = to_procset(hosts)
            self._unavailable = self._unavailable - changed if there else self._unavailable | changed
            self.record.available(now, hosts, there=there)
            data["resources"] = str(changed)
        self._report("NOTIFY", {"type": MACHINE_EVENTS.get(kind, kind), **data})
        if not self._external:
            self._later.append(self._event("NOTIFY", '{"type":"no_more_external_event_to_occur"}'))

    # From the scheduler

    def _execute(self, data: Mapping[str, Any]) -> None:
        job = self._jobs.row(data["job_id"])
        hosts = parse_hosts(data["alloc"], len(self._hosts))
        if len(data) > 2:  # more than job_id and alloc
            for key in ("storage_mapping", "additional_io_job"):
                if data.get(key):
                    raise BackendError(f"data.{key} is not supported; allowed: job_id, alloc and mapping")
            self._jobs.check_mapping(job, data.get("mapping"), len(hosts))
        if self._unavailable and (away := self._unavailable & to_procset(hosts)):
            raise BackendError(f"job {data['job_id']}: expected available hosts, got {away}")
        if self._away and (asleep := self._away.intersection(hosts)):
            raise BackendError(
                f"job {data['job_id']}: expected hosts that are on, got {format_interval_set(sorted(asleep))}, which "
                "sleep, go down or boot"
            )
        cluster, meter = self.cluster, self._meter
        now = cluster.now
        if len(hosts) != cluster.size[job]:
            raise DecisionError(f"job {data['job_id']}: expected {cluster.size[job]} hosts, got '{data['alloc']}'")
        cluster.start(job, hosts)
        # Batsim's files are written from the record, so that the placements need no memory.
        cluster.placements.clear()
        self._alloc[job] = hosts
        if meter is not None:
            total = meter.read(now)
            self._joules[job] = meter.joules(hosts, now)
            self.record.energy(now, total, "s", meter.least_watts)
            self._engine.apply()
        self.record.start(now, hosts)

    def _measure(self) -> None:
        """Passes the present loads of running jobs to the meter."""
        assert self._meter is not None
        moved = self._executor.moved
        assert moved is not None
        for job in moved:
            if job in self.cluster.running:
                self._meter.set_load(self._alloc[job], self._executor.loads(job), self.cluster.now, busy=True)
        moved.clear()

    def _reject(self, data: Mapping[str, Any]) -> None:
        job = self._jobs.row(data["job_id"])
        self.cluster.reject(job)
        self._open -= 1
        self.record.reject(job)

    def _kill(self, data: Mapping[str, Any]) -> None:
        progress = {}
        job_ids = data["job_ids"]
        # Executions of the same reply come first.
        self._engine.apply()
        for job_id in job_ids:
            job = self._jobs.row(job_id) if isinstance(job_id, str) else -1
            if job < 0:
                raise BackendError(f"data.job_ids: expected job ids, got {job_ids}")
            if self.cluster.state[job] in _ENDS:
                continue
            self.cluster.kill(job)
            progress[job_id] = self._jobs.progress(job, *self._engine.progress(job))
        if progress:
            self._kills.append((job_ids, progress))
        else:
            # All jobs have completed meanwhile.
            self._report("JOB_KILLED", {"job_ids": job_ids, "job_progress": {}})

    def _call_later(self, data: Mapping[str, Any]) -> None:
        date = data["timestamp"]
        if not earliest(self._sent) <= date < LATEST:
            reason = ": time goes back" if date < self._sent else ""
            raise BackendError(f"data.timestamp: expected at least {self._sent:.6f}, got {str(date)[:80]}{reason}")
        if date <= self.cluster.now:
            self._pending.append(self._event("REQUESTED_CALL"))
        else:
            heapq.heappush(self._calls, date)
            self._wake(date)

    def _need_energy(self) -> Meter:
        if self._meter is None:
            raise BackendError("P-states and energy need the option -E (--energy)")
        return self._meter

    def _set_state(self, data: Mapping[str, Any]) -> None:
        meter, now = self._need_energy(), self.cluster.now
        hosts = parse_hosts(data["resources"], len(self._hosts))
        if not hosts:
            raise BackendError("data.resources: expected at least one host, got none")
        text = data["state"]
        least = int(self._hosts.n_states[hosts].min())
        if not (text.isdecimal() and int(text) < least):
            raise BackendError(f"data.state: expected a P-state from 0 to {least - 1}, got '{text}'")
        state = int(text)
        down, up = self._check_switch(hosts, state)
        self._engine.apply()
        self.record.energy(now, meter.read(now), "p", meter.least_watts)
        at_once = hosts
        if down or up:
            at_once = sorted(set(hosts).difference(down, up))
            self._change(_Switch(hosts, state, {*down, *up}), set(down))
        if at_once:
            self._engine.set_speed(at_once, self._hosts.speed[at_once, state])
            meter.set_state(at_once, state, now)
        self._engine.apply()
        self.record.switch(now, hosts, down, up, sleeps=bool(self._hosts.kind[hosts[0], state] == SLEEP))
        if not (down or up):
            self._report_switch(_Switch(hosts, state, set()), at_once=True)

    def _check_switch(self, hosts: list[int], state: int) -> tuple[list[int], list[int]]:
        """Returns which hosts go down and which boot to get into a P-state; BackendError if they cannot enter it."""
        kind = self._hosts.kind[hosts, state]
        if (kind == VIRTUAL).any():
            raise BackendError(f"data.state: expected a P-state that is not virtual, got {state}")
        if those := self._changing.intersection(hosts):
            shown = format_interval_set(sorted(those))
            raise BackendError(f"data.resources: expected hosts that do not change, got {shown}, which go down or boot")
        sleepers = {host for host, each in zip(hosts, kind.tolist(), strict=True) if each == SLEEP}
        if those := self._away & sleepers:
            shown = format_interval_set(sorted(those))
            raise BackendError(f"data.resources: expected hosts that are on, got {shown}, which sleep already")
        if those := set(self._cores.busy(sorted(sleepers))):
            shown = format_interval_set(sorted(those))
            raise BackendError(f"data.resources: expected idle hosts to go down, got {shown}, which serve jobs")
        return sorted(sleepers), sorted(self._away.intersection(hosts))

    def _change(self, switch: _Switch, goes_down: Container[int]) -> None:
        """Begins changes of hosts, which compute a flop in a virtual P-state each."""
        meter, now = self._need_energy(), self.cluster.now
        groups: dict[tuple[int, float], list[int]] = {}
        for host in switch.left:
            way, sleep = (OFF, switch.state) if host in goes_down else (ON, int(meter.state[host]))
            via = int(self._hosts.via[way, host, sleep])
            groups.setdefault((via, float(self._hosts.seconds[host, via])), []).append(host)
        self._away.update(switch.left)
        self._changing.update(switch.left)
        for (via, seconds), group in sorted(groups.items()):
            meter.set_state(sorted(group), via, now)
            meter.set_load(sorted(group), 1.0, now, busy=False)
            self._wake(now + seconds, partial(self._settle, switch, sorted(group)))

    def _settle(self, switch: _Switch, hosts: list[int]) -> None:
        """Takes note that hosts are asleep or awake."""
        meter, now, state = self._need_energy(), self.cluster.now, switch.state
        meter.set_load(hosts, 0.0, now, busy=False)
        meter.set_state(hosts, state, now)
        self._changing.difference_update(hosts)
        awake = [host for host in hosts if self._hosts.kind[host, state] != SLEEP]
        if awake:
            self._away.difference_update(awake)
            self._engine.set_speed(awake, self._hosts.speed[awake, state])
            self.record.settle(now, awake, sleeps=False)
        if asleep := sorted(set(hosts).difference(awake)):
            self.record.settle(now, asleep, sleeps=True)
        switch.left.difference_update(hosts)
        if not switch.left:
            self._switched.append(switch)

    def _report_switch(self, switch: _Switch, *, at_once: bool) -> None:
        meter, now = self._need_energy(), self.cluster.now
        self.record.energy(now, meter.read(now), "p", meter.least_watts)
        self.record.switched(now, switch.hosts, switch.state, at_once=at_once)
        resources = format_interval_set(switch.hosts)
        self._report("RESOURCE_STATE_CHANGED", {"resources": resources, "state": str(switch.state)})

    def _query(self, data: Mapping[str, Any]) -> None:
        requests = data["requests"]
        for request in requests:
            if request != "consumed_energy":
                raise BackendError(f"data.requests: unknown query '{request}'; allowed: consumed_energy")
        if requests:
            self._report("ANSWER", {"consumed_energy": self._need_energy().read(self.cluster.now)})

    def _need_dynamic(self) -> None:
        if not self._options.dynamic_jobs:
            raise BackendError("jobs and profiles can be registered with the option --enable-dynamic-jobs only")

    def _register_profile(self, data: Mapping[str, Any]) -> None:
        self._need_dynamic()
        self._jobs.register_profile(data["workload_name"], data["profile_name"], data["profile"])

    def _register_job(self, data: Mapping[str, Any]) -> None:
        self._need_dynamic()
        if not self._registering:
            raise BackendError("expected no job after NOTIFY registration_finished")
        gflops = self._hosts.platform.reference_gflops
        added = self._jobs.register(data["job_id"], data["job"], self.cluster.now, gflops)
        (job,) = self._engine.add(added, arrive=False)
        self.cluster.submit(job)
        event = self._submitted(job)
        if self._options.acknowledge_dynamic_jobs:
            self._acknowledged.append(event)

    def _set_metadata(self, data: Mapping[str, Any]) -> None:
        self.record.metadata[self._jobs.row(data["job_id"])] = data["metadata"]

    def _notified(self, data: Mapping[str, Any]) -> None:
        kind = data["type"]
        if kind not in ("registration_finished", "continue_registration"):
            raise BackendError(f"data.type: unknown '{kind}'; allowed: registration_finished, continue_registration")
        self._need_dynamic()
        self._registering = kind == "continue_registration"
