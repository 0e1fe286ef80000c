"""Environments on several cores: shared memory instead of messages, several environments per process.

A step of an environment takes some ten microseconds, less than sending its outcome through a pipe, as Gymnasium's
``AsyncVectorEnv`` does for each environment. Here every process, the calling one included, steps a share of the
environments. The share of the calling process is written into the returned arrays, the others into shared memory first.

Waking a sleeping process takes longer than such a step too. A waiting process therefore polls for some milliseconds,
and sleeps at once only where the last wait took longer, as during the training of a network.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from hdsim.decisions.base import positive_int
from hdsim.envs.scheduling import SchedulingEnv
from hdsim.errors import BackendError

#: Seconds of polling before a process sleeps, and polls until it yields the core.
_PATIENCE = 0.003
_LOOKS = 100
#: Seconds between two checks that the processes are alive.
_ALIVE_INTERVAL = 5.0
_STEP, _RESET, _CLOSE = range(3)
#: Names of arrays; those of observations begin with `_SEEN`.
_ACTION, _MASK, _SEEN = "action", "action_mask", "obs:"

Views = dict[str, NDArray[Any]]


class SchedulingVectorEnv(VectorEnv[Any, Any, Any]):
    """Several :class:`hdsim.envs.scheduling.SchedulingEnv` in autoreset mode NEXT_STEP.

    ``info`` has ``action_mask`` (E, A) and ``invalid_action`` (E,); after the end of episodes also ``metrics``, an
    array (E,) of each, and ``_metrics`` (E,): the environments they belong to. Environment i has the seed ``seed + i``.

    Args:
        num_envs: E.
        workers: Processes that step the environments, including this one; None for the number of cores, at most E.
        context: Start method of processes (see :mod:`multiprocessing`), None for the system's default.
        **settings: See :class:`hdsim.envs.scheduling.SchedulingEnv`.

    Raises:
        ConfigError: See :class:`hdsim.envs.scheduling.SchedulingEnv`.
    """

    metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012

    def __init__(
        self, num_envs: int = 1, workers: int | None = None, context: str | None = None, **settings: Any
    ) -> None:
        self.num_envs = positive_int("num_envs", num_envs)
        workers = min(positive_int("workers", workers or len(os.sched_getaffinity(0))), num_envs)
        environments = [SchedulingEnv(**settings)]
        first = environments[0]
        self.single_observation_space = first.observation_space
        self.single_action_space = first.action_space
        self.observation_space = batch_space(first.observation_space, num_envs)
        self.action_space = batch_space(first.action_space, num_envs)
        start = multiprocessing.get_context(context)
        layout = _layout(first, num_envs)
        buffers = {
            name: start.RawArray("b", int(np.prod(shape)) * np.dtype(kind).itemsize)
            for name, (shape, kind) in layout.items()
        }
        bounds = np.linspace(0, num_envs, workers + 1).astype(int).tolist()
        self._actions = _views(buffers, layout, 0, num_envs)[_ACTION]
        self._results = {name: form for name, form in layout.items() if name != _ACTION}
        self._seen = [name for name in layout if name.startswith(_SEEN)]
        self._mask: NDArray[np.bool_] = np.ones(layout[_MASK][0], bool)
        environments += [SchedulingEnv(**settings) for _ in range(bounds[1] - 1)]
        self._share = _Share(environments)
        self._others = [
            _Process(start, settings, buffers, layout, begin, end) for begin, end in itertools.pairwise(bounds[1:])
        ]

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begins an episode in every environment; see :meth:`SchedulingEnv.reset` for `options`."""
        if seed is None or isinstance(seed, int):
            seed = [None if seed is None else seed + i for i in range(self.num_envs)]
        for process in self._others:
            process.reset(seed[process.first : process.last], options)
        views = self._new()
        try:
            self._share.reset(views, seed, options)
        finally:
            self._gather(views)
        return self._observations(views), {_MASK: views[_MASK]}

    def step(
        self, actions: Any
    ) -> tuple[Any, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Carries out an action in every environment, or begins the next episode where the last one is over."""
        numbers = np.asarray(actions, np.int64).reshape(self.num_envs)
        if self._others:
            self._actions[:] = numbers
            for process in self._others:
                process.step()
        views = self._new()
        try:
            ended = self._share.step(views, numbers.tolist())
        finally:
            elsewhere = self._gather(views)
        ended |= elsewhere
        info: dict[str, Any] = {_MASK: views[_MASK], "invalid_action": views["invalid_action"]}
        if ended:
            info["metrics"] = {name: np.zeros(self.num_envs) for name in next(iter(ended.values()))}
            info["_metrics"] = np.zeros(self.num_envs, bool)
            for i, metrics in ended.items():
                info["_metrics"][i] = True
                for name, value in metrics.items():
                    info["metrics"][name][i] = value
        return self._observations(views), views["reward"], views["terminated"], views["truncated"], info

    def action_masks(self) -> NDArray[np.bool_]:
        """(E, A) which actions the masks allow now."""
        return self._mask.copy()

    def close_extras(self, **kwargs: Any) -> None:
        """Ends the processes."""
        for process in self._others:
            process.close()

    def _new(self) -> Views:
        """New arrays for the outcome; the caller may keep them."""
        return {name: np.empty(*form) for name, form in self._results.items()}

    def _gather(self, views: Views) -> dict[int, dict[str, float]]:
        """Waits for the other processes and copies their outcomes; returns metrics of the episodes that ended."""
        ended: dict[int, dict[str, float]] = {}
        faults: list[Exception] = []
        for process in self._others:
            first, last = process.first, process.last
            try:
                ended |= {first + i: metrics for i, metrics in process.outcome().items()}
            except Exception as fault:
                # The other processes are awaited even after an error.
                faults.append(fault)
            for name, rows in process.results.items():
                views[name][first:last] = rows
        if faults:
            raise faults[0]
        self._mask = views[_MASK]
        return ended

    def _observations(self, views: Views) -> Any:
        if isinstance(self.single_observation_space, spaces.Dict):
            return {name.removeprefix(_SEEN): views[name] for name in self._seen}
        return views[_SEEN]


class _Share:
    """Environments stepped one after the other; the outcome of environment i is written to row i of arrays."""

    def __init__(self, environments: list[SchedulingEnv]) -> None:
        self._environments = environments
        self._over = [False] * len(environments)

    def reset(self, views: Views, seeds: Sequence[int | None], options: Any) -> None:
        """Begins an episode in each."""
        for i, environment in enumerate(self._environments):
            self._begin(views, i, *environment.reset(seed=seeds[i], options=options))

    def step(self, views: Views, actions: list[int]) -> dict[int, dict[str, float]]:
        """Carries out one action per environment; returns metrics of the episodes that ended."""
        over = self._over
        rewards, masks, invalid = views["reward"], views[_MASK], views["invalid_action"]
        terminations, truncations = views["terminated"], views["truncated"]
        ended: dict[int, dict[str, float]] = {}
        for i, environment in enumerate(self._environments):
            if over[i]:
                self._begin(views, i, *environment.reset())
                continue
            seen, rewards[i], terminated, truncated, info = environment.step(actions[i])
            terminations[i], truncations[i] = terminated, truncated
            masks[i], invalid[i] = info[_MASK], info["invalid_action"]
            if terminated or truncated:
                over[i] = True
                ended[i] = info["metrics"]
            self._write(views, i, seen)
        return ended

    def _begin(self, views: Views, i: int, seen: Any, info: dict[str, Any]) -> None:
        self._over[i] = False
        views["reward"][i] = 0.0
        views["terminated"][i] = views["truncated"][i] = views["invalid_action"][i] = False
        views[_MASK][i] = info[_MASK]
        self._write(views, i, seen)

    @staticmethod
    def _write(views: Views, i: int, seen: Any) -> None:
        if isinstance(seen, dict):
            for name, array in seen.items():
                views[_SEEN + name][i] = array
        else:
            views[_SEEN][i] = seen


class _Signal:
    """A signal to a waiting process; the semaphore also makes earlier writes visible.

    Args:
        start: Context of :mod:`multiprocessing`.
    """

    def __init__(self, start: Any) -> None:
        self._semaphore = start.Semaphore(0)
        self._brief = True

    def give(self) -> None:
        """Sends the signal."""
        self._semaphore.release()

    def taken(self) -> bool:
        """Waits for the signal; False after an interval at which the other process should be checked."""
        look = self._semaphore.acquire
        if look(False):
            return True
        begin = time.perf_counter()
        while self._brief:
            for _ in range(_LOOKS):
                if look(False):
                    return True
            self._brief = time.perf_counter() - begin < _PATIENCE
            os.sched_yield()
        told = bool(look(True, _ALIVE_INTERVAL))
        self._brief = time.perf_counter() - begin < _PATIENCE
        return told


class _Process:
    """A worker process with environments `first` to `last` - 1, and its outcome."""

    def __init__(self, start: Any, settings: Any, buffers: Any, layout: Any, first: int, last: int) -> None:
        self.first, self.last = first, last
        self.results = _views(buffers, layout, first, last)
        del self.results[_ACTION]
        self._begun, self._done = _Signal(start), _Signal(start)
        self._pipe, other = start.Pipe()
        #: Command, and whether the outcome is read from the pipe.
        self._word = start.RawArray("b", 2)
        arguments = (settings, buffers, layout, first, last, self._begun, self._done, other, self._word)
        self._process = start.Process(target=_serve, args=arguments, daemon=True)
        self._process.start()
        other.close()

    def step(self) -> None:
        """Starts the actions in shared memory."""
        self._word[0] = _STEP
        self._begun.give()

    def reset(self, seeds: Sequence[int | None], options: Any) -> None:
        """Starts an episode in each of its environments."""
        self._word[0] = _RESET
        self._pipe.send((seeds, options))
        self._begun.give()

    def outcome(self) -> dict[int, dict[str, float]]:
        """Waits until it is done; metrics of the episodes that ended, by number within its share.

        Raises:
            BackendError: The process has died.
        """
        while not self._done.taken():
            if not self._process.is_alive():
                raise BackendError(f"a process with environments died with status {self._process.exitcode}")
        if not self._word[1]:
            return {}
        told = self._pipe.recv()
        if isinstance(told, BaseException):
            raise told
        ended: dict[int, dict[str, float]] = told
        return ended

    def close(self) -> None:
        """Ends the process."""
        self._word[0] = _CLOSE
        self._begun.give()
        self._process.join(timeout=_ALIVE_INTERVAL)
        if self._process.is_alive():
            self._process.terminate()


def _serve(
    settings: Any,
    buffers: Any,
    layout: Any,
    first: int,
    last: int,
    begun: _Signal,
    done: _Signal,
    pipe: Connection,
    word: Any,
) -> None:
    """Main loop of a worker process: steps its environments on command while its parent lives."""
    share = _Share([SchedulingEnv(**settings) for _ in range(last - first)])
    views = _views(buffers, layout, first, last)
    actions = views.pop(_ACTION)
    parent = multiprocessing.parent_process()
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            while not begun.taken():
                if parent is None or not parent.is_alive():
                    return
            if word[0] == _CLOSE:
                return
            told: Any = None
            try:
                if word[0] == _STEP:
                    told = share.step(views, actions.tolist())
                else:
                    share.reset(views, *pipe.recv())
            except Exception as error:
                told = error
            word[1] = bool(told)
            if told:
                pipe.send(told)
            done.give()


def _layout(environment: SchedulingEnv, num_envs: int) -> dict[str, tuple[tuple[int, ...], Any]]:
    """Shape and type of every shared array."""
    space = environment.observation_space
    seen = space.spaces if isinstance(space, spaces.Dict) else {"": space}
    layout: dict[str, tuple[tuple[int, ...], Any]] = {
        _SEEN + name: ((num_envs, *(one.shape or ())), one.dtype) for name, one in seen.items()
    }
    layout[_MASK] = ((num_envs, environment.n_actions), np.bool_)
    layout[_ACTION] = ((num_envs,), np.int64)
    layout["reward"] = ((num_envs,), np.float64)
    for name in ("terminated", "truncated", "invalid_action"):
        layout[name] = ((num_envs,), np.bool_)
    return layout


def _views(buffers: Any, layout: dict[str, tuple[tuple[int, ...], Any]], first: int, last: int) -> Views:
    """The arrays in shared memory, of some of the environments."""
    return {
        name: np.frombuffer(buffers[name], kind).reshape(shape)[first:last] for name, (shape, kind) in layout.items()
    }
