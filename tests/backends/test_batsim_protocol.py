"""Messages of Batsim's protocol: recorded ones, made-up ones, malformed ones."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from procset import ProcSet

from hdsim.backends.batsim.protocol import (
    FROM_BATSIM,
    FROM_SCHEDULER,
    Event,
    encode,
    format_message,
    parse_hosts,
    parse_message,
    split_job_id,
)
from hdsim.errors import BackendError
from hdsim.util.intervals import format_interval_set

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(-1e15, 1e15) | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
    max_leaves=20,
)


def recorded(folder: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(folder.glob("transcript*.jsonl")):
        yield from map(json.loads, path.read_text().splitlines())


def test_recorded_messages_of_batsim_come_out_as_the_same_bytes(shared_data: Path) -> None:
    clock = 0.0
    for line in recorded(shared_data / "batsim_runs"):
        if line["dir"] == "batsim->scheduler":
            clock = 0.0 if line["n"] == 0 else clock
            message = parse_message(line["raw"], FROM_BATSIM, sender="Batsim", clock=clock)
            assert format_message(*message) == line["raw"]
            clock = message.now


def test_recorded_replies_of_a_scheduler_are_read(shared_data: Path) -> None:
    for line in recorded(shared_data / "batsim_runs"):
        if line["dir"] != "batsim->scheduler":
            message = parse_message(line["raw"].encode(), FROM_SCHEDULER, sender="the scheduler")
            assert [event._asdict() for event in message.events] == line["msg"]["events"]


def rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6f}")
    if isinstance(value, list):
        return [rounded(child) for child in value]
    if isinstance(value, dict):
        return {key: rounded(child) for key, child in value.items()}
    return value


@given(JSON)
@pytest.mark.ci
def test_values_are_json_with_six_decimals(value: Any) -> None:
    assert json.loads(encode(value)) == rounded(value)


@pytest.mark.parametrize("value", [math.nan, math.inf, {"a": [-math.inf]}, {1, 2}])
def test_values_that_are_not_json_are_refused(value: Any) -> None:
    with pytest.raises(BackendError, match=r"expected a (finite number|JSON value), got"):
        encode(value)


@given(st.sets(st.integers(0, 60)))
def test_interval_sets_agree_with_procset(hosts: set[int]) -> None:
    text = format_interval_set(sorted(hosts))
    assert text == str(ProcSet(*hosts))
    assert parse_hosts(text, 61) == sorted(hosts)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("0-1 1", "expected each host once"),
        ("2 2", "expected each host once"),
        ("4", "expected hosts from 0 to 3"),
        ("0-99999999999", "expected hosts from 0 to 3"),
        ("3-1", "expected hosts from 0 to 3"),
        ("-1", "expected hosts as in '0-3 8'"),
        ("1,2", "expected hosts as in '0-3 8'"),
        ("1.5", "expected hosts as in '0-3 8'"),
        ("a", "expected hosts as in '0-3 8'"),
    ],
)
def test_bad_interval_sets(text: str, complaint: str) -> None:
    with pytest.raises(BackendError, match=complaint):
        parse_hosts(text, 4)


def test_job_ids() -> None:
    assert split_job_id("w0!1") == ("w0", "1")
    assert split_job_id("w0!a!b") == ("w0", "a!b")
    for bad in ("1", "!1", "w0!", ""):
        with pytest.raises(BackendError, match="expected a job id such as 'w0!1'"):
            split_job_id(bad)


def reply(*events: dict[str, Any], now: Any = 5.0) -> str:
    return json.dumps({"now": now, "events": list(events)})


def event(kind: Any = "REJECT_JOB", timestamp: Any = 5.0, **data: Any) -> dict[str, Any]:
    return {"timestamp": timestamp, "type": kind, "data": data}


MALFORMED = {
    "not JSON": ("{now: 5}", "expected JSON, got {now: 5}"),
    "not UTF-8": (b"\xff\xfe", "expected JSON, got"),
    "empty": ("", "expected JSON, got"),
    "nested without end": ("[" * 100_000, "expected JSON, got"),
    "a list": ("[]", "expected an object with 'now' and a list of 'events', got []"),
    "no events": ('{"now": 5}', "expected an object with 'now' and a list of 'events'"),
    "no now": ('{"events": []}', "now: expected a number of seconds, got nothing"),
    "now is a text": (reply(now="5"), 'now: expected a number of seconds, got "5"'),
    "now is not finite": (reply(now=math.nan), "now: expected a number of seconds, got NaN"),
    "now is beyond floats": (
        '{"now": 1' + "0" * 400 + ', "events": []}',
        "now: expected a number of seconds, got 1000",
    ),
    "now is true": (reply(now=True), "now: expected a number of seconds, got true"),
    "time goes back": (
        reply(now=4.0),
        "now: expected at least 5.000000, the time of the last message to it, got 4.000000",
    ),
    "an event before now": (
        reply(event(timestamp=4, job_id="w0!1")),
        "events[0] REJECT_JOB: timestamp: expected at least 5.000000, got 4.000000: time goes back",
    ),
    "events out of order": (
        reply(event(timestamp=7, job_id="w0!1"), event(timestamp=6, job_id="w0!1"), now=8),
        "events[1] REJECT_JOB: timestamp: expected at least 7.000000, got 6.000000: time goes back",
    ),
    "now before its events": (reply(event(timestamp=7, job_id="w0!1")), "now: expected at least 7.000000, its last"),
    "an event is a text": (json.dumps({"now": 5, "events": ["x"]}), 'events[0]: expected an object, got "x"'),
    "unknown event": (
        reply(event("EXECUTE_JOBS")),
        "events[0]: unknown event \"EXECUTE_JOBS\" (did you mean 'EXECUTE_JOB'?); allowed: EXECUTE_JOB, REJECT_JOB",
    ),
    "no type": (reply({"timestamp": 5}), "events[0]: unknown event nothing"),
    "type is a list": (reply(event([])), "events[0]: unknown event []"),
    "no timestamp": (reply(event(timestamp=None)), "events[0] REJECT_JOB: timestamp: expected a number of seconds"),
    "data is a list": (
        reply({"timestamp": 5, "type": "REJECT_JOB", "data": []}),
        "events[0] REJECT_JOB: data: expected an object, got []",
    ),
    "missing key": (reply(event()), "events[0] REJECT_JOB: data.job_id: expected a text, got nothing"),
    "wrong type of a key": (
        reply(event("CALL_ME_LATER", timestamp_=1)),
        "events[0] CALL_ME_LATER: data.timestamp: expected a number, got nothing",
    ),
    "a number as id": (reply(event(job_id=1)), "events[0] REJECT_JOB: data.job_id: expected a text, got 1"),
}


@pytest.mark.parametrize(("text", "complaint"), MALFORMED.values(), ids=MALFORMED)
def test_malformed_messages_give_one_clear_error(text: str | bytes, complaint: str) -> None:
    with pytest.raises(BackendError) as caught:
        parse_message(text, FROM_SCHEDULER, sender="the scheduler", clock=5.0)
    assert str(caught.value).startswith("the scheduler: ")
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


@given(st.text() | st.binary() | JSON.map(json.dumps))
@pytest.mark.ci
def test_nothing_but_a_clear_error_comes_of_garbage(text: str | bytes) -> None:
    with pytest.raises(BackendError, match="the scheduler: "):
        parse_message(text, FROM_SCHEDULER, sender="the scheduler")


@given(JSON, st.sampled_from(sorted(FROM_SCHEDULER)))
def test_garbage_as_the_data_of_an_event(data: Any, kind: str) -> None:
    text = json.dumps({"now": 1, "events": [{"timestamp": 1, "type": kind, "data": data}]})
    try:
        message = parse_message(text, FROM_SCHEDULER, sender="the scheduler")
    except BackendError as error:
        assert f"events[0] {kind}" in str(error)
    else:
        assert message.events[0] == Event(1, kind, data)
