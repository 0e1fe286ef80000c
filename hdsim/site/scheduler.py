"""slurmctld's scheduling of the jobs of a site: the queue, and when the two passes are made."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from hdsim.errors import ConfigError, nearest
from hdsim.site import preemption
from hdsim.site.accounts import Used, accounts_of
from hdsim.site.formats import expand_nodes, fold_nodes
from hdsim.site.jobs_table import YEAR, SiteJobs, gpu_types
from hdsim.site.kernels.passes import (
    Access,
    Calendar,
    PendingJobs,
    Rules,
    backfill_pass,
    fitting_nodes,
    main_pass,
    make_plan,
    make_space,
)
from hdsim.site.kernels.placing import SiteNodes, Usage, gpus_on
from hdsim.site.kernels.preempting import sort_queue
from hdsim.site.kernels.running import Machine, RunningJobs, hold, release
from hdsim.site.model import PARAMETERS, NodeType, Site
from hdsim.site.platform import nodes_of
from hdsim.site.priority import FLAGS, Multifactor, basic_priorities
from hdsim.site.quotas import quotas_of
from hdsim.site.reasons import Reasons
from hdsim.site.topology import topology_of
from hdsim.site.tres import unknown_weights
from hdsim.util.arrays import Flags, Floats, Ints

_log = logging.getLogger(__name__)
#: Parameters that are read beside those with defaults, and those without influence on a simulation.
_FLAGS = (
    *("bf_one_resv_per_job", "bf_node_space_size", "preempt_youngest_first", "preempt_reorder_count"),
    *("preempt_strict_order", "bf_busy_nodes", "pack_serial_at_end"),
)
#: Parameters with numbers, and the least of each that is simulated: -1, which ends a loop in Slurm, is not.
_LEAST = dict.fromkeys((*PARAMETERS, "bf_node_space_size", "preempt_reorder_count"), 0) | {"bf_resolution": 1}
#: Seconds for which sched/backfill plans jobs of a QOS with NoReserve where there is preemption.
_BRIEF = 60.0
_WITHOUT_INFLUENCE = (
    *("bf_continue", "bf_max_time", "bf_yield_interval", "bf_yield_sleep", "bf_yield_rpc_cnt", "max_rpc_cnt"),
    *("sched_min_interval", "max_sched_time", "default_gbytes", "bf_ignore_newly_avail", "max_script_size"),
    *("ignore_prefer_validation", "nohold_on_prolog_fail", "max_array_tasks", "step_retry_count", "step_retry_time"),
    # Decide what becomes of submissions, of interactive commands and of changes of jobs, which the log has.
    *("defer", "defer_batch", "enable_user_top", "disable_user_top", "kill_invalid_depend", "max_depend_depth"),
    *("salloc_wait_nodes", "sbatch_wait_nodes", "preempt_send_user_signal", "disable_job_shrink", "allow_zero_lic"),
    # Rules of arrays' dependencies, of nodes that complete or boot with other features, and of hardware.
    *("correspond_after_task_cnt", "reduce_completing_frag", "bb_array_stage_cnt", "delay_boot", "ignore_numa"),
    *("max_switch_wait", "inventory_interval", "spec_cores_first", "enable_job_state_cache", "enable_stepmgr"),
    *("permit_job_expansion", "requeue_setup_env_fail", "no_backup_scheduling", "no_env_cache", "build_queue_timeout"),
)

#: Words of SelectTypeParameters that are simulated, or have no influence on nodes and numbers of CPUs.
_SELECT = {
    *("CR_CPU", "CR_CPU_MEMORY", "CR_CORE", "CR_CORE_MEMORY", "CR_SOCKET", "CR_SOCKET_MEMORY", "CR_MEMORY"),
    *("CR_LLN", "CR_PACK_NODES", "CR_CORE_DEFAULT_DIST_BLOCK", "CR_ALLOCATE_FULL_SOCKET", "LL_SHARED_GRES"),
    *("OTHER_CONS_RES", "OTHER_CONS_TRES"),
}
#: Likeness from which on a word counts as a simulated one that is misspelt: Slurm has others.
_ALIKE = 0.85
#: Words of TopologyParam with which slurmctld orders nodes otherwise.
_ORDERS_OF_NODES = {"DRAGONFLY", "SWITCHASNODERANK"}
#: Flags of QOS that are simulated, and those that only decide which jobs may be submitted.
_QOS_FLAGS = {
    *("overpartqos", "nodecay", "usagefactorsafe", "noreserve"),
    *("partitionmaxnodes", "partitionminnodes", "partitiontimelimit"),
    *("denyonlimit", "requiresreservation", "enforceusagethreshold"),
}


@dataclass(frozen=True)
class Start:
    """A job that a pass has started."""

    job: int
    nodes: list[int]
    cpus: list[int]  # on each of the nodes
    gpus: list[int]
    backfilled: bool
    numbers: list[Ints] | None = None  # of the CPUs on each of the nodes, where jobs may be suspended


def refuse(site: Site) -> list[str]:
    """Returns the rules of a site that are not simulated, each in words."""
    found = []
    found += preemption.refused(site)
    if site.slurm.select == "linear":
        found += ["topology/tree with select/linear"] * bool(site.switches)
        found += ["GPUs with select/linear"] * bool(gpu_types(site))
        found += ["LLN with select/linear"] * any(one.least_loaded for one in site.partitions.values())
    for name, one in site.partitions.items():
        beside = " with select/linear" if site.slurm.select == "linear" else ""
        beside = " beside preemption" if site.preemption.type != "none" or site.preemption.gang else beside
        if one.most_on_cpu > 1 and (one.forces or beside):
            found.append(f"partition {name}: OverSubscribe={one.oversubscribe}{beside}")
    for key, kind in site.nodes.items():
        if sum(name in kind.gres for name in gpu_types(site)) > 1:
            found.append(f"nodes {key}: several types of GPUs on a node")
    if site.priority.type == "multifactor":
        flags = [name for name in site.priority.flags if name not in FLAGS]
        found += [f"PriorityFlags={name}{nearest(name, FLAGS, _ALIKE)}" for name in flags]
    found += unknown_weights(site) + _select_parameters(site)
    found += [f"TopologyParam={word}" for word in site.slurm.topology_parameters if word.upper() in _ORDERS_OF_NODES]
    for name, each in site.qos.items():
        found += [f"QOS {name}: Flags={flag}" for flag in each.flags if flag.lower() not in _QOS_FLAGS]
        if each.has("EnforceUsageThreshold") and each.usage_threshold:
            found.append(f"QOS {name}: Flags=EnforceUsageThreshold")
    known = {*PARAMETERS, *_FLAGS, *_WITHOUT_INFLUENCE}
    for name, value in site.slurm.parameters.items():
        if name not in known:
            found.append(f"SchedulerParameters={name}{nearest(name, sorted(known), _ALIKE)}")
        elif name in _LEAST and not (str(value).isdecimal() and int(value) >= _LEAST[name]):
            found.append(f"SchedulerParameters={name}={value} (expected a whole number of at least {_LEAST[name]})")
    return found


def _select_parameters(site: Site) -> list[str]:
    """Returns the words of SelectTypeParameters that are not simulated, or that there is none for CPUs."""
    given, found = site.slurm.select_parameters, []
    for word in given:
        threads = word.upper() == "CR_ONE_TASK_PER_CORE" and all(
            one.threads_per_core == 1 for one in site.nodes.values()
        )
        if word.upper() not in _SELECT and not threads:
            found.append(f"SelectTypeParameters={word}{nearest(word, sorted(_SELECT), _ALIKE)}")
    if site.slurm.select != "linear" and not {"CPU", "CORE", "SOCKET"} & site.slurm.consumable:
        words = ",".join(given)
        found.append(f"SelectTypeParameters={words} (expected CR_CPU, CR_Core or CR_Socket, or one with _Memory)")
    return found


def site_nodes(site: Site, kinds: Sequence[NodeType], place: Mapping[str, int]) -> SiteNodes:
    """Returns the nodes of a site, whose types and numbers by name are given, as columns."""
    words = site.slurm.consumable
    units = []
    for kind in kinds:
        core = kind.threads_per_core
        units.append(core * kind.cores_per_socket if "SOCKET" in words else core if "CORE" in words else 1)
    types = gpu_types(site)
    counted, most, apart = _counted(site)
    memory = [kind.memory if "MEMORY" in words else math.inf for kind in kinds]
    return SiteNodes(
        cpus=np.array([kind.cpus for kind in kinds], np.int64),
        unit=np.array(units, np.int64),
        threads=np.array([kind.threads_per_core for kind in kinds], np.int64),
        memory=np.array(memory, np.float64),
        weight=np.array([kind.weight for kind in kinds], np.int64),
        line=np.array(_lines_of(site, kinds), np.int64),
        gpus=np.array([sum(kind.gres[name] for name in types if name in kind.gres) for kind in kinds], np.int64),
        gpu_type=np.array([next((row for row, name in enumerate(types) if name in kind.gres), -1) for kind in kinds]),
        counted=counted,
        most=most,
        apart=apart,
        topology=topology_of(site, place),
    )


def _counted(site: Site) -> tuple[Ints, Ints, Flags]:
    """Returns `counted`, `most` and `apart` of :class:`hdsim.site.kernels.placing.SiteNodes`.

    A node with jobs that share CPUs takes none of another partition that does not force them to, and one with jobs that
    do not share takes none of a partition that forces its jobs to.
    """
    parts = list(site.partitions.values())
    shares, forces = np.array([[one.most_on_cpu > 1, one.forces] for one in parts], np.bool_).reshape(-1, 2).T
    apart = np.where(forces[:, np.newaxis], ~forces, shares) & ~np.eye(len(parts), dtype=np.bool_)
    limits = np.array([math.inf if one.max_cpus_per_node is None else one.max_cpus_per_node for one in parts])
    rows = (limits < math.inf) | apart.any(axis=0)
    most = np.fmin(limits[rows], float(1 << 62)).astype(np.int64)
    return np.where(rows, np.cumsum(rows) - 1, -1), most, apart[:, rows]


def _lines_of(site: Site, kinds: Sequence[NodeType]) -> list[int]:
    """The line of each node in the order of weights, the weight where slurmctld looks at all of a weight at once."""
    if site.preemption.type != "none" or len(site.switches) > 1:
        return [kind.weight for kind in kinds]
    lines = sorted(site.nodes.values(), key=lambda kind: kind.weight)
    place = {id(kind): number for number, kind in enumerate(lines)}
    return [place[id(kind)] for kind in kinds]


def unused(nodes: SiteNodes) -> Usage:
    """Returns the use of nodes without any job."""
    core = np.where(nodes.unit == 1, nodes.threads, 1)
    none = np.zeros(len(nodes.cpus), np.int64)
    counted = np.zeros((len(nodes.most), len(none)), np.int64)
    return Usage(nodes.cpus.copy(), nodes.memory.copy(), none, nodes.gpus.copy(), core, counted)


class SlurmScheduler:
    """The main loop and sched/backfill over the jobs of a site.

    Args:
        site: The site.
        jobs: Its jobs.
        begin: Begin in seconds since 1970, from which on priorities are calculated.

    Attributes:
        priorities: Returns the priorities of (Q,) jobs in (Q,) partitions, by default `priorities_of_site`; call
            `reorder` after a change.
        completing: (N,) nodes on which jobs are COMPLETING; none is in simulations, where jobs end at once.

    Raises:
        ConfigError: The site has rules that are not simulated.
    """

    def __init__(self, site: Site, jobs: SiteJobs, begin: float = 0.0) -> None:
        refused = refuse(site)
        if refused:
            raise ConfigError(f"not simulated: {'; '.join(refused)}", where="site")
        self.site, self.jobs = site, jobs
        nodes = nodes_of(site)
        self._names = [name for name, _ in nodes]
        self._place = {name: row for row, name in enumerate(self._names)}
        self.nodes = site_nodes(site, [kind for _, kind in nodes], self._place)
        partitions = site.partitions.values()
        # Weights and lines of nodes as the site has them, see `prefer`.
        self._weights = self.nodes.weight.copy(), self.nodes.line.copy()
        self.members = self._listed([one.nodes if one.state == "UP" else "" for one in partitions])
        kinds = [kind for _, kind in nodes]
        accounts = accounts_of(site)
        if site.priority.type == "multifactor" and site.priority.weight_fair_share and len(jobs):
            without = int((jobs.association < 0).sum())
            if without:
                told = "%d of %d jobs have no association of the site (assoc.txt, cluster.cfg); their fair share is 0"
                _log.warning(told, without, len(jobs))
        self.reasons = Reasons()
        self.limits = quotas_of(site, jobs, accounts, self.reasons, len(nodes))
        self.multifactor: Multifactor | None = None
        if site.priority.type == "multifactor":
            quotas = self.limits.quotas
            self.multifactor = Multifactor(site, jobs, kinds, self.members, accounts, quotas, begin)
        self._basic = basic_priorities(jobs.nice)
        self.priorities: Callable[[Ints, Ints], Floats] = self.priorities_of_site
        number, count = len(self.nodes.cpus), len(jobs)
        self.usage, self._empty = unused(self.nodes), unused(self.nodes)
        self._submitted = [0] * len(self.limits.submissions)
        on, cpus, gpus = np.zeros((3, count * 2 + number), np.int64)
        ints = np.zeros((3, count), np.int64)
        self.layers = preemption.layers_of(site, self.members, self.nodes.cpus)
        self.suspended: dict[int, float] = {}  # suspended jobs, with the time since when they are
        columns = ints[0], np.zeros(count), ints[1], ints[2], on, cpus, gpus
        self.running = RunningJobs(*columns, np.zeros(2, np.int64), self.layers)
        self.pending: dict[int, None] = {}
        self._order: PendingJobs | None = None
        self.service = ~self._listed([site.down])[0]
        self._usual_service = self.service.copy()
        self.completing = np.zeros(number, np.bool_)
        self.parameters = {name: int(site.slurm.parameters.get(name, usual)) for name, usual in PARAMETERS.items()}
        self.rules = self._rules()
        self.calendar = self._calendar()
        self._plan = make_plan(self.rules.slots, number, count)
        lines = len(site.partitions) + len(site.reservations)
        self._space = make_space(
            self._empty, len(self.nodes.topology.level), lines, int(jobs.user.max(initial=0)) + 1, count
        )
        self.preemption, self._modes = preemption.rules_of(site, jobs), preemption.modes_of(site)
        self._tier = np.array([one.priority_tier for one in site.partitions.values()], np.int64)
        exclusive = np.array([one.exclusive_user for one in partitions], np.bool_)
        self._users = jobs.user, exclusive, jobs.alone if jobs.alone.any() else jobs.alone[:0]
        self._exclusive = np.array(site.whole_nodes, np.bool_)
        self._longest = np.array([min(one.max_time, YEAR) for one in partitions])
        # The last one is of jobs without a QOS.
        self._unreserving = np.array([*(one.has("NoReserve") for one in site.qos.values()), False], np.bool_)

    def _rules(self) -> Rules:
        given, words = self.parameters, {key for key, value in self.site.slurm.parameters.items() if value}
        least_loaded = "CR_LLN" in {name.upper() for name in self.site.slurm.select_parameters}
        return Rules(
            resolution=float(given["bf_resolution"]),
            window=given["bf_window"] * 60.0,
            depth=given["default_queue_depth"],
            partition_depth=given["partition_job_depth"],
            tested=given["bf_max_job_test"],
            tested_of_user=given["bf_max_job_user"],
            tested_of_partition=given["bf_max_job_part"],
            started=given["bf_max_job_start"],
            tasks=given["bf_max_job_array_resv"],
            slots=int(self.site.slurm.parameters.get("bf_node_space_size", given["bf_max_job_test"])),
            growth=float(given["bf_window_linear"]),
            one_reservation="bf_one_resv_per_job" in words,
            least_loaded=np.array([least_loaded or one.least_loaded for one in self.site.partitions.values()]),
            busy_first="bf_busy_nodes" in words,
            serial_last="pack_serial_at_end" in words,
            linear=self.site.slurm.select == "linear",
            trial=False,
        )

    def _calendar(self) -> Calendar:
        kept = self.site.reservations.values()
        nodes = self._listed([one.nodes for one in kept])
        return Calendar(np.array([one.start for one in kept]), np.array([one.end for one in kept]), nodes)

    def _listed(self, lists: Sequence[str]) -> Flags:
        """Returns the (k, N) nodes of k lists of nodes; ALL stands for every node.

        Raises:
            ConfigError: The site has no such node.
        """
        flags = np.zeros((len(lists), len(self._place)), np.bool_)
        for row, text in enumerate(lists):
            names = self._place if text.upper() == "ALL" else expand_nodes(text)
            missing = [name for name in names if name not in self._place]
            if missing:
                raise ConfigError(f"expected nodes of the site, got {fold_nodes(missing)}", where="site")
            flags[row, [self._place[name] for name in names]] = True
        return flags

    def priorities_of_site(self, jobs: Ints, partitions: Ints) -> Floats:
        """Returns the priorities of (Q,) jobs in (Q,) partitions by the site's PriorityType."""
        if self.multifactor is None:
            return self._basic[jobs]
        return self.multifactor.factors(jobs, partitions).total()

    def refusal(self, job: int) -> str:
        """Returns the reason why a job can never start or may not be submitted now, empty if there is none."""
        table, limits = self.jobs, self.limits
        if job in table.refused:
            return table.refused[job]
        entries = range(table.first_entry[job], table.first_entry[job] + len(table.partitions[job]))
        blocked = [int(limits.blocked[entry]) for entry in entries]
        if all(blocked):
            return self.reasons.words[blocked[0]]
        for place in limits.waiting[job]:
            most, code = limits.submissions[place]
            if self._submitted[place] >= most:
                return self.reasons.words[code]
        for entry, code in zip(entries, blocked, strict=True):
            self._enter(job, entry)
            if not code and self._fits(self._empty, self.members[[table.entry_partition[entry]]], job):
                return ""
        return "BadConstraints"

    def _enter(self, job: int, entry: int) -> None:
        """Has a job be in the partition of one of its entries: its limits, whole nodes, and what it preempts."""
        partition = self.jobs.entry_partition[entry]
        self.limits.quotas.entry[job] = entry
        self.jobs.demands.partition[job] = partition
        self.jobs.demands.whole[job] = self.jobs.whole[job] or self._exclusive[partition]
        if self.preemption.by_partition:
            self.preemption.group[job] = partition

    def _fits(self, usage: Usage, among: Flags, job: int) -> int:
        """Returns the number of nodes that a job would get among (1, N) ones, 0 if it does not fit there.

        The nodes are in `_space.chosen`.
        """
        table = self.jobs
        sets = table.features, table.feature, self._usual_service, self.completing
        access = Access(among, *sets, self.calendar, *self._users)
        return int(fitting_nodes(self._machine._replace(usage=usage), access, self._space, job, 0))

    def fitting(self, job: int, among: Flags) -> dict[int, int]:
        """Returns those of (N,) nodes, in service or not, that a job would get if it started now, with CPUs on each."""
        count = self._fits(self.usage, among[np.newaxis], job)
        chosen = self._space.chosen
        return dict(zip(chosen.node[:count].tolist(), chosen.cpus[:count].tolist(), strict=True))

    def set_service(self, node: int, *, up: bool) -> None:
        """Notes that a node has failed or is back; one that is out of service by the site's files stays so."""
        self.service[node] = up and self._usual_service[node]

    def prefer(self, nodes: Flags) -> None:
        """Has (N,) nodes, those that are up, taken before others of the same weight."""
        for column, usual in zip((self.nodes.weight, self.nodes.line), self._weights, strict=True):
            column[:] = 2 * usual + ~nodes

    def row_of(self, name: str) -> int | None:
        """Returns the row of a node, None for an unknown name."""
        return self._place.get(name)

    @property
    def depends_on_time(self) -> bool:
        """Whether a pass may differ from the last one though nothing has changed: reservations, exempt times."""
        return bool(self.calendar.end.size) or self.preemption.enabled

    @property
    def decays(self) -> bool:
        """Whether limits of what was used may let jobs start when it has decayed."""
        quotas, rules = self.limits.quotas, self.site.priority
        shrinks = 0 < rules.decay_half_life < math.inf or rules.usage_reset_period not in ("NONE", "NOW")
        least = np.where(quotas.asks, 1, quotas.most)  # whole minutes
        exceeded = quotas.uses & (quotas.spent >= 60.0 * least) & (quotas.most > 0) & ~quotas.lasting
        return self.multifactor is not None and shrinks and bool(exceeded.any())

    def submit(self, job: int, now: float) -> None:
        """Adds a job that is eligible at a time in seconds since 1970 to the pending ones."""
        self.pending[job] = None
        self.running.first[job] = self.running.last[job] = self._space.reason[job] = 0  # of an earlier run
        self._order = None
        self._count_in(job)
        if self.multifactor is not None:
            self.multifactor.submit(np.array([job]), now)

    def withdraw(self, job: int) -> None:
        """Removes a pending job."""
        del self.pending[job]
        self._order = None
        self._count_out(job)

    def _count_in(self, job: int) -> None:
        for place in self.limits.waiting[job]:
            self._submitted[place] += 1

    def _count_out(self, job: int) -> None:
        for place in self.limits.waiting[job]:
            self._submitted[place] -= 1

    def reasons_of(self, jobs: Iterable[int]) -> list[str]:
        """Returns why jobs have not started in the last pass that tested them, ``None`` where nothing kept them."""
        return [self.reasons.words[self._space.reason[job]] for job in jobs]

    def codes_of(self, jobs: Ints) -> Ints:
        """Returns the (Q,) codes of the same reasons of (Q,) jobs; see :mod:`hdsim.site.kernels.quotas`."""
        return self._space.reason[jobs]

    def node_list(self, nodes: Iterable[int]) -> str:
        """Returns names of nodes in Slurm's form."""
        names = [self._names[node] for node in nodes]
        return names[0] if len(names) == 1 else fold_nodes(names)

    def hold(self, job: int, start: float, nodes: Iterable[int], cpus: Iterable[int]) -> Start:
        """Notes that a job has run on nodes, with a number of CPUs on each, since a time in seconds since 1970."""
        if job in self.pending:
            del self.pending[job]
        else:
            self._count_in(job)
        self._order = None
        listed, chosen, demands = list(nodes), self._space.chosen, self.jobs.demands
        self._enter(job, self._entry_with(job, listed))
        count = len(listed)
        chosen.node[:count], chosen.cpus[:count] = listed, list(cpus)
        gpus_on(self.usage, demands, job, count, chosen)
        self._reserve_places(count)
        hold(self._machine, job, start + demands.limit[job], chosen, count)
        return self._started(job, start, backfilled=False)

    def _entry_with(self, job: int, nodes: list[int]) -> int:
        """Returns the first entry of a job whose partition has some nodes, or else its first one."""
        first = int(self.jobs.first_entry[job])
        entries = range(first, first + len(self.jobs.partitions[job]))
        having = (entry for entry in entries if self.members[self.jobs.entry_partition[entry]][nodes].all())
        return next(having, first)

    def _started(self, job: int, now: float, *, backfilled: bool) -> Start:
        running = self.running
        held = slice(running.first[job], running.last[job])
        nodes, cpus, gpus = (column[held].tolist() for column in (running.node, running.cpus, running.gpus))
        self.preemption.start[job] = now
        self._bill(job, now, int(self.jobs.entry_partition[self.limits.quotas.entry[job]]))
        numbers = None
        if self.suspends:
            numbers = [np.flatnonzero((self.layers.job[:, node] == job).any(0)) for node in nodes]
        return Start(job, nodes, cpus, gpus, backfilled, numbers)

    def _bill(self, job: int, now: float, partition: int) -> None:
        if self.multifactor is not None:
            held = slice(self.running.first[job], self.running.last[job])
            cpus = int(self.running.cpus[held].sum())
            self.multifactor.start(job, partition, now, held.stop - held.start, cpus)

    def end(self, job: int, now: float) -> None:
        """Takes back all that a job holds, at a time in seconds since 1970."""
        if self.multifactor is not None:
            self.multifactor.end(job, now)
        self._count_out(job)
        self.suspended.pop(job, None)
        release(self._machine, job)

    def take_back(self, job: int, now: float) -> None:
        """Has a job that a pass has started at this instant, in seconds since 1970, pend as before."""
        self.end(job, now)
        self.submit(job, now)

    def calculate(self, now: float) -> bool:
        """Makes the calculations of priorities that are due (PriorityCalcPeriod) until a time in seconds since 1970.

        Returns:
            Whether there was one.
        """
        made = self.multifactor is not None and self.multifactor.calculate(self.running, self._waiting, now)
        if made:
            self._order = None
        return made

    def _waiting(self) -> Ints:
        return np.fromiter(self.pending, np.int64, len(self.pending))

    def begin_with(self, used: Used) -> None:
        """Sets what accounts and limits have used at the first calculation.

        Raises:
            ConfigError: There is another number of associations.
        """
        if self.multifactor is None:
            return
        spent = self.limits.quotas.spent
        for key, seconds in used.minutes.items():
            if key in self.limits.meters:
                spent[self.limits.meters[key]] = seconds
        self.multifactor.fair_share.begin_with(used.billing)

    def reorder(self) -> None:
        """Has the queue ordered anew, as priorities have changed."""
        self._order = None

    def main(self, now: float, *, full: bool = False, only: int | None = None) -> list[Start]:
        """Makes a pass of the main loop at a time in seconds since 1970.

        Args:
            now: The time.
            full: All jobs are tested.
            only: The only job that is tested, in its partitions.
        """
        rules = self.rules._replace(depth=len(self.jobs) + 1) if full else self.rules
        return self._pass(main_pass, rules, (), now, backfilled=False, only=only)

    def startable(self, now: float) -> tuple[Ints, Flags]:
        """Returns the (P,) pending jobs in the order of scheduling, and whether each of them alone may start now.

        Dependencies, limits, reservations, licences, partitions and free nodes count, jobs ahead in the queue do not.
        """
        if not self.pending:
            return np.zeros(0, np.int64), np.zeros(0, np.bool_)
        flags = self._space.startable
        flags[self._waiting()] = False
        rules = self.rules._replace(trial=True, depth=np.iinfo(np.int64).max, partition_depth=0)
        pending, kernel = self.ordered(now), cast(Any, main_pass)
        kernel(*self._state(pending), rules, self._space, now)
        jobs = self.in_order(now)
        return jobs, flags[jobs]

    def in_order(self, now: float) -> Ints:
        """Returns the (P,) pending jobs in the order of scheduling, without those that are held."""
        if not self.pending:
            return np.zeros(0, np.int64)
        entries = self.ordered(now).job
        _, first = np.unique(entries, return_index=True)
        jobs = entries[np.sort(first)]
        return jobs[self.running.last[jobs] == 0]

    def backfill(self, now: float) -> list[Start]:
        """Makes a pass of sched/backfill at a time in seconds since 1970."""
        return self._pass(backfill_pass, self.rules, (self._plan,), now, backfilled=True)

    @property
    def _machine(self) -> Machine:
        """The nodes and the jobs on them, for kernels."""
        return Machine(self.nodes, self.usage, self.jobs.demands, self.running, self.limits.quotas)

    def _state(self, pending: PendingJobs) -> tuple[Any, ...]:
        """The first arguments of a pass over some pending jobs."""
        table = self.jobs
        sets = table.features, table.feature, self.service, self.completing
        access = Access(self.members, *sets, self.calendar, *self._users)
        return self._machine, self.preemption, pending, access

    def _pass(
        self,
        kernel: Any,
        rules: Rules,
        plan: tuple[Any, ...],
        now: float,
        *,
        backfilled: bool,
        only: int | None = None,
    ) -> list[Start]:
        if not self.pending:
            return []
        self._reserve_places(len(self.pending) * len(self.nodes.cpus))
        pending = self.ordered(now)
        if only is not None:
            rows = pending.job == only
            pending = PendingJobs(*(column[rows] for column in pending))
        count = kernel(*self._state(pending), rules, *plan, self._space, now)
        started = [self._started(job, now, backfilled=backfilled) for job in self._space.started[:count].tolist()]
        for one in started:
            del self.pending[one.job]
        if started and self.preemption.enabled:
            self._order = None  # all jobs of the queue count in the order of those that preempt
        return started

    @property
    def suspends(self) -> bool:
        """Whether jobs may be suspended for others."""
        return bool(len(self.layers.order))

    def shift(self, now: float) -> tuple[list[int], list[int]]:
        """Suspends and resumes jobs after starts and ends at a time in seconds since 1970.

        A job runs if no running job of a partition of a higher tier has one of its CPUs.

        Returns:
            The jobs that are suspended from now on, and those that run again.
        """
        if not self.suspends:
            return [], []
        stand = preemption.suspended_jobs(self.layers)
        suspended = [job for job in stand if job not in self.suspended]
        resumed = [job for job in self.suspended if job not in stand]
        self.suspended |= dict.fromkeys(suspended, now)
        for job in resumed:
            self._postpone(job, now - self.suspended.pop(job))
        return suspended, resumed

    def _postpone(self, job: int, seconds: float) -> None:
        """Has the limit of a running job end later."""
        running = self.running
        count = int(running.length[0])
        running.end[:count][running.job[:count] == job] += seconds
        order = np.argsort(running.end[:count], kind="stable")
        running.job[:count], running.end[:count] = running.job[:count][order], running.end[:count][order]

    @property
    def preempted(self) -> list[int]:
        """The running jobs that the last pass has preempted."""
        return self.preemption.victim[: self.preemption.length[0]].tolist()

    def requeues(self, job: int) -> bool:
        """Whether a preempted job goes back to the queue instead of being cancelled."""
        return self._modes[self.preemption.group[job]] == "REQUEUE"

    def grace(self, job: int) -> float:
        """Returns the seconds that a preempted job runs on."""
        return preemption.grace_of(self.site, int(self.preemption.group[job]))

    def ordered(self, now: float) -> PendingJobs:
        """Returns the pending jobs in the order of scheduling at a time in seconds since 1970.

        Jobs that preempt others come before them, then those in reservations, of partitions of a higher tier, of a
        higher priority, and of an earlier submission.
        """
        if self._order is None:
            self._order = self._in_order()
        least_age = self.parameters["bf_min_age_reserve"]
        if not least_age:
            return self._order
        waits = now - self.jobs.eligible[self._order.job] >= least_age
        return self._order._replace(reserves=self._order.reserves & waits)

    def _in_order(self) -> PendingJobs:
        """Returns the queue, whatever the age of the jobs; some may have started since."""
        jobs, waiting = self.jobs, self._waiting()
        waiting = waiting[~jobs.held[waiting]]
        first = jobs.first_entry
        lengths = np.append(first, len(jobs.entry_job))[waiting + 1] - first[waiting]
        within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        entries = np.repeat(first[waiting], lengths) + within
        entries = entries[self.limits.blocked[entries] == 0]
        listed, partitions = jobs.entry_job[entries], jobs.entry_partition[entries]
        priority = self.priorities(listed, partitions)
        keys = partitions, listed, jobs.submitted[listed], -priority, -self._tier[partitions]
        order = np.lexsort((*keys, jobs.reservation[listed] < 0))
        order = order[priority[order] > -math.inf]
        if self.preemption.enabled:
            order = self._preemptors_first(order, listed, partitions)
        listed, partitions, entries = listed[order], partitions[order], entries[order]
        unreserving = self._unreserving[jobs.qos[listed]]
        reserves = priority[order] >= (self.parameters["bf_min_prio_reserve"] or -math.inf)
        whole = jobs.whole[listed] | self._exclusive[partitions]
        limit = np.fmin(jobs.demands.limit[listed], self._longest[partitions])
        if self.site.preemption.gang or self.site.preemption.mode.upper() != "OFF":
            limit[unreserving] = _BRIEF
        plans = ~unreserving, jobs.named[listed], limit
        own = jobs.user[listed], jobs.reservation[listed], jobs.task_of[listed]
        return PendingJobs(listed, entries, partitions, whole, reserves, *plans, *own)

    def _preemptors_first(self, order: Ints, listed: Ints, partitions: Ints) -> Ints:
        """Returns the order of (Q,) entries of jobs in which slurmctld has those that preempt others before them."""
        rank = np.zeros(len(listed), np.int64)
        rank[order] = np.arange(len(order))
        made = order[np.argsort(listed[order], kind="stable")]
        group = partitions if self.preemption.by_partition else self.preemption.group[listed]
        beats = self.preemption.beats
        sort_queue(group, rank, beats, made, np.zeros((4, len(made) + 64), np.int64))
        return made

    def _reserve_places(self, more: int) -> None:
        """Makes space for what starting jobs hold; jobs that have ended leave their places."""
        running = self.running
        used, size = int(running.length[1]), len(running.node)
        if used + more <= size:
            return
        live = running.job[: running.length[0]]
        node, cpus, gpus = np.zeros((3, 2 * (used + more)), np.int64)
        used = 0
        for job in live.tolist():
            held = slice(running.first[job], running.last[job])
            count = held.stop - held.start
            placed = slice(used, used + count)
            node[placed], cpus[placed], gpus[placed] = running.node[held], running.cpus[held], running.gpus[held]
            running.first[job], running.last[job] = used, used + count
            used += count
        running.length[1] = used
        self.running = running._replace(node=node, cpus=cpus, gpus=gpus)
