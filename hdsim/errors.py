"""Exceptions for faults that a user can cause; the commands print each as one message.

HdsimError
  PlatformError   a platform file or its types
  WorkloadError   a trace, a workload file or a generator's parameters
  ConfigError     a configuration key, an agent name, a command's argument
  DecisionError   a decision of an agent that cannot be carried out
  BackendError    a failure of an external system
"""

from __future__ import annotations

import difflib
import errno
from collections.abc import Iterable, Sequence
from importlib.machinery import EXTENSION_SUFFIXES
from typing import Any, Self

#: Errors of files that are mistakes of the user, unlike a full disk.
_MISTAKES = (
    errno.ENOENT,
    errno.EACCES,
    errno.EPERM,
    errno.EEXIST,
    errno.EISDIR,
    errno.ENOTDIR,
    errno.EROFS,
    errno.ELOOP,
    errno.ENAMETOOLONG,
)


def is_mistake(error: OSError) -> bool:
    """Whether a wrong path has led to an error of the system, and not a full disk or the like."""
    return error.errno in _MISTAKES


class HdsimError(Exception):
    """A fault that is reported to the user without a traceback.

    Args:
        message: Expected value, actual value and allowed values.
        where: File and line, or configuration key, of the fault.
    """

    def __init__(self, message: str, *, where: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.errors: tuple[HdsimError, ...] = (self,)

    def __str__(self) -> str:
        return f"{self.where}: {self.message}" if self.where else self.message

    @classmethod
    def many(cls, errors: Sequence[HdsimError]) -> Self:
        """Joins all faults of one file in a single error; its text has one line for each."""
        if len(errors) == 1 and isinstance(errors[0], cls):
            return errors[0]
        joined = cls("\n".join(str(error) for error in errors))
        joined.errors = tuple(errors)
        return joined


class PlatformError(HdsimError):
    """A platform file cannot be used."""


class WorkloadError(HdsimError):
    """A workload cannot be used."""


class ConfigError(HdsimError):
    """A configuration value or a command's argument cannot be used."""


class DecisionError(HdsimError):
    """An agent's decision cannot be carried out."""


class NoMoreJobs(HdsimError):
    """No jobs come any more from the system whose jobs a training learns from."""


class BackendError(HdsimError):
    """An external system (Batsim, Kubernetes, Slurm, Ray) failed or does not answer.

    Attributes:
        result: The replay until then (a :class:`hdsim.results.result.Result`), if there was one.
        is_mistake: The system has refused what the user asked for, rather than failed.
    """

    result: Any = None
    is_mistake: bool = False


#: Import names of optional packages by the extra that installs them.
_EXTRAS = {
    "batsim": ("zmq",),
    "bsp": ("kazoo", "sklearn", "statsforecast"),
    "frames": ("pandas", "polars", "pyarrow"),
    "kwok": ("aiohttp", "durationpy", "kubernetes", "prometheus_client", "psutil", "rich"),
    "minari": ("h5py", "minari"),
    "ray": ("ray",),
    "rl": ("gymnasium", "sb3_contrib", "safetensors", "stable_baselines3", "tensorboard", "torch", "torch_geometric"),
    "slurm": ("ClusterShell", "pydantic"),
    "tune": ("optuna",),
}


def unloadable(error: BaseException | None) -> ImportError | None:
    """Returns the error of a compiled library that the system cannot load, for lack of memory say, among the causes."""
    while error is not None:
        if isinstance(error, ImportError) and str(error.path).endswith(tuple(EXTENSION_SUFFIXES)):
            return error
        error = error.__cause__ or error.__context__
    return None


def install_hint(module: str | None) -> str:
    """Returns ``": pip install 'hdsim[rl]'"`` for a missing module of the extra rl, or an empty string."""
    package = str(module).partition(".")[0]
    return next((f": pip install 'hdsim[{extra}]'" for extra, names in _EXTRAS.items() if package in names), "")


class PluginError(HdsimError):
    """A plug-in has ended the program, by sys.exit for example."""


class InvariantError(AssertionError):
    """The state of a replay contradicts itself: a fault of hdsim or a backend, or an agent that changes the state."""


def require(holds: object, invariant: str) -> None:
    """Checks an invariant, also where ``python -O`` drops assertions.

    Raises:
        InvariantError: It does not hold.
    """
    if not holds:
        raise InvariantError(invariant)


def nearest(name: str, allowed: Iterable[str], cutoff: float = 0.5) -> str:
    """Returns ``" (did you mean 'x'?)"`` for the closest allowed name, or an empty string.

    Case decides between names that are the same otherwise, such as Gbps and GBps.

    Args:
        name: The name.
        allowed: The allowed ones.
        cutoff: Least likeness, greater where the name may be one that is not allowed.
    """
    text, names = str(name), list(allowed)
    close = difflib.get_close_matches(text.lower(), [each.lower() for each in names], n=1, cutoff=cutoff)
    if not close:
        return ""
    same = [each for each in names if each.lower() == close[0]]
    best = max(same, key=lambda each: difflib.SequenceMatcher(None, text, each).ratio())
    return f" (did you mean '{best}'?)"


def not_one_of(value: object, allowed: Iterable[str]) -> str:
    """Returns the message about a value that is none of the allowed ones, with the closest of them."""
    allowed = tuple(allowed)
    return f"expected one of {', '.join(allowed)}, got '{value}'{nearest(str(value), allowed)}"
