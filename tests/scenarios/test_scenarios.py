"""Schedules drawn by hand (scenarios/*.yaml) on the engine, the compiled machine, the reference, Batsim and Kwok.

A scenario has `nodes` (`cores`, and where they have them `number`, `gflops`, `gpus`, `memory` in GB and `labels`),
`jobs` (`submit`, `runtime` and `cores`, and where they differ `requested` and `walltime`, s, `memory` in MB a core,
`gpus`, `cpu`, `user`, `priority` and `select`, labels of their nodes), and `schedules`: the `starts` of the jobs under
an `agent`, in seconds; `compiled: false` where the engine alone plays them. `kind` is that of the platform, `outages`
are (node, down, up), `options` those of :func:`hdsim.simulate`, and `reason` tells how the starts follow. Whatever runs
a schedule must find these starts.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import reference as ref
import yaml
from batsim_peer import behind_batsim
from kube import Cluster
from tiers import nightly

import hdsim
from hdsim.backends.kwok.backend import Kwok
from hdsim.kubernetes.nodes import node_manifests
from hdsim.workload.constraints import Constraints
from platforms import of_nodes

FILES = sorted(Path(__file__).parent.glob("*.yaml"))
SCENARIOS = {path.stem: yaml.safe_load(path.read_text()) for path in FILES}
COLUMNS = {
    "submit": "submission_time",
    "cores": "requested_cores",
    "requested": "requested_time",
    "gpus": "requested_gpus",
}
SPARSE = {"gpus": 0, "memory": 0.0, "user": -1, "priority": 0}  # for jobs that do not say, where others do
#: What pods say of a job.
PODS = {"submit", "runtime", "cores", "requested", "memory", "gpus", "cpu", "select", "priority"}
#: Agents of the reference implementation, on cores that are all alike.
REFERENCE = {
    **{name: (ref.strict, name) for name in ("fcfs", "lcfs", "sjf", "ljf", "smallest", "largest", "saf", "laf")},
    "easy": (ref.easy, "fcfs"),
    "easy-sjf": (ref.easy, "sjf"),
    "conservative": (ref.conservative, "fcfs"),
}


def platform_of(scenario: dict[str, Any]) -> hdsim.Platform:
    return of_nodes(scenario["nodes"], scenario.get("kind", "cores"))


def workload_of(scenario: dict[str, Any]) -> hdsim.Workload:
    jobs, columns = scenario["jobs"], dict[str, Any]()
    for name in dict.fromkeys(name for job in jobs for name in job):
        if name == "select":
            kept = [Constraints.from_spec({"nodeSelector": job[name]}) if name in job else None for job in jobs]
            columns["constraints"] = kept
        else:
            columns[COLUMNS.get(name, name)] = [job.get(name, SPARSE.get(name)) for job in jobs]
    columns["requested_time"] = [job.get("requested", job["runtime"]) for job in jobs]
    return hdsim.Workload.from_columns(**columns)


def options_of(scenario: dict[str, Any], folder: Path) -> dict[str, Any]:
    options = dict(scenario.get("options", {}))
    if "outages" in scenario:
        path = folder / "outages.csv"
        path.write_text("node,down,up\n" + "".join(f"{n},{down},{up}\n" for n, down, up in scenario["outages"]))
        options["failures"] = {"_target_": "hdsim.failures.Trace", "file": str(path)}
    return options


def on_reference(scenario: dict[str, Any], agent: Any) -> bool:
    """Whether nothing but the number of cores counts."""
    return (
        isinstance(agent, str)
        and agent in REFERENCE
        and not scenario.keys() & {"kind", "options", "outages"}
        and all(node.keys() <= {"cores", "number", "memory"} for node in scenario["nodes"])
        and all(job.keys() <= {"submit", "runtime", "cores", "requested"} for job in scenario["jobs"])
    )


def on_batsim(scenario: dict[str, Any]) -> bool:
    return not scenario.keys() & {"kind", "options", "outages"} and not any("gpus" in job for job in scenario["jobs"])


def on_pods(scenario: dict[str, Any]) -> bool:
    return not scenario.keys() & {"options", "outages"} and all(PODS.issuperset(job) for job in scenario["jobs"])


def cases() -> Iterator[Any]:
    for scenario in (scenario for scenarios in SCENARIOS.values() for scenario in scenarios):
        for schedule in scenario["schedules"]:
            agent = schedule["agent"]
            runners = {
                "engine": True,
                "machine": schedule.get("compiled", "outages" not in scenario),
                "reference": on_reference(scenario, agent),
                "batsim": on_batsim(scenario),
            }
            name = agent if isinstance(agent, str) else "-".join(map(str, agent.values()))
            for runner in (runner for runner, runs in runners.items() if runs):
                needs = pytest.mark.requires("pyzmq") if runner == "batsim" else ()
                yield pytest.param(scenario, schedule, runner, marks=needs, id=f"{scenario['name']}-{name}-{runner}")


@pytest.mark.parametrize(("scenario", "schedule", "runner"), list(cases()))
def test_jobs_start_when_they_should(
    scenario: dict[str, Any], schedule: dict[str, Any], runner: str, tmp_path: Path
) -> None:
    platform, workload, agent = platform_of(scenario), workload_of(scenario), schedule["agent"]
    options = options_of(scenario, tmp_path)
    if runner == "reference":
        scheduler, order = REFERENCE[agent]
        starts = ref.replay_counts(ref.jobs_of(workload), platform.n_cores, scheduler, ref.SCORES[order])
    elif runner == "batsim":
        starts = behind_batsim(platform, agent, workload, tmp_path, check=True).starting_time.tolist()
    else:
        result = hdsim.simulate(platform, workload, agent, check=runner == "engine", **options)
        assert result.engine["mode"] == {"engine": "events", "machine": "compiled"}[runner]
        starts = result.starting_time.tolist()
    assert starts == schedule["starts"], scenario["reason"]


@pytest.mark.requires("kube")
@pytest.mark.parametrize("file", ["orders", *nightly(*(file for file in SCENARIOS if file != "orders"))])
@pytest.mark.ci
def test_pods_are_bound_when_they_should(file: str, cluster: Cluster, tmp_path: Path) -> None:
    faults = []
    for number, scenario in enumerate(filter(on_pods, SCENARIOS[file])):
        platform, workload = platform_of(scenario).of_kind("quantities"), workload_of(scenario)
        cluster.add_nodes(node_manifests(platform))
        for place, schedule in enumerate(scenario["schedules"]):
            namespace = f"{cluster.namespace}-{number}-{place}"
            cluster.make_namespace(namespace)
            backend = Kwok(kubeconfig=str(cluster.kubeconfig), namespace=namespace, clock="virtual")
            result, _ = backend.run(platform, workload, schedule["agent"], tmp_path / namespace, check=True)
            if result.starting_time.tolist() != schedule["starts"]:
                faults.append((scenario["name"], schedule, result.starting_time.tolist()))
        cluster.clear()
    assert not faults
