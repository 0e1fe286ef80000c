"""Tree search: trees with known costs, play-outs in compiled code against forks, refusals."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st
from test_rollout import SIXTEEN, jobs
from tiers import examples

import hdsim
from hdsim.agents.mcts import Mcts
from hdsim.cluster.state import Cluster
from hdsim.errors import ConfigError
from hdsim.scheduling.search.tree_search import back_up, descend, make_tree, most_visited


@examples(20)
@given(seed=st.integers(0, 10**6), first=st.integers(1, 4), later=st.integers(1, 3), depth=st.integers(1, 3))
def test_the_search_finds_the_least_cost_of_a_tree(seed: int, first: int, later: int, depth: int) -> None:
    shape = (first, *[later] * (depth - 1))
    costs = np.random.default_rng(seed).permutation(int(np.prod(shape))).reshape(shape) / np.prod(shape)
    costs.flat[costs.argmin()] = -1.0
    tree, path, played = make_tree(2_000, max(first, later)), np.zeros(depth, np.int64), 0
    for _ in range(2_000):
        length = descend(tree, first, later, 1.5, path)
        assert 1 <= length <= depth
        # Behind the last choice the first one is taken.
        back_up(tree, path, length, costs[tuple(path[:length]) + (0,) * (depth - length)])
        played += 1
    assert tree.visits[0] == played == tree.visits[tree.child[0][tree.child[0] >= 0]].sum()
    assert most_visited(tree) == np.unravel_index(costs.argmin(), shape)[0]
    for node in range(1, int(tree.size[0])):
        behind = tree.child[node][tree.child[node] >= 0]
        assert tree.visits[behind].sum() in (tree.visits[node] - 1, 0)


class Both(Mcts):
    """Searches in both ways."""

    decisions = 0

    def _search(self, cluster: Cluster, queued: Any, heads: Any) -> int:
        assert self._compiles
        budget, future = 24, self._drawn(cluster, queued, 4)
        trees = []
        for compiled in (True, False):
            tree, usual, path = make_tree(budget, 8), np.full(4, np.nan), np.zeros(3, np.int64)
            self._grow(compiled, cluster, queued, heads, future, tree, usual, path, budget)
            trees.append((*tree, usual))
        for one, other in zip(*trees, strict=True):
            np.testing.assert_array_equal(one, other)
        self.decisions += 1
        return int(most_visited(tree))


@examples(4, 6, phases=[Phase.explicit, Phase.generate])
@given(
    seed=st.integers(0, 10**6),
    rule=st.sampled_from([("none", True), ("none", False), ("easy", True), ("easy", False), ("rlscheduler", True)]),
    batch=st.booleans(),
)
@pytest.mark.ci
def test_compiled_searches_are_those_on_forks(seed: int, rule: tuple[str, bool], batch: bool) -> None:
    agent = Both(arrivals=6, backfill=rule[0], commit_head=rule[1], candidates=["saf", "f1", "fcfs", "ljf"])
    result = hdsim.simulate(SIXTEEN, jobs(seed, 24, 700), agent, batch_events=batch, seed=seed, check=True)
    assert result.metrics["jobs_completed"] == 24
    assert agent.decisions


@pytest.mark.ci
def test_equal_seeds_give_equal_schedules() -> None:
    starts = {}
    for name, seed in itertools.product(("a", "b"), (1, 2)):
        agent = {"_target_": "hdsim.agents.mcts.Mcts", "budget": 40, "scenarios": 8, "backfill": "easy"}
        starts[name, seed] = hdsim.simulate(SIXTEEN, jobs(3, 80), agent, seed=seed).jobs["starting_time"].tolist()
    assert starts["a", 1] == starts["b", 1]
    assert starts["a", 2] == starts["b", 2]


def test_contention_and_dynamic_orders(hdsim) -> None:
    done = hdsim(
        "run",
        "platform=teaching",
        "workload.jobs=25",
        "contention=threshold",
        "agent=mcts",
        "agent.backfill=easy",
        "agent.candidates=[saf,wfp3]",
        "agent.budget=4",
        "agent.arrivals=3",
    )
    assert done.returncode == 0, done.stderr
    assert "jobs_completed" in done.stdout


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"depth": 0}, "agent.depth: mcts: expected an integer of at least 1, got 0"),
        ({"exploration": -1}, "agent.exploration: mcts: expected a number of at least 0, got -1"),
        ({"budget": 0}, "agent.budget"),
        ({"backfill": "conservative"}, "agent.backfill"),
    ],
)
def test_mistakes(setting: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Mcts(**setting)
