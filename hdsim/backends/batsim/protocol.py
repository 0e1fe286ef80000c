"""Messages of Batsim's protocol (Batsim 3 and 4, JSON): text to checked values and back, without socket and simulation.

A message is ``{"now": 5.0, "events": [{"timestamp": 5.0, "type": "...", "data": {...}}]}``. Batsim and its scheduler
alternate, Batsim first. Source: https://batsim.readthedocs.io/en/v4.2.0/protocol.html and recorded conversations.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from json.encoder import encode_basestring as quote
from types import NoneType
from typing import Any, NamedTuple, TypeGuard

import orjson

from hdsim.errors import BackendError, nearest
from hdsim.util.intervals import parse_interval_set
from hdsim.util.text import shown

#: Endpoint that Batsim connects to by default.
DEFAULT_ENDPOINT = "tcp://localhost:28000"
#: Exclusive upper limit of times, in seconds.
LATEST = 1e15
#: Separator of the name of a workload and the job's own id.
SEPARATOR = "!"

#: Name of the scheduler in errors.
SCHEDULER = "the scheduler"

Types = tuple[type, ...]
Kinds = Mapping[str, Mapping[str, Types]]

_TEXT: Types = (str,)
_WHOLE: Types = (int,)
_NUMBER: Types = (float, int)
_TRUTH: Types = (bool,)
_OBJECT: Types = (dict,)
_LIST: Types = (list,)
_NAMES = {
    _TEXT: "a text",
    _WHOLE: "a whole number",
    _NUMBER: "a number",
    _TRUTH: "true or false",
    _OBJECT: "an object",
    _LIST: "a list",
}

#: Events that Batsim sends, with the keys that their data must have.
FROM_BATSIM: Kinds = {
    "SIMULATION_BEGINS": {
        "nb_resources": _WHOLE,
        "nb_compute_resources": _WHOLE,
        "nb_storage_resources": _WHOLE,
        "allow_compute_sharing": _TRUTH,
        "allow_storage_sharing": _TRUTH,
        "config": _OBJECT,
        "compute_resources": _LIST,
        "storage_resources": _LIST,
        "workloads": _OBJECT,
        "profiles": _OBJECT,
    },
    "JOB_SUBMITTED": {"job_id": _TEXT, "job": _OBJECT},
    "JOB_COMPLETED": {"job_id": _TEXT, "job_state": _TEXT, "return_code": _WHOLE, "alloc": _TEXT},
    "JOB_KILLED": {"job_ids": _LIST, "job_progress": _OBJECT},
    "RESOURCE_STATE_CHANGED": {"resources": _TEXT, "state": _TEXT},
    "REQUESTED_CALL": {},
    "ANSWER": {},
    "NOTIFY": {"type": _TEXT},
    "SIMULATION_ENDS": {},
}
#: Events that a scheduler sends, with the keys that their data must have.
FROM_SCHEDULER: Kinds = {
    "EXECUTE_JOB": {"job_id": _TEXT, "alloc": _TEXT},
    "REJECT_JOB": {"job_id": _TEXT},
    "KILL_JOB": {"job_ids": _LIST},
    "CALL_ME_LATER": {"timestamp": _NUMBER},
    "SET_RESOURCE_STATE": {"resources": _TEXT, "state": _TEXT},
    "QUERY": {"requests": _OBJECT},
    "REGISTER_PROFILE": {"workload_name": _TEXT, "profile_name": _TEXT, "profile": _OBJECT},
    "REGISTER_JOB": {"job_id": _TEXT, "job": _OBJECT},
    "SET_JOB_METADATA": {"job_id": _TEXT, "metadata": _TEXT},
    "NOTIFY": {"type": _TEXT},
}


class Event(NamedTuple):
    """One event of a message."""

    timestamp: float  # s
    type: str
    data: Mapping[str, Any] = {}


class Message(NamedTuple):
    """One message: a time and events."""

    now: float  # s
    events: Sequence[Event] = ()


def format_message(now: float, events: Iterable[Event]) -> str:
    """Returns a message as Batsim writes it: no blanks, every float with six decimals; the events in order of time."""
    return join_message(
        f"{now:.6f}", [format_event(f"{timestamp:.6f}", kind, encode(data)) for timestamp, kind, data in events]
    )


def join_message(now: str, events: Iterable[str]) -> str:
    """Returns a message of encoded parts: seconds with six decimals, and :func:`format_event` of the events."""
    return f'{{"now":{now},"events":[{",".join(events)}]}}'


def format_event(timestamp: str, kind: str, data: str) -> str:
    """Returns an event of encoded parts: seconds with six decimals, the type, and the data as JSON."""
    return f'{{"timestamp":{timestamp},"type":"{kind}","data":{data}}}'


def encode(value: Any) -> str:
    """Returns a JSON value as Batsim writes it.

    Raises:
        BackendError: The value is none of JSON's, or a number that is not finite.
    """
    return _ENCODERS[type(value)](value)


def _encode_object(value: Mapping[str, Any]) -> str:
    return "{" + ",".join([f"{quote(key)}:{_ENCODERS[type(child)](child)}" for key, child in value.items()]) + "}"


def _encode_list(value: Iterable[Any]) -> str:
    return "[" + ",".join([_ENCODERS[type(child)](child) for child in value]) + "]"


def _encode_float(value: float) -> str:
    if not math.isfinite(value):
        raise BackendError(f"expected a finite number, got {value}")
    return f"{value:.6f}"


class _Encoders(dict[type, Callable[[Any], str]]):
    """Encoder of each type."""

    def __missing__(self, kind: type) -> Callable[[Any], str]:
        raise BackendError(f"expected a JSON value, got {kind.__name__}")


_ENCODERS = _Encoders(
    {
        str: quote,
        float: _encode_float,
        int: int.__repr__,
        dict: _encode_object,
        list: _encode_list,
        tuple: _encode_list,
        bool: json.dumps,
        NoneType: json.dumps,
    }
)


def parse_message(text: str | bytes, kinds: Kinds, *, sender: str, clock: float = -math.inf) -> Message:
    """Reads and checks a message, JSON in UTF-8, with events of :data:`FROM_BATSIM` or :data:`FROM_SCHEDULER`.

    `sender` is its name in errors, `clock` the time of the last message in seconds.

    Raises:
        BackendError: It is not JSON, lacks a key, has an unknown event, or time goes back in it.
    """
    raw = text.encode() if isinstance(text, str) else text
    try:
        content = _read(text)
    except (ValueError, RecursionError) as error:
        spoken = " of Batsim 3 or 4 (Batsim 5 speaks FlatBuffers)" if kinds is FROM_BATSIM else ""
        raise _fault(sender, f"expected JSON{spoken}, got {shown(raw)}: {error}") from None
    if type(content) is not dict or type(content.get("events")) is not list:
        raise _fault(sender, f"expected an object with 'now' and a list of 'events', got {shown(raw)}")
    now = content.get("now")
    if not _is_time(now):
        raise _fault(sender, f"now: expected a number of seconds, got {shown(now)}")
    if now < clock and now < earliest(clock):
        raise _fault(
            sender,
            f"now: expected at least {clock:.6f}, the time of the last message to it, got {now:.6f}: time goes back",
        )
    events = []
    clock = max(clock, -LATEST)
    for index, event in enumerate(content["events"]):
        # Valid events, nearly all, need no call of `_checked`.
        try:
            timestamp, kind, data = event["timestamp"], event["type"], event.get("data", {})
            sound = type(timestamp) is float and type(data) is dict and clock <= timestamp < LATEST
            for key, types in kinds[kind].items():
                # Parsed JSON has exactly these types; a bool is not a number.
                sound = sound and type(data[key]) in types
        except (TypeError, LookupError, AttributeError):
            sound = False
        if not sound:
            timestamp, kind, data = _checked(event, kinds, sender, index, clock if index else earliest(clock))
        clock = timestamp
        events.append(Event(timestamp, kind, data))
    if events and now < clock:
        raise _fault(sender, f"now: expected at least {clock:.6f}, its last timestamp, got {now:.6f}: time goes back")
    return Message(now, events)


def _read(text: str | bytes) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        # Python's parser accepts a little more and gives clearer errors.
        return json.loads(text if isinstance(text, str) else text.decode())


def _checked(event: Any, kinds: Kinds, sender: str, index: int, clock: float) -> Event:
    """Returns an event after all checks, each with an error of its own."""
    if type(event) is not dict:
        raise _fault(f"{sender}: events[{index}]", f"expected an object, got {shown(event)}")
    kind, timestamp, data = event.get("type"), event.get("timestamp"), event.get("data", {})
    expected = kinds.get(kind) if isinstance(kind, str) else None
    if not isinstance(kind, str) or expected is None:
        raise _fault(
            f"{sender}: events[{index}]",
            f"unknown event {shown(kind)}{nearest(str(kind), kinds)}; allowed: {', '.join(kinds)}",
        )
    where = f"{sender}: events[{index}] {kind}"
    if not _is_time(timestamp):
        raise _fault(where, f"timestamp: expected a number of seconds, got {shown(timestamp)}")
    if type(data) is not dict:
        raise _fault(where, f"data: expected an object, got {shown(data)}")
    for key, types in expected.items():
        if type(data.get(key)) not in types:
            raise _fault(where, f"data.{key}: expected {_NAMES[types]}, got {shown(data.get(key))}")
    if timestamp < clock:
        raise _fault(where, f"timestamp: expected at least {clock:.6f}, got {timestamp:.6f}: time goes back")
    return Event(timestamp, kind, data)


def earliest(clock: float) -> float:
    """Returns the least number that a peer may write for a time after rounding it a few times."""
    return clock - 4 * math.ulp(clock) if math.isfinite(clock) else clock


def _is_time(value: Any) -> TypeGuard[float]:
    # JSON has integers that a float cannot represent.
    return (type(value) is float or type(value) is int) and abs(value) < LATEST


def _fault(where: str, message: str) -> BackendError:
    return BackendError(message, where=where)


def parse_hosts(text: str, count: int) -> list[int]:
    """Returns the ids of :func:`hdsim.util.intervals.parse_interval_set`; BackendError for another text."""
    try:
        return parse_interval_set(text, count)
    except ValueError as error:
        raise BackendError(str(error)) from None


def split_job_id(job_id: str) -> tuple[str, str]:
    """Returns workload and own id of a job: ``w0!1`` -> ``w0``, ``1``; BackendError without a workload."""
    workload, separator, own = job_id.partition(SEPARATOR)
    if not (workload and separator and own):
        raise BackendError(f"expected a job id such as 'w0{SEPARATOR}1', got {shown(job_id)}")
    return workload, own
