"""Environments that actors of Ray step, on one machine or several."""

from __future__ import annotations

import contextlib
import itertools
import logging
import platform
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hdsim.envs.batch import Batch, covers
from hdsim.envs.scheduling import SchedulingEnv
from hdsim.envs.shares import LocalShare, RemoteShare, Share, Views, layout_of
from hdsim.envs.vector import SAME_STEP, ShareVectorEnv
from hdsim.errors import BackendError, ConfigError
from hdsim.util.arrays import Ints
from hdsim.util.ray_cluster import connect, nodes_alive
from hdsim.util.version import __version__

#: Actors that a worker may lose in one command.
_LOSSES = 5
log = logging.getLogger(__name__)


class RayVectorEnv(ShareVectorEnv):
    """Several :class:`hdsim.envs.scheduling.SchedulingEnv` in autoreset mode SAME_STEP; see :class:`ShareVectorEnv`.

    Each worker steps environments that follow each other; the outcome is in the order of environments, so it does not
    depend on the number of workers. The episode of an environment follows from its generator's state and the actions
    since, which this process records: a worker that is lost is replaced by one that repeats them.

    Args:
        num_envs: E.
        workers: Actors; None for one per processor of the cluster, at most E.
        address: See :func:`hdsim.util.ray_cluster.connect`.
        timeout: Seconds until a worker without an answer is an error.
        **settings: See :class:`hdsim.envs.scheduling.SchedulingEnv`.

    Raises:
        ConfigError: Ray is not installed, or there are more workers than environments.
        BackendError: The cluster cannot be reached, or has no node with processors.
    """

    def __init__(
        self,
        num_envs: int,
        workers: int | None = None,
        address: str | None = None,
        timeout: float = 300.0,
        **settings: Any,
    ) -> None:
        if workers is not None and workers > num_envs:
            raise ConfigError(f"expected at most {num_envs} (agent.num_envs), got {workers}", where="train.workers")
        first = SchedulingEnv(**settings)
        settings |= first.inputs
        self._connected = connect(address, workers or num_envs, "train.ray_address")
        self._workers: list[_RayActor] = []
        try:
            import ray

            if workers is None:
                workers = max(1, min(num_envs, int(ray.cluster_resources().get("CPU", 1))))
            bounds = np.linspace(0, num_envs, workers + 1).astype(int).tolist()
            kept, nodes = ray.put(settings), _RayNodes()
            for begin, end in itertools.pairwise(bounds):
                self._workers.append(_RayActor(kept, begin, end, timeout, nodes))
            super().__init__(first, num_envs, LocalShare((), same_step=True), self._workers, SAME_STEP)
        except BaseException:
            for worker in self._workers:
                worker.close()
            self._disconnect()
            raise

    def state(self) -> list[Mapping[str, Any]]:
        return [begun for worker in self._workers for begun in worker.begun]

    def close_extras(self, **kwargs: Any) -> None:
        """Ends the actors, and the cluster if it was started for them."""
        super().close_extras(**kwargs)
        self._disconnect()

    def _disconnect(self) -> None:
        if self._connected:
            import ray

            self._connected = False
            ray.shutdown()


class _RayNodes:
    """The nodes of the cluster, and how many actors each has."""

    def __init__(self) -> None:
        self._actors = Counter[str]()
        self._lost: set[str] = set()

    def take(self) -> str:
        """The node of the next actor: the one with most processors for each, if none of its actors has been lost.

        Raises:
            BackendError: There is no node with processors.
        """
        load = {node: (self._actors[node] + 1) / cpus for node, cpus in nodes_alive().items()}
        # A lost node counts as alive for some seconds.
        chosen = min(load, key=lambda node: (node in self._lost, load[node]))
        self._actors[chosen] += 1
        return chosen

    def lose(self, node: str) -> None:
        """An actor of a node is lost; further ones start on other nodes if there are any."""
        self._actors[node] -= 1
        self._lost.add(node)


class _RayActor(RemoteShare):
    """An actor, and the record that restores it; one that is lost is replaced.

    Attributes:
        begun: State of each environment before its present episode.
    """

    def __init__(self, settings: Any, first: int, last: int, timeout: float, nodes: _RayNodes) -> None:
        super().__init__(first, last)
        self.begun: list[Mapping[str, Any]] = []
        self._taken: list[list[int]] = []
        self._settings, self._timeout, self._nodes = settings, timeout, nodes
        self._start()

    def step(self, actions: Ints) -> None:
        self.call("step", actions[self.first : self.last])

    def call(self, method: str, *arguments: Any) -> None:
        self._command = (method, *arguments)
        self._deadline = time.monotonic() + self._timeout
        self._pending = self._actor.run.remote(None, *self._command)

    def outcome(self) -> Any:
        from ray.exceptions import RayActorError, RayError, RayTaskError

        for losses in itertools.count(1):
            try:
                told, begun, self.results = self._answer()
                break
            except RayTaskError as error:
                raise error.cause from None
            except RayError as error:
                reason = str(error).strip().splitlines()[-1].partition(". ")[0].strip()
                message = f"{self._name()} was lost in {self._doing()}: {reason}"
                if losses == _LOSSES or (isinstance(error, RayActorError) and error.actor_init_failed):
                    raise BackendError(f"{message}; {losses} actors were lost in turn") from None
                log.warning("%s; another one repeats its episodes", message)
            # The cluster needs time to notice that a node is lost.
            time.sleep(losses - 1)
            self.close()
            self._nodes.lose(self._node)
            self._start()
            self._deadline = time.monotonic() + self._timeout
            self._pending = self._actor.run.remote(self._state(), *self._command)
        self._record(begun)
        return told

    def close(self) -> None:
        import ray

        with contextlib.suppress(Exception):
            ray.kill(self._actor)

    def _start(self) -> None:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        self._node = self._nodes.take()
        there = NodeAffinitySchedulingStrategy(self._node, soft=True)
        # Ray sends the request of an actor without resources to a random node, which may be the lost one.
        made: Any = ray.remote(_Actor).options(num_cpus=0.001, scheduling_strategy=there)
        self._actor = made.remote(self._settings, len(self), __version__)

    def _answer(self) -> Any:
        import ray

        ready, _ = ray.wait([self._pending], timeout=max(0.0, self._deadline - time.monotonic()))
        if not ready:
            raise BackendError(
                f"{self._name()} gave no answer in {self._timeout:g} s (train.ray_timeout) to {self._doing()}"
            )
        return ray.get(self._pending)

    def _state(self) -> list[Mapping[str, Any]]:
        """State of the environments before the present command."""
        return [
            {**begun, "actions": np.array(taken, np.int64)}
            for begun, taken in zip(self.begun, self._taken, strict=True)
        ]

    def _record(self, begun: Mapping[int, Mapping[str, Any]]) -> None:
        """Adds the present command to the record."""
        method, each, *_ = self._command
        if method == "step":
            for taken, action in zip(self._taken, each.tolist(), strict=True):
                taken.append(action)
        else:
            self.begun = [{}] * len(self)
            self._taken = [kept["actions"].tolist() if method == "load_state" else [] for kept in each]
        for i, state in begun.items():
            self.begun[i] = state
            if method == "step":
                self._taken[i] = []

    def _name(self) -> str:
        return f"the worker with environments {self.first} to {self.last - 1}"

    def _doing(self) -> str:
        return "an action in each" if self._command[0] == "step" else "the start of their episodes"


class _Actor:
    """Steps environments in a process of Ray."""

    def __init__(self, settings: Mapping[str, Any], count: int, version: str) -> None:
        self._settings, self._count, self._version = settings, count, version
        self._share: Share | None = None

    def run(self, state: Sequence[Mapping[str, Any]] | None, method: str, *arguments: Any) -> tuple[Any, Any, Views]:
        """Calls a method of the share, after it has been restored if there is a state.

        Returns:
            What the method does, the states before the episodes that have begun, and the arrays of the outcome.

        Raises:
            BackendError: The node has another version of hdsim.
        """
        if self._share is None:
            self._share = self._make()
        views: Views = {name: np.empty(*form) for name, form in self._layout.items()}
        if state:
            self._share.load_state(views, state)
        told = getattr(self._share, method)(views, *arguments)
        before = self._share.state()
        begun = {i: before[i] for i in (told if method == "step" else range(self._count))}
        return told or {}, begun, views

    def _make(self) -> Share:
        if self._version != __version__:
            raise BackendError(
                f"expected hdsim {self._version}, which trains, on every node of the Ray cluster; "
                f"{platform.node()} has {__version__}"
            )
        first = SchedulingEnv(**self._settings)
        self._layout = layout_of(first, self._count)
        if covers(first):
            return Batch(first, self._count, 1, same_step=True)
        others = [SchedulingEnv(**self._settings) for _ in range(1, self._count)]
        return LocalShare([first, *others], same_step=True)
