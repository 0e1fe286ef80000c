"""Evolution of the order ``learned`` on compiled replays of generated windows.

The fitness is the logarithm of the mean bounded slowdown, so that a window counts alike whatever its scale. Each
generation has fresh windows: one part of the family ``home``, the others of machines unlike it. The weights for each
rule of backfilling have a strategy of their own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from hdsim.learning.agent import with_tensors
from hdsim.learning.training.evolution import EvolutionStrategy
from hdsim.learning.training.learner import Learner
from hdsim.learning.training.order.windows import OrderWindow, draw_away, draw_capability, draw_home, draw_kind
from hdsim.learning.training.records import Records
from hdsim.scheduling.learned.network import COLUMNS, CONTEXT, ERRORS, INPUT, LANES, OUTPUT, STATE, WEIGHTS
from hdsim.scheduling.learned.order import RULES, power_order
from hdsim.util.arrays import Floats
from hdsim.util.files import dump_json

#: Mean bounded slowdown of a window at home of weight 1 under each rule.
TYPICAL = {"strict": 20.0, "greedy": 20.0, "easy": 25.0, "committed": 280.0, "rlscheduler": 55.0}


@dataclass
class OrderEvolution(Learner):
    """Evolution strategies for the weights of every rule; a step is a generation. Equal settings give equal weights.

    Attributes:
        weights: (WEIGHTS,) mean of the latest networks by rule, the result.
        generation: Generations so far.

    Args:
        seed: Seed of all draws.
        generations: Generations in all, over which the learning rate falls to 0.
        strict: Pairs of networks with opposite changes of the weights without backfilling; 0: these weights stay.
        greedy: The same for greedy backfilling.
        easy: The same for EASY.
        committed: The same without backfilling, where a head stays the head until it starts.
        rlscheduler: The same for RLScheduler's rule.
        each: Windows that a pair replays.
        home: Windows of the family ``home`` of a generation.
        away: Windows of machines unlike it.
        capability: Windows of machines for wide jobs.
        kinds: Windows of kinds that are not held out, see :mod:`hdsim.workload.generators.kinds`.
        sigma: Standard deviation of a change.
        learning_rate: Of Adam.
        after_start: Jobs are scored after every start, as in use but for `committed`; otherwise once a pass, which
            takes a third of the time.
        estimates: Only the weights of the errors of requested times change, which have no effect where requested times
            are the run times, and all windows have estimates of run times.
        from_easy: Rules whose weights begin as those for EASY.
        start: (WEIGHTS,) first weights by rule; None, and for rules without: those of :func:`first_weights`.
        linear_rlscheduler: (COLUMNS,) first weights of the linear part for RLScheduler's rule, see
            :mod:`hdsim.scheduling.learned.network`; None: smallest area first, as for the other rules. The default is
            the choices of the checkpoint ``rlscheduler_backfill-1`` in a conditional logit, rounded.
        least_slowdown: Least mean bounded slowdown under smallest area first of windows away from home.
        typical_slowdown: Mean bounded slowdown of a window at home of weight 1 under each rule; windows of heavier load
            weigh more. Rules that are not given have that of :data:`TYPICAL`.
    """

    seed: int = 1
    generations: int = 400
    strict: int = 24
    greedy: int = 24
    easy: int = 42
    committed: int = 18
    rlscheduler: int = 60
    each: int = 4
    home: int = 34
    away: int = 30
    capability: int = 0
    kinds: int = 0
    sigma: float = 0.1
    learning_rate: float = 0.06
    after_start: bool = False
    estimates: bool = False
    from_easy: Sequence[str] = ()
    start: Mapping[str, Floats] | None = None
    linear_rlscheduler: Sequence[float] | None = (
        *(1.0, -2.0, 1.0, -2.0, 0.0, 0.0, 6.0, -1.0, 2.5, 1.5, -1.0, -3.5, 1.0),
        *(0.0, 0.0, 0.0, 0.0, -3.5, 0.0, 1.0, -4.0, 0.0, 0.0, 0.0, -8.0),
    )
    least_slowdown: float = 1.6
    typical_slowdown: Mapping[str, float] = field(default_factory=lambda: dict(TYPICAL))
    generation: int = field(default=0, init=False)

    suffix = ".json"

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        self._begin = first_weights(self.rng, self.linear_rlscheduler) | dict(self.start or {})
        self._begin |= dict.fromkeys(self.from_easy, self._begin["easy"])
        self.weights = dict(self._begin)
        self._typical = {**TYPICAL, **self.typical_slowdown}
        self._scales = scales(self.estimates)
        # By rule: the changes since, in units of their scales.
        self._strategies = {rule: self._strategy(getattr(self, rule)) for rule in self.trained}

    @property
    def trained(self) -> list[str]:
        """The rules whose weights change."""
        return [rule for rule in RULES if getattr(self, rule)]

    def _strategy(self, pairs: int) -> EvolutionStrategy:
        changes = nn.Parameter(torch.zeros(WEIGHTS, dtype=torch.float64))
        adam = torch.optim.Adam([changes], lr=self.learning_rate, betas=(0.9, 0.99), eps=1e-5)
        return EvolutionStrategy([changes], adam, pairs, self.sigma)

    @property
    def agent(self) -> dict[str, Floats]:
        """The weights by rule."""
        return self.weights

    def center(self, rule: str) -> Floats:
        """Returns the (WEIGHTS,) latest network for a rule that is trained."""
        return self._begin[rule] + self._scales * self._strategies[rule].parameters[0].detach().numpy()

    def step(self, records: Records) -> tuple[int, int]:
        """Carries out a generation; its windows are the episodes."""
        self.advance()
        return 1, self.home + self.away + self.capability + self.kinds

    def advance(self) -> None:
        """Replays fresh windows under pairs of networks and moves the network towards the better ones."""
        rng, least, estimates = self.rng, self.least_slowdown, self.estimates
        drawn = [draw_home(rng, estimates=estimates) for _ in range(self.home)]
        drawn += [draw_away(rng, least=least, estimates=estimates) for _ in range(self.away)]
        drawn += [draw_capability(rng, least=least, estimates=estimates) for _ in range(self.capability)]
        drawn += [draw_kind(rng, least=least, estimates=estimates) for _ in range(self.kinds)]
        for rule, strategy in self._strategies.items():
            strategy.optimizer.param_groups[0]["lr"] = self.learning_rate * (1 - self.generation / self.generations)
            strategy.advance(rng, partial(self._costs, rule, drawn))
        self.generation += 1
        for rule in self._strategies:
            step = max(0.04, 1 / (self.generation + 1))
            self.weights[rule] = self.weights[rule] + (self.center(rule) - self.weights[rule]) * step

    def _costs(self, rule: str, drawn: Sequence[OrderWindow], changes: Floats) -> Floats:
        """(2 pairs,) what changes of the weights for a rule cost, standardised."""
        pairs = len(changes) // 2
        # Windows are dealt out like cards, so that all of them count alike.
        rounds = -(-pairs * self.each // len(drawn))
        dealt = np.concatenate([self.rng.permutation(len(drawn)) for _ in range(rounds)])
        networks = self._begin[rule] + self._scales * changes
        fitness = np.zeros(pairs)
        for pair in range(pairs):
            for i in dealt[pair * self.each : (pair + 1) * self.each]:
                fitness[pair] += self._gain(rule, drawn[i], networks[pair], networks[pairs + pair], home=i < self.home)
        fitness /= fitness.std() + 1e-12
        return np.concatenate([-fitness, fitness])

    def _gain(self, rule: str, window: OrderWindow, more: Floats, less: Floats, *, home: bool) -> float:
        """By how much one network is better than another; at home, windows of heavy load count more."""
        typical = self._typical[rule]
        costs = [window.cost(weights, *RULES[rule], after_start=self.after_start) for weights in (more, less)]
        gain = max(-1.5, min(1.5, math.log(costs[1] / costs[0])))
        return gain * max(0.4, min(2.5, (costs[0] * costs[1] / typical**2) ** 0.25)) if home else gain

    def keep(self, path: Path) -> None:
        """Writes the weights, which ``agent.job_policy`` takes."""
        dump_json(path, {"generation": self.generation, "weights": listed(self.weights)})

    def state(self) -> dict[str, Any]:
        return {
            "evolution": {
                "generation": self.generation,
                "weights": self.weights,
                "rng": self.rng.bit_generator.state,
                "changes": [one.parameters[0].detach().numpy() for one in self._strategies.values()],
                "optimizers": [one.optimizer.state_dict() for one in self._strategies.values()],
            }
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        kept = state["evolution"]
        self.generation, self.weights, self.rng.bit_generator.state = kept["generation"], kept["weights"], kept["rng"]
        strategies = self._strategies.values()
        for strategy, changes, optimizer in zip(strategies, kept["changes"], kept["optimizers"], strict=True):
            strategy.become(changes)
            strategy.optimizer.load_state_dict(with_tensors(optimizer))


def listed(weights: Mapping[str, Floats]) -> dict[str, list[float]]:
    """Returns weights by rule as a card has them."""
    return {rule: found.tolist() for rule, found in weights.items()}


def first_weights(rng: np.random.Generator, linear_rlscheduler: Sequence[float] | None) -> dict[str, Floats]:
    """Draws (WEIGHTS,) weights by rule of networks that are the order ``saf``; see :class:`OrderEvolution`."""
    drawn = {rule: power_order(1.0, 1.0) for rule in RULES}
    if linear_rlscheduler is not None:
        drawn["rlscheduler"][INPUT:CONTEXT].reshape(COLUMNS, LANES)[:, -1] = linear_rlscheduler
    for weights in drawn.values():
        for first, last in ((INPUT, CONTEXT), (CONTEXT, OUTPUT)):
            lanes = weights[first:last].reshape(-1, LANES)[:, :-1]
            lanes[:] = 0.3 * rng.standard_normal(lanes.shape)
    return drawn


def scales(estimates: bool) -> Floats:
    """Returns the (WEIGHTS,) relative sizes of changes, 0 without effect; `estimates`: see :class:`OrderEvolution`."""
    sizes = np.ones(WEIGHTS)
    sizes[:INPUT].reshape(STATE, COLUMNS)[-1] = 0.0
    lanes = sizes[INPUT:OUTPUT].reshape(COLUMNS + STATE, LANES)
    lanes[:, :-1], lanes[:COLUMNS, -1], lanes[COLUMNS:, -1] = 2.0, 3.0, 0.0
    sizes[OUTPUT:-1], sizes[-1] = 4.0, 0.0
    if estimates:
        for first, last in ((0, INPUT), (CONTEXT, OUTPUT)):
            rows = sizes[first:last].reshape(STATE, -1)
            rows[:ERRORS], rows[ERRORS + 2 :] = 0.0, 0.0
        sizes[INPUT:CONTEXT], sizes[OUTPUT:] = 0.0, 0.0
    return sizes
