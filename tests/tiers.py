"""Which tests run: the usual tier, or with ``--all`` the nightly one as well (docs/inside.md)."""

from __future__ import annotations

import os
import sys
from typing import Any

from hypothesis import settings

if "--all" in sys.argv:
    # Workers of pytest-xdist inherit the environment, not the arguments.
    os.environ["HDSIM_TESTS"] = "all"

ALL = os.environ.get("HDSIM_TESTS") == "all"


def examples(usual: int, nightly: int, **options: Any) -> settings:
    """How many examples a property test draws in the usual tier and in the nightly one."""
    return settings(max_examples=nightly if ALL else usual, **options)
