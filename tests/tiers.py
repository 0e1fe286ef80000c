"""Which tests run: those of every change, with ``--ci`` those of CI as well, with ``--all`` all (tests/README.md)."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings

#: Marks of the tests that a tier leaves out, by the option that asks for it.
LEFT_OUT: dict[str, tuple[str, ...]] = {"": ("ci", "nightly"), "--ci": ("nightly",), "--all": ()}

for _option in ("--ci", "--all"):
    if _option in sys.argv:
        # Workers of pytest-xdist inherit the environment, not the arguments.
        os.environ["HDSIM_TESTS"] = _option

TIER = os.environ.get("HDSIM_TESTS", "")
ALL = TIER == "--all"


def ci(*values: Any) -> list[Any]:
    """Parameters of a test with which `make test` leaves it out."""
    return _marked(values, pytest.mark.ci)


def nightly(*values: Any) -> list[Any]:
    """Parameters of a test with which `make test` and `.ci/run` leave it out."""
    return _marked(values, pytest.mark.nightly)


def pairs(first: Iterable[Any], second: Iterable[Any]) -> list[Any]:
    """Parameters of a test of two values: each value is in a pair of every tier, the other pairs are nightly."""
    first, second = list(first), list(second)
    return [
        pair if i % len(second) == j % len(first) else nightly(pair)[0]
        for (i, one), (j, other) in itertools.product(enumerate(first), enumerate(second))
        for pair in [(one, other)]
    ]


def _marked(values: tuple[Any, ...], mark: pytest.MarkDecorator) -> list[Any]:
    return [pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=mark) for value in values]


def examples(usual: int, at_night: int | None = None, **options: Any) -> settings:
    """How many examples a property test draws.

    A fifth of `usual` for every change, half of it in CI, and `at_night`, by default `usual`, in the nightly tier.
    """
    counts = {"": max(usual // 5, 1), "--ci": max(usual // 2, 1), "--all": at_night or usual}
    return settings(max_examples=counts[TIER], **options)
