"""Kernels: functions that numba compiles, once per machine (see :mod:`hdsim.kernels.machine_code`).

numba is imported when a kernel is first called, a third of a second that a process without such a call does not spend.
Without numba, kernels are ordinary Python functions.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, update_wrapper
from types import ModuleType
from typing import Any, TypeVar

import numpy as np

log = logging.getLogger(__name__)

_Function = TypeVar("_Function", bound=Callable[..., Any])
_LOCK = threading.RLock()
_COMPILED, _INTERPRETED, _WITHIN_INTERPRETED = range(3)
#: The way in which this thread runs kernels.
_mode: ContextVar[int] = ContextVar("mode", default=_COMPILED)
#: Functions that are called before the next kernel is compiled.
_preparations: list[Callable[[], None]] = []


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
    made: Any = _Kernel(function, inline=inline, allocates=allocates, reorders=reorders)
    return made


def in_python(function: _Function) -> _Function:
    """Returns the function of a kernel, which outside of kernels takes less than a call if there are few numbers."""
    made: Any = function
    return made.py_func


@contextmanager
def interpreted(is_small: bool) -> Iterator[None]:
    """Has this thread run kernels as Python functions meanwhile if its work `is_small` and no kernel is compiled yet.

    The results are the same. Work of a few hundredths of a second is done before numba is imported.
    """
    if not is_small or _machine_code.cache_info().currsize:
        yield
        return
    before = _mode.set(_INTERPRETED)
    try:
        yield
    finally:
        _mode.reset(before)


def before_compilation(prepare: Callable[[], None]) -> None:
    """Has a function called before the next kernel is compiled or loaded by numba."""
    _preparations.append(prepare)


class _Kernel:
    """A kernel in place of its function.

    Attributes:
        py_func: The function.
        __call__: Carries out a call of the kernel: once it is compiled, the dispatcher of numba itself.
    """

    __slots__ = ("__call__", "__dict__")

    def __init__(self, function: Callable[..., Any], **options: bool) -> None:
        update_wrapper(self, function)
        self.py_func, self._options = function, options
        self._compiled: Any = None
        self.__call__ = self._call_early

    def _call_early(self, *arguments: Any) -> Any:
        mode = _mode.get()
        if mode == _COMPILED:
            return self.compiled(*arguments)
        if mode == _WITHIN_INTERPRETED:
            return self.py_func(*arguments)
        before = _mode.set(_WITHIN_INTERPRETED)
        try:
            with np.errstate(all="ignore"):  # as in machine code
                return self.py_func(*arguments)
        finally:
            _mode.reset(before)

    def __reduce__(self) -> str:
        return self.py_func.__qualname__

    @property
    def compiled(self) -> Any:
        """The dispatcher of numba, or the function if there is none."""
        with _LOCK:
            if self._compiled is None:
                code = _machine_code()
                while _preparations and code is not None:
                    _preparations.pop()()
                self._compiled = self.py_func if code is None else code.dispatcher(self.py_func, **self._options)
                self.__call__ = self._compiled
        return self._compiled

    @property
    def _numba_type_(self) -> Any:
        """The type by which numba knows a kernel in other ones."""
        return self.compiled._numba_type_


@cache
def _machine_code() -> ModuleType | None:
    """Returns the module that compiles, None without numba."""
    try:
        from hdsim.kernels import machine_code
    except ImportError as error:
        log.warning("numba cannot be used (%s): loops run in Python, about a hundred times slower", error)
        return None
    return machine_code
