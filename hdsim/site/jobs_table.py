"""Jobs of a site as the schedulers see them: demands, partitions, accounts and times as columns."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hdsim.errors import WorkloadError
from hdsim.site.features import features_in, nodes_having
from hdsim.site.formats import expand_nodes, parse_counts, parse_gres, split_list
from hdsim.site.kernels.placing import Demands
from hdsim.site.model import Partition, Site
from hdsim.site.platform import nodes_of
from hdsim.util.arrays import Flags, Floats, Ints
from hdsim.util.text import shown

_log = logging.getLogger(__name__)
#: Most nodes of a job that names none.
_ANY_NUMBER = 1 << 30
#: Seconds that Slurm takes for jobs without a limit in partitions without one.
YEAR = 365 * 86_400.0


@dataclass
class SiteJobs:
    """Columns with one row a job, in order of submission; J jobs, N nodes.

    Each partition that a job may be in is an entry, E in all, those of a job one after the other.

    Attributes:
        first_entry: (J,) first entry of each job.
        entry_job: (E,) job of each entry.
        entry_partition: (E,) its partition.
    """

    submitted: Floats  # in seconds since 1970
    eligible: Floats  # in seconds since 1970, from which on a job may start
    demands: Demands
    partitions: list[tuple[int, ...]]  # the partitions that each job may be in
    user: Ints  # numbers of users, by first appearance
    association: Ints  # row of the site's associations, -1 for none
    qos: Ints  # place among the site's QOS, -1 for none
    nice: Floats
    features: Flags  # (F, N) nodes that have each set of features that is asked for; the first one is of all nodes
    feature: Ints  # (J,) row of `features`
    reservation: Ints  # place among the site's reservations, -1 for none
    held: Flags
    licenses: Ints  # (J, L) licences of each kind of the site
    refused: dict[int, str]  # reasons of jobs that no partition takes
    task_of: Ints  # number of the array of each job, -1 for none
    array: Ints  # the same of arrays with a throttle only
    array_limit: Ints  # most tasks of it that run at a time
    named: Flags  # jobs that name the nodes that they keep to
    whole: Flags  # jobs that ask for whole nodes, in whatever partition
    alone: Flags  # jobs that ask for nodes without jobs of other users
    per_counted: Ints  # CPUs that jobs hold for each one that limits, priorities and usage count
    first_entry: Ints = field(init=False)
    entry_job: Ints = field(init=False)
    entry_partition: Ints = field(init=False)

    def __post_init__(self) -> None:
        lengths = np.array([len(each) for each in self.partitions], np.int64)
        self.first_entry = np.cumsum(lengths) - lengths
        self.entry_job = np.repeat(np.arange(len(lengths)), lengths)
        self.entry_partition = np.array([row for each in self.partitions for row in each], np.int64)

    def __len__(self) -> int:
        return len(self.submitted)


def jobs_table(columns: Mapping[str, Sequence[Any]], site: Site, where: str = "jobs") -> SiteJobs:
    """Returns the jobs of a site from columns with one value a job.

    Args:
        columns: ``submit``, ``cpus``, ``partition`` and, if there are any, ``eligible``, ``requested_time``, ``nodes``,
            ``most_nodes``, ``use_min_nodes``, ``per_task``, ``tasks_per_node``, ``min_cpus`` (of
            each node), ``memory``, ``memory_per``, ``whole``, ``whole_cores``
            (a core for each CPU), ``exclusive_user``, ``user``, ``account``, ``qos``,
            ``nice``, ``constraints``, ``required_nodes``, ``excluded_nodes``, ``reservation``, ``licenses``, ``gres``
            (of each node, ``gpu:2`` or ``gpu:a100:2``), ``gpus`` (of all nodes together, ``4`` or ``a100:4``),
            ``gpus_per_task``, ``cpus_per_gpu``, ``held``, ``array_limit`` and ``job_id``; None where a job has none.
        site: The site.
        where: Origin of the columns, for error messages.

    Raises:
        WorkloadError: A column is missing, or a job names a partition, QOS, feature or reservation that the site lacks.
    """
    for name in ("submit", "cpus", "partition"):
        if name not in columns:
            raise WorkloadError(f"expected a column {name}, got {', '.join(columns)}", where=where)
    jobs = len(columns["submit"])

    def column(name: str, default: Any) -> list[Any]:
        return [default if value is None else value for value in columns.get(name, [None] * jobs)]

    def known(name: str, value: Any, allowed: Sequence[str], row: int) -> int:
        if value not in allowed:
            ids = columns.get("job_id", range(jobs))
            expected = f"expected one of {', '.join(allowed) or 'none'}"
            raise WorkloadError(f"job {ids[row]}: {name}: {expected}, got {shown(value)}", where=where)
        return list(allowed).index(value)

    names = list(site.partitions)
    usual = site.default_partition
    asked = [text or usual for text in column("partition", usual)]
    rows: dict[Any, tuple[int, ...]] = {}
    for row, text in enumerate(asked):
        if text not in rows:
            rows[text] = tuple(known("partition", name, names, row) for name in split_list(str(text)))
    partitions = [rows[text] for text in asked]
    submitted = np.array(columns["submit"], np.float64)
    accounts, qos = column("account", ""), column("qos", "")
    demands = _demands(columns, column, partitions, qos, site, known, where)
    nodes = np.maximum(demands.least, column("most_nodes", 0)).tolist()
    partitions, refused = _permitted(site, partitions, demands, nodes, accounts, qos)
    users: dict[str, int] = {}
    array, array_limit = _arrays(columns, column)
    listed = _required(column("required_nodes", ""), demands.least.tolist(), where)
    features, feature = _features(site, column("constraints", ""), listed, column("excluded_nodes", ""), known, where)
    return SiteJobs(
        submitted=submitted,
        eligible=np.fmax(np.array(column("eligible", math.nan), np.float64), submitted),
        demands=demands,
        partitions=partitions,
        user=np.array([users.setdefault(name, len(users)) for name in column("user", "")], np.int64),
        association=_associations(site, accounts, column("user", ""), asked),
        qos=_of_names("qos", qos, list(site.qos), known),
        nice=np.array(column("nice", 0), np.float64),
        features=features,
        feature=feature,
        reservation=_of_names("reservation", column("reservation", ""), list(site.reservations), known),
        held=np.array(column("held", False), np.bool_),
        licenses=_licenses(column("licenses", ""), list(site.licenses), known),
        refused=refused,
        task_of=_arrays_of(columns.get("job_id", [""] * jobs)),
        array=array,
        array_limit=array_limit,
        named=np.array([bool(text) for text in listed], np.bool_),
        whole=np.array(column("whole", False), np.bool_),
        alone=np.array(column("exclusive_user", False), np.bool_),
        per_counted=_per_counted(site, column),
    )


def _of_cores(site: Site, column: Any) -> Ints:
    """Returns the CPUs that jobs hold for each one that they ask for: those of a core, or one."""
    threads = max((kind.threads_per_core for kind in site.nodes.values()), default=1)
    return np.where(column("whole_cores", False), threads, 1)


def _per_counted(site: Site, column: Any) -> Ints:
    """Returns the CPUs that jobs hold for each one that counts: with CR_CPU one of each whole core does."""
    held = _of_cores(site, column)
    return held if "CPU" in site.slurm.consumable else np.ones_like(held)


def _exempt(site: Site, qos: list[str], flag: str) -> Flags:
    """Returns whether the QOS of each job has a flag, such as PartitionTimeLimit."""
    having = {name for name, one in site.qos.items() if one.has(flag)}
    return np.array([name in having for name in qos], np.bool_)


def _demands(
    columns: Mapping[str, Any], column: Any, partitions: Any, qos: list[str], site: Site, known: Any, where: str
) -> Demands:
    """Returns what the jobs ask for, within the limits and with the defaults of their first partitions.

    A job that asks for more memory than MaxMemPerCPU permits gets more CPUs (sbatch(1), ``--mem-per-cpu``); ``--mem=0``
    asks for all memory of the nodes.
    """
    kinds = list(site.partitions.values())
    first = [kinds[rows[0]] for rows in partitions]
    cpus = np.maximum(np.array(columns["cpus"], np.int64), 1)
    least, most = np.array(column("nodes", 1), np.int64), np.array(column("most_nodes", _ANY_NUMBER), np.int64)
    # Flags of the QOS free jobs that name a number from the limits of the partition.
    fewest = np.array([kind.min_nodes for kind in first], np.int64)
    least = np.where(_exempt(site, qos, "PartitionMinNodes") & (most < fewest), least, np.maximum(least, fewest))
    bound = np.minimum(most, [_ANY_NUMBER if kind.max_nodes is None else kind.max_nodes for kind in first])
    most = np.where(_exempt(site, qos, "PartitionMaxNodes") & (most < _ANY_NUMBER), most, bound)
    asked = np.array(column("requested_time", math.nan), np.float64)
    usual = [kind.max_time if kind.default_time is None else kind.default_time for kind in first]
    limit = np.where(np.isnan(asked), usual, asked)
    per_task = np.maximum(np.array(column("per_task", 1), np.int64), 1)
    cores = _of_cores(site, column)
    cpus, per_task = cpus * cores, per_task * cores
    memory, of_cpu = np.array(column("memory", math.nan), np.float64), np.array(column("memory_per", "n")) == "c"
    whole_node = max((kind.memory for _, kind in nodes_of(site)), default=0.0)
    for job, kind in enumerate(first):
        if math.isnan(memory[job]):
            usual, of_cpu[job] = kind.default_memory_per_cpu, kind.default_memory_per_cpu is not None
            memory[job] = usual if usual is not None else kind.default_memory_per_node or whole_node
        elif memory[job] == 0:
            memory[job], of_cpu[job] = whole_node, False
        if kind.max_memory_per_cpu is not None:
            more = max(math.ceil(memory[job] / kind.max_memory_per_cpu), 1)
            if of_cpu[job]:
                cpus[job], per_task[job], memory[job] = cpus[job] * more, per_task[job] * more, memory[job] / more
            else:
                cpus[job] = max(cpus[job], least[job] * more)
    on_node = _tasks_on_nodes(column, cpus // per_task, where)
    if site.slurm.select == "linear":
        on_node = np.where(cpus > per_task, on_node, 0)
    gpus = _gpus(column, site, known, cpus // per_task)
    cpus = np.maximum(cpus, gpus["all_gpus"] * gpus["cpus_per_gpu"])
    # A node has a task at least.
    most = np.where(gpus["all_gpus"] > 0, np.minimum(most, np.maximum(cpus // per_task, least)), most)
    least, most = np.maximum(least, 1), np.maximum(most, 1)
    tasks = np.maximum(cpus // per_task, 1)
    fewest = np.where(on_node > 0, np.maximum(least, -(-tasks // np.maximum(on_node, 1))), least)
    # Of a range a job takes the greatest number that it can get, but not for GPUs of all nodes together; where it names
    # a number of tasks, each node has one.
    ranged = np.array([value is not None for value in columns.get("most_nodes", [None] * len(cpus))], np.bool_)
    most = np.where(ranged & (tasks > 1), np.minimum(most, np.maximum(tasks, fewest)), most)
    ranged &= ~np.array(column("use_min_nodes", False), np.bool_) & (gpus["all_gpus"] == 0)
    exclusive = np.array(site.whole_nodes, np.bool_)[[rows[0] for rows in partitions]]
    return Demands(
        cpus=cpus,
        per_task=per_task,
        on_node=on_node,
        # A single task takes its own CPUs only.
        least_cpus=np.maximum(per_task * np.where(tasks > 1, np.maximum(on_node, 1), 1), column("min_cpus", 0)),
        least=least,
        fewest=fewest,
        wanted=np.where(ranged, np.maximum(fewest, most), fewest),
        most=most,
        memory_per_cpu=np.where(of_cpu, memory, 0.0) / _per_counted(site, column),
        memory_per_node=np.where(of_cpu, 0.0, memory),
        partition=np.array([rows[0] for rows in partitions], np.int64),
        whole=np.array(column("whole", False), np.bool_) | exclusive,
        limit=np.where(np.isinf(limit), YEAR, limit),
        **gpus,
    )


def _tasks_on_nodes(column: Any, tasks: Ints, where: str) -> Ints:
    """Returns the tasks of each job on each node, 0 for any number; those that its most nodes contradict are left out.

    srun says that it cannot honour such a number, sbatch refuses the job.
    """
    on_node = np.maximum(np.array(column("tasks_per_node", 0), np.int64), 0)
    beyond = on_node * np.array(column("most_nodes", _ANY_NUMBER), np.int64) < np.where(on_node > 0, tasks, 0)
    if beyond.any():
        told = "%s: %d jobs have more tasks than --ntasks-per-node allows on their nodes; they are as without it"
        _log.warning(told, where, int(beyond.sum()))
    return np.where(beyond, 0, on_node)


def _arrays_of(ids: Sequence[Any]) -> Ints:
    """Returns the array that each job is a task of by its id, such as ``7_3``, -1 for none."""
    numbers: dict[str, int] = {}
    parts = [str(name).partition("_") for name in ids]
    return np.array([numbers.setdefault(first, len(numbers)) if mark else -1 for first, mark, _ in parts], np.int64)


def _arrays(columns: Mapping[str, Sequence[Any]], column: Any) -> tuple[Ints, Ints]:
    """Returns the array that each job with a throttle is a task of, and the throttles."""
    most = np.array(column("array_limit", 0), np.int64)
    numbers: dict[str, int] = {}
    array = np.full(len(most), -1)
    for row in np.flatnonzero(most).tolist():
        array[row] = numbers.setdefault(str(columns["job_id"][row]).partition("_")[0], len(numbers))
    return array, most


def _permitted(
    site: Site,
    partitions: list[tuple[int, ...]],
    demands: Demands,
    nodes: list[int],
    accounts: list[str],
    qos: list[str],
) -> tuple[list[tuple[int, ...]], dict[int, str]]:
    """Returns those of the partitions that jobs name that take them, and why none does of the others."""
    kinds = list(site.partitions.values())
    left, refused = list(partitions), {}
    counts = "MEMORY" in site.slurm.consumable
    many = np.where(_exempt(site, qos, "PartitionMaxNodes"), 0, nodes).tolist()
    limit = np.where(_exempt(site, qos, "PartitionTimeLimit"), 0.0, demands.limit).tolist()
    # Memory of each CPU counts for the CPUs that each node has at least.
    per_node = np.maximum(-(-demands.cpus // demands.most), demands.per_task)
    memory = (counts * np.maximum(demands.memory_per_node, demands.memory_per_cpu * per_node)).tolist()
    for job, rows in enumerate(partitions):
        own = many[job], limit[job], memory[job], accounts[job], qos[job]
        words = [_objection(kinds[row], *own) for row in rows]
        if any(words):
            left[job] = tuple(row for row, word in zip(rows, words, strict=True) if not word)
            if not left[job]:
                left[job], refused[job] = rows, words[0]
    return left, refused


def _objection(kind: Partition, nodes: int, limit: float, memory: float, account: str, qos: str) -> str:
    """Returns the reason why a partition does not take a job, empty if it does."""
    if (kind.allow_accounts is not None and account not in kind.allow_accounts) or account in kind.deny_accounts:
        return "AccountNotAllowed"
    if (kind.allow_qos is not None and qos not in kind.allow_qos) or qos in kind.deny_qos:
        return "QOSNotAllowed"
    if kind.state != "UP":
        return "PartitionInactive" if kind.state == "INACTIVE" else "PartitionDown"
    if kind.max_nodes is not None and nodes > kind.max_nodes:
        return "PartitionNodeLimit"
    if kind.max_memory_per_node is not None and kind.max_memory_per_cpu is None and memory > kind.max_memory_per_node:
        return "MaxMemPerLimit"
    return "PartitionTimeLimit" if min(limit, YEAR) > max(kind.max_time, 0.0) else ""


def gpu_types(site: Site) -> list[str]:
    """Returns the types of GPUs of a site in the form of Gres, such as ``gpu:a100``."""
    return sorted({name for kind in site.nodes.values() for name in kind.gres if name.split(":")[0] == "gpu"})


def _gpus(column: Any, site: Site, known: Any, tasks: Ints) -> dict[str, Ints]:
    """Returns number and type of the GPUs that jobs ask for; other generic resources are not counted."""
    types = gpu_types(site)
    asked, in_all, per_task = column("gres", ""), column("gpus", ""), column("gpus_per_task", "")
    gpus, all_gpus, each = np.zeros((3, len(asked)), np.int64)
    kinds = np.full(len(asked), -1)

    def read(key: str, text: str, row: int, into: Ints) -> None:
        for name, number in parse_gres(text).items():
            if name.split(":")[0] == "gpu":
                into[row] += number
                kinds[row] = -1 if name == "gpu" and "gpu" not in types else known(key, name, types, row)

    for row, texts in enumerate(zip(asked, in_all, per_task, strict=True)):
        if texts[0]:
            read("gres", texts[0], row, gpus)
        for key, text, into in zip(("gpus", "gpus_per_task"), texts[1:], (all_gpus, each), strict=True):
            if text:
                read(key, f"gpu:{text}", row, into)
    return {
        "gpus": np.where(all_gpus + each > 0, 0, gpus),
        "gpu_type": kinds,
        "all_gpus": np.where(each > 0, each * tasks, all_gpus),
        "gpus_per_task": each,
        "cpus_per_gpu": np.array(column("cpus_per_gpu", 0), np.int64),
    }


def _licenses(asked: list[str], kinds: list[str], known: Any) -> Ints:
    """Returns the (J, L) licences that jobs ask for, such as ``matlab:2,ansys``."""
    made = np.zeros((len(asked), len(kinds)), np.int64)
    for row, text in enumerate(asked):
        for name, number in parse_counts(text).items():
            made[row, known("licenses", name, kinds, row)] = number
    return made


def _of_names(name: str, values: list[Any], allowed: list[str], known: Any) -> Ints:
    """Returns the place of each name among those allowed, -1 for none."""
    places: dict[Any, int] = {"": -1}
    for row, value in enumerate(values):
        if value not in places:
            places[value] = known(name, value, allowed, row)
    return np.array([places[value] for value in values], np.int64)


def _associations(site: Site, accounts: list[str], users: list[str], partitions: list[Any]) -> Ints:
    """Returns the row of the association of each job: of user, account and partition, or of the account alone."""
    rows = {(one.account, one.user, one.partition): row for row, one in enumerate(site.associations)}
    found: dict[tuple[str, str, Any], int] = {}
    made = np.empty(len(accounts), np.int64)
    for job, key in enumerate(zip(accounts, users, partitions, strict=True)):
        if key not in found:
            account, user, partition = key
            keys = (account, user, str(partition)), (account, user, ""), (account, "", "")
            found[key] = next((rows[one] for one in keys if one in rows), -1)
        made[job] = found[key]
    return made


def _required(lists: list[str], least: list[int], where: str) -> list[str]:
    """Returns the lists of nodes that jobs keep to; those with fewer nodes than the job are left out with a warning."""
    short = [bool(text) and len(expand_nodes(text)) < nodes for text, nodes in zip(lists, least, strict=True)]
    if any(short):
        _log.warning("%s: %d jobs name fewer nodes than they ask for; they may be on any", where, sum(short))
    return ["" if left else text for text, left in zip(lists, short, strict=True)]


def _features(
    site: Site, asked: list[str], required: list[str], excluded: list[str], known: Any, where: str
) -> tuple[Flags, Ints]:
    """Returns the (F, N) sets of nodes that jobs may be on, and that of each job.

    Args:
        site: The site.
        asked: Expressions of features, see :mod:`hdsim.site.features`.
        required: Lists of nodes that jobs have to be on, each at least as long as the job has nodes.
        excluded: Lists of nodes that jobs may not be on.
        known: Looks a name up.
        where: Origin of the jobs, for error messages.
    """
    nodes = nodes_of(site)
    having = [set(kind.features) for _, kind in nodes]
    place = {name: row for row, (name, _) in enumerate(nodes)}
    every = sorted(set().union(*having))
    rows: dict[tuple[str, str, str], int] = {("", "", ""): 0}
    sets = [np.ones(len(nodes), np.bool_)]
    keys = list(zip(asked, required, excluded, strict=True))
    for row, key in enumerate(keys):
        if key in rows:
            continue
        features, only, without = key
        for name in features_in(features):
            known("constraint", name, every, row)
        try:
            allowed = nodes_having(features, having) if features else np.ones(len(nodes), np.bool_)
        except ValueError as error:
            raise WorkloadError(f"constraint: {error}", where=where) from None
        for text, kept in ((only, True), (without, False)):
            if text:
                listed = np.zeros(len(nodes), np.bool_)
                listed[[place[name] for name in expand_nodes(text) if name in place]] = True
                allowed &= listed if kept else ~listed
        rows[key] = len(sets)
        sets.append(allowed)
    return np.array(sets), np.array([rows[key] for key in keys], np.int64)
