"""hdsim simulates heterogeneous data centres and HPC clusters, and runs scheduling agents on them.

The names below are loaded on first use, so that importing the package costs nothing.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from hdsim.util.version import __version__

if TYPE_CHECKING:
    from hdsim.backends.base import Backend, Capabilities
    from hdsim.cluster.state import FinalState
    from hdsim.envs.vector import make_vec
    from hdsim.errors import ConfigError, DecisionError
    from hdsim.platform.load import load_platform
    from hdsim.platform.model import Platform
    from hdsim.results.own_metrics import metric
    from hdsim.results.result import Result
    from hdsim.scheduling.agent import Agent
    from hdsim.scheduling.backfill import Backfill
    from hdsim.simulation.simulation import Simulation, simulate
    from hdsim.workload.generators.families import draw_workload
    from hdsim.workload.load import load_workload
    from hdsim.workload.model import Workload

_HOME = {
    "Agent": "hdsim.scheduling.agent",
    "Backfill": "hdsim.scheduling.backfill",
    "Backend": "hdsim.backends.base",
    "Capabilities": "hdsim.backends.base",
    "ConfigError": "hdsim.errors",
    "DecisionError": "hdsim.errors",
    "FinalState": "hdsim.cluster.state",
    "Platform": "hdsim.platform.model",
    "draw_workload": "hdsim.workload.generators.families",
    "load_platform": "hdsim.platform.load",
    "Simulation": "hdsim.simulation.simulation",
    "simulate": "hdsim.simulation.simulation",
    "Result": "hdsim.results.result",
    "Workload": "hdsim.workload.model",
    "load_workload": "hdsim.workload.load",
    "make_vec": "hdsim.envs.vector",
    "metric": "hdsim.results.own_metrics",
}

__all__ = [
    "Agent",
    "Backend",
    "Backfill",
    "Capabilities",
    "ConfigError",
    "DecisionError",
    "FinalState",
    "Platform",
    "Result",
    "Simulation",
    "Workload",
    "__version__",
    "draw_workload",
    "load_platform",
    "load_workload",
    "make_vec",
    "metric",
    "simulate",
]


def _register_environment() -> None:
    """Registers ``hdsim/Scheduling-v0`` in programs that import Gymnasium."""
    if "gymnasium" in sys.modules:
        import_module("hdsim.envs")


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'hdsim' has no attribute '{name}'")
    _register_environment()
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__


_register_environment()
