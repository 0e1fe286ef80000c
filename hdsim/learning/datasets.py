"""Recordings of environments as Minari data sets, for offline learning with any library."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from hdsim.errors import ConfigError, install_hint
from hdsim.learning.training.demonstrations import Demonstrations
from hdsim.learning.training.evaluation import Evaluation
from hdsim.simulation.setup import MODELS
from hdsim.simulation.simulation import simulate
from hdsim.util.version import __version__

if TYPE_CHECKING:
    from gymnasium import Env
    from minari import MinariDataset
    from minari.data_collector import EpisodeBuffer

_OPTIONS = (*MODELS, "facility", "kill_at_walltime", "batch_events")


def record(
    dataset_id: str, policy: str, episodes: int, *, recording: str | None = None, seed: int = 0, **settings: Any
) -> MinariDataset:
    """Plays a classic policy in ``hdsim/Scheduling-v0`` and keeps the episodes as a Minari data set.

    The data set has observations, actions and rewards; its `infos` have the legal actions of each observation as
    ``action_mask``. Minari keeps data sets in ``~/.minari/datasets``, or in the folder MINARI_DATASETS_PATH;
    `recover_environment` of the data set makes an equal environment.

    Args:
        dataset_id: Name of the data set, such as ``hdsim/lublin-sjf-v0``.
        policy: Classic policy, with the action `policy_pair` one of the pairs.
        episodes: Number of episodes.
        recording: Run directory whose schedule is played instead.
        seed: Seed of the first episode.
        **settings: Settings of the environment, names and numbers only: platform and workload by name or path.

    Raises:
        ConfigError: Minari is not installed, the name is taken or malformed, or a setting cannot be used.
    """
    try:
        import gymnasium
        import minari
        from minari.dataset.minari_dataset import parse_dataset_id
    except ModuleNotFoundError as error:
        raise ConfigError(f"expected an installed Minari: {error}{install_hint(error.name)}") from None
    from hdsim.envs import ENV_ID

    if episodes < 1:
        raise ConfigError(f"expected at least 1, got {episodes}", where="episodes")
    try:
        parse_dataset_id(dataset_id)
    except ValueError as error:
        raise ConfigError(str(error), where="dataset_id") from None
    if dataset_id in minari.list_local_datasets():
        raise ConfigError(f"expected a new name, got {dataset_id}, which this machine has", where="dataset_id")

    environment = gymnasium.make(ENV_ID, **settings)
    played: Any = environment.unwrapped
    models = {key: settings[key] for key in _OPTIONS if key in settings} | {"seed": seed}
    evaluation = Evaluation("mean_bounded_slowdown", partial(simulate, played.platform, **models))
    teacher = Demonstrations([played], evaluation, teacher=policy, recording=recording, where="policy")
    try:
        return minari.create_dataset_from_buffers(
            dataset_id,
            [_episode(environment, teacher, seed + number) for number in range(episodes)],
            env=environment,
            eval_env=environment,
            algorithm_name=recording or policy,
            description=f"{episodes} episodes of {ENV_ID} under {recording or policy}, seed {seed}",
            requirements=[f"hdsim[rl]=={__version__}"],
        )
    finally:
        environment.close()


def _episode(environment: Env[Any, Any], teacher: Demonstrations, seed: int) -> EpisodeBuffer:
    """Plays the demonstrated actions until the end of an episode."""
    from minari.data_collector import EpisodeBuffer

    observation, info = environment.reset(seed=seed)
    seen, legal = [observation], [info["action_mask"]]
    actions: list[int] = []
    rewards: list[float] = []
    ends: list[tuple[bool, bool]] = []
    while not (ends and any(ends[-1])):
        actions.append(int(teacher.actions()[0]))
        observation, reward, terminated, truncated, info = environment.step(actions[-1])
        seen.append(observation)
        legal.append(info["action_mask"])
        rewards.append(float(reward))
        ends.append((terminated, truncated))
    parts = isinstance(observation, dict)
    return EpisodeBuffer(
        seed=seed,
        observations={name: [each[name] for each in seen] for name in observation} if parts else seen,
        actions=actions,
        rewards=rewards,
        terminations=[terminated for terminated, _ in ends],
        truncations=[truncated for _, truncated in ends],
        infos={"action_mask": legal},
    )
