"""``hdsim bsp forecast``: forecasts of the workloads of gangs, and their errors."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hdsim.cli.launch import configured, launch
from hdsim.runs.command import Command, RunOutcome
from hdsim.util.files import shown

if TYPE_CHECKING:
    from hdsim.gangs.forecasting.base import Forecaster
    from hdsim.gangs.forecasting.rolling import Forecasts, Rolling

#: Leads in the table on the terminal, besides the last one.
_LEADS = (0, 1, 2, 4, 9)


@dataclass(frozen=True)
class _ForecastRun:
    """The parts of a run, made from its configuration; `models` by name, the one that was asked for first."""

    rolling: Rolling
    models: Mapping[str, Forecaster]


@configured("bsp_forecast")
def forecast(overrides: tuple[str, ...], **options: Any) -> None:
    """Forecasts series of workloads from a rolling origin, and writes the files that `hdsim bsp run` reads.

    \b
    hdsim bsp forecast
    hdsim bsp forecast series=measured names=[cpu,disk] rows=200 hydra.run.dir=runs/forecast
    hdsim bsp run actual=runs/forecast forecasts=runs/forecast scaling=actual controller=best

    A forecaster goes by its name, by forecaster.path=FILE.py or by forecaster._target_=package.Class. It knows the
    values before each row only. All keys are in docs/bsp_gangs.md.
    """  # noqa: D301 - click reads the backspace character
    launch(COMMAND, _report, overrides, **options)


def _check(config: Mapping[str, Any]) -> dict[str, Forecaster]:
    """Makes the forecasters by name."""
    from hdsim.gangs.forecasting.base import by_name, make_forecaster
    from hdsim.util.plugins import short_name
    from hdsim.util.text import unused

    chosen = make_forecaster(config["forecaster"])
    models = {short_name(config["forecaster"]): chosen}
    for name in dict.fromkeys(config["compare"]):
        other = by_name(name, where="compare")
        if type(other) is not type(chosen) or vars(other) != vars(chosen):
            models[unused(name, models)] = other
    return models


def _build(config: Mapping[str, Any]) -> _ForecastRun:
    from hdsim.gangs.forecasting.rolling import Rolling
    from hdsim.gangs.forecasting.series import read_all

    models = _check(config)
    rows, columns, seed = config["rows"], config["columns"], config["seed"]
    series = read_all(config["series"], config["names"], rows, columns, config["period"], seed)
    return _ForecastRun(Rolling(series, rows, columns, config["refit"], seed), models)


def _forecast(config: Mapping[str, Any], job: _ForecastRun, directory: Path) -> tuple[Forecasts, dict[str, Any]]:
    from tqdm import tqdm

    from hdsim.gangs.forecasting.rolling import Forecasts

    rolling, levels, chosen = job.rolling, config["quantiles"], next(iter(job.models))
    models = {}
    for name, model in tqdm(job.models.items(), "forecasters", disable=not sys.stderr.isatty()):
        models[name] = rolling.forecasts(model)
    quantiles = rolling.quantiles(job.models[chosen], models[chosen], levels) if levels else ()
    names = tuple(one.name for one in rolling.series)
    made = Forecasts(names, rolling.actual(), models, dict(zip(levels, quantiles, strict=True)))
    return made.in_sizes(rolling.past()) if config["unit"] == "sizes" else made, {}


def _write(directory: Path, made: Forecasts) -> dict[str, Any]:
    import numpy as np

    from hdsim.gangs.forecasting.rolling import write_forecasts
    from hdsim.report.charts import Axis, Line, Lines
    from hdsim.report.colors import JOB_COLORS
    from hdsim.report.figures import write_chart

    lines = tuple(
        Line(name, np.arange(1.0, len(errors) + 1.0), errors, JOB_COLORS[number % len(JOB_COLORS)])
        for number, (name, errors) in enumerate(made.mean_errors().items())
    )
    chart = Lines(Axis("Values ahead", "count", 1.0), Axis("RMSE (workload sizes)"), lines)
    write_chart("Errors of forecasts", chart, directory / "rmse.png")
    return write_forecasts(directory, made)


def _report(job: _ForecastRun, outcome: RunOutcome) -> None:
    """Prints the errors of some leads, and of all of them."""
    import csv

    from hdsim.util.text import format_number, format_table

    columns = job.rolling.columns
    leads = sorted({lead for lead in _LEADS if lead < columns} | {columns - 1})
    with (outcome.directory / "rmse.csv").open() as file:
        found = {
            (row["forecaster"], int(row["lead"])): row["rmse"] for row in csv.DictReader(file) if row["series"] == "all"
        }
    rows = [["forecaster", *(f"t+{lead}" if lead else "t" for lead in leads)]]
    rows += [[name, *(format_number(float(found[name, lead])) for lead in leads)] for name in job.models]
    click.echo(f"root mean squared error in workload sizes, all series\n\n{format_table(rows)}")
    if "coverage" in outcome.metrics:
        click.echo(f"\n{outcome.metrics['coverage']:.1%} of the values lie between the outermost quantiles")
    click.echo(f"\nrun directory  {shown(outcome.directory)}")


COMMAND = Command("bsp forecast", _build, _forecast, check=_check, write=_write, metrics=("rmse",))
