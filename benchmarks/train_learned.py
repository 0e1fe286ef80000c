"""Trains the network of the order learned by evolution and writes its card.

python benchmarks/train_learned.py --seed 1 learned-1.json
hdsim run agent.job_policy=learned-1.json agent.backfill=easy

Progress lines have the mean logarithm of the mean bounded slowdown relative to smallest area first, on windows of the
validation split: EASY, RLScheduler's backfilling, no backfilling.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np

from hdsim.learning.orders import RULES, Evolution, draw_away, draw_home, log_ratio, smallest_area_first
from hdsim.util.files import dump_json

WINDOWS = 30


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("card", type=Path, help="file that receives the weights")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--generations", type=int, default=Evolution.generations)
    options = parser.parse_args()
    begin, evolution = time.process_time(), Evolution(seed=options.seed, generations=options.generations)
    rng = np.random.default_rng(0)
    windows = {
        "home": [draw_home(rng, "validation") for _ in range(WINDOWS)],
        "away": [draw_away(rng, "validation") for _ in range(WINDOWS)],
    }
    validation: dict[str, list[float]] = {}
    for generation in range(options.generations + 1):
        if generation % 20 == 0 or generation == options.generations:
            for name, drawn in windows.items():
                ratios = [log_ratio(drawn, evolution.weights, smallest_area_first(), rule) for rule in list(RULES)[:3]]
                validation[name] = [round(float(np.exp(ratio.mean())), 4) for ratio in ratios]
            print(f"{generation:4}  {time.process_time() - begin:5.0f} s  {json.dumps(validation)}", flush=True)
        if generation < options.generations:
            evolution.advance()
    card = {
        "seed": options.seed,
        "generations": options.generations,
        "cpu_seconds": round(time.process_time() - begin),
        "validation_of_saf": validation,
        "weights": evolution.weights.tolist(),
    }
    dump_json(options.card, card)


if __name__ == "__main__":
    main()
