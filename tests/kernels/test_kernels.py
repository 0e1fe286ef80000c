"""Compiled kernels are kept, are never stale, and run where they can be neither kept nor compiled."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tiers import ci

ROOT = Path(__file__).resolve().parents[2]

MARKED = "from hdsim.kernels.compiling import kernel\n\n\n@kernel\n"
HELPER = f"{MARKED}def step(number: int) -> int:\n    return number + 1\n"
CALLER = (
    "from hdsim.kernels.helper import step\n"
    f"{MARKED}def walk(number: int) -> int:\n    return step(number) + 100\n\n\n"
    "print(walk(7), sum(walk.compiled.stats.cache_hits.values()))\n"
)


def start(code: str, *arguments: str, root: Path = ROOT, **variables: object) -> subprocess.Popen[str]:
    ours = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    environment = ours | {name: str(value) for name, value in variables.items()}
    command = [sys.executable, "-c", code, *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=root, env=environment, stdout=pipe, stderr=pipe, text=True)


def finish(process: subprocess.Popen[str]) -> str:
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    return output.strip()


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A folder with another hdsim: the real compilation, and two kernels, one of which calls the other."""
    kernels = tmp_path / "hdsim/kernels"
    kernels.mkdir(parents=True)
    (tmp_path / "hdsim/__init__.py").touch()
    for name in ("__init__.py", "cache.py", "compiling.py", "machine_code.py", "numba_internals.py"):
        shutil.copy(ROOT / "hdsim/kernels" / name, kernels)
    (kernels / "helper.py").write_text(HELPER)
    (kernels / "caller.py").write_text(CALLER)
    (tmp_path / "hdsim/network.py").write_text(HELPER)
    return tmp_path


def walk(package: Path, **variables: object) -> str:
    return finish(start("import hdsim.kernels.caller", root=package, **variables))


@pytest.mark.ci
def test_machine_code_is_kept_and_is_compiled_again_after_a_change_of_a_kernel_that_it_calls(package: Path) -> None:
    cache = package / "cache/kernels"
    (cache / "of_long_ago").mkdir(parents=True)
    os.utime(cache / "of_long_ago", (0, 0))
    # Two processes that compile at once do not disturb each other.
    both = [start("import hdsim.kernels.caller", root=package, HDSIM_CACHE=package / "cache") for _ in range(2)]
    assert {finish(process).split()[0] for process in both} == {"108"}
    assert walk(package, HDSIM_CACHE=package / "cache") == "108 1"
    (package / "hdsim/kernels/helper.py").write_text(HELPER.replace("+ 1", "+ 2"))
    assert walk(package, HDSIM_CACHE=package / "cache") == "109 0"
    assert len([each for each in cache.iterdir() if each.is_dir()]) == 4  # of two modules, before and after the change
    assert not (cache / "of_long_ago").exists()


@pytest.mark.ci
def test_processes_that_compile_a_kernel_for_other_types_at_once_keep_all_of_them(package: Path) -> None:
    (package / "hdsim/kernels/caller.py").write_text(
        f"{MARKED}def items(array):\n    return array.ndim * array.itemsize\n"
    )
    code = (
        "import sys, time, numpy as np\n"
        "from numba.core.caching import IndexDataCacheFile as Index\n"
        "from hdsim.kernels.caller import items\n"
        "save = Index._save_index\n"  # slowly: another process would read the index meanwhile
        "Index._save_index = lambda *given: (time.sleep(0.03), save(*given))\n"
        "kinds = [(np.dtype(kind), ndim) for kind in ('f8', 'f4', 'i2', 'i1') for ndim in (1, 2, 3)]\n"
        "wrong = [k for k in np.roll(np.arange(12), int(sys.argv[1])) for kind, ndim in [kinds[k]]\n"
        "         if items(np.zeros((1,) * ndim, kind)) != ndim * kind.itemsize]\n"
        "print(wrong, sum(items.compiled.stats.cache_hits.values()))"
    )
    turns = [start(code, str(3 * i), root=package, HDSIM_CACHE=package / "cache") for i in range(4)]
    assert {finish(process).split(" ")[0] for process in turns} == {"[]"}
    assert finish(start(code, "0", root=package, HDSIM_CACHE=package / "cache")) == "[] 12"


@pytest.mark.ci
def test_kernels_run_though_their_folder_was_removed_meanwhile(package: Path) -> None:
    cache = package / "cache"
    (package / "hdsim/kernels/caller.py").write_text(CALLER.replace("print", "first = "))
    code = (
        "import shutil, sys\n"
        "from hdsim.kernels.caller import step\n"
        "shutil.rmtree(sys.argv[1])\n"
        "print(step(1.5), step(7))"
    )
    assert finish(start(code, str(cache), root=package, HDSIM_CACHE=cache)) == "2.5 8"


@pytest.mark.ci
def test_a_change_of_a_module_recompiles_only_the_modules_that_import_it(package: Path) -> None:
    cache = package / "cache"
    code = "from hdsim.network import step; print(step(7), sum(step.compiled.stats.cache_hits.values()))"

    def both() -> list[str]:
        return [walk(package, HDSIM_CACHE=cache), finish(start(code, root=package, HDSIM_CACHE=cache))]

    assert [both(), both()] == [["108 0", "8 0"], ["108 1", "8 1"]]
    (package / "hdsim/network.py").write_text(HELPER.replace("+ 1", "+ 2"))
    assert both() == ["108 1", "9 0"]


@pytest.mark.ci
def test_digests_of_schedulers_do_not_depend_on_networks() -> None:
    code = (
        "import re, sys\n"
        "from hdsim.kernels import cache\n"
        "read = cache._imports\n"
        "cache._imports = lambda module: (print(module), read(module))[1]\n"
        "cache.digest(sys.argv[1])"
    )

    def sources(module: str) -> set[str]:
        names = finish(start(code, module)).split()
        return {name for name in names if ROOT.joinpath(*name.split(".")).with_suffix(".py").exists()}

    machine = sources("hdsim.scheduling.machine.loop")
    assert {"hdsim.kernels.heap", "hdsim.scheduling.kernels.profiles", "hdsim.scheduling.rules"} <= machine
    assert not any(name.startswith("hdsim.network") for name in machine | sources("hdsim.envs.kernels.episodes"))
    networks = {f"hdsim.network.kernels.{name}" for name in ("components", "maxmin", "sharing")}
    assert {name for name in sources("hdsim.network.kernels.components") if "hdsim.kernels" not in name} == networks


@pytest.mark.ci
def test_kept_machine_code_is_loaded_without_the_compiler_which_may_follow(package: Path) -> None:
    follow = (
        "import sys, numba, hdsim.kernels.caller as caller\n"
        "print('numba.np.arraymath' in sys.modules, end=' ')\n"
        "print(numba.njit(lambda number: 2 * caller.walk(number))(7))"
    )
    walk(package, HDSIM_CACHE=package / "cache")
    assert finish(start(follow, root=package, HDSIM_CACHE=package / "cache")).split() == ["108", "1", "False", "216"]


@pytest.mark.parametrize(
    "variables",
    [
        pytest.param({"HDSIM_CACHE": "/dev/null/cache"}, id="a cache that cannot be made"),
        pytest.param({"HDSIM_CACHE": "", "XDG_CACHE_HOME": "", "HOME": "/dev/null/home"}, id="no home"),
        pytest.param({"HDSIM_CACHE": "/sys/kernel"}, id="a read-only cache", marks=pytest.mark.nightly),
    ],
)
@pytest.mark.ci
def test_kernels_run_without_a_cache(package: Path, variables: dict[str, str]) -> None:
    assert walk(package, **variables) == "108 0"


GRADIENTS = """
import hashlib
import torch
from hdsim.learning.training.row_networks import RowKernel
torch.manual_seed(1)
network = RowKernel(19, (32, 16), 0, gain=1.0)
network(torch.rand(100, 12, 19)).square().sum().backward()
print(hashlib.sha256(b"".join(weights.grad.numpy().tobytes() for weights in network.parameters())).hexdigest())
"""


@pytest.mark.requires("torch")
@pytest.mark.nightly
def test_kernels_that_call_others_give_the_same_bytes_compiled_and_loaded(tmp_path: Path) -> None:
    assert len({finish(start(GRADIENTS, HDSIM_CACHE=tmp_path, OMP_NUM_THREADS=1)) for _ in range(2)}) == 1


@pytest.mark.ci
def test_kernels_of_users_are_not_kept(package: Path) -> None:
    cache = package / "cache"
    for number in (1, 2):
        (package / "own.py").write_text(f"{MARKED}def own() -> int:\n    return {number}\n")
        assert finish(start("import own; print(own.own())", root=package, HDSIM_CACHE=cache)) == str(number)
    assert not list(cache.rglob("*.nbi"))


@pytest.mark.ci
@pytest.mark.parametrize("name", ["caching.FunctionCache", "codegen.JITCodeLibrary"])
def test_a_numba_without_the_adapted_internals_compiles_in_its_own_way(package: Path, name: str) -> None:
    remove = (
        "import numba.core.ccallback\n"  # which imports both
        "from numba.core import caching, codegen\n"
        f"del {name}\n"
        "import hdsim.kernels.caller"
    )
    for summand, expected in (("+ 1", "108 0"), ("+ 1", "108 1"), ("+ 2", "109 0")):
        helper = HELPER.replace("kernel\n", "part_of_kernel\n").replace("+ 1", summand)
        (package / "hdsim/kernels/helper.py").write_text(helper)
        process = start(remove, root=package, HDSIM_CACHE=package / "cache")
        output, errors = process.communicate()
        assert output.strip() == expected, errors
        assert name.partition(".")[2] in errors and "longer to compile" in errors


REFERENCES = """
import io
from typing import NamedTuple
import numpy as np
from hdsim.kernels.compiling import lean_kernel
from hdsim.kernels.references import by_reference


class Inner(NamedTuple):
    first: np.ndarray
    scale: float
    whole: bool


class Outer(NamedTuple):
    inner: Inner
    limits: tuple
    missing: None


@lean_kernel
def total(parts):
    parts = by_reference(by_reference(parts))
    nothing = by_reference(parts.missing)
    scale = parts.inner.scale if parts.inner.whole and nothing is None else 0.0
    return scale * parts.inner.first[1] + parts.limits[0]


print(total(Outer(Inner(np.arange(3.0), 4.0, True), (100, 7), None)))
types = io.StringIO()
if hasattr(total.compiled, "inspect_types"):
    total.compiled.inspect_types(types)
print("Reference(" in types.getvalue())
"""


OTHER_INTERNALS = """
from numba.core import imputils
from hdsim.kernels import compiling, references
kept = imputils.impl_ret_borrowed
del imputils.impl_ret_borrowed
compiling._preparations.pop()()
imputils.impl_ret_borrowed = kept
"""


@pytest.mark.ci
@pytest.mark.parametrize("before", ["", OTHER_INTERNALS], ids=["by reference", "a numba with other internals"])
def test_a_named_tuple_has_the_same_values_by_reference_and_by_value(tmp_path: Path, before: str) -> None:
    code = f"{before}\n{REFERENCES}"
    (tmp_path / "own.py").write_text(code)
    given = finish(start("import own", HDSIM_CACHE=tmp_path / "cache", PYTHONPATH=f"{tmp_path}:{ROOT}"))
    assert given.split() == ["104.0", str(not before)]
    ordinary = start("import own", NUMBA_DISABLE_JIT=1, PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert finish(ordinary).split() == ["104.0", "False"]


@pytest.mark.ci
def test_damaged_machine_code_is_compiled_again(package: Path) -> None:
    assert walk(package, HDSIM_CACHE=package / "cache") == "108 0"
    for file in (package / "cache").rglob("*.nb[ic]"):
        file.write_bytes(file.read_bytes()[:-5])
    assert [walk(package, HDSIM_CACHE=package / "cache") for _ in range(2)] == ["108 0", "108 1"]


@pytest.mark.ci
def test_a_compilation_is_announced_in_the_log_unless_there_is_a_terminal(package: Path) -> None:
    code = "import logging; logging.basicConfig(level='INFO', format='%(message)s'); import hdsim.kernels.caller"
    for number in (1, 0):
        process = start(code, root=package, HDSIM_CACHE=package / "cache")
        errors = process.communicate()[1]
        assert errors.count("compiling the kernels that this run needs (once on this machine") == number


RUN = """
import atexit, sys
from hdsim.kernels import compiling
kind = sys.argv.pop(1)
if kind == "without numba":
    sys.modules["numba"] = None
elif kind == "compiled":
    compiling._machine_code()
atexit.register(lambda: print(bool(sys.modules.get("numba"))))
from hdsim.cli import main
main(["run", "platform=gaia", *sys.argv[1:]])
"""


@pytest.mark.ci
def test_runs_are_equal_without_numba(tmp_path: Path) -> None:
    runs = {
        name: start(
            RUN, name, "workload.jobs=20", f"hydra.run.dir={tmp_path / name}", "agent=easy", "contention=threshold"
        )
        for name in ("compiled", "interpreted", "without numba")
    }
    loaded = {name: finish(process).split()[-1] for name, process in runs.items()}
    assert loaded == {"compiled": "True", "interpreted": "False", "without numba": "False"}
    assert len({(tmp_path / name / "jobs.csv").read_bytes() for name in runs}) == 1


@pytest.mark.parametrize(
    "settings",
    [
        "workload.jobs=33",
        *ci("workload.jobs=20 platform=pik", "workload.jobs=2 network=fluid", "workload.jobs=2 failures=exponential"),
    ],
)
def test_runs_that_are_not_small_are_compiled(settings: str, tmp_path: Path) -> None:
    process = start(RUN, "as is", *settings.split(), f"hydra.run.dir={tmp_path}")
    assert finish(process).split()[-1] == "True"


INTERPRETED = """
import json
import sys
import hdsim
from hdsim.kernels.compiling import interpreted

POWER = json.loads(sys.argv[1])
PLATFORMS = ("gaia", "homogeneous_256") if POWER == "none" else ("homogeneous_256",)

def replays(small):
    with interpreted(small):
        for platform in PLATFORMS:
            jobs = hdsim.load_workload("lublin_4000", hdsim.load_platform(platform), jobs=32, seed=3)
            for contention in ("none", "threshold", "fair_share") if platform == "gaia" else ("none",):
                for agent in sys.argv[2:]:
                    for kill in (False, True):
                        models = {"contention": contention, "power": POWER}
                        yield hdsim.simulate(platform, jobs, agent, **models, kill_at_walltime=kill)


first = list(replays(True))
assert "numba" not in sys.modules
for one, other in zip(first, replays(False), strict=True):
    assert one.engine == other.engine and one.engine["mode"] == "compiled"
    for column in ("starting_time", "finish_time", "state"):
        assert getattr(one, column).tobytes() == getattr(other, column).tobytes(), (one.engine, column)
    assert one.allocations == other.allocations
print(len(first))
"""


@pytest.mark.parametrize("agents", ["easy", *ci("conservative easy-learned greedy saf fcfs-random")])
def test_interpreted_replays_are_those_of_machine_code(agents: str) -> None:
    assert finish(start(INTERPRETED, '"none"', *agents.split())) == str(8 * len(agents.split()))


@pytest.mark.parametrize("settings", [*ci({"cap": 0.7}, {"cap": 0.4})])
def test_interpreted_replays_under_power_management_are_those_of_machine_code(settings: dict[str, float]) -> None:
    power = {"_target_": "hdsim.power.PowerManagement", **settings}
    assert finish(start(INTERPRETED, json.dumps(power), "fcfs", "easy", "greedy")) == "6"


def test_help_does_not_load_numba() -> None:
    code = """
import atexit, sys
atexit.register(lambda: print("numba" in sys.modules))
from hdsim.cli import main
main(["--help"])
"""
    assert finish(start(code)).endswith("False")
