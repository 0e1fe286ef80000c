"""Leader election: of several schedulers of one name, the one that holds the Lease binds pods.

The leader election of the client library stops at the first lost connection and does not release its lease.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import orjson

from hdsim.errors import BackendError
from hdsim.kubernetes.connection import Connection, NoAnswer

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Timing:
    """Times of leader election in seconds."""

    lease: float = 15.0  # time without a renewal after which others may take the lease
    renew: float = 10.0  # time within which the leader must renew it, less than `lease`
    retry: float = 2.0  # time between two attempts, less than `renew`


class Lease:
    """A Lease.

    `lost` is called with the reason, in the thread of the connection, when the lease is lost.
    """

    def __init__(
        self,
        connection: Connection,
        namespace: str,
        name: str,
        identity: str,
        timing: Timing,
        lost: Callable[[BackendError], None],
    ) -> None:
        self.held = False  # this instance holds it
        self.holder = ""  # another instance, whose end `acquire` waits for, empty for none
        self._connection, self._timing, self._identity, self._lost = connection, timing, identity, lost
        self._name = f"{namespace}/{name}"
        self._collection = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._path = f"{self._collection}/{name}"
        self._metadata: dict[str, Any] = {"name": name, "namespace": namespace}
        # Last record seen, when it changed and was last written by this instance, on the clock of this machine.
        self._seen: tuple[Any, ...] = ()
        self._changed = self._renewed = 0.0
        self._transitions, self._acquired = 0, _now()

    async def acquire(self) -> None:
        """Waits for the lease, and keeps it from then on.

        Raises:
            BackendError: The API server does not answer, or refuses.
        """
        while True:
            self._renewed = time.monotonic()
            try:
                holder = await self._try(self._connection.timeout)
            except NoAnswer as error:
                if not self.holder:
                    raise
                log.warning("lease %s: %s; trying again", self._name, error)
            else:
                if not holder:
                    break
                if holder != self.holder:
                    self.holder = holder
                    log.warning("lease %s is held by %s; waiting for it", self._name, holder)
            await asyncio.sleep(self._timing.retry)
        if self.holder:
            log.warning("lease %s is taken over by this instance, %s", self._name, self._identity)
        self.held = True
        self._keeping = asyncio.create_task(self._keep())

    async def release(self) -> None:
        """Gives the lease to the next one at once."""
        if not self.held:
            return
        self._keeping.cancel()
        self.held = False
        try:
            await self._write(self._timing.retry, release=True)
        except BackendError as error:
            log.warning("lease %s was not released: %s", self._name, error)

    def is_valid(self) -> bool:
        """Whether no other instance can have taken the lease: a process that was stopped holds it no longer."""
        return self.held and time.monotonic() < self._renewed + self._timing.lease

    async def _keep(self) -> None:
        """Renews the lease."""
        timing, reason = self._timing, ""
        while (left := self._renewed + timing.renew - time.monotonic()) > 0:
            await asyncio.sleep(min(timing.retry, left))
            asked = time.monotonic()
            try:
                holder = await self._try(max(0.1, self._renewed + timing.renew - asked))
            except BackendError as error:
                reason = str(error)
                log.warning("lease %s was not renewed: %s", self._name, error)
                continue
            if holder:
                reason = f"{holder} holds it"
                break
            self._renewed = asked
        self.held = False
        self._lost(BackendError(f"lease {self._name} is lost, another scheduler may bind pods now: {reason}"))

    async def _try(self, seconds: float) -> str:
        """Takes or renews the lease; returns the holder if it is another instance."""
        if self.held and not await self._write(seconds):
            return ""
        status, answer = await self._connection.send("GET", self._path, timeout=seconds)
        if status == 404:
            self._metadata.pop("resourceVersion", None)
            return await self._write(seconds)
        if status != 200:
            raise self._connection.refusal("GET", self._path, status, answer)
        found = orjson.loads(answer)
        spec = found.get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        seen, now = (holder, spec.get("renewTime"), spec.get("leaseTransitions")), asyncio.get_running_loop().time()
        if seen != self._seen:
            self._seen, self._changed = seen, now
        others = holder and holder != self._identity
        if others and (self.held or now - self._changed < float(spec.get("leaseDurationSeconds") or 0)):
            return str(holder)
        self._metadata["resourceVersion"] = found["metadata"]["resourceVersion"]
        if holder != self._identity:
            self._transitions, self._acquired = int(spec.get("leaseTransitions") or 0) + 1, _now()
        return await self._write(seconds)

    async def _write(self, seconds: float, *, release: bool = False) -> str:
        """Writes the lease unless another instance was quicker, whose description is returned."""
        spec = {
            "holderIdentity": "" if release else self._identity,
            "leaseDurationSeconds": 1 if release else max(1, round(self._timing.lease)),
            "acquireTime": self._acquired,
            "renewTime": _now(),
            "leaseTransitions": self._transitions,
        }
        new = "resourceVersion" not in self._metadata
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": self._metadata, "spec": spec}
        method, path = ("POST", self._collection) if new else ("PUT", self._path)
        status, answer = await self._connection.send(method, path, body, timeout=seconds)
        if status == 409:
            return "another instance"
        if status not in (200, 201):
            raise self._connection.refusal(method, path, status, answer)
        self._metadata["resourceVersion"] = orjson.loads(answer)["metadata"]["resourceVersion"]
        return ""


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
