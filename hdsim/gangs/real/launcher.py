"""Launchers: they start and end the processes of tasks and apply CPU shares."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from hdsim.gangs.stressors import Stressors
from hdsim.util.plugins import PluginType


@dataclass(frozen=True)
class Timeouts:
    """Time-outs of a real run in seconds."""

    session: float = 4.0  # time without contact after which ZooKeeper takes a process for dead
    connection: float = 60.0  # time for which ZooKeeper may be unreachable
    superstep: float = 900.0  # time without an event after which an attempt of a superstep counts as failed


@dataclass(frozen=True)
class Site:
    """Settings that the processes of a gang share."""

    zookeeper: str  # ``host:port``
    root: str  # path of the gang in ZooKeeper
    folder: Path  # folder for files of processes
    stressors: Stressors  # commands of the tasks
    timeouts: Timeouts  # time-outs
    wake: Callable[[], None]  # to be called when a process has ended

    def arguments(self, task: str, member: str, folder: str) -> list[str]:
        """Returns the arguments of ``python`` for the process of a task."""
        stressors, timeouts = self.stressors, self.timeouts
        options = {
            "zookeeper": self.zookeeper,
            "root": self.root,
            "task": task,
            "member": member,
            "folder": folder,
            "operations": stressors.scale * stressors.operations[task],
            "instances": stressors.instances,
            "session-timeout": timeouts.session,
            "connection-timeout": timeouts.connection,
            "superstep-timeout": timeouts.superstep,
        }
        return ["-m", "hdsim.gangs.real.task", *(f"--{name}={value}" for name, value in options.items())]


class Launcher(ABC):
    """Base class of launchers. The settings of the group ``runner`` are keyword arguments of the constructor."""

    #: Whether shares change while a process runs; otherwise it is ended and another one started.
    in_place: bool = True
    site: Site  # settings that the processes share; set before the first one starts

    def __enter__(self) -> Self:
        return self

    @abstractmethod
    def __exit__(self, *_: object) -> None:
        """Ends all processes."""

    @abstractmethod
    def check(self, stressors: Stressors, tasks: Sequence[str], least: int, zookeeper: str | None) -> None:
        """Checks before a run that it can be made, with the smallest share of a task in millicores.

        Without ``host:port`` of ZooKeeper a server is started for the run.

        Raises:
            HdsimError: A program, a permission or a setting is missing.
        """

    @abstractmethod
    def start(self, task: str, member: str, millicores: int) -> None:
        """Starts a process, named as the member of the gang, for a task."""

    def limit(self, member: str, millicores: int) -> None:
        """Sets the CPU shares of a process that has a session with ZooKeeper; called if `in_place`."""
        raise NotImplementedError

    @abstractmethod
    def fault(self, member: str, patience: float = 0.0) -> str | None:
        """Returns how a process has ended; None while it runs or where that is unknown.

        A process that has closed its connections is expected to end within `patience` seconds.
        """

    @abstractmethod
    def stop(self, members: Sequence[str]) -> None:
        """Ends processes; returns when they have ended."""

    @abstractmethod
    def facts(self) -> Mapping[str, Any]:
        """Returns entries of the manifest: how shares were applied."""


_KIND = PluginType("runner", Launcher, "hdsim.gangs.real.launcher.Launcher")


def make_launcher(spec: Mapping[str, Any]) -> Launcher:
    """Makes a launcher from ``_target_`` or ``path`` and its settings.

    Raises:
        ConfigError: The launcher cannot be found or does not take the settings.
    """
    return _KIND.make(spec)
