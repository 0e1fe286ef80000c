"""Local copies of the objects of an API server, kept equal to them by list and watch.

The informer of the official client library decodes every event into the models of the library, which costs several
times more CPU than a decision, and runs each watch in a thread of its own.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from typing import Any, Generic, Protocol, TypeVar

import orjson

from hdsim.errors import BackendError
from hdsim.kubernetes.connection import Connection, NoAnswer, Refused

log = logging.getLogger(__name__)

_PAGE = 1000
#: Seconds after which the API server ends a watch, at least; up to twice as many are asked for.
_WATCH_SECONDS = 300
#: Seconds before the first and the last of several attempts to reconnect.
_FIRST_PAUSE, _LAST_PAUSE = 0.1, 3.0
#: The resource version of the watch is too old.
_GONE = 410
#: There is no such resource.
_ABSENT = 404


class ObjectView(Protocol):
    """The part of an object that is kept."""

    @property
    def key(self) -> str:
        """Namespace, if there is one, and name."""

    @property
    def uid(self) -> str:
        """Unique id; an object that was created anew under the same name has another one."""

    @property
    def version(self) -> str:
        """Resource version."""


V = TypeVar("V", bound=ObjectView)
#: Old and new view; None for an object that was not there before, or is not any more.
Change = tuple[V | None, V | None]


class _Expired(Exception):
    """The API server does not have the changes since a resource version any more."""


class Cache(Generic[V]):
    """Objects of one kind in all namespaces, at a path such as ``/api/v1/pods``; `parse` returns the view of an object.

    `deliver` takes the changes that have come together, in order and in the thread of the connection, those of the
    first list included; or the error that has ended the watch. Objects of a custom resource that may go are
    `optional`: without it there are none, and the watch ends.
    """

    def __init__(
        self,
        connection: Connection,
        path: str,
        parse: Callable[[Mapping[str, Any]], V],
        deliver: Callable[[list[Change[V]] | BackendError], None],
        *,
        optional: bool = False,
    ) -> None:
        self.objects: dict[str, V] = {}  # the objects by their keys; only the thread of the connection changes it
        #: reconnects: Number of watches that were lost.
        #: relists: Number of lists after the first one.
        self.relists = self.reconnects = 0
        self._connection, self._path, self._parse, self._deliver = connection, path, parse, deliver
        self._name = path.rpartition("/")[2]
        self._version, self._optional = "", optional
        self._task: asyncio.Task[None] | None = None

    @property
    def watches(self) -> bool:
        """Whether the objects are kept equal to those of the API server."""
        return self._task is not None and not self._task.done()

    async def start(self) -> None:
        """Lists the objects, and begins to watch them.

        Raises:
            BackendError: The API server does not answer, or refuses the list.
        """
        self._deliver(await self._list())
        self._task = asyncio.create_task(self._keep())

    async def stop(self) -> None:
        """Ends the watch, if there is one."""
        if self._task is not None:
            self._task.cancel()

    async def _keep(self) -> None:
        """Watches, connects again when the watch ends, lists again when changes may have been missed."""
        loop = asyncio.get_running_loop()
        pause, lost = _FIRST_PAUSE, 0.0
        while True:
            try:
                if not self._version:
                    changes = await self._list()
                    log.warning("%s: listed again, %d changes since the watch was lost", self._name, len(changes))
                    self._deliver(changes)
                    self.relists += 1
                async for lines in self._connection.lines(self._watch_path()):
                    if lost:
                        log.warning("%s: the watch goes on after %.1f s", self._name, loop.time() - lost)
                    pause, lost = _FIRST_PAUSE, 0.0
                    self._apply(lines)
            except _Expired as error:
                log.warning("%s: the watch cannot go on where it was: %s; listing again", self._name, error)
                self._version = ""
            except (NoAnswer, Refused) as error:
                if isinstance(error, Refused) and error.status == _GONE:
                    log.warning("%s: the resource version of the watch is too old; listing again", self._name)
                    self._version = ""
                elif isinstance(error, Refused) and error.status == _ABSENT and self._optional:
                    log.warning("%s: the API server has no such resource any more", self._name)
                    gone, self.objects, self._version = self.objects, {}, ""
                    self._deliver([(old, None) for old in gone.values()])
                    return
                else:
                    if not lost:
                        log.warning("%s: the watch is lost: %s; trying again", self._name, error)
                        lost = loop.time()
                        self.reconnects += 1
                    # An API server that has just started may refuse what it will permit soon.
                    if loop.time() - lost > self._connection.timeout:
                        self._deliver(error)
                        return
            except Exception as error:
                log.exception("%s: the watch has failed", self._name)
                self._deliver(BackendError(f"{self._name}: the watch has failed: {type(error).__name__}: {error}"))
                return
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LAST_PAUSE)

    def _watch_path(self) -> str:
        seconds = random.randint(_WATCH_SECONDS, 2 * _WATCH_SECONDS)
        return (
            f"{self._path}?watch=true&allowWatchBookmarks=true&timeoutSeconds={seconds}&resourceVersion={self._version}"
        )

    async def _list(self) -> list[Change[V]]:
        """Lists all objects and returns the differences to those known."""
        found: dict[str, V] = {}
        position = ""
        while True:
            path = f"{self._path}?limit={_PAGE}{position}"
            status, answer = await self._connection.send("GET", path)
            if status == _GONE and position:
                # The list has taken longer than the API server keeps its snapshot.
                found, position = {}, ""
                continue
            if status != 200:
                raise self._connection.refusal("GET", path, status, answer)
            page = orjson.loads(answer)
            for item in page["items"]:
                view = self._parse(item)
                found[view.key] = view
            if not page["metadata"].get("continue"):
                break
            position = f"&continue={page['metadata']['continue']}"
        changes: list[Change[V]] = []
        for key in self.objects.keys() - found.keys():
            changes.append((self.objects[key], None))
        for key, view in found.items():
            old = self.objects.get(key)
            if old is None or old.version != view.version:
                self._note(changes, old, view)
        self.objects = found
        self._version = page["metadata"]["resourceVersion"]
        return changes

    def _apply(self, lines: list[bytes]) -> None:
        """Applies and delivers events of a watch."""
        changes: list[Change[V]] = []
        try:
            for line in lines:
                event = orjson.loads(line)
                kind, item = event["type"], event["object"]
                if kind == "ERROR":
                    raise _Expired(item.get("message", "no reason given"))
                self._version = item["metadata"]["resourceVersion"]
                if kind == "BOOKMARK":
                    continue
                view = self._parse(item)
                old = self.objects.get(view.key)
                if kind == "DELETED":
                    # The last state of an object may not have been an event before.
                    self._note(changes, old, view)
                    changes.append((view, None))
                    self.objects.pop(view.key, None)
                else:
                    self._note(changes, old, view)
                    self.objects[view.key] = view
        finally:
            if changes:
                self._deliver(changes)

    @staticmethod
    def _note(changes: list[Change[V]], old: V | None, new: V) -> None:
        """Appends a change; an object of the same name that was created anew is another one."""
        if old is not None and old.uid != new.uid:
            changes.append((old, None))
            old = None
        changes.append((old, new))
