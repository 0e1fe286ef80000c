"""The ZeroMQ connection of Batsim's protocol, made by libzmq (pyzmq, extra ``batsim``), and the loop with a scheduler.

Import this module where a connection is made and not before: without pyzmq its import raises the error for the user.
"""

from __future__ import annotations

import math
import re
import socket
import stat
import struct
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from hdsim.backends.batsim.protocol import SCHEDULER
from hdsim.errors import BackendError, ConfigError, install_hint
from hdsim.simulation.terminal import collecting_less

try:
    import zmq
except ImportError:
    raise ConfigError(f"expected pyzmq, which is not installed{install_hint('zmq')}") from None

if TYPE_CHECKING:
    from hdsim.backends.batsim.server import BatsimServer
    from hdsim.util.process import Process

#: Longest wait, in ms, before the state of the peer is looked at again.
_SLICE = 100
#: Time, in ms, that closing a socket may take to deliver the last reply.
_LINGER = 1000
#: Largest message accepted, in bytes; the profiles of a million jobs take about 60 MB.
_MAX_MESSAGE = 256 * 1024**2
_EVENTS = zmq.Event.HANDSHAKE_SUCCEEDED | zmq.Event.HANDSHAKE_FAILED_PROTOCOL | zmq.Event.DISCONNECTED
#: First frame of a report of libzmq's monitor: number and value of the event (zmq_socket_monitor).
_REPORT = struct.Struct("=HI")
#: Replies between two updates of the progress bar.
_REPLIES_PER_UPDATE = 256
_TCP = re.compile(r"tcp://(.+):(\d+|\*)")
_UNAUTHENTICATED = "ZeroMQ authentication (CURVE or PLAIN), which Batsim's protocol does not use"


class HungUp(BackendError):
    """The peer has closed its connection or ended."""


class WaitInterrupted(Exception):
    """A signal came while a message was awaited."""


class ZeromqConnection:
    """A ZeroMQ socket with one peer at ``tcp://HOST:PORT`` or ``ipc://PATH``; a message is one frame.

    ``REP`` binds the endpoint; ``REQ`` connects to it, and waits if no process listens there yet. `peer` is the name of
    the peer and `where` the key or option of the endpoint in errors. `stop` are signals received so far; one ends a
    wait.

    Raises:
        ConfigError: The endpoint cannot be used.
    """

    def __init__(
        self, kind: Literal["REP", "REQ"], endpoint: str, *, peer: str, where: str, stop: Sequence[int] = ()
    ) -> None:
        self._peer, self._stop = peer, stop
        self._binds = kind == "REP"
        self.process: Process | None = None  # the peer's process, if hdsim has started it: its death ends a wait
        self.received = 0  # number of messages received
        # Reports of libzmq on peers: a complete handshake, one refused, a connection without handshake.
        self._greeted = self._refused = self._foreign = self._disconnected = False
        # Descriptor of the peer's connection, by which libzmq reports its end; None until the first message.
        self._descriptor: int | None = None
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.REP if self._binds else zmq.REQ)
        self._socket.rcvtimeo = _SLICE
        self._socket.linger = _LINGER if self._binds else 0
        self._socket.maxmsgsize = _MAX_MESSAGE
        # Names stand for IPv4 addresses unless the endpoint is an IPv6 literal, as in Batsim.
        self._socket.ipv6 = "[" in endpoint
        self._monitor = self._socket.get_monitor_socket(_EVENTS)
        try:
            _check(endpoint, binds=self._binds)
            if self._binds:
                self._socket.bind(endpoint.replace("//localhost:", "//127.0.0.1:"))
            else:
                self._socket.connect(endpoint)
        except (zmq.ZMQError, OSError) as error:
            self.close()
            reason = str(error).partition(" (addr=")[0]
            example = "tcp://*:28000" if self._binds else "tcp://localhost:28000"
            raise ConfigError(
                f"expected an endpoint such as {example} or ipc:///tmp/batsim, got '{endpoint}': {reason}",
                where=where,
            ) from None
        #: The endpoint; a port ``*`` is replaced by the one that the system has chosen.
        self.endpoint = str(self._socket.getsockopt_string(zmq.LAST_ENDPOINT)) if self._binds else endpoint

    @property
    def peer_endpoint(self) -> str:
        """The endpoint that a peer on this machine connects to."""
        return self.endpoint.replace("//0.0.0.0:", "//localhost:").replace("//[::]:", "//[::1]:")

    def send(self, message: bytes) -> None:
        """Sends a message; a peer that is gone is noticed by the next :meth:`receive`.

        Raises:
            BackendError: The message received before has further frames, after which libzmq refuses an answer.
        """
        try:
            self._socket.send(message)
        except zmq.ZMQError as error:
            if error.errno != zmq.EFSM or not self._socket.get(zmq.RCVMORE):
                raise
            raise self._several(1 + len(self._socket.recv_multipart())) from None

    def receive(self, timeout: float) -> bytes:
        """Waits for the next message, for which the peer may be silent for `timeout` seconds.

        Further frames of a message are noticed at the first one here, which tells another protocol, later by the answer
        to it: asking libzmq after each message takes a fiftieth of a scheduler's time.

        Raises:
            BackendError: The peer is silent, or its first message has several frames.
            HungUp: The peer has closed its connection or ended.
            WaitInterrupted: A signal came.
        """
        gone: HungUp | None = None
        deadline = math.inf
        while True:
            try:
                message = self._socket.recv() if self._descriptor is not None else self._first()
                break
            except zmq.Again:
                if gone is not None:
                    raise gone from None
            if deadline == math.inf:
                deadline = time.monotonic() + timeout - _SLICE / 1000
            if self._stop:
                raise WaitInterrupted
            # The last message of a process that has ended is read before its end is reported.
            gone = self._end_of_peer()
            if gone is None and time.monotonic() >= deadline:
                raise BackendError(self._silence(timeout))
        self.received += 1
        return message

    def close(self) -> None:
        """Closes the connection; a reply that was sent still arrives."""
        self._socket.disable_monitor()
        self._monitor.close()
        self._socket.close()
        self._context.term()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _first(self) -> bytes:
        frame = self._socket.recv(copy=False)
        self._descriptor = int(frame.get(zmq.MessageOption.SRCFD))
        if frame.more:
            raise self._several(1 + len(self._socket.recv_multipart()))
        return frame.bytes

    def _several(self, frames: int) -> BackendError:
        return BackendError(f"expected a message of one frame from {self._peer}, got {frames} frames")

    def _end_of_peer(self) -> HungUp | None:
        """Returns the end of the peer according to its process and to the events of libzmq."""
        dead = self.process.fault() if self.process else None
        while dead is None and self._monitor.poll(0):
            # pyzmq's own function for this comes with asyncio, a thirtieth of a second of each start.
            kind, value = _REPORT.unpack(self._monitor.recv_multipart()[0])
            if kind == zmq.Event.HANDSHAKE_SUCCEEDED:
                self._greeted = True
            elif kind == zmq.Event.HANDSHAKE_FAILED_PROTOCOL:
                self._refused = True
                if not self._binds:
                    return HungUp(f"{self._peer} requires {_UNAUTHENTICATED}")
            elif value == self._descriptor or (self._greeted and not self._binds):
                self._disconnected = True
            else:
                self._foreign = True
        if self._disconnected and self.process:
            dead = self.process.last_fault()
        if dead is None and not self._disconnected:
            return None
        return HungUp(f"{self._peer} {dead or f'has hung up after {self.received} messages'}")

    def _silence(self, timeout: float) -> str:
        if self.received or (self._greeted and not self._binds):
            return f"{self._peer} has sent nothing for {timeout:g} s after {self.received} messages"
        hint = ""
        if self._refused:
            hint = f"; a peer was refused that requires {_UNAUTHENTICATED}"
        elif self._foreign:
            kind = "REQ" if self._binds else "REP"
            hint = f"; a process was connected that has no ZeroMQ {kind} socket or requires authentication"
        if self._binds:
            return f"no {self._peer} has connected to {self.endpoint} within {timeout:g} s{hint}"
        return f"{self._peer} has not bound {self.endpoint} within {timeout:g} s{hint}"


def _check(endpoint: str, *, binds: bool) -> None:
    """Raises OSError for mistakes in an endpoint that libzmq does not report: no such host or port, a plain file."""
    tcp = _TCP.fullmatch(endpoint)
    if tcp and tcp[2] != "*" and int(tcp[2]) > 65535:
        raise OSError("expected a port up to 65535")
    if tcp and not binds:
        socket.getaddrinfo(tcp[1].strip("[]"), tcp[2])
    path = Path(endpoint.removeprefix("ipc://"))
    # libzmq deletes whatever is there; an abstract socket (ipc://@NAME) is no file.
    named = endpoint.startswith("ipc://") and not endpoint.startswith("ipc://@")
    if binds and named and path.exists() and not stat.S_ISSOCK(path.stat().st_mode):
        raise OSError("the path is that of a file")


def serve(
    server: BatsimServer, exchange: Callable[[str], str | bytes], progress: Callable[[], object] | None = None
) -> None:
    """Simulates for a scheduler until the end; `exchange` sends it a message and returns its reply.

    Raises:
        BackendError: See :meth:`BatsimServer.answer`, and whatever `exchange` raises. A scheduler may hang up after
            ``SIMULATION_ENDS``.
    """
    message: str | None = server.begin()
    replies = 0
    with collecting_less():
        while message is not None:
            try:
                reply = exchange(message)
            except HungUp:
                if server.ended:
                    # Some schedulers end without the last reply.
                    return
                raise
            message = server.answer(reply)
            replies += 1
            if progress and replies % _REPLIES_PER_UPDATE == 0:
                progress()


class SchedulerSocket(ZeromqConnection):
    """The connection to the REP socket of a scheduler, whose replies may take `timeout` seconds of real time each.

    Raises:
        ConfigError: The endpoint cannot be used.
    """

    def __init__(self, endpoint: str, timeout: float) -> None:
        super().__init__("REQ", endpoint, peer=SCHEDULER, where="-s")
        self.waited = 0.0  # real time spent on waiting for replies, in seconds
        self._timeout = timeout

    def exchange(self, message: str) -> bytes:
        """Sends a message and waits for the reply; errors are those of :meth:`ZeromqConnection.receive`."""
        begin = time.perf_counter()
        try:
            self.send(message.encode("utf-8", "replace"))
            reply = self.receive(self._timeout)
        except BackendError as error:
            error.message += f"; the last message to it was {message[:120]}"
            raise
        self.waited += time.perf_counter() - begin
        return reply
