"""Replays of sites by the agent: recorded schedules, limits, dependencies, keys of the rules, columns of results."""

from __future__ import annotations

import csv
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from measurements import FOLDER
from recorded import read_case

from hdsim.agents.slurm import SlurmAgent
from hdsim.cli import main
from hdsim.config.composer import Composer
from hdsim.config.inputs import read_platform, read_workload
from hdsim.errors import ConfigError, WorkloadError
from hdsim.platform.load import load_platform
from hdsim.platform.model import Platform
from hdsim.results.result import Result
from hdsim.simulation.simulation import simulate
from hdsim.site.formats import fold_nodes
from hdsim.site.importing import import_site, write_site
from hdsim.site.model import Site, site_of
from hdsim.site.notes import Notes
from hdsim.site.platform import platform_document
from hdsim.workload.load import load_workload
from hdsim.workload.model import Workload

#: Cases whose free replay agrees with all recorded starts within 20 s of the cluster.
REPLAYED = (
    "fifo_builtin",
    "backfill",
    "backfill_user2",
    "backfill_res600",
    "topo_none",
    "prio_part",
    "preempt_part_suspend",
    "prio_size_big",
)


def imported(folder: Path, into: Path) -> tuple[Path, Platform, Workload]:
    """The site of a recorded case, its platform and its jobs."""
    site, jobs = import_site([folder / "slurm.conf", folder / "sacct.txt"], "UTC", Notes())
    write_site(site, Notes(), into, jobs)
    platform = load_platform(into / "platform.json")
    path = into / "jobs.parquet"
    return into, platform, load_workload(path, platform, memory="none", memory_bandwidth="none", status="queued")


@pytest.mark.parametrize("name", REPLAYED)
def test_a_recorded_schedule_is_replayed(shared_data: Path, tmp_path: Path, name: str) -> None:
    site, platform, workload = imported(shared_data / "slurm" / name, tmp_path / "site")
    result = simulate(platform, workload, SlurmAgent(site), check=True)
    recorded = np.asarray(result.columns["recorded_start"], np.float64)
    assert np.abs(result.starting_time - recorded).max() <= 20.0


@pytest.mark.parametrize("name", ["preempt_qos_cancel", "preempt_qos_exempt"])
def test_the_jobs_that_were_preempted_are_preempted(shared_data: Path, tmp_path: Path, name: str) -> None:
    case = read_case(shared_data / "slurm" / name)
    write_site(case.site, Notes(), tmp_path, None)
    rows = [case.slurm_ids.index(job) for job in dict.fromkeys(case.slurm_ids)]  # the first run of each job
    with (shared_data / "slurm" / name / "jobs.csv").open(encoding="utf-8", newline="") as file:
        asked = {row["k"]: row for row in csv.DictReader(file)}
    jobs = [
        {
            "at": float(case.jobs.submitted[row] - case.jobs.submitted[rows[0]]),
            "runtime": float(asked[case.keys[row]]["dur"]) + 5.0,
            "cpus": int(asked[case.keys[row]]["n"]),
            "limit": float(asked[case.keys[row]]["lim"]) * 60.0,
            "id": case.slurm_ids[row],
            "qos": asked[case.keys[row]]["qos"],
            "user": asked[case.keys[row]]["user"],
        }
        for row in rows
    ]
    result = replay(case.site, jobs)
    first = float(case.start[rows[0]])
    for job, row in enumerate(rows):
        key = case.keys[row]
        runs = [other for other in range(len(case.keys)) if case.slurm_ids[other] == case.slurm_ids[row]]
        begins = [float(case.start[other]) - first for other in runs]
        found = sorted(result.segments.begin[result.segments.job == job].tolist())
        assert found == pytest.approx(begins, abs=20.0), key
        if int(key) >= 20:  # they preempt
            assert result.columns["nodes"][job] == fold_nodes([f"n{node + 1}" for node in case.nodes[row]]), key


def test_a_preempted_job_runs_on_for_its_time_of_grace() -> None:
    qos = {"lo": {"grace_time": 30}, "hi": {"preempt": ["lo"], "priority": 1}}
    site = make_site(preemption={"type": "qos", "mode": "CANCEL"}, qos=qos)
    result = replay(site, [{"cpus": 8, "qos": "lo"}, {"at": 10.0, "qos": "hi"}])
    assert result.finish_time.tolist() == [40, 140]
    assert result.metrics["jobs_killed"] == 1


def test_a_partition_of_a_higher_tier_requeues_jobs() -> None:
    parts = {
        "low": {"nodes": "ALL", "default": True, "preempt_mode": "REQUEUE"},
        "high": {"nodes": "ALL", "priority_tier": 2, "preempt_mode": "OFF"},
    }
    site = make_site(preemption={"type": "partition_prio", "mode": "REQUEUE"}, partitions=parts)
    result = replay(site, [{"cpus": 8}, {"at": 10.0, "cpus": 8, "partition": "high", "runtime": 20.0}])
    assert result.starting_time.tolist() == [180, 10]
    assert result.jobs["restarts"].tolist() == [1, 0]
    assert result.jobs["lost_core_seconds"].tolist() == [80, 0]


def test_the_second_run_of_a_requeued_job_has_a_reason_of_its_own() -> None:
    parts = {
        "low": {"nodes": "ALL", "default": True, "preempt_mode": "REQUEUE"},
        "high": {"nodes": "ALL", "priority_tier": 2, "preempt_mode": "OFF"},
    }
    site = make_site(preemption={"type": "partition_prio", "mode": "REQUEUE"}, partitions=parts)
    high = {"at": 60.0, "cpus": 8, "partition": "high", "runtime": 20.0}
    result = replay(site, [{"cpus": 8, "runtime": 50.0}, {"at": 1.0, "cpus": 8}, high])
    assert result.starting_time.tolist() == [0, 240, 60]
    runs = zip(result.jobs["job_id"].tolist(), result.jobs["restarts"].tolist(), strict=True)
    assert ("2", 1) in list(runs)
    assert result.columns["reason"].tolist()[1] == "None"


def test_fewer_jobs_are_preempted_when_one_suffices() -> None:
    # The jobs on one node each come first; the one on both nodes that suffices alone is preempted in their place.
    qos = {"lo": {}, "hi": {"preempt": ["lo"], "priority": 1}}
    site = make_site(preemption={"type": "qos", "mode": "CANCEL"}, qos=qos)
    jobs = [{"qos": "lo", "cpus": 2}, {"qos": "lo", "cpus": 6}, {"at": 10.0, "qos": "hi", "cpus": 6}]
    result = replay(site, jobs)
    assert result.finish_time.tolist() == [100, 10, 110]


#: Jobs of the partition hi run over those of lo; both have memory of their own.
SUSPENDING: dict[str, Any] = {
    "partitions": {
        "lo": {"nodes": "ALL", "default": True, "oversubscribe": "FORCE:1"},
        "hi": {"nodes": "ALL", "priority_tier": 2, "preempt_mode": "OFF", "oversubscribe": "FORCE:1"},
    },
    "preemption": {"type": "partition_prio", "mode": "SUSPEND", "gang": True},
}


def test_a_measured_schedule_is_replayed_with_its_suspensions(tmp_path: Path) -> None:
    dump = FOLDER / "suspend"
    made, jobs = import_site([path for path in dump.iterdir() if path.name != "order.txt"], "UTC", Notes())
    write_site(made, Notes(), tmp_path, jobs)
    platform = load_platform(tmp_path / "platform.json")
    further = {"memory": "none", "memory_bandwidth": "none", "status": "queued"}
    workload = load_workload(tmp_path / "jobs.parquet", platform, **further)
    result = simulate(platform, workload, SlurmAgent(tmp_path), check=True)
    recorded = np.asarray(result.columns["recorded_start"], np.float64)
    assert np.abs(result.starting_time - recorded).max() <= 20.0
    assert result.columns["nodes"].tolist() == result.columns["recorded_nodes"].tolist()
    rows = [line.split("|") for line in (dump / "sacct.txt").read_text().splitlines()]
    place = rows[0].index("Suspended")
    seconds = [sum(60**power * int(part) for power, part in enumerate(row[place].split(":")[::-1])) for row in rows[1:]]
    assert np.abs(np.array(result.columns["suspended"], np.float64) - seconds).max() <= 30.0


def test_jobs_that_wait_for_a_time_start_in_the_next_pass_over_all_jobs(tmp_path: Path) -> None:
    """slurmctld makes no pass when the time comes, but every minute and when jobs end."""
    dump = FOLDER / "begins"
    made, jobs = import_site([path for path in dump.iterdir() if path.name != "order.txt"], "UTC", Notes())
    write_site(made, Notes(), tmp_path, jobs)
    further = {"memory": "none", "memory_bandwidth": "none", "status": "queued"}
    platform = load_platform(tmp_path / "platform.json")
    workload = load_workload(tmp_path / "jobs.parquet", platform, **further)
    result = simulate(platform, workload, SlurmAgent(tmp_path), check=True)
    recorded = np.asarray(result.columns["recorded_start"], np.float64)
    # Of the first job the minutes of the replay decide otherwise, which begin with the first submission.
    assert np.abs(result.starting_time - recorded)[1:].max() <= 8.0


def test_a_suspended_job_keeps_its_work_and_goes_on() -> None:
    result = replay(make_site(**SUSPENDING), [{"cpus": 8}, {"at": 10.0, "cpus": 2, "partition": "hi", "runtime": 30.0}])
    assert result.starting_time.tolist() == [0, 10]
    assert result.finish_time.tolist() == [130, 40]
    assert list(result.columns["suspended"]) == [30.0, 0.0]
    held = result.segments.begin[result.segments.job == 0], result.segments.end[result.segments.job == 0]
    assert sorted(zip(*held, strict=True)) == [(0.0, 10.0), (40.0, 130.0)]
    assert list(result.columns["state"]) == ["COMPLETED", "COMPLETED"]


def test_idle_cpus_come_first_and_cpus_of_suspended_jobs_are_not_free() -> None:
    # The third job takes the idle CPUs, the fourth suspends the second one, whose other CPU is not free for the last.
    jobs = [
        {"cpus": 4},
        {"cpus": 2},
        {"at": 10.0, "cpus": 2, "partition": "hi"},
        {"at": 20.0, "cpus": 1, "partition": "hi", "runtime": 20.0},
        {"at": 25.0, "cpus": 1, "runtime": 10.0},
    ]
    result = replay(make_site(**SUSPENDING), jobs)
    assert result.starting_time.tolist() == [0, 0, 10, 20, 100]
    assert list(result.columns["suspended"]) == [0.0, 20.0, 0.0, 0.0, 0.0]
    assert result.finish_time.tolist() == [100, 120, 110, 40, 110]


def test_a_job_over_a_suspended_one_is_suspended_for_a_third(tmp_path: Path) -> None:
    mid = {"nodes": "ALL", "priority_tier": 2, "oversubscribe": "FORCE:1"}
    parts = SUSPENDING["partitions"] | {"mid": mid, "hi": SUSPENDING["partitions"]["hi"] | {"priority_tier": 3}}
    jobs = [
        {"cpus": 8},
        {"at": 10.0, "cpus": 8, "partition": "mid", "runtime": 50.0},
        {"at": 20.0, "cpus": 4, "partition": "hi", "runtime": 20.0},
    ]
    result = replay(make_site(**SUSPENDING | {"partitions": parts}), jobs)
    assert result.finish_time.tolist() == [170, 80, 40]
    assert list(result.columns["suspended"]) == [70.0, 20.0, 0.0]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"type": "qos"}, "PreemptMode=GANG"),
        ({"gang": False}, "PreemptMode=SUSPEND"),
        ({"tier": 1}, "of one PriorityTier, whose jobs run in turns"),
        ({"mode": "REQUEUE"}, "PreemptMode=REQUEUE beside PreemptMode=SUSPEND,GANG"),
        ({"shared": "NO"}, "one of them with OverSubscribe=FORCE"),
        ({"shared": "FORCE:2"}, "OverSubscribe=FORCE:2"),
    ],
)
def test_what_is_not_simulated_of_suspension_is_refused(changes: dict[str, Any], told: str) -> None:
    lo, hi = SUSPENDING["partitions"].values()
    lo = lo | {"preempt_mode": changes.get("mode"), "oversubscribe": changes.get("shared", "FORCE:1")}
    hi = hi | {"priority_tier": changes.get("tier", 2)}
    given = {key: value for key, value in changes.items() if key in ("type", "gang")}
    rules = {"partitions": {"lo": lo, "hi": hi}, "preemption": SUSPENDING["preemption"] | given}
    with pytest.raises(ConfigError, match=told):
        replay(make_site(**rules), [{"cpus": 1}])


def test_suspension_needs_an_executor_that_can() -> None:
    with pytest.raises(ConfigError, match="expected no contention model, no failures"):
        replay(make_site(**SUSPENDING), [{"cpus": 1}], failures="external")


def test_jobs_are_on_no_node_with_those_of_a_partition_that_may_share_cpus() -> None:
    """No job asks to share; the last one waits for both of the first node."""
    parts = {"no": {"nodes": "ALL", "default": True}, "yes": {"nodes": "ALL", "oversubscribe": "YES:2"}}
    jobs = [
        {"partition": "yes"},
        {"at": 10.0, "runtime": 200.0},
        {"at": 20.0, "partition": "yes"},
        {"at": 30.0, "partition": "yes", "cpus": 3, "runtime": 200.0},
        {"at": 40.0, "cpus": 2},
    ]
    result = replay(make_site(partitions=parts), jobs)
    assert result.columns["nodes"].tolist() == ["n1", "n2", "n1", "n2", "n1"]
    assert result.starting_time.tolist() == [0, 10, 20, 30, 120]


@pytest.mark.parametrize(
    ("rules", "told"),
    [
        ({"slurm": {"select": "linear"}}, "partition main: OverSubscribe=YES:2 with select/linear"),
        ({"preemption": {"type": "qos", "mode": "CANCEL"}}, "partition main: OverSubscribe=YES:2 beside preemption"),
    ],
)
def test_where_sharing_of_cpus_is_not_simulated_it_is_refused(rules: dict[str, Any], told: str) -> None:
    parts = {"main": {"nodes": "ALL", "default": True, "oversubscribe": "YES:2"}}
    with pytest.raises(ConfigError, match=told):
        replay(make_site(partitions=parts, **rules), [{"cpus": 1}])


def test_select_linear_gives_whole_nodes_the_largest_first_where_the_smallest_do_not_suffice() -> None:
    kinds = {"small": {"nodes": "n[1-3]", "cpus": 2}, "large": {"nodes": "n[4-5]", "cpus": 4}}
    site = make_site(nodes=kinds, slurm={"select": "linear", "parameters": {"batch_sched_delay": 0}})
    result = replay(site, [{"cpus": 1, "runtime": 50.0}, {"at": 60.0, "cpus": 9}, {"at": 200.0, "cpus": 7}])
    assert result.columns["nodes"].tolist() == ["n1", "n[3-5]", "n[4-5]"]
    assert result.jobs["allocated_resources"].tolist()[0] == "0-1"


def test_exclusive_user_keeps_the_jobs_of_other_users_from_a_node() -> None:
    parts = {"main": {"nodes": "ALL", "default": True}, "own": {"nodes": "ALL", "exclusive_user": True}}
    jobs = [
        {"user": "u1", "partition": "own"},
        {"at": 1.0, "user": "u2"},  # not on the node of u1
        {"at": 2.0, "user": "u1", "partition": "own"},  # on its own node
        {"at": 3.0, "user": "u3", "partition": "own"},  # no node without another user
        {"at": 4.0, "user": "u3"},  # beside u2
    ]
    result = replay(make_site(partitions=parts), jobs)
    assert result.columns["nodes"].tolist() == ["n1", "n2", "n1", "n2", "n2"]
    assert result.starting_time.tolist() == [0, 1, 2, 101, 4]


def make_site(**rules: Any) -> Site:
    """A site of two nodes with four CPUs, whose passes follow each change at once."""
    parameters = {"batch_sched_delay": 0, "sched_interval": 60, "bf_interval": 1, "bf_resolution": 1}
    document: dict[str, Any] = {
        "nodes": {"n": {"nodes": "n[1-2]", "cpus": 4, "cores_per_socket": 4, "memory": 1000}},
        "partitions": {"main": {"nodes": "ALL", "default": True}},
        "associations": [
            {"account": "a1", "limits": rules.pop("account_limits", {})},
            {"account": "a1", "user": "u1", "limits": rules.pop("user_limits", {})},
            {"account": "a1", "user": "u2"},
        ],
        "qos": {"normal": rules.pop("qos", {})} if "preemption" not in rules else rules.pop("qos", {"normal": {}}),
        "priority": {"type": "basic"},
        "slurm": {"enforce": ["associations", "limits", "qos"], "parameters": parameters},
    }
    return site_of(document | rules, "test")


def replay(site: Site, jobs: list[dict[str, Any]], *, check: bool = True, **options: Any) -> Result:
    """Replays jobs of `make_jobs`."""
    platform = Platform.from_dict(platform_document(site), "test")
    return simulate(platform, make_jobs(site, jobs), SlurmAgent(site), check=check, **options)


def make_jobs(site: Site, jobs: list[dict[str, Any]]) -> Workload:
    """Jobs: ``at``, ``runtime``, ``cpus``, ``user`` and further columns; by default of u1 at 0 for 100 s."""
    users, names = ["u1", "u2", "u3", "u4"], [job.pop("name", "") for job in jobs]
    qos = [list(site.qos).index(job.pop("qos", next(iter(site.qos)))) for job in jobs]
    at = [job.pop("at", 0.0) for job in jobs]
    runtime = [job.pop("runtime", 100.0) for job in jobs]
    cpus = [job.pop("cpus", 1) for job in jobs]
    user = [users.index(job.pop("user", "u1")) for job in jobs]
    limit = [job.pop("limit", 600.0) for job in jobs]
    partition = [list(site.partitions).index(job.pop("partition", next(iter(site.partitions)))) for job in jobs]
    ids = [job.pop("id", str(number)) for number, job in enumerate(jobs, 1)]
    status = [job.pop("status", 1) for job in jobs]
    code = [job.pop("code", 0) for job in jobs]
    own = {key: np.array([job.get(key) for job in jobs], object) for job in jobs for key in job}
    return Workload.from_columns(
        job_id=ids,
        submission_time=at,
        runtime=runtime,
        requested_cores=cpus,
        requested_time=limit,
        user=user,
        group=0,
        queue=qos,
        partition=partition,
        status=status,
        return_code=code,
        executable=[sorted(set(names)).index(name) for name in names],
        names={
            "user": dict(enumerate(users)),
            "group": {0: "a1"},
            "queue": dict(enumerate(site.qos)),
            "partition": dict(enumerate(site.partitions)),
            "executable": dict(enumerate(sorted(set(names)))),
        },
        further={"cpus": np.array(cpus), **own},
        site=site,
    )


@pytest.mark.parametrize(
    ("rules", "word", "starts"),
    [
        ({"qos": {"limits": {"max_jobs": 1}}}, "QOSMaxJobsPerUserLimit", [0, 100, 0]),
        ({"qos": {"limits": {"grp_jobs": 1}}}, "QOSGrpJobsLimit", [0, 100, 200]),
        ({"qos": {"limits": {"max_tres_per_user": {"cpu": 3}}}}, "QOSMaxCpuPerUserLimit", [0, 100, 0]),
        ({"qos": {"limits": {"grp_tres": {"cpu": 5}}}}, "QOSGrpCpuLimit", [0, 0, 100]),
        ({"qos": {"limits": {"max_tres_per_account": {"node": 1}}}}, "MaxNodePerAccount", [0, 0, 100]),
        ({"qos": {"limits": {"max_jobs_per_account": 2}}}, "MaxJobsPerAccount", [0, 0, 100]),
        ({"user_limits": {"max_jobs": 1}}, "AssocMaxJobsLimit", [0, 100, 0]),
        ({"account_limits": {"max_jobs": 1}}, "AssocMaxJobsLimit", [0, 100, 0]),
        ({"account_limits": {"grp_tres": {"cpu": 5}}}, "AssocGrpCpuLimit", [0, 0, 100]),
        ({"account_limits": {"grp_jobs": 2}}, "AssocGrpJobsLimit", [0, 0, 100]),
        # That of the QOS takes the place of the association's.
        ({"user_limits": {"max_jobs": 1}, "qos": {"limits": {"max_jobs": 5}}}, "None", [0, 0, 0]),
    ],
)
def test_limits_hold_jobs_back_with_the_reason_of_slurm(rules: dict[str, Any], word: str, starts: list[int]) -> None:
    result = replay(make_site(**rules), [{"cpus": 2}, {"cpus": 2}, {"cpus": 2, "user": "u2"}])
    assert result.starting_time.tolist() == starts
    reasons = result.columns["reason"].tolist()
    late = [reason for reason, start in zip(reasons, starts, strict=True) if start]
    assert set(late or reasons) == {word}


@pytest.mark.parametrize(
    ("rules", "job", "word"),
    [
        ({"qos": {"limits": {"max_tres": {"cpu": 3}}}}, {"cpus": 4}, "QOSMaxCpuPerJobLimit"),
        ({"qos": {"limits": {"max_wall": 60}}}, {}, "QOSMaxWallDurationPerJobLimit"),
        ({"qos": {"limits": {"min_tres": {"cpu": 2}}}}, {}, "QOSMinCpuNotSatisfied"),
        ({"account_limits": {"max_tres": {"cpu": 3}}}, {"cpus": 4}, "AssocMaxCpuPerJobLimit"),
        ({"user_limits": {"max_wall": 60}}, {}, "AssocMaxWallDurationPerJobLimit"),
        ({"partitions": {"main": {"nodes": "ALL", "max_time": 60}}}, {}, "PartitionTimeLimit"),
        ({"partitions": {"main": {"nodes": "ALL", "allow_accounts": ["a2"]}}}, {}, "AccountNotAllowed"),
        ({"partitions": {"main": {"nodes": "ALL", "deny_qos": ["normal"]}}}, {}, "QOSNotAllowed"),
        ({"partitions": {"main": {"nodes": "ALL", "max_nodes": 1}}}, {"nodes": 2, "cpus": 2}, "PartitionNodeLimit"),
        ({"partitions": {"main": {"nodes": "n1"}}}, {"cpus": 5}, "BadConstraints"),
    ],
)
def test_jobs_that_can_never_run_are_rejected_with_the_reason(
    rules: dict[str, Any], job: dict[str, Any], word: str
) -> None:
    result = replay(make_site(**rules), [job])
    assert math.isnan(result.starting_time[0])
    assert result.columns["reason"].tolist() == [word]
    assert result.metrics["jobs_rejected"] == 1


#: A job on the first node, one that needs both, and one that would delay it.
IN_THE_WAY = [{"cpus": 4, "limit": 120.0}, {"cpus": 8, "qos": "large"}, {"cpus": 4, "qos": "late"}]


@pytest.mark.parametrize(
    ("large", "late", "mode", "starts"),
    [
        ([], [], "OFF", [0, 100, 200]),
        (["NoReserve"], [], "OFF", [0, 100, 0]),
        (["NoReserve"], [], "REQUEUE", [0, 100, 0]),
        # Where jobs may be preempted, sched/backfill plans such a job for a minute.
        ([], ["NoReserve"], "OFF", [0, 100, 200]),
        ([], ["NoReserve"], "REQUEUE", [0, 100, 0]),
    ],
)
def test_sched_backfill_keeps_no_nodes_for_jobs_of_a_qos_with_noreserve(
    large: list[str], late: list[str], mode: str, starts: list[int]
) -> None:
    qos = {"usual": {}, "large": {"flags": large}, "late": {"flags": late}}
    site = make_site(preemption={"type": "none", "mode": mode}, qos=qos)
    assert replay(site, [dict(job) for job in IN_THE_WAY]).starting_time.tolist() == starts


@pytest.mark.parametrize(
    ("partition", "flag", "job", "word"),
    [
        ({"max_time": 300}, "PartitionTimeLimit", {}, "PartitionTimeLimit"),
        ({"max_nodes": 1}, "PartitionMaxNodes", {"cpus": 2, "nodes": 2, "most_nodes": 2}, "PartitionNodeLimit"),
        ({"max_nodes": 1}, "PartitionMaxNodes", {"cpus": 2, "nodes": 1, "most_nodes": 2}, "PartitionNodeLimit"),
        ({"min_nodes": 2}, "PartitionMinNodes", {"nodes": 1, "most_nodes": 1}, "BadConstraints"),
    ],
)
def test_a_qos_frees_its_jobs_from_a_limit_of_the_partition(
    partition: dict[str, Any], flag: str, job: dict[str, Any], word: str
) -> None:
    parts = {"main": {"nodes": "ALL", "default": True, **partition}}
    for flags, reason in (([], word), ([flag], "None")):
        result = replay(make_site(partitions=parts, qos={"flags": flags}), [dict(job)])
        assert result.columns["reason"].tolist() == [reason]


@pytest.mark.parametrize(
    ("job", "word"),
    [
        ({"memory_mib": 500.0, "memory_per": "n"}, "None"),
        ({"memory_mib": 501.0, "memory_per": "n"}, "MaxMemPerLimit"),
        ({"memory_mib": 200.0, "memory_per": "c", "cpus": 4, "per_task": 2}, "None"),
        ({"memory_mib": 200.0, "memory_per": "c", "cpus": 4, "nodes": 1, "most_nodes": 1}, "MaxMemPerLimit"),
    ],
)
def test_jobs_with_more_memory_on_a_node_than_the_partition_permits_are_rejected(
    job: dict[str, Any], word: str
) -> None:
    parts = {"main": {"nodes": "ALL", "default": True, "max_memory_per_node": 500}}
    slurm = {"select_parameters": ["CR_Core_Memory"], "parameters": {"batch_sched_delay": 0, "bf_interval": 1}}
    assert replay(make_site(partitions=parts, slurm=slurm), [job]).columns["reason"].tolist() == [word]


def with_parameters(type_: str = "backfill", **parameters: int) -> dict[str, Any]:
    usual = {"batch_sched_delay": 0, "sched_interval": 60, "bf_interval": 1, "bf_resolution": 1}
    return {"type": type_, "enforce": ["limits"], "parameters": usual | parameters}


def test_an_array_counts_as_few_jobs_of_those_that_are_tested() -> None:
    """Those of its tasks that start, get a reservation (bf_max_job_array_resv) or are the first that does not."""
    tasks: list[dict[str, Any]] = [{"id": f"2_{number}", "cpus": 8} for number in range(100)]
    jobs = [{"cpus": 4, "limit": 100.0}, *tasks, {"id": "3", "limit": 60.0, "runtime": 10.0}]
    for most, tested, start in ((20, 60, 0), (20, 21, 0), (2, 4, 0), (20, 20, None)):
        slurm = with_parameters(bf_max_job_test=tested, bf_max_job_array_resv=most, bf_node_space_size=1000)
        begun = replay(make_site(slurm=slurm), [dict(job) for job in jobs]).starting_time.tolist()
        assert begun[-1] == start if start is not None else begun[-1] > 0


def test_jobs_that_limits_hold_back_do_not_count_among_those_that_are_tested() -> None:
    jobs = [{"user": "u1"} for _ in range(9)] + [{"user": "u2"}]
    slurm = with_parameters(default_queue_depth=4, bf_max_job_test=2)
    result = replay(make_site(slurm=slurm, qos={"limits": {"max_jobs": 1}}), jobs)
    assert result.starting_time.tolist()[-1] <= 1


def test_jobs_of_partitions_that_wait_count_among_those_that_the_main_loop_looks_at() -> None:
    parts = {"one": {"nodes": "n1", "default": True}, "other": {"nodes": "n2"}}
    jobs = [{"cpus": 4}, *({"at": 5.0, "cpus": 4} for _ in range(6)), {"at": 5.0, "partition": "other"}]
    for depth, start in ((5, 60), (6, 5)):
        site = make_site(partitions=parts, slurm=with_parameters("builtin", default_queue_depth=depth))
        assert replay(site, [dict(job) for job in jobs]).starting_time.tolist()[-1] == start


@pytest.mark.parametrize(("nice", "starts"), [([100, 0], [100, 200]), ([0, -1], [100, 200]), ([0, -2], [200, 100])])
def test_a_negative_nice_value_puts_a_job_ahead_of_earlier_ones(nice: list[int], starts: list[int]) -> None:
    """Without factors of priority (priority/basic) a positive one puts no later job ahead."""
    jobs = [{"cpus": 8}, *({"at": 10.0 + value, "cpus": 8, "nice": nice[value]} for value in range(2))]
    assert replay(make_site(), jobs).starting_time.tolist()[1:] == starts


_SMALL = {"nodes": "n1"}
_ALL = {"nodes": "ALL", "default": True}
#: Jobs behind one that waits, which the main loop starts, or not (None).
BEHIND: list[tuple[dict[str, Any], list[dict[str, Any]], list[int]]] = [
    # Of another partition, whose nodes are kept for the one that waits.
    ({"partitions": {"one": _SMALL, "all": _ALL}}, [{"partition": "one"}, {"partition": "all"}], [100, 0]),
    # Behind one that needs more nodes than are left to its partition.
    (
        {"partitions": {"one": _SMALL, "all": _ALL}},
        [{"partition": "one"}, {"partition": "all", "cpus": 8}, {"partition": "all"}],
        [100, 200, 0],
    ),
    ({}, [{"cpus": 8}, {}], [100, 200]),
    ({}, [{"required_nodes": "n1"}, {}], [100, 0]),
    ({"slurm": with_parameters("builtin", bf_min_age_reserve=1000)}, [{"cpus": 8}, {}], [100, 0]),
    (
        {"reservations": {"r": {"nodes": "n[1-2]", "start": -10, "end": 10_000}}},
        [{"reservation": "r", "cpus": 8}, {"reservation": "r"}],
        [100, 200],
    ),
]


@pytest.mark.parametrize(("rules", "jobs", "starts"), BEHIND)
def test_the_main_loop_lets_jobs_behind_one_that_waits_start_where_slurmctld_does(
    rules: dict[str, Any], jobs: list[dict[str, Any]], starts: list[int]
) -> None:
    site = make_site(**{"slurm": with_parameters("builtin"), **rules})
    first = {"cpus": 4, **{key: jobs[0][key] for key in ("partition", "reservation") if key in jobs[0]}}
    listed = [first, *({"cpus": 4} | job for job in jobs)]
    assert replay(site, listed).starting_time.tolist()[1:] == starts


def test_submissions_beyond_a_limit_are_rejected() -> None:
    site = make_site(qos={"limits": {"max_submit": 2}})
    result = replay(site, [{}, {}, {}, {"user": "u2"}, {"at": 150.0}])
    assert result.columns["reason"].tolist() == ["None", "None", "QOSMaxSubmitJobPerUserLimit", "None", "None"]
    assert math.isnan(result.starting_time[2])


def test_used_minutes_hold_jobs_back_until_they_have_decayed() -> None:
    # 8 CPUs for 600 s are 80 CPU-minutes; half of them are left an hour later.
    rules = {"type": "multifactor", "decay_half_life": 3600, "calculation_period": 60}
    site = make_site(account_limits={"grp_tres_mins": {"cpu": 40}}, priority=rules)
    result = replay(site, [{"cpus": 8, "runtime": 600.0}, {"at": 700.0}])
    assert result.columns["reason"][1] == "AssocGrpCPUMinutesLimit"
    factor = (1 - 0.693 / 3600) ** 60
    used, period, now = 0.0, 8 * 60 * factor, 0
    while now < 600:
        used, now = used * factor + period, now + 60
    while used >= 40 * 60:
        used, now = used * factor, now + 60
    assert 0 <= result.starting_time[1] - now <= 60


def test_a_job_of_several_partitions_takes_the_one_that_is_free() -> None:
    partitions = {"one": {"nodes": "n1", "default": True}, "two": {"nodes": "n2"}}
    jobs = [{"cpus": 4}, {"cpus": 4, "partitions": "one,two"}, {"cpus": 4, "partition": "two"}]
    result = replay(make_site(partitions=partitions), jobs)
    assert result.starting_time.tolist() == [0, 0, 100]
    assert result.columns["nodes"].tolist() == ["n1", "n2", "n2"]


@pytest.mark.parametrize(("rules", "nodes"), [({}, "n3"), ({"preemption": {"type": "partition_prio"}}, "n1")])
def test_whole_nodes_are_of_the_first_line_of_a_weight_that_suffices(rules: dict[str, Any], nodes: str) -> None:
    """Other jobs are on the first nodes of the weight, as all of them are where some may be preempted."""
    kind = {"cpus": 4, "cores_per_socket": 4, "memory": 1000}
    lines = {"b": {"nodes": "n[3-4]", **kind}, "a": {"nodes": "n[1-2]", **kind}}
    site = site_of(make_site().model_dump() | {"nodes": lines} | rules, "test")
    result = replay(site, [{"whole": True, "runtime": 10.0}, {"at": 20.0}, {"at": 40.0, "whole": True, "cpus": 12}])
    assert result.columns["nodes"].tolist() == [nodes, "n1", "n[2-4]"]


def test_limits_are_those_of_the_partition_in_which_a_job_is_tried() -> None:
    """The QOS of the first partition has space for one job, so that the second job starts in the other one."""
    parts = {"few": {"nodes": "ALL", "default": True, "qos": "one"}, "many": {"nodes": "ALL"}}
    site = make_site(partitions=parts, qos={})
    site = site_of(site.model_dump() | {"qos": {"normal": {}, "one": {"limits": {"grp_jobs": 1}}}}, "test")
    jobs = [{"partitions": "few,many"}, {"partitions": "few,many"}, {"partition": "few"}]
    result = replay(site, jobs)
    assert result.starting_time.tolist() == [0, 0, 100]
    assert result.columns["reason"].tolist()[2] == "QOSGrpJobsLimit"


def test_a_job_that_one_of_its_partitions_forbids_runs_in_the_other_one() -> None:
    parts = {"small": {"nodes": "ALL", "default": True, "qos": "small"}, "big": {"nodes": "n2"}}
    site = make_site(partitions=parts)
    site = site_of(site.model_dump() | {"qos": {"normal": {}, "small": {"limits": {"max_tres": {"cpu": 2}}}}}, "test")
    result = replay(site, [{"cpus": 3, "partitions": "small,big"}, {"cpus": 3, "partition": "small"}])
    assert result.columns["nodes"].tolist() == ["n2", ""]
    assert result.columns["reason"].tolist()[1] == "QOSMaxCpuPerJobLimit"


def test_whole_nodes_are_those_of_the_partition_in_which_a_job_is_tried() -> None:
    parts = {
        "shared": {"nodes": "n1", "default": True},
        "alone": {"nodes": "n2", "oversubscribe": "EXCLUSIVE"},
    }
    jobs = [{"cpus": 4}, {"partitions": "shared,alone"}, {"partition": "alone"}]
    result = replay(make_site(partitions=parts), jobs)
    assert result.columns["nodes"].tolist() == ["n1", "n2", "n2"]
    assert result.starting_time.tolist() == [0, 0, 100]


def test_the_bill_is_that_of_the_partition_in_which_a_job_runs() -> None:
    """A job costs 4 a CPU in the second partition, in which it runs; memory, nodes and licences are billed, too."""
    weights = {"cpu": 4.0, "mem": 0.01, "node": 2.0, "license/sim": 7.0, "energy": 5.0}
    parts = {
        "full": {"nodes": "n1", "default": True},
        "free": {"nodes": "n2", "billing_weights": weights, "default_memory_per_cpu": 100.0},
    }
    priority = {"type": "multifactor", "weight_fair_share": 1000, "calculation_period": 60, "decay_half_life": 0}
    expected = {"": 100 * (8 + 2 + 2 + 14), "MAX_TRES": 100 * (8 + 14)}
    for flag, billed in expected.items():
        given = priority | {"flags": [flag] if flag else []}
        site = make_site(partitions=parts, priority=given, licenses={"sim": 2}, qos={})
        jobs = [
            {"cpus": 4, "user": "u2", "runtime": 1000.0, "limit": 1000.0},
            {"cpus": 2, "partitions": "full,free", "licenses": "sim:2", "memory_mib": 100, "memory_per": "c"},
        ]
        platform = Platform.from_dict(platform_document(site), "test")
        agent = SlurmAgent(site)
        simulate(platform, make_jobs(site, jobs), agent)
        multifactor = agent.state_at(1000.0).multifactor
        assert multifactor is not None
        rows = [one.user for one in multifactor.accounts.rows]
        assert multifactor.fair_share.shares.usage[rows.index("u1")] == pytest.approx(billed)


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (
            {"slurm": {"parameters": {"bf_intervall": 30}}},
            r"SchedulerParameters=bf_intervall \(did you mean 'bf_interval'\?\)",
        ),
        ({"slurm": {"select_parameters": ["CR_Cores"]}}, r"SelectTypeParameters=CR_Cores \(did you mean 'CR_CORE'\?\)"),
        ({"priority": {"weight_tres": {"cpuu": 10}}}, r"PriorityWeightTRES=cpuu \(did you mean 'cpu'\?\) \(expected"),
        ({"priority": {"weight_tres": {"gres/nic": 10}}}, r"PriorityWeightTRES=gres/nic.* \(expected one of cpu, mem"),
        (
            {"partitions": {"main": {"nodes": "ALL", "billing_weights": {"gpu": 2}}}},
            r"partition main: TRESBillingWeights=gpu.*gres/gpu",
        ),
        (
            {
                "partitions": {"main": {"nodes": "ALL", "billing_weights": {"cpu": 2}}},
                "priority": {"type": "multifactor", "weight_tres": {"billing": 1}},
            },
            "PriorityWeightTRES=billing beside TRESBillingWeights",
        ),
    ],
)
def test_weights_of_what_is_not_counted_are_refused(rules: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        replay(make_site(**rules), [{}])


def test_limits_of_billing_count_what_the_partition_bills() -> None:
    parts = {"main": {"nodes": "ALL", "default": True, "billing_weights": {"cpu": 3.0}}}
    site = make_site(partitions=parts, qos={"limits": {"grp_tres": {"billing": 11}}})
    result = replay(site, [{"cpus": 2}, {"cpus": 2}, {"cpus": 1}])
    assert result.starting_time.tolist() == [0, 100, 0]
    assert result.columns["reason"].tolist()[1] == "QOSGrpBilling"


def test_the_jobs_of_a_partition_have_so_many_cpus_of_each_node() -> None:
    parts = {"main": {"nodes": "ALL", "default": True}, "few": {"nodes": "ALL", "max_cpus_per_node": 2}}
    jobs = [{"partition": "few"}, {"cpus": 3, "partition": "few"}, {"cpus": 4}, {"partition": "few", "whole": True}]
    result = replay(make_site(partitions=parts), jobs)
    assert result.columns["nodes"].tolist() == ["n1", "n[1-2]", "n[1-2]", ""]
    assert result.starting_time.tolist()[:3] == [0, 0, 0]


def test_a_requeued_job_waits_though_another_of_its_dependencies_is_fulfilled() -> None:
    parts = {
        "low": {"nodes": "ALL", "default": True, "preempt_mode": "REQUEUE"},
        "high": {"nodes": "ALL", "priority_tier": 2, "preempt_mode": "OFF"},
    }
    site = make_site(preemption={"type": "partition_prio", "mode": "REQUEUE"}, partitions=parts)
    jobs = [
        {"runtime": 5.0, "partition": "high"},
        {"runtime": 60.0, "partition": "high"},
        {"cpus": 6, "dependency": "afterany:1?afterany:2"},
        {"at": 30.0, "cpus": 6, "runtime": 5.0, "partition": "high"},
    ]
    result = replay(site, jobs)
    assert result.starting_time.tolist() == [0, 0, 180, 30]


def test_dependencies() -> None:
    jobs: list[dict[str, Any]] = [
        {"runtime": 50.0},
        {"runtime": 60.0, "code": 1},
        {"dependency": "afterok:1"},
        {"dependency": "afterok:2"},
        {"dependency": "afternotok:2"},
        {"dependency": "afterany:1:2"},
        {"dependency": "after:1+2"},
        {"dependency": "afterok:2?afterok:1"},
        {"dependency": "afterany:99"},
        {"dependency": "singleton", "name": "same"},
        {"dependency": "singleton", "name": "same", "user": "u2"},
        {"dependency": "singleton", "name": "same", "runtime": 5.0},
    ]
    result = replay(make_site(), jobs)
    first = [0, 0, 50, math.nan, 60, 60, 120, 50, 0, 0, 0, 100]
    assert result.starting_time.tolist() == pytest.approx(first, nan_ok=True)
    assert result.columns["reason"][3] == "DependencyNeverSatisfied"


def test_a_job_after_the_start_of_another_starts_in_the_next_second() -> None:
    result = replay(make_site(), [{"runtime": 1000.0}, {"dependency": "after:1"}])
    assert result.starting_time.tolist() == [0, 1]


def test_an_array_is_throttled_and_its_tasks_follow_those_of_another() -> None:
    jobs = [{"id": f"1_{task}", "array_limit": 2, "runtime": 10.0 * task} for task in (1, 2, 3)]
    jobs += [{"id": f"2_{task}", "dependency": "aftercorr:1"} for task in (1, 2, 3)]
    result = replay(make_site(), jobs)
    assert result.starting_time.tolist() == [0, 0, 10, 10, 20, 40]
    assert result.columns["reason"][2] == "JobArrayTaskLimit"


def test_a_malformed_dependency_is_one_line() -> None:
    with pytest.raises(WorkloadError, match=r"job 1: expected a dependency such as afterok:12:13.*, got 'aftr:7'"):
        replay(make_site(), [{"dependency": "aftr:7"}])


def test_a_job_that_was_cancelled_leaves_the_queue_at_that_time() -> None:
    jobs: list[dict[str, Any]] = [
        {"cpus": 8, "recorded_start": 0.0, "recorded_end": 100.0},
        {"cpus": 8, "status": 5, "runtime": 0.0, "recorded_start": math.nan, "recorded_end": 40.0},
        {"cpus": 8, "recorded_start": 100.0, "recorded_end": 200.0},
    ]
    result = replay(make_site(), jobs)
    assert result.starting_time.tolist() == pytest.approx([0, math.nan, 100], nan_ok=True)
    assert result.columns["reason"].tolist() == ["None", "Resources", "Resources"]


def test_jobs_are_on_the_nodes_that_they_name() -> None:
    jobs = [{"required_nodes": "n2"}, {"excluded_nodes": "n1"}, {"cpus": 3}]
    assert replay(make_site(), jobs).columns["nodes"].tolist() == ["n2", "n2", "n1"]


def test_nodes_with_few_idle_cpus_make_room_for_others_where_the_number_of_nodes_is_given() -> None:
    # Two of three nodes have to give four CPUs each: the first one, which has three, is left out.
    site = make_site(nodes={"n": {"nodes": "n[1-3]", "cpus": 4, "cores_per_socket": 4, "memory": 1000}})
    result = replay(site, [{"cpus": 1}, {"cpus": 8, "nodes": 2, "most_nodes": 2}])
    assert result.starting_time.tolist() == [0, 0]
    assert result.columns["nodes"].tolist() == ["n1", "n[2-3]"]


@pytest.mark.parametrize(
    ("switches", "message"),
    [
        ({"s1": {"nodes": "n[1-9]"}}, r"switches\.s1: expected nodes of the site, got 'n3'"),
        ({"s1": {"switches": ["s2"]}}, r"switches\.s1: expected switches of the site, got 's2'"),
        (
            {"s1": {"switches": ["s2"]}, "s2": {"switches": ["s1"]}},
            "expected a tree, got switches below themselves: s1, s2",
        ),
    ],
)
def test_switches_that_are_no_tree_are_refused(switches: dict[str, Any], message: str) -> None:
    site = make_site(switches=switches)
    site.slurm.topology = "tree"
    with pytest.raises(ConfigError, match=message):
        replay(site, [{}])


def test_whole_nodes_hold_all_cores() -> None:
    result = replay(make_site(), [{"cpus": 1, "whole": True}, {"cpus": 5}])
    assert result.starting_time.tolist() == [0, 100]
    assert str(result.jobs["allocated_resources"][0]) == "0-3"


def site_folder(tmp_path: Path) -> Path:
    """A folder as `hdsim site import` writes it."""
    dump = tmp_path / "dump"
    dump.mkdir()
    (dump / "slurm.conf").write_text(
        "ClusterName=lab\nNodeName=n[1-2] CPUs=4 RealMemory=1000\nPartitionName=main Nodes=ALL Default=YES MaxTime=60\n"
        "PartitionName=short Nodes=n1 MaxTime=10\nSchedulerParameters=batch_sched_delay=0,bf_interval=1\n"
    )
    rows = [
        "JobID|User|Account|Partition|QOS|Submit|Start|End|ElapsedRaw|TimelimitRaw|State|ReqTRES|AllocTRES|NodeList"
    ]
    for job in range(1, 9):
        minute = f"2026-03-02T10:{job:02}"
        rows.append(
            f"{job}|u{job % 3}|a{job % 2}|{('main', 'short')[job % 2]}|normal|{minute}:00|{minute}:05|{minute}:50|45|9"
            "|COMPLETED|cpu=3,node=1|cpu=3,node=1|n1"
        )
    (dump / "sacct.txt").write_text("\n".join(rows) + "\n")
    site, jobs = import_site([dump], "UTC", Notes())
    write_site(site, Notes(), tmp_path / "site", jobs)
    return tmp_path / "site"


def run(*arguments: str) -> None:
    """Runs the command; an error is raised."""
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    assert not ended.value.code


def test_a_site_brings_platform_jobs_and_scheduler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = site_folder(tmp_path)
    monkeypatch.chdir(tmp_path)
    run("run", "site=site", "hydra.run.dir=one", "check=true")
    run("run", f"site={folder}", "hydra.run.dir=two")
    assert (tmp_path / "one" / "jobs.csv").read_bytes() == (tmp_path / "two" / "jobs.csv").read_bytes()
    with (tmp_path / "one" / "jobs.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 8
    first = {key: rows[0][key] for key in ("user", "account", "partition", "qos", "nodes", "reason", "recorded_start")}
    assert first == {
        "user": "u1",
        "account": "a1",
        "partition": "short",
        "qos": "normal",
        "nodes": "n1",
        "reason": "None",
        "recorded_start": "5.000000",
    }
    assert rows[0]["recorded_nodes"] == "n1"
    run("rerun", "one")


def test_each_rule_of_a_site_is_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site_folder(tmp_path)
    monkeypatch.chdir(tmp_path)
    composer = Composer()
    config = composer.compose(composer.overrides(["site=site", "site.partitions.short.max_time=5min"]))
    assert config["agent"]["site"]["partitions"]["short"]["max_time"] == "5min"
    run("run", "site=site", "site.partitions.short.max_time=5min", "hydra.run.dir=cut")
    text = (tmp_path / "cut" / "jobs.csv").read_text(encoding="utf-8")
    assert text.count("PartitionTimeLimit") == 4
    with pytest.raises(
        ConfigError, match=r"site\.partitions\.short\.max_tim: unknown key \(did you mean 'max_time'\?\)"
    ):
        composer.compose(composer.overrides(["site=site", "site.partitions.short.max_tim=5min"]))
    with pytest.raises(ConfigError, match=r"nowhere: expected a site, a folder with site\.yaml"):
        composer.compose(composer.overrides(["site=nowhere"]))


def test_a_site_that_has_changed_is_read_anew_in_the_same_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = site_folder(tmp_path)
    monkeypatch.chdir(tmp_path)
    limits, counts = [], []
    for limit in ("MaxTime=30", "MaxTime=90"):
        conf = tmp_path / "dump" / "slurm.conf"
        text = re.sub(r"(PartitionName=short .*?)( MaxTime=\d+)?$", rf"\1 {limit}", conf.read_text(), flags=re.M)
        conf.write_text(text)
        site, jobs = import_site([tmp_path / "dump"], "UTC", Notes())
        write_site(site, Notes(), folder, jobs)
        composer = Composer()
        config = composer.compose(composer.overrides(["site=site"]))
        limits.append(config["site"]["partitions"]["short"]["max_time"])
        counts.append(len(read_workload(config, read_platform(config))))
        rows = (tmp_path / "dump" / "sacct.txt").read_text().splitlines()
        (tmp_path / "dump" / "sacct.txt").write_text("\n".join(rows[:-2]) + "\n")
    assert limits == [30 * 60, 90 * 60]
    assert counts == [8, 6]


def test_runs_of_a_site_whose_shares_have_changed_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Associations are no keys of the configuration, so that their file is an input."""
    folder = site_folder(tmp_path)
    monkeypatch.chdir(tmp_path)
    sweep = "run", "-m", "site=site", "site.slurm.parameters.bf_interval=1", "hydra.sweep.dir=sweep"
    run(*sweep)
    run(*sweep)
    assert "1 of 1 runs finished before" in capsys.readouterr().out
    with (folder / "site.yaml").open("a", encoding="utf-8") as file:
        file.write("associations: [{account: a1, shares: 7}]\n")
    run(*sweep)
    assert re.search(r"finished with another content of .*site '.*site'; runs again", capsys.readouterr().out)


def test_the_platform_has_to_be_that_of_the_site(tmp_path: Path) -> None:
    platform = load_platform("gaia")
    workload = load_workload("lublin_4000", platform, jobs=10)
    with pytest.raises(ConfigError, match="expected the platform of the site, 2 nodes with 8 CPUs"):
        simulate(platform, workload, SlurmAgent(make_site()))


def test_priorities_and_shares_are_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = site_folder(tmp_path)
    text = (folder / "site.yaml").read_text(encoding="utf-8")
    (folder / "site.yaml").write_text(
        text + "priority: {weight_age: 1000, max_age: 1000, calculation_period: 10}\nassociations: [{account: a1}]\n",
        encoding="utf-8",
    )
    run("site", "priority", str(folder), "--at", "3")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split("|")[:4] == ["JOBID", "PARTITION", "USER", "PRIORITY"]
    assert lines[1].split("|")[:6] == ["1", "short", "u1", "1", "0", "0"]
    run("site", "priority", str(folder), "--at", "100", "--shares", "--simulated")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Account|User|RawShares|NormShares|RawUsage")
    assert [line.split("|")[0] for line in lines[1:]] == ["root", " a1"]
