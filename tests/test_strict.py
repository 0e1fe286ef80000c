"""The short cut for strict orders gives the engine's schedule, core by core."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hdsim
from hdsim.agents.classic import ClassicAgent
from hdsim.scheduling.orders import ORDERS

FIXED = [name for name, order in ORDERS.items() if not order.dynamic]

rows = st.lists(
    st.tuples(
        st.integers(0, 40),  # submission
        st.integers(0, 20),  # run time
        st.integers(1, 6),  # cores, of 5: some are impossible
        st.integers(1, 20),  # walltime
        st.sampled_from([0, 0, 3]),  # return code
    ),
    min_size=1,
    max_size=40,
)


@given(
    rows=rows,
    order=st.sampled_from(FIXED),
    kill=st.booleans(),
    core_policy=st.sampled_from(["high_gflops", "low_power"]),
)
def test_equal_to_the_engine(rows, order, kill, core_policy):
    submission, runtime, cores, walltime, code = (np.array(column) for column in zip(*rows, strict=True))
    workload = hdsim.Workload.from_columns(
        submission_time=submission,
        runtime=runtime,
        requested_time=runtime + walltime,
        requested_cores=cores,
        walltime=walltime,
        return_code=code,
    )
    platform = hdsim.Platform.homogeneous(nodes=5, cores_per_node=1)
    agent = ClassicAgent(job_policy=order, core_policy=core_policy)
    assert agent.strict_order is not None
    short = hdsim.simulate(platform, workload, agent, kill_at_walltime=kill)
    engine = hdsim.simulate(platform, workload, agent, kill_at_walltime=kill, check=True)
    assert list(short.jobs) == list(engine.jobs)
    for name in engine.jobs:
        np.testing.assert_array_equal(short.jobs[name], engine.jobs[name], err_msg=name)
    assert short.energy_joules == engine.energy_joules


@pytest.mark.parametrize("options", [{"backfill": "easy"}, {"commit_head": True}, {"job_policy": "wfp3"}])
def test_only_strict_fixed_orders_take_it(options):
    assert ClassicAgent(**options).strict_order is None


@pytest.mark.parametrize("core_policy", ["high_cores", "random", "high_mem_bw", "low_power"])
def test_only_core_policies_that_follow_a_list_take_the_shortcut(core_policy: str) -> None:
    """Which of many interchangeable cores a job gets is the same with and without it."""
    platform = hdsim.Platform.homogeneous(nodes=3, cores_per_node=4)
    workload = hdsim.Workload.from_columns(
        submission_time=[0, 0, 1, 2, 3], runtime=[9, 5, 7, 4, 8], requested_cores=[2, 3, 4, 1, 5]
    )
    quick, engine = (hdsim.simulate(platform, workload, f"fcfs-{core_policy}", check=check) for check in (False, True))
    assert quick.jobs["allocated_resources"].tolist() == engine.jobs["allocated_resources"].tolist()
    assert quick.finish_time.tolist() == engine.finish_time.tolist()


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
    """Differs in an attribute alone."""

    fixed_policy = False


@pytest.mark.parametrize(("kind", "start"), [(Deciding, 100), (Beginning, 0), (Attributes, 0)])
def test_a_subclass_is_always_called(kind, start):
    """The short cut is for stock agents; a subclass runs by events, with and without checks alike."""
    platform = hdsim.Platform.homogeneous(nodes=1, cores_per_node=1)
    workload = hdsim.Workload.from_columns(submission_time=[0, 1], runtime=[5, 5], requested_cores=[1, 1])
    agents = kind(), kind()
    results = [hdsim.simulate(platform, workload, agent, check=agent is agents[0]) for agent in agents]
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
    assert hdsim.simulate(platform, workload, "fcfs").engine == {"mode": "in_order", "executor": "none", **cores}
    assert hdsim.simulate(platform, workload, "easy").engine == {"mode": "events", "executor": "Uncontended", **cores}
    contended = {"mode": "events", "cores": "NodeCores", "executor": "Contended"}
    assert hdsim.simulate(platform, workload, "fcfs", contention="threshold").engine == contended
    assert hdsim.simulate(platform, workload, "fcfs", failures="external").engine["cores"] == "FailingCores"
