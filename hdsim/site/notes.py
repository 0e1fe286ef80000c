"""Notes of an import: rows read, changed and left out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

#: Places of each reason that are shown.
_EXAMPLES = 3


@dataclass
class Notes:
    """Counts by file and reason, with the first places of each."""

    read: dict[str, int] = field(default_factory=dict)  # rows or lines by file
    left_out: dict[str, dict[str, int]] = field(default_factory=dict)
    changed: dict[str, dict[str, int]] = field(default_factory=dict)
    examples: dict[tuple[str, str], list[str]] = field(default_factory=dict)

    def leave_out(self, file: str, reason: str, place: str = "", count: int = 1) -> None:
        """Notes rows or values that have no effect."""
        self._add(self.left_out, file, reason, place, count)

    def change(self, file: str, reason: str, place: str = "", count: int = 1) -> None:
        """Notes rows or values that are used in another way than they are written."""
        self._add(self.changed, file, reason, place, count)

    def _add(self, table: dict[str, dict[str, int]], file: str, reason: str, place: str, count: int) -> None:
        if count:
            reasons = table.setdefault(file, {})
            reasons[reason] = reasons.get(reason, 0) + count
            shown = self.examples.setdefault((file, reason), [])
            if place and len(shown) < _EXAMPLES:
                shown.append(place)

    def rows(self) -> Iterable[tuple[str, str, str, int, str]]:
        """Yields file, ``left out`` or ``changed``, reason, count and examples."""
        for word, table in (("left out", self.left_out), ("changed", self.changed)):
            for file, reasons in table.items():
                for reason, count in sorted(reasons.items(), key=lambda each: -each[1]):
                    yield file, word, reason, count, "; ".join(self.examples[file, reason])

    def document(self) -> dict[str, object]:
        """The content of ``import.json``."""
        return {"read": self.read, "left_out": self.left_out, "changed": self.changed}
