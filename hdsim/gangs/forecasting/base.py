"""Forecasters: their interface, the naive ones, and their mean."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hdsim.errors import ConfigError, nearest
from hdsim.gangs.forecasting.series import Series
from hdsim.util.arrays import Floats, Ints
from hdsim.util.plugins import PluginType, snake_case
from hdsim.util.rules import TEXTS, require


class Forecaster(ABC):
    """Base class of forecasters. The settings of the group ``forecaster`` are keyword arguments of the constructor."""

    def fit(self, past: Sequence[Series], columns: int, seed: int) -> None:
        """Fits all series.

        Args:
            past: Series without the values that are to be forecast.
            columns: Number F of values to forecast.
            seed: Seed of whatever the forecaster draws.
        """
        self.columns = columns

    @abstractmethod
    def predict(self, number: int, series: Series, origins: Ints) -> Floats:
        """Forecasts one series.

        Args:
            number: Place of the series in `past` of `fit`.
            series: The series up to the last origin.
            origins: (R,) places of the first value of each forecast, in a row; only values before it may be used.

        Returns:
            (R, F) forecasts of the value at each origin and of those after it.
        """

    def ahead(self, origins: Ints) -> Ints:
        """(R, F) places of the values to forecast."""
        return np.asarray(origins)[:, None] + np.arange(self.columns)


class Persistence(Forecaster):
    """The latest value."""

    def predict(self, number: int, series: Series, origins: Ints) -> Floats:
        """Repeats the value before each origin."""
        return np.repeat(series.values[origins - 1][:, None], self.columns, axis=1)


class SeasonalNaive(Forecaster):
    """The latest value of the same time of the day."""

    def predict(self, number: int, series: Series, origins: Ints) -> Floats:
        """Repeats the values of the day before each origin."""
        days = np.arange(self.columns) // series.period + 1
        return series.values[self.ahead(origins) - days * series.period]


class Ensemble(Forecaster):
    """The mean of other forecasters by their names."""

    def __init__(self, members: Sequence[str] = ("ridge", "trees")) -> None:
        members = list(members)
        require("forecaster", {"members": TEXTS}, {"members": members})
        if not members or "ensemble" in members:
            raise ConfigError(f"expected names of other forecasters, got {members}", where="forecaster.members")
        for name in members:
            by_name(name, "forecaster.members")
        self.members = members

    def fit(self, past: Sequence[Series], columns: int, seed: int) -> None:
        """Fits every member."""
        self._fitted = [by_name(name, "forecaster.members") for name in self.members]
        for member in self._fitted:
            member.fit(past, columns, seed)

    def predict(self, number: int, series: Series, origins: Ints) -> Floats:
        """Means of the members' forecasts."""
        return np.mean([member.predict(number, series, origins) for member in self._fitted], axis=0)


_PACKAGE = __name__.rpartition(".")[0]
#: Names of forecasters, and their classes.
FORECASTERS = {
    snake_case(target.rpartition(".")[2]): f"{_PACKAGE}.{target}"
    for target in (
        "base.Persistence",
        "base.SeasonalNaive",
        "base.Ensemble",
        "pooled.Ridge",
        "trees.Trees",
        "statistical.Autoets",
        "statistical.Autoarima",
        "neural.Lstm",
        "neural.Tcn",
    )
}
_KIND = PluginType("forecaster", Forecaster, "hdsim.gangs.forecasting.base.Forecaster")


def make_forecaster(spec: Mapping[str, Any]) -> Forecaster:
    """Makes a forecaster from ``path`` (a Python file with one subclass) or ``_target_``, and its settings.

    Raises:
        ConfigError: The class cannot be found or does not take the settings.
    """
    return _KIND.make(spec)


def by_name(name: str, where: str) -> Forecaster:
    """Makes a forecaster with default settings; ConfigError without one of that name, or without its package."""
    if name not in FORECASTERS:
        message = f"expected forecasters out of {', '.join(FORECASTERS)}, got '{name}'{nearest(name, FORECASTERS)}"
        raise ConfigError(message, where=where)
    return make_forecaster({"_target_": FORECASTERS[name]})
