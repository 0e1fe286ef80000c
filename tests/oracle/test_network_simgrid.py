"""The fluid network against SimGrid, on random cases over the exported platform files.

``PYTHONPATH=tests python tests/oracle/test_network_simgrid.py`` prints the table of research/backends.md.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from network_replay import replay
from test_simgrid import interpreter
from tiers import ALL

from hdsim.network.fluid import Fluid
from hdsim.platform.model import Platform
from hdsim.platform.simgrid import to_xml

pytestmark = [pytest.mark.requires("simgrid"), pytest.mark.xdist_group("simgrid_network")]

FLOWS, TASKS = (200, 500) if ALL else (60, 120)
CORES = 4
BANDWIDTHS = (0.1e9, 1.25e9, 5e9, 12.5e9)  # byte/s

FLUID = (
    "network/model:CM02",
    "network/latency-factor:1",
    "network/bandwidth-factor:1",
    "network/weight-S:0",
    "network/crosstraffic:0",
    "network/TCP-gamma:0",
)
# Lazy updates, SimGrid's default, at times leave out a link of a flow whose latency has just ended.
FULL, LAZY = "network/optim:Full", "network/optim:Lazy"
PARALLEL = ("host/model:ptask_L07", "network/crosstraffic:0", "network/TCP-gamma:0")
BOTTLENECK, DEFAULT = "host/solver:bmf", "host/solver:fairbottleneck"


@dataclass
class Case:
    """A platform and what goes on there.

    Attributes:
        platform: The platform.
        flows: (date s, source core, target core, bytes).
        tasks: (date s, cores, flop of each, bytes between each two).
    """

    platform: Platform
    flows: list = ()
    tasks: list = ()


def make_platform(sizes, local, between, local_latency, global_latency):
    """Clusters of nodes of four cores of 1 GFLOP/s; bandwidths in byte/s, latencies in us, local ones by cluster."""
    return Platform.from_dict(
        {
            "clusters": [
                {
                    "id": f"c{k}",
                    "nodes": [{"type": "n", "number": size}],
                    "local_links": {"type": f"{local[k]:.0f}", "latency": f"{local_latency[k]}us"},
                }
                for k, size in enumerate(sizes)
            ],
            "global_links": {"type": f"{between:.0f}", "latency": f"{global_latency}us"},
            "types": {
                "network": {f"{rate:.0f}": {"bandwidth": f"{rate:.0f}Bps"} for rate in {*local, between}},
                "node": {"n": {"processors": [{"type": "p", "number": 1}]}},
                "processor": {"p": {"cores": CORES, "clock_rate": 1, "dpflops_per_cycle": 1, "power": 1}},
            },
        }
    )


def random_platform(rng, latency):
    """One to four clusters with 2 to 64 nodes in all."""
    clusters = int(rng.integers(1, 5))
    nodes = int(rng.integers(max(2, clusters), 65))
    cuts = sorted(rng.choice(np.arange(1, nodes), clusters - 1, replace=False).tolist())
    sizes = np.diff([0, *cuts, nodes]).tolist()
    delays = rng.integers(1, 500, clusters + 1) * latency
    return make_platform(sizes, rng.choice(BANDWIDTHS, clusters), rng.choice(BANDWIDTHS), delays[1:], delays[0])


def random_date(rng):
    """A date in s, every other time 0."""
    return float(np.round(rng.uniform(0, 3), 3) * rng.integers(0, 2))


def random_flows(rng, latency):
    platform = random_platform(rng, latency)
    flows = []
    for _ in range(int(rng.integers(2, 80))):
        source, target = CORES * rng.choice(platform.n_nodes, 2, replace=False) + rng.integers(0, CORES, 2)
        flows.append((random_date(rng), int(source), int(target), int(10 ** rng.uniform(5, 9.5))))
    return Case(platform, flows=flows)


def random_tasks(rng, latency):
    """Tasks on cores of their own, some that only send, with messages of one size or of many."""
    platform = random_platform(rng, latency)
    free = rng.permutation(platform.n_cores).tolist()
    node = platform.processor_node[platform.core_processor]
    tasks = []
    for _ in range(int(rng.integers(1, 9))):
        size = int(rng.integers(2, 9))
        cores, free = free[:size], free[size:]
        if len(cores) < size:
            break
        flops = (10 ** rng.uniform(7, 10, size) * rng.integers(0, 2)).astype(int)
        volumes = np.full((size, size), 10 ** rng.uniform(6, 9))
        if rng.integers(0, 2):
            volumes = 10 ** rng.uniform(5, 9, (size, size)) * (rng.random((size, size)) < 0.4)
        volumes[node[cores][:, None] == node[cores]] = 0
        if flops.any() or volumes.any():
            tasks.append((random_date(rng), cores, flops.tolist(), volumes.astype(int).tolist()))
    return Case(platform, tasks=tasks)


def random_single_messages(rng, latency):
    """At least two tasks, each with one message."""
    while True:
        case = random_tasks(rng, latency)
        tasks = []
        for date, cores, flops, volumes in case.tasks:
            pairs = np.argwhere(volumes)
            if len(pairs):
                single = np.zeros_like(volumes)
                single[tuple(rng.choice(pairs))] = 10 ** rng.uniform(6, 9)
                tasks.append((date, cores, flops, single.tolist()))
        if len(tasks) > 1:
            return Case(case.platform, tasks=tasks)


def cases(make, count, seed, latency):
    rng = np.random.default_rng(seed)
    return [make(rng, latency) for _ in range(count)]


def ours(case, sharing="equal"):
    """Finish dates in s of flows, then tasks."""
    platform = case.platform
    node = platform.processor_node[platform.core_processor].tolist()
    fluid = Fluid(platform, sharing)
    starts = []
    for key, (date, source, target, volume) in enumerate(case.flows):
        message = (key, node[source], node[target], volume)
        starts.append((date, lambda now, message=message: fluid.start(*message, now)))
    for key, (date, cores, flops, volumes) in enumerate(case.tasks, len(case.flows)):
        messages = [
            (node[a], node[b], volume)
            for a, row in zip(cores, volumes, strict=True)
            for b, volume in zip(cores, row, strict=True)
        ]
        task = (key, max(flops) / 1e9, messages)
        starts.append((date, lambda now, task=task: fluid.start_parallel(*task, now)))
    ends = replay(fluid, starts)
    return [ends[key] for key in range(len(starts))]


def theirs(cases, folder, *config):
    """Finish dates in s as SimGrid has them, None for a case on which it gave up."""
    inputs = []
    for number, case in enumerate(cases):
        path = folder / f"{number}.xml"
        path.write_bytes(to_xml(case.platform))
        width = len(str(case.platform.n_cores - 1))
        flows = [(date, f"cor_{a:0{width}}", f"cor_{b:0{width}}", volume) for date, a, b, volume in case.flows]
        tasks = [
            (date, [f"cor_{core:0{width}}" for core in cores], flops, [volume for row in volumes for volume in row])
            for date, cores, flops, volumes in case.tasks
        ]
        inputs.append({"xml": str(path), "config": config, "flows": flows, "tasks": tasks})
    script = Path(__file__).parents[1] / "simgrid_network.py"
    done = subprocess.run(
        [interpreter(), script], input=json.dumps(inputs), capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def differences(found, expected):
    """Largest relative difference of a finish date in each case that SimGrid solved."""
    pairs = [(np.array(a), np.array(b)) for a, b in zip(found, expected, strict=True) if b]
    return np.array([(np.abs(a - b) / b).max() for a, b in pairs])


@pytest.mark.ci
def test_concurrent_flows_end_when_they_do_in_simgrid(tmp_path):
    flows = cases(random_flows, FLOWS, seed=1, latency=False)
    found = differences([ours(case) for case in flows], theirs(flows, tmp_path, *FLUID, FULL))
    assert len(found) == FLOWS
    assert found.max() < 1e-6


@pytest.mark.ci
def test_concurrent_flows_with_latencies_end_when_they_do_in_simgrid(tmp_path):
    # SimGrid weighs a flow by the inverse of its path's latency; sharing="latency" is that.
    flows = cases(random_flows, FLOWS, seed=2, latency=True)
    found = differences([ours(case, "latency") for case in flows], theirs(flows, tmp_path, *FLUID, FULL))
    assert len(found) == FLOWS
    assert found.max() < 1e-6


@pytest.mark.ci
def test_parallel_tasks_with_communication_end_when_they_do_in_simgrid(tmp_path):
    tasks = [case for latency in (False, True) for case in cases(random_tasks, TASKS // 2, 3, latency) if case.tasks]
    found = differences([ours(case) for case in tasks], theirs(tasks, tmp_path, *PARALLEL, BOTTLENECK))
    # SimGrid's solver runs in circles on the others.
    assert len(found) >= 0.4 * TASKS
    assert found.max() < 1e-6


@pytest.mark.ci
def test_parallel_tasks_of_one_message_end_when_they_do_in_simgrid(tmp_path):
    tasks = cases(random_single_messages, FLOWS + 10, seed=5, latency=True)
    found = differences([ours(case) for case in tasks], theirs(tasks, tmp_path, *PARALLEL, BOTTLENECK))
    assert len(found) >= FLOWS  # SimGrid gives up on one
    assert found.max() < 1e-6


def test_parallel_tasks_in_rounds_end_when_they_do_under_simgrids_default_solver(tmp_path):
    tasks = [case for case in cases(random_tasks, FLOWS + 10, seed=6, latency=True) if case.tasks]
    found = differences([ours(case, "rounds") for case in tasks], theirs(tasks, tmp_path, *PARALLEL, DEFAULT))
    assert len(found) == len(tasks) >= FLOWS
    assert found.max() < 1e-6


@pytest.mark.ci
def test_a_task_that_shares_no_link_ends_when_it_does_under_simgrids_default_solver(tmp_path):
    alone = [Case(case.platform, tasks=case.tasks[:1]) for case in cases(random_tasks, FLOWS, 4, True) if case.tasks]
    found = differences([ours(case) for case in alone], theirs(alone, tmp_path, *PARALLEL, DEFAULT))
    assert len(found) == len(alone)
    assert found.max() < 1e-6


def test_simgrids_default_solver_divides_a_link_by_tasks_and_the_other_one_by_messages(tmp_path):
    platform = make_platform([4], [1e9], 1e9, [0], 0)
    volumes = [[0, 0, 10**9], [0, 0, 10**9], [0, 0, 0]]
    tasks = [(0.0, [0, 4, 13], [0] * 3, volumes), (0.0, [8, 12], [0] * 2, [[0, 10**9], [0, 0]])]
    case = Case(platform, tasks=tasks)
    assert ours(case) == pytest.approx([3.0, 3.0])
    assert ours(case, "rounds") == pytest.approx([3.0, 2.0])
    assert theirs([case], tmp_path, *PARALLEL, BOTTLENECK) == [pytest.approx([3.0, 3.0])]
    assert theirs([case], tmp_path, *PARALLEL, DEFAULT) == [pytest.approx([3.0, 2.0])]


def test_cores_of_one_node_talk_over_its_link_in_simgrid_and_for_nothing_here(tmp_path):
    case = Case(make_platform([2], [1e9], 1e9, [0], 0), flows=[(0.0, 0, 1, 10**9), (0.0, 4, 0, 10**9)])
    assert ours(case) == [0.0, 1.0]
    assert theirs([case], tmp_path, *FLUID, FULL) == [pytest.approx([2.0, 2.0])]


def table():
    """Prints how far apart the models are where they differ by definition."""
    plain, slow = (cases(random_flows, FLOWS, seed, latency) for seed, latency in ((1, False), (2, True)))
    tasks = [case for case in cases(random_tasks, TASKS, seed=3, latency=True) if case.tasks]
    single = cases(random_single_messages, FLOWS, seed=5, latency=True)
    rows = (
        ("flows, no latency, equal", plain, "equal", (*FLUID, FULL)),
        ("flows, no latency, equal, lazy", plain, "equal", (*FLUID, LAZY)),
        ("flows, latency, by latency", slow, "latency", (*FLUID, FULL)),
        ("flows, latency, by latency, lazy", slow, "latency", (*FLUID, LAZY)),
        ("flows, latency, equal", slow, "equal", (*FLUID, FULL)),
        ("tasks of one message, bmf", single, "equal", (*PARALLEL, BOTTLENECK)),
        ("tasks of one message, fairbottleneck", single, "equal", (*PARALLEL, DEFAULT)),
        ("tasks, bmf", tasks, "equal", (*PARALLEL, BOTTLENECK)),
        ("tasks, fairbottleneck", tasks, "equal", (*PARALLEL, DEFAULT)),
        ("tasks, rounds, fairbottleneck", tasks, "rounds", (*PARALLEL, DEFAULT)),
    )
    for name, chosen, sharing, config in rows:
        with tempfile.TemporaryDirectory() as folder:
            found = differences([ours(case, sharing) for case in chosen], theirs(chosen, Path(folder), *config))
        print(
            f"{name:38} {len(chosen):4} cases {len(found):4} solved {np.mean(found < 1e-3):7.1%} within 0.1 %"
            f"  median {np.median(found):8.1e}  p95 {np.quantile(found, 0.95):8.1e}  max {found.max():8.1e}"
        )


if __name__ == "__main__":
    table()
