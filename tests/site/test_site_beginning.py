"""Replays that begin with jobs that run and wait: they go on as the one that began before."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
import re
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_site_replay import SUSPENDING, make_site

from hdsim.agents.slurm import SlurmAgent
from hdsim.cli import main
from hdsim.errors import ConfigError, WorkloadError
from hdsim.platform.model import Platform
from hdsim.results.result import Result
from hdsim.simulation.simulation import simulate
from hdsim.site.accounts import Used
from hdsim.site.beginning import jobs_from, recorded_nodes, recorded_times, resume, running_at_begin
from hdsim.site.formats import expand_nodes
from hdsim.site.held import held_at
from hdsim.site.importing import write_site
from hdsim.site.jobs_table import jobs_table
from hdsim.site.model import Site
from hdsim.site.notes import Notes
from hdsim.site.platform import platform_document
from hdsim.site.replaying import recorded_state
from hdsim.site.scheduler import SlurmScheduler
from hdsim.site.usage import RecordedUsage, part_of_log
from hdsim.site.workload import columns_of
from hdsim.workload.model import Workload
from hdsim.workload.parquet import write_parquet

_FIRST = 1_000_000.0


def random_jobs(site: Site, jobs: int, seed: int) -> Workload:
    """Jobs of two users on a site, submitted at whole seconds from `_FIRST` on."""
    rng = np.random.default_rng(seed)
    at = np.sort(rng.integers(0, 8 * jobs, jobs)).astype(float)
    runtime = rng.integers(20, 200, jobs).astype(float)
    return Workload.from_columns(
        submission_time=at,
        original_submission_time=_FIRST + at,
        runtime=runtime,
        requested_cores=rng.integers(1, 9, jobs),
        requested_time=runtime * rng.integers(1, 4, jobs),
        user=rng.integers(0, 2, jobs),
        group=0,
        queue=0,
        partition=0,
        names={
            "user": {0: "u1", 1: "u2"},
            "group": {0: "a1"},
            "queue": dict(enumerate(site.qos)),
            "partition": dict(enumerate(site.partitions)),
        },
    )


def replayed(site: Site, jobs: Workload, usage: Any = None) -> Result:
    platform = Platform.from_dict(platform_document(site), "test")
    return simulate(platform, dataclasses.replace(jobs, used=usage), SlurmAgent(site), check=True)


def recorded(site: Site, jobs: Workload) -> Workload:
    """Jobs with the starts, ends and nodes of their replay as recorded ones."""
    result = replayed(site, jobs)
    first = float(jobs.original_submission_time[0])
    own = {
        "recorded_start": first + result.starting_time,
        "recorded_end": first + result.finish_time,
        "recorded_nodes": result.columns["nodes"],
    }
    return dataclasses.replace(jobs, further={**jobs.further, **own})


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("whole", [True, False])
def test_a_replay_from_a_moment_on_goes_on_as_the_whole_one(seed: int, *, whole: bool) -> None:
    site = make_site(partitions={"main": {"nodes": "ALL", "default": True, "oversubscribe": "EXCLUSIVE"}})
    site = site if whole else make_site()
    log = recorded(site, random_jobs(site, 60, seed))
    start = log.further["recorded_start"]
    for at in (_FIRST + 300.5, _FIRST + 600.5):
        rest = jobs_from(log, at)
        there = len(log) - len(rest)
        assert (~np.isnan(rest.further["running_since"])).any() and (~np.isnan(rest.further["queued_since"])).sum() > 2
        found = replayed(site, rest).starting_time + at
        expected = start[np.isin(log.job_id, rest.job_id)]
        later = expected > at
        assert there > 0 and later.sum() > 10
        assert np.abs(found - expected)[later].max() <= 1.0  # passes are made at whole seconds


def test_a_running_job_ends_at_its_limit_in_the_plans_of_others() -> None:
    """A job for half an hour that has run for 20 minutes leaves its nodes 10 minutes later at the latest."""
    site = make_site()
    site.slurm.parameters |= {"batch_sched_delay": 0, "bf_interval": 1}
    jobs = Workload.from_columns(
        job_id=["old", "wide", "short", "long"],
        submission_time=[0.0, 1200.0, 1201.0, 1202.0],
        original_submission_time=[_FIRST, _FIRST + 1200, _FIRST + 1201, _FIRST + 1202],
        runtime=[1500.0, 60.0, 590.0, 600.0],
        requested_cores=[4, 8, 4, 4],
        requested_time=[1800.0, 60.0, 590.0, 700.0],
        user=0,
        group=0,
        queue=0,
        partition=0,
        names={"user": {0: "u1"}, "group": {0: "a1"}, "queue": {0: "normal"}, "partition": {0: "main"}},
        further={
            "recorded_start": np.array([_FIRST, math.nan, math.nan, math.nan]),
            "recorded_end": np.array([_FIRST + 1500, math.nan, math.nan, math.nan]),
            "recorded_nodes": np.array(["n2", None, None, None], object),
        },
    )
    rest = jobs_from(jobs, _FIRST + 1199.0)
    assert rest.runtime.tolist() == [301.0, 60.0, 590.0, 600.0]
    result = replayed(site, rest)
    # The wide job may wait until 1800 as far as the scheduler knows: the short one fits before that on n1, the long one
    # does not, and the wide one starts when the short one has ended.
    assert result.columns["nodes"].tolist()[0] == "n2"
    assert [round(start) for start in result.starting_time.tolist()] == [0, 592, 2, 652]


def tiers(site: Site, jobs: list[tuple[float, float, int, str]]) -> Workload:
    """A log of jobs of partitions: submission, run time, CPUs and partition of each."""
    at, runtime, cpus, partition = zip(*jobs, strict=True)
    names = list(site.partitions)
    given = Workload.from_columns(
        submission_time=at,
        original_submission_time=_FIRST + np.array(at),
        runtime=runtime,
        requested_cores=cpus,
        requested_time=2 * np.array(runtime),
        user=0,
        group=0,
        queue=0,
        partition=[names.index(name) for name in partition],
        names={"user": {0: "u1"}, "group": {0: "a1"}, "queue": {0: "normal"}, "partition": dict(enumerate(names))},
    )
    return recorded(site, given)


def test_jobs_that_stand_still_at_the_begin_go_on_on_their_nodes(caplog: pytest.LogCaptureFixture) -> None:
    """At 13 s the first job has stood still for 3 of its 30 s, as much of it as of its time from start to end."""
    site = make_site(**SUSPENDING)
    log = tiers(site, [(0.0, 100.0, 8, "lo"), (10.0, 30.0, 2, "hi"), (12.0, 20.0, 1, "lo"), (15.0, 20.0, 2, "hi")])
    expected = log.further["recorded_end"] - _FIRST
    assert expected.tolist() == [130, 40, 150, 35]
    result = replayed(site, jobs_from(log, _FIRST + 13.0))
    assert (result.finish_time + 13.0).tolist() == expected.tolist()
    assert result.columns["nodes"].tolist() == log.further["recorded_nodes"].tolist()
    assert list(result.columns["suspended"]) == [27.0, 0.0, 0.0, 0.0]
    assert "1 of 2 jobs that run at the begin were suspended" in caplog.text


def test_jobs_stand_still_for_one_that_stands_still_itself_at_the_begin() -> None:
    mid = {"nodes": "ALL", "priority_tier": 2, "oversubscribe": "FORCE:1"}
    parts = SUSPENDING["partitions"] | {"mid": mid, "hi": SUSPENDING["partitions"]["hi"] | {"priority_tier": 3}}
    site = make_site(**SUSPENDING | {"partitions": parts})
    log = tiers(site, [(0.0, 100.0, 8, "lo"), (10.0, 50.0, 8, "mid"), (20.0, 20.0, 4, "hi")])
    assert (log.further["recorded_end"] - _FIRST).tolist() == [170, 80, 40]
    result = replayed(site, jobs_from(log, _FIRST + 30.0))
    # Of the run times 140/170 and 50/70 are left.
    assert result.finish_time.tolist() == [10 + 36 + 82, 10 + 36, 10]
    assert list(result.columns["suspended"]) == [46.0, 10.0, 0.0]


def test_time_in_which_a_job_stands_still_counts_as_usage() -> None:
    """As slurmctld 22.05 has it, which counted 4007 CPU-seconds of 8 CPUs after 300 s of work and 201 s without."""
    weights = {"type": "multifactor", "weight_fair_share": 1000, "calculation_period": 10, "decay_half_life": 0}
    site = make_site(**SUSPENDING, priority=weights)
    log = tiers(site, [(0.0, 100.0, 8, "lo"), (10.0, 30.0, 2, "hi")])
    agent = SlurmAgent(site)
    result = simulate(Platform.from_dict(platform_document(site), "test"), log, agent)
    assert result.finish_time.tolist() == [130, 40]
    multifactor = agent.state_at(140.0).multifactor
    recorded_usage = RecordedUsage(site, log).at(_FIRST + 140.0)
    assert multifactor is not None and recorded_usage is not None
    assert multifactor.fair_share.shares.usage[0] == recorded_usage.billing[0] == 8 * 130 + 2 * 30


@pytest.mark.parametrize("nodes", ["n[1-2]", "", "n9"])
def test_running_jobs_without_known_nodes_are_on_some_that_suffice(nodes: str) -> None:
    site = make_site()
    jobs = Workload.from_columns(
        submission_time=[0.0, 0.0, 100.0],
        original_submission_time=[_FIRST, _FIRST, _FIRST + 100],
        runtime=[500.0, 300.0, 10.0],
        requested_cores=[5, 3, 8],
        requested_time=600.0,
        user=0,
        group=0,
        queue=0,
        partition=0,
        names={"user": {0: "u1"}, "group": {0: "a1"}, "queue": {0: "normal"}, "partition": {0: "main"}},
        further={
            "recorded_start": np.array([_FIRST, _FIRST, math.nan]),
            "recorded_end": np.array([_FIRST + 500, _FIRST + 300, math.nan]),
            "recorded_nodes": np.array([nodes, nodes, None], object),
        },
    )
    result = replayed(site, jobs_from(jobs, _FIRST + 50.0))
    assert result.finish_time.tolist()[:2] == [450.0, 250.0]
    assert result.starting_time.tolist() == [0.0, 0.0, 450.0]


def test_jobs_that_wait_at_the_begin_keep_their_age_beside_dependencies_of_the_past() -> None:
    """The age of a job counts from its dependency on, and a job whose dependency has failed does not run."""
    priority = {"type": "multifactor", "weight_age": 1000, "max_age": 10_000, "calculation_period": 60}
    site = make_site(priority=priority)
    names = ["good", "bad", "wide", "after good", "after bad", "young"]
    at = np.array([0.0, 0.0, 10.0, 20.0, 20.0, 150.0])
    jobs = Workload.from_columns(
        job_id=["1", "2", "3", "4", "5", "6"],
        submission_time=at,
        original_submission_time=_FIRST + at,
        runtime=[100.0, 100.0, 1000.0, 100.0, 100.0, 100.0],
        requested_cores=[4, 4, 8, 8, 8, 8],
        requested_time=2000.0,
        return_code=[0, 1, 0, 0, 0, 0],
        user=0,
        group=0,
        queue=0,
        partition=0,
        executable=np.arange(6),
        names={
            "user": {0: "u1"},
            "group": {0: "a1"},
            "queue": {0: "normal"},
            "partition": {0: "main"},
            "executable": dict(enumerate(names)),
        },
        further={
            "recorded_start": _FIRST + np.array([0.0, 0.0, 100.0, 1100.0, math.nan, 1200.0]),
            "recorded_end": _FIRST + np.array([100.0, 100.0, 1100.0, 1200.0, 9000.0, 1300.0]),
            "recorded_nodes": np.array(["n1", "n2", "n[1-2]", "n[1-2]", None, "n[1-2]"], object),
            "eligible": _FIRST + np.array([0.0, 0.0, 10.0, 100.0, 20.0, 150.0]),
            "dependency": np.array([None, None, None, "afterok:1", "afterok:2", None], object),
        },
    )
    rest = jobs_from(jobs, _FIRST + 300.0)
    assert rest.job_id.tolist() == ["3", "4", "6"]
    assert [round(start) for start in replayed(site, rest).starting_time.tolist()] == [0, 800, 900]


def test_the_usage_of_accounts_is_that_of_the_recorded_runs() -> None:
    weights = {"type": "multifactor", "weight_fair_share": 1000, "calculation_period": 60, "decay_half_life": 3600}
    site = make_site(priority=weights)
    log = recorded(site, random_jobs(site, 60, 4))
    at = float(np.nanmax(log.further["recorded_end"])) - log.original_submission_time[0] + 10.0
    state = recorded_state(site, log, at)
    assert state.multifactor is not None
    share = state.multifactor.fair_share
    used = RecordedUsage(site, log).at(state.multifactor.calculated)
    assert used is not None and used.billing.min() > 0
    np.testing.assert_allclose(used.billing, share.shares.usage, rtol=0.02)


def test_a_replay_with_earlier_usage_goes_on_as_the_whole_one() -> None:
    weights = {"type": "multifactor", "weight_fair_share": 1000, "calculation_period": 60, "decay_half_life": 0}
    site = make_site(priority=weights)
    log = recorded(site, random_jobs(site, 60, 5))
    at = _FIRST + 240.0
    rest = jobs_from(log, at)
    expected = log.further["recorded_start"][np.isin(log.job_id, rest.job_id)]
    usage = RecordedUsage(site, log).at(at)
    later = expected > at + 1

    def error(start: Any) -> float:
        return float(np.abs(start + at - expected)[later].mean())

    with_usage, without = (error(replayed(site, rest, given).starting_time) for given in (usage, None))
    assert with_usage < 1.0 < without


@pytest.mark.parametrize("flags", [[], ["NoDecay"]])
def test_limits_of_what_was_used_count_it_from_the_log_before(flags: list[str]) -> None:
    """The QOS may use 40 CPU-minutes and the account run for 30 minutes, of which a part is used at the begin."""
    weights = {"type": "multifactor", "weight_fair_share": 1, "calculation_period": 10, "decay_half_life": 600}
    limits = {"grp_tres_mins": {"cpu": 40}}
    site = make_site(
        priority=weights, qos={"limits": limits, "flags": flags, "usage_factor": 0.5}, account_limits={"grp_wall": 1800}
    )
    log = recorded(site, random_jobs(site, 60, 6))
    at = _FIRST + 240.0
    rest = jobs_from(log, at)
    used = RecordedUsage(site, log).at(at)
    state = recorded_state(site, log, 240.0)
    assert used is not None
    for key, seconds in used.minutes.items():
        assert seconds == pytest.approx(state.limits.quotas.spent[state.limits.meters[key]], rel=0.03) and seconds > 0
    expected = log.further["recorded_start"][np.isin(log.job_id, rest.job_id)]

    def error(given: Used) -> float:
        found = replayed(site, rest, given).starting_time + at
        never = np.isnan(found) != np.isnan(expected)
        return float(np.nanmean(np.where(never, 1000.0, np.abs(found - expected))[~(expected <= at + 1)]))

    assert 3.0 * error(used) < error(Used(used.billing))


def status_of(*arguments: str) -> Any:
    """Status with which a command ends."""
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return ended.value.code


def test_a_run_begins_in_the_midst_of_a_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The keys of a run begin it as `part_of_log` does, which `hdsim whatif --from` takes."""
    monkeypatch.chdir(tmp_path)
    weights = {"type": "multifactor", "weight_fair_share": 1000, "calculation_period": 60}
    site = make_site(priority=weights)
    log = recorded(site, random_jobs(site, 60, 5))
    write_site(site, Notes(), tmp_path / "lab", None)
    write_parquet(log, tmp_path / "lab" / "jobs.parquet")
    begin = datetime.fromtimestamp(_FIRST + 240.0, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    part = part_of_log(site, log, begin, None, None)
    expected = replayed(site, part, part.used)
    there = int((~np.isnan(part.further["queued_since"])).sum())
    assert status_of("run", "site=lab", f"site.replay.begin={begin}", "hydra.run.dir=run") == 0
    with (tmp_path / "run" / "jobs.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["starting_time"]) for row in rows] == expected.starting_time.tolist()
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    waits = (expected.starting_time - expected.workload.submission_time)[there:]
    assert 0 < there < len(rows) and metrics["mean_waiting_time"] == pytest.approx(waits.mean())
    end = datetime.fromtimestamp(_FIRST + 300.0, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    keys = f"site.replay.begin={begin}", f"site.replay.end={end}"
    sweep = "site.slurm.parameters.bf_interval=1,60", "hydra.sweep.dir=s"
    assert status_of("run", "-m", "site=lab", *keys, *sweep) == 0
    assert len(list((tmp_path / "s").glob("*/jobs.csv"))) == 2


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (["site.replay.begin=soon"], r"site\.replay\.begin: expected"),
        (["site.replay.begin=2030-01-01"], "expected jobs that run, wait or come after the begin, got none"),
        (["site.replay.end=1970-01-02"], r"site\.replay\.end: expected a time after the first submission"),
        (["site.replay.usage=no.txt"], r"no\.txt: expected a file"),
        (["site.replay.begin=1970-01-12T14:00:00", "agent=easy"], r"site\.replay\.begin: expected agent=slurm"),
    ],
)
def test_a_careless_part_of_a_log_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], keys: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    site = make_site()
    write_site(site, Notes(), tmp_path / "lab", None)
    write_parquet(recorded(site, random_jobs(site, 20, 5)), tmp_path / "lab" / "jobs.parquet")
    assert status_of("run", "site=lab", *keys, "hydra.run.dir=run") == 2
    told = capsys.readouterr().err
    assert re.search(message, told) and "Traceback" not in told


def test_usage_of_other_associations_is_refused() -> None:
    site = make_site(priority={"type": "multifactor", "weight_fair_share": 1000})
    with pytest.raises(ConfigError, match="expected usage of 4 associations with root, got 9; no change"):
        replayed(site, random_jobs(site, 5, 1), Used(np.zeros(9)))


def test_a_log_without_recorded_starts_has_no_state() -> None:
    with pytest.raises(WorkloadError, match=r"expected recorded starts, as jobs\.parquet"):
        jobs_from(random_jobs(make_site(), 5, 1), _FIRST)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_running_jobs_have_all_of_their_cpus_on_all_of_their_nodes(seed: int) -> None:
    """As they had in the log, which only has the nodes, from what was before; from the nodes alone some lack CPUs."""
    site = make_site(nodes={"n": {"nodes": "n[1-6]", "cpus": 4, "cores_per_socket": 4, "memory": 1000}})
    jobs = random_jobs(site, 150, seed)
    log = recorded(site, jobs.replaced(requested_cores=np.random.default_rng(seed).integers(1, 12, 150)))
    times, names = recorded_times(log), recorded_nodes(log)
    lacking, several = 0, 0
    for at in _FIRST + np.arange(200.5, 1000.0, 100.0):
        held = held_at(site, log, times, at)
        runs = np.flatnonzero(times.runs(at)).tolist()
        assert sorted(held) == runs
        used: Counter[str] = Counter()
        for row in runs:
            assert sum(held[row]) == log.requested_cores[row] and min(held[row]) > 0
            used.update(dict(zip(expand_nodes(names[row]), held[row], strict=True)))
            several += len(held[row]) > 1
        assert max(used.values()) <= 4
        rest = jobs_from(log, at)
        scheduler = SlurmScheduler(site, jobs_table(columns_of(rest), site, "log"), at)
        began, left = resume(scheduler, running_at_begin(rest))
        lacking += len(left) + sum(sum(one.cpus) < rest.requested_cores[one.job] for one in began)
    assert several > 20 and lacking > 0


def test_without_recorded_nodes_nothing_is_known_of_cpus_on_nodes() -> None:
    site = make_site()
    log = recorded(site, random_jobs(site, 20, 1))
    further = {key: column for key, column in log.further.items() if key != "recorded_nodes"}
    log = dataclasses.replace(log, further=further)
    assert held_at(site, log, recorded_times(log), _FIRST + 100.5) == {}
