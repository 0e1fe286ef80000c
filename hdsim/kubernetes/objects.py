"""Pods and nodes of an API server as plain objects, and manifests of pods."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import orjson

from hdsim.cluster.requests import Amounts
from hdsim.kubernetes.connection import MANAGED
from hdsim.platform.schema import NO_SCHEDULE, Taint
from hdsim.util.plugins import optional
from hdsim.workload.constraints import Constraints, Requirement

if TYPE_CHECKING:
    from hdsim.cluster.requests import Requests
    from hdsim.workload.model import Workload

#: Labels and annotations; docs/kubernetes.md explains them.
JOB_LABEL = "hdsim.io/job"
JOB_ID = "hdsim.io/job-id"
DURATION = "hdsim.io/duration"
CLOCK = "hdsim.io/clock"
POD_GROUP = "hdsim.io/pod-group"
POD_GROUP_SIZE = "hdsim.io/pod-group-size"
POD_GROUP_LABEL = "scheduling.x-k8s.io/pod-group"
#: Annotation of nodes whose pods Kwok runs.
FAKE = "kwok.x-k8s.io/node"
GPU = "nvidia.com/gpu"
#: Taint of a cordoned node, which kube-scheduler assumes even before the node has it.
_CORDON = Taint("node.kubernetes.io/unschedulable", "", NO_SCHEDULE)
#: Phases of a pod that has ended, and takes nothing of its node any more.
ENDED = ("Succeeded", "Failed")

#: Resources of a pod, in the order of `Amounts` without the number of pods.
_RESOURCES = ("cpu", "memory", GPU, "ephemeral-storage")
#: Most cores, bytes and GPUs that a pod may request, in the order of `_RESOURCES`; no node has as many.
_LARGEST = (1e9, 1e18, 1e9, 1e18)
#: Gangs of others, whose pods must not be bound one by one: annotation of Volcano, label of Kueue, label of old.
_FOREIGN_GANGS = (
    "scheduling.k8s.io/group-name",
    "kueue.x-k8s.io/pod-group-name",
    "pod-group.scheduling.sigs.k8s.io",
)
#: Bytes that stand for an unlimited amount: 1Ei.
UNLIMITED = 2.0**60
#: Longest duration of Go, in seconds.
_LONGEST = 2.0**63 / 1e9
_IMAGE = "registry.k8s.io/pause:3.10"
#: Longest name of a job in the names of its pods; a label value has at most 63 characters.
_LONGEST_NAME = 40
_constraints: dict[bytes, tuple[Constraints | None, str]] = {}


@dataclass(frozen=True, slots=True)
class PodView:
    """A pod."""

    key: str  # ``NAMESPACE/NAME``
    uid: str  # unique id; a pod of the same name that is created anew has another one
    version: str  # resource version
    namespace: str
    name: str
    node: str  # name of the node it is bound to, empty for none
    phase: str  # ``Pending``, ``Running``, ``Succeeded``, ``Failed`` or ``Unknown``
    scheduler: str  # name of the scheduler that is to bind it
    priority: int  # priority; higher ones first
    requests: Amounts  # requested amounts; one of the pods is the pod itself
    constraints: Constraints | None  # nodes it may be on, None for all without taints
    unsupported: str  # its requirements that hdsim cannot meet, empty if there are none
    group: str  # name of its gang in its namespace, empty for none
    group_size: int | None  # number of pods of the gang, None if it is not told or no positive integer
    deadline: float | None  # seconds after which it is ended (activeDeadlineSeconds), None if never
    created: float  # creation, seconds since 1970
    deleted: bool  # the pod is being deleted
    gated: bool  # the pod may not be scheduled yet
    annotations: Mapping[str, str]
    labels: Mapping[str, str]
    repels: tuple[Repulsion, ...]  # terms of its required anti-affinity, which keeps other pods away while it is there

    @property
    def duration(self) -> float | None:
        """Run time of the annotation `DURATION` in seconds, None without one that is valid."""
        return _duration(self.annotations.get(DURATION, ""))

    @property
    def holds(self) -> bool:
        """Whether the pod takes its requests from a node."""
        return bool(self.node) and self.phase not in ENDED

    @property
    def waits(self) -> bool:
        """Whether the pod is to be bound."""
        return not self.node and self.phase == "Pending" and not self.deleted and not self.gated

    @classmethod
    def of(cls, pod: Mapping[str, Any]) -> PodView:
        """Reads a Pod object."""
        metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status", {})
        annotations = metadata.get("annotations") or {}
        labels = metadata.get("labels") or {}
        namespace, name = metadata["namespace"], metadata["name"]
        constraints, unsupported = _constraints_of(spec)
        requests, extended = _requests_of(spec, status)
        foreign = next((key for key in _FOREIGN_GANGS if key in annotations or key in labels), "")
        gang = f"the gang of {foreign}" if foreign else ""
        return cls(
            f"{namespace}/{name}",
            metadata["uid"],
            metadata["resourceVersion"],
            namespace,
            name,
            spec.get("nodeName") or "",
            status.get("phase", "Pending"),
            spec.get("schedulerName", ""),
            spec.get("priority") or 0,
            requests,
            constraints,
            unsupported or extended or gang or _fault_of_duration(annotations),
            annotations.get(POD_GROUP) or labels.get(POD_GROUP_LABEL) or "",
            _count(annotations.get(POD_GROUP_SIZE)),
            spec.get("activeDeadlineSeconds"),
            datetime.fromisoformat(metadata["creationTimestamp"]).timestamp(),
            "deletionTimestamp" in metadata,
            bool(spec.get("schedulingGates")),
            annotations,
            labels,
            _repulsions_of(spec, namespace),
        )


@dataclass(frozen=True, slots=True)
class Repulsion:
    """A term of a pod's required anti-affinity: the pods that may not come near it."""

    topology: str  # label of nodes: these pods are kept off all nodes whose value is that of the pod's node
    namespaces: tuple[str, ...]  # namespaces of these pods, empty for all
    labels: tuple[Requirement, ...]  # requirements that their labels meet

    def concerns(self, pod: PodView) -> bool:
        """Whether a pod is one of these."""
        near = not self.namespaces or pod.namespace in self.namespaces
        return near and all(requirement.holds("", pod.labels) for requirement in self.labels)


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node."""

    key: str  # its name
    uid: str
    version: str  # resource version
    name: str
    #: Amounts that pods can have, 0 of what the node does not list. 1Ei and more of memory or storage is
    #: unlimited.
    allocatable: Amounts
    labels: Mapping[str, str]
    #: Taints; a cordoned node has that of kube-scheduler, whether the API server lists it or not.
    taints: tuple[Taint, ...]
    unschedulable: bool  # the node is cordoned (``kubectl cordon``)
    ready: bool  # the condition Ready is true

    @classmethod
    def of(cls, node: Mapping[str, Any]) -> NodeView:
        """Reads a Node object; one without status, such as a manifest, counts as ready."""
        metadata, spec, status = node["metadata"], node.get("spec") or {}, node.get("status") or {}
        amounts = status.get("allocatable") or status.get("capacity") or {}
        cpu, memory, gpus, storage = (quantity(amounts.get(key, 0)) for key in _RESOURCES)
        memory, storage = (math.inf if size >= UNLIMITED else size for size in (memory, storage))
        pods = quantity(amounts.get("pods", 0))
        conditions = {each["type"]: each["status"] for each in status.get("conditions") or ()}
        taints = [Taint(each["key"], each.get("value") or "", each["effect"]) for each in spec.get("taints") or ()]
        if spec.get("unschedulable") and _CORDON not in taints:
            taints.append(_CORDON)
        return cls(
            metadata["name"],
            metadata.get("uid", ""),
            metadata.get("resourceVersion", ""),
            metadata["name"],
            Amounts(cpu, memory, pods, gpus, storage),
            metadata.get("labels") or {},
            tuple(taints),
            bool(spec.get("unschedulable")),
            conditions.get("Ready", "True") == "True",
        )


@dataclass(frozen=True, slots=True)
class PodGroupView:
    """A PodGroup."""

    key: str
    uid: str
    version: str
    gang: tuple[str, str]  # namespace and name of its gang
    min_member: int | None  # number of pods that have to start together, None if it is no positive integer

    @classmethod
    def of(cls, group: Mapping[str, Any]) -> PodGroupView:
        """Reads a PodGroup object."""
        metadata = group["metadata"]
        gang = metadata["namespace"], metadata["name"]
        number = (group.get("spec") or {}).get("minMember")
        valid = isinstance(number, int) and number > 0
        return cls("/".join(gang), metadata["uid"], metadata["resourceVersion"], gang, number if valid else None)


@lru_cache(maxsize=4096)
def quantity(text: str | float) -> float:
    """Returns the value of a quantity such as ``500m`` or ``2Gi``, rounded up to thousandths.

    Raises:
        ValueError: It is none, or too large.
        ConfigError: The client library of Kubernetes is not installed.
    """
    parsed = optional("kubernetes.utils.quantity").parse_quantity

    try:
        return math.ceil(parsed(text) * 1000) / 1000
    except OverflowError as error:
        raise ValueError(str(error)) from None


def pod_manifest(
    name: str,
    requests: Amounts,
    *,
    namespace: str = "default",
    scheduler: str = "hdsim",
    constraints: Constraints | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    gang: tuple[str, int] | None = None,
    priority_class: str | None = None,
) -> dict[str, Any]:
    """Makes a Pod that requests amounts; its number of pods is ignored.

    `scheduler` names the one that is to bind it, `constraints` are the nodes it may be on, `gang` has the name and the
    number of pods of its gang.
    """
    cpu, memory, _, gpus, storage = requests
    amounts = {"cpu": f"{round(cpu * 1000)}m", "memory": str(math.ceil(memory))}
    if storage:
        amounts["ephemeral-storage"] = str(math.ceil(storage))
    resources: dict[str, Any] = {"requests": {key: value for key, value in amounts.items() if value not in ("0", "0m")}}
    if gpus:
        # An extended resource needs a limit, which is its request as well.
        resources["limits"] = {GPU: str(round(gpus))}
    marks, notes = dict(labels or {}), dict(annotations or {})
    if gang is not None:
        marks[POD_GROUP_LABEL], notes[POD_GROUP_SIZE] = gang[0], str(gang[1])
    spec: dict[str, Any] = {
        "schedulerName": scheduler,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "job", "image": _IMAGE, "resources": resources}],
    }
    if priority_class is not None:
        spec["priorityClassName"] = priority_class
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": marks, "annotations": notes},
        "spec": spec | (constraints.to_spec() if constraints else {}),
    }


def _constraints_of(spec: Mapping[str, Any]) -> tuple[Constraints | None, str]:
    """Returns the constraints of a pod, one object for all equal ones, and what hdsim cannot do for the pod."""
    parts = [
        spec.get(key)
        for key in ("nodeSelector", "affinity", "tolerations", "topologySpreadConstraints", "resourceClaims")
    ]
    volumes = [each for each in spec.get("volumes") or () if "persistentVolumeClaim" in each or "ephemeral" in each]
    # Sidecars run beside the containers.
    running = [*spec["containers"], *(each for each in spec.get("initContainers") or () if _is_sidecar(each))]
    ports = any(port.get("hostPort") for each in running for port in each.get("ports") or ())
    key = orjson.dumps([parts, bool(volumes), ports])
    known = _constraints.get(key)
    if known is None:
        faults = []
        if any(each["whenUnsatisfiable"] == "DoNotSchedule" for each in parts[3] or ()):
            faults.append("topologySpreadConstraints with DoNotSchedule")
        faults += ["resourceClaims"] * bool(parts[4])
        faults += ["volumes of PersistentVolumeClaims"] * bool(volumes)
        faults += ["hostPort"] * ports
        constraints = None
        try:
            constraints = Constraints.from_spec(spec)
        except ValueError as error:
            faults.append(str(error))
        known = _constraints[key] = constraints, "; ".join(faults)
    return known


def _repulsions_of(spec: Mapping[str, Any], namespace: str) -> tuple[Repulsion, ...]:
    """Reads the required anti-affinity of a pod; namespaces that are selected by their labels are all namespaces."""
    anti = (spec.get("affinity") or {}).get("podAntiAffinity") or {}
    found = []
    for term in anti.get("requiredDuringSchedulingIgnoredDuringExecution") or ():
        selector = term.get("labelSelector")
        if selector is None:
            continue  # it selects no pods
        labels = [Requirement(key, "In", (value,)) for key, value in (selector.get("matchLabels") or {}).items()]
        labels += [
            Requirement(each["key"], each["operator"], tuple(each.get("values") or ()))
            for each in selector.get("matchExpressions") or ()
        ]
        anywhere = term.get("namespaceSelector") is not None
        namespaces = () if anywhere else tuple(term.get("namespaces") or (namespace,))
        found.append(Repulsion(term["topologyKey"], namespaces, tuple(labels)))
    return tuple(found)


def _requests_of(spec: Mapping[str, Any], status: Mapping[str, Any]) -> tuple[Amounts, str]:
    """Returns what a pod requests, and its extended resources that hdsim does not know.

    The request is that of the pod, if it has one, otherwise the sum of its containers or, if larger, that of an init
    container and the sidecars before it; and the overhead. While a container is resized, it requests the most of what
    it is to have, has and was promised; an infeasible resize counts for nothing. Source: Kubernetes, "Resource requests
    of a Pod", and kube-scheduler's ``PodRequests`` (k8s.io/component-helpers/resource).
    """
    containers, init = spec["containers"], spec.get("initContainers")
    held = _held_of(status)
    if len(containers) == 1 and not init and "resources" not in spec and "overhead" not in spec and not held:
        total = _amounts(containers[0].get("resources"))
    else:
        infeasible = _is_infeasible(status)

        def wanted(asked: Mapping[str, float], has: Mapping[str, float] | None) -> Mapping[str, float]:
            if has is None:
                return asked
            return has if infeasible else _most(asked, has)

        def of(container: Mapping[str, Any]) -> Mapping[str, float]:
            return wanted(_amounts(container.get("resources")), held.get(container["name"]))

        total = _sum(map(of, containers))
        sidecars: Mapping[str, float] = {}
        peak: Mapping[str, float] = {}
        for each in init or ():
            sidecar = _is_sidecar(each)
            needed = _sum([sidecars, of(each) if sidecar else _amounts(each.get("resources"))])
            if sidecar:
                sidecars = needed
            peak = _most(peak, needed)
        total = _most(_sum([total, sidecars]), peak)
        whole = _amounts(spec.get("resources"))
        if whole:
            effective = wanted(whole, held.get(""))
            total = {**total, **{key: effective.get(key, 0.0) for key in whole}}
        total = _sum([total, _amounts({"requests": spec.get("overhead")})])
    unknown = [key for key, value in total.items() if key not in _RESOURCES and value]
    amounts = [total.get(key, 0.0) for key in _RESOURCES]
    too_large = [
        f"requests of more than {most:g} {'bytes of ' if most == _LARGEST[1] else ''}{key}"
        for key, amount, most in zip(_RESOURCES, amounts, _LARGEST, strict=True)
        if amount > most
    ]
    cpu, memory, gpus, storage = map(min, amounts, _LARGEST)
    return Amounts(cpu, memory, 1, gpus, storage), next(
        iter([*too_large, *(f"the resource {key}" for key in unknown)]), ""
    )


def _held_of(status: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Returns what containers that tell it have or were promised, by their names, and the pod itself as that of ''."""
    kinds = status.get("containerStatuses"), status.get("initContainerStatuses")
    parts = {each["name"]: each for kind in kinds for each in kind or ()} | {"": status}
    return {
        name: _most(_amounts(part["resources"]), _amounts({"requests": part.get("allocatedResources")}))
        for name, part in parts.items()
        if part.get("resources") is not None
    }


def _is_infeasible(status: Mapping[str, Any]) -> bool:
    """Returns whether the node can never carry out the resize that a pod waits for."""
    pending = (each for each in status.get("conditions") or () if each["type"] == "PodResizePending")
    return next((each.get("reason") == "Infeasible" for each in pending), False)


def _is_sidecar(container: Mapping[str, Any]) -> bool:
    return container.get("restartPolicy") == "Always"


def _amounts(resources: Mapping[str, Any] | None) -> dict[str, float]:
    requests = (resources or {}).get("requests") or {}
    return {key: quantity(value) for key, value in requests.items()}


def _sum(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for part in parts:
        for key, value in part.items():
            total[key] = round(total.get(key, 0.0) + value, 3)
    return total


def _most(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    return {key: max(one.get(key, 0.0), other.get(key, 0.0)) for key in one.keys() | other.keys()}


def _duration(text: str) -> float | None:
    """Returns the seconds of a duration of Go, None for a text that is none, or one that is negative or too long."""
    from durationpy import DurationError, from_str

    try:
        seconds = float(from_str(text).total_seconds())
    except (DurationError, OverflowError):
        return None
    longer = any(unit in text for unit in ("d", "w", "y", "mm"))  # units of durationpy that Go lacks
    return seconds if 0 <= seconds < _LONGEST and not longer else None


def _fault_of_duration(annotations: Mapping[str, str]) -> str:
    """Returns the annotation `DURATION` if it is no duration: Kwok would end the pod at once."""
    text = annotations.get(DURATION)
    if text is None or _duration(text) is not None:
        return ""
    shown = text if len(text) <= 40 else f"{text[:40]}..."
    return f"the annotation {DURATION}: '{shown}', expected a duration such as 12.5s or 1h30m"


def _count(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() and int(text) > 0 else None


class JobPods:
    """Manifests of the pods of jobs, with requests for a store without core ids.

    Each chunk of a job is a pod, and a job of several chunks is a gang.
    """

    def __init__(self, jobs: Workload, requests: Requests, *, namespace: str, scheduler: str) -> None:
        self._jobs, self._requests, self._namespace, self._scheduler = jobs, requests, namespace, scheduler
        ids = [str(each) for each in jobs.job_id.tolist()]
        names = [re.sub("[^a-z0-9]+", "-", each.lower()).strip("-")[:_LONGEST_NAME].strip("-") for each in ids]
        if len(set(names)) < len(names) or "" in names:
            names = [str(index) for index in range(len(ids))]
        self._names = [f"job-{name}" for name in names]

    def manifests(self, job: int, annotations: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
        """Returns the manifests of the pods of a job, with annotations besides those of a job."""
        chunk, name, priority = self._requests.chunk(job), self._names[job], int(self._jobs.priority[job])
        assert chunk.cpu is not None
        requests = Amounts(
            chunk.cores * chunk.cpu, chunk.cores * chunk.memory, 1, chunk.gpus, chunk.cores * chunk.storage
        )
        several = chunk.number > 1
        return [
            pod_manifest(
                f"{name}-{index}" if several else name,
                requests,
                namespace=self._namespace,
                scheduler=self._scheduler,
                constraints=self._jobs.constraints[job],
                labels={**MANAGED, JOB_LABEL: name.removeprefix("job-")},
                annotations={JOB_ID: str(self._jobs.job_id[job]), **(annotations or {})},
                gang=(name, chunk.number) if several else None,
                priority_class=_class_of(priority) if priority else None,
            )
            for index in range(chunk.number)
        ]

    def priority_classes(self) -> list[dict[str, Any]]:
        """Returns the PriorityClass objects that the pods refer to."""
        return [
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": _class_of(value), "labels": MANAGED},
                "value": value,
                "preemptionPolicy": "Never",
            }
            for value in sorted(set(self._jobs.priority.tolist()) - {0})
        ]


def _class_of(priority: int) -> str:
    return f"hdsim-{'minus-' * (priority < 0)}{abs(priority)}"
