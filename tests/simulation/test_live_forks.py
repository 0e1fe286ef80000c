"""Forks of clusters whose jobs another backend runs, against forks of the simulation of the same jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asynchronous import Asynchronous, Growing
from conftest import require_component
from test_forks import ACTUAL, CONFIGURATIONS, EQUAL, FAST_AND_SLOW, jobs, simulation
from tiers import nightly

import hdsim
from hdsim.agents.mcts import Mcts
from hdsim.agents.rollout import Rollout
from hdsim.cluster.requests import Amounts
from hdsim.cluster.state import Cluster, FinalState
from hdsim.errors import ConfigError
from hdsim.scheduling.agent import make_agent
from hdsim.simulation.setup import ReplaySetup


def as_if_elsewhere(original: hdsim.Simulation, **options: Any) -> hdsim.Simulation:
    """What another backend's run has in place of a simulation."""
    given = {"agent": "fcfs"}
    return hdsim.Simulation.elsewhere(
        original.platform, original.workload, original.setup, given, **{"kill_at_walltime": False, **options}
    )


def same_rest(fork: hdsim.Simulation, other: hdsim.Simulation) -> None:
    """Compares what becomes of two forks; dates differ by the roundings of other sums."""
    first, second = fork.run().jobs, other.run().jobs
    for key in ("job_id", "final_state", "allocated_resources"):
        assert list(first[key]) == list(second[key]), key
    for key in ("starting_time", "finish_time"):
        np.testing.assert_allclose(first[key], second[key], rtol=1e-9, atol=1e-6)


@pytest.mark.parametrize("steps", [20, 60])
@pytest.mark.parametrize("name", sorted({*CONFIGURATIONS} - {"failures", "checkpoints"}))
def test_a_fork_elsewhere_is_that_of_the_simulation(name: str, steps: int) -> None:
    kills, original = name == "one_by_one", simulation(name)
    for _ in range(steps):
        original.step()
    live, seconds = as_if_elsewhere(original, kill_at_walltime=kills), np.random.default_rng(steps).uniform(1, 300, 99)
    if kills:
        original._events = live._events
        original.env._batch_events = True
    assert len(original.cluster.running) > 1
    for agent, arrivals in (("fcfs", "none"), ("easy-sjf", original.workload[:9])):
        chosen: dict[str, Any] = {"runtimes": seconds.__getitem__, "arrivals": arrivals}
        same_rest(live.fork(agent, **chosen), original.fork(agent, **chosen))
    # A fork of a fork is that of a simulation.
    one, other = (each.fork("easy", runtimes=seconds.__getitem__) for each in (live, original))
    one.run_until(one.now + 30)
    other.run_until(other.now + 30)
    same_rest(one.fork("fcfs", **ACTUAL), other.fork("fcfs", **ACTUAL))


def test_requested_times_count_from_the_starts() -> None:
    original = hdsim.Simulation(FAST_AND_SLOW, jobs(1), "easy")
    original.run_until(700)
    same_rest(as_if_elsewhere(original).fork("sjf"), original.fork("sjf"))
    contended = hdsim.Simulation(FAST_AND_SLOW, jobs(1, memory_bandwidth=4.0), "easy", contention="threshold")
    contended.run_until(700)
    ends = as_if_elsewhere(contended).fork("sjf").run().finish_time
    running = list(contended.cluster.running)
    assert (ends[running] > 700).all()
    np.testing.assert_allclose(ends[running], contended.fork("sjf").run().finish_time[running], rtol=0.1)


class Looks(hdsim.Agent):
    """EASY, which looks at the cluster and at a fork of it at every pass."""

    def __init__(self, look: Callable[[Cluster, hdsim.Simulation], None]) -> None:
        self._agent, self._look, self.looks = make_agent("easy"), look, 0

    def begin(self, cluster: Cluster) -> None:
        self._agent.begin(cluster)

    def decide(self, cluster: Cluster) -> None:
        self._agent.decide(cluster)
        before = list(cluster.queue), dict(cluster.running), list(cluster.started), dict(cluster.starting)
        fork = cluster.fork("easy")
        self._look(cluster, fork)
        assert before == (list(cluster.queue), dict(cluster.running), list(cluster.started), dict(cluster.starting))
        self.looks += 1


def test_jobs_that_are_starting_run_since_the_request(tmp_path: Path) -> None:
    seen = []

    def look(cluster: Cluster, fork: hdsim.Simulation) -> None:
        starting = dict(cluster.starting)
        assert not fork.cluster.starting
        assert set(fork.cluster.running) == set(cluster.running)
        for job, asked in starting.items():
            assert fork.cluster.starting_time[job] == asked
            assert fork.cluster.state[job] == FinalState.RUNNING
        ends = fork.run().finish_time
        for job, asked in starting.items():
            due = asked + cluster.requested_time[job]
            assert ends[job] == (due if due > cluster.now else pytest.approx(cluster.now))
        # Nothing but the jobs that are known, all of which end.
        assert set(np.flatnonzero(ends >= cluster.now)) >= {*cluster.queue, *starting}
        seen.append(len(starting))

    agent, all_jobs = Looks(look), jobs(2, 40)
    Growing(seed=3, later=all_jobs.rows(10)).run(EQUAL, all_jobs[:10], agent, tmp_path, check=True)
    assert agent.looks > 60
    assert sum(number > 1 for number in seen) > 5


@pytest.mark.parametrize("agent", [Rollout, Mcts])
@pytest.mark.parametrize("kind", ["cores", *nightly("quantities", "memory")])
def test_searches_where_starts_are_confirmed_late_or_refused(kind: str, agent: type[Rollout], tmp_path: Path) -> None:
    all_jobs = jobs(4, 40, **({"memory": 100.0} if kind == "memory" else {}))
    platform = EQUAL.of_kind("quantities") if kind == "quantities" else EQUAL
    ends = []
    for attempt in "ab":
        searches = agent(["sjf", "fcfs"], scenarios=2, budget=8, arrivals=5, backfill="easy")
        backend = Growing(seed=3, later=all_jobs.rows(10))
        (tmp_path / attempt).mkdir()
        result, _ = backend.run(platform, all_jobs[:10], searches, tmp_path / attempt, seed=2, check=True)
        assert searches._counted == (kind != "quantities")
        assert result.metrics["jobs_completed"] == 40
        ends.append(result.finish_time.tolist())
    assert ends[0] == ends[1]


class Crowded(Asynchronous):
    """Nodes of which others take half of the first one; all jobs start at once."""

    def open(self, setup: ReplaySetup, directory: Path, stop: Sequence[int]) -> None:
        super().open(setup, directory, stop)
        setup.cluster.cores.occupy(0, Amounts(cpu=4.0, memory=0.0, storage=0.0, gpus=0.0, pods=1.0))


def test_a_job_that_never_fits_holds_no_other_job_up(tmp_path: Path) -> None:
    # The job of four whole nodes is first in the order of submission.
    columns = {"submission_time": [0] * 9, "runtime": [60, *[50] * 8], "requested_cores": [32, *range(9, 17)]}
    searches = Rollout(["fcfs", "sjf"], base="sjf", scenarios=2)
    backend = Crowded(refused=0.0, latency=1e-9)
    result, _ = backend.run(EQUAL.of_kind("quantities"), hdsim.Workload.from_columns(**columns), searches, tmp_path)
    assert np.isnan(result.starting_time[0])
    assert (result.starting_time[1:] < 500).all()


@pytest.mark.parametrize(
    ("platform", "options"),
    [
        ("equal", {"kill_at_walltime": True}),
        *nightly(("equal", {}), ("teaching", {}), ("teaching", {"contention": "threshold"})),
    ],
)
@pytest.mark.parametrize(("agent", "backfill"), [(Rollout, "none"), (Rollout, "easy"), (Mcts, "easy")])
@pytest.mark.ci
def test_searches_decide_behind_batsim_as_in_the_simulation(
    agent: type[Rollout], backfill: str, platform: str, options: dict[str, Any], tmp_path: Path
) -> None:
    require_component("pyzmq")
    from test_batsim_backend import assert_equal, replayed

    machine = EQUAL if platform == "equal" else hdsim.load_platform(platform)
    searched = []

    class Noted(agent):  # type: ignore[misc, valid-type]
        def _search(self, *decision: Any) -> int:
            searched.append(len(decision[-1]))
            return int(super()._search(*decision))

    count, gap = (60, 5) if backfill == "easy" else (30, 15)
    workload = jobs(5, count, submission_time=np.arange(count) * gap, memory_bandwidth=8.0)

    def made() -> Rollout:
        return Noted(["saf", "fcfs", "f1"], scenarios=2, budget=6, arrivals=4, backfill=backfill)

    expected = hdsim.simulate(machine, workload, made(), seed=1, **options)
    decisions = len(searched)
    found = replayed(machine, workload, made(), tmp_path, check=True, sockets=True, **options)
    assert_equal(found, expected)
    assert len(searched) == 2 * decisions > 10


@pytest.mark.parametrize("assumption", ["runtimes", "arrivals"])
def test_what_is_to_come_is_not_known(assumption: str) -> None:
    original = hdsim.Simulation(EQUAL, jobs(1), "easy")
    original.run_until(300)
    with pytest.raises(ConfigError, match=f"fork: {assumption}: expected other {assumption} than actual, which only"):
        as_if_elsewhere(original).fork("easy", **{assumption: "actual"})
