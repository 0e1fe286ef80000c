"""Speed and memory of a replay of a generated year of a Slurm site under its own rules.

By default 1,000 nodes, 20 partitions, 200 accounts and 500,000 jobs of a load of 0.85, multifactor priorities with Fair
Tree, sched/backfill every 30 s over 500 jobs. Days and weeks have cycles, users have favourite partitions and sizes.

python benchmarks/site_year.py
python benchmarks/site_year.py --jobs 50000 --nodes 1000 --days 36
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np

from hdsim.agents.slurm import SlurmAgent
from hdsim.platform.model import Platform
from hdsim.simulation.simulation import simulate
from hdsim.site.model import Site, site_of
from hdsim.site.platform import platform_document
from hdsim.workload.model import Workload

#: CPUs of a node.
_CPUS = 64
_DAY = 86_400.0


def make_site(nodes: int, partitions: int, accounts: int, users: int) -> Site:
    """Returns a site whose first partition has all nodes and whose others have parts of them."""
    kinds = {"cpu": {"nodes": f"n[1-{nodes}]", "cpus": _CPUS, "cores_per_socket": _CPUS, "memory": 256_000}}
    parts = {"all": {"nodes": "ALL", "default": True, "max_time": 3 * _DAY, "priority_job_factor": 1}}
    for number in range(1, partitions):
        width = max(nodes // (2 + number % 8), 1)
        first = 1 + (number * 37) % max(nodes - width, 1)
        parts[f"p{number}"] = {
            "nodes": f"n[{first}-{first + width - 1}]",
            "max_time": (1 + number % 7) * _DAY,
            "priority_job_factor": 1 + number % 5,
            "priority_tier": 1 + (number % 5 == 0),
        }
    rows = [{"account": f"a{row}", "shares": 1 + row % 13} for row in range(accounts)]
    rows += [{"account": f"a{row % accounts}", "user": f"u{row}"} for row in range(users)]
    return site_of(
        {
            "nodes": kinds,
            "partitions": parts,
            "associations": rows,
            "qos": {
                "normal": {"priority": 10},
                "high": {"priority": 100, "limits": {"max_tres_per_user": {"cpu": 4096}}},
            },
            "priority": {
                "weight_age": 1000,
                "weight_fair_share": 10_000,
                "weight_job_size": 200,
                "weight_partition": 500,
                "weight_qos": 2000,
            },
            "slurm": {"enforce": ["associations", "limits", "qos"], "parameters": {"bf_max_job_test": 500}},
        },
        "benchmark",
    )


def make_jobs(
    site: Site, nodes: int, jobs: int, days: float, load: float, users: int, seed: int = 1, sizes: int = 11
) -> Workload:
    """Returns jobs of a load on the site, of the first of the sizes 1, 2, 4 ... 1024 CPUs."""
    rng = np.random.default_rng(seed)
    # Thinning makes days and weeks.
    times = rng.uniform(0.0, days * _DAY, 4 * jobs)
    busy = 0.55 + 0.45 * np.sin(2 * np.pi * (times / _DAY - 0.3)) * np.where((times // _DAY) % 7 < 5, 1.0, 0.3)
    submitted = np.sort(times[rng.random(len(times)) < busy][:jobs]).round()
    jobs = len(submitted)
    user = np.minimum(rng.zipf(1.3, jobs) - 1, users - 1)
    names = list(site.partitions)
    partition = np.where(rng.random(jobs) < 0.4, 0, (user * 7 + rng.integers(0, 2, jobs)) % len(names))
    parts = np.array([9, 5, 6, 7, 10, 12, 14, 12, 8, 4, 2][:sizes])
    cpus = 2 ** rng.choice(sizes, jobs, p=parts / parts.sum())
    runtime = rng.lognormal(8.0, 1.6, jobs).clip(30, 2.5 * _DAY)
    most = np.array([site.partitions[name].max_time for name in names])[partition]
    for _ in range(20):  # limits of partitions cut what the load needs
        runtime *= load * nodes * _CPUS * days * _DAY / float(runtime @ cpus)
        runtime = np.minimum(runtime.round().clip(10), most * 0.98)
    limit = np.minimum(np.ceil(runtime * rng.choice([1.05, 1.5, 3.0, 8.0], jobs) / 900) * 900, most)
    accounts = sum(not one.user for one in site.associations)
    return Workload.from_columns(
        submission_time=submitted,
        runtime=runtime,
        requested_cores=cpus,
        requested_time=np.maximum(limit, runtime),
        user=user,
        group=user % accounts,
        queue=(rng.random(jobs) < 0.1).astype(int),
        partition=partition,
        names={
            "user": {row: f"u{row}" for row in range(users)},
            "group": {row: f"a{row}" for row in range(accounts)},
            "queue": {0: "normal", 1: "high"},
            "partition": dict(enumerate(names)),
        },
        further={"cpus": cpus},
    )


def bench(nodes: int, partitions: int, accounts: int, jobs: int, days: float, load: float) -> None:
    """Prints time and memory of a replay."""
    users = 4 * accounts
    site = make_site(nodes, partitions, accounts, users)
    workload = make_jobs(site, nodes, jobs, days, load, users)
    platform = Platform.from_dict(platform_document(site), "benchmark")
    begin, cpu = time.perf_counter(), time.process_time()
    result = simulate(platform, workload, SlurmAgent(site))
    wall, cpu = time.perf_counter() - begin, time.process_time() - cpu
    metrics = result.metrics
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(
        f"{len(workload):,} jobs in {days:g} days on {nodes:,} nodes: {wall:.1f} s, {cpu:.1f} s of CPU, {used:.2f} GB; "
        f"utilization {metrics['utilization']:.3f}, mean wait {metrics['mean_waiting_time']:,.0f} s"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--partitions", type=int, default=20)
    parser.add_argument("--accounts", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=500_000)
    parser.add_argument("--days", type=float, default=365.0)
    parser.add_argument("--load", type=float, default=0.85)
    given = parser.parse_args()
    bench(given.nodes, given.partitions, given.accounts, given.jobs, given.days, given.load)
