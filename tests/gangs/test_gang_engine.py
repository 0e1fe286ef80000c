"""Gangs as jobs of the engine: several on one machine, other jobs beside them, and what is refused."""

from __future__ import annotations

import csv
import json
import math
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Warm
from gang_cluster_reference import GangJob, Job, RigidJob
from gang_cluster_reference import simulate as simulate_slowly
from gang_inputs import noisy, random_generators, run
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tiers import examples

import hdsim
from hdsim.backends.base import make_backend
from hdsim.errors import ConfigError, WorkloadError
from hdsim.gangs.controllers import Controller, DynamicMpc, GangState, StaticWindow
from hdsim.gangs.jobs import beside, gang_jobs
from hdsim.gangs.planner import Budget, GreedyPlanner
from hdsim.gangs.profile import DurationProfile
from hdsim.gangs.simulation import Gang
from hdsim.gangs.workloads import Workloads
from hdsim.workload.model import Workload


class Scripted(Controller):
    """Plans every `every` supersteps: `part` of what it may hold beyond 1 millicore each, divided by `weights`."""

    def __init__(self, weights: NDArray[np.float64], part: float, every: int) -> None:
        self.weights, self.part, self.every = weights, part, every

    def choose(self, superstep: int, total: int) -> list[int] | None:
        if superstep % self.every:
            return None
        weights = np.roll(self.weights, superstep)
        return [1 + int(self.part * (total - len(weights)) * weight) for weight in weights]

    def decide(self, state: GangState) -> NDArray[np.int64] | None:
        chosen = self.choose(state.superstep, state.planner.budget.total)
        return None if chosen is None else np.array(chosen)


def machine(cores: int) -> hdsim.Platform:
    return hdsim.Platform.homogeneous(1, cores).of_kind("quantities")


def make_gang(
    profile: DurationProfile,
    controller: Controller,
    sizes: NDArray[np.float64],
    penalty: float = 5.0,
    total: int = 8000,
) -> Gang:
    predictions = np.repeat(sizes[:, None], 20, axis=1)
    planner = GreedyPlanner(profile, Budget(total=total), predictions)
    return Gang(planner, sizes, controller, 0, len(sizes), penalty)


def duration_of(gang: Gang) -> Callable[[int, list[int]], float]:
    def duration(superstep: int, shares: list[int]) -> float:
        pairs = zip(gang.planner.profile.surfaces, gang.actual[superstep], shares, strict=True)
        return max(float(surface(size, share)[0, 0]) for surface, size, share in pairs)

    return duration


@given(rng=random_generators, gangs=st.integers(1, 4), others=st.integers(0, 5), cores=st.integers(8, 20))
@examples(25)
def test_gangs_and_other_jobs_on_a_machine_are_as_in_a_plain_loop(
    rng: np.random.Generator, gangs: int, others: int, cores: int
) -> None:
    made, controllers = [], []
    for _ in range(gangs):
        tasks = int(rng.integers(1, 4))
        controller = Scripted(rng.dirichlet(np.ones(tasks)), float(rng.choice([1.0, 0.6])), int(rng.integers(1, 4)))
        sizes = rng.uniform(10.0, 50.0, (int(rng.integers(1, 8)), tasks))
        controllers.append(controller)
        made.append(make_gang(noisy(rng, tasks), controller, sizes, float(rng.uniform(0, 40))))
    times = np.sort(rng.uniform(0.0, 400.0, gangs))
    workload = gang_jobs(made, times - times[0])
    if others:
        rigid = Workload.from_columns(
            submission_time=rng.uniform(0.0, 600.0, others),
            runtime=rng.uniform(1.0, 500.0, others),
            requested_cores=rng.integers(1, cores + 1, others),
        )
        workload = beside(workload, rigid)
    jobs: list[Job] = []
    for row, gang in enumerate(workload.gang):
        submitted = float(workload.submission_time[row])
        if gang is None:
            jobs.append(RigidJob(submitted, 1000 * int(workload.requested_cores[row]), float(workload.runtime[row])))
            continue
        least = [gang.budget.start] * len(gang.tasks)
        jobs.append(
            GangJob(
                submitted,
                least,
                gang.budget.total,
                gang.supersteps,
                gang.penalty,
                gang.controller.choose,
                duration_of(gang),
            )
        )
    result = hdsim.simulate(machine(cores), workload, "fcfs", check=True)
    simulate_slowly(jobs, 1000 * cores)
    assert result.starting_time == pytest.approx([job.begin for job in jobs], rel=1e-9, abs=1e-9)
    assert result.finish_time == pytest.approx([job.end for job in jobs], rel=1e-9)
    for row, job in enumerate(jobs):
        if isinstance(job, GangJob):
            found = result.gangs[row]
            assert found.shares.tolist() == [shares for _, shares in job.rows]
            assert found.replanned.tolist() == [replanned for replanned, _ in job.rows]
    add_up(result, cores)


def add_up(result: Any, cores: int) -> None:
    """Allocations never exceed the machine; every superstep and every penalty counts once."""
    held = result.segments
    for instant in np.unique(held.begin):
        assert held.cpu_cores[(held.begin <= instant) & (instant < held.end)].sum() <= cores + 1e-9
    for job, ran in result.gangs.items():
        gang = result.workload.gang[job]
        assert len(ran.durations) == gang.supersteps
        assert result.finish_time[job] - result.starting_time[job] == pytest.approx(ran.metrics["total"], rel=1e-9)
        own = np.flatnonzero(held.job == job)
        assert (held.begin[own[1:]] == held.end[own[:-1]]).all()
        assert held.begin[own[0]] == result.starting_time[job] and held.end[own[-1]] == result.finish_time[job]
        amounts = ran.shares.sum(axis=1) / 1000
        changes = np.flatnonzero(np.append(True, amounts[1:] != amounts[:-1]))
        assert held.cpu_cores[own].tolist() == amounts[changes].tolist()
    totals = [ran.metrics["total"] for ran in result.gangs.values()]
    assert result.metrics["total"] == pytest.approx(np.mean(totals))


@pytest.fixture
def profile() -> DurationProfile:
    return noisy(np.random.default_rng(3), 3)


@pytest.mark.parametrize("controller", [StaticWindow(2), DynamicMpc(3)], ids=["static_window", "dynamic_mpc"])
def test_a_gang_beside_idle_cpu_runs_as_alone(profile: DurationProfile, controller: Controller) -> None:
    sizes = np.random.default_rng(4).uniform(10.0, 50.0, (12, 3))
    gang = make_gang(profile, controller, sizes, penalty=15.0)
    beside_gang = Workload.from_columns(submission_time=[0, 5, 100], runtime=[90, 9, 900], requested_cores=[2, 4, 4])
    result = hdsim.simulate(machine(14), beside(gang_jobs([gang]), beside_gang), "fcfs", check=True)
    workloads = Workloads(sizes, gang.planner.predictions)
    alone = run(profile, workloads, controller, supersteps=12, budget=gang.budget)
    shared = result.gangs[0]
    assert (shared.shares == alone.shares).all() and (shared.durations == alone.durations).all()
    assert shared.metrics == alone.metrics
    assert result.finish_time[0] == pytest.approx(alone.metrics["total"], rel=1e-12)


def test_a_gang_grows_when_a_job_ends_and_what_it_gives_back_starts_the_next(profile: DurationProfile) -> None:
    class Once(Controller):
        """All it can get, and half of that for the last superstep."""

        def decide(self, state: GangState) -> NDArray[np.int64]:
            part = 6 if state.remaining == 1 else 3
            return np.full(3, state.planner.budget.total // part)

    gang = make_gang(profile, Once(), np.full((4, 3), 30.0), penalty=10.0, total=9000)
    # The second job arrives when the gang has grown.
    others = Workload.from_columns(submission_time=[0, 300], runtime=[100, 50], requested_cores=[5, 4])
    result = hdsim.simulate(machine(9), beside(gang_jobs([gang]), others), "fcfs", check=True)
    assert result.gangs[0].shares.sum(axis=1).tolist() == [3999, 9000, 9000, 4500]
    begins = result.segments.begin[result.segments.job == 0]
    assert begins[1] < 300.0 < begins[2] and result.starting_time[2] == begins[2]


def test_a_killed_gang_has_the_supersteps_that_ended(profile: DurationProfile) -> None:
    class Killer(hdsim.Agent):
        def decide(self, cluster: Any) -> None:
            for job in list(cluster.queue):
                cluster.start(job)
                cluster.call_me_later(200.0)
            if cluster.now == 200.0 and cluster.running:
                cluster.kill(0)

    gang = make_gang(profile, StaticWindow(1), np.full((50, 3), 40.0), penalty=7.0)
    simulation = hdsim.Simulation(machine(8), gang_jobs([gang]), Killer())
    simulation.run_until(150.0)
    progress = simulation.env.progress(0)
    result = simulation.run()
    ran = result.gangs[0]
    assert result.finish_time[0] == 200.0 and result.jobs["final_state"][0] == "COMPLETED_KILLED"
    ends = ran.durations.max(axis=1).cumsum() + 7.0 * np.arange(len(ran.durations))
    assert ends[-1] <= 200.0 < ends[-1] + 7.0 + ran.durations.max(axis=1)[-1]
    assert progress.steps == (ends <= 150.0).sum() and 0 < progress.share < 1


def test_what_gangs_cannot_have_is_refused_by_name(profile: DurationProfile, tmp_path: Path) -> None:
    workload = gang_jobs([make_gang(profile, StaticWindow(1), np.full((3, 3), 40.0))])
    with pytest.raises(ConfigError, match="expected quantities with gangs, whose tasks hold parts of cores, got cores"):
        hdsim.simulate(hdsim.Platform.homogeneous(1, 8), workload)
    for agent in ("easy", "conservative", "conservative-sjf"):
        with pytest.raises(ConfigError, match=r"agent.backfill: expected none or greedy with gangs, got \w+"):
            hdsim.simulate(machine(8), workload, agent)
    with pytest.raises(ConfigError, match="failures: expected none with gangs, got"):
        hdsim.simulate(machine(8), workload, failures="external")
    with pytest.raises(ConfigError, match="contention: expected none with quantities of nodes"):
        loaded = workload.replaced(memory_bandwidth=4.0)
        hdsim.simulate(
            hdsim.Platform.homogeneous(1, 8, mem_bw=10.0).of_kind("quantities"), loaded, contention="threshold"
        )
    for backend in ("batsim", "kwok"):
        with pytest.raises(ConfigError, match=f"backend={backend}: .*expected jobs without gangs"):
            make_backend(backend).check(machine(8), workload)
    rigid = Workload.from_columns(submission_time=[0], runtime=[10], requested_cores=[1])
    simulation = hdsim.Simulation(machine(8), rigid, open_ended=True)
    with pytest.raises(WorkloadError, match="expected jobs without gangs, since none of the initial jobs is a gang"):
        simulation.env.add(workload)


def test_gangs_that_arrive_during_a_simulation_run(profile: DurationProfile) -> None:
    gang = gang_jobs([make_gang(profile, StaticWindow(1), np.full((3, 3), 40.0))])
    simulation = hdsim.Simulation(machine(8), gang, open_ended=True)
    simulation.run_until(10.0)
    later = gang_jobs([make_gang(profile, StaticWindow(1), np.full((3, 3), 40.0))])
    simulation.env.add(later.replaced(job_id=np.array(["later"], object)))
    result = simulation.run()
    assert len(result.gangs) == 2 and not np.isnan(result.finish_time).any()


def bsp(warm: Warm, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*warm.command("hdsim"), "bsp", *arguments], cwd=folder, capture_output=True, text=True)


@pytest.mark.nightly
def test_runs_of_several_gangs_are_repeatable_and_compared_by_controller(warm: Warm, tmp_path: Path) -> None:
    arguments = (
        "gangs=3",
        "interarrival=100",
        "supersteps=8",
        "workload=lublin",
        "workload.generate.jobs=200",
        "workload.generate.processors=16",
    )
    sweep = ("share", "-m", *arguments, "controller=static,static_window", "seed=1,2", "hydra.sweep.dir=one")
    again = ("share", *arguments, "controller=static", "seed=1", "hydra.run.dir=two")
    for command in (sweep, again):
        done = bsp(warm, tmp_path, *command)
        assert done.returncode == 0, done.stderr
    first = tmp_path / "one/controller=static,seed=1"
    for path in [*first.glob("*.csv"), first / "metrics.json"]:
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes(), path.name
    rows = list(csv.DictReader((first / "gangs.csv").open()))
    assert [row["job_id"] for row in rows] == [f"gang{number}" for number in range(3) for _ in range(8)]
    jobs = {row["job_id"]: row for row in csv.DictReader((first / "jobs.csv").open())}
    assert len(jobs) == 203
    for number in range(3):
        own = [row for row in rows if row["job_id"] == f"gang{number}"]
        end = float(own[-1]["begin"]) + float(own[-1]["duration"])
        assert float(own[0]["begin"]) == float(jobs[f"gang{number}"]["starting_time"])
        assert end == pytest.approx(float(jobs[f"gang{number}"]["finish_time"]), abs=1e-5)
    metrics = json.loads((first / "metrics.json").read_text())
    assert metrics["total"] == pytest.approx(metrics["duration"] + 15 * metrics["checkpoints"])
    assert not math.isnan(metrics["mean_waiting_time"])
    done = subprocess.run(
        [*warm.command("hdsim"), "compare", "one", "--metric", "total"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    totals = list(csv.DictReader((tmp_path / "compare.csv").open()))
    assert [(row["runs"], row["paired_by"]) for row in totals] == [("2", ""), ("2", "run")]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["agent=easy"], "agent.backfill: expected none or greedy with gangs, got easy"),
        (["platform.kind=cores"], "expected quantities with gangs"),
        (["gangs=0"], "gangs: expected a whole number >= 1, got 0"),
        (["interarrival=-1"], "interarrival: expected a number >= 0, got -1"),
        (["platform=one_nod"], "(did you mean 'one_node'?)"),
        (["agent=fcsf"], "(did you mean 'fcfs'?)"),
        (["workload=lublin", "workload.jbos=3"], "workload.jbos: unknown key (did you mean 'jobs'?)"),
        (["start=999"], "supersteps: expected start + supersteps of at most 1000, the rows of the series, got 1001"),
    ],
)
def test_a_mistake_is_one_message(warm: Warm, tmp_path: Path, arguments: list[str], message: str) -> None:
    done = bsp(warm, tmp_path, "share", "supersteps=2", *arguments, "hydra.run.dir=run")
    assert done.returncode == 2, done.stderr + done.stdout
    assert message in done.stderr and "Traceback" not in done.stderr
