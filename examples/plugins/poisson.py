"""A generator: ``hdsim workload generate --model poisson.py --set jobs=200``."""

import numpy as np

import hdsim
from hdsim.workload.generators import Generator


class Poisson(Generator):
    """Jobs of exponential run times (`runtime` seconds in the mean) that arrive at a constant `rate` per second."""

    def __init__(self, jobs: int = 1000, rate: float = 0.01, runtime: float = 600.0):
        self.jobs, self.rate, self.runtime = jobs, rate, runtime

    def generate(self, platform, seed):
        rng = np.random.default_rng(seed)
        return hdsim.Workload.from_columns(
            submission_time=rng.exponential(1 / self.rate, self.jobs).cumsum(),
            runtime=rng.exponential(self.runtime, self.jobs),
            requested_cores=rng.integers(1, 5, self.jobs),
            user=rng.integers(1, 9, self.jobs),
        )
