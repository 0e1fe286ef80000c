"""The page of a report: its data, style and plotting library in one file, which needs no network."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from html import escape
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hdsim.report.charts import Heat, Panel, duration, time_unit
from hdsim.report.colors import HEAT, sheet
from hdsim.report.tables import table
from hdsim.results import metrics
from hdsim.util.plugins import short_name
from hdsim.util.text import format_number

_HERE = Path(__file__).parent
#: Number of levels of a share, one byte each.
_STEPS = 250
#: Packages with their versions in the heading.
_PACKAGES = {"hdsim": "hdsim", "python": "Python", "numpy": "NumPy"}
#: Labels of metrics that differ from their keys.
_NAMES = {
    "energy_joules": "energy",
    "edp": "EDP",
    "ed2p": "ED²P",
    "peak_power_watts": "peak power",
    "jain_fairness": "Jain's fairness index",
    "gini": "Gini coefficient",
    "jobs_per_second": "speed",
    "effective_pue": "effective PUE",
    "cost_eur": "cost",
    "carbon_grams": "CO2 emissions",
    "facility_energy_kwh": "facility energy",
    "facility_peak_watts": "facility peak power",
    "gpu_hours": "GPU hours",
    "gpu_utilization": "GPU utilization",
}


def page(title: str, manifest: Mapping[str, Any], heading: str, numbers: str, panels: Sequence[Panel]) -> str:
    """Returns the HTML of a page: `heading`, `numbers` and the panels.

    Heading and numbers are HTML, the title is plain text; the manifest is that of the run.
    """
    from plotly.offline import get_plotlyjs

    arrays = _Arrays()
    shown = [arrays.plain(panel) for panel in panels]
    template = Template(script("page.html"))
    return template.substitute(
        version=escape(str((manifest.get("versions") or {}).get("hdsim"))),
        title=escape(title),
        look=look(),
        header=heading,
        metrics=f"<section aria-label='Metrics'>{numbers}</section>",
        arrays=_json(arrays.encoded),
        panels=_json(shown),
        plotly=get_plotlyjs(),
        table=script("table.js"),
        script=script("report.js"),
    )


def look() -> str:
    """Returns the style sheet and the choice of light or dark, for the head of any page with a ``main`` element."""
    css, theme = (script(name) for name in ("report.css", "theme.js"))
    return f"<style>{sheet()}\n{css}</style>\n<script>{theme}</script>"


def script(name: str) -> str:
    """Returns a file of this folder, such as a script."""
    return (_HERE / name).read_text(encoding="utf-8")


def heading(title: str, source: str, warning: str, facts: Mapping[str, str], manifest: Mapping[str, Any]) -> str:
    """Returns the HTML of a title, a warning if there is one, facts by name, and the configuration of a manifest."""
    items = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(text)}</dd></div>" for name, text in facts.items())
    details = json.dumps(
        {key: manifest.get(key) for key in ("config", "inputs", "versions", "git_commit", "command")},
        indent=2,
        ensure_ascii=False,
    )
    return (
        f"<h1>{escape(title)} <small>{escape(source)}</small></h1>"
        + (f"<p class='warning'>{escape(warning)}</p>" if warning else "")
        + f"<dl class='facts'>{items}</dl>"
        f"<details><summary>Configuration, inputs and versions</summary><pre>{escape(details)}</pre></details>"
    )


def tiles(values: Mapping[str, str], exact: Mapping[str, str] | None = None) -> str:
    """Returns the HTML of large values by label, with exact ones under the pointer."""
    under = {label: f" title='{escape(text)}'" for label, text in (exact or {}).items()}
    shown = "".join(
        f"<div class='tile'{under.get(label, '')}><b>{escape(text)}</b><span>{escape(label)}</span></div>"
        for label, text in values.items()
    )
    return f"<div class='tiles'>{shown}</div>"


def component(settings: Any) -> str:
    """Returns the name of a model with its settings."""
    if not isinstance(settings, Mapping):
        return str(settings or "none")
    more = [
        f"{key} {value}" for key, value in settings.items() if key not in ("path", "_target_") and value is not None
    ]
    return ", ".join([short_name(settings), *more])


def course(manifest: Mapping[str, Any], end_time: float) -> dict[str, str]:
    """Returns the seed of a run, its simulated seconds as time, its begin, its wall time and versions, as facts."""
    return {
        "Seed": str((manifest.get("seeds") or {}).get("seed", "–")),
        "Simulated": duration(end_time),
        "Started": str(manifest.get("start", "–")).replace("T", " ").replace("+00:00", " UTC"),
        "Took": duration(float(manifest.get("duration") or math.nan)) + " of wall time",
        "Versions": versions(manifest),
    }


def versions(manifest: Mapping[str, Any]) -> str:
    """Returns the versions of the main packages of a run."""
    found, commit = manifest.get("versions") or {}, manifest.get("git_commit") or ""
    texts = [f"{label} {found[key]}" for key, label in _PACKAGES.items() if key in found]
    if commit and texts:
        texts[0] += f" ({commit[:10]}{'+' if commit.endswith('-dirty') else ''})"
    return ", ".join(texts)


def listed(names: Iterable[str], values: Mapping[str, float]) -> str:
    """Returns the HTML of metrics with their units, in columns."""
    scales = {name: lone(name, [values[name]]) for name in names}
    items = "".join(
        f"<div><dt>{escape(words(name))}</dt>"
        f"<dd>{found.html(values[name])} <span>{_powers(escape(found.unit))}</span></dd></div>"
        for name, found in scales.items()
    )
    return f"<dl class='numbers'>{items}</dl>"


@dataclass(frozen=True)
class Scale:
    """A way to write some values of a metric.

    Attributes:
        unit: The unit, empty for pure numbers and where the texts have it.
        size: Its size in the unit of the metric.
        metric: The unit of the metric.
        form: Text of a number in this unit.
    """

    unit: str
    size: float
    metric: str
    form: Callable[[float], str]

    def text(self, value: float, *, signed: bool = False) -> str:
        """Returns a value in this unit, "-" for none."""
        told = self.form(value / self.size) if math.isfinite(value) else "-"
        return f"+{told}" if signed and value > 0 else told

    def exact(self, value: float) -> str:
        """Returns a value in the unit of the metric."""
        return f"{format_number(value)} {self.metric}".strip()

    def html(self, value: float, *, signed: bool = False) -> str:
        """Returns a value in this unit; under the pointer is the exact one, where that reads otherwise."""
        told, exact = self.text(value, signed=signed), self.exact(value)
        shown = _powers(escape(told))
        return shown if told in ("-", exact) else f"<span title='{escape(exact)}'>{shown}</span>"


def scale(name: str, values: Iterable[float]) -> Scale:
    """Returns how a column of values of a metric is written: in one unit, with equally many decimals.

    Seconds become minutes, hours or days, and J and W become multiples. The smallest value has four significant digits.
    """
    sizes = [abs(value) for value in values if math.isfinite(value)]
    unit, largest = metrics.unit(name), max(sizes, default=0.0)
    shown, size = unit, 1.0
    if unit == "s":
        found = time_unit(largest)
        shown, size = found.name, found.seconds
    elif unit in ("J", "W"):
        size, prefix = next((one for one in ((1e9, "G"), (1e6, "M"), (1e3, "k")) if largest >= one[0]), (1.0, ""))
        shown = prefix + unit
    return Scale(shown, size, unit, decimals([value / size for value in sizes]))


def decimals(values: Iterable[float], *, largest: bool = False) -> Callable[[float], str]:
    """Returns the form of a column of numbers, with equally many decimals: four, six digits in all, none for integers.

    The smallest number above 0 has four significant digits, or the `largest`, as suits differences.
    """
    found = [abs(value) for value in values if value and math.isfinite(value)]
    if not found or max(found) >= 1e9:
        return format_number
    if all(size == int(size) for size in found):
        return "{:z,.0f}".format
    low, high = (math.floor(math.log10(one)) for one in (min(found), max(found)))
    return f"{{:z,.{max(min(3 - (high if largest else low), 5 - high, 4), 0)}f}}".format


def lone(name: str, values: Iterable[float]) -> Scale:
    """Returns how values of a metric that are not compared are written: times in their two largest units."""
    unit = metrics.unit(name)
    return Scale("", 1.0, unit, duration) if unit == "s" else scale(name, values)


def words(name: str) -> str:
    """Returns the name of a metric as words."""
    return _NAMES.get(name, name.replace("_", " "))


def facts(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Returns the HTML of a table: names in the first column, units in the last, and numbers between them."""
    escaped = ([escape(cell) for cell in row] for row in rows)
    return _facts(heads, ((first, map(_powers, middle), unit) for first, *middle, unit in escaped))


def scaled(heads: Iterable[str], rows: Iterable[tuple[str, Scale, Iterable[float]]]) -> str:
    """Returns the HTML of a table as `facts` does, of names, units and the values in them."""
    return _facts(heads, ((escape(name), map(unit.html, values), escape(unit.unit)) for name, unit, values in rows))


def _facts(heads: Iterable[str], rows: Iterable[tuple[str, Iterable[str], str]]) -> str:
    *columns, unit = heads
    head = [*(f"<th scope='col'>{column}</th>" for column in columns), f"<th scope='col' class='unit'>{unit}</th>"]
    lines = (
        [f"<th scope='row'>{name}</th>", *(f"<td>{cell}</td>" for cell in cells), f"<td class='unit'>{unit}</td>"]
        for name, cells, unit in rows
    )
    return table(head, lines)


def _powers(text: str) -> str:
    """Sets ``10^12`` with a raised exponent."""
    base, caret, exponent = text.partition("^")
    return f"{base}<sup>{exponent}</sup>" if caret else text


def _json(value: Any) -> str:
    """JSON that is safe inside an HTML element."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")


class _Arrays:
    """Encodes charts for JSON; each array is written once, in base64, and referenced by its number."""

    _TYPES = (("f", 8, "f8"), ("f", 4, "f4"), ("i", 4, "i4"), ("u", 1, "u1"))

    def __init__(self) -> None:
        self.encoded: list[dict[str, str]] = []
        # The arrays are kept, so that no other array gets the identity of one that is gone.
        self._numbers: dict[int, tuple[int, NDArray[Any]]] = {}

    def plain(self, value: Any) -> Any:
        if isinstance(value, Heat):
            return self._heat(value)
        if is_dataclass(value):
            return {field.name: self.plain(getattr(value, field.name)) for field in fields(value)}
        if isinstance(value, np.ndarray):
            return {"array": self._number(value)}
        if isinstance(value, tuple | list):
            return [self.plain(child) for child in value]
        return value

    def _heat(self, heat: Heat) -> dict[str, Any]:
        plain = {field.name: self.plain(getattr(heat, field.name)) for field in fields(heat) if field.name != "share"}
        share = np.rint(heat.share * _STEPS).astype(np.uint8).ravel()
        return plain | {"share": self.plain(share), "full": _STEPS, "colors": HEAT}

    def _number(self, array: NDArray[Any]) -> int:
        if id(array) not in self._numbers:
            kind, size = array.dtype.kind, array.dtype.itemsize
            name = next((name for k, s, name in self._TYPES if (k, s) == (kind, size)), "f8")
            data = np.ascontiguousarray(array, f"<{name}")
            self._numbers[id(array)] = (len(self.encoded), array)
            self.encoded.append({"dtype": name, "data": base64.b64encode(data.tobytes()).decode("ascii")})
        return self._numbers[id(array)][0]
