"""The parts of a gang's run, and what its commands share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hdsim.runs.command import RunOutcome
from hdsim.util.files import shown
from hdsim.util.text import format_number

if TYPE_CHECKING:
    from hdsim.gangs.controllers import Controller
    from hdsim.gangs.planner import Planner
    from hdsim.gangs.real.launcher import Launcher
    from hdsim.gangs.simulation import Gang as Job
    from hdsim.gangs.simulation import GangRun
    from hdsim.gangs.workloads import Workloads

#: Metrics in words, for the terminal; those of real runs and of bounds are absent elsewhere.
METRICS = {
    "duration": "duration without checkpoints",
    "checkpoints": "checkpoints",
    "total": "total",
    "lower_bound": "lower bound of every plan",
    "predicted_duration": "predicted duration",
    "prediction_error": "median error of predictions",
    "repetitions": "repeated attempts",
    "elapsed": "elapsed time",
}


@dataclass(frozen=True)
class GangCommand:
    """The parts of a run, made from its configuration. The cores of a gang belong to no platform."""

    planner: Planner
    workloads: Workloads
    controller: Controller
    launcher: Launcher | None  # of a real run


def build(config: Mapping[str, Any]) -> GangCommand:
    """Reads and constructs everything that a configuration names.

    Raises:
        ConfigError: A file or a setting cannot be used.
    """
    from hdsim.gangs.controllers import make_controller
    from hdsim.gangs.workloads import GANG_KEYS, check_rows, load_gang

    controller = make_controller(config["controller"])
    planner, workloads = load_gang(**{key: config[key] for key in GANG_KEYS})
    check_rows(config["start"] + config["supersteps"], len(workloads.actual))
    return GangCommand(planner, workloads, controller, _launcher(config))


def _launcher(config: Mapping[str, Any]) -> Launcher | None:
    """Returns the launcher of a real run, None for a simulated one."""
    if not (config["runner"].get("_target_") or config["runner"].get("path")):
        return None
    from hdsim.gangs.real.launcher import make_launcher
    from hdsim.gangs.stressors import Stressors

    launcher = make_launcher(config["runner"])
    launcher.check(
        Stressors(**config["stressors"]), list(config["tasks"]), config["shares"]["start"], config["zookeeper"]
    )
    return launcher


def simulate(config: Mapping[str, Any], gang: GangCommand, directory: Path) -> tuple[GangRun, dict[str, Any]]:
    """Simulates the supersteps."""
    from hdsim.simulation.alone import run_alone

    return run_alone(job(config, gang)), {}


def job(config: Mapping[str, Any], gang: GangCommand) -> Job:
    """Returns the gang of a configuration."""
    from hdsim.gangs.simulation import Gang as Job

    workloads, settings = gang.workloads, {key: config[key] for key in ("start", "supersteps", "penalty", "seed")}
    return Job(gang.planner, workloads.actual, gang.controller, certain=workloads.certain, **settings)


def write(directory: Path, result: GangRun) -> dict[str, Any]:
    """Writes the results; returns entries of the manifest."""
    from hdsim.gangs.output import write_run
    from hdsim.gangs.real.run import RealRun, write_real_run

    return write_real_run(directory, result) if isinstance(result, RealRun) else write_run(directory, result)


def report(gang: GangCommand, outcome: RunOutcome) -> None:
    """Prints the metrics."""
    from hdsim.results.metrics import unit

    lines = [
        (f"{text}  ", format_number(outcome.metrics[name]), unit(name))
        for name, text in METRICS.items()
        if name in outcome.metrics
    ]
    width = max(len(number) for _, number, _ in lines)
    for text, number, of in lines:
        click.echo(f"{text:31}{number:>{width}} {of}".rstrip())
    click.echo(f"\nrun directory  {shown(outcome.directory)}")
