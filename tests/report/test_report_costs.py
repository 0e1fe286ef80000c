"""Panels of runs in a facility: power with price and carbon intensity, payers, hours of the days."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

import hdsim
from hdsim.report import costs
from hdsim.report.charts import Blocks, ChartTable, Heat, Lines
from hdsim.report.html import render
from hdsim.report.panels import panels
from hdsim.results.run_directory.reader import Run, read

DATED = {"begin": "2026-03-27T20:30", "timezone": "Europe/Berlin"}
SERIES = {"price": {"mean": 0.1, "weather": 2.0, "floor": -2.0}, "carbon": {"mean": 300, "weather": 0.3}}


def run(folder: Path, **facility: object) -> Run:
    rng = np.random.default_rng(0)
    jobs = hdsim.Workload.from_columns(
        submission_time=np.sort(rng.uniform(0, 4 * 86400, 80)).round(),
        runtime=rng.exponential(9000, 80).round() + 1,
        requested_cores=rng.integers(1, 9, 80),
        user=rng.integers(0, 3, 80),
        names={"user": {0: "ann", 1: "bob", 2: "<eve>"}},
    )
    machine = hdsim.Platform.homogeneous(nodes=4, cores_per_node=4)
    return read(hdsim.simulate(machine, jobs, "easy", facility=facility or {"price": None}).save(folder))


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run(tmp_path_factory.mktemp("run"), pue=1.5, **DATED, **SERIES)


def test_power_and_what_is_behind_it(full: Run) -> None:
    panel = costs.electricity(full)
    assert panel is not None and [view.key for view in panel.views] == ["power_carbon", "power_price"]
    for view, column in zip(panel.views, ("carbon", "price"), strict=True):
        assert isinstance(view.chart, Lines)
        power, behind = view.chart.lines
        seconds = np.diff(power.x)
        assert float(power.y[:-1] @ seconds) / 3600 == pytest.approx(1000 * full.metrics["facility_energy_kwh"])
        with (full.path / "costs_by_hour.csv").open() as file:
            values = np.array([float(row[column]) for row in csv.DictReader(file)])
        assert behind.y[:-1] / power.y.max() == pytest.approx(values / np.abs(values).max())
        assert f"at most {np.abs(values).max():.3g}" in behind.label
        assert view.chart.y.low <= behind.y.min()


def test_hours_of_days_have_the_energy_of_each(full: Run) -> None:
    panel = costs.hours_of_days(full)
    assert panel is not None and "Local hours from 2026-03-27 to" in panel.note
    heat = panel.views[0].chart
    assert isinstance(heat, Heat)
    with (full.path / "costs_by_hour.csv").open() as file:
        rows = list(csv.DictReader(file))
    energies = {row["date"][:13]: float(row["facility_kwh"]) for row in rows[1:-1]}
    largest = max(energies.values())
    days = sorted({row["date"][:10] for row in rows})
    for date, energy in energies.items():
        cell = heat.share[int(date[11:]), days.index(date[:10])]
        assert cell * largest == pytest.approx(energy, rel=1e-6)
    # The clock passes over the hour from 2:00 to 3:00.
    assert heat.share[2, days.index("2026-03-29")] == 0
    assert heat.times[1] == 3.5 * 3600 and heat.times[3] == (3.5 + 24 + 23) * 3600


def test_payers_and_idle_nodes_are_the_total(full: Run) -> None:
    panel = costs.payers(full)
    assert panel is not None
    table, chart = (view.chart for view in panel.views)
    assert isinstance(table, ChartTable) and isinstance(chart, Blocks)
    facts = {fact.label: np.array(fact.values) for fact in table.columns}
    assert facts["user"][-2:].tolist() == ["idle nodes", "total"] and set(facts["user"][:3]) == {"ann", "bob", "<eve>"}
    for label in ("energy (kWh)", "cost (EUR)", "emissions (kgCO2)"):
        assert facts[label][:-1].sum() == pytest.approx(facts[label][-1], rel=1e-6)
    assert facts["share of the cost (%)"][:-1].sum() == pytest.approx(100, rel=1e-6)
    assert facts["cost (EUR)"][-1] == pytest.approx(full.metrics["cost_eur"], rel=1e-6)
    assert chart.finish == pytest.approx(facts["share of the cost (%)"][:3])


def test_a_page_has_the_panels_of_what_is_known(full: Run, tmp_path: Path) -> None:
    titles = [panel.title for panel in panels(full)]
    assert {"Electricity", "Hours of the days", "Payers"} <= set(titles)
    assert "<eve>" not in render(full)
    plain = run(tmp_path / "plain")
    assert not {"Electricity", "Hours of the days", "Payers"} & {panel.title for panel in panels(plain)}
    undated = run(tmp_path / "undated", price=0.2)
    (view,) = costs.electricity(undated).views  # type: ignore[union-attr]
    assert view.key == "power_price"
    hours = costs.hours_of_days(undated)
    assert hours is not None and hours.note.startswith("Local hours from day 1 to day")
