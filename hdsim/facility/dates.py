"""Dates of a run: the instant of its time 0 and its time zone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, Any

from hdsim.errors import ConfigError
from hdsim.site.formats import time_zone
from hdsim.util.dates import finite, instant

if TYPE_CHECKING:
    from hdsim.workload.model import Workload

#: A clock of a trace that shows more, in seconds, counts from 1970: no trace has begun 20 years before its first job.
_SINCE_1970 = 20 * 365.25 * 86400.0
#: First and last year of the first submission; instant up to which there are local times.
_YEARS = 1900, 2999
_END = datetime(9999, 1, 1, tzinfo=UTC).timestamp()
#: Field of the header with the seconds since 1970 at second 0 of the clock of a trace.
_START = "UnixStartTime"


@dataclass(frozen=True)
class Dates:
    """Dates of a run.

    Attributes:
        begin: Instant of the first submission in seconds since 1970, None if it is not known.
        zone: Time zone of local times, None if it is not known.
    """

    begin: float | None
    zone: tzinfo | None

    @classmethod
    def of(cls, begin: str | float | None, zone: str | None, workload: Workload) -> Dates:
        """Returns the dates that settings give, else those that the header of a trace gives.

        The header has ``UnixStartTime`` (seconds since 1970 at second 0 of the clock of the trace, or at its first
        submission where the clock itself counts from 1970) and ``TimeZoneString``.

        Args:
            begin: Date of the first submission as for :func:`hdsim.util.dates.instant`, None for that of the trace.
            zone: Name of a time zone of the database of IANA, None for that of the trace.
            workload: The jobs.

        Raises:
            ConfigError: The begin is no date, a zone does not exist, or a local time has no zone.
        """
        header = {key.lower(): str(value).strip() for key, value in workload.header.items()}
        known: tzinfo | None = None
        if zone is not None:
            known = _zone(zone, "facility.timezone")
        elif header.get("timezonestring"):
            known = _zone(header["timezonestring"], f"{workload.source}: TimeZoneString")
        if begin is not None:
            try:
                return cls(_in_years(instant(str(begin), known)), known)
            except ValueError as error:
                raise ConfigError(str(error), where="facility.begin") from None
        if not len(workload):
            return cls(None, known)
        first, start = float(workload.original_submission_time[0]), finite(header.get(_START.lower(), ""))
        date = first if first >= _SINCE_1970 else start + first if start > 0 else None
        try:
            return cls(None if date is None else _in_years(date), known)
        except ValueError as error:
            raise ConfigError(str(error), where=f"{workload.source}: {_START}") from None

    def required(self, what: str) -> float:
        """Returns the begin.

        Raises:
            ConfigError: It is not known, and is needed for `what`.
        """
        if self.begin is None:
            raise ConfigError(
                f"expected the date of the first submission for {what}, such as 2026-03-02T00:00:00+01:00: the trace "
                "has none (UnixStartTime in its header)",
                where="facility.begin",
            )
        return self.begin

    def local(self, seconds: float) -> datetime:
        """Returns the local time, UTC without a zone, of seconds since the first submission, in year 9999 at most."""
        return datetime.fromtimestamp(min(self.required("local times") + seconds, _END), self.zone or UTC)

    def midnight_after(self, seconds: float, days: int) -> float:
        """Returns the seconds since the first submission of the begin of a local day, `days` after that of a time."""
        day = self.local(seconds).replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
        later = (day + timedelta(days=days)).replace(tzinfo=self.zone or UTC)
        return later.timestamp() - self.required("local times")


def dated(workload: Workload, settings: Mapping[str, Any]) -> Workload:
    """Returns the workload with the date of the settings of a facility in its header, so that its parts have their own.

    Without ``begin`` in the settings nothing changes.

    Raises:
        ConfigError: See :meth:`Dates.of`; or the clock of the trace counts from 1970, so that its parts have other
            dates.
    """
    if settings.get("begin") is None or not len(workload):
        return workload
    begin = Dates.of(settings["begin"], settings.get("timezone"), workload).required("its parts")
    first = float(workload.original_submission_time[0])
    if first >= _SINCE_1970:
        told = f"expected null with windows of {workload.source}, whose clock counts from 1970, got {settings['begin']}"
        raise ConfigError(told, where="facility.begin")
    header = {key: value for key, value in workload.header.items() if key.lower() != _START.lower()}
    return replace(workload, header={**header, _START: str(begin - first)})


def _in_years(begin: float) -> float:
    """Returns the instant of a first submission.

    Raises:
        ValueError: It is in no year in which the calendar holds for the whole run.
    """
    first, last = (datetime(year, 1, 1, tzinfo=UTC).timestamp() for year in (_YEARS[0], _YEARS[1] + 1))
    if not first <= begin < last:
        raise ValueError(f"expected a date from {_YEARS[0]} to {_YEARS[1]}, got {begin:.10g} seconds since 1970")
    return begin


def _zone(name: str, where: str) -> tzinfo:
    try:
        return time_zone(name)
    except ConfigError as error:
        raise ConfigError(error.message, where=where) from None
