"""Kinds of actions and observations by name; further ones come from a user's file or an installed package."""

from __future__ import annotations

from hdsim.decisions.base import Action, Observer
from hdsim.util.plugins import NamedType

_ACTIONS = "hdsim.decisions.actions"
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
        "backfill": f"{_ACTIONS}.backfill.Backfill",
        "accept": f"{_ACTIONS}.accept.Accept",
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
        "jobs": f"{_OBSERVATIONS}.jobs.Jobs",
        "jobs_shadow": f"{_OBSERVATIONS}.shadow.JobsShadow",
        "nodes": f"{_OBSERVATIONS}.nodes.Nodes",
        "nodes_bandwidth": f"{_OBSERVATIONS}.bandwidth.NodesBandwidth",
        "proposal": f"{_OBSERVATIONS}.proposal.Proposal",
        "graph": f"{_OBSERVATIONS}.graph.Graph",
    },
)
