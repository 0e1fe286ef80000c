"""Invariants of a cluster's state, for tests and for replays that check every instant."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hdsim.cluster.placement import Placement
from hdsim.cluster.state import FinalState
from hdsim.cluster.stores.nodes import NodeCores
from hdsim.errors import require
from hdsim.util.units import in_bytes

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster

_RAN = *range(FinalState.RUNNING, FinalState.COMPLETED_KILLED + 1), FinalState.SUSPENDED
_ENDED = range(FinalState.COMPLETED_SUCCESSFULLY, FinalState.COMPLETED_KILLED + 1)


def check(cluster: Cluster) -> None:
    """Checks every invariant of the state; takes time in proportion to the platform and all jobs.

    Raises:
        InvariantError: One does not hold.
    """
    _check_states(cluster)
    asked = cluster.workload.requested_resources
    for job, placement in cluster.running.items():
        if not cluster.has_core_ids:
            require(placement.node_counts.sum() == cluster.requests.size[job], "a job has not what it asked for")
            continue
        if cluster.own_sizes:
            continue
        if isinstance(placement, Placement):
            cluster.requests.check_gpus(job, placement.ids, cluster.platform)
        if job not in cluster.allocations.begin:
            require(len(placement) == asked[job], "a job has not the cores it asked for")
    cluster.cores.check(list(cluster.running.values()))
    if isinstance(cluster.cores, NodeCores):
        _check_memory(cluster, cluster.cores)


def check_end(cluster: Cluster) -> None:
    """Checks what is cheap to check: every job is accounted for, has what it asked for, and ran after its submission.

    Raises:
        InvariantError: One does not hold; the message names the first job.
    """
    jobs, states = cluster.workload, np.array(cluster.state, np.int64)
    started, finished = np.array(cluster.starting_time), np.array(cluster.finish_time)

    def name(wrong: np.ndarray) -> str:
        return str(jobs.job_id[int(np.flatnonzero(wrong)[0])])

    counts = np.bincount(states, minlength=len(FinalState))
    require(int(counts[FinalState.QUEUED]) == len(cluster.queue), "jobs have left the queue and are nowhere")
    require(
        int(counts[FinalState.RUNNING] + counts[FinalState.STARTING]) == len(cluster.running)
        and int(counts[FinalState.SUSPENDED]) == len(cluster.suspended),
        "jobs have stopped running without an end",
    )
    if cluster.has_core_ids and len(cluster.size) == len(jobs):
        wrong = np.array(cluster.size) != jobs.requested_cores
        require(not wrong.any(), f"job {name(wrong) if wrong.any() else ''} has another size than it asked for")
    requested, frequencies = jobs.requested_time, cluster.frequencies
    wrong = np.array(cluster.requested_time) != (requested if frequencies is None else frequencies.stretched(requested))
    wrong[list(cluster.expected)] = False
    wrong[[] if frequencies is None else list(frequencies.chosen)] = False
    what = "has another requested time, without cluster.expect"
    require(not wrong.any(), f"job {name(wrong) if wrong.any() else ''} {what}")
    if cluster.confirms_starts:  # the clock of another system
        return
    early = (started < jobs.submission_time) | (finished < started)
    require(not early.any(), f"job {name(early) if early.any() else ''} ran before its time")


def _check_states(cluster: Cluster) -> None:
    states = np.array(cluster.state)

    def jobs_that_are(state: FinalState) -> set[int]:
        return set(np.flatnonzero(states == state).tolist())

    require(set(cluster.queue) == jobs_that_are(FinalState.QUEUED), "queued jobs")
    require(list(cluster.queue) == sorted(cluster.queue), "queue out of order")
    require(set(cluster.starting) == jobs_that_are(FinalState.STARTING), "starting jobs")
    require(set(cluster.held) == jobs_that_are(FinalState.HELD), "held jobs")
    holding = jobs_that_are(FinalState.RUNNING) | jobs_that_are(FinalState.STARTING)
    require(set(cluster.running) == holding, "jobs that hold cores")
    require(set(cluster.suspended) == jobs_that_are(FinalState.SUSPENDED), "suspended jobs")
    require(cluster.arrived == np.count_nonzero(states), "jobs that have arrived")
    started, finished = np.array(cluster.starting_time), np.array(cluster.finish_time)
    require(np.array_equal(~np.isnan(started), np.isin(states, _RAN)), "a state without its start")
    require(np.array_equal(~np.isnan(finished), np.isin(states, _ENDED)), "a state without its end")
    submitted = cluster.workload.submission_time
    require(not (started < submitted).any() and not (finished < started).any(), "a job before its time")
    require(not (finished > cluster.now).any(), "a job ended in the future")


def _check_memory(cluster: Cluster, cores: NodeCores) -> None:
    platform, requests = cluster.platform, cluster.requests
    memory, bandwidth = in_bytes(platform.memory), platform.mem_bw.copy()
    for job, placement in cluster.running.items():
        owner = platform.core_processor[placement.cores]
        np.subtract.at(memory, platform.processor_node[owner], requests.memory[job])
        np.subtract.at(bandwidth, owner, requests.bandwidth[job])
    require(np.allclose(memory, cores.node_memory), "free memory of nodes")
    require(np.allclose(bandwidth, cores.free_bandwidth), "free bandwidth of processors")
