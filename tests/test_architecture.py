"""Imports point one way, and heavy or optional packages are not imported with the core."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "hdsim"

# Lowest first. A package imports from itself and from those above it, never from those below.
LAYERS = (
    ("errors",),
    ("util",),
    ("platform",),
    ("failures", "network"),
    ("workload",),
    ("contention",),
    ("cluster",),
    ("scheduling",),
    ("results", "decisions"),
    ("simulation",),
    ("envs", "backends"),
    ("learning",),
    ("report",),
    ("cli",),
    ("__main__",),
)
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}

# What a core module may import from outside when it is itself imported, besides the standard library.
LIGHT = {"hdsim", "numpy", "orjson", "simpy", "click"}
# Modules that are only loaded by the command or function that needs the package.
HEAVY = {
    "cli/config.py": {"hydra", "omegaconf"},
    "platform/simgrid.py": {"lxml"},
    "report": {"matplotlib", "plotly"},
    "workload/generators/lublin.py": {"scipy"},
    "workload/generators/tsafrir.py": {"scipy"},
    "workload/generators/bsp.py": {"scipy"},
    "envs": {"gymnasium"},
    "learning/training": {"torch", "tqdm"},
    "learning/training/graphs.py": {"torch", "torch_geometric"},
}
NEVER = {"torch", "zmq", "kubernetes", "gymnasium", "tensorboard", "ray"}

MODULES = sorted(path for path in PACKAGE.rglob("*.py"))


def imports(tree: ast.AST, *, at_import: bool) -> Iterator[str]:
    """Dotted names a module imports, those only for type checkers left out; `at_import` leaves out functions' own."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if at_import and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: relative import"
            yield from (
                f"{node.module}.{alias.name}" if node.module == "hdsim" else str(node.module) for alias in node.names
            )
        else:
            yield from imports(node, at_import=at_import)


def heavy(relative: str) -> set[str]:
    """What a file may import beyond `LIGHT`."""
    return set().union(*(packages for place, packages in HEAVY.items() if relative.startswith(place)))


def part(path: Path) -> str:
    """The name LAYERS knows a file by: its module or subpackage directly under hdsim."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_one_way(path: Path) -> None:
    name = part(path)
    if name in ("__init__", "agents"):
        pytest.skip("loads by name")
    assert name in RANK, f"hdsim/{name} has no place in LAYERS"
    for imported in imports(ast.parse(path.read_text()), at_import=False):
        package, *rest = imported.split(".")
        if package == "hdsim" and rest:
            assert rest[0] != "agents", "agents are named in conf/, never imported by hdsim"
            if rest[0] in RANK:
                assert RANK[rest[0]] <= RANK[name], f"{name} imports {imported}, which is above it"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_only_light_packages_are_imported_with_a_module(path: Path) -> None:
    relative = str(path.relative_to(PACKAGE))
    allowed = LIGHT | heavy(relative) | set(sys.stdlib_module_names)
    found = {name.partition(".")[0] for name in imports(ast.parse(path.read_text()), at_import=True)}
    assert found <= allowed


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_optional_packages_are_not_imported_by_the_core(path: Path) -> None:
    found = {name.partition(".")[0] for name in imports(ast.parse(path.read_text()), at_import=True)}
    assert not found & (NEVER - heavy(str(path.relative_to(PACKAGE))))


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import hdsim", {"numpy", "simpy", "hydra", "scipy", "matplotlib", "plotly", "lxml"}),
        ("import hdsim.cli", {"numpy", "simpy", "hydra", "scipy", "matplotlib", "plotly", "lxml"}),
        (
            "from hdsim import load_platform, load_workload, simulate",
            {"hydra", "scipy", "matplotlib", "plotly", "lxml"},
        ),
    ],
)
def test_importing_is_cheap(statement: str, absent: set[str]) -> None:
    script = f"import sys; {statement}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert not absent & {name.partition(".")[0] for name in loaded.split()}


def test_every_public_name_loads() -> None:
    import hdsim

    assert all(getattr(hdsim, name) for name in hdsim.__all__)
