"""Environments on several cores: compiled batches, or processes.

Environments of :func:`hdsim.envs.batch.covers` are rows of arrays, which threads step. Of others, every process, the
calling one included, steps a share; see :mod:`hdsim.envs.processes`.
"""

from __future__ import annotations

import itertools
import logging
import math
import multiprocessing
import os
from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from hdsim.decisions.base import positive_int
from hdsim.envs.batch import Batch, covers, has_ranges
from hdsim.envs.processes import Processes, equal_environments
from hdsim.envs.scheduling import SchedulingEnv
from hdsim.envs.shares import MASK, SEEN, Ended, LocalShare, RemoteShare, Share, Views, action_numbers, layout_of
from hdsim.errors import ConfigError, DecisionError
from hdsim.util.arrays import Flags, Floats

log = logging.getLogger(__name__)

#: Environments of a batch for each thread: waking a thread takes as long as stepping a hundred of them, on nodes four.
_PER_THREAD, _PER_THREAD_ON_NODES = 256, 8
#: The autoreset mode of trainings.
SAME_STEP = AutoresetMode.SAME_STEP


def make_vec(num_envs: int, **settings: Any) -> SchedulingVectorEnv:
    """Makes environments that are stepped together; see :class:`SchedulingVectorEnv`."""
    return SchedulingVectorEnv(num_envs, **settings)


class ShareVectorEnv(VectorEnv[Any, Any, Any]):
    """Equal environments, of which this process and others step a share each.

    ``info`` has ``action_mask`` (E, A) and ``invalid_action`` (E,); after the end of episodes also ``metrics``, an
    array (E,) of each, NaN of episodes that do not define it, and ``_metrics`` (E,): the environments they belong to.
    In autoreset mode SAME_STEP it then also has ``final_obs``, an array (E,) of their last observations or None, and
    ``final_info`` with the last ``action_mask`` (E, A).

    Args:
        environment: One of them.
        num_envs: E.
        share: The environments of this process, the first ones.
        others: The others.
        autoreset_mode: NEXT_STEP or SAME_STEP.

    Raises:
        ConfigError: The mode is another one.
    """

    def __init__(
        self,
        environment: Any,
        num_envs: int,
        share: Share,
        others: Sequence[RemoteShare] = (),
        autoreset_mode: AutoresetMode = AutoresetMode.NEXT_STEP,
    ) -> None:
        self.num_envs = num_envs
        #: Whether the same actions lead to the same episodes.
        self.repeats: bool = getattr(environment.unwrapped, "repeats", True)
        self._n_actions = int(environment.action_space.n)
        self._mask: Flags | None = None
        self.metadata = {"render_modes": [], "autoreset_mode": autoreset_mode}
        self.single_observation_space = environment.observation_space
        self.single_action_space = environment.action_space
        self.observation_space = batch_space(environment.observation_space, num_envs)
        self.action_space = batch_space(environment.action_space, num_envs)
        self._results = layout_of(environment, num_envs)
        self._share, self._others = share, others
        self._bounds = [(0, num_envs - sum(len(process) for process in others))]
        self._bounds += [(process.first, process.last) for process in others]

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begins an episode in every environment, i with seed + i; see :meth:`SchedulingEnv.reset` for `options`."""
        if seed is None or isinstance(seed, Integral):
            return self._begin(
                "reset", [None if seed is None else int(seed) + i for i in range(self.num_envs)], options
            )
        seeds: Sequence[Any] = seed  # type: ignore[assignment]
        return self._begin("reset", seeds, options)

    def step(self, actions: Any) -> tuple[Any, Floats, Flags, Flags, dict[str, Any]]:
        """Carries out an action in every environment.

        Raises:
            DecisionError: Actions are no numbers of one, which no environment carries out then; or there is no episode.
        """
        self._require_episodes()
        numbers = action_numbers(actions, self.num_envs, self._n_actions)
        for process in self._others:
            process.step(numbers)
        views, ended = self._new(), dict[int, Ended]()
        try:
            ended |= self._share.step(views, numbers[slice(*self._bounds[0])])
        finally:
            for process, told in self._gather(views):
                ended |= {process.first + i: outcome for i, outcome in told.items()}
        info: dict[str, Any] = {MASK: views[MASK], "invalid_action": views["invalid_action"]}
        if ended:
            info |= self._ended(ended)
        return self._observations(views), views["reward"], views["terminated"], views["truncated"], info

    def action_masks(self) -> Flags:
        """(E, A) which actions the masks allow now.

        Raises:
            DecisionError: There is no episode.
        """
        return self._require_episodes().copy()

    def state(self) -> list[Mapping[str, Any]]:
        """For each environment the number of episodes and the state of its generator before the present episode."""
        for process in self._others:
            process.call("state")
        shares = [self._share.state(), *(told for _, told in self._gather({}))]
        return list(itertools.chain.from_iterable(shares))

    def load_state(self, state: Sequence[Mapping[str, Any]]) -> tuple[Any, dict[str, Any]]:
        """Begins the episodes of `state` again and repeats the ``actions`` in each; returns what `reset` does."""
        return self._begin("load_state", state)

    def close_extras(self, **kwargs: Any) -> None:
        """Ends threads and processes."""
        self._share.close()
        for process in self._others:
            process.close()

    def _require_episodes(self) -> Flags:
        """Returns (E, A) the legal actions of the present episodes."""
        if self._mask is None or self.closed:
            raise DecisionError(f"expected reset() first{', of open environments' if self.closed else ''}")
        return self._mask

    def _begin(self, method: str, each: Sequence[Any], *more: Any) -> tuple[Any, dict[str, Any]]:
        """Calls a method of all shares with their part of a sequence."""
        (first, last), *_ = self._bounds
        for process in self._others:
            process.call(method, each[process.first : process.last], *more)
        views = self._new()
        try:
            getattr(self._share, method)(views, each[first:last], *more)
        finally:
            self._gather(views)
        return self._observations(views), {MASK: views[MASK]}

    def _new(self) -> Views:
        """New arrays for the outcome; the caller may keep them."""
        return {name: np.empty(*form) for name, form in self._results.items()}

    def _gather(self, views: Views) -> list[tuple[RemoteShare, Any]]:
        """Waits for the other processes, copies their outcomes, and returns what each tells besides."""
        told, faults = [], []
        for process in self._others:
            try:
                told.append((process, process.outcome()))
                for name in views:
                    views[name][process.first : process.last] = process.results[name]
            except Exception as fault:
                # The other processes are awaited even after an error.
                faults.append(fault)
        if faults:
            raise faults[0]
        if views:
            self._mask = views[MASK].copy()
        return told

    def _ended(self, ended: Mapping[int, Ended]) -> dict[str, Any]:
        """Entries of ``info`` about the episodes that have ended."""
        rows = list(ended)
        # Jobs of one episode may define a metric that those of another one do not.
        names = dict.fromkeys(name for outcome in ended.values() for name in outcome.metrics)
        metrics = {name: np.zeros(self.num_envs) for name in names}
        info: dict[str, Any] = {"metrics": metrics, "_metrics": np.isin(np.arange(self.num_envs), rows)}
        for i, outcome in ended.items():
            for name in names:
                metrics[name][i] = outcome.metrics.get(name, math.nan)
        if self.metadata["autoreset_mode"] is SAME_STEP:
            last, masks = np.full(self.num_envs, None), self._require_episodes().copy()
            for i, outcome in ended.items():
                last[i], masks[i] = outcome.observation, outcome.mask
            info |= {"final_obs": last, "_final_obs": info["_metrics"], "final_info": {MASK: masks}}
        return info

    def _observations(self, views: Views) -> Any:
        if isinstance(self.single_observation_space, spaces.Dict):
            return {name: views[SEEN + name] for name in self.single_observation_space}
        return views[SEEN]


def local_vector(environments: Sequence[Any]) -> ShareVectorEnv:
    """Makes a vector of given environments in this process, in autoreset mode SAME_STEP."""
    mode, share = SAME_STEP, LocalShare(environments, same_step=True)
    return ShareVectorEnv(environments[0], len(environments), share, autoreset_mode=mode)


class SchedulingVectorEnv(ShareVectorEnv):
    """Several :class:`hdsim.envs.scheduling.SchedulingEnv`; see :class:`ShareVectorEnv`.

    Args:
        num_envs: E.
        workers: Threads or processes that step the environments, this one included; None for the number of cores.
        context: Start method of processes (see :mod:`multiprocessing`), None for the system's default.
        autoreset_mode: NEXT_STEP or SAME_STEP.
        **settings: See :class:`hdsim.envs.scheduling.SchedulingEnv`.

    Raises:
        ConfigError: See :class:`hdsim.envs.scheduling.SchedulingEnv`.
    """

    def __init__(
        self,
        num_envs: int = 1,
        workers: int | None = None,
        context: str | None = None,
        autoreset_mode: AutoresetMode = AutoresetMode.NEXT_STEP,
        **settings: Any,
    ) -> None:
        if autoreset_mode not in (AutoresetMode.NEXT_STEP, SAME_STEP):
            raise ConfigError(f"expected NEXT_STEP or SAME_STEP, got {autoreset_mode}", where="autoreset_mode")
        num_envs = positive_int("num_envs", num_envs)
        workers = min(positive_int("workers", workers or len(os.sched_getaffinity(0))), num_envs)
        first, same_step = SchedulingEnv(**settings), autoreset_mode is SAME_STEP
        if covers(first):
            fewest = _PER_THREAD if has_ranges(first) else _PER_THREAD_ON_NODES
            threads = max(min(workers, num_envs // fewest), 1)
            super().__init__(first, num_envs, Batch(first, num_envs, threads, same_step), (), autoreset_mode)
            return
        if own := [*first.own_kinds(), *(["facility"] if first.facility else [])]:
            log.warning("the engine steps these environments: compiled ones know no %s", " ".join(own))
        bounds = np.linspace(0, num_envs, workers + 1).astype(int).tolist()
        share = LocalShare(equal_environments(settings, first, bounds[1]), same_step)
        # Spawned processes read traces themselves: one that ends before it has read a long argument blocks this one.
        spawns = multiprocessing.get_context(context).get_start_method() == "spawn"
        shared = settings if spawns else settings | first.inputs
        others = [Processes(first, shared, bounds[1:], same_step, context)] if workers > 1 else []
        super().__init__(first, num_envs, share, others, autoreset_mode)
