"""slurmctld's scheduling of a site as an agent: partitions, limits, priorities, main loop and sched/backfill."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hdsim.scheduling.agent import Agent
from hdsim.scheduling.slurm import SlurmScheduling
from hdsim.util.plugins import optional

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster
    from hdsim.site.model import Site
    from hdsim.site.scheduler import SlurmScheduler


class SlurmAgent(Agent):
    """Schedules the jobs of a site as slurmctld does; see :class:`hdsim.scheduling.slurm.SlurmScheduling`.

    Args:
        site: The site: a folder of ``hdsim site import``, its ``site.yaml``, or the content of that file, with the
            accounts of the file at ``path``, or a :class:`hdsim.site.model.Site`. Without a ``path`` and nodes it is
            made of the platform, the jobs and the rules in it, see :func:`hdsim.site.bare.bare_site`.

    Attributes:
        names_nodes: Whether the column ``nodes`` has the nodes of the jobs, which takes a third of the time.
    """

    names_nodes = True

    def __init__(self, site: str | Path | Mapping[str, Any] | Site | None = None) -> None:
        for package in ("ClusterShell", "pydantic"):
            optional(package)
        from hdsim.site.model import Site, load_site, site_of, site_of_settings

        self._rules: dict[str, Any] | None = None  # of a site that is made of platform and jobs
        if isinstance(site, str | Path):
            site = load_site(site)
        if site is None or (isinstance(site, Mapping) and not site.get("path") and not site.get("nodes")):
            self._rules = {key: value for key, value in (site or {}).items() if key != "path"}
            site = site_of(self._rules, "site")
        self.site: Site = site if isinstance(site, Site) else site_of_settings(site, "site")

    def begin(self, cluster: Cluster) -> None:
        """Reads the jobs.

        Raises:
            ConfigError: The platform is not that of the site, or the site has rules that are not simulated.
            WorkloadError: A job asks for something that the site lacks.
        """
        from hdsim.site.bare import bare_site, named

        jobs = None
        if self._rules is not None:
            jobs = named(cluster.workload)
            self.site = bare_site(self._rules, cluster.platform, jobs)
        self._scheduling = SlurmScheduling(self.site, cluster, jobs=jobs, names_nodes=self.names_nodes)

    def decide(self, cluster: Cluster) -> None:
        """Takes note of events and makes the passes that are due."""
        self._scheduling.note(cluster)
        self._scheduling.run_passes(cluster)
        self._scheduling.wake(cluster)

    def state_at(self, now: float) -> SlurmScheduler:
        """Returns the scheduler, priorities being calculated until a time in seconds since the first submission."""
        return self._scheduling.state_at(now)
