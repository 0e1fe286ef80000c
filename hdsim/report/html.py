"""The interactive report of a run: one page with its data, style and plotting library, that needs no network."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from html import escape
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hdsim.report.charts import HEAT, Heat, duration
from hdsim.report.panels import panels
from hdsim.results import metrics
from hdsim.util.files import replacing
from hdsim.util.plugins import short_name
from hdsim.util.text import format_number

if TYPE_CHECKING:
    from hdsim.results.run_directory.reader import Run

_HERE = Path(__file__).parent
#: Number of levels of a share, one byte each.
_STEPS = 250
#: Metrics in the first row of tiles.
_TILES = {
    "makespan": "makespan",
    "mean_waiting_time": "mean waiting time",
    "mean_bounded_slowdown": "mean bounded slowdown",
    "utilization": "utilization",
    "energy_joules": "energy",
    "jobs_completed": "jobs completed",
}
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
    "gpu_hours": "GPU hours",
    "gpu_utilization": "GPU utilization",
}


def render(run: Run) -> str:
    """Returns the page of a run."""
    from plotly.offline import get_plotlyjs

    arrays = _Arrays()
    shown = [arrays.plain(panel) for panel in panels(run)]
    template = Template((_HERE / "page.html").read_text(encoding="utf-8"))
    return template.substitute(
        version=escape(str((run.manifest.get("versions") or {}).get("hdsim"))),
        title=escape(title(run)),
        style=(_HERE / "report.css").read_text(encoding="utf-8"),
        header=_header(run),
        metrics=_metrics(run.metrics),
        arrays=_json(arrays.encoded),
        panels=_json(shown),
        plotly=get_plotlyjs(),
        script=(_HERE / "report.js").read_text(encoding="utf-8"),
    )


def write(run: Run, path: Path) -> None:
    """Writes the page of a run; the file appears whole or not at all.

    Raises:
        OSError: It cannot be written.
    """
    with replacing(path) as file:
        file.write(render(run))


def title(run: Run) -> str:
    """The run in a few words: agent, platform, workload."""
    return f"{agent_name(run.config)} on {run.platform.name}"


def agent_name(config: Mapping[str, Any]) -> str:
    """Short name of the agent of a configuration."""
    agent = config.get("agent")
    if not isinstance(agent, Mapping):
        return str(agent or "agent")
    for key, shorten in (("_target_", lambda text: text.rpartition(".")[2]), ("path", lambda text: Path(text).stem)):
        if agent.get(key) and not (key == "_target_" and agent.get("path")):
            return str(shorten(str(agent[key])))
    backfill = agent.get("backfill") or "none"
    if backfill != "none":
        order = agent.get("backfill_order")
        return f"{agent.get('job_policy')} with {backfill} backfilling" + (f" by {order}" if order else "")
    return "-".join(str(agent[key]) for key in ("job_policy", "core_policy") if agent.get(key)) or "agent"


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


def _backend(manifest: Mapping[str, Any]) -> dict[str, str]:
    """The backend and its server, of a run on one of its own."""
    facts = manifest.get("backend") or {}
    return {"Backend": " at ".join(str(facts[key]) for key in ("name", "server") if key in facts)} if facts else {}


def _header(run: Run) -> str:
    manifest, config, platform = run.manifest, run.config, run.platform
    workload = manifest.get("workload") or {}
    about = config.get("workload")
    about = about if isinstance(about, Mapping) else {}
    source = Path(str(about["path"])).name if about.get("path") else str(workload.get("name") or "–")
    if about.get("cluster"):
        source = "pods of the cluster"
    jobs = workload.get("jobs")
    jobs = jobs if isinstance(jobs, int) else len(run.jobs["job_id"])
    facts = {
        "Agent": _agent(config),
        "Platform": f"{platform.name}: "
        + ", ".join(
            f"{count:,} {name}{'s' * (count != 1)}"
            for name, count in (
                ("core", platform.n_cpu_cores),
                *([("GPU", platform.n_gpus)] if platform.n_gpus else []),
                ("processor", platform.n_processors),
                ("node", platform.n_nodes),
                ("cluster", platform.n_clusters),
            )
        ),
        "Workload": source if about.get("cluster") else f"{source}: {jobs:,} jobs" + _slice(about),
        **_backend(manifest),
        "Contention": _component(config.get("contention")),
        "Network": _component(config.get("network")),
        "Failures": _component(config.get("failures")),
        "Seed": str((manifest.get("seeds") or {}).get("seed", "–")),
        "Simulated": duration(run.end_time),
        "Started": str(manifest.get("start", "–")).replace("T", " ").replace("+00:00", " UTC"),
        "Took": duration(float(manifest.get("duration") or math.nan)) + " of wall time",
        "Versions": _versions(manifest),
    }
    items = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(text)}</dd></div>" for name, text in facts.items())
    details = json.dumps(
        {key: manifest.get(key) for key in ("config", "inputs", "versions", "git_commit", "command")},
        indent=2,
        ensure_ascii=False,
    )
    return (
        f"<h1>{escape(title(run))} <small>{escape(source)}</small></h1>"
        f"{_warning(run, jobs)}<dl class='facts'>{items}</dl>"
        f"<details><summary>Configuration, inputs and versions</summary><pre>{escape(details)}</pre></details>"
    )


def _warning(run: Run, jobs: int) -> str:
    if run.manifest["status"] == "finished":
        return ""
    signal = run.manifest.get("signal")
    ended = f"is {run.dead}" if run.dead else f"was interrupted{f' by {signal}' if signal else ''}"
    text = (
        f"The run {ended} after {duration(run.end_time)} of simulated time. "
        f"The curves show the {len(run.jobs['job_id']):,} of {jobs:,} jobs that were done by then."
    )
    return f"<p class='warning'>{escape(text)}</p>"


def _agent(config: Mapping[str, Any]) -> str:
    agent, name = config.get("agent"), agent_name(config)
    policy = agent.get("core_policy") if isinstance(agent, Mapping) else None
    return f"{name}, cores by {policy}" if policy and policy not in name else name


def _slice(workload: Mapping[str, Any]) -> str:
    parts, start, factor = [], workload.get("start"), workload.get("arrival_factor")
    if isinstance(start, int) and start:
        parts.append(f"from job {start:,} on")
    if isinstance(factor, int | float) and factor != 1:
        parts.append(f"time between arrivals x {factor:g}")
    return "".join(f", {part}" for part in parts)


def _component(settings: Any) -> str:
    if not isinstance(settings, Mapping):
        return str(settings or "none")
    more = [
        f"{key} {value}" for key, value in settings.items() if key not in ("path", "_target_") and value is not None
    ]
    return ", ".join([short_name(settings), *more])


def _versions(manifest: Mapping[str, Any]) -> str:
    versions, commit = manifest.get("versions") or {}, manifest.get("git_commit") or ""
    texts = [f"{label} {versions[key]}" for key, label in _PACKAGES.items() if key in versions]
    if commit and texts:
        texts[0] += f" ({commit[:10]}{'+' if commit.endswith('-dirty') else ''})"
    return ", ".join(texts)


def _metrics(values: Mapping[str, float]) -> str:
    quantities, others = metrics.families(values)
    tiles = "".join(
        f"<div class='tile'><b>{escape(_tile(name, values[name]))}</b><span>{escape(label)}</span></div>"
        for name, label in _TILES.items()
        if not math.isnan(values.get(name, math.nan))
    )
    return (
        f"<section aria-label='Metrics'><div class='tiles'>{tiles}</div>"
        f"<div class='scroll'>{_statistics(quantities, values)}</div>{_others(others, values)}</section>"
    )


def _tile(name: str, value: float) -> str:
    if not math.isfinite(value):
        return "–"
    unit = metrics.unit(name)
    if unit == "s":
        return duration(value)
    if unit == "J":
        size, prefix = next((s, p) for s, p in ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, "")) if value >= s or s == 1)
        return f"{value / size:,.4g} {prefix}J"
    return f"{100 * value:.1f} %" if name == "utilization" else format_number(value)


def _statistics(quantities: Sequence[str], values: Mapping[str, float]) -> str:
    heads = ("", "mean", "median", "95 %", "99 %", "max", "unit")
    rows = (
        [
            _words(quantity),
            *(format_number(values[f"{kind}_{quantity}"]) for kind in metrics.STATISTICS),
            metrics.unit(f"mean_{quantity}"),
        ]
        for quantity in quantities
    )
    return _table(heads, rows) if quantities else ""


def _others(names: Iterable[str], values: Mapping[str, float]) -> str:
    items = "".join(
        f"<div><dt>{escape(_words(name))}</dt>"
        f"<dd>{_powers(format_number(values[name]))} <span>{_powers(metrics.unit(name))}</span></dd></div>"
        for name in names
    )
    return f"<dl class='numbers'>{items}</dl>"


def _words(name: str) -> str:
    return _NAMES.get(name, name.replace("_", " "))


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    def row(cells: Iterable[str]) -> str:
        first, *middle, unit = (escape(cell) for cell in cells)
        numbers = "".join(f"<td>{_powers(cell)}</td>" for cell in middle)
        return f"<tr><th scope='row'>{first}</th>{numbers}<td class='unit'>{unit}</td></tr>"

    *columns, unit = heads
    head = "".join(f"<th scope='col'>{column}</th>" for column in columns)
    body = "".join(map(row, rows))
    return f"<table><thead><tr>{head}<th scope='col' class='unit'>{unit}</th></tr></thead><tbody>{body}</tbody></table>"


def _powers(text: str) -> str:
    """Sets ``10^12`` with a raised exponent."""
    base, caret, exponent = text.partition("^")
    return f"{base}<sup>{exponent}</sup>" if caret else text
