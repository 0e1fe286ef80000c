"""BSP jobs and jobs that send messages: closed forms, cases by hand, invariants, SimGrid."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import numpy as np
import pytest
import test_network_simgrid as sg
from hypothesis import given
from hypothesis import strategies as st
from schedules import cores_of_jobs
from test_execution import CONTENTION, make_workload, random_platform, random_workload
from tiers import ALL, examples

from hdsim import Agent, Platform, Workload, simulate
from hdsim.network.fluid import Fluid
from hdsim.results.result import Result
from hdsim.workload.patterns import PATTERNS, make_pattern


class Placer(Agent):
    """Starts every job on the cores that are meant for it, as soon as these are idle."""

    def __init__(self, cores: list[list[int]]) -> None:
        self.cores = cores

    def begin(self, cluster: Any) -> None:
        self.cluster = cluster

    def decide(self, cluster: Any) -> None:
        taken = {core for job in cluster.running for core in self.cores[job]}
        for job in list(cluster.queue):
            if not taken & set(self.cores[job]):
                cluster.start_on(job, self.cores[job])
                taken |= set(self.cores[job])


def play(
    platform: Platform,
    profiles: list[dict[str, Any]],
    cores: list[list[int]],
    *,
    dates: list[float] | None = None,
    **options: Any,
) -> Result:
    """Runs one job a profile, on given cores."""
    dates = dates or [0.0] * len(cores)
    jobs = [
        {"id": row, "subtime": date, "res": len(given), "profile": f"p{row}"}
        for row, (date, given) in enumerate(zip(dates, cores, strict=True))
    ]
    workload = make_workload(jobs, {f"p{row}": profile for row, profile in enumerate(profiles)}, platform)
    return simulate(platform, workload, Placer(cores), check=True, **options)


def gigaflop(*seconds: float) -> list[float]:
    """Operations that take so long on cores of 1 GFLOP/s."""
    return [second * 1e9 for second in seconds]


# Valiant's cost


@examples(60)
@given(
    speeds=st.lists(st.sampled_from([1.0, 2.0, 2.5, 3.3]), min_size=1, max_size=6),
    works=st.lists(st.lists(st.floats(0.0, 1e4), min_size=6, max_size=6), min_size=1, max_size=5),
    pattern=st.sampled_from(PATTERNS),
    volume=st.floats(0.0, 1e12),
    gap=st.floats(0.0, 1e-8),
    latency=st.floats(0.0, 10.0),
    equal=st.booleans(),
)
def test_a_job_alone_takes_valiants_cost(
    speeds: list[float], works: list[list[float]], pattern: str, volume: float, gap: float, latency: float, equal: bool
) -> None:
    """T = sum over supersteps of max_i w_i / rate_i + h g + l."""
    p = len(speeds)
    platform = Platform.from_dict(
        {
            "clusters": [{"id": "c", "nodes": [{"type": f"n{i}", "number": 1} for i in range(p)]}],
            "types": {
                "node": {f"n{i}": {"processors": [{"type": f"p{i}", "number": 1}]} for i in range(p)},
                "processor": {
                    f"p{i}": {"cores": 1, "clock_rate": speed, "dpflops_per_cycle": 1, "power": 1}
                    for i, speed in enumerate(speeds)
                },
            },
        }
    )
    rows = [gigaflop(*([row[0]] * p if equal else row[:p])) for row in works]
    profile = {
        "type": "bsp",
        "supersteps": len(rows),
        "cpu": rows,
        "com": volume,
        "pattern": pattern,
        "g": gap,
        "l": latency,
    }
    result = play(platform, [profile], [list(range(p))])
    h = make_pattern(pattern, p, volume).h
    slowest = [max(flop / (speed * 1e9) for flop, speed in zip(row, speeds, strict=True)) for row in rows]
    cost = math.fsum(seconds + h * gap + latency for seconds in slowest)
    assert result.finish_time[0] == pytest.approx(cost, rel=1e-12, abs=1e-12)
    jobs = result.jobs
    assert jobs["supersteps"][0] == len(rows)
    assert jobs["computation_time"][0] == pytest.approx(math.fsum(slowest), rel=1e-9, abs=1e-9)
    assert jobs["communication_time"][0] == pytest.approx((h * gap + latency) * len(rows), rel=1e-9, abs=1e-9)
    assert jobs["slowdown_factor"][0] == pytest.approx(1.0, rel=1e-9)


def test_equal_supersteps_on_equal_cores_cost_exactly_what_valiant_says() -> None:
    platform = Platform.homogeneous(nodes=4, cores_per_node=2, gflops_per_core=1.0)
    profile = {"type": "bsp", "supersteps": 8, "cpu": 2e9, "com": 2**20, "g": 2.0**-20, "l": 0.25}
    result = play(platform, [profile], [list(range(8))])
    assert result.finish_time[0] == 8 * (2 + 1 + 0.25)


# By hand

FAIR = {"contention": "fair_share"}


def test_three_tasks_on_one_processor_and_the_others_speed_up_when_one_has_done() -> None:
    platform = Platform.homogeneous(nodes=1, cores_per_node=3, gflops_per_core=1.0, mem_bw=10.0)
    profile = {"type": "bsp", "cpu": gigaflop(1, 2, 4), "com": 1e9, "g": 1e-9, "l": 0.5, "mem_bw": 5}
    result = play(platform, [profile], [[0, 1, 2]], **FAIR)
    # Three demands of 5 on 10 GB/s: each task gets 10/3 and runs at 2/3. The first ends at 1 / (2/3) = 1.5, where the
    # others have 2 - 1 = 1 and 4 - 1 = 3 left. Two demands of 5 fit: full speed, ends at 2.5 and 4.5.
    # Messages take 1 s, the barrier 0.5 s.
    jobs = result.jobs
    assert result.finish_time[0] == pytest.approx(6.0, rel=1e-12)
    assert jobs["computation_time"][0] == pytest.approx(4.5)
    assert jobs["communication_time"][0] == pytest.approx(1.5)
    assert jobs["communication_share"][0] == pytest.approx(0.25)
    assert jobs["barrier_waiting_time"][0] == pytest.approx((3 + 2 + 0) / 3)
    assert jobs["slowdown_factor"][0] == pytest.approx(6.0 / (4 + 1.5))
    # Three tasks lose 1/3 of a core each until 1.5.
    dates = np.array(result.time_breakdown.changes).reshape(-1, 3)
    assert -(dates[:, 0] @ dates[:, 1]) == pytest.approx(1.5)


def test_a_neighbour_speeds_up_while_a_gang_waits_and_slows_down_when_it_goes_on() -> None:
    platform = Platform.homogeneous(nodes=1, cores_per_node=4, gflops_per_core=1.0, mem_bw=20.0)
    gang = {"type": "bsp", "supersteps": 2, "cpu": gigaflop(1, 3), "l": 1.0, "mem_bw": 10}
    neighbour = {"type": "parallel_homogeneous", "cpu": 6e9, "mem_bw": 10}
    result = play(platform, [gang, neighbour], [[0, 1], [2]], **FAIR)
    # Requests of 30 on 20 GB/s: all three at 2/3 until the short task ends at 1.5; both others have done 1.
    # At full speed the long task's other 2 take until 3.5; the barrier until 4.5. The neighbour has 6 - 1 - 3 = 2 left.
    # Second superstep: at 2/3 until 6.0, when the neighbour has 1 left, done at 7.0; the long task has 2 left, until
    # 8.0; the barrier until 9.0.
    assert result.finish_time.tolist() == pytest.approx([9.0, 7.0], rel=1e-12)
    # Alone: 2 x (3 + 1) and 6.
    assert result.jobs["slowdown_factor"].tolist() == pytest.approx([9 / 8, 7 / 6])
    assert result.jobs["barrier_waiting_time"].tolist() == pytest.approx([(2 + 2) / 2, 0])


def test_the_end_of_a_task_reaches_a_neighbour_that_it_did_not_feel() -> None:
    """A task that runs as it did before somebody came still matters to the one who came."""
    platform = Platform.homogeneous(nodes=2, cores_per_node=4, gflops_per_core=1.0, mem_bw=12.0)
    gang = {"type": "bsp", "cpu": gigaflop(2, 20), "mem_bw": 4}
    greedy = {"type": "parallel_homogeneous", "cpu": 4e9, "mem_bw": 16}
    result = play(platform, [gang, greedy], [[0, 4], [1]], dates=[0.0, 1.0], **FAIR)
    # The gang's short task asks for 4 of 12 and gets it throughout: it ends at 2. The other gets 8 of 16: half speed
    # for 1 s, then 12 of 16: 3.5 s of work at 3/4.
    assert result.finish_time[1] == pytest.approx(2 + 3.5 / 0.75, rel=1e-12)


def test_tasks_without_work_disturb_nobody() -> None:
    platform = Platform.homogeneous(nodes=1, cores_per_node=4, gflops_per_core=1.0, mem_bw=10.0)
    gang = {"type": "bsp", "cpu": gigaflop(0, 0, 4), "mem_bw": 10}
    result = play(platform, [gang], [[0, 1, 2]], **FAIR)
    assert result.finish_time[0] == 4.0
    assert result.jobs["barrier_waiting_time"][0] == pytest.approx(8 / 3)
    parallel = {"type": "parallel", "cpu": gigaflop(0, 0, 4), "mem_bw": 10}
    assert play(platform, [parallel], [[0, 1, 2]], **FAIR).finish_time[0] == 4.0


def test_a_delay_takes_bandwidth_and_loses_nothing() -> None:
    platform = Platform.homogeneous(nodes=1, cores_per_node=2, gflops_per_core=1.0, mem_bw=10.0)
    pause = {"type": "composed", "seq": ["p2"], "mem_bw": 10}
    work = {"type": "bsp", "cpu": 2e9, "mem_bw": 10}
    workload = make_workload(
        [{"id": row, "subtime": 0, "res": 1, "profile": f"p{row}"} for row in (0, 1)],
        {"p0": pause, "p1": work, "p2": {"type": "delay", "delay": 2}},
        platform,
    )
    result = simulate(platform, workload, "fcfs", contention="fair_share", check=True)
    # Half speed until 2, when 1 is left.
    assert result.finish_time.tolist() == [2.0, 3.0]
    dates = np.array(result.time_breakdown.changes).reshape(-1, 3)
    assert -(dates[:, 0] @ dates[:, 1]) == pytest.approx(1.0)


def test_two_gangs_share_a_link() -> None:
    platform = Platform.homogeneous(nodes=3, cores_per_node=2, gflops_per_core=1.0, bandwidth="1GBps")
    message = [0, 1e9, 0, 0]
    gangs = [{"type": "bsp", "supersteps": 2, "cpu": seconds * 1e9, "pattern": message} for seconds in (1.0, 1.25)]
    result = play(platform, gangs, [[0, 4], [2, 5]], network="fluid")
    # Both send 1 GB to node 2, whose link takes 1 GB/s. A sends alone from 1.0 to 1.25, then half the link: its other
    # 0.75 GB take until 2.75. B has sent 0.75 by then and ends at 3.0. A computes until 3.75, B until 4.25. A sends
    # alone for 0.5 s, shares for 1 s, ends at 5.25; B has 0.5 GB left, ends at 5.75.
    assert result.finish_time.tolist() == pytest.approx([5.25, 5.75], rel=1e-12)
    jobs = result.jobs
    assert jobs["communication_time"].tolist() == pytest.approx([1.75 + 1.5, 1.75 + 1.5])
    assert jobs["slowdown_factor"].tolist() == pytest.approx([5.25 / 4, 5.75 / 4.5])
    assert jobs["nodes"].tolist() == [2, 2]
    assert jobs["node_spread"].tolist() == [2.0, 2.0]


def test_consolidated_gangs_send_nothing_over_links() -> None:
    platform = Platform.homogeneous(nodes=2, cores_per_node=4, gflops_per_core=1.0, bandwidth="1GBps", latency="1ms")
    gang = {"type": "bsp", "supersteps": 3, "cpu": 1e9, "com": 3e9, "pattern": "all_to_all", "l": 0.5}
    packed = play(platform, [gang], [[0, 1, 2, 3]], network="fluid")
    assert packed.finish_time[0] == pytest.approx(3 * 1.5)
    spread = play(platform, [gang], [[0, 1, 4, 5]], network="fluid")
    # Two tasks send to each of two others over one link of 1 GB/s: 4 x 3 GB; three links (of nodes, none of clusters).
    assert spread.finish_time[0] == pytest.approx(3 * (1.5 + 12 + 0.002))


def test_a_parallel_task_computes_and_sends_at_one_pace() -> None:
    platform = Platform.homogeneous(nodes=2, cores_per_node=1, gflops_per_core=1.0, bandwidth="1GBps")
    profiles = [{"type": "parallel_homogeneous", "cpu": 2e9, "com": volume} for volume in (1e9, 5e9)]
    total = {"type": "parallel_homogeneous_total", "cpu": 4e9, "com": 6e9}
    found = [play(platform, [one], [[0, 1]], network="fluid").finish_time[0] for one in (*profiles, total)]
    # max(2 s of computation, s of messages); the total of 6 GB makes 3 GB a message, as in Batsim.
    assert found == pytest.approx([2.0, 5.0, 3.0], rel=1e-12)


def test_killed_jobs_tell_what_they_have_done() -> None:
    platform = Platform.homogeneous(nodes=1, cores_per_node=2, gflops_per_core=1.0)
    gang = {"type": "bsp", "supersteps": 9, "cpu": gigaflop(1, 2), "com": 1e9, "g": 1e-9, "l": 1.0}
    workload = make_workload(
        [{"id": 0, "subtime": 0, "res": 2, "profile": "p", "walltime": 5.5}], {"p": gang}, platform
    )
    jobs = simulate(platform, workload, "fcfs", kill_at_walltime=True).jobs
    # A superstep takes 2 + 1 + 1: one is done, of the next one 1.5 s of computation.
    assert jobs["supersteps"][0] == 1
    assert jobs["computation_time"][0] == 3.5
    assert jobs["communication_time"][0] == 2.0
    assert jobs["barrier_waiting_time"][0] == (1 + 0.5) / 2
    assert jobs["slowdown_factor"][0] == 1.0


# Invariants


class Watched(Fluid):
    """The fluid network, which keeps when the messages of a job began and ended."""

    watched: Watched

    def __init__(self, platform: Platform) -> None:
        super().__init__(platform)
        self.spans: dict[Any, list[list[float]]] = {}
        Watched.watched = self

    def start_phase(self, key: Any, messages: Any, now: float) -> None:
        self.spans.setdefault(key, []).append([now])
        super().start_phase(key, messages, now)

    def advance(self, key: Any, now: float) -> bool:
        over = super().advance(key, now)
        if over and key in self.spans:
            self.spans[key][-1].append(now)
        return over


@examples(40)
@given(draw=st.randoms(use_true_random=False), contention=st.sampled_from(list(CONTENTION)))
def test_no_task_goes_on_before_all_have_met(draw: Random, contention: str) -> None:
    platform = random_platform(draw)
    size = draw.randint(1, 5)
    works = [[draw.choice([0, 1, 2.5, 4]) for _ in range(6)] for _ in range(size)]
    jobs, profiles = [], {}
    for row, work in enumerate(works):
        tasks = min(draw.randint(2, 6), platform.n_cores)
        work[0] = 1.0
        profiles[f"p{row}"] = {
            "type": "bsp",
            "supersteps": 4,
            "cpu": [seconds * platform.reference_gflops * 1e9 for seconds in work[:tasks]],
            "com": 3e8,
            "pattern": draw.choice(PATTERNS[1:]),
            "l": 0.125,
            "mem_bw": draw.choice([0, 4, 9]),
        }
        jobs.append({"id": row, "subtime": draw.choice([0, 1, 3]), "res": tasks, "profile": f"p{row}"})
    workload = make_workload(jobs, profiles, platform)
    result = simulate(
        platform,
        workload,
        "fcfs",
        contention=CONTENTION[contention][0],
        network={"_target_": "test_bsp.Watched"},
        check=True,
    )
    peak = (platform.gflops / platform.reference_gflops)[platform.core_processor]
    time_breakdown = result.time_breakdown
    lost = exchanging = 0.0
    for row in range(size):
        cores = cores_of_jobs(result)[row]
        seconds = np.array(profiles[workload.profile[row]]["cpu"]) / (platform.reference_gflops * 1e9) / peak[cores]
        spans = Watched.watched.spans.get(row, [])
        nodes = len(np.unique(platform.processor_node[platform.core_processor[cores]]))
        assert len(spans) == (4 if nodes > 1 else 0)
        # Messages begin when the slowest task has computed since the last barrier; barriers take 0.125 s.
        met = result.starting_time[row]
        for begin, end in spans:
            assert begin >= met + seconds.max() - 1e-9
            assert end > begin
            met = end + 0.125
        if spans:
            assert result.finish_time[row] == pytest.approx(met, rel=1e-12)
        assert result.jobs["supersteps"][row] == 4
        busy = len(cores) * (time_breakdown.computation[row] - time_breakdown.waiting[row])
        # Work is conserved: what tasks took beyond their work at peak speed is what contention has taken.
        assert busy >= 4 * seconds.sum() - 1e-9
        lost += busy - 4 * seconds.sum()
        exchanging += len(cores) * sum(end - begin for begin, end in spans)
    changes = np.array(time_breakdown.changes).reshape(-1, 3)
    assert -(changes[:, 0] @ changes[:, 1]) == pytest.approx(lost, abs=1e-8)
    assert -(changes[:, 0] @ changes[:, 2]) == pytest.approx(exchanging, abs=1e-8)
    assert changes.sum(0)[1:] == pytest.approx([0, 0], abs=1e-9)


@examples(25)
@given(
    draw=st.randoms(use_true_random=False), contention=st.sampled_from([name for name in CONTENTION if name != "none"])
)
def test_rigid_jobs_run_as_they_do_without_programs_elsewhere(draw: Random, contention: str) -> None:
    """The executor of programs gives rigid jobs the dates of the one that knows no programs."""
    document = random_platform(draw).to_dict()
    extra = document["clusters"][0]["nodes"][0]["type"]
    document["clusters"].append({**document["clusters"][0], "id": "apart", "nodes": [{"type": extra, "number": 1}]})
    platform = Platform.from_dict(document)
    apart = np.flatnonzero(platform.processor_node[platform.core_processor] == platform.n_nodes - 1).tolist()
    others = platform.n_cores - len(apart)
    size = draw.randint(1, 10)
    cores = [sorted(draw.sample(range(others), draw.randint(1, min(5, others)))) for _ in range(size)]
    columns = {
        "submission_time": sorted(draw.choice([0, 0, 1, 2, 4.5]) for _ in range(size - 1)),
        "runtime": [draw.choice([0, 1, 2, 3.3, 7]) for _ in range(size)],
        "requested_cores": [len(given) for given in cores],
        "memory_bandwidth": [draw.choice([0, 3, 6, 11]) for _ in range(size)],
        "fixed_duration": [draw.random() < 0.2 for _ in range(size)],
        "walltime": [draw.choice([math.inf, math.inf, 5.0]) for _ in range(size)],
    }
    columns["submission_time"] = [0, *columns["submission_time"]]
    options = {"contention": CONTENTION[contention][0], "kill_at_walltime": True, "check": True}
    alone = simulate(platform, Workload.from_columns(**columns), Placer(cores), **options)
    assert alone.time_breakdown is None
    program = make_workload(
        [{"id": 0, "subtime": 0, "res": 1, "profile": "p"}],
        {"p": {"type": "bsp", "supersteps": 3, "cpu": platform.reference_gflops * 1e9, "mem_bw": 30}},
        platform,
    ).program[0]
    for key, value in (("submission_time", 9), ("runtime", 3), ("requested_cores", 1), ("memory_bandwidth", 30)):
        columns[key] = [*columns[key], value]
    columns |= {"fixed_duration": [*columns["fixed_duration"], False], "walltime": [*columns["walltime"], math.inf]}
    workload = Workload.from_columns(**columns, program=[None] * size + [program])
    beside = simulate(platform, workload, Placer([*cores, apart[:1]]), **options)
    assert beside.time_breakdown is not None
    assert beside.finish_time[:-1] == pytest.approx(alone.finish_time, rel=1e-9)
    assert (beside.state[:-1] == alone.state).all()
    ended = alone.jobs["slowdown_factor"]
    assert beside.jobs["slowdown_factor"][:-1] == pytest.approx(ended, rel=1e-9)
    assert (ended >= 1).all()


@examples(20)
@given(draw=st.randoms(use_true_random=False), contention=st.sampled_from(list(CONTENTION)))
def test_one_event_at_a_time_or_all_of_an_instant_the_jobs_run_alike(draw: Random, contention: str) -> None:
    platform = random_platform(draw)
    workload = random_workload(draw, platform, 6)
    # Each job has cores of its own: who gets a core that two want may depend on what is seen first.
    until = np.cumsum(workload.requested_cores)
    workload = workload[: max(int(np.searchsorted(until, platform.n_cores, side="right")), 1)]
    shuffled = draw.sample(range(platform.n_cores), platform.n_cores)
    cores = [sorted(shuffled[end - n : end]) for n, end in zip(workload.requested_cores, until, strict=False)]
    options = {"contention": CONTENTION[contention][0], "network": "fluid"}
    found = [
        simulate(platform, workload, Placer(cores), batch_events=batch, **options).finish_time
        for batch in (True, True, False)
    ]
    assert found[0].tobytes() == found[1].tobytes()
    assert found[2] == pytest.approx(found[0], rel=1e-9)


# SimGrid


@pytest.mark.requires("simgrid")
@pytest.mark.xdist_group("simgrid_network")
@pytest.mark.parametrize("latency", [False, True])
@pytest.mark.ci
def test_parallel_profiles_end_when_they_do_in_simgrid(tmp_path: Any, latency: bool) -> None:
    """Batsim's `parallel` profiles through the engine, which Batsim hands to SimGrid as parallel tasks."""
    rng = np.random.default_rng(7 + latency)
    cases, found = [], []
    while len(cases) < (40 if ALL else 10):
        case = sg.random_tasks(rng, latency)
        if not case.tasks:
            continue
        first = min(task[0] for task in case.tasks)
        tasks = []
        for date, cores, flops, volumes in sorted(case.tasks, key=lambda task: task[0]):
            order = np.argsort(cores)
            mine, work = np.array(cores)[order].tolist(), np.array(flops)[order].tolist()
            tasks.append((date - first, mine, work, np.array(volumes)[order][:, order].tolist()))
        profiles = [
            {"type": "parallel", "cpu": flops, "com": [volume for row in volumes for volume in row]}
            for _, _, flops, volumes in tasks
        ]
        network = {"_target_": "hdsim.network.fluid.Fluid", "sharing": "rounds"}
        result = play(
            case.platform, profiles, [task[1] for task in tasks], dates=[task[0] for task in tasks], network=network
        )
        cases.append(sg.Case(case.platform, tasks=tasks))
        found.append(result.finish_time.tolist())
    differences = sg.differences(found, sg.theirs(cases, tmp_path, *sg.PARALLEL, sg.DEFAULT))
    assert len(differences) == len(cases)
    assert differences.max() < 1e-6


@pytest.mark.ci
@pytest.mark.requires("simgrid")
@pytest.mark.xdist_group("simgrid_network")
def test_homogeneous_profiles_end_when_they_do_in_simgrid(tmp_path: Any) -> None:
    platform = sg.make_platform([4, 4], [1e9, 5e9], 1.25e9, [10, 20], 100)
    cores = [[0, 4, 16], [1, 8, 20], [2, 5], [9, 12, 17, 24]]
    amounts = [(2e9, 3e8), (0, 1e9), (5e9, 1e8), (1e9, 5e8)]
    dates = [0.0, 0.5, 1.0, 1.5]
    profiles, tasks = [], []
    for row, (mine, (flop, volume)) in enumerate(zip(cores, amounts, strict=True)):
        p, total = len(mine), row % 2
        kind = "parallel_homogeneous_total" if total else "parallel_homogeneous"
        profiles.append({"type": kind, "cpu": flop * p if total else flop, "com": volume * p if total else volume})
        tasks.append((dates[row], mine, [flop] * p, (volume * (1 - np.eye(p))).tolist()))
    network = {"_target_": "hdsim.network.fluid.Fluid", "sharing": "rounds"}
    result = play(platform, profiles, cores, dates=dates, network=network)
    [expected] = sg.theirs([sg.Case(platform, tasks=tasks)], tmp_path, *sg.PARALLEL, sg.DEFAULT)
    assert result.finish_time.tolist() == pytest.approx(expected, rel=1e-6)
