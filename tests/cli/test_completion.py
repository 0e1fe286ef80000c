"""Completion by click's protocol, and by real shells on a terminal."""

from __future__ import annotations

import os
import pty
import re
import select
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

from hdsim.config.catalog import KINDS, listed


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An environment in which ``hdsim`` is this checkout, and a folder with files."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "hdsim").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m hdsim "$@"\n')
    (programs / "hdsim").chmod(0o755)
    (tmp_path / "work").mkdir()
    for name in ("my log.swf", "mine.swf", "müll.swf"):
        (tmp_path / "work" / name).write_text("")
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "HOME": str(tmp_path / "work"), "TERM": "dumb"}


@pytest.fixture
def completed(environment: dict[str, str], tmp_path: Path):
    def ask(line: str) -> list[str]:
        done = subprocess.run(
            ["hdsim"],
            capture_output=True,
            text=True,
            cwd=tmp_path / "work",
            check=True,
            env={**environment, "_HDSIM_COMPLETE": "bash_complete", "COMP_LINE": line},
        )
        assert not done.stderr
        return done.stdout.split("\n")[:-1] if done.stdout.strip() else []

    return ask


@pytest.mark.ci
def test_words(completed) -> None:
    assert {"run", "train", "show", "completion"} <= set(completed("hdsim "))
    assert {"workload=", "workload.path=", "workload.jobs=", "workload.bsp.supersteps="} <= set(
        completed("hdsim run workload")
    )
    assert completed("hdsim run metr") == ["metrics="]
    assert completed("hdsim bsp run supers") == ["supersteps="]
    assert completed("hdsim run supers") == []
    assert completed("hdsim run agent=ppo agent.gam") == ["agent.gamma="]
    assert completed("hdsim run agent.gam") == []
    assert {"easy", "easy-sjf", "easy-saf"} <= set(completed("hdsim train agent=eas"))
    assert completed("hdsim run platform=fcfs,teach") == ["fcfs,teaching"]
    assert completed("hdsim run workload.path=lublin_16") == ["lublin_16000"]
    assert completed("hdsim run workload.path=mi") == ["mine.swf"]
    assert completed("hdsim run agent.core_policy=high_m") == ["high_mem", "high_mem_bw"]
    assert completed("hdsim train env.action=po") == ["policy_pair"]
    assert completed("hdsim run workload.generate.model=l") == ["lublin", "like"]
    assert completed("hdsim train env.objective=av") == [
        "avg_job_slowdown",
        "avg_job_completion",
        "avg_utilization",
        "avg_bounded_slowdown",
    ]
    for key in ("env.action", "env.observation", "env.objective", "agent.backfill", "workload.generate.model"):
        assert completed(f"hdsim train {key}=mine") == ["mine.swf"]
    assert completed("hdsim train env.observation=no") == ["normal", "nodes", "nodes_bandwidth", "node_states"]
    assert completed("hdsim platform show gai") == ["gaia"]
    assert completed("hdsim workload show m") == ["memory_bound", "mine.swf", "my log.swf", "müll.swf"]
    assert completed("hdsim show metrics jobs_k") == ["jobs_killed"]
    assert completed("hdsim compare --metric jobs_k") == ["jobs_killed"]
    assert completed("hdsim run --mul") == ["--multirun"]


@pytest.mark.ci
def test_no_heavy_package_is_imported_at_a_tab(environment: dict[str, str]) -> None:
    code = "import sys; from hdsim.config.completion import overrides; overrides({!r}, []); print(*sys.modules)"
    for word in ("agent=ea", "work", "workload.path=l", "env.observation=n"):
        loaded = subprocess.run(
            [sys.executable, "-c", code.format(word)], capture_output=True, text=True, check=True, env=environment
        ).stdout.split()
        assert not {"hydra", "omegaconf", "numba", "torch", "scipy", "matplotlib"} & set(loaded)


@pytest.mark.parametrize(
    "shell", ["bash", *(pytest.param(name, marks=pytest.mark.requires(name)) for name in ("zsh", "fish"))]
)
@pytest.mark.ci
def test_shells(shell: str, environment: dict[str, str], tmp_path: Path) -> None:
    """A line is typed, completed by TAB and printed by the shell as the words that it has become."""
    work = tmp_path / "work"
    if shell == "fish":
        script = 'hdsim completion fish | source; for line in $argv; complete -C "$line"; end'
        lines = ["hdsim run workload.path=lublin_16", "hdsim run agent=fcfs,conservative-sj", "hdsim run wor"]
        done = subprocess.run([shell, "-c", script, *lines], capture_output=True, text=True, cwd=work, env=environment)
        assert {"workload.path=lublin_16000", "agent=fcfs,conservative-sjf", "workload.jobs="} <= set(
            done.stdout.split()
        ), done.stderr
        return
    start = {
        "bash": ["bash", "--norc", "--noprofile", "-i"],
        "zsh": ["zsh", "-f", "-i"],
    }[shell]
    setup = {"bash": "", "zsh": "autoload -U compinit && compinit -u; bindkey -e; "}[shell]
    said = typed(
        start,
        [
            f'{setup}eval "$(hdsim completion {shell})"\n',
            "hdsim run workload.path=lublin_16\t\x01printf '<%s>\\n' \n",
            "hdsim run workload.path=my\t\x01printf '<%s>\\n' \n",
            "hdsim run workload.job\t7\x01printf '<%s>\\n' \n",
            "exit\n",
        ],
        environment,
        work,
    )
    for word in ("<workload.path=lublin_16000>", "<workload.path=my log.swf>", "<workload.jobs=7>"):
        assert word in said, said


def typed(command: list[str], keys: list[str], environment: dict[str, str], folder: Path) -> str:
    """Types keys on a terminal; returns all that a program has written there."""
    main, other = pty.openpty()
    process = subprocess.Popen(
        command, stdin=other, stdout=other, stderr=other, cwd=folder, env=environment, start_new_session=True
    )
    os.close(other)
    os.write(main, "".join(keys).encode())
    said = b""
    while select.select([main], [], [], 60)[0]:
        try:
            said += os.read(main, 65536)
        except OSError:  # The program has closed the terminal.
            break
    process.kill()
    process.wait()
    os.close(main)
    return said.decode("utf-8", "replace").replace("\r", "")


@pytest.mark.parametrize("kind", KINDS)
def test_every_name_is_described(kind: str) -> None:
    entries = listed(kind)
    assert len(entries) > {"actions": 4, "generators": 2}.get(kind, 6)
    for name, entry in entries.items():
        assert entry.summary.strip() and "\n" not in entry.summary and entry.details.strip(), name


@pytest.mark.ci
def test_show(hdsim) -> None:
    for arguments, told in (
        (["agents", "easy-sjf"], "agent.backfill=easy"),
        (["agents", "ppo"], "agent.clip_coef = 0.2"),
        (["policies", "wfp3"], "-(w / r)^3 n"),
        (["metrics", "p95_waiting_time"], "direction  lower is better"),
        (["keys", "workload.jobs"], "a whole number >= 1 or null"),
        (["keys", "tries"], "expected  a whole number >= 1: hdsim bsp profile"),
        (["keys", "shares.start"], "hdsim bsp train, hdsim bsp run, hdsim bsp share"),
        (["actions", "policy_pair"], "env.action=policy_pair\nOne scheduling pass"),
        (["observations"], "(queue_size, 8): the first queued jobs"),
        (["objectives", "edp"], "energy-delay"),
        (["generators"], "The Lublin-Feitelson model"),
        (["experiments", "gaia"], "hdsim train experiment=gaia seed=1"),
        (["studies"], "What are backfilling and its order"),
        (["platforms"], "2,280 cores, 153 nodes"),
        (["agent"], "options  actor_critic, "),
    ):
        done = hdsim("show", *arguments)
        assert done.returncode == 0 and told in done.stdout, done.stderr
    for arguments, told in (
        (["metrics", "makespam"], "did you mean 'makespan'?"),
        (["agentz"], "did you mean 'agent"),
    ):
        done = hdsim("show", *arguments)
        assert done.returncode == 2 and told in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("group", [(), ("workload",), ("platform",), ("kwok",), ("bsp",)])
def test_summaries_of_commands_are_whole(hdsim: Any, group: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    commands = hdsim(*group, "--help").stdout.partition("Commands:")[2]
    assert commands and "..." not in commands.replace("keys, experiments, ...,", "")


@pytest.mark.ci
def test_tables_are_as_wide_as_the_terminal(hdsim: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for columns in (60, 80):
        monkeypatch.setenv("COLUMNS", str(columns))
        agents = hdsim("show", "agents")
        run = hdsim("run", "platform=teaching", "workload.jobs=30", f"hydra.run.dir={columns}")
        assert (agents.returncode, run.returncode) == (0, 0), agents.stderr + run.stderr
        table = run.stdout.partition("waiting_time")
        assert table[1], run.stdout
        for lines in (agents.stdout, "".join(table[1:]).partition("\n\nmakespan")[0]):
            assert [line for line in lines.splitlines() if len(line) > columns] == []


@pytest.mark.ci
def test_a_name_is_shown_without_its_kind(hdsim: Any) -> None:
    alone, both = hdsim("show", "ppo"), hdsim("show", "wfp3")
    assert alone.stdout == hdsim("show", "agents", "ppo").stdout
    assert re.findall(r"^(\w+) wfp3$", both.stdout, re.MULTILINE) == ["agents", "policies"]
    for words, message in ((("polices",), "did you mean 'policies'?"), (("agent", "ppo"), "did you mean 'agents'?")):
        done = hdsim("show", *words)
        assert done.returncode == 2 and message in done.stderr
