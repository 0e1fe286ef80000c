"""Training: what is held out, reproducible to the byte, goes on after kill -9, and what it leaves behind."""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import json
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from training_setups import make_setup, train, train_whole_and_cut

from hdsim.errors import ConfigError
from hdsim.results.run_directory.inputs import digest

pytestmark = pytest.mark.requires("torch")

AGENTS = ("actor_critic", "dqn", "evolution", "matching", "ppo", "reinforce")
#: A training of a second or two.
SMALL = (
    "platform=teaching",
    "workload.path=even_1000",
    "workload.jobs=300",
    "workload.memory_bandwidth=none",
    "env.objective=makespan",
    "env.jobs=20",
    "env.pairs=[first-low_power,shortest-high_gflops,smallest-random]",
    "train.steps=600",
    "train.log_every=200",
    "train.evaluate_every=300",
    "train.checkpoint_every=200",
    "train.validation=1",
    "train.test=2",
    "train.baselines=[fcfs,sjf-low_power]",
)
#: Settings that make an agent update often within a few hundred steps.
QUICK = {
    "actor_critic": ("agent.num_envs=3",),
    "dqn": ("agent.num_envs=2", "agent.buffer_size=150", "agent.batch_size=16", "agent.n_step=2"),
    "evolution": ("agent.num_envs=3", "agent.pairs=4", "agent.windows=2"),
    "matching": ("agent.num_envs=3", "agent.pairs=4", "agent.windows=2"),
    "ppo": ("agent.num_envs=3", "agent.num_steps=32"),
    "reinforce": ("agent.num_envs=3", "agent.episodes_per_update=2"),
}


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


# ---- checkpoints


def test_a_checkpoint_brings_back_what_was_saved(tmp_path: Path) -> None:
    import torch

    from hdsim.learning import checkpoint

    network = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(network.parameters())
    network(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    tree = {
        "network": network.state_dict(),
        "optimizer": optimizer.state_dict(),
        "rng": np.random.default_rng(3).bit_generator.state,
        "arrays": [
            np.arange(6).reshape(2, 3).T,
            np.zeros((0, 4), np.float32),
            np.float32(2.5),
            np.array([True, False]),
        ],
        "plain": {"none": None, "text": "a.b", "number": 0.1, "flag": True, "nested": {"a.b": 1}},
    }
    path = tmp_path / "file.safetensors"
    checkpoint.save(path, tree)
    first = path.read_bytes()
    back = checkpoint.load(path)
    checkpoint.save(path, back)
    assert path.read_bytes() == first
    assert list(tmp_path.iterdir()) == [path]
    assert back["rng"] == tree["rng"] and back["plain"] == tree["plain"]
    for kept, array in zip(back["arrays"], tree["arrays"], strict=True):
        np.testing.assert_array_equal(kept, array)
    assert back["optimizer"]["state"].keys() == {0, 1}


@pytest.mark.parametrize("content", [b"", b"no checkpoint", pickle.dumps({"weights": [1.0]})])
def test_what_is_no_checkpoint_is_refused_and_not_executed(tmp_path: Path, content: bytes) -> None:
    from hdsim.learning import checkpoint

    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"expected a usable checkpoint; .* does not fit: ValueError"):
        checkpoint.load(path)


def test_a_file_of_weights_from_elsewhere_is_refused(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    from hdsim.learning import checkpoint

    save_file({"weight": np.zeros(3)}, tmp_path / "file")
    with pytest.raises(ConfigError, match="of other origin"):
        checkpoint.load(tmp_path / "file")
    with pytest.raises(ConfigError, match="found no file"):
        checkpoint.load(tmp_path / "nothing")


# ---- windows


def test_counted_windows_lie_at_the_end_of_the_trace() -> None:
    from hdsim.learning.training.windows import held_out

    assert held_out(100, 10, validation=2, test=3) == ([50, 60], [70, 80, 90])


def test_validation_windows_keep_clear_of_named_test_windows() -> None:
    from hdsim.learning.training.windows import held_out

    validation, test = held_out(100, 10, validation=3, test=[85, 40, 45])
    assert test == [85, 40, 45]
    assert validation == [55, 65, 75]
    assert held_out(100, 10, validation=[0, 5], test=[20]) == ([0, 5], [20])


@pytest.mark.parametrize(
    ("trace_jobs", "settings", "numbers"),
    [
        (150, {"kept": 10}, (4, 10)),
        (149, {"kept": 10}, (2, 5)),
        (149, {"kept": 0}, (4, 10)),
        (59, {"kept": 0}, (1, 4)),
        (48, {"kept": 10}, (1, 1)),
        (100, {"validation": 2, "kept": 10}, (2, 3)),
        (100, {"test": 2, "kept": 10}, (4, 2)),
        (60, {"test": 2, "kept": 10}, (1, 2)),
        (1000, {"kept": 900}, (2, 8)),
    ],
)
def test_a_short_trace_has_fewer_windows_unless_their_number_is_given(
    trace_jobs: int, settings: dict[str, int], numbers: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    from hdsim.learning.training.windows import held_out

    validation, test = held_out(trace_jobs, 10, **{"validation": None, "test": None} | settings)
    assert (len(validation), len(test)) == numbers
    assert trace_jobs - 10 * sum(numbers) >= settings["kept"]
    fewer = [
        f"{number} in place of {usual} {name} windows"
        for name, number, usual in zip(("validation", "test"), numbers, (4, 10), strict=True)
        if name not in settings and number < usual
    ]
    assert all(text in caplog.text for text in fewer)
    assert bool(fewer) == bool(caplog.records)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"validation": 5, "test": 6}, "train.validation: expected a trace with 5 windows of 10 jobs"),
        ({"validation": 0, "test": [91]}, "train.test: expected first jobs from 0 to 90"),
        (
            {"validation": [15], "test": [20]},
            "train.validation: expected windows without jobs of test windows, got .* 15",
        ),
    ],
)
def test_windows_that_cannot_be_held_out(settings: dict[str, Any], message: str) -> None:
    from hdsim.learning.training.windows import held_out

    with pytest.raises(ConfigError, match=message):
        held_out(100, 10, **settings)


def test_no_episode_has_a_job_of_a_held_out_window() -> None:
    setup = make_setup(*SMALL, "agent=reinforce")
    held = {str(job) for window in (*setup.validation, *setup.test) for job in window.job_id}
    assert len(held) == 60
    rng = np.random.default_rng(1)
    episodes = setup.environments[0].episodes
    learned_from = {str(job) for _ in range(300) for job in episodes.draw(rng).job_id}
    assert learned_from.isdisjoint(held)
    assert len(learned_from) > 200


# ---- parts


def transitions(step: int, *, over: bool) -> Any:
    from hdsim.learning.agent import Transitions

    return Transitions(
        observations=np.array([[step]], np.float32),
        masks=np.ones((1, 2), bool),
        actions=np.array([step % 2]),
        rewards=np.array([2.0**step]),
        next_observations=np.array([[step + 1]], np.float32),
        next_masks=np.ones((1, 2), bool),
        terminated=np.array([over]),
        truncated=np.array([False]),
    )


def test_the_buffer_sums_n_rewards_and_shortens_the_last() -> None:
    from hdsim.learning.training.buffer import ReplayBuffer

    buffer = ReplayBuffer(100, gamma=0.5, n_step=3)
    for step in range(5):
        buffer.add(transitions(step, over=step == 4))
    batch = buffer.sample(400, np.random.default_rng(0))
    seen = {
        (int(begin), float(reward), int(end), float(discount))
        for (begin,), reward, (end,), discount in zip(
            batch.observations, batch.rewards, batch.next_observations, batch.discounts, strict=True
        )
    }
    # Rewards 1, 2, 4, 8, 16: three of them halved one by one, unless the episode ends before.
    assert seen == {(0, 3, 3, 0.125), (1, 6, 4, 0.125), (2, 12, 5, 0), (3, 16, 5, 0), (4, 16, 5, 0)}


def test_a_full_buffer_forgets_the_oldest_and_survives_a_checkpoint(tmp_path: Path) -> None:
    from hdsim.learning import checkpoint
    from hdsim.learning.training.buffer import ReplayBuffer

    buffer = ReplayBuffer(4, gamma=1.0, n_step=2)
    for step in range(7):
        buffer.add(transitions(step, over=False))
    checkpoint.save(tmp_path / "file", buffer.state_dict())
    other = ReplayBuffer(4, gamma=1.0, n_step=2)
    other.load_state_dict(checkpoint.load(tmp_path / "file"))
    for kept in (buffer, other):
        assert len(kept) == 4
        kept.add(transitions(7, over=True))
        batch = kept.sample(100, np.random.default_rng(0))
        assert set(batch.observations[:, 0].tolist()) == {4, 5, 6, 7}


def test_replayed_rewards_have_the_scale_of_the_latest_step() -> None:
    from hdsim.learning.training.buffer import ReplayBuffer

    buffer = ReplayBuffer(10, gamma=1.0)
    for step, scale in enumerate((1.0, 2.0, 8.0)):
        scaled = transitions(step, over=False)
        buffer.add(dataclasses.replace(scaled, rewards=scaled.rewards / scale, scale=scale))
    other = ReplayBuffer(10, gamma=1.0)
    other.load_state_dict(buffer.state_dict())
    for kept in (buffer, other):
        assert set(kept.sample(100, np.random.default_rng(0)).rewards.tolist()) == {1 / 8, 2 / 8, 4 / 8}


def test_rewards_are_scaled_by_the_size_of_their_sums() -> None:
    from hdsim.learning.training.learner import RewardScale

    scale = RewardScale(1, gamma=0.5)
    going, over = np.array([False]), np.array([True])
    assert scale(np.array([-8.0]), going) == -1.0
    # Sums so far: -8 and -8 / 2 - 4 = -8.
    assert scale(np.array([-4.0]), over) == -0.5
    # The third begins anew: 1.
    assert scale(np.array([1.0]), going) == pytest.approx(1 / np.sqrt((64 + 64 + 1) / 3))
    assert RewardScale(2, gamma=1.0)(np.zeros(2), np.zeros(2, bool)).tolist() == [0.0, 0.0]


def test_actions_are_drawn_as_their_probabilities_say_and_never_against_the_mask() -> None:
    from hdsim.learning.agent import draw

    probabilities = np.tile([0.0, 0.25, 0.0, 0.75, 0.0], (20_000, 1))
    counts = np.bincount(draw(probabilities, np.random.default_rng(5)), minlength=5)
    assert counts[[0, 2, 4]].tolist() == [0, 0, 0]
    assert counts[1] / 20_000 == pytest.approx(0.25, abs=0.02)


def test_environments_come_back_to_where_they_were(tmp_path: Path) -> None:
    from hdsim.learning import checkpoint
    from hdsim.learning.training.environments import Environments

    overrides = (*SMALL, "agent=reinforce", "agent.num_envs=3", "env.curriculum=growing", "env.curriculum_episodes=20")
    rng = np.random.default_rng(7)
    one, other = (Environments(make_setup(*overrides).vector(), seed=seed) for seed in (4, 99))
    for _ in range(90):
        one.step(rng.integers(3, size=3))
    checkpoint.save(tmp_path / "file", {"state": one.state()})
    other.load_state(checkpoint.load(tmp_path / "file")["state"])
    finished = 0
    for _ in range(90):
        actions = rng.integers(3, size=3)
        mine, theirs = one.step(actions), other.step(actions)
        for name in ("observations", "rewards", "next_observations", "terminated", "next_masks"):
            np.testing.assert_array_equal(getattr(mine, name), getattr(theirs, name))
        assert one.finished == other.finished
        finished += len(one.finished)
    assert finished
    one.close()
    other.close()


# ---- trainings


def test_the_seed_of_a_training_changes_no_job() -> None:
    drawn = ("platform=gaia", "workload.memory_bandwidth=draw")
    generated = ("workload=family", "workload.family=random", "workload.generate.jobs=400")
    held = ("agent=ppo", "env.jobs=40", "train.test=2")
    for overrides in (drawn, generated):
        one, two, other = (make_setup(*held, *overrides, *more) for more in ((), ("seed=2",), ("workload.seed=2",)))
        for name in ("traces", "validation", "test"):
            digests = [[digest(jobs) for jobs in getattr(setup, name)] for setup in (one, two, other)]
            assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize("agent", AGENTS)
def test_one_seed_gives_the_same_bytes_in_one_piece_or_two_and_another_does_not(
    tmp_path: Path, agent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    overrides = (*SMALL, f"agent={agent}", *QUICK[agent], "train.tensorboard=false")
    # Between two checkpoints, within a rollout and within episodes.
    train_whole_and_cut(tmp_path, *overrides, crash_after=300, monkeypatch=monkeypatch)
    cut, whole = (
        [{**row, "seconds": "", "steps_per_second": ""} for row in rows(tmp_path / name / "progress.csv")]
        for name in ("cut", "whole")
    )
    assert cut == whole
    train(tmp_path / "other", *overrides, "seed=2")
    weights = "checkpoints/final.safetensors"
    assert (tmp_path / "other" / weights).read_bytes() != (tmp_path / "whole" / weights).read_bytes()


def start(root: Path, directory: Path, *overrides: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "hdsim", "train", *overrides, f"hydra.run.dir={directory}"],
        cwd=directory.parent,
        env={**os.environ, "PYTHONPATH": str(root)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def stop_after_checkpoint(process: subprocess.Popen[str], directory: Path, number: signal.Signals) -> None:
    limit = time.monotonic() + 120
    while not (directory / "checkpoints/state.safetensors").exists():
        assert process.poll() is None and time.monotonic() < limit, process.communicate()[0]
        time.sleep(0.02)
    process.send_signal(number)


def test_kill_9_and_resume_end_with_the_same_bytes(
    tmp_path: Path, root: Path, hdsim: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    overrides = (*SMALL, "agent=dqn", *QUICK["dqn"], "train.steps=3000", "train.evaluate_every=1000")
    train(tmp_path / "whole", *overrides)
    process = start(root, tmp_path / "killed", *overrides)
    stop_after_checkpoint(process, tmp_path / "killed", signal.SIGKILL)
    assert process.wait(60) == -signal.SIGKILL
    assert not (tmp_path / "killed/checkpoints/final.safetensors").exists()
    report = hdsim("report", tmp_path / "killed")
    assert report.returncode == 0 and "dead since 20" in report.stderr
    page = (tmp_path / "killed/report.html").read_text()
    assert "dead since 20" in page and "Rewards" in page
    # The directory tells the rest.
    resumed = hdsim("train", "-q", "resume=true", f"hydra.run.dir={tmp_path / 'killed'}")
    assert resumed.returncode == 0, resumed.stderr
    assert "step " not in resumed.stderr
    assert "killed: dead since 20" in resumed.stderr and "goes on" in resumed.stderr
    for name in ("checkpoints/final.safetensors", "checkpoints/best.safetensors", "actions.csv", "evaluation.csv"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name
    again = hdsim("train", "resume=true", f"hydra.run.dir={tmp_path / 'killed'}")
    assert again.returncode == 0 and "finished before" in again.stdout
    assert not list((tmp_path / "killed/checkpoints").glob(".*"))


def test_sigterm_leaves_a_checkpoint_and_the_same_command_goes_on(
    tmp_path: Path, root: Path, hdsim: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    overrides = (*SMALL, "agent=reinforce", *QUICK["reinforce"], "train.steps=3000", "train.tensorboard=false")
    directory = tmp_path / "runs" / "one"
    directory.parent.mkdir()
    process = start(root, directory, *overrides)
    stop_after_checkpoint(process, directory, signal.SIGTERM)
    output = process.communicate(timeout=120)[0]
    assert process.returncode == 1 and "resume=true" in output and "Traceback" not in output
    assert json.loads((directory / "manifest.json").read_text())["status"] == "interrupted"
    # hydra.run.dir need not be named: it is the only interrupted training of this configuration in runs/.
    resumed = hdsim("train", *overrides, "resume=true")
    assert resumed.returncode == 0, resumed.stderr
    assert json.loads((directory / "manifest.json").read_text())["status"] == "finished"
    train(tmp_path / "whole", *overrides)
    weights = "checkpoints/final.safetensors"
    assert (directory / weights).read_bytes() == (tmp_path / "whole" / weights).read_bytes()
    other = hdsim("train", *overrides, "seed=2", "resume=true", f"hydra.run.dir={directory}")
    assert other.returncode == 2 and "seed differs" in other.stderr
    nothing = hdsim("train", *overrides, "seed=2", "resume=true")
    assert nothing.returncode == 2 and "found none" in nothing.stderr


@pytest.mark.parametrize("how", ["deleted", "cut", "swapped"])
def test_the_best_agent_of_an_interrupted_training_is_that_of_its_state(tmp_path: Path, how: str) -> None:
    overrides = (*SMALL, "agent=reinforce", *QUICK["reinforce"], "train.tensorboard=false", "train.patience=1")
    _, facts = train(tmp_path / "run", *overrides)
    assert facts["best_step"] < facts["steps"]
    kept = {name: tmp_path / f"run/checkpoints/{name}.safetensors" for name in ("best", "final")}
    best = kept["best"].read_bytes()
    assert best != kept["final"].read_bytes()
    if how == "deleted":
        kept["best"].unlink()
    else:
        kept["best"].write_bytes(best[:-9] if how == "cut" else kept["final"].read_bytes())
    assert train(tmp_path / "run", *overrides, resume=True)[1]["scores"] == facts["scores"]
    assert kept["best"].read_bytes() == best


@pytest.mark.parametrize("name", ["evaluation.csv", "checkpoints/best.safetensors"])
def test_a_finished_training_whose_results_are_gone_is_finished_anew(
    tmp_path: Path, hdsim: Callable[..., subprocess.CompletedProcess[str]], name: str
) -> None:
    overrides = (*SMALL, "agent=reinforce", "train.steps=40", "train.tensorboard=false", "hydra.run.dir=run")
    assert hdsim("train", "-q", *overrides).returncode == 0
    content = (tmp_path / "run" / name).read_bytes()
    (tmp_path / "run" / name).write_bytes(content[: len(content) // 2])
    resumed = hdsim("train", "-q", "resume=true", "hydra.run.dir=run")
    assert resumed.returncode == 0, resumed.stderr
    assert f"finished, but {name} is damaged; goes on" in resumed.stderr and "finished before" not in resumed.stdout
    assert (tmp_path / "run" / name).read_bytes() == content


@pytest.mark.parametrize(("patience", "end"), [(1, 102), (2, 201), (0, 600)])
def test_a_training_without_a_better_score_ends_early(tmp_path: Path, patience: int, end: int) -> None:
    """With a learning rate of 0 all evaluations are equal and the last is kept; three environments step together."""
    frozen = (*SMALL, "agent=reinforce", "agent.num_envs=3", "agent.learning_rate=0", "train.tensorboard=false")
    frozen += ("train.evaluate_every=100", f"train.patience={patience}")
    _, facts = train(tmp_path / "run", *frozen)
    assert (facts["steps"], facts["best_step"], facts["shipped"]) == (end, end, "best.safetensors")
    card = (tmp_path / "run/checkpoints/model_card.md").read_text()
    assert (f"ended at step {end} of 600: {patience} evaluations" in card) == (end < 600)
    assert train(tmp_path / "run", *frozen, resume=True)[1]["scores"] == facts["scores"]


def test_the_trace_of_the_test_windows_is_none_to_learn_from(tmp_path: Path, hdsim: Callable) -> None:
    done = hdsim(
        "train",
        "platform=teaching",
        "workload.path=even_1000",
        "train.traces=[even_1000]",
        "env.jobs=20",
        "hydra.run.dir=out",
    )
    assert done.returncode == 2
    assert "train.traces[0]: expected traces without the jobs of validation and test windows" in done.stderr


# ---- what it leaves behind


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run directory of ``hdsim train`` with PPO."""
    directory = tmp_path_factory.mktemp("train") / "run"
    process = start(Path(__file__).resolve().parents[2], directory, *SMALL, "agent=ppo", *QUICK["ppo"])
    output = process.communicate(timeout=300)[0]
    assert process.returncode == 0, output
    assert f"agent=ppo agent.checkpoint={directory.name}/checkpoints/best.safetensors" in output
    lines = [line for line in output.splitlines() if line.startswith("step ")]
    assert [line.split(" of ")[0] for line in lines] == ["step 0", "step 300", "step 600"], output
    assert all("validation_makespan" in line and " s  episode " in line for line in lines) and "\r" not in output
    return directory


def test_records_tell_the_course_of_the_training(trained: Path) -> None:
    progress = rows(trained / "progress.csv")
    assert [int(row["step"]) for row in progress] == [0, 201, 300, 402, 600]
    evaluated = [row for row in progress if row["validation_makespan"]]
    assert [int(row["step"]) for row in evaluated] == [0, 300, 600]
    assert all(float(row["validation_best_classic"]) > 0 for row in evaluated)
    assert {"episodes", "episode_return", "loss", "policy_loss", "value_loss", "entropy"} <= set(progress[-1])
    actions = rows(trained / "actions.csv")
    assert list(actions[0]) == ["step", "first-low_power", "shortest-high_gflops", "smallest-random", "void"]
    assert all(
        sum(float(share) for name, share in row.items() if name != "step") == pytest.approx(1) for row in actions[1:]
    )


def test_tensorboard_has_rewards_losses_actions_metrics_and_evaluations(trained: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(trained / "tensorboard"))
    events.Reload()
    tags = events.Tags()
    assert {
        "training/mean_reward",
        "episodes/return",
        "losses/loss",
        "episodes/makespan",
        "evaluation/validation_makespan",
        "training/steps_per_second",
    } <= set(tags["scalars"])
    assert tags["histograms"] == ["actions"]


def test_the_model_card_tells_what_was_learned_from_what(trained: Path) -> None:
    card = json.loads((trained / "checkpoints/model_card.json").read_text())
    assert (card["agent"], card["seed"], card["steps"], card["metric"]) == ("PPOAgent", 1, 600, "makespan")
    assert card["settings"]["num_steps"] == 32 and card["config"]["train"]["steps"] == 600
    (trace,) = card["traces"]
    manifest = json.loads((trained / "manifest.json").read_text())
    assert trace["sha256"] == manifest["inputs"][1]["sha256"]
    assert trace["jobs_sha256"] == manifest["workload"]["sha256"]
    assert [point["step"] for point in card["curve"]] == [0, 300, 600]
    assert set(card["scores"]) == {"final", "best", "fcfs", "sjf-low_power"}
    assert all(len(scores) == 2 for scores in card["scores"].values())
    assert [window["start"] for window in card["test_windows"]] == [260, 280]
    assert card["test_windows"][1]["first_job"] == "280"
    # The digest of a split is that of its windows' digests.
    for split, windows in (("validation", card["validation_windows"]), ("test", card["test_windows"])):
        lines = "\n".join(window["jobs_sha256"] for window in windows)
        assert card["splits"][split] == hashlib.sha256(lines.encode()).hexdigest()
    assert set(card["differences"]) == {"fcfs", "sjf-low_power"}
    for name, (value, low, high) in card["differences"].items():
        assert value == pytest.approx(card["means"]["best"] - card["means"][name])
        assert low <= value <= high
    text = (trained / "checkpoints/model_card.md").read_text()
    assert "# PPOAgent" in text and trace["sha256"] in text and "| sjf-low_power |" in text
    assert "| validation | `even_1000.swf` | 1 | 20 |" in text


def test_a_replay_with_the_checkpoint_is_what_the_test_saw(
    trained: Path, tmp_path: Path, hdsim: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    done = hdsim(
        "run",
        "platform=teaching",
        "workload.path=even_1000",
        "workload.start=280",
        "workload.jobs=20",
        "workload.memory_bandwidth=none",
        "agent=ppo",
        f"agent.checkpoint={trained / 'checkpoints/best.safetensors'}",
        "hydra.run.dir=out",
    )
    assert done.returncode == 0, done.stderr
    metrics = json.loads((tmp_path / "out/metrics.json").read_text())
    (seen,) = [row for row in rows(trained / "evaluation.csv") if (row["agent"], row["window"]) == ("best", "1")]
    for name in ("makespan", "energy_joules", "mean_waiting_time"):
        assert metrics[name] == pytest.approx(float(seen[name]), rel=1e-8), name


def test_a_training_directory_is_a_run_directory(
    trained: Path, hdsim: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    assert hdsim("report", trained).returncode == 0
    assert (trained / "report.html").is_file()
    assert len(rows(trained / "jobs.csv")) == 20


# ---- mistakes


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["agent.checkpoint=x"], "agent.checkpoint: expected a checkpoint, found no file 'x'"),
        (["agent.gamma=1.5"], "agent.gamma: expected a number from 0 to 1, got 1.5"),
        (["agent.num_envs=0"], "agent.num_envs: expected a whole number >= 1, got 0"),
        (["agent.hidden=[64,x]"], "agent.hidden: expected a list of whole numbers >= 1"),
        (["agent.device=gpu7"], "agent.device: expected auto, cpu or a GPU's name"),
        (["train.window_jobs=null"], "train.window_jobs: expected the number of jobs of a held-out window, got null"),
        (["train.window_jobs=200"], "train.test: expected a trace with 2 windows of 200 jobs to hold out"),
        (["train.metric=makspan"], "train.metric: expected one of .* (did you mean 'makespan'?)"),
        (["train.baselines=[fcsf]"], "agent: expected an agent such as fcfs"),
        (["train.stepps=3"], "train.stepps: unknown key (did you mean 'steps'?)"),
        (["train.steps=0"], "train.steps: expected a whole number >= 1, got 0"),
        (["train.patience=2", "train.validation=0"], "train.patience: expected null with train.validation=0"),
        (["backend=batsim"], "backend: expected sim or kwok for training, got batsim"),
        (["env.observation=graph"], "env.observation: expected an observation of one array"),
    ],
)
def test_mistakes_are_explained(tmp_path: Path, overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        train(tmp_path, *SMALL, "agent=ppo", *QUICK["ppo"], *overrides)
    start, _, end = message.partition(".*")
    assert start in str(caught.value) and end in str(caught.value)


def test_there_is_nothing_to_resume_where_no_training_has_begun(
    tmp_path: Path, hdsim: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    for overrides in ((), SMALL):
        done = hdsim("train", *overrides, "resume=true", "hydra.run.dir=nothing")
        assert done.returncode == 2 and "found none in 'nothing'" in done.stderr
    assert not (tmp_path / "nothing").exists()


def test_a_lost_checkpoint_is_told(tmp_path: Path, hdsim: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    overrides = (*SMALL, "agent=reinforce", *QUICK["reinforce"], "train.steps=120", "hydra.run.dir=one")
    assert hdsim("train", "-q", *overrides).returncode == 0
    manifest, state = tmp_path / "one/manifest.json", tmp_path / "one/checkpoints/state.safetensors"
    manifest.write_text(manifest.read_text().replace('"status": "finished"', '"status": "interrupted"'))
    state.unlink()
    done = hdsim("train", "-q", "resume=true", "hydra.run.dir=one")
    assert done.returncode == 0
    assert "state.safetensors: no checkpoint to continue from; the training begins anew" in done.stderr


def test_what_resume_goes_on_from_is_no_agent_to_replay(trained: Path) -> None:
    from hdsim.scheduling.agent import make_agent

    path = str(trained / "checkpoints/state.safetensors")
    with pytest.raises(ConfigError, match=r"state\.safetensors' is what resume=true goes on from, best or final"):
        make_agent({"_target_": "hdsim.agents.ppo.PPOAgent", "checkpoint": path})


def test_a_replay_finds_mistakes_in_env() -> None:
    import inspect

    from hdsim.config.composer import Composer
    from hdsim.decisions.episode_settings import KEYS, check_episode_settings
    from hdsim.envs.scheduling import SchedulingEnv
    from hdsim.runs.replays import build_replay

    composer = Composer()
    for override, message in (
        ("env.typo=3", r"env\.typo: unknown setting of action policy_pair"),
        ("env.actoin=job", r"env\.actoin: unknown setting .* \(did you mean 'action'\?\)"),
        ("env.objectiv=makespan", r"env\.objectiv: unknown setting .* \(did you mean 'objective'\?\)"),
        ("env.action=nod", r"env\.action: expected one of .*did you mean 'node'"),
        ("env.objective=foo", r"env\.objective: expected one of avg_job_slowdown, .*, got 'foo'"),
        ("env.objective=cluster_balance", r"env\.objective: expected env\.action=node"),
        ("env.reward=nope", r"env\.reward: expected one of sampled, integrated, got 'nope'"),
        ("env.reward_scale=big", r"env\.reward_scale: expected a number, got 'big'"),
        ("env.jobs=-5", r"env\.jobs: expected a whole number >= 1, got -5"),
        ("env.max_steps=1.5", r"env\.max_steps: expected a whole number >= 1, got 1\.5"),
        ("env.curriculum=hard", r"env\.curriculum: expected one of none, growing, easy_first, got 'hard'"),
        ("env.curriculum_start=all", r"env\.curriculum_start: expected a share above 0 and at most 1, got 'all'"),
    ):
        with pytest.raises(ConfigError, match=message):
            build_replay(composer.compose(composer.overrides([override])))
    parameters = inspect.signature(SchedulingEnv).parameters
    defaults = inspect.signature(check_episode_settings).parameters
    assert {key: parameters[key].default for key in KEYS} == {key: defaults[key].default for key in KEYS}


def test_a_classic_policy_has_nothing_to_learn(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="agent: expected an agent that learns, got ClassicAgent"):
        train(tmp_path, *SMALL, "agent=fcfs")


def test_an_agent_without_a_checkpoint_cannot_replay() -> None:
    import hdsim

    platform = hdsim.Platform.homogeneous(2, 2)
    workload = hdsim.Workload.from_columns(submission_time=[0], requested_cores=[1], runtime=[5], requested_time=[5])
    with pytest.raises(ConfigError, match=r"expected agent\.checkpoint=FILE of a trained agent"):
        hdsim.simulate(platform, workload, {"_target_": "hdsim.agents.dqn.DQNAgent"})


def test_a_checkpoint_of_another_algorithm_is_refused(trained: Path) -> None:
    from hdsim.scheduling.agent import make_agent

    path = str(trained / "checkpoints/best.safetensors")
    with pytest.raises(ConfigError, match=r"expected a checkpoint of DQNAgent, .* is of PPOAgent"):
        make_agent({"_target_": "hdsim.agents.dqn.DQNAgent", "checkpoint": path})


@pytest.mark.parametrize("tampered", ["agent", "hydra", "file", "yaml", "list"])
def test_a_training_from_elsewhere_runs_only_what_its_manifest_names(
    tampered: str, tmp_path: Path, hdsim: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    (tmp_path / "mine.py").write_text(
        "from hdsim.agents.reinforce import ReinforceAgent\n\n\nclass Mine(ReinforceAgent): ...\n"
    )
    overrides = (
        *SMALL,
        "agent.path=mine.py",
        "train.steps=40",
        "train.tensorboard=false",
        "train.test=1",
        "train.validation=0",
    )
    done = hdsim("train", *overrides, "hydra.run.dir=run")
    assert done.returncode == 0, done.stderr
    evil = "from pathlib import Path\nPath('executed').touch()\n"
    recorded = tmp_path / "run/.hydra/overrides.yaml"
    manifest = tmp_path / "run/manifest.json"
    manifest.write_text(manifest.read_text().replace('"status": "finished"', '"status": "interrupted"'))
    expected = {
        "agent": "expected the configuration in the manifest of run, agent differs",
        "hydra": "expected a list of overrides KEY=VALUE without Hydra's, got '++hydra.callbacks.x._target_=evil.run'",
        "file": "expected the files that the manifest of run names, with the same content; not so: agent 'mine.py'",
        "yaml": "overrides.yaml: expected YAML",
        "list": "expected a list of overrides KEY=VALUE without Hydra's, got 42",
    }[tampered]
    if tampered == "agent":
        (tmp_path / "run/evil.py").write_text(evil)
        recorded.write_text(recorded.read_text().replace("mine.py", "run/evil.py"))
    elif tampered == "hydra":
        (tmp_path / "evil.py").write_text(evil)
        recorded.write_text(recorded.read_text() + "- ++hydra.callbacks.x._target_=evil.run\n")
    elif tampered == "file":
        (tmp_path / "mine.py").write_text((tmp_path / "mine.py").read_text() + evil)
    else:
        recorded.write_text("a: [1" if tampered == "yaml" else "42")
    resumed = hdsim("train", "resume=true", "hydra.run.dir=run")
    assert resumed.returncode == 2
    assert expected in resumed.stderr
    assert not (tmp_path / "executed").exists()
