"""A second, slow and obvious reading of what agents see and are rewarded for.

It is written from the descriptions alone, core by core, from what a cluster tells to everybody: which jobs wait, and
which cores each running job holds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

SLOWED = 0.75
IDLE_BESIDE, IDLE_ALONE = 0.25, 0.05


@dataclass
class Core:
    """A core of the platform and what it does."""

    processor: int
    node: int
    job: int | None = None


@dataclass
class Snapshot:
    """Queue and cores at one instant, after everything was decided there."""

    now: float
    queue: list[int]
    cores: list[Core]
    starts: dict[int, float]  # of the running jobs


def snapshot(cluster: Any) -> Snapshot:
    """What a cluster holds now."""
    platform = cluster.platform
    cores = []
    for processor in range(platform.n_processors):
        for _ in range(platform.cores_per_processor[processor]):
            cores.append(Core(processor, int(platform.processor_node[processor])))
    for job in cluster.running:
        for core in cluster.core_ids(job):
            assert cores[core].job is None
            cores[core].job = job
    starts = {job: float(cluster.starting_time[job]) for job in cluster.running}
    return Snapshot(cluster.now, list(cluster.queue), cores, starts)


class Oracle:
    """Numbers of a snapshot."""

    def __init__(self, platform: Any, workload: Any) -> None:
        self.platform, self.jobs = platform, workload

    def busy(self, at: Snapshot, processor: int) -> list[int]:
        return [core.job for core in at.cores if core.processor == processor and core.job is not None]

    def running(self, at: Snapshot) -> set[int]:
        return {core.job for core in at.cores if core.job is not None}

    def free_bandwidth(self, at: Snapshot, processor: int) -> float:
        asked = sum(float(self.jobs.memory_bandwidth[job]) for job in self.busy(at, processor))
        return float(self.platform.mem_bw[processor]) - asked

    def free_memory(self, at: Snapshot, node: int) -> float:
        held = sum(float(self.jobs.memory[core.job]) for core in at.cores if core.node == node and core.job is not None)
        return float(self.platform.memory[node]) - held

    def speed(self, at: Snapshot, processor: int) -> float:
        """Share of the peak speed at which its busy cores run."""
        return SLOWED if self.free_bandwidth(at, processor) < 0 else 1.0

    def power(self, at: Snapshot, core: Core) -> float:
        """Share of its peak power."""
        if core.job is not None:
            return 1.0
        return IDLE_BESIDE if self.busy(at, core.processor) else IDLE_ALONE

    def watts(self, at: Snapshot) -> float:
        return sum(self.power(at, core) * float(self.platform.power[core.processor]) for core in at.cores)

    def gflops(self, at: Snapshot, contended: bool) -> float:
        total = 0.0
        for core in at.cores:
            if core.job is not None:
                share = self.speed(at, core.processor) if contended else 1.0
                total += share * float(self.platform.gflops[core.processor])
        return total

    def rest(self, job: int, history: list[Snapshot], now: float) -> float:
        """Fraction of the operations asked for that is left, given all snapshots since the start."""
        done = 0.0
        for at, until in zip(history, [*[later.now for later in history[1:]], now], strict=True):
            own = [core for core in at.cores if core.job == job]
            if own:
                slowest = min(
                    float(self.platform.gflops[core.processor]) * self.speed(at, core.processor) for core in own
                )
                done += slowest / self.platform.reference_gflops * (until - at.now)
        return max(0.0, 1 - done / float(self.jobs.requested_time[job]))

    def queue_numbers(
        self, queue: list[int], last_length: int, sensitivity: float = 1.0, until: float = math.inf
    ) -> list[float]:
        """The numbers of the queue, as shares of the percentiles of the jobs submitted until a time."""
        if not queue:
            return [0.0] * 21
        scaling = self.jobs.submission_time <= self.renewed(until)
        numbers = []
        for name in ("requested_time", "requested_cores", "memory", "memory_bandwidth"):
            scale = percentile(sorted(map(float, getattr(self.jobs, name)[scaling])), 99)
            values = sorted(float(getattr(self.jobs, name)[job]) for job in queue)
            values = [min(1.0, value / scale) if scale else 0.0 for value in values]
            numbers += [percentile(values, q) for q in (0, 25, 50, 75, 100)]
        if not last_length:
            return [*numbers, 1.0]
        change = (len(queue) - last_length) / min(len(queue), last_length)
        return [*numbers, min(1.0, max(0.0, (change + sensitivity) / (2 * sensitivity)))]

    def renewed(self, until: float) -> float:
        """When the number of arrived jobs had last doubled; infinite if `until` is."""
        if until == math.inf:
            return until
        dates = self.jobs.submission_time.tolist()
        last, count = 0.0, 0
        for date in sorted(set(dates)):
            arrived = sum(other <= date for other in dates)
            if date <= until and arrived >= 2 * count:
                last, count = date, arrived
        return last

    def small(self, at: Snapshot) -> list[float]:
        memory = [
            self.free_memory(at, node) / float(self.platform.memory[node])
            if math.isfinite(self.platform.memory[node])
            else 1.0
            for node in range(self.platform.n_nodes)
        ]
        bandwidth = [
            max(0.0, self.free_bandwidth(at, processor)) / float(self.platform.mem_bw[processor])
            if math.isfinite(self.platform.mem_bw[processor])
            else 1.0
            for processor in range(self.platform.n_processors)
        ]
        return memory + bandwidth

    def cores(self, at: Snapshot, history: list[Snapshot]) -> list[float]:
        left = {job: self.rest(job, history, at.now) for job in self.running(at)}
        return [
            *[self.speed(at, core.processor) if core.job is not None else 0.0 for core in at.cores],
            *[self.power(at, core) for core in at.cores],
            *[left[core.job] if core.job is not None else 0.0 for core in at.cores],
        ]

    def idle(self, at: Snapshot) -> int:
        return sum(core.job is None for core in at.cores)

    def room(self, at: Snapshot, node: int, job: int) -> int:
        """Cores of the job that a node could take."""
        idle = sum(core.job is None for core in at.cores if core.node == node)
        memory = float(self.jobs.memory[job])
        # A tolerance for capacities like 3 x 0.1: hdsim counts whole bytes.
        return min(idle, math.floor(self.free_memory(at, node) / memory + 1e-9)) if memory else idle

    def fits(self, at: Snapshot, job: int) -> bool:
        rooms = sum(self.room(at, node, job) for node in range(self.platform.n_nodes))
        return rooms >= int(self.jobs.requested_cores[job])

    def job_rows(self, at: Snapshot, rows: int) -> list[list[float]]:
        cores = len(at.cores)
        table = []
        for job in at.queue[:rows]:
            size = int(self.jobs.requested_cores[job])
            table.append(
                [
                    week_share(at.now - float(self.jobs.submission_time[job])),
                    week_share(float(self.jobs.requested_time[job])),
                    size / cores,
                    min(1.0, size * float(self.jobs.memory[job]) / sum(map(float, self.platform.memory))),
                    min(1.0, size * float(self.jobs.memory_bandwidth[job]) / sum(map(float, self.platform.mem_bw))),
                    self.idle(at) / cores,
                    float(self.fits(at, job)),
                    1.0,
                ]
            )
        return table + [[0.0] * 8] * (rows - len(table))

    def shadow_rows(self, at: Snapshot, rows: int) -> list[list[float]]:
        """The rows of jobs, each with the shadow time and the extra cores of a reservation for it."""
        free, steps = self.idle(at), []
        for job, start in at.starts.items():
            held = [core.processor for core in at.cores if core.job == job]
            slowest = min(float(self.platform.gflops[processor]) for processor in held)
            duration = float(self.jobs.requested_time[job]) * float(self.platform.reference_gflops) / slowest
            steps.append((start + duration, len(held)))
        steps.sort(key=lambda step: step[0])
        table = self.job_rows(at, rows)
        for row, job in zip(table, at.queue[:rows], strict=False):
            size = int(self.jobs.requested_cores[job])
            idle, shadow, extra = free, 0.0, free - size
            for end, cores in steps:
                if idle >= size:
                    break
                idle += cores
                shadow, extra = week_share(max(0.0, end - at.now)), idle - size
            row.extend([shadow, extra / len(at.cores)] if idle >= size else [1.0, 0.0])
        return [row + [0.0] * (10 - len(row)) for row in table]

    def node_rows(self, at: Snapshot, chosen: dict[int, int], job: int | None) -> list[list[float]]:
        """`chosen`: cores of `job`, the next one, that each node was given already."""
        platform = self.platform
        nodes: list[list[Core]] = [[] for _ in range(platform.n_nodes)]
        for core in at.cores:
            nodes[core.node].append(core)

        def mean(values: list[float]) -> float:
            return sum(values) / len(values)

        speeds = [mean([float(platform.gflops[core.processor]) for core in cores]) for cores in nodes]
        powers = [mean([float(platform.power[core.processor]) for core in cores]) for cores in nodes]
        small = self.small(at)
        memory, bandwidth = small[: platform.n_nodes], small[platform.n_nodes :]
        table = []
        for node, cores in enumerate(nodes):
            row = [
                sum(core.job is None for core in cores) / len(cores),
                memory[node],
                mean([bandwidth[p] for p in sorted({core.processor for core in cores})]),
                speeds[node] / max(speeds),
                powers[node] / max(powers),
                len(cores) / max(map(len, nodes)),
            ]
            if job is None:
                row += [0.0] * 6
            else:
                size = int(self.jobs.requested_cores[job])
                left = size - sum(chosen.values())
                room = 0 if node in chosen else self.room(at, node, job)
                largest = max(map(float, platform.memory))
                row += [
                    min(1.0, room / left),
                    chosen.get(node, 0) / size,
                    left / size,
                    float(self.jobs.memory[job]) / largest if math.isfinite(largest) else 0.0,
                    week_share(float(self.jobs.requested_time[job])),
                    week_share(at.now - float(self.jobs.submission_time[job])),
                ]
            table.append(row)
        return table

    def rate(self, objective: str, at: Snapshot, contended: bool) -> float:
        """What an objective is worth per second in a snapshot."""
        present = [*at.queue, *self.running(at)]
        if objective == "avg_job_slowdown":
            return -sum(1 / max(1.0, float(self.jobs.requested_time[job])) for job in present)
        if objective == "avg_bounded_slowdown":
            return -sum(1 / max(10.0, float(self.jobs.requested_time[job])) for job in present)
        if objective == "avg_job_completion":
            return -float(len(present))
        if objective == "avg_utilization":
            return float(len(at.cores) - self.idle(at))
        if objective == "makespan":
            return self.gflops(at, contended)
        assert objective == "energy_consumption"
        return -self.watts(at)

    def bandwidth_rows(self, at: Snapshot, chosen: dict[int, int], job: int | None) -> list[list[float]]:
        """The rows of nodes, each with what memory bandwidth there is for the demands there."""
        rows = self.node_rows(at, chosen, job)
        if job is None:
            return [row + [0.0] * 7 for row in rows]
        demand_of = [float(demand) for demand in self.jobs.memory_bandwidth]
        bandwidth, cores, asked, busy, taken = ([0.0] * len(rows) for _ in range(5))
        for processor, node in enumerate(map(int, self.platform.processor_node)):
            bandwidth[node] += float(self.platform.mem_bw[processor])
            cores[node] += int(self.platform.cores_per_processor[processor])
            asked[node] += sum(demand_of[other] for other in self.busy(at, processor))
            busy[node] += len(self.busy(at, processor))
        left = int(self.jobs.requested_cores[job]) - sum(chosen.values())
        for node in range(len(rows)):
            taken[node] = chosen[node] if node in chosen else min(left, self.room(at, node, job))
        most = max(have / number for have, number in zip(bandwidth, cores, strict=True))
        together = [asked[node] + taken[node] * demand_of[job] for node in range(len(rows))]
        so_far = [rows[node][3] * share(bandwidth[node], together[node]) for node in chosen]
        counts = [math.log1p(number) / math.log1p(1000) for number in (len(at.queue), len(at.starts))]
        for node, row in enumerate(rows):
            row += [
                share(bandwidth[node], asked[node]),
                share(bandwidth[node], together[node]),
                share(bandwidth[node], (busy[node] + taken[node]) * demand_of[job]),
                min(1.0, demand_of[job] / most),
                min([1.0, *so_far]),
                *counts,
            ]
        return rows


def percentile(values: list[float], q: float) -> float:
    """Between two of the sorted values on a line."""
    place = q / 100 * (len(values) - 1)
    low = math.floor(place)
    high = min(low + 1, len(values) - 1)
    return values[low] + (place - low) * (values[high] - values[low])


def week_share(seconds: float) -> float:
    """Seconds on the logarithmic scale on which a week is 1."""
    return min(1.0, math.log(1 + seconds) / math.log(1 + 7 * 86400))


def share(supply: float, demand: float) -> float:
    """A supply over a demand, at most 1."""
    return supply / demand if demand > supply else 1.0
