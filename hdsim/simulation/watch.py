"""Watches scheduling passes: one that does not return is named with file and line, and can be interrupted at once."""

from __future__ import annotations

import math
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, sleep
from types import CodeType, FrameType

#: Seconds after which a pass is named, and after which a first Ctrl-C ends it within.
NAMED, INTERRUPTED = 10.0, 1.0
_INTERVAL = 0.5


class _Watched:
    """The last look of the watcher; passes are short and many, and need not say that they are under way."""

    frame: FrameType | None = (
        None  # of the pass of the last look; of a pass within another, as of a fork, the outer one
    )
    since = 0.0  # of the first look at it, on the clock of `perf_counter` in seconds
    limit = NAMED  # seconds after which it is named, infinite if it has been
    thread = 0
    watcher: threading.Thread | None = None


_watched = _Watched()


def start() -> None:
    """Watches the passes of this thread from now on."""
    _watched.thread = threading.get_ident()
    if _watched.watcher is None:
        _watched.watcher = threading.Thread(target=_watch, name="hdsim-watch", daemon=True)
        _watched.watcher.start()


def is_pass(function: Callable[..., None]) -> Callable[..., None]:
    """Has calls of a function with a variable `cluster` watched."""
    _passes.add(function.__code__)
    return function


#: Code of the functions that carry out a pass.
_passes: set[CodeType] = set()


def _forget() -> None:
    """Forgets the watcher in a fork of the process, which has no threads."""
    _watched.watcher = _watched.frame = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def where_it_hangs(frame: FrameType | None) -> str | None:
    """Returns the place of a pass that has run for longer than `INTERRUPTED`, None if there is none."""
    outermost, seconds = _pass_of(frame), perf_counter() - _watched.since
    if outermost is None or outermost is not _watched.frame or seconds < INTERRUPTED:
        return None
    return f"decide() had run for {seconds:.0f} s at {_time(outermost)}{_place(frame)}"


def _watch() -> None:
    while True:
        sleep(_INTERVAL)
        _look(sys._current_frames().get(_watched.thread))


def _look(frame: FrameType | None) -> None:
    """Names the pass that a frame is part of if it has run for too long."""
    outermost = _pass_of(frame)
    if outermost is not _watched.frame:
        _watched.frame, _watched.since, _watched.limit = outermost, perf_counter(), NAMED
    seconds = perf_counter() - _watched.since
    if outermost is None or seconds <= _watched.limit:
        return
    if _compiles(frame):
        _watched.limit = seconds + NAMED
    else:
        _watched.limit = math.inf
        words = f"hdsim: decide() has run for {seconds:.0f} s at {_time(outermost)}{_place(frame)}"
        print(words, file=sys.stderr, flush=True)


def _pass_of(frame: FrameType | None) -> FrameType | None:
    """Returns the frame of the outermost pass that a frame is part of."""
    found = None
    # CPython 3.11 may have another object behind a frame that its thread has just begun.
    while isinstance(frame, FrameType):
        if frame.f_code in _passes:
            found = frame
        frame = frame.f_back
    return found


def _time(frame: FrameType) -> str:
    return f"t = {frame.f_locals['cluster'].now:g} s"


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
