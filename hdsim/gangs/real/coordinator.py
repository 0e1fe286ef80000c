"""The controller's side of a gang: processes that are alive, and attempts of supersteps until one is complete."""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from hdsim.errors import BackendError
from hdsim.gangs.real.journal import Journal
from hdsim.gangs.real.launcher import Launcher
from hdsim.gangs.real.session import Closed, DoubleBarrier, KazooSession, Queue
from hdsim.gangs.real.task import CONTROLLER

log = logging.getLogger(__name__)

#: Seconds in which processes that have closed their sessions are expected to end.
_DYING = 1.0


class _Fault(Exception):
    """An attempt of a superstep cannot be completed."""


class Coordinator:
    """Processes of the tasks, and their supersteps.

    A superstep is complete when all tasks have left the barrier of one attempt and the journal has it; only then the
    controller leaves as well and the tasks continue. Any fault before ends the attempt: its barrier is removed, dead
    processes are replaced and all tasks begin the superstep again.
    """

    def __init__(
        self, session: KazooSession, launcher: Launcher, tasks: Sequence[str], journal: Journal, attempts: int
    ) -> None:
        self._session, self._launcher, self._tasks, self._journal = session, launcher, tasks, journal
        self._root, self._timeout, self._attempts = launcher.site.root, launcher.site.timeouts.superstep, attempts
        self._members: dict[str, str] = {}  # process of each task
        self._shares: dict[str, int] = {}  # millicores of each process
        self._starts: Counter[str] = Counter()
        self._told: set[str] = set()  # processes whose end has been told
        self._losses = 0
        self._latest: DoubleBarrier | None = None
        session.create(f"{self._root}/members", makepath=True)

    def superstep(self, superstep: int, sizes: Sequence[float], shares: Sequence[int], **facts: Any) -> None:
        """Runs a superstep with a size and millicores of each task, and adds it with further facts to the journal.

        Raises:
            BackendError: ZooKeeper is silent, or the attempts are used up.
        """
        for attempt in range(1, self._attempts + 1):
            begin = time.time()
            try:
                self._prepare(shares)
                prepared = time.time()
                barrier, reports = self._attempt(superstep, attempt, sizes)
            except (_Fault, Closed) as fault:
                words = str(fault) or "the barrier was removed"
                log.warning("superstep %d: %s; all tasks begin it again", superstep, words)
                self._journal.fail(superstep=superstep, attempt=attempt, time=time.time(), fault=words)
                continue
            self._journal.finish(
                superstep=superstep,
                attempt=attempt,
                begin=begin,
                prepared=prepared,
                sizes=list(sizes),
                shares=list(shares),
                tasks=reports,
                **facts,
            )
            barrier.leave(CONTROLLER)
            return
        raise BackendError(f"superstep {superstep}: {words}; expected an attempt without a fault among {attempt}")

    def _prepare(self, shares: Sequence[int]) -> None:
        """Replaces dead processes and applies the shares; a process that has ended or does not start is a `_Fault`."""
        if self._session.losses != self._losses:
            self._end(set(self._members.values()))  # They end without a controller, some sooner than others.
            self._losses = self._session.losses
        self._session.create(f"{self._root}/{CONTROLLER}", ephemeral=True)
        alive = self._session.children(f"{self._root}/members")
        wanted = dict(zip(self._tasks, shares, strict=True))
        replaced = [task for task in self._tasks if self._is_replaced(task, wanted[task], alive)]
        # After the choice, so that no process is replaced whose end is not told.
        self._check_processes()
        self._end({self._members[task] for task in replaced if task in self._members})
        for task in replaced:
            self._starts[task] += 1
            member = self._members[task] = f"{task}-{self._starts[task]}"
            # A process that is limited in place starts without its limit.
            self._shares[member] = 0 if self._launcher.in_place else wanted[task]
            self._launcher.start(task, member, wanted[task])
        # Sizes and shares are in the order of the tasks.
        self._members = {task: self._members[task] for task in self._tasks}
        self._wait_for_members()
        for task, member in self._members.items():
            if self._shares[member] != wanted[task]:
                self._launcher.limit(member, wanted[task])
                self._shares[member] = wanted[task]

    def _is_replaced(self, task: str, millicores: int, alive: set[str]) -> bool:
        member = self._members.get(task)
        if member is None or member not in alive or self._launcher.fault(member):
            return True
        return not self._launcher.in_place and self._shares[member] != millicores

    def _wait_for_members(self) -> None:
        """Waits until all processes have a session."""
        missing: set[str] = set()

        def look() -> bool | None:
            nonlocal missing
            missing = set(self._members.values()) - self._session.children(f"{self._root}/members")
            self._check_processes()
            return None if missing else True

        try:
            self._session.wait(look, self._timeout)
        except TimeoutError:
            raise self._hung(missing, "has no session with ZooKeeper") from None

    def _attempt(self, superstep: int, attempt: int, sizes: Sequence[float]) -> tuple[DoubleBarrier, dict[str, Any]]:
        """Runs an attempt of a superstep up to the barrier; returns the reports of the tasks."""
        if self._latest is not None:
            self._latest.close()
        path, members = f"{self._root}/barrier/{superstep}-{attempt}", list(self._members.values())
        self._latest = barrier = DoubleBarrier(self._session, path, [CONTROLLER, *members], self._check)
        barrier.open()
        for member, size in zip(members, sizes, strict=True):
            message = {"barrier": path, "members": [CONTROLLER, *members], "size": size}
            Queue(self._session, f"{self._root}/{member}").put(json.dumps(message).encode())
        part = "entered"
        try:
            barrier.enter(CONTROLLER, self._timeout)
            part = "left"
            reports = barrier.gather(members, self._timeout)
        except TimeoutError as error:
            barrier.close()
            raise self._hung(error.args, f"has not {part} the barrier") from None
        except BaseException:
            barrier.close()
            raise
        return barrier, {
            task: {"member": member, **json.loads(reports[member])} for task, member in self._members.items()
        }

    def _check(self) -> None:
        """Raises `_Fault` if a process or a session has ended."""
        if self._session.losses != self._losses:
            raise _Fault("the controller's session with ZooKeeper has ended")
        self._check_processes()
        gone = sorted(set(self._members.values()) - self._session.children(f"{self._root}/members"))
        if gone:
            self._check_processes(_DYING)
            raise _Fault(f"{', '.join(gone)}: the session with ZooKeeper has ended")

    def _check_processes(self, patience: float = 0.0) -> None:
        for member in self._members.values():
            if member not in self._told and (fault := self._launcher.fault(member, patience)):
                self._told.add(member)
                raise _Fault(f"{member} {fault}")

    def _hung(self, members: Iterable[str], words: str) -> _Fault:
        """Ends processes that have been silent for too long; returns the fault."""
        self._end(set(members) - {CONTROLLER})
        return _Fault(f"{', '.join(sorted(members))} {words} for {self._timeout:g} s")

    def _end(self, members: set[str]) -> None:
        """Ends processes; those of their tasks are to be started anew."""
        self._launcher.stop(sorted(members))
        self._members = {task: member for task, member in self._members.items() if member not in members}
        for member in members:
            self._session.delete(f"{self._root}/members/{member}")
            self._session.delete(f"{self._root}/{member}")
