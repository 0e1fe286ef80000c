"""A connection to a Kubernetes API server.

Configuration, TLS and credentials are those of the official client library. The requests themselves are plain JSON over
its HTTP library, since the models of the client library cost several times more CPU than a binding.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Container, Coroutine, Iterable
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar
from urllib.parse import quote, urlsplit
from urllib.request import getproxies, proxy_bypass

import orjson

from hdsim.errors import BackendError, ConfigError, install_hint

if TYPE_CHECKING:
    import aiohttp

T = TypeVar("T")
log = logging.getLogger(__name__)

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
#: Seconds between two looks at a token that expires.
_REFRESH = 60.0
#: Seconds without a line after which a watch is taken for lost; bookmarks come every minute.
_SILENCE = 120.0
#: Longest time in seconds for which the refusal of a call that was permitted before is taken for a fault that passes.
_PATIENCE = 10.0
#: Seconds without an answer after which a late answer is logged.
_SLOW = 2.0
#: Label of everything that hdsim creates.
MANAGED = {"app.kubernetes.io/managed-by": "hdsim"}
#: Query that selects what has the label.
SELECTOR = "labelSelector=" + ",".join(f"{key}%3D{value}" for key, value in MANAGED.items())
_JSON = "application/json"
#: HTTP statuses of objects that are not valid, are there already, or belong in a namespace that does not exist.
_MISTAKES = (400, 404, 409, 422)


class Call(NamedTuple):
    """A call of the API in the terms of an RBAC rule."""

    verb: str
    group: str
    resource: str

    @classmethod
    def of(cls, method: str, path: str) -> Call:
        """Returns the call of an HTTP request."""
        path, _, query = path.partition("?")
        root, *parts = path.strip("/").split("/")
        group = parts.pop(0) if root == "apis" and parts else ""
        del parts[:1]
        if root not in ("api", "apis") or not parts:
            return cls("get", "", path)
        if parts[0] == "namespaces" and len(parts) > 2:
            del parts[:2]
        resource = "/".join(parts[::2])
        if method != "GET":
            several = "collection" if method == "DELETE" and len(parts) == 1 else ""
            return cls(_VERBS[method] + several, group, resource)
        if len(parts) > 1:
            return cls("get", group, resource)
        return cls("watch" if "watch=" in query else "list", group, resource)

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}"

    def rule(self, name: str = "") -> str:
        """Returns the RBAC rule that permits the call, for all objects or the one of a name."""
        names = f'resourceNames: ["{name}"], ' if name else ""
        return f'{{apiGroups: ["{self.group}"], resources: ["{self.resource}"], {names}verbs: ["{self.verb}"]}}'


class NoAnswer(BackendError):
    """The API server has not answered a request, which it may have carried out or not."""


class Refused(BackendError):
    """The API server has refused a request."""

    status: int  # HTTP status
    permission: bool  # the credentials lack a permission, or are not valid


class Connection:
    """A connection, with an event loop in a thread of its own.

    Coroutines run in that thread (`call`, `submit`); the other methods that are no coroutines may be called anywhere.
    The kubeconfig is by default the one of KUBECONFIG or ``~/.kube/config`` if there is one, otherwise the service
    account of the pod that hdsim runs in; its context is by default the current one. `where` is the key or option of
    the kubeconfig.

    Raises:
        ConfigError: The client library or a usable configuration is missing.
    """

    def __init__(
        self,
        kubeconfig: str | Path | None = None,
        context: str | None = None,
        *,
        timeout: float = 60.0,
        where: str = "backend.kubeconfig",
    ) -> None:
        self.timeout = timeout  # seconds that the API server may take for an answer
        self.calls: Counter[Call] = Counter()
        self._permitted: set[Call] = set()
        self._source, self._where = "the service account of this pod", where
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="kubernetes", daemon=True)
        self._thread.start()
        self._session: aiohttp.ClientSession | None = None
        self._slow = 0.0  # time of the last late answer that was told
        try:
            self.call(self._open(kubeconfig, context))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine and returns its result."""
        return self.submit(coroutine).result()

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Starts a coroutine."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def soon(self, function: Callable[..., object], *arguments: Any) -> None:
        """Calls a function in the thread of the connection."""
        self._loop.call_soon_threadsafe(function, *arguments)

    def close(self) -> None:
        """Cancels what still runs, and closes the connection."""
        if self._thread.is_alive():
            self.call(self._close())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def request(self, method: str, path: str, body: Any = None, **options: Any) -> tuple[int, dict[str, Any]]:
        """Sends a request and waits for status and object of its answer; see `send`."""
        status, answer = self.call(self.send(method, path, body, **options))
        return status, _object(answer)

    def get(self, path: str) -> dict[str, Any]:
        """Reads an object or a list.

        Raises:
            BackendError: There is no answer, or not the wanted one.
        """
        return _object(self.call(self.ask("GET", path)))

    def require_namespace(self, name: str, where: str) -> None:
        """Raises ConfigError if a namespace does not exist, as far as the credentials permit to read it."""
        status, _ = self.request("GET", f"/api/v1/namespaces/{quote(name, safe='')}")
        if status == 404 or not name:
            raise ConfigError(f"expected a namespace of {self.server}, got '{name}'", where=where)

    async def ask(self, method: str, path: str, body: Any = None, *, but: Container[int] = (), **options: Any) -> bytes:
        """Sends a request as `send` does, and returns the body of its answer.

        Raises:
            BackendError: It is refused, with another HTTP status than those of `but`, or as `send` does.
        """
        status, answer = await self.send(method, path, body, **options)
        if status >= 300 and status not in but:
            raise self.refusal(method, path, status, answer)
        return answer

    async def send(
        self, method: str, path: str, body: Any = None, *, content_type: str = _JSON, timeout: float | None = None
    ) -> tuple[int, bytes]:
        """Sends a request; one that the API server is too busy for (429) is sent again when it says so.

        An API server that has just started may refuse what it will permit soon, so that a call that it has permitted
        before is sent again for some seconds. The body is an object, or its JSON as bytes; the time-out in seconds is
        by default that of the connection. HTTP status and body of the answer are returned.

        Raises:
            NoAnswer: There is no answer within the time-out.
            BackendError: The credentials are not valid.
        """
        call = Call.of(method, path)
        seconds = timeout or self.timeout
        data = body if body is None or isinstance(body, bytes) else orjson.dumps(body)
        loop = asyncio.get_running_loop()
        begin = loop.time()
        patience = begin + _PATIENCE * (call in self._permitted)
        try:
            async with asyncio.timeout(seconds):
                while True:
                    self.calls[call] += 1
                    options = await self._options(content_type)
                    async with self._http.request(method, self.server + path, data=data, **options) as answer:
                        status, content = answer.status, await answer.read()
                    if status in (401, 403) and loop.time() < patience:
                        if not self.refusal(method, path, status, content).permission:
                            break
                    elif status != 429:
                        break
                    await asyncio.sleep(float(answer.headers.get("Retry-After", 1)))
                self._tell_slow(call, begin)
        except Exception as error:
            raise self._no_answer(call, error, seconds) from None
        if status == 401:
            raise self.refusal(method, path, status, content)
        if status < 400:
            self._permitted.add(call)
        return status, content

    def _tell_slow(self, call: Call, begin: float) -> None:
        """Tells of a late answer; of several requests that were late at the same time, of the first one."""
        now = self._loop.time()
        if now - begin > _SLOW and begin > self._slow:
            self._slow = now
            log.warning("%s: %s: answered after %.1f s", self.server, call, now - begin)

    async def lines(self, path: str) -> AsyncIterator[list[bytes]]:
        """Yields the lines of a watch as they come, those that come together in one list; at its begin an empty list.

        Raises:
            NoAnswer: The API server does not answer, or the connection is lost.
            BackendError: It refuses the watch.
        """
        import aiohttp

        call = Call.of("GET", path)
        self.calls[call] += 1
        limits = aiohttp.ClientTimeout(total=None, sock_read=_SILENCE)
        seconds = self.timeout
        try:
            options = await self._options(_JSON)
            async with asyncio.timeout(seconds):
                opened = await self._http.get(self.server + path, timeout=limits, **options)
            seconds = _SILENCE
            async with opened as answer:
                if answer.status != 200:
                    raise self.refusal("GET", path, answer.status, await answer.read())
                yield []
                begun = b""
                async for chunk in answer.content.iter_any():
                    *whole, begun = (begun + chunk).split(b"\n")
                    if whole:
                        yield whole
        except BackendError:
            raise
        except Exception as error:
            raise self._no_answer(call, error, seconds) from None

    def refusal(self, method: str, path: str, status: int, answer: bytes) -> Refused:
        """Describes an answer of the API server that is an error."""
        call, text = Call.of(method, path), reason_of(answer)
        # Admission and quotas refuse with 403 as well, in other words.
        forbidden = status == 403 and f'cannot {call.verb} resource "{call.resource}"' in text
        if forbidden:
            text = f"the {self.user} do not permit it; the rule that does: {call.rule()}"
        elif status == 401:
            text = f"the {self.user} are not valid, or have expired"
        error = Refused(f"{self.server}: {call}: {text} (HTTP status {status})")
        error.status, error.permission = status, forbidden or status == 401
        error.is_mistake = status in _MISTAKES
        return error

    @property
    def user(self) -> str:
        """The credentials by their source, for messages."""
        return f"credentials of {self._source}"

    @property
    def _http(self) -> aiohttp.ClientSession:
        assert self._session is not None
        return self._session

    async def _options(self, content_type: str) -> dict[str, Any]:
        """Returns the options of a request."""
        headers = {"Content-Type": content_type, "Accept": _JSON, "User-Agent": "hdsim"}
        # The hook of the configuration reads a token again that has expired.
        token = await self._configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
        if token:
            headers["Authorization"] = token
        return {"headers": headers, "server_hostname": self._configuration.tls_server_name}

    async def _open(self, kubeconfig: str | Path | None, context: str | None) -> None:
        """Reads the configuration and creates the HTTP session."""
        try:
            import aiohttp
            from kubernetes.aio import client, config
            from kubernetes.aio.client.rest import RESTClientObject
        except ImportError as error:
            raise ConfigError(
                f"expected the client library of Kubernetes: {error}{install_hint('kubernetes')}", where=self._where
            ) from None
        # The library logs the output of credential plug-ins.
        logging.getLogger("kubernetes").setLevel(logging.CRITICAL)
        files = str(kubeconfig or config.KUBE_CONFIG_DEFAULT_LOCATION)
        exists = any(Path(file).expanduser().is_file() for file in files.split(os.pathsep))
        self._configuration = settings = client.Configuration()
        user: Any = None
        try:
            if exists:
                self._source = files
                loader: Any = await config.load_kube_config(
                    files, context, client_configuration=settings, persist_config=False
                )
                user = loader._user
            elif kubeconfig is None:
                config.load_incluster_config(settings)
            else:
                raise FileNotFoundError
            tls = RESTClientObject(settings).ssl_context
        except Exception as error:
            wanted = f"a context '{context}', a cluster and a user" if context else "a cluster and a user"
            # The library's message may quote a token.
            text = f"expected a kubeconfig with {wanted} that can be used, got {files} ({type(error).__name__})"
            if not exists:
                beside = "" if kubeconfig else ", nor has this machine the service account of a pod"
                text = f"expected a kubeconfig, there is no file {files}{beside}"
            raise ConfigError(text, where=self._where) from None
        if user is not None and "exec" in user and not (settings.api_key or settings.cert_file):
            # The library continues without credentials, and its log of the reason may quote them.
            raise ConfigError(
                f"expected credentials from the plug-in '{user['exec']['command']}' of {files}, got none",
                where=self._where,
            )
        if "@" in urlsplit(settings.host).netloc:
            # Messages name the address.
            raise ConfigError(f"expected a server without credentials in its address in {files}", where=self._where)
        self.server = settings.host.rstrip("/")  # address of the API server
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=tls),
            # trust_env of aiohttp would read the environment and ~/.netrc in a thread for every request.
            proxy=settings.proxy or _proxy_of(self.server),
            read_bufsize=1 << 20,
            # Every request has its own limit; the default of 30 s for a connection would be told as `timeout`.
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
        )
        if user is not None and "exec" in user:
            self._refreshing = asyncio.create_task(config.refresh_token(loader, settings, _REFRESH))

    async def _close(self) -> None:
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        if self._session is not None:
            await self._session.close()

    def _no_answer(self, call: Call, error: Exception, seconds: float) -> NoAnswer:
        """Describes why there is no answer, without what the error of a library may quote."""
        import aiohttp

        if isinstance(error, aiohttp.ClientConnectorCertificateError):
            text = f"its certificate is not accepted: {error.certificate_error}"
        elif isinstance(error, aiohttp.ClientSSLError):
            text = f"TLS failed: {type(error.os_error).__name__}"
        elif isinstance(error, aiohttp.ClientConnectorError):
            text = f"no connection: {error.os_error.strerror or type(error.os_error).__name__}"
        elif isinstance(error, TimeoutError):
            text = f"no answer within {seconds:g} s"
        else:
            text = f"the connection was lost ({type(error).__name__})"
        return NoAnswer(f"{self.server}: {call}: {text}")


def _proxy_of(server: str) -> str | None:
    """Returns the proxy that the environment names for a server."""
    parts = urlsplit(server)
    return None if proxy_bypass(parts.netloc) else getproxies().get(parts.scheme)


def reason_of(answer: bytes) -> str:
    """Returns the message of a Status object."""
    with contextlib.suppress(ValueError):
        return str(orjson.loads(answer).get("message", ""))
    return answer[:200].decode(errors="replace") or "no reason given"


def _object(answer: bytes) -> dict[str, Any]:
    """Returns the object in an answer; one that is no JSON, such as that of /readyz, as its message."""
    try:
        found: Any = orjson.loads(answer)
    except ValueError:
        found = answer.decode(errors="replace")
    return found if isinstance(found, dict) else {"message": str(found)}


_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_CREATED = 201


class Permission(NamedTuple):
    """A call that a run makes."""

    call: Call  # verb, group and resource
    #: namespace, name: Empty for all namespaces, and for any object.
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        kind = f"a Role in the namespace {self.namespace}" if self.namespace else "a ClusterRole"
        return f"{self.call}; {kind} with this rule does: {self.call.rule(self.name)}"


def require(connection: Connection, permissions: Iterable[Permission]) -> None:
    """Checks that credentials permit all calls of a run, some of which come hours after its start or after a fault.

    Raises:
        ConfigError: Some are not permitted; all are listed with the rules that permit them.
        BackendError: The API server does not answer, or does not accept the credentials.
    """
    if denied := connection.call(missing(connection, permissions)):
        raise ConfigError.many([ConfigError(each) for each in denied])


async def missing(connection: Connection, permissions: Iterable[Permission]) -> list[str]:
    """Returns the permissions that credentials do not have, as sentences with the rules that permit them.

    Raises:
        BackendError: The API server does not answer, or does not accept the credentials.
    """
    found = [permission for permission in permissions if await _is_denied(connection, permission)]
    return [f"the {connection.user} do not permit to {permission}" for permission in found]


async def _is_denied(connection: Connection, permission: Permission) -> bool:
    """Asks for the access review of a permission; a server without such reviews, as one without RBAC, denies none."""
    (verb, group, resource), namespace, name = permission
    resource, _, subresource = resource.partition("/")
    attributes = {"verb": verb, "group": group, "resource": resource, "namespace": namespace, "name": name}
    if subresource:
        attributes["subresource"] = subresource
    status, answer = await connection.send("POST", _REVIEWS, {"spec": {"resourceAttributes": attributes}})
    return status == _CREATED and not orjson.loads(answer)["status"]["allowed"]
