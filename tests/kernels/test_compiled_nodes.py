"""The replay in compiled code on nodes gives the schedule of the engine, core by core."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_compiled import STATIC, assert_equal, workload_of
from test_compiled import rows as jobs
from test_cores import nodes, platform_of

import hdsim
from hdsim.agents.classic import ClassicAgent
from hdsim.cluster import invariants
from hdsim.cluster.kernels.pcg64 import restore, shuffle, words_of
from hdsim.cluster.state import FinalState
from hdsim.cluster.stores.nodes import NodeCores
from hdsim.contention.kernels.speeds import sort
from hdsim.errors import ConfigError

agents = st.fixed_dictionaries(
    {
        "job_policy": st.sampled_from(STATIC),
        "backfill": st.sampled_from(["none", "easy", "greedy", "conservative"]),
        "backfill_order": st.sampled_from([None, *STATIC]),
        "commit_head": st.booleans(),
        "core_policy": st.sampled_from(
            ["high_gflops", "low_power", "high_cores", "high_mem", "high_mem_bw", "spread", "pack", "random"]
        ),
    }
)
options = st.fixed_dictionaries(
    {
        "contention": st.sampled_from(["none", "threshold", "fair_share", "smoothstep"]),
        "kill_at_walltime": st.booleans(),
        "batch_events": st.booleans(),
    }
)


def both(platform, workload, agent, options):
    """Replays in compiled code and in the engine."""
    compiled = hdsim.simulate(platform, workload, ClassicAgent(**agent), **options)
    engine = hdsim.simulate(platform, workload, ClassicAgent(**agent), check=True, **options)
    assert (compiled.engine["mode"], engine.engine["mode"]) == ("compiled", "events")
    return compiled, engine


def drawn(nodes, rows, options, data):
    """Returns a platform and a workload with demands of bandwidth and, unless cores are alike, of memory and GPUs."""
    demands = {"memory": [0, 200, 500, 900], "memory_bandwidth": [0, 4, 6.1, 12], "requested_gpus": [0, 0, 0, 1, 2]}
    if data.draw(st.booleans()):
        demands |= {"memory": [0], "requested_gpus": [0]}
        nodes = [(memory, [(s[0], 1.0, *s[2:]) for s in sockets], gpus) for memory, sockets, gpus in nodes]
    lists = {
        name: data.draw(st.lists(st.sampled_from(values), min_size=len(rows), max_size=len(rows)))
        for name, values in demands.items()
    }
    workload = workload_of(rows, 1.0, **lists)
    if options["contention"] == "smoothstep":
        nodes = [(memory, [(*s[:2], s[2] or 8, s[3]) for s in sockets], gpus) for memory, sockets, gpus in nodes]
    return platform_of(nodes), workload


@pytest.mark.ci
@given(nodes=nodes, rows=jobs, agent=agents, options=options, data=st.data())
def test_equal_to_the_engine(nodes, rows, agent, options, data):
    assert_equal(*both(*drawn(nodes, rows, options, data), agent, options))


@given(
    nodes=nodes,
    rows=jobs,
    backfill=st.sampled_from(["none", "easy"]),
    commit=st.booleans(),
    core_policy=st.sampled_from(["high_gflops", "spread", "pack"]),
    options=options,
    data=st.data(),
)
def test_order_learned_is_that_of_the_engine(nodes, rows, backfill, commit, core_policy, options, data):
    agent = {"job_policy": "learned", "backfill": backfill, "commit_head": commit, "core_policy": core_policy}
    assert_equal(*both(*drawn(nodes, rows, options, data), agent, options))


@pytest.mark.ci
@pytest.mark.parametrize("contention", ["none", "threshold"])
@pytest.mark.parametrize(
    "agent",
    [
        {"job_policy": "learned"},
        {"job_policy": "learned", "backfill": "easy"},
    ],
)
def test_long_queues_on_nodes(agent, contention):
    """Thousands of jobs with memory on nodes of several speeds, at twice the load of the trace."""
    workload = hdsim.load_workload("lublin_4000")[:1500]
    workload = workload.replaced(submission_time=workload.submission_time / 2)
    options = {"contention": contention, "kill_at_walltime": True}
    simulations = [hdsim.Simulation("gaia", workload, ClassicAgent(**agent), **options) for _ in range(2)]
    # A simulation that has begun stays in the engine.
    simulations[1].run_until(0.0)
    compiled, engine = (each.run() for each in simulations)
    assert (compiled.engine["mode"], engine.engine["mode"]) == ("compiled", "events")
    assert_equal(compiled, engine)
    assert np.mean(compiled.jobs["waiting_time"]) > 0


@pytest.mark.ci
@given(
    nodes=nodes, rows=jobs, agents=st.tuples(agents, agents), options=options, share=st.floats(0, 0.7), data=st.data()
)
def test_the_rest_of_a_replay_is_that_of_the_engine(nodes, rows, agents, options, share, data):
    platform, workload = drawn(nodes, rows, options, data)
    options = options | {"batch_events": True}
    first = ClassicAgent(**agents[0])
    whole = hdsim.simulate(platform, workload, first, seed=3, **options)
    dates = [date for key in ("submission_time", "finish_time") for date in whole.jobs[key]]
    actual = data.draw(st.booleans())
    original = hdsim.Simulation(platform, workload, first, seed=3, **options)
    original.run_until(float(np.nanquantile(dates, share)))
    assumed = {"runtimes": "actual", "arrivals": "actual"} if actual else {}
    forks = [original.fork(ClassicAgent(**agents[1]), **assumed) for _ in range(2)]
    forks[1].run_until(forks[1].now)
    results = [fork.run() for fork in forks]
    expected = "compiled" if isinstance(forks[1].cluster.cores, NodeCores) else results[0].engine["mode"]
    assert [result.engine["mode"] for result in results] == [expected, "events"]
    assert_equal(*results)
    states = [
        (each.state, list(each.queue), each.rng.bit_generator.state, each.arrived)
        for each in (fork.cluster for fork in forks)
    ]
    assert states[0] == states[1]
    for fork in forks:
        invariants.check(fork.cluster)


@pytest.mark.parametrize("draws", [0, 3])
def test_random_cores_go_on_with_the_generator_of_the_cluster(draws):
    rng = np.random.default_rng(3)
    columns = {"submission_time": np.arange(60), "runtime": rng.integers(1, 40, 60)}
    workload = hdsim.Workload.from_columns(requested_cores=rng.integers(1, 9, 60), **columns)
    platform = hdsim.Platform.homogeneous(nodes=5, cores_per_node=2)
    ends = [hdsim.Simulation(platform, workload, "easy-first-random", seed=4, check=check) for check in (False, True)]
    for end in ends if draws else ():
        end.cluster.rng.integers(9, size=draws, dtype=np.int32)
    results = [end.run() for end in ends]
    assert [result.engine["mode"] for result in results] == ["compiled", "events"]
    assert np.array_equal(*(result.jobs["allocated_resources"] for result in results))
    compiled, engine = (end.cluster.rng.bit_generator.state for end in ends)
    assert compiled == engine


@given(seed=st.integers(0, 2**64), sizes=st.lists(st.integers(0, 300), max_size=8))
def test_permutations_of_numpy(seed, sizes):
    rng, other = np.random.default_rng(seed), np.random.default_rng()
    words = words_of(rng)
    for size in [*sizes, 3]:
        items = np.arange(size)
        shuffle(words, items)
        assert items.tolist() == rng.permutation(size).tolist()
    restore(other, words)
    assert other.bit_generator.state == rng.bit_generator.state


@pytest.mark.parametrize("agent", ["first-high_cores", "easy-first-high_cores"])
def test_ranges_of_cores_outgrow_their_space(agent):
    """Jobs of one core are on all processors in turn, so that wide jobs have ranges of one or two cores."""
    narrow, wide = 300, 60
    workload = hdsim.Workload.from_columns(
        submission_time=[0] * narrow + [1 + 10 * each for each in range(wide)],
        runtime=[1, 1e5] * (narrow // 2) + [10] * wide,
        requested_cores=[1] * narrow + [narrow // 2] * wide,
        memory=[1] * (narrow + wide),
    )
    platform = hdsim.Platform.homogeneous(nodes=narrow // 2, cores_per_node=2, memory_gb_per_node=1, mem_bw=1)
    compiled, engine = (hdsim.simulate(platform, workload, agent, check=check) for check in (False, True))
    assert_equal(compiled, engine)


def test_a_model_that_stops_a_job_is_told():
    """One decimal place of a speed far below 0.1."""
    constants = {"b": -10.0, "c": 1.0, "da": 0.0, "db": 0.0, "dc": 0.1, "dd": 0.0}
    contention = {"_target_": "hdsim.contention.smoothstep.Smoothstep", "constants": constants, "digits": 1}
    platform = hdsim.Platform.homogeneous(nodes=1, cores_per_node=64, mem_bw=1)
    workload = hdsim.Workload.from_columns(
        submission_time=[0], runtime=[5], requested_cores=[64], memory_bandwidth=[10.0]
    )
    for check in (False, True):
        with pytest.raises(ConfigError, match="expected speeds above 0 from Smoothstep, got 0"):
            hdsim.simulate(platform, workload, "fcfs", contention=contention, check=check)


def test_a_signal_stops_between_two_instants(monkeypatch):
    """What is left is the state after a number of instants; nothing is lost or counted twice."""
    monkeypatch.setattr("hdsim.simulation.compiled._INSTANTS", 1)
    workload = hdsim.Workload.from_columns(
        submission_time=[0, 1, 2, 3], runtime=[5, 5, 5, 5], requested_cores=[1, 2, 1, 1], memory=[1, 1, 1, 1]
    )
    platform = hdsim.Platform.homogeneous(nodes=2, cores_per_node=1, memory_gb_per_node=1)
    simulation = hdsim.Simulation(platform, workload, "fcfs")
    stop = []
    simulation._compiled.run(stop, Ticks(stop, 3))
    result = simulation._compiled.result(interrupted=True)
    assert [state.name for state in map(FinalState, result.state)] == ["RUNNING", "QUEUED", "QUEUED", "NOT_SUBMITTED"]
    assert result.starting_time[0] == 0
    simulation._compiled.fill(simulation.cluster)
    assert (simulation.cluster.now, simulation.cluster.n_idle, list(simulation.cluster.queue)) == (2, 1, [1, 2])
    invariants.check(simulation.cluster)


class Ticks:
    """A progress bar that stops the replay at its n-th update."""

    def __init__(self, stop, n):
        self.stop, self.left = stop, n

    def update(self, done, now, moment):
        self.left -= 1
        if self.left == 0:
            self.stop.append(15)


@given(st.lists(st.integers(-5, 5), max_size=40), st.integers(0, 40))
def test_sort(values, first):
    first = min(first, len(values))
    array = np.array(values, np.int64)
    sort(array, first, len(values))
    assert array.tolist() == values[:first] + sorted(values[first:])
