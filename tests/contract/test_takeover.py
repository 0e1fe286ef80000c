"""Agents that take over in the middle of a replay: what they see is what they would see had they watched it all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from decision_kinds import ACTIONS, OBSERVATIONS
from test_decisions import PLATFORM, workload
from test_quantities import PLATFORM as EIGHT_NODES
from test_quantities import workload as quantities_workload

import hdsim
from hdsim.cluster.state import Cluster
from hdsim.decisions import DecisionProblem
from hdsim.decisions.kinds import OBSERVATIONS as KINDS_OF_OBSERVATIONS
from hdsim.scheduling.agent import make_agent
from hdsim.simulation.windows import Window, windows
from hdsim.workload.generators.families import draw_workload

QUANTITIES = EIGHT_NODES.of_kind("quantities")
FAILURES = {"_target_": "hdsim.failures.Weibull", "mtbf": 800, "mttr": 50}
ACTIONS_ALONE: dict[str, dict[str, Any]] = {
    "policy_pair": {"pairs": ["first-high_gflops", "shortest-low_power", "multifactor-high_mem"]},
    "job": {"queue_size": 6, "commit": True, "backfill": "easy"},
    "node": {"skip_blocked": True, "void": True},
    "backfill": {"queue_size": 6},
    # Jobs start without a decision after two delays.
    "accept": {"job_policy": "sjf", "backfill": "easy", "max_delays": 2},
}
Seen = list[dict[str, Any]]


class Taker(hdsim.Agent):
    """Carries out random actions and keeps the observations and masks before them."""

    def __init__(self, action: str, observation: str) -> None:
        self.problem = DecisionProblem(action, observation, **ACTIONS_ALONE[action])
        self.core_policy = self.problem.core_policy
        self.seen: Seen = []

    def begin(self, cluster: Cluster) -> None:
        self.rng = np.random.default_rng(5)
        self.problem.begin(cluster)

    def decide(self, cluster: Cluster) -> None:
        while self.problem.pending():
            self.act(self.problem.observe())

    def act(self, seen: Any) -> None:
        mask = self.problem.mask().copy()
        self.seen.append({**(seen if isinstance(seen, dict) else {"": seen}), "mask": mask})
        self.problem.act(int(self.rng.choice(mask.nonzero()[0])))


class Watcher(Taker):
    """The same agent, which follows a base policy until a date; an observer watches from the beginning."""

    def __init__(self, action: str, observation: str, base: str, date: float) -> None:
        super().__init__(action, observation)
        self.base, self.date = make_agent(base), date
        self.watching = DecisionProblem(action, observation, **ACTIONS_ALONE[action])

    def begin(self, cluster: Cluster) -> None:
        self.taken = False
        self.base.begin(cluster)
        self.watching.begin(cluster)
        cluster.call_me_later(self.date)

    def decide(self, cluster: Cluster) -> None:
        observer, waiting, self.told = self.watching.observer, self.watching.wait_queue, 0
        waiting.on_instant()
        observer.on_instant()
        if cluster.now < self.date:
            self.base.decide(cluster)
        else:
            if not self.taken:
                self.taken = True
                super().begin(cluster)
                cluster.submitted[:] = cluster.queue
            while self.problem.pending():
                self.tell(cluster)
                for name in ("partial", "proposed", "delays"):
                    setattr(waiting, name, getattr(self.problem.wait_queue, name))
                seen = observer.observe()
                observer.before_action()
                self.act(seen)
        self.tell(cluster)
        observer.end_of_pass()

    def tell(self, cluster: Cluster) -> None:
        started = cluster.started[self.told :]
        self.told += len(started)
        for job in started:
            self.watching.wait_queue.remove(job)
        self.watching.observer.started(started)


def take_over(
    platform: hdsim.Platform, jobs: hdsim.Workload, action: str, observation: str, base: str, **options: Any
) -> tuple[hdsim.Simulation, Seen]:
    """A simulation at the moment of a takeover, and what is seen behind it."""
    # Between two events.
    date = float(jobs.submission_time[len(jobs) // 2]) + 0.3
    simulation = hdsim.Simulation(platform, jobs, base, seed=2, **options)
    simulation.run_until(date)
    agent, watcher = Taker(action, observation), Watcher(action, observation, base, date)
    result = simulation.fork(agent, runtimes="actual", arrivals="actual").run()
    expected = hdsim.simulate(platform, jobs, watcher, seed=2, **options)
    np.testing.assert_array_equal(result.starting_time, expected.starting_time)
    assert len(agent.seen) == len(watcher.seen) > 10
    for found, watched in zip(agent.seen, watcher.seen, strict=True):
        assert found.keys() == watched.keys()
        for name, array in found.items():
            np.testing.assert_array_equal(array, watched[name], err_msg=name)
    return simulation, agent.seen


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("observation", OBSERVATIONS)
def test_an_agent_that_takes_over_sees_what_a_watcher_sees(action: str, observation: str) -> None:
    simulation, _ = take_over(PLATFORM, workload(4, 50), action, observation, "easy")
    cluster = simulation.cluster
    assert cluster.running and cluster.queue
    assert (cluster.cores.free_bandwidth < 0).any()


@pytest.mark.parametrize("observation", ["normal", "minimal", "jobs_shadow", "graph"])
@pytest.mark.parametrize("options", [{"batch_events": False}, {"failures": FAILURES}], ids=["one_by_one", "failures"])
def test_so_it_does_with_other_events(observation: str, options: dict[str, Any]) -> None:
    # Jobs come together and have equal times, so that ends and renewals of scales coincide.
    jobs = workload(6, 80)
    jobs = jobs.replaced(
        submission_time=jobs.submission_time // 60 * 60, requested_time=jobs.requested_time // 100 * 100 + 100
    )
    simulation, _ = take_over(PLATFORM, jobs, "policy_pair", observation, "sjf", **options)
    assert ("failures" not in options) == (not simulation.cluster.allocations.closed)


@pytest.mark.parametrize(
    "observation", [name for name in OBSERVATIONS if not KINDS_OF_OBSERVATIONS.classes()[name].needs_core_ids]
)
def test_so_it_does_on_quantities(observation: str) -> None:
    jobs = quantities_workload(6, 80, QUANTITIES)
    if observation != "small":
        take_over(QUANTITIES, jobs, "node", observation, "greedy")


AGENTS: list[Any] = [
    *("learned", "easy++", "conservative-multifactor", "greedy", "rlscheduler-f1"),
    {"_target_": "hdsim.agents.rollout.Rollout", "scenarios": 2, "budget": 4},
    {"_target_": "hdsim.agents.mcts.Mcts", "scenarios": 2, "budget": 4},
    {"_target_": "hdsim.agents.portfolio.Portfolio", "period": 16, "margin": 0},
]


@pytest.fixture(scope="module")
def window() -> Window:
    (made,) = windows(draw_workload("home", 1, 120), 1, 40, warmup=80)
    return made


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent if isinstance(agent, str) else agent["_target_"][13:])
def test_every_agent_completes_a_window_with_a_warm_up(agent: Any, window: Window) -> None:
    start, finish = window.starts(agent)
    assert (start > window.begin).all() and (finish > start).all()


@pytest.mark.requires("torch")
def test_a_trained_agent_completes_a_window_with_a_warm_up(window: Window) -> None:
    agent = {"_target_": "hdsim.agents.evolution.EvolutionAgent", "checkpoint": "rlscheduler_backfill-1"}
    start, _ = window.starts(agent, batch_events=False)
    assert (start > window.begin).all()
