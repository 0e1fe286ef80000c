"""The table of a sweep at its end: configurations by metrics, as an experiment asks for it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from hydra.experimental.callback import Callback

from hdsim.report.compare import compare
from hdsim.report.compare_output import means, write_csv
from hdsim.util.files import shown


class SweepTable(Callback):
    """A callback of Hydra that prints the means of a sweep in some metrics with their intervals, the best marked."""

    def __init__(self, metrics: Sequence[str]) -> None:
        self._metrics = list(metrics)

    def on_multirun_end(self, config: Any, **kwargs: Any) -> None:
        """Prints the table, and writes it as ``table.csv`` in the directory of the sweep."""
        directory = Path(config.hydra.sweep.dir)
        comparison = compare([directory], self._metrics)
        write_csv(comparison.rows, directory / "table.csv")
        click.echo(f"\n{means(comparison)}\n\ntable          {shown(directory / 'table.csv')}")
