"""CPU limits of real processes, and command lines of stress-ng."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hdsim.errors import ConfigError
from hdsim.gangs.limits import CpuLimits, cpu_limits
from hdsim.gangs.stressors import Stressors, version

ROOT = Path(__file__).resolve().parents[2]
TICK = os.sysconf("SC_CLK_TCK")
SPIN = ["sh", "-c", "while :; do :; done"]


@pytest.fixture
def quotas() -> CpuLimits:
    try:
        return cpu_limits("cgroup")
    except ConfigError as error:
        pytest.skip(str(error))


def cpu_seconds(pid: int) -> float:
    return sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13])) / TICK


def share_of(pid: int, seconds: float = 0.6) -> float:
    """Cores that a process uses on average, measured for some time."""
    begin, used = time.monotonic(), cpu_seconds(pid)
    time.sleep(seconds)
    return (cpu_seconds(pid) - used) / (time.monotonic() - begin)


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.mark.ci
def test_a_quota_holds_a_tree_of_processes_and_changes_in_place(quotas: CpuLimits) -> None:
    with quotas:
        quotas.change({"tree": 100, "other": 100})
        process = quotas.start(
            "tree", ["sh", "-c", "(while :; do :; done) & echo $!; while :; do :; done"], stdout=subprocess.PIPE
        )
        child = int(process.stdout.readline())
        # Whatever else runs: no more than the quota, and with a larger one more.
        low = share_of(process.pid) + share_of(child)
        assert low < 0.2
        quotas.change({"tree": 800})
        assert share_of(process.pid) + share_of(child) > 1.5 * low
        quotas.change({"tree": 100})
        assert share_of(process.pid) + share_of(child) < 0.25
    assert gone(process.pid) and gone(child)


@pytest.mark.requires("stress-ng")
def test_a_quarter_of_a_core_takes_four_times_as_long(quotas: CpuLimits, tmp_path: Path) -> None:
    command = Stressors({"vecmath": 100.0}).command("vecmath", 10, tmp_path)
    cores = {}
    with quotas:
        for share in (1000, 250):
            quotas.change({"vecmath": share})
            begin = time.monotonic()
            _, status, usage = os.wait4(quotas.start("vecmath", command).pid, 0)
            assert status == 0
            cores[share] = (usage.ru_utime + usage.ru_stime) / (time.monotonic() - begin)
    # CPU seconds per second: other processes on the machine lower them, nothing raises them.
    assert cores[1000] <= 1.05
    assert cores[250] <= 0.25 * 1.15


def test_affinity_gives_each_name_cores_of_its_own() -> None:
    cores = os.sched_getaffinity(0)
    if len(cores) < 2:
        pytest.skip("needs two cores")
    with cpu_limits("affinity") as limits:
        limits.change({"a": 1000, "b": 1000})
        a, b = (limits.start(name, ["sh", "-c", "sleep 60 & echo $!; wait"], stdout=subprocess.PIPE) for name in "ab")
        child = int(a.stdout.readline())
        b.stdout.readline()
        own = {pid: os.sched_getaffinity(pid) for pid in (a.pid, b.pid)}
        assert len(own[a.pid]) == len(own[b.pid]) == 1 and not own[a.pid] & own[b.pid]
        limits.stop("b")
        assert gone(b.pid)
        limits.change({"a": 2000})
        assert len(os.sched_getaffinity(a.pid)) == len(os.sched_getaffinity(child)) == 2
        with pytest.raises(ConfigError, match=r"at most .* millicores together with CPU affinity"):
            limits.change({"c": 1000 * len(cores)})
    assert gone(a.pid) and gone(child)


@pytest.mark.parametrize("method", ["auto", "affinity"])
def test_a_killed_process_leaves_none_behind(method: str) -> None:
    script = (
        "import sys, time; from hdsim.gangs.limits import cpu_limits; limits = cpu_limits(sys.argv[1]);"
        "limits.change({'x': 1000}); print(limits.start('x', ['sleep', '60']).pid, flush=True); time.sleep(60)"
    )
    owner = subprocess.Popen([sys.executable, "-c", script, method], stdout=subprocess.PIPE, cwd=ROOT)
    pid = int(owner.stdout.readline())
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    until = time.monotonic() + 30
    while not gone(pid) and time.monotonic() < until:
        time.sleep(0.01)
    assert gone(pid)
    limits = cpu_limits(method)  # removes the cgroups of the killed process
    if method == "auto" and limits.method.startswith("cgroup"):
        assert not [*limits._parent.glob(f"hdsim-{owner.pid}-*")]


def test_mistakes_are_named(quotas: CpuLimits) -> None:
    with quotas, pytest.raises(ConfigError, match=r"shares: expected at least 50 millicores with cgroup v[12], got 49"):
        quotas.change({"x": 49})
    with cpu_limits("affinity") as limits, pytest.raises(ConfigError, match=r"in steps of 1000 with CPU affinity"):
        limits.change({"x": 1500})
    with pytest.raises(ConfigError, match=r"expected auto, cgroup, affinity, got 'afinity' .did you mean 'affinity'"):
        cpu_limits("afinity")
    with pytest.raises(ConfigError, match=r"got 'kubernetes'.*pods of a kubelet"):
        cpu_limits("kubernetes")


@pytest.mark.requires("stress-ng")
def test_command_lines_of_stress_ng(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stressors = Stressors({"cap": 2_000_000, "sine": 1}, scale=0.001, instances=2)
    command = stressors.command("cap", 10.26, tmp_path)
    assert command[-4:] == ["--cap", "2", "--cap-ops", "20520"]
    assert stressors.command("sine", 1, tmp_path)[-1] == "1"
    assert version().startswith("stress-ng 0.") and subprocess.run(command).returncode == 0
    stressors.check(["cap"])
    with pytest.raises(ConfigError, match=r"got 'sine'"):
        stressors.check(["cap", "sine"])
    with pytest.raises(ConfigError, match=r"operations per unit of workload of zero, got none"):
        stressors.check(["zero"])
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"apt install stress-ng"):
        stressors.check(["cap"])
