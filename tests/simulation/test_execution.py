"""Programs of jobs in the engine against an event loop that finds everything anew after each event."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import bsp_reference as slow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from schedules import cores_of_jobs
from tiers import examples

from hdsim import Agent, Platform, Workload, simulate
from hdsim.cluster.state import FinalState
from hdsim.scheduling.agent import make_agent
from hdsim.workload.batsim_json import jobs_of
from hdsim.workload.patterns import PATTERNS

CURVE = {"b": -0.03, "c": 12.0, "da": 3.0, "db": 0.5, "dc": 24.0, "dd": 1.0}
CONTENTION: dict[str, tuple[Any, Any]] = {
    "none": ("none", slow.no_contention),
    "threshold": ("threshold", slow.threshold),
    "fair_share": ("fair_share", slow.fair_share(1.0)),
    "fair_share 0.6": (
        {"_target_": "hdsim.contention.fair_share.FairShare", "memory_bound_fraction": 0.6},
        slow.fair_share(0.6),
    ),
    "smoothstep": (
        {"_target_": "hdsim.contention.smoothstep.Smoothstep", "constants": CURVE, "digits": None},
        slow.smoothstep(**CURVE),
    ),
}
TOTAL = ("computation", "communication", "waiting", "supersteps")


def random_platform(draw: Random) -> Platform:
    """One or two clusters, processors of three kinds, links of all sorts."""
    names = "abc"
    processors = {
        name: {
            "cores": draw.randint(1, 3),
            "clock_rate": draw.choice([1, 2, 2.5]),
            "dpflops_per_cycle": 4,
            "power": 50,
            "mem_bw": draw.choice([10, 16, 24]),
        }
        for name in names
    }
    nodes = {
        name: {"processors": [{"type": draw.choice(names), "number": draw.randint(1, 2)} for _ in range(2)]}
        for name in "xy"
    }
    speeds = {"slow": {"bandwidth": "1GBps"}, "quick": {"bandwidth": "2.5GBps"}}
    latency = draw.choice([0, 1, 250])
    clusters = [
        {
            "id": f"c{k}",
            "nodes": [{"type": draw.choice("xy"), "number": draw.randint(1, 3)} for _ in range(draw.randint(1, 2))],
            "local_links": {"type": draw.choice(list(speeds)), "latency": f"{latency * (k + 1)}ms"},
        }
        for k in range(draw.randint(1, 2))
    ]
    return Platform.from_dict(
        {
            "clusters": clusters,
            "global_links": {"type": draw.choice(list(speeds)), "latency": f"{2 * latency}ms"},
            "types": {"network": speeds, "node": nodes, "processor": processors},
        }
    )


def random_profiles(draw: Random, tasks: int, reference: float) -> dict[str, dict[str, Any]]:
    """One profile of every kind for a job of so many tasks, and `main`, which is one of them or made of them."""
    flop = reference * 1e9

    def seconds(least: int = 0) -> float:
        return draw.choice([least, 1, 2, 0.7, 3.3]) * flop

    def volume() -> float:
        return draw.choice([0, 1e9, 5e8, 3.1e8])

    def matrix() -> list[float]:
        size = draw.choice([1e9, 4e8])
        return [size * (i != j and draw.random() < 0.5) for i in range(tasks) for j in range(tasks)]

    count = draw.randint(1, 4)
    works = {
        "equal": seconds(),
        "row": [seconds() for _ in range(tasks)],
        "rows": [[seconds() for _ in range(tasks)] for _ in range(count)],
    }
    messages = draw.choice([*PATTERNS, [draw.choice([0, 1e9, 2e8, 7e8]) for _ in range(tasks * tasks)]])
    profiles: dict[str, dict[str, Any]] = {
        "bsp": {
            "type": "bsp",
            "supersteps": count,
            "cpu": works[draw.choice(list(works))],
            "com": volume(),
            "pattern": messages,
            "g": draw.choice([0, 1e-9]),
            "l": draw.choice([0, 0, 0.25]),
        },
        "delay": {"type": "delay", "delay": draw.choice([0, 1.5])},
        "parallel": {"type": "parallel", "cpu": [seconds() for _ in range(tasks)], "com": matrix()},
        "silent": {"type": "parallel", "cpu": [seconds() for _ in range(tasks)]},
        "rigid": {"type": "parallel_homogeneous", "cpu": seconds(1), "com": 0},
        "even": {"type": "parallel_homogeneous", "cpu": seconds(), "com": volume()},
        "total": {"type": "parallel_homogeneous_total", "cpu": seconds() * tasks, "com": volume() * tasks},
    }
    kinds = list(profiles)
    profiles["inner"] = {"type": "composed", "repeat": draw.randint(1, 2), "seq": draw.choices(kinds, k=2)}
    profiles["outer"] = {"type": "composed", "repeat": draw.randint(1, 2), "seq": [draw.choice(kinds), "inner"]}
    main = draw.choice(["bsp", "bsp", "bsp", "outer", "parallel", "even", "total", "rigid", "delay"])
    profiles["main"] = {"type": "composed", "seq": [main]} if draw.random() < 0.2 else profiles[main]
    return profiles


def make_workload(jobs: list[dict[str, Any]], profiles: dict[str, Any], platform: Platform) -> Workload:
    """A workload of Batsim jobs."""
    raw = jobs_of({"jobs": jobs, "profiles": profiles}, "w.json", platform.reference_gflops)
    assert not raw.errors
    return Workload.from_columns(**raw.columns, profiles=raw.profiles, reference_gflops=platform.reference_gflops)


def random_workload(draw: Random, platform: Platform, size: int) -> Workload:
    """Jobs of all kinds, each with profiles of its own."""
    jobs, profiles = [], {}
    for row in range(size):
        tasks = draw.randint(1, min(6, platform.n_cores))
        own = random_profiles(draw, tasks, platform.reference_gflops)
        for name, profile in own.items():
            parts = {"seq": [f"{part}{row}" for part in profile["seq"]]} if profile["type"] == "composed" else {}
            profiles[f"{name}{row}"] = profile | parts
        profiles[f"main{row}"]["mem_bw"] = draw.choice([0, 2, 4, 7, 20])
        job = {"id": row, "subtime": draw.choice([0, 0, 0.5, 1, 2.2, 4]), "res": tasks, "profile": f"main{row}"}
        if draw.random() < 0.2:
            job["walltime"] = draw.choice([1.3, 3, 6])
        jobs.append(job)
    return make_workload(jobs, profiles, platform)


class Killer(Agent):
    """Serves the queue as another agent does, and kills jobs some time after their starts.

    Args:
        after: s from the start to the kill, by job.
        agent: Who starts jobs.
    """

    def __init__(self, after: dict[int, float], agent: str = "easy") -> None:
        self.after, self.agent = after, make_agent(agent)
        self.core_policy = self.agent.core_policy
        self.due: dict[int, float] = {}

    def begin(self, cluster: Any) -> None:
        self.cluster = cluster
        self.agent.begin(cluster)

    def decide(self, cluster: Any) -> None:
        self.agent.decide(cluster)
        for job in cluster.started:
            if job in self.after:
                self.due[job] = cluster.now + self.after[job]
                cluster.call_me_later(self.due[job])
        for job, date in self.due.items():
            if date <= cluster.now and job in cluster.running and job not in cluster.killed:
                cluster.kill(job)


def check_against_reference(
    platform: Platform, workload: Workload, contention: str, network: str, after: dict[int, float], agent: str
) -> None:
    """Replays, gives the reference the starts and cores that came out, and compares all that follows from them."""
    spec, speeds = CONTENTION[contention]
    killer = Killer(after, agent)
    result = simulate(platform, workload, killer, contention=spec, network=network, kill_at_walltime=True, check=True)
    time_breakdown = killer.cluster.time_breakdown
    starts = []
    for row in range(len(workload)):
        cores = cores_of_jobs(result)[row].tolist()
        stop = math.inf
        if result.state[row] == FinalState.COMPLETED_KILLED:
            stop = killer.due[row]
        elif result.state[row] == FinalState.COMPLETED_WALLTIME_REACHED:
            stop = result.starting_time[row] + workload.walltime[row]
        tasks = int(workload.requested_cores[row])
        steps = slow.expand(workload.profiles, workload.profile[row], tasks, platform.reference_gflops)
        demand = float(workload.memory_bandwidth[row])
        starts.append((row, float(result.starting_time[row]), stop, cores, steps, demand))
    expected = slow.Simulation(platform, speeds, network == "fluid", starts).run()
    for row, job in expected.items():
        assert result.finish_time[row] == pytest.approx(job.finish, rel=1e-9, abs=1e-9), f"finish of job {row}"
        if result.state[row] in (FinalState.COMPLETED_KILLED, FinalState.COMPLETED_WALLTIME_REACHED):
            continue
        if time_breakdown is not None:
            for name in TOTAL:
                total = getattr(time_breakdown, name)[row]
                assert total == pytest.approx(getattr(job, name), rel=1e-8, abs=1e-8), f"{name} of job {row}"
            spent = time_breakdown.computation[row] + time_breakdown.communication[row]
            assert spent == pytest.approx(result.finish_time[row] - result.starting_time[row], rel=1e-9, abs=1e-9)
            assert -1e-12 <= time_breakdown.waiting[row] <= time_breakdown.computation[row] + 1e-9


@examples(60)
@given(
    draw=st.randoms(use_true_random=False),
    contention=st.sampled_from(list(CONTENTION)),
    network=st.sampled_from(["none", "fluid"]),
    agent=st.sampled_from(["easy", "fcfs-low_power"]),
)
def test_against_the_reference(draw: Random, contention: str, network: str, agent: str) -> None:
    platform = random_platform(draw)
    workload = random_workload(draw, platform, draw.randint(1, 8))
    after = {row: draw.choice([0.4, 2.0, 5.0]) for row in range(len(workload)) if draw.random() < 0.15}
    check_against_reference(platform, workload, contention, network, after, agent)
