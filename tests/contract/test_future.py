"""No decision is shown the future: what is seen before a time is the same whatever is submitted after it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from decision_kinds import OBSERVATIONS

import hdsim
from hdsim.cluster.state import Cluster
from hdsim.decisions import DecisionProblem
from hdsim.platform.load import load_platform
from hdsim.scheduling.agent import Agent
from hdsim.scheduling.orders import ORDERS, job_order
from hdsim.scheduling.queue import make_queue
from hdsim.util.resources import resolve

CHANGE = 1500.0


def workload(seed: int, jobs: int = 60) -> hdsim.Workload:
    """Jobs of which those before `CHANGE` do not depend on the seed; the others are much larger or smaller."""
    rng = np.random.default_rng(1)
    columns = {
        "submission_time": np.sort(rng.integers(0, 3000, jobs)).astype(float),
        "runtime": rng.integers(1, 2000, jobs).astype(float),
        "requested_cores": rng.integers(1, 9, jobs),
        "memory": rng.integers(0, 4, jobs) * 512.0,
        "memory_bandwidth": rng.integers(1, 7, jobs) * 4.0,
    }
    columns["submission_time"][0] = 0.0
    late = columns["submission_time"] >= CHANGE
    rng = np.random.default_rng(seed)
    for name in ("runtime", "memory", "memory_bandwidth"):
        columns[name][late] *= rng.choice([0.25, 4.0], late.sum())
    columns["requested_cores"][late] = rng.integers(1, 17, late.sum())
    return hdsim.Workload.from_columns(**columns)


class Recorder(Agent):
    """Draws actions that the mask allows and keeps every observation before `CHANGE`."""

    def __init__(self, problem: DecisionProblem) -> None:
        self.problem = problem
        self.core_policy = problem.core_policy
        self.seen: list[bytes] = []

    def begin(self, cluster: Cluster) -> None:
        self.rng = np.random.default_rng(0)
        self.problem.begin(cluster)

    def decide(self, cluster: Cluster) -> None:
        while self.problem.pending():
            observation: Any = self.problem.observe()
            if cluster.now < CHANGE:
                arrays = observation.values() if isinstance(observation, dict) else [observation]
                self.seen.append(b"".join(array.tobytes() for array in arrays))
            self.problem.act(int(self.rng.choice(self.problem.mask().nonzero()[0])))


@pytest.mark.parametrize("observation", OBSERVATIONS)
@pytest.mark.parametrize("action", ["policy_pair", "job", "node"])
def test_an_observation_does_not_depend_on_later_jobs(action: str, observation: str) -> None:
    platform = load_platform(resolve("platforms", "gaia"))
    seen = []
    for seed in (2, 3):
        agent = Recorder(DecisionProblem(action, observation))
        hdsim.simulate(platform, workload(seed), agent, contention="threshold")
        seen.append(agent.seen)
    assert len(seen[0]) > 20
    assert seen[0] == seen[1]


@pytest.mark.parametrize("observation", ["minimal", "small", "normal"])
def test_hdeeprms_scales_are_an_option_that_tells_of_later_jobs(observation: str) -> None:
    platform = load_platform(resolve("platforms", "gaia"))
    seen = []
    for seed in (2, 3):
        agent = Recorder(DecisionProblem("policy_pair", observation, scale="workload"))
        hdsim.simulate(platform, workload(seed), agent)
        seen.append(agent.seen)
    assert seen[0] != seen[1]


@pytest.mark.parametrize("observation", OBSERVATIONS)
def test_an_observation_is_the_same_where_jobs_become_known_on_their_submission(observation: str) -> None:
    jobs = workload(2)
    platform = load_platform(resolve("platforms", "gaia"))
    assert observations(platform, jobs, observation, first=len(jobs)) == observations(platform, jobs, observation, 1)


def observations(platform: hdsim.Platform, jobs: hdsim.Workload, observation: str, first: int) -> list[bytes]:
    """What is seen at each submission where nothing ends; `first` jobs are known from the start."""
    cluster = Cluster(platform, jobs[:first], open_ended=True)
    agent = Recorder(DecisionProblem("policy_pair", observation))
    agent.begin(cluster)
    for job, time in enumerate(jobs.submission_time.tolist()):
        if job >= first:
            cluster.add(jobs.rows(job)[:1].replaced(submission_time=time))
        cluster.next_instant(time)
        cluster.submit(job)
        agent.decide(cluster)
        cluster.started.clear()
    return agent.seen


@pytest.mark.parametrize("name", ORDERS)
@pytest.mark.parametrize("batch", [1, 7])
def test_an_order_of_jobs_added_on_the_way_is_that_of_jobs_known_from_the_start(name: str, batch: int) -> None:
    jobs = workload(2)
    platform = hdsim.Platform.homogeneous(nodes=4, cores_per_node=4, gflops_per_core=1.0)
    known, growing = (Cluster(platform, part, open_ended=True) for part in (jobs, jobs[:batch]))
    queues = [make_queue(cluster, job_order(name)) for cluster in (known, growing)]
    rng = np.random.default_rng(5)
    for first in range(0, len(jobs), batch):
        rows = jobs.rows(first)[:batch]
        if first:
            growing.add(rows.replaced(submission_time=jobs.submission_time[first : first + len(rows)]))
        for cluster, queue in zip((known, growing), queues, strict=True):
            cluster.next_instant(float(jobs.submission_time[first + len(rows) - 1]))
            for job in range(first, first + len(rows)):
                cluster.submit(job)
            queue.add(cluster.submitted)
            queue.refresh(cluster)
        assert queues[0].jobs == queues[1].jobs
        assert queues[0].head() == queues[1].head() == queues[0].jobs[0]
        leaving = queues[0].jobs[int(rng.integers(len(queues[0].jobs)))]
        for cluster, queue in zip((known, growing), queues, strict=True):
            cluster.reject(leaving)
            queue.remove(leaving)
    for name_of_column in ("job_id", "submission_time", "runtime", "requested_cores", "memory"):
        column = getattr(growing.workload, name_of_column)
        np.testing.assert_array_equal(column, getattr(jobs, name_of_column))
        assert not column.flags.writeable


def test_a_workload_taken_before_jobs_were_added_stays_as_it_was() -> None:
    platform = hdsim.Platform.homogeneous(nodes=1, cores_per_node=1, gflops_per_core=1.0)
    jobs = workload(2, 5)
    cluster = Cluster(platform, jobs[:2], open_ended=True)
    taken = []
    for row in range(2, 5):
        taken.append(cluster.workload)
        cluster.add(jobs.rows(row)[:1].replaced(submission_time=jobs.submission_time[row]))
    assert [len(each) for each in (*taken, cluster.workload)] == [2, 3, 4, 5]
    for each in taken:
        np.testing.assert_array_equal(each.runtime, jobs.runtime[: len(each)])
