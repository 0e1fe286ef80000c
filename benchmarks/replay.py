"""Speed of whole replays on one core, as CPU time and as ratios to bare loops measured in the same process.

python benchmarks/replay.py                     # generated traces only
python benchmarks/replay.py --data ../shared/data   # also the real traces and the workloads run on Batsim
python benchmarks/replay.py --only easy ricc
python benchmarks/replay.py --only month            # 1,300,000 jobs on 158,976 nodes, which does not run by default
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import hdsim
from hdsim.studies.measures.bare_loops import bare_easy, bare_fcfs, columns
from hdsim.util.resources import resolve
from hdsim.workload.generators import lublin

MACHINE = hdsim.Platform.homogeneous(nodes=64, cores_per_node=4, gflops_per_core=10.0)


def cpu_seconds(work: Callable[[], Any], rounds: int = 3) -> float:
    """Least CPU time of a few rounds, in s."""
    best = float("inf")
    for _ in range(rounds):
        begin = time.process_time()
        work()
        best = min(best, time.process_time() - begin)
    return best


def replay(
    platform: hdsim.Platform, workload: hdsim.Workload, agent: str, *, columns: bool = True, **options: Any
) -> Callable[[], None]:
    """A replay with core ids, all metrics and, by default, every result column made."""

    def work() -> None:
        result = hdsim.simulate(platform, workload, agent, **options)
        for name in result.jobs if columns else ():
            result.jobs[name]
        ends = ("jobs_completed", "jobs_failed", "jobs_rejected")
        assert sum(result.metrics[name] for name in ends) == len(workload)

    return work


def show(name: str, jobs: int, seconds: float, bare_seconds: float | None = None) -> None:
    """Prints one line of the table."""
    ratio = f"{bare_seconds / seconds:8.2f} of the bare loop's {jobs / bare_seconds:,.0f}" if bare_seconds else ""
    print(f"{name:44} {jobs:>9,} jobs {seconds:8.2f} s {jobs / seconds:>10,.0f} jobs/s {ratio}", flush=True)


def repeated(workload: hdsim.Workload, times: int) -> hdsim.Workload:
    """The same trace several times, one copy after the other."""
    period = workload.submission_time[-1] + 1
    shift = np.repeat(np.arange(times) * period, len(workload))
    return hdsim.Workload.from_columns(
        submission_time=np.tile(workload.submission_time, times) + shift,
        runtime=np.tile(workload.runtime, times),
        requested_time=np.tile(workload.requested_time, times),
        requested_cores=np.tile(workload.requested_cores, times),
    )


def lublin_256(data: Path | None) -> hdsim.Workload:
    """The trace of RLScheduler where it is, else a generated one of the same kind."""
    if data:
        return hdsim.load_workload(data / "traces/lublin_256.swf")
    return lublin.generate(10_000, seed=1, cores=256)


def show_replay(
    name: str, platform: hdsim.Platform, workload: hdsim.Workload, agent: str, bare: float | None = None
) -> None:
    """Prints two lines, with all metrics and with every result column as well; kernels are compiled before."""
    hdsim.simulate(platform, workload[:100], agent)
    for every, made in ((False, "metrics"), (True, "columns")):
        seconds = cpu_seconds(replay(platform, workload, agent, columns=every))
        show(f"{agent}, {name}, {made}", len(workload), seconds, bare)


def bench_strict(data: Path | None) -> None:
    """FCFS and SJF of 100,000 jobs."""
    workload = repeated(lublin_256(data), 10)
    submit, runtime, _, size = columns(workload)
    bare = cpu_seconds(lambda: bare_fcfs(submit, runtime, size, 256))
    for agent in ("fcfs", "sjf"):
        show_replay("256 cores", MACHINE, workload, agent, bare)


def bench_easy(data: Path | None) -> None:
    """EASY backfilling of 10,000 jobs, ten times as many, and these twice as dense, with queues of 18,000 jobs."""
    workload = lublin_256(data)
    listed = columns(workload)
    bare = cpu_seconds(lambda: bare_easy(*listed, 256))
    show_replay("256 cores", MACHINE, workload, "easy", bare)
    longer = repeated(workload, 10)
    show_replay("256 cores, x10", MACHINE, longer, "easy")
    show_replay("256 cores, x10, dense", MACHINE, longer.replaced(submission_time=longer.submission_time / 2), "easy")


def bench_conservative(data: Path | None) -> None:
    """Conservative backfilling of 10,000 jobs."""
    show_replay("256 cores", MACHINE, lublin_256(data), "conservative")


def bench_estimates(data: Path | None) -> None:
    """200,000 generated jobs with estimates of users at a load of 0.89."""
    workload = lublin.generate(200_000, seed=1, cores=240, estimates="tsafrir", arrival_factor=0.42)
    platform = hdsim.Platform.homogeneous(nodes=60, cores_per_node=4)
    for agent in ("easy", "conservative"):
        show_replay("240 cores, Tsafrir", platform, workload, agent)


def bench_month(data: Path | None) -> None:
    """A month of 1,300,000 jobs on 158,976 nodes at a load of 0.9, most of them narrow and short."""
    jobs, nodes, rng = 1_300_000, 158_976, np.random.default_rng(1)
    size = np.clip(rng.lognormal(1.5, 2, jobs).round(), 1, nodes).astype(np.int64)
    runtime = np.clip(rng.lognormal(7.4, 2, jobs).round(), 1, 86_400)
    requested = np.ceil(runtime * rng.uniform(1, 4, jobs) / 600) * 600
    span = float(size @ runtime) / (0.9 * nodes)
    workload = hdsim.Workload.from_columns(
        submission_time=rng.uniform(0, span, jobs), runtime=runtime, requested_time=requested, requested_cores=size
    )
    print(f"month: {span / 86_400:.0f} days")
    platform = hdsim.Platform.homogeneous(nodes=nodes, cores_per_node=1)
    for agent in ("fcfs", "easy"):
        hdsim.simulate(platform, workload[:100], agent)
        show(f"{agent}, 158,976 nodes", jobs, cpu_seconds(replay(platform, workload, agent, columns=False), 1))
        print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB", flush=True)


def bench_gaia(data: Path | None) -> None:
    """Jobs with memory and contention on 2,280 heterogeneous cores: the shipped trace, and a recorded one."""
    gaia = hdsim.load_platform(resolve("platforms", "gaia"))
    shipped = hdsim.load_workload(resolve("workloads", "lublin_4000"), platform=gaia)
    for agent, contention, rounds in (
        ("first-high_gflops", "threshold", 5),
        ("shortest-high_mem_bw", "threshold", 5),
        ("easy", "threshold", 5),
        ("easy", "fair_share", 5),
        ("conservative", "threshold", 1),
    ):
        hdsim.simulate(gaia, shipped[:100], agent, contention=contention)
        seconds = cpu_seconds(replay(gaia, shipped, agent, contention=contention), rounds)
        show(f"{agent}, gaia, {contention}", len(shipped), seconds)
    if data:
        recorded = data / "batsim_runs/gaia_div20_shortest-high_mem_bw/workload.json.gz"
        workload = hdsim.load_workload(recorded, platform=gaia)
        seconds = cpu_seconds(replay(gaia, workload, "shortest-high_mem_bw", contention="threshold"))
        show("shortest-high_mem_bw, gaia, recorded jobs", len(workload), seconds)


def bench_ricc(data: Path | None) -> None:
    """Five months of RICC with memory and contention."""
    if not data:
        return print("ricc: needs --data")
    ricc = hdsim.load_platform(resolve("platforms", "ricc"))
    workload = hdsim.load_workload(data / "traces/RICC-2010-2.swf.gz", platform=ricc)
    seconds = cpu_seconds(replay(ricc, workload, "shortest-high_mem_bw", contention="threshold"), 1)
    show("shortest-high_mem_bw, ricc, threshold", len(workload), seconds)


def bench_memory(data: Path | None) -> None:
    """Backfilling where memory limits jobs: long queues of RICC without contention."""
    if not data:
        return print("memory: needs --data")
    ricc = hdsim.load_platform(resolve("platforms", "ricc"))
    workload = hdsim.load_workload(data / "traces/RICC-2010-2.swf.gz", platform=ricc)
    for agent, jobs in (("easy", 40_000), ("easy", 120_000), ("conservative", 40_000)):
        hdsim.simulate(ricc, workload[:100], agent)
        show(f"{agent}, ricc, memory", jobs, cpu_seconds(replay(ricc, workload[:jobs], agent, columns=False), 1))


def bench_lcg(data: Path | None) -> None:
    """The LCG grid on as many cores."""
    if not data:
        return print("lcg: needs --data")
    workload = hdsim.load_workload(data / "traces/LCG.swf.gz")
    platform = hdsim.Platform.homogeneous(nodes=24_515, cores_per_node=1, gflops_per_core=10.0)
    show("fcfs, LCG on 24,515 cores", len(workload), cpu_seconds(replay(platform, workload, "fcfs"), 1))


def bench_linear(data: Path | None) -> None:
    """Time for 1,000,000 jobs against 100,000."""
    million = lublin.generate(1_000_000, seed=1, cores=256)
    few = cpu_seconds(replay(MACHINE, million[:100_000], "fcfs"), 2)
    many = cpu_seconds(replay(MACHINE, million, "fcfs"), 2)
    show("fcfs, generated", 100_000, few)
    show("fcfs, generated", 1_000_000, many)
    print(f"time of 1,000,000 jobs is {many / few:.1f} x that of 100,000")


LONG = ("month",)
BENCHMARKS = {name.removeprefix("bench_"): work for name, work in list(globals().items()) if name.startswith("bench_")}


def main() -> None:
    """Runs the benchmarks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with traces/ and batsim_runs/")
    parser.add_argument(
        "--only",
        nargs="+",
        choices=BENCHMARKS,
        default=[name for name in BENCHMARKS if name not in LONG],
        metavar="NAME",
    )
    arguments = parser.parse_args()
    for name in arguments.only:
        BENCHMARKS[name](arguments.data)
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB")


if __name__ == "__main__":
    main()
