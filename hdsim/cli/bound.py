"""``hdsim bound``: bounds of a trace."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import click

from hdsim.errors import ConfigError
from hdsim.scheduling.agent import BACKFILLS
from hdsim.util.rules import has_values
from hdsim.util.text import format_number, format_table


@click.command()
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--window", type=click.IntRange(min=2), help="Jobs of a window, by default all.")
@click.option("--windows", type=click.IntRange(min=1), help="Number of windows, by default as many as there are.")
@click.option(
    "--objective",
    default="mean_bounded_slowdown",
    show_default=True,
    help="Or mean_waiting_time, mean_turnaround_time.",
)
@click.option(
    "--backfill",
    type=click.Choice(list(BACKFILLS)),
    default="easy",
    show_default=True,
    help="Rule of the orders; with none the search does not backfill either.",
)
@click.option("--moves", type=click.IntRange(min=0), default=10_000, show_default=True, help="Of the search.")
@click.option("--seconds", type=float, help="Of the search, for each window, in place of a number of moves.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def bound(overrides: tuple[str, ...], window: int | None, windows: int | None, *, as_json: bool, **search: Any) -> None:
    """Bounds the best schedule of a trace: a search that knows the future, and a limit that none can pass.

    \b
    hdsim bound platform=homogeneous_256 workload.path=lublin_4000 workload.jobs=500
    hdsim bound platform=homogeneous_256 workload=lublin workload.jobs=5000 --window 1024 --backfill none --seconds 30
    hdsim bound platform=homogeneous_256 workload.path=lublin_4000_train --windows 2 --window 500 --json > bound.json

    The configuration is that of `hdsim run`; the agent is not used. docs/search.md explains the columns.
    """  # noqa: D301 - click reads the backspace character
    from hdsim.config.composer import Composer
    from hdsim.config.inputs import read_platform, read_workload
    from hdsim.simulation.bound import bound as bounded

    composer = Composer()
    config = composer.compose(composer.overrides(overrides))
    _refuse_others(config)
    platform = read_platform(config)
    workload = read_workload(config, platform)
    size = window or len(workload)
    if size > len(workload):
        raise ConfigError(
            f"expected at most the {len(workload):,} jobs of the workload, got {size:,}", where="--window"
        )
    rows = []
    for start in range(0, len(workload) - size + 1, size)[:windows]:
        found = bounded(platform, workload[start : start + size], seed=config["seed"], **search)
        rows.append(
            {"start": start, "jobs": size, **asdict(found), "best": found.best, "its": found.orders[found.best]}
        )
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    means = {key: sum(row[key] for row in rows) / len(rows) for key in ("its", "attained", "lower")}
    lines = [_line(f"{row['start']:,}", row["best"], row) for row in rows]
    lines += [_line("mean", "", means)] if len(rows) > 1 else []
    what = f"{search['objective']} of windows of {size:,} jobs on {platform.name}"
    click.echo(f"{what}, orders with backfill={search['backfill']}\n")
    click.echo(format_table([("first job", "best order", "its", "attained", "of it", "lower bound"), *lines]))


def _refuse_others(config: dict[str, Any]) -> None:
    """Refuses what a run does with its jobs beside starting them.

    Raises:
        ConfigError: There is a metric, a part that is left out, a model, a facility, the rules of a site or another
            backend; all are listed.
    """
    from hdsim.simulation.setup import model_settings

    keys = [key for key in ("metrics", "warmup", "cooldown") if config[key] is not None]
    faults = [ConfigError("expected null: a bound is one of --objective over all jobs", where=key) for key in keys]
    for group in ("contention", "network", "failures", "facility", "power", "site"):
        if has_values(config.get(group)):
            faults.append(ConfigError("expected none with hdsim bound, whose jobs run undisturbed", where=group))
    if dict(config["backend"]) != model_settings("backend", "sim"):
        told = "expected sim with kill_at_walltime=false and batch_events=true with hdsim bound"
        faults.append(ConfigError(told, where="backend"))
    if faults:
        raise ConfigError.many(faults)


def _line(name: str, best: str, row: dict[str, float]) -> list[str]:
    """Returns a line of the table."""
    share = row["attained"] / row["its"] if row["its"] else 1.0
    return [name, best, *map(format_number, (row["its"], row["attained"], share, row["lower"]))]
