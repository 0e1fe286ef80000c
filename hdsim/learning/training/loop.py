"""The training loop of every learning agent."""

from __future__ import annotations

import dataclasses
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from hdsim.learning.agent import LearningAgent, checkpoint
from hdsim.learning.training.environments import Environments
from hdsim.learning.training.evaluation import Scoring
from hdsim.learning.training.progress import Progress
from hdsim.learning.training.records import Records
from hdsim.learning.training.rewards import RewardScale
from hdsim.simulation.replay import Interrupted
from hdsim.simulation.terminal import signals_received

#: Metrics of finished episodes in progress.csv, besides the metric of the evaluation.
_EPISODE_METRICS = ("makespan", "mean_waiting_time", "mean_bounded_slowdown", "utilization", "energy_joules")


@dataclass(frozen=True)
class TrainingBudget:
    """Length and intervals of a training; all numbers count steps of all environments together.

    Attributes:
        steps: Length of the training.
        log_every: Steps between two rows of progress.csv.
        evaluate_every: Steps between two evaluations.
        checkpoint_every: Steps between two checkpoints to resume from.
        patience: Evaluations in a row without a better score that end the training; None or 0: none do.
    """

    steps: int
    log_every: int
    evaluate_every: int
    checkpoint_every: int
    patience: int | None


@dataclass
class TrainingState:
    """Progress of a training, part of its checkpoint.

    Attributes:
        step: Steps of all environments so far.
        episodes: Finished episodes.
        seconds: Wall-clock time so far, seconds.
        next_log: Step of the next row of progress.csv.
        next_evaluation: Step of the next evaluation.
        best_score: The best score of an evaluation, None before the first.
        best_step: Step of the best score.
        stale: Evaluations since.
        baselines: Mean scores of the classic policies on the validation windows by name.
    """

    step: int = 0
    episodes: int = 0
    seconds: float = 0.0
    next_log: int = 0
    next_evaluation: int = 0
    best_score: float | None = None
    best_step: int = 0
    stale: int = 0
    baselines: dict[str, float] = field(default_factory=dict)


class Training:
    """Trains an agent.

    Args:
        agent: The agent, after `begin_training`.
        environments: The environments.
        evaluation: Source of the scores.
        windows: Validation windows.
        baselines: Classic policies to compare with, by name.
        budget: Length and intervals.
        directory: The run directory; checkpoints go to its folder ``checkpoints``.
        actions: Names of the actions.
        scale_rewards: Divide rewards by the root mean square of their discounted sums.
        tensorboard: Write TensorBoard events.
        progress: Show the progress on standard error.
        evaluated: Called with the step and the score of each evaluation; an exception ends the training.
    """

    def __init__(
        self,
        agent: LearningAgent,
        environments: Environments,
        evaluation: Scoring,
        windows: Sequence[Any],
        baselines: Mapping[str, Any],
        budget: TrainingBudget,
        directory: Path,
        *,
        actions: Sequence[str],
        scale_rewards: bool = True,
        tensorboard: bool = True,
        progress: bool = False,
        evaluated: Callable[[int, float], object] = lambda step, score: None,
    ) -> None:
        self.agent = agent
        self.state = TrainingState()
        self.checkpoints = directory / "checkpoints"
        self.records = Records(directory, actions, tensorboard=tensorboard)
        self._environments = environments
        self._evaluation = evaluation
        self._windows = windows
        self._baselines = baselines
        self._budget = budget
        self._scale = RewardScale(len(environments), getattr(agent, "gamma", 1.0)) if scale_rewards else None
        self._progress = progress
        self._evaluated = evaluated
        self._episode_metrics = tuple(dict.fromkeys((*_EPISODE_METRICS, evaluation.metric)))

    @property
    def state_file(self) -> Path:
        """Checkpoint for `resume`."""
        return self.checkpoints / "state.safetensors"

    def resume(self) -> bool:
        """Restores an interrupted training; returns False without a checkpoint."""
        if not self.state_file.is_file():
            return False
        saved = checkpoint.load(self.state_file, "resume", signed=True)
        with checkpoint.usable(self.state_file, "resume"):
            self.state = TrainingState(**saved["training"])
            self.agent.load_state(saved["agent"])
            self.records.load_state_dict(saved["records"])
            self._environments.load_state(saved["environments"])
            if self._scale is not None:
                self._scale.load_state_dict(saved["scale"])
            torch.set_rng_state(torch.from_numpy(saved["torch"]))
        return True

    def run(self) -> None:
        """Trains to the end, until the patience is at its end, or until SIGINT or SIGTERM arrives.

        Raises:
            KeyboardInterrupt: A signal arrived; `resume` continues from that step.
        """
        state, steps = self.state, self._budget.steps
        next_checkpoint = self._next(self._budget.checkpoint_every)
        begin = time.perf_counter() - state.seconds
        with signals_received() as stop, reproducible(), self._shown() as shown, closing(self._environments):
            while True:
                state.seconds = time.perf_counter() - begin
                if state.step >= min(state.next_log, state.next_evaluation):
                    self._log()
                    if state.step >= state.next_evaluation:
                        try:
                            self._evaluate()
                        except Interrupted as interrupted:
                            stop.append(interrupted.signal)
                    shown.row(self.records.rows[-1])
                over = bool(stop) or state.step >= steps or self._is_stale
                if over or state.step >= next_checkpoint:
                    self._save()
                    next_checkpoint = self._next(self._budget.checkpoint_every)
                if over:
                    break
                self._step()
                shown.step(state.step)
        self.records.close()
        if stop:
            raise KeyboardInterrupt
        self._keep("final")

    def _step(self) -> None:
        """Carries out one action in every environment and lets the agent learn from it."""
        environments, state = self._environments, self.state
        step = environments.step(self.agent.explore(environments.observations, environments.masks))
        rewards = step.rewards
        if self._scale is not None:
            scaled = self._scale(rewards, step.terminated | step.truncated)
            step = dataclasses.replace(step, rewards=scaled)
        losses = self.agent.learn(step)
        state.step += len(environments)
        self.records.step(step.actions, rewards, losses)
        for total, length, metrics in environments.finished:
            state.episodes += 1
            self.records.episode(
                total, length, {name: metrics[name] for name in self._episode_metrics if name in metrics}
            )

    @property
    def _is_stale(self) -> bool:
        """Whether the patience is at its end."""
        return self.state.stale >= (self._budget.patience or math.inf)

    def _log(self) -> None:
        state = self.state
        numbers = {"episodes": state.episodes, "seconds": state.seconds}
        if state.seconds > 0:
            numbers["steps_per_second"] = state.step / state.seconds
        self.records.row(state.step, **numbers)
        if state.step >= state.next_log:
            state.next_log = self._next(self._budget.log_every)

    def _evaluate(self) -> None:
        """Replays the validation windows, if any; saves the agent if its score is the best so far."""
        state, evaluation = self.state, self._evaluation
        if not self._windows:
            state.next_evaluation = self._budget.steps + 1
            return
        if not state.baselines:
            state.baselines = {
                name: float(evaluation.scores(agent, self._windows).mean()) for name, agent in self._baselines.items()
            }
        score = float(evaluation.scores(self.agent, self._windows).mean())
        state.stale += 1
        if state.best_score is None or evaluation.better(score, state.best_score):
            state.best_score, state.best_step, state.stale = score, state.step, 0
            self._keep("best")
        numbers = {evaluation.metric: score}
        if state.baselines:
            numbers["best_classic"] = state.baselines[evaluation.best(state.baselines)]
        self.records.add(state.step, **{f"validation_{name}": number for name, number in numbers.items()})
        state.next_evaluation = self._next(self._budget.evaluate_every)
        self._evaluated(state.step, score)

    def _keep(self, name: str) -> None:
        """Saves the agent for replays in the folder ``checkpoints``."""
        checkpoint.save(self.checkpoints / f"{name}.safetensors", self.agent.trained())

    def _save(self) -> None:
        """Saves the state of the training."""
        saved = {
            "training": dataclasses.asdict(self.state),
            "agent": self.agent.state(),
            "records": self.records.state_dict(),
            "environments": self._environments.state(),
            "scale": self._scale and self._scale.state_dict(),
            "torch": torch.get_rng_state(),
        }
        checkpoint.save(self.state_file, saved)

    def _next(self, every: int) -> int:
        """The next multiple of an interval, at most the last step."""
        step, steps = self.state.step, self._budget.steps
        return min(step - step % every + every, steps) if step < steps else step + 1

    def _shown(self) -> Progress:
        return Progress(self._budget.steps, self.state.step, shown=self._progress)


@contextmanager
def reproducible() -> Iterator[None]:
    """Makes PyTorch reproducible bit by bit: deterministic algorithms, one thread."""
    deterministic, threads = torch.are_deterministic_algorithms_enabled(), torch.get_num_threads()
    # Required by CUDA; read at its first use.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(deterministic)
        torch.set_num_threads(threads)
