"""Emulated clusters: a real slurmctld, and a real slurmd for each node, on the loopback interface of this machine."""

from __future__ import annotations

import contextlib
import getpass
import math
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from hdsim.errors import BackendError, ConfigError
from hdsim.slurm import clock
from hdsim.slurm.client import NoAnswer
from hdsim.slurm.objects import SlurmNode
from hdsim.slurm.platform import platform_document
from hdsim.slurm.programs import ACCOUNTING, CLUSTER, find_programs, finished, require_libraries
from hdsim.util.files import dump_json, exclusive
from hdsim.util.inputs import parse_json

if TYPE_CHECKING:
    import psutil

_ADDRESS = "127.0.0.1"
#: Ports to choose from: below those that the kernel gives to connections.
_PORTS = range(20_000, 32_000)
#: Variable in the environment of all processes of a cluster, whose value is its folder.
_MARK = "HDSIM_SLURM_FOLDER"
#: File that marks the folder of a cluster.
DESCRIPTION = "cluster.json"
_PIDS = "pids.json"
#: All that a cluster leaves in its folder.
_OWN = (
    *(DESCRIPTION, _PIDS, "slurm.conf", "slurmdbd.conf", "env", "rest.sock", "log", "state", "spool", "database"),
    *("run", "jobs.log", "platform.json", "gres.conf", "gpus"),
)
#: Longest path of a Unix socket.
_LONGEST_SOCKET = 107
#: Seconds after which a slurmd that has not registered is started again, and seconds to wait for other daemons.
_REGISTERS, _STARTS = 4.0, 30.0
#: Memory of a node in MiB for each of its CPUs.
_MEMORY = 4000


@dataclass(frozen=True)
class Shape:
    """A cluster to emulate: its nodes n1, n2 and so on, and the factor of its clock."""

    nodes: int
    cpus: int  # CPUs of each node
    clock: float = 1.0  # seconds of the cluster in a second
    accounting: bool = False  # with slurmdbd and a database of its own
    gpus: int = 0  # GPUs of each node
    memory: int | None = None  # MiB of each node, which jobs take; None: some, which no job takes

    @property
    def names(self) -> list[str]:
        """Names of the nodes."""
        return [f"n{node}" for node in range(1, self.nodes + 1)]

    @property
    def node_memory(self) -> int:
        """MiB of each node."""
        return _MEMORY * self.cpus if self.memory is None else self.memory


def shape_beside(conf: Path) -> Shape | None:
    """Returns the shape of the emulated cluster that a slurm.conf belongs to, None for a file of another one.

    Raises:
        ConfigError: The description of the cluster cannot be read.
    """
    path = conf.with_name(DESCRIPTION)
    if not path.exists():
        return None
    try:
        return Shape(**parse_json(path.read_bytes(), path, ConfigError))
    except TypeError:
        raise ConfigError("expected the description that `hdsim slurm up` writes", where=str(path)) from None


class EmulatedCluster:
    """The cluster in a folder.

    Args:
        folder: Its folder, which has its ``slurm.conf``, the socket ``rest.sock`` of slurmrestd, ``platform.json``,
            the platform of its nodes, and ``env``, a file for a shell that makes Slurm's commands talk to it.

    Raises:
        ConfigError: A library is missing.
    """

    def __init__(self, folder: Path) -> None:
        require_libraries()
        self.folder = folder.expanduser().resolve()
        self.conf = self.folder / "slurm.conf"
        self.socket = self.folder / "rest.sock"

    @property
    def exists(self) -> bool:
        """Whether there is a cluster, perhaps one whose processes have ended."""
        return (self.folder / DESCRIPTION).exists()

    def shape(self) -> Shape:
        """Returns its shape; ConfigError if there is no cluster in the folder."""
        found = shape_beside(self.conf)
        if found is None:
            raise ConfigError(
                f"expected the folder of a cluster that `hdsim slurm up` has started, got '{self.folder}'", where="-o"
            )
        return found

    def up(self, shape: Shape, timeout: float) -> None:
        """Starts the cluster, and returns when all nodes are idle.

        Raises:
            ConfigError: Programs are missing, or the folder has a cluster or a slurm.conf of someone else.
            BackendError: The nodes are not idle within the time-out in seconds; nothing is left of the cluster then.
        """
        programs = find_programs([*CLUSTER, *(ACCOUNTING if shape.accounting else ())])
        if len(str(self.socket)) > _LONGEST_SOCKET - len("/database/"):
            raise ConfigError(f"expected a shorter path, as sockets lie in it, got '{self.folder}'", where="-o")
        self.folder.mkdir(parents=True, exist_ok=True)
        with exclusive(self.folder):
            if self.exists:
                raise ConfigError(
                    f"expected a folder without a cluster, got '{self.folder}', whose cluster "
                    f"{'runs' if self._processes() else 'has ended'}; `hdsim slurm down -o {self.folder}` removes it",
                    where="-o",
                )
            taken = [name for name in _OWN if (self.folder / name).exists()]
            if taken:
                raise ConfigError(f"expected a folder without a file {taken[0]}, got '{self.folder}'", where="-o")
            dump_json(self.folder / DESCRIPTION, asdict(shape))
            try:
                _Start(self, shape, programs, time.monotonic() + timeout).run()
            except BaseException:
                self._remove()
                raise

    def down(self) -> None:
        """Ends all processes, jobs included, and deletes the files; ConfigError if there is no cluster."""
        self.shape()
        with exclusive(self.folder):
            self._remove()

    def daemons(self) -> list[tuple[str, int | None]]:
        """Returns name and process id of each daemon in the order of their starts, None for one that has ended.

        That of a slurmd is the name of its node.
        """
        self.shape()
        running = {process.pid for process in self._processes()}
        return [(name, pid if pid in running else None) for name, pid in self._pids().items()]

    def nodes(self) -> list[tuple[str, str]]:
        """Returns name and state of each node.

        Raises:
            BackendError: slurmctld does not answer.
        """
        return _nodes(find_programs(("sinfo",))["sinfo"], self.conf)

    def start(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """Starts a daemon in the foreground, in a session of its own, whose output goes to its log."""
        with (self.folder / "log" / f"{name}.out").open("ab") as log:
            # A daemon lives on when this process ends.
            child = subprocess.Popen(
                command,
                cwd=self.folder / "run",
                env={**environment, _MARK: str(self.folder)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        dump_json(self.folder / _PIDS, {**self._pids(), name: child.pid})
        return child

    def _pids(self) -> dict[str, int]:
        path = self.folder / _PIDS
        return orjson.loads(path.read_bytes()) if path.exists() else {}

    def _processes(self) -> list[psutil.Process]:
        """The processes of the cluster, whatever the file of process ids says, with its jobs."""
        import psutil

        found: dict[int, psutil.Process] = {}
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.pid != os.getpid() and self._owns(process):
                    found |= {each.pid: each for each in (process, *process.children(recursive=True))}
        return list(found.values())

    def _owns(self, process: psutil.Process) -> bool:
        if process.name().startswith("slurmstepd"):
            # It has overwritten its environment.
            logs = self.folder / "log"
            return any(Path(file.path).parent == logs for file in process.open_files())
        environment = process.environ()
        is_job = "SLURM_JOB_ID" in environment and environment.get("SLURM_CONF") == str(self.conf)
        return is_job or environment.get(_MARK) == str(self.folder)

    def _remove(self) -> None:
        """Ends all processes and deletes what is there of the cluster."""
        import psutil

        files = [path for process in self._processes() for path in clock.shared_files(_environment(process))]
        # A process may have started another one since the list was made.
        while processes := self._processes():
            for process in processes:
                with contextlib.suppress(psutil.Error):
                    process.kill()
            psutil.wait_procs(processes, timeout=10)
        for path in dict.fromkeys(files):
            path.unlink(missing_ok=True)
        for name in _OWN:
            path = self.folder / name
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.folder.rmdir()


class _Start:
    """The start of a cluster, which has to be complete at a time `deadline` of the monotonic clock."""

    def __init__(self, cluster: EmulatedCluster, shape: Shape, programs: Mapping[str, str], deadline: float) -> None:
        self._cluster, self._shape, self._programs, self._deadline = cluster, shape, programs, deadline
        self._folder = cluster.folder
        self._clock: dict[str, str] = {}
        # Of a user's environment nothing else: jobs and daemons would inherit it.
        kept = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "TZ", "USER")
        self._environment = {key: os.environ[key] for key in kept if key in os.environ}
        self._environment["SLURM_CONF"] = str(cluster.conf)
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._prefix = _on_loopback()

    def run(self) -> None:
        """Starts all daemons and waits until the nodes are idle."""
        for name in ("log", "state", "spool", "run"):
            (self._folder / name).mkdir()
        ports = _free_ports(self._shape.nodes + 3)
        if self._shape.clock != 1:
            self._start_clock()
        controller, database, dbd, *nodes = ports
        self._write_conf(controller, dbd, nodes)
        shape = self._shape
        gres = {"gpu": shape.gpus} if shape.gpus else {}
        made = [SlurmNode(name, shape.cpus, float(shape.node_memory), True, "idle", gres=gres) for name in shape.names]
        dump_json(self._folder / "platform.json", platform_document(made))
        self._write_env()
        if self._shape.accounting:
            self._start_accounting(database, dbd)
        programs, conf = self._programs, str(self._cluster.conf)
        self._daemon("slurmctld", [programs["slurmctld"], "-D", "-f", conf])
        for node in self._shape.names:
            self._start_node(node)
        self._daemon(
            "slurmrestd",
            [
                *(programs["slurmrestd"], "-f", conf, "-a", "rest_auth/local", "-s", "openapi/v0.0.38"),
                f"unix:{self._cluster.socket}",
            ],
            # Only the user that owns the socket reaches it.
            {"SLURMRESTD_SECURITY": "disable_user_check"},
            umask=0o077,
        )
        self._wait_for_nodes()
        self._wait("slurmrestd", self._cluster.socket.exists)

    def _start_node(self, name: str) -> None:
        programs = self._programs
        self._daemon(
            name,
            [programs["slurmd"], "-D", "-f", str(self._cluster.conf), "-N", name, "-d", programs["slurmstepd"]],
        )

    def _start_clock(self) -> None:
        command = clock.command(self._programs["faketime"], self._shape.clock)
        keeper = self._cluster.start("clock", command, self._environment)
        self._children["clock"] = keeper
        self._clock = clock.environment_of(keeper.pid, _STARTS)
        if not self._clock:
            raise self._failure("faketime has not started the clock")
        for path in clock.shared_files(self._clock):
            if path.exists():
                path.chmod(0o666)  # jobs of other users look at it

    def _start_accounting(self, database: int, dbd: int) -> None:
        """Starts a database and slurmdbd, and registers cluster and account."""
        programs, folder = self._programs, self._folder / "database"
        user = getpass.getuser()
        folder.mkdir()
        # Without the option it would not run as root.
        options = [f"--datadir={folder}", f"--user={user}"]
        install = [programs["mariadb-install-db"], "--no-defaults", *options, "--skip-test-db"]
        self._run([*install, "--auth-root-authentication-method=normal"])
        self._daemon(
            "mariadbd",
            [
                *(programs["mariadbd"], "--no-defaults", *options, f"--bind-address={_ADDRESS}", f"--port={database}"),
                *(f"--socket={folder}/m.sock", "--innodb-buffer-pool-size=128M", "--skip-log-bin"),
                "--innodb-flush-log-at-trx-commit=0",
            ],
        )
        self._wait("mariadbd", lambda: not _is_free(database))
        path = self._folder / "slurmdbd.conf"
        path.touch(0o600)
        _write_settings(
            path,
            {
                "AuthType": "auth/none",
                "CommunicationParameters": "NoInAddrAny",
                "CommitDelay": 1,
                "DbdAddr": _ADDRESS,
                "DbdHost": "localhost",
                "DbdPort": dbd,
                "LogFile": self._folder / "log" / "slurmdbd.log",
                "PidFile": self._folder / "run" / "slurmdbd.pid",
                "SlurmUser": user,
                "StorageHost": _ADDRESS,
                "StorageLoc": "slurm",
                "StoragePort": database,
                "StorageType": "accounting_storage/mysql",
                "StorageUser": "root",
            },
        )
        self._daemon("slurmdbd", [programs["slurmdbd"], "-D"])
        self._wait("slurmdbd", lambda: not _is_free(dbd))
        sacctmgr = [programs["sacctmgr"], "-i", "add"]
        self._wait("slurmdbd", lambda: self._succeeds([*sacctmgr, "cluster", "hdsim"]))
        self._run([*sacctmgr, "account", "hdsim", "cluster=hdsim"])
        self._run([*sacctmgr, "user", user, "account=hdsim"])

    def _write_conf(self, controller: int, dbd: int, nodes: Sequence[int]) -> None:
        """Writes slurm.conf: waits and limits are in seconds of the cluster."""
        shape, folder, user = self._shape, self._folder, getpass.getuser()
        scheduling = {
            "batch_sched_delay": 0,
            "sched_interval": 1,
            "sched_min_interval": 0,
            "default_queue_depth": 10_000,
            "partition_job_depth": 0,
            "bf_interval": 1,
            "bf_resolution": 1,
            "bf_max_job_test": 10_000,
        }
        settings: dict[str, Any] = {
            "ClusterName": "hdsim",
            "SlurmctldHost": f"localhost({_ADDRESS})",
            "SlurmctldPort": controller,
            "SlurmUser": user,
            "SlurmdUser": user,
            "AuthType": "auth/none",
            "CredType": "cred/none",
            "CommunicationParameters": "NoCtldInAddrAny,NoInAddrAny",
            "MpiDefault": "none",
            "SwitchType": "switch/none",
            "ProctrackType": "proctrack/linuxproc",
            "TaskPlugin": "task/none",
            "JobAcctGatherType": "jobacct_gather/none",
            "SelectType": "select/cons_tres",
            "SelectTypeParameters": "CR_Core",
            "SlurmdParameters": "config_overrides",
            "ReturnToService": 2,
            "SlurmdTimeout": min(65_000, max(300, math.ceil(60 * shape.clock))),
            "MessageTimeout": min(65_000, max(60, math.ceil(10 * shape.clock))),
            "TCPTimeout": min(65_000, max(10, math.ceil(2 * shape.clock))),
            "KillWait": 2,
            "MinJobAge": 10_000_000,
            "CompleteWait": 0,
            "InactiveLimit": 0,
            "MaxJobCount": 100_000,
            "PropagateResourceLimits": "NONE",
            "SchedulerType": "sched/backfill",
            "SchedulerParameters": ",".join([*(f"{key}={value}" for key, value in scheduling.items()), "bf_continue"]),
            # With priority/basic a job that is released later has a lower priority: starts of a tick are in that order.
            "PriorityType": "priority/multifactor" if shape.accounting else "priority/basic",
            "JobCompType": "jobcomp/filetxt",
            "JobCompLoc": folder / "jobs.log",
            "StateSaveLocation": folder / "state",
            "SlurmdSpoolDir": folder / "spool" / "%n",
            "SlurmctldPidFile": folder / "run" / "slurmctld.pid",
            "SlurmdPidFile": folder / "run" / "%n.pid",
            "SlurmctldLogFile": folder / "log" / "slurmctld.log",
            "SlurmdLogFile": folder / "log" / "%n.log",
        }
        if shape.accounting:
            settings |= {
                "AccountingStorageType": "accounting_storage/slurmdbd",
                "AccountingStorageHost": _ADDRESS,
                "AccountingStoragePort": dbd,
            }
        if shape.memory is not None:
            # Jobs that ask for no memory take next to none.
            settings |= {"SelectTypeParameters": "CR_Core_Memory", "DefMemPerCPU": 1}
        gpus = ""
        if shape.gpus:
            settings["GresTypes"] = "gpu"
            gpus = f"Gres=gpu:{shape.gpus} "
            self._write_gpus()
        # A feature of each node's own lets REST name the nodes of a job.
        lines = [
            f"NodeName={node} Feature={node} NodeHostname=localhost NodeAddr={_ADDRESS} Port={port} {gpus}"
            f"CPUs={shape.cpus} RealMemory={shape.node_memory} State=UNKNOWN"
            for node, port in zip(shape.names, nodes, strict=True)
        ]
        lines.append("PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP")
        _write_settings(self._cluster.conf, settings, lines)

    def _write_gpus(self) -> None:
        """Writes gres.conf, and a file that stands for each of the GPUs, which all nodes name."""
        shape, folder = self._shape, self._folder / "gpus"
        folder.mkdir()
        for gpu in range(shape.gpus):
            (folder / f"gpu{gpu}").touch()
        numbers = "0" if shape.gpus == 1 else f"[0-{shape.gpus - 1}]"
        line = f"NodeName=n[1-{shape.nodes}] Name=gpu File={folder}/gpu{numbers}\n"
        (self._folder / "gres.conf").write_text(line, encoding="utf-8")

    def _write_env(self) -> None:
        """Writes the file for a shell."""
        lines = [f"export SLURM_CONF='{self._cluster.conf}'"]
        if self._clock:
            variables = " ".join(f"{key}='{value}'" for key, value in self._clock.items())
            lines += [
                "# `clocked squeue` prints times by the cluster's clock; jobs must not inherit it.",
                f'clocked() {{ env {variables} "$@"; }}',
            ]
        (self._folder / "env").write_text("\n".join(lines) + "\n")

    def _daemon(
        self, name: str, command: Sequence[str], more: Mapping[str, str] | None = None, *, umask: int | None = None
    ) -> None:
        """Starts a daemon by the clock of the cluster; slurmrestd is a client and has that of the wall."""
        before = None if umask is None else os.umask(umask)
        try:
            ticks = {} if name in ("slurmrestd", "mariadbd") else self._clock
            environment = {**self._environment, **ticks, **(more or {})}
            self._children[name] = self._cluster.start(name, [*self._prefix, *command], environment)
        finally:
            if before is not None:
                os.umask(before)

    def _wait_for_nodes(self) -> None:
        sinfo, started = self._programs["sinfo"], time.monotonic()
        while True:
            self._check_children()
            states: list[tuple[str, str]] = []
            with contextlib.suppress(BackendError):
                states = _nodes(sinfo, self._cluster.conf)
            late = [name for name, state in states if state != "idle"]
            if states and not late:
                return
            now = time.monotonic()
            if now > self._deadline:
                raise self._failure(f"{', '.join(late[:5]) or 'slurmctld'} has not registered")
            if late and now > started + _REGISTERS:
                # By a quick clock a slurmd may wait for long after its first attempt has failed.
                for name in late:
                    self._children[name].kill()
                    self._children[name].wait()
                    self._start_node(name)
                started = now
            time.sleep(0.05)

    def _wait(self, name: str, holds: Any) -> None:
        """Waits until something holds that a daemon does."""
        end = min(self._deadline, time.monotonic() + _STARTS)
        while not holds():
            self._check_children()
            if time.monotonic() > end:
                raise self._failure(f"{name} does not answer")
            time.sleep(0.05)

    def _check_children(self) -> None:
        for name, child in self._children.items():
            if child.poll() is not None:
                raise self._failure(f"{name} has ended with status {child.returncode}")

    def _succeeds(self, command: Sequence[str]) -> bool:
        return self._finished(command).returncode == 0

    def _run(self, command: Sequence[str]) -> None:
        done = self._finished(command)
        if done.returncode:
            raise self._failure(f"{Path(command[0]).name}: {' '.join((done.stderr or done.stdout).split())}")

    def _finished(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        left = max(1.0, self._deadline - time.monotonic())
        try:
            return finished(command, self._environment, left)
        except NoAnswer as error:
            raise self._failure(str(error)) from None

    def _failure(self, reason: str) -> BackendError:
        """Returns an error with the last line of each daemon's log that is about an error."""
        found = []
        for path in sorted((self._folder / "log").iterdir()):
            lines = [line for line in path.read_text(errors="replace").splitlines() if _is_error(line)]
            found += [f"{path.name}: {line.strip()}" for line in lines[-1:]]
        return BackendError("; ".join([f"the cluster in {self._folder} has not started: {reason}", *found[:3]]))


def _is_error(line: str) -> bool:
    return "fatal" in line or "error:" in line.lower() or "[ERROR]" in line


def _nodes(sinfo: str, conf: Path) -> list[tuple[str, str]]:
    """Returns name and state of each node; BackendError if slurmctld does not answer."""
    command = [sinfo, "--noheader", "--Node", "--format=%N %T"]
    try:
        done = finished(command, {**os.environ, "SLURM_CONF": str(conf)}, _STARTS)
    except NoAnswer as error:
        raise BackendError(f"slurmctld of {conf} does not answer: {error}") from None
    if done.returncode:
        raise BackendError(f"slurmctld of {conf} does not answer: {' '.join(done.stderr.split())}")
    rows = [line.split() for line in done.stdout.splitlines()]
    return [(name, state) for name, state in rows]


def _write_settings(path: Path, settings: Mapping[str, Any], lines: Iterable[str] = ()) -> None:
    pairs = [f"{key}={value}" for key, value in settings.items()]
    path.write_text("\n".join([*pairs, *lines]) + "\n", encoding="utf-8")


def _environment(process: psutil.Process) -> dict[str, str]:
    import psutil

    with contextlib.suppress(psutil.Error):
        return process.environ()
    return {}


def _on_loopback() -> list[str]:
    """Returns what a command begins with that listens where the name of this machine leads, as Slurm's daemons do.

    Raises:
        ConfigError: They would listen on a network.
    """
    name = socket.gethostname()
    with contextlib.suppress(OSError):
        if socket.gethostbyname(name) == _ADDRESS:
            return []
    prefix = ["unshare", "--uts", "sh", "-c", 'hostname localhost; exec "$0" "$@"']
    if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode:
        raise ConfigError(
            f"expected {_ADDRESS} for this machine's name, '{name}', such as by /etc/hosts, as Slurm's daemons listen "
            "where it leads; root needs no such entry where it may give processes another name (unshare --uts)"
        )
    return prefix


def _free_ports(number: int) -> list[int]:
    """Returns ports that nothing listens on, from a place that differs between clusters that start at a time."""
    first = os.getpid() * 97 % len(_PORTS)
    found = [port for port in _in_turn(first) if _is_free(port)][:number]
    if len(found) < number:
        raise BackendError(f"expected {number} free ports from {_PORTS[0]} to {_PORTS[-1]}, got {len(found)}")
    return found


def _in_turn(first: int) -> Iterator[int]:
    yield from _PORTS[first:]
    yield from _PORTS[:first]


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # Connections that have ended a moment ago hold no port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_ADDRESS, port))
        except OSError:
            return False
        return True
