"""Programs of jobs: what profiles become, and what becomes of programs when workloads are cut, kept and written."""

from __future__ import annotations

import json
import math
import pickle
from pathlib import Path
from typing import Any

import bsp_reference
import numpy as np
import pytest
from test_execution import make_workload

from hdsim import Platform, Workload, simulate
from hdsim.errors import WorkloadError
from hdsim.results.run_directory.inputs import digest
from hdsim.workload.batsim_json import to_batsim
from hdsim.workload.load import load_workload
from hdsim.workload.programs import MOST_STEPS, Compiler, StepType, parts_of

PLATFORM = Platform.homogeneous(nodes=4, cores_per_node=2, gflops_per_core=2.0, bandwidth="1GBps")
BSP = {"type": "bsp", "supersteps": 3, "cpu": 4e9, "com": 1e6, "pattern": "ring", "g": 1e-9, "l": 0.5}
PROFILES: dict[str, dict[str, Any]] = {
    "bsp": BSP,
    "rows": {"type": "bsp", "supersteps": 2, "cpu": [[2e9, 4e9], [6e9, 0]]},
    "pause": {"type": "delay", "delay": 7.5},
    "send": {"type": "parallel", "com": [0, 1e9, 0, 0]},
    "work": {"type": "parallel", "cpu": [2e9, 4e9]},
    "even": {"type": "parallel_homogeneous", "cpu": 2e9},
    "mixed": {"type": "composed", "repeat": 2, "seq": ["even", "pause", "rows"]},
    "outer": {"type": "sequence", "seq": ["mixed", "send", "mixed"]},
}


def compile_one(profile: dict[str, Any], tasks: int = 2, **others: dict[str, Any]) -> Any:
    return Compiler({"p": profile, **others}, 2.0, "w.json").program("p", tasks)


def test_steps_of_every_type() -> None:
    compiler = Compiler(PROFILES, 2.0, "w.json")
    bsp = compiler.program("bsp", 2)
    assert [step.kind for step in bsp.steps] == [StepType.SUPERSTEP] * 3
    assert (bsp.steps[0].work, bsp.steps[0].gap, bsp.steps[0].latency) == ((2.0,), 1e-9, 0.5)
    assert bsp.steps[0].pattern.h == 1e6
    assert (bsp.runtime, bsp.supersteps) == (6.0, 3)
    assert [step.work for step in compiler.program("rows", 2).steps] == [(1.0, 2.0), (3.0, 0.0)]
    assert [(step.kind, step.work) for step in compiler.program("pause", 2).steps] == [(StepType.DELAY, (7.5,))]
    [send] = compiler.program("send", 2).steps
    assert (send.kind, send.work, bsp_reference.matrix(send.pattern).tolist()) == (
        StepType.PARALLEL_TASK,
        (0.0,),
        [[0, 1e9], [0, 0]],
    )
    [work] = compiler.program("work", 2).steps
    assert (work.work, work.pattern) == ((1.0, 2.0), None)
    mixed = compiler.program("mixed", 2)
    assert [step.longest for step in mixed.steps] == [1.0, 7.5, 2.0, 3.0] * 2
    assert (mixed.runtime, mixed.supersteps) == (27.0, 4)
    assert compiler.program("outer", 2).runtime == 54.0


def test_equal_requests_give_the_same_objects() -> None:
    compiler = Compiler(PROFILES, 2.0, "w.json")
    bsp = compiler.program("bsp", 2)
    assert compiler.program("bsp", 2) is bsp
    assert compiler.program("bsp", 4) is not bsp
    assert len(set(bsp.steps)) == 1
    mixed = compiler.program("mixed", 2)
    assert compiler.program("outer", 2).steps[: len(mixed.steps)] == mixed.steps


def test_totals_are_divided_as_batsim_divides_them() -> None:
    total = compile_one({"type": "parallel_homogeneous_total", "cpu": 8e9, "com": 4e6}, tasks=4).steps[0]
    assert total.work == (1.0,)
    assert bsp_reference.matrix(total.pattern)[0].tolist() == [0, 1e6, 1e6, 1e6]
    each = compile_one({"type": "parallel_homogeneous", "cpu": 8e9, "com": 4e6}, tasks=4).steps[0]
    assert each.work == (4.0,)
    assert bsp_reference.matrix(each.pattern)[0].tolist() == [0, 4e6, 4e6, 4e6]


@pytest.mark.parametrize(
    "profile",
    [
        {"type": "parallel_homogeneous", "cpu": 1, "com": 0},
        {"type": "parallel_homogeneous_total", "cpu": 1},
        {"type": "parallel", "cpu": [3, 3], "com": [0, 0, 0, 0]},
        {"type": "composed", "seq": ["q"]},
    ],
)
def test_a_job_that_merely_computes_has_no_program(profile: dict[str, Any]) -> None:
    assert compile_one(profile, q={"type": "parallel_homogeneous", "cpu": 1}).is_rigid
    profiles = {"p": profile, "q": {"type": "parallel_homogeneous", "cpu": 1}}
    workload = make_workload([{"id": 0, "subtime": 0, "res": 2, "profile": "p"}], profiles, PLATFORM)
    assert workload.program.tolist() == [None]
    assert not workload.has_programs


@pytest.mark.parametrize(
    "profile", [BSP, {"type": "parallel", "cpu": [1, 2]}, {"type": "parallel_homogeneous", "cpu": 1, "com": 1}]
)
def test_others_have_one(profile: dict[str, Any]) -> None:
    assert not compile_one(profile).is_rigid


@pytest.mark.parametrize(
    ("profile", "message"),
    [
        (
            {"type": "bsp", "supersteps": 0},
            "w.json: profiles.p.supersteps: expected a whole number of at least 1, got 0",
        ),
        (
            {"type": "bsp", "superstep": 9},
            "w.json: profiles.p.superstep: unknown key (did you mean 'supersteps'?); allowed: type",
        ),
        ({"type": "bsp", "supersteps": 2.0}, "w.json: profiles.p.supersteps: expected a whole number"),
        (
            {"type": "bsp", "supersteps": MOST_STEPS + 1},
            "w.json: profiles.p.supersteps: expected at most 1,000,000 supersteps, got 1,000,001",
        ),
        ({"type": "bsp", "cpu": [1, 2, 3]}, "w.json: profiles.p.cpu: expected 2 numbers, one per core of the job"),
        ({"type": "bsp", "cpu": [[1, -1]]}, "w.json: profiles.p.cpu[0][1]: expected a finite number of at least 0"),
        ({"type": "bsp", "cpu": [1, [2]]}, "w.json: profiles.p.cpu[1]: expected a finite number"),
        ({"type": "bsp", "com": "1GB"}, 'w.json: profiles.p.com: expected a finite number of at least 0, got "1GB"'),
        ({"type": "bsp", "pattern": [[0, 1]]}, "w.json: profiles.p.pattern: expected one of none, h_relation"),
        ({"type": "bsp", "pattern": [0, 1, -2, 0]}, "w.json: profiles.p.pattern: expected finite numbers of 0 bytes"),
        ({"type": "bsp", "g": math.inf}, "w.json: profiles.p.g: expected a finite number of at least 0, got Infinity"),
        ({"type": "composed"}, "w.json: profiles.p.seq: expected a list of names of profiles, got nothing"),
        (
            {"type": "composed", "seq": ["puase"]},
            "w.json: profiles.p.seq[0]: expected the name of a profile in 'profiles', got \"puase\" (did you",
        ),
        ({"type": "composed", "seq": ["pause"], "repeat": 0}, "w.json: profiles.p.repeat: expected a whole number"),
        (
            {"type": "composed", "seq": ["bsp"], "repeat": 400_000},
            "w.json: profiles.p.repeat: expected at most 1,000,000 steps, got 1,200,000",
        ),
        ({"type": "composed", "seq": ["pause", "bad"]}, "w.json: profiles.bad.cpu: expected 2 numbers"),
        ({"type": "composed", "seq": ["q"]}, "w.json: profiles.p.seq: profile 'p' contains itself"),
    ],
)
def test_faults(profile: dict[str, Any], message: str) -> None:
    more = {"bad": {"type": "parallel", "cpu": [1]}, "q": {"type": "composed", "seq": ["p"]}}
    with pytest.raises(WorkloadError) as caught:
        compile_one(profile, **PROFILES, **more)
    assert str(caught.value).startswith(message)


def test_the_type_of_a_part_is_checked() -> None:
    with pytest.raises(WorkloadError, match=r"profiles.q.type: profile type \"bps\" is not supported \(did you mean"):
        compile_one({"type": "composed", "seq": ["q"]}, q={"type": "bps"})


def some_jobs() -> Workload:
    names = ["even", "bsp", "outer", "pause"]
    jobs = [{"id": row, "subtime": row, "res": 2, "profile": name} for row, name in enumerate(names)]
    return make_workload(jobs, PROFILES, PLATFORM)


def test_programs_survive_cutting_and_pickling() -> None:
    workload = some_jobs()
    assert [program is not None for program in workload.program] == [False, True, True, False]
    assert workload[1:3].program.tolist() == workload.program[1:3].tolist()
    assert workload.select([False, False, True, True]).program[0] is workload.program[2]
    copy = pickle.loads(pickle.dumps(workload))
    assert copy.program[2].steps[0].work == workload.program[2].steps[0].work
    for one in (workload, copy):
        result = simulate(PLATFORM, one, network="fluid")
        assert result.finish_time.tobytes() == simulate(PLATFORM, workload, network="fluid").finish_time.tobytes()
    assert digest(copy) == digest(workload)


def test_a_cut_keeps_all_that_its_profiles_are_composed_of() -> None:
    cut = some_jobs()[2:3]
    assert list(cut.profiles) == ["rows", "pause", "send", "even", "mixed", "outer"]
    content = to_batsim(cut)
    back = make_workload(content["jobs"], content["profiles"], PLATFORM)
    assert digest(back) == digest(cut)
    assert parts_of(["x"], {"x": {"type": "composed", "seq": ["x", "gone"]}}) == {
        "x": {"type": "composed", "seq": ["x", "gone"]}
    }


def test_digests_tell_programs_apart() -> None:
    first = [{"id": 0, "subtime": 0, "res": 2, "profile": "p"}]
    found = {
        digest(make_workload(first, {"p": {**BSP, **change}}, PLATFORM))
        for change in ({}, {"com": 2e6}, {"pattern": "all_to_all"}, {"l": 1.0}, {"g": 0}, {"pattern": [0, 1e6, 0, 0]})
    }
    assert len(found) == 6


def test_what_is_read_is_written_again(tmp_path: Path) -> None:
    content = {
        "nb_res": 8,
        "jobs": [{"id": n, "subtime": n, "res": 2, "profile": name} for n, name in enumerate(PROFILES)],
        "profiles": PROFILES,
    }
    path = tmp_path / "w.json"
    path.write_text(json.dumps(content))
    workload = load_workload(path, PLATFORM)
    assert to_batsim(workload, PLATFORM) == content
    assert workload.requested_time.tolist() == workload.runtime.tolist()
    assert workload.runtime[0] == 6.0


def test_settings_that_change_demands_are_written_with_the_program(tmp_path: Path) -> None:
    path = tmp_path / "w.json"
    jobs = [{"id": n, "subtime": n, "res": 2, "profile": "bsp"} for n in range(3)]
    path.write_text(json.dumps({"jobs": jobs, "profiles": PROFILES}))
    workload = load_workload(path, PLATFORM, memory_bandwidth=3.5)
    content = to_batsim(workload, PLATFORM)
    assert [job["profile"] for job in content["jobs"]] == ["bsp_2"] * 3
    assert content["profiles"]["bsp_2"] == {**BSP, "req_time": 6, "mem": 0, "mem_bw": 3.5, "ret": 0}
    back = make_workload(content["jobs"], content["profiles"], PLATFORM)
    assert digest(back) == digest(workload)


@pytest.mark.parametrize("runtime", ["requested", "hdeeprm"])
def test_jobs_with_programs_keep_their_run_times(tmp_path: Path, runtime: str) -> None:
    profiles = {"bsp": {**BSP, "req_time": 100}, "even": {**PROFILES["even"], "req_time": 100}}
    jobs = [{"id": n, "subtime": 0, "res": 2, "profile": name} for n, name in enumerate(profiles)]
    path = tmp_path / "w.json"
    path.write_text(json.dumps({"jobs": jobs, "profiles": profiles}))
    workload = load_workload(path, PLATFORM, runtime=runtime)
    assert workload.runtime[0] == 6.0
    assert workload.runtime[1] != 1.0
    assert np.isfinite(simulate(PLATFORM, workload).finish_time).all()


def test_a_program_without_its_profile_cannot_be_written() -> None:
    workload = some_jobs()
    bare = Workload.from_columns(
        submission_time=[0], runtime=[6], requested_cores=[2], program=[workload.program[1]], reference_gflops=2.0
    )
    with pytest.raises(WorkloadError, match="job 0: expected the profile of its program"):
        to_batsim(bare)
