"""Node failures: closed forms, cases by hand, an obvious second replay, invariants, and what users can get wrong."""

from __future__ import annotations

import gzip
import itertools
import json
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference as ref
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from tiers import ci, examples, nightly

import hdsim
from hdsim import Platform, Workload, simulate
from hdsim.errors import ConfigError, DecisionError
from hdsim.failures import Exponential, Failures, Outage, Outages, Trace, Weibull
from hdsim.report.panels import panels
from hdsim.results import metrics, series
from hdsim.results.result import Result
from hdsim.results.run_directory.directory import RunDirectory
from hdsim.results.run_directory.reader import read as read_run
from hdsim.simulation.setup import make_model
from hdsim.workload.batsim_json import jobs_of

CONFIDENCE = 0.999


class Listed(Failures):
    """Outages given one by one."""

    def __init__(self, platform: Platform, outages: Sequence[tuple[int, float, float]], **recovery: Any) -> None:
        super().__init__(platform, **recovery)
        self._rows = sorted(outages, key=lambda row: row[1:])

    def outages(self, rng: np.random.Generator) -> Sequence[Any]:
        nodes = range(self.platform.n_nodes)
        return [iter([(down, up) for at, down, up in self._rows if at == node]) for node in nodes]


def listed(*outages: tuple[int, float, float], **recovery: Any) -> dict[str, Any]:
    """The setting `failures` of given outages."""
    return {"_target_": "test_failures.Listed", "outages": list(outages), **recovery}


def drawn(model: str = "Exponential", **keys: Any) -> dict[str, Any]:
    """The setting `failures` of random outages."""
    return {"_target_": f"hdsim.failures.{model}", **keys}


def in_interval(samples: Any, expected: float, width: float = 0.2) -> None:
    """Asserts that the expected value is in the confidence interval of the samples' mean."""
    mean, error = float(np.mean(samples)), float(stats.sem(samples))
    half = stats.t.ppf((1 + CONFIDENCE) / 2, len(samples) - 1) * error
    assert abs(mean - expected) < half, f"expected {expected:.4f} within {mean:.4f} +- {half:.4f}"
    assert half < width * expected, "too wide an interval to say anything"


def one_node(cores: int = 2) -> Platform:
    return Platform.homogeneous(nodes=1, cores_per_node=cores)


def one_job(runtime: float = 100.0, cores: int = 2, **columns: Any) -> Workload:
    return Workload.from_columns(submission_time=[0], runtime=[runtime], requested_cores=[cores], **columns)


# Closed forms


@pytest.mark.parametrize(("mtbf", "mttr", "shape"), [(100, 25, 1.0), (50, 10, 0.7), (20, 0.5, 2.0)])
def test_availability_of_drawn_outages(mtbf: float, mttr: float, shape: float) -> None:
    platform = Platform.homogeneous(nodes=300, cores_per_node=1)
    model = Weibull(platform, mtbf, mttr, shape) if shape != 1 else Exponential(platform, mtbf, mttr)
    horizon = 200 * (mtbf + mttr)
    outages = Outages.of(
        [
            (node, *outage)
            for node, coming in enumerate(model.outages(np.random.default_rng(3)))
            for outage in itertools.takewhile(lambda outage: outage[0] < horizon, coming)
        ]
    )
    # From the first tenth on, by when it does not matter any more that all nodes were up and new at 0.
    begin = horizon / 10
    down = outages.seconds(300, horizon) - outages.seconds(300, begin)
    in_interval(1 - down / (horizon - begin), mtbf / (mtbf + mttr), 0.01)


@pytest.mark.parametrize("shape", [0.7, 1.0, 3.0])
def test_times_between_failures_have_their_distribution(shape: float) -> None:
    platform = Platform.homogeneous(nodes=4, cores_per_node=1)
    up, repair = [], []
    for coming in Weibull(platform, "1h", "2min", shape).outages(np.random.default_rng(5)):
        since = 0.0
        for down, back in itertools.islice(coming, 500):
            up.append(down - since)
            repair.append(back - down)
            since = back
    scale = 3600 / math.gamma(1 + 1 / shape)
    assert stats.kstest(up, stats.weibull_min(shape, scale=scale).cdf).pvalue > 0.001
    assert stats.kstest(repair, stats.expon(scale=120).cdf).pvalue > 0.001
    in_interval(up, 3600)


def test_availability_of_a_replay() -> None:
    platform = Platform.homogeneous(nodes=50, cores_per_node=1)
    workload = Workload.from_columns(
        submission_time=np.arange(500) * 100.0, runtime=[10.0] * 500, requested_cores=[1] * 500
    )
    found = [
        simulate(platform, workload, failures=drawn(mtbf=1000, mttr=250), seed=seed).metrics["availability"]
        for seed in range(8)
    ]
    in_interval(found, 0.8, 0.02)


@pytest.mark.parametrize(
    ("length", "mtbf", "mttr"), [(50.0, 100.0, 30.0), *nightly((150.0, 100.0, 10.0), (80.0, 100.0, 0.0))]
)
@pytest.mark.ci
def test_expected_completion_with_restarts(length: float, mtbf: float, mttr: float) -> None:
    """(e^(L/mtbf) - 1) (mtbf + mttr), as every start finds the node up and exponential times have no memory."""
    jobs = 4000
    workload = Workload.from_columns(submission_time=[0.0] * jobs, runtime=[length] * jobs, requested_cores=[2] * jobs)
    result = simulate(one_node(), workload, failures=drawn(mtbf=mtbf, mttr=mttr, max_restarts=None), seed=11)
    took = np.diff(result.finish_time, prepend=0.0)
    in_interval(took, (math.exp(length / mtbf) - 1) * (mtbf + mttr))
    in_interval(result.jobs["restarts"], math.exp(length / mtbf) - 1)
    # Lost are the starts that failed, of which each took mtbf - L / (e^(L/mtbf) - 1) on average.
    lost = mtbf * (math.exp(length / mtbf) - 1) - length
    in_interval(result.jobs["lost_core_seconds"] / 2, lost)


def test_expected_completion_with_checkpoints() -> None:
    """With a checkpoint after every c s a job is L / c jobs of c s."""
    jobs, mtbf, mttr = 1500, 100.0, 20.0
    workload = Workload.from_columns(submission_time=[0.0] * jobs, runtime=[200.0] * jobs, requested_cores=[1] * jobs)
    failures = drawn(mtbf=mtbf, mttr=mttr, recovery="checkpoint", checkpoint_interval=50, max_restarts=None)
    result = simulate(one_node(1), workload, failures=failures, seed=2)
    in_interval(np.diff(result.finish_time, prepend=0.0), 4 * (math.exp(50 / mtbf) - 1) * (mtbf + mttr))


# By hand


def test_one_job_and_one_outage() -> None:
    platform = Platform.homogeneous(nodes=2, cores_per_node=2, power_per_core=100.0)
    result = simulate(platform, one_job(), failures=listed((0, 30, 40)), check=True)
    # The job goes on the other node at once.
    assert result.starting_time.tolist() == [30.0]
    assert result.finish_time.tolist() == [130.0]
    assert result.jobs["allocated_resources"].tolist() == ["2-3"]
    assert result.jobs["restarts"].tolist() == [1]
    assert result.jobs["lost_core_seconds"].tolist() == [60.0]
    ran = result.segments
    assert [ran.begin.tolist(), ran.end.tolist(), ran.lost.tolist()] == [[0, 30], [30, 130], [30, 0]]
    assert ran.cores.tolist() == [0, 1, 2, 3]
    found = result.metrics
    assert found["availability"] == pytest.approx(1 - 10 / 260)
    assert (found["failures"], found["restarts"], found["lost_work"]) == (1, 1, 60)
    assert found["goodput"] == pytest.approx(200 / 260)
    assert found["utilization"] == pytest.approx(260 / (4 * 130))
    # Two cores compute for 130 s; two of the other node sleep at 5 % but draw nothing while it is down.
    joules = 200 * 130 + 10 * (260 - 130 - 10)
    assert found["energy_joules"] == pytest.approx(joules)
    assert series.power(result).integral() == pytest.approx(joules)
    assert series.power(result).at(np.array([10.0, 35.0, 50.0])).tolist() == pytest.approx([210, 200, 210])
    assert result.jobs["consumed_energy"].tolist() == pytest.approx([200 * 130])


def test_a_job_waits_for_the_repair_of_its_only_node() -> None:
    result = simulate(one_node(), one_job(), failures=listed((0, 30, 40), (0, 60, 75)), check=True)
    assert result.starting_time.tolist() == [75.0]
    assert result.finish_time.tolist() == [175.0]
    assert result.jobs["waiting_time"].tolist() == [75.0]
    assert result.jobs["restarts"].tolist() == [2]
    assert result.jobs["lost_core_seconds"].tolist() == [2 * (30 + 20)]
    queue = series.queue_length(result)
    assert queue.at(np.array([0.0, 29, 30, 39, 40, 59, 60, 74, 75, 174])).tolist() == [0, 0, 1, 1, 0, 0, 1, 1, 0, 0]
    assert series.down_nodes(result).integral() == 25
    assert series.down_cores(result).integral() == 50
    assert metrics.full(result)["loss_of_capacity"] == 0


def test_checkpoints_keep_what_was_done() -> None:
    failures = listed((0, 39, 40), (0, 60, 75), recovery="checkpoint", checkpoint_interval="10s")
    result = simulate(one_node(), one_job(), failures=failures, check=True)
    # 30 s are kept of the first 39, another 20 of 20; 50 are left at 75.
    assert result.finish_time.tolist() == [125.0]
    assert result.segments.lost.tolist() == [9.0, 0.0, 0.0]
    assert result.metrics["lost_work"] == 18


def test_without_an_interval_a_rigid_job_has_no_checkpoint() -> None:
    result = simulate(one_node(), one_job(), failures=listed((0, 30, 40), recovery="checkpoint"), check=True)
    assert result.finish_time.tolist() == [140.0]


def test_a_job_that_completes_when_its_node_fails_has_completed() -> None:
    result = simulate(one_node(), one_job(), failures=listed((0, 100, 110)), check=True)
    assert result.finish_time.tolist() == [100.0]
    assert result.metrics["restarts"] == 0


def test_an_outage_of_no_time_costs_the_work_alone() -> None:
    result = simulate(one_node(), one_job(), failures=listed((0, 30, 30), (0, 50, 50)), check=True)
    assert result.finish_time.tolist() == [150.0]
    assert result.metrics["availability"] == 1


def test_every_node_of_a_job_counts_and_no_other() -> None:
    platform = Platform.homogeneous(nodes=3, cores_per_node=2)
    workload = Workload.from_columns(submission_time=[0, 0], runtime=[100, 100], requested_cores=[3, 2])
    result = simulate(platform, workload, failures=listed((1, 10, 20)), check=True)
    assert table(result)[:3:2] == [(0, 0.0, 10.0, [0, 1, 2]), (1, 0.0, 10.0, [3, 4])]
    assert result.jobs["restarts"].tolist() == [1, 1]
    result = simulate(platform, workload, failures=listed((2, 10, 20)), check=True)
    assert result.jobs["restarts"].tolist() == [0, 1]


def test_speeds_count_for_checkpoints() -> None:
    """A core of half the reference speed does 10 s of a job in 20 s."""
    document = {
        "clusters": [{"id": "c", "nodes": [{"type": "slow", "number": 1}, {"type": "fast", "number": 1}]}],
        "types": {
            "node": {
                "slow": {"processors": [{"type": "slow", "number": 1}]},
                "fast": {"processors": [{"type": "fast", "number": 1}]},
            },
            "processor": {
                "slow": {"cores": 1, "clock_rate": 1, "dpflops_per_cycle": 1, "power": 10},
                "fast": {"cores": 1, "clock_rate": 3, "dpflops_per_cycle": 1, "power": 10},
            },
        },
    }
    platform = Platform.from_dict(document)
    failures = listed((1, 0, math.inf), (0, 50, 60), recovery="checkpoint", checkpoint_interval=10)
    workload = Workload.from_columns(submission_time=[1], runtime=[40], requested_cores=[1])
    for contention in ("none", "fair_share"):
        result = simulate(platform, workload, failures=failures, contention=contention, check=True)
        # 25 s of work are done at 50, of which 20 are kept; the other 20 take 40 s from 60 on.
        assert result.finish_time.tolist() == pytest.approx([100.0])
        assert result.segments.lost.tolist() == pytest.approx([10.0, 0.0])


@pytest.mark.parametrize("model", ["threshold", "fair_share"])
def test_checkpoints_under_contention(model: str) -> None:
    platform = Platform.homogeneous(nodes=1, cores_per_node=2, mem_bw=10.0)
    workload = Workload.from_columns(
        submission_time=[0, 20], runtime=[100, 500], requested_cores=[1, 1], memory_bandwidth=10.0
    )
    alone = simulate(platform, workload, contention=model)
    rate = 80 / (alone.finish_time[0] - 20)
    failures = listed((0, 60, 70), recovery="checkpoint", checkpoint_interval=1)
    result = simulate(platform, workload, contention=model, failures=failures, check=True)
    done = 20 + math.floor(40 * rate + 1e-9)
    assert result.finish_time[0] == pytest.approx(70 + (100 - done) / rate)
    work = 20 + 40 * rate
    assert result.segments.lost[0] == pytest.approx(60 * (1 - done / work))


def bsp(supersteps: int, seconds: float, latency: float, tasks: int, extra: int = 0) -> Workload:
    """One BSP job of equal supersteps, at 10 GFLOP/s, and further rigid jobs of a core for 1 s, submitted at 0."""
    profiles = {
        "bsp": {"type": "bsp", "supersteps": supersteps, "cpu": seconds * 1e10, "com": 0, "l": latency},
        "rigid": {"type": "delay", "delay": 1},
    }
    jobs = [{"id": "b", "subtime": 0, "res": tasks, "profile": "bsp"}]
    jobs += [{"id": f"r{i}", "subtime": 0, "res": 1, "profile": "rigid"} for i in range(extra)]
    raw = jobs_of({"jobs": jobs, "profiles": profiles}, "w.json", 10.0)
    assert not raw.errors
    return Workload.from_columns(**raw.columns, profiles=raw.profiles, reference_gflops=10.0)


@pytest.mark.parametrize("contention", ["none", "fair_share"])
def test_bsp_jobs_go_on_at_the_last_finished_superstep(contention: str) -> None:
    platform = Platform.homogeneous(nodes=1, cores_per_node=4, gflops_per_core=10.0)
    workload = bsp(supersteps=10, seconds=8, latency=2, tasks=4)
    assert simulate(platform, workload, contention=contention).finish_time.tolist() == [100.0]
    outage = (0, 37, 50)
    result = simulate(platform, workload, failures=listed(outage), contention=contention, check=True)
    assert result.finish_time.tolist() == [150.0]
    assert result.metrics["lost_work"] == 4 * 37
    result = simulate(
        platform, workload, failures=listed(outage, recovery="checkpoint"), contention=contention, check=True
    )
    # Three supersteps are kept.
    assert result.finish_time.tolist() == [120.0]
    assert result.metrics["lost_work"] == 4 * 7
    at_barrier = listed((0, 49, 50), recovery="checkpoint")
    result = simulate(platform, workload, failures=at_barrier, contention=contention, check=True)
    assert result.finish_time.tolist() == [110.0]
    assert result.metrics["lost_work"] == 4 * 9


def test_rigid_jobs_beside_bsp_jobs_have_checkpoints_too() -> None:
    platform = Platform.homogeneous(nodes=1, cores_per_node=4, gflops_per_core=10.0)
    profiles = {
        "bsp": {"type": "bsp", "supersteps": 10, "cpu": 8e10, "com": 0, "l": 2},
        "rigid": {"type": "parallel_homogeneous", "cpu": 100e10, "com": 0},
        "delay": {"type": "delay", "delay": 100},
    }
    jobs = [{"id": name, "subtime": 0, "res": 1, "profile": name} for name in profiles]
    raw = jobs_of({"jobs": jobs, "profiles": profiles}, "w.json", 10.0)
    workload = Workload.from_columns(**raw.columns, profiles=raw.profiles, reference_gflops=10.0)
    failures = listed((0, 37, 50), recovery="checkpoint", checkpoint_interval=5)
    result = simulate(platform, workload, failures=failures, check=True)
    assert result.finish_time.tolist() == [120.0, 115.0, 115.0]
    assert result.jobs["lost_core_seconds"].tolist() == pytest.approx([7.0, 2.0, 2.0])


# Jobs that never get done


@pytest.mark.parametrize("agent", ["fcfs", "easy", "conservative", "sjf-high_mem"])
def test_jobs_for_which_too_few_nodes_are_left(agent: str, caplog: pytest.LogCaptureFixture) -> None:
    platform = Platform.homogeneous(nodes=2, cores_per_node=2)
    workload = Workload.from_columns(submission_time=[0, 5], runtime=[100, 10], requested_cores=[4, 2])
    with caplog.at_level(logging.WARNING):
        result = simulate(platform, workload, agent, failures=listed((1, 50, math.inf), (0, 55, 56)), check=True)
    assert "cannot start: 1 of 2 nodes are never repaired" in caplog.text
    assert "never started" not in caplog.text
    assert result.metrics["jobs_unfinished"] == (2 if agent == "fcfs" else 1)
    assert result.jobs["final_state"][0] == "QUEUED"
    assert math.isnan(result.starting_time[0])
    assert result.jobs["lost_core_seconds"][0] == 200
    assert result.metrics["goodput"] == pytest.approx(
        0 if agent == "fcfs" else 20 / (200 + 20 + result.jobs["lost_core_seconds"][1])
    )
    assert 0 < result.metrics["energy_joules"] == pytest.approx(series.power(result).integral())


def test_failures_without_end_do_not_keep_a_replay_going(caplog: pytest.LogCaptureFixture) -> None:
    """All nodes are hardly ever up together, and nothing else runs."""
    platform = Platform.homogeneous(nodes=60, cores_per_node=1)
    with caplog.at_level(logging.WARNING):
        result = simulate(platform, one_job(cores=60), failures=drawn(mtbf=100, mttr=100), seed=4)
    assert result.metrics["jobs_unfinished"] == 1
    assert "1 jobs cannot start: none was started at 12000 instants on an idle platform" in caplog.text


def test_an_agent_that_starts_nothing_ends_a_replay() -> None:
    result = simulate(one_node(), one_job(), "void", failures=drawn(mtbf=100, mttr=1))
    assert result.metrics["jobs_unfinished"] == 1


def test_a_job_longer_than_the_nodes_last_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    workload = Workload.from_columns(submission_time=[0, 1], runtime=[1e4, 5], requested_cores=[2, 1])
    with caplog.at_level(logging.WARNING):
        result = simulate(one_node(), workload, failures=drawn(mtbf=100, mttr=10, max_restarts=7), check=True)
    assert result.jobs["restarts"].tolist()[0] == 7
    assert result.jobs["final_state"].tolist() == ["COMPLETED_FAILED", "COMPLETED_SUCCESSFULLY"]
    assert "1 jobs failed permanently after 7 restarts" in caplog.text
    ran = result.segments
    assert result.jobs["lost_core_seconds"][0] == pytest.approx((2 * (ran.end - ran.begin))[ran.job == 0].sum())
    assert result.metrics["goodput"] == pytest.approx(5 / ran.core_seconds.sum())


def test_calls_of_an_agent_keep_a_replay_going() -> None:
    class Patient(hdsim.Agent):
        def decide(self, cluster: Any) -> None:
            if cluster.now == 0:
                cluster.call_me_later(1000.0)
            if cluster.now == 1000.0:
                cluster.start(0)

    result = simulate(one_node(), one_job(), Patient(), failures=listed((0, 500, 600)), check=True)
    assert result.finish_time.tolist() == [1100.0]


def test_a_node_that_is_down_takes_no_job() -> None:
    class Stubborn(hdsim.Agent):
        def decide(self, cluster: Any) -> None:
            if 0 in cluster.down:
                cluster.start_on(0, [0, 1])
            elif not cluster.node_changes:
                cluster.call_me_later(100.0)

    with pytest.raises(DecisionError, match="expected idle cores"):
        simulate(one_node(), one_job(), Stubborn(), failures=listed((0, 5, 10)))


# A second replay, which looks at everything again at every instant

Plan = Callable[[ref.Machine, Sequence[ref.Job], int], list[int]]


def strict_plan(machine: ref.Machine, jobs: Sequence[ref.Job], up: int) -> list[int]:
    return ref.strict(machine, jobs)


def easy_plan(machine: ref.Machine, jobs: Sequence[ref.Job], up: int) -> list[int]:
    # A job that does not fit on the nodes that are up has no reservation and holds up no other.
    return ref.easy(replace(machine, queue=[job for job in machine.queue if jobs[job].cores <= up]), jobs)


def conservative_plan(machine: ref.Machine, jobs: Sequence[ref.Job], up: int) -> list[int]:
    fitting = [job for job in machine.queue if jobs[job].cores <= up]
    return ref.conservative(replace(machine, queue=fitting), jobs)


PLANS: dict[str, Plan] = {"fcfs": strict_plan, "easy": easy_plan, "conservative": conservative_plan}


def second_replay(
    jobs: Sequence[ref.Job],
    nodes: int,
    cores: int,
    outages: Sequence[tuple[int, float, float]],
    plan: Plan,
    interval: float | None,
) -> list[tuple[int, float, float, list[int]]]:
    """(job, start, end, cores) of every start, on nodes of equal cores, of which the first idle ones are given."""
    starts: list[tuple[int, float, float, list[int]]] = []
    running: dict[int, tuple[float, list[int]]] = {}
    left = [job.runtime for job in jobs]
    queue: list[int] = []
    times = {job.submit for job in jobs} | {time for _, down, up in outages for time in (down, up) if time < math.inf}
    arrived = 0
    while times:
        now = min(times)
        times.remove(now)
        for job in [job for job, (begin, _) in running.items() if begin + left[job] == now]:
            begin, held = running.pop(job)
            starts.append((job, begin, now, held))
        for node in {node for node, down, _ in outages if down == now}:
            for job in [job for job, (_, held) in running.items() if node in {core // cores for core in held}]:
                begin, held = running.pop(job)
                starts.append((job, begin, now, held))
                if interval is not None:
                    left[job] -= (now - begin) // interval * interval
                queue.append(job)
        while arrived < len(jobs) and jobs[arrived].submit == now:
            queue.append(arrived)
            arrived += 1
        queue.sort()
        up = [
            core
            for core in range(nodes * cores)
            if not any(node == core // cores and down <= now < back for node, down, back in outages)
        ]
        idle = [core for core in up if not any(core in held for _, held in running.values())]
        ends = [(begin + jobs[job].requested, ref.need(jobs[job])) for job, (begin, _) in running.items()]
        ends.sort(key=lambda end: end[0])
        for job in plan(ref.Machine(now, ref.Amount(len(idle)), list(queue), ends), jobs, len(up)):
            queue.remove(job)
            held, idle = idle[: jobs[job].cores], idle[jobs[job].cores :]
            running[job] = (now, held)
            times.add(now + left[job])
    return starts


@st.composite
def cases(draw: st.DrawFn) -> tuple[Platform, Workload, list[tuple[int, float, float]]]:
    """A few nodes, jobs and outages, at whole seconds so that much happens at once."""
    nodes, cores = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    count = draw(st.integers(1, 9))
    seconds = st.integers(1, 12)
    runtime = draw(st.lists(seconds, min_size=count, max_size=count))
    extra = draw(st.lists(st.integers(-2, 6), min_size=count, max_size=count))
    workload = Workload.from_columns(
        submission_time=np.cumsum(draw(st.lists(st.integers(0, 6), min_size=count, max_size=count))),
        runtime=runtime,
        requested_time=[max(run + more, 1) for run, more in zip(runtime, extra, strict=True)],
        requested_cores=draw(st.lists(st.integers(1, nodes * cores), min_size=count, max_size=count)),
    )
    outages = []
    for node in range(nodes):
        times = draw(st.lists(st.integers(0, 25), max_size=6))
        bounds = np.cumsum(times).astype(float).tolist()
        outages += [(node, down, up) for down, up in zip(bounds[::2], bounds[1::2], strict=False)]
        if len(bounds) % 2 and draw(st.booleans()):
            outages.append((node, bounds[-1], math.inf))
    return Platform.homogeneous(nodes=nodes, cores_per_node=cores), workload, outages


def table(result: Result) -> list[tuple[int, float, float, list[int]]]:
    """What `second_replay` gives, of a replay."""
    ran = result.segments
    ends = np.cumsum(ran.sizes)
    rows = zip(
        ran.job.tolist(), ran.begin.tolist(), ran.end.tolist(), (ends - ran.sizes).tolist(), ends.tolist(), strict=True
    )
    return sorted((job, start, end, ran.cores[a:b].tolist()) for job, start, end, a, b in rows)


@pytest.mark.parametrize("interval", [None, *ci(1), 3])
@pytest.mark.parametrize("agent", list(PLANS))
@examples(30)
@given(case=cases())
def test_against_a_second_replay(
    agent: str, interval: float | None, case: tuple[Platform, Workload, list[tuple[int, float, float]]]
) -> None:
    platform, workload, outages = case
    recovery: dict[str, Any] = {"max_restarts": None}
    if interval is not None:
        recovery |= {"recovery": "checkpoint", "checkpoint_interval": interval}
    result = simulate(platform, workload, agent, failures=listed(*outages, **recovery), check=True)
    nodes = platform.n_nodes
    expected = second_replay(ref.jobs_of(workload), nodes, platform.n_cores // nodes, outages, PLANS[agent], interval)
    assert table(result) == sorted(expected)


# Invariants

AGENTS = ("fcfs", "sjf-random", "random-high_mem", "easy-saf", "conservative", "wfp3-high_cores", "easy-fcfs-low_power")


@pytest.mark.parametrize("contention", ["none", "fair_share", "threshold"])
@examples(25)
@given(
    case=cases(),
    agent=st.sampled_from(AGENTS),
    interval=st.sampled_from([None, 2.0]),
    batch_events=st.booleans(),
    data=st.data(),
)
def test_invariants(
    contention: str,
    case: tuple[Platform, Workload, list[tuple[int, float, float]]],
    agent: str,
    interval: float | None,
    batch_events: bool,
    data: st.DataObject,
) -> None:
    platform, workload, outages = case
    demand = data.draw(st.lists(st.sampled_from([0.0, 2.0, 5.0]), min_size=len(workload), max_size=len(workload)))
    limited = Platform.homogeneous(
        nodes=platform.n_nodes, cores_per_node=platform.n_cores // platform.n_nodes, mem_bw=6.0
    )
    workload = Workload.from_columns(
        submission_time=workload.submission_time,
        runtime=workload.runtime,
        requested_cores=workload.requested_cores,
        requested_time=workload.requested_time,
        memory_bandwidth=demand,
    )
    recovery: dict[str, Any] = {"max_restarts": None}
    if interval is not None:
        recovery |= {"recovery": "checkpoint", "checkpoint_interval": interval}

    def replay() -> Result:
        failures = listed(*outages, **recovery)
        return simulate(
            limited, workload, agent, contention=contention, failures=failures, batch_events=batch_events, check=True
        )

    result = replay()
    assert table(replay()) == table(result)
    node_of = limited.processor_node[limited.core_processor]
    for _, start, end, cores in table(result):
        for node, down, up in outages:
            assert node not in node_of[cores] or end <= down or start >= up
    ended = ~np.isnan(result.finish_time)
    ran = result.segments
    if contention == "none":
        took = np.bincount(ran.job, ran.end - ran.begin - ran.lost, len(workload))
        assert took[ended] == pytest.approx(workload.runtime[ended])
    assert (ran.lost >= -1e-9).all()
    assert (ran.lost <= ran.end - ran.begin + 1e-9).all()
    assert result.jobs["restarts"].tolist() == [max((ran.job == job).sum() - 1, 0) for job in range(len(workload))]
    assert series.power(result).integral() == pytest.approx(result.energy_joules)
    assert series.busy_cores(result).integral() == pytest.approx(float(ran.core_seconds.sum()))
    up = platform.n_cores - series.down_cores(result).values
    assert (series.busy_cores(result).at(series.down_cores(result).times) <= up).all()
    queue = series.queue_length(result)
    assert (queue.values >= 0).all()
    waiting = (result.jobs["final_state"] == "QUEUED") & (workload.submission_time <= result.end_time)
    assert queue.values[-1] == waiting.sum()
    found = metrics.full(result)
    assert 0 <= found["goodput"] <= 1
    assert 0 <= found["availability"] <= 1
    assert 0 <= found["utilization"] <= 1 + 1e-9


def test_all_policies_see_the_same_outages() -> None:
    platform = Platform.homogeneous(nodes=8, cores_per_node=2)
    rng = np.random.default_rng(1)
    workload = Workload.from_columns(
        submission_time=np.cumsum(rng.exponential(20, 200)),
        runtime=rng.exponential(100, 200),
        requested_cores=rng.integers(1, 9, 200),
    )
    failures = drawn("Weibull", mtbf=2000, mttr=100, shape=0.7)
    seen = []
    for agent in ("fcfs", "random-random", "easy-sjf"):
        result = simulate(platform, workload, agent, failures=failures, seed=9)
        assert result.outages is not None
        assert len(result.outages) > 5
        seen.append(list(zip(result.outages.node, result.outages.down, result.outages.up, strict=True)))
    shortest = min(len(rows) for rows in seen)
    assert seen[0][:shortest] == seen[1][:shortest] == seen[2][:shortest]
    other = simulate(platform, workload, "fcfs", failures=failures, seed=10)
    assert other.outages is not None
    assert other.outages.down[0] != seen[0][0][1]


def test_without_failures_nothing_tells_of_them() -> None:
    result = simulate(one_node(), one_job())
    assert result.outages is None
    assert "availability" not in result.metrics
    assert result.jobs["restarts"].tolist() == [0]
    assert result.jobs["lost_core_seconds"].tolist() == [0.0]
    never = simulate(one_node(), one_job(), failures=listed())
    assert {
        key: value for key, value in never.metrics.items() if key in result.metrics and key != "jobs_per_second"
    } == {key: value for key, value in result.metrics.items() if key != "jobs_per_second"}
    assert never.metrics["availability"] == never.metrics["goodput"] == 1


@pytest.mark.parametrize("action", ["policy_pair", "job"])
def test_an_environment_with_failures(action: str) -> None:
    from hdsim.envs.scheduling import SchedulingEnv

    platform = Platform.homogeneous(nodes=4, cores_per_node=4)
    rng = np.random.default_rng(1)
    workload = Workload.from_columns(
        submission_time=np.cumsum(rng.exponential(30, 60)),
        runtime=rng.exponential(100, 60),
        requested_cores=rng.integers(1, 9, 60),
    )
    observation = "jobs" if action == "job" else "normal"
    env = SchedulingEnv(platform, workload, action, observation, failures=drawn(mtbf=1000, mttr=100))
    _, info = env.reset(seed=3)
    over = False
    while not over:
        choice = int(rng.choice(np.flatnonzero(info["action_mask"])))
        _, _, over, _, info = env.step(choice)
    assert env.result is not None
    assert env.result.metrics["restarts"] > 0
    assert env.result.metrics["jobs_unfinished"] == 0


# Run directories


def written(path: Path) -> Result:
    platform = Platform.homogeneous(nodes=4, cores_per_node=2)
    rng = np.random.default_rng(8)
    workload = Workload.from_columns(
        submission_time=np.cumsum(rng.exponential(20, 60)),
        runtime=np.append(rng.exponential(100, 59), 1e4),
        requested_cores=rng.integers(1, 7, 60),
    )
    failures = drawn(mtbf=400, mttr=60, max_restarts=10)
    result = simulate(platform, workload, "easy", failures=failures, seed=5)
    directory = RunDirectory(path)
    directory.start({"seed": 5}, platform, workload)
    directory.finish(result)
    assert len(result.failed_permanently)
    return result


def test_run_directories_keep_failures(tmp_path: Path) -> None:
    result = written(tmp_path / "a")
    run = read_run(tmp_path / "a")
    assert run.outages is not None
    assert result.outages is not None
    assert run.outages.down.tolist() == result.outages.down.tolist()
    assert run.outages.up.tolist() == result.outages.up.tolist()
    for name in ("restarts", "lost_core_seconds"):
        np.testing.assert_allclose(run.jobs[name], result.jobs[name], atol=1e-3)
    np.testing.assert_allclose(run.segments.lost, result.segments.lost, atol=1e-6)
    assert run.segments.cores.tolist() == result.segments.cores.tolist()
    for curve in (series.power, series.busy_cores, series.queue_length, series.down_nodes, series.running_jobs):
        assert curve(run).integral() == pytest.approx(curve(result).integral(), rel=1e-6)
    assert run.metrics["lost_work"] == result.metrics["lost_work"]
    states = ref.read_table(tmp_path / "a" / "machine_states.csv")
    down = series.down_cores(result)
    for row in states:
        missing = down.at(np.array([float(row["time"]) + 1e-6]))[0]
        assert int(row["nb_idle"]) + int(row["nb_computing"]) + missing == 8
    schedule = ref.read_table(tmp_path / "a" / "schedule.csv")[0]
    assert float(schedule["time_unavailable"]) == pytest.approx(down.integral())
    total = sum(float(schedule[f"time_{kind}"]) for kind in ("computing", "idle", "unavailable"))
    assert total == pytest.approx(8 * result.end_time)


def test_the_same_seed_gives_the_same_files(tmp_path: Path) -> None:
    for name in "ab":
        written(tmp_path / name)
    for file in ("jobs.csv", "outages.csv", "interruptions.csv", "machine_states.csv"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_outages_of_a_run_are_a_trace(tmp_path: Path) -> None:
    result = written(tmp_path / "a")
    failures = {"_target_": "hdsim.failures.Trace", "file": tmp_path / "a" / "outages.csv", "max_restarts": 10}
    again = simulate(result.platform, result.workload, "easy", failures=failures)
    assert table(again) == table(result)


def test_a_report_of_a_run_with_failures(tmp_path: Path) -> None:
    written(tmp_path / "a")
    titles = [panel.title for panel in panels(read_run(tmp_path / "a"))]
    assert "Nodes that are down" in titles


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("outages.csv", "node,up\n", "expected rows of node,down,up"),
        ("interruptions.csv", "job,start\n", "expected rows of job_id,starting_time"),
        (
            "interruptions.csv",
            "job_id,starting_time,end_time,lost_time,requeued,allocated_resources\n0,1,2,3,1,x\n",
            "expected interval sets",
        ),
    ],
)
def test_damaged_run_directories(tmp_path: Path, file: str, content: str, message: str) -> None:
    written(tmp_path / "a")
    (tmp_path / "a" / file).write_text(content)
    with pytest.raises(ConfigError, match=message):
        read_run(tmp_path / "a")


# Traces and settings

EVENTS = [
    {"timestamp": 10, "type": "event_machine_unavailable", "resources": "0-1 3"},
    {"timestamp": 15.5, "type": "event_machine_available", "resources": "1"},
    {"timestamp": 20, "type": "event_machine_available", "resources": "0"},
    {"timestamp": 20, "type": "event_machine_unavailable", "resources": "0"},
]


def read(path: Path, text: str, nodes: int = 4) -> list[list[Outage]]:
    path.write_text(text)
    model = Trace(Platform.homogeneous(nodes=nodes, cores_per_node=1), path)
    return [list(coming) for coming in model.outages(np.random.default_rng(0))]


def test_traces(tmp_path: Path) -> None:
    rows = "# from somewhere\nnode,down,up\n3,10,\n\n1,10,15.5\n0,20,\n0,10,20\n"
    expected = [[(10.0, 20.0), (20.0, math.inf)], [(10.0, 15.5)], [], [(10.0, math.inf)]]
    assert read(tmp_path / "rows.csv", rows) == expected
    assert read(tmp_path / "events.txt", "\n".join(map(json.dumps, EVENTS))) == expected
    packed = tmp_path / "rows.csv.gz"
    packed.write_bytes(gzip.compress(rows.encode()))
    model = Trace(Platform.homogeneous(nodes=4, cores_per_node=1), packed)
    assert [list(coming) for coming in model.outages(np.random.default_rng(0))] == expected


def test_an_empty_trace_needs_its_header(tmp_path: Path) -> None:
    assert read(tmp_path / "rows.csv", "node,down,up\n") == [[], [], [], []]
    with pytest.raises(ConfigError, match=r"rows.csv:1: expected the header node,down,up or events, got ''"):
        read(tmp_path / "rows.csv", "")


@pytest.mark.parametrize(
    ("lines", "line", "message"),
    [
        (["node,from,to"], 1, "expected the header node,down,up or events, got 'node,from,to'"),
        (["node,down,up", "1,2"], 2, "expected node,down,up, got '1,2'"),
        (["node,down,up", "1,2,3", "x,2,3"], 3, "expected numbers: could not convert"),
        (["node,down,up", "1,2_0,30"], 2, "expected numbers: could not convert string to float: '2_0'"),
        (["node,down,up", "1.5,2,3"], 2, "expected numbers: node '1.5'"),
        (["node,down,up", "1,-2,3"], 2, "expected 0 <= down <= up <= 1e+12, got down -2, up 3"),
        (["node,down,up", "1,4,3"], 2, "expected 0 <= down <= up <= 1e+12, got down 4, up 3"),
        (["node,down,up", "1,nan,3"], 2, "expected 0 <= down <= up"),
        (["node,down,up", "4,2,3"], 2, "expected nodes 0 to 3, got 4"),
        (["node,down,up", "1,2,9", "1,5,10"], 3, "node 1 is down since 2 s already at 5 s"),
        (["{"], 1, "expected a JSON object with timestamp, type and resources, got {"),
        ([json.dumps(EVENTS[0]), "[]"], 2, "expected a JSON object"),
        (
            [json.dumps(EVENTS[0] | {"type": "event_machine_unavailible"})],
            1,
            "did you mean 'event_machine_unavailable'",
        ),
        ([json.dumps(EVENTS[0] | {"timestamp": -1})], 1, "timestamp: expected seconds from 0 to 1e+12, got -1"),
        ([json.dumps(EVENTS[0] | {"timestamp": "1"})], 1, 'timestamp: expected seconds from 0 to 1e+12, got "1"'),
        ([json.dumps(EVENTS[0] | {"resources": "3-1"})], 1, "resources: an interval ends before it begins"),
        ([json.dumps(EVENTS[0] | {"resources": "3-4"})], 1, "resources: expected ids below 4, got 4"),
        ([json.dumps(EVENTS[1])], 1, "node 1 is up already at 15.5 s"),
    ],
)
def test_faults_of_traces(tmp_path: Path, lines: list[str], line: int, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path / "trace", "\n".join(lines))
    assert str(caught.value).startswith(f"{tmp_path / 'trace'}:{line}: ")
    assert message in str(caught.value)


def test_all_lines_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path / "trace", "node,down,up\n9,1,2\n0,3,2\n1,1,5\n")
    assert [error.where.rpartition(":")[2] for error in caught.value.errors if error.where] == ["2", "3"]


@pytest.mark.parametrize(
    ("keys", "where", "message"),
    [
        ({"mtbf": 0, "mttr": 1}, "failures.mtbf", "expected seconds > 0"),
        ({"mtbf": "10", "mttr": 1}, "failures.mtbf", "without a unit; allowed units: s, min, h, d"),
        ({"mtbf": "10 hours", "mttr": 1}, "failures.mtbf", "unknown unit 'hours'"),
        ({"mtbf": True, "mttr": 1}, "failures.mtbf", "expected seconds > 0"),
        ({"mtbf": None, "mttr": 1}, "failures.mtbf", "got None"),
        ({"mtbf": 1, "mttr": -1}, "failures.mttr", "expected seconds >= 0"),
        ({"mtbf": 1, "mttr": math.inf}, "failures.mttr", "expected seconds >= 0"),
        ({"mtbf": 1, "mttr": 1, "recovery": "restart"}, "failures.recovery", "expected one of resubmit, checkpoint"),
        (
            {"mtbf": 1, "mttr": 1, "checkpoint_interval": 5},
            "failures.checkpoint_interval",
            "expected null unless failures.recovery=checkpoint",
        ),
        (
            {"mtbf": 1, "mttr": 1, "recovery": "checkpoint", "checkpoint_interval": 0},
            "failures.checkpoint_interval",
            "expected seconds > 0",
        ),
        ({"mtbf": 1, "mttr": 1, "max_restarts": -1}, "failures.max_restarts", "expected a whole number >= 0 or null"),
    ],
)
def test_faults_of_settings(keys: dict[str, Any], where: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make_model("failures", drawn(**keys), one_node())
    assert caught.value.where == where
    assert message in str(caught.value)


def test_further_faults_of_settings(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected a number > 0, got 0") as caught:
        make_model("failures", drawn("Weibull", mtbf=1, mttr=1, shape=0), one_node())
    assert caught.value.where == "failures.shape"
    with pytest.raises(ConfigError, match=r"found no file 'nowhere\.csv'"):
        make_model("failures", drawn("Trace", file="nowhere.csv"), one_node())
    with pytest.raises(ConfigError, match="did you mean 'weibull'"):
        simulate(one_node(), one_job(), failures="weibul")
    with pytest.raises(ConfigError, match="unexpected keyword argument 'mtfb'"):
        make_model("failures", drawn(mtbf=3, mttr=1, mtfb=3), one_node())


def test_options_of_the_configuration_can_be_made() -> None:
    assert isinstance(make_model("failures", "exponential", one_node()), Exponential)
    assert isinstance(make_model("failures", "weibull", one_node()), Weibull)
    assert make_model("failures", "none", one_node()) is None


@pytest.mark.parametrize(
    ("spans", "told"),
    [
        ([(0, 30, 10)], "from 0 s on, got 30 to 10 s"),
        ([(0, -5, 10)], "from 0 s on, got -5 to 10 s"),
        ([(0, math.nan, 10)], "from 0 s on, got nan to 10 s"),
        ([(0, 30, 40), (0, 35, 60)], "from 40 s on, got 35 to 60 s"),
    ],
)
def test_outages_out_of_order_do_not_turn_the_clock_back(spans: list[tuple[int, float, float]], told: str) -> None:
    platform = Platform.homogeneous(nodes=2, cores_per_node=1)
    jobs = hdsim.Workload.from_columns(submission_time=[0], runtime=[100], requested_cores=[1])
    with pytest.raises(ConfigError, match=f"failures: expected outages of node 0 one after the other, {told} from Li"):
        hdsim.simulate(platform, jobs, "fcfs", failures=listed(*spans))
