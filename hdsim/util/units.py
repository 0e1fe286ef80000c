"""Quantities with units: ``"54.54Gbps"``, ``"100us"``, ``"12GB"``.

A number without a unit and an unknown unit are errors. A lower-case ``b`` is a bit, an upper-case ``B`` a byte.
Prefixes are powers of 1000, ``Ki``, ``Mi``... powers of 1024. A text that is no number of at least 0 (a bandwidth:
above 0) with one of the units is a ValueError.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from decimal import Decimal

import numpy as np
from numpy.typing import NDArray

from hdsim.errors import nearest

#: Longest time in seconds that inputs may hold: floats are 0.0001 s apart there.
LONGEST_TIME = 1e12
JOULES_PER_KWH = 3.6e6
_PREFIXES = {"": 1, "K": 10**3, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY_PREFIXES = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}

#: Units of a bandwidth, in byte/s.
BANDWIDTH_UNITS: Mapping[str, Decimal] = {
    **{f"{prefix}bps": Decimal(factor) / 8 for prefix, factor in _PREFIXES.items()},
    **{f"{prefix}Bps": Decimal(factor) for prefix, factor in _PREFIXES.items()},
}
#: Units of a latency, in seconds.
LATENCY_UNITS: Mapping[str, Decimal] = {
    "s": Decimal(1),
    "ms": Decimal("1e-3"),
    "us": Decimal("1e-6"),
    "ns": Decimal("1e-9"),
}
#: Units of a duration, in seconds.
DURATION_UNITS: Mapping[str, Decimal] = {
    "s": Decimal(1),
    "min": Decimal(60),
    "h": Decimal(3600),
    "d": Decimal(86400),
}
#: Units of a memory size, in MB (10^6 byte).
SIZE_UNITS: Mapping[str, Decimal] = {
    f"{prefix}B": Decimal(factor) / 10**6 for prefix, factor in (_PREFIXES | _BINARY_PREFIXES).items()
}
#: Units of an amount of CPU, in cores.
CPU_UNITS: Mapping[str, Decimal] = {"": Decimal(1), "m": Decimal("1e-3")}

_QUANTITY = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?)\s*([^\W\d]*)\s*", re.ASCII)


def parse_bandwidth(text: str) -> float:
    """Returns a bandwidth such as ``"10.0Gbps"`` or ``"1.25GBps"`` in byte/s."""
    value = _parse(text, BANDWIDTH_UNITS, "a bandwidth such as '10Gbps'")
    if value == 0:
        raise ValueError(f"expected a bandwidth above 0, got '{text}'")
    return value


def parse_latency(text: str) -> float:
    """Returns a latency such as ``"100us"`` in seconds."""
    return _parse(text, LATENCY_UNITS, "a latency such as '100us'")


def parse_duration(text: str) -> float:
    """Returns a duration such as ``"1000h"`` in seconds."""
    return _parse(text, DURATION_UNITS, "a duration such as '1000h'")


def parse_size(text: str) -> float:
    """Returns a memory size such as ``"12GB"`` in MB (10^6 byte)."""
    return _parse(text, SIZE_UNITS, "an amount of memory such as '12GB'")


def parse_cpu(text: str) -> float:
    """Returns an amount of CPU such as ``"3920m"`` or ``"4"`` in cores, rounded up to thousandths as in Kubernetes."""
    return math.ceil(round(_parse(text, CPU_UNITS, "CPU such as '3920m' or '4'") * 1000, 6)) / 1000


def _parse(text: str, units: Mapping[str, Decimal], expected: str) -> float:
    allowed = f"allowed units: {', '.join(unit or 'none' for unit in units)}"
    match = _QUANTITY.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f"expected {expected}, got {text!r}; {allowed}")
    number, unit = match.groups()
    if not unit and unit not in units:
        raise ValueError(f"expected {expected}, got '{text}' without a unit; {allowed}")
    if unit not in units:
        same_letters = [known for known in units if known.lower() == unit.lower()]
        hint = nearest(unit, same_letters or units)
        raise ValueError(f"expected {expected}, got '{text}' with the unknown unit '{unit}'{hint}; {allowed}")
    # Decimal arithmetic makes 100 us the double nearest to 0.0001, which 100 * 1e-6 is not.
    value = float(Decimal(number) * units[unit])
    if value < 0:
        raise ValueError(f"expected {expected}, got the negative '{text}'")
    if value == float("inf"):
        raise ValueError(f"expected {expected}, got '{text}', which is too large")
    return value


def format_bandwidth(bytes_per_second: float) -> str:
    """Formats a bandwidth in byte/s, such as ``"10 Gbps"``."""
    return "unlimited" if bytes_per_second == float("inf") else f"{scaled(bytes_per_second * 8)}bps"


def format_latency(seconds: float) -> str:
    """Formats a latency in seconds, such as ``"100 us"``."""
    for unit, factor in LATENCY_UNITS.items():
        if seconds >= factor:
            return f"{seconds / float(factor):g} {unit}"
    return "0 s" if seconds == 0 else f"{seconds * 1e9:g} ns"


def format_size(megabytes: float) -> str:
    """Formats a memory size in MB, such as ``"12 GB"``."""
    return "unlimited" if megabytes == float("inf") else f"{scaled(megabytes * 1e6)}B"


def scaled(value: float) -> str:
    """Formats a number with a metric prefix, such as ``"2.5 G"``."""
    for prefix, factor in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= factor:
            return f"{value / factor:.4g} {prefix}"
    return f"{value:.4g} "


def in_bytes(megabytes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns memory in integer bytes, whose sums and differences are exact; those of fractions of a MB are not."""
    return np.round(megabytes * 1e6)
