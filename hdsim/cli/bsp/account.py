"""``hdsim bsp account``: where the seconds between a run and a lower bound of every plan go."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hdsim.cli.bsp.gang import build
from hdsim.cli.parameters import PATH
from hdsim.config.keys import GANG_RULES
from hdsim.errors import ConfigError
from hdsim.util.files import shown, writable
from hdsim.util.text import format_number, format_table

if TYPE_CHECKING:
    from hdsim.gangs.accounting import Item


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", type=PATH)
@click.option(
    "--orders",
    type=click.IntRange(2),
    default=4,
    show_default=True,
    help="Orders in which predictions of one task after the other are replaced.",
)
def account(runs: tuple[Path, ...], orders: int) -> None:
    """Accounts for the seconds between the total of a run and a lower bound of every plan.

    \b
    hdsim bsp account runs/best
    hdsim bsp account runs/best --orders 20

    RUN is a run directory of `hdsim bsp run`, or a sweep of them. A run is simulated again with the executed workloads
    in place of the predictions, of all tasks and of some of them. The table is also written to RUN/accounting.csv,
    which `hdsim report` shows.
    """  # noqa: D301 - click reads the backspace character
    from hdsim.gangs.output import write_accounting
    from hdsim.report.pairing import run_directories

    for directory in dict.fromkeys(run for given in runs for run in run_directories(given)):
        items = _account(directory, orders)
        with writable("a directory", directory):
            write_accounting(directory, items)
        click.echo(f"{shown(directory)}\n{_table(items)}\n\ntable  {shown(directory / 'accounting.csv')}\n")


def _account(directory: Path, orders: int) -> list[Item]:
    import numpy as np
    from tqdm import tqdm

    from hdsim.gangs.accounting import Knowledge, account
    from hdsim.gangs.bound import lower_bound
    from hdsim.gangs.controllers import make_controller
    from hdsim.gangs.offline import OneTime, PlannedSegments
    from hdsim.gangs.planner import ExactPlanner
    from hdsim.gangs.simulation import Gang, GangRun
    from hdsim.gangs.workloads import PERFECT, read_workloads
    from hdsim.simulation.alone import run_alone

    config, total = _finished(directory)
    gang = build(config)
    perfect = read_workloads(config["tasks"], config["actual"], PERFECT, config["seed"], config["scaling"]).predictions
    planner, start, actual = gang.planner, config["start"], gang.workloads.actual
    settings = {key: config[key] for key in ("start", "supersteps", "penalty", "seed")}
    calls = tqdm(desc="runs", disable=not sys.stderr.isatty(), unit=" runs")

    def parts(run: GangRun) -> Any:
        calls.update()
        return np.array([run.metrics["duration"], run.metrics["total"] - run.metrics["duration"]])

    @cache
    def costs(knowledge: Knowledge) -> Any:
        predictions = gang.workloads.predictions.copy()
        known = list(knowledge.known)
        predictions[..., known] = perfect[..., known]
        kind = ExactPlanner if knowledge.exact else type(planner)
        made, controller = kind(planner.profile, planner.budget, predictions), make_controller(config["controller"])
        return parts(run_alone(Gang(made, actual, controller, certain=knowledge.certain, **settings)))

    with calls:
        certain = gang.workloads.certain
        again = costs(Knowledge(frozenset(range(len(planner.profile.tasks))), certain=True) if certain else Knowledge())
        if abs(again.sum() - total) > 1e-6 * total:
            message = f"expected a run that repeats itself, got {again.sum():.6f} s in place of {total:.6f} s"
            raise ConfigError(f"{message}; has an input changed?", where=str(directory))
        segments = PlannedSegments(planner.profile, planner.budget, actual[start : start + config["supersteps"]])
        bound = lower_bound(segments, config["penalty"])
        offline = OneTime()
        offline.segments = segments
        exact = ExactPlanner(planner.profile, planner.budget, perfect)
        least = parts(run_alone(Gang(exact, actual, offline, certain=True, **settings)))
        return account(costs, planner.profile.tasks, least, bound, orders=orders, certain=certain)


def _finished(directory: Path) -> tuple[Mapping[str, Any], float]:
    """Configuration and total of a finished run."""
    from hdsim.results.run_directory.manifest import read_manifest, told_status
    from hdsim.results.run_directory.reader import read_metrics

    manifest = read_manifest(directory)
    if manifest["status"] != "finished":
        raise ConfigError(f"expected a finished run, got one that is {told_status(manifest)}", where=str(directory))
    config = manifest["config"]
    if "controller" not in config:
        raise ConfigError("expected a run of hdsim bsp, got one of another command", where=str(directory))
    missing = [key for key in GANG_RULES if key not in config]
    if missing:
        message = f"expected a run of this version of hdsim, got one without the keys {', '.join(missing)}"
        raise ConfigError(message, where=str(directory))
    if any(config.get("runner", {}).values()):
        raise ConfigError(
            "expected a simulated run, got a real one, which does not repeat itself", where=str(directory)
        )
    metrics = read_metrics(directory, manifest)
    if "total" not in metrics:
        raise ConfigError("expected a metric total, got none", where=str(directory / "metrics.json"))
    return config, metrics["total"]


def _table(items: list[Item]) -> str:
    from hdsim.gangs.accounting import Item

    rows: list[tuple[str, ...]] = [("", "s", "+-", "durations", "penalties")]
    total = Item("total", sum(item.seconds for item in items))
    for item in (*items, total):
        error = format_number(item.error) if item.error else ""
        parts = (format_number(part, signed=True) if part == part else "" for part in (item.duration, item.penalty))
        rows.append((item.cause, format_number(item.seconds), error, *parts))
    return format_table(rows)
