"""evalys, the tool for Batsim's files, reads what hdsim writes and draws it, without a change on either side."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

pytestmark = [pytest.mark.requires("evalys"), pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def pyplot() -> Iterator[Any]:
    """matplotlib without a display."""
    import matplotlib
    from matplotlib import pyplot

    before = matplotlib.get_backend()
    pyplot.switch_backend("agg")
    yield pyplot
    pyplot.close("all")
    pyplot.switch_backend(before)


def run(hdsim: Callable[..., CompletedProcess[str]], folder: Path, *overrides: str) -> Path:
    """A run directory with jobs that are split over the platform, and some that are killed or fit nowhere."""
    options = ["platform=teaching", "workload.jobs=120", "backend.kill_at_walltime=true", "agent=easy"]
    done = hdsim("run", *options, *overrides, f"hydra.run.dir={folder}")
    assert done.returncode == 0, done.stderr
    return folder


def test_jobs_are_drawn(hdsim: Callable[..., CompletedProcess[str]], tmp_path: Path, pyplot: Any) -> None:
    from evalys.jobset import JobSet
    from matplotlib.patches import Rectangle

    path = run(hdsim, tmp_path / "run") / "jobs.csv"
    jobs = JobSet.from_csv(str(path))
    ended = [row for row in jobs.df.to_dict("records") if row["final_state"] != "REJECTED"]
    assert len(ended) > 100
    jobs.gantt()
    # A box for every interval of cores of every job, as wide as the job is long.
    boxes = {
        (box.get_x(), box.get_y(), box.get_width(), box.get_height()) for box in pyplot.gcf().axes[0].findobj(Rectangle)
    }
    for row in ended:
        for span in row["allocated_resources"].intervals():
            box = (row["starting_time"], span.inf, row["execution_time"], span.sup - span.inf + 1)
            assert box in boxes
    assert any(len(list(row["allocated_resources"].intervals())) > 1 for row in ended)
    jobs.plot(with_details=True)
    pyplot.savefig(tmp_path / "details.png")
    assert (tmp_path / "details.png").stat().st_size > 10_000


def test_what_is_read_is_what_was_written(hdsim: Callable[..., CompletedProcess[str]], tmp_path: Path) -> None:
    from evalys.jobset import JobSet
    from evalys.mstates import MachineStatesChanges

    folder = run(hdsim, tmp_path / "run")
    theirs = JobSet.from_csv(str(folder / "jobs.csv")).df
    with (folder / "jobs.csv").open(newline="") as file:
        ours = list(csv.DictReader(file))
    for column in ("submission_time", "starting_time", "finish_time", "waiting_time", "consumed_energy", "stretch"):
        assert theirs[column].tolist() == [float(row[column]) for row in ours]
    for column in ("jobID", "final_state", "allocated_resources"):
        assert list(map(str, theirs[column])) == [row[column.replace("jobID", "job_id")] for row in ours]
    states = MachineStatesChanges(str(folder / "machine_states.csv")).df
    assert (states["nb_computing"] + states["nb_idle"] == 16).all()
    assert states["nb_computing"].max() > 8
