"""Kinds of actions, observations and objectives by name; further ones come from files and installed packages."""

from __future__ import annotations

from hdsim.decisions.base import Action, Objective, Observer
from hdsim.util.plugins import NamedType

_ACTIONS = "hdsim.decisions.actions"
_OBJECTIVES = "hdsim.decisions.objectives"
_OBSERVATIONS = "hdsim.decisions.observations"
ACTIONS = NamedType(
    "action",
    Action,
    "hdsim.decisions.Action",
    "env.action",
    {
        "policy_pair": f"{_ACTIONS}.policy_pair.PolicyPair",
        "job": f"{_ACTIONS}.pick_job.PickJob",
        "node": f"{_ACTIONS}.place_job.PlaceJob",
        "backfill": f"{_ACTIONS}.backfill.BackfillAction",
        "accept": f"{_ACTIONS}.accept.Accept",
        "suspend": f"{_ACTIONS}.suspend.Suspend",
        "job_suspend": f"{_ACTIONS}.suspend.JobSuspend",
        "site_job": f"{_ACTIONS}.site.SiteJob",
        "site_priority": f"{_ACTIONS}.site.SitePriority",
    },
)
OBSERVATIONS = NamedType(
    "observation",
    Observer,
    "hdsim.decisions.Observer",
    "env.observation",
    {
        "normal": f"{_OBSERVATIONS}.hdeeprm.Normal",
        "small": f"{_OBSERVATIONS}.hdeeprm.Small",
        "minimal": f"{_OBSERVATIONS}.hdeeprm.Minimal",
        "jobs": f"{_OBSERVATIONS}.jobs.JobsObserver",
        "jobs_shadow": f"{_OBSERVATIONS}.jobs.JobsShadow",
        "nodes": f"{_OBSERVATIONS}.nodes.NodesObserver",
        "nodes_bandwidth": f"{_OBSERVATIONS}.nodes.NodesBandwidth",
        "node_states": f"{_OBSERVATIONS}.node_states.NodeStatesObserver",
        "proposal": f"{_OBSERVATIONS}.proposal.Proposal",
        "graph": f"{_OBSERVATIONS}.graph.Graph",
        "site_jobs": f"{_OBSERVATIONS}.site.SiteJobs",
        "site_queue": f"{_OBSERVATIONS}.site.SiteQueue",
    },
)
OBJECTIVES = NamedType(
    "objective",
    Objective,
    "hdsim.decisions.Objective",
    "env.objective",
    {
        "avg_job_slowdown": f"{_OBJECTIVES}.AverageJobSlowdown",
        "avg_job_completion": f"{_OBJECTIVES}.AverageJobCompletion",
        "expected_completion": f"{_OBJECTIVES}.ExpectedCompletion",
        "avg_utilization": f"{_OBJECTIVES}.AverageUtilization",
        "makespan": f"{_OBJECTIVES}.Makespan",
        "energy_consumption": f"{_OBJECTIVES}.EnergyConsumption",
        "edp": f"{_OBJECTIVES}.Edp",
        "cost": f"{_OBJECTIVES}.Cost",
        "carbon": f"{_OBJECTIVES}.Carbon",
        "energy_under_wait": f"{_OBJECTIVES}.EnergyUnderWait",
        "bounded_slowdown": f"{_OBJECTIVES}.BoundedSlowdown",
        "avg_bounded_slowdown": f"{_OBJECTIVES}.AverageBoundedSlowdown",
        "cluster_balance": f"{_OBJECTIVES}.ClusterBalance",
        "load_imbalance": f"{_OBJECTIVES}.LoadImbalance",
    },
)
KINDS = (ACTIONS, OBSERVATIONS, OBJECTIVES)
