"""The replay in compiled code gives the schedule of the engine and of the slow reference, core by core."""

from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import reference as ref
from hypothesis import given
from hypothesis import strategies as st

import hdsim
from hdsim.agents.classic import ClassicAgent
from hdsim.cluster.kernels.free_ranges import give, make_free_ranges, take
from hdsim.scheduling import agent as agent_module
from hdsim.scheduling.orders import ORDERS
from hdsim.simulation import compiled as compiled_module
from hdsim.simulation.compiled import compiled_cores
from hdsim.simulation.setup import set_up
from hdsim.simulation.terminal import ReplayBar

STATIC = [name for name, order in ORDERS.items() if not order.dynamic]

rows = st.lists(
    st.tuples(
        st.integers(0, 40),  # submission
        st.integers(0, 20),  # run time
        st.integers(1, 6),  # cores, of 5: some are impossible
        st.integers(0, 25),  # requested time
        st.integers(1, 20),  # walltime
        st.sampled_from([0, 0, 3]),  # return code
        st.booleans(),  # a delay
    ),
    min_size=1,
    max_size=40,
)
agents = st.fixed_dictionaries(
    {
        "job_policy": st.sampled_from(STATIC),
        "backfill": st.sampled_from(["none", "easy", "conservative", "rlscheduler", "greedy", "hybrid", 2, 3]),
        "backfill_order": st.sampled_from([None, *STATIC]),
        "commit_head": st.booleans(),
        "core_policy": st.sampled_from(["high_gflops", "low_power", "high_mem", "high_mem_bw"]),
    }
)
#: Watts of each core, by which `low_power` prefers cores.
watts = st.lists(st.sampled_from([1, 2, 3]), min_size=5, max_size=5)
#: Seconds of a unit of time: sums of 1/3 are rounded, and 10^6 s is so late that a job of 10^-4 s has no duration.
units = st.sampled_from([1.0, 1 / 3, 1e-4])


def workload_of(rows, unit, **columns) -> hdsim.Workload:
    submission, runtime, cores, requested, walltime, code, delay = (
        np.array(column) for column in zip(*rows, strict=True)
    )
    return hdsim.Workload.from_columns(
        submission_time=submission * unit + (submission > 20) * 1e6,
        runtime=runtime * unit,
        requested_time=requested * unit,
        requested_cores=cores,
        walltime=walltime * unit,
        return_code=code,
        fixed_duration=delay,
        **columns,
    )


def assert_equal(result: hdsim.Result, expected: hdsim.Result) -> None:
    """Two results have the same jobs, starts in the same order, cores and metrics."""
    assert list(result.jobs) == list(expected.jobs)
    for name in expected.jobs:
        np.testing.assert_array_equal(result.jobs[name], expected.jobs[name], err_msg=name)
    for name in ("job", "begin", "end", "sizes", "cores"):
        np.testing.assert_array_equal(getattr(result.segments, name), getattr(expected.segments, name), err_msg=name)
    np.testing.assert_equal(*({**each.metrics, "jobs_per_second": 0.0} for each in (result, expected)))


@given(rows=rows, agent=agents, watts=watts, unit=units, kill=st.booleans(), batch=st.booleans())
def test_equal_to_the_engine(rows, agent, watts, unit, kill, batch):
    workload = workload_of(rows, unit)
    platform = replace(hdsim.Platform.homogeneous(nodes=5, cores_per_node=1), power=np.array(watts, np.float64))
    options = {"kill_at_walltime": kill, "batch_events": batch}
    compiled = hdsim.simulate(platform, workload, ClassicAgent(**agent), **options)
    engine = hdsim.simulate(platform, workload, ClassicAgent(**agent), check=True, **options)
    hybrid = agent["backfill"] in ("hybrid", 2, 3) and agent["backfill_order"]
    assert (compiled.engine["mode"], engine.engine["mode"]) == ("events" if hybrid else "compiled", "events")
    assert_equal(compiled, engine)


SCHEDULERS = {
    "none": ref.strict,
    "easy": ref.easy,
    "conservative": ref.conservative,
    2: partial(ref.hybrid, depth=2),
    4: partial(ref.hybrid, depth=4),
}


@given(
    rows=rows,
    order=st.sampled_from(["fcfs", "lcfs", "sjf", "ljf", "smallest", "largest", "saf", "laf"]),
    backfill=st.sampled_from(list(SCHEDULERS)),
    kill=st.booleans(),
)
def test_equal_to_the_slow_reference(rows, order, backfill, kill):
    workload = workload_of([row for row in rows if row[2] <= 5] or [(0, 1, 1, 1, 1, 0, False)], 1.0)
    platform = hdsim.Platform.homogeneous(nodes=1, cores_per_node=5)
    agent = ClassicAgent(job_policy=order, backfill=backfill)
    result = hdsim.simulate(platform, workload, agent, kill_at_walltime=kill)
    jobs = ref.jobs_of(workload)
    if kill:
        jobs = [replace(job, runtime=min(job.runtime, job.walltime)) for job in jobs]
    assert result.engine["mode"] == "compiled"
    assert result.starting_time.tolist() == ref.replay_counts(jobs, 5, SCHEDULERS[backfill], ref.SCORES[order])


@given(rows=rows, backfill=st.booleans(), order=st.sampled_from(["fcfs", "sjf", "f4"]))
def test_equal_to_the_rules_of_rlscheduler(rows, backfill, order):
    workload = workload_of([row for row in rows if row[2] <= 5] or [(0, 1, 1, 1, 1, 0, False)], 1.0)
    agent = ClassicAgent(job_policy=order, backfill="rlscheduler" if backfill else "none", commit_head=True)
    result = hdsim.simulate(hdsim.Platform.homogeneous(nodes=5, cores_per_node=1), workload, agent, batch_events=False)
    jobs, score = ref.jobs_of(workload), ref.SCORES[order]
    assert result.starting_time.tolist() == ref.replay_rlscheduler(jobs, 5, score, backfill=backfill)


@given(st.lists(st.integers(1, 12), min_size=1, max_size=30), st.integers(0, 2**32))
def test_idle_cores_are_maximal_ranges(sizes, seed):
    """Against a sorted list of ranks: jobs take its tail and are given back in any order."""
    rng, idle, ranks, held = np.random.default_rng(seed), make_free_ranges(12), list(range(12)), []
    first, last = np.zeros((2, 12), np.int32)
    for size in sizes:
        while size > len(ranks):
            ranges, back = held.pop(rng.integers(len(held)))
            count = len(ranges[0])
            first[:count], last[:count] = ranges
            give(idle, first, last, 0, count)
            ranks = sorted([*ranks, *back])
        end = take(idle, size, first, last, 0)
        taken = [rank for a, b in zip(first[:end], last[:end], strict=True) for rank in range(b, a - 1, -1)]
        assert taken == ranks[: -size - 1 : -1]
        ranks, held = ranks[:-size], [*held, ((first[:end].copy(), last[:end].copy()), taken)]
        count, n = idle.length.tolist()
        ranges = list(zip(idle.first[:count].tolist(), idle.last[:count].tolist(), strict=True))
        assert [rank for a, b in ranges for rank in range(a, b + 1)] == ranks
        assert n == len(ranks)
        assert all(b + 1 < a for (_, b), (a, _) in pairwise(ranges))


@pytest.mark.parametrize(
    "options",
    [
        {"job_policy": "wfp3"},
        {"backfill": "easy", "backfill_order": "random"},
        {"backfill": "conservative", "core_policy": "least_allocated"},
    ],
)
def test_orders_and_core_policies_that_change_run_in_the_engine(options):
    platform = hdsim.Platform.homogeneous(nodes=2, cores_per_node=2)
    workload = hdsim.Workload.from_columns(submission_time=[0, 0], runtime=[5, 5], requested_cores=[1, 4])
    assert hdsim.simulate(platform, workload, ClassicAgent(**options)).engine["mode"] == "events"


def test_ranges_of_cores_outgrow_their_space():
    """Every second core is idle: most jobs have ranges of one core each."""
    narrow, wide = 400, 300
    workload = hdsim.Workload.from_columns(
        submission_time=[0] * narrow + [1 + 10 * each for each in range(wide)],
        runtime=[1, 1e5] * (narrow // 2) + [10] * wide,
        requested_cores=[1] * narrow + [narrow // 2] * wide,
    )
    platform = hdsim.Platform.homogeneous(nodes=1, cores_per_node=narrow)
    compiled, engine = (hdsim.simulate(platform, workload, "easy", check=check) for check in (False, True))
    assert_equal(compiled, engine)


class Deciding(ClassicAgent):
    """Starts nothing before t = 100."""

    def decide(self, cluster):
        if cluster.now < 100:
            cluster.call_me_later(100)
        elif cluster.queue and cluster.n_idle:
            cluster.start(next(iter(cluster.queue)))


class Beginning(ClassicAgent):
    """Notes that it has begun."""

    def begin(self, cluster):
        super().begin(cluster)
        self.begun = True


class Attributes(ClassicAgent):
    """Differs in attributes and settings alone."""

    fixed_policy = False

    def __init__(self):
        super().__init__("shortest", backfill="easy")


def test_a_subclass_that_decides_nothing_is_replayed_in_compiled_code(caplog):
    platform = hdsim.Platform.homogeneous(nodes=1, cores_per_node=1)
    workload = hdsim.Workload.from_columns(submission_time=[0, 1, 2], runtime=[5, 5, 3], requested_cores=[1, 1, 1])
    with caplog.at_level("INFO"):
        results = [hdsim.simulate(platform, workload, Attributes(), check=check) for check in (False, True)]
    assert [result.engine["mode"] for result in results] == ["compiled", "events"]
    assert results[0].starting_time.tolist() == results[1].starting_time.tolist() == [0, 8, 5]
    assert "Attributes" not in caplog.text


@pytest.mark.parametrize(("kind", "start"), [(Deciding, 100), (Beginning, 0)])
def test_a_subclass_with_methods_is_always_called(kind, start, caplog):
    """It runs by events, with and without checks alike."""
    platform = hdsim.Platform.homogeneous(nodes=1, cores_per_node=1)
    workload = hdsim.Workload.from_columns(submission_time=[0, 1], runtime=[5, 5], requested_cores=[1, 1])
    agent_module._told.clear()
    agents = kind(), kind()
    with caplog.at_level("INFO"):
        results = [hdsim.simulate(platform, workload, agent, check=agent is agents[0]) for agent in agents]
    assert caplog.text.count(f"{kind.__name__} is replayed by events") == 1
    for agent, result in zip(agents, results, strict=True):
        assert result.starting_time.tolist() == [start, start + 5]
        assert result.engine["mode"] == "events"
        assert kind is not Beginning or agent.begun


def test_an_agent_whose_method_is_replaced_is_called():
    platform = hdsim.Platform.homogeneous(nodes=1, cores_per_node=1)
    workload = hdsim.Workload.from_columns(submission_time=[0], runtime=[5], requested_cores=[1])
    agent = ClassicAgent()
    agent.decide = lambda cluster: cluster.reject(0) if cluster.queue else None
    assert hdsim.simulate(platform, workload, agent).metrics["jobs_rejected"] == 1


def test_the_result_tells_the_parts_of_the_engine():
    platform = hdsim.Platform.homogeneous(nodes=2, cores_per_node=2, mem_bw=1.0)
    workload = hdsim.Workload.from_columns(submission_time=[0], runtime=[5], requested_cores=[1], memory_bandwidth=[1])
    cores = {"cores": "OrderedCores"}
    compiled = {"mode": "compiled", "executor": "none", **cores}
    assert hdsim.simulate(platform, workload, "easy").engine == compiled
    events = {"mode": "events", "executor": "Uncontended", **cores}
    assert hdsim.simulate(platform, workload, "easy", check=True).engine == events
    contended = {"mode": "events", "cores": "NodeCores", "executor": "Contended"}
    assert hdsim.simulate(platform, workload, "fcfs", contention="threshold", check=True).engine == contended
    on_nodes = {"mode": "compiled", "cores": "NodeCores", "executor": "none"}
    assert hdsim.simulate(platform, workload, "fcfs", contention="threshold").engine == on_nodes
    assert hdsim.simulate(platform, workload, "fcfs", failures="external").engine["cores"] == "FailingCores"


def test_the_cluster_has_the_state_at_the_end():
    platform = hdsim.Platform.homogeneous(nodes=2, cores_per_node=2)
    workload = hdsim.Workload.from_columns(submission_time=[0, 0, 1], runtime=[5, 3, 4], requested_cores=[2, 9, 3])
    compiled, engine = (hdsim.Simulation(platform, workload, "easy", check=check) for check in (False, True))
    before = hdsim.Simulation(platform, workload, "easy")
    asked_for_before = before.cluster
    for simulation in (compiled, engine, before):
        simulation.run()
    assert before.cluster is asked_for_before
    for cluster in (compiled.cluster, before.cluster):
        for name in ("state", "starting_time", "finish_time", "placements", "queue", "running", "arrived", "n_idle"):
            np.testing.assert_equal(getattr(cluster, name), getattr(engine.cluster, name), err_msg=name)
        assert cluster.cores.idle == engine.cluster.cores.idle


class Signals(list):
    """A signal arrives after some checks."""

    checks = 0

    def __bool__(self) -> bool:
        self.checks += 1
        return self.checks > 3


def test_an_interrupted_replay_leaves_the_state_at_that_instant(monkeypatch):
    monkeypatch.setattr(compiled_module, "_INSTANTS", 1)
    platform = hdsim.Platform.homogeneous(nodes=2, cores_per_node=2)
    workload = hdsim.Workload.from_columns(
        submission_time=[0, 1, 1, 2, 9], runtime=[2, 8, 8, 8, 1], requested_cores=[2, 3, 2, 1, 1]
    )
    setup = set_up(platform, workload, "easy", contention="none", seed=0)
    replay = compiled_cores(platform, workload, setup, kill_at_walltime=False, batch_events=True)
    with closing(ReplayBar(5, shown=False)) as bar:
        replay.run(Signals(), bar)
    result, stepped = replay.result(interrupted=True), hdsim.Simulation(platform, workload, "easy", check=True)
    stepped.run_until(replay.now)
    assert replay.now == 2
    assert result.state.tolist() == stepped.cluster.state
    np.testing.assert_equal(result.starting_time, np.array(stepped.cluster.starting_time))
    assert result.interrupted
    assert result.end_time == replay.now
    assert_equal(result, hdsim.Result.of(stepped.cluster, interrupted=True))
