"""Forecasts of workloads: slow implementations as oracles, no look-ahead, coverage, and the total they lead to."""

from __future__ import annotations

import csv
import json
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import Warm
from gang_inputs import TASKS, measured_profile, run

from hdsim.errors import ConfigError
from hdsim.gangs.forecasting.base import Forecaster, by_name, make_forecaster
from hdsim.gangs.forecasting.pooled import Ridge
from hdsim.gangs.forecasting.rolling import Forecasts, Rolling
from hdsim.gangs.forecasting.series import Series, read_all
from hdsim.gangs.stochastic import StochasticMpc
from hdsim.gangs.workloads import read_workloads

NAMES = list(dict.fromkeys(TASKS.values()))
statsforecast, torch = (pytest.mark.requires(name) for name in ("statsforecast", "torch"))
sklearn = pytest.mark.requires("scikit-learn")
#: Fast settings of each forecaster.
SMALL = [
    pytest.param("base.Persistence", {}, id="persistence"),
    pytest.param("base.SeasonalNaive", {}, id="seasonal_naive"),
    pytest.param("pooled.Ridge", {"lags": 5}, id="ridge"),
    pytest.param("trees.Trees", {"trees": 8, "lags": 3}, id="trees", marks=sklearn),
    pytest.param("base.Ensemble", {"members": ["ridge", "seasonal_naive"]}, id="ensemble"),
    pytest.param("statistical.Autoets", {}, id="autoets", marks=statsforecast),
    pytest.param("statistical.Autoarima", {}, id="autoarima", marks=statsforecast),
    pytest.param("neural.Lstm", {"epochs": 1}, id="lstm", marks=torch),
    pytest.param("neural.Tcn", {"lags": 5, "channels": 3, "epochs": 1}, id="tcn", marks=torch),
]


def small_series(count: int = 3, length: int = 150) -> list[Series]:
    """Series of two periods, short enough for plain loops."""
    rng = np.random.default_rng(3)
    made = []
    for number in range(count):
        period = (6, 6, 4)[number]
        values = np.sin(2 * np.pi * np.arange(length) / period) + rng.normal(0, 0.3, length).cumsum()
        made.append(Series(f"s{number}", 100 * values, period))
    return made


def forecaster(target: str, settings: dict[str, object]) -> Forecaster:
    return make_forecaster({"_target_": f"hdsim.gangs.forecasting.{target}", **settings})


def test_naive_forecasts_are_earlier_values() -> None:
    series = small_series()
    rolling = Rolling(series, 10, 9)
    latest, daily = (rolling.forecasts(by_name(name, "")) for name in ("persistence", "seasonal_naive"))
    for n, one in enumerate(series):
        for r in range(10):
            origin = len(one.values) - 18 + r
            for c in range(9):
                assert rolling.actual()[n, r, c] == one.values[origin + c]
                assert latest[n, r, c] == one.values[origin - 1]
                place = origin + c
                while place >= origin:
                    place -= one.period
                assert daily[n, r, c] == one.values[place]


def test_ridge_is_the_least_squares_solution_of_an_enlarged_system() -> None:
    series, rows, columns, lags, penalty = small_series(), 7, 5, 4, 2.0
    found = Rolling(series, rows, columns).forecasts(Ridge(lags, penalty))
    past = [one.values[: len(one.values) - rows - columns + 1] for one in series]
    means, deviations = [values.mean() for values in past], [values.std() for values in past]

    def row(n: int, values: np.ndarray, origin: int, lead: int) -> list[float]:
        z = (values[:origin] - means[n]) / deviations[n]
        regressors = [z[-1], *(z[-1 - lag] - z[-1] for lag in range(1, lags))]
        places = [origin - 1 - days * series[n].period for days in (1, 2, 7)]
        regressors += [z[place] - z[-1] if place >= 0 else 0.0 for place in places]
        for place in places:
            for beside in (-1, 0, 1):
                then = place + 1 + lead + beside
                regressors.append(z[then] - z[place] if place >= 0 and 0 <= then < origin else 0.0)
        return [*regressors, 1.0]

    for period in (6, 4):
        group = [n for n, one in enumerate(series) if one.period == period]
        for lead in range(columns):
            x, y = [], []
            for n in group:
                first = min(max(lags, 2 * period + 1) + 1, (len(past[n]) - columns + 1) // 2)
                for origin in range(first, len(past[n]) - columns + 1):
                    x.append(row(n, past[n], origin, lead))
                    y.append((past[n][origin + lead] - past[n][origin - 1]) / deviations[n])
            width = len(x[0])
            enlarged = np.vstack([x, np.sqrt(penalty) * np.eye(width)])
            solution = np.linalg.lstsq(enlarged, np.concatenate([y, np.zeros(width)]))[0]
            for n in group:
                for r in range(rows):
                    origin = len(past[n]) + r
                    change = np.dot(row(n, series[n].values, origin, lead), solution) * deviations[n]
                    assert found[n, r, lead] == pytest.approx(series[n].values[origin - 1] + change, rel=1e-8)


def test_a_forecaster_is_fitted_again_as_if_the_rows_began_there() -> None:
    series = small_series()
    found = Rolling(series, 8, 4, refit=3).forecasts(Ridge(5))
    for begin, rows in ((0, 3), (3, 3), (6, 2)):
        later = [one.until(len(one.values) - 8 + begin + rows) for one in series]
        assert (found[:, begin : begin + rows] == Rolling(later, rows, 4).forecasts(Ridge(5))).all()


@pytest.mark.parametrize("refit", [None, pytest.param(3, marks=pytest.mark.nightly)])
@pytest.mark.parametrize(("target", "settings"), SMALL)
@pytest.mark.ci
def test_nothing_is_known_before_it_is_measured(target: str, settings: dict[str, object], refit: int | None) -> None:
    rows, columns, changed = 8, 4, 4
    series = small_series()
    others = []
    for one in series:
        values = one.values.copy()
        first = len(values) - rows - columns + 1
        values[first + changed :] = 1e4 * np.random.default_rng(1).normal(size=len(values) - first - changed)
        others.append(replace(one, values=values))
    tables = []
    for known in (series, others):
        rolling = Rolling(known, rows, columns, refit, seed=2)
        forecasts = rolling.forecasts(forecaster(target, settings))
        quantiles = rolling.quantiles(forecaster(target, settings), forecasts, [0.1, 0.9])
        tables.append(np.concatenate([forecasts[None], quantiles]))
    assert (tables[0][:, :, : changed + 1] == tables[1][:, :, : changed + 1]).all()
    assert (tables[0][:, :, changed + 1 :] != tables[1][:, :, changed + 1 :]).any(axis=(0, 1, 3)).all()


@pytest.mark.parametrize("name", ["ridge", "persistence"])
@pytest.mark.nightly
def test_the_interval_of_80_percent_covers_as_many_values(name: str) -> None:
    covered = []
    for seed in (1, 2):
        rolling = Rolling(read_all("generated", NAMES, 1000, 20, None, seed), 1000, 20)
        made = by_name(name, "")
        forecasts = rolling.forecasts(made)
        low, high = rolling.quantiles(made, forecasts, [0.1, 0.9])
        actual = rolling.actual()
        covered.append(((actual >= low) & (actual <= high)).mean(axis=1))
    assert 0.75 <= np.mean(covered) <= 0.85
    assert ((np.mean(covered, axis=(0, 2)) >= 0.7) & (np.mean(covered, axis=(0, 2)) <= 0.9)).all()
    assert ((np.mean(covered, axis=(0, 1)) >= 0.7) & (np.mean(covered, axis=(0, 1)) <= 0.9)).all()


def test_errors_are_in_the_unit_of_the_executed_values() -> None:
    rolling = Rolling(small_series(), 12, 3)
    actual = rolling.actual()
    made = Forecasts(("a", "b", "c"), actual, {"x": actual + 1.0, "y": actual * 0.0}, {})
    for n in range(3):
        executed = actual[n, :, 0]
        unit = 40 / (max(executed) - min(executed))
        assert made.errors["x"][n] == pytest.approx(np.full(3, unit))
        expected = [np.sqrt(sum(value**2 for value in actual[n, :, lead]) / 12) * unit for lead in range(3)]
        assert made.errors["y"][n] == pytest.approx(expected)
    assert made.metrics == {"rmse": pytest.approx(np.sqrt(np.mean([e**2 for e in made.errors["x"]])))}
    sizes = made.in_sizes(rolling.past())
    past = rolling.past()[1].values
    assert sizes.actual[1] == pytest.approx(10 + 40 * (actual[1] - past.min()) / (past.max() - past.min()))
    assert sizes.errors["y"] == pytest.approx(made.errors["y"])


def measured(data: Path, name: str, folder: Path) -> Path:
    """Forecasts of the measured series in a folder."""
    rolling = Rolling(read_all(str(data / "bsp" / "series"), NAMES, 1000, 20, None, 1), 1000, 20)
    from hdsim.gangs.forecasting.rolling import write_forecasts

    write_forecasts(folder, Forecasts(tuple(NAMES), rolling.actual(), {name: rolling.forecasts(by_name(name, ""))}, {}))
    return folder


def total(data: Path, folder: Path, start: int = 0, scaling: str = "actual") -> float:
    workloads = read_workloads(TASKS, str(data / "bsp" / "actual"), str(folder), scaling=scaling)
    return run(measured_profile(data), workloads, StochasticMpc(), start).metrics["total"]


@pytest.mark.ci
def test_ridge_on_the_measured_series(shared_data: Path, tmp_path: Path) -> None:
    folder = measured(shared_data, "ridge", tmp_path)
    for name in NAMES:
        own, published = (
            read_workloads({"a": name}, str(source), "actual").predictions
            for source in (folder, shared_data / "bsp" / "actual")
        )
        # The published tables have passed through 32-bit numbers.
        assert own == pytest.approx(published, abs=1e-4)
    assert total(shared_data, folder) <= 47_200


@pytest.mark.nightly
@sklearn
def test_the_ensemble_on_the_measured_series(shared_data: Path, tmp_path: Path) -> None:
    folder = measured(shared_data, "ensemble", tmp_path)
    assert total(shared_data, folder) <= 47_000
    assert total(shared_data, folder, scaling="columns") <= 47_100
    assert total(shared_data, folder, start=200) <= 48_000
    assert total(shared_data, folder, start=400) <= 48_700


def forecast(warm: Warm, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*warm.command("hdsim"), "bsp", "forecast", *arguments], cwd=folder, capture_output=True, text=True
    )


@sklearn
@pytest.mark.nightly
def test_the_command_repeats_itself_and_gangs_read_its_files(warm: Warm, tmp_path: Path) -> None:
    settings = ("forecaster=trees", "forecaster.trees=5", "rows=40", "compare=[ridge]", "unit=sizes", "seed=5")
    for name in ("one", "two"):
        done = forecast(warm, tmp_path, *settings, f"hydra.run.dir={name}")
        assert done.returncode == 0, done.stderr
    one, two = tmp_path / "one", tmp_path / "two"
    files = [path.relative_to(one) for path in one.rglob("*.*") if path.suffix in (".csv", ".json", ".png")]
    assert len(files) == 8 * 6 + 4
    for file in files:
        assert file.name == "manifest.json" or (one / file).read_bytes() == (two / file).read_bytes(), file
    metrics = json.loads((one / "metrics.json").read_text())
    errors = list(csv.DictReader((one / "rmse.csv").open()))
    assert len(errors) == 2 * 9 * 20
    means = [float(row["rmse"]) for row in errors if row["forecaster"] == "trees" and row["series"] == "all"]
    assert np.sqrt(np.mean(np.square(means))) == pytest.approx(metrics["rmse"], abs=1e-5)
    assert "trees" in done.stdout and "ridge" in done.stdout and f"{metrics['coverage']:.1%}" in done.stdout
    for forecasts in ("one", "one/ridge"):
        ran = subprocess.run(
            [
                *warm.command("hdsim"),
                "bsp",
                "run",
                "actual=one",
                f"forecasts={forecasts}",
                "scaling=none",
                "supersteps=10",
                "controller=static_window",
                "hydra.run.dir=gang",
            ],
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert ran.returncode == 0, ran.stderr


@pytest.mark.ci
def test_a_changed_series_is_forecast_again(warm: Warm, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    file = tmp_path / "in" / "x.csv"
    file.write_text("value\n" + "\n".join(str(7 * n % 11) for n in range(60)))
    settings = ("-m", "series=in", "names=[x]", "period=5", "rows=10", "columns=3", "forecaster=persistence,ridge")
    arguments = (*settings, "compare=[]", "quantiles=[]", "hydra.sweep.dir=sweep")
    first, second = (forecast(warm, tmp_path, *arguments) for _ in range(2))
    assert first.returncode == 0, first.stderr
    assert "finished before" not in first.stdout and "2 of 2 runs finished before" in second.stdout
    file.write_text(file.read_text() + "\n5")
    assert "another content of series" in forecast(warm, tmp_path, *arguments).stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["forecaster=rigde"], "forecaster: expected one of"),
        (["forecaster=ridge", "forecaster.lags=0"], "forecaster.lags: expected a whole number >= 1, got 0"),
        (["forecaster.members=[ensemble]"], "forecaster.members: expected names of other forecasters"),
        (["forecaster.members=[rigde]"], "forecaster.members: expected forecasters out of persistence"),
        (["compare=[rigde]"], "compare: expected forecasters out of"),
        (["compare=[rigde]"], "(did you mean 'ridge'?)"),
        (["quantiles=[0.9,0.1]"], "quantiles: expected a list of growing levels"),
        (["unit=size"], "unit: expected values or sizes, got 'size'"),
        (["names=[a,a]"], "names: expected a list of different names"),
        (["rows=2000"], "series: expected at least 2163 values in nyc_taxi_1"),
        (["series=in", "names=[y]"], "in: expected y.csv or y.csv.gz, found neither"),
        (["series=in", "names=[x]"], "x.csv:1: expected a column timestamp, got value; the key period"),
        (["series=in", "names=[x]", "period=2"], "x.csv:4: expected a finite number as value, got 'z'"),
        (["series=in", "names=[t]"], "t.csv:3: expected a timestamp such as"),
        (["series=in", "names=[u]"], "u.csv: expected timestamps that grow"),
        (["controller=best"], "'controller'"),
    ],
)
def test_a_mistake_is_one_message(warm: Warm, tmp_path: Path, arguments: list[str], message: str) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "x.csv").write_text("value\n1\n2\nz\n")
    (tmp_path / "in" / "t.csv").write_text("timestamp,value\n2014-07-01,1\nnoon,2\n")
    (tmp_path / "in" / "u.csv").write_text("timestamp,value\n2014-07-02,1\n2014-07-01,2\n")
    done = forecast(warm, tmp_path, *arguments, "hydra.run.dir=run")
    assert done.returncode == 2, done.stderr
    assert message in done.stderr and "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_short_or_faulty_series_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("value\n" + "1\n" * 30)
    assert len(read_all(str(tmp_path), ["x"], 5, 4, 4, 1)[0].values) == 30
    with pytest.raises(ConfigError, match="expected at least 31 values in x for 16 rows of 4 columns"):
        read_all(str(tmp_path), ["x"], 16, 4, 4, 1)
