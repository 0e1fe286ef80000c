"""The examples run as their own headers say."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def test_best_fit(hdsim):
    done = hdsim("run", f"agent.path={EXAMPLES / 'best_fit.py'}", "agent.patience=3600", "workload.jobs=200")
    assert done.returncode == 0, done.stderr
    assert "jobs_completed" in done.stdout


@pytest.mark.ci
def test_energy_of_pairs(tmp_path, root):
    done = subprocess.run(
        [sys.executable, EXAMPLES / "energy_of_pairs.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(root)},
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 7


def test_look_ahead(hdsim):
    done = hdsim("run", f"agent.path={EXAMPLES / 'look_ahead.py'}", "agent.candidates=[fcfs,sjf]", "workload.jobs=40")
    assert done.returncode == 0, done.stderr
    assert "jobs_completed" in done.stdout


def run_example(name, *options, root, cwd):
    return subprocess.run(
        [sys.executable, EXAMPLES / name, *options],
        cwd=cwd,
        capture_output=True,
        text=True,
        # Ray starts a cluster of its own, rather than to look for that of another test.
        env=os.environ | {"PYTHONPATH": str(root), "OMP_NUM_THREADS": "1", "RAY_ADDRESS": "local"},
    )


@pytest.mark.requires("torch")
@pytest.mark.nightly
def test_cleanrl_ppo(tmp_path, root):
    done = run_example("cleanrl_ppo.py", "--steps", "10240", root=root, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    *_, told, _, _, _, _, _, _ = done.stdout.splitlines()
    assert told == "mean bounded slowdown of 5 traces of 500 jobs"
    means = {line.rsplit(maxsplit=1)[0]: float(line.rsplit(maxsplit=1)[1]) for line in done.stdout.splitlines()[-6:]}
    assert means["this agent"] < means["fcfs"] / 2


@pytest.mark.requires("rllib")
@pytest.mark.xdist_group("ray")
@pytest.mark.ci
def test_rllib_ppo(tmp_path, root):
    done = run_example("rllib_ppo.py", "--iterations", "1", root=root, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.splitlines()[-1].rsplit(maxsplit=1)[1]) < 0


def trained(hdsim, *words, steps, directory):
    done = hdsim("train", *words, f"train.steps={steps}", f"hydra.run.dir={directory}", "-q")
    assert done.returncode == 0, done.stderr
    return {line.split()[0]: line.split()[1] for line in done.stdout.splitlines() if len(line.split()) > 1}


@pytest.mark.requires("torch")
@pytest.mark.ci
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("policy_gradient", ()),
        ("graph_network", ("env.action=node", "env.observation=graph", "~env.scale", "~env.pairs")),
    ],
)
def test_agents_of_ones_own_spread(hdsim, tmp_path, name, words):
    agent = (f"agent.path={EXAMPLES / name}.py", "agent.gamma=0.95", "train.test=2", "train.baselines=[first-spread]")
    run = tmp_path / "run"
    told = trained(hdsim, "experiment=spread_or_pack", *words, *agent, steps=3000, directory=run)
    # The optimum of this task; packing has 1,827.
    assert told["final"] == told["first-spread"] == "300"
    done = hdsim(
        "run",
        *("platform=eight_nodes", "workload.path=even_1000", "workload.memory_bandwidth=40", "contention=fair_share"),
        *("workload.jobs=40", agent[0], f"agent.checkpoint={run / 'checkpoints/final.safetensors'}"),
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.requires("torch")
@pytest.mark.ci
def test_own_decisions(hdsim, tmp_path):
    file = EXAMPLES / "own_decisions.py"
    words = ("platform=teaching", "workload.path=even_1000", "workload.arrival_factor=0.2", "agent=reinforce")
    env = (f"env.observation={file}", f"env.objective={file}", "env.patience=60", "env.jobs=20")
    rest = ("env.pairs=[first-low_power,first-high_gflops]", "train.test=2", "train.baselines=[fcfs]")
    told = trained(hdsim, *words, *env, *rest, steps=300, directory=tmp_path / "run")
    assert float(told["final"].replace(",", "")) > 0
