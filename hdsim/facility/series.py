"""Series of prices, carbon intensities and temperatures: step functions on the clock of a run, with their forecasts."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, tzinfo
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from hdsim.errors import ConfigError, nearest, not_one_of
from hdsim.facility.dates import Dates
from hdsim.util.arrays import Floats, read_only
from hdsim.util.copies import itself
from hdsim.util.dates import instant, second_instant
from hdsim.util.inputs import read_csv
from hdsim.util.plugins import optional
from hdsim.util.rules import NOT_NEGATIVE, NULL, POSITIVE, SEED, TEXT, check_keys, is_finite, numbers_between, require
from hdsim.util.text import number_in
from hdsim.util.units import parse_duration

log = logging.getLogger(__name__)

#: Horizon of a market whose prices of a day are known from 13:00 local time of the day before.
DAY_AHEAD = "day_ahead"
_PUBLISHED = 13
#: Seconds in which the correlation of the errors of a forecast falls to 1/e.
_ERROR_MEMORY = 6 * 3600.0
#: Ratio of a step to the median beyond which there is a warning: rows may be missing.
_LONG_STEP = 3.0
#: Mean price in EUR/kWh beyond which there is a warning: its unit may be another one.
_HIGH_PRICE = 5.0


@dataclass(frozen=True, eq=False)
class Kind:
    """A kind of series.

    Attributes:
        key: Key of the configuration.
        unit: Unit of the values.
        units: Units of files, as factors to `unit`.
        least: Smallest value.
        stream: Number of its random stream.
    """

    key: str
    unit: str
    units: Mapping[str, float]
    least: float
    stream: int


KINDS = {
    kind.key: kind
    for kind in (
        Kind("price", "EUR/kWh", {"EUR/kWh": 1.0, "EUR/MWh": 1e-3, "ct/kWh": 1e-2}, -math.inf, 1),
        Kind("carbon", "gCO2/kWh", {"gCO2/kWh": 1.0, "kgCO2/MWh": 1.0, "kgCO2/kWh": 1e3}, 0.0, 2),
        Kind("temperature", "C", {"C": 1.0}, -273.15, 3),
    )
}


@dataclass(frozen=True, eq=False)
class Series:
    """A step function of time, not defined before its first step and after its end.

    Attributes:
        kind: Kind.
        begins: (T,) s since the first submission, ascending; each value holds until the next one.
        values: (T,) in the unit of the kind.
        end: End of the last step in seconds, infinite for a constant.
        forecasts: (T,) values that are expected before a step has begun.
        horizon: Seconds for which forecasts look ahead, or `DAY_AHEAD`.
        dates: Dates of the run.
        source: File or key of the series, for messages.
    """

    __deepcopy__ = itself

    kind: Kind
    begins: Floats
    values: Floats
    end: float
    forecasts: Floats
    horizon: float | str
    dates: Dates
    source: str

    @classmethod
    def constant(cls, kind: Kind, value: float, dates: Dates) -> Series:
        """Makes a series of one value that is known for all times."""
        values = read_only(np.array([value]))
        return cls(kind, read_only(np.zeros(1)), values, math.inf, values, math.inf, dates, f"facility.{kind.key}")

    def at(self, times: Floats) -> Floats:
        """Values at times (N,) in seconds, NaN where the series is not defined."""
        step = np.searchsorted(self.begins, times, side="right") - 1
        return np.where((step >= 0) & (times < self.end), self.values[np.maximum(step, 0)], np.nan)

    def integral(self, begin: Floats, end: Floats) -> Floats:
        """Integrals (N,) of the values from `begin` to `end`, (N,) s; NaN where the series is not defined."""
        return _integral(self, self._sums[0], begin, end)

    def expected(self, begin: Floats, end: Floats) -> Floats:
        """The same of the forecasts."""
        return _integral(self, self._sums[1], begin, end)

    def known_until(self, now: float) -> float:
        """Returns until when, in seconds, forecasts are known at a time."""
        if self.horizon == DAY_AHEAD:
            days = 2 if self.dates.local(now).hour >= _PUBLISHED else 1
            return min(self.dates.midnight_after(now, days), self.end)
        return min(now + float(self.horizon), self.end)

    def covers(self, begin: float, end: float) -> bool:
        """Whether the series is defined from a time to another one, in seconds."""
        return float(self.begins[0]) <= begin and end <= self.end

    @cached_property
    def _sums(self) -> tuple[Floats, Floats]:
        """Integrals of the values and of the forecasts until the begin of each step, and until the end."""
        seconds = np.diff(self.begins, append=self.end if self.end < math.inf else self.begins[-1])
        return _sums(self.values * seconds), _sums(self.forecasts * seconds)


def _sums(parts: Floats) -> Floats:
    return np.append(0.0, np.cumsum(parts))


def _integral(series: Series, sums: Floats, begin: Floats, end: Floats) -> Floats:
    if series.end == math.inf:
        return np.asarray(series.values[0] * (end - begin))
    knots = np.append(series.begins, series.end)
    upper, lower = (np.interp(times, knots, sums, left=np.nan, right=np.nan) for times in (end, begin))
    return np.asarray(upper - lower)


class Signal:
    """A series as it is known at the present time of a cluster: its present value, and forecasts within the horizon.

    Args:
        series: The series.
        clock: Has the present time `now` in seconds.
    """

    def __init__(self, series: Series, clock: Any) -> None:
        self._series, self._clock = series, clock

    @property
    def unit(self) -> str:
        """Unit of the values."""
        return self._series.kind.unit

    @property
    def value(self) -> float:
        """The present value, NaN after the end of the series."""
        return float(self._series.at(np.array([self._clock.now]))[0])

    @property
    def known_until(self) -> float:
        """Time in seconds until which forecasts are known."""
        return self._series.known_until(self._clock.now)

    def changes(self) -> Floats:
        """Times (K,) in seconds, later than now, at which the value changes within the horizon."""
        begins = self._series.begins
        first, last = np.searchsorted(begins, [self._clock.now, self.known_until], side="right")
        return begins[first:last].copy()

    def integral(self) -> tuple[Floats, Floats]:
        """Returns now, the changes to come and the end of the horizon, (K,) s, and integrals expected until each.

        The present step counts with its value, later ones with their forecasts. Nothing is known after the end.
        """
        series, now, changes = self._series, self._clock.now, self.changes()
        known = self.known_until
        if not now < known < math.inf:
            return np.array([now]), np.zeros(1)
        place = int(np.searchsorted(series.begins, now, side="right"))
        knots = np.concatenate([[now], changes, [known]])
        values = np.append(self.value, series.forecasts[place : place + len(changes)])
        sums = _sums(values * np.diff(knots))
        whole = np.append(True, np.diff(knots) > 0)
        return knots[whole], sums[whole]

    def mean(self, begin: Floats, end: Floats) -> Floats:
        """Expected means (N,) from times to later ones, (N,) s, of at least now; NaN beyond the horizon.

        The present step counts with its value, later ones with their forecasts.
        """
        series, now = self._series, self._clock.now
        place = int(np.searchsorted(series.begins, now, side="right"))
        changes = float(series.begins[place]) if place < len(series.begins) else series.end
        first, last = np.minimum(begin, changes), np.minimum(end, changes)
        later = series.expected(np.maximum(begin, changes), np.maximum(end, changes)) if changes < math.inf else 0.0
        inside = (begin >= now) & (end <= self.known_until)
        # A mean within the present step has no other part, even at the end of the series.
        later = np.where(end > changes, later, 0.0)
        total = self.value * (last - first) + later
        return np.where(inside & (end > begin), total / np.where(end > begin, end - begin, 1.0), np.nan)


#: Seconds of a year, and those of submissions for which windows are listed.
_YEAR = 365.25 * 86400.0
_LONGEST_WINDOWS = 100 * _YEAR
#: Windows of the week in which jobs may be put off to.
WINDOWS = ("night", "weekend")


def window_series(name: str, dates: Dates, last: float) -> Series:
    """Returns a series that is 0 in a window and 1 outside, known at all times, until 60 days after a time in seconds.

    The night is from 22:00 to 6:00 and the weekend Saturday and Sunday, by local time.

    Raises:
        ConfigError: The date of the run is not known, or jobs are submitted for more than a hundred years.
    """
    dates.required(f"the {name}")
    if last > _LONGEST_WINDOWS:
        told = f"expected submissions of at most 100 years with agent.defer={name}, got {last / _YEAR:,.0f} years"
        raise ConfigError(told, where="agent.defer")
    begins, values, at, end = [0.0], [_in_window(name, dates, 0.0)], 0.0, last + 60 * 86400.0
    while at < end:
        # The next full local hour.
        local = dates.local(at)
        at += 3600.0 - (local.minute * 60 + local.second + local.microsecond / 1e6)
        value = _in_window(name, dates, at)
        if value != values[-1]:
            begins.append(at)
            values.append(value)
    array = read_only(np.array(values))
    kind = Kind(name, "", {}, 0.0, 0)
    return Series(kind, read_only(np.array(begins)), array, end, array, end, dates, name)


def _in_window(name: str, dates: Dates, at: float) -> float:
    local = dates.local(at)
    inside = local.weekday() >= 5 if name == "weekend" else local.hour >= 22 or local.hour < 6
    return 0.0 if inside else 1.0


_FILE_KEYS = ("path", "time", "column", "unit", "forecast")
_MODEL_KEYS = ("mean", "daily", "weekly", "weather", "memory", "step", "floor")
_COMMON_KEYS = ("horizon", "error", "seed")
_SHARE = numbers_between(0, 10)


def make_series(
    kind: Kind, spec: Any, dates: Dates, until: float, seed: int, synthetic: Callable[..., tuple[Floats, Floats]]
) -> Series:
    """Makes the series that a key of the configuration describes.

    Args:
        kind: Kind.
        spec: A number, a file, settings with `path`, or settings of the generator with `mean`.
        dates: Dates of the run.
        until: Time in seconds that a generated series covers at least.
        seed: Seed of a generated series and of errors, unless the settings have one.
        synthetic: Generator: takes the settings, the dates, the last time, the seed and the key of the series; returns
            begins and values.

    Raises:
        ConfigError: The settings or the file cannot be used.
    """
    where = f"facility.{kind.key}"
    if is_finite(spec):
        return Series.constant(kind, _checked(kind, float(spec), where), dates)
    settings = {"path": spec} if isinstance(spec, str) else spec
    if not isinstance(settings, Mapping) or ("path" in settings) == ("mean" in settings):
        raise ConfigError(
            f"expected a number in {kind.unit}, a file, or settings with either path or mean, got {spec!r}", where=where
        )
    check_keys(where, settings, (*(_FILE_KEYS if "path" in settings else _MODEL_KEYS), *_COMMON_KEYS))
    rules = {
        **dict.fromkeys(("path", "time", "column", "unit", "forecast"), TEXT | NULL),
        **dict.fromkeys(("daily", "weekly", "weather"), _SHARE),
        "mean": POSITIVE,
        "error": NOT_NEGATIVE,
        "seed": SEED | NULL,
    }
    require(where, rules, settings)
    given = settings.get("seed")
    seed = seed if given is None else int(given)
    horizon = _horizon(settings.get("horizon", "24h"), f"{where}.horizon")
    if "mean" in settings:
        begins, values = synthetic(settings, dates, until, seed, where)
        values = np.maximum(values, kind.least)
        forecasts, source, end = values, where, float(2 * begins[-1] - begins[-2])
    else:
        begins, values, forecasts, end = _of_file(kind, settings, dates, where)
        source = str(settings["path"])
    made = Series(kind, read_only(begins), read_only(values), end, forecasts, horizon, dates, source)
    if (error := float(settings.get("error", 0.0))) > 0:
        made = replace(made, forecasts=np.maximum(made.forecasts + _errors(made, error, seed), kind.least))
    read_only(made.forecasts)
    return made


def _checked(kind: Kind, value: float, where: str) -> float:
    if value < kind.least:
        raise ConfigError(f"expected a number >= {kind.least:g} {kind.unit}, got {value:g}", where=where)
    return value


def _horizon(value: Any, where: str) -> float | str:
    if value == DAY_AHEAD:
        return DAY_AHEAD
    if isinstance(value, str):
        try:
            return parse_duration(value)
        except ValueError as error:
            raise ConfigError(f"{error}; or {DAY_AHEAD}", where=where) from None
    if not is_finite(value) or value < 0:
        raise ConfigError(f"expected seconds >= 0, a duration such as 24h, or {DAY_AHEAD}, got {value!r}", where=where)
    return float(value)


def _errors(series: Series, error: float, seed: int) -> Floats:
    """(T,) errors of forecasts: an autoregression whose deviation is a share of the mean absolute value."""
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(series.kind.stream, 1)))
    seconds = np.diff(series.begins, append=series.end)
    deviation = error * float(np.abs(series.values) @ seconds / seconds.sum())
    return deviation * autoregression(rng, seconds, _ERROR_MEMORY)


def autoregression(rng: np.random.Generator, seconds: Floats, memory: float) -> Floats:
    """Draws an Ornstein-Uhlenbeck process of mean 0 and deviation 1 at the begins of steps.

    Args:
        rng: Source of the draws.
        seconds: (T,) lengths of the steps.
        memory: Seconds in which the correlation falls to 1/e; 0 for independent values.
    """
    noise = rng.standard_normal(len(seconds)).tolist()
    kept = np.exp(-seconds / memory) if memory > 0 else np.zeros(len(seconds))
    drawn = np.sqrt(1 - kept**2).tolist()
    state, states = noise[0], []
    for keep, draw, one in zip([0.0, *kept.tolist()], [1.0, *drawn], noise, strict=False):
        state = keep * state + draw * one
        states.append(state)
    return np.array(states)


def _of_file(kind: Kind, settings: Mapping[str, Any], dates: Dates, where: str) -> tuple[Floats, Floats, Floats, float]:
    """Begins, values, forecasts and the end of the series in a file."""
    unit = settings.get("unit") or kind.unit
    if unit not in kind.units:
        raise ConfigError(not_one_of(unit, kind.units), where=f"{where}.unit")
    begin = dates.required(f"the dates of {settings['path']}")
    path = Path(str(settings["path"]))
    try:
        status = path.stat()
    except OSError as error:
        raise ConfigError(f"expected a file with a series: {error.strerror}, got '{path}'", where=where) from None
    version = status.st_mtime_ns, status.st_size
    names = tuple(settings.get(name) for name in ("time", "column", "forecast"))
    times, values, forecasts = _read(path, version, names, kind.units[unit], dates.zone, kind, where)
    begins = times - begin
    return begins, values.copy(), forecasts.copy(), float(2 * begins[-1] - begins[-2])


@lru_cache(maxsize=8)
def _read(
    path: Path,
    version: tuple[int, int],
    names: tuple[str | None, str | None, str | None],
    factor: float,
    zone: tzinfo | None,
    kind: Kind,
    where: str,
) -> tuple[Floats, Floats, Floats]:
    """Times in seconds since 1970, values times a factor and forecasts of the columns `names`; warnings come once."""
    header, columns, place = _parquet(path) if path.suffix == ".parquet" else _csv(path)
    if header and _is_date(header[0]):
        told = f"expected a header such as time,{kind.key}, got '{','.join(header)}'"
        raise ConfigError(told, where=str(path))
    chosen = _chosen(header, names, kind, where)
    texts = [columns[header.index(name)] for name in chosen]
    if len(texts[0]) < 2:
        raise ConfigError(f"expected at least two rows, got {len(texts[0])}", where=str(path))
    times = _times(texts[0], zone, place)
    values, *others = (
        np.array([_value(text, kind, place(row), name) for row, text in enumerate(column)])
        for name, column in zip(chosen[1:], texts[1:], strict=True)
    )
    steps = np.diff(times)
    longest = int(np.argmax(steps))
    if steps[longest] > _LONG_STEP * np.median(steps):
        told = "%s: a step of %g h among steps of %g h; rows may be missing"
        log.warning(told, place(longest), steps[longest] / 3600, float(np.median(steps)) / 3600)
    values *= factor
    mean = float(np.mean(np.abs(values)))
    if kind.key == "price" and mean > _HIGH_PRICE:
        log.warning("%s: the mean price is %.4g EUR/kWh; a unit is given by %s.unit=EUR/MWh", path, mean, where)
    return times, values, others[0] * factor if others else values


def _csv(path: Path) -> tuple[list[str], list[Sequence[Any]], Callable[[int], str]]:
    header, rows = read_csv(path, ConfigError, "file")
    columns: list[Sequence[Any]] = [[row[i] for row in rows] for i in range(len(header))]
    return [name.strip() for name in header], columns, lambda row: f"{path}:{row + 2}"


def _parquet(path: Path) -> tuple[list[str], list[Sequence[Any]], Callable[[int], str]]:
    pl = optional("polars")
    try:
        frame = pl.read_parquet(path)
    except (pl.exceptions.PolarsError, OSError) as error:
        text = " ".join(str(error).split())[:200]
        raise ConfigError(f"expected a complete Parquet file: {text}", where=str(path)) from None
    columns: list[Sequence[Any]] = []
    for series in frame.get_columns():
        if isinstance(series.dtype, pl.Datetime):
            # With a zone these are instants, without local times.
            known = series.dtype.time_zone is not None
            columns.append((series.dt.epoch("us") / 1e6).to_list() if known else series.dt.to_string("iso").to_list())
        else:
            columns.append(series.to_list())
    return list(frame.columns), columns, lambda row: f"{path}: row {row + 1}"


def _chosen(header: list[str], names: tuple[str | None, str | None, str | None], kind: Kind, where: str) -> list[str]:
    """Columns of the times, of the values and, where it is named, of the forecasts."""
    time, column, forecast = names
    time = time or (header[0] if header else "")
    others = [name for name in header if name not in (time, forecast)]
    if column is None:
        usual = [name for name in (kind.key, "value") if name in others]
        if not usual and len(others) != 1:
            told = f"expected {where}.column, the column of the values: one of {', '.join(others) or 'none'}"
            raise ConfigError(told, where=where)
        column = usual[0] if usual else others[0]
    for key, name in (("time", time), ("column", column), ("forecast", forecast)):
        if name is not None and name not in header:
            told = f"expected one of {', '.join(header)}, got '{name}'{nearest(name, header)}"
            raise ConfigError(told, where=f"{where}.{key}")
    return [time, column, *([] if forecast is None else [forecast])]


def _times(texts: Sequence[Any], zone: tzinfo | None, place: Callable[[int], str]) -> Floats:
    """Instants of ascending times; of local times that occur twice the second one where the order says so."""
    found: list[float] = []
    before = -math.inf
    for row, text in enumerate(texts):
        try:
            at = instant(str(text), zone)
            if at <= before:
                at = second_instant(str(text), zone)
        except ValueError as error:
            raise ConfigError(str(error), where=place(row)) from None
        if at <= before:
            raise ConfigError(f"expected a later time than in the row before, got '{text}'", where=place(row))
        found.append(at)
        before = at
    return np.array(found)


def _is_date(text: str) -> bool:
    try:
        instant(text, UTC)
    except ValueError:
        return False
    return True


def _value(text: Any, kind: Kind, where: str, name: str) -> float:
    try:
        number = math.nan if text is None else number_in(text) if isinstance(text, str) else float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or number < kind.least:
        least = f" >= {kind.least:g}" if kind.least > -math.inf else ""
        raise ConfigError(f"{name}: expected a number{least}, got '{'' if text is None else text}'", where=where)
    return number
