"""Processes that execute runs."""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from multiprocessing import forkserver
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from hdsim.results.run_directory.failure import Failure
from hdsim.runs.command import Command, RunOutcome, attempt

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from omegaconf import DictConfig

#: Imported once for all workers.
_PRELOADED = (
    "hdsim.backends.sim",
    "hdsim.config.composer",
    "hdsim.kernels.machine_code",
    "hdsim.platform.load",
    "hdsim.results.run_directory.directory",
    "hdsim.runs.pool",
    "hdsim.runs.replays",
    "hdsim.simulation.compiled",
    "hdsim.workload.load",
)
#: Variables that limit the threads of numerical libraries.
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "POLARS_MAX_THREADS")


class Pool:
    """Processes that execute runs, each one run at a time; a context manager.

    Workers keep the platforms and traces that they have read. A worker that is killed costs the run that it executes,
    and a new worker takes its place. Workers end with the process that made them.
    """

    def __init__(self, jobs: int) -> None:
        start_server(jobs)
        self._context = multiprocessing.get_context("forkserver")
        self._idle: queue.SimpleQueue[_Worker | None] = queue.SimpleQueue()
        for _ in range(jobs):
            self._idle.put(None)
        self._busy: set[_Worker] = set()
        self._threads = ThreadPoolExecutor(jobs, thread_name_prefix="hdsim-pool")
        self._stopped = False

    def submit(
        self, command: Command, config: Mapping[str, Any], directory: Path, *, composed: DictConfig | None = None
    ) -> Future[RunOutcome]:
        """Has a worker build and execute a run, after those submitted before.

        The command is sent by pickle; `composed` is Hydra's composition of the configuration, for ``.hydra``.

        Returns:
            The outcome. Its exception is an error of the pool itself, such as a command that cannot be pickled.
        """
        return self._threads.submit(self._attempt, command, config, directory.absolute(), composed)

    def _attempt(self, command: Command, config: Mapping[str, Any], directory: Path, composed: Any) -> RunOutcome:
        worker = self._idle.get() or _Worker(self._context)
        self._busy.add(worker)
        replacement = None
        try:
            if self._stopped:
                raise EOFError
            outcome = worker.attempt(command, config, directory, composed)
            replacement = worker
        except (EOFError, OSError):
            if self._stopped:
                worker.stop()
                failure = Failure("interrupted", "interrupted before it began")
            else:
                failure = Failure("killed", worker.ending())
            outcome = RunOutcome(directory, {}, failure)
        finally:
            self._busy.discard(worker)
            self._idle.put(replacement)
        return outcome

    def stop(self) -> None:
        """Interrupts the runs in work as SIGTERM does a single one; runs that have not begun are given up."""
        self._stopped = True
        for worker in tuple(self._busy):
            worker.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.stop()
        try:
            self._threads.shutdown(cancel_futures=error is not None)
        except KeyboardInterrupt:
            for busy in tuple(self._busy):
                busy.kill()
            raise
        while not self._idle.empty():
            if (worker := self._idle.get()) is not None:
                worker.close()


def start_server(jobs: int) -> None:
    """Starts the server of workers, which share the cores; it imports their modules, and forks itself for each."""
    forkserver.set_forkserver_preload(list(_PRELOADED))
    # Numerical libraries get their part of the cores, but for limits that the user has set.
    limits = dict.fromkeys(set(_THREADS) - set(os.environ), str(max(1, (os.cpu_count() or 1) // jobs)))
    os.environ.update(limits)
    try:
        forkserver.ensure_running()
    finally:
        for name in limits:
            del os.environ[name]


class _Worker:
    """A process that executes runs one after the other."""

    def __init__(self, context: Any) -> None:
        self._channel, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), name="hdsim-worker")
        self._process.start()
        theirs.close()

    def attempt(self, *task: Any) -> RunOutcome:
        """Executes a run.

        Raises:
            EOFError: The process has ended.
        """
        self._channel.send(task)
        outcome: RunOutcome = self._channel.recv()
        return outcome

    def stop(self) -> None:
        """Interrupts the run."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGTERM)

    def kill(self) -> None:
        """Ends the process at once."""
        self._process.kill()

    def ending(self) -> str:
        """Returns the end of the process in words."""
        self._process.join()
        status = self._process.exitcode
        if status == -signal.SIGKILL:
            return "the worker process was killed by SIGKILL, by a user or for lack of memory"
        if status < 0:
            return f"the worker process was killed by {signal.Signals(-status).name}"
        return f"the worker process ended with status {status}"

    def close(self) -> None:
        """Ends the process, which is idle."""
        self._channel.close()
        self._process.join()


def _serve(channel: Connection) -> None:
    """Executes runs until the pool closes the connection."""
    from tqdm import tqdm

    os.setsid()  # Ctrl-C goes to the pool's process only, which interrupts each worker once.
    # By default bars share a semaphore between processes, which outlives a worker that is killed.
    tqdm.set_lock(threading.RLock())
    parent = multiprocessing.parent_process()
    assert parent is not None

    def end_with_parent() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
    with contextlib.suppress(EOFError, ConnectionError):  # The pool's process may have been killed.
        while True:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            channel.send(_interruptible(*channel.recv()))


def _interruptible(command: Command, config: Mapping[str, Any], directory: Path, composed: Any) -> RunOutcome:
    """Executes a run that SIGTERM interrupts; afterwards the signal is ignored."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return attempt_quietly(command, config, directory, composed)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


def attempt_quietly(command: Command, config: Mapping[str, Any], directory: Path, composed: Any) -> RunOutcome:
    """Builds and executes a run in a process of several; the outcome has the text that it writes."""
    written = io.StringIO()
    with contextlib.redirect_stdout(written), contextlib.redirect_stderr(written):
        try:
            outcome = attempt(command, config, directory, composed)
        except KeyboardInterrupt as error:
            outcome = RunOutcome(directory, {}, Failure.of(error))
    return replace(outcome, error=None, notes=written.getvalue())
