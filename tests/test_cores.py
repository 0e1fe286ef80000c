"""Core policies against the rule itself: one core at a time, keys updated after each."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kube_scores import score

import hdsim
from hdsim.cluster.placement import Placement
from hdsim.cluster.requests import Requests
from hdsim.cluster.scores import SCORES
from hdsim.cluster.selection import CORE_POLICIES
from hdsim.cluster.stores.nodes import NodeCores
from hdsim.cluster.stores.ordered import OrderedCores
from hdsim.errors import DecisionError

#: A node is (memory in GB, its processors), a processor (cores, clock rate, bandwidth, power).
processors = st.tuples(
    st.integers(1, 4), st.sampled_from([1.0, 2.0]), st.sampled_from([8, 24, None]), st.sampled_from([10, 20])
)
nodes = st.lists(
    st.tuples(st.sampled_from([1, 2, None]), st.lists(processors, min_size=1, max_size=5)), min_size=1, max_size=4
)
requests = st.lists(
    st.tuples(st.integers(1, 8), st.sampled_from([0, 200, 500, 900]), st.sampled_from([0, 4, 12])),
    min_size=1,
    max_size=8,
)


def platform_of(nodes):
    types = {
        "network": {"net": {"bandwidth": "1Gbps"}},
        "memory": {"ddr": {"latency": "100ns"}},
        "processor": {},
        "node": {},
    }
    entries = []
    for i, (memory, sockets) in enumerate(nodes):
        for j, (cores, clock, bandwidth, power) in enumerate(sockets):
            types["processor"][f"p{i}.{j}"] = {
                "type": "CPU", "cores": cores, "clock_rate": clock, "dpflops_per_cycle": 4,
                "mem_bw": bandwidth, "power": power, "llc_size": 1,
            }  # fmt: skip
        types["node"][f"n{i}"] = {
            "id": f"n{i}",
            "processors": [{"type": f"p{i}.{j}", "number": 1} for j in range(len(sockets))],
            "memory": {"type": "ddr", "capacity": memory},
        }
        entries.append({"type": f"n{i}", "number": 1})
    clusters = [{"id": "c", "nodes": entries, "local_links": {"type": "net", "latency": "0us"}}]
    links = {"type": "net", "latency": "0us"}
    return hdsim.Platform.from_dict({"clusters": clusters, "global_links": links, "types": types}, where="test")


def one_at_a_time(platform, memory_of_job, bandwidth_of_job, held, n, policy):
    """The rule as MODELS has it, over plain dictionaries of cores."""
    core_processor = platform.core_processor.tolist()
    node_of = platform.processor_node.tolist()
    taken = dict(held)  # core -> (memory, bandwidth)
    given_cores = []
    for _ in range(n):

        def used(kind, where, which):
            return sum(d[kind] for c, d in taken.items() if which(c) == where)

        def free_memory(node):
            return platform.memory[node] - used(0, node, lambda c: node_of[core_processor[c]])

        def score_of(node):
            on_node = [core for core, p in enumerate(core_processor) if node_of[p] == node]
            held_there = [taken[core][0] for core in on_node if core in taken]
            memory = platform.memory[node]
            return score(
                policy,
                (Fraction(len(on_node)), Fraction(int(memory * 10**6)) if math.isfinite(memory) else None),
                (Fraction(len(held_there)), Fraction(sum(held_there) * 10**6)),
                (0, held_there.count(0)),
                (Fraction(1), Fraction(memory_of_job * 10**6)),
            )

        def key(core):
            p = core_processor[core]
            if policy in SCORES:
                return score_of(node_of[p])
            return {
                "high_gflops": platform.gflops[p],
                "low_power": -platform.power[p],
                "high_cores": sum(1 for c, q in enumerate(core_processor) if q == p and c not in taken),
                "high_mem": free_memory(node_of[p]),
                "high_mem_bw": platform.mem_bw[p] - used(1, p, lambda c: core_processor[c]),
                "spread": tuple(
                    sum(1 for c, q in enumerate(core_processor) if own(q) and c not in taken)
                    for own in (lambda q: node_of[q] == node_of[p], lambda q: q == p)
                ),
            }[policy]

        eligible = [
            core
            for core in range(platform.n_cores)
            if core not in taken and free_memory(node_of[core_processor[core]]) >= memory_of_job
        ]
        if not eligible:
            return None
        best = max(eligible, key=lambda core: (key(core), -core))
        taken[best] = (memory_of_job, bandwidth_of_job)
        given_cores.append(best)
    return sorted(given_cores)


def on_fewest_nodes(platform, memory_of_job, held, n):
    """The rule of `pack`: all the room of the nodes with most of it, then the fullest node that holds the rest."""
    node_of = platform.processor_node[platform.core_processor]
    free = [[core for core in np.flatnonzero(node_of == v) if core not in held] for v in range(platform.n_nodes)]
    memory = platform.memory.copy()
    for core, (each, _) in held.items():
        memory[node_of[core]] -= each
    room = {v: int(min(len(idle), memory[v] // memory_of_job if memory_of_job else 99)) for v, idle in enumerate(free)}
    given_cores: list[int] = []
    if sum(room.values()) < n:
        return None
    while len(given_cores) < n:
        rest = n - len(given_cores)
        holding = [v for v in room if room[v] >= rest]
        node = min(holding, key=lambda v: len(free[v])) if holding else max(room, key=room.__getitem__)
        given_cores += free[node][: min(rest, room.pop(node))]
    return sorted(given_cores)


@given(
    nodes=nodes,
    requests=requests,
    policy=st.sampled_from([p for p in CORE_POLICIES if p != "random"]),
    data=st.data(),
)
def test_picks_equal_the_rule(nodes, requests, policy, data):
    platform = platform_of(nodes)
    sizes, memory, bandwidth = (list(column) for column in zip(*requests, strict=True))
    store = NodeCores(
        platform,
        Requests(sizes, [mem * 1e6 for mem in memory], list(map(float, bandwidth))),
        policy,
        np.random.default_rng(0),
    )
    held: dict[int, tuple[int, int]] = {}
    running = {}
    for job, (n, mem, bw) in enumerate(requests):
        if policy == "pack":
            expected = on_fewest_nodes(platform, mem, held, n)
        else:
            expected = one_at_a_time(platform, mem, bw, held, n, policy)
        placement = store.pick(job)
        assert (placement and placement.cores.tolist()) == expected
        if placement is not None:
            store.allocate(job, placement)
            running[job] = placement
            held.update(dict.fromkeys(expected, (mem, bw)))
        store.check(list(running.values()))
        if running and data.draw(st.booleans()):
            ended = data.draw(st.sampled_from(sorted(running)))
            for core in running[ended].cores.tolist():
                del held[core]
            store.release(ended, running.pop(ended))
            store.check(list(running.values()))


@given(nodes=nodes, held=st.sets(st.integers(0, 40)), n=st.integers(2, 12))
def test_pack_uses_as_few_nodes_as_possible(nodes, held, n):
    platform = platform_of([(None, sockets) for _, sockets in nodes])
    held = [core for core in held if core < platform.n_cores]
    store = NodeCores(platform, Requests([n, len(held)], [0.0, 0.0], [0.0, 0.0]), "pack", np.random.default_rng(0))
    if held:
        store.allocate(1, store.placement_of(held))
    placement = store.pick(0)
    if placement is not None:
        idle = sorted(store.node_idle.tolist(), reverse=True)
        fewest = next(k for k in range(1, len(idle) + 1) if sum(idle[:k]) >= n)
        assert len(placement.nodes) == fewest


def test_pack_fills_and_spread_takes_turns():
    # Nodes of 2 x 2, 4 and 4 cores.
    platform = platform_of([(None, [(2, 1.0, None, 10), (2, 1.0, None, 10)]), *[(None, [(4, 1.0, None, 10)])] * 2])
    sizes = [1, 3, 2, 6]
    picked = {}
    for policy in ("pack", "spread"):
        store = NodeCores(platform, Requests(sizes, [0.0] * 4, [0.0] * 4), policy, np.random.default_rng(0))
        picked[policy] = []
        for job in range(len(sizes)):
            placement = store.pick(job)
            picked[policy].append(placement.cores.tolist())
            store.allocate(job, placement)
    assert picked["pack"] == [[0], [1, 2, 3], [4, 5], [6, 7, 8, 9, 10, 11]]
    # One, then the two fullest nodes and again the first of the fullest; within the first node, one a processor.
    assert picked["spread"] == [[4], [0, 5, 8], [2, 9], [1, 3, 6, 7, 10, 11]]


def test_random_is_uniform_over_eligible_cores():
    platform = platform_of([(1, [(2, 1.0, 8, 10)]), (2, [(3, 1.0, 8, 10)])])
    store = NodeCores(platform, Requests([1, 2], [900e6, 900e6], [0.0, 0.0]), "random", np.random.default_rng(1))
    rounds = 4000
    single = np.bincount([store.pick(0).cores[0] for _ in range(rounds)], minlength=5)
    assert (abs(single / rounds - 1 / 5) < 5 * math.sqrt(0.16 / rounds)).all()
    # Two cores at 900 MB: node 0 has room for one, node 1 for two.
    pairs = [tuple(store.pick(1).cores.tolist()) for _ in range(500)]
    assert (0, 1) not in pairs
    assert len(set(pairs)) == 9


@pytest.mark.parametrize("memory", [0.0, 1e9])
@pytest.mark.parametrize("policy", ["high_gflops", "low_power", "high_cores", "high_mem", "high_mem_bw", "random"])
def test_short_cuts_choose_as_core_by_core(policy: str, memory: float) -> None:
    platform = hdsim.load_platform("platforms/gaia.json")
    rng = np.random.default_rng(5)
    sizes = rng.integers(1, 200, 150).tolist()
    amounts = rng.choice([memory / 5, memory], 150).tolist()
    cores = NodeCores(platform, Requests(sizes, amounts, [4.0] * 150), "high_gflops", np.random.default_rng(0))
    no_limit = np.full(platform.n_nodes, platform.n_cores)
    running: list[tuple[int, Placement]] = []
    for job in range(150):
        state = cores._rng.bit_generator.state
        quick = cores.pick(job, policy)
        cores._rng.bit_generator.state = state
        slow = cores.pick(job, policy, limit=no_limit)
        assert (quick is None) == (slow is None)
        while quick is None or (running and rng.random() < 0.4):
            cores.release(*running.pop(rng.integers(len(running))))
            quick = slow = cores.pick(job, policy, limit=no_limit)
        assert np.array_equal(quick.cores, slow.cores)
        cores.allocate(job, quick)
        running.append((job, quick))


HDEEPRM_POLICIES = ("random", "high_gflops", "high_cores", "high_mem", "high_mem_bw", "low_power")


def test_a_list_of_cores_chooses_as_nodes_do() -> None:
    platform = hdsim.load_platform("platforms/homogeneous_256.json")
    rng = np.random.default_rng(6)
    sizes = rng.choice([1, 2, 3, 4, 7, 40, 130], 400).tolist()
    requests = Requests(sizes, [0.0] * 400, [8.0] * 400)
    assert OrderedCores.suit(HDEEPRM_POLICIES, platform, requests)
    ordered = OrderedCores(platform, requests, HDEEPRM_POLICIES, np.random.default_rng(1))
    nodes = NodeCores(platform, requests, "random", np.random.default_rng(1))
    running: dict[int, tuple[list[int], Placement]] = {}
    for job in range(400):
        policy = HDEEPRM_POLICIES[rng.integers(6)] if rng.random() < 0.9 else None
        slots, placement = ordered.pick(job, policy), nodes.pick(job, policy)
        assert (slots is None) == (placement is None)
        if slots is not None and placement is not None:
            assert ordered.ids_of(slots) == placement.cores.tolist()
            ordered.allocate(job, slots)
            nodes.allocate(job, placement)
            running[job] = slots, placement
        while running and (slots is None or rng.random() < 0.4):
            slots = []
            ended = list(running)[rng.integers(len(running))]
            held, freed = running.pop(ended)
            ordered.release(ended, held)
            nodes.release(ended, freed)
        ordered.check([held for held, _ in running.values()])


def test_a_list_of_cores_serves_one_order_only() -> None:
    def suit(*policies: str, platform: hdsim.Platform) -> bool:
        return OrderedCores.suit(policies, platform, Requests([1], [0.0], [4.0]))

    equal = platform_of([(None, [(2, 1.0, None, 10)] * 2)] * 2)
    powers = platform_of([(None, [(2, 1.0, None, 20), (2, 1.0, None, 10)])])
    bandwidths = platform_of([(None, [(2, 1.0, 8, 10)] * 2)])
    assert suit(*HDEEPRM_POLICIES, platform=equal)
    assert not suit("high_gflops", "spread", platform=equal)
    assert suit("low_power", "random", "high_cores", platform=powers)
    assert not suit("high_gflops", "low_power", platform=powers)
    assert suit("high_gflops", "low_power", platform=bandwidths)
    assert not suit("high_gflops", "high_mem_bw", platform=bandwidths)
    store = OrderedCores(powers, Requests([1], [0.0], [4.0]), ["low_power"], np.random.default_rng(0))
    with pytest.raises(DecisionError, match=r"that the agent declares \(low_power\), got 'random'"):
        store.pick(0, "random")
    for named_twice in ([0, 0], [1, 2]):
        store.allocate(0, [1])
        with pytest.raises(DecisionError):
            store.allocate(0, named_twice)
        store.release(0, [1])
        store.check([])
