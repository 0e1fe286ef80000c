"""Local times of a zone, of which one hour a year occurs twice and another one not at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl

from hdsim.errors import ConfigError
from hdsim.util.arrays import Flags, Floats, Ints

#: Seconds that End - Start and Elapsed may differ and still agree.
_CLOCK = 120.0
#: Words for no time.
NO_TIME = ("", "Unknown", "None", "N/A", "NONE", "INVALID")
#: Seconds since 1970 below which a time is one that was never set.
_NEVER = 2 * 86_400


@dataclass
class LocalTimes:
    """Times in seconds since 1970, NaN for none: the first and the second instant that a local time may be."""

    first: Floats
    second: Floats
    unreadable: Flags  # texts that are no times
    missing: Flags  # times that the clock passed over, taken as an hour later

    @property
    def doubtful(self) -> Flags:
        """Which times have two instants."""
        return self.second > self.first


def read_times(texts: pl.Series, zone: str) -> LocalTimes:
    """Reads times such as ``2026-03-02T00:24:35``, also with an offset such as ``+0100``, or seconds since 1970.

    Raises:
        ConfigError: There is no such time zone.
    """
    clean = texts.cast(pl.String).str.strip_chars().str.replace(" ", "T", literal=True)
    given = (clean.is_not_null() & ~clean.is_in(NO_TIME)).fill_null(False)
    local = clean.str.to_datetime("%Y-%m-%dT%H:%M:%S", strict=False, time_unit="us")
    try:
        first, second = (_instants(local, zone, which) for which in ("earliest", "latest"))
    except pl.exceptions.ComputeError:
        expected = "expected a time zone of the database of IANA such as Europe/Berlin or UTC"
        raise ConfigError(f"{expected}, got '{zone}'", where="timezone") from None
    missing = local.is_not_null() & first.is_null()
    if missing.any():
        later = _instants(local.dt.offset_by("1h"), zone, "earliest")
        first, second = first.fill_null(later), second.fill_null(later)
    if (given & first.is_null()).any():
        frame = clean.to_frame("text")
        number = pl.when(pl.col("text").str.contains(r"^\d{1,12}$")).then("text").cast(pl.Float64, strict=False)
        offset = pl.col("text").str.to_datetime("%Y-%m-%dT%H:%M:%S%z", strict=False, time_unit="us").dt.epoch("s")
        other = frame.select(pl.coalesce(number, offset.cast(pl.Float64))).to_series()
        first, second = first.fill_null(other), second.fill_null(other)
    unreadable = given & first.is_null()
    earliest, latest = (one.fill_null(np.nan).to_numpy().copy() for one in (first, second))
    earliest[earliest < _NEVER] = latest[latest < _NEVER] = np.nan
    return LocalTimes(earliest, latest, unreadable.to_numpy(), missing.to_numpy())


def _instants(local: pl.Series, zone: str, which: Literal["earliest", "latest"]) -> pl.Series:
    """Seconds since 1970 of local times, null for those that the clock passed over."""
    zoned = local.dt.replace_time_zone(zone, ambiguous=which, non_existent="null")
    return zoned.dt.epoch("s").cast(pl.Float64)


def decide(times: Mapping[str, LocalTimes], lasted: Floats, number: Ints) -> tuple[dict[str, Floats], Flags, Flags]:
    """Returns instants for the times of jobs, and which jobs have a time that was decided and one that was not.

    A start and an end are those between which the job lasted as long as recorded; a submission in the order of job
    numbers; other times are the first ones that are not before the submission.

    Args:
        times: Those of ``submit``, ``eligible``, ``start`` and ``end``, (R,) each.
        lasted: (R,) seconds from start to end, NaN if unknown.
        number: (R,) numbers of the jobs, which ascend with the first submission.
    """
    made = {name: one.first.copy() for name, one in times.items()}
    doubtful = {name: one.doubtful for name, one in times.items()}
    some = np.logical_or.reduce(list(doubtful.values()))
    open_ones = np.zeros(len(lasted), np.bool_)
    if not some.any():
        return made, some, open_ones
    submit = times["submit"]
    second, known = _by_number(submit, number)
    made["submit"][second] = submit.second[second]
    open_ones |= doubtful["submit"] & ~known
    start, end = times["start"], times["end"]
    fits = np.array(
        [
            np.abs((at_end - at_start) - lasted) <= _CLOCK
            for at_start, at_end in ((start.first, end.first), (start.first, end.second), (start.second, end.second))
        ]
    )
    later = {"start": np.array([0, 0, 1], np.bool_), "end": np.array([0, 1, 1], np.bool_)}
    # The choices that agree with the time that the job lasted; of several, the first whose start is no earlier than
    # the submission.
    order = np.argmax(fits & ~((np.array([0, 0, 1])[:, None] == 0) & (start.first < made["submit"])), axis=0)
    order = np.where(fits.any(axis=0), order, np.argmax(fits, axis=0))
    for name, one in (("start", start), ("end", end)):
        chosen = later[name][order] & doubtful[name] & fits.any(axis=0)
        made[name][chosen] = one.second[chosen]
        alone = fits.sum(axis=0) == 1
        both = fits[0] & fits[2] & (start.first >= made["submit"])
        open_ones |= doubtful[name] & ~alone & (both | ~fits.any(axis=0))
    for name in ("eligible", "start", "end"):
        early = doubtful[name] & (made[name] < made["submit"])
        made[name][early] = times[name].second[early]
    return made, some & ~open_ones, some & open_ones


def _by_number(submit: LocalTimes, number: Ints) -> tuple[Flags, Flags]:
    """Returns which doubtful submissions are in the second hour, and of which that is known.

    In the order of their numbers the local times of submissions go back once, where the second hour begins.
    """
    second, known = np.zeros(len(number), np.bool_), np.zeros(len(number), np.bool_)
    rows = np.flatnonzero(submit.doubtful)
    # Each year has its own hour.
    for day in np.unique(submit.first[rows] // 86_400):
        listed = rows[submit.first[rows] // 86_400 == day]
        listed = listed[np.argsort(number[listed], kind="stable")]
        back = -np.diff(submit.first[listed])
        if len(back) and back.max() > _CLOCK:
            second[listed[int(np.argmax(back)) + 1 :]] = True
            known[listed] = True
    return second, known
