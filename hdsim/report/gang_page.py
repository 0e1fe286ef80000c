"""The reports of the run of a gang and of a sweep of them, as a page and as text."""

from __future__ import annotations

import math
from collections.abc import Mapping

from hdsim.report.charts import Panel
from hdsim.report.gangs import TASK_COLUMNS, panels, progress, slowest_by_run, task_table
from hdsim.report.page import component, course, facts, heading, page, tiles, versions
from hdsim.results.run_directory.supersteps import GangRecord
from hdsim.util.plugins import short_name
from hdsim.util.text import format_number, format_table


def title(run: GangRecord) -> str:
    """The run in a few words: controller and tasks."""
    controller = run.config.get("controller")
    name = short_name(controller) if isinstance(controller, Mapping) else str(controller or "unknown controller")
    return f"{name} on a gang of {len(run.tasks)} tasks"


def render(run: GangRecord) -> str:
    """Returns the page of a run."""
    warning = f"The run is {run.cut_short}. The page shows the {len(run.duration):,} supersteps until then."
    values = {label: _with_unit(number, unit) for label, number, unit in _metrics(run)}
    numbers = [tiles(values), _html_table(_task_rows(run))]
    if run.accounting:
        numbers.append(_html_table(_accounting_rows(run)))
    text = heading(title(run), run.path.resolve().name, warning if run.cut_short else "", _facts(run), run.manifest)
    return page(title(run), run.manifest, text, "".join(numbers), panels(run))


def text(run: GangRecord) -> str:
    """Returns metrics, tasks and accounting of a run as text tables."""
    metrics = [[label, format_number(number), unit] for label, number, unit in _metrics(run)]
    parts = [metrics, _task_rows(run), *([_accounting_rows(run)] if run.accounting else [])]
    return "\n\n".join(format_table(rows) for rows in parts)


def render_sweep(name: str, runs: Mapping[str, GangRecord]) -> str:
    """Returns the page of a sweep: of its runs by name, at least one."""
    first = next(iter(runs.values()))
    title, facts = f"{len(runs):,} runs of gangs", {"Versions": versions(first.manifest)}
    upper = heading(title, name, "", facts, first.manifest)
    return page(title, first.manifest, upper, _html_table(sweep_rows(runs)), sweep_panels(runs))


def sweep_panels(runs: Mapping[str, GangRecord]) -> list[Panel]:
    """Panels that compare runs: progress relative to the first one, slowest tasks."""
    first, *others = runs
    pairs = {name: [(runs[name], runs[first])] for name in others}
    made = (progress(pairs, first), slowest_by_run(runs))
    return [panel for panel in made if panel is not None]


def _metrics(run: GangRecord) -> list[tuple[str, float, str]]:
    """Label, value and unit of each metric."""
    metrics = run.metrics
    total, bound = metrics.get("total", math.nan), metrics.get("lower_bound", math.nan)
    if math.isnan(bound):
        bound = next(iter(run.accounting.values()), math.nan)  # its first row
    found = [
        ("duration without checkpoints", metrics.get("duration", math.nan), "s"),
        ("checkpoints", metrics.get("checkpoints", math.nan), ""),
        ("penalties of checkpoints", total - metrics.get("duration", math.nan), "s"),
        ("total", total, "s"),
        ("lower bound of every plan", bound, "s"),
        ("total above the bound", 100 * (total / bound - 1) if bound else math.nan, "%"),
    ]
    return [entry for entry in found if not math.isnan(entry[1])]


def _task_rows(run: GangRecord) -> list[list[str]]:
    rows = [[task, *map(format_number, values)] for task, values in task_table(run).items()]
    return [["task", *TASK_COLUMNS], *rows]


def _accounting_rows(run: GangRecord) -> list[list[str]]:
    total = sum(run.accounting.values())
    causes = {**run.accounting, "total": total}
    return [["seconds of the total", "s"], *([cause, format_number(seconds)] for cause, seconds in causes.items())]


def sweep_rows(runs: Mapping[str, GangRecord]) -> list[list[str]]:
    """Returns the metrics of runs as cells of a table, the heading first."""
    metrics = {name: {label: (value, unit) for label, value, unit in _metrics(run)} for name, run in runs.items()}
    labels = dict.fromkeys(label for found in metrics.values() for label in found)
    units = {label: unit for found in metrics.values() for label, (_, unit) in found.items()}
    heads = [f"{label} ({units[label]})" if units[label] else label for label in labels]
    none = (math.nan, "")
    rows = [[name, *(format_number(found.get(label, none)[0]) for label in labels)] for name, found in metrics.items()]
    return [["run", *heads], *rows]


def _html_table(rows: list[list[str]]) -> str:
    head, *lines = rows
    return f"<div class='scroll'>{facts([*head, ''], ([*line, ''] for line in lines))}</div>"


def _with_unit(number: float, unit: str) -> str:
    return f"{format_number(number)} {unit}".rstrip()


def _facts(run: GangRecord) -> dict[str, str]:
    config, shares = run.config, run.config.get("shares")
    return {
        "Controller": component(config.get("controller")),
        "Planner": str(config.get("planner", "–")),
        "Tasks": ", ".join(run.tasks),
        "Profile": str(config.get("profile", "–")),
        "Workloads": str(config.get("actual", "–")),
        "Predictions": str(config.get("forecasts", "–")),
        "Supersteps": f"{len(run.duration):,}, from row {run.row[0]:,} on",
        "Penalty of a checkpoint": f"{config.get('penalty', '–')} s",
        "CPU shares": f"{shares.get('total', '–')} millicores" if isinstance(shares, Mapping) else "–",
        **course(run.manifest, float(run.end[-1])),
    }
