"""Forecasts from a rolling origin, quantiles by the errors known at each origin, and the files of both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from hdsim.gangs.forecasting.base import Forecaster
from hdsim.gangs.forecasting.series import Series, first_row
from hdsim.gangs.workloads import scaled
from hdsim.util.arrays import Floats
from hdsim.util.files import dump_json, replacing, write_csv

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


@dataclass(frozen=True)
class Forecasts:
    """Forecasts of N series in R rows of F columns."""

    names: tuple[str, ...]  # names of the series
    actual: Floats  # (N, R, F) values
    #: (N, R, F) forecasts of each forecaster by its name; the first one is the forecaster that was asked for.
    models: Mapping[str, Floats]
    quantiles: Mapping[float, Floats]  # (N, R, F) quantiles of its forecasts by their levels, in growing order

    @cached_property
    def errors(self) -> dict[str, Floats]:
        """(N, F) root mean squared errors of each forecaster, in workload sizes by the range of the executed values."""
        actual = self._sizes(self.actual)
        return {
            name: np.sqrt(((self._sizes(values) - actual) ** 2).mean(axis=1)) for name, values in self.models.items()
        }

    def mean_errors(self) -> dict[str, Floats]:
        """(F,) root mean squared errors of each forecaster over all series."""
        return {name: np.sqrt((errors**2).mean(axis=0)) for name, errors in self.errors.items()}

    @property
    def metrics(self) -> dict[str, float]:
        """Root mean squared error of all forecasts, and the part of the values between the outermost quantiles."""
        chosen = next(iter(self.mean_errors().values()))
        metrics = {"rmse": float(np.sqrt((chosen**2).mean()))}
        if len(self.quantiles) > 1:
            low, *_, high = self.quantiles.values()
            metrics["coverage"] = float(((self.actual >= low) & (self.actual <= high)).mean())
        return metrics

    def in_sizes(self, past: Sequence[Series]) -> Forecasts:
        """Returns the same in workload sizes, by the range of the values of each series before the first row."""
        ranges = [one.values[:, None] for one in past]

        def converted(tables: Floats) -> Floats:
            return np.stack([scaled(table, known) for table, known in zip(tables, ranges, strict=True)])

        models = {name: converted(values) for name, values in self.models.items()}
        quantiles = {level: converted(values) for level, values in self.quantiles.items()}
        return Forecasts(self.names, converted(self.actual), models, quantiles)

    def _sizes(self, values: Floats) -> Floats:
        executed = self.actual.transpose(1, 2, 0)[:, :1]
        return scaled(values.transpose(1, 2, 0), executed).transpose(2, 0, 1)


def write_forecasts(path: Path, made: Forecasts) -> dict[str, Any]:
    """Writes the tables of each series, ``rmse.csv`` and ``metrics.json``; returns no entries of the manifest.

    Tables of actual values, forecasts and quantiles of the forecaster that was asked for are in the run directory, and
    forecasts of the others in folders that bear their names.
    """
    chosen, *others = made.models
    tables = {(path, "actual"): made.actual, (path, "forecasts"): made.models[chosen]}
    tables |= {(path, f"quantile_{level:g}"): values for level, values in made.quantiles.items()}
    tables |= {(path / name, "forecasts"): made.models[name] for name in others}
    for (folder, kind), values in tables.items():
        folder.mkdir(exist_ok=True)
        for name, table in zip(made.names, values, strict=True):
            _write_table(folder / f"{name}_{kind}.csv", table)
    write_csv(path / "rmse.csv", ["forecaster", "series", "lead", "rmse"], _errors(made))
    dump_json(path / "metrics.json", made.metrics)
    return {}


def _write_table(path: Path, table: Floats) -> None:
    times = ", ".join(["t", *(f"t+{lead}" for lead in range(1, table.shape[1]))])
    with replacing(path) as file:
        np.savetxt(file, table, "%.6f", ",", header=times)


def _errors(made: Forecasts) -> Iterator[list[str]]:
    for model, errors in made.errors.items():
        rows = zip((*made.names, "all"), (*errors, made.mean_errors()[model]), strict=True)
        for name, row in rows:
            for lead, error in enumerate(row):
                yield [model, name, str(lead), f"{error:.6f}"]
