"""Slurm's multifactor priority: usage against its closed form, priorities, forks."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiers import examples

import hdsim
from hdsim.agents.classic import ClassicAgent
from hdsim.cluster.state import Cluster
from hdsim.decisions import DecisionProblem
from hdsim.errors import ConfigError
from hdsim.scheduling.orders import job_order

CORES = 8
DAY = 86_400.0
#: Gap, run time, cores, user.
ROWS = st.lists(
    st.tuples(st.integers(0, 30_000), st.integers(0, 90_000), st.integers(1, CORES), st.integers(-1, 3)),
    min_size=1,
    max_size=25,
)
WEIGHTS = {"weight_age": 700.0, "weight_fairshare": 5000.0, "weight_job_size": 300.0, "weight_partition": 50.0}


def workload_of(rows: list[tuple[int, ...]]) -> hdsim.Workload:
    gaps, runtime, cores, user = zip(*rows, strict=True)
    return hdsim.Workload.from_columns(
        submission_time=np.cumsum(gaps),
        runtime=runtime,
        requested_cores=cores,
        user=user,
        group=np.array(user) % 2,
        partition=np.array(user) % 3,
    )


def priorities(cluster: Any, half_life: float, account: str, *, favor_small: bool) -> dict[int, float]:
    """Priorities of the queued jobs, from all that has ever run."""
    jobs, now = cluster.workload, cluster.now
    used: dict[int, float] = {}
    for job in range(len(jobs)):
        if jobs.submission_time[job] > now:
            continue
        owner, begin, end = int(getattr(jobs, account)[job]), cluster.starting_time[job], cluster.finish_time[job]
        used.setdefault(owner, 0.0)
        if begin <= now:
            end = min(now, end) if end == end else now
            if half_life:
                # The integral of 2^(-(now - t) / H) from begin to end.
                rate = math.log(2) / half_life
                seconds = (math.exp(-rate * (now - end)) - math.exp(-rate * (now - begin))) / rate
            else:
                seconds = end - begin
            used[owner] += jobs.requested_cores[job] * seconds
    total = sum(used.values())
    found = {}
    for job in cluster.queue:
        share = used[int(getattr(jobs, account)[job])] / total if total else 0.0
        size = jobs.requested_cores[job] / CORES
        found[job] = (
            WEIGHTS["weight_age"] * min((now - jobs.submission_time[job]) / DAY, 1)
            + WEIGHTS["weight_fairshare"] * 2 ** (-share / (1 / len(used)))
            + WEIGHTS["weight_job_size"] * (1 - size if favor_small else size)
            + WEIGHTS["weight_partition"] * {0: 0.0, 1: 1.0, 2: 0.5}.get(int(jobs.partition[job]), 0.0)
        )
    return found


class Checked(ClassicAgent):
    """Compares the priorities of every instant with the slow ones."""

    def __init__(self, **settings: Any) -> None:
        self.facts = settings["decay_half_life"], settings["account"], settings["favor_small"]
        settings |= {**WEIGHTS, "max_age": DAY, "partitions": {1: 10, 2: 5}}
        self.anew = job_order("multifactor", settings).score
        super().__init__(job_policy="multifactor", backfill="easy", multifactor=settings)
        self.compared = 0

    def decide(self, cluster: Any) -> None:
        queued = np.array(list(cluster.queue), np.int64)
        half_life, account, favor_small = self.facts
        expected = priorities(cluster, half_life, account, favor_small=favor_small)
        super().decide(cluster)
        if len(queued):
            # The state that the queue keeps, and the same from the whole history, both as of before the pass.
            kept = self.before(cluster, queued)
            assert -kept == pytest.approx([expected[job] for job in queued.tolist()], rel=1e-9)
            self.compared += 1

    def before(self, cluster: Any, queued: Any) -> Any:
        scores = self._queue._score(cluster.workload, queued, cluster)
        assert scores == pytest.approx(self.anew(cluster.workload, queued, cluster), rel=1e-9)
        return scores


@examples(40)
@given(
    rows=ROWS,
    half_life=st.sampled_from([0.0, 3600.0, 5 * DAY]),
    account=st.sampled_from(["user", "group"]),
    favor_small=st.booleans(),
)
def test_priorities_are_the_closed_form(rows: Any, half_life: float, account: str, favor_small: bool) -> None:
    platform = hdsim.Platform.homogeneous(nodes=CORES, cores_per_node=1)
    agent = Checked(decay_half_life=half_life, account=account, favor_small=favor_small)
    hdsim.simulate(platform, workload_of(rows), agent, check=True)
    assert agent.compared


def test_forks_carry_the_usage() -> None:
    rng = np.random.default_rng(4)
    rows = [tuple(map(int, rng.integers((0, 1, 1, 0), (2000, 9000, CORES + 1, 4)))) for _ in range(80)]
    workload, platform = workload_of(rows), hdsim.Platform.homogeneous(nodes=CORES, cores_per_node=1)
    whole = hdsim.simulate(platform, workload, "easy-multifactor")
    simulation = hdsim.Simulation(platform, workload, "easy-multifactor")
    simulation.run_until(30_000)
    fork = simulation.fork(runtimes="actual", arrivals="actual")
    np.testing.assert_array_equal(fork.run().starting_time, whole.starting_time)
    # An agent that takes over knows what was used before.
    other = hdsim.Simulation(platform, workload, "easy-multifactor")
    other.run_until(30_000)
    other = other.fork("easy-multifactor", runtimes="actual", arrivals="actual")
    np.testing.assert_array_equal(other.run().starting_time, whole.starting_time)


class Always(hdsim.Agent):
    """Carries out the first legal action."""

    def __init__(self, **settings: Any) -> None:
        self.problem = DecisionProblem(observation="jobs", **settings)

    def begin(self, cluster: Cluster) -> None:
        self.problem.begin(cluster)

    def decide(self, cluster: Cluster) -> None:
        while self.problem.pending():
            self.problem.act(int(self.problem.mask().argmax()))


@pytest.mark.parametrize(
    "problem",
    [
        {"action": "policy_pair", "pairs": ["multifactor-high_gflops"]},
        {"action": "node", "job_policy": "multifactor"},
        {"action": "accept", "job_policy": "multifactor"},
    ],
    ids=lambda problem: problem["action"],
)
def test_decisions_beside_the_order_follow_the_usage(problem: dict[str, Any]) -> None:
    rng = np.random.default_rng(4)
    workload = workload_of([tuple(map(int, rng.integers((0, 1, 1, 0), (2000, 9000, CORES + 1, 4)))) for _ in range(80)])
    platform = hdsim.Platform.homogeneous(nodes=CORES, cores_per_node=1)
    found = hdsim.simulate(platform, workload, Always(**problem), batch_events=False)
    expected = hdsim.simulate(platform, workload, "multifactor", batch_events=False)
    np.testing.assert_array_equal(found.starting_time, expected.starting_time)


def test_settings_that_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"agent.multifactor: expected one of weight_age, .*got 'weight_ag'"):
        ClassicAgent(job_policy="multifactor", multifactor={"weight_ag": 1})
    with pytest.raises(ConfigError, match=r"agent.multifactor.account: expected user or group, got 'queue'"):
        ClassicAgent(job_policy="multifactor", multifactor={"account": "queue"})
