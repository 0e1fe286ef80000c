"""Monte Carlo tree search: the choice of a head is looked at together with those of the heads behind it."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from hdsim.agents.rollout import Floats, Ints, Rollout
from hdsim.errors import ConfigError
from hdsim.scheduling.search.tree_search import Tree, back_up, descend, make_tree, most_visited, search

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster
    from hdsim.scheduling.search.scenarios import Future

#: Play-outs between two looks at the clock.
_AT_ONCE = 16


class Mcts(Rollout):
    """Serves that head, of the heads of several orders, which a tree of play-outs visits most.

    The choices at the root are heads; behind it they are orders, each of which chooses heads until one that it chose
    has started. The base order follows the last choice. Play-outs are relative to that of the first head in the same
    scenario.

    Args:
        candidates: Orders whose heads are candidates, and the choices behind the root.
        depth: Most choices of a path.
        exploration: Weight of the confidence bound, on the scale of relative costs.
        scenarios: Scenarios of a decision, which the play-outs meet in turn.
        budget: Play-outs of a decision, but at least one of each candidate.
        budget_ms: Milliseconds of an instant after which the search ends, null for no limit. Results then depend on the
            machine.
        base, backfill, core_policy, arrivals, runtimes, objective, commit_head: See
            :class:`hdsim.agents.rollout.Rollout`.

    Raises:
        ConfigError: A name is unknown or a number is too small.
    """

    def __init__(
        self,
        candidates: Sequence[str] = ("saf", "f1", "f2", "sjf", "fcfs"),
        depth: int = 3,
        exploration: float = 0.1,
        scenarios: int = 64,
        budget: int = 256,
        budget_ms: float | None = None,
        base: str | None = None,
        backfill: str = "easy",
        core_policy: str = "high_gflops",
        arrivals: int | None = None,
        runtimes: str = "past",
        objective: str = "mean_bounded_slowdown",
        commit_head: bool | None = None,
    ) -> None:
        super().__init__(
            candidates,
            base,
            backfill,
            core_policy,
            scenarios,
            arrivals,
            runtimes,
            objective,
            budget,
            budget_ms,
            commit_head,
        )
        if depth != int(depth) or depth < 1:
            raise ConfigError(f"mcts: expected an integer of at least 1, got {depth}", where="agent.depth")
        if not exploration >= 0:
            raise ConfigError(f"mcts: expected a number of at least 0, got {exploration}", where="agent.exploration")
        self._depth, self._exploration = depth, float(exploration)

    def _search(self, cluster: Cluster, queued: Ints, heads: Ints) -> int:
        budget = max(self._budget, len(heads))
        future = self._drawn(cluster, queued, min(self._scenarios, budget))
        tree = make_tree(budget, max(len(heads), len(self._orders)))
        usual, path = np.full(len(future.remaining), np.nan), np.zeros(self._depth, np.int64)
        at_once = budget if self._seconds == math.inf else _AT_ONCE
        while (played := int(tree.visits[0])) < len(heads) or (played < budget and time.perf_counter() < self._until):
            number = min(budget - played, at_once)
            self._grow(self._compiles, cluster, queued, heads, future, tree, usual, path, number)
        return int(most_visited(tree))

    def _grow(
        self,
        compiled: bool,
        cluster: Cluster,
        queued: Ints,
        heads: Ints,
        future: Future,
        tree: Tree,
        usual: Floats,
        path: Ints,
        number: int,
    ) -> None:
        """Adds play-outs to a tree, in compiled code or on forks.

        See :func:`hdsim.scheduling.search.tree_search.search`.
        """
        if compiled:
            assert self.rules is not None
            coming = self._keys(cluster, future, [*self._orders, self.rules.order], slice(None))
            search(
                self._objective,
                self._situation(cluster),
                heads,
                self._decision,
                self._scores(cluster),
                future,
                coming,
                tree,
                usual,
                path,
                self._exploration,
                number,
            )
            return
        for _ in range(number):
            scenario = int(tree.visits[0]) % len(usual)
            if math.isnan(usual[scenario]):
                usual[scenario] = self._on_fork(cluster, queued, int(heads[0]), (), future, scenario)
            length = descend(tree, len(heads), len(self._orders), self._exploration, path)
            plan = [self._orders[choice] for choice in path[1:length]]
            cost = self._on_fork(cluster, queued, int(heads[path[0]]), plan, future, scenario)
            back_up(tree, path, length, cost / usual[scenario] if usual[scenario] > 0 else 1.0)

    @property
    def _compiles(self) -> bool:
        return super()._compiles and self._present is None and not any(order.dynamic for order in self._orders)
