"""A control plane on this machine: etcd, kube-apiserver, kube-controller-manager and Kwok, started by kwokctl."""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from hdsim.errors import BackendError, ConfigError
from hdsim.kubernetes.binaries import find_programs, kubernetes_version
from hdsim.kubernetes.kubeconfig import add_cluster, remove_cluster
from hdsim.util.inputs import read_yaml

if TYPE_CHECKING:
    import psutil

log = logging.getLogger(__name__)

_ADDRESS = "127.0.0.1"
_SCHEDULER = "kube-scheduler"
_STAGES = Path(__file__).with_name("stages.yaml")
#: Settings of kwokctl by program.
_OPTIONS = {
    "etcd": "etcdBinary",
    "kube-apiserver": "kubeApiserverBinary",
    "kube-controller-manager": "kubeControllerManagerBinary",
    _SCHEDULER: "kubeSchedulerBinary",
    "kwok": "kwokControllerBinary",
    "kubectl": "kubectlBinary",
}
#: Settings of kwokctl with the ports of the components, which are given out downwards from below those that the
#: kernel gives to connections.
_PORTS = (
    "etcdPort",
    "etcdPeerPort",
    "kubeApiserverPort",
    "kubeControllerManagerPort",
    "kubeSchedulerPort",
    "kwokControllerPort",
)
_HIGHEST_PORT, _LOWEST_PORT = 32766, 10000
#: In the log of a component whose port another program has taken since it was found free.
_PORT_IS_TAKEN = "address already in use"
#: The account that pods run as.
_ACCOUNT = "/api/v1/namespaces/default/serviceaccounts/default"
#: Seconds after which a start looks for components that have ended since.
_PATIENCE = 30.0
#: The processors of this machine are for schedulers: etcd waits for no disk, the API server collects less garbage.
_PATCHES = [
    {"name": "etcd", "extraArgs": [{"key": "unsafe-no-fsync", "value": "true"}]},
    {"name": "kube-apiserver", "extraEnvs": [{"name": "GOGC", "value": "400"}]},
]


@dataclass(frozen=True)
class Component:
    """A part of a control plane, such as kube-apiserver; `pid` is None if it does not run."""

    name: str
    pid: int | None
    ports: tuple[int, ...]
    log: Path


def control_planes(workdir: Path) -> list[ControlPlane]:
    """Returns the control planes of a work folder that hdsim made, by name."""
    made = sorted(workdir.expanduser().glob("clusters/*/hdsim.yaml"))
    return [ControlPlane(path.parent.name, workdir) for path in made]


class ControlPlane:
    """A control plane that kwokctl keeps in a folder of its own below a work folder.

    The file ``hdsim.yaml`` in that folder is kwokctl's configuration and marks a control plane of hdsim; the file
    ``hdsim.started`` lists the kubeconfig files that name it and marks one that has been ready.

    Raises:
        ConfigError: The name is not a DNS label (lower-case letters, digits and dashes), or the path has blanks.
    """

    def __init__(self, name: str, workdir: Path) -> None:
        if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,40}[a-z0-9])?", name):
            raise ConfigError(f"expected lower-case letters, digits and dashes, got '{name}'", where="--name")
        self.name = name  # its name
        self._workdir = workdir.expanduser().resolve()
        if re.search(r"\s", str(self._workdir)):
            # kwokctl would use the folder whose name ends at the first blank.
            raise ConfigError(f"expected a path without blanks, got '{self._workdir}'", where="--workdir")
        self.folder = self._workdir / "clusters" / name  # folder of its data, certificates, logs and process ids
        self._config = self.folder / "hdsim.yaml"
        self._started = self.folder / "hdsim.started"

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig file in the control plane's own folder."""
        return self.folder / "kubeconfig.yaml"

    @property
    def logs(self) -> Path:
        """The folder of the components' messages."""
        return self.folder / "logs"

    @property
    def server(self) -> str:
        """Address of the API server; empty before its first start."""
        documents = self._documents()
        ports = [d["ports"][0]["port"] for d in documents if d["name"] == "kube-apiserver"]
        return f"https://{_ADDRESS}:{ports[0]}" if ports else ""

    def components(self) -> list[Component]:
        """Returns the components in the order of their start; none if it does not exist."""
        return [
            Component(
                document["name"],
                next((p.pid for p in self._processes() if Path(p.info["cmdline"][0]).name == document["name"]), None),
                tuple(port["port"] for port in document.get("ports", ())),
                self.logs / f"{document['name']}.log",
            )
            for document in self._documents()
        ]

    def up(
        self, kubeconfig: Path, *, default_scheduler: bool = False, download: bool = False, timeout: float = 120.0
    ) -> bool:
        """Starts the control plane, unless it runs, and adds it to a kubeconfig file as the current context.

        Remains of an interrupted start are removed before; a stopped control plane keeps its objects. With
        `default_scheduler` kube-scheduler starts as well, without limits of its request rate; with `download` kwokctl
        downloads the programs. It must be ready within the time-out in seconds. The result is False if it was running.

        Raises:
            ConfigError: Programs are missing, or the name is another one's.
            BackendError: It does not become ready; nothing is left of it.
        """
        add_cluster(kubeconfig, None)  # A file that cannot be written is reported before the start.
        with _exclusive():
            if self.folder.exists() and not self._config.exists():
                raise ConfigError(
                    f"expected a name no other program's control plane has, got '{self.name}'; see {self.folder}",
                    where="--name",
                )
            running = self._is_running()
            if self._started.exists():
                self._check_scheduler(default_scheduler)
            else:
                self.remove()
            if not running:
                try:
                    self._start(default_scheduler, download, timeout)
                except BaseException:
                    if not self._started.exists():
                        self.remove()
                    raise
            add_cluster(kubeconfig, self.kubeconfig)
            self._started.write_text("\n".join(dict.fromkeys([*self._kubeconfigs(), str(kubeconfig.resolve())])) + "\n")
        return not running

    def down(self) -> None:
        """Ends all processes and removes folder and kubeconfig entries; ConfigError without such a control plane."""
        self.check_exists()
        with _exclusive():
            self.remove()

    def check_exists(self) -> None:
        """Raises ConfigError if there is no such control plane of hdsim."""
        if not self._config.exists():
            names = ", ".join(plane.name for plane in control_planes(self._workdir)) or "none"
            raise ConfigError(
                f"expected the name of a control plane of hdsim in {self._workdir}, got '{self.name}'; there: {names}",
                where="--name",
            )

    def remove(self) -> None:
        """Ends all processes and deletes what is there of the control plane."""
        import psutil

        processes = self._processes()
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(processes, timeout=10)
        for path in self._kubeconfigs():
            remove_cluster(Path(path), f"kwok-{self.name}")
        shutil.rmtree(self.folder, ignore_errors=True)

    def _kubeconfigs(self) -> list[str]:
        return self._started.read_text().split("\n")[:-1] if self._started.exists() else []

    def _documents(self) -> list[dict[str, Any]]:
        """The components as kwokctl notes them."""
        path = self.folder / "kwok.yaml"
        if not path.exists():
            return []
        what = f"YAML as kwokctl writes it (hdsim kwok down --name {self.name} deletes the file)"
        documents = read_yaml(path, ConfigError, what, several=True)
        return next((document.get("components") or [] for document in documents if document), [])

    def _processes(self) -> list[psutil.Process]:
        """The control plane's processes, whatever its files of pids say.

        They run a program of its folder; a kwokctl whose hdsim has been killed still starts them.
        """
        import psutil

        programs, config = str(self.folder / "bin") + os.sep, str(self._config)
        return [
            process
            for process in psutil.process_iter(["cmdline"])
            if (words := process.info["cmdline"]) and (words[0].startswith(programs) or config in words)
        ]

    def _is_running(self) -> bool:
        components = self.components()
        return bool(components) and all(component.pid for component in components) and self._started.exists()

    def _check_scheduler(self, wanted: bool) -> None:
        if wanted != any(component.name == _SCHEDULER for component in self.components()):
            raise ConfigError(
                f"expected a control plane {'with' if wanted else 'without'} kube-scheduler, got '{self.name}', which "
                f"runs {'without' if wanted else 'with'} it; hdsim kwok down --name {self.name} ends it",
                where="--default-scheduler",
            )

    def _start(self, default_scheduler: bool, download: bool, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        restarts = self._started.exists()
        while True:
            if not restarts:
                self._configure(_options(default_scheduler, download))
            try:
                self._create(deadline)
                break
            except BackendError as error:
                if restarts or _PORT_IS_TAKEN not in str(error) or time.monotonic() > deadline:
                    raise
                self.remove()
        # Pods are refused until the controller manager has made the account that they run as.
        while True:
            try:
                self._kwokctl("kubectl", "get", "--raw", _ACCOUNT, timeout=30)
                break
            except BackendError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
        ended = [component for component in self.components() if component.pid is None]
        if ended:
            raise BackendError(self._failure(f"{', '.join(c.name for c in ended)} ended"))

    def _configure(self, options: dict[str, Any]) -> None:
        self.folder.mkdir(parents=True, mode=0o700)
        kind = {
            "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
            "kind": "KwokctlConfiguration",
            "options": options | dict(zip(_PORTS, self._unused_ports(), strict=False)),
            "componentsPatches": _PATCHES,
        }
        self._config.write_text(f"{yaml.safe_dump(kind)}---\n{_STAGES.read_text()}")

    def _create(self, deadline: float) -> None:
        """Starts the components that do not run, also those that end before all are ready.

        The controller manager ends when it has found no API server for ten seconds.
        """
        while True:
            for component in self.components():
                if component.pid is None:
                    # kwokctl takes a process that has got the same id since for the component.
                    (self.folder / "pids" / f"{component.name}.pid").unlink(missing_ok=True)
            begin = time.monotonic()
            wait = min(max(deadline - begin, 1.0), _PATIENCE)
            try:
                options = ["--config", str(self._config), "--kubeconfig=", f"--wait={wait:g}s"]
                self._kwokctl("create", "cluster", *options, timeout=wait + 5)
                return
            except BackendError as error:
                now = time.monotonic()
                # An error that comes at once is another.
                if _PORT_IS_TAKEN in str(error) or now >= deadline or now - begin < 0.9 * wait:
                    raise

    def _unused_ports(self) -> Iterator[int]:
        """The ports that are free and belong to no control plane: kwokctl gives away those of stopped ones."""
        planes = control_planes(self._workdir)
        held = {port["port"] for plane in planes for part in plane._documents() for port in part.get("ports", ())}
        for port in range(_HIGHEST_PORT, _LOWEST_PORT, -1):
            if port not in held and _is_free(port):
                yield port

    def _kwokctl(self, *arguments: str, timeout: float) -> None:
        """Runs kwokctl, whose errors may come with exit status 0 in its log of JSON lines."""
        environment = {key: value for key, value in os.environ.items() if not key.startswith("KWOK_")}
        command = [str(find_programs(("kwokctl",))["kwokctl"]), "--name", self.name, *arguments]
        try:
            done = subprocess.run(
                command,
                env={**environment, "KWOK_WORKDIR": str(self._workdir)},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=timeout,
                umask=0o077,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise BackendError(self._failure(f"kwokctl has not ended within {timeout:g} s")) from None
        errors = [line for line in map(_message, done.stderr.splitlines()) if line]
        if done.returncode or errors:
            raise BackendError(self._failure("; ".join(errors) or done.stderr))

    def _failure(self, reason: str) -> str:
        """Returns a message with the last line of the log of each component that has ended."""
        lines = [f"the control plane '{self.name}' cannot be started: {reason.strip()}"]
        for component in self.components():
            if component.pid is None and component.log.exists():
                last = component.log.read_text(errors="replace").splitlines()[-1:]
                lines += [f"{component.name}: {line}" for line in last]
        return "\n".join(lines)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((_ADDRESS, port))
        except OSError:
            return False
        return True


def _options(default_scheduler: bool, download: bool) -> dict[str, Any]:
    """Returns kwokctl's settings of a control plane that listens on the loopback interface only."""
    options: dict[str, Any] = {"runtime": "binary", "bindAddress": _ADDRESS, "disableQPSLimits": True}
    needed = dict(_OPTIONS)
    if not default_scheduler:
        options["disable"] = [_SCHEDULER]
        del needed[_SCHEDULER]
    if not download:
        programs = find_programs(("kwokctl", *needed))
        options["kubeVersion"] = kubernetes_version(programs["kube-apiserver"])
        options |= {needed[name]: str(path) for name, path in programs.items() if name in needed}
    return options


def _message(line: str) -> str | None:
    """Returns the text of an error in the log of kwokctl."""
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    if not isinstance(entry, dict) or entry.get("level") != "ERROR":
        return None
    return ": ".join(str(entry[key]) for key in ("msg", "err") if entry.get(key))


@contextlib.contextmanager
def _exclusive() -> Iterator[None]:
    """Starts of one user one after another: ports are chosen first, and components bind them later."""
    path = Path(tempfile.gettempdir(), f"hdsim-kwok-{os.getuid()}.lock")
    try:
        number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    except OSError as error:
        raise ConfigError(
            f"expected a file that hdsim made, or none: {error.strerror}; TMPDIR=FOLDER takes another place",
            where=str(path),
        ) from None
    with os.fdopen(number, "r+b") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log.warning("another control plane starts or ends; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
