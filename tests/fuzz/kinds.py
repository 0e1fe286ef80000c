"""The kinds of cases: which files and command lines each one makes, and what must hold once they have run."""

from __future__ import annotations

import gzip
import json
import math
import shutil
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

from fuzz import mutate
from fuzz.mutate import Tree

Command = list[str]


@dataclass(frozen=True)
class Finished:
    """How a command of a case ended.

    Attributes:
        command: Its arguments.
        status: Exit status.
        out: What it wrote to stdout.
        err: What it wrote to stderr.
    """

    command: Command
    status: int
    out: str
    err: str


@dataclass(frozen=True)
class Kind:
    """A kind of cases.

    Attributes:
        name: Short name.
        weight: Share of the cases.
        make: Writes the files of a case into the working directory; returns the commands to run one after the other.
        check: Says what is wrong with the results, None if nothing is.
        torch: Whether the commands need PyTorch.
    """

    name: str
    weight: float
    make: Callable[[Random, Path], list[Command]]
    check: Callable[[Sequence[Finished]], str | None] = lambda _: None
    torch: bool = False


# ---- workloads

_SWF_HEADER = (
    "; Version: 2.2",
    "; MaxProcs: 16",
    "; MaxJobs: 9",
    "; UnixStartTime: 0",
    "; Note: made up",
    ";",
    "; é: ü",
)


def swf_text(rng: Random, jobs: int | None = None) -> str:
    """A valid trace."""
    lines = [line for line in _SWF_HEADER if rng.random() < 0.7]
    time = 0
    for job in range(1, (rng.choice((1, 2, 5, 12)) if jobs is None else jobs) + 1):
        time += rng.choice((0, 0, 1, 7, 100, 86400))
        cores, run = rng.choice((1, 1, 2, 4, 8)), rng.choice((0, 1, 10, 250, 3600))
        lines.append(
            f"{job} {time} -1 {run} {cores} -1 -1 {cores} "
            f"{run * rng.choice((1, 2, 10))} {rng.choice((-1, 0, 1000, 10**6))} "
            f"{rng.choice((1, 0, 5, -1))} {rng.randint(-1, 5)} {rng.randint(-1, 3)} -1 {rng.choice((-1, 1))} -1 -1 -1"
        )
    return "\n".join(lines) + "\n"


def batsim_tree(rng: Random, jobs: int | None = None) -> Tree:
    """A valid Batsim workload with profiles of all types."""
    patterns = ("ring", "h_relation", "all_to_all", "halo_2d", [[0, 1, 1e6]])
    profiles: dict[str, Any] = {
        "delay": {"type": "delay", "delay": 10.5, "mem": 100},
        "same": {"type": "parallel_homogeneous", "cpu": 2e11, "com": 0, "req_time": 50, "req_ops": 4e11, "mem_bw": 4.0},
        "total": {"type": "parallel_homogeneous_total", "cpu": 2e11, "com": 1e6},
        "matrix": {"type": "parallel", "cpu": [1e10, 2e10], "com": [0, 1e6, 1e6, 0]},
        "steps": {"type": "composed", "seq": ["delay", "same"], "repeat": 2},
        "again": {"type": "sequence", "seq": ["steps", "delay"]},
        "bsp": {
            "type": "bsp",
            "supersteps": 3,
            "cpu": 1e10,
            "com": 1e7,
            "l": 1e-4,
            "g": 1e-10,
            "pattern": rng.choice(patterns),
            "mem_bw": 1,
            "req_time": 99,
            "ret": 0,
        },
    }
    made, time = [], 0.0
    for number in range(rng.choice((1, 2, 6)) if jobs is None else jobs):
        time += rng.choice((0.0, 1.0, 12.25))
        name = rng.choice(list(profiles))
        job: dict[str, Any] = {"id": rng.choice((number, f"j{number}")), "subtime": time, "profile": name}
        job["res"] = 2 if name == "matrix" else rng.choice((1, 2, 4))
        for key, value in (("walltime", 60), ("gpus", 0), ("user", 3), ("queue", "long"), ("note", {"a": 1})):
            if rng.random() < 0.2:
                job[key] = value
        if rng.random() < 0.15:
            job["kubernetes"] = {
                "cpu": "500m",
                "ephemeral-storage": "1GiB",
                "priority": 10,
                "nodeSelector": {"disk": "ssd"},
                "affinity": {
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [
                                {
                                    "matchExpressions": [
                                        {"key": "zone", "operator": rng.choice(("In", "Gt")), "values": ["1"]}
                                    ]
                                }
                            ]
                        }
                    }
                },
                "tolerations": [{"key": "dedicated", "operator": "Exists"}],
            }
        made.append(job)
    return {"nb_res": 16, "jobs": made, "profiles": profiles}


def _workload_commands(rng: Random, name: str) -> list[Command]:
    """Commands that read a workload file."""
    other = "out.json" if rng.random() < 0.5 else "out.swf"
    way = rng.random()
    if way < 0.3:
        return [["workload", "validate", name], ["workload", "show", name]]
    if way < 0.52:
        return [
            ["workload", "validate", name, "--platform", "teaching"],
            ["workload", "show", name, "--platform", "teaching"],
        ]
    if way < 0.66:
        return [["workload", "convert", name, "-o", other], ["workload", "show", other]]
    if way < 0.84:
        options = [] if rng.random() < 0.6 else _some_options(rng, _CONVERT_OPTIONS)
        return [["workload", "convert", name, "-o", other, "--platform", "teaching", *options]]
    if way < 0.95:
        words = ["batsim-serve", "-p", "teaching", "-w", name, "-e", "out/x", "--timeout", "0.05", "-s", "ipc://x.sock"]
        return [words if name.endswith(".json") else ["workload", "show", name]]
    if way < 0.96:
        return [["run", "platform=teaching", f"workload.path={name}", *_QUICK, "hydra.run.dir=r"], ["report", "r"]]
    options = [option for option in _RUN_OPTIONS if rng.random() < 0.15]
    return [["run", "platform=teaching", f"workload.path={name}", *options, "hydra.run.dir=r"]]


_QUICK = ("agent=easy", "contention=threshold")
_RUN_OPTIONS = (
    "agent=easy",
    "agent=conservative",
    "agent=shortest-low_power",
    "contention=threshold",
    "contention=fair_share",
    "network=fluid",
    "workload.walltime=requested",
    "workload.runtime=requested",
    "workload.bsp.supersteps=2",
    "workload.arrival_factor=0.5",
    "backend.batch_events=false",
    "backend.kill_at_walltime=true",
    "workload.strict=true",
)
_CONVERT_OPTIONS = {
    "--jobs": ("1", "0", "-1", "99999999999", "x"),
    "--start": ("0", "1", "-1", "99999999999999999999"),
    "--arrival-factor": ("2", "0", "-1", "nan", "inf", "1e308", "1e-320"),
    "--seed": ("3", "-1", "99999999999999999999", "x"),
    "--memory-bandwidth": ("draw", "none", "3", "-1", "nan", "x"),
    "--memory": ("none", "3", "-1", "inf", "1e300"),
    "--runtime": ("requested", "hdeeprm", "x"),
    "--supersteps": ("3", "2,5", "0", "5,2", "1e400", "", "1,2,3", "1e9", "nan"),
    "--communication": ("0.5", "0,1", "2", "nan"),
    "--pattern": ("ring", "nope", "ring,random", "", ","),
    "--imbalance": ("0.1", "1e300", "-1", "nan"),
    "--latency": ("0", "-1", "nan", "1e300"),
    "--bandwidth": ("1", "0", "nan", "1e-300", "inf"),
    "--to": ("swf", "json", "x"),
    "--strict": ("",),
}


def _some_options(rng: Random, options: dict[str, tuple[str, ...]]) -> Command:
    words: Command = []
    for name in rng.sample(list(options), rng.choice((1, 1, 2, 3))):
        words += (
            [name]
            if options[name] == ("",)
            else [name, rng.choice(options[name]) if rng.random() < 0.9 else _word(rng)]
        )
    return words


def _swf(rng: Random, folder: Path) -> list[Command]:
    text = swf_text(rng)
    if rng.random() < 0.9:
        lines = text.splitlines()
        first = next(n for n, line in enumerate(lines) if not line.startswith(";"))
        if rng.random() < 0.15:
            lines.insert(
                rng.randrange(len(lines) + 1),
                rng.choice((*mutate.TEXTS, ";" + "x" * 10**6, "; MaxProcs: 99999999999999999999999", "; a:" * 99)),
            )
            text = "\n".join(lines)
        else:
            text = "\n".join([*lines[:first], mutate.table(rng, "\n".join(lines[first:]), " ")])
    return _workload_commands(rng, _write(rng, folder, "w.swf", text.encode("utf-8", "surrogatepass")))


def _batsim_json(rng: Random, folder: Path) -> list[Command]:
    return _workload_commands(rng, _write(rng, folder, "w.json", mutate.json_bytes(rng, batsim_tree(rng))))


def _write(rng: Random, folder: Path, name: str, data: bytes) -> str:
    """Writes a file, seldom damaged or packed; returns its name."""
    way = rng.random()
    if way < 0.12:
        data = mutate.damaged(rng, data)
    elif way < 0.25:
        name += ".gz"
        data = mutate.packed(rng, data)
    elif way < 0.27:
        data = gzip.compress(data)
    (folder / name).write_bytes(data)
    return name


def _consistent(done: Sequence[Finished]) -> str | None:
    """A file without a fault can be shown; what was converted can be read; a run that was done has its results."""
    for first, then in pairwise(done):
        # Only with a platform is it known what the operations of a JSON profile take.
        validated = first.command[1:2] == ["validate"] and (
            first.command[0] == "platform" or "--platform" in first.command
        )
        if validated and first.status == 0 and then.status != 0:
            return "validate finds no fault, and yet it cannot be used"
        if first.command[1:2] == ["convert"] and first.status == 0 and then.status != 0:
            return "what convert wrote cannot be read"
    for each in done:
        if each.command[0] == "run" and each.status == 0 and (wrong := _results(Path("r"))):
            return wrong
    return None


def _results(directory: Path) -> str | None:
    """What is wrong with the results of a finished run."""
    if not (directory / "manifest.json").is_file():
        return None
    manifest = json.loads((directory / "manifest.json").read_text(encoding="utf-8"))
    if manifest["status"] != "finished":
        return f"status {manifest['status']} with exit status 0"
    metrics = json.loads((directory / "metrics.json").read_text(encoding="utf-8"))
    for name in ("makespan", "utilization", "mean_waiting_time", "energy_joules"):
        value = metrics.get(name)
        if name == "energy_joules" and value is None:
            continue  # of nodes without core ids
        none_started = metrics["jobs_completed"] + metrics["jobs_failed"] + metrics["jobs_killed"] == 0
        if not (isinstance(value, int | float) and math.isfinite(value)) and not none_started:
            return f"{name} is {value}"
    rows = (directory / "jobs.csv").read_text(encoding="utf-8").count("\n") - 1
    # Jobs that a node's outage without an end leaves waiting have no row.
    if rows + metrics["jobs_unfinished"] < manifest["workload"]["jobs"]:
        return f"{rows} rows in jobs.csv for {manifest['workload']['jobs']} jobs"
    return None


# ---- platforms


def platform_tree(rng: Random) -> Tree:
    """A valid platform with its types inline."""
    few, memory = rng.choice((1, 3)), rng.choice((64, "32GB"))
    amounts: Tree = {}
    if rng.random() < 0.3:
        taint = {"key": "gpu", "value": "yes", "effect": rng.choice(("NoSchedule", "PreferNoSchedule"))}
        amounts = {"cpu": "3500m", "pods": 8, "ephemeral_storage": "10GB", "labels": {"zone": "1"}, "taints": [taint]}
    return {
        **({"kind": "quantities"} if amounts else {}),
        "name": "small",
        "_about": "made up",
        "clusters": [
            {
                "id": "a",
                "nodes": [{"type": "n", "number": few}, {"type": "g", "number": 1}],
                "local_links": {"type": "net", "latency": "5us"},
            },
            {"id": "b", "nodes": [{"type": "n", "number": 2}]},
        ],
        "global_links": {"type": "net", "latency": "20us"},
        "types": {
            "network": {"net": {"bandwidth": "10Gbps"}},
            "node": {
                "n": {
                    "processors": [{"type": "p", "number": 2}],
                    "memory": {"type": "ddr", "capacity": memory},
                    **amounts,
                },
                "g": {"processors": [{"type": "p", "number": 1}, {"type": "gpu", "number": 2}]},
            },
            "processor": {
                "p": {"cores": 2, "clock_rate": 2.5, "dpflops_per_cycle": 8, "mem_bw": 48, "llc_size": 16, "power": 80},
                "gpu": {"type": "GPU", "cores": 1, "clock_rate": 1, "dpflops_per_cycle": 1000, "power": 300},
            },
            "memory": {"ddr": {"latency": "90ns"}},
        },
    }


def _platform(rng: Random, folder: Path) -> list[Command]:
    tree = platform_tree(rng)
    types = []
    if rng.random() < 0.25:
        # The same types as libraries, one of which is changed.
        (folder / "t").mkdir()
        types = ["--types", "t"]
        for section, content in tree.pop("types").items():
            path = folder / "t" / f"{section}_types.json"
            path.write_bytes(mutate.json_bytes(rng, content) if rng.random() < 0.4 else json.dumps(content).encode())
    name = _write(rng, folder, "p.json", mutate.json_bytes(rng, tree))
    way = rng.random()
    if way < 0.5:
        return [["platform", "validate", name, *types], ["platform", "show", name, *types]]
    if way < 0.66:
        return [
            ["platform", "convert", name, "--to", "json", "-o", "out.json", *types],
            ["platform", "show", "out.json"],
        ]
    if way < 0.76:
        return [["platform", "convert", name, "--to", "simgrid", *types]]
    (folder / "w.swf").write_text(swf_text(rng, 3), encoding="utf-8")
    if way < 0.86:
        return [["workload", "show", "w.swf", "--platform", name]]
    if way < 0.95:
        return [["batsim-serve", "-p", name, "-w", "w.swf", "-e", "out/x", "--timeout", "0.05", "-s", "ipc://x.sock"]]
    given = [f"platform.path={name}", *(["platform.types=t"] if types else [])]
    return [["run", *given, "workload.path=w.swf", *_QUICK, "hydra.run.dir=r"]]


_XML = """<?xml version='1.0'?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1"><zone id="z" routing="Full">
<host id="master_host" speed="1Gf"/>
<host id="h0" speed="1Gf,500Mf" core="1" pstate="0">
<prop id="watt_per_state" value="10:100, 5:50"/><prop id="role" value="x"/></host>
<host id="h1" speed="2e9"/>
</zone></platform>
"""


def _xml(rng: Random, folder: Path) -> list[Command]:
    words = _XML
    for _ in range(rng.choice((0, 1, 1, 2))):
        way = rng.random()
        if way < 0.6:
            quoted = [n for n, char in enumerate(words) if char == '"']
            pick = rng.randrange(0, len(quoted) - 1, 2)
            words = words[: quoted[pick] + 1] + str(mutate.weird(rng)).replace('"', "") + words[quoted[pick + 1] :]
        elif way < 0.75:
            words = words.replace(
                rng.choice(("host", "zone", "speed", "id", "prop", "value", "platform")),
                rng.choice(("x", "cluster", "")),
            )
        elif way < 0.85:
            words = words.replace(
                '<host id="h1"',
                rng.choice(("<!ENTITY a 'b'>", "&x;", "<host " * 3000, "<a>" * 3000, "<!-- -->")) + '<host id="h1"',
            )
        else:
            words = words.replace("<platform", '<!DOCTYPE a [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]><platform', 1)
    (folder / "p.xml").write_bytes(mutate.text_bytes(rng, words))
    (folder / "w.json").write_text(json.dumps(batsim_tree(rng)), encoding="utf-8")
    events = [
        {"timestamp": 10, "type": "event_machine_unavailable", "resources": "0-1"},
        {"timestamp": 20.5, "type": "x", "note": 1},
    ]
    lines = b"\n".join(mutate.json_bytes(rng, event).replace(b"\n", b" ") for event in events)
    (folder / "e.json").write_bytes(lines)
    more = ["--events", "e.json"] if rng.random() < 0.5 else []
    more += ["-E"] if rng.random() < 0.3 else []
    return [
        ["batsim-serve", "-p", "p.xml", "-w", "w.json", "-e", "out/x", "--timeout", "0.05", "-s", "ipc://x.sock", *more]
    ]


# ---- command lines and configurations

#: Keys of the configuration by how a wrong value would be found.
_KEYS = (
    "seed",
    "platform",
    "platform.path",
    "platform.types",
    "workload",
    "workload.path",
    "workload.jobs",
    "workload.start",
    "workload.arrival_factor",
    "workload.memory_bandwidth",
    "workload.memory",
    "workload.runtime",
    "workload.walltime",
    "workload.strict",
    "workload.bsp",
    "workload.bsp.supersteps",
    "workload.bsp.communication",
    "workload.bsp.pattern",
    "workload.bsp.imbalance",
    "workload.bsp.latency",
    "workload.bsp.bandwidth",
    "backend",
    "backend.name",
    "platform.kind",
    "workload.cores_per_pod",
    "workload.generate",
    "workload.cluster",
    "backend.time_scale",
    "backend.clock",
    "backend.stop_when_idle",
    "backend.metrics_port",
    "backend.leader_election",
    "backend.kill_at_walltime",
    "backend.batch_events",
    "backend.executable",
    "backend.timeout",
    "agent",
    "agent.job_policy",
    "agent.core_policy",
    "agent.backfill",
    "agent.backfill_order",
    "agent.commit_head",
    "agent.path",
    "agent._target_",
    "contention",
    "contention.path",
    "contention._target_",
    "contention.digits",
    "contention.constants",
    "contention.constants.b",
    "network",
    "network.sharing",
    "network._target_",
    "network.path",
    "failures",
    "failures.mttr",
    "failures.mtbf",
    "failures.shape",
    "failures.recovery",
    "failures.checkpoint_interval",
    "failures.max_restarts",
    "failures.file",
    "failures._target_",
    "env",
    "env.action",
    "env.observation",
    "env.objective",
    "env.reward",
    "env.jobs",
    "env.queue_size",
    "env.commit",
    "env.x",
    "experiment",
    "train",
    "train.steps",
    "hydra",
    "hydra.verbose",
    "hydra.mode",
    "hydra.job.chdir",
    "hydra.job.name",
    "hydra.job.env_set",
    "hydra.output_subdir",
    "hydra.sweep.dir",
    "hydra.sweep.subdir",
    "hydra.sweeper",
    "hydra.sweeper.max_batch_size",
    "hydra.sweeper.params",
    "hydra.callbacks",
    "hydra.searchpath",
    "hydra/hydra_logging",
    "hydra/job_logging",
    "hydra/launcher",
    "hydra/sweeper",
    "hydra/help",
    "hydra.run.dir",
    "hydra",
    "",
    "a.b.c",
    "x",
    "é",
    "_target_",
)
_VALUES = (
    "",
    "null",
    "true",
    "1",
    "0",
    "-1",
    "1.5",
    "1e3",
    "1e400",
    "nan",
    "inf",
    "9" * 400,
    "[]",
    "{}",
    "[1,2]",
    "{a:1}",
    "[[[]]]",
    "{a:{b:[1]}}",
    "''",
    '"a b"',
    "'x",
    "a b",
    "a=b",
    "a,b",
    "1,2",
    "[",
    "]",
    "{",
    "}",
    "[1",
    "{a:1",
    "\\",
    "\\,",
    "${seed}",
    "${nope}",
    "${seed",
    "${oc.env:HOME}",
    "${oc.env:NOPE}",
    "${now:%Y}",
    "${.x}",
    "${hydra:run.dir}",
    "???",
    "choice(1,2)",
    "range(1,3)",
    "interval(0,1)",
    "glob(*)",
    "sort(3,1)",
    "shuffle(1,2)",
    "int(x)",
    "float('a')",
    "str([1])",
    "bool(2)",
    "choice()",
    "extend_list(1)",
    "tag(t,1)",
    "json_str('{')",
    "easy",
    "fcfs",
    "ppo",
    "nope",
    "gaia",
    "teaching",
    "custom",
    "none",
    "sim",
    "batsim",
    "exponential",
    "weibull",
    "trace",
    "threshold",
    "smoothstep",
    "fluid",
    "/",
    ".",
    "..",
    "~",
    "a/b",
    "/dev/null",
    "/proc/self/mem",
    "/nonexistent/x",
    "w.swf",
    "hydra",
    "plät.json",
    "名前",
    "\udc80",
    "x" * 5000,
    "hdsim.agents.ppo.PPOAgent",
    "os.system",
    "os",
    "hdsim.nope.X",
    "agents.x:Y",
    "MULTIRUN",
    "RUN",
    "1h",
    "-1h",
    "1e-9s",
    "1e308h",
)
#: A quick run, and what else may be asked for.
_KWOK = ("backend=kwok", "backend.kubeconfig=nowhere", "workload=cluster")
_QUANTITIES = (
    "workload=deployments",
    "workload.generate.epochs=2",
    "workload.generate.cpu_load=0.2",
    "workload.generate.replicas=[1,2]",
    "workload.generate.memory=1GiB",
    "workload.generate.rate=9",
    "workload.generate.hold=1",
    "workload.generate.cpu=[250m,1]",
    "workload.generate.gpus=0",
)
_BASE = ("platform=teaching", "workload.path=w.swf", "hydra.run.dir=r")
_SWITCHES = (
    ["--cfg", "job"],
    ["--cfg", "hydra"],
    ["--cfg", "all", "--resolve"],
    ["--cfg", "job", "-p", "workload"],
    ["-p", "x"],
    ["--info", "all"],
    ["--info", "defaults"],
    ["--info", "searchpath"],
    ["-m"],
    ["-m"],
    ["-cn", "nope"],
    ["-cn", "train"],
    ["-cd", "c"],
    ["-cd", "nope"],
    ["--nope"],
    ["--help"],
)


def _override(rng: Random) -> str:
    key, value = rng.choice(_KEYS), rng.choice(_VALUES)
    way = rng.random()
    if way < 0.75:
        return f"{rng.choice(('', '', '', '', '+', '++'))}{key}={value}"
    if way < 0.8:
        return f"~{key}"
    if way < 0.84:
        return f"~{key}={value}"
    if way < 0.88:
        return f"{key}@{value}={rng.choice(_VALUES)}"
    if way < 0.92:
        return f"{key}={value},{rng.choice(_VALUES)}"
    if way < 0.96:
        return f"{key}.{rng.choice(_KEYS)}={value}"
    return rng.choice((value, key, "=", "+", "++", "~", "+=1", "@=1", "a==b", f"{key}:={value}", f"{key} = {value}"))


def _overrides(rng: Random, folder: Path) -> list[Command]:
    (folder / "w.swf").write_text(swf_text(rng, 4), encoding="utf-8")
    given = [*_BASE, *(_override(rng) for _ in range(rng.choice((1, 1, 1, 2, 3))))]
    if rng.random() < 0.15:
        given += _KWOK
    elif rng.random() < 0.2:
        given = ["platform=teaching", "platform.kind=quantities", "hydra.run.dir=r", *_QUANTITIES]
        place = rng.randrange(3, len(given))
        given[place] = f"{given[place].split('=')[0]}={rng.choice(_VALUES)}"
    # A longer run than a few jobs is the user's wish and no fault.
    given = [text for text in given if not text.lstrip("+").startswith("failures.mtbf") or "1e-9" not in text]
    if rng.random() < 0.2:
        given += rng.choice(_SWITCHES)
    if rng.random() < 0.12:
        (folder / "c" / "agent").mkdir(parents=True)
        (folder / "c" / "agent" / "own.yaml").write_bytes(mutate.text_bytes(rng, rng.choice(mutate.YAMLS)))
        given += ["-cd", "c", rng.choice(("agent=own", "agent=own", "workload=own", "+x=1"))]
    if rng.random() < 0.1:
        rng.shuffle(given)
    return [["run", *given]]


_GENERATE_OPTIONS = {
    "--jobs": ("3", "0", "-1", "x", "1e3", "10000000000000"),
    "--cores": ("1", "2", "0", "-1", "1000000000000000000000"),
    "--seed": ("1", "-1", "99999999999999999999999"),
    "--typeless": ("",),
    "--estimates": ("tsafrir", "none", "x"),
    "--max-estimate": ("3600", "0", "-1", "nan", "inf", "1e300", "1e-300"),
    "--memory": ("500", "500,1000", "", "nan", "-1", "inf", ","),
    "--arrival-factor": ("1", "0", "-1", "nan", "inf", "1e300", "1e-320"),
}
_SERVE_OPTIONS = {
    "-p": ("teaching", "gaia", "nope", "w.swf", "."),
    "-w": ("w.swf", "nope", "lublin_4000", "."),
    "-s": (
        "ipc://x.sock",
        "tcp://127.0.0.1:1",
        "x",
        "",
        "tcp://*",
        "tcp://127.0.0.1:x",
        "ipc://" + "x" * 300,
        "udp://x",
    ),
    "-e": ("out/x", "/nonexistent/x", "", "w.swf/x"),
    "-E": ("",),
    "-m": ("h0", "", "x"),
    "--sched-cfg": ("{}", "", "x"),
    "--sched-cfg-file": ("w.swf", "nope"),
    "--events": ("w.swf", "nope"),
    "--contention": ("threshold", "nope", "", "[]"),
    "--network": ("fluid", "nope", ""),
    "--timeout": ("0.01", "0", "-1", "nan", "inf", "x"),
    "--sched-cmd": ("true", "false", "nope", "", "'", "cat w.swf"),
    "--one-core": ("",),
    "--batsim-energy": ("",),
    "--enable-dynamic-jobs": ("",),
    "--acknowledge-dynamic-jobs": ("",),
    "-q": ("",),
}


def _word(rng: Random) -> str:
    """A word a shell can hand over."""
    return rng.choice([text for text in (*mutate.TEXTS, *_VALUES) if not {"\x00", "\ud800"} & set(text)])


def _arguments(rng: Random, folder: Path) -> list[Command]:
    """Words for every command but `run` and `train`."""
    (folder / "w.swf").write_text(swf_text(rng, 4), encoding="utf-8")
    way = rng.random()
    if way < 0.35:
        words = [
            "workload",
            "generate",
            "-o",
            rng.choice(("o.swf", "o.json", "o.swf.gz", "o.x", "nope/o.swf", ".", "é.json")),
            "--jobs",
            "5",
        ]
        words += _some_options(rng, _GENERATE_OPTIONS)
    elif way < 0.55:
        words = [
            "workload",
            "convert",
            "w.swf",
            "-o",
            rng.choice(("o.swf", "o.json", "o.json.gz", "o", ".")),
            *_some_options(rng, _CONVERT_OPTIONS),
        ]
        words += ["--platform", "teaching"] if rng.random() < 0.5 else []
    elif way < 0.8:
        words = [
            "batsim-serve",
            "-p",
            "teaching",
            "-w",
            "w.swf",
            "-e",
            "out/x",
            "--timeout",
            "0.05",
            "-s",
            "ipc://x.sock",
        ]
        words += _some_options(rng, _SERVE_OPTIONS)
    elif way < 0.9:
        words = [
            "platform",
            rng.choice(("show", "validate", "convert")),
            rng.choice(("gaia", "teaching", _word(rng))),
            *rng.choice(([], ["--to", "json"], ["--types", "."], ["-o", "x"])),
        ]
    else:
        words = [
            rng.choice(("report", "compare", "show", "-h", "--version", "workload", "train", "x")),
            *(_word(rng) for _ in range(rng.randint(0, 3))),
        ]
    if rng.random() < 0.15:
        words.insert(rng.randrange(len(words) + 1), _word(rng))
    return [words]


_OUTAGES = "node,down,up\n0,10,20\n1,15,\n0,30,40.5\n"
_EVENTS = (
    {"timestamp": 10, "type": "event_machine_unavailable", "resources": "0-1"},
    {"timestamp": 20, "type": "event_machine_available", "resources": "0 1"},
)


def _outages(rng: Random, folder: Path) -> list[Command]:
    (folder / "w.swf").write_text(swf_text(rng, 4), encoding="utf-8")
    if rng.random() < 0.5:
        data = mutate.text_bytes(rng, mutate.table(rng, _OUTAGES))
    else:
        data = b"\n".join(mutate.json_bytes(rng, event).replace(b"\n", b" ") for event in _EVENTS)
    name = _write(rng, folder, "f.csv", data)
    return [["run", *_BASE, "failures=trace", f"failures.file={name}"]]


# ---- agents of users

_AGENT = '''from hdsim.scheduling.agent import Agent


class Own(Agent):
    """First come, first served, with a fault."""

    def decide(self, cluster):
        {before}
        for job in list(cluster.queue):
            {body}
'''
_BODIES = (
    "cluster.start(job)",
    "1 / 0",
    "cluster.start(job, [0])",
    "cluster.start(job, [10**9])",
    "cluster.start(job, [-1])",
    "cluster.start(99)",
    "cluster.start('x')",
    "cluster.start(None)",
    "cluster.start(job); cluster.start(job)",
    "cluster.start(job, 'x')",
    "cluster.start(job, [0.5])",
    "pass",
    "cluster.reject(job)",
    "raise KeyboardInterrupt",
    "raise SystemExit(3)",
    "raise MemoryError",
    "cluster.queue.clear()",
    "raise RecursionError",
    "raise OSError(2, 'x', 'y')",
    "raise ValueError('\\ud800')",
)


def _plugin(rng: Random, folder: Path) -> list[Command]:
    (folder / "w.swf").write_text(swf_text(rng, 4), encoding="utf-8")
    text = _AGENT.format(
        before=rng.choice(("pass", "pass", "pass", "import nope", "cluster.x", "return 3")), body=rng.choice(_BODIES)
    )
    if rng.random() < 0.25:
        text = rng.choice(
            (
                "",
                "1 / 0",
                "class (",
                "class A: pass",
                text + text.replace("Own", "Two"),
                text.replace("Agent", "object"),
                "import sys; sys.exit(3)",
                "\x00",
                "é = 'ü'",
            )
        )
    (folder / "own.py").write_bytes(text.encode("utf-8", "surrogatepass"))
    return [["run", *_BASE, "agent.path=own.py", *(["agent.x=1"] if rng.random() < 0.1 else [])]]


# ---- run directories

_RUNS = Path("runs")


def prepare_runs(folder: Path, run: Callable[[Command], None]) -> None:
    """Makes the run directories that cases change."""
    random = Random(0)
    (folder / "w.swf").write_text(swf_text(random, 12), encoding="utf-8")
    runs = folder / _RUNS
    base = ["run", "platform=teaching", f"workload.path={folder / 'w.swf'}", "workload.memory_bandwidth=24"]
    run([*base, "agent=easy", "contention=threshold", f"hydra.run.dir={runs / 'plain'}"])
    run(
        [
            *base,
            "agent=fcfs",
            "failures=exponential",
            "failures.mtbf=2h",
            "failures.mttr=10min",
            f"hydra.run.dir={runs / 'failing'}",
        ]
    )
    run([*base, "network=fluid", "workload.bsp.supersteps=3", "contention=fair_share", f"hydra.run.dir={runs / 'bsp'}"])


def _damage_run(rng: Random, directory: Path) -> None:
    """Changes some files of a run directory."""
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        path = rng.choice(files)
        way = rng.random()
        if path.is_dir():
            continue
        if way < 0.06:
            path.unlink(missing_ok=True)
            if rng.random() < 0.5:
                path.mkdir()
            continue
        if way < 0.11:
            other = rng.choice(files)
            if other.is_file():
                path.write_bytes(other.read_bytes())
            continue
        data = path.read_bytes() if path.exists() else b""
        if way < 0.2:
            path.write_bytes(mutate.damaged(rng, data))
        elif path.suffix == ".json":
            try:
                tree = json.loads(data)
            except ValueError:
                tree = {}
            path.write_bytes(mutate.json_bytes(rng, tree))
        elif path.suffix == ".csv":
            path.write_bytes(mutate.text_bytes(rng, mutate.table(rng, data.decode("utf-8", "replace"))))
        elif path.suffix == ".yaml":
            text = data.decode("utf-8", "replace")
            changed = rng.choice(mutate.YAMLS) if rng.random() < 0.6 else mutate.table(rng, text, " ")
            path.write_bytes(mutate.text_bytes(rng, changed))
        elif path.suffix == ".safetensors":
            path.write_bytes(checkpoint_bytes(rng, data))
        else:
            path.write_bytes(mutate.damaged(rng, data))


def _run_directory(rng: Random, folder: Path) -> list[Command]:
    shutil.copytree(folder.parent / _RUNS / rng.choice(("plain", "failing", "bsp")), folder / "r")
    _damage_run(rng, folder / "r")
    way = rng.random()
    if way < 0.84:
        return [["report", "r"]]
    if way < 0.86:
        return [["report", "r", "--figures", "f"]]
    if way < 0.92:
        shutil.copytree(folder.parent / _RUNS / "plain", folder / "s")
        options = rng.choice(
            ([], [], ["--baseline", "r"], ["--metric", "makespan"], ["--metric", "nope"], ["--schedules"])
        )
        return [["compare", *rng.choice((("r", "s"), ("s", "r"), (".",), ("r",))), *options]]
    (folder / "w.swf").write_text(swf_text(rng, 2), encoding="utf-8")
    if way < 0.97:
        return [["run", *_BASE]]
    return [
        [
            "run",
            "-m",
            "platform=teaching",
            "workload.path=w.swf",
            "seed=1,2",
            "hydra.sweep.dir=.",
            "hydra.sweep.subdir=r",
        ]
    ]


# ---- learning


_TRAINING = (
    "agent=ppo",
    "agent.num_envs=2",
    "agent.num_steps=8",
    "agent.hidden=[8]",
    "agent.num_minibatches=2",
    "agent.update_epochs=1",
    "platform=teaching",
    "env.jobs=8",
    "train.window_jobs=8",
    "train.validation=1",
    "train.test=1",
    "train.steps=32",
    "train.log_every=8",
    "train.evaluate_every=16",
    "train.checkpoint_every=8",
    "train.baselines=[fcfs]",
    "train.tensorboard=false",
)


def prepare_trainings(folder: Path, run: Callable[[Command], None]) -> None:
    """Makes a whole training and one that was cut."""
    (folder / "t.swf").write_text(swf_text(Random(1), 60), encoding="utf-8")
    whole = folder / _RUNS / "training"
    given = ["train", *_TRAINING, f"workload.path={folder / 't.swf'}"]
    run([*given, f"hydra.run.dir={whole}"])
    cut = folder / _RUNS / "cut"
    shutil.copytree(whole, cut)
    for name in ("final.safetensors", "card.json", "card.md"):
        (cut / "checkpoints" / name).unlink(missing_ok=True)
    manifest = json.loads((cut / "manifest.json").read_text(encoding="utf-8"))
    for key in ("training", "simulated_seconds", "duration"):
        manifest.pop(key, None)
    (cut / "manifest.json").write_text(json.dumps(manifest | {"status": "interrupted"}), encoding="utf-8")
    # An agent of another algorithm, to be taken for this one.
    for name in ("jobs.csv", "schedule.csv", "metrics.json", "machine_states.csv", "job_details.csv", "evaluation.csv"):
        (cut / name).unlink(missing_ok=True)


def checkpoint_bytes(rng: Random, data: bytes) -> bytes:
    """A safetensors file with a changed header, changed settings, changed arrays, or damaged."""
    try:
        (length,) = struct.unpack("<Q", data[:8])
        header, arrays = json.loads(data[8 : 8 + length]), data[8 + length :]
        kept = json.loads(header["__metadata__"]["hdsim"])["tree"]
    except (struct.error, ValueError, KeyError, TypeError):
        return mutate.damaged(rng, data)
    way = rng.random()
    if way < 0.08:
        return mutate.damaged(rng, data)
    if way < 0.13:
        return rng.choice(
            (
                b"\x80\x04K\x01.",
                b"PK\x03\x04",
                b"{}",
                struct.pack("<Q", rng.choice((0, 2**63, length + 1, 10**9))) + data[8:],
            )
        )
    tensors = [name for name in header if name != "__metadata__"]
    text = json.dumps(kept)
    if way < 0.6:
        text = mutate.dumps(mutate.mutated(rng, kept))
    elif way < 0.75 and tensors:
        # Another shape of the same size, or a type of the same width.
        name = rng.choice(tensors)
        shape = header[name]["shape"]
        header[name]["shape"] = rng.choice(
            ([1, *shape], [*shape, 1], shape[::-1], [math.prod(shape)], [*shape, 0], [2**40, *shape])
        )
        if rng.random() < 0.3:
            header[name]["dtype"] = rng.choice(("F32", "I32", "U32", "BF16", "F64", "BOOL", "F8_E4M3", "X"))
    elif way < 0.85:
        values = rng.choice((b"\x00\x00\xc0\x7f", b"\x00\x00\x80\x7f", b"\xff\xff\x7f\x7f", b"\x00\x00\x00\x00"))
        arrays = values * (len(arrays) // 4) + arrays[: len(arrays) % 4]
    else:
        header = mutate.mutated(rng, header)
    # Most without the digest, as in files of others.
    if rng.random() < 0.9 and isinstance(header, dict) and isinstance(header.get("__metadata__"), dict):
        header["__metadata__"]["hdsim"] = text
    packed = mutate.dumps(header).encode()
    return struct.pack("<Q", len(packed)) + packed + arrays


def _checkpoint(rng: Random, folder: Path) -> list[Command]:
    source = folder.parent / _RUNS / "training" / "checkpoints" / rng.choice(("best",) * 5 + ("final", "state"))
    (folder / "c.safetensors").write_bytes(checkpoint_bytes(rng, source.with_suffix(".safetensors").read_bytes()))
    (folder / "w.swf").write_text(swf_text(rng, 4), encoding="utf-8")
    if rng.random() < 0.12:
        start = rng.choice(("agent.start=c.safetensors", "agent=dqn", "agent=imitation"))
        given = [text for text in _TRAINING if not (start.startswith("agent=") and text.startswith("agent"))]
        return [
            [
                "train",
                *given,
                start,
                "train.steps=8",
                f"workload.path={folder.parent / 't.swf'}",
                "hydra.run.dir=r",
                "agent.start=c.safetensors",
            ]
        ]
    agent = rng.choice(("ppo",) * 9 + ("dqn", "reinforce"))
    return [
        [
            "run",
            *_BASE,
            f"agent={agent}",
            "agent.checkpoint=c.safetensors",
            *(["agent.sample=true"] if rng.random() < 0.2 else []),
        ]
    ]


def _training_overrides(rng: Random, folder: Path) -> list[Command]:
    keys = [text.partition("=")[0] for text in _TRAINING if not text.startswith("train.steps")]
    keys += [
        "train.metric",
        "train.traces",
        "train.scale_rewards",
        "env.action",
        "env.observation",
        "env.objective",
        "env.reward",
        "env",
        "train",
        "resume",
        "agent.gamma",
    ]
    values = [value for value in _VALUES if value not in ("9" * 400, "1e3")]
    given = [
        *_TRAINING,
        *(f"{rng.choice(keys)}={rng.choice(values)}" for _ in range(rng.choice((1, 1, 2)))),
        "train.steps=8",
    ]
    return [["train", *given, f"workload.path={folder.parent / 't.swf'}", "hydra.run.dir=r"]]


def _training_directory(rng: Random, folder: Path) -> list[Command]:
    shutil.copytree(folder.parent / _RUNS / rng.choice(("training", "cut", "cut")), folder / "r")
    _damage_run(rng, folder / "r")
    way = rng.random()
    if way < 0.45:
        return [["report", "r"]]
    if way < 0.5:
        return [["compare", "r"]]
    if way < 0.85:
        return [["train", "resume=true", "hydra.run.dir=r"]]
    return [["train", "resume=true", *_TRAINING, f"workload.path={folder.parent / 't.swf'}", "hydra.run.dir=r"]]


def _cut_training(rng: Random, folder: Path) -> list[Command]:
    """A training that is ended at a random moment, then resumed, perhaps with a file cut at a random byte."""
    given = [*_TRAINING, f"workload.path={folder.parent / 't.swf'}", "hydra.run.dir=r"]
    resume = rng.choice((["train", "resume=true", "hydra.run.dir=r"], ["train", "resume=true", *given]))
    first = [f"@{rng.choice(('KILL', 'TERM', 'INT'))}:{rng.uniform(0.02, 1.2):.3f}", "train", *given]
    if rng.random() < 0.4:
        return [first, [f"@CUT:r/{rng.choice(_CUT)}:{rng.random():.4f}"], resume]
    return [first, resume]


_CUT = (
    "checkpoints/state.safetensors",
    "checkpoints/best.safetensors",
    "manifest.json",
    "progress.csv",
    ".hydra/overrides.yaml",
    "actions.csv",
)


def _resumed(done: Sequence[Finished]) -> str | None:
    """Without damage, a resumed training comes to its end."""
    last = done[-1]
    begun = "has begun, found none" in last.err or "does not exist" in last.err
    if len(done) == 2 and last.status != 0 and not begun and "interrupted" not in done[0].err:
        return f"resume after a kill failed: {last.err.strip()[-200:]}"
    return None


# ---- further commands


def _some_settings(rng: Random, settings: dict[str, tuple[str, ...]]) -> Command:
    """Overrides of one to three keys with values that may fit, or with any."""
    keys = rng.sample(list(settings), rng.choice((1, 1, 2, 3)))
    return [f"{key}={rng.choice(settings[key]) if rng.random() < 0.8 else rng.choice(_VALUES)}" for key in keys]


#: A search of two trials; numbers of trials, steps and jobs are small, since more of them is a user's wish.
_TUNE_SETTINGS = {
    "tune.metric": ("makespan", "mean_waiting_time", "node_hours", "[makespan]", "p95_slowdown", "mean_nodes"),
    "tune.pruner": ("median", "none", "null"),
    "tune.seed": ("0", "7", "-1"),
    "tune.space.agent": ("choice(fcfs,sjf)", "fcfs,easy", "range(1,3)", "choice()", "easy"),
    "tune.space.workload.arrival_factor": ("interval(0.5,1)", "log(0.1,1)", "log(0,1)", "interval(1,0)", "1,0", "x"),
    "tune.space.agent.x": ("1,2",),
    "tune.space": ("{}", "{agent:1}", "[]", "{agent:'choice(fcfs,nope)'}"),
    "seed": ("1,2", "range(1,3)"),
    "agent": ("easy", "fcfs,sjf"),
    "workload.jobs": ("2", "0"),
}


def _tune(rng: Random, folder: Path) -> list[Command]:
    (folder / "w.swf").write_text(swf_text(rng, 4), encoding="utf-8")
    given = ["tune", *_BASE, "tune.space.agent.job_policy=fcfs,sjf", *_some_settings(rng, _TUNE_SETTINGS)]
    given.append(rng.choice(("tune.trials=2",) * 9 + ("tune.trials=0", "tune.trials=x", "tune.trials=[2]")))
    # The same command continues the search, perhaps one that has other settings or a damaged file.
    again = [*given[:4], *_some_settings(rng, _TUNE_SETTINGS), "tune.trials=3"] if rng.random() < 0.3 else given
    cut = [[f"@CUT:r/{rng.choice(('study.db', 'manifest.json', 'runs.csv'))}:{rng.random():.4f}"]]
    return [given, *(cut if rng.random() < 0.2 else []), again] if rng.random() < 0.3 else [given]


_STUDY = {
    "title": "T",
    "question": "Q?",
    "commands": {"orders": "run -m platform=teaching workload.path=w.swf agent=fcfs,sjf"},
    "tables": {
        "orders": {
            "title": "O",
            "compare": "orders",
            "metrics": ["mean_waiting_time"],
            "differences": "mean_waiting_time",
        },
        "whole": {"runs": "orders", "metrics": "jobs_completed"},
    },
    "figures": {"orders": {"title": "M", "draw": "compare $runs/orders -o $here", "file": "compare.png"}},
    "expected": {"whole": {"orders fcfs": {"jobs_completed": "at least 1"}}},
    "check": {
        "commands": {"orders": "run -m platform=teaching workload.path=w.swf agent=fcfs,easy"},
        "expected": {"whole": {"orders fcfs": {"jobs_completed": "at least 0"}}},
    },
    "needs": [],
}


def _study(rng: Random, folder: Path) -> list[Command]:
    (folder / "w.swf").write_text(swf_text(rng, 4), encoding="utf-8")
    text = mutate.dumps(mutate.mutated(rng, _STUDY)) if rng.random() < 0.9 else rng.choice(mutate.YAMLS)
    data = mutate.text_bytes(rng, text)
    (folder / "own.yaml").write_bytes(data)
    name = rng.choice(("own.yaml",) * 20 + (".", "nope", "own", _word(rng)))
    return [["study", name, *rng.choice((["--check"], ["--check"], ["-o", "out"], ["-o", "w.swf"], ["--data", "."]))]]


_RERUN_OPTIONS = {
    "-o": ("again", ".", "r", "w.swf", "/nonexistent/x", ""),
    "--input": ("w.swf=w.swf", "=", "x", "nope=w.swf", "w.swf=", "a=b=c"),
    "--accept-changes": ("",),
}


def _rerun(rng: Random, folder: Path) -> list[Command]:
    shutil.copytree(folder.parent / _RUNS / rng.choice(("plain", "failing", "bsp")), folder / "r")
    if rng.random() < 0.8:
        _damage_run(rng, folder / "r")
    return [["rerun", "r", *(_some_options(rng, _RERUN_OPTIONS) if rng.random() < 0.5 else [])]]


_BOUND_OPTIONS = {
    "--window": ("2", "3", "1", "99999999999999999999"),
    "--windows": ("1", "0", "1000"),
    "--objective": ("mean_waiting_time", "mean_turnaround_time", "makespan", "x", ""),
    "--backfill": ("none", "easy", "conservative", "greedy", "rlscheduler", "x"),
    "--moves": ("0", "10", "-1", "1e3"),
    "--seconds": ("0", "0.01", "-1", "nan", "inf"),
    "--json": ("",),
}


def _bound(rng: Random, folder: Path) -> list[Command]:
    (folder / "w.swf").write_text(swf_text(rng, 6), encoding="utf-8")
    words = ["bound", "platform=homogeneous_256", _BASE[1], "--moves", "20", *_some_options(rng, _BOUND_OPTIONS)]
    return [[*words, *([_override(rng)] if rng.random() < 0.3 else [])]]


_BSP_SETTINGS = {
    "supersteps": ("1", "5", "0", "100000000000"),
    "start": ("0", "900", "-1", "99999999999999999999"),
    "penalty": ("0", "15", "-1", "1e308"),
    "shares.start": ("100", "0", "3000"),
    "shares.increment": ("100", "0", "7"),
    "shares.total": ("800", "100", "1e9"),
    "shares.cap": ("1000", "1"),
    "controller": ("best", "static", "one_time", "dynamic_window", "static_window", "learned", "custom", "nope"),
    "controller.window": ("3", "0", "1.5"),
    "controller.horizon": ("2", "0", "1000"),
    "profile": ("synthetic", "measured", "p.csv", "nope"),
    "actual": ("a", "generated", "nope", "."),
    "forecasts": ("a", "actual", "nope"),
    "scaling": ("actual", "forecasts", "x"),
    "tasks": ("{cap:a}", "{cap:x}", "{}", "[cap]", "{cap:nyc_taxi_1}"),
    "planner": ("exact", "greedy", "x"),
    "runner": ("simulated", "kubernetes", "nope"),
    "resume": ("true", "false"),
    "seed": ("1", "-1"),
}
_FORECAST_SETTINGS = {
    "series": (".", "generated", "nope", "a.csv"),
    "names": ("[a]", "[]", "a", "[a,a]", "[nyc_taxi_1]"),
    "period": ("2", "0", "1e9", "null"),
    "rows": ("3", "0", "-1", "1000000"),
    "columns": ("2", "0", "1000000"),
    "refit": ("1", "0", "null"),
    "compare": ("[]", "[persistence]", "[nope]", "persistence"),
    "quantiles": ("[0.5]", "[]", "[0.9,0.1]", "[2]"),
    "unit": ("values", "sizes", "x"),
    "forecaster": ("persistence", "seasonal_naive", "ridge", "nope", "custom"),
    "forecaster.lags": ("1", "0"),
}
_PROFILE = "Task Name, Workload Size, CPU Shares, Duration\n" + "".join(
    f"cap, {size}, {share}, {size * 1000 / share}\n" for size in (1, 2, 3, 4) for share in (100, 200, 300, 400)
)


def _bsp(rng: Random, folder: Path) -> list[Command]:
    numbers = [f"{rng.uniform(0, 9):.3f}" for _ in range(40)]
    table = "\n".join(",".join(numbers[row : row + 5]) for row in range(30))
    _write(rng, folder, "p.csv", mutate.text_bytes(rng, mutate.table(rng, _PROFILE)))
    for kind in ("actual", "forecast"):
        (folder / "a").mkdir(exist_ok=True)
        _write(rng, folder / "a", f"a_{kind}.csv", mutate.text_bytes(rng, mutate.table(rng, table)))
    series = "timestamp,value\n" + "".join(f"2014-07-01 {hour:02}:00:00,{n}\n" for hour, n in enumerate(numbers[:24]))
    _write(rng, folder, "a.csv", mutate.text_bytes(rng, mutate.table(rng, series)))
    if rng.random() < 0.3:
        base = ["series=.", "names=[a]", "rows=4", "columns=2", "period=4", "forecaster=persistence", "compare=[]"]
        return [["bsp", "forecast", *base, "hydra.run.dir=r", *_some_settings(rng, _FORECAST_SETTINGS)]]
    base = ["supersteps=3", "controller=static", "hydra.run.dir=r"]
    if rng.random() < 0.5:
        base += ["profile=p.csv", "actual=a", "forecasts=a", "tasks={cap:a}", "shares.start=100", "shares.total=400"]
    return [["bsp", rng.choice(("run", "run", "plan")), *base, *_some_settings(rng, _BSP_SETTINGS)]]


_KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "c",
    "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
    "clusters": [{"name": "k", "cluster": {"server": "http://127.0.0.1:1"}}],
    "users": [{"name": "u", "user": {}}],
}
_KWOK_OPTIONS: dict[str, dict[str, tuple[str, ...]]] = {
    "load": {
        "--replicas": ("1-2", "2-1", "0", "x", "1-", "-"),
        "--cpu": ("1", "250m,1", "x", "-1", "", ","),
        "--memory": ("2Gi", "1e400", "x", "0"),
        "--gpus": ("0", "1", "0.5", "x"),
        "--duration": ("1", "nan", "inf", "0"),
        "--rate": ("1", "0", "nan"),
        "--trace": ("w.swf", "nope", "."),
        "--cpu-load": ("0.2", "2", "nan"),
        "--namespace": ("x", "", "X Y"),
    },
    "nodes": {
        "--count": ("1", "0", "99999999999999999999"),
        "--cpu": ("64", "3920m", "x", "-1"),
        "--memory": ("256Gi", "x", "1e999"),
        "--label": ("a=b", "a", "=", "a=b=c", "é=1"),
        "--taint": ("a:NoSchedule", "a=b:X", ":", "a"),
        "--gpus": ("1", "-1"),
        "--timeout": ("1", "nan", "0"),
        "--type": ("x", "", "X_Y"),
    },
    "record": {
        "-o": ("o.jsonl", ".", "/nonexistent/x", "w.swf"),
        "--bindings": ("1", "0"),
        "--stop-when-idle": ("0.1", "nan"),
    },
    "clean": {"--all": ("",), "--nodes": ("",), "--timeout": ("1", "inf")},
    "top": {"--namespace": ("x", "")},
    "status": {},
}


def _kwok(rng: Random, folder: Path) -> list[Command]:
    """Words for a cluster that cannot be reached."""
    (folder / "w.swf").write_text(swf_text(rng, 4), encoding="utf-8")
    name = _write(rng, folder, "k.yaml", mutate.json_bytes(rng, _KUBECONFIG))
    verb = rng.choice(list(_KWOK_OPTIONS))
    words = ["kwok", verb, *(["--kubeconfig", name] if verb != "status" else [])]
    words += _some_options(rng, _KWOK_OPTIONS[verb]) if len(_KWOK_OPTIONS[verb]) > 2 else []
    return [words]


#: Experiments, the last ones of other commands.
_EXPERIMENTS = ("backfilling", "consolidation", "policy_pairs", "baselines", "gaia", "gangs", "learned", "nope")


def _experiment(rng: Random, folder: Path) -> list[Command]:
    (folder / "w.swf").write_text(swf_text(rng, 4), encoding="utf-8")
    small = ["agent=easy", "workload=default", "workload.path=w.swf", "hydra.run.dir=r", "hydra.mode=RUN"]
    rng.shuffle(small)
    given = [*small, *(_override(rng) for _ in range(rng.choice((0, 1, 2))))]
    command = rng.choice(("run", "run", "run", "bound", "tune", "compare"))
    return [[command, f"experiment={rng.choice(_EXPERIMENTS)}", *given]]


KINDS = (
    Kind("swf", 24, _swf, _consistent),
    Kind("batsim json", 20, _batsim_json, _consistent),
    Kind("platform", 19, _platform, _consistent),
    Kind("xml and events", 3, _xml),
    Kind("overrides", 7, _overrides, _consistent),
    Kind("arguments", 7, _arguments),
    Kind("outages", 1, _outages, _consistent),
    Kind("plug-ins", 1, _plugin),
    Kind("run directories", 11, _run_directory),
    Kind("tune", 2, _tune),
    Kind("study", 3, _study),
    Kind("rerun", 3, _rerun),
    Kind("bound", 2, _bound),
    Kind("bsp", 4, _bsp),
    Kind("kwok", 2, _kwok),
    Kind("experiments", 2, _experiment, _consistent),
    Kind("checkpoints", 3.5, _checkpoint, torch=True),
    Kind("training overrides", 0.7, _training_overrides, torch=True),
    Kind("training directories", 1.5, _training_directory, torch=True),
    Kind("cut trainings", 0.3, _cut_training, _resumed, torch=True),
)
