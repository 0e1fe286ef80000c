"""Compilation of kernels by numba, once per machine.

Machine code is kept in ``HDSIM_CACHE``, else ``$XDG_CACHE_HOME/hdsim``, else ``~/.cache/hdsim``, in a folder for each
module, named by a digest of the module and of all modules of the package that it imports, directly or not: a kernel is
compiled again after a change of any of these, since the kernels that it calls are part of its machine code. Folders of
other digests are removed 30 days after their last use. Without a writable folder, each process compiles the kernels
that it calls; without numba, kernels are ordinary Python functions. A numba without the internals that are adapted here
compiles in its own way, which takes longer.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import hashlib
import logging
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

log = logging.getLogger(__name__)

#: Begin of the names of modules whose machine code is kept.
_PREFIX = f"{__name__.partition('.')[0]}."

# Age at which the machine code of other versions is removed, in seconds.
_UNUSED = 30 * 86400.0

#: The package, and its absolute imports in a source.
_ROOT = Path(__file__).resolve().parent.parent
_IMPORT = re.compile(rf"^ *import ({_ROOT.name}[\w.]*)", re.MULTILINE)
_IMPORT_FROM = re.compile(rf"^ *from ({_ROOT.name}[\w.]*) import (\([^)]*\)|.*)", re.MULTILINE)

_Function = TypeVar("_Function", bound=Callable[..., Any])

#: Internals of numba that are adapted below, found in versions 0.61 to 0.68.
_INTERNALS = (
    "caching.CompileResultCacheImpl._locator_classes",
    "caching.FunctionCache._impl_class",
    "caching.FunctionCache._load_overload",
    "caching._CacheLocator.from_function",
    "codegen.JITCodeLibrary._finalize_dynamic_globals",
    "codegen.JITCodeLibrary._finalize_final_module",
    "codegen.JITCodeLibrary._get_module_for_linking",
    "codegen.JITCodeLibrary._optimize_final_module",
    "codegen.JITCodeLibrary.enable_object_caching",
    "compiler.Compiler",
    "compiler_lock.global_compiler_lock",
    "dispatcher.Dispatcher.compile",
    "event.Listener",
    "options.DefaultOptions._nrt",
    "options.DefaultOptions.forceinline",
    "options.DefaultOptions.no_cfunc_wrapper",
    "options.DefaultOptions.no_cpython_wrapper",
    "runtime.rtsys.initialize",
)

_HAS_NUMBA = _HAS_INTERNALS = False
try:
    import numba

    _HAS_NUMBA = True
    from numba.core import caching, codegen, compiler, compiler_lock, event
    from numba.core.runtime import rtsys

    attrgetter(*_INTERNALS)(numba.core)
    _HAS_INTERNALS = True
except (ImportError, AttributeError) as error:
    if _HAS_NUMBA:
        log.warning("numba %s has other internals (%s): kernels take longer to compile", numba.__version__, error)
    else:
        log.warning("numba cannot be used (%s): loops run in Python, about a hundred times slower", error)


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
    options: Any = {"nogil": True, "error_model": "numpy"}
    if reorders:
        options["fastmath"] = {"reassoc", "contract", "nsz"}
    # Digests cover the kernels of hdsim only.
    kept = not inline and function.__module__.startswith(_PREFIX)
    folder = _folder_of(function.__module__) if kept else None
    if not _HAS_INTERNALS:
        kept = kept and folder is not None
        if kept:
            vars(numba.config)["CACHE_DIR"] = str(folder)
        plain: _Function = numba.njit(cache=kept, **options)(function)
        return plain
    # Kernels are called from Python or from other kernels, parts of kernels from these only.
    options |= {"forceinline": inline, "_nrt": allocates, "no_cfunc_wrapper": True, "no_cpython_wrapper": inline}
    options["pipeline_class"] = _PartCompiler if inline else _WholeCompiler
    compiled: Any = numba.njit(**options)(function)
    # With NUMBA_DISABLE_JIT=1 it is the function itself.
    if compiled is not function:
        # A call with a constant would compile the called kernel once more.
        for_types = compiled.compile

        def compile_in_turn(types: Any) -> Any:
            with _in_turn(), _without_collections():
                return for_types(tuple(numba.types.unliteral(each) for each in types))

        compiled.compile = compile_in_turn
        # Parts are kept in the kernels that call them.
        if folder is not None:
            compiled._cache = _Cache(function)
    result: _Function = compiled
    return result


@cache
def _imports(module: str) -> tuple[bytes, set[str]]:
    """Returns the source of a module of the package, and names that it imports from the package."""
    path = _ROOT.parent.joinpath(*module.split(".")).with_suffix(".py")
    source = path.read_bytes() if path.is_file() else b""
    names = set(_IMPORT.findall(text := source.decode()))
    for parent, members in _IMPORT_FROM.findall(text):
        names |= {parent, *(f"{parent}.{member}" for member in re.findall(r"\w+", members))}
    return source, names


def _digest(module: str) -> str:
    """Digest of the sources that the machine code of a module depends on, and of settings that change the code."""
    sources: dict[str, bytes] = {}
    left = {module, __name__}
    while left:
        name = left.pop()
        sources[name], imported = _imports(name)
        left |= imported - sources.keys()
    digest = hashlib.sha256(os.environ.get("NUMBA_BOUNDSCHECK", "").encode())
    for name in sorted(name for name, source in sources.items() if source):
        digest.update(f"{name}\n".encode() + sources[name])
    return digest.hexdigest()[:16]


@cache
def _folder_of(module: str) -> Path | None:
    """Folder of the machine code of a module, None where nothing can be written."""
    if _FOLDER is None:
        return None
    folder = _FOLDER / _digest(module)
    try:
        _own(folder)
        os.utime(folder)
    except OSError as error:
        log.info("compiled kernels of %s are not kept: %s", module, error)
        return None
    return folder


def _own(folder: Path) -> None:
    """Makes a folder that only this user can read: machine code is executed.

    Raises:
        OSError: It cannot be made, or belongs to another user.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if folder.lstat().st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to another user")
    folder.chmod(0o700)


def _writable_folder() -> Path | None:
    """Folder of the folders of machine code, None where nothing can be written."""
    chosen = os.environ.get("HDSIM_CACHE")
    try:
        base = Path(chosen) if chosen else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hdsim"
        folder = base / "kernels"
        _own(folder)
        tempfile.TemporaryFile(dir=folder).close()
        for other in folder.iterdir():
            if other.stat().st_mtime < time.time() - _UNUSED:
                shutil.rmtree(other, ignore_errors=True)
    except (OSError, RuntimeError) as error:
        level = logging.WARNING if chosen else logging.INFO
        log.log(level, "compiled kernels are not kept, each process compiles them anew: %s", error)
        return None
    return folder


if _HAS_NUMBA:
    _FOLDER = _writable_folder()

if _HAS_INTERNALS:
    _HELD: list[Any] = []  # the open file of the lock while this process compiles

    class _Part(codegen.JITCodeLibrary):
        """A part of kernels, optimised and translated to machine code within them alone: half of the time otherwise."""

        def _optimize_final_module(self) -> None:
            pass

        def _finalize_final_module(self) -> None:
            self._finalize_dynamic_globals()
            self._finalized = True

        def get_pointer_to_function(self, name: str) -> int:
            return 0

        @property
        def codegen(self) -> Any:
            return self

        def set_env(self, name: str, environment: Any) -> None:
            """Sets nothing: the kernels have their own."""

    class _PartCompiler(compiler.Compiler):
        def __init__(self, typing: Any, target: Any, library: Any, *others: Any) -> None:
            super().__init__(typing, target, _Part(target.codegen(), "part"), *others)

    class _Whole(codegen.JITCodeLibrary):
        """A kernel that calls its own copies of other kernels.

        Copies are optimised once more, so that sums may be in another order. Without this a kernel would call the
        original in the process that compiled both, and its own copy in all processes that load it.
        """

        def _finalize_final_module(self) -> None:
            functions = [each for each in self._final_module.functions if not each.is_declaration]
            kept = self._final_module.clone()
            for function in functions:
                if function.linkage == codegen.ll.Linkage.external:
                    kept.get_function(function.name).linkage = "linkonce_odr"
                elif function.linkage == codegen.ll.Linkage.linkonce_odr:
                    function.linkage = "internal"
            # Kernels that call this one copy this module.
            self._shared_module = kept
            super()._finalize_final_module()

    class _WholeCompiler(compiler.Compiler):
        def __init__(self, typing: Any, target: Any, library: Any, *others: Any) -> None:
            library = _Whole(target.codegen(), "kernel")
            library.enable_object_caching()
            super().__init__(typing, target, library, *others)

    class _Locator(caching._CacheLocator):
        """Places machine code in the folder of its module, whose name changes with any of the sources."""

        def __init__(self, folder: Path | None) -> None:
            self._folder = folder

        def get_cache_path(self) -> str:
            return str(self._folder)

        def get_source_stamp(self) -> str:
            return ""

        def get_disambiguator(self) -> str:
            return "hdsim"

        @classmethod
        def from_function(cls, py_func: Any, py_file: str) -> _Locator:
            return cls(_folder_of(py_func.__module__))

    class _Implementation(caching.CompileResultCacheImpl):
        _locator_classes: Any = (_Locator,)

    class _Cache(caching.FunctionCache):
        _impl_class = _Implementation

        def load_overload(self, sig: Any, target_context: Any) -> Any:
            """Loads machine code without what a compilation needs: numba's imports for it take a third of a second."""
            rtsys.initialize(target_context)
            try:
                return self._load_overload(sig, target_context)
            except Exception as error:
                # A file that a power cut has damaged: the kernel is compiled again.
                log.info("damaged machine code of %s: %s", self._name, error)
                with contextlib.suppress(OSError):
                    self.flush()
                return None

    @contextlib.contextmanager
    def _in_turn() -> Iterator[None]:
        """Lets one process at a time compile kernels; the others then find its machine code."""
        with compiler_lock.global_compiler_lock:
            if _FOLDER is None or _HELD:  # a kernel that another one calls
                yield
                return
            with (_FOLDER / ".lock").open("w") as file:
                with contextlib.suppress(OSError):  # a file system without locks
                    fcntl.flock(file, fcntl.LOCK_EX)
                _HELD.append(file)
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

        def on_start(self, event: Any) -> None:
            if event.data["dispatcher"].py_func.__module__.startswith(_PREFIX):
                numba.core.event.unregister("numba:compile", self)
                kept = "once on this machine" if _FOLDER is not None else "in each process, since no cache is writable"
                message = f"compiling the kernels that this run needs ({kept}, at most 20 s) ..."
                if sys.stderr.isatty():
                    print(message, file=sys.stderr)
                else:
                    log.info(message)

        def on_end(self, event: Any) -> None:
            pass

    event.register("numba:compile", _Notice())
