"""Jobs and nodes as a slurmctld reports them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hdsim.site.formats import expand_nodes, fold_nodes, parse_gres

#: Reasons of jobs that are held by their users or by administrators.
_HELD = ("JobHeldUser", "JobHeldAdmin")
_RUNNING = ("RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING")
_PENDING = ("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD")
#: States of nodes that take jobs, and flags that do not forbid it; after a restart of slurmctld a node is unknown for
#: a moment.
_UP = ("idle", "mixed", "allocated", "completing", "unknown")
_HARMLESS = ("COMPLETING", "CLOUD", "DYNAMIC_NORM", "PLANNED")


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """A job; times are in seconds since 1970 by Slurm's clock, 0 for what has not happened."""

    id: int
    comment: str
    partition: str
    state: str
    reason: str  # why it waits
    begin: int  # last start; of a pending job 0, or a date that is expected
    end: int
    waits: bool = False  # it depends on others that have not ended
    nodes: tuple[str, ...] = ()  # nodes that it has, or had at its end
    cpus: int = 0
    cpus_on: Mapping[str, int] | None = None  # CPUs on each of its nodes, None if the list does not tell

    @property
    def pending(self) -> bool:
        """Whether it waits."""
        return self.state in _PENDING

    @property
    def running(self) -> bool:
        """Whether it has its nodes: runs, is suspended or is about to end."""
        return self.state in _RUNNING

    @property
    def ended(self) -> bool:
        """Whether it neither waits nor has nodes any more."""
        return not (self.pending or self.running)

    @property
    def held(self) -> bool:
        """Whether it waits to be released."""
        return self.pending and self.reason in _HELD

    @property
    def has_run(self) -> bool:
        """Whether a job that has ended has had nodes."""
        return bool(self.nodes) and self.begin > 0


@dataclass(frozen=True, slots=True)
class Demand:
    """The request of a job that someone else has submitted."""

    tasks: int
    cpus: int  # CPUs of each task
    memory: float  # MiB of each task, 0 if it asks for none; with `one_node` of all tasks
    limit: float | None  # time limit in seconds, None without one
    user: int
    unsupported: str = ""  # something that hdsim does not know, empty for nothing
    features: str = ""  # constraint on features, empty for none
    on_nodes: bool = False  # these are names of nodes, as in a release by slurmrestd
    gpus: int = 0  # GPUs of each task; with `one_node` of all tasks
    gpu_kind: str = "gpu"  # such as ``gpu:a100``; ``gpu`` for any
    one_node: bool = False  # all tasks are on one node, as it asks for memory or GPUs of a node or of the job
    required: tuple[str, ...] = ()  # nodes that it has to be on (--nodelist), at most one
    excluded: tuple[str, ...] = ()  # nodes that it may not be on (--exclude)

    def allows(self, node: SlurmNode, partition: str) -> bool:
        """Whether a node may be one of a job's in a partition, or one of several with commas between."""
        if not set(partition.split(",")) & set(node.partitions) or node.name in self.excluded:
            return False
        if self.required and node.name not in self.required:
            return False
        if self.gpus and not any(f"{kind}:".startswith(f"{self.gpu_kind}:") for kind in node.gres):
            return False
        parts = self.features.strip("()").split("|")
        return self.on_nodes or any(set(filter(None, part.split("&"))) <= set(node.features) for part in parts)


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """A node."""

    name: str
    cpus: int
    memory: float  # MiB
    up: bool  # it takes jobs
    state: str
    features: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    gres: Mapping[str, int] = field(default_factory=dict)  # GPUs by kind, such as ``gpu`` or ``gpu:a100``

    @property
    def gpus(self) -> int:
        """GPUs of all kinds."""
        return gpus_in(self.gres)


@dataclass(frozen=True, slots=True)
class Held:
    """Resources that a running job holds on a node."""

    cpus: int
    memory: float = 0.0  # MiB, 0 where memory is not a resource
    gpus: int = 0


@dataclass(frozen=True, slots=True)
class Submission:
    """A job to submit, which is held and sleeps."""

    name: str
    comment: str
    tasks: int
    cpus: int  # CPUs of each task
    memory: float  # MiB of each CPU, 0 for none
    script: str
    gpus: int = 0  # GPUs of each task
    minutes: int | None = None  # time limit, None for none
    partition: str | None = None  # None: the default one
    environment: Mapping[str, str] = field(default_factory=lambda: {"PATH": "/usr/bin:/bin"})


@dataclass(frozen=True, slots=True)
class Release:
    """Nodes for a held job, which may start on them at once."""

    job: int
    nodes: tuple[str, ...]
    tasks: int
    cpus: int  # CPUs of each task
    least: int  # CPUs that each node has to give at least
    again: bool = False  # it has run before, and need not wait until it may begin anew


def job_of(document: Mapping[str, Any]) -> SlurmJob:
    """Returns a job of slurmrestd's document."""
    resources = document.get("job_resources") or {}
    on = {
        node["nodename"]: sum(len(socket.get("cores") or ()) for socket in (node.get("sockets") or {}).values())
        for node in resources.get("allocated_nodes") or ()
    }
    return SlurmJob(
        id=document["job_id"],
        comment=document["comment"] or "",
        partition=document["partition"] or "",
        state=document["job_state"],
        reason=document["state_reason"],
        begin=document["start_time"] or 0,
        end=document["end_time"] or 0,
        waits=bool(document["dependency"]),
        nodes=_nodes(document["nodes"] or ""),
        cpus=document["cpus"] or 0,
        cpus_on=on or None,
    )


def node_of(document: Mapping[str, Any]) -> SlurmNode:
    """Returns a node of slurmrestd's document."""
    state, flags = str(document["state"]), [str(flag) for flag in document["state_flags"]]
    return SlurmNode(
        name=document["name"],
        cpus=document["cpus"],
        memory=float(document["real_memory"]),
        up=state in _UP and all(flag in _HARMLESS for flag in flags),
        state="+".join([state, *(flag.lower() for flag in flags)]),
        features=tuple(filter(None, (document["features"] or "").split(","))),
        partitions=tuple(document.get("partitions") or ()),
        gres=parse_gres(document.get("gres") or ""),
    )


def is_up(state: str) -> bool:
    """Whether a node takes jobs, by its state as sinfo prints it, such as ``idle`` or ``down*``."""
    return state in _UP


def demand_of(fields: Mapping[str, str], names: frozenset[str]) -> Demand:
    """Returns the request of a job by the fields that ``scontrol show job`` prints; `names` are those of the nodes."""
    unsupported, features = _unsupported(fields), fields.get("Features", "").replace("(null)", "")
    on_nodes = bool(features) and all(
        name in names for name in re.findall(r"[^\[\]&*|,()]+", _without_counts(features))
    )
    if features and not on_nodes and not re.fullmatch(r"\(?[\w.+-]+([&|][\w.+-]+)*\)?", features):
        unsupported = unsupported or f"--constraint={features}"
    tasks, cpus = int(fields.get("NumTasks", "1")), int(fields.get("CPUs/Task", "1").replace("N/A", "1"))
    total = int(fields["NumCPUs"].partition("-")[0])
    if tasks * cpus < total:
        tasks, cpus = (total // cpus, cpus) if total % cpus == 0 else (total, 1)
    memory, of_node = 0.0, _megabytes(fields.get("MinMemoryNode", "0"))
    if "MinMemoryCPU" in fields:
        memory = cpus * _megabytes(fields["MinMemoryCPU"])
    gpus, kind, per, fault = _gpus(fields)
    unsupported = unsupported or fault
    one_node = bool(of_node) or per in ("TresPerNode", "TresPerJob")
    if one_node:
        memory, gpus = of_node or tasks * memory, gpus * tasks if per == "TresPerTask" else gpus
        if int(fields.get("NumNodes", "1").partition("-")[0]) > 1:
            told = "--mem" if of_node else f"{_GPU_OPTIONS[per]}={fields[per]}"
            unsupported = unsupported or f"{told} on several nodes"
    required = _nodes(fields.get("ReqNodeList", ""))
    if len(required) > 1:
        unsupported = unsupported or f"--nodelist={fields['ReqNodeList']}, several nodes"
    user = re.search(r"\((\d+)\)", fields.get("UserId", ""))
    return Demand(
        tasks=tasks,
        cpus=cpus,
        memory=memory,
        limit=_limit(fields.get("TimeLimit", "UNLIMITED")),
        user=int(user[1]) if user else -1,
        unsupported=unsupported,
        features=features,
        on_nodes=on_nodes,
        gpus=gpus,
        gpu_kind=kind,
        one_node=one_node,
        required=required,
        excluded=_nodes(fields.get("ExcNodeList", "")),
    )


def constraint(nodes: tuple[str, ...]) -> str:
    """Returns the constraint on features that names nodes, each of which has its own name as a feature."""
    return nodes[0] if len(nodes) == 1 else f"[{'&'.join(f'{name}*1' for name in nodes)}]"


def _without_counts(constraint: str) -> str:
    return re.sub(r"\*\d+", "", constraint)


def _unsupported(fields: Mapping[str, str]) -> str:
    """Returns what a job asks for and hdsim does not know, empty for nothing."""
    given = {key: value for key, value in fields.items() if value not in ("", "(null)", "N/A", "0")}
    for key, option in (
        ("Licenses", "--licenses"),
        ("TresPerSocket", "--gpus-per-socket"),
        ("Reservation", "--reservation"),
        ("ArrayTaskId", "--array"),
        ("HetJobId", "parts of a heterogeneous job"),
    ):
        if key in given:
            return f"{option}={given[key]}" if option.startswith("--") else option
    return "--exclusive" if given.get("OverSubscribe") in ("NO", "EXCLUSIVE", "USER") else ""


#: Options by the fields that GPUs are in.
_GPU_OPTIONS = {"TresPerNode": "--gres", "TresPerJob": "--gpus", "TresPerTask": "--gpus-per-task"}


def _gpus(fields: Mapping[str, str]) -> tuple[int, str, str, str]:
    """Returns number and kind of the GPUs that a job asks for, the field that has them, and what is not known of it."""
    given = [key for key in _GPU_OPTIONS if fields.get(key, "(null)") not in ("", "(null)")]
    if not given:
        return 0, "gpu", "", ""
    key = given[0]
    amounts = parse_gres(fields[key].replace("gres:", "").replace("gres/", ""))
    if len(given) > 1 or len(amounts) != 1 or next(iter(amounts)).split(":")[0] != "gpu":
        return 0, "gpu", key, f"{_GPU_OPTIONS[key]}={fields[key]}"
    ((kind, number),) = amounts.items()
    return number, kind, key, ""


def held_of(document: Mapping[str, Any]) -> dict[str, Held]:
    """Returns what a running job of slurmrestd's document holds on each of its nodes."""
    found, details = {}, list(document.get("gres_detail") or ())
    resources = document.get("job_resources") or {}
    for place, node in enumerate(resources.get("allocated_nodes") or ()):
        cpus = sum(len(socket.get("cores") or ()) for socket in (node.get("sockets") or {}).values())
        gres = parse_gres(details[place]) if place < len(details) else {}
        found[node["nodename"]] = Held(cpus, float(node.get("memory_allocated") or 0), gpus_in(gres))
    return found


def gpus_in(gres: Mapping[str, int]) -> int:
    """Returns the number of GPUs among generic resources."""
    return sum(number for kind, number in gres.items() if kind.split(":")[0] == "gpu")


def _nodes(text: str) -> tuple[str, ...]:
    return tuple(expand_nodes(text)) if text not in ("", "None assigned", "(null)") else ()


def nodes_in(text: str) -> tuple[str, ...]:
    """Returns the names of a list of nodes as Slurm prints it, none for a job without nodes."""
    return _nodes(text)


def listed(nodes: tuple[str, ...]) -> str:
    """Returns a list of nodes in Slurm's form."""
    return fold_nodes(nodes) if nodes else ""


def _megabytes(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?)", text)
    return float(found[1]) * {"K": 1 / 1024, "": 1.0, "M": 1.0, "G": 1024.0, "T": 1024.0**2}[found[2]] if found else 0.0


def _limit(text: str) -> float | None:
    from hdsim.site.formats import parse_time

    try:
        seconds = parse_time(text)
    except ValueError:
        return None
    return seconds if seconds < 365 * 86_400 else None
