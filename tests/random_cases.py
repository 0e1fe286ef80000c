"""Random cases for the slow reference, the engine and the compiled replay.

`python tests/random_cases.py FIRST COUNT [JOBS]` compares the cases of these numbers and prints each difference. Times
are whole numbers where every time is an exact sum of them, and have many digits elsewhere, so that no two ends coincide
but for a rounding.
"""

from __future__ import annotations

import math
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import reference as ref

import hdsim
from hdsim.agents.classic import ClassicAgent
from hdsim.cluster.state import Cluster
from hdsim.failures import Failures
from hdsim.results.metrics import full

ORDERS = ("fcfs", "fcfs", "lcfs", "sjf", "ljf", "smallest", "largest", "saf", "laf", "wfp3", "unicef", "f1", "f4")
KINDS = ("counts", "memory", "speeds", "conservative", "contention", "failures", "everything", "resizes")


class Elastic(hdsim.Agent):
    """`reference.elastic` for hdsim."""

    def decide(self, cluster: Cluster) -> None:
        """Serves the queue in order; shrinks and grows jobs in the same pass as starts."""
        resized: set[int] = set()
        started: set[int] = set()
        for job in sorted(cluster.queue):
            placement = cluster.pick(job, "high_gflops")
            for other in sorted(set(cluster.running) - started - resized):
                held = cluster.core_ids(other)
                if placement is None and len(held) > 1:
                    resized.add(other)
                    cluster.resize_on(other, held[: (len(held) + 1) // 2])
                    placement = cluster.pick(job, "high_gflops")
            if placement is None:
                break
            cluster.start(job, placement)
            started.add(job)
        movable = sorted(set(cluster.running) - started)
        if movable and cluster.frequencies is not None:
            points = cluster.frequencies.table.ghz.tolist()
            ghz = points[(movable[0] + len(cluster.queue) + len(cluster.running)) % len(points)]
            cluster.set_frequency(movable[0], ghz)
        if cluster.queue or not movable or movable[0] in resized:
            movable = [job for job in movable if job not in resized]
        if cluster.queue or not movable:
            return
        oldest, platform = movable[0], cluster.platform
        held = cluster.core_ids(oldest)
        node_of = platform.processor_node[platform.core_processor]
        need = float(cluster.workload.memory[oldest])
        extra: list[int] = []
        for node in sorted({int(node_of[core]) for core in held}):
            idle = [core for core in cluster.idle_ids() if node_of[core] == node]
            used = sum(
                float(cluster.workload.memory[job]) * sum(node_of[core] == node for core in cluster.core_ids(job))
                for job in cluster.running
            )
            room = math.inf if not need else int((float(platform.memory[node]) - used) // need)
            extra += idle[: int(min(len(idle), room))]
        if extra:
            cluster.resize_on(oldest, held + extra)


class Listed(Failures):
    """Outages given one by one."""

    def __init__(self, platform: hdsim.Platform, outages: list[ref.Outage], **recovery: Any) -> None:
        super().__init__(platform, **recovery)
        self._outages = outages

    def outages(self, rng: np.random.Generator) -> list[Any]:
        """(down, up) of each node."""
        return [
            iter([(outage.down, outage.up) for outage in self._outages if outage.node == node])
            for node in range(self.platform.n_nodes)
        ]


@dataclass
class Case:
    """What is run: the same platform and jobs for both sides, and the settings."""

    number: int
    kind: str
    document: dict[str, Any]
    jobs: list[ref.Job]
    classic: ref.Classic | None
    contention: str
    kill: bool
    outages: list[ref.Outage]
    interval: float
    max_restarts: int
    #: `frequency`, `cap`, `soft`, `slows`, `sleep` and `timeout` of `reference.Site`.
    power: dict[str, Any]

    def reference(self, found: Mapping[tuple[int, int], list[int]]) -> ref.Site:
        """The case replayed by the reference, which follows what was `found` where the documents do not tell."""
        processors, memory = [], []
        kinds = self.document["types"]["processor"]
        for entry in self.document["clusters"][0]["nodes"]:
            node = self.document["types"]["node"][entry["type"]]
            for item in node["processors"]:
                kind = kinds[item["type"]]
                processors += [
                    ref.Processor(
                        node=len(memory),
                        cores=kind["cores"],
                        gflops=kind["clock_rate"] * kind["dpflops_per_cycle"],
                        power=kind["power"] / kind["cores"],
                        bandwidth=kind.get("mem_bw", math.inf),
                        gpu="type" in kind,
                        ghz=kind["clock_rate"],
                        points={p["ghz"]: p["static_watts"] + p["dynamic_watts"] for p in kind.get("frequencies", [])},
                    )
                ] * item["number"]
            memory.append(node["memory"]["capacity"] * 1000.0 if "memory" in node else math.inf)
        return ref.Site(
            ref.Platform(processors, memory),
            self.jobs,
            self.classic or ref.elastic,
            self.contention,
            self.kill,
            self.outages,
            self.interval,
            self.max_restarts,
            **self.power,
            found=found,
        ).run()

    def workload(self) -> hdsim.Workload:
        """The jobs for hdsim."""
        rows = self.jobs
        return hdsim.Workload.from_columns(
            submission_time=[job.submit for job in rows],
            runtime=[job.runtime for job in rows],
            requested_time=[job.requested for job in rows],
            requested_cores=[job.cores for job in rows],
            memory=[job.memory for job in rows],
            memory_bandwidth=[job.bandwidth for job in rows],
            walltime=[job.walltime for job in rows],
            fixed_duration=[job.fixed for job in rows],
            requested_gpus=[job.gpus for job in rows],
            original_submission_time=[job.origin for job in rows],
            further={"frequency_bound": np.array([job.bound for job in rows])},
        )

    def simulation(self, *, check: bool = False) -> hdsim.Simulation:
        """The case for hdsim."""
        agent: hdsim.Agent = Elastic()
        if self.classic is not None:
            agent = ClassicAgent(
                self.classic.order,
                self.classic.rule,
                backfill=self.classic.backfill,
                backfill_order=self.classic.candidates,
            )
        failures: Any = "none"
        if self.outages:
            recovery = {"recovery": "checkpoint", "checkpoint_interval": self.interval}
            failures = {
                "_target_": "random_cases.Listed",
                "outages": self.outages,
                "max_restarts": self.max_restarts,
                **(recovery if self.interval < math.inf else {}),
            }
        return hdsim.Simulation(
            hdsim.Platform.from_dict(self.document),
            self.workload(),
            agent,
            contention=self.contention,
            failures=failures,
            power=self._management() if self.power else "none",
            kill_at_walltime=self.kill,
            check=check,
        )

    def _management(self) -> dict[str, Any]:
        """The power management for hdsim."""
        keys = {key: self.power[key] for key in ("frequency",) if key in self.power}
        if "sleep" in self.power:
            keys |= {"suspend_time": self.power["timeout"], "suspend_rate": None, "resume_rate": None}
        if "cap" in self.power:
            with tempfile.NamedTemporaryFile("w", suffix=".csv", delete=False) as file:
                file.write("time,watts\n" + "".join(f"{time!r},{watts!r}\n" for time, watts in self.power["cap"]))
            keys["cap"] = file.name
            keys["cap_kind"] = "soft" if self.power["soft"] else "hard"
            keys["when_capped"] = "slow" if self.power["slows"] else "wait"
        return {"_target_": "hdsim.power.PowerManagement", **keys}


def make(number: int, jobs: int | None = None) -> Case:
    """The case of a number; `jobs` instead of at most 30."""
    kind = KINDS[number % len(KINDS)]
    rng = np.random.default_rng([number, 36])
    rich = kind in ("everything", "resizes")
    speeds = [1.0] if kind in ("counts", "memory", "conservative") else [1.0, 2.0] if rng.random() < 0.7 else [1.0]
    contention = "none"
    if kind in ("contention", "everything", "resizes"):
        contention = str(rng.choice(["threshold", "fair_share", "smoothstep"]))
    exact = len(speeds) == 1 and contention == "none" and kind != "resizes"
    types: dict[str, Any] = {"processor": {}, "node": {}}
    for k in range(int(rng.integers(1, 4))):
        types["processor"][f"p{k}"] = {
            "cores": int(rng.integers(1, 6)),
            "clock_rate": float(rng.choice(speeds)),
            "dpflops_per_cycle": 1,
            "power": float(rng.integers(20, 200)),
            "mem_bw": float(rng.choice([8, 16, 32])),
        }
    for k in range(int(rng.integers(1, 4))):
        parts = [
            {"type": str(rng.choice(list(types["processor"]))), "number": int(rng.integers(1, 3))}
            for _ in range(int(rng.integers(1, 3)))
        ]
        types["node"][f"n{k}"] = {"processors": parts}
        if kind == "memory" or rich:
            types["node"][f"n{k}"]["memory"] = {"capacity": float(rng.choice([0.5, 1.25, 2.0, 4.0]))}
    nodes = [{"type": str(rng.choice(list(types["node"]))), "number": 1} for _ in range(int(rng.integers(1, 7)))]
    document = {"name": "case", "clusters": [{"id": "c", "nodes": nodes}], "types": types}
    sizes = [
        sum(
            types["processor"][item["type"]]["cores"] * item["number"]
            for item in types["node"][n["type"]]["processors"]
        )
        for n in nodes
    ]
    total = sum(sizes)
    n = jobs or int(rng.integers(4, 31))
    # The reference plans a long queue conservatively in a time that grows with the cube of its length.
    load = rng.uniform(0.6, 1.6) if jobs is None or kind != "conservative" else rng.uniform(0.6, 1.0)

    def times(values: Any) -> Any:
        return np.round(values) if exact else values

    wide = np.minimum(rng.choice([1, 1, 1, 2, 3, 4, 6, max(1, total // 2), total], n), total)
    runtime = times(rng.exponential(50, n) + 1)
    gaps = rng.exponential(50 * wide.mean() / total / load, n) * (rng.random(n) < 0.8 if exact else 1)
    submit = times(np.cumsum(gaps))
    submit -= submit[0]
    requested = times(runtime * rng.choice([0.5, 1, 1, 1.5, 3], n, p=[0.1, 0.35, 0.15, 0.2, 0.2]))
    requested = np.maximum(requested, 1)
    memory = rng.choice([0, 100, 125, 375, 1000], n) if kind == "memory" or rich else np.zeros(n)
    bandwidth = rng.choice([0, 1, 3, 4, 8, 12], n)
    kill = bool(rng.random() < 0.4)
    walltime = np.where(rng.random(n) < 0.5, requested if exact else requested * 1.37, math.inf)
    fixed = (rng.random(n) < 0.15) & (kind in ("speeds", "contention", "everything"))
    failing = kind == "failures" or (kind == "everything" and rng.random() < 0.5)
    outages = []
    if failing:
        for node in range(len(nodes)):
            at = 0.0
            for _ in range(int(rng.integers(0, 4))):
                down = float(times(at + rng.exponential(80) + 1))
                at = float(times(down + rng.exponential(30) + 1))
                outages.append(ref.Outage(node, down, at))
    memory_of = [types["node"][node["type"]].get("memory", {}).get("capacity", math.inf) * 1000 for node in nodes]
    rows = []
    for k in range(n):
        room = sum(int(min(s, m // memory[k])) if memory[k] else s for s, m in zip(sizes, memory_of, strict=True))
        if room < wide[k]:
            memory[k] = 0
        rows.append(
            ref.Job(
                float(submit[k]),
                float(runtime[k]),
                int(wide[k]),
                float(requested[k]),
                float(memory[k]),
                float(bandwidth[k]),
                float(submit[k]),
                float(walltime[k]),
                bool(fixed[k]),
            )
        )
    classic = None
    if kind != "resizes":
        backfill = (
            "conservative" if kind == "conservative" else str(rng.choice(["none", "easy", "easy", "easy", "greedy"]))
        )
        if kind == "failures" and len(speeds) == 1 and rng.random() < 0.3 and jobs is None:
            backfill = "conservative"
        candidates = str(rng.choice(["sjf", "saf", "fcfs"])) if backfill != "none" and rng.random() < 0.3 else None
        if backfill == "greedy":
            candidates = None
        classic = ref.Classic(str(rng.choice(ORDERS)), str(rng.choice(ref.CORE_RULES)), backfill, candidates)
    interval, max_restarts = float(rng.choice([math.inf, 8, 32])), int(rng.choice([1, 100]))
    if classic is not None and kind in ("counts", "conservative") and rng.random() < 0.4:
        classic = replace(classic, backfill=int(rng.integers(2, 7)))
    power: dict[str, Any] = {}
    # Sizes that follow frequencies that follow sizes multiply a rounding, some 1e10 times in a thousand jobs.
    tame = kind != "resizes" or jobs is None
    if kind in ("memory", "speeds", "contention", "everything", "resizes") and rng.random() < 0.3 and tame:
        power = managed(rng, document, rows, classic)
        if exact:
            rows[:] = uneven(rng, rows)
    plain = classic is not None and classic.backfill in ("none", "greedy") and contention == "none"
    if plain and not (power or failing) and rng.random() < 0.5:
        power = sleeping(rng, document, times)
    if classic is not None and classic.backfill in ("none", "greedy") and not power and rng.random() < 0.4:
        accelerate(rng, document, rows)
    return Case(number, kind, document, rows, classic, contention, kill, outages, interval, max_restarts, power)


def accelerate(rng: np.random.Generator, document: dict[str, Any], rows: list[ref.Job]) -> None:
    """Gives nodes GPUs, and jobs those that could start on the idle machine."""
    kinds, nodes = document["types"]["processor"], document["types"]["node"]
    kinds["gpu"] = {"type": "GPU", "cores": int(rng.integers(1, 3)), "clock_rate": 1.0, "dpflops_per_cycle": 9}
    kinds["gpu"]["power"] = float(rng.integers(20, 200))
    room = []
    for node in nodes.values():
        cores = sum(kinds[item["type"]]["cores"] * item["number"] for item in node["processors"])
        boards = int(rng.integers(0, 4))
        if boards:
            node["processors"].append({"type": "gpu", "number": boards})
        memory = node["memory"]["capacity"] * 1000 if "memory" in node else math.inf
        room.append((cores, boards * kinds["gpu"]["cores"], memory))
    rooms = dict(zip(nodes, room, strict=True))
    for k, job in enumerate(rows):
        wanted = replace(job, gpus=int(rng.choice([0, 0, 1, 2, job.cores])))
        parts, cores, gpus = ref.parts_of(wanted)
        each = [rooms[entry["type"]] for entry in document["clusters"][0]["nodes"]]
        if wanted.gpus and parts <= sum(
            int(min(has // cores, devices // gpus, memory // (cores * job.memory) if job.memory else math.inf))
            for has, devices, memory in each
        ):
            rows[k] = wanted


def sleeping(rng: np.random.Generator, document: dict[str, Any], times: Callable[[Any], Any]) -> dict[str, Any]:
    """Gives nodes power states; returns the settings of power management."""
    kinds = {}
    for name, node in document["types"]["node"].items():
        idle, more, down, off, boot = rng.uniform(0, 60, 5).tolist()
        seconds = times(rng.uniform(1, 60, 2)).tolist()
        kinds[name] = ref.Sleep(idle + more, idle, down, off, boot, *seconds)
        node["states"] = {
            "on": {"watts": idle + more},
            "idle": {"watts": idle},
            "going_down": {"watts": down, "seconds": seconds[0]},
            "off": {"watts": off},
            "booting": {"watts": boot, "seconds": seconds[1]},
        }
    sleep = [kinds[entry["type"]] for entry in document["clusters"][0]["nodes"]]
    return {"sleep": sleep, "timeout": float(times(rng.uniform(0, 100)))}


def managed(
    rng: np.random.Generator, document: dict[str, Any], rows: list[ref.Job], classic: ref.Classic | None
) -> dict[str, Any]:
    """Gives a platform frequencies and jobs their bounds; returns the settings of power management.

    Jobs under a cap are made so narrow that any could start on the idle machine.
    """
    kinds = document["types"]["processor"]
    ghz = sorted({1.0, 1.5, 2.5, *rng.choice([0.6, 1.2, 1.8, 2.0], 2).tolist()})
    nominal = float(rng.choice(ghz[1:]))
    for kind in kinds.values():
        kind["dpflops_per_cycle"], kind["clock_rate"] = kind["clock_rate"], nominal
        watts = kind["power"] / kind["cores"]
        more = np.sort(rng.uniform(0.3, 1.0, len(ghz)))
        more *= watts / more[ghz.index(nominal)]
        more = np.maximum(more, 0.25 * watts)
        kind["frequencies"] = [
            {"ghz": at, "static_watts": 0.125 * watts, "dynamic_watts": float(w) - 0.125 * watts}
            for at, w in zip(ghz, more, strict=True)
        ]
    bound = rng.choice([0.0, 0.3, 0.7, 1.0], len(rows))
    rows[:] = [replace(job, bound=float(b)) for job, b in zip(rows, bound, strict=True)]
    power: dict[str, Any] = {"frequency": float(rng.choice(ghz))} if rng.random() < 0.6 else {}
    if rng.random() < 0.3:
        return power or {"frequency": float(rng.choice(ghz))}
    cores = [
        (kind["power"] / kind["cores"], max(point["static_watts"] + point["dynamic_watts"] for point in points))
        for entry in document["clusters"][0]["nodes"]
        for item in document["types"]["node"][entry["type"]]["processors"]
        for kind in [kinds[item["type"]]]
        for points in [kind["frequencies"]]
        for _ in range(item["number"] * kind["cores"])
    ]
    widest = int(rng.integers(1, len(cores) // 2 + 2))
    rows[:] = [replace(job, cores=min(job.cores, widest)) for job in rows]
    most = sum(sorted((computing for _, computing in cores), reverse=True)[:widest])
    highest = (0.25 * sum(idle for idle, _ in cores) + most) * float(rng.uniform(1.0, 1.2))
    last = max(job.submit for job in rows)
    times = [0.0, *np.sort(rng.uniform(0, 1.5 * last + 1, int(rng.integers(0, 6)))).tolist()]
    lowest = 0.05 * sum(idle for idle, _ in cores)
    watts = rng.uniform(lowest * 1.0001, max(highest, lowest * 1.001), len(times)).tolist()
    power["cap"] = list(zip(times, [*watts[:-1], max(highest, lowest * 1.001)], strict=True))
    power["soft"] = classic is None or classic.backfill not in ("none", "greedy")
    power["slows"] = not power["soft"] and bool(rng.random() < 0.5)
    return power


def uneven(rng: np.random.Generator, rows: list[ref.Job]) -> list[ref.Job]:
    """Gives jobs with whole numbers of seconds times with many digits: at frequencies no end is an exact sum."""
    made, later = [], 0.0
    for job in rows:
        factor = float(rng.uniform(1, 1.01))
        submit, requested, walltime = job.submit + later, job.requested * factor, job.walltime * factor * 1.37
        made.append(
            replace(
                job,
                submit=submit,
                origin=submit,
                runtime=job.runtime * factor,
                requested=requested,
                walltime=walltime,
            )
        )
        later += float(rng.uniform(0, 0.01))
    return made


STATES = {"completed": "COMPLETED_SUCCESSFULLY", "killed": "COMPLETED_WALLTIME_REACHED", "failed": "COMPLETED_FAILED"}


def starts(result: hdsim.Result) -> dict[tuple[int, int], tuple[float, float, list[int]]]:
    """Begin, end and cores of each (job, restarts)."""
    rows = result.segments.attempts
    keys = zip(rows.job.tolist(), rows.attempt.tolist(), strict=True)
    held = map(ref.core_ids, rows.held.texts)
    return dict(zip(keys, zip(rows.begin.tolist(), rows.end.tolist(), held, strict=True), strict=True))


def differences(case: Case, site: ref.Site, result: hdsim.Result) -> list[str]:
    """What differs between the reference and a result, by start of a job in order of time, and then by metric."""
    found, theirs = [], starts(result)
    for key, run in sorted(site.starts().items(), key=lambda item: item[1].start):
        begin, end, cores = theirs.pop(key, (math.nan, math.nan, []))
        job = f"job {key[0]}, start {key[1]}"
        if not np.allclose((begin, end), (run.start, run.end), rtol=1e-9, atol=1e-9):
            found.append(f"{job}: reference {run.start:.9g} to {run.end:.9g}, hdsim {begin:.9g} to {end:.9g}")
        elif case.classic is not None and cores != run.cores:
            found.append(f"{job}: reference on {run.cores}, hdsim on {cores}")
    found += [f"job {job}, start {restarts}: only hdsim has it" for job, restarts in theirs]
    states = result.jobs["final_state"]
    for job, run in site.last().items():
        if states[job] != STATES[run.state]:
            found.append(f"job {job}: reference {run.state}, hdsim {states[job]}")
    measured = full(result)
    for name, value in site.figures().items():
        if not math.isclose(value, measured[name], rel_tol=1e-9, abs_tol=1e-9):
            found.append(f"{name}: reference {value!r}, hdsim {measured[name]!r}")
    return found


def compare(case: Case) -> tuple[list[str], Counter[str]]:
    """Differences of the default replay, of the engine with checks and of a fork from an instant of the replay.

    Returned with them is how often which mode ran, and how many candidates of EASY got cores by a search. There the
    documents tell that the candidate starts and not where, and the reference follows the default replay.
    """
    results = {name: case.simulation(check=name == "checked").run() for name in ("default", "checked")}
    found = starts(results["default"])
    site = case.reference({key: cores for key, (_, _, cores) in found.items()})
    halfway = case.simulation()
    halfway.run_until(sorted(begin for begin, _, _ in found.values())[case.number % len(found)])
    results["fork"] = halfway.fork(runtimes="actual", arrivals="actual").run()
    ran = Counter({"searched": len(site.searched)}) + Counter()
    lines = []
    for name, result in results.items():
        mode = str(result.engine["mode"])
        ran[mode] += name != "fork"
        lines += [f"{name} ({mode}): {line}" for line in differences(case, site, result)]
    return lines, ran


def main() -> None:
    """Compares cases and prints differences."""
    first, count = int(sys.argv[1]), int(sys.argv[2])
    jobs = int(sys.argv[3]) if len(sys.argv) > 3 else None
    ran: Counter[str] = Counter()
    different = 0
    for number in range(first, first + count):
        case = make(number, jobs)
        try:
            found, modes = compare(case)
        except Exception as error:
            found, modes = [f"{type(error).__name__}: {error}"], Counter()
        ran += modes
        if found:
            different += 1
            print(f"case {number} {case.kind} {case.classic} {case.contention}: {len(found)} differences", flush=True)
            print("\n".join("    " + line for line in found[:3]), flush=True)
    print(f"{count} cases from {first}, {different} different, {dict(ran)}")


if __name__ == "__main__":
    main()
