"""Compilation of kernels by numba, once per machine (see :mod:`hdsim.kernels.cache`).

Without a writable folder, each process compiles the kernels that it calls; without numba, kernels are ordinary Python
functions.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, TypeVar

from hdsim.kernels.cache import folder_of, writable_folder

log = logging.getLogger(__name__)

_HAS_NUMBA = False
try:
    import numba
    from numba.core import event

    from hdsim.kernels import numba_internals

    _HAS_NUMBA = True
except ImportError as error:
    log.warning("numba cannot be used (%s): loops run in Python, about a hundred times slower", error)

_Function = TypeVar("_Function", bound=Callable[..., Any])


def lean_kernel(function: _Function) -> _Function:
    """Compiles a kernel that makes no arrays, without counts of references to arrays.

    Counting takes most of the time of kernels with many arrays, all the more if threads share them.
    """
    return kernel(function, allocates=False)


def part_of_kernel(function: _Function) -> _Function:
    """Compiles a function into the lean kernels that call it, for tuples of many arrays are slow to hand over."""
    return kernel(function, inline=True, allocates=False)


def kernel(function: _Function, *, inline: bool = False, allocates: bool = True, reorders: bool = False) -> _Function:
    """Compiles a function at its first call for each combination of argument types.

    The global interpreter lock is released while it runs. Integer division by 0 is not checked; the result of a
    division of floating-point numbers by 0 is infinite or NaN.

    Args:
        function: The function.
        inline: See :func:`part_of_kernel`.
        allocates: See :func:`lean_kernel`.
        reorders: Sums may be taken in another order, several terms at a time; the order is the same at each call.
    """
    if not _HAS_NUMBA:
        return function
    options: Any = {"nogil": True, "error_model": "numpy", "forceinline": inline, "_nrt": allocates}
    # Kernels are called from Python or from other kernels, parts of kernels from these only.
    options |= {"no_cfunc_wrapper": True, "no_cpython_wrapper": inline}
    if reorders:
        options["fastmath"] = {"reassoc", "contract", "nsz"}
    if inline:
        options |= numba_internals.PART_OPTIONS
    # Digests cover the kernels of hdsim only; parts are kept in the kernels that call them.
    kept = not inline and function.__module__.startswith(f"{__package__}.")
    folder = folder_of(function.__module__) if kept else None
    with _kept_in(folder):
        compiled: Any = numba.njit(cache=folder is not None, **options)(function)
        # With NUMBA_DISABLE_JIT=1 it is the function itself.
        if compiled is not function:
            if folder is not None:
                numba_internals.load_quickly(compiled)
            # A call with a constant would compile the called kernel once more.
            for_types = compiled.compile
            compiled.compile = lambda types: for_types(tuple(numba.types.unliteral(each) for each in types))
    result: _Function = compiled
    return result


@contextlib.contextmanager
def _kept_in(folder: Path | None) -> Iterator[None]:
    """Has numba keep in a folder the machine code of the kernels that are defined meanwhile."""
    settings = vars(numba.config)
    chosen = settings["CACHE_DIR"]
    settings["CACHE_DIR"] = chosen if folder is None else str(folder)
    try:
        yield
    finally:
        settings["CACHE_DIR"] = chosen


if _HAS_NUMBA:

    class _InTurn(event.Listener):
        """Lets one process at a time compile kernels, the others then find its machine code, and collects no garbage.

        A collection would take a sixth of the time of a compilation: its objects live on.
        """

        def __init__(self) -> None:
            self._guard = threading.Lock()
            self._depth = 0  # compilations in progress or waiting, of all threads
            self._collects = False
            self._lock: IO[str] | None = None

        def on_start(self, event: Any) -> None:
            with self._guard:
                self._depth += 1
                if self._depth > 1:
                    return
                self._collects = gc.isenabled()
                gc.disable()
                folder = writable_folder()
                with contextlib.suppress(OSError):  # a file system without locks
                    if folder is not None:
                        self._lock = (folder / ".lock").open("w")
                        fcntl.flock(self._lock, fcntl.LOCK_EX)

        def on_end(self, event: Any) -> None:
            with self._guard:
                self._depth -= 1
                if self._depth > 0:
                    return
                if self._lock is not None:
                    self._lock.close()
                    self._lock = None
                if self._collects:
                    gc.enable()

    class _Notice(event.Listener):
        """Announces the first compilation of a process, on a terminal or else in the log."""

        given = False

        def on_start(self, event: Any) -> None:
            if self.given or not event.data["dispatcher"].py_func.__module__.startswith("hdsim.kernels"):
                return
            self.given = True
            kept = "once on this machine" if writable_folder() else "in each process, since no cache is writable"
            message = f"compiling the kernels that this run needs ({kept}, at most 20 s) ..."
            if sys.stderr.isatty():
                print(message, file=sys.stderr)
            else:
                log.info(message)

        def on_end(self, event: Any) -> None:
            pass

    # The lock of numba's compiler is taken before kept machine code is looked for.
    event.register("numba:compiler_lock", _InTurn())
    event.register("numba:compile", _Notice())
