"""Run times that the scheduler expects of jobs, in place of the requested ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from hdsim.util.copies import with_own_containers

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster

#: Sources of expected run times, with the rule of each.
ESTIMATES = {
    "requested": "the user's estimate",
    "actual": "the run time itself, known in advance",
    "last_two": "the mean of the user's last two jobs that have ended, at most the user's estimate",
}


class Estimates(Protocol):
    """A source of expected run times."""

    def note(self, cluster: Cluster) -> None:
        """Calls ``cluster.expect`` for the jobs submitted at this instant; to be called at each one."""


class Actual:
    """The run times of the workload: what perfect estimates would be worth."""

    def note(self, cluster: Cluster) -> None:
        """See :meth:`Estimates.note`."""
        for job in cluster.submitted:
            cluster.expect(job, float(cluster.workload.runtime[job]))


class LastTwo:
    """Predictions of Tsafrir, Etsion and Feitelson (IEEE TPDS 18(6), 2007).

    A job is expected to take the mean of the last two jobs of its user to have ended, at least one second, at most its
    requested time, which it is expected to take if there are no two such jobs or its user is unknown. A prediction is
    made at submission; one that turns out to be too short is corrected, see
    :class:`hdsim.scheduling.backfill.releases.ReleaseTimes`.

    Args:
        cluster: The cluster; jobs that have ended so far count.
    """

    __deepcopy__ = with_own_containers

    def __init__(self, cluster: Cluster) -> None:
        # Seconds at reference speed of the last two jobs of each user, the last one at the end.
        self._last: dict[int, tuple[float, ...]] = {}
        ended = [job for job in cluster.placements if cluster.finish_time[job] <= cluster.now]
        for job in sorted(ended, key=lambda job: (cluster.finish_time[job], job)):
            self._add(cluster, job)

    def note(self, cluster: Cluster) -> None:
        """See :meth:`Estimates.note`."""
        for job in cluster.ended:
            if cluster.finish_time[job] <= cluster.now:
                self._add(cluster, job)
        for job in cluster.submitted:
            last = self._last.get(int(cluster.workload.user[job]), ())
            if len(last) == 2:
                requested = float(cluster.workload.requested_time[job])
                cluster.expect(job, min(max(sum(last) / 2, 1.0), requested), requested)

    def _add(self, cluster: Cluster, job: int) -> None:
        """Adds a job that has ended; an interrupted one, which starts again, has no finish."""
        user, seconds = int(cluster.workload.user[job]), cluster.finish_time[job] - cluster.starting_time[job]
        if user >= 0:
            speed = cluster.speed(job, cluster.placements[job])
            self._last[user] = (*self._last.get(user, ())[-1:], seconds * speed)


def make_estimates(name: str, cluster: Cluster) -> Estimates | None:
    """Creates the source of a name, None for requested times."""
    return {"requested": lambda: None, "actual": Actual, "last_two": lambda: LastTwo(cluster)}[name]()
