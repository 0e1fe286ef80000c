"""Adds scores on validation windows to model cards, with baselines and intervals; no test window is replayed.

python research/model_cards.py --windows 12 --baselines laf-high_gflops greedy-laf-high_gflops -- gaia_saf-1

The windows precede the test windows of the card's trace. Where an agent was trained on that trace, it has not seen the
jobs of the windows only if there are no more of them than during its training.
"""

from __future__ import annotations

import argparse
import json
import textwrap
from pathlib import Path
from typing import Any

from hdsim.config.composer import Composer
from hdsim.learning.training import model_card
from hdsim.runs.trainings import build_training
from hdsim.scheduling.agent import make_agent
from hdsim.util.files import dump_json
from hdsim.util.resources import bundled

HEADING, NEXT = "## Validation windows\n", "## Traces\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", help="names of bundled checkpoints, or files")
    parser.add_argument("--windows", type=int, help="number of windows; default: as many as during the training")
    parser.add_argument("--baselines", nargs="*", help="default: the orders that could do what the agent may")
    options = parser.parse_args()
    defaults = Composer(config_name="train").compose([])
    for given in options.names:
        checkpoint = bundled("checkpoints").get(given, Path(given))
        name, path = checkpoint.stem, checkpoint.with_suffix(".json")
        card = json.loads(path.read_text())
        config = card["config"]
        chosen = {"validation": options.windows or config["train"]["validation"], "baselines": options.baselines}
        train = {**defaults["train"], **config["train"], **chosen}
        # Cards of earlier versions lack some keys, and have others that are no more.
        present = {
            group: {key: config[group].get(key, value) for key, value in defaults[group].items()}
            for group in ("platform", "workload", "backend")
        }
        setup = build_training({**defaults, **config, **present, "train": train})
        agents = {name: make_agent({**config["agent"], "checkpoint": str(checkpoint)}), **setup.baselines}
        replays = {agent: setup.evaluation.replays(spec, setup.validation) for agent, spec in agents.items()}
        found = model_card.compared(setup.evaluation, replays, name, setup.baselines)
        windows = [setup.described(window) for window in setup.validation]
        card["validation"] = {"windows": windows, **found}
        dump_json(path, card)
        text = path.with_suffix(".md").read_text()
        before, after = text.partition(NEXT)[0].partition(HEADING)[0], text.partition(NEXT)[2]
        path.with_suffix(".md").write_text(f"{before}{section(card)}{NEXT}{after}")
        print(f"{name}\n{model_card.scores_table({**card, **found})}\n", flush=True)


def section(card: dict[str, Any]) -> str:
    """The part of the card about its validation windows."""
    windows, tests = card["validation"]["windows"], len(card["test_windows"])
    told = (
        f"Mean {card['metric']} of the {len(windows)} windows of {windows[0]['jobs']} jobs before the test windows. "
        f"Differences have 95 % bootstrap intervals over these windows, which are of one trace: neither they nor the "
        f"score on {tests} test window{'s' * (tests > 1)} above are a claim (docs/compare.md)."
    )
    if len(card["curve"]) > 2 and len(windows) == len(card["validation_windows"]):
        told += " They have chosen the step of the agent, too, so that its score on them is too good."
    return f"{HEADING}\n{textwrap.fill(told, 120)}\n\n{model_card.scores_table({**card, **card['validation']})}\n\n"


if __name__ == "__main__":
    main()
