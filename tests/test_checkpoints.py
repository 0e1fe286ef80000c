"""Trained agents that come with hdsim: they load and are as good as documented."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import rlscheduler

import hdsim
from hdsim.gangs.load import GANG_KEYS, load_gang
from hdsim.gangs.simulation import Gang
from hdsim.learning.controller import Learned
from hdsim.platform.load import load_platform
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


GANGS = [name for name in CARDS if "platform" not in card(name)]


def test_every_checkpoint_has_a_card() -> None:
    assert CARDS and list(bundled("checkpoints")) == CARDS


@pytest.mark.parametrize("name", GANGS)
def test_a_controller_of_gangs_takes_as_long_as_its_card_says(name: str) -> None:
    facts = card(name)
    config, score = facts["config"], facts["scores"]["best"][0]
    planner, workloads = load_gang(**{key: config[key] for key in GANG_KEYS})
    gang = Gang(planner, workloads.actual, Learned(name), config["start"], config["supersteps"], config["penalty"])
    assert run_alone(gang).metrics["total"] == pytest.approx(score, rel=0.01)
    assert score < min(facts["scores"]["static_window"][0], facts["scores"]["dynamic_mpc"][0])


@pytest.mark.parametrize("name", [name for name in CARDS if name not in GANGS])
def test_a_checkpoint_scores_on_the_first_test_window_what_its_card_says(name: str) -> None:
    facts = card(name)
    config = facts["config"]
    platform = load_platform(folder("platforms") / f"{config['platform']['path']}.json")
    named = config["workload"]["path"]
    trace = load_workload(
        bundled("workloads")[named] if named else config["workload"]["generate"],
        platform=platform,
        seed=config["seed"],
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


@pytest.mark.parametrize(
    ("name", "limit"),
    [
        ("rlscheduler", min(254.67, *(alone for alone, _ in rlscheduler.PUBLISHED.values()))),
        ("rlscheduler_backfill", min(58.64, *(filled for _, filled in rlscheduler.PUBLISHED.values()))),
    ],
)
def test_the_published_agent_and_orders_are_beaten_on_its_windows(shared_data: Path, name: str, limit: float) -> None:
    """Mean over seeds, on RLScheduler's windows of Lublin-1, without and with its backfilling."""
    platform = load_platform(folder("platforms") / "homogeneous_256.json")
    trace = load_workload(shared_data / "traces" / "lublin_256.swf", platform=platform, memory_bandwidth="none")
    windows = [trace[first : first + rlscheduler.LENGTH] for first in rlscheduler.WINDOWS]
    seeds = [each for each in CARDS if each.startswith(f"{name}-")]
    scores = [
        hdsim.simulate(platform, window, shipped(each), batch_events=False).metrics["mean_bounded_slowdown"]
        for each in seeds
        for window in windows
    ]
    assert len(seeds) >= 3
    assert np.mean(scores) < limit
