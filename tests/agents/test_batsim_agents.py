"""Every kind of agent decides behind Batsim's messages what it decides in hdsim's own replay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from test_batsim_backend import assert_equal, made_up, replayed

import hdsim
from hdsim.decisions import DecisionProblem
from hdsim.scheduling.agent import make_agent
from hdsim.util.resources import folder, resolve

pytestmark = pytest.mark.requires("torch", "stable-baselines3")

#: Options of the group `agent` that decide by a problem, with what they see.
KINDS = {
    path.stem: ("graph",) if path.stem.startswith("gnn") else ("minimal", "jobs", "nodes")
    for path in sorted((folder("conf") / "agent").glob("*.yaml"))
    if path.stem not in ("classic", "custom", "deferring", "kube_scheduler", "mcts", "portfolio", "rollout", "slurm")
}
TASKS: dict[str, dict[str, Any]] = {
    "minimal": {"action": "policy_pair", "observation": "minimal"},
    "jobs": {"action": "job", "observation": "jobs", "queue_size": 16, "void": True},
    "nodes": {"action": "node", "observation": "nodes", "skip_blocked": True},
    "graph": {"action": "node", "observation": "graph", "queue_size": 8},
}


@pytest.mark.parametrize(("kind", "seen"), [(kind, seen) for kind, all_seen in KINDS.items() for seen in all_seen])
def test_every_agent(tmp_path: Path, kind: str, seen: str) -> None:
    import torch

    # Networks this small only wait for each other on several.
    torch.set_num_threads(1)
    platform = hdsim.load_platform(resolve("platforms", "teaching"))
    workload = made_up(40)
    option = yaml.safe_load((folder("conf") / "agent" / f"{kind}.yaml").read_text())
    problem = DecisionProblem(**TASKS[seen])
    agent: Any = make_agent(option | {"task": TASKS[seen]} if "task" in option else option | {"sample": True})
    # Weights as training begins with them.
    agent.begin_training(problem, platform, 1)
    sim = hdsim.simulate(platform, workload, agent, contention="threshold", seed=1)
    assert sim.metrics["jobs_completed"] == 40
    batsim = replayed(platform, workload, agent, tmp_path, contention="threshold", check=True, sockets=True)
    assert_equal(batsim, sim)
