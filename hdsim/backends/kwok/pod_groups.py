"""PodGroups of the coscheduling plugin, a custom resource: the number of pods of a gang that have to start together."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import Future

import orjson

from hdsim.errors import BackendError
from hdsim.kubernetes.cache import Cache, Change
from hdsim.kubernetes.connection import Call, Connection, Permission, missing
from hdsim.kubernetes.objects import PodGroupView

log = logging.getLogger(__name__)

_GROUP, _RESOURCE = "scheduling.x-k8s.io", "podgroups"
_VERSION = f"/apis/{_GROUP}/v1alpha1"
_PERMISSIONS = tuple(Permission(Call(verb, _GROUP, _RESOURCE)) for verb in ("list", "watch"))
#: Seconds between two looks for the resource.
_PAUSE = 5.0


class PodGroups:
    """The PodGroups of an API server, from the time on that it has this resource.

    `deliver` takes their changes, see :class:`hdsim.kubernetes.cache.Cache`.
    """

    def __init__(
        self, connection: Connection, deliver: Callable[[list[Change[PodGroupView]] | BackendError], None]
    ) -> None:
        path = f"{_VERSION}/{_RESOURCE}"
        self.cache = Cache(connection, path, PodGroupView.of, deliver, optional=True)
        self._connection = connection
        self._told = ""
        self._looking: Future[str] | None = None
        self._next = 0.0  # monotonic time of the next look

    def start(self) -> str:
        """Looks for the resource; returns why it cannot be read, empty if it can or does not exist."""
        self._told = self._connection.call(self._find())
        self._next = time.monotonic() + _PAUSE
        return self._told

    def look(self) -> None:
        """Looks for the resource without waiting, unless it is watched or was looked for a moment ago."""
        if self._looking is not None and self._looking.done():
            found, self._looking = self._looking.result(), None
            if found and found != self._told:
                log.warning(found)
            self._told = found
        if not self.cache.watches and self._looking is None and time.monotonic() > self._next:
            self._next = time.monotonic() + _PAUSE
            self._looking = self._connection.submit(self._find())

    async def _find(self) -> str:
        """Watches the PodGroups if the API server has the resource; returns why it cannot."""
        try:
            status, answer = await self._connection.send("GET", _VERSION)
            if status != 200 or all(each["name"] != _RESOURCE for each in orjson.loads(answer)["resources"]):
                return ""
            if denied := await missing(self._connection, _PERMISSIONS):
                return f"PodGroups are not read: {denied[0]}"
            await self.cache.start()
        except BackendError as error:
            return f"PodGroups are not read: {error}"
        return ""
