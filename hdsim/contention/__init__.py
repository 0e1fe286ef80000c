"""Contention models: how much slower the jobs that share a processor run. One file a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from hdsim.platform import Platform


class Contention(Protocol):
    """A contention model, made once a replay for one platform.

    A model is a class in a file of its own whose constructor takes the platform (and the settings of its file in
    ``conf/contention``). The engine asks it again whenever a job starts or ends on a processor.
    """

    def __init__(self, platform: Platform) -> None: ...

    def speeds(self, processor: int, cores: Sequence[int], demands: Sequence[float]) -> float | Sequence[float]:
        """Relative speed of the jobs on a processor.

        Args:
            processor: Processor index.
            cores: Busy cores of each job on the processor.
            demands: Memory bandwidth each of those jobs asks for, GB/s a core.

        Returns:
            Share of peak speed in (0, 1]: one float for all jobs, or one for each of them. A model returns always the
            one or always the other.
        """
