"""Which tests run: those of every change, with ``--ci`` those of CI as well, with ``--all`` all (docs/inside.md)."""

from __future__ import annotations

import os
import sys
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
    return [pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.ci) for value in values]


def examples(usual: int, nightly: int, **options: Any) -> settings:
    """How many examples a property test draws in CI and in the nightly tier; a third of the former for every change."""
    counts = {"": max(usual // 3, 1), "--ci": usual, "--all": nightly}
    return settings(max_examples=counts[TIER], **options)
