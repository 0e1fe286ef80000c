"""Ridge regression on lags, pooled over the series of equal period."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from hdsim.gangs.forecasting.base import Forecaster
from hdsim.gangs.forecasting.series import Series
from hdsim.util.arrays import Floats, Ints
from hdsim.util.rules import NOT_NEGATIVE, integers_from, require

#: Days before the forecast time whose values are regressors, with their neighbours.
_DAYS, _BESIDE = (1, 2, 7), (-1, 0, 1)


class Standardized(Forecaster):
    """Base of forecasters of changes from the latest value, in standard deviations of a series.

    `lags` is the number of values before the origin that are regressors.
    """

    def __init__(self, lags: int) -> None:
        require("forecaster", {"lags": integers_from(1)}, {"lags": lags})
        self.lags = int(lags)

    def fit(self, past: Sequence[Series], columns: int, seed: int) -> None:
        """Takes mean and deviation of the series; a constant series keeps its unit."""
        super().fit(past, columns, seed)
        self._scales = [(one.values.mean(), one.values.std() or 1.0) for one in past]

    def learned(self, series: Series) -> Ints:
        """Origins in the past of a series: the first days, where lags are missing, are skipped if there are others."""
        end = len(series.values) - self.columns + 1
        return np.arange(min(max(self.lags, 2 * series.period + 1) + 1, end // 2), end)

    def standardized(self, number: int, series: Series) -> Floats:
        """(L,) values in standard deviations from the mean of the past."""
        mean, deviation = self._scales[number]
        return (series.values - mean) / deviation

    def restored(self, number: int, latest: Floats, changes: Floats) -> Floats:
        """(R, F) values from (R, F) changes since the (R,) latest values."""
        mean, deviation = self._scales[number]
        return (latest[:, None] + changes) * deviation + mean

    def changes(self, values: Floats, origins: Ints) -> Floats:
        """(R, F) changes from the latest value to those that follow."""
        return sliding_window_view(values, self.columns)[origins] - values[origins - 1][:, None]

    def regressors(self, values: Floats, period: int, origins: Ints) -> Floats:
        """Returns the regressors known at (R,) origins from (L,) standardized values, `period` of them in a day.

        Returns:
            (R, F, K): the latest value; as differences from it, the lags and the values of some days before it; as
            differences from these, the values of the same days before the forecast time. NaN is a value that does not
            exist or is not known at the origin.
        """
        origins = np.asarray(origins)[:, None]
        latest = _known(values, origins - 1, origins)
        days = np.array(_DAYS) * period
        earlier = _known(values, origins - 1 - days, origins)
        recent = _known(values, origins - 1 - np.arange(1, self.lags), origins)
        columns = np.concatenate([latest, recent - latest, earlier - latest], axis=1)[:, None]
        times = self.ahead(origins[:, 0])[..., None, None] - days[:, None] + np.array(_BESIDE)
        seasonal = _known(values, times, origins[..., None, None]) - earlier[:, None, :, None]
        seasonal = seasonal.reshape(*seasonal.shape[:2], -1)
        return np.concatenate([columns.repeat(self.columns, axis=1), seasonal], axis=2)


def _known(values: Floats, places: Ints, origins: Ints) -> Floats:
    """Values at some places; NaN outside of the series and from the origin on."""
    known = (places >= 0) & (places < origins)
    return np.where(known, values[np.where(known, places, 0)], np.nan)


class Ridge(Standardized):
    """Ridge regression on `lags` values before the origin for each lead, one for all series of equal period.

    The coefficients minimize sum (y - X b)^2 + penalty |b|^2; the intercept is penalized like the others, since the
    changes have a mean near zero. Missing regressors count as no change.
    """

    def __init__(self, lags: int = 48, penalty: float = 10.0) -> None:
        super().__init__(lags)
        require("forecaster", {"penalty": NOT_NEGATIVE}, {"penalty": penalty})
        self.penalty = penalty

    def fit(self, past: Sequence[Series], columns: int, seed: int) -> None:
        """Solves the normal equations of each period and lead."""
        super().fit(past, columns, seed)
        groups = defaultdict(list)
        for number, series in enumerate(past):
            values, origins = self.standardized(number, series), self.learned(series)
            groups[series.period].append((self._design(values, series.period, origins), self.changes(values, origins)))
        self._coefficients = {period: self._solve(pairs) for period, pairs in groups.items()}

    def predict(self, number: int, series: Series, origins: Ints) -> Floats:
        """Latest value plus the change of the regression."""
        values = self.standardized(number, series)
        design = self._design(values, series.period, origins)
        changes = np.einsum("rfk,fk->rf", design, self._coefficients[series.period])
        return self.restored(number, values[origins - 1], changes)

    def _solve(self, pairs: Sequence[tuple[Floats, Floats]]) -> Floats:
        """(F, K) coefficients."""
        designs, targets = (np.concatenate(parts).swapaxes(0, 1) for parts in zip(*pairs, strict=True))
        moments = designs.swapaxes(1, 2) @ designs + self.penalty * np.eye(designs.shape[2])
        products = designs.swapaxes(1, 2) @ targets[..., None]
        return np.linalg.solve(moments, products)[..., 0]

    def _design(self, values: Floats, period: int, origins: Ints) -> Floats:
        """(R, F, K) regressors and an intercept."""
        regressors = np.nan_to_num(self.regressors(values, period, origins))
        return np.concatenate([regressors, np.ones((*regressors.shape[:2], 1))], axis=2)
