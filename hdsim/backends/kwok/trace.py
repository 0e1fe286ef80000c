"""Jobs of a trace that become pods."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from hdsim.backends.kwok.sender import Request
from hdsim.errors import ConfigError
from hdsim.kubernetes.objects import DURATION, JOB_ID, JOB_LABEL, JobPods, PodView

if TYPE_CHECKING:
    from hdsim.backends.kwok.settings import KwokSettings
    from hdsim.cluster.state import Cluster
    from hdsim.kubernetes.connection import Connection

#: HTTP status of an object that is there already.
_EXISTS = 409


class PodTrace:
    """The pods of known jobs: created when the jobs are due, and recognized when the watch reports them."""

    def __init__(self, cluster: Cluster, settings: KwokSettings, scheduler: str) -> None:
        self._cluster, self._settings = cluster, settings
        jobs = cluster.workload
        self._pods = JobPods(jobs, cluster.requests, namespace=settings.namespace, scheduler=scheduler)
        #: See :meth:`hdsim.kubernetes.objects.JobPods.manifests`.
        self.manifests = self._pods.manifests
        self._job = {str(own): job for job, own in enumerate(jobs.job_id.tolist())}
        self._dates = jobs.submission_time.tolist()
        self._runtimes = jobs.runtime.tolist()
        self._next = 0 if settings.submit else len(jobs)

    @property
    def due(self) -> float:
        """Date of the next submission in seconds, infinite after the last one."""
        return self._dates[self._next] if self._next < len(self._dates) else math.inf

    def prepare(self, connection: Connection) -> None:
        """Creates priority classes, and checks that no pods of an earlier run are there.

        Raises:
            ConfigError: There are such pods.
            BackendError: The API server refuses.
        """
        if not self._settings.submit:
            return
        path = "/apis/scheduling.k8s.io/v1/priorityclasses"
        for priority_class in self._pods.priority_classes():
            connection.call(connection.ask("POST", path, priority_class, but=(_EXISTS,)))
        namespace = self._settings.namespace
        found = connection.get(f"/api/v1/namespaces/{namespace}/pods?labelSelector={JOB_LABEL}&limit=1")["items"]
        if found:
            raise ConfigError(
                f"expected no pods of an earlier run in the namespace, found {found[0]['metadata']['name']}; "
                f"`hdsim kwok clean` deletes them",
                where="backend.namespace",
            )

    def submissions(self, now: float) -> list[Request]:
        """Returns the requests that create the pods of the jobs that are due."""
        requests = []
        path = f"/api/v1/namespaces/{self._settings.namespace}/pods"
        while self.due <= now:
            notes = {DURATION: self._duration(self._next, 1.0)}
            requests += [Request("POST", path, pod, needed=True) for pod in self._pods.manifests(self._next, notes)]
            self._next += 1
        return requests

    def has(self, pod: PodView) -> bool:
        """Whether a pod belongs to one of the jobs."""
        return pod.namespace == self._settings.namespace and pod.annotations.get(JOB_ID) in self._job

    def job_of(self, pod: PodView) -> int:
        """Returns the job of a pod."""
        return self._job[pod.annotations[JOB_ID]]

    def pods_of(self, job: int) -> int:
        """Returns the number of pods of a job."""
        return self._cluster.requests.chunk(job).number

    def annotations(self, job: int, placement: Any) -> dict[str, str]:
        """Returns the annotations that bindings give to the pods of a job, which run as long as their nodes need."""
        cluster = self._cluster
        speed = 1.0 if cluster.workload.fixed_duration[job] else float(cluster.cores.slowest(placement))
        return {} if speed == 1.0 else {DURATION: self._duration(job, speed)}

    def _duration(self, job: int, speed: float) -> str:
        return f"{self._runtimes[job] / speed / self._settings.time_scale:.6f}s"
