"""Mean bounded slowdown of agents and classic orders under RLScheduler's protocol, on generated or published windows.

Generated windows are nine of 1,024 jobs of each of some typeless Lublin traces for 256 cores, which nothing was trained
on. With --trace, the windows are the ten of the published evaluation, from RLScheduler's lublin_256.swf.

python research/rlscheduler_windows.py rlscheduler-1
python research/rlscheduler_windows.py --backfill --trace lublin_256.swf rlscheduler_backfill-1
"""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import hdsim
from hdsim.scheduling.agent import Agent, make_agent
from hdsim.util.resources import bundled, folder
from hdsim.workload.generators.lublin import generate

PUBLISHED = (1981, 2756, 4299, 8850, 3316, 2714, 5228, 7762, 4022, 7085)
LENGTH = 1024
SEEDS = range(501, 521)
ORDERS = ("saf", "f1", "f2", "f3", "f4", "sjf")


def windows(trace: str | None, platform: hdsim.Platform) -> Iterator[hdsim.Workload]:
    """The windows to replay."""
    if trace is not None:
        jobs = hdsim.load_workload(trace, platform=platform, memory_bandwidth="none")
        yield from (jobs[first : first + LENGTH] for first in PUBLISHED)
        return
    for seed in SEEDS:
        jobs = generate(10_000, seed=seed, cores=256, typed=False)
        yield from (jobs[first : first + LENGTH] for first in range(100, 8900, LENGTH))


def trained(name: str) -> Agent:
    """An agent that comes with hdsim, or of a file beside its card."""
    path = bundled("checkpoints").get(name, Path(name))
    config = json.loads(path.with_suffix(".json").read_text())["config"]
    return make_agent({"_target_": config["agent"]["_target_"], "checkpoint": str(path)})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoints", nargs="*", help="names of trained agents, or files")
    parser.add_argument("--backfill", action="store_true", help="RLScheduler's backfilling for the orders")
    parser.add_argument("--trace", metavar="FILE", help="lublin_256.swf, for the published windows")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    platform = hdsim.load_platform(folder("platforms") / "homogeneous_256.json")
    protocol = {"commit_head": True, "backfill": "rlscheduler" if options.backfill else "none"}
    agents = {name: trained(name) for name in options.checkpoints}
    agents |= {order: make_agent({"job_policy": order, **protocol}) for order in ORDERS}
    replayed = list(windows(options.trace, platform))
    for name, agent in agents.items():
        scores = [
            hdsim.simulate(platform, jobs, agent, batch_events=False).metrics["mean_bounded_slowdown"]
            for jobs in replayed
        ]
        print(f"{name:24} {np.mean(scores):8.2f}  of {len(scores)} windows", flush=True)


if __name__ == "__main__":
    main()
