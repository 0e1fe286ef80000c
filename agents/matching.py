"""Jobs matched to processors: an order of the queue, jobs that wait for fast cores, and a choice of cores.

Few weights say in which order jobs are served, how much slower than on an empty machine a job may run, how far behind a
head that waits a job may overtake it, and which of the processors that are fast enough it gets. An evolution strategy
fits them to one objective. A job on cores of several speeds runs at the slowest of them, so it gets cores of one speed
where it can, and jobs that saturate the memory of a processor are kept apart from those that do not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from hdsim.agents.evolution import Evolution
from hdsim.cluster.frequencies import refuse_frequencies
from hdsim.cluster.power_budget import refuse_hard_caps
from hdsim.cluster.state import Cluster
from hdsim.cluster.stores.nodes import NodeCores
from hdsim.errors import ConfigError
from hdsim.learning.agent import TensorShapes
from hdsim.learning.settings import integer, number, word
from hdsim.scheduling.kernels import matching
from hdsim.scheduling.kernels.matching import OVERSUBSCRIBED, ProcessorConstants, Wishes
from hdsim.util.arrays import Flags, Floats
from hdsim.util.units import in_bytes

#: Weights at the beginning: order by run time, cores, bandwidth and submission, of smallest or largest area first;
#: tolerance: constant, by run time, cores and bandwidth; logarithm of the leeway; columns of processors, see
#: :mod:`hdsim.scheduling.kernels.matching`.
FIRST = {
    "saf": (1, 1, 0, 0, 0.5, 0, 0, 0, 0, -1, 0, 0, -3, 0, 0),
    "laf": (-1, -1, 0, 0, 0, 0, 0, 0, 2.3, -1, 0, 0, -3, 0, 0),
}
#: Units in which evolution changes them.
UNITS = np.array([0.3, 0.3, 0.3, 0.3, 0.5, 0.1, 0.1, 0.3, 0.5, 1, 1, 1, 1, 1, 1])


@dataclass(eq=False, kw_only=True)
class MatchingAgent(Evolution):
    """A policy of fifteen weights for order, patience and cores, found by an evolution strategy.

    A pass serves the queue in order:

    1. Order: the score of a job is linear in the logarithms of its requested time, cores and memory bandwidth, and in
       its submission; the lowest is first.
    2. Speed: that of the slowest core; a core counts as a quarter slower where the job would oversubscribe its
       processor's bandwidth. The job waits where the ratio of the best speed on idle cores to that on the empty machine
       is below exp(-t), t = log(1 + exp(x)), x linear in the logarithms of requested time, cores and bandwidth.
    3. Cores: processors with this speed are filled in order of six weighted columns: logarithms of speed and of power
       by speed, share of busy cores, whether the job would be the one that oversubscribes it, whether it is
       oversubscribed, whether the job takes all its idle cores.
    4. Overtaking: behind a head that waits a job may start if its score is at most the leeway above the head's. A
       leeway of 0 is strict, a large one greedy.

    Args:
        order: Order of the queue that training begins with: ``saf`` or ``laf``, smallest or largest area first.
    """

    any_size = True

    pairs: int = integer(8)
    windows: int = integer(6)
    sigma: float = number(0.5, low=1e-6)
    learning_rate: float = number(0.5)
    order: str = word("saf", "laf")

    # ---- choosing

    def begin(self, cluster: Cluster) -> None:
        """Reads the weights; see :meth:`hdsim.learning.agent.LearningAgent.begin`.

        Raises:
            ConfigError: The agent is not trained, cores have no ids, jobs request GPUs, or there is a hard cap.
        """
        super().begin(cluster)
        refuse_hard_caps(cluster.budget, "matching")
        refuse_frequencies(cluster.frequencies, "matching")
        if not cluster.has_core_ids or cluster.requests.gpus is not None:
            raise ConfigError("matching: expected cores with ids, and jobs that request no GPUs", where="agent")
        platform = cluster.platform
        speed = platform.gflops / platform.reference_gflops
        levels = np.unique(np.concatenate([speed, OVERSUBSCRIBED * speed])[~np.tile(platform.is_gpu, 2)])[::-1]
        fixed = np.log(np.stack([speed, platform.power / platform.gflops]))
        self._machine = ProcessorConstants(levels.copy(), speed, fixed)
        self._empty = NodeCores(platform, cluster.requests, self.core_policy, cluster.rng).state
        self._ids = np.empty(platform.n_cores, np.int64)
        self._see(cluster)

    def _see(self, cluster: Cluster) -> None:
        """Computes what is to be made of the jobs."""
        jobs, (parameters,) = cluster.workload, self.network.parameters()
        weights = UNITS * parameters.detach().double().numpy()
        memory = in_bytes(jobs.memory) if cluster.requests.memory_matters else np.zeros(len(jobs))
        columns = np.stack(
            [
                np.log(np.maximum(jobs.requested_time, 1.0) / 3600),
                np.log(jobs.requested_cores / 8),
                np.log(np.maximum(jobs.memory_bandwidth, 1.0) / 8),
                jobs.submission_time / 86400,
            ]
        )
        kinds, of_job = np.unique(
            np.stack([jobs.requested_cores, memory, jobs.memory_bandwidth]), axis=1, return_inverse=True
        )
        fastest = np.array([matching.fastest(self._empty, self._machine, int(kind[0]), *kind[1:]) for kind in kinds.T])
        tolerance = np.logaddexp(0.0, weights[4] + weights[5:8] @ columns[:3])
        self._wishes = Wishes(
            order=weights[:4] @ columns,
            slowest=fastest[of_job] * np.exp(-tolerance),
            size=jobs.requested_cores.astype(np.int64),
            memory=memory.astype(float),
            bandwidth=jobs.memory_bandwidth.astype(float),
            weights=weights[9:].copy(),
            leeway=np.exp(weights[8:9]),
        )

    def decide(self, cluster: Cluster) -> None:
        """One scheduling pass."""
        if not cluster.queue or not cluster.n_idle:
            return
        if len(self._wishes.order) < len(cluster.workload):
            self._see(cluster)
        queue, place, ids = np.fromiter(cluster.queue, np.int64, len(cluster.queue)), 0, self._ids
        queue = queue[self._wishes.order[queue].argsort(kind="stable")]
        while len(queue):
            place = matching.next_start(cluster.cores.state, self._machine, self._wishes, queue, place, ids)
            if place < 0:
                return
            job = int(queue[place])
            cluster.start(job, cluster.cores.placement_of(ids[: cluster.size[job]]))
            queue = np.delete(queue, place)

    def choose(self, observation: Any, mask: Flags) -> int:
        """The first legal action: environments only draw the windows that members replay."""
        return int(mask.argmax())

    # ---- learning

    def build(self, shapes: TensorShapes) -> None:
        """Creates the weights, in units of their changes, and gradient descent with momentum."""
        network = nn.ParameterList([nn.Parameter(torch.from_numpy(FIRST[self.order] / UNITS).float())])
        # Adam would move weights without effect as far as the others.
        self.evolve(network, torch.optim.SGD(network.parameters(), lr=self.learning_rate, momentum=0.8, dampening=0.8))

    def costs(self, scores: Floats) -> Floats:
        """Standardised, so that steps are of one size under every objective, and smaller where noise prevails."""
        costs = super().costs(scores)
        return costs / (costs.std() + 1e-12)
