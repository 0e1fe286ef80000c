"""The loop that lets a scheduler drive a :class:`hdsim.backends.batsim.server.BatsimServer` over ZeroMQ."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Self

from hdsim.backends.batsim.server import SCHEDULER, BatsimServer
from hdsim.backends.batsim.zeromq import HungUp, ZeromqConnection
from hdsim.errors import BackendError
from hdsim.simulation.terminal import collecting_less

#: Replies between two updates of the progress bar.
_REPLIES_PER_UPDATE = 256


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


class SchedulerSocket:
    """The ZeroMQ socket to a scheduler, to be used in a ``with`` statement.

    Attributes:
        waited: Real time spent on waiting for replies, in seconds.
        connection: The REQ socket.

    Args:
        endpoint: Endpoint of the REP socket of the scheduler.
        timeout: Real time that each reply may take, in seconds.

    Raises:
        ConfigError: The endpoint cannot be used.
    """

    def __init__(self, endpoint: str, timeout: float) -> None:
        self.waited = 0.0
        self.connection = ZeromqConnection("REQ", endpoint, peer=SCHEDULER, where="-s")
        self._timeout = timeout

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def exchange(self, message: str) -> bytes:
        """Sends a message and waits for the reply.

        Raises:
            BackendError: See :meth:`ZeromqConnection.receive`.
        """
        begin = time.perf_counter()
        try:
            self.connection.send(message.encode("utf-8", "replace"))
            reply = self.connection.receive(self._timeout)
        except BackendError as error:
            error.message += f"; the last message to it was {message[:120]}"
            raise
        self.waited += time.perf_counter() - begin
        return reply
