"""``hdsim bsp run``: supersteps of a gang, or a sweep of such runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hdsim.cli.launch import Command, Outcome, configured, launch, shown
from hdsim.errors import ConfigError, nearest
from hdsim.util.text import format_number

if TYPE_CHECKING:
    from hdsim.gangs.controllers import Controller
    from hdsim.gangs.planner import Planner
    from hdsim.gangs.simulation import GangRun
    from hdsim.gangs.workloads import Workloads


@configured
def run(overrides: tuple[str, ...], config_name: str | None, **options: Any) -> None:
    """Runs the supersteps of a gang with a controller of its CPU shares and writes a run directory.

    \b
    hdsim bsp run
    hdsim bsp run controller=static_window controller.window=3
    hdsim bsp run profile=profile.csv actual=series/actual forecasts=series/forecasts start=400 supersteps=200
    hdsim bsp run -m controller=static,dynamic_mpc penalty=5,15,45 hydra.sweep.dir=runs/penalties

    A controller goes by its name, by controller.path=FILE.py or by controller._target_=package.Class. All keys are in
    docs/bsp_gangs.md.
    """  # noqa: D301 - click reads the backspace character
    launch(_GANG, overrides, config_name=config_name or "bsp", **options)


@dataclass(frozen=True)
class Gang:
    """The parts of a run, made from its configuration. The cores of a gang belong to no platform."""

    planner: Planner
    workloads: Workloads
    controller: Controller
    platform: None = None
    workload: None = None


def build(config: Mapping[str, Any]) -> Gang:
    """Reads and constructs everything that a configuration names.

    Raises:
        ConfigError: A file or a setting cannot be used.
    """
    from hdsim.gangs.controllers import make_controller
    from hdsim.gangs.planner import PLANNERS, Budget
    from hdsim.gangs.profile import read_profile
    from hdsim.gangs.workloads import read_workloads
    from hdsim.util.resources import resolve

    name, tasks, budget = config["planner"], config["tasks"], Budget(**config["shares"])
    if name not in PLANNERS:
        message = f"expected {' or '.join(PLANNERS)}, got '{name}'{nearest(name, PLANNERS)}"
        raise ConfigError(message, where="planner")
    controller = make_controller(config["controller"])
    profile = read_profile(resolve("profiles", config["profile"], where="profile")).of(list(tasks))
    budget.check(len(tasks))
    workloads = read_workloads(tasks, config["actual"], config["forecasts"], config["seed"])
    rows, needed = len(workloads.actual), config["start"] + config["supersteps"]
    if needed > rows:
        message = f"expected start + supersteps of at most {rows}, the rows of the series, got {needed}"
        raise ConfigError(message, where="supersteps")
    return Gang(PLANNERS[name](profile, budget, workloads.predictions), workloads, controller)


def _run(config: Mapping[str, Any], gang: Gang, directory: Path) -> tuple[GangRun, dict[str, Any]]:
    from hdsim.gangs.simulation import simulate

    settings = {key: config[key] for key in ("start", "supersteps", "penalty")}
    workloads = gang.workloads
    return simulate(gang.planner, workloads.actual, gang.controller, certain=workloads.certain, **settings), {}


def _write(directory: Path, result: GangRun) -> dict[str, Any]:
    from hdsim.gangs.output import write_run

    return write_run(directory, result)


def _report(gang: Gang, outcome: Outcome) -> None:
    duration, checkpoints, total = (format_number(outcome.metrics[name]) for name in METRICS)
    width = max(map(len, (duration, checkpoints, total)))
    click.echo(f"duration without checkpoints  {duration:>{width}} s")
    click.echo(f"checkpoints                   {checkpoints:>{width}}")
    click.echo(f"total                         {total:>{width}} s")
    click.echo(f"\nrun directory  {shown(outcome.directory)}")


METRICS = ("duration", "checkpoints", "total")
_GANG = Command(build, _run, _report, check=build, write=_write, metrics=METRICS)
