"""A learning agent of an installed package: found by its name, trained, and replayed with what it has learned."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

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

    def hdsim(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "hdsim", *arguments], cwd=tmp_path, capture_output=True, text=True,
            env={**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{tmp_path}"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    common = ("platform=teaching", "workload.path=even_1000", "agent=bandit")
    hdsim(
        "train", *common, "+agent.step_size=0.3", "env.pairs=[first-low_power,first-high_gflops]", "env.jobs=20",
        "train.steps=300", "train.validation=0", "train.test=1", "train.tensorboard=false", "hydra.run.dir=out",
    )  # fmt: skip
    checkpoint = "out/checkpoints/final.safetensors"
    replayed = hdsim("run", *common, f"+agent.checkpoint={checkpoint}", "workload.jobs=50", "hydra.run.dir=replay")
    assert "makespan" in replayed
