"""From Python: which core policy saves the most energy on a mixed platform, and what it costs in waiting.

python examples/energy_of_pairs.py
"""

import hdsim
from hdsim.util.resources import resolve


def main() -> None:
    """Replays the first jobs of the bundled trace under six pairs and prints a line for each."""
    platform = hdsim.load_platform(resolve("platforms", "gaia"))
    workload = hdsim.load_workload(resolve("workloads", "lublin_4000"), platform=platform, jobs=500)
    print(f"{'pair':24} {'energy':>10} {'mean wait':>12} {'makespan':>10}")
    for core_policy in ("random", "high_gflops", "high_cores", "high_mem", "high_mem_bw", "low_power"):
        pair = f"shortest-{core_policy}"
        metrics = hdsim.simulate(platform, workload, pair, contention="threshold", seed=1).metrics
        energy, wait, makespan = (metrics[key] for key in ("energy_joules", "mean_waiting_time", "makespan"))
        print(f"{pair:24} {energy / 3.6e9:7.2f} MWh {wait / 3600:10.1f} h {makespan / 86_400:8.2f} d")


if __name__ == "__main__":
    main()
