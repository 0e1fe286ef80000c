"""Learning agents and kinds of decisions of users and installed packages: found, trained, and replayed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from training_setups import train

import hdsim
from hdsim.decisions import DecisionProblem
from hdsim.envs.scheduling import SchedulingEnv
from hdsim.errors import ConfigError
from hdsim.util import plugins

pytestmark = pytest.mark.requires("torch")


#: A training of one step, and its evaluation.
SHORT = (
    "platform=teaching",
    "workload.path=even_1000",
    "env.jobs=20",
    "env.pairs=[first-low_power,first-high_gflops]",
    "agent=reinforce",
    "agent.num_envs=2",
    "train.steps=1",
    "train.validation=0",
    "train.test=1",
    "train.baselines=[fcfs]",
    "train.tensorboard=false",
)


@pytest.fixture
def files(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the plug-ins of the examples."""
    for plugin in (root / "examples/plugins").glob("*.py"):
        shutil.copy(plugin, tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def registered(monkeypatch: pytest.MonkeyPatch, folder: Path, group: str, name: str, target: str) -> None:
    """Makes an installed package of a folder, with one entry point."""
    information = folder / "theirs-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(f"[hdsim.{group}s]\n{name} = {target}\n")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(plugins, "_registered", entry_points)


def replayed(directory: Path) -> hdsim.Result:
    """The replay of what a training has left."""
    agent = {
        "_target_": "hdsim.agents.reinforce.ReinforceAgent",
        "checkpoint": str(directory / "checkpoints/final.safetensors"),
    }
    platform = hdsim.load_platform("teaching")
    return hdsim.simulate(platform, hdsim.load_workload("even_1000", platform, jobs=30), agent)


def test_an_observation_of_a_file(files: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    setup, _ = train(files / "out", *SHORT, "env.observation=waiting.py", "env.longest=600")
    assert setup.environments[0].observation_space.shape == (2,)
    assert [each.message for each in caplog.records if "waiting.py" in each.message] == [
        "the engine steps these environments: compiled ones know no observation=waiting.py"
    ]
    assert replayed(files / "out").metrics["makespan"] > 0
    for wrong, told in (
        ({"observation": "minimall"}, "env.observation: expected one of normal, .*did you mean 'minimal'.*Python file"),
        ({"observation": "absent.py"}, "env.observation: expected a Python file .*'absent.py'"),
        ({"observation": "hdsim.decisions.Array"}, "observation 'hdsim.decisions.Array': expected a subclass of"),
        ({"observation": "waiting.py", "long": 1}, "env.long: unknown setting of .*waiting.py.*did you mean 'longest'"),
    ):
        with pytest.raises(ConfigError, match=told):
            DecisionProblem(**wrong)
    registered(monkeypatch, files, "observation", "theirs", "waiting:Waiting")
    assert DecisionProblem(observation="theirs", longest=5).observer.longest == 5  # type: ignore[attr-defined]


def test_an_action_of_a_file(files: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    mine = [each for each in SHORT if "env.pairs" not in each]
    setup, _ = train(files / "out", *mine, "env.action=heads.py", "env.orders=[first,shortest,smallest]")
    assert setup.environments[0].n_actions == 4
    assert [each.message for each in caplog.records if "heads.py" in each.message] == [
        "the engine steps these environments: compiled ones know no action=heads.py"
    ]
    assert replayed(files / "out").metrics["makespan"] > 0
    with pytest.raises(ConfigError, match=r"env.action: expected one of .*did you mean 'node'.*Python file"):
        DecisionProblem("nodes")
    (files / "part.py").write_text("import hdsim.decisions\nclass Part(hdsim.decisions.Action):\n    pass\n")
    with pytest.raises(
        ConfigError, match=r"env.action 'part.py': Part: expected a definition of act\(self, action\), begin"
    ):
        DecisionProblem("part.py")
    registered(monkeypatch, files, "action", "theirs", "heads:Heads")
    assert DecisionProblem("theirs", orders=["first"]).action.orders == ["first"]  # type: ignore[attr-defined]


def test_an_objective_of_a_file(
    files: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    setup, _ = train(files / "out", *SHORT, "env.objective=long_waits.py", "env.patience=60")
    objective = setup.environments[0].objective
    assert (type(objective).__name__, objective.patience) == ("LongWaits", 60)
    assert [each.message for each in caplog.records if "long_waits.py" in each.message] == [
        "the engine steps these environments: compiled ones know no objective=long_waits.py"
    ]
    assert setup.evaluation.metric == "p95_waiting_time" and replayed(files / "out").metrics["makespan"] > 0
    place = {"platform": "teaching", "workload": "even_1000", "jobs": 20}
    for wrong, told in (
        ({"objective": "makespam"}, "env.objective: expected one of .*did you mean 'makespan'.*Python file"),
        (
            {"objective": "long_waits.py", "patients": 1},
            r"env.patients: unknown setting .*did you mean 'patience'.*per_deployment, patience$",
        ),
        ({"objective": "hdsim.decisions.Array"}, "env.objective 'hdsim.decisions.Array': expected a subclass of"),
    ):
        with pytest.raises(ConfigError, match=told):
            SchedulingEnv(**place, **wrong)
    (files / "once.py").write_text((files / "long_waits.py").read_text() + "\nprint('executed')\n")
    SchedulingEnv(**place, objective="once.py", patience=3)
    assert capsys.readouterr().out == "executed\n"
    registered(monkeypatch, files, "objective", "theirs", "long_waits:LongWaits")
    env = SchedulingEnv(**place, objective="theirs", patience=5, reward="integrated")
    env.reset(seed=1)
    assert env.fork().objective.patience == 5  # type: ignore[attr-defined]


def test_an_installed_package_brings_an_agent_that_learns(tmp_path: Path, root: Path) -> None:
    # An example, as pip would have installed it.
    (tmp_path / "my_agents.py").write_text((root / "examples/plugins/bandit.py").read_text())
    information = tmp_path / "my_agents-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: my-agents\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[hdsim.agents]\nbandit = my_agents:Bandit\n")

    def command(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "hdsim", *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{tmp_path}"},
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    common = ("platform=teaching", "workload.path=even_1000", "agent=bandit")
    command(
        "train",
        *common,
        "+agent.step_size=0.3",
        "env.pairs=[first-low_power,first-high_gflops]",
        "env.jobs=20",
        "train.steps=300",
        "train.validation=0",
        "train.test=1",
        "train.tensorboard=false",
        "hydra.run.dir=out",
    )
    checkpoint = "out/checkpoints/final.safetensors"
    replayed = command("run", *common, f"+agent.checkpoint={checkpoint}", "workload.jobs=50", "hydra.run.dir=replay")
    assert "makespan" in replayed


def test_dropout_is_for_training_alone(tmp_path: Path) -> None:
    """A plug-in whose network has dropout replays alike from one seed, and is trained with it again afterwards."""
    import torch
    from torch import nn

    from hdsim.scheduling.agent import make_agent

    agent = make_agent(
        {
            "_target_": "hdsim.agents.reinforce.ReinforceAgent",
            "task": {"action": "job", "observation": "jobs", "queue_size": 8},
        }
    )
    platform = hdsim.load_platform("teaching")
    agent.begin_training(DecisionProblem("job", "jobs", queue_size=8), platform, 1)
    agent.network = nn.Sequential(agent.network, nn.Dropout(0.9))
    assert agent.network.training
    jobs = hdsim.load_workload("lublin_4000", platform, jobs=100)
    torch.manual_seed(1)
    starts = [hdsim.simulate(platform, jobs, agent, seed=1).starting_time.tolist() for _ in range(3)]
    assert starts[0] == starts[1] == starts[2]
    assert not agent.network.training
    agent.training_mode(True)
    assert agent.network.training
