"""The choice of nodes for a job over jobs that are suspended for it, as select/cons_tres makes it.

Sources: "Preemption" and "Gang Scheduling" of Slurm's documentation, and the behaviour of slurmctld 22.05, which was
measured.
"""

from __future__ import annotations

from hdsim.kernels.compiling import part_of_kernel
from hdsim.site.kernels.layers import keeps, within_reach
from hdsim.site.kernels.placing import Chosen, Flags, Usage, choose
from hdsim.site.kernels.preempting import Preemption
from hdsim.site.kernels.running import Machine, copy_usage


@part_of_kernel
def _share(machine: Machine, job: int, node: int, usage: Usage) -> None:
    """Has a node count as without jobs for a job that takes whole nodes if it can get all CPUs of it."""
    demands = machine.demands
    if demands.whole[job] and machine.running.layers.forced[demands.partition[job]]:
        usage.jobs[node] = machine.nodes.cpus[node] - usage.cpus[node]


@part_of_kernel
def _choose_within_reach(machine: Machine, job: int, among: Flags, future: Usage, chosen: Chosen) -> int:
    nodes, demands = machine.nodes, machine.demands
    for node in range(len(among)):
        if among[node]:
            future.cpus[node] = within_reach(machine.running.layers, nodes, demands, demands.partition[job], node)
            _share(machine, job, node, future)
    return choose(nodes, future, demands, job, among, chosen)


@part_of_kernel
def choose_over(machine: Machine, job: int, among: Flags, future: Usage, chosen: Chosen) -> int:
    """Chooses nodes for a job that finds too few idle CPUs; returns their number, 0 if it does not fit.

    The CPUs of jobs of partitions of lower tiers count as free, whose memory and GPUs do not. As far as the job fits
    without, those of one partition after the other are left to them, higher tiers first.

    Args:
        machine: Nodes and running jobs.
        job: The job.
        among: (N,) nodes that it may be on.
        future: Space.
        chosen: Takes the nodes and the CPUs on each.
    """
    layers, partition = machine.running.layers, machine.demands.partition[job]
    if machine.demands.whole[job] and not layers.forced[partition]:
        return 0
    copy_usage(machine.usage, future)
    count = _choose_within_reach(machine, job, among, future, chosen)
    if not count:
        return 0
    for other in layers.order:
        if layers.blocks[partition, other]:
            continue
        layers.spared[other] = True
        count = _choose_within_reach(machine, job, among, future, chosen)
        if not count:
            layers.spared[other] = False
            count = _choose_within_reach(machine, job, among, future, chosen)
            break
    layers.over[0] = True
    return count


@part_of_kernel
def begin_future(machine: Machine, job: int, future: Usage) -> None:
    """Has the CPUs that a job may get be free in a later use of nodes, those of jobs of lower tiers included."""
    nodes, demands, layers = machine.nodes, machine.demands, machine.running.layers
    partition = demands.partition[job]
    for node in range(len(future.cpus)):
        future.cpus[node] = 0
        for cpu in range(nodes.cpus[node]):
            kept = 0
            for other in range(len(layers.order)):
                kept += keeps(layers, demands, partition, other, layers.job[other, node, cpu])
            layers.left[node, cpu] = kept
            future.cpus[node] += kept == 0
        _share(machine, job, node, future)


@part_of_kernel
def end_in_future(machine: Machine, job: int, other: int, node: int, future: Usage) -> None:
    """Has another job leave the CPUs of a node, in the later use of nodes that a job sees."""
    demands, layers = machine.demands, machine.running.layers
    partition, owner = demands.partition[job], demands.partition[other]
    future.cpus[node] = 0
    for cpu in range(machine.nodes.cpus[node]):
        if layers.job[owner, node, cpu] == other:
            layers.left[node, cpu] -= keeps(layers, demands, partition, owner, other)
        future.cpus[node] += layers.left[node, cpu] == 0
    _share(machine, job, node, future)


@part_of_kernel
def can_suspend(machine: Machine, preemption: Preemption, job: int, other: int, now: float) -> bool:
    """Whether a running job is a candidate to be suspended for another one: its time of exemption has passed."""
    partition, owner = machine.demands.partition[job], machine.demands.partition[other]
    exempt = now - preemption.start[other] < preemption.exempt[owner]
    return not machine.running.layers.blocks[partition, owner] and not exempt
