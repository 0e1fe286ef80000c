"""Control planes of Kwok: start, end, what they listen on, how fake pods behave."""

from __future__ import annotations

import os
import re
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from kube import Api, Cluster, fake_node, wait_for

from hdsim.errors import BackendError, ConfigError
from hdsim.kubernetes import binaries
from hdsim.kubernetes.binaries import PROGRAMS, find_programs
from hdsim.kubernetes.control_plane import ControlPlane, control_planes
from hdsim.kubernetes.kubeconfig import add_cluster, remove_cluster

Command = Callable[..., subprocess.CompletedProcess[str]]
kube = pytest.mark.requires("kube")


def pod(name: str, node: str, **annotations: str) -> dict[str, Any]:
    metadata = {"name": name, "annotations": {f"hdsim.io/{key}": value for key, value in annotations.items()}}
    return {"metadata": metadata, "spec": {"nodeName": node, "containers": [{"name": "main", "image": "none"}]}}


@kube
@pytest.mark.ci
def test_pods_run_as_their_annotations_say(cluster: Cluster) -> None:
    cluster.add_nodes([fake_node("a")])
    pods = f"/api/v1/namespaces/{cluster.namespace}/pods"
    for body in (pod("timed", "a", duration="1.5s"), pod("endless", "a"), pod("simulated", "a", clock="virtual")):
        cluster.api("POST", pods, body)

    def phases() -> dict[str, str]:
        return {pod["metadata"]["name"]: pod["status"]["phase"] for pod in cluster.pods()}

    wait_for(lambda: phases()["timed"] == "Succeeded", "the end of the pod with a duration")
    assert phases() == {"timed": "Succeeded", "endless": "Running", "simulated": "Pending"}
    # hdsim writes the status of pods in simulated time.
    cluster.api("PATCH", f"{pods}/simulated/status", {"status": {"phase": "Succeeded"}}, "merge-patch+json")
    assert phases()["simulated"] == "Succeeded"


def test_the_lock_of_control_planes_follows_no_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    victim = tmp_path / "victim.txt"
    victim.write_text("content")
    lock = tmp_path / f"hdsim-kwok-{os.getuid()}.lock"
    lock.symlink_to(victim)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(ConfigError, match=rf"{lock}: expected a file that hdsim made, or none: .*TMPDIR="):
        ControlPlane("a", tmp_path / "planes").up(kubeconfig=tmp_path / "kubeconfig")
    assert victim.read_text() == "content" and not (tmp_path / "planes").exists()


@kube
@pytest.mark.ci
def test_all_sockets_are_on_the_loopback_interface(cluster: Cluster) -> None:
    components = cluster.plane.components()
    assert {component.name for component in components} == {
        "etcd",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "kwok-controller",
    }
    for component in components:
        connections = psutil.Process(component.pid).net_connections("inet")
        listening = {(c.laddr.ip, c.laddr.port) for c in connections if c.status == psutil.CONN_LISTEN}
        assert listening == {("127.0.0.1", port) for port in component.ports}
        assert not [c for c in connections if not c.raddr and c.status != psutil.CONN_LISTEN], "a UDP socket"


@pytest.fixture
def workdir(tmp_path: Path) -> Iterator[Path]:
    """A work folder of kwokctl, in which nothing runs after the test."""
    folder = tmp_path / "work"
    yield folder
    for plane in control_planes(folder):
        plane.remove()


def processes(folder: Path) -> list[psutil.Process]:
    """Processes with a path in a folder on their command line."""
    found = psutil.process_iter(["cmdline"])
    return [each for each in found if any(str(folder) in word for word in each.info["cmdline"] or ())]


@kube
@pytest.mark.ci
def test_from_up_to_down(hdsim: Command, workdir: Path, tmp_path: Path) -> None:
    def kwok(*arguments: object, status: int = 0) -> str:
        done = hdsim("kwok", *arguments, "--workdir", workdir)
        assert done.returncode == status, done.stderr
        return done.stdout if status == 0 else done.stderr

    file, other = tmp_path / "kubeconfig", tmp_path / "other"
    # A start that is killed as soon as its first process runs leaves the others half started.
    command = [sys.executable, "-m", "hdsim", "kwok", "up", "--name", "a", "--kubeconfig", file, "--workdir", workdir]
    killed = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, cwd=tmp_path)
    wait_for(lambda: [each for each in processes(workdir) if each.name() == "etcd"], "etcd")
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert kwok("up", "--name", "a", "--kubeconfig", file).startswith("a is ready: https://127.0.0.1:")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    folder = workdir / "clusters/a"
    assert not [path for path in (folder / "pki").iterdir() if path.stat().st_mode & 0o077]
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    Api(file)("POST", "/api/v1/namespaces", {"metadata": {"name": "kept"}})

    # It runs; a further file gets its address.
    assert kwok("up", "--name", "a", "--kubeconfig", other).startswith("a was running")
    assert other.read_text() == file.read_text()
    assert "runs without it" in kwok("up", "--name", "a", "--kubeconfig", file, "--default-scheduler", status=2)

    # A component that has ended is started again on its data.
    plane = ControlPlane("a", workdir)
    pids = {component.name: component.pid for component in plane.components()}
    assert set(pids) == {"etcd", "kube-apiserver", "kube-controller-manager", "kwok-controller"}
    psutil.Process(pids["kube-apiserver"]).kill()
    wait_for(lambda: plane.components()[1].pid is None, "the end of kube-apiserver")
    assert "kube-apiserver of a does not run" in kwok("status", status=1)
    kwok("up", "--name", "b", "--kubeconfig", file)  # It leaves the ports of a alone.
    assert kwok("up", "--name", "a", "--kubeconfig", file).startswith("a is ready")
    assert Api(plane.kubeconfig).request("GET", "/api/v1/namespaces/kept")[0] == 200
    assert "kube-apiserver" in kwok("status", "--name", "a")

    # Clusters are apart from each other.
    contexts = [context["name"] for context in yaml.safe_load(file.read_text())["contexts"]]
    assert sorted(contexts) == ["kwok-a", "kwok-b"]
    assert Api(plane.kubeconfig).request("GET", "/api/v1/namespaces/kept")[0] == 200
    ports = [port for name in "ab" for part in ControlPlane(name, workdir).components() for port in part.ports]
    assert len(set(ports)) == len(ports) == 10
    assert "there: a, b" in kwok("down", "--name", "c", status=2)
    kwok("down", "--name", "a")
    assert not other.exists()
    assert [context["name"] for context in yaml.safe_load(file.read_text())["contexts"]] == ["kwok-b"]
    assert kwok("down", "--all") == "b is deleted\n"
    assert not file.exists()
    assert not processes(workdir)
    assert not list((workdir / "clusters").iterdir())
    assert kwok("status") == f"no cluster in {workdir}\n"


@kube
@pytest.mark.nightly
def test_a_port_that_is_taken_before_etcd_binds_it_is_changed(
    workdir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unused_ports = ControlPlane._unused_ports
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        found_free = [taken]

        def ports(plane: ControlPlane) -> Iterator[int]:
            while found_free:
                yield found_free.pop()
            yield from unused_ports(plane)

        monkeypatch.setattr(ControlPlane, "_unused_ports", ports)
        plane = ControlPlane("a", workdir)
        assert plane.up(tmp_path / "kubeconfig")
    assert not found_free
    assert all(part.pid and taken not in part.ports for part in plane.components())
    assert Api(plane.kubeconfig).request("GET", "/readyz")[0] == 200


@kube
@pytest.mark.ci
def test_from_nothing_to_a_schedule(hdsim: Command, workdir: Path, tmp_path: Path) -> None:
    file, directory = tmp_path / "kubeconfig", tmp_path / "runs/pods"

    def call(*arguments: object, status: int = 0) -> str:
        done = hdsim(*arguments)
        assert done.returncode == status, done.stderr
        assert "Traceback" not in done.stderr and "Unclosed" not in done.stderr
        return done.stdout if status == 0 else done.stderr

    def run(*settings: str, status: int = 0) -> str:
        common = "backend=kwok", f"backend.kubeconfig={file}", "workload=cluster", "agent=least_allocated"
        return call("run", *common, f"hydra.run.dir={directory}", "backend.stop_when_idle=2", *settings, status=status)

    call("kwok", "up", "--workdir", workdir, "--kubeconfig", file)
    call("kwok", "nodes", "--count", 4, "--cpu", 8, "--memory", "16Gi", "--control-plane", "--kubeconfig", file)
    assert "pods   0\n" in call("kwok", "top", "--once", "--kubeconfig", file)
    load = "load", "--kubeconfig", file, "--cpu-load", 0.5, "--replicas", "2-4", "--wait", 0
    pods = int(re.search(r"created (\d+) pods", call("kwok", *load))[1])  # type: ignore[index]
    assert "hdsim kwok clean" in call("kwok", *load, status=2)
    assert "contention: expected none, got threshold" in run("contention=threshold", status=2)
    assert "metrics_port: expected a port" in run("backend.metrics_port=99999", status=2)
    assert not directory.exists()
    printed = run()
    assert printed.startswith("the pods of the cluster on kubernetes, ")
    assert f"{pods} of {pods} pods bound, decisions after " in printed
    page = Path(call("report", directory).strip()).read_text()
    assert f"{pods} of {pods} pods have got a node" in page
    top = call("kwok", "top", "--once", "--kubeconfig", file)
    assert f"pods   {pods}: {pods} " in top
    assert "Pending" not in top.split("NODE", 1)[0]
    # Least allocated: equal nodes get equal shares, but for one pod.
    shares = [int(row.split()[2]) for row in top.splitlines() if row.startswith("node-")]
    assert sum(shares) == pods
    assert max(shares) - min(shares) <= 1
    call("kwok", "down", "--workdir", workdir)
    assert not processes(workdir)
    assert "there is no file" in run(status=2)


@kube
@pytest.mark.nightly
def test_a_cluster_that_cannot_start_says_why_and_leaves_nothing(hdsim: Command, workdir: Path, tmp_path: Path) -> None:
    broken = tmp_path / "bin"
    broken.mkdir()
    for name, path in find_programs(tuple(program.name for program in PROGRAMS)).items():
        (broken / name).symlink_to(path)
    version = f'case "$*" in *version*) exec {(broken / "etcd").resolve()} "$@";; esac'
    (broken / "etcd").unlink()
    (broken / "etcd").write_text(f"#!/bin/sh\n{version}\necho no data can be written >&2\nexit 1\n")
    (broken / "etcd").chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-m", "hdsim", "kwok", "up", "--workdir", workdir, "--kubeconfig", "k", "--timeout", "3"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "HDSIM_KUBE_BIN": str(broken)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "the control plane 'hdsim' cannot be started" in done.stderr
    assert "etcd: no data can be written" in done.stderr
    assert not processes(workdir)
    assert not (workdir / "clusters/hdsim").exists()


def without_programs(tmp_path: Path, **variables: str) -> dict[str, str]:
    """An environment in which no program of a control plane is found, nor Go."""
    tools = tmp_path / "tools"
    tools.mkdir(exist_ok=True)
    own = {"HDSIM_KUBE_BIN": str(tmp_path / "none"), "PATH": str(tools), "XDG_CACHE_HOME": str(tmp_path)}
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **own, **variables}


def run(*arguments: object, cwd: Path, env: dict[str, str]) -> tuple[int, str]:
    command = [sys.executable, "-m", "hdsim", "kwok", *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout + done.stderr


def test_missing_programs_are_told_with_their_remedy(tmp_path: Path) -> None:
    status, said = run("up", "--workdir", "w", "--kubeconfig", "k", cwd=tmp_path, env=without_programs(tmp_path))
    assert status == 2
    for word in (
        "kwokctl, etcd, kube-apiserver",
        str(tmp_path / "none"),
        "hdsim kwok build",
        "HDSIM_KUBE_BIN",
        "--download",
    ):
        assert word in said
    assert not (tmp_path / "w").exists() or not list(tmp_path.glob("w/clusters/*"))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--name", "My_cluster"], "--name: expected lower-case letters"),
        (["--workdir", "two words"], "--workdir: expected a path without blanks"),
        (["--kubeconfig", "/proc/none/file"], "expected a folder that can be made"),
        (["--kubeconfig", "text"], "expected a kubeconfig file"),
        (["--name", "theirs"], "expected a name no other program's control plane has"),
    ],
)
def test_mistakes_of_a_start_are_told(arguments: list[str], told: str, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("- 1\n")
    (tmp_path / "w/clusters/theirs").mkdir(parents=True)
    command = ["up", "--workdir", "w", "--kubeconfig", "k", *arguments]
    status, said = run(*command, cwd=tmp_path, env=without_programs(tmp_path))
    assert (status, told in said) == (2, True), said


def test_kubeconfig_files_keep_what_is_of_others(tmp_path: Path) -> None:
    def config(name: str, server: str) -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": name,
            "clusters": [{"name": name, "cluster": {"server": server}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "users": [{"name": name, "user": {}}],
        }

    theirs, file = config("prod", "https://prod"), tmp_path / "config"
    file.write_text(yaml.safe_dump(theirs | {"preferences": {"colors": True}}))
    file.chmod(0o640)
    for server in ("https://127.0.0.1:1", "https://127.0.0.1:2"):
        (tmp_path / "own").write_text(yaml.safe_dump(config("kwok-a", server)))
        add_cluster(file, tmp_path / "own")
    found = yaml.safe_load(file.read_text())
    assert found["clusters"] == theirs["clusters"] + config("kwok-a", "https://127.0.0.1:2")["clusters"]
    assert (found["current-context"], found["preferences"]) == ("kwok-a", {"colors": True})
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    remove_cluster(file, "kwok-a")
    assert yaml.safe_load(file.read_text()) == theirs | {"preferences": {"colors": True}}
    remove_cluster(file, "prod")
    assert not file.exists()
    remove_cluster(file, "prod")
    file.write_text("clusters: [nameless]")
    with pytest.raises(ConfigError, match="a list of named clusters"):
        add_cluster(file, tmp_path / "own")


def test_the_context_before_is_current_again(tmp_path: Path) -> None:
    def config(name: str) -> dict[str, Any]:
        entries = {kind: [{"name": name, kind[:-1]: {}}] for kind in ("clusters", "contexts", "users")}
        return {"apiVersion": "v1", "kind": "Config", "current-context": name, **entries}

    def current() -> str:
        return str(yaml.safe_load(file.read_text())["current-context"])

    file = tmp_path / "config"
    file.write_text(yaml.safe_dump(config("prod")))
    for name in ("kwok-a", "kwok-b"):
        (tmp_path / name).write_text(yaml.safe_dump(config(name)))
    # A cluster that is added again, as at a restart, is not the one before itself.
    for name in ("kwok-a", "kwok-b", "kwok-b"):
        add_cluster(file, tmp_path / name)
    for name, left in (("kwok-a", "kwok-b"), ("kwok-b", "prod")):
        remove_cluster(file, name)
        assert current() == left
    add_cluster(file, tmp_path / "kwok-a")
    add_cluster(file, tmp_path / "kwok-b")
    remove_cluster(file, "prod")
    remove_cluster(file, "kwok-b")
    assert current() == "kwok-a"


def test_building_needs_go(tmp_path: Path) -> None:
    status, said = run("build", cwd=tmp_path, env=without_programs(tmp_path))
    assert (status, "expected Go on PATH" in said) == (2, True), said


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("write /x: no space left on device", "expected about 6 GB of disk space"),
        ("main.go:1: syntax error", "go mod failed with"),
    ],
)
def test_failures_of_go_are_told(message: str, told: str, tmp_path: Path) -> None:
    env = without_programs(tmp_path)
    go = tmp_path / "tools/go"
    go.write_text(f"#!/bin/sh\n[ $1 = env ] && {{ echo {tmp_path}; exit; }}\necho '{message}' >&2\nexit 1\n")
    go.chmod(0o755)
    status, said = run("build", cwd=tmp_path, env=env | {"PATH": f"{tmp_path}/tools:/bin"})
    assert status == 1
    assert told in said
    assert message in said


def test_a_build_tells_that_it_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    env = without_programs(tmp_path, PATH=f"{tmp_path}/tools:/bin:/usr/bin")
    (tmp_path / "tools/go").write_text("#!/bin/sh\nsleep 0.5\necho broken >&2\nexit 1\n")
    (tmp_path / "tools/go").chmod(0o755)
    for key in ("HDSIM_KUBE_BIN", "PATH"):
        monkeypatch.setenv(key, env[key])
    monkeypatch.setattr(binaries, "_PROGRESS", 0.1)
    said: list[str] = []
    with pytest.raises(BackendError, match="etcd v"):
        binaries.build(said.append)
    assert said[1].startswith("[1/")
    assert said[2] == "      0 s so far"


@kube
@pytest.mark.requires("go")
@pytest.mark.ci
def test_a_build_makes_what_is_missing_and_tells_a_missing_network(tmp_path: Path) -> None:
    folder = tmp_path / "programs"
    (folder / ".build-killed").mkdir(parents=True)
    for name, path in find_programs(tuple(program.name for program in PROGRAMS)).items():
        (folder / name).symlink_to(path)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "HDSIM_KUBE_BIN": str(folder)}
    status, said = run("build", cwd=tmp_path, env=env)
    assert (status, said) == (0, f"all 7 programs are there\n{folder}\n")
    assert not (folder / ".build-killed").exists()
    # A program that is no longer whole is built again, here without a network and without Go's cache.
    (folder / "etcd").unlink()
    (folder / "etcd").write_text("")
    env |= {"GOPROXY": "http://127.0.0.1:9", "GOMODCACHE": str(tmp_path / "modules"), "GOFLAGS": "-modcacherw"}
    status, said = run("build", cwd=tmp_path, env=env)
    assert status == 1
    assert "building 1 of 7 programs" in said
    assert "expected Go modules from http://127.0.0.1:9" in said
    assert sorted(path.name for path in folder.glob(".build-*")) == []
