"""The agent interface; agents by name, by file, by class and by installed package."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hdsim.cluster.policies import CORE_POLICIES, SCORES
from hdsim.errors import ConfigError, DecisionError, nearest
from hdsim.scheduling.rules import UNLIMITED, name_and_depth, rule_label
from hdsim.util.copies import itself
from hdsim.util.plugins import PluginType, fault_of_call, installed, short_name
from hdsim.util.rules import texts

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster
    from hdsim.scheduling.orders import JobOrder
    from hdsim.workload.model import Workload

log = logging.getLogger(__name__)

_CLASSIC = "hdsim.agents.classic.ClassicAgent"
#: Classes of which `_tell_of_methods` has told.
_told: set[str] = set()


class Agent:
    """Base class of schedulers.

    A subclass implements `decide`; ``agent.path`` selects its file. An agent works on every backend, since it uses only
    a :class:`hdsim.cluster.state.Cluster`.

    Attributes:
        core_policy: Default core policy of ``cluster.pick(job)``.
        fixed_policy: Whether the agent never passes another core policy to ``pick``, which permits a faster store.
        core_policies: All core policies that the agent passes to ``pick`` if it reads nothing else of the cores, which
            permits a faster store. Empty for no restriction.
        observes_nodes: Whether decisions depend on an observation of all nodes, those without free resources included.
    """

    core_policy: str = "high_gflops"
    fixed_policy: bool = False
    core_policies: Collection[str] = ()
    observes_nodes: bool = False

    def begin(self, cluster: Cluster) -> None:
        """Prepares the agent; called once, before the first event of a replay or where it takes over in the middle."""

    def decide(self, cluster: Cluster) -> None:
        """Starts jobs with ``cluster.start``; called at every instant at which jobs arrive or end."""
        raise DecisionError(f"expected a method decide(self, cluster) of agent {type(self).__name__}, found none")


class FunctionAgent(Agent):
    """An agent that is one function.

    Args:
        function: Carries out a pass as `decide` does, with the cluster as its argument.
    """

    def __init__(self, function: Callable[[Cluster], object]) -> None:
        self.function = function

    @classmethod
    def of(cls, function: Callable[[Cluster], object]) -> type[FunctionAgent]:
        """Returns the class of agents of a function, without arguments."""

        class OfFunction(cls):  # type: ignore[misc, valid-type]
            def __init__(self) -> None:
                super().__init__(function)

        OfFunction.__name__ = function.__name__
        return OfFunction

    def decide(self, cluster: Cluster) -> None:
        """Calls the function."""
        self.function(cluster)


@dataclass(frozen=True)
class StockRules:
    """All that a classic agent does besides choosing cores.

    Attributes:
        order: Order of the queue.
        candidates: Order in which backfilling tries jobs, None for `order`.
        backfill: Name of the backfilling algorithm.
        depth: Jobs to which its plan gives reservations.
        commit_head: Once a job is the head it stays the head until it starts.
        estimates: Source of the run times that the scheduler expects, see :mod:`hdsim.scheduling.estimates`.
    """

    order: JobOrder
    candidates: JobOrder | None
    backfill: str
    commit_head: bool
    estimates: str = "requested"
    depth: int = UNLIMITED

    __deepcopy__ = itself

    @property
    def static(self) -> bool:
        """Whether no order depends on time or state."""
        predicted = self.estimates == "last_two"
        return not (predicted or self.order.dynamic or (self.candidates is not None and self.candidates.dynamic))

    def known(self, workload: Workload) -> Workload:
        """Returns a workload as static rules see it."""
        return workload.replaced(requested_time=workload.runtime) if self.estimates == "actual" else workload


def stock_rules(agent: Agent) -> StockRules | None:
    """Returns the rules of a stock classic agent, None for another agent and for one that starts nothing.

    A subclass that overrides a method, which may do anything else, is another agent, as is an object whose methods have
    been replaced, and one whose backfilling is not part of hdsim.
    """
    kind = type(agent)
    classic = next((each for each in kind.__mro__ if f"{each.__module__}.{each.__qualname__}" == _CLASSIC), None)
    if classic is None:
        return None
    inherited = vars(Agent) | vars(classic)
    methods = {name for name, value in inherited.items() if callable(value) and not name.startswith("__")}
    methods |= {"__getattribute__", "__getattr__", "rules"}
    own = {name for name in methods if getattr(kind, name, None) is not getattr(classic, name, None)}
    own |= (methods - {"rules"}) & vars(agent).keys()
    if own:
        _tell_of_methods(kind, ", ".join(sorted(own)))
        return None
    rules: StockRules | None = getattr(agent, "rules", None)
    return rules if rules is not None and rules.backfill in BACKFILLS else None


def _tell_of_methods(kind: type, names: str) -> None:
    """Tells once that agents of a class are replayed by events."""
    name = f"{kind.__module__}.{kind.__qualname__}"
    if name in _told:
        return
    _told.add(name)
    log.info("%s is replayed by events, not in compiled code: it has its own %s", kind.__qualname__, names)


_KIND = PluginType("agent", Agent, "hdsim.Agent", of_function=FunctionAgent.of)


#: Backfilling algorithms, with the rule of each.
BACKFILLS = {
    "none": "no job overtakes another",
    "easy": "the head of the queue has a reservation, which no job may delay",
    "conservative": "every job has a reservation in order, made anew when jobs end early or late",
    "rlscheduler": "that of RLScheduler's code: the head is reserved once, no spare cores, a strict comparison",
    "greedy": "whatever fits starts, in order, without reservations, as in Kubernetes",
    "hybrid": "the first jobs have reservations: 64, or as many as `hybrid4` or the number 4 says",
}


#: Keys that name an order or a core policy, or a file with one.
_POLICIES = ("job_policy", "backfill_order", "core_policy")
#: Single words; other short names are backfilling, job policy and core policy joined by hyphens.
SHORT_NAMES: dict[str, dict[str, str]] = {
    "easy": {"job_policy": "fcfs", "backfill": "easy"},
    "conservative": {"job_policy": "fcfs", "backfill": "conservative"},
    "easy++": {"job_policy": "fcfs", "backfill": "easy", "backfill_order": "sjf", "estimates": "last_two"},
    "easy-sjbf": {"job_policy": "fcfs", "backfill": "easy", "backfill_order": "sjf"},
    "greedy": {"job_policy": "fcfs", "backfill": "greedy"},
    "void": {"job_policy": "void"},
}


def parse_name(name: str) -> dict[str, Any]:
    """Turns an agent's short name into the configuration of a classic agent.

    ``sjf``, ``shortest-high_gflops``, ``easy``, ``easy-saf``, ``conservative-sjf``, ``easy-sjf-low_power``, ``void``;
    ``least_allocated`` and the other scores of kube-scheduler alone, which serve pods as it does.

    Raises:
        ConfigError: The name is none of these.
    """
    from hdsim.scheduling.orders import ORDERS

    if name in SHORT_NAMES:
        return dict(SHORT_NAMES[name])
    if name in SCORES:
        return {"job_policy": "priority", "backfill": "greedy", "core_policy": name}
    config: dict[str, Any] = {}
    words = name.split("-")
    if words[0].isidentifier() and name_and_depth(words[0])[0] == "hybrid":
        config["backfill"] = words.pop(0)
        words = words or ["fcfs"]
    for key, allowed in (("backfill", BACKFILLS), ("job_policy", ORDERS), ("core_policy", CORE_POLICIES)):
        # Names such as wfp3-bug are two words.
        for count in (2, 1):
            if key not in config and "-".join(words[:count]) in allowed:
                config[key] = "-".join(words[:count])
                del words[:count]
    if words or "job_policy" not in config:
        wrong = words[0] if words else name
        known = [*SHORT_NAMES, *ORDERS, *(CORE_POLICIES if config else SCORES)]
        raise ConfigError(
            f"expected an agent such as fcfs, shortest-high_gflops, easy, easy-saf or conservative, got '{name}': "
            f"'{wrong}' is none of {', '.join(known)}{nearest(wrong, known)}",
            where="agent",
        )
    return config


def classic_name(settings: Mapping[str, Any], *, cores: bool = True) -> tuple[str, dict[str, Any]]:
    """Returns the short name of a classic agent and its settings that the name does not tell; see :func:`parse_name`.

    Args:
        settings: Settings of the agent.
        cores: The name includes the core policy, where names of this kind have one.
    """
    settings = {key: _of_file(value) if key in _POLICIES else value for key, value in settings.items()}
    given = {key: value for key, value in settings.items() if value not in (None, "none")}
    rest = {key: value for key, value in settings.items() if key not in ("backfill", "job_policy")}
    own = given.get("backfill", "")
    if str(own).isdecimal():
        given["backfill"] = rule_label(own)
    elif isinstance(own, Mapping) or str(own).endswith(".py"):
        own = own if isinstance(own, Mapping) else {"path": own}
        given["backfill"] = _of_file(own["path"]) if own.get("path") else short_name(own)
        rest |= {f"backfill.{key}": value for key, value in own.items() if key not in ("path", "_target_")}
    words = {key: given.get(key) for key in ("backfill", "job_policy", "backfill_order")}
    if list(words.values()) == ["greedy", "priority", None] and given.get("core_policy") in SCORES:
        return rest.pop("core_policy"), rest
    ordered = words["job_policy"] not in (None, "void") and not str(words["job_policy"]).endswith(".json")
    with_cores = cores and "core_policy" in given and ordered
    for name, fixed in SHORT_NAMES.items():
        same = words == {key: fixed.get(key) for key in words} and given.items() >= fixed.items()
        if same and ("backfill_order" in fixed or not with_cores):
            return name, {key: value for key, value in rest.items() if key not in ("backfill_order", *fixed)}
    parts = [given.get("backfill"), given.get("job_policy"), rest.pop("core_policy") if with_cores else None]
    return "-".join(str(part) for part in parts if part) or "classic", rest


def _of_file(value: Any) -> Any:
    """Returns the name of a file of one's own without its directory and, unless hdsim has that name, its suffix."""
    from hdsim.scheduling.orders import ORDERS

    path = Path(str(value))
    if path.suffix != ".py":
        return value
    return path.name if path.stem in (*ORDERS, *CORE_POLICIES, *BACKFILLS) else path.stem


def make_agent(spec: str | Mapping[str, Any] | Agent | Callable[[Cluster], object]) -> Agent:
    """Makes an agent.

    Args:
        spec: An agent object (returned as it is), a function that does what `decide` does, a short name (see
            :func:`parse_name`, or one registered by an installed package in the entry point group ``hdsim.agents``), or
            a mapping with ``path`` (a Python file with one `Agent` subclass or one function), ``_target_``
            (``package.Class``) or the settings of a classic agent.
            Every further key of a mapping is passed to the constructor.

    Raises:
        ConfigError: The agent cannot be found or does not take the settings.
    """
    agent = _made(spec)
    function = agent.function if isinstance(agent, FunctionAgent) else type(agent).decide
    if fault := fault_of_call(function):
        raise ConfigError(f"{getattr(function, '__qualname__', function)}: {fault}", where="agent")
    return agent


def _made(spec: str | Mapping[str, Any] | Agent | Callable[[Cluster], object]) -> Agent:
    if isinstance(spec, Agent):
        return spec
    if isinstance(spec, str):
        try:
            settings = parse_name(spec)
        except ConfigError:
            found = installed("agent").select(name=spec)
            if not found:
                raise
            registered: Agent = _KIND.construct(found[spec].load(), spec)
            return registered
        spec = settings
    if isinstance(spec, type):
        made = f", such as {spec.__name__}()" if issubclass(spec, Agent) else ""
        raise ConfigError(f"expected an object of a class{made}, got the class {spec.__name__}", where="agent")
    if callable(spec):
        return FunctionAgent(spec)
    if not isinstance(spec, Mapping):
        raise ConfigError(
            f"expected a name, a mapping, an Agent or a function, got {type(spec).__name__}", where="agent"
        )
    agent: Agent = _KIND.make(texts(spec), default=_CLASSIC)
    return agent
