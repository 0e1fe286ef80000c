"""The reason why a run has no results."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from pathlib import Path

from hdsim.errors import BackendError, HdsimError
from hdsim.results.run_directory.inputs import is_own_code
from hdsim.util.files import shown


@dataclass(frozen=True)
class Failure:
    """Why a run has no results, in words that can be sent between processes and kept in a manifest.

    Attributes:
        kind: Type of the exception, "killed" or "interrupted".
        where: The configuration key or file at fault, else file and line of the user's own code; None if unknown.
        simulated_time: Time in the replay, in seconds; None outside one.
        is_mistake: A mistake in the configuration or an input, rather than a fault of a program.
    """

    kind: str
    message: str
    where: str | None = None
    simulated_time: float | None = None
    is_mistake: bool = False

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """Describes an exception."""
        simulated = getattr(error, "simulated_time", None)
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if is_own_code(frame.filename)]
        place = own or (() if isinstance(error, HdsimError) else frames)
        where = f"{shown(Path(place[-1].filename))}:{place[-1].lineno}" if place else None
        if isinstance(error, HdsimError):
            mistake = not isinstance(error, BackendError) or error.is_mistake
            return cls(type(error).__name__, error.message, error.where or where, simulated, mistake)
        if isinstance(error, KeyboardInterrupt):
            return cls("interrupted", str(error) or "interrupted", None, simulated)
        if isinstance(error, OSError) and error.filename and error.strerror and not own:
            # The file says more than the line of a library that opened it.
            return cls(type(error).__name__, error.strerror, shown(Path(str(error.filename))), simulated)
        return cls(type(error).__name__, str(error), where, simulated)

    def __str__(self) -> str:
        """The message, with the place of a mistake."""
        return f"{self.where}: {self.message}" if self.where and self.is_mistake else self.message
