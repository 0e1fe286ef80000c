"""The Gymnasium environment of a BSP gang: whether its CPU shares change before each superstep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from hdsim.envs.episodes import Episodes
from hdsim.errors import ConfigError
from hdsim.gangs.lookahead import GangSeries, Lookahead, fitted
from hdsim.gangs.workloads import check_rows, load_gang
from hdsim.util.arrays import Floats
from hdsim.util.rules import NULL, SECONDS, integers_from, require

Observation = NDArray[np.float32]


class GangEnv(gymnasium.Env[Observation, Any]):
    """Controls the CPU shares of a gang; a step is a superstep.

    Action 0 keeps the shares, action a takes those planned for the next a supersteps. With the range low..high of
    `durations` the reward is (high - penalty [action > 0] - duration of the superstep) / (high - low). An episode
    begins with ``shares.start`` millicores of each task. It is truncated after its supersteps, as the series continues.
    ``info`` has ``action_mask``, in which every action is legal, and after the last step ``metrics``: `duration`,
    `checkpoints` and `total` as of ``hdsim bsp run``, where the first change is free.

    Attributes:
        problem: Actions and observations.
        episodes: Source of the rows of episodes.

    Args:
        series: Workloads; all rows of all of them are equally likely as the first of an episode.
        problem: Actions and observations; durations of None become those of the rows of the episodes.
        penalty: Cost of a change of the shares in seconds.
        supersteps: Supersteps of an episode.
        start: First row of every episode; None: drawn.
        held_out: Rows that no drawn episode has: (first row, rows) of the first series.
        render_mode: None, the only mode.

    Raises:
        ConfigError: No rows are left for an episode.
    """

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(
        self,
        series: Sequence[GangSeries],
        problem: Lookahead,
        penalty: float = 15.0,
        supersteps: int = 400,
        start: int | None = None,
        held_out: Sequence[Sequence[int]] = (),
        render_mode: str | None = None,
    ) -> None:
        rules = {"penalty": SECONDS, "supersteps": integers_from(1), "start": integers_from(0) | NULL}
        require("env", rules, {"penalty": penalty, "supersteps": supersteps, "start": start})
        if render_mode is not None:
            raise ConfigError(f"expected null, got '{render_mode}'", where="env.render_mode")
        self._series, self._penalty = list(series), float(penalty)
        first = 0 if start is None else start
        parts = [one[first : first + supersteps] if start is not None else one for one in self._series]
        check_rows(first + supersteps, min(map(len, self._series)), where="env.supersteps")
        held_out = held_out if start is None else ()
        self.episodes = Episodes(parts, supersteps, held_out, unit="supersteps")
        seen = [part.durations[part.rows.start : part.rows.stop] for part in parts]
        seen[0] = np.delete(seen[0], [row for first, rows in held_out for row in range(first, first + rows)], axis=0)
        self.problem = fitted(problem, seen)
        self.render_mode = render_mode
        bounds = (0.0, 1.0) if problem.clip else (-np.inf, np.inf)
        self.observation_space = spaces.Box(*bounds, (problem.actions, problem.columns), np.float32)
        self.action_space = spaces.Discrete(problem.actions)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begins an episode.

        Args:
            seed: Seed of the first rows of this episode and those after it.
            options: None are known.

        Raises:
            ConfigError: An option is given.
        """
        super().reset(seed=seed)
        if options:
            raise ConfigError(f"expected none, got '{next(iter(options))}'", where="options")
        episode = self.episodes.draw(self.np_random)
        self._rows, self._current = episode.rows, episode
        self._row = self._rows.start
        planner = episode.planner
        self._shares = np.full(len(planner.profile.tasks), planner.budget.start)
        self._duration, self._checkpoints = 0.0, 0
        sizes = planner.predictions[self._row, : self.problem.columns]
        return self._observe(planner.profile.at(sizes, self._shares).max(axis=1)), {
            "action_mask": np.ones(self.problem.actions, bool)
        }

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Changes the shares if the action says so, and executes a superstep."""
        series, row, columns = self._current, self._row, self.problem.columns
        planner = series.planner
        if action:
            self._shares = series.shares[row, action - 1]
            self._checkpoints += row > self._rows.start
        # The superstep, and the next ones with the same shares.
        self._row = min(row + 1, len(series.actual) - 1)
        sizes = np.vstack([series.actual[row], planner.predictions[self._row, :columns]])
        durations = planner.profile.at(sizes, self._shares).max(axis=1)
        duration = float(durations[0])
        self._duration += duration
        low, high = self.problem.durations or (0.0, 1.0)
        reward = (high - self._penalty * bool(action) - duration) / (high - low)
        info: dict[str, Any] = {"action_mask": np.ones(self.problem.actions, bool)}
        over = row + 1 == self._rows.stop
        if over:
            total = self._duration + self._penalty * self._checkpoints
            info["metrics"] = {"duration": self._duration, "checkpoints": self._checkpoints, "total": total}
        return self._observe(durations[1:]), reward, False, over, info

    def _observe(self, kept: Floats) -> Observation:
        """(A, W) predicted durations with the present shares, and with those of every plan."""
        return self.problem.scaled(np.vstack([kept, self._current.durations[self._row]]))


def gang_env(
    profile: str = "synthetic",
    tasks: Mapping[str, str] | None = None,
    actual: str = "generated",
    forecasts: str = "generated",
    scaling: str = "columns",
    planner: str = "greedy",
    shares: Mapping[str, int] | None = None,
    seed: int = 1,
    penalty: float = 15.0,
    supersteps: int = 400,
    start: int | None = None,
    held_out: Sequence[Sequence[int]] = (),
    render_mode: str | None = None,
    **settings: Any,
) -> GangEnv:
    """Makes ``hdsim/Gang-v0``: a gang with the arguments of ``hdsim bsp run``.

    The arguments up to `seed` are those of :func:`hdsim.gangs.workloads.load_gang`, the next ones those of
    :class:`GangEnv`, and all others settings of :class:`hdsim.gangs.lookahead.Lookahead`.

    Raises:
        ConfigError: A file or a setting cannot be used.
    """
    problem = Lookahead(**settings)
    made, workloads = load_gang(profile, tasks, actual, forecasts, scaling, planner, shares or {}, seed)
    series = [GangSeries.of(problem, made, workloads.actual)]
    return GangEnv(series, problem, penalty, supersteps, start, held_out, render_mode)
