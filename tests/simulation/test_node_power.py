"""Nodes that sleep and wake: cases by hand, closed forms, a second replay, SimGrid, and what users can get wrong."""

from __future__ import annotations

import json
import math
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import power_reference
import pytest
from scipy import stats
from tiers import ALL, ci, nightly

import hdsim
from hdsim import Agent, FinalState, Platform, Workload, simulate
from hdsim.backends.base import make_backend
from hdsim.errors import ConfigError, DecisionError, PlatformError
from hdsim.platform.node_state import NodeState
from hdsim.power import PowerManagement
from hdsim.results import metrics, series
from hdsim.results.result import Result
from hdsim.results.run_directory.reader import read as read_run
from hdsim.simulation.setup import make_model
from hdsim.simulation.simulation import Simulation

STATES = {
    "on": {"watts": 7},
    "idle": {"watts": 3},
    "going_down": {"watts": 50, "seconds": 30},
    "off": {"watts": 1},
    "booting": {"watts": 150, "seconds": 100},
}


def sleeping(nodes: int = 2, cores: int = 2, **states: Any) -> Platform:
    return Platform.homogeneous(nodes, cores, power_per_core=10, states={**STATES, **states})


def suspend(**keys: Any) -> dict[str, Any]:
    return {"_target_": "hdsim.power.PowerManagement", **keys}


def jobs(*rows: tuple[float, float, int]) -> Workload:
    """Jobs as (submission, run time, cores)."""
    submission, runtime, cores = zip(*rows, strict=True)
    return Workload.from_columns(submission_time=submission, runtime=runtime, requested_cores=cores)


def spans(result: Result) -> list[tuple[int, str, float, float]]:
    found = result.node_states
    assert found is not None
    names = [NodeState(state).name.lower() for state in found.state.tolist()]
    return sorted(zip(found.node.tolist(), names, found.begin.tolist(), found.end.tolist(), strict=True))


def check_energy(result: Result) -> None:
    """The joules of the states, and the integral of the power, are the energy."""
    found = result.metrics
    by_state = sum(found[f"joules_{state.name.lower()}"] for state in NodeState)
    assert by_state == pytest.approx(found["energy_joules"], rel=1e-12)
    assert series.power(result).integral() == pytest.approx(found["energy_joules"], rel=1e-12)
    seconds = sum(3600 * found[f"node_hours_{state.name.lower()}"] for state in NodeState)
    down = 0.0 if result.outages is None else result.outages.seconds(result.platform.n_nodes, result.end_time).sum()
    assert seconds + down == pytest.approx(result.platform.n_nodes * result.end_time, rel=1e-12)


@pytest.mark.parametrize("agent", ["fcfs", "easy", "conservative", "greedy"])
def test_nodes_go_down_after_a_time_and_jobs_wait_for_them_to_boot(agent: str) -> None:
    workload = jobs((0, 100, 2), (500, 50, 4), (510, 60, 1), (2000, 10, 4))
    result = simulate(sleeping(), workload, agent, power=suspend(suspend_time=200), check=True)
    assert result.starting_time.tolist() == [0, 600, 650, 2100]
    assert spans(result) == [
        *((0, "booting", 500, 600), (0, "booting", 2000, 2100)),
        *((0, "going_down", 300, 330), (0, "going_down", 910, 940), (0, "off", 330, 500), (0, "off", 940, 2000)),
        *((1, "booting", 500, 600), (1, "booting", 2000, 2100)),
        *((1, "going_down", 200, 230), (1, "going_down", 850, 880), (1, "off", 230, 500), (1, "off", 880, 2000)),
    ]
    check_energy(result)
    # A busy core draws 10 W, one idle beside it 2.5 W, one of an idle processor 0.5 W.
    on = 2 * 10 + 7, 2 * 2 * 10 + 2 * 7, 10 + 2.5 + 7  # one node of job 0, both, and one core of job 2
    joules = {"on": 100 * on[0] + 60 * on[1] + 60 * on[2], "off": 2620, "going_down": 4 * 30 * 50}
    joules["booting"] = 4 * 100 * 150
    joules["idle"] = (200 + 200 + 60 + 200 + 200 - 60) * 4  # seconds of both nodes
    for state, expected in joules.items():
        assert result.metrics[f"joules_{state}"] == pytest.approx(expected), state
    assert (result.metrics["boots"], result.metrics["failed_boots"]) == (4, 0)


def test_an_agent_that_replays_the_past_with_all_nodes_up_is_refused() -> None:
    agent = {"_target_": "hdsim.agents.portfolio.Portfolio"}
    message = "power: expected no nodes that sleep with portfolio, which plans with all nodes up"
    for settings in (suspend(suspend_time=200), {"_target_": "hdsim.power.PredictiveSuspend"}):
        with pytest.raises(ConfigError, match=message):
            simulate(sleeping(), jobs((0, 100, 2)), agent, power=settings)
    assert simulate(sleeping(), jobs((0, 100, 2)), agent, power=suspend(suspend_time=None)).finish_time.tolist() == [
        100
    ]


def test_a_node_that_goes_down_is_off_before_it_boots_for_a_job() -> None:
    workload = jobs((0, 10, 2), (25, 5, 2), (60, 1, 2))
    result = simulate(sleeping(nodes=1), workload, "fcfs", power=suspend(suspend_time=10), check=True)
    assert result.starting_time.tolist() == [0, 150, 155]
    assert spans(result) == [(0, "booting", 50, 150), (0, "going_down", 20, 50), (0, "off", 50, 50)]


def test_jobs_get_nodes_that_are_up_before_others() -> None:
    workload = jobs((0, 1000, 2), (0, 400, 2), (450, 60, 2), (460, 10, 2), (500, 10, 1))
    platform = sleeping(nodes=3)
    result = simulate(platform, workload, "fcfs", power=suspend(suspend_time=100), check=True)
    nodes = [platform.processor_node[platform.core_processor[held.min]] for held in result.allocations]
    # Node 2 is off since 130 s; job 2 gets node 1, still up, job 3 wakes node 2, and job 4 waits for node 1.
    assert nodes == [0, 1, 1, 2, 1]
    assert result.starting_time.tolist() == [0, 0, 450, 560, 510]


def test_slurm_s_rates_limit_nodes_that_go_down_and_boot_in_any_minute() -> None:
    platform = sleeping(nodes=6)
    settings = suspend(suspend_time=10, suspend_rate=2, resume_rate=4)
    result = simulate(platform, jobs((0, 1, 1), (1000, 50, 12)), "fcfs", power=settings, check=True)
    down = sorted(begin for _, state, begin, _ in spans(result) if state == "going_down")
    boots = sorted(begin for _, state, begin, _ in spans(result) if state == "booting")
    assert down == [10, 10, 70, 70, 130, 130]
    assert boots == [1000] * 4 + [1060] * 2
    assert result.starting_time.tolist() == [0, 1160]


def test_excluded_nodes_stay_up() -> None:
    document = sleeping(nodes=2).to_dict()
    document["clusters"][0]["nodes"] = [
        {"type": "homogeneous", "number": 2, "names": ["a", "b"]},
        {"type": "homogeneous", "number": 1, "names": ["c"]},
    ]
    platform = Platform.from_dict(document)
    result = simulate(platform, jobs((0, 1000, 1)), "fcfs", power=suspend(suspend_time=10, exclude=["b"]))
    assert {node for node, *_ in spans(result)} == {2}
    with pytest.raises(ConfigError, match=r"power.exclude: expected names of nodes.* got 'bb' \(did you mean 'b'"):
        simulate(platform, jobs((0, 1, 1)), "fcfs", power=suspend(exclude=["bb"]))


class Switches(Agent):
    """Serves the queue in order, and switches nodes at given times."""

    def __init__(self, *calls: tuple[float, str, Any]) -> None:
        self.calls = list(calls)

    def begin(self, cluster: Any) -> None:
        for date, *_ in self.calls:
            cluster.call_me_later(date)

    def decide(self, cluster: Any) -> None:
        while self.calls and self.calls[0][0] == cluster.now:
            _, verb, what = self.calls.pop(0)
            getattr(cluster, verb)(what)
        for job in list(cluster.queue):
            if cluster.fits(job):
                cluster.start(job)


def test_an_agent_switches_nodes_off_and_on() -> None:
    agent = Switches((10, "power_off", [1, 0]), (200, "power_on", 1), (205, "power_on", [1]))
    result = simulate(sleeping(), jobs((0, 1, 1), (250, 5, 2)), agent, power="states", check=True)
    assert [row for row in spans(result) if row[0] == 1] == [
        *((1, "booting", 200, 300), (1, "going_down", 10, 40), (1, "off", 40, 200)),
    ]
    # The node that boots already is preferred to the one that is off.
    assert result.starting_time.tolist() == [0, 300]
    assert result.allocations[1].min == 2


@pytest.mark.parametrize(
    ("verb", "nodes", "message"),
    [
        ("power_off", 0, "power_off: node 0 serves a job"),
        ("power_off", [1, 2], "power_off: expected nodes 0 to 1, got"),
        ("power_on", -1, "power_on: expected nodes 0 to 1, got -1"),
        ("power_off", 0.5, "power_off: expected nodes 0 to 1, got 0.5"),
    ],
)
def test_switches_that_are_refused(verb: str, nodes: Any, message: str) -> None:
    with pytest.raises(DecisionError, match=message):
        simulate(sleeping(), jobs((0, 100, 1)), Switches((10, verb, nodes)), power="states")
    with pytest.raises(DecisionError, match=f"{verb}: nodes sleep where there is power management only"):
        simulate(sleeping(), jobs((0, 100, 1)), Switches((10, verb, nodes)))


def test_a_node_is_not_switched_off_twice_and_no_job_is_moved_to_it() -> None:
    twice = Switches((10, "power_off", 1), (12, "power_off", 1))
    with pytest.raises(DecisionError, match="power_off: node 1 is GOING_DOWN, expected ON"):
        simulate(sleeping(), jobs((0, 100, 1)), twice, power="states")

    class Moves(Switches):
        def moves(self, job: int) -> None:
            self.cluster.resize_on(job, [2])

        def decide(self, cluster: Any) -> None:
            cluster.moves = lambda job: cluster.resize_on(job, [2])
            super().decide(cluster)

    with pytest.raises(DecisionError, match=r"cannot be resized to cores .*node 1 is not up"):
        simulate(sleeping(), jobs((0, 100, 1)), Moves((10, "power_off", 1), (12, "moves", 0)), power="states")


def test_a_job_that_waits_for_its_nodes_is_starting_and_its_walltime_counts_from_the_start() -> None:
    workload = Workload.from_columns(
        submission_time=[0, 500], runtime=[10, 90], requested_cores=[2, 2], requested_time=[10, 40], walltime=[10, 40]
    )
    simulation = Simulation(
        sleeping(nodes=1), workload, "fcfs", power=suspend(suspend_time=20), kill_at_walltime=True, check=True
    )
    simulation.run_until(550)
    cluster = simulation.cluster
    assert cluster.state[1] == FinalState.STARTING
    assert dict(cluster.starting) == {1: 500.0}
    assert cluster.n_idle == 0
    assert cluster.estimate(1, cluster.running[1]) == 100 + 40  # since the request
    result = simulation.run()
    assert result.starting_time.tolist() == [0, 600]
    assert result.finish_time.tolist() == [10, 640]
    assert FinalState(result.state[1]) == FinalState.COMPLETED_WALLTIME_REACHED


@pytest.mark.parametrize(("verb", "state"), [("kill", "COMPLETED_KILLED"), ("requeue", "COMPLETED_SUCCESSFULLY")])
def test_a_job_that_waits_is_killed_when_it_starts_and_requeued_at_once(verb: str, state: str) -> None:
    agent = Switches((550, verb, 1))
    result = simulate(
        sleeping(nodes=1), jobs((0, 10, 2), (500, 90, 2)), agent, power=suspend(suspend_time=20), check=True
    )
    assert result.starting_time.tolist() == [0, 600]
    assert FinalState(result.state[1]).name == state
    assert len(result.failed_starts) == (verb == "requeue")


def test_a_boot_that_fails_puts_the_node_out_of_service_and_the_job_back() -> None:
    settings = suspend(suspend_time=20, boot_failure=0.5, resume_timeout=300, repair=1000)
    workload = jobs(*((3000.0 * number, 10, 2) for number in range(40)))
    result = simulate(sleeping(nodes=1), workload, "fcfs", power=settings, seed=3, check=True)
    failed = int(result.metrics["failed_boots"])
    assert 10 < failed < 30
    assert result.metrics["boots"] == 39  # none for the first job, and none after a repair
    assert len(result.failed_starts) == failed == len(result.outages)
    # Each failure is found 300 s after the begin of the boot, and takes 1000 s; the node is then up.
    assert set(np.unique(result.outages.up - result.outages.down)) == {1000.0}
    first = result.failed_starts[0]
    assert first.refused - first.requested == 300
    assert result.starting_time[first.job] == first.refused + 1000
    check_energy(result)
    assert result.metrics["jobs_completed"] == 40
    again = simulate(sleeping(nodes=1), workload, "fcfs", power=settings, seed=3)
    assert again.finish_time.tolist() == result.finish_time.tolist()


@pytest.mark.parametrize("agent", ["easy", "conservative"])
def test_a_backfilled_job_that_waits_for_a_boot_delays_no_reservation(agent: str) -> None:
    """Job 3 would end by 250 s on a node that is up, but boots first: it would hold the node that job 2 waits for."""
    platform = sleeping(nodes=3, cores=1)
    workload = jobs((0, 1, 1), (150, 100, 2), (151, 10, 3), (152, 60, 1))
    settings = suspend(suspend_time=20, exclude=["homogeneous-0", "homogeneous-1"])
    result = simulate(platform, workload, agent, power=settings, check=True)
    # Node 2 is off: job 2 gets it at 250 s, when the others are free, and waits 100 s for it; job 3 comes after.
    assert result.starting_time.tolist() == [0, 150, 350, 360]


def test_nodes_fail_while_they_sleep_and_boot() -> None:
    outages = {"_target_": "test_failures.Listed", "outages": [(0, 300.0, 350.0), (1, 550.0, 700.0)]}
    workload = jobs((0, 100, 4), (510, 50, 4))
    result = simulate(sleeping(), workload, "fcfs", power=suspend(suspend_time=120), failures=outages, check=True)
    # Node 0 is up again from 350 s to 470 s, and goes down; node 1 fails as it boots for job 1 and comes back up.
    assert result.starting_time.tolist() == [0, 700]
    assert [row for row in spans(result) if row[0] == 1] == [
        *((1, "booting", 510, 550), (1, "going_down", 220, 250), (1, "off", 250, 510)),
    ]
    assert {(0, "off", 250, 300), (0, "off", 500, 510)} <= set(spans(result))
    check_energy(result)


def test_runs_without_power_management_are_as_before(tmp_path: Path) -> None:
    workload = jobs((0, 100, 2), (500, 50, 4))
    plain = simulate(Platform.homogeneous(2, 2, power_per_core=10), workload, "easy")
    result = simulate(sleeping(off={"watts": 1}, on={"watts": 0}, idle={"watts": 0}), workload, "easy")
    assert result.energy_joules == plain.energy_joules
    assert result.node_states is None
    assert result.engine["mode"] == "compiled"
    assert "node_hours_off" not in result.metrics
    # Watts of nodes beside their processors count without power management, too.
    based = simulate(sleeping(), workload, "easy")
    assert based.energy_joules == pytest.approx(plain.energy_joules + 3 * 2 * 550 + 4 * (100 + 2 * 50))
    assert series.power(based).integral() == pytest.approx(based.energy_joules)


def test_a_run_directory_has_the_states(tmp_path: Path) -> None:
    result = simulate(sleeping(), jobs((0, 100, 2), (500, 50, 4)), "fcfs", power=suspend(suspend_time=200))
    run = read_run(result.save(tmp_path / "run"))
    assert spans(run) == spans(result)
    assert run.metrics["boots"] == 2
    assert series.power(run).integral() == pytest.approx(result.energy_joules)
    by_state, own = series.nodes_by_state(run), series.nodes_by_state(result)
    assert {name: steps.integral() for name, steps in by_state.items()} == pytest.approx(
        {name: steps.integral() for name, steps in own.items()}
    )
    assert sum(steps.integral() for steps in by_state.values()) == pytest.approx(2 * result.end_time)
    header, *rows = (tmp_path / "run" / "machine_states.csv").read_text().splitlines()
    assert header == "time,nb_sleeping,nb_switching_on,nb_switching_off,nb_idle,nb_computing"
    assert "330.000000,4,0,0,0,0" in rows
    assert all(sum(map(int, row.split(",")[1:])) == 4 for row in rows)


# Closed forms


@pytest.mark.parametrize(("load", "timeout", "boot"), [(0.6, 1.0, 2.0), *ci((0.6, 0.0, 2.0), (0.3, 2.0, 5.0))])
def test_mean_wait_and_power_of_a_queue_with_set_up_and_delayed_off(load: float, timeout: float, boot: float) -> None:
    """M/M/1 whose server is switched off when it has been idle for T, and takes D to boot.

    Welch (Operations Research 12, 1964): with a set-up D' before the first job of a busy period, the mean wait is
    lambda E[S^2] / (2 (1 - rho)) + (2 E[D'] + lambda E[D'^2]) / (2 (1 + lambda E[D'])); here D' is D if no job arrives
    within T, with the probability exp(-lambda T), and else 0.
    """
    count, replications = 20_000, 16 if ALL else 8
    sleeps = math.exp(-load * timeout)
    first, second = sleeps * boot, sleeps * boot**2
    wait = load / (1 - load) + (2 * first + load * second) / (2 * (1 + load * first))
    cycle = 1 / load + first + (1 + load * first) / (1 - load)
    watts = {"busy": 10.0, "idle": 0.5, "off": 2.0, "boot": 30.0}
    seconds = {"idle": (1 - sleeps) / load, "off": sleeps / load, "boot": first}
    seconds["busy"] = cycle - sum(seconds.values())
    power = sum(watts[state] * part for state, part in seconds.items()) / cycle
    states = {"off": {"watts": 2}, "booting": {"watts": 30, "seconds": boot}}
    platform = Platform.homogeneous(1, 1, power_per_core=10, states=states)
    found = []
    for seed in np.random.SeedSequence([1, round(10 * load), round(timeout)]).spawn(replications):
        rng = np.random.default_rng(seed)
        workload = Workload.from_columns(
            submission_time=rng.exponential(1 / load, count).cumsum(),
            runtime=rng.exponential(1.0, count),
            requested_cores=np.ones(count),
        )
        result = simulate(
            platform, workload, "fcfs", power=suspend(suspend_time=timeout, suspend_rate=None, resume_rate=None)
        )
        found.append((result.jobs["waiting_time"].mean(), result.energy_joules / result.end_time))
    for values, expected in zip(np.array(found).T, (wait, power), strict=True):
        half = stats.t.ppf(0.9995, len(values) - 1) * values.std(ddof=1) / math.sqrt(len(values))
        assert abs(values.mean() - expected) <= half < 0.15 * expected


# Peers


def random_case(seed: int) -> tuple[Platform, Workload, dict[str, Any]]:
    rng = np.random.default_rng(seed)
    nodes, count = int(rng.integers(1, 5)), int(rng.integers(5, 40))
    states = {
        "on": {"watts": 5},
        "idle": {"watts": float(rng.integers(0, 5))},
        "going_down": {"watts": float(rng.integers(0, 60)), "seconds": float(rng.integers(1, 40))},
        "off": {"watts": float(rng.integers(0, 5))},
        "booting": {"watts": float(rng.integers(0, 200)), "seconds": float(rng.integers(1, 80))},
    }
    platform = Platform.homogeneous(nodes, 1, power_per_core=float(rng.integers(1, 100)), states=states)
    workload = Workload.from_columns(
        submission_time=rng.integers(0, 1500, count).cumsum() // int(rng.integers(1, 30)),
        runtime=rng.integers(1, 300, count),
        requested_cores=np.ones(count),
    )
    settings = suspend(suspend_time=float(rng.integers(0, 200)), suspend_rate=None, resume_rate=None)
    return platform, workload, settings


@pytest.mark.parametrize("seed", range(200 if ALL else 40))
def test_the_obvious_program_has_the_same_starts_and_joules(seed: int) -> None:
    platform, workload, settings = random_case(seed)
    result = simulate(platform, workload, "fcfs", power=settings, check=seed % 8 == 0)
    on, idle, down, off, boot = platform.state_watts[:, 0].tolist()
    core = float(platform.power[0])
    starts, joules = power_reference.replay(
        workload.submission_time.tolist(),
        workload.runtime.tolist(),
        platform.n_nodes,
        timeout=settings["suspend_time"],
        down=float(platform.state_seconds[NodeState.GOING_DOWN, 0]),
        boot=float(platform.state_seconds[NodeState.BOOTING, 0]),
        watts={"busy": core + on, "idle": 0.05 * core + idle, "down": down, "off": off, "boot": boot},
    )
    assert result.starting_time.tolist() == starts
    assert result.energy_joules == pytest.approx(joules, rel=1e-12)
    check_energy(result)


#: Plays the P-states, the profile of the host's state and the jobs of one node, and has SimGrid's plug-in count.
SIMGRID = """
import json, sys
from simgrid import Actor, Engine, Host, this_actor

case = json.loads(sys.argv[2])
engine = Engine(["energy", "--cfg=plugin:host_energy", "--log=root.thres:error", "--log=host_energy.thres:info",
                 "--log=root.fmt:%m%n"])
engine.load_platform(sys.argv[1])

def states():
    for date, host, pstate in case["pstates"]:
        this_actor.sleep_until(date)
        Host.by_name(host).pstate = pstate
    this_actor.sleep_until(case["end"])

def job(begin, flops):
    this_actor.sleep_until(begin)
    this_actor.execute(flops)

here = Host.by_name("master")
Actor.create("states", here, states)

def start():
    for begin, host, flops in case["jobs"]:
        this_actor.sleep_until(begin)
        Actor.create("job", Host.by_name(host), job, begin, flops)

Actor.create("start", here, start)
engine.run()
"""


@pytest.mark.requires("simgrid")
@pytest.mark.parametrize("seed", range(20 if ALL else 6))
def test_simgrid_s_energy_plug_in_counts_the_same_joules(seed: int, tmp_path: Path) -> None:
    """A node is a host whose P-states are up, going down and booting, and which is off otherwise."""
    from test_simgrid import interpreter

    platform, workload, settings = random_case(seed)
    result = simulate(platform, workload, "fcfs", power=settings)
    on, idle, down, off, boot = platform.state_watts[:, 0].tolist()
    core = float(platform.power[0])
    watts = ",".join(
        f"{least}:{full}:{full}" for least, full in ((core * 0.05 + idle, core + on), (down,) * 2, (boot,) * 2)
    )
    found = result.node_states
    assert found is not None
    hosts, pstates = [], []
    for node in range(platform.n_nodes):
        here = np.flatnonzero(found.node == node)
        rows = sorted(
            zip(found.begin[here].tolist(), found.end[here].tolist(), found.state[here].tolist(), strict=True)
        )
        changes = []
        for begin, end, state in rows:
            if begin == end:
                continue
            if state == NodeState.OFF:
                changes += [f"{begin!r} 0", f"{end!r} 1"]
            else:
                pstates.append([begin, f"n{node}", 1 if state == NodeState.GOING_DOWN else 2])
                pstates.append([end, f"n{node}", 0])
        profile = f' state_file="n{node}.state"' if changes else ""
        (tmp_path / f"n{node}.state").write_text("\n".join(changes) + "\n")
        hosts.append(
            f'<host id="n{node}" speed="1Gf,1Gf,1Gf" pstate="0"{profile}>'
            f'<prop id="wattage_per_state" value="{watts}"/><prop id="wattage_off" value="{off}"/></host>'
        )
    xml = tmp_path / "platform.xml"
    xml.write_text(
        '<?xml version="1.0"?><!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">'
        '<platform version="4.1"><zone id="z" routing="None"><host id="master" speed="1Gf">'
        f'<prop id="wattage_per_state" value="0:0:0"/></host>{"".join(hosts)}</zone></platform>'
    )
    rank = {1: 0, 2: 0, 0: -1}  # at one time a state is left before another one is entered
    case = {
        "pstates": sorted(pstates, key=lambda row: (row[0], rank[row[2]])),
        "jobs": sorted(
            [float(start), f"n{held.min}", float(seconds) * 1e9]
            for start, held, seconds in zip(result.starting_time, result.allocations, workload.runtime, strict=True)
        ),
        "end": result.end_time,
    }
    done = subprocess.run(
        [interpreter(), "-c", SIMGRID, str(xml), json.dumps(case)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    told = dict(re.findall(r"Energy consumption of host (\w+): ([0-9.]+) Joules", done.stderr + done.stdout))
    assert set(told) == {"master", *(f"n{node}" for node in range(platform.n_nodes))}
    assert sum(map(float, told.values())) == pytest.approx(result.energy_joules, rel=1e-6)


# Forks, look-ahead, and runs of the command line


def test_a_fork_continues_as_the_original_and_leaves_it_alone() -> None:
    settings = suspend(suspend_time=50, suspend_rate=3, boot_failure=0.3, repair=500)
    platform, rng = sleeping(nodes=5), np.random.default_rng(8)
    workload = jobs(
        *sorted(
            (float(rng.integers(0, 20_000)), float(rng.integers(10, 400)), int(rng.integers(1, 8))) for _ in range(60)
        )
    )
    whole = simulate(platform, workload, "easy", power=settings)
    simulation = Simulation(platform, workload, "easy", power=settings)
    for date in (4000, 9000):
        simulation.run_until(date)
        fork = simulation.fork(runtimes="actual", arrivals="actual")
        assert fork.run().finish_time.tolist() == whole.finish_time.tolist()
        simulation.fork().run()  # knows neither arrivals nor which boots fail
    assert simulation.run().finish_time.tolist() == whole.finish_time.tolist()


@pytest.mark.parametrize(
    "agent", ["fcfs", "easy-sjf", "conservative", "hybrid4", "rlscheduler-f1", "greedy", *nightly("saf")]
)
@pytest.mark.parametrize("contention", ["none", "threshold"])
def test_every_agent_keeps_the_invariants(agent: str, contention: str) -> None:
    rng = np.random.default_rng(4)
    document = sleeping(nodes=4).to_dict()
    document["types"]["processor"]["homogeneous"]["mem_bw"] = 10
    platform, count = Platform.from_dict(document), 60
    workload = Workload.from_columns(
        submission_time=np.sort(rng.integers(0, 20_000, count)),
        runtime=rng.integers(10, 400, count),
        requested_time=rng.integers(10, 400, count),
        requested_cores=rng.integers(1, 8, count),
        memory_bandwidth=np.full(count, 8.0),
    )
    settings = suspend(suspend_time=60, boot_failure=0.1, repair=300)
    result = simulate(platform, workload, agent, power=settings, contention=contention, check=True)
    assert result.metrics["jobs_completed"] == count
    check_energy(result)
    # No job runs on a node that is not up.
    held, found = result.segments, result.node_states
    assert found is not None
    for job_begin, job_end, cores in zip(held.begin, held.end, held.held.procsets(), strict=True):
        nodes = {int(platform.processor_node[platform.core_processor[core]]) for core in cores}
        away = np.isin(found.node, list(nodes)) & (found.begin < job_end) & (found.end > job_begin)
        assert not away.any()


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"suspend_time": -1}, "power.suspend_time: expected seconds >= 0 or a text with a unit"),
        ({"suspend_time": "10 minutes"}, "power.suspend_time: .*minutes"),
        ({"suspend_rate": 0}, "power.suspend_rate: expected a whole number >= 1 or null, got 0"),
        ({"resume_rate": 1.5}, "power.resume_rate: expected a whole number >= 1 or null, got 1.5"),
        ({"boot_failure": 1}, "power.boot_failure: expected a number >= 0 and below 1, got 1"),
        (
            {"resume_timeout": 60},
            "power.resume_timeout: expected at least 100 s, as long as the slowest boot takes, got 60 s",
        ),
        ({"repair": 0.0, "exclude": "all"}, "power.exclude: expected a list of names"),
        ({"exclude": None}, "power.exclude: expected a list of names"),
        ({"exclude": {"main": 1}}, "power.exclude: expected a list of names"),
        ({"cap": {}}, "power.cap: expected limits by names such as machine, got none"),
        ({"suspendtime": 3}, "unexpected keyword argument 'suspendtime'.*did you mean 'suspend_time'"),
    ],
)
def test_settings_that_are_refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_model("power", suspend(**keys), sleeping())


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"suspend_time": 5}, "power.suspend_time: expected none, since power=predictive chooses"),
        ({"wait_wats": 5}, "unexpected keyword argument 'wait_wats'.*'wait_watts'.*allowed keys: wait_watts, memory"),
        ({"spares": 1}, "unexpected keyword argument 'spares' .did you mean 'spare'"),
    ],
)
def test_settings_that_a_derived_class_refuses(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_model("power", {"_target_": "hdsim.power.PredictiveSuspend", **keys}, sleeping())


def test_platforms_that_cannot_sleep_are_refused() -> None:
    with pytest.raises(ConfigError, match="power: expected node types with the power state off, which no node of"):
        PowerManagement(Platform.homogeneous(2, 2))
    with pytest.raises(PlatformError, match=r"states.off: expected a value beside going_down and booting, got none"):
        Platform.homogeneous(2, 2, states={"booting": {"watts": 1, "seconds": 1}})
    quantities = Platform.from_dict({**sleeping().to_dict(), "kind": "quantities"})
    with pytest.raises(ConfigError, match="power: expected none with quantities of nodes"):
        simulate(quantities, jobs((0, 1, 1)), "greedy", power="suspend")


@pytest.mark.parametrize("backend", ["slurm"])
def test_backends_that_do_not_know_power_states_say_so(backend: str) -> None:
    with pytest.raises(ConfigError, match="power: expected none, got power_management"):
        make_backend(backend).check(sleeping(), jobs((0, 1, 1)), power="suspend")


def test_a_time_out_of_one_s_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from hdsim.power import PowerManagement\n"
        "class Mine(PowerManagement):\n"
        "    def timeout(self, nodes, cluster):\n"
        "        return (nodes + 1) * 10.0\n"
    )
    result = simulate(sleeping(nodes=3), jobs((0, 100, 1)), "fcfs", power={"path": str(file), "suspend_rate": None})
    assert [row[:3] for row in spans(result) if row[1] == "going_down"] == [
        (1, "going_down", 20),
        (2, "going_down", 30),
    ]


@pytest.mark.parametrize("seconds", ["-5", "float('nan')", "nodes * -1.0"])
def test_a_time_out_that_is_none_does_not_turn_the_clock_back(tmp_path: Path, seconds: str) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from hdsim.power import PowerManagement\n"
        "class Mine(PowerManagement):\n"
        "    def timeout(self, nodes, cluster):\n"
        f"        return {seconds}\n"
    )
    with pytest.raises(ConfigError, match=r"power: expected time-outs of at least 0 s from Mine, got (-5|nan|-1)"):
        simulate(sleeping(), jobs((0, 100, 1)), "fcfs", power={"path": str(file)})


def test_the_result_of_a_replay_of_sleep_is_that_of_its_parts() -> None:
    """Power of some nodes adds up to that of all."""
    result = simulate(sleeping(nodes=3), jobs((0, 100, 2), (500, 50, 4)), "fcfs", power=suspend(suspend_time=200))
    parts = [series.power(result, np.arange(3) == node) for node in range(3)]
    whole = series.power(result)
    assert sum(part.integral() for part in parts) == pytest.approx(whole.integral())
    total = sum(part.at(whole.times) for part in parts)
    assert total == pytest.approx(whole.values)
    assert metrics.full(result)["peak_power_watts"] == whole.values.max()
    assert hdsim.__name__
