"""The reference implementation against published numbers, recorded runs of other systems and hand-drawn schedules."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace as changed
from pathlib import Path
from typing import Any

import pytest
import reference as ref
import rlscheduler

STRICT_FCFS = (12_482_549, 2_388_443.7601, 66_502.4755)
STRICT_SJF = (11_359_058, 275_304.2226, 53.5435)
EASY = (8_730_698, 97_155.9945, 590.0538)


def _job(submit: float, runtime: float, cores: int, requested: float | None = None, **rest: Any) -> ref.Job:
    return ref.Job(submit, runtime, cores, runtime if requested is None else requested, **rest)


@pytest.fixture(scope="module")
def lublin(shared_data: Path) -> list[ref.Job]:
    return ref.read_swf(shared_data / "traces" / "lublin_256.swf")


# Hand-drawn schedules


def test_a_job_waits_for_memory_and_takes_the_fastest_cores() -> None:
    platform = ref.Platform([ref.Processor(0, 2, 1.0, 10.0), ref.Processor(1, 2, 3.0, 20.0)], [100.0, 100.0])
    jobs = [_job(0, 6, 1, memory=60), _job(0, 6, 2, memory=60), _job(0, 6, 1, memory=60)]
    outcome = ref.replay(platform, jobs, "first", "high_gflops")
    assert [outcome.runs[job].cores for job in range(3)] == [[2], [0, 2], [2]]
    # The reference speed is 2, so a job runs for 6 x 2/3 s on node 1 and for 6 x 2/1 s if it has a core of node 0.
    assert [(outcome.runs[job].start, outcome.runs[job].finish) for job in range(3)] == [(0, 4), (4, 16), (16, 20)]
    # Node 0: from 4 to 16 one core works and one idles, before and after both sleep. Node 1: one works, one idles.
    assert outcome.energy == pytest.approx(10 * (0.1 * 8 + 1.25 * 12) + 20 * 1.25 * 20, rel=1e-12)


def test_oversubscribed_bandwidth_slows_all_cores_of_a_processor() -> None:
    platform = ref.Platform([ref.Processor(0, 2, 1.0, 10.0, bandwidth=10.0)], [math.inf])
    jobs = [_job(0, 6, 1, bandwidth=6), _job(2, 3, 1, bandwidth=6)]
    outcome = ref.replay(platform, jobs, "first", "high_gflops", threshold=True)
    # Both run at 75 %: job 1 ends at 2 + 3 / 0.75 = 6, when job 0 has 6 - 2 - 3 = 1 s of work left.
    assert (outcome.runs[1].finish, outcome.runs[0].finish) == (6, 7)
    assert outcome.oversubscribed == [(0, 2, 6)]


def test_walltime_kills() -> None:
    platform = ref.Platform([ref.Processor(0, 1, 1.0, 10.0)], [math.inf])
    jobs = [_job(0, 6, 1, walltime=4), _job(0, 3, 1, walltime=3.5), _job(0, 1, 1, walltime=1)]
    jobs.append(changed(jobs[-1], fixed=True))
    outcome = ref.replay(platform, jobs, "first", "high_gflops", kill_at_walltime=True)
    ends = [(outcome.runs[job].finish, outcome.runs[job].killed) for job in range(4)]
    assert ends == [(4, True), (7, False), (8, False), (9, True)]


# Published numbers


@pytest.mark.parametrize(
    ("scheduler", "order", "published"),
    [(ref.strict, "fcfs", STRICT_FCFS), (ref.strict, "sjf", STRICT_SJF), (ref.easy, "fcfs", EASY)],
    ids=["fcfs", "sjf", "easy"],
)
def test_lublin_256(
    lublin: list[ref.Job], scheduler: ref.Scheduler, order: str, published: tuple[float, float, float]
) -> None:
    makespan, wait, slowdown = ref.metrics(lublin, ref.replay_counts(lublin, 256, scheduler, ref.SCORES[order]))
    assert (makespan, round(wait, 4), round(slowdown, 4)) == published


SCORES: dict[str, ref.Score] = {
    **ref.SCORES,
    "unicef_serial_first": lambda job, wait: -wait / ((math.log2(job.cores) + 1e-15) * job.requested),
    "wfp3-bug": lambda job, wait: ref.SCORES["wfp3"](job, rlscheduler.NOT_STARTED - job.origin),
    "unicef-bug": lambda job, wait: (
        -(rlscheduler.NOT_STARTED - job.origin + 1e-15) / (math.log2(job.cores + 1e-15) * job.requested)
    ),
}


@pytest.mark.parametrize("backfill", [False, True], ids=["none", "backfill"])
@pytest.mark.parametrize("order", rlscheduler.PUBLISHED)
def test_rlscheduler_table(lublin: list[ref.Job], order: str, backfill: bool) -> None:
    slowdowns = []
    for first in rlscheduler.WINDOWS:
        jobs = ref.window(lublin, first, rlscheduler.LENGTH)
        starts = ref.replay_rlscheduler(jobs, rlscheduler.PROCESSORS, SCORES[order], backfill=backfill)
        slowdowns.append(ref.metrics(jobs, starts)[2])
    assert round(sum(slowdowns) / len(slowdowns), 2) == rlscheduler.PUBLISHED[order][backfill]


# Recorded runs


@pytest.mark.parametrize(
    "run",
    [
        "learning_shortest-high_gflops",
        "learning_shortest-high_mem_bw",
        "learning_shortest-low_power",
        pytest.param("gaia_div20_first-high_gflops", marks=pytest.mark.nightly),
        pytest.param("gaia_div20_shortest-high_mem_bw", marks=pytest.mark.nightly),
    ],
)
def test_batsim_runs_of_policy_pairs(shared_data: Path, run: str) -> None:
    folder = shared_data / "batsim_runs" / run
    platform, jobs, outcome = ref.batsim_run(shared_data, run)
    rows = ref.read_table(folder / "out_jobs.csv.gz")
    assert len(rows) == len(outcome.runs) == len(jobs)
    for row in rows:
        done = outcome.runs[int(row["job_id"])]
        assert ref.core_ids(row["allocated_resources"]) == done.cores
        # Compared as Batsim prints them, with six decimals; the last term is the rounding of the comparison itself.
        assert abs(round(done.start, 6) - float(row["starting_time"])) <= 2e-6 + 1e-9
        assert abs(round(done.finish, 6) - float(row["finish_time"])) <= 2e-6 + 1e-9
        energy = outcome.job_energy(done.job, platform, decimals=3)
        assert energy == pytest.approx(float(row["consumed_energy"]), rel=1e-6, abs=1e-4)
    reported = float(ref.read_table(folder / "out_schedule.csv")[0]["consumed_joules"])
    assert ref.reported_energy(platform, outcome) == pytest.approx(reported, rel=1e-9)


@pytest.mark.parametrize(
    ("run", "scheduler", "estimate"),
    [
        ("lublin1000-fcfsNoTopo", ref.strict, lambda runtime: runtime),
        ("lublin1000-easyNotopo-wt1", ref.easy, lambda runtime: runtime + 1),
        ("lublin1000-easyNotopo-wt2x", ref.easy, lambda runtime: 2 * runtime),
    ],
)
def test_batsim_runs_of_textbook_schedulers(
    shared_data: Path,
    lublin: list[ref.Job],
    run: str,
    scheduler: ref.Scheduler,
    estimate: Callable[[float], float],
) -> None:
    """Batsim tells its scheduler of one event at a time, so that is how it must be replayed."""
    jobs = [changed(job, requested=estimate(job.runtime)) for job in lublin[:1000]]
    starts = ref.replay_counts(jobs, 256, scheduler, batch=False)
    recorded = {
        int(row["job_id"]): float(row["starting_time"]) - lublin[0].origin
        for row in ref.read_table(shared_data / "batsim_runs" / run / "out_jobs.csv.gz")
    }
    assert dict(enumerate(starts, 1)) == recorded


def test_batching_the_events_of_an_instant_moves_the_mean_wait_of_easy(lublin: list[ref.Job]) -> None:
    jobs = [changed(job, requested=job.runtime + 1) for job in lublin[:1000]]
    waits = [ref.metrics(jobs, ref.replay_counts(jobs, 256, ref.easy, batch=batch))[1] for batch in (True, False)]
    assert [round(wait, 3) for wait in waits] == [11045.205, 11049.083]


@pytest.mark.parametrize("latency", [0.0, 2.0], ids=["none", "launch_and_teardown"])
def test_real_cluster_runs(shared_data: Path, latency: float) -> None:
    def starts_of(jobs: list[ref.Job], _: Path) -> list[float]:
        return ref.replay_counts(jobs, 32, ref.conservative)

    assert ref.within_published_errors(ref.errors_against_real_runs(shared_data, starts_of, latency), latency)
