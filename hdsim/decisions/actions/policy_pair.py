"""Action that selects a policy pair: the job order and the core policy of a scheduling pass."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from hdsim.decisions.base import Action, Mask, more_events, one_of
from hdsim.errors import ConfigError
from hdsim.scheduling.agent import parse_name
from hdsim.scheduling.orders import job_order
from hdsim.scheduling.queue import DynamicQueue, FixedQueue
from hdsim.scheduling.rules import DECIDING

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster
    from hdsim.decisions.wait_queue import WaitQueue
    from hdsim.platform.model import Platform

JOB_RULES = ("random", "first", "shortest", "smallest", "low_mem", "low_mem_bw")
CORE_RULES = ("random", "high_gflops", "high_cores", "high_mem", "high_mem_bw", "low_power")
#: HDeepRM's 36 pairs, in order of the job rule.
PAIRS = tuple(f"{job}-{core}" for job in JOB_RULES for core in CORE_RULES)
VOID = "void"


class PolicyPair(Action):
    """One scheduling pass with a policy pair; the next decision is due at a later instant.

    Attributes:
        names: Name of each action.
        pairs: Job order and core policy of each pair.

    Args:
        pairs: Names such as ``shortest-high_gflops``, of any job order and core policy.
        void: The last action starts no job.
        decide: ``useful``: a decision is due when a job waits and a core is idle; ``queued``: when a job waits;
            ``always``: at every instant.
    """

    def __init__(self, pairs: Iterable[str] = PAIRS, void: bool = True, decide: str = "useful") -> None:
        self.names = [*pairs, VOID] if void else list(pairs)
        self.pairs = [_parsed(name) for name in self.names[: len(self.names) - void]]
        if not self.pairs:
            raise ConfigError("expected at least one policy pair, got none", where="env.pairs")
        self.has_void = void
        self.decide = one_of("decide", decide, DECIDING)
        self.core_policy = self.pairs[0][1]
        self.core_policies = tuple(dict.fromkeys(core for _, core in self.pairs))
        self.fixed_policy = len(self.core_policies) == 1

    def size(self, platform: Platform) -> int:
        return len(self.names)

    def begin(self, cluster: Cluster, wait_queue: WaitQueue) -> None:
        self._cluster, self._wait_queue = cluster, wait_queue
        self._queues: dict[str, FixedQueue | DynamicQueue] = {}
        for name, _ in self.pairs:
            order = job_order(name)
            self._queues[name] = DynamicQueue(cluster, order) if order.dynamic else wait_queue.ordered(name)
        self._dynamic = [queue for queue in self._queues.values() if isinstance(queue, DynamicQueue)]
        self._after_start = {name for name in self._queues if job_order(name).after_start}
        self._mask = np.ones(len(self.names), bool)
        self._passed = False

    def on_instant(self) -> None:
        self._passed = False
        for queue in self._dynamic:
            queue.add(self._cluster.submitted)

    def pending(self) -> bool:
        if self._passed:
            return False
        if self.decide == "always":
            return True
        return bool(self._cluster.queue) and (self.decide == "queued" or self._cluster.n_idle > 0)

    def mask(self) -> Mask:
        """All pairs are legal; void is legal while further events will occur."""
        if self.has_void:
            self._mask[-1] = not self._cluster.queue or more_events(self._cluster)
        return self._mask

    def act(self, action: int) -> None:
        self._passed = True
        cluster = self._cluster
        if action == len(self.pairs) or not cluster.queue or not cluster.n_idle:
            return
        job_rule, core_rule = self.pairs[action]
        queue, wait_queue = self._queues[job_rule], self._wait_queue
        policy = None if self.fixed_policy else core_rule
        queue.refresh(cluster)
        while (job := queue.head()) is not None:
            placement = cluster.pick(job, policy)
            if placement is None:
                return
            cluster.start(job, placement)
            wait_queue.remove(job)
            if isinstance(queue, DynamicQueue):
                queue.remove(job)
                if job_rule in self._after_start:
                    queue.refresh(cluster)


def _parsed(name: str) -> tuple[str, str]:
    try:
        config = parse_name(str(name))
    except ConfigError as error:
        raise ConfigError(error.message, where="env.pairs") from None
    if "backfill" in config or config["job_policy"] == VOID:
        raise ConfigError(f"expected a policy pair without backfilling, got '{name}'", where="env.pairs")
    return config["job_policy"], config.get("core_policy", "high_gflops")
