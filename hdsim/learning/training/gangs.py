"""Training to control the CPU shares of a gang."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from gymnasium.wrappers import FlattenObservation

from hdsim.envs.gang import GangEnv
from hdsim.envs.vector import local_vector
from hdsim.errors import ConfigError, nearest
from hdsim.gangs.controllers import Controller, DynamicMpc, DynamicWindow, Static, StaticWindow
from hdsim.gangs.lookahead import GangSeries, Lookahead
from hdsim.gangs.simulation import Gang, GangRun
from hdsim.gangs.workloads import GANG_KEYS, GENERATED, check_rows, load_gang
from hdsim.learning.agent import LearningAgent
from hdsim.learning.controller import Learned
from hdsim.learning.training.evaluation import Evaluation
from hdsim.learning.training.task import EpisodeTask, check_patience, untrained_agent
from hdsim.simulation.alone import run_alone

#: Controllers to compare with.
_BASELINES: dict[str, type[Controller]] = {
    "static": Static,
    "static_window": StaticWindow,
    "dynamic_window": DynamicWindow,
    "dynamic_mpc": DynamicMpc,
}


class GangTask(EpisodeTask):
    """The CPU shares of a gang; windows are rows of its series.

    Raises:
        ConfigError: A file or a setting cannot be used.
    """

    platform: None = None
    workload: None = None

    def __init__(self, config: Mapping[str, Any]) -> None:
        train, env, penalty = config["train"], dict(config["env"]), config["penalty"]
        agent = untrained_agent(config)
        for name in train["baselines"]:
            if name not in _BASELINES:
                allowed = ", ".join(_BASELINES)
                message = f"expected some of {allowed}, got '{name}'{nearest(name, _BASELINES)}"
                raise ConfigError(message, where="train.baselines")
        check_patience(train)
        episodes = {"supersteps": env.pop("supersteps"), "start": env.pop("start")}
        problem = Lookahead(**env, tasks=list(config["tasks"]))
        planner, workloads = load_gang(**{key: config[key] for key in GANG_KEYS})
        series = GangSeries.of(problem, planner, workloads.actual)
        first, last = config["start"], config["start"] + config["supersteps"]
        check_rows(last, len(series))
        held_out = [(first, last - first)]
        validation = _validation(train["validation"], episodes["supersteps"], len(series), range(first, last))
        held_out += [(row, episodes["supersteps"]) for row in validation]
        traces = [series]
        if train["seeds"] is not None:
            traces, held_out = _generated(config, problem), []
        environments = [
            FlattenObservation(GangEnv(traces, problem, penalty, **episodes, held_out=held_out))
            for _ in range(agent.num_envs)
        ]
        bare: list[Any] = [environment.unwrapped for environment in environments]
        problem = dataclasses.replace(problem, durations=bare[0].problem.durations)
        options = {"penalty": penalty, "certain": workloads.certain, "seed": config["seed"]}
        agent.begin_training(problem, None, config["seed"], train["steps"])
        self.config, self.agent, self.environments = config, agent, environments
        self.vector = partial(local_vector, environments)
        self.evaluation = Evaluation("total", partial(_replay, options))
        self.traces, self.test = traces, [series[first:last]]
        self.validation = [series[row : row + episodes["supersteps"]] for row in validation]
        self.baselines = {name: _BASELINES[name]() for name in train["baselines"]}
        self.actions = ["keep", *(f"plan_{width}" for width in range(1, problem.actions))]
        agent.attach(bare, self.evaluation)

    def sources(self) -> dict[str, Any]:
        """The tasks, for the model card."""
        return {"tasks": dict(self.config["tasks"]), "profile": self.config["profile"]}

    def described(self, rows: GangSeries) -> dict[str, Any]:
        """Rows of a series, for the model card; the digest is that of the executed workload sizes."""
        first, last = rows.rows.start, rows.rows.stop
        return {
            "path": self.config["actual"],
            "sha256": None,
            "supersteps": last - first,
            "first_row": first,
            "supersteps_sha256": hashlib.sha256(rows.actual[first:last].tobytes()).hexdigest(),
        }


def _replay(options: Mapping[str, Any], rows: GangSeries, agent: LearningAgent | Controller) -> GangRun:
    """Runs a gang over rows of its series under a trained agent or another controller."""
    controller = Learned(agent=agent) if isinstance(agent, LearningAgent) else agent
    return run_alone(Gang(rows.planner, rows.actual, controller, rows.rows.start, len(rows), **options))


def _validation(wanted: int | Sequence[int], length: int, rows: int, test: range) -> list[int]:
    """First rows of the validation windows: those wanted, or a number of them at the end, outside of `test`."""
    starts = [rows - length * (wanted - n) for n in range(wanted)] if isinstance(wanted, int) else list(wanted)
    for start in starts:
        if not 0 <= start <= rows - length or range(max(start, test.start), min(start + length, test.stop)):
            raise ConfigError(
                f"expected windows of {length} rows (env.supersteps) within 0 to {rows - 1} and beside rows "
                f"{test.start} to {test.stop - 1}, which the trained agent runs on, got one from {start} on",
                where="train.validation",
            )
    return starts


def _generated(config: Mapping[str, Any], problem: Lookahead) -> list[GangSeries]:
    """Generated series of other seeds."""
    seeds = config["train"]["seeds"]
    if config["actual"] != GENERATED:
        raise ConfigError(f"expected null with actual={config['actual']}, got {seeds}", where="train.seeds")
    if config["seed"] in seeds:
        raise ConfigError(
            f"expected other seeds than {config['seed']}, whose series the agent is tested on", where="train.seeds"
        )
    made = (load_gang(**{key: config[key] for key in GANG_KEYS} | {"seed": seed}) for seed in seeds)
    return [GangSeries.of(problem, planner, workloads.actual) for planner, workloads in made]
