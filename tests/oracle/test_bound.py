"""Bounds of a trace: lists against all permutations and schedules by hand, the relaxation, the command."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiers import examples

import hdsim
from hdsim.errors import ConfigError
from hdsim.scheduling.search.play_outs import MEAN_COSTS
from hdsim.simulation.bound import bound, lower_bound
from hdsim.simulation.kernels.lists import ListedJobs, least_busy_times, make_steps, schedule

FOUR = hdsim.Platform.homogeneous(nodes=1, cores_per_node=4)


def tiny(seed: int, number: int) -> hdsim.Workload:
    rng = np.random.default_rng(seed)
    return hdsim.Workload.from_columns(
        submission_time=np.sort(rng.integers(0, 30, number)),
        runtime=rng.integers(1, 40, number),
        requested_time=rng.integers(1, 80, number),
        requested_cores=rng.integers(1, 5, number),
    )


def cost(objective: str, workload: hdsim.Workload, start: Any) -> float:
    """Mean cost, written anew."""
    wait = np.asarray(start) - workload.submission_time
    if objective == "mean_waiting_time":
        return float(wait.mean())
    if objective == "mean_turnaround_time":
        return float((wait + workload.runtime).mean())
    return float(np.maximum(1, (wait + workload.runtime) / np.maximum(workload.runtime, 10)).mean())


def by_hand(workload: hdsim.Workload, order: tuple[int, ...], in_order: bool) -> list[float]:
    """Starts of a list, each at the first date of integer seconds at which the job fits to its end."""
    used, starts, earliest = np.zeros(2000, int), [0.0] * len(order), 0
    for job in order:
        begin = max(int(workload.submission_time[job]), earliest)
        size, runtime = workload.requested_cores[job], int(workload.runtime[job])
        while (used[begin : begin + runtime] + size > 4).any():
            begin += 1
        used[begin : begin + runtime] += size
        starts[job], earliest = begin, begin if in_order else 0
    return starts


def known(workload: hdsim.Workload, objective: str = "mean_bounded_slowdown", in_order: bool = False) -> ListedJobs:
    columns = workload.submission_time, workload.runtime, workload.requested_cores
    return ListedJobs(*(column.copy() for column in columns), 4, in_order, MEAN_COSTS[objective])


@examples(30)
@given(seed=st.integers(0, 10**6), in_order=st.booleans())
def test_schedules_of_lists_are_those_by_hand(seed: int, in_order: bool) -> None:
    workload = tiny(seed, 12)
    order = np.random.default_rng(seed).permutation(12)
    start, finish = np.empty((2, 12))
    schedule(known(workload, in_order=in_order), order, make_steps(12), start, finish)
    assert start.tolist() == by_hand(workload, tuple(order.tolist()), in_order)
    np.testing.assert_array_equal(finish, start + workload.runtime)


@pytest.mark.parametrize("objective", list(MEAN_COSTS))
@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_the_optimum_of_few_jobs_is_attained_and_not_below_the_bound(seed: int, in_order: bool, objective: str) -> None:
    workload = tiny(seed, 5)
    optimum = min(
        cost(objective, workload, by_hand(workload, order, in_order)) for order in itertools.permutations(range(5))
    )
    rule = "none" if in_order else "easy"
    found = bound(FOUR, workload, objective=objective, backfill=rule, moves=4000, seed=seed)
    assert found.attained >= optimum - 1e-9
    # Moves of single jobs have local optima, but not in these traces.
    assert found.attained == pytest.approx(optimum)
    assert found.lower <= optimum + 1e-9
    assert found.attained <= found.orders[found.best]
    assert found.moves == 4000


def test_the_relaxation_in_closed_form() -> None:
    # Two jobs of all cores at once: the short one first, as on one machine, so that the bound is the optimum.
    workload = hdsim.Workload.from_columns(submission_time=[0, 0], runtime=[30, 10], requested_cores=[4, 4])
    jobs = known(workload, "mean_turnaround_time")
    np.testing.assert_allclose(least_busy_times(jobs, np.ones(2)), [25, 5])
    assert lower_bound(jobs) == pytest.approx((40 + 10) / 2)
    assert lower_bound(known(workload, "mean_waiting_time")) == pytest.approx(5)
    assert lower_bound(known(workload)) == pytest.approx((40 / 30 + 1) / 2)
    # The long job has served 5 s when the short one arrives and is preempted: mean of 2.5 and 27.5 by their seconds.
    late = hdsim.Workload.from_columns(submission_time=[0, 5], runtime=[30, 10], requested_cores=[4, 4])
    busy = least_busy_times(known(late), np.ones(2))
    np.testing.assert_allclose(busy, [(5 * 2.5 + 25 * 27.5) / 30, 10])


@examples(20)
@given(seed=st.integers(0, 10**6), objective=st.sampled_from(list(MEAN_COSTS)))
def test_no_schedule_is_below_the_bound(seed: int, objective: str) -> None:
    workload = tiny(seed, 40)
    least = lower_bound(known(workload, objective))
    for agent in ("easy-sjf", "greedy-saf", "f1"):
        assert hdsim.simulate(FOUR, workload, agent).metrics[objective] >= least - 1e-9


def test_equal_seeds_find_equal_schedules_and_more_moves_better_ones() -> None:
    workload = tiny(3, 60)
    few, again, many = (bound(FOUR, workload, moves=moves, seed=1) for moves in (300, 300, 5000))
    assert few == again
    assert many.attained < few.attained < few.orders[few.best]
    timed = bound(FOUR, workload, seconds=1e-6)
    assert timed.moves > 0


def test_what_cannot_be_bounded_is_refused_by_name() -> None:
    workload = tiny(1, 5)
    for options, message in (
        ({"objective": "makespan"}, "objective: expected one of mean_bounded_slowdown"),
        ({"backfill": "most"}, "backfill: expected one of none, easy"),
        ({"moves": -1}, "bound: expected at least 0, got -1"),
    ):
        with pytest.raises(ConfigError, match=message):
            bound(FOUR, workload, **options)  # type: ignore[arg-type]
    small = hdsim.Platform.homogeneous(nodes=1, cores_per_node=1)
    with pytest.raises(ConfigError, match=r"expected jobs of at most the 1 cores of"):
        bound(small, hdsim.Workload.from_columns(submission_time=[0], runtime=[1], requested_cores=[2]))
    gaia = hdsim.load_platform("gaia")
    with pytest.raises(ConfigError, match=r"bound: expected cores of one speed and rigid jobs"):
        bound(gaia, workload)


def test_the_command(hdsim: Callable[..., Any]) -> None:
    given = ("bound", "platform=homogeneous_256", "workload.path=lublin_4000", "workload.jobs=100", "--window", "40")
    told = hdsim(*given, "--moves", "50")
    lines = told.stdout.splitlines()
    assert lines[0].startswith("mean_bounded_slowdown of windows of 40 jobs on homogeneous_256")
    assert [line.split()[0] for line in lines[3:]] == ["0", "40", "mean"]
    rows = json.loads(hdsim(*given, "--moves", "50", "--windows", "1", "--json").stdout)
    assert len(rows) == 1
    assert rows[0]["lower"] <= rows[0]["attained"] <= rows[0]["orders"][rows[0]["best"]]
    refused = hdsim(*given[:-1], "5000")
    assert refused.returncode == 2
    assert "--window: expected at most the" in refused.stderr
    for setting in ("metrics=[a.py]", "warmup=1d", "cooldown=0"):
        refused = hdsim(*given, setting)
        assert refused.returncode == 2 and f"{setting.partition('=')[0]}: expected null" in refused.stderr
    others = ("contention=threshold", "failures=exponential", "power=cap", "facility.price=0.2", "network=fluid")
    refused = hdsim(*given, *others, "backend.kill_at_walltime=true")
    assert refused.returncode == 2
    for setting in others:
        assert f"{setting.split('=')[0].split('.')[0]}: expected none with hdsim bound" in refused.stderr
    assert "backend: expected sim with kill_at_walltime=false" in refused.stderr
