"""Speed of BSP jobs in the engine, as CPU time on one core.

Supersteps per second of 1,000 jobs of 20 supersteps on gaia, beside a loop that does nothing but pass as many events
through SimPy; and what a superstep costs among few and among many running jobs.

python benchmarks/bsp.py
python benchmarks/bsp.py --only gaia --pattern halo_2d
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import simpy

import hdsim
from hdsim.util.resources import resolve
from hdsim.workload.generators.bsp import with_supersteps

JOBS, SUPERSTEPS = 1000, 20
#: Cores of the jobs: whole nodes of gaia, which has 12 cores in most; or anything, so that jobs share processors.
SIZES = {"whole nodes": (12, 24, 48), "any size": (1, 2, 4, 8, 16, 32, 64)}
MODELS = (
    {},
    {"contention": "fair_share"},
    {"network": "fluid"},
    {"contention": "fair_share", "network": "fluid"},
)


def gangs(platform: hdsim.Platform, sizes: tuple[int, ...], pattern: str) -> hdsim.Workload:
    """Jobs that spend a tenth of their time on messages, submitted so that about half of gaia is busy."""
    rng = np.random.default_rng(1)
    rigid = hdsim.Workload.from_columns(
        submission_time=np.sort(rng.uniform(0, 20_000, JOBS)),
        runtime=rng.uniform(100, 1200, JOBS),
        requested_cores=rng.choice(sizes, JOBS),
        memory_bandwidth=rng.choice([4.0, 8.0, 12.0, 16.0, 20.0, 24.0], JOBS),
    )
    return with_supersteps(rigid, platform, supersteps=SUPERSTEPS, communication=0.1, pattern=pattern, seed=1)


def bare_seconds(events: int) -> float:
    """CPU time of so many events in SimPy, each of which makes the next, 50 at a time."""
    env = simpy.Environment()

    def again(event: simpy.Event) -> None:
        env.timeout(1.0 + event.value * 1e-3, event.value).callbacks.append(again)

    begin = time.process_time()
    for number in range(50):
        env.timeout(1.0, number).callbacks.append(again)
    for _ in range(events):
        env.step()
    return time.process_time() - begin


def bench_gaia(pattern: str) -> None:
    """Supersteps per second on gaia."""
    platform = hdsim.load_platform(resolve("platforms", "gaia"))
    for name, sizes in SIZES.items():
        workload = gangs(platform, sizes, pattern)
        supersteps = sum(program.supersteps for program in workload.program if program is not None)
        for models in MODELS:
            best, bare = float("inf"), float("inf")
            for _ in range(3):
                bare = min(bare, bare_seconds(2 * supersteps))
                begin = time.process_time()
                hdsim.simulate(platform, workload, "fcfs-pack", **models)
                best = min(best, time.process_time() - begin)
            label = " + ".join(models.values()) or "alone"
            print(
                f"gaia, {name}, {label:<20} {supersteps / best:10,.0f} supersteps/s"
                f"{best / bare:8.1f} x two bare events each"
            )
    print("limit: 20,000 supersteps/s with fair_share + fluid")


def replay_seconds(running: int, supersteps: int) -> float:
    """CPU time of a replay of so many jobs at once, each of which shares its nodes with one other."""
    platform = hdsim.Platform.homogeneous(nodes=running, cores_per_node=4, mem_bw=20.0, bandwidth="1GBps")
    operations = platform.reference_gflops * 1e9
    rng = np.random.default_rng(1)
    profiles = {
        f"p{job}": {
            "type": "bsp",
            "supersteps": supersteps,
            "cpu": float(rng.uniform(10, 20)) * operations,
            "com": 1e8,
            "pattern": "ring",
        }
        for job in range(running)
    }
    compiler = hdsim.workload.programs.Compiler(profiles, platform.reference_gflops, "benchmark")
    programs = np.empty(running, object)
    programs[:] = [compiler.program(f"p{job}", 4) for job in range(running)]
    workload = hdsim.Workload.from_columns(
        submission_time=np.zeros(running),
        runtime=[program.runtime for program in programs],
        requested_cores=np.full(running, 4),
        memory_bandwidth=np.full(running, 8.0),
        profiles=profiles,
        profile=np.array(list(profiles), object),
        program=programs,
    )
    # Pairs of jobs on pairs of nodes, two cores of each on either.
    places = [[8 * (job // 2) + 2 * (job % 2) + offset for offset in (0, 1, 4, 5)] for job in range(running)]

    class Pairs(hdsim.Agent):
        def decide(self, cluster: hdsim.cluster.state.Cluster) -> None:
            for job in list(cluster.queue):
                cluster.start_on(job, places[job])

    best = float("inf")
    for _ in range(2):
        begin = time.process_time()
        hdsim.simulate(platform, workload, Pairs(), contention="fair_share", network="fluid")
        best = min(best, time.process_time() - begin)
    return best


def bench_local(pattern: str) -> None:
    """Cost of a superstep against the number of running jobs."""
    few, many = (
        (replay_seconds(running, 3 * supersteps) - replay_seconds(running, supersteps)) / (2 * running * supersteps)
        for running, supersteps in ((100, 200), (10_000, 4))
    )
    print(f"superstep among    100 jobs {few * 1e6:10.1f} us")
    print(f"superstep among 10,000 jobs {many * 1e6:10.1f} us {many / few:8.2f} x, limit 2")


BENCHMARKS = {name.removeprefix("bench_"): work for name, work in list(globals().items()) if name.startswith("bench_")}


def main() -> None:
    """Runs the benchmarks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=BENCHMARKS, default=list(BENCHMARKS), metavar="NAME")
    parser.add_argument("--pattern", default="ring", help="of the messages")
    arguments = parser.parse_args()
    for name in arguments.only:
        BENCHMARKS[name](arguments.pattern)


if __name__ == "__main__":
    main()
