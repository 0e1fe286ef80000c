"""Two adaptations of numba that save time, by names that numba does not promise to keep; kernels work without them."""

from __future__ import annotations

import contextlib
import logging
from typing import Any

log = logging.getLogger(__name__)

#: Options of ``numba.njit`` for functions that only kernels call.
PART_OPTIONS: dict[str, Any] = {}
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

        def _optimize_final_module(self) -> None:
            pass

        def _finalize_final_module(self) -> None:
            self._finalized = True

        def get_pointer_to_function(self, name: str) -> int:
            return 0

        @property
        def codegen(self) -> Any:
            return self

        def set_env(self, name: str, environment: Any) -> None:
            """Sets nothing: the kernels have their own."""

    class _PartCompiler(CompilerBase):
        def define_pipelines(self) -> list[Any]:
            self.state.library = _PartLibrary(self.state.targetctx.codegen(), "part")
            return [DefaultPassBuilder.define_nopython_pipeline(self.state)]

    class _QuickCache(FunctionCache):
        """Loads machine code without numba's imports for a compilation, which take a third of a second."""

        def load_overload(self, sig: Any, target_context: Any) -> Any:
            rtsys.initialize(target_context)
            try:
                return super().load_overload(sig, target_context.subtarget(refresh=lambda: None))
            except Exception as error:  # a file that a power cut has damaged: the kernel is compiled again
                log.info("damaged machine code: %s", error)
                with contextlib.suppress(OSError):
                    self.flush()
                return None

    PART_OPTIONS["pipeline_class"], _quick_cache = _PartCompiler, _QuickCache


def load_quickly(kernel: Any) -> None:
    """Has a kernel loaded from the folder in which numba keeps machine code now."""
    if _quick_cache is not None:
        kernel._cache = _quick_cache(kernel.py_func)
