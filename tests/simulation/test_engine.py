"""The engine on schedules drawn by hand."""

import numpy as np
import pytest
from procset import ProcSet

import hdsim
import platforms
from hdsim.cluster import invariants
from hdsim.cluster.state import Cluster, FinalState
from hdsim.errors import DecisionError


def machine(cores=4, **options):
    return hdsim.Platform.homogeneous(nodes=1, cores_per_node=cores, gflops_per_core=10.0, **options)


def jobs(*rows, **columns):
    """Rows of (submission, run time, cores)."""
    submission, runtime, cores = zip(*rows, strict=True)
    return hdsim.Workload.from_columns(submission_time=submission, runtime=runtime, requested_cores=cores, **columns)


def times(result):
    return list(zip(result.starting_time.tolist(), result.finish_time.tolist(), strict=True))


class Recorder(hdsim.Agent):
    """Starts what fits, first come first served, and notes every pass."""

    def begin(self, cluster):
        self.passes = []

    def decide(self, cluster):
        self.passes.append((cluster.now, list(cluster.submitted), list(cluster.ended)))
        for job in list(cluster.queue):
            placement = cluster.pick(job)
            if placement is None:
                return
            cluster.start(job, placement)


def test_one_pass_an_instant_sees_all_its_events():
    agent = Recorder()
    result = hdsim.simulate(machine(), jobs((0, 10, 4), (0, 5, 2), (10, 5, 2)), agent, check=True)
    assert agent.passes == [(0, [0, 1], []), (10, [2], [0]), (15, [], [1, 2])]
    assert times(result) == [(0, 10), (10, 15), (10, 15)]


def test_a_job_of_no_duration_ends_at_its_own_instant():
    agent = Recorder()
    result = hdsim.simulate(machine(), jobs((3, 0, 4), (3, 7, 4)), agent, check=True)
    assert times(result) == [(0, 0), (0, 7)]
    assert agent.passes == [(0, [0, 1], []), (0, [], [0]), (7, [], [1])]


def test_dates_of_the_trace_are_kept_to_the_last_digit():
    submission = np.cumsum([0.1] * 50)
    result = hdsim.simulate(machine(64), jobs(*[(s, 0.3, 1) for s in submission]), Recorder())
    assert np.array_equal(result.starting_time, result.workload.submission_time)
    assert np.array_equal(result.jobs["waiting_time"], np.zeros(50))


def test_walltime_kills_only_when_asked():
    workload = jobs((0, 10, 4), (0, 5, 4), (0, 3, 4), walltime=[6, 5, 4])
    kept = hdsim.simulate(machine(), workload, Recorder(), check=True)
    assert times(kept) == [(0, 10), (10, 15), (15, 18)]
    killed = hdsim.simulate(machine(), workload, Recorder(), kill_at_walltime=True, check=True)
    assert times(killed) == [(0, 6), (6, 11), (11, 14)]
    reached, succeeded = FinalState.COMPLETED_WALLTIME_REACHED, FinalState.COMPLETED_SUCCESSFULLY
    assert killed.state.tolist() == [reached, succeeded, succeeded]
    assert killed.metrics["jobs_killed"] == 1


@pytest.mark.parametrize("way", ["fcfs", Recorder(), "contention"])
def test_a_job_as_long_as_its_walltime(way):
    """A computation completes, a delay reaches its walltime, as in Batsim 4.2.1."""
    workload = jobs((0, 5, 1), (0, 5, 1), (0, 5, 1), walltime=[5, 5, 4.5], fixed_duration=[False, True, False])
    workload = workload.replaced(memory_bandwidth=1.0)
    options = {"agent": "fcfs", "contention": "threshold"} if way == "contention" else {"agent": way}
    result = hdsim.simulate(machine(), workload, **options, kill_at_walltime=True)
    assert result.finish_time.tolist() == [5, 5, 4.5]
    reached, succeeded = FinalState.COMPLETED_WALLTIME_REACHED, FinalState.COMPLETED_SUCCESSFULLY
    assert result.state.tolist() == [succeeded, reached, reached]


def test_return_code_makes_a_failed_job():
    result = hdsim.simulate(machine(), jobs((0, 1, 1), (0, 1, 1), return_code=[0, 3]), "fcfs")
    assert result.jobs["final_state"].tolist() == ["COMPLETED_SUCCESSFULLY", "COMPLETED_FAILED"]
    assert result.jobs["success"].tolist() == [1, 0]


def test_impossible_jobs_are_rejected_and_the_rest_goes_on(caplog):
    platform = hdsim.Platform.homogeneous(nodes=2, cores_per_node=2, memory_gb_per_node=1.0)
    workload = jobs((0, 1, 5), (0, 1, 4), (0, 1, 1), memory=[0, 600, 900])
    result = hdsim.simulate(platform, workload, "fcfs", check=True)
    assert result.jobs["final_state"].tolist() == ["REJECTED", "REJECTED", "COMPLETED_SUCCESSFULLY"]
    assert "2 of 3 jobs are infeasible" in caplog.text


def test_heterogeneous_cores_hold_a_job_to_the_slowest(two_speeds):
    workload = jobs((0, 30, 3))
    result = hdsim.simulate(two_speeds, workload, "first-high_gflops", check=True)
    assert result.jobs["allocated_resources"].tolist() == ["0-2"]
    # Reference speed 15: on a core of 10 the 30 s take 45.
    assert times(result) == [(0, 45)]
    fixed = jobs((0, 30, 3), fixed_duration=[True])
    assert times(hdsim.simulate(two_speeds, fixed, "first-high_gflops")) == [(0, 30)]


@pytest.fixture
def two_speeds():
    return platforms.two_speeds(cores=2, mem_bw=100)


def test_contention_slows_both_and_lets_go(two_speeds):
    """Job 0 (60 GB/s) runs alone for 15 s, shares the fast processor until job 1 ends, then runs alone again."""
    workload = jobs((0, 60, 1), (15, 15, 1), memory_bandwidth=[60, 60])
    result = hdsim.simulate(two_speeds, workload, "first-high_gflops", contention="threshold", check=True)
    # Relative speed 4/3; contended 1. Job 0: 15 s do 20; job 1 takes 15 s at speed 1, in which job 0 does 15;
    # the 25 left take 18.75 s.
    assert result.finish_time.tolist() == pytest.approx([48.75, 30.0], abs=1e-9)
    processors, starts, ends = result.oversubscribed
    assert (processors.tolist(), starts.tolist(), ends.tolist()) == ([0], [15.0], [30.0])
    # Power a core 10 W. Fast: 1 busy + 1 idle, 2 busy, 1 busy; slow: asleep throughout.
    fast = 15 * 12.5 + 15 * 20 + 18.75 * 12.5
    assert result.energy_joules == pytest.approx(fast + 48.75 * 2 * 10 * 0.05)
    assert result.jobs["consumed_energy"].tolist() == pytest.approx([487.5, 150.0])


def test_walltime_under_contention(two_speeds):
    workload = jobs((0, 60, 1), (0, 60, 1), memory_bandwidth=[60, 60], walltime=[50, 100])
    result = hdsim.simulate(
        two_speeds, workload, "first-high_gflops", contention="threshold", kill_at_walltime=True, check=True
    )
    # Both at speed 1 until 50 s; the survivor's 10 s left take 7.5.
    assert result.finish_time.tolist() == pytest.approx([50.0, 57.5])
    assert result.state.tolist() == [FinalState.COMPLETED_WALLTIME_REACHED, FinalState.COMPLETED_SUCCESSFULLY]


class Killer(Recorder):
    def decide(self, cluster):
        super().decide(cluster)
        if cluster.now == 0:
            cluster.call_me_later(4)
        if cluster.now == 4 and 0 in cluster.running:
            cluster.kill(0)


@pytest.mark.parametrize("contention", ["none", "threshold"])
def test_kill_and_call_me_later(two_speeds, contention):
    workload = jobs((0, 60, 2), (1, 15, 2), memory_bandwidth=[10, 10])
    agent = Killer()
    result = hdsim.simulate(two_speeds, workload, agent, contention=contention, check=True)
    assert agent.passes[:4] == [(0, [0], []), (1, [1], []), (4, [], []), (4, [], [0])]
    assert result.finish_time.tolist() == pytest.approx([4.0, 1 + 15 * 1.5])
    assert result.jobs["final_state"][0] == "COMPLETED_KILLED"


class Rejecter(hdsim.Agent):
    def decide(self, cluster):
        for job in list(cluster.queue):
            cluster.reject(job)


def test_reject():
    result = hdsim.simulate(machine(), jobs((0, 1, 1), (1, 1, 1)), Rejecter(), check=True)
    assert result.metrics["jobs_rejected"] == 2
    assert result.metrics["makespan"] == 0
    assert result.jobs["allocated_resources"].tolist() == ["", ""]


def test_an_agent_that_starts_nothing_is_told(caplog):
    result = hdsim.simulate(machine(), jobs((0, 1, 1)), "void")
    assert result.metrics["jobs_unfinished"] == 1
    assert "1 jobs were never started" in caplog.text


@pytest.mark.parametrize(
    "cores",
    [[3, 1], np.array([3, 1]), ProcSet(1, 3), slice(1, None, 2)],
    ids=["list", "array", "ProcSet", "slice"],
)
def test_start_on_explicit_cores(cores):
    class Explicit(hdsim.Agent):
        fixed_policy = True

        def decide(self, cluster):
            for job in list(cluster.queue):
                cluster.start_on(job, cores)
                assert cluster.allocation(job) == ProcSet(1, 3) and cluster.idle_cores() == ProcSet(0, 2)
                cluster.set_speed(cores, 0.5)

    result = hdsim.simulate(machine(), jobs((0, 1, 2)), Explicit(), check=True)
    assert result.jobs["allocated_resources"].tolist() == ["1 3"]
    assert result.allocations == [ProcSet(1, 3)]
    assert result.finish_time.tolist() == [2.0]


@pytest.mark.parametrize("fixed", [True, False])
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda c: c.start(5), "job index 5 cannot be started: expected a queued job, it is unknown"),
        (lambda c: c.start(2), "job c cannot be started: expected a queued job, it is NOT_SUBMITTED"),
        (lambda c: (c.start(0), c.start(0)), "job a cannot be started: expected a queued job, it is RUNNING"),
        (lambda c: c.start_on(0, [0]), r"job a: expected 2 distinct cores, got \[0\]"),
        (lambda c: c.start_on(0, [0, 0]), r"job a: expected 2 distinct cores"),
        (lambda c: c.start_on(0, [0, 4]), r"job a: expected core ids 0 to 3"),
        (lambda c: (c.start_on(0, [0, 1]), c.start_on(1, [1, 2])), r"expected .*idle cores, got busy \[1\]"),
        (lambda c: (c.start(0), c.start(1), c.reject(0)), "job a cannot be rejected"),
        (lambda c: c.kill(0), "job a cannot be killed: expected a running job, it is QUEUED"),
        (lambda c: c.call_me_later(0), "expected a time after 0"),
    ],
)
def test_wrong_decisions_name_the_job_and_the_reason(wrong, message, fixed):
    class Wrong(hdsim.Agent):
        fixed_policy = fixed

        def decide(self, cluster):
            wrong(cluster)

    workload = jobs((0, 1, 2), (0, 1, 2), (9, 1, 2), job_id=["a", "b", "c"])
    with pytest.raises(DecisionError, match=message):
        hdsim.simulate(machine(), workload, Wrong())


def test_memory_is_watched_for_explicit_cores():
    platform = hdsim.Platform.homogeneous(nodes=2, cores_per_node=2, memory_gb_per_node=1.0)
    cluster = Cluster(platform, jobs((0, 1, 2), memory=[600]))
    cluster.submit(0)
    with pytest.raises(DecisionError, match="expected 600 MB a core, but node 0 would have -200 MB free"):
        cluster.start_on(0, [0, 1])
    invariants.check(cluster)
    cluster.start_on(0, [0, 2])
    invariants.check(cluster)


def test_check_notices_what_is_wrong():
    cluster = Cluster(machine(), jobs((0, 1, 2)), fixed_policy=True)
    cluster.submit(0)
    cluster.start(0)
    invariants.check(cluster)
    cluster.cores.idle.append(3)
    with pytest.raises(AssertionError, match="lost or allocated twice"):
        invariants.check(cluster)


def test_columns_are_read_only():
    result = hdsim.simulate(machine(), jobs((0, 1, 1)), "fcfs")
    with pytest.raises(ValueError, match="read-only"):
        result.jobs["finish_time"][0] = 3
