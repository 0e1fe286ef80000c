"""Power management: nodes that sleep when they are idle and are woken for jobs. ``conf/power`` selects the classes.

The states of nodes, their watts and the seconds of their changes are those of the platform
(:class:`hdsim.platform.states.NodeState`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np

from hdsim.errors import ConfigError, nearest
from hdsim.platform.states import NodeState
from hdsim.util.rules import NULL, Rule, duration, integers_from, is_finite, require

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster
    from hdsim.platform.model import Platform
    from hdsim.util.arrays import Floats, Ints

_SHARE = Rule("a number >= 0 and below 1", lambda value: is_finite(value) and 0 <= value < 1)


class PowerManagement:
    """Power saving as Slurm has it: idle nodes are switched off after a time, and woken for the jobs that get them.

    A subclass with another `timeout` decides otherwise when nodes sleep.

    Attributes:
        platform: The platform.
        excluded: (N,) nodes that are never switched off by the time-out.
        suspend_rate, resume_rate: Nodes that begin to go down, or to boot, within any 60 s; infinite for no limit.
        resume_timeout: Seconds after the begin of a boot that fails until the node is out of service.
        boot_failure: Probability that a boot fails.
        repair: Seconds until a node whose boot has failed is back.

    Args:
        platform: The platform of the replay. The settings of the file in ``conf/power`` are keyword arguments.
        suspend_time: Time for which a node is idle before it is switched off, seconds or with a unit (``10min``); None:
            only ``cluster.power_off`` switches nodes off. Slurm's SuspendTime.
        suspend_rate: Nodes a minute that may begin to go down; None for no limit. Slurm's SuspendRate.
        resume_rate: Nodes a minute that may begin to boot; None for no limit. Slurm's ResumeRate.
        resume_timeout: Time after which a node that does not come up is out of service. Slurm's ResumeTimeout.
        exclude: Names of nodes, node types and clusters that are never switched off by the time-out. Slurm's
            SuspendExcNodes and SuspendExcParts.
        boot_failure: Probability that a boot fails, from 0 to below 1.
        repair: Time until a node whose boot has failed is back in service, up and idle; None: never.

    Raises:
        ConfigError: A setting is not allowed, or no node of the platform can be switched off.
    """

    def __init__(
        self,
        platform: Platform,
        suspend_time: float | str | None = None,
        suspend_rate: int | None = 60,
        resume_rate: int | None = 300,
        resume_timeout: float | str = "10min",
        exclude: Collection[str] = (),
        boot_failure: float = 0.0,
        repair: float | str | None = "4h",
    ) -> None:
        rates = {"suspend_rate": suspend_rate, "resume_rate": resume_rate}
        rules = dict.fromkeys(rates, integers_from(1) | NULL) | {"boot_failure": _SHARE}
        require("power", rules, {**rates, "boot_failure": boot_failure})
        self.platform = platform
        if not platform.can_sleep.any():
            raise ConfigError(
                f"expected node types with the power state off, which no node of {platform.name} has (key `states` of "
                "a node type)",
                where="power",
            )
        self._timeout = math.inf if suspend_time is None else duration(suspend_time, "power.suspend_time", zero=True)
        self.suspend_rate, self.resume_rate = (math.inf if rate is None else rate for rate in rates.values())
        self.resume_timeout = duration(resume_timeout, "power.resume_timeout")
        slowest = float(platform.state_seconds[NodeState.BOOTING][platform.can_sleep].max())
        if slowest > self.resume_timeout:
            raise ConfigError(
                f"expected at least {slowest:g} s, as long as the slowest boot takes, got {self.resume_timeout:g} s",
                where="power.resume_timeout",
            )
        self.boot_failure = float(boot_failure)
        self.repair = math.inf if repair is None else duration(repair, "power.repair", zero=True)
        self.excluded = ~platform.can_sleep | _named(platform, exclude)

    def timeout(self, nodes: Ints, cluster: Cluster) -> Floats | float:
        """(n,) or one for all, seconds for which nodes that have just become idle stay up; infinite for always.

        A node that has served a job meanwhile is asked for anew.

        Args:
            nodes: (n,) nodes that are up and idle, and not excluded.
            cluster: The cluster.
        """
        return self._timeout


def _named(platform: Platform, names: Collection[str]) -> np.ndarray:
    """Returns the (N,) nodes that names of nodes, node types and clusters stand for."""
    where = "power.exclude"
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise ConfigError(f"expected a list of names such as [login], got {names!r}", where=where)
    nodes: dict[str, Sequence[int]] = {}
    for kind, known in (
        (platform.node_cluster, platform.cluster_names),
        (platform.node_type, platform.node_type_names),
    ):
        nodes |= {name: np.flatnonzero(kind == number).tolist() for number, name in enumerate(known)}
    nodes |= {name: [node] for node, name in enumerate(platform.node_names) if name not in nodes}
    excluded = np.zeros(platform.n_nodes, bool)
    for name in names:
        if name not in nodes:
            raise ConfigError(
                f"expected names of nodes, node types or clusters, got '{name}'{nearest(name, nodes)}", where=where
            )
        excluded[nodes[name]] = True
    return excluded
