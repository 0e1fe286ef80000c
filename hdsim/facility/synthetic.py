"""Generated prices and carbon intensities, with daily, weekly and weather parts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np

from hdsim.errors import ConfigError
from hdsim.facility.dates import Dates
from hdsim.facility.series import autoregression
from hdsim.util.arrays import Floats
from hdsim.util.rules import is_finite
from hdsim.util.units import parse_duration

#: Most steps of a series.
_MOST_STEPS = 10_000_000
_HOUR, _DAY = 3600.0, 86400.0


def synthetic(settings: Mapping[str, Any], dates: Dates, until: float, seed: int, where: str) -> tuple[Floats, Floats]:
    """Draws a series: ``mean x max(floor, 1 + daily d(hour) + weekly w(day) + weather x(t))``.

    d = (cos(2 pi (h - 20) / 24) + cos(4 pi (h - 20) / 24)) / 2 of the local hour h, which is 1 at 20:00 and lowest in
    the early afternoon and at night; w is 2/7 from Monday to Friday and -5/7 at weekends; x is an Ornstein-Uhlenbeck
    process of deviation 1 that forgets within `memory`. Series of one seed have the same weather.

    Args:
        settings: `mean`, and of the mean the shares `daily`, `weekly` and `weather` (0 by default); `memory` (36h),
            `step` (1h), `floor` (none).
        dates: Dates of the run.
        until: Time in seconds that the series covers.
        seed: Seed.
        where: Key of the series, for messages.

    Returns:
        Begins in seconds since the first submission, from the begin of its year on, and values, (T,) each.

    Raises:
        ConfigError: A setting is not allowed.
    """
    begin = dates.required("a generated series")
    step = _seconds(settings, "step", _HOUR, where)
    memory = _seconds(settings, "memory", 36 * _HOUR, where, least=0.0)
    floor = settings.get("floor")
    if floor is not None and not is_finite(floor):
        raise ConfigError(f"expected a share of the mean or null, got {floor!r}", where=f"{where}.floor")
    year = datetime.fromtimestamp(begin, UTC).year
    first = datetime(year, 1, 1, tzinfo=UTC).timestamp()
    count = math.ceil((begin + until - first) / step) + 1
    if count > _MOST_STEPS:
        raise ConfigError(
            f"expected a step that makes at most {_MOST_STEPS:,} steps, got {count:,}", where=f"{where}.step"
        )
    times = first + step * np.arange(count, dtype=np.float64)
    hour, weekday = _local(times, dates)
    angle = 2 * np.pi * (hour - 20) / 24
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0, year)))
    weather = autoregression(rng, np.full(count, step), memory)
    share = {part: float(settings.get(part, 0.0)) for part in ("daily", "weekly", "weather")}
    relative = (
        1
        + share["daily"] * (np.cos(angle) + np.cos(2 * angle)) / 2
        + share["weekly"] * np.where(weekday < 5, 2 / 7, -5 / 7)
        + share["weather"] * weather
    )
    if floor is not None:
        relative = np.maximum(relative, floor)
    return times - begin, float(settings["mean"]) * relative


def _seconds(settings: Mapping[str, Any], key: str, default: float, where: str, least: float = 1.0) -> float:
    value = settings.get(key, default)
    try:
        seconds = parse_duration(value) if isinstance(value, str) else float(value)
    except (TypeError, ValueError):
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds >= least):
        raise ConfigError(
            f"expected at least {least:g} s, or a duration such as 1h, got {value!r}", where=f"{where}.{key}"
        )
    return seconds


def _local(times: Floats, dates: Dates) -> tuple[Floats, Floats]:
    """Hours of the day, 0..24, and days of the week, 0 for Monday, by local time; offsets are those of each hour."""
    zone = dates.zone
    offsets = np.zeros(len(times))
    if zone is not None:
        hours, place = np.unique(np.floor(times / _HOUR), return_inverse=True)
        known = [datetime.fromtimestamp(one * _HOUR, zone).utcoffset() for one in hours.tolist()]
        offsets = np.array([0.0 if one is None else one.total_seconds() for one in known])[place]
    local = times + offsets
    return local % _DAY / _HOUR, (np.floor(local / _DAY) + 3) % 7
