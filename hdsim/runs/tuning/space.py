"""Spaces of settings: the grammar of Hydra's sweeps as distributions of Optuna."""

from __future__ import annotations

from collections.abc import Mapping
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

_ALLOWED = "choice(a,b), range(low,high,step), interval(low,high), int(interval(low,high)) or log(low,high)"


@dataclass(frozen=True)
class Space:
    """Settings that are searched for.

    Attributes:
        distributions: Distribution of each key of the configuration; choices are the texts of overrides.
    """

    distributions: Mapping[str, BaseDistribution]

    @classmethod
    def parse(cls, texts: Mapping[str, Any]) -> Space:
        """Reads a space.

        Args:
            texts: Values of each key as in an override: ``"tag(log, interval(1e-4, 1e-2))"``.

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
    except (HydraException, LookupError, ValueError, TypeError) as error:
        fault = str(error).partition("\n")[0]
        raise ConfigError(f"expected {_ALLOWED}, got '{text}': {fault}", where=where) from None
    raise ConfigError(f"expected {_ALLOWED}, got '{text}'", where=where)
