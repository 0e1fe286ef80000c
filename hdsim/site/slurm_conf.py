"""Reading of ``slurm.conf`` and ``topology.conf``.

Source of keys, forms and defaults: the manual pages slurm.conf(5) and topology.conf(5) of Slurm 22.05.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from hdsim.errors import ConfigError
from hdsim.site.formats import (
    expand_nodes,
    fold_nodes,
    parse_counts,
    parse_gres,
    parse_memory,
    parse_time,
    read_text,
    read_value,
    split_list,
)
from hdsim.site.notes import Notes
from hdsim.util.text import shown

#: Keys that change nothing of what is scheduled when: daemons, files, accounts of the machine, logs and so on.
_WITHOUT_INFLUENCE = re.compile(
    r"accountingstorage(host|port|user|pass|loc|type|backuphost|tres|externalhost|storeflags)|acctgather.*|auth.*"
    r"|backup.*|batchstarttimeout|boottime|burstbuffer.*|cli.*|cloud_dns|clustername|comm.*|complete?wait|control.*"
    r"|core.*|cred.*|debugflags|dependencyparameters|disablerootjobs|eiotimeout|epilog.*|ext.*"
    r"|fed.*|firstjobid|getenvtimeout|gres(types)?|group.*|gpufreqdef|hash.*|healthcheck.*|inactivelimit"
    r"|interactivestep.*|job(acct|comp|container|credential|submit).*|jobfileappend|kill.*|keepalive.*"
    r"|launch.*|log.*|mail.*|max(arraysize|dbdmsgs|jobcount|jobid|mempernode|stepcount|taskspernode)|mcs.*"
    r"|messagetimeout|minjobage|mpi.*|msg.*|nodefeatures.*|ntasks.*|oomkillstep|openmode|plug.*|power.*|prep.*|private.*"
    r"|proctrack.*|prolog.*|propagate.*|prioritysitefactor.*|reboot.*|reconfigflags|requeueexit.*|resume.*"
    r"|resv(epilog|prolog|overrun)|returntoservice|route.*|sbcast.*|sched(ulerport|ulerrootfilter|logfile|loglevel)"
    r"|slurm(ctld|d|sched|user).*|srun.*|state.*|suspend.*|switch.*|task.*|tcptimeout|tmpfs|track.*|treewidth"
    r"|unkillable.*|use.*|vsizefactor|wait.*|x11.*|nodehostname|nodeaddr|port|slurmdport|prioritytype"
)
#: Values of these keys with which they change nothing, for those that change something with others.
_USUAL = {
    "jobrequeue": r"1|yes|true",
    "mcsplugin": r"(mcs/)?none",
    "prioritysitefactorplugin": r"(site_factor/)?none",
    "suspendtime": r"-1|none|infinite|unlimited",
}


class _Reader:
    """Values of one line by lower-case key, each taken once."""

    def __init__(self, pairs: Mapping[str, str], where: str) -> None:
        self._pairs, self._where = dict(pairs), where

    def take(self, key: str, read: Callable[[str], Any], default: Any = None) -> Any:
        """Removes a value and returns it read.

        Raises:
            ConfigError: It has another form than expected.
        """
        text = self._pairs.pop(key, None)
        return default if text is None else read_value(text, read, f"{self._where}: {key}")

    def rest(self) -> dict[str, str]:
        """The values that nothing has taken."""
        return self._pairs


def count(text: str) -> int | None:
    """Returns a number of at least 0, None for UNLIMITED."""
    if text.upper() in ("UNLIMITED", "INFINITE", "-1"):
        return None
    if not text.isdecimal():
        raise ValueError(f"expected a whole number or UNLIMITED, got '{text}'")
    return int(text)


def number(text: str) -> float:
    """Returns a finite number."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"expected a number, got '{text}'")
    return value


def at_least_one(text: str) -> int:
    """Returns a number from 1 on."""
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"expected a whole number from 1 on, got '{text}'")
    return int(text)


def weight(text: str) -> float:
    """Returns a finite number of at least 0."""
    value = number(text)
    if value < 0:
        raise ValueError(f"expected a number of at least 0, got '{text}'")
    return value


def flag(text: str) -> bool:
    """Returns whether a text is YES or 1."""
    if text.upper() not in ("YES", "NO", "TRUE", "FALSE", "1", "0"):
        raise ValueError(f"expected YES or NO, got '{text}'")
    return text.upper() in ("YES", "TRUE", "1")


def names(text: str) -> list[str]:
    """Returns the names of a list separated by commas."""
    return list(split_list(text))


def allowed(text: str) -> list[str] | None:
    """Returns the names of a list, None for ALL."""
    return None if text.upper() == "ALL" else names(text)


def lowered(text: str) -> list[str]:
    """Returns the names of a list of accounts or QOS, which accounting has in lower case."""
    return names(text.lower())


def allowed_lowered(text: str) -> list[str] | None:
    """Returns the names of such a list, None for ALL."""
    return allowed(text.lower())


def minutes(text: str) -> float:
    """Returns a time in seconds, which are those of whole minutes, rounded up."""
    seconds = parse_time(text)
    return seconds if math.isinf(seconds) else 60.0 * math.ceil(seconds / 60.0)


def grace(text: str) -> float:
    """Returns seconds, which a number alone is here."""
    return float(text) if text.isdecimal() else parse_time(text)


def mebibytes(text: str) -> float:
    """Returns an amount of memory in MiB, infinite for none."""
    return math.inf if text.upper() in ("UNLIMITED", "0") else parse_memory(text)[0]


def weights(text: str) -> dict[str, float]:
    """Returns weights by TRES in lower case, such as ``CPU=1000,Mem=2000``."""
    found = {}
    for item in split_list(text):
        name, _, value = item.partition("=")
        found[name.strip().lower()] = number(value)
    return found


def partition_state(text: str) -> str:
    """Returns the state of a partition in capitals."""
    if text.upper() not in ("UP", "DOWN", "DRAIN", "INACTIVE"):
        raise ValueError(f"expected UP, DOWN, DRAIN or INACTIVE, got '{text}'")
    return text.upper()


def billing_weights(text: str) -> dict[str, float]:
    """Returns weights by TRES, that of memory per MiB: ``Mem=0.25G`` is a quarter for each GiB."""
    found = {}
    for item in split_list(text):
        name, _, value = item.partition("=")
        match = re.fullmatch(r"([0-9.]+)([KMGTP]?)", value.strip(), re.IGNORECASE)
        if not match:
            raise ValueError(f"expected weights such as CPU=1.0,Mem=0.25G, got '{text}'")
        factor = parse_memory(f"1{match[2] or 'M'}")[0] if name.strip().lower() == "mem" else 1.0
        found[name.strip().lower()] = number(match[1]) / factor
    return found


#: Values of a line ``NodeName=`` that this reads by itself, and their keys in a site.
_NODE = {
    "realmemory": ("memory", number),
    "weight": ("weight", count),
    "state": ("state", str.upper),
    "feature": ("features", names),
    "features": ("features", names),
    "gres": ("gres", parse_gres),
}
_PARTITION = {
    "default": ("default", flag),
    "state": ("state", partition_state),
    "maxtime": ("max_time", minutes),
    "defaulttime": ("default_time", minutes),
    "minnodes": ("min_nodes", count),
    "maxnodes": ("max_nodes", count),
    "maxcpuspernode": ("max_cpus_per_node", count),
    "prioritytier": ("priority_tier", count),
    "priorityjobfactor": ("priority_job_factor", count),
    "preemptmode": ("preempt_mode", str.upper),
    "gracetime": ("grace_time", grace),
    "oversubscribe": ("oversubscribe", str.upper),
    "shared": ("oversubscribe", str.upper),
    "exclusiveuser": ("exclusive_user", flag),
    "lln": ("least_loaded", flag),
    "qos": ("qos", str.lower),
    "allowaccounts": ("allow_accounts", allowed_lowered),
    "denyaccounts": ("deny_accounts", lowered),
    "allowqos": ("allow_qos", allowed_lowered),
    "denyqos": ("deny_qos", lowered),
    "allowgroups": ("allow_groups", allowed),
    "defmempercpu": ("default_memory_per_cpu", mebibytes),
    "defmempernode": ("default_memory_per_node", mebibytes),
    "maxmempercpu": ("max_memory_per_cpu", mebibytes),
    "maxmempernode": ("max_memory_per_node", mebibytes),
    "tresbillingweights": ("billing_weights", billing_weights),
}
_PRIORITY = {
    "prioritytype": ("type", lambda text: text.removeprefix("priority/")),
    "priorityweightage": ("weight_age", weight),
    "priorityweightassoc": ("weight_association", weight),
    "priorityweightfairshare": ("weight_fair_share", weight),
    "priorityweightjobsize": ("weight_job_size", weight),
    "priorityweightpartition": ("weight_partition", weight),
    "priorityweightqos": ("weight_qos", weight),
    "priorityweighttres": ("weight_tres", weights),
    "prioritymaxage": ("max_age", parse_time),
    "prioritycalcperiod": ("calculation_period", parse_time),
    "prioritydecayhalflife": ("decay_half_life", parse_time),
    "priorityusageresetperiod": ("usage_reset_period", str.upper),
    "priorityfavorsmall": ("favor_small", flag),
    "priorityflags": ("flags", lambda text: [name.upper() for name in names(text)]),
    "fairsharedampeningfactor": ("fair_share_dampening", number),
}
_SCHEDULER = {
    "schedulertype": ("type", lambda text: text.removeprefix("sched/")),
    "selecttype": ("select", lambda text: text.removeprefix("select/")),
    "selecttypeparameters": ("select_parameters", names),
    "topologyparam": ("topology_parameters", names),
    "topologyplugin": ("topology", lambda text: text.removeprefix("topology/").replace("default", "none")),
    "accountingstorageenforce": ("enforce", lambda text: [name.lower() for name in names(text)]),
    "enforcepartlimits": ("enforce_part_limits", str.upper),
}
#: Values that are those of all partitions unless these have their own.
_FOR_PARTITIONS = ("defmempercpu", "defmempernode", "maxmempercpu", "maxmempernode")
#: Words of PreemptMode that stand beside another.
_GANG = "GANG"


def read_slurm_conf(path: Path, notes: Notes) -> dict[str, Any]:
    """Returns the document of a site (see :mod:`hdsim.site.model`) without accounts, QOS and reservations.

    Raises:
        ConfigError: The file cannot be read, or a value has another form than expected.
    """
    site: dict[str, Any] = {"nodes": {}, "partitions": {}, "priority": {}, "preemption": {}, "slurm": {}}
    defaults: dict[str, dict[str, str]] = {"nodename": {}, "partitionname": {}}
    sets: dict[str, dict[str, str]] = {}
    common: dict[str, str] = {}
    partitions: list[tuple[str, dict[str, str], str]] = []
    lines = 0
    for line, where in _lines(path):
        lines += 1
        pairs = _pairs(line, where)
        kind = next(iter(pairs), "")
        if kind in defaults:
            name = pairs.pop(kind)
            if name.upper() == "DEFAULT":
                defaults[kind] |= pairs
            elif kind == "nodename":
                site["nodes"][name] = _node_type(name, {**defaults[kind], **pairs}, where, notes, path.name)
            else:
                partitions.append((name, {**defaults[kind], **pairs}, where))
        elif kind == "nodeset":
            sets[pairs["nodeset"]] = pairs
        elif kind == "downnodes":
            notes.leave_out(path.name, "DownNodes: nodes are up", where)
        else:
            for key, text in pairs.items():
                _parameter(site, common, key, text, where, notes, path.name)
    notes.read[path.name] = lines
    if not (site["nodes"] and partitions):
        raise ConfigError("expected lines NodeName=... and PartitionName=..., as slurm.conf has", where=str(path))
    words = site["preemption"].pop("words", {})
    if words:
        # Before Slurm 23.02 they stood there.
        site["slurm"]["parameters"] = site["slurm"].get("parameters", {}) | words
    if "select" not in site["slurm"]:
        notes.change(path.name, "no SelectType: select/cons_tres, the default from Slurm 23.11 on")
    if "select_parameters" not in site["slurm"] and site["slurm"].get("select") != "linear":
        site["slurm"]["select_parameters"] = ["CR_Core_Memory"]
    known = {name for listed in site["nodes"] for name in expand_nodes(listed)}
    for name, pairs, where in partitions:
        # Limits and defaults of memory are of CPUs or of nodes: those of a partition take the place of either.
        own = {key[:6] for key in pairs if key in _FOR_PARTITIONS}
        given = {key: text for key, text in common.items() if key[:6] not in own}
        made = _partition({**given, **pairs}, sets, site["nodes"], where, notes, path.name)
        listed = read_value(made["nodes"], expand_nodes, f"{where}: {name}")
        missing = [] if made["nodes"].upper() == "ALL" else [node for node in listed if node not in known]
        if missing:
            raise ConfigError(f"expected nodes of lines NodeName=, got {fold_nodes(missing)}", where=f"{where}: {name}")
        if name in site["partitions"]:
            notes.change(path.name, f"partition {name} on several lines: as on the last one", where)
        site["partitions"][name] = made
    return site


def _lines(path: Path, depth: int = 0) -> Iterator[tuple[str, str]]:
    """Yields each line without comments, with those that are included and continued, and its place."""
    begun, first = "", 0
    for place, raw in enumerate(read_text(path).splitlines(), 1):
        line = re.sub(r"(?<!\\)#.*", "", raw).rstrip()
        first = first if begun else place
        if line.endswith("\\"):
            begun += line[:-1]
            continue
        line, begun = (begun + line).strip(), ""
        included = re.match(r"include\s+(\S+)", line, re.IGNORECASE)
        if included:
            if depth == 9:
                raise ConfigError("expected at most 9 levels of Include", where=f"{path}:{first}")
            file = path.parent / included[1]
            # Copies of files that are included by their whole path are in the same folder.
            beside = path.parent / file.name
            yield from _lines(beside if not file.exists() and beside.exists() else file, depth + 1)
        elif line:
            yield line, f"{path}:{first}"
    if begun.strip():
        yield begun.strip(), f"{path}:{first}"


def included_files(path: Path) -> set[Path]:
    """Returns a file and those that it includes, as far as they have lines; see `read_slurm_conf` for errors."""
    return {Path(where.rpartition(":")[0]) for _, where in _lines(path)}


#: A value of a line, with blanks around the equals sign or without.
_PAIR = re.compile(r"([\w/.:-]+)\s*=(?:\s+(?=[^\s=]+(?:\s|$)))?(\"[^\"]*\"|'[^']*'|\S*)")


def _pairs(line: str, where: str) -> dict[str, str]:
    """Returns the values of a line by lower-case key.

    Raises:
        ConfigError: The line has something else.
    """
    rest = _PAIR.sub("", line).strip()
    if rest:
        raise ConfigError(f"expected Key=Value, got {shown(rest)}", where=where)
    return {key.lower(): value.strip("\"'") for key, value in _PAIR.findall(line)}


def _parameter(
    site: dict[str, Any], common: dict[str, str], key: str, text: str, where: str, notes: Notes, file: str
) -> None:
    """Takes a parameter of the cluster."""
    for section, table in (("priority", _PRIORITY), ("slurm", _SCHEDULER)):
        if key in table:
            name, read = table[key]
            site[section][name] = read_value(text, read, f"{where}: {key}")
            return
    if key == "schedulerparameters":
        site["slurm"]["parameters"] = dict(_words(text))
    elif key == "preemptparameters":
        site["preemption"]["words"] = {f"preempt_{name}": value for name, value in _words(text)}
    elif key == "licenses":
        site["licenses"] = read_value(text, parse_counts, f"{where}: {key}")
    elif key == "preempttype":
        site["preemption"]["type"] = text.removeprefix("preempt/")
    elif key == "preemptmode":
        modes = [mode.upper() for mode in names(text)]
        site["preemption"] |= {"gang": _GANG in modes, "mode": next((m for m in modes if m != _GANG), "OFF")}
    elif key == "preemptexempttime":
        site["preemption"]["exempt_time"] = read_value(text, _unless_negative, f"{where}: {key}")
    elif key == "clustername":
        site["name"] = text.lower()  # as accounting has it
    elif key in _FOR_PARTITIONS:
        common[key] = text
    elif key in _USUAL:
        if not re.fullmatch(_USUAL[key], text, re.IGNORECASE):
            notes.leave_out(file, f"{key}={text}: not simulated", where)
    elif not _WITHOUT_INFLUENCE.fullmatch(key):
        notes.leave_out(file, f"{key}: not used", where)


def _unless_negative(text: str) -> float:
    """Returns a time in seconds; -1 is none."""
    return 0.0 if text == "-1" else parse_time(text)


def _words(text: str) -> Iterator[tuple[str, Any]]:
    """Yields name and value of each word of SchedulerParameters."""
    for word in split_list(text):
        name, equals, value = word.partition("=")
        yield name.lower(), (int(value) if re.fullmatch(r"-?\d+", value) else value) if equals else True


def _known(
    reader: _Reader, table: Mapping[str, tuple[str, Any]], place: str, notes: Notes, file: str
) -> dict[str, Any]:
    """Returns the values of a table, and notes those that nothing reads."""
    made = {}
    for key, (name, read) in table.items():
        value = reader.take(key, read)
        if value is not None:
            made[name] = None if isinstance(value, float) and math.isinf(value) else value
    for key in reader.rest():
        notes.leave_out(file, f"{key}: not used", place)
    return made


def _node_type(name: str, pairs: dict[str, str], where: str, notes: Notes, file: str) -> dict[str, Any]:
    """Returns the document of equal nodes; the numbers that are not given follow from the others."""
    reader = _Reader(pairs, f"{where}: {name}")
    read_value(name, expand_nodes, f"{where}: NodeName")
    boards = reader.take("boards", at_least_one, 1)
    per_board, sockets = (reader.take(key, at_least_one) for key in ("socketsperboard", "sockets"))
    cores, threads, cpus, older = (
        reader.take(key, at_least_one) for key in ("corespersocket", "threadspercore", "cpus", "procs")
    )
    threads, cpus = threads or 1, cpus or older
    # Beside Boards, Sockets are those of a board.
    sockets = sockets and sockets * boards
    if sockets is None:
        sockets = boards * (per_board or 1) if per_board or cores or cpus is None else cpus // threads
    if cores is None:
        cores = max(1, (cpus or sockets * threads) // (sockets * threads))
    topology = {"sockets": sockets, "cores_per_socket": cores, "threads_per_core": threads}
    most = sockets * cores * threads
    if cpus not in (None, most, sockets * cores, sockets):
        notes.change(file, f"CPUs={cpus} beside sockets, cores and threads of {most}: {most}, as slurmctld does", where)
        cpus = most
    for key in ("nodehostname", "nodeaddr", "port", "reason", "tmpdisk", "cpubind", "bcastaddr"):
        reader.take(key, str)
    made = _known(reader, _NODE, where, notes, file)
    return {"nodes": name, "cpus": cpus or most, **topology, **made}


def _partition(
    pairs: dict[str, str],
    sets: Mapping[str, Mapping[str, str]],
    nodes: Mapping[str, Any],
    where: str,
    notes: Notes,
    file: str,
) -> dict[str, Any]:
    """Returns the document of a partition."""
    reader = _Reader(pairs, where)
    listed = [_members(part, sets, nodes) for part in split_list(reader.take("nodes", str, ""))]
    both = reader.take("priority", count)
    made = {} if both is None else {"priority_tier": both, "priority_job_factor": both}
    for key in ("hidden", "alternate", "allocnodes", "disablerootjobs", "rootonly", "cpubind"):
        reader.take(key, str)
    return {"nodes": ",".join(listed), **made, **_known(reader, _PARTITION, where, notes, file)}


def _members(part: str, sets: Mapping[str, Mapping[str, str]], nodes: Mapping[str, Any]) -> str:
    """Returns the nodes of a part of a partition's list, which may be a set of nodes: of a list, a feature, or both."""
    if part not in sets:
        return part
    listed, feature = sets[part].get("nodes", ""), sets[part].get("feature")
    having = [name for name, node in nodes.items() if feature in node.get("features", ())]
    if listed:
        # No node is listed twice.
        further = {name for text in having for name in expand_nodes(text)} - set(expand_nodes(listed))
        having = [listed, *([fold_nodes(further)] if further else [])]
    return ",".join(having)


def read_topology(path: Path, notes: Notes) -> dict[str, Any]:
    """Returns the switches of ``topology.conf`` by name.

    Raises:
        ConfigError: The file cannot be read or has other lines.
    """
    switches: dict[str, Any] = {}
    for line, where in _lines(path):
        pairs = _pairs(line, where)
        if "switchname" not in pairs:
            raise ConfigError(f"expected SwitchName=..., got {shown(line)}", where=where)
        name = pairs.pop("switchname")
        below = pairs.pop("switches", "")
        switches[name] = {"nodes": pairs.pop("nodes", ""), "switches": expand_nodes(below) if below else []}
        pairs.pop("linkspeed", None)
        for key in pairs:
            notes.leave_out(path.name, f"{key}: not used", where)
    notes.read[path.name] = len(switches)
    return switches
