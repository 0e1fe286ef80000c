"""A fixed loop whose CPU time tells how fast the machine is at the moment, to put beside what is measured."""

from __future__ import annotations

import multiprocessing
import os
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import NamedTuple

from hdsim.backends.batsim.cores import one_core
from hdsim.backends.batsim.zmtp import connect


def loop_seconds() -> float:
    """CPU time in s of a million turns of a loop; 0.05 to 0.06 s on a machine with nothing else to do."""
    begin = time.process_time()
    total = 0
    for number in range(1_000_000):
        total += number * number
    return time.process_time() - begin


def _echo(endpoint: str) -> None:
    import zmq

    line = zmq.Context.instance().socket(zmq.REP)
    line.bind(endpoint)
    while message := line.recv():
        line.send(message)


def round_trip_seconds(*, libzmq: bool, messages: int = 3000) -> float:
    """CPU time in s that one side spends on a message and its reply: libzmq with its thread, or hdsim's own sockets.

    The other side is libzmq's.
    """
    import zmq

    with tempfile.TemporaryDirectory() as folder, zmq.Context() as context:
        endpoint = f"ipc://{folder}/echo"
        peer = multiprocessing.get_context("spawn").Process(target=_echo, args=(endpoint,))
        peer.start()
        line = context.socket(zmq.REQ) if libzmq else connect(endpoint, 60)
        receive = line.recv if libzmq else line.receive
        try:
            if libzmq:
                line.connect(endpoint)
            text = b"x" * 200
            line.send(text)
            receive()
            begin = time.process_time()
            for _ in range(messages):
                line.send(text)
                receive()
            seconds = time.process_time() - begin
            line.send(b"")
        finally:
            line.close()
            peer.join(10)
            peer.kill()
    return seconds / messages


def arrangements() -> Iterator[str]:
    """Names the arrangements of two processes that talk to each other, and is in each while the caller is."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    if cores != 1:
        yield _named(f"{cores} cores")
    with one_core(True):
        yield _named("one core")


def _named(where: str) -> str:
    theirs, ours = (f"{round_trip_seconds(libzmq=libzmq) * 1e3:.3f} ms" for libzmq in (True, False))
    print(f"{where}: a message and its reply cost {theirs} of CPU in libzmq, {ours} in hdsim's sockets", flush=True)
    return where


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Measured(NamedTuple):
    """Several rounds, each between two turns of the loop."""

    values: list[float]
    loops: list[float]  # s

    def __str__(self) -> str:
        listed = ", ".join(f"{value:,.3g}" if value < 100 else f"{value:,.0f}" for value in self.values)
        return f"[{listed}] beside loops of {min(self.loops) * 1e3:.0f} to {max(self.loops) * 1e3:.0f} ms"

    @property
    def middle(self) -> float:
        """The median."""
        return median(self.values)


def rounds(work: Callable[[], float], count: int) -> Measured:
    """Measures several times, with the loop before and after each time."""
    values, loops = [], [loop_seconds()]
    for _ in range(count):
        values.append(work())
        loops.append(loop_seconds())
    return Measured(values, loops)
