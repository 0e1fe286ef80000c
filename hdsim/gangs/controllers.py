"""Controllers: whether and how the CPU shares of a gang change before each superstep.

A controller derives from :class:`Controller`; ``controller.path`` names its file. The controllers here are those of
Kube_Gang_Scheduling.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from hdsim.errors import ConfigError
from hdsim.gangs.planner import Planner, Plans, Span, static_shares
from hdsim.util.arrays import Floats, Ints
from hdsim.util.plugins import PluginType, installed
from hdsim.util.rules import FLAG, POSITIVE, integers_from, require

#: Last predictions of a row that a window does not reach.
UNUSED = 5
#: Workload size that EXPPO plans for: the middle of the range.
MEDIUM = 30.0


@dataclass
class GangState:
    """Knowledge of a controller before a superstep."""

    planner: Planner  # plans shares from the predictions
    row: int  # row of the series that is executed in this superstep
    superstep: int  # number of the superstep, from 0
    supersteps: int  # number of supersteps of the gang
    shares: Ints  # (J,) present CPU shares in millicores
    penalty: float  # cost of a change of the shares in seconds; the first shares are free
    executed: Floats  # (row, J) workload sizes of the rows before this one
    certain: bool = False  # whether the predictions are what is executed
    seed: int = 1  # seed of whatever a controller draws

    @property
    def predicted(self) -> Floats:
        """(F, J) workload sizes predicted for this superstep and those after it."""
        return self.planner.predictions[self.row]

    @property
    def remaining(self) -> int:
        """Number of supersteps that are left, this one included."""
        return self.supersteps - self.superstep


class Controller(ABC):
    """Base class of controllers. The settings of the group ``controller`` are keyword arguments of the constructor."""

    def begin(self, state: GangState) -> None:  # noqa: B027 - most controllers need no preparation
        """Prepares the controller; called once before the first superstep."""

    @abstractmethod
    def decide(self, state: GangState) -> Ints | None:
        """Returns the (J,) CPU shares from this superstep on, in millicores; None keeps the present ones.

        Shares that are returned cost the penalty, except before the first superstep.
        """


class Static(Controller):
    """EXPPO: one plan for workloads of medium size, which never changes."""

    def decide(self, state: GangState) -> Ints | None:
        """Plans before the first superstep."""
        if state.superstep:
            return None
        return static_shares(state.planner.profile, state.planner.budget, MEDIUM)


class StaticWindow(Controller):
    """Plans a window of a fixed number of supersteps whenever the previous one is over."""

    def __init__(self, window: int = 3) -> None:
        require("controller", {"window": integers_from(1)}, {"window": window})
        self.window = int(window)

    def begin(self, state: GangState) -> None:
        """Checks that the predictions reach as far."""
        _check_columns(state, "window", self.window)

    def decide(self, state: GangState) -> Ints | None:
        """Plans the window that begins."""
        if state.superstep % self.window:
            return None
        return state.planner.plans(state.row, ((0, self.window),), self.window).shares[0]


class _Horizon(Controller):
    """Divides the next `horizon` supersteps into windows by dynamic programming.

    `length_punishment` is a factor on the predicted duration of a window for each of its supersteps, as later
    predictions are less certain.
    """

    def __init__(self, horizon: int = 10, length_punishment: float = 1.02) -> None:
        rules = {"horizon": integers_from(1), "length_punishment": POSITIVE}
        require("controller", rules, {"horizon": horizon, "length_punishment": length_punishment})
        self.horizon, self.length_punishment = int(horizon), length_punishment

    def begin(self, state: GangState) -> None:
        """Checks that the predictions reach as far."""
        _check_columns(state, "horizon", self.horizon)

    def _cheapest(self, state: GangState, plans: Plans) -> tuple[list[float], list[int]]:
        """Costs of the supersteps from each one on, the penalties between windows included, and first windows there."""
        horizon, left = self.horizon, state.remaining
        widest = min(left, max(state.predicted.shape[0] - UNUSED, 1))
        durations, place = plans.durations.tolist(), places(horizon)
        costs, windows = [0.0] * (horizon + 1), [0] * horizon
        for begin in reversed(range(min(horizon, left))):
            costs[begin], windows[begin] = min(
                (
                    durations[place[begin, width]] * self.length_punishment**width
                    + (costs[begin + width] + state.penalty if begin + width < horizon else 0.0),
                    width,
                )
                for width in range(1, min(horizon - begin, widest) + 1)
            )
        return costs, windows


class DynamicWindow(_Horizon):
    """Plans windows over a horizon, and plans again when the first of them is over."""

    _next = 0  # superstep of the next plan

    def begin(self, state: GangState) -> None:
        """Checks that the predictions reach as far."""
        super().begin(state)
        self._next = 0

    def decide(self, state: GangState) -> Ints | None:
        """Plans when the first window of the latest plan is over."""
        if state.superstep < self._next:
            return None
        plans = state.planner.plans(state.row, spans(self.horizon))
        window = self._cheapest(state, plans)[1][0]
        self._next = state.superstep + window
        return plans.shares[places(self.horizon)[0, window]]


class DynamicMpc(_Horizon):
    """Plans windows over a receding horizon before each superstep (model predictive control).

    With `keep`, the present shares stay where that is cheaper than any change.
    """

    def __init__(self, horizon: int = 10, length_punishment: float = 1.02, keep: bool = True) -> None:
        super().__init__(horizon, length_punishment)
        require("controller", {"keep": FLAG}, {"keep": keep})
        self.keep = keep

    def decide(self, state: GangState) -> Ints | None:
        """Plans, and keeps the present shares where that is cheaper."""
        horizon = self.horizon
        plans = self.plans(state)
        costs, windows = self._cheapest(state, plans)
        if self.keep:
            kept = self.durations(state, min(horizon, state.remaining)).cumsum().tolist()
            cost = min(
                duration * self.length_punishment**width + (costs[width] + state.penalty if width < horizon else 0.0)
                for width, duration in enumerate(kept, 1)
            )
            if cost < costs[0] + (state.penalty if state.superstep else 0.0):
                return None
        return plans.shares[places(horizon)[0, windows[0]]]

    def plans(self, state: GangState) -> Plans:
        """Plans all windows within the horizon, in the order of :func:`spans`."""
        return state.planner.plans(state.row, spans(self.horizon))

    def durations(self, state: GangState, supersteps: int) -> Floats:
        """(supersteps,) predicted durations of the next supersteps with the present shares, in seconds."""
        return state.planner.profile.at(state.predicted[:supersteps], state.shares).max(axis=1)


_KIND = PluginType("controller", Controller, "hdsim.gangs.controllers.Controller")


def make_controller(spec: str | Mapping[str, Any] | Controller) -> Controller:
    """Makes a controller of a mapping or of the name of an installed one (``hdsim.controllers``); another is returned.

    A mapping has ``path`` (a Python file with one `Controller` subclass) or ``_target_`` (``package.Class``), and
    settings.

    Raises:
        ConfigError: The controller cannot be found or does not take the settings.
    """
    if isinstance(spec, Controller):
        return spec
    if isinstance(spec, str):
        names = installed("controller")
        if spec not in names.names:
            raise ConfigError(
                f"expected a controller, got '{spec}'; installed: {', '.join(names.names) or 'none'}",
                where="controller",
            )
        return _KIND.construct(names[spec].load(), spec)
    return _KIND.make(spec)


@lru_cache(maxsize=8)
def spans(horizon: int) -> tuple[Span, ...]:
    """Returns all windows within a horizon."""
    return tuple(span for span in itertools.product(range(horizon), range(1, horizon + 1)) if sum(span) <= horizon)


@lru_cache(maxsize=8)
def places(horizon: int) -> dict[Span, int]:
    """Returns the place of each window in :func:`spans`."""
    return {span: place for place, span in enumerate(spans(horizon))}


def _check_columns(state: GangState, key: str, needed: int) -> None:
    columns = state.predicted.shape[0]
    if needed > columns:
        raise ConfigError(
            f"expected at most {columns}, the supersteps that are predicted, got {needed}", where=f"controller.{key}"
        )
