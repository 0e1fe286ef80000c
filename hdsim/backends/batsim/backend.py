"""Backend ``batsim``: a real Batsim runs the jobs, hdsim's agents decide.

hdsim is the scheduler of Batsim's protocol: it binds a ZeroMQ REP socket, Batsim connects and asks. Everything but the
socket is in :mod:`hdsim.backends.batsim.translation`.
"""

from __future__ import annotations

import csv
import logging
import math
import os
import secrets
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from operator import itemgetter
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from hdsim.backends.base import Backend, Capabilities
from hdsim.backends.batsim.cores import one_core
from hdsim.backends.batsim.process import Process
from hdsim.backends.batsim.protocol import SEPARATOR
from hdsim.backends.batsim.pstates import PStates
from hdsim.backends.batsim.translation import Translation
from hdsim.backends.batsim.zmtp import Line, Listener
from hdsim.cluster.state import FinalState
from hdsim.errors import BackendError, ConfigError
from hdsim.simulation.replay import ReplayBar, perform, replay, set_stage
from hdsim.util.rules import FLAG, NULL, POSITIVE, TEXT, TEXTS, require

if TYPE_CHECKING:
    from hdsim.contention import ProcessorContention
    from hdsim.platform.model import Platform
    from hdsim.results.result import Result
    from hdsim.scheduling.agent import Agent
    from hdsim.workload.model import Workload

log = logging.getLogger(__name__)

#: Where a scheduler binds that Batsim looks for without options.
DEFAULT_SOCKET = "tcp://*:28000"
#: s; a wait is cut into pieces so that signals and the death of the child are noticed.
_PATIENCE = 0.2
#: s that who connects may take for each part of a greeting; ZeroMQ sends its own at once, and comes again.
_GREETING = 5.0
#: s; times are printed with six decimals and may have been rounded twice.
_TOLERANCE = 2e-6
_OUTPUTS = "out"
#: Columns of Batsim's account of jobs that its messages have told before.
_TOLD = ("workload_name", "job_id", "final_state", "starting_time", "finish_time", "allocated_resources")


_RULES = {
    "executable": TEXT,
    "arguments": TEXTS,
    "socket": TEXT | NULL,
    "timeout": POSITIVE,
    "energy": FLAG | NULL,
    "kill_at_walltime": FLAG,
    "one_core": FLAG | NULL,
}


@dataclass(frozen=True)
class Settings(Backend):
    """Settings of the backend, the keys of ``conf/backend/batsim.yaml``.

    Attributes:
        executable: Batsim's name on PATH or its path; not used when there is a `socket`.
        arguments: Further arguments for it.
        socket: Endpoint to bind, at which a Batsim started by someone else is waited for.
        timeout: s that Batsim may stay silent.
        energy: Set P-states and let Batsim account for energy; None: where contention needs P-states.
        kill_at_walltime: Give jobs their kill limits.
        one_core: Let hdsim and the Batsim that it starts share a core; None: unless PyTorch is in use.
    """

    executable: str = "batsim"
    arguments: Sequence[str] = field(default=())
    socket: str | None = None
    timeout: float = 60.0
    energy: bool | None = None
    kill_at_walltime: bool = False
    one_core: bool | None = None

    name = "batsim"
    capabilities = Capabilities(contention=("threshold",))

    def __post_init__(self) -> None:
        require("backend", _RULES, vars(self))

    def faults(self, platform: Platform, workload: Workload, contention: Any) -> list[str]:
        """See :meth:`hdsim.backends.base.Backend.faults`."""
        faults: list[str] = []
        if self.socket is None and shutil.which(self.executable) is None:
            faults.append(
                f"expected Batsim on PATH or its path in backend.executable, found no program '{self.executable}' "
                "(docs/batsim.md says how to get it), or backend.socket, where a running one connects to"
            )
        if contention is not None and self.energy is False:
            faults.append("contention threshold sets P-states, which Batsim does not do with backend.energy=false")
        instant = int(np.count_nonzero((workload.runtime == 0) & workload.fixed_duration))
        if instant:
            faults.append(f"expected delays above 0 s, which {instant} of {len(workload)} jobs have not")
        if workload.job_id.dtype == object and any(SEPARATOR in str(own) for own in workload.job_id.tolist()):
            faults.append(f"expected job ids without '{SEPARATOR}', which Batsim puts behind the workload's name")
        return faults

    def run(
        self, platform: Platform, workload: Workload, agent: Any, directory: str | Path = ".", **options: Any
    ) -> tuple[Result, dict[str, Any]]:
        """See :meth:`hdsim.backends.base.Backend.run`."""
        return run(platform, workload, agent, directory, self, **options)


class Channel:
    """The REP socket. Batsim asks, exactly one answer follows.

    Args:
        endpoint: Where to bind.
        timeout: s that Batsim may stay silent.
        stop: Signals received so far; there is nothing more to receive once there is one.

    Raises:
        ConfigError: It cannot be bound.
    """

    def __init__(self, endpoint: str, *, timeout: float, stop: Sequence[int] = ()) -> None:
        self._timeout, self._stop = timeout, stop
        self._patience = min(_PATIENCE, timeout)
        self._line: Line | None = None
        try:
            self._listener = Listener(endpoint)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"expected an endpoint to bind such as {DEFAULT_SOCKET}, got '{endpoint}': {error}",
                where="backend.socket",
            ) from None
        self.endpoint = self._listener.endpoint
        self.messages = 0

    def receive(self, process: Process | None) -> bytes | None:
        """Waits for the next message; None when a signal came instead.

        Args:
            process: Batsim, if hdsim has started it.

        Raises:
            BackendError: Batsim is dead, has hung up or has been silent for too long.
        """
        deadline = math.inf
        while True:
            try:
                if self._line is None:
                    self._line = self._listener.accept(self._patience, min(_GREETING, self._timeout))
                    self._line.wait_at_most(self._patience)
                frames = self._line.receive()
                break
            except TimeoutError:
                if self._stop:
                    return None
            except ConnectionError:
                # One that goes without a greeting has only looked whether somebody is here.
                if self._line is not None:
                    if self._stop:
                        return None
                    raise BackendError(self._hung_up(process)) from None
            dead = process.fault() if process else None
            now = time.monotonic()
            if dead is not None:
                raise BackendError(f"Batsim {dead}")
            deadline = min(deadline, now + self._timeout - self._patience)
            if now >= deadline:
                raise BackendError(self._silence())
        self.messages += 1
        if len(frames) != 1 or not frames[0].lstrip().startswith(b"{"):
            got = "a frame" if len(frames) == 1 else "several frames, the first"
            raise BackendError(
                f"expected JSON in one frame, the protocol of Batsim 3 and 4, got {got} beginning with "
                f"{b''.join(frames[:1])[:40]!r} (Batsim 5 speaks FlatBuffers)"
            )
        return frames[0]

    def _silence(self) -> str:
        if self.messages:
            return f"Batsim has sent nothing for {self._timeout:g} s after the reply to its message {self.messages}"
        return f"no Batsim has connected to {self.endpoint} within {self._timeout:g} s"

    def _hung_up(self, process: Process | None) -> str:
        dead = process.last_fault() if process else None
        return f"Batsim {dead or f'has hung up after {self.messages} messages'}"

    def send(self, text: str) -> None:
        """Answers.

        Raises:
            BackendError: It cannot be sent in time.
        """
        assert self._line is not None, "there is something to answer"
        try:
            self._line.send(text.encode())
        except TimeoutError:
            raise BackendError(f"Batsim has not taken a reply for {self._timeout:g} s") from None
        except ConnectionError:
            # What has become of Batsim is found out when the next message does not come.
            pass

    def close(self) -> None:
        """Closes the socket."""
        if self._line is not None:
            self._line.close()
        self._listener.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class BatsimBackend:
    """A Batsim on the other end of a channel, as a :class:`hdsim.simulation.replay.Backend`.

    Args:
        channel: The socket.
        translation: The conversation.
        process: Batsim, if hdsim has started it.
    """

    def __init__(self, channel: Channel, translation: Translation, process: Process | None = None) -> None:
        self._channel = channel
        self._translation = translation
        self._process = process

    def advance(self) -> bool:
        """Receives messages up to the next one with news; False when the simulation is over or a signal came."""
        channel, translation = self._channel, self._translation
        while True:
            text = channel.receive(self._process)
            if text is None:
                return False
            if translation.read(text):
                return True
            channel.send(translation.write())
            if translation.ended:
                return False

    def apply(self) -> None:
        """Answers with the decisions."""
        self._channel.send(self._translation.write())


def run(
    platform: Platform,
    workload: Workload,
    agent: str | Mapping[str, Any] | Agent,
    directory: str | Path,
    settings: Settings | None = None,
    *,
    contention: str | Mapping[str, Any] = "none",
    network: str | Mapping[str, Any] = "none",
    failures: str | Mapping[str, Any] = "none",
    seed: int = 0,
    progress: bool = False,
    check: bool = False,
    config: Mapping[str, Any] | None = None,
) -> tuple[Result, dict[str, Any]]:
    """Replays a workload on a Batsim under an agent; the counterpart of :func:`hdsim.simulation.replay.simulate`.

    Args:
        platform: The platform.
        workload: The jobs.
        agent: See :func:`hdsim.simulation.replay.simulate`. One that has an attribute `batsim` finds the
            :class:`~hdsim.backends.batsim.translation.Translation` there, for requests that only Batsim understands.
        directory: Gets Batsim's input, its output and its log.
        settings: Where Batsim is.
        contention: ``none`` or ``threshold``.
        network: ``none``: Batsim simulates the network itself.
        failures: ``none``.
        seed: Seed of everything random in the agent.
        progress: Show a progress bar on standard error.
        check: Assert all invariants of the state at every message (slow).
        config: Settings to keep in the result.

    Returns:
        The result, and what is known of the Batsim that made it.

    Raises:
        ConfigError: Batsim cannot do what is asked for, or the socket cannot be bound.
        BackendError: Batsim cannot be started, died, hangs, or says what it must not. The error's `result` has what
            was done by then.
        DecisionError: The agent asked for something impossible.
        Interrupted: SIGINT or SIGTERM came.
    """
    settings = settings or Settings()
    settings.check(platform, workload, contention=contention, network=network, failures=failures)
    stage = set_stage(platform, workload, agent, contention=contention, seed=seed)
    model: ProcessorContention | None = stage.contention  # type: ignore[assignment]
    if settings.energy is None:
        settings = replace(settings, energy=model is not None)
    pstates = PStates(platform, workload, model) if settings.energy else None
    translation = Translation(stage.cluster, infeasible=stage.infeasible.tolist(), pstates=pstates)
    if hasattr(stage.agent, "batsim"):
        stage.agent.batsim = translation
    files = Files(Path(directory), settings)
    files.write(platform, workload)
    facts: dict[str, Any] = {"name": "batsim", "version": None}

    def play(stop: list[int], bar: ReplayBar) -> None:
        with ExitStack() as stack:
            endpoint = settings.socket or _private_socket()
            if settings.socket is None:
                # Inherited by the child.
                stack.enter_context(one_core(settings.one_core))
            channel = stack.enter_context(Channel(endpoint, timeout=settings.timeout, stop=stop))
            command = files.command(channel.endpoint)
            if settings.socket is None:
                process = stack.enter_context(Process(command, files.log, "Batsim"))
                backend = BatsimBackend(channel, translation, process)
            else:
                log.warning("waiting for Batsim at %s; to start it: %s", channel.endpoint, " ".join(command))
                backend = BatsimBackend(channel, translation)
            replay(backend, stage.cluster, stage.agent, stop, bar, check=check)
            facts.update(endpoint=channel.endpoint, messages=channel.messages)
            if settings.socket is None and not stop:
                process.wait(settings.timeout)
                facts.update(files.outcome(translation))

    return perform(play, stage.cluster, progress=progress, config=config), facts


def _private_socket() -> str:
    """An endpoint for a Batsim on this machine."""
    # Linux has sockets that are no files, seen from where a port is and cheaper by a third.
    return f"ipc://@hdsim-{os.getpid()}-{secrets.token_hex(8)}" if sys.platform == "linux" else "tcp://127.0.0.1:*"


class Files:
    """What goes into Batsim and what comes out of it, in a folder ``batsim`` of the run directory.

    Args:
        directory: The run directory.
        settings: Settings of the backend.
    """

    def __init__(self, directory: Path, settings: Settings) -> None:
        self._folder = directory / "batsim"
        self._settings = settings
        self.platform = self._folder / "platform.xml"
        self.workload = self._folder / "workload.json"
        self.log = self._folder / "batsim.log"

    def write(self, platform: Platform, workload: Workload) -> None:
        """Writes platform and workload in Batsim's formats, times from the first submission on."""
        from hdsim.platform.simgrid import to_xml
        from hdsim.workload.batsim_json import write_batsim

        self._folder.mkdir(parents=True, exist_ok=True)
        for old in self._folder.glob(f"{_OUTPUTS}_*"):
            old.unlink()
        self.platform.write_bytes(to_xml(platform, pstates=bool(self._settings.energy)))
        columns: dict[str, Any] = {"original_submission_time": workload.submission_time}
        if not self._settings.kill_at_walltime:
            columns |= {"walltime": np.inf}
        write_batsim(workload.replaced(**columns), self.workload, platform)

    def command(self, endpoint: str) -> list[str]:
        """The command that starts a Batsim for this run."""
        settings = self._settings
        return [
            shutil.which(settings.executable) or settings.executable,
            "-s", endpoint.replace("//0.0.0.0:", "//localhost:"),
            "-p", str(self.platform),
            "-w", str(self.workload),
            "-e", str(self._folder / _OUTPUTS),
            *(["-E"] if settings.energy else []),
            *settings.arguments,
        ]  # fmt: skip

    def outcome(self, translation: Translation) -> dict[str, Any]:
        """Reads Batsim's own account and compares it with what was heard from it.

        Raises:
            BackendError: A file is missing or damaged, or tells another story.
        """
        schedule = _rows(self._folder / f"{_OUTPUTS}_schedule.csv", ("batsim_version", "consumed_joules"))
        path = self._folder / f"{_OUTPUTS}_jobs.csv"
        cluster = translation.cluster
        abandoned = set(translation.abandoned)
        untold = {row for row, state in enumerate(cluster.state) if state > FinalState.RUNNING} | abandoned
        states = [state.name for state in FinalState]
        name = str(path)
        for line, (workload, own, state, start, finish, hosts) in enumerate(_rows(path, _TOLD), 2):
            where = f"{name}:{line}"
            job = translation.rows.get(f"{workload}{SEPARATOR}{own}")
            if job is None:
                raise BackendError(f"unknown job '{own}'", where=where)
            untold.discard(job)
            told = FinalState.REJECTED.name if job in abandoned else states[cluster.state[job]]
            if state != told:
                raise _contradiction("final_state", state, told, where)
            if not math.isnan(cluster.finish_time[job]):
                _compare("starting_time", start, cluster.starting_time[job], where)
                _compare("finish_time", finish, cluster.finish_time[job], where)
                translation.check_allocation(job, hosts, f"{where}: allocated_resources")
        if untold:
            raise BackendError(f"expected a row for every job, {len(untold)} are missing", where=str(path))
        if len(schedule) != 1:
            raise BackendError(f"expected one row, got {len(schedule)}", where=str(self._folder))
        version, joules = schedule[0]
        return {
            "version": version or None,
            "consumed_joules": float(joules) if self._settings.energy and joules else None,
            "abandoned_jobs": len(abandoned),
        }


def _rows(path: Path, columns: Sequence[str]) -> list[Sequence[str]]:
    """Some columns of a CSV file of Batsim, at least two; what is not there is empty."""
    if not path.is_file():
        raise BackendError("expected Batsim to have written this file, it is missing", where=str(path))
    with path.open(encoding="utf-8", newline="") as file:
        lines = csv.reader(file)
        header = next(lines, [])
        places = [header.index(column) if column in header else len(header) for column in columns]
        width = max(places) + 1
        chosen = itemgetter(*places)
        return [chosen(line if len(line) >= width else line + [""] * width) for line in lines if line]


def _compare(key: str, found: str, told: float, where: str) -> None:
    """Compares a time in Batsim's output with what its messages said.

    Raises:
        BackendError: They differ.
    """
    try:
        same = math.isclose(float(found), told, rel_tol=1e-12, abs_tol=_TOLERANCE)
    except ValueError:
        same = False
    if not same:
        raise _contradiction(key, found, told, where)


def _contradiction(key: str, found: str, told: str | float, where: str) -> BackendError:
    return BackendError(f"{key}: expected {told}, as Batsim's messages said, got '{found}'", where=where)
