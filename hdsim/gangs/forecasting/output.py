"""Forecasts of series, their errors, and the files of both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from hdsim.gangs.forecasting.series import Series
from hdsim.gangs.workloads import scaled
from hdsim.util.arrays import Floats
from hdsim.util.files import dump_json, replacing, write_csv


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
