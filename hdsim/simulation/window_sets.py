"""Sets of windows: training, validation and test windows of a family, a kind or a file, none of which share a job."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from hdsim.errors import ConfigError
from hdsim.results.claims import shortfall
from hdsim.results.run_directory.inputs import digest
from hdsim.simulation.windows import Window, windows
from hdsim.util.rules import texts
from hdsim.workload.generators.base import require_split
from hdsim.workload.generators.families import FAMILIES, draw_workload
from hdsim.workload.generators.kinds import is_kind
from hdsim.workload.generators.like import Like
from hdsim.workload.load import load_workload

if TYPE_CHECKING:
    from hdsim.workload.model import Workload

#: Parts of a trace file by split, as shares of its jobs: tests are later than all that an agent may learn from.
PARTS = {"train": (0.0, 0.6), "validation": (0.6, 0.8), "test": (0.8, 1.0)}
#: Numbers of traces of a set, which no other set of the split has.
_SET = 1_000_000


@dataclass(frozen=True)
class WindowSet:
    """Windows of a family, of a kind of machine and load, or of a trace file.

    Attributes:
        source: Name of a family, a kind (:func:`hdsim.workload.generators.kinds.read_kind`), or a trace: a file or a
            bundled name.
        split: ``train``, ``validation`` or ``test``. Drawn traces have other seeds in each split, a file is cut in time
            at 60 and 80 % of its jobs.
        number: Number of the set in its split; sets of different numbers have no trace in common.
        traces: Number of traces; of a file, of its parts one after the other, at most as many as there are.
        count: Windows of a trace.
        jobs: Jobs of a window.
        warmup: Jobs before each window, see :class:`hdsim.simulation.windows.Window`.
        base: Policy of the warm-up.
        arrival_factor: Factor of the inter-arrival times of a file.
        whole: The whole file belongs to this split, as nothing is trained on it.
        like: Traces are drawn from the sessions of the users in the part of the file that belongs to the split
            (:class:`hdsim.workload.generators.like.Like`).
        since: Of a file that nothing is trained on: the share of its jobs from which on they are for tests, all before
            them for the choice of what to compare with; None: see `split`.

    Raises:
        ConfigError: There is no such family, trace or split.
    """

    source: str
    split: str = "train"
    number: int = 0
    traces: int = 100
    count: int = 2
    jobs: int = 1024
    warmup: int = 1024
    base: str = "easy"
    arrival_factor: float = 1.0
    whole: bool = False
    like: bool = False
    since: float | None = None

    def __post_init__(self) -> None:
        """Checks the settings."""
        require_split(self.split, "split")
        object.__setattr__(self, "source", texts(self.source))
        if self.drawn and (self.arrival_factor != 1 or self.whole or self.like or self.since is not None):
            told = "expected a trace file for arrival_factor, whole, since and like, got a family or a kind"
            raise ConfigError(told, where=self.source)
        if self.since is not None and (self.whole or not 0 < self.since < 1):
            told = f"expected a share between 0 and 1 without whole, got since={self.since}"
            raise ConfigError(told, where=self.source)

    @property
    def drawn(self) -> bool:
        """Whether the traces are those of a family or a kind."""
        return self.source in FAMILIES or is_kind(self.source)

    @property
    def has_sets(self) -> bool:
        """Whether there are sets of any number; a file has as many as its length allows."""
        return self.drawn or self.like

    @cached_property
    def windows(self) -> tuple[Window, ...]:
        """The windows, those of a trace one after the other.

        Raises:
            HdsimError: A trace cannot be drawn or read, or is too short.
        """
        length = self.warmup + self.count * self.jobs
        numbers = range(self.number * _SET, self.number * _SET + self.traces)
        if self.drawn:
            traces = [draw_workload(self.source, i, length, split=self.split) for i in numbers]
        elif self.like:
            part = self._share
            sessions = Like(self.source, length, part, split=self.split, status="ignore")
            traces = [sessions.generate(None, i).scaled_arrivals(self.arrival_factor) for i in numbers]
        else:
            traces = self._parts(length)
        return tuple(
            window
            for number, trace in enumerate(traces)
            for window in windows(trace, self.count, self.jobs, warmup=self.warmup, base=self.base, number=number)
        )

    @property
    def _share(self) -> tuple[float, float]:
        """Begin and end of the part of a file that belongs to the split, as shares of its jobs."""
        if self.since is not None:
            return (self.since, 1.0) if self.split == "test" else (0.0, self.since)
        return (0.0, 1.0) if self.whole else PARTS[self.split]

    def _parts(self, length: int) -> list[Workload]:
        """Parts of a file with `length` jobs each, one after the other."""
        trace = _read(self.source, self.arrival_factor)
        low, high = self._share
        first = round(low * len(trace)) + self.number * self.traces * length
        found = min((round(high * len(trace)) - first) // length, self.traces)
        if found < 1:
            raise ConfigError(
                f"expected at least {length} jobs in the {self.split} part of the file from job {first} on, got "
                f"{max(round(high * len(trace)) - first, 0)}",
                where=self.source,
            )
        return [trace[first + i * length : first + (i + 1) * length] for i in range(found)]

    @cached_property
    def digest(self) -> str:
        """The sha256 of the jobs of all windows and of how they begin."""
        told = [f"{window.warmup} {window.base} {digest(window.workload)}" for window in self.windows]
        return hashlib.sha256("\n".join(told).encode()).hexdigest()

    @property
    def shortfall(self) -> str:
        """Why the set is not enough for a claim, empty if it is."""
        return shortfall(len(self.windows), len({window.trace for window in self.windows}))

    def described(self) -> dict[str, str | int]:
        """The set, for a model card or a log."""
        start = f"warm, {self.warmup} jobs under {self.base}" if self.warmup else "empty"
        # The digest tells files of one name apart.
        name = Path(self.source).name
        name = name if self.arrival_factor == 1 else f"{name} with arrivals x {self.arrival_factor:g}"
        name = f"like {name}" if self.like else name
        return {
            "source": name,
            "split": self.split,
            "number": self.number,
            "windows": len(self.windows),
            "traces": len({window.trace for window in self.windows}),
            "jobs": self.jobs,
            "start": start,
            "sha256": self.digest,
        }


@lru_cache(maxsize=4)
def _read(source: str, arrival_factor: float) -> Workload:
    # Every line is a job, as when the sets were first drawn.
    return load_workload(source, arrival_factor=arrival_factor, memory_bandwidth="none", memory="none", status="ignore")
