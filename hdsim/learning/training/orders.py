"""Makes the parts of a training that evolves the order ``learned``, from its configuration."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hdsim.backends.sim import Sim
from hdsim.errors import ConfigError, not_one_of
from hdsim.kernels.rules import Backfilling
from hdsim.learning.orders import AWAY, JOBS, JOBS_AWAY, RULES, Evolution, Window, draw_away, draw_home
from hdsim.learning.training.evaluation import ORDERS, Evaluation
from hdsim.learning.training.learner import Learner
from hdsim.learning.training.records import Records
from hdsim.learning.training.setup import Setup, check_patience, jobs_facts, platform_facts
from hdsim.learning.training.windows import VALIDATION, held_out
from hdsim.results.run_directory.inputs import digest
from hdsim.scheduling.agent import make_agent
from hdsim.scheduling.learned import read_networks
from hdsim.scheduling.orders import job_order
from hdsim.util.files import dump_json
from hdsim.util.rules import FLAG, NULL, POSITIVE, Rule, integers_from
from hdsim.workload.generators.families import FAMILIES

if TYPE_CHECKING:
    from hdsim.backends.base import Backend
    from hdsim.platform.model import Platform
    from hdsim.scheduling.agent import Agent
    from hdsim.workload.model import Workload

#: Rules of settings of the evolution; of others, whole numbers and others above 0.
_RULES = {
    **dict.fromkeys((*RULES, "capability"), integers_from(0)),
    "start": Rule("a card such as learned.json", lambda value: str(value).endswith(".json")) | NULL,
    **dict.fromkeys(("after_start", "estimates", "none_from_easy"), FLAG),
}
#: Windows of the training: what they are drawn from, its parameters, and the jobs of one.
_SOURCES = {
    "home": ("family home", FAMILIES["home"], JOBS),
    "away": ("machines unlike home", AWAY, JOBS_AWAY),
    "capability": ("machines for wide jobs", {}, JOBS_AWAY),
}
#: Keys of other trainings, which have no effect here.
_OTHERS = ("traces", "metric", "workers", "ray_address")


class OrderLearner(Learner):
    """An evolution of weights; a step is a generation.

    Args:
        evolution: The evolution.
    """

    suffix = ".json"

    def __init__(self, evolution: Evolution) -> None:
        self._evolution = evolution

    @property
    def agent(self) -> Any:
        """The weights."""
        return self._evolution.weights

    def step(self, records: Records) -> tuple[int, int]:
        """Carries out a generation; its windows are the episodes."""
        self._evolution.advance()
        return 1, sum(getattr(self._evolution, source) for source in _SOURCES)

    def keep(self, path: Path) -> None:
        """Writes the weights, which ``agent.job_policy`` takes."""
        dump_json(path, {"generation": self._evolution.generation, "weights": self.agent.tolist()})

    def state(self) -> dict[str, Any]:
        """See :class:`Learner`."""
        return {"evolution": {**vars(self._evolution), "rng": self._evolution.rng.bit_generator.state}}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """See :class:`Learner`."""
        rng = self._evolution.rng
        rng.bit_generator.state = state["evolution"]["rng"]
        vars(self._evolution).update({**state["evolution"], "rng": rng})


@dataclass(frozen=True)
class OrderEvaluation(Evaluation):
    """Replays the windows of the test as any training does, and those of the validation under every rule."""

    average = "geometric mean over windows and rules of"

    def score(self, agent: Any, windows: Sequence[Window]) -> float:
        """The geometric mean over windows and rules of the mean bounded slowdown.

        Args:
            agent: Weights, or settings of a classic agent.
            windows: Windows of any machines.
        """
        costs = [_cost(window, agent, *rule) for window in windows for rule in RULES.values()]
        return float(np.exp(np.log(costs).mean()))


def _cost(window: Window, agent: Any, backfill: int, commit: bool) -> float:
    if isinstance(agent, np.ndarray):
        return window.cost(agent, backfill, commit)
    spec = {**agent, "backfill": Backfilling(backfill).name.lower(), "commit_head": commit}
    return window.window.score(spec, batch_events=not commit)


@dataclass(frozen=True)
class OrderSetup(Setup):
    """The parts of a training that evolves an order; see :class:`Setup`.

    Attributes:
        platform: Platform of the test windows.
        workload: Their trace.
        evolution: The evolution, before its first generation.
    """

    config: Mapping[str, Any]
    platform: Platform
    workload: Workload
    validation: Sequence[Window]
    test: Sequence[Workload]
    evaluation: OrderEvaluation
    baselines: Mapping[str, Any]
    evolution: Evolution
    traces: Sequence[Any]
    actions: Sequence[str] = ()

    @classmethod
    def of(cls, config: Mapping[str, Any], platform: Platform, workload: Workload, backend: Backend) -> OrderSetup:
        """Makes the parts.

        Args:
            config: The configuration.
            platform: Platform of the test windows.
            workload: Their trace.
            backend: The backend of the configuration.

        Raises:
            ConfigError: A setting cannot be used.
        """
        train, agent = config["train"], config["agent"]
        if agent.get("job_policy") != "learned":
            raise ConfigError(
                "expected null, which trains agents of their own, or an agent with agent.job_policy=learned",
                where="train.evolution",
            )
        make_agent(agent)
        for key in _OTHERS:
            if train[key] is not None:
                raise ConfigError(f"expected null with train.evolution, got {train[key]}", where=f"train.{key}")
        validation = VALIDATION if train["validation"] is None else train["validation"]
        if not isinstance(validation, int):
            raise ConfigError(
                f"expected a number of windows with train.evolution, got {train['validation']}",
                where="train.validation",
            )
        check_patience(train)
        defaults = {field.name: field.default for field in fields(Evolution) if field.init}
        allowed = [name for name in defaults if name not in ("seed", "generations")]
        for name, value in train["evolution"].items():
            if name not in allowed:
                raise ConfigError(not_one_of(name, allowed), where="train.evolution")
            rule = _RULES.get(name) or (integers_from(1) if isinstance(defaults[name], int) else POSITIVE)
            if fault := rule.fault(value, f"train.evolution.{name}"):
                raise fault
        if not isinstance(backend, Sim):
            raise ConfigError(f"expected sim with train.evolution, got {backend.name}", where="backend")
        jobs = train["window_jobs"]
        _, test = held_out(len(workload), jobs, validation=0, test=train["test"])
        names = ORDERS if train["baselines"] is None else train["baselines"]
        options = {**{group: config[group] for group in ("contention", "network", "failures")}, **backend.episodes}
        settings = dict(train["evolution"])
        if settings.get("start") is not None:
            settings["start"] = read_networks(str(job_order(settings["start"]).network))[0]
        evolution = Evolution(seed=config["seed"], generations=train["steps"], **settings)
        rng = np.random.default_rng(0)  # The same windows for every seed.
        return cls(
            config,
            platform,
            workload,
            [draw(rng, "validation") for draw in (draw_home, draw_away) for _ in range(validation)],
            [workload[first : first + jobs] for first in test],
            OrderEvaluation(platform, "mean_bounded_slowdown", options | {"seed": config["seed"]}),
            {name: {**agent, "job_policy": name} for name in names},
            evolution,
            [source for source in _SOURCES if getattr(evolution, source)],
        )

    def learner(self) -> OrderLearner:
        """See :class:`Setup`."""
        return OrderLearner(self.evolution)

    def trained(self, file: Path) -> Agent:
        """See :class:`Setup`."""
        return make_agent({**self.config["agent"], "job_policy": str(file)})

    def about(self, file: Path) -> dict[str, Any]:
        """See :class:`Setup`; the card has the weights, so that ``agent.job_policy`` takes it."""
        weights = json.loads(file.read_text())["weights"]
        return {
            "agent": "learned",
            "settings": dict(self.config["train"]["evolution"]),
            "task": {"action": "order", "rules": list(RULES)},
            "parameters": len(weights),
            **platform_facts(self.platform),
            "weights": weights,
        }

    def described(self, trace: Any) -> dict[str, Any]:
        """A window, or the drawn ones of the training by their parameters and the seed."""
        if isinstance(trace, str):
            name, parameters, each = _SOURCES[trace]
            told = json.dumps([parameters, self.config["seed"]], sort_keys=True)
            return {
                "path": f"<{name}, train>",
                "sha256": None,
                "jobs": self.evolution.generation * getattr(self.evolution, trace) * each,
                "jobs_sha256": hashlib.sha256(told.encode()).hexdigest(),
            }
        if isinstance(trace, Window):
            jobs, warm = trace.window.workload, trace.window.warmup
            return {
                "path": jobs.source,
                "sha256": None,
                "jobs": len(jobs) - warm,
                "warm": warm,
                "cores": jobs.cluster_cores,
                "jobs_sha256": digest(jobs),
            }
        return jobs_facts(trace, self.workload)
