"""Exponential smoothing and ARIMA models (statsforecast) of what the time of the day does not explain."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from statsforecast.models import AutoARIMA, AutoETS

from hdsim.gangs.forecasting.base import Forecaster
from hdsim.gangs.forecasting.series import Series
from hdsim.util.arrays import Floats, Ints

#: Latest values that a fitted model is applied to at each origin; earlier ones have no effect on its forecast.
_MEMORY = 500


class _Remainder(Forecaster):
    """A model for each series, of the differences from the means of each time of the day.

    Seasonal models of 48 or more values in a day are too slow, or not offered. A model is selected and estimated by
    `fit` only, and applied to the values before each origin.
    """

    @abstractmethod
    def _model(self) -> Any:
        """Returns a model to fit."""

    def fit(self, past: Sequence[Series], columns: int, seed: int) -> None:
        """Selects and estimates the models."""
        super().fit(past, columns, seed)
        self._days = [np.array([one.values[k :: one.period].mean() for k in range(one.period)]) for one in past]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # candidates that do not converge are not selected
            self._models = [
                self._model().fit(one.values - self._daily(number, np.arange(len(one.values))))
                for number, one in enumerate(past)
            ]

    def predict(self, number: int, series: Series, origins: Ints) -> Floats:
        """Forecasts of the model plus the means of the times of the day."""
        model, rest = self._models[number], series.values - self._daily(number, np.arange(len(series.values)))
        ahead = [model.forward(rest[max(end - _MEMORY, 0) : end], h=self.columns)["mean"] for end in origins]
        return np.stack(ahead) + self._daily(number, self.ahead(origins))

    def _daily(self, number: int, times: Ints) -> Floats:
        day = self._days[number]
        return day[times % len(day)]


class Autoets(_Remainder):
    """Exponential smoothing; error and trend are selected by the corrected information criterion of Akaike."""

    def _model(self) -> Any:
        return AutoETS(season_length=1)


class Autoarima(_Remainder):
    """ARIMA; the orders are selected by the corrected information criterion of Akaike."""

    def _model(self) -> Any:
        return AutoARIMA(season_length=1, max_p=3, max_q=3, approximation=True)
