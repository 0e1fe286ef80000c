"""Reservations of the kernels against profiles that look at every instant of a small machine anew."""

from __future__ import annotations

import itertools
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tiers import ci, examples, nightly

from hdsim.cluster.kernels import chunks
from hdsim.scheduling.kernels import node_profiles as nodes
from hdsim.scheduling.kernels import profiles as cores

NOW = 10.0
NODES = 3


class Held(NamedTuple):
    """Amounts of nodes, node: (cores, bytes, GPUs), from `begin` to `end`."""

    begin: float
    end: float
    amounts: dict[int, tuple[int, int, int]]


class Job(NamedTuple):
    """Chunks of some cores, bytes per core and GPUs, and a requested time."""

    number: int
    cores: int
    memory: int
    gpus: int
    time: float
    fixed: bool


def free_at(time: float, total: list[tuple[int, int, int]], held: list[Held]) -> list[list[int]]:
    """What is free on each node at an instant."""
    return [
        [
            have - sum(each.amounts.get(node, (0, 0, 0))[i] for each in held if each.begin <= time < each.end)
            for i, have in enumerate(total[node])
        ]
        for node in range(len(total))
    ]


def room(free: list[int], job: Job) -> int:
    """Chunks of a job that fit on a node."""
    chunks = 0
    while all(
        (chunks + 1) * one <= have
        for one, have in zip((job.cores, job.cores * job.memory, job.gpus), free, strict=True)
    ):
        chunks += 1
    return chunks


def amounts(job: Job, taken: dict[int, int]) -> dict[int, tuple[int, int, int]]:
    return {
        node: (count * job.cores, count * job.cores * job.memory, count * job.gpus) for node, count in taken.items()
    }


def earliest(job: Job, total: list[tuple[int, int, int]], held: list[Held], speeds: list[tuple[float, float]]) -> Any:
    """Start, end and chunks by node of a job at the earliest instant after now at which the fastest nodes have room."""
    order = sorted(range(len(total)), key=lambda node: -speeds[node][1])
    events = sorted({each.end for each in held if each.end > NOW})
    for start in events:
        end = start
        while True:
            times = [start] + [time for time in events if start < time < end]
            rooms = [min(room(free_at(time, total, held)[node], job) for time in times) for node in range(len(total))]
            if sum(rooms) < job.number:
                break
            taken: dict[int, int] = {}
            for node in order:
                if rooms[node] and sum(taken.values()) < job.number:
                    taken[node] = min(rooms[node], job.number - sum(taken.values()))
            duration = job.time if job.fixed else job.time / min(speeds[node][0] for node in taken)
            last = max(start + duration, math.nextafter(start, math.inf))
            if last <= end or not any(end <= time < last for time in events if time > start):
                return start, last, taken
            end = last
    return math.inf, math.inf, {}


@st.composite
def machines(draw: st.DrawFn) -> Any:
    """Nodes with their speeds, running jobs that hold parts of them, and queued jobs."""
    has_gpus = draw(st.booleans())
    total = [(draw(st.integers(1, 4)), draw(st.integers(0, 8)), draw(st.integers(0, 2)) * has_gpus) for _ in range(3)]
    pace = st.sampled_from([0.5, 1.0, 2.0])
    speeds = [tuple(sorted((draw(pace), draw(pace)))) for _ in total]
    left = [list(each) for each in total]
    jobs, running = [], []
    for _ in range(draw(st.integers(0, 4))):
        gpus = draw(st.integers(0, 1)) * has_gpus
        job = Job(0, draw(st.integers(1, 2)) if gpus else 1, draw(st.integers(0, 3)), gpus, 1.0, False)
        taken = {}
        for node in draw(st.sets(st.integers(0, NODES - 1))):
            count = min(room(left[node], job), draw(st.integers(1, 3)))
            if count:
                taken[node] = count
                left[node] = [a - b for a, b in zip(left[node], amounts(job, {node: count})[node], strict=True)]
        if taken:
            jobs.append(job._replace(number=sum(taken.values())))
            running.append((draw(st.integers(8, 20)) * 1.0, taken))
    for _ in range(draw(st.integers(1, 6))):
        gpus = draw(st.integers(0, 1)) * has_gpus
        chunk = draw(st.integers(1, 2)) if gpus else 1
        time = draw(st.integers(0, 8)) * 1.0
        jobs.append(Job(draw(st.integers(1, 6)), chunk, draw(st.integers(0, 3)), gpus, time, draw(st.booleans())))
    return total, speeds, left, jobs, running


def arrays(jobs: list[Job], running: list[tuple[float, dict[int, int]]]) -> Any:
    """The same jobs in the arrays of the kernels."""
    columns = list(zip(*jobs, strict=True))
    number, size, memory, gpus, time, fixed = columns
    zeros = np.zeros(len(jobs))
    kinds = list(dict.fromkeys(job[1:4] for job in jobs))
    requests = chunks.JobRequests(
        *(np.array(each, np.int64) for each in (number, size, gpus)),
        *(np.array(memory, float), np.ones(len(jobs)), zeros, zeros.astype(np.int64)),
        *(np.array([kinds.index(job[1:4]) for job in jobs]), np.array(time), np.array(fixed)),
    )
    releases, last = cores.make_releases(8), np.zeros(len(jobs), np.int64)
    for job, (end, taken) in enumerate(running):
        cores.add_release(releases, end, job, float(sum(taken.values()) * size[job]))
        last[job:] += len(taken)
    held = [(node, count * size[job]) for job, (_, taken) in enumerate(running) for node, count in taken.items()]
    first = np.append(0, last[:-1])
    on, counts = np.array(held, np.int64).reshape(-1, 2).T.copy()
    return requests, releases, chunks.Holdings(first, last, on, counts, np.array([len(on)]))


def amounts_of(left: list[list[int]], has_gpus: bool) -> Any:
    free = np.array(left, float).T.copy()
    if not has_gpus:
        return free[:2].copy()
    return np.array([*free, np.full(len(left), math.inf), np.zeros(len(left))])


def amounts_at(profile: nodes.NodeProfile, node: int, time: float) -> list[float]:
    """Unreserved CPU and memory of a node at a time."""
    entry = profile.first[node]
    after = profile.entries[entry]["next"]
    while after >= 0 and profile.entries[after]["begin"] <= time:
        entry, after = after, profile.entries[after]["next"]
    return [float(amount) for amount in profile.amount[:2, entry]]


@given(machines())
@examples(60)
def test_queued_jobs_are_reserved_the_earliest_room_on_the_fastest_nodes(machine: Any) -> None:
    total, speeds, left, jobs, running = machine
    requests, releases, holdings = arrays(jobs, running)
    free, anywhere = amounts_of(left, any(job.gpus for job in jobs)), np.ones((1, NODES), np.bool_)
    slowest, fastest = np.array(speeds).T.copy()
    order = np.argsort(-fastest, kind="stable")
    descending = bool((np.diff(slowest[order]) <= 0).all())
    known = nodes.NodeSpeeds(slowest, fastest * (1 + 1e-9), order, descending)
    profile = nodes.with_steps(nodes.make_node_profile(free, anywhere, known), len(jobs) + 2)
    profile = nodes.with_entries(profile, 100)
    nodes.plan_nodes(profile, free, requests, releases, holdings, NOW)
    soon = math.nextafter(NOW, math.inf)
    held = [Held(0.0, max(end, soon), amounts(jobs[job], taken)) for job, (end, taken) in enumerate(running)]
    for job in range(len(running), len(jobs)):
        start, end, taken = earliest(jobs[job], total, held, speeds)
        assert nodes.reserve_nodes(profile, requests, job, 1) == start
        held.append(Held(start, end, amounts(jobs[job], taken)))
        for step in range(int(profile.length[0])):
            time = profile.times[step]
            expected = np.array(free_at(time, total, held))
            assert np.array_equal([amounts_at(profile, node, time) for node in range(NODES)], expected[:, :2])
            assert np.array_equal(profile.cores[profile.row[step]], expected[:, 0])


def test_chunks_without_cpu_fit_on_a_node_without_free_cores() -> None:
    requests, releases, holdings = arrays([Job(1, 1, 0, 0, 8.0, True), Job(2, 1, 1, 0, 3.0, True)], [(8.0, {0: 1})])
    requests = requests._replace(cpu=np.array([1.0, 0.0]))
    free, ones = np.array([[0.0], [2.0]]), np.ones(1)
    known = nodes.NodeSpeeds(ones, ones, np.zeros(1, np.int64), True)
    profile = nodes.with_steps(nodes.make_node_profile(free, np.ones((1, 1), np.bool_), known), 4)
    profile = nodes.with_entries(profile, 10)
    nodes.plan_nodes(profile, free, requests, releases, holdings, NOW)
    assert [nodes.reserve_nodes(profile, requests, 1, 0) for _ in range(2)] == [NOW, NOW + 3]


@given(machines())
@examples(60)
def test_like_jobs_are_reserved_as_if_none_had_been_before(machine: Any) -> None:
    _, speeds, left, jobs, running = machine
    jobs = jobs[: len(running)] + 3 * jobs[len(running) :]
    requests, releases, holdings = arrays(jobs, running)
    free, anywhere = amounts_of(left, any(job.gpus for job in jobs)), np.ones((1, NODES), np.bool_)
    paces = np.array([fastest for _, fastest in speeds])
    queued, found = np.arange(len(running), len(jobs)), []
    for bounded in (True, False):
        known = nodes.NodeSpeeds(paces, paces * (1 + 1e-9), np.argsort(-paces, kind="stable"), bounded)
        profile = nodes.with_steps(nodes.make_node_profile(free, anywhere, known), len(jobs) + 2)
        profile = nodes.with_entries(profile, 200)
        nodes.plan_nodes(profile, free, requests, releases, holdings, NOW)
        starts, place = np.full(len(queued), 1.5), 0
        while True:
            place = nodes.reserve_ahead(profile, requests, queued, place, starts)
            if place == len(queued) or starts[place] != -math.inf:
                break
            # The job does not start now after all.
            nodes.reserve_nodes(profile, requests, queued[place], 1)
            place += 1
        found.append((place, starts.tolist(), profile.times[: profile.length[0]].tolist()))
    assert found[0] == found[1]


@given(machines())
@examples(60)
def test_the_head_is_reserved_the_first_instant_with_room_and_jobs_beside_it_leave_that_room(machine: Any) -> None:
    total, _, left, jobs, running = machine
    requests, releases, holdings = arrays(jobs, running)
    free, anywhere = amounts_of(left, any(job.gpus for job in jobs)), np.ones((1, NODES), np.bool_)
    head, soon = len(running), math.nextafter(NOW, math.inf)
    held = [Held(0.0, max(end, soon), amounts(jobs[job], taken)) for job, (end, taken) in enumerate(running)]

    def spare(time: float) -> int:
        return sum(room(each, jobs[head]) for each in free_at(time, total, held)) - jobs[head].number

    shadow, margin = cores.reserve_head(free, anywhere, requests, releases, holdings, head, NOW)
    # The head is blocked now: a reservation waits for the end of a job at least.
    ends = sorted({each.end for each in held})
    first = next((end for end in ends if spare(end) >= 0), math.inf)
    assert (shadow if shadow > NOW else soon) == (first if first > soon or not ends else soon)
    if first < math.inf:
        assert margin == spare(first)
        for job in range(head + 1, len(jobs)):
            now = free_at(first, total, held)
            taken = next(({node: 1} for node in range(NODES) if room(now[node], jobs[job])), None)
            if taken is None:
                continue
            (node,) = taken
            held.append(Held(0.0, math.inf, amounts(jobs[job], taken)))
            left_over = spare(first)
            count = np.array([jobs[job].cores])
            margin_after = cores.admit(free, anywhere, requests, head, margin, job, np.array([node]), count)
            assert (margin_after >= 0) == (left_over >= 0)
            if left_over < 0:
                held.pop()
            else:
                margin = margin_after
                assert margin == left_over


amounts_of_node = st.tuples(st.integers(0, 9), st.integers(0, 40), st.integers(0, 3), st.integers(0, 4))
part = st.builds(Job, st.just(1), st.integers(1, 3), st.integers(0, 9), st.integers(0, 2), st.just(1.0), st.just(False))


@given(st.lists(amounts_of_node, min_size=1, max_size=4), part, part, st.integers(0, 8), st.booleans(), st.data())
@examples(300)
def test_limits_leave_the_head_its_room_and_are_missed_only_where_there_are_none(
    machine: Any, first: Job, job: Job, number: int, gpus: bool, data: Any
) -> None:
    """Every distribution of the chunks over the nodes is tried."""
    if not gpus:
        first, job = (each._replace(cores=1, gpus=0) for each in (first, job))
    total = [[cpu, memory, devices] for cpu, memory, devices, _ in machine]
    free = amounts_of(total, gpus)
    rooms = [min(most, room(each, job)) for each, (*_, most) in zip(total, machine, strict=True)]
    own = [room(each, first) for each in total]
    margin = sum(own) - number
    assume(margin >= 0)
    requests, allowed = arrays([first._replace(number=number), job], [])[0], np.ones((1, len(total)), np.bool_)

    def lost(node: int, chunks: int) -> int:
        taken = (job.cores, job.cores * job.memory, job.gpus)
        left = [have - chunks * one for have, one in zip(total[node], taken, strict=True)]
        return own[node] - room(left, first)

    possible = [
        sum(chosen)
        for chosen in itertools.product(*(range(most + 1) for most in rooms))
        if sum(map(lost, range(len(total)), chosen)) <= margin
    ]
    asked, limit, before = (free, allowed, requests, 0, float(margin), 1), np.zeros(len(total), np.int64), free.copy()
    for wanted in {data.draw(st.integers(0, sum(rooms) + 1)), 1 << 62}:
        least, most = cores.fill_beside(*asked, np.array(rooms), wanted, limit)
        for kept, sum_of in (
            (limit.copy(), least),
            (limit, cores.fill_exactly(*asked, np.array(rooms), wanted, limit)),
        ):
            assert kept.sum() == sum_of
            assert max(kept) <= wanted
            assert all(kept <= rooms)
            assert sum(map(lost, range(len(total)), kept.tolist())) <= margin
        assert min(limit.sum(), wanted) == min(max(possible), wanted)
        assert least <= max(possible)
        assert min(most, wanted) >= min(max(possible), wanted)
    assert np.array_equal(free, before)


@given(
    st.integers(0, 6),
    st.lists(st.tuples(st.integers(8, 20), st.integers(1, 4)), max_size=5),
    st.lists(st.tuples(st.integers(1, 12), st.integers(0, 8)), min_size=1, max_size=8),
)
@examples(100)
def test_cores_are_reserved_at_the_earliest_start_that_delays_no_job(
    idle: int, running: list[tuple[int, int]], queued: list[tuple[int, int]]
) -> None:
    total, soon = idle + sum(size for _, size in running), math.nextafter(NOW, math.inf)
    held = [(0.0, max(float(end), soon), size) for end, size in running]
    releases, profile = cores.make_releases(8), cores.make_profile(16)
    for job, (end, size) in enumerate(running):
        cores.add_release(releases, float(end), job, float(size))
    cores.plan(profile, releases, NOW, float(idle))
    starts = np.empty(len(queued))
    size, time = (np.array(each, float) for each in zip(*queued, strict=True))
    assert cores.reserve_all(profile, size, time, math.inf, len(queued), starts) == len(queued)

    def busy(time: float) -> int:
        return sum(size for begin, end, size in held if begin <= time < end)

    for (size, time), found in zip(queued, starts.tolist(), strict=True):
        times = sorted({NOW} | {end for _, end, _ in held})
        for start in times:
            end = max(start + time, math.nextafter(start, math.inf))
            if all(busy(at) + size <= total for at in times if start <= at < end):
                break
        else:
            start = math.inf
        assert found == start
        held.append((start, end, size))
    # Forwarding forgets the past only.
    later = NOW + 3
    cores.forward(profile, later)
    steps = int(profile.length[0])
    assert profile.times[0] == later
    assert [total - busy(time) for time in profile.times[:steps]] == profile.free[:steps].tolist()


def test_running_jobs_are_in_order_of_their_expected_ends() -> None:
    rng = np.random.default_rng(0)
    releases, running = cores.make_releases(200), []
    for job in range(200):
        running.append((float(rng.integers(20)), job, float(job % 7)))
        cores.add_release(releases, *running[-1])
        if job % 3 == 0:
            end, gone, _ = running.pop(int(rng.integers(len(running))))
            cores.remove_release(releases, end, gone)
    count = int(releases.length[0])
    assert list(zip(*(column[:count].tolist() for column in releases[:3]), strict=True)) == sorted(running)


@pytest.mark.parametrize("variable", [*ci("NUMBA_DISABLE_JIT"), *nightly("NUMBA_BOUNDSCHECK")])
def test_kernels_run_as_python_and_stay_inside_their_arrays(variable: str, tmp_path: Path) -> None:
    if variable in os.environ:
        pytest.skip("runs in such a process")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", __file__, "-k", "reserved"]
    environment = os.environ | {variable: "1", "HDSIM_CACHE": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
