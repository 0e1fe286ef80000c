"""hdsim simulates heterogeneous data centres and HPC clusters, and runs scheduling agents on them.

The names below are loaded on first use, so that importing the package costs nothing.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hdsim.agent import Agent
    from hdsim.platform import Platform, load_platform
    from hdsim.replay import simulate
    from hdsim.results import Result
    from hdsim.workload import Workload, load_workload

__version__ = "0.1.0"

_HOME = {
    "Agent": "hdsim.agent",
    "Platform": "hdsim.platform",
    "load_platform": "hdsim.platform",
    "simulate": "hdsim.replay",
    "Result": "hdsim.results",
    "Workload": "hdsim.workload",
    "load_workload": "hdsim.workload",
}

__all__ = ["Agent", "Platform", "Result", "Workload", "load_platform", "load_workload", "simulate"]


def _register_environment() -> None:
    """Makes ``hdsim/Scheduling-v0`` known to Gymnasium, as soon as somebody uses both."""
    if "gymnasium" in sys.modules:
        import_module("hdsim.envs")


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'hdsim' has no attribute '{name}'")
    _register_environment()
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])


_register_environment()
