"""Agents that choose nodes under memory contention against every core policy, on traces that nothing was trained on.

A hundred windows of 200 jobs of twenty traces of `experiment=placement`. Prints means, and for agents the ratio to the
best classic agent of each metric with a 95 % bootstrap interval over traces and windows.

python research/placement.py CHECKPOINT ...
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import hdsim
from hdsim.config.composer import Composer

SEEDS, STARTS, JOBS = range(501, 521), range(200, 1200, 200), 200
CORES = ("high_gflops", "low_power", "high_cores", "high_mem", "high_mem_bw", "random", "spread", "pack")
RULES = ("first", "greedy-saf", "easy-saf")
METRICS = ("mean_turnaround_time", "energy_joules")


def windows(platform: hdsim.Platform) -> list[list[Any]]:
    """The windows of every trace."""
    composer = Composer(config_name="train")
    config: Any = composer.compose(composer.overrides(["experiment=placement"]))["workload"]
    settings = {"memory_bandwidth": config["memory_bandwidth"], "arrival_factor": config["arrival_factor"]}
    source = {**config["generate"], "jobs": STARTS[-1] + JOBS}
    traces = [hdsim.load_workload(source, platform, seed=seed, **settings) for seed in SEEDS]
    return [[trace[first : first + JOBS] for first in STARTS] for trace in traces]


def replayed(agent: Any, traces: list[list[Any]], platform: hdsim.Platform) -> np.ndarray:
    """(T, W, M) metrics of an agent."""
    made = [
        [hdsim.simulate(platform, jobs, agent, contention="fair_share", seed=1).metrics for jobs in trace]
        for trace in traces
    ]
    return np.array([[[metrics[name] for name in METRICS] for metrics in trace] for trace in made])


def interval(agent: np.ndarray, other: np.ndarray) -> tuple[float, float]:
    """95 % interval of the ratio of means, traces and then their windows being drawn again."""
    rng, (traces, size) = np.random.default_rng(0), agent.shape
    rows = rng.integers(traces, size=(2000, traces, 1))
    columns = rng.integers(size, size=(2000, traces, size))
    ratios = agent[rows, columns].mean(axis=(1, 2)) / other[rows, columns].mean(axis=(1, 2))
    return tuple(np.quantile(ratios, [0.025, 0.975]))


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoints", nargs="+", metavar="CHECKPOINT", help="of agent=ppo, names or files")
    names = parser.parse_args().checkpoints
    platform = hdsim.load_platform("platforms/twelve_nodes.json")
    traces = windows(platform)
    classic = {}
    for cores in CORES:
        for rule in RULES:
            classic[f"{rule}-{cores}"] = replayed(f"{rule}-{cores}", traces, platform)
    found = {
        name: replayed({"_target_": "hdsim.agents.ppo.PPOAgent", "checkpoint": name}, traces, platform)
        for name in names
    }
    means = np.mean(list(found.values()), axis=0)
    for name, scores in (classic | found | {"mean of the agents": means}).items():
        print(f"{name:28}" + "".join(f"{scores[..., i].mean():16,.0f}" for i in range(len(METRICS))), end="")
        for i in range(len(METRICS)) if name not in classic else ():
            best = min(classic.values(), key=lambda scores, i=i: float(scores[..., i].mean()))
            low, high = interval(scores[..., i], best[..., i])
            print(f"   {scores[..., i].mean() / best[..., i].mean():.3f} ({low:.3f} to {high:.3f})", end="")
        print()


if __name__ == "__main__":
    main()
