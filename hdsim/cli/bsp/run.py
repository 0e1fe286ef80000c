"""``hdsim bsp run``: supersteps of a gang, or a sweep of such runs."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hdsim.cli.bsp.gang import GangCommand, build, job, report, simulate, write
from hdsim.cli.launch import configured, launch
from hdsim.cli.resume import resumed, split_flag
from hdsim.errors import BackendError, ConfigError
from hdsim.runs.command import Command
from hdsim.util.files import shown

if TYPE_CHECKING:
    from hdsim.gangs.real.launcher import Launcher
    from hdsim.gangs.simulation import GangRun


@configured("bsp")
def run(overrides: tuple[str, ...], **options: Any) -> None:
    """Runs the supersteps of a gang with a controller of its CPU shares and writes a run directory.

    \b
    hdsim bsp run
    hdsim bsp run controller=static_window controller.window=3
    hdsim bsp run profile=profile.csv actual=series/actual forecasts=series/forecasts start=400 supersteps=200
    hdsim bsp run -m controller=static,dynamic_mpc penalty=5,15,45 hydra.sweep.dir=runs/penalties
    hdsim bsp run runner=processes profile=profile.csv shares.total=1500 shares.start=300 hydra.run.dir=runs/real
    hdsim bsp run resume=true hydra.run.dir=runs/real

    A controller goes by its name, by controller.path=FILE.py or by controller._target_=package.Class. All keys are in
    docs/bsp_gangs.md, those of real runs in docs/bsp_real.md; resume=true continues a real run.
    """  # noqa: D301 - click reads the backspace character
    given, resume = split_flag(overrides)
    command = dataclasses.replace(COMMAND, run=partial(_run, resume=resume), resumes=resume)
    if resume:
        given = resumed("run", given, options)
    launch(command, report, given, **options)


def _run(
    config: Mapping[str, Any], gang: GangCommand, directory: Path, *, resume: bool = False
) -> tuple[GangRun, dict[str, Any]]:
    if gang.launcher is not None:
        return _execute(config, gang, gang.launcher, directory, resume)
    if resume:
        raise ConfigError(
            "expected a real run, such as one of runner=processes; a simulated one has no journal", where="resume"
        )
    return simulate(config, gang, directory)


def _execute(
    config: Mapping[str, Any], gang: GangCommand, launcher: Launcher, directory: Path, resume: bool
) -> tuple[GangRun, dict[str, Any]]:
    """Executes the supersteps."""
    from tqdm import tqdm

    from hdsim.gangs.real.launcher import Timeouts
    from hdsim.gangs.real.run import run
    from hdsim.gangs.stressors import Stressors

    again = f"'hdsim bsp run resume=true hydra.run.dir={shown(directory)}' continues from here"
    try:
        with tqdm(total=config["supersteps"], desc="supersteps", disable=not sys.stderr.isatty()) as bar:
            return run(
                job(config, gang),
                launcher,
                Stressors(**config["stressors"]),
                directory,
                zookeeper=config["zookeeper"],
                timeouts=Timeouts(**config["timeouts"]),
                attempts=config["attempts"],
                resume=resume,
                progress=bar.update,
            )
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"interrupted; {again}") from None
    except BackendError as error:
        raise BackendError(f"{error}; {again}") from None


_METRICS = ("duration", "checkpoints", "total")
COMMAND = Command("bsp run", build, _run, check=build, write=write, metrics=_METRICS)
