"""How evenly agents and kube-scheduler spread pods on ten nodes of a real API server: paired differences over seeds.

python benchmarks/balance.py                      # 20 seeds, pods of one size and of several: some minutes
python benchmarks/balance.py --seeds 3 --sizes mixed --only kubernetes_dqn kube-scheduler

The cluster is started and ended by the script. kube-scheduler binds the pods there; agents decide in the simulation, or
with --virtual in simulated time on the same API server, which takes longer and gives the same nodes. Printed are the
standard deviations over the nodes of the utilisation of CPU, mean over time and when all pods are there, and paired
differences with 95 % bootstrap intervals.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from kube import exclusive_cluster
from pod_balance import AGENTS, FIRST_SEED, SIZES, Interval, difference, make_nodes, measure

from hdsim.kubernetes.control_plane import control_planes

BASE = "kube-scheduler"


def shown(interval: Interval) -> str:
    return f"{interval.value:9.5f} ({interval.low:8.5f} to {interval.high:8.5f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--only", nargs="+", choices=AGENTS, default=list(AGENTS))
    parser.add_argument("--virtual", action="store_true", help="agents bind pods on the API server as well")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    seeds = range(FIRST_SEED, FIRST_SEED + options.seeds)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            with exclusive_cluster(folder, "pods") as cluster:
                make_nodes(cluster)
                for sizes in options.sizes:
                    names = list(dict.fromkeys([BASE, *options.only]))
                    found = measure(cluster, names, sizes, seeds, folder, virtual=options.virtual)
                    for column, when in enumerate(("mean over time", "all pods there")):
                        print(f"\n{sizes} pods, {len(seeds)} seeds, {when}: value, less {BASE}'s, less random's")
                        for agent, values in found.items():
                            bases = [base for base in (BASE, "random") if base in found]
                            gaps = [difference(found, agent, base, column) for base in bases]
                            print(
                                f"{agent:16} {values[:, column].mean():9.5f}  {'  '.join(map(shown, gaps))}", flush=True
                            )
        finally:
            for plane in control_planes(folder / "kwok"):
                plane.remove()


if __name__ == "__main__":
    main()
