"""Many environments on several cores: shared memory instead of messages, several environments a process.

A step of an environment takes some ten microseconds, which is less than it costs to send its outcome through a pipe, as
Gymnasium's ``AsyncVectorEnv`` does for each. Here every process steps a share of the environments, the calling process
one of the shares, and all outcomes are written where the caller reads them.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from hdsim.decisions.parts import whole
from hdsim.envs.scheduling import SchedulingEnv
from hdsim.errors import BackendError

#: How often a process looks for news before it goes to sleep; waking up costs as much as a few steps.
_LOOKS = 400
#: s between two looks whether the processes are still alive.
_ALIVE_INTERVAL = 5.0
_STEP, _RESET, _CLOSE = range(3)

Views = dict[str, NDArray[Any]]


class SchedulingVectorEnv(VectorEnv[Any, Any, Any]):
    """Several :class:`hdsim.envs.scheduling.SchedulingEnv` in autoreset mode NEXT_STEP.

    ``info`` has ``action_mask`` (E, A) and ``invalid_action`` (E,); when episodes have ended also ``metrics``, an array
    (E,) of each, and ``_metrics`` (E,): whose they are. Environment i has the seed ``seed + i``.

    Args:
        num_envs: E.
        workers: Processes that step them, this one among them; None = as many as there are cores, at most E.
        context: How processes are started (see :mod:`multiprocessing`), None = the system's way.
        **settings: See :class:`hdsim.envs.scheduling.SchedulingEnv`.

    Raises:
        ConfigError: As there.
    """

    metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012

    def __init__(
        self, num_envs: int = 1, workers: int | None = None, context: str | None = None, **settings: Any
    ) -> None:
        self.num_envs = whole("num_envs", num_envs)
        workers = min(whole("workers", workers or len(os.sched_getaffinity(0))), num_envs)
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
        views = _views(buffers, layout, 0, num_envs)
        self._views = views
        environments += [SchedulingEnv(**settings) for _ in range(bounds[1] - 1)]
        self._share = _Share(environments, _part(views, 0, bounds[1]))
        self._others = [
            _Process(start, settings, buffers, layout, begin, end) for begin, end in itertools.pairwise(bounds[1:])
        ]

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begins an episode in every environment; see :meth:`SchedulingEnv.reset` for `options`."""
        if seed is None or isinstance(seed, int):
            seed = [None if seed is None else seed + i for i in range(self.num_envs)]
        self._together(_RESET, list(seed), options)
        return self._seen(), {"action_mask": self._views["action_mask"].copy()}

    def step(
        self, actions: Any
    ) -> tuple[Any, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Carries out an action in every environment, or begins the next episode where the last one is over."""
        views = self._views
        views["action"][:] = actions
        ended = self._together(_STEP, None, None)
        info: dict[str, Any] = {name: views[name].copy() for name in ("action_mask", "invalid_action")}
        if ended:
            info["metrics"] = {name: np.zeros(self.num_envs) for name in next(iter(ended.values()))}
            info["_metrics"] = np.zeros(self.num_envs, bool)
            for i, metrics in ended.items():
                info["_metrics"][i] = True
                for name, value in metrics.items():
                    info["metrics"][name][i] = value
        reward, terminated, truncated = (views[name].copy() for name in ("reward", "terminated", "truncated"))
        return self._seen(), reward, terminated, truncated, info

    def action_masks(self) -> NDArray[np.bool_]:
        """(E, A) which actions the masks allow now."""
        return self._views["action_mask"].copy()

    def close_extras(self, **kwargs: Any) -> None:
        """Ends the processes."""
        for process in self._others:
            process.close()

    def _seen(self) -> Any:
        seen = {name[4:]: view.copy() for name, view in self._views.items() if name.startswith("obs:")}
        return seen if isinstance(self.single_observation_space, spaces.Dict) else seen[""]

    def _together(self, verb: int, seeds: list[int | None] | None, options: Any) -> dict[int, dict[str, float]]:
        """Has every process do something to its environments; returns metrics of the episodes that ended."""
        for process in self._others:
            process.begin(verb, seeds and seeds[process.first : process.last], options)
        ended = self._share.do(verb, seeds, options)
        for process in self._others:
            ended |= {process.first + i: metrics for i, metrics in process.outcome().items()}
        return ended


class _Share:
    """Environments stepped one after the other, with their parts of the arrays."""

    def __init__(self, environments: list[SchedulingEnv], views: Views) -> None:
        self._environments = environments
        self._views = views
        self._seen = {name[4:]: view for name, view in views.items() if name.startswith("obs:")}
        self._over = [False] * len(environments)

    def do(self, verb: int, seeds: list[int | None] | None, options: Any) -> dict[int, dict[str, float]]:
        if verb == _RESET:
            assert seeds is not None
            for i, environment in enumerate(self._environments):
                self._begin(i, *environment.reset(seed=seeds[i], options=options))
            return {}
        return self._step()

    def _step(self) -> dict[int, dict[str, float]]:
        views, over = self._views, self._over
        ended: dict[int, dict[str, float]] = {}
        for i, (environment, action) in enumerate(zip(self._environments, views["action"].tolist(), strict=True)):
            if over[i]:
                self._begin(i, *environment.reset())
                continue
            seen, views["reward"][i], terminated, truncated, info = environment.step(action)
            over[i] = terminated or truncated
            views["terminated"][i], views["truncated"][i] = terminated, truncated
            views["invalid_action"][i] = info["invalid_action"]
            views["action_mask"][i] = info["action_mask"]
            if over[i]:
                ended[i] = info["metrics"]
            self._write(i, seen)
        return ended

    def _begin(self, i: int, seen: Any, info: dict[str, Any]) -> None:
        views = self._views
        self._over[i] = False
        views["reward"][i] = 0.0
        views["terminated"][i] = views["truncated"][i] = views["invalid_action"][i] = False
        views["action_mask"][i] = info["action_mask"]
        self._write(i, seen)

    def _write(self, i: int, seen: Any) -> None:
        if isinstance(seen, dict):
            for name, array in seen.items():
                self._seen[name][i] = array
        else:
            self._seen[""][i] = seen


class _Process:
    """A process with a share of the environments, numbers `first` to `last` - 1."""

    def __init__(self, start: Any, settings: Any, buffers: Any, layout: Any, first: int, last: int) -> None:
        self.first, self.last = first, last
        self._begun, self._done = start.Semaphore(0), start.Semaphore(0)
        self._pipe, other = start.Pipe()
        #: What to do, and whether the outcome is to be read from the pipe.
        self._word = start.RawArray("b", 2)
        arguments = (settings, buffers, layout, first, last, self._begun, self._done, other, self._word)
        self._process = start.Process(target=_serve, args=arguments, daemon=True)
        self._process.start()
        other.close()

    def begin(self, verb: int, seeds: list[int | None] | None, options: Any) -> None:
        """Tells the process what to do."""
        self._word[0] = verb
        if verb == _RESET:
            self._pipe.send((seeds, options))
        self._begun.release()

    def outcome(self) -> dict[int, dict[str, float]]:
        """Waits until it is done; metrics of the episodes that ended, by number within its share.

        Raises:
            BackendError: The process has died.
        """
        if not _taken(self._done):
            while not self._done.acquire(timeout=_ALIVE_INTERVAL):
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
        self._begun.release()
        self._process.join(timeout=_ALIVE_INTERVAL)
        if self._process.is_alive():
            self._process.terminate()


def _serve(
    settings: Any,
    buffers: Any,
    layout: Any,
    first: int,
    last: int,
    begun: Any,
    done: Any,
    pipe: Connection,
    word: Any,
) -> None:
    """What a process does: steps its environments whenever it is told to."""
    share = _Share([SchedulingEnv(**settings) for _ in range(last - first)], _views(buffers, layout, first, last))
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            if not _taken(begun):
                begun.acquire()
            if word[0] == _CLOSE:
                return
            told: Any
            arguments: tuple[Any, Any] = pipe.recv() if word[0] == _RESET else (None, None)
            try:
                told = share.do(word[0], *arguments)
            except Exception as error:
                told = error
            word[1] = bool(told)
            if told:
                pipe.send(told)
            done.release()


def _taken(semaphore: Any) -> bool:
    """Tries to take a semaphore for some microseconds."""
    return any(semaphore.acquire(False) for _ in range(_LOOKS))


def _layout(environment: SchedulingEnv, num_envs: int) -> dict[str, tuple[tuple[int, ...], Any]]:
    """Shape and type of every shared array."""
    space = environment.observation_space
    seen = space.spaces if isinstance(space, spaces.Dict) else {"": space}
    layout: dict[str, tuple[tuple[int, ...], Any]] = {
        f"obs:{name}": ((num_envs, *(one.shape or ())), one.dtype) for name, one in seen.items()
    }
    layout["action_mask"] = ((num_envs, environment.n_actions), np.bool_)
    layout["action"] = ((num_envs,), np.int64)
    layout["reward"] = ((num_envs,), np.float64)
    for name in ("terminated", "truncated", "invalid_action"):
        layout[name] = ((num_envs,), np.bool_)
    return layout


def _views(buffers: Any, layout: dict[str, tuple[tuple[int, ...], Any]], first: int, last: int) -> Views:
    """The arrays in shared memory, of some of the environments."""
    whole_arrays = {name: np.frombuffer(buffers[name], kind).reshape(shape) for name, (shape, kind) in layout.items()}
    return _part(whole_arrays, first, last)


def _part(views: Views, first: int, last: int) -> Views:
    return {name: view[first:last] for name, view in views.items()}
