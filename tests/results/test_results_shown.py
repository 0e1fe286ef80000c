"""Results at the prompt and in notebooks: texts, tables, figures, pages and run directories."""

from __future__ import annotations

import copy
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hdsim
from hdsim.errors import ConfigError, HdsimError
from hdsim.report.figures import OVERVIEW
from hdsim.results.result import Result
from hdsim.results.run_directory.reader import read


class FirstFit(hdsim.Agent):
    def __init__(self, depth: int = 3) -> None:
        self.depth = depth

    def decide(self, cluster: object) -> None:
        for job in list(cluster.queue)[: self.depth]:  # type: ignore[attr-defined]
            placement = cluster.pick(job)  # type: ignore[attr-defined]
            if placement is not None:
                cluster.start(job, placement)  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def result() -> Result:
    platform = hdsim.load_platform("teaching")
    return hdsim.simulate(platform, hdsim.load_workload("lublin_4000", platform, jobs=60), "easy")


def test_bundled_names_are_the_files(root: Path) -> None:
    named = hdsim.simulate("teaching", "even_1000", "sjf", seed=3)
    platform = hdsim.load_platform(root / "platforms/teaching.json")
    read_from = hdsim.simulate(platform, hdsim.load_workload(root / "workloads/even_1000.swf", platform, seed=3), "sjf")
    assert np.array_equal(named.finish_time, read_from.finish_time)
    assert len(hdsim.load_workload("lublin", jobs=5, seed=1)) == 5
    assert "even_1000.swf on teaching with ClassicAgent: not begun" in repr(hdsim.Simulation("teaching", "even_1000"))


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (("gaja", "lublin_4000"), {}, "got 'gaja' (did you mean 'gaia'?)"),
        (("teaching", "lublin_400"), {}, "got 'lublin_400' (did you mean 'lublin_4000'?)"),
        (("teaching", "lublin_4000", "esay"), {}, "(did you mean 'easy'?)"),
        (("teaching", "lublin_4000"), {"seed": -1}, "seed: expected a whole number >= 0, got -1"),
        (("teaching", "lublin_4000"), {"seed": 1.5}, "seed: expected a whole number >= 0, got 1.5"),
        ((None, "lublin_4000"), {}, "platform: expected a Platform, a file or a bundled name, got NoneType"),
    ],
)
def test_mistakes_in_arguments(arguments: tuple[str, ...], options: dict[str, float], message: str) -> None:
    with pytest.raises(HdsimError) as caught:
        hdsim.simulate(*arguments, **options)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_a_file_beside_the_missing_one_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.swf").write_text("")
    with pytest.raises(HdsimError) as caught:
        hdsim.load_workload(tmp_path / "mime.swf")
    assert f"(did you mean '{tmp_path}/mine.swf'?)" in str(caught.value)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(HdsimError, match=r"\(did you mean 'mine.swf'\?\)"):
        hdsim.load_workload("mime.swf")


def test_texts(result: Result) -> None:
    assert repr(result.platform) == "<Platform teaching: 16 cores, 2 nodes (fast, frugal), 1 cluster>"
    line = repr(result)
    assert line.startswith("<Result of 60 jobs of lublin_4000.swf on teaching (16 cores), fcfs with easy backfilling: ")
    assert "makespan" in line and "\n" not in line
    assert repr(result.jobs).startswith("<Jobs: 60 rows; columns job_id, submission_time, ")
    page = result._repr_html_()
    assert page.count("class='tile'") == 6 and "<script" not in page
    table = result.jobs._repr_html_()
    assert table.count("<tr>") == 9 and "60 jobs; further columns: success" in table


def test_columns_are_made_when_asked_for(result: Result) -> None:
    jobs = copy.copy(result).jobs
    vars(result).pop("jobs", None)
    jobs = result.jobs
    assert not dict.__len__(jobs) and len(jobs) == 25 and "waiting_time" in jobs
    assert (jobs["waiting_time"] >= 0).all() and list(dict.keys(jobs)) == ["waiting_time"]
    with pytest.raises(KeyError, match="did you mean 'waiting_time'"):
        jobs["waiting_tme"]
    for change in (
        lambda: jobs.update(a=1),
        lambda: jobs.__setitem__("a", 1),
        lambda: jobs.pop("job_id"),
        jobs.clear,
    ):
        with pytest.raises(TypeError, match="read-only"):
            change()
    with pytest.raises(ValueError, match="read-only"):
        jobs["waiting_time"][0] = 1


@pytest.mark.parametrize(
    "copied",
    [
        dict,
        copy.copy,
        copy.deepcopy,
        lambda jobs: jobs.copy(),
        lambda jobs: jobs | {},
        lambda jobs: {} | jobs,
        lambda jobs: {**jobs},
        lambda jobs: pickle.loads(pickle.dumps(jobs)),
    ],
)
def test_copies_have_all_columns(result: Result, copied: object) -> None:
    vars(result).pop("jobs", None)
    made = copied(result.jobs)  # type: ignore[operator]
    assert list(made) == list(result.jobs)
    assert all(
        np.array_equal(made[name], result.jobs[name], equal_nan=column.dtype.kind == "f")
        for name, column in result.jobs.items()
    )


@pytest.mark.requires("pandas")
def test_pandas(result: Result) -> None:
    import pandas as pd

    for frame in (pd.DataFrame(result.jobs), result.to_pandas()):
        assert list(frame.columns) == list(result.jobs) and len(frame) == 60
        assert all(
            frame[name].tolist() == column.tolist() or column.dtype.kind == "f" for name, column in result.jobs.items()
        )
        assert frame["waiting_time"].mean() == pytest.approx(result.metrics["mean_waiting_time"])


@pytest.mark.requires("polars")
def test_polars(result: Result) -> None:
    import polars as pl

    for frame in (pl.DataFrame(result.jobs), result.to_polars()):
        assert frame.columns == list(result.jobs) and frame.height == 60
        assert frame["final_state"].to_list() == result.jobs["final_state"].tolist()


@pytest.mark.parametrize("name", ["pandas", "polars"])
def test_a_missing_package_is_named(result: Result, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigError, match=rf"{name}.*: pip install 'hdsim\[frames\]'$"):
        getattr(result, f"to_{name}")()


def test_figures(result: Result) -> None:
    for kind, axes in (("overview", len(OVERVIEW)), ("gantt", 1), ("occupancy", 1), ("power", 1)):
        figure = result.plot(kind)
        assert len([each for each in figure.axes if each.get_title(loc="left")]) == axes
    assert figure._repr_png_().startswith(b"\x89PNG")
    with pytest.raises(ConfigError, match=r"plot: expected one of gantt, .*, got 'powr' \(did you mean 'power'\?\)"):
        result.plot("powr")


def test_a_metric_that_there_is_not_names_the_nearest(result: Result) -> None:
    with pytest.raises(KeyError, match="'mean_wait' \\(did you mean 'mean_waiting_time'\\?\\); metrics: makespan, "):
        result.metrics["mean_wait"]
    with pytest.raises(KeyError, match=r"peak_power_watts.* are in hdsim\.results\.metrics\.full\(result\)"):
        result.metrics["peak_power_watts"]
    assert "mean_wait" not in result.metrics and result.metrics.get("mean_wait") is None


def test_page_and_run_directory(result: Result, tmp_path: Path) -> None:
    page = result.report(tmp_path / "page.html")
    assert "easy backfilling on teaching" in page.read_text(encoding="utf-8")
    with pytest.raises(ConfigError, match="expected a file that can be written"):
        result.report(tmp_path / "none" / "page.html")
    run = read(result.save(tmp_path / "saved"))
    assert run.manifest["status"] == "finished" and run.manifest["kind"] == "run"
    assert run.config["workload"]["path"] == "lublin_4000" and run.config["platform"]["path"] == "teaching"
    assert run.metrics["makespan"] == result.metrics["makespan"]


def test_a_saved_result_is_that_of_the_same_run(result: Result, tmp_path: Path, hdsim: Any) -> None:
    """The configuration in the manifest is that of `hdsim run`, except for the environments."""
    saved = result.save(tmp_path / "saved")
    done = hdsim(
        "run", "platform=teaching", "workload.jobs=60", "agent=easy", "seed=0", "hydra.run.dir=run", cwd=tmp_path
    )  # type: ignore[operator]
    assert done.returncode == 0, done.stderr
    ran = tmp_path / "run"
    for name in ("jobs.csv", "metrics.json", "job_details.csv", "machine_states.csv"):
        assert (saved / name).read_bytes() == (ran / name).read_bytes()
    mine, theirs = read(saved).config, read(ran).config
    assert {**mine, "env": None} == {**theirs, "env": None}


def test_settings_of_ones_own_agent_are_kept(result: Result, tmp_path: Path) -> None:
    mine = hdsim.simulate(result.platform, result.workload[:20], FirstFit(depth=7))
    assert mine.config["agent"]["_target_"].endswith("FirstFit") and mine.config["agent"]["depth"] == 7
    run = read(mine.save(tmp_path / "mine"))
    assert run.manifest["kind"] is None and run.config["workload"]["path"] is None


def test_the_package_lists_its_public_names_only() -> None:
    assert dir(hdsim) == sorted(hdsim.__all__)
