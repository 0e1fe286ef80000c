"""Agents that were trained in simulation spread the pods of a real API server at least as evenly as kube-scheduler."""

from __future__ import annotations

from pathlib import Path

import pytest
from kube import Cluster
from pod_balance import FIRST_SEED, deviations, difference, make_nodes, measure, simulated

pytestmark = [pytest.mark.requires("kube"), pytest.mark.requires("torch")]

LEARNED = ("kubernetes_dqn", "kubernetes_gnn")


@pytest.mark.parametrize("name", LEARNED)
@pytest.mark.ci
def test_the_api_server_has_the_balance_of_the_simulation(cluster: Cluster, tmp_path: Path, name: str) -> None:
    make_nodes(cluster)
    found = deviations(cluster, name, "mixed", FIRST_SEED, tmp_path)
    # One from the nodes of the pods, the other from the metrics.
    assert found == pytest.approx(simulated(name, "mixed", FIRST_SEED), abs=1e-6)


@pytest.mark.ci
def test_agents_are_as_even_as_kube_scheduler(cluster: Cluster, tmp_path: Path) -> None:
    """On three seeds, with a margin: kube-scheduler takes one of equal nodes by chance."""
    make_nodes(cluster)
    found = measure(
        cluster, ("random", "kube-scheduler", *LEARNED), "mixed", range(FIRST_SEED, FIRST_SEED + 3), tmp_path
    )
    kube = found["kube-scheduler"][:, 0].mean()
    for name in LEARNED:
        assert found[name][:, 0].mean() < 1.15 * kube, name
        assert (found[name] < 0.5 * found["random"]).all(), name


@pytest.mark.nightly
@pytest.mark.parametrize("sizes", ["mixed", "equal"])
def test_intervals_of_twenty_seeds(cluster: Cluster, tmp_path: Path, sizes: str) -> None:
    make_nodes(cluster)
    seeds = range(FIRST_SEED, FIRST_SEED + 20)
    found = measure(cluster, ("random", "kube-scheduler", *LEARNED), sizes, seeds, tmp_path)
    for name in LEARNED:
        for column in (0, 1):
            assert difference(found, name, "kube-scheduler", column).high < 1e-9, (name, column)
            assert difference(found, name, "random", column).high < 0, (name, column)
