"""Dependencies of jobs on others: ``afterok:12:13,afterany:7_3``, ``after:5+10?singleton``.

Source: the manual page sbatch(1) of Slurm 22.05, ``--dependency``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hdsim.util.arrays import Flags, Floats

_KINDS = ("after", "afterany", "afterburstbuffer", "aftercorr", "afternotok", "afterok", "expand", "singleton")
_ITEM = re.compile(
    rf"({'|'.join(sorted(_KINDS, key=len, reverse=True))})((?::\w+(?:\[[^\]]*\])?(?:\+\d+)?)*)", re.ASCII
)


@dataclass(frozen=True)
class Condition:
    """One condition on other jobs."""

    kind: str
    jobs: tuple[int, ...]  # rows; all of them have to fulfil it
    delay: float = 0.0  # seconds after their start


@dataclass(frozen=True)
class Dependency:
    """The conditions that a job waits for: all of them, or one."""

    conditions: tuple[Condition, ...]
    one: bool = False

    @property
    def jobs(self) -> set[int]:
        """The rows of all jobs that it names."""
        return {job for condition in self.conditions for job in condition.jobs}


class Progress:
    """Starts and ends of (J,) jobs in seconds, NaN before them."""

    def __init__(self, jobs: int) -> None:
        self.started: Floats = np.full(jobs, math.nan)
        self.ended: Floats = np.full(jobs, math.nan)
        self.succeeded: Flags = np.zeros(jobs, np.bool_)

    def verdict(self, dependency: Dependency, now: float) -> tuple[bool | None, float]:
        """Returns whether a dependency is fulfilled, None if it never will be, and when to look again at the latest."""
        found = [self._of(condition, now) for condition in dependency.conditions]
        later = min((time for _, time in found), default=math.inf)
        answers = [answer for answer, _ in found]
        if dependency.one:
            return (True if any(answers) else None if all(each is None for each in answers) else False), later
        return (None if None in answers else all(answers)), later

    def _of(self, condition: Condition, now: float) -> tuple[bool | None, float]:
        rows = list(condition.jobs)
        ended, begun = ~np.isnan(self.ended[rows]), self.started[rows]
        if condition.kind in ("after", "expand"):
            since = np.where(np.isnan(begun), self.ended[rows], begun) + condition.delay
            if np.isnan(since).any():
                return False, math.inf
            last = float(since.max(initial=-math.inf))
            return (True, math.inf) if last <= now else (False, last)
        if condition.kind in ("afterok", "aftercorr", "afternotok"):
            good = self.succeeded[rows] == (condition.kind != "afternotok")
            if (ended & ~good).any():
                return None, math.inf
        return bool(ended.all()), math.inf


def parse_dependency(
    text: str, rows_of: Callable[[str], Sequence[int]], task: str | None, earlier: Sequence[int]
) -> Dependency:
    """Returns a dependency from its text.

    Args:
        text: As ``sbatch --dependency`` takes it.
        rows_of: Returns the rows of the jobs with an id, those of all tasks of an array; none for unknown ids.
        task: Number of the job in its array, for ``aftercorr``.
        earlier: Rows of the jobs of the same name and user before this one, for ``singleton``.

    Raises:
        ValueError: The text has another form.
    """
    parts = re.split(r"[,?]", text)
    if "," in text and "?" in text:
        raise ValueError(f"expected , or ? between conditions, got both in '{text}'")
    made = []
    for part in parts:
        found = _ITEM.fullmatch(part.strip())
        if not found or (found[1] == "singleton") == bool(found[2]):
            raise ValueError(f"expected a dependency such as afterok:12:13 or singleton, got '{text}'")
        kind = found[1]
        if kind == "singleton":
            made.append(Condition("afterany", tuple(earlier)))
            continue
        for item in found[2].split(":")[1:]:
            name, _, minutes = item.partition("+")
            rows = rows_of(f"{name}_{task}") if kind == "aftercorr" and task is not None else ()
            made.append(Condition(kind, tuple(rows or rows_of(name)), 60.0 * int(minutes or 0)))
    return Dependency(tuple(made), one="?" in text)


def named_jobs(text: str) -> list[str]:
    """Returns the ids that a dependency names; none of a text in another form, which `parse_dependency` refuses."""
    found = [_ITEM.fullmatch(part.strip()) for part in re.split(r"[,?]", text)]
    return [item.partition("+")[0] for one in found if one for item in one[2].split(":")[1:]]


def dependencies_of(columns: Mapping[str, Sequence[Any]]) -> dict[int, Dependency]:
    """Returns the dependencies of the jobs that have one, by row.

    Args:
        columns: ``dependency``, ``job_id``, and ``user`` and ``name`` for ``singleton``; none without the first.

    Raises:
        ValueError: A text has another form; the message names the job.
    """
    texts = columns.get("dependency")
    if texts is None or not any(texts):
        return {}
    ids = [str(one) for one in columns["job_id"]]
    rows: dict[str, list[int]] = {}
    for row, name in enumerate(ids):
        rows.setdefault(name, []).append(row)
        if "_" in name:
            rows.setdefault(name.partition("_")[0], []).append(row)

    def known(name: str) -> Sequence[int]:
        return rows.get(name, ())

    nobody = [None] * len(ids)
    owners = list(zip(columns.get("user", nobody), columns.get("name", nobody), strict=True))
    before: dict[Any, list[int]] = {}
    found = {}
    for row, text in enumerate(texts):
        own = before.setdefault(owners[row], [])
        if text:
            task = ids[row].partition("_")[2] or None
            try:
                found[row] = parse_dependency(str(text), known, task, own)
            except ValueError as error:
                raise ValueError(f"job {ids[row]}: {error}") from None
        own.append(row)
    return found
