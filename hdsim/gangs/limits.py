"""CPU limits of running processes in millicores: quotas of cgroups, or whole cores by CPU affinity."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from hdsim.errors import ConfigError, nearest

METHODS = ("auto", "cgroup", "affinity")

#: Period of a quota in microseconds. With 100 ms, as of Kubernetes, a task of 1 s would be rounded by up to 10 %.
_PERIOD = 20_000
#: The smallest quota of the kernel in microseconds.
_SMALLEST_QUOTA = 1_000
_PREFIX = "hdsim-"


class CpuLimits(ABC):
    """CPU limits of process trees, each with a name, which can be changed while the processes run.

    A process that is started under a name and all its descendants together get at most the CPU share of that name. At
    the end of the context they are killed; the first one of a tree is killed also when the thread that started it ends.
    """

    method: str  # the method in words, for messages and manifests
    step: int  # shares are multiples of it, in millicores
    least: int  # the smallest share in millicores

    def __init__(self) -> None:
        self._started: dict[str, list[subprocess.Popen[Any]]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for name in tuple(self._started):
            self.stop(name)

    def check(self, shares: Iterable[int], where: str = "shares") -> None:
        """Checks that shares in millicores can be applied; `where` is their configuration key.

        Raises:
            ConfigError: A share is too small or no multiple of the step.
        """
        for share in shares:
            if share < self.least or share % self.step:
                raise ConfigError(
                    f"expected at least {self.least} millicores"
                    + (f" in steps of {self.step}" if self.step > 1 else "")
                    + f" with {self.method}, got {share}",
                    where=where,
                )

    def change(self, shares: Mapping[str, int]) -> None:
        """Sets the CPU shares of some names in millicores, also of running processes; other names keep theirs.

        Raises:
            ConfigError: A share is too small or no multiple of the step, or there are not enough cores.
            OSError: The kernel refuses it.
        """
        self.check(shares.values())
        self._apply(shares)
        for name in shares:
            self._started.setdefault(name, [])

    def start(self, name: str, command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Starts a process under a name that has a share.

        The process leads a session of its own, so that the Ctrl-C of a terminal does not reach it. The options are
        those of `subprocess.Popen`.
        """
        # The signal alone would miss an end of this process before setpriv has asked for it.
        script = f'[ $PPID = {os.getpid()} ] && {self._join(name)} && exec "$@"'
        line = ["setpriv", "--pdeathsig", "KILL", "sh", "-c", script, "sh", *command]
        process: subprocess.Popen[Any] = subprocess.Popen(line, start_new_session=True, **options)
        self._started[name].append(process)
        return process

    def stop(self, name: str) -> None:
        """Kills the processes of a name, waits for their end and removes its limit."""
        # A process may be forked between two listings.
        while pids := [*self._processes(name)]:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            for process in self._started[name]:
                process.poll()
            time.sleep(0.002)
        for process in self._started.pop(name):
            process.wait()
        self._remove(name)

    @abstractmethod
    def _apply(self, shares: Mapping[str, int]) -> None: ...

    @abstractmethod
    def _join(self, name: str) -> str:
        """Returns a shell command that puts the shell under the limit of a name."""

    @abstractmethod
    def _processes(self, name: str) -> Iterator[int]:
        """Yields the process ids of a name."""

    @abstractmethod
    def _remove(self, name: str) -> None:
        """Removes a limit that has no processes."""


class CgroupLimits(CpuLimits):
    """Quotas of CPU time: a cgroup for each name, in a parent of a hierarchy of version 1 or 2."""

    step = 1
    least = 1000 * _SMALLEST_QUOTA // _PERIOD

    def __init__(self, parent: Path, version: int) -> None:
        super().__init__()
        self.method = f"cgroup v{version}"
        self._parent, self._version = parent, version
        self._groups: dict[str, Path] = {}
        if version == 2 and "cpu" not in (parent / "cgroup.subtree_control").read_text().split():
            (parent / "cgroup.subtree_control").write_text("+cpu")
        for group in parent.glob(f"{_PREFIX}*"):  # A killed process leaves its cgroups.
            if not Path("/proc", group.name.split("-")[1]).exists():
                with contextlib.suppress(OSError):
                    group.rmdir()

    def _apply(self, shares: Mapping[str, int]) -> None:
        for name, share in shares.items():
            if name not in self._groups:
                made = tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-{name}-", dir=self._parent)
                self._groups[name] = Path(made)
                # Within its limit a process is served before the other load of the machine.
                file, weight = ("cpu.weight", 10_000) if self._version == 2 else ("cpu.shares", 262_144)
                (self._groups[name] / file).write_text(str(weight))
            group, quota = self._groups[name], share * _PERIOD // 1000
            if self._version == 2:
                (group / "cpu.max").write_text(f"{quota} {_PERIOD}")
            else:
                (group / "cpu.cfs_period_us").write_text(str(_PERIOD))
                (group / "cpu.cfs_quota_us").write_text(str(quota))

    def _join(self, name: str) -> str:
        return f"echo $$ > {shlex.quote(str(self._groups[name] / 'cgroup.procs'))}"

    def _processes(self, name: str) -> Iterator[int]:
        yield from map(int, (self._groups[name] / "cgroup.procs").read_text().split())

    def _remove(self, name: str) -> None:
        self._groups.pop(name).rmdir()


class AffinityLimits(CpuLimits):
    """Whole cores: the processes of a name run on cores that no other name has.

    It does not hold a program that sets its own CPU affinity, nor one that starts a session of its own.
    """

    method = "CPU affinity"
    step = least = 1000

    def __init__(self) -> None:
        super().__init__()
        self._cores = os.sched_getaffinity(0)
        self._of: dict[str, set[int]] = {}

    def _apply(self, shares: Mapping[str, int]) -> None:
        counts = {name: len(cores) for name, cores in self._of.items()}
        counts |= {name: share // 1000 for name, share in shares.items()}
        if sum(counts.values()) > len(self._cores):
            raise ConfigError(
                f"expected at most {1000 * len(self._cores)} millicores together with {self.method}, "
                f"got {1000 * sum(counts.values())}",
                where="shares",
            )
        kept = {name: set(sorted(self._of.get(name, ()))[:count]) for name, count in counts.items()}
        free = sorted(self._cores.difference(*kept.values()))
        for name, count in counts.items():
            while len(kept[name]) < count:
                kept[name].add(free.pop(0))
        changed, self._of = [name for name in kept if kept[name] != self._of.get(name)], kept
        for name in changed:
            done: set[int] = set()
            # A thread that appears during the walk may have the cores of before.
            while threads := set(self._threads(name)) - done:
                for thread in threads:
                    with contextlib.suppress(ProcessLookupError):
                        os.sched_setaffinity(thread, kept[name])
                done |= threads

    def _join(self, name: str) -> str:
        return f"taskset --cpu-list --pid {','.join(map(str, sorted(self._of[name])))} $$ > /dev/null"

    def _threads(self, name: str) -> Iterator[int]:
        for process in self._processes(name):
            with contextlib.suppress(OSError):
                yield from (int(thread.name) for thread in Path(f"/proc/{process}/task").iterdir())

    def _processes(self, name: str) -> Iterator[int]:
        sessions = {process.pid for process in self._started.get(name, ())}
        for path in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                state, _, _, session = path.read_text().rpartition(")")[2].split()[:4]
                if int(session) in sessions and state != "Z":
                    yield int(path.parent.name)

    def _remove(self, name: str) -> None:
        del self._of[name]


def cpu_limits(method: str = "auto") -> CpuLimits:
    """Returns the limits of a method that works here, as a trial shows.

    Methods are ``cgroup`` (quotas of cgroups, v2, else v1), ``affinity`` (whole cores) and ``auto`` (the first of them
    that is permitted).

    Raises:
        ConfigError: The method is unknown or not permitted here.
    """
    if method not in METHODS:
        message = f"expected {', '.join(METHODS)}, got '{method}'{nearest(method, METHODS)}"
        if method == "kubernetes":
            message += "; limits of Kubernetes hold pods of a kubelet, not processes of this machine"
        raise ConfigError(message, where="limits")
    refusal = "no hierarchy of cgroups has a CPU controller"
    if method != "affinity":
        for parent, version in _cgroups():
            try:
                limits = CgroupLimits(parent, version)
                with limits:
                    limits.change({"trial": 1000})
                    status = limits.start("trial", ["true"], stderr=subprocess.DEVNULL).wait()
            except OSError as error:
                refusal = f"{parent}: {error.strerror}"
                continue
            if status == 0:
                return limits
            refusal = f"{parent} takes no process"
    if method == "cgroup":
        raise ConfigError(f"expected permission to make cgroups with CPU quotas, got none ({refusal})", where="limits")
    return AffinityLimits()


def _cgroups() -> Iterator[tuple[Path, int]]:
    """Yields cgroups of hierarchies with a CPU controller and their version: v2 first, this process's own first."""
    own: dict[str, str] = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        own |= dict.fromkeys(controllers.split(","), path.lstrip("/"))
    mounts = [line.partition(" - ") for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for version, kind in ((2, "cgroup2"), (1, "cgroup")):
        for mount, _, source in mounts:
            form, _, options = source.split(" ", 2)
            top = Path(mount.split()[4])
            if form != kind or (version == 1 and "cpu" not in options.split(",")):
                continue
            if version == 2 and "cpu" not in (top / "cgroup.controllers").read_text().split():
                continue
            # In a container the path may lie outside of what is mounted.
            group = top / own.get("cpu" if version == 1 else "", "")
            for place in (group, *group.parents):
                if place.is_dir() and place.is_relative_to(top):
                    yield place, version
