"""Signals, progress bar and garbage collection during a replay."""

from __future__ import annotations

import gc
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

from hdsim.results.moment import Moment, Shown
from hdsim.simulation.watch import where_it_hangs

#: Signals of the contexts of `signals_received`, the innermost last.
_RECEIVED: list[list[int]] = []
#: Seconds between two moments that are watched, and the least ratio of this interval to the time that a moment takes.
_INTERVAL, _RATIO = 0.25, 100
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

    def receive(number: int, frame: Any) -> None:
        received.append(number)
        restore()
        if place := where_it_hangs(frame):
            # The replay cannot stop between two instants.
            raise KeyboardInterrupt(f"interrupted: {place}")

    for number in before:
        signal.signal(number, receive)
    _RECEIVED.append(received)
    try:
        yield received
    finally:
        _RECEIVED.pop()
        restore()


def received_signals() -> list[int]:
    """Returns the list to which signals are appended that arrive, an empty one outside of `signals_received`."""
    return _RECEIVED[-1] if _RECEIVED else []


class ReplayBar:
    """Jobs done, simulated time and jobs/s on standard error."""

    def __init__(self, jobs: int, *, shown: Shown) -> None:
        self._watch = None if isinstance(shown, bool) else shown
        self._due = 0.0
        self._bar: Any = None
        if shown is not False and (shown is True or sys.stderr.isatty()):
            from tqdm import tqdm

            self._bar = tqdm(total=jobs, unit="job", desc="replay", delay=0.5, leave=False)

    def update(self, done: int, now: float, moment: Callable[[], Moment]) -> None:
        """Updates the bar from the ended jobs and the simulated seconds, and shows a moment from time to time."""
        if self._bar is not None:
            self._bar.set_postfix_str(f"simulated {now / 86400:.1f} d", refresh=False)
            self._bar.update(done - self._bar.n)
        if self._watch is not None and (begin := perf_counter()) >= self._due:
            self._watch(moment())
            end = perf_counter()
            self._due = end + max(_INTERVAL, _RATIO * (end - begin))

    def close(self) -> None:
        """Removes the bar."""
        if self._bar is not None:
            self._bar.close()
