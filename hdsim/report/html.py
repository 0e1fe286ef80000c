"""The interactive report of a replay."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hdsim.report.charts import duration
from hdsim.report.page import component, course, heading, listed, lone, page, scaled, tiles, words
from hdsim.report.panels import panels
from hdsim.report.recorded import waits
from hdsim.results import metrics
from hdsim.scheduling.rules import rule_label
from hdsim.util.text import format_number

if TYPE_CHECKING:
    from hdsim.results.run_directory.reader import Run

#: Metrics in the first row of tiles.
_TILES = {
    "makespan": "makespan",
    "mean_waiting_time": "mean waiting time",
    "mean_bounded_slowdown": "mean bounded slowdown",
    "utilization": "utilization",
    "energy_joules": "energy",
    "jobs_completed": "jobs completed",
}


#: Units of metrics that are 0 where a platform has no powers.
_ENERGIES = ("J", "J s", "J s^2", "W")


def render(run: Run) -> str:
    """Returns the page of a run."""
    return page(title(run), run.manifest, _header(run), _metrics(run) + _recorded(run), panels(run))


def title(run: Run) -> str:
    """The run in a few words: agent, platform, workload."""
    return f"{agent_name(run.config)} on {run.platform.name}"


def agent_name(config: Mapping[str, Any]) -> str:
    """Short name of the agent of a configuration."""
    agent = config.get("agent")
    if not isinstance(agent, Mapping):
        return str(agent or "agent")
    if agent.get("path"):
        return Path(str(agent["path"])).stem
    if agent.get("_target_"):
        return str(agent["_target_"]).rpartition(".")[2]
    backfill = rule_label(agent.get("backfill", "none"))
    if backfill not in ("none", "None"):
        order = agent.get("backfill_order")
        return f"{agent.get('job_policy')} with {backfill} backfilling" + (f" by {order}" if order else "")
    return "-".join(str(agent[key]) for key in ("job_policy", "core_policy") if agent.get(key)) or "agent"


def _backend(manifest: Mapping[str, Any]) -> dict[str, str]:
    """The backend and its server, of a run that names them."""
    facts = manifest.get("backend") or {}
    named = " at ".join(str(facts[key]) for key in ("name", "server") if key in facts)
    return {"Backend": named} if named else {}


def _period(run: Run) -> dict[str, str]:
    """The period of the means, where they leave out a warm-up or a cool-down."""
    if "period" not in run.manifest:
        return {}
    bounds = " to ".join(map(duration, run.manifest["period"]))
    return {"Means": f"of {bounds}: {run.counted.sum():,} jobs"}


def _training(run: Run) -> dict[str, str]:
    """Length of a training, and the test window that metrics and curves over time are of."""
    settings = run.config.get("train")
    if not isinstance(settings, Mapping) or not _is_training(run):
        return {}
    shown = len(run.jobs["job_id"])
    return {"Training": f"{settings.get('steps', 0):,} steps"} | (
        {"Metrics and schedule": f"of the first test window, {shown:,} jobs"} if shown else {}
    )


def _is_training(run: Run) -> bool:
    return (run.path / "progress.csv").is_file()


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
        **_training(run),
        **_backend(manifest),
        **_period(run),
        "Contention": component(config.get("contention")),
        "Network": component(config.get("network")),
        "Failures": component(config.get("failures")),
        **course(manifest, run.end_time),
    }
    return heading(title(run), source, _warning(run, jobs), facts, manifest)


def _warning(run: Run, jobs: int) -> str:
    if run.manifest["status"] == "finished":
        return ""
    signal = run.manifest.get("signal")
    ended = f"is {run.dead}" if run.dead else f"was interrupted{f' by {signal}' if signal else ''}"
    if _is_training(run):
        return f"The training {ended}. The page shows its records until then."
    return (
        f"The run {ended} after {duration(run.end_time)} of simulated time. "
        f"The curves show the {len(run.jobs['job_id']):,} of {jobs:,} jobs that were done by then."
    )


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


def _metrics(run: Run) -> str:
    values = run.metrics
    quantities, others = metrics.families(values)
    statistics = f"<div class='scroll'>{_statistics(quantities, values)}</div>"
    if not run.platform.power.any():  # as of a site, whose files have none
        values = {name: value for name, value in values.items() if metrics.unit(name) not in _ENERGIES}
        others = [name for name in others if name in values]
    shown = main_metrics(values)
    exact = {label: lone(name, []).exact(values[name]) for name, label in _TILES.items() if label in shown}
    rest = [name for name in others if _TILES.get(name) not in shown]
    note = ""
    if not _has_users(run):
        rest = [name for name in rest if name not in metrics.FAIRNESS]
        note = "<p class='note'>All jobs are of one user, so that there is no fairness among users to measure.</p>"
    return tiles(shown, exact) + statistics + listed(rest, values) + note


def _has_users(run: Run) -> bool:
    """Jobs are of several users, as far as the trace knows them."""
    users = run.jobs.get("user")
    return users is not None and len(np.unique(users[run.counted])) > 1


def _recorded(run: Run) -> str:
    """Waiting times beside those that the trace recorded."""
    found = waits(run.path, run.manifest, run.jobs)
    if found is None:
        return ""
    rows = found.statistics()
    unit = lone("waiting_time", [])
    table = scaled(("waiting time", *metrics.STATISTICS, ""), ((name, unit, rows[name]) for name in rows))
    return f"<div class='scroll'>{table}</div><p class='note'>{escape(str(found))}</p>"


def main_metrics(values: Mapping[str, float]) -> dict[str, str]:
    """Returns the metrics of the first row of tiles with their units, by label; those without a value are left out."""
    return {
        label: _tile(name, values[name]) for name, label in _TILES.items() if not math.isnan(values.get(name, math.nan))
    }


def _tile(name: str, value: float) -> str:
    if not math.isfinite(value):
        return "–"
    unit = metrics.unit(name)
    if unit in ("s", "J"):
        found = lone(name, [value])
        return f"{found.text(value)} {found.unit}".strip()
    return f"{100 * value:.1f} %" if name == "utilization" else format_number(value)


def _statistics(quantities: Sequence[str], values: Mapping[str, float]) -> str:
    heads = ("", *metrics.STATISTICS, "")
    rows = []
    for quantity in quantities:
        found = [values[f"{kind}_{quantity}"] for kind in metrics.STATISTICS]
        rows.append((words(quantity), lone(quantity, found), found))
    return scaled(heads, rows) if rows else ""
