"""``hdsim when``: the present of a queue, scenarios of starts, their adjustment and what is refused."""

from __future__ import annotations

import dataclasses
import json
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from test_site_beginning import random_jobs, recorded
from test_site_replay import make_site, run

from hdsim.agents.slurm import SlurmAgent
from hdsim.errors import ConfigError
from hdsim.platform.model import Platform
from hdsim.simulation.simulation import simulate
from hdsim.site.beginning import recorded_times
from hdsim.site.importing import write_site
from hdsim.site.intervals import Calibration, Samples, calibration_of, scenario_quantiles, score
from hdsim.site.model import Site
from hdsim.site.notes import Notes
from hdsim.site.plans import read_plan
from hdsim.site.platform import platform_document
from hdsim.site.runtimes import RunTimes
from hdsim.site.squeue import asked_job, jobs_of, read_squeue
from hdsim.site.workload import QUEUED, RUNNING
from hdsim.studies.starts import (
    Log,
    Present,
    as_queued,
    past_periods,
    plan_of,
    present_of,
    scenario,
    scenarios,
    with_job,
)
from hdsim.workload.model import Workload
from hdsim.workload.parquet import write_parquet

#: Monday 2026-03-02 10:00 UTC.
_NOW = 1_772_445_600.0
_WEEK = 7 * 86_400.0


def date(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def past(runtimes: list[float], limits: list[float], *, user: str = "u1", at: float = _NOW - 20 * _WEEK) -> Workload:
    """A log of jobs of a user that were submitted, started and ended long ago, each on one CPU."""
    begin = at + 10_000.0 * np.arange(len(runtimes))
    return Workload.from_columns(
        job_id=[str(number) for number in range(len(runtimes))],
        submission_time=begin - begin[0],
        original_submission_time=begin,
        runtime=runtimes,
        requested_cores=1,
        requested_time=limits,
        user=0,
        group=0,
        queue=0,
        partition=0,
        names={"user": {0: user}, "group": {0: "a1"}, "queue": {0: "normal"}, "partition": {0: "main"}},
        further={
            "recorded_start": begin,
            "recorded_end": begin + np.array(runtimes),
            "recorded_nodes": np.full(len(begin), "n1", object),
        },
    )


SQUEUE = """JOBID|USER|ACCOUNT|PARTITION|QOS|STATE|SUBMIT_TIME|START_TIME|TIME|TIME_LIMIT|NODES|CPUS|NODELIST|REASON|P
1|u1|a1|main|normal|RUNNING|2026-03-02T09:49:00|2026-03-02T09:50:00|10:00|1:00:00|2|8|n[1-2]|None|0
"""


def squeue(tmp_path: Path, text: str = SQUEUE) -> Path:
    path = tmp_path / "squeue.txt"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_job_behind_one_whose_run_time_is_known_starts_at_its_end(tmp_path: Path) -> None:
    """All jobs of the user with a limit of an hour ran for half an hour: the one of now ends in twenty minutes."""
    site = make_site()
    log = Log(site, past([1800.0] * 20, [3600.0] * 20))
    queued, now = read_squeue(squeue(tmp_path), "UTC", Notes())
    assert now == _NOW
    jobs = [*queued, asked_job("-n 8 -t 30 --uid=u2 -A a1", site, now)]
    present = Present(jobs_of(jobs, log.jobs, site, now, "squeue"), now)
    starts = scenarios(log, present, [1], 10, (0,))
    assert starts.waits.tolist() == [[1200.0]] * 10
    assert starts.reasons[0] == {"Resources": 10}
    plan, words = plan_of(log, present, [1])
    assert (plan.tolist(), words) == ([3000.0], ["Resources"])


def test_the_plan_with_requested_times_is_that_of_hdsim_plan(tmp_path: Path) -> None:
    """Jobs that begin now: a plan file whose run times are the limits has the same starts and reasons."""
    site = make_site()
    limits, cpus = [50.0, 20.0, 35.0, 15.0, 40.0, 10.0], [5, 8, 3, 4, 2, 7]
    document = site.model_dump(exclude_defaults=True) | {
        "jobs": [
            {"cpus": number, "runtime": 60 * limit, "time": 60 * limit, "user": "u1", "account": "a1"}
            for number, limit in zip(cpus, limits, strict=True)
        ]
    }
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    rules, jobs = read_plan(tmp_path / "plan.yaml")
    result = simulate(Platform.from_dict(platform_document(rules), "plan"), jobs, SlurmAgent(rules))
    log = Log(site, past([60.0], [120.0]))
    asked = [
        asked_job(f"-n {number} -t {limit:g} --uid=u1 -A a1", site, _NOW)
        for number, limit in zip(cpus, limits, strict=True)
    ]
    present = Present(jobs_of(asked, log.jobs, site, _NOW, "jobs"), _NOW)
    plan, words = plan_of(log, present, range(6))
    assert plan.tolist() == result.starting_time.tolist()
    assert words == result.columns["reason"].tolist()
    assert plan.max() > 0


def printed(log: Workload, site: Site, at: float) -> str:
    """What squeue prints of the jobs that run and wait at a moment of a log."""
    times = recorded_times(log)
    lines = ["JOBID|STATE|CPUS|USER|ACCOUNT|QOS|PARTITION|TIME_LIMIT|TIME|SUBMIT_TIME|START_TIME|NODELIST(REASON)"]
    for row in np.flatnonzero(times.runs(at) | times.waits(at)).tolist():
        runs = times.start[row] <= at
        ran = int(at - times.start[row]) if runs else 0
        seconds = int(log.requested_time[row])
        limit = f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        owner = f"{log.names['user'][int(log.user[row])]}|a1|normal|main"
        spent = f"{limit}|{ran // 60}:{ran % 60:02}"
        begun = f"{date(times.submitted[row])}|{date(times.start[row]) if runs else 'N/A'}"
        on = log.further["recorded_nodes"][row] if runs else "(Resources)"
        state = "RUNNING" if runs else "PENDING"
        lines.append(f"{log.job_id[row]}|{state}|{log.requested_cores[row]}|{owner}|{spent}|{begun}|{on}")
    return "\n".join(lines) + "\n"


def test_the_state_from_squeue_is_that_of_the_log(tmp_path: Path) -> None:
    site = make_site()
    log = recorded(site, random_jobs(site, 60, 7))
    at = 1_000_300.0
    queued, now = read_squeue(squeue(tmp_path, printed(log, site, at)), "UTC", Notes())
    assert now == at
    made = jobs_of(queued, log, site, at, "squeue")
    known, rows = present_of(Log(site, log), at)
    assert len(made) == len(rows) > 10
    assert made.job_id.tolist() == [str(job) for job in log.job_id[rows].tolist()]
    for column in ("requested_time", "requested_cores", "user", "group", "queue", "partition", "submission_time"):
        np.testing.assert_array_equal(getattr(made, column), getattr(known.jobs, column), column)
    for column in (RUNNING, QUEUED):
        np.testing.assert_array_equal(made.further[column], known.jobs.further[column], column)
    waiting = np.flatnonzero(np.isnan(known.since)).tolist()
    plans = [plan_of(Log(site, log), one, waiting) for one in (Present(made, at), known)]
    assert plans[0][0].tolist() == plans[1][0].tolist() and plans[0][1] == plans[1][1]


def test_columns_may_have_any_order_and_blanks_between_them(tmp_path: Path) -> None:
    text = (
        "NODELIST ST CPUS JOBID USER PARTITION TIME_LIMIT SUBMIT_TIME START_TIME TIME\n"
        "n1 R 4 7 u1 main 2-00:00:00 2026-03-02T08:00:00 2026-03-02T09:00:00 1:00:00\n"
        "(Priority) PD 2 8_3 u2 main UNLIMITED 2026-03-02T09:30:00 N/A 0:00\n"
        "n2 CD 2 9 u2 main 30:00 2026-03-02T09:30:00 2026-03-02T09:31:00 5:00\n"
    )
    notes = Notes()
    jobs, now = read_squeue(squeue(tmp_path, text), "UTC", notes)
    assert now == _NOW
    assert [(job.id, job.user, job.cpus, job.limit, job.nodes) for job in jobs] == [
        ("7", "u1", 4, 172_800.0, "n1"),
        ("8_3", "u2", 2, math.inf, ""),
    ]
    assert notes.left_out == {"squeue.txt": {"jobs that are CD": 1}}


def test_priorities_are_those_of_squeue(tmp_path: Path) -> None:
    """The job that squeue has with the highest priority starts first, though it came last."""
    site = make_site(priority={"type": "multifactor", "weight_age": 1000, "max_age": 86_400})
    rows = [
        f"{job}|u{1 + job % 2}|a1|main|normal|PENDING|2026-03-02T09:5{job}:00|N/A|0:00|1:00:00|1|8||Priority|{priority}"
        for job, priority in ((2, 900), (3, 500), (4, 1500))
    ]
    text = SQUEUE.replace("|P\n", "|PRIORITY\n") + "\n".join(rows) + "\n"
    jobs, now = read_squeue(squeue(tmp_path, text), "UTC", Notes())
    jobs.append(asked_job("-n 8 -t 30 --uid=u2 -A a1", site, now))
    log = Log(site, past([1800.0] * 20, [3600.0] * 20))
    present = Present(jobs_of(jobs, log.jobs, site, now, "squeue"), now)
    given = np.array([one.priority for one in jobs])
    plan, _ = plan_of(log, as_queued(log, present, given), [1, 2, 3, 4])
    # The asked job is of u2, whose only job has 500 points where its age gives about 5: it has as many more.
    assert np.argsort(plan).tolist() == [2, 0, 1, 3]
    jobs[-1] = asked_job("-n 8 -t 30 --uid=u2 -A a1 --nice=-600", site, now)
    other = Present(jobs_of(jobs, log.jobs, site, now, "squeue"), now)
    plan, _ = plan_of(log, as_queued(log, other, given), [1, 2, 3, 4])
    assert np.argsort(plan).tolist() == [2, 3, 0, 1]
    without, _ = plan_of(log, present, [1, 2, 3, 4])
    assert np.argsort(without).tolist() == [0, 1, 2, 3]


def test_run_times_are_those_of_the_most_alike_jobs_that_ran_longer() -> None:
    own = past([100.0] * 12 + [500.0] * 12, [600.0] * 12 + [1200.0] * 12)
    times = RunTimes(own, recorded_times(own))
    like = "u1", "main"
    assert set(times.of(_NOW, *like, 600.0, 1).tolist()) == {100.0}
    assert set(times.of(_NOW, *like, 1200.0, 9).tolist()) == {500.0}
    # Another limit: as parts of it; a job that has run for half of it is like those of the second kind no more.
    assert set(times.of(_NOW, *like, 2400.0, 1).tolist()) == {400.0, 1000.0}
    assert times.of(_NOW, *like, 2400.0, 1, 500.0).tolist() == [1000.0] * 12
    assert set(times.of(_NOW, "u9", "main", 60.0, 1).tolist()) == {10.0, 25.0}
    # None ran as long: all times until the limit.
    assert times.of(_NOW, *like, 2400.0, 1, 1400.0).tolist() == pytest.approx(np.linspace(1500, 2400, 10))
    # Nothing had ended then.
    assert times.of(own.original_submission_time[0], *like, 600.0, 1).tolist() == pytest.approx(np.arange(60, 601, 60))


def test_scenarios_know_nothing_of_what_came_after_the_moment() -> None:
    """A log whose future is cut off has the same scenarios, byte by byte."""
    site = make_site()
    log = recorded(site, random_jobs(site, 60, 8))
    at = 1_000_300.0
    times = recorded_times(log)
    known = log.select(times.submitted <= at)
    start, end = (np.array(known.further[name]) for name in ("recorded_start", "recorded_end"))
    runtime = np.where(end > at, 9999.0, known.runtime)
    end = np.where(start > at, np.nan, np.where(end > at, start + 9999.0, end))
    start = np.where(start > at, np.nan, start)
    further = {**known.further, "recorded_start": start, "recorded_end": end}
    blind = known.replaced(runtime=runtime)
    object.__setattr__(blind, "further", further)
    made = []
    for jobs in (log, blind):
        whole = Log(site, jobs)
        present, _ = present_of(whole, at)
        made.append(scenario(whole, present, 1000.0, np.random.default_rng(1)))
    assert made[0].runtime.tolist() == made[1].runtime.tolist()
    assert made[0].submission_time.tolist() == made[1].submission_time.tolist()


def test_the_options_of_a_job_are_those_of_sbatch() -> None:
    asked = asked_job("-J test -N 2 -n 4 -c 2 --mem=4G -t 1-12 -A a1 -q normal --gpus-per-node=2", make_site(), _NOW)
    assert asked_job("-n 4 -t 0", make_site(), _NOW).limit == math.inf
    assert (asked.cpus, asked.limit, asked.account, asked.qos, asked.partition) == (8, 129_600, "a1", "normal", "main")
    expected = {"nodes": 2, "most_nodes": 2, "per_task": 2, "memory_mib": 4096, "memory_per": "n", "gres": "gpu:2"}
    assert {key: asked.own[key] for key in expected} == expected


def test_jobs_come_as_a_week_before() -> None:
    log = Log(make_site(), past([30.0] * 15, [60.0] * 15))
    at = float(log.jobs.original_submission_time[0]) + _WEEK + 20_100.0
    asked = jobs_of([asked_job("-n 8 --uid=u2 -t 10", log.site, at)], log.jobs, log.site, at, "job")
    made = scenario(log, with_job(log, at, asked), 25_000.0, np.random.default_rng(0), [7])
    # Jobs came each 10,000 s from a week and 20,100 s before the moment on.
    assert made.submission_time.tolist() == [0.0, 9_900.0, 19_900.0]
    assert made.job_id.tolist() == ["asked", "past-3", "past-4"]
    assert made.runtime.tolist()[1:] == [30.0, 30.0]


def test_jobs_come_as_in_the_last_weeks_of_a_log_that_has_ended_before() -> None:
    """Forty days after the end of a log of eight weeks its last six are drawn, at the same time of the week."""
    log = Log(make_site(), past([30.0] * 484, [60.0] * 484))
    first, last = log.period
    at = last + 40 * 86_400.0
    length, back = past_periods(log, at)
    assert length == _WEEK and list(back) == [7, 8, 9, 10, 11, 12]
    assert all(first <= at - each * length and at - (each - 1) * length <= last + 86_400 for each in back)
    assert list(past_periods(log, last)[1]) == [1, 2, 3, 4, 5, 6]
    assert not past_periods(log, first - 1.0)[1]
    asked = jobs_of([asked_job("-n 8 --uid=u2 -t 10", log.site, at)], log.jobs, log.site, at, "job")
    for each in back:
        made = scenario(log, Present(asked, at), 86_400.0, np.random.default_rng(0), [each])
        assert len(made) in (9, 10)


def test_scenarios_take_the_past_weeks_in_turns_and_as_many_as_they_are_long(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(make_site(), past([30.0] * 484, [60.0] * 484))
    at = log.period[1]
    asked = jobs_of([asked_job("-n 8 --uid=u2 -t 10", log.site, at)], log.jobs, log.site, at, "job")
    taken: list[list[int]] = []

    def noted(*given: Any) -> Workload:
        taken.append(given[-1])
        return scenario(*given)

    monkeypatch.setattr("hdsim.studies.starts.scenario", noted)
    scenarios(log, Present(asked, at), [0], 15, (0,), 30 * 86_400.0)
    assert [len(periods) for periods in taken] == [5] * 15
    for week in zip(*taken, strict=True):
        assert sorted(week[:6]) == sorted(week[6:12]) == list(range(1, 7))
        assert len(set(week[12:])) == 3
    assert len({tuple(week) for week in zip(*taken, strict=True)}) == 5
    made = scenario(log, Present(asked, at), 30 * 86_400.0, np.random.default_rng(0), taken[0])
    assert made.submission_time[-1] > 29 * 86_400.0
    scenarios(log, Present(asked, log.period[0] - 1.0), [0], 2, (0,))
    assert taken[-2:] == [[], []]


def test_jobs_that_wait_for_a_week_come_again_whether_they_start_later_or_not() -> None:
    log = past([30.0] * 15, [60.0] * 15)
    at = float(log.original_submission_time[0]) + _WEEK + 20_100.0
    made = []
    for start in (at + 5000.0, math.nan):
        columns = {name: np.array(log.further[name]) for name in ("recorded_start", "recorded_end")}
        columns["recorded_start"][4], columns["recorded_end"][4] = start, at + 6000.0
        whole = Log(make_site(), dataclasses.replace(log, further={**log.further, **columns}))
        present = Present(jobs_of([asked_job("-n 8 --uid=u2", whole.site, at)], log, whole.site, at, "job"), at)
        made.append(scenario(whole, present, 25_000.0, np.random.default_rng(0), [7]))
    assert made[0].job_id.tolist() == made[1].job_id.tolist() == ["asked", "past-3", "past-4"]
    assert made[0].runtime.tolist() == made[1].runtime.tolist()


def test_a_calibrated_interval_has_four_fifths_of_the_waits() -> None:
    """Scenarios that are half as long as the waits, with half the spread: the interval is right after adjustment."""
    rng = np.random.default_rng(3)

    def samples(count: int) -> Samples:
        middle = rng.lognormal(9.0, 1.0, count)
        wait = 2 * middle * rng.lognormal(0.0, 0.8, count)
        spread = math.exp(0.4)
        features = np.column_stack(
            [middle / spread, middle, middle * spread, 5 * middle, np.full(count, 60.0), np.full(count, 3600.0)]
        )
        return Samples(np.arange(count) // 4, features, wait)

    calibration = calibration_of(samples(600))
    fresh = samples(4000)
    found = score("all", calibration.interval(fresh.features), fresh)
    assert 0.77 < found.coverage < 0.83
    plain = score("all", Calibration(scenario_quantiles(), (0.0, 0.0), 0).interval(fresh.features), fresh)
    assert plain.coverage < 0.4 and found.error < plain.error
    again = Calibration.of_document(json.loads(json.dumps(calibration.document())))
    assert again.interval(fresh.features).tolist() == calibration.interval(fresh.features).tolist()
    few = calibration_of(fresh.select(np.arange(60)))
    assert few.coefficients[:, 1].tolist() == [1.0, 1.0, 1.0]
    assert 0.7 < score("few", few.interval(fresh.features), fresh).coverage < 0.92


def test_the_ends_of_the_interval_are_quantiles() -> None:
    """Without anything to tell waits apart the interval is from the 10 % to the 90 % quantile."""
    waits = np.random.default_rng(1).permutation(np.arange(1.0, 2001.0)) * 100
    features = np.full((2000, 6), 3600.0)
    calibration = calibration_of(Samples(np.arange(2000), features, waits))
    assert calibration.interval(features[:1])[0] == pytest.approx([20_000, 100_000, 180_000], rel=0.02)


def folder(tmp_path: Path, jobs: int, days: float, seed: int = 2) -> Path:
    """A site folder with a recorded log of some days."""
    site = make_site()
    rng = np.random.default_rng(seed)
    at = np.sort(rng.uniform(0, days * 86_400, jobs)).round()
    runtime = rng.lognormal(9.0, 1.0, jobs).clip(60, 80_000).round()
    workload = Workload.from_columns(
        job_id=[str(1000 + number) for number in range(jobs)],
        submission_time=at - at[0],
        original_submission_time=_NOW + at,
        runtime=runtime,
        requested_cores=rng.integers(1, 9, jobs),
        requested_time=np.ceil(runtime * rng.choice([1.2, 4.0], jobs)),
        user=rng.integers(0, 2, jobs),
        group=0,
        queue=0,
        partition=0,
        names={
            "user": {0: "u1", 1: "u2"},
            "group": {0: "a1"},
            "queue": {0: "normal"},
            "partition": {0: "main"},
        },
    )
    write_site(site, Notes(), tmp_path / "lab", None)
    write_parquet(recorded(site, workload), tmp_path / "lab" / "jobs.parquet")
    return tmp_path / "lab"


@pytest.mark.ci
def test_an_answer_with_its_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    site = folder(tmp_path, 300, 33)
    job, at = "-n 8 -t 2:00:00 --uid=u1 -A a1", date(_NOW + 20.3 * 86_400)
    check = (
        "when",
        str(site),
        "--check",
        *["--weeks", "1", "--moments", "3", "--jobs", "3", "--scenarios", "3", "--days", "2"],
    )
    arguments = "when", str(site), "--at", at, "--job", job, "--scenarios", "8"
    run(*arguments)
    told = capsys.readouterr().out
    assert "median" in told and "not earlier because of" in told and "not adjusted" in told
    run(*check)
    table = capsys.readouterr().out
    assert "held out" in table and "partition main" in table and "adjustment" in table
    first = (site / "when.json").read_bytes()
    run(*check)
    assert (site / "when.json").read_bytes() == first
    capsys.readouterr()
    run(*arguments)
    adjusted = capsys.readouterr().out
    assert "partition main" in adjusted and "not adjusted" not in adjusted
    run(*arguments)
    assert capsys.readouterr().out == adjusted


def test_what_is_left_out_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A running job without a free CPU, nodes that the site lacks, and jobs in states that no one knows."""
    site = folder(tmp_path, 40, 10)
    lines = [
        line.replace("n[1-2]", nodes).replace("1|u1", f"{job}|u1", 1)
        for job, nodes in ((1, "n[1-2]"), (2, "n1"), (3, "n[7-8]"))
        for line in SQUEUE.splitlines()[1:]
    ]
    lines.append(lines[0].replace("1|u1", "4|u1", 1).replace("RUNNING", "REVOKED"))
    queue = squeue(tmp_path, "\n".join([SQUEUE.splitlines()[0], *lines, ""]))
    nodes = tmp_path / "sinfo.txt"
    nodes.write_text("STATE|NODELIST\ndown*|n[2,5-6]\nidle|n1\n", encoding="utf-8")
    arguments = "--queue", str(queue), "--nodes", str(nodes), "--job", "-n 1 -t 60 --uid=u1 -A a1", "--scenarios", "2"
    run("when", str(site), *arguments)
    told = capsys.readouterr().out
    assert "left out: 2 nodes that the site lacks: n[5-6] (sinfo.txt)" in told
    assert "left out: 1 nodes of running jobs that the site lacks (3: n[7-8])" in told
    assert "left out: 1 jobs that are REVOKED (" in told
    assert "left out: 1 jobs that run, as their nodes were full: 3" in told


def test_a_job_that_no_rule_lets_start_has_no_date(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    site, at = folder(tmp_path, 40, 10), date(_NOW + 5 * 86_400)
    arguments = "when", str(site), "--at", at, "--job", "-n 1000 -t 60 --uid=u1 -A a1", "--scenarios", "2"
    run(*arguments)
    plain = capsys.readouterr().out
    assert "median                  not within the simulated time\n" in plain and "start in over 8 d, over 8 d" in plain
    document = Calibration(scenario_quantiles(), (0.5, 0.5), 9).document()
    (site / "when.json").write_text(json.dumps({**document, "table": []}), encoding="utf-8")
    run(*arguments)
    assert "median                  not within the simulated time\n" in capsys.readouterr().out


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site folder that questions do not change, with q.txt beside it."""
    parent = tmp_path_factory.mktemp("asked")
    (parent / "q.txt").write_text(SQUEUE, encoding="utf-8")
    return folder(parent, 40, 10)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--check", "--weeks", "9"], r"expected a log of at least 20 weeks to check 9, got 1"),
        ([], "expected either --job or --check"),
        (["--job", "-n 4"], r"expected --queue FILE, or --at TIME"),
        (["--at", "soon", "--job", "-n 4"], r"--at: expected a date such as 2026-03-02T00:24:35 or .*, got 'soon'"),
        (
            ["--at", "2020-03-04T10:00:00", "--job", "-n 4"],
            r"--at: expected a moment of the log, from 2026-03-02T\S+ to 2026-03-\S+, got 2020-03-04T10:00:00",
        ),
        (["--at", "2030-03-04T10:00:00", "--job", "-n 4"], "--at: expected a moment of the log"),
        (["--at", "2026-03-04T10:00:00", "--job", "-n 4", "--days", "61"], "--days: expected at most 60 days, got 61"),
        (["--at", "2026-03-04T10:00:00", "--job", "77"], "expected a job that waits, got 77: there is none"),
        (["--queue", "no.txt", "--job", "-n 4"], r"no\.txt: expected a file: No such file"),
        (["--queue", "q.txt", "--nodes", "no.txt", "--job", "-n 4"], r"no\.txt: expected a file: No such file"),
        (["--queue", "q.txt", "--job", "1"], "expected a job that waits, got 1: it runs already"),
        (["--queue", "q.txt", "--job", "-n many"], r"--ntasks: expected a number from 1 on, got 'many'"),
        (["--queue", "q.txt", "--job", "-n 4 -t soon"], "expected a time such as 30, 1:30:00"),
        (["--queue", "q.txt", "--job", "-p man"], r"expected a partition of main, got 'man' \(did you mean 'main'\?\)"),
        (["--queue", "q.txt", "--job", "--switches=2"], r"expected options of .*, got '--switches'"),
        (["--queue", "q.txt", "--job", "-w n[1-"], r"expected a list of nodes such as n\[1-4,7\], got 'n\[1-'"),
        (["--queue", "q.txt", "--job", "-n 99999999999999999999"], "--ntasks: expected a number from 1 on"),
        (["--queue", "q.txt", "--job", "-N some"], "--nodes: expected a number such as 4 or 2-4, got 'some'"),
        (["--queue", "q.txt", "--job", "--cpus-per-gpu=x"], "--cpus-per-gpu: expected a number from 1 on, got 'x'"),
        (["--queue", "q.txt", "--job", "-y"], "expected options of .*, got '-y'"),
        (["--queue", "q.txt", "--job", "4 cores"], r"expected options such as -p main -n 16"),
    ],
)
def test_a_careless_question_is_one_line(
    asked: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    from hdsim.cli.when import when

    monkeypatch.chdir(asked.parent)
    with pytest.raises(ConfigError, match=message) as found:
        when.main([str(asked), *arguments], standalone_mode=False)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("CPUS|", "CORES|"), r"squeue\.txt: expected the columns CPUS as well, got JOBID, USER"),
        (("TIME_LIMIT|", "LIMIT|"), "expected the columns TIME_LIMIT as well"),
        (("JOBID|USER", "ID|USER"), r"expected a header with JOBID, as squeue -a -r -o "),
        (("|8|", "|x|"), r"squeue\.txt:2: CPUS: expected a number from 1 on, got \"x\""),
        (("|8|", f"|{'9' * 20}|"), "CPUS: expected a number from 1 on"),
        (("n[1-2]", "n[1-"), r"squeue\.txt:2: NODELIST: expected a list of nodes"),
        (("|8|", "|8|8|"), r"squeue\.txt:2: expected 15 columns, got 16"),
        (("1:00:00", "long"), r"squeue\.txt:2: TIME_LIMIT: expected a time"),
        (("\n1|", "\n1_[3-9]|"), r"expected a line for each task \(squeue -r\), got 1_\[3-9\]"),
        (("2026-03-02T09:49:00", "yesterday"), r"SUBMIT_TIME: expected a date such as"),
    ],
)
def test_a_damaged_queue_is_one_line(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_squeue(squeue(tmp_path, SQUEUE.replace(*change)), "UTC", Notes())


def test_a_job_that_waits_for_a_time_does_not_start_before(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    site = folder(tmp_path, 40, 10)
    lines = SQUEUE.splitlines()
    waits = "7|u1|a1|main|normal|PENDING|2026-03-02T09:50:00|2026-03-02T11:30:00|0:00|1:00:00|1|1||BeginTime|0"
    path = squeue(tmp_path, "\n".join([*lines, waits]))
    jobs, _ = read_squeue(path, "UTC", Notes())
    assert jobs[1].own["begin"] == _NOW + 5400
    for job in ("7", "-n 1 -t 60 --uid=u1 -A a1 --begin=now+90minutes"):
        run("when", str(site), "--queue", str(path), "--job", job, "--scenarios", "2")
        (plan,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("squeue --start")]
        # The next pass over all jobs is at most a minute later.
        assert "2026-03-02T11:30:" in plan
    with pytest.raises(ConfigError, match="--begin: expected a date"):
        asked_job("-n 1 --begin=later", make_site(), _NOW)


def test_constraints_that_are_not_simulated_are_told(tmp_path: Path) -> None:
    lines = SQUEUE.splitlines()
    rows = [f"{lines[0]}|FEATURES"]
    for job, nodes, text in ((2, 1, "[a|b]"), (3, 2, "[a|b]"), (4, 2, "a*2"), (5, 1, "(null)")):
        cells = lines[1].replace("RUNNING", "PENDING").replace("n[1-2]", "").split("|")
        cells[0], cells[10] = str(job), str(nodes)
        rows.append("|".join([*cells, text]))
    notes, path = Notes(), squeue(tmp_path, "\n".join(rows))
    jobs, _ = read_squeue(path, "UTC", notes)
    assert [job.own.get("constraints") for job in jobs] == ["(a|b)", None, None, None]
    assert sum(notes.left_out["squeue.txt"].values()) == 2


def test_a_job_whose_qos_reserves_nothing_has_no_planned_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site, at = folder(tmp_path, 40, 10), date(_NOW + 5 * 86_400)
    asked = "when", str(site), "--at", at, "--job", "-n 8 -t 60 --uid=u1 -A a1", "--scenarios", "2"
    run(*asked)
    assert "N/A" not in capsys.readouterr().out
    file = site / "site.yaml"
    file.write_text(file.read_text().replace("normal: {}", "normal: {flags: [NoReserve]}"))
    run(*asked)
    assert "squeue --start          N/A (NoReserve); " in capsys.readouterr().out


def test_a_damaged_adjustment_is_one_line(tmp_path: Path) -> None:
    from hdsim.cli.when import when

    site, good = folder(tmp_path, 40, 10), Calibration(scenario_quantiles(), (0.0, 0.0), 0).document()
    for text, message in (
        ("{", "expected JSON as 'hdsim when SITE --check' writes"),
        ("[]", "expected a table and an adjustment"),
        ('{"table": []}', "expected coefficients, margins and waits"),
        (json.dumps({**good, "waits": math.inf, "table": []}), "expected coefficients, margins and waits"),
        (json.dumps({**good, "margins": [math.nan, 0.0], "table": []}), "expected coefficients, margins and waits"),
        (json.dumps({**good, "table": [1]}), "expected a table"),
        (json.dumps({**good, "table": [{"name": "all", "waits": 1, "coverage": "x"}]}), "expected a table"),
    ):
        (site / "when.json").write_text(text, encoding="utf-8")
        arguments: list[Any] = [str(site), "--at", date(_NOW + 5 * 86_400), "--job", "-n 4 -t 60", "--scenarios", "2"]
        with pytest.raises(ConfigError, match=message):
            when.main(arguments, standalone_mode=False)
