"""Batsim's sleep P-states: hosts that a scheduler switches off and on, against closed forms and a slow account."""

from __future__ import annotations

import csv
import math
import random
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sleeping_nodes
from batsim_peer import served_by_batsim
from hypothesis import given
from hypothesis import strategies as st
from test_batsim_serve import (
    SCHEDULERS,
    BatsimServer,
    Event,
    Options,
    batsim_serve,
    delays,
    event,
    execute,
    free_port,
    peer,
    rows,
    scripted,
    talk,
)
from tiers import ci, examples

import hdsim
from hdsim.backends.batsim.backend import Batsim
from hdsim.backends.batsim.hosts import COMPUTATION, SLEEP, VIRTUAL, hosts_of, read_xml
from hdsim.errors import BackendError, ConfigError, PlatformError
from hdsim.workload.batsim_json import write_batsim
from hdsim.workload.generators import lublin

#: Speeds, and watts with and without load, of the P-states of Batsim's example platforms: three to compute in, then
#: sleep, and on the way down and up.
SPEEDS = ("100Mf", "75Mf", "50Mf", "1Mf", "0.5f", "0.05f")
WATTS = ((30.0, 100.0), (20.0, 80.0), (10.0, 60.0), (9.75, 9.75), (200.0, 210.0), (400.0, 425.0))
DOWN_SECONDS, UP_SECONDS, SLEEPING = 2.0, 20.0, 3


def xml(hosts: int, pstate: int = 0, sleep: str = "3:4:5") -> bytes:
    watts = ", ".join(f"{idle}:{full}" for idle, full in WATTS)
    properties = f'<prop id="wattage_per_state" value="{watts}"/><prop id="sleep_pstates" value="{sleep}"/>'
    every = "".join(
        f'<host id="h{n}" speed="{", ".join(SPEEDS)}" pstate="{pstate}">{properties}</host>' for n in range(hosts)
    )
    return f'<platform version="4.1"><zone id="z" routing="Full">{every}</zone></platform>'.encode()


def server(*jobs: tuple[float, float, int], hosts: int = 2, pstate: int = 0, **options: Any) -> BatsimServer:
    return BatsimServer(read_xml(xml(hosts, pstate), "p.xml"), [delays(*jobs)], Options(energy=True, **options))


def switch(message: Mapping[str, Any], hosts: str, state: int, at: float | None = None) -> Event:
    return event(message, "SET_RESOURCE_STATE", at, resources=hosts, state=str(state))


def energy(message: Mapping[str, Any], at: float | None = None) -> Event:
    return event(message, "QUERY", at, requests={"consumed_energy": {}})


def heard(told: list[dict[str, Any]], kind: str) -> list[tuple[float, Any]]:
    return [(each["timestamp"], each["data"]) for message in told for each in message["events"] if each["type"] == kind]


def test_sleep_pstates_are_read() -> None:
    hosts = read_xml(xml(2), "p.xml")
    assert hosts.kind.tolist() == [[COMPUTATION] * 3 + [SLEEP, VIRTUAL, VIRTUAL]] * 2
    assert hosts.via[:, 0, SLEEPING].tolist() == [4, 5]
    assert hosts.seconds[0, 4:].tolist() == [DOWN_SECONDS, UP_SECONDS]


@pytest.mark.parametrize(
    ("sleep", "pstate", "message"),
    [
        ("3:4", 0, "expected P-states 0 to 5 as in 'SLEEP:OFF:ON', got '3:4'"),
        ("3:4:6", 0, "expected P-states 0 to 5"),
        ("3:4:x", 0, "expected P-states 0 to 5"),
        ("3:3:5", 0, "differ from all others"),
        ("3:4:5,3:4:5", 0, "differ from all others"),
        ("3:4:5,4:5:5", 0, "differ from all others"),
        ("3:4:5", 5, "expected no virtual P-state, got 5"),
        ("0:3:4,1:3:4,2:3:4,5:3:4", 0, "expected a P-state in which the host computes"),
    ],
)
def test_faults_of_sleep_pstates(sleep: str, pstate: int, message: str) -> None:
    with pytest.raises(PlatformError, match=message):
        read_xml(xml(1, pstate, sleep), "p.xml")


def test_a_switch_takes_the_time_of_a_flop_and_its_joules(tmp_path: Path) -> None:
    """Host 1 is off from 1 s to 50 s; the job of 100 s on both hosts starts when it is back."""
    served = server((1.0, 100.0, 2))

    def reply(message: dict[str, Any]) -> list[Event]:
        events = []
        for each in message["events"]:
            if each["type"] == "JOB_SUBMITTED":
                events += [switch(message, "1", SLEEPING), event(message, "CALL_ME_LATER", timestamp=50.0)]
            elif each["type"] == "REQUESTED_CALL":
                events += [energy(message), switch(message, "1", 0)]
            elif each["type"] == "RESOURCE_STATE_CHANGED":
                events.append(energy(message))
                if each["data"]["state"] == "0":
                    events.append(event(message, "EXECUTE_JOB", job_id="w0!0", alloc="0-1"))
        return events

    told = talk(served, reply)
    changed = heard(told, "RESOURCE_STATE_CHANGED")
    assert changed == [(3.0, {"resources": "1", "state": "3"}), (70.0, {"resources": "1", "state": "0"})]
    down, asleep, up = 210 * DOWN_SECONDS, 9.75 * 47, 425 * UP_SECONDS
    answers = [data["consumed_energy"] for _, data in heard(told, "ANSWER")]
    assert answers == pytest.approx(
        [30 * (3 + 1) + down, 30 * (50 + 1) + down + asleep, 30 * (70 + 1) + down + asleep + up]
    )
    served.record.write(f"{tmp_path}/out", scheduling_seconds=0.0, wall_seconds=0.0)
    (job,) = rows(tmp_path / "out_jobs.csv")
    assert (job["starting_time"], job["finish_time"]) == ("70.000000", "170.000000")
    # A host of a delay draws idle power.
    (schedule,) = rows(tmp_path / "out_schedule.csv")
    assert float(schedule["consumed_joules"]) == pytest.approx(30 * 169 + down + asleep + up + 30 * 100)
    times = [float(schedule[f"time_{name}"]) for name in ("switching_off", "sleeping", "switching_on")]
    assert times == [DOWN_SECONDS, 47.0, UP_SECONDS]
    assert (schedule["nb_machine_switches"], schedule["nb_grouped_switches"]) == ("2", "2")
    table = [tuple(row.values()) for row in rows(tmp_path / "out_machine_states.csv")]
    # Time, sleeping, switching on, switching off, idle, computing.
    assert table == [
        ("1", "0", "0", "1", "1", "0"),
        ("3", "1", "0", "0", "1", "0"),
        ("50", "0", "1", "0", "1", "0"),
        ("70", "0", "0", "0", "2", "0"),
        ("70", "0", "0", "0", "0", "2"),
        ("170", "0", "0", "0", "2", "0"),
    ]
    states = [tuple(row.values()) for row in rows(tmp_path / "out_pstate_changes.csv")]
    assert states == [("0", "0-1", "0"), ("1", "1", "-2"), ("3", "1", "3"), ("50", "1", "-1"), ("70", "1", "0")]


@pytest.mark.parametrize("when", ["asleep", "down", "up"])
def test_a_job_on_a_host_that_is_not_on_is_an_error(when: str) -> None:
    at = {"down": 2.0, "asleep": 10.0, "up": 30.0}[when]
    decisions = [(1.0, SLEEPING), *([(20.0, 0)] if when == "up" else [])]

    def reply(message: dict[str, Any]) -> list[Event]:
        asked = [switch(message, "1", state, date) for date, state in decisions]
        return [*asked, event(message, "EXECUTE_JOB", at, job_id="w0!0", alloc="1")]

    with pytest.raises(BackendError, match=r"w0!0: expected hosts that are on, got 1, which sleep, go down or boot"):
        talk(server((1.0, 5.0, 1)), scripted(None, reply))


@pytest.mark.parametrize(
    ("decisions", "message"),
    [
        ([(1.0, 4)], "expected a P-state that is not virtual, got 4"),
        ([(1.0, 7)], "expected a P-state from 0 to 5, got '7'"),
        ([(1.0, 3), (2.0, 0)], "expected hosts that do not change, got 1, which go down or boot"),
        ([(1.0, 3), (9.0, 3)], "expected hosts that are on, got 1, which sleep already"),
    ],
)
def test_impossible_switches_are_errors(decisions: list[tuple[float, int]], message: str) -> None:
    def reply(told: dict[str, Any]) -> list[Event]:
        return [switch(told, "1", state, date) for date, state in decisions]

    with pytest.raises(BackendError, match=message):
        talk(server((1.0, 5.0, 1)), scripted(None, reply))


def test_a_host_with_a_job_cannot_go_down() -> None:
    def reply(message: dict[str, Any]) -> list[Event]:
        return [event(message, "EXECUTE_JOB", job_id="w0!0", alloc="1"), switch(message, "0-1", SLEEPING)]

    with pytest.raises(BackendError, match="expected idle hosts to go down, got 1, which serve jobs"):
        talk(server((1.0, 5.0, 1)), scripted(None, reply))


def test_hosts_that_begin_asleep_are_switched_on() -> None:
    served = server((0.0, 5.0, 1), pstate=SLEEPING)
    told = talk(served, scripted(None, lambda message: [switch(message, "0-1", 1)], None, execute("w0!0", "0")))
    assert heard(told, "RESOURCE_STATE_CHANGED") == [(UP_SECONDS, {"resources": "0-1", "state": "1"})]
    assert told[-1]["events"][-1]["type"] == "SIMULATION_ENDS"


def test_the_simulation_ends_after_the_last_switch() -> None:
    served = server((0.0, 5.0, 1))
    told = talk(served, scripted(None, execute("w0!0", "0"), None, lambda message: [switch(message, "0-1", SLEEPING)]))
    assert heard(told, "SIMULATION_ENDS")[0][0] == 5.0 + DOWN_SECONDS


class Account:
    """Joules and states of hosts, second by second of what was asked for: a slow account of its own."""

    def __init__(self, hosts: int) -> None:
        # (begin, watts) of each host; the P-state that it will have; when its change is over; whether it computes.
        self.draws = [[(0.0, WATTS[0][0])] for _ in range(hosts)]
        self.state = [0] * hosts
        self.settled = [0.0] * hosts

    def ask(self, host: int, state: int, now: float) -> float:
        """Adds a switch; returns when it is over."""
        before = self.state[host]
        self.state[host], via = state, None
        if state == SLEEPING:
            via, seconds = 4, DOWN_SECONDS
        elif before == SLEEPING:
            via, seconds = 5, UP_SECONDS
        if via is not None:
            self.draws[host].append((now, WATTS[via][1]))
            now += seconds
        self.draws[host].append((now, WATTS[state][0]))
        self.settled[host] = now
        return now

    def joules(self, until: float) -> float:
        total = 0.0
        for draws in self.draws:
            ends = [begin for begin, _ in draws[1:]] + [math.inf]
            for (begin, watts), end in zip(draws, ends, strict=True):
                total += watts * max(min(end, until) - begin, 0.0)
        return total


@examples(30, 100)
@given(st.integers(0, 2**31))
def test_random_switches_against_a_slow_account(seed: int) -> None:
    rng, hosts = random.Random(seed), 5
    account, expected, times, busy = Account(hosts), [], [], set()
    served = server((0.0, 400.0, 1), hosts=hosts)

    def reply(message: dict[str, Any]) -> list[Event]:
        now, events = message["now"], []
        if now == 0.0:
            if any(each["type"] == "JOB_SUBMITTED" for each in message["events"]):
                busy.add(0)
                return [event(message, "EXECUTE_JOB", job_id="w0!0", alloc="0"), later(message)]
            return []
        if not any(each["type"] == "REQUESTED_CALL" for each in message["events"]):
            return []
        state = rng.choice([0, 1, 2, SLEEPING, SLEEPING])
        can = [
            host
            for host in range(hosts)
            if account.settled[host] <= now
            and not (state == SLEEPING and (account.state[host] == SLEEPING or host in busy))
        ]
        if can:
            chosen = sorted(rng.sample(can, rng.randint(1, len(can))))
            over = max([account.ask(host, state, now) for host in chosen])
            expected.append((over, {"resources": str(hdsim.util.intervals.to_procset(chosen)), "state": str(state)}))
            events.append(switch(message, " ".join(map(str, chosen)), state))
        times.append(now)
        return [*events, energy(message), *([later(message)] if now < 350 else [])]

    def later(message: dict[str, Any]) -> Event:
        return event(message, "CALL_ME_LATER", timestamp=message["now"] + rng.choice([0.5, 1.0, 2.0, 7.0, 20.0, 33.0]))

    told = talk(served, reply)
    answers = [data["consumed_energy"] for _, data in heard(told, "ANSWER")]
    assert answers == pytest.approx([account.joules(now) for now in times], rel=1e-6)
    changed = sorted(heard(told, "RESOURCE_STATE_CHANGED"), key=str)
    assert changed == sorted(expected, key=str)
    assert len(changed) > 3


def consumed(folder: Path, hosts: int, until: float) -> float:
    """Joules by the tables of jobs and P-states, hosts of delays idle."""
    draws = [[(0.0, WATTS[0][0])] for _ in range(hosts)]
    for row in rows(folder / "out_pstate_changes.csv")[1:]:
        for host in hdsim.util.intervals.parse_interval_set(row["machine_id"], hosts):
            state = {-2: 4, -1: 5}.get(int(row["new_pstate"]), int(row["new_pstate"]))
            draws[host].append((float(row["time"]), WATTS[state][int(state in (4, 5))]))
    total = 0.0
    for each in draws:
        ends = [begin for begin, _ in each[1:]] + [math.inf]
        total += sum(watts * max(min(end, until) - begin, 0) for (begin, watts), end in zip(each, ends, strict=True))
    return total


@pytest.mark.requires("pybatsim")
def test_a_scheduler_of_pybatsim_switches_hosts_off_and_on(tmp_path: Path) -> None:
    """pybatsim's fcfsSchedSleep, given P-states as the numbers that it expects."""
    workload = lublin.generate(120, 5, 16).scaled_arrivals(4.0)
    write_batsim(workload.replaced(walltime=workload.runtime + 1.0), tmp_path / "jobs.json", None)
    (tmp_path / "p.xml").write_bytes(xml(16))
    port = free_port()
    with peer(SCHEDULERS / "fcfsAsleep.py", port) as process:
        done = batsim_serve(
            "-p", tmp_path / "p.xml", "-w", tmp_path / "jobs.json", "-e", tmp_path / "out", "-E", port=port
        )
        assert done.returncode == 0, done.stderr
        assert process.wait(60) == 0
    assert {row["final_state"] for row in rows(tmp_path / "out_jobs.csv")} == {"COMPLETED_SUCCESSFULLY"}
    (schedule,) = rows(tmp_path / "out_schedule.csv")
    assert int(schedule["nb_machine_switches"]) > 100
    assert float(schedule["time_sleeping"]) > 0
    with (tmp_path / "out_consumed_energy.csv").open() as file:
        *_, last = csv.DictReader(file)
    assert float(last["energy"]) == pytest.approx(consumed(tmp_path, 16, float(last["time"])), rel=1e-6)


# Platforms of hdsim with power states of nodes

sleeping = partial(sleeping_nodes.sleeping, processors=2, cores=2)
spaced = sleeping_nodes.spaced


def test_nodes_of_hdsim_sleep_by_their_power_states() -> None:
    """Node 1 is off from 0 s to 100 s and then up; node 0 computes on one core from 10 s to 20 s."""
    hosts = hosts_of(sleeping(2))
    served = BatsimServer(hosts, [delays((10.0, 10.0, 1))], Options(energy=True))
    assert hosts.properties[0]["sleep_pstates"] == "5:6:7"

    def reply(message: dict[str, Any]) -> list[Event]:
        kinds = [each["type"] for each in message["events"]]
        if "SIMULATION_BEGINS" in kinds:
            return [switch(message, "4-7", 5), event(message, "CALL_ME_LATER", timestamp=100.0)]
        if "JOB_SUBMITTED" in kinds:
            return [event(message, "EXECUTE_JOB", job_id="w0!0", alloc="0")]
        if "REQUESTED_CALL" in kinds:
            return [energy(message), switch(message, "4-7", 0)]
        return [energy(message)] if message["now"] == 280.0 and "RESOURCE_STATE_CHANGED" in kinds else []

    told = talk(served, reply)
    # Two processors of 100 W: 5 % of it idle; a busy core 50 W and the other one of its processor 12.5 W.
    node0 = 100 * (40 + 10) + 10 * (60 - 40 + 62.5 - 5)
    node1 = 52 * 30 + 8 * 70
    until_up = 180 * (40 + 10) + 180 * 120
    answers = [data["consumed_energy"] for _, data in heard(told, "ANSWER")]
    assert answers == pytest.approx([node0 + node1, node0 + node1 + until_up])


# hdsim's agents behind Batsim


@pytest.mark.parametrize(
    ("agent", "power"),
    [
        ("easy", {"suspend_time": 300}),
        ("fcfs", {"suspend_time": 0}),
        *ci(("conservative", {"suspend_time": 60, "suspend_rate": 1, "resume_rate": 1})),
        *ci(("easy", {"suspend_time": 600, "exclude": ["main-1"]})),
    ],
)
@pytest.mark.parametrize("seed", [1, *ci(2, 3)])
def test_nodes_sleep_behind_batsim_as_in_the_simulation(
    tmp_path: Path, agent: str, power: dict[str, Any], seed: int
) -> None:
    platform, jobs = sleeping(), spaced(seed, 60)
    if "exclude" in power:
        power = {**power, "exclude": [platform.node_names[1]]}
    model = {"_target_": "hdsim.power.PowerManagement", **power}
    expected = hdsim.simulate(platform, jobs, agent, power=model)
    result, served = served_by_batsim(platform, agent, jobs, tmp_path, energy=True, power=model)
    assert expected.metrics["boots"] > 5
    assert result.starting_time == pytest.approx(expected.starting_time, abs=1e-6)
    assert result.finish_time == pytest.approx(expected.finish_time, abs=1e-6)
    assert result.jobs["allocated_resources"].tolist() == expected.jobs["allocated_resources"].tolist()
    for key in ("energy_joules", "node_hours_off", "joules_booting", "boots"):
        assert result.metrics[key] == pytest.approx(expected.metrics[key], rel=1e-6), key
    # What Batsim counts, by the watts of the XML, from the first submission to the last completion.
    assert served.record._joules_at_last_end == pytest.approx(expected.metrics["energy_joules"], rel=1e-6)


class Switcher(hdsim.Agent):
    """First come, first served, which switches idle nodes off and some on, and kills jobs that wait for nodes."""

    def decide(self, cluster: Any) -> None:
        for job in [job for job in cluster.starting if job % 5 == 0]:
            cluster.kill(job)
        while cluster.queue and cluster.fits(job := next(iter(cluster.queue))):
            cluster.start(job)
        states = cluster.node_states.state
        idle = cluster.cores.idle_nodes(np.arange(cluster.platform.n_nodes))
        cluster.power_off(idle[: len(idle) // 2])
        cluster.power_on(np.flatnonzero(states == 3)[:1])
        if cluster.submitted:
            cluster.call_me_later(cluster.now + 77)


def test_an_agent_switches_nodes_behind_batsim_as_in_the_simulation(tmp_path: Path) -> None:
    platform, jobs = sleeping(), spaced(4, 40)
    expected = hdsim.simulate(platform, jobs, Switcher(), power="states")
    result, served = served_by_batsim(platform, Switcher(), jobs, tmp_path, energy=True, power="states")
    assert expected.metrics["jobs_killed"] > 0
    assert result.starting_time == pytest.approx(expected.starting_time, abs=1e-6)
    assert result.finish_time == pytest.approx(expected.finish_time, abs=1e-6)
    assert result.metrics["energy_joules"] == pytest.approx(expected.metrics["energy_joules"], rel=1e-6)
    assert served.record._joules_at_last_end == pytest.approx(expected.metrics["energy_joules"], rel=1e-6)


class Changing(hdsim.Agent):
    """EASY's passes by the action `suspend`, with a time-out that follows from the time of the decision."""

    def begin(self, cluster: Any) -> None:
        self.problem = hdsim.decisions.DecisionProblem("suspend", "node_states", timeouts=[5, 60, 300, None])
        self.problem.begin(cluster)

    def decide(self, cluster: Any) -> None:
        while self.problem.pending():
            self.problem.observe()
            self.problem.act(int(cluster.now) % 4)


def test_time_outs_are_chosen_behind_batsim_as_in_the_simulation(tmp_path: Path) -> None:
    platform, jobs = sleeping(), spaced(6, 40)
    expected = hdsim.simulate(platform, jobs, Changing(), power="states")
    result, served = served_by_batsim(platform, Changing(), jobs, tmp_path, energy=True, power="states")
    assert expected.metrics["boots"] > 5
    assert result.starting_time == pytest.approx(expected.starting_time, abs=1e-6)
    assert result.metrics["energy_joules"] == pytest.approx(expected.metrics["energy_joules"], rel=1e-6)
    assert served.record._joules_at_last_end == pytest.approx(expected.metrics["energy_joules"], rel=1e-6)


@pytest.mark.parametrize(
    ("backend", "power", "message"),
    [
        ({"energy": False}, {"suspend_time": 60}, "power sets P-states, which Batsim does not do with"),
        ({}, {"suspend_time": 60, "cap": 0.9}, "power.cap: expected null; Batsim does not know of caps"),
        ({}, {"suspend_time": 60, "boot_failure": 0.1}, "power.boot_failure: expected 0, got 0.1"),
    ],
)
def test_power_management_that_batsim_cannot_express_is_refused(
    backend: dict[str, Any], power: dict[str, Any], message: str
) -> None:
    model = {"_target_": "hdsim.power.PowerManagement", **power}
    with pytest.raises(ConfigError, match=message):
        Batsim(socket="ipc://nowhere", **backend).check(sleeping(), spaced(1, 3), power=model)


def test_forks_behind_batsim_are_refused_where_nodes_sleep(tmp_path: Path) -> None:
    def looks_ahead(cluster: Any) -> None:
        cluster.fork()

    with pytest.raises(ConfigError, match="expected power=none where another backend runs the jobs"):
        served_by_batsim(sleeping(), looks_ahead, spaced(1, 5), tmp_path, energy=True, power="states")
