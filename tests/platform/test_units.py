from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hdsim.util import units

PARSERS = {
    units.parse_bandwidth: units.BANDWIDTH_UNITS,
    units.parse_latency: units.LATENCY_UNITS,
    units.parse_size: units.SIZE_UNITS,
}
parsers = pytest.mark.parametrize("parse", PARSERS, ids=lambda parse: parse.__name__)


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (units.parse_bandwidth, "10.0Gbps", 1.25e9),
        (units.parse_bandwidth, "54.54Gbps", 6.8175e9),
        (units.parse_bandwidth, "1 GBps", 1e9),
        (units.parse_bandwidth, "8Kbps", 1e3),
        (units.parse_bandwidth, "8kbps", 1e3),
        (units.parse_bandwidth, "5e-1MBps", 5e5),
        (units.parse_latency, "100us", 1e-4),
        (units.parse_latency, "0us", 0.0),
        (units.parse_latency, "103.75ns", 103.75e-9),
        (units.parse_latency, " 1.5 ms ", 1.5e-3),
        (units.parse_latency, ".5s", 0.5),
        (units.parse_size, "12GB", 12e3),
        (units.parse_size, "1.5TB", 1.5e6),
        (units.parse_size, "1GiB", 1073.741824),
        (units.parse_size, "500KB", 0.5),
    ],
)
def test_a_quantity_is_the_double_nearest_to_what_is_written(parse, text, value):
    assert parse(text) == value


@pytest.mark.parametrize(
    ("parse", "text", "message"),
    [
        (units.parse_bandwidth, "10", "'10' without a unit; allowed units: bps, Kbps"),
        (units.parse_bandwidth, "10gbps", "unknown unit 'gbps' (did you mean 'Gbps'?)"),
        (units.parse_bandwidth, "10Gb/s", "got '10Gb/s'; allowed units: bps"),
        (units.parse_bandwidth, "0Gbps", "expected a bandwidth above 0, got '0Gbps'"),
        (units.parse_bandwidth, "-1Gbps", "negative '-1Gbps'"),
        (units.parse_bandwidth, "nanGbps", "got 'nanGbps'"),
        (units.parse_bandwidth, "1e400Gbps", "too large"),
        (units.parse_bandwidth, "", "got ''"),
        (units.parse_bandwidth, 10, "got 10; allowed units"),
        (units.parse_bandwidth, None, "got None; allowed units"),
        (units.parse_latency, "5min", "unknown unit 'min'"),
        (units.parse_latency, "1,5ms", "got '1,5ms'"),
        (units.parse_size, "12Gb", "unknown unit 'Gb' (did you mean 'GB'?)"),
    ],
)
def test_what_is_no_quantity_is_refused_with_what_is_allowed(parse, text, message):
    with pytest.raises(ValueError) as caught:
        parse(text)
    assert message in str(caught.value)


@parsers
@given(data=st.data(), number=st.floats(1e-6, 1e9))
def test_every_unit_scales(parse, data, number):
    unit, factor = data.draw(st.sampled_from(sorted(PARSERS[parse].items())))
    assert parse(f"{number!r}{unit}") == pytest.approx(number * float(factor), rel=1e-15)


@parsers
@given(text=st.text() | st.from_regex(r"[-+0-9.eE]{1,12} ?[a-zA-Zµ]{0,5}", fullmatch=True))
@example("1e999999999Gbps")
@example("١٢Gbps")
def test_no_text_is_anything_but_a_finite_quantity_or_a_value_error(parse, text):
    try:
        value = parse(text)
    except ValueError:
        return
    assert 0 <= value < float("inf")


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (units.format_bandwidth(1.25e9), "10 Gbps"),
        (units.format_bandwidth(float("inf")), "unlimited"),
        (units.format_bandwidth(50.0), "400 bps"),
        (units.format_latency(1e-4), "100 us"),
        (units.format_latency(0.0), "0 s"),
        (units.format_latency(2.0), "2 s"),
        (units.format_latency(5e-10), "0.5 ns"),
        (units.format_size(64e3), "64 GB"),
        (units.format_size(4.096e6), "4.096 TB"),
    ],
)
def test_quantities_are_shown_with_a_fitting_prefix(shown, text):
    assert shown == text
