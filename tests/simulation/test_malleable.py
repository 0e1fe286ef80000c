"""Jobs that grow and shrink: by hand, and at random against a slow second computation of every figure."""

from __future__ import annotations

import csv
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference as ref
from hypothesis import given
from hypothesis import strategies as st
from procset import ProcSet
from test_gpus import THREE
from test_invariants import Case, cases
from tiers import examples

from hdsim import Agent, Platform, Workload, simulate
from hdsim.cluster import invariants
from hdsim.cluster.state import Cluster, FinalState
from hdsim.errors import ConfigError, DecisionError, InvariantError
from hdsim.results import series
from hdsim.results.result import Result
from hdsim.results.run_directory.directory import RunDirectory
from hdsim.results.run_directory.reader import read
from hdsim.util.intervals import IntervalSets

#: Two processors of five cores, the second of half the speed of the first.
TWO_SPEEDS = Platform.from_dict(
    {
        "clusters": [{"id": "c", "nodes": [{"type": name, "number": 1} for name in ("fast", "slow")]}],
        "types": {
            "node": {name: {"processors": [{"type": name, "number": 1}]} for name in ("fast", "slow")},
            "processor": {
                name: {"cores": 5, "clock_rate": rate, "dpflops_per_cycle": 2, "power": 50, "mem_bw": 100}
                for name, rate in (("fast", 2.0), ("slow", 1.0))
            },
        },
    }
)
TEN = Platform.homogeneous(nodes=2, cores_per_node=5, processors_per_node=1)


class Steps(Agent):
    """Starts everything at once and gives the first job other cores at given times."""

    def __init__(self, *steps: tuple[float, list[int]]) -> None:
        self.steps = dict(steps)

    def begin(self, cluster: Cluster) -> None:
        for time in self.steps:
            cluster.call_me_later(time)

    def decide(self, cluster: Cluster) -> None:
        for job in list(cluster.queue):
            if cluster.fits(job):
                cluster.start(job)
        if cluster.now in self.steps:
            cluster.resize_on(0, self.steps[cluster.now])


def written(directory: Path, result: Result) -> Any:
    run = RunDirectory(directory)
    run.start({}, result.platform, result.workload)
    run.finish(result)
    return read(directory)


# ---- by hand


def test_a_job_of_100_core_seconds_on_2_and_then_8_cores_ends_at_20_s(tmp_path: Path) -> None:
    workload = Workload.from_columns(submission_time=[0], runtime=[50], requested_cores=[2])
    result = simulate(TEN, workload, Steps((10.0, [0, 1, 2, 3, 4, 5, 6, 7])), check=True)
    assert result.finish_time.tolist() == [20.0]
    held = result.segments
    assert (held.begin.tolist(), held.end.tolist(), held.sizes.tolist()) == ([0, 10], [10, 20], [2, 8])
    assert held.attempt.tolist() == [0, 0] and held.speed.tolist() == [1, 1]
    assert result.metrics["utilization"] == 100 / (10 * 20)
    watts = float(TEN.power[0])
    # Until 10 s two cores compute, three idle beside them and five in an idle processor; then eight and two.
    assert result.energy_joules == pytest.approx(watts * (10 * (2 + 3 * 0.25 + 5 * 0.05) + 10 * (8 + 2 * 0.25)))
    assert result.jobs["consumed_energy"].tolist() == [pytest.approx(watts * 100)]
    assert result.jobs["allocated_resources"].tolist() == ["0-7"]
    assert result.jobs["slowdown_factor"].tolist() == [1.0]
    assert series.busy_cores(result).values.tolist() == [2, 8, 0]
    assert series.running_jobs(result).values.tolist() == [1, 0]
    written(tmp_path, result)
    assert (tmp_path / "allocations.csv").read_text().splitlines() == [
        "job_id,attempt,begin,end,allocated_resources,speed",
        "0,0,0.000000,10.000000,0-1,1.000000",
        "0,0,10.000000,20.000000,0-7,1.000000",
    ]


def test_a_shrinking_job_makes_room() -> None:
    """6 cores x 10 s done by 10 s, 6 x 40 s left on 2 cores: 120 s more; the other job takes 8 cores from 10 s on."""
    workload = Workload.from_columns(submission_time=[0, 0], runtime=[50, 5], requested_cores=[6, 8])
    agent = Steps((10.0, [0, 1]))
    agent.steps[10.5] = [0, 1]
    result = simulate(TEN, workload, agent, check=True)
    assert result.finish_time[0] == 10 + 6 * 40 / 2
    assert (result.starting_time[1], result.finish_time[1]) == (10.5, 15.5)


def test_a_job_of_fixed_duration_lasts_as_long_on_other_cores() -> None:
    workload = Workload.from_columns(submission_time=[0], runtime=[50], requested_cores=[2], fixed_duration=[True])
    result = simulate(TEN, workload, Steps((10.0, [5, 6, 7, 8])), check=True)
    assert result.finish_time.tolist() == [50.0]


def test_a_run_without_a_resize_has_no_allocations_csv(tmp_path: Path) -> None:
    workload = Workload.from_columns(submission_time=[0], runtime=[50], requested_cores=[2])
    written(tmp_path, simulate(TEN, workload, "fcfs"))
    assert not (tmp_path / "allocations.csv").exists()


@pytest.mark.parametrize(
    ("job", "cores", "complaint"),
    [
        (0, [], "job a: expected core ids 0 to 9, got []"),
        (0, [3, 3], "job a cannot be resized to cores [3, 3]: expected distinct cores"),
        (0, [3, 10], "job a: expected core ids 0 to 9, got [3, 10]"),
        (0, [0, 5], "job a cannot be resized to cores [0, 5]: expected idle cores, got busy [5]"),
        (0, [0, 1, 2, 3], "resized to cores [0, 1, 2, 3]: expected 300 MB a core, but node 0 would have -200"),
        (2, [8], "job c cannot be resized: expected a running job, it is QUEUED"),
        (3, [9], "job d cannot be resized to cores [9]: it starts at this very instant"),
    ],
)
def test_a_refused_resize_says_why_and_changes_nothing(job: int, cores: list[int], complaint: str) -> None:
    platform = Platform.homogeneous(nodes=2, cores_per_node=5, memory_gb_per_node=1.0, mem_bw=59.7)
    workload = Workload.from_columns(
        job_id=np.array(["a", "b", "c", "d"], object),
        submission_time=[0] * 4,
        runtime=[9] * 4,
        requested_cores=[2, 1, 1, 1],
        memory=[300] * 4,
        memory_bandwidth=[0.1, 0.7, 0.3, 0.2],
    )
    cluster = Cluster(platform, workload)
    for row in range(4):
        cluster.submit(row)
    cluster.start_on(0, [0, 1])
    cluster.start_on(1, [5])
    cluster.started.clear()
    cluster.now = 3.0
    cluster.start_on(3, [7])
    before = snapshot(cluster)
    with pytest.raises(DecisionError) as error:
        cluster.resize_on(job, cores)
    assert complaint in str(error.value)
    assert snapshot(cluster) == before
    invariants.check(cluster)


def test_gpus_stay_in_proportion_on_every_node() -> None:
    """Two cores with a GPU each, on the platform of test_gpus."""
    workload = Workload.from_columns(submission_time=[0], runtime=[9], requested_cores=[2], requested_gpus=[2])
    cluster = Cluster(THREE, workload)
    cluster.submit(0)
    cluster.start_on(0, [4, 5, 8, 9])
    cluster.started.clear()
    for cores, complaint in [
        ([4, 5, 6, 8, 9], "expected 2 GPUs to 2 cores on each of its nodes, got 2 to 3 on node 1"),
        ([4, 8, 0], "got 0 to 1 on node 0"),
    ]:
        with pytest.raises(DecisionError, match=complaint):
            cluster.resize_on(0, cores)
        assert (cluster.n_idle, cluster.n_idle_gpus) == (10, 2)
    cluster.now = 2.0
    cluster.resize_on(0, [4, 8, 10, 11, 14, 15])
    assert cluster.core_ids(0) == [4, 8, 10, 11, 14, 15]
    assert cluster.idle_ids() == [0, 1, 2, 3, 5, 6, 7, 9, 12, 13]
    invariants.check(cluster)


def test_a_job_with_a_program_is_not_resized() -> None:
    from test_details import mixed

    result = mixed()
    cluster = Cluster(result.platform, result.workload)
    cluster.submit(0)
    cluster.start(0)
    cluster.started.clear()
    with pytest.raises(DecisionError, match="its program has one task on each of its cores"):
        cluster.resize_on(0, [0])


@pytest.mark.parametrize("contention", ["none", "threshold"])
@pytest.mark.parametrize("platform", [TEN, TWO_SPEEDS], ids=["one speed", "two speeds"])
def test_a_change_of_speed_begins_a_segment(platform: Platform, contention: str) -> None:
    """50 s at the reference speed: 4 of them by 4 s, 1.5 until 6 s, the rest by 50.5 s; the power is the same."""

    class Slower(Agent):
        def begin(self, cluster: Cluster) -> None:
            for time in (4.0, 5.0, 6.0):
                cluster.call_me_later(time)

        def decide(self, cluster: Cluster) -> None:
            for job in list(cluster.queue):
                cluster.start_on(job, [0, 1] if job == 0 else [2])
            share = {4.0: 0.75, 5.0: 0.75, 6.0: 1.0}.get(cluster.now)
            if share:
                cluster.set_speed([1, 2, 9], share)

    peak = platform.gflops[0] / platform.reference_gflops
    workload = Workload.from_columns(
        submission_time=[0, 5], runtime=[50 * peak, 1 * peak], requested_cores=[2, 1], memory_bandwidth=[1, 1]
    )
    result = simulate(platform, workload, Slower(), contention=contention, check=True)
    held = result.segments
    assert held.job.tolist() == [0, 0, 1, 0, 1]
    assert held.begin.tolist() == [0, 4, 5, 6, 6]
    assert held.end.tolist() == pytest.approx([4, 6, 6, 50.5, 6.25])
    assert held.speed.tolist() == [1.0, 0.75, 0.75, 1.0, 1.0]
    assert result.jobs["consumed_energy"] == pytest.approx(platform.power[0] * np.array([2 * 50.5, 1.25]))
    assert result.jobs["slowdown_factor"] == pytest.approx([50.5 / 50, 1.25])


def test_a_speed_out_of_range_is_refused() -> None:
    cluster = Cluster(TEN, Workload.from_columns(submission_time=[0], runtime=[1], requested_cores=[1]))
    for cores, share, complaint in [
        ([0], 0.0, "above 0 and at most 1, got 0"),
        ([0], 1.5, "above 0 and at most 1, got 1.5"),
        ([10], 0.5, r"expected core ids 0 to 9, got \[10\]"),
        ([], 0.5, r"expected core ids 0 to 9, got \[\]"),
    ]:
        with pytest.raises(DecisionError, match=complaint):
            cluster.set_speed(cores, share)


def test_a_backend_that_cannot_resize_refuses_by_name() -> None:
    cluster = Cluster(TEN, Workload.from_columns(submission_time=[0], runtime=[1], requested_cores=[1]))
    cluster.submit(0)
    cluster.start(0)
    cluster.started.clear()
    cluster.can_resize = cluster.can_set_speed = False
    with pytest.raises(DecisionError, match="the backend has no means to do so"):
        cluster.resize_on(0, [3])
    with pytest.raises(DecisionError, match="the backend has no means to change the speed"):
        cluster.set_speed([0], 0.5)


def test_a_failure_undoes_the_end_of_an_attempt_over_several_segments() -> None:
    """30 s are lost: all 10 s on 4 cores, and 20 of the 50 s on 2 cores before."""
    platform = Platform.homogeneous(nodes=2, cores_per_node=5)
    workload = Workload.from_columns(submission_time=[0], runtime=[500], requested_cores=[2])
    cluster = Cluster(platform, workload, nodes_fail=True)
    cluster.submit(0)
    cluster.start_on(0, [0, 1])
    cluster.started.clear()
    cluster.now = 50.0
    cluster.resize_on(0, [0, 1, 2, 3])
    cluster.now = 60.0
    cluster.interrupt(0, 30.0)
    cluster.fail(0, 70.0)
    cluster.start_on(0, [5, 6])
    cluster.now = 100.0
    cluster.end(0, FinalState.COMPLETED_SUCCESSFULLY)
    result = Result.of(cluster, interrupted=False)
    assert result.segments.lost.tolist() == [20.0, 10.0, 0.0]
    assert result.segments.attempt.tolist() == [0, 0, 1]
    assert result.jobs["lost_core_seconds"].tolist() == [2 * 20 + 4 * 10]
    assert result.jobs["restarts"].tolist() == [1]
    assert result.jobs["allocated_resources"].tolist() == ["5-6"]
    assert series.queue_length(result).values.tolist() == [0.0]
    assert result.metrics["utilization"] == (2 * 50 + 4 * 10 + 2 * 40) / (10 * 100)


@pytest.mark.ci
def test_invariants_are_checked_without_assertions() -> None:
    script = (
        "from hdsim import Agent, Platform, Workload, simulate\n"
        "class Spoiler(Agent):\n"
        "    fixed_policy = True\n"
        "    def decide(self, cluster):\n"
        "        cluster.cores.idle.append(7)\n"
        "work = Workload.from_columns(submission_time=[0], runtime=[1], requested_cores=[1])\n"
        "simulate(Platform.homogeneous(nodes=1, cores_per_node=2), work, Spoiler(), check=True)\n"
    )
    done = subprocess.run([sys.executable, "-O", "-c", script], capture_output=True, text=True)
    assert done.returncode == 1
    assert InvariantError.__name__ in done.stderr and "a core is lost or allocated twice" in done.stderr


# ---- at random


def snapshot(cluster: Cluster) -> Any:
    """All that a refused resize must not change."""
    store = cluster.cores
    arrays = [getattr(store, name, None) for name in ("node_memory", "free_bandwidth", "processor_idle", "node_idle")]
    return (
        cluster.idle_ids(),
        cluster.n_idle,
        [None if array is None else array.tolist() for array in arrays],
        {job: store.ids_of(held) for job, held in cluster.running.items()},
        list(cluster.resized),
        len(cluster.allocations.closed),
        dict(cluster.allocations.begin),
    )


class Resizer(Agent):
    """Starts jobs, resizes running ones and keeps its own account of who holds what; `seed` decides everything."""

    def __init__(self, seed: int, *, fixed_policy: bool) -> None:
        self.rng = np.random.default_rng(seed)
        self.fixed_policy = fixed_policy
        self.holdings: list[ref.Holding] = []
        self.open: dict[int, tuple[float, frozenset[int]]] = {}
        self.attempts: Counter[int] = Counter()
        self.calls = 40

    def decide(self, cluster: Cluster) -> None:
        now, rng = cluster.now, self.rng
        for job in cluster.ended:
            self._close(job, now)
            self.attempts[job] += cluster.state[job] == FinalState.QUEUED
        for job in list(cluster.queue):
            if cluster.fits(job) and rng.random() < 0.8:
                cluster.start(job)
        for job in list(cluster.running):
            if rng.random() < 0.5:
                before = snapshot(cluster)
                try:
                    cluster.resize_on(job, self._other_cores(cluster, job))
                except DecisionError as error:
                    assert f"job {cluster.workload.job_id[job]}" in str(error)
                    assert snapshot(cluster) == before
        for job in cluster.running:
            cores = frozenset(cluster.core_ids(job))
            if job not in self.open or self.open[job][1] != cores:
                self._close(job, now)
                self.open[job] = now, cores
        if self.calls and (cluster.running or cluster.queue):
            self.calls -= 1
            cluster.call_me_later(now + float(rng.choice([0.5, 1.0, 2.25])))

    def _close(self, job: int, now: float) -> None:
        begin, cores = self.open.pop(job, (now, frozenset()))
        if begin < now:
            self.holdings.append(ref.Holding(job, self.attempts[job], begin, now, cores))

    def _other_cores(self, cluster: Cluster, job: int) -> list[int]:
        """Mostly cores and GPUs in the proportion of the job, from among its own and idle ones."""
        rng, platform = self.rng, cluster.platform
        if rng.random() < 0.1:
            return rng.integers(0, platform.n_cores, 3).tolist()
        chunk = cluster.requests.chunk(job)
        free = np.array(sorted({*cluster.core_ids(job), *cluster.idle_ids()}))
        node = platform.processor_node[platform.core_processor[free]]
        gpu = platform.is_gpu[platform.core_processor[free]]
        chosen: list[int] = []
        for one in range(platform.n_nodes):
            cores, gpus = free[(node == one) & ~gpu], free[(node == one) & gpu]
            most = min(len(cores) // chunk.cores, len(gpus) // chunk.gpus if chunk.gpus else len(cores))
            parts = int(rng.integers(0, most + 1)) if rng.random() < 0.5 else 0
            chosen += rng.permutation(cores)[: parts * chunk.cores].tolist()
            chosen += rng.permutation(gpus)[: parts * chunk.gpus].tolist()
        return chosen


@examples(15, 200)
@given(case=cases(odd=True, gpus=True), seed=st.integers(0, 2**32), contention=st.sampled_from(["none", "threshold"]))
def test_every_figure_of_random_resizes(
    tmp_path_factory: pytest.TempPathFactory, case: Case, seed: int, contention: str
) -> None:
    check(case, Resizer(seed, fixed_policy=False), contention, tmp_path_factory.mktemp("run"))


@examples(8, 100)
@given(case=cases(odd=True, speeds=(2.0,), memory=(0,)), seed=st.integers(0, 2**32))
def test_every_figure_of_random_resizes_of_interchangeable_cores(
    tmp_path_factory: pytest.TempPathFactory, case: Case, seed: int
) -> None:
    check(case, Resizer(seed, fixed_policy=True), "none", tmp_path_factory.mktemp("run"))


def holdings(result: Result) -> list[ref.Holding]:
    """The segments of a result that take time."""
    held = result.segments
    cores = np.split(held.cores, np.cumsum(held.sizes)[:-1])
    rows = zip(held.job.tolist(), held.attempt.tolist(), held.begin.tolist(), held.end.tolist(), cores, strict=False)
    found = [
        ref.Holding(job, n, begin, end, frozenset(own.tolist())) for job, n, begin, end, own in rows if begin < end
    ]
    return sorted(found, key=repr)


def check(case: Case, agent: Resizer, contention: str, directory: Path) -> None:
    """Compares a replay with the agent's account, and the run directory with the replay."""
    result = simulate(case.platform, case.workload, agent, contention=contention, check=True)
    expected = ref.Holdings(case.own, agent.holdings, result.end_time)
    held = result.segments
    assert holdings(result) == sorted(agent.holdings, key=repr)
    assert result.energy_joules == pytest.approx(expected.energy(), rel=1e-12)
    assert series.power(result).integral() == pytest.approx(expected.energy(), rel=1e-9)
    span = result.metrics["makespan"]
    if span > 0 and not np.isnan(result.finish_time).any():
        assert result.metrics["utilization"] * case.platform.n_cpu_cores * span == pytest.approx(
            expected.core_seconds(), rel=1e-12
        )
        if case.platform.n_gpus:
            gpu_seconds = expected.core_seconds(gpus=True)
            assert result.metrics["gpu_hours"] * 3600 == pytest.approx(gpu_seconds, rel=1e-12)
    for job in np.flatnonzero(~np.isnan(result.finish_time)).tolist():
        assert result.jobs["consumed_energy"][job] == pytest.approx(expected.energy_of(job), rel=1e-12, abs=1e-12)
        last = expected.last(job) if any(own.job == job for own in agent.holdings) else []
        if last:
            union = sorted(set().union(*(own.cores for own in last)))
            assert IntervalSets.parse([result.jobs["allocated_resources"][job]]).ids.tolist() == union
            assert result.allocations[job] == ProcSet(*union)
        one = case.jobs[job]
        if one.fixed:
            assert result.jobs["execution_time"][job] == pytest.approx(one.runtime)
        elif contention == "none":
            assert expected.work(job) == pytest.approx(one.runtime * one.cores, abs=1e-9)
            assert result.jobs["slowdown_factor"][job] == pytest.approx(1.0)

    run = written(directory, result)
    with (directory / "machine_states.csv").open() as file:
        states = [(row["time"], row["nb_idle"], row["nb_computing"]) for row in csv.DictReader(file)]
    assert states == [(f"{time:.6f}", str(idle), str(busy)) for time, idle, busy in expected.states()]
    if not np.isnan(result.finish_time).any():
        assert run.segments.job.tolist() == held.job.tolist() and run.segments.cores.tolist() == held.cores.tolist()
        for curve in (series.power, series.busy_cores, series.busy_gpus, series.queue_length):
            assert curve(run).integral() == pytest.approx(curve(result).integral(), rel=1e-5, abs=1e-4)


def test_a_report_draws_every_segment(tmp_path: Path) -> None:
    from hdsim.report import panels
    from hdsim.report.charts import Blocks

    workload = Workload.from_columns(submission_time=[0], runtime=[50], requested_cores=[2])
    run = written(tmp_path, simulate(TEN, workload, Steps((10.0, [0, 1, 2, 3, 4, 6, 7, 8]))))
    blocks = panels.schedule(run).views[0].chart
    assert isinstance(blocks, Blocks)
    drawn = zip(blocks.start[blocks.item], blocks.finish[blocks.item], blocks.low, blocks.high, strict=True)
    assert [tuple(map(float, block)) for block in drawn] == [(0, 10, 0, 2), (10, 20, 0, 5), (10, 20, 6, 9)]
    assert panels.utilization(run).views[0].chart.lines[0].y.tolist()[:2] == [20, 80]


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("10.000000,20.000000,0-7", "10.000000,9.000000,0-7", "expected an end after each begin"),
        ("0-7", "", "cores in each row"),
        ("0-7", "5-10", "allocated_resources: expected interval sets: expected ids below 10"),
        ("0-7", "x", "allocated_resources: expected interval sets"),
        ("0,0,10", "0,-1,10", "attempt: "),
        ("attempt,", "", "expected rows of job_id,attempt,begin,end,allocated_resources,speed|fields"),
    ],
)
def test_a_damaged_allocations_csv_gives_one_error(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    workload = Workload.from_columns(submission_time=[0], runtime=[50], requested_cores=[2])
    written(tmp_path, simulate(TEN, workload, Steps((10.0, [0, 1, 2, 3, 4, 5, 6, 7]))))
    path = tmp_path / "allocations.csv"
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(ConfigError, match=complaint) as error:
        read(tmp_path)
    assert "allocations.csv" in str(error.value)


@examples(8, 100)
@given(case=cases(odd=True, memory=(0,)), seed=st.integers(0, 2**32))
def test_failures_undo_all_segments_of_an_attempt(
    tmp_path_factory: pytest.TempPathFactory, case: Case, seed: int
) -> None:
    agent = Resizer(seed, fixed_policy=False)
    failures = {"_target_": "hdsim.failures.Exponential", "mtbf": "20s", "mttr": "3s", "max_restarts": 3}
    result = simulate(case.platform, case.workload, agent, failures=failures, seed=seed % 1000, check=True)
    held = result.segments
    assert holdings(result) == sorted(agent.holdings, key=repr)
    lost = np.zeros(len(case.workload))
    for own in agent.holdings:
        failed = own.job in result.failed_permanently
        if failed or own.attempt < agent.attempts[own.job]:
            lost[own.job] += len(own.cores) * (own.end - own.begin)
    assert result.jobs["lost_core_seconds"] == pytest.approx(lost)
    assert result.jobs["restarts"].tolist() == [
        max(held.attempt[held.job == job].max(initial=0), 0) for job in range(len(case.workload))
    ]
    if not np.isnan(result.finish_time).any():
        run = written(tmp_path_factory.mktemp("run"), result)
        assert run.segments.requeued.tolist() == held.requeued.tolist()
        assert run.jobs["lost_core_seconds"] == pytest.approx(lost, abs=1e-4)
        assert series.queue_length(run).integral() == pytest.approx(series.queue_length(result).integral(), abs=1e-3)
