"""Jobs that are suspended and resumed: their work, speeds, walltimes and segments."""

from __future__ import annotations

import numpy as np
import pytest

import hdsim
from hdsim.cluster.state import Cluster, FinalState
from hdsim.errors import DecisionError
from hdsim.scheduling.agent import Agent


class Pauses(Agent):
    """Starts each job at once; suspends and resumes the first one at times."""

    def __init__(self, *changes: tuple[float, str], speed: float | None = None) -> None:
        self._changes, self._speed = list(changes), speed

    def decide(self, cluster: Cluster) -> None:
        for job in list(cluster.queue):
            if cluster.fits(job):
                cluster.start(job)
        while self._changes and self._changes[0][0] <= cluster.now:
            _, verb = self._changes.pop(0)
            getattr(cluster, verb)(0)
            for job in list(cluster.queue):
                if cluster.fits(job):
                    cluster.start(job)
            if verb == "suspend" and self._speed:
                cluster.set_speed([0], self._speed)
        if self._changes and not cluster.calls:
            cluster.call_me_later(self._changes[0][0])


def replayed(agent: Agent, runtimes: list[float], **options: object) -> hdsim.Result:
    jobs = hdsim.Workload.from_columns(
        submission_time=[0] * len(runtimes),
        runtime=runtimes,
        requested_cores=[2] * len(runtimes),
        walltime=[options.pop("walltime", 1000.0)] * len(runtimes),
    )
    platform = hdsim.Platform.homogeneous(nodes=1, cores_per_node=2)
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
    assert replayed(agent, [50.0]).finish_time.tolist() == [110]


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
