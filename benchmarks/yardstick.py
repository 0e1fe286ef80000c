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


def round_trip_seconds(messages: int = 3000) -> float:
    """CPU time in s that one side of hdsim's connection spends on a message of 200 bytes and its reply."""
    from hdsim.backends.batsim.zeromq import Connection

    with tempfile.TemporaryDirectory() as folder:
        endpoint = f"ipc://{folder}/echo"
        peer = multiprocessing.get_context("spawn").Process(target=_echo, args=(endpoint,))
        peer.start()
        text = b"x" * 200
        with Connection("REQ", endpoint, peer="the other side", where="endpoint") as line:
            line.send(text)
            line.receive(60)
            begin = time.process_time()
            for _ in range(messages):
                line.send(text)
                line.receive(60)
            seconds = time.process_time() - begin
            line.send(b"")
            peer.join(10)
        peer.kill()
    return seconds / messages


def arrangements() -> Iterator[str]:
    """Names the arrangements of two processes that talk to each other, and is in each while the caller is."""
    if not hasattr(os, "sched_getaffinity"):
        yield _named(f"{os.cpu_count()} cores")
        return
    cores = os.sched_getaffinity(0)
    if len(cores) > 1:
        yield _named(f"{len(cores)} cores")
    os.sched_setaffinity(0, {max(cores)})
    try:
        yield _named("one core")
    finally:
        os.sched_setaffinity(0, cores)


def _named(where: str) -> str:
    print(f"{where}: a message and its reply cost {round_trip_seconds() * 1e6:.0f} us of CPU", flush=True)
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
