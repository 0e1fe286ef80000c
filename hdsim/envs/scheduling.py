"""The Gymnasium environment: a simulated cluster, a task, and rewards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from hdsim.agent import Agent
from hdsim.decisions import Task
from hdsim.decisions.parts import Array, Observation
from hdsim.engine import SimBackend
from hdsim.envs.objectives import OBJECTIVES, Objective
from hdsim.errors import ConfigError, nearest
from hdsim.platform import Platform
from hdsim.replay import set_stage
from hdsim.results import Result
from hdsim.workload import Workload


class SchedulingEnv(gymnasium.Env[Any, Any]):
    """Schedules one window of a trace an episode.

    Args:
        platform: The platform.
        workload: A trace or several.
        action: See :class:`hdsim.decisions.Task`.
        observation: See :class:`hdsim.decisions.Task`.
        objective: A name of :data:`hdsim.envs.objectives.OBJECTIVES`.
        reward: ``sampled`` at decisions or ``integrated`` over the time between them.
        jobs: Jobs of an episode, a random window of them; None = a whole trace.
        contention: See :func:`hdsim.simulate`.
        kill_at_walltime: Kill jobs at their walltime.
        batch_events: All events of an instant together.
        render_mode: None.
        **settings: Settings of action and observation, see :class:`hdsim.decisions.Task`.

    Raises:
        ConfigError: Unknown names, or settings that exclude each other.
    """

    metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012

    def __init__(
        self,
        platform: Platform,
        workload: Workload | Sequence[Workload],
        action: str = "policy_pair",
        observation: str = "minimal",
        objective: str = "avg_job_completion",
        reward: str = "sampled",
        jobs: int | None = None,
        contention: str | Mapping[str, Any] = "none",
        kill_at_walltime: bool = False,
        batch_events: bool = True,
        render_mode: str | None = None,
        **settings: Any,
    ) -> None:
        if objective not in OBJECTIVES:
            raise ConfigError(
                f"expected one of {', '.join(OBJECTIVES)}, got '{objective}'{nearest(objective, OBJECTIVES)}",
                where="env.objective",
            )
        self.platform = platform
        self.traces = [workload] if isinstance(workload, Workload) else list(workload)
        self.task = Task(action, observation, **settings)
        self.render_mode = render_mode
        self._objective = OBJECTIVES[objective](integrated=reward == "integrated")
        self._contention = contention
        self._seat = _Seat(self.task, self._objective)
        self._kill_at_walltime = kill_at_walltime
        self._batch_events = batch_events
        self._jobs = jobs
        self.n_actions = self.task.n_actions(platform)
        self.action_space = spaces.Discrete(self.n_actions)
        self.observation_space = _space(self.task.arrays(platform))
        self.result: Result | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """See Gymnasium; `options` may name a ``workload`` to replay in this episode instead of a random window."""
        super().reset(seed=seed)
        workload = (options or {}).get("workload")
        if workload is None:
            workload = self._window()
        stage = set_stage(
            self.platform,
            workload,
            self._seat,
            contention=self._contention,
            seed=int(self.np_random.integers(2**63)),
        )
        self.cluster = stage.cluster
        self._backend = SimBackend(
            self.platform,
            workload,
            stage.cluster,
            contention=stage.contention,
            kill_at_walltime=self._kill_at_walltime,
            batch_events=self._batch_events,
            impossible=stage.impossible.tolist(),
        )
        self.result = None
        self.task.begin(self.cluster)
        self._objective.begin(self.cluster, self.task)
        self._backend.advance()
        self._objective.news()
        over = self._to_decision()
        return self.task.observe(), {"action_mask": self.action_masks(over)}

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """See Gymnasium; an action that the mask forbids counts as the first one it allows, and ``info`` says so."""
        mask = self.task.mask()
        valid = bool(mask[action])
        if not valid:
            action = mask.argmax()
        self.task.act(int(action))
        self._objective.acted(int(action))
        over = self._to_decision()
        reward = self._objective.reward(last=over)
        info: dict[str, Any] = {"action_mask": self.action_masks(over), "invalid_action": not valid}
        if over:
            self.result = Result.of(self.cluster, config=None, wall_seconds=0.0, interrupted=False)
            info["metrics"] = self.result.metrics
        return self.task.observe(), reward, over, False, info

    def action_masks(self, over: bool = False) -> np.ndarray:
        """(A,) which actions can be carried out now; all of them when the episode is over."""
        return np.ones(self.n_actions, bool) if over else self.task.mask().copy()

    def _to_decision(self) -> bool:
        """Lets time pass until a decision is due; True when the episode is over."""
        task, objective, backend = self.task, self._objective, self._backend
        while not task.pending():
            backend.apply()
            objective.settled()
            if not backend.advance():
                return True
            objective.news()
        return False

    def _window(self) -> Workload:
        trace = self.traces[int(self.np_random.integers(len(self.traces)))]
        if self._jobs is None or self._jobs >= len(trace):
            return trace
        first = int(self.np_random.integers(len(trace) - self._jobs + 1))
        return trace[first : first + self._jobs]


class _Seat(Agent):
    """Stands for the agent outside when the stage is set."""

    def __init__(self, task: Task, objective: Objective) -> None:
        self.core_policy = task.core_policy
        self.fixed_policy = task.fixed_policy and not objective.sees_cores


def _space(arrays: Array | dict[str, Array]) -> spaces.Space[Any]:
    if isinstance(arrays, dict):
        return spaces.Dict({name: _space(array) for name, array in arrays.items()})
    return spaces.Box(0, arrays.high, arrays.shape, arrays.dtype)
