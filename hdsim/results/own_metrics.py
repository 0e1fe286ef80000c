"""Metrics of one's own: functions of a result, in a file or an installed package."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from traceback import extract_tb
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hdsim.errors import ConfigError, PluginError, nearest, not_one_of
from hdsim.results.metrics import Direction, Metric, is_built_in, register, statistics
from hdsim.util.plugins import imported, installed, loaded
from hdsim.util.resources import near_file

if TYPE_CHECKING:
    from hdsim.results.replay import FullReplay

_MARK = "hdsim_metric"
_BETTER = {str(direction.name).lower(): direction for direction in Direction}


class OwnMetric(NamedTuple):
    """A metric of a user.

    Attributes:
        name: Its key in metrics.json; of an array of values, the part behind ``mean_`` and so on.
        function: Computes it from a result.
        metric: Its unit, direction and description.
    """

    name: str
    function: Callable[[FullReplay], Any]
    metric: Metric


def metric(function: Any = None, *, unit: str = "", better: str = "neither") -> Any:
    """Decorator that makes a metric of a function, named by the function and described by its docstring's first line.

    The function takes a :class:`hdsim.Result` and returns a number, None (not defined) or an array, a value for each
    job that counts, whose mean, median, 95th and 99th percentile and maximum are metrics then.

    Args:
        function: The function, of ``@metric`` without parentheses.
        unit: Unit, empty for a pure number.
        better: Which values are better: ``lower``, ``higher`` or ``neither``.

    Raises:
        ConfigError: `better` is none of these words.
    """
    if better not in _BETTER:
        raise ConfigError(not_one_of(better, _BETTER), where="better")

    def mark(marked: Any) -> Any:
        text = (inspect.getdoc(marked) or "").partition("\n")[0].rstrip(".")
        setattr(marked, _MARK, Metric(unit, _BETTER[better], text))
        return marked

    return mark if function is None else mark(function)


def load_metrics(names: str | Sequence[str] | None) -> list[OwnMetric]:
    """Loads the metrics that the key ``metrics`` of a configuration names, and makes their units and directions known.

    Args:
        names: Python files, functions as ``package.module:function``, and entry points of the group ``hdsim.metrics``.

    Raises:
        ConfigError: One is not found, is no metric, or has the name of another.
    """
    found: dict[str, OwnMetric] = {}
    for text in [names] if isinstance(names, str) else names or ():
        for own in _in_file(Path(text)) if text.endswith(".py") else [_function(text)]:
            if is_built_in(own.name):
                raise ConfigError(
                    f"expected another name than that of a metric of hdsim, got '{own.name}'", where=_key(text)
                )
            if own.name in found and found[own.name].function is not own.function:
                raise ConfigError(f"expected different names of metrics, got '{own.name}' twice", where=_key(text))
            found[own.name] = own
    register({own.name: own.metric for own in found.values()})
    return list(found.values())


def evaluate(metrics: Iterable[OwnMetric], result: FullReplay) -> tuple[dict[str, float], list[PluginError]]:
    """Computes metrics of a replay.

    Returns:
        Values by name, NaN where one is not defined or has failed, and the failures.
    """
    values: dict[str, float] = {}
    faults = []
    for own in metrics:
        try:
            found = _numbers(own.name, own.function(result))
            if twice := sorted(found.keys() & values):
                raise PluginError(f"expected different names of metrics, got '{twice[0]}' twice")
            values |= found
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # sys.exit in a plug-in ends no program of hdsim
            frame = next((each for each in reversed(extract_tb(error.__traceback__)) if _is_of(own, each)), None)
            place = frame and f"{frame.filename}:{frame.lineno}"
            words = error.message if isinstance(error, PluginError) else f"{type(error).__name__}: {error}"
            values.setdefault(own.name, math.nan)
            faults.append(PluginError(f"metric '{own.name}': {words}", where=place))
    return values, faults


def described(metrics: Iterable[OwnMetric]) -> dict[str, dict[str, str]]:
    """Returns the entry of a manifest: unit, direction and description of each metric by its name."""
    return {
        own.name: {
            "unit": own.metric.unit,
            "better": own.metric.direction.name.lower(),
            "description": own.metric.description,
        }
        for own in metrics
    }


def recorded(entries: Mapping[str, Any]) -> dict[str, Metric]:
    """Reads what :func:`described` has written to a manifest, without what is damaged."""
    return {
        name: Metric(
            str(entry.get("unit", "")),
            _BETTER.get(str(entry.get("better")), Direction.NEITHER),
            str(entry.get("description", "")),
        )
        for name, entry in entries.items()
        if isinstance(entry, Mapping) and not is_built_in(name)
    }


def _key(text: str) -> str:
    return f"metrics '{text}'"


def _of(function: Any, text: str) -> OwnMetric:
    if not (callable(function) and isinstance(getattr(function, _MARK, None), Metric)):
        raise ConfigError(f"expected a function marked with @hdsim.metric, got {function!r}", where=_key(text))
    return OwnMetric(function.__name__, function, getattr(function, _MARK))


def _in_file(path: Path) -> list[OwnMetric]:
    if not path.is_file():
        message = f"expected a Python file, found no file '{path}'{near_file(path, ('.py',))}"
        raise ConfigError(message, where="metrics")
    module = loaded(path, f"hdsim_metrics_{path.stem}", where="metrics")
    marked = [value for value in vars(module).values() if isinstance(getattr(value, _MARK, None), Metric)]
    if not marked:
        functions = [name for name, value in vars(module).items() if inspect.isfunction(value)]
        raise ConfigError(
            f"expected a function marked with @hdsim.metric, found functions: {', '.join(functions) or 'none'}",
            where=_key(str(path)),
        )
    return [_of(function, str(path)) for function in dict.fromkeys(marked)]


def _function(text: str) -> OwnMetric:
    """Returns the metric of an entry point, or of ``package.module:function``."""
    registered = {entry.name: entry.value for entry in installed("metric")}
    module_name, separator, name = registered.get(text, text).partition(":")
    if not separator:
        raise ConfigError(
            f"expected a Python file (my_metrics.py), a function (package.module:function) or a metric of an installed "
            f"package, got '{text}'; installed: {', '.join(registered) or 'none'}",
            where="metrics",
        )
    module = imported(module_name, where=_key(text))
    if not hasattr(module, name):
        raise ConfigError(f"'{module_name}' has no '{name}'{nearest(name, vars(module))}", where=_key(text))
    own = _of(getattr(module, name), text)
    return own._replace(name=text) if text in registered else own


def _numbers(name: str, value: Any) -> dict[str, float]:
    if value is None:
        return {name: math.nan}
    array = np.asarray(value)
    if array.dtype.kind not in "biuf" or array.ndim > 1:
        raise PluginError(f"expected a number, None or an array of numbers, got {type(value).__name__}")
    if np.isinf(array).any():
        raise PluginError("expected finite numbers, got inf")
    return {name: float(array)} if array.ndim == 0 else statistics(name, array.astype(float))


def _is_of(own: OwnMetric, frame: Any) -> bool:
    file = inspect.getsourcefile(inspect.unwrap(own.function))
    return frame.filename == file
