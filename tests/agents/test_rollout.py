"""Search on forks: play-outs in compiled code against forks, what is known, budgets, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, example, given
from hypothesis import strategies as st
from tiers import examples, nightly

import hdsim
from hdsim.agents.rollout import Future, Rollout
from hdsim.cluster.state import Cluster
from hdsim.errors import ConfigError
from hdsim.scheduling.search.play_outs import behind
from hdsim.scheduling.search.scenarios import draw_runtimes

SIXTEEN = hdsim.Platform.homogeneous(nodes=2, cores_per_node=8)


def jobs(seed: int, number: int = 60, span: int = 3000) -> hdsim.Workload:
    """Jobs with estimates that are too long, exact or, for every fifth job, too short."""
    rng = np.random.default_rng(seed)
    runtime = rng.integers(1, 300, number)
    return hdsim.Workload.from_columns(
        submission_time=np.sort(rng.integers(0, span, number)),
        runtime=runtime,
        requested_time=np.where(rng.random(number) < 0.2, runtime // 2 + 1, runtime + rng.integers(0, 200, number)),
        requested_cores=rng.integers(1, 17, number),
    )


def alike(seed: int, number: int, span: int) -> hdsim.Workload:
    """Jobs of two users, with one of two widths and requested times, who have many like ones."""
    rng, plain = np.random.default_rng(seed), jobs(seed, number, span)
    return plain.replaced(
        user=rng.integers(2, size=number),
        requested_cores=rng.choice([3, 8], number),
        requested_time=rng.choice([200.0, 400.0], number),
    )


class Both(Rollout):
    """Plays every decision out in both ways."""

    decisions, forks = 0, False

    @property
    def _compiles(self) -> bool:
        assert self._counted
        return not self.forks and super()._compiles

    def _distinct(self, *decision: Any) -> Any:
        compiled = super()._distinct(*decision)
        self.forks = True
        np.testing.assert_array_equal(compiled, super()._distinct(*decision))
        self.forks = False
        return compiled

    def _player(self, cluster: Cluster, queued: Any, future: Any) -> Any:
        compiled = super()._player(cluster, queued, future)
        self.forks = True
        on_forks = super()._player(cluster, queued, future)
        self.forks = False

        def play(heads: Any, which: range) -> Any:
            costs = compiled(heads, which)
            np.testing.assert_array_equal(costs, on_forks(heads, which))
            self.decisions += 1
            return costs

        return play


#: A base order that is a network; in forks its recent past ends with the arrivals, too.
NETWORK: dict[str, Any] = {"seed": 5, "objective": "mean_bounded_slowdown", "runtimes": "past", "base": "learned"}


@examples(4, 6, phases=[Phase.explicit, Phase.generate])
@example(rule=("none", True), batch=False, trace=jobs, **NETWORK)
@example(rule=("easy", False), batch=True, trace=jobs, **NETWORK)
@example(rule=("easy", False), batch=True, trace=alike, **NETWORK)
@example(rule=("none", True), batch=True, trace=alike, **NETWORK)
@example(rule=("rlscheduler", True), batch=False, trace=jobs, **NETWORK)
@given(
    seed=st.integers(0, 10**6),
    rule=st.sampled_from([("none", True), ("none", False), ("easy", True), ("easy", False), ("rlscheduler", True)]),
    batch=st.booleans(),
    objective=st.sampled_from(["mean_bounded_slowdown", "mean_waiting_time", "mean_turnaround_time"]),
    runtimes=st.sampled_from(["past", "requested"]),
    base=st.sampled_from(["saf", "f1", "fcfs"]),
    trace=st.sampled_from([jobs, alike]),
)
@pytest.mark.ci
def test_compiled_play_outs_are_those_of_forks(
    seed: int, rule: tuple[str, bool], batch: bool, trace: Any, **options: Any
) -> None:
    # Like jobs often end when another arrives; one pass for each event then depends on which comes first.
    batch = batch or trace is alike
    agent = Both(scenarios=2, arrivals=6, backfill=rule[0], commit_head=rule[1], **options)
    result = hdsim.simulate(SIXTEEN, trace(seed, 30, 1100), agent, batch_events=batch, seed=seed, check=True)
    assert result.metrics["jobs_completed"] == 30
    assert agent.decisions


@pytest.mark.parametrize("compiled", [True, False])
def test_costs_of_a_decision_in_closed_form(compiled: bool) -> None:
    # At 10 s a job of 16 cores has 30 s left; then a job of 100 s and one of 20 s are served one after the other.
    workload = hdsim.Workload.from_columns(
        submission_time=[0, 4, 10], runtime=[40, 100, 20], requested_cores=[16, 16, 16]
    )
    found = []

    class Noted(Rollout):
        def _search(self, cluster: Cluster, queued: Any, heads: Any) -> Any:
            none = np.empty((1, 0))
            future = Future(np.array([[30.0, 100.0, 20.0]]), none.astype(np.int64), none, none)
            found.append(self._player(cluster, queued, future)(np.array([0, 1]), range(1)).tolist())
            return super()._search(cluster, queued, heads)

        @property
        def _compiles(self) -> bool:
            return compiled

    class Waiting(Noted):
        """Decides while the first job runs."""

        def _next(self, cluster: Cluster) -> int | None:
            return super()._next(cluster) if cluster.now >= 10 or not cluster.running else None

    settings: Any = {"backfill": "none", "commit_head": True, "objective": "mean_turnaround_time", "scenarios": 1}
    agent = Waiting(["fcfs", "sjf"], **settings)
    simulation = hdsim.Simulation(SIXTEEN, workload, agent)
    result = simulation.run()
    long_first, short_first = (40 + (140 - 4) + (160 - 10)) / 3, (40 + (60 - 10) + (160 - 4)) / 3
    assert found[0] == [[long_first], [short_first]]
    assert result.jobs["starting_time"].tolist() == [0, 60, 40]


def test_same_seed_same_schedule() -> None:
    settings: Any = {"scenarios": 1, "arrivals": 20, "cautious": False}
    first, again, other = (
        hdsim.simulate(SIXTEEN, jobs(1, 200), Rollout(**settings), seed=seed).jobs["starting_time"]
        for seed in (5, 5, 6)
    )
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


@pytest.mark.parametrize(
    ("backfill", "base"), [("none", "f1"), ("easy", "f1"), ("rlscheduler", "f2"), *nightly(("none", "learned"))]
)
def test_nothing_of_the_future_is_known(backfill: str, base: str) -> None:
    whole, agent = jobs(2, 120), {"_target_": "hdsim.agents.rollout.Rollout", "backfill": backfill, "scenarios": 4}
    agent["base"] = base
    date = float(whole.submission_time[80])
    before = hdsim.simulate(SIXTEEN, whole, agent).jobs
    changed = np.arange(120) >= 80
    # Later jobs are others, and jobs that run at the date end at another time.
    ended = before["finish_time"] <= date
    other = whole.replaced(
        runtime=np.where(ended, whole.runtime, whole.runtime + 1000),
        requested_time=np.where(changed, 7.0, whole.requested_time),
        requested_cores=np.where(changed, 3, whole.requested_cores),
    )
    after = hdsim.simulate(SIXTEEN, other, agent).jobs
    early = before["starting_time"] < date
    assert early.sum() > 20
    np.testing.assert_array_equal(before["starting_time"][early], after["starting_time"][early])


@pytest.mark.parametrize(
    ("platform", "workload", "options"),
    [
        ("teaching", "even_1000", {"contention": "threshold"}),
        (hdsim.Platform.homogeneous(nodes=2, cores_per_node=8).of_kind("quantities"), jobs(3, 30), {}),
        ("teaching", "even_1000", {"failures": {"_target_": "hdsim.failures.Weibull", "mtbf": 20000, "mttr": 100}}),
        (SIXTEEN, jobs(3, 30), {"kill_at_walltime": True}),
    ],
    ids=["contention", "quantities", "failures", "walltime"],
)
def test_forks_serve_everything_else(platform: Any, workload: Any, options: dict[str, Any]) -> None:
    if isinstance(platform, str):
        platform = hdsim.load_platform(platform)
        workload = hdsim.load_workload(workload, platform=platform, arrival_factor=0.05, jobs=30)
    agent = Rollout(["sjf", "fcfs"], base="sjf", scenarios=2, arrivals=5)
    result = hdsim.simulate(platform, workload, agent, check=True, **options)
    assert not agent._counted
    assert result.metrics["jobs_completed"] + result.metrics["jobs_killed"] == 30


class Counted(Rollout):
    """Counts the play-outs of every decision."""

    def begin(self, cluster: Cluster) -> None:
        super().begin(cluster)
        self.played: list[list[tuple[int, int]]] = []

    def _search(self, cluster: Cluster, queued: Any, heads: Any) -> int:
        self.played.append([])
        return super()._search(cluster, queued, heads)

    def _player(self, *decision: Any) -> Any:
        play = super()._player(*decision)

        def counted(heads: Any, which: range) -> Any:
            self.played[-1].append((len(heads), len(which)))
            return play(heads, which)

        return counted


def test_the_first_candidate_is_followed_unless_it_has_dropped_out() -> None:
    """With two scenarios none drops out."""
    followed, best = (
        hdsim.simulate(SIXTEEN, jobs(1, 60), Rollout(["lcfs", "sjf"], scenarios=2, cautious=cautious))
        for cautious in (True, False)
    )
    lcfs = hdsim.simulate(SIXTEEN, jobs(1, 60), {"job_policy": "lcfs", "backfill": "easy", "backfill_order": "f1"})
    np.testing.assert_array_equal(followed.starting_time, lcfs.starting_time)
    assert (best.starting_time != lcfs.starting_time).any()
    assert Rollout()._cautious and not Rollout(["sjf"])._cautious and not Rollout(commit_head=True)._cautious


@pytest.mark.ci
def test_an_agent_that_takes_over_knows_the_past() -> None:
    workload = jobs(6, 80)
    simulation = hdsim.Simulation(SIXTEEN, workload, "fcfs")
    simulation.run_until(1500)
    agent, whole = Rollout(scenarios=1, arrivals=5), Rollout(scenarios=1, arrivals=5)
    simulation.fork(agent, runtimes="actual", arrivals="actual").run_until(1500)
    fresh = hdsim.Simulation(SIXTEEN, workload, "fcfs")
    whole.begin(fresh.cluster)
    assert not len(whole.past.seen.jobs)
    seen = agent.past.seen
    assert seen.jobs.tolist() == np.flatnonzero(workload.submission_time <= 1500).tolist()
    result = simulation.run().jobs
    ended = result["finish_time"] <= 1500
    assert ended.sum() > 5
    taken = result["finish_time"] - result["starting_time"]
    np.testing.assert_allclose(seen.factor_of[ended], (taken / workload.requested_time)[ended])
    assert np.isnan(seen.factor_of[~ended]).all()
    order = np.lexsort((np.arange(80)[ended], workload.requested_time[ended]))
    np.testing.assert_array_equal(seen.requested, workload.requested_time[ended][order])
    np.testing.assert_allclose(np.sort(seen.factor), np.sort((taken / workload.requested_time)[ended]))


def test_run_times_are_those_of_jobs_with_requested_times_alike() -> None:
    # Short requests are half used, long ones to a tenth or a fifth.
    ended = np.array([[100.0] * 80 + [1000.0] * 100, [0.5] * 80 + [0.1, 0.2] * 50])
    uniform, requested = np.random.default_rng(0).random((400, 5)), np.array([100.0, 1000.0, 1000.0, 100.0, 1000.0])
    drawn = draw_runtimes(uniform, requested, np.array([0.0, 0.0, 150.0, 60.0, 0.0]), *ended)
    ticks = np.ceil(np.array([100.0, 200.0]) * 1024) / 1024
    np.testing.assert_array_equal(drawn[:, [0, 2, 3]], np.broadcast_to([50.0, 200.0, 100.0], (400, 3)))
    assert set(drawn[:, 1]) <= set(ticks.tolist()) | {100.0, 200.0}
    assert 0.4 < (drawn[:, 1] == 200).mean() < 0.6


def test_arrivals_are_earlier_jobs_with_their_run_times() -> None:
    workload, seen = jobs(7, 80, 2000), []

    class Noted(Rollout):
        def _drawn(self, cluster: Cluster, queued: Any, number: int) -> Future:
            future = super()._drawn(cluster, queued, number)
            start, finish = np.array(cluster.starting_time, float), np.array(cluster.finish_time, float)
            ended = np.isfinite(finish[future.drawn]) & (finish[future.drawn] <= cluster.now)
            lasted = (finish - start)[future.drawn]
            np.testing.assert_allclose(future.runtime[ended], lasted[ended], atol=1e-3)
            assert (workload.submission_time[future.drawn] <= cluster.now).all()
            gaps = np.diff(future.offset, axis=1)
            earlier = np.diff(workload.submission_time, prepend=0)[future.drawn[:, 1:]]
            np.testing.assert_allclose(gaps[gaps > 0.01], earlier[gaps > 0.01], atol=1e-3)
            # Jobs that wait or run last as long as in the queue of the scenario.
            present = [*cluster.running, *queued.tolist()]
            worked = [cluster.now - cluster.starting_time[job] for job in cluster.running] + [0] * len(queued)
            for scenario, place in zip(*np.nonzero(np.isin(future.drawn, present)), strict=True):
                where = present.index(future.drawn[scenario, place])
                whole = future.remaining[scenario, where] + worked[where]
                assert abs(future.runtime[scenario, place] - whole) <= 2e-3
            seen.append(int(ended.sum()))
            return future

    hdsim.simulate(SIXTEEN, workload, Noted(scenarios=2, arrivals=10))
    assert sum(seen) > 100


def test_heads_of_a_network_are_played_out_in_compiled_code() -> None:
    agent = Counted(["learned", "fcfs"], scenarios=1, arrivals=2)
    result = hdsim.simulate(SIXTEEN, jobs(8, 40), agent)
    assert agent._compiles
    assert agent.played
    assert result.metrics["jobs_completed"] == 40


def test_budgets() -> None:
    def played(**options: Any) -> list[list[tuple[int, int]]]:
        agent = Counted(arrivals=5, **options)
        hdsim.simulate(SIXTEEN, jobs(4, 150), agent)
        assert agent.played
        return agent.played

    # At least one play-out of each candidate, then as many as the budget has.
    assert all(len(rounds) == 1 and rounds[0][1] == 1 for rounds in played(budget=1))
    for budget in (12, 50, 200):
        rounds = played(budget=budget, scenarios=100)
        assert max(sum(heads * scenarios for heads, scenarios in each) for each in rounds) <= budget
    assert all(each[-1][1] == 1 and len(each) == 1 for each in played(budget_ms=1e-6))
    rounds = played(scenarios=40, budget=10**6)
    # Rounds double what has been played; candidates that are clearly worse drop out in between.
    assert {tuple(number for _, number in each) for each in rounds} <= {(8,), (8, 8), (8, 8, 16), (8, 8, 16, 8)}
    assert any(each[0][0] > each[-1][0] for each in rounds)


def test_a_candidate_that_is_clearly_worse_is_dropped() -> None:
    rng = np.random.default_rng(0)
    common, noise = rng.normal(size=8) * 100, rng.normal(size=(3, 8))
    np.testing.assert_array_equal(behind(common + noise + np.array([[5.0], [0.0], [0.2]])), [True, False, False])
    np.testing.assert_array_equal(behind(np.ones((2, 8))), [False, False])


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("backfill", ["none", "easy"])
def test_candidates_that_start_the_same_jobs_are_one(compiled: bool, backfill: str) -> None:
    # At 10 s four cores are idle and the heads of both orders need more: nothing starts behind either of them.
    workload = hdsim.Workload.from_columns(
        submission_time=[0, 4, 10, 40], runtime=[40, 100, 20, 5], requested_cores=[12, 16, 8, 1]
    )
    kept = {}

    class Noted(Rollout):
        @property
        def _compiles(self) -> bool:
            return compiled

        def _distinct(self, cluster: Cluster, queued: Any, heads: Any) -> Any:
            kept[cluster.now] = super()._distinct(cluster, queued, heads).tolist()
            return super()._distinct(cluster, queued, heads)

        def _next(self, cluster: Cluster) -> int | None:
            return super()._next(cluster) if cluster.now >= 10 or not cluster.running else None

    commit = backfill == "none"
    hdsim.simulate(
        SIXTEEN, workload, Noted(["fcfs", "sjf"], backfill=backfill, commit_head=commit, scenarios=2, arrivals=0)
    )
    # A head that stays the head is a decision of its own.
    assert kept[10] == ([0, 1] if backfill == "none" else [0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"backfill": "conservative"},
            "agent.backfill: rollout: expected one of none, easy, rlscheduler, got 'conserv",
        ),
        ({"objective": "makespan"}, "agent.objective: rollout: expected one of mean_bounded_slowdown, mean_waiting"),
        ({"runtimes": "actual"}, "agent.runtimes: rollout: expected one of past, requested"),
        ({"candidates": ["saf", "nearest"]}, "agent.job_policy: expected one of"),
        ({"candidates": []}, "agent.candidates: rollout: expected a list of orders"),
        ({"candidates": "saf"}, "agent.candidates: rollout: expected a list of orders"),
        ({"scenarios": 0}, "agent.scenarios: rollout: expected an integer of at least 1, got 0"),
        ({"budget": 0.5}, "agent.budget: rollout: expected an integer of at least 1, got 0.5"),
        ({"backfill": "rlscheduler", "commit_head": False}, "agent.commit_head: rollout: expected true or null with"),
        ({"budget_ms": 0}, "agent.budget_ms: rollout: expected milliseconds above 0 or null, got 0"),
    ],
)
def test_settings_that_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        Rollout(**arguments)
    assert message in str(error.value)


def test_simulations_without_forks_are_refused() -> None:
    agent = Rollout()
    with pytest.raises(ConfigError, match=r"rollout: expected a cluster that has forks: .*or of a run on a backend"):
        agent.begin(Cluster(SIXTEEN, jobs(5)))
