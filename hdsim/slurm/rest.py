"""A client by slurmrestd, over its Unix socket."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from hdsim.errors import BackendError, ConfigError
from hdsim.slurm.client import Client, NoAnswer, Refused
from hdsim.slurm.objects import (
    Demand,
    Held,
    Release,
    SlurmJob,
    SlurmNode,
    Submission,
    constraint,
    demand_of,
    held_of,
    job_of,
    node_of,
)

_VERSION = "v0.0.38"
#: HTTP status of a list that has not changed.
_UNCHANGED = 304
#: Numbers of errors of slurmctld about a request; others are about connections.
_REFUSALS = range(2000, 3000)
#: Numbers of errors that are no failures: the submitted job is held.
_HARMLESS = (2042,)


class Rest(Client):
    """A client of slurmrestd.

    Args:
        socket: The Unix socket that it listens on.
        seconds: Time that an answer may take.

    Raises:
        ConfigError: There is no socket.
    """

    by_features = True

    def __init__(self, socket: Path, seconds: float) -> None:
        import aiohttp

        super().__init__()
        if not socket.is_socket():
            raise ConfigError(
                f"expected the Unix socket of a slurmrestd, or null for Slurm's commands, got '{socket}'",
                where="backend.socket",
            )
        self.name = f"slurmrestd at {socket}"
        self._seconds = seconds
        self._loop = asyncio.new_event_loop()
        self._session: aiohttp.ClientSession = self._loop.run_until_complete(_session(socket))

    def close(self) -> None:
        if not self._loop.is_closed():
            self._loop.run_until_complete(self._session.close())
            self._loop.close()

    def time(self) -> int:
        return int(self._ask("GET", "diag")["statistics"]["req_time"])

    def jobs(self, since: int) -> Sequence[SlurmJob] | None:
        documents = self._ask("GET", f"jobs?update_time={since}" if since else "jobs").get("jobs")
        return None if documents is None else [job_of(each) for each in documents]

    def nodes(self) -> Sequence[SlurmNode]:
        return [node_of(each) for each in self._ask("GET", "nodes")["nodes"]]

    def demand(self, job: int, names: frozenset[str]) -> Demand:
        return demand_of(_fields(self._job(job)), names)

    def held_on(self, job: int) -> Mapping[str, Held]:
        return held_of(self._job(job))

    def submit(self, job: Submission) -> int:
        wanted: dict[str, Any] = {
            "name": job.name,
            "comment": job.comment,
            "hold": True,
            "tasks": job.tasks,
            "cpus_per_task": job.cpus,
            "requeue": True,
            "environment": dict(job.environment),
            "current_working_directory": "/",
            "standard_input": "/dev/null",
            "standard_output": "/dev/null",
            "standard_error": "/dev/null",
        }
        if job.memory:
            wanted["memory_per_cpu"] = round(job.memory)
        if job.gpus:
            wanted["gpus_per_task"] = str(job.gpus)
        if job.minutes is not None:
            wanted["time_limit"] = job.minutes
        if job.partition is not None:
            wanted["partition"] = job.partition
        return int(self._ask("POST", "job/submit", {"script": job.script, "job": wanted})["job_id"])

    def release(self, release: Release) -> None:
        count = len(release.nodes)
        body: dict[str, Any] = {
            "hold": False,
            "constraints": constraint(release.nodes),
            "nodes": [count, count],
            "tasks": release.tasks,
            "cpus_per_task": release.cpus,
            "minimum_cpus_per_node": release.least,
        }
        if release.again:
            body["begin_time"] = "now"
        self._ask("POST", f"job/{release.job}", body)

    def hold(self, job: int, required: tuple[str, ...] = ()) -> None:
        self._ask("POST", f"job/{job}", {"hold": True})

    def comment(self, job: int, comment: str) -> None:
        self._ask("POST", f"job/{job}", {"comment": comment})

    def cancel(self, job: int) -> None:
        self._ask("DELETE", f"job/{job}")

    def _job(self, job: int) -> Mapping[str, Any]:
        found = self._ask("GET", f"job/{job}").get("jobs")
        if not found:
            raise Refused(f"job {job} is unknown")
        document: Mapping[str, Any] = found[0]
        return document

    def _ask(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """Sends a request and returns the document of its answer."""
        self.calls[f"{method} {path.partition('?')[0].rstrip('0123456789').rstrip('/')}"] += 1
        return self._loop.run_until_complete(self._send(method, path, body))

    async def _send(self, method: str, path: str, body: Any) -> dict[str, Any]:
        import aiohttp

        data = None if body is None else orjson.dumps(body)
        headers = {} if body is None else {"Content-Type": "application/json"}
        url = f"http://localhost/slurm/{_VERSION}/{path}"
        try:
            async with (
                asyncio.timeout(self._seconds),
                self._session.request(method, url, data=data, headers=headers) as answer,
            ):
                content = await answer.read()
        except TimeoutError:
            raise NoAnswer(f"{self.name} has not answered within {self._seconds:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise NoAnswer(f"{self.name} does not answer: {error or type(error).__name__}") from None
        if answer.status == _UNCHANGED:
            return {}
        try:
            document: dict[str, Any] = orjson.loads(content)
        except orjson.JSONDecodeError:
            raise BackendError(
                f"expected {self.name} to have the plugin openapi/{_VERSION} and to admit this user, got HTTP status "
                f"{answer.status} and no JSON"
            ) from None
        errors = [each for each in document.get("errors") or () if _number(each) not in _HARMLESS]
        if errors:
            reason = "; ".join(str(each.get("error") or each.get("description")) for each in errors)
            refused = any(_number(each) in _REFUSALS for each in errors)
            raise Refused(reason) if refused else NoAnswer(f"{self.name}: {reason}")
        return document


async def _session(socket: Path) -> Any:
    import aiohttp

    return aiohttp.ClientSession(connector=aiohttp.UnixConnector(path=str(socket), limit=4))


def _number(error: Mapping[str, Any]) -> int:
    return int(error.get("error_number") or error.get("error_code") or 0)


def _fields(document: Mapping[str, Any]) -> dict[str, str]:
    """Returns the request of a job of slurmrestd under the names of ``scontrol show job``."""
    names = {
        "NumNodes": "node_count",
        "NumTasks": "tasks",
        "CPUs/Task": "cpus_per_task",
        "NumCPUs": "cpus",
        "Features": "features",
        "ReqNodeList": "required_nodes",
        "ExcNodeList": "excluded_nodes",
        "Licenses": "licenses",
        "TresPerNode": "tres_per_node",
        "TresPerJob": "tres_per_job",
        "TresPerTask": "tres_per_task",
        "TresPerSocket": "tres_per_socket",
        "Reservation": "resv_name",
        "ArrayTaskId": "array_task_string",
        "HetJobId": "het_job_id",
        "MinMemoryCPU": "memory_per_cpu",
        "MinMemoryNode": "memory_per_node",
    }
    found = {key: str(document[name]) for key, name in names.items() if document.get(name) not in (None, "")}
    if shared := {0: "NO", "none": "NO", "user": "USER"}.get(document.get("shared")):
        found["OverSubscribe"] = shared
    limit = document.get("time_limit")
    return {"UserId": f"({document['user_id']})", **found, **({} if limit is None else {"TimeLimit": str(limit)})}
