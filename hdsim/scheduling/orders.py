"""Queue orders. Each policy is a function that returns scores; the job of the lowest score is first.

A function with `@order` computes one score per job from the columns of the workload, once. A function with
`@dynamic_order` scores the queued jobs at every pass, and after every start if `after_start` is set. Ties are in order
of submission.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hdsim.errors import ConfigError, not_one_of
from hdsim.scheduling.multifactor import SETTINGS, Multifactor
from hdsim.util.copies import itself
from hdsim.util.plugins import NamedFunction
from hdsim.util.resources import folder

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster
    from hdsim.workload.model import Workload

Scores = NDArray[np.float64]
Jobs = NDArray[np.int64]


@dataclass(frozen=True)
class JobOrder:
    """A named queue order.

    Attributes:
        name: Name in the configuration.
        score: For a static order, a function from the workload to (J,) scores; for a dynamic order, a function from
            the workload, the (Q,) queued jobs and the cluster to (Q,) scores.
        dynamic: The scores depend on time or state.
        after_start: The scores change with every start of a job.
        stateful: ``score.follow(cluster)`` returns the same function with a state, which its ``note(cluster)`` at every
            instant keeps up to date.
        network: Card of the network that scores jobs, None for a formula. Its score takes three more arguments: the
            card, `backfill` and `commit_head`, see `under`.
    """

    __deepcopy__ = itself

    name: str
    score: Callable[..., Scores]
    dynamic: bool = False
    after_start: bool = False
    stateful: bool = False
    network: str | None = None

    def under(self, backfill: str, commit_head: bool) -> JobOrder:
        """Returns the order of an agent with a backfilling algorithm, whose heads may stay heads until they start."""
        if self.network is None:
            return self
        rule = {"network": self.network, "backfill": backfill, "commit_head": commit_head}
        # Training found no better use of scores after starts for heads that stay heads.
        return replace(self, score=partial(self.score, **rule), after_start=backfill != "none" or not commit_head)


ORDERS: dict[str, JobOrder] = {}


def order(*names: str) -> Callable[[Callable[[Workload], Scores]], Callable[[Workload], Scores]]:
    """Registers a static order."""

    def register(score: Callable[[Workload], Scores]) -> Callable[[Workload], Scores]:
        ORDERS.update({name: JobOrder(name, score) for name in names})
        return score

    return register


DynamicScore = Callable[..., Scores]


def dynamic_order(
    *names: str, after_start: bool = False, network: str | None = None
) -> Callable[[DynamicScore], DynamicScore]:
    """Registers an order that depends on time or state."""

    def register(score: DynamicScore) -> DynamicScore:
        ORDERS.update({name: JobOrder(name, score, True, after_start, network=network) for name in names})
        return score

    return register


#: Orders of one's own: scores from the workload, or from the workload, the queued jobs and the cluster.
OWN_ORDERS = NamedFunction("order", "agent.job_policy", ORDERS, (1, 3), "(jobs) or (jobs, queued, cluster)")


def job_order(name: str, multifactor: Mapping[str, Any] | None = None) -> JobOrder:
    """Returns the order of a name, or that of a network by its card.

    Args:
        name: The name, that of a function of one's own (see :data:`OWN_ORDERS`), or a card: a file, or the one that
            comes with hdsim, ``learned.json``.
        multifactor: Settings of the order ``multifactor``, see
            :class:`hdsim.scheduling.multifactor.Multifactor`.

    Raises:
        ConfigError: The order does not exist, or does not take the settings.
    """
    if str(name).endswith(".json"):
        shipped = folder("agents") / name
        return replace(ORDERS["learned"], network=str(shipped if shipped.is_file() else name))
    if str(name) not in ORDERS:
        score, arguments = OWN_ORDERS.find(name)
        return JobOrder(str(name), _checked(score, str(name)), dynamic=arguments == 3, after_start=arguments == 3)
    for key in multifactor or ():
        if key not in SETTINGS:
            raise ConfigError(not_one_of(key, SETTINGS), where="agent.multifactor")
    found = ORDERS[name]
    return replace(found, score=Multifactor(**multifactor)) if multifactor and name == "multifactor" else found


def _checked(score: Callable[..., Any], name: str) -> Callable[..., Scores]:
    """Returns a function of one's own whose scores are checked: a number for each job, none of them NaN."""

    def checked(jobs: Workload, *state: Any) -> Scores:
        scores, count = score(jobs, *state), len(state[0] if state else jobs)
        try:
            numbers = np.array(scores, np.float64)
        except (TypeError, ValueError):
            numbers = np.full(1, np.nan)
        if numbers.shape != (count,) or np.isnan(numbers).any():
            message = f"expected {count} numbers, a score for each job, got {scores!r}"
            raise ConfigError(message, where=f"{OWN_ORDERS.key} '{name}'")
        return numbers

    return checked


ORDERS["multifactor"] = JobOrder("multifactor", Multifactor(), dynamic=True, stateful=True)


@order("first", "fcfs")
def first(jobs: Workload) -> Scores:
    """First come, first served."""
    return jobs.submission_time


@order("last", "lcfs")
def last(jobs: Workload) -> Scores:
    """Last come, first served."""
    return -jobs.submission_time


@order("shortest", "sjf", "spt")
def shortest(jobs: Workload) -> Scores:
    """Shortest requested time first."""
    return jobs.requested_time


@order("longest", "ljf", "lpt")
def longest(jobs: Workload) -> Scores:
    """Longest requested time first."""
    return -jobs.requested_time


@order("smallest", "sqf")
def smallest(jobs: Workload) -> Scores:
    """Fewest requested cores first."""
    return jobs.requested_cores.astype(float)


@order("largest", "lqf")
def largest(jobs: Workload) -> Scores:
    """Most requested cores first."""
    return -jobs.requested_cores.astype(float)


@order("saf")
def smallest_area(jobs: Workload) -> Scores:
    """Smallest area (requested cores x requested time) first."""
    return jobs.requested_cores * jobs.requested_time


@order("laf")
def largest_area(jobs: Workload) -> Scores:
    """Largest area first."""
    return -jobs.requested_cores * jobs.requested_time


@order("low_mem")
def low_memory(jobs: Workload) -> Scores:
    """Least requested memory per core first (HDeepRM)."""
    return jobs.memory


@order("low_mem_bw")
def low_memory_bandwidth(jobs: Workload) -> Scores:
    """Least requested memory bandwidth per core first (HDeepRM)."""
    return jobs.memory_bandwidth


@order("priority")
def priority(jobs: Workload) -> Scores:
    """Highest priority first, as in Kubernetes."""
    return -jobs.priority.astype(float)


def _log_submission(jobs: Workload) -> Scores:
    # F1-F4 depend on the seconds since the begin of the whole trace; their authors replace 0 by 0.1.
    since = jobs.original_submission_time
    return np.log10(np.where(since > 0, since, 0.1))


@order("f1")
def f1(jobs: Workload) -> Scores:
    """F1 of Carastan-Santos and de Camargo (SC'17): log10(r) n + 870 log10(s)."""
    requested = np.maximum(jobs.requested_time, 1e-9)
    return np.log10(requested) * jobs.requested_cores + 870 * _log_submission(jobs)


@order("f2")
def f2(jobs: Workload) -> Scores:
    """F2 (same source): sqrt(r) n + 25600 log10(s)."""
    return np.sqrt(jobs.requested_time) * jobs.requested_cores + 25_600 * _log_submission(jobs)


@order("f3")
def f3(jobs: Workload) -> Scores:
    """F3 (same source): r n + 6860000 log10(s)."""
    return jobs.requested_time * jobs.requested_cores + 6_860_000 * _log_submission(jobs)


@order("f4")
def f4(jobs: Workload) -> Scores:
    """F4 (same source): r sqrt(n) + 530000 log10(s)."""
    return jobs.requested_time * np.sqrt(jobs.requested_cores) + 530_000 * _log_submission(jobs)


def _relative_wait(jobs: Workload, queued: Jobs, cluster: Cluster) -> Scores:
    waited = cluster.now - jobs.submission_time[queued]
    return waited / np.maximum(jobs.requested_time[queued], 1e-9)


@dynamic_order("wfp3")
def wfp3(jobs: Workload, queued: Jobs, cluster: Cluster) -> Scores:
    """WFP3 of Tang et al. (Cluster'09): -(w / r)^3 n."""
    return -(_relative_wait(jobs, queued, cluster) ** 3) * jobs.requested_cores[queued]


@dynamic_order("unicef", "unicep")
def unicef(jobs: Workload, queued: Jobs, cluster: Cluster) -> Scores:
    """UNICEF (same source): -w / (log2(n) r), with n of at least 2 so that serial jobs are not always first."""
    return -_relative_wait(jobs, queued, cluster) / np.log2(np.maximum(jobs.requested_cores[queued], 2))


@dynamic_order("unicef_serial_first")
def unicef_serial_first(jobs: Workload, queued: Jobs, cluster: Cluster) -> Scores:
    """UNICEF with log2(n) + 1e-15 as in published code: serial jobs are always first."""
    return -_relative_wait(jobs, queued, cluster) / (np.log2(jobs.requested_cores[queued]) + 1e-15)


@dynamic_order("tetris", after_start=True)
def tetris(jobs: Workload, queued: Jobs, cluster: Cluster) -> Scores:
    """Tetris of Grandl et al. (SIGCOMM'14): alignment of demand with free resources minus remaining work.

    The alignment is the sum of free_d demand_d over resources d, both as shares of the capacity of the platform. The
    remaining work is requested time times summed demand, weighted so that both terms have equal means over the queue.
    Jobs with more cores or GPUs than are idle are last.
    """
    demand, free = _demand_and_free(jobs, queued, cluster)
    alignment = demand @ free
    work = jobs.requested_time[queued] * demand.sum(axis=1)
    mean_work = float(work.mean())
    weight = float(alignment.mean()) / mean_work if mean_work > 0 else 0.0
    fits = jobs.requested_cores[queued] <= cluster.n_idle
    if jobs.asks_for_gpus:
        fits &= jobs.requested_gpus[queued] <= cluster.n_idle_gpus
    return np.where(fits, weight * work - alignment, np.inf)


@dynamic_order("drf", after_start=True)
def drf(jobs: Workload, queued: Jobs, cluster: Cluster) -> Scores:
    """Dominant resource fairness of Ghodsi et al. (NSDI'11): the user with the smallest dominant share is first."""
    running = np.fromiter(cluster.running, np.int64, len(cluster.running))
    users, owner = np.unique(np.concatenate([jobs.user[running], jobs.user[queued]]), return_inverse=True)
    capacity = _capacity(cluster)
    used = np.zeros((len(users), len(capacity)))
    np.add.at(used, owner[: len(running)], _demand(jobs, running) / capacity)
    return used.max(axis=1)[owner[len(running) :]]


@dynamic_order("random")
def random(jobs: Workload, queued: Jobs, cluster: Cluster) -> Scores:
    """Random order (HDeepRM), drawn at every pass."""
    return cluster.rng.random(len(queued))


#: The network that comes with hdsim.
SHIPPED = str(folder("agents") / "learned.json")


@dynamic_order("learned", after_start=True, network=SHIPPED)
def learned(
    jobs: Workload,
    queued: Jobs,
    cluster: Cluster,
    network: str = SHIPPED,
    backfill: str = "none",
    commit_head: bool = False,
) -> Scores:
    """Scores of a network that evolution has trained on replays of many machines."""
    from hdsim.scheduling.learned.order import scores

    return scores(jobs, queued, cluster, network, backfill, commit_head)


def _demand(jobs: Workload, which: Jobs) -> Scores:
    """(Q, 3) requested cores, memory in MB and bandwidth in GB/s; a fourth column has GPUs if any job requests them."""
    cores = jobs.requested_cores[which].astype(float)
    demand = [cores, cores * jobs.memory[which], cores * jobs.memory_bandwidth[which]]
    if jobs.asks_for_gpus:
        demand.append(jobs.requested_gpus[which].astype(float))
    return np.stack(demand, axis=1)


def _capacity(cluster: Cluster) -> Scores:
    """Returns the capacity of the platform for each column of `_demand`, infinite for unlimited resources."""
    platform = cluster.platform
    capacity = [platform.n_cpu_cores, platform.memory.sum(), platform.mem_bw[~platform.is_gpu].sum()]
    if cluster.workload.asks_for_gpus:
        capacity.append(platform.n_gpus or math.inf)
    return np.array(capacity)


def _demand_and_free(jobs: Workload, queued: Jobs, cluster: Cluster) -> tuple[Scores, Scores]:
    capacity = _capacity(cluster)
    running = np.fromiter(cluster.running, np.int64, len(cluster.running))
    used = _demand(jobs, running).sum(axis=0)
    return _demand(jobs, queued) / capacity, 1 - used / capacity
