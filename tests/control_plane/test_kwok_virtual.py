"""Backend ``kwok`` in simulated time: the schedule of the simulation on a real API server, pod by pod."""

from __future__ import annotations

import csv
import logging
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kube import Cluster, amount
from tiers import nightly

import hdsim
from hdsim.agents.kube_scheduler import KubeScheduler
from hdsim.backends.kwok.backend import Kwok
from hdsim.cluster.requests import Amounts
from hdsim.cluster.state import Cluster as State
from hdsim.cluster.state import FinalState
from hdsim.errors import BackendError, ConfigError
from hdsim.kubernetes.nodes import control_plane_node, node_manifests
from hdsim.kubernetes.objects import pod_manifest
from hdsim.platform.load import load_platform
from hdsim.results.run_directory.writers import write_jobs
from hdsim.scheduling.agent import Agent
from hdsim.util.resources import resolve
from hdsim.workload.constraints import Constraints

pytestmark = pytest.mark.requires("kube")

PLATFORM = hdsim.Platform.from_dict(
    {
        "name": "mixed",
        "kind": "quantities",
        "clusters": [
            {"id": "small", "nodes": [{"type": "small", "number": 3}]},
            {"id": "large", "nodes": [{"type": "large", "number": 2}]},
        ],
        "types": {
            "node": {
                "small": {"processors": [{"type": "cpu", "number": 1}], "memory": {"capacity": 16}, "pods": 6},
                "large": {
                    "processors": [{"type": "fast", "number": 1}, {"type": "gpu", "number": 1}],
                    "memory": {"capacity": 64},
                    "labels": {"disk": "ssd"},
                    "taints": [{"key": "dedicated", "value": "yes", "effect": "NoSchedule"}],
                },
            },
            "processor": {
                "cpu": {"cores": 4, "clock_rate": 2, "dpflops_per_cycle": 1, "power": 1},
                "fast": {"cores": 16, "clock_rate": 4, "dpflops_per_cycle": 1, "power": 1},
                "gpu": {"type": "GPU", "cores": 4, "clock_rate": 1, "dpflops_per_cycle": 1, "power": 1},
            },
        },
    }
)


def jobs(number: int, seed: int = 1) -> hdsim.Workload:
    """Gangs and single pods; some must go to the large nodes, some may, one fits nowhere."""
    rng = np.random.default_rng(seed)
    tolerant = Constraints.from_spec({"tolerations": [{"key": "dedicated", "operator": "Exists"}]})
    bound = Constraints.from_spec(
        {"tolerations": [{"key": "dedicated", "operator": "Exists"}], "nodeSelector": {"disk": "ssd"}}
    )
    constraints = np.empty(number, object)
    constraints[:] = [(None, tolerant, bound)[choice] for choice in rng.integers(3, size=number)]
    size = rng.choice([1, 1, 1, 2, 3], number)
    runtime = np.round(rng.exponential(50, number), 1)
    # Some take no time at all.
    runtime[::11] = 0
    memory = rng.choice([100.0, 1000.0, 3000.0], number)
    memory[number // 2] = 1e6
    return hdsim.Workload.from_columns(
        submission_time=np.round(np.cumsum(rng.exponential(4, number))),
        runtime=runtime,
        requested_time=runtime * rng.uniform(1, 3, number),
        requested_cores=size,
        requested_gpus=np.array([size[job] if constraints[job] is bound else 0 for job in range(number)]),
        cpu=rng.choice([0.25, 1.0, 2.0, 3.5], number),
        memory=memory,
        constraints=constraints,
        job_id=[f"w0!{job}" for job in range(number)],
    )


@pytest.fixture
def nodes(cluster: Cluster) -> Cluster:
    """The cluster with the nodes of the platform."""
    cluster.add_nodes(node_manifests(PLATFORM))
    return cluster


def backend(cluster: Cluster, **settings: Any) -> Kwok:
    return Kwok(kubeconfig=str(cluster.kubeconfig), namespace=cluster.namespace, clock="virtual", **settings)


def check_pods(cluster: Cluster, result: hdsim.Result, folder: Path) -> None:
    """Compares pods.csv and the pods of the API server with the placements and times of a result."""
    rows = list(csv.DictReader((folder / "pods.csv").open()))
    pods = {pod["metadata"]["name"]: pod for pod in cluster.pods()}
    assert len(rows) == len(pods)
    of_job: dict[str, list[dict[str, str]]] = defaultdict(list)
    for row in rows:
        pod = pods[row["name"]]
        assert row["namespace"] == cluster.namespace
        assert row["node"] == pod["spec"].get("nodeName", "")
        assert pod["status"]["phase"] == ("Succeeded" if row["node"] else "Pending")
        of_job[pod["metadata"]["annotations"]["hdsim.io/job-id"]].append(row)
    columns = ("job_id", "starting_time", "finish_time", "allocated_resources")
    for job, started, ended, placement in zip(*(result.jobs[name].tolist() for name in columns), strict=True):
        used: Counter[str] = Counter()
        for row in of_job[job]:
            if row["node"]:
                requests = pods[row["name"]]["spec"]["containers"][0]["resources"]["requests"]
                used[row["node"]] += round(1000 * amount(requests["cpu"]))
                assert float(row["bound"]) == pytest.approx(started, abs=1e-6)
                assert float(row["finished"]) == pytest.approx(ended, abs=1e-6)
        assert used == millicores(placement)


def millicores(placement: str) -> dict[str, int]:
    """CPU of each node in a cell of the column `allocated_resources`."""
    parts = (part.split(":") for part in placement.split())
    return {node: round(1000 * float(cpu)) for node, cpu, *_ in parts}


def bytes_of(result: hdsim.Result, path: Path) -> bytes:
    """Content of jobs.csv."""
    write_jobs(path, result)
    return path.read_bytes()


def searching(kind: str, backfill: str) -> Any:
    settings = {"backfill": backfill, "core_policy": "least_allocated", "scenarios": 2, "arrivals": 4, "budget": 6}
    return {"_target_": f"hdsim.agents.{kind}", "candidates": ["saf", "fcfs"], **settings}


def learned(module: str, name: str) -> Any:
    agent = {"_target_": f"hdsim.agents.{module}", "checkpoint": name}
    return pytest.param(agent, id=name, marks=[pytest.mark.requires("torch"), pytest.mark.ci])


@pytest.mark.parametrize(
    "agent",
    [
        {"job_policy": "fcfs", "core_policy": "least_allocated"},
        {"job_policy": "sjf", "backfill": "easy", "core_policy": "most_allocated"},
        *nightly(
            searching("rollout.Rollout", "easy"),
            {"job_policy": "fcfs", "backfill": "conservative", "core_policy": "spread"},
            {"job_policy": "priority", "backfill": "greedy", "core_policy": "balanced_allocation"},
            searching("rollout.Rollout", "none"),
            searching("mcts.Mcts", "easy"),
        ),
        learned("dqn.DQNAgent", "kubernetes_dqn"),
        learned("gnn_dqn.GNNDQNAgent", "kubernetes_gnn"),
    ],
    ids=lambda agent: f"{agent.get('backfill', 'strict')}-{agent['core_policy']}",
)
@pytest.mark.ci
def test_the_schedule_is_that_of_the_simulation(nodes: Cluster, tmp_path: Path, agent: dict[str, str]) -> None:
    workload = jobs(60)
    simulated = hdsim.simulate(PLATFORM, workload, agent, check=True)
    real, facts = backend(nodes).run(PLATFORM, workload, agent, tmp_path, check=True)
    assert (simulated.jobs["final_state"] == "REJECTED").sum() == 1
    assert (simulated.jobs["waiting_time"] > 0).any()
    assert bytes_of(simulated, tmp_path / "simulated.csv") == bytes_of(real, tmp_path / "real.csv")
    check_pods(nodes, simulated, tmp_path)
    assert facts["pods_bound"] == facts["pods"] - workload.requested_cores[30]
    events = nodes.api.items(f"/apis/events.k8s.io/v1/namespaces/{nodes.namespace}/events")
    assert {event["reason"] for event in events} == {"FailedScheduling"}


class Interferes(Agent):
    """FCFS; at the start of one job, another client does something with its pod."""

    core_policy = "least_allocated"

    def __init__(self, cluster: Cluster, what: str) -> None:
        self._api, self._pods = cluster.api, f"/api/v1/namespaces/{cluster.namespace}/pods"
        self._what, self.done = what, 0

    def decide(self, cluster: State) -> None:
        for job in list(cluster.queue):
            placement = cluster.pick(job)
            if placement is None:
                continue
            if self.done == 0 and job >= 5:
                self.done += 1
                pod = next(
                    pod["metadata"]["name"]
                    for pod in self._api.items(self._pods)
                    if pod["metadata"]["annotations"]["hdsim.io/job-id"] == f"w0!{job}"
                )
                if self._what == "deletes":
                    self._api("DELETE", f"{self._pods}/{pod}?gracePeriodSeconds=0")
                elif self._what == "binds":
                    other = next(node for node in range(5) if node not in placement.nodes)
                    target = {"target": {"kind": "Node", "name": cluster.platform.node_names[other]}}
                    self._api("POST", f"{self._pods}/{pod}/binding", {"metadata": {"name": pod}, **target})
            cluster.start(job, placement)


@pytest.mark.parametrize("what", ["deletes", *nightly("binds")])
@pytest.mark.ci
def test_a_refused_binding_is_taken_back(
    nodes: Cluster, tmp_path: Path, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    workload, agent = jobs(20), Interferes(nodes, what)
    with caplog.at_level(logging.WARNING):
        result, facts = backend(nodes).run(PLATFORM, workload, agent, tmp_path, check=True)
    assert agent.done == 1 and facts["failed_starts"] == 1
    assert "was not bound" in caplog.text
    done = result.jobs["final_state"] == FinalState.COMPLETED_SUCCESSFULLY.name
    assert done.sum() == 19
    check_pods(nodes, result, tmp_path)


@pytest.mark.ci
def test_a_pod_that_another_client_changes_ends_the_run(nodes: Cluster, tmp_path: Path) -> None:
    class Cleans(Agent):
        def decide(self, cluster: State) -> None:
            for job in list(cluster.queue):
                if cluster.pick(job) is not None:
                    cluster.start(job)
            if cluster.arrived == 20:
                # One of the pods has ended by then.
                names = [pod["metadata"]["name"] for pod in nodes.pods() if pod["status"]["phase"] == "Succeeded"]
                nodes.api("DELETE", f"/api/v1/namespaces/{nodes.namespace}/pods/{names[0]}?gracePeriodSeconds=0")

    with pytest.raises(BackendError, match=r"another client has changed pod .*: expected .*, it is") as caught:
        backend(nodes).run(PLATFORM, jobs(20), Cleans(), tmp_path)
    assert len(caught.value.result.jobs["job_id"]) == 20


@pytest.mark.ci
def test_pods_of_others_are_told(nodes: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        backend(nodes).run(PLATFORM, jobs(1), "fcfs", tmp_path / "clean")
    assert "of others" not in caplog.text
    for item in nodes.pods():
        nodes.api(
            "DELETE", f"/api/v1/namespaces/{nodes.namespace}/pods/{item['metadata']['name']}?gracePeriodSeconds=0"
        )
    foreign = pod_manifest("foreign", Amounts(cpu=1.0), namespace=nodes.namespace, scheduler="another")
    foreign["spec"]["nodeName"] = PLATFORM.node_names[0]
    nodes.api("POST", f"/api/v1/namespaces/{nodes.namespace}/pods", foreign)
    with caplog.at_level(logging.WARNING):
        backend(nodes).run(PLATFORM, jobs(1), "fcfs", tmp_path / "shared")
    assert caplog.text.count(f"1 pod of others is on the nodes of the platform, such as {nodes.namespace}/foreign") == 1


@pytest.mark.ci
def test_pods_of_others_that_come_in_mid_run_are_told(
    nodes: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Disturbed(Agent):
        def decide(self, cluster: State) -> None:
            for job in list(cluster.queue):
                if cluster.pick(job) is not None:
                    cluster.start(job)
            if cluster.arrived == 20:
                foreign = pod_manifest("late", Amounts(cpu=1.0), namespace=nodes.namespace, scheduler="another")
                foreign["spec"]["nodeName"] = PLATFORM.node_names[0]
                nodes.api.request("POST", f"/api/v1/namespaces/{nodes.namespace}/pods", foreign)

    with caplog.at_level(logging.WARNING):
        backend(nodes).run(PLATFORM, jobs(20), Disturbed(), tmp_path)
    assert f"1 pods of others have come to the nodes in mid-run, such as {nodes.namespace}/late" in caplog.text


@pytest.mark.ci
def test_pods_of_an_earlier_run_are_named(nodes: Cluster, tmp_path: Path) -> None:
    backend(nodes).run(PLATFORM, jobs(3), "fcfs", tmp_path)
    with pytest.raises(ConfigError, match="hdsim kwok clean"):
        backend(nodes).run(PLATFORM, jobs(3), "fcfs", tmp_path)


@pytest.mark.ci
def test_nodes_with_kubelets_are_refused(nodes: Cluster, tmp_path: Path) -> None:
    name = PLATFORM.node_names[0]
    patch = {"metadata": {"annotations": {"kwok.x-k8s.io/node": None}}}
    nodes.api("PATCH", f"/api/v1/nodes/{name}", patch, "merge-patch+json")
    with pytest.raises(ConfigError, match=f"backend.clock: expected wall: node {name} is none of Kwok's"):
        backend(nodes).run(PLATFORM, jobs(3), "fcfs", tmp_path)


@pytest.mark.ci
def test_a_cordoned_node_is_refused(nodes: Cluster, tmp_path: Path) -> None:
    name = PLATFORM.node_names[1]
    nodes.api("PATCH", f"/api/v1/nodes/{name}", {"spec": {"unschedulable": True}}, "merge-patch+json")
    with pytest.raises(ConfigError, match=f"platform: expected nodes that are ready, .* got node {name}"):
        backend(nodes).run(PLATFORM, jobs(3), "fcfs", tmp_path)


@pytest.mark.ci
def test_the_platform_must_be_that_of_the_server(nodes: Cluster, tmp_path: Path) -> None:
    other = hdsim.Platform.homogeneous(nodes=2, cores_per_node=4)
    with pytest.raises(ConfigError, match="is missing on the API server"):
        backend(nodes).run(
            other, hdsim.Workload.from_columns(submission_time=[0], runtime=[1], requested_cores=[1]), "fcfs", tmp_path
        )


@pytest.mark.ci
def test_what_has_no_simulated_time_is_refused(nodes: Cluster, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected a trace"):
        backend(nodes).check(PLATFORM, hdsim.Workload.empty("<cluster>"))
    with pytest.raises(ConfigError, match="kube-scheduler has no simulated time"):
        backend(nodes).run(PLATFORM, jobs(3), KubeScheduler(), tmp_path)


@pytest.mark.requires("torch")
@pytest.mark.ci
def test_training_takes_place_on_the_api_server(cluster: Cluster, hdsim: Any, tmp_path: Path) -> None:
    cluster.add_nodes(node_manifests(load_platform(resolve("platforms", "ten_nodes", where="test"))))
    cluster.add_nodes([control_plane_node()])
    settings = [
        "env=kubernetes",
        "platform=ten_nodes",
        "workload=deployments",
        "agent=dqn",
        "agent.learning_starts=10",
        "env.jobs=25",
        "train.steps=60",
        "train.validation=1",
        "train.test=1",
        "train.log_every=20",
        "train.evaluate_every=30",
        "train.checkpoint_every=30",
        "train.tensorboard=false",
    ]
    real = ["backend=kwok", "backend.clock=virtual", f"backend.namespace={cluster.namespace}"]
    real.append(f"backend.kubeconfig={cluster.kubeconfig}")
    for folder, more in (("sim", []), ("kwok", real)):
        done = hdsim("train", *settings, *more, f"hydra.run.dir={folder}")
        assert done.returncode == 0, done.stderr
    # Once for the three episodes.
    assert done.stderr.count("not in the platform and get no pods, such as control-plane") == (folder == "kwok")
    # A step binds a pod, and an episode leaves no pod of the one before: 60 steps are 10 in the third one.
    bound = [pod["spec"]["nodeName"] for pod in cluster.pods() if "nodeName" in pod["spec"]]
    assert len(bound) == 60 - 2 * 25
    # Every decision and reward is that of the training in simulation.
    records = [columns(tmp_path / folder / "progress.csv") for folder in ("sim", "kwok")]
    assert len(records[0]) > 3 and records[0] == records[1]
    refused = hdsim("train", *settings, *real, "agent.num_envs=2", "hydra.run.dir=two")
    assert refused.returncode == 2 and "agent.num_envs: expected 1" in refused.stderr


def columns(path: Path) -> list[dict[str, str]]:
    """Rows of a CSV file without those columns that depend on wall time."""
    rows = csv.DictReader(path.open())
    return [{name: value for name, value in row.items() if "second" not in name} for row in rows]
