"""The table of metrics: complete, documented, and obeyed by all that call one value better than another."""

from __future__ import annotations

import itertools
import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_details import mixed
from test_gpus import THREE

import hdsim
from hdsim.errors import ConfigError
from hdsim.results import metrics
from hdsim.results.metrics import METRICS, Direction

HIGHER = {
    "utilization",
    "steady_utilization",
    "gpu_utilization",
    "exploitation",
    "throughput",
    "jain_fairness",
    "availability",
    "goodput",
    "jobs_completed",
    "jobs_per_second",
}
STATES = ("on", "idle", "going_down", "off", "booting")
NEITHER = {"gpu_hours", "nodes", "failures", "boots"} | {
    f"{of}_{state}" for of in ("node_hours", "joules") for state in STATES
}
ROOT = Path(__file__).resolve().parents[2]


def test_every_metric_has_the_direction_that_its_meaning_asks_for() -> None:
    lower = dict.fromkeys(METRICS.keys() - HIGHER - NEITHER, Direction.LOWER)
    expected = lower | dict.fromkeys(HIGHER, Direction.HIGHER) | dict.fromkeys(NEITHER, Direction.NEITHER)
    assert {name: metric.direction for name, metric in METRICS.items()} == expected
    assert {name: metrics.direction(f"mean_{name}") for name in METRICS} == expected


@pytest.mark.requires("torch")
def test_an_evaluation_follows_the_direction_of_its_metric() -> None:
    from hdsim.learning.training.evaluation import Evaluation

    for name in METRICS:
        evaluation = Evaluation(name, hdsim.simulate)
        assert evaluation.better(0.9, 0.5) == (name in HIGHER), name
        assert evaluation.better(0.5, 0.9) == (name not in HIGHER | NEITHER), name
        assert not evaluation.better(math.nan, 0.5) and not evaluation.better(0.5, 0.5), name


def test_every_metric_of_a_run_is_in_the_table_and_the_other_way_round() -> None:
    one = hdsim.Workload.from_columns(submission_time=[0], runtime=[1], requested_cores=[1])
    slack = hdsim.Workload.from_columns(submission_time=[0], runtime=[1], requested_cores=[1], extra={"slack": [1]})
    states = {"off": {"watts": 1}, "going_down": {"watts": 5, "seconds": 3}, "booting": {"watts": 9, "seconds": 5}}
    asleep = hdsim.Platform.homogeneous(2, 2, power_per_core=10, states=states)
    runs = (
        mixed(),
        hdsim.simulate(THREE, one, failures="exponential"),
        hdsim.simulate(THREE.of_kind("quantities"), one),
        hdsim.simulate(THREE, one, facility={"price": 1, "carbon": 1}),
        hdsim.simulate(THREE, slack),
        hdsim.simulate(asleep, one, power={"_target_": "hdsim.power.PowerManagement", "suspend_time": 60, "cap": 1e6}),
    )
    found = {name for result in runs for name in metrics.full(result)}
    assert not [name for name in found if not metrics._entry(name).description]
    assert {entry for name in found for entry in (name, name.partition("_")[2])} >= set(METRICS)


@pytest.mark.requires("torch")
def test_evolution_moves_towards_better_values_of_its_metric() -> None:
    """The score is a known function of the weights: exp of their sum. It rises for goodput and falls for lost work."""
    import torch
    from training_setups import make_setup

    from hdsim.learning.training.evaluation import Evaluation

    class SumOfWeights(Evaluation):
        def scores(self, agent: Any, windows: Any) -> np.ndarray:
            return np.full(len(windows), np.exp(total(agent) / 100))

    def total(agent: Any) -> float:
        return float(sum(parameter.sum() for parameter in agent.network.parameters()).detach())

    for name, sign in (("goodput", 1), ("utilization", 1), ("lost_work", -1)):
        torch.manual_seed(1)
        setup = make_setup(
            "platform=teaching",
            "workload.path=even_1000",
            "workload.jobs=300",
            "workload.memory_bandwidth=none",
            "env.objective=makespan",
            "env.jobs=20",
            "env.pairs=[first-low_power,shortest-high_gflops]",
            "agent=evolution",
            "train.validation=1",
            "train.test=2",
        )
        agent: Any = setup.agent
        agent._evaluation = SumOfWeights(name, hdsim.simulate)
        before = total(agent)
        agent._generation([[0, 0, 20]])
        assert np.sign(total(agent) - before) == sign, name


@pytest.mark.requires("torch")
@pytest.mark.parametrize(("name", "higher"), [("jobs_completed", True), ("jobs_killed", False)])
def test_a_model_card_ranks_agents_by_the_direction_of_the_metric(tmp_path: Path, name: str, higher: bool) -> None:
    from training_setups import train

    from hdsim.learning.training import model_card

    _, facts = train(
        tmp_path / "run",
        "platform=teaching",
        "workload.path=even_1000",
        "workload.jobs=300",
        "workload.memory_bandwidth=none",
        "env.objective=makespan",
        "env.jobs=20",
        "env.pairs=[first-low_power,shortest-high_gflops]",
        "agent=ppo",
        f"train.metric={name}",
        "train.steps=40",
        "train.validation=1",
        "train.test=1",
        "train.baselines=[fcfs,sjf]",
    )
    assert facts["higher_is_better"] is higher
    ranked = model_card._best_first(facts | {"means": {"one": 1.0, "three": 3.0, "two": 2.0}})
    assert ranked == (["three", "two", "one"] if higher else ["one", "two", "three"])


@pytest.mark.requires("torch")
def test_an_agent_is_not_judged_by_a_metric_without_a_direction() -> None:
    from hdsim.learning.training.evaluation import Evaluation

    platform = hdsim.Platform.homogeneous(nodes=1, cores_per_node=1)
    workload = hdsim.Workload.from_columns(submission_time=[0], runtime=[1], requested_cores=[1])
    replay = partial(hdsim.simulate, platform, failures="exponential")
    with pytest.raises(ConfigError, match=r"train.metric: .* high or low values are better, got 'failures'"):
        Evaluation("failures", replay).scores("fcfs", [workload])


def test_load_imbalance_of_cores_by_hand() -> None:
    platform = hdsim.Platform.homogeneous(nodes=2, cores_per_node=2)
    jobs = hdsim.Workload.from_columns(submission_time=[0, 10, 30], runtime=[10, 20, 10], requested_cores=[2, 4, 1])
    result = hdsim.simulate(platform, jobs, "fcfs")
    # One node is full for 10 s, both for 20 s, half of one for 10 s.
    assert metrics.full(result)["load_imbalance"] == (10 * 0.5 + 20 * 0 + 10 * 0.25) / 40
    assert metrics.full(result)["peak_load_imbalance"] == 0
    assert "load_imbalance" not in result.metrics


def test_a_machine_in_full_use_has_no_imbalance_of_rounding() -> None:
    """Shares of thirds and sevenths add up to 1 on every node but for their rounding."""
    platform = hdsim.Platform.homogeneous(nodes=5, cores_per_node=21)
    sizes = [3, 7, 11, 1, 5, 9, 2, 13, 4, 50] * 40
    workload = hdsim.Workload.from_columns(
        submission_time=[0] * 400, runtime=np.arange(400) % 7 + 1, requested_cores=sizes
    )
    result = hdsim.simulate(platform, workload, "greedy")
    assert metrics.full(result)["peak_load_imbalance"] == 0


@pytest.mark.parametrize("seed", range(4))
def test_load_imbalance_is_that_of_every_second(seed: int) -> None:
    rng = np.random.default_rng(seed)
    platform = hdsim.load_platform("accelerated")
    count = 30
    jobs = hdsim.Workload.from_columns(
        submission_time=np.cumsum(rng.integers(0, 20, count)),
        runtime=rng.integers(1, 60, count),
        requested_cores=rng.integers(1, 30, count),
    )
    result = hdsim.simulate(platform, jobs, "easy")
    held = result.segments
    nodes = platform.processor_node[platform.core_processor]
    moments = np.unique(np.concatenate([held.begin, held.end]))
    total = 0.0
    for low, high in itertools.pairwise(moments):
        busy = np.zeros(platform.n_nodes)
        for segment in np.flatnonzero((held.begin <= low) & (held.end >= high)):
            for core in held.held[np.array([segment])].ids:
                busy[nodes[core]] += not platform.is_gpu[platform.core_processor[core]]
        total += float(np.std(busy / platform.node_cpu_cores)) * (high - low)
    assert metrics.full(result)["load_imbalance"] == pytest.approx(total / result.end_time)


@pytest.mark.requires("torch")
def test_agents_are_judged_by_metrics_of_the_whole_schedule() -> None:
    from hdsim.decisions.kinds import OBJECTIVES
    from hdsim.learning.training.evaluation import Evaluation

    platform = hdsim.Platform.homogeneous(nodes=2, cores_per_node=2)
    jobs = hdsim.Workload.from_columns(submission_time=[0, 0], runtime=[10, 10], requested_cores=[1, 1])
    evaluation = Evaluation(OBJECTIVES.find("cluster_balance").metric, partial(hdsim.simulate, platform))
    assert [evaluation.scores(f"fcfs-{policy}", [jobs]) for policy in ("spread", "pack")] == [0.0, 0.5]
