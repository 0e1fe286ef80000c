"""Trained agents that come with hdsim: they load, schedule, and have the scores of their cards.

No test depends on whether an agent is better than another one, so that none selects agents on test windows.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import hdsim
from hdsim.config.inputs import seed_of_jobs
from hdsim.gangs.simulation import Gang
from hdsim.gangs.workloads import GANG_KEYS, load_gang
from hdsim.learning.controller import Learned
from hdsim.platform.load import load_platform
from hdsim.platform.schema import CORES
from hdsim.scheduling.agent import Agent, make_agent
from hdsim.simulation.alone import run_alone
from hdsim.util.resources import bundled, folder
from hdsim.workload.load import load_workload

pytestmark = pytest.mark.requires("torch")

CARDS = sorted(path.with_suffix("").name for path in folder("checkpoints").glob("*.json"))


def card(name: str) -> dict:
    return json.loads((folder("checkpoints") / f"{name}.json").read_text())


def shipped(name: str) -> Agent:
    return make_agent({**card(name)["config"]["agent"], "checkpoint": name})


def _generator(workload: dict) -> dict:
    return {**workload["generate"], **({"family": workload["family"]} if workload.get("family") else {})}


GANGS = [name for name in CARDS if "platform" not in card(name)]


def test_every_checkpoint_has_a_card() -> None:
    assert CARDS and list(bundled("checkpoints")) == CARDS


def test_checkpoints_of_research_are_read_by_their_paths(root: Path) -> None:
    files = sorted((root / "research/checkpoints").glob("*.safetensors"))
    assert files and not {file.stem for file in files} & {*CARDS}
    for file in files:
        config = json.loads(file.with_suffix(".json").read_text())["config"]
        make_agent({**config["agent"], "checkpoint": str(file)})


@pytest.mark.parametrize("name", CARDS)
def test_every_card_has_baselines(name: str) -> None:
    facts = card(name)
    part = facts.get("validation", facts)
    assert part["means"][part["best_classic"]] == pytest.approx(np.mean(part["scores"][part["best_classic"]]))
    if "validation" in facts:
        places = [{window["jobs_sha256"] for window in windows} for windows in (part["windows"], facts["test_windows"])]
        assert not places[0] & places[1] and len(part["windows"]) == len(part["scores"][name])
        difference, low, high = part["differences"][part["best_classic"]]
        assert difference == pytest.approx(part["means"][name] - part["means"][part["best_classic"]])
        assert low <= difference <= high


@pytest.mark.parametrize("name", GANGS)
def test_a_controller_of_gangs_takes_as_long_as_its_card_says(name: str) -> None:
    facts = card(name)
    config, score = facts["config"], facts["scores"]["best"][0]
    planner, workloads = load_gang(**{key: config[key] for key in GANG_KEYS})
    gang = Gang(planner, workloads.actual, Learned(name), config["start"], config["supersteps"], config["penalty"])
    assert run_alone(gang).metrics["total"] == pytest.approx(score, rel=0.01)


@pytest.mark.parametrize("name", [name for name in CARDS if name not in GANGS])
def test_a_checkpoint_scores_on_the_first_test_window_what_its_card_says(name: str) -> None:
    facts = card(name)
    config = facts["config"]
    platform = load_platform(folder("platforms") / f"{config['platform']['path']}.json")
    named = config["workload"]["path"]
    trace = load_workload(
        bundled("workloads")[named] if named else _generator(config["workload"]),
        platform=platform,
        seed=seed_of_jobs(config),
        memory_bandwidth=config["workload"]["memory_bandwidth"],
        runtime=config["workload"]["runtime"],
        arrival_factor=config["workload"]["arrival_factor"],
    )
    jobs = config["train"]["window_jobs"]
    first = len(trace) - config["train"]["test"] * jobs
    metrics = hdsim.simulate(
        platform,
        trace[first : first + jobs],
        shipped(name),
        contention=config["contention"],
        batch_events=config["backend"]["batch_events"],
        seed=config["seed"],
    ).metrics
    # Processors round sums differently, which may turn a close decision.
    assert metrics[facts["metric"]] == pytest.approx(facts["scores"]["best"][0], rel=0.05)


@pytest.mark.parametrize("name", [name for name in CARDS if name not in GANGS])
def test_a_checkpoint_schedules_jobs_that_decide_nothing(name: str) -> None:
    """Every job ends, one that never waits starts at once; whether an agent is good, studies say and no test.

    An agent that may delay jobs may do so on an idle machine, too.
    """
    facts = card(name)
    config = facts["config"]
    platform = load_platform(folder("platforms") / f"{config['platform']['path']}.json")
    trace = load_workload("lublin_4000_train", platform=platform, jobs=40, seed=3)
    if platform.kind == CORES:
        trace = trace.replaced(memory=0.0, memory_bandwidth=0.0)
    options = {"batch_events": config["backend"]["batch_events"]}
    busy, again = (hdsim.simulate(platform, trace, shipped(name), **options) for _ in range(2))
    assert np.array_equal(busy.finish_time, again.finish_time)
    assert not np.isnan(busy.finish_time).any()
    if facts["task"]["action"] == "accept":
        return
    idle = trace.scaled_arrivals(1e4)
    assert np.array_equal(hdsim.simulate(platform, idle, shipped(name), **options).starting_time, idle.submission_time)
