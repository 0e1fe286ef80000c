"""Moments of a replay that is under way, for what watches it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Moment:
    """State of a replay at a time in seconds: numbers of jobs, and of cores that running ones have asked for."""

    now: float
    done: int
    waiting: int
    running: int
    cores: float


#: Whether a replay shows a bar on standard error, or what watches its moments; the latter has a bar on a terminal.
Shown = bool | Callable[[Moment], None]
