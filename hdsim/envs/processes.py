"""Environments that worker processes of Gymnasium step, a share each.

A step of an environment takes some ten microseconds, less than sending its outcome through a pipe. Each process of
``AsyncVectorEnv`` therefore steps a share of the environments as if they were one, whose observation in shared memory
is the outcome of all. Episodes begin within the share, so the vector resets nothing itself.
"""

from __future__ import annotations

import atexit
import itertools
import os
import signal
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from multiprocessing.connection import wait
from typing import Any

import numpy as np
from gymnasium import Env, spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode
from numpy.typing import NDArray

from hdsim.envs.scheduling import SchedulingEnv
from hdsim.envs.shares import LocalShare, RemoteShare, layout_of
from hdsim.errors import BackendError
from hdsim.util.arrays import Ints

#: Seconds until a process that has closed its pipe has ended.
_END = 5.0


def equal_environments(settings: Mapping[str, Any], first: SchedulingEnv, count: int) -> list[SchedulingEnv]:
    """Returns an environment and others of the same settings, which share its traces."""
    return [first, *(SchedulingEnv(**{**settings, **first.inputs}) for _ in range(count - 1))]


class Processes(RemoteShare):
    """Environments in worker processes; the loss of the last reference ends them, too.

    Args:
        environment: One of them.
        settings: Those of each; see :class:`hdsim.envs.scheduling.SchedulingEnv`.
        bounds: First environment of each process, then the end of the last one's.
        same_step: See :class:`hdsim.envs.shares.LocalShare`.
        context: Start method of processes (see :mod:`multiprocessing`), None for the system's default.
    """

    def __init__(
        self,
        environment: Any,
        settings: Mapping[str, Any],
        bounds: Sequence[int],
        same_step: bool,
        context: str | None,
    ) -> None:
        super().__init__(bounds[0], bounds[-1])
        self._shares = [slice(*ends) for ends in itertools.pairwise(np.subtract(bounds, self.first).tolist())]
        self._most = max(share.stop - share.start for share in self._shares)
        layout = layout_of(environment, self._most)
        self._row = np.dtype([(name, kind, shape[1:]) for name, (shape, kind) in layout.items()], align=True)
        make = partial(_ShareEnv, settings, same_step, self._row, int(environment.action_space.n), self._most)
        self._vector = AsyncVectorEnv(
            [partial(make, share, os.getpid()) for share in self._shares],
            copy=False,
            context=context,
            autoreset_mode=AutoresetMode.DISABLED,
        )
        self._wait: Callable[[], Any] = self._vector.reset_wait
        self._fault: BackendError | None = None
        self._end = weakref.finalize(self, _end, self._vector)
        # Without it multiprocessing would wait at exit for processes that ignore SIGTERM.
        atexit.register(self._end)

    def step(self, actions: Ints) -> None:
        rows = np.zeros((len(self._shares), self._most), np.int64)
        for row, share in zip(rows, self._shares, strict=True):
            row[: share.stop - share.start] = actions[self.first : self.last][share]
        self._wait = self._vector.step_wait
        self._unless_lost(self._vector.step_async, rows)

    def call(self, method: str, *arguments: Any) -> None:
        self._wait = self._vector.reset_wait
        self._unless_lost(self._vector.reset_async, options={"method": method, "arguments": arguments})

    def outcome(self) -> Any:
        answer = self._unless_lost(self._wait)
        if self._fault is not None:
            raise self._fault
        outcomes, info = answer[0], answer[-1]
        parts = [
            outcome.view(self._row)[: share.stop - share.start]
            for outcome, share in zip(outcomes, self._shares, strict=True)
        ]
        self.results = {name: np.concatenate([part[name] for part in parts]) for name in self._row.names or ()}
        told = [(share, one[0]) for share, one in zip(self._shares, info.get("told", ()), strict=False) if one]
        for _, one in told:
            if isinstance(one, Exception):
                raise one
        if told and isinstance(told[0][1], list):
            return list(itertools.chain.from_iterable(states for _, states in told))
        return {share.start + i: ended for share, one in told for i, ended in one.items()}

    def close(self) -> None:
        atexit.unregister(self._end)
        self._end()

    def _unless_lost(self, method: Callable[..., Any], *arguments: Any, **settings: Any) -> Any:
        """Calls a method of the vector; None once a process is lost."""
        if self._fault is None:
            try:
                return method(*arguments, **settings)
            except (EOFError, OSError):
                processes = {process.sentinel: process for process in self._vector.processes}
                died = [processes[ended] for ended in wait(list(processes), _END)]  # type: ignore[index]
                # Its sentinel may be ready a moment before its status is.
                died[0].join(_END)
                self._fault = BackendError(f"a process with environments died with status {died[0].exitcode}")
        return None


def _end(vector: AsyncVectorEnv) -> None:
    """Ends the processes, which may be at work."""
    vector.closed = True
    for process in vector.processes:
        process.kill()
    for process in vector.processes:
        process.join()


class _ShareEnv(Env[NDArray[np.uint8], Ints]):
    """A share of environments as one environment; its first reset makes them.

    Args:
        settings: Settings of each environment.
        same_step: See :class:`hdsim.envs.shares.LocalShare`.
        row: Record of the outcome of an environment.
        n_actions: Actions of an environment.
        most: Environments of the largest share.
        share: The environments among those of all processes.
        parent: Id of the process that the vector belongs to.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        same_step: bool,
        row: np.dtype[Any],
        n_actions: int,
        most: int,
        share: slice,
        parent: int,
    ) -> None:
        self.observation_space = spaces.Box(0, 255, (most * row.itemsize,), np.uint8)
        self.action_space = spaces.MultiDiscrete([n_actions] * most)
        self._settings, self._same_step, self._range = settings, same_step, share
        self._memory = np.zeros(most * row.itemsize, np.uint8)
        rows = self._memory.view(row)[: share.stop - share.start]
        self._views = {name: rows[name] for name in row.names or ()}
        self._share: LocalShare | None = None
        self._in_worker = os.getpid() != parent
        if self._in_worker:
            # An interruption of all processes is handled by the first, which ends the others.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        """Calls a method of the share."""
        command = options or {}
        return self._memory, self._told(lambda: self._call(command["method"], *command["arguments"]))

    def step(self, action: Ints) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        """Carries out an action in each environment."""
        share: Any = self._share
        told = self._told(lambda: share.step(self._views, action[: self._range.stop - self._range.start]))
        return self._memory, 0.0, False, False, told

    def close(self) -> None:
        """Ends the process: of a parent that is gone, Gymnasium's worker would print errors."""
        if self._in_worker:
            os._exit(0)

    def _call(self, method: str, *arguments: Any) -> Any:
        if self._share is None:
            count = self._range.stop - self._range.start
            environments = equal_environments(self._settings, SchedulingEnv(**self._settings), count)
            self._share = LocalShare(environments, self._same_step)
        if method == "state":
            return self._share.state()
        each, *more = arguments
        return getattr(self._share, method)(self._views, each[self._range], *more)

    @staticmethod
    def _told(call: Callable[[], Any]) -> dict[str, Any]:
        """Returns what a method returns or raises, nothing for nothing."""
        try:
            told = call()
        except Exception as error:
            told = error
        return {"told": (told,)} if told else {}
