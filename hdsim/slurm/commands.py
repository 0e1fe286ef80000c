"""A client by Slurm's commands."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from hdsim.errors import ConfigError
from hdsim.site.formats import parse_gres, parse_pairs
from hdsim.slurm.client import Client, NoAnswer, Refused
from hdsim.slurm.objects import (
    Demand,
    Held,
    Release,
    SlurmJob,
    SlurmNode,
    Submission,
    demand_of,
    gpus_in,
    is_up,
    listed,
    nodes_in,
)
from hdsim.slurm.programs import COMMANDS, find_programs, finished

_SEPARATOR = "\x1f"
#: Columns of squeue: id, partition, state, reason, start, end, nodes, CPUs, dependency and comment.
_COLUMNS = _SEPARATOR.join(("%A", "%P", "%T", "%r", "%S", "%e", "%N", "%C", "%E", "%k"))
#: Columns of sinfo: name, state, CPUs, MiB, features, partition and generic resources.
_NODE_COLUMNS = _SEPARATOR.join(("%N", "%T", "%c", "%m", "%f", "%R", "%G"))
#: Messages of commands that got no answer.
_NO_ANSWER = re.compile(
    r"contact slurm controller|timed out|refused$|Connection refused|Communication connection failure|standby mode"
    r"|Unexpected message received|transmitted or received|Transport endpoint|Zero Bytes|Broken pipe|Connection reset",
    re.IGNORECASE,
)


class Commands(Client):
    """A client by squeue, sbatch, scontrol and scancel.

    Args:
        conf: The slurm.conf of the cluster.
        seconds: Time that a command may take.

    Raises:
        ConfigError: A command is missing.
    """

    name = "slurmctld"

    def __init__(self, conf: Path, seconds: float) -> None:
        super().__init__()
        self._programs = find_programs(COMMANDS, "backend.socket=null")
        self._seconds = seconds
        self._environment = {"PATH": "/usr/bin:/bin", "SLURM_CONF": str(conf), "SLURM_TIME_FORMAT": "%s", "TZ": "UTC"}
        self._environment |= {key: os.environ[key] for key in ("HOME", "USER", "LOGNAME") if key in os.environ}

    def time(self) -> int:
        found = re.search(r"\((\d{6,})\)", self._run("sdiag"))
        if found is None:
            raise ConfigError("expected a time in the output of sdiag", where="backend.conf")
        return int(found[1])

    def jobs(self, since: int) -> Sequence[SlurmJob]:
        rows = self._run("squeue", "--noheader", "--all", "--states=all", f"--format={_COLUMNS}").splitlines()
        return [_job(row.split(_SEPARATOR, 9)) for row in rows if row.count(_SEPARATOR) >= 9]

    def nodes(self) -> Sequence[SlurmNode]:
        found: dict[str, SlurmNode] = {}
        for row in self._run("sinfo", "--noheader", "--all", "--Node", f"--format={_NODE_COLUMNS}").splitlines():
            name, state, cpus, memory, features, partition, gres = row.split(_SEPARATOR)
            given = () if features == "(null)" else tuple(features.split(","))
            # A node of several partitions has as many rows.
            partitions = (*found[name].partitions, partition) if name in found else (partition,)
            found[name] = SlurmNode(
                name, int(cpus), float(memory), is_up(state), state, given, partitions, parse_gres(gres)
            )
        return list(found.values())

    def demand(self, job: int, names: frozenset[str]) -> Demand:
        return demand_of(parse_pairs(self._run("scontrol", "--oneliner", "show", "job", str(job))), names)

    def held_on(self, job: int) -> Mapping[str, Held]:
        text = self._run("scontrol", "--detail", "show", "job", str(job))
        rows = re.findall(r"^\s+Nodes=(\S+) CPU_IDs=(\S+)(?: Mem=(\d+))?(?: GRES=(\S*))?", text, re.MULTILINE)
        return {
            name: Held(_number_of(ids), float(memory or 0), gpus_in(parse_gres(gres)))
            for nodes, ids, memory, gres in rows
            for name in nodes_in(nodes)
        }

    def submit(self, job: Submission) -> int:
        options = [
            *("--parsable", "--hold", "--requeue", "--output=/dev/null", "--error=/dev/null"),
            *("--input=/dev/null", "--chdir=/"),
            *(f"--job-name={job.name}", f"--comment={job.comment}", f"--ntasks={job.tasks}"),
            f"--cpus-per-task={job.cpus}",
        ]
        if job.memory:
            options.append(f"--mem-per-cpu={round(job.memory)}M")
        if job.gpus:
            options.append(f"--gpus-per-task={job.gpus}")
        if job.minutes is not None:
            options.append(f"--time={job.minutes}")
        if job.partition is not None:
            options.append(f"--partition={job.partition}")
        return int(self._run("sbatch", *options, given=job.script).partition(";")[0])

    def release(self, release: Release) -> None:
        count = len(release.nodes)
        self._run(
            "scontrol",
            "update",
            f"JobId={release.job}",
            f"NodeList={listed(release.nodes)}",
            f"NumNodes={count}-{count}",
            f"NumTasks={release.tasks}",
            f"MinCPUsNode={release.least}",
            f"NumCPUs={release.tasks * release.cpus}",
            *(["StartTime=now"] if release.again else []),
        )
        self._run("scontrol", "release", str(release.job))

    def hold(self, job: int, required: tuple[str, ...] = ()) -> None:
        # Without the nodes of a release that is taken back.
        self._run("scontrol", "update", f"JobId={job}", f"NodeList={listed(required)}")
        self._run("scontrol", "uhold", str(job))

    def comment(self, job: int, comment: str) -> None:
        self._run("scontrol", "update", f"JobId={job}", f"Comment={comment}")

    def cancel(self, job: int) -> None:
        self._run("scancel", str(job))

    def _run(self, name: str, *arguments: str, given: str = "") -> str:
        """Runs a command and returns what it prints."""
        self.calls[" ".join([name, *arguments[:1]]) if name == "scontrol" else name] += 1
        done = finished([self._programs[name], *arguments], self._environment, self._seconds, given)
        if done.returncode:
            reason = " ".join(done.stderr.split()) or f"{name} has ended with status {done.returncode}"
            raise (NoAnswer if _NO_ANSWER.search(reason) else Refused)(reason)
        return done.stdout


def _job(row: Sequence[str]) -> SlurmJob:
    job, partition, state, reason, begin, end, nodes, cpus, dependency, comment = row
    has = nodes_in(nodes)
    return SlurmJob(
        id=int(job),
        comment="" if comment == "(null)" else comment,
        partition=partition,
        state=state,
        reason=reason,
        begin=_second(begin),
        end=_second(end),
        waits=dependency not in ("", "(null)"),
        nodes=has,
        cpus=int(cpus),
        cpus_on={has[0]: int(cpus)} if len(has) == 1 else None,
    )


def _second(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def _number_of(ids: str) -> int:
    """Returns the number of ids of a list such as ``0-3,7``."""
    total = 0
    for part in filter(None, ids.split(",")):
        first, _, last = part.partition("-")
        total += int(last or first) - int(first) + 1
    return total
