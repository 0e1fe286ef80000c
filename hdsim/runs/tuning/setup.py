"""A search from a command line: its settings, its space, and the runs of a trial."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import read_write

from hdsim.config.composer import Composer, resolved
from hdsim.config.keys import unknown_key
from hdsim.errors import ConfigError, nearest
from hdsim.results.metrics import METRICS, STATISTICS, direction
from hdsim.results.run_directory.inputs import file_digest, input_files
from hdsim.runs import replays, trainings
from hdsim.runs.plan import PlannedRun, plan
from hdsim.runs.tuning.goal import Goal
from hdsim.runs.tuning.space import SearchSpace
from hdsim.util.rules import NULL, TEXT, Rule, integers_from, require
from hdsim.util.version import __version__

_RULES = {
    "trials": integers_from(1),
    "metric": TEXT | NULL,
    "pruner": Rule("median or none", lambda value: value in ("median", "none")),
    "seed": integers_from(0),
    "space": Rule("settings, tune.space.KEY=choice(a,b)", lambda value: value is None or isinstance(value, Mapping)),
}
_METRIC = "mean_bounded_slowdown"
#: Overrides that choose an agent; without one it is that of `hdsim run`.
_AGENTS = ("agent=", "agent.path=", "agent._target_=", "experiment=", "tune.space.agent=")


@dataclass(frozen=True)
class Search:
    """A search that has been asked for, in a directory.

    Attributes:
        goal: Its measure of trials.
        space: The settings that are searched for.
        trials: Number of trials, those of earlier processes included.
        seed: Seed of the sampler.
        pruner: ``median`` or ``none``.
        composer: Composes the runs.
        replications: The runs of a trial, here that of the first values of the space.
        identity: Facts that are equal in all processes that work on the search.
    """

    directory: Path
    goal: Goal
    space: SearchSpace
    trials: int
    seed: int
    pruner: str
    composer: Composer
    replications: Sequence[PlannedRun]
    identity: Mapping[str, Any]

    @classmethod
    def of(cls, overrides: Sequence[str], config_dir: str | None) -> Search:
        """Reads overrides of the runs and of the keys ``tune``; ``tune.space.KEY=choice(...)`` is searched for.

        Raises:
            HdsimError: A key, a value or a file is wrong, also with the first values of the space.
        """
        own = [_quoted(text) for text in overrides if text.lstrip("+~").startswith("tune")]
        given = [text for text in overrides if not text.lstrip("+~").startswith("tune")]
        if not any(text.startswith(_AGENTS) for text in (*given, *own)):
            given = ["agent=classic", *given]
        composer = Composer(config_dir, "tune")
        composed = composer.sweep(composer.overrides([*given, *own]))[0].hydra
        values = resolved(composed.tune)
        if unknown := [key for key in values if key not in _RULES]:
            raise unknown_key(f"tune.{unknown[0]}", list(_RULES))
        require("tune", _RULES, values)
        texts = dict(_flat(values["space"] or {}))
        space = SearchSpace.parse(texts)
        first = space.overrides(space.first())
        metric = values["metric"]
        composer = Composer(config_dir, "train")
        runs = plan(composer, composer.overrides([*given, *first])).runs
        if trains := _learns(runs[0].config["agent"]):
            if metric:
                given.append(f"train.metric={metric}")
                runs = plan(composer, composer.overrides([*given, *first])).runs
            setup = trainings.COMMAND.build(runs[0].config)
            setup.close()
            if not setup.validation:
                raise ConfigError(
                    "expected at least one validation window, which trials are judged by, got none",
                    where="train.validation",
                )
            metric = setup.evaluation.metric
        else:
            composer = Composer(config_dir, "config")
            runs = plan(composer, composer.overrides([*given, *first])).runs
            replays.COMMAND.build(runs[0].config)
            metric = metric or _METRIC
        if not direction(metric):
            known = [name for name in METRICS if direction(name)]
            raise ConfigError(
                f"expected a metric whose high or low values are better, got '{metric}'"
                f"{nearest(metric, [*known, *(f'{kind}_{name}' for kind in STATISTICS for name in METRICS)])}",
                where="tune.metric",
            )
        identity = {
            "overrides": sorted(text for text in given if not text.startswith("hydra.")),
            "tune.space": texts,
            "tune.metric": metric,
            "tune.seed": values["seed"],
            "tune.pruner": values["pruner"],
            "inputs": sorted({f"{kind} {file_digest(path)}" for kind, path in input_files(runs[0].config)}),
            "hdsim": __version__,
        }
        settings = int(values["trials"]), int(values["seed"]), values["pruner"]
        goal = Goal((trainings if trains else replays).COMMAND, metric, trains)
        directory = Path(composed.hydra.run.dir).absolute()
        return cls(directory, goal, space, *settings, composer, runs, identity)

    def plan(self, overrides: Sequence[str], folder: Path) -> Sequence[PlannedRun]:
        """The runs of a trial.

        Raises:
            ConfigError: The values make no configuration.
        """
        runs = []
        for run in self.replications:
            kept = [
                text for text in run.overrides if text.lstrip("+~").partition("=")[0] not in self.space.distributions
            ]
            composition = self.composer.compose_run(self.composer.overrides([*kept, *overrides]))
            directory = folder / run.directory.name
            with read_write(composition.hydra.hydra.run):
                composition.hydra.hydra.run.dir = str(directory)
            runs.append(PlannedRun(directory, composition.config, composition.overrides, run.varied, composition.hydra))
        return runs


def _quoted(text: str) -> str:
    """An override whose range is a text, for Hydra's parser."""
    key, _, value = text.partition("=")
    if not key.startswith("tune.space."):
        return text
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"++{key}='{escaped}'"


def _flat(values: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", str(value)


def _learns(spec: Mapping[str, Any]) -> bool:
    """Whether an agent is to be trained."""
    from hdsim.learning.agent import LearningAgent
    from hdsim.scheduling.agent import make_agent

    return isinstance(make_agent(spec), LearningAgent) and spec.get("checkpoint") is None
