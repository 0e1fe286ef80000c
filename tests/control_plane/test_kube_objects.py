"""Pods that hdsim refuses by name instead of binding them, or of ending because of them."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from hdsim.backends.kwok.members import Member, rows_of
from hdsim.backends.kwok.virtual import warning_of_others
from hdsim.errors import ConfigError
from hdsim.kubernetes.objects import DURATION, PodView, quantity

pytestmark = pytest.mark.requires("kube")


def view(spec: dict[str, Any] | None = None, status: dict[str, Any] | None = None, **metadata: Any) -> PodView:
    named = {"name": "p", "namespace": "default", "uid": "u", "resourceVersion": "1", **metadata}
    named.setdefault("creationTimestamp", "2026-01-01T00:00:00Z")
    return PodView.of(
        {"metadata": named, "spec": {"containers": [{"name": "c"}], **(spec or {})}, "status": status or {}}
    )


def requesting(**amounts: str) -> dict[str, Any]:
    names = {key.replace("_", "-"): value for key, value in amounts.items()}
    return {"containers": [{"name": "c", "resources": {"requests": names}}]}


@pytest.mark.parametrize(
    ("amounts", "told"),
    [
        ({"memory": "900Pi"}, "1e+18 bytes of memory"),
        ({"memory": "7Ei"}, "1e+18 bytes of memory"),
        ({"ephemeral_storage": "7Ei"}, "1e+18 bytes of ephemeral-storage"),
        # As an integer of 64 bits it would be less than nothing, and fit everywhere.
        ({"nvidia.com/gpu": "9223372036854775807"}, "1e+09 nvidia.com/gpu"),
        ({"cpu": "9223372036854775807"}, "1e+09 cpu"),
    ],
)
def test_a_request_beyond_all_nodes_ends_no_scheduler(amounts: dict[str, str], told: str) -> None:
    pod = view(requesting(**amounts))
    assert pod.unsupported == f"requests of more than {told}"
    assert max(pod.requests) <= 1e18 and max(pod.requests.cpu, pod.requests.gpus) <= 1e9
    rows = rows_of([[Member(pod, 0.0, pod.requests)]], now=0.0, time_scale=1.0)
    assert min(rows.cpu[0], rows.memory[0], rows.storage[0], rows.requested_gpus[0]) >= 0


RESIZED = {
    "name": "c",
    "resources": {"requests": {"cpu": "4", "memory": "2Gi"}},
    "allocatedResources": {"cpu": "5", "memory": "1Gi"},
}
INFEASIBLE = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}


@pytest.mark.parametrize(
    ("status", "cpu", "gib"),
    [
        ({}, 2.0, 3.0),
        ({"containerStatuses": [{"name": "c"}, {"name": "other", "resources": {"requests": {"cpu": "64"}}}]}, 2.0, 3.0),
        ({"containerStatuses": [RESIZED]}, 5.0, 3.0),
        ({"containerStatuses": [RESIZED], "conditions": [INFEASIBLE]}, 5.0, 2.0),
        ({"containerStatuses": [RESIZED], "conditions": [{**INFEASIBLE, "reason": "Deferred"}]}, 5.0, 3.0),
    ],
)
def test_a_container_that_is_resized_requests_the_most_of_what_it_is_to_have_and_has(
    status: dict[str, Any], cpu: float, gib: float
) -> None:
    pod = view(requesting(cpu="2", memory="3Gi"), status)
    assert (pod.requests.cpu, pod.requests.memory) == (cpu, gib * 2**30)


def test_resizes_of_sidecars_and_of_pods_count_as_well() -> None:
    asked = requesting(cpu="2")["containers"][0]
    statuses = {"initContainerStatuses": [{**RESIZED, "name": "i"}]}
    first = {"initContainers": [{**asked, "name": "i"}]}
    sidecar = {"initContainers": [{**asked, "name": "i", "restartPolicy": "Always"}]}
    assert view(sidecar, statuses).requests.cpu == 5.0
    # Other init containers are not resized.
    assert view(first, statuses).requests.cpu == 2.0
    of_pod = {key: value for key, value in RESIZED.items() if key != "name"}
    assert view({"resources": asked["resources"]}, of_pod).requests.cpu == 5.0


def test_a_request_of_a_large_node_is_no_fault() -> None:
    pod = view(requesting(memory="24Ti", cpu="448"))
    assert (pod.unsupported, pod.requests.memory, pod.requests.cpu) == ("", 24 * 2.0**40, 448)


def test_host_ports_of_sidecars_are_host_ports() -> None:
    ports = [{"containerPort": 80, "hostPort": 8081}]
    sidecar = {"name": "s", "restartPolicy": "Always", "ports": ports}
    assert view({"initContainers": [sidecar]}).unsupported == "hostPort"
    assert view({"containers": [{"name": "c", "ports": ports}]}).unsupported == "hostPort"
    # An init container has ended when the pod runs.
    assert view({"initContainers": [{"name": "i", "ports": ports}]}).unsupported == ""


AFFINE = [{"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "kubernetes.io/hostname"}]
SPREAD = {"maxSkew": 1, "topologyKey": "zone", "labelSelector": {}}


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": AFFINE}}}, "podAffinity"),
        (
            {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": AFFINE}}},
            "podAntiAffinity",
        ),
        ({"topologySpreadConstraints": [{**SPREAD, "whenUnsatisfiable": "DoNotSchedule"}]}, "DoNotSchedule"),
        ({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}, "PersistentVolumeClaims"),
        ({"volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": {}}}]}, "PersistentVolumeClaims"),
        # The API server writes the host ports of a pod in the network of its node.
        (
            {
                "hostNetwork": True,
                "containers": [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}]}],
            },
            "hostPort",
        ),
        ({"resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}]}, "resourceClaims"),
        (requesting(hugepages_2Mi="4Mi"), "the resource hugepages-2Mi"),
        (requesting(**{"example.com/fpga": "1"}), "the resource example.com/fpga"),
    ],
)
def test_what_hdsim_does_not_look_at_is_refused_by_name(spec: dict[str, Any], told: str) -> None:
    assert told in view(spec).unsupported


def test_preferences_are_not_refused() -> None:
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": AFFINE[0]}]}
    spec = {
        "affinity": {"podAffinity": preferred, "podAntiAffinity": preferred},
        "topologySpreadConstraints": [{**SPREAD, "whenUnsatisfiable": "ScheduleAnyway"}],
        "volumes": [{"name": "v", "emptyDir": {}}],
    }
    assert view(spec).unsupported == ""


@pytest.mark.parametrize(
    "metadata",
    [
        {"annotations": {"scheduling.k8s.io/group-name": "gang"}},
        {"labels": {"kueue.x-k8s.io/pod-group-name": "gang"}},
        {"labels": {"pod-group.scheduling.sigs.k8s.io": "gang"}},
    ],
)
def test_pods_of_the_gangs_of_others_are_refused_by_name(metadata: dict[str, Any]) -> None:
    assert view(**metadata).unsupported.startswith("the gang of ")


@pytest.mark.parametrize("text", ["abc", "", "-5s", "5", "5 s", "1e3s", "1d", "s", "1000000000h"])
def test_a_duration_that_is_none_is_refused_by_name(text: str) -> None:
    pod = view(annotations={DURATION: text})
    told = f"the annotation hdsim.io/duration: '{text}', expected a duration such as 12.5s or 1h30m"
    assert (pod.unsupported, pod.duration) == (told, None)


@pytest.mark.parametrize(
    ("text", "seconds"), [("12.5s", 12.5), ("1h30m", 5400), ("250ms", 0.25), ("0", 0), ("1.5h.5s", 5400.5)]
)
def test_durations_are_those_of_kwok(text: str, seconds: float) -> None:
    pod = view(annotations={DURATION: text})
    assert (pod.unsupported, pod.duration) == ("", seconds)
    rows = rows_of([[Member(pod, 0.0, pod.requests)]], now=5.0, time_scale=2.0)
    assert rows.runtime.tolist() == [2 * seconds]


def test_a_pod_without_a_duration_is_requested_for_an_hour() -> None:
    pod = view()
    assert pod.unsupported == ""
    assert rows_of([[Member(pod, 0.0, pod.requests)]], now=0.0, time_scale=1.0).runtime.tolist() == [3600]


def test_pods_of_others_are_told_when_time_is_simulated() -> None:
    assert warning_of_others([]) == ""
    assert warning_of_others([view()]).startswith("1 pod of others is on the nodes of the platform, such as default/p")
    assert warning_of_others([view(name="q"), view()]).startswith("2 pods of others are on the nodes of the platform, ")


def test_the_package_of_a_client_that_is_not_installed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes.utils.quantity", None)
    with pytest.raises(ConfigError, match=r"pip install 'hdsim\[kwok\]'"):
        quantity("123456m")
