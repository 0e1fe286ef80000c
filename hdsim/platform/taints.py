"""Taints of nodes, which pods must tolerate."""

from __future__ import annotations

from dataclasses import dataclass

NO_SCHEDULE, NO_EXECUTE, PREFER_NO_SCHEDULE = EFFECTS = ("NoSchedule", "NoExecute", "PreferNoSchedule")


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint of a node; a value is empty for none, an effect is one of :data:`EFFECTS`."""

    key: str
    value: str
    effect: str

    def __str__(self) -> str:
        """The taint as ``kubectl`` writes it, ``KEY=VALUE:EFFECT``."""
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"

    @property
    def forbids(self) -> bool:
        """Whether the node takes only pods that tolerate the taint; PreferNoSchedule is a preference."""
        return self.effect != PREFER_NO_SCHEDULE
