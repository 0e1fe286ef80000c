"""Running jobs of a site: what they hold, and when they are expected to end."""

from __future__ import annotations

from typing import NamedTuple

from hdsim.kernels.compiling import lean_kernel, part_of_kernel
from hdsim.site.kernels.layers import Layers, leave_cpus, start_beside, take_cpus
from hdsim.site.kernels.placing import Chosen, Demands, Floats, Ints, SiteNodes, Usage
from hdsim.site.kernels.quotas import Quotas, charge


class RunningJobs(NamedTuple):
    """Running jobs in order of their expected ends.

    Attributes:
        job: (J,) the jobs.
        end: (J,) their time limits' ends in seconds.
        first, last: (J,) by job, its first place in `node` and `cpus` and the place behind its last one.
        node: (E,) nodes.
        cpus: (E,) CPUs on each.
        gpus: (E,) GPUs on each.
        length: (2,) number of running jobs, and of places in use.
        layers: The jobs on each CPU, where jobs are suspended for others.
    """

    job: Ints
    end: Floats
    first: Ints
    last: Ints
    node: Ints
    cpus: Ints
    gpus: Ints
    length: Ints
    layers: Layers


class Machine(NamedTuple):
    """The nodes of a site and the jobs on them.

    Attributes:
        nodes: The nodes.
        usage: Their use.
        demands: Demands of all jobs.
        running: Running jobs.
        quotas: Capacities that limits and licences set.
    """

    nodes: SiteNodes
    usage: Usage
    demands: Demands
    running: RunningJobs
    quotas: Quotas


@part_of_kernel
def change_usage(
    nodes: SiteNodes, usage: Usage, demands: Demands, job: int, node: int, cpus: int, gpus: int, sign: int
) -> None:
    """Takes (1) or gives back (-1) CPUs, memory and GPUs of a node."""
    row, taken = nodes.counted[demands.partition[job]], _in_cores(usage, node, cpus)
    usage.cpus[node] -= sign * taken
    if row >= 0:
        usage.counted[row, node] += sign * taken
    usage.memory[node] -= sign * (demands.memory_per_node[job] + cpus * demands.memory_per_cpu[job])
    usage.gpus[node] -= sign * gpus
    usage.jobs[node] += sign


@part_of_kernel
def _in_cores(usage: Usage, node: int, cpus: int) -> int:
    """Returns the CPUs of the cores on which a job has a number of CPUs."""
    core = usage.core[node]
    return cpus if core == 1 else -(-cpus // core) * core


@part_of_kernel
def copy_usage(usage: Usage, into: Usage) -> None:
    """Copies the use of the nodes."""
    for node in range(len(usage.cpus)):
        into.cpus[node], into.memory[node] = usage.cpus[node], usage.memory[node]
        into.jobs[node], into.gpus[node] = usage.jobs[node], usage.gpus[node]
    for row in range(usage.counted.shape[0]):
        for node in range(usage.counted.shape[1]):
            into.counted[row, node] = usage.counted[row, node]


@lean_kernel
def hold(machine: Machine, job: int, end: float, chosen: Chosen, count: int) -> None:
    """Gives a job the CPUs and GPUs on `count` chosen nodes until an expected end in seconds."""
    nodes, usage, demands, running, quotas = machine
    length, layers = running.length, running.layers
    running.first[job] = length[1]
    for k in range(count):
        place, node, cpus, gpus = length[1], chosen.node[k], chosen.cpus[k], chosen.gpus[k]
        running.node[place], running.cpus[place], running.gpus[place] = node, cpus, gpus
        length[1] += 1
        change_usage(nodes, usage, demands, job, node, cpus, gpus, 1)
        if len(layers.order):
            usage.cpus[node] = take_cpus(layers, nodes, demands, job, node, _in_cores(usage, node, cpus))
    if len(layers.order):
        start_beside(layers)
    running.last[job] = length[1]
    charge(quotas, job, running.node, running.cpus, running.first[job], running.last[job], 1)
    place = length[0]
    while place > 0 and running.end[place - 1] > end:
        running.job[place], running.end[place] = running.job[place - 1], running.end[place - 1]
        place -= 1
    running.job[place], running.end[place] = job, end
    length[0] += 1


@lean_kernel
def release(machine: Machine, job: int) -> None:
    """Takes back all that a running job holds; it counts as one that has run."""
    nodes, usage, demands, running, quotas = machine
    for place in range(running.first[job], running.last[job]):
        node = running.node[place]
        change_usage(nodes, usage, demands, job, node, running.cpus[place], running.gpus[place], -1)
        if len(running.layers.order):
            usage.cpus[node] = leave_cpus(running.layers, nodes, job, node)
    charge(quotas, job, running.node, running.cpus, running.first[job], running.last[job], -1)
    place = 0
    while running.job[place] != job:
        place += 1
    running.length[0] -= 1
    for i in range(place, running.length[0]):
        running.job[i], running.end[i] = running.job[i + 1], running.end[i + 1]
