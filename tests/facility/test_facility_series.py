"""Series of prices, intensities and temperatures: files, dates, forecasts and generated ones."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl
import pytest

import hdsim
from hdsim.errors import ConfigError
from hdsim.facility.dates import Dates
from hdsim.facility.model import Facility
from hdsim.facility.series import KINDS, Series, Signal, make_series
from hdsim.facility.synthetic import synthetic

BERLIN = ZoneInfo("Europe/Berlin")
PLATFORM = hdsim.Platform.homogeneous(nodes=2, cores_per_node=2)


def epoch(*date: int) -> float:
    return datetime(*date, tzinfo=UTC).timestamp()  # type: ignore[misc,arg-type]


def dates(begin: float, zone: str | None = None) -> Dates:
    return Dates(begin, None if zone is None else ZoneInfo(zone))


def made(spec: Any, at: Dates, key: str = "price", until: float = 86400.0, seed: int = 0) -> Series:
    return make_series(KINDS[key], spec, at, until, seed, synthetic)


def written(path: Path, rows: Sequence[str], header: str = "time,price") -> str:
    path.write_text("\n".join([header, *rows]) + "\n")
    return str(path)


def facility(settings: dict[str, Any], header: dict[str, Any] | None = None, last: float = 60.0) -> Facility | None:
    jobs = hdsim.Workload.from_columns(
        submission_time=[0, last], runtime=[10, 10], requested_cores=[1, 1], header=header or {}
    )
    return Facility.of(settings, PLATFORM, jobs, seed=0)


def test_the_hour_that_occurs_twice_and_the_one_that_does_not(tmp_path: Path) -> None:
    autumn = [f"2026-10-25T{hour},{price}" for hour, price in (("01:00", 1), ("02:00", 2), ("02:00", 3), ("03:00", 4))]
    series = made(written(tmp_path / "autumn.csv", autumn), dates(epoch(2026, 10, 24, 23), "Europe/Berlin"))
    assert series.begins.tolist() == [0, 3600, 7200, 10800]
    assert series.at(np.array([5400.0, 9000.0])).tolist() == [2, 3]
    spring = [f"2026-03-29T{hour},1" for hour in ("01:00", "02:30", "03:00")]
    with pytest.raises(ConfigError, match=r"spring.csv:3.*2026-03-29T02:30', which the clock passed over"):
        made(written(tmp_path / "spring.csv", spring), dates(epoch(2026, 3, 29), "Europe/Berlin"))


@pytest.mark.parametrize("form", ["local", "offset", "utc", "seconds"])
def test_forms_of_dates_give_one_series(tmp_path: Path, form: str) -> None:
    at = [epoch(2026, 3, 1) + 900 * i for i in range(8)]
    texts = {
        "local": [datetime.fromtimestamp(t, BERLIN).strftime("%Y-%m-%d %H:%M") for t in at],
        "offset": [datetime.fromtimestamp(t, BERLIN).isoformat() for t in at],
        "utc": [datetime.fromtimestamp(t, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") for t in at],
        "seconds": [f"{t:.0f}" for t in at],
    }[form]
    file = written(tmp_path / "series.csv", [f"{text},{i}" for i, text in enumerate(texts)])
    series = made(file, dates(at[2], "Europe/Berlin"))
    assert series.begins.tolist() == [900.0 * (i - 2) for i in range(8)]
    assert series.end == 900.0 * 6
    assert np.isnan(series.at(np.array([-1801.0, 5400.0]))).all()


@pytest.mark.parametrize("column", ["utc", "local", "text"])
def test_parquet_and_csv_agree(tmp_path: Path, column: str) -> None:
    at = [datetime(2026, 3, 1, hour, tzinfo=UTC) for hour in range(5)]
    local = pl.Series([one.astimezone(BERLIN).replace(tzinfo=None) for one in at], dtype=pl.Datetime("us"))
    times = {"utc": pl.Series(at), "local": local, "text": pl.Series([one.isoformat() for one in at])}[column]
    pl.DataFrame({"time": times, "price": [1.0, -2.0, 3.0, 4.0, 5.0]}).write_parquet(tmp_path / "series.parquet")
    begin = dates(at[1].timestamp(), "Europe/Berlin")
    rows = [f"{one.isoformat()},{price}" for one, price in zip(at, (1, -2, 3, 4, 5), strict=True)]
    text = made(written(tmp_path / "series.csv", rows), begin)
    binary = made(str(tmp_path / "series.parquet"), begin)
    assert binary.begins.tolist() == text.begins.tolist() == [-3600, 0, 3600, 7200, 10800]
    assert binary.values.tolist() == text.values.tolist()


def test_integrals_of_steps_of_any_length() -> None:
    begins, values = np.array([-5.0, 0.0, 10.0, 11.0, 50.0]), np.array([9.0, 1.0, -2.0, 4.0, 0.5])
    series = Series(KINDS["price"], begins, values, 60.0, values, 0.0, dates(0.0), "test")
    assert series.integral(np.array([0.0, 5.0, 10.5]), np.array([10.0, 12.0, 60.0])).tolist() == [10, 7, 160]
    assert np.isnan(series.integral(np.array([0.0]), np.array([60.5]))).all()


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (["2026-03-01T00:00Z,1", "2026-03-01T00:00Z,1"], r":3: expected a later time than in the row before"),
        (["2026-03-01T00:00Z,1", "2026-03-01T01:00Z,x"], r":3: price: expected a number, got 'x'"),
        (["2026-03-01T00:00Z,1", "2026-03-01T01:00Z,1_0"], r":3: price: expected a number, got '1_0'"),
        (["2026-03-01T00:00Z,1", "2026-03-01T01:00Z,"], r":3: price: expected a number, got ''"),
        (["2026-03-01T00:00Z,1", "01.03.2026 01:00,1"], r":3: expected a date such as .* got '01.03.2026 01:00'"),
        (["2026-03-01T00:00,1", "2026-03-01T01:00,1"], r":2: expected facility.timezone, such as Europe/Berlin"),
        (["2026-03-01T00:00Z,1"], r"expected at least two rows, got 1"),
    ],
)
def test_faults_of_files_have_their_line(tmp_path: Path, rows: list[str], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        made(written(tmp_path / "series.csv", rows), dates(epoch(2026, 3, 1)))


def test_a_file_without_a_header_is_refused(tmp_path: Path) -> None:
    (tmp_path / "series.csv").write_text("2026-03-01T00:00Z,1\n2026-03-01T01:00Z,2\n2026-03-01T02:00Z,3\n")
    with pytest.raises(ConfigError, match="expected a header such as time,price, got '2026-03-01T00:00Z,1'"):
        made(str(tmp_path / "series.csv"), dates(epoch(2026, 3, 1)))


def test_negative_prices_are_allowed_and_negative_intensities_are_not(tmp_path: Path) -> None:
    file = written(tmp_path / "series.csv", ["2026-03-01T00:00Z,-1", "2026-03-01T01:00Z,1"], header="time,value")
    assert made(file, dates(epoch(2026, 3, 1))).values.tolist() == [-1, 1]
    with pytest.raises(ConfigError, match=r"series.csv:2: value: expected a number >= 0, got '-1'"):
        made(file, dates(epoch(2026, 3, 1)), "carbon")
    with pytest.raises(ConfigError, match=r"facility.carbon: expected a number >= 0 gCO2/kWh, got -5"):
        made(-5, dates(0.0), "carbon")


def test_columns_and_units_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = [f"{hour},2026-03-01T0{hour}:00Z,{80 + hour},{90 + hour}" for hour in range(3)]
    file = written(tmp_path / "market.csv", rows, header="row,from,DE,FR")
    begin = dates(epoch(2026, 3, 1))
    series = made({"path": file, "time": "from", "column": "FR", "unit": "EUR/MWh"}, begin)
    assert series.values.tolist() == [0.09, 0.091, 0.092]
    with pytest.raises(ConfigError, match=r"expected facility.price.column, the column of the values: one of row, DE"):
        made({"path": file, "time": "from"}, begin)
    with pytest.raises(ConfigError, match=r"facility.price.column: .*got 'ED'"):
        made({"path": file, "time": "from", "column": "ED"}, begin)
    with pytest.raises(ConfigError, match=r"facility.price.unit: .*EUR/kWh"):
        made({"path": file, "unit": "MWh"}, begin)
    with pytest.raises(ConfigError, match=r"facility.price.colum: unknown key, did you mean 'column'|nearest|column"):
        made({"path": file, "colum": "FR"}, begin)
    caplog.clear()
    made({"path": file, "time": "from", "column": "FR"}, begin)
    assert "the mean price is 91 EUR/kWh; a unit is given by facility.price.unit=EUR/MWh" in caplog.text


def test_missing_rows_are_told_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    hours = [0, 1, 2, 3, 9, 10]
    made(
        written(tmp_path / "gap.csv", [f"2026-03-01T{hour:02}:00Z,1" for hour in hours]),
        dates(epoch(2026, 3, 1)),
    )
    assert "gap.csv:5: a step of 6 h among steps of 1 h" in caplog.text


def test_the_date_of_a_trace_comes_from_its_header(tmp_path: Path) -> None:
    header = {"UnixStartTime": str(int(epoch(2026, 3, 1))), "TimeZoneString": "Europe/Berlin"}
    jobs = hdsim.Workload.from_columns(
        submission_time=[100, 200, 300], runtime=[1, 1, 1], requested_cores=[1, 1, 1], header=header
    )
    assert Dates.of(None, None, jobs).begin == epoch(2026, 3, 1) + 100
    # A window of a trace keeps its date.
    assert Dates.of(None, None, jobs[1:]).begin == epoch(2026, 3, 1) + 200
    assert Dates.of(None, None, jobs).local(0).hour == 1
    assert Dates.of("2026-06-01T12:00", None, jobs).begin == epoch(2026, 6, 1, 10)
    since = jobs.original_submission_time + epoch(2026, 3, 1)
    on_the_clock = hdsim.Workload.from_columns(
        submission_time=since, runtime=[1, 1, 1], requested_cores=[1, 1, 1], header=header
    )
    assert Dates.of(None, None, on_the_clock).begin == epoch(2026, 3, 1) + 100
    with pytest.raises(ConfigError, match=r"TimeZoneString: expected a time zone .* got 'Mars'"):
        facility({"price": 1}, {"TimeZoneString": "Mars"})
    file = written(tmp_path / "p.csv", ["2026-03-01T00:00Z,1", "2026-03-01T01:00Z,1"])
    with pytest.raises(ConfigError, match=r"facility.begin: expected the date of the first submission for the dates"):
        facility({"price": file}, {"UnixStartTime": "0"})


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"begin": "yesterday", "price": 1}, r"facility.begin: expected a date .* got 'yesterday'"),
        ({"begin": "20260301", "price": 1}, r"facility.begin: expected facility.timezone"),
        ({"begin": "2026-03-01T00:00Z"}, r"facility.begin: expected one of pue, .* beside it"),
        ({"timezone": "Europe/Berlyn", "price": 1}, r"facility.timezone: expected a time zone"),
        ({"pue": 0.9}, r"facility.pue: expected a number >= 1, or a table"),
        ({"pue": [[0.5, 1.2], [0.1, 1.4]]}, r"facility.pue: .* growing places"),
        ({"efficiency": 95}, r"facility.efficiency: expected a number from 0.01 to 1"),
        ({"pue_by_temperature": [[0, 1.1]]}, r"expected either pue, or pue_by_temperature and temperature together"),
        ({"capacity": -1, "pue": 1.2}, r"facility.capacity: expected a number > 0"),
        ({"prise": 1}, r"facility.prise: unknown key.*price"),
        ({"price": {"mean": 1, "path": "x"}}, r"facility.price: expected a number in EUR/kWh, a file, or settings"),
        ({"price": "none.csv", "begin": "2026-03-01T00:00Z"}, r"facility.price: expected a file with a series"),
        ({"begin": "9999-12-31T23:59Z", "price": 1}, r"facility.begin: expected a date from 1900 to 2999"),
        ({"begin": "0001-01-01T00:00Z", "price": 1}, r"facility.begin: expected a date from 1900 to 2999"),
        (
            {"begin": "2026-03-01T00:00Z", "price": {"mean": 1, "step": 1}},
            r"facility.price.step: expected a step that makes at most 10,000,000 steps",
        ),
        (
            {"begin": "2026-03-01T00:00Z", "carbon": {"mean": 1, "step": 0}},
            r"facility.carbon.step: expected at least 1",
        ),
        (
            {"begin": "2026-03-01T00:00Z", "carbon": {"mean": 1, "floor": "a"}},
            r"facility.carbon.floor: expected a share",
        ),
        ({"carbon": {"mean": 1}}, r"facility.begin: expected the date of the first submission for a generated series"),
    ],
)
def test_faults_of_settings_are_told_in_one_line(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told) as error:
        facility(settings)
    assert "\n" not in str(error.value)


def test_a_series_that_does_not_cover_the_run(tmp_path: Path) -> None:
    file = written(tmp_path / "p.csv", ["2026-03-01T00:00Z,1", "2026-03-01T01:00Z,1"])
    told = r"covers the run from 2026-03-01 01:00\+00:00 to 2026-03-01 03:00\+00:00, got .*p.csv: from .* 02:00"
    with pytest.raises(ConfigError, match=told):
        facility({"price": file, "begin": "2026-03-01T01:00Z"}, last=7200)


def test_what_is_known_ends_at_the_horizon() -> None:
    at = dates(epoch(2026, 3, 1), "Europe/Berlin")
    settings = {"mean": 300, "daily": 0.3, "weather": 0.3, "error": 0.2, "horizon": "6h"}
    series = made(settings, at, "carbon")
    other = Series(
        series.kind,
        series.begins,
        np.where(series.begins > 10_000, 1e6, series.values),
        series.end,
        np.where(series.begins >= 7000 + 6 * 3600, 1e6, series.forecasts),
        series.horizon,
        at,
        "test",
    )
    clock = SimpleNamespace(now=7000.0)
    # Neither values that have yet to come nor forecasts beyond the horizon are seen.
    seen, same = Signal(series, clock), Signal(other, clock)
    assert seen.known_until == 7000 + 6 * 3600
    assert seen.changes().tolist() == [7200.0 + 3600 * i for i in range(6)]
    begins = np.linspace(7000, 7000 + 6 * 3600, 40)
    for length in (60.0, 3600.0, 9000.0):
        mean = seen.mean(begins, begins + length)
        assert np.array_equal(mean, same.mean(begins, begins + length), equal_nan=True)
        assert np.isnan(mean).tolist() == (begins + length > seen.known_until).tolist()
    # The present step counts with its value, and the next ones with their forecasts.
    step = int(np.searchsorted(series.begins, 7000.0, side="right")) - 1
    expected = (series.values[step] * 200 + series.forecasts[step + 1] * 800) / 1000
    assert seen.mean(np.array([7000.0]), np.array([8000.0]))[0] == pytest.approx(expected)
    assert seen.value == series.values[step]
    assert not np.allclose(series.values, series.forecasts)


def test_prices_of_the_next_day_are_known_from_13_on() -> None:
    # Summer time begins on the next day, which has 23 hours.
    at = dates(epoch(2026, 3, 28) - 3600, "Europe/Berlin")
    series = made({"mean": 0.1, "horizon": "day_ahead"}, at, until=5 * 86400.0)
    assert series.known_until(12 * 3600.0) == 24 * 3600.0
    assert series.known_until(13 * 3600.0) == 47 * 3600.0


def test_generated_series_have_their_parts() -> None:
    at = dates(epoch(2026, 1, 1), "UTC")
    parts = {"daily": 0.3, "weekly": 0.2, "weather": 0.25, "memory": "24h"}
    year = made({"mean": 400, **parts}, at, "carbon", until=364 * 86400.0, seed=3)
    values = year.values[: 364 * 24].reshape(364, 24) / 400 - 1
    days = (epoch(2026, 1, 1) / 86400 + np.arange(364) + 3) % 7
    # 364 days have each day of the week 52 times; the deviation of the mean of the weather is 0.25 sqrt(2 / 364).
    deviation = 0.25 * np.sqrt(2 / 364)
    assert abs(values.mean()) < 4 * deviation
    hours = values.mean(axis=0) - values.mean()
    assert hours[20] == pytest.approx(0.3, abs=0.03)
    assert hours[14] == pytest.approx(-0.15 * 1, abs=0.03)
    weekend = values[days >= 5].mean() - values[days < 5].mean()
    assert weekend == pytest.approx(-0.2, abs=4 * deviation * np.sqrt(7 / 2))
    angle = 2 * np.pi * (np.arange(24) - 20) / 24
    rest = values - 0.3 * (np.cos(angle) + np.cos(2 * angle)) / 2 - 0.2 * np.where(days < 5, 2 / 7, -5 / 7)[:, None]
    weather = rest.ravel()
    assert weather.std() == pytest.approx(0.25, rel=0.2)
    lag = float(np.corrcoef(weather[:-24], weather[24:])[0, 1])
    assert lag == pytest.approx(np.exp(-1), abs=0.12)


def test_generated_series_are_those_of_their_seed_and_year() -> None:
    settings = {"mean": 400, "daily": 0.2, "weather": 0.3}
    march, april = (made(settings, dates(epoch(2026, month, 1)), "carbon", seed=1) for month in (3, 4))
    later = epoch(2026, 4, 1) - epoch(2026, 3, 1)
    times = np.arange(0, 86400.0, 1800)
    longer = made(settings, dates(epoch(2026, 3, 1)), "carbon", until=50 * 86400.0, seed=1)
    assert np.array_equal(april.at(times), longer.at(times + later))
    assert np.array_equal(march.at(times), longer.at(times))
    other = made(settings, dates(epoch(2026, 3, 1)), "carbon", seed=2)
    assert not np.array_equal(march.at(times), other.at(times))
    # One weather: with both shares equal, price and intensity rise and fall together.
    price = made(settings, dates(epoch(2026, 3, 1)), "price", seed=1)
    assert np.array_equal(price.values, march.values)
