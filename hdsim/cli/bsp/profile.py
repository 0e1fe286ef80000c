"""``hdsim bsp profile``: measured durations of tasks by workload size and CPU share."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hdsim.cli.launch import configured, launch
from hdsim.runs.command import Command, RunOutcome
from hdsim.util.files import shown

if TYPE_CHECKING:
    from hdsim.gangs.measurement import Measurement, Point


@configured("bsp_profile")
def profile(overrides: tuple[str, ...], **options: Any) -> None:
    """Measures the durations of real stress-ng tasks on a grid of workload sizes and CPU shares.

    \b
    hdsim bsp profile
    hdsim bsp profile tasks=[cap,vecmath] tries=1 hydra.run.dir=runs/profile
    hdsim bsp profile stressors=kube_gang_scheduling shares=[1000,2000,3000,4000] limits=affinity tasks=[cap,zero]
    hdsim bsp run profile=runs/profile/profile.csv

    The command continues where it stopped if hydra.run.dir names its directory: measured points are kept. It needs
    stress-ng (apt install stress-ng) and a machine that does nothing else. All keys are in docs/bsp_real.md.
    """  # noqa: D301 - click reads the backspace character
    launch(COMMAND, _report, overrides, **options)


def _build(config: Mapping[str, Any]) -> Measurement:
    from hdsim.gangs.limits import cpu_limits
    from hdsim.gangs.measurement import Measurement
    from hdsim.gangs.stressors import Stressors

    stressors = Stressors(**config["stressors"])
    measurement = Measurement(
        tasks=tuple(config["tasks"] or stressors.operations),
        sizes=tuple(map(float, config["sizes"])),
        shares=tuple(map(int, config["shares"])),
        tries=config["tries"],
        stressors=stressors,
        limits=cpu_limits(config["limits"]),
        timeout=config["timeout"],
    )
    measurement.check()
    return measurement


def _begun(measurement: Measurement, directory: Path) -> Mapping[Point, float]:
    """Points that an earlier run has measured."""
    return measurement.measured(directory)


def _measure(
    config: Mapping[str, Any], measurement: Measurement, directory: Path
) -> tuple[tuple[Measurement, dict[Point, float]], dict[str, Any]]:
    from tqdm import tqdm

    durations = dict(measurement.measured(directory))
    total, done = (sum(map(measurement.expected, points)) for points in (measurement.points, durations))
    layout = "{l_bar}{bar}| {elapsed}<{remaining}{postfix}"
    try:
        with tqdm(total=total, initial=done, disable=not sys.stderr.isatty(), bar_format=layout) as bar:
            for point, duration in measurement.run(directory, durations):
                durations[point] = duration
                bar.set_postfix_str(f"{point[0]} {duration:.3g} s", refresh=False)
                bar.update(measurement.expected(point))
    except KeyboardInterrupt:
        advice = f"interrupted; the same command with hydra.run.dir={shown(directory)} goes on from here"
        raise KeyboardInterrupt(advice) from None
    return (measurement, durations), {"conditions": measurement.conditions()}


def _write(directory: Path, result: tuple[Measurement, dict[Point, float]]) -> dict[str, Any]:
    measurement, durations = result
    measurement.write(directory, durations)
    return {}


def _report(measurement: Measurement, outcome: RunOutcome) -> None:
    """Prints the metrics and the files."""
    click.echo(f"measured points         {outcome.metrics['points']:g}")
    if "variation" in outcome.metrics:
        click.echo(f"variation of the tries  {outcome.metrics['variation']:.1%}")
    click.echo(f"CPU limits              {measurement.limits.method}")
    click.echo(f"profile                 {shown(outcome.directory / 'profile.csv')}")


COMMAND = Command(
    "bsp profile",
    _build,
    _measure,
    resumes=True,
    check=_build,
    write=_write,
    metrics=("points", "variation"),
    begun=_begun,
)
