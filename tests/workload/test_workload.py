"""Columns, selection and synthesis; jobs that cannot be replayed."""

from __future__ import annotations

import json
import logging
import pickle
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdsim.errors import WorkloadError
from hdsim.platform.model import Platform
from hdsim.workload.feasibility import feasible_cores
from hdsim.workload.load import BANDWIDTHS, RUNTIME_PROBABILITIES, RUNTIME_SHARES, load_workload, validate_workload
from hdsim.workload.model import COLUMNS, Workload

times = st.lists(st.floats(0, 1e7) | st.integers(0, 50).map(float), min_size=1, max_size=30)


def make(submission: list[float], **columns: object) -> Workload:
    columns = {"runtime": np.arange(len(submission)), "requested_cores": 1, **columns}
    return Workload.from_columns(submission_time=submission, **columns)  # type: ignore[arg-type]


def swf(path: Path, *jobs: str) -> Path:
    path.write_text("".join(f"{job}\n" for job in jobs))
    return path


def job(number: int, submit: float = 0, run: float = 10, cores: int = 1, request: float = -1, memory: int = -1) -> str:
    return f"{number} {submit} -1 {run} {cores} -1 -1 {cores} {request} {memory} 1 3 4 5 6 7 -1 -1"


def test_defaults() -> None:
    workload = Workload.from_columns(submission_time=[3, 5], runtime=[10, 20], requested_cores=[1, 2])
    assert len(workload) == 2
    assert workload.job_id.tolist() == [0, 1]
    assert workload.submission_time.tolist() == [0, 2]
    assert workload.original_submission_time.tolist() == [3, 5]
    assert workload.requested_time.tolist() == [10, 20]
    assert np.isinf(workload.walltime).all()
    assert workload.memory.tolist() == workload.memory_bandwidth.tolist() == [0, 0]
    assert workload.user.tolist() == [-1, -1]
    assert not workload.fixed_duration.any()
    assert workload.profile.tolist() == ["", ""] and workload.extra.tolist() == [None, None]


@given(times)
def test_columns_are_sorted_by_submission_ties_in_order_and_begin_at_zero(submission: list[float]) -> None:
    workload = make(submission)
    order = sorted(range(len(submission)), key=lambda row: submission[row])
    assert workload.job_id.tolist() == order
    assert workload.runtime.tolist() == order
    assert workload.submission_time[0] == 0
    assert workload.submission_time.tolist() == [submission[row] - min(submission) for row in order]
    assert workload.original_submission_time.tolist() == sorted(submission)


@given(times, st.data())
def test_a_selection_begins_at_zero_and_keeps_the_original_clock(submission: list[float], data: st.DataObject) -> None:
    workload = make(submission)
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(submission), max_size=len(submission))))
    if not mask.any():
        with pytest.raises(WorkloadError, match="at least one"):
            workload.select(mask)
        return
    part = workload.select(mask)
    rows = np.flatnonzero(mask)
    assert part.job_id.tolist() == workload.job_id[rows].tolist()
    assert part.original_submission_time.tolist() == workload.original_submission_time[rows].tolist()
    assert part.submission_time[0] == 0
    assert np.array_equal(part.submission_time, workload.submission_time[rows] - workload.submission_time[rows[0]])


def test_a_trace_that_starts_at_zero_is_not_shifted_again() -> None:
    assert make([0, 5, 9]).submission_time.tolist() == [0, 5, 9]
    assert make([0, 5, 9])[1:].submission_time.tolist() == [0, 4]


def test_slices() -> None:
    workload = make([0, 1, 2, 3])
    assert workload[1:3].job_id.tolist() == [1, 2]
    assert workload[::-1].job_id.tolist() == [0, 1, 2, 3]
    assert workload.select([3, 0, 3]).job_id.tolist() == [0, 3]
    with pytest.raises(TypeError, match=r"workload\[10:20\]"):
        workload[0]  # type: ignore[index]
    with pytest.raises(WorkloadError, match="4 jobs"):
        workload.select([4])


@given(times, st.floats(0, 100))
def test_arrival_factor_stretches_gaps_only(submission: list[float], factor: float) -> None:
    workload = make(submission)
    scaled = workload.scaled_arrivals(factor)
    assert np.array_equal(scaled.submission_time, workload.submission_time * factor)
    for key in set(COLUMNS) - {"submission_time"}:
        assert getattr(scaled, key) is getattr(workload, key)


@pytest.mark.parametrize("factor", [-1, float("nan"), float("inf")])
def test_arrival_factor_out_of_range(factor: float) -> None:
    with pytest.raises(WorkloadError, match="arrival_factor: expected a finite number of at least 0"):
        make([0]).scaled_arrivals(factor)


def test_columns_are_read_only_even_out_of_a_pickle() -> None:
    workload = make([0, 1])
    for copy in (workload, workload[:1], workload.scaled_arrivals(2), pickle.loads(pickle.dumps(workload))):
        for key in COLUMNS:
            assert not getattr(copy, key).flags.writeable, key


def test_given_arrays_stay_as_they_are() -> None:
    runtime = np.array([2.0, 1.0])
    make([1, 0], runtime=runtime)
    assert runtime.flags.writeable and runtime.tolist() == [2, 1]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"runtime": [1, -2]}, r"runtime\[1\]: expected at least 0, got -2"),
        ({"runtime": [1, float("nan")]}, r"runtime\[1\]: expected a number, got nan"),
        ({"runtime": [1, float("inf")]}, r"runtime\[1\]: expected a finite number"),
        ({"requested_cores": [0, 1]}, r"requested_cores\[0\]: expected at least 1, got 0"),
        ({"requested_cores": [1, 1.5]}, r"requested_cores\[1\]: expected a whole number, got 1.5"),
        ({"memory": [1, 2, 3]}, "memory: expected 2 numbers"),
        ({"memory": "much"}, "memory: expected 2 numbers"),
        ({"walltime": 0}, r"walltime\[0\]: expected more than 0 s"),
        ({"extra": [None]}, None),
        ({"profile": ["a", "b", "c"]}, "profile: expected 2 values"),
        ({"memroy": 1}, r"unknown column 'memroy' \(did you mean 'memory'\?\); allowed: job_id, "),
    ],
)
def test_values_no_job_can_have(columns: dict[str, object], message: str | None) -> None:
    if message is None:
        assert make([0, 1], **columns).extra.tolist() == [None, None]
        return
    with pytest.raises(WorkloadError, match=message):
        make([0, 1], **columns)


def test_no_job() -> None:
    with pytest.raises(WorkloadError, match="at least one job"):
        make([])


def test_offered_load() -> None:
    workload = make([0, 50, 100], runtime=[10, 20, 30], requested_cores=[1, 2, 4])
    assert workload.cluster_cores == 4
    assert workload.offered_load == (10 + 40 + 120) / (4 * 100)


def test_drawn_bandwidth_depends_on_seed_and_not_on_the_part_taken(tmp_path: Path) -> None:
    path = swf(tmp_path / "t.swf", *(job(n, n) for n in range(500)))
    whole = load_workload(path, seed=7)
    assert set(whole.memory_bandwidth) == set(BANDWIDTHS)
    assert np.array_equal(load_workload(path, seed=7).memory_bandwidth, whole.memory_bandwidth)
    assert not np.array_equal(load_workload(path, seed=8).memory_bandwidth, whole.memory_bandwidth)
    part = load_workload(path, seed=7, start=100, jobs=50)
    assert part.job_id.tolist() == list(range(100, 150))
    assert np.array_equal(part.memory_bandwidth, whole.memory_bandwidth[100:150])


@pytest.mark.parametrize(("setting", "expected"), [("none", 0), ("trace", 0), (6.5, 6.5), ("6.5", 6.5)])
def test_bandwidth_settings(tmp_path: Path, setting: str | float, expected: float) -> None:
    path = swf(tmp_path / "t.swf", job(1))
    assert load_workload(path, memory_bandwidth=setting).memory_bandwidth.tolist() == [expected]


def test_each_job_draws_one_of_a_list_of_bandwidths(tmp_path: Path) -> None:
    path = swf(tmp_path / "t.swf", *(job(n, n) for n in range(500)))
    drawn = load_workload(path, seed=7, memory_bandwidth=[1, 6, 24]).memory_bandwidth
    assert dict(Counter(drawn.tolist())).keys() == {1.0, 6.0, 24.0}
    assert min(Counter(drawn.tolist()).values()) > 120
    part = load_workload(path, seed=7, start=100, jobs=50, memory_bandwidth=[1, 6, 24])
    assert np.array_equal(part.memory_bandwidth, drawn[100:150])
    with pytest.raises(WorkloadError, match=r"workload\.memory_bandwidth: expected .* got '-1'"):
        load_workload(path, memory_bandwidth=[1, -1])


@pytest.mark.parametrize(("setting", "expected"), [("trace", [2.0, 0.0]), ("none", [0, 0]), (100, [100, 100])])
def test_memory_settings(tmp_path: Path, setting: str | float, expected: list[float]) -> None:
    path = swf(tmp_path / "t.swf", job(1, memory=2000), job(2))
    assert load_workload(path, memory=setting).memory.tolist() == expected


def test_runtime_settings(tmp_path: Path) -> None:
    path = swf(tmp_path / "t.swf", *(job(n, n, run=5, request=1000) for n in range(20000)))
    assert set(load_workload(path).runtime) == {5}
    assert set(load_workload(path, runtime="requested").runtime) == {1000}
    share = load_workload(path, runtime="hdeeprm").runtime / 1000
    values, counts = np.unique(np.round(share, 6), return_counts=True)
    assert np.allclose(values, RUNTIME_SHARES)
    assert np.allclose(counts / len(share), RUNTIME_PROBABILITIES, atol=0.012)


def test_probabilities_of_runtime_shares() -> None:
    assert len(RUNTIME_SHARES) == len(RUNTIME_PROBABILITIES) == 25
    assert RUNTIME_PROBABILITIES.sum() == pytest.approx(1)
    assert RUNTIME_SHARES[[0, -1]].tolist() == pytest.approx([0.05, 1.25])


def test_walltime_settings(tmp_path: Path) -> None:
    path = swf(tmp_path / "t.swf", job(1, request=60), job(2, run=0))
    assert load_workload(path).walltime.tolist() == [np.inf, np.inf]
    assert load_workload(path, walltime="requested").walltime.tolist() == [60, np.inf]
    assert load_workload(path, walltime="none").walltime.tolist() == [np.inf, np.inf]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"runtime": "hdeprm"}, r"workload.runtime: expected one of trace, requested, hdeeprm, got 'hdeprm' \(did you"),
        ({"walltime": "x"}, "workload.walltime: expected one of"),
        ({"memory": "x"}, "workload.memory: expected 'trace', 'none' or a number of at least 0, got 'x'"),
        ({"memory": -1}, "workload.memory: .* got '-1'"),
        ({"memory_bandwidth": "nan"}, "workload.memory_bandwidth: expected 'draw', 'none' or a number"),
        ({"jobs": 0}, "workload.jobs: expected at least 1 job"),
        ({"start": 2}, "workload.start: expected a first job from 0 to 1, got 2"),
        ({"start": -1}, "workload.start: expected a whole number >= 0, got -1"),
        ({"start": 0.5}, "workload.start: expected a whole number >= 0, got 0.5"),
        ({"jobs": "many"}, "workload.jobs: expected at least 1 job or null for all, got 'many'"),
        ({"seed": -1}, "seed: expected a whole number >= 0, got -1"),
        ({"seed": "1"}, "seed: expected a whole number >= 0, got '1'"),
        ({"arrival_factor": -1}, "arrival_factor"),
    ],
)
def test_settings_out_of_range(tmp_path: Path, settings: dict[str, object], message: str) -> None:
    path = swf(tmp_path / "t.swf", job(1), job(2))
    with pytest.raises(WorkloadError, match=message):
        load_workload(path, **settings)  # type: ignore[arg-type]


def test_fewer_jobs_than_asked_for_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = swf(tmp_path / "t.swf", job(1), job(2))
    assert len(load_workload(path, jobs=5)) == 2
    assert "expected 5 jobs from job 0 on, got 2" in caplog.text


def test_unsorted_trace_is_sorted_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = swf(tmp_path / "t.swf", job(1, 9), job(2, 5), job(3, 5))
    workload = load_workload(path)
    assert workload.job_id.tolist() == [2, 3, 1]
    assert workload.submission_time.tolist() == [0, 0, 4]
    assert "out of order" in caplog.text


@pytest.fixture
def impossible(tmp_path: Path) -> Path:
    return swf(
        tmp_path / "t.swf",
        "; MaxProcs: 8",
        job(1, 100, cores=8),
        job(2, 101, cores=9),
        job(3, 102, cores=0),
        job(4, 103, run=-1),
        job(5, 104, cores=4, memory=3_000_000),
        job(6, -5),
        job(7, 105, cores=2, memory=3_000_000),
    )


def small(memory_gb: float | None = 4) -> Platform:
    return Platform.homogeneous(nodes=2, cores_per_node=4, memory_gb_per_node=memory_gb)


def test_jobs_that_cannot_be_replayed_are_dropped_and_counted(
    impossible: Path, caplog: pytest.LogCaptureFixture
) -> None:
    workload = load_workload(impossible, small())
    assert workload.job_id.tolist() == [1, 7]
    assert workload.original_submission_time.tolist() == [100, 105]
    assert [str(error) for error in workload.dropped] == [
        f"{impossible}:3: field 8 (requested processors): expected 1 to 8 (the platform's cores), got 9",
        f"{impossible}:4: field 5 (allocated processors): expected 1 to 8 (the platform's cores), got 0",
        f"{impossible}:5: field 4 (run time): expected at least 0 s, got -1",
        f"{impossible}:6: field 10 (requested memory): expected memory for 4 cores, got 3000 MB a core, which the "
        "platform's nodes have for 2 cores",
        f"{impossible}:7: field 2 (submit time): expected at least 0 s, got -5",
    ]
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "dropped 5 of 7 jobs (1 x field 8 (requested processors), " in record.getMessage()


def test_without_a_platform_no_job_is_too_large(impossible: Path) -> None:
    assert load_workload(impossible).job_id.tolist() == [1, 2, 5, 7]
    assert load_workload(impossible, small(None)).job_id.tolist() == [1, 5, 7]


def test_strict_lists_every_job_that_cannot_be_replayed(impossible: Path) -> None:
    with pytest.raises(WorkloadError) as caught:
        load_workload(impossible, small(), strict=True)
    assert len(caught.value.errors) == len(str(caught.value).splitlines()) == 5


def test_validate_lists_them_too(impossible: Path) -> None:
    assert len(validate_workload(impossible, small())) == 5
    assert len(validate_workload(impossible)) == 3


def test_nothing_left(tmp_path: Path) -> None:
    path = swf(tmp_path / "t.swf", job(1, cores=0), job(2, run=-1))
    with pytest.raises(WorkloadError, match=r"got 2 infeasible ones; the first: .*t.swf:1: field 5"):
        load_workload(path)


@given(
    st.lists(st.tuples(st.integers(1, 8), st.integers(1, 20)), min_size=1, max_size=4),
    st.lists(st.integers(0, 9), min_size=1, max_size=5),
)
def test_room_on_an_empty_platform(nodes: list[tuple[int, int]], memory: list[int]) -> None:
    platform = Platform.from_dict(
        {
            "clusters": [{"id": "c", "nodes": [{"type": f"n{i}", "number": 1} for i in range(len(nodes))]}],
            "types": {
                "node": {
                    f"n{i}": {"processors": [{"type": f"p{i}", "number": 1}], "memory": {"capacity": gb}}
                    for i, (_, gb) in enumerate(nodes)
                },
                "processor": {
                    f"p{i}": {"cores": cores, "clock_rate": 1, "dpflops_per_cycle": 1, "power": 1}
                    for i, (cores, _) in enumerate(nodes)
                },
            },
        }
    )
    for megabytes, room in zip(memory, feasible_cores(platform, np.array(memory) * 1000.0), strict=True):
        assert room == sum(min(cores, gb // megabytes if megabytes else cores) for cores, gb in nodes)


@pytest.mark.parametrize("time", [1.1e12, 1e18, 1e100])
@pytest.mark.parametrize("name", ["submission_time", "runtime", "requested_time"])
def test_times_that_floats_do_not_resolve_are_refused(name: str, time: float, tmp_path: Path) -> None:
    number = {"submission_time": 1, "runtime": 3, "requested_time": 8}[name]
    fields = ["1", "0", "-1", "10", "1", "-1", "-1", "1", "20", "-1", "1", "1", "1", "1", "1", "1", "-1", "-1"]
    trace = tmp_path / "far.swf"
    trace.write_text(" ".join(fields) + "\n")
    assert len(load_workload(trace)) == 1
    fields[number] = f"{time:.0f}"
    trace.write_text("; a comment\n" + " ".join(fields) + "\n")
    place = rf"far\.swf:2: field {number + 1} \({name.split('_')[0][:3]}.*\): expected at most 1e\+12 s, got"
    with pytest.raises(WorkloadError, match=place):
        load_workload(trace)
    (fault,) = validate_workload(trace)
    assert "expected at most 1e+12 s" in str(fault)
    columns = {"submission_time": [0.0, 5.0], "runtime": [1.0, 1.0], "requested_time": [1.0, 1.0]}
    columns[name][1] = time
    with pytest.raises(WorkloadError, match=rf"{name}\[1\]: expected at most 1e\+12 s, got"):
        Workload.from_columns(**columns, requested_cores=[1, 1])


def test_times_of_json_that_floats_do_not_resolve_are_refused(tmp_path: Path) -> None:
    document = {
        "nb_res": 1,
        "jobs": [{"id": "late", "subtime": 1e18, "res": 1, "profile": "p"}],
        "profiles": {"p": {"type": "delay", "delay": 1e13}},
    }
    path = tmp_path / "far.json"
    path.write_text(json.dumps(document))
    with pytest.raises(WorkloadError) as caught:
        load_workload(path)
    first, second = (str(error) for error in caught.value.errors[:2])
    assert first == f"{path}: jobs[0].subtime: expected at most 1e+12 s, got 1e+18"
    assert second == f"{path}: jobs[0].profile (runtime): expected at most 1e+12 s, got 1e+13"


def test_columns_of_the_user_follow_their_jobs() -> None:
    made = Workload.from_columns(
        submission_time=[5, 0, 9],
        runtime=[1, 2, 3],
        requested_cores=1,
        extra={"deadline": [50, 20, 90], "tier": np.array(["gold", "tin", "gold"])},
    )
    assert made.extra.tolist()[0] == {"deadline": 20, "tier": "tin"}
    assert made.own_column("deadline").tolist() == [20, 50, 90]
    assert made.select([0, 2]).own_column("tier").tolist() == ["tin", "gold"]
    some = made.replaced(extra=[None, {"deadline": 7}, {"other": 1}])
    assert np.array_equal(some.own_column("deadline"), [np.nan, 7, np.nan], equal_nan=True)
    with pytest.raises(
        WorkloadError, match=r"expected a field of some job, got 'deadlin' \(did you mean 'deadline'\?\)"
    ):
        made.own_column("deadlin")
    with pytest.raises(WorkloadError, match=r"extra\['deadline'\]: expected 3 values"):
        made.replaced(extra={"deadline": [1, 2]})
    with pytest.raises(WorkloadError, match="expected another name than that of a column, got 'runtime'"):
        made.replaced(extra={"runtime": 1})
