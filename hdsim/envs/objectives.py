"""What an agent is rewarded for: rates of the cluster, sampled at decisions or integrated over time, and more."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from hdsim.decisions import Task
    from hdsim.state import Cluster


class Objective:
    """Rewards of one objective.

    An environment calls `begin`, then `news` at every instant before anybody decides, `settled` once everything is
    decided there, and `reward` whenever it needs the reward for the time since the last call.

    Attributes:
        sees_cores: Needs to know where idle cores are.
        action: The kind of action it is for; None = any.
    """

    sees_cores: ClassVar[bool] = False
    action: ClassVar[str | None] = None

    def begin(self, cluster: Cluster, task: Task) -> None:
        """Called before the first event of an episode."""
        self.cluster = cluster

    def news(self) -> None:
        """Time has come to a new instant, whose events are in the cluster."""

    def settled(self) -> None:
        """Everything is decided at this instant."""

    def acted(self, action: int) -> None:
        """An action was carried out."""

    def reward(self, *, last: bool) -> float:
        """The reward since the last call; `last` at the end of the episode."""
        raise NotImplementedError


class Rate(Objective):
    """A number that the cluster has at any time: its value at the decision, or its integral since the last one.

    Args:
        integrated: Integral over time instead of the value.
    """

    def __init__(self, integrated: bool) -> None:
        self._integrated = integrated

    def begin(self, cluster: Cluster, task: Task) -> None:
        """See :meth:`Objective.begin`."""
        super().begin(cluster, task)
        self._integral = 0.0
        self._since = 0.0
        self._rate = 0.0

    def news(self) -> None:
        """See :meth:`Objective.news`."""
        now = self.cluster.now
        if self._integrated:
            self._integral += self._rate * (now - self._since)
        self._since = now

    def settled(self) -> None:
        """See :meth:`Objective.settled`."""
        if self._integrated:
            self._rate = self.value()

    def reward(self, *, last: bool) -> float:
        """See :meth:`Objective.reward`."""
        if not self._integrated:
            return self.value()
        integral, self._integral = self._integral, 0.0
        return integral

    def value(self) -> float:
        """The rate now."""
        raise NotImplementedError


class AverageJobCompletion(Rate):
    """Minus the jobs in the system."""

    def value(self) -> float:
        """See :meth:`Rate.value`."""
        return -float(len(self.cluster.queue) + len(self.cluster.running))


class AverageUtilization(Rate):
    """Busy cores."""

    def value(self) -> float:
        """See :meth:`Rate.value`."""
        return float(self.cluster.platform.n_cores - self.cluster.n_idle)


OBJECTIVES: dict[str, type[Rate]] = {
    "avg_job_completion": AverageJobCompletion,
    "avg_utilization": AverageUtilization,
}
