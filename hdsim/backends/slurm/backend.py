"""Backend ``slurm``: hdsim's agents schedule the jobs of a slurmctld."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hdsim.backends.base import Capabilities
from hdsim.backends.live import LiveBackend
from hdsim.backends.slurm.records import latencies, write_records
from hdsim.backends.slurm.session import SlurmSession
from hdsim.backends.slurm.settings import SlurmSettings
from hdsim.errors import BackendError, ConfigError
from hdsim.platform.model import Platform
from hdsim.slurm.emulated import shape_beside
from hdsim.slurm.programs import require_libraries
from hdsim.workload.model import Workload

if TYPE_CHECKING:
    from hdsim.results.result import Result
    from hdsim.simulation.setup import ReplaySetup
    from hdsim.slurm.client import Client

#: Longest time in seconds that a single request may take.
_REQUEST = 10.0


class Slurm(LiveBackend):
    """A slurmctld, real or of ``hdsim slurm up``, whose held jobs hdsim gives nodes and releases.

    Without jobs (``workload=cluster``), the held jobs of Slurm become jobs; otherwise the jobs of the trace are
    submitted. The settings are those of :class:`hdsim.backends.slurm.settings.SlurmSettings`.
    """

    capabilities = Capabilities(gpus=True, confirms_starts=True, core_ids=False, known_jobs=False)

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.settings = SlurmSettings.of(settings)
        self.kill_at_walltime = self.settings.kill_at_walltime
        self.repeats = False
        self._client: Client | None = None
        self._session: SlurmSession | None = None
        self._shape = shape_beside(Path(self.settings.conf))

    def run(
        self, platform: Platform, workload: Workload, agent: Any, *arguments: Any, **options: Any
    ) -> tuple[Result, Any]:
        return super().run(platform.of_kind("quantities"), workload, agent, *arguments, **options)

    def read_platform(self) -> Platform:
        """Reads the nodes of slurmctld."""
        from hdsim.slurm.platform import platform_document

        return Platform.from_dict(platform_document(self._connect().nodes()), "<cluster>")

    def faults(self, platform: Platform, workload: Workload, contention: Any, network: Any) -> list[str]:
        found = []
        if np.unique(platform.gflops[~platform.is_gpu]).size > 1:
            found.append("expected CPUs of one speed: the jobs sleep as long on every node")
        if len(workload):
            if self._shape is None:
                found.append(
                    "expected the slurm.conf of a cluster that `hdsim slurm up` has started, as the jobs of a trace "
                    f"only sleep, got backend.conf={self.settings.conf}; workload=cluster schedules jobs of users"
                )
            if (workload.cpu % 1 != 0).any():
                found.append("expected whole CPUs; some jobs ask for parts")
            if workload.storage.any():
                found.append("expected jobs without ephemeral storage; some jobs ask for some")
        return found

    def open(self, setup: ReplaySetup, directory: Path, stop: Sequence[int]) -> None:
        """Connects, and reads clock, nodes and jobs.

        Raises:
            ConfigError: slurmctld or the platform cannot be used.
            BackendError: slurmctld does not answer.
        """
        self.prepare(directory)
        session = SlurmSession(self._connect(), self.settings, self._scale, setup, stop)
        session.start()
        self._session = session

    def close(self) -> None:
        """Waits for the starts that are on their way, and writes slurm_jobs.csv."""
        session, self._session = self._session, None
        try:
            if session is not None:
                session.end()
                if self._directory is not None:
                    write_records(self._directory / "slurm_jobs.csv", session.records)
                self._facts = self._told(session)
        finally:
            self._resources.close()

    def summary(self) -> str:
        """Jobs and latencies."""
        if not self._facts:
            return ""
        text = f"{self._facts['jobs_started']:,} of {self._facts['jobs']:,} jobs started"
        delay = self._facts.get("start_latency_seconds")
        return f"{text}, {delay['p50']:.3g} s after the decision (99 %: {delay['p99']:.3g} s)" if delay else text

    @property
    def _scale(self) -> float:
        if self.settings.time_scale is not None:
            return self.settings.time_scale
        return 1.0 if self._shape is None else self._shape.clock

    def _connect(self) -> Client:
        if self._client is None:
            require_libraries()
            settings = self.settings
            seconds = min(_REQUEST, settings.timeout)
            conf = Path(settings.conf)
            if not conf.is_file():
                raise ConfigError(f"expected the slurm.conf of a cluster, got '{conf}'", where="backend.conf")
            client: Client
            if settings.socket is None:
                from hdsim.slurm.commands import Commands

                client = Commands(conf.resolve(), seconds)
            else:
                from hdsim.slurm.rest import Rest

                client = Rest(Path(settings.socket), seconds)
            self._resources.callback(client.close)
            try:
                client.time()
            except BackendError as error:
                raise BackendError(f"{client.name} of {conf} does not answer: {error}") from None
            self._client = client
        return self._client

    def _told(self, session: SlurmSession) -> dict[str, Any]:
        """Returns the entries of the manifest."""
        assert self._client is not None
        records = session.records
        return {
            "name": self.name,
            "server": self._client.name,
            "time_scale": self._scale,
            "continued": session.continued,
            "jobs": len(records),
            "jobs_started": sum(record.started == record.started for record in records),
            "requests": dict(sorted(self._client.calls.items())),
            "silences": session.silences,
            "failed_starts": len(session.cluster.failed_starts),
            **latencies(records, self._scale),
        }
