"""A learning agent of an installed package: found by its name, trained, and replayed with what it has learned."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import hdsim

pytestmark = pytest.mark.requires("torch")


def test_an_installed_package_brings_an_agent_that_learns(tmp_path: Path, root: Path) -> None:
    # The agent of the documentation, as pip would have installed it.
    source = re.search(r"^cat > bandit.py <<'EOF'\n(.*?)^EOF$", (root / "docs/agents.md").read_text(), re.M | re.S)
    assert source
    (tmp_path / "my_agents.py").write_text(source[1])
    information = tmp_path / "my_agents-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: my-agents\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[hdsim.agents]\nbandit = my_agents:Bandit\n")

    def command(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "hdsim", *arguments], cwd=tmp_path, capture_output=True, text=True,
            env={**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{tmp_path}"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    common = ("platform=teaching", "workload.path=even_1000", "agent=bandit")
    command(
        "train", *common, "+agent.step_size=0.3", "env.pairs=[first-low_power,first-high_gflops]", "env.jobs=20",
        "train.steps=300", "train.validation=0", "train.test=1", "train.tensorboard=false", "hydra.run.dir=out",
    )  # fmt: skip
    checkpoint = "out/checkpoints/final.safetensors"
    replayed = command("run", *common, f"+agent.checkpoint={checkpoint}", "workload.jobs=50", "hydra.run.dir=replay")
    assert "makespan" in replayed


def test_dropout_is_for_training_alone(tmp_path: Path) -> None:
    """A plug-in whose network has dropout replays alike from one seed, and is trained with it again afterwards."""
    import torch
    from torch import nn

    from hdsim.decisions import DecisionProblem
    from hdsim.scheduling.agent import make_agent

    agent = make_agent(
        {
            "_target_": "hdsim.agents.reinforce.ReinforceAgent",
            "task": {"action": "job", "observation": "jobs", "queue_size": 8},
        }
    )
    platform = hdsim.load_platform("teaching")
    agent.begin_training(DecisionProblem("job", "jobs", queue_size=8), platform, 1)
    agent.network = nn.Sequential(agent.network, nn.Dropout(0.9))
    assert agent.network.training
    jobs = hdsim.load_workload("lublin_4000", platform, jobs=100)
    torch.manual_seed(1)
    starts = [hdsim.simulate(platform, jobs, agent, seed=1).starting_time.tolist() for _ in range(3)]
    assert starts[0] == starts[1] == starts[2]
    assert not agent.network.training
    agent.training_mode(True)
    assert agent.network.training
