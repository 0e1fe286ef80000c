"""A missing optional package is named in one line, with the extra that installs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hdsim.errors import install_hint


def without(package: str, code: str, root: Path) -> subprocess.CompletedProcess[str]:
    """Runs code in a process that cannot import a package."""
    return subprocess.run(
        [sys.executable, "-c", f"import sys; sys.modules['{package}'] = None; {code}"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(root)},
    )


@pytest.mark.parametrize("agent", ["ppo", "gnn_dqn", "sb3"])
@pytest.mark.ci
def test_an_agent_that_needs_torch(agent: str, root: Path) -> None:
    done = without("torch", f"from hdsim.cli import main; main(['run', 'agent={agent}'])", root)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert f"hdsim.agents.{agent}" in line and line.endswith("pip install 'hdsim[rl]'")


@pytest.mark.parametrize("arguments", [["whatif", "site", "reserve=n1"], ["when", "site", "--job", "-n 4"]])
def test_commands_that_need_packages_for_sites(arguments: list[str], root: Path) -> None:
    done = without("pydantic", f"from hdsim.cli import main; main({arguments})", root)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("hdsim: error: cannot import 'pydantic'") and line.endswith("pip install 'hdsim[slurm]'")


def test_the_environments_need_gymnasium(root: Path) -> None:
    done = without("gymnasium", "import hdsim.envs", root)
    assert done.stderr.splitlines()[-1].startswith("ImportError: hdsim.envs cannot be imported: ")
    assert done.stderr.endswith("pip install 'hdsim[rl]'\n")


def test_packages_of_no_extra_have_no_hint() -> None:
    assert install_hint("torch_geometric.nn") == ": pip install 'hdsim[rl]'"
    assert install_hint("my_own_package") == install_hint(None) == ""
