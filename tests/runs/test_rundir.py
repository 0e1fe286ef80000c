"""Run directories: Batsim's formats, what a manifest tells, reading back, damaged directories."""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hdsim
from hdsim.cluster.state import FinalState
from hdsim.errors import ConfigError, PlatformError
from hdsim.results.metrics import full
from hdsim.results.run_directory import directory, writers
from hdsim.results.run_directory.directory import RunDirectory, check_place
from hdsim.results.run_directory.manifest import read_manifest
from hdsim.results.run_directory.reader import read
from hdsim.simulation.replay import Interrupted
from hdsim.util import inputs
from hdsim.util.intervals import IntervalSets
from hdsim.util.resources import resolve

HEADER = (
    "job_id,workload_name,profile,submission_time,requested_number_of_resources,requested_time,success,final_state,"
    "starting_time,execution_time,finish_time,waiting_time,turnaround_time,stretch,allocated_resources,consumed_energy,"
    "metadata"
)
SCHEDULE_HEADER = (
    "batsim_version,consumed_joules,makespan,max_slowdown,max_turnaround_time,max_waiting_time,mean_slowdown,"
    "mean_turnaround_time,mean_waiting_time,nb_computing_machines,nb_grouped_switches,nb_jobs,nb_jobs_finished,"
    "nb_jobs_killed,nb_jobs_rejected,nb_jobs_success,nb_machine_switches,scheduling_time,simulation_time,success_rate,"
    "time_computing,time_idle,time_sleeping,time_switching_off,time_switching_on,time_unavailable"
)
PLATFORM = hdsim.Platform.homogeneous(nodes=2, cores_per_node=4, processors_per_node=2, mem_bw=10.0)


def small() -> hdsim.Workload:
    """Jobs that complete, fail, reach their walltime, share too little bandwidth, and one that can never run."""
    return hdsim.Workload.from_columns(
        job_id=np.array(["a", 'b,"x"', "c", "d", "e"], object),
        submission_time=[0, 0, 1, 2, 3.5],
        runtime=[10, 3, 5, 8, 1],
        requested_cores=[2, 3, 99, 8, 1],
        walltime=[np.inf, np.inf, np.inf, 4, np.inf],
        memory_bandwidth=[6.0, 1.0, 0.0, 1.0, 0.0],
        return_code=[0, 7, 0, 0, 0],
        name="w7",
    )


def replayed() -> hdsim.Result:
    return hdsim.simulate(PLATFORM, small(), "fcfs", contention="threshold", kill_at_walltime=True)


def written(path: Path, result: hdsim.Result | None = None, config: dict[str, Any] | None = None) -> hdsim.Result:
    result = result or replayed()
    run = RunDirectory(path)
    run.start(config or {"seed": 5}, result.platform, result.workload)
    run.finish(result)
    return result


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def manifest(path: Path) -> dict[str, Any]:
    return json.loads((path / "manifest.json").read_text())


def test_jobs_csv_has_batsims_columns_order_and_decimals(tmp_path: Path) -> None:
    written(tmp_path)
    lines = (tmp_path / "jobs.csv").read_text().splitlines()
    assert lines[0] == HEADER
    assert lines[1] == (
        "a,w7,,0.000000,2,10.000000,1,COMPLETED_SUCCESSFULLY,0.000000,13.333333,13.333333,0.000000,13.333333,1.000000,"
        '0-1,266.666667,""'
    )
    assert lines[3] == 'c,w7,,1.000000,99,5.000000,0,REJECTED,,,,,,,,,""'
    rows = rows_of(tmp_path / "jobs.csv")
    assert [row["job_id"] for row in rows] == ["a", 'b,"x"', "c", "d", "e"]
    assert [row["final_state"].removeprefix("COMPLETED_") for row in rows] == [
        "SUCCESSFULLY",
        "FAILED",
        "REJECTED",
        "WALLTIME_REACHED",
        "SUCCESSFULLY",
    ]
    assert [row["success"] for row in rows] == ["1", "0", "0", "0", "1"]


def test_schedule_csv_has_batsims_columns(tmp_path: Path) -> None:
    result = written(tmp_path)
    assert (tmp_path / "schedule.csv").read_text().splitlines()[0] == SCHEDULE_HEADER
    (row,) = rows_of(tmp_path / "schedule.csv")
    counts = {name: int(row[f"nb_jobs{name}"]) for name in ("", "_finished", "_killed", "_rejected", "_success")}
    assert counts == {"": 5, "_finished": 4, "_killed": 2, "_rejected": 1, "_success": 2}
    assert float(row["consumed_joules"]) == pytest.approx(result.energy_joules)
    assert float(row["makespan"]) == pytest.approx(result.metrics["makespan"])
    assert float(row["time_computing"]) + float(row["time_idle"]) == pytest.approx(8 * result.end_time)


def test_machine_states_csv_counts_every_core_once(tmp_path: Path) -> None:
    written(tmp_path)
    rows = rows_of(tmp_path / "machine_states.csv")
    assert list(rows[0]) == ["time", "nb_sleeping", "nb_switching_on", "nb_switching_off", "nb_idle", "nb_computing"]
    assert all(int(row["nb_idle"]) + int(row["nb_computing"]) == 8 for row in rows)
    assert [row["nb_computing"] for row in rows[:2]] == ["5", "2"]
    assert rows[-1]["nb_computing"] == "0"


def test_spans_of_oversubscribed_bandwidth_are_written_if_there_are_any(tmp_path: Path) -> None:
    written(tmp_path / "some")
    assert rows_of(tmp_path / "some/oversubscription.csv")[0] == {
        "processor": "0",
        "start": "0.000000",
        "end": "13.333333",
    }
    quiet = small().replaced(memory_bandwidth=0.0)
    written(tmp_path / "none", hdsim.simulate(PLATFORM, quiet, "fcfs"))
    assert not (tmp_path / "none/oversubscription.csv").exists()


@pytest.mark.parametrize("case", ["high_gflops", "high_mem_bw", "low_power"])
def test_jobs_csv_equals_batsims(case: str, shared_data: Path, tmp_path: Path) -> None:
    batsim = shared_data / "batsim_runs" / f"learning_shortest-{case}"
    platform = hdsim.load_platform(shared_data / "hdeeprm/platforms/learning.json", types=shared_data / "hdeeprm/types")
    workload = hdsim.load_workload(batsim / "workload.json.gz", platform=platform)
    written(tmp_path, hdsim.simulate(platform, workload, f"shortest-{case}", contention="threshold"))
    with gzip.open(batsim / "out_jobs.csv.gz", "rt", newline="") as file:
        theirs = {row["job_id"]: row for row in csv.DictReader(file)}
    ours = rows_of(tmp_path / "jobs.csv")
    assert len(ours) == len(theirs)
    for row in ours:
        for name, value in theirs[row["job_id"]].items():
            if name == "requested_time":
                continue  # Batsim writes the walltime here
            if re.fullmatch(r"-?\d+\.\d{6}", value):
                assert re.fullmatch(r"-?\d+\.\d{6}", row[name])
                assert float(row[name]) == pytest.approx(float(value), abs=1e-4 if name == "consumed_energy" else 2e-6)
            else:
                assert row[name] == value


def test_metrics_json_holds_all_metrics(tmp_path: Path) -> None:
    result = written(tmp_path)
    assert RunDirectory(tmp_path).metrics() == pytest.approx(full(result), nan_ok=True)


def test_results_are_read_in_blocks_of_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path)
    whole = read(tmp_path)
    assert set(whole.jobs["job_id"]) == {"a", 'b,"x"', "c", "d", "e"}
    monkeypatch.setattr(inputs, "_BLOCK", 2)
    parts = read(tmp_path)
    assert list(parts.jobs) == list(whole.jobs)
    for name, column in whole.jobs.items():
        np.testing.assert_array_equal(parts.jobs[name], column)
    (tmp_path / "jobs.csv").write_text((tmp_path / "jobs.csv").read_text() + "1,2\n")
    with pytest.raises(ConfigError, match=r"jobs\.csv:7: expected \d+ fields, got 2"):
        list(inputs.csv_blocks(tmp_path / "jobs.csv", ConfigError, "file"))


def test_metrics_that_are_not_defined_are_null(tmp_path: Path) -> None:
    written(tmp_path, hdsim.simulate(PLATFORM, small(), "void"))
    assert json.loads((tmp_path / "metrics.json").read_text())["mean_waiting_time"] is None
    assert np.isnan(read(tmp_path).metrics["mean_waiting_time"])


def test_manifest_names_configuration_seed_versions_and_inputs(tmp_path: Path) -> None:
    path = resolve("platforms", "learning")
    trace, agent = tmp_path / "trace.swf", tmp_path / "mine.py"
    trace.write_text("1 0 -1 10 1 -1 -1 1 20 -1 1 1 1 1 1 1 -1 -1\n")
    agent.write_text("# an agent\n")
    platform = hdsim.load_platform(path)
    workload = hdsim.load_workload(trace, platform=platform)
    config = {"seed": 3, "agent": {"path": str(agent)}, "workload": {"path": Path("trace.swf"), "jobs": None}}
    written(tmp_path / "run", hdsim.simulate(platform, workload, "fcfs", seed=3), config)
    told = manifest(tmp_path / "run")
    assert told["status"] == "finished"
    assert told["seeds"] == {"seed": 3}
    assert told["config"]["workload"] == {"path": "trace.swf", "jobs": None}
    assert {name: told["versions"][name] for name in ("hdsim", "python")} == {
        "hdsim": hdsim.__version__,
        "python": ".".join(map(str, sys.version_info[:3])),
    }
    assert {"numpy", "simpy"} <= set(told["versions"])
    digests = {entry["kind"]: entry["sha256"] for entry in told["inputs"]}
    for kind, file in (("platform", path), ("workload", trace), ("agent", agent)):
        assert digests[kind] == hashlib.sha256(file.read_bytes()).hexdigest()
    assert told["duration"] >= 0 and re.match(r"\d{4}-\d\d-\d\dT", told["start"])


def test_manifest_names_libraries_of_types(tmp_path: Path, shared_data: Path) -> None:
    types = shared_data / "hdeeprm/types"
    platform = hdsim.load_platform(shared_data / "hdeeprm/platforms/learning.json", types=types)
    RunDirectory(tmp_path).start({}, platform)
    digests = {Path(entry["path"]).name: entry["sha256"] for entry in manifest(tmp_path)["inputs"]}
    file = types / "processor_types.json"
    assert digests[file.name] == hashlib.sha256(file.read_bytes()).hexdigest()


def test_status_while_running_and_after_failing(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    run.start({"seed": 1})
    assert manifest(tmp_path)["status"] == "running"
    run.fail(PlatformError("expected cores, got none", where="p.json"))
    assert (manifest(tmp_path)["status"], manifest(tmp_path)["error"]) == ("failed", "p.json: expected cores, got none")
    try:
        raise ZeroDivisionError("oh")
    except ZeroDivisionError as error:
        run.fail(error)
    assert manifest(tmp_path)["error"] == "ZeroDivisionError: oh"
    assert "test_rundir" in manifest(tmp_path)["traceback"]
    with pytest.raises(ConfigError, match=r"expected a finished run, got one that is failed: ZeroDivisionError: oh"):
        read(tmp_path)


def test_a_new_run_removes_the_results_of_an_old_one(tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    RunDirectory(tmp_path).start({"seed": 5})
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "manifest.json", "notes.txt"]


def test_a_run_that_is_killed_as_it_starts_can_be_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results without a manifest are another program's: nothing that counts as a result may come before it."""

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    for place in ("write_json", "versions"):
        with monkeypatch.context() as patch:
            patch.setattr(directory, place, killed)
            with pytest.raises(KeyboardInterrupt):
                RunDirectory(tmp_path).start({}, PLATFORM)
        check_place(tmp_path, {})
    RunDirectory(tmp_path).start({}, PLATFORM)
    assert (tmp_path / "platform.json").is_file()


def test_no_temporary_file_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = replayed()
    run = RunDirectory(tmp_path)
    run.start({})

    def broken(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(writers.series, "busy_cores", broken)
    with pytest.raises(OSError, match="disk full"):
        run.finish(result)
    assert manifest(tmp_path)["status"] == "running"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == [".lock"]


class _Stopped(hdsim.Agent):
    """Serves the queue in order until the second instant, at which a signal comes."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.instants = 0

    def decide(self, cluster: Any) -> None:
        for job in list(cluster.queue):
            cluster.start(job)
        self.instants += 1
        if self.instants == 2:
            os.kill(os.getpid(), self.number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_keeps_the_jobs_finished_so_far(number: signal.Signals, tmp_path: Path) -> None:
    workload = hdsim.Workload.from_columns(
        submission_time=[0, 0, 1, 20], runtime=[1, 10, 3, 5], requested_cores=[1, 1, 1, 1]
    )
    run = RunDirectory(tmp_path)
    run.start({}, PLATFORM, workload)
    with pytest.raises(Interrupted) as caught:
        hdsim.simulate(PLATFORM, workload, _Stopped(number))
    run.interrupt(caught.value.result, caught.value.signal)
    assert (manifest(tmp_path)["status"], manifest(tmp_path)["signal"]) == ("interrupted", number.name)
    assert [row["job_id"] for row in rows_of(tmp_path / "jobs.csv")] == ["0"]
    assert read(tmp_path).end_time == 1.0


def test_an_interruption_before_there_are_results_is_no_failure(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    run.start({})
    run.fail(KeyboardInterrupt())
    assert manifest(tmp_path)["status"] == "interrupted"


def test_a_finished_run_is_one_of_the_same_configurations(tmp_path: Path) -> None:
    config = {"seed": 1, "agent": {"job_policy": "sjf"}, "workload": {"path": Path("w.swf"), "arrival_factor": 1.0}}
    run = RunDirectory(tmp_path)
    assert run.outdated(config) == ""
    written(tmp_path, config=config)
    assert run.outdated(config) is None
    assert run.outdated(config | {"seed": 2}) == "finished with another configuration"


@pytest.mark.parametrize("changes", ["content", "gone", "version", "commit", "another file of that name"])
def test_a_finished_run_is_one_of_the_same_inputs_and_software(
    changes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model, trace = tmp_path / "model.py", tmp_path / "trace.swf"
    model.write_text("a = 1\n")
    trace.write_text("1 0 -1 10 1 -1 -1 1 20 -1 1 1 1 1 1 1 -1 -1\n")
    workload = hdsim.load_workload(trace, platform=PLATFORM)
    config = {"contention": {"path": str(model)}, "workload": {"path": "trace.swf"}, "agent": {"table": "table.csv"}}
    run = RunDirectory(tmp_path / "run")
    run.start(config, PLATFORM, workload)
    run.finish(hdsim.simulate(PLATFORM, workload, "fcfs"))
    assert run.outdated(config) is None
    if changes == "content":
        model.write_text("a = 2\n")
        expected = f"finished with another content of contention '{model}'"
    elif changes == "gone":
        trace.unlink()
        expected = f"finished with another content of workload '{workload.source}'"
    elif changes == "another file of that name":
        (tmp_path / "table.csv").write_text("")
        expected = "finished with another content of agent.table 'table.csv'"
    else:
        told = manifest(tmp_path / "run")
        known = told["versions"] if changes == "version" else told
        known["hdsim" if changes == "version" else "git_commit"] = "0.0.1"
        (tmp_path / "run/manifest.json").write_text(json.dumps(told))
        expected = "finished with (commit 0.0.1 of hdsim|hdsim 0.0.1) instead of"
    assert re.match(expected.replace("\\", "/"), str(run.outdated(config)))


HOLDER = """
import sys, time
from hdsim.results.run_directory.directory import RunDirectory
run = RunDirectory(sys.argv[1])
run.start({"seed": 5})
print("started", flush=True)
time.sleep(600)
"""


@pytest.fixture
def holder(tmp_path: Path, root: Path) -> Any:
    """A process that writes the run directory until it is killed."""
    path = {**os.environ, "PYTHONPATH": str(root)}
    process = subprocess.Popen([sys.executable, "-c", HOLDER, tmp_path], stdout=subprocess.PIPE, env=path)
    assert process.stdout and process.stdout.readline() == b"started\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_second_process_in_a_run_directory_is_refused(holder: Any, tmp_path: Path) -> None:
    before = (tmp_path / "manifest.json").read_bytes()
    message = f"got one in use by process {holder.pid} on host {re.escape(socket.gethostname())} since 20"
    with pytest.raises(ConfigError, match=message):
        RunDirectory(tmp_path).start({"seed": 6})
    assert (tmp_path / "manifest.json").read_bytes() == before
    assert read_manifest(tmp_path)["status"] == "running"
    with pytest.raises(ConfigError, match="expected a finished run, got one that is running"):
        read(tmp_path)


def test_a_killed_run_is_dead_and_its_directory_free(holder: Any, tmp_path: Path) -> None:
    holder.kill()
    holder.wait()
    dead = read_manifest(tmp_path)
    assert dead["status"] == "dead"
    assert abs(datetime.fromisoformat(dead["dead_since"]).timestamp() - (tmp_path / ".lock").stat().st_mtime) < 2
    with pytest.raises(ConfigError, match=rf"that is dead since {dead['dead_since'][:10]}.* \(process {holder.pid} on"):
        read(tmp_path)
    written(tmp_path)
    assert manifest(tmp_path)["status"] == "finished"
    assert not (tmp_path / ".lock").exists()


def test_a_process_of_another_host_is_not_taken_for_dead(holder: Any, tmp_path: Path) -> None:
    holder.kill()
    holder.wait()
    (tmp_path / ".lock").write_text(json.dumps({"host": "elsewhere", "pid": 7, "start": "2026-01-01T00:00:00"}))
    with pytest.raises(ConfigError, match=r"process 7 on host elsewhere since 2026.* remove '.*\.lock'"):
        RunDirectory(tmp_path).start({})
    assert read_manifest(tmp_path)["status"] == "running"
    (tmp_path / ".lock").unlink()
    written(tmp_path)


def test_what_depends_on_wall_time_is_in_the_manifest(tmp_path: Path) -> None:
    for name in "ab":
        written(tmp_path / name)
    for file in ("jobs.csv", "metrics.json", "schedule.csv", "job_details.csv", "platform.json"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes(), file
    told = manifest(tmp_path / "a")
    assert told["simulation_time"] > 0
    assert read(tmp_path / "a").metrics["jobs_per_second"] == told["jobs_per_second"] > 0


def test_reading_back_gives_the_same_jobs_cores_and_spans(tmp_path: Path) -> None:
    result = written(tmp_path)
    run = read(tmp_path)
    for name, column in result.jobs.items():
        if column.dtype.kind == "f":
            np.testing.assert_allclose(run.jobs[name], column, atol=5.1e-7)
        else:
            assert run.jobs[name].tolist() == [str(v) if name == "job_id" else v for v in column.tolist()]
    assert run.segments.job.tolist() == result.segments.job.tolist()
    assert run.state.tolist() == result.state.tolist()
    assert run.end_time == result.end_time
    held = []
    for one in (run, result):
        segments, usage = one.segments, one.segments.usage
        rows = zip(segments.job[usage.segment], usage.processor, usage.cores, strict=True)
        held.append(sorted(rows))
    assert held[0] == held[1]
    for ours, theirs in zip(run.oversubscribed, result.oversubscribed, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=5.1e-7)
    assert run.platform.to_dict() == PLATFORM.to_dict()
    assert run.config == {"seed": 5}


@given(st.lists(st.sets(st.integers(0, 60), min_size=1), max_size=8))
def test_interval_sets_are_read_as_written(sets: list[set[int]]) -> None:
    texts = []
    for cores in sets:
        spans: list[list[int]] = []
        for core in sorted(cores):
            if spans and spans[-1][1] == core - 1:
                spans[-1][1] = core
            else:
                spans.append([core, core])
        texts.append(" ".join(f"{low}-{high}" if low < high else str(low) for low, high in spans))
    assert IntervalSets.parse(texts).ids.tolist() == [core for cores in sets for core in sorted(cores)]


@pytest.mark.parametrize(
    ("name", "before", "after", "message"),
    [
        ("jobs.csv", "finish_time,", "end,", "expected Batsim's job columns, finish_time missing"),
        ("jobs.csv", ",COMPLETED_FAILED,", ",LOST,", r"jobs\.csv:3: final_state: expected one of .*, got 'LOST'"),
        ("jobs.csv", "13.333333", "soon", "[a-z]+_time: expected numbers.*'soon'"),
        ("jobs.csv", ",0-1,", ",0-x,", "allocated_resources: expected interval sets"),
        ("jobs.csv", ",0-1,", ",1-0,", "allocated_resources: expected interval sets"),
        ("jobs.csv", ",0-1,", ",0-5,", "allocated_resources: expected as many cores as each job asked for"),
        ("jobs.csv", ",0-1,", ",8-9,", "allocated_resources: expected interval sets: expected ids below 8, got 9"),
        ("jobs.csv", ',266.666667,""', "", r"jobs\.csv:2: expected 17 fields, got 15"),
        ("oversubscription.csv", "13.333333", "later", "expected numbers"),
        ("metrics.json", "{", "[", r"metrics\.json:2:13: expected JSON"),
        ("platform.json", '"clusters"', '"custers"', "clusters"),
        ("manifest.json", '"status"', '"state"', "status: expected a text, got nothing"),
    ],
)
def test_a_damaged_directory_gives_one_error(name: str, before: str, after: str, message: str, tmp_path: Path) -> None:
    written(tmp_path)
    path = tmp_path / name
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))
    with pytest.raises((ConfigError, PlatformError), match=message):
        read(tmp_path)


@pytest.mark.parametrize("name", ["jobs.csv", "metrics.json", "platform.json"])
def test_an_incomplete_directory_gives_one_error(name: str, tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(ConfigError, match=f"expected a run directory with {name}, which is missing"):
        read(tmp_path)


def test_no_directory_and_no_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected a run directory, got nothing"):
        read(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match=r"a directory without manifest\.json"):
        read(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="expected a directory that can be made"):
        RunDirectory(tmp_path / "file").start({})
    with pytest.raises(ConfigError, match="expected a run directory, got a file"):
        read(tmp_path / "file")


@pytest.mark.ci
def test_the_same_run_in_two_processes_writes_the_same_jobs(tmp_path: Path, root: Path) -> None:
    for name, hash_seed in (("a", "1"), ("b", "2")):
        options = [
            "agent=random-random",
            "contention=threshold",
            "workload.jobs=300",
            "seed=4",
            f"hydra.run.dir={name}",
        ]
        subprocess.run(
            [sys.executable, "-m", "hdsim", "run", *options],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(root), "PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
        )
    first, second = ((tmp_path / name / "jobs.csv").read_bytes() for name in "ab")
    assert first == second
    assert first.count(b"\n") == 301


def test_only_jobs_that_are_done_have_a_row(tmp_path: Path) -> None:
    result = hdsim.simulate(PLATFORM, small(), "void")
    written(tmp_path, result)
    assert [row["final_state"] for row in rows_of(tmp_path / "jobs.csv")] == [FinalState.REJECTED.name]
    assert read(tmp_path).segments.cores.tolist() == []
