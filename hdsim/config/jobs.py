"""Runs as jobs of Hydra: with ``.hydra``, in the directory and the environment that it sets, and with its callbacks."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partialmethod
from typing import Any, TypeVar, cast

from hydra import version as hydra_version
from hydra.core.utils import run_job, setup_globals
from hydra.types import HydraContext, RunMode
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from hdsim.config.composer import FAULTS, explained
from hdsim.errors import ConfigError

hydra_version.setbase("1.3")

_Result = TypeVar("_Result")


class Callbacks:
    """The callbacks of a configuration (``hydra.callbacks``).

    Raises:
        ConfigError: One of them cannot be made.
    """

    def __init__(self, composed: DictConfig) -> None:
        with explained("hydra.callbacks", lambda error: " ".join(str(error).split())):
            named = OmegaConf.select(composed, "hydra.callbacks") or {}
            self._callbacks = [instantiate(settings) for settings in named.values()]

    def _call(self, event: str, **facts: Any) -> None:
        """Calls a method of the callbacks, at an end in reverse order; their errors become warnings."""
        for callback in self._callbacks[:: -1 if event.endswith("_end") else 1]:
            try:
                getattr(callback, event)(**facts)
            except Exception as error:
                name = f"{type(callback).__name__}.{event}"
                warnings.warn(f"Callback {name} raised {type(error).__name__}: {error}", stacklevel=2)

    on_job_start = partialmethod(_call, "on_job_start")
    on_job_end = partialmethod(_call, "on_job_end")
    on_multirun_end = partialmethod(_call, "on_multirun_end")


def call_as_job(composed: DictConfig, function: Callable[[], _Result]) -> _Result:
    """Calls a function as a job of Hydra.

    Raises:
        ConfigError: Hydra cannot apply its own settings.
    """
    swept = composed.hydra.mode is RunMode.MULTIRUN
    setup_globals()
    context = HydraContext(config_loader=cast(Any, None), callbacks=cast(Any, Callbacks(composed)))
    raised: list[Exception] = []

    def task(_: DictConfig) -> _Result:
        try:
            return function()
        except Exception as error:
            raised.append(error)
            raise

    try:
        place, inside = ("hydra.sweep.dir", "hydra.sweep.subdir") if swept else ("hydra.run.dir", None)
        job = run_job(task, composed, place, inside, context)
    except FAULTS as error:
        raise ConfigError("expected settings that Hydra takes, a text for verbose", where="hydra") from error
    # Hydra prints a line of its own before it raises the exception that the job keeps.
    if raised:
        raise raised[0]
    return cast(_Result, job.return_value)
