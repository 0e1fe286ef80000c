"""Panels of a training: what stands in progress.csv and actions.csv is drawn, and nothing where there is neither."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest
from test_compare import made

from hdsim.report import learning
from hdsim.report.charts import Heat, Lines, Panel
from hdsim.report.figures import write_all
from hdsim.report.html import render
from hdsim.report.panels import panels
from hdsim.results.run_directory.reader import Run, read

PROGRESS = """step,mean_reward,validation_makespan,validation_best_classic,episode_return,loss,value_loss
0,0,90,80,,,
100,-3.5,,,-70,0.5,2
200,-2.5,70,80,-50,0.25,1
"""
ACTIONS = """step,first-low_power,void
0,0,0
100,0.5,0.5
200,0.9,0.1
"""


@pytest.fixture
def run(tmp_path: Path) -> Run:
    made(tmp_path / "run", "fcfs")
    (tmp_path / "run/progress.csv").write_text(PROGRESS)
    (tmp_path / "run/actions.csv").write_text(ACTIONS)
    return read(tmp_path / "run")


def curves(panel: Panel | None) -> dict[str, dict[str, tuple[list[float], list[float]]]]:
    assert panel is not None
    return {
        view.key: {line.label: (line.x.tolist(), line.y.tolist()) for line in view.chart.lines}
        for view in panel.views
        if isinstance(view.chart, Lines)
    }


def test_every_number_is_drawn_where_there_is_one(run: Run) -> None:
    # Means are drawn over the steps they are of.
    assert curves(learning.rewards(run)) == {
        "training_mean_reward": {"Per decision": ([0, 100, 200], [-3.5, -2.5, -2.5])},
        "training_episode_return": {"Per episode": ([0, 100, 200], [-70, -50, -50])},
    }
    assert curves(learning.scores(run)) == {
        "training_validation_makespan": {
            "makespan (s)": ([0, 200], [90, 70]),
            "best classic policy": ([0, 200], [80, 80]),
        }
    }
    assert curves(learning.losses(run)) == {
        "training_loss": {"loss": ([0, 100, 200], [0.5, 0.25, 0.25])},
        "training_value_loss": {"value loss": ([0, 100, 200], [2, 1, 1])},
    }


def test_preferences_are_shares_of_the_decisions(run: Run) -> None:
    panel = learning.preferences(run)
    assert panel is not None and "In the end most often: first-low_power" in panel.note
    heat = panel.views[0].chart
    assert isinstance(heat, Heat) and heat.groups.names == ["first-low_power", "void"]
    np.testing.assert_allclose(heat.share, [[0.5, 0.9], [0.5, 0.1]])
    assert curves(panel)["preferred_actions"]["void"] == ([0, 100, 200], [50, 10, 10])


@pytest.mark.ci
def test_the_page_and_the_figures_have_them(run: Run, tmp_path: Path) -> None:
    page = render(run)
    assert all(f'"{title}"' in page for title in ("Rewards", "Validation", "Losses", "Action preferences"))
    # What a training is about comes first.
    assert [panel.title for panel in panels(run)][:5] == [
        "Validation",
        "Rewards",
        "Losses",
        "Action preferences",
        "Schedule",
    ]
    names = {path.stem for path in write_all(panels(run), tmp_path / "figures")}
    assert {"training_mean_reward", "training_loss", "actions", "preferred_actions"} <= names


def test_other_runs_have_no_such_panels(tmp_path: Path) -> None:
    made(tmp_path / "run", "fcfs")
    run = read(tmp_path / "run")
    assert not any(make(run) for make in (learning.rewards, learning.scores, learning.losses, learning.preferences))


def test_the_heading_tells_the_window_from_the_trace(tmp_path: Path, run: Run) -> None:
    manifest = run.manifest | {"workload": {"name": "w0", "jobs": 3000}}
    manifest["config"] = manifest["config"] | {"train": {"steps": 5000}}
    page = render(dataclasses.replace(run, manifest=manifest))
    facts = dict(re.findall("<dt>(.*?)</dt><dd>(.*?)</dd>", page.partition("<details>")[0]))
    shown = len(run.jobs["job_id"])
    assert facts["Workload"].endswith("3,000 jobs") and facts["Training"] == "5,000 steps"
    assert facts["Metrics and schedule"] == f"of the first test window, {shown} jobs"
    page = render(dataclasses.replace(run, manifest=manifest | {"status": "interrupted"}))
    assert "The training was interrupted. The page shows its records until then." in page
    (tmp_path / "run/progress.csv").unlink()
    assert "Training" not in render(dataclasses.replace(run, manifest=manifest)).partition("<details>")[0]
