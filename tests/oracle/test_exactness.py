"""The engine against published numbers, recorded runs of other systems and the reference implementation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import reference as ref
import rlscheduler
from tiers import ALL, ci, nightly

from hdsim import Platform, load_platform, load_workload, simulate
from hdsim.agents.classic import ClassicAgent
from hdsim.platform import power
from hdsim.results.result import Result
from hdsim.workload.generators import lublin
from hdsim.workload.model import Workload


@pytest.fixture(scope="module")
def cluster() -> Platform:
    return Platform.homogeneous(nodes=64, cores_per_node=4, gflops_per_core=10.0)


@pytest.fixture(scope="module")
def lublin_256(shared_data: Path, cluster: Platform) -> Workload:
    return load_workload(shared_data / "traces" / "lublin_256.swf", platform=cluster)


@pytest.fixture(scope="module")
def lublin_jobs(shared_data: Path) -> list[ref.Job]:
    return ref.read_swf(shared_data / "traces" / "lublin_256.swf")


# The 10,000 jobs of lublin_256


@pytest.mark.parametrize(
    ("agent", "published"),
    [
        ("fcfs", (12_482_549, 2_388_443.7601, 66_502.4755)),
        ("sjf", (11_359_058, 275_304.2226, 53.5435)),
        ("easy", (8_730_698, 97_155.9945, 590.0538)),
    ],
)
def test_lublin_256(cluster: Platform, lublin_256: Workload, agent: str, published: tuple[float, ...]) -> None:
    metrics = simulate(cluster, lublin_256, agent).metrics
    assert (
        metrics["makespan"],
        round(metrics["mean_waiting_time"], 4),
        round(metrics["mean_bounded_slowdown"], 4),
    ) == published


@pytest.mark.parametrize(
    ("agent", "scheduler", "order"),
    [("fcfs", ref.strict, "fcfs"), ("sjf", ref.strict, "sjf"), ("easy", ref.easy, "fcfs")],
)
def test_lublin_256_job_by_job(
    cluster: Platform,
    lublin_256: Workload,
    lublin_jobs: list[ref.Job],
    agent: str,
    scheduler: ref.Scheduler,
    order: str,
) -> None:
    starts = ref.replay_counts(lublin_jobs, 256, scheduler, ref.SCORES[order])
    assert simulate(cluster, lublin_256, agent).starting_time.tolist() == starts


@pytest.mark.parametrize("backfill", ["none", "rlscheduler"])
@pytest.mark.parametrize("order", rlscheduler.PUBLISHED)
def test_rlscheduler_table(cluster: Platform, lublin_256: Workload, order: str, backfill: str) -> None:
    slowdowns = []
    for first in rlscheduler.WINDOWS:
        agent = ClassicAgent(order, commit_head=True, backfill=backfill)
        result = simulate(cluster, lublin_256[first : first + rlscheduler.LENGTH], agent, batch_events=False)
        slowdowns.append(result.metrics["mean_bounded_slowdown"])
    published = rlscheduler.PUBLISHED[order][backfill == "rlscheduler"]
    assert round(sum(slowdowns) / len(slowdowns), 2) == published


# Runs recorded with Batsim


@pytest.mark.parametrize(
    "run",
    [
        "learning_shortest-high_gflops",
        "gaia_div20_first-high_gflops",
        *nightly("learning_shortest-high_mem_bw", "learning_shortest-low_power", "gaia_div20_shortest-high_mem_bw"),
    ],
)
def test_batsim_runs_of_policy_pairs(shared_data: Path, run: str) -> None:
    folder, hdeeprm = shared_data / "batsim_runs" / run, shared_data / "hdeeprm"
    name, _, pair = run.replace("_div20", "").partition("_")
    platform = load_platform(hdeeprm / "platforms" / f"{name}.json", types=hdeeprm / "types")
    workload = load_workload(folder / "workload.json.gz", platform=platform)
    result = simulate(platform, workload, pair, contention="threshold", check=True)
    rows = {int(row["job_id"]): row for row in ref.read_table(folder / "out_jobs.csv.gz")}
    recorded = [rows[job] for job in workload.job_id.tolist()]
    assert len(rows) == len(workload)

    assert result.jobs["allocated_resources"].tolist() == [row["allocated_resources"] for row in recorded]
    for column in ("starting_time", "finish_time"):
        expected = np.array([float(row[column]) for row in recorded])
        # Compared as Batsim prints them, with six decimals; the last term is the rounding of the comparison itself.
        assert np.abs(result.jobs[column].round(6) - expected).max() <= 2e-6 + 1e-9
    own, _, outcome = ref.batsim_run(shared_data, run)
    assert result.metrics["energy_joules"] == pytest.approx(outcome.energy, rel=1e-12)
    expected = np.array([outcome.job_energy(job, own) for job in range(len(workload))])
    assert result.jobs["consumed_energy"] == pytest.approx(expected, rel=1e-9)

    reported = float(ref.read_table(folder / "out_schedule.csv")[0]["consumed_joules"])
    assert _reported_by_batsim(result) == pytest.approx(reported, rel=1e-9)


def _reported_by_batsim(result: Result) -> float:
    """Energy in the watts of the platform's XML, which has three decimals, plus the artefact term."""
    platform, ran = result.platform, result.segments
    held = ran.usage
    computing, active = power.busy_seconds(platform, ran.held, ran.begin, ran.end)
    cores = platform.cores_per_processor
    seconds = {
        power.COMPUTING: computing,
        power.IDLE: cores * active - computing,
        power.IDLE_PACKAGE: cores * (result.end_time - active),
    }
    energy = sum(float(np.round(platform.power * power.PSTATES[p].power, 3) @ seconds[p]) for p in seconds)
    first_start = np.full(platform.n_processors, np.inf)
    np.minimum.at(first_start, held.processor, ran.begin[held.segment])
    instants = np.concatenate([result.workload.submission_time, result.finish_time])
    first_query = float(instants[instants > 0].min())
    # SimGrid's energy plugin counts a core at the power of P-state 0 until its first change of state after time 0, or
    # until the energy of all cores is read.
    gap = (power.PSTATES[power.COMPUTING].power - power.PSTATES[power.IDLE_PACKAGE].power) * platform.power
    return energy + float((gap * np.minimum(first_start, first_query)) @ cores)


@pytest.mark.parametrize(
    ("run", "agent", "factor", "margin", "changed_by_batching"),
    [
        ("lublin1000-fcfsNoTopo", "fcfs", 1, 0, 0),
        ("lublin1000-easyNotopo-wt1", "easy", 1, 1, 7),
        ("lublin1000-easyNotopo-wt2x", "easy", 2, 0, 0),
    ],
)
def test_batsim_runs_of_textbook_schedulers(
    shared_data: Path,
    cluster: Platform,
    lublin_256: Workload,
    run: str,
    agent: str,
    factor: float,
    margin: float,
    changed_by_batching: int,
) -> None:
    """Batsim tells its scheduler of one event at a time; hdsim does by default of all events of an instant together."""
    part = lublin_256[:1000]
    workload = part.replaced(requested_time=factor * part.runtime + margin)
    rows = ref.read_table(shared_data / "batsim_runs" / run / "out_jobs.csv.gz")
    recorded = {int(row["job_id"]): float(row["starting_time"]) for row in rows}
    expected = np.array([recorded[job] for job in workload.job_id.tolist()]) - workload.original_submission_time[0]
    singly = simulate(cluster, workload, agent, batch_events=False).starting_time
    assert singly.tolist() == expected.tolist()
    batched = simulate(cluster, workload, agent).starting_time
    assert np.count_nonzero(batched != expected) == changed_by_batching


def test_batching_the_events_of_an_instant_moves_the_mean_wait_of_easy(cluster: Platform, lublin_256: Workload) -> None:
    part = lublin_256[:1000]
    workload = part.replaced(requested_time=part.runtime + 1)
    waits = [
        simulate(cluster, workload, "easy", batch_events=batch).metrics["mean_waiting_time"] for batch in (True, False)
    ]
    assert waits == pytest.approx([11_045.205, 11_049.083], abs=1e-9)


# Real runs of a cluster


@pytest.mark.parametrize("latency", [0.0, 2.0], ids=["none", "launch_and_teardown"])
def test_real_cluster_runs(shared_data: Path, latency: float) -> None:
    platform = Platform.homogeneous(nodes=32, cores_per_node=1)

    def starts_of(jobs: list[ref.Job], path: Path) -> Sequence[float]:
        workload = load_workload(path, platform=platform)
        workload = workload.replaced(runtime=workload.runtime + latency)
        starts: list[float] = simulate(platform, workload, "conservative").starting_time.tolist()
        assert starts == ref.replay_counts(jobs, 32, ref.conservative)
        return starts

    assert ref.within_published_errors(ref.errors_against_real_runs(shared_data, starts_of, latency), latency)


# Generated traces, which need no other data


GENERATED = {
    "fcfs": (ref.strict, "fcfs"),
    "lcfs": (ref.strict, "lcfs"),
    "sjf": (ref.strict, "sjf"),
    "ljf": (ref.strict, "ljf"),
    "smallest": (ref.strict, "smallest"),
    "largest": (ref.strict, "largest"),
    "saf": (ref.strict, "saf"),
    "laf": (ref.strict, "laf"),
    "wfp3": (ref.strict, "wfp3"),
    "unicef": (ref.strict, "unicef"),
    "f1": (ref.strict, "f1"),
    "f2": (ref.strict, "f2"),
    "f3": (ref.strict, "f3"),
    "f4": (ref.strict, "f4"),
    "easy": (ref.easy, "fcfs"),
    "easy-sjf": (ref.easy, "sjf"),
    "easy-saf": (ref.easy, "saf"),
    "easy-wfp3": (ref.easy, "wfp3"),
    "conservative": (ref.conservative, "fcfs"),
}


@pytest.mark.parametrize("estimates", ["none", *nightly("tsafrir")])
@pytest.mark.parametrize(
    "agent", [name if name in ("sjf", "wfp3", "easy-saf", "conservative") else nightly(name)[0] for name in GENERATED]
)
@pytest.mark.ci
def test_generated_trace_job_by_job(cluster: Platform, agent: str, estimates: str) -> None:
    """Everything arrives three times as fast as the model has it, so that queues are long."""
    scheduler, order = GENERATED[agent]
    jobs = (200 if agent == "conservative" else 2000) // (1 if ALL else 2)
    workload = lublin.generate(2000, seed=11, cores=256, estimates=estimates, arrival_factor=1 / 3)[:jobs]
    starts = ref.replay_counts(ref.jobs_of(workload), 256, scheduler, ref.SCORES[order], dynamic=order in ref.DYNAMIC)
    result = simulate(cluster, workload, agent)
    assert result.starting_time.tolist() == starts
    assert simulate(cluster, workload, agent, check=True).starting_time.tolist() == starts


def test_easy_with_candidates_by_length(cluster: Platform) -> None:
    workload = lublin.generate(2000, seed=12, cores=256, estimates="tsafrir", arrival_factor=1 / 3)
    jobs = ref.jobs_of(workload)

    def scheduler(machine: ref.Machine, all_jobs: Sequence[ref.Job]) -> list[int]:
        return ref.easy(machine, all_jobs, candidates=lambda job: (all_jobs[job].requested, job))

    starts = ref.replay_counts(jobs, 256, scheduler)
    assert simulate(cluster, workload, "easy-sjbf").starting_time.tolist() == starts


@pytest.mark.parametrize(
    "pair",
    [
        "first-high_mem_bw",
        "shortest-pack",
        *nightly("shortest-high_cores", "low_mem_bw-high_mem", "low_mem-low_power", "first-spread"),
    ],
)
@pytest.mark.parametrize("contention", ["threshold", *ci("none")])
def test_policy_pairs_on_a_shipped_platform(root: Path, pair: str, contention: str) -> None:
    path = root / "platforms" / "teaching.json"
    platform, own = load_platform(path), ref.read_platform(path)
    workload = lublin.generate(400, seed=13, cores=platform.n_cores, memory=(500, 1000, 2000), arrival_factor=1 / 4)
    rng = np.random.default_rng(14)
    workload = workload.replaced(
        # Odd run times, so that no two jobs end together but by a rounding, which would be anyone's guess.
        runtime=workload.runtime * rng.uniform(0.9, 1.1, len(workload)),
        memory_bandwidth=rng.choice([2.0, 4.0, 8.0], len(workload)),
    )
    result = simulate(platform, workload, pair, contention=contention, check=True)
    outcome = ref.replay(own, ref.jobs_of(workload), *pair.split("-"), threshold=contention == "threshold")
    runs = [outcome.runs[job] for job in range(len(workload))]
    assert list(map(ref.core_ids, result.jobs["allocated_resources"])) == [run.cores for run in runs]
    assert result.starting_time == pytest.approx([run.start for run in runs], rel=1e-12)
    assert result.finish_time == pytest.approx([run.finish for run in runs], rel=1e-12)
    assert result.metrics["energy_joules"] == pytest.approx(outcome.energy, rel=1e-10)
    if contention == "threshold":
        spans = np.array(sorted(zip(*(column.tolist() for column in result.oversubscribed), strict=True)))
        assert len(spans) > 10, "the workload must contend for bandwidth"
        assert spans == pytest.approx(np.array(outcome.oversubscribed), rel=1e-12)
