"""Backend ``batsim``: a real Batsim runs the jobs, hdsim's agents decide.

hdsim is the scheduler of Batsim's protocol: it binds a ZeroMQ REP socket, Batsim connects and asks. The state of the
protocol is in :mod:`hdsim.backends.batsim.session`.
"""

from __future__ import annotations

import logging
import os
import secrets
import shlex
import shutil
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hdsim.backends.base import Backend, Capabilities
from hdsim.backends.batsim.files import Files
from hdsim.backends.batsim.protocol import SEPARATOR
from hdsim.backends.batsim.pstates import PStates
from hdsim.backends.batsim.session import SENDER, BatsimSession
from hdsim.errors import ConfigError
from hdsim.platform.schema import QUANTITIES
from hdsim.util.process import Process
from hdsim.util.rules import FLAG, NULL, POSITIVE, TEXT, TEXTS, require

if TYPE_CHECKING:
    from hdsim.backends.batsim.zeromq import ZeromqConnection
    from hdsim.platform.model import Platform
    from hdsim.power import PowerManagement
    from hdsim.simulation.setup import ReplaySetup
    from hdsim.workload.model import Workload

log = logging.getLogger(__name__)

_RULES = {
    "executable": TEXT,
    "arguments": TEXTS,
    "socket": TEXT | NULL,
    "timeout": POSITIVE,
    "energy": FLAG | NULL,
    "kill_at_walltime": FLAG,
}


class Batsim(Backend):
    """A Batsim at the other end of a connection.

    An agent with an attribute `batsim` finds the :class:`~hdsim.backends.batsim.session.BatsimSession` there, for
    requests that only Batsim understands.

    Args:
        executable: Batsim's name on PATH or its path; not used when there is a `socket`.
        arguments: Further arguments for it.
        socket: Endpoint to bind, at which a Batsim that hdsim has not started is waited for.
        timeout: Seconds that Batsim may stay silent.
        energy: Set P-states and let Batsim account for energy; None: where contention or power management needs it.
        kill_at_walltime: Give jobs their walltimes.
    """

    capabilities = Capabilities(contention=("threshold",), network=("fluid",), power=True)
    session: BatsimSession  # the state of the protocol, from `open` on
    _interrupted: type[Exception]

    def __init__(
        self,
        executable: str = "batsim",
        arguments: Sequence[str] = (),
        socket: str | None = None,
        timeout: float = 60.0,
        energy: bool | None = None,
        kill_at_walltime: bool = False,
    ) -> None:
        self._executable, self._arguments, self._socket = executable, list(arguments), socket
        self._timeout, self._energy, self.kill_at_walltime = timeout, energy, kill_at_walltime
        given = (executable, self._arguments, socket, timeout, energy, kill_at_walltime)
        require("backend", _RULES, dict(zip(_RULES, given, strict=True)))
        self._resources = ExitStack()
        self._connection: ZeromqConnection | None = None
        self._facts: dict[str, Any] = {}

    def faults(self, platform: Platform, workload: Workload, contention: Any, network: Any) -> list[str]:
        faults: list[str] = []
        if platform.kind == QUANTITIES:
            faults.append("expected a platform of kind cores, got quantities (platform.kind)")
        try:
            import hdsim.backends.batsim.zeromq  # noqa: F401 - says what to install
        except ConfigError as error:
            faults.append(str(error))
        if self._socket is None and shutil.which(self._executable) is None:
            faults.append(
                f"expected Batsim on PATH or its path in backend.executable, found no program '{self._executable}' "
                "(docs/batsim.md says how to get it), or backend.socket, where a running one connects to"
            )
        if contention is not None and self._energy is False:
            faults.append("contention threshold sets P-states, which Batsim does not do with backend.energy=false")
        if network is None:
            sending = sum(
                program is not None and any(step.pattern is not None for step in program.steps)
                for program in workload.program.tolist()
            )
            if sending:
                faults.append(
                    f"network=none: expected jobs without messages, which Batsim sends over the links of the platform; "
                    f"{sending} of {len(workload)} jobs have some; network=fluid simulates the same as Batsim"
                )
        instant = int(np.count_nonzero((workload.runtime == 0) & workload.fixed_duration))
        if instant:
            faults.append(f"expected delays above 0 s, which {instant} of {len(workload)} jobs have not")
        if workload.job_id.dtype == object and any(SEPARATOR in str(own) for own in workload.job_id.tolist()):
            faults.append(f"expected job ids without '{SEPARATOR}', which Batsim puts behind the workload's name")
        return faults

    def power_faults(self, power: PowerManagement) -> list[str]:
        faults = []
        if self._energy is False:
            faults.append("power sets P-states, which Batsim does not do with backend.energy=false")
        if power.caps:
            faults.append("power.cap: expected null; Batsim does not know of caps")
        if power.boot_failure:
            faults.append(f"power.boot_failure: expected 0, got {power.boot_failure:g}; Batsim's hosts always boot")
        return faults

    def open(self, setup: ReplaySetup, directory: Path, stop: Sequence[int]) -> None:
        """Binds the socket, writes Batsim's input and starts it.

        Raises:
            ConfigError: The socket cannot be bound.
            BackendError: Batsim cannot be started.
        """
        from hdsim.backends.batsim.zeromq import WaitInterrupted, ZeromqConnection

        self._interrupted = WaitInterrupted
        cluster, contention = setup.cluster, setup.contention
        needs_energy = contention is not None or setup.power is not None
        energy = needs_energy if self._energy is None else self._energy
        pstates = PStates(cluster.platform, cluster.workload, contention) if energy else None  # type: ignore[arg-type]
        agent: Any = setup.agent
        asks, power = hasattr(agent, "batsim"), None
        if setup.power is not None:
            from hdsim.backends.batsim.sleeping import HostPower

            power = HostPower(cluster, setup.power)
        self.session = BatsimSession(
            cluster,
            infeasible=setup.infeasible.tolist(),
            pstates=pstates,
            power=power,
            registers_jobs=asks,
        )
        if asks:
            agent.batsim = self.session
        self._files = Files(
            directory,
            energy=energy,
            kill_at_walltime=self.kill_at_walltime,
            latencies=setup.network is not None,
        )
        self._files.write(cluster.platform, cluster.workload)
        endpoint = self._socket or _private_endpoint()
        connection = ZeromqConnection("REP", endpoint, peer=SENDER, where="backend.socket", stop=stop)
        self._connection = self._resources.enter_context(connection)
        command = [
            shutil.which(self._executable) or self._executable,
            "-s",
            connection.peer_endpoint,
            *self._files.options,
            *(["-E"] if energy else []),
            *self._arguments,
        ]
        if self._socket is None:
            connection.process = self._resources.enter_context(Process(command, self._files.log, SENDER))
        else:
            log.warning("waiting for Batsim at %s; to start it: %s", connection.endpoint, shlex.join(command))

    def advance(self) -> bool:
        """Receives messages up to the next one that an agent acts on; False at the end of the simulation.

        Raises:
            BackendError: Batsim is silent, has ended, sent a malformed message, or wrote other results than it sent.
        """
        connection, session = self._connection, self.session
        assert connection is not None
        while True:
            try:
                message = connection.receive(self._timeout)
            except self._interrupted:
                return False
            if session.read(message):
                return True
            self.apply()
            if session.ended:
                break
        if connection.process is not None:
            connection.process.wait(self._timeout)
            self._facts = self._files.outcome(session)
        return False

    def apply(self) -> None:
        """Sends the decisions, the reply to the last message."""
        assert self._connection is not None
        self._connection.send(self.session.write().encode())

    def close(self) -> None:
        """Closes the socket and ends the Batsim that hdsim has started."""
        self._resources.close()

    def facts(self) -> dict[str, Any]:
        """Batsim's version, the energy that it reports, and the number of messages."""
        connection = self._connection
        heard = {"endpoint": connection.endpoint, "messages": connection.received} if connection else {}
        return {"name": self.name, "version": None, **heard, **self._facts}


def _private_endpoint() -> str:
    """An endpoint for a Batsim on this machine."""
    # An abstract socket of Linux is no file that could be left behind.
    return f"ipc://@hdsim-{os.getpid()}-{secrets.token_hex(8)}" if sys.platform == "linux" else "tcp://127.0.0.1:*"
