"""Finding bundled files by name and users' files by path."""

from __future__ import annotations

from pathlib import Path

import pytest

from hdsim.errors import ConfigError
from hdsim.util.resources import bundled, folder, resolve


@pytest.mark.parametrize("name", ["gaia", "gaia.json", "platforms/gaia.json"])
def test_a_bundled_file_goes_by_name_in_any_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert resolve("platforms", name) == folder("platforms") / "gaia.json"


def test_an_existing_file_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("gaia").write_text("mine")
    assert resolve("platforms", "gaia").read_text() == "mine"


def test_a_directory_of_that_name_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("gaia").mkdir()
    assert resolve("platforms", "gaia").name == "gaia.json"


def test_the_nearest_name_and_all_names_are_told() -> None:
    with pytest.raises(ConfigError) as caught:
        resolve("platforms", "gaya", where="platform.path")
    message = str(caught.value)
    assert message.startswith("platform.path: ")
    assert "did you mean 'gaia'?" in message
    assert all(name in message for name in bundled("platforms"))


def test_a_directory_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected a file, got the directory"):
        resolve("workloads", tmp_path)


@pytest.mark.parametrize("kind", ["checkpoints", "platforms", "workloads"])
def test_bundled_files_are_listed_in_order(kind: str) -> None:
    files = bundled(kind)  # type: ignore[arg-type]
    assert files and list(files) == sorted(files)
    assert all(path.is_file() for path in files.values())
