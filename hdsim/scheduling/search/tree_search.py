"""Trees of choices for Monte Carlo tree search with upper confidence bounds (UCT, Kocsis and Szepesvari 2006).

The tree is open-loop: a node is a sequence of choices, whatever jobs arrive meanwhile. Costs are to be small.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from hdsim.kernels.compiling import kernel
from hdsim.scheduling.search.play_outs import (
    NO_KEYS,
    NO_PLAN,
    Decision,
    Floats,
    Ints,
    Situation,
    Table,
    make_scenario,
    make_space,
    mean_cost,
    play_out,
    set_scenario,
)
from hdsim.scheduling.search.scenarios import Future


class Tree(NamedTuple):
    """Nodes of a tree; node 0 is the root.

    Attributes:
        child: (M, A) node behind each choice, -1 for none.
        visits: (M,) play-outs through each node.
        total: (M,) sum of their costs.
        size: (1,) number of nodes.
    """

    child: Ints
    visits: Ints
    total: Floats
    size: Ints


def make_tree(play_outs: int, choices: int) -> Tree:
    """Returns a tree with the root alone, and space for a node of each play-out."""
    nodes = play_outs + 1
    return Tree(np.full((nodes, choices), -1), np.zeros(nodes, np.int64), np.zeros(nodes), np.array([1]))


@kernel
def descend(tree: Tree, first: int, later: int, exploration: float, path: Ints) -> int:
    """Chooses a path from the root, and adds its last node.

    Args:
        tree: The tree.
        first: Number of choices at the root.
        later: Number of choices at other nodes.
        exploration: Weight of the confidence bound.
        path: (D,) takes the choices.

    Returns:
        Number of choices, at most D.
    """
    node = 0
    for depth in range(len(path)):
        chosen, least = -1, math.inf
        for choice in range(later if depth else first):
            child = tree.child[node, choice]
            if child < 0:
                chosen = choice
                break
            visits = tree.visits[child]
            bound = tree.total[child] / visits - exploration * math.sqrt(math.log(tree.visits[node]) / visits)
            if bound < least:
                chosen, least = choice, bound
        path[depth] = chosen
        child = tree.child[node, chosen]
        if child < 0:
            tree.child[node, chosen] = tree.size[0]
            tree.size[0] += 1
            return depth + 1
        node = child
    return len(path)


@kernel
def back_up(tree: Tree, path: Ints, length: int, cost: float) -> None:
    """Adds the cost of a play-out to the nodes of its path."""
    node = 0
    tree.visits[0] += 1
    tree.total[0] += cost
    for depth in range(length):
        node = tree.child[node, path[depth]]
        tree.visits[node] += 1
        tree.total[node] += cost


@kernel
def most_visited(tree: Tree) -> int:
    """Returns the choice at the root with the most play-outs, of equal ones that with the least mean cost."""
    best = 0
    for choice in range(tree.child.shape[1]):
        child, found = tree.child[0, choice], tree.child[0, best]
        if child < 0:
            continue
        visits, most = tree.visits[child], tree.visits[found]
        if visits > most or (visits == most and tree.total[child] < tree.total[found]):
            best = choice
    return best


@kernel
def search(
    objective: int,
    situation: Situation,
    heads: Ints,
    decision: Decision,
    scores: Table,
    future: Future,
    coming: Floats,
    tree: Tree,
    usual: Floats,
    path: Ints,
    exploration: float,
    play_outs: int,
) -> None:
    """Adds play-outs to a tree whose choices are heads at the root and orders of the next heads behind it.

    The cost of a play-out is relative to that of the first head with an empty plan in the same scenario.

    Args:
        objective: See :func:`hdsim.scheduling.search.play_outs.mean_cost`.
        situation: The present.
        heads: (C,) heads, places among the queued jobs.
        decision: The jobs.
        scores: (O + 1, J) scores of all jobs in each order, the last of which is that of the queue.
        future: S scenarios.
        coming: (O + 1, S, A) scores of their arrivals.
        tree: The tree.
        usual: (S,) costs of the first head, NaN where it has not been played out.
        path: (D,) space for choices.
        exploration: See :func:`descend`.
        play_outs: Play-outs to add.
    """
    jobs = make_scenario(decision, coming.shape[2])
    running, known, orders = jobs.running, jobs.running + jobs.queued, len(coming) - 1
    space, keys = make_space(jobs, situation), np.empty((orders, len(jobs.size)))
    for order in range(orders):
        for place in range(jobs.queued):
            keys[order, running + place] = scores[order, decision.queued[place]]
    for _ in range(play_outs):
        scenario = tree.visits[0] % len(usual)
        set_scenario(jobs, decision, future, scenario, situation.now)
        jobs.key[known:] = coming[orders, scenario]
        keys[:, known:] = coming[:orders, scenario]
        if math.isnan(usual[scenario]):
            play_out(situation, running + heads[0], NO_PLAN, NO_KEYS, jobs, space, True)
            usual[scenario] = mean_cost(objective, jobs.submission, jobs.start, jobs.finish)
        length = descend(tree, len(heads), orders, exploration, path)
        play_out(situation, running + heads[path[0]], path[1:length], keys, jobs, space, True)
        cost = mean_cost(objective, jobs.submission, jobs.start, jobs.finish)
        back_up(tree, path, length, cost / usual[scenario] if usual[scenario] > 0 else 1.0)
