"""What holds on every backend: the simulation, Batsim (hdsim's own, over a real socket) and an asynchronous fake."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asynchronous import Asynchronous, Growing
from batsim_peer import behind_batsim
from conftest import require_component
from tiers import pairs

import hdsim
from hdsim.backends.base import Backend, Capabilities, make_backend
from hdsim.backends.batsim.backend import Batsim
from hdsim.backends.kwok.backend import Kwok
from hdsim.backends.sim import Sim
from hdsim.backends.slurm.backend import Slurm
from hdsim.cluster.state import Cluster, FinalState
from hdsim.decisions import DecisionProblem
from hdsim.errors import ConfigError
from hdsim.results.result import Result
from hdsim.scheduling.agent import Agent, make_agent

TYPED = hdsim.load_platform("platforms/teaching.json")
ALIKE = hdsim.Platform.homogeneous(nodes=4, cores_per_node=8, gflops_per_core=1.0)

CLASSIC = [
    "fcfs",
    "lcfs",
    "sjf",
    "ljf",
    "sqf",
    "saf-pack",
    "f1",
    "low_mem-high_mem",
    "wfp3-spread",
    "unicef",
    "shortest-high_cores",
    "random-random",
    "easy",
    "easy-sjf",
    "easy-sjbf",
    "easy-wfp3-low_power",
    "conservative",
    "conservative-saf",
]
PROBLEMS: list[dict[str, Any]] = [
    {"action": "policy_pair", "observation": "minimal"},
    {"action": "policy_pair", "observation": "normal"},
    {"action": "job", "observation": "jobs", "queue_size": 8, "void": True},
    {"action": "job", "observation": "jobs_shadow", "queue_size": 8, "commit": True, "backfill": "easy"},
    {"action": "job", "observation": "small", "commit": True, "backfill": "rlscheduler"},
    {"action": "node", "observation": "nodes", "skip_blocked": True},
    {"action": "node", "observation": "graph", "void": True},
]
AGENTS: dict[str, Callable[[], Agent]] = {name: lambda name=name: make_agent(name) for name in CLASSIC}
AGENTS |= {
    "-".join(map(str, settings.values())): lambda settings=settings: RandomActions(**settings) for settings in PROBLEMS
}


class RandomActions(Agent):
    """Draws one of the actions that the mask allows, after it has looked."""

    def __init__(self, **settings: Any) -> None:
        self._problem = DecisionProblem(**settings)
        self.core_policy = self._problem.core_policy

    def begin(self, cluster: Cluster) -> None:
        self._rng = np.random.default_rng(3)
        self._problem.begin(cluster)

    def decide(self, cluster: Cluster) -> None:
        while self._problem.pending():
            seen: Any = self._problem.observe()
            for array in seen.values() if isinstance(seen, dict) else [seen]:
                assert np.isfinite(array).all()
            self._problem.act(int(self._rng.choice(self._problem.mask().nonzero()[0])))


class Watched(Agent):
    """Checks at every pass that what an agent is shown fits together."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self.core_policy, self.fixed_policy, self.core_policies = (
            agent.core_policy,
            agent.fixed_policy,
            agent.core_policies,
        )

    def begin(self, cluster: Cluster) -> None:
        self._now, self._holding, self.instants = 0.0, set[int](), 0
        self._agent.begin(cluster)

    def decide(self, cluster: Cluster) -> None:
        assert cluster.now >= self._now
        assert not cluster.started and not cluster.killed
        assert len(set(cluster.submitted)) == len(cluster.submitted)
        assert set(cluster.submitted) <= set(cluster.queue)
        assert list(cluster.queue) == sorted(cluster.queue)
        # Jobs hold cores from the pass that starts them to the instant at which the agent is told that they do not.
        assert set(cluster.ended) == self._holding - set(cluster.running)
        assert set(cluster.running) <= self._holding
        self._agent.decide(cluster)
        self._now, self._holding = cluster.now, set(cluster.running)
        self.instants += 1


def made_up(seed: int, count: int = 45) -> hdsim.Workload:
    rng = np.random.default_rng(seed)
    runtime = rng.integers(1, 300, count).astype(float)
    return hdsim.Workload.from_columns(
        submission_time=np.sort(rng.integers(0, 1500, count)),
        runtime=runtime,
        requested_time=np.round(runtime * rng.uniform(1, 3, count)),
        requested_cores=rng.integers(1, 9, count),
        memory=rng.choice([0, 100, 200], count),
        memory_bandwidth=rng.choice([4, 8, 12], count),
    )


def play(name: str, platform: hdsim.Platform, agent: Agent, jobs: hdsim.Workload, folder: Path) -> Result:
    """What an agent makes of a workload on a backend, every invariant checked at every instant."""
    options: dict[str, Any] = {"seed": 1, "check": True}
    if name == "batsim":
        return behind_batsim(platform, agent, jobs, folder, **options)
    backends: dict[str, Callable[[], Backend]] = {
        "sim": lambda: make_backend("sim"),
        "asynchronous": lambda: Asynchronous(seed=5),
        "growing": lambda: Growing(seed=5, later=jobs.rows(10)),
    }
    return backends[name]().run(platform, jobs[:10] if name == "growing" else jobs, agent, folder, **options)[0]


def outcome(result: Result) -> list[bytes]:
    jobs = result.jobs
    columns = [jobs[name].tobytes() for name in ("starting_time", "finish_time")]
    return [*columns, *("\n".join(jobs[name]).encode() for name in ("final_state", "allocated_resources"))]


@pytest.mark.parametrize(("name", "backend"), pairs(AGENTS, ["sim", "batsim", "asynchronous", "growing"]))
def test_the_contract(backend: str, name: str, tmp_path: Path) -> None:
    """No core held twice, no job lost, order of submission kept, refused starts tried again, same seed same bytes."""
    if backend == "batsim":
        require_component("pyzmq")
    jobs, outcomes = made_up(4), []
    needs_nodes = name.startswith(("job-", "node-", "policy_pair"))
    for attempt in range(2):
        for platform in [TYPED] if needs_nodes else [TYPED, ALIKE]:
            folder = tmp_path / f"{attempt}{platform.name}"
            folder.mkdir()
            agent = Watched(AGENTS[name]())
            result = play(backend, platform, agent, jobs, folder)
            outcomes.append(outcome(result))
            assert agent.instants > 45
            assert len(result.workload) == len(jobs)
            assert result.state.tolist() == [FinalState.COMPLETED_SUCCESSFULLY] * len(jobs)
            assert (result.starting_time >= result.workload.submission_time).all()
    assert outcomes[: len(outcomes) // 2] == outcomes[len(outcomes) // 2 :]


@pytest.mark.parametrize("backend", ["sim", "asynchronous", "growing"])
@pytest.mark.parametrize("name", ["fcfs", "saf-pack", "easy-sjf", "conservative", "least_allocated", "node-graph-True"])
def test_the_contract_on_quantities(backend: str, name: str, tmp_path: Path) -> None:
    """No job lost, no start before submission, no node overcommitted at any instant, same seed same bytes."""
    platform, jobs, outcomes = TYPED.of_kind("quantities"), made_up(4), []
    make = AGENTS.get(name) or (lambda: make_agent(name))
    for attempt in "ab":
        (tmp_path / attempt).mkdir()
        result = play(backend, platform, Watched(make()), jobs, tmp_path / attempt)
        outcomes.append(outcome(result))
        assert result.state.tolist() == [FinalState.COMPLETED_SUCCESSFULLY] * len(jobs)
        assert (result.starting_time >= result.workload.submission_time).all()
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("agent", ["fcfs", "easy", "conservative"])
def test_refused_starts_are_tried_again_and_recorded(agent: str, tmp_path: Path) -> None:
    kept: list[Cluster] = []

    class Keeping(Watched):
        def begin(self, cluster: Cluster) -> None:
            kept.append(cluster)
            super().begin(cluster)

    result, _ = Asynchronous(refused=0.5).run(TYPED, made_up(6), Keeping(make_agent(agent)), tmp_path, check=True)
    failed = kept[0].failed_starts
    assert len(failed) > 30
    assert {each.reason for each in failed} == {"by lot"}
    for job, requested, refused, _ in failed:
        assert result.workload.submission_time[job] <= requested < refused < result.starting_time[job]


def test_a_job_is_killed_on_every_backend_that_can(tmp_path: Path) -> None:
    class Killing(Agent):
        def decide(self, cluster: Cluster) -> None:
            for job in list(cluster.queue):
                if cluster.fits(job):
                    cluster.start(job)
            for job in cluster.running:
                if job % 7 == 3 and job not in cluster.started and job not in asked:
                    asked.add(job)
                    cluster.kill(job)

    for backend in ("sim", "asynchronous"):
        asked: set[int] = set()
        result = play(backend, TYPED, Watched(Killing()), made_up(8), tmp_path)
        killed = set(np.flatnonzero(result.state == FinalState.COMPLETED_KILLED).tolist())
        assert killed and killed <= asked


def test_what_a_backend_cannot_do_is_one_error_before_time_0(tmp_path: Path) -> None:
    class Modest(Asynchronous):
        capabilities = Capabilities(contention=("threshold",))

        def faults(self, *made: Any) -> list[str]:
            return ["expected fewer jobs"]

    with pytest.raises(ConfigError) as caught:
        Modest().run(
            TYPED, made_up(1), "fcfs", tmp_path, contention="fair_share", network="fluid", failures="exponential"
        )
    assert [str(error) for error in caught.value.errors] == [
        "backend=modest: contention: expected none or threshold, got fair_share",
        "backend=modest: network: expected none, got fluid",
        "backend=modest: failures: expected none, got exponential",
        "backend=modest: expected fewer jobs",
    ]
    with pytest.raises(ConfigError) as caught:
        Asynchronous().check(TYPED.of_kind("quantities"), made_up(1), contention="fair_share")
    assert str(caught.value) == "backend=asynchronous: contention: expected none, got fair_share"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("kwk", "backend: expected one of batsim, custom, kwok, sim, slurm, got 'kwk'"),
        ({"_target_": "hdsim.backends.sim.Sim", "sped": 1}, "unexpected keyword argument 'sped'"),
        ({"_target_": "hdsim.backends.sim.Sim", "batch_events": 1}, "backend.batch_events: expected true or false"),
        ({"_target_": "hdsim.scheduling.agent.Agent"}, "expected a subclass of hdsim.Backend, got Agent"),
        ({"path": "nowhere.py"}, "backend.path: expected a Python file with one subclass of Backend"),
    ],
)
def test_a_backend_that_there_is_not(spec: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make_backend(spec)
    assert message in str(caught.value)


def test_the_documentation_says_what_each_backend_can_do(root: Path) -> None:
    page = (root / "docs" / "backends.md").read_text()
    rows = {
        cells[1].strip(" `"): cells[2:6] for cells in (line.split("|") for line in page.splitlines()) if len(cells) == 8
    }
    for column, backend in enumerate([Sim, Batsim, Kwok, Slurm]):
        for key, value in vars(backend.capabilities).items():
            shown = {None: "all", (): "none", True: "yes", False: "no"}
            expected = ", ".join(value) if isinstance(value, tuple) and value else shown[value]
            expected = "of a trace" if key == "known_jobs" and backend in (Kwok, Slurm) else expected
            assert rows[key][column].strip() == expected, key
