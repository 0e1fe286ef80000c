"""Core policies, which select idle cores for a job."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np

from hdsim.cluster.policies import CORE_POLICIES
from hdsim.errors import ConfigError, not_one_of
from hdsim.util.arrays import Floats, Ints
from hdsim.util.units import in_bytes

if TYPE_CHECKING:
    from hdsim.cluster.requests import Requests
    from hdsim.platform.model import Platform

#: Core policies with constant scores: name -> (P,) score of each processor, highest first.
STATIC_KEYS = {
    "high_gflops": lambda platform: platform.gflops,
    "low_power": lambda platform: -platform.power,
}


def policies_in_use(core_policy: str, fixed_policy: bool, core_policies: Collection[str]) -> tuple[str, list[str]]:
    """Returns the default core policy and all that an agent uses, none for any; see ``Cluster``.

    Raises:
        ConfigError: There is no such policy.
    """
    if core_policy not in CORE_POLICIES:
        raise ConfigError(not_one_of(core_policy, CORE_POLICIES), where="agent.core_policy")
    return core_policy, list(dict.fromkeys([core_policy, *core_policies])) if fixed_policy or core_policies else []


def static_scores(platform: Platform, requests: Requests) -> dict[str, Floats]:
    """Returns (P,) scores of processors under the core policies whose scores no job changes, highest first."""
    keys: dict[str, Floats] = {name: key(platform).astype(np.float64) for name, key in STATIC_KEYS.items()}
    if not (requests.memory_matters or any(requests.memory)):
        keys["high_mem"] = in_bytes(platform.memory)[platform.processor_node]
    if not np.isfinite(platform.mem_bw).any() or not (requests.open_ended or any(requests.bandwidth)):
        keys["high_mem_bw"] = platform.mem_bw
    return keys


def rank_cores(key: Floats, platform: Platform) -> Ints:
    """Returns all cores by descending (P,) score of their processors, then by id."""
    return np.argsort(-key[platform.core_processor], kind="stable").astype(np.int64)
