"""Placement constraints and quantities against a filter written apart from hdsim, which reads Pod specs."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiers import examples

import hdsim
from hdsim.backends.base import make_backend
from hdsim.cluster.requests import Amounts
from hdsim.cluster.state import Cluster, FinalState
from hdsim.envs.scheduling import SchedulingEnv
from hdsim.errors import ConfigError, DecisionError, PlatformError, WorkloadError
from hdsim.platform.schema import Taint
from hdsim.report.panels import panels
from hdsim.results import series
from hdsim.results.run_directory.directory import RunDirectory
from hdsim.results.run_directory.reader import read
from hdsim.workload.constraints import Constraints, Requirement

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
KEYS, VALUES = ["zone", "disk", "tier"], ["a", "b", "7", "12"]
EFFECTS = ["NoSchedule", "NoExecute", "PreferNoSchedule"]


def filtered(spec: dict[str, Any], node: dict[str, Any]) -> bool:
    """Whether kube-scheduler's filters let a pod onto a node, step by step as its documentation states them."""
    labels = node["labels"]
    for key, value in spec.get("nodeSelector", {}).items():
        if key not in labels or labels[key] != value:
            return False
    required = spec.get("affinity", {}).get("nodeAffinity", {}).get(REQUIRED)
    if required is not None:
        matched = False
        for term in required["nodeSelectorTerms"]:
            checks = []
            for entry in term.get("matchExpressions", []):
                own, present = labels.get(entry["key"]), entry["key"] in labels
                if entry["operator"] == "In":
                    checks.append(present and own in entry["values"])
                elif entry["operator"] == "NotIn":
                    checks.append(not present or own not in entry["values"])
                elif entry["operator"] == "Exists":
                    checks.append(present)
                elif entry["operator"] == "DoesNotExist":
                    checks.append(not present)
                else:
                    number = int(own) if present and own.isdigit() else None
                    bound = int(entry["values"][0])
                    above = entry["operator"] == "Gt"
                    checks.append(number is not None and (number > bound if above else number < bound))
            for entry in term.get("matchFields", []):
                checks.append((node["name"] == entry["values"][0]) == (entry["operator"] == "In"))
            matched = matched or (len(checks) > 0 and all(checks))
        if not matched:
            return False
    for taint in node["taints"]:
        if taint["effect"] == "PreferNoSchedule":
            continue
        tolerated = False
        for toleration in spec.get("tolerations", []):
            if toleration.get("effect") and toleration["effect"] != taint["effect"]:
                continue
            if toleration.get("operator", "Equal") == "Exists":
                tolerated = tolerated or toleration.get("key", "") in ("", taint["key"])
            else:
                same = toleration["key"] == taint["key"] and toleration.get("value", "") == taint.get("value", "")
                tolerated = tolerated or same
        if not tolerated:
            return False
    return True


def expressions() -> st.SearchStrategy[dict[str, Any]]:
    key, values = st.sampled_from(KEYS), st.lists(st.sampled_from(VALUES), min_size=1, max_size=2)
    return st.one_of(
        st.builds(
            lambda k, o, v: {"key": k, "operator": o, "values": v}, key, st.sampled_from(["In", "NotIn"]), values
        ),
        st.builds(lambda k, o: {"key": k, "operator": o}, key, st.sampled_from(["Exists", "DoesNotExist"])),
        st.builds(
            lambda k, o, v: {"key": k, "operator": o, "values": [v]},
            key,
            st.sampled_from(["Gt", "Lt"]),
            st.sampled_from(["7", "10"]),
        ),
    )


FIELDS = st.builds(
    lambda o, v: {"key": "metadata.name", "operator": o, "values": [v]},
    st.sampled_from(["In", "NotIn"]),
    st.sampled_from(["n-0", "n-1"]),
)
TERMS = st.fixed_dictionaries(
    {},
    optional={
        "matchExpressions": st.lists(expressions(), min_size=1, max_size=3),
        "matchFields": st.lists(FIELDS, min_size=1, max_size=1),
    },
)
TOLERATIONS = st.one_of(
    st.fixed_dictionaries(
        {"key": st.sampled_from(KEYS)},
        optional={"value": st.sampled_from(VALUES), "effect": st.sampled_from(EFFECTS)},
    ),
    st.fixed_dictionaries(
        {"operator": st.just("Exists")},
        optional={"key": st.sampled_from(KEYS), "effect": st.sampled_from(EFFECTS)},
    ),
)
SPECS = st.fixed_dictionaries(
    {},
    optional={
        "nodeSelector": st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES), min_size=1, max_size=2),
        "affinity": st.builds(
            lambda terms: {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}},
            st.lists(TERMS, min_size=1, max_size=2),
        ),
        "tolerations": st.lists(TOLERATIONS, min_size=1, max_size=2),
    },
)
LABELS = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES))
TAINTS = st.lists(
    st.fixed_dictionaries(
        {"key": st.sampled_from(KEYS), "effect": st.sampled_from(EFFECTS)}, optional={"value": st.sampled_from(VALUES)}
    ),
    max_size=2,
)


def platform_of(groups: list[dict[str, Any]]) -> hdsim.Platform:
    """Nodes of 2 CPU, 4 GB, 3 pods and 10 GB of ephemeral storage."""
    node = {"processors": [{"type": "p", "number": 1}], "memory": {"capacity": 4}, "pods": 3, "ephemeral_storage": 10}
    processor = {"cores": 2, "clock_rate": 1, "dpflops_per_cycle": 1, "power": 0}
    return hdsim.Platform.from_dict(
        {
            "kind": "quantities",
            "clusters": [{"id": "n", "nodes": [{"type": "t", "number": 1, **group} for group in groups]}],
            "types": {"node": {"t": node}, "processor": {"p": processor}},
        }
    )


@given(spec=SPECS, labels=LABELS, taints=TAINTS, name=st.sampled_from(["n-0", "n-1"]))
@examples(150, 1500)
def test_constraints_are_those_of_kube_scheduler(
    spec: dict[str, Any], labels: dict[str, str], taints: list[dict[str, str]], name: str
) -> None:
    constraints = Constraints.from_spec(spec) or Constraints()
    node = [Taint(taint["key"], taint.get("value", ""), taint["effect"]) for taint in taints]
    assert constraints.allows(name, labels, node) == filtered(spec, {"name": name, "labels": labels, "taints": taints})
    assert (Constraints.from_spec(json.loads(json.dumps(constraints.to_spec()))) or Constraints()) == constraints


@given(spec=SPECS, more=st.lists(expressions(), min_size=1, max_size=2), labels=LABELS, taints=TAINTS)
@examples(200, 2000)
def test_further_requirements_hold_beside_all_constraints(
    spec: dict[str, Any], more: list[dict[str, Any]], labels: dict[str, str], taints: list[dict[str, str]]
) -> None:
    node = {"name": "n-0", "labels": labels, "taints": taints}
    further = tuple(Requirement(each["key"], each["operator"], tuple(each.get("values", ()))) for each in more)
    made = (Constraints.from_spec(spec) or Constraints()).and_also(further)
    known = [Taint(each["key"], each.get("value", ""), each["effect"]) for each in taints]
    beside = {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": more}]}}}}
    expected = filtered(spec, node) and filtered(beside, {**node, "taints": []})
    assert made.allows("n-0", labels, known) == expected


@pytest.mark.parametrize("agent", ["fcfs-spread", "easy-wfp3-pack", "conservative", "least_allocated"])
@given(
    groups=st.lists(st.fixed_dictionaries({"labels": LABELS, "taints": TAINTS}), min_size=1, max_size=4),
    specs=st.lists(SPECS, min_size=1, max_size=4),
    seed=st.integers(0, 2**32 - 1),
)
@examples(5, 60)
def test_no_node_is_overcommitted_and_every_constraint_respected(
    agent: str, groups: list[dict[str, Any]], specs: list[dict[str, Any]], seed: int
) -> None:
    """Amounts of nodes at every instant are sums of fractions; what does not fit the empty platform is rejected."""
    platform, rng, count = platform_of(groups), np.random.default_rng(seed), 25
    of_job = rng.integers(0, len(specs), count)
    column = np.empty(count, object)
    column[:] = [Constraints.from_spec(specs[each]) for each in of_job]
    jobs = hdsim.Workload.from_columns(
        submission_time=np.sort(rng.integers(0, 40, count)),
        runtime=rng.integers(1, 20, count),
        requested_cores=rng.integers(1, 4, count),
        cpu=rng.choice([0.0, 0.1, 0.5, 1.0, 2.0], count),
        memory=rng.choice([0.0, 1000.0, 3000.0], count),
        storage=rng.choice([0.0, 4000.0], count),
        constraints=column,
    )
    result = hdsim.simulate(platform, jobs, agent, check=True)
    nodes = [{"name": f"n-{i}", **group} for i, group in enumerate(groups)]
    for row, each in enumerate(nodes):
        base = {"kubernetes.io/hostname": each["name"], "node.kubernetes.io/instance-type": "t"}
        assert platform.node_labels[row] == {**base, **each["labels"]}
    amounts = [[Fraction(str(getattr(jobs, key)[job])) for key in ("cpu", "memory", "storage")] for job in range(count)]
    held = {int(job): each for job, each in zip(result.segments.job, result.segments.amounts, strict=True)}
    for job in range(count):
        allowed = [filtered(specs[of_job[job]], node) for node in nodes]
        most = min(
            [3, *(int(limit / each) for limit, each in zip((2, 4000, 10000), amounts[job], strict=True) if each)]
        )
        feasible = sum(allowed) * most >= jobs.requested_cores[job]
        assert (result.state[job] == FinalState.COMPLETED_SUCCESSFULLY) == feasible
        assert (result.state[job] == FinalState.REJECTED) == (not feasible)
        if feasible:
            assert all(allowed[node] for node in held[job].nodes)
            assert held[job].pods.sum() == jobs.requested_cores[job]
    for instant in set(result.starting_time[~np.isnan(result.starting_time)].tolist()):
        running = [job for job in held if result.starting_time[job] <= instant < result.finish_time[job]]
        for node in range(len(nodes)):
            pods = {job: int(held[job].pods[held[job].nodes == node].sum()) for job in running}
            assert sum(pods.values()) <= 3
            for column_index, limit in enumerate((2, 4000, 10000)):
                assert sum(number * amounts[job][column_index] for job, number in pods.items()) <= limit


def test_each_taint_that_excludes_nodes_is_named() -> None:
    gpu = {"key": "gpu", "value": "a100", "effect": "NoSchedule"}
    drain = {"key": "drain", "effect": "NoExecute"}
    soft = {"key": "soft", "effect": "PreferNoSchedule"}
    ssd = {"disk": "ssd"}
    platform = platform_of(
        [{"taints": [gpu]}, {"taints": [soft, drain, gpu]}, {"taints": [gpu], "labels": ssd}, {}, {"labels": ssd}]
    )
    selects: dict[str, Any] = {"nodeSelector": ssd}
    tolerates = selects | {"tolerations": [{"key": "gpu", "operator": "Exists"}]}
    jobs = hdsim.Workload.from_columns(
        submission_time=[0.0] * 2,
        runtime=1,
        requested_cores=1,
        cpu=3,
        constraints=[Constraints.from_spec(selects), Constraints.from_spec(tolerates)],
    )
    store = Cluster(platform, jobs).cores
    assert store.explain(0) == (
        "5 nodes have room for 0 of 1 pods: 2 excluded by the taint gpu=a100:NoSchedule, "
        "1 excluded by the taint drain:NoExecute, 1 excluded by node selector or affinity, 1 without enough cpu"
    )
    assert store.explain(1) == (
        "5 nodes have room for 0 of 1 pods: 1 excluded by the taint drain:NoExecute, "
        "2 excluded by node selector or affinity, 2 without enough cpu"
    )
    store.relabel(3, "n3", {}, [Taint(f"own-{n}", "", "NoSchedule") for n in range(2)])
    assert "1 excluded by the taint own-0:NoSchedule, 1 excluded by node selector" in store.explain(1)


def test_many_taints_are_counted_together() -> None:
    groups = [{"taints": [{"key": f"own-{n}", "effect": "NoSchedule"}]} for n in range(8)]
    jobs = hdsim.Workload.from_columns(submission_time=[0.0], runtime=1, requested_cores=1)
    told = Cluster(platform_of(groups), jobs).cores.explain(0)
    assert told.count("excluded by the taint own-") == 5
    assert told.endswith(", 3 excluded by other taints")


def test_pods_of_others_and_nodes_that_are_down() -> None:
    platform = platform_of([{}, {"labels": {"zone": "a"}}])
    jobs = hdsim.Workload.from_columns(
        submission_time=[0.0] * 3,
        runtime=1,
        requested_cores=[1, 2, 1],
        constraints=[None, None, Constraints.from_spec({"nodeSelector": {"zone": "a"}})],
    )
    cluster = Cluster(platform, jobs)
    store = cluster.cores
    cluster.next_instant(0.0)
    for job in range(3):
        cluster.submit(job)
    store.occupy(0, Amounts(cpu=3.0, memory=1e9, pods=1))
    assert (cluster.n_idle, store.node_idle.tolist()) == (2.0, [0.0, 2.0])
    assert store.pick(0).nodes.tolist() == [1]
    store.fail(1)
    assert store.pick(0) is None
    assert store.explain(0) == "2 nodes have room for 0 of 1 pods: 1 down, 1 without enough cpu"
    store.repair(1)
    cluster.start(1, store.placement_on(1, {1: 2}))
    assert store.jobs_on(1) == [1]
    assert "1 excluded by node selector or affinity, 1 without enough cpu" in store.explain(2)
    with pytest.raises(DecisionError, match="expected nodes with capacity"):
        cluster.start(2, store.placement_on(2, {1: 1}))
    store.vacate(0, Amounts(cpu=3.0, memory=1e9, pods=1))
    store.check(list(cluster.running.values()))
    cluster.end(1, FinalState.COMPLETED_SUCCESSFULLY)
    assert cluster.n_idle == 4.0
    cluster.requests.places.change(0, platform.node_names[0], {"zone": "a"}, [])
    cluster.requests.places.change(1, platform.node_names[1], {}, [Taint("down", "", "NoExecute")])
    assert store.pick(2).nodes.tolist() == [0]
    assert cluster.requests.allowed(0).tolist() == [True, False]


def test_jobs_of_a_trace_become_pods(tmp_path: Path) -> None:
    platform = platform_of([{}, {}, {}])
    log = "".join(f"{i} {i} 0 9 {n} -1 -1 {n} 9 {mem} 1 1 1 1 1 1 -1 -1\n" for i, n, mem in ((1, 2, -1), (2, 6, -1)))
    (tmp_path / "log.swf").write_text(log)
    jobs = hdsim.load_workload(tmp_path / "log.swf", platform, memory_bandwidth="none")
    assert (jobs.requested_cores.tolist(), jobs.cpu.tolist()) == ([1, 3], [2.0, 2.0])
    jobs = hdsim.load_workload(tmp_path / "log.swf", platform, memory_bandwidth="none", memory=1500)
    assert (jobs.requested_cores.tolist(), jobs.cpu.tolist(), jobs.memory.tolist()) == ([1, 3], [2, 2], [3000, 3000])
    jobs = hdsim.load_workload(tmp_path / "log.swf", platform, memory_bandwidth="none", cores_per_pod=1)
    assert (jobs.requested_cores.tolist(), jobs.cpu.tolist()) == ([2, 6], [1.0, 1.0])


def test_json_jobs_carry_pod_specs(tmp_path: Path) -> None:
    spec = {
        "cpu": "500m",
        "ephemeral-storage": "1GB",
        "priority": 5,
        "nodeSelector": {"zone": "a"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
    }
    job = {"id": 1, "subtime": 0, "res": 2, "profile": "p", "kubernetes": spec}
    document = {"nb_res": 4, "jobs": [job, {"id": 2, "subtime": 1, "res": 2, "profile": "p"}]}
    document["profiles"] = {"p": {"type": "delay", "delay": 5}}
    (tmp_path / "w.json").write_text(json.dumps(document))
    platform = platform_of([{"labels": {"zone": "a"}}, {}])
    jobs = hdsim.load_workload(tmp_path / "w.json", platform)
    assert jobs.requested_cores.tolist() == [2, 1]
    assert jobs.cpu.tolist() == [0.5, 2.0]
    assert (jobs.storage.tolist(), jobs.priority.tolist()) == ([1000.0, 0.0], [5, 0])
    assert jobs.constraints[0] == Constraints.from_spec(spec)
    from hdsim.workload.batsim_json import write_batsim

    write_batsim(jobs, tmp_path / "again.json", platform)
    again = hdsim.load_workload(tmp_path / "again.json", platform)
    for key in ("cpu", "storage", "priority", "constraints", "requested_cores", "runtime"):
        assert getattr(again, key).tolist() == getattr(jobs, key).tolist()
    bad = {"cpu": "x", "priorty": 1, "tolerations": [{"operator": "Like", "key": "a"}], "memory": "1Gi", "gpus": 1}
    document["jobs"][0]["kubernetes"] = bad
    (tmp_path / "w.json").write_text(json.dumps(document))
    with pytest.raises(WorkloadError) as error:
        hdsim.load_workload(tmp_path / "w.json", platform)
    for said in (
        "kubernetes.cpu: expected CPU",
        "did you mean 'priority'",
        "tolerations[0].operator: expected Equal",
        "kubernetes.memory: unknown key (the memory of a pod is `mem` of the profile, in MB); allowed: cpu, ",
        "kubernetes.gpus: unknown key (the GPUs of a job are a field beside `kubernetes`); allowed: cpu, ",
    ):
        assert said in str(error.value)


def test_deployments_reach_their_load() -> None:
    platform = hdsim.load_platform("platforms/ten_nodes.json")
    spec = {"model": "deployments", "epochs": 3, "cpu_load": 0.5, "memory_load": 1, "pod_load": 1, "cpu": [1, "500m"]}
    jobs, again, other = (hdsim.load_workload(spec, platform, seed=seed) for seed in (1, 1, 2))
    assert jobs.submission_time.tolist() == again.submission_time.tolist()
    assert jobs.cpu.tolist() != other.cpu.tolist()
    ends = np.unique(np.round(jobs.submission_time + jobs.runtime, 6))
    assert len(ends) == 3
    for end in ends:
        requested = jobs.cpu[np.isclose(jobs.submission_time + jobs.runtime, end)].sum()
        assert 320 <= requested < 321
    result = hdsim.simulate(platform, jobs, "fcfs-spread")
    assert result.metrics["mean_waiting_time"] == 0
    with pytest.raises(ConfigError, match=r"workload\.generate\.cpuload: unknown key"):
        hdsim.load_workload({"model": "deployments", "cpuload": 1}, platform)


@pytest.mark.parametrize(("action", "observation"), [("node", "nodes"), ("job", "jobs"), ("policy_pair", "minimal")])
def test_environments_on_quantities(action: str, observation: str) -> None:
    """The reward of makespan is the GFLOP/s of the CPU in use, summed here over the placements of running jobs."""
    platform = hdsim.load_platform("platforms/teaching.json", kind="quantities")
    jobs = hdsim.Workload.from_columns(
        submission_time=np.arange(12.0), runtime=30, requested_cores=1, cpu=[0.5, 1.5] * 6
    )
    env = SchedulingEnv(platform, jobs, action=action, observation=observation, objective="makespan")
    first = platform.node_first_processor[:-1]
    slowest = np.minimum.reduceat(np.where(platform.is_gpu, np.inf, platform.gflops), first)
    over, rng = False, np.random.default_rng(0)
    _, info = env.reset(seed=0)
    while not over:
        rewarded_at = env.cluster.now
        _, reward, over, _, info = env.step(int(rng.choice(info["action_mask"].nonzero()[0])))
        if env.cluster.now == rewarded_at:
            held = env.cluster.running.values()
            assert reward == pytest.approx(sum(float(each.cpu @ slowest[each.nodes]) for each in held))
    assert info["metrics"]["jobs_completed"] == 12
    with pytest.raises(ConfigError, match=r"env\.objective: expected one of .*makespan.* got energy_consumption"):
        SchedulingEnv(platform, jobs, action=action, observation=observation, objective="energy_consumption")


def test_what_has_no_meaning_is_refused_by_name() -> None:
    platform = platform_of([{}])
    jobs = hdsim.Workload.from_columns(submission_time=[0.0], runtime=1, requested_cores=1, memory_bandwidth=4)
    with pytest.raises(ConfigError, match=r"platform\.kind: contention: expected none"):
        hdsim.simulate(
            hdsim.load_platform("platforms/eight_nodes.json", kind="quantities"), jobs, contention="threshold"
        )
    bad = {"kind": "pods", "clusters": [{"id": "n", "nodes": [{"type": "t", "number": 2, "names": ["a", "A"]}]}]}
    bad["types"] = {
        "node": {"t": {"processors": [{"type": "p", "number": 1}], "cpu": "1x", "pods": 0, "taints": [{"key": "a"}]}},
        "processor": {"p": {"cores": 2, "clock_rate": 1, "dpflops_per_cycle": 1, "power": 0}},
    }
    with pytest.raises(PlatformError) as error:
        hdsim.Platform.from_dict(bad)
    for said in (
        "kind: expected one of cores, quantities",
        "types.node.t.cpu: expected CPU",
        "types.node.t.pods",
        "types.node.t.taints[0].effect: expected a value",
        "names[1]: expected lower case",
    ):
        assert said in str(error.value)
    with pytest.raises(ConfigError, match="backend=batsim: expected a platform of kind cores, got quantities"):
        make_backend("batsim").check(platform, jobs)
    constrained = jobs.replaced(storage=5.0)
    with pytest.raises(WorkloadError, match=r"platform\.kind=quantities"):
        hdsim.simulate(platform.of_kind("cores"), constrained)


def test_failures_and_kills_on_quantities(tmp_path: Path) -> None:
    """Two pods run on one node each; the failure of the first one restarts its job elsewhere, the other is killed."""
    platform = platform_of([{}, {}, {}])
    jobs = hdsim.Workload.from_columns(submission_time=[0.0, 0.0], runtime=100.0, requested_cores=1, cpu=[1.5, 2.0])
    simulation = hdsim.Simulation(platform, jobs, "fcfs", failures="external", check=True)
    simulation.run_until(10.0)
    assert [simulation.cluster.running[job].nodes.tolist() for job in (0, 1)] == [[0], [1]]
    simulation.env.fail(0, until=500.0)
    simulation.run_until(10.0)
    assert simulation.cluster.running[0].nodes.tolist() == [2]
    simulation.cluster.kill(1)
    result = simulation.run()
    assert result.finish_time.tolist() == [110.0, 10.0]
    assert (result.metrics["restarts"], result.metrics["jobs_killed"]) == (1.0, 1.0)
    assert result.metrics["lost_work"] == pytest.approx(15.0)
    assert result.metrics["utilization"] == pytest.approx((1.5 * 110 + 2 * 10) / (6 * 110))
    run = RunDirectory(tmp_path)
    run.start({}, platform, jobs)
    run.finish(result)
    back = read(tmp_path)
    for steps in (series.utilization, series.running_jobs, series.down_cores):
        assert steps(back).times.tolist() == steps(result).times.tolist()
        assert steps(back).values.tolist() == pytest.approx(steps(result).values.tolist())
    assert "Power" not in [panel.title for panel in panels(back)]
    rows = (tmp_path / "interruptions.csv").read_text().splitlines()
    assert rows[1:] == ["0,0.000000,10.000000,10.000000,1,n-0:1.5"]
    with pytest.raises(DecisionError, match="single cores"):
        simulation.cluster.set_speed([0], 0.5)
