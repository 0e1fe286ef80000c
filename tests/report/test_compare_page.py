"""The page of a comparison in a browser: no complaint, tables sorted by mouse and keyboard, links, light and dark."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import html as dom
from test_compare import PLATFORM, made, trained
from test_report import Visit, visit  # noqa: F401 - a fixture
from tiers import ci, nightly

import hdsim
from hdsim.report import compare_panels
from hdsim.report.charts import Blocks, Heat, Lines
from hdsim.report.compare import compare
from hdsim.report.compare_output import short_labels
from hdsim.report.compare_page import render
from hdsim.report.compare_panels import panels
from hdsim.report.ranking import standings
from hdsim.report.ratios import ratios
from hdsim.report.tables import Cell, drawn, sortable
from hdsim.results import series
from hdsim.results.run_directory.directory import RunDirectory
from hdsim.results.run_directory.reader import read

VISITOR = """
<script>
(async () => {
  const pause = (ms) => new Promise((done) => setTimeout(done, ms));
  while (document.documentElement.dataset.ready !== "true") await pause(50);
  const table = document.querySelector("table.sortable"), column = COLUMN;
  const read = () => [...table.tBodies[0].rows].map((row) => row.cells[column].textContent);
  const head = table.querySelectorAll("thead th")[column], button = head.querySelector("button");
  const seen = { before: read() };
  button.click();
  seen.ascending = [head.getAttribute("aria-sort"), read()];
  button.focus();
  seen.focus = document.activeElement === button;
  button.click();
  seen.descending = [head.getAttribute("aria-sort"), read()];
  table.querySelector("thead button").click();
  seen.names = [...table.tBodies[0].rows].map((row) => row.cells[0].textContent);
  seen.sorted = [...table.querySelectorAll("[aria-sort]")].length;
  seen.wide = document.documentElement.scrollWidth > window.innerWidth;
  const told = document.createElement("pre");
  told.id = "seen";
  told.textContent = JSON.stringify(seen);
  document.body.append(told);
})();
</script>
"""


WIDTHS = """
<script>
(async () => {
  const pause = (ms) => new Promise((done) => setTimeout(done, ms));
  while (document.documentElement.dataset.ready !== "true") await pause(50);
  const right = (one) => one.getBoundingClientRect().right;
  const seen = { page: document.documentElement.scrollWidth - window.innerWidth, tables: {}, drawn: {} };
  for (const box of document.querySelectorAll(".scroll:has(table)")) {
    const name = box.querySelector("table").getAttribute("aria-label");
    seen.tables[name] = box.scrollWidth - box.clientWidth;
    const marks = [...box.querySelectorAll(".interval:has(.mark)")];
    if (marks.length) seen.drawn[name] = Math.max(...marks.map(right)) - right(box);
  }
  const told = document.createElement("pre");
  told.id = "seen";
  told.textContent = JSON.stringify(seen);
  document.body.append(told);
})();
</script>
"""


def page_of(tmp_path: Path, paths: list[Path], **options: Any) -> str:
    comparison = compare(paths, **options)
    return render(comparison, standings(comparison), tmp_path, ratios=ratios(comparison))


@pytest.mark.parametrize("preferred", ["dark", *nightly("light")])
@pytest.mark.ci
def test_a_page_in_a_browser(preferred: str, tmp_path: Path, visit: Callable[..., Visit]) -> None:  # noqa: F811
    name = "<script>alert(1)</script> & 'mine'"
    for seed in range(5):
        for agent in ("fcfs", "sjf", "ljf"):
            made(tmp_path / f"runs/{agent} {seed}", agent, seed)
    (tmp_path / "runs/sjf 1/report.html").write_text("the report")
    content = page_of(tmp_path, [tmp_path / "runs"], labels={name: tmp_path / "runs/ljf 0"})
    page = visit(
        content, VISITOR.replace("COLUMN", "2"), f"--blink-settings=preferredColorScheme={int(preferred == 'light')}"
    )
    assert page.complaints == []
    seen = json.loads(page.page.get_element_by_id("seen").text)
    values = [float(text.replace(",", "")) for text in seen["before"]]
    assert len(values) == 3 and values != sorted(values)
    assert seen["ascending"][0] == "ascending" and seen["descending"][0] == "descending"
    assert [float(text.replace(",", "")) for text in seen["ascending"][1]] == sorted(values)
    assert [float(text.replace(",", "")) for text in seen["descending"][1]] == sorted(values, reverse=True)
    assert seen["focus"] and seen["sorted"] == 1 and not seen["wide"]
    assert seen["names"] == sorted(["fcfs", "sjf", name], key=lambda text: text.lower())
    assert name in page.text() and not page.page.xpath("//main//script[contains(., 'alert')]")
    links = page.page.xpath("//main//a/@href")
    assert links == ["runs/sjf%201/report.html"]
    # The scale of the heat map: equal to the best, and worse.
    (key,) = page.page.xpath("//section[h2='Configurations by metrics']/p[@class='key']")
    marks = {mark.text_content(): mark.find("i").get("style") for mark in key}
    assert [*marks][:2] == ["0 %", "+10 %"] and len(set(marks.values())) == len(marks) >= 4
    assert page.page.xpath("//table[@aria-label='ranking']") and len(page.page.find_class("figure")) == 2
    # A mark for each of two configurations, five seeds and five metrics, and for the means.
    assert len(page.page.xpath("//section[h2='Single runs']//g[starts-with(@id, 'line2d')]//use")) >= 2 * 5 * 5 + 10
    assert set(page.curves()) >= {"waiting_time", "bounded_slowdown", "utilization", "queue"}
    assert all(
        curves and all(points > 1 for points in curves)
        for key, curves in page.curves().items()
        if "schedule" not in key
    )
    assert len(page.pictures()) == 3


@pytest.mark.parametrize("width", [*ci(700), *nightly(1280)])
def test_tables_fit_the_page(width: int, tmp_path: Path, visit: Callable[..., Visit]) -> None:  # noqa: F811
    for seed in range(4):
        for agent in ("fcfs", "sjf", "ljf"):
            made(tmp_path / f"runs/{agent} {seed}", agent, seed)
    labels = {"a-policy(of_mine=with, a_long=name)": tmp_path / "runs/ljf 0"}
    seen = json.loads(
        visit(page_of(tmp_path, [tmp_path / "runs"], labels=labels), WIDTHS, f"--window-size={width},1000")
        .page.get_element_by_id("seen")
        .text
    )
    assert seen["page"] <= 0
    metrics = {"makespan", "mean_waiting_time", "mean_bounded_slowdown", "utilization", "energy_joules"}
    assert set(seen["tables"]) == {"means", "heat map", "ratios", "ranking", *metrics}
    # In a narrow window the drawn differences are in sight; columns behind them are scrolled to.
    assert metrics <= set(seen["drawn"]) and max(seen["drawn"][name] for name in metrics) <= 0, seen
    assert width < 1280 or max(seen["tables"].values()) <= 0, seen


def test_curves_and_schedules_are_those_of_the_runs(tmp_path: Path) -> None:
    results = {agent: made(tmp_path / agent, agent) for agent in ("fcfs", "sjf")}
    comparison = compare([tmp_path])
    found = panels(comparison, short_labels(comparison))
    assert [panel.title for panel in found] == [
        "Waiting time",
        "Bounded slowdown",
        "Utilization",
        "Queue length",
        "Schedule of fcfs",
        "Schedule of sjf",
    ]
    end = max(result.end_time for result in results.values())
    for panel in found:
        chart = panel.views[0].chart
        if isinstance(chart, Lines) and chart.x.kind == "time":
            assert [line.label for line in chart.lines] == ["fcfs", "sjf"] and chart.x.high == end
            curve = series.queue_length if panel.title == "Queue length" else series.utilization
            scale = 1 if panel.title == "Queue length" else 100
            for line in chart.lines:
                assert line.y[:-1] == pytest.approx(scale * curve(results[line.label]).values)
        elif isinstance(chart, Lines):
            for line in chart.lines:
                waits = results[line.label].jobs["waiting_time"]
                if panel.title == "Waiting time":
                    assert line.y[-1] == 100 and line.y[0] == pytest.approx(100 * np.mean(waits <= 1))
        else:
            assert isinstance(chart, Blocks) and len(chart.start) == 40 and chart.x.high == end


def test_long_curves_are_means_over_stretches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path / "a", "fcfs")
    made(tmp_path / "b", "sjf")
    monkeypatch.setattr(compare_panels, "_POINTS", 20)
    comparison = compare([tmp_path])
    panel = panels(comparison, short_labels(comparison))[2]
    assert re.search(r"Means over stretches of [\d.]+ s\.$", panel.note)
    chart = panel.views[0].chart
    assert isinstance(chart, Lines)
    for line, name in zip(chart.lines, "ab", strict=True):
        steps = series.utilization(read(tmp_path / name))
        assert len(line.x) == 241
        assert np.dot(line.y[:-1], np.diff(line.x)) == pytest.approx(100 * steps.integral())


@pytest.mark.ci
def test_large_runs_have_shares_and_small_pages(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    workload = hdsim.Workload.from_columns(
        submission_time=np.cumsum(rng.integers(0, 9, 2500)),
        runtime=rng.integers(1, 40, 2500),
        requested_cores=rng.integers(1, 5, 2500),
    )
    for number in range(10):
        run = RunDirectory(tmp_path / f"{number}")
        run.start({"agent": {"path": f"{number}.py"}, "seed": 1}, PLATFORM, workload)
        run.finish(hdsim.simulate(PLATFORM, workload, "fcfs"))
    comparison = compare([tmp_path])
    found = panels(comparison, short_labels(comparison))
    charts = [panel.views[0].chart for panel in found]
    assert sum(isinstance(chart, Heat) for chart in charts) == 8
    assert "The first 8 of 10 configurations are drawn." in found[0].note
    content = render(comparison, (), tmp_path)
    data = re.search(r'<script type="application/json" id="arrays">(.*?)</script>', content, re.DOTALL)
    assert data and len(data[1]) < 2_000_000


def test_unfinished_runs_and_other_software_are_told(tmp_path: Path) -> None:
    for agent in ("fcfs", "sjf", "ljf"):
        made(tmp_path / agent, agent)
    for name, change in (("ljf", {"status": "failed", "error": "<b>no</b>"}), ("sjf", {"versions": {"numpy": "0.1"}})):
        manifest = json.loads((tmp_path / name / "manifest.json").read_text())
        (tmp_path / name / "manifest.json").write_text(json.dumps(manifest | change))
    page = dom.fromstring(page_of(tmp_path, [tmp_path]))
    warnings = [element.text_content() for element in page.find_class("warning")]
    assert warnings[0].startswith("1 of 3 runs are left out.") and "failed: <b>no</b>" in warnings[0]
    assert warnings[1].startswith("The runs differ in software") and "numpy: " in warnings[1]


def test_trainings_have_tables_and_no_panels(tmp_path: Path) -> None:
    fixed = {"fcfs": [9.0, 9.0, 9.0], "sjf": [5.0, 7.0, 6.0]}
    trained(tmp_path / "one", 1, {"final": [9.0, 9.0, 9.0], "best": [4.0, 4.0, 6.0], **fixed})
    content = page_of(tmp_path, [tmp_path], metrics=["makespan"])
    page = dom.fromstring(content)
    assert page.get_element_by_id("panels-data").text == "[]"
    assert [cell.text_content() for cell in page.xpath("//table[@aria-label='means']//tbody//th")] == [
        "ppo(best)",
        "fcfs",
        "sjf",
    ]


@given(st.lists(st.floats(-1e9, 1e9), min_size=3, max_size=3).map(sorted), st.floats(1, 1e9))
def test_intervals_are_drawn_in_order(found: list[float], room: float) -> None:
    low, value, high = found
    picture = dom.fromstring(drawn(value, low, high, (low - room, high + room), mark=low - room / 2))
    begin, end = (float(part) for part in re.findall(r"[\d.]+", picture.find_class("bar")[0].get("d"))[::2])
    mark = float(re.findall(r"[\d.]+", picture.find_class("mark")[0].get("d"))[0])
    middle = float(picture.xpath(".//circle/@cx")[0])
    assert 5 <= mark <= begin <= middle <= end <= 165


def test_cells_are_escaped_by_their_makers_and_heads_by_the_table() -> None:
    table = sortable("<i>", ["<b>", ""], [[Cell("x", "x"), Cell("-", math.nan, best=True, style="color:red")]])
    assert "&lt;b&gt;" in table and "&lt;i&gt;" in table and "data-value='nan'" in table
    found = dom.fromstring(table)
    assert len(found.xpath(".//button")) == 1 and found.xpath(".//td/@style") == ["color:red"]


@pytest.mark.parametrize("key", ["workload.arrival_factor", "contention"])
def test_scenarios_are_columns_and_their_number_an_axis(key: str, tmp_path: Path) -> None:
    values: list[Any] = [1.0, 0.5, 0.75] if key == "workload.arrival_factor" else ["none", "fair_share", "linear"]
    for number, value in enumerate(values):
        for agent in ("fcfs", "sjf"):
            run = tmp_path / f"{agent} {number}"
            made(run, agent)
            manifest = json.loads((run / "manifest.json").read_text())
            group, _, name = key.partition(".")
            manifest["config"][group] = {**manifest["config"].get(group, {}), name: value} if name else value
            (run / "manifest.json").write_text(json.dumps(manifest))
    page = dom.fromstring(page_of(tmp_path, [tmp_path], metrics=["makespan", "mean_waiting_time"]))
    (table,) = page.xpath("//table[@aria-label='mean_waiting_time by scenario']")
    rows = [[cell.text_content() for cell in row] for row in table.xpath(".//tr")]
    assert [row[0] for row in rows[1:]] == ["fcfs", "sjf"] and [len(row) for row in rows] == [4] * 3
    assert all(all(row[1:]) for row in rows)
    assert not page.xpath("//table[@aria-label='means']")
    # Curves over a number: a mark for each of two configurations, three scenarios and two metrics.
    over = page.xpath("//section[h2='Configurations by scenarios'][h3='Over workload.arrival_factor']")
    assert len(over) == (key == "workload.arrival_factor")
    for section in over:
        assert len(section.xpath(".//g[starts-with(@id, 'line2d')]//use[contains(@style, 'var(--')]")) >= 12
