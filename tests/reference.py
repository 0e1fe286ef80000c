"""A second, slow and obvious implementation of the models, against which the engine is checked.

It is written from the descriptions of the models alone and shares no code with hdsim: not the readers, not the state,
not the clock. Nothing here is meant to be fast; every pass looks at everything again.

Two machines are modelled. `replay_counts` knows only how many cores are free, and runs textbook schedulers. `replay`
knows every processor, node and core, runs the policy pairs, slows jobs down where memory bandwidth is oversubscribed
and adds up energy core by core.
"""

from __future__ import annotations

import csv
import gzip
import json
import math
from bisect import insort
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as changed
from fractions import Fraction
from functools import cache, cached_property
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

# Jobs


@dataclass(frozen=True)
class Job:
    """A rigid job. Times in s, `memory` in MB and `bandwidth` in GB/s for each core.

    `runtime` and `requested` are at the platform's reference speed, unless `fixed`: then the job lasts `runtime`
    seconds on whatever cores it gets. `origin` is the submission time before the trace was shifted to start at 0.
    `gpus` are those of the whole job; `bound` is the share of the run time that is bound by the frequency.
    """

    submit: float
    runtime: float
    cores: int
    requested: float
    memory: float = 0.0
    bandwidth: float = 0.0
    origin: float = 0.0
    walltime: float = math.inf
    fixed: bool = False
    gpus: int = 0
    bound: float = 1.0

    def stretch(self, slower: float) -> float:
        """How much longer the job takes at a frequency that the nominal one is so many times."""
        return 1.0 if self.fixed else self.bound * slower + 1 - self.bound


def _open(path: Path) -> IO[str]:
    return gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8")


def read_swf(path: Path) -> list[Job]:
    """Jobs of an SWF file, in its order, shifted to start at 0; an absent requested time is the run time."""
    with _open(path) as lines:
        rows = [[float(word) for word in line.split()] for line in lines if line.strip() and not line.startswith(";")]
    first = rows[0][1]
    return [
        Job(
            submit=row[1] - first,
            runtime=row[3],
            cores=int(row[7] if row[7] > 0 else row[4]),
            requested=row[8] if row[8] >= 0 else row[3],
            origin=row[1],
        )
        for row in rows
    ]


def read_batsim(path: Path, reference_gflops: float) -> list[Job]:
    """Jobs of a Batsim workload, in its order; operations become seconds at the reference speed."""
    with _open(path) as file:
        content = json.load(file)
    jobs = []
    for entry in content["jobs"]:
        profile = content["profiles"][entry["profile"]]
        fixed = profile["type"] == "delay"
        runtime = profile["delay"] if fixed else profile["cpu"] / (reference_gflops * 1e9)
        walltime = entry.get("walltime", -1)
        jobs.append(
            Job(
                submit=entry["subtime"],
                runtime=runtime,
                cores=entry["res"],
                requested=profile.get("req_time", walltime if walltime > 0 else runtime),
                memory=profile.get("mem", 0.0),
                bandwidth=profile.get("mem_bw", 0.0),
                origin=entry["subtime"],
                walltime=walltime if walltime > 0 else math.inf,
                fixed=fixed,
                gpus=entry.get("gpus", 0),
            )
        )
    return jobs


def jobs_of(workload: Any) -> list[Job]:
    """Jobs of a table with hdsim's column names."""
    columns = (
        workload.submission_time,
        workload.runtime,
        workload.requested_cores,
        workload.requested_time,
        workload.memory,
        workload.memory_bandwidth,
        workload.original_submission_time,
        workload.walltime,
        workload.fixed_duration,
        workload.requested_gpus,
    )
    return [Job(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]


def core_ids(intervals: str) -> list[int]:
    """Core ids of an interval set such as "0-3 8"."""
    bounds = [part.split("-") for part in intervals.split()]
    return [core for ends in bounds for core in range(int(ends[0]), int(ends[-1]) + 1)]


def read_table(path: Path) -> list[dict[str, str]]:
    """Rows of a CSV file."""
    with _open(path) as file:
        return list(csv.DictReader(file))


def window(jobs: Sequence[Job], first: int, count: int) -> list[Job]:
    """Part of a trace, shifted to start at 0; the origin of the times stays known."""
    part = jobs[first : first + count]
    return [changed(job, submit=job.submit - part[0].submit) for job in part]


# Metrics


def bounded_slowdown(job: Job, start: float, runtime: float, tau: float = 10.0) -> float:
    """max(1, turnaround / max(run time, tau))."""
    return max(1.0, (start - job.submit + runtime) / max(runtime, tau))


def metrics(jobs: Sequence[Job], starts: Sequence[float], tau: float = 10.0) -> tuple[float, float, float]:
    """Makespan, mean wait and mean bounded slowdown of jobs that ran for their run time."""
    makespan = max(s + job.runtime for job, s in zip(jobs, starts, strict=True)) - min(job.submit for job in jobs)
    wait = math.fsum(s - job.submit for job, s in zip(jobs, starts, strict=True)) / len(jobs)
    slowdown = math.fsum(bounded_slowdown(job, s, job.runtime, tau) for job, s in zip(jobs, starts, strict=True))
    return makespan, wait, slowdown / len(jobs)


# Scores: the lowest goes first; equal scores in order of submission. A score sees the job and how long it has waited.

Score = Callable[[Job, float], float]


def _log10(seconds: float) -> float:
    """log10 of a submission time; a trace that starts at 0 has no logarithm there, so 0.1 stands for 0."""
    return math.log10(seconds if seconds > 0 else 0.1)


SCORES: dict[str, Score] = {
    "fcfs": lambda job, wait: job.submit,
    "lcfs": lambda job, wait: -job.submit,
    "sjf": lambda job, wait: job.requested,
    "ljf": lambda job, wait: -job.requested,
    "smallest": lambda job, wait: job.cores,
    "largest": lambda job, wait: -job.cores,
    "saf": lambda job, wait: job.cores * job.requested,
    "laf": lambda job, wait: -job.cores * job.requested,
    "wfp3": lambda job, wait: -((wait / job.requested) ** 3) * job.cores,
    "unicef": lambda job, wait: -wait / (math.log2(max(job.cores, 2)) * job.requested),
    "f1": lambda job, wait: math.log10(max(job.requested, 0.1)) * job.cores + 870 * _log10(job.origin),
    "f2": lambda job, wait: math.sqrt(job.requested) * job.cores + 25_600 * _log10(job.origin),
    "f3": lambda job, wait: job.requested * job.cores + 6_860_000 * _log10(job.origin),
    "f4": lambda job, wait: job.requested * math.sqrt(job.cores) + 530_000 * _log10(job.origin),
}
DYNAMIC = ("wfp3", "unicef")


# Textbook schedulers on a machine of equal cores, and perhaps equal GPUs


@dataclass(frozen=True)
class Amount:
    """Cores and GPUs."""

    cores: int
    gpus: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.cores + other.cores, self.gpus + other.gpus)

    def __sub__(self, other: Amount) -> Amount:
        return Amount(self.cores - other.cores, self.gpus - other.gpus)

    def __le__(self, other: Amount) -> bool:
        return self.cores <= other.cores and self.gpus <= other.gpus


def need(job: Job) -> Amount:
    """What a job asks for."""
    return Amount(job.cores, job.gpus)


def total_of(amounts: Iterator[Amount]) -> Amount:
    """Sum of amounts."""
    return sum(amounts, Amount(0))


@dataclass
class Machine:
    """What a textbook scheduler sees: time, what is free, the queue in order, (expected end, held) of running jobs."""

    now: float
    free: Amount
    queue: list[int]
    running: list[tuple[float, Amount]]


Scheduler = Callable[[Machine, Sequence[Job]], list[int]]


def strict(machine: Machine, jobs: Sequence[Job]) -> list[int]:
    """Starts the queue in order up to the first job that does not fit."""
    started = []
    free = machine.free
    for job in machine.queue:
        if not need(jobs[job]) <= free:
            break
        free -= need(jobs[job])
        started.append(job)
    return started


def easy(machine: Machine, jobs: Sequence[Job], candidates: Callable[[int], Any] | None = None) -> list[int]:
    """EASY backfilling: the first job that does not fit has a reservation, nobody else has.

    Args:
        machine: The state.
        jobs: All jobs.
        candidates: Sort key of the jobs tried behind the head, by default the order of the queue.
    """
    now = machine.now
    started = strict(machine, jobs)
    waiting = machine.queue[len(started) :]
    if not waiting:
        return started
    free = machine.free - total_of(need(jobs[job]) for job in started)
    head = need(jobs[waiting[0]])
    running = machine.running + [(now + jobs[job].requested, need(jobs[job])) for job in started]
    available = free
    shadow = now
    for end, held in sorted(running, key=lambda run: run[0]):
        if head <= available and end > shadow:
            break
        available += held
        shadow = max(end, now)
    extra = available - head
    others = waiting[1:] if candidates is None else sorted(waiting[1:], key=candidates)
    for job in others:
        own, ends_in_time = need(jobs[job]), now + jobs[job].requested <= shadow
        if own <= free and (ends_in_time or own <= extra):
            started.append(job)
            free -= own
            if not ends_in_time:
                extra -= own
    return started


def conservative(machine: Machine, jobs: Sequence[Job]) -> list[int]:
    """Conservative backfilling: every queued job, in order, is given the earliest time that delays none before it."""
    return hybrid(machine, jobs, len(machine.queue))


def hybrid(
    machine: Machine, jobs: Sequence[Job], depth: int, candidates: Callable[[int], Any] | None = None
) -> list[int]:
    """Backfilling with reservations of the first jobs that cannot start; others start where they delay none of these.

    Args:
        machine: The state.
        jobs: All jobs.
        depth: Number of reservations.
        candidates: Sort key of the jobs tried behind those with reservations, by default the order of the queue.
    """
    now = machine.now
    # A job past its expected end can end at any moment but has not yet; a job holds its cores at least for a moment.
    soon = math.nextafter(now, math.inf)
    ends = [(max(end, soon), held) for end, held in machine.running]
    # What is free from each date to the next.
    dates = sorted({now} | {end for end, _ in ends})
    free = [machine.free + total_of(held for end, held in ends if end <= date) for date in dates]
    started: list[int] = []

    def reserve(job: int, latest: float) -> float:
        own, duration = need(jobs[job]), jobs[job].requested
        if not own <= free[-1]:
            return math.inf  # Too large for the nodes that are up: without a reservation.

        def end_from(start: float) -> float:
            return max(start + duration, math.nextafter(start, math.inf))

        first = at = 0
        while at < len(dates) and dates[at] < end_from(dates[first]):
            at += 1
            if not own <= free[at - 1]:
                first = at
        start, end = dates[first], end_from(dates[first])
        if start > latest:
            return math.inf
        if at == len(dates) or dates[at] > end:
            dates.insert(at, end)
            free.insert(at, free[at - 1])
        free[first:at] = [amount - own for amount in free[first:at]]
        if start == now:
            started.append(job)
        return start

    waiting = list(machine.queue)
    while waiting and depth:
        depth -= now < reserve(waiting.pop(0), math.inf) < math.inf
    for job in waiting if candidates is None else sorted(waiting, key=candidates):
        reserve(job, now)
    return started


def replay_counts(
    jobs: Sequence[Job],
    total: int,
    scheduler: Scheduler,
    score: Score = SCORES["fcfs"],
    *,
    dynamic: bool = False,
    batch: bool = True,
    gpus: int = 0,
) -> list[float]:
    """Start times of jobs on a machine of equal cores.

    Args:
        jobs: In order of submission.
        total: Cores of the machine.
        scheduler: One of the schedulers above.
        score: Order of the queue.
        dynamic: The score changes with time.
        batch: All events of an instant, then one scheduling pass; otherwise a pass after every single completion and
            then after every single submission.
        gpus: GPUs of the machine.
    """
    starts = [math.nan] * len(jobs)
    ends: list[tuple[float, int]] = []
    machine = Machine(0.0, Amount(total, gpus), [], [])
    running: dict[int, tuple[float, Amount]] = {}
    arrived = 0

    def rank(job: int) -> tuple[float, int]:
        return score(jobs[job], machine.now - jobs[job].submit), job

    while arrived < len(jobs) or ends:
        now = min([job.submit for job in jobs[arrived : arrived + 1]] + [end for end, _ in ends[:1]])
        machine.now = now
        single = False
        while ends and ends[0][0] == now and not single:
            _, job = ends.pop(0)
            del running[job]
            machine.free += need(jobs[job])
            single = not batch
        while arrived < len(jobs) and jobs[arrived].submit == now and not single:
            if dynamic:
                machine.queue.append(arrived)
            else:
                insort(machine.queue, arrived, key=rank)
            arrived += 1
            single = not batch
        if dynamic:
            machine.queue.sort(key=rank)
        machine.running = list(running.values())
        for job in scheduler(machine, jobs):
            starts[job] = now
            machine.queue.remove(job)
            machine.free -= need(jobs[job])
            running[job] = (now + jobs[job].requested, need(jobs[job]))
            insort(ends, (now + jobs[job].runtime, job))
    assert not machine.queue
    return starts


def replay_rlscheduler(jobs: Sequence[Job], total: int, score: Score, *, backfill: bool) -> list[float]:
    """Start times under RLScheduler's own rules (Zhang et al., SC 2020).

    Whenever a job waits, the best by score is made the head at once and stays it until it starts. Until it fits, one
    event at a time is taken, a submission before a completion of the same instant. With backfilling, before each such
    event the waiting jobs, in order of submission, that fit and would end strictly before the head's expected start are
    started; that expected start is computed once, when the head is found not to fit.
    """
    starts = [math.nan] * len(jobs)
    queue: list[int] = []
    running: list[int] = []
    now, free, arrived = 0.0, total, 0

    def start(job: int) -> None:
        nonlocal free
        starts[job] = now
        queue.remove(job)
        running.append(job)
        free -= jobs[job].cores

    def next_event() -> None:
        nonlocal now, free, arrived
        first = min(running, key=lambda job: starts[job] + jobs[job].runtime, default=None)
        release = math.inf if first is None else starts[first] + jobs[first].runtime
        if arrived < len(jobs) and jobs[arrived].submit <= release:
            now = max(now, jobs[arrived].submit)
            queue.append(arrived)
            arrived += 1
        else:
            assert first is not None
            now = max(now, release)
            running.remove(first)
            free += jobs[first].cores

    while True:
        while not queue and arrived < len(jobs):
            next_event()
        if not queue:
            return starts
        head = min(queue, key=lambda job: (score(jobs[job], now - jobs[job].submit), job))
        if backfill and jobs[head].cores > free:
            expected, available = now, free
            for job in sorted(running, key=lambda job: starts[job] + jobs[job].requested):
                available += jobs[job].cores
                expected = starts[job] + jobs[job].requested
                if available >= jobs[head].cores:
                    break
        while jobs[head].cores > free:
            if backfill:
                for job in sorted(queue):
                    if jobs[job].cores <= free and now + jobs[job].requested < expected:
                        start(job)
            next_event()
        start(head)


# Real runs of a cluster under conservative backfilling (Poquet 2017, batsim-experiments)

Starts = Callable[[list[Job], Path], Sequence[float]]


def errors_against_real_runs(data: Path, starts_of: Starts, latency: float) -> list[tuple[float, float, float]]:
    """Errors of simulated against real runs: makespan (relative), mean wait (s), bounded stretch (relative).

    Args:
        data: Folder of the reference data.
        starts_of: Gives the start times for the jobs of a workload file; the file is passed along.
        latency: Time that launching and tearing down adds to a run, in s.
    """
    errors = []
    for seed in range(1, 5):
        path = data / "oar_real_runs" / f"workload_seed{seed}.json"
        jobs = [changed(job, runtime=job.runtime + latency) for job in read_batsim(path, 1.0)]
        starts = starts_of(jobs, path)
        simulated = _figures(
            [(job.submit, start, start + job.runtime) for job, start in zip(jobs, starts, strict=True)]
        )
        for run in range(2):
            rows = read_table(data / "oar_real_runs" / f"real_seed{seed}_run{run}.csv")
            real = _figures(
                [(float(r["submission_time"]), float(r["starting_time"]), float(r["finish_time"])) for r in rows]
            )
            errors.append((simulated[0] / real[0] - 1, simulated[1] - real[1], simulated[2] / real[2] - 1))
    return errors


def _figures(jobs: list[tuple[float, float, float]]) -> tuple[float, float, float]:
    """Makespan, mean wait and mean stretch bounded at 60 s of jobs given by submission, start and finish."""
    makespan = max(finish for _, _, finish in jobs) - min(submit for submit, _, _ in jobs)
    wait = sum(start - submit for submit, start, _ in jobs) / len(jobs)
    stretch = sum(max(1.0, (finish - submit) / max(finish - start, 60.0)) for submit, start, finish in jobs)
    return makespan, wait, stretch / len(jobs)


def within_published_errors(errors: Sequence[tuple[float, float, float]], latency: float) -> bool:
    """Whether a simulator is as close to the real runs as the published one, with or without 2 s of latency a job."""
    makespan, wait, stretch = (0.0023, 2.3, 0.014) if latency else (0.0024, 7.5, 0.036)
    n = len(errors)
    return (
        max(abs(error[0]) for error in errors) <= 0.0104
        and sum(abs(error[0]) for error in errors) / n <= makespan
        and abs(sum(error[1] for error in errors)) / n <= wait
        and sum(abs(error[2]) for error in errors) / n <= stretch
    )


# Processors, nodes and cores


@dataclass(frozen=True)
class Processor:
    """`gflops` and `power` (W) are those of one core; `bandwidth` in GB/s is the processor's.

    The cores of a `gpu` are devices. `points` are the watts of a computing core by GHz, `ghz` is the nominal frequency.
    """

    node: int
    cores: int
    gflops: float
    power: float
    bandwidth: float = math.inf
    gpu: bool = False
    ghz: float = 1.0
    points: Mapping[float, float] = field(default_factory=dict)


@dataclass
class Platform:
    """Processors in order of their core ids, and the memory of each node in MB."""

    processors: list[Processor]
    memory: list[float]
    first_core: list[int] = field(init=False)
    #: Processor of each core.
    processor_of: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.first_core = [sum(p.cores for p in self.processors[:i]) for i in range(len(self.processors))]
        self.processor_of = [i for i, p in enumerate(self.processors) for _ in range(p.cores)]

    @cached_property
    def reference_gflops(self) -> float:
        """Mean speed of all cores that are no GPUs."""
        cpus = [p for p in self.processors if not p.gpu]
        return sum(p.gflops * p.cores for p in cpus) / sum(p.cores for p in cpus)


def read_platform(path: Path, types: Path | None = None) -> Platform:
    """Reads HDeepRM's platform format, with its type libraries in a folder or inline."""
    content = json.loads(path.read_text())
    if types is None:
        nodes, kinds = content["types"]["node"], content["types"]["processor"]
    else:
        nodes = json.loads((types / "node_types.json").read_text())
        kinds = json.loads((types / "processor_types.json").read_text())
    platform: list[Processor] = []
    memory: list[float] = []
    for cluster in content["clusters"]:
        for entry in cluster["nodes"]:
            node = nodes[entry["type"]]
            for _ in range(entry["number"]):
                for item in node["processors"]:
                    kind = kinds[item["type"]]
                    processor = Processor(
                        node=len(memory),
                        cores=kind["cores"],
                        gflops=kind["clock_rate"] * kind["dpflops_per_cycle"],
                        power=kind["power"] / kind["cores"],
                        bandwidth=kind.get("mem_bw", math.inf),
                        gpu=kind.get("type") == "GPU",
                    )
                    platform += [processor] * item["number"]
                memory.append(node["memory"]["capacity"] * 1000.0)
    return Platform(platform, memory)


JOB_RULES: dict[str, Callable[[Job], float]] = {
    "first": lambda job: job.submit,
    "shortest": lambda job: job.requested,
    "smallest": lambda job: job.cores,
    "low_mem": lambda job: job.memory,
    "low_mem_bw": lambda job: job.bandwidth,
}
CORE_RULES = ("high_gflops", "high_cores", "high_mem", "high_mem_bw", "low_power", "spread", "pack")

#: Share of a core's power in each P-state.
POWER = {"P0": 1.0, "P1": 1.0, "P2": 0.25, "P3": 0.05}


@dataclass
class Run:
    """A running or ended job: its progress is known at `since`, when `work` s at reference speed were left."""

    job: int
    start: float
    cores: list[int]
    processors: list[int]
    since: float
    work: float
    speed: float = 0.0
    finish: float = math.nan
    killed: bool = False

    def end(self) -> float:
        """When the job will end if nothing changes."""
        return self.since + self.work / self.speed


@dataclass
class Outcome:
    """What happened: runs by job, total energy in J, and the changes of P-state of each core as (time, state)."""

    runs: dict[int, Run]
    energy: float
    states: dict[int, list[tuple[float, str]]]
    instants: list[float]
    oversubscribed: list[tuple[int, float, float]]

    def job_energy(self, job: int, platform: Platform, decimals: int | None = None) -> float:
        """Energy in J of a job's cores while it ran, with watts a core rounded to some decimals if asked for."""
        run = self.runs[job]
        powers = [platform.processors[p].power for p in run.processors]
        if decimals is not None:
            powers = [round(power, decimals) for power in powers]
        return sum(powers) * (run.finish - run.start)


@cache
def _exact(megabytes: float) -> int | float | Fraction:
    """An amount of memory as the decimal number it stands for, so that what is given back is what was taken."""
    if math.isinf(megabytes):
        return megabytes
    return int(megabytes) if megabytes == int(megabytes) else Fraction(str(megabytes))


def parts_of(job: Job) -> tuple[int, int, int]:
    """Number of the equal parts of a job, and the cores and the GPUs of each."""
    parts = max(k for k in range(1, job.cores + 1) if job.cores % k == 0 and job.gpus % k == 0)
    return parts, job.cores // parts, job.gpus // parts


class Cluster:
    """Free cores, free memory and bandwidth demands of a platform, looked at afresh by every question."""

    def __init__(self, platform: Platform, contended: bool) -> None:
        self.platform = platform
        self.contended = contended
        self.down: set[int] = set()
        #: Cores that the job being placed may still take on a node; nodes not named are without limit.
        self.limit: dict[int, int] = {}
        self.idle = [list(range(f, f + p.cores)) for f, p in zip(platform.first_core, platform.processors, strict=True)]
        #: Processors that are no GPUs, one of each speed, and idle cores of each node that are none.
        self.cpus = [(i, p) for i, p in enumerate(platform.processors) if not p.gpu]
        self.kinds = list({p.gflops: i for i, p in self.cpus}.values())
        self.idle_cores = [sum(p.cores for _, p in self.cpus if p.node == n) for n in range(len(platform.memory))]
        self.memory = [_exact(capacity) for capacity in platform.memory]
        # Kept as one running difference, core by core, because HDeepRM does so: with a bandwidth such as 59.7 GB/s the
        # rounding decides which of two equally loaded processors has the most left.
        self.bandwidth = [processor.bandwidth for processor in platform.processors]
        self.keys: dict[str, Callable[[int, Processor], Any]] = {
            "high_gflops": lambda i, p: p.gflops,
            "high_cores": lambda i, p: len(self.idle[i]),
            "high_mem": lambda i, p: self.memory[p.node],
            "high_mem_bw": lambda i, p: self.bandwidth[i],
            "low_power": lambda i, p: -p.power,
            "spread": lambda i, p: (self._idle_on(p.node), len(self.idle[i])),
            # The lowest of the cores of the node that `_packed` has chosen.
            "pack": lambda i, p: 0,
        }

    def best(self, job: Job, rule: str, nodes: Sequence[int] | None = None) -> int | None:
        """The processor that gives the next core to a job: the best key, the lowest id among equals.

        Args:
            job: The job.
            rule: One of `CORE_RULES`.
            nodes: Those to choose from, None for all.
        """
        memory, key = _exact(job.memory), self.keys[rule]
        eligible = [
            (key(i, p), -i)
            for i, p in self.cpus
            if self.idle[i]
            and self.memory[p.node] >= memory
            and (nodes is None or p.node in nodes)
            and p.node not in self.down
            and self.limit.get(p.node, 1) > 0
        ]
        return -max(eligible)[1] if eligible else None

    def take(self, job: Job, core: int, processor: int) -> None:
        """Gives one core to a job."""
        self.idle[processor].remove(core)
        owner = self.platform.processors[processor]
        if not owner.gpu:
            self.idle_cores[owner.node] -= 1
            self.memory[owner.node] -= _exact(job.memory)
            self.bandwidth[processor] -= job.bandwidth

    def give_back(self, job: Job, core: int, processor: int) -> None:
        """Takes one core back from a job."""
        insort(self.idle[processor], core)
        owner = self.platform.processors[processor]
        if not owner.gpu:
            self.idle_cores[owner.node] += 1
            self.memory[owner.node] += _exact(job.memory)
            self.bandwidth[processor] += job.bandwidth

    def allocate(
        self, job: Job, rule: str, limit: Mapping[int, int] | None = None
    ) -> tuple[list[int], list[int]] | None:
        """Gives a job its cores one at a time; all or none.

        A job that asks for GPUs consists of equal parts, as many as its cores and its GPUs can be divided into. The
        first core of a part decides on which node the whole part is. `limit` has the most cores on a node, for a job
        without GPUs.
        """
        self.limit = dict(limit or {})
        given = self._allocate(job, rule)
        self.limit = {}
        return given

    def _allocate(self, job: Job, rule: str) -> tuple[list[int], list[int]] | None:
        if not self.has_room(job):
            return None
        given: list[tuple[int, int]] = []
        parts, cores_each, gpus_each = parts_of(job)
        packed = self._packed(job, parts, cores_each, gpus_each) if rule == "pack" else []
        for part in range(parts):
            nodes: Sequence[int] | None = None if not job.gpus else self._with_room(job, cores_each, gpus_each)
            if rule == "pack":
                nodes = packed[part : part + 1]
            for _ in range(cores_each):
                processor = self.best(job, rule, nodes)
                if processor is None:
                    for core, owner in given:
                        self.give_back(job, core, owner)
                    return None
                if job.gpus:
                    nodes = [self.platform.processors[processor].node]
                core = self.idle[processor][0]
                self.take(job, core, processor)
                given.append((core, processor))
                node = self.platform.processors[processor].node
                if node in self.limit:
                    self.limit[node] -= 1
            for _ in range(gpus_each):
                assert nodes is not None
                gpu, owner = min((core, p) for core, p in self._idle_gpus(nodes[0]))
                self.take(job, gpu, owner)
                given.append((gpu, owner))
        given.sort()
        return [core for core, _ in given], [processor for _, processor in given]

    def _with_room(self, job: Job, cores: int, gpus: int) -> list[int]:
        """Nodes that can give so many cores, their memory and so many GPUs."""
        nodes = range(len(self.memory))
        return [node for node in nodes if self.room(node, job) >= cores and len(self._idle_gpus(node)) >= gpus]

    def _packed(self, job: Job, parts: int, cores: int, gpus: int) -> list[int]:
        """The node of each part of a job: all that those with most room can take, then the fullest that takes the rest.

        There are fewer nodes than parts where the job does not fit.
        """
        room = {
            node: int(
                min(
                    self.room(node, job) // cores,
                    self.limit.get(node, math.inf),
                    len(self._idle_gpus(node)) // gpus if gpus else math.inf,
                )
            )
            for node in range(len(self.memory))
        }
        chosen: list[int] = []
        while len(chosen) < parts and any(room.values()):
            rest = parts - len(chosen)
            holding = [node for node in room if room[node] >= rest]
            node = min(holding, key=self._idle_on) if holding else max(room, key=lambda node: room[node])
            chosen += [node] * min(rest, room.pop(node))
        return chosen

    def has_room(self, job: Job) -> bool:
        """Whether the nodes together can give the cores of a job with their memory, whatever else it needs."""
        return sum(self.room(node, job) for node in range(len(self.memory))) >= job.cores

    def room(self, node: int, job: Job) -> float:
        """Cores that a node can give to a job with their memory."""
        idle = self._idle_on(node)
        return min(idle, self.memory[node] // _exact(job.memory)) if job.memory else idle

    def _idle_on(self, node: int) -> int:
        return 0 if node in self.down else self.idle_cores[node]

    def _idle_gpus(self, node: int) -> list[tuple[int, int]]:
        """Idle GPUs of a node, each with its processor."""
        processors = enumerate(self.platform.processors)
        return [(gpu, i) for i, p in processors if p.node == node and p.gpu for gpu in self.idle[i]]

    def occupy(self, job: Job, cores: Sequence[int]) -> tuple[list[int], list[int]] | None:
        """Gives a job the cores named, if each is idle and has the memory when its turn comes.

        They must be what the job asks for, and on every node as many GPUs to the cores as in the whole job.
        """
        processors = [self.platform.processor_of[core] for core in cores]
        kinds = [(self.platform.processors[p].node, self.platform.processors[p].gpu) for p in processors]
        for node in {node for node, _ in kinds}:
            if kinds.count((node, True)) * job.cores != kinds.count((node, False)) * job.gpus:
                return None
        if sum(gpu for _, gpu in kinds) != job.gpus or len(kinds) != job.cores + job.gpus:
            return None
        for k, (core, processor) in enumerate(zip(cores, processors, strict=True)):
            node = self.platform.processors[processor].node
            needed = 0 if self.platform.processors[processor].gpu else _exact(job.memory)
            if core not in self.idle[processor] or self.memory[node] < needed:
                for other, owner in zip(cores[:k], processors[:k], strict=True):
                    self.give_back(job, other, owner)
                return None
            self.take(job, core, processor)
        return list(cores), processors

    def release(self, job: Job, run: Run) -> None:
        """Takes all cores of a job back."""
        for core, processor in zip(run.cores, run.processors, strict=True):
            self.give_back(job, core, processor)

    def over(self, processor: int) -> bool:
        """Whether the busy cores of a processor ask for more bandwidth than it has."""
        return self.contended and self.bandwidth[processor] < 0

    def peak(self, job: Job, processors: Sequence[int]) -> float:
        """Progress in seconds at reference speed per second of a job that nothing slows down."""
        if job.fixed:
            return 1.0
        owners = [self.platform.processors[p] for p in processors]
        return min(owner.gflops for owner in owners if not owner.gpu) / self.platform.reference_gflops

    def speed(self, job: Job, run: Run) -> float:
        """Progress in seconds at reference speed per second: that of the slowest core."""
        if job.fixed:
            return 1.0
        owners = [(p, self.platform.processors[p]) for p in run.processors]
        slowest = min(owner.gflops * (0.75 if self.over(p) else 1.0) for p, owner in owners if not owner.gpu)
        return slowest / self.platform.reference_gflops

    def states(self) -> Iterator[tuple[int, float, str]]:
        """Core, power per core at full speed in W, and P-state of every core on a node that is up."""
        for i, processor in enumerate(self.platform.processors):
            idle = len(self.idle[i])
            if processor.node in self.down:
                continue
            for core in range(self.platform.first_core[i], self.platform.first_core[i] + processor.cores):
                if core not in self.idle[i]:
                    yield core, processor.power, "P1" if self.over(i) else "P0"
                else:
                    yield core, processor.power, "P3" if idle == processor.cores else "P2"


def replay(
    platform: Platform,
    jobs: Sequence[Job],
    job_rule: str,
    core_rule: str,
    *,
    threshold: bool = False,
    kill_at_walltime: bool = False,
    observed: Mapping[int, tuple[float, Sequence[int]]] | None = None,
) -> Outcome:
    """Runs the policy pair `job_rule`-`core_rule`.

    A random rule may do anything within its limits, so the reference cannot foretell it; it follows what was `observed`
    instead (start in s and ascending core ids of each job) and raises where that could not have been drawn.

    Args:
        platform: The platform.
        jobs: In order of submission.
        job_rule: A key of `JOB_RULES`, or "random".
        core_rule: One of `CORE_RULES`, or "random".
        threshold: Cores of a processor with oversubscribed bandwidth run at 75 %.
        kill_at_walltime: A job is killed once it has run for its walltime.
        observed: What happened in the run that is checked.

    Raises:
        AssertionError: `observed` breaks a rule.
    """
    cluster = Cluster(platform, threshold)
    queue: list[int] = []
    running: dict[int, Run] = {}
    ended: dict[int, Run] = {}
    state = {core: "P3" for core, _, _ in cluster.states()}
    changes: dict[int, list[tuple[float, str]]] = {core: [(0.0, "P3")] for core in state}
    watts = sum(power * POWER[name] for _, power, name in cluster.states())
    over_since: dict[int, float] = {}
    oversubscribed: list[tuple[int, float, float]] = []
    instants: list[float] = []
    energy = now = 0.0
    arrived = 0

    def deadline(run: Run) -> float:
        return run.start + jobs[run.job].walltime if kill_at_walltime else math.inf

    def place(job: int) -> tuple[list[int], list[int]] | None:
        if core_rule != "random":
            return cluster.allocate(jobs[job], core_rule)
        assert observed is not None
        if job in observed and observed[job][0] == now:
            cores = cluster.occupy(jobs[job], observed[job][1])
            assert cores is not None, f"job {job} was given cores that were not to be had at {now}"
            return cores
        possible = cluster.allocate(jobs[job], "high_gflops")
        if possible is None:
            return None
        for core, processor in zip(*possible, strict=True):
            cluster.give_back(jobs[job], core, processor)
        raise AssertionError(f"job {job} could have started at {now}")

    def begin(job: int, cores: list[int], processors: list[int]) -> None:
        queue.remove(job)
        running[job] = Run(job, now, cores, processors, since=now, work=jobs[job].runtime)

    def random_pass() -> None:
        """The jobs observed to start now must be startable in some order, after which some job must be in the way."""
        assert observed is not None
        due = [job for job in queue if job in observed and observed[job][0] == now]

        def follow(left: list[int]) -> list[tuple[int, list[int], list[int]]] | None:
            if not left:
                return []
            for job in left:
                given = cluster.allocate(jobs[job], core_rule) if core_rule != "random" else place(job)
                if given is None:
                    continue
                if given[0] == list(observed[job][1]):
                    rest = follow([other for other in left if other != job])
                    if rest is not None:
                        return [(job, *given), *rest]
                for core, processor in zip(*given, strict=True):
                    cluster.give_back(jobs[job], core, processor)
            return None

        order = follow(due)
        assert order is not None, f"jobs {due} cannot have been started at {now} on the cores they got"
        for job, cores, processors in order:
            begin(job, cores, processors)
        blocked = not queue
        for job in queue:
            given = cluster.allocate(jobs[job], "high_gflops")
            if given is None:
                blocked = True
                break
            for core, processor in zip(*given, strict=True):
                cluster.give_back(jobs[job], core, processor)
        assert blocked, f"every job of the queue could have been started at {now}, and none was"

    while arrived < len(jobs) or running:
        upcoming = [min(run.end(), deadline(run)) for run in running.values()]
        then = min(upcoming + [job.submit for job in jobs[arrived : arrived + 1]])
        energy += watts * (then - now)
        now = then
        instants.append(now)
        for job, run in list(running.items()):
            if run.end() <= now or deadline(run) <= now:
                run.finish = now
                # A delay as long as the walltime reaches it, a computation completes.
                run.killed = run.end() >= deadline(run) if jobs[job].fixed else run.end() > deadline(run)
                cluster.release(jobs[job], run)
                ended[job] = running.pop(job)
        while arrived < len(jobs) and jobs[arrived].submit == now:
            queue.append(arrived)
            arrived += 1
        if job_rule == "random":
            random_pass()
        else:
            while queue:
                head = min(queue, key=lambda job: (JOB_RULES[job_rule](jobs[job]), job))
                given = place(head)
                if given is None:
                    break
                begin(head, *given)
        for job, run in running.items():
            speed = cluster.speed(jobs[job], run)
            if speed != run.speed:
                run.work -= (now - run.since) * run.speed
                run.since, run.speed = now, speed
        watts = 0.0
        for core, power, name in cluster.states():
            watts += power * POWER[name]
            if name != state[core]:
                state[core] = name
                changes[core].append((now, name))
        for i in range(len(platform.processors)):
            if cluster.over(i):
                over_since.setdefault(i, now)
            elif i in over_since:
                oversubscribed.append((i, over_since.pop(i), now))
    assert not queue, "jobs are left that can never run"
    return Outcome(ended, energy, changes, instants, sorted(oversubscribed))


# Schedulers on nodes, contention of three models, failures and resizes, as docs/ describe them


def shares_threshold(demands: Sequence[float], bandwidth: float) -> list[float]:
    """Every busy core runs at 75 % while the processor is oversubscribed."""
    return [0.75 if sum(demands) > bandwidth else 1.0] * len(demands)


def shares_fair(demands: Sequence[float], bandwidth: float) -> list[float]:
    """The bandwidth is divided max-min fairly; a core that gets a of its demand y runs at a / y."""
    shares = [1.0] * len(demands)
    left = bandwidth
    order = sorted(range(len(demands)), key=lambda i: demands[i])
    for done, i in enumerate(order):
        got = min(demands[i], left / (len(order) - done))
        left -= got
        shares[i] = got / demands[i] if demands[i] > 0 else 1.0
    return shares


def shares_smoothstep(demands: Sequence[float], bandwidth: float) -> list[float]:
    """The curve of docs/models.md with its default constants, which are shares of the bandwidth, and 9 digits."""
    c, b, da, db, dc, dd = bandwidth, -0.6 / bandwidth, 0.1 * bandwidth, 0.0, 0.5 * bandwidth, 0.0
    total, n = sum(demands), len(demands) - 1

    def share(own: float) -> float:
        u = (own - (da - n * db)) / (dc - n * dd)
        s = 1.0 if u < 0 else 0.0 if u > 1 else 1 - u**3 * (u * (6 * u - 15) + 10)
        d = s * 0.6 * n / (1 + 0.6 * n) + 1 / (1 + 0.6 * n)
        if total < c:
            return 1.0
        return d if total > (d + b * c - 1) / b else b * (total - c) + 1

    return [round(share(own), 9) for own in demands]


CONTENTION: dict[str, Callable[[Sequence[float], float], list[float]]] = {
    "none": lambda demands, bandwidth: [1.0] * len(demands),
    "threshold": shares_threshold,
    "fair_share": shares_fair,
    "smoothstep": shares_smoothstep,
}


@dataclass
class Attempt:
    """A start of a job: `pieces` are (begin, end, cores) between resizes; `work` is what is left, times in s.

    `ghz` is the frequency of its cores.
    """

    job: int
    start: float
    cores: list[int]
    processors: list[int]
    expected: float
    work: float
    since: float
    ghz: float
    rate: float = 0.0
    pieces: list[tuple[float, float, int]] = field(default_factory=list)
    end: float = math.nan
    state: str = "running"

    def due(self) -> float:
        """When it will complete if nothing changes."""
        return self.since + self.work / self.rate if self.work > 0 else self.since


@dataclass(frozen=True)
class Outage:
    """A node is down, s."""

    node: int
    down: float
    up: float


@dataclass(frozen=True)
class Sleep:
    """Watts of a node in its states, beside its processors while it is `on` or `idle`, and the seconds of changes."""

    on: float
    idle: float
    down: float
    off: float
    boot: float
    going_down: float
    booting: float


@dataclass
class Site:
    """A machine with running and queued jobs; `decide(site)` is called once an instant.

    Args:
        platform: The platform.
        jobs: In order of submission.
        decide: The scheduler.
        contention: A key of `CONTENTION`.
        kill_at_walltime: A job is killed once it has run for its walltime.
        outages: Of nodes; those of a node do not overlap.
        interval: Work between two checkpoints, s at reference speed; infinite: an interrupted job begins again.
        max_restarts: A job restarted so often fails with the next failure.
        frequency: Frequency of all jobs in GHz, None for the nominal one.
        cap: Steps (s, W) of the cap on the power of the machine, the first at 0; none: there is no cap.
        soft: The cap is only measured. A hard one is for schedulers without reservations.
        slows: A job that would break the cap starts at the highest frequency at which it does not.
        sleep: States of each node, where nodes sleep, for schedulers without reservations.
        timeout: Seconds after which an idle node goes down.
        found: Cores of each (job, restarts) in the replay that is checked: followed where the documents tell that a
            candidate of EASY starts and not on which cores.

    Raises:
        AssertionError: A candidate was not `found` there or has cores that delay the head.
    """

    platform: Platform
    jobs: Sequence[Job]
    decide: Callable[[Site], None]
    contention: str = "none"
    kill_at_walltime: bool = False
    outages: Sequence[Outage] = ()
    interval: float = math.inf
    max_restarts: int = 100
    frequency: float | None = None
    cap: Sequence[tuple[float, float]] = ()
    soft: bool = False
    slows: bool = False
    sleep: Sequence[Sleep] = ()
    timeout: float = math.inf
    found: Mapping[tuple[int, int], list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.cluster = Cluster(self.platform, contended=True)
        self.now = 0.0
        self.queue: list[int] = []
        self.running: dict[int, Attempt] = {}
        self.attempts: list[Attempt] = []
        self.left = [job.runtime for job in self.jobs]
        self.restarts = [0] * len(self.jobs)
        self.nominal = self.platform.processors[0].ghz
        self.ghz = self.frequency or self.nominal
        #: Jobs with the requested times that schedulers see.
        self.seen = [changed(job, requested=job.requested * job.stretch(self.nominal / self.ghz)) for job in self.jobs]
        #: (time, W, W above the cap, cores held, GPUs held) behind each instant.
        self.power: list[tuple[float, float, float, int, int]] = []
        #: Jobs that hold cores and wait for their nodes.
        self.starting: dict[int, Attempt] = {}
        # "up", "down" (going down), "off" or "boot"; since when a node is idle; when one that goes down is off, and one
        # that has been asked to boot up.
        self.state = ["up"] * len(self.platform.memory)
        self.idle_since, self.off_at, self.up_at = ([0.0] * len(self.platform.memory) for _ in range(3))
        #: Scores of the jobs under orders that do not depend on time.
        self.scores: dict[str, list[float]] = {}
        #: (job, restarts) of the candidates of EASY that must start on cores which the documents do not tell.
        self.searched: list[tuple[int, int]] = []

    # What a scheduler may do

    def start(self, job: int, given: tuple[list[int], list[int]]) -> None:
        """Starts a job on cores that the cluster has given it."""
        self.queue.remove(job)
        ghz = self._allowed(job, given)
        assert ghz is not None
        run = Attempt(job, self.now, *given, self._expected(job, given, ghz), self.left[job], self.now, ghz)
        for node in {self.platform.processors[p].node for p in run.processors}:
            if self.state[node] == "off":
                self.state[node] = "boot"
                self.up_at[node] = self.now + self.sleep[node].booting
            elif self.state[node] == "down" and self.up_at[node] == math.inf:
                self.up_at[node] = self.off_at[node] + self.sleep[node].booting
            if self.state[node] != "up":
                run.start = run.since = max(run.start, self.up_at[node])
        (self.running if run.start == self.now else self.starting)[job] = run
        self.attempts.append(run)

    def place(self, job: int, rule: str, limit: Mapping[int, int] | None = None) -> tuple[list[int], list[int]] | None:
        """Cores for a job, taken at once."""
        if self.sleep:
            limit = self._not_needed(self.jobs[job])
        given = self.cluster.allocate(self.jobs[job], rule, limit)
        if given is not None and self._allowed(job, given) is None:
            self.return_cores(job, given)
            return None
        return given

    def _expected(self, job: int, given: tuple[list[int], list[int]], ghz: float) -> float:
        """When a job that starts now is expected to end."""
        spec = self.jobs[job]
        return self.now + spec.requested * spec.stretch(self.nominal / ghz) / self.cluster.peak(spec, given[1])

    def limit(self) -> float:
        """The present cap, W."""
        return next((watts for begin, watts in reversed(self.cap) if begin <= self.now), math.inf)

    def _allowed(self, job: int, given: tuple[list[int], list[int]]) -> float | None:
        """The highest frequency, at most that of all jobs, at which a job can begin on cores under the cap, if any."""
        lower = [ghz for ghz in self.platform.processors[0].points if ghz < self.ghz] if self.slows else []
        return next((ghz for ghz in [self.ghz, *sorted(lower, reverse=True)] if self._fits(job, given, ghz)), None)

    def _fits(self, job: int, given: tuple[list[int], list[int]], ghz: float) -> bool:
        """Whether a start now breaks the cap neither now nor at a later step, if jobs that run end when expected.

        One that has not ended when expected goes on.
        """
        if self.soft or not self.cap:
            return True
        end, more = self._expected(job, given, ghz), dict.fromkeys(given[0], ghz)
        for time, cap in [(self.now, self.limit()), *(step for step in self.cap if self.now < step[0] < end)]:
            runs = [run for run in self.running.values() if time == self.now or not self.now < run.expected <= time]
            if self._watts(runs, more, self.cluster.down) > cap + 1e-9:
                return False
        return True

    def _not_needed(self, job: Job) -> dict[int, int]:
        """No cores on the nodes that are not up, but for the fewest: those that boot, then are off, then go down."""
        room = [self.cluster.room(node, job) for node in range(len(self.state))]
        up = {node for node, state in enumerate(self.state) if state == "up"}

        def last(node: int) -> tuple[Any, ...]:
            rank = 0 if self.up_at[node] < math.inf else 1 if self.state[node] == "off" else 2
            return rank, self.sleep[node].booting, node

        for node in sorted((node for node in range(len(room)) if node not in up and room[node] > 0), key=last):
            if sum(room[other] for other in up) < job.cores:
                up.add(node)
        return {node: 0 for node in range(len(room)) if node not in up}

    def serves(self, node: int) -> bool:
        """Whether a job holds cores of a node."""
        return any(len(self.cluster.idle[i]) < p.cores for i, p in self.cluster.cpus if p.node == node)

    def _watts(
        self, runs: Collection[Attempt], more: Mapping[int, float] | None = None, idle: Collection[int] = ()
    ) -> float:
        """Power of the nodes that are not out of service, W.

        Args:
            runs: The running jobs.
            more: GHz of cores that are to compute beside those of running jobs.
            idle: Nodes that are out of service and count as idle.
        """
        ghz = {core: run.ghz for run in runs for core in run.cores} | dict(more or {})
        watts = 0.0
        for node, sleep in enumerate(self.sleep):
            computes = any(self.platform.processors[self.platform.processor_of[core]].node == node for core in ghz)
            watts += getattr(sleep, self.state[node].replace("up", "on" if computes else "idle"))
        for first, processor in zip(self.platform.first_core, self.platform.processors, strict=True):
            cores = range(first, first + processor.cores)
            node = processor.node
            if self.state[node] != "up" or (node in self.cluster.down and node not in idle):
                continue
            rest = processor.power * POWER["P2" if any(core in ghz for core in cores) else "P3"]
            for core in cores:
                watts += processor.points.get(ghz[core], processor.power) if core in ghz else rest
        return watts

    def return_cores(self, job: int, given: tuple[list[int], list[int]]) -> None:
        """Undoes `place`."""
        for core, processor in zip(*given, strict=True):
            self.cluster.give_back(self.jobs[job], core, processor)

    def resize(self, job: int, cores: Sequence[int]) -> None:
        """Gives a running job exactly these cores."""
        run, spec = self.running[job], self.jobs[job]
        self._advance(run)
        run.pieces.append((run.pieces[-1][1] if run.pieces else run.start, self.now, len(run.cores)))
        self.return_cores(job, (run.cores, run.processors))
        run.cores = sorted(cores)
        run.processors = [self.platform.processor_of[core] for core in run.cores]
        for core, processor in zip(run.cores, run.processors, strict=True):
            self.cluster.take(spec, core, processor)

    def set_frequency(self, job: int, ghz: float) -> None:
        """Has a running job at another frequency."""
        run = self.running[job]
        self._advance(run)
        run.ghz = ghz

    # How time passes

    def _advance(self, run: Attempt) -> None:
        run.work -= (self.now - run.since) * run.rate
        run.since = self.now

    def _leave(self, run: Attempt, state: str) -> None:
        begin = run.pieces[-1][1] if run.pieces else run.start
        run.pieces.append((begin, self.now, len(run.cores)))
        run.end, run.state = self.now, state
        self.return_cores(run.job, (run.cores, run.processors))
        del self.running[run.job]
        for node in {self.platform.processors[p].node for p in run.processors}:
            self.idle_since[node] = self.now

    def _interrupt(self, run: Attempt) -> None:
        job, spec = run.job, self.jobs[run.job]
        self._advance(run)
        self._leave(run, "interrupted")
        if self.restarts[job] == self.max_restarts:
            run.state = "failed"
            return
        self.restarts[job] += 1
        done = spec.runtime - run.work
        kept = done // self.interval * self.interval if self.interval < math.inf else 0.0
        self.left[job] = spec.runtime - kept
        self.queue.append(job)

    def _rates(self) -> None:
        shares: dict[tuple[int, int], float] = {}
        held: list[list[int]] = [[] for _ in self.platform.processors]
        for job, run in self.running.items():
            for p in run.processors:
                if not self.platform.processors[p].gpu:
                    held[p].append(job)
        for i, processor in enumerate(self.platform.processors):
            found = CONTENTION[self.contention]([self.jobs[job].bandwidth for job in held[i]], processor.bandwidth)
            shares.update(zip([(job, i) for job in held[i]], found, strict=True))
        for job, run in self.running.items():
            spec = self.jobs[job]
            rate = 1.0
            if not spec.fixed:
                owners = [(p, self.platform.processors[p]) for p in run.processors]
                slowest = min(owner.gflops * shares[job, p] for p, owner in owners if not owner.gpu)
                rate = slowest / self.platform.reference_gflops * (len(run.cores) / (spec.cores + spec.gpus))
                rate /= spec.stretch(self.nominal / run.ghz)
            if rate != run.rate:
                self._advance(run)
                run.rate = rate

    def _next_change(self, node: int) -> float:
        """When the state of a node changes if no job asks for it."""
        if self.state[node] == "up":
            return math.inf if self.serves(node) else self.idle_since[node] + self.timeout
        return {"down": self.off_at, "off": [math.inf] * (node + 1), "boot": self.up_at}[self.state[node]][node]

    def _change(self, node: int) -> None:
        if self.state[node] == "up":
            self.state[node] = "down"
            self.off_at[node], self.up_at[node] = self.now + self.sleep[node].going_down, math.inf
        elif self.state[node] == "down":
            self.state[node] = "boot" if self.up_at[node] < math.inf else "off"
        else:
            self.state[node] = "up"

    def run(self) -> Site:
        """Until every job has ended."""
        arrived = 0
        changes = sorted({time for outage in self.outages for time in (outage.down, outage.up)})

        def limit(run: Attempt) -> float:
            return run.start + self.jobs[run.job].walltime if self.kill_at_walltime else math.inf

        while arrived < len(self.jobs) or self.running or self.queue or self.starting:
            ends = [(min(run.due(), limit(run)), run) for run in self.running.values()]
            times = [end for end, _ in ends]
            times += [job.submit for job in self.jobs[arrived : arrived + 1]] + changes[:1]
            # No pass is made where the cap falls or a node begins to go down, nor at other changes of nodes without
            # a cap.
            silent = [time for time, _ in self.cap if time > self.now]
            for node in range(len(self.sleep)):
                calls = self.cap and not self.soft and self.state[node] != "up"
                (times if calls else silent).append(self._next_change(node))
            only_silent, before = min(silent, default=math.inf) < min(times, default=math.inf), self.limit()
            times += silent
            assert times, f"jobs {self.queue} are left that can never run"
            self.now = min(times)
            # Nodes of jobs that end now are idle in the pass, also where the time-out is 0.
            changing = [node for node in range(len(self.sleep)) if self._next_change(node) <= self.now]
            for end, run in ends:
                if end <= self.now:
                    fixed = self.jobs[run.job].fixed
                    late = run.due() >= limit(run) if fixed else run.due() > limit(run) + 1e-12 * self.now
                    self._leave(run, "killed" if late else "completed")
            for node in changing:
                self._change(node)
            for job, run in list(self.starting.items()):
                if run.start <= self.now:
                    self.running[job] = self.starting.pop(job)
            changes = [time for time in changes if time > self.now]
            for outage in self.outages:
                if outage.up == self.now:
                    self.cluster.down.discard(outage.node)
            for outage in self.outages:
                if outage.down == self.now:
                    self.cluster.down.add(outage.node)
                    for run in list(self.running.values()):
                        if any(self.platform.processors[p].node == outage.node for p in run.processors):
                            self._interrupt(run)
            while arrived < len(self.jobs) and self.jobs[arrived].submit == self.now:
                self.queue.append(arrived)
                arrived += 1
            if not only_silent or (self.limit() > before and not self.soft):
                self.decide(self)
            self._rates()
            held = [self.platform.processors[p].gpu for run in self.running.values() for p in run.processors]
            watts = self._watts(self.running.values())
            self.power.append((self.now, watts, max(0.0, watts - self.limit()), held.count(False), held.count(True)))
        return self

    # What comes out

    def starts(self) -> dict[tuple[int, int], Attempt]:
        """Each start of a job, by (job, restarts)."""
        runs: dict[tuple[int, int], Attempt] = {}
        count = [0] * len(self.jobs)
        for run in self.attempts:
            runs[run.job, count[run.job]] = run
            count[run.job] += 1
        return runs

    def last(self) -> dict[int, Attempt]:
        """The last start of each job."""
        return {run.job: run for run in self.attempts}

    def figures(self) -> dict[str, float]:
        """Metrics by hdsim's names."""
        runs = self.last()
        finish = max(run.end for run in runs.values())
        values: dict[str, list[float]] = {}
        for index, job in enumerate(self.jobs):
            run = runs[index]
            execution, turnaround = run.end - run.start, run.end - job.submit
            for key, value in {
                "waiting_time": run.start - job.submit,
                "turnaround_time": turnaround,
                "execution_time": execution,
                "slowdown": max(1.0, turnaround / (execution or 1.0)),
                "bounded_slowdown": max(1.0, turnaround / max(execution, 10.0)),
                "per_processor_slowdown": max(1.0, turnaround / (job.cores * max(execution, 10.0))),
                "reference_slowdown": max(1.0, turnaround / max(job.runtime, 10.0)),
                "user_slowdown": turnaround / (job.requested or 1.0),
            }.items():
                values.setdefault(key, []).append(value)
        figures = {}
        for key, row in values.items():
            figures[f"mean_{key}"] = math.fsum(row) / len(row)
            for name, share in (("median", 0.5), ("p95", 0.95), ("p99", 0.99), ("max", 1.0)):
                figures[f"{name}_{key}"] = percentile(row, share)
        makespan = finish - self.jobs[0].submit
        after = [*(time for time, *_ in self.power[1:]), math.inf]
        spans = [
            (min(end, finish) - begin, *amounts)
            for (begin, *amounts), end in zip(self.power, after, strict=True)
            if begin < finish
        ]

        def integral(column: int) -> float:
            return math.fsum(span[0] * span[column] for span in spans)

        energy = integral(1)
        gpus = sum(p.cores for p in self.platform.processors if p.gpu)
        cores = sum(p.cores for p in self.platform.processors) - gpus
        figures |= {
            "makespan": makespan,
            "utilization": integral(3) / (cores * makespan),
            "energy_joules": energy,
            "edp": energy * makespan,
            "ed2p": energy * makespan**2,
            "peak_power_watts": max(span[1] for span in spans if span[0] > 0),
            "throughput": len(self.jobs) / makespan * 3600,
        }
        if gpus:
            figures["gpu_utilization"] = integral(4) / (gpus * makespan)
        if self.cap:
            figures["seconds_above_cap"] = math.fsum(span[0] for span in spans if span[2] > 1e-9)
            figures["joules_above_cap"] = integral(2)
        return figures


def percentile(values: Sequence[float], share: float) -> float:
    """Linearly interpolated, as NumPy's."""
    row = sorted(values)
    at = share * (len(row) - 1)
    low = math.floor(at)
    high = min(low + 1, len(row) - 1)
    return row[low] + (row[high] - row[low]) * (at - low)


@dataclass(frozen=True)
class Classic:
    """An order of the queue, a core policy and a rule of backfilling.

    `candidates` orders the jobs behind the head under "easy" and behind those with reservations under a number of
    these, the reservations under "conservative".
    """

    order: str
    rule: str
    backfill: str | int = "none"
    candidates: str | None = None

    def __call__(self, site: Site) -> None:
        """One scheduling pass; nothing starts where no core is idle."""
        if not any(site.cluster.idle):
            return
        {"none": self._strict, "greedy": self._greedy, "easy": self._easy}.get(self.backfill, self._planned)(site)

    def _sorted(self, site: Site, order: str | None = None) -> list[int]:
        name = order or self.order
        score = SCORES[name]
        if name in DYNAMIC:
            return sorted(site.queue, key=lambda j: (score(site.seen[j], site.now - site.seen[j].submit), j))
        if name not in site.scores:
            site.scores[name] = [score(job, 0.0) for job in site.seen]
        scores = site.scores[name]
        return sorted(site.queue, key=lambda j: (scores[j], j))

    def _strict(self, site: Site) -> None:
        for job in self._sorted(site):
            given = site.place(job, self.rule)
            if given is None:
                return
            site.start(job, given)

    def _greedy(self, site: Site) -> None:
        for job in self._sorted(site):
            given = site.place(job, self.rule)
            if given is not None:
                site.start(job, given)

    def _planned(self, site: Site) -> None:
        """With reservations of all jobs or some, on equal cores without memory."""
        idle = sum(site.cluster._idle_on(node) for node in range(len(site.platform.memory)))
        running = [(run.expected, Amount(len(run.cores))) for run in site.running.values()]
        machine = Machine(site.now, Amount(idle), self._sorted(site), running)
        if isinstance(self.backfill, int):
            behind = self.candidates and self._sorted(site, self.candidates).index
            chosen = hybrid(machine, site.seen, self.backfill, behind or None)
        else:
            chosen = conservative(changed(machine, queue=self._sorted(site, self.candidates)), site.seen)
        for job in chosen:
            given = site.place(job, self.rule)
            assert given is not None
            site.start(job, given)

    def _easy(self, site: Site) -> None:
        hopeless = []
        order = self._sorted(site)
        for head in order:
            given = site.place(head, self.rule)
            if given is not None:
                site.start(head, given)
                continue
            shadow = self._shadow(site, head)
            if shadow < math.inf:
                break
            hopeless.append(head)
        else:
            return
        spared = Spared(site, head, shadow)
        behind = self._sorted(site, self.candidates) if self.candidates else order[order.index(head) :]
        for job in behind:
            if job not in [*hopeless, head]:
                given = self._beside(site, job, spared)
                if given is not None:
                    site.start(job, given)
                    spared = Spared(site, head, shadow)

    def _shadow(self, site: Site, head: int) -> float:
        """Earliest expected date at which the head fits; infinite on the nodes that are up."""
        left = _free(site)
        runs = sorted(site.running.values(), key=lambda run: run.expected)
        for run, later in zip(runs, [*runs, None][1:], strict=True):
            date = max(run.expected, site.now)
            _end(site, left, run)
            if later is None or later.expected > date:
                rooms = (_room(site.jobs[head], *amounts) for amounts in left.values())
                if sum(rooms) >= site.jobs[head].cores:
                    return date
        return math.inf

    def _beside(self, site: Site, job: int, spared: Spared) -> tuple[list[int], list[int]] | None:
        """Cores for a candidate that delays the head nowhere, taken; None if there are none."""
        spec = site.seen[job]
        size = spec.cores, spec.memory
        if size in spared.too_large:
            return None

        def in_time(processors: Sequence[int]) -> bool:
            return site.now + spec.requested / site.cluster.peak(spec, processors) <= spared.shadow

        # Where one of those that need the same and end in time on the same processors cannot start, none can.
        demand = spec.bandwidth if self.rule == "high_mem_bw" else 0.0
        alike = size, demand, spec.fixed, tuple(in_time([i]) for i in site.cluster.kinds)
        if alike in spared.refused:
            return None
        spared.refused.add(alike)
        given = site.place(job, self.rule)
        if given is None:
            spared.too_large.add(size)
            return None
        nodes = [site.platform.processors[processor].node for processor in given[1]]
        if in_time(given[1]) or sum(spared.loss(spec, n, nodes.count(n)) for n in set(nodes)) <= spared.margin:
            return given
        site.return_cores(job, given)
        if not spec.fixed:
            slow = {p.node: 0 for i, p in enumerate(site.platform.processors) if not in_time([i])}
            given = site.place(job, self.rule, slow)
            if given is not None:
                return given
        rooms = {node: min(site.cluster.room(node, spec), spec.cores) for node in spared.left}
        losses = {node: [spared.loss(spec, node, k) for k in range(int(room) + 1)] for node, room in rooms.items()}
        # Nodes give what costs the head nothing; then its margin is spent in whole steps of equal gain.
        limits = {node: max(k for k, lost in enumerate(lost) if lost == 0) for node, lost in losses.items()}
        left = spared.margin
        while sum(limits.values()) < spec.cores and left:
            steps = [
                (Fraction(k - limits[node], lost[k] - lost[limits[node]]), -node, k)
                for node, lost in losses.items()
                for k in range(limits[node] + 1, len(lost))
                if lost[k] <= spared.margin and lost[k] not in lost[k + 1 :]
            ]
            if not steps:
                break
            _, node, k = max(steps)
            cost = losses[-node][k] - losses[-node][limits[-node]]
            if cost > left:
                break
            left -= cost
            limits[-node] = k
        if sum(limits.values()) >= spec.cores:
            return site.place(job, self.rule, limits)
        # Complete search: the least loss for so many cores on the nodes looked at so far.
        least = {0: 0}
        for lost in losses.values():
            sums: dict[int, int] = {}
            for cores, total in least.items():
                for k, more in enumerate(lost[: spec.cores - cores + 1]):
                    sums[cores + k] = min(sums.get(cores + k, total + more), total + more)
            least = sums
        if least.get(spec.cores, math.inf) > spared.margin:
            return None
        # It starts; on which cores, the documents do not tell.
        site.searched.append((job, site.restarts[job]))
        cores = site.found.get(site.searched[-1], [])
        given = site.cluster.occupy(spec, cores)
        assert given is not None, f"job {job} should start at {site.now:.9g}, and was given cores {cores}"
        nodes = [site.platform.processors[processor].node for processor in given[1]]
        assert sum(spared.loss(spec, node, nodes.count(node)) for node in set(nodes)) <= spared.margin
        return given


def _free(site: Site) -> dict[int, tuple[int, Any]]:
    """Idle cores and free memory of each node that is up."""
    nodes = [node for node in range(len(site.platform.memory)) if node not in site.cluster.down]
    return {node: (site.cluster.idle_cores[node], site.cluster.memory[node]) for node in nodes}


def _end(site: Site, left: dict[int, tuple[int, Any]], run: Attempt) -> None:
    """Adds what a job holds to what is left."""
    memory = _exact(site.jobs[run.job].memory)
    for processor in run.processors:
        node = site.platform.processors[processor].node
        left[node] = left[node][0] + 1, left[node][1] + memory


def _room(job: Job, idle: int, free: Any) -> int:
    """Cores for a job on a node with so many idle cores and so much free memory."""
    memory = _exact(job.memory)
    return int(min(idle, free // memory)) if memory else idle


class Spared:
    """What candidates must leave the head of the queue at its shadow time, and what they may take, until one starts.

    `left` has idle cores and free memory of each node that is up once all jobs expected to end by then have, `margin`
    the cores for the head that it does not need. Candidates of sizes `too_large` do not fit; those like one `refused`
    leave too little.
    """

    def __init__(self, site: Site, head: int, shadow: float) -> None:
        self.head, self.shadow = site.jobs[head], shadow
        self.left = _free(site)
        for run in site.running.values():
            if run.expected <= shadow:
                _end(site, self.left, run)
        self.before = {node: _room(self.head, *amounts) for node, amounts in self.left.items()}
        self.margin = sum(self.before.values()) - self.head.cores
        self.too_large: set[tuple[int, float]] = set()
        self.refused: set[tuple[Any, ...]] = set()

    def loss(self, job: Job, node: int, cores: int) -> int:
        """Cores for the head on a node that are gone with so many of a job."""
        idle, memory = self.left[node]
        return self.before[node] - max(0, _room(self.head, idle - cores, memory - cores * _exact(job.memory)))


def elastic(site: Site) -> None:
    """Serves the queue in order; shrinks and grows jobs in the same pass as starts.

    Where a job does not fit, running jobs give the upper half of their cores, one after the other, until it fits.
    Without a queue the first running job takes the idle cores of its nodes. Where there are frequencies, that of the
    first job changes with the number of jobs.
    """

    def movable() -> list[int]:
        return [job for job, run in site.running.items() if run.start < site.now]

    resized: set[int] = set()
    for job in sorted(site.queue):
        given = site.place(job, "high_gflops")
        for other in sorted(movable()):
            run = site.running[other]
            if given is None and len(run.cores) > 1 and other not in resized:
                resized.add(other)
                site.resize(other, run.cores[: (len(run.cores) + 1) // 2])
                given = site.place(job, "high_gflops")
        if given is None:
            break
        site.start(job, given)
    points = sorted(site.platform.processors[0].points)
    if points and movable():
        first = min(movable())
        site.set_frequency(first, points[(first + len(site.queue) + len(site.running)) % len(points)])
    oldest = min((job for job in movable() if job not in resized), default=None)
    if not site.queue and oldest is not None:
        run, spec = site.running[oldest], site.jobs[oldest]
        nodes = {site.platform.processors[p].node for p in run.processors}
        extra = []
        memory = {node: site.cluster.memory[node] for node in nodes}
        for i, processor in enumerate(site.platform.processors):
            for core in site.cluster.idle[i] if processor.node in nodes else []:
                if memory[processor.node] >= _exact(spec.memory):
                    memory[processor.node] -= _exact(spec.memory)
                    extra.append(core)
        if extra:
            site.resize(oldest, [*run.cores, *extra])


def reported_energy(platform: Platform, outcome: Outcome) -> float:
    """The energy Batsim 4.2.1 reports for a run from 0 to its last instant.

    It differs from the true one in two ways. The platform's XML gives watts with three decimals; and every core counts
    as P0 until the first news of it after time 0, which is its first change of state or first job, or else the first
    query of energy after time 0, which comes with the next scheduling pass.
    """
    query = min(time for time in outcome.instants if time > 0)
    end = outcome.instants[-1]
    total = 0.0
    for i, processor in enumerate(platform.processors):
        watts = {state: round(processor.power * share, 3) for state, share in POWER.items()}
        for core in range(platform.first_core[i], platform.first_core[i] + processor.cores):
            states = outcome.states[core]
            for (since, state), (until, _) in zip(states, [*states[1:], (end, "")], strict=True):
                total += watts[state] * (until - since)
            change = states[1][0] if len(states) > 1 else math.inf
            total += (watts["P0"] - watts["P3"]) * min(change, query)
    return total


@cache
def batsim_run(data: Path, run: str) -> tuple[Platform, list[Job], Outcome]:
    """Platform, jobs and outcome of a recorded run of a policy pair, such as "gaia_div20_first-high_gflops"."""
    name, _, pair = run.replace("_div20", "").partition("_")
    platform = read_platform(data / "hdeeprm" / "platforms" / f"{name}.json", data / "hdeeprm" / "types")
    jobs = read_batsim(data / "batsim_runs" / run / "workload.json.gz", platform.reference_gflops)
    return platform, jobs, replay(platform, jobs, *pair.split("-"), threshold=True)


# What jobs held, where that changes while they run


@dataclass(frozen=True)
class Holding:
    """A job holds cores, GPUs among them, from `begin` to `end`, in s."""

    job: int
    attempt: int
    begin: float
    end: float
    cores: frozenset[int]


class Holdings:
    """Figures of a schedule given as holdings, each computed from one moment to the next and core by core."""

    def __init__(self, platform: Platform, holdings: Sequence[Holding], end: float) -> None:
        self.platform = platform
        self.holdings = holdings
        moments = sorted({0.0, end} | {time for held in holdings for time in (held.begin, held.end)})
        self.spans = list(pairwise(moments))
        self.owner = [index for index, processor in enumerate(platform.processors) for _ in range(processor.cores)]

    def busy(self, time: float) -> set[int]:
        """Cores and GPUs that are held at a moment."""
        return {core for held in self.holdings if held.begin <= time < held.end for core in held.cores}

    def energy(self) -> float:
        """Energy of all cores and GPUs, J."""
        total = 0.0
        for begin, end in self.spans:
            busy = self.busy(begin)
            working = {self.owner[core] for core in busy}
            for core, owner in enumerate(self.owner):
                state = "P0" if core in busy else "P2" if owner in working else "P3"
                total += POWER[state] * self.platform.processors[owner].power * (end - begin)
        return total

    def energy_of(self, job: int) -> float:
        """Energy of what a job held, J."""
        return sum(
            (held.end - held.begin) * sum(self.platform.processors[self.owner[core]].power for core in held.cores)
            for held in self.holdings
            if held.job == job
        )

    def core_seconds(self, *, gpus: bool = False) -> float:
        """Core-seconds, or GPU-seconds, that were held."""
        return sum(
            end - begin
            for begin, end in self.spans
            for core in self.busy(begin)
            if self.platform.processors[self.owner[core]].gpu == gpus
        )

    def states(self) -> list[tuple[float, int, int]]:
        """(time, idle, computing) cores and GPUs whenever their numbers change."""
        rows: list[tuple[float, int, int]] = []
        for begin in [begin for begin, _ in self.spans] + [end for _, end in self.spans[-1:]]:
            computing = len(self.busy(begin))
            if not rows or rows[-1][2] != computing:
                rows.append((begin, len(self.owner) - computing, computing))
        return rows

    def last(self, job: int) -> list[Holding]:
        """What a job held in its last attempt."""
        own = [held for held in self.holdings if held.job == job]
        return [held for held in own if held.attempt == max(other.attempt for other in own)]

    def work(self, job: int) -> float:
        """Core-seconds at the reference speed that a job did in its last attempt, all cores as fast as its slowest."""
        total = 0.0
        for held in self.last(job):
            speeds = [self.platform.processors[self.owner[core]] for core in held.cores]
            speeds = [processor.gflops / self.platform.reference_gflops for processor in speeds if not processor.gpu]
            total += len(speeds) * min(speeds) * (held.end - held.begin)
        return total
