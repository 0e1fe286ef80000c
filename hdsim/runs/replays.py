"""Replays of a workload: the runs of ``hdsim run``."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hdsim.config.inputs import read_platform, read_workload
from hdsim.errors import ConfigError
from hdsim.runs.command import Command
from hdsim.simulation.setup import MODELS, make_model

if TYPE_CHECKING:
    from hdsim.backends.base import Backend
    from hdsim.platform.model import Platform
    from hdsim.results.moment import Shown
    from hdsim.results.result import Result
    from hdsim.scheduling.agent import Agent
    from hdsim.workload.model import Workload

log = logging.getLogger(__name__)

#: Most jobs of a replay whose kernels are interpreted.
_FEW_JOBS = 32


@dataclass(frozen=True)
class Inputs:
    """The parts of a run, made from its configuration."""

    platform: Platform
    workload: Workload
    agent: Agent
    backend: Backend


def build_replay(config: Mapping[str, Any]) -> Inputs:
    """Reads and constructs everything that a configuration names.

    Raises:
        HdsimError: A file or a setting cannot be used.
    """
    from hdsim.backends.base import make_backend
    from hdsim.decisions import DecisionProblem
    from hdsim.decisions.episode_settings import check_episode_settings, split
    from hdsim.results.own_metrics import load_metrics
    from hdsim.results.period import Period
    from hdsim.scheduling.agent import make_agent

    # A replay takes the decision problem from the checkpoint; mistakes in `env` are reported all the same.
    if config["env"]:
        settings, episodes = split(config["env"])
        problem = DecisionProblem(**settings)
        check_episode_settings(problem.settings["action"], **episodes)
    agent = make_agent(config["agent"])
    load_metrics(config.get("metrics"))
    backend = make_backend(config["backend"])
    if config.get("check") and not backend.capabilities.checked:
        raise ConfigError(f"expected false on backend {backend.name}, whose state is its own", where="check")
    platform = read_platform(config, backend)
    workload = read_workload(config, platform, backend=backend)
    Period.checked(config, workload.submission_time)
    if config.get("facility"):
        from hdsim.facility.model import Facility

        Facility.of(config["facility"], platform, workload, config["seed"])
    backend.check(platform, workload, **{key: config[key] for key in MODELS})
    return Inputs(platform, workload, agent, backend)


def _idle(config: Mapping[str, Any], inputs: Inputs) -> Iterator[str]:
    """Yields a line for each choice that changes nothing for these jobs on this platform."""
    from hdsim.platform.schema import CORES
    from hdsim.workload.slack import slack_of

    platform, jobs = inputs.platform, inputs.workload
    if not inputs.backend.capabilities.known_jobs or config["workload"]["cluster"]:
        return
    contention, network = (make_model(group, config[group], platform) for group in ("contention", "network"))
    if contention is not None and not contention.applies(jobs):
        yield "contention: changes nothing, as no job or no processor has a memory bandwidth"
    if network is not None and not jobs.has_programs:
        yield "network: changes nothing, as no job sends messages (workload.bsp.supersteps)"
    if config["backend"].get("kill_at_walltime") and not np.isfinite(jobs.walltime).any():
        yield "backend.kill_at_walltime: changes nothing, as no job has a kill limit (workload.walltime=requested)"
    if config["workload"].get("frequency_bound") is not None and platform.frequencies is None:
        yield f"workload.frequency_bound: changes nothing, as the processors of {platform.name} have no frequencies"
    if config["workload"]["cores_per_pod"] is not None and platform.kind == CORES:
        yield "workload.cores_per_pod: changes nothing on a platform of cores (platform.kind=quantities)"
    failures = config["failures"]
    if failures.get("recovery") == "checkpoint" and not failures.get("checkpoint_interval") and not jobs.has_programs:
        yield "failures.recovery: changes nothing, as no job has checkpoints (failures.checkpoint_interval)"
    if config["agent"].get("estimates") == "last_two" and (jobs.user < 0).all():
        yield "agent.estimates: changes nothing, as no job has a user"
    if "defer" in config["agent"] and slack_of(jobs) is None:
        yield "agent: puts no job off, as none has slack (workload.slack.share)"


def replay(
    config: Mapping[str, Any], inputs: Inputs, directory: Path, progress: Shown | None = None
) -> tuple[Result, dict[str, Any]]:
    """Replays on the backend; returns the result and the backend's entries of the manifest.

    `progress` is as in :func:`hdsim.simulation.simulation.simulate`; None is a bar on a terminal.
    """
    for line in _idle(config, inputs):
        log.warning(line)
    options = {key: config[key] for key in (*MODELS, "seed")}
    if "facility" in config:
        options["facility"] = config["facility"]
    options |= {"progress": sys.stderr.isatty() if progress is None else progress, "config": config}
    if config.get("check"):
        options["check"] = True
    result, facts = inputs.backend.run(inputs.platform, inputs.workload, inputs.agent, directory, **options)
    return result, {"backend": facts} if facts else {}


def is_small(config: Mapping[str, Any], inputs: Inputs) -> bool:
    """Returns whether a replay takes less time with interpreted kernels than the import of a compiler.

    These are at most 32 jobs, on at most 256 processors or fewer jobs accordingly, that compiled code replays.
    """
    from hdsim.backends.sim import Sim
    from hdsim.scheduling.agent import stock_rules
    from hdsim.simulation.compiled import has_kernel, has_plain_jobs

    jobs, platform, rules = len(inputs.workload), inputs.platform, stock_rules(inputs.agent)
    few = jobs <= _FEW_JOBS and jobs * platform.n_processors <= _FEW_JOBS * 256
    if rules is None or not few or not isinstance(inputs.backend, Sim):
        return False
    models = [make_model(group, config[group], platform) for group in MODELS if group != "contention"]
    return has_kernel(rules) and has_plain_jobs(platform, inputs.workload) and all(model is None for model in models)


COMMAND = Command("run", build_replay, replay, is_small=is_small)
