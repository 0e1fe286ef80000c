"""Workloads in Parquet: what is read, what is kept, and columns of one's own beside it."""

from __future__ import annotations

import io
import json
import logging
import pickle
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner

import hdsim
from hdsim.cli.workload import workload as command
from hdsim.errors import WorkloadError
from hdsim.report.recorded import _of_trace
from hdsim.workload.generators.bsp import with_supersteps
from hdsim.workload.load import load_workload, validate_workload
from hdsim.workload.model import COLUMNS, GrowingWorkload, Workload
from hdsim.workload.parquet import read_parquet, write_parquet

BASE = {"submission_time": [5.0, 1.0, 3.0], "runtime": [10.0, 20.0, 30.0], "requested_cores": [1, 2, 4]}


def table(path: Path, **columns: object) -> Path:
    pl.DataFrame({**BASE, **columns}).write_parquet(path)
    return path


def equal(first: Workload, second: Workload) -> None:
    for name in set(COLUMNS) - {"extra", "profile"}:
        assert np.array_equal(getattr(first, name), getattr(second, name)), name


def test_a_table_of_the_three_required_columns(tmp_path: Path) -> None:
    jobs = load_workload(table(tmp_path / "w.parquet"), memory_bandwidth="none")
    equal(jobs, Workload.from_columns(**BASE))
    assert jobs.original_submission_time.tolist() == [1, 3, 5]


def test_all_columns_and_their_nulls(tmp_path: Path) -> None:
    path = table(
        tmp_path / "w.parquet",
        job_id=["a", "b", "c"],
        requested_time=[60, None, 90],
        walltime=[100.0, None, None],
        requested_gpus=[1, None, 0],
        memory=[None, 5.5, 0.0],
        memory_bandwidth=[1.0, 2.0, None],
        user=["ute", None, "bob"],
        group=[7, None, 8],
        partition=["gpu,cpu", "cpu", ""],
        status=[1, 0, None],
        fixed_duration=[True, None, False],
        priority=[None, 2, 3],
    )
    jobs = load_workload(path)
    assert jobs.job_id.tolist() == ["b", "c", "a"]
    assert jobs.requested_time.tolist() == [20, 90, 60]
    assert jobs.walltime.tolist() == [np.inf, np.inf, 100]
    assert jobs.requested_gpus.tolist() == [0, 0, 1]
    assert jobs.memory.tolist() == [5.5, 0, 0] and jobs.memory_bandwidth.tolist() == [2, 0, 1]
    assert jobs.user.tolist() == [-1, 0, 1] and jobs.names["user"] == {0: "bob", 1: "ute"}
    assert jobs.group.tolist() == [-1, 8, 7]
    assert jobs.partition.tolist() == [0, -1, 1] and jobs.names["partition"] == {0: "cpu", 1: "gpu,cpu"}
    assert jobs.status.tolist() == [0, -1, 1] and jobs.return_code.tolist() == [1, 0, 0]
    assert jobs.fixed_duration.tolist() == [False, False, True]
    assert jobs.priority.tolist() == [2, 3, 0]


def test_dates_and_durations_are_seconds(tmp_path: Path) -> None:
    begin = datetime(2026, 3, 2, 0, 24, 35)
    path = tmp_path / "w.parquet"
    dates = [begin + timedelta(minutes=minute) for minute in range(3)]
    columns = {"runtime": [timedelta(seconds=90)] * 3, "submission_time": dates, "eligible": dates}
    pl.DataFrame({**BASE, **columns}).write_parquet(path)
    jobs = load_workload(path)
    assert jobs.original_submission_time[0] == 1772411075
    assert jobs.runtime.tolist() == [90] * 3 and jobs.own_column("eligible").tolist()[2] == 1772411195


def test_further_columns_stay_beside_their_jobs(tmp_path: Path) -> None:
    path = table(
        tmp_path / "w.parquet",
        state=["FAILED", None, "ok"],
        nice=[1, 2, 3],
        nodes=[1, None, 3],
        whole=[True, False, True],
        held=[None, True, False],
        parts=[["a"], ["b", "c"], None],
        constraints=["gpu", None, "big"],
    )
    jobs = load_workload(path)
    assert jobs.own_column("state").tolist() == [None, "ok", "FAILED"]
    assert jobs.own_column("nice").tolist() == [2, 3, 1] and jobs.further["nice"].dtype == np.int64
    assert np.array_equal(jobs.own_column("nodes"), [np.nan, 3, 1], equal_nan=True)
    assert jobs.own_column("whole").dtype == np.bool_ and jobs.own_column("held").tolist() == [True, False, None]
    assert jobs.own_column("parts").tolist() == [["b", "c"], None, ["a"]]
    assert jobs.own_column("constraints").tolist() == [None, "big", "gpu"] and not jobs.has_constraints
    assert jobs.select([1, 2]).own_column("nice").tolist() == [3, 1]
    assert jobs.rows(2).own_column("state").tolist() == ["FAILED"]
    assert jobs.replaced(runtime=1).further is jobs.further
    back = pickle.loads(pickle.dumps(jobs))
    assert back.own_column("nice").tolist() == [2, 3, 1]
    with pytest.raises(ValueError, match="read-only"):
        back.further["nice"][0] = 1
    assert jobs.own_fields(2)["whole"] is True
    with pytest.raises(WorkloadError, match="'nise' \\(did you mean 'nice'\\?\\); there are: state, nice"):
        jobs.own_column("nise")


def test_further_columns_are_checked() -> None:
    made = Workload.from_columns(**BASE, further={"tier": ["a", "b", "c"]})
    assert made.own_column("tier").tolist() == ["b", "c", "a"]
    with pytest.raises(WorkloadError, match=r"further\['tier'\]: expected 3 values, got 2"):
        Workload.from_columns(**BASE, further={"tier": [1, 2]})
    with pytest.raises(WorkloadError, match="expected another name than that of a column, got 'runtime'"):
        Workload.from_columns(**BASE, further={"runtime": [1, 2, 3]})


def test_a_growing_workload_keeps_the_columns_that_all_jobs_have() -> None:
    first = Workload.from_columns(**BASE, further={"tier": ["a", "b", "c"], "nice": [1, 2, 3]})
    growing = GrowingWorkload(first)
    growing.add(Workload.from_columns(**BASE, further={"nice": [4.5, 5, 6]}))
    assert list(growing.jobs.further) == ["nice"]
    assert growing.jobs.own_column("nice").tolist() == [2, 3, 1, 5, 6, 4.5]
    assert len(growing.jobs) == 6 and first.own_column("tier").tolist() == ["b", "c", "a"]


def test_agents_see_further_columns(tmp_path: Path) -> None:
    seen = {}

    class Agent(hdsim.Agent):
        def decide(self, cluster: hdsim.Cluster) -> None:
            for job in list(cluster.queue):
                seen[cluster.job(job).extra["tier"]] = cluster.workload.own_column("tier")[job]
                cluster.start(job)

    jobs = load_workload(table(tmp_path / "w.parquet", tier=["a", "b", "c"]))
    hdsim.simulate(hdsim.Platform.homogeneous(nodes=1, cores_per_node=8), jobs, Agent())
    assert seen == {"a": "a", "b": "b", "c": "c"}


def test_columns_of_some_jobs_have_their_further_columns(tmp_path: Path) -> None:
    jobs = load_workload(table(tmp_path / "w.parquet", tier=["a", "b", "c"]))
    part = jobs.columns_at(np.array([0, 2]))
    assert part["runtime"].tolist() == [20, 10] and part["further"]["tier"].tolist() == ["b", "a"]


def test_the_same_workload_in_swf_json_and_parquet(tmp_path: Path) -> None:
    source = hdsim.load_workload("lublin_4000", jobs=300, memory_bandwidth="trace")
    for suffix in ("swf", "json"):
        path = tmp_path / f"w.{suffix}"
        CliRunner().invoke(
            command, ["convert", "lublin_4000", "--jobs", "300", "-o", str(path)], catch_exceptions=False
        )
        made = tmp_path / f"{suffix}.parquet"
        CliRunner().invoke(command, ["convert", str(path), "-o", str(made)], catch_exceptions=False)
        back = load_workload(made, memory_bandwidth="trace")
        original = load_workload(path, memory_bandwidth="trace")
        equal(back, original)
        assert back.cluster_cores == source.cluster_cores == original.cluster_cores
        assert "offered load" in CliRunner().invoke(command, ["show", str(made)], catch_exceptions=False).output
        assert "no fault" in CliRunner().invoke(command, ["validate", str(made)], catch_exceptions=False).output


def test_names_and_fields_of_json_are_columns(tmp_path: Path) -> None:
    jobs = [
        {"id": "x", "subtime": 0, "res": 1, "profile": "p", "user": "bob", "deadline": 5, "tags": {"a": [1]}},
        {"id": "y", "subtime": 1, "res": 2, "profile": "p", "walltime": 9},
    ]
    document = {"nb_res": 4, "jobs": jobs, "profiles": {"p": {"type": "delay", "delay": 3}}}
    (tmp_path / "w.json").write_text(json.dumps(document))
    write_parquet(load_workload(tmp_path / "w.json"), tmp_path / "w.parquet")
    frame = pl.read_parquet(tmp_path / "w.parquet")
    assert frame["user"].to_list() == ["bob", None] and frame["walltime"].to_list() == [None, 9]
    assert frame["deadline"].to_list() == [5, None] and frame["tags"].to_list() == ['{"a": [1]}', None]
    back = load_workload(tmp_path / "w.parquet")
    assert back.names["user"] == {0: "bob"} and back.fixed_duration.all() and back.job_id.tolist() == ["x", "y"]
    CliRunner().invoke(command, ["convert", str(tmp_path / "w.parquet"), "-o", str(tmp_path / "2.json")])
    again = json.loads((tmp_path / "2.json").read_text())["jobs"]
    assert again[0]["deadline"] == 5 and again[0]["user"] == "bob" and "deadline" not in again[1]


def test_equal_workloads_give_equal_bytes(tmp_path: Path) -> None:
    jobs = load_workload("lublin_4000")
    write_parquet(jobs, tmp_path / "a.parquet")
    write_parquet(load_workload("lublin_4000"), tmp_path / "b.parquet")
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()


def test_cancelled_jobs_and_repeated_ids_as_in_swf(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = table(tmp_path / "w.parquet", job_id=[7, 7, 8], runtime=[1.0, 2.0, 0.0], status=[1, 5, 5])
    with caplog.at_level(logging.WARNING):
        jobs = load_workload(path)
    assert jobs.job_id.tolist() == ["7.1", "7"] and jobs.return_code.tolist() == [1, 0]
    assert "left out 1 of 3 lines: 1 jobs cancelled before they started" in caplog.text
    assert len(load_workload(path, status="ignore")) == 3


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"runtime": [1.0, None, 3.0]}, "row 2: runtime: expected a finite number, got none"),
        ({"runtime": [1.0, float("nan"), 3.0]}, "row 2: runtime: expected a finite number, got none"),
        ({"memory": [1.0, 1.0, float("inf")]}, "row 3: memory: expected a finite number, got inf"),
        ({"requested_cores": [1.0, 2.5, 1.0]}, "row 2: requested_cores: expected a whole number, got 2.5"),
        ({"runtime": ["1", "2", "3"]}, "w.parquet: runtime: expected numbers, got String"),
        ({"submission_time": [[1], [2], [3]]}, "w.parquet: submission_time: expected numbers, got List"),
        ({"priority": ["high", "low", None]}, "w.parquet: priority: expected numbers, got String"),
        ({"job_id": [1, None, 3]}, "row 2: job_id: expected an id, got none"),
        ({"runtime": [1e13, 1.0, 1.0], "requested_time": 1}, "row 1: runtime: expected at most 1e+12 s, got 1e+13"),
    ],
)
def test_faults_name_the_row_and_the_column(tmp_path: Path, columns: dict[str, object], message: str) -> None:
    path = table(tmp_path / "w.parquet", **columns)
    with pytest.raises(WorkloadError) as error:
        load_workload(path)
    assert message in str(error.value) and "\n" not in str(error.value)
    assert message in str(validate_workload(path)[0])


def test_infeasible_jobs_name_their_rows(tmp_path: Path) -> None:
    path = table(tmp_path / "w.parquet", runtime=[1.0, -2.0, 3.0])
    assert str(load_workload(path).dropped[0]) == f"{path}: row 2: runtime: expected at least 0 s, got -2"


def test_files_that_are_no_such_tables(tmp_path: Path) -> None:
    whole = table(tmp_path / "w.parquet").read_bytes()
    empty, lacking = io.BytesIO(), io.BytesIO()
    pl.DataFrame(BASE).clear().write_parquet(empty)
    pl.DataFrame({"submission_time": [1], "Runtime": [2]}).write_parquet(lacking)
    for content, message in (
        (b"1 2 3\n", "expected a Parquet file (first bytes PAR1), got b'1 2 '"),
        (whole[: len(whole) // 2], "expected a complete Parquet file: "),
        (empty.getvalue(), "expected at least one job, got an empty table"),
        (lacking.getvalue(), "expected the columns runtime, requested_cores too, got submission_time, Runtime"),
    ):
        path = tmp_path / "bad.parquet"
        path.write_bytes(content)
        with pytest.raises(WorkloadError) as error:
            load_workload(path)
        assert message in str(error.value) and "\n" not in str(error.value)


def test_jobs_without_a_place_are_refused(tmp_path: Path) -> None:
    platform = hdsim.Platform.homogeneous(nodes=4, cores_per_node=4)
    jobs = with_supersteps(Workload.from_columns(**BASE), platform, supersteps=3, bandwidth=1, seed=1)
    with pytest.raises(WorkloadError, match="expected jobs without programs, which Parquet has no place for"):
        write_parquet(jobs, tmp_path / "w.parquet")


def test_without_polars_one_line_says_what_to_install(tmp_path: Path, root: Path) -> None:
    path = table(tmp_path / "w.parquet")
    code = f"from hdsim.cli import main; main(['workload', 'show', '{path}'])"
    without = f"import sys; sys.modules['polars'] = None; {code}"
    done = subprocess.run([sys.executable, "-c", without], capture_output=True, text=True, cwd=root)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.endswith("pip install 'hdsim[frames]'")


def test_recorded_waiting_times(tmp_path: Path) -> None:
    path = table(tmp_path / "w.parquet", job_id=[1, 2, 3], recorded_start=[25.0, None, 4.0])
    _, digest = read_parquet(path)
    assert dict(_of_trace(str(path), digest, "recorded")) == {"1": 20, "3": 1}
