"""`hdsim rerun`: equal runs are told identical, any other names what differs, and nothing unknown is executed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hdsim.runs.rerun import Original

Hdsim = Callable[..., "subprocess.CompletedProcess[str]"]
SMALL = ("platform=teaching", "workload.jobs=20")
TRAINING = (
    "workload.jobs=400",
    "train.steps=256",
    "train.evaluate_every=128",
    "train.checkpoint_every=128",
    "train.validation=1",
    "train.test=1",
    "env.jobs=20",
    "agent.num_envs=2",
    "agent.num_steps=16",
    "platform=teaching",
    "train.tensorboard=false",
)
MINE = """
from hdsim.agents.classic import ClassicAgent
from helper import POLICY


class Mine(ClassicAgent):
    def __init__(self):
        super().__init__(job_policy=POLICY, backfill="easy")
"""


def made(hdsim: Hdsim, *args: object, **options: object) -> None:
    done = hdsim(*args, **options)
    assert done.returncode == 0, done.stderr


def change(run: Path, key: str, **entries: object) -> None:
    """Changes entries of an object in a manifest."""
    manifest = json.loads((run / "manifest.json").read_text())
    manifest[key] |= entries
    (run / "manifest.json").write_text(json.dumps(manifest))


def assert_identical(rerun: subprocess.CompletedProcess[str], *runs: Path, name: str = "jobs.csv") -> None:
    """The repetition and an independent comparison of bytes agree."""
    assert rerun.returncode == 0, rerun.stdout + rerun.stderr
    assert f"{name} " in rerun.stdout and "files are identical" in rerun.stdout
    first, second = (run / name for run in runs)
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize(
    ("command", "overrides", "name"),
    [
        ("run", (*SMALL, "contention=fair_share", "network=fluid", "agent=easy-saf"), "jobs.csv"),
        ("run", ("platform=teaching", "workload=lublin", "workload.generate.jobs=200", "agent=random"), "outages.csv"),
        ("bsp share", ("gangs=2", "supersteps=10", "controller=static_window"), "gangs.csv"),
        ("bsp run", ("supersteps=20",), "supersteps.csv"),
    ],
)
@pytest.mark.ci
def test_equal_runs_are_told_identical(
    command: str, overrides: tuple[str, ...], name: str, hdsim: Hdsim, tmp_path: Path
) -> None:
    failing = ("failures=exponential",) if name == "outages.csv" else ()
    made(hdsim, *command.split(), *overrides, *failing, "hydra.run.dir=a/run")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert_identical(hdsim("rerun", "../a/run", cwd=elsewhere), tmp_path / "a/run", tmp_path / "a/run-rerun", name=name)


@pytest.mark.requires("torch")
def test_a_training_is_repeated_with_its_checkpoints(hdsim: Hdsim, tmp_path: Path) -> None:
    made(hdsim, "train", *TRAINING, "hydra.run.dir=run")
    done = hdsim("rerun", "run", "-o", "again")
    assert_identical(done, tmp_path / "run", tmp_path / "again", name="evaluation.csv")
    for name in ("best.safetensors", "final.safetensors", "model_card.md"):
        assert f"checkpoints/{name} " in done.stdout
        assert (tmp_path / "again/checkpoints" / name).read_bytes() == (
            tmp_path / "run/checkpoints" / name
        ).read_bytes()
    (tmp_path / "run/checkpoints/earlier.safetensors").write_bytes(b"")
    run = Original.read(tmp_path / "run", {})
    assert dict(run.compare(tmp_path / "again"))["checkpoints/earlier.safetensors"] == "is not written now"


@pytest.mark.ci
def test_a_sweep(hdsim: Hdsim, tmp_path: Path) -> None:
    made(hdsim, "run", "-m", *SMALL, "agent=fcfs,random", "seed=1,2", "hydra.sweep.dir=sweep")
    done = hdsim("rerun", "sweep")
    assert done.returncode == 0 and done.stdout.endswith("\n4 of 4 runs have identical results, 0 differ\n")
    for run in (path.parent for path in tmp_path.glob("sweep/*/manifest.json")):
        again = tmp_path / "sweep-rerun" / run.name / "jobs.csv"
        assert again.read_bytes() == (run / "jobs.csv").read_bytes()
    with (tmp_path / "sweep/agent=fcfs,seed=2/jobs.csv").open("a") as file:
        file.write("\n")
    done = hdsim("rerun", "sweep", "-o", "again")
    assert done.returncode == 1 and done.stdout.endswith("\n3 of 4 runs have identical results, 1 differ\n")
    change(tmp_path / "sweep/agent=random,seed=1", "config", agent={"path": "gone.py"})
    done = hdsim("rerun", "sweep", "-o", "third")
    assert done.returncode == 2 and done.stderr.count("hdsim: error: ") == 1 and "gone.py" in done.stderr
    assert done.stdout.endswith("\n2 of 4 runs have identical results, 1 differ, 1 cannot be repeated\n")


@pytest.mark.ci
def test_files_of_a_run_of_a_sweep_are_found_from_anywhere_and_where_they_have_moved(
    hdsim: Hdsim, tmp_path: Path, root: Path
) -> None:
    old, new = tmp_path / "old place", tmp_path / "new"
    old.mkdir()
    (old / "mine.py").write_text(MINE)
    (old / "helper.py").write_text("POLICY = 'first'\n")
    shutil.copy(root / "workloads/even_1000.swf", old / "my trace.swf")
    trace = "workload.path=my trace.swf"
    made(hdsim, "run", "-m", *SMALL, trace, "agent.path=mine.py", "seed=1,2", "hydra.sweep.dir=sweep", cwd=old)
    (run,) = (path.parent for path in old.glob("sweep/*seed=2*/manifest.json"))
    again = old / "sweep-rerun" / run.name
    assert_identical(hdsim("rerun", run), run, again)
    assert not list(old.glob("sweep/*rerun*"))  # which comparisons of the sweep would take for a run

    old.rename(new)
    run = new / run.relative_to(old)
    lost = hdsim("rerun", run)
    assert lost.returncode == 2
    for name in ("my trace.swf", "mine.py", "helper.py"):
        assert f"{old / name}' SHA-256 " in lost.stderr
    assert_identical(hdsim("rerun", run, "--input", f"{old}={new}", "-o", "again"), run, tmp_path / "again")
    wrong = hdsim("rerun", run, "--input", f"nothing={new}")
    assert wrong.returncode == 2 and "--input: expected one of" in wrong.stderr


@pytest.mark.parametrize("changed", ["mine.py", "helper.py", "trace.swf"])
@pytest.mark.ci
def test_changed_inputs_are_told_before_they_are_executed(changed: str, hdsim: Hdsim, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "helper.py").write_text("POLICY = 'first'\n")
    lines = [f"{job} {job} -1 {50 - job} 1 -1 -1 1 60 -1 1 1 1 1 1 1 -1 -1\n" for job in range(1, 20)]
    (tmp_path / "trace.swf").write_text("".join(lines))
    made(hdsim, "run", *SMALL, "workload.path=trace.swf", "agent.path=mine.py", "hydra.run.dir=run")
    evil = "from pathlib import Path\nPath('executed').touch()\nPOLICY = 'smallest'\n"
    texts = {"mine.py": evil + MINE, "helper.py": evil, "trace.swf": "".join(lines).replace(" 40 1", " 44 1")}
    (tmp_path / changed).write_text(texts[changed])
    refused = hdsim("rerun", "run")
    assert refused.returncode == 2
    assert changed in refused.stderr and refused.stderr.count("SHA-256") == 2 and "then" in refused.stderr
    assert not (tmp_path / "executed").exists() and not (tmp_path / "run-rerun").exists()

    accepted = hdsim("rerun", "run", "--accept-changes")
    assert changed in accepted.stdout.partition("what differs")[2]
    if changed == "trace.swf":
        assert accepted.returncode == 1
        assert "line 11 (job_id 10): execution_time 60.000000 then, 66.000000 now" in accepted.stdout
    else:
        assert (tmp_path / "executed").exists()


@pytest.mark.ci
def test_a_difference_names_file_job_and_software(hdsim: Hdsim, tmp_path: Path) -> None:
    made(hdsim, "run", *SMALL, "hydra.run.dir=run")
    jobs = tmp_path / "run/jobs.csv"
    lines = jobs.read_text().splitlines(keepends=True)
    lines[7] = lines[7].replace("COMPLETED_SUCCESSFULLY", "COMPLETED_FAILED")
    jobs.write_text("".join(lines))
    change(tmp_path / "run", "versions", numpy="1.0.0", gone="3")
    change(tmp_path / "run", "machine", cpu="Z80")
    done = hdsim("rerun", "run")
    assert done.returncode == 1
    told = [
        "line 8 (job_id 8): final_state COMPLETED_FAILED then, COMPLETED_SUCCESSFULLY now",
        "numpy: 1.0.0 then",
        "gone: 3 then, none now",
        "cpu: Z80 then",
        "1 of ",
    ]
    assert all(text in done.stdout for text in told), done.stdout


@pytest.mark.ci
def test_differences_of_files_that_are_no_table_are_told(hdsim: Hdsim, tmp_path: Path) -> None:
    made(hdsim, "run", *SMALL, "hydra.run.dir=run")
    jobs = tmp_path / "run/jobs.csv"
    jobs.write_text(jobs.read_text() + "x" * 200_000 + ",1\n")
    # Bytes in the name of the directory that are no UTF-8.
    again = os.fsdecode(b"again\x80")
    done = hdsim("rerun", "run", "-o", again, errors="replace")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "jobs.csv" in done.stdout and "nothing now" in done.stdout
    command = json.loads((tmp_path / again / "manifest.json").read_text())["command"]
    assert command[-1] == "again?"


def test_a_bundled_trace_that_has_changed_is_told(hdsim: Hdsim, tmp_path: Path) -> None:
    made(hdsim, "run", *SMALL, "hydra.run.dir=run")
    manifest = json.loads((tmp_path / "run/manifest.json").read_text())
    entry = next(entry for entry in manifest["inputs"] if entry["kind"] == "workload")
    entry |= {"path": "/elsewhere/lublin_4000.swf", "sha256": "0" * 64}
    (tmp_path / "run/manifest.json").write_text(json.dumps(manifest))
    done = hdsim("rerun", "run")
    assert done.returncode == 2
    assert f"lublin_4000.swf' SHA-256 {'0' * 64} then, SHA-256 " in done.stderr


@pytest.mark.ci
def test_what_cannot_be_repeated(hdsim: Hdsim, tmp_path: Path) -> None:
    made(hdsim, "run", *SMALL, "hydra.run.dir=run")
    made(hdsim, "run", *SMALL, "seed=2", "hydra.run.dir=other")
    before = (tmp_path / "other/manifest.json").read_bytes()
    for output in ("other", "run"):
        taken = hdsim("rerun", "run", "-o", output)
        assert taken.returncode == 2 and "expected a directory without another run" in taken.stderr
    assert (tmp_path / "other/manifest.json").read_bytes() == before
    text = (tmp_path / "run/manifest.json").read_text()
    for old, new, told in (
        ('"kind": "run"', '"kind": null', "expected a run whose manifest names the subcommand"),
        ('"kind": "run"', '"kind": "os"', "expected a run of run, train, bsp run"),
        ('"status": "finished"', '"status": "interrupted"', "expected a finished run, got one that is interrupted"),
    ):
        (tmp_path / "run/manifest.json").write_text(text.replace(old, new))
        done = hdsim("rerun", "run")
        assert done.returncode == 2 and told in done.stderr


@pytest.mark.nightly
def test_ten_runs_of_the_own_studies_are_repeated(hdsim: Hdsim, tmp_path: Path) -> None:
    replays = ("run", "hydra.mode=RUN", "workload.jobs=400")
    studies = [
        *((*replays, "experiment=backfilling", f"agent={agent}") for agent in ("fcfs", "easy", "conservative")),
        *((*replays, "experiment=consolidation", f"agent.core_policy={policy}") for policy in ("pack", "spread")),
        *((*replays, "experiment=policy_pairs", f"agent.core_policy={policy}") for policy in ("random", "low_power")),
        *(
            ("bsp", "share", "hydra.mode=RUN", "experiment=gangs", "supersteps=20", f"seed={seed}")
            for seed in (1, 2, 3)
        ),
    ]
    for number, study in enumerate(studies):
        made(hdsim, *study, f"hydra.run.dir=run{number}")
        assert_identical(hdsim("rerun", f"run{number}"), tmp_path / f"run{number}", tmp_path / f"run{number}-rerun")


def test_folders_of_modules_are_on_the_path_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("first/a.py", "second/b.py", "first/c.py", "second/d.py", "first/package/__init__.py")
    (tmp_path / "first/package").mkdir(parents=True)
    (tmp_path / "first/package/__init__.py").touch()
    inputs = [{"kind": "module", "path": str(tmp_path / name), "sha256": ""} for name in names]
    monkeypatch.setattr(sys, "path", ["known"])
    Original(tmp_path, {"inputs": inputs}, {}).import_modules()
    # The folder of the last module is the first, as if all were added one by one.
    assert sys.path == [str(tmp_path / "first"), str(tmp_path / "second"), "known"]
