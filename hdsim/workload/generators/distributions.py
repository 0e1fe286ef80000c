"""Distributions by name, as files of kinds have them: ``{lognormal: {median: 600, sigma: 1.5}, most: 86400}``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hdsim.errors import ConfigError, not_one_of
from hdsim.util.arrays import Floats
from hdsim.util.rules import NOT_NEGATIVE, POSITIVE, Rule, check_keys, is_finite, lists_of, require

Draw = Callable[[np.random.Generator, int], Floats]


@dataclass(frozen=True)
class Distribution:
    """A distribution of numbers of at least 0.

    Attributes:
        drawn: Draws a number of values.
        least, most: Draws beyond them are set to them.
    """

    drawn: Draw
    least: float = 0.0
    most: float = np.inf

    def draw(self, rng: np.random.Generator, count: int) -> Floats:
        """Draws (count,) values."""
        return np.clip(self.drawn(rng, count), self.least, self.most)


_NUMBERS = lists_of(NOT_NEGATIVE, "a list of numbers >= 0")


def _pareto(rng: np.random.Generator, count: int, low: float, alpha: float, high: float) -> Floats:
    """Bounded Pareto distribution, by its inverse."""
    return low * (1.0 - rng.random(count) * (1.0 - (low / high) ** alpha)) ** (-1.0 / alpha)


def _choice(rng: np.random.Generator, count: int, values: list[float], weights: list[float] | None = None) -> Floats:
    shares = None if weights is None else np.asarray(weights, float) / np.sum(weights)
    return np.asarray(values, np.float64)[rng.choice(len(values), count, p=shares)]


def _powers(rng: np.random.Generator, count: int, low: float, high: float) -> Floats:
    least, most = int(np.ceil(np.log2(low))), int(np.floor(np.log2(high)))
    return np.exp2(rng.integers(least, most + 1, count).astype(np.float64))


#: Distributions by name: rules of their parameters, those that may be left out, and how they are drawn.
DISTRIBUTIONS: Mapping[str, tuple[Mapping[str, Rule], tuple[str, ...], Callable[..., Floats]]] = {
    "constant": ({"value": NOT_NEGATIVE}, (), lambda rng, count, value: np.full(count, float(value))),
    "choice": ({"values": _NUMBERS, "weights": _NUMBERS}, ("weights",), _choice),
    "uniform": (
        {"low": NOT_NEGATIVE, "high": NOT_NEGATIVE},
        (),
        lambda rng, count, low, high: rng.uniform(low, high, count),
    ),
    "loguniform": (
        {"low": POSITIVE, "high": POSITIVE},
        (),
        lambda rng, count, low, high: np.exp(rng.uniform(np.log(low), np.log(high), count)),
    ),
    "powers_of_2": ({"low": POSITIVE, "high": POSITIVE}, (), _powers),
    "exponential": ({"mean": POSITIVE}, (), lambda rng, count, mean: rng.exponential(mean, count)),
    "lognormal": (
        {"median": POSITIVE, "sigma": NOT_NEGATIVE},
        (),
        lambda rng, count, median, sigma: median * np.exp(sigma * rng.standard_normal(count)),
    ),
    "weibull": (
        {"scale": POSITIVE, "shape": POSITIVE},
        (),
        lambda rng, count, scale, shape: scale * rng.weibull(shape, count),
    ),
    "pareto": ({"low": POSITIVE, "alpha": POSITIVE, "high": POSITIVE}, (), _pareto),
}
_BOUNDS = {"least": NOT_NEGATIVE, "most": NOT_NEGATIVE}


def distribution(spec: Any, where: str) -> Distribution:
    """Makes a distribution of a number or of ``{NAME: {PARAMETER: NUMBER, ...}, least: NUMBER, most: NUMBER}``.

    ``{mixture: [{weight: NUMBER, NAME: {...}}, ...]}`` draws from one of several. `where` is the place for errors.

    Raises:
        ConfigError: There is no such distribution, or a parameter is not allowed.
    """
    if is_finite(spec):
        spec = {"constant": {"value": spec}}
    names = (*DISTRIBUTIONS, "mixture")
    if not isinstance(spec, Mapping):
        raise ConfigError(
            f"expected a number, or one of {', '.join(names)} with its parameters, got {spec!r}", where=where
        )
    bounds = {key: spec[key] for key in _BOUNDS if key in spec}
    require(where, _BOUNDS, bounds)
    if bounds.get("least", 0.0) > bounds.get("most", np.inf):
        raise ConfigError(f"expected least <= most, got {bounds['least']} and {bounds['most']}", where=where)
    found = [key for key in spec if key not in _BOUNDS]
    for name in found:
        if name not in names:
            raise ConfigError(not_one_of(name, (*names, *_BOUNDS)), where=where)
    if len(found) != 1:
        raise ConfigError(f"expected one of {', '.join(names)}, got {' and '.join(found) or 'none'}", where=where)
    name = found[0]
    place = f"{where}.{name}"
    drawn = _mixture(spec[name], place) if name == "mixture" else _named(name, spec[name], place)
    return Distribution(drawn, **bounds)


def _named(name: str, parameters: Any, where: str) -> Draw:
    rules, optional, draw = DISTRIBUTIONS[name]
    if not isinstance(parameters, Mapping):
        raise ConfigError(f"expected {', '.join(rules)}, got {parameters!r}", where=where)
    check_keys(where, parameters, rules)
    for key in rules:
        if key not in parameters and key not in optional:
            raise ConfigError("expected a number, got none", where=f"{where}.{key}")
    require(where, rules, parameters)
    low, high = parameters.get("low", 0), parameters.get("high", 0)
    if "low" in parameters and (high < low or (name == "pareto" and high == low)):
        raise ConfigError(f"expected low {'<' if name == 'pareto' else '<='} high, got {low} and {high}", where=where)
    if name == "powers_of_2" and np.ceil(np.log2(low)) > np.floor(np.log2(high)):
        raise ConfigError(f"expected a power of 2 from low to high, got {low} and {high}", where=where)
    weights = parameters.get("weights")
    if weights is not None and (len(weights) != len(parameters["values"]) or not sum(weights) > 0):
        raise ConfigError("expected a weight for each value, and one above 0", where=f"{where}.weights")
    return lambda rng, count: draw(rng, count, **parameters)


def _mixture(parts: Any, where: str) -> Draw:
    if not (isinstance(parts, list | tuple) and parts and all(isinstance(part, Mapping) for part in parts)):
        raise ConfigError("expected a list of {weight: NUMBER, NAME: {...}}", where=where)
    for number, part in enumerate(parts):
        require(f"{where}[{number}]", {"weight": POSITIVE}, {"weight": part.get("weight")})
    each = [
        distribution({key: value for key, value in part.items() if key != "weight"}, f"{where}[{number}]")
        for number, part in enumerate(parts)
    ]
    shares = np.array([part["weight"] for part in parts], float)
    shares /= shares.sum()

    def draw(rng: np.random.Generator, count: int) -> Floats:
        which = rng.choice(len(each), count, p=shares)
        values = np.empty(count)
        for number, one in enumerate(each):
            rows = np.flatnonzero(which == number)
            values[rows] = one.draw(rng, len(rows))
        return values

    return draw
