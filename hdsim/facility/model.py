"""A facility: power that the building takes for the power of the machine, and what its electricity costs and emits."""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hdsim.errors import ConfigError
from hdsim.facility.dates import Dates
from hdsim.facility.quantities import QUANTITIES
from hdsim.facility.series import KINDS, Series, Signal, make_series
from hdsim.facility.synthetic import synthetic
from hdsim.platform.schema import CORES
from hdsim.util.arrays import Floats
from hdsim.util.copies import itself
from hdsim.util.rules import NULL, POSITIVE, SEED, TEXT, check_keys, is_finite, require
from hdsim.util.units import JOULES_PER_KWH

if TYPE_CHECKING:
    from hdsim.platform.model import Platform
    from hdsim.workload.model import Workload

log = logging.getLogger(__name__)

#: Keys of the group ``facility``.
KEYS = (
    *("begin", "timezone", "pue", "temperature", "pue_by_temperature", "efficiency", "capacity"),
    *("price", "carbon", "seed"),
)
#: Keys that do not make a facility by themselves.
_BESIDE = ("begin", "timezone", "capacity", "seed")
#: Seconds after the last submission that generated series cover.
_BEYOND = 400 * 86400.0


@dataclass(frozen=True, eq=False)
class Curve:
    """A function that is linear between points and constant beyond the first and the last one.

    Attributes:
        at: (K,) ascending.
        values: (K,) values there.
    """

    at: Floats
    values: Floats

    @classmethod
    def of(cls, spec: Any, low: float, high: float, key: str) -> Curve:
        """Makes the curve of a number or of a list of pairs, whose values are from `low` to `high`.

        Raises:
            ConfigError: It is none of these.
        """
        pairs = [[0.0, spec]] if is_finite(spec) else spec
        known = isinstance(pairs, list | tuple) and len(pairs) > 0
        known = known and all(isinstance(one, list | tuple) and len(one) == 2 for one in pairs)
        known = known and all(is_finite(number) for one in pairs for number in one)
        at = [float(one[0]) for one in pairs] if known else []
        values = [float(one[1]) for one in pairs] if known else []
        good = known and all(a < b for a, b in itertools.pairwise(at))
        if not good or not all(low <= value <= high for value in values):
            span = f">= {low:g}" if high == math.inf else f"from {low:g} to {high:g}"
            raise ConfigError(
                f"expected a number {span}, or a table such as [[0, {max(low, 0.8):g}], [1, {max(low, 0.95):g}]] of "
                f"growing places with such numbers, got {spec!r}",
                where=f"facility.{key}",
            )
        return cls(np.array(at), np.array(values))

    def __call__(self, places: Floats) -> Floats:
        """Values at places, (N,)."""
        return np.interp(places, self.at, self.values)


@dataclass(frozen=True, eq=False)
class Facility:
    """Surroundings of the machine.

    Attributes:
        dates: Dates of the run.
        pue: Power of the building over the power that the rectifiers take, by load; None for 1.
        pue_by_temperature: The same by the outside temperature in degrees C; None for 1.
        temperature: Outside temperature, None without one.
        efficiency: Power of the machine over the power that its rectifiers take, by load; None for 1.
        capacity: Power of the machine in W at which the load is 1.
        price: Price in EUR/kWh, None without one.
        carbon: Carbon intensity in gCO2/kWh, None without one.
    """

    __deepcopy__ = itself

    dates: Dates
    pue: Curve | None
    pue_by_temperature: Curve | None
    temperature: Series | None
    efficiency: Curve | None
    capacity: float
    price: Series | None
    carbon: Series | None

    @classmethod
    def of(
        cls, settings: Mapping[str, Any] | None, platform: Platform, workload: Workload, seed: int
    ) -> Facility | None:
        """Makes the facility of the settings of the group ``facility``, None where they describe none.

        Args:
            settings: Values by key; missing keys and None are no settings.
            platform: The platform.
            workload: The jobs, whose header may have the date of their submission.
            seed: Seed of what is generated, unless the settings have one.

        Raises:
            ConfigError: A setting or a file cannot be used, or a series does not cover the submissions.
        """
        given = {key: value for key, value in (settings or {}).items() if value is not None}
        check_keys("facility", given, KEYS)
        if not set(given) - set(_BESIDE):
            if alone := next(iter(given), None):
                told = f"expected one of {', '.join(key for key in KEYS if key not in _BESIDE)} beside it, got none"
                raise ConfigError(told, where=f"facility.{alone}")
            return None
        if platform.kind != CORES:
            raise ConfigError(
                "expected a platform of kind cores: the power of parts of nodes is not known", where="facility"
            )
        rules = {"timezone": TEXT | NULL, "capacity": POSITIVE | NULL, "seed": SEED | NULL}
        require("facility", rules, given)
        if ("temperature" in given) != ("pue_by_temperature" in given) or ("pue" in given and "temperature" in given):
            told = "expected either pue, or pue_by_temperature and temperature together"
            raise ConfigError(told, where="facility")
        dates = Dates.of(given.get("begin"), given.get("timezone"), workload)
        last = float(workload.submission_time[-1]) if len(workload) else 0.0
        seed = int(given.get("seed", seed))
        series = {
            key: make_series(kind, given[key], dates, last + _BEYOND, seed, synthetic)
            for key, kind in KINDS.items()
            if key in given
        }
        for one in series.values():
            if not one.covers(0.0, last):
                raise ConfigError(_uncovered(one, last), where=f"facility.{one.kind.key}")
        curves = {
            key: Curve.of(given[key], low, high, key)
            for key, low, high in (
                ("pue", 1.0, math.inf),
                ("pue_by_temperature", 1.0, math.inf),
                ("efficiency", 0.01, 1.0),
            )
            if key in given
        }
        full = float(platform.power @ platform.cores_per_processor)
        if full == 0 and not platform.has_state_watts:
            log.warning("no core or node of %s draws power: energy, costs and emissions are 0", platform.name)
        return cls(
            dates,
            curves.get("pue"),
            curves.get("pue_by_temperature"),
            series.get("temperature"),
            curves.get("efficiency"),
            float(given.get("capacity", full)),
            series.get("price"),
            series.get("carbon"),
        )

    @property
    def series(self) -> tuple[Series, ...]:
        """All series."""
        return tuple(one for one in (self.temperature, self.price, self.carbon) if one is not None)

    def factor(self, times: Floats, watts: Floats) -> Floats:
        """Power that the building takes for each W of the machine.

        Args:
            times: (T,) s since the first submission.
            watts: (T,) power of the machine.

        Returns:
            (T,) ratios, at least 1; NaN where the temperature is not known.
        """
        load = watts / self.capacity if self.capacity > 0 else np.zeros(len(watts))
        factor = np.ones(len(watts))
        if self.efficiency is not None:
            factor = factor / self.efficiency(load)
        if self.pue is not None:
            factor = factor * self.pue(load)
        if self.pue_by_temperature is not None and self.temperature is not None:
            outside = self.temperature.at(times)
            factor = factor * np.where(np.isnan(outside), np.nan, self.pue_by_temperature(np.nan_to_num(outside)))
        return factor

    def weights(self, times: Floats, watts: Floats) -> Floats:
        """Amounts for each J of the machine: the rule by which all costs are integrals over time.

        Args:
            times: (T,) s since the first submission.
            watts: (T,) power of the machine.

        Returns:
            (4, T) amounts in the order of :data:`QUANTITIES`, NaN for those that are not known.
        """
        factor, unknown = self.factor(times, watts), np.full(len(times), np.nan)
        price, carbon = (unknown if one is None else one.at(times) for one in (self.price, self.carbon))
        return np.array([np.ones(len(factor)), factor, factor * price, factor * carbon]) / JOULES_PER_KWH

    def changes(self, begin: float, end: float) -> Floats:
        """Times (K,) in seconds, from one on and before another, at which a series changes or ends."""
        times = [np.append(one.begins, one.end) for one in self.series]
        return np.unique(np.concatenate([time[(time >= begin) & (time < end)] for time in (np.zeros(0), *times)]))

    def uncovered(self, end: float) -> list[str]:
        """Returns a line for each series that ends before a time in seconds."""
        return [_uncovered(one, end) for one in self.series if not one.covers(0.0, end)]


def _uncovered(series: Series, end: float) -> str:
    """Describes the period of a series and that of the run."""

    def date(seconds: float) -> str:
        return series.dates.local(seconds).isoformat(sep=" ", timespec="minutes")

    span = f"from {date(0.0)} to {date(end)}"
    return f"expected a series that covers the run {span}, got {series.source}: {_span(series, date)}"


def _span(series: Series, date: Any) -> str:
    return f"from {date(float(series.begins[0]))} to {date(series.end)}"


class Outlook:
    """A facility as a scheduler knows it at the present time of a cluster.

    Attributes:
        price: Price in EUR/kWh, None without one.
        carbon: Carbon intensity in gCO2/kWh, None without one.

    Args:
        facility: The facility.
        clock: Has the present time `now` in seconds.
    """

    def __init__(self, facility: Facility, clock: Any) -> None:
        self._facility, self._clock = facility, clock
        self.price = None if facility.price is None else Signal(facility.price, clock)
        self.carbon = None if facility.carbon is None else Signal(facility.carbon, clock)

    @property
    def dates(self) -> Dates:
        """Dates of the run."""
        return self._facility.dates

    def spent(self, begin: float, watts: float) -> Floats:
        """(4,) amounts, in the order of :data:`QUANTITIES`, from a time in seconds until now of a constant power in W.

        Those that are not known are NaN; all are 0 from a time that has yet to come.
        """
        now = self._clock.now
        if begin >= now:
            return np.zeros(len(QUANTITIES))
        times = np.union1d(begin, self._facility.changes(begin, now))
        constant = np.full(len(times), watts)
        return np.asarray(self._facility.weights(times, constant) @ (constant * np.diff(times, append=now)))

    def uncovered(self) -> list[str]:
        """Returns a line for each series that has ended by now."""
        return self._facility.uncovered(self._clock.now)

    def factor(self, watts: float) -> float:
        """Power that the facility takes at present for each W of the machine, if this draws `watts`."""
        return float(self._facility.factor(np.array([self._clock.now]), np.array([watts]))[0])
