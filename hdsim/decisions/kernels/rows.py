"""Rows of queued jobs and nodes and quantiles of the queue, as agents observe them."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hdsim.kernels.compiling import kernel, lean_kernel, part_of_kernel
from hdsim.kernels.logarithms import logarithms
from hdsim.kernels.sums import total

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
Numbers = NDArray[np.float32]
#: A table of two axes, (R, F).
Table = NDArray[np.float32]
#: Columns of a row.
COLUMNS = 8
#: Upper end of the logarithmic scale of times, seconds.
LONGEST = 7 * 86400.0
LOG_LONGEST = math.log1p(LONGEST)
QUARTILES = 4
#: Columns of a node; of the next job there and in all rows; of the memory bandwidth for it.
IDLE, FREE_MEMORY, FREE_PARTS, ROOM, CHOSEN, NEXT_JOB = 0, 1, 2, 6, 7, 8
SPEED, SUPPLY, SUPPLY_WITH_JOB, EVEN_SHARE = 3, 12, 13, 14
JOB_BANDWIDTH, SPEED_SO_FAR, QUEUED, RUNNING = 15, 16, 17, 18


class NodeLimits(NamedTuple):
    """Resources of nodes and their parts that do not change with time.

    Attributes:
        cores: (N,) cores of a node.
        memory: (N,) bytes of a node, infinite for no limit.
        parts: (S,) a third resource, of one or more parts of each node: the memory bandwidth of processors in GB/s, or
            the pods of the node; infinite for no limit.
        first: (N+1,) first part of a node; the last entry is S.
    """

    cores: Floats
    memory: Floats
    parts: Floats
    first: Ints


@kernel
def write_rows(
    jobs: Ints,
    fits: Flags,
    table: Numbers,
    submission: Floats,
    origin: float,
    now: float,
    idle: float,
    times: Floats,
    powers: Ints,
    out: Numbers,
) -> None:
    """Writes one row for each queued job, and zeros behind them.

    Args:
        jobs: (Q,) the jobs.
        fits: (Q,) whether each fits now.
        table: (J x 8,) rows of all jobs, of which the columns that do not change with time count.
        submission: (J,) submission times in seconds.
        origin: Submission time of the first job of the episode, seconds.
        now: Present time in seconds since then.
        idle: Idle cores as a share of all.
        times: (Q or more,) room for waiting times.
        powers: (Q or more,) room for the powers of two in them.
        out: (rows x 8,) the rows, one after the other.
    """
    count = len(jobs)
    for i in range(count):
        times[i] = 1.0 + (now - (submission[jobs[i]] - origin))
    logarithms(times, times.view(np.int64), powers, count)
    for i in range(count):
        # Unsigned indices need no check for negative ones; loads before all stores are joined.
        row, at = np.uint64(jobs[i]) * np.uint64(COLUMNS), np.uint64(i) * np.uint64(COLUMNS)
        requested, cores = table[row + np.uint64(1)], table[row + np.uint64(2)]
        memory, bandwidth = table[row + np.uint64(3)], table[row + np.uint64(4)]
        waited = times[i] / LOG_LONGEST
        out[at] = waited if waited < 1.0 else 1.0
        out[at + np.uint64(1)] = requested
        out[at + np.uint64(2)] = cores
        out[at + np.uint64(3)] = memory
        out[at + np.uint64(4)] = bandwidth
        out[at + np.uint64(5)] = idle
        out[at + np.uint64(6)] = fits[i]
        out[at + np.uint64(7)] = 1.0
    out[count * COLUMNS :] = 0.0


@kernel
def write_free(limits: NodeLimits, idle: Floats, memory: Floats, parts: Floats, out: Table) -> None:
    """Writes idle cores, free memory and free parts as shares of each node's.

    Args:
        limits: Limits of the nodes.
        idle: (N,) idle cores.
        memory: (N,) free bytes.
        parts: (S,) free amounts of the third resource.
        out: (N, F) rows of the nodes.
    """
    shares = np.empty(len(parts), np.float32)
    for part in range(len(parts)):
        shares[part] = _free_share(parts[part], limits.parts[part])
    for node in range(len(idle)):
        if limits.cores[node] > 0:
            out[node, IDLE] = idle[node] / limits.cores[node]
        out[node, FREE_MEMORY] = _free_share(memory[node], limits.memory[node])
        first, last = limits.first[node], limits.first[node + 1]
        out[node, FREE_PARTS] = total(shares, first, last) / (last - first)


@part_of_kernel
def _free_share(free: float, limit: float) -> float:
    return max(free / limit, 0.0) if limit < math.inf else 1.0


@lean_kernel
def write_room(chunks: int, total: int, capacity: Ints, chosen: Ints, job: Floats, out: Table) -> None:
    """Writes how much of the next job fits on each node and is assigned to it, and the columns of the job.

    Args:
        chunks: Chunks of the job without a node yet.
        total: Chunks of the job.
        capacity: (N,) chunks that fit on each node.
        chosen: (N,) chunks assigned to each node.
        job: (4,) columns of the job.
        out: (N, F) rows of the nodes.
    """
    for node in range(len(capacity)):
        out[node, ROOM] = min(capacity[node] / max(chunks, 1), 1.0)
        out[node, CHOSEN] = chosen[node] / total
        for column in range(len(job)):
            out[node, NEXT_JOB + column] = job[column]


@kernel
def write_supply(
    limits: NodeLimits,
    idle: Floats,
    bandwidth: Floats,
    supplied: Floats,
    chunks: int,
    cores: float,
    capacity: Ints,
    chosen: Ints,
    wanted: float,
    job: tuple[float, float, float],
    out: Table,
) -> None:
    """Writes what the next job would get of the memory bandwidth of each node, and its demand in all rows.

    Args:
        limits: Limits of the nodes.
        idle: (N,) idle cores.
        bandwidth: (P,) free bandwidth of the processors in GB/s.
        supplied: (N,) bandwidth of the nodes in GB/s, infinite for no limit.
        chunks: Chunks of the job without a node yet.
        cores: CPU of a chunk in cores.
        capacity: (N,) chunks that fit on each node.
        chosen: (N,) chunks assigned to each node.
        wanted: Demand of a core of the job in GB/s.
        job: Columns of the job but `SPEED_SO_FAR`, which is the lowest product of speed and supply of the nodes that
            are assigned to it, at most 1.
        out: (N, F) rows of the nodes, with their speeds.
    """
    used = np.zeros(len(bandwidth))
    for part in range(len(bandwidth)):
        if limits.parts[part] < math.inf:
            used[part] = limits.parts[part] - bandwidth[part]
    slowest = 1.0
    for node in range(len(idle)):
        first, last = limits.first[node], limits.first[node + 1]
        demand = total(used, first, last)
        further = (chosen[node] if chosen[node] > 0 else min(capacity[node], chunks)) * cores
        with_job = _supply(supplied[node], demand + further * wanted)
        out[node, SUPPLY] = _supply(supplied[node], demand)
        out[node, SUPPLY_WITH_JOB] = with_job
        out[node, EVEN_SHARE] = _supply(supplied[node], (limits.cores[node] - idle[node] + further) * wanted)
        if chosen[node] > 0:
            slowest = min(slowest, out[node, SPEED] * with_job)
    for node in range(len(idle)):
        out[node, JOB_BANDWIDTH], out[node, QUEUED], out[node, RUNNING] = job
        out[node, SPEED_SO_FAR] = slowest


@part_of_kernel
def _supply(supplied: float, demand: float) -> float:
    """Bandwidth over a demand, at most 1."""
    return supplied / demand if demand > supplied else 1.0


@kernel
def write_quantiles(values: Floats, queue: Ints, ranked: Ints, scale: float, out: Numbers) -> None:
    """Writes minimum, quartiles and maximum of an attribute of queued jobs, as shares of a scale of at most 1.

    Args:
        values: (J,) the attribute of all jobs.
        queue: (Q,) ascending ranks of the queued jobs, at least one, by the attribute.
        ranked: (J,) the job of each rank.
        scale: The value that counts as 1; 0 if all are 0.
        out: (5,) the numbers; quartiles by linear interpolation.
    """
    last = len(queue) - 1
    for k in range(QUARTILES + 1):
        low, part = divmod(k * last, QUARTILES)
        at = _share(values[ranked[queue[low]]], scale)
        if part:
            at += part / QUARTILES * (_share(values[ranked[queue[low + 1]]], scale) - at)
        out[k] = at


@kernel
def _share(value: float, scale: float) -> float:
    return min(value / scale, 1.0) if scale > 0 else 0.0


@kernel
def percentile(values: Floats) -> float:
    """99th percentile of at least one number, with linear interpolation as NumPy's."""
    ascending = np.sort(values)
    place = 0.99 * (len(values) - 1)
    low = int(place)
    high = min(low + 1, len(values) - 1)
    return ascending[low] + (place - low) * (ascending[high] - ascending[low])
