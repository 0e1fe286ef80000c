"""How evenly schedulers spread pods on ten nodes of a real API server, measured by what the API server says."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from kube import Api, Cluster, wait_for

import hdsim
from hdsim.agents.kube_scheduler import KubeScheduler
from hdsim.backends.kwok.backend import Kwok
from hdsim.kubernetes.nodes import node_manifests
from hdsim.report.statistics import Interval, bootstrap
from hdsim.util.resources import resolve

PLATFORM = hdsim.load_platform(resolve("platforms", "ten_nodes"))
_HALF = {"model": "deployments", "cpu_load": 0.5, "memory_load": 0.5, "pod_load": 0.5}
#: Sizes of pods: those of the earlier system, and those that the agents were trained on.
SIZES: dict[str, dict[str, Any]] = {
    "equal": _HALF,
    "mixed": _HALF | {"cpu": [1, 2, 4], "memory": ["2GiB", "4GiB", "8GiB"]},
}
#: The agents were trained on pods of seed 1.
FIRST_SEED = 1001
#: Agents by name. The trained ones come with hdsim.
AGENTS: dict[str, Any] = {
    "random": "first-random",
    "least_allocated": "least_allocated",
    "kubernetes_dqn": {"_target_": "hdsim.agents.dqn.DQNAgent", "checkpoint": "kubernetes_dqn"},
    "kubernetes_gnn": {"_target_": "hdsim.agents.gnn_dqn.GNNDQNAgent", "checkpoint": "kubernetes_gnn"},
    "kube-scheduler": KubeScheduler(),
}
#: Times as fast as simulated time; kube-scheduler has to decide within 1 / this many seconds.
_SPEED = 40.0


def make_nodes(cluster: Cluster) -> None:
    """Creates the nodes of the platform."""
    cluster.add_nodes(node_manifests(PLATFORM))


def deviations(cluster: Cluster, name: str, sizes: str, seed: int, folder: Path) -> tuple[float, float]:
    """Schedules the pods of a seed and returns how unequal the nodes' utilisation of CPU is.

    Agents of hdsim run in simulated time, kube-scheduler by the clock; what counts is the node of each pod, as the API
    server has it, for the times of the trace.

    Args:
        cluster: The cluster with the nodes.
        name: Key of `AGENTS`.
        sizes: Key of `SIZES`.
        seed: Seed of the pods, and of random choices.
        folder: An empty folder.

    Returns:
        The standard deviation of the utilisation over the nodes: mean over time, and when all pods are there.
    """
    namespace = f"balance-{uuid.uuid4().hex[:8]}"
    cluster.make_namespace(namespace)
    jobs = hdsim.load_workload(SIZES[sizes], PLATFORM, seed=seed)
    clock = {"clock": "wall", "time_scale": _SPEED} if name == "kube-scheduler" else {"clock": "virtual"}
    backend = Kwok(kubeconfig=str(cluster.kubeconfig), namespace=namespace, **clock)
    result, _ = backend.run(PLATFORM, jobs, AGENTS[name], folder, seed=seed)
    nodes = nodes_of_jobs(cluster.api, namespace)
    cluster.api("DELETE", f"/api/v1/namespaces/{namespace}/pods?gracePeriodSeconds=0")
    wait_for(lambda: not cluster.pods(namespace), "an empty namespace")
    # All pods end at the same time. Those that arrive at short intervals of the clock may be bound in another order, in
    # which they count.
    order = np.argsort(result.starting_time, kind="stable")
    shares = np.zeros((len(jobs), PLATFORM.n_nodes))
    shares[np.arange(len(jobs)), [nodes[str(job)] for job in jobs.job_id[order]]] = (jobs.cpu / PLATFORM.node_cpu[0])[
        order
    ]
    deviation = np.cumsum(shares, axis=0).std(axis=1)
    until = np.append(jobs.submission_time[1:], jobs.submission_time[0] + jobs.runtime[0])
    return float(np.average(deviation, weights=until - jobs.submission_time)), float(deviation[-1])


def nodes_of_jobs(api: Api, namespace: str) -> Mapping[str, int]:
    """Index of the node of each job of one pod."""
    return {
        pod["metadata"]["annotations"]["hdsim.io/job-id"]: PLATFORM.node_names.index(pod["spec"]["nodeName"])
        for pod in api.items(f"/api/v1/namespaces/{namespace}/pods")
    }


def simulated(name: str, sizes: str, seed: int) -> tuple[float, float]:
    """Returns what `deviations` does, from the metrics of a simulation."""
    jobs = hdsim.load_workload(SIZES[sizes], PLATFORM, seed=seed)
    metrics = hdsim.simulate(PLATFORM, jobs, AGENTS[name], seed=seed).metrics
    return metrics["load_imbalance"], metrics["peak_load_imbalance"]


def measure(
    cluster: Cluster, names: Sequence[str], sizes: str, seeds: Sequence[int], folder: Path, *, virtual: bool = False
) -> dict[str, np.ndarray]:
    """(S, 2) deviations of every scheduler; agents decide in the simulation, or in simulated time on the cluster."""

    def one(name: str, seed: int) -> tuple[float, float]:
        if virtual or name == "kube-scheduler":
            return deviations(cluster, name, sizes, seed, folder / f"{name}-{sizes}-{seed}")
        return simulated(name, sizes, seed)

    return {name: np.array([one(name, seed) for seed in seeds]) for name in names}


def difference(found: Mapping[str, np.ndarray], name: str, base: str, column: int) -> Interval:
    """Mean paired difference of a column of `measure`, with its interval."""
    return bootstrap(found[name][:, column] - found[base][:, column])
