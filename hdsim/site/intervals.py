"""Intervals of the waits of jobs: quantiles of scenarios, adjusted on waits that were recorded.

Sources: R. Koenker and G. Bassett, "Regression Quantiles", Econometrica 46 (1978); Y. Romano, E. Patterson and
E. Candes, "Conformalized Quantile Regression", NeurIPS 2019, with bounds of either side; its residuals are those of
folds, as in R. Barber et al., "Predictive inference with the jackknife+", Annals of Statistics 49 (2021). The median
has the L1 penalty of A. Belloni and V. Chernozhukov, "L1-penalized quantile regression in high-dimensional sparse
models", Annals of Statistics 39 (2011).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from hdsim.util.arrays import Floats, Ints

#: Quantiles: the ends of the interval, and the median between them.
LEVELS = (0.1, 0.5, 0.9)
#: Features of a wait, in seconds; see `Samples`.
FEATURES = ("low", "median", "high", "plan", "waited", "pace")
#: Fewest waits for a regression.
_MANY = 100
#: Penalty of the median, in standard deviations of a feature times the root of the number of waits.
_PENALTY = 1.0
_FOLDS = 5
#: Seconds that are added before logarithms are taken.
_SHIFT = 60.0
_LONGEST = 60 * 86_400.0


@dataclass(frozen=True)
class Samples:
    """Waits of jobs from a moment of a log on; all (S,), in seconds.

    Attributes:
        moment: Number of the moment of each.
        features: (S, 6) 10 %, 50 % and 90 % quantiles of the scenarios, the wait of the plan with requested times, how
            long the job had waited, and the wait if the jobs of its user start as fast as in the last days.
        wait: The recorded waits.
    """

    moment: Ints
    features: Floats
    wait: Floats

    def __len__(self) -> int:
        return len(self.wait)

    def known_at(self, left: Floats) -> Samples:
        """Returns them as known (S,) seconds after their moments, the waits of jobs that still wait being cut off."""
        return Samples(self.moment, self.features, np.minimum(self.wait, left))

    def select(self, rows: np.ndarray) -> Samples:
        """Returns some of them."""
        return Samples(self.moment[rows], self.features[rows], self.wait[rows])


def _log(seconds: Floats) -> Floats:
    return np.log(np.clip(np.nan_to_num(seconds, nan=_LONGEST, posinf=_LONGEST), 0.0, _LONGEST) + _SHIFT)


def _design(features: Floats) -> Floats:
    low, median, high, plan, waited, pace = _log(features).T
    return np.column_stack([np.ones(len(median)), median, high - median, median - low, plan, waited, pace])


def _regression(design: Floats, wait: Floats, level: float) -> Floats:
    """Returns the coefficients of a quantile as a linear function: a linear program."""
    from scipy.optimize import linprog
    from scipy.sparse import eye, hstack

    count, width = design.shape
    cost = np.concatenate([np.zeros(width), np.full(count, level), np.full(count, 1.0 - level)])
    equal = hstack([design, eye(count), -eye(count)], format="csc")
    bounds = [(None, None)] * width + [(0.0, None)] * (2 * count)
    solved = linprog(cost, A_eq=equal, b_eq=wait, bounds=bounds, method="highs")
    return np.asarray(solved.x[:width])


@dataclass(frozen=True)
class Calibration:
    """Adjustment of the quantiles of scenarios.

    Attributes:
        coefficients: (3, 7) of the logarithms of the quantiles of `LEVELS`.
        margins: Logarithms by which the interval is longer at its lower and at its upper end.
        waits: Number of waits that it is from.
    """

    coefficients: Floats
    margins: tuple[float, float]
    waits: int

    def document(self) -> dict[str, Any]:
        """The content of a file."""
        return {"coefficients": self.coefficients.tolist(), "margins": list(self.margins), "waits": self.waits}

    @classmethod
    def of_document(cls, document: Any) -> Calibration:
        """Returns the adjustment of a `document`.

        Raises:
            ValueError: The document has another form.
        """
        try:
            coefficients = np.array(document["coefficients"], np.float64)
            lower, upper = map(float, document["margins"])
            made = cls(coefficients, (lower, upper), int(document["waits"]))
            if not np.isfinite([lower, upper, *coefficients.ravel()]).all():
                raise ValueError
        except (KeyError, TypeError, ValueError, OverflowError):
            raise ValueError("expected coefficients, margins and waits as 'hdsim when SITE --check' writes") from None
        if made.coefficients.shape != (len(LEVELS), len(FEATURES) + 1):
            raise ValueError(f"expected 3 rows of {len(FEATURES) + 1} coefficients, got {made.coefficients.shape}")
        return made

    def interval(self, features: Floats) -> Floats:
        """Returns the (S, 3) seconds of the lower end, the median and the upper end for (S, 6) features."""
        bounds = _design(features) @ self.coefficients.T
        bounds[:, 0] -= self.margins[0]
        bounds[:, 2] += self.margins[1]
        return np.sort(np.clip(np.exp(bounds) - _SHIFT, 0.0, _LONGEST), axis=1)


def calibration_of(samples: Samples) -> Calibration:
    """Returns the adjustment by which an interval has 80 % of waits like those given.

    With less than a hundred waits the quantiles of the scenarios are shifted only.
    """
    design, wait = _design(samples.features), _log(samples.wait)
    places = np.unique(samples.moment, return_inverse=True)[1]
    residuals = np.empty((len(wait), 2))
    for fold in range(_FOLDS):
        held = places % _FOLDS == fold
        if not held.any() or held.all():
            residuals[held] = np.nan
            continue
        coefficients = _fitted(design[~held], wait[~held])
        bounds = design[held] @ coefficients.T
        residuals[held, 0], residuals[held, 1] = bounds[:, 0] - wait[held], wait[held] - bounds[:, 2]
    residuals = residuals[~np.isnan(residuals[:, 0])]
    margins = (0.0, 0.0)
    if len(residuals):
        rank = min(math.ceil((1.0 - LEVELS[0]) * (len(residuals) + 1)), len(residuals)) - 1
        lower, upper = np.sort(residuals, axis=0)[rank].tolist()
        margins = (lower, upper)
    return Calibration(_fitted(design, wait), margins, len(wait))


def _penalized(design: Floats, wait: Floats) -> tuple[Floats, Floats]:
    """Adds a row for each coefficient, whose residual at the median is the L1 penalty.

    Without waits the median would be the mean of that of the scenarios and the plan, both as logarithms.
    """
    weight = 2.0 * _PENALTY * math.sqrt(len(wait)) * design.std(axis=0)
    prior = np.array([0, 0.5, 0, 0, 0.5, 0, 0])
    return np.vstack([design, np.diag(weight)]), np.concatenate([wait, weight * prior])


def _fitted(design: Floats, wait: Floats) -> Floats:
    if len(wait) >= _MANY:
        low, high = (_regression(design, wait, level) for level in (LEVELS[0], LEVELS[2]))
        return np.array([low, _regression(*_penalized(design, wait), LEVELS[1]), high])
    own = scenario_quantiles()
    bounds = design @ own.T
    own[:, 0] = [np.quantile(wait - bounds[:, place], level) for place, level in enumerate(LEVELS)]
    return own


def scenario_quantiles() -> Floats:
    """Returns the (3, 7) coefficients by which the quantiles are those of the scenarios."""
    return np.array([[0, 1, 0, -1, 0, 0, 0], [0, 1, 0, 0, 0, 0, 0], [0, 1, 1, 0, 0, 0, 0]], np.float64)


@dataclass(frozen=True)
class Score:
    """Agreement of intervals with recorded waits.

    Attributes:
        name: Week or partition.
        waits: Number of waits.
        coverage: Part of them in the interval.
        error: Mean absolute error of the median in seconds.
        plan: That of the plan with requested times.
    """

    name: str
    waits: int
    coverage: float
    error: float
    plan: float

    @classmethod
    def of_document(cls, document: Any) -> Score:
        """Returns the agreement of a row of the table in when.json; ValueError for another form."""
        try:
            numbers = [float(document[key]) for key in ("coverage", "error", "plan")]
            return cls(str(document["name"]), int(document["waits"]), *numbers)
        except (KeyError, TypeError, ValueError, OverflowError):
            raise ValueError("expected a table as 'hdsim when SITE --check' writes") from None


def score(name: str, interval: Floats, samples: Samples) -> Score:
    """Returns the agreement of (S, 3) intervals with recorded waits."""
    wait = samples.wait
    plan = np.clip(np.nan_to_num(samples.features[:, 3], nan=_LONGEST, posinf=_LONGEST), 0.0, _LONGEST)
    # Waits are whole seconds.
    covered = (wait >= np.floor(interval[:, 0])) & (wait <= np.ceil(interval[:, 2]))
    errors = np.abs(interval[:, 1] - wait), np.abs(plan - wait)
    return Score(name, len(wait), float(covered.mean()), float(errors[0].mean()), float(errors[1].mean()))
