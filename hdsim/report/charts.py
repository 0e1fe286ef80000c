"""Charts of a report as plain data: step curves, blocks in lanes over time, heat maps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from hdsim.results.series import StepFunction

Floats = NDArray[np.float64]

#: Most steps of a curve.
POINTS = 4_000
#: Ratio of the extremes beyond which an axis is logarithmic.
WIDE = 20.0
#: Stretches of time of a longer curve that is drawn as a mean with a band, and those of the moving mean.
STRETCHES, WINDOW = 2_000, 21
#: Largest number of stretches of time, and of rows, of a heat map.
BINS, ROWS = 480, 160


@dataclass(frozen=True)
class Axis:
    """An axis.

    Attributes:
        label: Label with the unit, except for times.
        kind: ``time``: seconds since the first submission, labelled in a suitable unit; ``duration``: seconds on a
            logarithmic axis; ``log`` and ``number``: plain numbers; ``count``: integers.
        low: Lower end.
        high: Upper end; None leaves a margin above the largest value.
        names: Names of lanes, which replace their numbers and the label.
    """

    label: str
    kind: Literal["time", "duration", "log", "number", "count"] = "number"
    low: float = 0.0
    high: float | None = None
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Line:
    """A step curve: each value holds until the next x.

    Attributes:
        label: Label in the legend.
        x: (T,).
        y: (T,).
        color: Of the line: any CSS colour, such as those of :mod:`hdsim.report.colors`.
        filled: Fill the area below.
        low: (T,) lower end of a band around the curve; None without a band.
        high: (T,) upper end.
        right: Whether it belongs to the axis at the right.
    """

    label: str
    x: Floats
    y: Floats
    color: str
    filled: bool = False
    low: Floats | None = None
    high: Floats | None = None
    right: bool = False

    @property
    def top(self) -> float:
        """Largest value, 0 at least; values that are not known are NaN."""
        return float(np.nanmax(self.y if self.high is None else self.high, initial=0.0))


@dataclass(frozen=True)
class Lines:
    """Step curves over one x axis.

    Attributes:
        x: The x axis.
        y: The axis at the left.
        lines: The curves.
        right: The axis at the right; None without curves that belong to it.
    """

    x: Axis
    y: Axis
    lines: tuple[Line, ...]
    right: Axis | None = None
    kind: str = "lines"


@dataclass(frozen=True)
class Groups:
    """Names of runs of neighbouring lanes, such as the cores of a node.

    Attributes:
        first: (G + 1,) first lane of each group, and the end of the last.
        names: (G,).
    """

    first: NDArray[Any]
    names: Sequence[str]


@dataclass(frozen=True)
class Strip:
    """Marks beside the axis of lanes: what lanes belong to, such as types of nodes, and lines between clusters.

    Attributes:
        first: (S + 1,) where each stretch of lanes of one kind begins on the axis, and the last ends.
        kind: (S,) index in `names`.
        names: Names of the kinds.
        colors: Colours of the kinds in turn.
        clusters: (C + 1,) where each cluster begins on the axis, and the last ends.
        cluster_names: (C,).
    """

    first: Floats
    kind: NDArray[np.int32]
    names: tuple[str, ...]
    colors: tuple[str, ...]
    clusters: Floats
    cluster_names: tuple[str, ...]


@dataclass(frozen=True)
class Fact:
    """A property of each item, shown under the pointer.

    Attributes:
        label: Name of the property.
        values: (I,) one value per item.
        kind: ``time`` is a point in time and ``duration`` a length, both in seconds.
    """

    label: str
    values: NDArray[Any] | Sequence[str]
    kind: Literal["text", "number", "time", "duration"] = "text"


@dataclass(frozen=True)
class Blocks:
    """Items that occupy lanes over time, such as jobs on cores.

    Attributes:
        x: Time axis.
        y: Lanes.
        start: (I,) s, start of each item.
        finish: (I,) s, end of each item.
        item: (B,) item a block belongs to.
        low: (B,) first lane of the block.
        high: (B,) end of its lanes.
        position: (L + 1,) where on the axis each of the L lanes begins, and the last ends.
        color: (I,) index in `colors`.
        colors: Colours.
        legend: (label, colour) of the colours that mean something.
        lane: Name of one lane.
        groups: Names of the lanes.
        facts: Properties of the items.
        strip: Marks beside the axis, None for none.
        named: The largest block of each item has its first fact, where that fits.
    """

    x: Axis
    y: Axis
    start: Floats
    finish: Floats
    item: NDArray[np.int32]
    low: NDArray[np.int32]
    high: NDArray[np.int32]
    position: NDArray[np.float32]
    color: NDArray[np.uint8]
    colors: tuple[str, ...]
    legend: tuple[tuple[str, str], ...]
    lane: str
    groups: Groups
    facts: tuple[Fact, ...]
    strip: Strip | None = None
    named: bool = False
    kind: str = "blocks"


def spans(
    x: Axis,
    y: Axis,
    start: Floats,
    finish: Floats,
    lane: NDArray[np.int32],
    groups: Groups,
    facts: tuple[Fact, ...],
    *,
    colors: tuple[str, ...],
    color: NDArray[np.uint8] | None = None,
    legend: tuple[tuple[str, str], ...] = (),
    name: str = "",
) -> Blocks:
    """Returns items that have one lane each, `lane` of (I,), which is a group of its own; see :class:`Blocks`."""
    return Blocks(
        x=x,
        y=y,
        start=start,
        finish=finish,
        item=np.arange(len(start), dtype=np.int32),
        low=lane,
        high=lane + 1,
        position=np.arange(len(groups.names) + 1, dtype=np.float32),
        color=np.zeros(len(start), np.uint8) if color is None else color,
        colors=colors,
        legend=legend,
        lane=name,
        groups=groups,
        facts=facts,
    )


@dataclass(frozen=True)
class Heat:
    """A share (0..1) by lanes and stretches of time.

    Attributes:
        x: Time axis.
        y: Lanes.
        times: (T + 1,) s, bounds of the stretches.
        lanes: (R + 1,) bounds of the rows.
        share: (R, T) 0..1.
        label: Name of the share.
        groups: Names of the lanes.
        strip: Marks beside the axis, None for none.
    """

    x: Axis
    y: Axis
    times: Floats
    lanes: NDArray[Any]
    share: NDArray[Any]
    label: str
    groups: Groups
    strip: Strip | None = None
    kind: str = "heat"


@dataclass(frozen=True)
class ChartTable:
    """A table that a page searches, sorts and shows by pages; static figures have none.

    Attributes:
        columns: Columns; the search is in those of kind ``text``.
        span: Columns of the begin of a row in seconds, and of lengths of time that add up to its end; none without
            times. A click shows a row in all panels over time, and its blocks: those with its first cell as first fact.
    """

    columns: tuple[Fact, ...]
    span: tuple[int, ...] = ()
    kind: str = "table"


Plot = Lines | Blocks | Heat
Chart = Plot | ChartTable


@dataclass(frozen=True)
class View:
    """One way to show a panel: `key` is the file name of the figure, `label` the name of the view in the panel."""

    key: str
    label: str
    chart: Chart


@dataclass(frozen=True)
class Panel:
    """A titled part of a report with one or more views, the first of them shown first.

    A `note` is a line or two on how to read it; half the page is wide enough for a `narrow` one.
    """

    title: str
    note: str
    views: tuple[View, ...]
    narrow: bool = False


def step_line(label: str, steps: StepFunction, color: str, *, filled: bool = False) -> Line:
    """Returns a step function as a curve of at most POINTS steps."""
    thin = steps.thinned(POINTS)
    end = max(thin.end, float(thin.times[-1]))
    return Line(label, np.append(thin.times, end), np.append(thin.values, thin.values[-1]), color, filled)


@dataclass(frozen=True)
class TimeUnit:
    """A unit to label times in."""

    name: str
    seconds: float


def time_unit(span: float) -> TimeUnit:
    """Unit that suits a span of seconds."""
    for name, seconds, least in (("days", 86400.0, 4 * 86400.0), ("hours", 3600.0, 3 * 3600.0), ("min", 60.0, 300.0)):
        if span >= least:
            return TimeUnit(name, seconds)
    return TimeUnit("s", 1.0)


def duration(seconds: float) -> str:
    """A length of time in the two units that matter, such as ``7 h 16 min``."""
    if not np.isfinite(seconds):
        return "–"
    if abs(seconds) < 60:
        return f"{seconds:.3g} s"
    for name, size, smaller, part in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if abs(seconds) >= size:
            whole, rest = divmod(round(seconds / part), size // part)
            return f"{whole} {name} {rest} {smaller}" if rest else f"{whole} {name}"
    raise AssertionError(seconds)
