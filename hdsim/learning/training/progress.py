"""Progress of a training on standard error: a bar on a terminal, lines of text elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from time import perf_counter

from tqdm import tqdm

#: Least seconds between two lines without an evaluation.
_INTERVAL = 30.0
_SHOWN = {"episodes": "episode", "episode_return": "reward", "loss": "loss"}


class TrainingProgress:
    """Shows steps and rows of progress.csv."""

    def __init__(self, steps: int, begun: int, *, shown: bool) -> None:
        terminal = sys.stderr.isatty()
        self._steps, self._lines, self._told = steps, shown and not terminal, perf_counter()
        self._bar = tqdm(
            total=steps, initial=min(begun, steps), unit="step", desc="training", disable=not (shown and terminal)
        )

    def close(self) -> None:
        """Removes the bar."""
        self._bar.close()

    def step(self, step: int) -> None:
        """Shows a step."""
        self._bar.update(min(step, self._steps) - self._bar.n)

    def row(self, row: Mapping[str, float]) -> None:
        """Shows a row of progress.csv; every evaluation has a line, other rows one from time to time."""
        numbers = {told: row[name] for name, told in _SHOWN.items() if name in row}
        self._bar.set_postfix(numbers, refresh=False)
        scores = {name: value for name, value in row.items() if name.startswith("validation_")}
        if self._lines and (scores or perf_counter() - self._told >= _INTERVAL):
            self._told = perf_counter()
            told = "".join(f"  {name} {value:.6g}" for name, value in (numbers | scores).items())
            print(f"step {row['step']:,} of {self._steps:,}  {row['seconds']:.0f} s{told}", file=sys.stderr, flush=True)
