"""What an agent is, and how one is found by name, by file, by class or by an installed package."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from hdsim.errors import ConfigError, nearest
from hdsim.util.plugins import PluginType, installed

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster
    from hdsim.scheduling.orders import JobOrder

_CLASSIC = "hdsim.agents.classic.ClassicAgent"


class Agent:
    """Base class of schedulers: something that looks at a cluster and starts jobs.

    Subclass it, give `decide` a body, and put the file's path into ``agent.path``. The same object works on every
    backend, because all it ever sees is a :class:`hdsim.cluster.state.Cluster`.

    Attributes:
        core_policy: Core policy that ``cluster.pick(job)`` uses where it is given no other.
        fixed_policy: True if the agent never asks ``pick`` for another core policy; the state is then kept in a
            quicker form.
        core_policies: All core policies that it asks ``pick`` for, if it looks at nothing else of the cores; to the
            same end. Empty = it may ask for anything.
        strict_order: The fixed order of the queue, if serving it strictly is all this agent does.
    """

    core_policy: str = "high_gflops"
    fixed_policy: bool = False
    core_policies: Collection[str] = ()
    strict_order: JobOrder | None = None

    def begin(self, cluster: Cluster) -> None:
        """Called once before the first event of a replay."""

    def decide(self, cluster: Cluster) -> None:
        """Called at every instant at which jobs arrived or ended; starts jobs with ``cluster.start``."""
        raise NotImplementedError


_KIND = PluginType("agent", Agent, "hdsim.Agent")


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
    from hdsim.cluster.selection import CORE_POLICIES
    from hdsim.scheduling.backfill import BACKFILLS
    from hdsim.scheduling.orders import ORDERS

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
            found = installed("agent").select(name=spec)
            if not found:
                raise
            agent: Agent = _KIND.construct(found[spec].load(), spec)
            return agent
        spec = settings
    if not isinstance(spec, Mapping):
        raise ConfigError(f"expected a name, a mapping or an Agent, got {type(spec).__name__}", where="agent")
    agent = _KIND.make(spec, default=_CLASSIC)
    return agent
