"""The pods of jobs: each chunk of a job is a pod, and a job of several chunks is a gang."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hdsim.cluster.requests import Amounts
from hdsim.kubernetes.clean import MANAGED
from hdsim.kubernetes.objects import JOB_ID, JOB_LABEL, pod_manifest

if TYPE_CHECKING:
    from hdsim.cluster.requests import Requests
    from hdsim.workload.model import Workload


#: Longest name of a job in the names of its pods; a label value has at most 63 characters.
_LONGEST = 40


class JobPods:
    """Manifests of the pods of jobs, with requests for a store without core ids."""

    def __init__(self, jobs: Workload, requests: Requests, *, namespace: str, scheduler: str) -> None:
        self._jobs, self._requests, self._namespace, self._scheduler = jobs, requests, namespace, scheduler
        ids = [str(each) for each in jobs.job_id.tolist()]
        names = [re.sub("[^a-z0-9]+", "-", each.lower()).strip("-")[:_LONGEST].strip("-") for each in ids]
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
