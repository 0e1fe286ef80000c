"""Bindings and other requests of which many are in flight."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from enum import Enum, auto
from typing import Any, NamedTuple

import orjson

from hdsim.errors import BackendError
from hdsim.kubernetes.connection import Connection, NoAnswer, reason_of
from hdsim.kubernetes.objects import PodView

log = logging.getLogger(__name__)

#: Seconds between two looks at a pod whose binding has an unknown outcome.
_PAUSE = 0.5
#: Seconds before the second and the last of several attempts to bind a pod.
_FIRST_PAUSE, _LAST_PAUSE = 0.2, 10.0


def pause_before(attempt: int) -> float:
    """Returns the seconds before an attempt to bind a pod, 2 for the second one."""
    return float(min(_FIRST_PAUSE * 2 ** (attempt - 2), _LAST_PAUSE))


class BindingResult(Enum):
    """Kinds of outcomes of a binding."""

    BOUND = auto()
    REFUSED = auto()
    GONE = auto()  # the pod is deleted


class Binding(NamedTuple):
    """A pod that is to be bound."""

    pod: PodView
    node: str
    annotations: dict[str, str]


class BindingOutcome(NamedTuple):
    """Outcome of a binding."""

    pod: PodView
    result: BindingResult
    node: str  # that the pod is bound to, which may be another one than was asked for
    reason: str = ""


class Request(NamedTuple):
    """A request whose answer matters only if it is an error."""

    method: str
    path: str
    body: Any
    #: The run cannot do without it: it is sent again after a fault, and ends the run if it is refused.
    needed: bool = False
    content_type: str = "application/json"  # type of the body


class Sender:
    """Sends bindings, and other requests while there are no bindings to send.

    The outcome of a binding without an answer is looked up at the API server, which binds a pod at most once.

    At most `width` requests are in flight. `deliver` takes outcomes, and the error of a request that can never succeed,
    in the thread of the connection.
    """

    def __init__(
        self, connection: Connection, deliver: Callable[[BindingOutcome | BackendError], None], width: int
    ) -> None:
        self.stopped = ""  # reason for which bindings are not sent any more, empty while they are
        self.in_flight = 0  # number of requests without an answer
        self.may_bind: Callable[[], bool] = lambda: True  # asked before every binding
        self._connection, self._deliver, self._width = connection, deliver, width
        self._bindings: deque[Binding] = deque()
        self._others: deque[Request] = deque()
        self._new: deque[Request] = deque()
        self._called = False

    async def start(self) -> None:
        """Begins to send."""
        self._work = asyncio.Semaphore(0)
        self._workers = [asyncio.create_task(self._send()) for _ in range(self._width)]

    async def close(self) -> None:
        """Ends without sending what is left."""
        for worker in self._workers:
            worker.cancel()

    def bind(self, bindings: Sequence[Binding], delay: float = 0.0) -> None:
        """Sends bindings, after some seconds if told so; may be called in any thread."""
        if bindings:
            self._connection.soon(self._enqueue, self._bindings, bindings, delay)

    def send(self, requests: Sequence[Request]) -> None:
        """Sends other requests; may be called in any thread."""
        self._new.extend(requests)
        if self._new and not self._called:
            # To wake the thread of the connection for each event of a pod costs more than to send it.
            self._called = True
            self._connection.soon(self._take)

    async def drain(self, seconds: float) -> None:
        """Waits until everything is sent, at most some seconds."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while (self._bindings or self._new or self._others or self.in_flight) and loop.time() < end:
            await asyncio.sleep(0.02)
        if self._others:
            log.warning("%d events were not sent within %g s", len(self._others), seconds)

    def stop(self, reason: str) -> None:
        """Refuses all bindings that are not on their way; to be called in the thread of the connection."""
        self.stopped = reason
        while self._bindings:
            self._deliver(_refused(self._bindings.popleft(), reason))

    def _take(self) -> None:
        self._called = False
        while self._new:
            self._others.append(self._new.popleft())
            self._work.release()

    def _enqueue(self, queue: deque[Any], items: Iterable[Any], delay: float) -> None:
        if delay:
            asyncio.get_running_loop().call_later(delay, self._enqueue, queue, items, 0.0)
            return
        for item in items:
            queue.append(item)
            self._work.release()

    async def _send(self) -> None:
        while True:
            await self._work.acquire()
            self.in_flight += 1
            try:
                if self._bindings:
                    outcome = await self.carry_out(self._bindings.popleft())
                    self._deliver(outcome)
                elif self._others:
                    await self._post(self._others.popleft())
            except BackendError as error:
                self._deliver(error)
            finally:
                self.in_flight -= 1

    async def carry_out(self, binding: Binding) -> BindingOutcome:
        """Sends a binding now and returns what has become of it.

        Raises:
            BackendError: Bindings are not permitted, or the API server does not answer.
        """
        if self.stopped or not self.may_bind():
            return _refused(binding, self.stopped or "the lease has run out")
        pod, node, annotations = binding
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/binding"
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            # A pod of the same name that was created anew is not meant.
            "metadata": {"name": pod.name, "uid": pod.uid, "annotations": annotations},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        try:
            status, answer = await self._connection.send("POST", path, body)
        except NoAnswer as error:
            log.warning("%s: %s; looking whether it is bound", pod.key, error)
            return await self._look_up(binding, str(error))
        if status in (200, 201):
            return BindingOutcome(pod, BindingResult.BOUND, node)
        refusal = self._connection.refusal("POST", path, status, answer)
        if refusal.permission:
            raise refusal
        reason = reason_of(answer)
        if status < 500 and status not in (404, 409):
            return _refused(binding, reason)
        return await self._look_up(binding, reason)

    async def _look_up(self, binding: Binding, reason: str) -> BindingOutcome:
        """Finds out what has become of a binding from the pod itself."""
        pod = binding.pod
        # The permission to list is there anyhow.
        path = f"/api/v1/namespaces/{pod.namespace}/pods?fieldSelector=metadata.name={pod.name}"
        loop = asyncio.get_running_loop()
        end = loop.time() + self._connection.timeout
        while True:
            try:
                status, answer = await self._connection.send("GET", path)
                if status == 200:
                    found = [PodView.of(item) for item in orjson.loads(answer)["items"]]
                    if not found or found[0].uid != pod.uid:
                        return BindingOutcome(pod, BindingResult.GONE, "", reason)
                    if found[0].node:
                        return BindingOutcome(pod, BindingResult.BOUND, found[0].node)
                    return _refused(binding, reason)
                fault: BackendError = self._connection.refusal("GET", path, status, answer)
            except NoAnswer as silence:
                fault = silence
            if loop.time() > end:
                raise fault
            await asyncio.sleep(_PAUSE)

    async def _post(self, request: Request) -> None:
        """Sends a request, again while the API server does not answer; an error ends the run if it is needed."""
        method, path, body, needed, content_type = request
        loop = asyncio.get_running_loop()
        end, repeated = loop.time() + self._connection.timeout, False
        while True:
            try:
                status, answer = await self._connection.send(method, path, body, content_type=content_type)
                if status == 409 and needed and not repeated:
                    name = f"{body['metadata']['namespace']}/{body['metadata']['name']}"
                    raise BackendError(
                        f"pod {name} is there already; expected a namespace without pods of these names "
                        "(backend.namespace=NAME takes another one)"
                    )
                # The object is there where an attempt before was carried out without an answer, or has changed or gone.
                if status < 300 or status == 409 or (method == "PATCH" and status == 404):
                    return
                refusal = self._connection.refusal(method, path, status, answer)
                fault: BackendError = refusal
                if refusal.permission:
                    raise fault
                final = status < 500
            except NoAnswer as silence:
                fault, final, repeated = silence, False, True
            if final or loop.time() > end:
                if needed:
                    raise fault
                log.warning("%s", fault)
                return
            await asyncio.sleep(_PAUSE)


def _refused(binding: Binding, reason: str) -> BindingOutcome:
    return BindingOutcome(binding.pod, BindingResult.REFUSED, "", reason)
