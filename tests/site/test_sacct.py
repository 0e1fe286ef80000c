"""Import of sacct: the recorded dumps, every form of a dump, damaged ones, local times, new names."""

from __future__ import annotations

import csv
import gzip
import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner, Result
from tiers import TIER

import hdsim
from hdsim.cli import cli
from hdsim.errors import ConfigError
from hdsim.site.importing import import_site, write_site
from hdsim.site.model import Site, load_site
from hdsim.site.notes import Notes
from hdsim.site.submit_lines import UNREAD, submit_options, unread_options

CONF = """ClusterName=c
SelectTypeParameters=CR_Core_Memory
Licenses=lx:4
NodeName=n[1-4] CPUs=8 RealMemory=16000 Gres=gpu:ta:2 Feature=big
PartitionName=p Nodes=ALL Default=YES MaxTime=1-00:00:00
PartitionName=q Nodes=n[1-2] MaxTime=INFINITE
"""
NAMES = (
    *("JobID", "JobName", "User", "Account", "Partition", "QOS", "Submit", "Eligible", "Start", "End", "ElapsedRaw"),
    *("TimelimitRaw", "Suspended", "State", "NNodes", "NCPUS", "ReqCPUS", "ReqMem", "ReqNodes", "ReqTRES", "AllocTRES"),
    *("NodeList", "Priority", "Reason", "Reservation", "Constraints", "SubmitLine"),
)
USUAL = {
    "JobID": "1",
    "JobName": "job",
    "User": "ann",
    "Account": "chem",
    "Partition": "p",
    "QOS": "normal",
    "Submit": "2026-03-02T10:00:00",
    "Eligible": "2026-03-02T10:00:00",
    "Start": "2026-03-02T10:01:00",
    "End": "2026-03-02T10:02:40",
    "ElapsedRaw": "100",
    "TimelimitRaw": "5",
    "Suspended": "00:00:00",
    "State": "COMPLETED",
    "NNodes": "1",
    "NCPUS": "4",
    "ReqCPUS": "4",
    "ReqMem": "8000M",
    "ReqNodes": "1",
    "ReqTRES": "billing=4,cpu=4,mem=8000M,node=1",
    "AllocTRES": "billing=4,cpu=4,mem=8000M,node=1",
    "NodeList": "n1",
    "Priority": "100",
    "Reason": "None",
    "Reservation": "",
    "Constraints": "",
    "SubmitLine": "sbatch job.sh",
}
NEVER = {"Start": "None", "ElapsedRaw": "0", "NodeList": "None assigned", "AllocTRES": ""}


def row(**changes: str) -> str:
    return "|".join({**USUAL, **changes}[name] for name in NAMES)


def dump(*rows: str, header: str = "|".join(NAMES)) -> str:
    return "".join(f"{line}\n" for line in (header, *rows))


def folder(path: Path, sacct: str | bytes | None = None, name: str = "sacct.txt", conf: str = CONF) -> Path:
    path.mkdir(exist_ok=True)
    (path / "slurm.conf").write_text(conf)
    if sacct is not None:
        (path / name).write_bytes(sacct.encode() if isinstance(sacct, str) else sacct)
    return path


def read(path: Path, zone: str = "UTC", **options: Any) -> tuple[pl.DataFrame, Notes, Site]:
    notes = Notes()
    site, jobs = import_site([path], zone, notes, **options)
    return jobs, notes, site


def jobs_of(path: Path, *rows: str, **options: Any) -> tuple[pl.DataFrame, dict[str, int]]:
    """Jobs of rows, and the counts of what was changed and left out by reason."""
    jobs, notes, _ = read(folder(path, dump(*rows)), **options)
    counts = notes.changed.get("sacct.txt", {}) | notes.left_out.get("sacct.txt", {})
    return jobs, {reason: count for reason, count in counts.items() if "QOS that no file" not in reason}


def call(*words: object) -> Result:
    return CliRunner().invoke(cli, ["site", "import", *map(str, words)], catch_exceptions=False)


def seconds(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def test_every_recorded_dump(shared_data: Path) -> None:
    cases = sorted((shared_data / "slurm").glob("*/sacct.txt"))
    assert len(cases) >= 30
    for path in cases:
        jobs, _, site = read(path.parent)
        zero = float(re.search(r"epoch (\d+\.\d+)", (path.parent / "README.txt").read_text())[1])  # type: ignore[index]
        with (path.parent / "result.csv").open(encoding="utf-8") as file:
            results = list(csv.DictReader(file))
        runs: dict[str, list[dict[str, str]]] = {}
        for one in results:
            runs.setdefault(one["jobid"], []).append(one)
        assert sorted(map(str, jobs["job_id"])) == sorted(runs), path
        assert site.begin == jobs["submission_time"].min()
        for job in jobs.iter_rows(named=True):
            recorded = runs[str(job["job_id"])]
            first, last = recorded[0], recorded[-1]
            assert job["restarts"] == len(recorded) - 1
            # Times of result.csv are whole seconds since a zero that is none.
            assert job["submission_time"] - zero == pytest.approx(float(first["submit"]), abs=1), path
            assert job["eligible"] - zero == pytest.approx(float(first["eligible"]), abs=1), path
            for edge in ("start", "end"):
                never = edge == "start" and last["nodes"] == "None assigned"
                if never or last[edge] == "None":
                    assert job[f"recorded_{edge}"] is None, path
                else:
                    assert job[f"recorded_{edge}"] - zero == pytest.approx(float(last[edge]), abs=1), path
            assert job["state"] == last["state"].split()[0]
            if job["recorded_start"] is not None:
                suspended = datetime.strptime(last["suspended"], "%H:%M:%S") - datetime(1900, 1, 1)
                lasted = job["recorded_end"] - job["recorded_start"] - suspended.total_seconds()
                assert job["runtime"] == lasted
                assert job["requested_cores"] == int(last["ncpus"]) and job["recorded_nodes"] == last["nodes"]
            else:
                assert (job["runtime"], job["status"], job["recorded_nodes"]) == (0, 5, None)
            assert job["recorded_priority"] == float(last["priority"])
            nodes = [run["nodes"] for run in job["runs"] or []]
            assert nodes == ([one["nodes"] for one in recorded] if len(recorded) > 1 else []), path


def test_recorded_memory_is_that_which_was_asked_for(shared_data: Path) -> None:
    case = shared_data / "slurm" / "mem"
    jobs, _, _ = read(case)
    with (case / "jobs.csv").open(encoding="utf-8") as file:
        asked = {one["k"]: one for one in csv.DictReader(file)}
    compared = 0
    for job in jobs.iter_rows(named=True):
        one = asked[str(job["executable"]).removeprefix("j")]
        of_cpu = float(one["memcpu"]) if one["memcpu"] else None if one["mem"] else 2000.0
        if of_cpu is not None and job["memory_per"] == "n":
            # On one node both mean the same.
            assert job["memory_mib"] == of_cpu * job["cpus"] and job["nodes"] == 1
        elif of_cpu is not None:
            assert job["memory_mib"] == of_cpu
        else:
            assert (job["memory_mib"], job["memory_per"]) == (float(one["mem"]) or 16000, "n")
        compared += 1
    assert compared == 34


def test_a_job_of_each_column(tmp_path: Path) -> None:
    jobs, counts = jobs_of(
        tmp_path,
        row(
            ReqTRES="billing=4,cpu=4,gres/gpu:ta=2,gres/gpu=2,license/lx=1,mem=8000M,node=1",
            AllocTRES="billing=8,cpu=8,gres/gpu:ta=2,gres/gpu=2,mem=8000M,node=1",
            SubmitLine="sbatch -c 2 --nice=7 -d afterok:5 -x n3 -w n1 -C big job.sh -c 9",
        ),
    )
    assert counts == {}
    (job,) = jobs.iter_rows(named=True)
    assert job == {
        "job_id": 1,
        "submission_time": seconds("2026-03-02T10:00:00"),
        "runtime": 100.0,
        "requested_time": 300.0,
        "walltime": 300.0,
        "requested_cores": 8,
        "requested_gpus": 2,
        "memory": 8000 * 1.048576 / 8,
        "user": "ann",
        "group": "chem",
        "queue": "normal",
        "partition": "p",
        "executable": "job",
        "status": 1,
        "eligible": seconds("2026-03-02T10:00:00"),
        "begin": None,
        "cpus": 4,
        "nodes": 1,
        "most_nodes": None,
        "per_task": 2,
        "tasks_per_node": None,
        "min_cpus": None,
        "use_min_nodes": False,
        "array_limit": None,
        "memory_mib": 8000.0,
        "memory_per": "n",
        "whole": True,
        "whole_cores": False,
        "exclusive_user": False,
        "nice": 7,
        "constraints": "big",
        "reservation": None,
        "licenses": "lx:1",
        "gres": "gpu:ta:2",
        "gpus_asked": None,
        "gpus_per_task": None,
        "cpus_per_gpu": None,
        "dependency": "afterok:5",
        "held": False,
        "partitions": "p",
        "required_nodes": "n1",
        "excluded_nodes": "n3",
        "array_job_id": None,
        "restarts": 0,
        "runs": None,
        "state": "COMPLETED",
        "reason": None,
        "recorded_start": seconds("2026-03-02T10:01:00"),
        "recorded_end": seconds("2026-03-02T10:02:40"),
        "recorded_nodes": "n1",
        "recorded_priority": 100.0,
    }


def test_steps_arrays_het_jobs_and_repeated_runs(tmp_path: Path) -> None:
    later = {"Submit": "2026-03-02T11:00:00", "Eligible": "2026-03-02T11:02:01"}
    jobs, counts = jobs_of(
        tmp_path,
        row(JobID="1", State="PREEMPTED", End="2026-03-02T11:00:00", ElapsedRaw="3540"),
        *(row(JobID=f"1.{step}") for step in ("batch", "extern", "0")),
        row(JobID="1", **later, Start="2026-03-02T11:10:00", End="2026-03-02T11:10:50", ElapsedRaw="50"),
        row(JobID="7_3"),
        row(JobID="7_[4-6:2,9%2]", State="PENDING", **NEVER, End="Unknown"),
        row(JobID="8_[1,2,...", State="PENDING", **NEVER, End="Unknown"),
        row(JobID="9+0"),
        row(JobID="9+1"),
        row(JobID="9+1.0"),
    )
    assert jobs["job_id"].sort().to_list() == ["1", "7_3", "7_4", "7_6", "7_9", "8_1", "8_2", "9+0", "9+1"]
    assert jobs.filter(job_id="7_9")["array_job_id"].to_list() == [7]
    first = jobs.row(0, named=True)
    assert (first["restarts"], first["runtime"], first["eligible"]) == (1, 50, seconds("2026-03-02T10:00:00"))
    assert first["submission_time"] == seconds("2026-03-02T10:00:00") and len(first["runs"]) == 2
    assert counts == {
        "steps of jobs (.batch, .extern, .0)": 4,
        "tasks of pending arrays: a job each": 5,
        "tasks that sacct has cut off (...)": 1,
        "components of heterogeneous jobs: a job each": 2,
        "runs of requeued and preempted jobs: one job with restarts": 1,
        "waiting at the end of the dump: kept with status 5, never started": 5,
    }


@pytest.mark.parametrize(
    ("changes", "columns", "reason"),
    [
        ({"State": "CANCELLED by 1005"}, {"status": 5, "state": "CANCELLED", "runtime": 100}, None),
        ({"State": "OUT_OF_MEMORY"}, {"status": 0}, None),
        ({"State": "TIMEOUT", "ElapsedRaw": "330"}, {"status": 0, "walltime": 330, "requested_time": 300}, None),
        (
            {"State": "CANCELLED", **NEVER, "End": "2026-03-02T12:00:00"},
            {"status": 5, "runtime": 0, "recorded_end": seconds("2026-03-02T12:00:00"), "requested_cores": 4},
            "ended before they started: kept with status 5, leave the queue at their end",
        ),
        (
            {"State": "CANCELLED", **NEVER, "Start": "2026-03-02T12:00:00", "End": "2026-03-02T12:00:00"},
            {"status": 5, "recorded_start": None},
            "ended before they started: kept with status 5, leave the queue at their end",
        ),
        (
            {"State": "RUNNING", "End": "Unknown", "ElapsedRaw": "77"},
            {"status": -1, "runtime": 77, "recorded_end": None},
            "running at the end of the dump: jobs with the run time until then",
        ),
        ({"TimelimitRaw": "UNLIMITED"}, {"requested_time": 86_400, "walltime": 86_400}, None),
        ({"TimelimitRaw": "Partition_Limit"}, {"requested_time": 86_400}, None),
        ({"TimelimitRaw": "UNLIMITED", "Partition": "q"}, {"requested_time": 365 * 86_400}, None),
        ({"ElapsedRaw": "-5"}, {"runtime": 100}, "negative Elapsed: the time from Start to End, at least 0"),
        ({"ElapsedRaw": "4294967291"}, {"runtime": 100}, "negative Elapsed: the time from Start to End, at least 0"),
        ({"ElapsedRaw": "40", "Suspended": "00:01:00"}, {"runtime": 40}, None),
        ({"ReqMem": "2Gc"}, {"memory_mib": 2048, "memory_per": "c"}, None),
        ({"ReqMem": "62.50Gn"}, {"memory_mib": 64_000, "memory_per": "n"}, None),
        (
            {"ReqMem": "2147486648Mn"},
            {"memory_mib": 3000, "memory_per": "c"},
            "ReqMem above 2^31 MiB, as 2147486648Mn: without 2^31, of each CPU",
        ),
        ({"ReqMem": "lots", "ReqTRES": "cpu=4"}, {"memory_mib": None}, "ReqMem that is no amount: taken as unknown"),
        ({"SubmitLine": "sbatch --mem-per-cpu=2000 x"}, {"memory_mib": 2000, "memory_per": "c"}, None),
        ({"User": "jürgen", "JobName": "größe ✓"}, {"user": "jürgen", "executable": "größe ✓"}, None),
        ({"Partition": "q,p", "SubmitLine": "sbatch -p q,p x"}, {"partition": "q", "partitions": "q,p"}, None),
        ({"SubmitLine": "sbatch --exclusive x"}, {"whole": True}, None),
        ({"SubmitLine": "sbatch -N 1-3 x"}, {"nodes": 1, "most_nodes": 3}, None),
        ({"ReqNodes": "2", "AllocTRES": "cpu=4,node=2"}, {"nodes": 2, "most_nodes": 2}, None),
        ({"ReqNodes": "2", "AllocTRES": "cpu=4,node=3"}, {"nodes": 2, "most_nodes": None}, None),
        ({"AllocTRES": "cpu=8,node=1"}, {"whole": True, "requested_cores": 8, "cpus": 4}, None),
        ({"AllocTRES": "cpu=8,node=2", "NodeList": "n[1-2]"}, {"whole": False}, None),
        ({"AllocTRES": "cpu=16,node=2", "NodeList": "n[1-2]"}, {"whole": True}, None),
        (
            {"SubmitLine": "sbatch --exclusive=mcs x"},
            {"whole": False},
            "--exclusive=mcs: not simulated, the job is as without it",
        ),
        (
            {"State": "PENDING", **NEVER, "End": "Unknown", "Priority": "0"},
            {"held": True},
            "waiting at the end of the dump: kept with status 5, never started",
        ),
        ({"Priority": "0"}, {"held": False}, None),
        (
            {"Eligible": "Unknown", "SubmitLine": "sbatch --begin=now+2hours x"},
            {"eligible": seconds("2026-03-02T12:00:00")},
            None,
        ),
        (
            {"Eligible": "Unknown", "SubmitLine": "sbatch -b 2026-03-02T11:00:00 x"},
            {"eligible": seconds("2026-03-02T11:00:00")},
            None,
        ),
        (
            {"Reservation": "gone"},
            {"reservation": None},
            "reservations that are not in reservations.txt: not asked for",
        ),
        (
            {"Constraints": "old&big"},
            {"constraints": None},
            "constraints with features that slurm.conf does not have: not asked for",
        ),
        (
            {"Constraints": "[big*2]"},
            {"constraints": None},
            "constraints with numbers of nodes, or [...] for several nodes: not asked for",
        ),
        (
            {"SubmitLine": "sbatch -L ansys:2 x"},
            {"licenses": None},
            "licences that slurm.conf does not have: not asked for",
        ),
        ({"SubmitLine": "sbatch -L lx:2 x"}, {"licenses": "lx:2"}, None),
        (
            {"SubmitLine": "sbatch --gres=gpu:zz:1 x"},
            {"gres": None},
            "generic resources that slurm.conf does not have: not asked for",
        ),
        (
            {"NCPUS": "", "ReqCPUS": "", "ReqTRES": "", "AllocTRES": ""},
            {"cpus": 1, "requested_cores": 1},
            "no number of CPUs: taken as one",
        ),
        (
            {"TimelimitRaw": "9" * 14},
            {"requested_time": 86_400},
            "Timelimit of more than a hundred years: that of the partition",
        ),
        (
            {"ReqMem": "99999999999P"},
            {"memory_mib": None},
            "memory of more than a billion MiB: not asked for",
        ),
        (
            {"End": "2026-03-02T09:00:00"},
            {"recorded_end": seconds("2026-03-02T10:02:40"), "runtime": 100},
            "End before Start: Start and Elapsed later",
        ),
        (
            {"NodeList": "n[1-"},
            {"recorded_nodes": None},
            "NodeList that is no list of nodes: taken as unknown",
        ),
        (
            {"NodeList": "zz[1-2]"},
            {"recorded_nodes": "zz[1-2]"},
            "nodes that slurm.conf does not have: --from takes others",
        ),
        (
            {"Submit": "2026-03-02T11:00:00", "Start": "2026-03-02T10:01:00"},
            {"submission_time": seconds("2026-03-02T10:01:00")},
            "Submit after Start: that of Start",
        ),
        ({"Start": "gestern"}, {"recorded_start": None}, "Start that is no time: taken as unknown"),
        (
            {"Submit": "Unknown"},
            {"submission_time": seconds("2026-03-02T10:00:00")},
            "no Submit: that of Eligible or Start",
        ),
        (
            {"Submit": "1772445600", "End": "1772445760"},
            {"submission_time": 1772445600, "recorded_end": 1772445760},
            None,
        ),
        ({"Submit": "2026-03-02T11:00:00+0100"}, {"submission_time": seconds("2026-03-02T10:00:00")}, None),
    ],
)
def test_values(tmp_path: Path, changes: dict[str, str], columns: dict[str, Any], reason: str | None) -> None:
    jobs, counts = jobs_of(tmp_path, row(**changes))
    (job,) = jobs.iter_rows(named=True)
    assert {name: job[name] for name in columns} == columns
    expected = [] if reason is None else [reason]
    assert [told for told in counts if "before they started" not in told or told in expected] == expected


@pytest.mark.parametrize(
    ("elapsed", "limit", "expected"),
    [
        ("00:01:40", "01:00:00", (100, 3600)),
        ("2-00:00:05", "3-00:00:00", (172_805, 259_200)),
        ("01:40", "30", (100, 1800)),
        ("00:01:40", "1-12", (100, 129_600)),
        ("-00:00:05", "UNLIMITED", (100, 86_400)),
        ("00:01:40.500", "Partition_Limit", (100.5, 86_400)),
        ("", "", (100, 86_400)),
    ],
)
def test_few_columns(tmp_path: Path, elapsed: str, limit: str, expected: tuple[float, float]) -> None:
    header = "JobID|Start|End|Elapsed|Timelimit|State|AllocCPUS"
    text = f"1|2026-03-02T10:01:00|2026-03-02T10:02:40|{elapsed}|{limit}|COMPLETED|6"
    jobs, notes, _ = read(folder(tmp_path, dump(text, header=header)))
    assert (jobs["runtime"][0], jobs["requested_time"][0]) == expected
    assert (jobs["requested_cores"][0], jobs["cpus"][0], jobs["partition"][0]) == (6, 6, "p")
    assert jobs["submission_time"][0] == jobs["recorded_start"][0] == seconds("2026-03-02T10:01:00")
    changed = notes.changed["sacct.txt"]
    assert {f"no column {name}: not known of any job" for name in ("user", "account", "qos")} <= set(changed)
    assert changed["no Submit: that of Eligible or Start"] == 1


def test_memory_that_is_not_counted(tmp_path: Path) -> None:
    conf = CONF.replace("_Memory", "")
    jobs, _, _ = read(
        folder(tmp_path, dump(row(ReqMem="16000M", ReqTRES="cpu=4,mem=16000M"), row(JobID="2")), conf=conf)
    )
    assert jobs["memory"].to_list() == [0, 0]
    assert jobs["memory_mib"].to_list() == [None, 8000] and jobs["memory_per"].to_list() == [None, "n"]


def variants() -> dict[str, Callable[[str], tuple[str, bytes]]]:
    def shuffled(text: str) -> str:
        order = random.Random(1).sample(range(len(NAMES)), len(NAMES))
        return "".join("|".join(line.split("|")[at] for at in order) + "\n" for line in text.splitlines())

    def epochs(text: str) -> str:
        return re.sub(r"2026-[\dT:-]+", lambda found: f"{seconds(found[0]):.0f}", text)

    return {
        "shuffled": lambda text: ("sacct.txt", shuffled(text).encode()),
        "parsable": lambda text: ("sacct.txt", text.replace("\n", "|\n").encode()),
        "gzip": lambda text: ("sacct.txt.gz", gzip.compress(text.encode())),
        "crlf": lambda text: ("sacct.txt", text.replace("\n", "\r\n").encode()),
        "bom": lambda text: ("sacct.txt", b"\xef\xbb\xbf" + text.encode()),
        "epochs": lambda text: ("sacct.txt", epochs(text).encode()),
        "blank lines": lambda text: ("sacct.txt", text.replace("\n", "\n\n").encode()),
        "blanks": lambda text: ("sacct.txt", text.replace("|", " | ").encode()),
        "no line break at the end": lambda text: ("sacct.txt", text.rstrip("\n").encode()),
        "two headers": lambda text: ("sacct.txt", (text + text.splitlines()[0] + "\n").encode()),
        "capitals": lambda text: ("sacct.txt", text.replace("JobName|User", "JOBNAME|user").encode()),
        "widths": lambda text: ("sacct.txt", text.replace("JobName|", "JobName%30|").encode()),
        "spaces in times": lambda text: ("sacct.txt", re.sub(r"(2026-\d\d-\d\d)T", r"\1 ", text).encode()),
    }


@pytest.mark.parametrize("variant", variants())
def test_other_forms_of_the_same_dump(tmp_path: Path, variant: str) -> None:
    text = dump(*(row(JobID=str(number), JobName=f"job {number}") for number in range(1, 30)), row(JobID="3.batch"))
    expected, _, _ = read(folder(tmp_path / "a", text))
    name, content = variants()[variant](text)
    found, notes, _ = read(folder(tmp_path / "b", content, name))
    assert found.equals(expected)
    assert notes.read[name] == 30


def test_no_header_but_the_columns_of_the_documented_command(tmp_path: Path) -> None:
    from hdsim.site.sacct import COMMAND

    names = COMMAND.partition("--format=")[2].split(",")
    text = "|".join({**USUAL, "JobIDRaw": "1"}[name] for name in names) + "\n"
    jobs, _, _ = read(folder(tmp_path, text))
    assert jobs["user"].to_list() == ["ann"]


def test_several_dumps_that_overlap(tmp_path: Path) -> None:
    running = row(JobID="2", State="RUNNING", End="Unknown", ElapsedRaw="30")
    waiting = row(JobID="3", State="PENDING", **NEVER, End="Unknown")
    path = folder(tmp_path, dump(row(), running, waiting), "sacct_1.txt")
    folder(tmp_path, gzip.compress(dump(row(), row(JobID="2"), row(JobID="3")).encode()), "sacct_2.txt.gz")
    jobs, notes, _ = read(path)
    assert jobs["job_id"].to_list() == [1, 2, 3] and jobs["state"].to_list() == ["COMPLETED"] * 3
    left = {file: found for file, found in notes.left_out.items() if found}
    assert left == {"sacct_1.txt": {"rows of runs that another row has too": 3}}


def test_jobs_of_other_clusters(tmp_path: Path) -> None:
    text = dump(f"{row()}|c", f"{row(JobID='2')}|d", header="|".join([*NAMES, "Cluster"]))
    jobs, notes, _ = read(folder(tmp_path, text))
    assert jobs["job_id"].to_list() == [1]
    assert notes.left_out["sacct.txt"] == {"jobs of other clusters": 1}


def test_resized_jobs(tmp_path: Path) -> None:
    part = row(State="RESIZING", End="2026-03-02T10:01:40", ElapsedRaw="40", NodeList="n[1-2]")
    rest = row(Start="2026-03-02T10:01:40", ElapsedRaw="60")
    jobs, counts = jobs_of(tmp_path, part, rest)
    assert counts == {"jobs that were resized: as of their last size": 1}
    assert (jobs["runtime"][0], jobs["restarts"][0], jobs["recorded_nodes"][0]) == (100, 0, "n1")
    assert jobs["recorded_start"][0] == seconds("2026-03-02T10:01:00")


def test_a_number_that_was_used_again(tmp_path: Path) -> None:
    again = {name: USUAL[name].replace("2026", "2027") for name in ("Submit", "Eligible", "Start", "End")}
    jobs, counts = jobs_of(tmp_path, row(), row(**again, User="ben"))
    assert jobs["job_id"].to_list() == ["1", "1.1"] and jobs["user"].to_list() == ["ann", "ben"]
    assert counts == {"numbers that another job had before: named such as 7.1": 1}


DAMAGED: dict[str, tuple[str | bytes, str]] = {
    "empty": ("", "sacct.txt: expected the output of sacct, got an empty file; it is made by: sacct -a -D"),
    "header only": (dump(), "sacct.txt: expected at least one job, got none"),
    "steps only": (dump(row(JobID="1.batch")), "expected at least one job, got none"),
    "for people": (
        "JobID           JobName\n------------ ----------\n1   job\n",
        'sacct.txt:1: expected columns separated by |, as sacct --parsable2 prints, got "JobID           JobName"',
    ),
    "no header": (row() + "|more\n", 'got 28 columns without one: "1|job|ann|chem'),
    "default columns": (
        "1|job|p|chem|4|COMPLETED|0:0\n",
        "sacct.txt:1: expected a column Submit, or at least Start, got jobid, jobname, partition, account, alloccpus",
    ),
    "no times": ("JobID|User|State\n1|ann|COMPLETED\n", "expected a column Submit, or at least Start, got jobid, user"),
    "no run times": (
        "JobID|Submit|NCPUS\n1|2026-03-02T10:00:00|4\n",
        "sacct.txt:1: expected a column ElapsedRaw, Elapsed or End, got jobid, submit, ncpus; it is made by: sacct",
    ),
    "no CPUs": (
        "JobID|Submit|End\n1|2026-03-02T10:00:00|\n",
        "expected a column with CPUs, such as NCPUS or AllocTRES",
    ),
    "no ids": ("JobName|User|Submit\njob|ann|2026-03-02T10:00:00\n", "expected a header such as JobID|JobName|Submit"),
    "a column twice": (f"JobID|{dump(row())}", "sacct.txt:1: expected each column once, got jobid twice"),
    "commas": (dump(row()).replace("|", ","), "expected columns separated by |"),
    "an error of sacct": ("sacct: error: slurmdbd: Connection refused\n", "expected columns separated by |"),
    "another file": ("1 2 3 4 5\n6 7 8 9 10\n", "expected columns separated by |"),
    "binary": (bytes(range(256)) * 8, "expected columns separated by |"),
    "UTF-16": (dump(row()).encode("utf-16"), "sacct.txt: expected text in UTF-8, got UTF-16"),
    "most lines cut off": (
        dump(row(), *[row()[:60]] * 5),
        "sacct.txt:3: expected 27 columns separated by | as in its first line, got 5 of 6 lines with others, the first",
    ),
    "another header inside": (
        dump(row()) + "JobID|Submit\n1|2026-03-02T10:00:00\n",
        "sacct.txt: expected one header in a file, got another one with other columns; import the files one by one",
    ),
    "gzip that is cut off": (gzip.compress(dump(*[row()] * 99).encode())[:-20], "expected a complete gzip file"),
    "other partitions": (dump(row(Partition="x")), "sacct.txt: expected jobs of the partitions p, q, got none"),
    "no readable time": (dump(row(Submit="x", Eligible="x", Start="x")), "expected at least one job, got none"),
    "states of another language": (
        dump(row(State="FERTIG")),
        "sacct.txt:2: expected 27 columns separated by | as in its first line, with number and state of a job, got",
    ),
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_damaged_dumps_end_in_one_line(tmp_path: Path, kind: str) -> None:
    content, message = DAMAGED[kind]
    path = folder(tmp_path / "in", content)
    with pytest.raises(ConfigError) as error:
        read(path)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_alternatives_of_features_are_told_from_columns(tmp_path: Path) -> None:
    """sacct does not quote the | of a constraint, which the command has as well."""
    rows = [
        row(Constraints="intel|ib"),
        row(JobID="2", Constraints="intel|ib", SubmitLine="sbatch -C intel|ib job.sh"),
        row(JobID="3", Constraints="(intel|big)&ib", SubmitLine="sbatch -c 2 job.sh"),
        row(JobID="4", Constraints="[intel|ib]"),
        row(JobID="5", Constraints="[intel*1&ib*1]"),
    ]
    notes = Notes()
    conf = CONF.replace("Feature=big", "Feature=intel,ib,big")
    _, jobs = import_site([folder(tmp_path / "in", dump(*rows), conf=conf)], "UTC", notes)
    assert jobs is not None
    assert jobs["constraints"].to_list() == ["intel|ib", "intel|ib", "(intel|big)&ib", "(intel|ib)", None]
    assert jobs["per_task"].to_list() == [None, None, 2, None, None]
    told = notes.changed["sacct.txt"]
    assert told["rows with a | in a text: mended"] == 4
    assert told["constraints with numbers of nodes, or [...] for several nodes: not asked for"] == 1


def test_components_of_a_job_have_their_own_options(tmp_path: Path) -> None:
    line = "sbatch -c 2 --nice=5 : -c 3 -J 'a : b' : -c 4 job.sh : x"
    jobs, _ = jobs_of(tmp_path, *(row(JobID=f"7+{k}", JobIDRaw=str(7 + k), SubmitLine=line) for k in range(3)))
    assert jobs["per_task"].to_list() == [2, 3, 4] and jobs["nice"].to_list() == [5, 0, 0]


def test_jobs_of_partitions_with_whole_nodes_ask_for_none(tmp_path: Path) -> None:
    got = {"ReqCPUS": "1", "ReqTRES": "cpu=1,node=1", "NCPUS": "8", "AllocTRES": "cpu=8,node=1"}
    for name, conf in (("some", CONF), ("all", CONF.replace("e=p ", "e=p OverSubscribe=EXCLUSIVE "))):
        _, jobs = import_site([folder(tmp_path / name, dump(row(**got)), conf=conf)], "UTC", Notes())
        assert jobs is not None and jobs["whole"].to_list() == [name == "some"]


def test_a_cluster_has_its_name_in_lower_case(tmp_path: Path) -> None:
    conf = CONF.replace("ClusterName=c", "ClusterName=Lab")
    header = "|".join([*NAMES, "Cluster"])
    content = dump(f"{row()}|lab", f"{row(JobID='2')}|other", header=header)
    _, jobs = import_site([folder(tmp_path / "in", content, conf=conf)], "UTC", Notes())
    assert jobs is not None and jobs["job_id"].to_list() == [1]


@pytest.mark.parametrize(
    ("lines", "ids", "reason"),
    [
        ([row(JobID="2", JobName="a|b|c")], [1, 2, 3], "rows with a | in a text: mended"),
        ([row(JobID="2", SubmitLine="sbatch --wrap 'a|b'")], [1, 2, 3], "rows with a | in a text: mended"),
        ([row(JobID="2")[:40]], [1, 3], "damaged lines: too few columns"),
        ([row(JobID="2") + "|1|2|3"[:0], row(JobID="4", State="A|B")], [1, 2, 3], "damaged lines: too many columns"),
        ([row(JobID="x")], [1, 3], "damaged lines: no number or state of a job"),
        ([row(JobID="2", State="???")], [1, 3], "damaged lines: no number or state of a job"),
        (["sacct: error: lost the connection"], [1, 3], "damaged lines: too few columns"),
        ([row(JobID="2", JobName="a\nb\nc")], [1, 2, 3], "rows broken over several lines: joined"),
        ([row(JobID="2", SubmitLine="sbatch --wrap='a\nb'")], [1, 2, 3], None),
        ([row(JobID="2", Submit="x", Eligible="x", Start="x")], [1, 3], "damaged lines: no time of submission"),
        ([row(JobID="2", Partition="old")], [1, 3], "jobs of partitions that slurm.conf does not have"),
        (
            [row(JobID="2", SubmitLine="sbatch --switches=1@60 job.sh --contiguous")],
            [1, 2, 3],
            "--switches: not simulated, the job is as without it",
        ),
        ([row(JobID="2", ReqTRES="cpu=1" + "0" * 30)], [1, 3], "damaged lines: more than a billion CPUs or nodes"),
        ([row(JobID="2", State="REVOKED")], [1, 3], "jobs that another cluster of a federation has run"),
        ([row(JobID="2"), row(JobID="2")], [1, 2, 3], "rows of runs that another row has too"),
    ],
)
def test_single_damaged_lines_are_counted(tmp_path: Path, lines: list[str], ids: list[int], reason: str | None) -> None:
    jobs, counts = jobs_of(tmp_path, row(), *lines, row(JobID="3"), *(row(JobID="3.0") for _ in range(5)))
    assert jobs["job_id"].to_list() == ids
    if reason is not None:
        assert counts[reason] == 1


def test_the_place_of_a_damaged_line_is_told(tmp_path: Path) -> None:
    path = folder(tmp_path / "in", dump(row(), row(JobID="2")[:40], row(JobID="3")))
    told = call(path, "-o", tmp_path / "site").output
    assert "1 left out  damaged lines: too few columns (sacct.txt:3)" in told
    document = json.loads((tmp_path / "site" / "import.json").read_text())
    assert document["left_out"]["sacct.txt"] == {"damaged lines: too few columns": 1}
    assert document["read"]["sacct.txt"] == 3


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    content = dump(row(), row(JobID="2", JobName="@")).encode().replace(b"@", b"\xff\xfe")
    jobs, _, _ = read(folder(tmp_path, content))
    assert jobs["executable"].to_list() == ["job", "��"]


def test_random_damage_never_ends_in_a_traceback(tmp_path: Path) -> None:
    draw = random.Random(3)
    rows = [row(JobID=str(number), JobName=f"j{number}") for number in range(1, 40)]
    rows += [row(JobID="50_[1-3%2]", State="PENDING", **NEVER), row(JobID="1.batch"), row(JobID="60+0")]
    whole = dump(*rows)
    for _ in range(150 if TIER else 30):
        text = list(whole)
        for _ in range(draw.choice([1, 5, 40])):
            at = draw.randrange(len(text))
            change = draw.choice(["cut", "insert", "replace"])
            if change == "cut":
                del text[at : at + draw.randrange(1, 200)]
            elif change == "insert":
                text.insert(at, draw.choice("|\n\r[]%+_.-9\0é=,:"))
            else:
                text[at] = draw.choice("|\n x[]0-")
            if not text:
                break
        try:
            jobs, _, _ = read(folder(tmp_path, "".join(text)))
        except ConfigError as error:
            assert "\n" not in str(error)
        else:
            assert jobs.height and jobs["runtime"].min() >= 0 and jobs["submission_time"].is_not_null().all()


def test_the_hour_that_occurs_twice(tmp_path: Path) -> None:
    zone, draw = ZoneInfo("Europe/Berlin"), np.random.default_rng(2)
    # The clock goes back from 03:00 to 02:00 at this instant.
    change = datetime(2026, 10, 25, 1, tzinfo=UTC).timestamp()
    count = 1500
    submit = np.sort(int(change) + draw.integers(-9000, 9000, count))
    start = submit + draw.integers(0, 2400, count)
    end = start + draw.integers(1, 12_000, count)

    def local(value: float) -> str:
        return datetime.fromtimestamp(value, zone).strftime("%Y-%m-%dT%H:%M:%S")

    rows = [
        row(
            JobID=str(100 + job),
            Submit=local(submit[job]),
            Eligible=local(submit[job]),
            Start=local(start[job]),
            End=local(end[job]),
            ElapsedRaw=str(end[job] - start[job]),
        )
        for job in range(count)
    ]
    jobs, notes, _ = read(folder(tmp_path, dump(*rows)), "Europe/Berlin")
    jobs = jobs.sort("job_id")
    changed = notes.changed["sacct.txt"]
    guessed = changed["times in the hour that occurs twice: nothing decides, taken as the first"]
    decided = changed["times in the hour that occurs twice: decided by Elapsed and the numbers of the jobs"]
    twice = [(value >= change - 3600) & (value < change + 3600) for value in (submit, start, end)]
    assert guessed + decided == np.logical_or.reduce(twice).sum()
    assert jobs["submission_time"].to_list() == submit.tolist()
    wrong = (jobs["recorded_start"].to_numpy() != start) | (jobs["recorded_end"].to_numpy() != end)
    assert wrong.sum() <= guessed < 0.05 * count
    assert (jobs["recorded_end"] - jobs["recorded_start"] == pl.Series(end - start)).all()


def test_an_hour_that_the_clock_passes_over_and_zones(tmp_path: Path) -> None:
    rows = [row(Submit="2026-03-29T02:30:00", Eligible="2026-03-29T03:00:00", Start="2026-03-29T03:40:00")]
    jobs, counts = jobs_of(tmp_path, *rows, zone="Europe/Berlin")
    assert jobs["submission_time"].to_list() == [seconds("2026-03-29T01:30:00")]
    assert counts["Submit in the hour that the clock passes over: an hour later"] == 1
    other, _ = jobs_of(tmp_path, row(), zone="America/New_York")
    assert other["submission_time"].to_list() == [seconds("2026-03-02T15:00:00")]
    error = CliRunner().invoke(cli, ["site", "import", str(tmp_path), "-o", "x", "--timezone", "Mars"]).exception
    assert str(error) == "timezone: expected a time zone such as Europe/Berlin or UTC, got 'Mars'"
    with pytest.raises(ConfigError, match="timezone: expected a time zone of the database of IANA"):
        read(tmp_path, "Factory")


ASSOC = """Account|User|Share|ParentName
root||1|
secretchem||1|root
secretchem|secretann|1|
"""
RESERVATION = (
    "ReservationName=secretann_5 StartTime=2026-03-02T00:00:00 EndTime=2026-03-03T00:00:00 Nodes=n1 "
    "Users=secretann,-secretben Accounts=secretchem Flags=MAINT\n"
)


def test_new_names_everywhere(tmp_path: Path) -> None:
    conf = CONF.replace("PartitionName=p", "PartitionName=p AllowAccounts=secretchem AllowGroups=secretgroup")
    secret = {"User": "secretben", "Account": "secretphys", "JobName": "secretjob"}
    rows = [
        row(**secret, SubmitLine="sbatch --nice=3 -D /home/secretben secretscript.sh"),
        row(JobID="2", User="secretann", Account="secretchem", JobName="other", Reservation="secretann_5"),
        row(JobID="3", **secret),
    ]
    path = folder(tmp_path / "in", dump(*rows), conf=conf)
    (path / "assoc.txt").write_text(ASSOC)
    (path / "reservations.txt").write_text(RESERVATION)
    (path / "secretnotes").write_text("nothing")
    result = call(path, "-o", tmp_path / "out", "--anonymize")
    jobs = pl.read_parquet(tmp_path / "out" / "jobs.parquet")
    assert jobs["user"].to_list() == ["u1", "u2", "u1"] and jobs["group"].to_list() == ["a1", "a2", "a1"]
    assert jobs["executable"].to_list() == ["j1", "j2", "j1"] and jobs["reservation"].to_list() == [None, "r1", None]
    site = load_site(tmp_path / "out")
    assert [(one.account, one.user, one.parent) for one in site.associations] == [
        ("root", "", ""),
        ("a2", "", ""),
        ("a2", "u2", ""),
    ]
    assert site.partitions["p"].allow_accounts == ["a2"] and site.partitions["p"].allow_groups == ["g1"]
    assert site.reservations["r1"].users == ["u2", "-u1"] and site.reservations["r1"].accounts == ["a2"]
    texts = [jobs.drop("runs").cast(pl.String).write_csv(), str(jobs["runs"].to_list())]
    texts += [(tmp_path / "out" / name).read_text() for name in ("site.yaml", "platform.json")]
    document = json.loads((tmp_path / "out" / "import.json").read_text())
    document["left_out"].pop("secretnotes")  # the name of a file of the folder
    texts += [json.dumps(document), result.output.replace("secretnotes", "")]
    assert not [text for text in texts if "secret" in text]


def test_the_same_import_twice_gives_the_same_bytes(tmp_path: Path, root: Path) -> None:
    draw = random.Random(1)
    rows = [
        row(JobID=str(job), User=f"u{draw.randrange(9)}", JobName=f"j{draw.randrange(99)}") for job in range(1, 2000)
    ]
    path = folder(tmp_path / "in", dump(*rows, header="|".join(NAMES).replace("Account", "Comment")))
    assert call(path, "-o", tmp_path / "a").exit_code == 0
    command = [sys.executable, "-m", "hdsim", "site", "import", str(path), "-o", str(tmp_path / "b")]
    subprocess.run(command, check=True, capture_output=True, cwd=root, env={**os.environ, "PYTHONHASHSEED": "7"})
    for file in ("platform.json", "site.yaml", "jobs.parquet", "import.json"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes(), file


def test_files_of_any_name(tmp_path: Path) -> None:
    (tmp_path / "cluster-config").write_text("# our site\n" + CONF)
    (tmp_path / "january").write_bytes(gzip.compress(dump(row()).encode()))
    (tmp_path / "february").write_text(dump(row(JobID="2")))
    (tmp_path / "shares").write_text(ASSOC)
    (tmp_path / "calendar").write_text(RESERVATION)
    names = ("cluster-config", "january", "february", "shares", "calendar")
    result = call(*(tmp_path / name for name in names), "-o", tmp_path / "site")
    assert result.exit_code == 0 and "4 nodes, 2 partitions, 2 jobs" in result.output
    site = load_site(tmp_path / "site")
    assert len(site.associations) == 3 and list(site.reservations) == ["secretann_5"]
    with pytest.raises(ConfigError, match=r"expected one file as slurm\.conf, got "):
        call(tmp_path / "cluster-config", folder(tmp_path / "in"), "-o", tmp_path / "site")
    (tmp_path / "odd").write_text("hello\n")
    with pytest.raises(ConfigError, match=r"odd: expected one of slurm\.conf, topology\.conf"):
        call(tmp_path / "odd", "-o", tmp_path / "site")
    with pytest.raises(ConfigError, match=r"missing: expected a folder with slurm\.conf"):
        call(tmp_path / "missing", "-o", tmp_path / "site")
    with pytest.raises(ConfigError, match=r"expected slurm\.conf, which has the nodes"):
        call(tmp_path / "january", "-o", tmp_path / "site")


@pytest.mark.parametrize(("package", "extra"), [("polars", "frames"), ("pydantic", "slurm"), ("ClusterShell", "slurm")])
def test_without_a_package_one_line_says_what_to_install(tmp_path: Path, root: Path, package: str, extra: str) -> None:
    path = folder(tmp_path / "in", dump(row()))
    code = f"from hdsim.cli import main; main(['site', 'import', '{path}', '-o', '{tmp_path}/site'])"
    without = f"import sys; sys.modules['{package}'] = None; {code}"
    done = subprocess.run([sys.executable, "-c", without], capture_output=True, text=True, cwd=root)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.endswith(f"pip install 'hdsim[{extra}]'")


def test_imported_jobs_in_other_formats(tmp_path: Path) -> None:
    call(folder(tmp_path / "in", dump(row(), row(JobID="2", Constraints="big"))), "-o", tmp_path / "site")
    for suffix in ("swf", "json", "parquet"):
        words = ["workload", "convert", str(tmp_path / "site/jobs.parquet"), "-o", str(tmp_path / f"jobs.{suffix}")]
        CliRunner().invoke(cli, words, catch_exceptions=False)
        back = hdsim.load_workload(tmp_path / f"jobs.{suffix}", memory_bandwidth="none")
        assert back.runtime.tolist() == [100, 100] and back.user.tolist() == [0, 0]
    assert back.own_column("constraints").tolist() == [None, "big"]
    job = json.loads((tmp_path / "jobs.json").read_text())["jobs"][0]
    assert job["state"] == "COMPLETED" and "dependency" not in job and "array_job_id" not in job


def test_without_sacct_there_are_no_jobs(tmp_path: Path) -> None:
    path = folder(tmp_path / "in", dump(row()))
    call(path, "-o", tmp_path / "site")
    assert (tmp_path / "site" / "jobs.parquet").is_file()
    (path / "sacct.txt").unlink()
    result = call(path, "-o", tmp_path / "site")
    assert "there is no sacct.txt, so there is no jobs.parquet" in result.output
    assert not (tmp_path / "site" / "jobs.parquet").exists() and (tmp_path / "site" / "site.yaml").is_file()


def test_an_imported_site_is_replayed(tmp_path: Path) -> None:
    rows = [row(JobID=str(job), Submit=f"2026-03-02T10:00:{job:02}") for job in range(1, 40)]
    cancelled = row(JobID="50", State="CANCELLED", **NEVER | {"Submit": "2026-03-02T10:01:00"})
    site, jobs = import_site([folder(tmp_path / "in", dump(*rows, cancelled))], "UTC", Notes())
    write_site(site, Notes(), tmp_path / "site", jobs)
    platform = hdsim.load_platform(tmp_path / "site" / "platform.json")
    workload = hdsim.load_workload(tmp_path / "site" / "jobs.parquet", platform, memory_bandwidth="none")
    assert len(workload) == 39 and workload.cluster_cores == 32
    assert workload.names["user"] == {0: "ann"} and workload.own_column("state")[0] == "COMPLETED"
    assert site.begin == workload.original_submission_time[0] == load_site(tmp_path / "site").begin
    assert hdsim.simulate(platform, workload, "easy").finish_time.max() > 100
    everything = hdsim.load_workload(tmp_path / "site" / "jobs.parquet", platform, status="ignore")
    assert len(everything) == 40


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("sbatch job.sh --nice=5", {}),
        ("sbatch -c4 job.sh", {"per_task": 4}),
        ("sbatch --array=1-20%3 job.sh", {"array_limit": 3}),
        ("sbatch -a 1-20 job.sh", {}),
        ("sbatch --cpus-per-task 4 -vHc 2 x", {"per_task": 2, "held": True}),
        ("sbatch --nice x", {"nice": 100}),
        ("sbatch --nice=-10 x", {"nice": -10}),
        ("sbatch -d singleton -P afterok:1?afterany:2 x", {"dependency": "afterok:1?afterany:2"}),
        ("sbatch --wrap 'sleep 5 -c 3' -C 'a&b'", {"constraints": "a&b"}),
        (
            "srun -n 8 -L lx:1,ly -w n[1-2] -x n3 --reservation=r hostname -c 3",
            {"licenses": "lx:1,ly", "required_nodes": "n[1-2]", "excluded_nodes": "n3", "reservation": "r"},
        ),
        ("sbatch -J 'broken quote -c 3", {}),
        (
            "sbatch --exclusive --begin=now+1hour -p a,b --gres gpu:2 x",
            {"whole": True, "begin": "now+1hour", "partitions": "a,b", "gres": "gpu:2"},
        ),
        ("sbatch --mem=4G x", {"memory_per": "n"}),
        ("sbatch -c", {}),
        ("sbatch --exclusive=user x", {"whole": False, "exclusive_user": True}),
        ("sbatch -N2 --nodes=2-4 x", {"nodes": 2, "most_nodes": 4}),
        ("sbatch -N x y", {}),
        (
            "sbatch --ntasks-per-node 4 --mincpus=8 --use-min-nodes -N 2-8 x",
            {"tasks_per_node": 4, "min_cpus": 8, "use_min_nodes": True, "nodes": 2, "most_nodes": 8},
        ),
        ("sbatch --ntasks-per-node=0 --mincpus=x y", {}),
        ("", {}),
        ("sbatch -c zero --nice=much x", {"nice": 100}),
    ],
)
def test_options_of_submission(line: str, found: dict[str, Any]) -> None:
    assert submit_options(line) == found


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("sbatch --switches=2@10 -n 4 job.sh --contiguous", ["--switches"]),
        ("sbatch --ntasks-per-socket 4 -s -Om block x", ["--ntasks-per-socket", "--oversubscribe", "--overcommit"]),
        ("sbatch -B 2:4 -S1 --exclusive=mcs x", ["--extra-node-info", "--core-spec", "--exclusive=mcs"]),
        ("sbatch --exclusive -J '--switches=2' -o -m x", []),
        ("sbatch --wrap '--tmp=5'", []),
    ],
)
def test_options_that_nothing_simulates(line: str, found: list[str]) -> None:
    assert [option for option in unread_options(line) if option != "--distribution"] == found
    assert not found or re.search(UNREAD, line)
