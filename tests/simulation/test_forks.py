"""Copies of simulations in mid-replay: exactness, independence, and assumptions in place of the future."""

from __future__ import annotations

import importlib.util
import json
from array import array
from collections import deque
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from pathlib import Path
from types import MethodType
from typing import Any

import numpy as np
import pytest
import test_golden
from hypothesis import given
from hypothesis import strategies as st
from test_gpus import THREE
from test_quantities import PLATFORM as EIGHT_NODES
from test_quantities import workload as quantities_workload
from tiers import examples

import hdsim
import hdsim.backends.sim
from hdsim.cluster.state import Cluster, FinalState
from hdsim.envs.scheduling import SchedulingEnv
from hdsim.errors import ConfigError
from hdsim.util.copies import itself
from platforms import two_speeds

ACTUAL: dict[str, Any] = {"runtimes": "actual", "arrivals": "actual"}
EQUAL = hdsim.Platform.homogeneous(nodes=4, cores_per_node=8)


def jobs(seed: int, number: int = 80, **columns: Any) -> hdsim.Workload:
    rng = np.random.default_rng(seed)
    runtime = rng.integers(1, 300, number)
    given: dict[str, Any] = {
        "submission_time": np.sort(rng.integers(0, 2000, number)),
        "runtime": runtime,
        "requested_time": runtime + rng.integers(0, 200, number),
        "requested_cores": rng.integers(1, 9, number),
    }
    return hdsim.Workload.from_columns(**{**given, **columns})


def same(first: hdsim.Result, second: hdsim.Result) -> None:
    for key in first.jobs:
        np.testing.assert_array_equal(first.jobs[key], second.jobs[key], err_msg=key)
    np.testing.assert_equal({**first.metrics, "jobs_per_second": 0}, {**second.metrics, "jobs_per_second": 0})


class Changer(hdsim.Agent):
    """First come, first served; resizes running jobs and changes the speed of cores at random."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def begin(self, cluster: Cluster) -> None:
        for date in range(100, 2000, 100):
            cluster.call_me_later(date)

    def decide(self, cluster: Cluster) -> None:
        for job in list(cluster.queue):
            if not cluster.fits(job):
                break
            cluster.start(job)
        movable = [job for job in cluster.running if job not in cluster.started]
        if movable:
            job = movable[int(self.rng.integers(len(movable)))]
            ids = [*cluster.core_ids(job), *cluster.idle_ids()[:2]]
            cluster.resize_on(job, ids[: int(self.rng.integers(1, len(ids) + 1))])
        cluster.set_speed([int(self.rng.integers(cluster.platform.n_cores))], float(self.rng.uniform(0.5, 1.0)))


NODES = EIGHT_NODES.of_kind("quantities")
FAST_AND_SLOW = two_speeds(16, 20.0)
FAILURES = {"_target_": "hdsim.failures.Weibull", "mtbf": 2000, "mttr": 100}
#: Platform, workload, agent and options of configurations beside those of test_golden.py.
CONFIGURATIONS: dict[str, Callable[[], tuple[Any, ...]]] = {
    "resizes": lambda: (EQUAL, jobs(1), Changer(1), {}),
    "resizes_contended": lambda: (
        *(FAST_AND_SLOW, jobs(2, memory_bandwidth=4.0), Changer(2)),
        {"contention": "fair_share"},
    ),
    "failures": lambda: (EQUAL, jobs(3), "conservative", {"failures": FAILURES}),
    "checkpoints": lambda: (
        *(FAST_AND_SLOW, jobs(4, memory_bandwidth=4.0), "easy-random"),
        {"contention": "threshold", "failures": {**FAILURES, "recovery": "checkpoint", "checkpoint_interval": 20}},
    ),
    "gpus": lambda: (
        *(THREE, jobs(5, requested_cores=np.arange(80) % 4 + 1, requested_gpus=np.arange(80) % 3)),
        *("easy", {"failures": FAILURES}),
    ),
    "quantities": lambda: (NODES, quantities_workload(6, 80, NODES), "priority-least_allocated", {}),
    "one_by_one": lambda: (EQUAL, jobs(7), "easy", {"batch_events": False, "kill_at_walltime": True}),
}


def simulation(name: str) -> hdsim.Simulation:
    platform, workload, agent, options = CONFIGURATIONS[name]()
    return hdsim.Simulation(platform, workload, agent, seed=1, check=True, **options)


# Exact copies

NIGHTLY = pytest.mark.nightly
#: Configurations that CI tries; the nightly tier tries all.
IN_CI = ("easy", "conservative", "gaia_fair_share", "bsp_pack", "failures")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name,
            marks=()
            if name in IN_CI
            else [NIGHTLY, pytest.mark.requires("torch")]
            if name in test_golden.WITH_TORCH
            else NIGHTLY,
        )
        for name in test_golden.RUNS
    ],
)
@pytest.mark.ci
def test_a_chain_of_forks_leaves_the_same_jobs_csv(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forks = 0

    def simulate(*args: Any, config: Any = None, progress: bool = False, **options: Any) -> hdsim.Result:
        nonlocal forks
        simulation = hdsim.Simulation(*args, **options)
        while all(simulation.step() for _ in range(7 << forks)):
            before, simulation = simulation, simulation.fork(**ACTUAL)
            # The original has no part in the copy.
            before.run_until(before.now + 1000.0)
            forks += 1
        return simulation.run(config=config)

    monkeypatch.setattr(hdsim.backends.sim, "simulate", simulate)
    assert test_golden.digest(name, tmp_path) == json.loads(test_golden.DIGESTS.read_text())[name]
    assert forks > 2


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_fork_and_its_original_end_like_a_simulation_without_forks(name: str) -> None:
    expected = simulation(name).run()
    for steps in (1, 40):
        original = simulation(name)
        for _ in range(steps):
            original.step()
        fork = original.fork(**ACTUAL)
        assumed = original.fork("fcfs", seed=5)
        same(fork.run(), expected)
        assumed.run()
        same(original.run(), expected)


@examples(25)
@given(st.integers(0, 10**6), st.sampled_from(["sjf", "easy", "conservative-saf", "easy-wfp3-random"]), st.data())
def test_random_forks_are_exact(seed: int, agent: str, data: st.DataObject) -> None:
    contention = data.draw(st.sampled_from(["none", "threshold", "smoothstep", "fair_share"]))
    workload = jobs(seed, 30, memory_bandwidth=np.random.default_rng(seed).choice([0.0, 3.0], 30))

    def begun() -> hdsim.Simulation:
        return hdsim.Simulation(FAST_AND_SLOW, workload, agent, contention=contention, seed=seed)

    original, expected = begun(), begun().run()
    while original.step():
        if data.draw(st.booleans()):
            same(original.fork(**ACTUAL).run(), expected)
            break
    same(original.run(), expected)


# Independence


def reachable(root: Any) -> Iterator[Any]:
    """Every object with state that an object refers to."""
    seen, found = set[int](), [root]
    while found:
        each = found.pop()
        if id(each) in seen or isinstance(each, type) or getattr(type(each), "__deepcopy__", None) is itself:
            continue
        seen.add(id(each))
        if isinstance(each, dict):
            found += [*each, *each.values()]
        elif isinstance(each, list | tuple | set | deque):
            found += each
        elif isinstance(each, MethodType):
            found.append(each.__self__)
            continue
        slots = [name for kind in type(each).__mro__ for name in getattr(kind, "__slots__", ())]
        found += [getattr(each, name) for name in slots if hasattr(each, name)]
        if type(each).__module__.startswith(("hdsim", "tests", "test_")):
            found += vars(each).values() if hasattr(each, "__dict__") else []
        if isinstance(each, list | dict | set | deque | array | np.random.Generator) or (
            isinstance(each, np.ndarray) and each.flags.writeable
        ):
            yield each


@pytest.mark.parametrize("assumptions", [ACTUAL, {}], ids=["actual", "requested"])
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_copies_share_no_state(name: str, assumptions: dict[str, Any]) -> None:
    original = simulation(name)
    for _ in range(30):
        original.step()
    fork = original.fork(**assumptions)
    requests = original.cluster.requests
    shared = {id(each) for each in reachable(requests)}
    before = {id(each): each for each in reachable([original.env, original.agent])}
    both = [each for each in reachable([fork.env, fork.agent]) if id(each) in before and id(each) not in shared]
    # Placements in running and ended jobs, which nothing changes.
    assert not [each for each in both if not isinstance(each, list) or not all(type(rank) is int for rank in each)]


def test_a_decision_on_a_fork_leaves_the_original_alone() -> None:
    original = hdsim.Simulation(EQUAL, jobs(1), "void")
    original.run_until(500.0)
    fork = original.fork()
    fork.cluster.start(0)
    fork.cluster.reject(1)
    fork.run_until(501.0)
    assert fork.cluster.state[:2] == [FinalState.RUNNING, FinalState.REJECTED]
    assert original.cluster.state[:2] == [FinalState.QUEUED, FinalState.QUEUED]
    assert original.cluster.n_idle == 32


# Assumptions


@examples(20)
@given(
    st.integers(0, 10**6), st.sampled_from(["fcfs", "easy-sjf", "conservative"]), st.sampled_from(["none", "threshold"])
)
def test_the_default_fork_knows_nothing_of_the_future(seed: int, agent: str, contention: str) -> None:
    time, results = 800.0, []
    workload = jobs(seed, 60, memory_bandwidth=2.0)
    platform = FAST_AND_SLOW
    known = hdsim.simulate(platform, workload, agent, contention=contention)
    future = ~(known.finish_time <= time)
    arrived = int((workload.submission_time <= time).sum())
    others = jobs(seed + 1, 60, memory_bandwidth=2.0)
    for other in (False, True):
        columns = {}
        if other:
            # Jobs that run or wait last longer, and other jobs follow.
            columns = {key: getattr(workload, key).copy() for key in ("runtime", "submission_time", "requested_cores")}
            columns["runtime"][future] += 1000.0
            columns["submission_time"][arrived:] += 5.0
            columns["requested_cores"][arrived:] = others.requested_cores[arrived:]
        simulation = hdsim.Simulation(platform, workload.replaced(**columns), agent, contention=contention)
        simulation.run_until(time)
        fork = simulation.fork("easy")
        assert fork.now == time
        results.append(fork.run())
    assert np.isnan(results[0].starting_time[arrived:]).all()
    for key in ("starting_time", "finish_time"):
        # The work that a job has done is the difference of its run time and the rest, which rounds.
        np.testing.assert_allclose(*[result.jobs[key][:arrived] for result in results], rtol=1e-12)


@pytest.mark.parametrize("agent", ["fcfs", "easy", "conservative", "easy-wfp3"])
def test_a_fork_is_the_replay_of_a_trace_with_the_assumed_run_times(agent: str) -> None:
    time, workload = 900.0, jobs(3)
    original = hdsim.Simulation(EQUAL, workload, agent)
    original.run_until(time)
    for runtimes, column in (("requested", workload.requested_time), (lambda job: 7.0 + job, None)):
        fork = original.fork(runtimes=runtimes)
        cluster = original.cluster
        assumed = workload.runtime.copy()
        for job in [*cluster.running, *cluster.queue]:
            done = time - cluster.starting_time[job] if job in cluster.running else 0.0
            assumed[job] = column[job] if column is not None else done + runtimes(job)
        known = slice(0, cluster.arrived)
        expected = hdsim.simulate(EQUAL, workload.replaced(runtime=assumed)[known], agent)
        found = fork.run()
        np.testing.assert_array_equal(found.starting_time[known], expected.starting_time)
        np.testing.assert_array_equal(found.finish_time[known], expected.finish_time)


def test_a_job_that_has_run_longer_than_requested_ends_now() -> None:
    workload = hdsim.Workload.from_columns(
        submission_time=[0, 0], runtime=[100, 50], requested_cores=[32, 32], requested_time=[10, 20]
    )
    original = hdsim.Simulation(EQUAL, workload, "fcfs")
    original.run_until(40.0)
    fork = original.fork()
    assert fork.run().finish_time.tolist() == pytest.approx([40.0, 60.0], rel=1e-15)
    assert original.run().finish_time.tolist() == [100.0, 150.0]


@pytest.mark.parametrize("order", ["first", "shortest"])
def test_another_agent_takes_over(order: str) -> None:
    """Against list scheduling from the state of the cluster."""
    workload = jobs(5, requested_cores=np.arange(80) % 30 + 1)
    original = hdsim.Simulation(EQUAL, workload, "easy-random")
    original.run_until(1200.0)
    cluster = original.cluster
    start, runtime, size = list(cluster.starting_time), workload.runtime, workload.requested_cores
    ends = [(start[job] + runtime[job], job) for job in cluster.running]
    ends.sort()
    queue, idle, now = list(cluster.queue), cluster.n_idle, cluster.now
    coming = [(date, job) for job, date in enumerate(workload.submission_time.tolist()) if job >= cluster.arrived]
    while True:
        queue.sort(key=lambda job: (workload.requested_time[job] if order == "shortest" else 0, job))
        while queue and size[queue[0]] <= idle:
            job = queue.pop(0)
            start[job], idle = now, idle - size[job]
            heappush(ends, (now + runtime[job], job))
        if not ends and not coming:
            break
        now = min([each[0][0] for each in (ends, coming) if each])
        while ends and ends[0][0] == now:
            idle += size[heappop(ends)[1]]
        while coming and coming[0][0] == now:
            queue.append(coming.pop(0)[1])
    found = original.fork(f"{order}-low_power", **ACTUAL).run()
    assert found.starting_time.tolist() == start


@examples(30)
@given(
    st.integers(0, 10**6),
    st.sampled_from(["sjf", "easy", "easy-sjf", "conservative-saf", "easy-fcfs-low_power"]),
    st.booleans(),
    st.booleans(),
)
def test_compiled_code_plays_a_fork_out_like_the_engine(seed: int, agent: str, kill: bool, actual: bool) -> None:
    rng = np.random.default_rng(seed)
    workload = jobs(seed, 60, requested_cores=rng.integers(1, 20, 60), walltime=rng.integers(50, 400, 60))
    first = str(rng.choice(["easy-random", "fcfs", "wfp3", "greedy"]))
    original = hdsim.Simulation(EQUAL, workload, first, seed=seed, kill_at_walltime=kill)
    original.run_until(float(rng.integers(0, 1500)))
    forks = [original.fork(agent, **(ACTUAL if actual else {})) for _ in range(2)]
    forks[1].run_until(forks[1].now)
    results = [fork.run() for fork in forks]
    assert [result.engine["mode"] for result in results] == ["compiled", "events"]
    same(*results)
    first, second = (fork.cluster for fork in forks)
    assert first.state == second.state and list(first.queue) == list(second.queue)
    assert first.idle_ids() == second.idle_ids() and first.arrived == second.arrived
    assert all(first.core_ids(job) == second.core_ids(job) for job in second.placements)


def test_assumed_jobs_arrive() -> None:
    original = hdsim.Simulation(EQUAL, jobs(1), "easy")
    original.run_until(600.0)
    arrivals = hdsim.Workload.from_columns(submission_time=[0, 30], runtime=[5, 6], requested_cores=[1, 2])
    fork = original.fork(arrivals=arrivals)
    result = fork.run()
    assert len(result.workload) == 82 and len(original.cluster.workload) == 80
    assert result.workload.submission_time[-2:].tolist() == [600.0, 630.0]
    assert (result.finish_time - result.starting_time)[-2:].tolist() == [5.0, 6.0]
    assert np.isfinite(result.finish_time[: original.cluster.arrived]).all()
    assert np.isnan(result.starting_time[original.cluster.arrived : 80]).all()


def test_a_seed_changes_the_draws_of_the_copy() -> None:
    original = hdsim.Simulation(EQUAL, jobs(1), "fcfs-random", seed=3)
    original.run_until(300.0)
    cores = [
        original.fork(seed=seed, **ACTUAL).run().jobs["allocated_resources"].tolist() for seed in (None, None, 1, 1, 2)
    ]
    assert cores[0] == cores[1] and cores[2] == cores[3]
    assert cores[0] != cores[2] != cores[4]


def test_no_node_fails_in_the_default_fork() -> None:
    original = simulation("failures")
    original.run_until(500.0)
    cluster = original.cluster
    fork, begun, arrived = original.fork("easy"), len(cluster.outages), cluster.arrived
    result = fork.run()
    original.run_until(2000.0)
    assert len(fork.cluster.outages) == begun < len(cluster.outages)
    assert np.isfinite(result.finish_time[:arrived]).all()


def test_programs_become_rigid_jobs_of_their_requested_times() -> None:
    from test_bsp import make_workload

    platform = hdsim.Platform.homogeneous(nodes=2, cores_per_node=2, gflops_per_core=1.0)
    program = {"type": "parallel_homogeneous", "cpu": 50e9, "com": 0}
    workload = make_workload(
        [{"id": i, "subtime": 0, "res": 4, "walltime": 100, "profile": "p"} for i in range(2)], {"p": program}, platform
    )
    original = hdsim.Simulation(platform, workload, "fcfs", network="fluid")
    original.run_until(20.0)
    assert original.fork().run().finish_time.tolist() == [100.0, 200.0]


# Inside an agent


def look_ahead(**settings: Any) -> hdsim.Agent:
    path = Path(__file__).resolve().parents[2] / "examples" / "look_ahead.py"
    spec = importlib.util.spec_from_file_location("look_ahead", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    agent: hdsim.Agent = module.LookAhead(**settings)
    return agent


def test_an_agent_that_looks_ahead_finds_the_better_policy() -> None:
    """All jobs arrive at once and last as long as requested: at time 0 the fork is what will happen."""
    workload = jobs(8, 40, submission_time=np.zeros(40))
    workload = workload.replaced(requested_time=workload.runtime)
    single = {name: hdsim.simulate(EQUAL, workload, name).metrics["mean_waiting_time"] for name in ("easy", "easy-sjf")}
    agent = look_ahead(candidates=list(single), metric="mean_waiting_time")
    found = hdsim.simulate(EQUAL, workload, agent, check=True).metrics["mean_waiting_time"]
    assert found <= min(single.values())


def test_one_candidate_is_followed() -> None:
    workload = jobs(9)
    expected = hdsim.simulate(EQUAL, workload, "easy-sjf")
    found = hdsim.simulate(EQUAL, workload, look_ahead(candidates=["easy-sjf"]))
    assert found.starting_time.tolist() == expected.starting_time.tolist()


# Refusals


def maintenance(env: Any) -> Iterator[Any]:
    yield env.at(700.0)
    yield env.fail(0, until=800.0)


def test_processes_of_the_user_are_refused_or_dropped() -> None:
    original = hdsim.Simulation(EQUAL, jobs(1), "easy", failures="external")
    original.env.process(maintenance(original.env))
    for time in (0.0, 100.0, 750.0):
        original.run_until(time)
        with pytest.raises(ConfigError, match="processes of the user"):
            original.fork()
        fork = original.fork(processes="dropped", **ACTUAL)
        fork.run()
        assert len(fork.cluster.outages) == (time > 700.0)
    original.run_until(900.0)
    same(original.fork(**ACTUAL).run(), original.run())


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"runtimes": "estimated"}, "fork: runtimes: expected requested, actual or a function, got 'estimated'"),
        ({"arrivals": "all"}, "fork: arrivals: expected none, actual or a Workload, got 'all'"),
        ({"processes": "copied"}, "fork: processes: expected refused or dropped, got 'copied'"),
        ({"runtimes": lambda job: -1.0}, "fork: runtimes: expected at least 0 s"),
        ({"agent": "esy"}, "agent: expected an agent"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], complaint: str) -> None:
    original = hdsim.Simulation(EQUAL, jobs(1), "easy")
    original.run_until(500.0)
    with pytest.raises(ConfigError, match=complaint):
        original.fork(**settings)


def test_arrivals_with_resources_that_are_not_tracked_are_refused() -> None:
    original = hdsim.Simulation(FAST_AND_SLOW, jobs(1), "easy")
    with pytest.raises(ConfigError, match="memory bandwidth"):
        original.fork(arrivals=jobs(2, memory_bandwidth=1.0))


def test_agents_and_outages_without_copies_are_refused() -> None:
    class Generating(hdsim.Agent):
        def begin(self, cluster: Cluster) -> None:
            self.numbers = (number for number in range(9))

        def decide(self, cluster: Cluster) -> None: ...

    original = hdsim.Simulation(EQUAL, jobs(1), Generating())
    original.run_until(500.0)
    with pytest.raises(ConfigError, match="cannot copy Generating"):
        original.fork()
    original.fork("easy").run()


ENVIRONMENTS: dict[str, Callable[[], tuple[Any, ...]]] = {
    "cores": lambda: (EQUAL, jobs(1, 40), {"action": "job", "observation": "jobs"}),
    "contention": lambda: (FAST_AND_SLOW, jobs(2, 40, memory_bandwidth=4.0), {"contention": "fair_share"}),
    "failures": lambda: (EQUAL, jobs(3, 40), {"action": "job", "observation": "jobs", "failures": FAILURES}),
    "quantities": lambda: (NODES, quantities_workload(6, 40, NODES), {"action": "job", "observation": "jobs"}),
}


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_forks_of_an_environment_are_those_of_a_simulation_with_the_same_decisions(name: str) -> None:
    platform, workload, options = ENVIRONMENTS[name]()
    env, other = (SchedulingEnv(platform, workload, **options) for _ in range(2))

    class Decides:
        """Takes random decisions and plays two forks out at some of them."""

        def __init__(self) -> None:
            self.rng, self.decisions, self.forks = np.random.default_rng(5), 0, list[hdsim.Result]()

        def __call__(self, cluster: Cluster, mask: Any) -> int:
            if self.decisions % 11 == 3:
                self.forks += [cluster.fork("easy").run(), cluster.fork("sjf", **ACTUAL).run()]
            self.decisions += 1
            return int(self.rng.choice(mask.nonzero()[0]))

    class Plays(hdsim.Agent):
        core_policy, fixed_policy = other.problem.core_policy, other.problem.fixed_policy
        core_policies = other.problem.core_policies

        def begin(self, cluster: Cluster) -> None:
            other.problem.begin(cluster)

        def decide(self, cluster: Cluster) -> None:
            while other.problem.pending():
                other.problem.act(in_simulation(cluster, other.problem.mask()))

    in_environment, in_simulation = Decides(), Decides()
    _, info = env.reset(seed=1)
    with pytest.raises(ConfigError, match="decisions of an environment"):
        env.cluster.fork()
    while env.result is None:
        *_, info = env.step(in_environment(env.cluster, info["action_mask"]))
    rng = np.random.default_rng(1)
    other.episodes.draw(rng)
    seed = int(rng.integers(2**63))
    models = {key: value for key, value in options.items() if key in ("contention", "failures")}
    whole = hdsim.Simulation(platform, workload, Plays(), seed=seed, **models).run()
    assert in_environment.decisions == in_simulation.decisions > 30
    for one, two in zip(in_environment.forks, in_simulation.forks, strict=True):
        same(one, two)
    same(env.result, whole)


def test_a_cluster_without_a_simulation_has_no_fork() -> None:
    with pytest.raises(ConfigError, match="or of a run on a backend"):
        Cluster(EQUAL, jobs(1)).fork()


@pytest.mark.parametrize("loop", ["iter", "keys", "items", "reversed"])
def test_a_loop_over_the_queue_may_start_jobs_and_fork(loop: str) -> None:
    class Looping(hdsim.Agent):
        def decide(self, cluster: Cluster) -> None:
            loops: dict[str, Callable[[], Any]] = {
                "iter": lambda: cluster.queue,
                "keys": cluster.queue.keys,
                "items": cluster.queue.items,
                "reversed": lambda: reversed(cluster.queue),
            }
            expected, seen = list(cluster.queue), []
            for entry in loops[loop]():
                job = entry[0] if loop == "items" else entry
                seen.append(job)
                assert list(cluster.fork("fcfs").cluster.queue) == list(cluster.queue)
                if cluster.pick(job) is not None:
                    cluster.start(job)
            assert seen == (expected[::-1] if loop == "reversed" else expected)

    result = hdsim.simulate(EQUAL, jobs(3, 30), Looping())
    assert result.metrics["jobs_completed"] == 30
