"""Panels of runs in a facility: power with price and carbon intensity, costs of users, hours of the days."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hdsim.report.charts import Axis, ChartTable, Fact, Groups, Heat, Line, Panel, View
from hdsim.report.colors import BROWN, GREEN, ORANGE, PURPLE
from hdsim.report.jobs import bars
from hdsim.results.run_directory.formats import HOUR_COLUMNS, OWNER_COLUMNS, numbers, read_columns, texts_reader
from hdsim.util.arrays import Floats, Ints
from hdsim.util.units import JOULES_PER_KWH

if TYPE_CHECKING:
    from hdsim.results.run_directory.reader import Run

#: Most days of the heat map of hours.
_MOST_DAYS = 480
#: Quantities of rows of owners: column, label, colour.
_PAID = (
    ("facility_kwh", "energy (kWh)", PURPLE),
    ("cost_eur", "cost (EUR)", ORANGE),
    ("carbon_grams", "emissions (kgCO2)", GREEN),
)
#: Factors from the columns to the units of these labels.
_SIZES = {"facility_kwh": 1.0, "cost_eur": 1.0, "carbon_grams": 1e-3}


@dataclass(frozen=True)
class Hourly:
    """Rows of costs_by_hour.csv.

    Attributes:
        begins: (H,) s since the first submission.
        seconds: (H,) lengths.
        days: (H,) days by local dates, from 0 on.
        hours: (H,) hours of the day, 0 to 23.
        dates: (D,) date of each day, its number where dates are not known.
        columns: Further columns by name, (H,) each, NaN for what is not known.
    """

    begins: Floats
    seconds: Floats
    days: Ints
    hours: Ints
    dates: list[str]
    columns: Mapping[str, Floats]


def _table(path: Path, columns: Sequence[str], texts: Sequence[str]) -> dict[str, Floats]:
    """Columns of a table by name; those of `texts` are no numbers."""
    return read_columns(
        path,
        lambda header: {name: texts_reader() if name in texts else partial(numbers, path, name) for name in columns},
    )


def hourly(run: Run) -> Hourly | None:
    """Returns the hours of a run in a facility, None of another one."""
    path = run.path / "costs_by_hour.csv"
    if not path.is_file():
        return None
    columns = _table(path, HOUR_COLUMNS, ("date",))
    begins, dates = columns.pop("begin"), columns.pop("date").tolist()
    seconds = np.maximum(np.diff(begins, append=max(run.end_time, float(begins[-1]))), 1e-9)
    known = all(dates)
    places = [(text[:10], int(text[11:13])) for text in dates] if known else []
    if not known:
        places = [(f"day {int(begin // 86400) + 1}", int(begin % 86400 // 3600)) for begin in begins.tolist()]
    names = list(dict.fromkeys(day for day, _ in places))
    number = {day: row for row, day in enumerate(names)}
    days = np.array([number[day] for day, _ in places])
    return Hourly(begins, seconds, days, np.array([hour for _, hour in places]), names, columns)


def of_facility(run: Run, size: float) -> tuple[list[Line], list[tuple[str, Line, Axis]]]:
    """Curves of a run in a facility; none of another run.

    Returns:
        The power of the facility in units of `size` W, where that is not the machine's; and carbon intensity and price,
        each with its name and its axis.
    """
    found = hourly(run)
    if found is None:
        return [], []
    lines, signals = [], []
    if run.metrics.get("effective_pue", 1.0) > 1.0:
        watts = found.columns["facility_kwh"] * JOULES_PER_KWH / found.seconds
        lines.append(Line("facility, means of hours", *_steps(found, watts / size), BROWN))
    for name, label, unit, color in (
        ("carbon", "carbon intensity", "gCO2/kWh", GREEN),
        ("price", "price", "EUR/kWh", ORANGE),
    ):
        values = found.columns[name]
        if np.nanmax(np.abs(values), initial=0.0) > 0:
            low = min(0.0, 1.05 * float(np.nanmin(values)))
            axis = Axis(unit, low=low)
            signals.append((label, Line(label, *_steps(found, values), color, right=True), axis))
    return lines, signals


def hours_of_days(run: Run) -> Panel | None:
    """Energy, cost and emissions by hour of the day and day; None without a facility or for less than two days."""
    found = hourly(run)
    if found is None or not 2 <= len(found.dates) <= _MOST_DAYS:
        return None
    first = np.searchsorted(found.days, np.arange(len(found.dates)))
    times = np.append(found.begins[first], max(run.end_time, float(found.begins[-1]) + 1e-6))
    names = tuple(f"{hour}:00" if hour % 3 == 0 else "" for hour in range(24))
    groups = Groups(np.arange(25), [f"{hour}:00 to {hour + 1}:00" for hour in range(24)])
    views, largest = [], []
    for name, label, _ in _PAID:
        rates = found.columns[name] * _SIZES[name] / found.seconds * 3600
        if np.isnan(rates).all():
            continue
        # Of the hour that occurs twice the mean.
        total, count = (np.zeros((24, len(found.dates))) for _ in range(2))
        np.add.at(total, (found.hours, found.days), np.nan_to_num(rates))
        np.add.at(count, (found.hours, found.days), 1)
        mean = np.maximum(total / np.maximum(count, 1), 0.0)
        top = float(mean.max()) or 1.0
        word, _, unit = label.partition(" ")
        largest.append(f"{top:.4g} {unit.strip('()')}")
        views.append(
            View(
                f"hours_{name}",
                word.capitalize(),
                Heat(
                    x=Axis("Time since first submission", "time", 0.0, float(times[-1])),
                    y=Axis("Hour of the day", "count", high=24, names=names),
                    times=times,
                    lanes=np.arange(25),
                    share=mean / top,
                    label=f"{word} of the largest hour",
                    groups=groups,
                ),
            )
        )
    note = f"Local hours from {found.dates[0]} to {found.dates[-1]}. 100 % is {', '.join(largest)} an hour."
    return Panel("Hours of the days", note, tuple(views)) if views else None


def payers(run: Run) -> Panel | None:
    """Costs of users and accounts, of idle nodes and of all; None without a facility or owners."""
    path = run.path / "costs_by_owner.csv"
    if not path.is_file():
        return None
    columns = _table(path, OWNER_COLUMNS, ("by", "name"))
    total = columns["by"] == "total"
    views = []
    for by in ("user", "account"):
        rows = np.flatnonzero(columns["by"] == by)
        if not len(rows):
            continue
        rows = rows[np.argsort(-columns["facility_kwh"][rows], kind="stable")]
        rest = np.flatnonzero((columns["by"] == "idle") | total)
        shown = np.concatenate([rows, rest])
        names = [str(name) or "unknown" for name in columns["name"][rows].tolist()]
        facts = [Fact(by, [*names, "idle nodes", "total"]), Fact("jobs", columns["jobs"][shown], "number")]
        known = [paid for paid in _PAID if not np.isnan(columns[paid[0]][shown]).any()]
        for name, label, _ in known:
            facts.append(Fact(label, columns[name][shown] * _SIZES[name], "number"))
        name, label, color = next((paid for paid in known if paid[0] == "cost_eur"), known[-1])
        share, word = 100 * columns[name] / columns[name][total], label.split()[0]
        facts.append(Fact(f"share of the {word} (%)", share[shown], "number"))
        facts.append(Fact("peak (W)", columns["peak_watts"][shown], "number"))
        views.append(View(f"paid_by_{by}", f"{by.capitalize()}s", ChartTable(tuple(facts))))
        if len(rows) > 1 and (share[rows] > 0).any():
            of_owners = tuple(Fact(one.label, one.values[: len(rows)], one.kind) for one in facts)
            chart = bars(of_owners, share[rows], f"Share of the {word} (%)", color)
            views.append(View(f"{word}_by_{by}", f"{word.capitalize()} by {by}", chart))
    note = "Jobs pay for their cores and share the idle cores of their nodes; nodes without jobs are in the row idle."
    return Panel("Payers", note, tuple(views)) if views else None


def _steps(found: Hourly, values: Floats) -> tuple[Floats, Floats]:
    """X and y of a curve with a value for each hour."""
    end = found.begins[-1] + found.seconds[-1]
    return np.append(found.begins, end), np.append(values, values[-1])
