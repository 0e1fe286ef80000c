"""Scheduling as in Kubernetes: kube-scheduler's scores of nodes, greedy starts, priorities, withdrawn jobs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiers import examples

import hdsim
from hdsim.cluster.kernels.chunks import Chunk
from hdsim.cluster.kernels.scores import score
from hdsim.cluster.policies import SCORES
from hdsim.cluster.scores import NodeScores
from hdsim.cluster.state import Cluster, FinalState
from hdsim.decisions import DecisionProblem
from hdsim.envs.scheduling import SchedulingEnv
from hdsim.errors import BackendError, ConfigError
from hdsim.scheduling.agent import make_agent, parse_name
from hdsim.workload.constraints import Constraints, Toleration

#: Nodes (CPU in millicores, memory in bytes), requests of their pods, request of the pod, and kube-scheduler's scores.
PUBLISHED: list[tuple[str, list[Any], list[Any], Any, list[int]]] = [
    ("least_allocated", [(4000, 10000), (6000, 10000)], [(0, 0), (0, 0)], (3000, 5000), [37, 50]),
    ("least_allocated", [(10000, 20000), (10000, 20000)], [(3000, 0), (3000, 5000)], (3000, 5000), [57, 45]),
    ("least_allocated", [(10000, 20000), (10000, 50000)], [(3000, 0), (3000, 5000)], (3000, 5000), [57, 60]),
    ("most_allocated", [(4000, 10000), (6000, 10000)], [(0, 0), (0, 0)], (3000, 5000), [62, 50]),
    ("balanced_allocation", [(4000, 10000), (6000, 10000)], [(0, 0), (0, 0)], (3000, 5000), [68, 75]),
    ("balanced_allocation", [(10000, 20000), (10000, 20000)], [(3000, 0), (3000, 5000)], (3000, 5000), [73, 74]),
    ("balanced_allocation", [(10000, 20000), (10000, 50000)], [(3000, 0), (3000, 5000)], (3000, 5000), [73, 70]),
    ("balanced_allocation", [(3000, 5000), (3000, 5000)], [(3000, 0), (0, 0)], (0, 5000), [100, 50]),
    ("balanced_allocation", [(6000, 10000), (6000, 10000)], [(3000, 0), (3000, 5000)], (3000, 0), [62, 62]),
]


@pytest.mark.parametrize(("policy", "nodes", "requested", "pod", "expected"), PUBLISHED)
def test_scores_are_those_of_kube_scheduler(
    policy: str, nodes: list[Any], requested: list[Any], pod: Any, expected: list[int]
) -> None:
    cpu, memory = np.array(nodes, float).T
    capacity, used, wanted = (
        np.stack([cpu / 1000, memory]),
        np.array(requested).T / [[1000], [1]],
        np.array(pod) / [1000, 1],
    )
    found = np.array([score(SCORES.index(policy), capacity, used, wanted, node) for node in range(2)])
    # kube-scheduler truncates the score of each resource, or of each balance, and their mean.
    assert (np.abs(found - expected) <= 1).all()


def test_a_pod_without_requests_counts_as_100_millicores_and_200_mib() -> None:
    scores = NodeScores(np.array([1.0, 1.0]), np.array([2000.0, 1000.0]) * 2**20)
    pod = Chunk(1, 1, 0, 0.0, 0.0)
    free = np.array([1.0, 1.0]), np.array([2000.0, 1000.0]) * 2**20
    # 100 - (10 + 10) / 2 = 90 of the first node, 100 - (10 + 20) / 2 = 85 of the second, 80 and 70 with one pod more.
    assert [_placed(scores, pod, free) for _ in range(4)] == [0, 1, 0, 0]


def _placed(scores: NodeScores, pod: Chunk, free: Any) -> int:
    node = scores.choose("least_allocated", pod, np.array([9, 9]), free).argmax()
    scores.count(int(node), 1, pod.cpu, pod.memory)
    return int(node)


def test_the_scores_are_names_of_agents() -> None:
    for name in SCORES:
        assert parse_name(name) == {"job_policy": "priority", "backfill": "greedy", "core_policy": name}
    assert parse_name("greedy-sjf-most_allocated")["core_policy"] == "most_allocated"


def jobs_of(seed: int, number: int, kinds: int = 4) -> hdsim.Workload:
    rng = np.random.default_rng(seed)
    sizes, memory = rng.integers(1, 7, kinds), rng.choice([0, 500, 900], kinds)
    kind = rng.integers(0, kinds, number)
    return hdsim.Workload.from_columns(
        submission_time=np.sort(rng.integers(0, 30, number)),
        runtime=rng.integers(1, 20, number),
        requested_cores=sizes[kind],
        memory=memory[kind],
        priority=rng.integers(-2, 3, number),
    )


PLATFORM = hdsim.Platform.homogeneous(nodes=3, cores_per_node=4, memory_gb_per_node=2.0)


class Exhaustive(hdsim.Agent):
    """The rule itself: at every instant each queued job is tried in order, whatever has been tried before."""

    def __init__(self, job_policy: str, core_policy: str) -> None:
        self.job_policy, self.core_policy = job_policy, core_policy

    def decide(self, cluster: Any) -> None:
        jobs = cluster.workload
        keys = {
            "priority": lambda job: (-jobs.priority[job], job),
            "smallest": lambda job: (jobs.requested_cores[job], job),
            "fcfs": lambda job: job,
            "wfp3": lambda job: (
                -(((cluster.now - jobs.submission_time[job]) / jobs.requested_time[job]) ** 3)
                * jobs.requested_cores[job],
                job,
            ),
        }
        for job in sorted(cluster.queue, key=keys[self.job_policy]):
            placement = cluster.pick(job)
            if placement is not None:
                cluster.start(job, placement)


@given(
    seed=st.integers(0, 2**32 - 1),
    order=st.sampled_from(["priority", "smallest", "fcfs", "wfp3"]),
    policy=st.sampled_from(["least_allocated", "balanced_allocation", "high_gflops"]),
)
@examples(20, 60)
def test_greedy_starts_what_a_full_search_starts(seed: int, order: str, policy: str) -> None:
    jobs = jobs_of(seed, 60)
    agent = {"job_policy": order, "backfill": "greedy", "core_policy": policy}
    found, expected = (hdsim.simulate(PLATFORM, jobs, each, check=True) for each in (agent, Exhaustive(order, policy)))
    assert found.starting_time.tolist() == expected.starting_time.tolist()
    assert found.jobs["allocated_resources"].tolist() == expected.jobs["allocated_resources"].tolist()


class Counting:
    """Counts the picks of a cluster that find no place."""

    def __init__(self, cluster: Cluster) -> None:
        self.refused, pick = 0, cluster.cores.pick

        def counted(*args: Any, **options: Any) -> Any:
            found = pick(*args, **options)
            self.refused += found is None
            return found

        cluster.cores.pick = counted


def test_a_pass_tries_one_job_of_each_kind_and_only_after_a_release() -> None:
    number = 1000
    jobs = hdsim.Workload.from_columns(
        submission_time=[0] * number, runtime=10, requested_cores=[2] * 2 + [1 + i % 3 for i in range(number - 2)]
    )
    cluster = Cluster(hdsim.Platform.homogeneous(nodes=2, cores_per_node=2), jobs)
    agent = make_agent("greedy")
    agent.begin(cluster)
    cluster.next_instant(0.0)
    for job in range(number):
        cluster.submit(job)
    counting = Counting(cluster)
    agent.decide(cluster)
    assert (list(cluster.running), counting.refused) == ([0, 1], 3)
    cluster.next_instant(10.0)
    cluster.end(0, FinalState.COMPLETED_SUCCESSFULLY)
    agent.decide(cluster)
    assert (list(cluster.running), counting.refused) == ([1, 2, 5], 6)
    cluster.next_instant(11.0)
    agent.decide(cluster)
    assert counting.refused == 6


@pytest.mark.parametrize("agent", ["fcfs", "easy", "conservative", "greedy", "wfp3", "easy-sjbf", "least_allocated"])
def test_withdrawn_jobs_are_not_started(agent: str) -> None:
    jobs = hdsim.Workload.from_columns(submission_time=[0] * 4, runtime=10, requested_cores=[4, 4, 4, 1])
    cluster = Cluster(hdsim.Platform.homogeneous(nodes=1, cores_per_node=4), jobs)
    scheduler = make_agent(agent)
    scheduler.begin(cluster)
    cluster.next_instant(0.0)
    for job in range(4):
        cluster.submit(job)
    scheduler.decide(cluster)
    (first,) = cluster.running
    cluster.next_instant(5.0)
    cluster.withdraw(1)
    scheduler.decide(cluster)
    with pytest.raises(BackendError, match=r"cannot be withdrawn: expected a queued job, it is REJECTED"):
        cluster.withdraw(1)
    cluster.next_instant(10.0)
    cluster.end(first, FinalState.COMPLETED_SUCCESSFULLY)
    scheduler.decide(cluster)
    assert list(cluster.running) == [2]
    assert cluster.state[1] == FinalState.REJECTED


@pytest.mark.parametrize("settings", [{"action": "node"}, {"action": "node", "skip_blocked": True}, {"action": "job"}])
def test_withdrawn_jobs_are_not_offered(settings: dict[str, Any]) -> None:
    jobs = hdsim.Workload.from_columns(submission_time=[0] * 3, runtime=10, requested_cores=[2, 2, 1])
    cluster = Cluster(hdsim.Platform.homogeneous(nodes=1, cores_per_node=4), jobs)
    problem = DecisionProblem(observation="nodes" if settings["action"] == "node" else "jobs", **settings)
    problem.begin(cluster)
    cluster.next_instant(0.0)
    for job in range(3):
        cluster.submit(job)
    cluster.withdraw(1)
    while problem.pending():
        problem.observe()
        problem.act(int(problem.mask().argmax()))
    assert list(cluster.running) == [0, 2]


#: Three sizes of nodes with a limit of pods, ephemeral storage, labels and taints.
MIXED = hdsim.Platform.from_dict(
    {
        "kind": "quantities",
        "clusters": [
            {
                "id": "c",
                "nodes": [{"type": kind, "number": 2} for kind in ("small", "large", "kept")],
                "local_links": {"type": "net", "latency": "0us"},
            }
        ],
        "global_links": {"type": "net", "latency": "0us"},
        "types": {
            "network": {"net": {"bandwidth": "1Gbps"}},
            "memory": {},
            "processor": {
                f"p{cores}": {"type": "CPU", "cores": cores, "clock_rate": clock, "dpflops_per_cycle": 1, "power": 1}
                for cores, clock in ((4, 1.0), (8, 2.0))
            },
            "node": {
                "small": {"processors": [{"type": "p4", "number": 1}], "memory": {"capacity": 8}, "pods": 3},
                "large": {
                    "processors": [{"type": "p8", "number": 1}],
                    "memory": {"capacity": 64},
                    "ephemeral_storage": "10GB",
                    "labels": {"disk": "ssd"},
                },
                "kept": {
                    "processors": [{"type": "p4", "number": 1}],
                    "memory": {"capacity": 16},
                    "taints": [{"key": "team", "value": "a", "effect": "NoSchedule"}],
                },
            },
        },
    },
    where="test",
)


def pods_of(seed: int, number: int) -> hdsim.Workload:
    rng = np.random.default_rng(seed)
    constraints = [
        None,
        Constraints(selector=(("disk", "ssd"),)),
        Constraints(tolerations=(Toleration(key="team", operator="Exists"),)),
    ]
    return hdsim.Workload.from_columns(
        submission_time=np.sort(rng.integers(0, 60, number)),
        runtime=rng.integers(5, 60, number),
        requested_cores=rng.choice([1, 1, 1, 2, 3], number),
        cpu=rng.choice([0.0, 0.25, 0.5, 1.5], number),
        memory=rng.choice([0.0, 500.0, 3000.0], number),
        storage=rng.choice([0.0, 0.0, 4000.0], number),
        priority=rng.integers(0, 3, number),
        constraints=[constraints[place] for place in rng.integers(0, 3, number)],
    )


def fits_on(node: int, cluster: Cluster, job: int) -> bool:
    """Whether one more pod of a job fits on a node, from the placements of all running jobs."""
    jobs, platform = cluster.workload, cluster.platform
    used = np.zeros(4)
    for other, placement in cluster.running.items():
        pods = dict(zip(placement.nodes.tolist(), placement.pods.tolist(), strict=True)).get(node, 0)
        used += np.array([jobs.cpu[other], jobs.memory[other], jobs.storage[other], 1.0]) * pods
    wanted = np.array([jobs.cpu[job], jobs.memory[job], jobs.storage[job], 1.0])
    capacity = [
        platform.node_cpu[node],
        platform.memory[node],
        platform.node_storage[node] / 1e6,
        platform.node_pods[node],
    ]
    constraints = jobs.constraints[job] or Constraints()
    allowed = constraints.allows(platform.node_names[node], platform.node_labels[node], platform.node_taints[node])
    return allowed and bool((used + wanted <= np.array(capacity) + 1e-9).all())


class Recomputed(hdsim.Agent):
    """Places pods at random and compares what it is shown with a slow computation."""

    def __init__(self, observation: str) -> None:
        self.problem = DecisionProblem("node", observation, skip_blocked=True, job_policy="priority")
        self.decisions, self.illegal = 0, 0

    def begin(self, cluster: Any) -> None:
        self.rng = np.random.default_rng(0)
        self.problem.begin(cluster)

    def decide(self, cluster: Any) -> None:
        problem = self.problem
        while problem.pending():
            seen, mask = problem.observe(), problem.mask().copy()
            self.compare(seen, mask, cluster)
            problem.act(int(self.rng.choice(mask.nonzero()[0])))
            self.decisions += 1

    def compare(self, seen: Any, mask: Any, cluster: Any) -> None:
        partial, platform = self.problem.wait_queue.partial, cluster.platform
        if partial.chosen.any():
            return
        fits = [fits_on(node, cluster, partial.job) for node in range(platform.n_nodes)]
        assert mask.tolist() == fits
        self.illegal += len(fits) - sum(fits)
        used = np.zeros((platform.n_nodes, 3))
        for job, placement in cluster.running.items():
            each = [cluster.workload.cpu[job], cluster.workload.memory[job], 1.0]
            used[placement.nodes] += placement.pods[:, None] * np.array(each)
        shares = used / np.stack([platform.node_cpu, platform.memory, platform.node_pods], axis=1)
        if isinstance(seen, dict):
            rows = seen["x"][32 : 32 + platform.n_nodes]
            largest = [platform.node_cpu.max(), platform.memory.max(), platform.node_pods.max(), platform.gflops.max()]
            own = np.stack([platform.node_cpu, platform.memory, platform.node_pods, platform.gflops], axis=1)
            assert rows[:, :4] == pytest.approx(own / largest, abs=1e-6)
            assert rows[:, 4:7] == pytest.approx(shares, abs=1e-6)
            assert (rows[:, 8] > 0).tolist() == fits
            assert seen["node_mask"][:32].sum() == min(32, len(cluster.queue))
            jobs = cluster.workload
            assert seen["x"][-1, 1] == pytest.approx(jobs.cpu[partial.job] / platform.node_cpu.max(), abs=1e-6)
            assert seen["x"][-1, 2] == pytest.approx(jobs.memory[partial.job] / platform.memory.max(), abs=1e-6)
            centre = seen["edge_index"][1, : len(seen["edge_type"]) // 2]
            assert (centre == len(seen["x"]) - 1).all()
        else:
            assert seen[:, :3] == pytest.approx(1 - shares, abs=1e-6)
            assert (seen[:, 6] > 0).tolist() == fits


@pytest.mark.parametrize("observation", ["nodes", "graph"])
def test_nodes_and_what_they_may_take_are_seen(observation: str) -> None:
    agent = Recomputed(observation)
    jobs = pods_of(3, 150)
    result = hdsim.simulate(MIXED, jobs, agent, check=True)
    assert agent.decisions >= 150
    assert agent.illegal > 200
    assert result.metrics["jobs_completed"] == 150


def test_the_reward_is_that_of_cpu_utilisation() -> None:
    """The formula of the Kubernetes agents on amounts, by hand: nodes of 4 and 8 cores, pods of 2 cores."""
    jobs = hdsim.Workload.from_columns(submission_time=[0] * 4, runtime=10, requested_cores=1, cpu=2.0)
    env = SchedulingEnv(MIXED, jobs, "node", "nodes", "cluster_balance", skip_blocked=True)
    env.reset(seed=0)
    shares, found, expected = np.zeros(6), [], []
    for node, sign, times in ((0, 1, 1), (2, 1, 1), (2, -1, 2), (0, 1, 2)):
        shares[node] += 2 / (4 if node == 0 else 8)
        deviation = shares.std()
        balance = 1 - 2 * deviation / (deviation + 1)
        expected.append(balance / np.sqrt(times) if sign > 0 else max(-1, -balance))
        found.append(env.step(node)[1])
    assert found == pytest.approx(expected)


def test_rewards_of_load_imbalance_add_up_to_its_last_value() -> None:
    jobs = hdsim.Workload.from_columns(submission_time=[0] * 3, runtime=10, requested_cores=[1, 3, 1], cpu=2.0)
    env = SchedulingEnv(MIXED, jobs, "node", "nodes", "load_imbalance", skip_blocked=True)
    env.reset(seed=0)
    shares, found, expected = np.zeros(6), [], []
    # Two of the three pods of the second job fit on its first node; they count while it is under construction.
    for node, pods in ((2, 1), (0, 2), (2, 1), (3, 1)):
        before = shares.std()
        shares[node] += pods * 2 / (4 if node == 0 else 8)
        expected.append(before - shares.std())
        found.append(env.step(node)[1])
    assert found == pytest.approx(expected)
    assert sum(found) == pytest.approx(-shares.std())


def test_choices_are_counted_within_a_deployment() -> None:
    jobs = hdsim.Workload.from_columns(
        submission_time=[0, 0, 0, 5, 5], runtime=100, requested_cores=1, cpu=0.0, user=[1, 1, 1, 1, 2]
    )
    for per_deployment, expected in ((False, [1, -1, 1, -1, -1]), (True, [1, -1, 1, 1, 1])):
        env = SchedulingEnv(
            MIXED, jobs, "node", "nodes", "cluster_balance", skip_blocked=True, per_deployment=per_deployment
        )
        env.reset(seed=0)
        # Pods without CPU: the balance is always 1.
        assert [env.step(node)[1] for node in (2, 2, 3, 3, 3)] == expected
    with pytest.raises(ConfigError, match=r"env\.per_deployment: expected true or false, and true only with"):
        SchedulingEnv(MIXED, jobs, "node", "nodes", "makespan", per_deployment=True)
