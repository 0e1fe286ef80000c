"""Jobs that compute, send messages and meet at barriers, the slow and simple way.

One object a task and one a message; after every event all speeds of all tasks and all rates of all messages are found
anew, and everything moves on to the next event. It shares no code with hdsim but the platform's description: profiles,
patterns, contention and the network are written here once more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

GIGA = 1e9


# Profiles


@dataclass
class Step:
    """What one job does between two meetings: kind is delay, together or superstep."""

    kind: str
    work: list[float]  # s at the reference speed, one a task
    messages: list[tuple[int, int, float]] = field(default_factory=list)  # from task, to task, bytes
    h: float = 0.0
    gap: float = 0.0
    latency: float = 0.0


def expand(profiles: dict, name: str, tasks: int, reference: float) -> list[Step]:
    """The steps of a Batsim profile for a job of some tasks."""
    profile = profiles[name]
    kind, operations = profile["type"], reference * GIGA
    if kind == "composed":
        return [
            step
            for _ in range(profile.get("repeat", 1))
            for part in profile["seq"]
            for step in expand(profiles, part, tasks, reference)
        ]
    if kind == "delay":
        return [Step("delay", [profile["delay"]] * tasks)]
    if kind == "parallel":
        com = profile.get("com") or [0] * tasks**2
        messages = [(i, j, com[tasks * i + j]) for i in range(tasks) for j in range(tasks)]
        return [Step("together", [flop / operations for flop in profile["cpu"]], real(messages))]
    if kind in ("parallel_homogeneous", "parallel_homogeneous_total"):
        parts = tasks if kind.endswith("total") else 1
        volume = profile.get("com", 0) / parts
        messages = [(i, j, volume) for i in range(tasks) for j in range(tasks)]
        return [Step("together", [profile.get("cpu", 0) / parts / operations] * tasks, real(messages))]
    assert kind == "bsp"
    count, cpu = profile["supersteps"], profile.get("cpu", 0)
    messages = real(pattern(profile.get("pattern", "h_relation"), tasks, profile.get("com", 0)))
    out, into = [0.0] * tasks, [0.0] * tasks
    for i, j, volume in messages:
        out[i] += volume
        into[j] += volume
    steps = []
    for s in range(count):
        row = cpu[s] if isinstance(cpu, list) and isinstance(cpu[0], list) else cpu
        row = row if isinstance(row, list) else [row] * tasks
        work = [flop / operations for flop in row]
        steps.append(Step("superstep", work, messages, max(out + into), profile.get("g", 0.0), profile.get("l", 0.0)))
    return steps


def real(messages: list) -> list:
    """Messages that go somewhere and carry something."""
    return [(i, j, volume) for i, j, volume in messages if i != j and volume]


def pattern(spec: str | list, p: int, v: float) -> list[tuple[int, int, float]]:
    """Messages of a pattern, or of a matrix."""
    pairs = [(i, j) for i in range(p) for j in range(p) if i != j]
    if isinstance(spec, list):
        rows = spec if isinstance(spec[0], list) else [spec[i * p : (i + 1) * p] for i in range(p)]
        return [(i, j, rows[i][j]) for i, j in pairs]
    if spec == "none" or p == 1:
        return []
    if spec == "h_relation":
        return [(i, j, v / (p - 1)) for i, j in pairs]
    if spec == "all_to_all":
        return [(i, j, v) for i, j in pairs]
    if spec == "ring":
        return [(i, (i + 1) % p, v) for i in range(p)]
    if spec == "master_worker":
        return [(i, j, v) for i, j in pairs if i == 0 or j == 0]
    assert spec == "halo_2d"
    columns = max(c for c in range(1, p + 1) if p % c == 0 and c * c <= p)
    place = {i: divmod(i, columns) for i in range(p)}
    return [(i, j, v) for i, j in pairs if sum(abs(a - b) for a, b in zip(place[i], place[j], strict=True)) == 1]


# Contention: share of peak speed of each of the tasks on one processor, given their demands in GB/s


def no_contention(demands: list[float], bandwidth: float) -> list[float]:
    return [1.0] * len(demands)


def threshold(demands: list[float], bandwidth: float) -> list[float]:
    over = sum(demands) > bandwidth * (1 + 1e-9)
    return [0.75 if over else 1.0] * len(demands)


def fair_share(fraction: float):
    """Roofline with max-min fair shares of the bandwidth."""

    def speeds(demands: list[float], bandwidth: float) -> list[float]:
        if sum(demands) <= bandwidth * (1 + 1e-9):
            return [1.0] * len(demands)
        left, given = bandwidth, {}
        order = sorted(range(len(demands)), key=demands.__getitem__)
        for n, i in enumerate(order):
            given[i] = min(demands[i], left / (len(order) - n))
            left -= given[i]
        return [1 / ((1 - fraction) + fraction * y / given[i]) if y else 1.0 for i, y in enumerate(demands)]

    return speeds


def smoothstep(b: float, c: float, da: float, db: float, dc: float, dd: float):
    """IRMaSim's curve, constants in GB/s."""

    def speeds(demands: list[float], bandwidth: float) -> list[float]:
        x, n = sum(demands), len(demands) - 1
        found = []
        for y in demands:
            u = min(max((y - (da - n * db)) / (dc - n * dd), 0.0), 1.0)
            d = (1 - u**3 * (u * (6 * u - 15) + 10)) * 0.6 * n / (1 + 0.6 * n) + 1 / (1 + 0.6 * n)
            found.append(1.0 if x < c else max(d, b * (x - c) + 1))
        return found

    return speeds


# Running jobs


@dataclass(eq=False)
class Task:
    core: int
    processor: int
    node: int
    left: float = 0.0
    speed: float = 0.0
    ended: float = math.nan  # when it had done its work of this step


@dataclass(eq=False)
class Flow:
    links: list
    left: float
    delay: float  # s of latency still to pass
    rate: float = 0.0


@dataclass(eq=False)
class Job:
    """A running job; the arguments are those of `replay`."""

    row: int
    start: float
    stop: float
    steps: list[Step]
    tasks: list[Task]
    demand: float
    index: int = -1
    phase: str = "over"
    until: float = math.inf  # end of a wait
    delay: float = 0.0  # latency of a parallel task still to pass
    left: float = 1.0  # part of a parallel task
    rate: float = 0.0
    flows: list[Flow] = field(default_factory=list)
    uses: dict = field(default_factory=dict)  # messages of a parallel task on each link
    volume: float = 0.0
    begun: float = 0.0
    computation: float = 0.0
    communication: float = 0.0
    waiting: float = 0.0
    supersteps: int = 0
    finish: float = math.nan
    #: (index of the step, begin of its work, end of the work of the last task, end of its barrier)
    record: list = field(default_factory=list)

    @property
    def step(self) -> Step:
        return self.steps[self.index]


class Simulation:
    """Plays jobs that are given cores at given dates.

    Args:
        platform: The platform.
        contention: Share of peak speed from demands and bandwidth.
        network: Messages are flows; otherwise they cost h g.
        starts: (row, start, date of a kill or inf, core ids, steps, GB/s of each task).
    """

    def __init__(self, platform, contention, network: bool, starts: list[tuple]) -> None:
        self.platform, self.contention, self.network = platform, contention, network
        owner = platform.core_processor
        self.peak = (platform.gflops / platform.reference_gflops).tolist()
        self.waiting_jobs = [
            Job(
                row,
                start,
                stop,
                steps,
                [Task(c, int(owner[c]), int(platform.processor_node[owner[c]])) for c in cores],
                demand,
            )
            for row, start, stop, cores, steps, demand in sorted(starts, key=lambda entry: entry[1])
        ]
        self.jobs: list[Job] = []
        self.done: dict[int, Job] = {}
        self.now = 0.0

    def run(self) -> dict[int, Job]:
        while self.jobs or self.waiting_jobs:
            self.find_rates()
            dates = [self.waiting_jobs[0].start] if self.waiting_jobs else []
            for job in self.jobs:
                dates.append(job.stop)
                dates.append(self.next_date(job))
            now = max(min(dates), self.now)
            for job in self.jobs:
                self.pass_time(job, now - self.now)
            self.now = now
            while self.waiting_jobs and self.waiting_jobs[0].start <= now:
                job = self.waiting_jobs.pop(0)
                self.jobs.append(job)
                self.next_step(job)
            for job in list(self.jobs):
                self.react(job)
        return self.done

    # Rates

    def find_rates(self) -> None:
        on: dict[int, list[tuple[Job, Task]]] = {}
        for job in self.jobs:
            for i, task in enumerate(job.tasks):
                if self.computes(job, i):
                    on.setdefault(task.processor, []).append((job, task))
        for processor, pairs in on.items():
            shares = self.contention([job.demand for job, _ in pairs], float(self.platform.mem_bw[processor]))
            for (_, task), share in zip(pairs, shares, strict=True):
                task.speed = share * self.peak[processor]
        activities = []
        for job in self.jobs:
            if job.phase in ("together", "delay"):
                working = [(w, t) for w, t in zip(job.step.work, job.tasks, strict=True) if w]
                job.rate = min((t.speed / w for w, t in working), default=math.inf)
                if job.phase == "delay":
                    job.rate = 1 / job.step.work[0]
                if job.delay > 0:
                    job.rate = 0.0
                elif job.uses:
                    activities.append((job, job.uses, job.volume, job.rate))
            for flow in job.flows:
                flow.rate = 0.0
                if flow.delay <= 0:
                    flow.rate = math.inf
                    if flow.links:
                        activities.append((flow, dict.fromkeys(flow.links, 1), 1.0, math.inf))
        self.fill(activities)

    def fill(self, activities: list) -> None:
        """Raises the bytes/s of a message of every activity together; those stop that are bound or on a full link."""
        capacity = {link: self.bandwidth(link) for _, uses, _, _ in activities for link in uses}
        level, climbing = 0.0, list(activities)
        while climbing:
            weight: dict[tuple, int] = {}
            for _, uses, _, _ in climbing:
                for link, messages in uses.items():
                    weight[link] = weight.get(link, 0) + messages
            room = {link: capacity[link] / weight[link] for link in weight}
            step = min([*room.values(), *(most * volume - level for _, _, volume, most in climbing)])
            level += step
            full = {link for link in weight if room[link] <= step * (1 + 1e-12)}
            for link in weight:
                capacity[link] -= step * weight[link]
            stopped = [a for a in climbing if full & set(a[1]) or a[3] * a[2] <= level * (1 + 1e-12)]
            for activity in stopped:
                activity[0].rate = min(level / activity[2], activity[3])
                climbing.remove(activity)

    def bandwidth(self, link: tuple) -> float:
        kind, _, index = link
        if kind == "node":
            return float(self.platform.local_bandwidth[self.platform.node_cluster[index]])
        return float(self.platform.global_bandwidth[index])

    def path(self, source: int, target: int) -> tuple[list, float]:
        """Limited links between two nodes, and the latency of all."""
        here, there = int(self.platform.node_cluster[source]), int(self.platform.node_cluster[target])
        links = [("node", "up", source), ("node", "down", target)]
        latency = self.platform.local_latency[here] + self.platform.local_latency[there]
        if here != there:
            links += [("cluster", "up", here), ("cluster", "down", there)]
            latency += self.platform.global_latency[here] + self.platform.global_latency[there]
        return [link for link in links if self.bandwidth(link) < math.inf], float(latency)

    def computes(self, job: Job, i: int) -> bool:
        """Whether a task takes memory bandwidth."""
        if job.phase == "computing":
            return job.tasks[i].left > 0
        return job.phase in ("together", "delay") and job.step.work[i] > 0

    # Time

    def next_date(self, job: Job) -> float:
        spans = [job.until - self.now]
        if job.phase == "computing":
            spans += [task.left / task.speed for task in job.tasks if task.left > 0]
        if job.phase in ("together", "delay"):
            spans.append(job.delay if job.delay > 0 else job.left / job.rate)
        spans += [flow.delay if flow.delay > 0 else flow.left / flow.rate for flow in job.flows]
        return self.now + min(spans)

    def pass_time(self, job: Job, seconds: float) -> None:
        def less(amount: float, taken: float) -> float:
            rest = amount - taken
            return 0.0 if rest <= 1e-13 * taken else rest

        # What takes less time than the clock can tell apart is over.
        tick = 1e-14 * max(self.now, 1e-3)
        if job.phase == "computing":
            for task in job.tasks:
                if task.left > 0:
                    task.left = less(task.left, task.speed * (seconds + tick))
                    if not task.left:
                        task.ended = self.now + seconds
        elif job.phase in ("together", "delay"):
            if job.delay > 0:
                job.delay = less(job.delay, seconds + tick)
            else:
                job.left = less(job.left, job.rate * (seconds + tick)) if job.rate < math.inf else 0.0
        for flow in job.flows:
            if flow.delay > 0:
                flow.delay = less(flow.delay, seconds + tick)
            else:
                flow.left = less(flow.left, flow.rate * (seconds + tick)) if flow.rate < math.inf else 0.0

    def react(self, job: Job) -> None:
        """Takes a job as far as it gets at this instant."""
        if job.stop <= self.now:
            if job.phase in ("computing", "together", "delay"):
                job.computation += self.now - job.begun
            elif job.phase != "over":
                job.communication += self.now - job.begun
            self.leave(job)
            return
        moved = True
        while moved and job.phase != "over":
            moved = False
            if job.phase == "computing" and not any(task.left > 0 for task in job.tasks):
                self.exchange(job)
                moved = True
            elif job.phase in ("together", "delay") and job.delay <= 0 and job.left <= 0:
                job.computation += self.now - job.begun
                job.record.append((job.index, job.begun, self.now, self.now))
                self.next_step(job)
                moved = True
            elif job.phase == "exchanging":
                job.flows = [flow for flow in job.flows if flow.left > 0 or flow.delay > 0]
                if not job.flows:
                    self.wait(job, job.step.latency)
                    moved = True
            elif job.phase == "waiting" and job.until <= self.now:
                job.until = math.inf
                job.communication += self.now - job.begun
                job.supersteps += 1
                job.record.append((job.index, job.record_begin, job.begun, self.now))
                self.next_step(job)
                moved = True
        if job.phase == "over":
            self.leave(job)

    def leave(self, job: Job) -> None:
        job.finish = self.now
        self.jobs.remove(job)
        self.done[job.row] = job

    def next_step(self, job: Job) -> None:
        job.index += 1
        job.begun = job.record_begin = self.now
        job.phase = "over"
        if job.index == len(job.steps):
            return
        step = job.step
        if step.kind == "superstep":
            job.phase = "computing"
            for task, work in zip(job.tasks, step.work, strict=True):
                task.left, task.ended = work, self.now
            return
        job.phase = step.kind
        job.left, job.delay, job.uses = 1.0, 0.0, {}
        if not max(step.work) and not step.messages:
            job.left = 0.0
        if self.network:
            for i, j, volume in step.messages:
                if job.tasks[i].node != job.tasks[j].node:
                    links, latency = self.path(job.tasks[i].node, job.tasks[j].node)
                    job.delay = max(job.delay, latency)
                    job.volume = volume
                    for link in links:
                        job.uses[link] = job.uses.get(link, 0) + 1
        if not max(step.work) and not job.uses:
            job.left = 0.0

    def exchange(self, job: Job) -> None:
        step = job.step
        job.computation += self.now - job.begun
        job.waiting += sum(self.now - task.ended for task in job.tasks) / len(job.tasks)
        job.begun = self.now
        if not self.network:
            self.wait(job, step.h * step.gap + step.latency)
            return
        job.phase = "exchanging"
        for i, j, volume in step.messages:
            if job.tasks[i].node != job.tasks[j].node:
                links, latency = self.path(job.tasks[i].node, job.tasks[j].node)
                job.flows.append(Flow(links, volume if links else 0.0, latency))

    def wait(self, job: Job, seconds: float) -> None:
        job.phase, job.until = "waiting", self.now + seconds


def matrix(pattern) -> np.ndarray:
    """Bytes from task i to task j of a communication pattern, 0 on the diagonal."""
    volumes = np.full((pattern.tasks, pattern.tasks), pattern.exchange)
    np.fill_diagonal(volumes, 0.0)
    np.add.at(volumes, (pattern.sources, pattern.targets), pattern.volumes)
    return volumes
