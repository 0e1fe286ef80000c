"""No input brings a traceback, a hang or more than 1 GB: a short run of the fuzzer, and cases that once failed."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from fuzz import kinds, mutate
from tiers import ALL

Run = Callable[..., "subprocess.CompletedProcess[str]"]

#: Cases of the short run, whose seed is fixed: `make fuzz` draws others.
CASES = 300 if ALL else 100


@pytest.mark.ci
def test_a_short_run_of_the_fuzzer_finds_nothing(root: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fuzz", "--seed", "1", "--cases", str(CASES), "--workers", "1", "--keep", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{root / 'tests'}"},
        cwd=root,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{CASES} cases, 0 tracebacks, 0 hangs, 0 over 1 GB, 0 wrong, 0 crashes" in done.stdout


def test_a_case_repeats(tmp_path: Path) -> None:
    def files(folder: Path) -> dict[str, bytes]:
        folder.mkdir()
        words = kinds.swf_text(Random("7:3")).encode() + json.dumps(kinds.batsim_tree(Random("7:3"))).encode()
        mutated = [mutate.dumps(mutate.mutated(Random(f"7:{n}"), kinds.platform_tree(Random(n)))) for n in range(50)]
        (folder / "x").write_bytes(words + "".join(mutated).encode())
        return {path.name: path.read_bytes() for path in folder.iterdir()}

    assert files(tmp_path / "a") == files(tmp_path / "b")


def refused(done: subprocess.CompletedProcess[str], message: str) -> None:
    assert done.returncode == 2, done.stderr[-2000:]
    assert "Traceback" not in done.stderr and done.stderr.count("hdsim: error:") == 1, done.stderr[-2000:]
    assert message in done.stderr, done.stderr[-2000:]


JOB = {"id": 1, "subtime": 0, "res": 1, "profile": "p"}
PROFILES = {"p": {"type": "delay", "delay": 1}}


def workload(**changes: Any) -> str:
    return json.dumps({"jobs": [JOB | changes], "profiles": PROFILES})


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("w.json", '{"a":' + "[" * 99_999, "nested too deeply"),
        ("w.json", '{"jobs": [' + "9" * 5000 + "]}", "expected JSON: Exceeds the limit (4300 digits)"),
        ("w.json", workload(id="\ud800"), r"got the half \ud800 of one"),
        ("p.json", '{"name": "\\udc00", "clusters": []}', r"got the half \udc00 of one"),
    ],
)
def test_json_that_no_file_should_hold(hdsim: Run, tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    refused(hdsim("workload" if name == "w.json" else "platform", "validate", name), message)


def test_a_job_without_cores_or_with_endless_memory_is_refused(hdsim: Run, tmp_path: Path) -> None:
    profile = {"type": "parallel_homogeneous_total", "cpu": 1e9, "com": 0}
    text = json.dumps({"jobs": [JOB | {"res": 0}], "profiles": {"p": profile}})
    (tmp_path / "w.json").write_text(text)
    refused(hdsim("workload", "validate", "w.json"), "jobs[0].res: expected at least 1, got 0")
    (tmp_path / "w.swf").write_text(f"1 0 -1 1 1 -1 -1 1 1 {10**300} 1 1 1 1 1 1 -1 -1\n")
    refused(hdsim("workload", "validate", "w.swf"), "field 10 (requested memory): expected at most 1e+12 MB")


def test_ids_and_users_beyond_64_bits_are_kept(hdsim: Run, tmp_path: Path) -> None:
    (tmp_path / "w.json").write_text(workload(id=2**64, user=2**64 - 1))
    done = hdsim("run", "platform=teaching", "workload.path=w.json", "hydra.run.dir=r")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "r/jobs.csv").read_text().splitlines()[1].startswith(f"{2**64},")


@pytest.mark.parametrize("unit", [b"\n", b";\n", b"[", b"1 ", b"\x00"])
def test_a_small_file_that_unpacks_to_a_gigabyte_is_refused(hdsim: Run, tmp_path: Path, unit: bytes) -> None:
    (tmp_path / "w.swf.gz").write_bytes(mutate.bomb(Random(1), unit))
    refused(hdsim("workload", "validate", "w.swf.gz"), "expected at most 32 MB in a gzip file of")
    (tmp_path / "w.json.gz").write_bytes(gzip.compress(workload().encode()))
    assert hdsim("workload", "validate", "w.json.gz").returncode == 0


def test_platforms_that_take_all_memory_are_refused(hdsim: Run, tmp_path: Path) -> None:
    tree = kinds.platform_tree(Random(1))
    for number, message in (
        (10**7, "clusters: expected at most 10000000 cores"),
        (600_000, "at most 1000000 processors"),
    ):
        tree["clusters"][1]["nodes"][0]["number"] = number
        (tmp_path / "p.json").write_text(json.dumps(tree))
        refused(hdsim("platform", "validate", "p.json"), message)
    tree["types"]["processor"]["p"]["cores"] = 10**400
    (tmp_path / "p.json").write_text(json.dumps(tree))
    refused(hdsim("platform", "validate", "p.json"), "cores: expected a whole number of at least 1")
    tree["types"]["processor"]["p"]["cores"] = 2
    tree["clusters"][1]["nodes"][0]["number"] = 150_000
    (tmp_path / "p.json").write_text(json.dumps(tree))
    refused(hdsim("platform", "convert", "p.json", "-o", "p.xml"), "expected at most 500,000 cores and pairs")


@pytest.fixture
def finished(hdsim: Run, tmp_path: Path) -> Path:
    (tmp_path / "w.swf").write_text(kinds.swf_text(Random(3), 4))
    options = ("agent=easy", "contention=threshold", "workload.memory_bandwidth=24", "hydra.run.dir=r")
    done = hdsim("run", "platform=teaching", "workload.path=w.swf", *options)
    assert done.returncode == 0, done.stderr
    return tmp_path / "r"


@pytest.mark.ci
def test_damaged_run_directories(hdsim: Run, finished: Path) -> None:
    jobs = (finished / "jobs.csv").read_text()
    rows = (finished / "job_details.csv").read_text().splitlines(keepends=True)
    cases: list[tuple[str, bytes, str]] = [
        ("metrics.json", b'{"makespan": "long"}', 'makespan: expected a number or null, got "long"'),
        ("metrics.json", b'{"makespan": %s}' % (b"9" * 400), "makespan: expected a number or null"),
        ("metrics.json", b"[" * 99_999, "nested too deeply"),
        ("jobs.csv", b"\xff\xfe", "expected text in UTF-8, got the byte 0xff at offset 0"),
        ("jobs.csv", b'a,"' + b"x" * 200_000, "expected CSV: field larger than field limit"),
        ("job_details.csv", "".join(rows[:-1]).encode(), "expected the jobs of jobs.csv, in the same order"),
        ("jobs.csv", jobs.replace(",10.000000,", ",,", 1).encode(), "the other times of a job that has started"),
        ("job_details.csv", b"job_id,nodes\n", "expected the columns job_id,supersteps,"),
        (
            "manifest.json",
            b'{"status": "finished", "config": {}, "inputs": [{"kind": 3}]}',
            "inputs[0]: expected an obj",
        ),
        ("oversubscription.csv", b"processor,start,end\n4,0,1\n", "processor: expected whole numbers from 0 to 3"),
        ("actions.csv", b"", "expected rows with ascending numbers in the column step"),
        ("progress.csv", b"step,loss\n1,x\n", "loss: expected numbers"),
        (
            "manifest.json",
            b'{"status": "finished", "config": {}, "workload": 3}',
            "workload: expected an object, got 3",
        ),
    ]
    for name, content, message in cases:
        copy = finished.with_name("copy")
        shutil.copytree(finished, copy)
        (copy / name).write_bytes(content)
        refused(hdsim("report", "copy"), message)
        shutil.rmtree(copy)


#: Each list has nine times the one before.
MULTIPLIED = "\n".join(
    [f"a0: &a0 [{','.join('x' * 9)}]", *(f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 9))]
)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("platform=[1,2]", "platform"),
        ("agent.job_policy=[1,2]", "agent.job_policy: expected one of"),
        ("agent.core_policy={a:1}", "agent.core_policy: expected one of"),
        ("backend=[]", "backend"),
        ("+=x", "expected KEY=VALUE, got '+=x'"),
        ("hydra/hydra_logging={}", "hydra/hydra_logging"),
        ("+hydra.verbose={a:1}", "verbose"),
        ("~hydra/launcher -m", "hydra/launcher: expected a launcher such as basic or joblib, got none"),
        ("~hydra", "hydra"),
        ("hydra.run.dir=[1]", "hydra.run.dir"),
        ("failures=trace failures.file=/proc/self/mem", "/proc/self/mem: expected a readable file of outages"),
        ("train.steps=inf", "train"),
        ("agent.commit_head=x", "agent.commit_head: expected true or false, got 'x'"),
        ("agent.backfill_order=[]", "agent.backfill_order: expected a text or null, got []"),
        ("seed=9223372036854775808", "seed: expected a whole number from 0 to 2^63 - 1"),
        ("agent._target_=..x.Y", "agent._target_: expected 'package.Class', got '..x.Y'"),
    ],
)
def test_overrides_that_hydra_does_not_expect(hdsim: Run, override: str, message: str) -> None:
    refused(hdsim("run", "platform=teaching", "workload.jobs=2", "hydra.run.dir=r", *override.split()), message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1", "own.yaml:1:"),
        ("{a: 1, a: 2}", "duplicate key a"),
        ("!!python/object/apply:os.system [echo]", "could not determine a constructor"),
        ("[" * 3000, "Recursion"),
        (MULTIPLIED, "own.yaml: expected at most 100,000 values, got more by aliases"),
        ("a: &a [*a]", "own.yaml: expected at most 100,000 values, got more by aliases"),
    ],
)
def test_yaml_of_the_users_own(hdsim: Run, tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "c" / "agent").mkdir(parents=True)
    (tmp_path / "c" / "agent" / "own.yaml").write_text(text)
    refused(hdsim("run", "-cd", "c", "agent=own"), message)


@pytest.mark.parametrize(
    ("text", "message"), [("def (", "SyntaxError"), ("1 / 0", "ZeroDivisionError: division by zero")]
)
@pytest.mark.ci
def test_a_module_that_cannot_be_imported(hdsim: Run, tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "own_module.py").write_text(text)
    done = hdsim("run", "agent._target_=own_module.Own", cold=True)
    refused(done, f"agent._target_: cannot import 'own_module': {message}")


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ("[" * 30_000 + "]" * 30_000, "expected a card with the weights of a network"),
        ("[1" + "0" * 400 + "]", "weights: expected a list for each rule, such as easy, got [1000"),
        ('{"strict": [1' + "0" * 400 + "]}", "weights.strict: expected a list of 756 weights, got [1000"),
        (
            f'{{"strict": [{"1, " * 755}1{"0" * 400}]}}',
            "weights.strict: expected a number from -1e+100 to 1e+100 each, got 1000",
        ),
    ],
)
def test_weights_that_no_training_wrote(hdsim: Run, tmp_path: Path, weights: str, message: str) -> None:
    (tmp_path / "w.json").write_text(f'{{"weights": {weights}}}')
    done = hdsim("run", "platform=teaching", "workload.path=even_1000", "workload.jobs=2", "agent.job_policy=w.json")
    refused(done, f"w.json: {message}")


def test_manifests_that_no_run_wrote(hdsim: Run, finished: Path) -> None:
    manifest = json.loads((finished / "manifest.json").read_text())
    cases = [
        ({"agent": None}, "agent: expected"),
        ({"platform": 3}, "platform: expected"),
        ({"seed": "x"}, "seed: expe"),
    ]
    for changed, message in cases:
        wrong = {**manifest, "config": {**manifest["config"], **changed}}
        (finished / "manifest.json").write_text(json.dumps(wrong))
        refused(hdsim("rerun", "r", "-o", "again"), message)


def test_pipes_in_the_place_of_files_are_not_waited_for(hdsim: Run, finished: Path) -> None:
    shutil.copytree(finished, finished.with_name("s"))
    for name in ("hydra.yaml", "overrides.yaml"):
        path = finished / ".hydra" / name
        path.unlink()
        os.mkfifo(path)
    done = hdsim("compare", "r", "s")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("workload", "generate", "-o", "o.swf", "--jobs", "5", "--seed", "-1"),
        ("workload", "generate", "-o", "o.swf", "--jobs", "10000000000000"),
        ("workload", "convert", "even_1000", "-o", "o.swf", "--seed", "-1"),
        ("batsim-serve", "-p", "teaching", "-w", "even_1000", "--timeout", "nan"),
    ],
)
def test_arguments_out_of_range(hdsim: Run, arguments: tuple[str, ...]) -> None:
    refused(hdsim(*arguments), "expected")


def test_an_agent_that_crashes_shows_its_traceback_and_keeps_what_was_done(hdsim: Run, tmp_path: Path) -> None:
    (tmp_path / "w.swf").write_text(kinds.swf_text(Random(3), 8))
    (tmp_path / "own.py").write_text(
        "from hdsim.scheduling.agent import Agent\n\n\nclass Own(Agent):\n    def decide(self, cluster):\n"
        "        for job in list(cluster.queue):\n            cluster.start(job)\n"
        "        if cluster.now > 0:\n            open('nothing')\n"
    )
    done = hdsim("run", "platform=teaching", "workload.path=w.swf", "agent.path=own.py", "hydra.run.dir=r")
    assert done.returncode == 1
    assert 'own.py", line 9, in decide' in done.stderr and "s of simulated time, job " in done.stderr
    assert "site-packages" not in done.stderr
    manifest = json.loads((tmp_path / "r" / "manifest.json").read_text())
    assert manifest["status"] == "failed" and "own.py" in manifest["traceback"]
    assert (tmp_path / "r" / "jobs.csv").is_file()


@pytest.mark.requires("torch")
@pytest.mark.parametrize("value", ["{", "[1", "2026-99-99", "maybe"])
def test_what_is_no_flag_for_resume(hdsim: Run, tmp_path: Path, value: str) -> None:
    refused(hdsim("train", f"resume={value}"), f"resume: expected true or false, got '{value}'")
    (tmp_path / "r/.hydra").mkdir(parents=True)
    (tmp_path / "r/.hydra/overrides.yaml").write_text(f"- {value}: {value}\n" + "[" * 3000)
    refused(hdsim("train", "resume=true", "hydra.run.dir=r"), "overrides.yaml: expected YAML")


@pytest.mark.requires("torch")
def test_hostile_checkpoints(hdsim: Run, root: Path, tmp_path: Path) -> None:
    """Settings, shapes and weights of a file that a user did not make."""
    source = root / "agents/checkpoints/gaia_saf-1.safetensors"
    data = source.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header, arrays = json.loads(data[8 : 8 + length]), data[8 + length :]
    tree = json.loads(header["__metadata__"]["hdsim"])["tree"]
    name = next(key for key in header if key.endswith("bias"))

    def write(header: dict[str, Any], tree: Any, arrays: bytes = arrays) -> None:
        header = header | {"__metadata__": {"hdsim": json.dumps(tree)}}
        packed = json.dumps(header).encode()
        (tmp_path / "c.safetensors").write_bytes(struct.pack("<Q", len(packed)) + packed + arrays)

    def run() -> subprocess.CompletedProcess[str]:
        agent = {"PPOAgent": "ppo", "DQNAgent": "dqn", "ImitationAgent": "imitation"}[tree["agent"]]
        return hdsim("run", "workload.jobs=2", f"agent={agent}", "agent.checkpoint=c.safetensors", "hydra.run.dir=r")

    for change, message in (
        ({"settings": tree["settings"] | {"kernel": [10**9]}}, "expected a network of at most 20,000,000 weights"),
        ({"settings": tree["settings"] | {"kernel": "x"}}, "agent.kernel: expected a list of whole numbers >= 1"),
        ({"settings": 3}, "does not fit: AttributeError"),
        ({"task": {"action": []}}, "'c.safetensors'"),
        ({"observation": [[1]]}, "does not fit: ValueError: shapes"),
        ({"weights": {}}, "does not fit: KeyError: 'network'"),
        ({"weights": {"$array": "nothing"}}, "does not fit: KeyError: 'nothing'"),
    ):
        write(header, tree | change)
        refused(run(), message)
    write(header | {name: header[name] | {"shape": [1, *header[name]["shape"]]}}, tree)
    refused(run(), "does not fit: RuntimeError")
    write(header, tree, b"\x00\x00\xc0\x7f" * (len(arrays) // 4))
    refused(run(), "are NaN or infinite")
    write(header, {"tree": tree, "sha256": "0" * 64})
    refused(run(), "expected a checkpoint as hdsim wrote it")
