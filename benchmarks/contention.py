"""Cost of an event under contention with few and with many running jobs, as CPU time on one core.

A start or an end touches the jobs of its processors; how many jobs run elsewhere must not matter.

python benchmarks/contention.py
python benchmarks/contention.py --running 100 10000 100000 --events 20000
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import hdsim
from hdsim.cluster.placement import Placement
from hdsim.simulation.contended import Contended
from hdsim.simulation.setup import make_model

CORES = 8  # of a processor
DEMAND = 8.0  # GB/s of a core, the most of those that are drawn
ROUNDS = 5


def machine(jobs: int) -> hdsim.Platform:
    """Just large enough for so many jobs of one core, with half the bandwidth they may ask for."""
    return hdsim.Platform.homogeneous(nodes=-(-jobs // CORES), cores_per_node=CORES, mem_bw=CORES * DEMAND / 2)


def event_seconds(contention: str, running: int, events: int) -> float:
    """Least CPU time of an instant at which one of the running jobs ends and another takes its core, in s."""
    platform = machine(running)
    rng = np.random.default_rng(1)
    workload = hdsim.Workload.from_columns(
        submission_time=np.zeros(running + events),
        runtime=np.full(running + events, 1e9),
        requested_cores=np.ones(running + events, int),
        memory_bandwidth=rng.uniform(0, DEMAND, running + events),
    )
    placements = [Placement(np.array([core]), platform) for core in range(running)]
    cores = rng.integers(0, running, events).tolist()
    best = float("inf")
    for _ in range(ROUNDS):
        model = make_model("contention", contention, platform)
        assert model is not None
        executor = Contended(platform, workload, model)
        for core, placement in enumerate(placements):
            executor.start(core, placement, 0.0)
        retimed = sum(1 for _ in executor.settle(0.0))
        assert retimed == running
        holder = list(range(running))
        begin = time.process_time()
        for event, core in enumerate(cores):
            now = float(event + 1)
            executor.end(holder[core], now)
            holder[core] = running + event
            executor.start(running + event, placements[core], now)
            for _ in executor.settle(now):
                pass
        best = min(best, time.process_time() - begin)
    return best / events


def replay_seconds(contention: str, running: int, events: int) -> float:
    """CPU time of a whole replay on a machine that is always full, per job, in s."""
    jobs = running + events
    rng = np.random.default_rng(1)
    workload = hdsim.Workload.from_columns(
        submission_time=np.zeros(jobs),
        runtime=rng.uniform(100, 200, jobs),
        requested_cores=np.ones(jobs, int),
        memory_bandwidth=rng.uniform(0, DEMAND, jobs),
    )
    platform = machine(running)
    best = float("inf")
    for _ in range(2):
        begin = time.process_time()
        hdsim.simulate(platform, workload, "fcfs", contention=contention)
        best = min(best, time.process_time() - begin)
    return best / jobs


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--running", nargs="+", type=int, default=[100, 10_000], metavar="JOBS", help="jobs that run")
    parser.add_argument("--events", type=int, default=5_000, help="ends and starts that are timed")
    arguments = parser.parse_args()
    event_seconds("threshold", 100, 100)  # what the first call loads is not timed
    for contention in ("threshold", "fair_share", "smoothstep"):
        fewest = None
        for running in arguments.running:
            event = event_seconds(contention, running, arguments.events)
            fewest = fewest or event
            print(
                f"{contention:12} {running:>8,} running jobs {event * 1e6:8.1f} us an event {event / fewest:6.2f} x"
                f"   whole replay {replay_seconds(contention, running, arguments.events) * 1e6:8.1f} us a job",
                flush=True,
            )


if __name__ == "__main__":
    main()
