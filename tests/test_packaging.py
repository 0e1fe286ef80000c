"""The wheel holds what it must and nothing else, and works in an empty directory and a fresh virtual environment."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

pytestmark = pytest.mark.packaging


def succeed(*command: object, cwd: Path) -> str:
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source distribution and the wheel that is built from it."""
    folder = tmp_path_factory.mktemp("dist")
    succeed(sys.executable, "-m", "build", "--outdir", folder, ROOT, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def wheel(distributions: Path) -> Path:
    (path,) = distributions.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a fresh virtual environment with the wheel and its dependencies."""
    environment = tmp_path_factory.mktemp("venv")
    succeed(sys.executable, "-m", "venv", environment, cwd=environment)
    python = environment / "bin/python"
    succeed(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel, cwd=environment)
    return python


def test_the_wheel_claims_one_import_name(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0] for name in names} == {"hdsim", f"{wheel.name.split('-py3')[0]}.dist-info"}


@pytest.mark.parametrize("folder", ["agents", "conf", "platforms", "workloads"])
def test_the_wheel_has_every_bundled_file(wheel: Path, folder: str) -> None:
    tracked = succeed("git", "ls-files", folder, cwd=ROOT).split()
    assert tracked
    assert {f"hdsim/{path}" for path in tracked} <= set(zipfile.ZipFile(wheel).namelist())


def test_the_source_distribution_has_the_tests_and_the_bundled_files(distributions: Path) -> None:
    (path,) = distributions.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"tests/conftest.py", "conf/config.yaml", "platforms/gaia.json", "Makefile", "README.md"} <= names


def test_hdsim_runs_in_an_empty_directory(installed: Path, tmp_path: Path) -> None:
    hdsim = installed.parent / "hdsim"
    output = succeed(hdsim, "run", "agent=easy", "workload.jobs=200", "hydra.run.dir=out", cwd=tmp_path)
    assert "makespan" in output
    assert (tmp_path / "out/jobs.csv").is_file()
    succeed(hdsim, "report", "out", cwd=tmp_path)
    assert (tmp_path / "out/report.html").is_file()


def test_bundled_modules_have_the_same_names_as_in_a_checkout(installed: Path, tmp_path: Path) -> None:
    script = (
        "import hdsim.agents.classic as classic, hdsim.util.resources as r; "
        "print(classic.__file__, r.folder('platforms'))"
    )
    for path in succeed(installed, "-c", script, cwd=tmp_path).split():
        assert "site-packages/hdsim/" in path


@pytest.mark.parametrize("name", ["agents", "conf", "platforms", "workloads", "tests"])
def test_no_other_import_name_is_taken(installed: Path, tmp_path: Path, name: str) -> None:
    script = f"import importlib.util; assert importlib.util.find_spec('{name}') is None"
    succeed(installed, "-c", script, cwd=tmp_path)


def test_the_core_brings_no_learning_framework(installed: Path, tmp_path: Path) -> None:
    assert "torch" not in succeed(installed, "-m", "pip", "list", "--format=freeze", cwd=tmp_path)
