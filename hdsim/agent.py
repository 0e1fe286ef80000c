"""What an agent is, and how one is found by name, by file, by class or by an installed package."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from hdsim.errors import ConfigError, nearest

if TYPE_CHECKING:
    from hdsim.policies.orders import JobOrder
    from hdsim.state import Cluster

#: Installed packages register agents in this entry point group.
ENTRY_POINTS = "hdsim.agents"
_CLASSIC = "hdsim.agents.classic.ClassicAgent"


class Agent:
    """Base class of schedulers: something that looks at a cluster and starts jobs.

    Subclass it, give `decide` a body, and put the file's path into ``agent.path``. The same object works on every
    backend, because all it ever sees is a :class:`hdsim.state.Cluster`.

    Attributes:
        core_policy: Core policy that ``cluster.pick(job)`` uses where it is given no other.
        fixed_policy: True if the agent never asks ``pick`` for another core policy; the state is then kept in a
            quicker form.
        strict_order: The fixed order of the queue, if serving it strictly is all this agent does.
    """

    core_policy: str = "high_gflops"
    fixed_policy: bool = False
    strict_order: JobOrder | None = None

    def begin(self, cluster: Cluster) -> None:
        """Called once before the first event of a replay."""

    def decide(self, cluster: Cluster) -> None:
        """Called at every instant at which jobs arrived or ended; starts jobs with ``cluster.start``."""
        raise NotImplementedError


class _Shorthand:
    """Agents that go by one word, and words joined by hyphens: backfilling, job policy, core policy."""

    FIXED: ClassVar[dict[str, dict[str, str]]] = {
        "easy": {"job_policy": "fcfs", "backfill": "easy"},
        "conservative": {"job_policy": "fcfs", "backfill": "conservative"},
        "easy-sjbf": {"job_policy": "fcfs", "backfill": "easy", "backfill_order": "sjf"},
        "void": {"job_policy": "void"},
    }


def parse_name(name: str) -> dict[str, Any]:
    """Turns an agent's short name into the configuration of a classic agent.

    ``sjf``, ``shortest-high_gflops``, ``easy``, ``easy-saf``, ``conservative-sjf``, ``easy-sjf-low_power``, ``void``.

    Raises:
        ConfigError: The name is none of these.
    """
    from hdsim.cores import CORE_POLICIES
    from hdsim.policies.backfill import BACKFILLS
    from hdsim.policies.orders import ORDERS

    if name in _Shorthand.FIXED:
        return dict(_Shorthand.FIXED[name])
    config: dict[str, Any] = {}
    words = name.split("-")
    for key, allowed in (("backfill", BACKFILLS), ("job_policy", ORDERS), ("core_policy", CORE_POLICIES)):
        if words and words[0] in allowed:
            config[key] = words.pop(0)
    if words or "job_policy" not in config:
        wrong = words[0] if words else name
        known = [*_Shorthand.FIXED, *ORDERS, *(CORE_POLICIES if config else ())]
        raise ConfigError(
            f"expected an agent such as fcfs, shortest-high_gflops, easy, easy-saf or conservative, got '{name}': "
            f"'{wrong}' is none of {', '.join(known)}{nearest(wrong, known)}",
            where="agent",
        )
    return config


def make_agent(spec: str | Mapping[str, Any] | Agent) -> Agent:
    """Makes an agent.

    Args:
        spec: An agent object (returned as it is), a short name (see :func:`parse_name`, or one registered by an
            installed package in the entry point group ``hdsim.agents``), or a mapping with ``path`` (a
            Python file with one `Agent` subclass), ``_target_`` (``package.Class``) or the settings of a classic agent.
            Every further key of a mapping is passed to the constructor.

    Raises:
        ConfigError: The agent cannot be found or does not take the settings.
    """
    if isinstance(spec, Agent):
        return spec
    if isinstance(spec, str):
        try:
            settings = parse_name(spec)
        except ConfigError:
            installed = {entry.name: entry for entry in entry_points(group=ENTRY_POINTS)}
            if spec not in installed:
                raise
            return _construct(installed[spec].load(), {}, spec)
        return _construct(_by_target(_CLASSIC), settings, spec)
    if not isinstance(spec, Mapping):
        raise ConfigError(f"expected a name, a mapping or an Agent, got {type(spec).__name__}", where="agent")
    settings = dict(spec)
    path, target = settings.pop("path", None), settings.pop("_target_", None)
    if path:
        return _construct(_by_path(Path(str(path))), settings, str(path))
    target = str(target or _CLASSIC)
    return _construct(_by_target(target), settings, target)


def _construct(made: Any, settings: Mapping[str, Any], name: str) -> Agent:
    if not (inspect.isclass(made) and issubclass(made, Agent)):
        raise ConfigError(
            f"expected a subclass of hdsim.Agent, got {getattr(made, '__name__', made)}", where=f"agent '{name}'"
        )
    try:
        inspect.signature(made).bind(**settings)
    except TypeError as error:
        allowed = [key for key in inspect.signature(made).parameters if key != "self"]
        unknown = next((key for key in settings if key not in allowed), None)
        hint = nearest(unknown, allowed) if unknown else ""
        raise ConfigError(
            f"agent '{name}': {error}{hint}; allowed keys: {', '.join(allowed) or 'none'}", where="agent"
        ) from None
    agent: Agent = made(**settings)
    return agent


def _by_target(target: str) -> Any:
    module_name, _, attribute = target.rpartition(".")
    if not module_name:
        raise ConfigError(f"expected 'package.Class', got '{target}'", where="agent._target_")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ConfigError(f"cannot import '{module_name}': {error}", where="agent._target_") from None
    if not hasattr(module, attribute):
        classes = [name for name, value in vars(module).items() if inspect.isclass(value)]
        raise ConfigError(f"'{module_name}' has no '{attribute}'{nearest(attribute, classes)}", where="agent._target_")
    return getattr(module, attribute)


def _by_path(path: Path) -> type[Agent]:
    if not path.is_file():
        raise ConfigError(f"expected a Python file with an Agent subclass, found no file '{path}'", where="agent.path")
    module_spec = importlib.util.spec_from_file_location(f"hdsim_agent_{path.stem}", path)
    if module_spec is None or module_spec.loader is None:
        raise ConfigError(f"expected a Python file (.py), got '{path}'", where="agent.path")
    module = importlib.util.module_from_spec(module_spec)
    try:
        module_spec.loader.exec_module(module)
    except Exception as error:
        raise ConfigError(f"'{path}' cannot be loaded: {type(error).__name__}: {error}", where="agent.path") from error
    found = [
        value
        for value in vars(module).values()
        if inspect.isclass(value) and issubclass(value, Agent) and value.__module__ == module.__name__
    ]
    if len(found) != 1:
        names = ", ".join(value.__name__ for value in found) or "none"
        raise ConfigError(f"expected exactly one Agent subclass in '{path}', found {names}", where="agent.path")
    return found[0]
