"""kube-scheduler as an agent, to be compared with others on the same cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hdsim.errors import ConfigError
from hdsim.scheduling.agent import Agent

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster


class KubeScheduler(Agent):
    """Decides nothing: a scheduler of the cluster binds the pods, and the backend takes note of it.

    Attributes:
        observes: Name of that scheduler; pods are those with this ``spec.schedulerName``.
        attached: A backend does so.

    Args:
        scheduler_name: See `observes`.
    """

    def __init__(self, scheduler_name: str = "default-scheduler") -> None:
        self.observes = scheduler_name
        self.attached = False

    def begin(self, cluster: Cluster) -> None:
        """Refuses backends without such a scheduler.

        Raises:
            ConfigError: The backend has none.
        """
        if not self.attached:
            raise ConfigError("kube_scheduler: expected backend=kwok, whose cluster has schedulers", where="agent")

    def decide(self, cluster: Cluster) -> None:
        """Does nothing."""
