"""Texts of dates as seconds since 1970."""

from __future__ import annotations

import math
from datetime import UTC, datetime, tzinfo

#: Numbers that are seconds since 1970; others, such as 20260302, are dates or nothing.
_EARLIEST, _LATEST = 1e8, 1e11


def instant(text: str, zone: tzinfo | None) -> float:
    """Returns the seconds since 1970 of a date; of a local time that occurs twice the first.

    Args:
        text: ``2026-03-02T00:24:35``, with a blank in place of T, without seconds or hours, or with an offset such as
            ``+01:00`` or Z at its end; or seconds since 1970.
        zone: Zone of a time without an offset.

    Raises:
        ValueError: The text is no date, has neither an offset nor a zone, or is a time that the clock passed over.
    """
    if _EARLIEST <= (number := finite(text)) <= _LATEST:
        return number
    try:
        date = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(
            f"expected a date such as 2026-03-02T00:24:35 or seconds since 1970, got '{text[:40]}'"
        ) from None
    if date.tzinfo is None:
        if zone is None:
            raise ValueError(
                f"expected facility.timezone, such as Europe/Berlin, or an offset such as +01:00, for the local time "
                f"'{text[:40]}'"
            )
        local, date = date, date.replace(tzinfo=zone)
        try:
            exists = date.astimezone(UTC).astimezone(zone).replace(tzinfo=None) == local
        except OverflowError:  # in year 1 or 9999
            raise ValueError(f"expected a date of this millennium, got '{text[:40]}'") from None
        if not exists:
            raise ValueError(f"expected a local time, got '{text[:40]}', which the clock passed over")
    return date.timestamp()


def second_instant(text: str, zone: tzinfo | None) -> float:
    """Returns the second instant of a local time that occurs twice, and otherwise the only one."""
    first = instant(text, zone)
    if _EARLIEST <= finite(text) <= _LATEST:
        return first
    date = datetime.fromisoformat(text.strip())
    return first if date.tzinfo is not None else date.replace(tzinfo=zone, fold=1).timestamp()


def finite(text: str) -> float:
    """Returns a finite number of a text, NaN for another text."""
    try:
        number = float(text)
    except ValueError:
        return math.nan
    return number if math.isfinite(number) else math.nan
