"""``hdsim bsp plan``: the offline plan of a gang, and a lower bound of every plan."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hdsim.cli.bsp.gang import GangCommand, build, report, simulate, write
from hdsim.cli.launch import configured, launch
from hdsim.runs.command import Command

if TYPE_CHECKING:
    from hdsim.gangs.simulation import GangRun

#: Defaults of the command.
_OFFLINE = ("controller=one_time", "planner=exact", "forecasts=actual")


@configured("bsp")
def plan(overrides: tuple[str, ...], **options: Any) -> None:
    """Plans all supersteps of a gang with perfect knowledge, and bounds the total of every plan from below.

    \b
    hdsim bsp plan supersteps=50
    hdsim bsp plan supersteps=50 controller=best

    The keys are those of `hdsim bsp run`, with the defaults controller=one_time, planner=exact and forecasts=actual.
    The bound holds for every controller on the same workloads.
    """  # noqa: D301 - click reads the backspace character
    given = {text.partition("=")[0] for text in overrides}
    overrides = (*(text for text in _OFFLINE if text.partition("=")[0] not in given), *overrides)
    launch(COMMAND, report, overrides, **options)


def _bounded(config: Mapping[str, Any], gang: GangCommand, directory: Path) -> tuple[GangRun, dict[str, Any]]:
    from tqdm import tqdm

    from hdsim.gangs.bound import lower_bound
    from hdsim.gangs.offline import OneTime, PlannedSegments

    start, planner = config["start"], gang.planner
    sizes = gang.workloads.actual[start : start + config["supersteps"]]
    segments = PlannedSegments(planner.profile, planner.budget, sizes)
    layout = "{l_bar}{bar}| {elapsed}<{remaining}"
    with tqdm(total=1.0, desc="bound", disable=not sys.stderr.isatty(), bar_format=layout) as bar:
        bound = lower_bound(segments, config["penalty"], lambda part: bar.update(part - bar.n))
    if isinstance(gang.controller, OneTime) and gang.workloads.certain:
        gang.controller.segments = segments  # the bound has improved them
    run, facts = simulate(config, gang, directory)
    return dataclasses.replace(run, lower_bound=bound), facts


_METRICS = ("duration", "checkpoints", "total", "lower_bound")
COMMAND = Command("bsp plan", build, _bounded, check=build, write=write, metrics=_METRICS)
