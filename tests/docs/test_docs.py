"""Every ```bash``` and ```python``` block of README.md and docs/ runs as written.

The blocks of a page run in order, in a directory that has the bundled files of a checkout and nothing else. Blocks in
other languages (```console```, ```text```, ...) show something and are not run.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Warm

from hdsim.kubernetes.control_plane import control_planes
from hdsim.slurm.emulated import EmulatedCluster

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(bash|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: Pages whose blocks run for every change, and in CI; those of all others run at night.
QUICK = ("README.md", "platform.md")
IN_CI = (
    "install.md",
    "plugins.md",
    "policies.md",
    "slurm.md",
    "batsim.md",
    "kubernetes.md",
    "workload.md",
    "bsp_real.md",
    "slurm_backend.md",
)
#: Pages whose links are checked and whose blocks are not run.
RESEARCH = [*sorted((ROOT / "research").glob("*.md")), ROOT / "tests/README.md", ROOT / "deploy/README.md"]
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")
ANCHOR = re.compile(r"\]\(([^)#\s]+\.md)?#([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


# What the blocks of a page need besides hdsim itself, by the names of the marker `requires`.
NEEDS = re.compile(r"^<!-- tests need (\S+) -->$", re.MULTILINE)

#: What an interpreter runs first that is to find no torch.
WITHOUT_TORCH = """
from importlib.machinery import PathFinder

find = PathFinder.find_spec
PathFinder.find_spec = lambda name, *rest: None if name == "torch" else find(name, *rest)
"""


@pytest.fixture
def environment(tmp_path_factory: pytest.TempPathFactory, warm: Warm) -> Iterator[dict[str, str]]:
    """An environment in which ``hdsim`` and ``python`` are this checkout and this interpreter.

    Control planes have a work folder of their own, and nothing runs there afterwards.
    """
    work = tmp_path_factory.mktemp("kwok")
    programs = tmp_path_factory.mktemp("bin")
    for name, command in (("hdsim", warm.command("hdsim")), ("python", [sys.executable])):
        program = programs / name
        program.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
        program.chmod(0o755)
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    yield {
        **os.environ,
        "PATH": path,
        "PYTHONPATH": str(ROOT),
        "KUBECONFIG": str(work / "config"),
        "KWOK_WORKDIR": str(work),
    }
    for plane in control_planes(work):
        plane.remove()


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(
            page,
            id=str(page.relative_to(ROOT)),
            marks=[
                pytest.mark.requires(*NEEDS.findall(page.read_text())),
                *([] if page.name in QUICK else [pytest.mark.ci if page.name in IN_CI else pytest.mark.nightly]),
            ],
        )
        for page in PAGES
        if BLOCK.search(page.read_text())
    ],
)
def test_blocks_run(page: Path, tmp_path: Path, environment: dict[str, str], warm: Warm) -> None:
    for folder in ("platforms", "workloads", "agents", "examples/plugins"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    if "torch" not in NEEDS.findall(page.read_text()):
        # A page that needs it without saying so would fail where it is missing only.
        (tmp_path / "without").mkdir()
        (tmp_path / "without" / "sitecustomize.py").write_text(WITHOUT_TORCH)
        environment["PYTHONPATH"] += f"{os.pathsep}{tmp_path / 'without'}"
    for language, block in BLOCK.findall(page.read_text()):
        command = ["bash", "-euo", "pipefail", "-c", block] if language == "bash" else [*warm.command("-c"), block]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        if done.returncode:
            # What the rest of the page would end.
            for description in tmp_path.glob("*/cluster.json"):
                EmulatedCluster(description.parent).down()
        assert done.returncode == 0, f"{page.name}:\n{block}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr


def test_links_lead_somewhere() -> None:
    links = [(page, target) for page in [*PAGES, *RESEARCH] for target in LINK.findall(page.read_text())]
    assert not [link for link in links if "://" not in link[1] and not (link[0].parent / link[1]).exists()]


def headings(page: Path) -> set[str]:
    """Anchors of the headings of a page, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", FENCED.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_anchors_are_headings() -> None:
    links = [
        (page.name, page.parent / (target or page.name), anchor)
        for page in [*PAGES, *RESEARCH]
        for target, anchor in ANCHOR.findall(FENCED.sub("", page.read_text()))
    ]
    assert len(links) > 100
    assert not [link for link in links if link[2] not in headings(link[1])]


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs/index.md").read_text()
    listed = set(LINK.findall(index))
    pages = {str(page.relative_to(ROOT / "docs")) for page in PAGES[1:]} - {"index.md"}
    assert pages == {target for target in listed if target.endswith(".md") and not target.startswith("..")}


def test_generated_parts_are_current() -> None:
    done = subprocess.run([sys.executable, ROOT / "docs/generate.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
