"""Tables and page of ``hdsim whatif``: waits as recorded, as simulated and after changes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import NamedTuple

from hdsim.errors import ConfigError
from hdsim.report.charts import duration
from hdsim.report.page import heading, page
from hdsim.report.tables import Cell, script, sortable
from hdsim.site.waits import Calibration, Group
from hdsim.util.files import write_bytes
from hdsim.util.text import format_table
from hdsim.util.version import __version__

_TITLES = {
    "partition": "Partitions",
    "qos": "QOS",
    "account": "Accounts",
    "size": "Sizes",
    "reason": "Pending reasons without the changes",
    "week": "Weeks",
    "day": "Days",
}
#: Ratio of waits from which on a change is shown as a factor.
_MANY_TIMES = 10.0


@dataclass(frozen=True)
class Amount:
    """A quantity of the whole replay.

    Attributes:
        name: Its name, with its unit in brackets.
        simulated: Without the changes.
        changed: With them; NaN without any.
    """

    name: str
    simulated: float
    changed: float = math.nan


@dataclass
class Answer:
    """An answer to what happens if.

    Attributes:
        site: Name of the site.
        jobs: Number of jobs.
        changes: The changes, as given.
        calibration: Agreement of the simulation without changes with the record; None without one.
        groups: Mean waits of groups by series: ``recorded``, ``simulated`` and ``changed``.
        winners: Users with account, jobs and change of the mean wait in seconds; those whose wait is shorter.
        losers: The same of those whose wait is longer.
        rejected: Jobs that the changes keep from running, by reason; they are in no mean.
        facts: Means of all jobs and further numbers, by name.
        amounts: Energy and what belongs to it.
    """

    site: str
    jobs: int
    changes: Sequence[str]
    calibration: Calibration | None
    groups: Sequence[Group]
    winners: Sequence[tuple[str, int, float]] = ()
    losers: Sequence[tuple[str, int, float]] = ()
    rejected: dict[str, int] = field(default_factory=dict)
    facts: dict[str, str] = field(default_factory=dict)
    amounts: Sequence[Amount] = ()


def _shown(wait: float) -> str:
    return "-" if math.isnan(wait) else duration(wait)


def _change(group: Group, now: str, before: str) -> str:
    old, new = group.means[before], group.means[now]
    if math.isnan(old) or math.isnan(new) or old <= 0:
        return "-"
    return f"{new / old - 1.0:+.0%}" if new < _MANY_TIMES * old else f"x {new / old:,.0f}"


#: A cell: its text, and the key of its order.
_Cell = tuple[str, float | str]


class _Table(NamedTuple):
    """A table of an answer: its title and heads on the page, the first head in a terminal, and the rows."""

    title: str
    heads: list[str]
    first: str
    rows: list[list[_Cell]]


def _tables(answer: Answer) -> Iterator[_Table]:
    if answer.amounts:
        changes = any(not math.isnan(amount.changed) for amount in answer.amounts)
        heads = ["electricity", "simulated", *(["changed", "change"] if changes else [])]
        yield _Table("Electricity", heads, heads[0], [_amount(one)[: len(heads)] for one in answer.amounts])
    for kind in dict.fromkeys(group.kind for group in answer.groups):
        rows = [_group(answer, group) for group in answer.groups if group.kind == kind]
        heads = ["QOS" if kind == "qos" else kind, "jobs", *_columns(answer)]
        yield _Table(_TITLES[kind], heads, kind, rows)
    for title, found in (("Shorter waits", answer.winners), ("Longer waits", answer.losers)):
        if found:
            rows = [
                [(user, user), (f"{jobs:,}", float(jobs)), (_signed(seconds), seconds)] for user, jobs, seconds in found
            ]
            yield _Table(title, ["user (account)", "jobs", "change"], title.lower(), rows)


def _amount(amount: Amount) -> list[_Cell]:
    known = amount.simulated > 0
    change = amount.changed / amount.simulated if known else math.nan
    return [
        (amount.name, amount.name),
        *((f"{value:,.6g}", value) for value in (amount.simulated, amount.changed)),
        (f"{change - 1:+.1%}" if known else "-", change),
    ]


def _group(answer: Answer, group: Group) -> list[_Cell]:
    keys = [*group.means.values(), math.nan, math.nan]
    cells = zip(_cells(answer, group), keys, strict=False)
    return [(group.name, group.name), (f"{group.jobs:,}", float(group.jobs)), *cells]


def _columns(answer: Answer) -> list[str]:
    series = list(answer.groups[0].means) if answer.groups else []
    return [*series, *(["change", "likely"] if "changed" in series else ["sim./rec."] if len(series) == 2 else [])]


def _cells(answer: Answer, group: Group) -> list[str]:
    cells = [_shown(wait) for wait in group.means.values()]
    if "changed" in group.means:
        cells += [_change(group, "changed", "simulated"), _likely(answer, group)]
    elif len(group.means) == 2:
        recorded, simulated = group.means["recorded"], group.means["simulated"]
        cells.append(f"{simulated / recorded:.2f}" if recorded > 0 and not math.isnan(simulated) else "-")
    return cells


def _likely(answer: Answer, group: Group) -> str:
    """The wait after the changes that the calibration makes likely."""
    if answer.calibration is None:
        return "-"
    low, high = answer.calibration.band(group.means["changed"])
    return "-" if math.isnan(low) else f"{duration(low)} to {duration(high)}"


def calibration_text(calibration: Calibration) -> str:
    """Returns the agreement with the record in a sentence."""
    if math.isnan(calibration.ratio):
        return "no recorded waits to compare with"
    if not calibration.explains:
        found = f"simulated over recorded mean wait {calibration.ratio:.2g}"
        return f"{found}: the replay does not explain the recorded waits, and none after changes are likely"
    if math.isnan(calibration.error):
        return f"simulated over recorded mean wait {calibration.ratio:.2f}; too few {calibration.unit} for their errors"
    return (
        f"simulated over recorded mean wait {calibration.ratio:.2f}; mean waits of {calibration.parts} "
        f"{calibration.unit} differ by {calibration.error:.0%} (median), {calibration.worst:.0%} (most) beside that"
    )


def text(answer: Answer) -> str:
    """Returns the tables for a terminal."""
    lines = [f"{answer.site}: {answer.jobs:,} jobs", *(f"change: {change}" for change in answer.changes)]
    if answer.calibration is not None:
        lines.append(f"calibration: {calibration_text(answer.calibration)}")
    lines += [f"{name}: {value}" for name, value in answer.facts.items()]
    if answer.rejected:
        told = ", ".join(f"{count:,} {reason}" for reason, count in answer.rejected.items())
        lines.append(f"never run after the changes: {told}")
    for table in _tables(answer):
        rows = [[cell for cell, _ in row] for row in table.rows]
        lines += ["", format_table([[table.first, *table.heads[1:]], *rows])]
    return "\n".join(lines)


def _signed(seconds: float) -> str:
    return f"{'-' if seconds < 0 else '+'}{duration(abs(seconds))}"


def render(answer: Answer) -> str:
    """Returns the page."""
    title = f"{answer.site}: {', '.join(answer.changes) or 'as it was'}"
    facts = {"Jobs": f"{answer.jobs:,}"}
    if answer.calibration is not None:
        facts["Calibration"] = calibration_text(answer.calibration)
    facts |= {name.capitalize(): value for name, value in answer.facts.items()}
    if answer.rejected:
        facts["Never run"] = ", ".join(f"{count:,} {reason}" for reason, count in answer.rejected.items())
    manifest = {"versions": {"hdsim": __version__}, "config": {"changes": list(answer.changes)}}
    parts = []
    for table in _tables(answer):
        rows = [[_cell(text, key, place) for place, (text, key) in enumerate(row)] for row in table.rows]
        content = sortable(table.title, table.heads, rows)
        parts.append(f"<section class='part'><h2>{escape(table.title)}</h2>{content}</section>")
    return page(title, manifest, heading(title, answer.site, "", facts, manifest), "".join(parts) + script(), [])


def _cell(text: str, key: str | float, place: int) -> Cell:
    """A cell; behind the name in the first column, lines break only between the two ends of an interval."""
    if not place:
        return Cell(escape(text), key)
    return Cell(" to ".join(escape(end).replace(" ", "&nbsp;") for end in text.split(" to ")), key)


def write_page(answer: Answer, path: Path) -> None:
    """Writes the page, one file that needs no network.

    Raises:
        ConfigError: It cannot be written.
    """
    write_bytes(path, render(answer).encode(), ConfigError)
