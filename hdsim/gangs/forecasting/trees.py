"""Gradient-boosted trees, pooled over all series and leads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor

from hdsim.gangs.forecasting.pooled import Standardized
from hdsim.gangs.forecasting.series import Series
from hdsim.util.arrays import Floats, Ints
from hdsim.util.rules import POSITIVE, integers_from, require


class Trees(Standardized):
    """Histogram gradient boosting (scikit-learn) for all series and leads together.

    Regressors beside those of :class:`hdsim.gangs.forecasting.pooled.Standardized` are the lead, the time of the day
    and of the week, and the number of the series. `trees` and `leaves` are the numbers of trees and of leaves of a
    tree, `rate` is the learning rate.
    """

    def __init__(self, lags: int = 12, trees: int = 200, leaves: int = 31, rate: float = 0.05) -> None:
        super().__init__(lags)
        rules = {"trees": integers_from(1), "leaves": integers_from(2), "rate": POSITIVE}
        require("forecaster", rules, {"trees": trees, "leaves": leaves, "rate": rate})
        self.trees, self.leaves, self.rate = int(trees), int(leaves), rate

    def fit(self, past: Sequence[Series], columns: int, seed: int) -> None:
        """Fits the trees to the changes of all series."""
        super().fit(past, columns, seed)
        designs, targets = [], []
        for number, series in enumerate(past):
            values, origins = self.standardized(number, series), self.learned(series)
            designs.append(self._design(number, values, series.period, origins))
            targets.append(self.changes(values, origins).ravel())
        self._model = HistGradientBoostingRegressor(
            max_iter=self.trees,
            max_leaf_nodes=self.leaves,
            learning_rate=self.rate,
            min_samples_leaf=40,
            l2_regularization=1.0,
            early_stopping=False,
            random_state=seed,
        )
        self._model.fit(np.concatenate(designs), np.concatenate(targets))

    def predict(self, number: int, series: Series, origins: Ints) -> Floats:
        """Latest value plus the change of the trees."""
        values = self.standardized(number, series)
        changes = self._model.predict(self._design(number, values, series.period, origins))
        return self.restored(number, values[origins - 1], changes.reshape(-1, self.columns))

    def _design(self, number: int, values: Floats, period: int, origins: Ints) -> Floats:
        """(R * F, K) regressors."""
        regressors = self.regressors(values, period, origins)
        times = self.ahead(origins)
        lead = np.broadcast_to(np.arange(self.columns), times.shape)
        more = np.stack([lead, times % period, times % (7 * period) / period, np.full(times.shape, number)], axis=2)
        return np.concatenate([regressors, more], axis=2).reshape(times.size, -1)
