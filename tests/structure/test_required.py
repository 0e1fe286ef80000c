"""Evidence that goes missing is told: tests of what is not there fail under HDSIM_REQUIRE_ALL."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tiers import nightly

CASE = """
import pytest


def test_with_data(shared_data):
    pass


@pytest.mark.requires("torch-geometric")
def test_with_a_component():
    pass
"""


@pytest.mark.parametrize(("required", "outcome"), [("1", "2 errors"), *nightly(("", "2 skipped"))])
@pytest.mark.ci
def test_what_is_missing_fails_where_everything_is_required(required: str, outcome: str, tmp_path: Path) -> None:
    tests = Path(__file__).parents[1]
    (tmp_path / "tests").mkdir()
    # A checkout without the reference data beside it, and an interpreter without PyTorch Geometric.
    (tmp_path / "tests/conftest.py").write_text((tests / "conftest.py").read_text())
    (tmp_path / "tests/test_case.py").write_text(CASE)
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['torch_geometric'] = None\n")
    environment = {**os.environ, "HDSIM_REQUIRE_ALL": required, "PYTHONPATH": f"{tmp_path}:{tests.parent}:{tests}"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore", "tests"]
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert outcome in ran.stdout, ran.stdout
    assert re.search("reference data is missing", ran.stdout) or not required


def test_no_test_skips_by_itself() -> None:
    own = {Path(__file__).name, "conftest.py"}
    for path in Path(__file__).parents[1].rglob("*.py"):
        assert path.name in own or "importorskip" not in path.read_text(), path.name
