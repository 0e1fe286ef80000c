"""Training of the order ``learned``."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hdsim.backends.sim import Sim
from hdsim.errors import ConfigError, not_one_of
from hdsim.learning.training.evaluation import ORDERS, Evaluation
from hdsim.learning.training.order.evolution import OrderEvolution, listed
from hdsim.learning.training.order.windows import AWAY, JOBS, JOBS_AWAY, OrderWindow, draw_away, draw_home
from hdsim.learning.training.scheduling import jobs_facts, platform_facts
from hdsim.learning.training.task import Task, check_patience
from hdsim.learning.training.windows import VALIDATION, held_out_windows
from hdsim.results.run_directory.inputs import digest
from hdsim.scheduling.agent import make_agent
from hdsim.scheduling.learned.network import COLUMNS
from hdsim.scheduling.learned.order import RULES, read_weights
from hdsim.scheduling.orders import job_order
from hdsim.scheduling.rules import Backfilling
from hdsim.simulation.setup import MODELS
from hdsim.simulation.simulation import simulate
from hdsim.util.rules import ANYTHING, FLAG, NULL, NUMBER, POSITIVE, Rule, integers_from, lists_of
from hdsim.workload.generators.families import FAMILIES

if TYPE_CHECKING:
    from hdsim.backends.base import Backend
    from hdsim.platform.model import Platform
    from hdsim.scheduling.agent import Agent
    from hdsim.workload.model import Workload


#: Rules of settings of the evolution; of others, whole numbers and others above 0.
_RULES = {
    **dict.fromkeys((*RULES, "capability", "kinds"), integers_from(0)),
    "start": Rule("a card such as learned.json", lambda value: str(value).endswith(".json")) | NULL,
    **dict.fromkeys(("after_start", "estimates"), FLAG),
    "from_easy": lists_of(
        Rule("a rule", lambda value: value in RULES), f"a list of {', '.join(RULES)}", holds=ANYTHING.accepts
    ),
    "linear_rlscheduler": lists_of(NUMBER, f"a list of {COLUMNS} numbers", COLUMNS) | NULL,
    "typical_slowdown": Rule(
        f"numbers above 0 by rule of {', '.join(RULES)}",
        lambda value: (
            isinstance(value, Mapping)
            and all(rule in RULES and POSITIVE.accepts(number) for rule, number in value.items())
        ),
    ),
}
#: Windows of the training: what they are drawn from, its parameters, and the jobs of one.
_SOURCES = {
    "home": ("family home", FAMILIES["home"], JOBS),
    "away": ("machines unlike home", AWAY, JOBS_AWAY),
    "capability": ("machines for wide jobs", {}, JOBS_AWAY),
    "kinds": ("kinds that are not held out", {}, JOBS_AWAY),
}
#: Keys of other trainings, which have no effect here.
_OTHERS = ("traces", "metric", "workers", "ray_address")


def _cost(window: OrderWindow, agent: Any, backfill: int, commit: bool) -> float:
    """The mean bounded slowdown of a window under weights or a classic agent."""
    if isinstance(agent, np.ndarray):
        return window.cost(agent, backfill, commit)
    spec = {**agent, "backfill": Backfilling(backfill).name.lower(), "commit_head": commit}
    return window.score(spec, batch_events=not commit)


class OrderTask(Task):
    """An order of the queue for machines and rules of backfilling of any kind.

    Attributes:
        platform: Platform of the test windows.
        workload: Their trace.
        evolution: The evolution, before its first generation.

    Raises:
        ConfigError: A setting cannot be used.
    """

    average = "geometric mean over windows and rules of"
    actions = ()

    def __init__(self, config: Mapping[str, Any], platform: Platform, workload: Workload, backend: Backend) -> None:
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
        defaults = {field.name: field.default for field in fields(OrderEvolution) if field.init}
        allowed = [name for name in defaults if name not in ("seed", "generations")]
        for name, value in train["evolution"].items():
            if name not in allowed:
                raise ConfigError(not_one_of(name, allowed), where="train.evolution")
            rule = _RULES.get(name) or (integers_from(1) if isinstance(defaults[name], int) else POSITIVE)
            if fault := rule.fault(value, f"train.evolution.{name}"):
                raise fault
        if not isinstance(backend, Sim):
            raise ConfigError(f"expected sim with train.evolution, got {backend.name}", where="backend")
        _, test = held_out_windows(workload.submission_time, train["window_jobs"], validation=0, test=train["test"])
        names = ORDERS if train["baselines"] is None else train["baselines"]
        settings = dict(train["evolution"])
        if settings.get("start") is not None:
            settings["start"] = read_weights(str(job_order(settings["start"]).network))
        self.config, self.platform, self.workload = config, platform, workload
        self.evolution = evolution = OrderEvolution(seed=config["seed"], generations=train["steps"], **settings)
        rng, least = np.random.default_rng(0), evolution.least_slowdown  # the same windows for every seed
        self.validation = [draw_home(rng, "validation") for _ in range(validation)]
        self.validation += [draw_away(rng, "validation", least=least) for _ in range(validation)]
        self.test = [workload[part] for part in test]
        options = {group: config[group] for group in (*MODELS, "facility") if group in config} | {**backend.episodes}
        replay = partial(simulate, platform, **options, seed=config["seed"])
        self.evaluation = Evaluation("mean_bounded_slowdown", replay)
        self.baselines = {name: {**agent, "job_policy": name} for name in names}
        self.traces = [source for source in _SOURCES if getattr(evolution, source)]

    def learner(self) -> OrderEvolution:
        return self.evolution

    def score(self, agent: Any) -> float:
        """The geometric mean of the mean bounded slowdown over validation windows and the rules that are trained.

        Args:
            agent: Weights by rule, or settings of a classic agent.
        """
        networks = "easy" in agent and isinstance(agent["easy"], np.ndarray)
        each = {rule: agent[rule] if networks else agent for rule in self.evolution.trained}
        costs = [_cost(window, one, *RULES[rule]) for window in self.validation for rule, one in each.items()]
        return float(np.exp(np.log(costs).mean()))

    def trained(self, file: Path) -> Agent:
        return make_agent({**self.config["agent"], "job_policy": str(file)})

    def about(self, file: Path) -> dict[str, Any]:
        """See :class:`Task`; the card has the weights, so that ``agent.job_policy`` takes it."""
        weights = read_weights(str(file))
        return {
            "agent": "learned",
            "settings": dict(self.config["train"]["evolution"]),
            "task": {"action": "order", "rules": self.evolution.trained},
            "parameters": sum(map(len, weights.values())),
            **platform_facts(self.platform),
            "weights": listed(weights),
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
        if isinstance(trace, OrderWindow):
            jobs, warm = trace.workload, trace.warmup
            return {
                "path": jobs.source,
                "sha256": None,
                "jobs": len(jobs) - warm,
                "warm": warm,
                "cores": jobs.cluster_cores,
                "jobs_sha256": digest(jobs),
            }
        return jobs_facts(trace, self.workload)
