"""Sets of cores or machines: ``ProcSet`` for users, arrays of intervals inside, texts such as ``"0-3 8"`` in Batsim."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from procset import ProcSet

from hdsim.kernels import intervals
from hdsim.util.arrays import Ints, members
from hdsim.util.copies import itself
from hdsim.util.text import shown

#: Number of sets of which the texts are made at a time, which bounds the memory.
_BLOCK = 1 << 16
#: Number of intervals up to which the constructor of ProcSet, whose time is quadratic in it, makes a set.
_FEW = 8

#: Cores as users give them: a set, a slice of all cores, an array or a sequence of ids.
Cores: TypeAlias = ProcSet | slice | NDArray[np.integer] | Sequence[int]

_SPAN = re.compile(r"[0-9]+(-[0-9]+)?")


@dataclass(frozen=True)
class IntervalSets:
    """Many sets of ids, each as its intervals of consecutive ids."""

    __deepcopy__ = itself

    counts: Ints  # (S,) number of intervals of each set
    #: first, last: (R,) ids of each interval, set by set, ascending within a set.
    first: NDArray[np.int32]
    last: NDArray[np.int32]

    @classmethod
    def empty(cls, sets: int = 0) -> IntervalSets:
        """Makes sets without ids."""
        none = np.zeros(0, np.int32)
        return cls(np.zeros(sets, np.int64), none, none)

    @classmethod
    def of(cls, ids: NDArray[np.int32], sizes: Ints) -> IntervalSets:
        """Makes sets from their members, set by set and ascending within a set, and the (S,) numbers of them."""
        if not len(ids):
            return cls.empty(len(sizes))
        ends = np.cumsum(sizes)
        begins = np.append(True, ids[1:] != ids[:-1] + 1)
        begins[(ends - sizes)[sizes > 0]] = True
        begin = np.flatnonzero(begins)
        until = np.append(0, np.cumsum(begins))
        return cls(until[ends] - until[ends - sizes], ids[begin], ids[np.append(begin[1:], len(ids)) - 1])

    @classmethod
    def parse(cls, texts: Iterable[str], below: int = 2**24) -> IntervalSets:
        """Reads texts such as ``"0-3 8"`` with ids below a limit.

        Raises:
            ValueError: A text is not an interval set.
        """
        counts, low, high = [], [], []
        for text in texts:
            spans = text.split()
            counts.append(len(spans))
            for span in spans:
                first, dash, last = span.partition("-")
                low.append(int(first))
                high.append(int(last) if dash else low[-1])
        if (largest := max([*low, *high], default=0)) >= below:
            raise ValueError(f"expected ids below {below}, got {largest}")
        sets = cls(np.array(counts, np.int64), np.array(low, np.int32), np.array(high, np.int32))
        if (sets.first > sets.last).any():
            raise ValueError("an interval ends before it begins")
        return sets

    @classmethod
    def concatenate(cls, several: Sequence[IntervalSets]) -> IntervalSets:
        """Joins several lists of sets."""
        columns = ([getattr(sets, field.name) for sets in several] for field in fields(cls))
        return cls(*(np.concatenate(column) for column in columns))

    def __len__(self) -> int:
        return len(self.counts)

    def __getitem__(self, sets: NDArray[Any]) -> IntervalSets:
        """Some sets, in the given order."""
        intervals = members(self.begins, sets)
        return IntervalSets(self.counts[sets], self.first[intervals], self.last[intervals])

    @cached_property
    def begins(self) -> Ints:
        """(S + 1,) index of the first interval of each set; the last entry is R."""
        return np.append(0, np.cumsum(self.counts))

    @property
    def lengths(self) -> Ints:
        """(R,) number of ids of each interval."""
        return np.subtract(self.last, self.first, dtype=np.int64) + 1

    @cached_property
    def sizes(self) -> Ints:
        """(S,) number of ids of each set."""
        return self.sums(self.lengths)

    def sums(self, values: Ints) -> Ints:
        """Sums values of intervals over each set: (R,) to (S,)."""
        before = np.zeros(len(values) + 1, np.int64)
        np.cumsum(values, out=before[1:])
        return np.diff(before[self.begins])

    def groups(self, group: NDArray[np.int32]) -> Ints:
        """Counts the groups that have ids of each set, (S,); `group` is that of each id, ascending and at least 0."""
        counts = np.zeros(len(self), np.int64)
        intervals.count_groups(self.begins, self.first, self.last, group, counts)
        return counts

    @property
    def ids(self) -> NDArray[np.int32]:
        """(sum of sizes,) members of each set, set by set, ascending within a set."""
        lengths = self.lengths
        before = np.cumsum(lengths) - lengths
        return (np.repeat(self.first - before, lengths) + np.arange(lengths.sum())).astype(np.int32)

    def procsets(self) -> list[ProcSet]:
        """(S,) the sets as objects of procset."""
        spans = list(zip(self.first.tolist(), self.last.tolist(), strict=True))
        begins = self.begins.tolist()
        return [_procset(spans[begin:end]) for begin, end in pairwise(begins)]

    @cached_property
    def texts(self) -> list[str]:
        """(S,) the sets as texts such as ``"0-3 8"``."""
        digits = len(str(self.last.max(initial=0)))
        texts: list[str] = []
        for one in range(0, len(self), _BLOCK):
            begins = self.begins[one : one + _BLOCK + 1]
            text = np.empty((2 * digits + 2) * (begins[-1] - begins[0]) + len(begins), np.uint8)
            end = intervals.write_sets(begins, self.first, self.last, text)
            texts += str(text[:end].data, "ascii").split("\n")[:-1]
        return texts


def to_procset(ids: Iterable[int]) -> ProcSet:
    """Returns the set of ascending ids."""
    members = np.fromiter(ids, np.int32)
    return IntervalSets.of(members, np.array([len(members)])).procsets()[0]


def to_ids(cores: Cores, count: int) -> list[int]:
    """Returns the ids of cores that a user has given, in their order; there are `count` ids, for slices."""
    if isinstance(cores, slice):
        return list(range(*cores.indices(count)))
    return cores.tolist() if isinstance(cores, np.ndarray) else list(cores)


def _procset(spans: list[tuple[int, int]]) -> ProcSet:
    """Returns the set of ascending intervals."""
    if len(spans) <= _FEW:
        return ProcSet(*spans)
    middle = len(spans) // 2
    return _procset(spans[:middle]) | _procset(spans[middle:])


def parse_interval_set(text: str, count: int) -> list[int]:
    """Returns the ids of one interval set, ascending; for small sets, in about a tenth of the time of arrays.

    There are `count` ids.

    Raises:
        ValueError: The text is not an interval set, or has an id twice or one that does not exist.
    """
    ids: list[int] = []
    for part in text.split():
        first, dash, last = part.partition("-")
        if not _SPAN.fullmatch(part):
            raise ValueError(f"expected hosts as in '0-3 8', got {shown(text)}")
        if not dash:
            ids.append(int(first))
            continue
        low, high = int(first), int(last)
        if not low <= high < count:
            raise ValueError(f"expected hosts from 0 to {count - 1}, got {shown(text)}")
        ids.extend(range(low, high + 1))
    ids.sort()
    if ids and ids[-1] >= count:
        raise ValueError(f"expected hosts from 0 to {count - 1}, got {shown(text)}")
    if len(set(ids)) < len(ids):
        raise ValueError(f"expected each host once, got {shown(text)}")
    return ids


def format_interval_set(ids: Sequence[int]) -> str:
    """Returns the interval set of ascending ids."""
    if not ids:
        return ""
    first = last = ids[0]
    if ids[-1] - first == len(ids) - 1:
        return f"{first}-{ids[-1]}" if len(ids) > 1 else str(first)
    spans = []
    for each in ids:
        if each > last + 1:
            spans.append(f"{first}-{last}" if last > first else str(first))
            first = each
        last = each
    spans.append(f"{first}-{last}" if last > first else str(first))
    return " ".join(spans)
