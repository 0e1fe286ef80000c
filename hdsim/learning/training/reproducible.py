"""PyTorch whose results are the same bytes at each run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def reproducible() -> Iterator[None]:
    """Makes PyTorch reproducible bit by bit: deterministic algorithms, one thread."""
    deterministic, threads = torch.are_deterministic_algorithms_enabled(), torch.get_num_threads()
    # Of this mode the filling of new memory, which is written before it is read, costs time and changes nothing.
    memory: Any = torch.utils.deterministic
    filled, memory.fill_uninitialized_memory = memory.fill_uninitialized_memory, False
    # Required by CUDA; read at its first use.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(deterministic)
        torch.set_num_threads(threads)
        memory.fill_uninitialized_memory = filled
