"""Images, compose file and manifests, as far as they can be checked without a container engine.

The manifests go to a real API server in tests/control_plane/test_kwok_security.py.
"""

from __future__ import annotations

import fnmatch
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from hdsim.util.version import __version__

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = ROOT / "deploy/Dockerfile"
COMPOSE = ROOT / "compose.yaml"


def instructions() -> list[tuple[str, str]]:
    """Instructions of the Dockerfile with their arguments; continued lines are joined."""
    lines = [line for line in DOCKERFILE.read_text().splitlines() if not line.lstrip().startswith("#")]
    text = "\n".join(lines).replace("\\\n", " ")
    return [(line.split()[0], line.split(maxsplit=1)[1]) for line in text.splitlines() if line.strip()]


def services() -> dict[str, dict[str, Any]]:
    """Services of the compose file, merge keys applied."""
    return dict(yaml.safe_load(COMPOSE.read_text())["services"])


def container() -> dict[str, Any]:
    """The container of the Deployment."""
    documents = yaml.safe_load_all((ROOT / "deploy/kubernetes/deployment.yaml").read_text())
    (deployment,) = (document for document in documents if document["kind"] == "Deployment")
    (only,) = deployment["spec"]["template"]["spec"]["containers"]
    return dict(only)


@pytest.mark.requires("hadolint")
def test_hadolint() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([hadolint, "--failure-threshold", "style", DOCKERFILE], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert not done.stdout
    # The linter finds what it should.
    worse = DOCKERFILE.read_text().replace("3.13.15-slim-trixie", "latest")
    done = subprocess.run([hadolint, "-"], input=worse, capture_output=True, text=True)
    assert "DL3007" in done.stdout


def test_images_are_pinned_and_run_as_a_user() -> None:
    bases = {argument.split()[0] for name, argument in instructions() if name == "FROM"}
    stages = {argument.split()[2] for name, argument in instructions() if name == "FROM"}
    assert all(re.search(r":\d+\.\d+\.\d+-", base) for base in bases - stages)
    # Users by number: Kubernetes cannot tell from a name that it is not root.
    assert [argument for name, argument in instructions() if name == "USER"] == ["10001:10001"]
    text = DOCKERFILE.read_text()
    for stage in ("lab", "scheduler"):
        assert f"FROM run AS {stage}" in text


def test_what_the_image_copies_is_in_its_context() -> None:
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    copied = [argument for name, argument in instructions() if name == "COPY" and "--from" not in argument]
    sources = {source for argument in copied for source in shlex.split(argument)[:-1] if not source.startswith("--")}
    assert sources == set(allowed)
    assert all((ROOT / source).exists() for source in sources)
    assert fnmatch.fnmatch("kubeconfig", "*")  # the first line of .dockerignore leaves out everything else
    assert "*" in (ROOT / ".dockerignore").read_text().splitlines()


def test_the_versions_in_the_images_satisfy_pyproject() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    pins = {}
    for line in (ROOT / "deploy/constraints.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            name, version = line.split("==")
            pins[canonicalize_name(name)] = version
    wanted = [
        *project["project"]["dependencies"],
        *project["build-system"]["requires"],
        *extras["kwok"],
        *extras["rl"],
        *extras["notebook"],
        *extras["frames"],
    ]
    for requirement in map(Requirement, wanted):
        if requirement.name == "hdsim":
            continue
        name = canonicalize_name(requirement.name)
        assert name in pins, f"deploy/constraints.txt lacks {name}"
        assert requirement.specifier.contains(pins[name]), f"{requirement} does not allow {pins[name]}"


@pytest.mark.requires("compose-spec")
def test_the_compose_file_is_valid() -> None:
    from compose_spec import PyOptions

    compose = PyOptions(apply_merge=True).from_yaml(COMPOSE.read_text())
    compose.validate()
    assert set(compose.service_names()) == {"cluster", "nodes", "scheduler", "tensorboard", "jupyter"}
    with pytest.raises(ValueError, match="boolean"):
        PyOptions(apply_merge=True).from_yaml(COMPOSE.read_text().replace("read_only: true", "read_only: maybe"))


def test_compose_publishes_on_loopback_and_mounts_what_exists() -> None:
    published = {}
    for name, service in services().items():
        for port in service.get("ports", []):
            host, outside, inside = port.split(":")
            assert host == "127.0.0.1"
            assert outside == inside
            published[outside] = name
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert source == "runs" or (ROOT / source).is_file(), volume
        assert set(service.get("depends_on", {})) <= set(services())
        assert not re.search(r":latest|^[^:]+$", service["image"])
        if name != "cluster":
            assert service["cap_drop"] == ["ALL"]
            assert service["security_opt"] == ["no-new-privileges:true"]
    assert published["6006"] == "tensorboard"
    assert published["8888"] == "jupyter"


def test_one_version() -> None:
    images = {service["image"] for name, service in services().items() if name != "cluster"}
    assert images == {f"hdsim:{__version__}", f"hdsim-lab:{__version__}"}
    assert container()["image"] == f"hdsim:{__version__}"
    assert f"--tag hdsim:{__version__} " in DOCKERFILE.read_text()


def test_the_commands_of_the_containers_are_understood(hdsim) -> None:
    for arguments in (container()["args"], services()["scheduler"]["command"]):
        done = hdsim(*arguments, "--cfg", "job")
        assert done.returncode == 0, done.stderr
        config = yaml.safe_load(done.stdout)
        assert config["backend"]["_target_"].startswith("hdsim.backends.kwok.")
        assert config["backend"]["stop_when_idle"] is None
