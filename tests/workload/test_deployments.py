"""The generator of random deployments."""

from __future__ import annotations

import math
from itertools import groupby, pairwise
from typing import Any

import numpy as np
import pytest

from hdsim.errors import WorkloadError
from hdsim.workload.generators.deployments import Capacity, Deployment, deployments

GIB = 2.0**30
#: The ten nodes of 64 CPU, 256 GiB and 110 pods for which the defaults are made.
TEN_NODES = Capacity(640.0, 2560 * GIB, 1100)


def draw(seed: int = 1, capacity: Capacity = TEN_NODES, **settings: Any) -> list[Deployment]:
    return list(deployments(np.random.default_rng(seed), capacity, **settings))


def test_same_seed_same_deployments() -> None:
    assert draw(3, epochs=2, cpu=(0.5, 1.0)) == draw(3, epochs=2, cpu=(0.5, 1.0)) != draw(4, epochs=2, cpu=(0.5, 1.0))


def test_defaults_are_pods_of_one_core_and_two_gib_in_groups_of_5_to_15() -> None:
    drawn = draw(epochs=50)
    assert {(made.requests.cpu, made.requests.memory, made.requests.gpus) for made in drawn} == {(1.0, 2 * GIB, 0)}
    # The last deployment of an epoch is cut to what the target needs.
    replicas = [made.replicas for made, after in pairwise(drawn) if made.epoch == after.epoch]
    assert (min(replicas), max(replicas)) == (5, 15)
    # Mean of 5..15 is 10 with a variance of 10.
    assert abs(np.mean(replicas) - 10) < 4 * math.sqrt(10 / len(replicas))


@pytest.mark.parametrize(
    ("loads", "pods"),
    [
        ({"cpu_load": 0.1, "memory_load": 1.0, "pod_load": 1.0}, 64),
        ({"cpu_load": 1.0, "memory_load": 0.1, "pod_load": 1.0}, 128),
        ({"cpu_load": 1.0, "memory_load": 1.0, "pod_load": 0.1}, 110),
        ({"cpu_load": 0.201, "memory_load": 1.0, "pod_load": 1.0}, 129),
        ({}, 128),
    ],
)
def test_an_epoch_ends_with_the_first_load_that_reaches_its_target(loads: dict[str, float], pods: int) -> None:
    drawn = draw(epochs=3, **loads)
    totals = {epoch: sum(made.replicas for made in group) for epoch, group in groupby(drawn, lambda made: made.epoch)}
    assert totals == {0: pods, 1: pods, 2: pods}


@pytest.mark.nightly
def test_requests_are_drawn_uniformly_from_the_choices() -> None:
    drawn = draw(epochs=400, cpu=(0.25, 0.5, 1.0), memory=(GIB,), gpus=(0, 1), replicas=(1, 1))
    for values, share in (([made.requests.cpu for made in drawn], 3), ([made.requests.gpus for made in drawn], 2)):
        counts = np.unique(values, return_counts=True)[1]
        assert len(counts) == share
        assert abs(counts / len(drawn) - 1 / share).max() < 4 * math.sqrt(0.25 / len(drawn))


def test_a_deployment_arrives_after_the_pods_before_it() -> None:
    drawn = draw(rate=4.0, epochs=2)
    for epoch in (0, 1):
        group = [made for made in drawn if made.epoch == epoch]
        before = np.cumsum([0, *(made.replicas for made in group[:-1])])
        assert [made.time for made in group] == (before / 4).tolist()
    assert {made.time for made in draw()} == {0.0}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cpu_load": 0.0}, r"cpu_load: expected a share in \(0, 1\], got 0.0"),
        ({"pod_load": 1.5}, r"pod_load: expected a share in \(0, 1\], got 1.5"),
        ({"replicas": (5, 4)}, "replicas: expected two numbers of pods, the smaller one first, got 5 and 4"),
        ({"replicas": (0, 4)}, "replicas: expected"),
        ({"cpu": ()}, r"cpu: expected amounts of at least 0, got \[\]"),
        ({"memory": (-1.0,)}, r"memory: expected amounts of at least 0, got \[-1.0\]"),
        ({"rate": 0.0}, "rate: expected pods per second above 0, got 0.0"),
    ],
)
def test_settings_that_cannot_be_used(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        draw(**settings)


def test_a_cluster_that_nothing_fills_up_is_refused() -> None:
    unlimited = Capacity(math.inf, math.inf, math.inf)
    with pytest.raises(WorkloadError, match="expected a resource that deployments fill up"):
        draw(capacity=unlimited)
    with pytest.raises(WorkloadError, match="expected a resource that deployments fill up"):
        draw(capacity=unlimited._replace(cpu=10.0), cpu=(0.0, 1.0))
    assert sum(made.replicas for made in draw(capacity=unlimited._replace(pods=100))) == 20
