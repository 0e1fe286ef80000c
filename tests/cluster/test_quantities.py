"""Cores without ids: the store of amounts per node against a slow reference, and what schedules on it."""

from __future__ import annotations

import csv
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asynchronous import Asynchronous
from hypothesis import given
from hypothesis import strategies as st
from kube_scores import score
from tiers import ci, examples

import hdsim
from hdsim.backends.base import Capabilities
from hdsim.cluster import invariants
from hdsim.cluster.policies import CORE_POLICIES, SCORES
from hdsim.cluster.state import Cluster, FinalState
from hdsim.decisions import DecisionProblem
from hdsim.errors import ConfigError, DecisionError, WorkloadError
from hdsim.platform.load import load_platform
from hdsim.results.run_directory.directory import RunDirectory
from hdsim.scheduling.agent import make_agent
from hdsim.util.resources import resolve

PLATFORM = load_platform(resolve("platforms", "eight_nodes"))
GPUS = load_platform(resolve("platforms", "accelerated"))
DONE = FinalState.COMPLETED_SUCCESSFULLY


def workload(seed: int, jobs: int, platform: hdsim.Platform, *, many: int = 4) -> hdsim.Workload:
    rng = np.random.default_rng(seed)
    memory = float(platform.memory[np.isfinite(platform.memory)].min(initial=64_000.0))
    return hdsim.Workload.from_columns(
        submission_time=np.sort(rng.integers(0, 200, jobs)),
        runtime=rng.integers(1, 50, jobs),
        requested_cores=rng.integers(1, many + 1, jobs),
        requested_gpus=rng.integers(0, 2, jobs) * (platform.n_gpus > 0),
        cpu=rng.choice([0.1, 0.25, 0.5, 0.3333333, 1.0, 2.5, 0.0], jobs),
        memory=rng.choice([0.0, 0.1, 0.3], jobs) * memory,
    )


class Reference:
    """What is free of every node, as exact fractions; a part of a job takes its node by itself."""

    def __init__(self, platform: hdsim.Platform, jobs: hdsim.Workload) -> None:
        self.platform, self.jobs = platform, jobs
        nodes = range(platform.n_nodes)
        self.cpu = [Fraction(int(platform.node_cpu_cores[node])) for node in nodes]
        self.memory = [platform.memory[node] for node in nodes]
        self.memory = [Fraction(int(m * 1e6)) if np.isfinite(m) else None for m in self.memory]
        self.gpus = [int(platform.node_gpus[node]) for node in nodes]
        self.all = list(zip(self.cpu, self.memory, strict=True))
        self.without = [[0, 0] for _ in nodes]
        self.best = []
        for node in nodes:
            own = [p for p in range(platform.n_processors) if platform.processor_node[p] == node]
            own = [p for p in own if not platform.is_gpu[p]]
            self.best.append(
                {
                    "high_gflops": max(platform.gflops[p] for p in own),
                    "low_power": max(-platform.power[p] for p in own),
                    "high_mem_bw": max(platform.mem_bw[p] for p in own),
                }
            )

    def part(self, job: int) -> tuple[int, Fraction, Fraction, int]:
        """How many parts, and the CPU, memory and GPUs of each."""
        cores, gpus = int(self.jobs.requested_cores[job]), int(self.jobs.requested_gpus[job])
        number = int(np.gcd(cores, gpus))
        milli = -(-Fraction(round(float(self.jobs.cpu[job]) * 10**9), 10**6) // 1)
        each = cores // number
        return (number, each * Fraction(milli, 1000), each * Fraction(int(self.jobs.memory[job] * 1e6)), gpus // number)

    def room(self, node: int, job: int) -> bool:
        _, cpu, memory, gpus = self.part(job)
        free = self.memory[node]
        return self.cpu[node] >= cpu and (free is None or free >= memory) and self.gpus[node] >= gpus

    def take(self, node: int, job: int, sign: int = -1) -> None:
        _, cpu, memory, gpus = self.part(job)
        self.cpu[node] += sign * cpu
        if self.memory[node] is not None:
            self.memory[node] += sign * memory
        self.gpus[node] += sign * gpus
        for kind, request in enumerate((cpu, memory)):
            if not request:
                self.without[node][kind] -= sign * self.cores_per_part(job)

    def cores_per_part(self, job: int) -> int:
        return int(self.jobs.requested_cores[job]) // self.part(job)[0]

    def score(self, policy: str, node: int, job: int) -> float:
        """With several requested cores in a part, each of them is a pod of its own where nothing is requested."""
        _, cpu, memory, _ = self.part(job)
        each = self.cores_per_part(job)
        used = [
            Fraction(0) if all_of_it is None else all_of_it - free
            for all_of_it, free in zip(self.all[node], (self.cpu[node], self.memory[node]), strict=True)
        ]
        counts = zip(self.without[node], (cpu, memory), strict=True)
        without = [count + (each - 1) * (not request) for count, request in counts]
        return score(policy, self.all[node], used, without, (cpu, memory))

    def parts_with_room(self, node: int, job: int, most: int) -> int:
        count = 0
        while count < most and self.room(node, job):
            self.take(node, job)
            count += 1
        for _ in range(count):
            self.take(node, job, 1)
        return count

    def pick(self, job: int, policy: str) -> dict[int, int] | None:
        """Parts by node."""
        number = self.part(job)[0]
        nodes = range(self.platform.n_nodes)
        room = {node: self.parts_with_room(node, job, number) for node in nodes}
        if sum(room.values()) < number:
            return None
        chosen: dict[int, int] = {}
        if policy == "pack":
            idle = list(self.cpu)
            while sum(chosen.values()) < number:
                left = number - sum(chosen.values())
                others = [node for node in nodes if node not in chosen]
                holding = [node for node in others if room[node] >= left]
                node = min(holding, key=lambda n: idle[n]) if holding else max(others, key=lambda n: room[n])
                chosen[node] = min(left, room[node])
            return chosen
        for _ in range(number):
            open_to = [node for node in nodes if self.room(node, job)]
            if policy in ("high_cores", "spread"):
                node = max(open_to, key=lambda n: self.cpu[n])
            elif policy in SCORES:
                node = max(open_to, key=lambda n: self.score(policy, n, job))
            elif policy == "high_mem":
                node = max(open_to, key=lambda n: float("inf") if self.memory[n] is None else self.memory[n])
            else:
                node = max(open_to, key=lambda n: self.best[n][policy])
            self.take(node, job)
            chosen[node] = chosen.get(node, 0) + 1
        for node, count in chosen.items():
            for _ in range(count):
                self.take(node, job, 1)
        return chosen


@given(
    seed=st.integers(0, 2**32 - 1),
    platform=st.sampled_from([PLATFORM, GPUS]),
    policy=st.sampled_from([policy for policy in CORE_POLICIES if policy != "random"]),
)
@examples(20, 60)
def test_picks_are_those_of_a_slow_reference(seed: int, platform: hdsim.Platform, policy: str) -> None:
    jobs = workload(seed, 40, platform)
    cluster = Cluster(platform, jobs, core_policy=policy, has_core_ids=False)
    reference = Reference(platform, jobs)
    rng = np.random.default_rng(seed)
    held: dict[int, dict[int, int]] = {}
    cluster.next_instant(1000.0)
    for job in range(len(jobs)):
        cluster.submit(job)
    for job in range(len(jobs)):
        placement, expected = cluster.pick(job), reference.pick(job, policy)
        assert cluster.fits(job) == (expected is not None)
        if expected is None:
            assert placement is None
        else:
            each = int(jobs.requested_cores[job]) // reference.part(job)[0]
            found = dict(zip(placement.nodes.tolist(), placement.node_counts.tolist(), strict=True))
            assert found == {node: count * each for node, count in sorted(expected.items())}
            cluster.start(job, placement)
            held[job] = expected
            for node, count in expected.items():
                for _ in range(count):
                    reference.take(node, job)
        while held and rng.random() < 0.4:
            gone = int(rng.choice(list(held)))
            cluster.end(gone, DONE)
            for node, count in held.pop(gone).items():
                for _ in range(count):
                    reference.take(node, gone, 1)
        invariants.check(cluster)
        assert cluster.cores.node_idle.tolist() == [float(cpu) for cpu in reference.cpu]
        assert cluster.n_idle == float(sum(reference.cpu))


def test_a_tenth_fits_ten_times() -> None:
    platform = hdsim.Platform.homogeneous(nodes=1, cores_per_node=1, gflops_per_core=1.0)
    jobs = hdsim.Workload.from_columns(submission_time=[0] * 11, runtime=1, requested_cores=1, cpu=0.1)
    cluster = Cluster(platform, jobs, has_core_ids=False)
    cluster.next_instant(0.0)
    for job in range(11):
        cluster.submit(job)
    for job in range(10):
        cluster.start(job)
    assert (cluster.n_idle, cluster.fits(10), cluster.pick(10)) == (0.0, False, None)
    for job in range(10):
        cluster.end(job, DONE)
    assert cluster.n_idle == 1.0


def test_what_has_no_core_ids_is_refused_by_name() -> None:
    jobs = hdsim.Workload.from_columns(submission_time=[0.0], runtime=1, requested_cores=1, cpu=0.5)
    with pytest.raises(WorkloadError, match=r"expected jobs of whole cores \(cpu=1\)"):
        Cluster(PLATFORM, jobs)
    cluster = Cluster(PLATFORM, jobs, has_core_ids=False)
    cluster.next_instant(0.0)
    cluster.submit(0)
    with pytest.raises(DecisionError, match="nodes have amounts here"):
        cluster.start_on(0, [0])
    with pytest.raises(ConfigError, match=r"env\.observation: expected one of .*nodes.* without core ids, got normal"):
        DecisionProblem("policy_pair", "normal").begin(cluster)
    held = cluster.pick(0)
    with pytest.raises(DecisionError, match="expected nodes with capacity for the job"):
        cluster.start(0, replace(held, node_counts=held.node_counts * 1000))
    invariants.check(cluster)


class Chosen:
    """Places jobs at random with a decision problem."""

    def __init__(self, observation: str, **settings: Any) -> None:
        self.problem = DecisionProblem("node", observation, **settings)

    def begin(self, cluster: Cluster) -> None:
        self.rng = np.random.default_rng(0)
        self.problem.begin(cluster)

    def decide(self, cluster: Cluster) -> None:
        while self.problem.pending():
            seen: Any = self.problem.observe()
            assert ((seen >= 0) & (seen <= 1)).all()
            self.problem.act(int(self.rng.choice(self.problem.mask().nonzero()[0])))


@pytest.mark.parametrize("platform", [PLATFORM, GPUS], ids=lambda platform: platform.name)
@pytest.mark.parametrize(
    "agent",
    [
        "saf-pack",
        "easy-sjf-high_mem",
        "conservative",
        "jobs",
        "nodes",
        *ci("fcfs", "shortest-spread", "wfp3-random", "easy"),
    ],
)
def test_every_kind_of_agent_schedules_amounts(agent: str, platform: hdsim.Platform) -> None:
    """Every job ends that fits the empty platform; nothing is ever held twice."""
    jobs = workload(7, 120, platform)
    chooser: Any = Chosen(agent, skip_blocked=True) if agent in ("jobs", "nodes") else make_agent(agent)
    cluster = Cluster(platform, jobs, has_core_ids=False, core_policy=getattr(chooser, "core_policy", "high_gflops"))
    reference = Reference(platform, jobs)
    feasible = {job for job in range(len(jobs)) if reference.pick(job, "spread") is not None}
    chooser.begin(cluster)
    ends: dict[int, float] = {}
    coming = list(range(len(jobs)))
    while coming or ends:
        now = min([*ends.values(), *jobs.submission_time[coming[:1]].tolist()])
        cluster.next_instant(now)
        for job in [job for job, end in ends.items() if end == now]:
            del ends[job]
            cluster.end(job, DONE)
        while coming and jobs.submission_time[coming[0]] == now:
            job = coming.pop(0)
            cluster.submit(job) if job in feasible else cluster.refuse(job)
        chooser.decide(cluster)
        for job in cluster.started:
            ends[job] = now + float(jobs.runtime[job])
        cluster.started.clear()
        invariants.check(cluster)
    assert {job for job in range(len(jobs)) if cluster.state[job] == DONE} == feasible


class Amounts(Asynchronous):
    """The asynchronous fake on nodes with amounts."""

    capabilities = Capabilities(gpus=True, confirms_starts=True, core_ids=False)


@pytest.mark.parametrize("agent", ["fcfs-pack", "easy"])
def test_a_backend_without_core_ids(agent: str, tmp_path: Path) -> None:
    """A run directory has the nodes of the jobs; what depends on the power of cores is not defined."""
    jobs = workload(7, 120, PLATFORM)
    result, _ = Amounts().run(PLATFORM, jobs, agent, tmp_path, check=True)
    reference = Reference(PLATFORM, jobs)
    feasible = [reference.pick(job, "spread") is not None for job in range(len(jobs))]
    assert (result.state == DONE).tolist() == feasible
    assert np.isnan([result.metrics[name] for name in ("energy_joules", "edp")]).all()
    assert result.metrics["mean_waiting_time"] > 0
    cpu = jobs.requested_cores * np.ceil(np.round(jobs.cpu * 1000, 6)) / 1000
    seconds = np.nansum(cpu * (result.finish_time - result.starting_time))
    assert result.metrics["utilization"] == pytest.approx(seconds / (64 * result.metrics["makespan"]))
    held = [sum(float(part.split(":")[1]) for part in text.split()) for text in result.jobs["allocated_resources"]]
    assert held == pytest.approx(np.where(feasible, cpu, 0))
    run = RunDirectory(tmp_path)
    run.start({}, PLATFORM, jobs)
    run.finish(result)
    with (tmp_path / "failed_starts.csv").open() as file:
        refused = list(csv.DictReader(file))
    assert len(refused) == len(result.failed_starts) > 10
    assert refused[0]["reason"] == "by lot"


@given(st.integers(0, 10_000))
@examples(10, 200)
def test_load_imbalance_is_that_of_every_instant(seed: int) -> None:
    jobs = workload(seed, 30, PLATFORM).replaced(cpu=np.random.default_rng(seed).choice([0.0, 0.5, 1.0, 3.0], 30))
    result = hdsim.simulate(PLATFORM.of_kind("quantities"), jobs, "first-random", seed=seed)
    held = result.segments
    assert held.amounts is not None
    instants = np.unique([*held.begin, *held.end, 0.0])
    shares = np.zeros((len(instants), PLATFORM.n_nodes))
    for begin, end, amounts in zip(held.begin, held.end, held.amounts, strict=True):
        for node, cpu in zip(amounts.nodes, amounts.cpu, strict=True):
            shares[(begin <= instants) & (instants < end), node] += cpu / PLATFORM.node_cpu[node]
    seconds, deviation = np.diff(instants), shares.std(axis=1)[:-1]
    load = (shares @ PLATFORM.node_cpu)[:-1]
    busiest = load > load.max() - 1e-6
    expected = np.average(deviation, weights=seconds), np.average(deviation[busiest], weights=seconds[busiest])
    found = result.metrics["load_imbalance"], result.metrics["peak_load_imbalance"]
    assert found == pytest.approx(expected, abs=1e-7)


def test_load_imbalance_of_two_nodes() -> None:
    """One of two nodes of 4 cores holds 2 for 10 s, then both do for 5 s."""
    jobs = hdsim.Workload.from_columns(submission_time=[0, 10], runtime=[15, 5], requested_cores=1, cpu=[2.0, 2.0])
    platform = hdsim.Platform.homogeneous(nodes=2, cores_per_node=4).of_kind("quantities")
    metrics = hdsim.simulate(platform, jobs, "least_allocated").metrics
    assert metrics["load_imbalance"] == pytest.approx(0.25 * 10 / 15)
    assert metrics["peak_load_imbalance"] == 0.0
    assert "load_imbalance" not in hdsim.simulate(PLATFORM, workload(1, 5, PLATFORM).replaced(cpu=1.0), "fcfs").metrics
