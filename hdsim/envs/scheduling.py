"""The Gymnasium environment: a simulated cluster, a decision problem and rewards."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from numbers import Integral
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from hdsim.decisions import DecisionProblem
from hdsim.decisions.base import Array, Objective, Observation
from hdsim.decisions.episode_settings import KEYS, check_episode_settings, split
from hdsim.decisions.kinds import KINDS, OBJECTIVES, OBSERVATIONS
from hdsim.decisions.observations.hdeeprm import Minimal, queue_scales
from hdsim.envs.episodes import Episodes, Trace, make_traces
from hdsim.envs.shares import action_numbers
from hdsim.errors import ConfigError, DecisionError
from hdsim.facility.dates import dated
from hdsim.platform.load import load_platform
from hdsim.platform.model import Platform
from hdsim.platform.schema import QUANTITIES
from hdsim.results.result import Result
from hdsim.scheduling.agent import Agent
from hdsim.simulation.replay import EpisodeBackend, ReplayBackend
from hdsim.simulation.setup import ReplaySetup, model_settings, set_up
from hdsim.simulation.simulation import Simulation
from hdsim.util.resources import resolve
from hdsim.util.rules import has_values, is_finite, texts
from hdsim.workload.model import Workload


class SchedulingEnv(gymnasium.Env[Any, Any]):
    """Schedules the jobs of one window of a trace per episode; a step is a decision.

    ``info`` always has ``action_mask``, and after a step ``invalid_action``: the mask forbade the action, and the first
    legal one was carried out instead. After the last step it has ``metrics`` (see
    :func:`hdsim.results.metrics.summary`); every action is legal then. An episode is terminated when every job has
    ended, and truncated after `max_steps`.

    Attributes:
        platform: The platform.
        episodes: Source of the jobs of episodes.
        problem: Actions and observations.
        objective: Source of the rewards.
        reward_scale: Factor of every reward.
        max_steps: Steps after which an episode is truncated, None for no limit.
        options: Options of the engine.
        runner: Runs the jobs of the episodes; None: the simulation does.
        cluster: State of the episode.
        result: The replay after the end of the episode, else None.

    ``copy.deepcopy`` and `fork` return an independent environment in the same state.

    Args:
        platform: A platform, its file, or the name of a bundled one.
        workload: One trace or several; see :func:`hdsim.envs.episodes.make_traces`.
        action: See :class:`hdsim.decisions.DecisionProblem`.
        observation: See :class:`hdsim.decisions.DecisionProblem`.
        objective: A name, file or class of :data:`hdsim.decisions.kinds.OBJECTIVES`.
        reward: ``sampled`` right after actions or ``integrated`` over the time between them.
        reward_scale: Factor of every reward.
        jobs, held_out, curriculum, curriculum_episodes, curriculum_start: See :class:`hdsim.envs.episodes.Episodes`.
        max_steps: Steps after which an episode is truncated, None for no limit.
        per_deployment: See :class:`hdsim.decisions.objectives.ClusterBalance`.
        contention, network, failures, facility, power, kill_at_walltime, batch_events: See :func:`hdsim.simulate`.
            `facility.begin` is the date of the first submission of each trace, whose windows have their own dates, and
            of given jobs. Generated series are drawn anew for each episode, unless there is a `facility.seed`.
        backend: Runs the jobs of the episodes; None: the simulation does, with the two settings before. With a backend
            that brings the jobs itself an episode has those that come within `max_steps` decisions.
        render_mode: None, the only mode; ``hdsim report`` draws replays, `render` refers to it.
        **settings: Settings of action, observation (see :class:`hdsim.decisions.DecisionProblem`) and objective. With
            ``scale=workload`` the scales are the 99th percentiles over all traces.

    Raises:
        ConfigError: A name is unknown, or settings exclude each other.
    """

    metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012

    def __init__(
        self,
        platform: Platform | str | Path,
        workload: Trace | Sequence[Trace],
        action: str = "policy_pair",
        observation: str = "minimal",
        objective: str = "makespan",
        reward: str = "sampled",
        reward_scale: float = 1.0,
        jobs: int | None = None,
        held_out: Sequence[Sequence[int]] = (),
        curriculum: str = "none",
        curriculum_episodes: int = 1000,
        curriculum_start: float = 0.1,
        max_steps: int | None = None,
        per_deployment: bool = False,
        contention: str | Mapping[str, Any] = "none",
        network: str | Mapping[str, Any] = "none",
        failures: str | Mapping[str, Any] = "none",
        facility: str | Mapping[str, Any] = "none",
        power: str | Mapping[str, Any] = "none",
        kill_at_walltime: bool = False,
        batch_events: bool = True,
        backend: EpisodeBackend | None = None,
        render_mode: str | None = None,
        **settings: Any,
    ) -> None:
        action, observation, objective, settings = map(texts, (action, observation, objective, settings))
        self._arguments = {name: value for name, value in locals().items() if name not in ("self", "settings")}
        if not isinstance(platform, Platform):
            platform = load_platform(resolve("platforms", platform, where="env.platform"))
        if render_mode is not None:
            raise ConfigError(f"expected null, got '{render_mode}'", where="env.render_mode")
        self._arguments |= settings
        named = {key: self._arguments[key] for key in ("action", "observation", *KEYS)}
        settings, episodes = split({**settings, **named})
        self.objective = check_episode_settings(action, **episodes)
        self.platform = platform
        self.render_mode = render_mode
        #: Settings of the facility, empty without one.
        self.facility = dict(model_settings("facility", facility))
        if not has_values(self.facility):
            self.facility = {}
        traces = [dated(trace, self.facility) for trace in make_traces(workload, platform)]
        self.episodes = Episodes(traces, jobs, held_out, curriculum, curriculum_episodes, curriculum_start)
        if settings.get("scale") == "workload" and issubclass(OBSERVATIONS.find(observation), Minimal):
            settings.setdefault("scales", queue_scales(*self.episodes.traces))
        self.problem = DecisionProblem(**settings)
        if self.objective.needs_core_ids and platform.kind == QUANTITIES:
            usable = ", ".join(name for name, each in OBJECTIVES.classes().items() if not each.needs_core_ids)
            raise ConfigError(
                f"expected one of {usable} on a platform of quantities, got {objective}", where="env.objective"
            )
        if self.objective.needs_dates and backend is not None:
            raise ConfigError(f"expected another objective than {objective} on this backend", where="env.objective")
        self._brings_jobs = backend is not None and backend.brings_jobs
        #: Whether the same actions lead to the same episode.
        self.repeats = backend is None or backend.repeats
        if self._brings_jobs and self.objective.needs_known_jobs:
            usable = ", ".join(
                name for name, each in OBJECTIVES.classes().items() if not (each.needs_known_jobs or each.needs_dates)
            )
            raise ConfigError(
                f"expected one of {usable}, as the jobs come during the episode, got {objective}", where="env.objective"
            )
        if self._brings_jobs and max_steps is None:
            raise ConfigError("expected a number, as jobs come without end, got null", where="env.max_steps")
        self.n_actions = self.problem.n_actions(platform)
        self.action_space = spaces.Discrete(self.n_actions)
        self.observation_space = _space(self.problem.arrays(platform))
        self.result: Result | None = None
        self.reward_scale = float(reward_scale)
        self.max_steps = max_steps
        self._models: dict[str, Any] = {
            group: model_settings(group, spec)
            for group, spec in (
                ("contention", contention),
                ("network", network),
                ("failures", failures),
                ("power", power),
            )
        }
        if self.facility:
            self._models["facility"] = {**self.facility, "begin": None}
        self.options = {"kill_at_walltime": kill_at_walltime, "batch_events": batch_events}
        #: Arguments of equal environments, which read and draw no trace again.
        self.inputs: dict[str, Any] = {"platform": platform, "workload": self.episodes.traces}
        self._arguments |= {**self.inputs, **settings}
        # Needed to repeat the episode.
        self._actions: list[int] | None = None
        self._over = True
        self.runner = backend
        self._placeholder = _PlaceholderAgent(self.problem, self.objective.sees_cores(platform))
        # Errors in the settings of a model are raised here.
        setup, signal = self.set_up(self.episodes.traces[0], seed=0), self.objective.signal
        if setup.power is not None and setup.power.changes_frequencies:
            message = "expected power.frequency=null and power.when_capped=wait: environments have no frequencies"
            raise ConfigError(message, where="env")
        cluster = setup.cluster
        if self.problem.action.needs_power and cluster.node_states is None:
            raise ConfigError(f"expected power=states or suspend with env.action={action}, got none", where="power")
        if signal is not None and getattr(cluster.facility, signal, None) is None:
            raise ConfigError(
                f"expected a facility with facility.{signal} for {objective}, got none", where="env.objective"
            )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begins an episode.

        Args:
            seed: Seed of all random numbers in this episode and those after it.
            options: ``workload``: jobs to replay in this episode, instead of drawn ones.

        Raises:
            ConfigError: An option is unknown.
        """
        for key in options or {}:
            if key != "workload":
                raise ConfigError(f"expected the key workload, got '{key}'", where="options")
        super().reset(seed=int(seed) if isinstance(seed, Integral) else seed)
        workload = (options or {}).get("workload")
        if workload is not None and self._brings_jobs:
            raise ConfigError("expected none, as the backend brings the jobs", where="options.workload")
        self._before = self.episodes.drawn, self.np_random.bit_generator.state, options
        self._actions, self._over = [], False
        workload = self.episodes.draw(self.np_random) if workload is None else dated(workload, self.facility)
        if self._brings_jobs:
            workload = Workload.empty("<cluster>")
        seed, options = int(self.np_random.integers(2**63)), {**self._models, **self.options}
        self._backend: ReplayBackend
        if self.runner is None:
            # The cluster refers weakly to the simulation, which makes its forks.
            self._simulation = Simulation(self.platform, workload, self._placeholder, seed=seed, **options)
            setup, self._backend = self._simulation.setup, self._simulation.env
            if type(self.objective).on_change is not Objective.on_change:
                self._simulation.env.on_settled = self.objective.on_change
        else:
            setup = self.set_up(workload, seed)
            given = {"agent": self._placeholder, **self._models}
            self._simulation = Simulation.elsewhere(
                self.platform, workload, setup, given, kill_at_walltime=self.runner.kill_at_walltime
            )
            self._backend = self.runner.episode(setup)
        self.cluster = setup.cluster
        self.objective.dates = getattr(self._backend, "dates", {})
        self.result = None
        self.problem.begin(self.cluster)
        self.objective.begin(setup, self.problem)
        over = not self._backend.advance()
        if not over:
            self.objective.on_instant()
            over = self._to_decision()
        self._undecided = over
        self._mask = np.ones(self.n_actions, bool) if over else self.problem.mask()
        return self.problem.observe(), {"action_mask": self._mask.copy()}

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Carries out an action and advances to the next decision; an episode without decisions ends at once.

        Raises:
            DecisionError: The action is no number of one, or there is no episode: before `reset`, or after its end.
        """
        actions = self._actions
        if self._over or actions is None:
            raise DecisionError(f"expected reset() {'first' if actions is None else 'after the end of an episode'}")
        # The array that `action_numbers` makes of a number would take a tenth of a step.
        if not ((type(action) is int or isinstance(action, np.integer)) and 0 <= action < self.n_actions):
            action = action_numbers(action, 1, self.n_actions)[0]
        action = int(action)
        actions.append(action)
        valid, over, problem = bool(self._mask[action]), self._undecided, self.problem
        if not over:
            if not valid:
                action = int(self._mask.argmax())
            problem.act(action)
            self.objective.after_action(action)
            over = self._to_decision()
        truncated = not over and len(actions) == self.max_steps
        self._mask = mask = np.ones(self.n_actions, bool) if over else problem.mask()
        info: dict[str, Any] = {"action_mask": mask.copy(), "invalid_action": not valid}
        if over or truncated:
            self._over = True
            self.result = Result.of(self.cluster, interrupted=truncated, facility=self._simulation.setup.facility)
            info["metrics"] = self.result.metrics
        reward = self.objective.reward(self._over)
        if not (is_finite(reward) or isinstance(reward, bool | np.bool_)):
            told = f"expected a finite number as reward from {type(self.objective).__name__}, got {reward!r}"
            raise ConfigError(told, where="env.objective")
        reward = float(reward) * self.reward_scale
        return problem.observe(), reward, over, truncated, info

    def action_masks(self) -> np.ndarray:
        """(A,) legal actions, under the name that sb3-contrib expects."""
        return self._mask.copy()

    def fork(self) -> SchedulingEnv:
        """Returns an independent environment in the same state, whose future is the same under the same actions.

        It repeats the episode from its first event, so that a fork takes the time of the steps so far.

        Raises:
            ConfigError: A backend runs the jobs, whose past cannot be repeated.
        """
        if self.runner is not None:
            raise ConfigError("expected the simulation, whose episodes can be repeated", where="backend")
        other = SchedulingEnv(**self._arguments)
        other.episodes, other.np_random = copy.copy(self.episodes), copy.deepcopy(self.np_random)
        if self._actions is None:
            return other
        other.episodes.drawn, other.np_random.bit_generator.state, options = self._before
        other.reset(options=options)
        for action in self._actions:
            other.step(action)
        return other

    def __deepcopy__(self, memo: dict[int, Any]) -> SchedulingEnv:
        """Returns `fork`: simulated clusters refer to their simulation."""
        return self.fork()

    def own_kinds(self) -> list[str]:
        """Settings that name a class which is none of hdsim's, such as ``action=mine.py``."""
        given = self._arguments
        return [f"{kind.group}={given[kind.group]}" for kind in KINDS if given[kind.group] not in kind.bundled]

    def _to_decision(self) -> bool:
        """Advances to the next decision; returns True at the end of the episode."""
        problem, objective, backend = self.problem, self.objective, self._backend
        while not problem.pending():
            backend.apply()
            objective.end_of_pass()
            if not backend.advance():
                return True
            objective.on_instant()
        return False

    def render(self) -> None:
        """Raises an error: there is no render mode.

        Raises:
            ConfigError: Always.
        """
        raise ConfigError("expected `hdsim report` of a replay; an environment draws nothing", where="env.render_mode")

    def set_up(self, workload: Workload, seed: int) -> ReplaySetup:
        """Makes models and cluster of an episode."""
        confirms = self.runner is not None and self.runner.capabilities.confirms_starts
        options = {**self._models, "confirms_starts": confirms, "open_ended": not len(workload)}
        return set_up(self.platform, workload, self._placeholder, seed=seed, **options)


class _PlaceholderAgent(Agent):
    """Placeholder agent with the decision problem's requirements."""

    def __init__(self, problem: DecisionProblem, sees_cores: bool) -> None:
        self.core_policy = problem.core_policy
        self.fixed_policy = problem.fixed_policy and not sees_cores
        self.core_policies = () if sees_cores else problem.core_policies

    def __deepcopy__(self, memo: dict[int, Any]) -> Agent:
        """Refuses forks without an agent."""
        raise TypeError("the decisions of an environment come from outside")


def _space(arrays: Array | dict[str, Array]) -> spaces.Space[Any]:
    if isinstance(arrays, dict):
        return spaces.Dict({name: _space(array) for name, array in arrays.items()})
    return spaces.Box(0, arrays.high, arrays.shape, arrays.dtype)
