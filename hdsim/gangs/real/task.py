"""The process of a task: ``python -m hdsim.gangs.real.task``.

It takes messages from its queue, each the size of its workload in one attempt of a superstep, and for each enters the
double barrier, runs stress-ng and leaves the barrier. It ends when the controller or its own session ends, and is then
replaced by a process of another name: a member of a barrier is one process.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from hdsim.errors import BackendError, HdsimError
from hdsim.gangs.real.session import Closed, DoubleBarrier, KazooSession, Queue
from hdsim.gangs.stressors import Stressors
from hdsim.util.process import Process

#: Node of the controller, and its name as a member of barriers.
CONTROLLER = "controller"
_LOG = Path("stress-ng.log")


class _Over(Exception):
    """The controller has ended the gang, or has ended itself."""


class Task:
    """A task of a gang, which ends after `timeout` seconds without an event."""

    def __init__(
        self, session: KazooSession, root: str, task: str, member: str, stressors: Stressors, timeout: float
    ) -> None:
        self._session, self._root, self._task, self._member = session, root, task, member
        self._stressors, self._timeout = stressors, timeout

    def run(self) -> None:
        """Computes supersteps until the controller ends.

        Raises:
            HdsimError: The session with ZooKeeper has ended, or stress-ng has failed.
        """
        path = f"{self._root}/{self._member}"
        try:
            self._session.create(path)
            self._session.create(f"{self._root}/members/{self._member}", ephemeral=True)
            queue = Queue(self._session, path)
            latest = ""
            while True:
                message = json.loads(queue.get(self._check, self._timeout))
                if message["barrier"] != latest:
                    latest = message["barrier"]
                    barrier = DoubleBarrier(self._session, latest, message["members"], self._check)
                    self._superstep(barrier, message["size"])
        except (_Over, LookupError, TimeoutError):
            return

    def _superstep(self, barrier: DoubleBarrier, size: float) -> None:
        entered = time.time()
        try:
            barrier.enter(self._member, self._timeout)
            began = time.time()
            command = self._stressors.command(self._task, size, Path.cwd())
            with Process(command, _LOG, "stress-ng", ended=self._session.wake) as stress:
                self._session.wait(lambda: self._ended(stress, barrier), self._timeout)
                stress.wait(0)
                self._stressors.verify(self._task, size, 0, _LOG.read_text(errors="replace"))
            times = {"entered": entered, "began": began, "ended": time.time()}
            barrier.leave(self._member, json.dumps(times).encode())
            barrier.gather([CONTROLLER], self._timeout)
        except Closed:
            return

    def _ended(self, stress: Process, barrier: DoubleBarrier) -> bool | None:
        self._check()
        if not barrier.is_open():
            raise Closed
        return True if stress.fault() else None

    def _check(self) -> None:
        """Ends a wait if the session or the controller has ended."""
        if self._session.losses:
            raise BackendError("the session with ZooKeeper has ended")
        if not self._session.exists(f"{self._root}/{CONTROLLER}"):
            raise _Over


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a task; its exit status is 1 after an error."""
    parser = argparse.ArgumentParser(prog="hdsim.gangs.real.task", description=__doc__)
    for name in ("zookeeper", "root", "task", "member", "folder"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("operations", "session-timeout", "connection-timeout", "superstep-timeout"):
        parser.add_argument(f"--{name}", type=float, required=True)
    parser.add_argument("--instances", type=int, required=True)
    given = parser.parse_args(arguments)
    os.chdir(given.folder)
    stressors = Stressors({given.task: given.operations}, instances=given.instances)
    try:
        with KazooSession(given.zookeeper, timeout=given.session_timeout, patience=given.connection_timeout) as session:
            Task(session, given.root, given.task, given.member, stressors, given.superstep_timeout).run()
    except HdsimError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
