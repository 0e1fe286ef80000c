"""`hdsim workload show/validate/convert/generate` as a user types them."""

from __future__ import annotations

import gzip
import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from hdsim.cli.workload import workload as command
from hdsim.errors import HdsimError
from hdsim.platform.load import load_platform
from hdsim.util import plugins
from hdsim.util.resources import bundled, folder, resolve
from hdsim.workload.load import load_workload

Run = Callable[..., subprocess.CompletedProcess[str]]

TRACE = """\
; MaxProcs: 16
1 100 -1 10 4 -1 -1 4 60 2000 1 1 1 1 1 1 -1 -1
2 110 -1 30 2 -1 -1 2 60 -1 1 1 1 1 1 1 -1 -1
3 140 -1 20 9 -1 -1 9 90 4000 1 1 1 1 1 1 -1 -1
"""


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "t.swf"
    path.write_text(TRACE)
    return path


def call(*args: object) -> Result:
    """Calls the command in this process; faults come out as exceptions."""
    return CliRunner().invoke(command, [str(arg) for arg in args], catch_exceptions=False)


def test_show(trace: Path) -> None:
    output = call("show", trace).output
    lines = output.splitlines()
    assert lines[1] == "3 jobs submitted over 0.00 days, 0 dropped"
    assert lines[2] == f"offered load on 16 cores: {(40 + 60 + 180) / (16 * 40):.3f}"
    assert lines[3].startswith("of 1 ") and lines[4] == "recorded ends: 3 completed" and not lines[5]
    assert lines[6].split() == ["min", "p25", "median", "mean", "p75", "p99", "max"]
    table = {line[:22].strip(): [float(word) for word in line[22:].split()] for line in lines[7:]}
    assert table["run time (s)"] == [10, 15, 20, 20, 25, 29.8, 30]
    assert table["requested time (s)"] == [60, 60, 60, 70, 75, 89.4, 90]
    assert table["requested cores"] == [2, 3, 4, 5, 6.5, 8.9, 9]
    assert table["memory (MB/core)"] == [0, 1, 2, 2, 3, 3.96, 4]
    assert table["bandwidth (GB/s/core)"] == [0] * 7
    assert table["inter-arrival time (s)"] == [10, 15, 20, 20, 25, 29.8, 30]


def test_show_on_a_platform(trace: Path) -> None:
    platform = load_platform(resolve("platforms", "learning"))
    lines = call("show", trace, "--platform", "learning").output.splitlines()
    assert lines[1] == "2 jobs submitted over 0.00 days, 1 dropped"
    assert lines[2] == f"offered load on the {platform.n_cores} cores of {platform.name}: {100 / (4 * 10):.3f}"


def test_show_counts_owners_and_recorded_ends(tmp_path: Path) -> None:
    lines = ["1 0 -1 9 1 -1 -1 1 9 -1 1 7 3 -1 1 -1 -1 -1", "2 5 -1 9 1 -1 -1 1 9 -1 0 8 3 -1 2 -1 -1 -1"]
    (tmp_path / "w.swf").write_text("\n".join(lines))
    output = call("show", tmp_path / "w.swf").output.splitlines()
    assert output[3:5] == ["of 2 users, 1 group, 2 queues", "recorded ends: 1 completed, 1 failed"]


def test_show_one_job(tmp_path: Path) -> None:
    path = tmp_path / "one.swf"
    path.write_text(TRACE.splitlines()[1])
    assert "offered load on 4 cores: inf" in call("show", path).output


def test_validate(hdsim: Run, trace: Path) -> None:
    done = hdsim("workload", "validate", trace)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{trace}: no fault\n", "")
    trace.write_text(TRACE + "4 150 -1 nan" + " -1" * 14 + "\n5 150 -1 5 -1" + " -1" * 13 + "\n")
    done = hdsim("workload", "validate", trace, "--platform", "learning")
    assert done.returncode == 2
    assert done.stdout == ""
    assert [line.partition(f"{trace}:")[2] for line in done.stderr.splitlines()] == [
        "5: field 4 (run time): expected a finite number (-1 = unknown), got 'nan'",
        "4: field 8 (requested processors): expected 1 to 4 (the platform's cores), got 9",
        "6: field 8 (requested processors): expected 1 to 4 (the platform's cores), got -1",
    ]


def test_a_trace_whose_lines_are_all_left_out_has_a_fault(hdsim: Run, tmp_path: Path) -> None:
    (tmp_path / "w.swf").write_text("1 1 -1 0 4 -1 -1 4 0 1000 5 1 3 -1 1 -1 -1 -1\n")
    for verb in ("validate", "show"):
        done = hdsim("workload", verb, "w.swf", "--platform", "teaching")
        assert done.returncode == 2 and "w.swf: expected at least one job, got none" in done.stderr


def test_owners_below_minus_one_are_unknown(hdsim: Run, tmp_path: Path) -> None:
    (tmp_path / "w.swf").write_text("1 1 -1 9 4 -1 -1 4 9 1000 1 -7 -1000000000.0 -2 -3 -4 -1 -1\n")
    assert hdsim("workload", "convert", "w.swf", "-o", "w.json").returncode == 0
    (job,) = json.loads((tmp_path / "w.json").read_text())["jobs"]
    assert not {"user", "group", "executable", "queue", "partition"} & job.keys()
    assert hdsim("workload", "show", "w.json").returncode == 0


def test_faults_and_warnings_are_single_messages(hdsim: Run, trace: Path, tmp_path: Path) -> None:
    done = hdsim("workload", "show", "lublin_400")
    assert done.returncode == 2
    assert "did you mean 'lublin_4000'?" in done.stderr and "Traceback" not in done.stderr
    done = hdsim("workload", "convert", trace, "-o", "t.json", "--platform", "learning")
    assert done.returncode == 0
    assert len(done.stderr.splitlines()) == 1 and "dropped 1 of 3 jobs" in done.stderr
    done = hdsim("workload", "convert", trace, "-o", "no/such/place.json")
    assert done.returncode == 2
    assert (
        done.stderr
        == "hdsim: error: no/such/place.json: expected a place that can be written: No such file or directory\n"
    )
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("place", ["no/page.html", "file/page.html"])
@pytest.mark.parametrize("command", ["whatif lab --html", "bench x -o"])
def test_the_place_of_a_page_is_looked_at_before_the_work(hdsim: Run, tmp_path: Path, command: str, place: str) -> None:
    """The site and the runs do not exist, either: that would be the second fault."""
    (tmp_path / "file").write_text("")
    done = hdsim(*command.split(), place)
    assert done.returncode == 2
    assert done.stderr.startswith(f"hdsim: error: {place}: expected a place that can be written: N")
    assert len(done.stderr.splitlines()) == 1


def test_convert_to_json_and_back(trace: Path, tmp_path: Path) -> None:
    call("convert", trace, "-o", tmp_path / "t.json.gz")
    call("convert", tmp_path / "t.json.gz", "-o", tmp_path / "back.swf")
    content = json.loads(gzip.decompress((tmp_path / "t.json.gz").read_bytes()))
    assert content["nb_res"] == 16
    assert {profile["type"] for profile in content["profiles"].values()} == {"delay"}
    first, last = (
        load_workload(trace, memory_bandwidth="trace"),
        load_workload(tmp_path / "back.swf", memory_bandwidth="trace"),
    )
    for key in ("job_id", "original_submission_time", "runtime", "requested_time", "requested_cores", "memory", "user"):
        assert np.array_equal(getattr(first, key), getattr(last, key)), key


def test_convert_to_hdeeprm(trace: Path, tmp_path: Path) -> None:
    call("convert", trace, "-o", tmp_path / "t.out", "--to", "json", "--platform", "gaia", "--memory-bandwidth", "12")
    content = json.loads((tmp_path / "t.out").read_text())
    speed = load_platform(resolve("platforms", "gaia")).reference_gflops * 1e9
    assert content["nb_res"] == 2280
    assert content["profiles"][content["jobs"][0]["profile"]] == {
        "type": "parallel_homogeneous",
        "com": 0,
        "cpu": 10 * speed,
        "req_time": 60,
        "req_ops": 60 * speed,
        "mem": 2,
        "mem_bw": 12,
    }


def test_what_swf_has_no_place_for_is_told(hdsim: Run, trace: Path, tmp_path: Path) -> None:
    assert hdsim("workload", "convert", trace, "-o", "a.swf").stderr.count("no place") == 0
    done = hdsim("workload", "convert", trace, "--memory-bandwidth", "8", "-o", "a.swf")
    assert "a.swf: SWF has no place for memory bandwidths, which are left out\n" in done.stderr
    jobs = [{"id": 1, "subtime": 0, "res": 2, "gpus": 2, "walltime": 9, "profile": "p", "own": 3}]
    profiles = {"p": {"type": "delay", "delay": 5, "ret": 3}}
    (tmp_path / "b.json").write_text(json.dumps({"jobs": jobs, "profiles": profiles}))
    done = hdsim("workload", "convert", "b.json", "-o", "b.swf")
    told = "GPUs, kill limits, durations whatever the speed of cores, return codes, columns of your own"
    assert f"SWF has no place for {told}, which are left out" in done.stderr
    job = {"id": "a", "subtime": 0, "res": 2, "profile": "p", "user": "ann"}
    profiles = {"p": {"type": "parallel_homogeneous", "cpu": 1e12, "com": 0, "req_time": 0, "ret": 1}}
    (tmp_path / "c.json").write_text(json.dumps({"jobs": [job], "profiles": profiles}))
    done = hdsim("workload", "convert", "c.json", "--platform", "gaia", "-o", "c.swf")
    told = "ids that are no whole numbers, names of owners, requested times of 0, which are left out"
    assert f"SWF has no place for {told}" in done.stderr
    assert (tmp_path / "c.swf").read_text().splitlines()[-1].split()[10] == "0"


def test_what_json_and_a_replay_do_not_keep_of_swf_is_told(hdsim: Run, tmp_path: Path) -> None:
    lines = ("1 0 -1 5 2 -1 -1 2 9 -1 1 1 1 1 1 1 -1 -1", "2 3 -1 0 2 -1 -1 2 9 -1 5 1 1 1 1 1 1 30")
    (tmp_path / "a.swf").write_text("\n".join(lines) + "\n")
    done = hdsim("workload", "convert", "a.swf", "-o", "a.json")
    assert "a.json: run times become durations whatever the speed of cores; with a platform (--platform)" in done.stderr
    assert "a.swf: the preceding jobs of 1 jobs (field 17) are ignored" in done.stderr
    assert "a.json: 1 jobs\n" in done.stdout
    done = hdsim("workload", "convert", "a.swf", "--platform", "gaia", "--status", "queued", "-o", "a.json")
    assert "durations" not in done.stderr and "a.json: 2 jobs\n" in done.stdout


def test_convert_a_part(trace: Path, tmp_path: Path) -> None:
    call(
        "convert", trace, "-o", tmp_path / "p.swf", "--start", 1, "--jobs", 2, "--arrival-factor", 2, "--memory", "7.5"
    )
    part = load_workload(tmp_path / "p.swf")
    assert part.job_id.tolist() == [2, 3]
    assert part.original_submission_time.tolist() == [0, 60]
    assert part.memory.tolist() == [7.5, 7.5]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--memory-bandwidth", "lots"], "expected trace, none, draw or a number, got 'lots'"),
        (["--memory-bandwidth", "-1"], "expected 'draw', 'none' or a number of at least 0, got '-1.0'"),
        (["--jobs", "0"], "workload.jobs: expected at least 1 job"),
        (["--start", "3"], "workload.start: expected a first job from 0 to 2"),
        (["--strict", "--platform", "learning"], "t.swf:4: field 8 (requested processors): expected 1 to 4"),
    ],
)
def test_convert_with_bad_options(trace: Path, tmp_path: Path, options: list[str], message: str) -> None:
    output = tmp_path / "o.json"
    try:
        result = call("convert", trace, "-o", output, *options)
        assert result.exit_code == 2
        text = result.output
    except HdsimError as error:
        text = str(error)
    assert message in text
    assert not output.exists()


def test_unknown_extension(trace: Path, tmp_path: Path) -> None:
    with pytest.raises(
        HdsimError, match=r"t.txt: expected a name that ends in .swf, .json \(or these with .gz\) or .parquet"
    ):
        call("convert", trace, "-o", tmp_path / "t.txt")


def test_generate(tmp_path: Path) -> None:
    options = [
        "--jobs",
        300,
        "--cores",
        64,
        "--seed",
        4,
        "--typeless",
        "--estimates",
        "tsafrir",
        "--memory",
        "100,250.5",
    ]
    for name in ("a.swf", "b.swf", "c.swf.gz", "d.json"):
        assert call("generate", *options, "-o", tmp_path / name).output == f"{tmp_path / name}: 300 jobs\n"
    text = (tmp_path / "a.swf").read_bytes()
    assert text == (tmp_path / "b.swf").read_bytes() == gzip.decompress((tmp_path / "c.swf.gz").read_bytes())
    header = "; Note: made by: hdsim workload generate --jobs 300 --cores 64 --seed 4 --typeless --estimates tsafrir"
    assert header in text.decode()
    loaded, other = load_workload(tmp_path / "a.swf"), load_workload(tmp_path / "d.json")
    assert len(loaded) == 300 and loaded.cluster_cores == 64
    assert set(loaded.memory) == {100, 250.5}
    assert np.all(loaded.requested_time >= loaded.runtime)
    assert np.array_equal(loaded.runtime, other.runtime)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--jobs", "x"], "'x' is not a valid integer"),
        (["--jobs", "10", "--memory", "1,b"], "expected numbers separated by commas, got '1,b'"),
        (["--jobs", "10", "--memory", "1_0,2"], "expected numbers separated by commas, got '1_0,2'"),
        (["--jobs", "10", "--estimates", "tsafrir"], "expected at least 200 jobs for the model of estimates, got 10"),
        (["--jobs", "0"], "jobs: expected 1 to 10000000, got 0"),
    ],
)
def test_generate_with_bad_options(tmp_path: Path, options: list[str], message: str) -> None:
    try:
        result = call("generate", *options, "-o", tmp_path / "o.swf")
        assert result.exit_code == 2
        text = result.output
    except HdsimError as error:
        text = str(error)
    assert message in text
    assert list(tmp_path.iterdir()) == []


def test_generate_by_a_model_of_a_file(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(root / "examples/plugins/poisson.py", tmp_path)
    monkeypatch.chdir(tmp_path)
    options = ("generate", "--model", "poisson.py", "--set", "jobs=200", "--seed", 3)
    for name in ("a.swf", "b.swf"):
        assert call(*options, "--set", "rate=0.05", "-o", name).output == f"{name}: 200 jobs\n"
    assert (tmp_path / "a.swf").read_bytes() == (tmp_path / "b.swf").read_bytes()
    loaded = load_workload({"model": "poisson.py", "jobs": 200, "rate": 0.05}, seed=3)
    assert loaded.user.tolist() == load_workload("a.swf").user.tolist() and loaded.memory_bandwidth.all()
    assert len(load_workload("poisson.py")) == 1000
    for told, wrong in (
        ("expected --set with --model, such as --set jobs=VALUE", ("--model", "poisson.py", "--jobs", 5)),
        ("expected KEY=VALUE, got 'jobs'", ("--model", "poisson.py", "--set", "jobs")),
        ("expected --model with --set and --platform", ("--jobs", 5, "--set", "rate=1")),
        ("Missing option '--jobs'", ()),
    ):
        assert told in call("generate", *wrong, "-o", "c.swf").output
    for told, wrong in (
        ("expected one of lublin, .*did you mean 'lublin'.*Python file", ("--model", "lubin")),
        ("unexpected keyword argument 'job' .did you mean 'jobs'", ("--model", "poisson.py", "--set", "job=3")),
    ):
        with pytest.raises(HdsimError, match=told):
            call("generate", *wrong, "-o", "c.swf")
    (tmp_path / "theirs-1.0.dist-info").mkdir()
    (tmp_path / "theirs-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    registered = "[hdsim.generators]\nexponential = poisson:Poisson\n"
    (tmp_path / "theirs-1.0.dist-info" / "entry_points.txt").write_text(registered)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(plugins, "_registered", entry_points)
    assert len(load_workload({"model": "exponential", "jobs": 7})) == 7


def test_the_bundled_trace_is_what_its_header_says(tmp_path: Path) -> None:
    path = resolve("workloads", "lublin_4000")
    note = re.search(r"^; Note: made by: hdsim workload (.*)$", path.read_text(), re.MULTILINE)
    assert note
    call(*shlex.split(note[1]), "-o", tmp_path / "again.swf")
    assert (tmp_path / "again.swf").read_bytes() == path.read_bytes()
    readme = (folder("workloads") / "README.md").read_text().replace("\\\n    ", "")
    assert f"hdsim workload {note[1]} -o lublin_4000.swf" in readme


def test_the_bundled_trace_keeps_the_bundled_platform_busy() -> None:
    platform = load_platform(resolve("platforms", "gaia"))
    trace = load_workload(resolve("workloads", "lublin_4000"), platform, strict=True)
    assert len(trace) == 4000
    assert 0.7 <= trace.offered_load * trace.cluster_cores / platform.n_cores <= 1.1
    assert np.all(trace.requested_time >= trace.runtime)
    assert np.all(trace.memory > 0)


@pytest.mark.parametrize("name", sorted(bundled("workloads")))
def test_bundled_workloads_have_no_fault(name: str) -> None:
    assert "no fault" in call("validate", name).output


def test_convert_makes_bsp_jobs_of_rigid_ones(trace: Path, tmp_path: Path) -> None:
    path = tmp_path / "bsp.json"
    options = ("--platform", "teaching", "--supersteps", "3,9", "--pattern", "ring,halo_2d", "--imbalance", "0.3")
    call("convert", trace, *options, "-o", path)
    first = path.read_bytes()
    profiles = json.loads(first)["profiles"].values()
    assert len(profiles) == 3
    assert all(profile["type"] == "bsp" and 3 <= profile["supersteps"] <= 9 for profile in profiles)
    assert {profile["pattern"] for profile in profiles} <= {"ring", "halo_2d"}
    call("convert", trace, *options, "-o", path)
    assert path.read_bytes() == first


@pytest.mark.parametrize(
    "options",
    [
        ("--pattern", "ring", "--platform", "teaching", "-o", "b.json"),
        ("--supersteps", "3", "-o", "b.json"),
        ("--supersteps", "3", "--platform", "teaching", "-o", "b.swf"),
    ],
)
def test_bsp_jobs_need_a_platform_and_a_format_that_has_them(trace: Path, options: tuple[str, ...]) -> None:
    output = CliRunner().invoke(command, ["convert", str(trace), *options]).output
    assert f"{options[0]}: expected --supersteps, --platform and JSON as output" in output
