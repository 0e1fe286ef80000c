"""Signals, progress bar and garbage collection during a replay."""

from __future__ import annotations

import gc
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

#: Thresholds of the garbage collector during a replay; those of Python are 700 or 2000, 10 and 10.
_THRESHOLDS = (10_000, 10, 10)


@contextmanager
def collecting_less() -> Iterator[None]:
    """Has the garbage collector run less often, and only over objects that are made meanwhile.

    A replay makes many long-lived objects and no cycles, but agents may make cycles. This costs 1 % of the time of a
    replay, the collector as it is by default 15 %.
    """
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


@contextmanager
def signals_received() -> Iterator[list[int]]:
    """Collects the first SIGINT or SIGTERM, so that a replay can stop between two instants; a second one kills."""
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def receive(number: int, _frame: Any) -> None:
        received.append(number)
        restore()

    for number in before:
        signal.signal(number, receive)
    try:
        yield received
    finally:
        restore()


class ReplayBar:
    """Jobs done, simulated time and jobs/s on standard error.

    Args:
        jobs: Number of jobs.
        shown: Show the bar at all.
    """

    def __init__(self, jobs: int, *, shown: bool) -> None:
        from tqdm import tqdm

        self._bar = tqdm(total=jobs, unit="job", desc="replay", delay=0.5, leave=False, disable=not shown)

    def update(self, done: int, now: float) -> None:
        """Updates the bar.

        Args:
            done: Number of jobs that have ended.
            now: Simulated time in seconds.
        """
        self._bar.set_postfix_str(f"simulated {now / 86400:.1f} d", refresh=False)
        self._bar.update(done - self._bar.n)

    def close(self) -> None:
        """Removes the bar."""
        self._bar.close()


@contextmanager
def replay_bar(jobs: int, *, shown: bool) -> Iterator[ReplayBar]:
    """Shows a progress bar until the end of the replay of some jobs."""
    bar = ReplayBar(jobs, shown=shown)
    try:
        yield bar
    finally:
        bar.close()
