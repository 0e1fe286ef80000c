"""Factors by which configurations are worse than the best one or than the baseline, metric by metric."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hdsim.report.compare import Comparison, Row
from hdsim.report.statistics import Floats
from hdsim.results.metrics import Direction, direction

#: Least factor of the full colour.
_FULL = 4.0
#: Factors that a legend shows, as far as they are below that of the full colour.
_SHOWN = (1.1, 2.0, 10.0, 100.0)


@dataclass(frozen=True)
class Relative:
    """Configurations by metrics.

    Attributes:
        rows: (C,) rows of the first metric, which name scenario and configuration.
        metrics: (M,) names of the metrics that have better and worse values.
        factors: (C, M) by how much a value is worse: its ratio to that of the reference, or the inverse where higher
            values are better; below 1 it is better, NaN without a ratio.
        to: ``best`` or ``baseline``, in the same scenario.
    """

    rows: tuple[Row, ...]
    metrics: tuple[str, ...]
    factors: Floats
    to: str

    @property
    def note(self) -> str:
        """Meaning of the cells."""
        told = f"by how much each mean is worse than the {self.to} (orange)"
        return told if self.to == "best" else f"{told} or better (blue)"

    @property
    def legend(self) -> list[tuple[str, float]]:
        """Texts and shades of some factors, from the best to the worst."""
        worse = [*(factor for factor in _SHOWN if factor < 0.9 * self._full), self._full]
        better = [] if self.to == "best" else [1 / factor for factor in reversed(worse)]
        factors = np.array([*better, 1.0, *worse])
        return list(zip(map(_text, factors.tolist()), self._shades(factors).tolist(), strict=True))

    @property
    def _full(self) -> float:
        """Factor of the full colour, the largest of the table."""
        sizes = np.abs(_logarithms(self.factors))
        return float(np.exp(max(np.log(_FULL), sizes[np.isfinite(sizes)].max(initial=0.0))))

    @property
    def shades(self) -> Floats:
        """(C, M) from -1 for much better over 0 for equal to 1 for much worse; NaN becomes 0.

        The root of the logarithm of the factor, by which factors just above 1 and large ones are both told apart.
        """
        return self._shades(self.factors)

    def _shades(self, factors: Floats) -> Floats:
        ratio = np.nan_to_num(_logarithms(factors), posinf=np.inf, neginf=-np.inf) / np.log(self._full)
        return np.sign(ratio) * np.sqrt(np.minimum(np.abs(ratio), 1.0))

    @property
    def texts(self) -> NDArray[np.str_]:
        """(C, M) such as ``+12 %`` and ``38x``."""
        return np.array([[_text(factor) for factor in row] for row in self.factors.tolist()])


def _logarithms(factors: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        found: Floats = np.log(factors)
    return found


def relative(comparison: Comparison, to: str = "best") -> Relative:
    """Compares the means with those of the ``best`` configuration or of the ``baseline`` of the scenario."""
    metrics = tuple(name for name in comparison.metrics if direction(name))
    columns = [_factors(comparison.of(name), direction(name), to) for name in metrics]
    rows = tuple(comparison.of(comparison.metrics[0]))
    return Relative(rows, metrics, np.array(columns).reshape(len(metrics), len(rows)).T, to)


def _factors(rows: Sequence[Row], better: Direction, to: str) -> Floats:
    means = np.array([row.mean for row in rows])
    references = np.full(len(rows), np.nan)
    for scenario in dict.fromkeys(row.scenario for row in rows):
        inside = np.array([row.scenario == scenario for row in rows])
        chosen = means[inside & np.array([row.baseline for row in rows])] if to == "baseline" else means[inside]
        chosen = chosen[~np.isnan(chosen)]
        if len(chosen):
            references[inside] = chosen.max() if better is Direction.HIGHER else chosen.min()
    above, below = (references, means) if better is Direction.HIGHER else (means, references)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(means == references, 1.0, above / below)


def _text(factor: float) -> str:
    if np.isnan(factor):
        return "-"
    if np.isinf(factor):  # The reference is 0, or the value is where higher ones are better.
        return "∞"
    if not factor < 10:
        return f"{factor:,.0f}x"
    return "0 %" if factor == 1 else f"{100 * (factor - 1):+.3g} %"
