"""Properties of the engine on random small platforms and traces, most of them against the reference implementation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import reference as ref
from hypothesis import HealthCheck, assume, given, note
from hypothesis import strategies as st
from numpy.typing import NDArray
from schedules import cores_of_jobs
from test_compiled import assert_equal
from tiers import examples, pairs

from hdsim import Platform, Workload, simulate
from hdsim.cluster.state import FinalState
from hdsim.results.result import Result

JOB_RULES = (*ref.JOB_RULES, "random")
CORE_RULES = (*ref.CORE_RULES, "random")
PAIRS = [f"{job}-{core}" for job in JOB_RULES for core in CORE_RULES]
ENDED = (FinalState.COMPLETED_SUCCESSFULLY, FinalState.COMPLETED_WALLTIME_REACHED)


@dataclass(frozen=True)
class Case:
    """A platform and a trace, once for the engine and once for the reference."""

    platform: Platform
    workload: Workload
    own: ref.Platform
    jobs: list[ref.Job]

    def lasting(self) -> Case:
        """The same with no job that ends at the instant it starts."""
        workload = self.workload.replaced(runtime=self.workload.runtime + 1)
        return replace(self, workload=workload, jobs=ref.jobs_of(workload))


@st.composite
def documents(
    draw: st.DrawFn, *, speeds: tuple[float, ...], capacities: tuple[float, ...], gpus: bool = False
) -> dict[str, Any]:
    """Platforms of one to three clusters of a few nodes, some of them with GPUs if asked for."""
    processors = {
        f"p{i}": {
            "cores": draw(st.integers(1, 4)),
            "clock_rate": draw(st.sampled_from(speeds)),
            "dpflops_per_cycle": 2,
            "mem_bw": draw(st.sampled_from([8, 16, 24])),
            "power": draw(st.sampled_from([12, 24, 48])),
        }
        for i in range(draw(st.integers(1, 3)))
    }
    sockets = sorted(processors)
    if gpus:
        board = {"cores": 1, "clock_rate": 64, "dpflops_per_cycle": 2, "mem_bw": 1, "power": 100, "type": "GPU"}
        processors |= {"g1": board, "g2": board | {"cores": 2, "power": 300}}
    boards = st.lists(
        st.fixed_dictionaries({"type": st.sampled_from(["g1", "g2"]), "number": st.integers(1, 2)}), max_size=2
    )
    nodes = {
        f"n{i}": {
            "processors": draw(
                st.permutations(
                    [
                        *(
                            {"type": draw(st.sampled_from(sockets)), "number": draw(st.integers(1, 2))}
                            for _ in range(draw(st.integers(1, 2)))
                        ),
                        *(draw(boards) if gpus else ()),
                    ]
                )
            ),
            "memory": {"capacity": draw(st.sampled_from(capacities))},
        }
        for i in range(draw(st.integers(1, 2)))
    }
    clusters = [
        {
            "id": f"c{i}",
            "nodes": [
                {"type": draw(st.sampled_from(sorted(nodes))), "number": draw(st.integers(1, 2))}
                for _ in range(draw(st.integers(1, 2)))
            ],
        }
        for i in range(draw(st.integers(1, 3)))
    ]
    return {"name": "random", "clusters": clusters, "types": {"node": nodes, "processor": processors}}


def _own_platform(document: Mapping[str, Any]) -> ref.Platform:
    processors: list[ref.Processor] = []
    memory: list[float] = []
    for cluster in document["clusters"]:
        for entry in cluster["nodes"]:
            node = document["types"]["node"][entry["type"]]
            for _ in range(entry["number"]):
                for item in node["processors"]:
                    kind = document["types"]["processor"][item["type"]]
                    processor = ref.Processor(
                        node=len(memory),
                        cores=kind["cores"],
                        gflops=kind["clock_rate"] * kind["dpflops_per_cycle"],
                        power=kind["power"] / kind["cores"],
                        bandwidth=kind["mem_bw"],
                        gpu=kind.get("type") == "GPU",
                    )
                    processors += [processor] * item["number"]
                memory.append(1000.0 * node["memory"]["capacity"])
    return ref.Platform(processors, memory)


def _trace(draw: st.DrawFn, jobs: int, cores: int, odd: bool) -> dict[str, Any]:
    """Columns of a trace: whole seconds, so that events coincide, or odd ones, so that none do."""
    times = st.lists(st.integers(0, 12), min_size=jobs, max_size=jobs)
    columns: dict[str, Any] = {
        "submission_time": np.cumsum(draw(times)) - 0.0,
        "runtime": np.array(draw(times), float),
        "requested_cores": np.array(draw(st.lists(st.integers(1, cores), min_size=jobs, max_size=jobs))),
    }
    columns["requested_time"] = columns["runtime"] + np.array(draw(times))
    if odd:
        rng = np.random.default_rng(draw(st.integers(0, 2**32)))
        columns["submission_time"] = np.sort(columns["submission_time"] + rng.uniform(0, 1, jobs))
        columns["runtime"] = columns["runtime"] + rng.uniform(0, 1, jobs)
        columns["requested_time"] = columns["requested_time"] + 1
    return columns


def _room(own: ref.Platform, memory: float) -> int:
    """Cores that an empty platform can give to a job of `memory` MB a core."""
    return sum(_room_of_node(own, node, memory) for node in range(len(own.memory)))


def _room_of_node(own: ref.Platform, node: int, memory: float) -> int:
    cores = sum(processor.cores for processor in own.processors if processor.node == node and not processor.gpu)
    return min(cores, int(Fraction(str(own.memory[node])) // Fraction(str(memory)))) if memory else cores


def _can_run(own: ref.Platform, job: ref.Job) -> bool:
    """Whether the empty platform has room for all parts of a job."""
    parts, cores, gpus = ref.parts_of(job)
    room = 0
    for node in range(len(own.memory)):
        devices = sum(processor.cores for processor in own.processors if processor.node == node and processor.gpu)
        fitting = _room_of_node(own, node, job.memory) // cores
        room += min(fitting, devices // gpus) if gpus else fitting
    return room >= parts


@st.composite
def cases(
    draw: st.DrawFn,
    *,
    odd: bool,
    speeds: tuple[float, ...] = (1.0, 2.0, 4.0),
    walltimes: bool = False,
    memory: tuple[float, ...] = (0, 100, 250, 500),
    capacities: tuple[float, ...] = (1, 2, 4),
    gpus: bool = False,
) -> Case:
    """A platform with a trace of jobs that can all run on it, some of them with GPUs if asked for.

    In whole seconds many events fall together, so all arithmetic must be exact: speeds are then in ratios of two, to
    each other and to their mean. In odd seconds no two events do, and rounding cannot change the order of things.
    """
    document = draw(documents(speeds=speeds, capacities=capacities, gpus=gpus))
    own = _own_platform(document)
    if not odd and not math.log2(own.reference_gflops).is_integer():
        for kind in document["types"]["processor"].values():
            kind["clock_rate"] = 1.0
        own = _own_platform(document)
    n = draw(st.integers(1, 14))
    columns = _trace(draw, n, 2 * max(processor.cores for processor in own.processors) + 3, odd)
    columns["memory"] = np.array(draw(st.lists(st.sampled_from(memory), min_size=n, max_size=n)), float)
    columns["memory_bandwidth"] = np.array(draw(st.lists(st.sampled_from([0, 2, 6, 8]), min_size=n, max_size=n)), float)
    columns["fixed_duration"] = np.array(draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    room = [_room(own, each) for each in columns["memory"].tolist()]
    assume(min(room) > 0)
    columns["requested_cores"] = np.minimum(columns["requested_cores"], room)
    if gpus:
        columns["requested_gpus"] = np.array(draw(st.lists(st.integers(0, 6), min_size=n, max_size=n)))
        asking = ref.jobs_of(Workload.from_columns(**columns))
        columns["requested_gpus"] = np.where([_can_run(own, job) for job in asking], columns["requested_gpus"], 0)
    if walltimes:
        shares = st.sampled_from([0.4, 1.1, 2.3, math.inf])
        share = np.array(draw(st.lists(shares, min_size=n, max_size=n)))
        columns["walltime"] = np.maximum(columns["runtime"], 0.1) * share
    platform = Platform.from_dict(document)
    workload = Workload.from_columns(**columns)
    note(f"{document}\n{columns}")
    return Case(platform, workload, own, ref.jobs_of(workload))


def _held(result: Result) -> list[NDArray[np.int32]]:
    """Core ids of each job, ascending."""
    return cores_of_jobs(result)


def _check_against_reference(case: Case, result: Result, outcome: ref.Outcome) -> None:
    n = len(case.workload)
    runs = [outcome.runs[job] for job in range(n)]
    cores = [held.tolist() for held in _held(result)]
    assert cores == [run.cores for run in runs]
    assert [ref.core_ids(text) for text in result.jobs["allocated_resources"]] == cores
    assert result.starting_time == pytest.approx([run.start for run in runs], rel=1e-9, abs=1e-9)
    assert result.finish_time == pytest.approx([run.finish for run in runs], rel=1e-9, abs=1e-9)
    expected = [
        FinalState.COMPLETED_WALLTIME_REACHED if run.killed else FinalState.COMPLETED_SUCCESSFULLY for run in runs
    ]
    assert result.state.tolist() == expected
    assert result.energy_joules == pytest.approx(outcome.energy, rel=1e-9, abs=1e-9)
    energy = [outcome.job_energy(job, case.own) for job in range(n)]
    assert result.jobs["consumed_energy"] == pytest.approx(energy, rel=1e-9, abs=1e-9)


def _check_invariants(case: Case, result: Result) -> None:
    """What holds for any scheduler: restated from the result alone."""
    platform, workload = case.platform, case.workload
    start, finish = result.starting_time, result.finish_time
    assert np.isin(result.state, ENDED).all(), "every job that can run is accounted for"
    assert (start >= workload.submission_time).all()
    assert (finish >= start).all()
    held = _held(result)
    core_node = platform.processor_node[platform.core_processor]
    is_gpu = platform.is_gpu[platform.core_processor]
    for job, cores in enumerate(held):
        assert np.count_nonzero(~is_gpu[cores]) == workload.requested_cores[job]
        assert np.count_nonzero(is_gpu[cores]) == workload.requested_gpus[job]
        for node in np.unique(core_node[cores]):
            here = cores[core_node[cores] == node]
            shares = np.count_nonzero(is_gpu[here]) * workload.requested_cores[job]
            assert shares == np.count_nonzero(~is_gpu[here]) * workload.requested_gpus[job], "GPUs apart from the cores"
    for instant in np.unique(np.concatenate([start, finish])):
        running = np.flatnonzero((start <= instant) & (instant < finish))
        taken = np.concatenate([held[job] for job in running]) if len(running) else np.zeros(0, int)
        assert len(taken) == len(set(taken.tolist())), "a core serves two jobs"
        memory = platform.memory.copy()
        for job in running:
            np.subtract.at(memory, core_node[held[job][~is_gpu[held[job]]]], workload.memory[job])
        assert (memory >= -1e-6).all(), "a node gave more memory than it has, by more than a byte"
    assert result.energy_joules == pytest.approx(_energy_by_instants(case, result, held), rel=1e-9, abs=1e-9)


def _energy_by_instants(case: Case, result: Result, held: list[NDArray[np.int32]]) -> float:
    """The integral of power over time: between two events every core is in one state."""
    platform = case.platform
    times = np.unique(np.concatenate([[0.0], result.starting_time, result.finish_time]))
    energy = 0.0
    for begin, end in pairwise(times):
        busy = np.zeros(platform.n_cores, bool)
        for job in np.flatnonzero((result.starting_time <= begin) & (begin < result.finish_time)):
            busy[held[job]] = True
        serving = np.bincount(platform.core_processor, busy, platform.n_processors) > 0
        share = np.where(busy, 1.0, np.where(serving[platform.core_processor], 0.25, 0.05))
        energy += (end - begin) * float(share @ platform.power[platform.core_processor])
    return energy


def _observed(result: Result) -> dict[int, tuple[float, list[int]]]:
    return {
        job: (start, cores.tolist())
        for job, (start, cores) in enumerate(zip(result.starting_time.tolist(), _held(result), strict=True))
    }


def replayed(platform: Platform, workload: Workload, agent: str, **options: Any) -> Result:
    """Replays in the engine, with all checks, and in compiled code; both give the same result."""
    result = simulate(platform, workload, agent, check=True, **options)
    assert_equal(simulate(platform, workload, agent, **options), result)
    return result


# Policy pairs against the reference


SEVERAL_SPEEDS = (1.0, 1.7, 2.3, 4.0)


@pytest.mark.parametrize(("job_rule", "core_rule"), pairs(JOB_RULES, CORE_RULES))
@examples(6, 40)
@given(case=cases(odd=False), seed=st.integers(0, 3))
def test_pairs_where_events_fall_together(job_rule: str, core_rule: str, case: Case, seed: int) -> None:
    pair = f"{job_rule}-{core_rule}"
    if "random" in pair:
        case = case.lasting()  # otherwise one instant has several passes, and which of them drew a job is not recorded
    result = simulate(case.platform, case.workload, pair, seed=seed, check=True)
    outcome = ref.replay(case.own, case.jobs, job_rule, core_rule, observed=_observed(result))
    _check_against_reference(case, result, outcome)
    _check_invariants(case, result)


@pytest.mark.parametrize(("job_rule", "core_rule"), pairs(ref.JOB_RULES, ref.CORE_RULES))
@examples(5, 25)
@given(case=cases(odd=True, speeds=SEVERAL_SPEEDS), contention=st.sampled_from(["none", "threshold"]))
def test_pairs_with_several_speeds(job_rule: str, core_rule: str, case: Case, contention: str) -> None:
    result = replayed(case.platform, case.workload, f"{job_rule}-{core_rule}", contention=contention)
    outcome = ref.replay(case.own, case.jobs, job_rule, core_rule, threshold=contention == "threshold")
    _check_against_reference(case, result, outcome)
    _check_invariants(case, result)
    if contention == "none":
        return
    spans = sorted(zip(*(column.tolist() for column in result.oversubscribed), strict=True))
    assert [span[0] for span in spans] == [span[0] for span in outcome.oversubscribed]
    assert np.array(spans) == pytest.approx(np.array(outcome.oversubscribed), rel=1e-9, abs=1e-9)


@examples(30, 100)
@given(
    case=cases(odd=True, speeds=SEVERAL_SPEEDS, walltimes=True),
    pair=st.sampled_from(PAIRS),
    contention=st.sampled_from(["none", "threshold"]),
)
def test_kill_at_walltime(case: Case, pair: str, contention: str) -> None:
    assume("random" not in pair)
    result = replayed(case.platform, case.workload, pair, contention=contention, kill_at_walltime=True)
    outcome = ref.replay(
        case.own, case.jobs, *pair.split("-"), threshold=contention == "threshold", kill_at_walltime=True
    )
    _check_against_reference(case, result, outcome)
    killed = result.state == FinalState.COMPLETED_WALLTIME_REACHED
    lasted = result.finish_time - result.starting_time
    assert lasted[killed] == pytest.approx(case.workload.walltime[killed], rel=1e-9)
    assert (lasted <= case.workload.walltime * (1 + 1e-9)).all()
    assert result.jobs["success"].tolist() == (~killed).astype(int).tolist()
    assert set(result.jobs["final_state"][killed]) <= {"COMPLETED_WALLTIME_REACHED"}


@examples(30, 100)
@given(
    case=cases(odd=True, memory=(0.1, 0.3, 0.7), capacities=(0.0012, 0.0021)),
    job_rule=st.sampled_from(sorted(ref.JOB_RULES)),
    core_rule=st.sampled_from([rule for rule in ref.CORE_RULES if rule != "high_mem"]),
)
def test_memory_in_decimal_fractions_is_given_back_in_full(case: Case, job_rule: str, core_rule: str) -> None:
    """Amounts such as 0.1 MB have no exact binary form; no job may wait for ever for the rounding of earlier ones."""
    result = replayed(case.platform, case.workload, f"{job_rule}-{core_rule}")
    _check_against_reference(case, result, ref.replay(case.own, case.jobs, job_rule, core_rule))


@pytest.mark.parametrize("agent", ["fcfs", "easy", "conservative"])
def test_after_many_odd_amounts_a_node_can_still_give_all_its_memory(agent: str) -> None:
    rng = np.random.default_rng(3)
    jobs = 300
    platform = Platform.homogeneous(nodes=2, cores_per_node=10, memory_gb_per_node=1)
    workload = Workload.from_columns(
        submission_time=[*np.sort(rng.uniform(0, 200, jobs)), 1000],
        runtime=[*rng.uniform(1, 5, jobs), 1],
        requested_cores=[*rng.integers(1, 8, jobs), 20],
        memory=[*rng.integers(1, 100_000, jobs) / 1000, 100.0],
    )
    result = simulate(platform, workload, agent, check=True)
    assert (result.state == FinalState.COMPLETED_SUCCESSFULLY).all()


@examples(15, 50)
@given(case=cases(odd=True, speeds=SEVERAL_SPEEDS, walltimes=True), pair=st.sampled_from(PAIRS))
def test_walltimes_are_only_words_unless_jobs_are_killed_at_them(case: Case, pair: str) -> None:
    result = simulate(case.platform, case.workload, pair)
    free = simulate(case.platform, case.workload.replaced(walltime=np.inf), pair)
    assert result.finish_time.tolist() == free.finish_time.tolist()
    assert (result.state == FinalState.COMPLETED_SUCCESSFULLY).all()


@pytest.mark.parametrize("core_rule", CORE_RULES)
@examples(18, 60)
@given(case=cases(odd=False, gpus=True), job_rule=st.sampled_from(JOB_RULES), seed=st.integers(0, 3))
def test_pairs_with_gpus_where_events_fall_together(core_rule: str, case: Case, job_rule: str, seed: int) -> None:
    if "random" in (job_rule, core_rule):
        case = case.lasting()
    result = simulate(case.platform, case.workload, f"{job_rule}-{core_rule}", seed=seed, check=True)
    outcome = ref.replay(case.own, case.jobs, job_rule, core_rule, observed=_observed(result))
    _check_against_reference(case, result, outcome)
    _check_invariants(case, result)


@examples(45, 150)
@given(
    case=cases(odd=True, speeds=SEVERAL_SPEEDS, gpus=True, walltimes=True),
    pair=st.sampled_from([pair for pair in PAIRS if "random" not in pair]),
    contention=st.sampled_from(["none", "threshold"]),
    kill=st.booleans(),
)
def test_pairs_with_gpus_and_several_speeds(case: Case, pair: str, contention: str, kill: bool) -> None:
    result = replayed(case.platform, case.workload, pair, contention=contention, kill_at_walltime=kill)
    threshold = contention == "threshold"
    outcome = ref.replay(case.own, case.jobs, *pair.split("-"), threshold=threshold, kill_at_walltime=kill)
    _check_against_reference(case, result, outcome)
    _check_invariants(case, result)
    if threshold:
        spans = sorted(zip(*(column.tolist() for column in result.oversubscribed), strict=True))
        assert np.array(spans) == pytest.approx(np.array(outcome.oversubscribed), rel=1e-9, abs=1e-9)


# Backfilling against the textbook


@st.composite
def uniform_cases(draw: st.DrawFn, *, underestimates: bool) -> tuple[Platform, Workload, int]:
    """Equal cores without memory limits; whole seconds; run times and requested times of 0 included."""
    per_node, nodes = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    columns = _trace(draw, draw(st.integers(1, 25)), per_node * nodes, odd=False)
    if underestimates:
        columns["requested_time"] = np.array(draw(st.permutations(columns["requested_time"].tolist())))
    note(str(columns))
    return Platform.homogeneous(nodes, per_node), Workload.from_columns(**columns), per_node * nodes


BACKFILLS = {
    "easy": (ref.easy, "fcfs"),
    "easy-sjf": (ref.easy, "sjf"),
    "easy-saf": (ref.easy, "saf"),
    "easy-largest": (ref.easy, "largest"),
    "conservative": (ref.conservative, "fcfs"),
    "conservative-sjf": (ref.conservative, "sjf"),
    "hybrid2": (partial(ref.hybrid, depth=2), "fcfs"),
    "hybrid3-sjf": (partial(ref.hybrid, depth=3), "sjf"),
}


@pytest.mark.parametrize("agent", BACKFILLS)
@examples(45, 150)
@given(case=uniform_cases(underestimates=False))
def test_backfilling_is_the_textbook_algorithm(agent: str, case: tuple[Platform, Workload, int]) -> None:
    platform, workload, cores = case
    scheduler, order = BACKFILLS[agent]
    starts = ref.replay_counts(ref.jobs_of(workload), cores, scheduler, ref.SCORES[order])
    assert simulate(platform, workload, agent, check=True).starting_time.tolist() == starts


@pytest.mark.parametrize("agent", BACKFILLS)
@examples(45, 150)
@given(case=uniform_cases(underestimates=True))
def test_backfilling_with_jobs_that_outlive_their_estimates(agent: str, case: tuple[Platform, Workload, int]) -> None:
    platform, workload, cores = case
    scheduler, order = BACKFILLS[agent]
    starts = ref.replay_counts(ref.jobs_of(workload), cores, scheduler, ref.SCORES[order])
    assert simulate(platform, workload, agent, check=True).starting_time.tolist() == starts


@st.composite
def one_node_cases(draw: st.DrawFn, *, underestimates: bool) -> tuple[Platform, Workload, ref.Amount]:
    """Cores and GPUs of one node, where all that counts is how many of each are free."""
    cores, gpus = draw(st.integers(1, 8)), draw(st.integers(1, 4))
    n = draw(st.integers(1, 20))
    columns = _trace(draw, n, cores, odd=False)
    columns["requested_gpus"] = np.array(draw(st.lists(st.integers(0, gpus), min_size=n, max_size=n)))
    if underestimates:
        columns["requested_time"] = np.array(draw(st.permutations(columns["requested_time"].tolist())))
    note(f"{cores} cores, {gpus} GPUs, {columns}")
    document = Platform.homogeneous(1, cores).to_dict()
    kind = document["types"]["processor"]["homogeneous"]
    document["types"]["processor"]["gpu"] = kind | {"type": "GPU", "cores": 1, "clock_rate": 1000}
    document["types"]["node"]["homogeneous"]["processors"].insert(0, {"type": "gpu", "number": gpus})
    return Platform.from_dict(document), Workload.from_columns(**columns), ref.Amount(cores, gpus)


GPU_AGENTS = {**BACKFILLS, "fcfs": (ref.strict, "fcfs"), "saf": (ref.strict, "saf")}


@pytest.mark.parametrize("agent", GPU_AGENTS)
@examples(30, 100)
@given(data=st.data(), underestimates=st.booleans())
def test_on_one_node_gpus_are_a_second_resource(agent: str, data: st.DataObject, underestimates: bool) -> None:
    platform, workload, total = data.draw(one_node_cases(underestimates=underestimates))
    scheduler, order = GPU_AGENTS[agent]
    jobs = ref.jobs_of(workload)
    starts = ref.replay_counts(jobs, total.cores, scheduler, ref.SCORES[order], gpus=total.gpus)
    assert simulate(platform, workload, agent, check=True).starting_time.tolist() == starts


@examples(45, 150)
@given(
    case=cases(odd=False, gpus=True),
    backfill=st.sampled_from(["easy", "conservative"]),
    order=st.sampled_from([*JOB_RULES, "saf", "wfp3", "tetris", "drf"]),
    core_rule=st.sampled_from(CORE_RULES),
    contention=st.sampled_from(["none", "threshold"]),
)
def test_backfilling_with_gpus(case: Case, backfill: str, order: str, core_rule: str, contention: str) -> None:
    result = simulate(
        case.platform, case.workload, f"{backfill}-{order}-{core_rule}", contention=contention, check=True
    )
    _check_invariants(case, result)


@examples(30, 100)
@given(
    case=cases(odd=True, speeds=SEVERAL_SPEEDS, gpus=True),
    agent=st.sampled_from([pair for pair in PAIRS if "random" not in pair] + ["easy", "conservative-sjf", "tetris"]),
    contention=st.sampled_from(["none", "threshold"]),
)
def test_gpus_that_nobody_asks_for_change_nothing(case: Case, agent: str, contention: str) -> None:
    """Jobs without GPUs run on the same cores at the same times as on the platform without the GPUs."""
    document = case.platform.to_dict()
    for node in document["types"]["node"].values():
        node["processors"] = [entry for entry in node["processors"] if not entry["type"].startswith("g")]
    plain = Platform.from_dict(document)
    workload = case.workload.replaced(requested_gpus=0)
    one = simulate(plain, workload, agent, contention=contention)
    other = simulate(case.platform, workload, agent, contention=contention, check=True)
    assert other.finish_time.tolist() == one.finish_time.tolist()
    usable = np.flatnonzero(~case.platform.is_gpu[case.platform.core_processor])
    for cores, expected in zip(_held(other), _held(one), strict=True):
        assert cores.tolist() == usable[expected].tolist()
    assert other.metrics["utilization"] == one.metrics["utilization"]


@pytest.mark.parametrize("order", sorted(set(ref.SCORES) - {"wfp3", "unicef", "f1", "f2", "f3", "f4"}))
@examples(15, 50)
@given(case=uniform_cases(underestimates=True))
def test_strict_orders(order: str, case: tuple[Platform, Workload, int]) -> None:
    platform, workload, cores = case
    starts = ref.replay_counts(ref.jobs_of(workload), cores, ref.strict, ref.SCORES[order])
    checked, quick = simulate(platform, workload, order, check=True), simulate(platform, workload, order)
    assert quick.starting_time.tolist() == checked.starting_time.tolist() == starts
    assert quick.jobs["allocated_resources"].tolist() == checked.jobs["allocated_resources"].tolist()
    assert quick.energy_joules == pytest.approx(checked.energy_joules, rel=1e-12)


@pytest.mark.parametrize("backfill", ["easy", "conservative"])
@examples(22, 75)
@given(
    case=cases(odd=False),
    order=st.sampled_from([*JOB_RULES, "saf", "wfp3"]),
    core_rule=st.sampled_from(CORE_RULES),
    contention=st.sampled_from(["none", "threshold"]),
)
def test_backfilling_with_memory_and_several_speeds(
    backfill: str, case: Case, order: str, core_rule: str, contention: str
) -> None:
    result = simulate(
        case.platform, case.workload, f"{backfill}-{order}-{core_rule}", contention=contention, check=True
    )
    _check_invariants(case, result)


@examples(22, 75, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(case=cases(odd=True, speeds=SEVERAL_SPEEDS), core_rule=st.sampled_from(CORE_RULES))
@pytest.mark.ci
def test_conservative_backfilling_keeps_its_word(case: Case, core_rule: str) -> None:
    """With exact requests on cores of one speed, nobody starts later for the jobs that come after."""
    workload = case.workload.replaced(requested_time=case.workload.runtime)
    document = case.platform.to_dict()
    for kind in document["types"]["processor"].values():
        kind["clock_rate"] = 2.0
    platform = Platform.from_dict(document)
    assume((workload.memory == workload.memory[0]).all())
    agent = f"conservative-first-{core_rule}"
    together = simulate(platform, workload, agent).starting_time
    for n in range(1, len(workload)):
        assert simulate(platform, workload[:n], agent).starting_time.tolist() == together[:n].tolist()


# Work is conserved, and nothing depends on the origin or the unit of time


@examples(30, 100)
@given(case=cases(odd=True, speeds=SEVERAL_SPEEDS), pair=st.sampled_from(PAIRS), seed=st.integers(0, 3))
def test_without_contention_work_is_conserved(case: Case, pair: str, seed: int) -> None:
    """Every job does exactly the operations it has: its time is its work by the speed of its slowest core."""
    result = simulate(case.platform, case.workload, pair, seed=seed)
    speed = case.platform.core_gflops() / case.platform.reference_gflops
    for job, cores in enumerate(_held(result)):
        slowest = 1.0 if case.workload.fixed_duration[job] else speed[cores].min()
        lasted = result.finish_time[job] - result.starting_time[job]
        assert lasted * slowest == pytest.approx(case.workload.runtime[job], rel=1e-9, abs=1e-9)


@examples(30, 100)
@given(case=cases(odd=True, speeds=SEVERAL_SPEEDS), pair=st.sampled_from(PAIRS), seed=st.integers(0, 3))
def test_under_contention_work_is_conserved(case: Case, pair: str, seed: int) -> None:
    """The integral of a job's speed over its run is its work, given the spans of oversubscription in the result."""
    result = simulate(case.platform, case.workload, pair, contention="threshold", seed=seed)
    speed = case.platform.gflops / case.platform.reference_gflops
    spans = list(zip(*(column.tolist() for column in result.oversubscribed), strict=True))
    for job, cores in enumerate(_held(result)):
        if case.workload.fixed_duration[job]:
            continue
        start, finish = result.starting_time[job], result.finish_time[job]
        mine = set(case.platform.core_processor[cores].tolist())
        cuts = {start, finish} | {min(max(time, start), finish) for p, *ends in spans if p in mine for time in ends}
        work = 0.0
        times = sorted(cuts)
        for begin, end in pairwise(times):
            middle = (begin + end) / 2
            slowed = {p for p, since, until in spans if since <= middle < until}
            work += (end - begin) * min(speed[p] * (0.75 if p in slowed else 1.0) for p in mine)
        assert work == pytest.approx(case.workload.runtime[job], rel=1e-9, abs=1e-9)


@examples(22, 75)
@given(case=cases(odd=False), pair=st.sampled_from(PAIRS), factor=st.sampled_from([0.25, 2.0, 8.0]))
def test_the_unit_of_time_does_not_matter(case: Case, pair: str, factor: float) -> None:
    """All times in another unit: every time of the outcome in that unit, the same cores, energy in proportion."""
    workload = case.workload
    scaled = workload.replaced(
        submission_time=workload.submission_time * factor,
        runtime=workload.runtime * factor,
        requested_time=workload.requested_time * factor,
    )
    one = simulate(case.platform, workload, pair, contention="threshold", seed=5)
    other = simulate(case.platform, scaled, pair, contention="threshold", seed=5)
    assert other.starting_time == pytest.approx(one.starting_time * factor, rel=1e-12)
    assert other.finish_time == pytest.approx(one.finish_time * factor, rel=1e-12)
    assert list(other.jobs["allocated_resources"]) == list(one.jobs["allocated_resources"])
    assert other.energy_joules == pytest.approx(one.energy_joules * factor, rel=1e-12)


@examples(22, 75)
@given(case=cases(odd=False), pair=st.sampled_from(PAIRS), shift=st.integers(1, 10**9))
def test_the_origin_of_time_does_not_matter(case: Case, pair: str, shift: int) -> None:
    columns = {
        name: getattr(case.workload, name)
        for name in ("runtime", "requested_time", "requested_cores", "memory", "memory_bandwidth", "fixed_duration")
    }
    shifted = Workload.from_columns(submission_time=case.workload.submission_time + shift, **columns)
    one = simulate(case.platform, case.workload, pair, contention="threshold", seed=5)
    other = simulate(case.platform, shifted, pair, contention="threshold", seed=5)
    assert other.finish_time.tolist() == one.finish_time.tolist()
    assert list(other.jobs["allocated_resources"]) == list(one.jobs["allocated_resources"])


@examples(22, 75)
@given(
    case=cases(odd=True, speeds=SEVERAL_SPEEDS), pair=st.sampled_from(PAIRS), random=st.randoms(use_true_random=False)
)
def test_the_order_of_rows_does_not_matter(case: Case, pair: str, random: Any) -> None:
    """No two jobs arrive together here, so the submission times alone say who came first."""
    order = list(range(len(case.workload)))
    random.shuffle(order)
    names = ("submission_time", "runtime", "requested_time", "requested_cores", "memory", "memory_bandwidth")
    columns = {name: getattr(case.workload, name)[order] for name in (*names, "fixed_duration", "job_id")}
    one = simulate(case.platform, case.workload, pair, contention="threshold", seed=5)
    other = simulate(case.platform, Workload.from_columns(**columns), pair, contention="threshold", seed=5)
    for column in one.jobs:
        assert np.array_equal(one.jobs[column], other.jobs[column]), column


@examples(22, 75)
@given(case=cases(odd=True, speeds=SEVERAL_SPEEDS), pair=st.sampled_from(PAIRS), factor=st.sampled_from([2.0, 4.0]))
def test_only_the_ratios_of_speeds_matter(case: Case, pair: str, factor: float) -> None:
    """Run times are at the platform's mean speed: a platform twice as fast in every core is no faster."""
    document = case.platform.to_dict()
    for kind in document["types"]["processor"].values():
        kind["clock_rate"] *= factor
    one = simulate(case.platform, case.workload, pair, contention="threshold", seed=5)
    other = simulate(Platform.from_dict(document), case.workload, pair, contention="threshold", seed=5)
    assert other.finish_time.tolist() == one.finish_time.tolist()
    assert list(other.jobs["allocated_resources"]) == list(one.jobs["allocated_resources"])


# What cannot run, and what is never started


@given(case=cases(odd=False), pair=st.sampled_from(PAIRS), data=st.data())
def test_impossible_jobs_are_rejected_and_disturb_nobody(case: Case, pair: str, data: st.DataObject) -> None:
    workload = case.workload
    giant = data.draw(st.integers(0, len(workload) - 1))
    cores = workload.requested_cores.copy()
    cores[giant] = case.platform.n_cpu_cores + 1
    result = simulate(case.platform, workload.replaced(requested_cores=cores), pair, check=True)
    others = np.arange(len(workload)) != giant
    assert result.state[giant] == FinalState.REJECTED
    assert np.isnan([result.starting_time[giant], result.finish_time[giant]]).all()
    assert result.jobs["allocated_resources"][giant] == ""
    assert np.isin(result.state[others], ENDED).all()
    assert result.metrics["jobs_rejected"] == 1
    assert result.metrics["jobs_completed"] == len(workload) - 1
    if others.any() and "random" not in pair:
        rest = [job for job, keep in zip(ref.jobs_of(result.workload), others, strict=True) if keep]
        outcome = ref.replay(case.own, rest, *pair.split("-"))
        assert result.finish_time[others] == pytest.approx([outcome.runs[job].finish for job in range(len(rest))])


@given(case=cases(odd=False))
@examples(10, 20)
def test_void_starts_nothing(case: Case) -> None:
    result = simulate(case.platform, case.workload, "void", check=True)
    assert np.isnan(result.starting_time).all()
    assert np.isnan(result.finish_time).all()
    assert len(result.segments) == 0


@examples(15, 50)
@given(case=cases(odd=False), pair=st.sampled_from(PAIRS), seed=st.integers(0, 9))
def test_the_same_seed_gives_the_same_result(case: Case, pair: str, seed: int) -> None:
    runs = [simulate(case.platform, case.workload, pair, contention="threshold", seed=seed) for _ in range(2)]
    for column in runs[0].jobs:
        assert runs[0].jobs[column].tolist() == runs[1].jobs[column].tolist(), column


@pytest.mark.ci
def test_random_rules_use_their_freedom() -> None:
    """Over many seeds every job is the first and every core is chosen about equally often."""
    platform = Platform.homogeneous(nodes=4, cores_per_node=1)
    workload = Workload.from_columns(submission_time=[0.0] * 5, runtime=[1.0] * 5, requested_cores=[4, 1, 4, 4, 4])
    first, cores = np.zeros(5), np.zeros(4)
    trials = 600
    for seed in range(trials):
        result = simulate(platform, workload, "random-random", seed=seed)
        first[int(result.starting_time.argmin())] += 1
        cores[cores_of_jobs(result)[1][0]] += 1
    for counts in (first, cores):
        expected = trials / len(counts)
        chi_square = float(((counts - expected) ** 2 / expected).sum())
        assert chi_square < 25, counts  # five times the mean of the statistic; chance exceeds it once in 10^4 times
