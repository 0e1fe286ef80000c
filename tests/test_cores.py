"""Core policies against the rule itself: one core at a time, keys updated after each."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import hdsim
from hdsim.cores import CORE_POLICIES, Demands, NodeCores

#: A node is (memory in GB, its processors), a processor (cores, clock rate, bandwidth, power).
processors = st.tuples(
    st.integers(1, 4), st.sampled_from([1.0, 2.0]), st.sampled_from([8, 24, None]), st.sampled_from([10, 20])
)
nodes = st.lists(
    st.tuples(st.sampled_from([1, 2, None]), st.lists(processors, min_size=1, max_size=5)), min_size=1, max_size=4
)
demands = st.lists(
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

        def key(core):
            p = core_processor[core]
            return {
                "high_gflops": platform.gflops[p],
                "low_power": -platform.power[p],
                "high_cores": sum(1 for c, q in enumerate(core_processor) if q == p and c not in taken),
                "high_mem": free_memory(node_of[p]),
                "high_mem_bw": platform.mem_bw[p] - used(1, p, lambda c: core_processor[c]),
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


@given(
    nodes=nodes, demands=demands, policy=st.sampled_from([p for p in CORE_POLICIES if p != "random"]), data=st.data()
)
def test_bulk_picks_equal_the_rule(nodes, demands, policy, data):
    platform = platform_of(nodes)
    sizes, memory, bandwidth = (list(column) for column in zip(*demands, strict=True))
    store = NodeCores(
        platform, Demands(sizes, [mem * 1e6 for mem in memory], bandwidth), policy, np.random.default_rng(0)
    )
    held: dict[int, tuple[int, int]] = {}
    running = {}
    for job, (n, mem, bw) in enumerate(demands):
        expected = one_at_a_time(platform, mem, bw, held, n, policy)
        placement = store.pick(job)
        assert (placement and placement.cores.tolist()) == expected
        if placement is not None:
            store.take(job, placement)
            running[job] = placement
            held.update(dict.fromkeys(expected, (mem, bw)))
        store.check(list(running.values()))
        if running and data.draw(st.booleans()):
            ended = data.draw(st.sampled_from(sorted(running)))
            for core in running[ended].cores.tolist():
                del held[core]
            store.give_back(ended, running.pop(ended))
            store.check(list(running.values()))


def test_random_is_uniform_over_eligible_cores():
    platform = platform_of([(1, [(2, 1.0, 8, 10)]), (2, [(3, 1.0, 8, 10)])])
    store = NodeCores(platform, Demands([1, 2], [900e6, 900e6], [0, 0]), "random", np.random.default_rng(1))
    rounds = 4000
    single = np.bincount([store.pick(0).cores[0] for _ in range(rounds)], minlength=5)
    assert (abs(single / rounds - 1 / 5) < 5 * math.sqrt(0.16 / rounds)).all()
    # Two cores at 900 MB: node 0 has room for one, node 1 for two.
    pairs = [tuple(store.pick(1).cores.tolist()) for _ in range(500)]
    assert (0, 1) not in pairs
    assert len(set(pairs)) == 9
