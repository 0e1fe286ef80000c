"""The agent that matches jobs to processors: its choice of cores, its order, and whom it lets overtake."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import hdsim
from hdsim.cluster.requests import Requests
from hdsim.cluster.stores.nodes import NodeCores
from hdsim.errors import ConfigError
from hdsim.scheduling.kernels import matching
from hdsim.scheduling.kernels.matching import OVERSUBSCRIBED, ProcessorConstants, Wishes

pytestmark = pytest.mark.requires("torch")

#: Places of weights.
RUN_TIME, CORES, TOLERANCE, LEEWAY = 0, 1, 4, 8


def machine(platform: hdsim.Platform) -> ProcessorConstants:
    speed = platform.gflops / platform.reference_gflops
    levels = np.unique(np.concatenate([speed, OVERSUBSCRIBED * speed]))[::-1].copy()
    return ProcessorConstants(levels, speed, np.log(np.stack([speed, platform.power / platform.gflops])))


def two_speeds(cores: int = 2, mem_bw: float = 32.0) -> hdsim.Platform:
    """A node of 20 and a node of 10 GFLOPS a core; the reference speed is their mean."""
    types = {
        name: {"cores": cores, "clock_rate": rate, "dpflops_per_cycle": 8, "power": 80, "mem_bw": mem_bw}
        for name, rate in (("fast", 2.5), ("slow", 1.25))
    }
    nodes = {name: {"processors": [{"type": name, "number": 1}], "memory": {"capacity": 64}} for name in types}
    cluster = {
        "id": "two",
        "nodes": [{"type": name, "number": 1} for name in types],
        "local_links": {"type": "links", "latency": "0us"},
    }
    return hdsim.Platform.from_dict(
        {
            "name": "two",
            "clusters": [cluster],
            "global_links": {"type": "links", "latency": "0us"},
            "types": {"network": {"links": {"bandwidth": "10Gbps"}}, "node": nodes, "processor": types},
        }
    )


def agent(**weights: float) -> Any:
    """An agent whose weights are those of smallest area first, but for some."""
    import torch

    from hdsim.agents.matching import FIRST, UNITS, MatchingAgent
    from hdsim.learning.agent import TensorShapes

    made = MatchingAgent(task={"action": "job", "observation": "jobs", "queue_size": 4})
    made.shapes = TensorShapes.of(made.problem, hdsim.load_platform("teaching"))
    made.build(made.shapes)
    wanted = np.array(FIRST["saf"], float)
    for name, value in weights.items():
        wanted[globals()[name]] = value
    (parameters,) = made.network.parameters()
    with torch.no_grad():
        parameters.copy_(torch.from_numpy(wanted / UNITS))
    return made


def highest_speed(
    platform: hdsim.Platform, store: NodeCores, number: int, memory: float, bandwidth: float, levels: Any
) -> float:
    """The highest speed of a job on the idle cores, by counting them one by one."""
    speed = platform.gflops / platform.reference_gflops
    for level in levels:
        total = 0
        for node in range(platform.n_nodes):
            cores = 0
            for processor in np.flatnonzero(platform.processor_node == node):
                free, idle = store.free_bandwidth[processor], store.nodes.processor_idle[processor]
                for taken in range(1, idle + 1):
                    at = speed[processor] * (OVERSUBSCRIBED if taken * bandwidth > free else 1)
                    cores += at >= level
            room = int(store.node_memory[node] // memory) if memory else cores
            total += min(cores, room)
        if total >= number:
            return float(level)
    return 0.0


@pytest.mark.parametrize("seed", range(6))
def test_a_job_gets_cores_on_which_it_is_as_fast_as_can_be(seed: int) -> None:
    rng, platform = np.random.default_rng(seed), hdsim.load_platform("gaia")
    jobs = hdsim.load_workload("lublin_4000", platform=platform, jobs=60, start=20 * seed)
    requests = Requests.of(jobs, platform)
    store = NodeCores(platform, requests, "high_gflops", rng)
    ours, ids = machine(platform), np.empty(platform.n_cores, np.int64)
    memory = np.array(requests.memory)
    wishes = Wishes(
        order=np.zeros(60),
        slowest=np.zeros(60),
        size=jobs.requested_cores.astype(np.int64),
        memory=memory,
        bandwidth=jobs.memory_bandwidth.astype(float),
        weights=rng.normal(size=6),
        leeway=np.zeros(1),
    )
    running: dict[int, Any] = {}
    for job in range(60):
        size, each = int(jobs.requested_cores[job]), float(jobs.memory_bandwidth[job])
        best = highest_speed(platform, store, size, memory[job], each, ours.levels)
        assert matching.fastest(store.state, ours, size, memory[job], each) == best
        place = matching.next_start(store.state, ours, wishes, np.array([job]), 0, ids)
        assert place == (0 if best else -1)
        if best:
            placement = store.placement_of(ids[:size])
            store.allocate(job, placement)  # it raises if cores are busy or memory is short
            running[job] = placement
            held = platform.core_processor[placement.ids]
            full = store.free_bandwidth[held] < 0
            assert (ours.speed[held] * np.where(full, OVERSUBSCRIBED, 1.0) >= best).all()
            wishes.slowest[job] = np.nextafter(best, np.inf)
        for other in [other for other in running if rng.random() < 0.2]:
            store.release(other, running.pop(other))
    store.check(list(running.values()))


def test_a_job_below_its_slowest_speed_waits() -> None:
    platform = two_speeds()
    # 100 s at the reference speed of 15 GFLOPS: 75 s on fast cores, 150 s on slow ones.
    jobs = hdsim.Workload.from_columns(submission_time=[0, 1], runtime=[100, 100], requested_cores=[2, 2])
    patient = hdsim.simulate(platform, jobs, agent(TOLERANCE=-5.0), contention="threshold")
    assert patient.starting_time.tolist() == [0, 75] and patient.finish_time.tolist() == [75, 150]
    hasty = hdsim.simulate(platform, jobs, agent(TOLERANCE=5.0), contention="threshold")
    assert hasty.starting_time.tolist() == [0, 1] and hasty.finish_time.tolist() == [75, 151]


def test_a_job_that_no_fast_cores_hold_starts_on_slow_ones() -> None:
    jobs = hdsim.Workload.from_columns(submission_time=[0], runtime=[100], requested_cores=[4])
    result = hdsim.simulate(two_speeds(), jobs, agent(TOLERANCE=-5.0), contention="threshold")
    assert result.finish_time.tolist() == [150]


def test_a_hard_cap_is_refused() -> None:
    jobs = hdsim.Workload.from_columns(submission_time=[0], runtime=[100], requested_cores=[1])
    power = {"_target_": "hdsim.power.PowerManagement", "cap": 0.9}
    with pytest.raises(ConfigError, match=r"power.cap: expected no hard cap with matching"):
        hdsim.simulate(two_speeds(), jobs, agent(), power=power)


def test_only_jobs_within_the_leeway_overtake_a_head_that_waits() -> None:
    # By area the second job is the head, which needs all cores; the third is log(2) behind it.
    jobs = hdsim.Workload.from_columns(
        submission_time=[0, 1, 1], runtime=[1000, 100, 800], requested_cores=[2, 4, 1], memory_bandwidth=[1, 1, 1]
    )
    starts = {
        leeway: hdsim.simulate(two_speeds(), jobs, agent(LEEWAY=np.log(leeway))).starting_time.tolist()
        for leeway in (0.69, 0.7)
    }
    assert starts == {0.69: [0, 750, 900], 0.7: [0, 1201, 1]}


def test_jobs_that_saturate_memory_do_not_slow_others_down() -> None:
    platform = two_speeds(cores=4, mem_bw=40.0)
    jobs = hdsim.Workload.from_columns(
        submission_time=[0, 1], runtime=[60, 60], requested_cores=[2, 2], memory_bandwidth=[5, 19]
    )
    # Beside the first job the second has 30 GB/s for 38: both would run at 75 %. Alone on slow cores it is as fast as
    # two thirds of the reference speed, on fast ones at 75 % as its whole, and patience makes no difference.
    result = hdsim.simulate(platform, jobs, agent(TOLERANCE=5.0), contention="threshold")
    assert result.starting_time.tolist() == [0, 1]
    assert list(result.jobs["allocated_resources"]) == ["0-1", "2-3"]


@pytest.mark.parametrize("contention", ["threshold", "fair_share", "none"])
def test_a_replay_on_gaia_holds_every_invariant(contention: str) -> None:
    platform = hdsim.load_platform("gaia")
    jobs = hdsim.load_workload("lublin_4000", platform=platform, jobs=64, arrival_factor=0.2)
    results = [hdsim.simulate(platform, jobs, agent(), contention=contention, check=check) for check in (True, False)]
    assert not np.isnan(results[0].finish_time).any()
    assert (results[0].finish_time == results[1].finish_time).all()


def test_jobs_that_request_gpus_are_refused() -> None:
    platform = hdsim.load_platform("accelerated")
    jobs = hdsim.Workload.from_columns(submission_time=[0], runtime=[10], requested_cores=[2])
    jobs = dataclasses.replace(jobs, requested_gpus=np.array([1]))
    with pytest.raises(ConfigError, match="jobs that request no GPUs"):
        hdsim.simulate(platform, jobs, agent())
