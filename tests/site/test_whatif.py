"""``hdsim whatif``: changes of a site, agreement with the record, tables and page."""

from __future__ import annotations

import csv
import math
import re
from pathlib import Path

import numpy as np
import pytest
from test_site_replay import make_site, run, site_folder

import hdsim
from hdsim.cli.whatif import _in_reservations
from hdsim.errors import ConfigError
from hdsim.report.whatif import calibration_text
from hdsim.site.accounts import accounts_of
from hdsim.site.changes import changed
from hdsim.site.model import load_site
from hdsim.site.usage import read_usage
from hdsim.site.waits import Calibration, calibrate


def test_changes_are_keys_of_the_site_in_short_words() -> None:
    site = changed(
        make_site(),
        [
            "partition.main.max_time=24h",
            "qos.normal.priority=7",
            "slurm.bf_max_job_test=9",
            "slurm.type=builtin",
            "qos.normal.limits.grp_tres.cpu=3",
        ],
    )
    assert site.partitions["main"].max_time == 86_400
    assert site.qos["normal"].priority == 7
    assert site.slurm.parameters["bf_max_job_test"] == 9
    assert site.slurm.type == "builtin"
    assert site.qos["normal"].limits.grp_tres == {"cpu": 3}


def test_nodes_come_and_go_with_their_partitions() -> None:
    parts = {"main": {"nodes": "ALL", "default": True}, "two": {"nodes": "n[1-2]"}, "one": {"nodes": "n1"}}
    more = changed(make_site(partitions=parts), ["nodes.n+=3"])
    assert more.nodes["n"].nodes == "n[1-5]"
    assert {name: part.nodes for name, part in more.partitions.items()} == {"main": "ALL", "two": "n[1-5]", "one": "n1"}
    less = changed(more, ["nodes.n-=4"])
    assert {name: part.nodes for name, part in less.partitions.items()} == {"main": "ALL", "two": "n1", "one": "n1"}


def test_a_reservation_is_added() -> None:
    site = changed(make_site(), ["reserve=n[1-2],start=2026-03-09T08:00:00,duration=7d,accounts=a1:a2"])
    made = site.reservations["reserved1"]
    assert (made.nodes, made.end - made.start, made.accounts) == ("n[1-2]", 7 * 86_400, ["a1", "a2"])
    listed = changed(make_site(), ["reserve=n1,n2,start=2026-03-09T08:00:00,duration=7d"])
    assert listed.reservations["reserved1"].nodes == "n1,n2"


def test_dates_of_a_site_have_offsets_and_no_hour_that_the_clock_passes_over() -> None:
    site = make_site(time_zone="Europe/Berlin")

    def start(text: str) -> float:
        return changed(site, [f"reserve=n1,start={text},duration=1h"]).reservations["reserved1"].start

    noon = start("2026-03-28T12:00:00")
    assert noon == start("2026-03-28T11:00:00Z") == start("2026-03-28T14:00:00+03:00") == start(str(int(noon)))
    assert start("20260328") == noon - 12 * 3600
    assert start("2026-10-25T02:30") == start("2026-10-25T02:30:00+02:00")
    with pytest.raises(ConfigError, match="expected a local time, got '2026-03-29T02:30:00', which the clock passed"):
        start("2026-03-29T02:30:00")
    with pytest.raises(ConfigError, match="expected a date of this millennium, got '0001-01-01'"):
        start("0001-01-01")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("max_time", r"expected a change such as partition\.long\.max_time=24h or nodes\.gpu\+=20, got 'max_time'"),
        (
            "partition.man.max_time=3",
            r"partition\.man\.max_time=3: partitions: expected one of main, got 'man'.*'main'",
        ),
        ("partition.main.max_tim=3", r"expected one of .*, got 'max_tim' \(did you mean 'max_time'\?\)"),
        ("partition.main.max_time=soon", r"expected seconds, 24h, 2-12:00:00 or UNLIMITED"),
        ("nodes.gpu+=2", r"nodes\.gpu\+=2: expected a number of nodes of nodes\.n"),
        ("nodes.n-=2", r"expected at most 1 nodes to remove, got 2"),
        ("reserve=n1,start=tomorrow,duration=7d", r"expected a date such as 2026-03-02T00:24:35 or .*, got 'tomorrow'"),
        ("qos.normal.limits.max_jobs=3", r"expected slurm\.enforce=\[limits\] as well, as the site enforces no limits"),
        ("reserve=n1,begin=3", r"expected reserve=NODES,start="),
        ("reserve=n1,start=2026-03-09,duration=7d,users=ann,ben", r"expected reserve=NODES,start=.*users=A:B"),
        ("reserve=n1,start=2026-03-09,duration=7d,start=2026-03-10", r"expected reserve=NODES,start="),
    ],
)
def test_a_wrong_change_is_one_line(change: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        changed(make_site(slurm={}), [change])


def test_words_that_yaml_takes_for_numbers_of_logic_are_words() -> None:
    changes = ["partition.main.oversubscribe=NO", "partition.main.preempt_mode=OFF", "slurm.enforce_part_limits=YES"]
    site = changed(make_site(slurm={}), changes)
    assert (site.partitions["main"].oversubscribe, site.partitions["main"].preempt_mode) == ("NO", "OFF")
    assert site.slurm.enforce_part_limits == "YES"
    assert changed(site, ["partition.main.oversubscribe=YES", "preemption.mode=OFF"]).preemption.mode == "OFF"


def test_a_limit_may_come_with_its_enforcement() -> None:
    site = changed(make_site(slurm={}), ["qos.normal.limits.max_jobs=3", "slurm.enforce=[limits]"])
    assert site.qos["normal"].limits.max_jobs == 3 and site.slurm.enforces_limits


def test_the_calibration_is_the_ratio_of_means_and_the_error_of_weeks() -> None:
    recorded = np.array([100.0, 100.0, 200.0, 400.0, math.nan])
    simulated = np.array([120.0, 120.0, 264.0, 456.0, 5.0])
    found = calibrate({"week": ["a", "a", "b", "c", "c"]}, recorded, simulated)
    # The ratio is 1.2; of what is left weeks b and c differ by 10 % and 5 %.
    assert found == Calibration(
        pytest.approx(1.2),
        pytest.approx(0.05),
        pytest.approx(0.1),
        3,
        "weeks",  # type: ignore[arg-type]
    )
    assert found.band(240.0) == pytest.approx((200 / 1.05, 210.0))


def test_waits_that_the_replay_does_not_explain_are_not_scaled() -> None:
    recorded, weeks = np.full(6, 3600.0), {"week": ["a", "a", "b", "b", "c", "c"]}
    for simulated, explains in ((710.0, False), (720.0, True), (18_000.0, True), (18_100.0, False)):
        found = calibrate(weeks, recorded, np.full(6, simulated))
        assert found is not None and found.explains == explains
        assert math.isnan(found.band(10.0)[0]) != explains
        assert ("does not explain" in calibration_text(found)) != explains


def test_waits_before_and_after_are_printed_and_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    site_folder(tmp_path)
    monkeypatch.chdir(tmp_path)
    run("whatif", "site")
    told = capsys.readouterr().out
    assert told.startswith("lab: 8 jobs\ncalibration: simulated over recorded mean wait")
    assert "short" in told and "sim./rec." in told
    run("whatif", "site", "partition.short.max_time=5min", "--html", "answer.html")
    told = capsys.readouterr().out
    assert "never run after the changes: 4 PartitionTimeLimit" in told
    run("whatif", "site", "partition.short.max_time=1min", "partition.main.max_time=1min")
    assert "mean wait: of no job, as none runs before and after the changes\n" in capsys.readouterr().out
    page = (tmp_path / "answer.html").read_text(encoding="utf-8")
    assert "partition.short.max_time=5min" in page and "Partitions" in page


def test_a_reservation_is_for_known_users_and_for_accounts_with_those_below_them() -> None:
    site = make_site(associations=[{"account": "chem"}, {"account": "lab", "parent": "chem"}, {"account": "bio"}])
    jobs = hdsim.Workload.from_columns(
        submission_time=[0.0, 10.0, 20.0],
        original_submission_time=[_FIRST, _FIRST + 10.0, _FIRST + 20.0],
        runtime=[5.0] * 3,
        requested_cores=[1] * 3,
        user=[1, 2, 3],
        group=[1, 2, 3],
        names={"user": {1: "ada", 2: "bob", 3: "eve"}, "group": {1: "lab", 2: "bio", 3: "chem"}},
    )
    text = f"reserve=n1,start={_FIRST},duration=1h,name=mine"
    for who, own in (("accounts=chem", [0, 2]), ("users=bob", [1]), ("users=bob,accounts=lab", [0, 1])):
        asked = _in_reservations(jobs, site, changed(site, [f"{text},{who}"])).further["reservation"]
        assert np.flatnonzero(asked == "mine").tolist() == own, who
    for who in ("users=bobb", "accounts=chemie"):
        with pytest.raises(ConfigError, match=r"reservation mine: (user|account)s: expected .* got .* \(did you mean"):
            _in_reservations(jobs, site, changed(site, [f"{text},{who}"]))


@pytest.mark.parametrize(
    ("limit", "change", "lost", "row"),
    [
        (60, "20min", "never run after the changes: 2 PartitionTimeLimit", "45 min 2 s 44 min 58 s 4 min 58 s -89%"),
        (20, "1h", "run only after the changes: 2 (in no mean)", "45 min 2 s 4 min 58 s 44 min 58 s +804%"),
        (60, "2h", "", "37 min 32 s 37 min 28 s 37 min 28 s +0%"),
    ],
)
def test_means_before_and_after_are_of_the_same_jobs(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    limit: int,
    change: str,
    lost: str,
    row: str,
) -> None:
    """A limit that keeps long jobs out must not look like shorter waits, nor a wider one like longer waits."""
    dump = tmp_path / "dump"
    dump.mkdir()
    (dump / "slurm.conf").write_text(
        f"ClusterName=lab\nNodeName=n1 CPUs=4\nPartitionName=main Nodes=ALL Default=YES MaxTime={limit}\n"
        "SchedulerParameters=batch_sched_delay=0,bf_interval=1\n"
    )
    lines = ["JobID|User|Account|Submit|Start|End|ElapsedRaw|TimelimitRaw|State|ReqTRES|AllocTRES|NodeList"]
    begin = 0
    for job, minutes in enumerate((10, 40, 40, 10), 1):
        end, tres = begin + 60 * minutes, "cpu=4,node=1"
        times = "|".join(str(_FIRST + seconds) for seconds in (job, begin + 4, end + 4))
        lines.append(f"{job}|u|a|{times}|{end - begin}|{minutes}|COMPLETED|{tres}|{tres}|n1")
        begin = end
    (dump / "sacct.txt").write_text("\n".join(lines) + "\n")
    monkeypatch.chdir(tmp_path)
    run("site", "import", "dump", "-o", "site")
    capsys.readouterr()
    run("whatif", "site", f"partition.main.max_time={change}")
    told, bars = capsys.readouterr()
    assert lost in told and "replay:" not in bars
    (found,) = (line for line in told.splitlines() if line.startswith("main "))
    assert " ".join(found.split()) == f"main 4 {row} -"


#: Seconds from 1970 to 2026-03-02T10:00:00 in UTC.
_FIRST = 1_772_445_600


def recorded_folder(tmp_path: Path) -> Path:
    """A site whose recorded starts and nodes are those of its replay, which has a queue all the time."""
    dump = tmp_path / "dump"
    dump.mkdir()
    (dump / "slurm.conf").write_text(
        "ClusterName=lab\nNodeName=n[1-2] CPUs=4\nPartitionName=main Nodes=ALL Default=YES MaxTime=60\n"
        "SchedulerParameters=batch_sched_delay=0,bf_interval=1\nPriorityType=priority/multifactor\n"
        "PriorityWeightFairshare=1000\n"
    )
    (dump / "assoc.txt").write_text(
        "Account|User|Share|ParentName\nroot||1|\na1||1|root\na2||3|root\na1|u0||\na1|u1||\na2|u2||\n"
    )
    rng = np.random.default_rng(7)
    rows = list(zip(range(1, 61), rng.integers(1, 9, 60), rng.integers(60, 400, 60), strict=True))
    starts, nodes = {str(job): _FIRST + 60 * job for job, _, _ in rows}, {str(job): "n1" for job, _, _ in rows}
    for folder in ("dummy", "site"):
        lines = ["JobID|User|Account|QOS|Submit|Start|End|ElapsedRaw|TimelimitRaw|State|ReqTRES|AllocTRES|NodeList"]
        for job, cpus, seconds in rows:
            start, tres = starts[str(job)], f"cpu={cpus},node={1 + (cpus > 4)}"
            times = f"{_FIRST + 60 * job}|{start}|{start + seconds}|{seconds}"
            lines.append(
                f"{job}|u{job % 3}|a{1 + (job % 3) // 2}|normal|{times}|10|COMPLETED|{tres}|{tres}|{nodes[str(job)]}"
            )
        (dump / "sacct.txt").write_text("\n".join(lines) + "\n")
        run("site", "import", str(dump), "-o", folder)
        if folder == "dummy":
            run("run", "site=dummy", "hydra.run.dir=first")
            with Path("first/jobs.csv").open(encoding="utf-8", newline="") as file:
                for row in csv.DictReader(file):
                    starts[row["job_id"]] = _FIRST + 60 + round(float(row["starting_time"]))
                    nodes[row["job_id"]] = row["nodes"]
    return tmp_path / "site"


def test_a_replay_from_the_midst_of_a_log_goes_on_as_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = recorded_folder(tmp_path)
    capsys.readouterr()
    run("whatif", str(folder), "--from", "2026-03-02T10:31:00")
    told = capsys.readouterr().out
    begin = next(line for line in told.splitlines() if line.startswith("begin: "))
    found = re.fullmatch(
        r"begin: 2026-03-02T10:31:00 with (\d+) jobs that run \(left out of means\) and (\d+) that wait; "
        r"usage of the log before",
        begin,
    )
    assert found and int(found[1]) > 1 and int(found[2]) > 3
    assert "simulated over recorded mean wait 1.00" in told
    run("whatif", str(folder), "--to", str(_FIRST + 3000))
    told = capsys.readouterr().out
    assert "begin: with the first job, an empty machine and no usage" in told
    assert "lab: 49 jobs" in told
    first = re.search(r"; --from (\S+) begins with the jobs that ran then", told)
    assert first
    run("whatif", str(folder), "--from", first[1])
    assert re.search(r"begin: \S+ with [1-9]\d* jobs that run", capsys.readouterr().out)


def test_usage_is_read_as_sshare_prints_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = recorded_folder(tmp_path)
    capsys.readouterr()
    run("site", "priority", str(folder), "--at", "2400", "--shares")
    printed = capsys.readouterr().out
    (tmp_path / "usage.txt").write_text(printed)
    site = load_site(folder)
    used = read_usage(tmp_path / "usage.txt", site).billing
    rows = [line.split("|") for line in printed.splitlines()[1:]]
    by_name = {(row[0].strip(), row[1]): float(row[4]) for row in rows}
    assert used.tolist() == [by_name[one.account, one.user] for one in accounts_of(site).rows]
    assert used[0] > 0 and used[0] == pytest.approx(used[1:].sum() / 2, abs=3)
    for text, message in (
        ("Account|User\na1|u1\n", "expected the columns Account, User and RawUsage"),
        ("Account|User|RawUsage\na1|u1|much\n", r"usage\.txt:2: RawUsage: expected a number, got 'much'"),
        ("Account|User|RawUsage\nx|y|3\n", "expected accounts and users of the site, got none of them"),
    ):
        (tmp_path / "usage.txt").write_text(text)
        with pytest.raises(ConfigError, match=message):
            read_usage(tmp_path / "usage.txt", site)


def test_what_a_begin_leaves_out_is_told(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Running jobs on nodes that are full, those that are requeued, and limits of what was used."""
    monkeypatch.chdir(tmp_path)
    dump = tmp_path / "dump"
    dump.mkdir()
    (dump / "slurm.conf").write_text(
        "ClusterName=lab\nNodeName=n[1-2] CPUs=4\nPartitionName=main Nodes=ALL Default=YES MaxTime=60\n"
        "PartitionName=first Nodes=n2 PriorityTier=2 PreemptMode=OFF\nPreemptType=preempt/partition_prio\n"
        "PreemptMode=REQUEUE\nSchedulerParameters=batch_sched_delay=0,bf_interval=1\n"
        "PriorityType=priority/multifactor\nAccountingStorageEnforce=limits\n"
    )
    (dump / "assoc.txt").write_text(
        "Account|User|Share|ParentName|GrpTRESMins\nroot||1||\na1||1|root|cpu=9999\na1|u1|1||\na1|u2|1||\n"
    )
    lines = [
        "JobID|User|Account|Partition|QOS|Submit|Start|End|ElapsedRaw|TimelimitRaw|State|ReqTRES|AllocTRES|NodeList"
    ]
    for job, (partition, submit, node) in enumerate(
        [("main", 0, 1), ("main", 0, 1), ("main", 0, 2), ("first", 90, 2)], 1
    ):
        times = f"{_FIRST + submit}|{_FIRST + submit}|{_FIRST + submit + 600}|600"
        lines.append(f"{job}|u1|a1|{partition}|normal|{times}|30|COMPLETED|cpu=4,node=1|cpu=4,node=1|n{node}")
    (dump / "sacct.txt").write_text("\n".join(lines) + "\n")
    run("site", "import", str(dump), "-o", "lab")
    capsys.readouterr()
    (tmp_path / "usage.txt").write_text("Account|User|RawUsage\nroot||70\n a1||70\n a1|u1|70\n")
    run("whatif", "lab", "--from", "2026-03-02T10:01:00", "--usage", "usage.txt")
    begin = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("begin: "))
    assert begin.endswith(
        "usage as in usage.txt, of GrpTRESMins and GrpWall that of the log before; left out as their nodes were full: "
        "1 that ran; requeued, for the run time left to them only: 1 that ran"
    )
    run("whatif", "lab", "--from", "2026-03-02T10:01:00", "preemption.type=none")
    begin = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("begin: "))
    assert begin.endswith("only: 1 that ran; with the changes left out as their nodes were full: 1 that ran")
    message = "usage.txt: 1 of 4 accounts and users of the site are not in it, such as a1 u2; they count as unused"
    assert message in [record.getMessage() for record in caplog.records]


def test_usage_before_the_begin_counts_where_a_change_brings_fair_shares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    dump = tmp_path / "dump"
    dump.mkdir()
    (dump / "slurm.conf").write_text(
        "ClusterName=lab\nNodeName=n1 CPUs=4\nPartitionName=main Nodes=ALL Default=YES MaxTime=60\n"
        "SchedulerParameters=batch_sched_delay=0,bf_interval=1\nPriorityType=priority/basic\n"
    )
    (dump / "assoc.txt").write_text("Account|User|Share\nroot||1\na1||1\na1|u1|1\na2||1\na2|u2|1\n")
    lines = ["JobID|User|Account|QOS|Submit|Start|End|ElapsedRaw|TimelimitRaw|State|ReqTRES|AllocTRES|NodeList"]
    for job, (user, submit, start) in enumerate([(1, 0, 0), (1, 10, 400), (2, 20, 800)], 1):
        times = f"{_FIRST + submit}|{_FIRST + start}|{_FIRST + start + 400}|400"
        lines.append(f"{job}|u{user}|a{user}|normal|{times}|30|COMPLETED|cpu=4,node=1|cpu=4,node=1|n1")
    (dump / "sacct.txt").write_text("\n".join(lines) + "\n")
    run("site", "import", str(dump), "-o", "lab")
    capsys.readouterr()
    run("whatif", "lab", "--from", "2026-03-02T10:05:00")
    assert "2 that wait; usage does not count" in capsys.readouterr().out
    run(
        "whatif", "lab", "--from", "2026-03-02T10:05:00", "priority.type=multifactor", "priority.weight_fair_share=1000"
    )
    told = capsys.readouterr().out
    assert "2 that wait; usage of the log before" in told
    # The account that has used nothing is first now.
    waits = {line.split()[0]: line for line in told.splitlines() if line.startswith(("a1 ", "a2 "))}
    assert "13 min 10 s   +103%" in waits["a1"] and "6 min 20 s    -51%" in waits["a2"]
