"""Settings of the backend ``slurm``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from hdsim.util.rules import FLAG, NOT_NEGATIVE, NULL, POSITIVE, TEXT, Rule, check_keys, require

_RULES = {
    "conf": TEXT,
    "socket": TEXT | NULL,
    "name": Rule("a text without colons", lambda value: TEXT.accepts(value) and ":" not in value),
    "partition": TEXT | NULL,
    "time_scale": POSITIVE | NULL,
    "stop_when_idle": NOT_NEGATIVE | NULL,
    "start_timeout": POSITIVE,
    "timeout": POSITIVE,
    "kill_at_walltime": FLAG,
}


@dataclass(frozen=True, kw_only=True)
class SlurmSettings:
    """Settings of the backend.

    Raises:
        ConfigError: A value is not allowed.
    """

    conf: str = "slurm.conf"  # slurm.conf of the cluster
    socket: str | None = None  # Unix socket of its slurmrestd; None: by Slurm's commands
    name: str = "hdsim"  # begin of the comments of the jobs that hdsim submits
    partition: str | None = None  # of the jobs; None: the default one for a trace, all for the jobs of a cluster
    time_scale: float | None = None  # seconds of Slurm's clock in a second; None: that of an emulated cluster, or 1
    #: Seconds without a job that could be placed after which a run ends; None: never.
    stop_when_idle: float | None = 30.0
    start_timeout: float = 20.0  # seconds from a release until a start that has not come is taken back
    timeout: float = 60.0  # seconds that slurmctld may be silent
    kill_at_walltime: bool = False  # jobs get their walltimes as time limits, in whole minutes

    def __post_init__(self) -> None:
        require("backend", _RULES, vars(self))

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> SlurmSettings:
        """Makes settings by their keys; ConfigError for an unknown key or a value that is not allowed."""
        check_keys("backend", given, [each.name for each in fields(cls)])
        return cls(**given)
