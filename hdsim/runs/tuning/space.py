"""Spaces of settings: the grammar of Hydra's sweeps as distributions of Optuna."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from hydra.core.override_parser.overrides_parser import OverridesParser, create_functions
from hydra.core.override_parser.types import ChoiceSweep, IntervalSweep, RangeSweep
from hydra.errors import HydraException
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from hdsim.errors import ConfigError

#: Most settings of a space that are listed.
_MOST = 10_000
_ALLOWED = "choice(a,b), range(low,high,step), interval(low,high), int(interval(low,high)) or log(low,high)"


@dataclass(frozen=True)
class SearchSpace:
    """Settings that are searched for.

    Attributes:
        distributions: Distribution of each key of the configuration; choices are the texts of overrides.
    """

    distributions: Mapping[str, BaseDistribution]

    @classmethod
    def parse(cls, texts: Mapping[str, Any]) -> SearchSpace:
        """Reads a space.

        Raises:
            ConfigError: There is no key, or a text is no such range.
        """
        if not texts:
            raise ConfigError("expected the settings to search for, such as tune.space.KEY=a,b", where="tune.space")
        functions = create_functions()
        functions.register("log", lambda low, high: IntervalSweep({"log"}, float(low), float(high)))
        parser = OverridesParser(functions=functions)
        return cls({key: _distribution(parser, key, str(text)) for key, text in texts.items()})

    def overrides(self, values: Mapping[str, Any]) -> list[str]:
        """Overrides that set the values of a trial."""
        return [f"{key}={values[key]}" for key in self.distributions]

    def untried(self, tried: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]] | None:
        """The settings that no trial has had, in the order of the choices; None of a space with more than 10,000."""
        values: list[Sequence[Any]] = []
        for distribution in self.distributions.values():
            if isinstance(distribution, CategoricalDistribution):
                values.append(distribution.choices)
            elif isinstance(distribution, IntDistribution):
                values.append(range(distribution.low, distribution.high + 1, distribution.step))
            else:
                return None
        if math.prod(map(len, values)) > _MOST:
            return None
        known = {tuple(each[key] for key in self.distributions) for each in tried}
        left = [found for found in itertools.product(*values) if found not in known]
        return [dict(zip(self.distributions, found, strict=True)) for found in left]

    def first(self) -> dict[str, Any]:
        """The first choice, or the lowest value, of each setting."""
        return {
            key: distribution.choices[0] if isinstance(distribution, CategoricalDistribution) else distribution.low
            for key, distribution in self.distributions.items()
            if isinstance(distribution, CategoricalDistribution | FloatDistribution | IntDistribution)
        }


def _distribution(parser: OverridesParser, key: str, text: str) -> BaseDistribution:
    where = f"tune.space.{key}"
    try:
        override = parser.parse_override(f"{key}={text}")
        value: Any = override.value()
        logarithmic = "log" in getattr(value, "tags", ())
        if isinstance(value, IntervalSweep):
            integers = isinstance(value.start, int)
            kind: Any = IntDistribution if integers else FloatDistribution
            return cast(BaseDistribution, kind(value.start, value.end, log=logarithmic))
        if isinstance(value, RangeSweep):
            values = list(value.range())
            if not values:
                raise ValueError("the range is empty")
            kind = IntDistribution if isinstance(values[0], int) else FloatDistribution
            return cast(BaseDistribution, kind(min(values), max(values), step=abs(value.step)))
        if isinstance(value, ChoiceSweep):
            return CategoricalDistribution([str(choice) for choice in override.sweep_string_iterator()])
    except (HydraException, LookupError, ValueError, TypeError, ArithmeticError) as error:
        fault = str(error).partition("\n")[0]
        raise ConfigError(f"expected {_ALLOWED}, got '{text}': {fault}", where=where) from None
    raise ConfigError(f"expected {_ALLOWED}, got '{text}'", where=where)
