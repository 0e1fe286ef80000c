"""The connection of Batsim's protocol against libzmq and against processes that do not speak ZeroMQ."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import zmq

from hdsim.backends.batsim.zeromq import HungUp, WaitInterrupted, ZeromqConnection
from hdsim.errors import BackendError, ConfigError
from hdsim.util.process import Process

#: Seconds that pass before a silent peer is reported, where one is expected.
SHORT = 0.3


@pytest.fixture
def context() -> Iterator[zmq.Context[Any]]:
    """Of the peers; their unsent messages are dropped."""
    with zmq.Context() as made:
        made.linger = 0
        yield made


def bound(endpoint: str = "tcp://127.0.0.1:*") -> ZeromqConnection:
    return ZeromqConnection("REP", endpoint, peer="Batsim", where="backend.socket")


def connected(endpoint: str) -> ZeromqConnection:
    return ZeromqConnection("REQ", endpoint, peer="the scheduler", where="-s")


def address(connection: ZeromqConnection) -> tuple[str, int]:
    return "127.0.0.1", int(connection.endpoint.rpartition(":")[2])


@contextmanager
def peer(
    context: zmq.Context[Any], kind: int, connection: ZeromqConnection, **options: Any
) -> Iterator[zmq.Socket[Any]]:
    with context.socket(kind) as other:
        for key, value in options.items():
            setattr(other, key, value)
        other.connect(connection.endpoint)
        yield other


@pytest.mark.parametrize("endpoint", ["tcp://127.0.0.1:*", "tcp://localhost:*", "tcp://*:*", "ipc://{}/socket"])
@pytest.mark.parametrize("size", [0, 1, 255, 256, 3_000_000])
def test_both_ends(tmp_path: Path, endpoint: str, size: int) -> None:
    with bound(endpoint.format(tmp_path)) as reply, connected(reply.peer_endpoint) as request:
        for number in range(3):
            request.send(b"x" * size)
            assert reply.receive(60) == b"x" * size
            reply.send(bytes([number]))
            assert request.receive(60) == bytes([number])
        assert reply.received == request.received == 3


def test_a_peer_that_binds_later() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with connected(f"tcp://127.0.0.1:{port}") as request, ThreadPoolExecutor() as threads:
        request.send(b"first")
        waiting = threads.submit(request.receive, 60)
        time.sleep(0.2)
        with bound(f"tcp://127.0.0.1:{port}") as reply:
            assert reply.receive(60) == b"first"
            reply.send(b"second")
            assert waiting.result() == b"second"


# Processes at the port that are no Batsim


def stays_silent(other: socket.socket) -> None:
    pass


def speaks_http(other: socket.socket) -> None:
    other.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")


def leaves(other: socket.socket) -> None:
    other.close()


@pytest.mark.parametrize("stranger", [stays_silent, speaks_http, leaves])
def test_strangers_at_the_port_do_not_disturb(
    context: zmq.Context[Any], stranger: Callable[[socket.socket], None]
) -> None:
    """At the port of a run that waits, and of one that has begun."""
    with bound() as reply, ExitStack() as stack:

        def come() -> None:
            for _ in range(5):
                stranger(stack.enter_context(socket.create_connection(address(reply))))
            time.sleep(0.3)  # so that a wait sees what became of them

        with ThreadPoolExecutor() as threads:
            waiting = threads.submit(reply.receive, 60)
            come()
            with peer(context, zmq.REQ, reply) as batsim:
                batsim.send(b"{}")
                assert waiting.result() == b"{}"
                reply.send(b"{}")
                assert batsim.recv() == b"{}"
                waiting = threads.submit(reply.receive, 60)
                come()
                batsim.send(b"{}")
                assert waiting.result() == b"{}"


@pytest.mark.parametrize("stranger", [stays_silent, speaks_http])
def test_strangers_do_not_outlast_the_timeout(stranger: Callable[[socket.socket], None]) -> None:
    with bound() as reply, ExitStack() as stack:
        for _ in range(5):
            stranger(stack.enter_context(socket.create_connection(address(reply))))
        begin = time.monotonic()
        with pytest.raises(BackendError, match=rf"no Batsim has connected to tcp://[\d.:]+ within {SHORT} s"):
            reply.receive(SHORT)
        # bdc7d45 waits five seconds for each of them.
        assert time.monotonic() - begin < 5


def test_heartbeats_are_answered(context: zmq.Context[Any]) -> None:
    """A peer with ZMQ_HEARTBEAT_IVL hangs up where its PING brings no PONG."""
    with bound() as reply, peer(context, zmq.REQ, reply, heartbeat_ivl=50, heartbeat_timeout=150) as batsim:
        batsim.send(b"{}")
        assert reply.receive(60) == b"{}"
        time.sleep(0.6)
        reply.send(b"late")
        assert batsim.poll(60_000)
        assert batsim.recv() == b"late"


# Peers that hdsim cannot talk to


@pytest.mark.parametrize("mechanism", ["curve", "plain"])
@pytest.mark.ci
def test_a_scheduler_that_requires_authentication(context: zmq.Context[Any], mechanism: str) -> None:
    with context.socket(zmq.REP) as scheduler:
        if mechanism == "curve":
            scheduler.curve_secretkey = zmq.curve_keypair()[1]
            scheduler.curve_server = True
        else:
            scheduler.plain_server = True
        port = scheduler.bind_to_random_port("tcp://127.0.0.1")
        with connected(f"tcp://127.0.0.1:{port}") as request:
            request.send(b"{}")
            with pytest.raises(BackendError, match=r"the scheduler requires ZeroMQ authentication \(CURVE or PLAIN\)"):
                request.receive(60)


def test_a_batsim_that_requires_authentication(context: zmq.Context[Any]) -> None:
    # Which of both libzmq reports depends on whether the peer closes the connection first.
    told = r"no Batsim has connected .* (a peer was refused that requires ZeroMQ|or requires) authentication"
    with (
        bound() as reply,
        peer(context, zmq.REQ, reply, plain_username=b"me", plain_password=b"secret"),
        pytest.raises(BackendError, match=told),
    ):
        reply.receive(1)


def test_a_socket_of_another_type(context: zmq.Context[Any]) -> None:
    with context.socket(zmq.PUB) as publisher:
        port = publisher.bind_to_random_port("tcp://127.0.0.1")
        with connected(f"tcp://127.0.0.1:{port}") as request:
            request.send(b"{}")
            with pytest.raises(BackendError, match="a process was connected that has no ZeroMQ REP socket"):
                request.receive(1)


def test_several_frames(context: zmq.Context[Any]) -> None:
    with bound() as reply, peer(context, zmq.REQ, reply) as batsim:
        for turn in range(2):
            batsim.send_multipart([b"{}", b"{}"] if turn else [b"{}"])
            reply.receive(60)
            if turn:
                with pytest.raises(BackendError, match="expected a message of one frame from Batsim, got 2 frames"):
                    reply.send(b"{}")
            else:
                reply.send(b"{}")
                batsim.recv()


def test_several_frames_at_first(context: zmq.Context[Any]) -> None:
    with bound() as reply, peer(context, zmq.REQ, reply) as batsim:
        batsim.send_multipart([b"{}", b"{}", b"{}"])
        with pytest.raises(BackendError, match="expected a message of one frame from Batsim, got 3 frames"):
            reply.receive(60)


def test_a_message_beyond_the_limit(context: zmq.Context[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hdsim.backends.batsim.zeromq._MAX_MESSAGE", 1000)
    with bound() as reply, peer(context, zmq.REQ, reply) as batsim:
        batsim.send(b"x" * 1000)
        assert len(reply.receive(60)) == 1000
        reply.send(b"{}")
        batsim.recv()
        batsim.send(b"x" * 1001)
        with pytest.raises(HungUp, match="Batsim has hung up after 1 messages"):
            reply.receive(60)


# Silence and sudden ends


@pytest.mark.parametrize("messages", [0, 1])
def test_a_silent_batsim(context: zmq.Context[Any], messages: int) -> None:
    told = r"Batsim has sent nothing for 0\.3 s after 1 messages" if messages else "no Batsim has connected to tcp://"
    with bound() as reply, peer(context, zmq.REQ, reply) as batsim:
        if messages:
            batsim.send(b"{}")
            reply.receive(60)
            reply.send(b"{}")
        with pytest.raises(BackendError, match=told):
            reply.receive(SHORT)


def test_a_silent_scheduler(context: zmq.Context[Any]) -> None:
    with context.socket(zmq.REP) as scheduler:
        port = scheduler.bind_to_random_port("tcp://127.0.0.1")
        with connected(f"tcp://127.0.0.1:{port}") as request:
            request.send(b"{}")
            with pytest.raises(BackendError, match=r"the scheduler has sent nothing for 1 s after 0 messages"):
                request.receive(1)


def test_nothing_at_the_endpoint(tmp_path: Path) -> None:
    with connected(f"ipc://{tmp_path}/socket") as request:
        request.send(b"{}")
        with pytest.raises(BackendError, match=r"the scheduler has not bound ipc://.*/socket within 0\.3 s"):
            request.receive(SHORT)


@pytest.mark.parametrize("binds", [True, False])
def test_a_peer_that_hangs_up(context: zmq.Context[Any], binds: bool) -> None:
    with ExitStack() as stack:
        if binds:
            ours = stack.enter_context(bound())
            theirs = context.socket(zmq.REQ)
            theirs.connect(ours.endpoint)
        else:
            theirs = context.socket(zmq.REP)
            port = theirs.bind_to_random_port("tcp://127.0.0.1")
            ours = stack.enter_context(connected(f"tcp://127.0.0.1:{port}"))
            ours.send(b"{}")
            theirs.recv()
        if binds:
            theirs.send(b"{}")
            ours.receive(60)
            ours.send(b"{}")
            theirs.recv()
        theirs.close()
        with pytest.raises(HungUp, match=rf"has hung up after {int(binds)} messages"):
            ours.receive(60)


def test_the_last_message_of_a_process_that_has_ended(tmp_path: Path) -> None:
    """It is read before the end of its process is reported."""
    script = (
        "import sys, zmq\ncontext = zmq.Context()\nsocket = context.socket(zmq.REQ)\nsocket.connect(sys.argv[1])\n"
        "socket.send(b'last')\nsocket.close()\ncontext.term()\nsys.exit('and out')"
    )
    with ExitStack() as stack:
        reply = stack.enter_context(bound())
        command = [sys.executable, "-c", script, reply.endpoint]
        reply.process = stack.enter_context(Process(command, tmp_path / "log", "Batsim"))
        assert reply.receive(60) == b"last"
        reply.send(b"{}")
        with pytest.raises(HungUp, match=r"Batsim ended with status 1; the end of .*: and out"):
            reply.receive(60)


def test_a_process_that_never_connects_and_ends(tmp_path: Path) -> None:
    with bound() as reply, Process(["sh", "-c", "exit 3"], tmp_path / "log", "Batsim") as process:
        reply.process = process
        with pytest.raises(HungUp, match="Batsim ended with status 3; it wrote nothing"):
            reply.receive(600)


def test_a_signal_ends_a_wait() -> None:
    signals: list[int] = []
    with ZeromqConnection("REP", "tcp://127.0.0.1:*", peer="Batsim", where="backend.socket", stop=signals) as reply:
        timer = threading.Timer(0.2, signals.append, [15])
        timer.start()
        with pytest.raises(WaitInterrupted):
            reply.receive(600)
        timer.join()


# Endpoints


@pytest.mark.parametrize(
    ("binds", "endpoint", "told"),
    [
        (True, "localhost", "Invalid argument"),
        (True, "tcp://256.0.0.1:80", "No such device"),
        (True, "tcp://*:99999", "expected a port up to 65535"),
        (True, "udp://127.0.0.1:80", "not compatible"),
        (True, "ipc:///no/such/folder/socket", "No such file or directory"),
        (True, "ipc://{file}", "the path is that of a file"),
        (True, "tcp://127.0.0.1:{used}", "Address already in use"),
        (False, "tcp://nowhere.invalid:28000", ""),
        (False, "tcp://*:28000", ""),
        (False, "localhost:28000", "Invalid argument"),
    ],
)
def test_endpoints_that_cannot_be_used(tmp_path: Path, binds: bool, endpoint: str, told: str) -> None:
    (tmp_path / "file").write_text("kept")
    with socket.create_server(("127.0.0.1", 0)) as used:
        given = endpoint.format(file=tmp_path / "file", used=used.getsockname()[1])
        with pytest.raises(ConfigError) as caught:
            (bound if binds else connected)(given)
    where = "backend.socket" if binds else "-s"
    assert str(caught.value).startswith(f"{where}: expected an endpoint such as tcp://")
    assert f"got '{given}': " in str(caught.value)
    assert told in str(caught.value)
    assert (tmp_path / "file").read_text() == "kept"


def test_the_endpoint_that_a_batsim_connects_to() -> None:
    with bound("tcp://*:*") as reply:
        assert reply.peer_endpoint == reply.endpoint.replace("0.0.0.0", "localhost")
        assert reply.peer_endpoint.startswith("tcp://localhost:")


@pytest.mark.ci
def test_pyzmq_is_optional() -> None:
    """Without it the two commands say what to install, and all others work."""
    hide = "import sys; sys.modules['zmq'] = None; from hdsim.cli import main; sys.argv[0] = 'hdsim'; main()"
    run = ["run", "backend=batsim", "backend.socket=tcp://*:*", "platform=teaching", "workload.jobs=5", "agent=fcfs"]
    serve = ["batsim-serve", "-p", "teaching", "-w", "lublin_1024.swf"]
    for arguments in (run, serve):
        done = subprocess.run([sys.executable, "-c", hide, *arguments], capture_output=True, text=True)
        assert done.returncode == 2, done.stderr
        assert done.stderr.endswith("pyzmq, which is not installed: pip install 'hdsim[batsim]'\n")
        assert "Traceback" not in done.stderr
