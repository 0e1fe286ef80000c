"""Panels of runs in a facility: power with price and carbon intensity, payers, hours of the days."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

import hdsim
from hdsim.report import costs, figures
from hdsim.report.charts import Blocks, ChartTable, Heat, Lines
from hdsim.report.html import render
from hdsim.report.panels import panels, power
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


def test_power_with_what_is_beside_it(full: Run) -> None:
    panel = power(full)
    assert panel is not None and [view.key for view in panel.views] == ["power", "power_price"]
    with (full.path / "costs_by_hour.csv").open() as file:
        rows = list(csv.DictReader(file))
    for view, column in zip(panel.views, ("carbon", "price"), strict=True):
        assert isinstance(view.chart, Lines) and view.chart.right is not None
        machine, facility, signal = view.chart.lines
        joules = [float(line.y[:-1] @ np.diff(line.x)) for line in (machine, facility)]
        assert joules[0] == pytest.approx(full.metrics["energy_joules"])
        assert joules[1] == pytest.approx(3.6e6 * full.metrics["facility_energy_kwh"])
        assert [line.right for line in view.chart.lines] == [False, False, True]
        assert signal.y[:-1].tolist() == [float(row[column]) for row in rows]
        assert view.chart.right.low <= signal.y.min()


def test_the_cap_of_the_machine_is_a_line(tmp_path: Path) -> None:
    (tmp_path / "cap.csv").write_text("time,watts\n3600,150\n7200,90.5\n")
    jobs = hdsim.Workload.from_columns(submission_time=[0, 1], runtime=[9000, 9000], requested_cores=[16, 4])
    for kind, label in (("hard", "cap of the machine"), ("soft", "soft cap of the machine")):
        management = {"_target_": "hdsim.power.PowerManagement", "cap_kind": kind}
        management["cap"] = {"machine": str(tmp_path / "cap.csv"), "homogeneous": 500.0}
        machine = hdsim.Platform.homogeneous(nodes=4, cores_per_node=4)
        found = read(hdsim.simulate(machine, jobs, "easy", power=management).save(tmp_path / kind))
        (view,) = power(found).views  # type: ignore[union-attr]
        assert isinstance(view.chart, Lines)
        _, cap = view.chart.lines
        assert cap.label == label and cap.x[:-1].tolist() == [0, 3600, 7200]
        assert np.isnan(cap.y[0]) and cap.y[1:].tolist() == [150, 90.5, 90.5]
        assert view.chart.right is None and cap.top == 150
        figures.write_all([power(found)], tmp_path / f"{kind}-figures")  # type: ignore[list-item]


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
    assert {"Hours of the days", "Payers"} <= set(titles)
    assert "<eve>" not in render(full)
    plain = run(tmp_path / "plain")
    assert not {"Hours of the days", "Payers"} & {panel.title for panel in panels(plain)}
    undated = run(tmp_path / "undated", price=0.2)
    (view,) = power(undated).views  # type: ignore[union-attr]
    assert view.key == "power" and view.label == "Price"
    hours = costs.hours_of_days(undated)
    assert hours is not None and hours.note.startswith("Local hours from day 1 to day")
