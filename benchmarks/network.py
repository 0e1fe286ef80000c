"""Speed of the fluid network, as CPU time on one core.

python benchmarks/network.py
python benchmarks/network.py --only local component
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable

import numpy as np

from hdsim.network.fluid import Fluid, FluidPhase
from hdsim.network.maxmin import MaxMin
from hdsim.platform.load import load_platform
from hdsim.platform.model import Platform
from hdsim.util.resources import resolve
from hdsim.workload.patterns import Messages, make_pattern

MB = 1e6


def cluster(nodes: int) -> Platform:
    """One cluster of nodes with links of 1 GB/s."""
    return Platform.homogeneous(nodes=nodes, cores_per_node=1, bandwidth="1GBps")


def least(work: Callable[[], float], rounds: int = 5) -> float:
    """Least of a few measurements, in s of CPU time."""
    gc.collect()
    return min(work() for _ in range(rounds))


def event_seconds(flows: int, sharing: int = 5, events: int = 4000) -> float:
    """CPU time of an event (a flow leaves or enters, `sharing` share its link) with `flows` flows in the system."""
    groups = flows // sharing
    fluid = Fluid(cluster(groups * (sharing + 1)))
    nodes = [range(group * (sharing + 1), (group + 1) * (sharing + 1)) for group in range(groups)]
    phases = {source: fluid.phase([(source, group[0], 100 * MB)]) for group in nodes for source in group[1:]}
    for source, phase in phases.items():
        fluid.start_phase(source, phase, 0.0)
    assert len(list(fluid.settle(0.0))) == flows
    chosen = np.random.default_rng(1).integers(0, groups, events // 2).tolist()

    def work() -> float:
        begin = time.process_time()
        for group in chosen:
            source = nodes[group][1]
            fluid.end(source, 0.001)
            assert len(list(fluid.settle(0.001))) == sharing - 1
            fluid.start_phase(source, phases[source], 0.001)
            assert len(list(fluid.settle(0.001))) == sharing
        return (time.process_time() - begin) / events

    return least(work)


def bench_local() -> None:
    """Cost of an event against the number of flows in the system."""
    few, many = event_seconds(100), event_seconds(10_000)
    print(f"event among       100 flows, 5 to a link {few * 1e6:10.1f} us")
    print(f"event among    10,000 flows, 5 to a link {many * 1e6:10.1f} us {many / few:8.2f} x, limit 2")


def bench_component() -> None:
    """Solving one component of random flows at once."""
    for flows in (2, 10, 100, 1000):
        nodes = max(2, flows // 4)
        rng = np.random.default_rng(flows)
        ends = [rng.choice(nodes, 2, replace=False).tolist() for _ in range(flows)]

        def work(nodes: int = nodes, ends: list[list[int]] = ends) -> float:
            solver = MaxMin([1.0] * (2 * nodes))
            for source, target in ends:
                streams = solver.streams([1.0], [0.0], [((2 * source, 2 * target + 1), (1.0, 1.0), (1.0, 1.0))])
                solver.add(streams, np.array([0]), np.array([1.0]), 0.0, 0.0)
            begin = time.process_time()
            solver.settle(0.0)
            return time.process_time() - begin

        seconds = least(work, 20)
        print(f"one component of {flows:>5,} flows {seconds * 1e6:18.1f} us {seconds / flows * 1e6:8.2f} us a flow")


def superstep_seconds(phases: list[FluidPhase], fluid: Fluid) -> float:
    """CPU time of a phase from its start to its end, one after the other."""

    def work() -> float:
        now = 0.0
        begin = time.process_time()
        for key, phase in enumerate(phases):
            fluid.start_phase(key, phase, now)
            over = False
            while not over:
                ((_, seconds),) = fluid.settle(now)
                now += seconds
                over = fluid.advance(key, now)
        return (time.process_time() - begin) / len(phases)

    return least(work)


def bench_phases() -> None:
    """Communication phases of jobs on gaia that meet nobody: making them ready, and one superstep after the other."""
    gaia = load_platform(resolve("platforms", "gaia"))
    rng = np.random.default_rng(1)
    cores = gaia.processor_node[gaia.core_processor]
    for name in ("ring", "halo_2d", "h_relation"):
        fluid, lists = Fluid(gaia), []
        for _ in range(200):
            first, tasks = int(rng.integers(0, gaia.n_cores - 96)), int(rng.integers(8, 97))
            lists.append(make_pattern(name, tasks, MB).between(cores[first : first + tasks]))

        def compile_all(fluid: Fluid = fluid, lists: list[Messages] = lists) -> float:
            begin = time.process_time()
            for messages in lists:
                assert fluid.phase(messages).uncontended_time >= 0.0
            return (time.process_time() - begin) / len(lists)

        phases = [phase for phase in map(fluid.phase, lists) for _ in range(20)]
        ready, superstep = least(compile_all), superstep_seconds(phases, fluid)
        print(
            f"{name:12} of 8 to 96 tasks on gaia {superstep * 1e6:7.1f} us a phase, limit 10;"
            f" {ready * 1e6:6.1f} us to make ready"
        )


def bench_joined() -> None:
    """Phases that are joined by another one on the way: both leave their plans for the solver."""
    for name in ("ring", "h_relation"):
        fluid = Fluid(cluster(15))
        # Both have a task on node 7.
        first, second = (fluid.phase(make_pattern(name, 8, MB).between(range(n, n + 8))) for n in (0, 7))

        def work(
            fluid: Fluid = fluid, first: FluidPhase = first, second: FluidPhase = second, rounds: int = 50
        ) -> float:
            begin = time.process_time()
            for number in range(rounds):
                now = 1.0 * number
                fluid.start_phase("first", first, now)
                due = dict(fluid.settle(now))
                now += first.uncontended_time / 2
                fluid.start_phase("second", second, now)
                while True:
                    due |= {key: now + seconds for key, seconds in fluid.settle(now)}
                    if not due:
                        break
                    key = min(due, key=due.__getitem__)
                    now = due.pop(key)
                    fluid.advance(key, now)
            return (time.process_time() - begin) / (2 * rounds)

        flows = len(first.exchange.streams.amount)
        print(f"{name:12} of 8 nodes joined by another {least(work) * 1e6:12.1f} us a phase of {flows} flows")


BENCHMARKS = {name.removeprefix("bench_"): work for name, work in list(globals().items()) if name.startswith("bench_")}


def main() -> None:
    """Runs the benchmarks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=BENCHMARKS, default=list(BENCHMARKS), metavar="NAME")
    for name in parser.parse_args().only:
        BENCHMARKS[name]()


if __name__ == "__main__":
    main()
