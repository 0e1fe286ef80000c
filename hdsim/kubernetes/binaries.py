"""The programs of a control plane: where they are, and their build from Go modules."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hdsim.errors import BackendError, ConfigError

_KUBERNETES = "v1.36.3"
#: Seconds between two lines with the time that the build of a program has taken so far.
_PROGRESS = 60.0


@dataclass(frozen=True)
class ControlPlaneProgram:
    """A program of a control plane."""

    name: str  # name of the file
    module: str  # Go module, whose own replace directives hold for the build
    version: str  # version of the module
    package: str  # package of the program in the module
    variables: tuple[str, ...] = ()  # variables of the Go linker that hold the version
    any_version: bool = False  # one on PATH does as well, of whatever version

    def is_built(self, folder: Path) -> bool:
        """Returns whether the program is in a folder and reports its version."""
        path = folder / self.name
        if self.any_version:
            return os.access(path, os.X_OK) or shutil.which(self.name) is not None
        return path.is_file() and self.version.removeprefix("v") in _version_of(path)


def _kubernetes(name: str, *, any_version: bool = False) -> ControlPlaneProgram:
    major, minor, _ = _KUBERNETES[1:].split(".")
    values = {"gitVersion": _KUBERNETES, "gitMajor": major, "gitMinor": minor}
    variables = tuple(f"k8s.io/component-base/version.{key}={value}" for key, value in values.items())
    return ControlPlaneProgram(name, "k8s.io/kubernetes", _KUBERNETES, f"cmd/{name}", variables, any_version)


#: In the order of the build. kwokctl looks at the API server with kubectl, and would download it.
PROGRAMS = (
    ControlPlaneProgram("etcd", "go.etcd.io/etcd/server/v3", "v3.6.8", "."),
    ControlPlaneProgram("kwok", "sigs.k8s.io/kwok", "v0.8.0", "cmd/kwok"),
    ControlPlaneProgram("kwokctl", "sigs.k8s.io/kwok", "v0.8.0", "cmd/kwokctl"),
    *map(_kubernetes, ("kube-apiserver", "kube-scheduler", "kube-controller-manager")),
    _kubernetes("kubectl", any_version=True),
)

_REMEDY = (
    "hdsim kwok build builds them where Go is on PATH; they may also lie in the folder HDSIM_KUBE_BIN or on PATH; "
    "hdsim kwok up --download lets kwokctl fetch all but itself"
)


def build_folder() -> Path:
    """Returns the folder of the programs: ``HDSIM_KUBE_BIN``, else one in the user's cache."""
    if given := os.environ.get("HDSIM_KUBE_BIN"):
        return Path(given).expanduser().resolve()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "hdsim" / f"kubernetes-{_KUBERNETES[1:]}"


def find_programs(names: tuple[str, ...]) -> dict[str, Path]:
    """Finds programs by their file names in `build_folder` or on PATH; ConfigError if some are missing."""
    places = os.pathsep.join([str(build_folder()), os.environ.get("PATH", os.defpath)])
    found = {name: shutil.which(name, path=places) for name in names}
    missing = [name for name, path in found.items() if path is None]
    if missing:
        raise ConfigError(f"expected {', '.join(missing)} in {build_folder()} or on PATH, found none; {_REMEDY}")
    return {name: Path(path).resolve() for name, path in found.items() if path is not None}


def kubernetes_version(apiserver: Path) -> str:
    """Returns the version of a kube-apiserver, such as ``v1.36.3``; ConfigError if it reports none."""
    found = re.search(r"v\d+\.\d+\.\d+\S*", _version_of(apiserver))
    if found is None:
        raise ConfigError(f"expected a program that reports its version for --version, got '{apiserver}'")
    return found[0]


def _version_of(program: Path) -> str:
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=60, check=False)
        return done.stdout if done.returncode == 0 else ""
    return ""


def build(report: Callable[[str], None]) -> Path:
    """Builds the programs that are missing in `build_folder`, which is returned, or have another version.

    Each line of progress is reported. Each program replaces its file when it is complete, so that an interrupted build
    continues with the next one. Go keeps the sources and compiled packages in its own caches.

    Raises:
        ConfigError: Go is missing.
        BackendError: Go cannot download or compile a module, or the disk is full.
    """
    folder = build_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with _exclusive(folder, report):
        missing = [program for program in PROGRAMS if not program.is_built(folder)]
        if not missing:
            report(f"all {len(PROGRAMS)} programs are there")
            return folder
        if shutil.which("go") is None:
            raise ConfigError("expected Go on PATH to build a control plane, found none; https://go.dev/dl has it")
        report(f"building {len(missing)} of {len(PROGRAMS)} programs in {folder}, about six minutes from nothing")
        for number, program in enumerate(missing, 1):
            report(f"[{number}/{len(missing)}] {program.name} {program.version}")
            begin = time.monotonic()
            with _progress(report, begin):
                _build(program, folder)
            size = (folder / program.name).stat().st_size / 1e6
            report(f"      {time.monotonic() - begin:.0f} s, {size:.0f} MB")
    return folder


@contextlib.contextmanager
def _exclusive(folder: Path, report: Callable[[str], None]) -> Iterator[None]:
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report(f"waiting for another build in {folder}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        for remains in folder.glob(".build-*"):
            shutil.rmtree(remains, ignore_errors=True)
        yield


@contextlib.contextmanager
def _progress(report: Callable[[str], None], begin: float) -> Iterator[None]:
    """Reports from time to time the seconds since a monotonic time."""
    done = threading.Event()

    def tell() -> None:
        while not done.wait(_PROGRESS):
            report(f"      {time.monotonic() - begin:.0f} s so far")

    thread = threading.Thread(target=tell, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _build(program: ControlPlaneProgram, folder: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=".build-", dir=folder, ignore_cleanup_errors=True) as place:
        go = _Go(program, Path(place))
        source = json.loads(go("mod", "download", "-json", f"{program.module}@{program.version}"))
        (go.folder / "go.mod").write_text(
            _module_file(program, json.loads(go("mod", "edit", "-json", source["GoMod"])))
        )
        flags = " ".join(["-s", "-w", *(f"-X {variable}" for variable in program.variables)])
        package = program.module if program.package == "." else f"{program.module}/{program.package}"
        go("build", "-mod=mod", "-trimpath", "-ldflags", flags, "-o", program.name, package)
        (go.folder / program.name).replace(folder / program.name)


def _module_file(program: ControlPlaneProgram, source: Mapping[str, Any]) -> str:
    """Returns the go.mod of a module that builds a program of another one with that module's settings.

    Go ignores replace and godebug lines of dependencies. Modules that the source replaces by its staging folders are
    published as v0.x of the same minor version.
    """
    lines = ["module hdsim.invalid/build", f"go {source['Go']}", f"require {program.module} {program.version}"]
    lines += [f"godebug {setting['Key']}={setting['Value']}" for setting in source.get("Godebug") or ()]
    for replaced in source.get("Replace") or ():
        if replaced["New"]["Path"].startswith("./staging/"):
            name = replaced["Old"]["Path"]
            lines.append(f"replace {name} => {name} v0{program.version.removeprefix('v1')}")
    return "\n".join(lines) + "\n"


class _Go:
    """Runs ``go`` in a working directory; the name of the program is for messages."""

    def __init__(self, program: ControlPlaneProgram, folder: Path) -> None:
        self.folder = folder
        self._program = program
        self._environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "", "GOWORK": "off", "GO111MODULE": "on"}

    def __call__(self, *arguments: str) -> str:
        done = subprocess.run(
            ["go", *arguments],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == 0:
            return done.stdout
        # `go mod download -json` writes its error to the standard output.
        said = done.stderr.strip() or done.stdout.strip()
        last = "\n".join(said.splitlines()[-5:])
        what = f"{self._program.name} {self._program.version} cannot be built"
        if "no space left on device" in said:
            places = [self.folder.parent, *(Path(self("env", name).strip()) for name in ("GOMODCACHE", "GOCACHE"))]
            free = ", ".join(f"{place}: {shutil.disk_usage(place).free / 1e9:.1f} GB free" for place in places)
            raise BackendError(f"{what}: expected about 6 GB of disk space, got {free}\n{last}")
        if re.search(r"dial tcp|no such host|connection refused|i/o timeout|TLS handshake|502 Bad Gateway", said):
            raise BackendError(f"{what}: expected Go modules from {self('env', 'GOPROXY').strip()}, got\n{last}")
        raise BackendError(f"{what}: go {arguments[0]} failed with\n{last}")
