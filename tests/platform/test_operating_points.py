"""Operating points of processor types: what a file may say, and what a platform makes of it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from hdsim import Platform
from hdsim.errors import PlatformError
from hdsim.platform.frequencies import slowdown

POINTS = [(2.0, 2.0, 8.0), (1.0, 1.5, 2.5), (2.5, 2.0, 13.0)]


def document(points: Any = None, **keys: Any) -> dict[str, Any]:
    """A node with a processor of four cores of 10 W at 2 GHz."""
    if points is None:
        points = [dict(zip(("ghz", "static_watts", "dynamic_watts"), point, strict=True)) for point in POINTS]
    processor = {"cores": 4, "clock_rate": 2.0, "dpflops_per_cycle": 4, "power": 40, "frequencies": points, **keys}
    return {
        "clusters": [{"id": "c", "nodes": [{"type": "n", "number": 2}]}],
        "types": {"node": {"n": {"processors": [{"type": "p", "number": 1}]}}, "processor": {"p": processor}},
    }


def test_frequencies_are_in_order_and_survive_a_round_trip() -> None:
    platform = Platform.from_dict(document())
    assert platform.operating_points == (tuple(sorted(POINTS)),)
    again = Platform.from_dict(platform.to_dict())
    assert again.operating_points == platform.operating_points
    assert again.to_dict() == platform.to_dict()
    assert again.to_dict()["types"]["processor"] == document()["types"]["processor"]
    table = platform.frequencies
    assert table is not None
    assert (table.nominal, table.ghz.tolist()) == (2.0, [1.0, 2.0, 2.5])
    assert table.more.tolist() == [[-6.0], [0.0], [5.0]]
    assert table.below(2.5) == [2.0, 1.0]
    assert table.more_watts(math.nan).tolist() == [0.0]
    # Speed and power of a platform are those of the nominal frequency.
    plain = document()
    del plain["types"]["processor"]["p"]["frequencies"]
    without = Platform.from_dict(plain)
    assert without.frequencies is None
    assert without.gflops.tolist() == platform.gflops.tolist()
    assert without.power.tolist() == platform.power.tolist()


def test_the_run_time_follows_the_share_that_is_bound_by_the_frequency() -> None:
    assert slowdown(1.0, 2.0, 1.0) == 2
    assert slowdown(0.0, 2.0, 1.0) == 1
    assert slowdown(0.5, 2.0, 2.5) == pytest.approx(0.9)
    assert slowdown(np.array([0.0, 1.0]), 2.0, 1.0).tolist() == [1, 2]


def test_types_with_other_frequencies_share_none() -> None:
    mixed = document()
    mixed["types"]["processor"]["q"] = {**mixed["types"]["processor"]["p"], "power": 80, "frequencies": None}
    mixed["types"]["node"]["n"]["processors"].append({"type": "q", "number": 1})
    assert Platform.from_dict(mixed).frequencies is None
    mixed["types"]["processor"]["q"] |= {
        "power": 40,
        "clock_rate": 1.0,
        "frequencies": document()["types"]["processor"]["p"]["frequencies"],
    }
    with pytest.raises(PlatformError, match=r"frequencies: expected 10 W at 1 GHz, power / cores, got 4 W"):
        Platform.from_dict(mixed)
    # GPUs have none, and keep the others from nothing.
    mixed["types"]["processor"]["q"] = {
        "cores": 1,
        "clock_rate": 1.0,
        "dpflops_per_cycle": 4,
        "power": 200,
        "type": "GPU",
    }
    table = Platform.from_dict(mixed).frequencies
    assert table is not None
    assert table.more.tolist() == [[-6, 0], [0, 0], [5, 0]]


@pytest.mark.parametrize(
    ("points", "keys", "message"),
    [
        ({}, {}, r"frequencies: expected a list \[...\] of at least one element"),
        ([{"ghz": 2.0, "static_watts": 10}], {}, r"frequencies\[0\].dynamic_watts: expected a value, got none"),
        (
            [{"ghz": 0, "static_watts": 2, "dynamic_watts": 8}],
            {},
            r"frequencies\[0\].ghz: expected a number above 0 \(GHz\), got 0",
        ),
        (
            [{"ghz": 1.0, "static_watts": 2, "dynamic_watts": 8}],
            {},
            "frequencies: expected the nominal frequency among them, the clock_rate 2.0 GHz, got none",
        ),
        (
            [{"ghz": 2.0, "static_watts": 2, "dynamic_watts": 9}],
            {},
            "frequencies: expected 10 W at 2 GHz, power / cores, got 11 W",
        ),
        (
            [{"ghz": 2.0, "static_watts": 2, "dynamic_watts": 8}, {"ghz": 1.0, "static_watts": 1, "dynamic_watts": 1}],
            {},
            r"frequencies\[1\]: expected at least the 2.5 W of an idle core beside a busy one, got 2 W",
        ),
        (
            [{"ghz": 2.0, "static_watts": 2, "dynamic_watts": 8}] * 2,
            {},
            r"frequencies\[1\].ghz: expected a frequency of its own, got 2 a second time",
        ),
        (
            [{"ghz": 2.0, "static_watts": 2, "dynamic_watts": 8, "volts": 1}],
            {},
            r"frequencies\[0\].volts: unknown key; allowed: ghz, static_watts, dynamic_watts",
        ),
        (None, {"type": "GPU"}, "frequencies: expected no frequencies of a GPU, got some"),
    ],
)
def test_frequencies_with_faults(points: Any, keys: dict[str, Any], message: str) -> None:
    with pytest.raises(PlatformError, match=rf"types\.processor\.p\.{message}"):
        Platform.from_dict(document(points, **keys))
