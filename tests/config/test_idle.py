"""Settings that are accepted and change nothing are told, in a line each."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from hdsim.config.composer import Composer
from hdsim.config.idle import idle_keys
from hdsim.errors import ConfigError

Run = Callable[..., subprocess.CompletedProcess[str]]
SMALL = ("platform=teaching", "workload.jobs=20")


def told(*given: str, config_name: str = "config", swept: bool = False) -> list[str]:
    composer = Composer(config_name=config_name)
    prepared = composer.overrides(given)
    configs = [each.config for each in composer.sweep(prepared)] if swept else [composer.compose(prepared)]
    return idle_keys(given, configs, swept=swept)


@pytest.mark.parametrize(
    ("idle", "acting", "otherwise"),
    [
        ("workload.slack.time=48h", "workload.slack.share=0.3", "without workload.slack.share"),
        ("workload.bsp.pattern=ring", "workload.bsp.supersteps=3", "without workload.bsp.supersteps"),
        ("workload.walltime=requested", "backend.kill_at_walltime=true", "without backend.kill_at_walltime=true"),
        ("workload.status=ignore", "workload.path=lublin_4000", "of these jobs: it is of SWF and Parquet"),
        ("agent.multifactor.weight_age=3", "agent.job_policy=multifactor", "without the order multifactor"),
        ("agent.multifactor.weight_age=3", "agent.backfill_order=multifactor agent.backfill=easy", "without the order"),
        ("agent.backfill_order=sjf", "agent.backfill=easy", "without agent.backfill"),
        ("power.cap_kind=soft", "power.cap=0.8", "without power.cap"),
        (
            "facility.price=0.2 facility.capacity=100",
            "facility.pue=[[0,2],[1,1.3]]",
            "without a table of facility.pue or",
        ),
        ("facility.carbon=300 facility.seed=3", "facility.price={mean:0.1}", "without a generated series or errors"),
        ("power.repair=1h", "power.boot_failure=0.1", "without power.boot_failure"),
        ("power=states", "power.cap=0.8", "with a classic agent and without a time-out, a cap or a frequency"),
        ("power=suspend power.suspend_time=null", "power.suspend_time=1h", "with a classic agent"),
    ],
)
def test_a_key_that_needs_another_one(idle: str, acting: str, otherwise: str) -> None:
    beside = ["power=suspend"] if "power." in idle and "power=" not in idle else []
    beside += ["workload=lublin"] if "status" in idle else []
    (line, *_) = told(*beside, *idle.split())
    key = next(text for text in reversed(idle.split()) if "time=null" not in text).partition("=")[0]
    assert line.startswith(f"{key}: changes nothing {otherwise}")
    beside = [] if "status" in idle else beside
    assert told(*beside, *idle.split(), *acting.split()) == []


def test_the_gain_of_the_rule_and_the_decision_problem_of_a_replay() -> None:
    deferring = ("agent=deferring", "agent.gain=0.1")
    assert told(*deferring) == []
    assert told(*deferring, "agent.plan=learned") == ["agent.gain: changes nothing without agent.plan=rule"]
    ahead = ("agent=portfolio", "agent.arrivals=64")
    assert told(*ahead) == ["agent.arrivals: changes nothing without agent.scenarios"]
    assert told(*ahead, "agent.scenarios=2") == told("agent=rollout", "agent.arrivals=64") == []
    (line,) = told("env.jobs=3")
    assert line == "env.jobs: changes nothing of a replay: agent.checkpoint has the decision problem"
    assert told("env.jobs=3", config_name="train") == []


def test_defaults_and_agents_of_one_s_own_bring_no_line(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import hdsim\nclass Mine(hdsim.Agent):\n    def decide(self, cluster): ...\n")
    own = f"agent.path={tmp_path / 'mine.py'}"
    assert told() == []
    assert told(own, "workload.walltime=requested", "power=states", "agent.backfill_order=sjf") == []
    assert told("backend=kwok", "workload.walltime=requested", "workload=cluster") == []


def test_in_a_sweep_a_key_is_idle_if_it_is_in_all_runs() -> None:
    order = "agent.backfill_order=sjf"
    assert told("agent=fcfs,easy", order, swept=True) == []
    assert told("agent=fcfs,saf", order, swept=True) == ["agent.backfill_order: changes nothing without agent.backfill"]


def test_directories_of_sweeps_are_none_of_runs() -> None:
    (line,) = told("agent=fcfs,easy", "hydra.run.dir=here", swept=True)
    assert line == "hydra.run.dir: changes nothing in a sweep, whose directory is hydra.sweep.dir"
    (line,) = told("hydra.sweep.dir=here")
    assert line == "hydra.sweep.dir: changes nothing without -m; the directory of a run is hydra.run.dir"
    for swept in (False, True):
        assert told("agent=fcfs", "hydra.run.dir=here", "hydra.sweep.dir=here", swept=swept) == []
    assert told("hydra/launcher=basic") == ["hydra.launcher: changes nothing without -m"]


@pytest.mark.parametrize("prefix", ["", "+", "++"])
def test_rules_of_a_site_need_an_agent_that_reads_them(prefix: str) -> None:
    rule = f"{prefix}site.slurm.parameters.bf_interval=60"
    with pytest.raises(ConfigError, match=r"expected site=FOLDER before it.* or agent=slurm; got agent=easy"):
        told("agent=easy", rule)
    assert told("agent=slurm", rule) == []
    (line,) = told("experiment=consolidation", rule)
    assert line.startswith("site.slurm.parameters.bf_interval: changes nothing with an agent that has no rules of a")


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (
            "workload.slack.time=48h",
            "hdsim: warning: workload.slack.time: changes nothing without workload.slack.share",
        ),
        ("network=fluid", "network: changes nothing, as no job sends messages (workload.bsp.supersteps)"),
        (
            "contention=threshold workload.memory_bandwidth=none",
            "contention: changes nothing, as no job or no processor has a memory bandwidth",
        ),
        (
            "backend.kill_at_walltime=true",
            "backend.kill_at_walltime: changes nothing, as no job has a kill limit (workload.walltime=requested)",
        ),
        (
            "workload.frequency_bound=0.3",
            "workload.frequency_bound: changes nothing, as the processors of teaching have no frequencies",
        ),
        (
            "workload.cores_per_pod=2",
            "workload.cores_per_pod: changes nothing on a platform of cores (platform.kind=quantities)",
        ),
        (
            "failures=exponential failures.recovery=checkpoint",
            "failures.recovery: changes nothing, as no job has checkpoints (failures.checkpoint_interval)",
        ),
        ("agent=easy++", "agent.estimates: changes nothing, as no job has a user"),
        (
            "agent=deferring agent.defer=night facility=synthetic facility.begin=2026-03-02T00:00Z",
            "agent: puts no job off, as none has slack (workload.slack.share)",
        ),
    ],
)
def test_a_run_tells_what_changes_nothing(tmp_path: Path, hdsim: Run, given: str, line: str) -> None:
    run = hdsim("run", *SMALL, *given.split(), cwd=tmp_path)
    assert line in run.stderr.splitlines()
    assert run.returncode == 0


def test_a_sweep_tells_it_once(tmp_path: Path, hdsim: Run) -> None:
    run = hdsim("run", "-m", *SMALL, "agent=fcfs,saf", "workload.slack.time=48h", cwd=tmp_path)
    assert run.stderr.count("workload.slack.time") == 1, run.stderr
