"""Environments on several cores: compiled batches, or processes that share memory.

Environments of :func:`hdsim.envs.batch.covers` are rows of arrays, which threads step. Of others, every process, the
calling one included, steps a share: a step of an environment takes some ten microseconds, less than sending its outcome
through a pipe, as Gymnasium's ``AsyncVectorEnv`` does for each environment.
The share of the calling process is written into the returned arrays, the others into shared memory first.

Waking a sleeping process takes longer than such a step too. A waiting process therefore polls for some milliseconds,
and sleeps at once only where the last wait took longer, as during the training of a network.
"""

from __future__ import annotations

import atexit
import itertools
import logging
import multiprocessing
import os
import signal
import time
import weakref
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from numbers import Integral
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from hdsim.decisions.base import positive_int
from hdsim.envs.batch import Batch, covers, has_ranges
from hdsim.envs.scheduling import SchedulingEnv
from hdsim.envs.shares import MASK, SEEN, Ended, LocalShare, RemoteShare, Share, Views, action_numbers
from hdsim.errors import BackendError, ConfigError, DecisionError
from hdsim.util.arrays import Flags, Floats, Ints

log = logging.getLogger(__name__)

#: Seconds of polling before a process sleeps, and polls until it yields the core.
_PATIENCE = 0.003
_LOOKS = 100
#: Seconds between two checks that the processes are alive.
_ALIVE_INTERVAL = 5.0
#: Environments of a batch for each thread: waking a thread takes as long as stepping a hundred of them, on nodes four.
_PER_THREAD, _PER_THREAD_ON_NODES = 256, 8
_STEP, _CALL, _CLOSE = range(3)
_ACTION = "action"
#: The autoreset mode of trainings.
SAME_STEP = AutoresetMode.SAME_STEP


def make_vec(num_envs: int, **settings: Any) -> SchedulingVectorEnv:
    """Makes environments that are stepped together; see :class:`SchedulingVectorEnv`."""
    return SchedulingVectorEnv(num_envs, **settings)


class ShareVectorEnv(VectorEnv[Any, Any, Any]):
    """Equal environments, of which this process and others step a share each.

    ``info`` has ``action_mask`` (E, A) and ``invalid_action`` (E,); after the end of episodes also ``metrics``, an
    array (E,) of each, and ``_metrics`` (E,): the environments they belong to. In autoreset mode SAME_STEP it then also
    has ``final_obs``, an array (E,) of their last observations or None, and ``final_info`` with the last
    ``action_mask`` (E, A).

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
        metrics = {name: np.zeros(self.num_envs) for name in ended[rows[0]].metrics}
        info: dict[str, Any] = {"metrics": metrics, "_metrics": np.isin(np.arange(self.num_envs), rows)}
        for i, outcome in ended.items():
            for name, value in outcome.metrics.items():
                metrics[name][i] = value
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
        if own := first.own_kinds():
            log.warning("the engine steps these environments: compiled ones know no %s", " ".join(own))
        bounds = np.linspace(0, num_envs, workers + 1).astype(int).tolist()
        layout = layout_of(first, num_envs) | {_ACTION: ((num_envs,), np.int64)}
        start = multiprocessing.get_context(context)
        buffers = {
            name: start.RawArray("b", int(np.prod(shape)) * np.dtype(kind).itemsize)
            for name, (shape, kind) in layout.items()
        }
        share = LocalShare(_equal(first, bounds[1], settings), same_step)
        # Spawned processes read traces themselves: one that ends before it has read a long argument blocks this one.
        shared = settings if start.get_start_method() == "spawn" else settings | first.inputs
        others = [
            _Process(start, shared, same_step, buffers, layout, begin, end)
            for begin, end in itertools.pairwise(bounds[1:])
        ]
        super().__init__(first, num_envs, share, others, autoreset_mode)


def _equal(first: SchedulingEnv, count: int, settings: Mapping[str, Any]) -> list[SchedulingEnv]:
    """An environment and others of the same settings, which share its traces."""
    return [first, *(SchedulingEnv(**{**settings, **first.inputs}) for _ in range(count - 1))]


class _Signal:
    """A signal to a waiting process; the semaphore also makes earlier writes visible."""

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


class _Process(RemoteShare):
    """A worker process; the loss of the last reference ends it, too."""

    def __init__(
        self, start: Any, settings: Any, same_step: bool, buffers: Any, layout: Any, first: int, last: int
    ) -> None:
        super().__init__(first, last)
        self.results = _views(buffers, layout, first, last)
        self._actions = self.results.pop(_ACTION)
        self._begun, self._done = _Signal(start), _Signal(start)
        self._pipe, other = start.Pipe()
        #: Command, and whether the outcome is read from the pipe.
        self._word = start.RawArray("b", 2)
        arguments = (settings, same_step, buffers, layout, first, last, self._begun, self._done, other, self._word)
        self._process = start.Process(target=_serve, args=arguments, daemon=True)
        self._process.start()
        other.close()
        self._end = weakref.finalize(self, _end, self._process, self._word, self._begun)
        # Without it multiprocessing would wait at exit for a process that ignores SIGTERM.
        atexit.register(self._end)

    def step(self, actions: Ints) -> None:
        self._actions[:] = actions[self.first : self.last]
        self._word[0] = _STEP
        self._begun.give()

    def call(self, method: str, *arguments: Any) -> None:
        self._word[0] = _CALL
        self._pipe.send((method, arguments))
        self._begun.give()

    def outcome(self) -> Any:
        while not self._done.taken():
            if not self._process.is_alive():
                raise BackendError(f"a process with environments died with status {self._process.exitcode}")
        if not self._word[1]:
            return {}
        told = self._pipe.recv()
        if isinstance(told, BaseException):
            raise told
        return told

    def close(self) -> None:
        atexit.unregister(self._end)
        self._end()


def _end(process: Any, word: Any, begun: _Signal) -> None:
    """Ends a worker process."""
    word[0] = _CLOSE
    begun.give()
    process.join(timeout=_ALIVE_INTERVAL)
    if process.is_alive():
        process.kill()


def _serve(
    settings: Any,
    same_step: bool,
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
    share = LocalShare(_equal(SchedulingEnv(**settings), last - first, settings), same_step)
    views = _views(buffers, layout, first, last)
    actions = views.pop(_ACTION)
    parent = multiprocessing.parent_process()
    # An interruption of all processes is handled by the first, which ends the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        while not begun.taken():
            if parent is None or not parent.is_alive():
                return
        if word[0] == _CLOSE:
            return
        told: Any = None
        try:
            if word[0] == _STEP:
                told = share.step(views, actions)
            else:
                method, arguments = pipe.recv()
                told = share.state() if method == "state" else getattr(share, method)(views, *arguments)
        except Exception as error:
            told = error
        word[1] = bool(told)
        if told:
            pipe.send(told)
        done.give()


def layout_of(environment: Any, num_envs: int) -> dict[str, tuple[tuple[int, ...], Any]]:
    """Shape and type of every array of an outcome."""
    space = environment.observation_space
    seen = space.spaces if isinstance(space, spaces.Dict) else {"": space}
    layout: dict[str, tuple[tuple[int, ...], Any]] = {
        SEEN + name: ((num_envs, *(one.shape or ())), one.dtype) for name, one in seen.items()
    }
    layout[MASK] = ((num_envs, environment.action_space.n), np.bool_)
    layout["reward"] = ((num_envs,), np.float64)
    for name in ("terminated", "truncated", "invalid_action"):
        layout[name] = ((num_envs,), np.bool_)
    return layout


def _views(buffers: Any, layout: dict[str, tuple[tuple[int, ...], Any]], first: int, last: int) -> Views:
    """The arrays in shared memory, of some of the environments."""
    return {
        name: np.frombuffer(buffers[name], kind).reshape(shape)[first:last] for name, (shape, kind) in layout.items()
    }
