"""The training loop."""

from __future__ import annotations

import dataclasses
import logging
import math
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from hdsim.errors import NoMoreJobs
from hdsim.learning import checkpoint
from hdsim.learning.training.learner import Learner
from hdsim.learning.training.progress import TrainingProgress
from hdsim.learning.training.records import Records
from hdsim.learning.training.reproducible import reproducible
from hdsim.learning.training.task import Task
from hdsim.simulation.replay import Interrupted
from hdsim.simulation.terminal import signals_received
from hdsim.util.files import replacing

log = logging.getLogger(__name__)


@dataclass
class TrainingState:
    """Progress of a training, part of its checkpoint."""

    step: int = 0  # steps of all environments so far
    episodes: int = 0  # finished episodes
    seconds: float = 0.0  # wall-clock time so far, seconds
    cpu_seconds: float = 0.0  # CPU time of this process so far, seconds
    next_log: int = 0  # step of the next row of progress.csv
    next_evaluation: int = 0  # step of the next evaluation
    best_score: float | None = None  # the best score of an evaluation, None before the first
    best_step: int = 0  # step of the best score
    stale: int = 0  # evaluations since
    baselines: dict[str, float] = field(default_factory=dict)  # mean validation scores of the classic policies


class Training:
    """Lets a learner improve on a task; its length and its intervals are the configuration's, in steps.

    Args:
        task: The task.
        learner: The learner.
        directory: The run directory; checkpoints go to its folder ``checkpoints``.
        progress: Show the progress on standard error.
        evaluated: Called with the step and the score of each evaluation; an exception ends the training.
    """

    def __init__(
        self,
        task: Task,
        learner: Learner,
        directory: Path,
        *,
        progress: bool = False,
        evaluated: Callable[[int, float], object] = lambda step, score: None,
    ) -> None:
        self.task, self.learner = task, learner
        self.state = TrainingState()
        self.checkpoints = directory / "checkpoints"
        self._settings = task.config["train"]
        self.records = Records(directory, task.actions, tensorboard=self._settings["tensorboard"])
        self._progress = progress
        self._evaluated = evaluated

    @property
    def state_file(self) -> Path:
        """Checkpoint for `resume`."""
        return self.checkpoints / "state.safetensors"

    def kept(self, name: str) -> Path:
        """The file of an agent for replays, ``best`` or ``final``."""
        return self.checkpoints / f"{name}{self.learner.suffix}"

    @property
    def names(self) -> list[str]:
        """Names of the kept agents, the last of which is shipped: the one with the best validation score, if any."""
        return ["final"] if self.state.best_score is None else ["final", "best"]

    def resume(self) -> bool:
        """Restores an interrupted training; returns False without a checkpoint."""
        if not self.state_file.is_file():
            return False
        saved = checkpoint.load(self.state_file, "resume", signed=True)
        with checkpoint.usable(self.state_file, "resume"):
            self.state = TrainingState(**saved["training"])
            self.records.load_state_dict(saved["records"])
            self.learner.load_state(saved)
            if saved.get("best") is not None:  # what is there may be gone or damaged, or of a step after the checkpoint
                with replacing(self.kept("best"), binary=True) as file:
                    file.write(saved["best"].tobytes())
        return True

    def run(self) -> None:
        """Trains to the end, until the patience is at its end, or until SIGINT or SIGTERM arrives.

        Raises:
            KeyboardInterrupt: A signal arrived; `resume` continues from that step.
        """
        state, steps = self.state, self._settings["steps"]
        next_checkpoint = self._next("checkpoint_every")
        begin, cpu_begin = time.perf_counter() - state.seconds, time.process_time() - state.cpu_seconds
        shown = TrainingProgress(steps, state.step, shown=self._progress)
        with signals_received() as stop, reproducible(), closing(shown), closing(self.learner):
            while True:
                state.seconds, state.cpu_seconds = time.perf_counter() - begin, time.process_time() - cpu_begin
                if state.step >= min(state.next_log, state.next_evaluation):
                    self._log()
                    if state.step >= state.next_evaluation:
                        try:
                            self._evaluate()
                        except Interrupted as interrupted:
                            stop.append(interrupted.signal)
                    shown.row(self.records.rows[-1])
                over = bool(stop) or state.step >= steps or state.stale >= (self._settings["patience"] or math.inf)
                if over or state.step >= next_checkpoint:
                    self._save()
                    next_checkpoint = self._next("checkpoint_every")
                if over:
                    break
                try:
                    self._step()
                except NoMoreJobs as end:
                    log.warning("the training ends at step %d of %d: %s", state.step, steps, end)
                    self._save()
                    break
                shown.step(state.step)
        self.records.close()
        if stop:
            raise KeyboardInterrupt
        self._keep("final")

    def _step(self) -> None:
        """Carries out one step of the learner."""
        steps, episodes = self.learner.step(self.records)
        self.state.step += steps
        self.state.episodes += episodes

    def _log(self) -> None:
        state = self.state
        numbers = {"episodes": state.episodes, "seconds": state.seconds}
        if state.seconds > 0:
            numbers["steps_per_second"] = state.step / state.seconds
        self.records.row(state.step, **numbers)
        if state.step >= state.next_log:
            state.next_log = self._next("log_every")

    def _evaluate(self) -> None:
        """Replays the validation windows, if any; saves the agent if its score is the best so far."""
        state, task, evaluation = self.state, self.task, self.task.evaluation
        if not task.validation:
            state.next_evaluation = self._settings["steps"] + 1
            return
        if not state.baselines:
            state.baselines = {name: task.score(agent) for name, agent in task.baselines.items()}
        score = task.score(self.learner.agent)
        self.learner.after_evaluation()
        state.stale += 1
        if state.best_score is None or evaluation.better(score, state.best_score):
            state.stale = 0
        # Of equal scores the latest is kept: the agent that has learned longest.
        if state.stale == 0 or score == state.best_score:
            state.best_score, state.best_step = score, state.step
            self._keep("best")
        numbers = {evaluation.metric: score}
        if state.baselines:
            numbers["best_classic"] = state.baselines[evaluation.best(state.baselines)]
        self.records.add(state.step, **{f"validation_{name}": number for name, number in numbers.items()})
        state.next_evaluation = self._next("evaluate_every")
        self._evaluated(state.step, score)

    def _keep(self, name: str) -> None:
        """Saves the agent for replays in the folder ``checkpoints``."""
        self.learner.keep(self.kept(name))

    def _save(self) -> None:
        """Saves the state of the training."""
        saved = {
            "training": dataclasses.asdict(self.state),
            "records": self.records.state_dict(),
            "best": np.frombuffer(self.kept("best").read_bytes(), np.uint8) if "best" in self.names else None,
            **self.learner.state(),
        }
        checkpoint.save(self.state_file, saved)

    def _next(self, interval: str) -> int:
        """The next multiple of an interval of the settings, at most the last step."""
        step, steps, every = self.state.step, self._settings["steps"], self._settings[interval]
        return min(step - step % every + every, steps) if step < steps else step + 1
