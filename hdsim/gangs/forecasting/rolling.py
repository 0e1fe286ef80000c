"""Forecasts from a rolling origin, their errors, and quantiles by the errors known at each origin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from hdsim.gangs.forecasting.base import Forecaster
from hdsim.gangs.forecasting.series import Series, first_row
from hdsim.util.arrays import Floats

#: Part of the past whose forecasts give the errors that are known before the first row.
_CALIBRATED = 0.25
#: Most errors of a quantile.
_MEMORY = 500


@dataclass(frozen=True)
class Rolling:
    """A rolling origin over the last R rows of N series, each predicted for F columns."""

    series: Sequence[Series]
    rows: int  # number R of rows
    columns: int  # number F of columns
    refit: int | None = None  # rows after which a forecaster is fitted again; None: never
    seed: int = 1

    def past(self) -> list[Series]:
        """Series of the values before the first row."""
        return [one.until(first_row(one, self.rows, self.columns)) for one in self.series]

    def actual(self) -> Floats:
        """(N, R, F) values of each row."""
        return np.stack([sliding_window_view(one.values, self.columns)[-self.rows :] for one in self.series])

    def forecasts(self, forecaster: Forecaster) -> Floats:
        """(N, R, F) forecasts of :meth:`actual`, each row from the values before it.

        The forecaster is fitted to the values before the first row, and again after every `refit` rows.
        """
        blocks, block = [], self.refit or self.rows
        firsts = [first_row(one, self.rows, self.columns) for one in self.series]
        for begin in range(0, self.rows, block):
            pairs = list(zip(self.series, firsts, strict=True))
            forecaster.fit([one.until(first + begin) for one, first in pairs], self.columns, self.seed)
            rows = np.arange(begin, min(begin + block, self.rows))
            blocks.append(
                np.stack(
                    [
                        forecaster.predict(number, one.until(first + rows[-1]), first + rows)
                        for number, (one, first) in enumerate(pairs)
                    ]
                )
            )
        return np.concatenate(blocks, axis=1)

    def quantiles(self, forecaster: Forecaster, forecasts: Floats, levels: Sequence[float]) -> Floats:
        """Returns (Q, N, R, F) quantiles of the values for Q levels between 0 and 1 from (N, R, F) forecasts.

        They are those of split conformal prediction with rolling errors: the forecast plus the quantile of the latest
        errors of the same lead that are known at the row. Before the first row these are errors of the forecaster,
        which is fitted again without the last quarter of the values. The formula is that of Lei et al.,
        Distribution-Free Predictive Inference for Regression (2018), with signed errors.
        """
        past = self.past()
        held_out = min(round(_CALIBRATED * len(one.values)) for one in past) - self.columns + 1
        earlier = Rolling(past, held_out, self.columns, None, self.seed)
        errors = np.concatenate([earlier.actual() - earlier.forecasts(forecaster), self.actual() - forecasts], axis=1)
        found = np.empty((len(levels), *forecasts.shape))
        memory = min(_MEMORY, held_out)
        for lead in range(self.columns):
            known = sliding_window_view(errors[:, :, lead], memory, axis=1)
            # The latest forecast with a known error is that of lead + 1 rows before.
            begins = held_out - memory + np.maximum(np.arange(self.rows) - lead, 0)
            found[..., lead] = forecasts[..., lead] + np.quantile(known[:, begins], levels, axis=2)
        return found
