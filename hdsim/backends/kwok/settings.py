"""Settings of the backend ``kwok``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from hdsim.backends.kwok.lease import Timing
from hdsim.errors import ConfigError
from hdsim.util.rules import FLAG, NOT_NEGATIVE, NULL, POSITIVE, TEXT, Rule, check_keys, integers_from, require

_CLOCKS = ("wall", "virtual")
_RULES = {
    "kubeconfig": TEXT | NULL,
    "context": TEXT | NULL,
    "scheduler_name": TEXT,
    "namespace": TEXT,
    "clock": Rule(" or ".join(_CLOCKS), lambda value: value in _CLOCKS),
    "time_scale": POSITIVE,
    "stop_when_idle": NOT_NEGATIVE | NULL,
    "bindings_in_flight": integers_from(1),
    "gang_timeout": POSITIVE,
    "timeout": POSITIVE,
    "submit": FLAG,
    "spare_nodes": integers_from(0) | NULL,
    "metrics_host": TEXT,
    "metrics_port": Rule("a port", lambda value: integers_from(0).accepts(value) and value < 65536) | NULL,
}
_ELECTION_RULES = {"enabled": FLAG, "namespace": TEXT, "lease": POSITIVE, "renew": POSITIVE, "retry": POSITIVE}


@dataclass(frozen=True, kw_only=True)
class KwokSettings:
    """Settings of the backend.

    Raises:
        ConfigError: A value is not allowed.
    """

    kubeconfig: str | None = None  # see :class:`hdsim.kubernetes.connection.Connection`
    context: str | None = None  # see there
    scheduler_name: str = "hdsim"  # pods with this ``spec.schedulerName`` are scheduled
    namespace: str = "default"  # namespace of the pods that hdsim creates
    clock: str = "wall"  # ``wall``, or ``virtual`` for simulated time
    time_scale: float = 1.0  # simulated seconds in a second
    #: Seconds without a pod that could be placed after which a run ends; None: never.
    stop_when_idle: float | None = 30.0
    bindings_in_flight: int = 32  # maximum number of requests that are in flight
    gang_timeout: float = 300.0  # seconds after which the pods of an incomplete gang get an event
    timeout: float = 60.0  # seconds that the API server may be silent
    submit: bool = True  # create the pods of a trace; otherwise they are created elsewhere
    #: Number of nodes that may come in mid-run; None: 32 for the pods of an API server, 0 for a trace and for
    #: agents that observe all nodes.
    spare_nodes: int | None = None
    metrics_host: str = "127.0.0.1"  # address of the metrics
    metrics_port: int | None = None  # port of the metrics, None for none
    #: Keys `enabled`, `namespace` of the Lease, and `lease`, `renew` and `retry`; see :class:`Timing`.
    leader_election: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require("backend", _RULES, vars(self))
        if self.clock == "virtual" and self.time_scale != 1:
            raise ConfigError(
                f"expected 1 with backend.clock=virtual, whose seconds are simulated, got {self.time_scale:g}",
                where="backend.time_scale",
            )
        if self.clock == "virtual" and self.spare_nodes:
            raise ConfigError(
                f"expected 0 with backend.clock=virtual, in which no nodes come, got {self.spare_nodes}",
                where="backend.spare_nodes",
            )
        check_keys("backend.leader_election", self.leader_election, _ELECTION_RULES)
        election = {"enabled": True, "namespace": "kube-system", **asdict(Timing()), **self.leader_election}
        require("backend.leader_election", _ELECTION_RULES, election)
        if not election["retry"] < election["renew"] < election["lease"]:
            raise ConfigError(
                f"expected retry < renew < lease, got {election['retry']:g}, {election['renew']:g}, "
                f"{election['lease']:g} s",
                where="backend.leader_election",
            )
        object.__setattr__(self, "leader_election", election)

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> KwokSettings:
        """Makes settings by their keys; ConfigError for an unknown key or a value that is not allowed."""
        check_keys("backend", given, [each.name for each in fields(cls)])
        return cls(**given)

    @property
    def timing(self) -> Timing:
        """Times of leader election."""
        return Timing(**{key: self.leader_election[key] for key in asdict(Timing())})
