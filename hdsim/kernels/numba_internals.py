"""Two adaptations of numba that save time, by names that numba does not promise to keep; kernels work without them."""

from __future__ import annotations

import contextlib
import logging
from typing import Any

from hdsim.kernels.cache import locked

log = logging.getLogger(__name__)

PART_OPTIONS: dict[str, Any] = {}  # of ``numba.njit``, for functions that only kernels call
_quick_cache: Any = None

try:
    from numba.core.caching import FunctionCache
    from numba.core.codegen import JITCodeLibrary
    from numba.core.compiler import CompilerBase, DefaultPassBuilder
    from numba.core.runtime import rtsys

    _REPLACED = JITCodeLibrary._optimize_final_module, JITCodeLibrary._finalize_final_module
except (ImportError, AttributeError) as error:
    log.warning("numba has other internals (%s): kernels take longer to compile and to load", error)
else:

    class _PartLibrary(JITCodeLibrary):
        """A part of kernels, optimised and translated to machine code within these alone."""

        def _optimize_final_module(self, *_: Any) -> None:
            """Does nothing: only the kernels are optimised, and have an environment."""

        set_env = _optimize_final_module
        codegen = property(lambda self: self)

        def _finalize_final_module(self) -> None:
            self._finalized = True

        def get_pointer_to_function(self, name: str) -> int:
            return 0

    class _PartCompiler(CompilerBase):
        def define_pipelines(self) -> list[Any]:
            self.state.library = _PartLibrary(self.state.targetctx.codegen(), "part")
            return [DefaultPassBuilder.define_nopython_pipeline(self.state)]

    class _QuickCache(FunctionCache):
        """Loads machine code without numba's imports for a compilation, which take a third of a second."""

        def load_overload(self, sig: Any, target_context: Any) -> Any:
            rtsys.initialize(target_context)
            with locked(self.cache_path), contextlib.suppress(OSError):
                try:
                    return super().load_overload(sig, target_context.subtarget(refresh=lambda: None))
                except Exception as error:  # a file that a power cut has damaged: the kernel is compiled again
                    log.info("damaged machine code: %s", error)
                    self.flush()
            return None

        def save_overload(self, sig: Any, data: Any) -> None:
            with locked(self.cache_path):
                super().save_overload(sig, data)

    PART_OPTIONS["pipeline_class"], _quick_cache = _PartCompiler, _QuickCache


def load_quickly(kernel: Any) -> None:
    """Has a kernel loaded from the folder in which numba keeps machine code now, and kept there."""
    if _quick_cache is not None:
        kernel._cache = _quick_cache(kernel.py_func)
