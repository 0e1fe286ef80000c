"""Messages of Batsim's protocol (Batsim 3 and 4, JSON): text to checked values and back. No socket, no simulation.

A message is ``{"now": s, "events": [{"timestamp": s, "type": "...", "data": {...}}]}``. Batsim and its scheduler take
turns, Batsim first. Source: https://batsim.readthedocs.io/en/v4.2.0/protocol.html and recorded conversations.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from json.encoder import encode_basestring
from typing import Any, NamedTuple, TypeGuard

from hdsim.errors import BackendError, nearest
from hdsim.state import FinalState

#: Where Batsim connects to and a scheduler binds by default.
DEFAULT_ENDPOINT = "tcp://localhost:28000"
#: s, later than any time that makes sense.
LATEST = 1e15
#: Between the name of a workload and the job's own id.
SEPARATOR = "!"
#: Return code that Batsim reports for jobs that did not end by themselves.
RETURN_CODES = {FinalState.COMPLETED_WALLTIME_REACHED: -1, FinalState.COMPLETED_KILLED: -2}

_NUMBER = (int, float)
_SHOWN = 80

Kinds = Mapping[str, Mapping[str, type | tuple[type, ...]]]

#: Events that Batsim sends, with the keys that their data must have.
FROM_BATSIM: Kinds = {
    "SIMULATION_BEGINS": {
        "nb_resources": int,
        "nb_compute_resources": int,
        "nb_storage_resources": int,
        "allow_compute_sharing": bool,
        "allow_storage_sharing": bool,
        "config": dict,
        "compute_resources": list,
        "storage_resources": list,
        "workloads": dict,
        "profiles": dict,
    },
    "JOB_SUBMITTED": {"job_id": str, "job": dict},
    "JOB_COMPLETED": {"job_id": str, "job_state": str, "return_code": int, "alloc": str},
    "JOB_KILLED": {"job_ids": list, "job_progress": dict},
    "RESOURCE_STATE_CHANGED": {"resources": str, "state": str},
    "REQUESTED_CALL": {},
    "ANSWER": {},
    "NOTIFY": {"type": str},
    "SIMULATION_ENDS": {},
}
#: Events that a scheduler sends, with the keys that their data must have.
FROM_SCHEDULER: Kinds = {
    "EXECUTE_JOB": {"job_id": str, "alloc": str},
    "REJECT_JOB": {"job_id": str},
    "KILL_JOB": {"job_ids": list},
    "CALL_ME_LATER": {"timestamp": _NUMBER},
    "SET_RESOURCE_STATE": {"resources": str, "state": str},
    "QUERY": {"requests": dict},
    "REGISTER_PROFILE": {"workload_name": str, "profile_name": str, "profile": dict},
    "REGISTER_JOB": {"job_id": str, "job": dict},
    "SET_JOB_METADATA": {"job_id": str, "metadata": str},
    "NOTIFY": {"type": str},
}


class Event(NamedTuple):
    """One event of a message."""

    timestamp: float  # s
    type: str
    data: Mapping[str, Any] = {}


class Message(NamedTuple):
    """What is sent at once."""

    now: float  # s
    events: Sequence[Event] = ()


def format_message(now: float, events: Iterable[Event]) -> str:
    """A message as Batsim writes it: no blanks, every float with six decimals.

    Args:
        now: s.
        events: In order of their timestamps.
    """
    texts = [
        f'{{"timestamp":{timestamp:.6f},"type":"{kind}","data":{encode(data)}}}' for timestamp, kind, data in events
    ]
    return f'{{"now":{now:.6f},"events":[{",".join(texts)}]}}'


def encode(value: Any) -> str:
    """A JSON value as Batsim writes it.

    Raises:
        BackendError: The value is none of JSON's, or a number that is not finite.
    """
    kind = type(value)
    if kind is str:
        return encode_basestring(value)
    if kind is float:
        if not math.isfinite(value):
            raise BackendError(f"expected a finite number, got {value}")
        return f"{value:.6f}"
    if kind is dict:
        return "{" + ",".join([f"{encode_basestring(key)}:{encode(child)}" for key, child in value.items()]) + "}"
    if kind is int:
        return str(value)
    if kind is list or kind is tuple:
        return "[" + ",".join(map(encode, value)) + "]"
    if value is None or kind is bool:
        return json.dumps(value)
    raise BackendError(f"expected a JSON value, got {kind.__name__}")


def parse_message(text: str | bytes, kinds: Kinds, *, sender: str, clock: float = -math.inf) -> Message:
    """Reads and checks a message.

    Args:
        text: JSON, in UTF-8 if bytes.
        kinds: :data:`FROM_BATSIM` or :data:`FROM_SCHEDULER`: the events that may come.
        sender: Who sent it, for error messages.
        clock: s, when time stands before the message.

    Raises:
        BackendError: It is not JSON, lacks a key, has an unknown event, or time goes back in it.
    """
    try:
        # Finding out the encoding of bytes costs as much as reading a short message.
        content = json.loads(text if isinstance(text, str) else text.decode())
    except (ValueError, RecursionError) as error:
        raise _fault(sender, f"expected JSON, got {_shown(text)}: {error}") from None
    if not isinstance(content, dict) or not isinstance(content.get("events"), list):
        raise _fault(sender, f"expected an object with 'now' and a list of 'events', got {_shown(text)}")
    now = content.get("now")
    if not _is_time(now):
        raise _fault(sender, f"now: expected a number of seconds, got {_shown(now)}")
    if now < clock:
        raise _fault(sender, f"now: expected at least {clock:.6f}, the time it was told, got {now:.6f}: time goes back")
    events = []
    for index, event in enumerate(content["events"]):
        checked = _event(event, kinds, f"{sender}: events[{index}]")
        if checked.timestamp < clock:
            raise _fault(
                f"{sender}: events[{index}] {checked.type}",
                f"timestamp: expected at least {clock:.6f}, got {checked.timestamp:.6f}: time goes back",
            )
        clock = checked.timestamp
        events.append(checked)
    if now < clock:
        raise _fault(sender, f"now: expected at least {clock:.6f}, its last timestamp, got {now:.6f}: time goes back")
    return Message(now, events)


def _event(event: Any, kinds: Kinds, where: str) -> Event:
    if not isinstance(event, dict):
        raise _fault(where, f"expected an object, got {_shown(event)}")
    kind, timestamp, data = event.get("type"), event.get("timestamp"), event.get("data", {})
    if not isinstance(kind, str) or kind not in kinds:
        raise _fault(where, f"unknown event {_shown(kind)}{nearest(str(kind), kinds)}; allowed: {', '.join(kinds)}")
    where = f"{where} {kind}"
    if not _is_time(timestamp):
        raise _fault(where, f"timestamp: expected a number of seconds, got {_shown(timestamp)}")
    if not isinstance(data, dict):
        raise _fault(where, f"data: expected an object, got {_shown(data)}")
    for key, expected in kinds[kind].items():
        value = data.get(key)
        # The exact type is the common case and the quick one.
        if type(value) is expected:
            continue
        if not isinstance(value, expected) or (isinstance(value, bool) and expected is not bool):
            raise _fault(where, f"data.{key}: expected {_named(expected)}, got {_shown(value)}")
    return Event(timestamp, kind, data)


def _is_time(value: Any) -> TypeGuard[float]:
    # JSON has whole numbers that no float can hold.
    return (type(value) is float or type(value) is int) and abs(value) < LATEST


def _named(expected: type | tuple[type, ...]) -> str:
    names = {str: "a text", int: "a whole number", bool: "true or false", dict: "an object", list: "a list"}
    return "a number" if isinstance(expected, tuple) else names[expected]


def _shown(value: Any) -> str:
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    text = "nothing" if value is None else value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def _fault(where: str, message: str) -> BackendError:
    return BackendError(message, where=where)


def parse_hosts(text: str, count: int) -> list[int]:
    """Host ids of an interval set such as ``"0-3 8"``, ascending.

    Plain lists, because sets of intervals take quadratic time for scattered hosts.

    Args:
        text: The interval set.
        count: How many hosts there are.

    Raises:
        BackendError: It is no interval set, a host is in it twice, or one does not exist.
    """
    hosts: list[int] = []
    try:
        for part in text.split():
            first, dash, last = part.partition("-")
            low = int(first)
            high = int(last) if dash else low
            if not 0 <= low <= high < count:
                raise BackendError(f"expected hosts from 0 to {count - 1}, got '{text}'")
            hosts.extend(range(low, high + 1))
    except ValueError:
        raise BackendError(f"expected hosts as in '0-3 8', got '{text}'") from None
    hosts.sort()
    if len(set(hosts)) < len(hosts):
        raise BackendError(f"expected each host once, got '{text}'")
    return hosts


def format_hosts(hosts: Sequence[int]) -> str:
    """The interval set of ascending host ids."""
    if not hosts:
        return ""
    if hosts[-1] - hosts[0] == len(hosts) - 1:
        return f"{hosts[0]}-{hosts[-1]}" if len(hosts) > 1 else str(hosts[0])
    breaks = [n for n in range(1, len(hosts)) if hosts[n] != hosts[n - 1] + 1]
    spans = zip(chain([0], breaks), chain(breaks, [len(hosts)]), strict=True)
    return " ".join(
        str(hosts[first]) if end == first + 1 else f"{hosts[first]}-{hosts[end - 1]}" for first, end in spans
    )


def split_job_id(job_id: str) -> tuple[str, str]:
    """Workload and own id of a job: ``w0!1`` -> ``w0``, ``1``.

    Raises:
        BackendError: The id has no workload.
    """
    workload, separator, own = job_id.partition(SEPARATOR)
    if not (workload and separator and own):
        raise BackendError(f"expected a job id such as 'w0{SEPARATOR}1', got '{job_id}'")
    return workload, own
