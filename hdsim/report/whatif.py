"""Tables and page of ``hdsim whatif``: waits as recorded, as simulated and after changes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

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


def _amounts(answer: Answer) -> list[list[str]]:
    """Head and rows of the table of energy."""
    changes = any(not math.isnan(amount.changed) for amount in answer.amounts)
    rows = [["electricity", "simulated", *(["changed", "change"] if changes else [])]]
    for amount in answer.amounts:
        cells = [f"{amount.simulated:,.6g}"]
        if changes:
            known = amount.simulated > 0
            cells += [f"{amount.changed:,.6g}", f"{amount.changed / amount.simulated - 1:+.1%}" if known else "-"]
        rows.append([amount.name, *cells])
    return rows


def _keys_of(amount: Amount) -> tuple[str | float, ...]:
    """Keys of the order of the cells of a row."""
    change = amount.changed / amount.simulated if amount.simulated > 0 else math.nan
    return amount.name, amount.simulated, amount.changed, change


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
    if answer.amounts:
        lines += ["", format_table(_amounts(answer))]
    for kind in dict.fromkeys(group.kind for group in answer.groups):
        rows = [[kind, "jobs", *_columns(answer)]]
        rows += [
            [group.name, f"{group.jobs:,}", *_cells(answer, group)] for group in answer.groups if group.kind == kind
        ]
        lines += ["", format_table(rows)]
    for name, found in (("shorter waits", answer.winners), ("longer waits", answer.losers)):
        if found:
            rows = [[name, "jobs", "change"]]
            rows += [[user, f"{jobs:,}", _signed(seconds)] for user, jobs, seconds in found]
            lines += ["", format_table(rows)]
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
    if answer.amounts:
        heads, *lines = _amounts(answer)
        powered = [
            [Cell(escape(text), value) for text, value in zip(line, _keys_of(amount), strict=False)]
            for line, amount in zip(lines, answer.amounts, strict=True)
        ]
        parts.append(_section("Electricity", sortable("Electricity", heads, powered)))
    for kind in dict.fromkeys(group.kind for group in answer.groups):
        rows = []
        for group in answer.groups:
            if group.kind == kind:
                cells = [Cell(escape(group.name), group.name), Cell(f"{group.jobs:,}", float(group.jobs))]
                values = [*group.means.values(), math.nan, math.nan]
                told = [" to ".join(map(_unbroken, cell.split(" to "))) for cell in _cells(answer, group)]
                cells += [Cell(cell, value) for cell, value in zip(told, values, strict=False)]
                rows.append(cells)
        parts.append(
            _section(
                _TITLES[kind],
                sortable(_TITLES[kind], ["QOS" if kind == "qos" else kind, "jobs", *_columns(answer)], rows),
            )
        )
    for name, found in (("Shorter waits", answer.winners), ("Longer waits", answer.losers)):
        if found:
            rows = [
                [Cell(escape(user), user), Cell(f"{jobs:,}", float(jobs)), Cell(_signed(seconds), seconds)]
                for user, jobs, seconds in found
            ]
            parts.append(_section(name, sortable(name, ["user (account)", "jobs", "change"], rows)))
    return page(title, manifest, heading(title, answer.site, "", facts, manifest), "".join(parts) + script(), [])


def _unbroken(text: str) -> str:
    """A text in HTML, in which a line does not break."""
    return escape(text).replace(" ", "&nbsp;")


def _section(title: str, content: str) -> str:
    return f"<section class='part'><h2>{escape(title)}</h2>{content}</section>"


def write_page(answer: Answer, path: Path) -> None:
    """Writes the page, one file that needs no network.

    Raises:
        ConfigError: It cannot be written.
    """
    write_bytes(path, render(answer).encode(), ConfigError)
