"""One core for two processes that take turns."""

from __future__ import annotations

import ctypes
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

log = logging.getLogger(__name__)


@contextmanager
def one_core(wanted: bool | None) -> Iterator[None]:
    """Keeps this thread, and what it starts meanwhile, on one core: that which it runs on.

    Of two processes that take turns only one has something to do at a time, and waking a process up is much cheaper
    on a core that is awake. What cannot be done is left undone.

    Args:
        wanted: None means: unless PyTorch is there, whose threads want cores of their own.
    """
    allowed: set[int] = set()
    try:
        if wanted or (wanted is None and "torch" not in sys.modules):
            allowed = os.sched_getaffinity(0)
            here = ctypes.CDLL(None).sched_getcpu()
            os.sched_setaffinity(0, {here} if here in allowed else {min(allowed)})
    except (AttributeError, OSError) as error:
        # AttributeError: only Linux has these calls.
        allowed = set()
        if wanted:
            log.warning("this system does not let hdsim choose a core: %s", error)
    try:
        yield
    finally:
        if allowed:
            os.sched_setaffinity(0, allowed)
