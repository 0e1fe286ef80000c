"""The wheel holds what it must and nothing else, and works in an empty directory and a fresh virtual environment."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# One worker of pytest builds the wheel for all of them.
pytestmark = [pytest.mark.packaging, pytest.mark.xdist_group("packaging")]


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
    succeed(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def wheel(distributions: Path) -> Path:
    (path,) = distributions.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def beside(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a virtual environment with the wheel, which sees the packages that run the tests."""
    environment = tmp_path_factory.mktemp("beside")
    succeed(sys.executable, "-m", "venv", "--without-pip", environment, cwd=environment)
    python = environment / "bin/python"
    succeed(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", wheel, cwd=environment)
    (packages,) = environment.glob("lib/python*/site-packages")
    (packages / "beside.pth").write_text(sysconfig.get_path("purelib"))
    return python


@pytest.fixture(scope="module")
def alone(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a fresh virtual environment with the wheel and the dependencies it asks for."""
    environment = tmp_path_factory.mktemp("alone")
    succeed(sys.executable, "-m", "venv", environment, cwd=environment)
    python = environment / "bin/python"
    succeed(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel, cwd=environment)
    return python


@pytest.mark.ci
def test_the_wheel_claims_one_import_name(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0] for name in names} == {"hdsim", f"{wheel.name.split('-py3')[0]}.dist-info"}


@pytest.mark.parametrize("folder", ["agents", "conf", "platforms", "workloads"])
@pytest.mark.ci
def test_the_wheel_has_every_bundled_file(wheel: Path, folder: str) -> None:
    tracked = succeed("git", "ls-files", folder, cwd=ROOT).split()
    assert tracked
    assert {f"hdsim/{path}" for path in tracked} <= set(zipfile.ZipFile(wheel).namelist())


@pytest.mark.ci
def test_the_source_distribution_has_the_tests_and_the_bundled_files(distributions: Path) -> None:
    (path,) = distributions.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"tests/conftest.py", "conf/config.yaml", "platforms/gaia.json", "Makefile", "README.md"} <= names


def runs_in_an_empty_directory(python: Path, folder: Path) -> None:
    hdsim = python.parent / "hdsim"
    output = succeed(hdsim, "run", "agent=easy", "workload.jobs=200", "hydra.run.dir=out", cwd=folder)
    assert "makespan" in output
    assert (folder / "out/jobs.csv").is_file()
    succeed(hdsim, "report", "out", cwd=folder)
    assert (folder / "out/report.html").is_file()


@pytest.mark.ci
def test_the_wheel_runs_in_an_empty_directory(beside: Path, tmp_path: Path) -> None:
    runs_in_an_empty_directory(beside, tmp_path)


@pytest.mark.nightly
def test_the_dependencies_suffice(alone: Path, tmp_path: Path) -> None:
    runs_in_an_empty_directory(alone, tmp_path)
    assert "torch" not in succeed(alone, "-m", "pip", "list", "--format=freeze", cwd=tmp_path)


@pytest.mark.nightly
def test_the_first_comparison_from_an_installation(beside: Path, tmp_path: Path) -> None:
    page = (ROOT / "docs/install.md").read_text().partition("\n## A first comparison\n")[2].partition("\n## ")[0]
    path = f"{beside.parent}{os.pathsep}{os.environ['PATH']}"
    for block in re.findall(r"^```bash\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        succeed("env", f"PATH={path}", "bash", "-euo", "pipefail", "-c", block, cwd=tmp_path)
    assert (tmp_path / "paper/compare.pdf").read_bytes().startswith(b"%PDF")
    assert (tmp_path / "paper/policies.tex").read_text().count("scriptsize") == 10  # two metrics of five policies
    checked = succeed(beside.parent / "hdsim", "study", "gaia", "--check", cwd=tmp_path)
    assert "6 of 6 numbers as expected" in checked


@pytest.mark.ci
def test_bundled_modules_have_the_same_names_as_in_a_checkout(beside: Path, tmp_path: Path) -> None:
    script = (
        "import hdsim.agents.classic as classic, hdsim.util.resources as r; "
        "print(classic.__file__, r.folder('platforms'))"
    )
    for path in succeed(beside, "-c", script, cwd=tmp_path).split():
        assert "site-packages/hdsim/" in path
