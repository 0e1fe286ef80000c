"""The log of test sets: which weights each of them was used for, and what came out.

A test set that has decided something is none any more; the log refuses to use it for other weights.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from hdsim.errors import ConfigError
from hdsim.report.statistics import Floats
from hdsim.results.run_directory.inputs import file_digest
from hdsim.results.run_directory.manifest import git_commit
from hdsim.util.files import replacing, write_csv
from hdsim.util.resources import bundled

#: Begin of a log.
_HEAD = """# Test sets

Test sets on which agents have been evaluated, one row for each evaluation. `hdsim study` appends a row before it shows
the table; docs/compare.md of hdsim explains the columns.

"""


@dataclass(frozen=True)
class Entry:
    """A row of the log.

    Attributes:
        date: Of the evaluation.
        commit: Of hdsim.
        study: Name of the study's table.
        set: The set in words.
        sha256: Digest of the set.
        weights: Files of the agents with their digests; other agents have no weights.
        scores: Digest of all scores.
    """

    date: str
    commit: str
    study: str
    set: str
    sha256: str
    weights: str
    scores: str


def log_file(name: str) -> Path:
    """Returns the log, by default ``test_sets.md``, or ``docs/test_sets.md`` where this file exists."""
    return Path(name or ("docs/test_sets.md" if Path("docs/test_sets.md").is_file() else "test_sets.md"))


def weights_of(settings: Iterable[Any]) -> str:
    """Returns the checkpoints and the code files among settings of agents, with digests."""
    known, found = bundled("checkpoints"), {}
    for value in settings:
        if isinstance(value, str | Path) and str(value):
            path = Path(known.get(str(value), value))
            if path.is_file():
                found[path.name] = file_digest(path)[:12]
    return ", ".join(f"{name} {digest}" for name, digest in sorted(found.items())) or "none"


def digest_of(scores: Mapping[str, Floats]) -> str:
    """Returns the digest of the (S, W) scores of each agent, in full precision."""
    told = "\n".join(f"{name} {values.tolist()}" for name, values in sorted(scores.items()))
    return hashlib.sha256(told.encode()).hexdigest()[:12]


def write_scores(
    path: Path, scores: Mapping[str, Floats], windows: Iterable[tuple[int, str]], names: Sequence[str]
) -> None:
    """Writes the (S, W) or (S, W, N) scores of each agent in S seeds; a window has a trace and its first job."""
    path.parent.mkdir(parents=True, exist_ok=True)
    places = list(windows)
    rows = [
        [agent, seed, trace, str(first), *np.atleast_1d(row).tolist()]
        for agent, values in scores.items()
        for seed, own in enumerate(values)
        for (trace, first), row in zip(places, own, strict=True)
    ]
    write_csv(path, ("agent", "seed", "trace", "first_job", *names), rows)


def read(log: Path) -> list[Entry]:
    """Returns the rows of a log, none if there is no file.

    Raises:
        ConfigError: A row has another number of columns.
    """
    if not log.exists():
        return []
    lines = [line for line in log.read_text(encoding="utf-8").splitlines() if line.startswith("|")][2:]
    rows = [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines]
    for row, line in zip(rows, lines, strict=True):
        if len(row) != len(fields(Entry)):
            raise ConfigError(f"expected {len(fields(Entry))} columns, got {line}", where=str(log))
    return [Entry(*row) for row in rows]


def require_unused(log: Path, sha256: str, weights: str, where: str) -> None:
    """Checks that a test set has been used for no other weights.

    Raises:
        ConfigError: It has been.
    """
    for entry in read(log):
        if entry.sha256 == sha256 and entry.weights != weights:
            raise ConfigError(
                f"expected a test set that {log} does not have: on {entry.date} {entry.study} evaluated "
                f"{entry.weights} on it, now {weights}; another number draws another set, and again: yes uses this one",
                where=where,
            )


def record(log: Path, study: str, told: Mapping[str, str | int], weights: str, scores: str) -> str:
    """Appends an evaluation to the log, unless it has the same one already.

    `told` describes the set as :meth:`hdsim.simulation.window_sets.WindowSet.described` does; weights and scores are as
    :func:`weights_of` and :func:`digest_of` return them.

    Returns:
        A sentence about it.

    Raises:
        ConfigError: The same evaluation had other scores the last time.
    """
    words = f"{told['source']}, number {told['number']}: {told['windows']} windows of {told['jobs']} jobs of "
    words += f"{told['traces']} traces, {told['start']}"
    date, commit = datetime.now(UTC).date().isoformat(), str(git_commit())
    entry = Entry(date, commit, study, words, str(told["sha256"]), weights, scores)
    same = (entry.study, entry.sha256, entry.weights)
    # A later row corrects those before it, whose scores a fault had changed.
    known = next((each for each in reversed(read(log)) if (each.study, each.sha256, each.weights) == same), None)
    if known is not None:
        if known.scores != scores:
            raise ConfigError(
                f"expected the scores {known.scores} of {known.date}, got {scores}", where=f"{log}: {study}"
            )
        return f"{told['source']}: reproduces the evaluation of {known.date}"
    names = [column.name for column in fields(Entry)]
    before = log.read_text(encoding="utf-8") if log.exists() else _HEAD + _line(names) + _line(["---"] * len(names))
    with replacing(log) as file:
        file.write(before + _line(asdict(entry).values()))
    return f"{told['source']}: recorded in {log}"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |\n"
