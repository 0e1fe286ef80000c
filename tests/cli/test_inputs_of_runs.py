"""Files of runs by all kinds of names, and standard input."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from tiers import ci

LIGHT = ("platform=teaching", "workload.jobs=20", "hydra.run.dir=run")


@pytest.fixture
def trace(root: Path) -> bytes:
    return (root / "workloads/even_1000.swf").read_bytes()


@pytest.mark.parametrize("name", ["a,b=$(c).swf", *ci("my log.swf", "müll.swf", "-lead.swf", "it's.swf")])
def test_a_file_of_any_name(hdsim: Any, tmp_path: Path, trace: bytes, name: str) -> None:
    (tmp_path / name).write_bytes(trace)
    done = hdsim("run", f"workload.path={name}", *LIGHT)
    assert done.returncode == 0 and f"20 jobs of {name} on teaching" in done.stdout, done.stderr


@pytest.mark.ci
def test_standard_input(hdsim: Any, tmp_path: Path, root: Path, trace: bytes) -> None:
    """A trace, plain or packed, and a platform; the manifest keeps the digest."""
    (tmp_path / "log.swf").write_bytes(trace)
    (tmp_path / "log.swf.gz").write_bytes(gzip.compress(trace))
    assert hdsim("run", "workload.path=log.swf", *LIGHT).returncode == 0
    jobs = (tmp_path / "run/jobs.csv").read_bytes()
    for name in ("log.swf", "log.swf.gz"):
        with (tmp_path / name).open() as file:
            done = hdsim("run", "workload.path=-", *LIGHT, stdin=file)
        assert done.returncode == 0, done.stderr
        assert (tmp_path / "run/jobs.csv").read_bytes() == jobs
    (entry,) = (
        entry
        for entry in json.loads((tmp_path / "run/manifest.json").read_text())["inputs"]
        if entry["kind"] == "workload"
    )
    assert entry["path"] == "-" and len(entry["sha256"]) == 64
    with (root / "platforms/pik.json").open() as file:
        done = hdsim("run", "platform.path=-", "workload.jobs=20", "hydra.run.dir=pik", stdin=file)
    assert "20 jobs of lublin_4000.swf on pik" in done.stdout, done.stderr
    with (root / "workloads/memory_bound.json").open() as file:
        done = hdsim("workload", "show", "-", "--platform", "eight_nodes", stdin=file)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["workload.path=-", "platform.path=-"], "workload.path: expected - (standard input) for the platform or for"),
        (["-m", "workload.path=-", "agent=fcfs,sjf"], "workload.path: expected a file, which all runs of a sweep can"),
        (["workload.path=-"], "-: expected at least one job, got an empty trace"),
        (["workload.path=mime.swf"], "got 'mime.swf' (did you mean 'mine.swf'?)"),
        (["agent.path=agnet.py"], "found no file 'agnet.py' (did you mean 'agent.py'?)"),
    ],
)
def test_mistakes(hdsim: Any, tmp_path: Path, overrides: list[str], message: str) -> None:
    (tmp_path / "mine.swf").write_text("")
    (tmp_path / "agent.py").write_text("")
    with (tmp_path / "mine.swf").open() as file:
        done = hdsim("run", *overrides, stdin=file)
    assert done.returncode == 2 and message in done.stderr and len(done.stderr.splitlines()) == 1


def test_a_training_from_standard_input_does_not_go_on(tmp_path: Path) -> None:
    from hdsim.results.run_directory.inputs import changed_inputs

    (change,) = changed_inputs([{"kind": "workload", "path": "-", "sha256": "0"}], {})
    assert str(change) == "workload '-' (standard input, which cannot be read again)"


def test_an_empty_text_is_no_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables that other commands write into the working directory change no run of a site, whose `down` is empty."""
    from hdsim.results.run_directory.inputs import changed_inputs, input_files

    (tmp_path / "compare.csv").write_text("a\n1\n")
    monkeypatch.chdir(tmp_path)
    config = {"site": {"down": "", "nodes": ["", "compare.csv"]}}
    assert list(input_files(config)) == [("site.nodes", Path("compare.csv"))]
    assert changed_inputs([], {"site": {"down": ""}}) == []
