"""Machine code of kernels by numba, once per machine (see :mod:`hdsim.kernels.cache`).

Without a writable folder, each process compiles the kernels that it calls. Import this module where a kernel is
compiled and not before: it loads numba.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numba
from numba.core import event
from numba.core.compiler_lock import global_compiler_lock

from hdsim.kernels import numba_internals
from hdsim.kernels.cache import folder_of, locked, writable_folder

log = logging.getLogger(__name__)

#: Begin of the names of modules whose machine code is kept.
PREFIX = f"{__name__.partition('.')[0]}."
_HELD: list[Any] = []  # the function that this process compiles, with the parts that it calls


def dispatcher(function: Callable[..., Any], *, inline: bool, allocates: bool, reorders: bool) -> Any:
    """Returns numba's dispatcher of a kernel; see :func:`hdsim.kernels.compiling.kernel` for the arguments.

    With ``NUMBA_DISABLE_JIT=1`` it is the function.
    """
    options: Any = {"nogil": True, "error_model": "numpy", "forceinline": inline, "_nrt": allocates}
    options["no_cfunc_wrapper"] = True
    if reorders:
        options["fastmath"] = {"reassoc", "contract", "nsz"}
    inner: Any = {"no_cpython_wrapper": True, **options, **numba_internals.PART_OPTIONS}
    part: Any = numba.njit(**inner)(function)
    if part is function:  # with NUMBA_DISABLE_JIT=1
        return function
    _compile_in_turn(part)
    if inline:
        return part
    # Digests cover the kernels of hdsim only.
    folder = folder_of(function.__module__) if function.__module__.startswith(PREFIX) else None
    with _kept_in(folder):
        compiled: Any = numba.njit(cache=folder is not None, **options)(function)
        if folder is not None:
            numba_internals.load_quickly(compiled)
    _compile_in_turn(compiled)
    # A kernel is a part of the kernels that call it, but for one that calls itself (or has an attribute of its name).
    if function.__name__ not in function.__code__.co_names:
        compiled.get_call_template, compiled.get_overload = part.get_call_template, part.get_overload
    return compiled


def _compile_in_turn(compiled: Any) -> None:
    """Has a kernel compiled by one process at a time, and for types only: not once more for each constant argument.

    Other processes may compile other kernels meanwhile, and this one for other types.
    """
    for_types = compiled.compile

    def compile_in_turn(signature: Any) -> Any:
        types = tuple(numba.types.unliteral(each) for each in signature)
        with _in_turn(compiled.py_func, types), _without_collections():
            return for_types(types)

    compiled.compile = compile_in_turn


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


@contextlib.contextmanager
def _in_turn(function: Any, types: tuple[Any, ...]) -> Iterator[None]:
    """Lets one process at a time compile a kernel for these types; the others then find its machine code."""
    module = function.__module__
    folder = folder_of(module) if module.startswith(PREFIX) else writable_folder()
    with global_compiler_lock:
        if folder is None or _HELD:  # a kernel that another one calls
            yield
            return
        # Without a lock of numba's index (numba_internals) two processes could name their files of machine code alike.
        turn = zlib.crc32(f"{function.__qualname__}{types}".encode()) if numba_internals.PART_OPTIONS else 0
        with locked(folder, turn):
            _HELD.append(function)
            try:
                yield
            finally:
                _HELD.clear()


@contextlib.contextmanager
def _without_collections() -> Iterator[None]:
    """Collects no garbage, which takes a sixth of the time of a compilation: its objects live on."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


class _Notice(event.Listener):
    """Announces the first compilation of a process, on a terminal or else in the log."""

    given = False

    def on_start(self, event: Any) -> None:
        if self.given or not event.data["dispatcher"].py_func.__module__.startswith(PREFIX):
            return
        self.given = True
        kept = "once on this machine" if writable_folder() else "in each process, since no cache is writable"
        message = f"compiling the kernels that this run needs ({kept}, up to a minute) ..."
        if sys.stderr.isatty():
            print(message, file=sys.stderr)
        else:
            log.info(message)

    def on_end(self, event: Any) -> None:
        pass


event.register("numba:compile", _Notice())
