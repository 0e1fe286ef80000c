"""Orders of the queue against hand-computed scores, and backfilling on schedules drawn by hand."""

import math

import numpy as np
import pytest
from tiers import pairs

import hdsim
from hdsim.cluster.state import Cluster
from hdsim.errors import ConfigError
from hdsim.scheduling.agent import BACKFILLS
from hdsim.scheduling.orders import ORDERS, job_order

#: Four jobs: submission, original submission, requested time, cores, memory, bandwidth, user.
WORKLOAD = hdsim.Workload.from_columns(
    submission_time=[0, 10, 20, 30],
    original_submission_time=[0, 110, 120, 130],
    runtime=[1, 1, 1, 1],
    requested_time=[100, 50, 400, 50],
    requested_cores=[4, 1, 2, 8],
    memory=[100, 300, 200, 100],
    memory_bandwidth=[4, 8, 0, 8],
    user=[1, 1, 2, 2],
)
QUEUED = np.arange(4)

#: Names of hdsim itself; other tests register some of their own.
SHIPPED = [name for name, order in ORDERS.items() if order.score.__module__ == "hdsim.scheduling.orders"]


def cluster_at(now, running=()):
    platform = hdsim.Platform.homogeneous(nodes=4, cores_per_node=4, memory_gb_per_node=2.0, mem_bw=100.0)
    cluster = Cluster(platform, WORKLOAD)
    for job in range(4):
        cluster.submit(job)
    for job in running:
        cluster.start(job)
    cluster.now = now
    return cluster


def served(name, now=100.0, queued=QUEUED, **state):
    order = job_order(name)
    scores = order.score(WORKLOAD, queued, cluster_at(now, **state)) if order.dynamic else order.score(WORKLOAD)
    return queued[np.argsort(scores, kind="stable")].tolist()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("first", [0, 1, 2, 3]),
        ("fcfs", [0, 1, 2, 3]),
        ("lcfs", [3, 2, 1, 0]),
        ("shortest", [1, 3, 0, 2]),  # ties in order of submission
        ("sjf", [1, 3, 0, 2]),
        ("ljf", [2, 0, 1, 3]),
        ("smallest", [1, 2, 0, 3]),
        ("largest", [3, 0, 2, 1]),
        ("saf", [1, 0, 3, 2]),  # areas 400, 50, 800, 400
        ("laf", [2, 0, 3, 1]),
        ("low_mem", [0, 3, 2, 1]),
        ("low_mem_bw", [2, 0, 1, 3]),
        # Waits 100, 90, 80, 70 over requests: (w/r)^3 n = 4, 5.8, 0.016, 21.95.
        ("wfp3", [3, 1, 0, 2]),
        # w / (log2(max(n, 2)) r) = 0.5, 1.8, 0.2, 0.467.
        ("unicef", [1, 0, 3, 2]),
        # With log2(1) + 1e-15 the serial job wins by far; the rest as before.
        ("unicef_serial_first", [1, 0, 3, 2]),
    ],
)
def test_order(name, expected):
    assert served(name) == expected


@pytest.mark.parametrize(
    ("name", "formula"),
    [
        ("f1", lambda r, n, s: math.log10(r) * n + 870 * math.log10(s)),
        ("f2", lambda r, n, s: math.sqrt(r) * n + 25_600 * math.log10(s)),
        ("f3", lambda r, n, s: r * n + 6_860_000 * math.log10(s)),
        ("f4", lambda r, n, s: r * math.sqrt(n) + 530_000 * math.log10(s)),
    ],
)
def test_learned_functions_see_the_origin_of_the_trace(name, formula):
    since = [0.1, 110, 120, 130]  # 0 counts as 0.1
    expected = [
        formula(r, n, s) for r, n, s in zip(WORKLOAD.requested_time, WORKLOAD.requested_cores, since, strict=True)
    ]
    assert job_order(name).score(WORKLOAD) == pytest.approx(expected)


def test_drf_serves_the_user_with_the_smallest_dominant_share():
    # User 1 holds 4 of 16 cores; user 2 nothing.
    assert served("drf", queued=np.array([1, 2, 3]), running=[0]) == [2, 3, 1]
    # User 2 holds 8 of 16 cores now.
    assert served("drf", queued=np.array([1, 2]), running=[0, 3]) == [1, 2]


def test_tetris_aligns_demand_with_what_is_free():
    # All free: alignments are cores/16 + memory/8000 + bandwidth/400 of each job, equal work aside.
    same = hdsim.Workload.from_columns(
        submission_time=[0, 0, 0], runtime=[1, 1, 1], requested_time=[10, 10, 10], requested_cores=[2, 4, 20]
    )
    cluster = Cluster(hdsim.Platform.homogeneous(nodes=4, cores_per_node=4), same)
    scores = job_order("tetris").score(same, np.arange(3), cluster)
    # Weighted so that both terms have one mean, score = work - alignment is 0 for proportional jobs; too large: last.
    assert scores[:2] == pytest.approx([0, 0])
    assert scores[2] == math.inf


def test_random_order_is_a_uniform_permutation():
    cluster = cluster_at(0.0)
    draws = [tuple(np.argsort(job_order("random").score(WORKLOAD, QUEUED, cluster))) for _ in range(2400)]
    seen, counts = np.unique(draws, axis=0, return_counts=True)
    assert len(seen) == 24
    assert ((counts - 100) ** 2 / 100).sum() < 55  # chi-squared with 23 degrees of freedom, p about 2e-4


def test_unknown_order_names_the_nearest():
    with pytest.raises(ConfigError, match=r"got 'shortes' \(did you mean 'shortest'\?\)"):
        job_order("shortes")


# Backfilling. Machine of 10 cores; rows (submission, run time, request, cores).


def starts(agent, *rows, **options):
    submission, runtime, requested, cores = zip(*rows, strict=True)
    workload = hdsim.Workload.from_columns(
        submission_time=submission, runtime=runtime, requested_time=requested, requested_cores=cores, **options
    )
    platform = options.pop("platform", None) or hdsim.Platform.homogeneous(nodes=10, cores_per_node=1)
    return hdsim.simulate(platform, workload, agent, check=True).starting_time.tolist()


def test_overrun_estimates_are_survived():
    rows = [(0, 20, 5, 6), (1, 5, 5, 8), (2, 5, 5, 4), (3, 30, 1, 4), (30, 1, 1, 10)]
    for agent in ("easy", "conservative"):
        assert all(not math.isnan(start) for start in starts(agent, *rows))


@pytest.mark.parametrize(
    ("order", "backfill"), pairs(sorted(SHIPPED), [name for name in BACKFILLS if name != "rlscheduler"])
)
def test_every_order_with_every_backfilling_serves_all_jobs(order, backfill):
    rng = np.random.default_rng(5)
    workload = hdsim.Workload.from_columns(
        submission_time=np.sort(rng.integers(0, 300, 60)),
        runtime=rng.integers(0, 50, 60),
        requested_time=rng.integers(1, 60, 60),
        requested_cores=rng.integers(1, 9, 60),
        memory=rng.choice([0, 300, 600], 60),
        user=rng.integers(0, 4, 60),
    )
    platform = hdsim.Platform.homogeneous(nodes=4, cores_per_node=4, memory_gb_per_node=2.0)
    name = order if backfill == "none" else f"{backfill}-{order}"
    result = hdsim.simulate(platform, workload, name, check=True)
    assert result.metrics["jobs_completed"] == 60
