"""The least evidence of a claim about agents."""

from __future__ import annotations

#: Fewest windows of a claim, and fewest traces that they are of.
FEWEST_WINDOWS, FEWEST_TRACES = 100, 20


def shortfall(windows: int, traces: int) -> str:
    """Returns why windows of traces are not enough for a claim, an empty text if they are."""
    if windows >= FEWEST_WINDOWS and traces >= FEWEST_TRACES:
        return ""
    least = f"at least {FEWEST_WINDOWS} windows of {FEWEST_TRACES} traces"
    return f"not enough for a claim: expected {least}, got {windows} of {traces}"
