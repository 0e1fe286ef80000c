"""The SWF dialects of real logs, exact places of faults, and round trips."""

from __future__ import annotations

import gzip
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdsim.errors import ConfigError, WorkloadError
from hdsim.workload.load import load_workload, validate_workload
from hdsim.workload.model import COLUMNS, Workload
from hdsim.workload.swf import format_swf, write_swf

GOOD = "1 5 -1 10 4 -1 -1 4 60 -1 1 2 3 4 5 6 -1 -1\n"


def read(tmp_path: Path, content: str | bytes, name: str = "t.swf") -> Workload:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return load_workload(path)


def test_every_field_has_its_column(tmp_path: Path) -> None:
    workload = read(tmp_path, "7 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27\n")
    expected = {
        "job_id": 7,
        "original_submission_time": 11,
        "submission_time": 0,
        "runtime": 13,
        "requested_cores": 17,
        "requested_time": 18,
        "memory": 0.019,
        "status": 20,
        "user": 21,
        "group": 22,
        "executable": 23,
        "queue": 24,
        "partition": 25,
    }
    assert {key: getattr(workload, key)[0] for key in expected} == expected
    assert np.isinf(workload.walltime[0])
    assert workload.reference_gflops is None


def test_fields_that_stand_in_for_unknown_ones(tmp_path: Path) -> None:
    workload = read(tmp_path, "1 0 -1 13 14 -1 16000 -1 -1 -1 1 1 1 1 1 1 -1 -1\n2 0 -1 5 1 -1 -1 0 0 -1 1" + " -1" * 7)
    assert workload.requested_cores.tolist() == [14, 1]
    assert workload.requested_time.tolist() == [13, 5]
    assert workload.memory.tolist() == [16, 0]


@pytest.mark.parametrize(
    "content",
    [
        GOOD.replace(" ", "\t"),
        "   " + GOOD.replace(" ", "   "),
        GOOD.replace("\n", "\r\n"),
        GOOD.replace(" 10 ", " 10.0 ").replace(" 5 ", " 5.00 "),
        GOOD.replace("\n", " 0\n"),
        GOOD.replace("\n", " extra words\n"),
        GOOD.replace("\n", " ; remark\n"),
        "\n\n; comment\n  ; another\n" + GOOD + "\n",
        GOOD.rstrip("\n"),
    ],
    ids=["tabs", "aligned", "crlf", "floats", "19 fields", "text behind", "remark", "blank lines", "no last newline"],
)
def test_dialects(tmp_path: Path, content: str) -> None:
    plain = read(tmp_path, GOOD)
    other = read(tmp_path, content, "other.swf")
    for key in COLUMNS:
        assert np.array_equal(getattr(plain, key), getattr(other, key)), key


def test_gzip_is_known_by_content(tmp_path: Path) -> None:
    packed = gzip.compress(GOOD.encode())
    assert len(read(tmp_path, packed, "t.swf.gz")) == 1
    assert len(read(tmp_path, packed, "t.swf")) == 1


def test_comments_in_any_encoding(tmp_path: Path) -> None:
    workload = read(tmp_path, "; Installation: Universität\n".encode("latin-1") + GOOD.encode())
    assert workload.header == {"Installation": "Universit�t"}


def test_header(tmp_path: Path) -> None:
    text = "; MaxProcs: 128\n;\n; Queue: 0 a\n; Queue: 1 b\n; Note: one\n;       two: lines\n; Empty:\n"
    workload = read(tmp_path, text + GOOD + "; Late: ignored\n")
    assert workload.header == {"MaxProcs": "128", "Queue": "0 a\n1 b", "Note": "one\ntwo: lines", "Empty": ""}
    assert workload.cluster_cores == 128


def test_no_run_time_is_a_real_job(tmp_path: Path) -> None:
    workload = read(tmp_path, GOOD.replace(" 10 ", " 0 "))
    assert workload.runtime.tolist() == [0]
    assert not workload.dropped


BAD = [
    ("1 2 3", "expected 18 fields, got 3"),
    (GOOD.replace(" 60 ", " soon "), "field 9 (requested time): expected a finite number (-1 = unknown), got 'soon'"),
    (GOOD.replace(" 10 ", " nan "), "field 4 (run time): expected a finite number (-1 = unknown), got 'nan'"),
    (GOOD.replace(" 10 ", " 1e999 "), "field 4 (run time): expected a finite number (-1 = unknown), got '1e999'"),
    (GOOD.replace(" 10 ", " 1_0 "), "field 4 (run time): expected a finite number (-1 = unknown), got '1_0'"),
    (
        GOOD.replace("4 60", "4.5 60"),
        "field 8 (requested processors): expected a whole number (-1 = unknown), got '4.5'",
    ),
    (
        GOOD.replace("4 60", "1e17 60"),
        "field 8 (requested processors): expected a whole number (-1 = unknown), got '1e17'",
    ),
    (GOOD.replace(" 10 ", " größe "), "field 4 (run time): expected a finite number (-1 = unknown), got 'größe'"),
    ("<html>", "expected 18 fields, got 1"),
]


@pytest.mark.parametrize(("line", "message"), BAD)
def test_malformed_line(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(WorkloadError) as caught:
        read(tmp_path, f"; comment\n{GOOD}\n{line.strip()}\n{GOOD}")
    assert str(caught.value) == f"{tmp_path / 't.swf'}:4: {message}"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (
            "JobID|User|State\n1|anna|COMPLETED\n2|ben|FAILED\n",
            "; it looks like the output of sacct, which `hdsim site import` reads",
        ),
        ("a,b\n1,2\n3,4\n", ""),
    ],
)
def test_a_file_of_another_format_is_one_error(tmp_path: Path, text: str, hint: str) -> None:
    path = tmp_path / "jobs.txt"
    path.write_text(text)
    (error,) = validate_workload(path)
    assert str(error) == (
        f"{path}:1: expected an SWF trace with 18 fields a job, a .parquet file or a .json file in the format of "
        f"Batsim, got 3 lines with fewer fields, the first '{text.splitlines()[0]}'{hint}"
    )


def test_all_faults_of_a_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "t.swf"
    path.write_text("".join(line.strip() + "\n" for line, _ in BAD) + GOOD.replace(" 10 ", " -3 "))
    errors = validate_workload(path)
    assert [str(error) for error in errors] == [
        *(f"{path}:{n}: {message}" for n, (_, message) in enumerate(BAD, 1)),
        f"{path}:{len(BAD) + 1}: field 4 (run time): expected at least 0 s, got -3",
    ]


def test_a_line_may_have_several_faults(tmp_path: Path) -> None:
    path = tmp_path / "t.swf"
    path.write_text("x y " + "-1 " * 16)
    assert [error.where for error in validate_workload(path)] == [
        f"{path}:1: field 1 (job number)",
        f"{path}:1: field 2 (submit time)",
    ]


def test_many_faults_are_cut_short_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError) as caught:
        read(tmp_path, GOOD + "1 2\n" * 50)
    assert len(str(caught.value).splitlines()) == 11
    assert str(caught.value).endswith(f"... and 40 more; `hdsim workload validate {tmp_path / 't.swf'}` lists them all")
    assert len(caught.value.errors) == 50


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("e.swf", b"", "expected at least one job, got an empty trace"),
        ("e.swf", b"; MaxProcs: 3\n\n", "expected at least one job, got an empty trace"),
        ("e.swf.gz", GOOD.encode(), "expected gzip data (first bytes 1f 8b), got 31 20"),
        ("e.swf.gz", gzip.compress(GOOD.encode() * 9, mtime=0)[:-12], "expected a complete gzip file"),
        ("e.swf.gz", b"\x1f\x8b\x08\x00garbage garbage garbage", "expected a complete gzip file"),
    ],
)
def test_unusable_files(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    with pytest.raises(WorkloadError) as caught:
        read(tmp_path, content, name)
    assert str(caught.value).startswith(f"{tmp_path / name}: {message}")
    assert [str(error) for error in validate_workload(tmp_path / name)] == [str(caught.value)]


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"expected a file or a bundled name, got '.*no.swf', which does not exist"):
        load_workload(tmp_path / "no.swf")
    with pytest.raises(ConfigError, match="expected a file, got the directory"):
        load_workload(tmp_path)


numbers = st.integers(0, 10**9).map(float) | st.floats(0, 1e9, allow_subnormal=False)
identities = st.integers(-1, 10**6)


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    jobs = draw(st.integers(1, 8))

    def column(values: st.SearchStrategy) -> list:
        return draw(st.lists(values, min_size=jobs, max_size=jobs))

    runtime = column(numbers)
    # A requested time of 0 is written as such and read back as unknown, which stands for the run time.
    requested = [draw(st.just(run) | numbers.filter(bool)) for run in runtime]
    return Workload.from_columns(
        job_id=draw(st.permutations(range(1, jobs + 1))),
        submission_time=column(numbers),
        runtime=runtime,
        requested_time=requested,
        requested_cores=column(st.integers(1, 10**6)),
        memory=column(st.integers(0, 10**9).map(lambda kilobytes: kilobytes / 1000)),
        **{key: column(identities) for key in ("user", "group", "queue", "partition", "executable", "status")},
    )


@given(workloads())
def test_round_trip(workload: Workload) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name in ("t.swf", "t.swf.gz"):
            path = Path(folder) / name
            write_swf(workload, path)
            again = load_workload(path, memory_bandwidth="trace", status="ignore")
            for key in COLUMNS:
                assert np.array_equal(getattr(again, key), getattr(workload, key)), key
            assert format_swf(again) == format_swf(workload)


def test_a_part_keeps_the_clock_of_the_trace_and_changed_arrivals_do_not(tmp_path: Path) -> None:
    workload = Workload.from_columns(submission_time=[100, 110, 130], runtime=1, requested_cores=1)
    assert [line.split()[1] for line in format_swf(workload[1:]).splitlines()[-2:]] == ["110", "130"]
    faster = workload[1:].scaled_arrivals(0.5)
    assert [line.split()[1] for line in format_swf(faster).splitlines()[-2:]] == ["0", "10"]


def test_packed_files_are_the_same_bytes_each_time(tmp_path: Path) -> None:
    workload = Workload.from_columns(submission_time=[0, 1], runtime=1, requested_cores=1)
    for name in ("a.swf.gz", "b.swf.gz"):
        write_swf(workload, tmp_path / name)
    assert (tmp_path / "a.swf.gz").read_bytes() == (tmp_path / "b.swf.gz").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.swf.gz", "b.swf.gz"]


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    workload = Workload.from_columns(submission_time=[0], runtime=1, requested_cores=1)
    with pytest.raises(WorkloadError, match="expected a place that can be written: No such file"):
        write_swf(workload, tmp_path / "no" / "t.swf")
    (tmp_path / "folder.swf").mkdir()
    with pytest.raises(WorkloadError, match="expected a place that can be written: Is a directory"):
        write_swf(workload, tmp_path / "folder.swf")
    assert [path.name for path in tmp_path.iterdir()] == ["folder.swf"]


@pytest.mark.parametrize(
    ("name", "jobs", "cores", "no_run_time", "with_memory"),
    [
        ("lublin_256.swf", 10_000, None, 0, 0),
        ("theta-synthetic-4360.swf", 5_000, 4360, None, 0),
        ("NASA-iPSC-1993-3.1-cln.swf.gz", 18_239, 128, None, 0),
        ("LCG.swf.gz", 188_041, 24_515, None, None),
        ("RICC-2010-2.swf.gz", 447_786, 8_192, None, 447_786),  # 8 were cancelled before they started
    ],
)
def test_real_logs(
    shared_data: Path, name: str, jobs: int, cores: int | None, no_run_time: int | None, with_memory: int | None
) -> None:
    workload = load_workload(shared_data / "traces" / name)
    assert len(workload) == jobs
    assert not workload.dropped
    assert cores is None or workload.cluster_cores == cores
    assert no_run_time is None or (workload.runtime == 0).sum() == no_run_time
    assert with_memory is None or (workload.memory > 0).sum() == with_memory


def test_nasa_has_jobs_without_run_time(shared_data: Path) -> None:
    workload = load_workload(shared_data / "traces/NASA-iPSC-1993-3.1-cln.swf.gz")
    assert (workload.runtime == 0).any()
    assert workload.original_submission_time[0] == 0
    assert workload.original_submission_time[1] == workload.submission_time[1] == 1460


def test_ricc_memory_is_in_kilobytes_per_core(shared_data: Path) -> None:
    workload = load_workload(shared_data / "traces/RICC-2010-2.swf.gz", jobs=3)
    assert workload.memory.tolist() == [1200, 1024, 1024]
    assert workload.runtime.tolist() == [222, 244682, 249628]
    assert workload.requested_time.tolist() == [14400, 259200, 259200]
