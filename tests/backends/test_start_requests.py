"""A start is a request: jobs that are STARTING or HELD, starts confirmed late, out of order, or refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest

import hdsim
from hdsim.cluster import invariants
from hdsim.cluster.state import Cluster, FinalState
from hdsim.decisions.kinds import OBJECTIVES
from hdsim.errors import BackendError
from hdsim.results.result import Result
from hdsim.scheduling.agent import make_agent

DONE = FinalState.COMPLETED_SUCCESSFULLY


def cluster_of(jobs: int = 4, *, cores: int = 4, size: int = 1) -> Cluster:
    """Jobs submitted at 0, 1, 2, ... on a platform of `cores` cores whose backend confirms starts."""
    platform = hdsim.Platform.homogeneous(nodes=cores, cores_per_node=1, gflops_per_core=1.0)
    workload = hdsim.Workload.from_columns(
        submission_time=np.arange(jobs), runtime=np.full(jobs, 10.0), requested_cores=np.full(jobs, size)
    )
    return Cluster(platform, workload, confirms_starts=True)


def test_a_started_job_holds_its_cores_before_it_runs() -> None:
    cluster = cluster_of()
    cluster.next_instant(0.0)
    cluster.submit(0)
    cluster.start(0)
    invariants.check(cluster)
    assert cluster.state[0] == FinalState.STARTING
    assert (0 in cluster.running, 0 in cluster.queue, cluster.n_idle) == (True, False, 3)
    assert math.isnan(cluster.starting_time[0])
    cluster.next_instant(2.5)
    cluster.confirm_start(0, 2.0)
    invariants.check(cluster)
    assert (cluster.state[0], cluster.starting_time[0]) == (FinalState.RUNNING, 2.0)
    cluster.next_instant(12.5)
    cluster.end(0, DONE, time=12.0)
    invariants.check(cluster)
    assert (cluster.finish_time[0], cluster.n_idle, cluster.starting) == (12.0, 4, {})


def test_a_start_is_confirmed_on_other_nodes_than_asked_for() -> None:
    platform = hdsim.Platform.homogeneous(nodes=3, cores_per_node=4, gflops_per_core=1.0).of_kind("quantities")
    workload = hdsim.Workload.from_columns(submission_time=[0, 0], runtime=[10.0, 10.0], requested_cores=[4, 2])
    cluster = Cluster(platform, workload, confirms_starts=True, core_policy="pack", has_core_ids=False)
    cluster.next_instant(0.0)
    for job in range(2):
        cluster.submit(job)
        cluster.start(job)
    assert cluster.cores.node_idle.tolist() == [0.0, 2.0, 4.0]
    cluster.next_instant(1.0)
    cluster.confirm_start(0, 1.0, cluster.cores.placement_on(0, {1: 3, 2: 1}))
    invariants.check(cluster)
    # Node 1 has less than its jobs hold, which is none of the scheduler's decisions.
    assert cluster.cores.node_idle.tolist() == [4.0, 0.0, 3.0]
    cluster.confirm_start(1, 1.0)
    cluster.end(0, DONE)
    cluster.end(1, DONE)
    invariants.check(cluster)
    assert cluster.cores.node_idle.tolist() == [4.0, 4.0, 4.0]
    assert cluster.placements[0].nodes.tolist() == [1, 2]


def test_starts_are_confirmed_out_of_order_and_together_with_the_end() -> None:
    cluster = cluster_of()
    cluster.next_instant(3.0)
    for job in range(3):
        cluster.submit(job)
        cluster.start(job)
    cluster.next_instant(20.0)
    cluster.confirm_start(2, 4.0)
    cluster.end(2, DONE, time=14.0)
    cluster.confirm_start(0, 19.0)
    invariants.check(cluster)
    assert cluster.ended == [2]
    assert list(cluster.starting) == [1]
    result = Result.of(cluster, interrupted=False)
    np.testing.assert_array_equal(result.starting_time, [19.0, math.nan, 4.0, math.nan])
    np.testing.assert_array_equal(result.finish_time, [math.nan, math.nan, 14.0, math.nan])


def test_a_refused_start_gives_cores_back_and_the_job_its_place() -> None:
    cluster = cluster_of(size=2)
    cluster.next_instant(3.0)
    for job in range(4):
        cluster.submit(job)
    cluster.start(1)
    cluster.start(2)
    assert list(cluster.queue) == [0, 3]
    cluster.next_instant(4.0)
    cluster.start_failed(1, "node 0 has gone")
    invariants.check(cluster)
    # As an interruption: an end and a submission.
    assert (cluster.ended, cluster.submitted, list(cluster.queue), cluster.n_idle) == ([1], [1], [0, 1, 3], 2)
    assert cluster.failed_starts == [(1, 3.0, 4.0, "node 0 has gone")]
    assert math.isnan(cluster.starting_time[1])
    cluster.start(1)
    cluster.next_instant(5.0)
    cluster.confirm_start(1, 5.0)
    invariants.check(cluster)
    assert cluster.state[1] == FinalState.RUNNING


@pytest.mark.parametrize(
    ("verb", "expected"),
    [
        (
            lambda cluster: cluster.confirm_start(1, 0.0),
            "job 1 cannot be confirmed .* a starting job",
        ),
        (lambda cluster: cluster.start_failed(1, "no"), "job 1 cannot be taken back as started: .* it is QUEUED"),
        (lambda cluster: cluster.end(0, DONE), "job 0 cannot be ended: expected a running job, it is STARTING"),
        (lambda cluster: cluster.confirm_start(0, 9.0), "job 0: expected a start between 0 and 1 s, got 9"),
        (lambda cluster: cluster.release(0), "job 0 cannot be released: expected a held job, it is STARTING"),
    ],
)
def test_what_no_backend_may_say_is_refused(verb: Callable[[Cluster], None], expected: str) -> None:
    cluster = cluster_of()
    cluster.next_instant(1.0)
    cluster.submit(0)
    cluster.submit(1)
    cluster.start(0)
    with pytest.raises(BackendError, match=expected):
        verb(cluster)
    invariants.check(cluster)


def test_a_held_job_is_no_candidate_until_it_is_released_into_its_place() -> None:
    cluster = cluster_of()
    cluster.next_instant(2.0)
    cluster.hold(0)
    for job in (1, 2):
        cluster.submit(job)
    invariants.check(cluster)
    assert list(cluster.queue) == [1, 2]
    cluster.next_instant(3.0)
    cluster.release(0)
    invariants.check(cluster)
    assert (list(cluster.queue), cluster.submitted) == ([0, 1, 2], [0])


def test_a_job_that_is_starting_or_held_at_the_end_counts_as_one_that_never_ran() -> None:
    def result(*, begun: bool) -> Result:
        cluster = cluster_of()
        cluster.next_instant(3.0)
        for job in range(3):
            cluster.submit(job)
        cluster.start(0)
        cluster.next_instant(13.0)
        cluster.confirm_start(0, 3.0)
        cluster.end(0, DONE)
        if begun:
            cluster.start(1)
            cluster.hold(3)
        else:
            cluster.submit(3)
        return Result.of(cluster, interrupted=False)

    begun, waiting = result(begun=True), result(begun=False)
    assert begun.metrics == waiting.metrics
    assert begun.metrics["jobs_unfinished"] == 3
    assert begun.jobs["final_state"].tolist()[1:] == ["STARTING", "QUEUED", "HELD"]
    for name in ("starting_time", "finish_time", "allocated_resources", "consumed_energy"):
        assert begun.jobs[name].tolist()[1:] == pytest.approx(waiting.jobs[name].tolist()[1:], nan_ok=True)


@pytest.mark.parametrize("name", ["avg_utilization", "makespan", "energy_consumption"])
def test_no_objective_rewards_a_start_before_it_is_confirmed(name: str) -> None:
    """While a job is STARTING, and after its start has failed, the rate is that of an idle platform."""
    objective = OBJECTIVES.find(name)(integrated=False)
    cluster = cluster_of(size=2)
    objective.begin(SimpleNamespace(cluster=cluster, contention=None), None)  # type: ignore[arg-type]
    idle = objective.value()  # type: ignore[attr-defined]
    cluster.next_instant(1.0)
    cluster.submit(0)
    cluster.start(0)
    assert objective.value() == idle  # type: ignore[attr-defined]
    cluster.next_instant(2.0)
    cluster.start_failed(0, "no")
    assert objective.value() == idle  # type: ignore[attr-defined]
    cluster.start(0)
    cluster.next_instant(3.0)
    cluster.confirm_start(0, 3.0)
    assert objective.value() != idle  # type: ignore[attr-defined]


def test_a_job_that_runs_without_a_decision_is_adopted() -> None:
    """One that was queued leaves every queue, one that was not known is in none; nodes may be overcommitted by them."""
    platform = hdsim.Platform.homogeneous(nodes=2, cores_per_node=4, gflops_per_core=1.0).of_kind("quantities")
    workload = hdsim.Workload.from_columns(submission_time=np.zeros(4), runtime=10.0, requested_cores=1, cpu=3.0)
    cluster = Cluster(platform, workload, core_policy="least_allocated", confirms_starts=True)
    agent = make_agent("least_allocated")
    agent.begin(cluster)
    cluster.next_instant(0.0)
    for job in range(3):
        cluster.submit(job)
    agent.decide(cluster)
    assert list(cluster.starting) == [0, 1] and list(cluster.queue) == [2]
    cluster.next_instant(1.0)
    cluster.adopt(2, cluster.cores.placement_on(2, {1: 1}), 0.5)
    cluster.adopt(3, cluster.cores.placement_on(3, {1: 1}), 0.0)
    assert cluster.withdrawn == [2] and not cluster.queue
    invariants.check(cluster)
    assert cluster.cores.node_idle.tolist() == [1.0, 0.0]
    agent.decide(cluster)
    cluster.next_instant(2.0)
    for job in (0, 1):
        cluster.confirm_start(job, 1.5)
    for job in range(4):
        cluster.end(job, DONE)
    agent.decide(cluster)
    invariants.check(cluster)
    assert cluster.cores.node_idle.tolist() == [4.0, 4.0]
    assert cluster.starting_time == [1.5, 1.5, 0.5, 0.0]
    with pytest.raises(BackendError, match="job 2 cannot be adopted: expected a queued job"):
        cluster.adopt(2, cluster.cores.placement_on(2, {1: 1}), 2.0)
