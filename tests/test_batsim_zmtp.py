"""The wire protocol of ZeroMQ: against libzmq, against peers that are none, and against itself in pieces."""

import re
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdsim.backends.batsim.zmtp import Line, Listener, check_endpoint, connect
from hdsim.errors import BackendError

SECONDS = 20
#: Lengths around those at which frames are written in another way, and one of several packets.
LENGTHS = (0, 1, 255, 256, 65_535, 65_536, 3_000_000)


def endpoints(folder: Path) -> list[str]:
    return [
        "tcp://127.0.0.1:*",
        "tcp://*:*",
        "tcp://[::1]:*",
        f"ipc://{folder}/socket",
        f"ipc://@hdsim{time.time_ns()}",
    ]


def reachable(endpoint: str) -> str:
    return endpoint.replace("*", "127.0.0.1", 1) if endpoint.startswith("tcp://*") else endpoint


@pytest.fixture
def listener() -> Iterator[Listener]:
    waiting = Listener("tcp://127.0.0.1:*")
    yield waiting
    waiting.close()


@pytest.mark.requires("pyzmq")
@pytest.mark.parametrize("kind", range(5))
def test_a_reply_socket_understands_libzmq(tmp_path: Path, kind: int) -> None:
    import zmq

    listener = Listener(endpoints(tmp_path)[kind])
    with zmq.Context() as context, context.socket(zmq.REQ) as peer, ThreadPoolExecutor() as threads:
        peer.ipv6 = True
        peer.rcvtimeo = SECONDS * 1000
        peer.connect(reachable(listener.endpoint))

        def ask() -> list[bytes]:
            answers = []
            for length in LENGTHS:
                peer.send(b"x" * length)
                answers.append(peer.recv())
            return answers

        asked = threads.submit(ask)
        line = listener.accept(SECONDS, SECONDS)
        for length in LENGTHS:
            assert line.receive() == [b"x" * length]
            line.send(b"y" * length)
        assert asked.result() == [b"y" * length for length in LENGTHS]
        peer.send_multipart([b"one", b"", b"three"])
        assert line.receive() == [b"one", b"", b"three"]
    with pytest.raises(ConnectionError):
        line.receive()
    line.close()
    listener.close()
    assert not list(tmp_path.iterdir())


@pytest.mark.requires("pyzmq")
@pytest.mark.parametrize("kind", range(5))
def test_a_request_socket_understands_libzmq(tmp_path: Path, kind: int) -> None:
    import zmq

    with zmq.Context() as context, context.socket(zmq.REP) as peer, ThreadPoolExecutor() as threads:
        peer.ipv6 = True
        peer.rcvtimeo = SECONDS * 1000
        peer.bind(endpoints(tmp_path)[kind])

        def echo() -> None:
            for _ in LENGTHS:
                peer.send(peer.recv())

        echoed = threads.submit(echo)
        # What libzmq calls its endpoint names every interface 0.0.0.0, which is this machine.
        line = connect(peer.getsockopt_string(zmq.LAST_ENDPOINT), SECONDS)
        for length in LENGTHS:
            line.send(b"x" * length)
            assert line.receive() == [b"x" * length]
        echoed.result()
        line.close()


@pytest.mark.requires("pyzmq")
def test_an_answer_goes_back_with_the_envelope_of_its_request(listener: Listener) -> None:
    import zmq

    with zmq.Context() as context, context.socket(zmq.DEALER) as peer:
        peer.connect(listener.endpoint)
        peer.send_multipart([b"i" * 300, b"second", b"", b"request"])
        line = listener.accept(SECONDS, SECONDS)
        assert line.receive() == [b"request"]
        line.send(b"answer")
        assert peer.recv_multipart() == [b"i" * 300, b"second", b"", b"answer"]
        peer.send(b"no empty frame before it")
        with pytest.raises(BackendError, match=r"expected an empty frame before a message, got b'no empty"):
            line.receive()
        line.close()


@pytest.mark.requires("pyzmq")
def test_a_socket_of_the_wrong_kind_is_named(listener: Listener) -> None:
    import zmq

    with zmq.Context() as context, context.socket(zmq.PUSH) as peer:
        peer.connect(listener.endpoint)
        with pytest.raises(BackendError, match="expected a ZeroMQ socket REQ or DEALER, got PUSH"):
            listener.accept(SECONDS, SECONDS)


@pytest.fixture
def stranger(listener: Listener) -> Iterator[tuple[Listener, socket.socket]]:
    """A REP socket, and a plain socket connected to it."""
    with socket.create_connection(("127.0.0.1", int(listener.endpoint.rpartition(":")[2]))) as other:
        yield listener, other


GREETING = b"\xff" + bytes(8) + b"\x7f\3\0" + b"NULL".ljust(20, b"\0") + bytes(32)


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", r"expected ZeroMQ \(ZMTP 3, libzmq 4 or later\), got b'GET / HTTP"),
        (b"\x01\x00", "expected ZeroMQ"),  # ZMTP 1.0
        (b"\xff" + bytes(7) + b"\1\x7f\1\3\0\0", "expected ZeroMQ"),  # ZMTP 2.0
        (GREETING.replace(b"NULL", b"PLAIN")[:64], "expected ZeroMQ's mechanism NULL, got PLAIN"),
        (GREETING + b"\4\x0b\5ERROR\4nope", r"expected ZeroMQ's command READY, got b'.*nope'"),
        (GREETING + b"\0\1x", r"expected ZeroMQ's command READY, got b'x'"),
        (GREETING + b"\4\6\5READY", "expected a ZeroMQ socket REQ or DEALER, got b'"),
    ],
)
def test_what_is_not_zeromq_is_told(stranger: tuple[Listener, socket.socket], said: bytes, complaint: str) -> None:
    listener, other = stranger
    other.sendall(said)
    with pytest.raises(BackendError, match=complaint) as caught:
        listener.accept(SECONDS, SECONDS)
    assert caught.value.where == listener.endpoint


def test_who_only_looks_whether_somebody_is_there_is_not_the_peer(stranger: tuple[Listener, socket.socket]) -> None:
    listener, other = stranger
    other.close()
    with pytest.raises(ConnectionError):
        listener.accept(SECONDS, SECONDS)
    with ThreadPoolExecutor() as threads:
        connected = threads.submit(connect, listener.endpoint, SECONDS)
        line = listener.accept(SECONDS, SECONDS)
        connected.result().send(b"hello")
        assert line.receive() == [b"hello"]
        connected.result().close()
        line.close()


def test_silence_is_no_end(stranger: tuple[Listener, socket.socket]) -> None:
    listener, other = stranger
    with pytest.raises(TimeoutError):
        listener.accept(SECONDS, 0.05)
    with pytest.raises(TimeoutError):
        listener.accept(0.05, SECONDS)
    assert other.recv(100) == GREETING
    with pytest.raises(TimeoutError):
        connect("tcp://127.0.0.1:1", 0.1)
    with pytest.raises(TimeoutError):
        connect("ipc://@nobody-has-this-name", 0.1)


def test_a_peer_may_come_later(tmp_path: Path) -> None:
    endpoint = f"ipc://{tmp_path}/socket"
    with ThreadPoolExecutor() as threads:
        connected = threads.submit(connect, endpoint, SECONDS)
        time.sleep(0.1)
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(f"{tmp_path}/socket")  # left behind by a process that was killed
        listener = Listener(endpoint)
        line = listener.accept(SECONDS, SECONDS)
        connected.result().close()
        line.close()
        listener.close()


def test_nothing_but_sockets_is_removed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    with pytest.raises(OSError, match="in use"):
        Listener(f"ipc://{tmp_path}/file")
    assert (tmp_path / "file").read_text() == "precious"


@pytest.mark.parametrize(
    "endpoint",
    [
        "localhost",
        "tcp://localhost",
        "tcp://:1",
        "tcp://a:b",
        "tcp://a:65536",
        "udp://a:1",
        "ipc://",
        "tcp://a b:1",
        "",
    ],
)
def test_what_is_no_endpoint(endpoint: str) -> None:
    for use in (Listener, check_endpoint):
        with pytest.raises(ValueError, match=re.escape("expected tcp://HOST:PORT or ipc://PATH")):
            use(endpoint)


@pytest.mark.parametrize("endpoint", ["tcp://*:28000", "tcp://127.0.0.1:*", "tcp://[::]:1", "tcp://127.0.0.1:0"])
def test_what_can_only_be_bound(endpoint: str) -> None:
    with pytest.raises(ValueError, match="expected a host and a port"):
        check_endpoint(endpoint)


@given(
    messages=st.lists(st.lists(st.binary(max_size=400), min_size=1, max_size=3), min_size=1, max_size=4),
    cuts=st.lists(st.integers(1, 300), max_size=30),
    commands=st.booleans(),
)
def test_messages_in_pieces(messages: list[list[bytes]], cuts: list[int], commands: bool) -> None:
    """Whatever the packets are that messages come in, they are the same; pings in between are passed over."""
    ours, theirs = socket.socketpair()
    data = bytearray()
    for message in messages:
        data += b"\4\5\4PING" if commands else b""
        frames = [b"", *message]
        for index, frame in enumerate(frames):
            more = index < len(frames) - 1
            long = len(frame) > 255
            data += bytes([more | 2 * long]) + len(frame).to_bytes(8 if long else 1, "big") + frame
    with theirs, ThreadPoolExecutor() as threads:
        theirs.sendall(GREETING + b"\4\x19\5READY\x0bSocket-Type\0\0\0\3REQ")
        line = Line(ours, "REP", SECONDS)
        line.wait_at_most(1e-3)

        def trickle() -> None:
            at = 0
            for cut in cuts:
                theirs.sendall(data[at : at + cut])
                at += cut
            theirs.sendall(data[at:])

        trickled = threads.submit(trickle)
        for message in messages:
            deadline = time.monotonic() + SECONDS
            while True:
                try:
                    received = line.receive()
                    break
                except TimeoutError:
                    assert time.monotonic() < deadline
            assert received == message
        trickled.result()
        line.close()


def test_a_peer_that_takes_nothing() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.sendall(GREETING + b"\4\x19\5READY\x0bSocket-Type\0\0\0\3REP")
        line = Line(ours, "REQ", 0.1)
        with pytest.raises(TimeoutError):
            line.send(bytes(10_000_000))
        threading.Thread(target=theirs.close).start()
        with pytest.raises(ConnectionError):
            while True:
                line.send(b"more")
        line.close()
