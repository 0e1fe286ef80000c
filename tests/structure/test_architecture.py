"""Imports point one way, and heavy packages stay out of the core."""

from __future__ import annotations

import ast
import graphlib
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "hdsim"

# Lowest first. A package imports only from itself and from packages of lower layers.
LAYERS = (
    ("errors", "kernels"),
    ("util",),
    ("platform",),
    ("failures", "network", "workload"),
    ("gangs", "site"),
    ("contention", "cluster", "facility"),
    ("power", "scheduling"),
    ("results",),
    ("decisions", "simulation", "report"),
    ("kubernetes", "slurm"),
    ("backends", "envs"),
    ("learning",),
    ("config",),
    ("runs",),
    ("studies",),
    ("cli",),
    ("__main__",),
)
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
# These load other packages by name.
FACES = {"__init__", "agents"}

# What a core module may import from outside when it is itself imported, besides the standard library.
LIGHT = {"hdsim", "numpy", "orjson", "procset", "simpy", "click"}
# Modules that are only loaded by the command or function that needs the package.
HEAVY = {
    "kernels": {"numba"},
    "config/composer.py": {"hydra", "omegaconf", "yaml"},
    "config/jobs.py": {"hydra", "omegaconf"},
    "config/sources.py": {"hydra", "yaml"},
    "cli/sweep.py": {"tqdm"},
    "runs/sweep_table.py": {"hydra"},
    "runs/table.py": {"yaml"},
    "backends/batsim/zeromq.py": {"zmq"},
    "kubernetes": {"yaml"},
    "site": {"ClusterShell", "polars", "pydantic", "yaml"},
    "studies": {"yaml"},
    "platform/simgrid.py": {"lxml"},
    "report": {"matplotlib", "plotly"},
    "runs/tuning": {"hydra", "omegaconf", "optuna", "sqlalchemy"},
    "workload/generators/lublin.py": {"scipy"},
    "workload/generators/tsafrir.py": {"scipy"},
    "workload/generators/bsp.py": {"scipy"},
    "gangs/forecasting/trees.py": {"sklearn"},
    "gangs/forecasting/statistical.py": {"statsforecast"},
    "gangs/forecasting/neural.py": {"torch"},
    "envs": {"gymnasium"},
    "envs/sb3.py": {"stable_baselines3"},
    "learning/training": {"torch", "tqdm"},
    "learning/training/gangs.py": {"gymnasium"},
    "learning/training/graphs.py": {"torch", "torch_geometric"},
}
NEVER = {"torch", "zmq", "kubernetes", "gymnasium", "tensorboard", "ray"}

MODULES = sorted(PACKAGE.rglob("*.py"))


def loaded_with(tree: ast.AST) -> Iterator[str]:
    """Dotted names that are imported with a module: not those of type checkers and of functions."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from [*names_of(node), *loaded_with(node)]


def packages_loaded(path: Path) -> set[str]:
    """Packages of which a part is imported with a module."""
    return {name.partition(".")[0] for name in loaded_with(ast.parse(path.read_text()))}


def names_of(node: ast.AST) -> Iterator[str]:
    """Dotted names of an import statement, of a module where a module is imported from a package."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"line {node.lineno}: relative import"
        for alias in node.names:
            name = f"{node.module}.{alias.name}"
            yield name if name in by_name() else str(node.module)


@cache
def by_name() -> dict[str, Path]:
    """Files of hdsim, agents, benchmarks and research by their dotted names."""
    files = [
        *MODULES,
        *(path for place in ("agents", "benchmarks", "research") for path in (ROOT / place).rglob("*.py")),
    ]
    return {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in files}


@cache
def files_imported() -> dict[Path, set[Path]]:
    """Files that each file imports anywhere, for type checkers and in functions included."""
    return {
        path: {
            by_name()[name]
            for node in ast.walk(ast.parse(path.read_text()))
            for name in names_of(node)
            if name in by_name() and by_name()[name] != path
        }
        for path in by_name().values()
    }


def part(path: Path) -> str:
    """The name that LAYERS has for a file: its module or package directly under hdsim; its folder otherwise."""
    if path.is_relative_to(PACKAGE):
        return path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    return f"{path.relative_to(ROOT).parts[0]}/"


@cache
def arrows() -> dict[str, set[str]]:
    """Packages that each package imports."""
    found = defaultdict(set)
    for path, imported in files_imported().items():
        found[part(path)] |= {part(other) for other in imported} - {part(path)}
    return dict(found)


def heavy(relative: str) -> set[str]:
    """What a file may import beyond `LIGHT`."""
    return set().union(*(packages for place, packages in HEAVY.items() if relative.startswith(place)))


def test_imports_point_one_way() -> None:
    importing = [path for path in MODULES if part(path) not in FACES]
    assert {part(path) for path in importing} <= set(RANK), "each package has a place in LAYERS"
    upward = [
        f"{path.relative_to(ROOT)} imports {other.relative_to(ROOT)}"
        for path in importing
        for other in files_imported()[path]
        # Agents are named in conf/, never imported by hdsim.
        if part(other) not in (part(path), "__init__") and RANK.get(part(other), len(LAYERS)) >= RANK[part(path)]
    ]
    assert not upward


def test_no_file_imports_itself_by_way_of_others() -> None:
    try:
        graphlib.TopologicalSorter(files_imported()).prepare()
    except graphlib.CycleError as error:
        pytest.fail(" -> ".join(str(path.relative_to(ROOT)) for path in error.args[1]))


@pytest.mark.ci
def test_modules_with_kernels_import_no_others() -> None:
    # Kernels are compiled again after a change of any module that theirs imports.
    compiling = PACKAGE / "kernels/compiling.py"
    mark = re.compile(r"^from hdsim\.kernels\.compiling import .*\b(kernel|lean_kernel|part_of_kernel)\b", re.MULTILINE)
    kernels = {path for path in MODULES if mark.search(path.read_text())}
    assert len(kernels) > 50
    numbers = {PACKAGE / "scheduling/rules.py", PACKAGE / "platform/node_state.py"}
    plain = {compiling, PACKAGE / "kernels/references.py", *numbers}
    others = {path: files_imported()[path] - kernels - plain for path in kernels}
    assert not {str(path): imported for path, imported in others.items() if imported}


def test_only_light_packages_are_imported_with_a_module() -> None:
    light = LIGHT | set(sys.stdlib_module_names)
    others = {path: packages_loaded(path) - light - heavy(str(path.relative_to(PACKAGE))) for path in MODULES}
    assert not {str(path): packages for path, packages in others.items() if packages}


def test_hydra_is_used_through_its_public_modules() -> None:
    private = re.compile(r"(hydra|omegaconf)\b.*\._")
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in [*by_name().values(), *(ROOT / "tests").rglob("*.py")]
        for node in ast.walk(ast.parse(path.read_text()))
        for name in names_of(node)
        if private.match(name)
    }
    assert not found


@pytest.mark.ci
def test_optional_packages_are_not_imported_by_the_core() -> None:
    others = {path: packages_loaded(path) & (NEVER - heavy(str(path.relative_to(PACKAGE)))) for path in MODULES}
    assert not {str(path): packages for path, packages in others.items() if packages}


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import hdsim", {"numba", "numpy", "simpy", "hydra", "scipy", "matplotlib", "plotly", "lxml"}),
        ("import hdsim.cli", {"numba", "numpy", "simpy", "hydra", "scipy", "matplotlib", "plotly", "lxml"}),
        (
            "from hdsim import load_platform, load_workload, simulate",
            {"numba", "hydra", "scipy", "simpy", "matplotlib", "plotly", "lxml", "hdsim.scheduling.learned.order"},
        ),
        (
            "import hdsim.backends.batsim.backend, hdsim.runs.replays",
            {"numba", "scipy", "zmq", "pandas", "pyarrow", "pydantic", "hdsim.simulation.engine", "hdsim.gangs"},
        ),
    ],
)
def test_importing_is_cheap(statement: str, absent: set[str]) -> None:
    script = f"import sys; {statement}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert not absent & set(loaded.split())


def test_a_small_run_loads_what_it_needs(tmp_path: Path) -> None:
    run = ["run", "platform=gaia", "workload.jobs=10", "agent=easy", "contention=threshold"]
    script = "import atexit, sys\natexit.register(lambda: print(*sys.modules))\nimport hdsim.cli\nhdsim.cli.main()"
    command = [sys.executable, "-c", script, *run, f"hydra.run.dir={tmp_path / 'run'}"]
    told = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path).stdout
    loaded = set(told.splitlines()[-1].split())
    assert {"hydra", "hdsim.scheduling.machine.loop"} <= loaded
    others = {"simulation.engine", "gangs", "simulation.bsp_jobs", "scheduling.learned.order", "learning", "report"}
    packages = {"numba", "numpy.ma", "scipy", "simpy", "tqdm", "multiprocessing", "pandas", "matplotlib", "lxml"}
    assert not loaded & (packages | {f"hdsim.{name}" for name in others})


def test_every_public_name_loads() -> None:
    import hdsim

    assert all(getattr(hdsim, name) for name in hdsim.__all__)
