from __future__ import annotations

import functools
import gc
import math
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from network_replay import replay

from hdsim.errors import ConfigError
from hdsim.network import maxmin as links
from hdsim.network.fluid import Fluid
from hdsim.network.kernels import components, flows, maxmin, sharing
from hdsim.network.maxmin import MaxMin
from hdsim.platform.model import Platform

GB = 1e9


def clusters(*sizes, local="1GBps", between="1GBps", local_latency="0us", global_latency="0us"):
    return Platform.from_dict(
        {
            "clusters": [
                {
                    "id": f"c{k}",
                    "nodes": [{"type": "n", "number": size}],
                    "local_links": {"type": "local", "latency": local_latency},
                }
                for k, size in enumerate(sizes)
            ],
            "global_links": {"type": "global", "latency": global_latency},
            "types": {
                "network": {"local": {"bandwidth": local}, "global": {"bandwidth": between}},
                "node": {"n": {"processors": [{"type": "p", "number": 1}]}},
                "processor": {"p": {"cores": 2, "clock_rate": 1, "dpflops_per_cycle": 1, "power": 1}},
            },
        }
    )


def at(date, start, *arguments):
    """An entry for `replay`: calls ``start(*arguments, date)``."""
    return date, lambda now: start(*arguments, now)


# The solver


class Activity:
    """A transfer of one flow of 1 byte."""

    def __init__(self, solver, uses, bound):
        self.links, self.uses, self.bound = solver.links, uses, bound
        streams = self.links.streams([1.0], [0.0], [tuple(zip(*uses, strict=True))])
        self.number = self.links.add(streams, np.array([0]), np.array([1.0]), 0.0, 0.0, bound)

    @property
    def rate(self):
        return self.links.flows(self.number, 0.0)[2].item()


class Solver:
    """The rates of flows that come and go at date 0."""

    def __init__(self, capacities):
        self.links, self.capacity, self.activities = MaxMin(capacities), capacities, {}

    @property
    def load(self):
        return self.links.load.tolist()

    def demand(self, resources, usages, *, claims=None, share=1.0):
        return [(r, u, share / c) for r, u, c in zip(resources, usages, claims or usages, strict=True)]

    def add(self, uses, bound=math.inf):
        activity = Activity(self, uses, bound)
        self.activities[activity.number] = activity
        return activity

    def remove(self, activity):
        self.links.remove(activity.number)
        del self.activities[activity.number]

    def set_bound(self, activity, bound):
        activity.bound = bound
        self.links.set_bound(activity.number, bound)

    def solve(self):
        """Returns the activities of another rate."""
        return [self.activities[number] for number, _ in self.links.settle(0.0)]


def uncompiled(monkeypatch):
    """Runs the kernels of the network as Python functions."""
    for module in (sharing, flows, maxmin, components, links):
        for name, function in list(vars(module).items()):
            monkeypatch.setattr(module, name, getattr(function, "py_func", function))


def filled(capacity, flows):
    """Max-min rates of flows (resources, width, slope, bound) by raising a common level, in exact arithmetic."""
    rates = {}
    while len(rates) < len(flows):
        steps = []
        for r, room in enumerate(capacity):
            climbing = sum(w * s for i, (path, w, s, _) in enumerate(flows) if r in path and i not in rates)
            if climbing:
                taken = sum(w * rates[i] for i, (path, w, _, _) in enumerate(flows) if r in path and i in rates)
                steps.append(((Fraction(room) - taken) / climbing, r))
        bounds = [(Fraction(b) / s, i) for i, (_, _, s, b) in enumerate(flows) if b is not None and i not in rates]
        level = min(step for step, _ in steps + bounds)
        full = {r for step, r in steps if step == level}
        for i, (path, _, slope, bound) in enumerate(flows):
            if i not in rates and (full & set(path) or (bound is not None and Fraction(bound) / slope == level)):
                rates[i] = level * slope
    return [float(rates[i]) for i in range(len(flows))]


def assert_fair(solver, activities):
    """No resource over its capacity; every activity at its bound, or with the largest claim on a full resource."""
    users = [[] for _ in solver.capacity]
    used = [0.0] * len(solver.capacity)
    for activity in activities:
        for resource, usage, slope in activity.uses:
            used[resource] += usage * activity.rate
            users[resource].append(activity.rate / slope)
    assert all(used[r] <= capacity * (1 + 1e-9) for r, capacity in enumerate(solver.capacity))
    assert solver.load == pytest.approx(used, rel=1e-9, abs=1e-9)
    for activity in activities:
        assert activity.rate <= activity.bound * (1 + 1e-9)
        bottlenecks = [
            resource
            for resource, _, slope in activity.uses
            if used[resource] >= solver.capacity[resource] * (1 - 1e-6)
            and activity.rate / slope >= max(users[resource]) * (1 - 1e-6)
        ]
        assert bottlenecks or activity.rate >= activity.bound * (1 - 1e-6)


RESOURCES = 7
CAPACITIES = st.lists(st.integers(1, 1000), min_size=RESOURCES, max_size=RESOURCES)
PATHS = st.lists(st.integers(0, RESOURCES - 1), min_size=1, max_size=4, unique=True)
FLOWS = st.tuples(PATHS, st.integers(1, 3), st.integers(1, 5), st.none() | st.integers(1, 500))
TASKS = st.tuples(
    PATHS.flatmap(
        lambda path: st.tuples(
            *(st.tuples(st.just(r), st.sampled_from([1, 1, 2, 99]), st.integers(1, 4)) for r in path)
        )
    ),
    st.none() | st.floats(0.01, 100.0),
)


@given(CAPACITIES, st.lists(st.tuples(FLOWS, st.integers(0, 9), st.booleans()), min_size=1, max_size=25))
def test_rates_equal_those_of_exact_progressive_filling_after_every_change(capacities, changes):
    solver = Solver(capacities)
    present = []
    for (path, width, slope, bound), leaving, solved in changes:
        demand = solver.demand(path, [width] * len(path), claims=[1] * len(path), share=slope)
        activity = solver.add(demand, math.inf if bound is None else bound)
        present.append((activity, (path, width, slope, bound)))
        if leaving < len(present) - 1:
            solver.remove(present.pop(leaving)[0])
        if solved:
            before = {activity: activity.rate for activity, _ in present}
            changed = solver.solve()
            expected = filled(capacities, [flow for _, flow in present])
            assert [activity.rate for activity, _ in present] == pytest.approx(expected, rel=1e-9)
            assert {activity for activity in before if activity.rate != before[activity]} == set(changed)
            assert_fair(solver, [activity for activity, _ in present])


@given(CAPACITIES, st.lists(st.tuples(TASKS, st.integers(0, 9), st.booleans()), min_size=1, max_size=15))
def test_tasks_that_use_resources_unevenly_have_a_bottleneck_each(capacities, changes):
    solver = Solver(capacities)
    present = []
    for (uses, bound), leaving, rebound in changes:
        resources, claims, parts = zip(*uses, strict=True)
        usages = [claim * part for claim, part in zip(claims, parts, strict=True)]
        limit = math.inf if bound is None else bound
        present.append(solver.add(solver.demand(resources, usages, claims=claims), limit))
        if leaving < len(present) - 1:
            solver.remove(present.pop(leaving))
        if rebound:
            solver.set_bound(present[0], 7.0)
        solver.solve()
        assert_fair(solver, present)


def test_levels_converge_when_no_set_of_bottlenecks_is_confirmed(monkeypatch):
    uncompiled(monkeypatch)
    monkeypatch.setattr(components, "_exact_levels", lambda net, *_: np.zeros(len(net.links)))
    solver = Solver([7.0, 5.0, 3.0])
    uses = [((0, 1), (1.0, 2.0)), ((1, 2), (1.0, 3.0)), ((0, 2), (4.0, 1.0)), ((0, 1, 2), (1.0, 1.0, 2.0))]
    activities = [solver.add(solver.demand(resources, usages)) for resources, usages in uses]
    solver.solve()
    assert_fair(solver, activities)


def test_flows_of_other_components_are_left_alone():
    solver = Solver([1.0] * 4)
    pairs = [[solver.add(solver.demand([r], [1.0])) for _ in range(2)] for r in range(4)]
    assert len(solver.solve()) == 8
    solver.remove(pairs[2].pop(0))
    assert solver.solve() == pairs[2]
    assert [a.rate for pair in pairs for a in pair] == [0.5, 0.5, 0.5, 0.5, 1.0, 0.5, 0.5]
    assert solver.solve() == []


def test_a_wide_resource_ties_nobody_together():
    solver = Solver([10.0, 1.0, 1.0])
    first, second = (solver.add(solver.demand([0, r], [1.0, 1.0])) for r in (1, 2))
    solver.solve()
    third = solver.add(second.uses)
    assert set(solver.solve()) == {second, third}
    assert [first.rate, second.rate, third.rate] == [1.0, 0.5, 0.5]
    assert solver.load == [2.0, 1.0, 1.0]


def calls_of_an_event(pairs, monkeypatch):
    """Function calls made when one flow leaves and comes back, with two flows on each of `pairs` node links."""
    fluid = Fluid(clusters(2 * pairs, between="100000GBps"))
    for pair in range(pairs):
        fluid.start((pair, 0), 2 * pair, 2 * pair + 1, GB, 0.0)
        fluid.start((pair, 1), 2 * pair, 2 * pair + 1, GB, 0.0)
    list(fluid.settle(0.0))
    uncompiled(monkeypatch)
    count = 0

    def profile(_frame, event, _argument):
        nonlocal count
        count += event in ("call", "c_call")

    gc.disable()  # hypothesis counts collections
    sys.setprofile(profile)
    fluid.end((0, 0), 0.5)
    changed = list(fluid.settle(0.5))
    fluid.start((0, 0), 0, 1, GB, 0.5)
    changed += fluid.settle(0.5)
    sys.setprofile(None)
    gc.enable()
    assert {key for key, _ in changed} == {(0, 0), (0, 1)}
    return count


def test_the_work_of_an_event_does_not_grow_with_the_flows_in_the_system(monkeypatch):
    with monkeypatch.context() as patch:
        many = calls_of_an_event(2000, patch)
    assert many == calls_of_an_event(20, monkeypatch)


@pytest.mark.parametrize("capacity", [0.0, -1.0, math.nan])
def test_a_capacity_is_above_zero(capacity):
    with pytest.raises(ValueError, match="capacity above 0"):
        MaxMin([1.0, capacity])


# Flows, by hand


def test_a_message_alone_takes_its_latency_and_the_time_of_its_narrowest_link():
    platform = clusters(2, 1, between="100MBps", local_latency="1ms", global_latency="100ms")
    for target, seconds in ((1, 1 + 0.002), (2, 10 + 0.202)):
        fluid = Fluid(platform)
        assert replay(fluid, [at(3.0, fluid.start, "m", 0, target, GB)])["m"] == pytest.approx(3.0 + seconds, rel=1e-12)
        assert len(fluid) == 0


def test_two_flows_share_a_link_until_the_shorter_ends():
    fluid = Fluid(clusters(3))
    ends = replay(fluid, [at(0.0, fluid.start, "a", 0, 2, GB), at(0.0, fluid.start, "b", 1, 2, 3 * GB)])
    assert ends == {"a": 2.0, "b": 4.0}


def test_the_two_directions_of_a_link_are_apart():
    fluid = Fluid(clusters(2, 2, between="1GBps"))
    starts = [(0, 1), (1, 0), (0, 2), (2, 0)]
    ends = replay(fluid, [at(0.0, fluid.start, n, s, t, GB) for n, (s, t) in enumerate(starts)])
    assert set(ends.values()) == {2.0}


def test_a_flow_that_a_narrower_link_holds_back_leaves_room_to_the_others():
    # 0 -> 1 and 0 -> 2 share the up link of node 0; three flows to node 2 share its down link.
    fluid = Fluid(clusters(5))
    for number, (source, target) in enumerate([(0, 1), (0, 2), (3, 2), (4, 2)]):
        fluid.start(number, source, target, GB, 0.0)
    assert dict(fluid.settle(0.0)) == pytest.approx({0: 1.5, 1: 3.0, 2: 3.0, 3: 3.0})
    load = fluid.link_load()
    assert load.up.tolist() == pytest.approx([GB, 0, 0, GB / 3, GB / 3])
    assert load.down.tolist() == pytest.approx([0, 2 * GB / 3, GB, 0, 0])


def test_messages_between_clusters_load_both_global_links():
    fluid = Fluid(clusters(2, 3, between="500MBps"))
    fluid.start("x", 0, 4, GB, 0.0)
    fluid.start("y", 1, 3, GB, 0.0)
    assert dict(fluid.settle(0.0)) == {"x": 4.0, "y": 4.0}
    load = fluid.link_load()
    assert load.global_up.tolist() == [0.5 * GB, 0.0]
    assert load.global_down.tolist() == [0.0, 0.5 * GB]
    fluid.end("x", 1.0)
    fluid.end("y", 1.0)
    assert [array.sum() for array in vars(fluid.link_load()).values()] == [0.0] * 4


def test_a_message_takes_no_bandwidth_during_its_latency():
    fluid = Fluid(clusters(2, 1, local_latency="0us", global_latency="250ms"))
    ends = replay(fluid, [at(0.0, fluid.start, "near", 0, 1, GB), at(0.5, fluid.start, "far", 2, 1, GB)])
    # "far" waits until 1.0, when "near" has just ended.
    assert ends == {"near": 1.0, "far": 2.0}


def test_sharing_by_latency_gives_the_nearer_flow_more():
    fluid = Fluid(clusters(2, 1, local_latency="1ms", global_latency="99ms"), sharing="latency")
    fluid.start("near", 0, 1, GB, 0.0)
    fluid.start("far", 2, 1, GB, 0.0)
    for date in (0.002, 0.2):
        dict(fluid.settle(date))
        assert not fluid.advance("near" if date < 0.1 else "far", date)
    dict(fluid.settle(0.2))
    assert fluid.link_load().up.tolist() == pytest.approx([GB * 100 / 101, 0.0, GB / 101])


def test_nothing_holds_back_a_message_within_a_node_or_over_unlimited_links():
    fluid = Fluid(clusters(2, local_latency="1ms"))
    unlimited = Fluid(Platform.homogeneous(nodes=2, cores_per_node=1))
    assert replay(fluid, [at(1.0, fluid.start, "m", 1, 1, GB)]) == {"m": 1.0}
    assert replay(unlimited, [at(1.0, unlimited.start, "m", 0, 1, GB)]) == {"m": 1.0}


def test_an_empty_message_takes_its_latency():
    fluid = Fluid(clusters(2, local_latency="1ms"))
    assert replay(fluid, [at(1.0, fluid.start, "m", 0, 1, 0)]) == {"m": 1.002}


def test_a_message_too_small_to_move_the_clock_ends():
    fluid = Fluid(clusters(2, local_latency="250ms"))
    assert replay(fluid, [at(1e6, fluid.start, "m", 0, 1, 1e-6)]) == {"m": 1e6 + 0.5}


def test_a_transfer_that_is_ended_leaves_its_links_to_the_others():
    fluid = Fluid(clusters(3))
    starts = [at(0.0, fluid.start, "a", 0, 2, GB), at(0.0, fluid.start, "b", 1, 2, GB)]
    end = (1.0, lambda now: fluid.end("a", now) or "a")
    assert replay(fluid, [*starts, end]) == {"b": 1.5}


# Phases


def test_a_phase_lasts_until_its_last_message():
    fluid = Fluid(clusters(4))
    messages = [(0, 3, GB), (1, 3, 2 * GB), (2, 2, 5 * GB), (1, 0, GB)]
    # 1 -> 3 and 1 -> 0 share an up link, 0 -> 3 and 1 -> 3 a down link: 0.5 GB/s each until 2 s, then 1 GB/s.
    assert replay(fluid, [at(0.0, fluid.start_phase, "p", messages)]) == {"p": 3.0}


def test_a_phase_without_messages_between_nodes_is_over_at_once():
    fluid = Fluid(clusters(2, local_latency="1ms"))
    starts = [at(1.0, fluid.start_phase, "empty", []), at(2.0, fluid.start_phase, "inside", [(1, 1, GB)] * 3)]
    assert replay(fluid, starts) == {"empty": 1.0, "inside": 2.0}


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3),
            st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.sampled_from([0, 1e8, 1e9])), max_size=8),
        ),
        min_size=1,
        max_size=5,
    ),
    st.sampled_from(["equal", "latency", "rounds"]),
)
def test_a_phase_ends_when_the_last_of_its_messages_would_by_themselves(phases, sharing):
    platform = clusters(3, 2, between="700MBps", local_latency="10ms", global_latency="300ms")
    together, apart = Fluid(platform, sharing), Fluid(platform, sharing)
    ends = replay(together, [at(date, together.start_phase, p, messages) for p, (date, messages) in enumerate(phases)])
    single = replay(
        apart,
        [
            at(date, apart.start, (p, n), *message)
            for p, (date, messages) in enumerate(phases)
            for n, message in enumerate(messages)
        ],
    )
    for p, (date, _) in enumerate(phases):
        expected = max((end for (phase, _), end in single.items() if phase == p), default=date)
        assert ends[p] == pytest.approx(expected, rel=1e-9)


# Random topologies and transfers, against whole solutions in exact arithmetic


def remove(fluid, key, now):
    """Removes a transfer that is not over; returns its key."""
    if key not in fluid._transfers:
        return None
    fluid.end(key, now)
    return key


def ends_of(sizes, bandwidths, latencies, transfers):
    """Dates of the ends of transfers (start, messages, date of removal) without shortcuts, by key."""
    cluster = [k for k, size in enumerate(sizes) for _ in range(size)]
    capacity = [bandwidths[0]] * (2 * len(cluster)) + [bandwidths[1]] * (2 * len(sizes))
    ends = {key: start for key, (start, _, _) in enumerate(transfers)}
    flows = []
    for key, (start, messages, _) in enumerate(transfers):
        for source, target, volume, count in messages:
            here, there = cluster[source], cluster[target]
            path, latency = (2 * source, 2 * target + 1), 2 * latencies[0]
            if here != there:
                path += (2 * (len(cluster) + here), 2 * (len(cluster) + there) + 1)
                latency += 2 * latencies[1]
            if source != target:
                flows += [[start + latency, path, volume, key] for _ in range(count)]
    now = 0.0
    while flows:
        active = [flow for flow in flows if flow[0] <= now]
        rates = filled(capacity, [(path, 1, 1, None) for _, path, _, _ in active])
        dates = [now + flow[2] / rate for flow, rate in zip(active, rates, strict=True)]
        dates += [date for begin, _, _, key in flows for date in (begin, transfers[key][2]) if date > now]
        before, now = now, min(dates)
        for flow, rate in zip(active, rates, strict=True):
            flow[2] -= rate * (now - before)
        for begin, _, left, key in flows:
            if begin <= now and left <= 1e-3:
                ends[key] = now
            elif transfers[key][2] <= now:
                ends[key] = math.inf
        flows = [flow for flow in flows if ends[flow[3]] < math.inf and (flow[0] > now or flow[2] > 1e-3)]
    return {key: end for key, end in ends.items() if end < math.inf}


@given(
    st.lists(st.integers(1, 3), min_size=1, max_size=3),
    st.lists(
        st.tuples(
            st.integers(0, 40),
            st.lists(
                st.tuples(
                    st.integers(0, 8), st.integers(0, 8), st.sampled_from([0, 1e3, 1e8, 3e8, 1e9]), st.integers(1, 2)
                ),
                max_size=5,
            ),
            st.none() | st.integers(1, 60),
        ),
        min_size=1,
        max_size=6,
    ),
    st.booleans(),
)
def test_random_transfers_end_as_whole_exact_solutions_say(sizes, given, latency):
    latencies = (0.01, 0.3) if latency else (0.0, 0.0)
    platform = clusters(
        *sizes,
        between="700MBps",
        local_latency=f"{latencies[0] * 1000:g}ms",
        global_latency=f"{latencies[1] * 1000:g}ms",
    )
    fluid, transfers, calls = Fluid(platform), [], []
    for key, (start, ends, removal) in enumerate(given):
        # No two events at one date.
        date = 0.0371 * start + 0.00043 * key
        messages = [(a % sum(sizes), b % sum(sizes), volume, count) for a, b, volume, count in ends]
        calls.append(at(date, fluid.start_phase, key, messages))
        removed = math.inf
        if removal is not None:
            removed = date + 0.0371 * removal + 0.00017
            calls.append(at(removed, remove, fluid, key))
        transfers.append((date, messages, removed))
    expected = ends_of(sizes, (1e9, 7e8), latencies, transfers)
    assert replay(fluid, calls) == pytest.approx(expected, rel=1e-9)


# Transfers that are alone on their links take no part in the solving


class Solved(Fluid):
    """Finds the rates of every transfer with the solver, even of those that nobody disturbs."""

    def _claim(self, plan, now):
        return False


NODES = 5
VOLUMES = st.sampled_from([0, 1e3, 1e8, 3e8, 1e9])
MESSAGES = st.lists(
    st.tuples(st.integers(0, NODES - 1), st.integers(0, NODES - 1), VOLUMES, st.integers(1, 3)), max_size=6
)
# Dates at which nothing ends by chance.
DATES = st.integers(0, 40).map(lambda tick: tick * 0.0371)
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["phase", "phase", "again", "task", "pace", "end", "load"]),
        DATES,
        st.integers(0, 5),
        MESSAGES,
        st.sampled_from([0.0, 0.3, 1.0]),
    ),
    min_size=1,
    max_size=12,
)


def run(fluid, events):
    """Dates of ends by key, and the loads on the way."""
    loads, starts = [], []
    phases = [fluid.phase(messages) for *_, messages, _ in events]

    def load(now):
        assert list(fluid.settle(now)) == []
        loads.append(np.concatenate(list(vars(fluid.link_load()).values())))

    def call(number, kind, chosen, seconds, now):
        others = sorted(key for key in fluid._transfers if kind != "pace" or key[0] == "task")
        if kind in ("phase", "again"):
            fluid.start_phase((kind, number), phases[chosen % len(phases) if kind == "again" else number], now)
        elif kind == "task":
            fluid.start_parallel((kind, number), seconds, phases[number], now)
        elif kind == "load":
            load(now)
        elif others:
            other = others[chosen % len(others)]
            if kind == "pace":
                fluid.set_seconds(other, seconds + 0.5)
            else:
                fluid.end(other, now)
                return other
        return None

    for number, (kind, date, chosen, _, seconds) in enumerate(events):
        # One event an instant: what a load says depends on whether the others of its instant are over.
        starts.append((date + number * 0.00043, functools.partial(call, number, kind, chosen, seconds)))
    return replay(fluid, starts), loads


@given(EVENTS, st.sampled_from(["equal", "latency", "rounds"]), st.booleans())
def test_transfers_end_and_load_links_as_if_all_of_them_were_solved(events, sharing, latency):
    times = {"local_latency": "10ms", "global_latency": "300ms"} if latency else {}
    platform = clusters(3, 2, between="700MBps", **times)
    ends, loads = run(Fluid(platform, sharing), events)
    expected_ends, expected_loads = run(Solved(platform, sharing), events)
    assert ends == pytest.approx(expected_ends, rel=1e-9)
    for load, expected in zip(loads, expected_loads, strict=True):
        assert load == pytest.approx(expected, rel=1e-9, abs=1e-3)


@given(MESSAGES, st.sampled_from(["equal", "latency", "rounds"]), st.booleans(), st.sampled_from([0.0, 0.7]))
def test_a_phase_knows_how_long_it_takes_alone(messages, sharing, latency, seconds):
    times = {"local_latency": "10ms", "global_latency": "300ms"} if latency else {}
    platform = clusters(3, 2, between="700MBps", **times)
    phase = Fluid(platform, sharing).phase(messages)
    solved = Solved(platform, sharing)
    starts = [
        at(0.0, solved.start_phase, "exchange", messages),
        at(100.0, solved.start_parallel, "task", 0.0, messages),
        at(200.0, solved.start_parallel, "slow", seconds, messages),
    ]
    ends = replay(solved, starts)
    assert phase.uncontended_time == pytest.approx(ends["exchange"], rel=1e-9)
    assert phase.parallel_time(0.0) == pytest.approx(ends["task"] - 100.0, rel=1e-9)
    assert phase.parallel_time(seconds) == pytest.approx(ends["slow"] - 200.0)


def test_a_phase_alone_is_announced_once_and_costs_no_solving():
    fluid = Fluid(clusters(4))
    phase = fluid.phase([(0, 1, GB, 2), (1, 2, 3 * GB, 1), (2, 3, GB, 1)])
    for superstep in range(3):
        now = 10.0 * superstep
        fluid.start_phase("job", phase, now)
        assert list(fluid.settle(now)) == [("job", phase.uncontended_time)]
        assert list(fluid.settle(now + 1.0)) == []
        assert fluid.advance("job", now + phase.uncontended_time)
        assert len(fluid) == 0
    assert not fluid._shared.load.any()


def test_messages_are_counted():
    fluid = Fluid(clusters(3))
    several, listed = fluid.phase([(0, 1, GB, 3), (0, 1, GB)]), fluid.phase([(0, 1, GB)] * 4)
    assert several.uncontended_time == listed.uncontended_time == 4.0
    assert several.parallel_time(0.0) == listed.parallel_time(0.0) == 4.0


def test_two_gangs_share_a_link():
    # Both have a task on node 1, whose up and down halves they share.
    fluid = Fluid(clusters(3))
    first, second = ([(a, b, GB), (b, a, 2 * GB)] for a, b in ((0, 1), (2, 1)))
    ends = replay(fluid, [at(0.0, fluid.start_phase, "first", first), at(1.0, fluid.start_phase, "second", second)])
    # 0 -> 1 ends at 1 s. From then on 1 -> 0, of which 1 GB is left, and 1 -> 2 get half of the link of node 1, until
    # 3 s; then 1 GB of 1 -> 2 is left.
    assert ends == {"first": pytest.approx(3.0), "second": pytest.approx(4.0)}


# Parallel tasks


def test_a_parallel_task_goes_at_the_pace_of_its_slowest_part():
    for seconds, volume, expected in ((3.0, GB, 3.0), (0.5, 2 * GB, 2.0), (0.0, GB, 1.0), (2.0, 0, 2.0), (0.0, 0, 0.0)):
        fluid = Fluid(clusters(2))
        ends = replay(fluid, [at(1.0, fluid.start_parallel, "t", seconds, [(0, 1, volume)])])
        assert ends["t"] == pytest.approx(1.0 + expected)


def test_a_parallel_task_waits_for_its_longest_latency_before_it_begins():
    fluid = Fluid(clusters(2, 1, local_latency="1ms", global_latency="100ms"))
    messages = [(0, 1, GB / 2), (0, 2, GB / 2)]
    assert replay(fluid, [at(0.0, fluid.start_parallel, "t", 0.0, messages)])["t"] == pytest.approx(1.202)


def test_a_parallel_task_slows_down_with_the_link_it_shares():
    fluid = Fluid(clusters(3))
    starts = [
        at(0.0, fluid.start_parallel, "t", 1.0, [(0, 2, 0.8 * GB)]),
        at(0.0, fluid.start, "m", 1, 2, 0.5 * GB),
    ]
    # Half the link each until m ends at 1 s; the task has then sent 0.5 GB and goes on at 0.8 GB/s.
    assert replay(fluid, starts) == {"m": 1.0, "t": pytest.approx(1.375)}


def test_every_message_of_a_parallel_task_counts_as_one_on_a_shared_link():
    fluid = Fluid(clusters(4))
    fluid.start_parallel("t", 0.0, [(0, 3, GB), (1, 3, GB)], 0.0)
    fluid.start("m", 2, 3, GB, 0.0)
    assert dict(fluid.settle(0.0)) == {"t": pytest.approx(3.0), "m": pytest.approx(3.0)}


def test_in_rounds_a_task_counts_as_one_on_a_shared_link():
    fluid = Fluid(clusters(4), sharing="rounds")
    fluid.start_parallel("t", 0.0, [(0, 3, GB), (1, 3, GB)], 0.0)
    fluid.start("m", 2, 3, GB, 0.0)
    assert dict(fluid.settle(0.0)) == {"t": pytest.approx(4.0), "m": pytest.approx(2.0)}


def test_the_pace_of_a_computation_can_change():
    fluid = Fluid(clusters(2))
    fluid.start_parallel("t", 4.0, [(0, 1, GB)], 0.0)
    assert dict(fluid.settle(0.0)) == {"t": 4.0}
    fluid.set_seconds("t", 8.0)
    assert dict(fluid.settle(2.0)) == {"t": 4.0}
    fluid.set_seconds("t", 0.001)
    assert dict(fluid.settle(2.0)) == {"t": pytest.approx(0.5)}
    assert fluid.advance("t", 2.5)


# Mistakes


def test_an_unknown_sharing_is_named_with_those_there_are():
    with pytest.raises(
        ConfigError, match=r"network.sharing: expected one of equal, latency, rounds, got 'latncy'.*latency"
    ):
        Fluid(clusters(2), sharing="latncy")


@pytest.mark.parametrize(
    ("call", "arguments", "message"),
    [
        ("start", ("new", 0, 2, 1.0, 0.0), "nodes in 0..1, got a message from 0 to 2"),
        ("start", ("new", -1, 1, 1.0, 0.0), "nodes in 0..1"),
        ("start", ("new", 0, 1, -1.0, 0.0), "volume of 0 bytes or more, got -1.0"),
        ("start", ("new", 0, 1, math.nan, 0.0), "got nan"),
        ("start", ("old", 0, 1, 1.0, 0.0), "expected a new key, got 'old'"),
        ("start_phase", ("new", [(0, 1, 1.0, 0)], 0.0), "1 message or more, got 0 from 0 to 1"),
        ("start_parallel", ("new", math.inf, [], 0.0), "computation of 0 s or more, got inf"),
        ("set_seconds", ("old", 0.0), "computation of more than 0 s"),
    ],
)
def test_an_impossible_transfer_is_refused(call, arguments, message):
    fluid = Fluid(clusters(2))
    fluid.start("old", 0, 1, GB, 0.0)
    with pytest.raises(ValueError, match=message):
        getattr(fluid, call)(*arguments)
    assert dict(fluid.settle(0.0)) == {"old": 1.0}
