"""Decision problem of a learned controller: keep the shares, or take those planned for one of several windows.

The problem is that of Kube_Gang_Scheduling: action 0 keeps the present shares, action a takes the plan for the next a
supersteps. The observation has a row for each action and a column for each of the next supersteps: their predicted
durations with the shares that the action leads to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hdsim.errors import ConfigError
from hdsim.gangs.planner import Planner, Plans, Span
from hdsim.util.arrays import Floats, Ints
from hdsim.util.rules import FLAG, NULL, NUMBER, ascends, integers_from, lists_of, require

_RANGE = lists_of(NUMBER, "two numbers of seconds, the smaller one first", 2, ascends)


class ArrayShape(NamedTuple):
    """Shape of an observation."""

    shape: tuple[int, ...]


@dataclass(frozen=True)
class Lookahead:
    """Actions and observations of a learned controller.

    Raises:
        ConfigError: A setting is not allowed.
    """

    actions: int = 5  # A; action a > 0 takes the plan for a supersteps
    columns: int = 5  # W, supersteps that are looked at
    durations: Sequence[float] | None = None  # seconds that an observation shows as 0 and 1, None: not known yet
    clip: bool = True  # limit observations to 0..1
    tasks: Sequence[str] | None = None  # those that a controller was trained for, None before a training

    def __post_init__(self) -> None:
        """Checks the settings."""
        rules = {"actions": integers_from(2), "columns": integers_from(1), "durations": _RANGE | NULL, "clip": FLAG}
        require("env", rules, asdict(self))

    @property
    def settings(self) -> dict[str, Any]:
        """All settings, in the form of a checkpoint."""
        return {"gang": asdict(self)}

    @cached_property
    def spans(self) -> tuple[Span, ...]:
        """Windows that are planned: of 1, 2, ... supersteps."""
        return tuple((0, width) for width in range(1, self.actions))

    def n_actions(self, platform: None = None) -> int:
        """A, the number of actions."""
        return self.actions

    def arrays(self, platform: None = None) -> ArrayShape:
        """Shape of an observation of a network: the rows one after the other."""
        return ArrayShape((self.actions * self.columns,))

    def check(self, predicted: int, where: str) -> None:
        """Checks that the predictions reach as far as the actions and the columns, or raises ConfigError at `where`."""
        for key, needed in (("actions", self.actions - 1), ("columns", self.columns)):
            if needed > predicted:
                raise ConfigError(
                    f"expected predictions of {needed} supersteps for {getattr(self, key)} {key}, got {predicted}",
                    where=where,
                )

    def scaled(self, durations: Floats) -> NDArray[np.float32]:
        """Scales (..., W) predicted durations of supersteps in seconds to an observation."""
        assert self.durations is not None
        low, high = self.durations
        shown = ((durations - low) / (high - low)).astype(np.float32)
        return shown.clip(0.0, 1.0) if self.clip else shown

    def observe(self, planner: Planner, row: int, shares: Ints) -> tuple[NDArray[np.float32], Plans]:
        """Returns the (A, W) observation before the superstep of a row, and the plans of the actions from 1 on.

        `shares` are the (J,) present CPU shares in millicores.
        """
        plans = planner.plans(row, self.spans)
        led_to = np.vstack([shares, plans.shares])
        return self.scaled(_slowest(planner, planner.predictions[row, : self.columns], led_to[:, None])), plans


class GangSeries:
    """Rows of the workloads of a gang, with the plans of each row made in advance; a slice has some of the rows."""

    planner: Planner  # plans shares from the predictions
    actual: Floats  # (R, J) workload sizes that are executed at each row of the whole series
    rows: range  # the rows
    shares: Ints  # (R, A - 1, J) planned shares in millicores
    durations: Floats  # (R, A - 1, W) predicted durations of supersteps with them, in seconds

    @classmethod
    def of(cls, problem: Lookahead, planner: Planner, actual: Floats) -> GangSeries:
        """Plans all rows, or raises ConfigError if predictions do not reach as far as the actions and the columns."""
        rows, columns, _ = planner.predictions.shape
        problem.check(columns, "env")
        made = cls()
        made.planner, made.actual, made.rows = planner, actual, range(rows)
        made.shares = np.stack([planner.plans(row, problem.spans).shares for row in made.rows])
        sizes = planner.predictions[:, None, : problem.columns]
        made.durations = _slowest(planner, sizes, made.shares[:, :, None])
        return made

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, rows: slice) -> GangSeries:
        part = type(self)()
        vars(part).update(vars(self), rows=self.rows[rows])
        return part


def fitted(problem: Lookahead, seen: Sequence[Floats]) -> Lookahead:
    """Returns the problem with its range of durations in seconds, by default that of predicted ones."""
    if problem.durations is not None:
        return problem
    low, high = min(float(part.min()) for part in seen), max(float(part.max()) for part in seen)
    return replace(problem, durations=(low, max(high, np.nextafter(low, np.inf))))


def _slowest(planner: Planner, sizes: Floats, shares: Ints) -> Floats:
    """Durations of supersteps in seconds: those of the slowest tasks, the last axis of sizes and shares."""
    both = np.broadcast_arrays(sizes, shares)
    tasks = sizes.shape[-1]
    durations = planner.profile.at(*(array.reshape(-1, tasks) for array in both)).max(axis=1)
    return durations.reshape(both[0].shape[:-1])
