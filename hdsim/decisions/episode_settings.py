"""Settings of episodes and rewards: the keys of ``env`` that are not settings of the decision problem."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from hdsim.decisions.base import Objective, one_of, positive_int
from hdsim.decisions.kinds import ACTIONS, OBJECTIVES, OBSERVATIONS
from hdsim.errors import ConfigError, nearest
from hdsim.util.rules import is_finite

REWARDS = ("sampled", "integrated")
CURRICULA = ("none", "growing", "easy_first")


def check_episode_settings(
    action: str,
    *,
    objective: str = "makespan",
    reward: str = "sampled",
    reward_scale: float = 1.0,
    jobs: int | None = None,
    curriculum: str = "none",
    curriculum_episodes: int = 1000,
    curriculum_start: float = 0.1,
    max_steps: int | None = None,
    per_deployment: bool = False,
    **own: Any,
) -> Objective:
    """Checks the settings as far as possible without a trace; see :class:`hdsim.envs.scheduling.SchedulingEnv`.

    Further keys are settings of the objective.

    Returns:
        The objective.

    Raises:
        ConfigError: A setting has a wrong value.
    """
    if not is_finite(reward_scale):
        raise ConfigError(f"expected a number, got {reward_scale!r}", where="env.reward_scale")
    only_action = (made := OBJECTIVES.find(objective)).only_action
    if only_action not in (None, action):
        raise ConfigError(
            f"expected env.action={only_action} with env.objective={objective}, got {action}", where="env.objective"
        )
    if not isinstance(per_deployment, bool) or (per_deployment and objective != "cluster_balance"):
        raise ConfigError(
            f"expected true or false, and true only with env.objective=cluster_balance, got {per_deployment!r}",
            where="env.per_deployment",
        )
    one_of("reward", reward, REWARDS)
    one_of("curriculum", curriculum, CURRICULA)
    positive_int("curriculum_episodes", curriculum_episodes)
    for key, value in (("jobs", jobs), ("max_steps", max_steps)):
        if value is not None:
            positive_int(key, value)
    if jobs is None and curriculum != "none":
        raise ConfigError("expected the number of jobs of an episode, got null", where="env.jobs")
    if isinstance(curriculum_start, bool | str) or not 0 < curriculum_start <= 1:
        raise ConfigError(
            f"expected a share above 0 and at most 1, got {curriculum_start!r}", where="env.curriculum_start"
        )

    if per_deployment:
        own["per_deployment"] = True
    return OBJECTIVES.construct(made, objective, reward == "integrated", **own)


#: Names of the settings that every environment has.
KEYS = tuple(inspect.signature(check_episode_settings).parameters)[1:-1]


def split(env: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Splits settings of an environment into those of the decision problem and those of episodes and rewards.

    Raises:
        ConfigError: There is no such objective, or nothing takes a setting.
    """
    default = inspect.signature(check_episode_settings).parameters["objective"].default
    own = list(inspect.signature(OBJECTIVES.find(env.get("objective", default))).parameters)[1:]
    episodes = {key: value for key, value in env.items() if key in KEYS or key in own}
    problem = {key: value for key, value in env.items() if key not in episodes}
    check_names(problem, [*KEYS, *(key for key in own if key not in KEYS)])
    return problem, episodes


def check_names(problem: Mapping[str, Any], others: Sequence[str] = KEYS) -> None:
    """Checks that each setting of a decision problem is one of its action or of its observation.

    Args:
        problem: The settings, ``action`` and ``observation`` among them unless they have their defaults.
        others: Names of the settings beside them.

    Raises:
        ConfigError: A kind or setting is unknown.
    """
    settings = dict(problem)
    action, observation = settings.pop("action", "policy_pair"), settings.pop("observation", "minimal")
    takers = ACTIONS.find(action), OBSERVATIONS.find(observation)
    allowed = sorted({key for taker in takers for key in inspect.signature(taker).parameters})
    if unknown := [key for key in settings if key not in allowed]:
        others = ["action", "observation", *others]
        raise ConfigError(
            f"unknown setting of action {action} and observation {observation}"
            f"{_of_others(unknown) or nearest(unknown[0], [*allowed, *others])}; allowed: {', '.join(allowed)}; "
            f"beside them in every environment: {', '.join(others)}",
            where=f"env.{unknown[0]}",
        )


def _of_others(keys: Sequence[str]) -> str:
    """Says whose setting the first key is, and how those that other actions and observations have are left out."""
    owners = {
        key: [
            name
            for name, maker in (ACTIONS.classes() | OBSERVATIONS.classes()).items()
            if key in inspect.signature(maker).parameters
        ]
        for key in keys
    }
    if not owners[keys[0]]:
        return ""
    removed = " ".join(f"~env.{key}" for key, names in owners.items() if names)
    return f" (one of {', '.join(owners[keys[0]])}; {removed} on the command line leaves out what an experiment sets)"
