"""The example notebooks run from the first cell to the last, that on Kubernetes without a cluster and on one."""

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
TUTORIAL = ROOT / "examples/tutorial.ipynb"

pytestmark = pytest.mark.requires("nbclient")


def executed(path: Path, folder: Path, warm: Warm, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Runs a notebook in a folder; returns its cells of code."""
    import nbformat
    from nbclient import NotebookClient

    program = folder / "bin/hdsim"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.join(warm.command("hdsim"))} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("IPYTHONDIR", str(folder / "ipython"))
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=None, resources={"metadata": {"path": str(folder)}}).execute()
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def run_notebook(folder: Path, warm: Warm, monkeypatch: pytest.MonkeyPatch, kubeconfig: Path) -> list[str]:
    """Runs the notebook on Kubernetes; returns the printed text and the values of each cell."""
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    cells = executed(NOTEBOOK, folder, warm, monkeypatch)
    return [
        "".join(output.get("text", "") or output.get("data", {}).get("text/plain", "") for output in cell.outputs)
        for cell in cells
    ]


@pytest.mark.parametrize("path", [NOTEBOOK, TUTORIAL], ids=lambda path: path.stem)
def test_a_notebook_is_valid_and_has_no_outputs(path: Path) -> None:
    import nbformat

    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in notebook.cells)


@pytest.mark.requires("pandas")
def test_tutorial(tmp_path: Path, warm: Warm, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = executed(TUTORIAL, tmp_path, warm, monkeypatch)
    shown = [output.get("data", {}) for cell in cells for output in cell.outputs]
    pages = [data["text/html"] for data in shown if "text/html" in data]
    assert pages[0].count("class='tile'") == 6 and "<table" in pages[1]
    assert sum("image/png" in data for data in shown) == 2
    printed = "".join(output.get("text", "") for cell in cells for output in cell.outputs)
    assert "mean_bounded_slowdown" in printed and "guarded" in printed.lower()
    assert "baseline" in printed and re.search(r"\[[\d.,]+, [\d.,]+\]", printed)
    assert all((tmp_path / name).is_file() for name in ("compare.csv", "slowdown.pdf", "report.html"))


@pytest.mark.requires("torch")
@pytest.mark.nightly
def test_without_a_cluster(tmp_path: Path, warm: Warm, monkeypatch: pytest.MonkeyPatch) -> None:
    said = run_notebook(tmp_path, warm, monkeypatch, tmp_path / "none")
    (deviations,) = (text for text in said if text.startswith("{'random'"))
    deviation = ast.literal_eval(deviations)
    assert deviation["least_allocated"] < 0.5 * deviation["random"]
    assert deviation["dqn"] < 0.6 * deviation["random"]
    assert any("the rest of this notebook is left out" in text for text in said)


@pytest.mark.requires("kube", "torch")
@pytest.mark.nightly
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
