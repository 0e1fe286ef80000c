"""EASY backfilling finds cores for every job that delays the head nowhere; expected starts are by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiers import examples, nightly

import hdsim
from platforms import of_nodes

POLICIES = ("first-high_gflops", "first-spread", "first-pack", "first-high_cores", "first-high_mem", "first-random")


def starts(platform: Any, jobs: Any, agent: str, **options: Any) -> list[float]:
    """The same by the default path and by the engine with checks."""
    default = hdsim.simulate(platform, jobs, agent, **options)
    checked = hdsim.simulate(platform, jobs, agent, check=True, **options)
    assert np.array_equal(default.starting_time, checked.starting_time, equal_nan=True)
    assert default.jobs["allocated_resources"].tolist() == checked.jobs["allocated_resources"].tolist()
    return default.starting_time.tolist()


def test_a_job_takes_the_fast_core_on_which_it_ends_in_time() -> None:
    # Core 0 takes twice as long. The head needs all three at 10 s. The low_power choice for X is core 0, until 16.25 s;
    # on core 2 it ends at 8.25 s.
    platform = of_nodes([{"cores": 1}, {"cores": 1, "gflops": 2}, {"cores": 1, "gflops": 2}])
    jobs = hdsim.Workload.from_columns(submission_time=[0, 0.1, 0.25], runtime=[10, 1, 8], requested_cores=[1, 3, 1])
    result = hdsim.simulate(platform, jobs, "easy-first-low_power", check=True)
    assert result.starting_time.tolist()[2] == pytest.approx(0.25)
    assert starts(platform, jobs, "easy-first-low_power")[2] == 0.25


@pytest.mark.parametrize("agent", ["easy", "easy-sjbf", "easy++", "easy-multifactor", "conservative"])
def test_a_head_that_waits_for_a_down_node_does_not_hide_the_next_job(agent: str, tmp_path: Path) -> None:
    # Node 3 is down. Job 2 wants all four nodes, job 3 three of them: those that are up are free of jobs 0 and 1 at
    # 80 s. Behind them comes a stream of jobs of 60 s.
    (tmp_path / "outage.csv").write_text("node,down,up\n3,0,100000\n")
    fails = {"_target_": "hdsim.failures.Trace", "file": str(tmp_path / "outage.csv")}
    stream = 40
    jobs = hdsim.Workload.from_columns(
        submission_time=[0.0, 0.0, 1.0, 2.0] + [3.0 + 15 * k for k in range(stream)],
        runtime=[50.0, 80.0, 10.0, 100.0] + [60.0] * stream,
        requested_cores=[1, 1, 4, 3] + [1] * stream,
    )
    begin = starts(of_nodes([{"cores": 1}] * 4), jobs, agent, failures=fails)
    assert begin[2:4] == [100000, 80]
    # Only the first job of the stream ends before that date.
    assert sum(start < 80 for start in begin[4:]) == 1


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[dict[str, Any]], dict[str, Any], str, str]:
    """Machines with memory, GPUs and speeds, jobs, an agent and a contention model."""
    nodes = draw(
        st.lists(
            st.fixed_dictionaries(
                {"cores": st.integers(1, 8), "gflops": st.sampled_from([1, 1, 2])},
                optional={"memory": st.sampled_from([0.5, 1.25, 4.0]), "gpus": st.integers(1, 2)},
            ),
            min_size=1,
            max_size=6,
        )
    )
    seed, jobs = draw(st.integers(0, 2**20)), 60
    rng = np.random.default_rng(seed)
    most = sum(node["cores"] for node in nodes)
    runtime = np.round(rng.exponential(60, jobs) + 1)
    columns = {
        "submission_time": np.sort(np.round(rng.exponential(4, jobs).cumsum())),
        "runtime": runtime,
        "requested_time": runtime * rng.choice([1, 1.5, 3], jobs),
        "requested_cores": np.minimum(rng.choice([1, 1, 2, 3, 4, 8, most // 2 + 1], jobs), most),
        "memory": rng.choice([0, 100, 375, 1000], jobs),
        "memory_bandwidth": rng.choice([0, 3, 8], jobs),
    }
    if any("gpus" in node for node in nodes):
        columns["requested_gpus"] = (rng.random(jobs) < 0.2).astype(int)
    agent = draw(
        st.sampled_from(["easy", "easy-sjf", "easy-saf-low_power", "easy-sjbf", *(f"easy-{p}" for p in POLICIES)])
    )
    return nodes, columns, agent, draw(st.sampled_from(["none", "threshold", "fair_share"]))


@given(case=cases())
@examples(20, 300)
def test_compiled_replays_are_those_of_the_engine(case: Any) -> None:
    nodes, columns, agent, contention = case
    platform = of_nodes(nodes)
    starts(platform, hdsim.Workload.from_columns(**columns), agent, contention=contention)


@pytest.mark.parametrize("memory", [375, *nightly(300, 900)])
@pytest.mark.parametrize("agent", ["easy-first-spread", *nightly("easy", "easy-sjf")])
@pytest.mark.ci
def test_compiled_replays_are_those_of_the_engine_on_long_queues(agent: str, memory: int) -> None:
    platform = of_nodes([{"cores": 8, "memory": memory_of} for memory_of in (1.25, 2.0, 4.0) * 8])
    jobs = hdsim.load_workload({"model": "lublin", "jobs": 1200, "load": 1.1}, platform, seed=memory)
    rng = np.random.default_rng(memory)
    kinds = rng.choice([0.0, memory, memory / 3, 1000.0], 1200)
    starts(platform, jobs.replaced(memory=np.where(jobs.requested_cores > 60, 100.0, kinds)), agent)
