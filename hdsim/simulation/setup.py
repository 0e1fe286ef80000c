"""Setup of a replay: agent, models, cluster and engine."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hdsim.cluster.state import Cluster
from hdsim.contention import Contention
from hdsim.errors import ConfigError, WorkloadError, not_one_of
from hdsim.failures import External, Failures
from hdsim.network import Network
from hdsim.platform.schema import CORES, QUANTITIES
from hdsim.power import PowerManagement
from hdsim.scheduling.agent import Agent, make_agent
from hdsim.util.arrays import Ints, first_of_kind
from hdsim.util.plugins import PluginType, snake_case
from hdsim.util.resources import options
from hdsim.util.rules import has_values, texts
from hdsim.workload.feasibility import infeasible_jobs

if TYPE_CHECKING:
    from hdsim.facility.model import Facility
    from hdsim.platform.model import Platform
    from hdsim.simulation.engine import Engine
    from hdsim.simulation.executor import Executor
    from hdsim.workload.model import Workload

log = logging.getLogger(__name__)

#: Name of a file in a group of ``conf/``, or its content.
Model = str | Mapping[str, Any]

#: Types of models by group.
_TYPES = {
    "contention": PluginType("contention", Contention, "hdsim.contention.Contention"),
    "network": PluginType("network", Network, "hdsim.network.Network"),
    "failures": PluginType("failures", Failures, "hdsim.failures.Failures"),
    "power": PluginType("power", PowerManagement, "hdsim.power.PowerManagement"),
}
#: Groups of the models of a replay.
MODELS = tuple(_TYPES)
#: Indices of the random streams of outages and of boots among those of a seed.
_OUTAGES, _BOOTS = 1, 2


@dataclass(frozen=True)
class ReplaySetup:
    """Agent, models and cluster of a replay before its first event."""

    agent: Agent
    make_cluster: Callable[[], Cluster]  # creates the state before the first event
    contention: Contention | None  # contention model, None if no job can be slowed down
    network: Network | None  # network model, None if there are no messages
    failures: Failures | None  # failure model, None without failures
    power: PowerManagement | None  # power management, None where nodes do not sleep
    facility: Facility | None  # what surrounds the machine, None without
    infeasible: Ints  # jobs that do not fit on the empty platform
    seed: int
    rng: np.random.Generator  # source of the draws of the scheduler, also ``cluster.rng``

    @cached_property
    def cluster(self) -> Cluster:
        """The state of the cluster; a replay in compiled code needs none."""
        return self.make_cluster()

    def engine(self, *, kill_at_walltime: bool, batch_events: bool) -> Engine:
        """Creates the engine; see :class:`hdsim.simulation.simulation.Simulation` for the arguments."""
        from hdsim.simulation.engine import Engine

        cluster, rng, boots = self.cluster, None, None
        if self.failures is not None:
            # Outages have their own random stream, independent of the draws of the scheduler.
            rng = np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(_OUTAGES,)))
        if self.power is not None and self.power.boot_failure:
            boots = np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(_BOOTS,)))
        return Engine(
            cluster,
            make_executor(cluster, self.contention, self.network),
            kill_at_walltime=kill_at_walltime,
            batch_events=batch_events,
            infeasible=self.infeasible.tolist(),
            failures=self.failures,
            rng=rng,
            power=self.power,
            boots=boots,
        )


def make_executor(cluster: Cluster, contention: Contention | None, network: Network | None) -> Executor:
    """Creates the executor for the jobs of a cluster."""
    if cluster.workload.has_gangs:
        from hdsim.simulation.gang_jobs import GangJobs

        return GangJobs(cluster)
    if cluster.workload.has_programs:
        from hdsim.simulation.bsp_jobs import BspJobs

        return BspJobs(cluster.platform, cluster.workload, contention, network)
    return make_rigid_executor(cluster, contention)


def make_rigid_executor(cluster: Cluster, contention: Contention | None) -> Executor:
    """Creates the executor for the jobs of a cluster, whose programs are left out."""
    if contention is not None:
        from hdsim.simulation.contended import Contended

        return Contended(cluster.platform, cluster.workload, contention)
    from hdsim.simulation.executor import Uncontended

    return Uncontended(cluster)


def set_up(
    platform: Platform,
    workload: Workload,
    agent: Model | Agent,
    *,
    contention: Model,
    network: Model = "none",
    failures: Model = "none",
    facility: Model = "none",
    power: Model = "none",
    seed: int,
    confirms_starts: bool = False,
    open_ended: bool = False,
    has_core_ids: bool = True,
    tells_infeasible: bool = True,
) -> ReplaySetup:
    """Creates agent, models and cluster.

    See :class:`hdsim.simulation.simulation.Simulation` and `Cluster` for the arguments and the errors.
    """
    if len(workload) == 0 and not open_ended:
        raise WorkloadError("expected at least one job, got an empty workload", where=workload.source or None)
    agent = make_agent(agent)
    model: Contention | None = make_model("contention", contention, platform)
    if model is not None and not model.applies(workload):
        model = None
    links: Network | None = make_model("network", network, platform)
    if not workload.has_programs:
        links = None
    if links is not None and np.isinf(platform.local_bandwidth).all():
        log.warning("the links of %s have unlimited bandwidth: messages take only their latencies", platform.name)
    breakdowns: Failures | None = make_model("failures", failures, platform)
    management: PowerManagement | None = make_model("power", power, platform)
    if management is not None and management.boot_failure and breakdowns is None:
        breakdowns = External(platform)
    faults = quantities_faults(platform, workload, model, management) + gang_faults(platform, workload, breakdowns)
    if management is not None and management.changes_frequencies:
        refuse_frequencies(agent, workload)
    if faults:
        raise ConfigError.many([ConfigError(fault, where="platform.kind") for fault in faults])
    rng = np.random.default_rng(seed)
    make: Callable[[Workload], Cluster] = partial(
        Cluster,
        platform,
        core_policy=agent.core_policy,
        fixed_policy=agent.fixed_policy,
        core_policies=agent.core_policies,
        needs_processors=model is not None or workload.has_programs,
        nodes_fail=breakdowns is not None,
        resume_rate=None if management is None else management.resume_rate,
        time_out=management is not None and management.times_out,
        caps=() if management is None else management.caps,
        frequency=None if management is None else management.frequency,
        slows=management is not None and management.slows,
        raises=management is not None and management.raises,
        confirms_starts=confirms_starts,
        open_ended=open_ended,
        has_core_ids=has_core_ids,
        rng=rng,
    )
    make_cluster: Callable[[], Cluster] = partial(make, workload)
    surroundings = _facility_of(facility, platform, workload, seed)
    if surroundings is not None:
        make_cluster = partial(_in_facility, make_cluster, surroundings)
    cluster = None if has_core_ids and platform.kind == CORES else make_cluster()
    if cluster is None:
        infeasible = infeasible_jobs(platform, workload)
    else:
        infeasible, make_cluster = np.array(cluster.infeasible(), np.int64), lambda: cluster
    if management is not None and any(cap.hard for cap in management.caps):
        infeasible = np.union1d(infeasible, _above_caps(make, workload, infeasible, has_core_ids=has_core_ids))
    if len(infeasible) and tells_infeasible:
        log.warning("%d of %d jobs are infeasible on %s and rejected", len(infeasible), len(workload), platform.name)
        if cluster is not None:
            first = int(infeasible[0])
            log.warning("the first, job %s: %s", workload.job_id[first], cluster.cores.explain(first, empty=True))
    return ReplaySetup(agent, make_cluster, model, links, breakdowns, management, surroundings, infeasible, seed, rng)


def refuse_frequencies(agent: Agent, workload: Workload) -> None:
    """Refuses what goes together with no other frequency than the nominal one.

    Raises:
        ConfigError: Jobs have programs, or the agent predicts run times.
    """
    where = "power.frequency"
    if workload.has_programs:
        raise ConfigError("expected jobs without programs, whose messages have no frequency", where=where)
    if getattr(getattr(agent, "rules", None), "estimates", "requested") != "requested":
        message = "expected agent.estimates=requested, since predictions do not know the frequency of a job"
        raise ConfigError(message, where=where)


def _facility_of(spec: Model, platform: Platform, workload: Workload, seed: int) -> Facility | None:
    """Makes a facility, whose modules only runs in one load."""
    given = model_settings("facility", spec)
    if not has_values(given):
        return None
    from hdsim.facility.model import Facility

    return Facility.of(given, platform, workload, seed)


def _in_facility(make_cluster: Callable[[], Cluster], facility: Facility) -> Cluster:
    """Creates a cluster whose schedulers know of its facility."""
    from hdsim.facility.model import Outlook

    cluster = make_cluster()
    cluster.facility = Outlook(facility, cluster)
    return cluster


def _above_caps(
    make_cluster: Callable[[Workload], Cluster], jobs: Workload, infeasible: Ints, *, has_core_ids: bool
) -> Ints:
    """Returns the jobs that break a hard cap at its highest value where the agent places them on the empty platform."""
    feasible = np.delete(np.arange(len(jobs)), infeasible)
    if not len(feasible):
        return feasible
    # Of jobs that differ in nothing that a cluster could look at the first.
    rows, of_job = np.arange(len(feasible)), np.arange(len(feasible))
    if has_core_ids:
        columns = [column[feasible] for column in (jobs.requested_cores, jobs.memory, jobs.requested_gpus)]
        rows, of_job = first_of_kind(*columns)
    cluster = make_cluster(jobs.select(feasible[rows]))
    assert cluster.budget is not None
    cluster.budget = cluster.budget.at_highest()
    _, first, kind = np.unique(cluster.requests.codes(), return_index=True, return_inverse=True)
    fits = [cluster.pick(job) is not None for job in first.tolist()]
    never = feasible[~np.array(fits, bool)[kind[of_job]]]
    if len(never):
        first_id = jobs.job_id[never[0]]
        log.warning("%d of %d jobs can never run under the caps; the first is job %s", len(never), len(jobs), first_id)
    return never


def quantities_faults(
    platform: Platform, workload: Workload, contention: Contention | None, power: PowerManagement | None
) -> list[str]:
    """Returns what a platform of kind ``quantities`` cannot simulate."""
    if platform.kind != QUANTITIES:
        return []
    faults = []
    if contention is not None:
        name = snake_case(type(contention).__name__)
        faults.append(f"contention: expected none with quantities of nodes, got {name}")
    if workload.has_programs:
        faults.append("expected jobs without programs with quantities of nodes; some jobs have several steps")
    if power is not None:
        faults.append("power: expected none with quantities of nodes, whose cores have no watts")
    return faults


def gang_faults(platform: Platform, workload: Workload, failures: Failures | None) -> list[str]:
    """Returns what gangs cannot be simulated with."""
    if not workload.has_gangs:
        return []
    faults = []
    if platform.kind != QUANTITIES:
        faults.append("expected quantities with gangs, whose tasks hold parts of cores, got cores")
    if failures is not None:
        faults.append(f"failures: expected none with gangs, got {snake_case(type(failures).__name__)}")
    return faults


def make_model(group: str, spec: Model, platform: Platform) -> Any:
    """Creates a contention, network or failure model or power management, None if there is none.

    Args:
        group: ``contention``, ``network``, ``failures`` or ``power``.
        spec: Name or content of a file in ``conf/GROUP``.
        platform: The platform.

    Raises:
        ConfigError: The model does not exist, or there are settings without the class that takes them.
    """
    settings = model_settings(group, spec)
    if settings.get("_target_") is None and "path" not in settings:
        _refuse_settings(group, settings)
        return None
    return _TYPES[group].make(settings, platform)


def _refuse_settings(group: str, settings: Mapping[str, Any]) -> None:
    """Refuses settings without a class, which would change nothing.

    Raises:
        ConfigError: There are some.
    """
    key = next((key for key, value in settings.items() if value is not None), None)
    if key is None:
        return
    found = {name: _content(file) for name, file in options(group).items()}
    takers = {name: one["_target_"] for name, one in found.items() if key in one and one.get("_target_")}
    known = ", ".join(f"{target} ({name})" for name, target in takers.items())
    told = "expected _target_ or path beside it, the class that takes it, got none"
    raise ConfigError(f"{told}; hdsim's are {known}" if known else told, where=f"{group}.{key}")


def model_settings(group: str, spec: Model) -> Mapping[str, Any]:
    """Returns the settings of a model, the content of a file in ``conf/GROUP`` if `spec` is its name.

    Raises:
        ConfigError: The file does not exist, or `spec` is neither a name nor settings.
    """
    spec = texts(spec)
    if isinstance(spec, Mapping):
        return spec
    name: object = spec
    files = options(group)
    if not isinstance(name, str):
        kind = type(name).__name__
        raise ConfigError(f"expected a name or a mapping, got {kind}; names: {', '.join(files)}", where=group)
    if name not in files:
        raise ConfigError(not_one_of(name, files), where=group)
    return _content(files[name])


@cache
def _content(path: Path) -> Mapping[str, Any]:
    """Reads a bundled file of settings."""
    import yaml

    return yaml.safe_load(path.read_text(encoding="utf-8")) or {}
