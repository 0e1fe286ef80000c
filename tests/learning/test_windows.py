"""Windows of traces: state at their begin, metrics of their jobs, sets without common jobs."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiers import examples

import hdsim
from hdsim.agents.classic import ClassicAgent
from hdsim.errors import ConfigError, WorkloadError
from hdsim.results.metrics import bounded_slowdown
from hdsim.simulation.window_sets import PARTS, WindowSet
from hdsim.simulation.windows import Window, machine, windows
from hdsim.workload.generators.base import SPLITS
from hdsim.workload.generators.families import draw_workload
from hdsim.workload.swf import write_swf


class Own(ClassicAgent):
    """The same as its parent, but not known to be: it is replayed by the engine."""

    def decide(self, cluster):
        super().decide(cluster)


AGENTS = (
    {"job_policy": "f1", "commit_head": True},
    {"job_policy": "fcfs", "backfill": "easy"},
    {"job_policy": "saf", "backfill": "easy", "backfill_order": "sjf"},
    {"job_policy": "sjf", "backfill": "conservative"},
    {"job_policy": "f3", "backfill": "rlscheduler", "commit_head": True},
    {"job_policy": "saf", "backfill": "greedy"},
    {"job_policy": "learned", "commit_head": True},
    {"job_policy": "learned", "backfill": "easy"},
    {"job_policy": "learned", "backfill": "rlscheduler", "commit_head": True},
)


@pytest.mark.parametrize("settings", AGENTS, ids=lambda settings: "-".join(map(str, settings.values())))
@pytest.mark.parametrize("batch_events", [True, False])
def test_compiled_windows_are_forks_of_the_base_policy(settings: dict[str, str], batch_events: bool) -> None:
    trace = draw_workload("tsafrir", 3, 900)
    for window in windows(trace, 2, 300, warmup=300):
        compiled = window.starts(settings, batch_events=batch_events)
        simulated = window.starts(Own(**settings), batch_events=batch_events)
        assert np.array_equal(compiled, simulated)


@given(
    seed=st.integers(0, 500),
    cores=st.sampled_from([4, 16]),
    warmup=st.integers(1, 60),
    base=st.sampled_from(["fcfs", "easy", "sjf"]),
)
@examples(15)
def test_a_window_under_its_base_policy_is_part_of_the_whole_replay(
    seed: int, cores: int, warmup: int, base: str
) -> None:
    # The base policy goes on as if nothing had happened, if its decisions depend on the queue alone.
    trace = draw_workload("home", seed, warmup + 40, cores=cores)
    (window,) = windows(trace, 1, 40, warmup=warmup, base=base)
    whole = hdsim.simulate(machine(cores), trace, base)
    start, finish = window.starts(base)
    assert np.array_equal(start, whole.starting_time[warmup:])
    assert np.array_equal(finish, whole.finish_time[warmup:])


def test_an_empty_start_is_a_replay_of_the_jobs() -> None:
    trace = draw_workload("home", 1, 200)
    first, second = windows(trace, 2, 100, warmup=0)
    assert np.array_equal(first.workload.job_id, trace.job_id[:100])
    assert np.array_equal(second.workload.job_id, trace.job_id[100:])
    result = hdsim.simulate(machine(256), trace[100:], "f1", batch_events=False)
    assert second.score("f1", batch_events=False) == result.metrics["mean_bounded_slowdown"]
    for metric in ("mean_waiting_time", "p95_slowdown", "max_turnaround_time"):
        assert second.score("f1", metric, batch_events=False) == pytest.approx(result.metrics[metric])


def test_the_order_learned_comes_to_an_empty_machine() -> None:
    trace = draw_workload("home", 4, 200)
    whole = hdsim.simulate(machine(256), trace, "easy-learned")
    assert np.array_equal(Window(trace).starts("easy-learned")[0], whole.starting_time)


def test_metrics_are_of_the_jobs_of_the_window() -> None:
    # Two cores: job 0 holds both until 100 s, job 1 waits for them with one core, the window has job 2 alone.
    jobs = hdsim.Workload.from_columns(
        submission_time=[0, 10, 50], runtime=[100, 30, 20], requested_cores=[2, 1, 2], header={"MaxProcs": 2}
    )
    window = Window(jobs, warmup=2)
    assert window.begin == 49.0
    arriving, release = window.arrivals
    assert arriving.tolist() == [0, 1, 2]
    assert release.tolist() == [0.0, 49.0, 50.0]
    start, finish = window.starts("fcfs")
    assert (start.tolist(), finish.tolist()) == ([130.0], [150.0])
    assert window.score("fcfs") == bounded_slowdown(np.array([100.0]), np.array([20.0]))[0] == 5.0
    # Smallest area first has the same order here; longest first serves the jobs of the window before those that waited.
    assert window.score("largest", "mean_waiting_time") == 50.0


def test_wrong_windows() -> None:
    trace = draw_workload("home", 1, 100)
    with pytest.raises(WorkloadError, match="expected at least 110 jobs for 2 windows of 50 with a warm-up of 10"):
        windows(trace, 2, 50, warmup=10)
    (window,) = windows(trace, 1, 50, warmup=10)
    with pytest.raises(ConfigError, match=r"expected one of waiting_time, .* got 'wating_time'"):
        window.score("fcfs", "mean_wating_time")
    with pytest.raises(ConfigError, match=r"expected one of mean_slowdown, .* got 'men_slowdown'"):
        window.score("fcfs", "men_slowdown")
    with pytest.raises(ConfigError, match="an agent that starts every job"):
        window.score("void")


def test_sets_of_a_family_have_no_trace_in_common() -> None:
    sets = [
        WindowSet("home", split, number, traces=3, count=2, jobs=20, warmup=10)
        for split, number in itertools.product(SPLITS, range(2))
    ]
    assert len({chosen.digest for chosen in sets}) == 6
    jobs = [window.workload.runtime.tobytes() for chosen in sets for window in chosen.windows]
    assert len(set(jobs)) == len(jobs) == 36
    again = WindowSet("home", "test", 1, traces=3, count=2, jobs=20, warmup=10)
    assert again.digest == sets[-1].digest != WindowSet("home", "test", 1, 3, 2, 20, 10, base="fcfs").digest
    assert [window.trace for window in again.windows] == [0, 0, 1, 1, 2, 2]


def test_a_file_is_cut_in_time(tmp_path: Path) -> None:
    trace = draw_workload("home", 1, 1000)
    write_swf(trace, tmp_path / "log.swf")
    seen: dict[str, set[int]] = {}
    for split, (low, high) in PARTS.items():
        chosen = WindowSet(str(tmp_path / "log.swf"), split, traces=50, count=2, jobs=30, warmup=20)
        seen[split] = {int(job) for window in chosen.windows for job in window.workload.job_id}
        assert len(chosen.windows) == 2 * int((high - low) * 1000 / 80 + 1e-9)
        assert max(seen[split]) <= high * 1000
    assert not set.intersection(seen["train"], seen["validation"] | seen["test"])
    assert max(seen["train"]) < min(seen["validation"]) <= max(seen["validation"]) < min(seen["test"])
    whole = WindowSet(str(tmp_path / "log.swf"), "test", traces=50, count=2, jobs=30, warmup=20, whole=True)
    assert len(whole.windows) == 24
    with pytest.raises(ConfigError, match="expected at least 80 jobs in the test part of the file from job 4800"):
        WindowSet(str(tmp_path / "log.swf"), "test", 1, traces=50, count=2, jobs=30, warmup=20).windows  # noqa: B018


@pytest.mark.parametrize(("traces", "count", "enough"), [(20, 5, True), (19, 6, False), (20, 4, False)])
def test_a_claim_needs_windows_and_traces(traces: int, count: int, enough: bool) -> None:
    chosen = WindowSet("home", "validation", traces=traces, count=count, jobs=2, warmup=1)
    assert (chosen.shortfall == "") == enough
    if not enough:
        assert chosen.shortfall == (
            f"not enough for a claim: expected at least 100 windows of 20 traces, got {traces * count} of {traces}"
        )


def test_wrong_sets() -> None:
    with pytest.raises(ConfigError, match="expected one of train, validation, test, got 'tests'"):
        WindowSet("home", "tests")
    with pytest.raises(
        ConfigError, match="expected a trace file for arrival_factor, whole, since and like, got a family"
    ):
        WindowSet("home", arrival_factor=0.5)
