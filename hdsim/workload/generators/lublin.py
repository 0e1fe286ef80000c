"""Lublin-Feitelson model of rigid jobs: sizes, run times and a daily cycle of arrivals.

U. Lublin, D. G. Feitelson, "The workload on parallel supercomputers: modeling the characteristics of rigid jobs",
J. Parallel Distrib. Comput. 63 (2003); parameters as in the authors' program. Unlike that program the clock is a float
that is rounded down only in the result, and no state is shared between generators.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from hdsim.errors import WorkloadError
from hdsim.util.arrays import Floats, Ints
from hdsim.workload.model import Workload

#: Maximum of the natural logarithm of run times and inter-arrival times in seconds; larger draws are repeated.
LONGEST_RUNTIME = 12.0
LONGEST_GAP = 13.0
#: Buckets of the daily cycle, their length in seconds, and the first bucket of its gamma distribution.
BUCKETS = 48
BUCKET_SECONDS = 1800.0
CYCLE_START = 11
#: Machine size of the parameters below.
FITTED_CORES = 128


@dataclass(frozen=True)
class JobClass:
    """Parameters of one class of jobs. A gamma distribution (a, b) has shape a and scale b."""

    queue: int  # SWF queue number, -1 for none
    serial: float  # probability of one core
    power2: float  # probability, among all jobs, of more than one core and a power of two
    #: low, medium, high, below_medium: log2 of cores is uniform in [low, medium] with probability
    #: `below_medium`, else uniform in [medium, high].
    low: float
    medium: float
    high: float
    below_medium: float
    runtime: tuple[tuple[float, float], tuple[float, float]]  # ((a1, b1), (a2, b2)) of log run time
    mixture: tuple[float, float]  # (pa, pb): the first of these is drawn with probability pa x cores + pb
    gap: tuple[float, float]  # (a, b) of log inter-arrival time at the mean hour
    gap_factor: float  # multiplies the a of `gap`
    cycle: tuple[float, float]  # (a, b) of the hour of the day, in buckets from `CYCLE_START`

    def fitted(self, cores: int) -> JobClass:
        """Returns the class for another machine size: `high` and `medium` shift by the logarithm of the ratio."""
        return self.widened(cores / FITTED_CORES)

    def widened(self, factor: float) -> JobClass:
        """Returns the class with `high` and `medium`, in numbers of cores, times a factor."""
        shift = math.log2(factor)
        high, medium = max(self.high + shift, 0.0), max(self.medium + shift, 0.0)
        return replace(self, low=min(self.low, medium), medium=medium, high=high)

    def with_serial(self, share: float) -> JobClass:
        """Returns the class with another share of serial jobs and the same share of powers of two among the others."""
        return replace(self, serial=share, power2=self.power2 * (1.0 - share) / (1.0 - self.serial))

    def spread(self, factor: float) -> JobClass:
        """Returns the class with the same mean of log inter-arrival times and a standard deviation times a factor."""
        a, b = self.gap
        return replace(self, gap=(a / factor**2, b * factor**2))


INTERACTIVE = JobClass(
    queue=0,
    serial=0.1541,
    power2=0.625,
    low=1.0,
    medium=3.0,
    high=5.5,
    below_medium=0.705,
    runtime=((3.8351, 0.6605), (7.073, 0.6856)),
    mixture=(-0.0118, 0.9156),
    gap=(6.5510, 0.6621),
    gap_factor=0.9797,
    cycle=(8.9186, 3.6680),
)
BATCH = JobClass(
    queue=1,
    serial=0.2927,
    power2=0.6686,
    low=1.2,
    medium=5.0,
    high=7.0,
    below_medium=0.875,
    runtime=((6.57, 0.823), (639.1, 0.0156)),
    mixture=(-0.003, 0.6986),
    gap=(6.0415, 0.8531),
    gap_factor=1.0519,
    cycle=(6.1271, 5.2740),
)
ALL = JobClass(
    queue=-1,
    serial=0.244,
    power2=0.576,
    low=0.8,
    medium=4.5,
    high=7.0,
    below_medium=0.86,
    runtime=((4.2, 0.94), (312.0, 0.03)),
    mixture=(-0.0054, 0.78),
    gap=(10.2303, 0.4871),
    gap_factor=1.0225,
    cycle=(8.1737, 3.9631),
)
#: Classes in order of precedence for simultaneous arrivals.
TYPED = (INTERACTIVE, BATCH)
TYPELESS = (ALL,)


def generate(
    jobs: int,
    seed: int = 0,
    cores: int = 256,
    *,
    typed: bool = True,
    estimates: str | None = None,
    max_estimate: float | None = None,
    arrival_factor: float = 1.0,
    memory: Sequence[float] | None = None,
    load: float | None = None,
    runtime_factor: float = 1.0,
    width_factor: float = 1.0,
    serial: float | None = None,
    burstiness: float = 1.0,
    classes: Sequence[JobClass] | None = None,
) -> Workload:
    """Generates a workload; equal arguments give equal workloads.

    Args:
        jobs: Number of jobs.
        seed: Seed of all draws.
        cores: Size of the machine, to which the size distributions are fitted.
        typed: Interactive (queue 0) and batch jobs (queue 1), or one class of jobs.
        estimates: "tsafrir": requested times by :mod:`hdsim.workload.generators.tsafrir`; None: the run times.
        max_estimate: Longest requested time under "tsafrir" in seconds, by default that of the longest job.
        arrival_factor: Factor of inter-arrival times.
        memory: MB per core, drawn for each job with equal probability. None: no memory.
        load: ``Workload.offered_load`` of the jobs: their inter-arrival times are scaled to it, the day with them.
            None: that of the model.
        runtime_factor: Factor of run times.
        width_factor: Factor of the sizes of parallel jobs, whose upper limit remains `cores`.
        serial: Share of serial jobs, None: that of the model.
        burstiness: Factor of the standard deviation of the logarithm of inter-arrival times.
        classes: Job classes for this machine, in place of those of `typed`.

    Raises:
        WorkloadError: An argument is out of range.
    """
    where = "workload.generate"
    for name, value, low, high in (("jobs", jobs, 1, 10**7), ("cores", cores, 1, 10**8), ("seed", seed, 0, 2**64)):
        if not low <= value <= high:
            raise WorkloadError(f"{name}: expected {low} to {high}, got {value}", where=where)
    if estimates not in (None, "none", "tsafrir"):
        raise WorkloadError(f"estimates: expected none or tsafrir, got '{estimates}'", where=where)
    if max_estimate is not None and estimates != "tsafrir":
        raise WorkloadError("max_estimate: expected none without estimates=tsafrir", where=where)
    if memory is not None and not (len(memory) and all(0 <= amount < math.inf for amount in memory)):
        raise WorkloadError(f"memory: expected finite MB >= 0, got {list(memory)}", where=where)
    if not 0 <= arrival_factor < math.inf:
        raise WorkloadError(f"arrival_factor: expected a finite number >= 0, got {arrival_factor}", where=where)
    for name, factor, most in (
        ("load", load, 100.0),
        ("runtime_factor", runtime_factor, 1e3),
        ("width_factor", width_factor, 1e3),
        ("burstiness", burstiness, 10.0),
    ):
        if factor is not None and not 0 < factor <= most:
            raise WorkloadError(f"{name}: expected a number > 0 and at most {most:g}, got {factor}", where=where)
    if serial is not None and not 0 <= serial <= 1:
        raise WorkloadError(f"serial: expected a share from 0 to 1, got {serial}", where=where)
    if load is not None and arrival_factor != 1:
        raise WorkloadError("arrival_factor: expected 1 with a load, which decides on arrivals", where=where)
    if classes is None:
        classes = [job_class.fitted(cores) for job_class in (TYPED if typed else TYPELESS)]
    if width_factor != 1:
        classes = [job_class.widened(width_factor) for job_class in classes]
    if serial is not None:
        classes = [job_class.with_serial(serial) for job_class in classes]
    if burstiness != 1:
        classes = [job_class.spread(burstiness) for job_class in classes]
    arrivals_seed, jobs_seed, memory_seed, estimates_seed = np.random.SeedSequence(seed).spawn(4)
    arrival, kind = _merged(jobs, classes, arrivals_seed)
    size = np.empty(jobs, np.int64)
    runtime = np.empty(jobs)
    for number, (job_class, child) in enumerate(zip(classes, jobs_seed.spawn(len(classes)), strict=True)):
        rng = np.random.default_rng(child)
        rows = np.flatnonzero(kind == number)
        size[rows] = sizes(job_class, len(rows), cores, rng)
        runtime[rows] = runtimes(job_class, size[rows], rng)
    if runtime_factor != 1:
        runtime = np.maximum(np.floor(runtime * runtime_factor), 1.0)
    if load is not None and jobs > 1:
        arrival_factor = float(size @ runtime) / (cores * load * (arrival[-1] - arrival[0]))
    with np.errstate(over="ignore"):  # infinite times are refused
        arrival *= arrival_factor
    workload = Workload.from_columns(
        job_id=np.arange(1, jobs + 1),
        submission_time=np.floor(arrival),
        runtime=runtime,
        requested_cores=size,
        memory=0.0 if memory is None else np.random.default_rng(memory_seed).choice(np.asarray(memory, float), jobs),
        queue=np.array([job_class.queue for job_class in classes])[kind],
        status=1,
        source=f"<lublin seed {seed}>",
        header={"Version": "2.2", "Information": "Lublin-Feitelson model", "MaxProcs": str(cores)},
    )
    if estimates == "tsafrir":
        from hdsim.workload.generators.tsafrir import with_estimates

        workload = with_estimates(workload, estimates_seed, max_estimate)
    return workload


def sizes(job_class: JobClass, jobs: int, cores: int, rng: np.random.Generator) -> Ints:
    """(jobs,) requested cores.

    A size that is to be a power of two is rounded in its logarithm; where that would exceed the machine the next lower
    power is taken.
    """
    u = rng.random(jobs)
    below = rng.random(jobs) < job_class.below_medium
    logarithm = np.where(
        below,
        rng.uniform(job_class.low, job_class.medium, jobs),
        rng.uniform(job_class.medium, job_class.high, jobs),
    )
    power = u <= job_class.serial + job_class.power2
    logarithm[power] = np.minimum(np.floor(logarithm[power] + 0.5), math.floor(math.log2(cores)))
    size = np.minimum(np.floor(2.0**logarithm + 0.5), cores).astype(np.int64)
    size[u <= job_class.serial] = 1
    return size


def runtimes(job_class: JobClass, size: Ints, rng: np.random.Generator) -> Floats:
    """Draws run times in integer seconds, in the shape of `size`; draws above e^12 s are repeated."""
    share, offset = job_class.mixture
    first_share = np.clip(share * size + offset, 0.0, 1.0)
    (a1, b1), (a2, b2) = job_class.runtime
    logarithm = np.empty(len(size))
    left = np.arange(len(size))
    while len(left):
        first = rng.random(len(left)) <= first_share[left]
        logarithm[left] = rng.standard_gamma(np.where(first, a1, a2)) * np.where(first, b1, b2)
        left = left[logarithm[left] > LONGEST_RUNTIME]
    return np.floor(np.exp(logarithm))


def daily_weights(job_class: JobClass) -> Floats:
    """Returns (48,) relative arrival rates of the half hours of a day from midnight, with mean 1."""
    from scipy.special import gammainc

    a, b = job_class.cycle
    place = np.arange(CYCLE_START, CYCLE_START + BUCKETS)
    share = gammainc(a, (place + 0.5) / b) - gammainc(a, (place - 0.5) / b)
    weights = np.empty(BUCKETS)
    weights[(place - 1) % BUCKETS] = share
    return weights / weights.mean()


def gap_points(job_class: JobClass, jobs: int, rng: np.random.Generator) -> Floats:
    """Draws (jobs,) inter-arrival times in buckets of mean weight; draws above e^13 s are repeated."""
    a, b = job_class.gap
    logarithm = rng.standard_gamma(a * job_class.gap_factor, jobs) * b
    left = np.flatnonzero(logarithm > LONGEST_GAP)
    while len(left):
        logarithm[left] = rng.standard_gamma(a * job_class.gap_factor, len(left)) * b
        left = left[logarithm[left] > LONGEST_GAP]
    return np.exp(logarithm) / BUCKET_SECONDS


def arrival_times(points: Floats, weights: Floats) -> Floats:
    """Returns arrival times in seconds from midnight from (J,) :func:`gap_points` and (48,) :func:`daily_weights`.

    A bucket of weight w has w points, so the arrival time of a job is the inverse of the cumulative weight at the
    cumulative gap.
    """
    edges = np.concatenate([[0.0], np.cumsum(weights)])
    day, rest = np.divmod(np.cumsum(points), edges[-1])
    bucket = np.minimum(np.searchsorted(edges, rest, side="right") - 1, BUCKETS - 1)
    return BUCKET_SECONDS * (day * BUCKETS + bucket + (rest - edges[bucket]) / weights[bucket])


def _merged(jobs: int, classes: Sequence[JobClass], seed: np.random.SeedSequence) -> tuple[Floats, Ints]:
    """Returns (jobs,) arrival times of all classes together and the class of each job."""
    streams = [
        arrival_times(gap_points(job_class, jobs, np.random.default_rng(child)), daily_weights(job_class))
        for job_class, child in zip(classes, seed.spawn(len(classes)), strict=True)
    ]
    times = np.concatenate(streams)
    first = np.argsort(times, kind="stable")[:jobs]
    return times[first], first // jobs
