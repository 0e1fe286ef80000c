"""Core policies, which select idle cores for a job."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np

from hdsim.cluster.policies import CORE_POLICIES
from hdsim.errors import ConfigError
from hdsim.util.arrays import Floats, Ints
from hdsim.util.plugins import NamedFunction
from hdsim.util.units import in_bytes

if TYPE_CHECKING:
    from hdsim.cluster.requests import Requests
    from hdsim.platform.model import Platform

#: Core policies with constant scores: name -> (P,) score of each processor, highest first.
STATIC_KEYS = {
    "high_gflops": lambda platform: platform.gflops,
    "low_power": lambda platform: -platform.power,
}

#: Core policies of one's own: (P,) scores of the processors of a platform, highest first.
OWN_CORE_POLICIES = NamedFunction("core_policy", "agent.core_policy", CORE_POLICIES, (1,), "(platform)")


def policies_in_use(core_policy: str, fixed_policy: bool, core_policies: Collection[str]) -> tuple[str, list[str]]:
    """Returns the default core policy and all that an agent uses, none for any; see ``Cluster``.

    Raises:
        ConfigError: There is no such policy.
    """
    if core_policy not in CORE_POLICIES:
        OWN_CORE_POLICIES.find(core_policy)
    return core_policy, list(dict.fromkeys([core_policy, *core_policies])) if fixed_policy or core_policies else []


def own_scores(policy: str, platform: Platform) -> Floats:
    """Returns (P,) scores of processors under a core policy of one's own, highest first.

    Raises:
        ConfigError: There is no such policy, or it does not give a number for each processor.
    """
    scores = OWN_CORE_POLICIES.find(policy)[0](platform)
    try:
        numbers = np.array(scores, np.float64)
    except (TypeError, ValueError):
        numbers = np.full(1, np.nan)
    if numbers.shape != (platform.n_processors,) or np.isnan(numbers).any():
        message = f"expected {platform.n_processors} numbers, a score for each processor, got {scores!r}"
        raise ConfigError(message, where=f"{OWN_CORE_POLICIES.key} '{policy}'")
    return numbers


def static_scores(platform: Platform, requests: Requests, policies: Collection[str] = ()) -> dict[str, Floats]:
    """Returns (P,) scores of processors under the core policies whose scores no job changes, highest first.

    Args:
        platform: The platform.
        requests: Requests of the jobs.
        policies: Core policies in use, of which those of one's own are added.
    """
    keys: dict[str, Floats] = {name: key(platform).astype(np.float64) for name, key in STATIC_KEYS.items()}
    if not (requests.memory_matters or any(requests.memory)):
        keys["high_mem"] = in_bytes(platform.memory)[platform.processor_node]
    if not np.isfinite(platform.mem_bw).any() or not (requests.open_ended or any(requests.bandwidth)):
        keys["high_mem_bw"] = platform.mem_bw
    return keys | {policy: own_scores(policy, platform) for policy in policies if policy not in CORE_POLICIES}


def rank_cores(key: Floats, platform: Platform) -> Ints:
    """Returns all cores by descending (P,) score of their processors, then by id."""
    return np.argsort(-key[platform.core_processor], kind="stable").astype(np.int64)
