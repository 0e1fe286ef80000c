"""Frequencies: closed forms, a second computation of every figure, caps, and what refuses them."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import frequency_reference as ref
import numpy as np
import pytest
from tiers import ci

from hdsim import Agent, Platform, Simulation, Workload, simulate
from hdsim.cluster.state import Cluster
from hdsim.errors import ConfigError, DecisionError, WorkloadError
from hdsim.platform.power import present_power
from hdsim.results import series
from hdsim.results.result import Result
from hdsim.results.run_directory.directory import RunDirectory
from hdsim.results.run_directory.reader import read
from hdsim.workload.frequency_bound import frequency_bound_of, with_frequency_bound

POINTS = [ref.Point(1.0, 4.0), ref.Point(1.6, 6.0), ref.Point(2.0, 10.0), ref.Point(2.4, 15.0)]
NOMINAL, BUSY, IDLE = 2.0, 10.0, 0.5


def points(scale: float = 1.0) -> list[dict[str, float]]:
    return [{"ghz": point.ghz, "static_watts": scale, "dynamic_watts": scale * (point.watts - 1.0)} for point in POINTS]


def nodes(number: int, cores: int = 1, **keys: Any) -> Platform:
    return Platform.homogeneous(number, cores, NOMINAL, power_per_core=BUSY, frequencies=points(), **keys)


def jobs(*rows: tuple[float, float, int, float], **columns: Any) -> Workload:
    """Jobs as (submission, run time, cores, share that is bound by the frequency)."""
    submission, runtime, cores, bound = zip(*rows, strict=True)
    return Workload.from_columns(
        submission_time=submission,
        runtime=runtime,
        requested_cores=cores,
        further={"frequency_bound": np.array(bound, float)},
        **columns,
    )


def power(**keys: Any) -> dict[str, Any]:
    return {"_target_": "hdsim.power.PowerManagement", **keys}


class Changes(Agent):
    """Serves jobs in order, and calls functions of the cluster at given dates."""

    def __init__(self, changes: dict[float, Callable[[Cluster], None]], ghz: dict[int, float] | None = None) -> None:
        self.changes, self.ghz = changes, dict(ghz or {})

    def begin(self, cluster: Cluster) -> None:
        for date in self.changes:
            if date > 0:
                cluster.call_me_later(date)

    def decide(self, cluster: Cluster) -> None:
        for job in list(cluster.queue):
            if job in self.ghz:
                cluster.set_frequency(job, self.ghz.pop(job))
            if not cluster.fits(job):
                break
            cluster.start(job)
        change = self.changes.get(cluster.now)
        if change is not None:
            change(cluster)


def ghz_of(result: Result) -> np.ndarray:
    """The frequency of each segment."""
    ghz = result.segments.ghz
    return np.full(len(result.segments), NOMINAL) if ghz is None else np.where(np.isnan(ghz), NOMINAL, ghz)


def check_energy(result: Result) -> None:
    """The energy is that of all cores one by one, of the power at every instant and of who pays for it."""
    platform, held = result.platform, result.segments
    ghz, first = ghz_of(result), platform.processor_first_core.tolist()
    cores = [range(begin, end) for begin, end in pairwise(first)]
    watts = platform.power.tolist()
    at = [{point.ghz: watt * point.watts / BUSY for point in POINTS} for watt in watts]
    rows = [
        (begin, end, list(one), frequency)
        for begin, end, one, frequency in zip(
            held.begin.tolist(), held.end.tolist(), held.held.procsets(), ghz.tolist(), strict=True
        )
    ]
    expected = ref.joules(cores, watts, rows, at, result.end_time)
    assert math.isclose(result.energy_joules, expected, rel_tol=1e-9)
    assert math.isclose(series.power(result).integral(), expected, rel_tol=1e-9)
    own = np.zeros(len(result.workload))
    for job, (begin, end, ids, frequency) in zip(held.job.tolist(), rows, strict=True):
        owners = platform.core_processor[ids]
        own[job] += (end - begin) * sum(at[processor][frequency] for processor in owners)
    assert result.jobs["consumed_energy"] == pytest.approx(own, rel=1e-9)
    if result.costs is not None:
        costs = result.costs
        assert math.isclose(costs.total[0] * 3.6e6, expected, rel_tol=1e-9)
        assert (costs.jobs.sum(axis=1) + costs.idle)[:3] == pytest.approx(costs.total[:3], rel=1e-9)
        assert (costs.jobs[0] * 3.6e6 >= own * (1 - 1e-9)).all()
        assert costs.idle[0] >= -1e-12


# Closed forms


@pytest.mark.parametrize("bound", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("ghz", [1.0, 1.6, 2.0, 2.4])
def test_time_and_energy_of_a_job_at_one_frequency(ghz: float, bound: float) -> None:
    """Bound share x nominal / ghz + the rest; watts of the point on the busy cores, of idle ones beside them."""
    result = simulate(nodes(2, 4), jobs((0, 100, 3, bound)), "fcfs", power=power(frequency=ghz), check=True)
    seconds = 100 * (bound * NOMINAL / ghz + 1 - bound)
    watts = dict(POINTS)[ghz]
    assert result.finish_time[0] == pytest.approx(seconds, rel=1e-12)
    assert result.energy_joules == pytest.approx(seconds * (3 * watts + 2.5 + 4 * IDLE), rel=1e-12)
    assert result.jobs["consumed_energy"][0] == pytest.approx(seconds * 3 * watts, rel=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_a_job_whose_frequency_changes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    bound, dates = rng.uniform(), np.sort(rng.uniform(0, 200, 12))
    chosen = [POINTS[place].ghz for place in rng.integers(0, 4, 13)]
    left, now, joules = 100.0, 0.0, 0.0
    for ghz, date in zip(chosen, [*dates.tolist(), math.inf], strict=True):
        slowdown = ref.stretched(bound, NOMINAL, ghz)
        seconds = min(date - now, left * slowdown)
        joules += seconds * dict(POINTS)[ghz]
        left, now = left - seconds / slowdown, now + seconds
        if left <= 1e-9:
            break

    def to(ghz: float) -> Callable[[Cluster], None]:
        return lambda cluster: cluster.set_frequency(0, ghz) if 0 in cluster.running else None

    agent = Changes({date: to(ghz) for date, ghz in zip(dates.tolist(), chosen[1:], strict=True)}, {0: chosen[0]})
    result = simulate(nodes(1), jobs((0, 100, 1, bound)), agent, check=True)
    assert result.finish_time[0] == pytest.approx(now, rel=1e-9)
    assert result.energy_joules == pytest.approx(joules, rel=1e-9)


def test_a_fixed_duration_takes_its_seconds_and_the_watts_of_the_frequency() -> None:
    workload = jobs((0, 100, 1, 1.0)).replaced(fixed_duration=np.array([True]))
    result = simulate(nodes(1), workload, "fcfs", power=power(frequency=1.0), check=True)
    assert result.finish_time.tolist() == [100]
    assert result.energy_joules == pytest.approx(400)


@pytest.mark.parametrize("contention", ["threshold", "fair_share"])
def test_the_rates_of_contention_and_of_the_frequency_multiply(contention: str) -> None:
    """Two jobs ask for twice the bandwidth: 75 % of the speed, or half of it."""
    workload = jobs((0, 90, 1, 0.4), (0, 90, 1, 0.0)).replaced(memory_bandwidth=np.array([10.0, 10.0]))
    rate = {"threshold": 0.75, "fair_share": 0.5}[contention]
    result = simulate(nodes(1, 2, mem_bw=10.0), workload, Changes({}, {0: 1.0, 1: 1.6}), contention=contention)
    # The second job, which is not bound by the frequency, ends first; then the first one has the bandwidth.
    assert result.finish_time[1] == pytest.approx(90 / rate, rel=1e-9)
    slowdown = ref.stretched(0.4, NOMINAL, 1.0)
    left = 90 - 90 / rate * rate / slowdown
    assert result.finish_time[0] == pytest.approx(90 / rate + left * slowdown, rel=1e-9)
    check_energy(result)


def test_the_speed_of_cores_and_the_frequency_of_a_job_multiply() -> None:
    changes = {
        10.0: lambda cluster: cluster.set_speed([0], 0.5),
        20.0: lambda cluster: cluster.set_frequency(0, 1.0),
        60.0: lambda cluster: cluster.set_speed([0], 1.0),
    }
    result = simulate(nodes(1), jobs((0, 100, 1, 1.0), (0, 10, 1, 1.0)), Changes(changes), check=True)
    # 10 s, 5 s and 10 s are done by 60 s; the rest at half of the speed. The next job has the core to itself.
    assert result.finish_time.tolist() == pytest.approx([60 + 2 * 75, 220])
    assert result.segments.ghz is not None
    assert result.segments.speed.tolist() == [1, 0.5, 0.5, 1, 1]


def test_a_job_that_is_resized_keeps_its_frequency() -> None:
    changes = {40.0: lambda cluster: cluster.resize_on(0, [0, 1])}
    result = simulate(nodes(1, 2), jobs((0, 100, 1, 1.0)), Changes(changes, {0: 1.0}), check=True)
    assert result.finish_time.tolist() == pytest.approx([40 + 80])
    check_energy(result)


# The second computation


def random_jobs(rng: np.random.Generator, number: int, cores: int = 1) -> Workload:
    arrivals = np.concatenate([[0.0], np.cumsum(rng.exponential(15.0, number - 1))])
    return Workload.from_columns(
        submission_time=arrivals,
        runtime=rng.uniform(5, 90, number),
        requested_cores=rng.integers(1, cores + 1, number),
        user=rng.integers(0, 3, number),
        further={"frequency_bound": rng.uniform(0, 1, number)},
    )


@pytest.mark.parametrize("what", ["wait", "slow", "raise"])
@pytest.mark.parametrize("seed", [*range(4), *ci(*range(4, 25))])
def test_a_queue_under_a_cap_is_that_of_a_second_program(seed: int, what: str) -> None:
    rng = np.random.default_rng(seed)
    number, workload = int(rng.integers(2, 5)), random_jobs(rng, 25)
    cap = float(rng.uniform(BUSY + (number - 1) * IDLE, 0.9 * number * BUSY))
    management = power(cap=cap, when_capped=what)
    result = simulate(nodes(number), workload, "fcfs", power=management, check=True)
    starts, ends, ghz, joules = ref.serve(
        workload.submission_time.tolist(),
        workload.runtime.tolist(),
        frequency_bound_of(workload).tolist(),
        number,
        POINTS,
        nominal=NOMINAL,
        idle=IDLE,
        cap=cap,
        slows=what != "wait",
        rises=what == "raise",
    )
    assert result.starting_time == pytest.approx(starts, rel=1e-9)
    assert result.finish_time == pytest.approx(ends, rel=1e-9)
    assert result.energy_joules == pytest.approx(joules, rel=1e-9)
    assert result.metrics["joules_above_cap"] == 0
    if what != "wait":
        held = result.segments
        assert ghz_of(result)[np.lexsort([held.begin, held.job])].tolist() == [
            each for of_job in ghz for each in of_job
        ]


def two_types() -> Platform:
    """Nodes of two processors of three cores, the second type of half the speed and twice the watts, and a GPU."""
    kinds = {"thin": (1.0, 2.0), "fat": (2.0, 1.0)}
    return Platform.from_dict(
        {
            "clusters": [{"id": "c", "nodes": [{"type": name, "number": 2} for name in kinds]}],
            "types": {
                "node": {name: {"processors": [{"type": name, "number": 2}]} for name in kinds},
                "processor": {
                    name: {
                        "cores": 3,
                        "clock_rate": NOMINAL,
                        "dpflops_per_cycle": speed,
                        "power": 3 * BUSY * scale,
                        "mem_bw": 30,
                        "frequencies": points(scale),
                    }
                    for name, (scale, speed) in kinds.items()
                },
            },
        }
    )


class AtRandom(Agent):
    """Starts what fits at random frequencies and changes those of running jobs at random."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def decide(self, cluster: Cluster) -> None:
        for job in list(cluster.queue):
            cluster.set_frequency(job, float(self.rng.choice([point.ghz for point in POINTS])))
            if cluster.fits(job):
                cluster.start(job)
        for job in list(cluster.running):
            if self.rng.random() < 0.4:
                try:
                    cluster.set_frequency(job, float(self.rng.choice([point.ghz for point in POINTS])))
                except DecisionError as error:
                    assert "break a cap" in str(error)
        if cluster.running or cluster.queue:
            cluster.call_me_later(cluster.now + float(self.rng.uniform(1, 20)))


@pytest.mark.parametrize("contention", ["none", "fair_share"])
@pytest.mark.parametrize("seed", [0, 1, *ci(*range(2, 10))])
def test_energy_costs_and_progress_at_random_frequencies(seed: int, contention: str) -> None:
    workload = random_jobs(np.random.default_rng(seed), 25, cores=8)
    facility = {"price": 0.2, "begin": "2026-03-02T00:00Z"}
    result = simulate(
        two_types(), workload, AtRandom(seed), check=True, facility=facility, contention=contention, seed=seed
    )
    check_energy(result)
    if contention == "none":
        # What a job has done in its segments is its run time.
        held, platform, bound = result.segments, result.platform, frequency_bound_of(workload)
        speeds = platform.core_gflops() / platform.reference_gflops
        done = np.zeros(len(workload))
        assert held.ghz is not None
        for row, (job, cores) in enumerate(zip(held.job.tolist(), held.held.procsets(), strict=True)):
            ghz = NOMINAL if np.isnan(held.ghz[row]) else held.ghz[row]
            rate = speeds[list(cores)].min() / ref.stretched(bound[job], NOMINAL, ghz)
            done[job] += rate * (held.end[row] - held.begin[row])
        assert done == pytest.approx(workload.runtime, rel=1e-9)


@pytest.mark.parametrize("agent", ["fcfs", "easy", "greedy"])
@pytest.mark.parametrize("seed", [0, 1, *ci(*range(2, 12))])
def test_no_cap_is_broken_by_jobs_that_are_slowed(seed: int, agent: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    workload = random_jobs(rng, 40, cores=8)
    steps = "".join(f"{60 * step},{rng.uniform(140, 360)}\n" for step in range(20))
    (tmp_path / "cap.csv").write_text("time,watts\n" + steps)
    cap: Any = str(tmp_path / "cap.csv") if seed % 2 else {"machine": 0.5, "c": 200.0}
    results = {
        what: simulate(two_types(), workload, agent, power=power(cap=cap, when_capped=what), check=True)
        for what in ("wait", "slow", "raise")
    }
    for result in results.values():
        assert result.metrics["joules_above_cap"] == 0
        check_energy(result)
    assert results["slow"].segments.ghz is not None
    ran = {what: np.count_nonzero(~np.isnan(result.finish_time)) for what, result in results.items()}
    assert ran["slow"] >= ran["wait"] and ran["raise"] >= ran["wait"]


def test_no_cap_is_broken_by_an_agent_that_changes_frequencies() -> None:
    for seed in range(4):
        workload = random_jobs(np.random.default_rng(seed), 25, cores=4)
        result = simulate(two_types(), workload, AtRandom(seed), power=power(cap=0.5), check=True)
        assert result.metrics["joules_above_cap"] == 0
        check_energy(result)


# Rules


@pytest.mark.parametrize("order", ["sjf", "unicef"])
def test_orders_take_the_stretched_requested_times(order: str) -> None:
    """At half of the frequency a job that is bound by it takes 200 s, one that is not still 150 s."""
    workload = jobs((0, 50, 1, 0.0), (0, 100, 1, 1.0), (0, 150, 1, 0.0))
    for ghz, starts in ((2.0, [0, 50, 150]), (1.0, [0, 200, 50])):
        result = simulate(nodes(1), workload, order, power=power(frequency=ghz), check=True)
        assert result.starting_time.tolist() == starts


def test_easy_reserves_with_the_stretched_requested_times() -> None:
    """At half of the frequency the head can start at 200 s, and a job of 150 s, 300 s there, may not delay it."""
    workload = jobs((0, 100, 1, 1.0), (1, 50, 2, 1.0), (2, 90, 1, 1.0), (3, 150, 1, 1.0))
    result = simulate(nodes(2), workload, "easy", power=power(frequency=1.0), check=True)
    assert result.starting_time.tolist() == [0, 200, 2, 300]
    for agent in ("conservative", "easy"):
        slowed = workload.replaced(runtime=workload.runtime * 2, requested_time=workload.requested_time * 2)
        result = simulate(nodes(2), workload, agent, power=power(frequency=1.0), check=True)
        expected = simulate(nodes(2), slowed, agent, check=True)
        assert result.starting_time.tolist() == expected.starting_time.tolist()
        assert result.finish_time.tolist() == expected.finish_time.tolist()


def test_reservations_follow_a_running_job_that_is_slowed() -> None:
    from hdsim.agents.classic import ClassicAgent

    class Slowing(ClassicAgent):
        def decide(self, cluster: Cluster) -> None:
            super().decide(cluster)
            if cluster.now == 1:
                cluster.set_frequency(0, 1.0)

    # Slowed at 1 s, job 0 is expected to end at 199 s: a job of 150 s fits before the head.
    workload = jobs((0, 100, 1, 1.0), (1, 50, 2, 1.0), (2, 150, 1, 1.0))
    result = simulate(nodes(2), workload, Slowing(backfill="easy"), check=True)
    assert result.starting_time.tolist() == [0, 199, 2]
    assert simulate(nodes(2), workload, "easy").starting_time.tolist() == [0, 100, 150]


def test_a_job_that_runs_at_no_higher_frequency_is_not_rejected() -> None:
    """4 x 10 W are too much at any time, 4 x 6 W are not."""
    workload = jobs((0, 60, 1, 1.0), (1, 100, 4, 0.5))
    for agent in ("fcfs", "easy"):
        result = simulate(nodes(4), workload, agent, power=power(cap=25, when_capped="slow"), check=True)
        assert result.starting_time.tolist() == [0, 60]
        assert result.finish_time[1] == pytest.approx(60 + 100 * ref.stretched(0.5, NOMINAL, 1.6))
    result = simulate(nodes(4), workload, "easy", power=power(cap=25), check=True)
    assert np.isnan(result.finish_time[1])


@pytest.mark.parametrize("agent", ["fcfs", "easy", "greedy"])
def test_a_slowed_job_rises_when_another_one_ends(agent: str) -> None:
    """Beside 10 W there are 6 W for the second job until 100 s, when it has done 80 s of its work."""
    workload = jobs((0, 100, 1, 1.0), (0, 200, 1, 1.0))
    result = simulate(nodes(2), workload, agent, power=power(cap=16, when_capped="raise"), check=True)
    assert result.finish_time.tolist() == pytest.approx([100, 220])
    assert result.energy_joules == pytest.approx(100 * (10 + 6) + 120 * (10 + IDLE))
    assert ghz_of(result).tolist() == [2.0, 1.6, 2.0]
    check_energy(result)


def test_a_slowed_job_rises_step_by_step_with_the_cap(tmp_path: Path) -> None:
    """1.0 GHz until 50 s, 1.6 GHz until 100 s: 25 s and 40 s of the work are done; not before it falls."""
    (tmp_path / "cap.csv").write_text("time,watts\n0,4\n50,6\n100,10\n")
    management = power(cap=str(tmp_path / "cap.csv"), when_capped="raise")
    result = simulate(nodes(1), jobs((0, 100, 1, 1.0)), "easy", power=management, check=True)
    assert result.finish_time.tolist() == pytest.approx([135])
    assert result.energy_joules == pytest.approx(50 * 4 + 50 * 6 + 35 * 10)
    (tmp_path / "cap.csv").write_text("time,watts\n0,4\n50,10\n100,4\n")
    result = simulate(nodes(1), jobs((0, 100, 1, 1.0)), "easy", power=management, check=True)
    assert result.finish_time.tolist() == pytest.approx([200])


def test_slowed_jobs_rise_beside_a_reservation_that_they_leave() -> None:
    """The head can start with 12 W when the third job, of 4 W, has ended, beside the second one, which has 6 W.

    At 100 s the third job rises to 10 W: it has done 50 s of its work and ends at 210 s. The second one would take
    power of the head, and rises when that has ended. Without a reservation none rises while a job waits.
    """
    workload = jobs((0, 100, 1, 1.0), (0, 800, 1, 1.0), (0, 160, 1, 1.0), (10, 100, 3, 1.0))
    capped = power(cap=21, when_capped="raise")
    result = simulate(nodes(5), workload, "easy", power=capped, check=True)
    assert result.starting_time.tolist() == pytest.approx([0, 0, 0, 210])
    assert result.finish_time.tolist() == pytest.approx([100, 410 + (800 - 410 * 0.8), 210, 410])
    check_energy(result)
    for agent in ("fcfs", "greedy"):
        result = simulate(nodes(5), workload, agent, power=capped, check=True)
        assert result.finish_time.tolist() == pytest.approx([100, 520 + (800 - 520 * 0.8), 320, 520])


def test_slowed_jobs_rise_on_a_full_machine(tmp_path: Path) -> None:
    """The second job has 6 W until the cap rises at 100 s; then it ends at 260 s, not at 300 s."""
    (tmp_path / "cap.csv").write_text("time,watts\n0,16\n100,20\n")
    workload = jobs((0, 280, 1, 1.0), (0, 240, 1, 1.0), (10, 50, 2, 1.0))
    management = power(cap=str(tmp_path / "cap.csv"), when_capped="raise")
    for agent, start in (("easy", 280.0), ("fcfs", 300.0)):
        result = simulate(nodes(2), workload, agent, power=management, check=True)
        assert result.starting_time.tolist() == pytest.approx([0, 0, start])


def test_an_agent_may_not_raise_a_frequency_above_a_cap() -> None:
    seen: list[str] = []

    def raise_it(cluster: Cluster) -> None:
        for ghz in (None, 1.6):
            try:
                cluster.set_frequency(1, ghz)
            except DecisionError as error:
                seen.append(str(error))

    # 10 + 4 W; 6 W more are too much, 2 W are not.
    agent = Changes({20.0: raise_it}, {1: 1.0})
    result = simulate(nodes(2), jobs((0, 100, 1, 1.0), (0, 100, 1, 1.0)), agent, power=power(cap=17), check=True)
    assert seen == ["job 1 cannot be set to a frequency: its power would break a cap"]
    assert result.finish_time.tolist() == pytest.approx([100, 20 + 90 * 1.25])


def test_a_job_whose_node_fails_starts_again_at_the_default() -> None:
    simulation = Simulation(nodes(1), jobs((0, 100, 1, 1.0)), Changes({}, {0: 1.0}), failures="external", check=True)
    env = simulation.env

    def outage() -> Any:
        yield env.at(50)
        yield env.fail(0, until=60)

    env.process(outage())
    result = simulation.run()
    assert result.finish_time.tolist() == [160]
    assert result.segments.ghz is not None
    assert np.isnan(result.segments.ghz).tolist() == [False, True]
    check = 50 * 4 + 100 * 10
    assert result.jobs["consumed_energy"][0] == pytest.approx(check)


def test_jobs_that_wait_for_their_nodes_have_frequencies() -> None:
    states = {"off": {"watts": 1}, "booting": {"watts": 4, "seconds": 30}, "going_down": {"watts": 2, "seconds": 5}}
    workload = jobs((0, 10, 1, 1.0), (100, 50, 1, 1.0))
    result = simulate(
        nodes(1, states=states), workload, "easy", power=power(suspend_time=20, frequency=1.0), check=True
    )
    assert result.starting_time.tolist() == [0, 130]
    assert result.finish_time.tolist() == [20, 230]
    # 20 s at 4 W, idle for 20 s, down for 5 s, off for 55 s, a boot of 30 s, 100 s at 4 W.
    assert result.energy_joules == pytest.approx(20 * 4 + 20 * IDLE + 5 * 2 + 55 * 1 + 30 * 4 + 100 * 4)


def test_a_fork_has_the_frequencies_and_changes_nothing() -> None:
    seen: list[float] = []

    def look(cluster: Cluster) -> None:
        fork = cluster.fork(Changes({}))
        fork.run()
        seen.append(fork.cluster.finish_time[0])
        cluster.set_frequency(0)

    result = simulate(nodes(1), jobs((0, 100, 1, 1.0)), Changes({50.0: look}, {0: 1.0}), check=True)
    assert seen == pytest.approx([200])
    assert result.finish_time.tolist() == pytest.approx([125])


def test_a_fork_has_the_frequencies_of_jobs_that_have_yet_to_start() -> None:
    simulation = Simulation(nodes(1), jobs((0, 10, 1, 1.0), (0, 20, 1, 1.0)), Changes({}))
    simulation.run_until(5)
    simulation.cluster.set_frequency(1, 1.0)
    fork = simulation.fork("fcfs", runtimes="actual", arrivals="actual")
    assert fork.run().finish_time.tolist() == [10, 50]


def test_a_job_that_comes_back_has_the_requested_time_of_the_default() -> None:
    """Also where no job has had another frequency than the nominal one yet."""
    changes = Changes({5: lambda cluster: None if cluster.submitted else cluster.requeue(0)}, ghz={0: NOMINAL})
    simulation = Simulation(nodes(1), jobs((0, 10, 1, 1.0)), changes, power=power(frequency=1.0))
    simulation.run_until(4)
    assert simulation.cluster.requested_time == [10]
    simulation.run_until(6)
    assert simulation.cluster.requested_time == [20]
    assert simulation.run().finish_time.tolist() == [25]


def test_the_present_power_knows_the_frequencies() -> None:
    """Objectives of environments add it to the power at the nominal frequency."""
    simulation = Simulation(two_types(), random_jobs(np.random.default_rng(5), 20, cores=8), AtRandom(5), seed=5)
    seen = {}
    for date in np.linspace(7.1, 300.1, 30).tolist():
        simulation.run_until(date)
        cluster = simulation.cluster
        busy = np.zeros(cluster.platform.n_processors, int)
        for job in cluster.running:
            np.add.at(busy, cluster.platform.core_processor[cluster.core_ids(job)], 1)
        seen[date] = present_power(cluster.platform, busy) + cluster.more_watts()
    power_at = series.power(simulation.run())
    assert list(seen.values()) == pytest.approx(power_at.at(np.array(list(seen))), rel=1e-9)


def test_a_run_directory_has_the_frequencies(tmp_path: Path) -> None:
    texts = []
    for name in ("one", "two"):
        workload = random_jobs(np.random.default_rng(3), 20, cores=8)
        result = simulate(two_types(), workload, AtRandom(3), seed=3)
        directory = RunDirectory(tmp_path / name)
        directory.start({}, result.platform, result.workload)
        directory.finish(result)
        texts.append((tmp_path / name / "allocations.csv").read_text())
    assert texts[0] == texts[1]
    assert texts[0].splitlines()[0].endswith(",speed,ghz")
    again = read(tmp_path / "one")
    assert series.power(again).integral() == pytest.approx(series.power(result).integral(), rel=1e-7)


def test_a_platform_with_frequencies_that_nobody_uses_is_replayed_as_one_without(tmp_path: Path) -> None:
    workload = random_jobs(np.random.default_rng(1), 60, cores=4)
    plain = Platform.homogeneous(4, 2, NOMINAL, power_per_core=BUSY)
    for agent in ("easy", "conservative"):
        with_points, without = (simulate(platform, workload, agent) for platform in (nodes(4, 2), plain))
        assert with_points.engine == without.engine
        assert with_points.engine["mode"] == "compiled"
        assert with_points.starting_time.tolist() == without.starting_time.tolist()
        assert with_points.energy_joules == without.energy_joules


# Workloads


def test_shares_come_from_a_column_or_are_drawn() -> None:
    workload = jobs((0, 1, 1, 0.25), (0, 1, 1, math.nan), (0, 1, 1, 1.0))
    assert frequency_bound_of(workload).tolist() == [0.25, 1.0, 1.0]
    assert frequency_bound_of(with_frequency_bound(workload, 0.5, seed=1)).tolist() == [0.25, 0.5, 1.0]
    drawn = [frequency_bound_of(with_frequency_bound(workload, [0.2, 0.4], seed=seed)).tolist() for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert 0.2 <= drawn[0][1] <= 0.4
    for wrong in (-0.1, 1.1, [0.5, 0.1], "much", [0.1], True, math.nan):
        with pytest.raises(ConfigError, match=r"expected a share from 0 to 1, or \[low, high\]"):
            with_frequency_bound(workload, wrong, seed=1)
    with pytest.raises(WorkloadError, match=r"expected frequency_bound from 0 to 1, got .*1\.5.* of job 0"):
        simulate(nodes(1), jobs((0, 1, 1, 1.5)), "fcfs", power=power(frequency=1.0))


# Refusals


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"frequency": 1.1}, "expected a frequency of 1, 1.6, 2, 2.4 GHz, got 1.1"),
        ({"frequency": "fast"}, "expected a frequency of 1, 1.6, 2, 2.4 GHz, got 'fast'"),
        ({"cap": 0.5, "when_capped": "sleep"}, "expected one of"),
        ({"cap": 0.5, "cap_kind": "soft", "when_capped": "slow"}, "expected wait without a hard cap, got slow"),
        ({"frequency": 1.0, "when_capped": "slow"}, "expected wait without a hard cap, got slow"),
    ],
)
def test_settings_that_are_none(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        simulate(nodes(1), jobs((0, 1, 1, 1.0)), "fcfs", power=power(**keys))


def test_what_has_no_frequencies_refuses_them() -> None:
    workload, plain = jobs((0, 1, 1, 1.0)), Platform.homogeneous(1, 1, NOMINAL)
    with pytest.raises(ConfigError, match="expected processor types with the same key `frequencies`"):
        simulate(plain, workload, "fcfs", power=power(frequency=1.0))
    with pytest.raises(ConfigError, match="expected processor types with the same key `frequencies`"):
        simulate(plain, workload, "fcfs", power=power(cap=0.9, when_capped="slow"))
    with pytest.raises(DecisionError, match="expected processor types that share `frequencies`"):
        simulate(plain, workload, Changes({}, {0: 1.0}))
    for name in ("Rollout", "Mcts", "Portfolio"):
        searching = {"_target_": f"hdsim.agents.{name.lower()}.{name}"}
        with pytest.raises(ConfigError, match=rf"expected power.frequency=null .* with {name.lower()}"):
            simulate(nodes(1), workload, searching, power=power(frequency=1.0))
    with pytest.raises(ConfigError, match=r"expected agent.estimates=requested"):
        simulate(nodes(1), workload, "easy++", power=power(frequency=1.0))
    with pytest.raises(ConfigError, match="expected jobs without programs"):
        stepping = workload.replaced(program=np.array([object()], object))
        simulate(nodes(1), stepping, "easy", power=power(frequency=1.0))


def test_environments_refuse_frequencies() -> None:
    from hdsim.envs.scheduling import SchedulingEnv

    workload = jobs(*[(i, 10, 1, 1.0) for i in range(10)])
    with pytest.raises(ConfigError, match="environments have no frequencies"):
        SchedulingEnv(nodes(2), workload, power=power(frequency=1.0))


@pytest.mark.parametrize(
    ("choose", "message"),
    [
        (lambda cluster: cluster.set_frequency(0, 1.7), "expected a frequency of 1, 1.6, 2, 2.4 GHz, got 1.7"),
        (lambda cluster: cluster.set_frequency(2, 1.0), "expected a queued or running job"),
        (lambda cluster: cluster.set_frequency(9, 1.0), "job index 9 cannot be set to a frequency"),
    ],
)
def test_choices_that_are_none(choose: Callable[[Cluster], None], message: str) -> None:
    workload = jobs((0, 100, 1, 1.0), (0, 100, 1, 1.0), (60, 1, 1, 1.0))
    with pytest.raises(DecisionError, match=message):
        simulate(nodes(1), workload, Changes({50.0: choose}))


def test_a_backend_without_frequencies_refuses_them() -> None:
    def refuse(cluster: Cluster) -> None:
        cluster.can_set_frequency = False
        cluster.set_frequency(0, 1.0)

    with pytest.raises(DecisionError, match="the backend has no means to change frequencies"):
        simulate(nodes(1), jobs((0, 100, 1, 1.0)), Changes({0.0: refuse}))
