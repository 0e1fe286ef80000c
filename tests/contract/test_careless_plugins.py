"""What a plug-in of a user's own returns: where it cannot be meant there is one clear error, not another result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hdsim
from hdsim.errors import HdsimError
from hdsim.workload.load import load_workload

SLEEPING = hdsim.Platform.from_dict(
    {
        "clusters": [{"id": "main", "nodes": [{"type": "thin", "number": 4}]}],
        "types": {
            "network": {},
            "node": {
                "thin": {
                    "processors": [{"type": "quad", "number": 1}],
                    "states": {"off": {"watts": 6}, "booting": {"watts": 120, "seconds": 8}},
                }
            },
            "processor": {"quad": {"cores": 4, "clock_rate": 2.5, "dpflops_per_cycle": 16, "power": 60, "mem_bw": 8}},
        },
    }
)
JOBS = hdsim.Workload.from_columns(
    submission_time=[0, 0, 20], runtime=[10, 9, 8], requested_cores=[2, 6, 4], memory_bandwidth=[1.0, 4.0, 4.0]
)
KINDS = {
    "contention": (
        "from hdsim.contention import CoreContention\nclass Own(CoreContention):\n"
        "    def core_speeds(self, processors, first, demands):\n        return {}\n"
    ),
    "failures": (
        "from hdsim.failures import Failures\nclass Own(Failures):\n    def outages(self, rng):\n        return {}\n"
    ),
    "timeout": (
        "from hdsim.power import PowerManagement\nclass Own(PowerManagement):\n"
        "    def timeout(self, nodes, cluster):\n        return {}\n"
    ),
    "spare": (
        "from hdsim.power import PowerManagement\nclass Own(PowerManagement):\n"
        "    def spare(self, cluster):\n        return {}\n"
    ),
    "generator": (
        "import hdsim\nfrom hdsim.workload.generators import Generator\nclass Own(Generator):\n"
        "    def generate(self, platform, seed):\n        return {}\n"
    ),
    "observation": (
        "from hdsim.decisions import Array, Observer\nclass Own(Observer):\n    def arrays(self, platform):\n"
        "        return Array((2,))\n    def begin(self, cluster, wait_queue): pass\n    def observe(self):\n"
        "        return {}\n"
    ),
    "objective": (
        "from hdsim.decisions.objectives import Rate\nclass Own(Rate):\n    def value(self):\n        return {}\n"
    ),
}
KINDS["scalar"] = KINDS["observation"].replace("(2,)", "()")


def used(kind: str, body: str, tmp_path: Path, jobs: hdsim.Workload = JOBS) -> None:
    """Replays, or plays an episode, with a plug-in of a kind whose method returns an expression."""
    file = tmp_path / "own.py"
    file.write_text("import math\nimport numpy as np\n" + KINDS[kind].format(body))
    group = {"timeout": "power", "spare": "power", "scalar": "observation"}.get(kind, kind)
    if kind == "generator":
        load_workload({"model": str(file)}, SLEEPING)
    elif group in ("observation", "objective"):
        from hdsim.envs.scheduling import SchedulingEnv

        env = SchedulingEnv(SLEEPING, jobs, **{group: str(file)})
        _, info = env.reset(seed=1)
        env.step(int(info["action_mask"].argmax()))
    else:
        hdsim.simulate(SLEEPING, jobs, "easy", **{group: {"path": str(file)}})


@pytest.mark.parametrize(
    ("kind", "body", "message"),
    [
        ("contention", "np.full(len(demands), np.inf)", "speeds above 0 from Own, got inf"),
        ("contention", "np.where(demands > 2, np.nan, 1.0)", "speeds above 0 from Own, got nan"),
        ("contention", "np.ones(1)", "speeds from Own, got 1 numbers"),
        ("contention", "np.ones(len(demands) + 1)", "speeds from Own, got"),
        ("contention", "'fast'", "speeds from Own, got 'fast'"),
        ("failures", "None", "4 iterators from Own.outages"),
        ("failures", "[iter([(5.0, 6.0)])]", "4 iterators from Own.outages, one of its own for each node, got 1"),
        ("failures", "[iter([(5.0, 6.0)])] * 4", "got 1 for 4 nodes"),
        ("failures", "[iter([(5.0, 6.0)]) for _ in range(5)]", "got 5"),
        ("failures", "[iter([(5.0, 6.0, 7.0)]) for _ in range(4)]", "outages (begin, end) of node 0"),
        ("timeout", "np.ones(1)", "a time-out, or one for each of"),
        ("timeout", "{}", "from Own, got numbers of shape (1,)"),
        ("spare", "None", "a number of nodes and a date in seconds from Own.spare"),
        ("spare", "-1, 5.0", "got (-1, 5.0)"),
        ("spare", "2, math.nan", "got (2, nan)"),
        ("spare", "1.5, math.inf", "got (1.5, inf)"),
        ("generator", "([1, 2], 'x')", "got tuple"),
        ("observation", "np.array([np.nan, 0.5])", "finite numbers of shape (2,) from Own"),
        ("observation", "np.zeros(3)", "finite numbers of shape (2,) from Own"),
        ("observation", "None", "finite numbers of shape (2,) from Own, got None"),
        ("scalar", "'many'", "finite numbers of shape () from Own, got 'many'"),
        ("objective", "math.nan", "a finite number as reward from Own, got nan"),
        ("objective", "np.ones(2)", "a finite number as reward from Own"),
    ],
)
def test_what_cannot_be_meant_is_refused(kind: str, body: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(HdsimError) as error:
        used(kind, body, tmp_path)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("contention", "0.5"),
        ("contention", "[1] * len(demands)"),
        ("failures", "[]"),
        ("timeout", "[5] * len(nodes)"),
        ("spare", "np.int64(1), np.float64(30)"),
        ("observation", "[0, 1]"),
        ("objective", "np.float32(1)"),
    ],
)
def test_what_can_be_meant_is_taken(kind: str, body: str, tmp_path: Path) -> None:
    used(kind, body, tmp_path)


def test_contention_of_jobs_with_programs_is_checked_likewise(tmp_path: Path) -> None:
    steps = {"type": "bsp", "supersteps": 2, "cpu": 4e10, "mem_bw": 4}
    document = {"jobs": [{"id": 0, "subtime": 0, "res": 4, "profile": "p"}], "profiles": {"p": steps}}
    (tmp_path / "jobs.json").write_text(json.dumps(document))
    jobs = load_workload(tmp_path / "jobs.json", SLEEPING)
    for body in ("np.full(len(demands), np.nan)", "np.full(len(demands), np.inf)"):
        with pytest.raises(HdsimError, match="speeds above 0 from Own"):
            used("contention", body, tmp_path, jobs)


@pytest.mark.parametrize("seconds", ["math.nan", "math.inf", "-1.0", "None", "'x'"])
def test_seconds_of_messages_are_numbers(seconds: str, tmp_path: Path) -> None:
    """A job whose messages took NaN or for ever did not end, and no other job was said to be unfinished."""
    (tmp_path / "own.py").write_text(
        "import math\nfrom hdsim.network import fluid\nclass Own(fluid.Fluid):\n    def settle(self, now):\n"
        f"        return [(key, {seconds}) for key, _ in super().settle(now)]\n"
    )
    steps = {"type": "bsp", "supersteps": 2, "cpu": 4e10, "com": 1e6}
    document = {"jobs": [{"id": 0, "subtime": 0, "res": 8, "profile": "p"}], "profiles": {"p": steps}}
    (tmp_path / "jobs.json").write_text(json.dumps(document))
    platform = hdsim.Platform.homogeneous(nodes=4, cores_per_node=4, bandwidth="1GBps", latency="1ms")
    jobs = load_workload(tmp_path / "jobs.json", platform)
    with pytest.raises(HdsimError, match=r"seconds of at least 0 from Own\.settle"):
        hdsim.simulate(platform, jobs, "easy", network={"path": str(tmp_path / "own.py")})


@pytest.mark.parametrize("keyword", ["async def", "def"])
@pytest.mark.parametrize("form", ["class", "object", "function"])
def test_a_body_that_does_not_run_is_refused(form: str, keyword: str, tmp_path: Path) -> None:
    """A coroutine or a generator starts no job, which looked like a scheduler that starts none."""
    body = f"{keyword} decide({{}}cluster):\n    {{}}{'pass' if keyword != 'def' else 'yield cluster.now'}\n"
    if form == "function":
        source = body.format("", "")
    else:
        source = "import hdsim\nclass Own(hdsim.Agent):\n    " + body.format("self, ", "    ")
    (tmp_path / "own.py").write_text(source)
    found: dict[str, Any] = {}
    exec(source, found)
    agent: Any = {"path": str(tmp_path / "own.py")} if form != "object" else found["Own"]()
    with pytest.raises(HdsimError, match="whose body does not run when it is called"):
        hdsim.simulate(SLEEPING, JOBS, agent)


def test_an_observation_of_one_s_own_keeps_its_values(tmp_path: Path) -> None:
    from hdsim.envs.scheduling import SchedulingEnv

    source = KINDS["observation"].replace("pass", "self.kept = [np.zeros(2)]").format("self.kept[0]")
    (tmp_path / "own.py").write_text("import numpy as np\n" + source)
    env = SchedulingEnv(SLEEPING, JOBS, observation=str(tmp_path / "own.py"))
    first, _ = env.reset(seed=1)
    env.unwrapped.problem.observer.kept[0] += 0.5
    assert first.tolist() == [0.0, 0.0] and first.dtype == np.float32


def test_a_job_that_waits_for_its_nodes_has_cores() -> None:
    seen = []

    class Asking(hdsim.Agent):
        def decide(self, cluster: Any) -> None:
            for job in list(cluster.queue):
                if cluster.fits(job):
                    cluster.start(job)
            seen.extend((cluster.now, job, cluster.core_ids(job)) for job in cluster.starting)
            if cluster.now < 20:
                with pytest.raises(HdsimError, match="job 2 cannot be asked for its cores"):
                    cluster.allocation(2)

    power = {"_target_": "hdsim.power.PowerManagement", "suspend_time": 5}
    result = hdsim.simulate(SLEEPING, JOBS, Asking(), power=power)
    assert [(now, job) for now, job, _ in seen] == [(20.0, 2)]
    assert result.segments.cores[-4:].tolist() == seen[0][2]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("cluster.next_instant(now)", "cluster.next_instant(math.nan)", "expected an instant from 0 s on, got nan"),
        ("cluster.next_instant(now)", "cluster.next_instant(50.0 - now)", "expected an instant from"),
        ("(end, cluster.end, job, ", "(end, print); self.at(begin, cluster.end, job + 7, ", "expected a running job"),
        ("FinalState.COMPLETED_SUCCESSFULLY", "FinalState.QUEUED", "expected one of COMPLETED_SUCCESSFULLY"),
        ("self.at(end, cluster.end,", "print(end, cluster.end,", "jobs were still running at the end"),
        ("return True", "return None", "jobs had not been submitted at the end"),
    ],
)
def test_what_a_backend_must_not_do_is_told(old: str, new: str, message: str, hdsim: Any, tmp_path: Path) -> None:
    source = (Path(__file__).parents[2] / "examples/plugins/slow_cloud.py").read_text()
    assert old in source
    (tmp_path / "own.py").write_text(source.replace(old, new).replace("import heapq", "import heapq\nimport math"))
    arguments = "platform=homogeneous_256", "workload.jobs=12", "backend.refused=0", "hydra.run.dir=run"
    run = hdsim("run", "backend.path=own.py", *arguments)
    assert message in run.stderr and "Traceback" not in run.stderr
    assert run.returncode == (0 if "at the end" in message else 1)
