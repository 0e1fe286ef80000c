"""Watches scheduling passes: one that does not return is named with file and line, and can be interrupted at once."""

from __future__ import annotations

import math
import os
import sys
import threading
from pathlib import Path
from time import perf_counter, sleep
from types import FrameType

#: Seconds after which a pass is named, and after which a first Ctrl-C ends it within.
NAMED, INTERRUPTED = 10.0, 1.0
_INTERVAL = 0.5


class _Pass:
    """The scheduling pass of an agent that is under way."""

    since = 0.0  # begin on the clock of `perf_counter` in seconds, 0 outside of passes
    now = 0.0  # simulated time in seconds
    thread = 0
    limit = NAMED  # seconds after which it is named, infinite if it has been
    watcher: threading.Thread | None = None


_current = _Pass()


def begin(now: float) -> bool:
    """Begins a pass at a simulated time in seconds; False within another, as of a fork, which is watched already."""
    if _current.since:
        return False
    if _current.watcher is None:
        _current.watcher = threading.Thread(target=_watch, name="hdsim-watch", daemon=True)
        _current.watcher.start()
    _current.now, _current.thread, _current.limit = now, threading.get_ident(), NAMED
    _current.since = perf_counter()
    return True


def _forget() -> None:
    """Forgets the watcher in a fork of the process, which has no threads."""
    _current.watcher, _current.since = None, 0.0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def end() -> None:
    """Ends the pass."""
    _current.since = 0.0


def where_it_hangs(frame: FrameType | None) -> str | None:
    """Returns the place of a pass that has run for longer than `INTERRUPTED`, None if there is none."""
    if not _current.since or perf_counter() - _current.since < INTERRUPTED:
        return None
    return f"decide() had run for {perf_counter() - _current.since:.0f} s at t = {_current.now:g} s{_place(frame)}"


def _watch() -> None:
    while True:
        sleep(_INTERVAL)
        since = _current.since
        seconds, now = perf_counter() - since, _current.now
        if not since or seconds <= _current.limit:
            continue
        frame = sys._current_frames().get(_current.thread)
        if _compiles(frame):
            _current.limit = seconds + NAMED
        else:
            _current.limit = math.inf
            place = _place(frame)
            print(f"hdsim: decide() has run for {seconds:.0f} s at t = {now:g} s{place}", file=sys.stderr, flush=True)


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
