"""Objectives of learning agents, one class each."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from hdsim.decisions.base import Decisions, Objective, ObjectiveSetup, one_of, oversubscription_limit
from hdsim.decisions.kernels.progress import busy_speed
from hdsim.errors import ConfigError
from hdsim.facility.quantities import QUANTITIES
from hdsim.platform.power import OVERSUBSCRIBED, PSTATES, present_power
from hdsim.scheduling.rules import TAU
from hdsim.util.rules import is_finite
from hdsim.util.units import JOULES_PER_KWH

if TYPE_CHECKING:
    from hdsim.platform.model import Platform
    from hdsim.util.arrays import Ints

_HOUR = 3600.0


class Rate(Objective):
    """A quantity of the cluster: its value right after the action, or its integral until the next decision."""

    def begin(self, setup: ObjectiveSetup, problem: Decisions) -> None:
        super().begin(setup, problem)
        self._total = self._since = self._rate = 0.0

    def on_instant(self) -> None:
        if self.integrated:
            now = self.cluster.now
            self._total += self.integral(self._since, now)
            self._since = now

    def after_action(self, action: int) -> None:
        if not self.integrated:
            self._total = self.value()

    def end_of_pass(self) -> None:
        if self.integrated:
            self._rate = self.value()

    def reward(self, over: bool) -> float:
        total, self._total = self._total, 0.0
        return total

    @abstractmethod
    def value(self) -> float:
        """The present value."""

    def integral(self, begin: float, end: float) -> float:
        """Integral of the value over a time without changes, from one to another in seconds."""
        return self._rate * (end - begin)

    def _computing_cores(self) -> float:
        """Cores that jobs compute on; a job that is STARTING holds its cores and does not compute."""
        cluster = self.cluster
        busy: float = cluster.platform.n_cpu_cores - cluster.n_idle
        return busy - sum(cluster.size[job] for job in cluster.starting) if cluster.starting else busy

    def _computing_by_processor(self) -> Ints:
        """(P,) the same by processor, GPUs included."""
        cluster = self.cluster
        busy: Ints = cluster.cores.processor_busy()
        for job in cluster.starting:
            np.subtract.at(busy, cluster.platform.core_processor[cluster.running[job].ids], 1)
        return busy


class AverageJobSlowdown(Rate):
    """Minus the sum over the jobs in the system of 1 / requested time, 1/s; times below 1 s count as 1 s."""

    metric = "mean_slowdown"
    needs_known_jobs = True
    shortest: ClassVar[float] = 1.0

    def begin(self, setup: ObjectiveSetup, problem: Decisions) -> None:
        super().begin(setup, problem)
        self._weight: list[float] = (1.0 / np.maximum(setup.cluster.workload.requested_time, self.shortest)).tolist()
        self._sum = 0.0
        self._never = frozenset(setup.infeasible)

    def on_instant(self) -> None:
        super().on_instant()
        cluster, weight = self.cluster, self._weight
        for job in cluster.submitted:
            self._sum += weight[job]
        for job in cluster.withdrawn:
            self._sum -= weight[job]
        for job in cluster.ended:
            self._sum -= weight[job]
        if not cluster.queue and not cluster.running:
            # An empty system resets rounding errors.
            self._sum = 0.0

    def end_of_pass(self) -> None:
        for job in self.cluster.rejected:
            if job not in self._never:
                self._sum -= self._weight[job]
        super().end_of_pass()

    def value(self) -> float:
        return -self._sum


class AverageBoundedSlowdown(AverageJobSlowdown):
    """As `AverageJobSlowdown`, with 10 s for shorter times.

    If requested times are run times, the integral is the sum of the bounded slowdowns, except that jobs under 10 s
    may contribute less than 1. Unlike `bounded_slowdown`, the cost of a decision shows while jobs wait, not when they
    end.
    """

    metric = "mean_bounded_slowdown"
    shortest = TAU


class AverageJobCompletion(Rate):
    """Minus the jobs in the system."""

    metric = "mean_turnaround_time"

    def value(self) -> float:
        return -float(len(self.cluster.queue) + len(self.cluster.running))


class ExpectedCompletion(Objective):
    """Minus the increment of the sum of turnaround times in seconds, as if all running jobs kept their speeds.

    A job is paid for when it starts, with what its start costs the others, and every change of speed when it happens.
    The rewards of an episode add up to minus the sum of the turnaround times: this is `avg_job_completion`, integrated,
    with the expected remaining times as a potential (Ng, Harada, Russell, ICML 1999). It tells the agent of run times.
    """

    metric = "mean_turnaround_time"
    needs_dates = True

    def begin(self, setup: ObjectiveSetup, problem: Decisions) -> None:
        super().begin(setup, problem)
        self._submission: list[float] = setup.cluster.workload.submission_time.tolist()
        self._ended = self._sum = self._paid = 0.0

    def on_instant(self) -> None:
        cluster = self.cluster
        # An interrupted job has no finish yet.
        done = (job for job in cluster.ended if not math.isnan(cluster.finish_time[job]))
        self._ended += sum(cluster.now - self._submission[job] for job in done)

    def end_of_pass(self) -> None:
        cluster, submission, dates = self.cluster, self._submission, self.dates
        # A job whose nodes boot has no date yet: it waits.
        self._sum = (
            self._ended
            + sum(dates.get(job, cluster.now) - submission[job] for job in cluster.running)
            + sum(cluster.now - submission[job] for job in cluster.queue)
        )

    def reward(self, over: bool) -> float:
        before, self._paid = self._paid, self._sum
        return before - self._sum


class AverageUtilization(Rate):
    """Busy cores."""

    metric = "utilization"

    def value(self) -> float:
        return float(self._computing_cores())


class Makespan(Rate):
    """GFLOP/s of all busy cores; at P-state 1 where contention is modelled and the bandwidth is oversubscribed.

    On a platform of quantities the CPU in use of each node counts at the speed of its slowest processor.
    """

    metric = "makespan"

    @classmethod
    def sees_cores(cls, platform: Platform) -> bool:
        return not platform.homogeneous_speed or platform.n_gpus > 0

    def begin(self, setup: ObjectiveSetup, problem: Decisions) -> None:
        super().begin(setup, problem)
        platform = setup.cluster.platform
        self._peak = platform.gflops
        self._slowed = PSTATES[OVERSUBSCRIBED].speed * platform.gflops
        self._overdrawn = oversubscription_limit(platform)
        self._contended = setup.contention is not None
        self._alike = not (self._contended or self.sees_cores(platform))

    def value(self) -> float:
        cluster = self.cluster
        if self._alike:
            return self._computing_cores() * cluster.platform.reference_gflops
        cores = cluster.cores
        if not cluster.has_core_ids:
            busy = cluster.platform.node_cpu_cores - cores.node_idle
            for job in cluster.starting:
                busy[cluster.running[job].nodes] -= cluster.running[job].cpu
            return float(busy @ cores.node_speed) * cluster.platform.reference_gflops
        slowed = self._slowed if self._contended else self._peak
        busy = self._computing_by_processor()
        return float(busy_speed(busy, cores.free_bandwidth, self._overdrawn, self._peak, slowed))


class EnergyConsumption(Rate):
    """Minus the power of all nodes, W, by the P-states and power states of :mod:`hdsim.platform.power`."""

    metric: ClassVar[str | None] = "energy_joules"
    needs_core_ids = True

    @classmethod
    def sees_cores(cls, platform: Platform) -> bool:
        return True

    def on_change(self) -> None:
        # Plain cores change at instants with passes alone.
        if self.integrated and (self.cluster.node_states is not None or self.cluster.nodes_fail):
            self.on_instant()
            self.end_of_pass()

    def value(self) -> float:
        return -self._watts()

    def _watts(self) -> float:
        """Present power of all nodes, W."""
        cluster = self.cluster
        state = None if cluster.node_states is None else cluster.node_states.state
        watts = present_power(cluster.platform, self._computing_by_processor(), state, cluster.down)
        return watts if cluster.frequencies is None else watts + cluster.more_watts()


class Edp(EnergyConsumption):
    """Minus the increment of energy x time since the start of the episode, J s.

    HDeepRM names this objective without implementing it. The rewards of an episode add up to minus its energy-delay
    product, so the reward is always integrated.
    """

    metric = "edp"

    def __init__(self, integrated: bool) -> None:
        super().__init__(integrated=True)

    def begin(self, setup: ObjectiveSetup, problem: Decisions) -> None:
        super().begin(setup, problem)
        self._energy = self._product = 0.0

    def reward(self, over: bool) -> float:
        self._energy += super().reward(over)
        before, self._product = self._product, self._energy * self._since
        return self._product - before


class Cost(EnergyConsumption):
    """Minus what the facility pays for its electricity between two decisions, EUR.

    It is the exact integral of power of the machine x factor of the facility x price
    (:meth:`hdsim.facility.model.Facility.weights`), so the reward is always integrated, and the rewards of an episode
    add up to minus its `cost_eur`.
    """

    metric = "cost_eur"
    signal: ClassVar[str | None] = "price"

    def __init__(self, integrated: bool) -> None:
        super().__init__(integrated=True)

    def integral(self, begin: float, end: float) -> float:
        """Integral of the value since a time, until now.

        Raises:
            ConfigError: A series of the facility has ended before.
        """
        outlook = self.cluster.facility
        spent = float(outlook.spent(begin, -self._rate)[QUANTITIES.index(str(self.metric))])
        if math.isnan(spent):
            raise ConfigError(outlook.uncovered()[0], where=f"facility.{self.signal}")
        return -spent


class Carbon(Cost):
    """Minus what the facility emits between two decisions, g of CO2, as `Cost` with the carbon intensity as the price.

    The rewards of an episode add up to minus its `carbon_grams`.
    """

    metric = "carbon_grams"
    signal = "carbon"


class EnergyUnderWait(EnergyConsumption):
    """Minus energy of the machine in kWh minus `wait_weight` x hours of waiting, between two decisions.

    The reward is always integrated. The rewards of an episode add up to minus (energy_joules / 3.6e6 + wait_weight x
    sum of waits x cores / 3600).

    Args:
        integrated: See :class:`Objective`.
        wait_weight: kWh for each hour of waiting.
        wait_of: An hour counts for each of the ``cores`` of a waiting job, GPUs included, or once (``jobs``).

    Raises:
        ConfigError: A setting is not allowed.
    """

    metric = None

    def __init__(self, integrated: bool, wait_weight: float = 0.01, wait_of: str = "cores") -> None:
        super().__init__(integrated=True)
        if not is_finite(wait_weight) or wait_weight < 0:
            raise ConfigError(f"expected a number >= 0, got {wait_weight!r}", where="env.wait_weight")
        self.wait_weight = float(wait_weight)
        self._by_cores = one_of("wait_of", wait_of, ("cores", "jobs")) == "cores"

    def value(self) -> float:
        cluster = self.cluster
        waiting = [*cluster.queue, *cluster.starting]
        amount = sum(cluster.size[job] for job in waiting) if self._by_cores else len(waiting)
        return -self._watts() / JOULES_PER_KWH - self.wait_weight * amount / _HOUR


class BoundedSlowdown(Objective):
    """Minus the mean bounded slowdown of the episode's jobs (threshold 10 s), paid at its end (RLScheduler).

    Integrated, the share of every job is paid when the job ends. Jobs that are rejected do not count, as in the metric.
    An episode that is truncated pays the shares of the jobs that have ended.
    """

    metric = "mean_bounded_slowdown"
    needs_known_jobs = True

    def begin(self, setup: ObjectiveSetup, problem: Decisions) -> None:
        super().begin(setup, problem)
        self._submission: list[float] = setup.cluster.workload.submission_time.tolist()
        self._jobs = max(len(self._submission) - len(setup.infeasible), 1)
        self._total = 0.0

    def on_instant(self) -> None:
        cluster = self.cluster
        for job in cluster.ended:
            finish, start = cluster.finish_time[job], cluster.starting_time[job]
            # An interrupted job has no finish yet.
            if not math.isnan(finish):
                self._total -= max((finish - self._submission[job]) / max(finish - start, TAU), 1.0)

    def reward(self, over: bool) -> float:
        if not (self.integrated or over):
            return 0.0
        total, self._total = self._total, 0.0
        return total / self._jobs


class LoadImbalance(Objective):
    """Minus the increment, for each node chosen, of the standard deviation over the nodes of the share of busy cores.

    On platforms of quantities the busy cores are the CPU that pods request. A placement under construction counts. The
    rewards of an episode add up to minus its last standard deviation. Void gives 0.
    """

    metric = "load_imbalance"
    only_action = "node"

    @classmethod
    def sees_cores(cls, platform: Platform) -> bool:
        return True

    def begin(self, setup: ObjectiveSetup, problem: Decisions) -> None:
        super().begin(setup, problem)
        cores = setup.cluster.node_cpu
        self._cores = np.where(cores > 0, cores, 1)
        self._deviation = self._reward = 0.0

    def after_action(self, action: int) -> None:
        if action == len(self._cores):
            self._reward = 0.0
            return
        busy = self._cores - self.cluster.cores.node_idle
        partial = self.problem.wait_queue.partial
        if partial is not None:
            busy = busy + partial.chosen * partial.cpu_per_chunk
        before, self._deviation = self._deviation, float(np.std(busy / self._cores))
        self._reward = self.paid(action, before - self._deviation)

    def paid(self, action: int, decrease: float) -> float:
        """Reward of a node, from the decrease of the standard deviation, whose value is up to date."""
        return decrease

    def reward(self, over: bool) -> float:
        return self._reward


class ClusterBalance(LoadImbalance):
    """Even load of nodes, the reward of the Kubernetes agents for each chosen node.

    With v the standard deviation of :class:`LoadImbalance` and x = v / (v + 1): (1 - 2 x) / sqrt(number of times this
    node was chosen in the episode), but max(-1, -(1 - 2 x)) if the node was also chosen the last time. Void gives 0.

    Args:
        integrated: See :class:`Objective`.
        per_deployment: Choices are counted within a deployment, the jobs that one user submits at one instant.
    """

    metric = "load_imbalance"
    only_action = "node"

    def __init__(self, integrated: bool, per_deployment: bool = False) -> None:
        super().__init__(integrated)
        self.per_deployment = per_deployment

    def begin(self, setup: ObjectiveSetup, problem: Decisions) -> None:
        super().begin(setup, problem)
        self._times = np.zeros(len(self._cores))
        self._last = -1
        self._deployment: tuple[float, int] | None = None

    def paid(self, action: int, decrease: float) -> float:
        if self.per_deployment:
            partial = self.problem.wait_queue.partial
            self._enter(self.cluster.started[-1] if partial is None else partial.job)
        balance = 1.0 - 2.0 * self._deviation / (self._deviation + 1.0)
        self._times[action] += 1
        again, self._last = action == self._last, action
        return max(-1.0, -balance) if again else balance / math.sqrt(self._times[action])

    def _enter(self, job: int) -> None:
        """Forgets the choices for another deployment than that of a job."""
        jobs = self.cluster.workload
        deployment = float(jobs.submission_time[job]), int(jobs.user[job])
        if deployment != self._deployment:
            self._deployment, self._last = deployment, -1
            self._times[:] = 0
