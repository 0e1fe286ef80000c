"""CPU time of forks: with 256 running and 1,000 queued jobs, and played out to the end of 1,024 jobs.

python benchmarks/forks.py
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

import hdsim
from hdsim.util.resources import resolve


def milliseconds(work: Callable[[], object], rounds: int = 15) -> float:
    """Median CPU time in ms."""
    times = []
    for _ in range(rounds):
        begin = time.process_time()
        work()
        times.append(time.process_time() - begin)
    return 1000 * float(np.median(times))


def busy(platform: hdsim.Platform, running: int, queued: int, agent: str, contention: str) -> hdsim.Simulation:
    """A simulation with about as many running jobs, which fill the platform, and as many queued ones."""
    rng = np.random.default_rng(1)
    jobs, share = running + queued, platform.n_cpu_cores // running
    runtime = rng.integers(100, 20_000, jobs)
    workload = hdsim.Workload.from_columns(
        submission_time=np.zeros(jobs),
        runtime=runtime,
        requested_time=runtime + rng.integers(0, 20_000, jobs),
        requested_cores=np.where(np.arange(jobs) < running, share, rng.integers(1, 2 * share + 1, jobs)),
        memory_bandwidth=rng.choice([0.0, 2.0, 8.0], jobs),
    )
    simulation = hdsim.Simulation(platform, workload, agent, contention=contention)
    simulation.step()
    return simulation


def main() -> None:
    """Prints one line for each platform."""
    equal = hdsim.Platform.homogeneous(nodes=64, cores_per_node=4)
    gaia = hdsim.load_platform(resolve("platforms", "gaia"))
    cases = (
        ("interchangeable cores", equal, "fcfs", "easy", "none"),
        ("gaia, threshold", gaia, "fcfs", "easy", "threshold"),
    )
    for name, platform, agent, other, contention in cases:
        simulation = busy(platform, 256, 1000, agent, contention)
        n = f"{len(simulation.cluster.running)} running, {len(simulation.cluster.queue)} queued jobs"
        simulation.fork(other).run()
        print(f"{name:22}  fork {milliseconds(simulation.fork):8.3f} ms  ({n})")
        print(f"{'':22}  fork under {other} {milliseconds(lambda: simulation.fork(other)):8.3f} ms")  # noqa: B023
        simulation = busy(platform, 256, 768, agent, contention)
        for policy in ("sjf", "easy"):
            seconds = milliseconds(lambda: simulation.fork(policy).run(), 5)  # noqa: B023
            print(f"{'':22}  fork and 1,024 jobs under {policy:4} {seconds:8.3f} ms")


if __name__ == "__main__":
    main()
