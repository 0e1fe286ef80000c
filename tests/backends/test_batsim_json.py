"""Batsim and HDeepRM workloads: what each profile means, faults, and round trips."""

from __future__ import annotations

import gzip
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdsim.cli import main
from hdsim.errors import WorkloadError
from hdsim.platform.model import Platform
from hdsim.report.charts import ChartTable
from hdsim.report.jobs import OWNERS
from hdsim.results.run_directory import reader
from hdsim.workload.batsim_json import to_batsim, write_batsim
from hdsim.workload.load import load_workload, validate_workload
from hdsim.workload.model import COLUMNS, Workload
from hdsim.workload.swf import format_swf, write_swf

PLATFORM = Platform.homogeneous(nodes=2, cores_per_node=4, gflops_per_core=2.0, memory_gb_per_node=4)


def document(profile: Any = None, /, **job: Any) -> dict[str, Any]:
    profile = {"type": "delay", "delay": 10} if profile is None else profile
    return {
        "nb_res": 8,
        "jobs": [{"id": 1, "subtime": 5, "res": 2, "profile": "p", **job}],
        "profiles": {"p": profile},
    }


def save(path: Path, content: Any) -> Path:
    path = path / "w.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def read(tmp_path: Path, content: Any, platform: Platform | None = PLATFORM, **settings: Any) -> Workload:
    return load_workload(save(tmp_path, content), platform, **settings)


def test_delay(tmp_path: Path) -> None:
    workload = read(tmp_path, document(walltime=30, user="alice", status=1, extra={"a": [1]}), None)
    assert workload.runtime.tolist() == [10]
    assert workload.fixed_duration.tolist() == [True]
    assert workload.walltime.tolist() == workload.requested_time.tolist() == [30]
    assert workload.user.tolist() == [0]
    assert workload.names == {"user": {0: "alice"}}
    assert workload.status.tolist() == [1]
    assert workload.extra.tolist() == [{"user": "alice", "status": 1, "extra": {"a": [1]}}]
    assert workload.original_submission_time.tolist() == [5]
    assert workload.memory_bandwidth.tolist() == [0]


def test_operations_become_seconds_at_the_reference_speed(tmp_path: Path) -> None:
    profile = {"type": "parallel_homogeneous", "com": 0, "cpu": 6e9, "req_time": 7, "mem": 500, "mem_bw": 12, "ret": 3}
    workload = read(tmp_path, document(profile))
    assert workload.runtime.tolist() == [3]
    assert workload.requested_time.tolist() == [7]
    assert workload.memory.tolist() == [500]
    assert workload.memory_bandwidth.tolist() == [12]
    assert workload.return_code.tolist() == [3]
    assert workload.fixed_duration.tolist() == [False]
    assert workload.reference_gflops == 2.0


@pytest.mark.parametrize(("com", "cpu"), [(0, [2e9, 6e9]), ([0, 0, 0, 0], [6e9, 6e9])])
def test_a_parallel_profile_lasts_as_long_as_its_busiest_core(tmp_path: Path, com: Any, cpu: list[float]) -> None:
    assert read(tmp_path, document({"type": "parallel", "com": com, "cpu": cpu})).runtime.tolist() == [3]


def test_requested_time_falls_back_to_walltime_then_run_time(tmp_path: Path) -> None:
    jobs = [
        {"id": "a", "subtime": 0, "res": 1, "profile": "p", "walltime": 99},
        {"id": "b", "subtime": 0, "res": 1, "profile": "p", "walltime": -1},
        {"id": "c", "subtime": 0, "res": 1, "profile": "q", "walltime": 99},
    ]
    profiles = {"p": {"type": "delay", "delay": 10}, "q": {"type": "delay", "delay": 10, "req_time": 5}}
    workload = read(tmp_path, {"jobs": jobs, "profiles": profiles})
    assert workload.requested_time.tolist() == [99, 10, 5]
    assert workload.walltime.tolist() == [99, np.inf, 99]
    assert workload.job_id.tolist() == ["a", "b", "c"]


def test_operations_need_a_platform(tmp_path: Path) -> None:
    content = document({"type": "parallel_homogeneous", "com": 0, "cpu": 6e9})
    with pytest.raises(WorkloadError, match=r"profiles.p: the profile counts operations: expected a platform"):
        read(tmp_path, content, None)
    assert validate_workload(save(tmp_path, content)) == []


def test_profiles_no_job_uses_may_be_of_any_type(tmp_path: Path) -> None:
    content = document()
    content["profiles"]["other"] = {"type": "composed", "seq": ["p"]}
    workload = read(tmp_path, content)
    assert to_batsim(workload) == content


ALLOWED = "allowed: delay, parallel, parallel_homogeneous, parallel_homogeneous_total, composed, sequence, bsp"
NUMBER = "expected a finite number of at least 0"
BAD: list[tuple[Any, str]] = [
    ({"type": "trace"}, f'profiles.p.type: profile type "trace" is not supported; {ALLOWED}'),
    ({"delay": 3}, f"profiles.p.type: profile type nothing is not supported; {ALLOWED}"),
    ({"type": "composed", "seq": []}, "profiles.p.seq: expected a list of names of profiles, got []"),
    ({"type": "composed", "seq": ["x"]}, "profiles.p.seq[0]: expected the name of a profile in 'profiles', got \"x\""),
    ({"type": "sequence", "seq": ["p"]}, "profiles.p.seq: profile 'p' contains itself"),
    ({"type": "parallel_homogeneous", "cpu": 1, "com": -5}, f"profiles.p.com: {NUMBER}, got -5"),
    (
        {"type": "parallel", "cpu": [1, 1], "com": [0, 1, 1]},
        "profiles.p.com: expected 2 x 2 volumes in one list, got 3 numbers",
    ),
    ({"type": "parallel", "cpu": 1}, "profiles.p.cpu: expected 2 numbers, one per core of the job, got 1"),
    ({"type": "parallel", "cpu": [1, "x"]}, f'profiles.p.cpu[1]: {NUMBER}, got "x"'),
    (
        {"type": "parallel", "cpu": [1, 2, 3]},
        "profiles.p.cpu: expected 2 numbers, one per core of the job, got 3 numbers",
    ),
    (
        {"type": "bsp", "supersteps": 2, "cpu": [[1, 1]]},
        "profiles.p.cpu: expected a row for each of 2 supersteps, got 1",
    ),
    (
        {"type": "bsp", "cpu": 1, "com": 1, "pattern": "rung"},
        "profiles.p.pattern: expected one of none, h_relation, all_to_all, ring, halo_2d, master_worker or a matrix of "
        "2 x 2 numbers, got 'rung' (did you mean 'ring'?)",
    ),
    ({"type": "bsp", "cpu": 1, "l": -1}, f"profiles.p.l: {NUMBER}, got -1"),
    ({"type": "delay"}, "profiles.p.delay: expected a finite number, got nothing"),
    ({"type": "delay", "delay": True}, "profiles.p.delay: expected a finite number, got true"),
    ({"type": "delay", "delay": float("nan")}, "profiles.p.delay: expected a finite number, got NaN"),
    ({"type": "delay", "delay": 1, "mem": -1}, "profiles.p.mem: expected a finite number of at least 0, got -1"),
    ({"type": "delay", "delay": 1, "ret": 1.5}, "profiles.p.ret: expected a whole number, got 1.5"),
    ([1], "profiles.p: expected an object, got [1]"),
]


@pytest.mark.parametrize(("profile", "message"), BAD)
def test_faults_of_profiles(tmp_path: Path, profile: Any, message: str) -> None:
    with pytest.raises(WorkloadError) as caught:
        read(tmp_path, document(profile))
    assert str(caught.value) == f"{tmp_path / 'w.json'}: {message}"


BAD_JOBS: list[tuple[dict[str, Any], str]] = [
    ({"id": None}, "id: expected a number or a text, got nothing"),
    ({"subtime": "0"}, 'subtime: expected a finite number, got "0"'),
    ({"res": 2.5}, "res: expected a whole number, got 2.5"),
    ({"profile": "q"}, "profile: expected the name of a profile in 'profiles', got \"q\""),
    ({"walltime": 0}, "walltime: expected more than 0 s, or -1 for none, got 0"),
    ({"walltime": "1h"}, 'walltime: expected a finite number, got "1h"'),
    ({"dependency": [0]}, "dependency: expected jobs that wait for no others, which hdsim does not simulate, got [0]"),
    ({"deps": 7}, "deps: expected jobs that wait for no others, which hdsim does not simulate, got 7"),
    ({"user": 1.5}, "user: expected a name or a whole number of at least 0, got 1.5"),
    ({"partition": ["gpu"]}, 'partition: expected a name or a whole number of at least 0, got ["gpu"]'),
    ({"queue": -2}, "queue: expected a name or a whole number of at least 0, got -2"),
]


@pytest.mark.parametrize(("job", "message"), BAD_JOBS)
def test_faults_of_jobs(tmp_path: Path, job: dict[str, Any], message: str) -> None:
    with pytest.raises(WorkloadError) as caught:
        read(tmp_path, document(**job))
    assert str(caught.value) == f"{tmp_path / 'w.json'}: jobs[0].{message}"


def test_owners_are_names_or_numbers(tmp_path: Path) -> None:
    content = document()
    users, partitions = ["bert", 3, "anna, jr.", "bert", ""], ["gpu", "cpu", "cpu", "gpu", "cpu"]
    content["jobs"] = [
        {"id": n, "subtime": n, "res": 1, "profile": "p", "user": user, "partition": partition}
        for n, (user, partition) in enumerate(zip(users, partitions, strict=True))
    ]
    workload = read(tmp_path, content)
    # In alphabetical order, above the numbers of the file.
    assert workload.user.tolist() == [5, 3, 4, 5, -1]
    assert workload.partition.tolist() == [1, 0, 0, 1, 0]
    assert workload.names == {"user": {4: "anna, jr.", 5: "bert"}, "partition": {0: "cpu", 1: "gpu"}}
    assert workload[1:].names == workload.names
    assert to_batsim(workload) == content
    assert to_batsim(workload.replaced(user=[5, 4, -1, 3, 3]))["jobs"][:3] == [
        {"id": 0, "subtime": 0, "res": 1, "user": "bert", "partition": "gpu", "profile": "p"},
        {"id": 1, "subtime": 1, "res": 1, "user": "anna, jr.", "partition": "cpu", "profile": "p"},
        {"id": 2, "subtime": 2, "res": 1, "partition": "cpu", "profile": "p"},
    ]


def test_owners_beyond_64_bits_are_names(tmp_path: Path) -> None:
    workload = read(tmp_path, document(user=2**64, group=7))
    assert workload.names == {"user": {0: str(2**64)}}
    assert to_batsim(workload) == document(user=2**64, group=7)


@pytest.mark.parametrize("names", [["bert", "anna, jr.", "bert"], [7, 7, 3]])
def test_results_are_by_the_names_of_owners(tmp_path: Path, names: list[Any]) -> None:
    content = document()
    content["jobs"] = [{"id": n, "subtime": 0, "res": 8, "profile": "p", "user": user} for n, user in enumerate(names)]
    path = save(tmp_path, content)
    settings = [f"workload.path={path}", "platform=teaching", f"hydra.run.dir={tmp_path / 'run'}"]
    with pytest.raises(SystemExit) as ended:
        main(["run", "agent=fcfs", *settings])
    assert ended.value.code in (0, None)
    run = reader.read(tmp_path / "run")
    assert run.jobs["user"].tolist() == names
    panel = OWNERS[0](run)
    assert panel is not None
    table = panel.views[0].chart
    assert isinstance(table, ChartTable)
    assert sorted(table.columns[0].values) == sorted({str(name) for name in names})


def test_fields_that_change_nothing_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    content = document(qos="high", account="physics", deps=[], dependency=None)
    content["jobs"].append({**content["jobs"][0], "id": 2, "qos": "low", "account": ""})
    workload = read(tmp_path, content)
    assert to_batsim(workload) == content
    told = "fields of jobs that change nothing: qos (2 jobs), account (1 jobs)"
    assert [record.message for record in caplog.records] == [f"{tmp_path / 'w.json'}: {told}"]


def test_long_names_of_fields_are_cut(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    read(tmp_path, document(**{"x" * 100_000: 1}))
    (record,) = caplog.records
    assert "change nothing: " in record.message and record.message.endswith("... (1 jobs)")
    assert len(record.message) < 500


def test_all_faults_of_a_file_at_once(tmp_path: Path) -> None:
    base = document()["jobs"][0]
    jobs = [{**base, "id": n, **job} for n, (job, _) in enumerate(BAD_JOBS)]
    jobs += [7, {**base, "id": 2}, {**base, "id": 50, "res": 0}, {**base, "id": 51, "res": 9}]
    path = save(tmp_path, {"jobs": jobs, "profiles": document()["profiles"]})
    assert [str(error) for error in validate_workload(path, PLATFORM)] == [
        *(f"{path}: jobs[{n}].{message}" for n, (_, message) in enumerate(BAD_JOBS[:6])),
        f"{path}: jobs[11]: expected an object, got 7",
        f"{path}: jobs[12].id: expected unique ids, got 2 again",
        *(f"{path}: jobs[{n}].{message}" for n, (_, message) in enumerate(BAD_JOBS[6:], 6)),
        f"{path}: jobs[13].res: expected 1 to 8 (the platform's cores), got 0",
        f"{path}: jobs[14].res: expected 1 to 8 (the platform's cores), got 9",
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"jobs": [1,]}', ":1:13: expected JSON: "),
        ("[]", ": expected an object with 'jobs' and 'profiles', got []"),
        ('{"profiles": {}}', ": jobs: expected a list, got nothing"),
        ('{"jobs": [], "profiles": {}}', ": jobs: expected at least one job, got an empty list"),
        ('{"jobs": [1]}', ": profiles: expected an object, got nothing"),
        ("", ":1:1: expected JSON: "),
        ('{"jobs": [], "profiles": {"a": {}, "a": {}}}', ": a: expected each key of an object once, got it twice"),
        ('{"jobs": [{"res": 1, "id": 1, "res": 2}]}', ": res: expected each key of an object once, got it twice"),
    ],
)
def test_no_workload_at_all(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(WorkloadError) as caught:
        read(tmp_path, content)
    assert str(caught.value).startswith(f"{tmp_path / 'w.json'}{message}")


def test_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "w.json"
    path.write_bytes(b'{"jobs": "\xe9"}')
    with pytest.raises(WorkloadError, match="expected text in UTF-8"):
        load_workload(path)


def test_impossible_jobs_are_dropped_with_their_place(tmp_path: Path) -> None:
    content = document()
    content["profiles"]["back"] = {"type": "delay", "delay": -1}
    content["profiles"]["fat"] = {"type": "delay", "delay": 1, "mem": 5000}
    base = content["jobs"][0]
    content["jobs"] += [{**base, "id": 2, "profile": "back"}, {**base, "id": 3, "profile": "fat"}]
    workload = read(tmp_path, content)
    assert workload.job_id.tolist() == [1]
    assert [error.where for error in workload.dropped] == [
        f"{tmp_path / 'w.json'}: jobs[1].profile (runtime)",
        f"{tmp_path / 'w.json'}: jobs[2].profile (memory)",
    ]


numbers = st.integers(0, 10**6) | st.floats(0, 1e6, allow_subnormal=False)
positive = st.integers(1, 10**6) | st.floats(0.001, 1e6)
optional = {
    "req_time": numbers,
    "mem": numbers,
    "mem_bw": numbers,
    "ret": st.integers(0, 9),
    "note": st.text(max_size=5),
}
profiles = st.one_of(
    st.fixed_dictionaries({"type": st.just("delay"), "delay": numbers}, optional=optional),
    st.fixed_dictionaries(
        {"type": st.just("parallel_homogeneous"), "cpu": positive.map(lambda x: x * 1e9), "com": st.just(0)},
        optional=optional,
    ),
)


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    known = draw(st.dictionaries(st.text(max_size=6), profiles, min_size=1, max_size=4))
    optional_fields = {
        "walltime": positive | st.just(-1),
        "user": st.integers(0, 9) | st.text(max_size=5),
        "anything": st.none() | st.lists(st.integers(), max_size=3),
    }
    job = st.fixed_dictionaries(
        {"subtime": numbers, "res": st.integers(1, 8), "profile": st.sampled_from(sorted(known))},
        optional=optional_fields,
    )
    jobs = sorted(draw(st.lists(job, min_size=1, max_size=6)), key=lambda job: job["subtime"])
    names = draw(st.sampled_from([list(range(len(jobs))), [f"w0!{n}" for n in range(len(jobs))]]))
    return {
        "nb_res": draw(st.integers(8, 99)),
        "description": draw(st.text(max_size=5)),
        "jobs": [{"id": name, **job} for name, job in zip(names, jobs, strict=True)],
        "profiles": known,
    }


@given(documents())
@pytest.mark.ci
def test_json_to_workload_to_json(content: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = save(Path(folder), content)
        roomy = Platform.homogeneous(nodes=1, cores_per_node=8, gflops_per_core=2.7)
        workload = load_workload(path, roomy)
        assert to_batsim(workload) == content
        again = Path(folder) / "again.json.gz"
        write_batsim(workload, again)
        assert json.loads(gzip.decompress(again.read_bytes())) == content


@st.composite
def columns(draw: st.DrawFn) -> Workload:
    jobs = draw(st.integers(1, 8))
    few = st.integers(0, 2).map(float) | st.floats(0, 1e6, allow_subnormal=False)

    def column(values: st.SearchStrategy) -> list:
        return draw(st.lists(values, min_size=jobs, max_size=jobs))

    return Workload.from_columns(
        submission_time=column(few),
        runtime=column(few),
        requested_time=column(few),
        requested_cores=column(st.integers(1, 64)),
        memory=column(few),
        memory_bandwidth=column(few),
        walltime=column(st.just(np.inf) | st.floats(1, 1e6)),
        user=column(st.integers(-1, 5)),
        queue=column(st.integers(-1, 5)),
        return_code=column(st.integers(0, 3)),
        fixed_duration=True,
    )


@given(columns())
def test_columns_to_json_and_back(workload: Workload) -> None:
    content = to_batsim(workload)
    assert len({json.dumps(profile) for profile in content["profiles"].values()}) == len(content["profiles"])
    with tempfile.TemporaryDirectory() as folder:
        again = load_workload(save(Path(folder), content))
    for key in set(COLUMNS) - {"profile", "extra"}:
        assert np.array_equal(getattr(again, key), getattr(workload, key)), key


@given(columns(), st.booleans())
def test_swf_to_json_to_swf(workload: Workload, operations: bool) -> None:
    platform = Platform.homogeneous(nodes=1, cores_per_node=64, gflops_per_core=2.7) if operations else None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_swf(workload, folder / "a.swf")
        first = load_workload(folder / "a.swf", memory_bandwidth="trace")
        write_batsim(first, folder / "b.json", platform)
        second = load_workload(folder / "b.json", platform)
        for key in set(COLUMNS) - {"profile", "extra", "fixed_duration", "runtime"}:
            assert np.array_equal(getattr(second, key), getattr(first, key)), key
        # Operations of a core are a rounded product.
        assert np.allclose(second.runtime, first.runtime, rtol=1e-15 if operations else 0, atol=0)
        if not operations:
            assert format_swf(second) == format_swf(first)


def test_new_profiles_do_not_take_the_names_of_old_ones(tmp_path: Path) -> None:
    content = document()
    content["jobs"].append({**content["jobs"][0], "id": 2, "profile": "delay_20_10_0_0"})
    content["profiles"]["delay_20_10_0_0"] = {"type": "delay", "delay": 99}
    workload = read(tmp_path, content)
    changed = to_batsim(workload.replaced(runtime=[20, 99]))
    assert changed["profiles"]["delay_20_10_0_0"] == {"type": "delay", "delay": 99}
    assert changed["jobs"][1]["profile"] == "delay_20_10_0_0"
    assert changed["jobs"][0]["profile"] == "delay_20_10_0_0_2"
    assert changed["profiles"]["delay_20_10_0_0_2"]["delay"] == 20


def test_a_run_time_drawn_for_a_job_is_not_lost_to_another_of_its_profile(tmp_path: Path) -> None:
    jobs = [{"id": n, "subtime": n, "res": 1, "profile": "p"} for n in range(30)]
    content = {"nb_res": 8, "jobs": jobs, "profiles": {"p": {"type": "delay", "delay": 50, "req_time": 100}}}
    drawn = read(tmp_path, content, runtime="hdeeprm")
    assert len(set(drawn.runtime)) > 5
    again = read(tmp_path, to_batsim(drawn))
    assert np.array_equal(again.runtime, drawn.runtime)
    assert np.array_equal(again.requested_time, drawn.requested_time)


def test_platform_gives_size_and_speed(tmp_path: Path) -> None:
    workload = Workload.from_columns(
        submission_time=[0], runtime=3, requested_time=4, requested_cores=2, memory=5.5, memory_bandwidth=8
    )
    assert to_batsim(workload, PLATFORM) == {
        "nb_res": 8,
        "jobs": [{"id": 0, "subtime": 0, "res": 2, "profile": "job_3_4_5.5_8"}],
        "profiles": {
            "job_3_4_5.5_8": {
                "type": "parallel_homogeneous",
                "com": 0,
                "cpu": 6e9,
                "req_time": 4,
                "req_ops": 8e9,
                "mem": 5.5,
                "mem_bw": 8,
            }
        },
    }


@pytest.mark.parametrize("ids", [[3, 3], [3, "3"]])
def test_ids_that_repeat_cannot_be_written(ids: list[Any]) -> None:
    workload = Workload.from_columns(job_id=ids, submission_time=[0, 1], runtime=1, requested_cores=1)
    with pytest.raises(WorkloadError, match="expected unique ids, got 3 again"):
        to_batsim(workload)


REAL = [
    "batsim_runs/learning_shortest-high_gflops/workload.json.gz",
    "batsim_runs/gaia_div20_first-high_gflops/workload.json.gz",
    "batsim_runs/transcript_inputs/tiny2.json",
    *(f"oar_real_runs/workload_seed{n}.json" for n in range(1, 5)),
]


@pytest.mark.parametrize("name", REAL)
def test_files_of_other_systems_come_back_as_they_are(shared_data: Path, name: str) -> None:
    path = shared_data / name
    platform = Platform.homogeneous(nodes=1, cores_per_node=2280, gflops_per_core=4.2)
    workload = load_workload(path, platform)
    data = path.read_bytes()
    assert to_batsim(workload) == json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)


def test_hdeeprm_workload(shared_data: Path) -> None:
    platform = Platform.homogeneous(nodes=1, cores_per_node=4, gflops_per_core=4.2)
    workload = load_workload(shared_data / REAL[0], platform)
    assert workload.runtime.tolist() == [5, 5]
    assert workload.requested_time.tolist() == [5, 5]
    assert workload.memory.tolist() == [8000, 8000]
    assert workload.memory_bandwidth.tolist() == [24, 24]


def test_whole_numbers_that_no_machine_word_holds(tmp_path: Path) -> None:
    workload = read(tmp_path, document(walltime=1e25))
    write_batsim(workload, tmp_path / "again.json")
    assert json.loads((tmp_path / "again.json").read_text())["jobs"][0]["walltime"] == int(1e25)
    assert load_workload(tmp_path / "again.json", platform=PLATFORM).walltime.tolist() == [1e25]


def test_headers_stay_with_their_format(tmp_path: Path) -> None:
    content = {"Description": "one\rtwo", "note": {"a": 1}, **document()}
    workload = read(tmp_path, content)
    assert to_batsim(workload) == content
    write_swf(workload, tmp_path / "t.swf")
    trace = load_workload(tmp_path / "t.swf")
    assert trace.header == {
        "Version": "2.2",
        "Description": "one\ntwo",
        "MaxJobs": "1",
        "MaxRecords": "1",
        "MaxProcs": "8",
    }
    assert set(to_batsim(trace)) == {"nb_res", "jobs", "profiles"}
