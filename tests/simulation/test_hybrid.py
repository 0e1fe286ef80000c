"""Backfilling with a number of reservations: between EASY, which has one, and conservative backfilling."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import reference as ref
from hypothesis import given
from hypothesis import strategies as st
from test_compiled import assert_equal
from tiers import nightly

import hdsim
from hdsim.errors import ConfigError

HYBRID = "hdsim.scheduling.backfill.conservative.Hybrid"


def with_depth(depth: int) -> dict[str, Any]:
    """An algorithm with a plan of so many reservations, also of one."""
    return {"_target_": HYBRID, "depth": depth}


def jobs(seed: int, count: int, cores: int, **columns: Any) -> hdsim.Workload:
    """Random jobs that outlast their estimates now and then."""
    rng = np.random.default_rng(seed)
    runtime = rng.integers(0, 60, count)
    return hdsim.Workload.from_columns(
        submission_time=np.sort(rng.integers(0, 12 * count, count)),
        runtime=runtime,
        requested_time=np.maximum(1, runtime + rng.integers(-5, 40, count)),
        requested_cores=rng.integers(1, cores + 1, count),
        **columns,
    )


@given(st.integers(0, 2**32), st.sampled_from(["fcfs", "sjf", "wfp3"]))
@pytest.mark.ci
def test_one_reservation_is_easy_and_one_for_each_job_conservative(seed: int, order: str) -> None:
    platform, workload = hdsim.Platform.homogeneous(nodes=8, cores_per_node=1), jobs(seed, 60, 8)
    for depth, rule in ((1, "easy"), (60, "conservative")):
        planned = hdsim.simulate(platform, workload, {"job_policy": order, "backfill": with_depth(depth)}, check=True)
        known = hdsim.simulate(platform, workload, {"job_policy": order, "backfill": rule})
        assert planned.starting_time.tolist() == known.starting_time.tolist()


@given(st.integers(0, 2**32), st.integers(2, 5))
@pytest.mark.ci
def test_candidates_have_an_order_of_their_own(seed: int, depth: int) -> None:
    workload = jobs(seed, 40, 8)
    agent = {"job_policy": "fcfs", "backfill": depth, "backfill_order": "sjf"}
    result = hdsim.simulate(hdsim.Platform.homogeneous(nodes=8, cores_per_node=1), workload, agent, check=True)
    rows = ref.jobs_of(workload)
    scheduler = partial(ref.hybrid, depth=depth, candidates=lambda job: (rows[job].requested, job))
    assert result.starting_time.tolist() == ref.replay_counts(rows, 8, scheduler)


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.ci
def test_a_reservation_for_each_job_on_nodes_with_memory_is_conservative(fails: bool) -> None:
    target = "hdsim.failures.Exponential"
    failures: Any = {"_target_": target, "mtbf": 4000.0, "mttr": 100.0, "max_restarts": None} if fails else "none"
    platform = hdsim.Platform.homogeneous(nodes=6, cores_per_node=4, memory_gb_per_node=2.0)
    memory = np.random.default_rng(1).choice([0, 300, 900], 300)
    workload = jobs(1, 300, 12, memory=memory)
    starts = {
        rule: hdsim.simulate(
            platform, workload, {"job_policy": "fcfs", "backfill": rule}, failures=failures, check=True
        )
        for rule in (4, 300, "conservative", "easy")
    }
    tables = {rule: result.starting_time.tolist() for rule, result in starts.items()}
    assert tables[300] == tables["conservative"]
    assert tables[4] not in (tables["conservative"], tables["easy"])


@pytest.mark.parametrize("target", [HYBRID, "hybrid"])
@pytest.mark.parametrize("depth", [0, -1, 2.5, "two"])
def test_a_depth_that_is_none_is_refused(depth: Any, target: str) -> None:
    platform, workload = hdsim.Platform.homogeneous(nodes=1, cores_per_node=8), jobs(0, 3, 8)
    with pytest.raises(ConfigError, match=r"agent\.backfill\.depth: expected a whole number >= 1, got "):
        hdsim.simulate(platform, workload, {"job_policy": "fcfs", "backfill": {"_target_": target, "depth": depth}})


def test_a_depth_as_a_setting_is_that_of_the_number() -> None:
    platform, workload = hdsim.Platform.homogeneous(nodes=8, cores_per_node=4), jobs(5, 600, 24)
    rules = (4, {"_target_": "hybrid", "depth": 4}, with_depth(4), "conservative")
    number, named, whole, every = (
        hdsim.simulate(platform, workload, {"job_policy": "fcfs", "backfill": rule}).starting_time.tolist()
        for rule in rules
    )
    assert number == named == whole != every


@pytest.mark.parametrize("depth", [2, *nightly(16)])
@pytest.mark.ci
def test_compiled_replays_of_many_jobs_are_those_of_the_engine(depth: int) -> None:
    workload, agent = jobs(3, 3000, 24), {"job_policy": "saf", "backfill": depth}
    platform = hdsim.Platform.homogeneous(nodes=16, cores_per_node=4)
    compiled, engine = (hdsim.simulate(platform, workload, agent, check=check) for check in (False, True))
    assert (compiled.engine["mode"], engine.engine["mode"]) == ("compiled", "events")
    assert_equal(compiled, engine)
