"""Invariants of a cluster's state, for tests and for replays that check every instant."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hdsim.cluster.placement import Placement
from hdsim.cluster.state import FinalState
from hdsim.cluster.stores.nodes import NodeCores
from hdsim.util.units import in_bytes

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster

_RAN = range(FinalState.RUNNING, FinalState.COMPLETED_KILLED + 1)
_ENDED = range(FinalState.COMPLETED_SUCCESSFULLY, FinalState.COMPLETED_KILLED + 1)


def check(cluster: Cluster) -> None:
    """Asserts every invariant of the state; takes time in proportion to the platform and all jobs.

    Raises:
        AssertionError: One does not hold.
    """
    _check_states(cluster)
    for job, placement in cluster.running.items():
        cores = placement.cores if isinstance(placement, Placement) else placement
        assert len(cores) == cluster.size[job], "a job has not the cores it asked for"
        if cluster.requests.gpus:
            cluster.require_gpus(job, placement.ids)
    cluster.cores.check(list(cluster.running.values()))
    if isinstance(cluster.cores, NodeCores):
        _check_memory(cluster, cluster.cores)


def _check_states(cluster: Cluster) -> None:
    states = np.array(cluster.state)

    def jobs_that_are(state: FinalState) -> set[int]:
        return set(np.flatnonzero(states == state).tolist())

    assert set(cluster.queue) == jobs_that_are(FinalState.QUEUED), "queued jobs"
    assert list(cluster.queue) == sorted(cluster.queue), "queue out of order"
    assert set(cluster.starting) == jobs_that_are(FinalState.STARTING), "starting jobs"
    assert set(cluster.held) == jobs_that_are(FinalState.HELD), "held jobs"
    holding = jobs_that_are(FinalState.RUNNING) | jobs_that_are(FinalState.STARTING)
    assert set(cluster.running) == holding, "jobs that hold cores"
    assert cluster.arrived == np.count_nonzero(states), "jobs that have arrived"
    started, finished = np.array(cluster.starting_time), np.array(cluster.finish_time)
    assert np.array_equal(~np.isnan(started), np.isin(states, _RAN)), "a state without its start"
    assert np.array_equal(~np.isnan(finished), np.isin(states, _ENDED)), "a state without its end"
    submitted = cluster.workload.submission_time
    assert not (started < submitted).any() and not (finished < started).any(), "a job before its time"
    assert not (finished > cluster.now).any(), "a job ended in the future"


def _check_memory(cluster: Cluster, cores: NodeCores) -> None:
    platform, requests = cluster.platform, cluster.requests
    memory, bandwidth = in_bytes(platform.memory), platform.mem_bw.copy()
    for job, placement in cluster.running.items():
        owner = platform.core_processor[placement.cores]
        np.subtract.at(memory, platform.processor_node[owner], requests.memory[job])
        np.subtract.at(bandwidth, owner, requests.bandwidth[job])
    assert np.allclose(memory, cores.node_memory), "free memory of nodes"
    assert np.allclose(bandwidth, cores.free_bandwidth), "free bandwidth of processors"
