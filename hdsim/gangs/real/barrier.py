"""The double barrier of a superstep, and the queue of a task."""

from __future__ import annotations

from collections.abc import Callable, Collection

from hdsim.gangs.real.session import KazooSession


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
        """Leaves; `gather` waits for the others.

        Raises:
            Closed: The barrier is not open.
        """
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
