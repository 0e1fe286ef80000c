"""``hdsim run``: one replay, or a sweep of them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hdsim.cli.launch import Command, Outcome, configured, launch, shown
from hdsim.config.inputs import read_platform, read_workload
from hdsim.util.text import format_number, format_table

if TYPE_CHECKING:
    from hdsim.backends.base import Backend
    from hdsim.platform.model import Platform
    from hdsim.results.result import Result
    from hdsim.scheduling.agent import Agent
    from hdsim.workload.model import Workload

# Configuration groups of the models of a backend.
_MODELS = ("contention", "network", "failures")


@configured
def run(overrides: tuple[str, ...], config_name: str | None, **options: Any) -> None:
    """Replays a workload on a platform with an agent and writes a run directory.

    \b
    hdsim run
    hdsim run platform=pik workload.path=log.swf.gz workload.jobs=10000 agent=easy
    hdsim run agent=shortest-low_power contention=threshold
    hdsim run -m agent=fcfs,sjf,easy-saf seed=1,2,3 hydra.sweep.dir=runs/orders

    An agent goes by a short name (fcfs, sjf, saf, f1, wfp3, easy, conservative, easy-sjf, shortest-high_gflops, ...),
    by agent.path=FILE.py or by agent._target_=package.Class. All keys are in docs/configuration.md.
    """  # noqa: D301 - click reads the backspace character
    launch(COMMAND, overrides, config_name=config_name or "config", **options)


@dataclass(frozen=True)
class Inputs:
    """The parts of a run, made from its configuration."""

    platform: Platform
    workload: Workload
    agent: Agent
    backend: Backend


def build(config: Mapping[str, Any]) -> Inputs:
    """Reads and constructs everything that a configuration names.

    Raises:
        HdsimError: A file or a setting cannot be used.
    """
    from hdsim.backends.base import make_backend
    from hdsim.decisions import DecisionProblem
    from hdsim.decisions.episode_settings import KEYS, check_episode_settings
    from hdsim.scheduling.agent import make_agent

    # A replay takes the decision problem from the checkpoint; mistakes in `env` are reported all the same.
    env = config["env"] or {}
    problem = DecisionProblem(**{key: value for key, value in env.items() if key not in KEYS})
    check_episode_settings(problem.settings["action"], **{key: value for key, value in env.items() if key in KEYS})
    agent = make_agent(config["agent"])
    backend = make_backend(config["backend"])
    platform = read_platform(config, backend)
    workload = read_workload(config, platform, backend=backend)
    backend.check(platform, workload, **{key: config[key] for key in _MODELS})
    return Inputs(platform, workload, agent, backend)


def _replay(config: Mapping[str, Any], inputs: Inputs, directory: Path) -> tuple[Result, dict[str, Any]]:
    """Replays on the backend; returns the result and the backend's entries of the manifest."""
    options = {key: config[key] for key in (*_MODELS, "seed")}
    options |= {"progress": sys.stderr.isatty(), "config": config}
    result, facts = inputs.backend.run(inputs.platform, inputs.workload, inputs.agent, directory, **options)
    return result, {"backend": facts} if facts else {}


def report_replay(inputs: Inputs, outcome: Outcome) -> None:
    """Prints the metrics of a replay."""
    workload, platform = inputs.workload, inputs.platform
    jobs = f"{len(workload):,} jobs of {Path(workload.source).name}" if len(workload) else "the pods of the cluster"
    click.echo(
        f"{jobs} on {platform.name}, {platform.n_cpu_cores:,} cores"
        f"{f' and {platform.n_gpus:,} GPUs' if platform.n_gpus else ''}\n"
    )
    click.echo(_metrics_table(outcome.metrics))
    if summary := inputs.backend.summary():
        click.echo(f"\n{summary}")
    click.echo(f"\nrun directory  {shown(outcome.directory)}")
    click.echo(f"report         hdsim report {shown(outcome.directory)}")


def _metrics_table(metrics: Mapping[str, float]) -> str:
    """Statistics of one quantity per line, then the other metrics one per line, with units."""
    from hdsim.results.metrics import STATISTICS, families, unit

    quantities, others = families(metrics)
    rows = [["", *STATISTICS, ""]]
    for quantity in quantities:
        numbers = (format_number(metrics[f"{kind}_{quantity}"]) for kind in STATISTICS)
        rows.append([quantity, *numbers, unit(f"mean_{quantity}")])
    width = max(map(len, others))
    lines = [f"{name:{width}}  {format_number(metrics[name]):>16} {unit(name)}".rstrip() for name in others]
    return format_table(rows) + "\n\n" + "\n".join(lines)


COMMAND = Command("run", build, _replay, report_replay)
