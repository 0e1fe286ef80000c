"""A session with ZooKeeper, in which every wait ends by an event, a lost session or a time-out; barriers and queues."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from typing import Any, Self, TypeVar

from hdsim.errors import BackendError, ConfigError, install_hint

T = TypeVar("T")
log = logging.getLogger(__name__)

#: Longest pause in seconds between two attempts to connect.
_PAUSE = 0.5


class KazooSession:
    """A session of kazoo with ``host:port``, several with commas in between.

    Operations wait for a lost connection to return. They may then be repeated although they were carried out, so
    creation and deletion of a node take its existence and its absence for their success. ZooKeeper ends a session after
    `timeout` seconds without contact, and may be unreachable for `patience` seconds.

    Raises:
        ConfigError: kazoo is missing.
        BackendError: ZooKeeper does not answer.
    """

    def __init__(self, address: str, *, timeout: float, patience: float) -> None:
        try:
            from kazoo.client import KazooClient
            from kazoo.handlers.threading import KazooTimeoutError
            from kazoo.retry import KazooRetry
        except ImportError as error:
            raise ConfigError(f"expected the client library of ZooKeeper: {error}{install_hint('kazoo')}") from None
        # The session logs changes of the connection itself.
        logging.getLogger("kazoo").setLevel(logging.CRITICAL)
        self.losses = 0  # number of sessions that have ended, with their ephemeral nodes
        self._address, self._patience = address, patience
        self._event = threading.Event()
        self._client = KazooClient(
            address,
            timeout=timeout,
            connection_retry=KazooRetry(max_tries=-1, max_delay=_PAUSE),
            command_retry=KazooRetry(max_tries=-1, max_delay=_PAUSE, deadline=patience),
        )
        try:
            self._client.start(patience)
        except KazooTimeoutError:
            self.close()
            raise self._silent() from None
        self._client.add_listener(self._on_state)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the session; its ephemeral nodes vanish."""
        self._client.remove_listener(self._on_state)
        self._client.stop()
        self._client.close()

    def version(self) -> str | None:
        """Returns the version of ZooKeeper; None where it does not tell."""
        from kazoo.exceptions import KazooException

        try:
            return ".".join(map(str, self._client.server_version()))
        except KazooException:
            return None

    def wake(self, *_: object) -> None:
        """Lets `wait` look again; called by watches and by threads."""
        self._event.set()

    def wait(self, look: Callable[[], T | None], seconds: float) -> T:
        """Waits for the value that `look` returns, None without one; events are at most some seconds apart.

        `look` is called again after each event that it has set a watch for, each change of the connection and each
        `wake`.

        Raises:
            TimeoutError: There has been no event for that time.
        """
        while True:
            self._event.clear()
            value = look()
            if value is not None:
                return value
            if not self._event.wait(seconds):
                raise TimeoutError

    def create(self, path: str, data: bytes = b"", **kind: bool) -> None:
        """Creates a node, and those above it with ``makepath``; LookupError without a node above it."""
        from kazoo.exceptions import NodeExistsError

        try:
            self._call(self._client.create, path, data, **kind)
        except NodeExistsError:
            return

    def children(self, path: str) -> set[str]:
        """Returns the names of the nodes below a node, and watches for changes; LookupError without such a node."""
        return set(self._call(self._client.get_children, path, watch=self.wake))

    def exists(self, path: str) -> bool:
        """Returns whether there is a node, and watches for changes."""
        return self._call(self._client.exists, path, watch=self.wake) is not None

    def data(self, path: str) -> bytes:
        """Returns the data of a node; LookupError without such a node."""
        return self._call(self._client.get, path)[0]

    def delete(self, path: str) -> None:
        """Deletes a node and all nodes below it."""
        from kazoo.exceptions import NoNodeError, NotEmptyError

        while True:
            try:
                self._client.retry(self._client.delete, path, recursive=True)
            except NotEmptyError:  # A node was created below meanwhile.
                continue
            except NoNodeError:
                pass
            return

    def _call(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        from kazoo.exceptions import NoNodeError
        from kazoo.retry import RetryFailedError

        try:
            return self._client.retry(function, *arguments, **options)
        except NoNodeError:
            raise LookupError(arguments[0]) from None
        except RetryFailedError:
            raise self._silent() from None

    def _silent(self) -> BackendError:
        return BackendError(f"ZooKeeper at {self._address} has not answered for {self._patience:g} s")

    def _on_state(self, state: str) -> None:
        if state == "LOST":
            self.losses += 1
        told = {"LOST": "the session has ended", "SUSPENDED": "the connection is lost", "CONNECTED": "connected again"}
        log.warning("ZooKeeper at %s: %s", self._address, told[state])
        self.wake()


class Closed(Exception):
    """The barrier has been removed: its attempt of the superstep is over."""


class DoubleBarrier:
    """Double barrier of one attempt of a superstep.

    All members enter before any of them computes, and all leave before any of them continues. This is the recipe of
    ZooKeeper's documentation with two differences. Each attempt has a path of its own, which its coordinator makes and
    removes, so that a member of an earlier attempt cannot enter. And a member that leaves creates a persistent node,
    since the ephemeral node that the recipe deletes vanishes as well when the member dies.

    `check` is called at each look of a wait; it raises what ends the wait.
    """

    def __init__(self, session: KazooSession, path: str, members: Collection[str], check: Callable[[], object]) -> None:
        self._session, self._path, self._members, self._check = session, path, frozenset(members), check

    def open(self) -> None:
        """Makes the barrier."""
        for part in ("entered", "left"):
            self._session.create(f"{self._path}/{part}", makepath=True)

    def close(self) -> None:
        """Removes the barrier; waits of its members end."""
        self._session.delete(self._path)

    def enter(self, member: str, seconds: float) -> None:
        """Enters, and waits until all members have.

        Raises:
            Closed: The barrier is not open.
            TimeoutError: Some members are missing; it names them.
        """
        self._create(f"entered/{member}", ephemeral=True)
        self._all("entered", self._members, seconds)

    def leave(self, member: str, report: bytes = b"") -> None:
        """Leaves an open barrier, else raises Closed; `gather` waits for the others."""
        self._create(f"left/{member}", report)

    def gather(self, members: Collection[str], seconds: float) -> dict[str, bytes]:
        """Waits until members have left, and returns their reports.

        Raises:
            Closed: The barrier is not open.
            TimeoutError: Some members are missing; it names them.
        """
        self._all("left", frozenset(members), seconds)
        return {member: self._session.data(f"{self._path}/left/{member}") for member in members}

    def is_open(self) -> bool:
        """Returns whether the barrier is there, and watches for its removal."""
        return self._session.exists(f"{self._path}/left")

    def _create(self, name: str, data: bytes = b"", **kind: bool) -> None:
        try:
            self._session.create(f"{self._path}/{name}", data, **kind)
        except LookupError:
            raise Closed from None

    def _all(self, part: str, members: frozenset[str], seconds: float) -> None:
        """Waits until members have a node below a part of the barrier."""
        missing = members

        def look() -> bool | None:
            nonlocal missing
            self._check()
            missing = members - self._session.children(f"{self._path}/{part}")
            return None if missing else True

        try:
            self._session.wait(look, seconds)
        except LookupError:
            raise Closed from None
        except TimeoutError:
            raise TimeoutError(*sorted(missing)) from None


class Queue:
    """A queue of messages for one consumer: persistent sequential nodes in their order."""

    def __init__(self, session: KazooSession, path: str) -> None:
        self._session, self._path = session, path

    def put(self, message: bytes) -> None:
        """Appends a message; after a lost connection it may be there twice."""
        self._session.create(f"{self._path}/entry-", message, sequence=True)

    def get(self, check: Callable[[], object], seconds: float) -> bytes:
        """Removes and returns the first message, waiting for one as long as `check` raises nothing.

        Raises:
            LookupError: There is no such queue.
            TimeoutError: There is no message for so long.
        """

        def look() -> str | None:
            check()
            return min(self._session.children(self._path), default=None)

        first = f"{self._path}/{self._session.wait(look, seconds)}"
        message = self._session.data(first)
        self._session.delete(first)
        return message
