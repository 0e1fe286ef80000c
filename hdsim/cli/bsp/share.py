"""``hdsim bsp share``: gangs that share machines with each other and with other jobs."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hdsim.cli.launch import configured, launch
from hdsim.cli.run import report_replay
from hdsim.config.inputs import read_platform, read_workload
from hdsim.runs.command import Command
from hdsim.runs.replays import Inputs

if TYPE_CHECKING:
    from hdsim.gangs.simulation import Gang
    from hdsim.results.result import Result


@configured("bsp_share")
def share(overrides: tuple[str, ...], **options: Any) -> None:
    """Simulates gangs that share the machines of a platform with each other and with the jobs of a workload.

    \b
    hdsim bsp share gangs=8 workload=lublin workload.generate.jobs=200
    hdsim bsp share -m controller=static_window,best seed=1,2,3 hydra.sweep.dir=runs/shared
    hdsim bsp share experiment=gangs

    The keys of a gang are those of `hdsim bsp run`, those of platform, workload and agent are those of `hdsim run`; all
    are in docs/bsp_gangs.md.
    """  # noqa: D301 - click reads the backspace character
    launch(COMMAND, report_replay, overrides, **options)


def _build(config: Mapping[str, Any]) -> Inputs:
    """Reads and constructs everything that a configuration names."""
    import numpy as np

    from hdsim.backends.base import make_backend
    from hdsim.gangs.jobs import beside, gang_jobs
    from hdsim.platform.schema import QUANTITIES
    from hdsim.scheduling.agent import make_agent

    kind = config["platform"]["kind"] or QUANTITIES
    platform = read_platform({"platform": config["platform"] | {"kind": kind}})
    rng = np.random.default_rng(config["seed"])
    times = np.append(0.0, rng.exponential(config["interarrival"], config["gangs"] - 1).cumsum())
    workload = gang_jobs(_gangs(config), times)
    if "workload" in config:
        workload = beside(workload, read_workload(config, platform))
    backend = make_backend("sim")
    backend.check(platform, workload)
    return Inputs(platform, workload, make_agent(config["agent"]), backend)


def _simulate(config: Mapping[str, Any], inputs: Inputs, directory: Path) -> tuple[Result, dict[str, Any]]:
    options = {"seed": config["seed"], "progress": sys.stderr.isatty(), "config": config}
    result, facts = inputs.backend.run(inputs.platform, inputs.workload, inputs.agent, directory, **options)
    return result, {"backend": facts}


def _gangs(config: Mapping[str, Any]) -> list[Gang]:
    """The gangs: each with generated series of its own, or with the next rows of the same series."""
    from hdsim.gangs.controllers import make_controller
    from hdsim.gangs.simulation import Gang
    from hdsim.gangs.workloads import GANG_KEYS, GENERATED, check_rows, load_gang

    settings, gangs = {key: config[key] for key in GANG_KEYS}, []
    count, supersteps, generated = config["gangs"], config["supersteps"], config["actual"] == GENERATED
    for number in range(count):
        seed, start = config["seed"] * count + number, config["start"]
        if generated or not number:
            planner, workloads = load_gang(**settings | {"seed": seed})
            each, parts = (1, "start + supersteps") if generated else (count, "start + gangs x supersteps")
            check_rows(start + each * supersteps, len(workloads.actual), parts=parts)
        if not generated:
            start += number * supersteps
        # A planner caches the plans of successive rows.
        own = type(planner)(planner.profile, planner.budget, workloads.predictions)
        controller = make_controller(config["controller"])
        gangs.append(
            Gang(own, workloads.actual, controller, start, supersteps, config["penalty"], workloads.certain, seed)
        )
    return gangs


_METRICS = ("duration", "checkpoints", "total")
COMMAND = Command("bsp share", _build, _simulate, check=_build, metrics=_METRICS)
