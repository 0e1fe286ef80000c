"""Core policies against the rule itself: one core at a time, keys updated after each."""

import copy
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kube_scores import score
from tiers import examples

import hdsim
from hdsim.cluster.placement import Placement
from hdsim.cluster.policies import CORE_POLICIES, SCORES
from hdsim.cluster.requests import Requests
from hdsim.cluster.stores.nodes import NodeCores
from hdsim.cluster.stores.ordered import OrderedCores
from hdsim.errors import DecisionError

#: A node is (memory in GB, its processors, its GPUs), a processor (cores, clock rate, bandwidth, power).
processors = st.tuples(
    st.sampled_from([1, 2, 3, 4, 9]),
    st.sampled_from([1.0, 2.0]),
    st.sampled_from([8, 24, None]),
    st.sampled_from([10, 20]),
)
nodes = st.lists(
    st.tuples(
        st.sampled_from([1, 2, None]),
        st.lists(processors, min_size=1, max_size=5),
        st.lists(st.integers(0, 5), max_size=2),
    ),
    min_size=1,
    max_size=4,
)
#: (cores, memory in MB per core, bandwidth per core, GPUs)
requests = st.lists(
    st.tuples(
        st.one_of(st.integers(1, 8), st.integers(17, 30)),
        st.sampled_from([0, 200, 500, 900]),
        st.sampled_from([0, 4, 12]),
        st.sampled_from([0, 0, 1, 2, 4]),
    ),
    min_size=1,
    max_size=8,
)


def platform_of(nodes):
    """The platform of nodes, whose GPUs lie before their processors of given numbers, or behind them all."""
    types = {
        "network": {"net": {"bandwidth": "1Gbps"}},
        "memory": {"ddr": {"latency": "100ns"}},
        "processor": {"gpu": {"type": "GPU", "cores": 1, "clock_rate": 64, "dpflops_per_cycle": 2, "power": 100}},
        "node": {},
    }
    entries = []
    for i, (memory, sockets, *gpus) in enumerate(nodes):
        boards = [{"type": f"p{i}.{j}", "number": 1} for j in range(len(sockets))]
        for place in gpus[0] if gpus else ():
            boards.insert(place, {"type": "gpu", "number": 1})
        for j, (cores, clock, bandwidth, power) in enumerate(sockets):
            types["processor"][f"p{i}.{j}"] = {
                "type": "CPU",
                "cores": cores,
                "clock_rate": clock,
                "dpflops_per_cycle": 4,
                "mem_bw": bandwidth,
                "power": power,
                "llc_size": 1,
            }
        types["node"][f"n{i}"] = {
            "id": f"n{i}",
            "processors": boards,
            "memory": {"type": "ddr", "capacity": memory},
        }
        entries.append({"type": f"n{i}", "number": 1})
    clusters = [{"id": "c", "nodes": entries, "local_links": {"type": "net", "latency": "0us"}}]
    links = {"type": "net", "latency": "0us"}
    return hdsim.Platform.from_dict({"clusters": clusters, "global_links": links, "types": types}, where="test")


def one_at_a_time(platform, chunk, bandwidth_of_job, held, limit, policy, order):
    """The rule as MODELS has it, over plain dictionaries of cores.

    Args:
        platform: The platform.
        chunk: Number of chunks, cores and GPUs of each, memory per core in MB.
        bandwidth_of_job: Bandwidth per core in GB/s.
        held: Memory and bandwidth of each busy core.
        limit: Chunks that each node may take.
        policy: The core policy.
        order: Idle cores in the order of `random`.
    """
    number, cores, gpus, memory_of_job = chunk
    core_processor = platform.core_processor.tolist()
    node_of = platform.processor_node.tolist()
    devices = set(platform.gpus.tolist())
    taken = dict(held)  # core -> (memory, bandwidth)
    given_cores = []
    left = list(limit)
    for _ in range(number):

        def used(kind, where, which):
            return sum(d[kind] for c, d in taken.items() if which(c) == where)

        def free_memory(node):
            return platform.memory[node] - used(0, node, lambda c: node_of[core_processor[c]])

        def score_of(node):
            on_node = [core for core, p in enumerate(core_processor) if node_of[p] == node and core not in devices]
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
            if policy == "random":
                return -order.index(core)
            return {
                "high_gflops": platform.gflops[p],
                "low_power": -platform.power[p],
                "high_cores": sum(1 for c, q in enumerate(core_processor) if q == p and c not in taken),
                "high_mem": free_memory(node_of[p]),
                "high_mem_bw": platform.mem_bw[p] - used(1, p, lambda c: core_processor[c]),
                "spread": tuple(
                    sum(1 for c, q in enumerate(core_processor) if own(q) and c not in taken and c not in devices)
                    for own in (lambda q: node_of[q] == node_of[p], lambda q: q == p)
                ),
            }[policy]

        def idle(node, of_devices):
            ids = [core for core, p in enumerate(core_processor) if node_of[p] == node and core not in taken]
            return [core for core in ids if (core in devices) == of_devices]

        def has_room(node):
            fits = len(idle(node, of_devices=False)) >= cores and len(idle(node, of_devices=True)) >= gpus
            return fits and left[node] > 0 and free_memory(node) >= memory_of_job * cores

        eligible = [core for node in range(platform.n_nodes) if has_room(node) for core in idle(node, of_devices=False)]
        if not eligible:
            return None
        best = max(eligible, key=lambda core: (key(core), -core))
        node = node_of[core_processor[best]]
        for _ in range(cores):
            best = max(idle(node, of_devices=False), key=lambda core: (key(core), -core))
            taken[best] = (memory_of_job, bandwidth_of_job)
            given_cores.append(best)
        for device in idle(node, of_devices=True)[:gpus]:
            taken[device] = (0, 0)
            given_cores.append(device)
        left[node] -= 1
    return sorted(given_cores)


def on_fewest_nodes(platform, chunk, held, limit):
    """The rule of `pack`: all the room of the nodes with most of it, then the fullest node that holds the rest."""
    n, cores, gpus, memory_of_job = chunk
    node_of, is_gpu = platform.processor_node[platform.core_processor], platform.is_gpu[platform.core_processor]
    idle = [[core for core in np.flatnonzero(node_of == v) if core not in held] for v in range(platform.n_nodes)]
    free = [[core for core in ids if not is_gpu[core]] for ids in idle]
    devices = [[core for core in ids if is_gpu[core]] for ids in idle]
    memory = platform.memory.copy()
    for core, (each, _) in held.items():
        memory[node_of[core]] -= each
    room = {
        v: min(
            limit[v],
            len(ids) // cores,
            int(memory[v] / memory_of_job) // cores if memory_of_job and math.isfinite(memory[v]) else 99,
            len(devices[v]) // gpus if gpus else 99,
        )
        for v, ids in enumerate(free)
    }
    given_cores: list[int] = []
    if sum(room.values()) < n:
        return None
    while n:
        holding = [v for v in room if room[v] >= n]
        node = min(holding, key=lambda v: len(free[v])) if holding else max(room, key=room.__getitem__)
        chunks = min(n, room.pop(node))
        given_cores += free[node][: chunks * cores] + devices[node][: chunks * gpus]
        n -= chunks
    return sorted(given_cores)


@given(
    nodes=nodes,
    requests=requests,
    policy=st.sampled_from(list(CORE_POLICIES)),
    data=st.data(),
)
@examples(30, 100)
@pytest.mark.ci
def test_picks_equal_the_rule(nodes, requests, policy, data):
    platform = platform_of(nodes)
    sizes, memory, bandwidth, gpus = (list(column) for column in zip(*requests, strict=True))
    if policy in SCORES:
        gpus = [0] * len(sizes)
    asked = Requests(sizes, [mem * 1e6 for mem in memory], [float(bw) for bw in bandwidth], gpus)
    store = NodeCores(platform, asked, policy, np.random.default_rng(0))
    held: dict[int, tuple[int, int]] = {}
    running = {}
    for job, (_, mem, bw, _) in enumerate(requests):
        number, cores, devices, *_ = asked.chunk(job)
        chunk = number, cores, devices, mem
        limit = data.draw(st.none() | st.lists(st.integers(0, 9), min_size=len(nodes), max_size=len(nodes)))
        if policy == "pack":
            expected = on_fewest_nodes(platform, chunk, held, limit or [99] * len(nodes))
        else:
            idle = [core for core in store.idle_ids() if core not in platform.gpus]
            order = copy.deepcopy(store._rng).permutation(idle).tolist()
            expected = one_at_a_time(platform, chunk, bw, held, limit or [99] * len(nodes), policy, order)
        placement = store.pick(job, limit=limit and np.array(limit))
        assert (placement and placement.ids.tolist()) == expected
        if placement is not None:
            store.allocate(job, placement)
            running[job] = placement
            held.update(dict.fromkeys(placement.cores.tolist(), (mem, bw)))
            held.update(dict.fromkeys(placement.gpus.tolist(), (0, 0)))
        store.check(list(running.values()))
        if running and data.draw(st.booleans()):
            ended = data.draw(st.sampled_from(sorted(running)))
            for core in running[ended].ids.tolist():
                del held[core]
            store.release(ended, running.pop(ended))
            store.check(list(running.values()))


@given(nodes=nodes, held=st.sets(st.integers(0, 40)), n=st.integers(2, 12))
def test_pack_uses_as_few_nodes_as_possible(nodes, held, n):
    platform = platform_of([(None, sockets) for _, sockets, _ in nodes])
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
