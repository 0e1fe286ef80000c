"""Jobs that are suspended and resumed: their work, speeds, walltimes and segments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hdsim
from hdsim.cluster.state import Cluster, FinalState
from hdsim.errors import DecisionError
from hdsim.scheduling.agent import Agent

#: W of a core by frequency in GHz, the second one the nominal one.
WATTS = {1.0: 4.0, 2.0: 10.0}


class Pauses(Agent):
    """Starts each job at once; suspends and resumes the first one at times.

    A change is a time, a method of the cluster, and its arguments after the job.
    """

    def __init__(self, *changes: tuple[Any, ...], speed: float | None = None) -> None:
        self._changes, self._speed = list(changes), speed

    def decide(self, cluster: Cluster) -> None:
        for job in list(cluster.queue):
            if cluster.fits(job):
                cluster.start(job)
        while self._changes and self._changes[0][0] <= cluster.now:
            _, verb, *arguments = self._changes.pop(0)
            getattr(cluster, verb)(0, *arguments)
            for job in list(cluster.queue):
                if cluster.fits(job):
                    cluster.start(job)
            if verb == "suspend" and self._speed:
                cluster.set_speed([0], self._speed)
        if self._changes and not cluster.calls:
            cluster.call_me_later(self._changes[0][0])


def replayed(agent: Agent, runtimes: list[float], cores: int = 2, **options: Any) -> hdsim.Result:
    jobs = hdsim.Workload.from_columns(
        submission_time=[0] * len(runtimes),
        runtime=runtimes,
        requested_cores=[2] * len(runtimes),
        walltime=[options.pop("walltime", 1000.0)] * len(runtimes),
    )
    points = [{"ghz": ghz, "static_watts": 1, "dynamic_watts": watts - 1} for ghz, watts in WATTS.items()]
    platform = hdsim.Platform.homogeneous(1, cores, 2.0, power_per_core=10.0, frequencies=points)
    return hdsim.simulate(platform, jobs, agent, check=True, **options)


def test_another_job_runs_while_a_job_stands_still() -> None:
    agent = Pauses((10, "suspend"), (30, "resume"), (40, "suspend"), (45, "resume"))
    result = replayed(agent, [50.0, 20.0])
    assert result.starting_time.tolist() == [0, 10]
    assert result.finish_time.tolist() == [75, 30]
    first = result.segments.job == 0
    spans = zip(result.segments.begin[first].tolist(), result.segments.end[first].tolist(), strict=True)
    assert sorted(spans) == [(0, 10), (30, 40), (45, 75)]


def test_the_walltime_of_a_suspended_job_stands_still() -> None:
    agent = Pauses((10, "suspend"), (30, "resume"))
    result = replayed(agent, [50.0], walltime=40.0, kill_at_walltime=True)
    assert result.finish_time.tolist() == [60]
    assert result.state.tolist() == [FinalState.COMPLETED_WALLTIME_REACHED]


def test_a_resumed_job_has_the_speed_of_its_cores() -> None:
    agent = Pauses((10, "suspend"), (30, "resume"), speed=0.5)
    # 10 of 50 s of work are done; the other 40 take twice as long.
    result = replayed(agent, [50.0])
    assert result.finish_time.tolist() == [110]
    assert result.segments.speed.tolist() == [1.0, 0.5]


def test_a_job_that_starts_and_is_suspended_at_one_instant_has_done_nothing() -> None:
    result = replayed(Pauses((0, "suspend"), (5, "resume")), [50.0])
    assert (result.starting_time.tolist(), result.finish_time.tolist()) == ([0], [55])
    assert np.asarray(result.segments.begin).tolist() == [5]


def test_only_a_running_job_is_suspended() -> None:
    with pytest.raises(DecisionError, match="suspended"):
        replayed(Pauses((10, "suspend"), (20, "suspend")), [50.0])
    with pytest.raises(DecisionError, match="resumed"):
        replayed(Pauses((10, "resume")), [50.0])


def test_where_nodes_fail_no_job_is_suspended() -> None:
    with pytest.raises(DecisionError, match="suspends no such jobs"):
        replayed(Pauses((10, "suspend")), [50.0], failures="external")


def test_a_resumed_job_has_all_cores_that_it_was_resized_to() -> None:
    agent = Pauses((10, "resize_on", [0, 1, 2, 3]), (20, "suspend"), (30, "resume"))
    # 10 s on 2 cores and 10 s on 4 are 30 s of work; the other 30 s take 15 s on 4.
    result = replayed(agent, [60.0], cores=4)
    assert result.finish_time.tolist() == [45]
    assert result.segments.sizes.tolist() == [2, 4, 4]


@pytest.mark.parametrize("pace", [(10, "set_frequency", 1.0), (0, "set_frequency", 1.0)])
def test_a_resumed_job_has_the_frequency_that_it_had(pace: tuple[Any, ...]) -> None:
    """Another job at the nominal frequency has its cores meanwhile."""
    result = replayed(Pauses(pace, (20, "suspend"), (40, "resume")), [30.0, 20.0])
    left = 30.0 - pace[0] - (20 - pace[0]) / 2
    assert result.starting_time.tolist() == [0, 20]
    assert result.finish_time.tolist() == [40 + 2 * left, 40]
    slow = 20 - pace[0] + 2 * left
    assert result.jobs["consumed_energy"].tolist() == [2 * (slow * WATTS[1.0] + pace[0] * WATTS[2.0]), 400]


@pytest.mark.parametrize("change", [("resize_on", [0]), ("set_frequency", 1.0)])
def test_a_job_that_changes_and_is_suspended_at_one_instant(change: tuple[Any, ...]) -> None:
    agent = Pauses((10, *change), (10, "suspend"), (15, "resume"))
    # The other 40 s take twice as long.
    assert replayed(agent, [50.0]).finish_time.tolist() == [95]


def test_a_job_that_is_suspended_at_the_end_holds_nothing() -> None:
    result = replayed(Pauses((10, "suspend")), [50.0, 20.0])
    assert result.finish_time[1] == 30
    assert result.energy_joules == 30 * 2 * 10.0
    assert result.metrics["jobs_unfinished"] == 1


def test_work_that_is_lost_and_the_walltime_of_a_second_start_leave_out_how_long_a_job_stood_still() -> None:
    agent = Pauses((10, "suspend"), (40, "resume"), (45, "requeue"))
    result = replayed(agent, [50.0], walltime=40.0, kill_at_walltime=True)
    assert result.jobs["lost_core_seconds"].tolist() == [2 * 15]
    assert (result.starting_time.tolist(), result.finish_time.tolist()) == ([45], [85])


@pytest.mark.parametrize("verb", ["kill", "requeue"])
def test_a_job_that_is_about_to_end_is_not_suspended(verb: str) -> None:
    with pytest.raises(DecisionError, match="ends at this very instant"):
        replayed(Pauses((10, verb), (10, "suspend")), [50.0])


def test_a_suspended_job_that_has_run_longer_than_requested_ends_in_a_fork_when_it_is_resumed() -> None:
    jobs = hdsim.Workload.from_columns(submission_time=[0], runtime=[50], requested_time=[20], requested_cores=[2])
    platform = hdsim.Platform.homogeneous(nodes=1, cores_per_node=2)
    simulation = hdsim.Simulation(platform, jobs, Pauses((30, "suspend"), (40, "resume")), check=True)
    simulation.run_until(35)
    assert simulation.fork().run().finish_time.tolist() == [40]
    assert simulation.run().finish_time.tolist() == [60]
