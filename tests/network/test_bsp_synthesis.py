"""BSP jobs made of the rigid jobs of a trace."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiers import examples

import hdsim
from hdsim.errors import ConfigError
from hdsim.platform.model import Platform
from hdsim.workload.batsim_json import write_batsim
from hdsim.workload.generators import lublin
from hdsim.workload.generators.bsp import with_supersteps
from hdsim.workload.load import load_workload
from hdsim.workload.model import Workload
from hdsim.workload.patterns import PATTERNS

PLATFORM = Platform.homogeneous(nodes=8, cores_per_node=1, bandwidth="2GBps", latency="0us")
KEPT = ("submission_time", "requested_cores", "requested_time", "walltime", "memory", "memory_bandwidth", "job_id")


def jobs(cores=(1, 2, 5, 8), runtime=(100.0, 60.0, 0.0, 0.002, 3600.0), **columns):
    pairs = [(c, r) for c in cores for r in runtime]
    return Workload.from_columns(
        submission_time=np.arange(len(pairs)) * 5000.0,
        requested_cores=[c for c, _ in pairs],
        runtime=[r for _, r in pairs],
        requested_time=7200.0,
        **columns,
    )


def made(workload):
    return [program for program in workload.program if program is not None]


@examples(40)
@given(
    st.one_of(st.integers(1, 60), st.tuples(st.integers(1, 9), st.integers(9, 200)).map(list)),
    st.sampled_from([0.0, 0.3, 0.999, [0.1, 0.6]]),
    st.sampled_from([*PATTERNS, ["ring", "halo_2d"], {"none": 1, "all_to_all": 3.5}]),
    st.sampled_from([0, 0.2, [0.0, 2.0]]),
    st.sampled_from([0, 0.01, 7.0]),
    st.integers(0, 5),
)
def test_the_cost_of_all_supersteps_is_the_run_time_of_the_trace(
    supersteps, communication, pattern, imbalance, latency, seed
):
    before = jobs()
    after = with_supersteps(
        before,
        PLATFORM,
        supersteps=supersteps,
        communication=communication,
        pattern=pattern,
        imbalance=imbalance,
        latency=latency,
        seed=seed,
    )
    for key in KEPT:
        assert getattr(after, key).tolist() == getattr(before, key).tolist()
    least, most = supersteps if isinstance(supersteps, list) else (supersteps, supersteps)
    for row, program in enumerate(after.program):
        if program is None:
            assert after.runtime[row] == before.runtime[row]
            continue
        assert program.tasks == before.requested_cores[row] > 1
        assert min(least, program.supersteps) <= program.supersteps <= most
        cost = sum(
            step.longest + step.gap * (step.pattern.h if step.pattern else 0.0) + step.latency for step in program.steps
        )
        assert cost == pytest.approx(before.runtime[row], rel=1e-9)
        assert after.runtime[row] == program.runtime
        assert all(work >= 0.0 for step in program.steps for work in step.work)


def test_settings_are_met_exactly_where_they_are_numbers():
    workload = with_supersteps(
        jobs(cores=[5], runtime=[100.0]), PLATFORM, supersteps=20, communication=0.3, pattern="ring", latency=0.5
    )
    (program,) = workload.program
    (step,) = set(program.steps)
    assert len(program.steps) == program.supersteps == 20
    assert step.latency == 0.5
    assert step.gap == 1 / 2e9
    assert step.pattern.h * step.gap == pytest.approx(0.3 * 100.0 / 20)
    assert step.work == pytest.approx((0.7 * 100.0 / 20 - 0.5,))


def test_jobs_without_supersteps_stay_as_they_are():
    columns = {"fixed_duration": [False, False, False, True, False], "runtime": [50.0, 0.0, 50.0, 50.0, 0.9]}
    before = Workload.from_columns(submission_time=range(5), requested_cores=[1, 4, 4, 4, 4], **columns)
    after = with_supersteps(before, PLATFORM, supersteps=5, latency=1.0)
    assert [program is not None for program in after.program] == [False, False, True, False, False]
    again = with_supersteps(after, PLATFORM, supersteps=7)
    assert [program and program.supersteps for program in again.program] == [None, None, 5, None, 7]


def test_there_are_no_more_barriers_than_fit():
    workload = with_supersteps(jobs(cores=[4], runtime=[10.0]), PLATFORM, supersteps=100, communication=0.5, latency=1)
    assert [program.supersteps for program in made(workload)] == [5]


@pytest.mark.parametrize("spread", [0.1, 0.5, 1.0])
def test_tasks_differ_by_the_coefficient_of_variation(spread):
    platform = Platform.homogeneous(nodes=1, cores_per_node=20_000, bandwidth="1GBps")
    workload = with_supersteps(jobs(cores=[20_000], runtime=[1e3]), platform, supersteps=1, imbalance=spread)
    work = np.array(made(workload)[0].steps[0].work)
    assert work.std() / work.mean() == pytest.approx(spread, rel=0.05)
    assert work.max() == pytest.approx(800.0)


def test_patterns_and_numbers_come_as_often_as_asked_for():
    workload = with_supersteps(
        jobs(cores=[4] * 3000, runtime=[500.0]),
        PLATFORM,
        supersteps=[1, 99],
        communication=[0.2, 0.4],
        pattern={"ring": 3, "none": 1},
    )
    profiles = list(workload.profiles.values())
    rings = [profile for profile in profiles if profile["pattern"] == "ring"]
    assert len(rings) / len(profiles) == pytest.approx(0.75, abs=0.03)
    supersteps = np.array([profile["supersteps"] for profile in profiles])
    assert supersteps.min() == 1
    assert supersteps.max() == 99
    assert np.mean(supersteps <= 9) == pytest.approx(0.5, abs=0.03)  # log-uniform
    shares = [profile["com"] * profile["g"] * profile["supersteps"] / 500.0 for profile in rings]
    assert min(shares) >= 0.2
    assert max(shares) <= 0.4
    assert np.mean(shares) == pytest.approx(0.3, abs=0.01)


def test_the_same_seed_gives_the_same_bytes(tmp_path):
    before = lublin.generate(60, seed=3, cores=8)
    options = {"supersteps": [2, 9], "communication": [0, 0.5], "pattern": list(PATTERNS), "imbalance": 0.4}
    texts = []
    for number, seed in enumerate((1, 1, 2)):
        path = tmp_path / f"{number}.json"
        write_batsim(with_supersteps(before, PLATFORM, **options, seed=seed), path, PLATFORM)
        texts.append(path.read_bytes())
    assert texts[0] == texts[1] != texts[2]


def test_a_job_draws_the_same_in_every_part_of_a_trace():
    before = lublin.generate(60, seed=3, cores=8)
    options = {"supersteps": [2, 9], "imbalance": 0.4, "seed": 5}
    whole = with_supersteps(before, PLATFORM, **options)
    part = with_supersteps(before[20:40], PLATFORM, **options)
    assert part.profiles == {name: whole.profiles[name] for name in part.profiles}
    assert list(whole[20:40].profiles) == list(part.profiles)


def test_a_file_of_them_reads_back_the_same(tmp_path):
    path = tmp_path / "bsp.json"
    before = with_supersteps(
        jobs(memory=3.0, memory_bandwidth=8.0, return_code=1), PLATFORM, supersteps=3, imbalance=0.4, latency=1e-3
    )
    write_batsim(before, path, PLATFORM)
    after = load_workload(path, PLATFORM)
    for key in (*KEPT, "runtime", "return_code"):
        assert getattr(after, key).tolist() == getattr(before, key).tolist()
    for one, other in zip(made(before), made(after), strict=True):
        assert [step.work for step in one.steps] == [step.work for step in other.steps]
        assert [step.pattern.h for step in one.steps] == [step.pattern.h for step in other.steps]
    assert json.loads(path.read_text())["profiles"]["bsp_5"]["type"] == "bsp"


@pytest.mark.parametrize("network", ["none", "fluid"])
@pytest.mark.parametrize("pattern", [name for name in PATTERNS if name != "none"])
def test_alone_with_one_task_a_node_a_job_runs_as_long_as_in_the_trace(network, pattern):
    before = jobs()
    after = with_supersteps(before, PLATFORM, supersteps=6, pattern=pattern, imbalance=0.5, latency=0.01)
    result = hdsim.simulate(PLATFORM, after, "fcfs", network=network)
    assert result.jobs["execution_time"] == pytest.approx(before.runtime, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("supersteps", 0, "a whole number of at least 1 and at most 1e+06"),
        ("supersteps", 2.5, "a whole number"),
        ("supersteps", [9, 2], "the smaller one first"),
        ("supersteps", "many", "a whole number"),
        ("supersteps", True, "a whole number"),
        ("supersteps", [1, 2, 3], "two of them"),
        ("communication", 1.0, "at least 0 and below 1"),
        ("communication", -0.1, "at least 0 and below 1"),
        ("imbalance", math.nan, "at least 0 and at most 2"),
        ("latency", -1, "a finite number of 0 s or more"),
        ("latency", math.inf, "a finite number"),
        ("bandwidth", 0, "GB/s above 0"),
        ("pattern", "rings", r"names out of none, .*got 'rings' \(did you mean 'ring'\?\)"),
        ("pattern", {"ring": 0}, "weights above 0"),
        ("pattern", [], "a name, a list of names"),
    ],
)
def test_an_impossible_setting_is_refused(key, value, expected):
    with pytest.raises(ConfigError, match=rf"^workload.bsp.{key}: expected .*{expected}".replace("+", r"\+")):
        with_supersteps(jobs(), PLATFORM, **{"supersteps": 3, key: value})


def test_a_platform_without_a_network_needs_a_bandwidth():
    platform = Platform.homogeneous(nodes=8, cores_per_node=1)
    with pytest.raises(ConfigError, match=r"workload.bsp.bandwidth: expected GB/s"):
        with_supersteps(jobs(), platform, supersteps=3)
    workload = with_supersteps(jobs(), platform, supersteps=3, bandwidth=4.0)
    assert made(workload)[0].steps[0].gap == 0.25e-9
