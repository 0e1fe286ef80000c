"""Reports: every kind of run opened in a browser without one complaint, the data in the plots, the static figures."""

from __future__ import annotations

import base64
import io
import json
import os
import re
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import html as dom
from tiers import nightly

import hdsim
from hdsim.report import distributions, figures, jobs, page, panels
from hdsim.report.charts import POINTS, STRETCHES, WINDOW, Blocks, ChartTable, Heat, Line, Lines, duration
from hdsim.report.colors import COLORS
from hdsim.report.html import agent_name, render
from hdsim.report.lanes import strip_of
from hdsim.report.page import words as page_words
from hdsim.results import metrics, series
from hdsim.results.run_directory.directory import RunDirectory
from hdsim.results.run_directory.reader import Run, read
from hdsim.scheduling.agent import Agent
from hdsim.simulation.replay import Interrupted
from hdsim.util.resources import resolve
from hdsim.util.text import format_number

OVER_TIME = {"utilization", "queue", "running", "power", "oversubscribed_processors", "progress"}
DISTRIBUTIONS = {"waiting_time", "bounded_slowdown", "slowdown_factor"}
#: Plots that only runs with contention have.
OF_CONTENTION = {"oversubscribed_processors", "slowdown_factor"}
SPANS = {"oversubscription"}

# Notes the colours of the page and of its first plot: as opened, in print, in the other theme, and when opened again.
THEMES = """
<script>
(async () => {
  const pause = (ms) => new Promise((done) => setTimeout(done, ms));
  while (document.documentElement.dataset.ready !== "true") await pause(50);
  const seen = JSON.parse(sessionStorage.getItem("seen") ?? "{}");
  const note = async (when) => {
    await pause(200);
    const rectangle = document.querySelector(".plot .main-svg"), text = document.querySelector(".plot .xtick text");
    seen[when] = [document.body, rectangle].map((one) => getComputedStyle(one).backgroundColor)
      .concat([getComputedStyle(document.body).color, getComputedStyle(text).fill]);
  };
  if (!("opened" in seen)) {
    await note("opened");
    window.dispatchEvent(new Event("beforeprint"));
    await note("print");
    window.dispatchEvent(new Event("afterprint"));
    await note("after");
    document.querySelector("button[data-theme=OTHER]").click();
    await note("other");
    sessionStorage.setItem("seen", JSON.stringify(seen));
    location.reload();
    return;
  }
  await note("again");
  const told = document.createElement("pre");
  told.id = "seen";
  told.textContent = JSON.stringify(seen);
  document.body.append(told);
})();
</script>
"""

# Uses the page as a reader does: every view, every plot under the pointer, a zoom, the way back.
VISITOR = """
<script>
(async () => {
  const pause = (ms) => new Promise((done) => setTimeout(done, ms));
  while (document.documentElement.dataset.ready !== "true") await pause(50);
  const seen = { tips: {}, views: {}, ranges: {} };
  const plots = [...document.querySelectorAll(".js-plotly-plot")];
  const tip = document.getElementById("tip");
  const hover = async (plot, key) => {
    plot.scrollIntoView();
    const area = plot.querySelector(".nsewdrag").getBoundingClientRect();
    seen.tips[key] = [];
    for (const [across, up] of [[0.3, 0.5], [0.5, 0.1], [0.7, 0.9]]) {
      plot.dispatchEvent(new MouseEvent("mousemove", {
        clientX: area.left + across * area.width, clientY: area.top + up * area.height, bubbles: true,
      }));
      await pause(1);
      seen.tips[key].push(tip.hidden ? "" : tip.textContent);
    }
  };
  for (const plot of plots) await hover(plot, plot.id);
  const schedule = document.getElementById("gantt_cores") ?? document.getElementById("occupancy");
  const range = schedule.layout.xaxis.range.slice();
  await Plotly.relayout(schedule, { "xaxis.range": [range[1] * 0.25, range[1] * 0.5], "yaxis.range": [0, 3] });
  await pause(500);
  for (const plot of plots) seen.ranges[plot.id] = plot.layout.xaxis.range.slice();
  for (const button of document.querySelectorAll(".views button")) {
    button.click();
    await pause(100);
    seen.views[button.dataset.view] = button.ariaPressed;
    const plot = button.closest(".panel").querySelector(".plot");
    if (!plot.hidden) await hover(plot, button.dataset.view);
  }
  window.dispatchEvent(new Event("resize"));
  await pause(500);
  await Plotly.relayout(schedule, { "xaxis.range": range });
  await pause(500);
  const told = document.createElement("pre");
  told.id = "seen";
  told.textContent = JSON.stringify(seen);
  document.body.append(told);
})();
</script>
"""


@dataclass(frozen=True)
class Visit:
    """What a browser made of a page."""

    page: Any
    complaints: list[str]

    def text(self) -> str:
        return " ".join(self.page.xpath("//main//text()"))

    def curves(self) -> dict[str, list[int]]:
        """Number of points of each curve that is drawn, by plot."""
        return {
            plot.get("id"): [
                len(re.findall("[MLHV]", path.get("d") or ""))
                for path in plot.xpath(".//*[contains(@class, 'scatterlayer')]//*[@class='js-line']")
            ]
            for plot in self.page.find_class("js-plotly-plot")
        }

    def pictures(self) -> dict[str, np.ndarray]:
        """Pixels of the pictures in the plots: painted blocks and heat maps."""
        found = {}
        for plot in self.page.find_class("plot"):
            for image in plot.xpath(".//*[local-name()='image']"):
                source = next(value for name, value in image.attrib.items() if name.endswith("href"))
                data = base64.b64decode(source.partition("base64,")[2])
                found[plot.get("id")] = matplotlib.image.imread(io.BytesIO(data), format="png")
        return found


@pytest.fixture
def visit(tmp_path: Path, browse: Callable[..., tuple[str, list[str]]]) -> Callable[..., Visit]:
    """Opens a page in headless Chromium that reaches no network; returns the document and all the console said."""

    def open_page(content: str, visitor: str = "", *options: str) -> Visit:
        file = tmp_path / "page.html"
        file.write_text(content.replace("</body>", visitor + "</body>"))
        content, complaints = browse(file.as_uri(), "--host-resolver-rules=MAP * ~NOTFOUND", *options)
        return Visit(dom.fromstring(content), complaints)

    return open_page


def recorded(
    path: Path, platform: hdsim.Platform, workload: hdsim.Workload, agent: str | Agent = "fcfs", **options: Any
) -> Run:
    """Replays into a run directory and reads it back."""
    directory = RunDirectory(path)
    settings = {"job_policy": agent} if isinstance(agent, str) else {"_target_": f"tests.{type(agent).__name__}"}
    directory.start({"seed": 1, "agent": settings}, platform, workload)
    try:
        directory.finish(hdsim.simulate(platform, workload, agent, seed=1, **options))
    except Interrupted as stopped:
        directory.interrupt(stopped.result, stopped.signal)
    return read(path)


def on_gaia(path: Path, jobs: int) -> Run:
    platform = hdsim.load_platform(resolve("platforms", "gaia"))
    workload = hdsim.load_workload(resolve("workloads", "lublin_4000"), platform=platform, jobs=jobs, seed=1)
    return recorded(path, platform, workload, "shortest-high_mem_bw", contention="threshold")


def ten_thousand(path: Path) -> Run:
    rng = np.random.default_rng(7)
    workload = hdsim.Workload.from_columns(
        submission_time=np.cumsum(rng.exponential(20.0, 10_000)),
        runtime=np.ceil(rng.lognormal(5.0, 1.5, 10_000)),
        requested_cores=rng.integers(1, 20, 10_000),
    )
    return recorded(path, hdsim.Platform.homogeneous(nodes=400, cores_per_node=1), workload, "easy")


def mixed(path: Path, agent: str | Agent = "fcfs") -> Run:
    """Jobs that complete, fail, are killed or can never run, under names that would break a careless page."""
    workload = hdsim.Workload.from_columns(
        job_id=np.array(["a</script><script>throw 1</script>", "<b>b</b>", "$c", "d&amp;", "e"], object),
        submission_time=[0, 0, 1, 2, 3.5],
        runtime=[10, 3, 5, 8, 1],
        requested_cores=[2, 3, 99, 8, 1],
        walltime=[np.inf, np.inf, np.inf, 4, np.inf],
        memory_bandwidth=[6.0, 1.0, 0.0, 1.0, 0.0],
        return_code=[0, 7, 0, 0, 0],
        name="</title><script>throw 2</script>",
    )
    platform = hdsim.Platform.homogeneous(
        nodes=2, cores_per_node=4, processors_per_node=2, mem_bw=10.0, name="<i>8</i>"
    )
    return recorded(path, platform, workload, agent, contention="threshold", kill_at_walltime=True)


class Lazy(Agent):
    """Starts the first job and no other."""

    def decide(self, cluster: Any) -> None:
        for job in list(cluster.queue)[: 0 if cluster.placements else 1]:
            cluster.start(job, cluster.pick(job))


class Stopped(Agent):
    """First come first served, until it gets a signal at the third start."""

    def decide(self, cluster: Any) -> None:
        for job in list(cluster.queue):
            placement = cluster.pick(job)
            if placement is None:
                break
            cluster.start(job, placement)
            if len(cluster.placements) == 3:
                os.kill(os.getpid(), signal.SIGTERM)


def nothing_fits(path: Path) -> Run:
    workload = hdsim.Workload.from_columns(submission_time=[0, 1], runtime=[5, 5], requested_cores=[99, 99])
    return recorded(path, hdsim.Platform.homogeneous(nodes=2, cores_per_node=4), workload)


def one_instant(path: Path) -> Run:
    workload = hdsim.Workload.from_columns(submission_time=[0], runtime=[0], requested_cores=[1])
    return recorded(path, hdsim.Platform.homogeneous(nodes=1, cores_per_node=1), workload)


def checked(visit: Visit, plots: set[str], pictures: set[str]) -> None:
    assert visit.complaints == []
    assert visit.page.get("data-ready") == "true"
    curves = visit.curves()
    assert set(curves) == plots | pictures
    for key in plots:
        assert curves[key], f"{key} shows no curve"
        assert min(curves[key]) >= 2, f"{key} shows an empty curve"
    drawn = visit.pictures()
    assert set(drawn) == pictures
    for key, pixels in drawn.items():
        assert colors(pixels) >= 2, f"{key} is blank"


def colors(pixels: np.ndarray) -> int:
    """Number of colours in a picture (height, width, 3 or 4)."""
    whole = np.round(pixels * 255).astype(np.int64)
    return len(np.unique(whole @ (256 ** np.arange(whole.shape[-1]))))


def test_small_run(tmp_path: Path, visit: Callable[..., Visit]) -> None:
    platform = hdsim.load_platform(resolve("platforms", "teaching"))
    workload = hdsim.load_workload(resolve("workloads", "lublin_4000"), platform=platform, jobs=40, seed=1)
    run = recorded(tmp_path / "run", platform, workload, "sjf", contention="threshold")
    page = visit(render(run))
    checked(page, OVER_TIME | DISTRIBUTIONS, {"gantt_cores"} | SPANS)
    text = page.text()
    assert "sjf on teaching" in text
    assert f"hdsim {hdsim.__version__}" in text
    assert "16 cores, 4 processors, 2 nodes, 1 cluster" in text
    for name in ("mean bounded slowdown", "Oversubscribed memory bandwidth", "jobs/s of wall time"):
        assert name in text
    assert duration(run.metrics["makespan"]) in text


@pytest.mark.ci
def test_blocks_with_room_have_the_id_of_their_job(tmp_path: Path, visit: Callable[..., Visit]) -> None:
    platform = hdsim.load_platform(resolve("platforms", "teaching"))
    ids = ["a", "<b>$x$</b>", "short", "d"]
    workload = hdsim.Workload.from_columns(
        job_id=ids,
        submission_time=[0.0, 0, 0, 0],
        runtime=[1000.0, 500, 2, 500],
        requested_cores=[8, 8, 4, 4],
    )
    run = recorded(tmp_path / "run", platform, workload, "fcfs")
    page = visit(render(run))
    plot = page.page.get_element_by_id("gantt_cores")
    # The third job is too short for its name; the second one's is no markup.
    named = {"".join(text.itertext()) for text in plot.find_class("annotation-text")}
    assert named == {"a", "<b>$x$</b>", "d"}
    drawn = figures.draw(panels.panels(run), "gantt")
    assert {text.get_text() for axes in drawn.axes for text in axes.texts} == {"a", "<b>$x$</b>", "d"}


@pytest.mark.nightly
def test_two_thousand_jobs_are_drawn_one_by_one(tmp_path: Path, visit: Callable[..., Visit]) -> None:
    run = on_gaia(tmp_path / "run", panels.MAX_JOBS)
    page = visit(render(run), VISITOR)
    checked(page, OVER_TIME | DISTRIBUTIONS, {"gantt_cores", "queue_core_hours"} | SPANS)
    seen = json.loads(page.page.get_element_by_id("seen").text)
    assert seen["views"].keys() >= {"gantt_cores", "gantt_nodes", "occupancy", "oversubscription"}
    assert set(seen["views"].values()) == {"true"}
    tips = seen["tips"]
    assert any(re.match(r"core \d+, node \d+ of .*job.*started", tip) for tip in tips["gantt_cores"])
    assert any("waited" in tip for tip in tips["gantt_nodes"])
    assert any("busy cores" in tip and "%" in tip for tip in seen["tips"]["occupancy"])
    assert all(all(seen["tips"][key]) for key in OVER_TIME | DISTRIBUTIONS)
    # Zooming in on the schedule zooms whatever is over time, and nothing else.
    end = run.end_time
    for key in OVER_TIME | SPANS:
        assert seen["ranges"][key] == pytest.approx([end * 0.25, end * 0.5])
    assert seen["ranges"]["waiting_time"][0] == 0


def programs(path: Path) -> Run:
    """BSP jobs that slow each other down on processors and on links."""
    platform = hdsim.Platform.homogeneous(
        nodes=4, cores_per_node=4, mem_bw=20.0, bandwidth="1GBps", processors_per_node=2, name="small"
    )
    profile = {"type": "bsp", "supersteps": 9, "com": 5e7, "pattern": "ring", "mem_bw": 15, "l": 0.01}
    profiles = {f"p{size}": profile | {"cpu": [1e10 + 1e9 * task for task in range(size)]} for size in (3, 6)}
    jobs = [{"id": i, "subtime": 2 * i, "res": 3 + 3 * (i % 2), "profile": f"p{3 + 3 * (i % 2)}"} for i in range(12)]
    file = path.with_suffix(".json")
    file.write_text(json.dumps({"nb_res": 16, "jobs": jobs, "profiles": profiles}))
    workload = hdsim.load_workload(file, platform=platform, memory_bandwidth="trace")
    return recorded(path, platform, workload, "fcfs-spread", contention="fair_share", network="fluid")


@pytest.mark.nightly
def test_jobs_with_programs(tmp_path: Path, visit: Callable[..., Visit]) -> None:
    run = programs(tmp_path / "run")
    plots = OVER_TIME | DISTRIBUTIONS | {"contention", "communication", "barriers"}
    page = visit(render(run))
    checked(page, plots, {"gantt_cores"} | SPANS)
    legend = page.page.get_element_by_id("barriers").find_class("legendtext")
    assert {entry.text for entry in legend} == {"messages", "barriers"}
    assert "Cores' worth of speed" in page.text()
    seen = json.loads(visit(render(run), VISITOR).page.get_element_by_id("seen").text)
    assert seen["views"]["slowdown_factor_by_size"] == "true"
    for key in ("contention", "communication", "slowdown_factor", "slowdown_factor_by_size", "barriers"):
        assert any(re.search(r"\d", tip) for tip in seen["tips"][key])
    assert seen["ranges"]["contention"] == pytest.approx([run.end_time * 0.25, run.end_time * 0.5])


@pytest.mark.nightly
def test_ten_thousand_jobs_are_drawn_as_shares(tmp_path: Path, visit: Callable[..., Visit]) -> None:
    run = ten_thousand(tmp_path / "run")
    content = render(run)
    page = visit(content, VISITOR)
    checked(page, (OVER_TIME | DISTRIBUTIONS) - OF_CONTENTION, {"occupancy"})
    assert "by groups of 3 nodes at most" in page.text()
    seen = json.loads(page.page.get_element_by_id("seen").text)
    assert any(re.match(r"nodes \d+ to \d+", tip) for tip in seen["tips"]["occupancy"])
    # What depends on the run, beside the plotting library, does not grow with the number of jobs.
    data = re.search(r'<script type="application/json" id="arrays">(.*?)</script>', content, re.DOTALL)
    assert data
    assert len(data[1]) < 1_500_000


@pytest.mark.parametrize(("preferred", "other"), [("light", "dark"), *nightly(("dark", "light"))])
@pytest.mark.ci
def test_light_and_dark(preferred: str, other: str, tmp_path: Path, visit: Callable[..., Visit]) -> None:
    page = visit(
        render(mixed(tmp_path / "run")),
        THEMES.replace("OTHER", other),
        f"--blink-settings=preferredColorScheme={int(preferred == 'light')}",
    )
    assert page.complaints == []
    seen = json.loads(page.page.get_element_by_id("seen").text)

    def expected(theme: str) -> list[str]:
        paper, ink = (
            f"rgb({', '.join(str(int(found[place : place + 2], 16)) for place in (1, 3, 5))})"
            for found in (COLORS[name][theme == "dark"] for name in ("paper", "ink"))
        )
        return [paper, paper, ink, ink]

    assert seen == {
        "opened": expected(preferred),
        "print": expected("light"),
        "after": expected(preferred),
        "other": expected(other),
        "again": expected(other),
    }


@pytest.mark.parametrize("theme", [0, 1])
def test_contrast(theme: int) -> None:
    """Contrast as WCAG 2.2 defines it: 4.5 for text and 3 for curves and blocks, which is level AA."""

    def luminance(name: str) -> float:
        parts = [int(COLORS[name][theme][place : place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return float(np.dot((0.2126, 0.7152, 0.0722), linear))

    def contrast(name: str, ground: str) -> float:
        low, high = sorted((luminance(name), luminance(ground)))
        return (high + 0.05) / (low + 0.05)

    texts = [(text, ground) for text in ("ink", "soft") for ground in ("paper", "wash", "raised", "caution")]
    for text, ground in (*texts, ("accent", "paper"), ("on-accent", "accent")):
        assert contrast(text, ground) >= 4.5, (text, ground)
    grounds = {"paper", "wash", "raised", "caution", "ink", "soft", "line", "accent"}
    shapes = [name for name in COLORS if name not in grounds and not name.startswith(("heat-", "on-"))]
    assert len(shapes) == 25
    for name in shapes:
        assert contrast(name, "paper") >= 3, name
        # Names of blocks are black or white.
        assert max(contrast(name, "on-bright"), contrast(name, "on-dark")) >= 4.5, name
    for kind in ("heat-", "wait-"):
        scale = [luminance(name) for name in COLORS if name.startswith(kind)]
        assert sorted(scale, reverse=not theme) == scale
    assert contrast("heat-5", "heat-0") > 10


def test_style_and_script_take_all_colours_from_variables() -> None:
    text = "".join(
        (Path(page.__file__).parent / name).read_text() for name in ("report.css", "report.js", "table.js", "theme.js")
    )
    assert not re.search(r"#[0-9a-fA-F]{3,8}\b", text)
    assert set(re.findall(r"var\(--([\w-]+)\)", text)) <= set(COLORS)


@pytest.mark.nightly
def test_jobs_that_failed_were_killed_or_never_ran(tmp_path: Path, visit: Callable[..., Visit]) -> None:
    content = render(mixed(tmp_path / "run"))
    checked(visit(content, VISITOR), OVER_TIME | DISTRIBUTIONS, {"gantt_cores"} | SPANS)
    page = visit(content)
    checked(page, OVER_TIME | DISTRIBUTIONS, {"gantt_cores"} | SPANS)
    legend = page.page.get_element_by_id("gantt_cores").find_class("legendtext")
    assert {entry.text for entry in legend} == {"waited under 1 s", "10 s or more", "killed", "failed"}
    text = page.text()
    assert re.search(r"jobs rejected\s+1\b", text)
    assert re.search(r"jobs killed\s+1\b", text)
    assert "<i>8</i>" in text, "names appear as they are"


@pytest.mark.ci
def test_jobs_that_were_never_started(tmp_path: Path, visit: Callable[..., Visit]) -> None:
    page = visit(render(mixed(tmp_path / "run", Lazy())))
    checked(page, OVER_TIME | {"slowdown_factor"}, {"gantt_cores"} | SPANS)
    assert re.search(r"jobs unfinished\s+3\b", page.text())


@pytest.mark.ci
def test_interrupted_run(tmp_path: Path, visit: Callable[..., Visit]) -> None:
    page = visit(render(mixed(tmp_path / "run", Stopped())))
    assert page.complaints == []
    assert page.page.get("data-ready") == "true"
    (warning,) = page.page.find_class("warning")
    assert "interrupted by SIGTERM" in warning.text_content()
    assert "of 5 jobs that were done by then" in warning.text_content()
    assert page.curves()["utilization"][0] >= 2


@pytest.mark.parametrize("make", [nothing_fits, *nightly(one_instant)])
@pytest.mark.ci
def test_hardly_anything_to_show(make: Callable[[Path], Run], tmp_path: Path, visit: Callable[..., Visit]) -> None:
    page = visit(render(make(tmp_path / "run")))
    assert page.complaints == []
    assert page.page.get("data-ready") == "true"


def test_distributions_of_a_run_without_a_queue_are_sentences(tmp_path: Path) -> None:
    platform = hdsim.Platform.homogeneous(nodes=1, cores_per_node=2)
    jobs = hdsim.Workload.from_columns(submission_time=[0, 100], runtime=[20, 20], requested_cores=[1, 1])
    run = recorded(tmp_path / "run", platform, jobs, "fcfs")
    told = {panel.title: panel.note for panel in panels.panels(run) if not panel.views}
    assert told["Waiting time"] == "No job that has started waited 1 s or longer."
    assert told["Bounded slowdown"] == "No job that has ended was slowed down by waiting."


@pytest.mark.ci
def test_a_broken_page_is_noticed(visit: Callable[..., Visit]) -> None:
    for script in ("throw new Error('x')", "console.error('x')", "Promise.reject('x')", "fetch('http://example.org')"):
        content = f"<!DOCTYPE html><html><body><p>page</p><script>{script}</script></body></html>"
        assert visit(content).complaints, script


def lines_of(panel: panels.Panel) -> dict[str, Line]:
    chart = panel.views[0].chart
    assert isinstance(chart, Lines)
    return {line.label: line for line in chart.lines}


def test_long_curves_have_a_mean_and_a_band(tmp_path: Path) -> None:
    run = ten_thousand(tmp_path)
    for make, exact in ((panels.power, series.power(run)), (panels.running, series.running_jobs(run))):
        panel = make(run)
        (line,) = lines_of(panel).values()
        scale = 1e-3 if make is panels.power else 1.0
        assert len(exact.times) > POINTS >= len(line.x)
        assert line.high.max() == pytest.approx(scale * exact.values.max())
        assert line.low.min() == pytest.approx(scale * exact.values.min())
        _, mean, low, high = exact.stretches(STRETCHES)
        np.testing.assert_allclose(line.low[:-1], scale * low)
        np.testing.assert_allclose(line.high[:-1], scale * high)
        for place in (0, 5, STRETCHES // 2, STRETCHES - 1):
            around = mean[max(place - WINDOW // 2, 0) : place + WINDOW // 2 + 1]
            assert line.y[place] == pytest.approx(scale * around.mean())
        assert line.x[-1] == run.end_time
        assert "moving mean over" in panel.note
    counts = [len(line.x) for line in lines_of(panels.progress(run)).values()]
    assert max(counts) <= POINTS + 1


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(-9, 9)), min_size=1, max_size=20),
    st.integers(1, 7),
    st.integers(1, 30),
)
def test_stretches(changes: list[tuple[int, int]], count: int, more: int) -> None:
    """Against values that are looked up one by one, at a resolution that divides all stretches."""
    steps = dict(sorted(changes))
    times, values = np.array([0.0, *(time + 1.0 for time in steps)]), np.array([0.0, *map(float, steps.values())])
    end = times[-1] + more
    begins, mean, low, high = series.StepFunction(times, values, end).stretches(count)
    fine = (np.arange(count * int(end)) + 0.5) / count  # the value is constant in each of these cells
    value = np.array([values[np.flatnonzero(times <= time)[-1]] for time in fine]).reshape(count, -1)
    np.testing.assert_allclose(begins, np.arange(count) * end / count)
    np.testing.assert_allclose(mean, value.mean(axis=1), atol=1e-9)
    np.testing.assert_array_equal(low, value.min(axis=1))
    np.testing.assert_array_equal(high, value.max(axis=1))


def test_types_and_clusters_beside_the_axis() -> None:
    platform = hdsim.load_platform(resolve("platforms", "mc2"))
    strip = strip_of(platform, platform.node_first_core)
    assert strip is not None
    for core in range(0, platform.n_cores, 97):
        node = np.searchsorted(platform.node_first_core, core, side="right") - 1
        stretch = np.searchsorted(strip.first, core, side="right") - 1
        assert strip.names[strip.kind[stretch]] == platform.node_type_names[platform.node_type[node]]
        cluster = np.searchsorted(strip.clusters, core, side="right") - 1
        assert strip.cluster_names[cluster] == platform.cluster_names[platform.node_cluster[node]]
    alike = hdsim.Platform.homogeneous(nodes=3, cores_per_node=2)
    assert strip_of(alike, alike.node_first_core) is None


def of_users(path: Path, jobs: int = 60) -> Run:
    """Jobs of users and queues, some of them unknown, on two clusters of different nodes."""
    rng = np.random.default_rng(5)
    rows = zip(
        np.sort(rng.integers(0, 900, jobs)),
        rng.integers(1, 300, jobs),
        rng.integers(1, 9, jobs),
        rng.integers(-1, 4, jobs),
        rng.integers(1, 3, jobs),
        strict=True,
    )
    trace = path.with_suffix(".swf")
    trace.write_text(
        "".join(
            f"{number} {submit} -1 {run} {cores} -1 -1 {cores} {run} -1 1 {user} -1 -1 {queue} -1 -1 -1\n"
            for number, (submit, run, cores, user, queue) in enumerate(rows, 1)
        )
    )
    platform = hdsim.load_platform(resolve("platforms", "teaching"))
    return recorded(path, platform, hdsim.load_workload(trace, platform=platform), "easy")


def test_users_and_queues(tmp_path: Path) -> None:
    run = of_users(tmp_path / "run")
    assert run.jobs["user"].min() == -1 and "group" not in run.jobs and "partition" not in run.jobs
    made = {panel.title: panel for make in jobs.OWNERS if (panel := make(run)) is not None}
    assert list(made) == ["Users", "Queues"]
    for title, column in (("Users", "user"), ("Queues", "queue")):
        chart = made[title].views[0].chart
        assert isinstance(chart, ChartTable)
        names, counts, waits, slowdowns, hours, shares, high, busy = (fact.values for fact in chart.columns)
        assert list(hours) == sorted(hours, reverse=True) and sum(shares) == pytest.approx(100)
        assert sum(busy) == pytest.approx(100 * run.metrics["utilization"])
        for place, name in enumerate(names):
            own = run.jobs[column] == (-1 if name == "unknown" else int(name))
            execution, turnaround = (run.jobs[f"{what}_time"][own] for what in ("execution", "turnaround"))
            assert counts[place] == own.sum()
            assert waits[place] == pytest.approx(run.jobs["waiting_time"][own].mean())
            assert high[place] == pytest.approx(np.percentile(run.jobs["waiting_time"][own], 95))
            assert slowdowns[place] == pytest.approx(np.maximum(turnaround / np.maximum(execution, 10), 1).mean())
            cores = run.jobs["requested_number_of_resources"][own]
            assert hours[place] == pytest.approx((cores * execution).sum() / 3600)
        bars = made[title].views[2].chart
        assert isinstance(bars, Blocks) and bars.y.names == tuple(names[::-1])
        np.testing.assert_allclose(bars.finish, np.array(waits) / 3600)
    assert not any(make(mixed(tmp_path / "other")) for make in jobs.OWNERS)


def test_table_of_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = mixed(tmp_path)
    panel = jobs.table(run)
    assert panel is not None and panel.note.startswith("All jobs.")
    chart = panel.views[0].chart
    assert isinstance(chart, ChartTable)
    columns = {fact.label: list(fact.values) for fact in chart.columns}
    assert columns["state"] == ["completed", "failed", "rejected", "killed at its walltime", "completed"]
    assert columns["submitted"] == [0, 0, 1, 2, 3.5]
    assert [chart.columns[index].label for index in chart.span] == ["submitted", "waited", "ran"]
    monkeypatch.setattr(jobs, "ROWS", 2)
    panel = jobs.table(run)
    assert panel is not None and panel.note.startswith("The 2 of 5 jobs that waited longest.")
    waits = np.nan_to_num(run.jobs["waiting_time"], nan=-1.0)
    shown = [int(np.flatnonzero(run.jobs["job_id"] == name)[0]) for name in panel.views[0].chart.columns[0].values]
    assert waits[shown].tolist() == sorted(waits, reverse=True)[:2]


# Sorts the table of jobs by waiting time, clicks the first row, searches, turns a page, and clicks another row twice.
READER = """
<script>
(async () => {
  const pause = (ms) => new Promise((done) => setTimeout(done, ms));
  while (document.documentElement.dataset.ready !== "true") await pause(50);
  const seen = {}, table = document.querySelector(".choosable"), plot = document.getElementById("queue");
  const first = () => [...table.querySelector("tbody tr").cells].map((cell) => cell.textContent);
  const gantt = () => document.querySelector("#gantt_cores image").getAttribute("href").length;
  seen.full = plot.layout.xaxis.range.slice();
  [...table.querySelectorAll("th button")].find((head) => head.textContent === "waited").click();
  seen.longest = first();
  const before = gantt();
  table.querySelector("tbody tr").click();
  await pause(500);
  seen.zoomed = plot.layout.xaxis.range.slice();
  seen.repainted = gantt() !== before;
  table.querySelector("tbody tr").click();
  await pause(500);
  seen.back = plot.layout.xaxis.range.slice();
  table.querySelector("[aria-label='next page']").click();
  seen.place = table.querySelector("[role=status]").textContent;
  const search = table.querySelector("input");
  search.value = "no such job";
  search.dispatchEvent(new Event("input"));
  seen.none = table.querySelectorAll("tbody tr").length;
  for (const button of document.querySelectorAll(".views button")) { button.click(); await pause(50); }
  seen.bars = document.getElementById("user_core_hours").layout.yaxis.ticktext;
  const told = document.createElement("pre");
  told.id = "seen";
  told.textContent = JSON.stringify(seen);
  document.body.append(told);
})();
</script>
"""


@pytest.mark.ci
def test_reading_the_table(tmp_path: Path, visit: Callable[..., Visit]) -> None:
    run = of_users(tmp_path / "run")
    page = visit(render(run), READER)
    assert page.complaints == []
    seen = json.loads(page.page.get_element_by_id("seen").text)
    longest = int(np.argmax(run.jobs["waiting_time"]))
    begin, end = run.jobs["submission_time"][longest], run.finish_time[longest]
    assert seen["longest"][0] == run.jobs["job_id"][longest]
    assert seen["full"] == seen["back"] == [0, run.end_time]
    assert seen["zoomed"][0] < begin < end <= seen["zoomed"][1]
    assert seen["zoomed"][1] - seen["zoomed"][0] < 1.7 * (end - begin)
    assert seen["repainted"] and seen["place"] == "16 to 30 of 60" and seen["none"] == 0
    assert set(seen["bars"]) == {"unknown", "0", "1", "2", "3"}


def test_distributions_are_exact(tmp_path: Path) -> None:
    run = on_gaia(tmp_path, 500)
    waits = np.maximum(run.jobs["waiting_time"], 1.0)
    (line,) = lines_of(distributions.waiting_times(run)).values()
    for x, share in zip(line.x, line.y, strict=True):
        assert share == pytest.approx(100 * np.mean(waits <= x))
    (line,) = lines_of(distributions.slowdowns(run)).values()
    assert line.x[-2] == pytest.approx(run.metrics["max_bounded_slowdown"])


def test_blocks_hold_every_core_of_every_job(tmp_path: Path) -> None:
    run = on_gaia(tmp_path, 500)
    by_core, by_node, by_share = (view.chart for view in panels.schedule(run).views)
    assert isinstance(by_core, Blocks)
    assert isinstance(by_node, Blocks)
    assert isinstance(by_share, Heat)
    cores = np.bincount(by_core.item, by_core.high - by_core.low)
    assert cores.tolist() == run.segments.sizes.tolist()
    assert by_core.facts[0].values == [str(name) for name in run.jobs["job_id"][run.segments.job]]
    busy = series.busy_cores(run).integral()
    assert float(cores @ (by_core.finish - by_core.start)) == pytest.approx(busy)
    # Core ids on an axis of nodes: node n lies between n and n + 1.
    assert by_node.position[run.platform.node_first_core].tolist() == list(range(run.platform.n_nodes + 1))
    per_node = np.diff(run.platform.node_first_core)[:, None] * np.diff(by_share.times)
    assert float((by_share.share * per_node).sum()) == pytest.approx(busy)


def test_colours_of_jobs_are_their_waiting_times(tmp_path: Path) -> None:
    platform = hdsim.Platform.homogeneous(nodes=1, cores_per_node=1)
    jobs = hdsim.Workload.from_columns(
        submission_time=[0, 0, 0, 0], runtime=[10, 590, 6600, 1], requested_cores=[1, 1, 1, 1]
    )
    run = recorded(tmp_path / "run", platform, jobs, "fcfs")  # Jobs wait 0, 10, 600 and 7,200 s.
    chart = panels.schedule(run).views[0].chart
    assert isinstance(chart, Blocks)
    told = dict(chart.legend)
    assert list(told) == ["waited under 1 s", "under 1 min", "under 1 h", "1 h or more"]
    assert [chart.colors[place] for place in chart.color] == list(told.values())
    # Runs side by side share the scale of the longest wait of all.
    shared = figures.by_node(run, 40 * 86400)
    assert isinstance(shared, Blocks)
    assert [label for label, _ in shared.legend] == ["waited under 1 s", "under 1 d"]
    drawn = figures.draw(panels.panels(run), "gantt")
    assert [text.get_text() for text in drawn.axes[0].get_legend().get_texts()] == list(told)


def test_spans_give_way_to_shares(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = on_gaia(tmp_path, 100)
    spans, shares = (view.chart for view in panels.oversubscribed_spans(run).views)
    assert isinstance(spans, Blocks)
    assert isinstance(shares, Heat)
    total = float((spans.finish - spans.start).sum())
    sizes = np.diff(shares.lanes)[:, None] * np.diff(shares.times)
    assert float((shares.share * sizes).sum()) == pytest.approx(total)
    monkeypatch.setattr(panels, "MAX_SPANS", len(run.oversubscribed[0]) - 1)
    assert [view.key for view in panels.oversubscribed_spans(run).views] == ["oversubscription_shares"]


def test_every_metric_is_on_the_page(tmp_path: Path) -> None:
    run = mixed(tmp_path)
    page = dom.fromstring(render(run))
    rows = {row.find("th").text: row.findall("td") for row in page.iterfind(".//tbody/tr")}
    for family in ("waiting time", "turnaround time", "slowdown", "bounded slowdown"):
        assert len(rows[family]) == 6
    # Times have their own units; under the pointer are the seconds.
    (wait,) = rows["waiting time"][0]
    assert wait.text == duration(run.metrics["mean_waiting_time"])
    assert wait.get("title") == f"{format_number(run.metrics['mean_waiting_time'])} s"
    # A mean without its median stands alone.
    families = {name.removeprefix("median_") for name in run.metrics if name.startswith("median_")}
    alone = {name for name in run.metrics if name.partition("_")[2] not in families}
    listed = {element.text for element in page.xpath("//dl[@class='numbers']//dt")}
    tiles = {element.text for element in page.xpath("//div[@class='tile']/span")}
    assert listed | (tiles & {page_words(name) for name in alone}) == {
        page_words(name) for name in alone - set(metrics.FAIRNESS)
    }
    assert not listed & tiles and "All jobs are of one user" in page.text_content()
    of_several = dom.fromstring(render(of_users(tmp_path / "users")))
    assert "Jain's fairness index" in {element.text for element in of_several.xpath("//dl[@class='numbers']//dt")}


def test_same_run_same_bytes(tmp_path: Path) -> None:
    run = mixed(tmp_path)
    assert render(run) == render(read(tmp_path))


def test_the_page_needs_nothing_else(tmp_path: Path) -> None:
    page = dom.fromstring(render(mixed(tmp_path)))
    linked = [*page.xpath("//@src"), *page.xpath("//@href")]
    assert all(link.startswith("data:") for link in linked)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"job_policy": "shortest", "core_policy": "high_mem_bw"}, "shortest-high_mem_bw"),
        ({"job_policy": "fcfs", "core_policy": "any", "backfill": "none"}, "fcfs-any"),
        ({"job_policy": "fcfs", "backfill": "easy"}, "fcfs with easy backfilling"),
        ({"job_policy": "fcfs", "backfill": "easy", "backfill_order": "sjf"}, "fcfs with easy backfilling by sjf"),
        ({"path": "agents/mine.py"}, "mine"),
        ({"_target_": "package.Mine", "depth": 3}, "Mine"),
        ("sjf", "sjf"),
        (None, "agent"),
    ],
)
def test_agents_have_short_names(settings: Any, name: str) -> None:
    assert agent_name({"agent": settings}) == name


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"),
        (1.25, "1.25 s"),
        (59.0, "59 s"),
        (60.0, "1 min"),
        (61.4, "1 min 1 s"),
        (3599.9, "60 min"),
        (3600.0, "1 h"),
        (26_188.8, "7 h 16 min"),
        (86_400.0, "1 d"),
        (2_237_520.0, "25 d 22 h"),
        (np.nan, "–"),
    ],
)
def test_durations_read_well(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_empty_fields_of_details_are_left_out(tmp_path: Path) -> None:
    on_gaia(tmp_path, 300)
    path = tmp_path / "job_details.csv"
    header, first, *rows = path.read_text().splitlines()
    cells = dict(zip(header.split(","), first.split(","), strict=True))
    cells |= dict.fromkeys(("communication_time", "barrier_waiting_time", "slowdown_factor"), "")
    path.write_text("\n".join([header, ",".join(cells.values()), *rows, ""]))
    assert "slowdown_factor" in render(read(tmp_path))


@pytest.mark.parametrize("kind", ["png", *nightly("pdf", "svg")])
@pytest.mark.ci
def test_figures(kind: str, tmp_path: Path, hdsim: Callable[..., Any]) -> None:
    on_gaia(tmp_path / "run", 300)
    done = hdsim("report", tmp_path / "run", "--figures", "figures", "--figure-format", kind)
    assert (done.returncode, done.stderr) == (0, "")
    files = {path.stem: path for path in (tmp_path / "figures").iterdir()}
    assert {str(path.relative_to(tmp_path)) for path in files.values()} == set(done.stdout.split())
    assert set(files) == OVER_TIME | DISTRIBUTIONS | {
        "gantt_cores",
        "gantt_nodes",
        "occupancy",
        "oversubscription",
        "oversubscription_shares",
        "overview",
        "slowdown_factor_by_size",
        "queue_core_hours",
        "queue_waiting",
        "queue_slowdown",
    }
    for path in files.values():
        if kind == "png":
            assert colors(matplotlib.image.imread(path)) > 10, path.name
        elif kind == "pdf":
            assert path.read_bytes().startswith(b"%PDF"), path.name
        else:
            no_time = path.stem.removesuffix("_by_size") in DISTRIBUTIONS or path.stem.startswith("queue_")
            assert b"Time" in path.read_bytes() or no_time
    assert not (tmp_path / "run/report.html").exists()


@pytest.mark.parametrize("make", [nothing_fits, one_instant])
@pytest.mark.ci
def test_figures_of_runs_with_little_in_them(make: Callable[[Path], Run], tmp_path: Path) -> None:
    from hdsim.report.figures import write_all

    assert {path.stem for path in write_all(panels.panels(make(tmp_path / "run")), tmp_path / "figures")} >= {
        "utilization",
        "overview",
    }


@pytest.mark.parametrize("kind", ["svg", *nightly("png")])
@pytest.mark.ci
def test_same_run_same_figures(kind: str, tmp_path: Path) -> None:
    from hdsim.report import figures

    run = mixed(tmp_path / "run")
    shown = [panel for panel in (panels.schedule(run), panels.queue(run)) if panel]
    first, again = (figures.write_all(shown, tmp_path / name, kind) for name in ("first", "again"))
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in again]


@pytest.mark.ci
def test_command_writes_the_page(tmp_path: Path, hdsim: Callable[..., Any]) -> None:
    mixed(tmp_path / "run")
    done = hdsim("report", "run")
    assert (done.returncode, done.stdout, done.stderr) == (0, "run/report.html\n", "")
    assert (tmp_path / "run/report.html").read_text().endswith("</html>\n")
    done = hdsim("report", "run", "-o", "other.html", "--figures", "figures")
    assert done.returncode == 0
    assert (tmp_path / "other.html").read_bytes() == (tmp_path / "run/report.html").read_bytes()
    assert (tmp_path / "figures/overview.png").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere: expected a run directory, got nothing"),
        (["run", "-o", "no/folder/page.html"], "no/folder/page.html: expected a file that can be written"),
        (["run", "--figures", "file"], "file: expected a directory that can be written"),
        (["run", "--figure-format", "gif"], "'gif' is not one of"),
        (["failed"], "failed: expected a finished run, got one that is failed"),
    ],
)
def test_mistakes(arguments: list[str], message: str, tmp_path: Path, hdsim: Callable[..., Any]) -> None:
    mixed(tmp_path / "run")
    (tmp_path / "file").touch()
    broken = RunDirectory(tmp_path / "failed")
    broken.start({"seed": 1})
    broken.fail(RuntimeError("lost the plot"))
    done = hdsim("report", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.rglob("*.part"))


@pytest.mark.parametrize(
    ("values", "largest", "texts"),
    [
        ([13.684, 5.7326, 3.5944], False, ["13.684", "5.733", "3.594"]),
        ([3672.75, 1.0, 411.94], False, ["3,672.75", "1.00", "411.94"]),
        ([0.4734, np.nan], False, ["0.4734", "nan"]),
        ([-9.958, 0.0043, 0.0], True, ["-9.958", "0.004", "0.000"]),
        ([500.0, 12.0], False, ["500", "12"]),
        ([3.9854e15], False, ["3.9854e+15"]),
        ([-1e-17, 0.1516], False, ["0.0000", "0.1516"]),
        ([-0.2, 3000.0], True, ["0", "3,000"]),
    ],
)
def test_columns_of_numbers_have_equally_many_decimals(values: list[float], largest: bool, texts: list[str]) -> None:
    assert [*map(page.decimals(values, largest=largest), values)] == texts
