"""The table of the P-states of cores, from which speeds and powers derive."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PState:
    """One P-state of a core."""

    name: str  # description of the state
    speed: float  # share of the core's peak speed, 0..1
    power: float  # share of the core's power, 0..1


#: P-states of HDeepRM as executed by Batsim, by number.
PSTATES: tuple[PState, ...] = (
    PState("computing", 1.0, 1.0),
    PState("computing, bandwidth oversubscribed", 0.75, 1.0),
    PState("idle beside a computing core", 0.0, 0.25),
    PState("idle in an idle processor", 0.0, 0.05),
)
COMPUTING, OVERSUBSCRIBED, IDLE, IDLE_PACKAGE = range(4)
