"""Options of the commands by which jobs were submitted, as the column SubmitLine of sacct has them.

Options inside of job scripts (``#SBATCH``) are in no such line. Source: the manual page sbatch(1) of Slurm 22.05.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from hdsim.site.formats import expand_nodes, parse_memory, parse_time

#: Short options with a value, and the long ones that they stand for; empty for those that nothing reads.
_SHORT = {
    **dict.fromkeys("BDeFiJlmMoS", ""),
    "A": "account",
    "n": "ntasks",
    "q": "qos",
    "t": "time",
    "a": "array",
    "b": "begin",
    "C": "constraint",
    "c": "cpus-per-task",
    "d": "dependency",
    "G": "gpus",
    "L": "licenses",
    "N": "nodes",
    "p": "partition",
    "w": "nodelist",
    "x": "exclude",
    "P": "dependency",
}
#: Short options without a value.
_SHORT_ALONE = {**dict.fromkeys("IKOQVWXZhkuv", ""), "H": "hold", "s": "oversubscribe"}
#: Long options without a value, or with one that stands behind an equals sign.
_ALONE = frozenset(
    (
        *("bell", "contiguous", "delay-boot", "disable-status", "exact", "exclusive", "get-user-env", "help"),
        *("hold", "ignore-pbs", "immediate", "interactive", "kill-command", "label", "mincores", "multi-prog"),
        *("nice", "no-bell", "no-kill", "no-requeue", "no-shell", "overcommit", "overlap", "oversubscribe"),
        *("parsable", "preserve-env", "propagate", "pty", "quiet", "reboot", "requeue", "resv-ports", "share"),
        *("spread-job", "test-only", "unbuffered", "usage", "use-min-nodes", "verbose", "version", "wait", "x11"),
    )
)
#: Options that are read, with the columns that they give.
_TEXTS = {
    "constraint": "constraints",
    "dependency": "dependency",
    "exclude": "excluded_nodes",
    "gpus": "gpus_asked",
    "gpus-per-task": "gpus_per_task",
    "gres": "gres",
    "licenses": "licenses",
    "nodelist": "required_nodes",
    "partition": "partitions",
    "reservation": "reservation",
}
#: Options with a number from 1 on, likewise.
_COUNTS = {
    "cpus-per-task": "per_task",
    "ntasks-per-node": "tasks_per_node",
    "mincpus": "min_cpus",
    "cpus-per-gpu": "cpus_per_gpu",
}
#: A line without any of these options says nothing.
INTERESTING = (
    r"(^|\s)-[abCcdGLNpwxPHs]|--(array|begin|constraint|cpus-per-task|cpus-per-gpu|dependency|exclude|exclusive|gres"
    r"|ntasks-per-node|mincpus|use-min-nodes|gpus|gpus-per-node|gpus-per-task|hint|threads-per-core|hold|licenses"
    r"|mem-per-cpu|mem|nice|nodes|nodelist|partition|reservation)\b"
)
#: Options that decide where or when a job starts and that nothing simulates.
_UNREAD = (
    *("switches", "ntasks-per-socket", "ntasks-per-core", "ntasks-per-gpu", "cores-per-socket"),
    *("sockets-per-node", "extra-node-info", "contiguous", "spread-job", "oversubscribe", "share"),
    *("overcommit", "core-spec", "thread-spec", "distribution", "gpus-per-socket", "mem-per-gpu"),
    *("deadline", "prefer", "tmp", "bb", "bbf", "gres-flags"),
)
#: A line without any of these options has none of them.
UNREAD = rf"(^|\s)(-[BOSms]|--({'|'.join(_UNREAD)}|exclusive=)\b)"
_UNREAD_SHORT = {"B": "extra-node-info", "O": "overcommit", "S": "core-spec", "m": "distribution"}


def unread_options(line: str) -> list[str]:
    """Returns the options of a command that decide where or when a job starts and that nothing simulates."""
    found = []
    for name, value in _options(_words(line)[1:], _UNREAD_SHORT):
        if name in _UNREAD or (name == "exclusive" and value not in ("", "user")):
            found.append(f"--{name}={value}" if name == "exclusive" else f"--{name}")
    return list(dict.fromkeys(found))


def submit_options(line: str) -> dict[str, Any]:
    """Returns what a command such as ``sbatch -c 4 --exclusive job.sh`` asks for; words that are no options end it.

    The keys are those of `_TEXTS`, ``nodes``, ``most_nodes``, ``use_min_nodes``, ``per_task``, ``tasks_per_node``,
    ``min_cpus``, ``cpus_per_gpu``, ``array_limit``, ``whole``, ``exclusive_user``, ``whole_cores``, ``nice``,
    ``begin``, ``held`` and ``memory_per`` (``"c"`` or ``"n"``). A malformed line or value is passed over.
    """
    found: dict[str, Any] = {}
    for name, value in _options(_words(line)[1:]):
        if name in _TEXTS and value:
            found[_TEXTS[name]] = value
        elif name in _COUNTS and re.fullmatch(r"0*[1-9]\d{0,8}", value, re.ASCII):
            found[_COUNTS[name]] = int(value)
        elif name == "use-min-nodes":
            found["use_min_nodes"] = True
        elif (name, value) in (("hint", "nomultithread"), ("threads-per-core", "1")):
            found["whole_cores"] = True
        elif name == "gpus-per-node" and value:
            found["gres"] = ",".join(filter(None, (found.get("gres"), f"gpu:{value}")))
        elif name == "nodes" and (limits := re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", value)):
            # One number is the least and the most.
            found |= {"nodes": int(limits[1]), "most_nodes": int(limits[2] or limits[1])}
        elif name == "array" and (most := re.search(r"%(\d{1,9})$", value)):
            found["array_limit"] = int(most[1])
        elif name == "exclusive":
            # --exclusive=mcs leaves the nodes to jobs of the same label.
            found |= {"whole": not value} | ({"exclusive_user": True} if value == "user" else {})
        elif name == "nice":
            found["nice"] = int(value) if re.fullmatch(r"-?\d{1,10}", value) else 100
        elif name == "hold":
            found["held"] = True
        elif name == "begin":
            found["begin"] = value
        elif name in ("mem", "mem-per-cpu"):
            found["memory_per"] = "n" if name == "mem" else "c"
    return found


def of_component(line: str, number: int) -> str:
    """Returns the command of a component of a heterogeneous job, whose options stand between colons."""
    command, *words = _words(line) or [""]
    ends = [place for place, word in enumerate(words) if word == ":"]
    if number > len(ends):
        return line
    begin = ends[number - 1] + 1 if number else 0
    return shlex.join([command, *words[begin : [*ends, len(words)][number]]])


#: Options of a job that is asked for, beside those of `submit_options`, with the columns that they give.
_ASKED = {"account": "account", "qos": "qos", "uid": "user"}
_KNOWN = (
    *(*_TEXTS, *_ASKED, "ntasks", "time", *_COUNTS, "gpus-per-node", "nodes", "use-min-nodes", "exclusive"),
    *("nice", "begin", "mem", "mem-per-cpu", "job-name", "output", "error"),
)


def job_options(text: str) -> dict[str, Any]:
    """Returns what the options of a job ask for: the keys of `submit_options`, and others.

    These are ``cpus``, ``time`` (the limit in seconds), ``account``, ``qos``, ``user`` and ``memory_mib``.

    Raises:
        ValueError: An option is not known here, or a value has another form.
    """
    found: dict[str, Any] = submit_options(f"sbatch {text}")
    given = dict(_options([*_words(text), "--last=1"]))
    if given.pop("last", "") != "1":
        raise ValueError("expected options such as -p main -n 16 -t 4:00:00 --uid=ann -A chem, each with its value")
    for name, value in given.items():
        if name and name not in _KNOWN:
            known = ", ".join(f"--{each}" for each in _KNOWN)
            raise ValueError(f"expected options of {known}, got '{'--' if len(name) > 1 else '-'}{name}'")
        if name in _ASKED:
            found[_ASKED[name]] = value
        elif name == "time":
            found["time"] = parse_time(value)
        elif name in ("mem", "mem-per-cpu"):
            found["memory_mib"] = parse_memory(value)[0]
        elif name in ("ntasks", *_COUNTS):
            if not re.fullmatch(r"0*[1-9]\d{0,8}", value, re.ASCII):
                raise ValueError(f"--{name}: expected a number from 1 on, got '{value}'")
        elif name == "nodes" and "nodes" not in found:
            raise ValueError(f"--nodes: expected a number such as 4 or 2-4, got '{value}'")
        elif name in ("nodelist", "exclude"):
            expand_nodes(value)
    tasks = int(given.get("ntasks") or found.get("nodes", 1) * found.get("tasks_per_node", 1))
    return {**found, "cpus": tasks * found.get("per_task", 1)}


def _words(line: str) -> list[str]:
    if not re.search(r"[\\'\"]", line):
        return line.split()
    try:
        return shlex.split(line)
    except ValueError:
        return line.split()


def _options(words: Sequence[str], further: Mapping[str, str] = MappingProxyType({})) -> Iterator[tuple[str, str]]:
    """Yields long name and value of each option until the first word that is none; `further` names short ones."""
    position = 0
    while position < len(words):
        word = words[position]
        position += 1
        following = words[position] if position < len(words) else ""
        if word.startswith("--") and word != "--":
            name, equals, value = word[2:].partition("=")
            if not equals and name not in _ALONE:
                value, position = following, position + 1
            yield name, value
        elif word.startswith("-") and len(word) > 1 and word != "--":
            for place, letter in enumerate(word[1:], 2):
                if letter in _SHORT:
                    value = word[place:]
                    if not value:
                        value, position = following, position + 1
                    yield _SHORT[letter] or further.get(letter, ""), value
                    break
                yield _SHORT_ALONE.get(letter) or further.get(letter, letter), ""
        else:
            return
