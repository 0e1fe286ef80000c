"""A training from beginning to end: what it is made of, the loop, the test, and what it leaves behind."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hdsim.backends.base import make_backend
from hdsim.decisions import Task
from hdsim.envs.scheduling import SchedulingEnv
from hdsim.errors import ConfigError
from hdsim.learning.agent import LearningAgent
from hdsim.learning.training import card
from hdsim.learning.training.environments import Environments
from hdsim.learning.training.evaluation import OBJECTIVE_METRICS, Evaluation, rivals
from hdsim.learning.training.loop import Schedule, Training
from hdsim.learning.training.windows import held_out
from hdsim.scheduling.agent import Agent, make_agent
from hdsim.simulation.replay import Interrupted
from hdsim.util.files import write_csv

if TYPE_CHECKING:
    from hdsim.platform.model import Platform
    from hdsim.results.result import Result
    from hdsim.workload.model import Workload


@dataclass(frozen=True)
class Course:
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
    ) -> Course:
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
        task = environments[0].task
        actions = getattr(task.action, "names", None) or [str(index) for index in range(environments[0].n_actions)]
        baselines = rivals(task) if train["baselines"] is None else {name: name for name in train["baselines"]}
        for spec in baselines.values():
            make_agent(spec)
        metric = train["metric"] or OBJECTIVE_METRICS.get(env["objective"])
        if metric is None:
            raise ConfigError(f"expected the metric that goes with {env['objective']}, got null", where="train.metric")
        evaluation = Evaluation(platform, metric, options | {"seed": config["seed"]})
        agent.begin_training(Task(**task.settings), platform, config["seed"])
        agent.meet(environments, evaluation)
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

    def run(self, directory: Path, *, resume: bool, progress: bool) -> tuple[Result, dict[str, Any]]:
        """Trains, tests, and writes checkpoints, records and the model card into a run directory.

        Args:
            directory: The run directory.
            resume: Go on from its latest checkpoint, if there is one.
            progress: Show a progress bar.

        Returns:
            The replay of the first test window under the trained agent, and what the manifest is to tell.

        Raises:
            KeyboardInterrupt: A signal came; `resume` goes on from there.
        """
        training = self._training(directory, progress=progress)
        if not (resume and training.resume()):
            for name in ("checkpoints", "tensorboard"):
                shutil.rmtree(directory / name, ignore_errors=True)
            training.checkpoints.mkdir(parents=True)
        training.run()
        try:
            return self._test(training, directory)
        except Interrupted:
            # What has been replayed by now is no result of the training.
            raise KeyboardInterrupt from None

    def _test(self, training: Training, directory: Path) -> tuple[Result, dict[str, Any]]:
        """Replays the test windows, and writes what came of it all."""
        agents: dict[str, Agent] = {"final": self.agent}
        if training.clock.best_score is not None:
            best = {"checkpoint": str(training.checkpoints / "best.safetensors")}
            agents["best"] = make_agent({**self.config["agent"], **best})
        replays = {name: self.evaluation.replays(agent, self.test) for name, agent in agents.items()}
        replays |= {name: self.evaluation.replays(spec, self.test) for name, spec in self.baselines.items()}
        _write_evaluation(directory / "evaluation.csv", replays)
        facts = card.facts(self, training, replays)
        card.write(training.checkpoints, facts)
        # The best on the validation windows, the last of them, is the one to ship.
        return replays[list(agents)[-1]][0], {"training": facts}

    def _training(self, directory: Path, *, progress: bool) -> Training:
        train, seed = self.config["train"], self.config["seed"]
        schedule = Schedule(*(train[key] for key in ("steps", "log_every", "evaluate_every", "checkpoint_every")))
        return Training(
            self.agent,
            Environments(self.environments, seed),
            self.evaluation,
            self.validation,
            self.baselines,
            schedule,
            directory,
            actions=self.actions,
            scale_rewards=train["scale_rewards"],
            tensorboard=train["tensorboard"],
            progress=progress,
        )


def _write_evaluation(path: Path, replays: Mapping[str, Sequence[Result]]) -> None:
    """Writes evaluation.csv: a row for every agent and test window, with the metrics of the replay."""
    first = next(iter(replays.values()))[0].metrics
    names = [name for name in first if name != "jobs_per_second"]
    rows = [
        [agent, window, *(f"{result.metrics[name]:.9g}" for name in names)]
        for agent, results in replays.items()
        for window, result in enumerate(results)
    ]
    write_csv(path, ["agent", "window", *names], rows)
