"""Run times that schedulers expect: predictions of Tsafrir, Etsion and Feitelson against a slow implementation."""

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
import reference as ref
from hypothesis import given
from hypothesis import strategies as st
from tiers import examples

import hdsim
from hdsim.agents.classic import ClassicAgent
from hdsim.errors import ConfigError
from hdsim.scheduling.agent import classic_name, parse_name
from platforms import two_speeds

CORES = 6
#: Gap, run time, request, cores, user.
ROWS = st.lists(
    st.tuples(
        st.integers(0, 400), st.integers(0, 3000), st.integers(1, 4000), st.integers(1, CORES), st.integers(-1, 2)
    ),
    min_size=1,
    max_size=25,
)
SCHEDULERS = {"none": ref.strict, "easy": ref.easy, "conservative": ref.conservative}
#: Seconds of the corrections, one after the other.
STEPS = [60, 300, 900, 1800, 3600, 7200, 18_000, 36_000, 72_000, 180_000, 360_000]


def workload_of(rows, **columns):
    gaps, runtime, requested, cores, user = zip(*rows, strict=True)
    return hdsim.Workload.from_columns(
        submission_time=np.cumsum(gaps),
        runtime=runtime,
        requested_time=requested,
        requested_cores=cores,
        user=user,
        **columns,
    )


def replay_last_two(workload, scheduler, score, *, dynamic=False):
    """Start times on a machine of equal cores; every pass predicts, corrects and plans from the beginning."""
    jobs, users = ref.jobs_of(workload), workload.user.tolist()
    view, corrections, past = list(jobs), [0] * len(jobs), defaultdict(list)
    starts, queue, running, arrived = [np.nan] * len(jobs), [], {}, 0
    while arrived < len(jobs) or running:
        expiries = [
            begin + view[job].requested for job, begin in running.items() if view[job].requested < jobs[job].requested
        ]
        ends = [begin + jobs[job].runtime for job, begin in running.items()]
        now = min([job.submit for job in jobs[arrived : arrived + 1]] + ends + expiries)
        for job, begin in [each for each in running.items() if each[1] + jobs[each[0]].runtime == now]:
            del running[job]
            past[users[job]].append(now - begin)
        while arrived < len(jobs) and jobs[arrived].submit == now:
            last = past[users[arrived]][-2:]
            if users[arrived] >= 0 and len(last) == 2:
                predicted = min(max(sum(last) / 2, 1), jobs[arrived].requested)
                view[arrived] = replace(view[arrived], requested=predicted)
            queue.append(arrived)
            arrived += 1
        for job, begin in running.items():
            while begin + view[job].requested <= now and view[job].requested < jobs[job].requested:
                longer = view[job].requested + STEPS[min(corrections[job], len(STEPS) - 1)]
                view[job] = replace(view[job], requested=min(longer, jobs[job].requested))
                corrections[job] += 1
        queue.sort(key=lambda job: (score(view[job], now - jobs[job].submit), job))
        held = [(begin + view[job].requested, ref.need(jobs[job])) for job, begin in running.items()]
        free = ref.Amount(CORES - sum(jobs[job].cores for job in running))
        for job in scheduler(ref.Machine(now, free, list(queue), held), view):
            queue.remove(job)
            starts[job] = running[job] = now
    return starts


@examples(60)
@given(
    rows=ROWS,
    order=st.sampled_from(["fcfs", "sjf", "saf", "wfp3"]),
    backfill=st.sampled_from(list(SCHEDULERS)),
    memory=st.booleans(),
)
def test_predictions_are_those_of_the_slow_reference(rows, order, backfill, memory):
    workload = workload_of(rows, memory=1 if memory else 0)
    # With memory, reservations count the resources of nodes.
    options = {"memory_gb_per_node": 100.0} if memory else {}
    platform = hdsim.Platform.homogeneous(nodes=1, cores_per_node=CORES, **options)
    agent = ClassicAgent(job_policy=order, backfill=backfill, estimates="last_two")
    found = hdsim.simulate(platform, workload, agent, check=True).starting_time.tolist()
    assert found == replay_last_two(workload, SCHEDULERS[backfill], ref.SCORES[order])


@examples(30)
@given(rows=ROWS)
def test_easy_plus_plus_backfills_the_shortest_prediction_first(rows):
    workload = workload_of(rows)

    def scheduler(machine, jobs):
        return ref.easy(machine, jobs, candidates=lambda job: (jobs[job].requested, job))

    platform = hdsim.Platform.homogeneous(nodes=CORES, cores_per_node=1)
    found = hdsim.simulate(platform, workload, "easy++").starting_time.tolist()
    assert found == replay_last_two(workload, scheduler, ref.SCORES["fcfs"])


@examples(30)
@given(rows=ROWS, order=st.sampled_from(["fcfs", "sjf", "f2"]), backfill=st.sampled_from(list(SCHEDULERS)))
def test_actual_run_times_in_compiled_code_and_in_the_engine(rows, order, backfill):
    workload = workload_of(rows)
    platform = hdsim.Platform.homogeneous(nodes=CORES, cores_per_node=1)
    agent = {"job_policy": order, "backfill": backfill, "estimates": "actual"}
    compiled = hdsim.simulate(platform, workload, agent)
    engine = hdsim.simulate(platform, workload, agent, check=True)
    assert (compiled.engine["mode"], engine.engine["mode"]) == ("compiled", "events")
    jobs = [replace(job, requested=job.runtime) for job in ref.jobs_of(workload)]
    expected = ref.replay_counts(jobs, CORES, SCHEDULERS[backfill], ref.SCORES[order])
    assert compiled.starting_time.tolist() == engine.starting_time.tolist() == expected


@pytest.mark.parametrize("backfill", ["none", "easy", "greedy"])
def test_actual_run_times_on_nodes_with_contention(backfill):
    workload = hdsim.load_workload("lublin_4000", platform=hdsim.load_platform("gaia"), jobs=150, seed=3)
    agent = {"job_policy": "sjf", "backfill": backfill, "estimates": "actual"}
    compiled = hdsim.simulate("gaia", workload, agent, contention="threshold")
    engine = hdsim.simulate("gaia", workload, agent, contention="threshold", check=True)
    assert (compiled.engine["mode"], engine.engine["mode"]) == ("compiled", "events")
    np.testing.assert_array_equal(compiled.starting_time, engine.starting_time)
    np.testing.assert_array_equal(compiled.finish_time, engine.finish_time)


class Watching(ClassicAgent):
    """Notes when it is called and how long a job is expected to take then."""

    def begin(self, cluster):
        super().begin(cluster)
        self.seen = {}

    def decide(self, cluster):
        super().decide(cluster)
        self.seen[cluster.now] = cluster.requested_time[2]


def test_a_prediction_is_corrected_step_by_step_up_to_the_request():
    workload = workload_of([(0, 100, 900, 1, 7), (0, 200, 900, 1, 7), (1000, 4000, 3000, 1, 7)])
    agent = Watching(backfill="easy", estimates="last_two")
    hdsim.simulate(hdsim.Platform.homogeneous(nodes=2, cores_per_node=1), workload, agent)
    # Corrections at 1150, 1210, 1510 and 2410, the last one limited by the request; no call when that is exceeded.
    assert agent.seen == {
        0: 3000,
        100: 3000,
        200: 3000,
        1000: 150,
        1150: 210,
        1210: 510,
        1510: 1410,
        2410: 3000,
        5000: 3000,
    }


def test_run_times_of_other_speeds_are_told_at_the_reference_speed():
    # Cores of 4/3 and 2/3 of the reference speed: jobs of 100 reference seconds take 75 and 150 s.
    workload = workload_of([(0, 100, 900, 1, 7), (0, 100, 900, 1, 7), (1000, 300, 600, 1, 7)])
    agent = Watching(backfill="easy", estimates="last_two")
    result = hdsim.simulate(two_speeds(1, 100.0), workload, agent)
    assert result.finish_time.tolist() == pytest.approx([75, 150, 1225])
    assert agent.seen[1000] == pytest.approx(100)


@pytest.mark.parametrize(
    "agent", ["easy++", {"job_policy": "wfp3", "backfill": "conservative", "estimates": "last_two"}]
)
def test_forks_carry_predictions(agent):
    rng = np.random.default_rng(5)
    rows = [(int(rng.integers(0, 200)), *map(int, rng.integers((1, 100, 1, 0), (900, 2000, 6, 3)))) for _ in range(60)]
    workload, platform = workload_of(rows), hdsim.Platform.homogeneous(nodes=CORES, cores_per_node=1)
    whole = hdsim.simulate(platform, workload, agent, check=True)
    simulation = hdsim.Simulation(platform, workload, agent)
    simulation.run_until(4000)
    fork = simulation.fork(runtimes="actual", arrivals="actual")
    np.testing.assert_array_equal(fork.run().starting_time, whole.starting_time)
    np.testing.assert_array_equal(simulation.run().starting_time, whole.starting_time)


def test_a_fork_under_another_agent_reads_requested_times():
    rng = np.random.default_rng(6)
    rows = [(int(rng.integers(0, 100)), *map(int, rng.integers((1, 900, 1, 0), (900, 2000, 6, 1)))) for _ in range(40)]
    workload, platform = workload_of(rows), hdsim.Platform.homogeneous(nodes=CORES, cores_per_node=1)
    simulation = hdsim.Simulation(platform, workload, "easy++")
    simulation.run_until(3000)
    assert simulation.cluster.expected
    fork = simulation.fork("easy")
    assert fork.cluster.requested_time == workload.requested_time.tolist()
    # Without another agent assumed run times are the requested ones all the same.
    alone = simulation.fork()
    result = alone.run()
    ended = result.finish_time > 3000
    assert (result.finish_time - result.starting_time)[ended].tolist() == workload.requested_time[ended].tolist()


def test_names():
    settings = {"job_policy": "fcfs", "backfill": "easy", "backfill_order": "sjf", "estimates": "last_two"}
    assert parse_name("easy++") == settings
    assert classic_name(settings) == ("easy++", {})
    assert classic_name({**settings, "job_policy": "saf"}) == (
        "easy-saf",
        {"backfill_order": "sjf", "estimates": "last_two"},
    )
    with pytest.raises(ConfigError, match=r"agent.estimates: expected one of requested, actual, last_two, got 'last'"):
        ClassicAgent(estimates="last")
