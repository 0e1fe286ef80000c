"""Records of a training: progress.csv, actions.csv and TensorBoard events."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hdsim.util.arrays import Floats, Ints
from hdsim.util.files import GrowingCsv


class Records:
    """Accumulates statistics between two rows of progress.csv, and writes the rows.

    The checkpoint contains the rows: a resumed training rewrites the files with its first row, without duplicates.

    Args:
        directory: The run directory.
        actions: Names of the actions; without any there is no actions.csv.
        tensorboard: Write TensorBoard events, too, into its folder ``tensorboard``.
    """

    def __init__(self, directory: Path, actions: Sequence[str], *, tensorboard: bool) -> None:
        self._directory = directory
        # A row is a pair: numbers by name, and the share of each action.
        self._progress = GrowingCsv(directory / "progress.csv", lambda row, names: map(_cell, map(row[0].get, names)))
        self._action_shares = GrowingCsv(
            directory / "actions.csv", lambda row, _: map(_cell, (row[0]["step"], *row[1]))
        )
        self._actions = list(actions)
        self._tensorboard = tensorboard
        self._writer: Any = None
        self.rows: list[dict[str, float]] = []
        self._shares: list[list[float]] = []
        # Since the latest row: counts of actions, sum of rewards, losses by name, finished episodes.
        self._reset()

    def _reset(self) -> None:
        self._counts: Ints = np.zeros(len(self._actions), np.int64)
        self._reward = 0.0
        self._losses: dict[str, list[float]] = defaultdict(list)
        self._episodes: list[dict[str, float]] = []

    def step(self, actions: Ints, rewards: Floats, losses: Mapping[str, float]) -> None:
        """Records one step of E environments: actions (E,), rewards (E,), and losses after an update."""
        self._counts += np.bincount(actions, minlength=len(self._actions))
        self._reward += float(rewards.sum())
        for name, value in losses.items():
            self._losses[name].append(value)

    def episode(self, total: float, length: int, metrics: Mapping[str, float]) -> None:
        """Records a finished episode; a metric that it does not define counts in no mean."""
        defined = {name: value for name, value in metrics.items() if not math.isnan(value)}
        self._episodes.append({"return": total, "length": float(length), **defined})

    def row(self, step: int, **numbers: float) -> dict[str, float]:
        """Completes a row at a step, adds further numbers, and writes the files.

        The row of an interrupted evaluation already exists.
        """
        if self.rows and self.rows[-1]["step"] == step:
            return self.rows[-1]
        counts = self._counts
        episodes: dict[str, list[float]] = defaultdict(list)
        for episode in self._episodes:
            for name, value in episode.items():
                episodes[name].append(value)
        row = {
            "step": step,
            **numbers,
            **({"mean_reward": self._reward / max(counts.sum(), 1)} if self._actions else {}),
            **{f"episode_{name}": float(np.mean(values)) for name, values in episodes.items()},
            **{name: float(np.mean(values)) for name, values in self._losses.items()},
        }
        self.rows.append(row)
        self._shares.append((counts / max(counts.sum(), 1)).tolist())
        if self._tensorboard:
            self._events(step, row)
        self._reset()
        self.write()
        return row

    def add(self, step: int, **numbers: float) -> None:
        """Adds numbers to the latest row, which must be of this step."""
        self.rows[-1] |= numbers
        if self._tensorboard:
            for name, value in numbers.items():
                self._writer_from(step).add_scalar(f"evaluation/{name}", value, step)
        self.write()

    def write(self) -> None:
        """Writes progress.csv and actions.csv."""
        rows = list(zip(self.rows, self._shares, strict=True))
        self._progress.write(list(dict.fromkeys(name for row in self.rows for name in row)), rows)
        if self._actions:
            self._action_shares.write(["step", *self._actions], rows)

    def close(self) -> None:
        """Flushes the TensorBoard writer."""
        if self._writer is not None:
            self._writer.close()

    def state_dict(self) -> dict[str, Any]:
        """State for a checkpoint."""
        return {
            "rows": self.rows,
            "shares": self._shares,
            "counts": self._counts,
            "reward": self._reward,
            "losses": dict(self._losses),
            "episodes": self._episodes,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores the state; TensorBoard hides later events."""
        self.rows, self._shares = state["rows"], state["shares"]
        self._counts, self._reward = state["counts"], state["reward"]
        self._losses = defaultdict(list, state["losses"])
        self._episodes = state["episodes"]

    def _events(self, step: int, row: Mapping[str, float]) -> None:
        writer = self._writer_from(step)
        for name, value in row.items():
            if name in self._losses:
                writer.add_scalar(f"losses/{name}", value, step)
            elif name.startswith("episode_"):
                writer.add_scalar(f"episodes/{name.removeprefix('episode_')}", value, step)
            elif name != "step":
                writer.add_scalar(f"training/{name}", value, step)
        if not self._actions:
            return
        counts = self._counts.astype(float)
        # One bin per action.
        writer.add_histogram_raw(
            "actions",
            min=-0.5,
            max=len(counts) - 0.5,
            num=counts.sum(),
            sum=float(counts @ np.arange(len(counts))),
            sum_squares=float(counts @ np.arange(len(counts)) ** 2),
            bucket_limits=(np.arange(len(counts)) + 0.5).tolist(),
            bucket_counts=counts.tolist(),
            global_step=step,
        )

    def _writer_from(self, step: int) -> Any:
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            # Events that a crashed run wrote after its last checkpoint are hidden.
            self._writer = SummaryWriter(str(self._directory / "tensorboard"), purge_step=step)
        return self._writer


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.9g}"
