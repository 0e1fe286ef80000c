"""Power management: nodes that sleep when idle and are woken for jobs, and caps. ``conf/power`` selects the classes.

The states of nodes, their watts and the seconds of their changes are those of the platform
(:class:`hdsim.platform.node_state.NodeState`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hdsim.errors import ConfigError, nearest, not_one_of
from hdsim.platform.node_state import NodeState
from hdsim.platform.power import COMPUTING, IDLE_PACKAGE, node_power
from hdsim.platform.states import CAP_KINDS, MACHINE, Cap
from hdsim.util.inputs import read_csv
from hdsim.util.rules import NULL, POSITIVE, Rule, duration, integers_from, is_finite, require
from hdsim.util.text import number_in
from hdsim.util.units import LONGEST_TIME

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster
    from hdsim.platform.model import Platform
    from hdsim.util.arrays import Floats, Ints

#: Choices for jobs that would break a hard cap.
WHEN_CAPPED = ("wait", "slow", "raise")
#: Seconds of a day, and its parts in which nodes are used alike; number of groups of neighbouring nodes.
_DAY, _PARTS, _NEIGHBOURS = 86400.0, 8, 16
#: Begins of the bins of times in seconds for which nodes are not in use.
_BINS = np.concatenate([[0.0], np.geomspace(10.0, 7 * _DAY, 60)])
#: Times of the whole machine that count beside those of a group and a part of the day.
_COMMON = 5.0
#: Number of times, their seconds, and jobs that ended them, which count as seen: one, of any length by its logarithm.
_UNSEEN = np.array([np.ones(len(_BINS)), _BINS, np.zeros(len(_BINS))])[:, np.newaxis] / len(_BINS)
_SHARE = Rule("a number >= 0 and below 1", lambda value: is_finite(value) and 0 <= value < 1)


class PowerManagement:
    """Power saving as Slurm has it: idle nodes are switched off after a time, and woken for the jobs that get them.

    A subclass with another `timeout` decides otherwise when nodes sleep, and `spare` is the number of nodes to keep up.

    Attributes:
        platform: The platform.
        suspend_time: Seconds for which a node is idle before it is switched off; infinite for never.
        least_spare: Nodes that are kept up and idle at least.
        excluded: (N,) nodes that are never switched off by the time-out.
        suspend_rate, resume_rate: Nodes that begin to go down, or to boot, within any 60 s; infinite for no limit.
        resume_timeout: Seconds after the begin of a boot that fails until the node is out of service.
        boot_failure: Probability that a boot fails.
        repair: Seconds until a node whose boot has failed is back.
        caps: Limits on the power of nodes.
        frequency: Frequency in GHz of jobs for which the agent has chosen none, None for the nominal one.
        slows: Jobs that would break a hard cap start at a lower frequency at which they do not.
        raises: They rise again as far as the cap allows.

    Args:
        platform: The platform of the replay. The settings of the file in ``conf/power`` are keyword arguments.
        suspend_time: Time for which a node is idle before it is switched off, seconds or with a unit (``10min``); None:
            only ``cluster.power_off`` switches nodes off. Slurm's SuspendTime.
        suspend_rate: Nodes a minute that may begin to go down; None for no limit. Slurm's SuspendRate.
        resume_rate: Nodes a minute that may begin to boot; None for no limit. Slurm's ResumeRate.
        resume_timeout: Time after which a node that does not come up is out of service. Slurm's ResumeTimeout.
        spare: Nodes that are kept up and idle for jobs to come: the time-out leaves them on, and others boot where they
            are missing. Slurm's SuspendExcNodes with a number.
        exclude: Names of nodes, node types and clusters that are never switched off by the time-out. Slurm's
            SuspendExcNodes and SuspendExcParts.
        boot_failure: Probability that a boot fails, from 0 to below 1.
        repair: Time until a node whose boot has failed is back in service, up and idle; None: never.
        cap: Limit on the power of the machine, or a mapping of limits by the names of clusters, labels ``KEY=VALUE`` of
            nodes (such as ``rack=r1``) and ``machine``. A limit is a number of watts, a share up to 1 of the highest
            power of these nodes, or the name of a CSV file with the columns ``time,watts``. None: no limit.
        cap_kind: ``hard``: no start and no boot breaks a limit; ``soft``: time and energy above it are measured.
        when_capped: ``wait``: a job that would break a hard limit waits; ``slow``: it starts at the highest frequency
            of the processors at which it breaks none, and waits if there is no such frequency; ``raise``: it does so,
            and rises again as far as the limits allow.
        frequency: Frequency of all jobs in GHz, one of the key ``frequencies`` of the processor types; None for the
            nominal one.

    Raises:
        ConfigError: A setting is not allowed, or no node of the platform can be switched off and there is no cap and no
            frequency.
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
        spare: int = 0,
        cap: float | str | Mapping[str, Any] | None = None,
        cap_kind: str = "hard",
        when_capped: str = "wait",
        frequency: float | None = None,
    ) -> None:
        rates = {"suspend_rate": suspend_rate, "resume_rate": resume_rate}
        rules = dict.fromkeys(rates, integers_from(1) | NULL) | {"boot_failure": _SHARE, "spare": integers_from(0)}
        require("power", rules, {**rates, "boot_failure": boot_failure, "spare": spare})
        self.platform = platform
        if cap_kind not in CAP_KINDS:
            raise ConfigError(not_one_of(cap_kind, CAP_KINDS), where="power.cap_kind")
        if when_capped not in WHEN_CAPPED:
            raise ConfigError(not_one_of(when_capped, WHEN_CAPPED), where="power.when_capped")
        self.caps = read_caps(cap, platform, hard=cap_kind == "hard")
        self.slows, self.raises = when_capped != "wait", when_capped == "raise"
        self.frequency = _frequency(platform, frequency, slows=self.slows)
        if self.slows and not any(each.hard for each in self.caps):
            raise ConfigError(f"expected wait without a hard cap, got {when_capped}", where="power.when_capped")
        acts = bool(self.caps) or self.frequency is not None
        if not platform.can_sleep.any() and (not acts or suspend_time is not None):
            raise ConfigError(
                f"expected node types with the power state off, which no node of {platform.name} has (key `states` of "
                "a node type)",
                where="power",
            )
        self.suspend_time = (
            math.inf if suspend_time is None else duration(suspend_time, "power.suspend_time", zero=True)
        )
        self.suspend_rate, self.resume_rate = (math.inf if rate is None else rate for rate in rates.values())
        self.resume_timeout = duration(resume_timeout, "power.resume_timeout")
        slowest = float(platform.state_seconds[NodeState.BOOTING][platform.can_sleep].max(initial=0.0))
        if slowest > self.resume_timeout:
            raise ConfigError(
                f"expected at least {slowest:g} s, as long as the slowest boot takes, got {self.resume_timeout:g} s",
                where="power.resume_timeout",
            )
        if boot_failure and any(each.hard and len(each.times) > 1 for each in self.caps):
            message = "expected 0 under a hard cap that changes, since a boot that fails lasts longer than planned"
            raise ConfigError(message, where="power.boot_failure")
        self.boot_failure, self.least_spare = float(boot_failure), spare
        self.repair = math.inf if repair is None else duration(repair, "power.repair", zero=True)
        self.excluded = ~platform.can_sleep | _named(platform, exclude)

    @property
    def changes_frequencies(self) -> bool:
        """Whether jobs may run at another frequency than the nominal one without a decision of the agent."""
        return self.slows or self.frequency is not None

    @property
    def times_out(self) -> bool:
        """Whether idle nodes may go down without a decision of the agent."""
        return self.suspend_time < math.inf or type(self).timeout is not PowerManagement.timeout

    def timeout(self, nodes: Ints, cluster: Cluster) -> Floats | float:
        """(n,) or one for all, seconds for which nodes that have just become idle stay up; infinite for always.

        A node that has served a job meanwhile is asked for anew.

        Args:
            nodes: (n,) nodes that are up and idle, and not excluded.
            cluster: The cluster.
        """
        return self.suspend_time

    def spare(self, cluster: Cluster) -> tuple[int, float]:
        """Number of nodes that are kept up and idle, or are booted to be, and until when unless something happens.

        It is asked for at every scheduling pass, and at the date in seconds that it has told, infinite for none.

        Args:
            cluster: The cluster.
        """
        return self.least_spare, math.inf


class PredictiveSuspend(PowerManagement):
    """Keeps as many idle nodes up as jobs will soon need, as far as the past of this replay tells.

    The k-th node of a machine is in use while at least k nodes hold jobs. The time for which it will stay unused is
    predicted by those for which it, and its neighbours in order, stayed unused when that began in the same part of the
    day. From these it has the time-out at which the expected energy of nodes and the cost of jobs that wait for a boot
    are least together, as in the ski-rental problem with a known distribution (Karlin et al., Competitive randomized
    algorithms for nonuniform problems, Algorithmica 11, 1994). Before there is a past it is the time in which an idle
    node uses the energy of going down and booting. Nodes for jobs that wait in the queue are up or boot as well.

    Args:
        platform: The platform of the replay. The settings of the file in ``conf/power`` are keyword arguments.
        wait_watts: Power that avoiding the wait of a job is worth, in W, above 0. A start on several nodes is worth as
            much as one on a single node.
        memory: Time after which what was seen counts 1/e, seconds or with a unit.
        settings: Of :class:`PowerManagement`, but `suspend_time`; `spare` is the least number of nodes.

    Raises:
        ConfigError: A setting is not allowed, or no node of the platform can be switched off.
    """

    def __init__(
        self, platform: Platform, wait_watts: float = 15_000, memory: float | str = "30d", **settings: Any
    ) -> None:
        if "suspend_time" in settings:
            message = "expected none, since power=predictive chooses how long nodes stay up"
            raise ConfigError(message, where="power.suspend_time")
        super().__init__(platform, suspend_time=0, **settings)
        require("power", {"wait_watts": POSITIVE}, {"wait_watts": wait_watts})
        self._memory = duration(memory, "power.memory")
        watts, seconds = platform.state_watts[:, platform.can_sleep], platform.state_seconds[:, platform.can_sleep]
        idle, off = node_power(platform, IDLE_PACKAGE, NodeState.IDLE)[platform.can_sleep], watts[NodeState.OFF]
        changes = [NodeState.GOING_DOWN, NodeState.BOOTING]
        # Watts that a node saves off, joules of switching it off and on beside those of off, and worth of not booting.
        self._saved = max(float((idle - off).mean()), 1e-9)
        self._cycle = max(float(((watts[changes] - off) * seconds[changes]).sum(axis=0).mean()), 0.0)
        self._worth = wait_watts * float(seconds[NodeState.BOOTING].mean())
        nodes = platform.n_nodes
        self._busy, self._at = 0, 0.0
        # Of the k-th node since when it is not in use, and the row of the tables: its neighbours, the part of the day.
        self._since: Floats = np.zeros(nodes)
        self._neighbours: Ints = np.arange(nodes) * min(nodes, _NEIGHBOURS) // nodes * _PARTS
        self._row: Ints = self._neighbours.copy()
        # Number of the times, their seconds, and the jobs that ended them, by row and bin.
        self._seen = np.zeros((3, min(nodes, _NEIGHBOURS) * _PARTS, len(_BINS)))
        self._timeouts: Floats = np.full(self._seen.shape[1], self._cycle / self._saved)

    def spare(self, cluster: Cluster) -> tuple[int, float]:
        """See :meth:`PowerManagement.spare`."""
        cores, now, nodes = self.platform.node_cpu_cores, cluster.now, self.platform.n_nodes
        busy = nodes - int((cluster.cores.node_idle == cores).sum())
        if busy > self._busy:
            self._learn(slice(self._busy, busy), now)
        elif busy < self._busy:
            freed = slice(busy, self._busy)
            self._since[freed] = now
            self._row[freed] = self._neighbours[freed] + int(now % _DAY * _PARTS / _DAY)
        self._busy = busy
        ends = self._since[busy:] + self._timeouts[self._row[busy:]]
        kept = ends > now
        number, widest = max(int(kept.sum()), super().spare(cluster)[0]), int(cores.max())
        queued = 0
        for job in cluster.queue:
            queued += -(-int(cluster.size[job]) // widest)
            if queued >= nodes - busy:
                break
        return min(max(number, queued), nodes), float(ends[kept].min(initial=math.inf))

    def _learn(self, used: slice, now: float) -> None:
        """Takes note of nodes that are in use from now on, and plans anew how long such stay up."""
        unused = now - self._since[used]
        if not unused.any():
            return
        rows, bins = self._row[used], np.searchsorted(_BINS, unused, side="right") - 1
        self._seen *= math.exp((self._at - now) / self._memory)
        self._at = now
        for column, value in enumerate((np.ones(len(unused)), unused, np.full(len(unused), 1.0 / len(unused)))):
            np.add.at(self._seen[column], (rows, bins), value)
        rows, everywhere = np.unique(rows), self._seen.sum(axis=1, keepdims=True)
        number, seconds, jobs = self._seen[:, rows] + _COMMON * everywhere / everywhere[0].sum() + _UNSEEN
        # Cost of a time-out at the begin of each bin: times of earlier bins end before, the others do not.
        later = [each.sum(axis=1, keepdims=True) - np.cumsum(each, axis=1) + each for each in (number, jobs)]
        up = np.cumsum(seconds, axis=1) - seconds + later[0] * _BINS
        costs = self._saved * up + self._cycle * later[0] + self._worth * later[1]
        best, always = costs.argmin(axis=1), self._saved * seconds.sum(axis=1)
        self._timeouts[rows] = np.where(always < costs.min(axis=1), math.inf, _BINS[best])


def _frequency(platform: Platform, ghz: Any, *, slows: bool) -> float | None:
    """Returns the setting ``power.frequency`` in GHz.

    Raises:
        ConfigError: It is no frequency of the platform, or the platform has none where it, or `slows`, asks for some.
    """
    where = "power.frequency" if ghz is not None else "power.when_capped"
    table = platform.frequencies
    if table is None and (slows or ghz is not None):
        raise ConfigError(
            f"expected processor types with the same key `frequencies` and clock_rate, as those of {platform.name} do "
            "not have",
            where=where,
        )
    if ghz is None:
        return None
    assert table is not None
    if not is_finite(ghz) or table.index(ghz) < 0:
        raise ConfigError(f"expected a frequency of {table} GHz, got {ghz!r}", where=where)
    return float(ghz)


def _named(platform: Platform, names: Collection[str]) -> np.ndarray:
    """Returns the (N,) nodes that names of nodes, node types and clusters stand for."""
    where = "power.exclude"
    if not isinstance(names, list | tuple | set | frozenset) or not all(isinstance(name, str) for name in names):
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


def read_caps(spec: float | str | Mapping[str, Any] | None, platform: Platform, *, hard: bool) -> tuple[Cap, ...]:
    """Returns the caps of a setting ``power.cap``; see :class:`PowerManagement`.

    Raises:
        ConfigError: A limit is none of what is allowed, its nodes draw no power, or a hard one is below the power of
            the idle nodes.
    """
    if spec is None:
        return ()
    named = spec if isinstance(spec, Mapping) else {MACHINE: spec}
    if not named:
        raise ConfigError("expected limits by names such as machine, got none (null: no limit)", where="power.cap")
    scopes = _scopes(platform)
    idle = node_power(platform, IDLE_PACKAGE, NodeState.IDLE)
    caps = []
    for name, value in named.items():
        where = f"power.cap.{name}" if isinstance(spec, Mapping) else "power.cap"
        if name not in scopes:
            raise ConfigError(
                f"expected names of {', '.join(scopes)}, got '{name}'{nearest(name, scopes)}", where=where
            )
        nodes = scopes[name]
        highest = float(node_power(platform, COMPUTING, NodeState.ON)[nodes].sum())
        if not highest > 0:
            raise ConfigError(f"expected nodes that draw power, those of {platform.name} draw none", where=where)
        times, watts = _limit(value, highest, where)
        least = float(idle[nodes].sum())
        if hard and watts.min() < least:
            raise ConfigError(
                f"expected at least the power of the idle nodes, {least:g} W, got {watts.min():g} W", where=where
            )
        caps.append(Cap(name, nodes, times, watts, hard))
    return tuple(caps)


def _scopes(platform: Platform) -> dict[str, np.ndarray]:
    """Returns (N,) whether a node is in each part of the machine that may have a cap, by its name."""
    scopes = {MACHINE: np.ones(platform.n_nodes, bool)}
    scopes |= {name: platform.node_cluster == number for number, name in enumerate(platform.cluster_names)}
    for node, labels in enumerate(platform.node_labels):
        for key, value in labels.items():
            if "/" not in key:
                scopes.setdefault(f"{key}={value}", np.zeros(platform.n_nodes, bool))[node] = True
    return scopes


def _limit(value: Any, highest: float, where: str) -> tuple[Floats, Floats]:
    """Returns the steps of a limit: times in seconds, the first 0, and watts."""
    if isinstance(value, str):
        return _read_series(Path(value), where)
    if not is_finite(value) or value <= 0:
        raise ConfigError(f"expected watts, a share up to 1 or a CSV file of time,watts, got {value!r}", where=where)
    return np.zeros(1), np.array([value * highest if value <= 1 else value], np.float64)


def _read_series(path: Path, where: str) -> tuple[Floats, Floats]:
    """Reads the steps of a limit from a CSV file; before the first one there is none."""
    if not path.is_file():
        raise ConfigError(f"expected a CSV file with the columns time,watts, found no file '{path}'", where=where)
    header, rows = read_csv(path, ConfigError, "file of a cap")
    if header != ["time", "watts"] or not rows:
        raise ConfigError(f"expected the header time,watts and rows, got {','.join(header)}", where=str(path))
    times, watts = np.zeros(len(rows)), np.zeros(len(rows))
    for line, row in enumerate(rows):
        try:
            times[line], watts[line] = (number_in(field) for field in row)
        except ValueError as error:
            raise ConfigError(f"expected two numbers: {error}", where=f"{path}:{line + 2}") from None
        later = line == 0 or times[line] > times[line - 1]
        if not (0 <= times[line] <= LONGEST_TIME and later and watts[line] > 0):
            message = f"expected ascending times of at least 0 and watts above 0, got {','.join(row)}"
            raise ConfigError(message, where=f"{path}:{line + 2}")
    if times[0] > 0:
        times, watts = np.append(0.0, times), np.append(math.inf, watts)
    return times, watts
