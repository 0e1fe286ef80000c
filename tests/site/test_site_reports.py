"""Reports of site runs: rows of runs, pending reasons, reservations, partitions; comparisons by column."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_site_replay import make_site, replay, run

import hdsim
from hdsim.agents.slurm import SlurmAgent
from hdsim.errors import ConfigError
from hdsim.platform.model import Platform
from hdsim.report import jobs, panels, sites
from hdsim.report.charts import Blocks, ChartTable, Panel
from hdsim.report.compare import compare
from hdsim.report.html import render
from hdsim.results import series
from hdsim.results.result import Result
from hdsim.results.run_directory.reader import Run, read
from hdsim.site.importing import import_site, write_site
from hdsim.site.notes import Notes
from hdsim.workload.model import Workload


def preempted() -> Result:
    """A job that a partition of a higher tier preempts twice, beside one that gets a whole node for one CPU."""
    parts = {
        "low": {"nodes": "ALL", "default": True, "preempt_mode": "REQUEUE"},
        "high": {"nodes": "ALL", "priority_tier": 2, "preempt_mode": "OFF"},
    }
    high: dict[str, Any] = {"cpus": 8, "partition": "high", "runtime": 20.0}
    return replay(
        make_site(preemption={"type": "partition_prio", "mode": "REQUEUE"}, partitions=parts),
        [{"cpus": 8}, {"at": 10.0, **high}, {"at": 200.0, **high}, {"at": 900.0, "whole": True, "user": "u2"}],
    )


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_each_run_of_a_requeued_job_is_a_row(tmp_path: Path) -> None:
    found = rows(preempted().save(tmp_path) / "jobs.csv")
    told = [(row["job_id"], row["restart"], float(row["starting_time"]), row["finish_time"]) for row in found]
    assert told[:3] == [("1", "0", 0, "10.000000"), ("1", "1", 180, "200.000000"), ("1", "2", 360, "460.000000")]
    assert [row["job_id"] for row in found] == ["1", "1", "1", "2", "3", "4"]
    assert [row["state"] for row in found] == ["PREEMPTED", "PREEMPTED", *["COMPLETED"] * 4]
    assert [row["final_state"] for row in found[:3]] == [*["COMPLETED_KILLED"] * 2, "COMPLETED_SUCCESSFULLY"]
    assert {row["nodes"] for row in found[:3]} == {"n[1-2]"}
    cut_short = rows(tmp_path / "interruptions.csv")
    assert [(row["job_id"], row["lost_time"], row["requeued"]) for row in cut_short] == [
        ("1", "10.000000", "1"),
        ("1", "20.000000", "1"),
    ]


def test_a_run_that_is_read_back_has_a_job_once_and_all_its_runs(tmp_path: Path) -> None:
    result = preempted()
    found = read(result.save(tmp_path))
    assert found.jobs["job_id"].tolist() == ["1", "2", "3", "4"]
    assert found.jobs["restarts"].tolist() == [2, 0, 0, 0]
    assert found.jobs["waiting_time"].tolist() == (result.starting_time - result.workload.submission_time).tolist()
    assert found.segments.core_seconds.sum() == pytest.approx(8 * 10 + 8 * 20 + 8 * 100 + 2 * 8 * 20 + 4 * 100)
    assert series.utilization(found).mean() == pytest.approx(result.metrics["utilization"])


@pytest.mark.parametrize("check", [True, False])
def test_no_job_starts_on_a_node_that_is_down(tmp_path: Path, *, check: bool) -> None:
    (tmp_path / "outages.csv").write_text("node,down,up\n0,30,400\n")
    platform = Platform.homogeneous(nodes=2, cores_per_node=4)
    workload = Workload.from_columns(
        submission_time=[0.0, 0.0, 50.0, 60.0], runtime=100.0, requested_cores=[4, 4, 4, 8], requested_time=200.0
    )
    failures = {"_target_": "hdsim.failures.Trace", "file": str(tmp_path / "outages.csv")}
    agent = SlurmAgent({"slurm": {"parameters": {"batch_sched_delay": 0, "bf_interval": 1}}})
    result = hdsim.simulate(platform, workload, agent, failures=failures, check=check)
    # The first job is eligible 121 s later; the last one needs both nodes.
    assert result.starting_time.tolist() == [200, 0, 100, 400]
    found = rows(result.save(tmp_path / "run") / "jobs.csv")
    assert [(row["job_id"], row["restart"], row["state"], row["allocated_resources"]) for row in found] == [
        ("0", "0", "NODE_FAIL", "0-3"),
        ("0", "1", "COMPLETED", "4-7"),
        ("1", "0", "COMPLETED", "4-7"),
        ("2", "0", "COMPLETED", "4-7"),
        ("3", "0", "COMPLETED", "0-7"),
    ]
    assert read(tmp_path / "run").jobs["restarts"].tolist() == [1, 0, 0, 0]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site with a reservation of a node for an account, and two runs of it."""
    path = tmp_path_factory.mktemp("reports")
    dump = path / "dump"
    dump.mkdir()
    (dump / "slurm.conf").write_text(
        "ClusterName=lab\nNodeName=n[1-2] CPUs=4\nPartitionName=main Nodes=ALL Default=YES MaxTime=60\n"
        "PartitionName=short Nodes=n1 MaxTime=10\nSchedulerParameters=batch_sched_delay=0,bf_interval=1\n"
    )
    (dump / "reservations.txt").write_text(
        "ReservationName=course StartTime=2026-03-02T10:20:00 EndTime=2026-03-02T10:40:00 Duration=00:20:00 Nodes=n2 "
        "Flags=SPEC_NODES Users=(null) Accounts=a2 State=INACTIVE\n"
    )
    lines = [
        "JobID|User|Account|Partition|QOS|Submit|Start|End|ElapsedRaw|TimelimitRaw|State|ReqTRES|AllocTRES|NodeList"
    ]
    for job in range(1, 13):
        begin, name = f"2026-03-02T10:{2 * job:02}", ("main", "short")[job % 2]
        lines.append(
            f"{job}|u{job % 3}|a{job % 2}|{name}|normal|{begin}:00|{begin}:00|{begin}:10|300|9|COMPLETED"
            "|cpu=3,node=1|cpu=3,node=1|n1"
        )
    (dump / "sacct.txt").write_text("\n".join(lines) + "\n")
    site, workload = import_site([dump], "UTC", Notes())
    write_site(site, Notes(), path / "lab", workload)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        run("run", "site=lab", "hydra.run.dir=one")
        run("run", "site=lab", "site.partitions.short.nodes=ALL", "hydra.run.dir=two")
    return path


def cells(panel: Panel | None) -> dict[str, list[Any]]:
    assert panel is not None
    chart = panel.views[0].chart
    assert isinstance(chart, ChartTable)
    return {fact.label: list(fact.values) for fact in chart.columns}


def test_waits_are_told_by_reason(folder: Path) -> None:
    found = read(folder / "one")
    told = cells(jobs.reasons(found))
    assert sum(told["share of the waiting time (%)"]) == pytest.approx(100.0)
    for place, word in enumerate(told["reason"]):
        waits = found.jobs["waiting_time"][found.jobs["reason"] == word]
        assert told["jobs that ran"][place] == len(waits)
        assert told["mean wait"][place] == pytest.approx(waits.mean())
        assert told["longest wait"][place] == waits.max()
    assert {"None", "Resources"} <= set(told["reason"])


def test_partitions_accounts_and_qos_have_tables(folder: Path) -> None:
    found = read(folder / "one")
    made = {panel.title: panel for make in jobs.OWNERS if (panel := make(found)) is not None}
    assert list(made) == ["Users", "Partitions", "Accounts"]  # one QOS has nothing to compare
    told = cells(made["Partitions"])
    held = {name: (found.jobs["partition"] == name).sum() * 3 * 300.0 for name in ("main", "short")}
    end = found.end_time
    busy = dict(zip(told["partition"], told["utilization (%)"], strict=True))
    assert busy == {name: pytest.approx(100 * seconds / (8 * end)) for name, seconds in held.items()}
    nodes = dict(zip(told["partition"], told["its nodes busy (%)"], strict=True))
    on_first = sum(300.0 * 3 for text in found.jobs["allocated_resources"].tolist() if text.startswith(("0", "1")))
    assert nodes == {
        "main": pytest.approx(100 * sum(held.values()) / (8 * end)),
        "short": pytest.approx(100 * on_first / (4 * end)),
    }


def test_reservations_are_drawn_below_the_jobs(folder: Path) -> None:
    found = read(folder / "one")
    (one,) = sites.reservations(found)
    assert (one.begin, one.end - one.begin, one.nodes.tolist(), one.holders) == (1080, 1200, [False, True], "a2")
    blocks = panels.schedule(found).views[0].chart
    assert isinstance(blocks, Blocks)
    first = int(blocks.item[0])
    assert (blocks.low[0], blocks.high[0], blocks.start[first], blocks.facts[0].values[first]) == (
        4,
        8,
        1080,
        "reservation course",
    )
    assert blocks.legend[-1] == ("reserved", blocks.colors[blocks.color[first]])
    assert len({len(fact.values) for fact in blocks.facts}) == 1
    curve = sites.reserved_cores(found)
    assert curve is not None and curve.at(np.array([0.0, 1080.0, 2279.0, 2280.0])).tolist() == [0, 50, 50, 0]
    used = cells(sites.reserved(found))
    assert used["busy (%)"] == [pytest.approx(100 * _held(found, 4, one.begin, one.end) / (4 * 1200))]


def _held(found: Run, first: int, begin: float, end: float) -> float:
    """Core-seconds on cores from a first one on, job by job."""
    total = 0.0
    for text, start, finish in zip(
        *(found.jobs[name].tolist() for name in ("allocated_resources", "starting_time", "finish_time")), strict=True
    ):
        low, high = (int(core) for core in text.split("-"))
        total += (high - low + 1) * max(min(finish, end) - max(start, begin), 0.0) if low >= first else 0.0
    return total


def test_runs_are_compared_by_partition(folder: Path) -> None:
    comparison = compare([folder / "one", folder / "two"], by="partition")
    one = read(folder / "one")
    found = {row.scenario: row for row in comparison.of("mean_waiting_time") if row.baseline}
    assert list(found) == ["partition=main", "partition=short"]
    for name in ("main", "short"):
        waits = one.jobs["waiting_time"][one.jobs["partition"] == name]
        assert found[f"partition={name}"].mean == pytest.approx(waits.mean())
    other = [row for row in comparison.of("mean_waiting_time") if not row.baseline]
    assert [(row.configuration, row.pairs, row.paired_by) for row in other] == [("nodes=ALL", 6, "job")] * 2
    total = sum(row.mean for row in comparison.of("utilization") if row.baseline)
    assert total == pytest.approx(one.metrics["utilization"], rel=1e-6)
    assert list(comparison.runs) == [(folder / name).resolve() for name in ("one", "two")]


def test_a_wrong_column_is_told(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--by: expected one of partition, account.*did you mean 'partition'"):
        compare([folder / "one", folder / "two"], by="patition")
    for agent in ("fcfs", "sjf"):
        hdsim.simulate("teaching", hdsim.load_workload("lublin_4000", jobs=9), agent).save(tmp_path / agent)
    with pytest.raises(ConfigError, match=r"expected a run whose jobs have a qos; it has queue"):
        compare([tmp_path / "fcfs", tmp_path / "sjf"], by="qos")


def test_metrics_of_energy_are_left_out_where_no_node_has_a_power(folder: Path) -> None:
    found = read(folder / "one")
    assert "peak power" not in render(found) and "Power" not in {panel.title for panel in panels.panels(found)}
