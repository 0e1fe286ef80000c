"""The example notebook runs from its first cell to its last one, without a cluster and on one."""

from __future__ import annotations

import ast
import os
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import ROOT, Warm
from kube import Cluster

NOTEBOOK = ROOT / "examples/kubernetes.ipynb"

pytestmark = pytest.mark.requires("nbclient", "torch")


def run_notebook(folder: Path, warm: Warm, monkeypatch: pytest.MonkeyPatch, kubeconfig: Path) -> list[str]:
    """Runs the notebook in a folder; returns the printed text and the values of each cell."""
    import nbformat
    from nbclient import NotebookClient

    program = folder / "bin/hdsim"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.join(warm.command("hdsim"))} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    monkeypatch.setenv("IPYTHONDIR", str(folder / "ipython"))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(notebook, timeout=None, resources={"metadata": {"path": str(folder)}}).execute()
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return [
        "".join(output.get("text", "") or output.get("data", {}).get("text/plain", "") for output in cell.outputs)
        for cell in cells
    ]


def test_the_notebook_is_valid_and_has_no_outputs() -> None:
    import nbformat

    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in notebook.cells)


def test_without_a_cluster(tmp_path: Path, warm: Warm, monkeypatch: pytest.MonkeyPatch) -> None:
    said = run_notebook(tmp_path, warm, monkeypatch, tmp_path / "none")
    (deviations,) = (text for text in said if text.startswith("{'random'"))
    deviation = ast.literal_eval(deviations)
    assert deviation["least_allocated"] < 0.5 * deviation["random"]
    assert deviation["dqn"] < 0.6 * deviation["random"]
    assert any("the rest of this notebook is left out" in text for text in said)


@pytest.mark.requires("kube")
def test_on_a_cluster(
    cluster: Cluster, tmp_path: Path, warm: Warm, hdsim: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The nodes are made as the compose file makes them."""
    command = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]["nodes"]["command"]
    done = hdsim(*command, "--kubeconfig", cluster.kubeconfig)
    assert done.returncode == 0, done.stderr
    said = run_notebook(tmp_path, warm, monkeypatch, cluster.kubeconfig)
    assert "10 nodes" in said[-3]
    assert float(re.findall(r"standard deviation ([\d.]+)", said[-1])[0]) < 0.06
    assert not cluster.pods("default")
