"""The period that means are taken over: a replay without its warm-up and its cool-down."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hdsim.errors import ConfigError
from hdsim.util.arrays import Floats
from hdsim.util.rules import is_finite
from hdsim.util.units import DURATION_UNITS, parse_duration

#: Settings of the period.
KEYS = ("warmup", "cooldown")

_PERCENT = re.compile(r"(\d+\.?\d*|\.\d+)%", re.ASCII)


@dataclass(frozen=True)
class Period:
    """Bounds of a period, in seconds since the first submission.

    Attributes:
        begin: End of the warm-up.
        end: Begin of the cool-down, infinite without one.
    """

    begin: float = 0.0
    end: float = math.inf

    @classmethod
    def of(cls, settings: Mapping[str, Any], submission: Floats) -> Period:
        """Returns the period that settings stand for.

        Args:
            settings: ``warmup`` and ``cooldown``, either of which may be missing: seconds from the first submission on
                and back from the last, a text such as ``"1d"``, or ``"10%"`` of the jobs by submission; None for none.
            submission: (J,) submission times in seconds.

        Raises:
            ConfigError: A setting is none of these.
        """
        given = {key: settings[key] for key in KEYS if settings.get(key) is not None}
        if not given:
            return cls()
        begin, end, times = cls.begin, cls.end, np.sort(submission)
        for key, value in given.items():
            jobs, seconds = _left_out(key, value, len(times))
            if len(times) and (jobs or seconds):
                if key == "warmup":
                    begin = float(times[jobs]) + seconds
                else:
                    end = float(times[-1 - jobs]) - seconds
        return cls(begin, end)

    @classmethod
    def checked(cls, settings: Mapping[str, Any], submission: Floats) -> Period:
        """Returns the same.

        Raises:
            ConfigError: A setting is wrong, or leaves no job.
        """
        period = cls.of(settings, submission)
        if len(submission) and not period.has(submission).any():
            told = ", ".join(f"{key}={settings[key]}" for key in KEYS if settings.get(key) is not None)
            raise ConfigError(
                f"expected a warm-up and a cool-down that leave jobs, got {told}; jobs come for "
                f"{submission.max():g} seconds",
                where="warmup" if settings.get("cooldown") is None else "cooldown",
            )
        return period

    def has(self, times: Floats) -> NDArray[np.bool_]:
        """Returns whether each time belongs to the period, its bounds included."""
        return (times >= self.begin) & (times <= self.end)

    def counts(self, submission: Floats, finish: Floats) -> NDArray[np.bool_]:
        """Returns whether statistics count each job: it has a `finish`, and was submitted in the period."""
        return ~np.isnan(finish) & self.has(submission)


def _left_out(key: str, value: Any, count: int) -> tuple[int, float]:
    """The jobs, of `count`, or else the seconds that a setting leaves out."""
    share = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    if share and float(share[1]) < 100:
        return math.floor(float(share[1]) / 100 * count), 0.0
    seconds: Any = value
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            seconds = parse_duration(value)
    if not is_finite(seconds) or seconds < 0:
        units = ", ".join(DURATION_UNITS)
        raise ConfigError(
            f"expected seconds >= 0, a text with a unit ({units}) or a percentage of the jobs below 100%, "
            f"got {value!r}",
            where=key,
        )
    return 0, float(seconds)
