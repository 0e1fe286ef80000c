"""Backend ``kwok``: hdsim's agents schedule the pods of a Kubernetes API server."""

from __future__ import annotations

import logging
import math
import secrets
import socket
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from hdsim.backends.base import Capabilities
from hdsim.backends.kwok.lease import Lease
from hdsim.backends.kwok.members import latencies, write_pods
from hdsim.backends.kwok.monitoring import Monitoring
from hdsim.backends.kwok.session import Session
from hdsim.backends.kwok.settings import KwokSettings
from hdsim.backends.kwok.virtual import Virtual
from hdsim.backends.kwok.wall import Wall
from hdsim.backends.live import LiveBackend
from hdsim.errors import BackendError
from hdsim.kubernetes.connection import Call, Connection, Permission, require
from hdsim.kubernetes.nodes import platform_of, with_nodes, with_spare_nodes
from hdsim.kubernetes.objects import NodeView
from hdsim.platform.model import Platform
from hdsim.results.result import Result
from hdsim.scheduling.agent import make_agent
from hdsim.simulation.setup import ReplaySetup
from hdsim.workload.model import Workload

log = logging.getLogger(__name__)

#: Seconds between two looks for a signal while the lease is waited for.
_WAIT = 0.1
#: Spare nodes of a run whose pods come from the API server.
_SPARE_NODES = 32
#: Seconds for the events that are not sent yet at the end.
_DRAIN = 30.0
_CLOCKS: dict[str, type[Wall | Virtual]] = {"wall": Wall, "virtual": Virtual}


class Kwok(LiveBackend):
    """A Kubernetes API server, such as that of a Kwok cluster, whose pods hdsim schedules.

    Without jobs (``workload=cluster``), the pods of the API server become jobs; otherwise jobs become pods. The
    settings are those of :class:`hdsim.backends.kwok.settings.KwokSettings`.
    """

    capabilities = Capabilities(gpus=True, confirms_starts=True, core_ids=False, known_jobs=False)
    connection: Connection  # the connection, from its first use on
    _platform: Platform

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.settings = KwokSettings.of(settings)
        self._session: Session | None = None
        self._lease: Lease | None = None
        self._monitoring: Monitoring | None = None
        self._spare = 0
        self._warned: set[str] = {""}
        self.episodes = {"kill_at_walltime": False, "batch_events": True}
        self.repeats = self.settings.clock == "virtual"
        self.brings_jobs = not (self.repeats or self.settings.submit)
        self._identity = f"{socket.gethostname()}-{secrets.token_hex(4)}"

    def run(
        self, platform: Platform, workload: Workload, agent: Any, *arguments: Any, **options: Any
    ) -> tuple[Result, Any]:
        """See :meth:`LiveBackend.run`; some spare nodes are for those that come in mid-run."""
        self._platform = platform.of_kind("quantities")
        spare = self.settings.spare_nodes
        if spare is None:
            spare = 0 if len(workload) or make_agent(agent).observes_nodes else _SPARE_NODES
        self._spare = spare
        return super().run(with_spare_nodes(self._platform, spare), workload, agent, *arguments, **options)

    def read_platform(self) -> Platform:
        """Reads the nodes of the API server."""
        self._connect()
        return platform_of([NodeView.of(item) for item in self.connection.get("/api/v1/nodes")["items"]])

    def faults(self, platform: Platform, workload: Workload, contention: Any, network: Any) -> list[str]:
        if self.settings.clock == "virtual" and not len(workload):
            return ["clock=virtual: expected a trace, whose jobs end in simulated time, got workload=cluster"]
        return []

    def open(self, setup: ReplaySetup, directory: Path, stop: Any) -> None:
        """Connects, waits for the lease, and reads nodes and pods.

        Raises:
            ConfigError: The API server or the platform cannot be used.
            BackendError: The API server does not answer.
        """
        self.prepare(directory)
        if self._lead(setup, stop):
            self._session = self._begin(setup, stop)

    def episode(self, setup: ReplaySetup) -> Session:
        """Begins an episode of a training; the pods that the one before has created are deleted."""
        if self._session is None:
            self._lead(setup, [])
        else:
            self._session.discard()
        self._session = self._begin(setup, [], trains=True)
        return self._session

    def _lead(self, setup: ReplaySetup, stop: Sequence[int]) -> bool:
        """Connects and waits for the lease, with a limit if the run ends when it is idle; False after a signal."""
        settings = self.settings
        self._connect()
        connection = self.connection
        if not setup.cluster.open_ended:
            connection.require_namespace(settings.namespace, "backend.namespace")
            require(connection, self._permissions_of(setup.cluster.workload))
        if settings.metrics_port is not None:
            self._monitoring = monitoring = Monitoring(self, settings.metrics_host, settings.metrics_port)
            connection.call(monitoring.start())
            self._resources.callback(lambda: connection.call(monitoring.stop()))
        election = settings.leader_election
        if not election["enabled"]:
            return True
        self._lease = lease = Lease(
            connection, election["namespace"], self._lease_name, self._identity, settings.timing, self._lose
        )
        self._resources.callback(lambda: connection.call(lease.release()))
        waiting = connection.submit(lease.acquire())
        idle, begin = settings.stop_when_idle, time.monotonic()
        # A lease of an instance that was killed is free after its duration.
        patience = math.inf if idle is None else max(idle, 2 * settings.timing.lease)
        while not waiting.done() and not stop:
            time.sleep(_WAIT)
            if time.monotonic() - begin > patience and lease.holder:
                waiting.cancel()
                raise BackendError(
                    f"lease {election['namespace']}/{self._lease_name}: expected it to be free within {patience:g} s, "
                    f"as the run ends when it is idle (backend.stop_when_idle={idle:g}), but {lease.holder} holds it; "
                    "with another backend.scheduler_name a run schedules its own pods beside that one"
                )
        if not waiting.done():
            waiting.cancel()
            return False
        waiting.result()
        return True

    def _begin(self, setup: ReplaySetup, stop: Any, *, trains: bool = False) -> Session:
        """Reads nodes and pods."""
        observe = self._monitoring.observe if self._monitoring else lambda name, seconds: None
        clock = _CLOCKS[self.settings.clock]
        session = clock(self.connection, self.settings, setup, stop, self._identity, observe)
        if self._lease is not None:
            session.sender.may_bind = self._lease.is_valid
        session.spare, session.trains = self._spare, trains
        session.start()
        for warning in session.warnings:
            if warning not in self._warned:
                # Once for all episodes of a training.
                self._warned.add(warning)
                log.warning(warning)
        return session

    def _lose(self, reason: BackendError) -> None:
        """Ends the run when the lease is lost; called in the thread of the connection."""
        if self._session is not None:
            self._session.lose(reason)

    def close(self) -> None:
        """Sends what is left to send, gives the lease back and writes pods.csv."""
        session = self._session
        try:
            if session is not None:
                session.end()
                if self._spare:
                    # The results are those of the nodes that there were.
                    session.cluster.platform = with_nodes(self._platform, session.nodes.joined)
                self.connection.call(session.sender.drain(_DRAIN))
                if self._directory is not None:
                    write_pods(self._directory / "pods.csv", session.records)
                self._facts = self._told()
        finally:
            self._resources.close()

    def summary(self) -> str:
        """Pods, latencies and API calls."""
        facts = self._facts
        if not facts:
            return ""
        text = f"{facts['pods_bound']:,} of {facts['pods']:,} pods bound"
        delay = facts.get("decision_latency_seconds")
        if delay and self.settings.clock == "wall":
            text += f", decisions after {delay['p50']:.3g} s (99 %: {delay['p99']:.3g} s)"
        return f"{text}, {facts['api_calls_per_pod']:.3g} API calls a pod" if facts["pods"] else text

    # Source of monitoring

    def gauges(self) -> Iterable[tuple[str, str, float]]:
        """See :class:`hdsim.backends.kwok.monitoring.Source`."""
        yield "leader", "This instance binds pods", float(self._lease is None or self._lease.held)
        if (session := self._session) is not None:
            cluster = session.cluster
            yield "pending_jobs", "Jobs in the queue", len(cluster.queue)
            yield "starting_jobs", "Jobs whose bindings have no answers yet", len(cluster.starting)
            yield "running_jobs", "Running jobs", len(cluster.running) - len(cluster.starting)
            yield "requests_in_flight", "Requests without an answer", session.sender.in_flight

    def counters(self) -> Iterable[tuple[str, str, float]]:
        """See :class:`hdsim.backends.kwok.monitoring.Source`."""
        if (session := self._session) is not None:
            yield "decisions", "Pods that were decided on", session.decisions
            yield "bindings", "Pods that were bound", session.bindings
            yield "failed_starts", "Starts of jobs that failed", len(session.cluster.failed_starts)
            yield "new_nodes", "Nodes that have come in mid-run", len(session.nodes.joined)
            yield (
                "overfilled_nodes",
                "Nodes whose pods have requested more than they have",
                len(session.nodes.overfilled),
            )
            yield "relists", "Lists after the first", sum(cache.relists for cache in session.caches)
            yield "lost_watches", "Watches that were lost", sum(cache.reconnects for cache in session.caches)

    def fault(self) -> str:
        """See :class:`hdsim.backends.kwok.monitoring.Source`."""
        silent = 0.0 if self._session is None else time.monotonic() - self._session.heard
        return f"no pass for {silent:.0f} s" if silent > self.settings.timeout else ""

    def unready(self) -> str:
        """See :class:`hdsim.backends.kwok.monitoring.Source`."""
        if self._session is not None:
            return self._session.sender.stopped
        # A replica that waits for the lease is ready to take over; a Deployment replaces the leader only then.
        return "" if self._lease is not None and not self._lease.held else "waiting for the first lists"

    @property
    def _lease_name(self) -> str:
        return f"hdsim-{self.settings.scheduler_name}"

    def _connect(self) -> None:
        if not hasattr(self, "connection"):
            settings = self.settings
            self.connection = self._resources.enter_context(
                Connection(settings.kubeconfig, settings.context, timeout=settings.timeout)
            )
            require(self.connection, self._permissions())

    def _permissions(self) -> Iterable[Permission]:
        """Yields the permissions that every run needs."""
        for resource in ("nodes", "pods"):
            for verb in ("list", "watch"):
                yield Permission(Call(verb, "", resource))
        yield Permission(Call("create", "", "pods/binding"))
        yield Permission(Call("patch", "", "pods/status"))
        yield Permission(Call("create", "events.k8s.io", "events"))
        if self.settings.leader_election["enabled"]:
            leases, namespace = ("coordination.k8s.io", "leases"), self.settings.leader_election["namespace"]
            yield Permission(Call("create", *leases), namespace)
            for verb in ("get", "update"):
                yield Permission(Call(verb, *leases), namespace, self._lease_name)

    def _permissions_of(self, jobs: Workload) -> Iterable[Permission]:
        """Yields the permissions that jobs need which become pods."""
        namespace = self.settings.namespace
        if self.settings.submit:
            for verb in ("create", "delete"):
                yield Permission(Call(verb, "", "pods"), namespace)
            if jobs.priority.any():
                yield Permission(Call("create", "scheduling.k8s.io", "priorityclasses"))

    def _told(self) -> dict[str, Any]:
        """Returns the entries of the manifest."""
        session, calls = self._session, self.connection.calls
        assert session is not None
        records = session.records
        for_pods = sum(number for call, number in calls.items() if call.resource in ("pods/binding", "events"))
        return {
            "name": self.name,
            "server": self.connection.server,
            "clock": self.settings.clock,
            "pods": len(records),
            "pods_bound": session.bindings,
            "api_calls": {str(call): number for call, number in sorted(calls.items())},
            "api_calls_per_pod": round(for_pods / len(records), 3) if records else None,
            "failed_starts": len(session.cluster.failed_starts),
            "new_nodes": len(session.nodes.joined),
            "overfilled_nodes": len(session.nodes.overfilled),
            "relists": sum(cache.relists for cache in session.caches),
            "lost_watches": sum(cache.reconnects for cache in session.caches),
            **latencies(records, self.settings.time_scale),
        }
