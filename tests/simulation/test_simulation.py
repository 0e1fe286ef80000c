"""A simulation in the hands of its user: verbs of the engine, processes of SimPy beside the jobs, steps."""

from __future__ import annotations

import gc
import math
import weakref
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st
from tiers import examples

import hdsim
import platforms
from hdsim.cluster.state import Cluster, FinalState
from hdsim.contention import Contention
from hdsim.contention.threshold import Threshold
from hdsim.errors import BackendError, ConfigError, DecisionError
from hdsim.scheduling.agent import make_agent
from hdsim.simulation.bsp_jobs import BspJobs
from hdsim.simulation.contended import Contended
from hdsim.simulation.engine import Engine
from hdsim.simulation.executor import Executor, Uncontended
from hdsim.workload.batsim_json import jobs_of


def machine(nodes: int = 1, cores: int = 2, **options: Any) -> hdsim.Platform:
    return hdsim.Platform.homogeneous(nodes=nodes, cores_per_node=cores, gflops_per_core=10.0, **options)


def jobs(*rows: tuple[float, float, int], **columns: Any) -> hdsim.Workload:
    """Rows of (submission, run time, cores)."""
    submission, runtime, cores = zip(*rows, strict=True)
    return hdsim.Workload.from_columns(submission_time=submission, runtime=runtime, requested_cores=cores, **columns)


def times(result: hdsim.Result) -> list[tuple[float, float]]:
    return list(zip(result.starting_time.tolist(), result.finish_time.tolist(), strict=True))


# Steps


@pytest.mark.parametrize("agent", ["fcfs", "easy"])
def test_steps_and_dates_lead_to_the_same_end(agent: str) -> None:
    platform, workload = machine(2), jobs((0, 10, 2), (0, 5, 2), (3, 4, 4), (20, 1, 1))
    whole = hdsim.simulate(platform, workload, agent)
    stepped = hdsim.Simulation(platform, workload, agent)
    dates = []
    while stepped.step():
        dates.append(stepped.now)
    assert dates == sorted({*workload.submission_time.tolist(), *whole.finish_time.tolist()})
    assert not stepped.step()
    assert times(stepped.run()) == times(whole)
    dated = hdsim.Simulation(platform, workload, agent)
    assert dated.run_until(12.5)
    assert dated.now == dated.env.now == 12.5
    assert list(dated.cluster.running) == [2]
    assert dated.run_until(20)
    assert not dated.run_until(100)
    assert times(dated.run()) == times(whole)


def test_decisions_between_steps_are_carried_out() -> None:
    simulation = hdsim.Simulation(machine(), jobs((0, 10, 2), (0, 5, 2)), "void")
    simulation.step()
    simulation.cluster.start(1)
    result = simulation.run()
    assert result.finish_time.tolist()[1] == 5


# Processes of the user


def test_a_maintenance_window() -> None:
    """The example of docs/inside.md: job 0 loses its node for two hours and starts again where job 1 has ended."""
    platform = machine(2)
    workload = jobs((0, 3600, 2), (0, 7200, 2), (600, 600, 2))
    simulation = hdsim.Simulation(platform, workload, agent="easy", failures="external", check=True)
    env = simulation.env

    def maintenance(nodes: list[int], begin: float, hours: float) -> Iterator[simpy.Event]:
        yield env.at(begin)
        yield env.all_of([env.fail(node, until=begin + hours * 3600) for node in nodes])

    env.process(maintenance([0], begin=1800, hours=2))
    result = simulation.run()
    assert times(result) == [(7200, 10800), (0, 7200), (9000, 9600)]
    assert result.jobs["restarts"].tolist() == [1, 0, 0]
    assert result.outages is not None
    assert (result.outages.down.tolist(), result.outages.up.tolist()) == ([1800], [9000])
    assert result.engine["mode"] == "events"


@pytest.mark.parametrize("batch_events", [True, False])
@pytest.mark.parametrize("agent", ["fcfs", "easy"])
def test_a_failing_process_is_raised(batch_events: bool, agent: str) -> None:
    simulation = hdsim.Simulation(machine(), jobs((0, 10, 2)), agent, batch_events=batch_events)

    def failing() -> Iterator[simpy.Event]:
        yield simulation.env.timeout(3)
        raise ValueError("of the user")

    simulation.env.process(failing())
    with pytest.raises(ValueError, match="of the user"):
        simulation.run()
    assert simulation.now == 3


def test_time_of_processes_is_that_of_the_cluster() -> None:
    """Guards the one private name of SimPy that the engine sets: the clock of its environment."""
    simulation = hdsim.Simulation(machine(), jobs((0.1, 0.2, 1), (0.4, 0.5, 1)), "easy")
    env, cluster, seen = simulation.env, simulation.cluster, []

    def watching() -> Iterator[simpy.Event]:
        for date in (0.1 + 0.2, 0.35):
            yield env.at(date)
            seen.append((env.now, cluster.now))
            yield env.timeout(0.01)
            seen.append((env.now, cluster.now))

    env.process(watching())
    simulation.run()
    first = 0.1 + 0.2
    assert seen == [(date, date) for date in (first, first + 0.01, 0.35, 0.35 + 0.01)]


def test_an_event_of_arrivals_or_completions_moves_the_clock_of_timeouts() -> None:
    simulation = hdsim.Simulation(machine(), jobs((0, 10, 1), (4, 10, 1)), "easy")
    simulation.run_until(4)
    timeout = simulation.env.timeout(2)
    dates: list[float] = []
    timeout.callbacks.append(lambda _: dates.append(simulation.now))
    simulation.run()
    assert dates == [6]


def test_a_process_asks_for_a_scheduling_pass() -> None:
    class Gated(hdsim.Agent):
        open = False

        def decide(self, cluster: Cluster) -> None:
            if self.open and cluster.queue:
                cluster.start(next(iter(cluster.queue)))

    agent = Gated()
    simulation = hdsim.Simulation(machine(), jobs((0, 10, 2)), agent)

    def opening() -> Iterator[simpy.Event]:
        yield simulation.env.timeout(7)
        agent.open = True
        simulation.env.notify()

    simulation.env.process(opening())
    assert times(simulation.run()) == [(7, 17)]


def ticking(env: Engine, seen: list[float]) -> Iterator[simpy.Event]:
    while True:
        seen.append(env.now)
        yield env.timeout(1)


def test_a_process_without_end_ends_with_the_last_job(caplog: pytest.LogCaptureFixture) -> None:
    simulation = hdsim.Simulation(machine(), jobs((0, 10, 2)), "fcfs")
    seen: list[float] = []
    simulation.env.process(ticking(simulation.env, seen))
    assert times(simulation.run()) == [(0, 10)]
    assert seen[-1] == 10
    assert "ended at 10 s, with its last job; events of user processes from 11 s on are ignored" in caplog.text


def test_a_process_without_end_beside_jobs_that_never_start(caplog: pytest.LogCaptureFixture) -> None:
    simulation = hdsim.Simulation(machine(), jobs((0, 10, 2)), "void")
    simulation.env.process(ticking(simulation.env, []))
    assert simulation.run().metrics["jobs_unfinished"] == 1
    assert "1 jobs cannot start: none was started at 10000 instants on an idle platform" in caplog.text


def test_a_simulation_waits_for_expected_events(caplog: pytest.LogCaptureFixture) -> None:
    """A process that adds a job after the last one has ended."""
    simulation = hdsim.Simulation(machine(), jobs((0, 10, 2)), "fcfs", open_ended=True)
    env = simulation.env

    def adding() -> Iterator[simpy.Event]:
        yield env.at(50)
        assert list(env.add(jobs((0, 5, 2), (0, 7, 3), (3, 1, 2)))) == [1, 2, 3]

    env.expect(env.process(adding()))
    result = simulation.run()
    assert result.starting_time.tolist()[:2] == [0, 50]
    # The job of three cores can never run; submission times count from the addition.
    assert result.state.tolist()[2] == FinalState.REJECTED
    assert result.starting_time.tolist()[3] == 55
    assert result.jobs["submission_time"].tolist() == [0, 50, 50, 53]
    assert "left out" not in caplog.text


def test_jobs_are_added_to_open_simulations_only() -> None:
    simulation = hdsim.Simulation(machine(), jobs((0, 10, 2)), "easy")
    with pytest.raises(BackendError, match="open_ended"):
        simulation.env.add(jobs((0, 1, 1)))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda env: env.run(), "no scheduling passes"),
        (lambda env: env.fail(0), "where there is a failure model only"),
        (lambda env: env.set_speed([0], 0.0), "expected shares of peak speed above 0, got 0"),
        (lambda env: env.set_speed([2], 0.5), "expected core ids 0 to 1"),
    ],
)
def test_verbs_that_cannot_be(wrong: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        wrong(hdsim.Simulation(machine(), jobs((0, 1, 1))).env)


def test_verbs_with_wrong_nodes_jobs_and_dates() -> None:
    simulation = hdsim.Simulation(machine(), jobs((5, 1, 1)), failures="external")
    with pytest.raises(ConfigError, match="expected nodes 0 to 0, got 1"):
        simulation.env.fail(1)
    with pytest.raises(DecisionError, match="expected a running job"):
        simulation.env.progress(0)
    simulation.run_until(3)
    with pytest.raises(DecisionError, match="expected a date of at least 3 s, got 2"):
        simulation.env.at(2)


def test_overlapping_outages_and_early_repairs() -> None:
    """A node comes back when the last reason is over, or when it is repaired."""
    simulation = hdsim.Simulation(machine(2), jobs((0, 100, 2), (0, 100, 2)), "fcfs", failures="external")
    env, up = simulation.env, []

    def outages() -> Iterator[simpy.Event]:
        yield env.timeout(10)
        short, long = env.fail(0, until=20), env.fail(0, until=40)
        yield short
        up.append((env.now, 0 not in simulation.cluster.down))
        yield long
        up.append((env.now, 0 not in simulation.cluster.down))
        gone = env.fail(1)
        yield env.timeout(5)
        env.repair(1)
        yield gone
        up.append((env.now, 1 not in simulation.cluster.down))

    env.process(outages())
    result = simulation.run()
    assert up == [(20, False), (40, True), (45, True)]
    assert times(result) == [(40, 140), (45, 145)]
    assert result.outages is not None
    assert list(zip(result.outages.down.tolist(), result.outages.up.tolist(), strict=True)) == [(10, 40), (40, 45)]


# Resizes, speeds and progress against the integral of the rate


PROCESSORS = 2
CORES = 3  # of each processor
DEMAND = 10.0  # GB/s a core; the processor has twice that


@pytest.fixture(scope="module")
def two_speeds() -> hdsim.Platform:
    return platforms.two_speeds(CORES, mem_bw=20)


def make(executor: str, cluster: Cluster) -> Executor:
    platform, workload = cluster.platform, cluster.workload
    model: Contention = Threshold(platform)
    if executor == "uncontended":
        return Uncontended(cluster)
    return Contended(platform, workload, model) if executor == "contended" else BspJobs(platform, workload, model, None)


cores = st.sets(st.integers(0, PROCESSORS * CORES - 1), min_size=1).map(sorted)
changes = st.lists(
    st.tuples(
        st.integers(1, 20),  # s since the last change
        st.one_of(cores, st.tuples(cores, st.sampled_from([0.25, 0.5, 1.0]))),
    ),
    max_size=6,
)


def rate(held: list[int], share: dict[int, Fraction], requested: int, contends: bool) -> Fraction:
    """Reference seconds a second: the slowest core's speed, by the cores held over those requested."""
    speeds = []
    for core in held:
        mates = sum(other // CORES == core // CORES for other in held)
        slowed = Fraction(3, 4) if contends and mates * DEMAND > 20 else Fraction(1)
        speeds.append(slowed * share[core] * (Fraction(4, 3) if core < CORES else Fraction(2, 3)))
    return min(speeds) * len(held) / requested


@pytest.mark.parametrize("executor", ["uncontended", "contended", "bsp"])
@examples(40)
@given(first=cores, changes=changes, runtime=st.integers(1, 60))
def test_dates_are_those_of_the_integral_of_the_rate(
    two_speeds: hdsim.Platform, executor: str, first: list[int], changes: list[Any], runtime: int
) -> None:
    """One job that grows, shrinks, moves and has the speed of cores changed under it."""
    requested = len(first)
    workload = jobs((0, runtime, requested), memory_bandwidth=[DEMAND])
    cluster = Cluster(two_speeds, workload, needs_processors=True)
    engine = Engine(cluster, make(executor, cluster))
    told: list[tuple[float, float]] = []

    def changing() -> Iterator[simpy.Event]:
        for wait, change in changes:
            yield engine.timeout(wait)
            if 0 not in cluster.running:
                return
            told.append((engine.now, engine.progress(0).share))
            if isinstance(change, tuple):
                engine.set_speed(*change)
            else:
                cluster.resize_on(0, change)
            engine.notify()

    engine.process(changing())
    while engine.advance():
        if cluster.queue:
            cluster.start_on(0, first)
        engine.apply()

    held, share = first, dict.fromkeys(range(PROCESSORS * CORES), Fraction(1))
    left, now, expected = Fraction(runtime), Fraction(0), []
    for wait, change in changes:
        speed = rate(held, share, requested, executor != "uncontended")
        if left - wait * speed <= 0:
            break
        left, now = left - wait * speed, now + wait
        expected.append((float(now), float(1 - left / runtime)))
        if isinstance(change, tuple):
            share |= dict.fromkeys(change[0], Fraction(change[1]))
        else:
            held = change
    end = now + left / rate(held, share, requested, executor != "uncontended")
    assert cluster.finish_time[0] == pytest.approx(float(end), rel=1e-12)
    assert len(told) >= len(expected)
    for (date, done), (known, right) in zip(told, expected, strict=False):
        assert (date, done) == pytest.approx((known, right), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("executor", ["uncontended", "contended", "bsp"])
def test_a_fixed_duration_is_not_changed(two_speeds: hdsim.Platform, executor: str) -> None:
    workload = jobs((0, 30, 2), fixed_duration=[True])
    cluster = Cluster(two_speeds, workload, needs_processors=True)
    engine = Engine(cluster, make(executor, cluster))
    engine.schedule_at(10, lambda _: (engine.set_speed(range(6), 0.5), cluster.resize_on(0, [0]), engine.notify()), 0)
    while engine.advance():
        if cluster.queue:
            cluster.start_on(0, [0, 1])
        engine.apply()
    assert cluster.finish_time == [30.0]


@pytest.mark.parametrize("contention", [False, True])
@pytest.mark.parametrize("before", [False, True])
def test_speeds_of_supersteps(contention: bool, before: bool) -> None:
    """Two supersteps of 10 s on two cores of one processor; at 4 s one of them falls to half its speed.

    That task has 6 s left, which take 12; then its second superstep takes 20.
    """
    platform = machine(mem_bw=100.0)
    profiles = {"p": {"type": "bsp", "supersteps": 2, "cpu": 10 * platform.reference_gflops * 1e9}}
    content = {"jobs": [{"id": "a", "subtime": 0, "res": 2, "profile": "p"}], "profiles": profiles}
    raw = jobs_of(content, "test", platform.reference_gflops)
    columns = {key: raw.columns[key] for key in ("submission_time", "runtime", "requested_cores", "program", "profile")}
    workload = hdsim.Workload.from_columns(**columns)
    cluster = Cluster(platform, workload, needs_processors=True)
    engine = Engine(cluster, BspJobs(platform, workload, Threshold(platform) if contention else None, None))
    if before:
        engine.set_speed([0, 1], 1.0)
    engine.schedule_at(4, lambda core: (engine.set_speed([core], 0.5), engine.notify()), 1)
    while engine.advance():
        if cluster.queue:
            cluster.start(0)
        engine.apply()
        if engine.now == 4:
            with pytest.raises(DecisionError, match="its program has one task on each of its cores"):
                cluster.resize_on(0, [0])
    assert cluster.finish_time == [36.0]


def test_work_kept_by_a_checkpoint_does_not_depend_on_the_executor() -> None:
    """300 s of work, a node lost at 170 s for 10 s, checkpoints every 60 s: 120 s are kept."""
    recovery = {"_target_": "hdsim.failures.External", "recovery": "checkpoint", "checkpoint_interval": 60}
    platform = machine(mem_bw=100.0)
    for contention in ("none", "fair_share"):
        workload = jobs((0, 300, 2), memory_bandwidth=[5])
        simulation = hdsim.Simulation(platform, workload, contention=contention, failures=recovery)
        simulation.run_until(170)
        simulation.env.fail(0, until=180)
        result = simulation.run()
        assert times(result) == [(180, 360)]
        assert result.jobs["lost_core_seconds"].tolist() == [100]


def test_dates_that_have_moved_do_not_pile_up() -> None:
    """One long job on the processor of many short ones is timed anew with every start and end."""
    platform = machine(1, 2, mem_bw=10.0)
    count = 3000
    rows = [(0.0, 1e6, 1), *((10.0 * i, 5.0, 1) for i in range(count))]
    workload = jobs(*rows, memory_bandwidth=[8] * (count + 1))
    simulation = hdsim.Simulation(platform, workload, contention="threshold", kill_at_walltime=True)
    most = 0
    while simulation.step():
        most = max(most, len(simulation.env._agenda.entries))
    assert most < 1200
    assert math.isfinite(simulation.cluster.finish_time[0])


class Cycle:
    """Refers to itself."""

    def __init__(self) -> None:
        self.me = self


def test_cycles_of_an_agent_are_collected() -> None:
    """Of 120,000 only some are alive at a time: the collector runs, in a replay as well."""

    class Cyclic(hdsim.Agent):
        def begin(self, cluster: Cluster) -> None:
            self.alive: weakref.WeakSet[Cycle] = weakref.WeakSet()
            self.most = 0

        def decide(self, cluster: Cluster) -> None:
            for _ in range(100):
                self.alive.add(Cycle())
            self.most = max(self.most, len(self.alive))
            for job in list(cluster.queue):
                cluster.start(job)

    before, agent = gc.get_threshold(), Cyclic()
    hdsim.simulate(machine(), jobs(*((2.0 * i, 1.0, 1) for i in range(600))), agent)
    assert agent.most < 40_000
    assert gc.get_threshold() == before
    assert not gc.get_freeze_count()


@pytest.mark.parametrize("group", ["contention", "network", "failures", "power"])
def test_a_model_is_a_name_or_settings(group: str) -> None:
    platform = hdsim.Platform.homogeneous(nodes=1, cores_per_node=1)
    workload = hdsim.Workload.from_columns(submission_time=[0], runtime=[1], requested_cores=[1])
    with pytest.raises(ConfigError, match=rf"^{group}: expected a name or a mapping, got NoneType; names: .*none"):
        hdsim.simulate(platform, workload, "fcfs", **{group: None})


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"power": {"cap": 0.8}}, r"power\.cap: expected _target_ or path .*hdsim\.power\.PowerManagement \(cap\)"),
        ({"failures": {"mtbf": "3h"}}, r"failures\.mtbf: .*hdsim\.failures\.Exponential \(exponential\)"),
        ({"contention": {"memory_bound_fraction": 0.5}}, r"contention\.memory_bound_fraction: .*\(fair_share\)"),
        ({"network": {"_target_": None, "sharing": "equal"}}, r"network\.sharing: .*\(fluid\)"),
        ({"network": {"foo": 1}}, r"network\.foo: expected _target_ or path beside it, .* got none$"),
    ],
)
def test_settings_of_a_model_without_its_class_are_refused(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        hdsim.simulate(machine(), jobs((0, 10, 1)), "easy", **settings)


@pytest.mark.parametrize("time", [math.nan, "60"])
def test_a_time_to_run_until_is_a_number(time: Any) -> None:
    simulation = hdsim.Simulation(machine(), jobs((0, 10, 1), (100, 10, 1)), "easy")
    with pytest.raises(DecisionError, match="run_until: expected a time in seconds, got"):
        simulation.run_until(time)
    assert simulation.run_until(50)


@pytest.mark.parametrize("name", ["multifactor", "easy++"])
def test_an_agent_serves_one_simulation_at_a_time(name: str) -> None:
    """What an agent prepares in `begin` is for one cluster: a second simulation in between had changed the schedule."""
    rng = np.random.default_rng(3)
    traces = [
        hdsim.Workload.from_columns(
            submission_time=np.sort(rng.integers(0, 900, 40)),
            runtime=rng.integers(1, 300, 40),
            requested_cores=rng.integers(1, 17, 40),
            user=rng.integers(1, 6, 40),
        )
        for _ in range(2)
    ]
    platform = hdsim.Platform.homogeneous(nodes=4, cores_per_node=4)
    agent = make_agent(name)
    one = hdsim.Simulation(platform, traces[0], agent)
    one.run_until(300)
    fork = one.fork(runtimes="actual", arrivals="actual")
    other = hdsim.Simulation(platform, traces[1], agent)
    other.run_until(300)
    for go_on in (one.step, one.run):
        with pytest.raises(DecisionError, match="the agent has begun another simulation meanwhile"):
            go_on()
    expected = [hdsim.simulate(platform, each, name).starting_time.tolist() for each in traces]
    assert [fork.run().starting_time.tolist(), other.run().starting_time.tolist()] == expected
    assert hdsim.simulate(platform, traces[0], agent).starting_time.tolist() == expected[0]
    # An agent that prepares nothing may serve several.
    strict = Strict()
    several = [hdsim.Simulation(platform, each, strict) for each in traces]
    for _ in range(20):
        for simulation in several:
            simulation.step()
    assert [simulation.run().starting_time.tolist() for simulation in several] == [
        hdsim.simulate(platform, each, "fcfs").starting_time.tolist() for each in traces
    ]


class Strict(hdsim.Agent):
    """First come, first served."""

    def decide(self, cluster: Any) -> None:
        for job in list(cluster.queue):
            if not cluster.fits(job):
                return
            cluster.start(job)
