"""Watches scheduling passes: one that does not return is named with file and line, and can be interrupted at once."""

from __future__ import annotations

import math
import os
import sys
import threading
from pathlib import Path
from time import perf_counter, sleep
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster

#: Seconds after which a pass is named, and after which a first Ctrl-C ends it within.
NAMED, INTERRUPTED = 10.0, 1.0
_INTERVAL = 0.5


class _Pass:
    """The scheduling pass of an agent that is under way, and what the watcher has seen of it.

    Passes are short and many: they say no more than that they are under way.
    """

    cluster: Cluster | None = (
        None  # None outside of passes; of a pass within another, as of a fork, that of the outer one
    )
    count = 0  # of passes so far
    thread = 0
    seen = 0  # pass of the last look
    since = 0.0  # of the first look at it, on the clock of `perf_counter` in seconds
    limit = NAMED  # seconds after which it is named, infinite if it has been
    watcher: threading.Thread | None = None


current = _Pass()


def start() -> None:
    """Watches the passes of this thread from now on."""
    current.thread = threading.get_ident()
    if current.watcher is None:
        current.watcher = threading.Thread(target=_watch, name="hdsim-watch", daemon=True)
        current.watcher.start()


def _forget() -> None:
    """Forgets the watcher in a fork of the process, which has no threads."""
    current.watcher = current.cluster = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def where_it_hangs(frame: FrameType | None) -> str | None:
    """Returns the place of a pass that has run for longer than `INTERRUPTED`, None if there is none."""
    cluster, seconds = current.cluster, perf_counter() - current.since
    if cluster is None or current.seen != current.count or seconds < INTERRUPTED:
        return None
    return f"decide() had run for {seconds:.0f} s at t = {cluster.now:g} s{_place(frame)}"


def _watch() -> None:
    while True:
        sleep(_INTERVAL)
        cluster = current.cluster
        if cluster is None:
            continue
        if current.seen != current.count:
            current.seen, current.since, current.limit = current.count, perf_counter(), NAMED
        seconds = perf_counter() - current.since
        if seconds <= current.limit:
            continue
        frame = sys._current_frames().get(current.thread)
        if _compiles(frame):
            current.limit = seconds + NAMED
        else:
            current.limit = math.inf
            place = _place(frame)
            words = f"hdsim: decide() has run for {seconds:.0f} s at t = {cluster.now:g} s{place}"
            print(words, file=sys.stderr, flush=True)


def _compiles(frame: FrameType | None) -> bool:
    """Whether a kernel is compiled, which takes seconds at its first use."""
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith("numba."):
            return True
        frame = frame.f_back
    return False


def _place(frame: FrameType | None) -> str:
    """File and line of the innermost code of the user, an empty text if none is running."""
    from hdsim.results.run_directory.inputs import is_own_code

    while frame is not None:
        if is_own_code(frame.f_code.co_filename):
            return f" ({Path(frame.f_code.co_filename).name}:{frame.f_lineno})"
        frame = frame.f_back
    return ""
