"""ZeroMQ's wire protocol as far as Batsim's needs it: one REQ or one REP socket with one peer, without libzmq.

libzmq hands every message to a thread of its own and back. Of two processes that take turns each sleeps until the other
is done, so that both threads have to be woken up for every message, which costs more than all that hdsim does with it
(docs/batsim.md has figures).

ZMTP 3.0 with the mechanism NULL (ZeroMQ RFC 23) and the envelope of REQ and REP (RFC 28), which every libzmq since 4.0
speaks.
"""

from __future__ import annotations

import re
import socket
import stat
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal

from hdsim.errors import BackendError

Kind = Literal["REQ", "REP"]
#: Kinds of sockets that may be at the other end.
_PARTNERS = {"REQ": ("REP", "ROUTER"), "REP": ("REQ", "DEALER")}
_MORE, _LONG, _COMMAND = 1, 2, 4
_GREETING = b"\xff" + bytes(8) + b"\x7f" + bytes([3, 0]) + b"NULL".ljust(20, b"\0") + bytes(32)
_DELIMITER = bytes([_MORE, 0])
_CHUNK = 1 << 16
#: s between two tries to reach a peer that is not there yet.
_RETRY = 0.02
_TCP = re.compile(r"tcp://(\*|\[[0-9a-fA-F:.%\w]+\]|[^\s:/\[\]*]+):(\*|\d{1,5})")
_IPC = re.compile(r"ipc://(@?)(.+)", re.DOTALL)

Address = tuple[int, str | tuple[str, int]]


class Line:
    """A connection, to be closed by whoever has it.

    Args:
        connected: Connected stream socket; closed if there is no understanding.
        kind: What this end is.
        timeout: s that the other end may take for a part of its greeting, and to take a part of a message.
        where: What errors call the place.

    Raises:
        BackendError: The other end does not speak ZMTP 3, or is a socket of the wrong kind.
        TimeoutError: It is silent.
        ConnectionError: It has gone.
    """

    def __init__(self, connected: socket.socket, kind: Kind, timeout: float, where: str | None = None) -> None:
        self._socket, self._where = connected, where
        self._received = bytearray()
        self._envelope = _DELIMITER
        try:
            if connected.family != socket.AF_UNIX:
                connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connected.setblocking(True)
            self._limit(socket.SO_SNDTIMEO, timeout)
            self._limit(socket.SO_RCVTIMEO, timeout)
            self._greet(kind)
        except BaseException:
            connected.close()
            raise

    def wait_at_most(self, seconds: float) -> None:
        """Sets how long a part of a message may take to come."""
        self._limit(socket.SO_RCVTIMEO, seconds)

    def send(self, body: bytes) -> None:
        """Sends a message of one frame; at a REP socket, the answer to what was received last.

        Raises:
            TimeoutError: The other end takes nothing.
            ConnectionError: It has gone.
        """
        self._write(self._envelope + _frame(body))

    def receive(self) -> list[bytes]:
        """The frames of the next message. Once time is over it can be called again.

        Raises:
            BackendError: It has no envelope.
            TimeoutError: There is none yet.
            ConnectionError: The other end has gone.
        """
        frames = self._complete() if self._received else None
        while frames is None:
            chunk = self._chunk()
            # Mostly a message comes whole and as plain as can be, and need not go through what copes with all others.
            if not self._received and (plain := _plain(chunk)) is not None:
                self._envelope = _DELIMITER
                return [plain]
            self._received += chunk
            frames = self._complete()
        if b"" not in frames:
            raise self._fault(f"expected an empty frame before a message, got {frames[0][:40]!r}")
        body = frames.index(b"") + 1
        self._envelope = _DELIMITER if body == 1 else b"".join(_frame(frame, _MORE) for frame in frames[:body])
        return frames[body:]

    def close(self) -> None:
        """Hangs up; what was sent still arrives."""
        self._socket.close()

    def _limit(self, option: int, seconds: float) -> None:
        # Python's own time-outs cost another system call for every message.
        value = struct.pack("@ll", int(seconds), int(seconds % 1 * 1e6) or 1)
        self._socket.setsockopt(socket.SOL_SOCKET, option, value)

    def _greet(self, kind: Kind) -> None:
        self._write(_GREETING)
        received = self._received
        while len(received) < len(_GREETING):
            self._read()
            version = received[10:11]
            if received[0] != 0xFF or (len(received) >= 10 and received[9] != 0x7F) or (version and version[0] < 3):
                raise self._fault(f"expected ZeroMQ (ZMTP 3, libzmq 4 or later), got {bytes(received[:40])!r}")
        mechanism = bytes(received[12:32]).rstrip(b"\0").decode("latin-1")
        if mechanism != "NULL":
            raise self._fault(f"expected ZeroMQ's mechanism NULL, got {mechanism}")
        del received[: len(_GREETING)]
        self._write(_frame(b"\5READY" + _property("Socket-Type", kind) + _property("Identity", ""), _COMMAND))
        while (command := self._command()) is None:
            self._read()
        found = re.search(rb"(?i)\x0bsocket-type\0\0\0(.)", command, re.DOTALL)
        partner = command[found.end() : found.end() + found[1][0]].decode("latin-1") if found else repr(command[:40])
        if partner not in _PARTNERS[kind]:
            raise self._fault(f"expected a ZeroMQ socket {' or '.join(_PARTNERS[kind])}, got {partner}")

    def _fault(self, message: str) -> BackendError:
        return BackendError(message, where=self._where)

    def _command(self) -> bytes | None:
        """The command at the front of what was received; None if it is not complete."""
        bounds = self._bounds(0)
        if bounds is None:
            return None
        flags, begin, end = bounds
        body = bytes(self._received[begin:end])
        del self._received[:end]
        if not flags & _COMMAND or body.startswith(b"\5ERROR"):
            raise self._fault(f"expected ZeroMQ's command READY, got {body[:60]!r}")
        return body

    def _complete(self) -> list[bytes] | None:
        """Takes the frames of a message out of what was received; None if it is not complete."""
        received, frames, at = self._received, [], 0
        flags = _MORE
        while flags & _MORE:
            bounds = self._bounds(at)
            if bounds is None:
                return None
            flags, begin, at = bounds
            if flags & _COMMAND:
                # What a peer may tell beside messages needs no answer in ZMTP 3.0.
                flags = _MORE
            else:
                frames.append(bytes(received[begin:at]))
        del received[:at]
        return frames

    def _bounds(self, at: int) -> tuple[int, int, int] | None:
        """Flags, begin and end of the frame at a place; None if it is not complete."""
        received = self._received
        if len(received) < at + 2:
            return None
        flags = received[at]
        if flags & _LONG:
            begin = at + 9
            end = begin + int.from_bytes(received[at + 1 : begin], "big")
        else:
            begin = at + 2
            end = begin + received[at + 1]
        return (flags, begin, end) if begin <= len(received) >= end else None

    def _read(self) -> None:
        self._received += self._chunk()

    def _chunk(self) -> bytes:
        try:
            chunk = self._socket.recv(_CHUNK)
        except BlockingIOError:
            raise TimeoutError from None
        if not chunk:
            raise ConnectionResetError
        return chunk

    def _write(self, message: bytes) -> None:
        try:
            self._socket.sendall(message)
        except BlockingIOError:
            raise TimeoutError from None


class Listener:
    """A REP socket that waits for its peer.

    Attributes:
        endpoint: Where it is bound, its port a number.

    Args:
        endpoint: ``tcp://HOST:PORT``, of which both may be ``*``, or ``ipc://PATH``.

    Raises:
        ValueError: It is no endpoint.
        OSError: It cannot be bound.
    """

    def __init__(self, endpoint: str) -> None:
        family, address = _address(endpoint)
        self._path = Path(address) if isinstance(address, str) and address[0] != "\0" else None
        self._socket = socket.socket(family)
        try:
            if self._path is None:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            else:
                self._unlink()  # of a process that was killed
            self._socket.bind(address)
            self._socket.listen()
        except OSError:
            self._socket.close()
            raise
        port = "" if family == socket.AF_UNIX else self._socket.getsockname()[1]
        self.endpoint = endpoint if family == socket.AF_UNIX else re.sub(r":(\*|\d+)$", f":{port}", endpoint)

    def accept(self, timeout: float, greeting: float) -> Line:
        """Waits for a peer; one that says nothing at all and goes has only looked whether somebody is there.

        Args:
            timeout: s to wait.
            greeting: s that greetings may take.

        Raises:
            BackendError, TimeoutError, ConnectionError: See :class:`Line`.
        """
        self._socket.settimeout(timeout)
        return Line(self._socket.accept()[0], "REP", greeting, self.endpoint)

    def close(self) -> None:
        """Takes no peer any more."""
        self._socket.close()
        if self._path is not None:
            self._unlink()

    def _unlink(self) -> None:
        assert self._path is not None
        with suppress(FileNotFoundError):
            if stat.S_ISSOCK(self._path.stat().st_mode):
                self._path.unlink()


def connect(endpoint: str, timeout: float, meanwhile: Callable[[], object] | None = None) -> Line:
    """A REQ socket that is connected to a peer, which may come later.

    Args:
        endpoint: ``tcp://HOST:PORT`` or ``ipc://PATH``.
        timeout: s to wait for it, and then for every part of a message.
        meanwhile: Called while there is nobody; what it raises ends the wait.

    Raises:
        ValueError: It is no endpoint.
        BackendError, TimeoutError: See :class:`Line`; nobody is there in time.
        OSError: It cannot be reached, whoever is there.
    """
    family, address = _address(endpoint)
    deadline = time.monotonic() + timeout
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        other = socket.socket(family)
        try:
            other.settimeout(left)
            other.connect(address)
            # Linux lets a socket that looks for a port of this machine often enough find itself.
            if family == socket.AF_UNIX or other.getsockname() != other.getpeername():
                return Line(other, "REQ", timeout, endpoint)
        except (ConnectionError, FileNotFoundError, TimeoutError):
            # Not there yet, or about to go.
            pass
        other.close()
        if meanwhile:
            meanwhile()
        time.sleep(min(_RETRY, left))


def check_endpoint(endpoint: str) -> None:
    """Looks whether something is an endpoint that can be connected to.

    Raises:
        ValueError: It is not.
    """
    _, address = _address(endpoint)
    if isinstance(address, tuple) and (address[0] in ("", "::") or not address[1]):
        raise ValueError("expected a host and a port")


def _address(endpoint: str) -> Address:
    tcp, ipc = _TCP.fullmatch(endpoint), _IPC.fullmatch(endpoint)
    if ipc:
        return socket.AF_UNIX, ("\0" if ipc[1] else "") + ipc[2]
    if tcp is None or (tcp[2] != "*" and int(tcp[2]) > 65535):
        raise ValueError("expected tcp://HOST:PORT or ipc://PATH")
    host, port = tcp[1], 0 if tcp[2] == "*" else int(tcp[2])
    if host.startswith("["):
        return socket.AF_INET6, (host[1:-1], port)
    # As in libzmq, names mean addresses of IPv4.
    return socket.AF_INET, ("" if host == "*" else host, port)


def _frame(body: bytes, flags: int = 0) -> bytes:
    size = len(body)
    if size < 256:
        return bytes((flags, size)) + body
    return bytes((flags | _LONG,)) + size.to_bytes(8, "big") + body


def _plain(chunk: bytes) -> bytes | None:
    """The body of a message that is a delimiter and one frame and nothing else."""
    if chunk[:2] != _DELIMITER or len(chunk) < 4:
        return None
    if chunk[2] == 0:
        return chunk[4:] if chunk[3] == len(chunk) - 4 else None
    if chunk[2] == _LONG and int.from_bytes(chunk[3:11], "big") == len(chunk) - 11:
        return chunk[11:]
    return None


def _property(name: str, value: str) -> bytes:
    return bytes([len(name)]) + name.encode() + len(value).to_bytes(4, "big") + value.encode()
