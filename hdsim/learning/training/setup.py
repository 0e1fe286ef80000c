"""Makes the parts of a training from its configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hdsim.backends.base import make_backend
from hdsim.decisions import DecisionProblem
from hdsim.envs.scheduling import SchedulingEnv
from hdsim.errors import ConfigError
from hdsim.learning.agent import LearningAgent
from hdsim.learning.training.evaluation import OBJECTIVE_METRICS, Evaluation, classic_baselines
from hdsim.learning.training.windows import held_out
from hdsim.scheduling.agent import make_agent

if TYPE_CHECKING:
    from hdsim.platform.model import Platform
    from hdsim.workload.model import Workload


@dataclass(frozen=True)
class TrainingSetup:
    """Everything a configuration says about a training, read and made.

    Attributes:
        config: The configuration.
        platform: The platform.
        workload: The trace of the held-out windows.
        traces: Where the episodes come from.
        validation: Windows for the evaluations during training, which choose the best checkpoint.
        test: Windows for the evaluation after it.
        agent: The agent, untrained.
        environments: What it learns in.
        evaluation: How it is judged.
        baselines: Classic policies to judge it against, by name.
        actions: Names of its actions.
    """

    config: Mapping[str, Any]
    platform: Platform
    workload: Workload
    traces: Sequence[Workload]
    validation: Sequence[Workload]
    test: Sequence[Workload]
    agent: LearningAgent
    environments: Sequence[SchedulingEnv]
    evaluation: Evaluation
    baselines: Mapping[str, Any]
    actions: Sequence[str]

    @classmethod
    def of(
        cls, config: Mapping[str, Any], platform: Platform, workload: Workload, traces: Sequence[Workload]
    ) -> TrainingSetup:
        """Makes everything that a configuration names.

        Args:
            config: The configuration.
            platform: The platform.
            workload: The trace of the held-out windows.
            traces: Traces to learn from; none: what the windows leave of the workload.

        Raises:
            ConfigError: A setting cannot be used.
        """
        train, env = config["train"], config["env"]
        agent = make_agent(config["agent"])
        if not isinstance(agent, LearningAgent):
            raise ConfigError(
                f"expected an agent that learns, got {type(agent).__name__}; `hdsim run` replays it", where="agent"
            )
        if agent.checkpoint is not None:
            raise ConfigError("expected null; resume=true goes on with a training", where="agent.checkpoint")
        jobs = train["window_jobs"]
        if jobs is None:
            raise ConfigError("expected the number of jobs of a held-out window, got null", where="train.window_jobs")
        backend = make_backend(config["backend"])
        if backend.episodes is None:
            raise ConfigError(f"expected sim for training, got {backend.name}", where="backend")
        validation, test = held_out(len(workload), jobs, validation=train["validation"], test=train["test"])
        # What an episode and a replay share.
        options = {
            **{group: config[group] for group in ("contention", "network", "failures")},
            **backend.episodes,
        }
        windows = [] if traces else [(start, jobs) for start in (*validation, *test)]
        environments = [
            SchedulingEnv(platform, traces or workload, held_out=windows, **options, **env)
            for _ in range(agent.num_envs)
        ]
        problem = environments[0].problem
        actions = getattr(problem.action, "names", None) or [str(index) for index in range(environments[0].n_actions)]
        baselines = (
            classic_baselines(problem) if train["baselines"] is None else {name: name for name in train["baselines"]}
        )
        for spec in baselines.values():
            make_agent(spec)
        metric = train["metric"] or OBJECTIVE_METRICS.get(env["objective"])
        if metric is None:
            raise ConfigError(f"expected the metric that goes with {env['objective']}, got null", where="train.metric")
        evaluation = Evaluation(platform, metric, options | {"seed": config["seed"]})
        agent.begin_training(DecisionProblem(**problem.settings), platform, config["seed"])
        agent.attach(environments, evaluation)
        return cls(
            config,
            platform,
            workload,
            traces or [workload],
            [workload[first : first + jobs] for first in validation],
            [workload[first : first + jobs] for first in test],
            agent,
            environments,
            evaluation,
            baselines,
            actions,
        )
