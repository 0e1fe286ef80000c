"""Steps per second of the environment with random legal actions, and how vector environments scale with processes.

Single environments: CPU time on one core. The same steps are played in several rounds and the least time of each piece
counts, so that other work on the machine disturbs little; a bare Python loop is timed alike, for comparison between
machines. Vector environments: wall time, so the cores must be free.

python benchmarks/envs.py
python benchmarks/envs.py --steps 20000 --rounds 5 --vector
"""

from __future__ import annotations

import argparse
import itertools
import logging
import time
from typing import Any

import numpy as np
from gymnasium.vector import SyncVectorEnv, VectorEnv

import hdsim
from hdsim.envs.scheduling import SchedulingEnv
from hdsim.envs.vector import SchedulingVectorEnv
from hdsim.workload.generators.lublin import generate

PIECE = 10
CASES: dict[str, dict[str, Any]] = {
    "policy_pair, minimal, 256 cores": {"platform": "homogeneous_256", "action": "policy_pair"},
    "job, jobs 128 x 8, 256 cores": {
        "platform": "homogeneous_256",
        "action": "job",
        "observation": "jobs",
        "objective": "bounded_slowdown",
    },
    "policy_pair, normal, gaia": {
        "platform": "gaia",
        "action": "policy_pair",
        "observation": "normal",
        "contention": "threshold",
    },
    "node, nodes, gaia": {"platform": "gaia", "action": "node", "observation": "nodes", "contention": "threshold"},
    "job, graph (32 jobs), gaia": {"platform": "gaia", "action": "job", "observation": "graph", "queue_size": 32},
}


def settings(case: dict[str, Any]) -> dict[str, Any]:
    """Arguments of the environment: windows of 1024 jobs of the Lublin-Feitelson model, the load of a busy machine."""
    platform = hdsim.load_platform(f"platforms/{case['platform']}.json")
    workload = generate(10_000, seed=1, cores=256, memory=[250.0, 500.0, 1000.0])
    if platform.n_cores > 256:
        workload = workload.scaled_arrivals(256 / platform.n_cores)
    rng = np.random.default_rng(1)
    workload = workload.replaced(memory_bandwidth=rng.choice([4.0, 8.0, 12.0, 16.0, 20.0, 24.0], len(workload)))
    return {"jobs": 1024, **case, "platform": platform, "workload": workload}


def choose(mask: np.ndarray, share: float) -> int:
    """A random legal action."""
    legal = mask.nonzero()[0]
    return int(legal[int(share * len(legal))])


def steps_per_second(case: dict[str, Any], steps: int, rounds: int) -> float:
    """Of one environment, choice of random actions and resets included."""
    env = SchedulingEnv(**settings(case))
    shares = np.random.default_rng(0).random(steps).tolist()
    least = np.full(-(-steps // PIECE), np.inf)
    for _ in range(rounds):
        _, info = env.reset(seed=1)
        for piece in range(len(least)):
            begin = time.process_time_ns()
            for share in shares[piece * PIECE : (piece + 1) * PIECE]:
                *_, terminated, truncated, info = env.step(choose(info["action_mask"], share))
                if terminated or truncated:
                    _, info = env.reset()
            seconds = (time.process_time_ns() - begin) * 1e-9
            least[piece] = min(least[piece], seconds)
    return steps / float(least.sum())


def choose_all(masks: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """A random legal action of each environment."""
    counts = masks.cumsum(axis=1)
    return (counts > (shares * counts[:, -1]).astype(int)[:, None]).argmax(axis=1)


def vector_steps_per_second(case: dict[str, Any], steps: int, rounds: int) -> list[float]:
    """Wall-clock steps a second of 8 environments, without the choice of random actions.

    In Gymnasium's own vector of one process, and in hdsim's of one and of two. All take turns, for the speed of a
    machine changes with what else runs on it.
    """
    chosen = settings(case)
    vectors: list[VectorEnv[Any, Any, Any]] = [
        SyncVectorEnv([lambda: SchedulingEnv(**chosen)] * 8),
        *(SchedulingVectorEnv(num_envs=8, workers=workers, **chosen) for workers in (1, 2)),
    ]
    shares = np.random.default_rng(0).random((steps, 8))
    least = np.full((len(vectors), steps), np.inf)
    try:
        for _, (vector, fewest) in itertools.product(range(rounds), zip(vectors, least, strict=True)):
            _, info = vector.reset(seed=1)
            for step, share in enumerate(shares):
                actions = choose_all(np.stack(info["action_mask"]), share)
                begin = time.perf_counter()
                *_, info = vector.step(actions)
                fewest[step] = min(fewest[step], time.perf_counter() - begin)
    finally:
        for vector in vectors:
            vector.close()
    return [8 * steps / float(fewest.sum()) for fewest in least]


def overloaded() -> dict[str, Any]:
    """The whole trace as one episode whose queue is longer than the observation."""
    chosen = settings(CASES["job, jobs 128 x 8, 256 cores"])
    return chosen | {"workload": chosen["workload"].scaled_arrivals(0.05), "jobs": None}


def batch_steps_per_second(chosen: dict[str, Any], workers: int, steps: int) -> tuple[float, float]:
    """Of 64 environments in one batch, without the choice of random actions.

    Returns:
        Wall-clock steps a second of the median step and of the fastest tenth of the steps.
    """
    vector = hdsim.make_vec(64, workers=workers, **chosen)
    seconds = []
    _, info = vector.reset(seed=1)
    for share in np.random.default_rng(0).random((steps, 64)):
        actions = choose_all(info["action_mask"], share)
        begin = time.perf_counter()
        *_, info = vector.step(actions)
        seconds.append(time.perf_counter() - begin)
    vector.close()
    return 64 / float(np.median(seconds)), 64 / float(np.quantile(seconds, 0.1))


def loop_nanoseconds() -> float:
    """Least time of a turn of a bare loop, ns."""
    best = float("inf")
    for _ in range(2000):
        begin = time.process_time_ns()
        for i in range(5000):
            _ = i * i
        best = min(best, (time.process_time_ns() - begin) / 5000)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--vector", action="store_true", help="also 8 environments in one and in two processes")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    print(f"a turn of a bare loop: {loop_nanoseconds():.1f} ns")
    batches = {
        "job, jobs 128 x 8, overloaded": overloaded(),
        "policy_pair, normal, gaia": settings(CASES["policy_pair, normal, gaia"]),
    }
    for (name, chosen), workers in itertools.product(batches.items(), (1, 2)):
        median, fastest = batch_steps_per_second(chosen, workers, options.steps)
        print(
            f"{name} in batches of 64, {workers} threads: {median:,.0f} steps/s, fastest tenth {fastest:,.0f}",
            flush=True,
        )
    for name, case in CASES.items():
        print(f"{name:34} {steps_per_second(case, options.steps, options.rounds):10,.0f} steps/s", flush=True)
        if options.vector:
            # Two processes are left in peace at the same time less often than one: few steps, many rounds.
            theirs, one, two = vector_steps_per_second(case, options.steps // 32, 4 * options.rounds)
            print(
                f"{'':34} 8 environments: {one:,.0f} steps/s in 1 process, {two:,.0f} in 2: x {two / one:.2f}, and "
                f"x {two / theirs:.2f} of Gymnasium's SyncVectorEnv ({theirs:,.0f})",
                flush=True,
            )


if __name__ == "__main__":
    main()
