"""``hdsim bsp run``: supersteps of a gang, or a sweep of such runs."""

from __future__ import annotations

from typing import Any

from hdsim.cli.bsp.gang import build, report, simulate, write
from hdsim.cli.launch import Command, configured, launch


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
    command = Command(build, simulate, report, check=build, write=write, metrics=("duration", "checkpoints", "total"))
    launch(command, overrides, config_name=config_name or "bsp", **options)
