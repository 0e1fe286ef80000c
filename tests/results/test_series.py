"""Series over time against loops that look at one instant after the other."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from schedules import cores_of_jobs

import hdsim
from hdsim.cluster.state import FinalState
from hdsim.platform.power import PSTATES
from hdsim.results import series
from hdsim.results.series import StepFunction
from hdsim.util.arrays import distinct

NODE = {"processors": [{"type": "small", "number": 2}, {"type": "big", "number": 1}], "memory": {"capacity": 1}}
TYPES = {
    "node": {"mixed": NODE},
    "processor": {
        "small": {"cores": 2, "clock_rate": 1.0, "dpflops_per_cycle": 4, "mem_bw": 10, "power": 17.3},
        "big": {"cores": 4, "clock_rate": 2.0, "dpflops_per_cycle": 4, "mem_bw": 20, "power": 100.1},
    },
}
PLATFORM = hdsim.Platform.from_dict(
    {"name": "mixed", "clusters": [{"id": "c", "nodes": [{"type": "mixed", "number": 2}]}], "types": TYPES}
)
PAIRS = ("first-high_gflops", "shortest-low_power", "smallest-high_cores", "easy", "void")


@st.composite
def replays(draw: st.DrawFn) -> hdsim.Result:
    jobs = draw(st.integers(1, 12))

    def column(numbers: st.SearchStrategy[Any]) -> Any:
        return draw(st.lists(numbers, min_size=jobs, max_size=jobs))

    workload = hdsim.Workload.from_columns(
        submission_time=column(st.integers(0, 20)),
        runtime=column(st.integers(0, 9)),
        requested_cores=column(st.integers(1, PLATFORM.n_cores + 1)),
        memory_bandwidth=column(st.sampled_from([0.0, 4.0, 8.0])),
    )
    return hdsim.simulate(PLATFORM, workload, draw(st.sampled_from(PAIRS)), contention="threshold")


def allocations(result: hdsim.Result) -> list[tuple[int, float, float, list[int]]]:
    """Job, start, end and cores of every job that started."""
    cores, start, finish = cores_of_jobs(result), result.starting_time, result.finish_time
    return [
        (job, start[job], finish[job], cores[job].tolist())
        for job in range(len(result.workload))
        if not np.isnan(start[job])
    ]


def instants(result: hdsim.Result) -> list[float]:
    """Every time until the end at which something may change, and the times between them."""
    times = {0.0, result.end_time, *result.workload.submission_time.tolist()}
    times.update(time for _, start, end, _ in allocations(result) for time in (start, end))
    ordered = sorted(time for time in times if time <= result.end_time)
    between = [(a + b) / 2 for a, b in pairwise(ordered)]
    return sorted([*ordered, *between])


def watts_at(result: hdsim.Result, time: float) -> float:
    busy = {core for _, start, end, cores in allocations(result) if start <= time < end for core in cores}
    first = PLATFORM.processor_first_core
    total = 0.0
    for processor, per_core in enumerate(PLATFORM.power.tolist()):
        cores = range(first[processor], first[processor + 1])
        awake = any(core in busy for core in cores)
        for core in cores:
            total += per_core * PSTATES[0 if core in busy else 2 if awake else 3].power
    return total


@given(replays())
def test_counts_equal_those_of_a_loop_over_the_jobs(result: hdsim.Result) -> None:
    placed = allocations(result)
    busy, running, queue = series.busy_cores(result), series.running_jobs(result), series.queue_length(result)
    share = series.utilization(result)
    submission = result.workload.submission_time.tolist()
    for time in instants(result):
        inside = [cores for _, start, end, cores in placed if start <= time < end]
        assert running.at(time) == len(inside)
        assert busy.at(time) == sum(map(len, inside))
        assert share.at(time) == sum(map(len, inside)) / PLATFORM.n_cores
        assert queue.at(time) == sum(
            submission[job] <= time and not result.starting_time[job] <= time
            for job in range(len(submission))
            if result.state[job] != FinalState.REJECTED
        )


@given(replays())
def test_power_is_the_sum_over_cores_and_its_integral_the_energy(result: hdsim.Result) -> None:
    power = series.power(result)
    for time in instants(result):
        assert power.at(time) == pytest.approx(watts_at(result, time), rel=1e-12)
    assert power.integral() == pytest.approx(result.energy_joules, rel=1e-12)


@given(replays())
def test_oversubscribed_processors_are_those_with_too_much_demand(result: hdsim.Result) -> None:
    counted = series.oversubscribed_processors(result)
    for time in instants(result):
        demand = np.zeros(PLATFORM.n_processors)
        for job, start, end, cores in allocations(result):
            if start <= time < end:
                np.add.at(demand, PLATFORM.core_processor[cores], result.workload.memory_bandwidth[job])
        assert counted.at(time) == (demand > PLATFORM.mem_bw).sum()


@given(replays())
def test_steps_ascend_and_every_one_changes_something(result: hdsim.Result) -> None:
    for make in (series.busy_cores, series.queue_length, series.power, series.oversubscribed_processors):
        steps = make(result)
        assert steps.times[0] == 0 and (np.diff(steps.times) > 0).all()
        assert (steps.values[1:] != steps.values[:-1]).all()
        assert steps.end == result.end_time


def test_energy_of_a_heterogeneous_platform_is_the_integral_of_the_power() -> None:
    from hdsim.util.resources import resolve

    platform = hdsim.load_platform(resolve("platforms", "gaia"))
    workload = hdsim.load_workload(resolve("workloads", "lublin_4000"), platform=platform, jobs=500, seed=3)
    result = hdsim.simulate(platform, workload, "easy", contention="threshold")
    assert series.power(result).integral() == pytest.approx(result.energy_joules, rel=1e-12)
    assert series.utilization(result).mean() == pytest.approx(result.metrics["utilization"], rel=1e-12)


@given(replays())
def test_totals_of_jobs(result: hdsim.Result) -> None:
    submitted, ended, cores = series.submitted_jobs(result), series.ended_jobs(result), series.queued_cores(result)
    submission, size = result.workload.submission_time, result.workload.requested_cores
    for time in instants(result):
        assert submitted.at(time) == (submission <= time).sum()
        assert ended.at(time) == (result.finish_time <= time).sum()
        waits = (submission <= time) & ~(result.starting_time <= time) & (result.state != FinalState.REJECTED)
        assert cores.at(time) == size[waits].sum()


@given(replays(), st.integers(1, 5), st.integers(1, 3))
def test_occupancy_is_the_mean_of_busy_cores_over_nodes_and_time(result: hdsim.Result, bins: int, rows: int) -> None:
    first_node, bounds, share = series.occupancy(result, bins, rows)
    for group, first in enumerate(first_node):
        end = first_node[group + 1] if group + 1 < len(first_node) else PLATFORM.n_nodes
        low, high = PLATFORM.node_first_core[first], PLATFORM.node_first_core[end]
        for slot, (begin, until) in enumerate(pairwise(bounds)):
            busy = sum(
                max(0.0, min(finish, until) - max(start, begin)) * sum(low <= core < high for core in cores)
                for _, start, finish, cores in allocations(result)
            )
            assert share[group, slot] == pytest.approx(busy / ((high - low) * (until - begin)), abs=1e-9)


@given(replays(), st.integers(1, 5), st.integers(1, 6))
def test_oversubscription_is_the_mean_over_processors_and_time(result: hdsim.Result, bins: int, rows: int) -> None:
    first, bounds, share = series.oversubscription(result, bins, rows)
    for group, low in enumerate(first):
        high = first[group + 1] if group + 1 < len(first) else PLATFORM.n_processors
        for slot, (begin, until) in enumerate(pairwise(bounds)):
            over = sum(
                max(0.0, min(end, until) - max(start, begin))
                for processor, start, end in zip(*result.oversubscribed, strict=True)
                if low <= processor < high
            )
            assert share[group, slot] == pytest.approx(over / ((high - low) * (until - begin)), abs=1e-9)


@given(
    st.lists(st.tuples(st.floats(0.001, 10), st.integers(0, 50)), min_size=1, max_size=300),
    st.sampled_from([4, 16, 40]),
)
def test_thinned_steps_keep_every_peak(changes: list[tuple[float, int]], points: int) -> None:
    gaps, values = zip(*changes, strict=True)
    times = np.cumsum(gaps) - gaps[0]
    steps = StepFunction(times, np.array(values, float), times[-1] + 1)
    thin = steps.thinned(points)
    assert len(thin.times) <= max(points, 4)
    assert {thin.values.min(), thin.values.max()} == {steps.values.min(), steps.values.max()}
    assert (thin.times[0], thin.times[-1]) == (times[0], times[-1])
    assert np.isin(thin.times, times).all() and (np.diff(thin.times) > 0).all()


def test_occupancy_is_summed_in_blocks_of_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    result = hdsim.simulate(PLATFORM, hdsim.load_workload("lublin_4000", PLATFORM, jobs=200), "easy")
    *bounds, whole = series.occupancy(result, 30, 4)
    monkeypatch.setattr(series, "_SEGMENTS", 7)
    *again, parts = series.occupancy(result, 30, 4)
    for one, other in zip(bounds, again, strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_allclose(parts, whole, rtol=1e-12)
    assert whole.max() > 0.1


def test_integral_and_mean_of_steps() -> None:
    steps = StepFunction(np.array([0.0, 2.0, 5.0]), np.array([1, 3, 0]), 10.0)
    assert steps.integral() == 11.0
    assert steps.mean() == 1.1
    assert steps.at(np.array([0, 1.9, 2, 20])).tolist() == [1, 1, 3, 0]
    assert StepFunction(np.zeros(1), np.full(1, 7.0), 0.0).mean() == 7.0


def test_distinct_values_are_those_of_numpy() -> None:
    rng = np.random.default_rng(1)
    for size in (0, 1, 2, 40):
        arrays = [rng.integers(0, 9, size).astype(kind) for kind in (float, float, float)]
        assert np.array_equal(distinct(*arrays), np.unique(np.concatenate(arrays)))
